//! The worked examples of slqb.md §19, read from the tables as they stand there, and the rules of §4 and §18 on machines
//! of one to four CPUs and nodes.

mod lab;
mod odd;
mod properties;
mod rules;
mod structures;
mod tables;

use lab::{Lab, Shape, config, lab};

use super::policy::{Geometry, KMALLOC, kmalloc_class, structure_bytes};
use super::*;
use crate::alloc::Stat;
use crate::machine::{Native, Sim};
use crate::page::PageModel;
use crate::topology::{Place, Topology};

/// The machine that geometry is asked for.
const X86: crate::alloc::geometry::Shape =
    crate::alloc::geometry::Shape { page_size: 4096, line: 64, word: 8, cpus: 1, memory: 64 << 20 };
const ONE: Shape = Shape { cpus: 1, nodes: 1, mib: 64 };
const PAIR: Shape = Shape { cpus: 2, nodes: 1, mib: 64 };
const TWO_NODES: Shape = Shape { cpus: 2, nodes: 2, mib: 64 };

fn plain(size: u64) -> CacheSpec {
    CacheSpec::new("test", size)
}

#[test]
fn a_lifo_returns_objects_in_reverse_order_of_freeing_and_a_new_slab_in_order_of_address() {
    lab(ONE, config(&[]), plain(256), |lab| {
        let fresh = lab.alloc(0, 16);
        assert!(fresh.windows(2).all(|w| w[1].0 == w[0].0 + 256), "{fresh:?}");
        lab.free(0, &fresh);
        let mut again = lab.alloc(0, 16);
        again.reverse();
        assert_eq!(again, fresh);
    });
}

#[test]
fn a_lifo_hit_takes_no_lock() {
    for shape in [ONE, PAIR, TWO_NODES] {
        let (_, locks) = lab(shape, config(&[]), plain(128), |lab| {
            let x = lab.alloc(0, 1);
            lab.free(0, &x);
            lab.on(0, |cpu| {
                lab.slqb.pages().machine().reset_report(cpu);
                for _ in 0..100 {
                    let x = lab.slqb.alloc(cpu, lab.cache, Request::default()).unwrap();
                    lab.slqb.free(cpu, lab.cache, x);
                }
            });
        });
        assert_eq!(locks.values().sum::<u64>(), 0, "{locks:?}");
    }
}

#[test]
fn queued_objects_count_as_active_in_slabinfo() {
    // Example 19.9.
    lab(ONE, config(&[]), plain(256), |lab| {
        let objects = lab.alloc(0, 100);
        lab.free(0, &objects[..30]);
        let info = lab.slqb.info(lab.cache);
        assert_eq!((info.slabs, info.partial), (Some(7), Some(1)));
        assert_eq!((info.active_objects, info.total_objects, info.live_objects), (100, Some(112), 70));
        let text = lab.slqb.slabinfo().unwrap();
        let line = text.lines().nth(2).unwrap();
        assert!(
            line.starts_with("test                 100    112    256   16    1 : tunables 1024  256    0 :"),
            "{line}"
        );
    });
}

#[test]
fn interleaved_owners_flush_the_rlist_at_each_switch() {
    // Example 19.10: three CPUs on three nodes, A owned by cpu0 and B by cpu1.
    let shape = Shape { cpus: 3, nodes: 3, mib: 16 };
    for (order, splices, left, remote) in
        [([0, 4, 1, 5, 2, 6, 3, 7], 7, 1, [(4, 1), (3, 0)]), ([0, 1, 2, 3, 4, 5, 6, 7], 2, 0, [(4, 1), (4, 1)])]
    {
        lab(shape, config(&[("freebatch", 4)]), plain(1024), |lab| {
            let mut objects = lab.alloc(0, 4);
            objects.extend(lab.alloc(1, 4));
            lab.free(2, &order.map(|i| objects[i]));
            let state = lab.slqb.state(lab.cache);
            assert_eq!(lab.stat(Stat::FlushRfreeList), splices);
            assert_eq!(state["cpu"][2]["rlist"], left);
            for (cpu, (nr, check)) in remote.into_iter().enumerate() {
                assert_eq!(state["cpu"][cpu]["remote_free"], nr, "cpu{cpu}");
                assert_eq!(state["cpu"][cpu]["remote_free_check"], check, "cpu{cpu}");
            }
        });
    }
}

