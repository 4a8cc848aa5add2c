//! Giving a cache up (kernel: kmem_cache_destroy): all queues emptied by one CPU, and complaints about what is left.

use std::sync::Mutex;

use super::Cache;
use super::chain::Chain;
use super::cpu::CpuSlot;
use super::node::{self, ListId};
use crate::alloc::Destroyed;
use crate::machine::{Cpu, Machine};
use crate::units::{CpuId, NodeId};

impl<M: Machine> Cache<'_, M> {
    /// Empties what can be emptied, all of it on one CPU: LIFO and rlist of every CPU, then what came back, then nodes. The
    /// original does it once; what its first pass puts on the rlist of a CPU that it has passed already stays there.
    pub(super) fn tear_down(&self, cpu: &M::Cpu) -> Destroyed {
        let topology = self.pages.machine().topology();
        let cpus: Vec<_> = topology.cpu_ids().collect();
        let nodes: Vec<_> = topology.node_ids().filter(|n| self.numa && !self.memoryless(*n)).collect();
        cpu.irq_save();
        while self.pass(cpu, &cpus, &nodes) > 0 && !self.quirks.destroy_leftovers {}
        let lists = cpus.iter().map(|c| self.cpu_list(*c)).chain(nodes.iter().map(|n| self.node_list(*n)));
        let mut left = Destroyed::default();
        lists.for_each(|l| self.complain(cpu, l, &mut left));
        if self.spec.typesafe_by_rcu {
            cpus.iter().for_each(|c| cpu.call_on(*c, &|on| self.await_grace(on)));
        }
        left
    }

    /// One pass over everything; returns how many objects it moved.
    fn pass(&self, cpu: &M::Cpu, cpus: &[CpuId], nodes: &[NodeId]) -> u64 {
        let mut moved = 0;
        if self.smp {
            for &c in cpus {
                moved += self.flush_all(cpu, self.cpu_list(c), self.take_from(cpu, c, |s| std::mem::take(&mut s.lifo)));
                let (rlist, to) = self.take_from(cpu, c, |s| (std::mem::take(&mut s.rlist), s.rlist_to));
                moved += rlist.nr;
                self.send_counted(cpu, rlist, to);
            }
        }
        for &c in cpus {
            let l = self.cpu_list(c);
            let mut lifo = self.take_from(cpu, c, |s| std::mem::take(&mut s.lifo));
            let claimed = self.claim(cpu, l);
            self.attach(cpu, &mut lifo, claimed);
            self.cpus.with(cpu, |s| node::count_claim(&mut s.counters, claimed.nr));
            moved += self.flush_all(cpu, l, lifo);
        }
        for &n in nodes {
            let l = self.node_list(n);
            let mut slot = self.nodes[usize::from(n.0)].lock(cpu);
            self.claim_node(cpu, l, &mut slot);
            while let flushed @ 1.. = self.flush_node(cpu, l, &mut slot).objects {
                moved += flushed;
            }
        }
        moved
    }

    /// Takes something out of the slot of CPU `c`, which does it itself.
    fn take_from<R: Send>(&self, cpu: &M::Cpu, c: CpuId, take: impl Fn(&mut CpuSlot) -> R + Sync) -> R {
        let taken = Mutex::new(None);
        cpu.call_on(c, &|on| {
            let value = self.cpus.with(on, &take);
            *taken.lock().unwrap() = Some(value);
        });
        taken.into_inner().unwrap().expect("call_on returns after the call")
    }

    /// Flushes a LIFO, batch by batch, until it is empty; returns its length.
    fn flush_all(&self, cpu: &M::Cpu, l: ListId, mut lifo: Chain) -> u64 {
        let objects = lifo.nr;
        while lifo.nr > 0 {
            let flushed = self.flush(cpu, l, &mut lifo);
            self.cpus.with(cpu, |s| flushed.count(&mut s.counters));
        }
        objects
    }

    fn complain(&self, cpu: &M::Cpu, l: ListId, left: &mut Destroyed) {
        let slabs = self.list(l).slabs.lock(cpu);
        left.warnings += u64::from(slabs.nr_slabs != 0) + u64::from(!slabs.partial.is_empty());
        left.pages_lost += slabs.nr_slabs * self.geometry.order.pages();
    }
}
