//! Making and destroying a slab: pages, page → slab table, colour, management.

use super::Slab;
use super::array::modify;
use super::cache::Cache;
use super::header::{Fresh, Header, PRIVATE_BYTES};
use super::index::Indexes;
use super::policy::{ColourStep, Management};
use crate::alloc::Stat;
use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::page::{Asker, Field, Page, PageFlags, Pfn};
use crate::spec::{CacheId, Request};
use crate::units::{NodeId, Order};

/// What growing may do.
#[derive(Clone, Copy)]
pub(super) struct Growth {
    /// The caller cannot sleep: no reclaim.
    pub(super) atomic: bool,
    /// Pages of that node or none, and no reclaim (kernel: GFP_THISNODE, which means nothing on one node).
    pub(super) this_node: bool,
}

impl<M: Machine> Slab<'_, M> {
    /// Makes a slab of a node's pages that is on no list yet (kernel: cache_grow, cache_grow_begin).
    #[cold]
    pub(super) fn grow(&self, cpu: &M::Cpu, cache: &Cache<M>, node: NodeId, growth: Growth) -> Option<Header> {
        match self.policy.colour {
            ColourStep::After => {
                let colour = self.next_colour(cpu, cache, node);
                let page = self.slab_pages(cpu, cache, node, growth)?;
                self.make_slab(cpu, cache, page, colour)
            }
            ColourStep::Before => {
                let page = self.slab_pages(cpu, cache, node, growth)?;
                let colour = self.next_colour(cpu, cache, self.pages.node_of(page.pfn()));
                self.make_slab(cpu, cache, page, colour)
            }
        }
    }

    /// Adds a slab wherever there are pages, with that node's next colour; returns that node.
    pub(super) fn grow_anywhere(&self, cpu: &M::Cpu, cache: &Cache<M>, atomic: bool) -> Option<NodeId> {
        let page = self.slab_pages(cpu, cache, cpu.node(), Growth { atomic, this_node: false })?;
        let node = self.pages.node_of(page.pfn());
        let colour = self.next_colour(cpu, cache, node);
        let slab = self.make_slab(cpu, cache, page, colour)?;
        self.link_slab(cpu, cache, slab);
        Some(node)
    }

    /// Offset of the next slab's objects: 0, 1, … or 1, 2, … colours, and round again.
    fn next_colour(&self, cpu: &M::Cpu, cache: &Cache<M>, node: NodeId) -> u64 {
        let record = cache.node(node);
        let _lists = match self.policy.colour {
            ColourStep::After => Some(record.lock(cpu)),
            ColourStep::Before => {
                modify(cpu, record.addr);
                None
            }
        };
        let old = record.colour_next.peek();
        let new = if old + 1 >= cache.geometry.colour { 0 } else { old + 1 };
        record.colour_next.poke(new);
        let colour = if self.policy.colour == ColourStep::After { old } else { new };
        colour * cache.geometry.colour_off
    }

    /// Pages of a slab.
    fn slab_pages(&self, cpu: &M::Cpu, cache: &Cache<M>, node: NodeId, growth: Growth) -> Option<Page> {
        if cache.spec.typesafe_by_rcu {
            self.return_waited(cpu, false);
        }
        let Growth { atomic, this_node } = growth;
        let asker = Asker::Cache(CacheId(cache.id));
        let flags = PageFlags { atomic, this_node, no_retry: this_node, asker, ..PageFlags::default() };
        if !atomic {
            // Interrupts are on while pages are asked for.
            cpu.spend(crate::machine::Event::IrqDisableEnable);
        }
        self.take_pages(cpu, cache.geometry.order, Some(node), flags)
    }

    /// Pages for a slab or a large kmalloc. When memory is out and the caller may wait, every cache is shrunk once and it
    /// is tried again.
    pub(super) fn take_pages(
        &self,
        cpu: &M::Cpu,
        order: Order,
        node: Option<NodeId>,
        flags: PageFlags,
    ) -> Option<Page> {
        let compound = self.policy.management == Management::Indexes && order.0 > 0;
        let flags = PageFlags { compound, ..flags };
        let once = flags.atomic || flags.no_retry;
        let first = self.pages.alloc_pages(cpu, order, node, PageFlags { reclaims: !once, ..flags });
        if first.is_some() || once {
            return first;
        }
        self.caches.iter().filter(|c| c.gone.peek() == 0).for_each(|c| self.shrink_cache(cpu, c));
        self.pages.drain_local(cpu);
        self.pages.alloc_pages(cpu, order, node, flags)
    }

    /// Sets up management, page table and objects; `None`, with the pages given back, if there is no memory for
    /// management outside the slab.
    fn make_slab(&self, cpu: &M::Cpu, cache: &Cache<M>, page: Page, colour: u64) -> Option<Header> {
        let geometry = &cache.geometry;
        cpu.work(cost::SLAB_GROW);
        cpu.work(cost::SLAB_GROW_OBJECT.times(geometry.num));
        let node = self.pages.node_of(page.pfn());
        let start = self.pages.addr_of(page.pfn());
        let outside = match cache.management_cache {
            Some(general) => {
                cpu.irq_save();
                let want = Request { node: Some(node), ..Request::default() };
                let Some(addr) = self.alloc_any(cpu, &self.caches[general], want) else {
                    self.pages.free_pages(cpu, page);
                    return None;
                };
                Some(addr)
            }
            None => geometry.off_slab().then(|| Addr(u64::from(page.pfn().0) * PRIVATE_BYTES)),
        };
        let first = start.plus(colour + geometry.before);
        let head = page.into_pfn();
        let slab = match self.policy.management {
            Management::Chain => {
                let slab = Header(outside.unwrap_or(start.plus(colour)));
                for pfn in frames(head, geometry.order.pages()) {
                    self.pages.store(cpu, pfn, Field::Owner, u64::from(cache.id) + 1);
                    self.pages.poke(pfn, Field::Extra, slab.0.0);
                }
                slab
            }
            Management::Indexes => {
                self.pages.store(cpu, head, Field::Owner, u64::from(cache.id) + 1);
                Indexes::slab(self.pages, head)
            }
        };
        if cache.closed() {
            self.debug_fresh(cpu, cache, first);
        }
        let order = self.config.freelist_random.then(|| permutation(cpu, geometry.num));
        self.headers(cache).init(cpu, slab, Fresh { colour, first, node, outside, order });
        // With poison the constructor is called at each allocation.
        if cache.spec.ctor && !geometry.checks.poison {
            // The constructor writes every object; what it writes is the user's business.
            cpu.touch_span(first, geometry.num * geometry.slot, Access::Write);
        }
        Some(slab)
    }

    /// Puts a new slab on the list it belongs to: the tail of free, or the head of partial or full if objects have been
    /// taken already (kernel: cache_grow, cache_grow_end).
    pub(super) fn link_slab(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Header) {
        let headers = self.headers(cache);
        let mut lists = cache.node(headers.node(slab)).lock(cpu);
        let inuse = headers.inuse(slab);
        if inuse == 0 {
            lists.free.push_back(&headers, cpu, slab);
        } else if headers.is_full(slab) {
            lists.full.push_front(&headers, cpu, slab);
        } else {
            lists.partial.push_front(&headers, cpu, slab);
        }
        lists.free_objects += cache.geometry.num - inuse;
        drop(lists);
        cache.cpus.with(cpu, |c| c.counters.count(Stat::Grown));
    }

    /// Returns a slab's pages and its management (kernel: slab_destroy). It is on no list any more.
    /// SLAB_DESTROY_BY_RCU delays only the return of the pages.
    pub(super) fn destroy_slab(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Header) {
        cpu.work(cost::SLAB_DESTROY);
        let order = cache.geometry.order;
        let headers = self.headers(cache);
        let outside = headers.outside(slab);
        if cache.closed() {
            self.debug_destroy(cpu, cache, slab);
        }
        let head = headers.head(slab).expect("objects lie in the arena");
        let pages = if self.policy.management == Management::Chain { order.pages() } else { 1 };
        for pfn in frames(head, pages) {
            self.pages.store(cpu, pfn, Field::Owner, 0);
            self.pages.poke(pfn, Field::Extra, 0);
        }
        if cache.spec.typesafe_by_rcu {
            self.return_later(cpu, head, order);
        } else {
            self.pages.free_pages(cpu, Page::of(head, order));
        }
        if let (Some(general), Some(addr)) = (cache.management_cache, outside) {
            cpu.irq_save();
            self.free_cpu(cpu, &self.caches[general], addr);
        }
    }
}

/// The numbers below `num` in random order, drawn from this CPU's stream (Fisher-Yates).
fn permutation<C: Cpu>(cpu: &C, num: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..num).collect();
    (1..num).rev().for_each(|i| order.swap(i as usize, cpu.random(i + 1) as usize));
    order
}

fn frames(head: Pfn, pages: u64) -> impl Iterator<Item = Pfn> {
    (0..pages as u32).map(move |i| Pfn(head.0 + i))
}
