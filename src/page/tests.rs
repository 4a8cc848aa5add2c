//! The worked examples of page-allocator.md §13 for the 2.6.24 form, and properties of the whole floor.

mod invariants;
mod reports;

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::buddy::{Charge, Zone};
use super::*;
use crate::machine::Sim;
use crate::machine::presets::Machinery;
use crate::machine::sim::{Schedule, SimCpu};
use crate::units::{CpuId, MAX_ORDER};

fn sim(cpus: u64, nodes: u64, node_mib: u64, schedule: Schedule) -> Sim {
    Sim::new(&Machinery::for_topology(cpus, nodes, node_mib << 20).unwrap(), schedule).unwrap()
}

/// Runs `f` on one CPU.
fn on(machine: &Sim, cpu: u16, f: impl Fn(&SimCpu) + Sync) {
    machine.boot(|c| {
        if c.id() == CpuId(cpu) {
            f(c);
        }
    });
}

/// A zone of 8192 frames with nothing free, on a machine of its own.
fn with_zone(f: impl Fn(&mut Zone, &Charge<Sim>) + Sync) {
    with_zone_of(PageModel::HotCold, f);
}

/// The same under the rules of `model`.
fn with_zone_of(model: PageModel, f: impl Fn(&mut Zone, &Charge<Sim>) + Sync) {
    let machine = sim(1, 1, 32, Schedule::default());
    let frames = 8192;
    let arena = Arena::new(frames * (PAGE_SIZE + frame::FRAME_BYTES)).unwrap();
    let map = Addr(frames * PAGE_SIZE);
    let addr = machine.reserve(256, NodeId(0));
    on(&machine, 0, |cpu| {
        let mut zone = Zone::new(addr, Pfn(0), frames as u32, model);
        f(&mut zone, &Charge { cpu, arena: &arena, map });
        zone.verify(&arena, map, &mut vec![false; frames as usize], 0, || ()).unwrap();
    });
}

/// The free lists as the spec writes them: `o0:[1029] o1:[1026 1030]`.
fn lists(zone: &Zone, c: &Charge<Sim>) -> String {
    let mut text = Vec::new();
    for o in 0..MAX_ORDER {
        let blocks: Vec<String> = zone.linked(c.arena, c.map, o).iter().map(|p| p.0.to_string()).collect();
        if blocks.is_empty() {
            continue;
        }
        text.push(format!("o{o}:[{}]", blocks.join(" ")));
    }
    text.join(" ")
}

const HIGH: &str = "o4:[1040] o5:[1056] o6:[1088] o7:[1152] o8:[1280] o9:[1536]";

/// The state after example 13.1: 1024/0, 1025/0, 1026/1, 1028/0 and 1032/3 handed out of 1024/10.
fn split(zone: &mut Zone, c: &Charge<Sim>) {
    zone.give(c, Pfn(1024), Order(10));
    for (order, pfn, after) in [
        (0, 1024, format!("o0:[1025] o1:[1026] o2:[1028] o3:[1032] {HIGH}")),
        (0, 1025, format!("o1:[1026] o2:[1028] o3:[1032] {HIGH}")),
        (1, 1026, format!("o2:[1028] o3:[1032] {HIGH}")),
        (0, 1028, format!("o0:[1029] o1:[1030] o3:[1032] {HIGH}")),
        (3, 1032, format!("o0:[1029] o1:[1030] {HIGH}")),
    ] {
        assert_eq!(zone.take(c, Order(order)), Some(Pfn(pfn)));
        assert_eq!(lists(zone, c), after);
    }
}

#[test]
fn a_split_hands_out_the_lower_half_each_time() {
    with_zone(|zone, c| {
        split(zone, c);
        assert_eq!(zone.splits, 10 + 2);
    });
}

#[test]
fn a_merge_goes_on_while_the_buddy_is_free_and_puts_the_block_at_the_head() {
    with_zone(|zone, c| {
        split(zone, c);
        for (pfn, order, merges, after) in [
            (1024, 0, 0, format!("o0:[1024 1029] o1:[1030] {HIGH}")),
            (1026, 1, 0, format!("o0:[1024 1029] o1:[1026 1030] {HIGH}")),
            (1025, 0, 2, format!("o0:[1029] o1:[1030] o2:[1024] {HIGH}")),
            (1028, 0, 3, format!("o3:[1024] {HIGH}")),
            (1032, 3, 7, "o10:[1024]".to_string()),
        ] {
            let before = zone.merges;
            zone.give(c, Pfn(pfn), Order(order));
            assert_eq!((zone.merges - before, lists(zone, c)), (merges, after), "free {pfn}/{order}");
        }
    });
}

