//! TCP: packets, prequeue, acknowledgements, who frees (workloads.md §2.2).
//!
//! A socket's protocol state is owned by its task while that task is inside send or recv (kernel: lock_sock); whoever
//! delivers a packet meanwhile leaves it in the queue, and the owner works it off in its own context. If a reader sleeps in
//! recv, up to 4.13 the packet waits there too (the prequeue) and the reader is woken. Otherwise the deliverer does the
//! protocol work itself, in softirq on its own CPU, and frees what the packet acknowledges *there*: this rule decides how
//! many frees are remote.

use std::collections::VecDeque;

use crate::alloc::SlabAllocator;
use crate::machine::{Access, Cpu, Guard, Machine};
use crate::page::Pfn;
use crate::workload::SockId;

use super::defer::Waiting;
use super::skb::{CLONE, Packet};
use super::{Context, Net, Running, Step};

/// Offset of the reference count of the socket's file in what is reserved for a socket.
const FILE: u64 = 1472;

/// Protocol state of a socket end, with its owner or at rest in the socket.
#[derive(Default)]
pub(super) struct Protocol {
    /// Processed packets with bytes still to be copied out, and how far the first one is.
    pub(super) receive: VecDeque<Packet>,
    pub(super) consumed: u32,
    /// Sent and not yet acknowledged.
    pub(super) unacked: VecDeque<Packet>,
    pub(super) sent: u64,
    /// Of what was sent, what the other end had read when it last said so: the rest fills the window.
    pub(super) read_there: u64,
    pub(super) received: u64,
    /// What has been read of what was received.
    pub(super) read: u64,
    /// Full segments consumed since the last acknowledgement; of one-way traffic all packets.
    pub(super) full_segments: u32,
    /// What of a stream has been acknowledged.
    acknowledged: u64,
    /// The page that payload beyond the linear buffer goes to, and how much of it is used.
    pub(super) page: Option<(Pfn, u32)>,
}

/// A socket end.
pub(super) struct Sock {
    /// `None` while an owner is inside send or recv.
    protocol: Option<Box<Protocol>>,
    /// Prequeue and backlog: arrived, protocol work not done.
    queue: VecDeque<Packet>,
    /// The task that sleeps in recv, and the one that sleeps in send.
    reader: Option<u32>,
    writer: Option<u32>,
    /// Tasks that wait for the owner to leave.
    waiters: VecDeque<u32>,
}

impl Default for Sock {
    fn default() -> Self {
        Sock {
            protocol: Some(Box::default()),
            queue: VecDeque::new(),
            reader: None,
            writer: None,
            waiters: VecDeque::new(),
        }
    }
}

impl Protocol {
    fn under_way(&self) -> u64 {
        self.sent - self.read_there
    }
}

