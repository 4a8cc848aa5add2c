//! Requests of a page or more: straight to the page allocator and back. And what kmalloc can say of its objects' sizes.

use super::cache::Tally;
use super::heap::HEAP;
use super::page::UNIT;
use super::policy::Create;
use super::{BIG, MAX_BYTES, MIN_ALIGN, Slob};
use crate::alloc::{SlabAllocator, Stat, ZERO_SIZE};
use crate::machine::{Addr, Machine, PerCpu};
use crate::page::{Asker, Field, Page, PageFlags};
use crate::spec::{Object, Request};
use crate::units::{Order, round_up};

impl<M: Machine> Slob<'_, M> {
    /// kmalloc of a page or more: the descriptor remembers the size.
    pub(super) fn kmalloc_big(
        &self,
        cpu: &M::Cpu,
        tally: &PerCpu<M, Tally>,
        bytes: u64,
        want: Request,
    ) -> Option<Object> {
        if bytes > MAX_BYTES {
            return None;
        }
        let pfn = self.alloc_big(cpu, tally, bytes, Order::for_bytes(bytes), Asker::Kmalloc, want)?.into_pfn();
        self.pages.store(cpu, pfn, Field::Flags, BIG);
        self.pages.poke(pfn, Field::Extra, bytes);
        Some(Object::at(self.pages.addr_of(pfn)))
    }

    /// Passes a request on to the page allocator; only kmalloc's are compound pages.
    pub(super) fn alloc_big(
        &self,
        cpu: &M::Cpu,
        tally: &PerCpu<M, Tally>,
        bytes: u64,
        order: Order,
        asker: Asker,
        want: Request,
    ) -> Option<Page> {
        let Request { node, this_node, zero, atomic, .. } = want;
        let compound = asker == Asker::Kmalloc && order.0 > 0;
        let flags = PageFlags { atomic, this_node, zero, compound, asker, ..PageFlags::default() };
        let page = self.take_pages(cpu, order, node, flags)?;
        tally.with(cpu, |t| {
            t.take(Stat::LargeAlloc, bytes, 0);
            t.big_pages += order.pages() as i64;
            t.big_taken += order.pages();
        });
        Some(page)
    }
    pub(super) fn kfree_big(&self, cpu: &M::Cpu, tally: &PerCpu<M, Tally>, addr: Addr) {
        let pfn = self.frame(addr);
        let flags = self.pages.peek(pfn, Field::Flags);
        assert!(
            flags & BIG != 0 && addr == self.pages.addr_of(pfn),
            "slob: kfree of {addr:?} in page {pfn:?}: expected what kmalloc returned, found flags {flags:#x}"
        );
        let bytes = self.pages.peek(pfn, Field::Extra);
        tally.with(cpu, |t| t.give(Stat::LargeFree, bytes));
        self.free_big(cpu, tally, addr, Order::for_bytes(bytes));
    }
    pub(super) fn free_big(&self, cpu: &M::Cpu, tally: &PerCpu<M, Tally>, addr: Addr, order: Order) {
        self.pages.free_pages(cpu, Page::of(self.frame(addr), order));
        tally.with(cpu, |t| t.big_pages -= order.pages() as i64);
    }

    /// Bytes that the user of a kmalloc object may use (kernel: ksize). Of a block of pages the exact size at first, all of
    /// it later; of the heap whole units. (2.6.24 reads a wrong word for the latter: its value means nothing, and is not
    /// re-created.)
    pub(super) fn usable(&self, cpu: &M::Cpu, object: &Object) -> u64 {
        let addr = object.addr();
        if addr == ZERO_SIZE {
            return 0;
        }
        let pfn = self.frame(addr);
        let flags = self.pages.load(cpu, pfn, Field::Flags);
        if flags & HEAP != 0 {
            return round_up(self.header(cpu, addr), UNIT);
        }
        assert!(flags & BIG != 0, "slob: ksize of {addr:?}: expected what kmalloc returned, found flags {flags:#x}");
        let bytes = self.pages.peek(pfn, Field::Extra);
        match self.policy.create {
            Create::Own => bytes,
            Create::Common => Order::for_bytes(bytes).bytes(),
        }
    }

    /// Makes an object of kmalloc at least `bytes` bytes large: in place if it is, else a new one with the old content
    /// (kernel: krealloc). `Err` is the old object, whole, when memory is out.
    pub(super) fn resize(&self, cpu: &M::Cpu, object: Object, bytes: u64, want: Request) -> Result<Object, Object> {
        let old = self.usable(cpu, &object);
        if old >= bytes && bytes > 0 {
            return Ok(object);
        }
        let Some(new) = self.kmalloc(cpu, bytes, want) else { return Err(object) };
        let (from, to) = (object.addr(), new.addr());
        if from != ZERO_SIZE && to != ZERO_SIZE {
            let arena = self.pages.arena();
            for at in (0..old.min(bytes)).step_by(MIN_ALIGN as usize) {
                let (word, left) = (arena.load(cpu, from.plus(at)), old.min(bytes) - at);
                if left >= MIN_ALIGN {
                    arena.store(cpu, to.plus(at), word);
                } else {
                    arena.poke_bits(to.plus(at), u64::MAX >> (64 - 8 * left), word);
                }
            }
        }
        self.kfree(cpu, object);
        Ok(new)
    }
}
