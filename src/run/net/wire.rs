//! The two-machine form: a network card whose interrupts some CPUs take (workloads.md §6). Sending allocates on the
//! application's CPU; the interrupt CPU notices that it was sent, allocates what is received (a ring of buffers, filled up
//! in batches), and the application frees that: two opposite streams of remote frees.
//!
//! The other machine is a time: every request is answered after the same round trip.

use std::collections::VecDeque;

use crate::alloc::SlabAllocator;
use crate::machine::{Cpu, Event, Machine};
use crate::units::{CpuId, Picos};
use crate::workload::SockId;
use crate::workload::net::Wire;

use super::skb::{MAX_FRAGS, Packet, Skb};
use super::{Context, Net};

/// A request under way.
#[derive(Clone, Copy)]
struct Request {
    /// When its answer is there.
    at: Picos,
    sock: SockId,
    /// What was sent, until its transmission is noticed.
    sent: Option<Sent>,
    /// Stream position that the answer acknowledges.
    end: u64,
}

/// What a card holds of a request.
#[derive(Clone, Copy)]
enum Sent {
    /// The clone of a TCP packet.
    Tcp(Packet),
    /// A datagram.
    Udp(Skb),
}

/// A queue of the network card.
#[derive(Default)]
pub(super) struct Nic {
    requests: VecDeque<Request>,
    /// Sent, answered, and not yet noticed to be sent.
    late: Vec<Sent>,
    /// Buffers ready for reception, and how many are missing.
    ring: VecDeque<Skb>,
    missing: u32,
    filled: bool,
}

impl<M: Machine> Net<M> {
    /// The queue whose interrupts `cpu` takes, with the time between two.
    pub(in crate::run) fn interrupts(&self, cpu: CpuId) -> Option<(usize, Picos)> {
        let wire = self.plan.wire.as_ref()?;
        Some((wire.irq_cpus.iter().position(|c| *c == cpu)?, wire.moderation))
    }

    pub(super) fn transmit_tcp<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        sock: SockId,
        packet: Packet,
    ) {
        self.transmit(c, sock, Sent::Tcp(packet), packet.end);
    }

    pub(super) fn transmit_udp<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        sock: SockId,
        skb: Skb,
    ) {
        self.transmit(c, sock, Sent::Udp(skb), 0);
    }

    fn transmit<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, sock: SockId, sent: Sent, end: u64) {
        let mut nic = self.nics[sock.0 as usize / 2 % self.nics.len()].lock(c.cpu);
        let at = Picos(c.cpu.now().0 + self.wire().round_trip.0);
        nic.requests.push_back(Request { at, sock, sent: Some(sent), end });
    }

    /// An interrupt: notices what was sent, hands up what has arrived, fills the ring.
    pub(in crate::run) fn interrupt<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, queue: usize) {
        let now = c.cpu.now();
        let (answered, late, unfilled) = {
            let mut nic = self.nics[queue].lock(c.cpu);
            let due = nic.requests.iter().take_while(|r| r.at <= now).count();
            let answered: Vec<Request> = nic.requests.drain(..due).collect();
            (answered, std::mem::take(&mut nic.late), !std::mem::replace(&mut nic.filled, true))
        };
        if unfilled {
            self.fill(c, queue, self.wire().ring);
        }
        if answered.is_empty() && late.is_empty() {
            return;
        }
        c.cpu.spend(Event::Syscall);
        self.flush_deferred(c);
        late.iter().for_each(|sent| self.complete(c, sent));
        for mut request in answered {
            if let Some(sent) = request.sent.take() {
                let draw = c.cpu.random(1 << 20) as f64 / f64::from(1 << 20);
                if matches!(sent, Sent::Tcp(_)) && draw < self.wire().late_completion {
                    self.nics[queue].lock(c.cpu).late.push(sent);
                } else {
                    self.complete(c, &sent);
                }
            }
            self.answer(c, queue, request);
        }
        let missing = self.nics[queue].lock(c.cpu).missing;
        if missing >= self.wire().refill {
            self.fill(c, queue, missing);
        }
    }

    /// Transmission is noticed: the card's reference goes.
    fn complete<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, sent: &Sent) {
        match sent {
            Sent::Tcp(packet) => self.drop_shared(c, packet),
            Sent::Udp(skb) => self.free_skb(c, skb),
        }
    }

    /// Hands an answer up in a buffer of the ring. Without one it is lost, and comes again after a round trip.
    fn answer<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, queue: usize, request: Request) {
        let skb = {
            let mut nic = self.nics[queue].lock(c.cpu);
            let skb = nic.ring.pop_front();
            match skb {
                Some(_) => nic.missing += 1,
                None => {
                    let at = Picos(c.cpu.now().0 + self.wire().round_trip.0);
                    nic.requests.push_back(Request { at, ..request });
                }
            }
            skb
        };
        let Some(skb) = skb else {
            c.counts.failed += 1;
            let missing = self.nics[queue].lock(c.cpu).missing;
            return self.fill(c, queue, missing);
        };
        self.work(c.cpu, self.plan.rules.costs.irq);
        let len = self.wire().reply;
        if !self.tcp.is_empty() {
            let packet = Packet {
                head: skb.head,
                data: skb.data,
                frags: [(crate::page::Pfn(0), 0, 0); MAX_FRAGS],
                nr_frags: 0,
                fclone: false,
                small: skb.small,
                len,
                linear: len,
                ack: request.end,
                read: request.end,
                end: 0,
                cpu: skb.cpu,
            };
            self.deliver(c, request.sock, packet);
        } else {
            self.udp_arrive(c, request.sock, &[Skb { len, ..skb }]);
        }
    }

    /// Puts `count` buffers into the ring.
    fn fill<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, queue: usize, count: u32) {
        let bytes = self.wire().rx_bytes;
        let mut fresh = VecDeque::new();
        while fresh.len() < count as usize
            && let Some(skb) = self.make_skb(c, 0, bytes, false)
        {
            fresh.push_back(skb);
        }
        let mut nic = self.nics[queue].lock(c.cpu);
        nic.missing = count - fresh.len() as u32;
        nic.ring.append(&mut fresh);
    }

    fn wire(&self) -> &Wire {
        self.plan.wire.as_ref().expect("a network card belongs to a wire")
    }

    pub(super) fn tear_down_wire<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>) {
        for nic in &self.nics {
            let nic = std::mem::take(&mut *nic.lock(c.cpu));
            nic.requests.iter().filter_map(|r| r.sent.as_ref()).chain(&nic.late).for_each(|s| self.complete(c, s));
            nic.ring.iter().for_each(|skb| self.free_skb(c, skb));
        }
    }
}
