//! The worked examples E1, E3, E5 to E7, E10 and E11 of slab.md §21; 6.1's side of the last five stands in `indexes`, E8 and E9
//! in `reaping`, E12 in `debugging`, and all that is formula (E1 to E4, E13, E14) beside the formulas in `geometry`.

use super::*;

#[test]
fn general_caches_have_the_shared_arrays_and_free_limits_of_example_e1() {
    // Shared array, free limit with 2 and with 8 CPUs, slabs that the reaper trims with 8.
    let rows = [
        ("size-32", 480, [292, 652], 2),
        ("size-64", 480, [239, 599], 3),
        ("size-128", 480, [210, 570], 4),
        ("size-192", 480, [200, 560], 6),
        ("size-256", 480, [195, 555], 8),
        ("size-512", 216, [89, 251], 7),
        ("size-1024", 216, [85, 247], 13),
        ("size-2048", 96, [38, 110], 11),
        ("size-4096", 96, [37, 109], 22),
        ("size-8192", 0, [13, 37], 8),
        ("size-131072", 0, [13, 37], 8),
        ("size-262144", 0, [4, 10], 2),
    ];
    general_caches("2.6.24", &rows.map(|(name, shared, limits, _)| (name, Some(shared), limits)));
    for (name, _, limits, trims) in rows {
        let slot: u64 = name.trim_start_matches("size-").parse().unwrap();
        let spec = CacheSpec::new("t", slot).hwcache();
        let g = Geometry::new(&spec, &config(), &crate::alloc::geometry::Shape::of_machine(1, 1 << 30)).unwrap();
        assert_eq!(reap::trimmed(limits[1], g.num), trims, "{name}");
    }
}

#[test]
fn general_caches_of_6_1_have_the_free_limits_of_example_e3() {
    let rows = [
        ("32", [304, 664]),
        ("64", [244, 604]),
        ("96", [212, 572]),
        ("128", [212, 572]),
        ("192", [201, 561]),
        ("256", [196, 556]),
        ("512", [89, 251]),
        ("1k", [85, 247]),
        ("2k", [38, 110]),
        ("4k", [37, 109]),
        ("8k", [13, 37]),
    ];
    for prefix in ["kmalloc-", "kmalloc-rcl-"] {
        let names = rows.map(|(size, _)| format!("{prefix}{size}"));
        let rows: Vec<_> = names.iter().zip(rows).map(|(name, (_, limits))| (name.as_str(), None, limits)).collect();
        general_caches("6.1", &rows);
    }
}

/// Checks shared arrays and free limits of caches on one node of 2 and of 8 CPUs.
fn general_caches(era: &str, rows: &[(&str, Option<u64>, [u64; 2])]) {
    for (cpus, limit_of) in [(2, 0), (8, 1)] {
        let machine = machine(cpus, 1, 64);
        let pages = Pages::new(&machine, PageModel::default()).unwrap();
        let mut slab = Slab::new(&pages, &Config::era(era).unwrap()).unwrap();
        for &(name, shared, limits) in rows {
            let id = slab.caches.iter().position(|c| c.spec.name == name).unwrap();
            let seen = see(&mut slab, CacheId(id as u32), &["node.0.shared_limit", "node.0.free_limit"]);
            assert_eq!(seen, [shared.unwrap_or(seen[0]), limits[limit_of]], "{name} with {cpus} CPUs");
        }
    }
}

#[test]
fn a_cold_cache_grows_one_slab_per_miss_as_in_example_e5() {
    let machine = machine(2, 1, 64);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let config = Config { metadata: Metadata::Free, ..config() };
    let mut slab = Slab::new(&pages, &config).unwrap();
    let cache = CacheId(general(256).unwrap() as u32);
    let mut all = allocate(&slab, 0, cache, 1);
    assert_eq!(see(&mut slab, cache, &["cpu.0.avail", "nr_slabs"]), [14, 1]);
    all.extend(allocate(&slab, 0, cache, 15));
    assert_eq!(see(&mut slab, cache, &["nr_slabs"]), [2]);
    all.extend(allocate(&slab, 0, cache, 84));
    let keys = ["nr_slabs", "total_objects", "active_slabinfo", "cpu.0.avail", "stat.allochit", "stat.allocmiss"];
    assert_eq!(see(&mut slab, cache, &keys), [7, 105, 105, 5, 93, 7]);
    assert_eq!(see(&mut slab, cache, &["stat.num_allocations", "stat.grown"]), [105, 7]);
    let first: Vec<u64> = all.iter().take(3).map(|a| slab.placement(cache, *a).index).collect();
    assert_eq!(first, [14, 13, 12]);
    let line =
        "size-256             105    105    256   15    1 : tunables  120   60    8 : slabdata      7      7      0";
    let text = slab.slabinfo().unwrap();
    assert!(text.lines().any(|l| l == line), "{text}");
    release(&slab, 0, cache, &all);
    assert_eq!(see(&mut slab, cache, &["cpu.0.avail", "stat.freehit", "stat.freemiss"]), [105, 100, 0]);
}

