//! Lines, locks, sleeping CPUs and pages of a machine without an allocator.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::error::Error;
use crate::machine::{Access, Addr, Cpu, Machine, RawLock, Sim, SpinLock};
use crate::page::{PageFlags, PageModel, Pages};
use crate::topology::{Distance, Topology};
use crate::units::{CpuId, NodeId, Order, Picos};

/// A machine of its own for each measurement.
type Fresh<'a> = dyn Fn() -> Result<Sim, Error> + 'a;

/// Long enough for everything before to be over.
const LATER: Picos = Picos(20_000_000_000);
/// Most CPUs that wait for one lock.
const WAITERS: u16 = 15;
/// Lengths of the sleep before the one that is ended, in microseconds.
const SLEEPS: [u64; 7] = [1, 10, 30, 100, 300, 1000, 5000];

fn name(distance: Distance) -> &'static str {
    match distance {
        Distance::Own => "own",
        Distance::SameCore => "same_core",
        Distance::SameL2 => "same_l2",
        Distance::SameSocket => "same_socket",
        Distance::CrossCcd => "cross_ccd",
        Distance::CrossSocket => "cross_socket",
    }
}

/// For each distance of the machine the first CPU that far from CPU 0.
fn others(t: &Topology) -> BTreeMap<&'static str, CpuId> {
    let mut found = BTreeMap::new();
    for cpu in t.cpu_ids().skip(1) {
        found.entry(name(t.distance(CpuId(0), cpu))).or_insert(cpu);
    }
    found
}

/// Runs one access on one CPU when nothing else is under way; returns what it took.
fn access(sim: &Sim, cpu: CpuId, addr: Addr, access: Access) -> u64 {
    let took = Mutex::new(0);
    sim.boot(|me| {
        me.delay(LATER);
        if me.id() == cpu {
            let before = me.now();
            me.touch(addr, access);
            *took.lock().expect("one CPU") = me.now().0 - before.0;
        }
    });
    took.into_inner().expect("one CPU")
}

/// A line that goes between CPU 0 and another CPU at each distance: loads of a dirty line, stores to one, locked operations,
/// and a store to a line that both share.
pub(super) fn transfers(fresh: &Fresh<'_>) -> Result<Vec<Value>, Error> {
    let mut rows = Vec::new();
    for (distance, other) in others(fresh()?.topology()) {
        let sim = fresh()?;
        let addr = sim.reserve(64, NodeId(0));
        let zero = CpuId(0);
        access(&sim, zero, addr, Access::Write);
        let load = access(&sim, other, addr, Access::Read);
        let shared = access(&sim, zero, addr, Access::Write);
        let rmw = access(&sim, other, addr, Access::Rmw);
        let back = access(&sim, zero, addr, Access::Rmw);
        let store = access(&sim, other, addr, Access::Write);
        for (what, ps) in [
            ("load of a dirty line", load),
            ("store to a shared line", shared),
            ("locked operation", rmw),
            ("locked operation back", back),
            ("store to a dirty line", store),
        ] {
            rows.push(json!({ "distance": distance, "what": what, "ps": ps }));
        }
    }
    Ok(rows)
}

/// One lock that CPU 0 holds while others queue for it in order of their numbers: each hand-off from release to acquisition.
pub(super) fn hand_offs(fresh: &Fresh<'_>) -> Result<Vec<Value>, Error> {
    let sim = fresh()?;
    let t = sim.topology().clone();
    let waiters = (t.cpus() as u16 - 1).min(WAITERS);
    let lock = sim.lock("probe", sim.reserve(64, NodeId(0)));
    let log = Mutex::new(Vec::new());
    sim.boot(|cpu| {
        if cpu.id().0 > waiters {
            return;
        }
        cpu.delay(Picos(1_000_000 * u64::from(cpu.id().0)));
        lock.lock(cpu);
        let acquired = cpu.now();
        cpu.delay(if cpu.id().0 == 0 { LATER } else { Picos(1_000_000) });
        // All others are in the queue by now.
        cpu.interact();
        lock.unlock(cpu);
        log.lock().expect("no panic").push((acquired, cpu.now(), cpu.id()));
    });
    let mut log = log.into_inner().expect("no panic");
    log.sort_unstable_by_key(|entry| entry.0);
    let mut waiting: Vec<CpuId> = (1..=waiters).map(CpuId).collect();
    let mut rows = Vec::new();
    for pair in log.windows(2) {
        let ((_, released, from), (acquired, _, to)) = (pair[0], pair[1]);
        let count = waiting.len();
        waiting.retain(|w| *w != to);
        let rest: Vec<&str> = waiting.iter().map(|w| name(t.distance(from, *w))).collect();
        rows.push(json!({
            "waiters": count,
            "from": from.0,
            "to": to.0,
            "distance": name(t.distance(from, to)),
            "rest": rest,
            "ps": acquired.0 - released.0,
        }));
    }
    for (distance, other) in others(&t) {
        rows.push(ran_ahead(&fresh()?, distance, other));
    }
    Ok(rows)
}

