//! The fast paths and what they fall into: refill and flush of a CPU's array.
//!
//! ```text
//! user ⇄ CPU array ⇄ shared array of the node ⇄ slabs of the node ⇄ pages
//!          ↓ object of another node
//!        alien array → shared array or slabs of that node
//! ```

use super::cache::Cache;
use super::grow::Growth;
use super::policy::COLD_BATCH;
use super::{CpuSlot, Slab};
use crate::alloc::Stat;
use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::page::Field;
use crate::spec::Request;

impl<M: Machine> Slab<'_, M> {
    /// Takes the newest object of this CPU's array (kernel: ____cache_alloc). Hit: one line of the cache descriptor,
    /// array header and entry, no atomic.
    #[inline]
    fn alloc_cpu(&self, cpu: &M::Cpu, cache: &Cache<M>) -> Option<Addr> {
        cpu.work(cost::SLAB_ALLOC_HIT);
        cpu.touch(cache.array_pointer(cpu.id()), Access::Read);
        cache.cpus.with(cpu, |c| {
            let top = c.array.pop(cpu);
            c.counters.count(if top.is_some() { Stat::Allochit } else { Stat::Allocmiss });
            top
        })
    }

    /// Puts an object into this CPU's array, or into the alien array of its node (kernel: __cache_free). Hit: as above;
    /// on a machine of several nodes also the page's descriptor and the slab's header, which know the object's node.
    #[inline]
    pub(super) fn free_cpu(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) {
        if self.several_nodes {
            return self.free_numa(cpu, cache, object);
        }
        // On one node the kernel does not look: a stray address is found here in debug builds, later in others, when the
        // object goes back to its slab.
        debug_assert!(self.is_object(cache, object), "{}", self.stray(cache, object));
        self.free_local(cpu, cache, object);
    }

    /// Free on a machine of several nodes: looks whose object it is.
    #[inline(never)]
    fn free_numa(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) {
        let slab = self.slab_of(cpu, cache, object);
        let headers = self.headers(cache);
        headers.read(cpu, slab);
        let node = headers.node(slab);
        if node == cpu.node() {
            self.free_local(cpu, cache, object);
        } else {
            self.free_alien(cpu, cache, object, node);
        }
    }

    #[inline]
    fn free_local(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) {
        cpu.work(cost::SLAB_FREE_HIT);
        cpu.touch(cache.array_pointer(cpu.id()), Access::Read);
        let hit = cache.cpus.with(cpu, |c| {
            let fits = c.array.push(cpu, object);
            c.counters.count(if fits { Stat::Freehit } else { Stat::Freemiss });
            fits
        });
        if !hit {
            self.free_full(cpu, cache, object);
        }
    }

    /// Free that found the array full: flush a batch, then push.
    #[cold]
    #[inline(never)]
    fn free_full(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) {
        cpu.leave_fast_path();
        self.flush(cpu, cache);
        let fits = cache.cpus.with(cpu, |c| c.array.push(cpu, object));
        debug_assert!(fits, "a flush makes room");
    }

    /// Allocation that found the array empty: refill, grow by one slab if that gives nothing, refill from that.
    fn alloc_refill(&self, cpu: &M::Cpu, cache: &Cache<M>, growth: Growth) -> Option<Addr> {
        loop {
            self.refill(cpu, cache);
            // Marks the array as touched, so that only the first refill of an idle array is small.
            let top = cache.cpus.with(cpu, |c| c.array.pop(cpu));
            if top.is_some() {
                return top;
            }
            if !self.grow(cpu, cache, cpu.node(), growth) {
                return None;
            }
        }
    }

    /// Moves up to a batch of objects into this CPU's array: from the shared array if that has any, else from slabs
    /// (kernel: cache_alloc_refill). Grows nothing.
    fn refill(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        cpu.leave_fast_path();
        cpu.work(cost::SLAB_REFILL);
        cpu.touch(cache.node_pointer(cpu.node()), Access::Read);
        let node = cache.node(cpu.node());
        let mut lists = node.lists.lock(cpu);
        node.charge(cpu);
        let lists = &mut *lists;
        let headers = self.headers(cache);
        cache.cpus.with(cpu, |CpuSlot { array, counters }| {
            let batch = cache.tunables.batch as usize;
            let want = if array.touched { batch } else { batch.min(COLD_BATCH) };
            if let Some(shared) = lists.shared.as_mut().filter(|s| !s.is_empty()) {
                let n = shared.len().min(want).min(array.room());
                cpu.work(cost::SLAB_TRANSFER_OBJECT.times(n as u64));
                shared.move_newest(cpu, array, n);
                return;
            }
            let mut got = 0;
            while got < want {
                let n = lists.draw(&headers, cpu, &cache.geometry, want - got, |object| array.fill(object));
                if n == 0 {
                    break;
                }
                got += n;
            }
            if got > 0 {
                array.wrote(cpu, got);
                cpu.work(cost::SLAB_REFILL_OBJECT.times(got as u64));
                counters.add(Stat::Listallocs, got as u64);
                cache.active.add(got as u64);
            }
        });
    }

    /// Makes room in a full array: moves the oldest batch to the shared array, or as much as fits; to the slabs if there
    /// is no room at all (kernel: cache_flusharray).
    #[cold]
    fn flush(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        cpu.work(cost::SLAB_FLUSH);
        cpu.touch(cache.node_pointer(cpu.node()), Access::Read);
        let batch = cache.tunables.batch as usize;
        let node = cache.node(cpu.node());
        let mut lists = node.lists.lock(cpu);
        node.charge(cpu);
        let n = match lists.shared.as_mut().filter(|s| s.room() > 0) {
            Some(shared) => {
                let n = batch.min(shared.room());
                cpu.work(cost::SLAB_TRANSFER_OBJECT.times(n as u64));
                cache.cpus.with(cpu, |c| c.array.copy_oldest(cpu, shared, n));
                n
            }
            None => {
                self.free_oldest(cpu, cache, &mut lists, batch);
                batch
            }
        };
        lists.longest_free = lists.longest_free.max(lists.free.len());
        drop(lists);
        cache.cpus.with(cpu, |c| c.array.slide(cpu, n));
    }

    /// Gives every object in this CPU's array back to its slab (kernel: do_drain).
    pub(super) fn drain_cpu(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        cpu.irq_save();
        cpu.touch(cache.array_pointer(cpu.id()), Access::Read);
        let node = cache.node(cpu.node());
        let mut lists = node.lists.lock(cpu);
        node.charge(cpu);
        let n = cache.cpus.with(cpu, |c| c.array.len());
        self.free_oldest(cpu, cache, &mut lists, n);
        drop(lists);
        cache.cpus.with(cpu, |c| c.array.slide(cpu, n));
    }

    /// Puts the `n` oldest objects of this CPU's array back into their slabs, without taking them out of the array:
    /// returning pages may wait for a lock, so the slot is left after each look.
    pub(super) fn free_oldest(&self, cpu: &M::Cpu, cache: &Cache<M>, lists: &mut super::node::Lists, n: usize) {
        cache.cpus.with(cpu, |c| c.array.read(cpu, 0, n));
        for i in 0..n {
            let object = cache.cpus.with(cpu, |c| c.array.get(i));
            self.put_object(cpu, cache, lists, object);
        }
    }

    /// Takes an object for `want`: from this CPU's array or from the named node's slabs, then from wherever there is one
    /// (kernel: __cache_alloc_node).
    #[inline]
    pub(super) fn alloc_any(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        if want.node.is_some_and(|n| n != cpu.node()) {
            return self.alloc_elsewhere(cpu, cache, want);
        }
        match self.alloc_cpu(cpu, cache) {
            Some(top) => Some(top),
            None => self.alloc_empty(cpu, cache, want),
        }
    }

    /// Allocation that found this CPU's array empty: refill it, and on several nodes look elsewhere if that fails.
    #[cold]
    #[inline(never)]
    fn alloc_empty(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        cpu.leave_fast_path();
        let growth = Growth { atomic: want.atomic, this_node: self.several_nodes };
        let local = self.alloc_refill(cpu, cache, growth);
        if local.is_some() || !self.several_nodes { local } else { self.alloc_elsewhere(cpu, cache, want) }
    }

    /// Allocation from the slabs of the named node, or of this one, then of any.
    #[inline(never)]
    fn alloc_elsewhere(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        self.alloc_node(cpu, cache, want.node.unwrap_or(cpu.node()), want)
    }

    /// The cache that a page belongs to, by its descriptor (kernel: page_get_cache).
    pub(super) fn cache_of(&self, cpu: &M::Cpu, object: Addr) -> &Cache<M> {
        let pfn = self.pages.pfn_of(object);
        let owner = pfn.map_or(0, |pfn| self.pages.load(cpu, pfn, Field::Owner));
        assert!(owner != 0, "kfree of {:#x}: expected an object of a cache, found page {pfn:?} without one", object.0);
        &self.caches[owner as usize - 1]
    }
}
