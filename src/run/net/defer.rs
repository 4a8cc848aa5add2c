//! Deferred frees (since 5.19; kernel: skb_attempt_defer_free): what a receiver frees goes onto a list of the CPU that
//! allocated it, and is freed there in its next softirq.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::alloc::SlabAllocator;
use crate::machine::{Access, Addr, Cpu, Machine, SpinLock};
use crate::units::CpuId;

use super::skb::{Packet, Skb};
use super::{Context, Net};

/// What waits on a list.
#[derive(Clone, Copy)]
pub(super) enum Waiting {
    /// The receiver's reference to a TCP packet.
    Packet(Packet),
    /// A datagram.
    Skb(Skb),
}

/// A CPU's list (kernel: softnet_data.defer_list).
pub(super) struct Deferred<M: Machine> {
    list: SpinLock<M, Vec<Waiting>>,
    /// Length of the list, as it is read without the lock.
    len: AtomicUsize,
    addr: Addr,
}

impl<M: Machine> Deferred<M> {
    pub(super) fn new(machine: &M, cpu: CpuId) -> Self {
        let addr = machine.reserve(64, machine.topology().node_of(cpu));
        Deferred { list: SpinLock::new(machine.lock("defer_lock", addr), Vec::new()), len: AtomicUsize::new(0), addr }
    }
}

impl<M: Machine> Net<M> {
    /// Frees what a receiver has done with: on the list of its CPU while that has room, else here.
    pub(super) fn free_received<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, what: Waiting) {
        let (home, head) = match &what {
            Waiting::Packet(p) => (p.cpu, p.head),
            Waiting::Skb(s) => (s.cpu, s.head),
        };
        let limit = self.plan.rules.skb_defer as usize;
        let defers = match &what {
            Waiting::Packet(_) => limit > 0,
            Waiting::Skb(_) => limit > 0 && self.plan.rules.udp_defer,
        };
        if !defers || home == c.cpu.id() {
            return self.free_waiting(c, &what);
        }
        let of_home = &self.deferred[usize::from(home.0)];
        let mut list = of_home.list.lock(c.cpu);
        if list.len() >= limit {
            drop(list);
            return self.free_waiting(c, &what);
        }
        c.cpu.touch(head, Access::Write);
        list.push(what);
        of_home.len.store(list.len(), Ordering::Relaxed);
        // Half full: the CPU is asked to look now (kernel: an interrupt that raises its softirq).
        let ask = list.len() == limit / 2;
        drop(list);
        c.counts.deferred += 1;
        if ask && c.cpu.is_idle(home) {
            c.cpu.kick(home);
        }
    }

    fn free_waiting<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, what: &Waiting) {
        match what {
            Waiting::Packet(packet) => self.drop_shared(c, packet),
            Waiting::Skb(skb) => self.free_skb(c, skb),
        }
    }

    /// Frees what waits for this CPU (kernel: skb_defer_free_flush). At the beginning of its softirq work, and before it
    /// sleeps.
    pub(in crate::run) fn flush_deferred<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>) {
        let me = usize::from(c.cpu.id().0);
        let Some(own) = self.deferred.get(me) else { return };
        c.cpu.interact();
        c.cpu.touch(own.addr, Access::Read);
        if own.len.load(Ordering::Relaxed) > 0 {
            self.flush_list(c, me);
        }
    }

    pub(super) fn flush_list<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, cpu: usize) {
        let waiting = {
            let mut list = self.deferred[cpu].list.lock(c.cpu);
            self.deferred[cpu].len.store(0, Ordering::Relaxed);
            std::mem::take(&mut *list)
        };
        for what in &waiting {
            self.free_waiting(c, what);
        }
    }
}