#[test]
fn the_first_refill_is_small_and_a_partial_one_does_not_grow_as_in_example_e6() {
    with_cache(2, 1, 64, |slab, cache| {
        let keys = ["stat.allocmiss", "cpu.0.avail", "node.0.free_objects", "nr_slabs"];
        allocate(slab, 0, cache, 1);
        assert_eq!(see(slab, cache, &keys), [1, 15, 43, 1]);
        allocate(slab, 0, cache, 16);
        assert_eq!(see(slab, cache, &keys), [2, 42, 0, 1]);
        allocate(slab, 0, cache, 43);
        assert_eq!(see(slab, cache, &keys), [3, 58, 0, 2]);
        allocate(slab, 0, cache, 140);
        assert_eq!(see(slab, cache, &keys), [5, 36, 0, 4]);
        assert_eq!(see(slab, cache, &["stat.allochit"]), [195]);
    });
}

#[test]
fn objects_freed_on_another_cpu_go_through_the_shared_array_as_in_example_e7() {
    with_cache(8, 1, 128, |slab, cache| {
        let objects = allocate(slab, 0, cache, 3000);
        assert_eq!(see(slab, cache, &["nr_slabs", "stat.allocmiss"]), [100, 101]);
        let keys = ["cpu.1.avail", "node.0.shared_avail", "node.0.free_objects", "stat.freemiss"];
        for (range, expected) in [(0..121, [61, 60, 0, 1]), (121..541, [61, 480, 0, 8]), (541..601, [61, 480, 60, 9])] {
            release(slab, 1, cache, &objects[range]);
            assert_eq!(see(slab, cache, &keys), expected);
        }
        release(slab, 1, cache, &objects[601..]);
        assert_eq!(see(slab, cache, &keys), [120, 480, 570, 48]);
        let rest = ["node.0.free_limit", "nr_slabs", "stat.max_freeable"];
        assert_eq!(see(slab, cache, &rest), [570, 39, 19]);
        shrink(slab, cache);
        assert_eq!(see(slab, cache, &["nr_slabs", "node.0.free_objects"]), [0, 0]);
    });
}

#[test]
fn one_cpu_flushes_straight_to_its_slabs_as_in_example_e10() {
    with_cache(1, 1, 64, |slab, cache| {
        let objects = allocate(slab, 0, cache, 300);
        assert_eq!(see(slab, cache, &["nr_slabs", "cpu.0.avail"]), [6, 54]);
        release(slab, 0, cache, &objects[..66]);
        assert_eq!(see(slab, cache, &["stat.freemiss", "cpu.0.avail"]), [0, 120]);
        release(slab, 0, cache, &objects[66..67]);
        assert_eq!(see(slab, cache, &["stat.freemiss", "cpu.0.avail", "node.0.free_objects"]), [1, 61, 60]);
    });
}

#[test]
fn the_thirteenth_remote_free_drains_the_alien_array_as_in_example_e11() {
    with_cache(4, 2, 128, |slab, cache| {
        let objects = allocate(slab, 2, cache, 13);
        assert_eq!(see(slab, cache, &["cpu.2.avail", "node.1.free_objects"]), [3, 14]);
        let keys = ["node.0.alien_avail.1", "stat.node_overflow", "node.1.shared_avail", "node.1.free_objects"];
        release(slab, 0, cache, &objects[..12]);
        assert_eq!(see(slab, cache, &keys), [12, 0, 0, 14]);
        release(slab, 0, cache, &objects[12..]);
        assert_eq!(see(slab, cache, &keys), [1, 1, 12, 14]);
        assert_eq!(see(slab, cache, &["stat.node_frees", "stat.freehit", "stat.freemiss"]), [13, 0, 0]);
    });
}
