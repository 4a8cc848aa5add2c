//! Invariants of page-allocator.md §12 that no example shows: numbers 6, 9, 10, 11, 13, 14 and 15. The walkers of `verify()`
//! have 1 to 4; 5 is a property of any schedule; 7, 8, 12, 16 and 17 stand with their examples.

use super::super::marks::watermarks;
use super::*;

const MODELS: [PageModel; 5] =
    [PageModel::HotCold, PageModel::Single, PageModel::SingleTail, PageModel::Watermark, PageModel::SelfTuning];

/// A stream of numbers that repeats.
fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |n| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    }
}

#[test]
fn a_split_adds_one_block_to_each_order_between_and_a_merge_takes_one_from_each() {
    for (wanted, from) in [(0, 10), (3, 7), (9, 10), (4, 5)] {
        with_zone(|zone, c| {
            zone.give(c, Pfn(0), Order(from));
            let before = zone.nr_free;
            let pfn = zone.take(c, Order(wanted)).unwrap();
            let added: Vec<usize> = (0..MAX_ORDER).filter(|o| zone.nr_free[*o] == before[*o] + 1).collect();
            assert_eq!(added, (usize::from(wanted)..usize::from(from)).collect::<Vec<_>>());
            assert_eq!(zone.splits, u64::from(from - wanted));
            zone.give(c, pfn, Order(wanted));
            assert_eq!((zone.nr_free, zone.merges), (before, u64::from(from - wanted)));
        });
    }
}

#[test]
fn a_cpus_list_stays_below_high_after_every_free() {
    for model in MODELS {
        let machine = sim(1, 1, 64, Schedule::default());
        let mut pages = Pages::new(&machine, model).unwrap();
        let modern = model.is_modern();
        on(&machine, 0, |c| {
            let mut draw = draws(3);
            let mut held = Vec::new();
            for _ in 0..6000 {
                if held.len() < 40 || draw(2) == 0 && held.len() < 2000 {
                    held.push(pages.alloc_pages(c, Order(0), None, PageFlags::default()).unwrap());
                } else {
                    pages.free_pages(c, held.swap_remove(draw(held.len() as u64) as usize));
                    pages.cpus.with(c, |own| {
                        let (count, high) = (own.sets[0].count, own.sets[0].high);
                        assert!(if modern { count <= high } else { count < high }, "{model:?}: {count} of {high}");
                    });
                }
            }
            held.into_iter().for_each(|p| pages.free_pages(c, p));
        });
        pages.verify().unwrap();
    }
    // A zone so small that high is 0 keeps nothing.
    let machine = sim(1, 1, 8, Schedule::default());
    let mut pages = Pages::new(&machine, PageModel::HotCold).unwrap();
    on(&machine, 0, |c| {
        let page = pages.alloc_pages(c, Order(0), None, PageFlags::default()).unwrap();
        pages.free_pages(c, page);
    });
    assert_eq!((pages.cpus.get_mut(CpuId(0)).sets[0].high, pages.cpus.get_mut(CpuId(0)).sets[0].count), (0, 0));
}

#[test]
fn the_zone_lock_is_taken_for_refills_and_returns_only_and_each_moves_a_batch() {
    let machine = sim(1, 1, 256, Schedule::default());
    let mut pages = Pages::new(&machine, PageModel::HotCold).unwrap();
    let batch = u64::from(pages.cpus.get_mut(CpuId(0)).sets[0].batch);
    let mut draw = draws(5);
    let held = Mutex::new(Vec::new());
    let mut before = pages.stats();
    for _ in 0..400 {
        let n = draw(60) as usize;
        if draw(2) == 0 {
            take(&machine, &pages, 0, n, &held);
        } else {
            let have = held.lock().unwrap().len();
            give(&machine, &pages, 0, n.min(have), &held);
        }
        let now = pages.stats();
        assert_eq!(now.zone_lock, now.pcp_refill + now.pcp_return);
        assert!(now.pages_refilled - before.pages_refilled <= batch * (now.pcp_refill - before.pcp_refill));
        assert_eq!(now.pages_returned - before.pages_returned, batch * (now.pcp_return - before.pcp_return));
        before = now;
    }
    assert!(before.pcp_refill > 5 && before.pcp_return > 5);
}

