//! FLOOR 4. Workloads: tasks that *say* what they want; the executor does it.
//!
//! A [`Task`] is a state machine: `step` names the next [`Op`]. It knows no allocator, no machine and no CPU, so a
//! workload is compiled once and runs on any of them. Time-dependent decisions (who is woken, who frees) are the
//! executor's; everything random comes from the task's own seeded stream.
//!
//! A workload is added by writing its file and one line in [`workloads!`].

pub mod hackbench;
pub mod net;
pub mod netperf;
pub(crate) mod random;
pub mod script;
pub mod tbench;
pub mod volanomark;

pub use net::{NetOp, SockId};
pub use random::Random;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;
use crate::spec::CacheSpec;
use crate::units::CpuId;

/// What a task wants next. The list is closed: the executor interprets every one on every machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Runs user code that touches so many cache lines of its own.
    User {
        /// Lines touched besides payload.
        lines: u32,
    },
    /// Does something with a socket, a pipe or a room: see there.
    Net(net::NetOp),
    /// Lets the other tasks of the CPU run first (kernel: sched_yield).
    Yield,
    /// One operation is complete.
    Done {
        /// Bytes it counts in the workload's throughput.
        bytes: u64,
    },
}

/// A state machine that says what it wants.
pub trait Task: Send {
    /// The next operation.
    fn step(&mut self) -> Op;
}

/// A workload's description of one run.
pub struct Plan {
    /// Caches it needs besides kmalloc, in the order that `net` and others name them.
    pub caches: Vec<CacheSpec>,
    /// Tasks in order of start.
    pub tasks: Vec<Box<dyn Task>>,
    /// Sockets, pipes, rooms and the wire, with the rules that hold for them.
    pub net: net::Network,
    /// Virtual (or wall) seconds before measuring begins.
    pub warmup_s: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// Seconds of one row of the series.
    pub interval_s: f64,
    /// What throughput is: `Done` bytes (true) or operations, times `scale`, per second.
    pub per_byte: bool,
    /// Factor of the unit.
    pub scale: f64,
    /// Unit of throughput.
    pub unit: &'static str,
    /// Operations of the whole job, if throughput is the seconds that it would take at the measured rate.
    pub job: Option<u64>,
    /// Whether protocol work is spun through on Native.
    pub native_work: NativeWork,
    /// CPUs of tasks.
    pub links: Links,
}

/// What ties the tasks of a plan together and to CPUs. Empty for workloads that need none of it.
#[derive(Clone, Default, Debug)]
pub struct Links {
    /// CPU that the task of this index never leaves.
    pub pinned: Vec<(u32, CpuId)>,
    /// Tasks are threads of one process: switching between them changes no address space.
    pub threads: bool,
}

/// What becomes of protocol work on a machine that cannot model it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NativeWork {
    /// It is left out: the result is the allocator's share only.
    #[default]
    Skip,
    /// It is spun through.
    Spin,
}

/// One workload parameter.
pub use crate::spec::Parameter;

/// A workload's configuration and how it makes tasks.
pub trait Workload: Clone + Serialize + DeserializeOwned + Default + PartialEq + std::fmt::Debug {
    /// Name (`tbench`).
    const NAME: &'static str;
    /// One line: what it is.
    const MEANING: &'static str;
    /// Every parameter.
    const PARAMETERS: &'static [Parameter];

    /// Refuses impossible values, naming the parameter (`workload.clients`).
    fn check(&self) -> Result<(), Error>;
    /// The tasks of one run.
    fn plan(&self, seed: u64) -> Plan;
    /// Refuses what cannot run on a machine of so many CPUs.
    fn check_on(&self, _cpus: u16) -> Result<(), Error> {
        Ok(())
    }
    /// The tasks of one run on a machine of so many CPUs, for workloads that depend on their number.
    fn plan_on(&self, seed: u64, _cpus: u16) -> Plan {
        self.plan(seed)
    }

    /// A complete configuration from a JSON object that may name any parameters.
    fn from_json(given: &Value) -> Result<Self, Error> {
        let full = crate::spec::merge_fields("workload", Self::NAME, &Self::default(), given, Self::PARAMETERS)?;
        full.check()?;
        Ok(full)
    }
}

/// Refuses impossible times of measurement and warm-up.
pub(crate) fn check_times(seconds: f64, warmup: f64) -> Result<(), Error> {
    if !(seconds > 0.0 && seconds <= 3600.0) {
        return Err(Error::new("workload.seconds", seconds, "more than 0, at most 3600"));
    }
    if !(0.0..=3600.0).contains(&warmup) {
        return Err(Error::new("workload.warmup", warmup, "0..3600"));
    }
    Ok(())
}

/// The registry: each workload's configuration type, by name.
#[macro_export]
macro_rules! workloads {
    ($with:ident) => {
        $with! {
            "tbench" => $crate::workload::tbench::Tbench;
            "hackbench" => $crate::workload::hackbench::Hackbench;
            "netperf" => $crate::workload::netperf::Netperf;
            "volanomark" => $crate::workload::volanomark::Volanomark;
        }
    };
}