/// §13.3: block, its buddy, and whether they become one.
#[test]
fn a_block_merges_with_its_free_buddy_unless_it_is_of_the_largest_order() {
    for (pfn, order, buddy, after) in [
        (5, 0, 4, "o1:[4]"),
        (6, 1, 4, "o2:[4]"),
        (12, 2, 8, "o3:[8]"),
        (24, 3, 16, "o4:[16]"),
        (1025, 0, 1024, "o1:[1024]"),
        (1026, 1, 1024, "o2:[1024]"),
        (1536, 9, 1024, "o10:[1024]"),
        (1024, 10, 0, "o10:[1024 0]"),
        (4096, 10, 5120, "o10:[4096 5120]"),
    ] {
        with_zone(|zone, c| {
            zone.give(c, Pfn(buddy), Order(order));
            zone.give(c, Pfn(pfn), Order(order));
            assert_eq!((lists(zone, c).as_str(), zone.merges), (after, u64::from(order < 10)), "{pfn}/{order}");
        });
    }
}

#[test]
fn eight_single_frees_of_an_aligned_block_make_seven_merges_in_any_order() {
    for (order, merges, after_four) in [
        ([64, 65, 66, 67, 68, 69, 70, 71], [0, 1, 0, 2, 0, 1, 0, 3], "o2:[64]"),
        ([64, 66, 68, 70, 65, 67, 69, 71], [0, 0, 0, 0, 1, 2, 1, 3], "o0:[70 68 66 64]"),
        ([71, 70, 69, 68, 67, 66, 65, 64], [0, 1, 0, 2, 0, 1, 0, 3], "o2:[68]"),
        ([67, 68, 66, 69, 65, 70, 64, 71], [0, 0, 1, 1, 0, 0, 2, 3], "o1:[68 66]"),
    ] {
        with_zone(|zone, c| {
            zone.give(c, Pfn(64), Order(3));
            assert_eq!(zone.take(c, Order(3)), Some(Pfn(64)));
            for (i, pfn) in order.iter().enumerate() {
                let before = zone.merges;
                zone.give(c, Pfn(*pfn), Order(0));
                assert_eq!(zone.merges - before, merges[i], "{order:?}, free {pfn}");
                if i == 3 {
                    assert_eq!(lists(zone, c), after_four);
                }
            }
        });
    }
}

#[test]
fn a_freed_block_goes_to_the_head_even_if_a_merge_is_likely() {
    with_zone(|zone, c| {
        zone.give(c, Pfn(0), Order(4));
        assert!((0..16).all(|_| zone.take(c, Order(0)).is_some()));
        [6, 7, 12].iter().for_each(|p| zone.give(c, Pfn(*p), Order(0)));
        assert_eq!(lists(zone, c), "o0:[12] o1:[6]");
        zone.give(c, Pfn(4), Order(0));
        assert_eq!(lists(zone, c), "o0:[4 12] o1:[6]");
        assert_eq!(zone.take(c, Order(0)), Some(Pfn(4)));
    });
}

#[test]
fn from_2_6_36_on_a_block_that_will_soon_merge_goes_to_the_tail() {
    for model in [PageModel::SingleTail, PageModel::Watermark, PageModel::SelfTuning] {
        with_zone_of(model, |zone, c| {
            zone.give(c, Pfn(0), Order(4));
            assert!((0..16).all(|_| zone.take(c, Order(0)).is_some()));
            [6, 7, 12].iter().for_each(|p| zone.give(c, Pfn(*p), Order(0)));
            assert_eq!(lists(zone, c), "o0:[12] o1:[6]");
            zone.give(c, Pfn(4), Order(0));
            assert_eq!(lists(zone, c), "o0:[12 4] o1:[6]");
            assert_eq!(zone.take(c, Order(0)), Some(Pfn(12)));
        });
    }
}

#[test]
fn from_5_10_on_boot_memory_is_handed_out_from_the_lowest_block() {
    with_zone_of(PageModel::Watermark, |zone, c| {
        zone.release_all(c.arena, c.map, || ());
        assert_eq!(zone.take(c, Order(10)), Some(Pfn(0)));
    });
}

