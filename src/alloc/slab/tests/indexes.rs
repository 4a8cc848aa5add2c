//! What is different in 6.1: its side of the examples E5 to E7, E10 and E11 of slab.md §21, and single rules.

use super::*;

fn with_6_1(cpus: u64, nodes: u64, size: u64, test: impl FnOnce(&mut Slab<Sim>, CacheId)) {
    with_cache_of("6.1", cpus, nodes, size, test);
}

#[test]
fn a_cold_cache_takes_sixteen_of_a_slab_as_in_example_e5() {
    with_6_1(2, 1, 256, |slab, cache| {
        let all = allocate(slab, 0, cache, 100);
        let keys = ["nr_slabs", "total_objects", "active_slabinfo", "cpu.0.avail", "stat.allochit", "stat.allocmiss"];
        assert_eq!(see(slab, cache, &keys), [7, 112, 112, 12, 93, 7]);
        let first: Vec<u64> = all.iter().take(3).map(|a| slab.placement(cache, *a).index).collect();
        assert_eq!(first, [15, 14, 13]);
        release(slab, 0, cache, &all);
        assert_eq!(see(slab, cache, &["cpu.0.avail", "stat.freehit"]), [112, 100]);
    });
}

#[test]
fn a_refill_that_finds_nothing_takes_from_the_new_slab_as_in_example_e6() {
    with_6_1(2, 1, 64, |slab, cache| {
        let keys = ["cpu.0.avail", "node.0.free_objects"];
        for (objects, expected) in [(1, [15, 48]), (16, [47, 0]), (48, [59, 4])] {
            allocate(slab, 0, cache, objects);
            assert_eq!(see(slab, cache, &keys), expected);
        }
        allocate(slab, 0, cache, 135);
        let keys = ["nr_slabs", "active_slabinfo", "stat.allochit", "stat.allocmiss", "cpu.0.avail"];
        assert_eq!(see(slab, cache, &keys), [4, 252, 193, 7, 52]);
    });
}

#[test]
fn the_coldest_slabs_go_when_there_are_too_many_free_objects_as_in_example_e7() {
    with_6_1(8, 1, 128, |slab, cache| {
        let objects = allocate(slab, 0, cache, 3000);
        assert_eq!(see(slab, cache, &["nr_slabs", "stat.allocmiss", "cpu.0.avail"]), [94, 95, 8]);
        release(slab, 1, cache, &objects);
        let keys = ["node.0.free_objects", "node.0.free_limit", "nr_slabs", "stat.freemiss", "stat.max_freeable"];
        assert_eq!(see(slab, cache, &keys), [544, 572, 36, 48, 17]);
    });
}

#[test]
fn one_cpu_flushes_straight_to_its_slabs_as_in_example_e10() {
    with_6_1(1, 1, 64, |slab, cache| {
        let objects = allocate(slab, 0, cache, 300);
        let avail = see(slab, cache, &["cpu.0.avail"])[0];
        let first_miss = (120 - avail + 1) as usize;
        release(slab, 0, cache, &objects[..first_miss]);
        assert_eq!(see(slab, cache, &["stat.freemiss", "cpu.0.avail"]), [1, 61]);
    });
}

#[test]
fn the_thirteenth_remote_free_drains_the_alien_array_as_in_example_e11() {
    with_6_1(4, 2, 128, |slab, cache| {
        let objects = allocate(slab, 2, cache, 13);
        let keys = ["node.0.alien_avail.1", "stat.node_overflow", "node.1.shared_avail", "node.1.free_objects"];
        release(slab, 0, cache, &objects[..12]);
        assert_eq!(see(slab, cache, &keys), [12, 0, 0, 16]);
        release(slab, 0, cache, &objects[12..]);
        assert_eq!(see(slab, cache, &keys), [1, 1, 12, 16]);
        assert_eq!(see(slab, cache, &["stat.node_frees", "stat.freehit", "stat.freemiss"]), [13, 0, 0]);
    });
}

#[test]
fn indexes_live_in_a_free_object_that_is_handed_out_last() {
    with_6_1(1, 1, 512, |slab, cache| {
        let objects = allocate(slab, 0, cache, 8);
        let full = |slab: &mut Slab<Sim>| see(slab, cache, &["node.0.full_slabs", "node.0.partial_slabs"]);
        assert_eq!(full(slab), [1, 0]);
        // The first object back in the full slab becomes the home of the indexes: the last one again.
        release(slab, 0, cache, &[objects[3], objects[5]]);
        on(slab.pages.machine(), 0, |c| slab.drain_cpu(c, &slab.caches[cache.0 as usize]));
        assert_eq!(full(slab), [0, 1]);
        let (_, index) = slab.locate(&slab.caches[cache.0 as usize], objects[3]).unwrap();
        let arena = slab.pages.arena();
        assert_eq!(arena.peek(objects[3]) >> 56, index, "its own index stands in the last entry");
        let again = allocate(slab, 0, cache, 2);
        // A refill takes both, and the array gives the last one first.
        assert_eq!(again, [objects[3], objects[5]]);
    });
}

