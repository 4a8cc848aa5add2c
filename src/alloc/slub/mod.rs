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

mod cpu;
pub mod eras;
mod kmalloc;
mod node;
pub mod order;
pub mod policy;
mod report;
mod slow;
mod verify;
mod word;

use std::sync::atomic::{AtomicU32, Ordering};

use super::{CacheInfo, Counters, Destroyed, Placement, SlabAllocator};
use crate::error::{Corruption, Error};
use crate::machine::{Addr, Machine, PerCpu};
use crate::page::Pages;
use crate::spec::{CacheId, CacheSpec, Object, Request};
use crate::units::{CpuId, NodeId, round_up};

use cpu::CpuSlab;
use node::Node;
use order::{Layout, WORD};
pub use policy::{Config, FirstFree, OrderRule, Policy};

/// A cache (kernel: struct kmem_cache). Slabs of all its CPUs, partial lists and full ones together: Σ `nr_slabs` of the
/// nodes.
struct Cache<M: Machine> {
    /// Index in [`Slub::caches`].
    index: usize,
    /// What the first creator asked for.
    spec: CacheSpec,
    /// Names of the caches that were merged into this one.
    aliases: Vec<String>,
    layout: Layout,
    /// Line of the fields that slow paths read.
    descriptor: Addr,
    cpus: PerCpu<M, CpuSlab>,
    nodes: Vec<Node<M>>,
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
    fn is_destroyed(&self) -> bool {
        self.users.load(Ordering::Relaxed) == 0
    }
}

/// The SLUB allocator.
pub struct Slub<'p, M: Machine> {
    pages: &'p Pages<'p, M>,
    policy: Policy,
    /// `order` of the configuration, for the flag `order_raised`.
    order_asked: Option<u8>,
    merge: bool,
    caches: Vec<Cache<M>>,
    /// Kmalloc caches come first, so that the class of a size is its cache's id.
    kmalloc_classes: usize,
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

    /// Makes a cache without looking for one to share.
    fn add_cache(&mut self, spec: CacheSpec) -> Result<CacheId, Error> {
        let layout = Layout::new(&spec, &self.policy.order)?;
        let machine = self.pages.machine();
        let topology = machine.topology();
        let index = self.caches.len();
        let descriptor = machine.reserve(DESCRIPTOR_BYTES + 8 * topology.cpus() as u64, NodeId(0));
        let pools = &self.cpu_pools;
        let cpus = PerCpu::new(machine, |cpu| {
            let nth = index as u64;
            let at = if nth < CPU_POOL {
                pools[usize::from(cpu.0)].plus(nth * CPU_STRUCTURE_BYTES)
            } else {
                machine.reserve(CPU_STRUCTURE_BYTES, topology.node_of(cpu))
            };
            CpuSlab::new(at)
        });
        let nodes = topology.node_ids().map(|n| Node::new(machine, n)).collect();
        let users = AtomicU32::new(1);
        self.caches.push(Cache { index, spec, aliases: Vec::new(), layout, descriptor, cpus, nodes, users });
        Ok(CacheId(index as u32))
    }

    /// The newest cache that `spec` can share (kernel: find_mergeable): slot large and aligned enough, less than a word
    /// wasted, the same kind of pages. A constructor or RCU on either side forbids it.
    fn find_mergeable(&self, spec: &CacheSpec) -> Option<CacheId> {
        let unmergeable = |s: &CacheSpec| s.ctor || s.typesafe_by_rcu;
        if !self.merge || unmergeable(spec) {
            return None;
        }
        let align = order::alignment(spec);
        let need = round_up(round_up(spec.size, WORD), align);
        let fits = |c: &&Cache<M>| {
            let slot = c.layout.slot;
            !unmergeable(&c.spec)
                && !c.is_destroyed()
                && need <= slot
                && slot - need < WORD
                && slot.is_multiple_of(align)
                && c.spec.reclaim_account == spec.reclaim_account
        };
        self.caches.iter().rev().find(fits).map(|c| CacheId(c.index as u32))
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
        let pool = |cpu| machine.reserve(CPU_POOL * CPU_STRUCTURE_BYTES, topology.node_of(cpu));
        let mut slub = Slub {
            pages,
            policy: config.policy(),
            order_asked: config.order,
            merge: config.merge,
            caches: Vec::new(),
            kmalloc_classes: 0,
            large: PerCpu::new(machine, |_| Counters::default()),
            zonelists: topology.node_ids().map(|n| topology.fallback(n)).collect(),
            cpu_pools: topology.cpu_ids().map(pool).collect(),
        };
        for size in kmalloc::sizes(config.kmalloc_max) {
            slub.add_cache(CacheSpec::new(format!("kmalloc-{size}"), size))?;
        }
        slub.kmalloc_classes = slub.caches.len();
        Ok(slub)
    }
    fn pages(&self) -> &'p Pages<'p, M> {
        self.pages
    }
    fn create_cache(&mut self, spec: CacheSpec) -> Result<CacheId, Error> {
        let layout = Layout::new(&spec, &self.policy.order)?;
        let Some(id) = self.find_mergeable(&spec) else { return self.add_cache(spec) };
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
    fn kfree(&self, cpu: &M::Cpu, object: Object) {
        self.kfree_any(cpu, object.addr());
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
    fn slabinfo(&mut self) -> Option<String> {
        self.proc_slabinfo()
    }
}

#[cfg(test)]
mod tests;
