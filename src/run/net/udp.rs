//! UDP over loopback: the sender allocates and, in softirq on its own CPU, queues or drops; the receiver frees
//! (workloads.md §2.3).

use std::collections::VecDeque;

use crate::alloc::SlabAllocator;
use crate::machine::{Access, Cpu, Machine};
use crate::workload::SockId;
use crate::workload::net::FRAGMENT;

use super::defer::Waiting;
use super::skb::Skb;
use super::{Context, Net, Running, Step};

/// A socket end.
#[derive(Default)]
pub(super) struct Datagrams {
    queue: VecDeque<Skb>,
    /// Sum of truesize over the queue (kernel: sk_rmem_alloc).
    queued: u32,
    /// The task that sleeps in recv.
    reader: Option<u32>,
}

impl<M: Machine> Net<M> {
    /// Sends a datagram, in parts if it is longer than the loopback device's packets. The sender never sleeps.
    pub(super) fn udp_send<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        sock: SockId,
        bytes: u32,
    ) -> Step {
        let mut parts = Vec::with_capacity(1);
        let mut left = bytes;
        loop {
            let len = left.min(FRAGMENT);
            left -= len;
            let Some(skb) = self.make_skb(c, len, self.plan.rules.udp_buffer(len), true) else {
                c.counts.failed += 1;
                parts.iter().for_each(|skb| self.free_skb(c, skb));
                return Step::Retry;
            };
            // Protocol headers in front of the payload.
            c.cpu.touch(skb.data, Access::Write);
            parts.push(Skb { more: left > 0, ..skb });
            if left == 0 {
                break;
            }
        }
        c.counts.messages += 1;
        self.touch_sock(c, sock, 2);
        self.work(c.cpu, self.plan.rules.costs.udp.0);
        match self.plan.wire {
            None => self.udp_arrive(c, sock.peer(), &parts),
            Some(_) => self.transmit_udp(c, sock, parts[0]),
        }
        Step::Done
    }

    /// Softirq: queues a datagram and wakes the receiver, or drops it here.
    pub(super) fn udp_arrive<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        to: SockId,
        parts: &[Skb],
    ) {
        self.flush_deferred(c);
        let truesize: u32 = parts.iter().map(|p| p.truesize).sum();
        let mut guard = self.udp[to.0 as usize].lock(c.cpu);
        c.cpu.touch(self.addrs[to.0 as usize].plus(64), Access::Rmw);
        if !self.plan.rules.takes(guard.queued, truesize, self.plan.rcvbuf) {
            drop(guard);
            c.counts.dropped += 1;
            parts.iter().for_each(|skb| self.free_skb(c, skb));
            return;
        }
        guard.queued += truesize;
        guard.queue.extend(parts);
        let reader = guard.reader.take();
        drop(guard);
        if let Some(task) = reader {
            self.wake(c, task, self.plan.rules.sync);
        }
    }

    /// Receives one datagram, or sleeps.
    pub(super) fn udp_recv<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        sock: SockId,
    ) -> Step {
        let mut guard = self.udp[sock.0 as usize].lock(c.cpu);
        let Some(first) = guard.queue.pop_front() else {
            guard.reader = Some(task.id);
            return Step::Wait;
        };
        let mut parts = vec![first];
        while parts.last().is_some_and(|p| p.more) {
            parts.push(guard.queue.pop_front().expect("a datagram's parts are queued together"));
        }
        guard.queued -= parts.iter().map(|p| p.truesize).sum::<u32>();
        drop(guard);
        self.work(c.cpu, self.plan.rules.costs.udp.1);
        // The charge against the receive buffer is given back when the datagram is freed.
        c.cpu.interact();
        c.cpu.touch(self.addrs[sock.0 as usize].plus(64), Access::Rmw);
        for skb in parts {
            c.cpu.touch_span(skb.head, 192, Access::Read);
            self.copy_bytes(c, skb.data, skb.len, false);
            self.free_received(c, Waiting::Skb(skb));
        }
        Step::Done
    }

    pub(super) fn tear_down_udp<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>) {
        for sock in &self.udp {
            let queue = std::mem::take(&mut sock.lock(c.cpu).queue);
            queue.iter().for_each(|skb| self.free_skb(c, skb));
        }
    }
}
