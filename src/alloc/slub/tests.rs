//! SLUB's behaviour, one sentence per test, and what holds for any sequence on any number of CPUs.
//!
//! Properties of random operations on 1 to 4 CPUs and 1 or 2 nodes, each jittered schedule another interleaving:
//!
//! 1. no object is handed out while somebody holds it;
//! 2. `verify()` of slabs and pages holds;
//! 3. the objects that the allocator counts as live are those the test holds;
//! 4. when all are freed, a shrink leaves no slab.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use serde_json::json;

use super::policy::{FirstFree, MinPartial, Tunables};
use super::*;
use crate::alloc::{Configuration, ZERO_SIZE};
use crate::machine::presets::Machinery;
use crate::machine::sim::Schedule;
use crate::machine::{Cpu, Native, Sim, Wakeup};
use crate::page::{Field, PageModel, Pfn};
use crate::topology::Topology;
use crate::units::PAGE_SIZE;

const MIB: u64 = 1 << 20;

fn sim(cpus: u64, nodes: u64, schedule: Schedule) -> Sim {
    let hardware = Machinery::for_topology(cpus, nodes, 8 * MIB).expect("a small machine");
    Sim::new(&hardware, schedule).expect("a machine")
}

pub(super) fn config(given: serde_json::Value) -> Config {
    Config::from_json(&given).expect("a configuration")
}

/// Runs `body` with an allocator of `config` on a small machine, then checks slabs and pages.
pub(super) fn with_slub(cpus: u64, nodes: u64, config: &Config, body: impl FnOnce(&Sim, &mut Slub<'_, Sim>)) {
    let sim = sim(cpus, nodes, Schedule::default());
    let mut pages = Pages::new(&sim, PageModel::HotCold).expect("pages");
    let mut slub = Slub::new(&pages, config).expect("an allocator");
    body(&sim, &mut slub);
    slub.verify().expect("sound slabs");
    drop(slub);
    pages.verify().expect("sound pages");
}

/// Runs `f` on CPU `on` while the others serve.
pub(super) fn on<M: Machine, R: Send>(machine: &M, on: u16, f: impl Fn(&M::Cpu) -> R + Sync) -> R {
    let result = Mutex::new(None);
    machine.boot(|cpu| {
        if cpu.id().0 == on {
            let r = f(cpu);
            *result.lock().unwrap() = Some(r);
        } else {
            while cpu.idle(None) != Wakeup::Quiet {}
        }
    });
    result.into_inner().unwrap().expect("that CPU exists")
}

pub(super) fn take(slub: &Slub<'_, Sim>, sim: &Sim, cpu: u16, id: CacheId, n: usize) -> Vec<Addr> {
    take_from(slub, sim, cpu, id, n, Request::default())
}
fn take_from(slub: &Slub<'_, Sim>, sim: &Sim, cpu: u16, id: CacheId, n: usize, want: Request) -> Vec<Addr> {
    on(sim, cpu, |c| (0..n).map(|_| slub.alloc(c, id, want).expect("memory").addr()).collect())
}
pub(super) fn give(slub: &Slub<'_, Sim>, sim: &Sim, cpu: u16, id: CacheId, objects: &[Addr]) {
    on(sim, cpu, |c| objects.iter().for_each(|o| slub.free(c, id, Object::at(*o))));
}
pub(super) fn stat(slub: &mut Slub<'_, Sim>, id: CacheId, cpu: usize, stat: Stat) -> u64 {
    slub.counters(id)[cpu].get(stat)
}
pub(super) fn partial_inuse(slub: &mut Slub<'_, Sim>, id: CacheId, node: usize) -> Vec<u64> {
    serde_json::from_value(slub.state(id)["node"][node]["partial_inuse"].clone()).unwrap()
}

#[test]
fn a_fresh_slab_is_handed_out_ascending_and_a_freed_object_comes_back_first() {
    with_slub(1, 1, &config(json!({})), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("buffer_head", 104)).unwrap();
        let taken = take(slub, sim, 0, id, 39);
        assert!(taken.windows(2).all(|w| w[1].0 - w[0].0 == 104));
        assert_eq!(taken[0].0 % PAGE_SIZE, 0);
        give(slub, sim, 0, id, &[taken[7]]);
        assert_eq!(take(slub, sim, 0, id, 1), [taken[7]]);
        let counts =
            [Stat::AllocFastpath, Stat::AllocSlowpath, Stat::AllocSlab, Stat::FreeFastpath, Stat::FreeSlowpath];
        assert_eq!(counts.map(|s| stat(slub, id, 0, s)), [39, 1, 1, 1, 0]);
    });
}

#[test]
fn the_files_of_a_cache_read_as_the_kernel_s() {
    let look = |era: &str, names: &[&str]| -> Vec<String> {
        let mut seen = Vec::new();
        with_slub(2, 1, &config(json!({ "era": era, "per_cache": "other:min_partial=7" })), |sim, slub| {
            let id = slub.create_cache(CacheSpec { ctor: true, ..CacheSpec::new("test", 100) }).unwrap();
            let taken = take(slub, sim, 0, id, 45);
            give(slub, sim, 1, id, &taken[..2]);
            let files = slub.sysfs(id).unwrap();
            seen = names.iter().map(|n| files.get(*n).map_or("none", |v| v.as_str().unwrap()).to_string()).collect();
            let other = slub.create_cache(CacheSpec::new("other", 100)).unwrap();
            assert!(era == "2.6.24" || slub.sysfs(other).unwrap()["min_partial"] == "7");
            give(slub, sim, 0, id, &taken[2..]);
        });
        seen
    };
    let names =
        ["object_size", "slab_size", "ctor", "slabs", "cpu_slabs", "free_slowpath", "cpu_partial", "defrag_ratio"];
    assert_eq!(look("2.6.24", &names), ["100", "112", "test_ctor", "2 N0=2", "1 N0=1", "none", "none", "10"]);
    assert_eq!(look("6.1", &names), ["100", "112", "test_ctor", "2 N0=2", "2 N0=2", "2 C1=2", "120", "none"]);
    let later = ["slabs_cpu_partial", "objects", "total_objects", "partial", "sheaf_capacity", "cmpxchg_double_fail"];
    assert_eq!(look("6.1", &later), ["18(1) C1=18(1)", "72 N0=72", "72 N0=72", "0", "none", "0"]);
    assert_eq!(look("3.2", &later)[0], "1(1) C1=1(1)", "free objects as they were when the slab was put there");
    assert_eq!(look("7.1", &later)[0], "0(0)");
}

