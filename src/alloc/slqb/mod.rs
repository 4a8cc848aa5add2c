//! SLQB: the queued allocator (Nick Piggin, 2008-2009, in linux-next during 2009, never merged), in its final form.
//!
//! Each CPU has, per cache, one LIFO of free objects chained through the objects themselves. Allocation pops, free
//! pushes, without lock or atomic. Every object of the CPU's own *node* goes there, whoever allocated it, so objects
//! travel between the CPUs of a node for free. When a LIFO exceeds `hiwater` one batch is sent home:
//!
//! ```text
//!             own slab ───────────────► the page's free list        (page_lock, once per run)
//!   LIFO ──┤
//!             foreign ──► rlist (one destination at a time) ──► owner's remote_free   (one lock per batch)
//!                                                                 │ at freebatch objects: owner's flag
//!   owner's LIFO empty, flag set: takes the whole remote_free ◄───┘
//! ```
//!
//! Objects of another node go to the rlist at once. An owner that does not keep up (`remote_free` above hiwater/2) has
//! its objects put into its pages by whoever frees them. Slabs are of order 0 where at most a quarter is wasted, and an
//! empty slab goes back at once: the queue of objects, not the slab, amortises cost.
//!
//! For every slab: `inuse + free in page = objects`. For every cache:
//! `Σ inuse = live + Σ LIFO + Σ rlist + Σ remote_free`.
//!
//! A machine of one CPU and one node has the uniprocessor build (no rlist, no remote_free, no flag); one of several
//! nodes looks at the page's node on each free.

mod chain;
mod cpu;
pub mod debug;
mod destroy;
mod grow;
mod lookup;
mod node;
mod objects;
pub mod policy;
mod queues;
mod report;
mod structures;
mod sysfs;
#[cfg(test)]
mod tests;
mod verify;

pub use policy::Config;
pub use queues::{CacheQueues, ListQueues};

use super::geometry::Shape;
use super::{CacheInfo, Configuration, Counters, Destroyed, Live, Map, Placement, SlabAllocator, ZERO_SIZE};
use crate::error::{Corruption, Error};
use crate::machine::{Access, Addr, Cpu, Machine, PerCpu, SpinLock, Word, cost};
use crate::page::{Field, Pages};
use crate::spec::{CacheId, CacheSpec, Object, Request};
use crate::units::{NodeId, Picos};

use chain::Links;
use cpu::CpuSlot;
use node::{List, NodeSlot, SLAB};
use policy::{Geometry, KMALLOC};
use structures::Places;

/// Period of the trimmer on each CPU (kernel: cache_trim_worker).
const TRIM_PERIOD: Picos = Picos(3_000_000_000_000);

/// The SLQB allocator.
pub struct Slqb<'p, M: Machine> {
    pages: &'p Pages<'p, M>,
    config: Config,
    shape: Shape,
    /// In order of creation; the kernel's list, newest first, is this backwards.
    caches: Vec<Cache<'p, M>>,
}

/// A cache (kernel: kmem_cache).
struct Cache<'p, M: Machine> {
    pages: &'p Pages<'p, M>,
    id: CacheId,
    spec: CacheSpec,
    geometry: Geometry,
    /// hiwater and freebatch as they are now: sysfs writes them while CPUs run.
    hiwater: Word,
    freebatch: Word,
    /// 1 after a change of them: queues may be longer than the new values allow.
    tuned: Word,
    quirks: Quirks,
    /// The order asked for could not hold one object.
    order_raised: bool,
    /// More than one CPU or node: there are other lists to send objects to.
    smp: bool,
    /// More than one node: frees look at the page's node, and node lists are used.
    numa: bool,
    descriptor: Addr,
    cpu_array: Addr,
    node_array: Addr,
    cpus: PerCpu<M, CpuSlot>,
    nodes: Vec<SpinLock<M, NodeSlot>>,
    /// The shared halves: one per CPU, then one per node.
    lists: Vec<List<M>>,
    /// Nodes in the order in which an allocation from each node tries them.
    zonelists: Vec<Vec<NodeId>>,
    /// 0 while the cache lives; after its destruction 1 + the warnings of it.
    destroyed: Word,
    /// Its own structures, as objects of other caches.
    structures: Vec<(CacheId, Addr)>,
}

/// Defects of the original that are re-created, each if it is on.
#[derive(Clone, Copy)]
struct Quirks {
    double_count: bool,
    lost_crossing: bool,
    destroy_leftovers: bool,
}

/// A request on its way down, with the caches that are trimmed if memory runs out.
struct Ask<'a, 'p, M: Machine> {
    want: Request,
    caches: &'a [Cache<'p, M>],
}

