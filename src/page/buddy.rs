//! Zones: free areas of orders 0..10, splitting and merging (page-allocator.md §2).

use std::ops::Range;

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

/// The other half of the block one order up.
fn buddy(pfn: u32, order: usize) -> u32 {
    pfn ^ (1 << order)
}

/// Largest order, and pages of such a block.
const TOP: usize = MAX_ORDER - 1;
const TOP_PAGES: u32 = 1 << TOP;

/// The free blocks of one zone, under its lock.
///
/// Blocks of the largest order that boot handed over and nobody has taken yet are not linked: they are the range
/// `untouched`, which goes on where the list of that order ends. So a terabyte costs the host nothing before it is used.
/// Two blocks, if there are, always stand in the list: taking one touches its neighbour.
pub(super) struct Zone {
    addr: Addr,
    start: u32,
    pages: u32,
    lists: [FrameList; MAX_ORDER],
    untouched: Range<u32>,
    pub(super) nr_free: [u64; MAX_ORDER],
    /// Pages in free blocks.
    pub(super) free: u64,
    pub(super) splits: u64,
    pub(super) merges: u64,
    model: PageModel,
    /// `PageModel::Stack`: the lowest frame never handed out.
    fresh: u32,
}

/// Pages between two looks whether the run was asked to stop: 512 MiB, some milliseconds.
const POLL: u32 = 1 << 17;

impl Zone {
    pub(super) fn new(addr: Addr, start: Pfn, pages: u32, model: PageModel) -> Zone {
        Zone {
            addr,
            start: start.0,
            pages,
            lists: Default::default(),
            untouched: 0..0,
            nr_free: [0; MAX_ORDER],
            free: 0,
            splits: 0,
            merges: 0,
            model,
            fresh: start.0,
        }
    }

    /// Its first frame.
    pub(super) fn start(&self) -> Pfn {
        Pfn(self.start)
    }

    /// Boot: all frames free, in the largest aligned blocks, ascending, each put at the head of its list (5.10 and later:
    /// at the tail).
    pub(super) fn release_all(&mut self, arena: &Arena, map: Addr, poll: impl Fn()) {
        if self.model == PageModel::Stack {
            self.free = u64::from(self.pages);
            return;
        }
        let (mut at, end) = (self.start, self.start + self.pages);
        let (low, high) = (at.next_multiple_of(TOP_PAGES), end / TOP_PAGES * TOP_PAGES);
        if low < high {
            self.untouched = low..high;
            self.nr_free[TOP] = u64::from((high - low) / TOP_PAGES);
            self.free = u64::from(high - low);
            self.link_untouched(arena, map, 2);
        }
        while at < end {
            if at == low && low < high {
                at = high;
                continue;
            }
            if at.is_multiple_of(POLL) {
                poll();
            }
            let aligned = if at == 0 { MAX_ORDER as u32 - 1 } else { at.trailing_zeros().min(MAX_ORDER as u32 - 1) };
            let order = (0..=aligned).rev().find(|o| at + (1 << o) <= end).unwrap_or(0);
            self.release(arena, map, Pfn(at), order as usize, !self.model.is_modern());
            at += 1 << order;
        }
    }

    /// Links untouched blocks until the list of the largest order has `wanted`, uncharged.
    fn link_untouched(&mut self, arena: &Arena, map: Addr, wanted: usize) {
        while self.lists[TOP].len() < wanted && !self.untouched.is_empty() {
            let pfn = if self.model.is_modern() {
                self.untouched.start += TOP_PAGES;
                self.untouched.start - TOP_PAGES
            } else {
                self.untouched.end -= TOP_PAGES;
                self.untouched.end
            };
            self.link(arena, map, Pfn(pfn), TOP, false);
        }
    }

    /// Links every block.
    pub(super) fn touch_all(&mut self, arena: &Arena, map: Addr) {
        self.link_untouched(arena, map, usize::MAX);
    }

    /// Free blocks of an order that are linked, head first.
    pub(super) fn linked(&self, arena: &Arena, map: Addr, order: usize) -> Vec<Pfn> {
        self.lists[order].walk(arena, map).collect()
    }

    fn link(&mut self, arena: &Arena, map: Addr, pfn: Pfn, order: usize, front: bool) {
        arena.poke(frame::field(map, pfn, Field::Private), frame::free(Order(order as u8)));
        let edit = &mut |p, f: &mut dyn FnMut(u32, u32) -> (u32, u32)| {
            frame::edit_raw::<crate::machine::sim::SimCpu>(None, arena, map, p, f);
        };
        self.lists[order].link(edit, pfn, front);
    }

    /// Queues a free block, uncharged: memory that boot hands over.
    pub(super) fn release(&mut self, arena: &Arena, map: Addr, pfn: Pfn, order: usize, front: bool) {
        self.link(arena, map, pfn, order, front);
        self.nr_free[order] += 1;
        self.free += 1 << order;
    }

    /// Takes a free block out of its list, uncharged.
    pub(super) fn withdraw(&mut self, arena: &Arena, map: Addr, pfn: Pfn, order: usize) {
        let edit = &mut |p, f: &mut dyn FnMut(u32, u32) -> (u32, u32)| {
            frame::edit_raw::<crate::machine::sim::SimCpu>(None, arena, map, p, f);
        };
        self.lists[order].unlink(edit, pfn);
        arena.poke(frame::field(map, pfn, Field::Private), 0);
        self.nr_free[order] -= 1;
        self.free -= 1 << order;
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
        self.link_untouched(c.arena, c.map, 2);
        for o in (wanted..found).rev() {
            self.splits += 1;
            self.insert(c, Pfn(pfn.0 + (1 << o)), o, true);
        }
        self.free -= order.pages();
        Some(pfn)
    }

