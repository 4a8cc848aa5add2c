//! netperf: streams of messages and ping-pong of requests and responses over TCP and UDP (workloads.md §6).
//!
//! Objects it moves over loopback. TCP: per packet a pair of headers and a buffer, from the sender to whoever processes the
//! acknowledgement. UDP: per datagram a header and a buffer, from the sender to the receiver, or back to the sender when the
//! receiver has no room: pure remote frees if the two run on different CPUs.
//!
//! With `link = "wire"` the other end is another machine: what is sent is allocated by the application and freed, in part,
//! by the CPU that takes the card's interrupts; what is received is allocated there and freed by the application.

use serde::{Deserialize, Serialize};

use super::net::{Era, Kind, Network, Wire, rules};
use super::net_parameters as common;
use super::{Links, NativeWork, NetOp, Op, Parameter, Plan, SockId, Task, Workload, check_times, check_whole};
use crate::error::Error;
use crate::units::{CpuId, Picos};

/// Most pairs of one run.
const MAX_PAIRS: u64 = 4096;
/// Largest datagram: 65535 bytes less the headers of IP and UDP.
const MAX_DATAGRAM: u64 = 65_507;
/// Largest message in one packet on the wire.
const MAX_ON_WIRE: u64 = 1448;
/// Unset values: of TCP_STREAM (send size), of UDP_STREAM, of requests and responses.
const MESSAGE: [u64; 3] = [16_384, 1024, 1];
/// What a TCP_STREAM sender has under way when its buffer has grown: 128 segments of 16 KiB ("tens to hundreds").
const WINDOW: u64 = 2 << 20;
/// What a receiver asks for in one call (netperf: SO_RCVBUF).
const RECEIVE: u32 = 87_380;

/// Which test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Test {
    /// One sends, the other receives.
    TcpStream,
    /// Request and response in turn.
    #[default]
    TcpRr,
    /// Datagrams as fast as they can be sent.
    UdpStream,
    /// Request and response in turn, a datagram each.
    UdpRr,
}

impl Test {
    fn is_udp(self) -> bool {
        matches!(self, Test::UdpStream | Test::UdpRr)
    }
    fn is_stream(self) -> bool {
        matches!(self, Test::TcpStream | Test::UdpStream)
    }
}

/// What is between the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// Both are on this machine.
    #[default]
    Loopback,
    /// The server is another machine.
    Wire,
}

/// Configuration of netperf.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Netperf {
    /// Which test.
    pub test: Test,
    /// Connections.
    pub pairs: u64,
    /// Bytes of a message or request.
    pub message: Option<u64>,
    /// Bytes of a response.
    pub response: Option<u64>,
    /// CPU of the first client; those of the other pairs follow.
    pub client_cpu: Option<u64>,
    /// The same of servers.
    pub server_cpu: Option<u64>,
    /// SO_RCVBUF that is asked for.
    pub rcvbuf: Option<u64>,
    /// Bytes that a TCP stream has under way.
    pub window: Option<u64>,
    /// Loopback or the wire.
    pub link: Link,
    /// CPUs that take the card's interrupts.
    pub irq_cpus: Option<u64>,
    /// Receive buffers of each.
    pub ring: Option<u64>,
    /// Buffers used before the ring is filled.
    pub refill: Option<u64>,
    /// Bytes of such a buffer.
    pub rx_buffer: Option<u64>,
    /// Time between two interrupts.
    pub moderation_us: Option<f64>,
    /// From a request to its response.
    pub round_trip_us: Option<f64>,
    /// Share of packets noticed to be sent after their acknowledgement.
    pub late_completion: Option<f64>,
    /// Seconds measured.
    pub seconds: f64,
    /// Seconds before.
    pub warmup: f64,
    /// Kernel release whose network rules hold.
    pub era: String,
    /// Packets on a CPU's list of deferred frees; `None`: as the era has it.
    pub skb_defer: Option<u64>,
    /// Room for TCP headers in a buffer; `None`: as the era has it.
    pub tcp_header: Option<u64>,
    /// Factor on the protocol's CPU per message.
    pub protocol_scale: f64,
    /// What becomes of protocol work on Native.
    pub native_work: NativeWork,
}

impl Default for Netperf {
    fn default() -> Self {
        Netperf {
            test: Test::TcpRr,
            pairs: 1,
            message: None,
            response: None,
            client_cpu: None,
            server_cpu: None,
            rcvbuf: None,
            window: None,
            link: Link::Loopback,
            irq_cpus: None,
            ring: None,
            refill: None,
            rx_buffer: None,
            moderation_us: None,
            round_trip_us: None,
            late_completion: None,
            seconds: 0.1,
            warmup: 0.05,
            era: "machine".into(),
            skb_defer: None,
            tcp_header: None,
            protocol_scale: 1.0,
            native_work: NativeWork::Skip,
        }
    }
}

