//! Slabs of type-safe caches on their way back (kernel: kmem_rcu_free). Their objects are reused at once; their pages wait
//! until no reader can still look at them. Management outside the slab is nobody's to look at, and goes back at once.

use std::collections::VecDeque;

use super::Slab;
use crate::machine::{Cpu, Machine};
use crate::page::{Page, Pfn};
use crate::units::{Order, Picos, RCU_GRACE};

/// Slabs returned at once after it.
const BATCH: usize = 10;

/// What one CPU has destroyed, oldest first, and when its grace period is over.
pub(super) type Waiting = VecDeque<(Picos, Pfn, Order)>;

impl<M: Machine> Slab<'_, M> {
    /// Returns a slab's pages after a grace period.
    pub(super) fn return_later(&self, cpu: &M::Cpu, head: Pfn, order: Order) {
        let due = Picos(cpu.now().0 + RCU_GRACE.0);
        self.waiting.with(cpu, |w| w.push_back((due, head, order)));
        self.return_waited(cpu, false);
    }

    /// Returns pages of this CPU whose grace period is over, oldest first: some of them, or `all`, when it has been waited
    /// for. No task holds an RCU read section between two operations, so only the time has to pass. Looked at when slabs of
    /// type-safe caches come and go, and by the reaper; there is no timer here.
    pub(super) fn return_waited(&self, cpu: &M::Cpu, all: bool) {
        for _ in 0..if all { usize::MAX } else { BATCH } {
            let over = self.waiting.with(cpu, |w| match w.front() {
                Some((due, ..)) if all || *due <= cpu.now() => w.pop_front(),
                _ => None,
            });
            let Some((_, head, order)) = over else { return };
            self.pages.free_pages(cpu, Page::of(head, order));
        }
    }

    /// Waits for the grace periods of everything that waits on any CPU, and returns it (kernel: rcu_barrier).
    pub(super) fn await_grace(&self, cpu: &M::Cpu) {
        for target in self.pages.machine().topology().cpu_ids() {
            cpu.call_on(target, &|c| {
                if let Some((due, ..)) = self.waiting.with(c, |w| w.back().copied()) {
                    c.delay(Picos(due.0.saturating_sub(c.now().0)));
                    self.return_waited(c, true);
                }
            });
        }
    }
}
