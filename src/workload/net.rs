//! Network rules of a kernel era: what one message takes from the allocator, and what the protocol costs (workloads.md §1,
//! §2). The state machines stand in the executor (`run::net`); these are their words and numbers.
//!
//! Why 2.6.24 frees locally what 6.1 frees remotely: with the prequeue the acknowledgement of a packet is worked off by the
//! task that sent it, when it next waits in recv, on its own CPU. Since 4.14 the interrupt of the *peer's* send does it, on
//! the peer's CPU; `skb_defer` (since 5.19) sends what a receiver frees back to the CPU that allocated it, and makes these
//! frees local again (event profiles of 6.1: 98 % remote without it, 0 % with it).

use crate::error::Error;
use crate::spec::CacheSpec;
use crate::units::{CpuId, LINE, Order, Picos, round_up};

/// A connected socket's end, counted through the workload. Ends 2i and 2i + 1 are connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SockId(pub u32);

impl SockId {
    /// The other end of the connection.
    pub fn peer(self) -> SockId {
        SockId(self.0 ^ 1)
    }
}

/// What a task does with a socket, a pipe or a room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetOp {
    /// Sends a message over TCP (system call, segments, one packet each); sleeps while the window is full.
    TcpSend {
        /// Own end.
        sock: SockId,
        /// Payload bytes.
        bytes: u32,
    },
    /// Receives exactly so many bytes, sleeping as long as they are not there (MSG_WAITALL).
    TcpRecv {
        /// Own end.
        sock: SockId,
        /// Payload bytes.
        bytes: u32,
        /// These are the last bytes of a message: the receiver may owe an acknowledgement.
        end: bool,
    },
    /// Receives what is there, at most so many bytes, sleeping only while there is nothing. Nothing is sent back that could
    /// carry acknowledgements: every second packet is acknowledged by a packet of its own.
    TcpRead {
        /// Own end.
        sock: SockId,
        /// Room for payload bytes.
        bytes: u32,
        /// It is a stream of bytes: from 6.x on, whose full segments are longer than a write, so many bytes are
        /// acknowledged at once as [`Rules::stream_ack`] says.
        stream: bool,
    },
    /// Sends a datagram; never sleeps: what the receiver has no room for is dropped here.
    UdpSend {
        /// Own end.
        sock: SockId,
        /// Payload bytes.
        bytes: u32,
    },
    /// Receives one datagram.
    UdpRecv {
        /// Own end.
        sock: SockId,
    },
    /// Writes a message into a stream socket of AF_UNIX; sleeps while too much of what was written waits for its reader.
    UnixSend {
        /// Own end.
        sock: SockId,
        /// Payload bytes.
        bytes: u32,
    },
    /// Reads exactly so many bytes from it.
    UnixRecv {
        /// Own end.
        sock: SockId,
        /// Payload bytes.
        bytes: u32,
    },
    /// Writes into a pipe; sleeps while it is full.
    PipeWrite {
        /// Index of the pipe.
        pipe: u32,
        /// Payload bytes.
        bytes: u32,
    },
    /// Reads exactly so many bytes from a pipe.
    PipeRead {
        /// Index of the pipe.
        pipe: u32,
        /// Payload bytes.
        bytes: u32,
    },
    /// Puts a message before all members of a room and wakes those that sleep (a monitor: mutex and futex).
    Post {
        /// Index of the room.
        room: u32,
    },
    /// Takes the next message that was posted; sleeps until there is one.
    Take {
        /// Index of the room.
        room: u32,
        /// Which member of it.
        member: u32,
    },
}

/// The eras whose rules are known, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Era {
    /// 2.6.24: a buffer of a page for every TCP packet; prequeue.
    V2_6_24,
    /// 2.6.28: TCP payload in page fragments alone; sockets wake in sync.
    V2_6_28,
    /// 3.0: smaller shared info.
    V3_0,
    /// 6.1: no prequeue, 64-KiB segments, frees deferred to the allocating CPU.
    V6_1,
    /// 6.18: heads of up to 576 bytes from a cache of their own.
    V6_18,
}

impl Era {
    /// Names, as the parameter `era` gives them.
    pub const NAMES: &'static [&'static str] = &["machine", "2.6.24", "2.6.28", "3.0", "6.1", "6.18"];

    /// The era of a name. `machine` is replaced by [`Era::of_release`] before a run; a plan made without a machine takes
    /// 2.6.24.
    pub fn named(name: &str) -> Option<Era> {
        match name {
            "2.6.24" | "machine" => Some(Era::V2_6_24),
            "2.6.28" => Some(Era::V2_6_28),
            "3.0" => Some(Era::V3_0),
            "6.1" => Some(Era::V6_1),
            "6.18" => Some(Era::V6_18),
            _ => None,
        }
    }
    /// Name of the rules that a kernel release has: those of the newest era that is not newer.
    pub fn of_release(release: (u32, u32, u32)) -> &'static str {
        match release {
            r if r < (2, 6, 28) => "2.6.24",
            r if r < (3, 0, 0) => "2.6.28",
            r if r < (4, 14, 0) => "3.0",
            r if r < (6, 3, 0) => "6.1",
            _ => "6.18",
        }
    }
    /// Refuses an era that is not known.
    pub fn check(name: &str) -> Result<(), Error> {
        Era::named(name).map(|_| ()).ok_or_else(|| Error::unknown("workload.era", name, Era::NAMES))
    }
}

