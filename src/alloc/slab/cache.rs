//! A cache (`kmem_cache`): its shape, a CPU array per CPU, a record per node, and where the memory of the arrays is.

use super::array::Array;
use super::node::{LOCK_OFFSET, Lists, Node, RECORD_BYTES};
use super::policy::{Geometry, Tunables, array_bytes};
use super::reap::NODE_PERIOD;
use crate::alloc::Counters;
use crate::machine::{Access, Addr, Cpu, Machine, PerCpu, SpinLock, Word};
use crate::spec::CacheSpec;
use crate::topology::Topology;
use crate::units::{CpuId, NodeId};

/// `objects outside slabs = live + Σ arrays` (CPU, shared, alien).
pub(super) struct Cache<M: Machine> {
    /// Number of the cache; its pages carry id + 1 as owner.
    pub(super) id: u32,
    pub(super) spec: CacheSpec,
    pub(super) geometry: Geometry,
    pub(super) tunables: Tunables,
    /// The general cache that off-slab headers come from.
    pub(super) header_cache: Option<usize>,
    /// Address of the descriptor: a pointer per CPU, the tunables, a pointer per node.
    descriptor: Addr,
    cpu_count: u64,
    pub(super) cpus: PerCpu<M, CpuSlot>,
    pub(super) nodes: Vec<Node<M>>,
    pub(super) active: Active,
    /// Jiffy of its creation.
    pub(super) created: u64,
    /// Where the arrays lie.
    pub(super) arrays: Vec<Addr>,
    /// 1 once the cache has been destroyed.
    pub(super) gone: Word,
}

/// What a CPU owns of a cache.
pub(super) struct CpuSlot {
    pub(super) array: Array,
    pub(super) counters: Counters,
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
/// Offset of the lock in an alien array's header.
const ARRAY_LOCK_OFFSET: u64 = 16;

/// Who gets an array: one entry per array of a cache, in the order in which the memory is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Cpu(CpuId),
    Shared(NodeId),
    Alien { here: NodeId, home: NodeId },
}

/// The arrays of a cache: owner, bytes, node. Node arrays first, then the CPUs'; the order within the creation of a cache
/// is ours.
fn plan(topology: &Topology, tunables: &Tunables) -> Vec<(Slot, u64, NodeId)> {
    let mut all = Vec::new();
    for here in topology.node_ids() {
        if tunables.shared_limit() > 0 {
            all.push((Slot::Shared(here), array_bytes(tunables.shared_limit()), here));
        }
        for home in topology.node_ids().filter(|h| *h != here) {
            all.push((Slot::Alien { here, home }, array_bytes(tunables.alien_limit()), here));
        }
    }
    for cpu in topology.cpu_ids() {
        all.push((Slot::Cpu(cpu), array_bytes(tunables.limit), topology.node_of(cpu)));
    }
    all
}

/// Bytes and node of every array of a cache.
pub(super) fn array_requests(topology: &Topology, tunables: &Tunables) -> Vec<(u64, NodeId)> {
    plan(topology, tunables).into_iter().map(|(_, bytes, node)| (bytes, node)).collect()
}

impl<M: Machine> Cache<M> {
    /// An empty cache whose arrays lie at `arrays`, one address per entry of [`array_requests`].
    pub(super) fn new(
        machine: &M,
        id: u32,
        spec: CacheSpec,
        geometry: Geometry,
        tunables: Tunables,
        header_cache: Option<usize>,
        arrays: &[Addr],
    ) -> Cache<M> {
        let topology = machine.topology();
        let boot_node = topology.node_of(CpuId(0));
        let (cpus, nodes) = (topology.cpus() as u64, topology.nodes() as u64);
        // The kernel takes descriptors and node records from caches of their own; here their memory is not accounted.
        let descriptor = machine.reserve(8 * cpus + DESCRIPTOR_FIXED + 8 * nodes, boot_node);
        let statistics = descriptor.plus(8 * cpus);
        let mut cache = Cache {
            id,
            spec,
            geometry,
            tunables,
            header_cache,
            descriptor,
            cpu_count: cpus,
            cpus: PerCpu::new(machine, |_| CpuSlot { array: Array::default(), counters: Counters::default() }),
            nodes: topology.node_ids().map(|n| Cache::node_record(machine, n, &geometry, &tunables)).collect(),
            active: Active { now: Word::new(statistics, 0), high: Word::new(statistics, 0) },
            created: 0,
            arrays: Vec::new(),
            gone: Word::new(statistics, 0),
        };
        cache.place_arrays(machine, arrays);
        cache
    }

