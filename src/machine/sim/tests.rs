use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::machine::presets::Placement;
use crate::machine::{Access, Cpu, LockReport, SpinLock, Wakeup};
use crate::units::{CpuId, Instr, Picos};

mod residency;

fn opteron(schedule: Schedule) -> Sim {
    let m = Machinery::preset("opteron-2x4-2007", &BTreeMap::new(), None, Placement::Spread).unwrap();
    Sim::new(&m, schedule).unwrap()
}

#[test]
fn a_wait_begins_with_the_access_in_vain_and_ends_before_the_one_that_takes_the_lock() {
    for jitter_ps in [0, 40] {
        let mut sim = opteron(Schedule { jitter_ps, ..Schedule::default() });
        let addr = sim.reserve(64, NodeId(0));
        let lock = SpinLock::<Sim, ()>::new(sim.lock("test", addr), ());
        let (went, took) = (Mutex::new(0), Mutex::new(0));
        sim.boot(|cpu| match cpu.id() {
            CpuId(0) => {
                let guard = lock.lock(cpu);
                cpu.work(Instr(10_000));
                drop(guard);
            }
            CpuId(1) => {
                cpu.work(Instr(1_000));
                let from = cpu.now().0;
                let guard = lock.lock(cpu);
                *went.lock().unwrap() = cpu.now().0 - from;
                // The line is ours since the hand-off: another atomic access costs what the one that took the lock did.
                let before = cpu.now().0;
                cpu.touch(addr, Access::Rmw);
                *took.lock().unwrap() = cpu.now().0 - before;
                drop(guard);
            }
            _ => {}
        });
        let wait = sim.report().locks[0].wait_ps;
        let (went, took) = (went.into_inner().unwrap(), took.into_inner().unwrap());
        let drawn = went - took - wait;
        assert!(wait > 0 && drawn <= jitter_ps, "{went} ps for a wait of {wait} and an access of {took}");
    }
}

/// Every CPU adds to one counter under one lock, with work of different length in between.
fn contend(schedule: Schedule) -> (u64, u64, Vec<LockReport>) {
    let mut sim = opteron(schedule);
    let addr = sim.reserve(64, NodeId(0));
    let counter = SpinLock::<Sim, u64>::new(sim.lock("test", addr), 0);
    sim.boot(|cpu| {
        for i in 0..200 {
            cpu.work(Instr(50 + 13 * u32::from(cpu.id().0) + i % 7));
            let mut guard = counter.lock(cpu);
            cpu.work(Instr(30));
            *guard += 1;
        }
    });
    let mut counter = counter;
    {
        let report = sim.report();
        (*counter.get_mut(), report.trace, report.locks)
    }
}

#[test]
fn a_lock_excludes_and_its_waits_are_counted() {
    let (total, _, report) = contend(Schedule::default());
    assert_eq!(total, 1600);
    assert_eq!((report[0].class, report[0].acquired), ("test", 1600));
    assert!(report[0].contended > 0 && report[0].wait_ps > 0);
}

#[test]
fn the_same_seed_repeats_and_another_differs() {
    let seeded = |seed| contend(Schedule { seed, jitter_ps: 5000, ..Schedule::default() }).1;
    assert_eq!(seeded(1), seeded(1));
    assert_ne!(seeded(1), seeded(2));
}

#[test]
fn suspending_at_every_point_changes_nothing() {
    let plain = contend(Schedule::default());
    let suspended = contend(Schedule { always_suspend: true, ..Schedule::default() });
    assert_eq!(plain, suspended);
}

