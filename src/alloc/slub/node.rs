//! Partial lists: slabs with free objects that belong to no CPU, one list per node (kernel: struct kmem_cache_node).
//!
//! `list_lock` guards the list. `nr_partial`, its length, lies beside it and is also read without the lock, by whoever asks
//! whether the list is worth locking; that read may be late. Lock, counts and list head share one line.

use super::policy::ShrinkSort;
use super::word::Slab;
use super::{Cache, Slub};
use crate::machine::{Access, Cpu, Guard, Machine, SpinLock, Word, cost};
use crate::page::{FrameList, Pages, Pfn};
use crate::spec::Request;
use crate::units::{NodeId, Order};

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
/// and slabs that belong to CPUs are counted in `nr_slabs` only.
pub(super) struct Node<M: Machine> {
    partial: SpinLock<M, FrameList>,
    pub nr_partial: Word,
    /// Slabs whose pages lie on this node.
    pub nr_slabs: Word,
    /// Slots of those slabs.
    pub total_objects: Word,
    /// Their pages.
    pub nr_pages: Word,
    /// Pages of all slabs that were ever made here.
    pub pages_made: Word,
    /// Slabs carry a mark while they are on the list (6.8).
    marks: bool,
}

/// The held list of a node.
pub(super) type List<'a, M> = Guard<'a, M, FrameList>;

impl<M: Machine> Node<M> {
    pub fn new(machine: &M, node: NodeId, marks: bool) -> Node<M> {
        let addr = machine.reserve(NODE_BYTES, node);
        let partial = SpinLock::new(machine.lock("list_lock", addr), FrameList::default());
        let word = || Word::new(addr, 0);
        let [nr_partial, nr_slabs, total_objects, nr_pages, pages_made] = std::array::from_fn(|_| word());
        Node { partial, nr_partial, nr_slabs, total_objects, nr_pages, pages_made, marks }
    }

    /// Takes `list_lock`.
    pub fn lock<'a>(&'a self, cpu: &'a M::Cpu) -> List<'a, M> {
        self.partial.lock(cpu)
    }
    /// Tries the same once.
    pub fn try_lock<'a>(&'a self, cpu: &'a M::Cpu) -> Option<List<'a, M>> {
        self.partial.try_lock(cpu)
    }

    /// Puts a slab, whose lock the caller holds, on the list (kernel: add_partial).
    pub fn add(&self, pages: &Pages<'_, M>, cpu: &M::Cpu, slab: Slab, end: End) {
        self.link(&mut self.lock(cpu), pages, cpu, slab, end);
    }
    /// Takes a slab, whose lock the caller holds, off the list (kernel: remove_partial).
    pub fn remove(&self, pages: &Pages<'_, M>, cpu: &M::Cpu, slab: Slab) {
        self.unlink(&mut self.lock(cpu), pages, cpu, slab);
    }

    /// Puts a slab on the held list.
    pub fn link(&self, list: &mut List<'_, M>, pages: &Pages<'_, M>, cpu: &M::Cpu, slab: Slab, end: End) {
        cpu.grouped(|cpu| match end {
            End::Head => list.push_front(pages, cpu, slab.0),
            End::Tail => list.push_back(pages, cpu, slab.0),
        });
        self.nr_partial.poke(list.len() as u64);
        if self.marks {
            slab.list(pages, true);
        }
    }
    /// Takes a slab off the held list.
    pub fn unlink(&self, list: &mut List<'_, M>, pages: &Pages<'_, M>, cpu: &M::Cpu, slab: Slab) {
        cpu.grouped(|cpu| list.remove(pages, cpu, slab.0));
        self.nr_partial.poke(list.len() as u64);
        if self.marks {
            slab.list(pages, false);
        }
    }