impl<'p, M: Machine> SlabAllocator<'p, M> for Slqb<'p, M> {
    type Config = Config;

    fn new(pages: &'p Pages<'p, M>, config: &Config) -> Result<Self, Error> {
        config.check()?;
        let topology = pages.machine().topology();
        let memory = topology.node_ids().map(|n| topology.node_bytes(n)).sum();
        let shape = Shape::of_machine(topology.cpus(), memory);
        let own = structures::caches(pages, config, &shape);
        let places = structures::place(pages, &own, KMALLOC.len()).ok_or_else(|| {
            Error::new("machine.memory", "too little", "memory for the structures of kmalloc's caches")
        })?;
        let mut slqb = Slqb { pages, config: config.clone(), shape, caches: Vec::new() };
        for (size, places) in KMALLOC.into_iter().zip(places) {
            let spec = CacheSpec::new(format!("kmalloc-{size}"), size).hwcache();
            let geometry = Geometry::fitting(&spec, config, &slqb.shape);
            slqb.add(spec, geometry, places);
        }
        slqb.caches.extend(own);
        Ok(slqb)
    }
    fn pages(&self) -> &'p Pages<'p, M> {
        self.pages
    }
    fn create_cache(&mut self, spec: CacheSpec) -> Result<CacheId, Error> {
        if spec.name.is_empty() {
            return Err(Error::new("cache.name", "\"\"", "a name"));
        }
        if self.caches.iter().any(|c| c.alive() && c.spec.name == spec.name) {
            return Err(Error::new("cache.name", &spec.name, "a name that no cache has"));
        }
        let geometry = Geometry::created(&spec, &self.config, &self.shape)?;
        let places = self.place(&spec.name)?;
        Ok(self.add(spec, geometry, places))
    }

    fn alloc(&self, cpu: &M::Cpu, cache: CacheId, want: Request) -> Option<Object> {
        let cache = self.cache(cache);
        let x = cache.take(cpu, &Ask { want, caches: &self.caches })?;
        if want.zero {
            self.pages.arena().fill(x, cache.spec.size, 0);
            cpu.touch_span(x, cache.spec.size, Access::Write);
        }
        Some(Object::at(x))
    }
    fn free(&self, cpu: &M::Cpu, cache: CacheId, object: Object) {
        let (cache, x) = (self.cache(cache), object.addr());
        assert!(self.pages.pfn_of(x).is_some(), "{}", cache.no_object(x));
        cpu.touch(x.plus(cache.geometry.offset), Access::Prefetch);
        if cache.geometry.debug.any() {
            cache.debug_free(cpu, x);
        }
        cpu.irq_save();
        if cache.numa {
            let pfn = cache.slab_of(cpu, x);
            cache.free_of(cpu, pfn, x);
        } else {
            // No look-up of the page: a foreign address shows here in debug builds, elsewhere in the next flush.
            debug_assert!(cache.is_object(x), "{}", cache.no_object(x));
            cache.free_local(cpu, x);
        }
    }
    fn kmalloc(&self, cpu: &M::Cpu, bytes: u64, want: Request) -> Option<Object> {
        if bytes == 0 {
            return Some(Object::at(ZERO_SIZE));
        }
        cpu.work(cost::KMALLOC_LOOKUP);
        let class = policy::kmalloc_class(bytes)?;
        self.alloc(cpu, CacheId(class as u32), want)
    }
    fn kfree(&self, cpu: &M::Cpu, object: Object) {
        let x = object.addr();
        if x == ZERO_SIZE {
            return;
        }
        cpu.work(cost::KMALLOC_LOOKUP);
        let (pfn, cache) = self.home(cpu, x, "kfree");
        debug_assert!(cache.is_object(x), "{}", cache.no_object(x));
        cpu.touch(x.plus(cache.geometry.offset), Access::Prefetch);
        if cache.geometry.debug.any() {
            cache.debug_free(cpu, x);
        }
        cpu.irq_save();
        cache.free_of(cpu, pfn, x);
    }
    fn ksize(&self, cpu: &M::Cpu, object: &Object) -> u64 {
        match object.addr() {
            ZERO_SIZE => 0,
            x => self.home(cpu, x, "ksize").1.geometry.usable(),
        }
    }
    /// Trims every CPU once, the caller last, then every node: asks for emptying, does not guarantee it.
    fn shrink(&self, cpu: &M::Cpu, cache: CacheId) {
        self.cache(cache).trim_everywhere(cpu);
    }
    fn period(&self) -> Option<Picos> {
        Some(TRIM_PERIOD)
    }
    /// One round of periodic trimming, for every cache, newest first: the local node's list, then the CPU's. Four rounds
    /// empty an idle full LIFO.
    fn trim(&self, cpu: &M::Cpu) {
        for cache in self.newest_first().map(|i| &self.caches[i]).filter(|c| c.alive()) {
            cache.trim_node(cpu, cpu.node());
            cache.trim_cpu(cpu);
        }
    }
    /// One warning for each list that still has slabs and one for each that still has partial slabs.
    ///
    /// As in the original, objects of other CPUs' slabs that are met in the first pass end up on the rlist of the CPU that
    /// runs it, which may have been flushed before: up to freebatch - 1 objects stay there and their pages are lost.
    /// Trimming every CPU until nothing is left avoids it, as does `quirk_destroy_leftovers: false`. The cache must be idle.
    fn destroy(&self, cpu: &M::Cpu, cache: CacheId) -> Destroyed {
        let cache = self.cache(cache);
        assert!(cache.alive(), "slqb: cache {} destroyed twice", cache.spec.name);
        let left = cache.tear_down(cpu);
        cache.destroyed.poke(1 + left.warnings);
        self.give_structures(cpu, cache);
        left
    }

    fn cache_count(&self) -> usize {
        self.caches.len()
    }
    fn verify(&mut self) -> Result<(), Corruption> {
        let mut slabs = verify::slabs_by_cache(self.pages, self.caches.len());
        self.caches.iter_mut().zip(&mut slabs).try_for_each(|(c, slabs)| c.verify(slabs))
    }
    fn info(&mut self, cache: CacheId) -> CacheInfo {
        self.caches[cache.0 as usize].info()
    }
    /// One row per CPU. What a CPU did to another list (a node's, or a remote CPU's by synchronous freeing) is in its own
    /// row; `state` has the counts per list, as sysfs shows them.
    fn counters(&mut self, cache: CacheId) -> Vec<Counters> {
        self.caches[cache.0 as usize].cpus.iter_mut().map(|(_, s)| s.caused().since(&s.before)).collect()
    }
    fn reset_counters(&self, cpu: &M::Cpu) {
        self.caches.iter().for_each(|c| c.cpus.with(cpu, |s| s.before = s.caused()));
    }
    fn state(&mut self, cache: CacheId) -> serde_json::Value {
        self.caches[cache.0 as usize].state()
    }
    fn placement(&mut self, cache: CacheId, object: Addr) -> Placement {
        let slab = self.pages.peek_head(object).expect("an object of the arena");
        let offset = node::unpack(self.pages.peek(slab, Field::Counters)).colour;
        let from_first = object.0 - self.pages.addr_of(slab).0 - offset;
        Placement { slab, index: from_first / self.caches[cache.0 as usize].geometry.size, offset }
    }
    fn objects(&mut self, _: &[Live]) -> Map {
        self.map_objects()
    }
    /// Newest cache first, as they are on the kernel's list.
    fn slabinfo(&mut self) -> Option<String> {
        let order: Vec<usize> = self.newest_first().filter(|i| self.caches[*i].alive()).collect();
        let infos: Vec<CacheInfo> = order.into_iter().map(|i| self.caches[i].info()).collect();
        Some(super::slabinfo_text(&infos))
    }
    fn tool(&mut self) -> Option<super::tool::Report> {
        Some(self.tool_report())
    }
    fn queues_text(&mut self) -> Option<String> {
        Some(self.queues_as_text())
    }
    fn queues_rows(&mut self) -> Vec<serde_json::Value> {
        self.queues_as_rows()
    }
}