#[test]
fn a_cache_has_barn_limits_and_merging_of_its_own() {
    let option = "few:barn_max_full=2,barn_max_empty=0;apart:merge=false";
    with_slub(1, 1, &config(json!({ "era": "7.1", "per_cache": option })), |sim, slub| {
        let mut full = |name: &str| {
            let id = slub.create_cache(CacheSpec::new(name, 200)).unwrap();
            let taken = take(slub, sim, 0, id, 1000);
            give(slub, sim, 0, id, &taken);
            (id, slub.caches[id.0 as usize].barns[0].seen().0)
        };
        let (plain, kept) = full("plain");
        let (few, kept_of_few) = full("few");
        let (apart, _) = full("apart");
        assert_eq!((kept, kept_of_few), (10, 2));
        assert!(plain != few && plain != apart && few != apart);
        assert_eq!(slub.create_cache(CacheSpec::new("another", 200)).unwrap(), plain, "an ordinary cache is shared");
    });
    let only = json!({ "era": "6.1", "merge": false, "per_cache": "dentry*:merge=true" });
    with_slub(1, 1, &config(only), |_, slub| {
        let mut made = |name: &str| slub.create_cache(CacheSpec::new(name, 200)).unwrap();
        let (first, second, other) = (made("dentry_a"), made("dentry_b"), made("other"));
        assert!(first == second && other != first);
    });
}

#[test]
fn a_free_from_another_cpu_goes_to_the_slab_and_is_taken_over_at_the_next_refill() {
    with_slub(2, 1, &config(json!({})), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("test", 1024)).unwrap();
        let taken = take(slub, sim, 0, id, 4);
        give(slub, sim, 1, id, &taken[1..3]);
        assert_eq!(stat(slub, id, 1, Stat::FreeFrozen), 2);
        assert_eq!(slub.state(id)["cpu"][0]["inuse"], 2);
        assert_eq!(take(slub, sim, 0, id, 2), [taken[2], taken[1]]);
        assert_eq!((stat(slub, id, 0, Stat::AllocRefill), stat(slub, id, 0, Stat::AllocSlab)), (1, 1));
    });
}

#[test]
fn the_first_free_of_a_full_slab_goes_to_the_tail_and_in_rc2_to_the_head() {
    for (era, expected) in [("2.6.24", [3, 2]), ("2.6.24-rc2", [2, 3])] {
        with_slub(1, 1, &config(json!({ "era": era })), |sim, slub| {
            let id = slub.create_cache(CacheSpec::new("test", 1024)).unwrap();
            let taken = take(slub, sim, 0, id, 12);
            give(slub, sim, 0, id, &[taken[0], taken[4], taken[5]]);
            assert_eq!(partial_inuse(slub, id, 0), expected, "{era}");
        });
    }
}

#[test]
fn an_empty_cpu_slab_is_kept_while_few_are_partial_and_an_emptied_partial_one_never() {
    for (keep, kept) in [(0, 0), (1, 1), (5, 1)] {
        with_slub(2, 1, &config(json!({ "min_partial": keep })), |sim, slub| {
            let id = slub.create_cache(CacheSpec::new("test", 1024)).unwrap();
            let taken = take(slub, sim, 0, id, 8);
            give(slub, sim, 0, id, &taken);
            // The first slab was emptied by slow frees: gone. The second is the cpu slab.
            assert_eq!(slub.info(id).slabs, Some(1));
            on(sim, 0, |c| slub.flush(c, slub.cache(id)));
            assert_eq!((slub.info(id).slabs, slub.info(id).partial), (Some(kept), Some(kept)), "min_partial {keep}");
            assert_eq!(stat(slub, id, 0, Stat::DeactivateEmpty), 1);
            assert_eq!(stat(slub, id, 0, Stat::FreeSlab), 2 - kept);
        });
    }
}

#[test]
fn a_shrink_takes_every_cpus_slab_and_sorts_the_fullest_first_ties_reversed() {
    with_slub(2, 1, &config(json!({})), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("test", 512)).unwrap();
        let taken = take(slub, sim, 0, id, 40);
        let other = take(slub, sim, 1, id, 1);
        let slab = |i: usize| taken[8 * i].0 / PAGE_SIZE;
        // Objects in use afterwards: 5, 3, 5, 0 … of five slabs; the fifth stays full.
        give(slub, sim, 0, id, &[&taken[0..3], &taken[8..13], &taken[16..19]].concat());
        give(slub, sim, 0, id, &taken[24..32]);
        give(slub, sim, 1, id, &other);
        on(sim, 0, |c| slub.shrink(c, id));
        let listed: Vec<u64> =
            slub.caches[id.0 as usize].nodes[0].listed(slub.pages).iter().map(|p| p.0.into()).collect();
        assert_eq!(listed, [slab(2), slab(0), slab(1)]);
        assert_eq!(partial_inuse(slub, id, 0), [5, 5, 3]);
        assert_eq!(slub.info(id).slabs, Some(4));
    });
}

