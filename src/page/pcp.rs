//! Per-CPU page lists of 2.6.24: LIFO for reuse, FIFO for return (page-allocator.md §4).
//!
//! Slab pages and socket pages are freed hot, and nobody in this lab asks for cold pages, so of the kernel's two lists
//! (hot, cold) only the hot one ever holds anything; the cold one is left out.

use crate::machine::{Access, Addr, Arena, Cpu, Machine};
use crate::units::fls;

use super::Pages;
use super::frame::{self, Field, FrameList, Pfn};

/// `count = length of list`; after each free `count < high` (with high > 0).
pub(super) struct PageList {
    list: FrameList,
    pub(super) high: u32,
    pub(super) batch: u32,
}

/// The lists of one CPU for one zone, and the address of its line.
pub(super) struct Pageset {
    addr: Addr,
    pub(super) hot: PageList,
}

/// The batch value of a zone: always 2^n − 1, or 0 for tiny zones (kernel: zone_batchsize).
pub(super) fn batch_value(present: u64) -> u32 {
    let mut b = present / 1024;
    if b * 4096 > 512 << 10 {
        b = 128;
    }
    b = (b / 4).max(1);
    (1u32 << (fls(b + b / 2) - 1)) - 1
}

impl Pageset {
    pub(super) fn new(addr: Addr, present: u64) -> Pageset {
        let v = batch_value(present);
        Pageset { addr, hot: PageList { list: FrameList::default(), high: 6 * v, batch: v.max(1) } }
    }
    pub(super) fn charge<C: Cpu>(&self, cpu: &C) {
        cpu.touch(self.addr, Access::Write);
    }
}

impl PageList {
    pub(super) fn take<M: Machine>(&mut self, pages: &Pages<'_, M>, cpu: &M::Cpu) -> Option<Pfn> {
        self.list.pop_front(pages, cpu)
    }

    /// Puts a page at the head; returns a batch from the tail if the list has reached `high`.
    pub(super) fn put<M: Machine>(&mut self, pages: &Pages<'_, M>, cpu: &M::Cpu, pfn: Pfn) -> Vec<Pfn> {
        self.list.push_front(pages, cpu, pfn);
        let n = if self.list.len() as u32 >= self.high { self.batch.min(self.list.len() as u32) } else { 0 };
        self.take_tail(pages, n)
    }

    /// Chains the pages of a refill in front, in the order taken.
    pub(super) fn refill<M: Machine>(&mut self, pages: &Pages<'_, M>, taken: &[Pfn]) {
        for &pfn in taken.iter().rev() {
            pages.poke(pfn, Field::Private, frame::ON_PCP);
            self.list.link(
                &mut |p, f| frame::edit_raw::<M::Cpu>(None, pages.arena(), pages.descriptor(Pfn(0)), p, f),
                pfn,
                true,
            );
        }
    }

    /// Empties the list, tail first.
    pub(super) fn drain<M: Machine>(&mut self, pages: &Pages<'_, M>) -> Vec<Pfn> {
        self.take_tail(pages, self.list.len() as u32)
    }

    fn take_tail<M: Machine>(&mut self, pages: &Pages<'_, M>, n: u32) -> Vec<Pfn> {
        (0..n)
            .map_while(|_| {
                let pfn = self.list.last()?;
                self.list.unlink(
                    &mut |p, f| frame::edit_raw::<M::Cpu>(None, pages.arena(), pages.descriptor(Pfn(0)), p, f),
                    pfn,
                );
                pages.poke(pfn, Field::Private, 0);
                Some(pfn)
            })
            .collect()
    }

    pub(super) fn pages(&self, arena: &Arena, map: Addr) -> Vec<Pfn> {
        self.list.walk(arena, map).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_and_high_follow_the_2_6_24_table() {
        for (present, v) in [
            (1024, 0),
            (4096, 0),
            (8192, 1),
            (16384, 3),
            (32768, 7),
            (65536, 15),
            (131_072, 31),
            (262_144, 31),
            (67_108_864, 31),
        ] {
            assert_eq!(batch_value(present), v, "{present}");
        }
        let p = Pageset::new(Addr(0), 262_144);
        assert_eq!((p.hot.high, p.hot.batch), (186, 31));
    }
}
