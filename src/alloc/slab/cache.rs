//! A cache (`kmem_cache`): its shape, a CPU array per CPU, a record per node, and where the memory of the arrays is.

use super::array::Array;
use super::arrays::{ARRAY_LOCK_OFFSET, Owner, Placed};
use super::geometry::{Geometry, Tunables};
use super::header::Headers;
use super::node::{LOCK_OFFSET, Lists, Node, RECORD_BYTES};
use super::policy::{CpuArrays, Policy};
use super::reap::NODE_PERIOD;
use crate::alloc::{Counters, Stat};
use crate::machine::{Access, Addr, Arena, Cpu, Machine, PerCpu, SpinLock, Word};
use crate::page::Pages;
use crate::spec::{CacheSpec, Kind};
use crate::topology::Topology;
use crate::units::{CpuId, NodeId};

/// `objects outside slabs = live + Σ arrays` (CPU, shared, alien).
pub(super) struct Cache<M: Machine> {
    /// Number of the cache; its pages carry id + 1 as owner.
    pub(super) id: u32,
    pub(super) spec: CacheSpec,
    /// Of a general cache: the kind of memory that it gives.
    pub(super) kind: Kind,
    pub(super) geometry: Geometry,
    pub(super) tunables: Tunables,
    /// The general cache that off-slab management comes from.
    pub(super) management_cache: Option<usize>,
    /// Address of the descriptor: a pointer per CPU (or one to the per-CPU area), the tunables, a pointer per node.
    descriptor: Addr,
    /// Pointers to CPU arrays in the descriptor.
    cpu_pointers: u64,
    pub(super) cpus: PerCpu<M, CpuSlot>,
    pub(super) nodes: Vec<Node<M>>,
    pub(super) active: Active,
    /// Jiffy of its creation.
    pub(super) created: u64,
    /// Where the arrays lie.
    pub(super) arrays: Vec<Placed>,
    /// Names it was asked for under: 1 and those of the caches merged into it.
    pub(super) users: Word,
    /// Names of the caches that were merged into this one.
    pub(super) aliases: Vec<String>,
    /// Frees look at the top of the array first.
    pub(super) guarded: bool,
    /// 1 once the cache has been destroyed.
    pub(super) gone: Word,
}

/// What a CPU owns of a cache. Over all CPUs: `live = hits + misses − missed + nodeallocs − frees`.
#[derive(Default)]
pub(super) struct CpuSlot {
    pub(super) array: Array,
    pub(super) counters: Counters,
    /// Counts before the last reset.
    pub(super) before: Counters,
    /// Allocations counted as misses that got nothing from the array.
    pub(super) missed: u64,
}

impl CpuSlot {
    pub(super) fn reset(&mut self) {
        self.before.merge(&self.counters);
        self.counters.reset();
    }
    /// Objects this CPU has handed out, and taken back.
    pub(super) fn balance(&self) -> (u64, u64) {
        let sum = |stats: &[Stat]| -> u64 { stats.iter().map(|s| self.before.get(*s) + self.counters.get(*s)).sum() };
        let out = sum(&[Stat::Allochit, Stat::Allocmiss, Stat::NodeAllocs]) - self.missed;
        (out, sum(&[Stat::Freehit, Stat::Freemiss, Stat::RemoteFrees]))
    }
}

/// Objects outside slabs and the most there ever were (slabinfo: maxobjs). A statistic as in the kernel: changed under
/// the `list_lock` of one node or another, without an atomic and without a charge.
pub(super) struct Active {
    now: Word,
    high: Word,
}

impl Active {
    pub(super) fn add(&self, n: u64) {
        self.now.poke(self.now.peek().wrapping_add(n));
        self.high.poke(self.high.peek().max(self.now.peek()));
    }
    pub(super) fn sub(&self, n: u64) {
        self.now.poke(self.now.peek().wrapping_sub(n));
    }
    /// Now, and at most.
    pub(super) fn peek(&self) -> (u64, u64) {
        (self.now.peek(), self.high.peek())
    }
}

