//! `slub`: each CPU allocates from a slab of its own, through a private list without locks.
//!
//! A slab is a block of pages cut into slots; its descriptor lies outside, in the page frame ([`word`]). A CPU takes the
//! whole freelist of one slab as its private list ([`cpu`]); when it is used up, it takes over what others have freed into
//! that slab meanwhile, or a slab of a node's partial list ([`node`]), or a new one ([`slow`]). Full slabs are on no list:
//! the first free puts them back. How large slabs are is decided in [`order`], once per cache.
//!
//! Releases differ in [`policy`] values only; [`eras`] lists them.
//!
//! Lock order: `list_lock` → slab lock, except that a free holds the slab lock and takes `list_lock`; therefore walkers of a
//! list only *try* slab locks (kernel: get_partial_node). Pages are asked for with no lock held.

mod asked;
mod barn;
mod bulk;
mod config;
mod cpu;
pub mod debug;
pub mod eras;
pub mod history;
mod kmalloc;
mod locked;
mod lockless;
mod node;
pub mod order;
mod partial;
mod percache;
pub mod policy;
mod prefill;
mod rcu;
mod report;
mod sheaf;
mod single;
mod slabword;
mod slow;
mod sysfs;
mod verify;
mod word;
mod write;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::geometry::Shape;
use super::{CacheInfo, Counters, Destroyed, Live, Map, Placement, Prefilled, SlabAllocator, Stat};
use crate::error::{Corruption, Error};
use crate::machine::{Addr, Cpu, Machine, PerCpu, SpinLock};
use crate::page::Pages;
use crate::spec::{CacheId, CacheSpec, Kind, Object, Request};
use crate::units::{CpuId, NodeId, round_up};

use barn::Barn;
pub use config::Config;
use cpu::CpuSlab;
use debug::{Debug, DebugOption};
use node::Node;
use order::{Asked, Layout, Limits, WORD};
pub use policy::Policy;
pub(super) use sysfs::by_place;

use policy::{DebugPath, FastPath, MergeWalk, OrderFallback, SlowPath};
use word::{Links, Slab};

/// A cache (kernel: struct kmem_cache). Slabs of all its CPUs, partial lists and full ones together: Σ `nr_slabs` of the
/// nodes.
struct Cache<M: Machine> {
    /// Index in [`Slub::caches`].
    index: usize,
    /// `Owner` of its slabs.
    mark: u64,
    /// What the first creator asked for.
    spec: CacheSpec,
    /// Kmalloc memory of this kind; [`Kind::Normal`] of other caches.
    kind: Kind,
    /// Debug flags asked for: by the debug option, later by writes.
    debug: Debug,
    /// Names of the caches that were merged into this one.
    aliases: Vec<String>,
    layout: Layout,
    limits: Limits,
    /// Its free pointers.
    links: Links,
    /// The order in which new slabs are linked; empty: ascending.
    permutation: Vec<u32>,
    /// The fast paths serve it.
    open: bool,
    /// There is no private list: one object at a time, from a cpu slab that is kept or given up.
    takes_one: bool,
    /// There is no cpu slab: one object at a time, from the node's list.
    single: bool,
    /// Its slabs are lockless.
    lockless: bool,
    /// Where an object cannot be had, one block of the page allocator may do (2.6.25).
    block_will_do: bool,
    /// Line of the fields that slow paths read.
    descriptor: Addr,
    cpus: PerCpu<M, CpuSlab>,
    nodes: Vec<Node<M>>,
    /// One per node, if the cache has sheaves.
    barns: Vec<Barn<M>>,
    /// Addresses of sheaves: the first, and how many; sheaves made so far.
    sheaf_pool: (Addr, u64),
    sheaves_made: AtomicU64,
    /// What waits for an RCU grace period, oldest first, in releases that collect such frees.
    rcu: Option<SpinLock<M, VecDeque<rcu::Waiting>>>,
    /// Creations less destructions; 0: destroyed.
    users: AtomicU32,
}

/// Bytes of a cache descriptor before its pointer arrays: the fields of slow paths, and what only reports read.
const DESCRIPTOR_BYTES: u64 = 256;
/// Bytes of a cpu structure of 2.6.24: freelist, page, node, offset, objsize (kernel: struct kmem_cache_cpu).
const CPU_STRUCTURE_BYTES: u64 = 32;
/// Cpu structures in each CPU's static pool (kernel: NR_KMEM_CACHE_CPU). Further ones are allocated one by one.
const CPU_POOL: u64 = 100;

