//! Slow paths: take over a list, change the cpu slab, free into a slab that is not ours (kernel: __slab_alloc,
//! __slab_free, deactivate_slab). Interrupts are off throughout, except while pages are asked for.

use std::sync::atomic::Ordering;

use super::node::End;
use super::word::{self, Slab};
use super::{Cache, FirstFree, Slub};
use crate::alloc::{Destroyed, Stat};
use crate::machine::{Access, Addr, Cpu, Event, Machine, cost};
use crate::page::{Page, PageFlags};
use crate::spec::Request;
use crate::units::{Order, Picos};

/// Time an RCU grace period takes (machine-model.md §2.1: at least 10 ms).
const RCU_GRACE: Picos = Picos(10_000_000_000);
/// Slabs returned at once after it.
const RCU_BATCH: usize = 10;

impl<M: Machine> Slub<'_, M> {
    /// Takes an object when the private list is empty or of the wrong node: from the cpu slab's own list, a partial slab, or
    /// a new one.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        cpu.leave_fast_path();
        assert!(!cache.is_destroyed(), "slub: allocation from cache {}, which was destroyed", cache.spec.name);
        cpu.work(cost::SLUB_ALLOC_SLOW);
        cpu.touch(cache.descriptor, Access::Read);
        if let Some(slab) = cache.cpus.with(cpu, |c| c.slab()) {
            slab.lock(self.pages, cpu);
            if want.node.is_none_or(|n| n == self.pages.node_of(slab.0)) {
                cache.count(cpu, Stat::AllocRefill);
                if let Some(object) = self.take_list(cpu, cache, slab) {
                    return Some(object);
                }
            }
            self.deactivate(cpu, cache, slab);
        }
        let slab = match self.get_partial(cpu, cache, want) {
            Some(slab) => {
                cache.count(cpu, Stat::AllocFromPartial);
                slab
            }
            None => {
                let slab = self.new_slab(cpu, cache, want)?;
                // While pages were asked for, a reclaim may have run here and left another cpu slab.
                self.flush(cpu, cache);
                slab.lock(self.pages, cpu);
                slab.freeze(self.pages, true);
                slab
            }
        };
        self.take_list(cpu, cache, slab)
    }

    /// Hands the own list of a locked, frozen slab to this CPU, all but the first object, which is returned, and unlocks.
    /// `None`, and still locked, if the list is empty.
    fn take_list(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab) -> Option<Addr> {
        let first = slab.freelist(self.pages)?;
        let rest = word::next(self.pages.arena(), cpu, first, cache.layout.offset);
        slab.set(self.pages, None, cache.layout.objects);
        cache.cpus.with(cpu, |c| {
            c.set_freelist(rest);
            c.set_slab(Some(slab));
            c.node = self.pages.node_of(slab.0);
            c.counters.count(Stat::AllocSlowpath);
        });
        slab.unlock(self.pages, cpu);
        Some(first)
    }

    /// Gives an object to a slab that is not this CPU's: one locked section, and the node's list if the slab was full or
    /// becomes empty. An empty slab is returned at once, however few partial ones there are.
    #[cold]
    #[inline(never)]
    pub(super) fn free_slow(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, object: Addr) {
        cpu.leave_fast_path();
        cpu.work(cost::SLUB_FREE_SLOW);
        cache.count(cpu, Stat::FreeSlowpath);
        slab.lock(self.pages, cpu);
        let prior = slab.freelist(self.pages);
        let inuse = slab.inuse(self.pages) - 1;
        word::set_next(self.pages.arena(), cpu, object, cache.layout.offset, prior);
        slab.set(self.pages, Some(object), inuse);
        if slab.frozen(self.pages) {
            cache.count(cpu, Stat::FreeFrozen);
            return slab.unlock(self.pages, cpu);
        }
        let node = cache.node(self.pages.node_of(slab.0));
        if inuse == 0 {
            if prior.is_some() {
                cpu.work(cost::SLUB_LIST);
                node.remove(self.pages, cpu, slab);
                cache.count(cpu, Stat::FreeRemovePartial);
            }
            slab.unlock(self.pages, cpu);
            cache.count(cpu, Stat::FreeSlab);
            return self.discard(cpu, cache, slab);
        }
        if prior.is_none() {
            let end = match self.policy.first_free {
                FirstFree::Head => End::Head,
                FirstFree::Tail => End::Tail,
            };
            cpu.work(cost::SLUB_LIST);
            node.add(self.pages, cpu, slab, end);
            cache.count(cpu, Stat::FreeAddPartial);
        }
        slab.unlock(self.pages, cpu);
    }

    /// Gives the cpu slab, locked, up and unlocks it: private objects go back one by one, then a partial slab goes to the
    /// head of its node's list, a full one to nobody, an empty one to the tail or to the page allocator.
    fn deactivate(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab) {
        cpu.work(cost::SLUB_DEACTIVATE);
        let mut private = cache.cpus.with(cpu, |c| {
            c.set_slab(None);
            c.set_freelist(None)
        });
        let (arena, offset) = (self.pages.arena(), cache.layout.offset);
        let (mut list, mut inuse) = (slab.freelist(self.pages), slab.inuse(self.pages));
        if list.is_some() {
            cache.count(cpu, Stat::DeactivateRemoteFrees);
        }
        while let Some(object) = private {
            cpu.work(cost::SLUB_DEACTIVATE_OBJECT);
            private = word::next(arena, cpu, object, offset);
            word::set_next(arena, cpu, object, offset, list);
            (list, inuse) = (Some(object), inuse - 1);
        }
        slab.set(self.pages, list, inuse);
        slab.freeze(self.pages, false);
        let node = cache.node(self.pages.node_of(slab.0));
        if inuse > 0 {
            if list.is_some() {
                node.add(self.pages, cpu, slab, End::Head);
            }
            cache.count(cpu, if list.is_some() { Stat::DeactivateToHead } else { Stat::DeactivateFull });
            slab.unlock(self.pages, cpu);
        } else if node.nr_partial.load(cpu) < self.policy.min_partial {
            cache.count(cpu, Stat::DeactivateEmpty);
            // Kept against the next allocation, behind those in use, which may fill up first.
            node.add(self.pages, cpu, slab, End::Tail);
            slab.unlock(self.pages, cpu);
        } else {
            cache.count(cpu, Stat::DeactivateEmpty);
            slab.unlock(self.pages, cpu);
            cache.count(cpu, Stat::FreeSlab);
            self.discard(cpu, cache, slab);
        }
    }

    /// Gives this CPU's slab up, if it has one (kernel: flush_slab).
    pub(super) fn flush(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        if let Some(slab) = cache.cpus.with(cpu, |c| c.slab()) {
            cache.count(cpu, Stat::CpuslabFlush);
            slab.lock(self.pages, cpu);
            self.deactivate(cpu, cache, slab);
        }
    }

    /// Gives every CPU's slab up, each on its own CPU (kernel: flush_all, which asks all at once; here one after the other,
    /// ascending, so that runs repeat).
    fn flush_all(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        for target in self.pages.machine().topology().cpu_ids() {
            cpu.call_on(target, &|cpu| self.flush(cpu, cache));
        }
    }

    /// Returns what can be returned of a cache's empty slabs and sorts the partial lists.
    pub(super) fn shrink_cache(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        self.flush_all(cpu, cache);
        for node in &cache.nodes {
            node.shrink(self.pages, cpu, |slab| self.discard(cpu, cache, slab));
        }
    }

    /// A new slab: pages, descriptor, and every object linked, ascending (kernel: new_slab). Not locked: nobody knows it.
    fn new_slab(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Slab> {
        if cache.spec.typesafe_by_rcu {
            self.return_waited(cpu, cache, RCU_BATCH);
        }
        if !want.atomic {
            cpu.spend(Event::IrqDisableEnable);
        }
        let page = self.alloc_block(cpu, cache.layout.order, want)?;
        cpu.work(cost::SLUB_NEW_SLAB);
        cpu.work(cost::SLUB_NEW_OBJECT.times(cache.layout.objects));
        let slab = Slab(page.into_pfn());
        let (start, layout) = (self.pages.addr_of(slab.0), &cache.layout);
        for i in 0..layout.objects {
            let next = (i + 1 < layout.objects).then(|| start.plus((i + 1) * layout.slot));
            word::set_next(self.pages.arena(), cpu, start.plus(i * layout.slot), layout.offset, next);
        }
        slab.found(self.pages, cpu, cache.index, Some(start));
        cache.node(self.pages.node_of(slab.0)).nr_slabs.fetch_add(cpu, 1);
        cache.count(cpu, Stat::AllocSlab);
        Some(slab)
    }

    /// Asks for pages; a caller that may sleep shrinks every cache once before it gives up (page-allocator.md §19.6).
    pub(super) fn alloc_block(&self, cpu: &M::Cpu, order: Order, want: Request) -> Option<Page> {
        let flags =
            PageFlags { atomic: want.atomic, this_node: want.this_node, compound: order.0 > 0, ..PageFlags::default() };
        let page = self.pages.alloc_pages(cpu, order, want.node, flags);
        if page.is_some() || want.atomic {
            return page;
        }
        for cache in self.caches.iter().filter(|c| !c.is_destroyed()) {
            self.shrink_cache(cpu, cache);
        }
        self.pages.drain_local(cpu);
        self.pages.alloc_pages(cpu, order, want.node, flags)
    }

    /// Returns an empty slab that is on no list (kernel: discard_slab). Pages of a TYPESAFE_BY_RCU cache wait for a grace
    /// period first.
    pub(super) fn discard(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab) {
        cpu.work(cost::SLUB_DISCARD);
        cache.node(self.pages.node_of(slab.0)).nr_slabs.fetch_add(cpu, -1);
        if !cache.spec.typesafe_by_rcu {
            return self.pages.free_pages(cpu, Page::of(slab.0, cache.layout.order));
        }
        slab.wait(self.pages, cpu, Picos(cpu.now().0 + RCU_GRACE.0));
        cache.cpus.with(cpu, |c| c.waiting.push_back(self.pages, cpu, slab.0));
        self.return_waited(cpu, cache, RCU_BATCH);
    }

    /// Returns slabs of this CPU whose grace period is over, oldest first. No task holds an RCU read section between two
    /// operations, so only the time has to pass. Looked at when slabs come and go, there is no timer here.
    fn return_waited(&self, cpu: &M::Cpu, cache: &Cache<M>, at_most: usize) {
        for _ in 0..at_most {
            let over = cache.cpus.with(cpu, |c| {
                let oldest = c.waiting.first().filter(|&s| Slab(s).due(self.pages) <= cpu.now())?;
                c.waiting.remove(self.pages, cpu, oldest);
                Some(oldest)
            });
            let Some(pfn) = over else { return };
            self.pages.free_pages(cpu, Page::of(pfn, cache.layout.order));
        }
    }

    /// Gives a cache up: the last user flushes it and returns its empty slabs, those that wait for a grace period too
    /// (kernel: kmem_cache_destroy). What still holds objects is lost, with a warning.
    pub(super) fn destroy_cache(&self, cpu: &M::Cpu, cache: &Cache<M>) -> Destroyed {
        assert!(!cache.is_destroyed(), "slub: cache {} destroyed twice", cache.spec.name);
        if cache.users.fetch_sub(1, Ordering::Relaxed) > 1 {
            return Destroyed::default();
        }
        self.flush_all(cpu, cache);
        for node in &cache.nodes {
            node.discard_empty(self.pages, cpu, |slab| self.discard(cpu, cache, slab));
        }
        for target in self.pages.machine().topology().cpu_ids() {
            cpu.call_on(target, &|cpu| {
                let last = cache.cpus.with(cpu, |c| c.waiting.last());
                if let Some(last) = last {
                    let due = Slab(last).due(self.pages).0;
                    cpu.delay(Picos(due.saturating_sub(cpu.now().0)));
                    self.return_waited(cpu, cache, usize::MAX);
                }
            });
        }
        let slabs: u64 = cache.nodes.iter().map(|n| n.nr_slabs.load(cpu)).sum();
        Destroyed { pages_lost: slabs * cache.layout.order.pages(), warnings: u64::from(slabs > 0) }
    }
}

impl<M: Machine> Cache<M> {
    /// Counts an event of this CPU.
    fn count(&self, cpu: &M::Cpu, stat: Stat) {
        self.cpus.with(cpu, |c| c.counters.count(stat));
    }
}
