//! Per-CPU lists of partial slabs (3.2 to 6.19): a slab that was full belongs, from its first free on, to the CPU that freed
//! (kernel: put_cpu_partial, unfreeze_partials). Allocations look there before they take `list_lock`, and the lock is taken
//! once for a whole list.

use super::node::{End, List, Node};
use super::policy::*;
use super::word::Slab;
use super::{Cache, Slub};
use crate::alloc::Stat;
use crate::machine::{Access, Cpu, Machine, cost};
use crate::units::NodeId;

/// A slab on a CPU's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    pub slab: Slab,
    /// Free objects of the slabs from here down, each as it was when it was put (kernel: pobjects).
    pub pobjects: u64,
}

/// The list, top last. `slabs from entry k down = k + 1`.
#[derive(Debug, Default)]
pub(super) struct CpuPartialList(Vec<Listed>);

impl CpuPartialList {
    /// Slabs from the top down.
    pub fn iter(&self) -> impl Iterator<Item = Listed> + '_ {
        self.0.iter().rev().copied()
    }
    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }
    pub fn pobjects(&self) -> u64 {
        self.0.last().map_or(0, |top| top.pobjects)
    }
    fn push(&mut self, slab: Slab, free: u64) {
        self.0.push(Listed { slab, pobjects: self.pobjects() + free });
    }
    pub fn pop(&mut self) -> Option<Slab> {
        Some(self.0.pop()?.slab)
    }
    fn take(&mut self) -> CpuPartialList {
        std::mem::take(self)
    }
}

impl<M: Machine> Slub<'_, M> {
    /// Puts a slab with `free` free objects on this CPU's list; with `drain` a list at its limit goes to the nodes first.
    /// Returns slabs and (as counted) free objects on the list.
    pub(super) fn put_cpu_partial(
        &self,
        cpu: &M::Cpu,
        cache: &Cache<M>,
        slab: Slab,
        free: u64,
        drain: bool,
    ) -> (u64, u64) {
        let by_slabs = self.policy.t.cpu_partial_count == CpuPartialCount::Slabs;
        let old = cache.cpus.with(cpu, |c| {
            let full = if by_slabs {
                c.partial.len() >= cache.limits.cpu_partial_slabs
            } else {
                c.partial.pobjects() > cache.limits.cpu_partial.unwrap_or(0)
            };
            let old = (drain && c.partial.len() > 0 && full).then(|| c.partial.take());
            cpu.touch(c.addr, Access::Write);
            cpu.touch(self.pages.descriptor(slab.0), Access::Write);
            if !by_slabs && old.is_none() {
                c.partial.push(slab, free);
            }
            if by_slabs {
                c.partial.push(slab, free);
            }
            old
        });
        if let Some(old) = old {
            if by_slabs {
                cache.count(cpu, Stat::CpuPartialDrain);
            }
            self.unfreeze_all(cpu, cache, old);
            if !by_slabs {
                cache.cpus.with(cpu, |c| c.partial.push(slab, free));
            }
        }
        cache.cpus.with(cpu, |c| (c.partial.len(), c.partial.pobjects()))
    }

    /// Gives this CPU's whole list to the nodes.
    pub(super) fn flush_cpu_partial(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        let list = cache.cpus.with(cpu, |c| c.partial.take());
        self.unfreeze_all(cpu, cache, list);
    }

    /// Gives slabs of a CPU's list to their nodes, from the top; empty ones may go back to the page allocator (kernel:
    /// unfreeze_partials). One hold of `list_lock` for slabs of one node in a row.
    pub(super) fn unfreeze_all(&self, cpu: &M::Cpu, cache: &Cache<M>, mut slabs: CpuPartialList) {
        // 3.2 takes the lock only for a slab that stays: an empty one met first always goes, and a later one is judged by the
        // node whose lock is in hand.
        let lock_first = self.policy.t.discard_empty == DiscardEmpty::From || self.policy.t.delayed_freezing;
        let mut empty: Vec<Slab> = Vec::new();
        let mut held: Option<Held<'_, M>> = None;
        while let Some(slab) = slabs.pop() {
            cpu.work(cost::SLUB_LIST);
            let at = self.pages.node_of(slab.0);
            let goes = loop {
                if lock_first {
                    Held::get(&mut held, cpu, cache, at);
                }
                let old = slab.read(self.pages, cpu);
                let over = held.as_ref().is_none_or(|h| self.discards(cache, h.node.nr_partial.load(cpu)));
                let goes = old.inuse() == 0 && over;
                if !goes {
                    Held::get(&mut held, cpu, cache, at);
                }
                if self.policy.t.delayed_freezing
                    || slab.exchange(self.pages, cpu, old, old.then(old.head(), old.inuse(), false))
                {
                    break goes;
                }
                cache.count(cpu, Stat::CmpxchgDoubleFail);
            };
            match &mut held {
                Some(h) if !goes => {
                    h.node.link(&mut h.list, self.pages, cpu, slab, End::Tail);
                    if self.policy.count_entries {
                        cache.count(cpu, Stat::FreeAddPartial);
                    }
                }
                _ => empty.push(slab),
            }
        }
        drop(held);
        // Chained as they were found, so the last comes first.
        for slab in empty.into_iter().rev() {
            cache.count(cpu, Stat::DeactivateEmpty);
            cache.count(cpu, Stat::FreeSlab);
            self.discard(cpu, cache, slab);
        }
    }

    /// Gives one slab to its node as a drain would.
    pub(super) fn unfreeze_one(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab) {
        let mut one = CpuPartialList::default();
        one.push(slab, 0);
        self.unfreeze_all(cpu, cache, one);
    }
}

/// The node whose `list_lock` is in hand.
struct Held<'a, M: Machine> {
    at: NodeId,
    node: &'a Node<M>,
    list: List<'a, M>,
}

impl<'a, M: Machine> Held<'a, M> {
    /// Makes it the lock of node `at`, giving another one back first.
    fn get(held: &mut Option<Held<'a, M>>, cpu: &'a M::Cpu, cache: &'a Cache<M>, at: NodeId) {
        if held.as_ref().is_none_or(|h| h.at != at) {
            drop(held.take());
            let node = cache.node(at);
            *held = Some(Held { at, node, list: node.lock(cpu) });
        }
    }
}
