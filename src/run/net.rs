//! TCP over loopback as the executor does it: packets, prequeue, acknowledgements, who frees (workloads.md §2.2).
//!
//! A socket's protocol state is owned by its task while that task is inside send or recv (kernel: lock_sock); whoever
//! delivers a packet meanwhile leaves it in the queue, and the owner works it off in its own context. If the owner sleeps
//! in recv, the packet waits there too (the prequeue) and the owner is woken. Otherwise the deliverer does the protocol
//! work itself, in softirq on its own CPU, and frees what the packet acknowledges *there*: this rule decides how many
//! frees are remote.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::alloc::SlabAllocator;
use crate::machine::{Access, Addr, Cpu, Event, Machine, SpinLock};
use crate::page::{Asker, PageFlags, Pages, Pfn};
use crate::spec::{CacheId, Object, Request};
use crate::units::{CpuId, Order, PAGE_SIZE};
use crate::workload::net::Rules;
use crate::workload::{NativeWork, SockId};

use super::measured;
use super::sched::{Running, Scheduler, Woke};

/// Offset of the clone in a pair of packet headers.
const CLONE: u64 = 232;
/// Offset of the pair's share count (kernel: fclone_ref, 4 bytes behind both headers): the last whole word inside the 468
/// bytes of the object, on the same line. A word that reached beyond would overwrite SLOB's next block.
const SHARE_COUNT: u64 = 456;
/// Offset of the shared info in a 4088-byte buffer: its last 312 bytes.
const SHARED_INFO: u64 = 3776;
/// Most page fragments of one segment: 16384 − 3504 bytes over pages of which the first is partly used.
const MAX_FRAGS: usize = 5;

/// A packet: header object, linear buffer, page fragments. A data packet is shared by sender and receiver.
#[derive(Clone, Copy)]
pub(super) struct Packet {
    head: Addr,
    data: Addr,
    frags: [(Pfn, u16, u16); MAX_FRAGS],
    nr_frags: u8,
    /// Payload bytes; 0 for a pure acknowledgement.
    len: u32,
    /// Everything up to here has reached the packet's sender.
    ack: u64,
    /// Stream position after its last byte.
    end: u64,
    /// CPU that allocated it.
    cpu: CpuId,
}

/// Protocol state of a socket end, with its owner or at rest in the socket.
#[derive(Default)]
struct Protocol {
    /// Processed packets with bytes still to be copied out, and how far the first one is.
    receive: VecDeque<Packet>,
    consumed: u32,
    /// Sent and not yet acknowledged.
    unacked: VecDeque<Packet>,
    sent: u64,
    received: u64,
    /// Full segments consumed since the last acknowledgement.
    full_segments: u32,
    /// The page that payload beyond the linear buffer goes to, and how much of it is used.
    page: Option<(Pfn, u32)>,
}

/// A socket end.
#[derive(Default)]
struct Sock {
    /// `None` while the owner is inside send or recv.
    protocol: Option<Box<Protocol>>,
    /// Prequeue and backlog: arrived, protocol work not done.
    queue: VecDeque<Packet>,
    /// The owner sleeps in recv.
    asleep: bool,
}

/// Event counts of the network layer, per CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NetCounts {
    pub(super) data_packets: u64,
    pub(super) acks: u64,
    pub(super) frag_pages: u64,
    pub(super) frees: u64,
    pub(super) remote_frees: u64,
    pub(super) bytes_copied: u64,
    pub(super) direct: u64,
    pub(super) failed: u64,
    pub(super) wakes_local: u64,
    pub(super) wakes_remote: u64,
}

/// All sockets of a run.
pub(super) struct Net<M: Machine> {
    socks: Vec<SpinLock<M, Sock>>,
    addrs: Vec<Addr>,
    owners: Vec<u32>,
    pub(super) rules: Rules,
    fclone: CacheId,
    head: CacheId,
    native_work: NativeWork,
    simulated: bool,
    /// Fragment pages under way, for reports: not modelled, so not charged.
    frag_pages: AtomicI64,
}

