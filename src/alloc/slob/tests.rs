//! The worked examples of slob.md §11 (X1 … X16) as tests, and what holds for any sequence on any number of CPUs.

mod headmerge;
mod invariants;
mod odd;

use std::collections::BTreeMap;
use std::sync::Mutex;

use proptest::prelude::*;

use super::page::{HeapPage, UNITS};
use super::*;
use crate::alloc::Configuration;
use crate::machine::Sim;
use crate::machine::presets::{Machinery, Placement as Choice, Scalar};
use crate::machine::sim::Schedule;
use crate::page::{PageModel, Pfn};

const ALL: [&str; 4] = ["2.6.24", "2.6.24-headmerge", "2.6.27", "6.1"];

fn machine(cpus: u64, schedule: Schedule) -> Sim {
    let small = [("numa_nodes", 1.0), ("arena_per_node", 8.0)];
    let small = small.map(|(k, v)| (k.to_string(), Scalar::Number(v)));
    let hardware =
        Machinery::preset("opteron-2x4-2007", &BTreeMap::from(small), Some(cpus), Choice::Spread).expect("a preset");
    Sim::new(&hardware, schedule).expect("a small machine")
}

fn config(era: &str) -> Config {
    Config { descriptor: 0, ..Config::era(era).expect("a known era") }
}

/// A heap on one CPU. Frames are handed out from 0 up, so the first page of the heap is page 0.
fn with_heap(config: Config, body: impl FnOnce(&mut Bench)) {
    let sim = machine(1, Schedule::default());
    let pages = Pages::new(&sim, PageModel::Stack).unwrap();
    let mut bench = Bench { slob: Slob::new(&pages, &config).unwrap() };
    body(&mut bench);
    bench.slob.verify().unwrap();
}

struct Bench<'p> {
    slob: Slob<'p, Sim>,
}

impl Bench<'_> {
    /// Takes a bare block; returns its page and byte offset.
    fn take(&mut self, bytes: u64, align: u64) -> (u32, u64) {
        let fit = Fit { units: units(bytes), align, offset: 0 };
        let slob = &self.slob;
        let (addr, stat) =
            slob.on_boot_cpu(|cpu| slob.alloc_block(cpu, bytes, fit, Request::default())).expect("memory");
        self.slob.caches[0].tally.get_mut(CpuId(0)).take(stat, bytes, fit.units);
        place(addr)
    }
    fn give(&mut self, (page, at): (u32, u64), bytes: u64) {
        let slob = &self.slob;
        let addr = Addr(u64::from(page) * PAGE_SIZE + at);
        let emptied = slob.on_boot_cpu(|cpu| slob.free_block(cpu, addr, bytes));
        let tally = self.slob.caches[0].tally.get_mut(CpuId(0));
        tally.give(Stat::BlockFree, bytes);
        tally.release(emptied, units(bytes));
    }
    fn kmalloc(&mut self, bytes: u64) -> (u32, u64) {
        let slob = &self.slob;
        place(slob.on_boot_cpu(|cpu| slob.kmalloc(cpu, bytes, Request::default())).expect("memory").addr())
    }
    /// Objects that a cache takes before it needs a second page.
    fn per_page(&mut self, spec: CacheSpec) -> usize {
        let id = self.slob.create_cache(spec).unwrap();
        let slob = &self.slob;
        let next = || slob.on_boot_cpu(|cpu| slob.alloc(cpu, id, Request::default())).expect("memory");
        (0..).take_while(|_| place(next().addr()).0 == 0).count()
    }
    /// Free blocks of a page, in units: (offset, length).
    fn free(&self, page: u32) -> Vec<(u64, u64)> {
        HeapPage::of(self.slob.pages, Pfn(page)).blocks().map(|b| (b.at, b.units)).collect()
    }
    /// The two units at a unit offset of page 0.
    fn words(&self, at: u64) -> (i16, i16) {
        let page = HeapPage::of(self.slob.pages, Pfn(0));
        (page.unit(at), page.unit(at + 1))
    }
    /// Pages of a list, in order.
    fn list(&mut self, list: usize) -> Vec<u32> {
        let pages = self.slob.pages;
        self.slob.heap.get_mut().lists[list].iter(pages).map(|p| p.0).collect()
    }
}

fn place(addr: Addr) -> (u32, u64) {
    ((addr.0 / PAGE_SIZE) as u32, addr.0 % PAGE_SIZE)
}

