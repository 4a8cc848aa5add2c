//! The executor of a `script`: one operation at a time, in the order given, each on the CPU it names.
//!
//! Steps of one CPU in a row are a *run*. The *baton* is the script's slots: the CPU whose turn it is takes them out of
//! their mutex, executes its run without any lock of the host, puts them back, says who is next and wakes that CPU. All
//! others sleep meanwhile, and serve `call_on` while they do. At a checkpoint, or to tune, all CPUs return, so that the state can be
//! read when no CPU runs.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::measured;
use crate::alloc::{Configuration, Destroyed, Live, Prefilled, SlabAllocator, Tuning, ZERO_SIZE};
use crate::error::Error;
use crate::machine::{Access, Addr, Cpu, Machine};
use crate::page::{Page, PageFlags};
use crate::spec::{CacheId, Kind, Object, Request};
use crate::units::{CpuId, LINE, NodeId, Order, Picos, round_up};
use crate::workload::script::{Script, ScriptOp, Step};

/// What a slot holds.
#[derive(Debug)]
enum Held {
    Nothing,
    Object(CacheId, Object),
    Kmalloc(Object),
    Pages(Page),
    Prefilled(CacheId, Prefilled),
    /// The allocation had failed: freeing and touching it do nothing.
    Failed,
}

/// The slots of a script, and what has happened so far.
#[derive(Debug, Default)]
pub struct Slots {
    held: Vec<Held>,
    /// When the last step was over: the next one begins no earlier, whichever CPU it is on.
    time: Picos,
    /// Allocations that got nothing. What the script does later with their slots does nothing.
    pub failed: u64,
    /// What destroyed caches left behind, all together.
    pub destroyed: Destroyed,
}

impl Slots {
    /// Address of what a slot holds.
    pub fn addr(&self, slot: u32) -> Option<Addr> {
        match self.held.get(slot as usize)? {
            Held::Object(_, object) | Held::Kmalloc(object) => Some(object.addr()),
            Held::Pages(page) => Some(Addr(u64::from(page.pfn().0) * crate::units::PAGE_SIZE)),
            Held::Nothing | Held::Prefilled(..) | Held::Failed => None,
        }
    }
    /// What each slot holds that holds an object: its cache (none: kmalloc), and its address.
    pub fn live(&self) -> impl Iterator<Item = (u32, Live)> {
        self.held.iter().enumerate().filter_map(|(slot, held)| match held {
            Held::Object(id, object) => Some((slot as u32, (Some(*id), object.addr()))),
            Held::Kmalloc(object) => Some((slot as u32, (None, object.addr()))),
            Held::Nothing | Held::Pages(_) | Held::Prefilled(..) | Held::Failed => None,
        })
    }
    /// Slots whose allocation had failed.
    pub fn failures(&self) -> impl Iterator<Item = u32> {
        self.held.iter().enumerate().filter(|(_, h)| matches!(h, Held::Failed)).map(|(slot, _)| slot as u32)
    }
    /// Objects set aside and not taken.
    pub fn prefilled(&self) -> u64 {
        let left = |h: &Held| if let Held::Prefilled(_, p) = h { p.len() as u64 } else { 0 };
        self.held.iter().map(left).sum()
    }
    /// Slots that hold something.
    pub fn filled(&self) -> usize {
        self.held.iter().filter(|h| !matches!(h, Held::Nothing | Held::Failed)).count()
    }
}

/// Sees the allocator, the script's caches, its slots and the checkpoint's name. No CPU runs meanwhile.
pub type AtCheckpoint<'a, A> = dyn FnMut(&mut A, &[CacheId], &Slots, &str) + 'a;