#[test]
fn a_freed_page_is_the_next_one_taken_and_the_longest_free_are_returned_first() {
    for model in MODELS {
        let machine = sim(1, 1, 256, Schedule::default());
        let mut pages = Pages::new(&machine, model).unwrap();
        let freed = Mutex::new(Vec::new());
        on(&machine, 0, |c| {
            let one = || pages.alloc_pages(c, Order(0), None, PageFlags::default()).unwrap();
            let held: Vec<Page> = (0..64).map(|_| one()).collect();
            pages.drain_local(c);
            for page in held {
                freed.lock().unwrap().push(page.pfn());
                pages.free_pages(c, page);
            }
            let again = one();
            assert_eq!(Some(&again.pfn()), freed.lock().unwrap().last(), "{model:?}");
            pages.free_pages(c, again);
        });
        // Newest first on the list; what has gone back is what had been free longest.
        let set = &pages.cpus.get_mut(CpuId(0)).sets[0];
        let listed: Vec<Pfn> = set.blocks(&pages.arena, pages.map).into_iter().map(|(p, _)| p).collect();
        let freed: Vec<Pfn> = freed.into_inner().unwrap().into_iter().rev().collect();
        assert_eq!(listed[..], freed[..listed.len()], "{model:?}");
    }
}

#[test]
fn the_marks_of_any_zone_stand_in_order() {
    let mut draw = draws(7);
    for _ in 0..2000 {
        let lowmem = 1 + draw(1 << 26);
        let pages = 1 + draw(lowmem);
        for model in MODELS {
            let [min, low, high] = watermarks(model, pages, lowmem);
            assert!(min <= low && low <= high, "{model:?}: {pages} of {lowmem}: {min} {low} {high}");
        }
    }
}

#[test]
fn the_indices_keep_to_their_ranges_and_say_exactly_whether_a_request_can_be_met() {
    let mut draw = draws(9);
    for _ in 0..3000 {
        let mut free = [0; MAX_ORDER];
        let top = draw(12);
        for blocks in &mut free[..top as usize] {
            let most = 1 << draw(17);
            *blocks = if draw(3) == 0 { 0 } else { draw(most) };
        }
        let blocks: u64 = free.iter().sum();
        for order in 0..MAX_ORDER {
            let index = fragmentation_index(&free, order);
            let met = free[order..].iter().any(|n| *n > 0);
            assert_eq!(index == -1000, met, "{free:?}, order {order}");
            assert!(met || (-500..=1000).contains(&index), "{free:?}, order {order}: {index}");
            assert!(blocks > 0 || index == 0);
            let unusable = unusable_index(&free, order);
            assert!(unusable <= 1000 && (order == 0 || unusable >= unusable_index(&free, order - 1)), "{free:?}");
        }
    }
}

#[test]
fn every_zonelist_starts_at_home_and_holds_each_node_with_memory_once() {
    let preset = |set: &[(&str, f64)]| {
        let set = set.iter().map(|(k, v)| (k.to_string(), crate::machine::presets::Scalar::Number(*v))).collect();
        Machinery::preset("opteron-4x4-2011", &set, None, Default::default()).unwrap().topology()
    };
    for t in [preset(&[]), preset(&[("sockets", 8.0), ("numa_nodes", 8.0)]), preset(&[("memoryless_nodes", 1.0)])] {
        let with_memory: Vec<NodeId> = t.node_ids().filter(|n| t.node_bytes(*n) > 0).collect();
        for node in t.node_ids() {
            let list = t.fallback(node);
            assert!(t.node_bytes(node) == 0 || list[0] == node);
            let mut sorted = list.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, with_memory);
        }
    }
}