#[test]
fn x1_the_low_end_is_used_and_the_tail_stays_free() {
    with_heap(config("2.6.24"), |b| {
        assert_eq!(b.take(64, 0), (0, 0));
        assert_eq!(b.free(0), [(32, 2016)]);
        assert_eq!(b.words(32), (2016, 2048));
    });
}

#[test]
fn x2_stack_order_leaves_fragments_without_head_merge() {
    type Free = &'static [(u64, u64)];
    let cases: [(&str, [Free; 3], _, _); 2] = [
        (
            "2.6.24",
            [&[(64, 32), (128, 1920)], &[(32, 32), (64, 32), (128, 1920)], &[(0, 32), (32, 32), (64, 32), (128, 1920)]],
            (32, 32),
            [256, 384],
        ),
        (
            "2.6.24-headmerge",
            [&[(64, 32), (128, 1920)], &[(32, 64), (128, 1920)], &[(0, 96), (128, 1920)]],
            (96, 128),
            [0, 256],
        ),
    ];
    for (era, after, words, then) in cases {
        with_heap(config(era), |b| {
            let blocks: Vec<_> = (0..4).map(|_| b.take(64, 0)).collect();
            for (block, free) in blocks[..3].iter().rev().zip(after) {
                b.give(*block, 64);
                assert_eq!(b.free(0), free, "{era}");
            }
            assert_eq!(b.words(0), words, "{era}");
            assert_eq!(b.slob.heap().lists[0].free_units, 2016);
            assert_eq!(b.slob.heap().lists[0].touching, if era == "2.6.24" { 2 } else { 0 });
            assert_eq!([b.take(128, 0).1, b.take(192, 0).1], then, "{era}");
        });
    }
}

#[test]
fn x3_only_head_merge_makes_room_for_a_larger_block() {
    for (era, free, room) in [
        ("2.6.24", vec![(1664, 128), (1792, 128), (1920, 128)], (1, 0)),
        ("2.6.24-headmerge", vec![(1664, 384)], (0, 3328)),
    ] {
        with_heap(config(era), |b| {
            let blocks: Vec<_> = (0..16).map(|_| b.take(256, 0)).collect();
            assert_eq!(b.list(0), [0; 0], "a full page is in no list");
            [15, 14, 13].iter().for_each(|&i| b.give(blocks[i], 256));
            assert_eq!(b.free(0), free, "{era}");
            assert_eq!(b.take(512, 0), room, "{era}");
        });
    }
}

#[test]
fn x4_ascending_frees_merge_in_both() {
    for (era, last) in [("2.6.24", vec![(512, 128), (640, 384)]), ("2.6.24-headmerge", vec![(512, 512)])] {
        with_heap(config(era), |b| {
            let blocks: Vec<_> = (0..16).map(|_| b.take(256, 0)).collect();
            [5, 7, 6].iter().for_each(|&i| b.give(blocks[i], 256));
            assert_eq!(b.free(0), [(640, 384)], "{era}");
            b.give(blocks[4], 256);
            assert_eq!(b.free(0), last, "{era}");
        });
    }
}

#[test]
fn x5_a_single_unit_holds_its_next_negated() {
    with_heap(config("2.6.24"), |b| {
        let blocks: Vec<_> = (0..4).map(|_| b.take(2, 0)).collect();
        assert_eq!(blocks, [(0, 0), (0, 2), (0, 4), (0, 6)]);
        b.give(blocks[0], 2);
        assert_eq!(b.words(0).0, -4);
        b.give(blocks[2], 2);
        assert_eq!(b.free(0), [(0, 1), (2, 1), (4, 2044)]);
        assert_eq!((b.words(0).0, b.words(2).0), (-2, -4));
        b.give(blocks[1], 2);
        assert_eq!(b.free(0), [(0, 3), (4, 2044)]);
        assert_eq!(b.words(0), (3, 4));
    });
}

#[test]
fn x6_the_last_free_returns_the_page() {
    with_heap(config("2.6.24"), |b| {
        let blocks: Vec<_> = (0..3).map(|_| b.take(2, 0)).collect();
        b.give(blocks[0], 2);
        assert_eq!((b.free(0), b.words(0).0), (vec![(0, 1), (3, 2045)], -3));
        b.give(blocks[2], 2);
        assert_eq!((b.free(0), b.words(0).0), (vec![(0, 1), (2, 2046)], -2));
        b.give(blocks[1], 2);
        assert_eq!((b.list(0), b.slob.heap().heap_pages), (vec![], 0));
    });
}

