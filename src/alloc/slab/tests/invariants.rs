//! The invariants of slab.md §20, each under its own sentence. 7 stands in `rules`, 13 in `reaping`; `verify()`, which
//! walks 1 to 5 and 12, is not asked here.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

/// Calls `check` after each step of a random mix of allocations, frees and reaper runs on 4 CPUs of 2 nodes, with the
/// objects that are live; two caches of every era, one with several slabs' worth of colours.
fn after_each_step(check: impl Fn(&mut Slab<Sim>, CacheId, &[Addr])) {
    for era in Config::ERAS {
        for size in [192, 700] {
            let machine = machine(4, 2, 64);
            let pages = Pages::new(&machine, PageModel::default()).unwrap();
            let config = Config { merge: false, ..Config::era(era).unwrap() };
            let mut slab = Slab::new(&pages, &config).unwrap();
            let cache = slab.create_cache(CacheSpec::new("test", size)).unwrap();
            let (mut live, mut random) = (Vec::new(), 12345u64);
            for step in 0..160 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (cpu, n) = ((random >> 33) as u16 % 4, (random >> 40) as usize % 70);
                match (random >> 60, step < 60) {
                    (0, _) => on(&machine, cpu, |c| slab.trim(c)),
                    (1..=9, true) | (1..=6, false) => live.extend(allocate(&slab, cpu, cache, n)),
                    _ => {
                        let gone: Vec<Addr> =
                            (0..n.min(live.len())).map(|i| live.swap_remove(i * 7 % live.len())).collect();
                        release(&slab, cpu, cache, &gone);
                    }
                }
                check(&mut slab, cache, &live);
            }
        }
    }
}

fn number(v: &Value) -> u64 {
    v.as_u64().unwrap_or_else(|| panic!("{v} is no number"))
}
fn sum(rows: &Value, key: &str) -> u64 {
    rows.as_array().unwrap().iter().map(|r| number(&r[key])).sum()
}
/// Objects of a slab.
fn num(state: &Value) -> u64 {
    number(&state["geometry"]["objs_per_slab"])
}
/// Every slab of a node with the name of its list.
fn slabs(slab: &mut Slab<Sim>, cache: CacheId, node: usize) -> Vec<(&'static str, super::super::header::Header)> {
    let (pages, policy) = (slab.pages, slab.policy);
    let cache = &mut slab.caches[cache.0 as usize];
    let geometry = cache.geometry;
    let headers =
        super::super::header::Headers { pages, management: policy.management, geometry: &geometry, private: None };
    let lists = cache.nodes[node].lists.get_mut();
    let kinds = [("full", &lists.full), ("partial", &lists.partial), ("free", &lists.free)];
    kinds.into_iter().flat_map(|(kind, list)| list.iter(&headers).map(move |s| (kind, s)).collect::<Vec<_>>()).collect()
}
/// Every array with its limit, the node whose objects it may hold, and what it holds.
fn arrays(slab: &mut Slab<Sim>, cache: CacheId) -> Vec<(usize, NodeId, Vec<Addr>)> {
    let topology = slab.pages.machine().topology();
    let cache = &mut slab.caches[cache.0 as usize];
    let mut all = Vec::new();
    let mut add = |a: &array::Array, node| all.push((a.limit, node, a.entries().to_vec()));
    cache.cpus.iter_mut().for_each(|(cpu, c)| add(&c.array, topology.node_of(cpu)));
    for (n, node) in cache.nodes.iter_mut().enumerate() {
        node.lists.get_mut().shared.iter().for_each(|a| add(a, NodeId(n as u16)));
        for (home, alien) in node.alien.iter_mut().enumerate() {
            assert!(alien.is_none() || home != n, "no alien array for the node itself");
            alien.iter_mut().for_each(|a| add(a.get_mut(), NodeId(home as u16)));
        }
    }
    all
}