/// What became of a receive.
pub(super) enum Received {
    Done,
    /// The task must sleep; the receive is repeated after the wake-up.
    Wait,
}

/// What a step of the network needs: who runs, the allocator and its pages, the scheduler, the counts.
pub(super) struct Context<'a, 'p, M: Machine, A: SlabAllocator<'p, M>> {
    pub(super) cpu: &'a M::Cpu,
    pub(super) alloc: &'a A,
    pub(super) pages: &'p Pages<'p, M>,
    pub(super) sched: &'a Scheduler<M>,
    pub(super) counts: &'a mut NetCounts,
}

impl<M: Machine> Net<M> {
    pub(super) fn new(machine: &M, plan: &crate::workload::Plan, caches: &[CacheId], simulated: bool) -> Self {
        let node = |i: u32| {
            let nodes = machine.topology().nodes() as u32;
            crate::units::NodeId((i / 2 % nodes) as u16)
        };
        // struct tcp_sock: about 1.5 KiB; the lock is in its first lines.
        let addrs: Vec<Addr> = (0..plan.socks).map(|i| machine.reserve(1536, node(i))).collect();
        Net {
            socks: addrs
                .iter()
                .map(|a| {
                    SpinLock::new(
                        machine.lock("sk_lock", *a),
                        Sock { protocol: Some(Box::default()), ..Sock::default() },
                    )
                })
                .collect(),
            addrs,
            owners: plan.sock_owner.clone(),
            rules: plan.net.clone(),
            fclone: caches.get(plan.net.fclone_cache as usize).copied().unwrap_or(CacheId(0)),
            head: caches.get(plan.net.head_cache as usize).copied().unwrap_or(CacheId(0)),
            native_work: plan.native_work,
            simulated,
            frag_pages: AtomicI64::new(0),
        }
    }