impl<M: Machine> Net<M> {
    /// Sends a message: segments of at most one MSS, each a packet of its own.
    pub(super) fn tcp_send<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        sock: SockId,
        bytes: u32,
    ) -> Step {
        self.use_file(c.cpu, self.addrs[sock.0 as usize].plus(FILE));
        let Some(mut protocol) = self.own(c, sock, task.id) else { return Step::Wait };
        // What is sent carries the acknowledgement of what has been received.
        protocol.full_segments = 0;
        while task.progress < bytes {
            let len = (bytes - task.progress).min(self.plan.rules.mss);
            if protocol.under_way() + u64::from(len) > self.plan.window {
                let mut guard = self.tcp[sock.0 as usize].lock(c.cpu);
                if guard.queue.is_empty() {
                    guard.writer = Some(task.id);
                    self.put_back(c, guard, protocol);
                    return Step::Wait;
                }
                let arrived = std::mem::take(&mut guard.queue);
                drop(guard);
                self.process(c, sock, &mut protocol, arrived);
                continue;
            }
            let Some(packet) = self.build(c, &mut protocol, len) else {
                c.counts.failed += 1;
                self.release(c, sock, protocol);
                return Step::Retry;
            };
            self.touch_sock(c, sock, 3);
            self.work(c.cpu, self.plan.rules.costs.tcp.0);
            // Loopback raises its softirq per packet, which runs when the device queue is let go: each segment arrives
            // before the next one is built.
            match self.plan.wire {
                None => self.deliver(c, sock.peer(), packet),
                Some(_) => self.transmit_tcp(c, sock, packet),
            }
            task.progress += len;
        }
        self.release(c, sock, protocol);
        Step::Done
    }

    /// Receives until `bytes` bytes are there; the task's progress counts them over repeated attempts.
    pub(super) fn tcp_recv<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        sock: SockId,
        bytes: u32,
        end: bool,
    ) -> Step {
        self.use_file(c.cpu, self.addrs[sock.0 as usize].plus(FILE));
        let Some(mut protocol) = self.own(c, sock, task.id) else { return Step::Wait };
        loop {
            task.progress += self.copy_out(c, sock, &mut protocol, bytes - task.progress, false);
            let satisfied = task.progress == bytes;
            if satisfied && end && protocol.full_segments == 1 && task.random.chance(self.plan.rules.odd_ack) {
                self.send_ack(c, sock, &mut protocol);
            }
            if satisfied && end {
                protocol.full_segments = 0;
            }
            let mut guard = self.tcp[sock.0 as usize].lock(c.cpu);
            if guard.queue.is_empty() {
                guard.reader = if satisfied { None } else { Some(task.id) };
                self.put_back(c, guard, protocol);
                return if satisfied { Step::Done } else { Step::Wait };
            }
            let arrived = std::mem::take(&mut guard.queue);
            drop(guard);
            self.process(c, sock, &mut protocol, arrived);
        }
    }

    /// Receives what is there, at least one byte and at most `bytes`.
    pub(super) fn tcp_read<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        sock: SockId,
        bytes: u32,
        stream: bool,
    ) -> Step {
        self.use_file(c.cpu, self.addrs[sock.0 as usize].plus(FILE));
        let Some(mut protocol) = self.own(c, sock, task.id) else { return Step::Wait };
        loop {
            let got = self.copy_out(c, sock, &mut protocol, bytes, true);
            let due = match stream {
                true => protocol.read - protocol.acknowledged >= self.plan.rules.stream_ack,
                false => protocol.full_segments >= 2,
            };
            if self.plan.rules.ack_per_call && due {
                (protocol.full_segments, protocol.acknowledged) = (0, protocol.read);
                self.send_ack(c, sock, &mut protocol);
            }
            if got > 0 {
                self.release(c, sock, protocol);
                return Step::Done;
            }
            let mut guard = self.tcp[sock.0 as usize].lock(c.cpu);
            if guard.queue.is_empty() {
                guard.reader = Some(task.id);
                self.put_back(c, guard, protocol);
                return Step::Wait;
            }
            let arrived = std::mem::take(&mut guard.queue);
            drop(guard);
            self.process(c, sock, &mut protocol, arrived);
        }
    }

    /// Copies out of processed packets, frees the finished ones, and acknowledges every second full segment; of one-way
    /// traffic every second packet.
    fn copy_out<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        sock: SockId,
        protocol: &mut Protocol,
        want: u32,
        one_way: bool,
    ) -> u32 {
        let mut got = 0;
        while got < want
            && let Some(packet) = protocol.receive.front().copied()
        {
            let n = (packet.len - protocol.consumed).min(want - got);
            self.copy(c, &packet, protocol.consumed, n, false);
            got += n;
            protocol.consumed += n;
            protocol.read += u64::from(n);
            if protocol.consumed == packet.len {
                protocol.receive.pop_front();
                protocol.consumed = 0;
                self.free_received(c, Waiting::Packet(packet));
                if one_way || packet.len == self.plan.rules.mss {
                    protocol.full_segments += 1;
                }
                if protocol.full_segments == 2 && !(one_way && self.plan.rules.ack_per_call) {
                    protocol.full_segments = 0;
                    self.send_ack(c, sock, protocol);
                }
            }
        }
        got
    }

    /// Makes the protocol state the caller's own and works off what is queued (kernel: lock_sock, and the prequeue).
    /// `None`: another task is inside, and wakes the caller when it leaves.
    fn own<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        sock: SockId,
        task: u32,
    ) -> Option<Box<Protocol>> {
        let mut guard = self.tcp[sock.0 as usize].lock(c.cpu);
        guard.reader = guard.reader.filter(|r| *r != task);
        guard.writer = guard.writer.filter(|w| *w != task);
        let Some(mut protocol) = guard.protocol.take() else {
            guard.waiters.push_back(task);
            return None;
        };
        let arrived = std::mem::take(&mut guard.queue);
        drop(guard);
        self.process(c, sock, &mut protocol, arrived);
        Some(protocol)
    }

    /// Gives the state back, working off what has arrived meanwhile (kernel: release_sock, and the backlog).
    fn release<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        sock: SockId,
        protocol: Box<Protocol>,
    ) {
        let mut protocol = protocol;
        loop {
            let mut guard = self.tcp[sock.0 as usize].lock(c.cpu);
            if guard.queue.is_empty() {
                return self.put_back(c, guard, protocol);
            }
            let arrived = std::mem::take(&mut guard.queue);
            drop(guard);
            self.process(c, sock, &mut protocol, arrived);
        }
    }

    /// Puts the state to rest and wakes who waits for something that is there now: the socket, room to send, data that
    /// another task than the reader has worked off.
    fn put_back<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        guard: Guard<'_, M, Sock>,
        protocol: Box<Protocol>,
    ) {
        let mut guard = guard;
        let inside = guard.waiters.pop_front();
        // Room is worth a wake-up when a third of the window is free (kernel: sk_stream_write_space).
        let room = protocol.under_way() <= self.plan.window / 3 * 2;
        let writer = if room { guard.writer.take() } else { None };
        guard.protocol = Some(protocol);
        drop(guard);
        for task in inside.into_iter().chain(writer) {
            self.wake(c, task, self.plan.rules.sync);
        }
    }

    fn process<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        sock: SockId,
        protocol: &mut Protocol,
        arrived: VecDeque<Packet>,
    ) {
        for packet in arrived {
            self.receive(c, sock, protocol, packet);
        }
    }

    /// Protocol work for one packet on the CPU that does it: frees what it acknowledges, queues its data.
    fn receive<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        sock: SockId,
        protocol: &mut Protocol,
        packet: Packet,
    ) {
        let cpu = c.cpu;
        // What travels is the clone; an acknowledgement has none.
        let header = packet.head.plus(if packet.fclone { CLONE } else { 0 });
        cpu.grouped(|cpu| {
            cpu.touch_span(header, 192, Access::Read);
            cpu.touch_span(packet.data, 128, Access::Read);
        });
        self.touch_sock(c, sock, 3);
        let costs = &self.plan.rules.costs;
        self.work(cpu, if packet.len == 0 { costs.ack.1 } else { costs.tcp.1 });
        protocol.read_there = protocol.read_there.max(packet.read);
        while protocol.unacked.front().is_some_and(|p| p.end <= packet.ack) {
            let sent = protocol.unacked.pop_front().expect("just seen");
            self.drop_shared(c, &sent);
        }
        if packet.len == 0 {
            self.free_packet(c, &packet);
        } else {
            protocol.received += u64::from(packet.len);
            protocol.receive.push_back(packet);
        }
    }

    /// Hands a packet to the other end: to its owner's context if that is inside the socket, to its reader's if that sleeps
    /// and the era has a prequeue, else works on it here.
    pub(super) fn deliver<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        to: SockId,
        packet: Packet,
    ) {
        self.flush_deferred(c);
        let mut guard = self.tcp[to.0 as usize].lock(c.cpu);
        if guard.protocol.is_none() || (self.plan.rules.prequeue && guard.reader.is_some()) {
            let wakes = guard.reader.filter(|_| guard.queue.is_empty());
            guard.queue.push_back(packet);
            drop(guard);
            if let Some(task) = wakes {
                self.wake(c, task, self.plan.rules.sync);
            }
            return;
        }
        c.counts.direct += 1;
        let mut protocol = guard.protocol.take().expect("checked above");
        self.receive(c, to, &mut protocol, packet);
        let reader = if packet.len > 0 { guard.reader.take() } else { None };
        self.put_back(c, guard, protocol);
        if let Some(task) = reader {
            self.wake(c, task, self.plan.rules.sync);
        }
    }

    pub(super) fn tear_down_tcp<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>) {
        // Every data packet under way is in its sender's unacked list exactly once; its other reference is wherever it is.
        for sock in &self.tcp {
            let (queue, receive) = {
                let mut guard = sock.lock(c.cpu);
                let queue = std::mem::take(&mut guard.queue);
                let protocol = guard.protocol.as_mut().expect("no task is inside");
                (queue, std::mem::take(&mut protocol.receive))
            };
            for packet in queue.iter().chain(&receive) {
                self.drop_shared(c, packet);
            }
        }
        for sock in &self.tcp {
            let (unacked, page) = {
                let mut guard = sock.lock(c.cpu);
                let protocol = guard.protocol.as_mut().expect("no task is inside");
                (std::mem::take(&mut protocol.unacked), protocol.page.take())
            };
            for packet in &unacked {
                self.drop_shared(c, packet);
            }
            if let Some((pfn, _)) = page {
                self.put_frag(c, pfn);
            }
        }
    }
}