/// Makes the caches of `script` and executes its steps on `machine`, which the allocator lives on. `at` is
/// called at each checkpoint.
pub fn execute<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(
    machine: &M,
    allocator: &mut A,
    script: &Script,
    at: &mut AtCheckpoint<'_, A>,
) -> Result<Slots, Error> {
    script.check(machine.topology().cpus(), machine.topology().nodes())?;
    check_kinds(script, &allocator.kmalloc_kinds(), A::Config::NAME)?;
    let mut caches = Vec::with_capacity(script.caches.len());
    let mut room = Room::new(machine);
    for (i, spec) in script.caches.iter().enumerate() {
        room.for_one_more(machine, || format!("workload.caches[{i}]"), caches.len())?;
        let made = allocator.create_cache(spec.clone());
        caches.push(made.map_err(|e| no_room(format!("workload.caches[{i}]"), caches.len(), e))?);
        machine.poll();
    }
    let mut slots = Slots::default();
    slots.held.resize_with(script.slots(), || Held::Nothing);
    let mut done = 0;
    for (steps, stop) in segments(&script.ops) {
        slots = segment(machine, allocator, &caches, steps, slots);
        machine.poll();
        done += steps.len();
        let step = done;
        done += usize::from(stop.is_some());
        let at_step = |e: Error| Error { parameter: format!("workload.ops[{step}].{}", e.parameter), ..e };
        match stop.cloned() {
            Some(ScriptOp::Create { cache }) => {
                room.for_one_more(machine, || format!("workload.ops[{step}].cache"), caches.len())?;
                let made = allocator.create_cache(cache);
                caches.push(made.map_err(|e| no_room(format!("workload.ops[{step}].cache"), caches.len(), e))?);
            }
            Some(ScriptOp::Checkpoint { name } | ScriptOp::Map { name }) => at(allocator, &caches, &slots, &name),
            Some(ScriptOp::Tune { cache, limit, batchcount, sharedfactor }) => {
                let all: Vec<CacheId> = match cache {
                    Some(cache) => vec![caches[cache as usize]],
                    None => (0..allocator.cache_count() as u32).map(CacheId).collect(),
                };
                for id in all {
                    allocator.tune(id, Tuning { limit, batchcount, sharedfactor }).map_err(at_step)?;
                }
            }
            Some(ScriptOp::Write { cache, attribute, value }) => {
                allocator.write_attribute(caches[cache as usize], &attribute, value).map_err(at_step)?;
            }
            Some(ScriptOp::Offline {}) => allocator.offline(CpuId(script.ops[step].cpu)),
            _ => {}
        }
    }
    Ok(slots)
}

/// Refuses kinds of kmalloc memory for which the allocator has no caches.
fn check_kinds(script: &Script, known: &[Kind], allocator: &str) -> Result<(), Error> {
    let unknown = script.ops.iter().enumerate().find_map(|(at, step)| match step.op {
        ScriptOp::Kmalloc { kind, .. } if !known.contains(&kind) => Some((at, kind)),
        _ => None,
    });
    let Some((at, kind)) = unknown else { return Ok(()) };
    let names: Vec<&str> = known.iter().map(|k| k.name()).collect();
    let right = format!("{}, the kinds of kmalloc caches of this {allocator}", names.join(", "));
    Err(Error::new(format!("workload.ops[{at}].kind"), format!("{:?}", kind.name()), right))
}

/// How much of the machine's room for metadata caches have taken.
struct Room {
    left: u64,
    /// What the largest cache so far took.
    most: u64,
}

impl Room {
    fn new<M: Machine>(machine: &M) -> Room {
        Room { left: machine.room(), most: 1 << 16 }
    }
    /// Refuses a cache for which there may be no room: less than two of the largest so far would need.
    fn for_one_more<M: Machine>(
        &mut self,
        machine: &M,
        parameter: impl Fn() -> String,
        caches: usize,
    ) -> Result<(), Error> {
        let left = machine.room();
        self.most = self.most.max(self.left - left);
        self.left = left;
        if left < 2 * self.most {
            let right = format!("at most {caches} caches on this machine: each takes room for every CPU and node");
            return Err(Error::new(parameter(), "one more cache", right));
        }
        Ok(())
    }
}

/// A cache whose structures found no memory, by the step that asked for it.
fn no_room(parameter: String, caches: usize, e: Error) -> Error {
    if e.parameter != "machine.memory" {
        return e;
    }
    Error::new(parameter, "one more cache", format!("at most {caches} caches in this memory: {}", e.expected))
}

/// The steps between those for which all CPUs stop, each with the step that ends it (none at the end of the script).
fn segments(ops: &[Step]) -> impl Iterator<Item = (&[Step], Option<&ScriptOp>)> {
    ops.split_inclusive(|s: &Step| s.op.stops()).map(move |part| match part.split_last() {
        Some((last, before)) if last.op.stops() => (before, Some(&last.op)),
        _ => (part, None),
    })
}

