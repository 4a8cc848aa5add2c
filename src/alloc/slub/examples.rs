//! The worked examples of slub.md and slub-eras.md that no other test has:
//!
//! | where | what | test |
//! |---|---|---|
//! | slub.md §2, §7.7 | layouts with debug flags | `order::tests::debug_layouts_equal_the_table`, `…_follow_the_steps_…` |
//! | §3, §13 | orders, all eras and tunables | `order::tests::every_example_of_the_specification_is_equal`, `…_tuned_table` |
//! | §3 (c), §13.1, §12 | published points | `order::tests::published_points_are_reproduced`, `the_halving_anomaly_…` |
//! | §4 | min_partial, cpu_partial, sheaves by size | `order::tests::every_example_of_the_specification_is_equal` |
//! | §5 | merging | `tests::caches_of_equal_slots_are_merged_unless_that_is_off`, here |
//! | §6 | kmalloc by era | `tests::kmalloc_goes_where_the_original_sends_it`, `kmalloc::tests`, here (copies) |
//! | §11.12 | a fresh slab ascends, a pair returns the same object | `tests::a_fresh_slab_…` |
//! | slub-eras.md §4.2 | node refill of 3.2 and of 6.1 | here |
//! | §7 | refill of 7.1 | here |
//! | §9.6 | memory-less nodes | here |

use serde_json::json;

use super::policy::*;
use super::tests::{config, give, on, partial_inuse, stat, take, with_slub};
use super::*;
use crate::alloc::Configuration;
use crate::machine::{Cpu, Native, Sim};
use crate::page::{Field, PageModel, Pfn};
use crate::topology::{Place, Topology};
use crate::units::PAGE_SIZE;

/// Takes `slabs` whole slabs of `each` objects on CPU 0, frees `free` of each, and gives all up: they are partial on node 0.
fn partial_slabs(slub: &mut Slub<'_, Sim>, sim: &Sim, id: CacheId, slabs: usize, each: usize, free: usize) {
    let taken = take(slub, sim, 0, id, slabs * each);
    for slab in taken.chunks(each) {
        give(slub, sim, 0, id, &slab[..free]);
    }
    on(sim, 0, |c| slub.flush(c, slub.cache(id)));
    assert_eq!(partial_inuse(slub, id, 0), vec![(each - free) as u64; slabs]);
}

#[test]
fn a_node_refill_of_3_2_takes_slabs_until_the_list_holds_half_the_target_of_objects() {
    with_slub(2, 1, &config(json!({ "era": "3.2", "merge": false, "cpu_partial": 30 })), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("test", 104)).unwrap();
        partial_slabs(slub, sim, id, 4, 39, 20);
        take(slub, sim, 1, id, 1);
        // The first is the cpu slab and does not count; one more holds 20 > 15.
        let cpu = slub.state(id)["cpu"][1].clone();
        assert_eq!((&cpu["slab"], &cpu["partial_slabs"], &cpu["partial_pobjects"]), (&json!(1), &json!(1), &json!(20)));
        assert_eq!(partial_inuse(slub, id, 0).len(), 2);
    });
}

#[test]
fn a_node_refill_of_6_1_takes_one_and_half_the_limit_and_one_more() {
    with_slub(2, 1, &config(json!({ "era": "6.1", "merge": false })), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("test", 128)).unwrap();
        assert_eq!(slub.cache(id).limits.cpu_partial_slabs, 8);
        partial_slabs(slub, sim, id, 10, 32, 3);
        take(slub, sim, 1, id, 1);
        let cpu = slub.state(id)["cpu"][1].clone();
        assert_eq!((&cpu["slab"], &cpu["partial_slabs"]), (&json!(1), &json!(5)));
        assert_eq!(partial_inuse(slub, id, 0).len(), 4);
        assert_eq!((stat(slub, id, 1, Stat::CpuPartialNode), stat(slub, id, 1, Stat::AllocFromPartial)), (5, 1));
    });
}

#[test]
fn a_refill_of_7_1_empties_the_slab_taken_last_first_and_gives_back_what_is_left() {
    with_slub(2, 2, &config(json!({ "era": "7.1", "merge": false })), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("test", 64)).unwrap();
        assert_eq!(slub.cache(id).limits.sheaf_capacity, 60);
        // 16 sheaves empty 15 slabs exactly; frees from the other node go past all sheaves.
        let taken = take(slub, sim, 0, id, 16 * 60);
        let slab = |n: u64| {
            let first = taken.iter().map(|o| o.0 / PAGE_SIZE).min().unwrap();
            taken.iter().copied().filter(move |o| o.0 / PAGE_SIZE == first + n).collect::<Vec<_>>()
        };
        let (a, b) = (slab(2), slab(7));
        assert_eq!((a.len(), b.len()), (64, 64));
        give(slub, sim, 1, id, &a[..40]);
        give(slub, sim, 1, id, &b[..48]);
        assert_eq!(partial_inuse(slub, id, 0), [24, 16]);
        take(slub, sim, 0, id, 1);
        // 48 of the second, 12 of the first, whose other 28 went back and put it at the tail.
        assert_eq!(partial_inuse(slub, id, 0), [64 - 28]);
        let main = slub.caches[id.0 as usize].cpus.get_mut(CpuId(0)).sheaves.as_ref().unwrap().main.objects.clone();
        assert_eq!(main.len(), 59);
        assert!(main[..48].iter().all(|o| b.contains(o)) && main[48..].iter().all(|o| a.contains(o)));
    });
}

