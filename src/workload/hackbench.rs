//! hackbench: groups of senders and receivers that pass short messages (workloads.md §5).
//!
//! Objects it moves, over sockets: per message one `skbuff_head_cache` object and one small kmalloc buffer, from the sending
//! task's CPU to the receiving task's, where both are freed, first in first out; some hundred of them wait in each socket.
//! Over pipes it moves pages alone.
//!
//! What runs is the steady state: after the warm-up messages are counted for some time, and the time of the whole job
//! follows by scaling (`job_ops`, `scaled_by` in the result). Starting the tasks and their end are not in it. Writing a
//! message and reading it count half each: with many groups they come in bursts, longer than any affordable run.

use serde::{Deserialize, Serialize};

use super::net::{Era, Kind, Network, rules};
use super::net_parameters as common;
use super::{Links, NativeWork, NetOp, Op, Parameter, Plan, SockId, Task, Workload, check_times, check_whole};
use crate::error::Error;

/// Most tasks of one run.
const MAX_TASKS: u64 = 1 << 16;

/// Whether tasks share memory and files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Each is a process.
    #[default]
    Process,
    /// All are threads of one process.
    Thread,
}

/// What messages pass through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Stream socket pairs of AF_UNIX.
    #[default]
    Socket,
    /// Pipes.
    Pipe,
}

/// Configuration of hackbench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hackbench {
    /// Groups.
    pub groups: u64,
    /// Senders, and receivers, of a group.
    pub fds: u64,
    /// Messages that each sender sends to each receiver in the whole job.
    pub loops: u64,
    /// Bytes of a message.
    pub datasize: u64,
    /// Processes or threads.
    pub mode: Mode,
    /// Sockets or pipes.
    pub transport: Transport,
    /// SO_SNDBUF that is asked for; `None`: the era's.
    pub sndbuf: Option<u64>,
    /// Seconds measured.
    pub seconds: f64,
    /// Seconds before.
    pub warmup: f64,
    /// Kernel release whose network rules hold.
    pub era: String,
    /// A memory cgroup accounts for socket buffers.
    pub memcg: bool,
    /// Factor on the protocol's CPU per message.
    pub protocol_scale: f64,
    /// What becomes of protocol work on Native.
    pub native_work: NativeWork,
}

impl Default for Hackbench {
    fn default() -> Self {
        Hackbench {
            groups: 10,
            fds: 20,
            loops: 100,
            datasize: 100,
            mode: Mode::Process,
            transport: Transport::Socket,
            sndbuf: None,
            seconds: 0.1,
            warmup: 0.1,
            era: "machine".into(),
            memcg: false,
            protocol_scale: 1.0,
            native_work: NativeWork::Skip,
        }
    }
}

