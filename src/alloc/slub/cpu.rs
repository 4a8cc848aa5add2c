//! Fast paths: a private list per CPU, taken from and pushed to without locks (kernel: slab_alloc, slab_free). Interrupts are
//! off meanwhile, or (2.6.39) list and transaction id change in one compare-exchange.
//!
//! Allocation hit: reads a pointer in the cache, writes the per-CPU structure, reads the object (its free pointer).
//! Free hit: reads the descriptor to find the slab, the same pointer, writes the structure and the object.
//!
//! Caches that must not take these paths (no private list, debugging, sheaves above it) are *closed*: their cpu slab is kept
//! where the fast paths do not see it, so that they miss without a test of their own.

use super::partial::CpuPartialList;
use super::policy::FastPath;
use super::sheaf::CpuSheaves;
use super::word::{self, Kind, Slab};
use super::{Cache, Slub};
use crate::alloc::{Counters, Stat};
use crate::machine::{Access, Addr, Cpu, Event, Machine, cost};
use crate::page::{FrameList, Pfn};
use crate::spec::Request;
use crate::units::NodeId;

/// What a CPU owns of a cache (kernel: struct kmem_cache_cpu).
///
/// The private list holds objects of the cpu slab only; the slab counts them as in use. No slab: no list.
pub(super) struct CpuSlab {
    /// Head of the private list, as free pointers lie in memory (see [`word::encode`]). Closed: always empty.
    freelist: u64,
    /// The cpu slab: frozen, on no list. [`NO_SLAB`]: none (one comparison on the path of a free instead of two). Closed:
    /// none.
    slab: Slab,
    /// Its node.
    pub node: NodeId,
    /// Address of this structure.
    pub addr: Addr,
    /// Cpu slab and private list of a closed cache.
    closed: Option<(Option<Slab>, Option<Addr>)>,
    /// Partial slabs of this CPU (3.2).
    pub partial: CpuPartialList,
    /// Sheaves of this CPU (6.18).
    pub sheaves: Option<Box<CpuSheaves>>,
    /// Empty slabs of a TYPESAFE_BY_RCU cache that wait for a grace period, oldest first.
    pub waiting: FrameList,
    pub counters: Counters,
    /// Transactions besides the counted hits, times the step; see [`CpuSlab::tid`].
    tid: u64,
    tid_step: u64,
    /// Allocations less frees that are not in the counts of the fast paths.
    uncounted: i64,
}

/// No frame has this number.
const NO_SLAB: Slab = Slab(Pfn(u32::MAX));

impl CpuSlab {
    /// The structure of CPU `number` of `cpus`.
    pub fn new(addr: Addr, open: bool, number: u16, cpus: usize) -> CpuSlab {
        CpuSlab {
            freelist: word::encode(None),
            slab: NO_SLAB,
            node: NodeId(0),
            addr,
            closed: (!open).then_some((None, None)),
            partial: CpuPartialList::default(),
            sheaves: None,
            waiting: FrameList::default(),
            counters: Counters::default(),
            tid: number.into(),
            tid_step: cpus.next_power_of_two() as u64,
            uncounted: 0,
        }
    }
    /// The cpu slab.
    pub fn own(&self) -> Option<Slab> {
        self.closed.map_or((self.slab != NO_SLAB).then_some(self.slab), |(slab, _)| slab)
    }
    /// The first object of the private list.
    pub fn list(&self) -> Option<Addr> {
        self.closed.map_or(word::decode(self.freelist), |(_, list)| list)
    }
    /// Replaces cpu slab and private list.
    pub fn install(&mut self, slab: Option<Slab>, list: Option<Addr>) {
        self.tid += self.tid_step;
        match &mut self.closed {
            Some(closed) => *closed = (slab, list),
            None => (self.slab, self.freelist) = (slab.unwrap_or(NO_SLAB), word::encode(list)),
        }
    }
    /// Replaces the private list.
    pub fn set_list(&mut self, list: Option<Addr>) {
        self.install(self.own(), list);
    }
    /// Transaction id: one step more at each change of this structure; modulo the step the number of the CPU. Two CPUs'
    /// ids are therefore never equal, and one CPU's never twice, so a compare-exchange that expects it can only succeed if
    /// nothing came in between. Nothing can here: a CPU does one operation at a time, and the id need not be compared.
    pub fn tid(&self) -> u64 {
        self.tid + self.tid_step * (self.counters.get(Stat::AllocFastpath) + self.counters.get(Stat::FreeFastpath))
    }
    /// Notes `n` allocations (frees, if negative) that the counts of the fast paths do not hold.
    pub fn moved(&mut self, n: i64) {
        self.uncounted += n;
    }
    /// Allocations less frees of this CPU, from creation on; negative where others' objects are freed.
    pub fn outstanding(&self) -> i64 {
        self.uncounted + self.counters.get(Stat::AllocFastpath) as i64 - self.counters.get(Stat::FreeFastpath) as i64
    }
    /// Opens or closes the fast paths, when there is no cpu slab.
    pub fn set_open(&mut self, open: bool) {
        assert!(self.own().is_none(), "fast paths change while there is no cpu slab");
        self.closed = (!open).then_some((None, None));
    }
    /// Sets one count to zero.
    pub fn reset_counter(&mut self, stat: Stat) {
        let (outstanding, tid) = (self.outstanding(), self.tid());
        self.counters.clear(stat);
        self.uncounted += outstanding - self.outstanding();
        self.tid += tid - self.tid();
    }
    pub fn reset_counters(&mut self) {
        (self.uncounted, self.tid) = (self.outstanding(), self.tid());
        self.counters.reset();
    }
}

