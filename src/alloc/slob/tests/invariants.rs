//! The invariants of slob.md §10, each as the sentence it proves, on random sequences.

use super::super::policy::Lists;
use super::*;

/// A stream of pseudo-random numbers (xorshift64).
pub(super) struct Stream(pub u64);

impl Stream {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A block in use: page, byte offset, bytes.
type Used = ((u32, u64), u64);

/// Random blocks of 2 to `most` bytes, some of them aligned; `each` sees the heap after every operation.
fn churn(b: &mut Bench, seed: u64, steps: usize, most: u64, mut each: impl FnMut(&mut Bench)) -> Vec<Used> {
    let mut random = Stream(seed);
    let mut used: Vec<Used> = Vec::new();
    for step in 0..steps {
        if used.len() > 300 || !used.is_empty() && random.below(10) < if step < steps / 2 { 4 } else { 5 } {
            // Half of the frees in stack order.
            let k = if random.below(2) == 0 { used.len() - 1 } else { random.below(used.len() as u64) as usize };
            let (place, bytes) = used.swap_remove(k);
            b.give(place, bytes);
        } else {
            let bytes = 2 + random.below(most - 1);
            let align = [0, 0, 8, 64][random.below(4) as usize];
            used.push((b.take(bytes, align), bytes));
        }
        each(b);
    }
    used
}

/// All pages of the heap, per list in order, as `((page, free blocks))`.
fn lists(b: &mut Bench) -> Vec<Vec<u32>> {
    (0..b.slob.policy.list_names().len()).map(|l| b.list(l)).collect()
}

#[test]
fn with_head_merge_no_free_block_ends_where_the_next_begins() {
    // 10.4, on 80 runs. Without it touching neighbours occur.
    let touching = |era, seed| {
        let mut most = 0;
        with_heap(config(era), |b| {
            churn(b, seed, 400, 300, |_| {});
            most = b.slob.heap().lists.iter().map(|l| l.touching).sum::<u64>();
        });
        most
    };
    for era in ["2.6.24-headmerge", "2.6.27", "6.1"] {
        assert!((1..=80).all(|seed| touching(era, seed) == 0), "{era}");
    }
    assert!((1..=80).map(|seed| touching("2.6.24", seed)).sum::<u64>() > 80, "the defect shows");
}

#[test]
fn with_relisting_by_size_a_page_keeps_its_class_for_life() {
    // 10.7.
    with_heap(config("6.1"), |b| {
        let mut class = BTreeMap::new();
        churn(b, 7, 3000, 1500, |b| {
            let now: BTreeMap<u32, usize> = lists(b)
                .into_iter()
                .enumerate()
                .flat_map(|(l, pages)| pages.into_iter().map(move |p| (p, l)))
                .collect();
            for (page, list) in &now {
                assert_eq!(class.entry(*page).or_insert(*list), list, "page {page}");
            }
            // A page that went back and came again may begin another life.
            class.retain(|page, _| b.slob.pages.peek(Pfn(*page), Field::Flags) & HEAP != 0);
        });
    });
}

#[test]
fn always_small_moves_a_full_page_of_any_class_to_the_small_list_at_its_first_free() {
    // 10.7: one page of each class, filled to the last unit.
    for (bytes, per_page) in [(128u64, 32), (512, 8), (2048, 2)] {
        with_heap(config("2.6.27"), |b| {
            let blocks: Vec<_> = (0..per_page).map(|_| b.take(bytes, 0)).collect();
            assert_eq!(lists(b), [vec![], vec![], vec![]] as [Vec<u32>; 3], "full pages are in no list");
            b.give(blocks[0], bytes);
            assert_eq!(lists(b), [vec![0], vec![], vec![]] as [Vec<u32>; 3]);
        });
    }
}

#[test]
fn objects_of_a_power_of_two_are_aligned_to_it_and_all_others_to_the_minimum() {
    // 10.8.
    with_heap(config("6.1"), |b| {
        for power in 0..12 {
            for _ in 0..5 {
                assert_eq!(b.kmalloc(1 << power).1 % (1u64 << power).max(MIN_ALIGN), 0);
                assert_eq!(b.kmalloc((3 << power) & 0xfff | 1).1 % MIN_ALIGN, 0);
            }
        }
    });
    with_heap(config("2.6.24"), |b| assert_eq!([64, 64].map(|n| b.kmalloc(n).1), [8, 80], "not by nature"));
}

#[test]
fn an_allocation_takes_the_first_page_of_the_list_that_can_hold_it_and_the_lowest_place_in_it() {
    // 10.9, against a search of our own over the lists and blocks as they are before.
    for era in ALL {
        with_heap(config(era), |b| {
            let mut random = Stream(11);
            let mut used: Vec<Used> = Vec::new();
            for _ in 0..1500 {
                if used.len() > 60 && random.below(2) == 0 {
                    let (place, bytes) = used.swap_remove(random.below(used.len() as u64) as usize);
                    b.give(place, bytes);
                    continue;
                }
                let (bytes, align) = (2 + random.below(1400), [1, 8, 64, 256][random.below(4) as usize]);
                let list = b.slob.policy.list(bytes);
                let fits = |(at, free): (u64, u64)| {
                    let start = (at * UNIT).div_ceil(align) * align;
                    (start / UNIT + units(bytes) <= at + free).then_some(start)
                };
                let expected = b.list(list).into_iter().find_map(|page| {
                    let start = b.free(page).into_iter().find_map(fits)?;
                    Some((page, start))
                });
                let found = b.take(bytes, if align == 1 { 0 } else { align });
                if let Some(expected) = expected {
                    assert_eq!(found, expected, "{era}: {bytes} bytes, align {align}");
                } else {
                    assert_eq!(found.1, 0, "{era}: a new page");
                }
                used.push((found, bytes));
            }
        });
    }
}

#[test]
fn rotation_keeps_the_cyclic_order_and_new_and_relisted_pages_come_first() {
    // 10.10.
    let rotated = |before: &[u32], after: &[u32]| {
        before.len() == after.len()
            && (before.is_empty() || (0..before.len()).any(|k| [&before[k..], &before[..k]].concat() == after))
    };
    for era in ALL {
        with_heap(config(era), |b| {
            let mut before = lists(b);
            churn(b, 23, 2500, 1200, |b| {
                let after = lists(b);
                for (old, new) in before.iter().zip(&after) {
                    let fresh: Vec<u32> = new.iter().copied().filter(|p| !old.contains(p)).collect();
                    assert!(fresh.len() <= 1, "{era}: one operation lists one page at most");
                    if let Some(page) = fresh.first() {
                        assert_eq!(new.first(), Some(page), "{era}: a new or relisted page is first");
                    }
                    let stayed = |list: &[u32], other: &[u32]| -> Vec<u32> {
                        list.iter().copied().filter(|p| other.contains(p)).collect()
                    };
                    assert!(rotated(&stayed(old, new), &stayed(new, old)), "{era}: {old:?} became {new:?}");
                }
                before = after;
            });
        });
    }
}

#[test]
fn head_merge_changes_nothing_while_no_block_is_freed_directly_below_the_first_free_one() {
    // 10.11: the same choices for both, frees of that kind left out.
    let run = |era: &str| {
        let mut trace = Vec::new();
        with_heap(config(era), |b| {
            let mut random = Stream(31);
            let mut used: Vec<Used> = Vec::new();
            for _ in 0..3000 {
                let pick = random.below(1 << 20);
                if used.len() > 200 || !used.is_empty() && random.below(10) < 4 {
                    let k = (pick % used.len() as u64) as usize;
                    let ((page, at), bytes) = used[k];
                    let touches = b.free(page).first().is_some_and(|(first, _)| at / UNIT + units(bytes) == *first);
                    if !touches {
                        used.swap_remove(k);
                        b.give((page, at), bytes);
                    }
                } else {
                    let bytes = 2 + pick % 700;
                    used.push((b.take(bytes, 0), bytes));
                    trace.push(used[used.len() - 1]);
                }
            }
        });
        trace
    };
    let (plain, merged) = (run("2.6.24"), run("2.6.24-headmerge"));
    assert!(plain.len() > 1000);
    assert_eq!(plain, merged);
}

#[test]
fn with_everything_freed_every_page_is_back() {
    // 10.5 and 10.12.
    for era in ALL {
        with_heap(config(era), |b| {
            for (place, bytes) in churn(b, 41, 1500, 3000, |_| {}) {
                b.give(place, bytes);
            }
            let heap = b.slob.heap();
            assert_eq!((heap.heap_pages, heap.big_pages), (0, 0), "{era}");
            assert_eq!(b.slob.pages.lent(), 0, "{era}");
        });
    }
}

#[test]
fn live_and_free_units_of_every_page_are_2048() {
    // 10.3, and `verify()` sees it when they are not.
    with_heap(config("6.1"), |b| {
        let used = churn(b, 43, 500, 900, |b| {
            b.slob.verify().unwrap();
        });
        let mut per_page = BTreeMap::<u32, u64>::new();
        used.iter().for_each(|((page, _), bytes)| *per_page.entry(*page).or_default() += units(*bytes));
        for (page, live) in per_page {
            let page = HeapPage::of(b.slob.pages, Pfn(page));
            assert_eq!((page.live_units(), page.live_units() + page.free_units()), (live, UNITS));
        }
        let page = HeapPage::of(b.slob.pages, Pfn(used[0].0.0));
        let live = page.live_units();
        page.set_live_units(live - 1);
        assert!(b.slob.verify().unwrap_err().to_string().contains("units of live blocks"));
        page.set_live_units(live);
    });
}

#[test]
fn the_single_lock_is_taken_once_an_operation_and_once_more_for_a_new_page() {
    // §9.
    let mut sim = machine(1, Schedule::default());
    for (era, lists) in [("2.6.24", Lists::One), ("6.1", Lists::Three)] {
        let pages = Pages::new(&sim, PageModel::Stack).unwrap();
        let slob = Slob::new(&pages, &config(era)).unwrap();
        assert_eq!(slob.policy.lists, lists);
        sim.boot(|cpu| {
            sim.reset_report(cpu);
            let objects: Vec<_> = (0..10).map(|_| slob.kmalloc(cpu, 100, Request::default()).unwrap()).collect();
            objects.into_iter().for_each(|o| slob.kfree(cpu, o));
        });
        drop(slob);
        drop(pages);
        let taken: u64 = sim.report().locks.iter().filter(|l| l.class == "slob_lock").map(|l| l.acquired).sum();
        assert_eq!(taken, 10 + 1 + 10, "{era}");
    }
}
