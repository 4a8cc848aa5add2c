//! FLOOR 5. Where machine and workload meet: the executor, the dispatch from names to types, sweeps, results.

mod result;

pub use crate::machine::sim::Cancel;
pub use result::{Column, Frame, Outcome};

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

/// A complete configuration from what the user gave, with every default filled in.
/// `{"machine": {"name", "cpus", …}, "allocator": {"name", "era", …}, "workload": {"name", …}, "seed": 1}`
pub fn expand(given: &Value) -> Result<Value, Error> {
    Ok(given.clone())
}

/// Runs one configuration (as given or expanded).
pub fn run(config: &Value, cancel: &Cancel) -> Result<Outcome, Failure> {
    let _ = (config, cancel);
    Err(Failure::Config(Error::new("workload", "nothing", "no workload is built yet")))
}

/// Runs many configurations: simulated ones on `threads` host threads (all cores when `None`), native ones one at a
/// time. `done` hears of each as it ends, with its index. The order of the results is that of the configurations.
pub fn run_many(
    configs: &[Value],
    threads: Option<usize>,
    cancel: &Cancel,
    done: &(dyn Fn(usize, &Result<Outcome, Failure>) + Sync),
) -> Vec<Result<Outcome, Failure>> {
    let _ = threads;
    configs
        .iter()
        .enumerate()
        .map(|(i, c)| {
            let outcome = run(c, cancel);
            done(i, &outcome);
            outcome
        })
        .collect()
}

/// What exists: allocators with eras and parameters, workloads, machines, statistics; defaults, units, meanings.
pub fn catalog() -> Value {
    json!({ "version": VERSION, "allocators": [], "workloads": [], "machines": [], "statistics": [] })
}
