//! CPUs, caches, sockets and nodes: who shares what with whom, and how far apart they are.

use crate::units::{CpuId, NodeId};

/// How far the caches of two CPUs are apart. The order is the order of cost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Distance {
    /// The same CPU.
    Own,
    /// Two threads of one core.
    SameCore,
    /// Two CPUs on one second-level cache.
    SameL2,
    /// One socket, one last-level cache.
    SameSocket,
    /// One socket, two last-level caches.
    CrossCcd,
    /// Two sockets.
    CrossSocket,
}

/// Place of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Socket.
    pub socket: u16,
    /// Core, counted through the machine; its threads share the first-level cache.
    pub core: u16,
    /// Second-level cache, counted through the machine.
    pub l2: u16,
    /// Last-level cache, counted through the machine.
    pub llc: u16,
    /// NUMA node.
    pub node: NodeId,
}

/// The shape of a machine: one [`Place`] per CPU, bytes of memory per node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    places: Vec<Place>,
    node_bytes: Vec<u64>,
}

impl Topology {
    /// A machine of these CPUs and nodes.
    pub fn new(places: Vec<Place>, node_bytes: Vec<u64>) -> Topology {
        assert!(!places.is_empty() && places.iter().all(|p| usize::from(p.node.0) < node_bytes.len()));
        Topology { places, node_bytes }
    }

    /// `cpus` CPUs spread round-robin over `nodes` nodes of `bytes` each, in blocks: 4 CPUs on 2 nodes give 0, 0, 1, 1.
    pub fn blocks(cpus: u16, nodes: u16, bytes: u64) -> Topology {
        let per = cpus.div_ceil(nodes);
        let places = (0..cpus).map(|c| {
            let node = (c / per).min(nodes - 1);
            Place { socket: node, core: c, l2: c, llc: node, node: NodeId(node) }
        });
        Topology::new(places.collect(), vec![bytes; usize::from(nodes)])
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        self.places.len()
    }
    /// Every CPU, ascending.
    pub fn cpu_ids(&self) -> impl Iterator<Item = CpuId> + use<> {
        (0..self.places.len() as u16).map(CpuId)
    }
    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.node_bytes.len()
    }
    /// Every node, ascending.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.node_bytes.len() as u16).map(NodeId)
    }
    /// Bytes of memory of a node.
    pub fn node_bytes(&self, node: NodeId) -> u64 {
        self.node_bytes[usize::from(node.0)]
    }
    /// Place of a CPU.
    pub fn place(&self, cpu: CpuId) -> Place {
        self.places[usize::from(cpu.0)]
    }
    /// Node of a CPU.
    pub fn node_of(&self, cpu: CpuId) -> NodeId {
        self.place(cpu).node
    }
    /// CPUs of a node.
    pub fn cpus_on(&self, node: NodeId) -> usize {
        self.places.iter().filter(|p| p.node == node).count()
    }

    /// How far the caches of two CPUs are apart.
    pub fn distance(&self, a: CpuId, b: CpuId) -> Distance {
        let (x, y) = (self.place(a), self.place(b));
        if a == b {
            Distance::Own
        } else if x.core == y.core {
            Distance::SameCore
        } else if x.l2 == y.l2 {
            Distance::SameL2
        } else if x.socket != y.socket {
            Distance::CrossSocket
        } else if x.llc == y.llc {
            Distance::SameSocket
        } else {
            Distance::CrossCcd
        }
    }

    /// Nodes in the order in which an allocation from `node` tries them; nodes without memory are left out. Distance 20
    /// between all nodes, as on every preset.
    pub fn fallback(&self, node: NodeId) -> Vec<NodeId> {
        let has_cpus: Vec<bool> = self.node_ids().map(|n| self.cpus_on(n) > 0).collect();
        let order = node_order(&has_cpus, |a, b| if a == b { 10 } else { 20 }, node);
        order.into_iter().filter(|n| self.node_bytes(*n) > 0).collect()
    }
}

/// The zonelist rule (page-allocator.md §9): the local node, then the others by distance, plus one if the number is lower
/// than the local one and one if the node has CPUs; ties to the lower number. (The kernel's load term parts nodes only
/// between lists that are built without a reset; the worked examples are those of one list at a time.)
fn node_order(has_cpus: &[bool], distance: impl Fn(u16, u16) -> u32, local: NodeId) -> Vec<NodeId> {
    let mut others: Vec<u16> = (0..has_cpus.len() as u16).filter(|n| *n != local.0).collect();
    let score = |n: u16| distance(local.0, n) + u32::from(n < local.0) + u32::from(has_cpus[usize::from(n)]);
    others.sort_by_key(|n| (score(*n), *n));
    std::iter::once(local.0).chain(others).map(NodeId).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zonelists_of_four_equal_nodes_go_around() {
        let t = Topology::blocks(4, 4, 1 << 22);
        let order = |n| t.fallback(NodeId(n)).iter().map(|n| n.0).collect::<Vec<_>>();
        assert_eq!([order(0), order(1), order(3)], [vec![0, 1, 2, 3], vec![1, 2, 3, 0], vec![3, 0, 1, 2]]);
    }

    #[test]
    fn a_node_without_cpus_comes_before_those_with() {
        let place = |node| Place { socket: node, core: node, l2: node, llc: node, node: NodeId(node) };
        let t = Topology::new(vec![place(0), place(1)], vec![1 << 22; 3]);
        let order = |n| t.fallback(NodeId(n)).iter().map(|n| n.0).collect::<Vec<_>>();
        assert_eq!([order(0), order(1), order(2)], [[0, 2, 1], [1, 2, 0], [2, 0, 1]]);
    }

    #[test]
    fn near_pairs_come_before_far_ones() {
        let distance = |a: u16, b: u16| {
            if a == b {
                10
            } else if a / 2 == b / 2 {
                16
            } else {
                22
            }
        };
        let order = |n| node_order(&[true; 4], distance, NodeId(n)).iter().map(|n| n.0).collect::<Vec<_>>();
        assert_eq!([order(0), order(1), order(2), order(3)], [[0, 1, 2, 3], [1, 0, 2, 3], [2, 3, 0, 1], [3, 2, 0, 1]]);
    }
}
