//! Bulk allocation and free (6.1; kernel: kmem_cache_alloc_bulk, kmem_cache_free_bulk): a loop of single operations with
//! interrupts off once. No batching beyond that. Works in 2.6.24 too, which had no such call.

use super::Slab;
use crate::machine::{Cpu, Machine};
use crate::spec::{CacheId, Object, Request};

impl<M: Machine> Slab<'_, M> {
    /// Takes `n` objects, or none when memory is out: those obtained are given back.
    pub fn alloc_bulk(&self, cpu: &M::Cpu, cache: CacheId, n: usize, want: Request) -> Option<Vec<Object>> {
        let cache = &self.caches[cache.0 as usize];
        cpu.irq_save();
        let mut got = Vec::with_capacity(n);
        while got.len() < n {
            match self.alloc_object(cpu, cache, want) {
                Some(object) => got.push(object),
                None => {
                    got.into_iter().for_each(|o| self.free_cpu(cpu, cache, o.addr()));
                    return None;
                }
            }
        }
        Some(got)
    }

    /// Gives objects of one cache back, in order.
    pub fn free_bulk(&self, cpu: &M::Cpu, cache: CacheId, objects: impl IntoIterator<Item = Object>) {
        let cache = &self.caches[cache.0 as usize];
        cpu.irq_save();
        objects.into_iter().for_each(|o| self.free_cpu(cpu, cache, o.addr()));
    }
}
