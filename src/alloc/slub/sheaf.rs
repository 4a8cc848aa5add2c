//! Sheaves: per CPU two arrays of free objects, `main` and `spare`, exchanged whole with the node's barn (6.18, for caches that
//! ask, over cpu slabs; 7.1, for all, instead of them; kernel: alloc_from_pcs, free_to_pcs).
//!
//! Allocation hit: reads the cache, writes the per-CPU structure, reads a slot of the sheaf; the object is not touched. Free
//! hit: reads the descriptor for the object's node, then the same. Objects in sheaves count as in use in their slabs. The
//! kernel guards the structure by a lock that is only tried; here a CPU does one operation at a time, and the try succeeds.

use super::policy::{FastPath, SheafForm};
use super::word::Slab;
use super::{Cache, Slub};
use crate::alloc::Stat;
use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::spec::Request;

use super::order::SHEAF_HEADER;

/// An array of free objects (kernel: struct slab_sheaf). `objects ≤ capacity`.
#[derive(Debug)]
pub(super) struct Sheaf {
    pub objects: Vec<Addr>,
    pub capacity: usize,
    /// Address of the header; the slots follow.
    pub addr: Addr,
}

impl Sheaf {
    pub fn room(&self) -> usize {
        self.capacity - self.objects.len()
    }
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
    /// Charges the header and the slot that the next free would fill.
    fn charge<C: Cpu>(&self, cpu: &C, access: Access) {
        cpu.touch(self.addr, Access::Write);
        cpu.touch(self.addr.plus(SHEAF_HEADER + 8 * self.objects.len() as u64), access);
    }
}

/// Sheaves of one CPU (kernel: struct slub_percpu_sheaves). `main` is never missing between operations.
#[derive(Debug)]
pub(super) struct CpuSheaves {
    pub main: Sheaf,
    /// Empty or full by convention; a returned one may be neither.
    pub spare: Option<Sheaf>,
    /// Collects objects that wait for an RCU grace period.
    pub rcu_free: Option<Sheaf>,
}

