//! volanomark: a chat server and its clients on one machine, four threads per connection (workloads.md §7).
//!
//! Objects it moves: per post one packet from a client to the server, per delivery one from the server to each client of the
//! room, both as tbench's; the receivers of deliveries send nothing that could carry acknowledgements, so up to one pure
//! acknowledgement per two deliveries goes back. Threads wake each other through the room's queue and yield a lot, so
//! receivers are often not blocked when a packet arrives, and frees are remote more often than tbench's.
//!
//! A client posts again when it has received as many deliveries as its room has users: no queue grows without end.

use serde::{Deserialize, Serialize};

use super::net::{Era, Kind, Network, rules};
use super::net_parameters as common;
use super::{Links, NativeWork, NetOp, Op, Parameter, Plan, Random, SockId, Task, Workload, check_times, check_whole};
use crate::error::Error;
use crate::units::Picos;

/// Most connections of one run.
const MAX_USERS: u64 = 16_384;

/// Configuration of volanomark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volanomark {
    /// Rooms.
    pub rooms: u64,
    /// Users of a room.
    pub users: u64,
    /// Bytes of a message.
    pub message: u64,
    /// Probability that a thread yields before it goes on.
    pub yields: f64,
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
    /// Cache lines of its own that user code touches per message.
    pub user_footprint_lines: u64,
    /// Java work of a message in microseconds, half of it where it is sent, half where it is received.
    pub user_us: f64,
    /// What becomes of protocol work on Native.
    pub native_work: NativeWork,
}

/// Java work of a message. VolanoMark moved 29,440 messages/s on four processors of 2001 (Linux Scalability Effort, kernel
/// 2.4.4 with queues per CPU): 136 µs each, about 17 µs on processors eight times as fast (SPECint2000 about 300 against
/// 2,400). Kernel and scheduler take about 10 of them here.
const USER_US: f64 = 7.0;

impl Default for Volanomark {
    fn default() -> Self {
        Volanomark {
            rooms: 10,
            users: 20,
            message: 100,
            yields: 0.5,
            seconds: 0.1,
            warmup: 0.1,
            era: "machine".into(),
            skb_defer: None,
            tcp_header: None,
            protocol_scale: 1.0,
            user_footprint_lines: 64,
            user_us: USER_US,
            native_work: NativeWork::Skip,
        }
    }
}