#[test]
fn x7_what_alignment_cuts_off_is_reused_and_merged_back() {
    with_heap(config("2.6.24"), |b| {
        assert_eq!(b.take(10, 0), (0, 0));
        let aligned = b.take(100, 64);
        assert_eq!((aligned, b.free(0)), ((0, 64), vec![(5, 27), (82, 1966)]));
        assert_eq!(b.take(20, 8), (0, 16));
        assert_eq!(b.free(0), [(5, 3), (18, 14), (82, 1966)]);
        b.give(aligned, 100);
        assert_eq!(b.free(0), [(5, 3), (18, 2030)]);
    });
}

#[test]
fn x8_natural_alignment_leaves_holes_that_odd_sizes_fill() {
    for (era, objects, free) in [
        ("2.6.24", [8, 80, 152, 264, 320], vec![(126, 2), (176, 1872)]),
        ("6.1", [64, 192, 264, 8, 384], vec![(64, 28), (182, 6), (208, 1840)]),
    ] {
        with_heap(config(era), |b| {
            assert_eq!([64, 64, 100, 48, 32].map(|bytes| b.kmalloc(bytes).1), objects, "{era}");
            assert_eq!(b.free(0), free, "{era}");
        });
    }
}

#[test]
fn x9_kmalloc_objects_of_one_size_per_page() {
    for (bytes, old, new) in [
        (8, 256, 256),
        (16, 170, 128),
        (32, 102, 64),
        (64, 56, 32),
        (96, 39, 39),
        (128, 30, 16),
        (192, 20, 20),
        (256, 15, 8),
        (512, 7, 4),
        (1024, 3, 2),
        (2048, 1, 1),
    ] {
        for (era, per_page) in [("2.6.24", old), ("6.1", new)] {
            with_heap(config(era), |b| {
                assert_eq!((0..).take_while(|_| b.kmalloc(bytes).0 == 0).count(), per_page, "{bytes} bytes, {era}");
            });
        }
    }
}

#[test]
fn x10_a_page_less_the_header_is_the_largest_block() {
    with_heap(config("2.6.24"), |b| {
        assert_eq!(b.kmalloc(4087), (0, 8));
        assert_eq!((b.free(0), b.list(0)), (vec![], vec![]));
        assert_eq!(b.kmalloc(4088), (1, 0));
        assert_eq!((b.slob.heap().heap_pages, b.slob.heap().big_pages), (1, 1));
        assert_eq!(b.kmalloc(4097).1, 0);
        assert_eq!(b.slob.heap().big_pages, 3);
    });
}

#[test]
fn x11_natural_alignment_may_need_a_new_page_in_spite_of_room() {
    with_heap(config("6.1"), |b| {
        assert_eq!((b.kmalloc(2048), b.free(0)), ((0, 2048), vec![(0, 1020)]));
        assert_eq!((b.kmalloc(1024), b.free(1)), ((1, 1024), vec![(0, 508), (1024, 1024)]));
    });
}

#[test]
fn x12_cache_objects_per_page() {
    let sized = |size| CacheSpec::new("c", size);
    for (size, per_page) in
        [(104, 39), (128, 32), (192, 21), (256, 16), (512, 8), (1024, 4), (2048, 2), (4095, 1), (30, 128)]
    {
        with_heap(config("2.6.24"), |b| assert_eq!(b.per_page(sized(size)), per_page, "{size} bytes"));
    }
    let aligned = CacheSpec { align: 64, ..sized(100) };
    with_heap(config("2.6.24"), |b| assert_eq!(b.per_page(aligned), 32));
    let rcu = CacheSpec { typesafe_by_rcu: true, ..sized(104) };
    with_heap(config("2.6.24"), |b| assert_eq!(b.per_page(rcu), 32));
}

#[test]
fn x12_a_small_hwcache_object_takes_a_line_of_its_own_until_the_common_rule_halves_it() {
    let spec = || CacheSpec::new("c", 8).hwcache();
    with_heap(config("2.6.24"), |b| assert_eq!(b.per_page(spec()), 64));
    with_heap(config("6.1"), |b| assert_eq!(b.per_page(spec()), 512));
}