impl<M: Machine> Cache<M> {
    /// Address of the pointer to a CPU's structure: the one line of the cache that fast paths read.
    #[inline]
    fn cpu_pointer(&self, cpu: CpuId) -> Addr {
        self.descriptor.plus(DESCRIPTOR_BYTES + 8 * u64::from(cpu.0))
    }
    /// The node structure of the node a slab lies on.
    fn node(&self, node: NodeId) -> &Node<M> {
        &self.nodes[usize::from(node.0)]
    }
    /// Address of an object by its index in its slab.
    #[inline]
    fn object_at(&self, pages: &Pages<'_, M>, slab: Slab, index: u64) -> Addr {
        pages.addr_of(slab.0).plus(self.layout.left + index * self.layout.slot)
    }
    /// Index of an object of the slab.
    #[inline]
    fn index_in(&self, pages: &Pages<'_, M>, slab: Slab, object: Addr) -> u64 {
        let bytes = object.0.wrapping_sub(pages.addr_of(slab.0).0);
        self.layout.object_index(bytes).expect("an object of the slab")
    }
    fn is_destroyed(&self) -> bool {
        self.users.load(Ordering::Relaxed) == 0
    }
}

/// The SLUB allocator.
pub struct Slub<'p, M: Machine> {
    pages: &'p Pages<'p, M>,
    /// Name of the release.
    era: String,
    policy: Policy,
    debug: DebugOption,
    /// Tunables of single caches.
    per_cache: percache::PerCache,
    shape: Shape,
    /// `order` of the configuration, for the flag `order_raised`.
    order_asked: Option<u8>,
    caches: Vec<Cache<M>>,
    /// Kmalloc caches come first, so that the class of a size is its cache's id.
    kmalloc_classes: usize,
    /// Further copies of the ordinary classes, behind these.
    kmalloc_copies: std::ops::Range<usize>,
    /// Where the classes of each kind begin, if it has caches.
    kmalloc_kinds: [Option<usize>; 4],
    /// There are copies or other kinds.
    kmalloc_several: bool,
    /// All kmalloc caches.
    kmalloc_caches: usize,
    large: PerCpu<M, Counters>,
    /// Nodes with memory in the order in which an allocation of each node visits them; the first is the local one.
    zonelists: Vec<Vec<NodeId>>,
    /// Start of each CPU's static pool of cpu structures.
    cpu_pools: Vec<Addr>,
}

impl<'p, M: Machine> Slub<'p, M> {
    fn cache(&self, id: CacheId) -> &Cache<M> {
        &self.caches[id.0 as usize]
    }

