//! Taking a CPU out of service (slab.md §11; kernel: cpuup_canceled): its array goes back into slabs, and the last CPU of a
//! node takes the node's arrays and empty slabs along.

use super::Slab;
use super::arrays::{Owner, Wanted};
use crate::machine::Machine;
use crate::units::{CpuId, NodeId};

impl<M: Machine> Slab<'_, M> {
    /// True while the CPU is in service.
    fn serves(&self, cpu: CpuId) -> bool {
        !self.dead.contains(&cpu)
    }
    /// CPUs of the node that are out of service.
    pub(super) fn dead_on(&self, node: NodeId) -> u64 {
        let topology = self.pages.machine().topology();
        self.dead.iter().filter(|cpu| topology.node_of(**cpu) == node).count() as u64
    }
    /// True if a CPU of the node is in service.
    fn has_cpus(&self, node: NodeId) -> bool {
        self.dead_on(node) < self.pages.machine().topology().cpus_on(node) as u64
    }
    /// False for arrays of CPUs that are out of service, and of nodes all of whose CPUs are.
    pub(super) fn is_served(&self, wanted: &Wanted) -> bool {
        match wanted.owner {
            Owner::Cpu(cpu) => self.serves(cpu),
            Owner::Shared(node) | Owner::Alien { here: node, .. } => self.has_cpus(node),
        }
    }

    /// Takes the CPU out of service in every cache. When no CPU runs; the first CPU does the work.
    pub(super) fn remove_cpu(&mut self, cpu: CpuId) {
        let topology = self.pages.machine().topology();
        let node = topology.node_of(cpu);
        self.dead.push(cpu);
        let last = !self.has_cpus(node);
        for index in (0..self.caches.len()).filter(|i| self.caches[*i].gone.peek() == 0).collect::<Vec<_>>() {
            let (array, _, memory) = self.caches[index].take_array(topology, Owner::Cpu(cpu));
            self.retire(index, &array, node, memory);
            let cache = &mut self.caches[index];
            let batch = cache.tunables.batch;
            let lists = cache.nodes[usize::from(node.0)].lists.get_mut();
            lists.free_limit = lists.free_limit.saturating_sub(batch);
            if last {
                self.remove_node_arrays(index, node);
            }
        }
    }

    /// The node's shared array into its slabs, its alien arrays to their nodes, its empty slabs to the page allocator.
    fn remove_node_arrays(&mut self, index: usize, node: NodeId) {
        let topology = self.pages.machine().topology();
        let (shared, _, memory) = self.caches[index].take_array(topology, Owner::Shared(node));
        self.retire(index, &shared, node, memory);
        for home in topology.node_ids() {
            self.on_first_cpu(|cpu| {
                let cache = &self.caches[index];
                let Some(alien) = &cache.node(node).alien[usize::from(home.0)] else { return };
                let doomed = self.drain_alien(cpu, cache, &mut alien.lock(cpu), home);
                self.destroy_doomed(cpu, cache, doomed);
            });
            if let Some((array, memory)) = self.caches[index].take_alien(node, home) {
                self.retire(index, &array, home, memory);
            }
        }
        self.on_first_cpu(|cpu| {
            let cache = &self.caches[index];
            while self.destroy_coldest(cpu, cache, cache.node(node)) {}
        });
    }
}