impl Netperf {
    fn message(&self) -> u64 {
        let at = match self.test {
            Test::TcpStream => 0,
            Test::UdpStream => 1,
            Test::TcpRr | Test::UdpRr => 2,
        };
        self.message.unwrap_or(MESSAGE[at])
    }
    fn response(&self) -> u64 {
        self.response.unwrap_or(MESSAGE[2])
    }
    fn irqs(&self) -> u64 {
        self.irq_cpus.unwrap_or(1)
    }

    /// Refuses what the test or the link has no use for.
    fn check_uses(&self) -> Result<(), Error> {
        let (udp, stream, loopback) = (self.test.is_udp(), self.test.is_stream(), self.link == Link::Loopback);
        let given = |name: &str, value: Option<f64>, useless: bool, why: &str| match value {
            Some(v) if useless => Err(Error::new(format!("workload.{name}"), v, format!("null: {why}"))),
            _ => Ok(()),
        };
        let of = |value: Option<u64>| value.map(|v| v as f64);
        given("response", of(self.response), stream, "a stream has no responses")?;
        given("rcvbuf", of(self.rcvbuf), !udp || !loopback, "it limits datagrams over loopback alone")?;
        given("window", of(self.window), self.test != Test::TcpStream, "TCP_STREAM alone fills it")?;
        given("tcp_header", of(self.tcp_header), udp, "datagrams have no TCP header")?;
        given("server_cpu", of(self.server_cpu), !loopback, "the server is another machine")?;
        for (name, value) in [
            ("irq_cpus", of(self.irq_cpus)),
            ("ring", of(self.ring)),
            ("refill", of(self.refill)),
            ("rx_buffer", of(self.rx_buffer)),
            ("moderation_us", self.moderation_us),
            ("round_trip_us", self.round_trip_us),
        ] {
            given(name, value, loopback, "loopback has no network card")?;
        }
        given("late_completion", self.late_completion, loopback || udp, "it shares TCP packets with a network card")?;
        if !loopback && stream {
            return Err(Error::new("workload.link", "wire", "TCP_RR or UDP_RR: streams run over loopback"));
        }
        Ok(())
    }
}