#[test]
fn x13_three_lists_keep_sizes_apart() {
    with_heap(config("2.6.24"), |b| {
        [100, 300, 2000].iter().for_each(|&bytes| assert_eq!(b.take(bytes, 0).0, 0));
        assert_eq!(b.free(0), [(1200, 848)]);
    });
    with_heap(config("2.6.27"), |b| {
        assert_eq!([100, 300, 2000].map(|bytes| b.take(bytes, 0)), [(0, 0), (1, 0), (2, 0)]);
        assert_eq!([0, 1, 2].map(|p| b.free(p)), [[(50, 1998)], [(150, 1898)], [(1000, 1048)]]);
        assert_eq!([0, 1, 2].map(|list| b.list(list)), [[0], [1], [2]]);
    });
}

#[test]
fn x14_rotation_begins_the_next_search_at_the_page_just_used() {
    // With three lists 1000 bytes are medium and would not see these pages; 1024 do.
    for (era, list, bytes, after_full) in
        [("2.6.24", 0, 1000, [0, 2]), ("2.6.27", 2, 1024, [0, 2]), ("6.1", 2, 1024, [2, 0])]
    {
        let three_pages = |b: &mut Bench| {
            (0..3).for_each(|page| assert_eq!(b.take(3000, 0).0, page));
            assert_eq!(b.list(list), [2, 1, 0]);
            assert_eq!((b.take(bytes, 0).0, b.list(list)), (2, vec![2, 1, 0]), "{era}");
        };
        with_heap(config(era), |b| {
            three_pages(b);
            assert_eq!((b.take(bytes, 0).0, b.list(list)), (1, vec![1, 0, 2]), "{era}");
        });
        with_heap(config(era), |b| {
            three_pages(b);
            assert_eq!((b.take(1096, 0).0, b.list(list)), (1, after_full.to_vec()), "{era}");
        });
    }
}

#[test]
fn x15_a_fragmented_page_is_passed_over() {
    for era in ["2.6.24", "6.1"] {
        with_heap(config(era), |b| {
            let list = b.slob.policy.list(1024);
            let blocks: Vec<_> = (0..4).map(|_| b.take(1024, 0)).collect();
            b.give(blocks[0], 1024);
            b.give(blocks[2], 1024);
            assert_eq!(b.free(0), [(0, 512), (1024, 512)]);
            assert_eq!((b.take(1500, 0), b.list(list)), ((1, 0), vec![1, 0]), "{era}");
        });
    }
}

#[test]
fn x16_always_small_lets_small_blocks_into_pages_of_large_ones() {
    for (relist, list, small, large) in [(Relist::AlwaysSmall, 0, 0, 1), (Relist::BySize, 2, 1, 0)] {
        with_heap(Config { relist, ..config("2.6.27") }, |b| {
            let blocks: Vec<_> = (0..4).map(|_| b.take(1024, 0)).collect();
            b.give(blocks[1], 1024);
            assert_eq!(b.list(list), [0], "{relist:?}");
            assert_eq!((b.take(100, 0).0, b.take(1024, 0).0), (small, large), "{relist:?}");
        });
    }
}

#[test]
fn a_search_that_needs_a_node_passes_over_the_pages_of_others() {
    let two = [("arena_per_node", 8.0)].map(|(k, v)| (k.to_string(), Scalar::Number(v)));
    let hardware =
        Machinery::preset("opteron-2x4-2007", &BTreeMap::from(two), Some(2), Choice::Spread).expect("a preset");
    let sim = Sim::new(&hardware, Schedule::default()).unwrap();
    let pages = Pages::new(&sim, PageModel::HotCold).unwrap();
    let slob = Slob::new(&pages, &config("2.6.24")).unwrap();
    let node = |node| {
        let want = Request { node, ..Request::default() };
        let object = slob.on_boot_cpu(|cpu| slob.kmalloc(cpu, 100, want)).unwrap();
        pages.node_of(pages.pfn_of(object.addr()).unwrap()).0
    };
    assert_eq!([None, Some(NodeId(1)), Some(NodeId(0)), Some(NodeId(1))].map(node), [0, 1, 0, 1]);
    // Without a node any page will do, local or not: the list begins with the page of node 1.
    assert_eq!(node(None), 1);
}

