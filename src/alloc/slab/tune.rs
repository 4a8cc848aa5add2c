//! Changing a cache's tunables at run time, as by writing to `/proc/slabinfo` (kernel: slabinfo_write, do_tune_cpucache).

use super::Slab;
use super::array::Array;
use super::arrays::{Owner, Wanted};
use super::cache::free_limit;
use super::geometry::Tunables;
use super::policy::{CpuArrays, Metadata};
use crate::alloc::Tuning;
use crate::error::Error;
use crate::machine::{Addr, Machine};
use crate::units::{MAX_ORDER, NodeId, Order};

/// Longest line that may be written.
const LINE_MAX: usize = 128;

impl<M: Machine> Slab<'_, M> {
    /// Does what writing `text` (`name limit batchcount sharedfactor`) to `/proc/slabinfo` does. When no CPU runs. False if
    /// the kernel ignores the values silently. Refuses what the kernel answers with EINVAL: an unknown name, fewer than
    /// three numbers, more than 128 bytes; and what memory has no room for.
    pub fn write_slabinfo(&mut self, text: &str) -> Result<bool, Error> {
        let refuse = |why: &str| Err(Error::new("slabinfo", format!("{text:?}"), format!("{why} (EINVAL)")));
        if text.len() > LINE_MAX {
            return refuse("at most 128 bytes");
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let [name, numbers @ ..] = &words[..] else { return refuse("name limit batchcount sharedfactor") };
        let numbers: Vec<i64> = numbers.iter().map_while(|n| n.parse().ok()).collect();
        let [limit, batchcount, sharedfactor, ..] = numbers[..] else {
            return refuse("three numbers behind the name: limit batchcount sharedfactor");
        };
        // Newest first, as the kernel searches.
        let found = self.caches.iter().rposition(|c| c.spec.name == *name && c.gone.peek() == 0);
        let Some(cache) = found else { return refuse("the name of a cache") };
        self.tune_cache(cache, Tuning { limit, batchcount, sharedfactor })
    }

    /// Changes a cache's tunables: new empty arrays for all CPUs, the old ones' objects back into their slabs, then a new
    /// shared array per node. Alien arrays stay as they are.
    pub(super) fn tune_cache(&mut self, index: usize, asked: Tuning) -> Result<bool, Error> {
        if self.caches[index].gone.peek() != 0 {
            return Ok(false);
        }
        let Some(new) = checked(asked) else { return Ok(false) };
        self.fits(&new)?;
        let wanted = self.plan(&new);
        let of = |which: &dyn Fn(Owner) -> bool| -> Vec<Wanted> {
            wanted.iter().filter(|w| which(w.owner)).copied().collect()
        };
        let topology = self.pages.machine().topology();
        let (placed, _) = self
            .make_arrays(&of(&|owner| matches!(owner, Owner::Cpu(_))))
            .map_err(|_| no_memory("limit", new.limit))?;
        let cache = &mut self.caches[index];
        let mut old = Vec::new();
        for p in &placed {
            old.push(cache.take_array(topology, p.owner));
        }
        cache.tunables = new;
        cache.place_arrays(self.pages.machine(), self.policy, &placed);
        old.into_iter().for_each(|(array, node, object)| self.retire(index, &array, node, object));
        for node in topology.node_ids() {
            let dead = self.dead_on(node);
            let (placed, _) = self
                .make_arrays(&of(&|owner| owner == Owner::Shared(node)))
                .map_err(|_| no_memory("sharedfactor", new.sharedfactor))?;
            let cache = &mut self.caches[index];
            let (array, _, object) = cache.take_array(topology, Owner::Shared(node));
            cache.place_arrays(self.pages.machine(), self.policy, &placed);
            self.retire(index, &array, node, object);
            let cache = &mut self.caches[index];
            let limit = free_limit(topology, node, &cache.geometry, &new) - dead * new.batch;
            cache.nodes[usize::from(node.0)].lists.get_mut().free_limit = limit;
        }
        Ok(true)
    }

    /// Refuses arrays larger than the kernel can allocate at all (it answers ENOMEM): more than a block of the largest order,
    /// or, in the per-CPU area, whose size the specs leave open, more than the machine keeps for metadata.
    fn fits(&self, new: &Tunables) -> Result<(), Error> {
        let entries = |bytes: u64| bytes.saturating_sub(self.policy.array_header) / 8;
        let machine = self.pages.machine();
        let cpus = machine.topology().cpus() as u64;
        let block = entries(Order(MAX_ORDER as u8 - 1).bytes());
        let outside = entries(machine.room() / 2 / cpus);
        let free = self.config.metadata == Metadata::Free;
        let most = if free || self.policy.cpu_arrays != CpuArrays::Kmalloc { outside } else { block };
        if new.limit > most {
            return Err(Error::new(
                "limit",
                new.limit,
                format!("1..{most}: the kernel has no memory for more (ENOMEM)"),
            ));
        }
        let most = if free { outside } else { block };
        if new.sharedfactor > most / new.batch {
            let right =
                format!("0..{} with this batchcount: the kernel has no memory for more (ENOMEM)", most / new.batch);
            return Err(Error::new("sharedfactor", new.sharedfactor, right));
        }
        Ok(())
    }

    /// For replays of a boot: the kernel made this cache before it counted the CPUs of its nodes (slab.md §4: as many as
    /// the node has at the time), so `free_limit` is `batch + num`.
    pub(crate) fn made_before_cpus(&mut self, cache: crate::spec::CacheId) {
        let cache = &mut self.caches[cache.0 as usize];
        let limit = cache.tunables.batch + cache.geometry.num;
        cache.nodes.iter_mut().for_each(|n| n.lists.get_mut().free_limit = limit);
    }

    /// Puts the objects of an array that is no longer used back into the slabs of their node, and frees its memory.
    pub(super) fn retire(&self, index: usize, array: &Array, node: NodeId, object: Option<Addr>) {
        let cache = &self.caches[index];
        self.on_first_cpu(|cpu| {
            let mut lists = cache.node(node).lock(cpu);
            array.read(cpu, 0, array.len());
            let doomed = self.free_block(cpu, cache, &mut lists, array.len(), |i| array.get(i));
            drop(lists);
            self.destroy_doomed(cpu, cache, doomed);
            if let Some(addr) = object {
                self.kfree_any(cpu, addr);
            }
        });
    }
}

fn no_memory(parameter: &str, value: u64) -> Error {
    Error::new(parameter, value, "fewer entries, or more machine.memory: no memory for the arrays is left (ENOMEM)")
}

/// The tunables asked for, unless the kernel ignores them: `limit ≥ 1`, `1 ≤ batchcount ≤ limit`, `sharedfactor ≥ 0`.
fn checked(asked: Tuning) -> Option<Tunables> {
    let Tuning { limit, batchcount, sharedfactor } = asked;
    let valid = limit >= 1 && (1..=limit).contains(&batchcount) && sharedfactor >= 0;
    valid.then_some(Tunables { limit: limit as u64, batch: batchcount as u64, sharedfactor: sharedfactor as u64 })
}
