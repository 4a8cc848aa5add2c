//! Bulk allocation and free (6.1; kernel: kmem_cache_alloc_bulk, kmem_cache_free_bulk): a loop of single operations with
//! interrupts off once. No batching beyond that. Works in 2.6.24 too, which had no such call.

use super::Slab;
use super::cache::Cache;
use crate::machine::{Cpu, Machine};
use crate::spec::{Object, Request};

impl<M: Machine> Slab<'_, M> {
    /// Takes `n` objects, or none when memory is out: those obtained are given back.
    pub(super) fn alloc_many(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request, n: usize) -> Option<Vec<Object>> {
        cpu.irq_save();
        let mut got = Vec::new();
        while got.len() < n {
            match self.alloc_object(cpu, cache, want) {
                Some(object) => got.push(object),
                None => {
                    got.into_iter().for_each(|o: Object| self.free_cpu(cpu, cache, o.addr()));
                    return None;
                }
            }
        }
        Some(got)
    }

    /// Gives objects of one cache back, in order.
    pub(super) fn free_many(&self, cpu: &M::Cpu, cache: &Cache<M>, objects: Vec<Object>) {
        cpu.irq_save();
        objects.into_iter().for_each(|o| self.free_cpu(cpu, cache, o.addr()));
    }
}
