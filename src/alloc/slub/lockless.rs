//! Slow paths of lockless slabs (3.1 to 6.18): list and counters change in one compare-exchange, `list_lock` is held only
//! where a slab changes lists (kernel: ___slab_alloc, __slab_free, deactivate_slab).

use super::locked::moved_to;
use super::node::{End, Node};
use super::policy::*;
use super::slow::Chain;
use super::word::Slab;
use super::{Cache, Slub};
use crate::alloc::Stat;
use crate::machine::{Access, Addr, Cpu, Event, Machine, cost};
use crate::page::Pfn;
use crate::spec::Request;
use crate::units::NodeId;

impl<M: Machine> Slub<'_, M> {
    /// Takes an object when the private list is empty or of the wrong node.
    pub(super) fn alloc_lockless(&self, cpu: &M::Cpu, cache: &Cache<M>, mut want: Request) -> Option<Addr> {
        if !cache.open
            && let Some(object) = self.take_private(cpu, cache, want)
        {
            return Some(object);
        }
        cpu.work(cost::SLUB_ALLOC_SLOW);
        cpu.touch(cache.descriptor, Access::Read);
        if self.policy.slow_irq_off && self.policy.t.fast_path == FastPath::DoubleCas {
            cpu.irq_save();
        }
        if want.node.is_some_and(|n| self.pages.machine().topology().node_bytes(n) == 0) && !want.this_node {
            want.node = None;
        }
        if self.policy.count_entries {
            cache.count(cpu, Stat::AllocSlowpath);
        } else {
            // These releases count a look at the cpu slab, none or several per allocation.
            cache.cpus.with(cpu, |c| c.counters.leave_out(1));
        }
        loop {
            if let Some(slab) = cache.cpus.with(cpu, |c| c.own())
                && let Some(object) = self.take_own(cpu, cache, slab, want)
            {
                return Some(object);
            }
            match self.pop_cpu_partial(cpu, cache, want) {
                Popped::CpuSlab => continue,
                Popped::Taken(slab, first) => return Some(self.load(cpu, cache, slab, first)),
                Popped::Nothing => break,
            }
        }
        let (slab, first) = self.attempts(want).find_map(|attempt| {
            if let Some(found) = self.get_partial_lockless(cpu, cache, attempt.want) {
                cache.count(cpu, Stat::AllocFromPartial);
                return Some(found);
            }
            let (slab, first) = self.take_pages(cpu, cache, attempt)?;
            slab.set_word(self.pages, None, slab.objects(self.pages), true);
            Some((slab, first))
        })?;
        // While pages were asked for, a call may have run here and left another cpu slab.
        if cache.cpus.with(cpu, |c| c.own()).is_some() {
            self.flush_cpu_slab(cpu, cache);
        }
        Some(self.load(cpu, cache, slab, first))
    }

    /// The fast path of a closed cache without debugging: its private list, which the common fast path does not see.
    fn take_private(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        cpu.touch(cache.cpu_pointer(cpu.id()), Access::Read);
        let (slab, list) = cache.cpus.with(cpu, |c| {
            cpu.touch(c.addr, Access::Write);
            (c.own(), c.list())
        });
        let (slab, first) = (slab?, list?);
        if want.node.is_some_and(|n| n != self.pages.node_of(slab.0)) {
            return None;
        }
        cpu.work(cost::SLUB_ALLOC_FAST);
        cpu.spend(Event::CmpxchgLocal);
        let rest = cache.links.next(self.pages.arena(), cpu, first);
        cache.cpus.with(cpu, |c| c.set_list(rest));
        self.note_fast_alloc(cpu, cache, 1);
        Some(first)
    }
    /// Counts allocations of the fast path that the caller, or nobody yet, accounts for as live.
    pub(super) fn note_fast_alloc(&self, cpu: &M::Cpu, cache: &Cache<M>, n: u64) {
        cache.cpus.with(cpu, |c| {
            c.counters.add(Stat::AllocFastpath, n);
            c.moved(-(n as i64));
        });
    }

    /// Takes over the own list of the cpu slab; gives the slab up if it is of the wrong node, forgets it if it is used up.
    fn take_own(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, want: Request) -> Option<Addr> {
        if want.node.is_some_and(|n| n != self.pages.node_of(slab.0)) {
            cache.count(cpu, Stat::AllocNodeMismatch);
            self.deactivate_lockless(cpu, cache, slab);
            return None;
        }
        if let Some(first) = cache.cpus.with(cpu, |c| c.list()) {
            // Only the node was wrong, and a node without memory does not count.
            return Some(self.load(cpu, cache, slab, first));
        }
        if !self.policy.count_entries {
            cache.cpus.with(cpu, |c| {
                c.counters.count(Stat::AllocSlowpath);
                c.counters.leave_out(-1);
            });
        }
        let objects = slab.objects(self.pages);
        let old = loop {
            let old = slab.read(self.pages, cpu);
            // A used-up cpu slab becomes a full slab on no list in the same step.
            if slab.exchange(self.pages, cpu, old, old.then(None, objects, old.head().is_some())) {
                break old;
            }
            cache.count(cpu, Stat::CmpxchgDoubleFail);
        };
        let Some(head) = old.head() else {
            cache.count(cpu, Stat::DeactivateBypass);
            cache.cpus.with(cpu, |c| c.install(None, None));
            return None;
        };
        cache.count(cpu, Stat::AllocRefill);
        Some(self.load(cpu, cache, slab, cache.object_at(self.pages, slab, head)))
    }

    /// Makes a slab whose whole list this CPU has taken its cpu slab; returns the first object. A debug cache gives the slab
    /// up again at once.
    fn load(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, first: Addr) -> Addr {
        let rest = cache.links.next(self.pages.arena(), cpu, first);
        cache.cpus.with(cpu, |c| {
            c.install(Some(slab), rest);
            c.node = self.pages.node_of(slab.0);
        });
        if cache.takes_one {
            self.deactivate_lockless(cpu, cache, slab);
        }
        first
    }

    /// Takes the top of this CPU's partial list.
    fn pop_cpu_partial(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Popped {
        loop {
            let Some(slab) = cache.cpus.with(cpu, |c| {
                let slab = c.partial.pop()?;
                cpu.touch(c.addr, Access::Write);
                cpu.touch(self.pages.descriptor(slab.0), Access::Read);
                Some(slab)
            }) else {
                return Popped::Nothing;
            };
            if !self.policy.t.delayed_freezing {
                cache.cpus.with(cpu, |c| c.install(Some(slab), None));
                cache.count(cpu, Stat::CpuPartialAlloc);
                return Popped::CpuSlab;
            }
            let wrong = want.node.is_some_and(|n| n != self.pages.node_of(slab.0));
            // 6.8 counts a slab of the wrong node all the same.
            if !wrong || self.policy.sheaves.is_none() {
                cache.count(cpu, Stat::CpuPartialAlloc);
            }
            if !wrong {
                let first = self.freeze(cpu, cache, slab);
                return Popped::Taken(slab, first);
            }
            self.unfreeze_one(cpu, cache, slab);
        }
    }

    /// Takes the whole list of a slab that is on no list any more, and freezes it (kernel: freeze_slab).
    fn freeze(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab) -> Addr {
        loop {
            let old = slab.read(self.pages, cpu);
            if slab.exchange(self.pages, cpu, old, old.then(None, slab.objects(self.pages), true)) {
                let head = old.head().expect("a partial slab has a free object");
                return cache.object_at(self.pages, slab, head);
            }
            cache.count(cpu, Stat::CmpxchgDoubleFail);
        }
    }

    /// Takes a partial slab with its list, of the wanted node or as the release allows of another.
    fn get_partial_lockless(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<(Slab, Addr)> {
        let wanted = want.node.unwrap_or(self.local_node(cpu));
        let found = self.take_partials(cpu, cache, cache.node(wanted));
        if found.is_some() || self.stays_on_node(want) || !self.toss_for_others(cpu, cache) {
            return found;
        }
        self.others(cpu, wanted).find_map(|n| self.take_from_other(cpu, cache, n))
    }

    fn take_from_other(&self, cpu: &M::Cpu, cache: &Cache<M>, n: NodeId) -> Option<(Slab, Addr)> {
        let node = cache.node(n);
        if node.nr_partial.load(cpu) > cache.limits.min_partial { self.take_partials(cpu, cache, node) } else { None }
    }

    /// Takes the first slab of a node's list, and further ones for this CPU's partial list (kernel: get_partial_node).
    fn take_partials(&self, cpu: &M::Cpu, cache: &Cache<M>, node: &Node<M>) -> Option<(Slab, Addr)> {
        if node.nr_partial.load(cpu) == 0 {
            return None;
        }
        if !self.policy.slow_irq_off {
            cpu.irq_save();
        }
        let mut list = node.lock(cpu);
        let mut taken: Option<(Slab, Option<Addr>)> = None;
        let mut at = list.first();
        while let Some(pfn) = at {
            let slab = Slab(pfn);
            at = list.next(self.pages, cpu, pfn);
            cpu.work(cost::SLUB_GET_PARTIAL);
            let first = taken.is_none();
            let Some(object) = self.claim(cpu, cache, pfn, first) else { break };
            node.unlink(&mut list, self.pages, cpu, slab);
            let enough = if first {
                taken = Some((slab, object));
                !self.collects(cache)
            } else {
                self.collect(cpu, cache, slab)
            };
            if enough {
                break;
            }
        }
        drop(list);
        let (slab, object) = taken?;
        Some((slab, object.unwrap_or_else(|| self.freeze(cpu, cache, slab))))
    }

    /// Claims a listed slab: the first with its whole list, further ones frozen only. Delayed freezing claims nothing here.
    /// `None`: a free came in between, and the release tries once.
    fn claim(&self, cpu: &M::Cpu, cache: &Cache<M>, pfn: Pfn, first: bool) -> Option<Option<Addr>> {
        let slab = Slab(pfn);
        if self.policy.t.delayed_freezing {
            return Some(None);
        }
        loop {
            let old = slab.read(self.pages, cpu);
            let new = if first {
                old.then(None, slab.objects(self.pages), true)
            } else {
                old.then(old.head(), old.inuse(), true)
            };
            if slab.exchange(self.pages, cpu, old, new) {
                let head = old.head().expect("a partial slab has a free object");
                return Some(first.then(|| cache.object_at(self.pages, slab, head)));
            }
            cache.count(cpu, Stat::CmpxchgDoubleFail);
            if !self.policy.slow_irq_off {
                return None;
            }
        }
    }

    /// True if slabs beyond the first are taken.
    fn collects(&self, cache: &Cache<M>) -> bool {
        let has_list = self.policy.has_cpu_partial() && !cache.layout.debug.any();
        has_list && (!self.policy.t.delayed_freezing || cache.limits.cpu_partial_slabs > 0)
    }
    /// Puts a slab taken beyond the first on this CPU's list; true if that is enough.
    fn collect(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab) -> bool {
        let free = slab.objects(self.pages) - slab.peek_word(self.pages).inuse();
        let before = cache.cpus.with(cpu, |c| c.partial.len());
        let (slabs, pobjects) = self.put_cpu_partial(cpu, cache, slab, free, false);
        match self.policy.t.cpu_partial_count {
            CpuPartialCount::Objects => {
                cache.count(cpu, Stat::CpuPartialFree);
                pobjects > cache.limits.cpu_partial.unwrap_or(0) / 2
            }
            CpuPartialCount::Slabs => {
                debug_assert_eq!(slabs, before + 1);
                cache.count(cpu, Stat::CpuPartialNode);
                slabs > cache.limits.cpu_partial_slabs / 2
            }
        }
    }

    /// Gives objects of one slab back. `list_lock` is taken before the exchange if the slab may have to change lists.
    pub(super) fn free_lockless(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, chain: Chain) {
        if !cache.open && self.push_private(cpu, cache, slab, chain) {
            return;
        }
        cpu.work(cost::SLUB_FREE_SLOW);
        cache.count(cpu, Stat::FreeSlowpath);
        let node = cache.node(self.pages.node_of(slab.0));
        let head = cache.index_in(self.pages, slab, chain.head);
        let to_cpu = self.policy.has_cpu_partial() && !cache.layout.debug.any();
        let delayed = self.policy.t.delayed_freezing;
        let (old, new, list) = loop {
            let old = slab.read(self.pages, cpu);
            let prior = old.head().map(|h| cache.object_at(self.pages, slab, h));
            cache.links.set_next(self.pages.arena(), cpu, chain.tail, prior);
            let inuse = old.inuse() - chain.len;
            let (mut frozen, mut list) = (old.frozen(), None);
            if (inuse == 0 || prior.is_none()) && !frozen {
                if prior.is_none() && to_cpu {
                    frozen = !delayed;
                } else {
                    cpu.irq_save();
                    list = Some(node.lock(cpu));
                }
            }
            let new = old.then(Some(head), inuse, frozen);
            if slab.exchange(self.pages, cpu, old, new) {
                break (old, new, list);
            }
            cache.count(cpu, Stat::CmpxchgDoubleFail);
        };
        let Some(mut list) = list else {
            if old.frozen() {
                cache.count(cpu, Stat::FreeFrozen);
            } else if old.head().is_none() {
                self.put_cpu_partial(cpu, cache, slab, slab.objects(self.pages) - new.inuse(), true);
                cache.count(cpu, Stat::CpuPartialFree);
            }
            return;
        };
        if delayed && old.head().is_some() && !slab.listed(self.pages) {
            // On some CPU's list, whose drain decides.
            return;
        }
        if new.inuse() == 0 && self.discards(cache, node.nr_partial.load(cpu)) {
            if old.head().is_some() {
                cpu.work(cost::SLUB_LIST);
                node.unlink(&mut list, self.pages, cpu, slab);
                cache.count(cpu, Stat::FreeRemovePartial);
            }
            drop(list);
            cache.count(cpu, Stat::FreeSlab);
            return self.discard(cpu, cache, slab);
        }
        if old.head().is_none() {
            cpu.work(cost::SLUB_LIST);
            node.link(&mut list, self.pages, cpu, slab, self.first_free_end());
            cache.count(cpu, Stat::FreeAddPartial);
        }
    }

    /// The fast path of a closed cache without debugging; true if the slab is this CPU's.
    pub(super) fn push_private(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, chain: Chain) -> bool {
        if cache.takes_one || cache.cpus.with(cpu, |c| c.own()) != Some(slab) {
            return false;
        }
        self.push_own(cpu, cache, chain);
        let counted = if self.policy.bulk == Bulk::Counted { chain.len } else { 1 };
        cache.cpus.with(cpu, |c| {
            c.counters.add(Stat::FreeFastpath, counted);
            c.moved(counted as i64);
        });
        true
    }
    /// Pushes objects of the cpu slab on the private list.
    pub(super) fn push_own(&self, cpu: &M::Cpu, cache: &Cache<M>, chain: Chain) {
        cpu.work(cost::SLUB_FREE_FAST);
        cpu.spend(Event::CmpxchgLocal);
        let list = cache.cpus.with(cpu, |c| {
            cpu.touch(c.addr, Access::Write);
            c.list()
        });
        cache.links.set_next(self.pages.arena(), cpu, chain.tail, list);
        cache.cpus.with(cpu, |c| c.set_list(Some(chain.head)));
    }

    /// Gives the cpu slab up: private objects go back to its list, then a partial slab goes to its node's list, a full one to
    /// nobody, an empty one to the list or to the page allocator.
    pub(super) fn deactivate_lockless(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab) {
        cpu.work(cost::SLUB_DEACTIVATE);
        let private = cache.cpus.with(cpu, |c| {
            let list = c.list();
            c.install(None, None);
            list
        });
        let remote = slab.read(self.pages, cpu).head().is_some();
        if remote {
            cache.count(cpu, Stat::DeactivateRemoteFrees);
        }
        let end = match self.policy.t.deactivate {
            Deactivate::Head => End::Head,
            Deactivate::TailUnlessPrivate if private.is_some() => End::Head,
            Deactivate::TailUnlessPrivate => End::Tail,
            Deactivate::HeadUnlessRemote if remote => End::Tail,
            Deactivate::HeadUnlessRemote => End::Head,
        };
        let chain = self.private_chain(cpu, cache, slab, private);
        let node = cache.node(self.pages.node_of(slab.0));
        loop {
            let old = slab.read(self.pages, cpu);
            let prior = old.head().map(|h| cache.object_at(self.pages, slab, h));
            let (mut head, mut inuse) = (old.head(), old.inuse());
            if let Some(chain) = chain {
                cache.links.set_next(self.pages.arena(), cpu, chain.tail, prior);
                head = Some(cache.index_in(self.pages, slab, chain.head));
                inuse -= chain.len;
            }
            let new = old.then(head, inuse, false);
            let empty = inuse == 0 && self.discards(cache, node.nr_partial.load(cpu));
            let listed = !empty && head.is_some();
            // A slab that others may free into must be on its list before they can find it unfrozen.
            let early = listed && !self.policy.t.delayed_freezing;
            let mut list = early.then(|| node.lock(cpu));
            if !slab.exchange(self.pages, cpu, old, new) {
                cache.count(cpu, Stat::CmpxchgDoubleFail);
                continue;
            }
            if listed {
                let list = list.get_or_insert_with(|| node.lock(cpu));
                node.link(list, self.pages, cpu, slab, end);
                cache.count(cpu, moved_to(end));
            } else if empty {
                cache.count(cpu, Stat::DeactivateEmpty);
                cache.count(cpu, Stat::FreeSlab);
                self.discard(cpu, cache, slab);
            } else {
                cache.count(cpu, Stat::DeactivateFull);
            }
            return;
        }
    }

    /// The private objects of a slab that is given up as one chain. Up to 3.x all but the last went back one by one, which
    /// turned their order round; later they go in one exchange, as they are.
    fn private_chain(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, private: Option<Addr>) -> Option<Chain> {
        let head = private?;
        let arena = self.pages.arena();
        if !self.policy.slow_irq_off {
            let (mut tail, mut len) = (head, 1);
            while let Some(next) = cache.links.next(arena, cpu, tail) {
                cpu.work(cost::SLUB_DEACTIVATE_OBJECT);
                (tail, len) = (next, len + 1);
            }
            return Some(Chain { head, tail, len });
        }
        let mut object = head;
        while let Some(next) = cache.links.next(arena, cpu, object) {
            cpu.work(cost::SLUB_DEACTIVATE_OBJECT);
            let index = cache.index_in(self.pages, slab, object);
            loop {
                let old = slab.read(self.pages, cpu);
                let prior = old.head().map(|h| cache.object_at(self.pages, slab, h));
                cache.links.set_next(arena, cpu, object, prior);
                if slab.exchange(self.pages, cpu, old, old.then(Some(index), old.inuse() - 1, old.frozen())) {
                    break;
                }
                cache.count(cpu, Stat::CmpxchgDoubleFail);
            }
            object = next;
        }
        Some(Chain { head: object, tail: object, len: 1 })
    }

    fn flush_cpu_slab(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        if let Some(slab) = cache.cpus.with(cpu, |c| c.own()) {
            cache.count(cpu, Stat::CpuslabFlush);
            self.deactivate_lockless(cpu, cache, slab);
        }
    }
    /// Gives this CPU's slab and partial slabs up.
    pub(super) fn flush_lockless(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        self.flush_cpu_slab(cpu, cache);
        self.flush_cpu_partial(cpu, cache);
    }
}

/// What came of looking at the CPU's partial list.
enum Popped {
    Nothing,
    /// The slab is now the cpu slab, with an empty private list.
    CpuSlab,
    /// The slab was taken with its list, which begins here.
    Taken(Slab, Addr),
}
