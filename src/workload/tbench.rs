//! tbench: clients and servers over TCP, one request and one response at a time (workloads.md §3).
//!
//! Objects it moves, with 2.6.24 rules: per data packet one `skbuff_fclone_cache` object and one 4-KiB linear buffer, from the
//! sending task to itself (freed when the acknowledgement is processed, mostly by the owner: the prequeue), shared in
//! between with the receiver; order-0 pages for payload beyond 3504 bytes; pure acknowledgements from the receiver to
//! whoever processes them. From 2.6.28 on the buffer holds headers alone and all payload lies in page fragments; without
//! the prequeue (6.x) the peer's CPU frees what was sent, unless frees are deferred to the sender's.

use serde::{Deserialize, Serialize};

use super::net::{Era, Kind, Network, rules};
use super::net_parameters as common;
use super::{Links, NativeWork, NetOp, Op, Parameter, Plan, Random, SockId, Task, Workload, check_times};
use crate::error::Error;
use crate::units::CpuId;

/// The 215 distinct exchanges of the load file with their counts.
const EXCHANGES: &str = include_str!("tbench_exchanges.csv");

/// Most clients of one run.
const MAX_CLIENTS: u64 = 4096;

/// Where client and server of a connection run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pinning {
    /// Where the scheduler puts them.
    #[default]
    Free,
    /// Both on one CPU.
    Together,
    /// On neighbouring CPUs, in order of number.
    Next,
    /// Half of the machine's CPUs apart.
    Across,
}

impl Pinning {
    /// CPUs of the tasks of pair `i`: those that `tasks` numbers, client first.
    fn of(self, i: u32, tasks: [u32; 2], cpus: u16) -> Vec<(u32, CpuId)> {
        let n = u32::from(cpus);
        let (first, second) = match self {
            Pinning::Free => return Vec::new(),
            Pinning::Together => (i, i),
            Pinning::Next => (2 * i, 2 * i + 1),
            Pinning::Across => (i, i + n / 2),
        };
        vec![(tasks[0], CpuId((first % n) as u16)), (tasks[1], CpuId((second % n) as u16))]
    }
}

/// Configuration of tbench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tbench {
    /// Connections; each has a client and a server task.
    pub clients: u64,
    /// Seconds measured.
    pub seconds: f64,
    /// Seconds before.
    pub warmup: f64,
    /// Seconds of one row of the series.
    pub interval: f64,
    /// Kernel release whose network rules hold.
    pub era: String,
    /// Where the tasks of a pair run.
    pub pinning: Pinning,
    /// Packets on a CPU's list of deferred frees; `None`: as the era has it.
    pub skb_defer: Option<u64>,
    /// Room for TCP headers in a buffer; `None`: as the era has it.
    pub tcp_header: Option<u64>,
    /// Factor on the protocol's CPU per message.
    pub protocol_scale: f64,
    /// Cache lines of its own that user code touches per exchange.
    pub user_footprint_lines: u64,
    /// What becomes of protocol work on Native.
    pub native_work: NativeWork,
}

impl Default for Tbench {
    fn default() -> Self {
        Tbench {
            clients: 8,
            seconds: 0.1,
            warmup: 0.3,
            interval: 1.0,
            era: "machine".into(),
            pinning: Pinning::Free,
            skb_defer: None,
            tcp_header: None,
            protocol_scale: 1.0,
            user_footprint_lines: 64,
            native_work: NativeWork::Skip,
        }
    }
}