#[test]
fn slab_orders_follow_the_two_rules() {
    // §4.2: a quarter of waste at orders 0 and 1, any above; the smallest order that holds min_objects.
    let order = |size, o: u8, n: u64| {
        let config = config(&[("order", u64::from(o)), ("min_objects", n)]);
        Geometry::of(&plain(size), &config, &X86).map(|g| (g.order.0, g.objects))
    };
    assert_eq!(order(3000, 0, 1), Some((0, 1)), "both low orders waste over a quarter: smallest that fits");
    assert_eq!(order(1368, 0, 1), Some((1, 5)), "order 0 wastes a third");
    assert_eq!(order(4096, 1, 1), Some((1, 2)), "order 0 is not tried");
    assert_eq!(order(4 << 20, 0, 1), Some((10, 1)), "the largest slab");
    assert_eq!(order(4 << 20, 0, 2), None, "no order holds two");
    assert_eq!(order(8, 10, 1), Some((10, 524288)), "the largest minimum");
}

#[test]
fn batch_and_hiwater_given_alone_keep_to_each_other() {
    // §24.16.
    let batch = |pairs: &[(&str, u64)]| {
        let g = Geometry::of(&plain(256), &config(pairs), &X86).unwrap();
        (g.freebatch, g.hiwater)
    };
    assert_eq!(batch(&[]), (256, 1024));
    assert_eq!(batch(&[("freebatch", 10)]), (10, 40));
    assert_eq!(batch(&[("hiwater", 2000)]), (256, 2000));
    assert_eq!(batch(&[("hiwater", 9)]), (10, 9));
    assert_eq!(batch(&[("hiwater", 0)]), (1, 0));
    assert_eq!(batch(&[("hiwater", 3), ("freebatch", 4)]), (4, 3));
}

#[test]
fn impossible_tunables_are_refused_by_name() {
    for (given, part) in [
        (serde_json::json!({"order": 11}), "allocator.order = 11: 0..10"),
        (serde_json::json!({"min_objects": 0}), "allocator.min_objects"),
        (serde_json::json!({"freebatch": 0}), "allocator.freebatch"),
        (serde_json::json!({"hiwater": 2, "freebatch": 4}), "allocator.hiwater = 2: freebatch - 1 = 3"),
        (serde_json::json!({"hiwatr": 2}), "did you mean \"hiwater\""),
        (serde_json::json!({"order": -1}), "allocator.order"),
    ] {
        let e = Config::from_json(&given).unwrap_err().to_string();
        assert!(e.contains(part), "{given}: {e}");
    }
    let named: Vec<&str> = Config::PARAMETERS.iter().map(|p| p.name).collect();
    let fields = serde_json::to_value(config(&[])).unwrap();
    let fields: Vec<&String> = fields.as_object().unwrap().keys().filter(|k| *k != "era").collect();
    assert!(fields.len() == named.len() && fields.iter().all(|f| named.contains(&f.as_str())), "{fields:?} {named:?}");
}

#[test]
fn impossible_caches_are_refused() {
    lab(ONE, config(&[("min_objects", 4)]), plain(64), |lab| {
        let mut create = |spec| lab.slqb.create_cache(spec).unwrap_err().to_string();
        assert!(create(plain(64)).contains("cache.name"), "a second cache of that name");
        assert!(create(CacheSpec::new("", 64)).contains("cache.name"));
        assert!(create(CacheSpec::new("tiny", 7)).contains("cache.size = 7"));
        assert!(create(CacheSpec::new("huge", 5 << 20)).contains("cache.size"));
        assert!(create(CacheSpec::new("two fit", 2 << 20)).contains("4 objects"));
        assert!(create(CacheSpec { align: 24, ..CacheSpec::new("odd", 64) }).contains("cache.align"));
        // The kmalloc classes too large for min_objects still exist.
        let x = lab.on(0, |cpu| lab.slqb.kmalloc(cpu, 2 << 20, Request::default()).map(|o| o.addr()));
        lab.on(0, |cpu| lab.slqb.kfree(cpu, Object::at(x.unwrap())));
    });
}

#[test]
fn an_order_that_cannot_hold_one_object_is_raised_and_flagged() {
    lab(ONE, config(&[("order", 1)]), plain(8193), |lab| {
        let info = lab.slqb.info(lab.cache);
        assert_eq!((info.order, info.order_raised), (Some(2), true));
        assert!(!lab.slqb.info(CacheId(0)).order_raised);
    });
}

