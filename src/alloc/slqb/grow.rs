//! Where slabs come from and where they go: pages, colour, the first links; the list that owns them for life; back to the
//! page allocator the moment they are empty, or after a grace period (kernel: __slab_alloc_page, free_slab).

use super::chain::NIL;
use super::node::{ListId, SLAB, SlabState, WAITING, pack};
use super::{Ask, Cache};
use crate::alloc::{Counters, Stat};
use crate::machine::{Access, Addr, Cpu, Event, Machine, cost};
use crate::page::{Asker, Field, Page, PageFlags, Pfn};
use crate::units::{NodeId, Order, Picos, RCU_GRACE};

/// Slabs returned at once after it.
const RCU_BATCH: usize = 10;

/// Counts an allocation from a new slab.
fn count_new_slab(counters: &mut Counters) {
    counters.count(Stat::SlqbAlloc);
    counters.count(Stat::AllocSlabNew);
    counters.count(Stat::AllocSlabFill);
}

impl<'p, M: Machine> Cache<'p, M> {
    /// Makes a slab and takes its first object. It belongs to the running CPU's list if its page is of this CPU's node,
    /// else to the list of the page's node.
    #[cold]
    pub(super) fn new_slab(&self, cpu: &M::Cpu, node: Option<NodeId>, ask: &Ask<'_, 'p, M>) -> Option<Addr> {
        // The colour is used up even if no page is found.
        let colour = self.cpus.with(cpu, |s| {
            let next = self.geometry.next_colour(s.colour_next);
            std::mem::replace(&mut s.colour_next, next)
        });
        self.return_waited(cpu, false);
        let pfn = self.slab_pages(cpu, node, ask)?;
        self.cpus.with(cpu, |s| s.pages_taken += self.geometry.order.pages());
        self.link_objects(cpu, pfn, colour);
        let home = self.pages.node_of(pfn);
        if !self.numa || home == cpu.node() {
            let l = self.cpu_list(cpu.id());
            let x = self.adopt(cpu, l, pfn);
            self.cpus.with(cpu, |s| count_new_slab(&mut s.counters));
            x
        } else {
            let mut slot = self.nodes[usize::from(home.0)].lock(cpu);
            let x = self.adopt(cpu, self.node_list(home), pfn);
            self.count_on_node(cpu, &mut slot, count_new_slab);
            x
        }
    }

    /// Pages of a slab; when memory is out and the caller may wait, every cache is trimmed once first
    /// (page-allocator.md §19.6).
    fn slab_pages(&self, cpu: &M::Cpu, node: Option<NodeId>, ask: &Ask<'_, 'p, M>) -> Option<Pfn> {
        let (want, order) = (ask.want, self.geometry.order);
        if !want.atomic {
            // A caller that may sleep has interrupts on during the page allocation.
            cpu.spend(Event::IrqDisableEnable);
        }
        let flags = PageFlags {
            atomic: want.atomic,
            this_node: want.this_node,
            compound: order > Order(0),
            reclaims: !want.atomic,
            asker: Asker::Cache(self.id),
            ..PageFlags::default()
        };
        let page = self.pages.alloc_pages(cpu, order, node, flags);
        if page.is_some() || want.atomic {
            return page.map(Page::into_pfn);
        }
        ask.caches.iter().filter(|c| c.alive()).for_each(|c| c.trim_everywhere(cpu));
        self.pages.drain_local(cpu);
        let flags = PageFlags { reclaims: false, ..flags };
        self.pages.alloc_pages(cpu, order, node, flags).map(Page::into_pfn)
    }

    fn link_objects(&self, cpu: &M::Cpu, pfn: Pfn, colour: u64) {
        let g = &self.geometry;
        cpu.work(cost::SLQB_NEW_SLAB);
        cpu.work(cost::SLQB_NEW_OBJECT.times(g.objects));
        let start = self.pages.addr_of(pfn);
        let first = start.plus(colour);
        self.debug_slab(cpu, start);
        for i in 0..g.objects {
            let x = first.plus(i * g.size);
            self.debug_object(cpu, x);
            if self.spec.ctor {
                // The constructor writes the whole object; what it writes is the user's business.
                cpu.touch_span(x, g.object_size, Access::Write);
            }
            self.links().set(cpu, x, if i + 1 < g.objects { x.plus(g.size) } else { NIL });
        }
        self.pages.store(cpu, pfn, Field::Flags, SLAB);
        self.pages.poke(pfn, Field::Extra, first.0);
        self.pages.poke(pfn, Field::Counters, pack(SlabState { inuse: 0, colour }));
    }

    /// Gives a new slab to a list for life and takes its first object, in one hold of page_lock.
    fn adopt(&self, cpu: &M::Cpu, l: ListId, pfn: Pfn) -> Option<Addr> {
        let list = self.list(l);
        let mut slabs = list.slabs.lock(cpu);
        self.pages.poke(pfn, Field::Owner, u64::from(self.id.0 + 1) << 32 | u64::from(l.0));
        slabs.nr_slabs += 1;
        slabs.partial.push_front(self.pages, cpu, pfn);
        list.publish(cpu, &slabs);
        self.take_from_first(cpu, list, &mut slabs)
    }

    /// Returns an empty slab that is on no list. Readers under RCU may still look at objects of a cache of theirs: its
    /// pages wait for a grace period first.
    pub(super) fn discard(&self, cpu: &M::Cpu, pfn: Pfn) {
        cpu.work(cost::SLQB_DISCARD);
        if !self.spec.typesafe_by_rcu {
            return self.return_pages(cpu, pfn);
        }
        self.pages.store(cpu, pfn, Field::Flags, WAITING);
        self.pages.poke(pfn, Field::Counters, cpu.now().0 + RCU_GRACE.0);
        self.cpus.with(cpu, |s| s.waiting.push_back(self.pages, cpu, pfn));
    }

    /// Returns slabs of this CPU whose grace period is over, oldest first: some of them, or `all`, when it has been waited
    /// for. No task holds an RCU read section between two operations, so only the time has to pass. Looked at by trims and
    /// when a slab is made, there is no timer here.
    pub(super) fn return_waited(&self, cpu: &M::Cpu, all: bool) {
        if !self.spec.typesafe_by_rcu {
            return;
        }
        for _ in 0..if all { usize::MAX } else { RCU_BATCH } {
            let over = self.cpus.with(cpu, |s| {
                let due = |p: &Pfn| self.pages.peek(*p, Field::Counters);
                let oldest = s.waiting.first().filter(|p| all || due(p) <= cpu.now().0)?;
                s.waiting.remove(self.pages, cpu, oldest);
                Some(oldest)
            });
            let Some(pfn) = over else { return };
            self.return_pages(cpu, pfn);
        }
    }

    /// Waits for the grace period of this CPU's slabs and returns them (kernel: rcu_barrier).
    pub(super) fn await_grace(&self, cpu: &M::Cpu) {
        if let Some(last) = self.cpus.with(cpu, |s| s.waiting.last()) {
            let due = self.pages.peek(last, Field::Counters);
            cpu.delay(Picos(due.saturating_sub(cpu.now().0)));
            self.return_waited(cpu, true);
        }
    }

    fn return_pages(&self, cpu: &M::Cpu, pfn: Pfn) {
        self.cpus.with(cpu, |s| s.pages_returned += self.geometry.order.pages());
        self.pages.free_pages(cpu, Page::of(pfn, self.geometry.order));
    }
}