impl<M: Machine> Slub<'_, M> {
    /// Charges what surrounds a fast path: interrupts off and on again. Closed caches pay where they go.
    #[inline]
    fn charge_entry(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        if cache.open && self.policy.t.fast_path != FastPath::DoubleCas {
            cpu.irq_save();
        }
    }
    /// Charges the lines both fast paths look at: the pointer in the cache and what it leads to.
    #[inline]
    fn charge_lines(&self, cpu: &M::Cpu, cache: &Cache<M>, c: &CpuSlab) {
        if cache.open {
            cpu.touch(cache.cpu_pointer(cpu.id()), Access::Read);
            if self.policy.t.fast_path != FastPath::Descriptor {
                cpu.touch(c.addr, Access::Write);
            }
        }
    }
    /// Charges what a hit changes besides: the list in the descriptor, or the compare-exchange.
    #[inline]
    fn charge_hit(&self, cpu: &M::Cpu, c: &CpuSlab) {
        match (self.policy.t.fast_path, c.slab) {
            (FastPath::DoubleCas, _) => cpu.spend(Event::CmpxchgLocal),
            (FastPath::Descriptor, slab) => cpu.touch(self.pages.descriptor(slab.0), Access::Write),
            _ => {}
        }
    }

    /// Takes one object of `cache`.
    #[inline]
    pub(super) fn alloc_from(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        self.charge_entry(cpu, cache);
        let hit = cache.cpus.with(cpu, |c| {
            self.charge_lines(cpu, cache, c);
            let object = word::decode(c.freelist)?;
            if want.node.is_some_and(|n| n != c.node) {
                return None;
            }
            cpu.work(cost::SLUB_ALLOC_FAST);
            self.charge_hit(cpu, c);
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
        let (slab, mark) = Slab::with_mark(self.pages, cpu, object);
        if mark != cache.mark {
            return self.free_block(cpu, cache, slab, object, mark);
        }
        self.free_in(cpu, cache, slab, object);
    }

    /// The same with the slab known.
    #[inline]
    pub(super) fn free_in(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, object: Addr) {
        let start = self.pages.addr_of(slab.0);
        if cache.layout.index_of(object.0 - start.0).is_none() {
            return self.free_behind_red_zone(cpu, cache, slab, object);
        }
        self.charge_entry(cpu, cache);
        let hit = cache.cpus.with(cpu, |c| {
            self.charge_lines(cpu, cache, c);
            let own = c.slab == slab;
            if own {
                cpu.work(cost::SLUB_FREE_FAST);
                self.charge_hit(cpu, c);
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

    /// Frees what does not begin where a slot begins: an object behind a left red zone, or none at all.
    #[cold]
    fn free_behind_red_zone(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, object: Addr) {
        let bytes = object.0 - self.pages.addr_of(slab.0).0;
        if cache.layout.left == 0 || cache.layout.object_index(bytes).is_none() {
            self.no_object(cache, slab, object);
        }
        self.free_slow(cpu, cache, slab, object);
    }

    /// Clears an object (GFP_ZERO), interrupts on again.
    pub(super) fn clear(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) {
        let bytes = cache.layout.object_size;
        self.pages.arena().fill(object, bytes, 0);
        cpu.touch_span(object, bytes, Access::Write);
    }

    /// Frees what lies in no slab of the cache: a block taken in place of an object, or something foreign.
    #[cold]
    fn free_block(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, object: Addr, mark: u64) {
        let found = slab.kind(self.pages, mark);
        if found != Kind::Large || !cache.block_will_do {
            self.wrong_cache(cache, slab, object, found);
        }
        self.kfree_large(cpu, slab, object);
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
