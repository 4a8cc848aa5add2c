//! One rule, one test.

use std::collections::BTreeSet;

use super::*;

#[test]
fn a_named_node_serves_from_its_own_slabs() {
    with_cache(4, 2, 128, |slab, cache| {
        let want = Request { node: Some(NodeId(1)), ..Request::default() };
        let objects: Vec<Addr> =
            on(slab.pages.machine(), 0, |c| (0..31).map(|_| slab.alloc(c, cache, want).unwrap().addr()).collect());
        assert!(objects.iter().all(|o| slab.pages.node_of(slab.pages.pfn_of(*o).unwrap()) == NodeId(1)));
        let keys = ["stat.node_allocs", "stat.grown", "stat.allocmiss", "node.1.free_objects", "node.0.total_slabs"];
        assert_eq!(see(slab, cache, &keys), [31, 2, 0, 29, 0]);
    });
}

#[test]
fn the_newest_freed_object_is_the_next_one_allocated() {
    with_cache(2, 1, 200, |slab, cache| {
        let objects = allocate(slab, 1, cache, 50);
        for o in &objects[10..20] {
            release(slab, 1, cache, &[*o]);
            assert_eq!(allocate(slab, 1, cache, 1), [*o]);
        }
    });
}

#[test]
fn colours_go_round_and_failed_growth_uses_one_up() {
    with_cache(1, 1, 192, |slab, cache| {
        let objects = allocate(slab, 0, cache, 61);
        let offsets: BTreeSet<(crate::page::Pfn, u64)> =
            objects.iter().map(|o| slab.placement(cache, *o)).map(|p| (p.slab, p.offset)).collect();
        let mut offsets: Vec<u64> = offsets.into_iter().map(|(_, o)| o).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, [128, 128, 192, 192]);
    });
    // A machine too small: the last attempt fails, its colour is gone.
    let machine = machine(1, 1, 8);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let mut slab = Slab::new(&pages, &config()).unwrap();
    let cache = slab.create_cache(CacheSpec::new("test", 192)).unwrap();
    let all = on(&machine, 0, |c| {
        let next = || slab.alloc(c, cache, Request { atomic: true, ..Request::default() });
        std::iter::from_fn(next).map(|o| o.addr()).collect::<Vec<_>>()
    });
    let grown = see(&mut slab, cache, &["stat.grown", "node.0.colour_next"]);
    assert_eq!(all.len() as u64, grown[0] * 20);
    assert_eq!(grown[1], (grown[0] + 1) % 2);
}

#[test]
fn a_full_node_falls_back_to_another_unless_this_node_only() {
    let machine = machine(2, 2, 8);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let mut slab = Slab::new(&pages, &config()).unwrap();
    let cache = slab.create_cache(CacheSpec::new("test", 4096)).unwrap();
    let node_of = |o: Addr| pages.node_of(pages.pfn_of(o).unwrap());
    let only = Request { this_node: true, ..Request::default() };
    let local: Vec<Addr> =
        on(&machine, 0, |c| std::iter::from_fn(|| slab.alloc(c, cache, only)).map(|o| o.addr()).collect());
    assert!(local.len() > 1000 && local.iter().all(|o| node_of(*o) == NodeId(0)));
    let more = allocate(&slab, 0, cache, 100);
    assert!(more.iter().all(|o| node_of(*o) == NodeId(1)));
    slab.verify().unwrap();
    release(&slab, 0, cache, &local);
    release(&slab, 0, cache, &more);
    shrink(&slab, cache);
    assert_eq!(see(&mut slab, cache, &["nr_slabs"]), [0]);
}

#[test]
fn memory_shortage_takes_back_what_other_caches_hold() {
    let machine = machine(2, 1, 8);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let mut slab = Slab::new(&pages, &config()).unwrap();
    let hoard = slab.create_cache(CacheSpec::new("hoard", 4096)).unwrap();
    let cache = slab.create_cache(CacheSpec::new("test", 4096)).unwrap();
    let fill = |slab: &Slab<Sim>, cache, want| -> Vec<Addr> {
        on(&machine, 0, |c| std::iter::from_fn(|| slab.alloc(c, cache, want)).map(|o| o.addr()).collect())
    };
    let most = fill(&slab, hoard, Request::default());
    release(&slab, 0, hoard, &most);
    let kept = see(&mut slab, hoard, &["nr_slabs"])[0] as usize;
    assert!(kept > 100, "{kept} slabs kept in arrays and free lists");
    let again = fill(&slab, cache, Request::default());
    assert_eq!(see(&mut slab, hoard, &["nr_slabs"]), [0]);
    assert!(again.len() + 40 > most.len(), "{} of {}", again.len(), most.len());
}

