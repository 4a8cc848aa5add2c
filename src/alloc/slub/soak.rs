//! Any sequence, in every era: random operations on 4 CPUs and 2 nodes that share little memory, so that pages run out, and of
//! whose page requests one in [`FAILING`] fails besides; local and remote frees, named nodes, bulk, RCU-deferred frees,
//! prefilled sheaves, shrinks. Afterwards:
//!
//! 1. no object was handed out while somebody held it;
//! 2. `verify()` of slabs and pages holds;
//! 3. every counter identity holds, per cache and, where the era's counters allow it, per CPU;
//! 4. when all is freed and shrunk, no slab is left and no page is lent.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::policy::*;
use super::*;
use crate::alloc::Configuration;
use crate::machine::presets::Machinery;
use crate::machine::sim::Schedule;
use crate::machine::{Cpu, Native, Sim, Wakeup};
use crate::page::{Page, PageFlags, PageModel};
use crate::topology::Topology;
use crate::units::Order;

/// Operations of each CPU in the short form, and of all four in the long one.
const SHORT: u64 = 4_000;
const MILLION: u64 = 1_000_000;
/// One page request in so many fails.
const FAILING: u64 = 20;
/// Blocks of 16 pages that are left to the allocator.
const SPARE: usize = 40;

/// What one CPU has asked of a cache that is used one by one.
#[derive(Clone, Copy, Default)]
struct Asked {
    attempts: u64,
    got: u64,
    freed: u64,
}

/// An object the test holds: cache, address, and the mark it wrote.
type Held = (usize, Addr, u64);

struct Soak<'a, 'p, M: Machine> {
    slub: &'a Slub<'p, M>,
    caches: &'a [CacheId],
    held: Mutex<Vec<Held>>,
    marks: AtomicU64,
    /// Per CPU and cache.
    asked: Mutex<Vec<Vec<Asked>>>,
}

/// Caches below this index are used one by one: their counters can be told.
const SINGLES: usize = 2;

impl<M: Machine> Soak<'_, '_, M> {
    fn hold(&self, cache: usize, object: Addr) {
        let mark = self.marks.fetch_add(1, Ordering::Relaxed);
        self.slub.pages.arena().poke(object, mark);
        self.held.lock().unwrap().push((cache, object, mark));
    }
    /// Takes a random object out of the test's hands, after a look at its mark.
    fn draw(&self, below: impl Fn(u64) -> u64) -> Option<(usize, Object)> {
        let (cache, object, mark) = {
            let mut held = self.held.lock().unwrap();
            let n = held.len() as u64;
            if n == 0 {
                return None;
            }
            held.swap_remove(below(n) as usize)
        };
        let found = self.slub.pages.arena().peek(object);
        assert_eq!(found, mark, "object {:#x} was handed out twice", object.0);
        Some((cache, Object::at(object)))
    }
    fn note(&self, cpu: &M::Cpu, cache: usize, f: impl FnOnce(&mut Asked)) {
        f(&mut self.asked.lock().unwrap()[usize::from(cpu.id().0)][cache]);
    }

    fn take(&self, cpu: &M::Cpu, cache: usize, want: Request) {
        let object = self.slub.alloc(cpu, self.caches[cache], want);
        self.note(cpu, cache, |a| {
            a.attempts += 1;
            a.got += u64::from(object.is_some());
        });
        if let Some(object) = object {
            self.hold(cache, object.addr());
        }
    }
    fn give(&self, cpu: &M::Cpu, cache: usize, object: Object) {
        self.note(cpu, cache, |a| a.freed += 1);
        self.slub.free(cpu, self.caches[cache], object);
    }

