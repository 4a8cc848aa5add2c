//! The periodic reaper (kernel: cache_reap): what nobody has used for a while goes back, a fifth at a time. All at once,
//! as older kernels had it, made memory bounce under pressure.

use super::Slab;
use super::array::Array;
use super::cache::Cache;
use super::node::{Doomed, LOCK_OFFSET, Lists};
use crate::alloc::Stat;
use crate::machine::{Access, Cpu, Machine, cost};
use crate::units::{HZ, NodeId, Picos};

/// Time between two runs on one CPU (kernel: REAPTIMEOUT_CPUC).
pub(super) const PERIOD: Picos = Picos(2_000_000_000_000);
/// Jiffies between two trims of a node's shared array and free list (kernel: REAPTIMEOUT_LIST3).
pub(super) const NODE_PERIOD: u64 = 4 * HZ;

/// Objects that one pass takes from an idle array: a fifth of its limit, or half of what it holds (kernel: drain_array).
fn share(array: &Array) -> usize {
    let fifth = array.limit.div_ceil(5);
    if fifth > array.len() { array.len().div_ceil(2) } else { fifth }
}

/// Empty slabs of `num` objects that one trim of a node gives back at most: those of a fifth of its free limit.
pub(super) fn trimmed(free_limit: u64, num: u64) -> u64 {
    free_limit.div_ceil(5 * num)
}

impl<M: Machine> Slab<'_, M> {
    /// One run on this CPU: every cache, newest first. Does nothing while another CPU's run holds the list of caches. Each
    /// run drains the aliens of one node; the next run takes the next node.
    pub(super) fn reap(&self, cpu: &M::Cpu) {
        let Some(_chain) = self.chain.try_lock(cpu) else { return };
        let now = cpu.now().jiffies();
        let nodes = self.pages.machine().topology().nodes() as u16;
        let drained = self.reap_node.with(cpu, |next| std::mem::replace(next, NodeId((next.0 + 1) % nodes)));
        for cache in self.caches.iter().rev().filter(|c| c.gone.peek() == 0) {
            self.reap_cache(cpu, cache, drained, now);
        }
        self.return_waited(cpu, false);
    }

    fn reap_cache(&self, cpu: &M::Cpu, cache: &Cache<M>, drained: NodeId, now: u64) {
        cpu.work(cost::SLAB_REAP);
        cpu.touch(cache.node_pointer(cpu.node()), Access::Read);
        let node = cache.node(cpu.node());
        cpu.touch(node.addr.plus(LOCK_OFFSET), Access::Read);
        if let Some(alien) = &node.alien[usize::from(drained.0)]
            && let Some(mut alien) = alien.try_lock(cpu)
        {
            let doomed = self.drain_alien(cpu, cache, &mut alien, drained);
            drop(alien);
            self.destroy_doomed(cpu, cache, doomed);
        }
        self.reap_array(cpu, cache);
        if node.next_reap.peek() > now {
            return;
        }
        node.next_reap.poke(now + NODE_PERIOD);
        let mut lists = node.lock(cpu);
        let doomed = self.reap_shared(cpu, cache, &mut lists);
        let idle = !std::mem::take(&mut lists.free_touched);
        let slabs = trimmed(lists.free_limit, cache.geometry.num);
        drop(lists);
        self.destroy_doomed(cpu, cache, doomed);
        if idle {
            let reaped = (0..slabs).take_while(|_| self.destroy_coldest(cpu, cache, node)).count();
            cache.cpus.with(cpu, |c| c.counters.add(Stat::Reaped, reaped as u64));
        }
    }

    /// This CPU's array: a share of the oldest objects, unless it was used since the last run.
    fn reap_array(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        cpu.touch(cache.array_pointer(cpu.id()), Access::Read);
        let n = cache.cpus.with(cpu, |c| {
            cpu.touch(c.array.addr, Access::Read);
            if c.array.is_empty() || std::mem::take(&mut c.array.touched) { 0 } else { share(&c.array) }
        });
        if n == 0 {
            return;
        }
        let mut lists = cache.node(cpu.node()).lock(cpu);
        let doomed = self.free_oldest(cpu, cache, &mut lists, n);
        drop(lists);
        cache.cpus.with(cpu, |c| c.array.slide(cpu, n));
        self.destroy_doomed(cpu, cache, doomed);
    }

    /// The node's shared array, by the same rule.
    fn reap_shared(&self, cpu: &M::Cpu, cache: &Cache<M>, lists: &mut Lists) -> Doomed {
        let Some(shared) = &mut lists.shared else { return Doomed::default() };
        cpu.touch(shared.addr, Access::Read);
        if shared.is_empty() || std::mem::take(&mut shared.touched) {
            return Doomed::default();
        }
        let n = share(shared);
        self.free_shared(cpu, cache, lists, n)
    }
}