    fn asked<'a>(&self, spec: &'a CacheSpec, kmalloc: bool) -> Asked<'a> {
        Asked { spec, kmalloc, debug: self.debug.of(&spec.name) }
    }

    /// Makes a cache without looking for one to share.
    fn add_cache(&mut self, spec: CacheSpec, kmalloc: bool) -> Result<CacheId, Error> {
        let (policy, shape) = (&self.per_cache.policy(&spec.name, self.policy), &self.shape);
        let asked = self.asked(&spec, kmalloc);
        let layout = Layout::new(asked, policy, shape)?;
        let wanted_debug = asked.debug;
        let limits = Limits::new(&spec.name, &layout, policy, shape);
        let machine = self.pages.machine();
        let topology = machine.topology();
        let index = self.caches.len();
        let descriptor = machine.reserve(DESCRIPTOR_BYTES + 8 * topology.cpus() as u64, NodeId(0));
        let debug = layout.debug.any();
        let lockless = policy.t.slow_path == SlowPath::Lockless;
        let single = policy.t.fast_path == FastPath::Sheaf || (debug && policy.debug_path == DebugPath::NodeList);
        let takes_one = policy.t.fast_path == FastPath::SlabLock || debug;
        let open = !takes_one && !single && limits.sheaf_capacity == 0 && !policy.t.freelist_hardened;
        let pools = &self.cpu_pools;
        let cpus = PerCpu::new(machine, |cpu| {
            let nth = index as u64;
            let at = if nth < CPU_POOL {
                pools[usize::from(cpu.0)].plus(nth * CPU_STRUCTURE_BYTES)
            } else {
                machine.reserve(CPU_STRUCTURE_BYTES, topology.node_of(cpu))
            };
            CpuSlab::new(at, open, cpu.0, topology.cpus())
        });
        let nodes = topology.node_ids().map(|n| Node::new(machine, n, lockless)).collect();
        let has_sheaves = limits.sheaf_capacity > 0;
        let barns = topology.node_ids().filter(|_| has_sheaves).map(|n| Barn::new(machine, n)).collect();
        let sheaves = if has_sheaves { 4 * topology.cpus() as u64 + 24 * topology.nodes() as u64 } else { 0 };
        let pool_bytes = sheaves * sheaf::sheaf_bytes(limits.sheaf_capacity);
        let pool = if has_sheaves { machine.reserve(pool_bytes, NodeId(0)) } else { descriptor };
        let collects = policy.sheaves.is_some();
        let rcu = collects.then(|| SpinLock::new(machine.lock("rcu_lock", descriptor), VecDeque::new()));
        // The creator's secrets: drawn from the cache's number, so that runs repeat.
        let mut draws = Draws(index as u64);
        let secret = if policy.t.freelist_hardened { draws.next() | 1 } else { 0 };
        let objects = if policy.t.freelist_random { layout.objects as u32 } else { 0 };
        let few = shape.page_size / layout.slot < policy.t.min_objects.on(shape.cpus);
        self.caches.push(Cache {
            index,
            mark: word::owner_mark(index),
            spec,
            kind: Kind::Normal,
            debug: wanted_debug,
            aliases: Vec::new(),
            links: Links { offset: layout.offset, secret },
            permutation: draws.permutation(objects),
            open,
            takes_one,
            single,
            lockless,
            block_will_do: kmalloc && few && policy.t.order_fallback == OrderFallback::KmallocBlock,
            layout,
            limits,
            descriptor,
            cpus,
            nodes,
            barns,
            sheaf_pool: (pool, sheaves.max(1)),
            sheaves_made: AtomicU64::new(0),
            rcu,
            users: AtomicU32::new(1),
        });
        let cache = &mut self.caches[index];
        if has_sheaves {
            let mut mains: Vec<_> = topology.cpu_ids().map(|_| cache.empty_sheaf()).collect();
            cache.cpus.iter_mut().for_each(|(_, c)| {
                let main = mains.pop().expect("one per CPU");
                c.sheaves = Some(Box::new(sheaf::CpuSheaves { main, spare: None, rcu_free: None }));
            });
            // All of them are made by the creator, here CPU 0.
            let cpus = topology.cpus() as u64;
            cache.cpus.get_mut(CpuId(0)).counters.add(Stat::SheafAlloc, cpus);
        }
        Ok(CacheId(index as u32))
    }

    /// A cache of this kind shares its slabs with none (kernel: slab_unmergeable).
    fn unmergeable(&self, spec: &CacheSpec) -> bool {
        let sheaves = match self.policy.t.sheaf_capacity {
            policy::SheafCapacity::Objects(_) => true,
            _ => spec.name == "vm_area_struct" || spec.name == "maple_node",
        };
        let asks = self.policy.sheaves.is_some() && sheaves;
        !self.per_cache.merges(&spec.name, self.policy.t.merge)
            || spec.ctor
            || spec.typesafe_by_rcu
            || asks
            || self.debug.of(&spec.name).unmergeable()
    }

    /// The first cache, as the release searches, that `spec` can share (kernel: find_mergeable): slot large and aligned
    /// enough, less than a word wasted, the same kind of pages. A constructor, RCU, debugging or sheaves on request forbid it
    /// on either side.
    fn find_mergeable(&self, spec: &CacheSpec) -> Option<CacheId> {
        if self.unmergeable(spec) {
            return None;
        }
        let align = order::alignment(spec, false, &self.policy, &self.shape);
        let need = round_up(round_up(spec.size, WORD), align);
        let checks = |s: &CacheSpec| self.debug.of(&s.name).checks;
        let fits = |c: &&Cache<M>| {
            let slot = c.layout.slot;
            !self.unmergeable(&c.spec)
                && !c.is_destroyed()
                && !self.kmalloc_copies.contains(&c.index)
                && !matches!(c.kind, Kind::Dma | Kind::Accounted)
                && need <= slot
                && slot - need < WORD
                && slot.is_multiple_of(align)
                && c.spec.reclaim_account == spec.reclaim_account
                && !c.debug.unmergeable()
                && (self.policy.debug_globs || c.debug.checks == checks(spec))
        };
        let found = match self.policy.t.merge_walk {
            MergeWalk::Newest => self.caches.iter().rev().find(fits),
            MergeWalk::Oldest => self.caches.iter().find(fits),
        };
        found.map(|c| CacheId(c.index as u32))
    }

    /// Names under which a cache was asked for after its own (kernel: aliases).
    pub fn aliases(&self, cache: CacheId) -> &[String] {
        &self.cache(cache).aliases
    }
}

