//! FLOOR 5. Where machine and workload meet: the executor, the dispatch from names to types, sweeps, results.

mod catalog;
mod config;
mod dispatch;
mod exec;
mod geometry;
mod job;
mod mapped;
mod measured;
mod net;
mod objects;
mod probe;
mod profile;
mod report;
mod result;
mod sched;
pub mod script;
mod sweep;
mod table;
mod timeline;

pub use crate::machine::sim::Cancel;
pub use catalog::catalog;
pub use config::{Config, MachineConfig};
pub use geometry::geometry;
pub use probe::probe;
pub use result::{Column, Frame, Outcome};
pub use sweep::run_many;

use serde_json::{Value, json};

use crate::alloc::tool::Report;
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

/// What the slabinfo tool prints with `options` of an outcome's `tool` (JSON).
pub fn slabinfo(tool: &str, options: &str) -> Result<String, Error> {
    read(tool)?.print(options)
}

/// The attributes of a cache in sysfs by any of its names, from an outcome's `tool` (JSON). Ids, as `#3`, mean the cache of
/// that number.
pub fn sysfs(tool: &str, cache: &str) -> Result<Value, Error> {
    let report = read(tool)?;
    let number = cache.strip_prefix('#').and_then(|n| n.parse::<u32>().ok());
    let found = match number {
        Some(number) => report.caches.iter().find(|d| d.cache == number),
        None => report.find(cache),
    };
    let names: Vec<&str> =
        report.caches.iter().flat_map(|d| std::iter::once(&d.name).chain(&d.links)).map(String::as_str).collect();
    found.map(|d| report.sysfs(d).into()).ok_or_else(|| Error::unknown("cache", cache, &names))
}

fn read(tool: &str) -> Result<Report, Error> {
    serde_json::from_str(tool).map_err(|e| Error::new("tool", format!("{} bytes", tool.len()), e.to_string()))
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

/// Runs tasks that are not in the registry, on the machine and the allocator of a configuration; its workload is put aside.
pub fn run_plan(config: &Value, plan: crate::workload::Plan, cancel: &Cancel) -> Result<Outcome, Failure> {
    dispatch::run_plan(&Config::from_json(config)?, plan, cancel)
}
