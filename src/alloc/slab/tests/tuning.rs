//! Changing tunables at run time (slab.md §12), and what slabinfo shows of it.

use super::*;

fn tuning(limit: i64, batchcount: i64, sharedfactor: i64) -> Tuning {
    Tuning { limit, batchcount, sharedfactor }
}

const KEYS: [&str; 7] = [
    "cpu.0.limit",
    "cpu.1.batchcount",
    "cpu.0.avail",
    "cpu.1.avail",
    "node.0.shared_limit",
    "node.0.shared_avail",
    "node.0.free_limit",
];

#[test]
fn tuning_puts_every_parked_object_back_and_makes_new_arrays() {
    for (era, num) in [("2.6.24", 59), ("6.1", 64)] {
        with_cache_of(era, 2, 1, 64, |slab, cache| {
            let objects = allocate(slab, 0, cache, 400);
            release(slab, 1, cache, &objects[..300]);
            let before = see(slab, cache, &KEYS);
            assert!(before[3] > 0 && before[5] > 0, "{before:?}");
            assert_eq!(slab.tune(cache, tuning(10, 5, 2)), Ok(true));
            assert_eq!(see(slab, cache, &KEYS), [10, 5, 0, 0, 10, 0, 3 * 5 + num], "{era}");
            assert_eq!(see(slab, cache, &["active_slabinfo", "active_exact"]), [100, 100]);
            // No shared array.
            assert_eq!(slab.tune(cache, tuning(4, 4, 0)), Ok(true));
            assert_eq!(see(slab, cache, &KEYS), [4, 4, 0, 0, 0, 0, 3 * 4 + num]);
            release(slab, 1, cache, &objects[300..]);
            assert_eq!(slab.tune(cache, tuning(60, 30, 8)), Ok(true));
            assert_eq!(see(slab, cache, &["active_slabinfo", "node.0.shared_limit"]), [0, 240]);
            assert_eq!(on(slab.pages.machine(), 0, |c| slab.destroy(c, cache)), Destroyed::default());
        });
    }
}

#[test]
fn alien_arrays_stay_as_they_are() {
    with_cache(4, 2, 128, |slab, cache| {
        let objects = allocate(slab, 2, cache, 5);
        release(slab, 0, cache, &objects);
        slab.tune(cache, tuning(20, 10, 1)).unwrap();
        assert_eq!(see(slab, cache, &["node.0.alien_avail.1", "node.0.shared_limit"]), [5, 10]);
    });
}

#[test]
fn values_outside_the_limits_are_ignored_silently() {
    with_cache(2, 1, 64, |slab, cache| {
        let before = see(slab, cache, &KEYS);
        for (limit, batchcount, sharedfactor) in [(0, 1, 8), (-5, 1, 8), (10, 11, 8), (10, 0, 8), (10, 5, -1)] {
            assert_eq!(slab.tune(cache, tuning(limit, batchcount, sharedfactor)), Ok(false));
            assert_eq!(slab.write_slabinfo(&format!("test {limit} {batchcount} {sharedfactor}\n")), Ok(false));
        }
        assert_eq!(see(slab, cache, &KEYS), before);
    });
}

#[test]
fn a_line_that_names_no_cache_or_lacks_a_number_is_refused() {
    with_cache(2, 1, 64, |slab, cache| {
        assert_eq!(slab.write_slabinfo("test 10 5 2"), Ok(true));
        assert_eq!(see(slab, cache, &KEYS[..1]), [10]);
        let long = format!("test 10 5 2{}", " ".repeat(120));
        for line in ["test", "test 10 5", "test ten 5 2", "tset 10 5 2", "", &long] {
            let e = slab.write_slabinfo(line).unwrap_err().to_string();
            assert!(e.contains("EINVAL"), "{line:?}: {e}");
        }
    });
}

#[test]
fn a_limit_that_no_memory_holds_changes_nothing() {
    with_cache(2, 1, 64, |slab, cache| {
        let before = see(slab, cache, &KEYS);
        assert!(slab.tune(cache, tuning(1 << 30, 1, 0)).is_err());
        assert_eq!(see(slab, cache, &KEYS), before);
    });
}