#[test]
fn own_metadata_lives_in_the_general_caches() {
    with_cache(2, 1, 512, |slab, _| {
        let sizes = |slab: &mut Slab<Sim>| -> Vec<u64> {
            [128, 256, 512, 1024, 2048, 4096].map(|s| slab.report_info(general(s).unwrap()).live_objects).into()
        };
        let before = sizes(slab);
        let off_slab = slab.create_cache(CacheSpec::new("one", 512)).unwrap();
        let after = sizes(slab);
        let grew: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
        assert_eq!(grew, [0, 0, 2, 0, 1, 0], "two arrays of 456 bytes, one shared of 1752");
        let objects = allocate(slab, 0, off_slab, 17);
        assert_eq!(sizes(slab)[0] - after[0], 3, "a header of 80 bytes per slab");
        release(slab, 0, off_slab, &objects);
        shrink(slab, off_slab);
        assert_eq!(sizes(slab), after);
    });
}

#[test]
fn a_destroyed_cache_gives_back_its_arrays_and_its_name_unless_objects_remain() {
    with_cache(4, 2, 512, |slab, _| {
        let held = |slab: &mut Slab<Sim>| -> Vec<u64> {
            // From size-256 on: the smaller ones hold headers of slabs that the arrays leave behind.
            (8..2 * config().policy().kmalloc.sizes.len()).map(|i| slab.report_info(i).live_objects).collect()
        };
        let before = held(slab);
        let cache = slab.create_cache(CacheSpec::new("short", 64)).unwrap();
        let objects = allocate(slab, 0, cache, 100);
        let destroy = |slab: &Slab<Sim>| on(slab.pages.machine(), 1, |c| slab.destroy(c, cache));
        assert_eq!(destroy(slab), Destroyed { pages_lost: 2, warnings: 1, ..Destroyed::default() });
        assert!(slab.create_cache(CacheSpec::new("short", 64)).is_err());
        release(slab, 3, cache, &objects);
        assert_eq!(destroy(slab), Destroyed::default());
        assert_eq!(destroy(slab), Destroyed::default(), "once more changes nothing");
        assert_eq!(held(slab), before);
        assert!(!slab.slabinfo().unwrap().contains("short"));
        slab.create_cache(CacheSpec::new("short", 64)).unwrap();
    });
}

#[test]
fn free_metadata_touches_no_general_cache() {
    let machine = machine(4, 2, 64);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let config = Config { metadata: Metadata::Free, ..config() };
    let mut slab = Slab::new(&pages, &config).unwrap();
    let cache = slab.create_cache(CacheSpec::new("test", 1024)).unwrap();
    let objects = allocate(&slab, 0, cache, 1000);
    release(&slab, 3, cache, &objects[..700]);
    slab.verify().unwrap();
    let pages_in_use: u64 = (0..slab.cache_count()).filter_map(|i| slab.report_info(i).pages).sum();
    assert_eq!(slab.report_info(cache.0 as usize).pages, Some(pages_in_use));
    release(&slab, 1, cache, &objects[700..]);
    shrink(&slab, cache);
    assert_eq!(see(&mut slab, cache, &["nr_slabs", "total_objects"]), [0, 0]);
}

#[test]
fn tunables_apply_to_every_cache() {
    let machine = machine(2, 1, 64);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let config = Config { limit: Some(10), batchcount: Some(4), sharedfactor: Some(2), ..config() };
    let mut slab = Slab::new(&pages, &config).unwrap();
    let cache = slab.create_cache(CacheSpec::new("test", 64)).unwrap();
    let objects = allocate(&slab, 0, cache, 100);
    release(&slab, 0, cache, &objects);
    let keys = ["cpu.0.limit", "cpu.0.batchcount", "node.0.shared_limit", "node.0.shared_avail", "node.0.free_limit"];
    assert_eq!(see(&mut slab, cache, &keys), [10, 4, 8, 8, 3 * 4 + 59]);
    // One object at a time: the arrays of the smallest possible cache.
    let config = Config { limit: Some(1), ..self::config() };
    let mut slab = Slab::new(&pages, &config).unwrap();
    let cache = slab.create_cache(CacheSpec::new("test", 64)).unwrap();
    let objects = allocate(&slab, 0, cache, 100);
    release(&slab, 1, cache, &objects);
    assert_eq!(see(&mut slab, cache, &["cpu.1.avail", "node.0.shared_avail"]), [1, 8]);
}

#[test]
fn an_order_is_the_most_the_search_may_reach() {
    let machine = machine(2, 1, 64);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    for (order, got) in [(0, 0), (1, 1), (3, 1)] {
        let mut slab = Slab::new(&pages, &Config { order: Some(order), ..config() }).unwrap();
        let cache = slab.create_cache(CacheSpec::new("test", 700)).unwrap();
        assert_eq!(slab.info(cache).order, Some(got), "order = {order}");
    }
}

