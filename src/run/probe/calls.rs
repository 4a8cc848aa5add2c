//! The allocator's calls, one at a time: what a pair costs, what bulk calls cost an object, and what each path asks of the
//! machine.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::alloc::SlabAllocator;
use crate::error::Error;
use crate::machine::sim::Tally;
use crate::machine::{Access, Cpu, Event, Machine, Operation, Path, Sim};
use crate::spec::{CacheSpec, Object, Request};

/// Objects of a bulk call.
const BULK: [u64; 14] = [1, 2, 3, 4, 8, 16, 30, 32, 34, 48, 64, 128, 158, 250];
/// Repetitions of a measurement; the first ones warm the caches up.
const TIMES: u64 = 64;
const WARM: u64 = 16;

/// Runs `measure` on CPU 0 alone and returns its result.
fn on_cpu_0<R: Send + Default>(sim: &Sim, measure: impl Fn(&<Sim as Machine>::Cpu) -> R + Sync) -> R {
    let result = Mutex::new(R::default());
    sim.boot(|cpu| {
        if cpu.id().0 == 0 {
            *result.lock().expect("one CPU") = measure(cpu);
        }
    });
    result.into_inner().expect("one CPU")
}

/// Mean time of `call` once it is warm.
fn mean<C: Cpu>(cpu: &C, mut call: impl FnMut()) -> u64 {
    (0..WARM).for_each(|_| call());
    let before = cpu.now();
    (0..TIMES).for_each(|_| call());
    (cpu.now().0 - before.0) / TIMES
}

/// A hot pair of a cache and of kmalloc, and bulk calls of 1 to 250 objects beside the same number of single ones.
pub(super) fn pairs<'p, A: SlabAllocator<'p, Sim>>(sim: &Sim, alloc: &mut A, size: u64) -> Result<Value, Error> {
    let cache = alloc.create_cache(CacheSpec::new("probe", size))?;
    let (alloc, want) = (&*alloc, Request::default());
    let take = |cpu: &_| alloc.alloc(cpu, cache, want).expect("an empty machine");
    let pair = on_cpu_0(sim, |cpu| mean(cpu, || alloc.free(cpu, cache, take(cpu))));
    let kmalloc = on_cpu_0(sim, |cpu| {
        mean(cpu, || {
            let object = alloc.kmalloc(cpu, size, want).expect("an empty machine");
            alloc.kfree(cpu, object);
        })
    });
    let bulk: Vec<Value> = BULK
        .iter()
        .map(|&n| {
            let (single, bulk) = on_cpu_0(sim, |cpu| {
                let single = mean(cpu, || {
                    let held: Vec<Object> = (0..n).map(|_| take(cpu)).collect();
                    held.into_iter().for_each(|o| alloc.free(cpu, cache, o));
                });
                let bulk = mean(cpu, || {
                    let held = alloc.alloc_bulk(cpu, cache, want, n).expect("an empty machine");
                    alloc.free_bulk(cpu, cache, held);
                });
                (single, bulk)
            });
            json!({ "n": n, "single_ps": single / n, "bulk_ps": bulk / n })
        })
        .collect();
    Ok(json!({ "size": size, "pair_ps": pair, "kmalloc_pair_ps": kmalloc, "bulk": bulk }))
}

/// Objects that the paths are looked for with: several slabs, more than any queue holds.
const OBJECTS: usize = 400;

/// What one CPU does with the objects held, noting what it saw.
type Step<'a> = dyn Fn(&<Sim as Machine>::Cpu, &mut Seen, &mut Vec<Object>) + Sync + 'a;
/// How often each path of an operation asked for what.
type Seen = BTreeMap<(u8, Path), BTreeMap<Tally, u64>>;

/// What each path asks of the machine: fresh objects, all freed again, taken again, freed by another CPU, and hot pairs.
pub(super) fn paths<'p, A: SlabAllocator<'p, Sim>>(sim: &Sim, alloc: &mut A, size: u64) -> Result<Value, Error> {
    let cache = alloc.create_cache(CacheSpec::new("probe", size))?;
    let alloc = &*alloc;
    let state = Mutex::new((Seen::new(), Vec::new()));
    let last = sim.topology().cpus() as u16 - 1;
    let on = |who: u16, step: &Step<'_>| {
        sim.boot(|cpu| {
            if cpu.id().0 == who {
                let (mut seen, mut held) = std::mem::take(&mut *state.lock().expect("one CPU"));
                step(cpu, &mut seen, &mut held);
                *state.lock().expect("one CPU") = (seen, held);
            }
        });
    };
    let count = |cpu: &<Sim as Machine>::Cpu, seen: &mut Seen, operation: Operation, call: &mut dyn FnMut()| {
        cpu.begin(operation);
        let before = cpu.tally();
        call();
        let asked = cpu.tally() - before;
        let path = cpu.reached().unwrap_or(Path::Fast);
        cpu.end();
        *seen.entry((operation as u8, path)).or_default().entry(asked).or_default() += 1;
    };
    let take = |cpu: &<Sim as Machine>::Cpu, seen: &mut Seen, held: &mut Vec<Object>| {
        let mut got = None;
        count(cpu, seen, Operation::Alloc, &mut || got = alloc.alloc(cpu, cache, Request::default()));
        held.extend(got);
    };
    let give = |cpu: &<Sim as Machine>::Cpu, seen: &mut Seen, held: &mut Vec<Object>, at: usize| {
        let mut object = Some(held.remove(at));
        count(cpu, seen, Operation::Free, &mut || alloc.free(cpu, cache, object.take().expect("freed once")));
    };
    on(0, &|cpu, seen, held| (0..OBJECTS).for_each(|_| take(cpu, seen, held)));
    on(0, &|cpu, seen, held| (0..OBJECTS).for_each(|_| give(cpu, seen, held, 0)));
    on(0, &|cpu, seen, held| {
        (0..OBJECTS).for_each(|_| take(cpu, seen, held));
        for _ in 0..OBJECTS {
            take(cpu, seen, held);
            give(cpu, seen, held, OBJECTS);
        }
    });
    on(last, &|cpu, seen, held| (0..OBJECTS).for_each(|_| give(cpu, seen, held, 0)));
    on(0, &|cpu, seen, held| (0..OBJECTS).for_each(|_| take(cpu, seen, held)));
    on(last, &|cpu, seen, held| (0..OBJECTS).for_each(|_| give(cpu, seen, held, 0)));
    let (seen, _) = state.into_inner().expect("one CPU");
    let rows: Vec<Value> = seen
        .into_iter()
        .map(|((operation, path), tallies)| {
            let operation = Operation::ALL[usize::from(operation)];
            let all: u64 = tallies.values().sum();
            // The usual way through the path; the others are shorter or longer by what they met.
            let (usual, times) = tallies.into_iter().max_by_key(|(t, n)| (*n, *t)).expect("seen at least once");
            json!({
                "operation": if operation == Operation::Alloc { "alloc" } else { "free" },
                "path": path.name(operation),
                "calls": all,
                "usual": times,
                "loads": usual.accesses_of(Access::Read),
                "stores": usual.accesses_of(Access::Write),
                "atomics": usual.accesses_of(Access::Rmw),
                "prefetches": usual.accesses_of(Access::Prefetch),
                "irq_save_restore": usual.events_of(Event::IrqSaveRestore),
                "irq_disable_enable": usual.events_of(Event::IrqDisableEnable),
                "cmpxchg_local": usual.events_of(Event::CmpxchgLocal),
                "instructions": usual.instructions,
            })
        })
        .collect();
    Ok(json!(rows))
}
