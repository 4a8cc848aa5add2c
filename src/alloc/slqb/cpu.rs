//! The paths of the running CPU: its LIFO, the batch that overflows from it, and the rlist of foreign objects.
//!
//! All of it belongs to one CPU and is touched with interrupts off, so no lock and no atomic is needed. LIFO hit:
//! descriptor and pointer array (read), list line (written), the object's first line. Nothing else.

use super::chain::Chain;
use super::node::{ListId, count_claim};
use super::{Ask, Cache};
use crate::alloc::{Counters, Stat};
use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::page::FrameList;

/// What one CPU owns of a cache (kernel: kmem_cache_cpu, without the part of the list that others touch).
///
/// At rest `lifo.nr ≤ max(hiwater, lifted)`; `rlist.nr < freebatch`, all of slabs of list `rlist_to`.
#[derive(Default)]
pub(super) struct CpuSlot {
    /// Free objects of this CPU's node, whoever allocated them and whoever owns their slab.
    pub lifo: Chain,
    /// Length that the last claim left the LIFO with, less freebatch - 1 for each free that flushed since.
    pub lifted: u64,
    /// Free objects on their way to one other list.
    pub rlist: Chain,
    /// The list they all belong to; kept after a flush (kernel: remote_cache_list).
    pub rlist_to: Option<ListId>,
    /// Colour of the next slab.
    pub colour_next: u64,
    /// Events of this CPU's list, by this CPU.
    pub counters: Counters,
    /// Events that this CPU caused on other lists.
    pub elsewhere: Counters,
    /// Both together at the last reset.
    pub before: Counters,
    /// Allocations that were counted on two lists (the memory-less path).
    pub counted_twice: u64,
    /// Slabs of an RCU cache that this CPU emptied, oldest first, until their grace period is over.
    pub waiting: FrameList,
    /// Pages this CPU has taken from the page allocator, and returned.
    pub pages_taken: u64,
    pub pages_returned: u64,
}

impl CpuSlot {
    /// Everything this CPU counted, on whichever list.
    pub fn caused(&self) -> Counters {
        let mut sum = self.counters.clone();
        sum.merge(&self.elsewhere);
        sum
    }
}

impl<'p, M: Machine> Cache<'p, M> {
    /// Takes an object of this CPU's node (kernel: __slab_alloc).
    #[inline]
    pub(super) fn alloc_local(&self, cpu: &M::Cpu, ask: &Ask<'_, 'p, M>) -> Option<Addr> {
        self.touch_hot(cpu);
        let hit = self.cpus.with(cpu, |s| {
            let x = s.lifo.pop(cpu, self.links());
            s.counters.add(Stat::SlqbAlloc, u64::from(x.is_some()));
            x
        });
        if hit.is_some() {
            cpu.work(cost::SLQB_ALLOC_HIT);
            return hit;
        }
        self.alloc_slow(cpu, ask)
    }

    /// Puts an object of this CPU's node on its LIFO.
    #[inline]
    pub(super) fn free_local(&self, cpu: &M::Cpu, x: Addr) {
        self.touch_hot(cpu);
        cpu.work(cost::SLQB_FREE_HIT);
        let nr = self.cpus.with(cpu, |s| {
            s.counters.count(Stat::SlqbFree);
            s.lifo.push(cpu, self.links(), x);
            s.lifo.nr
        });
        if nr > self.hiwater() {
            self.flush_lifo(cpu);
            self.cpus.with(cpu, |s| s.lifted = s.lifted.saturating_sub(self.freebatch() - 1));
        }
    }

    /// Frees an object of another node.
    pub(super) fn free_remote(&self, cpu: &M::Cpu, owner: ListId, x: Addr) {
        self.touch_hot(cpu);
        cpu.work(cost::SLQB_FREE_HIT);
        self.cpus.with(cpu, |s| {
            s.counters.count(Stat::SlqbFree);
            s.counters.count(Stat::FreeRemote);
        });
        self.remote_put(cpu, owner, x);
    }

    /// Pays for the lines every operation touches: descriptor, pointer array, list. On one CPU the structure is embedded.
    #[inline]
    fn touch_hot(&self, cpu: &M::Cpu) {
        cpu.touch(self.descriptor, Access::Read);
        if self.smp {
            cpu.touch(self.cpu_array.plus(8 * u64::from(cpu.id().0)), Access::Read);
        }
        cpu.touch(self.list(self.cpu_list(cpu.id())).hot, Access::Write);
    }