#[test]
fn a_duplicate_name_and_an_impossible_size_are_refused() {
    with_cache(1, 1, 64, |slab, _| {
        for (spec, part) in [
            (CacheSpec::new("test", 64), "cache.name = \"test\""),
            (CacheSpec::new("size-64", 64), "cache.name"),
            (CacheSpec::new("small", 7), "cache.size = 7"),
            (CacheSpec::new("large", (4 << 20) + 1), "cache.size"),
            (CacheSpec { align: 24, ..CacheSpec::new("odd", 64) }, "cache.align = 24"),
        ] {
            let e = slab.create_cache(spec).unwrap_err().to_string();
            assert!(e.contains(part), "{e}");
        }
    });
}

#[test]
#[should_panic(expected = "cache \"test\": free of 0x")]
fn freeing_an_address_inside_an_object_is_a_panic_that_names_it() {
    with_cache(1, 1, 64, |slab, cache| {
        let objects = allocate(slab, 0, cache, 1);
        release(slab, 0, cache, &[objects[0].plus(8)]);
        // Without debug assertions it is found here, on its way back to its slab.
        shrink(slab, cache);
    });
}

#[test]
#[should_panic(expected = "of cache \"size-64\"")]
fn freeing_an_object_of_another_cache_is_a_panic_that_names_both() {
    with_cache(4, 2, 64, |slab, cache| {
        let stray = on(slab.pages.machine(), 0, |c| slab.kmalloc(c, 64, Request::default()).unwrap().addr());
        release(slab, 0, cache, &[stray]);
    });
}

#[test]
fn kmalloc_takes_the_smallest_general_cache_and_kfree_finds_it() {
    with_cache(2, 1, 64, |slab, _| {
        for (bytes, size) in [(1, 32), (32, 32), (33, 64), (129, 192), (193, 256), (5000, 8192), (1 << 20, 1 << 20)] {
            let live = |slab: &mut Slab<Sim>| slab.report_info(general(size).unwrap()).live_objects;
            let before = live(slab);
            let addr = on(slab.pages.machine(), 1, |c| slab.kmalloc(c, bytes, Request::default()).unwrap().addr());
            assert_eq!(live(slab), before + 1, "{bytes} bytes come from size-{size}");
            on(slab.pages.machine(), 0, |c| slab.kfree(c, Object::at(addr)));
            assert_eq!(live(slab), before);
        }
        on(slab.pages.machine(), 0, |c| {
            assert!(slab.kmalloc(c, (4 << 20) + 1, Request::default()).is_none());
            let nothing = slab.kmalloc(c, 0, Request::default()).unwrap();
            assert_eq!(nothing.addr(), ZERO_SIZE);
            slab.kfree(c, nothing);
        });
    });
}

#[test]
fn zeroed_objects_are_zero() {
    with_cache(1, 1, 64, |slab, cache| {
        let object = allocate(slab, 0, cache, 1)[0];
        slab.pages.arena().fill(object, 64, 0xff);
        release(slab, 0, cache, &[object]);
        let zero = Request { zero: true, ..Request::default() };
        let again = on(slab.pages.machine(), 0, |c| slab.alloc(c, cache, zero).unwrap().addr());
        assert_eq!(again, object);
        assert!((0..8).all(|i| slab.pages.arena().peek(again.plus(8 * i)) == 0));
    });
}

#[test]
fn misses_cost_one_lock_per_batch() {
    let machine = machine(1, 1, 64);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let slab_config = Config { metadata: Metadata::Free, ..config() };
    let mut slab = Slab::new(&pages, &slab_config).unwrap();
    let cache = slab.create_cache(CacheSpec::new("test", 128)).unwrap();
    let objects = allocate(&slab, 0, cache, 3000);
    release(&slab, 0, cache, &objects);
    on(&machine, 0, |c| machine.reset_report(c));
    let objects = allocate(&slab, 0, cache, 450);
    release(&slab, 0, cache, &objects);
    let misses: u64 = see(&mut slab, cache, &["stat.freemiss"])[0];
    drop(slab);
    drop(pages);
    let mut machine = machine;
    let report = machine.report().locks;
    let taken = report.iter().find(|r| r.class == "list_lock").unwrap().acquired;
    // 120 hits, then refills of up to 60; as many flushes at least: a few locks for 900 operations.
    assert!((10..60).contains(&taken), "{taken} locks, {misses} flushes in all");
}

