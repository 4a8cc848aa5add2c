//! Slow paths under the slab lock (2.6.22 to 3.0): take over a list, change the cpu slab, free into a slab that is not ours
//! (kernel: __slab_alloc, __slab_free, deactivate_slab). Interrupts are off throughout, except while pages are asked for.

use super::node::End;
use super::policy::*;
use super::single::Attempt;
use super::word::Slab;
use super::{Cache, Slub};
use crate::alloc::Stat;
use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::spec::Request;

impl<M: Machine> Slub<'_, M> {
    /// Takes an object when the private list is empty or of the wrong node: from the cpu slab's own list, a partial slab, or
    /// a new one.
    pub(super) fn alloc_locked(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        self.enter_locked(cpu, cache);
        // Without a private list this is the whole allocation, else what comes on top of its test.
        cpu.work(if cache.takes_one { cost::SLUB_ALLOC_FAST } else { cost::SLUB_ALLOC_SLOW });
        cpu.touch(cache.descriptor, Access::Read);
        if let Some(slab) = cache.cpus.with(cpu, |c| c.own()) {
            slab.lock(self.pages, cpu);
            // From 2.6.24 on the node of a debug cpu slab is noted as none, so that it fits no named one.
            let marked = cache.takes_one && self.policy.t.fast_path > FastPath::Descriptor;
            if want.node.is_none_or(|n| !marked && n == self.pages.node_of(slab.0)) {
                cache.count(cpu, Stat::AllocRefill);
                if let Some(object) = self.take_list(cpu, cache, slab) {
                    return Some(object);
                }
            }
            self.deactivate_locked(cpu, cache, slab);
        }
        let slab = match self.get_partial(cpu, cache, want) {
            Some(slab) => {
                cache.count(cpu, Stat::AllocFromPartial);
                slab
            }
            None => {
                let Some((slab, first)) = self.take_pages(cpu, cache, Attempt { want, light: false }) else {
                    return self.kmalloc_block(cpu, cache, want);
                };
                slab.set(self.pages, Some(first), 0);
                // While pages were asked for, a reclaim may have run here and left another cpu slab.
                self.flush_locked(cpu, cache);
                slab.lock(self.pages, cpu);
                slab.freeze(self.pages, true);
                slab
            }
        };
        self.take_list(cpu, cache, slab)
    }

    /// A closed cache has not paid for its entry yet.
    fn enter_locked(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        if !cache.open {
            if self.policy.t.fast_path != FastPath::DoubleCas {
                cpu.irq_save();
            }
            cpu.touch(cache.cpu_pointer(cpu.id()), Access::Read);
            if self.policy.t.fast_path > FastPath::Descriptor {
                cache.cpus.with(cpu, |c| cpu.touch(c.addr, Access::Write));
            }
        }
    }

    /// Hands the own list of a locked, frozen slab to this CPU, all but the first object, which is returned, and unlocks.
    /// Where there is no private list the rest stays. `None`, and still locked, if the list is empty.
    fn take_list(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab) -> Option<Addr> {
        let first = slab.freelist(self.pages)?;
        let mut rest = cache.links.next(self.pages.arena(), cpu, first);
        if cache.takes_one {
            slab.set(self.pages, rest.take(), slab.inuse(self.pages) + 1);
        } else {
            slab.set(self.pages, None, slab.objects(self.pages));
        }
        cache.cpus.with(cpu, |c| {
            if self.policy.t.fast_path <= FastPath::Descriptor && c.own() != Some(slab) {
                // Neighbouring CPUs' pointers share the line.
                cpu.touch(cache.cpu_pointer(cpu.id()), Access::Write);
            }
            c.install(Some(slab), rest);
            c.node = self.pages.node_of(slab.0);
            c.counters.count(Stat::AllocSlowpath);
        });
        self.unlock(cpu, slab);
        Some(first)
    }

    /// Gives an object to a slab that is not this CPU's: one locked section, and the node's list if the slab was full or
    /// becomes empty. An empty slab is returned as the release decides; up to 3.0 at once, however few partial ones there
    /// are.
    pub(super) fn free_locked(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab, object: Addr) {
        self.enter_locked(cpu, cache);
        cpu.work(cost::SLUB_FREE_SLOW);
        cache.count(cpu, Stat::FreeSlowpath);
        slab.lock(self.pages, cpu);
        let prior = slab.freelist(self.pages);
        let inuse = slab.inuse(self.pages) - 1;
        cache.links.set_next(self.pages.arena(), cpu, object, prior);
        slab.set(self.pages, Some(object), inuse);
        if slab.frozen(self.pages) {
            cache.count(cpu, Stat::FreeFrozen);
            return self.unlock(cpu, slab);
        }
        let node = cache.node(self.pages.node_of(slab.0));
        let always = self.policy.t.discard_empty == DiscardEmpty::FreedAlways;
        if inuse == 0 && (always || self.discards(cache, node.nr_partial.load(cpu))) {
            if prior.is_some() {
                cpu.work(cost::SLUB_LIST);
                node.remove(self.pages, cpu, slab);
                cache.count(cpu, Stat::FreeRemovePartial);
            }
            self.unlock(cpu, slab);
            cache.count(cpu, Stat::FreeSlab);
            return self.discard(cpu, cache, slab);
        }
        if prior.is_none() {
            cpu.work(cost::SLUB_LIST);
            node.add(self.pages, cpu, slab, self.first_free_end());
            cache.count(cpu, Stat::FreeAddPartial);
        }
        self.unlock(cpu, slab);
    }

    /// Where a full slab goes at its first free.
    pub(super) fn first_free_end(&self) -> End {
        match self.policy.t.first_free {
            FirstFree::Head => End::Head,
            FirstFree::Tail => End::Tail,
        }
    }

    /// Gives the cpu slab, locked, up and unlocks it: private objects go back one by one, then a partial slab goes to its
    /// node's list, a full one to nobody, an empty one to the list or to the page allocator.
    fn deactivate_locked(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Slab) {
        cpu.work(cost::SLUB_DEACTIVATE);
        let mut private = cache.cpus.with(cpu, |c| {
            let list = c.list();
            c.install(None, None);
            list
        });
        let had_private = private.is_some();
        let (mut list, mut inuse) = (slab.freelist(self.pages), slab.inuse(self.pages));
        let had_remote = list.is_some();
        if had_remote {
            cache.count(cpu, Stat::DeactivateRemoteFrees);
        }
        while let Some(object) = private {
            cpu.work(cost::SLUB_DEACTIVATE_OBJECT);
            private = cache.links.next(self.pages.arena(), cpu, object);
            cache.links.set_next(self.pages.arena(), cpu, object, list);
            (list, inuse) = (Some(object), inuse - 1);
        }
        slab.set(self.pages, list, inuse);
        slab.freeze(self.pages, false);
        let node = cache.node(self.pages.node_of(slab.0));
        let end = match self.policy.t.deactivate {
            Deactivate::Head => End::Head,
            Deactivate::TailUnlessPrivate if had_private => End::Head,
            Deactivate::TailUnlessPrivate => End::Tail,
            Deactivate::HeadUnlessRemote if had_remote => End::Tail,
            Deactivate::HeadUnlessRemote => End::Head,
        };
        if inuse > 0 {
            if list.is_some() {
                node.add(self.pages, cpu, slab, end);
            }
            cache.count(cpu, if list.is_none() { Stat::DeactivateFull } else { moved_to(end) });
            self.unlock(cpu, slab);
        } else if self.discards(cache, node.nr_partial.load(cpu)) {
            cache.count(cpu, Stat::DeactivateEmpty);
            self.unlock(cpu, slab);
            cache.count(cpu, Stat::FreeSlab);
            self.discard(cpu, cache, slab);
        } else {
            cache.count(cpu, Stat::DeactivateEmpty);
            // Kept against the next allocation, behind those in use, which may fill up first.
            node.add(self.pages, cpu, slab, End::Tail);
            self.unlock(cpu, slab);
        }
    }

    /// Gives this CPU's slab up, if it has one (kernel: flush_slab).
    pub(super) fn flush_locked(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        if let Some(slab) = cache.cpus.with(cpu, |c| c.own()) {
            cache.count(cpu, Stat::CpuslabFlush);
            slab.lock(self.pages, cpu);
            self.deactivate_locked(cpu, cache, slab);
        }
    }

    fn unlock(&self, cpu: &M::Cpu, slab: Slab) {
        slab.unlock(self.pages, cpu, self.policy.t.atomic_unlock);
    }
}

/// The counter of a slab that was given up to this end of a list.
pub(super) fn moved_to(end: End) -> Stat {
    match end {
        End::Head => Stat::DeactivateToHead,
        End::Tail => Stat::DeactivateToTail,
    }
}