    /// One random operation.
    fn step(&self, cpu: &M::Cpu, nodes: u64) {
        let below = |n| cpu.random(n);
        let mixed = SINGLES + below((self.caches.len() - SINGLES) as u64) as usize;
        match below(400) {
            0 => self.slub.shrink(cpu, self.caches[below(self.caches.len() as u64) as usize]),
            1..=5 => {
                let n = 1 + below(40);
                let got = self.slub.alloc_bulk(cpu, self.caches[mixed], Request::default(), n);
                got.into_iter().flatten().for_each(|object| self.hold(mixed, object.addr()));
            }
            6..=10 => {
                let drawn: Vec<_> = (0..1 + below(40)).map_while(|_| self.draw(below)).collect();
                let (bulk, rest): (Vec<_>, Vec<_>) = drawn.into_iter().partition(|(cache, _)| *cache == mixed);
                rest.into_iter().for_each(|(cache, object)| self.give(cpu, cache, object));
                self.slub.free_bulk(cpu, self.caches[mixed], bulk.into_iter().map(|(_, o)| o).collect());
            }
            11 => {
                let id = self.caches[mixed];
                if let Some(mut set) = self.slub.prefill(cpu, id, Request::default(), 1 + below(80)) {
                    for _ in 0..below(20) {
                        if let Some(object) = self.slub.alloc_from_prefilled(cpu, id, &mut set) {
                            self.hold(mixed, object.addr());
                        }
                    }
                    self.slub.refill(cpu, id, &mut set, Request::default(), below(100));
                    self.slub.return_prefilled(cpu, id, set);
                }
            }
            12..=214 => {
                let node = (below(4) == 0).then(|| NodeId(below(nodes) as u16));
                let this_node = node.is_some() && below(2) == 0;
                let want =
                    Request { node, this_node, zero: below(8) == 0, atomic: below(2) == 0, ..Request::default() };
                self.take(cpu, below(self.caches.len() as u64) as usize, want);
            }
            _ => {
                if let Some((cache, object)) = self.draw(below) {
                    if cache >= SINGLES && below(4) == 0 {
                        self.slub.free_rcu(cpu, self.caches[cache], object);
                    } else {
                        self.give(cpu, cache, object);
                    }
                }
            }
        }
    }
}

/// What must add up for a cache that was used one by one. `slabs` are those it has now.
fn identities<M: Machine>(slub: &mut Slub<'_, M>, id: CacheId, asked: &[Asked]) {
    let policy = slub.policy;
    let counters = slub.counters(id);
    let slabs = slub.info(id).slabs.expect("SLUB has slabs");
    let cache = &mut slub.caches[id.0 as usize];
    let (capacity, single, name) = (cache.limits.sheaf_capacity, cache.single, cache.spec.name.clone());
    let cache_is_lockless = cache.lockless;
    let over_cpu_slabs = capacity > 0 && policy.t.fast_path != FastPath::Sheaf;
    let mut sum = Counters::default();
    for (cpu, (c, asked)) in counters.iter().zip(asked).enumerate() {
        let n = |s| c.get(s);
        sum.merge(c);
        if over_cpu_slabs {
            continue; // Objects on their way to sheaves count like users' below.
        }
        assert_eq!(n(Stat::FreeFastpath) + n(Stat::FreeSlowpath), asked.freed, "{name}: frees of CPU {cpu}");
        if policy.count_entries {
            assert_eq!(
                n(Stat::AllocFastpath) + n(Stat::AllocSlowpath),
                asked.attempts,
                "{name}: allocations of CPU {cpu}"
            );
        } else if policy.t.slow_path == SlowPath::Locked {
            assert_eq!(n(Stat::AllocFastpath) + n(Stat::AllocSlowpath), asked.got, "{name}: allocations of CPU {cpu}");
        }
        if cache_is_lockless && !single && !policy.t.delayed_freezing {
            let ways = [Stat::AllocFastpath, Stat::AllocRefill, Stat::AllocFromPartial, Stat::AllocSlab];
            assert_eq!(ways.map(n).iter().sum::<u64>(), asked.got, "{name}: ways of allocations of CPU {cpu}");
        }
    }
    let n = |s| sum.get(s);
    assert!(n(Stat::AllocSlab) - n(Stat::FreeSlab) >= slabs, "{name}: slabs made, returned, and there");
    assert!(n(Stat::FreeSlowpath) >= n(Stat::FreeFrozen) + n(Stat::FreeRemovePartial) || capacity > 0, "{name}");
    if capacity == 0 {
        return;
    }
    let on_cpus: u64 = cache
        .cpus
        .iter_mut()
        .map(|(_, c)| {
            let s = c.sheaves.as_ref().expect("sheaves");
            1 + u64::from(s.spare.is_some()) + u64::from(s.rcu_free.is_some())
        })
        .sum();
    let in_barns: usize = cache.barns.iter_mut().map(|b| b.peek().0.len() + b.peek().1.len()).sum();
    let sheaves = on_cpus + in_barns as u64;
    assert_eq!(n(Stat::SheafAlloc) - n(Stat::SheafFree), sheaves, "{name}: sheaves made, given up, and there");
    let (taken, put) = if over_cpu_slabs {
        (Stat::AllocCpuSheaf, Stat::FreeCpuSheaf)
    } else {
        (Stat::AllocFastpath, Stat::FreeFastpath)
    };
    let parked = n(Stat::SheafRefill) + n(put) - n(taken) - n(Stat::SheafFlush);
    assert_eq!(parked, cache.in_sheaves(), "{name}: objects put into sheaves, taken out, and there");
}