    /// Sends a message: segments of at most one MSS, each a packet of its own. `false`: memory is out, `sent` bytes are done.
    pub(super) fn send<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        sock: SockId,
        bytes: u32,
        done: &mut u32,
        resumed: bool,
    ) -> bool {
        if !resumed {
            c.cpu.spend(Event::Syscall);
        }
        let mut protocol = self.own(c, sock);
        while *done < bytes {
            let len = (bytes - *done).min(self.rules.mss);
            let Some(packet) = self.build(c, &mut protocol, len) else {
                c.counts.failed += 1;
                self.release(c, sock, protocol);
                return false;
            };
            self.touch_sock(c, sock, 3);
            self.work(c.cpu, self.rules.tx);
            // Loopback raises its softirq per packet, which runs when the device queue is let go: each segment arrives
            // before the next one is built.
            self.deliver(c, sock.peer(), packet);
            *done += len;
        }
        self.release(c, sock, protocol);
        true
    }

    /// Receives until `bytes` bytes are there; `done` counts them over repeated attempts.
    pub(super) fn recv<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        sock: SockId,
        bytes: u32,
        end: bool,
    ) -> Received {
        if !task.resumed {
            c.cpu.spend(Event::Syscall);
        }
        let mut protocol = self.own(c, sock);
        loop {
            task.progress += self.copy_out(c, sock, &mut protocol, bytes - task.progress);
            let satisfied = task.progress == bytes;
            if satisfied && end && protocol.full_segments == 1 && task.random.chance(self.rules.odd_ack) {
                self.send_ack(c, sock, &mut protocol);
            }
            if satisfied && end {
                protocol.full_segments = 0;
            }
            let mut guard = self.socks[sock.0 as usize].lock(c.cpu);
            if guard.queue.is_empty() {
                guard.protocol = Some(protocol);
                guard.asleep = !satisfied;
                return if satisfied { Received::Done } else { Received::Wait };
            }
            let arrived = std::mem::take(&mut guard.queue);
            drop(guard);
            self.process(c, sock, &mut protocol, arrived);
        }
    }

    /// Copies out of processed packets, frees the finished ones, and acknowledges every second full segment.
    fn copy_out<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        sock: SockId,
        protocol: &mut Protocol,
        want: u32,
    ) -> u32 {
        let mut got = 0;
        while got < want
            && let Some(packet) = protocol.receive.front().copied()
        {
            let n = (packet.len - protocol.consumed).min(want - got);
            self.copy(c, &packet, protocol.consumed, n, false);
            got += n;
            protocol.consumed += n;
            if protocol.consumed == packet.len {
                protocol.receive.pop_front();
                protocol.consumed = 0;
                self.drop_shared(c, &packet);
                if packet.len == self.rules.mss {
                    protocol.full_segments += 1;
                }
                if protocol.full_segments == 2 {
                    protocol.full_segments = 0;
                    self.send_ack(c, sock, protocol);
                }
            }
        }
        got
    }

    /// Makes the protocol state the caller's own and works off what is queued (kernel: lock_sock, and the prequeue).
    fn own<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, sock: SockId) -> Box<Protocol> {
        let mut guard = self.socks[sock.0 as usize].lock(c.cpu);
        guard.asleep = false;
        let mut protocol = guard.protocol.take().expect("one owner at a time");
        let arrived = std::mem::take(&mut guard.queue);
        drop(guard);
        self.process(c, sock, &mut protocol, arrived);
        protocol
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
            let mut guard = self.socks[sock.0 as usize].lock(c.cpu);
            if guard.queue.is_empty() {
                guard.protocol = Some(protocol);
                return;
            }
            let arrived = std::mem::take(&mut guard.queue);
            drop(guard);
            self.process(c, sock, &mut protocol, arrived);
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
        let header = packet.head.plus(if packet.len == 0 { 0 } else { CLONE });
        cpu.grouped(|cpu| {
            cpu.touch_span(header, 192, Access::Read);
            cpu.touch_span(packet.data, 128, Access::Read);
        });
        self.touch_sock(c, sock, 3);
        self.work(cpu, if packet.len == 0 { self.rules.ack_rx } else { self.rules.rx });
        while protocol.unacked.front().is_some_and(|p| p.end <= packet.ack) {
            let sent = protocol.unacked.pop_front().expect("just seen");
            self.drop_shared(c, &sent);
        }
        if packet.len == 0 {
            self.free(c, &packet);
        } else {
            protocol.received += u64::from(packet.len);
            protocol.receive.push_back(packet);
        }
    }

    /// Hands a packet to the other end: to its owner's context if that is inside the socket, else works on it here.
    fn deliver<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, to: SockId, packet: Packet) {
        let mut guard = self.socks[to.0 as usize].lock(c.cpu);
        if guard.protocol.is_none() || guard.asleep {
            let wakes = guard.asleep && guard.queue.is_empty();
            guard.queue.push_back(packet);
            drop(guard);
            if wakes {
                match c.sched.wake(c.cpu, self.owners[to.0 as usize]) {
                    Woke::Local => c.counts.wakes_local += 1,
                    Woke::Remote => c.counts.wakes_remote += 1,
                    Woke::Awake => {}
                }
            }
            return;
        }
        c.counts.direct += 1;
        let mut protocol = guard.protocol.take().expect("checked above");
        self.receive(c, to, &mut protocol, packet);
        guard.protocol = Some(protocol);
    }

    /// Allocates a data packet, copies its payload in and keeps it as unacknowledged. `None`: memory is out.
    fn build<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        protocol: &mut Protocol,
        len: u32,
    ) -> Option<Packet> {
        let head = measured::alloc(c.alloc, c.cpu, self.fclone, Request::default())?.addr();
        let Some(data) = measured::kmalloc(c.alloc, c.cpu, self.rules.data_bytes, Request::default()) else {
            measured::free(c.alloc, c.cpu, self.fclone, Object::at(head));
            return None;
        };
        let mut packet = Packet {
            head,
            data: data.addr(),
            frags: [(Pfn(0), 0, 0); MAX_FRAGS],
            nr_frags: 0,
            len,
            ack: protocol.received,
            end: protocol.sent + u64::from(len),
            cpu: c.cpu.id(),
        };
        // The header's lines, the shared info at the buffer's end, the protocol headers in front of the payload.
        c.cpu.touch_span(head, 232, Access::Write);
        c.cpu.touch(packet.data.plus(SHARED_INFO), Access::Write);
        c.cpu.touch_span(packet.data, 128, Access::Write);
        if !self.add_fragments(c, protocol, &mut packet) {
            self.free(c, &packet);
            return None;
        }
        self.copy(c, &packet, 0, len, true);
        // The clone lives in the second half of the header object: two references now.
        c.cpu.touch_span(head.plus(CLONE), 232, Access::Write);
        c.pages.arena().poke(head.plus(SHARE_COUNT), 2);
        c.cpu.touch(head.plus(SHARE_COUNT), Access::Rmw);
        c.cpu.touch(packet.data.plus(SHARED_INFO), Access::Rmw);
        protocol.sent = packet.end;
        protocol.unacked.push_back(packet);
        c.counts.data_packets += 1;
        Some(packet)
    }

    /// Page fragments for what the linear buffer does not hold: parts of the socket's page, a new one when it is full.
    fn add_fragments<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        protocol: &mut Protocol,
        packet: &mut Packet,
    ) -> bool {
        let mut left = packet.len.saturating_sub(self.rules.linear);
        while left > 0 {
            let (pfn, used) = match protocol.page.take() {
                Some(page) => page,
                None => {
                    let flags = PageFlags { asker: Asker::Fragments, ..PageFlags::default() };
                    let Some(page) = c.pages.alloc_pages(c.cpu, Order(0), None, flags) else {
                        return false;
                    };
                    c.counts.frag_pages += 1;
                    self.frag_pages.fetch_add(1, Ordering::Relaxed);
                    (page.into_pfn(), 0)
                }
            };
            let n = left.min(PAGE_SIZE as u32 - used);
            packet.frags[usize::from(packet.nr_frags)] = (pfn, used as u16, n as u16);
            packet.nr_frags += 1;
            left -= n;
            if used + n < PAGE_SIZE as u32 {
                // The socket keeps its own reference to a page with room.
                c.pages.get_page(c.cpu, pfn);
                protocol.page = Some((pfn, used + n));
            }
        }
        true
    }

    /// Copies `n` payload bytes from `offset` on, in or out.
    fn copy<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        p: &Packet,
        offset: u32,
        n: u32,
        write: bool,
    ) {
        c.counts.bytes_copied += u64::from(n);
        let (arena, mut at, end) = (c.pages.arena(), offset, offset + n);
        if at < self.rules.linear.min(end) {
            let part = self.rules.linear.min(end) - at;
            // Payload begins behind the room for headers.
            c.cpu.copy(arena, p.data.plus(272 + u64::from(at)), u64::from(part), write);
            at += part;
        }
        let mut start = self.rules.linear;
        for (pfn, off, len) in &p.frags[..usize::from(p.nr_frags)] {
            let (from, to) = (at.max(start), end.min(start + u32::from(*len)));
            if from < to {
                let addr = c.pages.addr_of(*pfn).plus(u64::from(*off) + u64::from(from - start));
                c.cpu.copy(arena, addr, u64::from(to - from), write);
            }
            start += u32::from(*len);
        }
    }

    /// Sends a pure acknowledgement: a plain header and a small buffer, freed by whoever processes it.
    fn send_ack<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        sock: SockId,
        protocol: &mut Protocol,
    ) {
        let Some(head) = measured::alloc(c.alloc, c.cpu, self.head, Request::default()) else {
            c.counts.failed += 1;
            return;
        };
        let Some(data) = measured::kmalloc(c.alloc, c.cpu, self.rules.ack_bytes, Request::default()) else {
            measured::free(c.alloc, c.cpu, self.head, head);
            c.counts.failed += 1;
            return;
        };
        c.cpu.touch_span(head.addr(), 232, Access::Write);
        c.cpu.touch_span(data.addr(), 128, Access::Write);
        self.work(c.cpu, self.rules.ack_tx);
        let packet = Packet {
            head: head.addr(),
            data: data.addr(),
            frags: [(Pfn(0), 0, 0); MAX_FRAGS],
            nr_frags: 0,
            len: 0,
            ack: protocol.received,
            end: 0,
            cpu: c.cpu.id(),
        };
        c.counts.acks += 1;
        self.deliver(c, sock.peer(), packet);
    }

    /// Drops one of the two references to a data packet; the last one frees it.
    fn drop_shared<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, packet: &Packet) {
        let left = c.pages.arena().fetch_add(c.cpu, packet.head.plus(SHARE_COUNT), -1);
        c.cpu.touch(packet.data.plus(SHARED_INFO), Access::Rmw);
        if left == 1 {
            self.free(c, packet);
        }
    }

    fn free<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, packet: &Packet) {
        for (pfn, ..) in &packet.frags[..usize::from(packet.nr_frags)] {
            self.put_page(c, *pfn);
        }
        measured::kfree(c.alloc, c.cpu, Object::at(packet.data));
        let cache = if packet.len == 0 { self.head } else { self.fclone };
        measured::free(c.alloc, c.cpu, cache, Object::at(packet.head));
        c.counts.frees += 2;
        c.counts.remote_frees += 2 * u64::from(packet.cpu != c.cpu.id());
    }

    /// Frees whatever is still under way, so that nothing is leaked. On one CPU, after the run.
    pub(super) fn tear_down<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>) {
        // Every data packet under way is in its sender's unacked list exactly once; its other reference is wherever it is.
        for sock in &self.socks {
            let (queue, receive) = {
                let mut guard = sock.lock(c.cpu);
                let queue = std::mem::take(&mut guard.queue);
                let protocol = guard.protocol.as_mut().expect("no task is inside");
                (queue, std::mem::take(&mut protocol.receive))
            };
            for packet in queue.iter().chain(&receive) {
                if packet.len == 0 { self.free(c, packet) } else { self.drop_shared(c, packet) }
            }
        }
        for sock in &self.socks {
            let (unacked, page) = {
                let mut guard = sock.lock(c.cpu);
                let protocol = guard.protocol.as_mut().expect("no task is inside");
                (std::mem::take(&mut protocol.unacked), protocol.page.take())
            };
            for packet in &unacked {
                self.drop_shared(c, packet);
            }
            if let Some((pfn, _)) = page {
                self.put_page(c, pfn);
            }
        }
    }

    fn put_page<'p, A: SlabAllocator<'p, M>>(&self, c: &Context<'_, 'p, M, A>, pfn: Pfn) {
        if c.pages.put_page(c.cpu, pfn) {
            self.frag_pages.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Fragment pages under way. While CPUs run, a sample.
    pub(super) fn frag_pages(&self) -> u64 {
        self.frag_pages.load(Ordering::Relaxed).max(0) as u64
    }

    fn touch_sock<'p, A: SlabAllocator<'p, M>>(&self, c: &Context<'_, 'p, M, A>, sock: SockId, lines: u64) {
        let at = self.addrs[sock.0 as usize];
        c.cpu.grouped(|cpu| (1..=lines).for_each(|i| cpu.touch(at.plus(64 * i), Access::Write)));
    }

    fn work(&self, cpu: &M::Cpu, time: crate::units::Picos) {
        if self.simulated || self.native_work == NativeWork::Spin {
            cpu.delay(time);
        }
    }
}

impl NetCounts {
    /// Adds another CPU's counts.
    pub(super) fn add(&mut self, other: &NetCounts) {
        self.data_packets += other.data_packets;
        self.acks += other.acks;
        self.frag_pages += other.frag_pages;
        self.frees += other.frees;
        self.remote_frees += other.remote_frees;
        self.bytes_copied += other.bytes_copied;
        self.direct += other.direct;
        self.failed += other.failed;
        self.wakes_local += other.wakes_local;
        self.wakes_remote += other.wakes_remote;
    }
}
