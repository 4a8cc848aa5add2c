//! kmalloc: the general caches, and the page allocator for what is larger than the largest of them.

use super::Slab;
use crate::alloc::{Stat, ZERO_SIZE};
use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::page::{Asker, Field, Page, PageFlags, Pfn};
use crate::spec::{Object, Request};
use crate::units::{MAX_ORDER, Order};

/// Owner word of a block of whole pages; its order stands in `Counters`.
const LARGE: u64 = u64::MAX;

impl<M: Machine> Slab<'_, M> {
    /// Takes an object of the smallest general cache of its kind that holds `bytes` (kernel: __kmalloc). The kind must be
    /// one that has caches.
    pub(super) fn kmalloc_any(&self, cpu: &M::Cpu, bytes: u64, want: Request) -> Option<Object> {
        if bytes == 0 {
            return Some(Object::at(ZERO_SIZE));
        }
        match self.policy.kmalloc.class(bytes) {
            Some(class) => {
                cpu.work(cost::KMALLOC_LOOKUP);
                cpu.irq_save();
                let general = self.general[want.kind as usize][class];
                self.alloc_object(cpu, &self.caches[general], want)
            }
            None => self.kmalloc_large(cpu, bytes, want).map(Object::at),
        }
    }

    pub(super) fn kfree_any(&self, cpu: &M::Cpu, object: Addr) {
        if object == ZERO_SIZE {
            return;
        }
        assert!(self.pages.pfn_of(object).is_some(), "kfree of {:#x}: an address outside memory", object.0);
        let (pfn, owner) = self.owner(cpu, object);
        assert!(
            owner != 0,
            "kfree of {:#x}: expected an object of a cache, found page {} that belongs to none",
            object.0,
            pfn.0
        );
        if owner == LARGE {
            return self.kfree_large(cpu, pfn, object);
        }
        cpu.work(cost::KMALLOC_LOOKUP);
        cpu.irq_save();
        self.free_cpu(cpu, &self.caches[owner as usize - 1], object);
    }

    /// Bytes that the owner of a kmalloc object may use (kernel: ksize): the object size of its cache, or whole pages.
    pub(super) fn usable(&self, cpu: &M::Cpu, object: &Object) -> u64 {
        if object.addr() == ZERO_SIZE {
            return 0;
        }
        let (pfn, owner) = self.owner(cpu, object.addr());
        assert!(owner != 0, "ksize of {:#x}: page {} belongs to no cache", object.addr().0, pfn.0);
        match owner {
            LARGE => Order(self.pages.peek(pfn, Field::Counters) as u8).bytes(),
            owner => self.caches[owner as usize - 1].spec.size,
        }
    }

    /// Takes whole pages (kernel: kmalloc_large); `None` also above the largest order.
    #[cold]
    fn kmalloc_large(&self, cpu: &M::Cpu, bytes: u64, want: Request) -> Option<Addr> {
        if bytes > Order(MAX_ORDER as u8 - 1).bytes() {
            return None;
        }
        cpu.work(cost::KMALLOC_LARGE);
        let order = Order::for_bytes(bytes);
        let asker = Asker::Kmalloc;
        let flags = PageFlags { atomic: want.atomic, this_node: want.this_node, asker, ..PageFlags::default() };
        let page = self.take_pages(cpu, order, want.node, flags)?;
        let head = page.into_pfn();
        self.pages.store(cpu, head, Field::Owner, LARGE);
        self.pages.poke(head, Field::Counters, u64::from(order.0));
        self.large.with(cpu, |c| c.count(Stat::LargeAlloc));
        let at = self.pages.addr_of(head);
        if want.zero {
            self.pages.arena().fill(at, order.bytes(), 0);
            cpu.touch_span(at, order.bytes(), Access::Write);
        }
        Some(at)
    }

    #[cold]
    fn kfree_large(&self, cpu: &M::Cpu, head: Pfn, object: Addr) {
        let start = self.pages.addr_of(head);
        assert!(object == start, "kfree of {:#x}: expected the block's start {:#x}", object.0, start.0);
        cpu.work(cost::KFREE_LARGE);
        self.large.with(cpu, |c| c.count(Stat::LargeFree));
        let order = Order(self.pages.peek(head, Field::Counters) as u8);
        self.pages.poke(head, Field::Owner, 0);
        self.pages.free_pages(cpu, Page::of(head, order));
    }
}
