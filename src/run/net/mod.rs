//! Sockets, pipes and rooms as the executor does them, by the rules of the plan's era (workloads.md §2): who allocates, who
//! frees, who is woken. One file per protocol; here is what they share.

mod defer;
mod pipe;
mod room;
mod segment;
mod skb;
mod tcp;
mod udp;
mod unix;
mod wire;

use std::sync::atomic::{AtomicI64, Ordering};

use crate::alloc::SlabAllocator;
use crate::machine::{Access, Addr, Cpu, Event, Machine, SpinLock};
use crate::page::{Pages, Pfn};
use crate::spec::CacheId;
use crate::units::{CpuId, NodeId, Order, Picos};
use crate::workload::net::{FCLONE, HEAD, Kind, Network, SMALL_HEAD};
use crate::workload::{NativeWork, NetOp, Plan, SockId};

use super::sched::{Running, Scheduler, Woke};
use defer::Deferred;
use pipe::Pipe;
use room::Room;
use tcp::Sock;
use udp::Datagrams;
use unix::Stream;
use wire::Nic;

/// Event counts of the network layer, per CPU. `held` is never reset: over all CPUs it is what is under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NetCounts {
    pub(super) data_packets: u64,
    pub(super) acks: u64,
    pub(super) frag_pages: u64,
    pub(super) allocs: u64,
    pub(super) frees: u64,
    pub(super) remote_frees: u64,
    pub(super) bytes_copied: u64,
    pub(super) direct: u64,
    pub(super) failed: u64,
    pub(super) wakes_local: u64,
    pub(super) wakes_remote: u64,
    /// Messages: datagrams, AF_UNIX and pipe messages, posts.
    pub(super) messages: u64,
    /// Datagrams that the receiver had no room for.
    pub(super) dropped: u64,
    /// Packets whose last free was left to the CPU that allocated them.
    pub(super) deferred: u64,
    pub(super) held: i64,
}

/// What became of an operation.
pub(super) enum Step {
    /// It is complete.
    Done,
    /// The task must sleep; the operation is repeated after the wake-up.
    Wait,
    /// Memory is out: as in the kernel the task tries again, after the others had their turn.
    Retry,
}

/// What a step of the network needs: who runs, the allocator and its pages, the scheduler, the counts.
pub(super) struct Context<'a, 'p, M: Machine, A: SlabAllocator<'p, M>> {
    pub(super) cpu: &'a M::Cpu,
    pub(super) alloc: &'a A,
    pub(super) pages: &'p Pages<'p, M>,
    pub(super) sched: &'a Scheduler<M>,
    pub(super) counts: &'a mut NetCounts,
}

/// All sockets, pipes and rooms of a run.
pub(super) struct Net<M: Machine> {
    plan: Network,
    addrs: Vec<Addr>,
    tcp: Vec<SpinLock<M, Sock>>,
    udp: Vec<SpinLock<M, Datagrams>>,
    unix: Vec<Stream<M>>,
    pipes: Vec<SpinLock<M, Pipe>>,
    rooms: Vec<SpinLock<M, Room>>,
    /// Per CPU, where the era has such lists.
    deferred: Vec<Deferred<M>>,
    /// Per interrupt CPU.
    nics: Vec<SpinLock<M, Nic>>,
    fclone: CacheId,
    head: CacheId,
    small: CacheId,
    native_work: NativeWork,
    simulated: bool,
    /// Fragment pages under way, for reports: not modelled, so not charged.
    frag_pages: AtomicI64,
}

impl<M: Machine> Net<M> {
    pub(super) fn new(machine: &M, plan: &Plan, caches: &[CacheId], simulated: bool) -> Self {
        let net = &plan.net;
        let nodes = machine.topology().nodes() as u32;
        let node = |i: u32| NodeId((i % nodes) as u16);
        // struct tcp_sock: about 1.5 KiB; the lock is in its first lines.
        let addrs: Vec<Addr> = (0..net.socks).map(|i| machine.reserve(1536, node(i / 2))).collect();
        let at = |i: u32| addrs[i as usize];
        let own = |n: u32, bytes: u64| (0..n).map(move |i| machine.reserve(bytes, node(i)));
        let cache = |i: usize| caches.get(i).copied().unwrap_or(CacheId(0));
        let uses = |kind: Kind| plan.net.kind == kind;
        let socks = |kind: Kind| if uses(kind) { 0..net.socks } else { 0..0 };
        let irq: &[CpuId] = net.wire.as_ref().map_or(&[], |w| &w.irq_cpus);
        Net {
            tcp: socks(Kind::Tcp).map(|i| SpinLock::new(machine.lock("sk_lock", at(i)), Sock::default())).collect(),
            udp: socks(Kind::Udp)
                .map(|i| SpinLock::new(machine.lock("sk_receive_queue.lock", at(i)), Datagrams::default()))
                .collect(),
            unix: socks(Kind::Unix).map(|i| Stream::new(machine, at(i))).collect(),
            pipes: own(net.pipes, 192).map(|a| SpinLock::new(machine.lock("pipe->mutex", a), Pipe::new(a))).collect(),
            rooms: own(net.rooms.len() as u32, 128)
                .zip(&net.rooms)
                .map(|(a, members)| SpinLock::new(machine.lock("room mutex", a), Room::new(a, *members)))
                .collect(),
            deferred: if net.rules.skb_defer > 0 {
                machine.topology().cpu_ids().map(|cpu| Deferred::new(machine, cpu)).collect()
            } else {
                Vec::new()
            },
            nics: irq
                .iter()
                .map(|cpu| {
                    let addr = machine.reserve(192, machine.topology().node_of(*cpu));
                    SpinLock::new(machine.lock("tx_lock", addr), Nic::default())
                })
                .collect(),
            addrs,
            fclone: cache(FCLONE),
            head: cache(HEAD),
            small: cache(SMALL_HEAD),
            plan: net.clone(),
            native_work: plan.native_work,
            simulated,
            frag_pages: AtomicI64::new(0),
        }
    }