    fn node_record(machine: &M, node: NodeId, geometry: &Geometry, tunables: &Tunables) -> Node<M> {
        let topology = machine.topology();
        let addr = machine.reserve(RECORD_BYTES, node);
        let lists = Lists {
            full: Default::default(),
            partial: Default::default(),
            free: Default::default(),
            free_objects: 0,
            free_limit: (1 + topology.cpus_on(node) as u64) * tunables.batch + geometry.num,
            colour_next: 0,
            free_touched: false,
            shared: None,
            longest_free: 0,
        };
        Node {
            addr,
            lists: SpinLock::new(machine.lock("list_lock", addr.plus(LOCK_OFFSET)), lists),
            alien: topology.node_ids().map(|_| None).collect(),
            next_reap: Word::new(addr, 0),
        }
    }

    /// Gives every array its place in memory; what they hold moves along. When no CPU runs.
    pub(super) fn place_arrays(&mut self, machine: &M, arrays: &[Addr]) {
        let plan = plan(machine.topology(), &self.tunables);
        debug_assert_eq!(plan.len(), arrays.len());
        self.arrays = arrays.to_vec();
        for (&(slot, ..), &addr) in plan.iter().zip(arrays) {
            match slot {
                Slot::Cpu(cpu) => {
                    let array = &mut self.cpus.get_mut(cpu).array;
                    *array = std::mem::take(array).moved(addr, self.tunables.limit);
                }
                Slot::Shared(node) => {
                    let shared = &mut self.nodes[usize::from(node.0)].lists.get_mut().shared;
                    *shared = Some(shared.take().unwrap_or_default().moved(addr, self.tunables.shared_limit()));
                }
                Slot::Alien { here, home } => {
                    let alien = &mut self.nodes[usize::from(here.0)].alien[usize::from(home.0)];
                    let old = alien.take().map(|mut a| std::mem::take(a.get_mut())).unwrap_or_default();
                    let lock = machine.lock("alien->lock", addr.plus(ARRAY_LOCK_OFFSET));
                    *alien = Some(SpinLock::new(lock, old.moved(addr, self.tunables.alien_limit())));
                }
            }
        }
    }

    /// The cache is ready at jiffy `now`: the reaper trims its nodes from 4 s later on, `spread` by its address.
    pub(super) fn start(&mut self, now: u64, spread: bool) {
        self.created = now;
        let later = if spread { self.descriptor.0 % NODE_PERIOD } else { 0 };
        self.nodes.iter().for_each(|n| n.next_reap.poke(now + NODE_PERIOD + later));
    }

    pub(super) fn node(&self, node: NodeId) -> &Node<M> {
        &self.nodes[usize::from(node.0)]
    }
    /// Where the descriptor points to a CPU's array.
    #[inline]
    pub(super) fn array_pointer(&self, cpu: CpuId) -> Addr {
        self.descriptor.plus(8 * u64::from(cpu.0))
    }
    /// Where the descriptor points to a node's record.
    pub(super) fn node_pointer(&self, node: NodeId) -> Addr {
        self.descriptor.plus(8 * self.cpu_count + DESCRIPTOR_FIXED + 8 * u64::from(node.0))
    }
    /// Pays for the prefetch of an object about to be returned.
    #[inline]
    pub(super) fn prefetch(&self, cpu: &M::Cpu, object: Addr) {
        cpu.touch(object, Access::Prefetch);
    }
}