#[test]
fn the_descriptor_of_a_cache_is_a_block_too_and_dies_with_it() {
    with_heap(Config::era("2.6.24").unwrap(), |b| {
        let id = b.slob.create_cache(CacheSpec::new("c", 100)).unwrap();
        assert_eq!(b.free(0), [(16, 2032)]);
        let state = b.slob.state(id);
        assert_eq!((&state["pages_alloced"], &state["pages_live"]), (&0.into(), &0.into()));
        b.slob.verify().unwrap();
        let slob = &b.slob;
        assert_eq!(slob.on_boot_cpu(|cpu| slob.destroy(cpu, id)), Destroyed::default());
        assert_eq!(b.slob.heap().heap_pages, 0);
    });
}

#[test]
fn the_header_says_the_size_and_zeroing_ends_with_the_object() {
    with_heap(config("2.6.24"), |b| {
        let slob = &b.slob;
        slob.on_boot_cpu(|cpu| {
            let arena = slob.pages.arena();
            arena.fill(Addr(0), PAGE_SIZE, 0xff);
            let object = slob.kmalloc(cpu, 30, Request { zero: true, ..Request::default() }).unwrap();
            let words: Vec<u64> = (0..5).map(|w| arena.peek(Addr(w * 8))).collect();
            // The header; 24 bytes; six more, then the free block of 2029 units to the end of the page, untouched.
            assert_eq!(words, [30, 0, 0, 0, (2029 | 2048 << 16) << 48]);
            slob.kfree(cpu, object);
        });
        assert_eq!(b.slob.heap(), HeapReport { lists: b.slob.heap().lists, ..HeapReport::default() });
    });
}

#[test]
#[should_panic(expected = "freed twice")]
fn a_second_free_of_a_block_is_refused() {
    with_heap(config("2.6.24"), |b| {
        let blocks: Vec<_> = (0..3).map(|_| b.take(64, 0)).collect();
        b.give(blocks[1], 64);
        b.give(blocks[1], 64);
    });
}

#[test]
fn impossible_caches_are_refused() {
    with_heap(config("2.6.24"), |b| {
        let refused = |b: &mut Bench, spec| b.slob.create_cache(spec).unwrap_err().parameter;
        assert_eq!(refused(b, CacheSpec::new("c", 0)), "cache.size");
        assert_eq!(refused(b, CacheSpec::new("c", 5 << 20)), "cache.size");
        assert_eq!(refused(b, CacheSpec { align: 24, ..CacheSpec::new("c", 100) }), "cache.align");
        assert_eq!(refused(b, CacheSpec { align: 3, ..CacheSpec::new("c", 100) }), "cache.align");
        assert_eq!(refused(b, CacheSpec { align: 8192, ..CacheSpec::new("c", 100) }), "cache.align");
    });
}

/// A live object of the random test: address, size, and how to give it back.
struct Held {
    object: Object,
    cache: Option<CacheId>,
    bytes: u64,
}

