//! Fast paths: a private list per CPU, taken from and pushed to with interrupts off and without locks (kernel: slab_alloc,
//! slab_free).
//!
//! Allocation hit: reads a pointer in the cache, writes the per-CPU structure, reads the object (its free pointer).
//! Free hit: reads the descriptor to find the slab, the same pointer, writes the structure and the object.

use super::word::{self, Kind, Slab};
use super::{Cache, Slub};
use crate::alloc::{Counters, Stat};
use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::page::{FrameList, Pfn};
use crate::spec::Request;
use crate::units::NodeId;

/// What a CPU owns of a cache (kernel: struct kmem_cache_cpu).
///
/// The private list holds objects of `slab` only; the slab counts them as in use. No slab: no list.
pub(super) struct CpuSlab {
    /// Head of the private list, as free pointers lie in memory (see [`word::encode`]).
    freelist: u64,
    /// The cpu slab: frozen, on no list. [`NO_SLAB`]: none (one comparison on the path of a free instead of two).
    slab: Slab,
    /// Its node.
    pub node: NodeId,
    /// Address of this structure.
    pub addr: Addr,
    /// Empty slabs of a TYPESAFE_BY_RCU cache that wait for a grace period, oldest first.
    pub waiting: FrameList,
    pub counters: Counters,
    /// Allocations less frees up to the last reset of the counters.
    outstanding: i64,
}

/// No frame has this number.
const NO_SLAB: Slab = Slab(Pfn(u32::MAX));

impl CpuSlab {
    pub fn new(addr: Addr) -> CpuSlab {
        let counters = Counters::default();
        let waiting = FrameList::default();
        CpuSlab {
            freelist: word::encode(None),
            slab: NO_SLAB,
            node: NodeId(0),
            addr,
            waiting,
            counters,
            outstanding: 0,
        }
    }
    /// The cpu slab.
    pub fn slab(&self) -> Option<Slab> {
        (self.slab != NO_SLAB).then_some(self.slab)
    }
    /// Replaces the cpu slab.
    pub fn set_slab(&mut self, slab: Option<Slab>) {
        self.slab = slab.unwrap_or(NO_SLAB);
    }
    /// The first object of the private list.
    pub fn freelist(&self) -> Option<Addr> {
        word::decode(self.freelist)
    }
    /// Replaces the private list; returns its former head.
    pub fn set_freelist(&mut self, head: Option<Addr>) -> Option<Addr> {
        word::decode(std::mem::replace(&mut self.freelist, word::encode(head)))
    }
    /// Allocations less frees of this CPU, from creation on; negative where others' objects are freed.
    pub fn outstanding(&self) -> i64 {
        let n = |s| self.counters.get(s) as i64;
        self.outstanding + n(Stat::AllocFastpath) + n(Stat::AllocSlowpath)
            - n(Stat::FreeFastpath)
            - n(Stat::FreeSlowpath)
    }
    pub fn reset_counters(&mut self) {
        self.outstanding = self.outstanding();
        self.counters.reset();
    }
}

impl<M: Machine> Slub<'_, M> {
    /// Takes one object of `cache`.
    #[inline]
    pub(super) fn alloc_from(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        cpu.irq_save();
        let hit = cache.cpus.with(cpu, |c| {
            cpu.touch(cache.cpu_pointer(cpu.id()), Access::Read);
            cpu.touch(c.addr, Access::Write);
            let object = word::decode(c.freelist)?;
            if want.node.is_some_and(|n| n != c.node) {
                return None;
            }
            cpu.work(cost::SLUB_ALLOC_FAST);
            c.freelist = self.pages.arena().load(cpu, object.plus(cache.layout.offset));
            c.counters.count(Stat::AllocFastpath);
            Some(object)
        });
        if want.zero {
            return self.alloc_cleared(cpu, cache, want, hit);
        }
        match hit {
            Some(object) => Some(object),
            None => self.alloc_slow(cpu, cache, want),
        }
    }

    /// Ends an allocation that asked for a cleared object.
    #[inline(never)]
    fn alloc_cleared(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request, hit: Option<Addr>) -> Option<Addr> {
        let object = match hit {
            Some(object) => object,
            None => self.alloc_slow(cpu, cache, want)?,
        };
        self.clear(cpu, cache, object);
        Some(object)
    }

    /// Gives one object of `cache` back.
    #[inline]
    pub(super) fn free_to(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) {
        let (slab, kind) = Slab::of(self.pages, cpu, object);
        if kind != Kind::Slab(cache.index) {
            self.wrong_cache(cache, slab, object, kind);
        }
        self.free_in(cpu, cache, slab, object);
    }

    /// The same with the slab known.
    #[inline]
    pub(super) fn free_in(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, object: Addr) {
        let start = self.pages.addr_of(slab.0);
        if cache.layout.index_of(object.0 - start.0).is_none() {
            self.no_object(cache, slab, object);
        }
        cpu.irq_save();
        let hit = cache.cpus.with(cpu, |c| {
            cpu.touch(cache.cpu_pointer(cpu.id()), Access::Read);
            cpu.touch(c.addr, Access::Write);
            let own = c.slab == slab;
            if own {
                cpu.work(cost::SLUB_FREE_FAST);
                self.pages.arena().store(cpu, object.plus(cache.layout.offset), c.freelist);
                c.freelist = word::encode(Some(object));
                c.counters.count(Stat::FreeFastpath);
            }
            own
        });
        if !hit {
            self.free_slow(cpu, cache, slab, object);
        }
    }

    /// Clears an object (GFP_ZERO), interrupts on again.
    fn clear(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) {
        let bytes = cache.layout.object_size;
        self.pages.arena().fill(object, bytes, 0);
        cpu.touch_span(object, bytes, Access::Write);
    }

    #[cold]
    fn wrong_cache(&self, cache: &Cache<M>, slab: Slab, object: Addr, found: Kind) -> ! {
        let found = match found {
            Kind::Slab(i) => format!("a slab of cache {}", self.caches[i].spec.name),
            Kind::Large => "a kmalloc block of the page allocator".into(),
            Kind::Foreign => "a page that is no slab".into(),
        };
        panic!(
            "slub: cache {}: object {:#x} freed: expected a slab of the cache, found {found} (slab {})",
            cache.spec.name, object.0, slab.0.0
        );
    }

    #[cold]
    fn no_object(&self, cache: &Cache<M>, slab: Slab, object: Addr) -> ! {
        let (start, slot, objects) = (self.pages.addr_of(slab.0).0, cache.layout.slot, cache.layout.objects);
        panic!(
            "slub: cache {}: slab {}: address {:#x} freed: expected one of {objects} objects every {slot} bytes from \
             {start:#x}, found offset {}",
            cache.spec.name,
            slab.0.0,
            object.0,
            object.0 - start
        );
    }
}
