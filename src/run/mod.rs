//! FLOOR 5. Where machine and workload meet: the executor, the dispatch from names to types, sweeps, results.

mod catalog;
mod config;
mod dispatch;
mod exec;
mod mapped;
mod measured;
mod net;
mod probe;
mod report;
mod result;
mod sched;
pub mod script;
mod sweep;
mod timeline;

pub use crate::machine::sim::Cancel;
pub use catalog::catalog;
pub use config::{Config, MachineConfig};
pub use probe::probe;
pub use result::{Column, Frame, Outcome};
pub use sweep::run_many;

use serde_json::{Value, json};

use crate::error::Error;

/// Version of the core.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why a run did not end with a result.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The configuration is refused.
    Config(Error),
    /// Stopped from outside.
    Cancelled,
    /// An invariant was broken, or the core panicked: the message.
    Corruption(String),
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        Failure::Config(e)
    }
}

/// A complete configuration from what the user gave, with every default filled in:
/// `{"machine": {"name", "cpus", …}, "allocator": {"name", "era", …}, "workload": {"name", …}, "seed": 1}`.
pub fn expand(given: &Value) -> Result<Value, Error> {
    Config::from_json(given).map(|c| c.to_json())
}

/// The simulated machine of a part of a configuration, `{"name", "cpus", …}`: every figure with its unit, source and
/// confidence, the CPUs in use with their places, and the memory of each node.
pub fn machine(given: &Value) -> Result<Value, Error> {
    let config = Config::from_json(&json!({
        "machine": given,
        "allocator": "null",
        "workload": { "name": "script", "ops": [] },
    }))?;
    if config.machine.is_native() {
        return Err(Error::new("machine", "\"native\"", "a simulated machine"));
    }
    let hardware = config.machine.machinery()?;
    let topology = hardware.topology();
    let cpus: Vec<Value> = topology
        .cpu_ids()
        .map(|cpu| {
            let p = topology.place(cpu);
            json!({ "cpu": cpu.0, "socket": p.socket, "core": p.core, "l2": p.l2, "llc": p.llc, "node": p.node.0 })
        })
        .collect();
    let memory: Vec<u64> = topology.node_ids().map(|n| topology.node_bytes(n)).collect();
    Ok(json!({
        "name": hardware.name,
        "placement": hardware.placement,
        "values": hardware.values,
        "cpus": cpus,
        "node_bytes": memory,
    }))
}

/// Runs one configuration (as given or expanded).
pub fn run(config: &Value, cancel: &Cancel) -> Result<Outcome, Failure> {
    dispatch::run(&Config::from_json(config)?, cancel)
}