    /// Counts a slab of this node in, or out.
    pub fn count_slab(&self, cpu: &M::Cpu, objects: u64, order: Order, sign: i64) {
        self.nr_slabs.fetch_add(cpu, sign);
        self.nr_pages.poke_add(sign * order.pages() as i64);
        self.pages_made.poke_add(sign.max(0) * order.pages() as i64);
        self.total_objects.poke_add(sign * objects as i64);
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

    /// Hands the empty slabs of the list to `discard` and sorts the rest as the release does; slabs of equal use come out in
    /// reverse (kernel: kmem_cache_shrink, which moves each slab to the head of its bucket). `discard` runs under `list_lock`
    /// and must not take it.
    pub fn shrink(&self, slub: &Slub<'_, M>, cpu: &M::Cpu, cache: &Cache<M>, mut discard: impl FnMut(Slab)) {
        if self.nr_partial.load(cpu) == 0 {
            return;
        }
        let pages = slub.pages;
        let mut list = self.lock(cpu);
        let mut kept: Vec<(u64, Slab)> = Vec::with_capacity(list.len());
        let mut at = list.first();
        while let Some(pfn) = at {
            let slab = Slab(pfn);
            at = list.next(pages, cpu, pfn);
            cpu.work(cost::SLUB_LIST);
            let inuse = slub.glance_inuse(cpu, cache, slab);
            // Busy: a free has just emptied it and waits for the list to take it off.
            if inuse == 0 && (cache.lockless || slab.try_lock(pages, cpu)) {
                self.unlink(&mut list, pages, cpu, slab);
                if !cache.lockless {
                    slab.unlock(pages, cpu, slub.policy.t.atomic_unlock);
                }
                discard(slab);
            } else {
                kept.push((inuse, slab));
            }
        }
        match slub.policy.shrink_sort {
            ShrinkSort::AllAbove(n) if kept.len() <= n => return,
            ShrinkSort::AllAbove(_) => {
                kept.reverse();
                kept.sort_by_key(|(inuse, _)| std::cmp::Reverse(*inuse));
            }
            ShrinkSort::NearlyFull => {
                let free = |(inuse, slab): &(u64, Slab)| slab.objects(pages) - inuse;
                let (mut front, back): (Vec<_>, Vec<_>) = kept.into_iter().partition(|s| free(s) <= 32);
                front.reverse();
                front.sort_by_key(free);
                front.extend(back);
                kept = front;
            }
        }
        *list = FrameList::default();
        for (_, slab) in kept {
            cpu.grouped(|cpu| list.push_back(pages, cpu, slab.0));
        }
    }

    /// Hands the empty slabs of the list to `discard` and returns the others (kernel: free_list). As [`Node::shrink`],
    /// without sorting.
    pub fn discard_empty(
        &self,
        slub: &Slub<'_, M>,
        cpu: &M::Cpu,
        cache: &Cache<M>,
        mut discard: impl FnMut(Slab),
    ) -> Vec<Slab> {
        let mut left = Vec::new();
        let mut list = self.lock(cpu);
        let mut at = list.first();
        while let Some(pfn) = at {
            at = list.next(slub.pages, cpu, pfn);
            let slab = Slab(pfn);
            if slub.glance_inuse(cpu, cache, slab) == 0 {
                self.unlink(&mut list, slub.pages, cpu, slab);
                discard(slab);
            } else {
                left.push(slab);
            }
        }
        left
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
        if !self.toss_for_others(cpu, cache) {
            return None;
        }
        self.others(cpu, searched).map(|n| cache.node(n)).find_map(|node| {
            let worth_it = node.nr_partial.load(cpu) > cache.limits.min_partial;
            if worth_it { node.take_partial(self.pages, cpu) } else { None }
        })
    }

    /// Whether this search may look at other nodes: one draw.
    pub(super) fn toss_for_others(&self, cpu: &M::Cpu, cache: &Cache<M>) -> bool {
        let ratio = cache.limits.defrag_ratio;
        self.zonelists.len() > 1 && ratio != 0 && cpu.random(1024) <= ratio
    }
    /// The nodes with memory other than `searched`, nearest first.
    pub(super) fn others(&self, cpu: &M::Cpu, searched: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.zonelists[usize::from(cpu.node().0)].iter().copied().filter(move |n| *n != searched)
    }

    /// Reads inuse of a listed slab without its lock, paying for the line.
    pub(super) fn glance_inuse(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab) -> u64 {
        if cache.lockless {
            cpu.touch(self.pages.descriptor(slab.0), Access::Read);
            slab.peek_word(self.pages).inuse()
        } else {
            slab.glance_inuse(self.pages, cpu)
        }
    }

    /// The node whose memory is nearest: a CPU's own, unless that has none.
    pub(super) fn local_node(&self, cpu: &M::Cpu) -> NodeId {
        self.zonelists[usize::from(cpu.node().0)][0]
    }

    /// The node whose barn a CPU uses, and whose objects its sheaves take: the nearest with memory; from 7.1 on its own, even
    /// without memory (slub-eras.md §7).
    pub(super) fn barn_node(&self, cpu: &M::Cpu) -> NodeId {
        if self.alone() { cpu.node() } else { self.local_node(cpu) }
    }
    /// A CPU's sheaves take objects of this node: of its own, and from 7.1 on of all where its own has no memory.
    pub(super) fn is_local(&self, cpu: &M::Cpu, node: NodeId) -> bool {
        node == self.barn_node(cpu) || self.local_node(cpu) != self.barn_node(cpu)
    }
}