/// Rules and costs of an era.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The era.
    pub era: Era,
    /// Payload bytes of a full TCP segment over loopback.
    pub mss: u32,
    /// Payload bytes that fit into the linear buffer; the rest goes to page fragments.
    pub linear: u32,
    /// Room for protocol headers in front of them (kernel: MAX_TCP_HEADER).
    pub header: u32,
    /// kmalloc request of a TCP data packet's linear buffer.
    pub data_bytes: u64,
    /// kmalloc request of a pure acknowledgement's buffer.
    pub ack_bytes: u64,
    /// Order of the blocks that page fragments are cut from.
    pub frag_order: Order,
    /// Probability of one more acknowledgement for a message with an odd number of full segments. Up to 3.0 0.214 (event
    /// counts of two published slabinfo dumps, workloads.md §3.4); 6.x 1: in the profiles of 6.1 acknowledgements grow by
    /// 0.025 per exchange, and 0.0276 of the messages have one full segment. No throughput was used.
    pub odd_ack: f64,
    /// At most one acknowledgement per read, at its end.
    pub ack_per_call: bool,
    /// Bytes of a stream that are read before they are acknowledged, from 6.x on. The profiles have 113 to 187
    /// acknowledgements for 4000 writes of 16 KiB on 6.1 (eight recordings with two or four CPUs, mean 146.5), 1814 on 6.18.
    pub stream_ack: u64,
    /// A receiver that sleeps in recv does the protocol work itself when it wakes (until 4.13).
    pub prequeue: bool,
    /// Wake-ups of sockets say that the waker will soon sleep.
    pub sync: bool,
    /// Packets on a CPU's list of deferred frees before they are freed by whoever has them; 0: no such lists.
    pub skb_defer: u32,
    /// Datagrams are deferred too.
    pub udp_defer: bool,
    /// Largest buffer that comes from `skbuff_small_head`; 0: there is no such cache.
    pub small_head: u64,
    /// Buffers of AF_UNIX come from there too (no memory cgroup accounts for them).
    pub unix_small: bool,
    /// Default SO_RCVBUF and SO_SNDBUF.
    pub buffer: u32,
    /// sizeof(struct sk_buff), and of the pair with its clone.
    pub sizes: (u64, u64),
    /// sizeof(struct skb_shared_info) as it is added to a buffer.
    pub shared_info: u64,
    /// What the protocols cost.
    pub costs: Costs,
}

/// Protocol work, in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Sending and receiving a TCP data segment.
    pub tcp: (Picos, Picos),
    /// Sending and receiving a pure acknowledgement.
    pub ack: (Picos, Picos),
    /// Sending a datagram, with its way to the receiver's queue in softirq, and receiving it.
    pub udp: (Picos, Picos),
    /// Writing and reading an AF_UNIX message.
    pub unix: (Picos, Picos),
    /// Writing into and reading from a pipe.
    pub pipe: (Picos, Picos),
    /// Posting to and taking from a room.
    pub room: (Picos, Picos),
    /// What the interrupt CPU does for a packet from the wire: driver, IP, hand-over. Zero over loopback.
    pub irq: Picos,
}

/// Which share of receiving a packet from the wire is the interrupt CPU's, whoever does the rest: the driver's and IP's
/// (our choice: about half of the way up is below TCP or UDP; machine-model.md §9 leaves it open).
const IRQ_SHARE: f64 = 0.5;

/// Protocol costs before scaling, in nanoseconds: sending and receiving a data segment, a pure acknowledgement. Their
/// ratios are fixed; one scale for all is fitted (specs: pilot-2007, method).
pub const PROTOCOL_NS: [f64; 4] = [2600.0, 2400.0, 1200.0, 1200.0];

/// The same for the other protocols: free parameters like those (workloads.md §13), set once. A datagram passes IP and the
/// loopback device but no TCP, and the ratio of its two halves follows from the share of datagrams that arrive at all (0.36 to
/// 0.71 of 1 KiB on two CPUs in the profiles of 6.1); a message of AF_UNIX and a pipe pass neither; a room is user code.
pub const OTHER_NS: [(f64, f64); 4] = [(900.0, 1700.0), (450.0, 400.0), (250.0, 250.0), (300.0, 200.0)];