impl Workload for Hackbench {
    const NAME: &'static str = "hackbench";
    const MEANING: &'static str = "groups of tasks pass short messages over sockets or pipes; seconds of the whole job, scaled from its steady state";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter { name: "groups", unit: "groups", meaning: "groups, each of fds senders and fds receivers" },
        Parameter { name: "fds", unit: "descriptors", meaning: "senders, and receivers, of a group" },
        Parameter {
            name: "loops",
            unit: "messages",
            meaning: "messages from each sender to each receiver of its group in the whole job",
        },
        Parameter { name: "datasize", unit: "bytes", meaning: "bytes of a message" },
        Parameter { name: "mode", unit: "", meaning: "process, or thread: tasks share memory and file table" },
        Parameter { name: "transport", unit: "", meaning: "socket (AF_UNIX stream pairs) or pipe" },
        Parameter {
            name: "sndbuf",
            unit: "bytes",
            meaning: "SO_SNDBUF asked for, which the kernel doubles (unset: the era's default)",
        },
        common::SECONDS,
        Parameter { name: "warmup", unit: "s", meaning: "seconds before the measurement, to fill the sockets" },
        common::ERA,
        Parameter {
            name: "memcg",
            unit: "",
            meaning: "a memory cgroup accounts for socket buffers: they come from kmalloc, not skbuff_small_head (6.18)",
        },
        common::PROTOCOL_SCALE,
        common::NATIVE_WORK,
    ];

    fn check(&self) -> Result<(), Error> {
        check_whole("fds", self.fds, 1..=1024)?;
        check_whole("groups", self.groups, 1..=MAX_TASKS / (2 * self.fds))?;
        check_whole("loops", self.loops, 1..=1 << 40)?;
        check_whole("datasize", self.datasize, 1..=1 << 16)?;
        if self.sndbuf.is_some_and(|b| !(1024..=16 << 20).contains(&b)) {
            return Err(Error::new("workload.sndbuf", self.sndbuf.unwrap_or(0), "1024..16777216, or null"));
        }
        if self.sndbuf.is_some() && self.transport == Transport::Pipe {
            return Err(Error::new("workload.sndbuf", self.sndbuf.unwrap_or(0), "null: pipes have no socket buffers"));
        }
        check_times(self.seconds, self.warmup)?;
        Era::check(&self.era)?;
        let has_small_heads = self.era == "machine" || self.era == "6.18";
        if self.memcg && (self.transport == Transport::Pipe || !has_small_heads) {
            return Err(Error::new("workload.memcg", true, "false: it matters to sockets of 6.18 alone"));
        }
        common::scale(self.protocol_scale)
    }

    fn plan(&self, _seed: u64) -> Plan {
        let mut rules = rules(&self.era, self.protocol_scale, None, None);
        rules.unix_small &= !self.memcg;
        let (groups, fds, bytes) = (self.groups as u32, self.fds as u32, self.datasize as u32);
        let pipes = self.transport == Transport::Pipe;
        let mut tasks: Vec<Box<dyn Task>> = Vec::new();
        for group in 0..groups {
            let first = group * fds;
            for fd in first..first + fds {
                let read = NetOp::UnixRecv { sock: SockId(2 * fd + 1), bytes };
                let read = if pipes { NetOp::PipeRead { pipe: fd, bytes } } else { read };
                tasks.push(Box::new(Receiver { read, done: false }));
            }
            (0..fds).for_each(|_| tasks.push(Box::new(Sender { pipes, first, fds, bytes, next: 0 })));
        }
        let ends = groups * fds;
        let net = Network {
            pipes: if pipes { ends } else { 0 },
            sndbuf: self.sndbuf.map_or(rules.buffer, |b| 2 * b as u32),
            shared_files: self.mode == Mode::Thread,
            ..Network::new(rules.clone(), Kind::Unix, if pipes { 0 } else { 2 * ends })
        };
        Plan {
            caches: rules.caches(),
            tasks,
            net,
            warmup_s: self.warmup,
            seconds: self.seconds,
            interval_s: 1.0,
            per_byte: false,
            scale: 1.0,
            unit: "s",
            job: Some(self.groups * self.fds * self.fds * self.loops),
            native_work: self.native_work,
            links: Links { threads: self.mode == Mode::Thread, ..Links::default() },
        }
    }
}

/// Sends a message to each receiver of its group in turn.
struct Sender {
    pipes: bool,
    first: u32,
    fds: u32,
    bytes: u32,
    next: u32,
}

impl Task for Sender {
    fn step(&mut self) -> Op {
        let fd = self.first + self.next;
        self.next = (self.next + 1) % self.fds;
        Op::Net(if self.pipes {
            NetOp::PipeWrite { pipe: fd, bytes: self.bytes }
        } else {
            NetOp::UnixSend { sock: SockId(2 * fd), bytes: self.bytes }
        })
    }
}

/// Reads one message after the other. A message that has been read is one operation.
struct Receiver {
    read: NetOp,
    done: bool,
}

impl Task for Receiver {
    fn step(&mut self) -> Op {
        self.done = !self.done;
        if self.done { Op::Net(self.read) } else { Op::Done { bytes: 0 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_as_many_senders_as_receivers_and_the_job_all_their_messages() {
        let plan = Hackbench { groups: 3, loops: 1000, era: "3.0".into(), ..Hackbench::default() }.plan(1);
        assert_eq!((plan.tasks.len(), plan.net.socks), (3 * 40, 3 * 40));
        assert_eq!(plan.job, Some(400 * 3 * 1000));
    }

    #[test]
    fn impossible_values_are_refused_by_name() {
        let good = Hackbench::default;
        for (h, name) in [
            (Hackbench { groups: 0, ..good() }, "workload.groups = 0"),
            (Hackbench { fds: 0, ..good() }, "workload.fds = 0"),
            (Hackbench { loops: 0, ..good() }, "workload.loops = 0"),
            (Hackbench { datasize: 0, ..good() }, "workload.datasize = 0"),
            (Hackbench { groups: 100_000, ..good() }, "workload.groups = 100000"),
            (Hackbench { sndbuf: Some(0), ..good() }, "workload.sndbuf = 0"),
            (Hackbench { sndbuf: Some(4096), transport: Transport::Pipe, ..good() }, "workload.sndbuf = 4096"),
            (Hackbench { memcg: true, era: "3.0".into(), ..good() }, "workload.memcg"),
            (Hackbench { era: "2.4".into(), ..good() }, "workload.era"),
        ] {
            let said = h.check().unwrap_err().to_string();
            assert!(said.contains(name), "{said}");
        }
    }
}
