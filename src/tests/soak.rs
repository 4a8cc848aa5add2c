//! Long random runs: caches of all shapes and kmalloc, on 1, 4 and 16 CPUs over 1, 2 and 4 nodes, one page allocation in
//! fifty failing. Objects are freed on any CPU. Then everything is freed, queues are trimmed empty, caches destroyed:
//!
//! - no object is handed out twice, and each keeps its first and last word until it is freed;
//! - `verify()` of the allocator and of the pages is clean, in between and at the end;
//! - every page that the run took is back.
//!
//! The short form runs always; the whole one, a million operations a machine, by `cargo test -- --ignored soak`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::alloc::{Configuration, Destroyed, SlabAllocator, slob, slqb};
use crate::machine::presets::{Machinery, Placement, Scalar};
use crate::machine::sim::Schedule;
use crate::machine::{Arena, Cpu, Machine, Sim, Wakeup};
use crate::page::{PageModel, Pages};
use crate::spec::{CacheId, CacheSpec, Object, Request};
use crate::units::{Addr, NodeId, Picos};

type SimCpu = <Sim as Machine>::Cpu;

/// CPUs and nodes.
const MACHINES: [(u64, u64); 9] = [(1, 1), (1, 2), (1, 4), (4, 1), (4, 2), (4, 4), (16, 1), (16, 2), (16, 4)];
/// Operations of a machine's run.
const SHORT: u64 = 12_000;
const WHOLE: u64 = 1_000_000;
/// One page allocation in so many fails.
const FAIL: u64 = 50;
/// Live objects around which the number swings.
const LIVE: usize = 4000;

fn specs() -> Vec<CacheSpec> {
    let spec = |size| CacheSpec::new(format!("soak-{size}"), size);
    vec![
        spec(24),
        spec(104),
        spec(192).hwcache(),
        CacheSpec { ctor: true, ..spec(320) },
        CacheSpec { typesafe_by_rcu: true, ..spec(136) },
        CacheSpec { align: 256, ..spec(700) },
        spec(1400),
        spec(4096),
        spec(9000),
    ]
}

struct Held {
    object: Object,
    cache: Option<CacheId>,
    bytes: u64,
}

#[derive(Default)]
struct Pool {
    held: Vec<Held>,
    starts: BTreeSet<u64>,
}

/// Writes, or compares, the object's own address in its first and last word.
fn stamp(arena: &Arena, addr: Addr, bytes: u64, check: bool) {
    for at in [addr.0, (addr.0 + bytes - 8) / 8 * 8] {
        if at >= addr.0 && at.is_multiple_of(8) {
            match check {
                true => assert_eq!(arena.peek(Addr(at)), !addr.0, "{addr:?} of {bytes} bytes was overwritten"),
                false => arena.poke(Addr(at), !addr.0),
            }
        }
    }
}

fn play<'p, A: SlabAllocator<'p, Sim>>(a: &A, cpu: &SimCpu, caches: &[(CacheId, u64)], pool: &Mutex<Pool>, ops: u64) {
    let nodes = a.pages().machine().topology().nodes() as u64;
    let arena = a.pages().arena();
    for op in 0..ops {
        if op % 8 == 0 {
            cpu.serve();
        }
        if cpu.random(2000) == 0 {
            a.trim(cpu);
        }
        let live = pool.lock().unwrap().held.len();
        // More and fewer by turns.
        let target = if op / 2000 % 2 == 0 { LIVE } else { LIVE / 4 };
        if live > 0 && cpu.random(100) < if live > target { 65 } else { 40 } {
            let pick = cpu.random(live as u64) as usize;
            let h = {
                let mut pool = pool.lock().unwrap();
                let k = pick % pool.held.len();
                let h = pool.held.swap_remove(k);
                pool.starts.remove(&h.object.addr().0);
                h
            };
            stamp(arena, h.object.addr(), h.bytes, true);
            give(a, cpu, h);
            continue;
        }
        let want = Request {
            node: (cpu.random(4) == 0).then(|| NodeId(cpu.random(nodes) as u16)),
            this_node: cpu.random(8) == 0,
            zero: cpu.random(8) == 0,
            atomic: cpu.random(2) == 0,
            ..Request::default()
        };
        let choice = cpu.random(caches.len() as u64 + 6) as usize;
        let (cache, bytes) = match caches.get(choice) {
            Some(&(id, bytes)) => (Some(id), bytes),
            None => (None, 8 + cpu.random([64, 256, 1024, 5000][choice % 4])),
        };
        let object = match cache {
            Some(id) => a.alloc(cpu, id, want),
            None => a.kmalloc(cpu, bytes, want),
        };
        let Some(object) = object else { continue };
        let mut pool = pool.lock().unwrap();
        let addr = object.addr();
        assert!(pool.starts.insert(addr.0), "{addr:?} is handed out twice");
        stamp(arena, addr, bytes, false);
        pool.held.push(Held { object, cache, bytes });
    }
    while cpu.idle(None) != Wakeup::Quiet {}
}

