//! Partial lists: slabs with free objects that belong to no CPU, one list per node (kernel: struct kmem_cache_node).
//!
//! `list_lock` guards the list. `nr_partial`, its length, lies beside it and is also read without the lock, by whoever asks
//! whether the list is worth locking; that read may be late. Lock, counts and list head share one line.

use super::word::Slab;
use super::{Cache, Slub};
use crate::machine::{Cpu, Guard, Machine, SpinLock, Word, cost};
use crate::page::{FrameList, Pages, Pfn};
use crate::spec::Request;
use crate::units::NodeId;

/// Bytes of a node structure: lock, counts, list heads.
const NODE_BYTES: u64 = 64;

/// One end of a partial list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Taken next.
    Head,
    /// Taken last.
    Tail,
}

/// The slabs of one cache on one node. `nr_partial = length of the partial list` whenever `list_lock` is free; full slabs
/// and cpu slabs are counted in `nr_slabs` only.
pub(super) struct Node<M: Machine> {
    partial: SpinLock<M, FrameList>,
    pub nr_partial: Word,
    /// Slabs whose pages lie on this node.
    pub nr_slabs: Word,
}

impl<M: Machine> Node<M> {
    pub fn new(machine: &M, node: NodeId) -> Node<M> {
        let addr = machine.reserve(NODE_BYTES, node);
        let partial = SpinLock::new(machine.lock("list_lock", addr), FrameList::default());
        Node { partial, nr_partial: Word::new(addr, 0), nr_slabs: Word::new(addr, 0) }
    }

    /// Puts a slab, whose lock the caller holds, on the list (kernel: add_partial).
    pub fn add(&self, pages: &Pages<'_, M>, cpu: &M::Cpu, slab: Slab, end: End) {
        let mut list = self.partial.lock(cpu);
        cpu.grouped(|cpu| match end {
            End::Head => list.push_front(pages, cpu, slab.0),
            End::Tail => list.push_back(pages, cpu, slab.0),
        });
        self.nr_partial.poke(list.len() as u64);
    }

    /// Takes a slab, whose lock the caller holds, off the list (kernel: remove_partial).
    pub fn remove(&self, pages: &Pages<'_, M>, cpu: &M::Cpu, slab: Slab) {
        let mut list = self.partial.lock(cpu);
        self.unlink(&mut list, pages, cpu, slab);
    }

    fn unlink(&self, list: &mut Guard<'_, M, FrameList>, pages: &Pages<'_, M>, cpu: &M::Cpu, slab: Slab) {
        cpu.grouped(|cpu| list.remove(pages, cpu, slab.0));
        self.nr_partial.poke(list.len() as u64);
    }

    /// Takes the first slab whose lock is free off the list, locked and frozen (kernel: get_partial_node). A busy slab is
    /// passed over: its holder may be waiting for `list_lock`.
    fn take_partial(&self, pages: &Pages<'_, M>, cpu: &M::Cpu) -> Option<Slab> {
        if self.nr_partial.load(cpu) == 0 {
            return None;
        }
        let mut list = self.partial.lock(cpu);
        let mut at = list.first();
        while let Some(pfn) = at {
            let slab = Slab(pfn);
            if slab.try_lock(pages, cpu) {
                cpu.work(cost::SLUB_GET_PARTIAL);
                self.unlink(&mut list, pages, cpu, slab);
                slab.freeze(pages, true);
                return Some(slab);
            }
            at = list.next(pages, cpu, pfn);
        }
        None
    }

    /// Hands the empty slabs of the list to `discard` and sorts the rest by objects in use, fullest first; equal ones come
    /// out in reverse (kernel: kmem_cache_shrink, which moves each slab to the head of its bucket). `discard` runs under
    /// `list_lock` and must not take it.
    pub fn shrink(&self, pages: &Pages<'_, M>, cpu: &M::Cpu, mut discard: impl FnMut(Slab)) {
        if self.nr_partial.load(cpu) == 0 {
            return;
        }
        let mut list = self.partial.lock(cpu);
        let mut kept: Vec<(u64, Slab)> = Vec::with_capacity(list.len());
        let mut at = list.first();
        while let Some(pfn) = at {
            let slab = Slab(pfn);
            at = list.next(pages, cpu, pfn);
            cpu.work(cost::SLUB_LIST);
            let inuse = slab.glance_inuse(pages, cpu);
            // Busy: a free has just emptied it and waits for the list to take it off.
            if inuse == 0 && slab.try_lock(pages, cpu) {
                self.unlink(&mut list, pages, cpu, slab);
                slab.unlock(pages, cpu);
                discard(slab);
            } else {
                kept.push((inuse, slab));
            }
        }
        kept.reverse();
        kept.sort_by_key(|(inuse, _)| std::cmp::Reverse(*inuse));
        *list = FrameList::default();
        for (_, slab) in kept {
            cpu.grouped(|cpu| list.push_back(pages, cpu, slab.0));
        }
    }

    /// Hands the empty slabs of the list to `discard` (kernel: free_list). As [`Node::shrink`], without sorting.
    pub fn discard_empty(&self, pages: &Pages<'_, M>, cpu: &M::Cpu, mut discard: impl FnMut(Slab)) {
        let mut list = self.partial.lock(cpu);
        let mut at = list.first();
        while let Some(pfn) = at {
            at = list.next(pages, cpu, pfn);
            let slab = Slab(pfn);
            if slab.glance_inuse(pages, cpu) == 0 {
                self.unlink(&mut list, pages, cpu, slab);
                discard(slab);
            }
        }
    }

    /// The list, head first. When no CPU runs.
    pub fn listed(&mut self, pages: &Pages<'_, M>) -> Vec<Pfn> {
        self.partial.get_mut().iter(pages).collect()
    }
}

impl<M: Machine> Slub<'_, M> {
    /// Takes a partial slab, locked and frozen: of the wanted node, or, unless that node alone was asked for, of another
    /// (kernel: get_partial).
    pub(super) fn get_partial(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Slab> {
        let wanted = want.node.unwrap_or(self.local_node(cpu));
        let found = cache.node(wanted).take_partial(self.pages, cpu);
        if found.is_some() || want.this_node {
            return found;
        }
        self.get_any_partial(cpu, cache, wanted)
    }

    /// Takes one of another node than `searched`, now and then (kernel: get_any_partial): only where more than min_partial
    /// lie, in the order of the local zonelist. One draw per search.
    fn get_any_partial(&self, cpu: &M::Cpu, cache: &Cache<M>, searched: NodeId) -> Option<Slab> {
        let ratio = self.policy.defrag_ratio;
        if self.zonelists.len() == 1 || ratio == 0 || cpu.random(1024) > ratio {
            return None;
        }
        let others = self.zonelists[usize::from(cpu.node().0)].iter().filter(|n| **n != searched);
        others.map(|n| cache.node(*n)).find_map(|node| {
            let worth_it = node.nr_partial.load(cpu) > self.policy.min_partial;
            if worth_it { node.take_partial(self.pages, cpu) } else { None }
        })
    }

    /// The node whose memory is nearest: a CPU's own, unless that has none.
    fn local_node(&self, cpu: &M::Cpu) -> NodeId {
        self.zonelists[usize::from(cpu.node().0)][0]
    }
}