#[test]
fn kmalloc_goes_where_the_original_sends_it() {
    let mut rows = 0;
    for line in include_str!("../../tests/oracle/data/geometry/kmalloc_route_era26_slub.csv").lines().skip(1) {
        let f: Vec<&str> = line.split(',').collect();
        let number = |i: usize| f[i].parse::<u64>().expect("a number");
        with_slub(number(2), 1, &config(json!({ "era": f[0] })), |sim, slub| {
            let bytes = number(3);
            let object = on(sim, 0, |c| slub.kmalloc(c, bytes, Request::default()).expect("memory").addr());
            let used = (0..slub.cache_count() as u32).map(|i| slub.info(CacheId(i))).find(|i| i.live_objects > 0);
            if f[4] == "cache" {
                let i = used.expect("a cache was used");
                assert_eq!(i.name, f[5], "{line}");
                let found = [i.slot_size, i.objects_per_slab.unwrap(), i.order.unwrap().into(), i.min_partial.unwrap()];
                assert_eq!(found, [number(6), number(7), number(8), number(9)], "{line}");
            } else {
                assert_eq!(used, None, "{line}");
                assert_eq!(slub.pages.lent(), 1 << number(8), "{line}");
                assert_eq!(slub.uncached_counters()[0].get(Stat::LargeAlloc), 1);
            }
            on(sim, 0, |c| slub.kfree(c, Object::at(object)));
            assert_eq!(slub.uncached_counters()[0].get(Stat::LargeFree), u64::from(f[4] != "cache"));
        });
        rows += 1;
    }
    assert_eq!(rows, 288);
}

#[test]
fn kmalloc_max_4096_caches_whole_pages() {
    with_slub(1, 1, &config(json!({"kmalloc_max": 4096})), |sim, slub| {
        let objects = on(sim, 0, |c| [4096, 4097].map(|b| slub.kmalloc(c, b, Request::default()).unwrap().addr()));
        let name = |i: u32, slub: &mut Slub<'_, Sim>| slub.info(CacheId(i)).name;
        let last = slub.cache_count() as u32 - 1;
        assert_eq!(name(last, slub), "kmalloc-4096");
        assert_eq!(slub.info(CacheId(last)).live_objects, 1);
        assert_eq!(slub.uncached_counters()[0].get(Stat::LargeAlloc), 1);
        on(sim, 0, |c| objects.iter().for_each(|o| slub.kfree(c, Object::at(*o))));
    });
}

#[test]
fn kmalloc_of_nothing_and_of_too_much() {
    with_slub(1, 1, &config(json!({})), |sim, slub| {
        on(sim, 0, |c| {
            let nothing = slub.kmalloc(c, 0, Request::default()).unwrap();
            assert_eq!(nothing.addr(), ZERO_SIZE);
            slub.kfree(c, nothing);
            assert_eq!(slub.kmalloc(c, (4 << 20) + 1, Request::default()), None);
        });
    });
}

#[test]
fn caches_of_equal_slots_are_merged_unless_that_is_off() {
    let spec = |name: &str, size| CacheSpec::new(name, size);
    with_slub(1, 1, &config(json!({})), |sim, slub| {
        let kmalloc_64 = CacheId(3);
        assert_eq!(slub.create_cache(spec("a", 60)).unwrap(), kmalloc_64);
        assert_eq!(slub.create_cache(spec("b", 64).hwcache()).unwrap(), kmalloc_64);
        assert_eq!(slub.aliases(kmalloc_64), ["a", "b"]);
        assert_eq!(slub.info(kmalloc_64).name, "kmalloc-64");

        let own = slub.create_cache(spec("c", 100)).unwrap();
        assert_eq!(slub.info(own).name, "c");
        assert_eq!(slub.create_cache(spec("d", 104)).unwrap(), own);
        assert_eq!(slub.info(own).object_size, 104);

        let apart = [
            CacheSpec { ctor: true, ..spec("e", 104) },
            CacheSpec { typesafe_by_rcu: true, ..spec("f", 104) },
            CacheSpec { reclaim_account: true, ..spec("g", 104) },
            CacheSpec { align: 16, ..spec("h", 104) },
            spec("i", 96 - 8),
        ];
        let ids = apart.map(|s| slub.create_cache(s).unwrap());
        assert!(ids.iter().enumerate().all(|(i, id)| *id == CacheId(own.0 + 1 + i as u32)), "{ids:?}");

        // The last user's destruction counts.
        let object = take(slub, sim, 0, own, 1);
        assert_eq!(on(sim, 0, |c| slub.destroy(c, own)), Destroyed::default());
        give(slub, sim, 0, own, &object);
        assert_eq!(on(sim, 0, |c| slub.destroy(c, own)), Destroyed::default());
        assert_eq!(slub.info(own).slabs, Some(0));
        assert_ne!(slub.create_cache(spec("j", 104)).unwrap(), own, "a destroyed cache is not shared");
    });
    with_slub(1, 1, &config(json!({"merge": false})), |_, slub| {
        let first = slub.create_cache(spec("a", 64)).unwrap();
        assert_ne!(slub.create_cache(spec("b", 64)).unwrap(), first);
        assert!(slub.aliases(first).is_empty());
    });
}