fn give<'p, A: SlabAllocator<'p, Sim>>(a: &A, cpu: &SimCpu, h: Held) {
    match h.cache {
        Some(id) => a.free(cpu, id, h.object),
        None => a.kfree(cpu, h.object),
    }
}

/// The run of one machine; one page allocation in `fail` fails, none for 0.
fn soak<'p, A: SlabAllocator<'p, Sim>>(pages: &'p Pages<'p, Sim>, config: &A::Config, ops: u64, fail: u64) {
    let machine = pages.machine();
    let cpus = machine.topology().cpus() as u64;
    let mut a = A::new(pages, config).expect("the allocator boots");
    let before = pages.lent();
    let caches: Vec<(CacheId, u64)> = specs()
        .into_iter()
        .map(|s| (s.size, a.create_cache(s)))
        .map(|(size, id)| (id.expect("a cache"), size))
        .collect();
    let pool = Mutex::new(Pool::default());
    pages.fail_one_in(fail);
    for _ in 0..4 {
        machine.boot(|cpu| play(&a, cpu, &caches, &pool, ops / 4 / cpus));
        a.verify().expect("an allocator whose invariants hold");
    }
    // A caller that may wait asks again: only some of the injected failures reach it.
    assert_eq!(pages.struck() > 0, fail > 0, "failures were injected");
    machine.boot(|cpu| {
        loop {
            let Some(h) = ({ pool.lock().unwrap().held.pop() }) else { break };
            stamp(pages.arena(), h.object.addr(), h.bytes, true);
            give(&a, cpu, h);
        }
        while cpu.idle(None) != Wakeup::Quiet {}
    });
    a.verify().expect("an allocator whose invariants hold");
    pages.fail_one_in(0);
    let all = a.cache_count() as u32;
    let destroyed = AtomicBool::new(false);
    // Trims empty the queues, batch by batch, within 8 + 4·CPUs rounds; nodes without a CPU are emptied by a shrink. Caches
    // with objects left are those of SLQB's own structures.
    let round = |a: &A| {
        machine.boot(|cpu| {
            a.trim(cpu);
            if cpu.id().0 == 0 {
                let alive = |id: &u32| !destroyed.load(Relaxed) || caches.iter().all(|(gone, _)| gone.0 != *id);
                (0..all).filter(alive).for_each(|id| a.shrink(cpu, CacheId(id)));
            }
            while cpu.idle(None) != Wakeup::Quiet {}
        });
    };
    let in_use = |a: &mut A| {
        let idle = (0..all).map(|id| a.info(CacheId(id))).filter(|i| i.live_objects == 0);
        idle.filter(|i| i.slabs.is_some_and(|n| n > 0)).count()
    };
    let mut rounds = 0;
    while in_use(&mut a) > 0 {
        rounds += 1;
        assert!(rounds <= 8 + 4 * cpus, "{cpus} CPUs: {} caches still have slabs", in_use(&mut a));
        round(&a);
    }
    machine.boot(|cpu| {
        if cpu.id().0 == 0 {
            caches.iter().for_each(|(id, _)| assert_eq!(a.destroy(cpu, *id), Destroyed::default()));
        }
        while cpu.idle(None) != Wakeup::Quiet {}
    });
    // What the destroyed caches were made of waits in queues too.
    destroyed.store(true, Relaxed);
    for _ in 0..8 + 4 * cpus {
        if pages.lent() == before {
            break;
        }
        round(&a);
    }
    if A::Config::NAME == "slob" {
        // Early releases do not wait for the grace period of a destroyed cache's objects.
        machine.boot(|cpu| {
            cpu.delay(Picos(20_000_000_000));
            (0..1000).for_each(|_| a.trim(cpu));
        });
    }
    a.verify().expect("an allocator whose invariants hold");
    assert_eq!(pages.lent(), before, "{cpus} CPUs: every page is back");
}

