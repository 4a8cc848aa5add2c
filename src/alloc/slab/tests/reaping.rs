//! The periodic reaper: examples E8 and E9 of slab.md §21, invariant 13.

use std::collections::BTreeSet;

use super::*;

/// Sleeps until `until`.
fn wait(c: &SimCpu, until: Picos) {
    while c.now() < until {
        c.idle(Some(until));
    }
}

/// Two seconds pass, then the reaper runs on each CPU of `cpus`, one after the other.
fn step(slab: &Slab<Sim>, cpus: &[u16]) {
    let machine = slab.pages.machine();
    let mut from = Picos(on(machine, 0, |c| c.now()).0 + reap::PERIOD.0);
    for cpu in cpus {
        from = on(machine, *cpu, |c| {
            wait(c, from);
            slab.trim(c);
            c.now()
        });
    }
}

/// The same with an allocator whose caches are all trimmed 4 s after their creation.
fn unspread(cpus: u64, nodes: u64, size: u64, test: impl FnOnce(&mut Slab<Sim>, CacheId)) {
    let machine = machine(cpus, nodes, 64);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let mut slab = Slab::new(&pages, &Config { reap_spread: false, ..config() }).unwrap();
    let cache = slab.create_cache(CacheSpec::new("test", size)).unwrap();
    test(&mut slab, cache);
    slab.verify().unwrap();
}

#[test]
fn all_memory_is_back_after_seventeen_steps_as_in_example_e8() {
    unspread(8, 1, 128, |slab, cache| {
        let objects = allocate(slab, 0, cache, 3000);
        release(slab, 1, cache, &objects);
        assert_eq!(see(slab, cache, &["cpu.1.avail", "node.0.shared_avail", "nr_slabs"]), [120, 480, 39]);
        // The example begins when the node is due.
        on(slab.pages.machine(), 0, |c| wait(c, Picos(5_000_000_000_000)));
        let mut seen = Vec::new();
        for n in 1..=17 {
            assert!(see(slab, cache, &["nr_slabs"])[0] > 0, "step {n}");
            let free = |slab: &mut Slab<Sim>| see(slab, cache, &["node.0.free_slabs", "stat.reaped"]);
            let before = free(slab);
            step(slab, &[0, 1]);
            let after = free(slab);
            seen.push((
                see(slab, cache, &["cpu.1.avail"])[0],
                see(slab, cache, &["node.0.shared_avail"])[0],
                after[1] - before[1],
            ));
        }
        let arrays: Vec<u64> = seen.iter().map(|s| s.0).take(6).collect();
        assert_eq!(arrays, [96, 72, 48, 24, 0, 0]);
        let shared: Vec<u64> = seen.iter().map(|s| s.1).take(9).collect();
        assert_eq!(shared, [384, 384, 288, 288, 192, 192, 96, 96, 0]);
        assert_eq!((seen[0].2, seen[2].2), (0, 4), "free_touched spares the slabs once; then ⌈570/150⌉ at a time");
        assert!(seen.iter().all(|s| s.2 <= 4));
        assert_eq!(see(slab, cache, &["nr_slabs", "node.0.free_objects"]), [0, 0]);
    });
}

#[test]
fn an_idle_array_ages_as_in_example_e9() {
    unspread(1, 1, 128, |slab, cache| {
        // A refill of 16, then ones of 60 and 14 that the slabs happen to hold: 100 objects end up in the array.
        let objects = allocate(slab, 0, cache, 100);
        let extra = see(slab, cache, &["cpu.0.avail"])[0] as usize;
        release(slab, 0, cache, &objects[..100 - extra]);
        assert_eq!(see(slab, cache, &["cpu.0.avail", "cpu.0.touched"]), [100, 1]);
        let mut ages = Vec::new();
        for _ in 0..8 {
            step(slab, &[0]);
            ages.push(see(slab, cache, &["cpu.0.avail"])[0]);
        }
        assert_eq!(ages, [100, 76, 52, 28, 4, 2, 1, 0]);
        release(slab, 0, cache, &objects[100 - extra..]);
    });
}

#[test]
fn the_reaper_never_frees_from_an_array_touched_since_its_last_pass() {
    unspread(2, 1, 256, |slab, cache| {
        for round in 0..12 {
            let objects = allocate(slab, 0, cache, 40);
            release(slab, 0, cache, &objects);
            let before = see(slab, cache, &["cpu.0.avail", "cpu.0.touched"]);
            step(slab, &[0, 1]);
            assert_eq!(before[1], 1);
            assert_eq!(see(slab, cache, &["cpu.0.avail", "cpu.0.touched"]), [before[0], 0], "round {round}");
        }
    });
}

#[test]
fn each_run_drains_the_aliens_of_one_node_for_all_caches() {
    unspread(4, 4, 128, |slab, cache| {
        let objects = allocate(slab, 2, cache, 5);
        release(slab, 0, cache, &objects);
        let mut alien = Vec::new();
        for _ in 0..3 {
            step(slab, &[0]);
            alien.push(see(slab, cache, &["node.0.alien_avail.2"])[0]);
        }
        assert_eq!(alien, [5, 0, 0], "CPU 0 of node 0 drains node 1 first, then 2, then 3");
        assert_eq!(see(slab, cache, &["node.2.shared_avail"]), [5]);
    });
}

#[test]
fn a_cache_s_first_trim_is_put_off_by_its_address() {
    with_cache(1, 1, 128, |slab, _| {
        let machine = slab.pages.machine();
        let due: BTreeSet<u64> = slab.caches.iter().map(|c| c.node(NodeId(0)).next_reap.peek() - c.created).collect();
        assert!(due.len() > slab.caches.len() / 2, "{due:?}");
        assert!(due.iter().all(|d| (reap::NODE_PERIOD..2 * reap::NODE_PERIOD).contains(d)));
        assert_eq!(machine.topology().cpus(), 1);
    });
}
