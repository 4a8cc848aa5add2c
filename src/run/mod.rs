//! FLOOR 5. Where machine and workload meet: the executor, the dispatch from names to types, sweeps, results.

mod catalog;
mod config;
mod dispatch;
mod exec;
mod mapped;
mod measured;
mod net;
mod objects;
mod profile;
mod report;
mod result;
mod sched;
pub mod script;
mod sweep;
mod timeline;

pub use crate::machine::sim::Cancel;
pub use catalog::catalog;
pub use config::{Config, MachineConfig};
pub use result::{Column, Frame, Outcome};
pub use sweep::run_many;

use serde_json::Value;

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

/// Runs one configuration (as given or expanded).
pub fn run(config: &Value, cancel: &Cancel) -> Result<Outcome, Failure> {
    dispatch::run(&Config::from_json(config)?, cancel)
}

/// Runs tasks that are not in the registry, on the machine and the allocator of a configuration; its workload is put aside.
pub fn run_plan(config: &Value, plan: crate::workload::Plan, cancel: &Cancel) -> Result<Outcome, Failure> {
    dispatch::run_plan(&Config::from_json(config)?, plan, cancel)
}