impl<'p, M: Machine + 'p> SlabAllocator<'p, M> for Slub<'p, M> {
    type Config = Config;

    fn new(pages: &'p Pages<'p, M>, config: &Config) -> Result<Self, Error> {
        super::Configuration::check(config)?;
        let machine = pages.machine();
        let topology = machine.topology();
        let memory = topology.node_ids().map(|n| topology.node_bytes(n)).sum();
        let pool = |cpu| machine.reserve(CPU_POOL * CPU_STRUCTURE_BYTES, topology.node_of(cpu));
        let mut slub = Slub {
            pages,
            era: config.era.clone(),
            policy: config.policy(),
            debug: config.debug_option(),
            per_cache: config.per_cache_option(),
            shape: Shape::of_machine(topology.cpus(), memory),
            order_asked: config.order,
            caches: Vec::new(),
            kmalloc_classes: kmalloc::sizes(config.t.kmalloc_max).count(),
            kmalloc_copies: 0..0,
            kmalloc_kinds: [None; 4],
            kmalloc_several: false,
            kmalloc_caches: 0,
            large: PerCpu::new(machine, |_| Counters::default()),
            zonelists: topology.node_ids().map(|n| topology.fallback(n)).collect(),
            cpu_pools: topology.cpu_ids().map(pool).collect(),
        };
        slub.make_kmalloc_caches(config)?;
        Ok(slub)
    }
    fn pages(&self) -> &'p Pages<'p, M> {
        self.pages
    }
    fn create_cache(&mut self, spec: CacheSpec) -> Result<CacheId, Error> {
        let policy = self.per_cache.policy(&spec.name, self.policy);
        let layout = Layout::new(self.asked(&spec, false), &policy, &self.shape)?;
        let Some(id) = self.find_mergeable(&spec) else { return self.add_cache(spec, false) };
        let cache = &mut self.caches[id.0 as usize];
        cache.layout.object_size = cache.layout.object_size.max(layout.object_size);
        cache.layout.inuse = cache.layout.inuse.max(layout.inuse);
        cache.aliases.push(spec.name);
        *cache.users.get_mut() += 1;
        Ok(id)
    }

