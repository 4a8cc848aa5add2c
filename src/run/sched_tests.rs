//! The scheduler's rules, one sentence each, on the simulated Opteron: CPUs 0..3 on node 0, 4..7 on node 1.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::machine::Sim;
use crate::machine::presets::{Machinery, Placement};
use crate::machine::sim::{Schedule, SimCpu};

/// A task that is never asked anything.
struct Silent;

impl Task for Silent {
    fn step(&mut self) -> Op {
        Op::Done { bytes: 0 }
    }
}

fn opteron() -> Sim {
    let m = Machinery::preset("opteron-2x4-2007", &BTreeMap::new(), None, Placement::Spread).unwrap();
    Sim::new(&m, Schedule::default()).unwrap()
}

fn task(id: u32, last_cpu: u16) -> Box<Running> {
    Box::new(Running {
        id,
        body: Box::new(Silent),
        pending: None,
        progress: 0,
        resumed: false,
        random: Random::new(1, u64::from(id)),
        last_cpu: CpuId(last_cpu),
        since: Picos(0),
        more: Default::default(),
    })
}

/// A scheduler of eight tasks of which none is placed, with `running[c]` tasks counted on CPU c.
fn loaded(machine: &Sim, running: [u32; 8]) -> Scheduler<Sim> {
    loaded_as(machine, running, Rules::V2_6_24)
}

/// The same under the rules of another release.
fn loaded_as(machine: &Sim, running: [u32; 8], rules: Rules) -> Scheduler<Sim> {
    let sched = Scheduler::new(machine, 8, rules);
    for (p, n) in sched.published.iter().zip(running) {
        p.nr.store(n, Ordering::Relaxed);
        p.tick_load.store(n * WEIGHT, Ordering::Relaxed);
    }
    sched
}

fn on<R: Send>(machine: &Sim, cpu: u16, f: impl Fn(&SimCpu) -> R + Sync) -> R {
    let result = Mutex::new(None);
    machine.boot(|c| {
        if c.id() == CpuId(cpu) {
            let r = f(c);
            *result.lock().unwrap() = Some(r);
        }
    });
    result.into_inner().unwrap().unwrap()
}

#[test]
fn a_woken_task_goes_where_the_load_allows() {
    for (what, waker, prev, running, expected) in [
        ("its own CPU is the waker's: stays", 0, 0, [1, 0, 0, 0, 0, 0, 0, 0], 0),
        ("the waker is busy, the previous CPU idle: back to the idle one", 0, 1, [1, 0, 0, 0, 0, 0, 0, 0], 1),
        ("the previous CPU has two tasks more: pulled to the waker", 0, 1, [1, 3, 0, 0, 0, 0, 0, 0], 0),
        ("the previous CPU has as many tasks: stays there", 0, 1, [2, 2, 0, 0, 0, 0, 0, 0], 1),
        ("another node: no affine wake-up, however loaded", 0, 4, [1, 0, 0, 0, 5, 0, 0, 0], 4),
        ("no idle sibling is searched on AMD", 0, 1, [1, 1, 0, 0, 0, 0, 0, 0], 1),
    ] {
        let machine = opteron();
        let sched = loaded(&machine, running);
        assert_eq!(on(&machine, waker, |c| sched.select(c, prev, sched.rules.sync)), expected, "{what}");
    }
}

#[test]
fn later_releases_count_the_waker_out_and_look_for_an_idle_sibling() {
    for (what, rules, waker, prev, running, expected) in [
        ("2.6.24 counts the waker", Rules::V2_6_24, 0, 1, [1, 1, 0, 0, 0, 0, 0, 0], 1),
        ("2.6.28 does not: it will sleep", Rules::V2_6_28, 0, 1, [1, 1, 0, 0, 0, 0, 0, 0], 0),
        ("2.6.32 takes an idle CPU of the socket", Rules::V2_6_32, 0, 1, [1, 1, 1, 0, 0, 0, 0, 0], 3),
        ("the previous CPU if that is idle", Rules::V2_6_32, 0, 2, [1, 0, 0, 0, 0, 0, 0, 0], 2),
        ("its own CPU is the waker's: an idle one beside it", Rules::V2_6_32, 0, 0, [1, 0, 0, 0, 0, 0, 0, 0], 1),
        ("nobody is idle near by: stays", Rules::V2_6_32, 0, 4, [1, 1, 1, 1, 2, 1, 1, 1], 4),
    ] {
        let machine = opteron();
        let sched = loaded_as(&machine, running, rules);
        assert_eq!(on(&machine, waker, |c| sched.select(c, prev, sched.rules.sync)), expected, "{what}");
    }
}

#[test]
fn the_rules_follow_the_kernel_unless_named() {
    for (name, release, rules) in [
        ("kernel", (2, 6, 24), Rules::V2_6_24),
        ("kernel", (2, 6, 28), Rules::V2_6_28),
        ("kernel", (3, 0, 0), Rules::V2_6_32),
        ("2.6.28", (6, 18, 0), Rules::V2_6_28),
    ] {
        assert_eq!(Rules::named(name, release), rules, "{name} {release:?}");
    }
}

#[test]
fn a_newly_idle_cpu_takes_a_hot_task_of_its_own_node_first() {
    let machine = opteron();
    let mut sched = loaded(&machine, [0, 2, 0, 0, 3, 0, 0, 0]);
    sched.queues[1].get_mut().waiting.push_back(task(1, 1));
    sched.queues[4].get_mut().waiting.extend([task(2, 4), task(3, 4)]);
    let taken = on(&machine, 0, |c| [sched.next(c, true).map(|t| t.id), sched.next(c, true).map(|t| t.id)]);
    assert_eq!(taken, [Some(1), Some(2)], "its own node, then the machine");
    assert_eq!((sched.nr(0), sched.nr(1), sched.nr(4)), (2, 1, 2));
}

#[test]
fn a_cpu_that_was_idle_already_leaves_hot_tasks_alone_until_balancing_has_failed_twice() {
    let machine = opteron();
    let mut sched = loaded(&machine, [0, 2, 0, 0, 0, 0, 0, 0]);
    sched.queues[1].get_mut().waiting.push_back(task(1, 1));
    let moved = on(&machine, 0, |c| {
        let mut state = TickState::default();
        [1, 2, 3].map(|_| {
            sched.tick(c, &mut state, None);
            sched.nr(0)
        })
    });
    assert_eq!(moved, [0, 0, 1]);
}

#[test]
fn a_wake_up_that_meets_a_task_awake_keeps_it_from_sleeping() {
    let machine = opteron();
    let sched = loaded(&machine, [1, 0, 0, 0, 0, 0, 0, 0]);
    let stays = on(&machine, 0, |c| {
        assert!(matches!(sched.wake(c, 5, false), Woke::Awake));
        sched.sleep(c, task(5, 0)).is_some()
    });
    assert!(stays);
    assert_eq!(sched.nr(0), 1);
}

#[test]
fn a_slice_ends_when_others_wait_and_the_latency_is_used_up() {
    let machine = opteron();
    let sched = loaded(&machine, [2, 0, 0, 0, 0, 0, 0, 0]);
    let over = on(&machine, 0, |c| {
        let running = task(1, 0);
        let mut state = TickState::default();
        [39, 2].map(|ms| {
            c.delay(Picos(ms * 1_000_000_000));
            sched.tick(c, &mut state, Some(&running))
        })
    });
    // Two tasks on eight CPUs: 20 ms × 4 / 2.
    assert_eq!(over, [false, true]);
}
