//! The executor of a `script`: one operation at a time, in the order given, each on the CPU it names.
//!
//! Steps of one CPU in a row are a *run*. The *baton* is the script's slots: the CPU whose turn it is takes them out of
//! their mutex, executes its run without any lock of the host, puts them back, says who is next and wakes that CPU. All
//! others sleep meanwhile, and serve `call_on` while they do. At a checkpoint all CPUs return, so that the state can be
//! read when no CPU runs.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::alloc::{Destroyed, SlabAllocator, ZERO_SIZE};
use crate::error::Error;
use crate::machine::{Access, Addr, Cpu, Machine};
use crate::page::{Page, PageFlags};
use crate::spec::{CacheId, Object, Request};
use crate::units::{CpuId, LINE, NodeId, Order, round_up};
use crate::workload::script::{Script, ScriptOp, Step};

/// What a slot holds.
#[derive(Debug)]
enum Held {
    Nothing,
    Object(CacheId, Object),
    Kmalloc(Object),
    Pages(Page),
    /// The allocation had failed: freeing and touching it do nothing.
    Failed,
}

/// The slots of a script, and what has happened so far.
#[derive(Debug, Default)]
pub struct Slots {
    held: Vec<Held>,
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
            Held::Nothing | Held::Failed => None,
        }
    }
    /// Slots that hold something.
    pub fn filled(&self) -> usize {
        self.held.iter().filter(|h| !matches!(h, Held::Nothing | Held::Failed)).count()
    }
}

/// Makes the caches of `script` and executes its steps on `machine`, which the allocator lives on. `at` sees the
/// allocator and the slots at each checkpoint, with its name.
pub fn execute<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(
    machine: &M,
    allocator: &mut A,
    script: &Script,
    at: &mut dyn FnMut(&mut A, &[CacheId], &Slots, &str),
) -> Result<Slots, Error> {
    script.check(machine.topology().cpus(), machine.topology().nodes())?;
    let caches =
        script.caches.iter().map(|spec| allocator.create_cache(spec.clone())).collect::<Result<Vec<_>, _>>()?;
    let mut slots = Slots::default();
    slots.held.resize_with(script.slots(), || Held::Nothing);
    for (steps, checkpoint) in segments(&script.ops) {
        slots = segment(machine, allocator, &caches, steps, slots);
        if let Some(name) = checkpoint {
            at(allocator, &caches, &slots, name);
        }
    }
    Ok(slots)
}

/// The steps between checkpoints, each with the name of the checkpoint that ends it (none at the end of the script).
fn segments(ops: &[Step]) -> impl Iterator<Item = (&[Step], Option<&str>)> {
    let is_checkpoint = |s: &Step| matches!(s.op, ScriptOp::Checkpoint { .. });
    ops.split_inclusive(is_checkpoint).map(|part| match part.split_last() {
        Some((Step { op: ScriptOp::Checkpoint { name }, .. }, before)) => (before, Some(name.as_str())),
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
            for step in &steps[run.steps.clone()] {
                slots.step(cpu, allocator, caches, &step.op);
            }
            *baton.lock().expect("held for a move only") = slots;
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
                self.fill(slot, allocator.alloc(cpu, id, want).map(|object| Held::Object(id, object)));
            }
            ScriptOp::Kmalloc { bytes, slot, node } => {
                let want = Request { node: node.map(NodeId), ..Request::default() };
                self.fill(slot, allocator.kmalloc(cpu, bytes, want).map(Held::Kmalloc));
            }
            ScriptOp::AllocPages { order, slot } => {
                let flags = PageFlags { compound: order > 0, ..PageFlags::default() };
                self.fill(slot, allocator.pages().alloc_pages(cpu, Order(order), None, flags).map(Held::Pages));
            }
            ScriptOp::Free { slot } | ScriptOp::Kfree { slot } | ScriptOp::FreePages { slot } => {
                match std::mem::replace(&mut self.held[slot as usize], Held::Nothing) {
                    Held::Object(id, object) => allocator.free(cpu, id, object),
                    Held::Kmalloc(object) => allocator.kfree(cpu, object),
                    Held::Pages(page) => allocator.pages().free_pages(cpu, page),
                    Held::Nothing | Held::Failed => {}
                }
            }
            ScriptOp::Touch { slot, bytes } => {
                if let Some(addr) = self.addr(slot).filter(|addr| *addr != ZERO_SIZE) {
                    write(cpu, allocator, addr, bytes);
                }
            }
            ScriptOp::Shrink { cache } => allocator.shrink(cpu, cache_id(cache)),
            ScriptOp::Trim {} => allocator.trim(cpu),
            ScriptOp::Destroy { cache } => {
                let left = allocator.destroy(cpu, cache_id(cache));
                self.destroyed.pages_lost += left.pages_lost;
                self.destroyed.warnings += left.warnings;
            }
            ScriptOp::Checkpoint { .. } => unreachable!("checkpoints end a segment"),
        }
    }

    fn fill(&mut self, slot: u32, taken: Option<Held>) {
        self.failed += u64::from(taken.is_none());
        self.held[slot as usize] = taken.unwrap_or(Held::Failed);
    }
}

/// Writes one word in each line of the object; a line of which less than a word is ours is only charged.
fn write<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(cpu: &M::Cpu, allocator: &A, addr: Addr, bytes: u64) {
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