/// Steps of one CPU in a row.
struct Run {
    cpu: CpuId,
    steps: Range<usize>,
}

fn runs(steps: &[Step]) -> Vec<Run> {
    let mut from = 0;
    let chunks = steps.chunk_by(|a, b| a.cpu == b.cpu);
    chunks
        .map(|chunk| {
            let steps = from..from + chunk.len();
            from = steps.end;
            Run { cpu: CpuId(chunk[0].cpu), steps }
        })
        .collect()
}

/// Executes `steps` and returns when all CPUs have returned.
fn segment<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(
    machine: &M,
    allocator: &A,
    caches: &[CacheId],
    steps: &[Step],
    slots: Slots,
) -> Slots {
    let runs = runs(steps);
    if runs.is_empty() {
        return slots;
    }
    let turn = AtomicUsize::new(0);
    let baton = Mutex::new(slots);
    machine.boot(|cpu| {
        while let Some(run) = runs.get(turn.load(Ordering::Acquire)) {
            if run.cpu != cpu.id() {
                // Woken by its predecessor, by a call, or, when the last run is over, because all is quiet.
                cpu.idle(None);
                continue;
            }
            let mut slots = std::mem::take(&mut *baton.lock().expect("held for a move only"));
            while cpu.now() < slots.time {
                // After a stop nobody has woken this CPU: its clock is where it was when it ran last.
                cpu.idle(Some(slots.time));
            }
            for step in &steps[run.steps.clone()] {
                if machine.cancelled() {
                    break;
                }
                slots.step(cpu, allocator, caches, &step.op);
            }
            slots.time = cpu.now();
            *baton.lock().expect("held for a move only") = slots;
            // Nobody whose clock is behind may see that the turn has passed.
            cpu.interact();
            if machine.cancelled() {
                turn.store(runs.len(), Ordering::Release);
                continue;
            }
            let next = turn.fetch_add(1, Ordering::Release) + 1;
            if let Some(run) = runs.get(next) {
                cpu.kick(run.cpu);
            }
        }
    });
    baton.into_inner().expect("a panic would have ended the boot")
}