/// Per cache and CPU: slabs that became the CPU's, as cpu slab or on its partial list, are those it gave up and those it has.
/// 3.2 does not count what a drain keeps, and later a debug cache has no cpu slabs.
fn cpu_slabs_add_up<M: Machine>(slub: &mut Slub<'_, M>, id: CacheId) {
    let policy = slub.policy;
    let counters = slub.counters(id);
    let cache = &mut slub.caches[id.0 as usize];
    let (single, debug, name) = (cache.single, cache.layout.debug.any(), cache.spec.name.clone());
    let lists = policy.has_cpu_partial() && !debug;
    if single || (lists && policy.t.cpu_partial_count == CpuPartialCount::Objects) {
        return;
    }
    let had: Vec<u64> = cache.cpus.iter_mut().map(|(_, c)| u64::from(c.own().is_some()) + c.partial.len()).collect();
    for (cpu, (c, has)) in counters.iter().zip(had).enumerate() {
        let sum = |stats: &[Stat]| stats.iter().map(|s| c.get(*s)).sum::<u64>();
        let mut came = sum(&[Stat::AllocFromPartial, Stat::AllocSlab]);
        let mut went = sum(&[
            Stat::DeactivateFull,
            Stat::DeactivateEmpty,
            Stat::DeactivateToHead,
            Stat::DeactivateToTail,
            Stat::DeactivateBypass,
        ]);
        if lists {
            // The first free of a full slab brings it, a drain that keeps it is its only other way to a node's list.
            came += sum(&[Stat::CpuPartialFree, Stat::CpuPartialNode]);
            went += sum(&[Stat::FreeAddPartial]);
        }
        assert_eq!(came, went + has, "{name}: slabs of CPU {cpu} that came, went, and are there");
    }
}

fn soak<M: Machine>(machine: &M, config: &Config, ops: u64) {
    let mut pages = Pages::new(machine, PageModel::HotCold).expect("pages");
    let (cpus, nodes) = (machine.topology().cpus(), machine.topology().nodes() as u64);
    let mut slub = Slub::new(&pages, config).expect("an allocator");
    let specs = [
        CacheSpec::new("one", 104),
        CacheSpec { reclaim_account: true, ..CacheSpec::new("two", 1024) },
        CacheSpec::new("many", 200),
        CacheSpec { typesafe_by_rcu: true, ..CacheSpec::new("rcu", 700) },
        CacheSpec { ctor: true, ..CacheSpec::new("ctor", 40) },
        CacheSpec { reclaim_account: true, ..CacheSpec::new("page", 4096) },
    ];
    // Little is left, so that pages run out now and then.
    let blocks: Mutex<Vec<Page>> = Mutex::default();
    machine.boot(|cpu| {
        if cpu.id() == CpuId(0) {
            let block = || pages.alloc_pages(cpu, Order(4), None, PageFlags::default());
            let mut all: Vec<Page> = std::iter::from_fn(block).collect();
            all.drain(..SPARE.min(all.len())).for_each(|b| pages.free_pages(cpu, b));
            *blocks.lock().unwrap() = all;
        }
        while cpu.idle(None) != Wakeup::Quiet {}
    });
    let caches: Vec<CacheId> = specs.into_iter().map(|s| slub.create_cache(s).unwrap()).collect();
    let asked = vec![vec![Asked::default(); caches.len()]; cpus];
    let soak = Soak {
        slub: &slub,
        caches: &caches,
        held: Mutex::new(Vec::new()),
        marks: AtomicU64::new(1 << 48),
        asked: Mutex::new(asked),
    };
    pages.fail_one_in(FAILING);
    machine.boot(|cpu| {
        for _ in 0..ops {
            cpu.serve();
            soak.step(cpu, nodes);
        }
        while cpu.idle(None) != Wakeup::Quiet {}
    });
    pages.fail_one_in(0);
    assert!(pages.struck() > 10, "{} page requests failed", pages.struck());
    let (held, asked) = (soak.held.into_inner().unwrap(), soak.asked.into_inner().unwrap());
    slub.verify().expect("sound slabs");
    for cache in 0..SINGLES {
        let of_cpus: Vec<Asked> = asked.iter().map(|a| a[cache]).collect();
        identities(&mut slub, caches[cache], &of_cpus);
    }
    for id in &caches {
        cpu_slabs_add_up(&mut slub, *id);
    }
    machine.boot(|cpu| {
        if cpu.id() == CpuId(0) {
            for (cache, object, _) in &held {
                slub.free(cpu, caches[*cache], Object::at(*object));
            }
            slub.rcu_barrier(cpu);
            // 6.18 leaves slabs at the first shrink: what its barns held went to the partial list of this CPU.
            for _ in 0..2 {
                (0..slub.cache_count() as u32).for_each(|i| slub.shrink(cpu, CacheId(i)));
                slub.rcu_barrier(cpu);
            }
            assert_eq!(slub.destroy(cpu, caches[3]), Destroyed::default());
            let blocks = std::mem::take(&mut *blocks.lock().unwrap());
            blocks.into_iter().for_each(|b| pages.free_pages(cpu, b));
        }
        while cpu.idle(None) != Wakeup::Quiet {}
    });
    slub.verify().expect("sound slabs after the last free");
    for i in 0..slub.cache_count() as u32 {
        assert_eq!(slub.info(CacheId(i)).slabs, Some(0), "{}", slub.info(CacheId(i)).name);
    }
    assert_eq!(pages.lent(), 0);
    drop(slub);
    pages.verify().expect("sound pages");
}

