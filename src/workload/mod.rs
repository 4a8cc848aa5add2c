//! FLOOR 4. Workloads: tasks that *say* what they want; the executor does it.
//!
//! A [`Task`] is a state machine: `step` names the next [`Op`]. It knows no allocator, no machine and no CPU, so a
//! workload is compiled once and runs on any of them. Time-dependent decisions (who is woken, who frees) are the
//! executor's; everything random comes from the task's own seeded stream.
//!
//! A workload is added by writing its file and one line in [`workloads!`].
//!
//! # A workload in one file
//!
//! Two tasks: the first takes 512-byte objects and sends them, the second frees them on whichever CPU it runs.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use slablab::error::Error;
//! use slablab::spec::CacheSpec;
//! use slablab::units::Picos;
//! use slablab::workload::{Links, Op, Parameter, Plan, QueueSpec, Task, What, Workload};
//!
//! /// Configuration of relay.
//! #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
//! #[serde(deny_unknown_fields)]
//! pub struct Relay {
//!     /// Objects under way.
//!     pub depth: u64,
//! }
//!
//! impl Default for Relay {
//!     fn default() -> Self {
//!         Relay { depth: 16 }
//!     }
//! }
//!
//! impl Workload for Relay {
//!     const NAME: &'static str = "relay";
//!     const MEANING: &'static str = "one task takes objects, another frees them";
//!     const PARAMETERS: &'static [Parameter] =
//!         &[Parameter { name: "depth", unit: "objects", meaning: "objects under way at the most" }];
//!
//!     fn check(&self) -> Result<(), Error> {
//!         if self.depth == 0 { Err(Error::new("workload.depth", 0, "1 or more")) } else { Ok(()) }
//!     }
//!
//!     fn plan(&self, _seed: u64) -> Plan {
//!         let giver = [Op::Alloc { what: What::Cache(0), into: 0 }, Op::Send { queue: 0, from: 0, count: 1 }];
//!         let taker = [Op::Recv { queue: 0, into: 0 }, Op::Free { slot: 0 }, Op::Done { bytes: 0 }];
//!         let tasks: Vec<Box<dyn Task>> = vec![Box::new(Round(giver.into(), 0)), Box::new(Round(taker.into(), 0))];
//!         let queue = QueueSpec { capacity: self.depth as u32, delay: Picos(0) };
//!         Plan {
//!             warmup_s: 0.01,
//!             seconds: 0.05,
//!             links: Links { queues: vec![queue], ..Links::default() },
//!             ..Plan::of(vec![CacheSpec::new("relayed", 512)], tasks, "objects/s")
//!         }
//!     }
//! }
//!
//! /// Says its operations round and round.
//! struct Round(Vec<Op>, usize);
//!
//! impl Task for Round {
//!     fn step(&mut self) -> Op {
//!         self.1 += 1;
//!         self.0[(self.1 - 1) % self.0.len()]
//!     }
//! }
//!
//! let relay = Relay::from_json(&serde_json::json!({ "depth": 4 })).unwrap();
//! let config = serde_json::json!({ "machine": "opteron-2x4-2007", "allocator": "slub", "workload": "tbench" });
//! let outcome = slablab::run::run_plan(&config, relay.plan(1), &Default::default()).unwrap();
//! assert!(outcome.summary["free_remote_pct"].as_f64().unwrap() > 0.0);
//! ```

pub mod aim7;
pub mod boot;
pub mod compose;
pub mod dbench;
pub mod hackbench;
pub mod kbuild;
mod kernel;
pub mod net;
mod net_parameters;
pub mod netperf;
pub mod null_tests;
pub mod oltp;
mod process;
pub(crate) mod random;
pub mod script;
pub mod slab_test;
pub mod tbench;
pub mod volanomark;

pub use net::{NetOp, SockId};
pub use random::Random;