#[test]
fn verify_names_what_is_broken() {
    with_cache(2, 1, 64, |slab, cache| {
        let object = allocate(slab, 0, cache, 1)[0];
        let head = slab.pages.pfn_of(object).unwrap();
        let header = slab.pages.addr_of(head);
        let arena = slab.pages.arena();
        let broken = |slab: &mut Slab<Sim>, word: u64, value: u64| {
            let at = header.plus(8 * word);
            let good = arena.peek(at);
            arena.poke(at, value);
            let found = slab.verify().unwrap_err().to_string();
            arena.poke(at, good);
            found
        };
        // Words of a header: 3 object 0, 4 inuse and first free, 5 node; 6 + i/2 the chain.
        assert!(broken(slab, 3, object.0 + 8).contains("first object"));
        assert!(
            broken(slab, 4, 15 | 16 << 32).contains("15 objects") || broken(slab, 4, 15 | 16 << 32).contains("≠ 59")
        );
        assert!(broken(slab, 5, 1).contains("slab of node 1"));
        assert!(broken(slab, 6 + 10, 21 | 20 << 32).contains("twice"));
        slab.verify().unwrap();
    });
}

#[test]
fn kmalloc_of_a_kind_takes_from_the_caches_of_that_kind() {
    for (era, kmalloc, names) in [
        ("2.6.24", "dma", vec![(Kind::Normal, "size-128"), (Kind::Dma, "size-128(DMA)")]),
        (
            "6.1",
            "rcl,dma,cg",
            vec![
                (Kind::Normal, "kmalloc-128"),
                (Kind::Reclaimable, "kmalloc-rcl-128"),
                (Kind::Dma, "dma-kmalloc-128"),
                (Kind::Accounted, "kmalloc-cg-128"),
            ],
        ),
    ] {
        let machine = machine(2, 1, 64);
        let pages = Pages::new(&machine, PageModel::default()).unwrap();
        let config = Config { kmalloc: kmalloc.into(), metadata: Metadata::Free, ..Config::era(era).unwrap() };
        let mut slab = Slab::new(&pages, &config).unwrap();
        assert_eq!(slab.kmalloc_kinds(), names.iter().map(|(kind, _)| *kind).collect::<Vec<_>>());
        for (kind, name) in names {
            let want = Request { kind, ..Request::default() };
            let object = on(&machine, 0, |c| slab.kmalloc(c, 100, want).expect("memory").addr());
            let live: Vec<CacheInfo> = (0..slab.cache_count() as u32).map(|i| slab.info(CacheId(i))).collect();
            let live: Vec<&str> = live.iter().filter(|i| i.live_objects > 0).map(|i| i.name.as_str()).collect();
            assert_eq!(live, [name], "{era}");
            on(&machine, 1, |c| slab.kfree(c, Object::at(object)));
        }
        // A cache that is reclaimed on its own shares slabs with reclaimable kmalloc at most; nobody shares with the others.
        let twin = |reclaim_account| CacheSpec { reclaim_account, ..CacheSpec::new("twin", 128) };
        for reclaim_account in [false, true] {
            let id = slab.create_cache(twin(reclaim_account)).unwrap_or(CacheId(u32::MAX));
            let kind = slab.caches.get(id.0 as usize).map(|c| c.kind);
            assert!(kind.is_none_or(|k| (k == Kind::Reclaimable) == (reclaim_account && era == "6.1")), "{kind:?}");
        }
        slab.verify().unwrap();
    }
}

#[test]
fn without_alien_arrays_an_object_of_another_node_goes_straight_home() {
    for era in Config::ERAS {
        let machine = machine(4, 2, 64);
        let mut pages = Pages::new(&machine, PageModel::default()).unwrap();
        {
            let config = Config { aliens: false, merge: false, ..Config::era(era).unwrap() };
            let mut slab = Slab::new(&pages, &config).unwrap();
            let cache = slab.create_cache(CacheSpec::new("test", 128)).unwrap();
            let objects = allocate(&slab, 2, cache, 13);
            let free = see(&mut slab, cache, &["node.1.free_objects"])[0];
            release(&slab, 0, cache, &objects);
            let keys = ["node.1.free_objects", "node.1.shared_avail", "stat.node_frees", "stat.node_overflow"];
            assert_eq!(see(&mut slab, cache, &keys), [free + 13, 0, 13, 0], "{era}");
            assert_eq!(slab.state(cache)["node"][0]["alien_avail"], serde_json::json!([-1, -1]), "{era}");
            on(&machine, 0, |c| slab.trim(c));
            slab.tune(cache, Tuning { limit: 10, batchcount: 5, sharedfactor: 1 }).unwrap();
            assert_eq!(on(&machine, 0, |c| slab.destroy(c, cache)), Destroyed::default());
            slab.verify().unwrap();
        }
        pages.verify().unwrap();
    }
}