#[test]
fn for_each_node_free_objects_is_the_sum_of_what_partial_and_free_slabs_have_left() {
    after_each_step(|slab, cache, _| {
        let state = slab.state(cache);
        for node in state["node"].as_array().unwrap() {
            let partial = node["partial_active"].as_array().unwrap();
            assert_eq!(partial.len() as u64, number(&node["partial_slabs"]));
            let left: u64 = partial.iter().map(|used| num(&state) - number(used)).sum();
            assert_eq!(number(&node["free_objects"]), left + num(&state) * number(&node["free_slabs"]));
        }
    });
}

#[test]
fn full_slabs_are_full_partial_ones_partial_free_ones_free_and_each_is_on_one_list_of_its_own_node() {
    after_each_step(|slab, cache, _| {
        let num = slab.caches[cache.0 as usize].geometry.num;
        let mut seen = BTreeSet::new();
        for node in 0..2 {
            for (kind, s) in slabs(slab, cache, node) {
                let headers = slab.headers(&slab.caches[cache.0 as usize]);
                let right = match kind {
                    "full" => num..=num,
                    "partial" => 1..=num - 1,
                    _ => 0..=0,
                };
                assert!(right.contains(&headers.inuse(s)), "{kind}: {}", headers.inuse(s));
                assert_eq!(headers.node(s), NodeId(node as u16));
                assert!(seen.insert(s), "on two lists");
            }
        }
    });
}

#[test]
fn objects_outside_slabs_are_live_or_in_an_array() {
    after_each_step(|slab, cache, live| {
        let parked: usize = arrays(slab, cache).iter().map(|(_, _, held)| held.len()).sum();
        let state = slab.state(cache);
        let (total, active) = (number(&state["total_objects"]), number(&state["active_slabinfo"]));
        assert_eq!(total - active, sum(&state["node"], "free_objects"));
        assert_eq!(active, (live.len() + parked) as u64);
        assert_eq!(number(&state["active_exact"]), live.len() as u64);
    });
}

#[test]
fn every_array_keeps_its_limit_and_the_objects_of_one_node() {
    after_each_step(|slab, cache, _| {
        for (limit, node, held) in arrays(slab, cache) {
            assert!(held.len() <= limit, "{} of {limit}", held.len());
            let node_of = |a: &Addr| slab.pages.node_of(slab.pages.pfn_of(*a).unwrap());
            assert!(held.iter().all(|a| node_of(a) == node));
        }
    });
}

#[test]
fn no_object_is_in_two_places_and_each_lies_on_a_boundary_inside_its_slab() {
    after_each_step(|slab, cache, live| {
        let mut all: Vec<Addr> = arrays(slab, cache).into_iter().flat_map(|(_, _, held)| held).collect();
        all.extend(live);
        for node in 0..2 {
            for (_, s) in slabs(slab, cache, node) {
                let own = &slab.caches[cache.0 as usize];
                let headers = slab.headers(own);
                let free = headers.free_indexes(s);
                all.extend(free.iter().map(|i| headers.first(s).plus(u64::from(*i) * own.geometry.slot)));
            }
        }
        let total = number(&slab.state(cache)["total_objects"]) as usize;
        assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (total, total));
        let g = slab.caches[cache.0 as usize].geometry;
        for x in all {
            let p = slab.placement(cache, x);
            let from_start = x.0 - slab.pages.addr_of(p.slab).0;
            assert_eq!(from_start, p.offset + p.index * g.slot);
            assert!(p.index < g.num && from_start + g.slot <= g.order.bytes() && x.0.is_multiple_of(g.align));
        }
    });
}