/// Bytes of the descriptor besides its pointers.
const DESCRIPTOR_FIXED: u64 = 104;
/// Free objects above which a node's empty slabs go.
pub(super) fn free_limit(topology: &Topology, node: NodeId, geometry: &Geometry, tunables: &Tunables) -> u64 {
    (1 + topology.cpus_on(node) as u64) * tunables.batch + geometry.num
}

impl<M: Machine> Cache<M> {
    /// An empty cache without arrays.
    pub(super) fn new(
        machine: &M,
        policy: &Policy,
        id: u32,
        spec: CacheSpec,
        geometry: Geometry,
        tunables: Tunables,
        management_cache: Option<usize>,
    ) -> Cache<M> {
        let topology = machine.topology();
        let boot_node = topology.node_of(CpuId(0));
        let nodes = topology.nodes() as u64;
        let cpu_pointers = if policy.cpu_arrays == CpuArrays::Kmalloc { topology.cpus() as u64 } else { 1 };
        // The kernel takes descriptors and node records from caches of their own; here their memory is not accounted.
        let descriptor = machine.reserve(8 * cpu_pointers + DESCRIPTOR_FIXED + 8 * nodes, boot_node);
        let statistics = descriptor.plus(8 * cpu_pointers);
        Cache {
            id,
            spec,
            kind: Kind::Normal,
            guarded: false,
            geometry,
            tunables,
            management_cache,
            descriptor,
            cpu_pointers,
            cpus: PerCpu::new(machine, |_| CpuSlot::default()),
            nodes: topology.node_ids().map(|n| Cache::node_record(machine, n, &geometry, &tunables)).collect(),
            active: Active { now: Word::new(statistics, 0), high: Word::new(statistics, 0) },
            created: 0,
            arrays: Vec::new(),
            gone: Word::new(statistics, 0),
            users: Word::new(statistics, 1),
            aliases: Vec::new(),
        }
    }

    fn node_record(machine: &M, node: NodeId, geometry: &Geometry, tunables: &Tunables) -> Node<M> {
        let topology = machine.topology();
        let addr = machine.reserve(RECORD_BYTES, node);
        let lists = Lists {
            full: Default::default(),
            partial: Default::default(),
            free: Default::default(),
            free_objects: 0,
            free_limit: free_limit(topology, node, geometry, tunables),
            free_touched: false,
            shared: None,
            longest_free: 0,
        };
        Node {
            addr,
            lists: SpinLock::new(machine.lock("list_lock", addr.plus(LOCK_OFFSET)), lists),
            alien: topology.node_ids().map(|_| None).collect(),
            next_reap: Word::new(addr, 0),
            colour_next: Word::new(addr, 0),
            stock: Word::new(addr, 0),
        }
    }

    /// Gives arrays their places in memory; what they hold moves along. When no CPU runs.
    pub(super) fn place_arrays(&mut self, machine: &M, policy: &Policy, placed: &[Placed]) {
        let header = policy.array_header;
        for p in placed {
            self.arrays.retain(|other| other.owner != p.owner);
            self.arrays.push(*p);
            let (addr, t) = (p.at, &self.tunables);
            match p.owner {
                Owner::Cpu(cpu) => {
                    let array = &mut self.cpus.get_mut(cpu).array;
                    *array = std::mem::take(array).moved(addr, header, t.limit);
                    if self.geometry.checks.any {
                        array.close();
                    } else if self.guarded {
                        array.guard();
                    }
                }
                Owner::Shared(node) => {
                    let shared = &mut self.nodes[usize::from(node.0)].lists.get_mut().shared;
                    *shared = Some(shared.take().unwrap_or_default().moved(addr, header, t.shared_limit()));
                }
                Owner::Alien { here, home } => {
                    let alien = &mut self.nodes[usize::from(here.0)].alien[usize::from(home.0)];
                    let old = alien.take().map(|mut a| std::mem::take(a.get_mut())).unwrap_or_default();
                    let lock = machine.lock("alien->lock", addr.plus(ARRAY_LOCK_OFFSET));
                    *alien = Some(SpinLock::new(lock, old.moved(addr, header, t.alien_limit())));
                }
            }
        }
    }