#[test]
fn an_idle_cpu_wakes_by_kick_by_time_and_when_nothing_can_happen() {
    let sim = opteron(Schedule::default());
    let log = Mutex::new(Vec::new());
    let until = Picos::from_ns(50_000.0);
    sim.boot(|cpu| {
        let entry = match cpu.id().0 {
            0 => {
                cpu.work(Instr(10_000));
                return cpu.kick(CpuId(1));
            }
            1 => (1, cpu.idle(None), cpu.now() > Picos::from_ns(10_000.0)),
            2 => (2, cpu.idle(Some(until)), cpu.now() == until),
            _ => (3, cpu.idle(None), true),
        };
        log.lock().unwrap().push(entry);
    });
    let log = log.into_inner().unwrap();
    assert_eq!(log[0], (1, Wakeup::Kicked, true));
    assert_eq!(log[1], (2, Wakeup::Time, true));
    assert!(log[2..].iter().all(|l| *l == (3, Wakeup::Quiet, true)), "{log:?}");
}

#[test]
fn a_call_runs_on_the_cpu_it_was_sent_to() {
    let sim = opteron(Schedule::default());
    let ran = Mutex::new(Vec::new());
    sim.boot(|cpu| {
        if cpu.id() == CpuId(0) {
            for target in 0..8 {
                cpu.call_on(CpuId(target), &|c| ran.lock().unwrap().push(c.id().0));
            }
        } else {
            while cpu.idle(None) != Wakeup::Quiet {}
        }
    });
    assert_eq!(ran.into_inner().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_panic_on_one_cpu_ends_the_boot_with_it() {
    let sim = opteron(Schedule::default());
    let addr = sim.reserve(64, NodeId(0));
    let lock = SpinLock::<Sim, u64>::new(sim.lock("test", addr), 0);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        sim.boot(|cpu| {
            let _guard = lock.lock(cpu);
            cpu.work(Instr(1000));
            assert!(cpu.id() != CpuId(3), "CPU 3 gives up");
        });
    }));
    assert!(caught.is_err());
}

#[test]
fn a_line_dirty_elsewhere_costs_its_distance() {
    let sim = opteron(Schedule::default());
    let addr = sim.reserve(64, NodeId(0));
    let costs = Mutex::new(Vec::new());
    let timed = |cpu: &SimCpu, access| {
        cpu.interact();
        let before = cpu.now().0;
        cpu.touch(addr, access);
        costs.lock().unwrap().push(cpu.now().0 - before);
    };
    sim.boot(|cpu| {
        // CPUs 0 (socket 0), 1 (socket 0), 4 (socket 1) take their turns 1 µs apart.
        let turn = |n: u32| cpu.idle(Some(Picos(u64::from(n) * 1_000_000)));
        match cpu.id().0 {
            0 => {
                turn(1);
                timed(cpu, Access::Write); // memory of the own node, 410/1024 of 95 ns
                timed(cpu, Access::Read); // own line: one cycle
                timed(cpu, Access::Rmw); // own line: one cycle and the lock prefix
            }
            1 => {
                turn(2);
                timed(cpu, Access::Read); // same socket: 81 cycles
                turn(4);
                timed(cpu, Access::Read); // the third CPU had it: 172 cycles
            }
            4 => {
                turn(3);
                timed(cpu, Access::Rmw); // shared on the other socket: 172 + 75 + 16 cycles
            }
            _ => {}
        }
    });
    let cycles = |n: u64| n * 500;
    let expected = [38_037, cycles(1), cycles(17), cycles(81), cycles(172 + 75 + 16), cycles(172)];
    assert_eq!(costs.into_inner().unwrap(), expected);
}

#[test]
fn a_released_lock_goes_to_the_nearest_waiter() {
    let sim = opteron(Schedule::default());
    let addr = sim.reserve(64, NodeId(0));
    let order = SpinLock::<Sim, Vec<u16>>::new(sim.lock("test", addr), Vec::new());
    sim.boot(|cpu| {
        // CPU 4, on the other socket, queues first; CPU 1, on the holder's socket, second.
        let turn = |us: u64| cpu.idle(Some(Picos(us * 1_000_000)));
        match cpu.id().0 {
            0 => {
                let mut held = order.lock(cpu);
                held.push(0);
                cpu.work(Instr(100_000));
                // A holder that ran ahead lets the others queue up first.
                cpu.interact();
            }
            4 => {
                turn(1);
                order.lock(cpu).push(4);
            }
            1 => {
                turn(2);
                order.lock(cpu).push(1);
            }
            _ => {}
        }
    });
    let mut order = order;
    assert_eq!(*order.get_mut(), [0, 1, 4]);
}

