//! Zones: free areas of orders 0..10, splitting and merging, watermarks (page-allocator.md §2 and §7).

use crate::error::Corruption;
use crate::machine::{Access, Addr, Arena, Cpu, Machine};
use crate::units::{MAX_ORDER, Order};

use super::PageModel;
use super::frame::{self, Field, FrameList, Pfn};

/// Whose time pays, and which memory is meant.
pub(super) struct Charge<'a, M: Machine> {
    pub(super) cpu: &'a M::Cpu,
    pub(super) arena: &'a Arena,
    pub(super) map: Addr,
}

/// The free blocks of one zone, under its lock.
pub(super) struct Zone {
    addr: Addr,
    start: u32,
    pages: u32,
    pub(super) lists: [FrameList; MAX_ORDER],
    pub(super) nr_free: [u64; MAX_ORDER],
    /// Pages in free blocks.
    pub(super) free: u64,
    pub(super) splits: u64,
    pub(super) merges: u64,
    model: PageModel,
    /// `PageModel::Stack`: the lowest frame never handed out.
    fresh: u32,
}

impl Zone {
    pub(super) fn new(addr: Addr, start: Pfn, pages: u32, model: PageModel) -> Zone {
        Zone {
            addr,
            start: start.0,
            pages,
            lists: Default::default(),
            nr_free: [0; MAX_ORDER],
            free: 0,
            splits: 0,
            merges: 0,
            model,
            fresh: start.0,
        }
    }

    /// Boot: all frames free, in the largest aligned blocks, ascending, each put at the head of its list.
    pub(super) fn release_all(&mut self, arena: &Arena, map: Addr) {
        if self.model == PageModel::Stack {
            self.free = u64::from(self.pages);
            return;
        }
        let (mut at, end) = (self.start, self.start + self.pages);
        while at < end {
            let aligned = if at == 0 { MAX_ORDER as u32 - 1 } else { at.trailing_zeros().min(MAX_ORDER as u32 - 1) };
            let order = (0..=aligned).rev().find(|o| at + (1 << o) <= end).unwrap_or(0);
            arena.poke(frame::field(map, Pfn(at), Field::Private), frame::free(Order(order as u8)));
            let edit = &mut |p, f: &mut dyn FnMut(u32, u32) -> (u32, u32)| {
                frame::edit_raw::<crate::machine::sim::SimCpu>(None, arena, map, p, f);
            };
            self.lists[order as usize].link(edit, Pfn(at), true);
            self.nr_free[order as usize] += 1;
            self.free += 1 << order;
            at += 1 << order;
        }
    }

    /// Takes the head of the smallest sufficient list and splits it; the lower half is handed out each time.
    pub(super) fn take<M: Machine>(&mut self, c: &Charge<'_, M>, order: Order) -> Option<Pfn> {
        if self.model == PageModel::Stack {
            return self.take_stack(c, order);
        }
        let wanted = usize::from(order.0);
        let found = (wanted..MAX_ORDER).find(|o| {
            c.cpu.touch(self.area(*o), Access::Read);
            self.nr_free[*o] > 0
        })?;
        let pfn = self.lists[found].first().expect("nr_free counts the list");
        self.unlink(c, pfn, found);
        for o in (wanted..found).rev() {
            self.splits += 1;
            self.insert(c, Pfn(pfn.0 + (1 << o)), o);
        }
        self.free -= order.pages();
        Some(pfn)
    }

    /// Returns a block and merges it with its buddy as long as that is free; the result goes to the head of its list.
    pub(super) fn give<M: Machine>(&mut self, c: &Charge<'_, M>, pfn: Pfn, order: Order) {
        self.free += order.pages();
        let (mut at, mut o) = (pfn.0, usize::from(order.0));
        if self.model == PageModel::Stack {
            self.insert(c, pfn, o);
            return;
        }
        while o < MAX_ORDER - 1 {
            let buddy = at ^ (1 << o);
            if buddy < self.start || buddy + (1 << o) > self.start + self.pages {
                break;
            }
            let mark = c.arena.load(c.cpu, frame::field(c.map, Pfn(buddy), Field::Private));
            if mark != frame::free(Order(o as u8)) {
                break;
            }
            self.unlink(c, Pfn(buddy), o);
            self.merges += 1;
            at &= buddy;
            o += 1;
        }
        self.insert(c, Pfn(at), o);
    }

    fn take_stack<M: Machine>(&mut self, c: &Charge<'_, M>, order: Order) -> Option<Pfn> {
        let o = usize::from(order.0);
        let pfn = match self.lists[o].first() {
            Some(pfn) => {
                self.unlink(c, pfn, o);
                pfn
            }
            None => {
                let at = self.fresh.next_multiple_of(1 << o);
                if at + (1 << o) > self.start + self.pages {
                    return None;
                }
                self.fresh = at + (1 << o);
                Pfn(at)
            }
        };
        self.free -= order.pages();
        Some(pfn)
    }

    fn insert<M: Machine>(&mut self, c: &Charge<'_, M>, pfn: Pfn, o: usize) {
        c.cpu.touch(self.area(o), Access::Write);
        c.arena.store(c.cpu, frame::field(c.map, pfn, Field::Private), frame::free(Order(o as u8)));
        self.lists[o].link(&mut |p, f| frame::edit_raw(Some(c.cpu), c.arena, c.map, p, f), pfn, true);
        self.nr_free[o] += 1;
    }