#[test]
fn the_first_colour_is_one_and_a_failed_growth_uses_none() {
    let machine = machine(1, 1, 8);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let mut slab = Slab::new(&pages, &Config { merge: false, ..Config::era("6.1").unwrap() }).unwrap();
    let cache = slab.create_cache(CacheSpec::new("test", 700)).unwrap();
    let first = allocate(&slab, 0, cache, 1)[0];
    assert_eq!(slab.placement(cache, first).offset, 64);
    let all = on(&machine, 0, |c| {
        let next = || slab.alloc(c, cache, Request { atomic: true, ..Request::default() });
        std::iter::from_fn(next).count()
    });
    assert!(all > 1000);
    let grown = see(&mut slab, cache, &["stat.grown", "node.0.colour_next"]);
    assert_eq!(grown[1], grown[0] % slab.caches[cache.0 as usize].geometry.colour);
}

#[test]
fn caches_of_equal_slots_share_their_slabs_until_the_last_is_destroyed() {
    let machine = machine(1, 1, 64);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let mut slab = Slab::new(&pages, &Config::era("6.1").unwrap()).unwrap();
    let a = slab.create_cache(CacheSpec::new("a", 100)).unwrap();
    let ctor = slab.create_cache(CacheSpec { ctor: true, ..CacheSpec::new("ctor", 100) }).unwrap();
    let b = slab.create_cache(CacheSpec::new("b", 104)).unwrap();
    assert_eq!((a, a == ctor), (b, false));
    assert_eq!(slab.aliases(a), ["b"]);
    assert_eq!(slab.info(a).object_size, 104);
    for (spec, shared) in [
        (CacheSpec::new("smaller", 96), false),
        (CacheSpec { align: 16, ..CacheSpec::new("aligned", 104) }, false),
        (CacheSpec { reclaim_account: true, ..CacheSpec::new("reclaim", 104) }, false),
        (CacheSpec { typesafe_by_rcu: true, ..CacheSpec::new("rcu", 104) }, false),
        (CacheSpec::new("kmalloc", 512), true),
        (CacheSpec { align: 64, ..CacheSpec::new("line", 104) }, true),
    ] {
        let name = spec.name.clone();
        let before = slab.cache_count();
        slab.create_cache(spec).unwrap();
        assert_eq!(slab.cache_count() == before, shared, "{name}");
    }
    assert!(!slab.slabinfo().unwrap().contains("\nb "), "only one line exists");
    let objects = allocate(&slab, 0, a, 10);
    let destroy = |slab: &Slab<Sim>, id| on(&machine, 0, |c| slab.destroy(c, id));
    assert_eq!(destroy(&slab, b), Destroyed::default());
    release(&slab, 0, a, &objects);
    assert!(slab.slabinfo().unwrap().contains("\na "));
    assert_eq!(destroy(&slab, a), Destroyed::default());
    assert!(!slab.slabinfo().unwrap().contains("\na "));
}

#[test]
fn kmalloc_above_two_pages_takes_whole_pages() {
    with_6_1(2, 1, 64, |slab, _| {
        let lent = slab.pages.lent();
        let at = on(slab.pages.machine(), 0, |c| slab.kmalloc(c, 8193, Request::default()).unwrap().addr());
        assert_eq!(slab.pages.lent() - lent, 4);
        on(slab.pages.machine(), 1, |c| slab.kfree(c, Object::at(at)));
        assert_eq!(slab.pages.lent(), lent);
        let counts: u64 = slab.uncached_counters().iter().map(|c| c.shares().alloc + c.shares().free).sum();
        assert_eq!(counts, 2);
        assert!(on(slab.pages.machine(), 0, |c| slab.kmalloc(c, (4 << 20) + 1, Request::default()).is_none()));
    });
}

#[test]
fn verify_names_what_is_broken_in_a_stack_of_indexes() {
    with_6_1(1, 1, 64, |slab, cache| {
        let object = allocate(slab, 0, cache, 1)[0];
        let (pages, head) = (slab.pages, slab.pages.pfn_of(object).unwrap());
        use crate::page::Field;
        let mut broken = |at: Addr, value: u64| {
            let good = pages.arena().peek(at);
            pages.arena().poke(at, value);
            let found = slab.verify().unwrap_err().to_string();
            pages.arena().poke(at, good);
            found
        };
        let active = pages.peek(head, Field::Counters);
        assert!(broken(pages.field(head, Field::Counters), active - 1).contains("free_objects"));
        assert!(broken(pages.field(head, Field::Extra), object.0 + 8).contains("colour"));
        let home = Addr((active >> 16) - 1);
        let word = Addr((home.0 + 16) & !7);
        let entries = pages.arena().peek(word);
        assert!(broken(word, entries & !0xffff | 0x1111).contains("twice"));
        slab.verify().unwrap();
    });
}

