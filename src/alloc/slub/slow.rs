//! What all slow paths share: where a miss goes, new slabs, their return, flush, shrink and destruction.
//!
//! | cache | allocation | free | file |
//! |---|---|---|---|
//! | with sheaves | [`Slub::alloc_sheaf`] | [`Slub::free_sheaf`], then as below | `sheaf` |
//! | without cpu slabs | [`Slub::alloc_single`] | [`Slub::free_single`] | `single` |
//! | slabs under a lock | [`Slub::alloc_locked`] | [`Slub::free_locked`] | `locked` |
//! | lockless slabs | [`Slub::alloc_lockless`] | [`Slub::free_lockless`] | `lockless` |

use std::sync::atomic::Ordering;

use super::policy::*;
use super::single::Attempt;
use super::word::Slab;
use super::{Cache, Slub};
use crate::alloc::{Destroyed, Stat};
use crate::machine::{Addr, Cpu, Event, Machine, cost};
use crate::page::{Asker, Page, PageFlags};
use crate::spec::{CacheId, Request};
use crate::units::{Order, Picos, RCU_GRACE};

/// Slabs returned at once after it.
const RCU_BATCH: usize = 10;

impl<M: Machine> Slub<'_, M> {
    /// Takes an object that the private list does not have.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        // A hit in a sheaf is a fast path too; what lies beyond says that it is none.
        assert!(!cache.is_destroyed(), "slub: allocation from cache {}, which was destroyed", cache.spec.name);
        if cache.limits.sheaf_capacity > 0
            && let Some(object) = self.alloc_sheaf(cpu, cache, want)
        {
            return Some(object);
        }
        let object = self.alloc_slab_layer(cpu, cache, want)?;
        cache.cpus.with(cpu, |c| c.moved(1));
        Some(object)
    }

    /// Takes an object from slabs, past any sheaf. Whose it is, is not noted yet.
    pub(super) fn alloc_slab_layer(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        cpu.leave_fast_path();
        if cache.single {
            self.alloc_single(cpu, cache, want)
        } else if cache.lockless {
            self.alloc_lockless(cpu, cache, want)
        } else {
            self.alloc_locked(cpu, cache, want)
        }
    }

    /// Gives back an object whose slab is not the one the fast path knows.
    #[cold]
    #[inline(never)]
    pub(super) fn free_slow(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, object: Addr) {
        if cache.limits.sheaf_capacity > 0 && self.free_sheaf(cpu, cache, slab, object) {
            return;
        }
        if self.policy.t.fast_path == FastPath::Sheaf {
            // Without cpu slabs who frees counts, not the slab's path.
            cache.count(cpu, Stat::FreeSlowpath);
        }
        cache.cpus.with(cpu, |c| c.moved(-1));
        self.free_slab_layer(cpu, cache, slab, Chain { head: object, tail: object, len: 1 });
    }

    /// Gives a chain of objects back to their slab, past any sheaf.
    pub(super) fn free_slab_layer(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, chain: Chain) {
        cpu.leave_fast_path();
        if cache.single {
            self.free_single(cpu, cache, slab, chain);
        } else if cache.lockless {
            self.free_lockless(cpu, cache, slab, chain);
        } else {
            self.free_locked(cpu, cache, slab, chain.head);
        }
    }

    /// True if a node with `partial` partial slabs returns an empty one.
    pub(super) fn discards(&self, cache: &Cache<M>, partial: u64) -> bool {
        match self.policy.t.discard_empty {
            DiscardEmpty::Above => partial > cache.limits.min_partial,
            DiscardEmpty::FreedAlways | DiscardEmpty::From => partial >= cache.limits.min_partial,
        }
    }

    /// Gives this CPU's sheaves, slab and partial slabs up (kernel: flush_slab, flush_cpu_slab).
    pub(super) fn flush(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        if cache.limits.sheaf_capacity > 0 {
            self.flush_sheaves(cpu, cache);
        }
        if cache.lockless {
            self.flush_lockless(cpu, cache);
        } else {
            self.flush_locked(cpu, cache);
        }
    }

    /// The same on every CPU, each on its own (kernel: flush_all, which asks all at once; here one after the other,
    /// ascending, so that runs repeat).
    pub(super) fn flush_all(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        for target in self.pages.machine().topology().cpu_ids() {
            cpu.call_on(target, &|cpu| self.flush(cpu, cache));
        }
    }

    /// Returns what can be returned of a cache's empty slabs and sorts the partial lists.
    pub(super) fn shrink_cache(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        self.flush_all(cpu, cache);
        if self.alone() {
            cache.barns.iter().for_each(|barn| self.empty_barn(cpu, cache, barn));
        }
        for (n, node) in cache.nodes.iter().enumerate() {
            if let Some(barn) = cache.barns.get(n).filter(|_| !self.alone()) {
                self.empty_barn(cpu, cache, barn);
            }
            node.shrink(self, cpu, cache, |slab| self.discard(cpu, cache, slab));
        }
    }

    /// A new slab on no list, and the first of its objects, which are linked (kernel: allocate_slab). Its own list is still to
    /// be set: nobody else knows it.
    pub(super) fn take_pages(&self, cpu: &M::Cpu, cache: &Cache<M>, attempt: Attempt) -> Option<(Slab, Addr)> {
        let Attempt { want, light } = attempt;
        if cache.spec.typesafe_by_rcu {
            self.return_waited(cpu, cache, RCU_BATCH);
        }
        if !want.atomic && self.policy.slow_irq_off {
            cpu.spend(Event::IrqDisableEnable);
        }
        let layout = &cache.layout;
        let asker = Asker::Cache(CacheId(cache.index as u32));
        let light_block =
            |order| self.one_block(cpu, order, want, PageFlags { no_retry: true, asker, ..PageFlags::default() });
        let page = match self.policy.t.order_fallback {
            OrderFallback::MinOrder => light_block(layout.order).or_else(|| {
                let page = if light {
                    light_block(layout.min_order)?
                } else {
                    self.alloc_block(cpu, layout.min_order, want, asker)?
                };
                cache.count(cpu, Stat::OrderFallback);
                Some(page)
            })?,
            _ if light => light_block(layout.order)?,
            _ => self.alloc_block(cpu, layout.order, want, asker)?,
        };
        let objects = if page.order() == layout.order { layout.objects } else { layout.min_objects };
        let order = page.order();
        let slab = Slab(page.into_pfn());
        cpu.work(cost::SLUB_NEW_SLAB);
        cpu.work(cost::SLUB_NEW_OBJECT.times(objects));
        let first = self.link_objects(cpu, cache, slab, objects);
        slab.found(self.pages, cpu, cache.index, objects);
        cache.node(self.pages.node_of(slab.0)).count_slab(cpu, objects, order, 1);
        cache.count(cpu, Stat::AllocSlab);
        Some((slab, first))
    }

    /// Links the objects of a new slab: ascending, or by the cache's permutation from a random place on (kernel: new_slab,
    /// shuffle_freelist). Returns the first.
    fn link_objects(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, objects: u64) -> Addr {
        let at = |i: u64| cache.object_at(self.pages, slab, i);
        let set_next = |i: u64, next: Option<u64>| {
            cache.links.set_next(self.pages.arena(), cpu, at(i), next.map(at));
        };
        if cache.permutation.is_empty() || objects < 2 {
            for i in 0..objects {
                set_next(i, (i + 1 < objects).then_some(i + 1));
            }
            return at(0);
        }
        let start = cpu.random(cache.permutation.len() as u64) as usize;
        let (before, after) = cache.permutation.split_at(start);
        let mut order = after.iter().chain(before).map(|i| u64::from(*i)).filter(|i| *i < objects);
        let first = order.next().expect("two objects or more");
        let mut last = first;
        for i in order {
            set_next(last, Some(i));
            last = i;
        }
        set_next(last, None);
        at(first)
    }

    /// Asks for pages; a caller that may sleep shrinks every cache once before it gives up (page-allocator.md §19.6).
    pub(super) fn alloc_block(&self, cpu: &M::Cpu, order: Order, want: Request, asker: Asker) -> Option<Page> {
        let flags = PageFlags { asker, ..PageFlags::default() };
        let page = self.one_block(cpu, order, want, PageFlags { reclaims: !want.atomic, ..flags });
        if page.is_some() || want.atomic {
            return page;
        }
        for cache in self.caches.iter().filter(|c| !c.is_destroyed()) {
            self.shrink_cache(cpu, cache);
        }
        self.pages.drain_local(cpu);
        self.one_block(cpu, order, want, flags)
    }

    fn one_block(&self, cpu: &M::Cpu, order: Order, want: Request, flags: PageFlags) -> Option<Page> {
        let Request { atomic, this_node, .. } = want;
        let flags = PageFlags { atomic, this_node, compound: order.0 > 0, ..flags };
        self.pages.alloc_pages(cpu, order, want.node, flags)
    }

    /// Returns an empty slab that is on no list (kernel: discard_slab). Pages of a TYPESAFE_BY_RCU cache wait for a grace
    /// period first.
    pub(super) fn discard(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab) {
        cpu.work(cost::SLUB_DISCARD);
        let order = self.pages.order_of(slab.0);
        cache.node(self.pages.node_of(slab.0)).count_slab(cpu, slab.objects(self.pages), order, -1);
        if !cache.spec.typesafe_by_rcu {
            return self.pages.free_pages(cpu, Page::of(slab.0, order));
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
            self.pages.free_pages(cpu, Page::of(pfn, self.pages.order_of(pfn)));
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
        if cache.limits.sheaf_capacity > 0 {
            self.grace_period_of(cpu, cache);
            cache.barns.iter().for_each(|barn| self.empty_barn(cpu, cache, barn));
        }
        let mut leftovers = Vec::new();
        for node in &cache.nodes {
            let left = node.discard_empty(self, cpu, cache, |slab| self.discard(cpu, cache, slab));
            if self.policy.lists_leftovers {
                leftovers.extend(left.into_iter().flat_map(|slab| self.in_use(cache, slab)));
            }
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
        let pages_lost = cache.nodes.iter().map(|n| n.nr_pages.peek()).sum();
        Destroyed { pages_lost, warnings: u64::from(slabs > 0), leftovers }
    }

    /// Addresses of a slab's objects that are not on its freelist, lowest first (kernel: list_slab_objects).
    fn in_use(&self, cache: &Cache<M>, slab: Slab) -> Vec<Addr> {
        let view = cache.view(self.pages, slab);
        let next = |object: &Addr| cache.links.peek(self.pages.arena(), *object);
        let free: Vec<Addr> = std::iter::successors(view.freelist, next).collect();
        let all = (0..view.objects).map(|i| cache.object_at(self.pages, slab, i));
        all.filter(|object| !free.contains(object)).collect()
    }
}

/// Free objects of one slab, linked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub head: Addr,
    pub tail: Addr,
    pub len: u64,
}

impl<M: Machine> Cache<M> {
    /// Counts an event of this CPU.
    pub(super) fn count(&self, cpu: &M::Cpu, stat: Stat) {
        self.add(cpu, stat, 1);
    }
    /// Counts `n` of them.
    pub(super) fn add(&self, cpu: &M::Cpu, stat: Stat, n: u64) {
        self.cpus.with(cpu, |c| c.counters.add(stat, n));
    }
}