    /// Returns a block and merges it with its buddy as long as that is free; the result goes to the head of its list.
    pub(super) fn give<M: Machine>(&mut self, c: &Charge<'_, M>, pfn: Pfn, order: Order) {
        self.free += order.pages();
        let (mut at, mut o) = (pfn.0, usize::from(order.0));
        if !self.model.is_buddy() {
            self.insert(c, pfn, o, true);
            return;
        }
        while o < MAX_ORDER - 1 && self.free_at(c, buddy(at, o), o) {
            self.unlink(c, Pfn(buddy(at, o)), o);
            self.merges += 1;
            at &= buddy(at, o);
            o += 1;
        }
        let tail = self.model.likely_merge_to_tail() && self.merge_is_likely(c, at, o);
        self.insert(c, Pfn(at), o, !tail);
    }

    /// One more free would let a larger block form: the buddy of the combined block is free.
    fn merge_is_likely<M: Machine>(&self, c: &Charge<'_, M>, at: u32, o: usize) -> bool {
        o <= MAX_ORDER - 3 && self.free_at(c, buddy(at & buddy(at, o), o + 1), o + 1)
    }

    /// Whether a free block of order `o` starts at `at`, inside the zone: reads its descriptor.
    fn free_at<M: Machine>(&self, c: &Charge<'_, M>, at: u32, o: usize) -> bool {
        at >= self.start
            && at + (1 << o) <= self.start + self.pages
            && c.arena.load(c.cpu, frame::field(c.map, Pfn(at), Field::Private)) == frame::free(Order(o as u8))
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

    fn insert<M: Machine>(&mut self, c: &Charge<'_, M>, pfn: Pfn, o: usize, front: bool) {
        c.cpu.touch(self.area(o), Access::Write);
        c.arena.store(c.cpu, frame::field(c.map, pfn, Field::Private), frame::free(Order(o as u8)));
        self.lists[o].link(&mut |p, f| frame::edit_raw(Some(c.cpu), c.arena, c.map, p, f), pfn, front);
        self.nr_free[o] += 1;
    }

    fn unlink<M: Machine>(&mut self, c: &Charge<'_, M>, pfn: Pfn, o: usize) {
        c.cpu.touch(self.area(o), Access::Write);
        c.cpu.touch(frame::field(c.map, pfn, Field::Links), Access::Read);
        self.lists[o].unlink(&mut |p, f| frame::edit_raw(Some(c.cpu), c.arena, c.map, p, f), pfn);
        c.arena.poke(frame::field(c.map, pfn, Field::Private), 0);
        self.nr_free[o] -= 1;
    }

    /// Memory that nobody has taken yet, first frame and end: free, in blocks of the largest order.
    pub(super) fn untouched(&self) -> [u32; 2] {
        [self.untouched.start, self.untouched.end]
    }
    /// Whether a page lies in it.
    pub(super) fn is_untouched(&self, pfn: Pfn) -> bool {
        self.untouched.contains(&pfn.0)
    }

    /// Line of a free area: list head and count, 24 bytes each.
    fn area(&self, o: usize) -> Addr {
        self.addr.plus(o as u64 * 24 % 128)
    }

    /// Checks the lists and marks their pages in `seen`; returns the number of free pages.
    pub(super) fn verify(
        &self,
        arena: &Arena,
        map: Addr,
        seen: &mut [bool],
        zone: usize,
        poll: impl Fn(),
    ) -> Result<u64, Corruption> {
        let mut free = 0;
        for (o, list) in self.lists.iter().enumerate() {
            let place = || format!("zone {zone}, free area of order {o}");
            let blocks: Vec<Pfn> = list.walk(arena, map).collect();
            let untouched = if o == TOP { self.untouched.len() as u64 / u64::from(TOP_PAGES) } else { 0 };
            let count = blocks.len() as u64 + untouched;
            crate::ensure!(count == self.nr_free[o], place(), "nr_free {} but {count} blocks", self.nr_free[o]);
            free += untouched << o;
            for pfn in blocks {
                if pfn.0.is_multiple_of(POLL) {
                    poll();
                }
                crate::ensure!(pfn.0 % (1 << o) == 0, place(), "block {pfn:?} is not aligned");
                let inside = pfn.0 >= self.start && pfn.0 + (1 << o) <= self.start + self.pages;
                crate::ensure!(inside, place(), "block {pfn:?} leaves the zone");
                let mark = arena.peek(frame::field(map, pfn, Field::Private));
                crate::ensure!(mark == frame::free(Order(o as u8)), place(), "block {pfn:?} has mark {mark:#x}");
                crate::ensure!(!self.is_untouched(pfn), place(), "block {pfn:?} is untouched too");
                for i in pfn.0..pfn.0 + (1 << o) {
                    crate::ensure!(!seen[i as usize], place(), "page {i} is free twice");
                    seen[i as usize] = true;
                }
                let buddy = buddy(pfn.0, o);
                let inside = buddy >= self.start && buddy + (1 << o) <= self.start + self.pages;
                if o < MAX_ORDER - 1 && inside && self.model.is_buddy() {
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
        if self.model.is_buddy() {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// §13.3.
    #[test]
    fn buddy_and_combined_block_follow_from_the_frame_number() {
        for (pfn, order, other, combined) in [
            (5, 0, 4, 4),
            (6, 1, 4, 4),
            (12, 2, 8, 8),
            (24, 3, 16, 16),
            (1025, 0, 1024, 1024),
            (1026, 1, 1024, 1024),
            (1536, 9, 1024, 1024),
            (1024, 10, 0, 0),
            (4096, 10, 5120, 4096),
        ] {
            assert_eq!((buddy(pfn, order), pfn & buddy(pfn, order)), (other, combined), "{pfn}/{order}");
        }
    }
}