#[test]
fn ksize_is_the_object_size_and_krealloc_moves_only_what_does_not_fit() {
    for era in Config::ERAS {
        with_cache_of(era, 1, 1, 64, |slab, _| {
            let want = Request::default();
            let (sizes, kept, moved) = on(slab.pages.machine(), 0, |c| {
                let of = |bytes| {
                    let object = slab.kmalloc(c, bytes, want).unwrap();
                    let size = slab.ksize(c, &object);
                    slab.kfree(c, object);
                    size
                };
                let sizes = [of(0), of(1), of(100), of(150), of(9000)];
                let object = slab.kmalloc(c, 40, want).unwrap();
                let first = object.addr();
                slab.pages.arena().poke(first.plus(56), 4711);
                let same = slab.krealloc(c, object, 64, want).unwrap();
                let kept = same.addr() == first;
                let new = slab.krealloc(c, same, 65, want).unwrap();
                let moved = (new.addr() != first, slab.pages.arena().peek(new.addr().plus(56)));
                assert_eq!(slab.krealloc(c, new, 0, want).unwrap().addr(), ZERO_SIZE);
                (sizes, kept, moved)
            });
            assert_eq!(sizes, [0, 32, 128, 192, 16384]);
            assert!(kept);
            assert_eq!(moved, (true, 4711));
        });
    }
}

#[test]
fn a_bulk_allocation_gives_all_or_nothing() {
    let machine = machine(1, 1, 8);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let mut slab = Slab::new(&pages, &Config { merge: false, ..Config::era("6.1").unwrap() }).unwrap();
    let cache = slab.create_cache(CacheSpec::new("test", 512)).unwrap();
    let want = Request { atomic: true, ..Request::default() };
    let got = on(&machine, 0, |c| {
        let objects = slab.alloc_bulk(c, cache, want, 100).unwrap();
        let n = objects.len();
        slab.free_bulk(c, cache, objects);
        assert!(slab.alloc_bulk(c, cache, want, 1 << 20).is_none());
        n
    });
    assert_eq!(got, 100);
    assert_eq!(see(&mut slab, cache, &["active_exact"]), [0]);
}

#[test]
fn a_random_list_hands_out_every_object_of_a_slab_in_another_order() {
    for size in [64, 104, 200] {
        let machine = machine(2, 1, 64);
        let pages = Pages::new(&machine, PageModel::default()).unwrap();
        let config = Config { freelist_random: true, merge: false, ..Config::era("6.1").unwrap() };
        let mut slab = Slab::new(&pages, &config).unwrap();
        let cache = slab.create_cache(CacheSpec { ctor: size == 200, ..CacheSpec::new("t", size) }).unwrap();
        let num = slab.caches[cache.0 as usize].geometry.num as usize;
        let objects = allocate(&slab, 0, cache, 2 * num);
        let mut sorted = objects.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 2 * num, "{size}: no object twice");
        let falling = objects[..num].windows(2).filter(|w| w[1] < w[0]).count();
        assert!(falling > num / 4 && falling < 3 * num / 4, "{size}: {falling} of {num} steps go down");
        slab.verify().unwrap();
        release(&slab, 1, cache, &objects);
        on(&machine, 0, |c| slab.shrink(c, cache));
        slab.verify().unwrap();
        assert_eq!(slab.report_info(cache.0 as usize).slabs, Some(0));
    }
}

#[test]
fn with_hardened_lists_the_object_on_top_of_the_array_is_not_freed_again() {
    let machine = machine(2, 1, 64);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let config = Config { freelist_hardened: true, merge: false, ..Config::era("6.1").unwrap() };
    let mut slab = Slab::new(&pages, &config).unwrap();
    let cache = slab.create_cache(CacheSpec::new("t", 64)).unwrap();
    let count = |slab: &mut Slab<Sim>, stat| slab.counters(cache).iter().map(|c| c.get(stat)).sum::<u64>();
    let objects = allocate(&slab, 0, cache, 300);
    release(&slab, 0, cache, &[objects[0], objects[0], objects[1]]);
    assert_eq!((count(&mut slab, Stat::Warnings), count(&mut slab, Stat::Freehit)), (1, 2));
    release(&slab, 0, cache, &objects[2..]);
    // The other counts are those of a plain cache: 300 frees.
    assert_eq!(count(&mut slab, Stat::Freehit) + count(&mut slab, Stat::Freemiss), 300);
    assert!(count(&mut slab, Stat::Freemiss) > 0);
    assert_eq!(slab.report_info(cache.0 as usize).live_objects, 0);
    slab.verify().unwrap();
}

#[test]
fn zeroing_what_was_constructed_warns_in_6_1() {
    for (era, warnings) in [("2.6.24", 0), ("6.1", 1)] {
        let machine = machine(1, 1, 64);
        let pages = Pages::new(&machine, PageModel::default()).unwrap();
        let mut slab = Slab::new(&pages, &Config::era(era).unwrap()).unwrap();
        let cache = slab.create_cache(CacheSpec { ctor: true, ..CacheSpec::new("t", 64) }).unwrap();
        on(&machine, 0, |c| {
            slab.alloc(c, cache, Request { zero: true, ..Request::default() }).expect("memory");
            slab.alloc(c, cache, Request::default()).expect("memory");
        });
        assert_eq!(slab.counters(cache)[0].get(Stat::Warnings), warnings, "{era}");
    }
}