#[test]
fn every_kmalloc_class_exists_sixteen_times_and_a_size_keeps_to_its_copy() {
    with_slub(1, 1, &config(json!({ "era": "6.8", "kmalloc_random": true })), |sim, slub| {
        let classes = slub.kmalloc_classes;
        // Other kinds have no copies: the reclaimable one stands behind.
        assert_eq!(slub.cache_count(), 17 * classes);
        let name = |slub: &mut Slub<'_, Sim>, i: usize| slub.info(CacheId(i as u32)).name;
        assert_eq!(
            (name(slub, 0), name(slub, classes), name(slub, 16 * classes - 1)),
            ("kmalloc-8".into(), "kmalloc-rnd-01-8".into(), "kmalloc-rnd-15-8k".into())
        );
        let sizes: Vec<u64> = (65..=96).collect();
        let all: Vec<Addr> = on(sim, 0, |c| {
            let twice = sizes.iter().chain(&sizes);
            twice.map(|bytes| slub.kmalloc(c, *bytes, Request::default()).expect("memory").addr()).collect()
        });
        let used: Vec<(usize, u64)> =
            (0..16 * classes).map(|i| (i, slub.info(CacheId(i as u32)).live_objects)).filter(|(_, n)| *n > 0).collect();
        assert!(used.len() > 8, "{used:?}: 32 sizes meet more than half of the copies");
        assert!(used.iter().all(|(i, n)| i % classes == 4 && n % 2 == 0), "{used:?}: the same copy at the same size");
        // Other caches share the plain class and no copy.
        assert_eq!(slub.create_cache(CacheSpec::new("mine", 96)).unwrap(), CacheId(4));
        on(sim, 0, |c| all.iter().for_each(|o| slub.kfree(c, Object::at(*o))));
    });
}

#[test]
fn a_hardened_list_is_stored_in_disguise_and_an_object_freed_twice_in_a_row_is_a_panic() {
    with_slub(1, 1, &config(json!({ "era": "6.1", "merge": false, "freelist_hardened": true })), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("test", 104)).unwrap();
        let taken = take(slub, sim, 0, id, 2);
        give(slub, sim, 0, id, &taken);
        let at = taken[1].plus(slub.cache(id).links.offset);
        assert_ne!(slub.pages.arena().peek(at), taken[0].0);
        assert_eq!(slub.cache(id).links.peek(slub.pages.arena(), taken[1]), Some(taken[0]));
    });
    let caught = std::panic::catch_unwind(|| {
        with_slub(1, 1, &config(json!({ "era": "6.1", "merge": false, "freelist_hardened": true })), |sim, slub| {
            let id = slub.create_cache(CacheSpec::new("test", 104)).unwrap();
            let taken = take(slub, sim, 0, id, 1);
            give(slub, sim, 0, id, &[taken[0], taken[0]]);
        });
    });
    let message = *caught.expect_err("a panic").downcast::<String>().expect("a message");
    assert!(message.contains("freed twice"), "{message}");
}

#[test]
fn random_lists_walk_one_permutation_of_the_cache_from_a_random_place() {
    with_slub(1, 1, &config(json!({ "era": "6.1", "merge": false, "freelist_random": true })), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("test", 128)).unwrap();
        let order: Vec<u64> = slub.cache(id).permutation.iter().map(|i| u64::from(*i)).collect();
        assert!(order.windows(2).any(|w| w[1] != w[0] + 1) && order.len() == 32);
        let mut starts = Vec::new();
        for slab in take(slub, sim, 0, id, 4 * 32).chunks(32) {
            let found: Vec<u64> = slab.iter().map(|o| o.0 % PAGE_SIZE / 128).collect();
            let start = order.iter().position(|i| *i == found[0]).expect("an object of the slab");
            assert_eq!(found, [&order[start..], &order[..start]].concat());
            starts.push(start);
        }
        assert!(starts.windows(2).any(|w| w[0] != w[1]), "{starts:?}");
        // One object in a slab: nothing to choose.
        let single = slub.create_cache(CacheSpec::new("single", 4 << 20)).unwrap();
        assert_eq!(slub.cache(single).layout.objects, 1);
        take(slub, sim, 0, single, 1);
    });
}