#[test]
fn slabinfo_shows_the_statistics_when_they_are_on() {
    let machine = machine(2, 1, 64);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let config = Config { statistics: true, metadata: Metadata::Free, ..config() };
    let mut slab = Slab::new(&pages, &config).unwrap();
    let cache = CacheId(general(256).unwrap() as u32);
    let all = allocate(&slab, 0, cache, 100);
    release(&slab, 0, cache, &all);
    let text = slab.slabinfo().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "slabinfo - version: 2.1 (statistics)");
    assert!(lines[1].ends_with(" <sharedavail> : globalstat <listallocs> <maxobjs> <grown> <reaped> <error> <maxfreeable> <nodeallocs> <remotefrees> <alienoverflow> : cpustat <allochit> <allocmiss> <freehit> <freemiss>"));
    let line = "size-256             105    105    256   15    1 : tunables  120   60    8 : slabdata      7      7      0 : globalstat     105    105     7    0    0    0    0    0    0 : cpustat     93      7    100      0";
    assert!(lines.contains(&line), "{text}");
}

/// Counts of a cache that a removal changes.
fn state(slab: &mut Slab<Sim>, cache: CacheId) -> serde_json::Value {
    slab.report_state(cache.0 as usize)
}

#[test]
fn a_removed_cpu_s_array_is_drained_and_free_limit_falls_by_a_batch() {
    for era in Config::ERAS {
        let machine = machine(4, 2, 64);
        let pages = Pages::new(&machine, PageModel::default()).unwrap();
        let mut slab = Slab::new(&pages, &Config { merge: false, ..Config::era(era).unwrap() }).unwrap();
        let cache = slab.create_cache(CacheSpec::new("t", 128)).unwrap();
        let objects = allocate(&slab, 1, cache, 40);
        release(&slab, 1, cache, &objects);
        let parked =
            |slab: &mut Slab<Sim>, cpu: u16| slab.caches[cache.0 as usize].cpus.get_mut(CpuId(cpu)).array.len();
        assert!(parked(&mut slab, 1) > 0);
        let limit =
            |slab: &mut Slab<Sim>, node: usize| state(slab, cache)["node"][node]["free_limit"].as_u64().unwrap();
        let before = [limit(&mut slab, 0), limit(&mut slab, 1)];
        slab.offline(CpuId(1));
        assert_eq!(parked(&mut slab, 1), 0);
        assert_eq!([limit(&mut slab, 0), limit(&mut slab, 1)], [before[0] - 60, before[1]], "{era}");
        slab.verify().unwrap();
        // A cache made later, and one that is tuned, know it too.
        let later = slab.create_cache(CacheSpec::new("later", 128)).unwrap();
        assert_eq!(state(&mut slab, later)["node"][0]["free_limit"], before[0] - 60);
        slab.tune(cache, Tuning { limit: 120, batchcount: 60, sharedfactor: 8 }).unwrap();
        assert_eq!(limit(&mut slab, 0), before[0] - 60);
        slab.verify().unwrap();
    }
}

#[test]
fn the_last_cpu_of_a_node_takes_its_shared_and_alien_arrays_and_its_free_slabs_along() {
    for era in Config::ERAS {
        let machine = machine(4, 2, 64);
        let pages = Pages::new(&machine, PageModel::default()).unwrap();
        let mut slab = Slab::new(&pages, &Config { merge: false, ..Config::era(era).unwrap() }).unwrap();
        let cache = slab.create_cache(CacheSpec::new("t", 128)).unwrap();
        // CPU 3 frees objects of node 0, which wait in node 1's alien array, and 300 of its own.
        let far = allocate(&slab, 0, cache, 5);
        let own = allocate(&slab, 3, cache, 300);
        release(&slab, 3, cache, &far);
        release(&slab, 3, cache, &own);
        let kept = allocate(&slab, 2, cache, 1);
        slab.offline(CpuId(3));
        slab.verify().unwrap();
        slab.offline(CpuId(2));
        slab.verify().unwrap();
        let node = &mut slab.caches[cache.0 as usize].nodes[1];
        assert!(node.alien.iter().all(Option::is_none));
        let lists = node.lists.get_mut();
        assert_eq!((lists.shared.is_none(), lists.free.len(), lists.partial.len()), (true, 0, 1), "{era}");
        // What one of its CPUs had handed out is freed by another node's.
        release(&slab, 0, cache, &kept);
        on(&machine, 0, |c| slab.shrink(c, cache));
        slab.verify().unwrap();
        assert_eq!(slab.report_info(cache.0 as usize).slabs, Some(0));
        assert_eq!(on(&machine, 0, |c| slab.destroy(c, cache)), Destroyed::default());
    }
}