/// Properties, for every era, any sequence and any interleaving of up to four CPUs on one or two nodes:
/// 1. `verify()` finds the invariants of pages and lists whole;
/// 2. the live blocks and the free blocks of each page fill it without gap or overlap: live + free units = 2048;
/// 3. objects are aligned, and keep what was written into them;
/// 4. when all is freed, every page has gone back.
fn random_run(era: &str, cpus: u64, nodes: u64, seed: u64) {
    let hardware = Machinery::for_topology(cpus.next_multiple_of(nodes), nodes, 8 << 20).unwrap();
    let sim = Sim::new(&hardware, Schedule { seed, jitter_ps: 200_000, always_suspend: false }).unwrap();
    let mut pages = Pages::new(&sim, PageModel::HotCold).unwrap();
    let mut slob = Slob::new(&pages, &config(era)).unwrap();
    let specs = [(24, 0, false), (30, 0, false), (100, 64, false), (700, 0, false), (40, 0, true), (5000, 0, false)];
    let caches = specs.map(|(size, align, typesafe_by_rcu)| {
        let spec = CacheSpec { align, typesafe_by_rcu, ..CacheSpec::new("c", size) };
        (slob.create_cache(spec).unwrap(), size, align.max(MIN_ALIGN))
    });
    let held = Mutex::new(Vec::<Held>::new());
    let allocate = |cpu: &_| {
        let cpu: &<Sim as Machine>::Cpu = cpu;
        let (cache, bytes, align) = match cpu.random(12) as usize {
            i if i < caches.len() => (Some(caches[i].0), caches[i].1, caches[i].2),
            _ => (None, 1 + cpu.random(if cpu.random(20) == 0 { 9000 } else { 400 }), MIN_ALIGN),
        };
        let node = (cpu.random(3) == 0).then(|| NodeId(cpu.random(nodes) as u16));
        let want = Request { node, ..Request::default() };
        let object = match cache {
            Some(id) => slob.alloc(cpu, id, want),
            None => slob.kmalloc(cpu, bytes, want),
        };
        let Some(object) = object else { return };
        assert_eq!(object.addr().0 % align, 0);
        let home = pages.node_of(pages.pfn_of(object.addr()).unwrap());
        assert!(node.is_none_or(|n| n == home), "{node:?} was asked for, {home:?} given");
        pages.arena().fill(object.addr(), bytes, tag(object.addr()));
        held.lock().unwrap().push(Held { object, cache, bytes });
    };
    let release = |slob: &Slob<'_, Sim>, cpu: &_, h: Held| {
        let (addr, arena) = (h.object.addr(), pages.arena());
        let whole = (0..h.bytes).all(|i| (arena.peek(addr.plus(i)) >> ((addr.0 + i) % 8 * 8)) as u8 == tag(addr));
        assert!(whole, "{} bytes at {addr:?} were overwritten", h.bytes);
        match h.cache {
            Some(id) => slob.free(cpu, id, h.object),
            None => slob.kfree(cpu, h.object),
        }
    };
    sim.boot(|cpu| {
        for step in 0..400u64 {
            let n = held.lock().unwrap().len() as u64;
            // Half of the frees in stack order, so that head merge matters; more of them in the second half.
            if n > 0 && cpu.random(10) < if step < 200 { 4 } else { 6 } {
                let k = if cpu.random(2) == 0 { n - 1 } else { cpu.random(n) };
                let h = held.lock().unwrap().swap_remove(k as usize);
                release(&slob, cpu, h);
            } else {
                allocate(cpu);
            }
        }
    });
    // What waits for a grace period is neither held nor free.
    sim.boot(|cpu| slob.await_grace(cpu));
    let left = held.into_inner().unwrap();
    let mut used = BTreeMap::<u32, Vec<(u64, u64)>>::new();
    for h in &left {
        let (start, bytes) = match h.cache {
            Some(id) => (h.object.addr(), slob.caches[id.0 as usize].size),
            None => (Addr(h.object.addr().0.wrapping_sub(MIN_ALIGN)), h.bytes + MIN_ALIGN),
        };
        let (page, at) = place(start);
        if pages.peek(Pfn(place(h.object.addr()).0), Field::Flags) & HEAP != 0 {
            used.entry(page).or_default().push((at / UNIT, units(bytes)));
        }
    }
    let heap_pages = (0..pages.frames() as u32).filter(|p| pages.peek(Pfn(*p), Field::Flags) & HEAP != 0);
    assert_eq!(heap_pages.collect::<Vec<_>>(), used.keys().copied().collect::<Vec<_>>(), "pages without a live block");
    for (page, mut blocks) in used {
        blocks.extend(HeapPage::of(&pages, Pfn(page)).blocks().map(|b| (b.at, b.units)));
        blocks.sort_unstable();
        let end = blocks.iter().fold(0, |end, &(at, units)| if at == end { end + units } else { u64::MAX });
        assert_eq!(end, UNITS, "page {page}: {blocks:?}");
    }
    slob.verify().unwrap();
    let left = Mutex::new(left);
    sim.boot(|cpu| {
        while let Some(h) = { left.lock().unwrap().pop() } {
            release(&slob, cpu, h);
        }
        slob.await_grace(cpu);
    });
    slob.verify().unwrap();
    let heap = slob.heap();
    assert_eq!((heap.heap_pages, heap.big_pages, heap.live_bytes), (0, 0, 0));
    assert!(heap.lists.iter().all(|l| l.pages == 0));
    pages.verify().unwrap();
    assert_eq!(pages.lent(), 0);
}

fn tag(addr: Addr) -> u8 {
    (addr.0 / 2 % 251) as u8
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn live_and_free_units_fill_every_page_whatever_the_cpus_do(
        era in 0..ALL.len(), cpus in 1u64..=4, nodes in 1u64..=2, seed: u64
    ) {
        random_run(ALL[era], cpus, nodes, seed);
    }
}