    fn unlink<M: Machine>(&mut self, c: &Charge<'_, M>, pfn: Pfn, o: usize) {
        c.cpu.touch(self.area(o), Access::Write);
        c.cpu.touch(frame::field(c.map, pfn, Field::Links), Access::Read);
        self.lists[o].unlink(&mut |p, f| frame::edit_raw(Some(c.cpu), c.arena, c.map, p, f), pfn);
        c.arena.poke(frame::field(c.map, pfn, Field::Private), 0);
        self.nr_free[o] -= 1;
    }

    /// Line of a free area: list head and count, 24 bytes each.
    fn area(&self, o: usize) -> Addr {
        self.addr.plus(o as u64 * 24 % 128)
    }

    /// Checks the lists and marks their pages in `seen`; returns the number of free pages.
    pub(super) fn verify(&self, arena: &Arena, map: Addr, seen: &mut [bool], zone: usize) -> Result<u64, Corruption> {
        let mut free = 0;
        for (o, list) in self.lists.iter().enumerate() {
            let place = || format!("zone {zone}, free area of order {o}");
            let blocks: Vec<Pfn> = list.walk(arena, map).collect();
            crate::ensure!(
                blocks.len() as u64 == self.nr_free[o],
                place(),
                "nr_free {} but {} blocks",
                self.nr_free[o],
                blocks.len()
            );
            for pfn in blocks {
                crate::ensure!(pfn.0 % (1 << o) == 0, place(), "block {pfn:?} is not aligned");
                let inside = pfn.0 >= self.start && pfn.0 + (1 << o) <= self.start + self.pages;
                crate::ensure!(inside, place(), "block {pfn:?} leaves the zone");
                let mark = arena.peek(frame::field(map, pfn, Field::Private));
                crate::ensure!(mark == frame::free(Order(o as u8)), place(), "block {pfn:?} has mark {mark:#x}");
                for i in pfn.0..pfn.0 + (1 << o) {
                    crate::ensure!(!seen[i as usize], place(), "page {i} is free twice");
                    seen[i as usize] = true;
                }
                let buddy = pfn.0 ^ (1 << o);
                let inside = buddy >= self.start && buddy + (1 << o) <= self.start + self.pages;
                if o < MAX_ORDER - 1 && inside && self.model == PageModel::HotCold {
                    let mark = arena.peek(frame::field(map, Pfn(buddy), Field::Private));
                    crate::ensure!(
                        mark != frame::free(Order(o as u8)),
                        place(),
                        "buddies {pfn:?} and {buddy} are both free"
                    );
                }
                free += 1 << o;
            }
        }
        if self.model == PageModel::HotCold {
            crate::ensure!(
                free == self.free,
                format!("zone {zone}"),
                "free count {} but {free} pages in blocks",
                self.free
            );
        }
        Ok(free)
    }
}

/// Watermarks [min, low, high] of a zone of `pages` out of `lowmem` pages (2.6.24).
pub(super) fn watermarks(pages: u64, lowmem: u64) -> [u64; 3] {
    let min_free_kbytes = (16 * lowmem * 4).isqrt().clamp(128, 65536);
    let min = (min_free_kbytes / 4) * pages / lowmem.max(1);
    [min, min + min / 4, min + min / 2]
}

/// The watermark test of 2.6.24: at each order below the wanted one its free pages are taken off and the mark is halved.
pub(super) fn watermark_ok(free: u64, nr_free: impl Fn(usize) -> u64, order: Order, mark: u64) -> bool {
    let mut left = (free + 1).saturating_sub(order.pages());
    let mut mark = mark;
    if left <= mark {
        return false;
    }
    for o in 0..usize::from(order.0) {
        left = left.saturating_sub(nr_free(o) << o);
        mark >>= 1;
        if left <= mark {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_of_one_zone_follow_the_2_6_24_table() {
        for (pages, marks) in [
            (4096, [128, 160, 192]),
            (16384, [256, 320, 384]),
            (32768, [362, 452, 543]),
            (131_072, [724, 905, 1086]),
            (229_376, [957, 1196, 1435]),
            (1_048_576, [2048, 2560, 3072]),
            (16_777_216, [8192, 10240, 12288]),
        ] {
            assert_eq!(watermarks(pages, pages), marks, "{pages}");
        }
        assert_eq!(watermarks(4096, 1_048_576), [8, 10, 12]);
        assert_eq!(watermarks(1_044_480, 1_048_576), [2040, 2550, 3060]);
    }

    #[test]
    fn the_watermark_test_halves_the_mark_per_order() {
        let counts = [400u64, 200, 50, 10, 2, 1, 0, 0, 0, 0, 0];
        for (order, mark, ok) in [
            (0, 1000, true),
            (0, 1280, false),
            (0, 640, true),
            (1, 724, true),
            (2, 724, true),
            (3, 724, true),
            (4, 100, true),
            (6, 100, false),
            (0, 1224, false),
            (3, 1100, false),
        ] {
            assert_eq!(watermark_ok(1144, |o| counts[o], Order(order), mark), ok, "order {order}, mark {mark}");
        }
    }
}