impl Workload for Tbench {
    const NAME: &'static str = "tbench";
    const MEANING: &'static str =
        "file-server traffic over loopback TCP: one request and one response at a time per client";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter { name: "clients", unit: "connections", meaning: "connections; each has a client and a server task" },
        common::SECONDS,
        common::WARMUP,
        Parameter { name: "interval", unit: "s", meaning: "seconds of one row of series()" },
        common::ERA,
        Parameter {
            name: "pinning",
            unit: "",
            meaning: "client and server: free, together on one CPU, on the next CPU, or across half the machine",
        },
        common::SKB_DEFER,
        common::TCP_HEADER,
        common::PROTOCOL_SCALE,
        Parameter {
            name: "user_footprint_lines",
            unit: "cache lines",
            meaning: "lines of its own that user code touches per exchange",
        },
        common::NATIVE_WORK,
    ];

    fn check(&self) -> Result<(), Error> {
        if self.clients == 0 || self.clients > MAX_CLIENTS {
            return Err(Error::new("workload.clients", self.clients, format!("1..{MAX_CLIENTS}")));
        }
        check_times(self.seconds, self.warmup)?;
        if !(self.interval >= self.seconds / 10_000.0 && self.interval <= 3600.0) {
            return Err(Error::new("workload.interval", self.interval, "seconds / 10000 .. 3600"));
        }
        Era::check(&self.era)?;
        common::skb_defer(self.skb_defer, &self.era)?;
        common::tcp_header(self.tcp_header)?;
        common::scale(self.protocol_scale)?;
        if self.user_footprint_lines > 1 << 20 {
            return Err(Error::new("workload.user_footprint_lines", self.user_footprint_lines, "at most 1048576"));
        }
        Ok(())
    }

    fn check_on(&self, cpus: u16) -> Result<(), Error> {
        let two = matches!(self.pinning, Pinning::Next | Pinning::Across);
        if two && cpus < 2 {
            return Err(Error::new("workload.pinning", "two CPUs a pair", "free or together on a machine of one CPU"));
        }
        Ok(())
    }

    fn plan(&self, seed: u64) -> Plan {
        self.plan_on(seed, 1)
    }

    fn plan_on(&self, seed: u64, cpus: u16) -> Plan {
        let rules = rules(&self.era, self.protocol_scale, self.tcp_header, self.skb_defer);
        let table = Table::new();
        let mut tasks: Vec<Box<dyn Task>> = Vec::new();
        let mut links = Links::default();
        for i in 0..self.clients as u32 {
            // The exchange sequence of a connection is known to both ends: request and response lengths.
            let stream = Random::new(seed, u64::from(i));
            let lines = self.user_footprint_lines as u32;
            let end = |side: u32| SockId(2 * i + side);
            tasks.push(Box::new(Client {
                table: table.clone(),
                stream: stream.clone(),
                sock: end(0),
                now: [0; 3],
                phase: 0,
                lines,
            }));
            tasks.push(Box::new(Server { table: table.clone(), stream, sock: end(1), now: [0; 3], phase: 0 }));
            links.pinned.extend(self.pinning.of(i, [2 * i, 2 * i + 1], cpus));
        }
        Plan {
            caches: rules.caches(),
            net: Network::new(rules, Kind::Tcp, tasks.len() as u32),
            tasks,
            warmup_s: self.warmup,
            seconds: self.seconds,
            interval_s: self.interval,
            per_byte: true,
            scale: 1e-6,
            unit: "MB/s",
            job: None,
            native_work: self.native_work,
            links,
        }
    }
}

/// Cumulative counts over the exchanges: [request, response, counted] bytes.
#[derive(Clone)]
struct Table {
    rows: std::sync::Arc<[(u64, [u32; 3])]>,
}

impl Table {
    fn new() -> Table {
        let mut total = 0;
        let rows = EXCHANGES.lines().skip(1).map(|line| {
            let mut fields =
                line.split(',').skip(1).map(|f| f.parse::<u64>().expect("a number in tbench_exchanges.csv"));
            let mut next = || fields.next().expect("five columns");
            let (request, response, counted) = (next() as u32, next() as u32, next() as u32);
            total += next();
            (total, [request, response, counted])
        });
        Table { rows: rows.collect() }
    }
    fn draw(&self, stream: &mut Random) -> [u32; 3] {
        let total = self.rows.last().expect("rows").0;
        let at = stream.below(total);
        self.rows[self.rows.partition_point(|(sum, _)| *sum <= at)].1
    }
}