#[test]
fn boot_lists_blocks_highest_first_and_refills_ascend() {
    with_zone(|zone, c| {
        zone.release_all(c.arena, c.map, || ());
        assert_eq!(lists(zone, c), "o10:[7168 6144]");
        zone.touch_all(c.arena, c.map);
        assert_eq!(lists(zone, c), "o10:[7168 6144 5120 4096 3072 2048 1024 0]");
        assert_eq!((zone.take(c, Order(10)), zone.take(c, Order(9))), (Some(Pfn(7168)), Some(Pfn(6144))));
        assert_eq!(lists(zone, c), "o9:[6656] o10:[5120 4096 3072 2048 1024 0]");
    });
    with_zone(|zone, c| {
        zone.give(c, Pfn(4096), Order(10));
        zone.give(c, Pfn(2048), Order(5));
        let refill: Vec<u32> = (0..31).map(|_| zone.take(c, Order(0)).unwrap().0).collect();
        assert_eq!(refill, (2048..2079).collect::<Vec<u32>>());
        assert_eq!(lists(zone, c), "o0:[2079] o10:[4096]");
    });
}

/// Takes `n` order-0 pages on a CPU and keeps them in `held`.
fn take(machine: &Sim, pages: &Pages<Sim>, cpu: u16, n: usize, held: &Mutex<Vec<Page>>) {
    on(machine, cpu, |c| {
        for _ in 0..n {
            let page = pages.alloc_pages(c, Order(0), None, PageFlags::default()).unwrap();
            held.lock().unwrap().push(page);
        }
    });
}

fn give(machine: &Sim, pages: &Pages<Sim>, cpu: u16, n: usize, held: &Mutex<Vec<Page>>) {
    on(machine, cpu, |c| {
        for _ in 0..n {
            let page = held.lock().unwrap().pop().unwrap();
            pages.free_pages(c, page);
        }
    });
}

/// Pages on CPU 0's list of node 0.
fn listed(pages: &mut Pages<Sim>) -> u32 {
    pages.cpus.get_mut(CpuId(0)).sets[0].count
}

/// §13.9, the sequence.
#[test]
fn the_hot_list_refills_and_returns_in_batches_of_31_around_186() {
    let machine = sim(2, 1, 1024, Schedule::default());
    let mut pages = Pages::new(&machine, PageModel::HotCold).unwrap();
    let held = Mutex::new(Vec::new());
    take(&machine, &pages, 1, 300, &held);
    on(&machine, 0, |c| pages.reset_stats(c));
    on(&machine, 1, |c| pages.reset_stats(c));
    for (n, refills) in [(1, 1), (30, 1), (1, 2), (30, 2), (1, 3), (31, 4), (6, 4)] {
        take(&machine, &pages, 0, n, &held);
        assert_eq!(pages.stats().pcp_refill, refills);
    }
    assert_eq!(listed(&mut pages), 24, "after 100 allocations");
    let mut freed = 0;
    for (at, returns) in [(161, 0), (162, 1), (192, 1), (193, 2), (224, 3), (255, 4), (286, 5), (300, 5)] {
        give(&machine, &pages, 0, at - freed, &held);
        freed = at;
        assert_eq!(pages.stats().pcp_return, returns, "free {at}");
        let count = match at {
            162 | 193 | 224 | 255 | 286 => 155,
            161 | 192 => 185,
            _ => 169,
        };
        assert_eq!(listed(&mut pages), count, "free {at}");
    }
    let s = pages.stats();
    assert_eq!((s.pages_refilled, s.pages_returned, s.zone_lock), (4 * 31, 5 * 31, 9));
    pages.verify().unwrap();
}

/// §13.9. 63/378 are the sizes of 4.19 to 5.13, for which no model stands here: the set is given them.
#[test]
fn bursts_longer_than_high_cost_the_zone_lock_again_and_again() {
    for (batch, high, burst, holds) in [
        (31, 186, 1, 1),
        (31, 186, 64, 3),
        (31, 186, 128, 5),
        (31, 186, 256, 805),
        (31, 186, 512, 2405),
        (63, 378, 64, 2),
        (63, 378, 128, 3),
        (63, 378, 256, 5),
        (63, 378, 512, 805),
        (15, 90, 64, 5),
        (15, 90, 128, 805),
        (15, 90, 256, 2605),
        (15, 90, 512, 6005),
    ] {
        let machine = sim(1, 1, 1024, Schedule::default());
        let mut pages = Pages::new(&machine, PageModel::HotCold).unwrap();
        let set = &mut pages.cpus.get_mut(CpuId(0)).sets[0];
        (set.batch, set.high) = (batch, high);
        let held = Mutex::new(Vec::new());
        for _ in 0..100 {
            take(&machine, &pages, 0, burst, &held);
            give(&machine, &pages, 0, burst, &held);
        }
        assert_eq!(pages.stats().zone_lock, holds, "{batch}/{high}, bursts of {burst}");
    }
}