/// The hand-off from a holder that ran ahead of the clocks and released in its own future.
fn ran_ahead(sim: &Sim, distance: &str, other: CpuId) -> Value {
    let lock = sim.lock("probe", sim.reserve(64, NodeId(0)));
    let times = Mutex::new((Picos(0), Picos(0)));
    sim.boot(|cpu| {
        if cpu.id().0 == 0 {
            lock.lock(cpu);
            cpu.delay(LATER);
            lock.unlock(cpu);
            times.lock().expect("no panic").0 = cpu.now();
        } else if cpu.id() == other {
            cpu.delay(Picos(1_000_000));
            lock.lock(cpu);
            times.lock().expect("no panic").1 = cpu.now();
            lock.unlock(cpu);
        }
    });
    let (released, acquired) = times.into_inner().expect("no panic");
    let rest: [&str; 0] = [];
    json!({
        "waiters": 1, "from": 0, "to": other.0, "distance": distance, "rest": rest, "ps": acquired.0 - released.0,
    })
}

/// CPU 0 wakes another CPU that sleeps, after a sleep of known length before: from the kick to the sleeper's first step.
pub(super) fn wake_ups(fresh: &Fresh<'_>) -> Result<Vec<Value>, Error> {
    let mut rows = Vec::new();
    for (distance, other) in others(fresh()?.topology()) {
        for us in SLEEPS {
            let sim = fresh()?;
            let times = Mutex::new((Picos(0), Picos(0)));
            sim.boot(|cpu| {
                if cpu.id() == other {
                    cpu.idle(Some(Picos(us * 1_000_000)));
                    cpu.idle(None);
                    times.lock().expect("no panic").1 = cpu.now();
                } else if cpu.id().0 == 0 {
                    cpu.delay(LATER);
                    times.lock().expect("no panic").0 = cpu.now();
                    cpu.kick(other);
                }
            });
            let (kicked, woken) = times.into_inner().expect("no panic");
            rows.push(json!({ "distance": distance, "last_sleep_us": us, "ps": woken.0 - kicked.0 }));
        }
    }
    Ok(rows)
}

/// Pairs each CPU takes and returns before and during a measurement.
const WARM: u64 = 50;
const PAIRS: u64 = 400;

/// A block taken and returned, order 0 and 1, on some CPUs at once: the mean pair.
pub(super) fn page_pairs(fresh: &Fresh<'_>, model: PageModel) -> Result<Vec<Value>, Error> {
    let mut rows = Vec::new();
    let cpus = fresh()?.topology().cpus() as u16;
    for order in [0, 1] {
        for busy in [1, 2, 4, 8].into_iter().filter(|n| *n <= cpus) {
            let sim = fresh()?;
            let pages = Pages::new(&sim, model)?;
            let sum = SpinLock::<Sim, u64>::new(sim.lock("probe", sim.reserve(64, NodeId(0))), 0);
            sim.boot(|cpu| {
                if cpu.id().0 >= busy {
                    return;
                }
                let pairs = |n: u64| {
                    for _ in 0..n {
                        let flags = PageFlags { compound: order > 0, ..PageFlags::default() };
                        let page = pages.alloc_pages(cpu, Order(order), None, flags).expect("an empty machine");
                        pages.free_pages(cpu, page);
                    }
                };
                pairs(WARM);
                let before = cpu.now();
                pairs(PAIRS);
                let took = cpu.now().0 - before.0;
                *sum.lock(cpu) += took;
            });
            let mut sum = sum;
            rows.push(json!({
                "order": order,
                "busy_cpus": busy,
                "pair_ps": *sum.get_mut() / PAIRS / u64::from(busy),
            }));
        }
    }
    Ok(rows)
}