impl Slots {
    fn step<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(
        &mut self,
        cpu: &M::Cpu,
        allocator: &A,
        caches: &[CacheId],
        op: &ScriptOp,
    ) {
        let cache_id = |cache: u32| caches[cache as usize];
        match *op {
            ScriptOp::Alloc { cache, slot, node } => {
                let want = Request { node: node.map(NodeId), ..Request::default() };
                let id = cache_id(cache);
                self.fill(slot, measured::alloc(allocator, cpu, id, want).map(|object| Held::Object(id, object)));
            }
            ScriptOp::Kmalloc { bytes, slot, node, kind } => {
                let want = Request { node: node.map(NodeId), kind, ..Request::default() };
                self.fill(slot, measured::kmalloc(allocator, cpu, bytes, want).map(Held::Kmalloc));
            }
            ScriptOp::AllocPages { order, slot } => {
                let flags = PageFlags { compound: order > 0, ..PageFlags::default() };
                self.fill(slot, allocator.pages().alloc_pages(cpu, Order(order), None, flags).map(Held::Pages));
            }
            ScriptOp::Free { slot } | ScriptOp::Kfree { slot } | ScriptOp::FreePages { slot } => {
                match std::mem::replace(&mut self.held[slot as usize], Held::Nothing) {
                    Held::Object(id, object) => measured::free(allocator, cpu, id, object),
                    Held::Kmalloc(object) => measured::kfree(allocator, cpu, object),
                    Held::Pages(page) => allocator.pages().free_pages(cpu, page),
                    Held::Prefilled(..) | Held::Nothing | Held::Failed => {}
                }
            }
            ScriptOp::AllocBulk { cache, ref slots } => {
                let id = cache_id(cache);
                let got = allocator.alloc_bulk(cpu, id, Request::default(), slots.len() as u64);
                let mut got = got.map(Vec::into_iter);
                for &slot in slots {
                    self.fill(slot, got.as_mut().and_then(|g| g.next()).map(|object| Held::Object(id, object)));
                }
            }
            ScriptOp::FreeBulk { ref slots } => {
                let mut of = None;
                let mut objects = Vec::with_capacity(slots.len());
                for &slot in slots {
                    if let Held::Object(id, object) = self.take(slot) {
                        of = Some(id);
                        objects.push(object);
                    }
                }
                if let Some(id) = of {
                    allocator.free_bulk(cpu, id, objects);
                }
            }
            ScriptOp::FreeRcu { slot } => {
                if let Held::Object(id, object) = self.take(slot) {
                    allocator.free_rcu(cpu, id, object);
                }
            }
            ScriptOp::RcuBarrier {} => allocator.rcu_barrier(cpu),
            ScriptOp::Prefill { cache, slot, objects } => {
                let id = cache_id(cache);
                let got = allocator.prefill(cpu, id, Request::default(), objects);
                self.fill(slot, got.map(|p| Held::Prefilled(id, p)));
            }
            ScriptOp::AllocPrefilled { from, slot } => {
                let got = match &mut self.held[from as usize] {
                    Held::Prefilled(id, p) => {
                        allocator.alloc_from_prefilled(cpu, *id, p).map(|object| Held::Object(*id, object))
                    }
                    _ => None,
                };
                self.fill(slot, got);
            }
            ScriptOp::Refill { slot, objects } => {
                if let Held::Prefilled(id, p) = &mut self.held[slot as usize] {
                    let refilled = allocator.refill(cpu, *id, p, Request::default(), objects);
                    self.failed += u64::from(!refilled);
                }
            }
            ScriptOp::ReturnPrefilled { slot } => {
                if let Held::Prefilled(id, p) = self.take(slot) {
                    allocator.return_prefilled(cpu, id, p);
                }
            }
            ScriptOp::Touch { slot, bytes } => {
                if let Some(addr) = self.addr(slot).filter(|addr| *addr != ZERO_SIZE) {
                    write(cpu, allocator, addr, bytes);
                }
            }
            ScriptOp::Shrink { cache } => allocator.shrink(cpu, cache_id(cache)),
            ScriptOp::Trim {} => allocator.trim(cpu),
            ScriptOp::Wait { seconds } => {
                let until = Picos(cpu.now().0 + Picos::from_secs_f64(seconds).0);
                while cpu.now() < until {
                    cpu.idle(Some(until));
                }
            }
            ScriptOp::Destroy { cache } => {
                let left = allocator.destroy(cpu, cache_id(cache));
                self.destroyed.pages_lost += left.pages_lost;
                self.destroyed.warnings += left.warnings;
            }
            ScriptOp::Checkpoint { .. }
            | ScriptOp::Map { .. }
            | ScriptOp::Tune { .. }
            | ScriptOp::Write { .. }
            | ScriptOp::Offline {}
            | ScriptOp::Create { .. } => {
                unreachable!("they end a segment")
            }
        }
    }

    fn take(&mut self, slot: u32) -> Held {
        std::mem::replace(&mut self.held[slot as usize], Held::Nothing)
    }

    fn fill(&mut self, slot: u32, taken: Option<Held>) {
        self.failed += u64::from(taken.is_none());
        self.held[slot as usize] = taken.unwrap_or(Held::Failed);
    }
}