#[test]
fn alternating_takes_the_zone_lock_once() {
    let machine = sim(1, 1, 1024, Schedule::default());
    let mut pages = Pages::new(&machine, PageModel::HotCold).unwrap();
    on(&machine, 0, |c| {
        for _ in 0..10_000 {
            let page = pages.alloc_pages(c, Order(0), None, PageFlags::default()).unwrap();
            pages.free_pages(c, page);
        }
    });
    assert_eq!(pages.stats().zone_lock, 1);
}

#[test]
fn from_5_14_on_orders_up_to_3_are_reused_without_the_zone_lock() {
    for (model, orders) in [(PageModel::HotCold, 0..1), (PageModel::Watermark, 0..4), (PageModel::NoLists, 0..0)] {
        for order in 0..5u8 {
            let machine = sim(1, 1, 1024, Schedule::default());
            let mut pages = Pages::new(&machine, model).unwrap();
            on(&machine, 0, |c| {
                for _ in 0..100 {
                    let page = pages.alloc_pages(c, Order(order), None, PageFlags::default()).unwrap();
                    pages.free_pages(c, page);
                }
            });
            let holds = if orders.contains(&order) { 1 } else { 200 };
            assert_eq!(pages.stats().zone_lock, holds, "{model:?}, order {order}");
            pages.verify().unwrap();
        }
    }
}

#[test]
fn a_cleared_request_gives_zeroes_in_all_its_pages() {
    let machine = sim(1, 1, 64, Schedule::default());
    let pages = Pages::new(&machine, PageModel::HotCold).unwrap();
    on(&machine, 0, |c| {
        let page = pages.alloc_pages(c, Order(2), None, PageFlags::default()).unwrap();
        let start = pages.addr_of(page.pfn());
        pages.arena().fill(start, Order(2).bytes(), 0xaa);
        pages.free_pages(c, page);
        let page = pages.alloc_pages(c, Order(2), None, PageFlags { zero: true, ..PageFlags::default() }).unwrap();
        assert_eq!(pages.addr_of(page.pfn()), start, "a free and an allocation on one CPU reuse the block");
        assert!((0..Order(2).bytes()).step_by(8).all(|i| pages.arena().peek(start.plus(i)) == 0));
        pages.free_pages(c, page);
    });
}

#[test]
fn fragmented_memory_has_the_level_asked_for_and_keeps_it() {
    for level in [0.0, 0.25, 0.5, 0.9, 1.0] {
        let machine = sim(2, 2, 256, Schedule::default());
        let fragment = Fragmentation::new(level, 7).unwrap();
        let mut pages = Pages::fragmented(&machine, PageModel::HotCold, Some(fragment)).unwrap();
        pages.verify().unwrap();
        for row in pages.buddyinfo() {
            let index = unusable_index(&row, 1) as f64 / 1000.0;
            assert!((index - level).abs() < 0.02, "level {level}: unusable index {index}");
        }
        let start = pages.buddyinfo();
        let whole = |pages: &Pages<Sim>| {
            let got = Mutex::new(None);
            on(&machine, 0, |c| {
                let held: Vec<Page> =
                    (0..500).map_while(|_| pages.alloc_pages(c, Order(0), None, PageFlags::default())).collect();
                let block = pages.alloc_pages(c, Order(1), None, PageFlags::default());
                *got.lock().unwrap() = Some((held.len(), block.is_some()));
                block.into_iter().chain(held).for_each(|p| pages.free_pages(c, p));
                pages.drain_local(c);
            });
            got.into_inner().unwrap().unwrap()
        };
        assert_eq!(whole(&pages), (500, level < 1.0), "level {level}");
        assert_eq!(pages.buddyinfo(), start, "level {level}: singles never merge");
        let again = Pages::fragmented(&machine, PageModel::HotCold, Some(fragment)).unwrap().buddyinfo();
        assert_eq!(again, start, "the same level and seed give the same memory");
    }
}