#[test]
fn a_group_pays_the_longest_access_and_a_quarter_of_the_rest() {
    let sim = opteron(Schedule::default());
    let addr = sim.reserve(256, NodeId(0));
    let spent = Mutex::new((0, 0));
    sim.boot(|cpu| {
        if cpu.id() == CpuId(0) {
            let start = cpu.now().0;
            cpu.grouped(|c| (0..4).for_each(|i| c.touch(addr.plus(64 * i), Access::Read)));
            let grouped = cpu.now().0 - start;
            cpu.touch(addr, Access::Read);
            *spent.lock().unwrap() = (grouped, cpu.now().0 - start - grouped);
        }
    });
    // Four lines from memory of the own node, 95 ns each; then a first-level hit of one cycle.
    assert_eq!(spent.into_inner().unwrap(), (95_000 + 3 * 95_000 / 4, 500));
}

#[test]
fn a_prefetched_line_is_waited_for_only_as_long_as_it_is_still_under_way() {
    for (wait, total) in [(0, 95_000), (40_000, 95_000), (200_000, 201_500)] {
        let sim = opteron(Schedule::default());
        let line = sim.reserve(64, NodeId(0));
        let spent = Mutex::new(0);
        sim.boot(|cpu| {
            if cpu.id() == CpuId(0) {
                cpu.touch(line, Access::Prefetch);
                cpu.delay(Picos(wait));
                cpu.touch(line, Access::Read);
                *spent.lock().unwrap() = cpu.now().0;
            }
        });
        // Issue costs two cycles; the line is there 95 ns after it; the read itself is a hit of one cycle.
        assert_eq!(spent.into_inner().unwrap(), total, "read {wait} ps after the prefetch");
    }
}

fn machine(name: &str, set: &[(&str, crate::machine::presets::Scalar)]) -> Sim {
    let overrides = set.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
    let m = Machinery::preset(name, &overrides, None, Placement::Spread).unwrap();
    Sim::new(&m, Schedule::default()).unwrap()
}

fn word(w: &str) -> crate::machine::presets::Scalar {
    crate::machine::presets::Scalar::Word(w.into())
}

/// CPU 0 holds a lock; CPUs 5, 1, 2 queue in this order. Returns who got it, and when each had it, in cycles after the
/// release.
fn queue_up(kind: &str) -> (Vec<u16>, Vec<u64>) {
    let sim = machine("opteron-2x4-2007", &[("locks", word(kind))]);
    let addr = sim.reserve(64, NodeId(0));
    let log = Mutex::new(Vec::new());
    let lock = SpinLock::<Sim, ()>::new(sim.lock("test", addr), ());
    let released = Mutex::new(0);
    sim.boot(|cpu| {
        let turn = |us: u64| cpu.idle(Some(Picos(us * 1_000_000)));
        let place = [5u16, 1, 2].iter().position(|c| *c == cpu.id().0);
        if cpu.id().0 == 0 {
            let held = lock.lock(cpu);
            cpu.delay(Picos(50_000_000));
            cpu.interact();
            *released.lock().unwrap() = cpu.now().0;
            drop(held);
        } else if let Some(place) = place {
            turn(1 + place as u64);
            let held = lock.lock(cpu);
            let now = cpu.now().0;
            log.lock().unwrap().push((cpu.id().0, now));
            drop(held);
        }
    });
    let released = *released.lock().unwrap();
    let log = log.into_inner().unwrap();
    (log.iter().map(|l| l.0).collect(), log.iter().map(|l| (l.1 - released) / 500).collect())
}

