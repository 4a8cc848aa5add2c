//! Fragmentation: memory made so before a run, and the indices that measure it (page-allocator.md §11).

use crate::error::Error;
use crate::machine::{Addr, Arena};
use crate::units::MAX_ORDER;

use super::buddy::Zone;
use super::frame::{self, Field, Pfn};

/// Memory fragmented before the first allocation, reproducibly.
///
/// A share of each zone's largest blocks is shattered: of every two buddies of order 0 one, drawn by the seed, is held for
/// good, so that its other half never merges. The share is such that of the memory left free the part `level` lies in
/// single pages: `level` is the unusable index of order 1 and above at the start (0: nothing changes, 1: only order 0 can be
/// had).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fragmentation {
    level: f64,
    seed: u64,
}

impl Fragmentation {
    /// `level` from 0 to 1.
    pub fn new(level: f64, seed: u64) -> Result<Fragmentation, Error> {
        if !(0.0..=1.0).contains(&level) {
            return Err(Error::new("machine.fragment", level, "a level from 0 (none) to 1 (single pages only)"));
        }
        Ok(Fragmentation { level, seed })
    }

    /// Shatters blocks of a zone whose memory has just been released; returns the pages held.
    pub(super) fn apply(self, zone: &mut Zone, arena: &Arena, map: Addr) -> u64 {
        let mut draw = SplitMix(self.seed ^ (u64::from(zone.start().0) << 32));
        zone.touch_all(arena, map);
        let of_order = |o| zone.linked(arena, map, o).into_iter().map(move |p| (p, o));
        let mut blocks: Vec<(Pfn, usize)> = (1..MAX_ORDER).flat_map(of_order).collect();
        blocks.sort_unstable();
        for i in (1..blocks.len()).rev() {
            blocks.swap(i, draw.below(i as u64 + 1) as usize);
        }
        // Shattering the share s leaves s/2 in single pages and 1 − s whole: level = (s/2) / (1 − s/2).
        let share = 2.0 * self.level / (1.0 + self.level);
        let wanted = (share * zone.free as f64).round() as u64;
        let (mut shattered, mut held) = (0, 0);
        for (block, order) in blocks {
            if shattered + (1 << order) > wanted {
                continue;
            }
            shattered += 1 << order;
            zone.withdraw(arena, map, block, order);
            for pair in 0..1u32 << (order - 1) {
                let kept = draw.below(2) as u32;
                let at = block.0 + 2 * pair;
                arena.poke(frame::field(map, Pfn(at + kept), Field::Private), frame::HELD);
                zone.release(arena, map, Pfn(at + 1 - kept), 0, true);
                held += 1;
            }
        }
        held
    }
}

/// The usual small generator, so that a level and a seed give the same memory everywhere.
struct SplitMix(u64);
impl SplitMix {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * u128::from(n)) >> 64) as u64
    }
}

/// Pages, blocks, and blocks of `order` that could be taken.
fn counts(nr_free: &[u64; MAX_ORDER], order: usize) -> (u64, u64, u64) {
    let pages = nr_free.iter().enumerate().map(|(o, n)| n << o).sum();
    let suitable = nr_free.iter().enumerate().skip(order).map(|(o, n)| n << (o - order)).sum();
    (pages, nr_free.iter().sum(), suitable)
}

/// Why a request of `order` fails, in thousandths (kernel: extfrag_index): −1000 it would not; towards 0 for lack of memory,
/// towards 1000 for fragmentation. Range −1000, −500..1000.
pub fn fragmentation_index(nr_free: &[u64; MAX_ORDER], order: usize) -> i64 {
    let (pages, blocks, suitable) = counts(nr_free, order);
    match (blocks, suitable) {
        (0, _) => 0,
        (_, 1..) => -1000,
        (blocks, 0) => 1000 - ((1000 + pages * 1000 / (1 << order)) / blocks) as i64,
    }
}

/// Share of the free memory that a request of `order` cannot use, in thousandths (kernel: unusable_index); 1000 if nothing
/// is free.
pub fn unusable_index(nr_free: &[u64; MAX_ORDER], order: usize) -> u64 {
    let (pages, _, suitable) = counts(nr_free, order);
    ((pages - (suitable << order)) * 1000).checked_div(pages).unwrap_or(1000)
}

/// External fragmentation in percent: the same share, 0 if nothing is free.
pub fn extfrag_percent(nr_free: &[u64; MAX_ORDER], order: usize) -> u64 {
    let (pages, _, suitable) = counts(nr_free, order);
    ((pages - (suitable << order)) * 100).checked_div(pages).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// §13.15: free blocks; then order, fragmentation index, unusable index, percent.
    #[test]
    fn the_indices_follow_the_table() {
        type Row = (usize, i64, u64, u64);
        let table: [([u64; MAX_ORDER], &[Row]); 8] = [
            (
                [400, 200, 50, 10, 2, 1, 0, 0, 0, 0, 0],
                &[
                    (0, -1000, 0, 0),
                    (1, -1000, 349, 34),
                    (3, -1000, 874, 87),
                    (5, -1000, 972, 97),
                    (6, 972, 1000, 100),
                    (9, 996, 1000, 100),
                    (10, 997, 1000, 100),
                ],
            ),
            (
                [1000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                &[(0, -1000, 0, 0), (1, 499, 1000, 100), (2, 749, 1000, 100), (3, 874, 1000, 100), (9, 998, 1000, 100)],
            ),
            (
                [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                &[(1, 167, 1000, 100), (2, 417, 1000, 100), (3, 542, 1000, 100), (9, 665, 1000, 100)],
            ),
            ([0; MAX_ORDER], &[(0, 0, 1000, 0), (3, 0, 1000, 0)]),
            ([12, 7, 3, 1, 0, 0, 0, 0, 0, 0, 40], &[(0, -1000, 0, 0), (4, -1000, 1, 0), (10, -1000, 1, 0)]),
            (
                [512, 256, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                &[(0, -1000, 0, 0), (1, -1000, 500, 50), (2, 666, 1000, 100), (3, 833, 1000, 100), (9, 997, 1000, 100)],
            ),
            ([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], &[(8, -1000, 0, 0), (9, -500, 1000, 100), (10, -250, 1000, 100)]),
            ([50000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[(1, 500, 1000, 100), (9, 999, 1000, 100), (10, 1000, 1000, 100)]),
        ];
        for (free, rows) in table {
            for &(order, index, unusable, percent) in rows {
                assert_eq!(fragmentation_index(&free, order), index, "{free:?}, order {order}");
                assert_eq!(unusable_index(&free, order), unusable, "{free:?}, order {order}");
                assert_eq!(extfrag_percent(&free, order), percent, "{free:?}, order {order}");
            }
        }
    }

    #[test]
    fn the_unusable_index_never_falls_with_the_order() {
        for free in [[400, 200, 50, 10, 2, 1, 0, 0, 0, 0, 3], [7, 0, 9, 1, 0, 0, 0, 2, 0, 1, 0]] {
            for order in 1..MAX_ORDER {
                assert!(unusable_index(&free, order) >= unusable_index(&free, order - 1));
                assert!(unusable_index(&free, order) <= 1000);
            }
        }
    }

    #[test]
    fn a_level_outside_0_to_1_is_refused() {
        for level in [2.0, -0.1, f64::NAN] {
            assert!(Fragmentation::new(level, 1).unwrap_err().to_string().contains("machine.fragment"));
        }
    }
}