#[test]
fn a_node_without_memory_is_served_by_the_others() {
    let place = |node| crate::topology::Place { socket: node, core: node, l2: node, llc: node, node: NodeId(node) };
    let topology = crate::topology::Topology::new(vec![place(0), place(1)], vec![64 << 20, 0]);
    let machine = crate::machine::Native::new(topology).unwrap();
    let mut pages = Pages::new(&machine, PageModel::HotCold).unwrap();
    machine.boot(|c| {
        if c.id() != CpuId(1) {
            return;
        }
        let page = pages.alloc_pages(c, Order(0), None, PageFlags::default()).unwrap();
        assert_eq!(pages.node_of(page.pfn()), NodeId(0));
        pages.free_pages(c, page);
        let flags = PageFlags { this_node: true, ..PageFlags::default() };
        assert!(pages.alloc_pages(c, Order(0), Some(NodeId(1)), flags).is_none());
    });
    pages.verify().unwrap();
}

#[test]
fn another_node_helps_out_unless_this_node_is_asked_for() {
    let machine = sim(2, 2, 8, Schedule::default());
    let pages = Pages::new(&machine, PageModel::HotCold).unwrap();
    let nodes = Mutex::new(Vec::new());
    on(&machine, 0, |c| {
        let mut kept = Vec::new();
        let flags = PageFlags { this_node: true, ..PageFlags::default() };
        while let Some(page) = pages.alloc_pages(c, Order(0), Some(NodeId(0)), flags) {
            kept.push(page);
        }
        let other = pages.alloc_pages(c, Order(0), None, PageFlags::default()).unwrap();
        let there = pages.node_of(other.pfn());
        nodes.lock().unwrap().push(there);
        kept.push(other);
        kept.into_iter().for_each(|p| pages.free_pages(c, p));
    });
    assert_eq!(nodes.into_inner().unwrap(), [NodeId(1)]);
}

#[test]
fn a_free_with_the_wrong_order_and_a_double_free_are_detected() {
    for (what, wrong) in [("order", Order(1)), ("count", Order(0))] {
        let caught = std::panic::catch_unwind(|| {
            let machine = sim(1, 1, 16, Schedule::default());
            let pages = Pages::new(&machine, PageModel::HotCold).unwrap();
            on(&machine, 0, |c| {
                let pfn = pages.alloc_pages(c, Order(0), None, PageFlags::default()).unwrap().into_pfn();
                pages.free_pages(c, Page::of(pfn, wrong));
                pages.free_pages(c, Page::of(pfn, Order(0)));
            });
        });
        let message = *caught.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains(what), "{message}");
    }
}

/// Properties: (1) whatever CPUs allocate and free in whatever schedule, `verify()` holds; (2) no page is handed out twice;
/// (3) after everything is freed and drained, the free blocks are those of the start, as a set.
#[test]
fn any_schedule_keeps_every_page_in_exactly_one_place() {
    let models = [
        PageModel::HotCold,
        PageModel::Single,
        PageModel::SingleTail,
        PageModel::Watermark,
        PageModel::SelfTuning,
        PageModel::NoLists,
    ];
    for (seed, model) in (0..24).zip(models.into_iter().cycle()) {
        let schedule = Schedule { seed, jitter_ps: 20_000, ..Schedule::default() };
        let machine = sim(4, 2, 16, schedule);
        let mut pages = Pages::new(&machine, model).unwrap();
        let start = pages.buddyinfo();
        let owned: Mutex<BTreeMap<u32, u8>> = Mutex::default();
        machine.boot(|c| {
            let mut mine: Vec<Page> = Vec::new();
            for _ in 0..600 {
                let order = Order((c.random(8).saturating_sub(4)) as u8);
                if c.random(200) == 0 {
                    pages.tick(c);
                }
                if c.random(100) < 55 {
                    let node = (c.random(3) == 0).then(|| NodeId(c.random(2) as u16));
                    let Some(page) = pages.alloc_pages(c, order, node, PageFlags::default()) else { continue };
                    let twice = owned.lock().unwrap().insert(page.pfn().0, page.order().0);
                    assert_eq!(twice, None, "page {:?} handed out twice", page.pfn());
                    mine.push(page);
                } else if !mine.is_empty() {
                    let page = mine.swap_remove(c.random(mine.len() as u64) as usize);
                    owned.lock().unwrap().remove(&page.pfn().0);
                    pages.free_pages(c, page);
                }
            }
            mine.into_iter().for_each(|p| {
                owned.lock().unwrap().remove(&p.pfn().0);
                pages.free_pages(c, p);
            });
        });
        pages.verify().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        machine.boot(|c| pages.drain_local(c));
        assert_eq!((pages.buddyinfo(), pages.lent()), (start, 0), "seed {seed}");
        pages.verify().unwrap();
    }
}