#[test]
fn ticket_and_mcs_locks_serve_in_order_of_arrival_and_only_tickets_pay_for_the_waiters() {
    let (order, _) = queue_up("dec-and-test");
    assert_eq!(order[2], 5, "the CPU of the other socket comes last, though it came first: {order:?}");
    let (ticket, first_ticket) = queue_up("ticket");
    let (mcs, first_mcs) = queue_up("mcs");
    assert_eq!((ticket, mcs), (vec![5, 1, 2], vec![5, 1, 2]));
    // To CPU 5 on the other socket 172 cycles; with tickets CPUs 1 and 2 re-read the word: 81 cycles each. Then the winner's
    // own locked access.
    assert_eq!(first_ticket[0] - first_mcs[0], 2 * 81);
}

#[test]
fn cpus_that_hammer_one_line_get_it_one_after_the_other() {
    let sim = opteron(Schedule::default());
    let addr = sim.reserve(64, NodeId(0));
    let ends = Mutex::new(Vec::new());
    sim.boot(|cpu| {
        cpu.idle(Some(Picos(1_000_000)));
        cpu.interact();
        cpu.touch(addr, Access::Rmw);
        ends.lock().unwrap().push(cpu.now().0);
    });
    let mut ends = ends.into_inner().unwrap();
    ends.sort_unstable();
    // The first one comes from memory; each further one waits for the transfer before it, 81 or 172 cycles, in units of
    // 64 ps.
    let gaps: Vec<u64> = ends.windows(2).map(|w| (w[1] - w[0]) / 500).collect();
    assert!(gaps.iter().all(|g| (79..=174).contains(g)), "{gaps:?}");
}

#[test]
fn two_busy_threads_of_a_core_slow_each_other_down() {
    let ends = |threads: u64| {
        let sim = machine("nehalem-2x4-2011", &[]);
        let ends = Mutex::new(Vec::new());
        sim.boot(|cpu| {
            // CPUs 0 and 8 are the threads of one core.
            if u64::from(cpu.id().0) < 8 * threads && cpu.id().0 % 8 == 0 {
                cpu.idle(Some(Picos(1_000_000)));
                let start = cpu.now().0;
                for _ in 0..10 {
                    cpu.work(Instr(1000));
                    cpu.interact();
                }
                ends.lock().unwrap().push(cpu.now().0 - start);
            } else {
                while cpu.idle(None) != Wakeup::Quiet {}
            }
        });
        ends.into_inner().unwrap()
    };
    let (alone, both) = (ends(1), ends(2));
    let ratio = alone[0] as f64 / both[0] as f64;
    assert!((ratio - 0.62).abs() < 0.03, "{ratio}: {alone:?} {both:?}");
}

#[test]
fn a_polling_cpu_wakes_sooner_and_a_deep_sleeper_later() {
    let woken_after = |states: &str| {
        let sim = machine("nehalem-2x4-2011", &[("idle_states", word(states))]);
        let times = Mutex::new((0, 0));
        sim.boot(|cpu| match cpu.id().0 {
            0 => {
                cpu.idle(Some(Picos(900_000_000_000)));
                cpu.interact();
                times.lock().unwrap().0 = cpu.now().0;
                cpu.kick(CpuId(1));
            }
            1 => {
                // A long sleep, so that the next one is deep.
                cpu.idle(Some(Picos(800_000_000_000)));
                cpu.idle(None);
                times.lock().unwrap().1 = cpu.now().0;
            }
            _ => {}
        });
        let (kicked, woke) = times.into_inner().unwrap();
        (woke - kicked) / 1_000_000
    };
    // Sending 250 ns and 1.6 µs to run; C6 197 µs more than C1; polling 0.4 µs and a line.
    assert_eq!([woken_after("c1"), woken_after("deep"), woken_after("poll")], [1, 198, 0]);
}