impl Workload for Netperf {
    const NAME: &'static str = "netperf";
    const MEANING: &'static str =
        "streams and request/response over TCP and UDP: on loopback, or with the other end on another machine";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter { name: "test", unit: "", meaning: "TCP_STREAM, TCP_RR, UDP_STREAM or UDP_RR" },
        Parameter { name: "pairs", unit: "pairs", meaning: "clients, each with a server of its own" },
        Parameter {
            name: "message",
            unit: "bytes",
            meaning: "message or request (unset: 16384 TCP_STREAM, 1024 UDP_STREAM, 1 for requests)",
        },
        Parameter { name: "response", unit: "bytes", meaning: "response (unset: 1)" },
        Parameter {
            name: "client_cpu",
            unit: "",
            meaning: "CPU of the first client, those of further pairs follow (unset: where the scheduler puts it)",
        },
        Parameter { name: "server_cpu", unit: "", meaning: "the same of the servers" },
        Parameter {
            name: "rcvbuf",
            unit: "bytes",
            meaning: "SO_RCVBUF asked for, which the kernel doubles (unset: the era's default)",
        },
        Parameter {
            name: "window",
            unit: "bytes",
            meaning: "what a TCP stream has under way (unset: 2097152, 128 segments)",
        },
        Parameter {
            name: "link",
            unit: "",
            meaning: "loopback, or wire: the server is another machine that answers after round_trip_us",
        },
        Parameter { name: "irq_cpus", unit: "CPUs", meaning: "CPUs from 0 on that take interrupts (unset: 1)" },
        Parameter { name: "ring", unit: "buffers", meaning: "receive buffers ready on each (unset: 256)" },
        Parameter {
            name: "refill",
            unit: "buffers",
            meaning: "used before the ring is filled up, 1..ring (unset: 32)",
        },
        Parameter { name: "rx_buffer", unit: "bytes", meaning: "kmalloc request of one (unset: 2048)" },
        Parameter { name: "moderation_us", unit: "us", meaning: "time between two interrupts (unset: 20)" },
        Parameter { name: "round_trip_us", unit: "us", meaning: "from request to response (unset: 180)" },
        Parameter {
            name: "late_completion",
            unit: "",
            meaning: "share of packets noticed to be sent after their acknowledgement (unset: 0.333)",
        },
        common::SECONDS,
        common::WARMUP,
        common::ERA,
        common::SKB_DEFER,
        common::TCP_HEADER,
        common::PROTOCOL_SCALE,
        common::NATIVE_WORK,
    ];

    fn check(&self) -> Result<(), Error> {
        let time = |name: &str, value: Option<f64>| match value {
            Some(us) if !(1.0..=1e6).contains(&us) => Err(Error::new(format!("workload.{name}"), us, "1..1000000")),
            _ => Ok(()),
        };
        self.check_uses()?;
        check_whole("pairs", self.pairs, 1..=MAX_PAIRS)?;
        let most = match (self.link, self.test.is_udp()) {
            (Link::Wire, _) => MAX_ON_WIRE,
            (_, true) => MAX_DATAGRAM,
            _ => 1 << 20,
        };
        check_whole("message", self.message(), 1..=most)?;
        check_whole("response", self.response(), 1..=most)?;
        check_whole("rcvbuf", self.rcvbuf.unwrap_or(1024), 1024..=16 << 20)?;
        check_whole("window", self.window.unwrap_or(WINDOW), 4 * self.message().max(16_384)..=1 << 30)?;
        let ring = self.ring.unwrap_or(256);
        check_whole("irq_cpus", self.irqs(), 1..=192)?;
        check_whole("ring", ring, 1..=1 << 16)?;
        check_whole("refill", self.refill.unwrap_or(ring.min(32)), 1..=ring)?;
        check_whole("rx_buffer", self.rx_buffer.unwrap_or(2048), MAX_ON_WIRE + 512..=1 << 16)?;
        time("moderation_us", self.moderation_us)?;
        time("round_trip_us", self.round_trip_us)?;
        if let Some(share) = self.late_completion.filter(|s| !(0.0..=1.0).contains(s)) {
            return Err(Error::new("workload.late_completion", share, "0..1"));
        }
        check_times(self.seconds, self.warmup)?;
        Era::check(&self.era)?;
        common::skb_defer(self.skb_defer, &self.era)?;
        common::tcp_header(self.tcp_header)?;
        common::scale(self.protocol_scale)
    }

    fn check_on(&self, cpus: u16) -> Result<(), Error> {
        let cpus = u64::from(cpus);
        if self.link == Link::Wire && self.irqs() > cpus {
            return Err(Error::new("workload.irq_cpus", self.irqs(), format!("1..{cpus}: the machine's CPUs")));
        }
        for (name, cpu) in [("client_cpu", self.client_cpu), ("server_cpu", self.server_cpu)] {
            if let Some(cpu) = cpu.filter(|c| *c >= cpus) {
                return Err(Error::new(format!("workload.{name}"), cpu, format!("0..{}, or null", cpus - 1)));
            }
        }
        Ok(())
    }

    fn plan(&self, seed: u64) -> Plan {
        self.plan_on(seed, 1)
    }

    fn plan_on(&self, _seed: u64, cpus: u16) -> Plan {
        let mut rules = rules(&self.era, self.protocol_scale, self.tcp_header, self.skb_defer);
        let wired = self.link == Link::Wire;
        if wired {
            rules = rules.over_wire(self.test == Test::TcpRr);
        }
        let pairs = self.pairs as u32;
        let sizes = (self.message() as u32, self.response() as u32);
        let mut tasks: Vec<Box<dyn Task>> = Vec::new();
        let mut links = Links::default();
        let mut add = |task: Loop, pair: u32, cpu: Option<u64>| {
            if let Some(cpu) = cpu {
                let cpu = (cpu + u64::from(pair)) % u64::from(cpus);
                links.pinned.push((tasks.len() as u32, CpuId(cpu as u16)));
            }
            tasks.push(Box::new(task));
        };
        for pair in 0..pairs {
            let (client, server) = (SockId(2 * pair), SockId(2 * pair + 1));
            add(self.client(client, sizes), pair, self.client_cpu);
            if !wired {
                add(self.server(server, sizes), pair, self.server_cpu);
            }
        }
        let micros = |given: Option<f64>, unset: f64| Picos::from_ns(1000.0 * given.unwrap_or(unset));
        let ring = self.ring.unwrap_or(256) as u32;
        let kind = if self.test.is_udp() { Kind::Udp } else { Kind::Tcp };
        let net = Network {
            rcvbuf: self.rcvbuf.map_or(rules.buffer, |b| 2 * b as u32),
            window: if self.test == Test::TcpStream { self.window.unwrap_or(WINDOW) } else { u64::MAX },
            wire: wired.then(|| Wire {
                irq_cpus: (0..self.irqs() as u16).map(CpuId).collect(),
                ring,
                refill: self.refill.map_or(ring.min(32), |r| r as u32),
                rx_bytes: self.rx_buffer.unwrap_or(2048),
                moderation: micros(self.moderation_us, 20.0),
                round_trip: micros(self.round_trip_us, 180.0),
                reply: sizes.1,
                late_completion: self.late_completion.unwrap_or(0.333),
            }),
            ..Network::new(rules.clone(), kind, 2 * pairs)
        };
        let stream = self.test.is_stream();
        Plan {
            caches: rules.caches(),
            tasks,
            net,
            warmup_s: self.warmup,
            seconds: self.seconds,
            interval_s: 1.0,
            per_byte: stream,
            scale: if stream { 8e-6 } else { 1.0 },
            unit: if stream { "Mbit/s" } else { "trans/s" },
            job: None,
            native_work: self.native_work,
            links,
        }
    }
}

