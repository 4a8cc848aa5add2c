//! Making and destroying a slab: pages, page → slab table, colour, header.

use super::Slab;
use super::cache::Cache;
use super::header::{Fresh, Header, Headers, PRIVATE_BYTES};
use crate::alloc::Stat;
use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::page::{Field, Page, PageFlags, Pfn};
use crate::spec::Request;
use crate::units::NodeId;

/// What growing may do.
#[derive(Clone, Copy)]
pub(super) struct Growth {
    /// The caller cannot sleep: no reclaim.
    pub(super) atomic: bool,
    /// Pages of that node or none, and no reclaim (kernel: GFP_THISNODE, which means nothing on one node).
    pub(super) this_node: bool,
}

impl<M: Machine> Slab<'_, M> {
    /// Adds one slab to the tail of a node's free list (kernel: cache_grow). A failure has used up a colour.
    #[cold]
    pub(super) fn grow(&self, cpu: &M::Cpu, cache: &Cache<M>, node: NodeId, growth: Growth) -> bool {
        let colour = self.next_colour(cpu, cache, node);
        match self.slab_pages(cpu, cache, node, growth) {
            Some(page) => self.make_slab(cpu, cache, page, colour),
            None => false,
        }
    }

    /// Adds a slab wherever there are pages, with that node's next colour; returns that node.
    pub(super) fn grow_anywhere(&self, cpu: &M::Cpu, cache: &Cache<M>, atomic: bool) -> Option<NodeId> {
        let page = self.slab_pages(cpu, cache, cpu.node(), Growth { atomic, this_node: false })?;
        let node = self.pages.node_of(page.pfn());
        let colour = self.next_colour(cpu, cache, node);
        self.make_slab(cpu, cache, page, colour).then_some(node)
    }

    fn next_colour(&self, cpu: &M::Cpu, cache: &Cache<M>, node: NodeId) -> u64 {
        let record = cache.node(node);
        let mut lists = record.lists.lock(cpu);
        record.charge(cpu);
        let colour = lists.colour_next;
        lists.colour_next = if colour + 1 >= cache.geometry.colour { 0 } else { colour + 1 };
        colour * cache.geometry.colour_off
    }

    /// Pages of a slab; when memory is out and the caller may wait, every cache is shrunk once first.
    fn slab_pages(&self, cpu: &M::Cpu, cache: &Cache<M>, node: NodeId, growth: Growth) -> Option<Page> {
        let Growth { atomic, this_node } = growth;
        let flags = PageFlags { atomic, this_node, no_retry: this_node, ..PageFlags::default() };
        if !atomic {
            // Interrupts are on while pages are asked for.
            cpu.spend(crate::machine::Event::IrqDisableEnable);
        }
        let order = cache.geometry.order;
        let first = self.pages.alloc_pages(cpu, order, Some(node), flags);
        if first.is_some() || atomic || this_node {
            return first;
        }
        self.caches.iter().filter(|c| c.gone.peek() == 0).for_each(|c| self.shrink_cache(cpu, c));
        self.pages.drain_local(cpu);
        self.pages.alloc_pages(cpu, order, Some(node), flags)
    }

    /// Sets up header, page table and objects, and links the slab; false if there is no memory for its header.
    fn make_slab(&self, cpu: &M::Cpu, cache: &Cache<M>, page: Page, colour: u64) -> bool {
        let geometry = &cache.geometry;
        cpu.work(cost::SLAB_GROW);
        cpu.work(cost::SLAB_GROW_OBJECT.times(geometry.num));
        let node = self.pages.node_of(page.pfn());
        let start = self.pages.addr_of(page.pfn());
        let slab = match cache.header_cache {
            Some(headers) => {
                cpu.irq_save();
                let want = Request { node: Some(node), ..Request::default() };
                match self.alloc_any(cpu, &self.caches[headers], want) {
                    Some(addr) => Header(addr),
                    None => {
                        self.pages.free_pages(cpu, page);
                        return false;
                    }
                }
            }
            None if geometry.off_slab => Header(Addr(u64::from(page.pfn().0) * PRIVATE_BYTES)),
            None => Header(start.plus(colour)),
        };
        let in_slab = if geometry.off_slab { 0 } else { geometry.management };
        let first = start.plus(colour + in_slab);
        let head = page.into_pfn();
        for pfn in frames(head, geometry.order.pages()) {
            self.pages.store(cpu, pfn, Field::Owner, u64::from(cache.id) + 1);
            self.pages.poke(pfn, Field::Extra, slab.0.0);
        }
        let headers = self.headers(cache);
        headers.init(cpu, slab, geometry, Fresh { colour, first, node });
        if cache.spec.ctor {
            // The constructor writes every object; what it writes is the user's business.
            cpu.touch_span(first, geometry.num * geometry.slot, Access::Write);
        }
        let record = cache.node(node);
        let mut lists = record.lists.lock(cpu);
        record.charge(cpu);
        lists.free.push_back(&headers, cpu, slab);
        lists.free_objects += geometry.num;
        drop(lists);
        cache.cpus.with(cpu, |c| c.counters.count(Stat::Grown));
        true
    }

    /// Returns a slab's pages and its header (kernel: slab_destroy). It is on no list any more.
    ///
    /// SLAB_DESTROY_BY_RCU delays only the return of the pages; the machines know no grace periods, so they go at once.
    pub(super) fn destroy_slab(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Header) {
        cpu.work(cost::SLAB_DESTROY);
        let order = cache.geometry.order;
        let inside = Addr(self.headers(cache).first(slab).0);
        let head = self.pages.pfn_of(inside).expect("objects lie in the arena");
        // Blocks are aligned to their size, and the first object lies in the block.
        let head = Pfn(head.0 & !(order.pages() as u32 - 1));
        for pfn in frames(head, order.pages()) {
            self.pages.store(cpu, pfn, Field::Owner, 0);
            self.pages.poke(pfn, Field::Extra, 0);
        }
        self.pages.free_pages(cpu, Page::of(head, order));
        if let Some(headers) = cache.header_cache {
            cpu.irq_save();
            self.free_cpu(cpu, &self.caches[headers], slab.0);
        }
    }

    /// The headers of a cache's slabs.
    pub(super) fn headers<'a>(&'a self, cache: &Cache<M>) -> Headers<'a, 'a, M> {
        let private = cache.geometry.off_slab && cache.header_cache.is_none();
        Headers { pages: self.pages, private: self.private_headers.as_ref().filter(|_| private) }
    }

    /// Slab of an object, by the descriptor of its page (kernel: virt_to_slab).
    #[inline]
    pub(super) fn slab_of(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) -> Header {
        let pfn = self.pages.pfn_of(object);
        let owner = pfn.map_or(0, |pfn| self.pages.load(cpu, pfn, Field::Owner));
        assert!(owner == u64::from(cache.id) + 1, "{}", self.stray(cache, object));
        Header(Addr(pfn.map_or(0, |pfn| self.pages.peek(pfn, Field::Extra))))
    }

    /// True if an address is that of an object of the cache, free or not. Uncharged.
    pub(super) fn is_object(&self, cache: &Cache<M>, object: Addr) -> bool {
        let Some(pfn) = self.pages.pfn_of(object) else { return false };
        if self.pages.peek(pfn, Field::Owner) != u64::from(cache.id) + 1 {
            return false;
        }
        let slab = Header(Addr(self.pages.peek(pfn, Field::Extra)));
        let offset = object.0.wrapping_sub(self.headers(cache).first(slab).0);
        offset.is_multiple_of(cache.geometry.slot) && offset / cache.geometry.slot < cache.geometry.num
    }

    /// What is wrong with a freed address: cache, slab, object, expected, found.
    #[cold]
    pub(super) fn stray(&self, cache: &Cache<M>, object: Addr) -> String {
        let name = &cache.spec.name;
        let found = match self.pages.pfn_of(object) {
            None => "an address outside memory".into(),
            Some(pfn) => match self.pages.peek(pfn, Field::Owner) {
                0 => format!("page {} that belongs to no cache", pfn.0),
                owner if owner == u64::from(cache.id) + 1 => {
                    let slab = Header(Addr(self.pages.peek(pfn, Field::Extra)));
                    let first = self.headers(cache).first(slab).0;
                    let (num, slot) = (cache.geometry.num, cache.geometry.slot);
                    format!("the slab at page {}, whose {num} objects of {slot} bytes begin at {first:#x}", pfn.0)
                }
                owner => format!("page {} of cache {:?}", pfn.0, self.caches[owner as usize - 1].spec.name),
            },
        };
        format!("cache {name:?}: free of {:#x}: expected one of its objects, found {found}", object.0)
    }
}

fn frames(head: Pfn, pages: u64) -> impl Iterator<Item = Pfn> {
    (0..pages as u32).map(move |i| Pfn(head.0 + i))
}