/// Frees 900 objects of 128 bytes on the CPU that took them, one by one; `check` sees free objects, free slabs and limit
/// before and after each free that gave objects back to slabs.
fn each_flush(era: &str, check: impl Fn([u64; 3], [u64; 3])) {
    with_cache_of(era, 1, 1, 128, |slab, cache| {
        let keys = ["node.0.free_objects", "node.0.free_slabs", "node.0.free_limit"];
        let look = |slab: &mut Slab<Sim>| <[u64; 3]>::try_from(see(slab, cache, &keys)).unwrap();
        let objects = allocate(slab, 0, cache, 900);
        let (mut before, mut flushes) = (look(slab), 0u64);
        for x in &objects {
            release(slab, 0, cache, &[*x]);
            let (after, misses) = (look(slab), see(slab, cache, &["stat.freemiss"])[0]);
            if misses > flushes {
                flushes = misses;
                check(before, after);
            }
            before = after;
        }
        assert!(flushes > 10);
    });
}

#[test]
fn after_a_free_block_6_1_keeps_free_limit_or_has_no_free_slab() {
    each_flush("6.1", |_, [objects, slabs, limit]| assert!(objects <= limit || slabs == 0, "{objects} of {limit}"));
}

#[test]
fn in_2_6_24_a_slab_enters_the_free_list_only_at_or_below_free_limit() {
    // What goes on to be freed after a slab entered makes at most a batch more.
    each_flush("2.6.24", |[_, before, _], [objects, slabs, limit]| {
        assert!(slabs <= before || objects <= limit + 60, "{objects} of {limit}");
        assert!(slabs * 30 <= limit, "{slabs} slabs of 30 are more than {limit} free objects");
    });
}

#[test]
fn hits_and_misses_are_the_local_calls_and_listallocs_what_refills_took_from_slabs() {
    for era in Config::ERAS {
        with_cache_of(era, 2, 1, 256, |slab, cache| {
            let first = allocate(slab, 0, cache, 500);
            release(slab, 1, cache, &first[..450]);
            let second = allocate(slab, 1, cache, 300);
            let keys = ["stat.allochit", "stat.allocmiss", "stat.freehit", "stat.freemiss"];
            let [ah, am, fh, fm] = <[u64; 4]>::try_from(see(slab, cache, &keys)).unwrap();
            assert_eq!((ah + am, fh + fm), (800, 450), "{era}");
            // Objects of slabs that are outside now, and those that flushes have put back.
            let active = see(slab, cache, &["active_slabinfo", "stat.num_allocations"]);
            assert!(active[1] >= active[0], "{era}");
            let taken = active[1];
            release(slab, 1, cache, &second[..1]);
            allocate(slab, 1, cache, 1);
            assert_eq!(see(slab, cache, &["stat.num_allocations"]), [taken], "{era}: a hit takes from no slab");
        });
    }
}

#[test]
fn a_flush_moves_a_batch_or_what_shared_has_room_for_and_keeps_the_newest_in_order() {
    for era in Config::ERAS {
        with_cache_of(era, 2, 1, 128, |slab, cache| {
            let entries =
                |slab: &mut Slab<Sim>| slab.caches[cache.0 as usize].cpus.get_mut(CpuId(1)).array.entries().to_vec();
            let objects = allocate(slab, 0, cache, 700);
            // Shared holds 480: eight flushes of 60, then it has no room and 60 go to the slabs.
            for (n, x) in objects.iter().enumerate() {
                let before = entries(slab);
                let shared = see(slab, cache, &["node.0.shared_avail"])[0] as usize;
                release(slab, 1, cache, &[*x]);
                let after = entries(slab);
                let moved = match before.len() {
                    120 => (480 - shared).min(60),
                    _ => 0,
                };
                let gone = if before.len() == 120 && moved == 0 { 60 } else { moved };
                assert_eq!(after[..], [&before[gone..], &[*x]].concat()[..], "{era}, free {n}");
                assert_eq!(see(slab, cache, &["node.0.shared_avail"])[0] as usize, shared + moved, "{era}, free {n}");
            }
        });
    }
}

