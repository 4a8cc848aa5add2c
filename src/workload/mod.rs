//! FLOOR 4. Workloads: tasks that *say* what they want; the executor does it.
//!
//! A [`Task`] is a state machine: `step` names the next [`Op`]. It knows no allocator, no machine and no CPU, so a
//! workload is compiled once and runs on any of them. Time-dependent decisions (who is woken, who frees) are the
//! executor's; everything random comes from the task's own seeded stream.
//!
//! A workload is added by writing its file and one line in [`workloads!`].

pub mod net;
pub(crate) mod random;
pub mod script;
pub mod tbench;

pub use random::Random;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;
use crate::spec::CacheSpec;

/// A connected socket's end, counted through the workload. Ends 2i and 2i + 1 are connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SockId(pub u32);

impl SockId {
    /// The other end of the connection.
    pub fn peer(self) -> SockId {
        SockId(self.0 ^ 1)
    }
}

/// What a task wants next. The list is closed: the executor interprets every one on every machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Runs user code that touches so many cache lines of its own.
    User {
        /// Lines touched besides payload.
        lines: u32,
    },
    /// Sends a message over TCP (system call, segments, one packet each).
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
    /// Number of socket ends.
    pub socks: u32,
    /// Owner of each socket end: index into `tasks`.
    pub sock_owner: Vec<u32>,
    /// Network rules and protocol costs.
    pub net: net::Rules,
    /// Virtual (or wall) seconds before measuring begins.
    pub warmup_s: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// What throughput is: `Done` bytes (true) or operations, times `scale`, per second.
    pub per_byte: bool,
    /// Factor of the unit.
    pub scale: f64,
    /// Unit of throughput.
    pub unit: &'static str,
    /// Whether protocol work is spun through on Native.
    pub native_work: NativeWork,
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

    /// A complete configuration from a JSON object that may name any parameters.
    fn from_json(given: &Value) -> Result<Self, Error> {
        let full = crate::spec::merge_fields("workload", Self::NAME, &Self::default(), given, Self::PARAMETERS)?;
        full.check()?;
        Ok(full)
    }
}

/// The registry: each workload's configuration type, by name.
#[macro_export]
macro_rules! workloads {
    ($with:ident) => {
        $with! {
            "tbench" => $crate::workload::tbench::Tbench;
        }
    };
}