/// CPUs in equal blocks over the nodes; where they are fewer, the last nodes have none.
fn hardware(cpus: u64, nodes: u64) -> Machinery {
    let number = |n: u64| Scalar::Number(n as f64);
    let overrides = BTreeMap::from([
        ("sockets".to_string(), number(nodes)),
        ("cores_per_socket".to_string(), number(cpus.div_ceil(nodes))),
        ("numa_nodes".to_string(), number(nodes)),
        ("l2_shared_by_cores".to_string(), number(1)),
        ("arena_per_node".to_string(), number(64)),
    ]);
    Machinery::preset("opteron-2x4-2007", &overrides, Some(cpus), Placement::Packed).expect("a machine")
}

/// Every machine, in parallel.
fn everywhere<C: Configuration + Sync>(config: &C, ops: u64, run: fn(&Pages<'_, Sim>, &C, u64)) {
    use rayon::prelude::*;
    MACHINES.into_par_iter().for_each(|(cpus, nodes)| {
        let hardware = hardware(cpus, nodes);
        let schedule = Schedule { seed: cpus * 16 + nodes, jitter_ps: 20_000, always_suspend: false };
        let sim = Sim::new(&hardware, schedule).expect("a machine");
        let mut pages = Pages::new(&sim, PageModel::HotCold).expect("its pages");
        run(&pages, config, ops);
        pages.verify().expect("pages whose invariants hold");
    });
}

fn slqb_soak(ops: u64) {
    let era = |e: &str| slqb::Config::era(e).expect("an era");
    let small = slqb::Config { freebatch: Some(8), ..era("2.6.29") };
    let debug = slqb::Config { debug: "FZPU".into(), ..small.clone() };
    for config in [era("2.6.29"), small, debug] {
        everywhere(&config, ops, soak_slqb);
    }
}
fn soak_slqb(pages: &Pages<'_, Sim>, config: &slqb::Config, ops: u64) {
    soak::<slqb::Slqb<'_, Sim>>(pages, config, ops, FAIL);
}
fn slob_soak(ops: u64) {
    for era in slob::Config::ERAS {
        everywhere(&slob::Config::era(era).expect("an era"), ops, soak_slob);
    }
}
fn soak_slob(pages: &Pages<'_, Sim>, config: &slob::Config, ops: u64) {
    soak::<slob::Slob<'_, Sim>>(pages, config, ops, FAIL);
}
/// Every era on 4 CPUs of 2 nodes, with all pages there and with failures.
fn slob_on_two_nodes(ops: u64) {
    for era in slob::Config::ERAS {
        for fail in [0, FAIL] {
            let schedule = Schedule { seed: 7, jitter_ps: 20_000, always_suspend: false };
            let sim = Sim::new(&hardware(4, 2), schedule).expect("a machine");
            let mut pages = Pages::new(&sim, PageModel::HotCold).expect("its pages");
            soak::<slob::Slob<'_, Sim>>(&pages, &slob::Config::era(era).expect("an era"), ops, fail);
            pages.verify().expect("pages whose invariants hold");
        }
    }
}

#[test]
fn slqb_keeps_its_invariants_and_returns_every_page_after_thousands_of_operations() {
    slqb_soak(SHORT);
}
#[test]
#[ignore = "soak: a million operations on each of nine machines, three configurations"]
fn soak_slqb_keeps_its_invariants_and_returns_every_page_after_a_million_operations() {
    slqb_soak(WHOLE);
}
#[test]
fn slob_keeps_its_invariants_and_returns_every_page_after_thousands_of_operations() {
    slob_soak(SHORT);
}
#[test]
#[ignore = "soak: a million operations on each of nine machines, four eras"]
fn soak_slob_keeps_its_invariants_and_returns_every_page_after_a_million_operations() {
    slob_soak(WHOLE);
}
#[test]
fn slob_returns_every_page_on_two_nodes_with_and_without_failures() {
    slob_on_two_nodes(SHORT);
}
#[test]
#[ignore = "soak: a million operations, four eras, with and without failures"]
fn soak_slob_survives_a_million_operations_on_two_nodes_with_and_without_failures() {
    slob_on_two_nodes(WHOLE);
}