#[test]
fn a_refill_takes_at_most_a_batch_sixteen_of_an_untouched_array_and_grows_one_slab() {
    for era in Config::ERAS {
        with_cache_of(era, 2, 1, 64, |slab, cache| {
            let keys = ["stat.num_allocations", "stat.grown", "cpu.0.touched"];
            for n in 0..400 {
                let before = see(slab, cache, &keys);
                allocate(slab, 0, cache, 1);
                let after = see(slab, cache, &keys);
                let most = if before[2] == 0 { 16 } else { 60 };
                assert!(after[0] - before[0] <= most && after[1] - before[1] <= 1, "{era}, allocation {n}");
            }
        });
    }
}

#[test]
fn after_a_shrink_without_live_objects_nothing_is_left() {
    for era in Config::ERAS {
        with_cache_of(era, 4, 2, 192, |slab, cache| {
            for cpu in 0..4 {
                let objects = allocate(slab, cpu, cache, 150);
                release(slab, (cpu + 1) % 4, cache, &objects);
            }
            shrink(slab, cache);
            assert_eq!(
                see(slab, cache, &["nr_slabs", "node.0.free_objects", "node.1.free_objects"]),
                [0, 0, 0],
                "{era}"
            );
            assert!(arrays(slab, cache).iter().all(|(_, _, held)| held.is_empty()), "{era}");
        });
    }
}

#[test]
fn management_objects_and_rest_are_the_slab_and_colours_fit_the_rest() {
    for era in Config::ERAS {
        for letters in ["", "FZPU"] {
            let config = Config { debug: letters.into(), ..Config::era(era).unwrap() };
            for size in (8..9000).step_by(12) {
                for align in [0, 8, 64, 512] {
                    let spec = CacheSpec {
                        align,
                        ctor: size % 5 == 0,
                        hwcache_align: size % 7 == 0,
                        ..CacheSpec::new("t", size)
                    };
                    let g = Geometry::new(&spec, &config, &Shape::of_machine(1, 1 << 30)).unwrap();
                    assert_eq!(
                        g.on_slab_bytes() + g.num * g.slot + g.left,
                        g.order.bytes(),
                        "{era} {letters} {spec:?}"
                    );
                    assert!(g.colour * g.colour_off <= g.left, "{era} {letters} {spec:?}");
                    assert!(g.slot >= g.object + g.checks.bytes() && g.slot.is_multiple_of(g.align));
                }
            }
        }
    }
}

#[test]
fn slabs_grown_and_not_destroyed_are_there() {
    for era in Config::ERAS {
        let machine = machine(1, 1, 64);
        let pages = Pages::new(&machine, PageModel::default()).unwrap();
        let config = Config { metadata: Metadata::Free, merge: false, ..Config::era(era).unwrap() };
        let mut slab = Slab::new(&pages, &config).unwrap();
        // Order 1: 11 objects of 704 bytes.
        let cache = slab.create_cache(CacheSpec::new("test", 700)).unwrap();
        let mut destroyed = 0;
        for round in 0..6 {
            let objects = allocate(&slab, 0, cache, 300 + 40 * round);
            let before = see(&mut slab, cache, &["nr_slabs"])[0];
            release(&slab, 0, cache, &objects);
            let (by_frees, now) = (before, see(&mut slab, cache, &["nr_slabs"])[0]);
            destroyed += by_frees - now;
            on(&machine, 0, |c| slab.trim(c));
            if round % 2 == 1 {
                let before = see(&mut slab, cache, &["nr_slabs"])[0];
                shrink(&slab, cache);
                destroyed += before - see(&mut slab, cache, &["nr_slabs"])[0];
            }
            let [grown, reaped, slabs] =
                <[u64; 3]>::try_from(see(&mut slab, cache, &["stat.grown", "stat.reaped", "nr_slabs"])).unwrap();
            assert!(destroyed > 0, "{era}: frees trim");
            assert_eq!(grown - destroyed - reaped, slabs, "{era}, round {round}");
            assert_eq!(slab.pages.lent(), 2 * slabs, "{era}: two pages each");
        }
    }
}