/// Every era as it was, and the options that make paths of their own.
fn configurations() -> Vec<Config> {
    let eras = Config::ERAS.iter().map(|era| json!({ "era": era }));
    let options = [
        json!({ "era": "2.6.31", "fast_path": "double_cas" }),
        json!({ "era": "2.6.24", "debug": "FZPU" }),
        json!({ "era": "3.1", "cpu_partial": 30 }),
        json!({ "era": "3.2", "debug": "U" }),
        json!({ "era": "6.1", "cpu_partial": "none" }),
        json!({ "era": "6.1", "freelist_hardened": true, "freelist_random": true }),
        json!({ "era": "6.1", "debug": "FZPU" }),
        json!({ "era": "6.8", "kmalloc_random": true }),
        json!({ "era": "6.18", "sheaf_capacity": 32 }),
        json!({ "era": "6.18", "sheaf_capacity": 5, "barn_max_full": 1, "barn_max_empty": 0 }),
        json!({ "era": "7.1", "sheaf_capacity": "none" }),
        json!({ "era": "7.1", "fast_path": "double_cas", "cpu_partial": "by_size" }),
        json!({ "era": "7.1", "debug": "Z" }),
    ];
    let merged_apart = |given: serde_json::Value| {
        let mut given = given;
        given["merge"] = false.into();
        Config::from_json(&given).unwrap_or_else(|e| panic!("{given}: {e}"))
    };
    eras.chain(options).map(merged_apart).collect()
}

fn on_sim(config: &Config, ops: u64, seed: u64) {
    println!("{}", serde_json::to_string(config).expect("plain data"));
    let hardware = Machinery::for_topology(4, 2, 8 << 20).expect("a small machine");
    let schedule = Schedule { seed, jitter_ps: 20_000, ..Schedule::default() };
    let sim = Sim::new(&hardware, schedule).expect("a machine");
    soak(&sim, config, ops);
}

#[test]
fn any_operations_in_any_era_keep_the_invariants_and_the_identities() {
    for (i, config) in configurations().iter().enumerate() {
        on_sim(config, SHORT, i as u64);
    }
}

#[test]
#[ignore = "a million operations per era: make soak"]
fn a_million_operations_in_any_era_keep_the_invariants_and_the_identities() {
    for (i, config) in configurations().iter().enumerate() {
        on_sim(config, MILLION / 4, 1000 + i as u64);
    }
}

#[test]
fn threads_in_any_era_keep_the_invariants_and_the_identities() {
    for config in configurations() {
        println!("{}", serde_json::to_string(&config).expect("plain data"));
        let native = Native::new(Topology::blocks(4, 2, 8 << 20)).expect("the host");
        soak(&native, &config, SHORT);
    }
}