#[test]
fn destroying_a_cache_with_objects_warns_loses_their_slabs_and_lists_them_since_2_6_26() {
    for (era, listed) in [("2.6.24", false), ("2.6.27", true), ("3.1", true), ("6.1", true), ("7.1", true)] {
        with_slub(2, 1, &config(json!({ "era": era, "order": 0, "merge": false })), |sim, slub| {
            let id = slub.create_cache(CacheSpec::new("test", 1000)).unwrap();
            let taken = take(slub, sim, 1, id, 9);
            give(slub, sim, 0, id, &taken[1..8]);
            let left = on(sim, 0, |c| slub.destroy(c, id));
            let mut leftovers = if listed { vec![taken[0], taken[8]] } else { Vec::new() };
            leftovers.sort();
            let mut seen = left.leftovers.clone();
            seen.sort();
            assert_eq!((left.pages_lost, left.warnings, seen), (2, 1, leftovers), "{era}");
            give(slub, sim, 0, id, &[taken[0], taken[8]]);
            let kept = slub.cache(id).limits.min_partial;
            assert!(slub.info(id).slabs <= Some(if era < "3" { 0 } else { kept }), "{era}");
        });
    }
}

#[test]
fn the_order_axis_is_followed_and_flagged_where_it_cannot_be() {
    with_slub(1, 1, &config(json!({"order": 0})), |_, slub| {
        for (size, order, raised) in [(104, 0, false), (4096, 0, false), (5000, 1, true)] {
            let id = slub.create_cache(CacheSpec::new("test", size)).unwrap();
            let info = slub.info(id);
            assert_eq!((info.order, info.order_raised), (Some(order), raised), "{size}");
        }
    });
}

#[test]
fn a_named_node_is_served_from_it_and_a_cpu_slab_of_another_node_given_up() {
    with_slub(2, 2, &config(json!({"remote_node_defrag_ratio": 0})), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("test", 1024)).unwrap();
        let node_of = |slub: &Slub<'_, Sim>, a: &Addr| slub.pages.node_of(Pfn((a.0 / PAGE_SIZE) as u32)).0;
        let local = take(slub, sim, 0, id, 2);
        let named = take_from(slub, sim, 0, id, 2, Request { node: Some(NodeId(1)), ..Request::default() });
        assert!(local.iter().all(|a| node_of(slub, a) == 0) && named.iter().all(|a| node_of(slub, a) == 1));
        // The first slab went to its node's list with its private objects returned, the last of them in front.
        assert_eq!(partial_inuse(slub, id, 0), [2]);
        assert_eq!((stat(slub, id, 0, Stat::DeactivateToHead), stat(slub, id, 0, Stat::DeactivateRemoteFrees)), (1, 0));
        let any = take(slub, sim, 0, id, 3);
        assert!(any[..2].iter().all(|a| node_of(slub, a) == 1), "the cpu slab serves any node");
        assert_eq!(any[2], Addr(local[0].0 + 3 * 1024));
    });
}

#[test]
fn other_nodes_partial_slabs_are_taken_as_often_as_the_ratio_says() {
    for (ratio, min_partial, expected) in [(0, 0, 0), (1024, 0, 1), (1024, 1, 0)] {
        let given = json!({"remote_node_defrag_ratio": ratio, "min_partial": min_partial});
        with_slub(2, 2, &config(given), |sim, slub| {
            let id = slub.create_cache(CacheSpec::new("test", 1024)).unwrap();
            let taken = take(slub, sim, 0, id, 5);
            give(slub, sim, 0, id, &taken[..1]);
            let there = take(slub, sim, 1, id, 1);
            assert_eq!(there == [taken[0]], expected == 1, "ratio {ratio}, min_partial {min_partial}");
            assert_eq!(stat(slub, id, 1, Stat::AllocFromPartial), expected);
        });
    }
}

#[test]
fn zeroed_objects_are_zero_and_the_rest_of_the_slab_is_not_touched() {
    with_slub(1, 1, &config(json!({})), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("test", 100)).unwrap();
        let old = take(slub, sim, 0, id, 2);
        old.iter().for_each(|o| slub.pages.arena().fill(*o, 100, 0xab));
        give(slub, sim, 0, id, &old[..1]);
        let new = take_from(slub, sim, 0, id, 1, Request { zero: true, ..Request::default() });
        assert_eq!(new[0], old[0]);
        assert!((0..12).all(|i| slub.pages.arena().peek(new[0].plus(8 * i)) == 0));
        assert_eq!(slub.pages.arena().peek(old[1]), 0xabab_abab_abab_abab);
    });
}

#[test]
fn a_constructed_object_keeps_its_bytes_while_it_is_free() {
    with_slub(1, 1, &config(json!({})), |sim, slub| {
        let id = slub.create_cache(CacheSpec { ctor: true, ..CacheSpec::new("test", 64) }).unwrap();
        let object = take(slub, sim, 0, id, 1);
        slub.pages.arena().fill(object[0], 64, 0x11);
        give(slub, sim, 0, id, &object);
        assert!((0..8).all(|i| slub.pages.arena().peek(object[0].plus(8 * i)) == 0x1111_1111_1111_1111));
    });
}