impl<'p, M: Machine> Slqb<'p, M> {
    /// Sets hiwater and freebatch of a cache, either or both, while CPUs run (kernel: the cache's files of those names in
    /// sysfs). Queues that are longer than the new values stay so until they are next flushed.
    pub fn tune(
        &self,
        cpu: &M::Cpu,
        cache: CacheId,
        hiwater: Option<u64>,
        freebatch: Option<u64>,
    ) -> Result<(), Error> {
        let cache = self.cache(cache);
        let (h, f) = (hiwater.unwrap_or(cache.hiwater()), freebatch.unwrap_or(cache.freebatch()));
        policy::check_batches("cache", h, f)?;
        cpu.touch(cache.descriptor, Access::Write);
        cache.hiwater.poke(h);
        cache.freebatch.poke(f);
        cache.tuned.poke(1);
        Ok(())
    }

    /// Bytes of a cache's CPU and node structures and pointer arrays.
    pub fn structure_bytes(&self) -> u64 {
        let topology = self.pages.machine().topology();
        policy::structure_bytes(topology.cpus() as u64, topology.nodes() as u64)
    }
    /// Slab and cache of a kmalloc object.
    #[inline]
    fn home(&self, cpu: &M::Cpu, x: Addr, call: &str) -> (crate::page::Pfn, &Cache<'p, M>) {
        assert!(self.pages.pfn_of(x).is_some(), "slqb: {call} of {x:?}, which is outside the arena");
        let pfn = self.pages.head(cpu, x);
        let slab = self.pages.peek(pfn, Field::Flags) & SLAB != 0;
        assert!(slab, "slqb: {call} of {x:?}: frame {pfn:?} is no slab");
        (pfn, self.cache(CacheId((self.pages.peek(pfn, Field::Owner) >> 32) as u32 - 1)))
    }

