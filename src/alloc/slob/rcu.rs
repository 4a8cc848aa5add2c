//! Blocks of type-safe caches on their way back (kernel: kmem_rcu_free). The footer behind the object holds the queue's
//! link and the size; the block is used until the grace period is over.

use std::collections::VecDeque;

use super::Slob;
use super::cache::RCU_FOOTER;
use crate::machine::{Access, Addr, Cpu, Machine};
use crate::spec::CacheId;
use crate::units::{Picos, RCU_GRACE};

/// Callbacks run at once after it.
const RCU_BATCH: usize = 10;

/// What one CPU has freed, oldest first: object, cache, and the time its grace period is over.
pub(super) type Waiting = VecDeque<(Addr, CacheId, Picos)>;

impl<M: Machine> Slob<'_, M> {
    /// Queues an object until no reader can still look at it.
    pub(super) fn free_later(&self, cpu: &M::Cpu, id: CacheId, addr: Addr) {
        cpu.touch(addr.plus(self.caches[id.0 as usize].size - RCU_FOOTER), Access::Write);
        let due = Picos(cpu.now().0 + RCU_GRACE.0);
        self.waiting.with(cpu, |w| w.push_back((addr, id, due)));
        self.free_waited(cpu, false);
    }

    /// Frees objects of this CPU whose grace period is over: some of them, or `all`, when it has been waited for. No task
    /// holds an RCU read section between two operations, so only the time has to pass.
    pub(super) fn free_waited(&self, cpu: &M::Cpu, all: bool) {
        for _ in 0..if all { usize::MAX } else { RCU_BATCH } {
            let over = self.waiting.with(cpu, |w| match w.front() {
                Some((_, _, due)) if all || *due <= cpu.now() => w.pop_front(),
                _ => None,
            });
            let Some((addr, id, _)) = over else { return };
            cpu.touch(addr.plus(self.caches[id.0 as usize].size - RCU_FOOTER), Access::Read);
            self.free_now(cpu, id, addr);
        }
    }

    /// Waits for the grace period of everything this CPU has freed, and frees it (kernel: rcu_barrier).
    pub(super) fn await_grace(&self, cpu: &M::Cpu) {
        if let Some((_, _, due)) = self.waiting.with(cpu, |w| w.back().copied()) {
            cpu.delay(Picos(due.0.saturating_sub(cpu.now().0)));
            self.free_waited(cpu, true);
        }
    }
}