#[test]
fn a_slab_of_the_smallest_order_is_counted_as_a_fallback_and_has_fewer_objects() {
    for era in Config::ERAS {
        let falls_back = super::eras::policy(era).unwrap().t.order_fallback == OrderFallback::MinOrder;
        with_slub(
            1,
            1,
            &config(json!({ "era": era, "merge": false, "min_objects": 16, "max_order": 3 })),
            |sim, slub| {
                let id = slub.create_cache(CacheSpec { ctor: true, ..CacheSpec::new("test", 504) }).unwrap();
                assert_eq!((slub.cache(id).layout.order.0, slub.cache(id).layout.min_order.0), (1, 0));
                // Every other page is taken: there is no block of two.
                let order0 = crate::units::Order(0);
                let flags = crate::page::PageFlags { atomic: true, ..Default::default() };
                on(sim, 0, |c| {
                    let all: Vec<_> = std::iter::from_fn(|| slub.pages.alloc_pages(c, order0, None, flags)).collect();
                    let (give, _keep): (Vec<_>, Vec<_>) = all.into_iter().partition(|p| p.pfn().0 % 2 == 0);
                    give.into_iter().for_each(|p| slub.pages.free_pages(c, p));
                    let got = slub.alloc(c, id, Request::default());
                    assert_eq!(got.is_some(), falls_back, "{era}");
                });
                if falls_back {
                    // One slab, or as many as fill a sheaf.
                    let slabs = slub.cache(id).limits.sheaf_capacity.max(1).div_ceil(8);
                    let seen = (stat(slub, id, 0, Stat::OrderFallback), slub.info(id).total_objects);
                    assert_eq!(seen, (slabs, Some(8 * slabs)), "{era}");
                }
            },
        );
    }
}

#[test]
fn a_cpu_whose_node_has_no_memory_uses_the_nearest_that_has_some() {
    let place = |cpu: u16| Place { socket: cpu, core: cpu, l2: cpu, llc: cpu, node: NodeId(cpu) };
    for era in Config::ERAS {
        let native = Native::new(Topology::new(vec![place(0), place(1)], vec![8 << 20, 0])).expect("the host");
        let mut pages = Pages::new(&native, PageModel::HotCold).expect("pages");
        let mut slub = Slub::new(&pages, &config(json!({ "era": era, "merge": false }))).expect("an allocator");
        let id = slub.create_cache(CacheSpec::new("test", 1000)).unwrap();
        let taken = on(&native, 1, |c| {
            assert_eq!((c.node(), slub.local_node(c)), (NodeId(1), NodeId(0)));
            // By the way nobody names a node, and by the way its own is named.
            let named = Request { node: Some(NodeId(1)), ..Request::default() };
            let wants = [Request::default(), named, Request::default(), named];
            wants.map(|want| slub.alloc(c, id, want).expect("memory of the other node").addr())
        });
        slub.verify().expect("sound slabs");
        for object in taken {
            assert_eq!(slub.pages.node_of(Pfn((object.0 / PAGE_SIZE) as u32)), NodeId(0), "{era}");
        }
        on(&native, 1, |c| {
            taken.iter().for_each(|o| slub.free(c, id, Object::at(*o)));
            slub.shrink(c, id);
            slub.shrink(c, id);
        });
        assert_eq!((slub.info(id).slabs, slub.pages.lent()), (Some(0), 0), "{era}");
        drop(slub);
        pages.verify().expect("sound pages");
    }
}

/// A slab's page is the allocator's from its creation to its return; the descriptor says so.
#[test]
fn merged_caches_share_slabs_and_the_last_user_returns_them() {
    with_slub(1, 1, &config(json!({ "era": "7.1" })), |sim, slub| {
        let first = slub.create_cache(CacheSpec::new("a", 200)).unwrap();
        let again = slub.create_cache(CacheSpec::new("b", 197)).unwrap();
        assert_eq!((again, slub.aliases(first)), (first, &["b".to_string()][..]));
        // An explicit capacity is a sheaf of one's own (7.x); automatic ones do not matter.
        let maple = slub.create_cache(CacheSpec::new("maple_node", 200)).unwrap();
        assert_ne!(maple, first);
        let object = take(slub, sim, 0, first, 1)[0];
        assert_eq!(
            slub.pages.peek(Pfn((object.0 / PAGE_SIZE) as u32), Field::Owner),
            word::owner_mark(first.0 as usize)
        );
        give(slub, sim, 0, again, &[object]);
        on(sim, 0, |c| (slub.destroy(c, first), slub.destroy(c, again)));
        assert_eq!(slub.pages.lent(), 0);
    });
}