impl Netperf {
    fn client(&self, sock: SockId, (message, response): (u32, u32)) -> Loop {
        let done = Op::Done { bytes: u64::from(message) };
        let steps = match self.test {
            Test::TcpStream => vec![Op::Net(NetOp::TcpSend { sock, bytes: message }), done],
            Test::UdpStream => vec![Op::Net(NetOp::UdpSend { sock, bytes: message }), done],
            Test::TcpRr => vec![
                Op::Net(NetOp::TcpSend { sock, bytes: message }),
                Op::Net(NetOp::TcpRecv { sock, bytes: response, end: true }),
                done,
            ],
            Test::UdpRr => {
                vec![Op::Net(NetOp::UdpSend { sock, bytes: message }), Op::Net(NetOp::UdpRecv { sock }), done]
            }
        };
        Loop { steps, next: 0 }
    }

    fn server(&self, sock: SockId, (message, response): (u32, u32)) -> Loop {
        let steps = match self.test {
            Test::TcpStream => vec![NetOp::TcpRead { sock, bytes: RECEIVE, stream: true }],
            Test::UdpStream => vec![NetOp::UdpRecv { sock }],
            Test::TcpRr => {
                vec![NetOp::TcpRecv { sock, bytes: message, end: true }, NetOp::TcpSend { sock, bytes: response }]
            }
            Test::UdpRr => vec![NetOp::UdpRecv { sock }, NetOp::UdpSend { sock, bytes: response }],
        };
        Loop { steps: steps.into_iter().map(Op::Net).collect(), next: 0 }
    }
}

/// The same operations again and again.
struct Loop {
    steps: Vec<Op>,
    next: usize,
}

impl Task for Loop {
    fn step(&mut self) -> Op {
        let op = self.steps[self.next];
        self.next = (self.next + 1) % self.steps.len();
        op
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_values_are_refused_by_name() {
        let good = Netperf::default;
        let wire = || Netperf { link: Link::Wire, ..good() };
        for (n, name) in [
            (Netperf { pairs: 0, ..good() }, "workload.pairs = 0"),
            (Netperf { test: Test::UdpStream, message: Some(70_000), ..good() }, "workload.message = 70000"),
            (Netperf { test: Test::UdpRr, response: Some(65_508), ..good() }, "workload.response = 65508"),
            (Netperf { message: Some(0), ..good() }, "workload.message = 0"),
            (Netperf { irq_cpus: Some(2), ..good() }, "workload.irq_cpus = 2: null"),
            (Netperf { irq_cpus: Some(0), ..wire() }, "workload.irq_cpus = 0"),
            (Netperf { test: Test::TcpStream, ..wire() }, "workload.link"),
            (Netperf { test: Test::TcpStream, response: Some(3), ..good() }, "workload.response = 3"),
            (Netperf { refill: Some(300), ..wire() }, "workload.refill = 300"),
            (Netperf { round_trip_us: Some(f64::NAN), ..wire() }, "workload.round_trip_us"),
            (Netperf { late_completion: Some(1.5), ..wire() }, "workload.late_completion = 1.5"),
            (Netperf { skb_defer: Some(64), era: "3.0".into(), ..good() }, "workload.skb_defer = 64"),
        ] {
            let said = n.check().unwrap_err().to_string();
            assert!(said.contains(name), "{said}");
        }
        for (n, name) in [
            (Netperf { irq_cpus: Some(9), ..wire() }, "workload.irq_cpus = 9"),
            (Netperf { client_cpu: Some(8), ..good() }, "workload.client_cpu = 8"),
        ] {
            n.check().expect("right in itself");
            let said = n.check_on(8).unwrap_err().to_string();
            assert!(said.contains(name), "{said}");
        }
    }
}
