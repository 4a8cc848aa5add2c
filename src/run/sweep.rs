//! Many runs: simulated ones side by side on the host's cores, native ones one at a time.

use rayon::prelude::*;
use serde_json::Value;

use crate::machine::sim::Cancel;

use super::{Config, Failure, Outcome, dispatch};

/// Most host threads of one sweep.
const MAX_THREADS: usize = 256;

/// Runs many configurations: simulated ones on `threads` host threads (all cores when `None`), then native ones one at a
/// time. `wanted` is asked just before each begins; one that is not wanted any more is left out. `done` gets each outcome
/// as it ends, with its index; nothing of it is kept here, so that a long sweep's memory is its caller's choice.
pub fn run_many(
    configs: &[Value],
    threads: Option<usize>,
    cancel: &Cancel,
    wanted: &(dyn Fn(usize) -> bool + Sync),
    done: &(dyn Fn(usize, Result<Outcome, Failure>) + Sync),
) {
    let parsed: Vec<Result<Config, Failure>> =
        configs.iter().map(|c| Config::from_json(c).map_err(Failure::from)).collect();
    let one = |i: usize| {
        if !wanted(i) {
            return;
        }
        let outcome = match &parsed[i] {
            _ if cancel.is_cancelled() => Err(Failure::Cancelled),
            Ok(config) => dispatch::run(config, cancel),
            Err(failure) => Err(failure.clone()),
        };
        done(i, outcome);
    };
    let native = |i: &usize| matches!(&parsed[*i], Ok(c) if c.machine.is_native());
    let (alone, together): (Vec<usize>, Vec<usize>) = (0..parsed.len()).partition(native);
    // More threads than runs, or than any host has cores for, would only cost memory.
    let threads = threads.unwrap_or(0).min(together.len().max(1)).min(MAX_THREADS);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
    // One configuration at a time per thread, in order: a run is long, and neighbours differ in length.
    pool.install(|| together.into_par_iter().with_max_len(1).for_each(one));
    alone.into_iter().for_each(one);
}