/// Room for the link layer and, from 28 bytes of UDP and IP headers on, alignment of a datagram (workloads.md §2.1).
const UDP_EXTRA: u64 = 28 + 16 + 15;

/// Payload of an IP fragment on loopback, in bytes: MTU 16436 less the IP header, in units of 8.
pub const FRAGMENT: u32 = 16_416;

impl Rules {
    /// The rules of an era over loopback, its protocol work scaled.
    pub fn of(era: Era, protocol_scale: f64) -> Rules {
        let ns = |(a, b): (f64, f64)| (Picos::from_ns(a * protocol_scale), Picos::from_ns(b * protocol_scale));
        let [tx, rx, ack_tx, ack_rx] = PROTOCOL_NS;
        let [udp, unix, pipe, room] = OTHER_NS;
        let costs = Costs {
            tcp: ns((tx, rx)),
            ack: ns((ack_tx, ack_rx)),
            udp: ns(udp),
            unix: ns(unix),
            pipe: ns(pipe),
            room: ns(room),
            irq: Picos(0),
        };
        let old = Rules {
            era,
            // MTU 16436. Segmentation offload (since 2.6.28) could join segments; the published counts have none joined.
            mss: 16_384,
            linear: 0,
            header: 0,
            data_bytes: 0,
            ack_bytes: 0,
            frag_order: Order(0),
            odd_ack: 0.214,
            ack_per_call: false,
            stream_ack: 0,
            prequeue: true,
            sync: true,
            skb_defer: 0,
            udp_defer: false,
            small_head: 0,
            unix_small: false,
            buffer: 124_928,
            sizes: (232, 468),
            shared_info: 472,
            costs,
        };
        let new = Rules {
            // MTU 65536.
            mss: 65_483,
            frag_order: Order(3),
            odd_ack: 1.0,
            ack_per_call: true,
            stream_ack: 447_000,
            prequeue: false,
            skb_defer: 64,
            buffer: 212_992,
            sizes: (232, 472),
            shared_info: 320,
            ..old.clone()
        };
        match era {
            Era::V2_6_24 => Rules { sync: false, shared_info: 312, ..old }.with_header(272),
            Era::V2_6_28 => old.with_header(304),
            Era::V3_0 => Rules { buffer: 126_976, sizes: (240, 484), shared_info: 344, ..old }.with_header(304),
            Era::V6_1 => new.with_header(320),
            Era::V6_18 => {
                let sizes = (256, 512);
                Rules { udp_defer: true, small_head: 576, unix_small: true, stream_ack: 36_000, sizes, ..new }
                    .with_header(256)
            }
        }
    }

    /// The same with other room for TCP headers, which hangs on the kernel's configuration.
    pub fn with_header(self, bytes: u32) -> Rules {
        let ack_bytes = self.buffer_of(u64::from(bytes));
        // 2.6.24: a scatter-gather device without segmentation offload, so every data packet has a linear buffer of one
        // page less its header room and shared info (kernel: SKB_MAX_HEAD). Later: headers alone.
        let page = crate::units::PAGE_SIZE - round_up(self.shared_info, LINE);
        let (linear, data_bytes) = match self.era {
            Era::V2_6_24 => (page as u32 - bytes, page + self.shared_info),
            _ => (0, ack_bytes),
        };
        Rules { header: bytes, linear, data_bytes, ack_bytes, ..self }
    }
    /// The same with lists of deferred frees of at most `packets`; 0: none.
    pub fn with_defer(self, packets: u32) -> Rules {
        Rules { skb_defer: packets, ..self }
    }
    /// The rules of a packet that leaves through a network card: it has segmentation offload, so the buffer holds headers.
    /// Receiving is divided between the interrupt CPU and the reader.
    pub fn over_wire(self, tcp: bool) -> Rules {
        let mut costs = self.costs;
        let rx = if tcp { &mut costs.tcp.1 } else { &mut costs.udp.1 };
        costs.irq = Picos((rx.0 as f64 * IRQ_SHARE) as u64);
        *rx = Picos(rx.0 - costs.irq.0);
        Rules { linear: 0, data_bytes: self.ack_bytes, costs, ..self }
    }