    /// Does what a task asks for.
    pub(super) fn step<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        op: NetOp,
    ) -> Step {
        if !task.resumed && !matches!(op, NetOp::Post { .. } | NetOp::Take { .. }) {
            c.cpu.spend(Event::Syscall);
        }
        match op {
            NetOp::TcpSend { sock, bytes } => self.tcp_send(c, task, sock, bytes),
            NetOp::TcpRecv { sock, bytes, end } => self.tcp_recv(c, task, sock, bytes, end),
            NetOp::TcpRead { sock, bytes, stream } => self.tcp_read(c, task, sock, bytes, stream),
            NetOp::UdpSend { sock, bytes } => self.udp_send(c, sock, bytes),
            NetOp::UdpRecv { sock } => self.udp_recv(c, task, sock),
            NetOp::UnixSend { sock, bytes } => self.unix_send(c, task, sock, bytes),
            NetOp::UnixRecv { sock, bytes } => self.unix_recv(c, task, sock, bytes),
            NetOp::PipeWrite { pipe, bytes } => self.pipe_write(c, task, pipe, bytes),
            NetOp::PipeRead { pipe, bytes } => self.pipe_read(c, task, pipe, bytes),
            NetOp::Post { room } => self.post(c, room),
            NetOp::Take { room, member } => self.take(c, task, room, member),
        }
    }

    /// Frees whatever is still under way, so that nothing is leaked. On one CPU, after the run.
    pub(super) fn tear_down<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>) {
        self.tear_down_wire(c);
        (0..self.deferred.len()).for_each(|cpu| self.flush_list(c, cpu));
        self.tear_down_tcp(c);
        self.tear_down_udp(c);
        self.tear_down_unix(c);
        self.tear_down_pipes(c);
    }

    fn wake<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, task: u32, sync: bool) {
        match c.sched.wake(c.cpu, task, sync) {
            Woke::Local => c.counts.wakes_local += 1,
            Woke::Remote => c.counts.wakes_remote += 1,
            Woke::Awake => {}
        }
    }

    fn put_frag<'p, A: SlabAllocator<'p, M>>(&self, c: &Context<'_, 'p, M, A>, pfn: Pfn) {
        let order = self.plan.rules.frag_order;
        if c.pages.put_block(c.cpu, pfn, order) {
            self.lent(order, -1);
        }
    }

    /// Pages that the network has taken (1) or given back (-1) itself.
    fn lent(&self, order: Order, sign: i64) {
        self.frag_pages.fetch_add(sign * order.pages() as i64, Ordering::Relaxed);
    }

    /// Fragment and pipe pages under way. While CPUs run, a sample.
    pub(super) fn frag_pages(&self) -> u64 {
        self.frag_pages.load(Ordering::Relaxed).max(0) as u64
    }

    fn touch_sock<'p, A: SlabAllocator<'p, M>>(&self, c: &Context<'_, 'p, M, A>, sock: SockId, lines: u64) {
        let at = self.addrs[sock.0 as usize];
        c.cpu.grouped(|cpu| (1..=lines).for_each(|i| cpu.touch(at.plus(64 * i), Access::Write)));
    }

    /// Takes and drops a reference to the file behind a descriptor that other tasks of the process share (kernel: fget,
    /// fput).
    fn use_file(&self, cpu: &M::Cpu, at: Addr) {
        if self.plan.shared_files {
            cpu.interact();
            cpu.touch(at, Access::Rmw);
            cpu.touch(at, Access::Rmw);
        }
    }

    fn work(&self, cpu: &M::Cpu, time: Picos) {
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
        self.allocs += other.allocs;
        self.frees += other.frees;
        self.remote_frees += other.remote_frees;
        self.bytes_copied += other.bytes_copied;
        self.direct += other.direct;
        self.failed += other.failed;
        self.wakes_local += other.wakes_local;
        self.wakes_remote += other.wakes_remote;
        self.messages += other.messages;
        self.dropped += other.dropped;
        self.deferred += other.deferred;
        self.held += other.held;
    }
}