    /// Takes an alien array out, and its memory if that is to be given back.
    pub(super) fn take_alien(&mut self, here: NodeId, home: NodeId) -> Option<(Array, Option<Addr>)> {
        let mut alien = self.nodes[usize::from(here.0)].alien[usize::from(home.0)].take()?;
        let owner = Owner::Alien { here, home };
        let memory = self.arrays.iter().find(|p| p.owner == owner && p.object).map(|p| p.at);
        self.arrays.retain(|p| p.owner != owner);
        Some((std::mem::take(alien.get_mut()), memory))
    }

    /// Takes a CPU's or a shared array out: the array, its node, and its memory if that is to be given back.
    pub(super) fn take_array(&mut self, topology: &Topology, owner: Owner) -> (Array, NodeId, Option<Addr>) {
        let memory = self.arrays.iter().find(|p| p.owner == owner && p.object).map(|p| p.at);
        self.arrays.retain(|p| p.owner != owner);
        match owner {
            Owner::Cpu(cpu) => (std::mem::take(&mut self.cpus.get_mut(cpu).array), topology.node_of(cpu), memory),
            Owner::Shared(node) | Owner::Alien { here: node, .. } => {
                (self.nodes[usize::from(node.0)].lists.get_mut().shared.take().unwrap_or_default(), node, memory)
            }
        }
    }

    /// The cache is ready at jiffy `now`: the reaper trims its nodes from 4 s later on, `spread` by its address.
    pub(super) fn start(&mut self, now: u64, spread: bool) {
        self.created = now;
        let later = if spread { self.descriptor.0 % NODE_PERIOD } else { 0 };
        self.nodes.iter().for_each(|n| n.next_reap.poke(now + NODE_PERIOD + later));
    }

    /// Slot of an object that users know by its first byte.
    pub(super) fn slot_of(&self, object: Addr) -> Addr {
        Addr(object.0.wrapping_sub(self.geometry.checks.before()))
    }
    pub(super) fn node(&self, node: NodeId) -> &Node<M> {
        &self.nodes[usize::from(node.0)]
    }
    /// Where the descriptor points to a CPU's array.
    #[inline]
    pub(super) fn array_pointer(&self, cpu: CpuId) -> Addr {
        self.descriptor.plus(if self.cpu_pointers > 1 { 8 * u64::from(cpu.0) } else { 0 })
    }
    /// Where the descriptor points to a node's record.
    pub(super) fn node_pointer(&self, node: NodeId) -> Addr {
        self.descriptor.plus(8 * self.cpu_pointers + DESCRIPTOR_FIXED + 8 * u64::from(node.0))
    }
    /// True if off-slab management lies in the arena of `metadata = "free"`.
    pub(super) fn has_private_management(&self) -> bool {
        self.geometry.off_slab() && self.management_cache.is_none()
    }
    /// How to reach its slabs. `private`: the arena of `metadata = "free"`.
    pub(super) fn headers<'a>(
        &'a self,
        pages: &'a Pages<'_, M>,
        policy: &Policy,
        private: Option<&'a Arena>,
    ) -> Headers<'a, 'a, M> {
        Headers {
            pages,
            management: policy.management,
            geometry: &self.geometry,
            private: private.filter(|_| self.has_private_management()),
        }
    }
    /// Pays for the prefetch of an object about to be returned.
    #[inline]
    pub(super) fn prefetch(&self, cpu: &M::Cpu, object: Addr) {
        cpu.touch(object, Access::Prefetch);
    }
}
