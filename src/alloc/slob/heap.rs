//! The heap: lists of partly free pages, all behind `slob_lock`. Where a block comes from and where it goes back to.
//!
//! Each list is searched from its head, and the search is next fit: after a success the list is rotated so that the
//! next one begins near the page just used. Rotation moves the head, not the pages: the cyclic order never changes.
//!
//! Invariants: a page is in exactly one list while it has free units, in none while it is full; an empty page does not
//! exist; `taken = returned + pages of the heap`.

use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::page::{Field, FrameList, Page, Pages, Pfn};
use crate::units::{NodeId, Order};

use super::page::{Fit, HeapPage, UNITS};
use super::policy::{Config, Rotation};

/// `Field::Flags` of a page of the heap (kernel: PG_active, later PG_slab).
pub(super) const HEAP: u64 = 1 << 1;

/// What `slob_lock` protects.
pub(super) struct Heap {
    /// Pages with free units, by [`Config::list`].
    pub lists: [FrameList; 3],
    /// Pages taken from the page allocator since the start.
    pub taken: u64,
    /// Pages returned to it.
    pub returned: u64,
    /// The line of the list heads.
    heads: Addr,
}

/// A block found in the lists.
pub(super) struct Found {
    /// Its first byte.
    pub addr: Addr,
    /// It was found in the page that the list began with.
    pub first_page: bool,
}

impl Heap {
    pub fn new(heads: Addr) -> Heap {
        Heap { lists: Default::default(), taken: 0, returned: 0, heads }
    }

    /// Takes a block from the first page of a list that can hold it (kernel: the walk in slob_alloc). One descriptor line
    /// per page looked at, and the lines of [`HeapPage::take`] in pages with enough free units.
    pub fn take<M: Machine>(
        &mut self,
        pages: &Pages<'_, M>,
        cpu: &M::Cpu,
        policy: &Config,
        list: usize,
        fit: Fit,
        node: Option<NodeId>,
    ) -> Option<Found> {
        cpu.touch(self.heads, Access::Read);
        let (mut at, mut before) = (self.lists[list].first(), None);
        while let Some(pfn) = at {
            let page = HeapPage::of(pages, pfn);
            cpu.touch(pages.descriptor(pfn), Access::Read);
            let there = node.is_none_or(|n| pages.node_of(pfn) == n);
            // Enough free units in all is no promise: they may lie in fragments.
            if there
                && page.free_units() >= fit.units
                && let Some(start) = page.take(cpu, fit)
            {
                page.set_live_units(page.live_units() + fit.units);
                if page.free_units() == 0 {
                    self.unlink(pages, cpu, pfn);
                }
                self.rotate(pages, cpu, policy.rotation, list, before, pfn);
                return Some(Found { addr: page.addr(start), first_page: before.is_none() });
            }
            cpu.work(cost::SLOB_WALK_PAGE);
            (at, before) = (self.lists[list].next(pages, cpu, pfn), Some(pfn));
        }
        None
    }

    /// Lets the next search begin near `used`, the page after `before` when the search found it.
    fn rotate<M: Machine>(
        &mut self,
        pages: &Pages<'_, M>,
        cpu: &M::Cpu,
        rotation: Rotation,
        list: usize,
        before: Option<Pfn>,
        used: Pfn,
    ) {
        let Some(before) = before else { return };
        let first = match rotation {
            // Whatever follows `before` now: the page, or if that has become full its successor, if there is one.
            Rotation::Old => self.lists[list].next(pages, cpu, before),
            Rotation::New => (HeapPage::of(pages, used).free_units() > 0).then_some(used),
        };
        if let Some(first) = first {
            cpu.touch(self.heads, Access::Write);
            self.lists[list].rotate_to(pages, cpu, first);
        }
    }

    /// Adds a fresh page at the head of a list and takes the block from it.
    pub fn add<M: Machine>(&mut self, pages: &Pages<'_, M>, cpu: &M::Cpu, list: usize, fit: Fit, pfn: Pfn) -> Addr {
        let page = HeapPage::of(pages, pfn);
        pages.store(cpu, pfn, Field::Flags, HEAP);
        self.taken += 1;
        page.restart(cpu, 0, UNITS);
        let start = page.take(cpu, fit).expect("a block smaller than a page fits into an empty one");
        page.set_live_units(fit.units);
        if page.free_units() > 0 {
            self.link(pages, cpu, list, pfn);
        }
        page.addr(start)
    }

    /// Puts a block back into its page; returns the page if this was its last one (kernel: slob_free). One descriptor
    /// line, and the lines of [`HeapPage::give`]; list neighbours if the page was full or becomes empty.
    #[must_use]
    pub fn give<M: Machine>(
        &mut self,
        pages: &Pages<'_, M>,
        cpu: &M::Cpu,
        policy: &Config,
        pfn: Pfn,
        (at, units): (u64, u64),
        relist: usize,
    ) -> Option<Page> {
        let page = HeapPage::of(pages, pfn);
        let flags = pages.load(cpu, pfn, Field::Flags);
        let free = page.free_units();
        assert!(
            flags & HEAP != 0 && at + units <= UNITS && free + units <= UNITS,
            "slob: page {pfn:?}: freed {units} units at {at}, expected a block of a heap page with at most {} used units, \
             found flags {flags:#x} and {free} free units",
            UNITS - free
        );
        page.set_live_units(page.live_units().saturating_sub(units));
        if free + units == UNITS {
            if free > 0 {
                self.unlink(pages, cpu, pfn);
            }
            self.returned += 1;
            return Some(Page::of(pfn, Order(0)));
        }
        if free == 0 {
            page.restart(cpu, at, units);
            self.link(pages, cpu, relist, pfn);
        } else {
            page.give(cpu, at, units, policy.head_merge);
        }
        None
    }

    /// Puts a page at the head of a list, which its descriptor remembers.
    fn link<M: Machine>(&mut self, pages: &Pages<'_, M>, cpu: &M::Cpu, list: usize, pfn: Pfn) {
        cpu.touch(self.heads, Access::Write);
        pages.poke(pfn, Field::Owner, list as u64);
        self.lists[list].push_front(pages, cpu, pfn);
    }
    fn unlink<M: Machine>(&mut self, pages: &Pages<'_, M>, cpu: &M::Cpu, pfn: Pfn) {
        let list = pages.peek(pfn, Field::Owner) as usize;
        self.lists[list].remove(pages, cpu, pfn);
    }
}