#[test]
fn pages_of_a_typesafe_by_rcu_cache_wait_for_the_grace_period() {
    with_slub(1, 1, &config(json!({})), |sim, slub| {
        let id = slub.create_cache(CacheSpec { typesafe_by_rcu: true, ..CacheSpec::new("test", 1016) }).unwrap();
        let taken = take(slub, sim, 0, id, 12);
        give(slub, sim, 0, id, &taken[..8]);
        assert_eq!((slub.info(id).slabs, slub.pages.lent()), (Some(1), 3));
        on(sim, 0, |c| {
            c.delay(crate::units::Picos(11_000_000_000));
            slub.alloc(c, id, Request::default());
        });
        assert_eq!((slub.info(id).slabs, slub.pages.lent()), (Some(2), 2));
        let destroyed = on(sim, 0, |c| {
            taken[8..].iter().for_each(|o| slub.free(c, id, Object::at(*o)));
            slub.destroy(c, id)
        });
        // The object taken above keeps its slab; the other slab waited, and was returned.
        assert_eq!(
            (destroyed, slub.pages.lent()),
            (Destroyed { pages_lost: 1, warnings: 1, ..Destroyed::default() }, 1)
        );
    });
}

#[test]
fn memory_that_runs_out_is_none_and_reclaim_finds_what_other_caches_keep() {
    with_slub(2, 1, &config(json!({})), |sim, slub| {
        let (a, b) = (CacheSpec::new("a", 1024), CacheSpec::new("b", 4096));
        let (a, b) = (slub.create_cache(a).unwrap(), slub.create_cache(b).unwrap());
        let kept = take(slub, sim, 1, a, 1);
        give(slub, sim, 1, a, &kept);
        assert_eq!(slub.info(a).slabs, Some(1));
        let atomic = Request { atomic: true, ..Request::default() };
        let all: Vec<Addr> = on(sim, 0, |c| {
            let mut all: Vec<Addr> = std::iter::from_fn(|| slub.alloc(c, b, atomic).map(|o| o.addr())).collect();
            all.extend(std::iter::from_fn(|| slub.alloc(c, b, Request::default()).map(|o| o.addr())));
            all
        });
        assert!(all.len() as u64 > 6 * MIB / PAGE_SIZE);
        assert_eq!(slub.info(a).slabs, Some(0), "the other CPU's empty slab was reclaimed");
        assert_eq!(on(sim, 0, |c| slub.kmalloc(c, 64 << 10, Request::default())), None);
        give(slub, sim, 1, b, &all);
        on(sim, 0, |c| slub.shrink(c, b));
        assert_eq!(slub.pages.lent(), 0);
    });
}

#[test]
fn attributes_are_written_as_the_release_allows() {
    let writes: [(&str, &str, i64, Result<(), &str>); 34] = [
        ("2.6.24", "min_partial", 9, Err("since 2.6.30")),
        ("2.6.31", "min_partial", 99, Ok(())),
        ("6.1", "min_partial", 99, Ok(())),
        ("2.6.31", "cpu_partial", 9, Err("from 3.2 to 6.18")),
        ("6.1", "cpu_partial", 9, Ok(())),
        ("7.1", "cpu_partial", 9, Err("from 3.2 to 6.18")),
        ("2.6.24", "order", 1, Err("from 2.6.26 to 5.8")),
        ("3.1", "order", 3, Ok(())),
        ("3.1", "order", 4, Err("0..3")),
        ("6.1", "order", 1, Err("from 2.6.26 to 5.8")),
        ("6.1", "remote_node_defrag_ratio", 101, Err("0..100")),
        ("6.1", "remote_node_defrag_ratio", 50, Ok(())),
        ("6.1", "min_partial", -1, Err("0 or more")),
        ("6.1", "colour", 1, Err("min_partial (since 2.6.30)")),
        ("2.6.22", "sanity_checks", 1, Ok(())),
        ("2.6.21-mm1", "trace", 1, Ok(())),
        ("2.6.31", "trace", 1, Ok(())),
        ("3.1", "sanity_checks", 1, Ok(())),
        ("3.2", "trace", 1, Ok(())),
        ("3.2", "trace", 2, Err("0 or 1")),
        ("6.1", "sanity_checks", 1, Err("up to 5.8")),
        ("7.1", "trace", 1, Err("up to 5.8")),
        ("2.6.24", "red_zone", 1, Err("busy; free its objects and shrink it first")),
        ("3.2", "poison", 1, Err("without slabs")),
        ("2.6.27", "store_user", 0, Err("without slabs")),
        ("2.6.22", "shrink", 1, Ok(())),
        ("7.1", "shrink", 0, Err("1: any other value is invalid")),
        ("3.2", "validate", 1, Ok(())),
        ("6.1", "validate", 1, Err("a cache with debug flags")),
        ("6.1", "validate", 2, Err("1: any other value")),
        ("2.6.31", "alloc_slab", 0, Err("since 2.6.33")),
        ("3.1", "alloc_slab", 0, Ok(())),
        ("7.1", "sheaf_alloc", 1, Err("0, which clears")),
        ("3.2", "sheaf_alloc", 0, Err("min_partial (since 2.6.30)")),
    ];
    for (era, attribute, value, expected) in writes {
        with_slub(2, 1, &config(json!({ "era": era })), |sim, slub| {
            let id = slub.create_cache(CacheSpec::new("test", 500)).unwrap();
            let taken = take(slub, sim, 0, id, 40);
            give(slub, sim, 1, id, &taken[..7]);
            match (slub.write_attribute(id, attribute, value), expected) {
                (Ok(()), Ok(())) => {}
                (Err(e), Err(part)) => assert!(e.to_string().contains(part), "{era}: {e}"),
                (done, _) => panic!("{era}: {attribute} = {value}: {done:?}"),
            }
            let more = take(slub, sim, 0, id, 40);
            give(slub, sim, 0, id, &taken[7..]);
            give(slub, sim, 1, id, &more);
        });
    }
    let after = |era: &str, attribute: &str, value, key: &str| {
        let mut found = 0;
        with_slub(1, 1, &config(json!({ "era": era })), |_, slub| {
            let id = slub.create_cache(CacheSpec::new("test", 500)).unwrap();
            slub.write_attribute(id, attribute, value).unwrap();
            found = slub.state(id)["geometry"][key].as_u64().unwrap();
        });
        found
    };
    assert_eq!(after("2.6.31", "min_partial", 99, "min_partial"), 10);
    assert_eq!(after("6.1", "min_partial", 99, "min_partial"), 99);
    assert_eq!(after("6.1", "cpu_partial", 9, "cpu_partial_slabs"), 3);
    assert_eq!(after("3.1", "order", 3, "objs_per_slab"), 65);
}