/// Sends a request, receives the response in two calls (length word, rest).
struct Client {
    table: Table,
    stream: Random,
    sock: SockId,
    now: [u32; 3],
    phase: u8,
    lines: u32,
}

impl Task for Client {
    fn step(&mut self) -> Op {
        self.phase = (self.phase + 1) % 5;
        let [request, response, counted] = self.now;
        match self.phase {
            1 => {
                self.now = self.table.draw(&mut self.stream);
                Op::User { lines: self.lines }
            }
            2 => Op::Net(NetOp::TcpSend { sock: self.sock, bytes: request }),
            3 => Op::Net(NetOp::TcpRecv { sock: self.sock, bytes: 4, end: false }),
            4 => Op::Net(NetOp::TcpRecv { sock: self.sock, bytes: response - 4, end: true }),
            _ => Op::Done { bytes: u64::from(counted) },
        }
    }
}

/// Receives a request in two calls, sends the response.
struct Server {
    table: Table,
    stream: Random,
    sock: SockId,
    now: [u32; 3],
    phase: u8,
}

impl Task for Server {
    fn step(&mut self) -> Op {
        self.phase = self.phase % 3 + 1;
        match self.phase {
            1 => {
                self.now = self.table.draw(&mut self.stream);
                Op::Net(NetOp::TcpRecv { sock: self.sock, bytes: 4, end: false })
            }
            2 => Op::Net(NetOp::TcpRecv { sock: self.sock, bytes: self.now[0] - 4, end: true }),
            _ => Op::Net(NetOp::TcpSend { sock: self.sock, bytes: self.now[1] }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_totals_of_the_load_file() {
        let table = Table::new();
        assert_eq!(table.rows.len(), 215);
        assert_eq!(table.rows.last().unwrap().0, 458_342);
        let mut before = 0;
        let mut counted = 0u64;
        for (sum, [.., c]) in table.rows.iter() {
            counted += (sum - before) * u64::from(*c);
            before = *sum;
        }
        assert_eq!(counted, 2_488_062_937);
    }

    #[test]
    fn both_ends_of_a_connection_agree_on_the_exchanges() {
        let plan = Tbench { clients: 1, ..Tbench::default() }.plan(7);
        let mut tasks = plan.tasks;
        let sent = |t: &mut Box<dyn Task>| {
            std::iter::from_fn(|| Some(t.step()))
                .filter_map(|op| match op {
                    Op::Net(NetOp::TcpSend { bytes, .. }) => Some(bytes),
                    _ => None,
                })
                .take(50)
                .collect::<Vec<_>>()
        };
        let received = |t: &mut Box<dyn Task>| {
            let ops: Vec<Op> = std::iter::from_fn(|| Some(t.step()))
                .filter(|op| matches!(op, Op::Net(NetOp::TcpRecv { .. })))
                .take(100)
                .collect();
            ops.chunks(2)
                .map(|c| {
                    c.iter()
                        .map(|op| match op {
                            Op::Net(NetOp::TcpRecv { bytes, .. }) => *bytes,
                            _ => 0,
                        })
                        .sum::<u32>()
                })
                .collect::<Vec<_>>()
        };
        let requests = sent(&mut tasks[0]);
        assert_eq!(requests, received(&mut tasks[1]));
    }

    #[test]
    fn impossible_values_are_refused_by_name() {
        for (t, name) in [
            (Tbench { clients: 0, ..Tbench::default() }, "workload.clients = 0"),
            (Tbench { seconds: f64::NAN, ..Tbench::default() }, "workload.seconds"),
            (Tbench { seconds: 1e-300, ..Tbench::default() }, "0.000001..3600"),
            (Tbench { seconds: 0.0, ..Tbench::default() }, "workload.seconds = 0: 0.000001..3600"),
            (Tbench { warmup: -1.0, ..Tbench::default() }, "workload.warmup = -1"),
            (Tbench { era: "2.6.25".into(), ..Tbench::default() }, "workload.era"),
        ] {
            assert!(t.check().unwrap_err().to_string().contains(name));
        }
    }
}