use std::ops::RangeInclusive;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;
use crate::spec::CacheSpec;
use crate::units::{CpuId, Picos};

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
    /// One operation is complete.
    Done {
        /// Bytes it counts in the workload's throughput.
        bytes: u64,
    },
    /// Takes something into a slot of the task; what the slot held is given back first. Out of memory: the slot stays
    /// empty, what is done with it later does nothing, and the failure is counted.
    Alloc {
        /// What.
        what: What,
        /// Slot.
        into: u32,
    },
    /// Gives back what a slot holds: object, kmalloc memory or pages.
    Free {
        /// Slot.
        slot: u32,
    },
    /// Gives it back on this CPU once a grace period has passed (kernel: call_rcu with a freeing callback).
    FreeRcu {
        /// Slot.
        slot: u32,
    },
    /// Takes `count` objects of one cache in one call, into slots from `into` on (kernel: kmem_cache_alloc_bulk).
    AllocBulk {
        /// Index in [`Plan::caches`].
        cache: u32,
        /// First slot.
        into: u32,
        /// Objects.
        count: u32,
    },
    /// Gives back `count` objects of one cache in one call (kernel: kmem_cache_free_bulk).
    FreeBulk {
        /// First slot.
        from: u32,
        /// Objects.
        count: u32,
    },
    /// Reads or writes the first bytes of what a slot holds, one access per cache line.
    Touch {
        /// Slot.
        slot: u32,
        /// Bytes; no more than it has are touched.
        bytes: u32,
        /// Written, else read.
        write: bool,
    },
    /// Copies payload into (`write`) or out of what a slot holds.
    Copy {
        /// Slot.
        slot: u32,
        /// Bytes; no more than it has are copied.
        bytes: u32,
        /// Into it.
        write: bool,
    },
    /// Enters and leaves the kernel.
    Syscall,
    /// Works for so long, in user or kernel code that is not modelled in detail. Left out on Native unless
    /// [`NativeWork::Spin`].
    Compute {
        /// How long.
        time: Picos,
    },
    /// Passes the contents of `count` slots to whoever receives from the queue; sleeps while the queue is full.
    Send {
        /// Index in [`Links::queues`].
        queue: u32,
        /// First slot.
        from: u32,
        /// Slots.
        count: u32,
    },
    /// Takes the oldest message of a queue into slots from `into` on; sleeps until there is one.
    Recv {
        /// Index in [`Links::queues`].
        queue: u32,
        /// First slot.
        into: u32,
    },
    /// Sleeps until another task wakes this one; returns at once if one has done so since it last slept.
    Sleep,
    /// Wakes a task.
    Wake {
        /// Index in [`Plan::tasks`].
        task: u32,
    },
    /// Sleeps for so long.
    Pause {
        /// How long.
        time: Picos,
    },
    /// Lets the other tasks of the CPU run first (kernel: sched_yield).
    Yield,
    /// Sleeps until all parties of the barrier are here.
    Barrier {
        /// Index in [`Links::barriers`].
        barrier: u32,
    },
    /// Starts a stopwatch.
    Start,
    /// Reads it: the time since [`Op::Start`] took `ops` operations, and is added to a row of [`Links::laps`].
    Lap {
        /// Row.
        lap: u32,
        /// Operations.
        ops: u32,
    },
    /// The task is over: what its slots hold is freed here. When all tasks are over, so is the run.
    Exit,
}

/// What an allocation takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// An object of a cache: index in [`Plan::caches`].
    Cache(u32),
    /// So many bytes of kmalloc memory.
    Kmalloc(u32),
    /// Pages of an order, outside the slab layer.
    Pages(u8),
}

/// A bounded queue between tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSpec {
    /// Messages it holds before a sender sleeps.
    pub capacity: u32,
    /// How long a message is under way before it can be received (a disk, a wire). Messages stay in order.
    pub delay: Picos,
}

/// What is timed: one row of the `laps` frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LapSpec {
    /// Which test.
    pub test: &'static str,
    /// Which half of it, as `alloc`.
    pub part: &'static str,
    /// Bytes of an object.
    pub size: u64,
    /// Objects of one bulk call, else 1.
    pub bulk: u64,
}

/// What ties the tasks of a plan together and to CPUs. Empty for workloads that need none of it.
#[derive(Clone, Default, Debug)]
pub struct Links {
    /// Queues, by index.
    pub queues: Vec<QueueSpec>,
    /// Barriers, by index: the number of tasks that meet there.
    pub barriers: Vec<u32>,
    /// Rows of the stopwatch.
    pub laps: Vec<LapSpec>,
    /// CPU that the task of this index never leaves.
    pub pinned: Vec<(u32, CpuId)>,
    /// Tasks are threads of one process: switching between them changes no address space.
    pub threads: bool,
    /// Tasks that run before all others of their CPU and interrupt them (interrupt handlers).
    pub urgent: Vec<u32>,
    /// Caches that the kernel made before it counted its CPUs (recorded boots).
    pub early: Vec<u32>,
    /// The caches are reported as they are at the end of the run, before the executor frees what tasks still hold.
    pub as_left: bool,
    /// kB in use that no slab allocator gave out, which a report counts.
    pub other_kb: u64,
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
    /// Queues, barriers, CPUs of tasks.
    pub links: Links,
}

impl Plan {
    /// A plan without sockets: tasks that use no network operations.
    pub fn of(caches: Vec<CacheSpec>, tasks: Vec<Box<dyn Task>>, unit: &'static str) -> Plan {
        Plan {
            caches,
            tasks,
            net: net::Network::none(),
            warmup_s: 0.0,
            seconds: 3600.0,
            interval_s: 1.0,
            per_byte: false,
            scale: 1.0,
            unit,
            job: None,
            native_work: NativeWork::Skip,
            links: Links::default(),
        }
    }
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

/// Shortest measurement: a microsecond, which is a million ticks of the virtual clock and less than any system call.
const MIN_SECONDS: f64 = 1e-6;

/// Refuses a number outside its range.
pub(crate) fn check_whole(name: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), Error> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Error::new(format!("workload.{name}"), value, format!("{}..{}", range.start(), range.end())))
}

/// Refuses impossible times of measurement and warm-up.
pub(crate) fn check_times(seconds: f64, warmup: f64) -> Result<(), Error> {
    if !(MIN_SECONDS..=3600.0).contains(&seconds) {
        return Err(Error::new("workload.seconds", seconds, "0.000001..3600"));
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
            "dbench" => $crate::workload::dbench::Dbench;
            "kbuild" => $crate::workload::kbuild::Kbuild;
            "aim7" => $crate::workload::aim7::Aim7;
            "oltp" => $crate::workload::oltp::Oltp;
            "specjbb" => $crate::workload::null_tests::Specjbb;
            "cpu2k" => $crate::workload::null_tests::Cpu2k;
            "boot" => $crate::workload::boot::Boot;
            "compose" => $crate::workload::compose::Compose;
            "slab_test" => $crate::workload::slab_test::SlabTest;
        }
    };
}