    fn alloc(&self, cpu: &M::Cpu, cache: CacheId, want: Request) -> Option<Object> {
        self.alloc_from(cpu, self.cache(cache), want).map(Object::at)
    }
    fn free(&self, cpu: &M::Cpu, cache: CacheId, object: Object) {
        self.free_to(cpu, self.cache(cache), object.addr());
    }
    fn kmalloc(&self, cpu: &M::Cpu, bytes: u64, want: Request) -> Option<Object> {
        self.kmalloc_any(cpu, bytes, want).map(Object::at)
    }
    fn kmalloc_kinds(&self) -> Vec<Kind> {
        let all = [Kind::Normal, Kind::Reclaimable, Kind::Dma, Kind::Accounted];
        all.into_iter().filter(|kind| self.kmalloc_kinds[*kind as usize].is_some()).collect()
    }
    fn kfree(&self, cpu: &M::Cpu, object: Object) {
        self.kfree_any(cpu, object.addr());
    }
    fn ksize(&self, cpu: &M::Cpu, object: &Object) -> u64 {
        self.usable(cpu, object.addr())
    }
    fn offline(&mut self, cpu: CpuId) {
        let there = || self.caches.iter().filter(|cache| !cache.is_destroyed());
        self.pages.machine().boot(|c| {
            if c.id() == cpu {
                there().for_each(|cache| self.flush(c, cache));
            }
        });
    }
    fn write_attribute(&mut self, cache: CacheId, attribute: &str, value: i64) -> Result<(), Error> {
        self.write(cache, attribute, value)
    }
    fn alloc_bulk(&self, cpu: &M::Cpu, cache: CacheId, want: Request, n: u64) -> Option<Vec<Object>> {
        let mut objects = Vec::with_capacity(n as usize);
        let all = self.alloc_bulk_from(cpu, self.cache(cache), want, n, &mut objects);
        all.then(|| objects.into_iter().map(Object::at).collect())
    }
    fn free_bulk(&self, cpu: &M::Cpu, cache: CacheId, objects: Vec<Object>) {
        self.free_bulk_to(cpu, self.cache(cache), objects.iter().map(Object::addr).collect());
    }
    fn free_rcu(&self, cpu: &M::Cpu, cache: CacheId, object: Object) {
        self.free_after_rcu(cpu, self.cache(cache), object.addr());
    }
    fn rcu_barrier(&self, cpu: &M::Cpu) {
        self.caches.iter().for_each(|cache| self.grace_period_of(cpu, cache));
    }
    fn prefill(&self, cpu: &M::Cpu, cache: CacheId, want: Request, n: u64) -> Option<Prefilled> {
        self.prefill_from(cpu, self.cache(cache), n, want)
    }
    fn alloc_from_prefilled(&self, cpu: &M::Cpu, _cache: CacheId, from: &mut Prefilled) -> Option<Object> {
        self.alloc_prefilled(cpu, from).map(Object::at)
    }
    fn refill(&self, cpu: &M::Cpu, cache: CacheId, held: &mut Prefilled, want: Request, n: u64) -> bool {
        self.refill_prefilled(cpu, self.cache(cache), held, n, want)
    }
    fn return_prefilled(&self, cpu: &M::Cpu, cache: CacheId, held: Prefilled) {
        self.take_back(cpu, self.cache(cache), held, Request::default());
    }
    fn shrink(&self, cpu: &M::Cpu, cache: CacheId) {
        self.shrink_cache(cpu, self.cache(cache));
    }

    fn destroy(&self, cpu: &M::Cpu, cache: CacheId) -> Destroyed {
        self.destroy_cache(cpu, self.cache(cache))
    }

    fn cache_count(&self) -> usize {
        self.caches.len()
    }
    fn verify(&mut self) -> Result<(), Corruption> {
        self.verify_all()
    }
    fn info(&mut self, cache: CacheId) -> CacheInfo {
        self.report(cache)
    }
    fn counters(&mut self, cache: CacheId) -> Vec<Counters> {
        self.caches[cache.0 as usize].cpus.iter_mut().map(|(_, c)| c.counters.clone()).collect()
    }
    fn uncached_counters(&mut self) -> Vec<Counters> {
        self.large.iter_mut().map(|(_, c)| c.clone()).collect()
    }
    fn reset_counters(&self, cpu: &M::Cpu) {
        self.caches.iter().for_each(|cache| cache.cpus.with(cpu, CpuSlab::reset_counters));
        self.large.with(cpu, Counters::reset);
    }
    fn state(&mut self, cache: CacheId) -> serde_json::Value {
        self.snapshot(cache)
    }
    fn placement(&mut self, cache: CacheId, object: Addr) -> Placement {
        self.place(cache, object)
    }
    fn objects(&mut self, _: &[Live]) -> Map {
        self.map_objects()
    }
    fn slabinfo(&mut self) -> Option<String> {
        self.proc_slabinfo()
    }
    fn tool(&mut self) -> Option<super::tool::Report> {
        Some(self.tool_report())
    }
}

/// A stream of numbers from a seed (SplitMix64).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A permutation of 0..n (Fisher-Yates).
    fn permutation(&mut self, n: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n).collect();
        for i in (1..n as usize).rev() {
            order.swap(i, (self.next() % (i as u64 + 1)) as usize);
        }
        order
    }
}

#[cfg(all(test, not(loom)))]
mod examples;
#[cfg(all(test, not(loom)))]
mod invariants;
#[cfg(all(test, loom))]
mod loom;
mod objects;
#[cfg(all(test, not(loom)))]
mod sequences;
#[cfg(all(test, not(loom)))]
mod soak;
#[cfg(all(test, not(loom)))]
mod tests;