#[test]
fn debug_flags_written_to_an_empty_cache_change_its_slots_and_its_paths() {
    for era in ["2.6.21-mm1", "2.6.22", "2.6.24", "2.6.25", "2.6.31", "3.1", "3.2"] {
        with_slub(2, 1, &config(json!({ "era": era })), |sim, slub| {
            let id = slub.create_cache(CacheSpec::new("test", 100)).unwrap();
            let slot = |slub: &mut Slub<'_, Sim>| slub.info(id).slot_size;
            let plain = slot(slub);
            let held = take(slub, sim, 0, id, 3);
            give(slub, sim, 0, id, &held);
            slub.write_attribute(id, "shrink", 1).unwrap();
            for flag in ["red_zone", "poison", "store_user", "sanity_checks"] {
                slub.write_attribute(id, flag, 1).unwrap();
            }
            assert_eq!(slub.sysfs(id).unwrap()["red_zone"], "1", "{era}");
            let same = CacheSpec::new("boot", 100);
            let boot = config(json!({ "era": era, "debug": "FZPU", "merge": false }));
            let mut from_boot = 0;
            with_slub(2, 1, &boot, |_, slub| {
                let id = slub.create_cache(same.clone()).unwrap();
                from_boot = slub.info(id).slot_size;
            });
            assert_eq!((slot(slub), slot(slub) > plain), (from_boot, true), "{era}");
            let held = take(slub, sim, 0, id, 90);
            give(slub, sim, 1, id, &held);
            let counters = slub.counters(id);
            let fast: u64 = counters.iter().map(|c| c.get(Stat::AllocFastpath)).sum();
            let before = if era == "2.6.21-mm1" { 0 } else { 2 };
            assert_eq!(fast, before, "{era}: a debugged cache has no fast path");
            slub.verify().unwrap();
            // No other cache shares it any more, and without its slabs it can be as before.
            assert_ne!(slub.create_cache(CacheSpec::new("other", 100)).unwrap(), id);
            slub.write_attribute(id, "shrink", 1).unwrap();
            for flag in ["red_zone", "poison", "store_user", "sanity_checks"] {
                slub.write_attribute(id, flag, 0).unwrap();
            }
            assert_eq!(slot(slub), plain, "{era}");
            let held = take(slub, sim, 1, id, 90);
            give(slub, sim, 0, id, &held);
            slub.verify().unwrap();
        });
    }
}

#[test]
fn a_removed_cpu_gives_up_its_slabs_and_sheaves() {
    for era in ["2.6.22", "2.6.24", "3.2", "6.1", "6.8", "6.18", "7.1"] {
        with_slub(2, 1, &config(json!({ "era": era, "merge": false })), |sim, slub| {
            let id = slub.create_cache(CacheSpec::new("maple_node", 256)).unwrap();
            let held = take(slub, sim, 1, id, 200);
            give(slub, sim, 1, id, &held[..150]);
            slub.offline(CpuId(1));
            let cpu = slub.caches[id.0 as usize].cpus.get_mut(CpuId(1));
            assert_eq!((cpu.own(), cpu.list(), cpu.partial.len()), (None, None, 0), "{era}");
            if let Some(sheaves) = &cpu.sheaves {
                assert!(sheaves.main.objects.is_empty() && sheaves.spare.is_none(), "{era}");
            }
            slub.verify().unwrap();
            give(slub, sim, 0, id, &held[150..]);
            slub.verify().unwrap();
        });
    }
}

#[test]
fn a_counter_is_cleared_alone_and_what_is_outstanding_stays_known() {
    with_slub(1, 1, &config(json!({ "era": "6.1" })), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("test", 100)).unwrap();
        let held = take(slub, sim, 0, id, 90);
        slub.write_attribute(id, "alloc_fastpath", 0).unwrap();
        let counters = slub.counters(id);
        assert_eq!(counters[0].get(Stat::AllocFastpath), 0);
        assert!(counters[0].get(Stat::AllocSlowpath) > 0);
        assert_eq!(slub.info(id).live_objects, 90);
        give(slub, sim, 0, id, &held);
        slub.verify().unwrap();
    });
}

#[test]
fn slabinfo_came_with_the_release() {
    with_slub(1, 1, &config(json!({"era": "2.6.24-rc2"})), |_, slub| assert_eq!(slub.slabinfo(), None));
    with_slub(1, 1, &config(json!({})), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("buffer_head", 104)).unwrap();
        let taken = take(slub, sim, 0, id, 80);
        give(slub, sim, 0, id, &taken[..3]);
        let text = slub.slabinfo().expect("text");
        // Two full slabs, one with three free objects on the node list, and the cpu slab, whose free objects count.
        let expected = "buffer_head          114    117    104   39    1 : tunables    0    0    0 : slabdata      3      3      0";
        assert_eq!(text.lines().nth(2).unwrap(), expected);
        assert!(text.lines().last().unwrap().starts_with("kmalloc-8 "));
    });
}