    /// kmalloc request of a buffer of so many bytes: whole cache lines and the shared info.
    fn buffer_of(&self, bytes: u64) -> u64 {
        round_up(bytes, LINE) + self.shared_info
    }
    /// kmalloc request of a datagram's buffer (kernel: ip_append_data).
    pub fn udp_buffer(&self, payload: u32) -> u64 {
        self.buffer_of(u64::from(payload) + UDP_EXTRA)
    }
    /// kmalloc request of an AF_UNIX message's buffer.
    pub fn unix_buffer(&self, payload: u32) -> u64 {
        self.buffer_of(u64::from(payload))
    }
    /// Largest AF_UNIX message in one buffer: four pages (kernel: SKB_MAX_ALLOC).
    pub fn unix_most(&self) -> u32 {
        16_384 - round_up(self.shared_info, LINE) as u32
    }
    /// What a buffer of `request` bytes with its header counts against a socket's limit (kernel: truesize). Up to 3.0 the
    /// payload's lines and the header, later what the allocator really gave.
    pub fn truesize(&self, request: u64) -> u32 {
        if self.era <= Era::V3_0 {
            return (request - self.shared_info + self.sizes.0) as u32;
        }
        let slot = if request <= self.small_head { self.small_head } else { request.next_power_of_two() };
        (slot + 256) as u32
    }
    /// Whether a receiver with `queued` bytes under a limit takes a datagram of `truesize` more. 6.x looks at what is queued
    /// alone (peaks of 94 and 27 datagrams of 1 and 4 KiB in its profiles).
    pub fn takes(&self, queued: u32, truesize: u32, limit: u32) -> bool {
        if self.era <= Era::V3_0 { queued + truesize < limit } else { queued <= limit }
    }
    /// Caches of the network layer; [`FCLONE`], [`HEAD`] and [`SMALL_HEAD`] are their indices.
    pub fn caches(&self) -> Vec<CacheSpec> {
        let mut caches = vec![
            CacheSpec::new("skbuff_fclone_cache", self.sizes.1).hwcache(),
            CacheSpec::new("skbuff_head_cache", self.sizes.0).hwcache(),
        ];
        if self.small_head > 0 {
            caches.push(CacheSpec::new("skbuff_small_head", self.small_head).hwcache());
        }
        caches
    }
}

/// Index of the header with room for its clone (kernel: skbuff_fclone_cache).
pub const FCLONE: usize = 0;
/// Index of the plain header (kernel: skbuff_head_cache).
pub const HEAD: usize = 1;
/// Index of the cache of small buffers (kernel: skbuff_small_head), where the era has one.
pub const SMALL_HEAD: usize = 2;

/// What the sockets of a plan are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// TCP connections.
    Tcp,
    /// Connected UDP sockets.
    Udp,
    /// Stream sockets of AF_UNIX.
    Unix,
}

/// The network of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// What holds for all of it.
    pub rules: Rules,
    /// What the sockets are.
    pub kind: Kind,
    /// Number of socket ends.
    pub socks: u32,
    /// Number of pipes.
    pub pipes: u32,
    /// Members of each room.
    pub rooms: Vec<u32>,
    /// SO_RCVBUF and SO_SNDBUF as the kernel keeps them.
    pub rcvbuf: u32,
    /// See there.
    pub sndbuf: u32,
    /// Payload bytes that a TCP sender may have under way.
    pub window: u64,
    /// Tasks share their file table: each call takes and drops a reference to its file (kernel: fget).
    pub shared_files: bool,
    /// The other machine, if sockets reach one: then every even socket ends there.
    pub wire: Option<Wire>,
}

impl Network {
    /// No sockets at all.
    pub fn none() -> Network {
        Network::new(Rules::of(Era::V2_6_24, 1.0), Kind::Tcp, 0)
    }

    /// Sockets of an era without limits on TCP, and default buffers.
    pub fn new(rules: Rules, kind: Kind, socks: u32) -> Network {
        Network {
            kind,
            socks,
            pipes: 0,
            rooms: Vec::new(),
            rcvbuf: rules.buffer,
            sndbuf: rules.buffer,
            window: u64::MAX,
            shared_files: false,
            wire: None,
            rules,
        }
    }
}

/// A network card and the machine behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wire {
    /// CPUs that take its interrupts; connections are spread over them.
    pub irq_cpus: Vec<CpuId>,
    /// Buffers that each of them keeps ready for reception.
    pub ring: u32,
    /// Buffers used before the ring is filled up again.
    pub refill: u32,
    /// kmalloc request of such a buffer.
    pub rx_bytes: u64,
    /// Interrupts come at multiples of this time.
    pub moderation: Picos,
    /// From sending a request to the arrival of its answer, the other machine's work included.
    pub round_trip: Picos,
    /// Payload of an answer.
    pub reply: u32,
    /// Share of packets whose transmission is noticed only after their acknowledgement.
    pub late_completion: f64,
}

/// The rules of the parameters that several workloads have.
pub(crate) fn rules(era: &str, scale: f64, tcp_header: Option<u64>, skb_defer: Option<u64>) -> Rules {
    let mut rules = Rules::of(Era::named(era).expect("checked"), scale);
    if let Some(bytes) = tcp_header {
        rules = rules.with_header(bytes as u32);
    }
    if let Some(packets) = skb_defer {
        rules = rules.with_defer(packets as u32);
    }
    rules
}

#[cfg(test)]
#[path = "net_tests.rs"]
mod tests;