#[test]
fn kmalloc_finds_the_class_of_section_11() {
    let class = |bytes| kmalloc_class(bytes).map(|c| KMALLOC[c]);
    for (bytes, size) in [
        (1, 8),
        (8, 8),
        (9, 16),
        (17, 32),
        (33, 64),
        (64, 64),
        (65, 128),
        (96, 128),
        (97, 128),
        (104, 128),
        (128, 128),
        (129, 192),
        (192, 192),
        (193, 256),
        (200, 256),
        (256, 256),
        (257, 512),
        (1025, 2048),
        (4096, 4096),
        (4097, 8192),
        (5000, 8192),
        (8192, 8192),
        (131072, 131072),
        (131073, 262144),
        (1048576, 1048576),
        (1048577, 2097152),
        (2097152, 2097152),
    ] {
        assert_eq!(class(bytes), Some(size), "{bytes}");
    }
    assert_eq!(class(2097153), None);
    lab(TWO_NODES, config(&[]), plain(64), |lab| {
        lab.on(0, |cpu| {
            let none = lab.slqb.kmalloc(cpu, 0, Request::default()).unwrap();
            assert_eq!(none.addr(), ZERO_SIZE);
            lab.slqb.kfree(cpu, none);
            assert!(lab.slqb.kmalloc(cpu, 2097153, Request::default()).is_none());
            for size in KMALLOC {
                let x = lab.slqb.kmalloc(cpu, size, Request::default()).unwrap();
                lab.slqb.kfree(cpu, x);
            }
        });
        for (id, size) in KMALLOC.iter().enumerate() {
            let info = lab.slqb.info(CacheId(id as u32));
            assert_eq!((info.object_size, info.slabs, info.live_objects), (*size, Some(1), 0));
        }
    });
}

#[test]
fn structures_grow_linearly_and_queues_are_bounded() {
    tables::structure_memory();
    tables::queued_memory();
}

#[test]
fn zeroing_clears_the_object_and_leaves_its_neighbours() {
    lab(ONE, config(&[]), plain(40), |lab| {
        let objects = lab.alloc(0, 3);
        objects.iter().for_each(|x| lab.slqb.pages().arena().fill(*x, 40, 0xff));
        lab.free(0, &objects[1..2]);
        let want = Request { zero: true, ..Request::default() };
        let x = lab.on(0, |cpu| lab.slqb.alloc(cpu, lab.cache, want).unwrap().addr());
        assert_eq!(x, objects[1]);
        let word = |x: Addr, i: u64| lab.slqb.pages().arena().peek(x.plus(8 * i));
        assert!((0..5).all(|i| word(x, i) == 0));
        assert!((0..5).all(|i| word(objects[0], i) == u64::MAX && word(objects[2], i) == u64::MAX));
    });
}

#[test]
fn a_constructed_object_keeps_its_bytes_while_it_is_free() {
    lab(ONE, config(&[]), CacheSpec { ctor: true, ..plain(40) }, |lab| {
        let objects = lab.alloc(0, 8);
        objects.iter().for_each(|x| lab.slqb.pages().arena().fill(*x, 40, 0xab));
        lab.free(0, &objects);
        let stamp = u64::from_ne_bytes([0xab; 8]);
        for x in lab.alloc(0, 8) {
            assert!((0..5).all(|i| lab.slqb.pages().arena().peek(x.plus(8 * i)) == stamp), "{x:?}");
        }
    });
}

#[test]
fn memory_running_out_is_none_and_everything_comes_back() {
    let shape = Shape { cpus: 2, nodes: 2, mib: 8 };
    let until_none = |lab: &Lab, want: Request| {
        lab.on(0, |cpu| {
            let mut taken = Vec::new();
            while let Some(x) = lab.slqb.alloc(cpu, lab.cache, want) {
                taken.push(x.addr());
            }
            taken
        })
    };
    lab(shape, config(&[]), plain(4096), |lab| {
        let here = until_none(lab, Request { this_node: true, ..Request::default() });
        let pages = lab.slqb.pages();
        let on_node = |x: &Addr, n| pages.node_of(pages.pfn_of(*x).unwrap()) == NodeId(n);
        assert!(here.len() > 1000 && here.iter().all(|x| on_node(x, 0)));
        // Now the other node's pages, which belong to its node list.
        let there = until_none(lab, Request::default());
        assert!(there.len() > 1000 && there.iter().filter(|x| on_node(x, 1)).count() > 1000);
        lab.verify();
        let nr_slabs = lab.slqb.state(lab.cache)["node"][1]["nr_slabs"].as_u64().unwrap();
        assert!(nr_slabs > 1000, "{nr_slabs}");
        lab.free(1, &here);
        lab.free(0, &there);
        lab.verify();
        lab.empty();
    });
}

#[test]
#[should_panic(expected = "expected an object of cache")]
fn freeing_an_address_that_is_no_object_is_a_panic() {
    lab(PAIR, config(&[]), plain(256), |lab| {
        let x = lab.alloc(0, 1)[0];
        lab.free(0, &[x.plus(8)]);
    });
}