    /// The LIFO is empty: claim what others have sent home, else one object of a partial slab, else a new slab.
    #[cold]
    fn alloc_slow(&self, cpu: &M::Cpu, ask: &Ask<'_, 'p, M>) -> Option<Addr> {
        cpu.leave_fast_path();
        let me = self.cpu_list(cpu.id());
        if self.smp && self.list(me).check.load(cpu) != 0 {
            let claimed = self.claim_own(cpu);
            if claimed > self.hiwater() {
                self.flush_lifo(cpu);
            }
            let x = self.cpus.with(cpu, |s| {
                s.lifted = s.lifo.nr;
                s.lifo.pop(cpu, self.links())
            });
            if x.is_some() {
                cpu.work(cost::SLQB_ALLOC_HIT);
                self.cpus.with(cpu, |s| s.counters.count(Stat::SlqbAlloc));
                return x;
            }
        }
        if self.numa && self.memoryless(cpu.node()) {
            // Without this every allocation would make a new slab on another node and use one object of it.
            let x = self.alloc_remote(cpu, cpu.node(), ask);
            if x.is_some() {
                // Quirk: counted on the node's list and on the CPU's.
                let twice = u64::from(self.quirks.double_count);
                self.cpus.with(cpu, |s| {
                    s.counters.add(Stat::SlqbAlloc, twice);
                    s.counted_twice += twice;
                });
                return x;
            }
        }
        let x = self.page_pop(cpu, me);
        if x.is_some() {
            self.cpus.with(cpu, |s| {
                s.counters.count(Stat::SlqbAlloc);
                s.counters.count(Stat::AllocSlabFill);
            });
            return x;
        }
        self.new_slab(cpu, None, ask).or_else(|| if self.numa { self.alloc_remote(cpu, cpu.node(), ask) } else { None })
    }

    /// Claims this CPU's remote_free list; returns the length of the LIFO.
    pub(super) fn claim_own(&self, cpu: &M::Cpu) -> u64 {
        let claimed = self.claim(cpu, self.cpu_list(cpu.id()));
        self.cpus.with(cpu, |s| {
            self.attach(cpu, &mut s.lifo, claimed);
            count_claim(&mut s.counters, claimed.nr);
            s.lifo.nr
        })
    }

    /// Flushes one batch of this CPU's LIFO; returns the length left.
    #[cold]
    pub(super) fn flush_lifo(&self, cpu: &M::Cpu) -> u64 {
        cpu.leave_fast_path();
        // Out of the slot while locks are taken; nobody else reaches it meanwhile.
        let mut lifo = self.cpus.with(cpu, |s| std::mem::take(&mut s.lifo));
        let flushed = self.flush(cpu, self.cpu_list(cpu.id()), &mut lifo);
        self.cpus.with(cpu, |s| {
            flushed.count(&mut s.counters);
            s.lifo = lifo;
            lifo.nr
        })
    }

    /// Appends an object to the running CPU's rlist (kernel: slab_free_to_remote). One destination at a time: the rlist
    /// is flushed when the owner changes, and when it holds a batch.
    pub(super) fn remote_put(&self, cpu: &M::Cpu, owner: ListId, x: Addr) {
        cpu.work(cost::SLQB_REMOTE_PUT);
        // The line behind the list's three holds rlist, its destination and the colour.
        cpu.touch(self.list(self.cpu_list(cpu.id())).hot.plus(192), Access::Write);
        if self.cpus.with(cpu, |s| s.rlist_to != Some(owner)) {
            self.flush_rlist(cpu);
            self.cpus.with(cpu, |s| s.rlist_to = Some(owner));
        }
        let nr = self.cpus.with(cpu, |s| {
            s.rlist.push_back(cpu, self.links(), x);
            s.rlist.nr
        });
        if nr >= self.freebatch() {
            self.flush_rlist(cpu);
        }
    }

    /// Sends the running CPU's rlist home (kernel: flush_remote_free_cache).
    pub(super) fn flush_rlist(&self, cpu: &M::Cpu) {
        cpu.leave_fast_path();
        let (rlist, to) = self.cpus.with(cpu, |s| (std::mem::take(&mut s.rlist), s.rlist_to));
        self.send_counted(cpu, rlist, to);
    }

    /// Sends an rlist, of whichever CPU, and counts it on the running one.
    pub(super) fn send_counted(&self, cpu: &M::Cpu, rlist: Chain, to: Option<ListId>) {
        let Some(to) = to.filter(|_| rlist.nr > 0) else { return };
        self.cpus.with(cpu, |s| {
            s.counters.count(Stat::FlushRfreeList);
            s.counters.add(Stat::FlushRfreeListObjects, rlist.nr);
        });
        self.send(cpu, to, rlist);
    }

    /// A round of trimming for the running CPU: claim, one batch whatever the LIFO's length, the rlist.
    pub(super) fn trim_cpu(&self, cpu: &M::Cpu) {
        cpu.irq_save();
        self.touch_hot(cpu);
        self.claim_own(cpu);
        let left = self.flush_lifo(cpu);
        self.cpus.with(cpu, |s| s.lifted = left);
        if self.smp {
            self.flush_rlist(cpu);
        }
        self.return_waited(cpu, false);
    }
}