#[test]
fn a_reset_of_the_counters_forgets_events_and_no_objects() {
    with_slub(1, 1, &config(json!({})), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("test", 200)).unwrap();
        let taken = take(slub, sim, 0, id, 30);
        let large = on(sim, 0, |c| slub.kmalloc(c, 5000, Request::default()).unwrap().addr());
        on(sim, 0, |c| slub.reset_counters(c));
        assert!(Stat::ALL.iter().all(|s| stat(slub, id, 0, *s) == 0 && slub.uncached_counters()[0].get(*s) == 0));
        slub.verify().unwrap();
        give(slub, sim, 0, id, &taken[..10]);
        slub.verify().unwrap();
        assert_eq!(slub.info(id).live_objects, 20);
        on(sim, 0, |c| slub.kfree(c, Object::at(large)));
    });
}

#[test]
fn freeing_what_is_no_object_of_the_cache_is_a_panic_that_says_so() {
    let message = |wrong: fn(&Slub<'_, Sim>, &<Sim as Machine>::Cpu, CacheId, Addr)| {
        let caught = std::panic::catch_unwind(|| {
            with_slub(1, 1, &config(json!({"merge": false})), |sim, slub| {
                let id = slub.create_cache(CacheSpec::new("test", 200)).unwrap();
                on(sim, 0, |c| {
                    let object = slub.alloc(c, id, Request::default()).unwrap().addr();
                    wrong(slub, c, id, object);
                });
            });
        });
        *caught.expect_err("a panic").downcast::<String>().expect("a message")
    };
    let cases = [
        (message(|s, c, id, o| s.free(c, id, Object::at(o.plus(8)))), "one of 20 objects every 200 bytes"),
        (message(|s, c, id, o| s.free(c, id, Object::at(o.plus(4000)))), "found offset 4000"),
        (message(|s, c, _, o| s.free(c, CacheId(0), Object::at(o))), "found a slab of cache test"),
        (message(|s, c, _, o| s.kfree(c, Object::at(o.plus(16)))), "found offset 16"),
        (message(|s, c, id, o| s.free(c, id, Object::at(o.plus(PAGE_SIZE)))), "found a page that is no slab"),
        (message(|s, c, _, o| s.kfree(c, Object::at(o.plus(PAGE_SIZE)))), "expected a slab or a kmalloc block"),
        (
            message(|s, c, id, _| {
                s.destroy(c, id);
                s.alloc(c, id, Request::default());
            }),
            "which was destroyed",
        ),
        (
            message(|s, c, _, _| {
                let block = s.kmalloc(c, 8192, Request::default()).unwrap().addr();
                s.kfree(c, Object::at(block.plus(4096)));
            }),
            "expected the block's start",
        ),
    ];
    for (message, part) in cases {
        assert!(message.contains(part), "{message}\nlacks: {part}");
    }
}

