//! What the page allocator says of itself: who asked for what, where memory is; and memory that nobody has touched.

use super::*;

/// What nobody has taken is not linked, and nobody can tell: every sequence takes and returns the same blocks, and touches
/// the same lines, as with all of it linked.
#[test]
fn untouched_memory_is_handed_out_as_if_it_were_linked() {
    for model in [PageModel::HotCold, PageModel::SingleTail, PageModel::SelfTuning] {
        let run = |linked: bool| {
            let seen = Mutex::new((Vec::new(), 0));
            with_zone_of(model, |zone, c| {
                zone.release_all(c.arena, c.map, || ());
                if linked {
                    zone.touch_all(c.arena, c.map);
                }
                let (mut held, mut draw) = (Vec::new(), 1u64);
                for _ in 0..4000 {
                    draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let order = Order((draw >> 33) as u8 % 11);
                    if draw >> 62 != 0 {
                        let taken = zone.take(c, order);
                        seen.lock().unwrap().0.push(taken);
                        held.extend(taken.map(|pfn| (pfn, order)));
                    } else if !held.is_empty() {
                        let (pfn, order) = held.swap_remove((draw >> 20) as usize % held.len());
                        zone.give(c, pfn, order);
                    }
                }
                seen.lock().unwrap().1 = c.cpu.now().0;
            });
            seen.into_inner().unwrap()
        };
        assert_eq!(run(false), run(true), "{model:?}");
    }
}

#[test]
fn who_asked_for_which_order_is_counted_with_how_it_ended() {
    let machine = sim(2, 2, 8, Schedule::default());
    let mut pages = Pages::new(&machine, PageModel::HotCold).unwrap();
    let cache = Asker::Cache(crate::spec::CacheId(3));
    on(&machine, 0, |c| {
        let flags = |asker| PageFlags { asker, ..PageFlags::default() };
        let one = pages.alloc_pages(c, Order(3), None, flags(cache)).unwrap();
        let two = pages.alloc_pages(c, Order(3), Some(NodeId(1)), flags(cache)).unwrap();
        // A warm-up ends: what is held stays.
        pages.reset_stats(c);
        pages.free_pages(c, one);
        let large = Order(10);
        while pages.alloc_pages(c, large, None, flags(Asker::Kmalloc)).is_some() {}
        assert!(pages.alloc_pages(c, large, None, PageFlags { no_retry: true, ..flags(cache) }).is_none());
        assert!(pages.alloc_pages(c, large, None, PageFlags { reclaims: true, ..flags(cache) }).is_none());
        assert_eq!(pages.order_of(two.into_pfn()), Order(3));
    });
    let asked = pages.asked();
    let of = |asker, order| asked.iter().find(|(a, o, _)| (*a, *o) == (asker, order)).map(|(_, _, n)| *n).unwrap();
    let counts = |n: Asked| [n.allocated, n.freed, n.failed, n.fallback, n.reclaim, n.held as u64];
    assert_eq!(counts(of(cache, 3)), [0, 1, 0, 0, 0, 1]);
    assert_eq!(counts(of(cache, 10)), [0, 0, 0, 1, 1, 0]);
    let large = of(Asker::Kmalloc, 10);
    assert!(large.allocated > 0 && large.held as u64 == large.allocated && large.fallback_node > 0, "{large:?}");
    assert_eq!((large.failed, pages.stats().failed[10]), (1, 1));
    let names = ["a", "b", "c", "dentry"].map(String::from);
    assert_eq!([cache.name(&names), Asker::Kmalloc.name(&names)], ["dentry", "(kmalloc pages)"]);
}

#[test]
fn a_zone_map_accounts_for_every_page_and_shows_the_largest_block_of_each_place() {
    let machine = sim(2, 2, 8, Schedule::default());
    for level in [None, Some(Fragmentation::new(0.5, 7).unwrap())] {
        let mut pages = Pages::fragmented(&machine, PageModel::HotCold, level).unwrap();
        on(&machine, 0, |c| {
            for order in [0, 0, 1, 5, 8] {
                pages.alloc_pages(c, Order(order), Some(NodeId(1)), PageFlags::default());
            }
        });
        let map = pages.zone_map();
        let sum = |f: fn(&Cell) -> u64| map.iter().map(f).sum::<u64>();
        assert_eq!((map.len(), sum(|c| c.pages), sum(Cell::lent)), (512, 4096, pages.lent()));
        assert_eq!(sum(|c| c.held), pages.held);
        let free: u64 = pages.buddyinfo().iter().flat_map(|row| row.iter().enumerate().map(|(o, n)| n << o)).sum();
        assert_eq!(sum(|c| c.free), free);
        assert!(map.iter().all(|c| c.largest.is_some() == (c.free > 0)));
        assert_eq!(map.iter().filter(|c| c.node == NodeId(0) && c.largest == Some(Order(10))).count() % 128, 0);
    }
}