/// Writes one word in each line of the object; a line of which less than a word is ours is only charged.
pub(super) fn write<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(cpu: &M::Cpu, allocator: &A, addr: Addr, bytes: u64) {
    let end = addr.0 + bytes;
    let mut line = addr.0 / LINE * LINE;
    while line < end {
        let word = round_up(line.max(addr.0), 8);
        if word + 8 <= end {
            allocator.pages().arena().store(cpu, Addr(word), word);
        } else {
            cpu.touch(Addr(line), Access::Write);
        }
        line += LINE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::null::{Config, Null};
    use crate::machine::presets::Machinery;
    use crate::machine::sim::Schedule;
    use crate::machine::{Native, Sim};
    use crate::page::{PageModel, Pages};

    /// Three CPUs hand objects around; CPU 2 only kfrees, so it is woken once.
    const SCRIPT: &str = r#"{ "caches": [{ "name": "a", "size": 64 }], "ops": [
        { "cpu": 0, "op": { "alloc": { "cache": 0, "slot": 0 } } },
        { "cpu": 1, "op": { "alloc": { "cache": 0, "slot": 1 } } },
        { "cpu": 0, "op": { "kmalloc": { "bytes": 100, "slot": 2 } } },
        { "cpu": 0, "op": { "alloc_pages": { "order": 2, "slot": 3 } } },
        { "cpu": 0, "op": { "touch": { "slot": 3, "bytes": 16384 } } },
        { "cpu": 0, "op": { "kmalloc": { "bytes": 0, "slot": 4 } } },
        { "op": { "checkpoint": { "name": "full" } } },
        { "cpu": 1, "op": { "free": { "slot": 0 } } },
        { "cpu": 2, "op": { "kfree": { "slot": 2 } } },
        { "cpu": 1, "op": { "free": { "slot": 1 } } },
        { "cpu": 0, "op": { "free_pages": { "slot": 3 } } },
        { "cpu": 0, "op": { "kfree": { "slot": 4 } } },
        { "op": { "checkpoint": { "name": "empty" } } },
        { "cpu": 1, "op": { "alloc": { "cache": 0, "slot": 0 } } },
        { "cpu": 1, "op": { "free": { "slot": 0 } } },
        { "cpu": 2, "op": { "destroy": { "cache": 0 } } },
        { "op": { "checkpoint": { "name": "destroyed" } } } ] }"#;

    /// Runs [`SCRIPT`]: at each checkpoint its name, slots in use, live objects and pages of the cache.
    fn run<M: Machine>(machine: &M) -> Vec<(String, usize, u64, u64)> {
        let pages = Pages::new(machine, PageModel::HotCold).unwrap();
        let mut null = Null::new(&pages, &Config { era: "1".into() }).unwrap();
        let script: Script = serde_json::from_str(SCRIPT).unwrap();
        let mut seen = Vec::new();
        let mut at = |null: &mut Null<'_, M>, caches: &[CacheId], slots: &Slots, name: &str| {
            let info = null.info(caches[0]);
            seen.push((name.to_string(), slots.filled(), info.live_objects, info.pages.unwrap()));
            assert_eq!(slots.addr(4), (name == "full").then_some(ZERO_SIZE));
        };
        let slots = execute(machine, &mut null, &script, &mut at).unwrap();
        assert_eq!((slots.failed, slots.destroyed.pages_lost), (0, 0));
        seen
    }

    fn expected() -> Vec<(String, usize, u64, u64)> {
        let row = |name: &str, slots, live, pages| (name.to_string(), slots, live, pages);
        vec![row("full", 5, 2, 2), row("empty", 0, 0, 2), row("destroyed", 0, 0, 0)]
    }

    fn sim(cpus: u64, bytes: u64) -> Sim {
        Sim::new(&Machinery::for_topology(cpus, 1, bytes).unwrap(), Schedule::default()).unwrap()
    }

    #[test]
    fn steps_run_in_order_on_the_cpus_they_name() {
        assert_eq!(run(&sim(3, 64 << 20)), expected());
    }

    #[test]
    fn native_threads_take_turns_the_same_way() {
        let machine = Native::new(crate::topology::Topology::blocks(3, 1, 64 << 20)).unwrap();
        assert_eq!(run(&machine), expected());
    }

    #[test]
    fn tuning_applies_between_two_steps_and_needs_an_allocator_with_tunables() {
        use crate::alloc::slab::{Config, Slab};
        let text = r#"{ "caches": [{ "name": "a", "size": 64 }], "ops": [
            { "cpu": 1, "op": { "alloc": { "cache": 0, "slot": 0 } } },
            { "op": { "tune": { "cache": 0, "limit": 10, "batchcount": 5, "sharedfactor": 2 } } },
            { "op": { "checkpoint": { "name": "one" } } },
            { "op": { "tune": { "limit": 6, "batchcount": 3, "sharedfactor": 0 } } },
            { "op": { "tune": { "limit": 6, "batchcount": 7, "sharedfactor": 0 } } },
            { "cpu": 1, "op": { "free": { "slot": 0 } } },
            { "op": { "checkpoint": { "name": "all" } } } ] }"#;
        let script: Script = serde_json::from_str(text).unwrap();
        let machine = sim(2, 64 << 20);
        let pages = Pages::new(&machine, PageModel::HotCold).unwrap();
        let config = <Config as crate::alloc::Configuration>::era("2.6.24").unwrap();
        let mut slab = Slab::new(&pages, &config).unwrap();
        let mut seen = Vec::new();
        let mut at = |slab: &mut Slab<'_, Sim>, caches: &[CacheId], _: &Slots, _: &str| {
            seen.push([caches[0], CacheId(0)].map(|id| slab.info(id).limit.unwrap()));
        };
        execute(&machine, &mut slab, &script, &mut at).unwrap();
        assert_eq!(seen, [[10, 120], [6, 6]]);
        let mut null = Null::new(&pages, &crate::alloc::null::Config { era: "1".into() }).unwrap();
        let e = execute(&machine, &mut null, &script, &mut |_, _, _, _| {}).unwrap_err().to_string();
        assert!(e.contains("null has nothing to tune"), "{e}");
    }

    #[test]
    fn a_switch_of_cpu_costs_an_interrupt_and_a_row_of_steps_does_not() {
        let elapsed = |second: u16| {
            let mut machine = sim(2, 64 << 20);
            let step = |cpu| Step { cpu, op: ScriptOp::Trim {} };
            let script = Script { caches: vec![], ops: vec![step(0), step(second), step(0)] };
            let pages = Pages::new(&machine, PageModel::HotCold).unwrap();
            let mut null = Null::new(&pages, &Config { era: "1".into() }).unwrap();
            execute(&machine, &mut null, &script, &mut |_, _, _, _| {}).unwrap();
            drop(pages);
            machine.elapsed()
        };
        assert_eq!(elapsed(0), 0);
        assert!(elapsed(1) > 0);
    }

    #[test]
    fn who_comes_after_a_wait_comes_later() {
        let mut machine = sim(2, 64 << 20);
        let ops = [(0, ScriptOp::Trim {}), (1, ScriptOp::Wait { seconds: 2.0 }), (0, ScriptOp::Wait { seconds: 0.5 })];
        let script = Script { caches: vec![], ops: ops.map(|(cpu, op)| Step { cpu, op }).into() };
        let pages = Pages::new(&machine, PageModel::HotCold).unwrap();
        let mut null = Null::new(&pages, &Config { era: "1".into() }).unwrap();
        execute(&machine, &mut null, &script, &mut |_, _, _, _| {}).unwrap();
        drop(pages);
        let elapsed = Picos(machine.elapsed()).secs();
        assert!((2.5..2.501).contains(&elapsed), "{elapsed}");
    }

    #[test]
    fn a_step_after_a_checkpoint_does_not_begin_before_it_on_another_cpu() {
        let mut machine = sim(2, 64 << 20);
        let wait = |cpu| Step { cpu, op: ScriptOp::Wait { seconds: 1.0 } };
        let stop = Step { cpu: 0, op: ScriptOp::Checkpoint { name: "stop".into() } };
        let script = Script { caches: vec![], ops: vec![wait(0), stop, wait(1)] };
        let pages = Pages::new(&machine, PageModel::HotCold).unwrap();
        let mut null = Null::new(&pages, &Config { era: "1".into() }).unwrap();
        execute(&machine, &mut null, &script, &mut |_, _, _, _| {}).unwrap();
        drop(pages);
        let elapsed = Picos(machine.elapsed()).secs();
        assert!((2.0..2.001).contains(&elapsed), "{elapsed}");
    }

    #[test]
    fn what_fails_is_counted_and_its_slot_does_nothing() {
        let machine = sim(1, 8 << 20);
        let pages = Pages::new(&machine, PageModel::HotCold).unwrap();
        let mut null = Null::new(&pages, &Config { era: "1".into() }).unwrap();
        let mut ops: Vec<ScriptOp> = (0..4).map(|slot| ScriptOp::AllocPages { order: 10, slot }).collect();
        ops.push(ScriptOp::Touch { slot: 3, bytes: 64 });
        ops.extend((0..4).map(|slot| ScriptOp::FreePages { slot }));
        let script = Script { caches: vec![], ops: ops.into_iter().map(|op| Step { cpu: 0, op }).collect() };
        let slots = execute(&machine, &mut null, &script, &mut |_, _, _, _| {}).unwrap();
        assert!((1..4).contains(&slots.failed), "{}", slots.failed);
        drop(null);
        let mut pages = pages;
        assert_eq!(pages.verify(), Ok(()));
    }
}
