//! The fast paths and what they fall into: refill and flush of a CPU's array.
//!
//! ```text
//! user ⇄ CPU array ⇄ shared array of the node ⇄ slabs of the node ⇄ pages
//!          ↓ object of another node
//!        alien array → shared array or slabs of that node
//! ```

use super::array::Array;
use super::cache::Cache;
use super::grow::Growth;
use super::header::Header;
use super::node::{Doomed, Lists};
use super::policy::{COLD_BATCH, Management, NewSlab, SharedTouched};
use super::{CpuSlot, Slab};
use crate::alloc::{Counters, Stat};
use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::spec::Request;

impl<M: Machine> Slab<'_, M> {
    /// Takes the newest object of this CPU's array (kernel: ____cache_alloc). Hit: one line of the cache descriptor,
    /// array header and entry, no atomic. What finds nothing counts itself.
    #[inline]
    fn alloc_cpu(&self, cpu: &M::Cpu, cache: &Cache<M>) -> Option<Addr> {
        cpu.work(cost::SLAB_ALLOC_HIT);
        cpu.touch(cache.array_pointer(cpu.id()), Access::Read);
        cache.cpus.with(cpu, |c| {
            let top = c.array.pop(cpu);
            if top.is_some() {
                c.counters.count(Stat::Allochit);
            }
            top
        })
    }

    /// Puts an object into this CPU's array, or into the alien array of its node (kernel: __cache_free). Hit: as above;
    /// on a machine of several nodes also the page's descriptor, and in 2.6.24 the slab's header, which know the node.
    #[inline]
    pub(super) fn free_cpu(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) {
        if self.several_nodes {
            return self.free_numa(cpu, cache, object);
        }
        // On one node the kernel does not look: a stray address is found here in debug builds, later in others, when the
        // object goes back to its slab.
        debug_assert!(self.locate(cache, cache.slot_of(object)).is_some(), "{}", self.stray(cache, object));
        self.free_local(cpu, cache, object);
    }

    /// Free on a machine of several nodes: looks whose object it is.
    #[inline(never)]
    fn free_numa(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) {
        let object = if cache.closed() { self.debug_free(cpu, cache, object) } else { object };
        let slab = self.slab_of(cpu, cache, object);
        let headers = self.headers(cache);
        if self.policy.management == Management::Chain {
            headers.read(cpu, slab);
        }
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
            if fits {
                c.counters.count(Stat::Freehit);
            }
            fits
        });
        if !hit {
            self.free_full(cpu, cache, object);
        }
    }

    /// Free that found the array full, or closed.
    #[cold]
    #[inline(never)]
    fn free_full(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) {
        if cache.guarded && !cache.closed() {
            return self.free_guarded(cpu, cache, object);
        }
        cpu.leave_fast_path();
        if cache.closed() {
            // On several nodes it has been checked before its node was looked for.
            let slot = if self.several_nodes { object } else { self.debug_free(cpu, cache, object) };
            return self.free_closed(cpu, cache, slot);
        }
        cache.cpus.with(cpu, |c| c.counters.count(Stat::Freemiss));
        self.flush_for(cpu, cache, object);
    }

    /// Free with hardened lists: the object on top of the array would be freed twice in a row, which changes nothing.
    fn free_guarded(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) {
        let fits = cache.cpus.with(cpu, |c| {
            if c.array.entries().last() == Some(&object) {
                c.counters.count(Stat::Warnings);
                return true;
            }
            let fits = c.array.push_any(cpu, object);
            c.counters.count(if fits { Stat::Freehit } else { Stat::Freemiss });
            fits
        });
        if !fits {
            cpu.leave_fast_path();
            self.flush_for(cpu, cache, object);
        }
    }

    /// Flushes a batch, then pushes.
    pub(super) fn flush_for(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) {
        self.flush(cpu, cache);
        let fits = cache.cpus.with(cpu, |c| c.array.push_any(cpu, object));
        debug_assert!(fits, "a flush makes room");
    }

    /// Allocation that found the array empty: refill, grow by one slab if that gives nothing.
    fn alloc_refill(&self, cpu: &M::Cpu, cache: &Cache<M>, growth: Growth) -> Option<Addr> {
        loop {
            self.refill(cpu, cache);
            // Marks the array as touched, so that only the first refill of an idle array is small.
            let top = cache.cpus.with(cpu, |c| c.array.pop_any(cpu));
            if top.is_some() {
                return top;
            }
            let slab = self.grow(cpu, cache, cpu.node(), growth)?;
            match self.policy.new_slab {
                NewSlab::ToFreeList => self.link_slab(cpu, cache, slab),
                NewSlab::IntoArray => {
                    self.fill_from(cpu, cache, slab);
                    self.link_slab(cpu, cache, slab);
                    return cache.cpus.with(cpu, |c| c.array.pop_any(cpu));
                }
            }
        }
    }

    /// Objects that a refill may take: a batch, fewer while the array is cold.
    fn wanted(cache: &Cache<M>, touched: bool) -> usize {
        let batch = cache.tunables.batch as usize;
        if touched { batch } else { batch.min(COLD_BATCH) }
    }

    /// Moves up to a batch of objects into this CPU's array: from the shared array if that has any, else from slabs
    /// (kernel: cache_alloc_refill). Grows nothing.
    fn refill(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        cpu.leave_fast_path();
        cpu.work(cost::SLAB_REFILL);
        cpu.touch(cache.node_pointer(cpu.node()), Access::Read);
        let node = cache.node(cpu.node());
        if self.policy.new_slab == NewSlab::IntoArray && node.seems_empty(cpu) {
            return;
        }
        let mut lists = node.lock(cpu);
        let lists = &mut *lists;
        let headers = self.headers(cache);
        cache.cpus.with(cpu, |CpuSlot { array, counters, .. }| {
            let want = Self::wanted(cache, array.touched);
            if let Some(shared) = lists.shared.as_mut().filter(|s| !s.is_empty()) {
                let n = shared.len().min(want).min(array.room());
                cpu.work(cost::SLAB_TRANSFER_OBJECT.times(n as u64));
                shared.move_newest(cpu, array, n);
                shared.touched |= self.policy.shared_touched == SharedTouched::ByRefills;
                return;
            }
            let mut got = 0;
            while got < want {
                if cache.closed() {
                    self.debug_draw(cache, lists);
                }
                let n = lists.draw(&headers, cpu, want - got, |object| array.fill(object));
                if n == 0 {
                    break;
                }
                got += n;
            }
            Self::filled(cpu, cache, array, counters, got);
        });
    }

    /// Counts and pays for `got` objects that a refill has moved from slabs.
    fn filled(cpu: &M::Cpu, cache: &Cache<M>, array: &Array, counters: &mut Counters, got: usize) {
        if got > 0 {
            array.wrote(cpu, got);
            cpu.work(cost::SLAB_REFILL_OBJECT.times(got as u64));
            counters.add(Stat::Listallocs, got as u64);
            cache.active.add(got as u64);
        }
    }

    /// Moves objects of a slab that is on no list yet into this CPU's array, unless that was filled meanwhile
    /// (kernel: alloc_block).
    fn fill_from(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Header) {
        let headers = self.headers(cache);
        cache.cpus.with(cpu, |CpuSlot { array, counters, .. }| {
            if !array.is_empty() {
                return;
            }
            headers.modify(cpu, slab);
            let got = Self::wanted(cache, array.touched).min(cache.geometry.num as usize);
            (0..got).for_each(|_| array.fill(headers.take(cpu, slab)));
            Self::filled(cpu, cache, array, counters, got);
        });
    }

    /// Makes room in a full array: moves the oldest batch to the shared array, or as much as fits; to the slabs if there
    /// is no room at all (kernel: cache_flusharray).
    #[cold]
    fn flush(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        cpu.work(cost::SLAB_FLUSH);
        cpu.touch(cache.node_pointer(cpu.node()), Access::Read);
        let batch = cache.tunables.batch as usize;
        let mut doomed = Doomed::default();
        let mut lists = cache.node(cpu.node()).lock(cpu);
        let n = match lists.shared.as_mut().filter(|s| s.room() > 0) {
            Some(shared) => {
                let n = batch.min(shared.room());
                cpu.work(cost::SLAB_TRANSFER_OBJECT.times(n as u64));
                cache.cpus.with(cpu, |c| c.array.copy_oldest(cpu, shared, n));
                n
            }
            None => {
                doomed = self.free_oldest(cpu, cache, &mut lists, batch);
                batch
            }
        };
        lists.longest_free = lists.longest_free.max(lists.free.len());
        drop(lists);
        cache.cpus.with(cpu, |c| c.array.slide(cpu, n));
        self.destroy_doomed(cpu, cache, doomed);
    }

    /// Gives every object in this CPU's array back to its slab (kernel: do_drain).
    pub(super) fn drain_cpu(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        cpu.irq_save();
        cpu.touch(cache.array_pointer(cpu.id()), Access::Read);
        let mut lists = cache.node(cpu.node()).lock(cpu);
        let n = cache.cpus.with(cpu, |c| c.array.len());
        let doomed = self.free_oldest(cpu, cache, &mut lists, n);
        drop(lists);
        cache.cpus.with(cpu, |c| c.array.slide(cpu, n));
        self.destroy_doomed(cpu, cache, doomed);
    }

    /// Puts the `n` oldest objects of this CPU's array back into their slabs, without taking them out of the array:
    /// returning pages may wait for a lock, so the slot is left after each look.
    pub(super) fn free_oldest(&self, cpu: &M::Cpu, cache: &Cache<M>, lists: &mut Lists, n: usize) -> Doomed {
        cache.cpus.with(cpu, |c| c.array.read(cpu, 0, n));
        self.free_block(cpu, cache, lists, n, |i| cache.cpus.with(cpu, |c| c.array.get(i)))
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

    /// Allocation that found this CPU's array empty, or closed.
    #[cold]
    #[inline(never)]
    fn alloc_empty(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        cpu.leave_fast_path();
        if cache.closed() {
            return self.alloc_closed(cpu, cache, want);
        }
        cache.cpus.with(cpu, |c| c.counters.count(Stat::Allocmiss));
        self.alloc_missed(cpu, cache, want)
    }

    /// Refills this CPU's empty array, and on several nodes looks elsewhere if that fails.
    pub(super) fn alloc_missed(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        let growth = Growth { atomic: want.atomic, this_node: self.several_nodes };
        let local = self.alloc_refill(cpu, cache, growth);
        if local.is_none() {
            cache.cpus.with(cpu, |c| c.missed += 1);
        }
        if local.is_some() || !self.several_nodes {
            return local;
        }
        self.alloc_node(cpu, cache, want.node.unwrap_or(cpu.node()), want)
    }

    /// Allocation from the slabs of the named node, then of any.
    #[inline(never)]
    fn alloc_elsewhere(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        let slot = self.alloc_node(cpu, cache, want.node.unwrap_or(cpu.node()), want)?;
        Some(if cache.closed() { self.debug_alloc(cpu, cache, slot) } else { slot })
    }
}