    #[inline]
    fn cache(&self, id: CacheId) -> &Cache<'p, M> {
        let cache = &self.caches[id.0 as usize];
        debug_assert!(cache.alive(), "slqb: cache {} has been destroyed", cache.spec.name);
        cache
    }

    fn add(&mut self, spec: CacheSpec, geometry: Geometry, places: Places) -> CacheId {
        let id = CacheId(self.caches.len() as u32);
        self.caches.push(Cache::new(self.pages, id, spec, geometry, &self.config, places));
        id
    }
}

impl<'p, M: Machine> Cache<'p, M> {
    fn new(
        pages: &'p Pages<'p, M>,
        id: CacheId,
        spec: CacheSpec,
        geometry: Geometry,
        config: &Config,
        places: Places,
    ) -> Self {
        let asked = config.order.map(crate::units::Order);
        let machine = pages.machine();
        let topology = machine.topology();
        let (cpus, nodes) = (topology.cpus() as u64, topology.nodes() as u64);
        let Places { descriptor, lists, objects: structures } = places;
        let served = topology.cpu_ids().map(|c| topology.node_of(c)).chain(topology.node_ids());
        let lists: Vec<List<M>> = lists.into_iter().zip(served).map(|(at, n)| List::new(machine, at, n)).collect();
        let node_slot = |l: &List<M>| SpinLock::new(machine.lock("list_lock", l.hot.plus(192)), NodeSlot::default());
        Cache {
            pages,
            id,
            spec,
            hiwater: Word::new(descriptor, geometry.hiwater),
            freebatch: Word::new(descriptor, geometry.freebatch),
            tuned: Word::new(descriptor, 0),
            quirks: Quirks {
                double_count: config.quirk_double_count,
                lost_crossing: config.quirk_lost_crossing,
                destroy_leftovers: config.quirk_destroy_leftovers,
            },
            order_raised: asked.is_some_and(|o| o.bytes() < geometry.size),
            geometry,
            smp: cpus > 1 || nodes > 1,
            numa: nodes > 1,
            descriptor,
            cpu_array: machine.reserve(8 * cpus, NodeId(0)),
            node_array: machine.reserve(8 * nodes, NodeId(0)),
            cpus: PerCpu::new(machine, |_| CpuSlot::default()),
            nodes: lists[cpus as usize..].iter().map(node_slot).collect(),
            lists,
            zonelists: topology.node_ids().map(|n| topology.fallback(n)).collect(),
            destroyed: Word::new(descriptor, 0),
            structures,
        }
    }

    /// Takes an object, of the node that is asked for if any (kernel: slab_alloc).
    #[inline]
    fn take(&self, cpu: &M::Cpu, ask: &Ask<'_, 'p, M>) -> Option<Addr> {
        cpu.irq_save();
        let x = match ask.want.node {
            Some(node) if self.numa && node != cpu.node() => {
                cpu.touch(self.descriptor, Access::Read);
                self.alloc_remote(cpu, node, ask)
            }
            _ => self.alloc_local(cpu, ask),
        }?;
        if self.geometry.debug.any() {
            self.debug_alloc(cpu, x);
        }
        Some(x)
    }

    #[inline]
    fn links(&self) -> Links<'_> {
        Links { arena: self.pages.arena(), offset: self.geometry.offset }
    }
    fn alive(&self) -> bool {
        self.destroyed.peek() == 0
    }
    /// LIFO length above which a batch is flushed, and the size of one: in the descriptor's line, which its readers have
    /// paid for.
    #[inline]
    fn hiwater(&self) -> u64 {
        self.hiwater.peek()
    }
    #[inline]
    fn freebatch(&self) -> u64 {
        self.freebatch.peek()
    }

    /// A round of trimming on every CPU, the running one last, then of every node (kernel: kmem_cache_shrink).
    fn trim_everywhere(&self, cpu: &M::Cpu) {
        let topology = self.pages.machine().topology();
        for target in topology.cpu_ids().filter(|c| *c != cpu.id()) {
            cpu.call_on(target, &|c| self.trim_cpu(c));
        }
        self.trim_cpu(cpu);
        topology.node_ids().for_each(|n| self.trim_node(cpu, n));
    }
}