/// Each damage is done to a partial slab with five free objects of eight.
#[test]
fn verify_finds_damage() {
    type Damage = fn(&mut Slub<'_, Sim>, Slab);
    let damages: [(Damage, &str); 8] = [
        (|s, slab| slab.set(s.pages, slab.freelist(s.pages), 4), "freelist of 5 + inuse 4 ≠ 8"),
        (|s, slab| s.pages.arena().poke(slab.freelist(s.pages).unwrap(), 12345), "is no object of the slab"),
        (
            |s, slab| {
                let head = slab.freelist(s.pages).unwrap();
                s.pages.arena().poke(head, head.0);
            },
            "is free twice",
        ),
        (|s, slab| slab.freeze(s.pages, true), "frozen is true"),
        (|s, slab| s.pages.poke(slab.0, Field::Owner, 1), "cache kmalloc-8, slab"),
        (|s, slab| s.pages.poke(slab.0, Field::Owner, 99), "owner 98"),
        (|s, _| s.caches.last_mut().unwrap().nodes[0].nr_partial.poke(7), "nr_partial 7"),
        (|s, _| s.caches.last_mut().unwrap().nodes[0].nr_slabs.poke(9), "nr_slabs 9"),
    ];
    for (damage, part) in damages {
        let sim = sim(1, 1, Schedule::default());
        let pages = Pages::new(&sim, PageModel::HotCold).unwrap();
        let mut slub = Slub::new(&pages, &config(json!({}))).unwrap();
        let id = slub.create_cache(CacheSpec::new("test", 504)).unwrap();
        let taken = take(&slub, &sim, 0, id, 9);
        give(&slub, &sim, 0, id, &taken[..5]);
        slub.verify().unwrap();
        damage(&mut slub, Slab(Pfn((taken[0].0 / PAGE_SIZE) as u32)));
        let found = slub.verify().expect_err(part).to_string();
        assert!(found.contains(part), "{found}\nlacks: {part}");
    }
}

/// An object the test holds, with the mark it wrote into it.
type Held = (CacheId, Addr, u64);

/// A pseudo-random stream per CPU (SplitMix64).
struct Stream(u64);
impl Stream {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// `ops` random operations on every CPU, objects freed by whoever draws them; then the properties above.
fn any_sequence<M: Machine>(machine: &M, config: &Config, ops: u64, seed: u64) {
    let mut pages = Pages::new(machine, PageModel::HotCold).expect("pages");
    let nodes = machine.topology().nodes() as u64;
    let mut slub = Slub::new(&pages, config).expect("an allocator");
    let specs = [
        CacheSpec::new("small", 24),
        CacheSpec::new("buffer_head", 104),
        CacheSpec { ctor: true, ..CacheSpec::new("ctor", 700) },
        CacheSpec { typesafe_by_rcu: true, ..CacheSpec::new("rcu", 1500) },
        CacheSpec { reclaim_account: true, ..CacheSpec::new("page", 4096) },
    ];
    let caches: Vec<CacheId> = specs.into_iter().map(|s| slub.create_cache(s).unwrap()).collect();
    let held: Mutex<Vec<Held>> = Mutex::new(Vec::new());
    let marks = AtomicU64::new(1 << 48);
    const KMALLOC: CacheId = CacheId(u32::MAX);
    machine.boot(|cpu| {
        let mut stream = Stream(seed ^ u64::from(cpu.id().0) << 32);
        for _ in 0..ops {
            cpu.serve();
            match stream.below(100) {
                0 => slub.shrink(cpu, caches[stream.below(5) as usize]),
                1..=52 => {
                    let node = (stream.below(4) == 0).then(|| NodeId(stream.below(nodes) as u16));
                    let want = Request {
                        node,
                        this_node: stream.below(2) == 0,
                        atomic: stream.below(2) == 0,
                        ..Request::default()
                    };
                    let class = stream.below(7) as usize;
                    let (id, object) = match caches.get(class) {
                        Some(id) => (*id, slub.alloc(cpu, *id, want)),
                        None => (KMALLOC, slub.kmalloc(cpu, 8 + stream.below(5000), want)),
                    };
                    if let Some(object) = object {
                        let mark = marks.fetch_add(1, Ordering::Relaxed);
                        pages.arena().poke(object.addr(), mark);
                        held.lock().unwrap().push((id, object.addr(), mark));
                    }
                }
                _ => {
                    let mut all = held.lock().unwrap();
                    let n = all.len() as u64;
                    let drawn = (n > 0).then(|| all.swap_remove(stream.below(n) as usize));
                    drop(all);
                    if let Some((id, addr, mark)) = drawn {
                        assert_eq!(pages.arena().peek(addr), mark, "object {:#x} was handed out twice", addr.0);
                        release(&slub, cpu, id, addr);
                    }
                }
            }
        }
        while cpu.idle(None) != Wakeup::Quiet {}
    });
    fn release<M: Machine>(slub: &Slub<'_, M>, cpu: &M::Cpu, id: CacheId, addr: Addr) {
        match id {
            KMALLOC => slub.kfree(cpu, Object::at(addr)),
            id => slub.free(cpu, id, Object::at(addr)),
        }
    }
    slub.verify().expect("sound slabs");
    let held = held.into_inner().unwrap();
    for id in &caches {
        let mine = held.iter().filter(|h| h.0 == *id).count() as u64;
        assert_eq!(slub.info(*id).live_objects, mine, "{}", slub.info(*id).name);
    }
    on(machine, 0, |cpu| {
        held.iter().for_each(|(id, addr, _)| release(&slub, cpu, *id, *addr));
        (0..slub.cache_count() as u32).for_each(|i| slub.shrink(cpu, CacheId(i)));
        assert_eq!(slub.destroy(cpu, caches[3]), Destroyed::default());
    });
    slub.verify().expect("sound slabs after the last free");
    for i in 0..slub.cache_count() as u32 {
        assert_eq!(slub.info(CacheId(i)).slabs, Some(0), "{}", slub.info(CacheId(i)).name);
    }
    assert_eq!(pages.lent(), 0);
    drop(slub);
    pages.verify().expect("sound pages");
}

fn configs() -> impl Strategy<Value = Config> {
    let era = (0..Config::ERAS.len()).prop_map(|i| Config::ERAS[i]);
    let order = prop_oneof![Just(None), (0u8..=3).prop_map(Some)];
    (era, order, 0u64..4, any::<bool>(), prop_oneof![Just(0u64), Just(100), Just(1024)]).prop_map(
        |(era, order, min_partial, head, remote_node_defrag_ratio)| {
            let config = Config::era(era).unwrap();
            let t = Tunables {
                min_partial: MinPartial::Slabs(min_partial),
                first_free: if head { FirstFree::Head } else { FirstFree::Tail },
                remote_node_defrag_ratio,
                ..config.t
            };
            Config { order, t, ..config }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_on_any_interleaving_keeps_the_invariants(
        shape in prop_oneof![Just((1u64, 1u64)), Just((2, 1)), Just((3, 1)), Just((4, 1)), Just((2, 2)), Just((4, 2))],
        config in configs(),
        seed in any::<u64>(),
        jitter_ps in prop_oneof![Just(0u64), Just(2_000), Just(200_000)],
    ) {
        let sim = sim(shape.0, shape.1, Schedule { seed, jitter_ps, ..Schedule::default() });
        any_sequence(&sim, &config, 1000, seed);
    }
}

#[test]
fn threads_keep_the_invariants() {
    for seed in 0..4 {
        let native = Native::new(Topology::blocks(3, 1, 16 * MIB)).expect("the host");
        any_sequence(&native, &Config::era("2.6.24").unwrap(), 4000, seed);
    }
}

#[test]
fn a_pair_from_the_private_list_is_cheaper_than_one_from_the_page_allocator() {
    with_slub(1, 1, &config(json!({})), |sim, slub| {
        let (cached, passed_on) = on(sim, 0, |c| {
            let pair = |bytes| {
                let before = c.now().0;
                slub.kfree(c, slub.kmalloc(c, bytes, Request::default()).expect("memory"));
                c.now().0 - before
            };
            for _ in 0..4 {
                pair(2048);
                pair(4096);
            }
            (pair(2048), pair(4096))
        });
        assert!(2 * cached < passed_on, "{cached} ps against {passed_on} ps");
    });
}