impl Workload for Volanomark {
    const NAME: &'static str = "volanomark";
    const MEANING: &'static str =
        "a chat server and its clients over loopback TCP: rooms of users, four threads per connection, many yields";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter { name: "rooms", unit: "rooms", meaning: "chat rooms" },
        Parameter { name: "users", unit: "users", meaning: "users of a room, one connection and four threads each" },
        Parameter { name: "message", unit: "bytes", meaning: "bytes of a message" },
        Parameter { name: "yields", unit: "", meaning: "probability that a thread yields before its next message" },
        common::SECONDS,
        common::WARMUP,
        common::ERA,
        common::SKB_DEFER,
        common::TCP_HEADER,
        common::PROTOCOL_SCALE,
        Parameter {
            name: "user_footprint_lines",
            unit: "cache lines",
            meaning: "lines of its own that user code touches per message",
        },
        Parameter { name: "user_us", unit: "µs", meaning: "Java work of a message, half where it is sent" },
        common::NATIVE_WORK,
    ];

    fn check(&self) -> Result<(), Error> {
        check_whole("users", self.users, 1..=1024)?;
        check_whole("rooms", self.rooms, 1..=MAX_USERS / self.users)?;
        check_whole("message", self.message, 1..=16_384)?;
        if !(0.0..=1.0).contains(&self.yields) {
            return Err(Error::new("workload.yields", self.yields, "0..1"));
        }
        if self.user_footprint_lines > 1 << 20 {
            return Err(Error::new("workload.user_footprint_lines", self.user_footprint_lines, "at most 1048576"));
        }
        if !(0.0..=1e6).contains(&self.user_us) {
            return Err(Error::new("workload.user_us", self.user_us, "0..1000000 µs"));
        }
        check_times(self.seconds, self.warmup)?;
        Era::check(&self.era)?;
        common::skb_defer(self.skb_defer, &self.era)?;
        common::tcp_header(self.tcp_header)?;
        common::scale(self.protocol_scale)
    }

    fn plan(&self, seed: u64) -> Plan {
        let rules = rules(&self.era, self.protocol_scale, self.tcp_header, self.skb_defer);
        let (rooms, users, bytes) = (self.rooms as u32, self.users as u32, self.message as u32);
        let lines = self.user_footprint_lines as u32;
        let mut tasks: Vec<Box<dyn Task>> = Vec::new();
        let mut add = |first: Vec<Op>, steps: Vec<Op>| {
            let random = Random::new(seed, tasks.len() as u64);
            tasks.push(Box::new(Thread { first, steps, next: 0, random, yields: self.yields, yielded: false }));
        };
        for user in 0..rooms * users {
            let (client, server) = (SockId(2 * user), SockId(2 * user + 1));
            let (room, member) = (user / users, user % users);
            // A room of its own tells a client's sender that its receiver has seen everybody's message.
            let turn = rooms + user;
            let send = |sock| Op::Net(NetOp::TcpSend { sock, bytes });
            let read = |sock| Op::Net(NetOp::TcpRead { sock, bytes, stream: false });
            let code = Op::User { lines };
            let java = Op::Compute { time: Picos::from_ns(self.user_us * 500.0) };
            let done = Op::Done { bytes: self.message };
            let deliveries = (0..users).flat_map(|_| [read(client), code, java]);
            add(vec![send(client)], vec![Op::Net(NetOp::Take { room: turn, member: 0 }), code, java, send(client)]);
            add(vec![], deliveries.chain([Op::Net(NetOp::Post { room: turn })]).collect());
            add(vec![], vec![read(server), code, java, Op::Net(NetOp::Post { room }), done]);
            add(vec![], vec![Op::Net(NetOp::Take { room, member }), code, java, send(server), done]);
        }
        let members = (0..rooms).map(|_| users).chain((0..rooms * users).map(|_| 1)).collect();
        let net =
            Network { rooms: members, shared_files: true, ..Network::new(rules.clone(), Kind::Tcp, 2 * rooms * users) };
        Plan {
            caches: rules.caches(),
            tasks,
            net,
            warmup_s: self.warmup,
            seconds: self.seconds,
            interval_s: 1.0,
            per_byte: false,
            scale: 1.0,
            unit: "messages/s",
            job: None,
            native_work: self.native_work,
            links: Links { threads: true, ..Links::default() },
        }
    }
}

/// One thread: some operations once, others again and again, and a yield between two of them now and then.
struct Thread {
    first: Vec<Op>,
    steps: Vec<Op>,
    next: usize,
    random: Random,
    yields: f64,
    yielded: bool,
}

impl Task for Thread {
    fn step(&mut self) -> Op {
        if let Some(op) = self.first.pop() {
            return op;
        }
        let op = self.steps[self.next];
        // A thread yields behind each message, where its user code begins.
        let message = matches!(op, Op::User { .. });
        if message && !self.yielded && self.random.chance(self.yields) {
            self.yielded = true;
            return Op::Yield;
        }
        self.yielded = false;
        self.next = (self.next + 1) % self.steps.len();
        op
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_rooms_are_800_threads_on_200_connections() {
        let plan = Volanomark::default().plan(1);
        assert_eq!((plan.tasks.len(), plan.net.socks), (800, 400));
    }

    #[test]
    fn impossible_values_are_refused_by_name() {
        let good = Volanomark::default;
        for (v, name) in [
            (Volanomark { rooms: 0, ..good() }, "workload.rooms = 0"),
            (Volanomark { users: 0, ..good() }, "workload.users = 0"),
            (Volanomark { rooms: 10_000, ..good() }, "workload.rooms = 10000"),
            (Volanomark { message: 0, ..good() }, "workload.message = 0"),
            (Volanomark { yields: -0.1, ..good() }, "workload.yields = -0.1"),
        ] {
            let said = v.check().unwrap_err().to_string();
            assert!(said.contains(name), "{said}");
        }
    }
}