#[test]
#[should_panic(expected = "found cache")]
fn freeing_another_caches_object_is_a_panic() {
    lab(TWO_NODES, config(&[]), plain(256), |lab| {
        let x = lab.on(0, |cpu| lab.slqb.kmalloc(cpu, 64, Request::default()).unwrap().addr());
        lab.free(0, &[x]);
    });
}

#[test]
fn a_cpu_of_a_node_without_memory_shares_slabs_of_the_next_node_and_counts_twice() {
    let place = |node| Place { socket: node, core: node, l2: node, llc: node, node: NodeId(node) };
    let topology = Topology::new(vec![place(0), place(1)], vec![16 << 20, 0]);
    let machine = Native::new(topology).unwrap();
    let pages = Pages::new(&machine, PageModel::HotCold).unwrap();
    let mut slqb = Slqb::new(&pages, &config(&[])).unwrap();
    let cache = slqb.create_cache(plain(256)).unwrap();
    machine.boot(|cpu| {
        if cpu.node() == NodeId(1) {
            let objects: Vec<Object> = (0..20).map(|_| slqb.alloc(cpu, cache, Request::default()).unwrap()).collect();
            objects.into_iter().for_each(|x| slqb.free(cpu, cache, x));
        }
    });
    slqb.verify().unwrap();
    let state = slqb.state(cache);
    assert_eq!(state["nr_slabs"], 2, "not one slab per object");
    assert_eq!((&state["stat_node"][0][0], &state["stat_cpu"][1][0]), (&20.into(), &20.into()));
    assert_eq!(slqb.info(cache).live_objects, 0);
}

#[test]
fn counters_begin_again_at_a_reset_and_the_invariants_stay() {
    lab(PAIR, config(&[("freebatch", 2)]), plain(1024), |lab| {
        let objects = lab.alloc(0, 12);
        lab.free(1, &objects);
        for cpu in 0..2 {
            lab.on(cpu, |c| lab.slqb.reset_counters(c));
        }
        assert_eq!(lab.stat(Stat::SlqbAlloc), 0);
        lab.alloc(0, 1);
        assert_eq!(lab.stat(Stat::SlqbAlloc), 1);
        lab.verify();
    });
}

#[test]
fn shrink_trims_the_caller_last() {
    // Objects of cpu0 on cpu1's LIFO: cpu1's trim sends them home before cpu0 claims them in the same call.
    lab(PAIR, config(&[("freebatch", 4)]), plain(1024), |lab| {
        let objects = lab.alloc(0, 4);
        lab.free(1, &objects);
        lab.on(0, |cpu| lab.slqb.shrink(cpu, lab.cache));
        assert_eq!(lab.slqb.state(lab.cache)["nr_slabs"], 0);
        let objects = lab.alloc(0, 4);
        lab.free(1, &objects);
        lab.on(1, |cpu| lab.slqb.shrink(cpu, lab.cache));
        assert_eq!(lab.slqb.state(lab.cache)["cpu"][0]["remote_free"], 4);
        lab.verify();
    });
}

#[test]
fn destroy_leaves_foreign_objects_on_the_rlist_of_its_cpu() {
    // §10: cpu0's own rlist is flushed before cpu1's LIFO is met.
    lab(PAIR, config(&[("freebatch", 8)]), plain(1024), |lab| {
        let objects = lab.alloc(0, 4);
        lab.free(1, &objects);
        let left = lab.on(0, |cpu| lab.slqb.destroy(cpu, lab.cache));
        assert_eq!(
            left,
            Destroyed { pages_lost: 1, warnings: 1, ..Destroyed::default() },
            "a slab is left, and it is full"
        );
        let state = lab.slqb.state(lab.cache);
        assert_eq!((&state["pages_live"], &state["warnings"]), (&1.into(), &1.into()));
    });
    lab(PAIR, config(&[("freebatch", 8)]), plain(1024), |lab| {
        let objects = lab.alloc(0, 4);
        lab.free(1, &objects);
        lab.empty();
        let left = lab.on(0, |cpu| lab.slqb.destroy(cpu, lab.cache));
        assert_eq!(left, Destroyed::default(), "nothing is left after trims");
        lab.slqb.create_cache(plain(1024)).expect("the name is free again");
    });
}

#[test]
fn the_structures_of_a_cache_are_those_of_the_table() {
    lab(TWO_NODES, config(&[]), plain(64), |lab| {
        assert_eq!(lab.slqb.structure_bytes(), structure_bytes(2, 2));
    });
}
