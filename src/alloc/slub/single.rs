//! Slabs that belong to no CPU: objects are taken one by one, or by the sheaf, from the node's list under `list_lock` (7.1,
//! and debug caches from 6.1 on; kernel: get_from_partial_node, alloc_single_from_new_slab, refill_objects). Frees push
//! without the lock unless the slab was full or becomes empty.

use super::node::{End, List, Node};
use super::policy::*;
use super::slow::Chain;
use super::word::Slab;
use super::{Cache, Slub};
use crate::alloc::Stat;
use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::spec::Request;

impl<M: Machine> Slub<'_, M> {
    /// Takes one object: of a partial slab, else of a new one, whose other objects go to the head of the list.
    pub(super) fn alloc_single(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        cpu.work(cost::SLUB_ALLOC_SLOW);
        cpu.touch(cache.descriptor, Access::Read);
        cache.count(cpu, Stat::AllocSlowpath);
        for attempt in self.attempts(want) {
            if let Some(object) = self.pop_partial(cpu, cache, attempt.want) {
                return Some(object);
            }
            if let Some(new) = self.take_pages(cpu, cache, attempt) {
                let mut one = Vec::with_capacity(1);
                self.open_new(cpu, cache, new, 1, &mut one);
                return one.pop();
            }
        }
        None
    }

    /// One object of the wanted node's list or, where the release allows, of another's.
    fn pop_partial(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        let wanted = want.node.unwrap_or(self.local_node(cpu));
        let found = self.pop_of(cpu, cache, cache.node(wanted));
        if found.is_some() || self.stays_on_node(want) || !self.toss_for_others(cpu, cache) {
            return found;
        }
        self.others(cpu, wanted).map(|n| cache.node(n)).find_map(|node| {
            let worth_it = node.nr_partial.load(cpu) > cache.limits.min_partial;
            if worth_it { self.pop_of(cpu, cache, node) } else { None }
        })
    }

    /// One object of the first slab of a node's list; the slab keeps its place, unless that was its last.
    fn pop_of(&self, cpu: &M::Cpu, cache: &Cache<M>, node: &Node<M>) -> Option<Addr> {
        if node.nr_partial.load(cpu) == 0 {
            return None;
        }
        cpu.irq_save();
        let mut list = node.lock(cpu);
        let slab = Slab(list.first()?);
        cpu.work(cost::SLUB_GET_PARTIAL);
        loop {
            let old = slab.read(self.pages, cpu);
            let object = cache.object_at(self.pages, slab, old.head().expect("a partial slab has a free object"));
            let rest = cache.links.next(self.pages.arena(), cpu, object);
            let rest = rest.map(|o| cache.index_in(self.pages, slab, o));
            if slab.exchange(self.pages, cpu, old, old.then(rest, old.inuse() + 1, false)) {
                if rest.is_none() {
                    node.unlink(&mut list, self.pages, cpu, slab);
                }
                return Some(object);
            }
            cache.count(cpu, Stat::CmpxchgDoubleFail);
        }
    }

    /// Takes the first `most` objects of a new slab; the others go to the head of its node's list.
    fn open_new(&self, cpu: &M::Cpu, cache: &Cache<M>, (slab, first): (Slab, Addr), most: u64, into: &mut Vec<Addr>) {
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(object) = next.filter(|_| taken < most) {
            next = cache.links.next(self.pages.arena(), cpu, object);
            into.push(object);
            taken += 1;
        }
        slab.set_word(self.pages, next.map(|o| cache.index_in(self.pages, slab, o)), taken, false);
        if next.is_some() {
            let node = cache.node(self.pages.node_of(slab.0));
            cpu.irq_save();
            let mut list = node.lock(cpu);
            node.link(&mut list, self.pages, cpu, slab, End::Head);
        }
    }

    /// Gives objects of one slab back. Who asks counts it in releases without cpu slabs.
    pub(super) fn free_single(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, chain: Chain) {
        cpu.work(cost::SLUB_FREE_SLOW);
        if self.policy.t.fast_path != FastPath::Sheaf {
            cache.count(cpu, Stat::FreeSlowpath);
        }
        let node = cache.node(self.pages.node_of(slab.0));
        let head = cache.index_in(self.pages, slab, chain.head);
        let (old, new, list) = loop {
            let old = slab.read(self.pages, cpu);
            let prior = old.head().map(|h| cache.object_at(self.pages, slab, h));
            cache.links.set_next(self.pages.arena(), cpu, chain.tail, prior);
            let new = old.then(Some(head), old.inuse() - chain.len, false);
            let list = (new.inuse() == 0 || prior.is_none() || cache.layout.debug.any()).then(|| {
                cpu.irq_save();
                node.lock(cpu)
            });
            if slab.exchange(self.pages, cpu, old, new) {
                break (old, new, list);
            }
            cache.count(cpu, Stat::CmpxchgDoubleFail);
        };
        let Some(mut list) = list else { return };
        let was_full = old.head().is_none();
        if !was_full && !slab.listed(self.pages) {
            // On its way from one list to another, whose end decides.
            return;
        }
        if new.inuse() == 0 && self.discards(cache, node.nr_partial.load(cpu)) {
            if !was_full {
                cpu.work(cost::SLUB_LIST);
                node.unlink(&mut list, self.pages, cpu, slab);
                cache.count(cpu, Stat::FreeRemovePartial);
            }
            drop(list);
            cache.count(cpu, Stat::FreeSlab);
            return self.discard(cpu, cache, slab);
        }
        if was_full {
            cpu.work(cost::SLUB_LIST);
            node.link(&mut list, self.pages, cpu, slab, self.first_free_end());
            cache.count(cpu, Stat::FreeAddPartial);
        }
    }

    /// Takes `need` objects from the local node's slabs, now and then another node's, else from new slabs; fewer when memory
    /// is out.
    pub(super) fn refill_objects(
        &self,
        cpu: &M::Cpu,
        cache: &Cache<M>,
        want: Request,
        need: u64,
        into: &mut Vec<Addr>,
    ) {
        let target = into.len() + need as usize;
        let missing = |into: &Vec<Addr>| (target - into.len()) as u64;
        let local = self.local_node(cpu);
        let node = cache.node(local);
        if node.nr_partial.load(cpu) > 0 {
            cpu.irq_save();
            let list = node.lock(cpu);
            self.refill_of(cpu, cache, node, list, need, into);
        }
        if missing(into) > 0 && self.toss_for_others(cpu, cache) {
            for n in self.others(cpu, local) {
                let node = cache.node(n);
                if node.nr_partial.load(cpu) > cache.limits.min_partial
                    && let Some(list) = node.try_lock(cpu)
                {
                    let need = missing(into);
                    self.refill_of(cpu, cache, node, list, need, into);
                }
                if missing(into) == 0 {
                    break;
                }
            }
        }
        while missing(into) > 0 {
            let Some(new) = self.take_pages(cpu, cache, Attempt { want, light: false }) else { return };
            let most = missing(into);
            self.open_new(cpu, cache, new, most, into);
        }
    }

    /// Takes slabs with `need` free objects off the held list, then their objects without it. The slab taken last is used
    /// first; what is left of the one that meets the need goes back as one chain, the slabs not reached return to the head.
    fn refill_of<'a>(
        &'a self,
        cpu: &'a M::Cpu,
        cache: &'a Cache<M>,
        node: &'a Node<M>,
        mut list: List<'a, M>,
        need: u64,
        into: &mut Vec<Addr>,
    ) {
        let mut taken: Vec<Slab> = Vec::new();
        let (mut free, mut at) = (0, list.first());
        while let Some(pfn) = at.filter(|_| free < need) {
            let slab = Slab(pfn);
            at = list.next(self.pages, cpu, pfn);
            cpu.work(cost::SLUB_GET_PARTIAL);
            // Free objects that come later do no harm: what is not needed goes back.
            free += slab.objects(self.pages) - slab.peek_word(self.pages).inuse();
            node.unlink(&mut list, self.pages, cpu, slab);
            taken.push(slab);
        }
        drop(list);
        let target = into.len() + need as usize;
        while into.len() < target {
            let Some(slab) = taken.pop() else { break };
            self.take_chain(cpu, cache, slab, target, into);
        }
        if taken.is_empty() {
            return;
        }
        cpu.irq_save();
        let mut list = node.lock(cpu);
        let mut empty = Vec::new();
        for slab in taken.into_iter().rev() {
            if slab.peek_word(self.pages).inuse() == 0 && self.discards(cache, node.nr_partial.load(cpu)) {
                empty.push(slab);
            } else {
                node.link(&mut list, self.pages, cpu, slab, End::Head);
            }
        }
        drop(list);
        empty.into_iter().for_each(|slab| self.discard(cpu, cache, slab));
    }

    /// Takes a slab's whole list, and of it objects until there are `target`; the others go back as one chain.
    fn take_chain(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, target: usize, into: &mut Vec<Addr>) {
        let arena = self.pages.arena();
        let old = loop {
            let old = slab.read(self.pages, cpu);
            if slab.exchange(self.pages, cpu, old, old.then(None, slab.objects(self.pages), false)) {
                break old;
            }
            cache.count(cpu, Stat::CmpxchgDoubleFail);
        };
        let mut next = old.head().map(|h| cache.object_at(self.pages, slab, h));
        while let Some(object) = next.filter(|_| into.len() < target) {
            next = cache.links.next(arena, cpu, object);
            into.push(object);
        }
        let Some(head) = next else { return };
        let (mut tail, mut len) = (head, 1);
        while let Some(object) = cache.links.next(arena, cpu, tail) {
            (tail, len) = (object, len + 1);
        }
        self.free_single(cpu, cache, slab, Chain { head, tail, len });
    }
}

/// One try to find a slab.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub want: Request,
    /// Without reclaim or reserves.
    pub light: bool,
}

impl<M: Machine> Slub<'_, M> {
    /// The tries of an allocation: a named node that is not insisted on is asked alone first, without reclaim (6.12).
    pub(super) fn attempts(&self, want: Request) -> impl Iterator<Item = Attempt> + use<M> {
        let two = self.policy.t.named_node == NamedNode::TwoAttempts && want.node.is_some() && !want.this_node;
        let alone = two.then_some(Attempt { want: Request { this_node: true, ..want }, light: true });
        alone.into_iter().chain([Attempt { want, light: false }])
    }
    /// True if partial slabs of other nodes are no choice for this try.
    pub(super) fn stays_on_node(&self, want: Request) -> bool {
        match self.policy.t.named_node {
            NamedNode::ThenAny | NamedNode::TwoAttempts => want.this_node,
            NamedNode::ThenNew => want.node.is_some(),
        }
    }
}