impl<M: Machine> Slub<'_, M> {
    /// True if the release has sheaves instead of cpu slabs.
    pub(super) fn alone(&self) -> bool {
        self.policy.sheaves == Some(SheafForm::Alone)
    }
    /// The counter of objects taken from sheaves, and of objects put into them.
    fn sheaf_stats(&self) -> (Stat, Stat) {
        if self.policy.t.fast_path == FastPath::Sheaf {
            (Stat::AllocFastpath, Stat::FreeFastpath)
        } else {
            (Stat::AllocCpuSheaf, Stat::FreeCpuSheaf)
        }
    }
    /// Counts `n` objects that users took from sheaves (put into them, if negative).
    pub(super) fn count_sheaf(&self, cpu: &M::Cpu, cache: &Cache<M>, n: i64) {
        let (alloc, free) = self.sheaf_stats();
        cache.cpus.with(cpu, |c| {
            c.counters.add(if n > 0 { alloc } else { free }, n.unsigned_abs());
            if alloc != Stat::AllocFastpath {
                c.moved(n);
            }
        });
    }

    /// Runs `f` on this CPU's sheaves. No point of interaction inside.
    pub(super) fn sheaves<R>(&self, cpu: &M::Cpu, cache: &Cache<M>, f: impl FnOnce(&mut CpuSheaves) -> R) -> R {
        cache.cpus.with(cpu, |c| f(c.sheaves.as_mut().expect("a cache with sheaves")))
    }

    /// Takes one object from this CPU's sheaf; `None`: the slabs must serve it.
    pub(super) fn alloc_sheaf(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        cpu.touch(cache.cpu_pointer(cpu.id()), Access::Read);
        if want.node.is_some_and(|n| n != self.barn_node(cpu)) {
            self.sheaf_mismatch(cpu, cache);
            return None;
        }
        cpu.work(cost::SLUB_SHEAF_ALLOC);
        let addr = cache.cpus.with(cpu, |c| c.addr);
        cpu.touch(addr, Access::Write);
        if self.sheaves(cpu, cache, |s| s.main.is_empty()) && !self.replace_empty(cpu, cache, want, true) {
            return None;
        }
        let last = self.sheaves(cpu, cache, |s| s.main.objects.last().copied())?;
        if let Some(node) = want.node
            && self.node_of(last) != node
        {
            self.sheaf_mismatch(cpu, cache);
            return None;
        }
        let object = self.sheaves(cpu, cache, |s| {
            let object = s.main.objects.pop();
            s.main.charge(cpu, Access::Read);
            object
        });
        self.count_sheaf(cpu, cache, 1);
        object
    }
    fn sheaf_mismatch(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        if self.alone() {
            cache.count(cpu, Stat::AllocNodeMismatch);
        }
    }
    fn node_of(&self, object: Addr) -> crate::units::NodeId {
        self.pages.node_of(self.pages.pfn_of(object).expect("an address of the arena"))
    }

    /// Finds a `main` with objects: the spare, a full sheaf of the barn, or (`may_fill`) one filled from slabs. False: there
    /// is none.
    pub(super) fn replace_empty(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request, may_fill: bool) -> bool {
        cpu.leave_fast_path();
        let swapped = self.sheaves(cpu, cache, |s| match &mut s.spare {
            Some(spare) if !spare.is_empty() => {
                std::mem::swap(&mut s.main, spare);
                true
            }
            _ => false,
        });
        if swapped {
            return true;
        }
        let barn = self.barn(cpu, cache);
        if let Some(full) = barn.take_full(cpu) {
            cache.count(cpu, Stat::BarnGet);
            let empty = self.sheaves(cpu, cache, |s| std::mem::replace(&mut s.main, full));
            barn.put_empty(cpu, empty);
            return true;
        }
        cache.count(cpu, Stat::BarnGetFail);
        if !may_fill || (want.atomic && !self.alone()) {
            return false;
        }
        let spare = self.sheaves(cpu, cache, |s| s.spare.take());
        let empty = spare.or_else(|| barn.take_empty(cpu)).unwrap_or_else(|| self.make_sheaf(cpu, cache));
        match self.filled(cpu, cache, empty, want) {
            Some(full) => {
                self.install_full(cpu, cache, full);
                true
            }
            None => false,
        }
    }

    /// Fills a sheaf from slabs. `None` if that fails: the sheaf is given up.
    fn filled(&self, cpu: &M::Cpu, cache: &Cache<M>, mut sheaf: Sheaf, want: Request) -> Option<Sheaf> {
        if self.fill(cpu, cache, &mut sheaf, Request { node: None, this_node: false, zero: false, ..want }) {
            return Some(sheaf);
        }
        self.flush_sheaf(cpu, cache, &mut sheaf);
        self.drop_sheaf(cpu, cache, sheaf);
        None
    }
    /// Fills a sheaf to its capacity; false if that fails, with what could be had inside.
    pub(super) fn fill(&self, cpu: &M::Cpu, cache: &Cache<M>, sheaf: &mut Sheaf, want: Request) -> bool {
        let (had, need) = (sheaf.objects.len(), sheaf.room() as u64);
        self.take_objects(cpu, cache, want, need, &mut sheaf.objects);
        let got = (sheaf.objects.len() - had) as u64;
        cpu.touch_span(sheaf.addr, SHEAF_HEADER + 8 * sheaf.objects.len() as u64, Access::Write);
        cache.add(cpu, Stat::SheafRefill, got);
        got == need
    }

    /// Makes a filled sheaf this CPU's. A call may have changed its sheaves meanwhile.
    fn install_full(&self, cpu: &M::Cpu, cache: &Cache<M>, full: Sheaf) {
        let barn = self.barn(cpu, cache);
        let (alone, mut full) = (self.alone(), Some(full));
        let empty = self.sheaves(cpu, cache, |s| {
            if s.main.is_empty() {
                let old = std::mem::replace(&mut s.main, full.take()?);
                if alone && s.spare.is_none() {
                    s.spare = Some(old);
                    return None;
                }
                return Some(old);
            }
            match &s.spare {
                None => {
                    s.spare = full.take();
                    None
                }
                Some(spare) if spare.is_empty() => std::mem::replace(&mut s.spare, full.take()),
                Some(_) => None,
            }
        });
        if let Some(empty) = empty {
            barn.put_empty(cpu, empty);
        }
        if let Some(full) = full {
            barn.put_full(cpu, full);
            cache.count(cpu, Stat::BarnPut);
        }
    }

    /// Puts one object into this CPU's sheaf; false: the slab must take it.
    pub(super) fn free_sheaf(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, object: Addr) -> bool {
        cpu.touch(cache.cpu_pointer(cpu.id()), Access::Read);
        if !self.is_local(cpu, self.pages.node_of(slab.0)) {
            return false;
        }
        cpu.work(cost::SLUB_SHEAF_FREE);
        let addr = cache.cpus.with(cpu, |c| c.addr);
        cpu.touch(addr, Access::Write);
        if self.sheaves(cpu, cache, |s| s.main.is_full()) && !self.replace_full(cpu, cache) {
            return false;
        }
        self.sheaves(cpu, cache, |s| {
            s.main.charge(cpu, Access::Write);
            s.main.objects.push(object);
        });
        self.count_sheaf(cpu, cache, -1);
        true
    }
    /// Finds a `main` with room: the spare, an empty sheaf for the full one, or a new one.
    fn replace_full(&self, cpu: &M::Cpu, cache: &Cache<M>) -> bool {
        cpu.leave_fast_path();
        let empty = match self.exchange_full(cpu, cache, true) {
            Exchanged::Done => return true,
            Exchanged::NoEmpty => self.make_sheaf(cpu, cache),
            Exchanged::TooMany => {
                let mut spare =
                    self.sheaves(cpu, cache, |s| s.spare.take()).expect("the barn is asked with a full spare");
                self.flush_sheaf(cpu, cache, &mut spare);
                spare
            }
        };
        self.install_empty(cpu, cache, empty);
        true
    }

    /// The steps that need no memory: spare, then barn. Counts what the barn refuses; in bulk also that it has no empty one.
    pub(super) fn exchange_full(&self, cpu: &M::Cpu, cache: &Cache<M>, one: bool) -> Exchanged {
        let barn = self.barn(cpu, cache);
        if self.sheaves(cpu, cache, |s| s.spare.is_none()) {
            let Some(empty) = barn.take_empty(cpu) else { return Exchanged::NoEmpty };
            self.sheaves(cpu, cache, |s| s.spare = Some(std::mem::replace(&mut s.main, empty)));
            return Exchanged::Done;
        }
        let swapped = self.sheaves(cpu, cache, |s| match &mut s.spare {
            Some(spare) if !spare.is_full() => {
                std::mem::swap(&mut s.main, spare);
                true
            }
            _ => false,
        });
        if swapped {
            return Exchanged::Done;
        }
        // Read without the lock, as in the kernel: the limit may be passed by a few.
        if barn.full(cpu) >= cache.limits.barn_max_full {
            cache.count(cpu, Stat::BarnPutFail);
            return Exchanged::TooMany;
        }
        let Some(empty) = barn.take_empty(cpu) else {
            if !one {
                cache.count(cpu, Stat::BarnPutFail);
            }
            return Exchanged::NoEmpty;
        };
        let full = self.sheaves(cpu, cache, |s| std::mem::replace(&mut s.main, empty));
        barn.put_full(cpu, full);
        cache.count(cpu, Stat::BarnPut);
        Exchanged::Done
    }

    /// Makes an empty sheaf this CPU's `main`.
    fn install_empty(&self, cpu: &M::Cpu, cache: &Cache<M>, empty: Sheaf) {
        let barn = self.barn(cpu, cache);
        let mut empty = Some(empty);
        let full = self.sheaves(cpu, cache, |s| {
            match &mut s.spare {
                None => s.spare = Some(std::mem::replace(&mut s.main, empty.take()?)),
                Some(_) if !s.main.is_full() => {}
                Some(spare) if !spare.is_full() => std::mem::swap(&mut s.main, spare),
                Some(_) => return Some(std::mem::replace(&mut s.main, empty.take()?)),
            }
            None
        });
        if let Some(empty) = empty {
            barn.put_empty(cpu, empty);
        }
        if let Some(full) = full {
            barn.put_full(cpu, full);
            cache.count(cpu, Stat::BarnPut);
        }
    }

    /// A new empty sheaf. Its memory is the host's: it is charged as a kmalloc, and never runs out.
    pub(super) fn make_sheaf(&self, cpu: &M::Cpu, cache: &Cache<M>) -> Sheaf {
        cpu.work(cost::SLUB_ALLOC_FAST);
        cpu.work(cost::KMALLOC_LOOKUP);
        cache.count(cpu, Stat::SheafAlloc);
        cache.empty_sheaf()
    }
    /// Gives an empty sheaf up.
    pub(super) fn drop_sheaf(&self, cpu: &M::Cpu, cache: &Cache<M>, sheaf: Sheaf) {
        debug_assert!(sheaf.is_empty());
        cpu.work(cost::SLUB_FREE_FAST);
        cpu.work(cost::KMALLOC_LOOKUP);
        cache.count(cpu, Stat::SheafFree);
    }
    /// Gives all objects of a sheaf to their slabs.
    pub(super) fn flush_sheaf(&self, cpu: &M::Cpu, cache: &Cache<M>, sheaf: &mut Sheaf) {
        let objects = std::mem::take(&mut sheaf.objects);
        cache.add(cpu, Stat::SheafFlush, objects.len() as u64);
        self.give_objects(cpu, cache, objects);
    }

    /// Gives this CPU's sheaves up; `main` stays, empty.
    pub(super) fn flush_sheaves(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        let (spare, rcu_free) = self.sheaves(cpu, cache, |s| (s.spare.take(), s.rcu_free.take()));
        if let Some(mut spare) = spare {
            self.flush_sheaf(cpu, cache, &mut spare);
            self.drop_sheaf(cpu, cache, spare);
        }
        if let Some(rcu_free) = rcu_free {
            self.wait_for_rcu(cpu, cache, rcu_free, None);
        }
        loop {
            let top: Vec<Addr> = self.sheaves(cpu, cache, |s| {
                let from = s.main.objects.len().saturating_sub(FLUSH_BATCH);
                s.main.objects.drain(from..).collect()
            });
            if top.is_empty() {
                return;
            }
            cache.add(cpu, Stat::SheafFlush, top.len() as u64);
            self.give_objects(cpu, cache, top);
        }
    }
}

/// Objects of `main` that are flushed at a time (kernel: PCS_BATCH_MAX).
pub(super) const FLUSH_BATCH: usize = 32;

/// What came of trying to get rid of a full `main` without memory.
pub(super) enum Exchanged {
    Done,
    /// No empty sheaf to be had.
    NoEmpty,
    /// The barn has as many full sheaves as it takes.
    TooMany,
}

impl<M: Machine> Cache<M> {
    /// An empty sheaf with an address of the cache's pool; the pool goes round.
    pub(super) fn empty_sheaf(&self) -> Sheaf {
        let (base, slots) = self.sheaf_pool;
        let nth = self.sheaves_made.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % slots;
        let capacity = self.limits.sheaf_capacity;
        let addr = base.plus(nth * sheaf_bytes(capacity));
        Sheaf { objects: Vec::with_capacity(capacity as usize), capacity: capacity as usize, addr }
    }
}

/// Bytes of a sheaf.
pub(super) fn sheaf_bytes(capacity: u64) -> u64 {
    crate::units::round_up(SHEAF_HEADER + 8 * capacity, crate::units::LINE)
}
