//! Frees that wait for an RCU grace period (kernel: kfree_rcu): collected in a sheaf of the CPU where the cache has sheaves, else
//! queued one by one. No task holds an RCU read section between two operations, so only the time has to pass; what is due is
//! looked for at the next such free, and by [`Slub::grace_period_of`], there is no timer here.

use super::sheaf::Sheaf;
use super::{Cache, Slub};
use crate::alloc::Stat;
use crate::machine::{Addr, Cpu, Machine, cost};
use crate::units::{NodeId, Picos, RCU_GRACE};

/// Something that waits.
pub(super) struct Waiting {
    due: Picos,
    what: Content,
}

enum Content {
    Object(Addr),
    /// A sheaf, and the node whose barn gets it.
    Sheaf(Sheaf, Option<NodeId>),
}

impl Waiting {
    /// Objects in it.
    pub fn objects(&self) -> &[Addr] {
        match &self.what {
            Content::Object(object) => std::slice::from_ref(object),
            Content::Sheaf(sheaf, _) => &sheaf.objects,
        }
    }
}

impl<M: Machine> Slub<'_, M> {
    /// Gives an object back once a grace period has passed.
    pub(super) fn free_after_rcu(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) {
        if cache.rcu.is_none() {
            // The release has no queue for such frees, and the time of a grace period is nobody's here.
            return self.free_to(cpu, cache, object);
        }
        cpu.work(cost::SLUB_SHEAF_FREE);
        if cache.limits.sheaf_capacity == 0 {
            self.queue(cpu, cache, Content::Object(object));
        } else {
            if self.sheaves(cpu, cache, |s| s.rcu_free.is_none()) {
                let spare = self.sheaves(cpu, cache, |s| s.spare.take_if(|spare| spare.is_empty()));
                let barn = self.barn(cpu, cache);
                let sheaf = spare.or_else(|| barn.take_empty(cpu)).unwrap_or_else(|| self.make_sheaf(cpu, cache));
                self.sheaves(cpu, cache, |s| s.rcu_free = Some(sheaf));
            }
            let full = self.sheaves(cpu, cache, |s| {
                s.rcu_free.as_mut()?.objects.push(object);
                s.rcu_free.take_if(|sheaf| sheaf.is_full())
            });
            // Objects of other nodes too: slub-eras.md §6.5 has no rule of nodes for these frees.
            cache.count(cpu, Stat::FreeRcuSheaf);
            if let Some(full) = full {
                let node = self.barn_node(cpu);
                self.wait_for_rcu(cpu, cache, full, Some(node));
            }
        }
        while let Some(due) = self.next_waiting(cpu, cache, cpu.now()) {
            self.finish(cpu, cache, due);
        }
    }
    /// Takes the oldest thing that waits, if it is due at `time`.
    fn next_waiting(&self, cpu: &M::Cpu, cache: &Cache<M>, time: Picos) -> Option<Waiting> {
        let mut queue = cache.rcu.as_ref()?.lock(cpu);
        if queue.front()?.due <= time { queue.pop_front() } else { None }
    }

    /// Lets a sheaf wait; afterwards it goes to the barn of `node`, or is given up.
    pub(super) fn wait_for_rcu(&self, cpu: &M::Cpu, cache: &Cache<M>, sheaf: Sheaf, node: Option<NodeId>) {
        self.queue(cpu, cache, Content::Sheaf(sheaf, node));
    }
    fn queue(&self, cpu: &M::Cpu, cache: &Cache<M>, what: Content) {
        let due = Picos(cpu.now().0 + RCU_GRACE.0);
        let queue = cache.rcu.as_ref().expect("a release that collects frees for RCU");
        queue.lock(cpu).push_back(Waiting { due, what });
    }

    /// Waits until everything that waits now is due, and finishes it in order (kernel: rcu_barrier).
    pub(super) fn grace_period_of(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        while let Some(next) = self.next_waiting(cpu, cache, Picos(u64::MAX)) {
            cpu.delay(Picos(next.due.0.saturating_sub(cpu.now().0)));
            self.finish(cpu, cache, next);
        }
    }

    fn finish(&self, cpu: &M::Cpu, cache: &Cache<M>, waited: Waiting) {
        match waited.what {
            Content::Object(object) => self.free_to(cpu, cache, object),
            Content::Sheaf(sheaf, node) => {
                cache.cpus.with(cpu, |c| c.moved(-(sheaf.objects.len() as i64)));
                self.put_after_rcu(cpu, cache, sheaf, node);
            }
        }
    }
}
