//! The door between Python and the core: configurations come in as JSON, results go out as columns.
//!
//! Five functions, private to the package; people meet `slablab.run`, `slablab.sweep` and their frames.

mod columns;
mod error;
mod gate;

use pyo3::prelude::*;

use columns::Crossing;
use slablab::run::{self, Failure, Outcome};

/// The compiled part of slablab.
#[pymodule(gil_used = true)]
mod _core {
    #[pymodule_export]
    use super::error::{ConfigError, SlabCorruption};
    #[pymodule_export]
    use super::{catalog, expand, run_many, run_one, version};
}

/// Runs one configuration. Returns its document (JSON: config, summary, texts, checkpoints, host) and its frames by name.
#[pyfunction]
#[pyo3(name = "run")]
fn run_one<'py>(py: Python<'py>, config: &str) -> PyResult<Crossing<'py>> {
    let config = error::document(config)?;
    let outcome = gate::pass(py, |cancel, _: gate::Teller<()>| run::run(&config, cancel), |_, ()| Ok(()))?;
    columns::cross(py, &outcome.map_err(|failure| error::raise(py, failure))?)
}

/// Runs many configurations: simulated ones side by side on `threads` host threads (all cores when None), native ones
/// one at a time. `done(index, outcome)` hears of each as it ends, in the calling thread; an outcome is what `run`
/// returns, or the exception it would have raised.
#[pyfunction]
#[pyo3(signature = (configs, threads, done))]
fn run_many(py: Python<'_>, configs: Vec<String>, threads: Option<usize>, done: Py<PyAny>) -> PyResult<()> {
    let configs = configs.iter().map(|c| error::document(c)).collect::<PyResult<Vec<_>>>()?;
    gate::pass(
        py,
        |cancel, tell: gate::Teller<(usize, Result<Outcome, Failure>)>| {
            run::run_many(&configs, threads, cancel, &|index, outcome| tell.tell((index, outcome.clone())));
        },
        |py, (index, outcome)| match outcome {
            // Not run to its end because the caller has stopped: nothing to hear.
            Err(Failure::Cancelled) => Ok(()),
            Err(failure) => done.call1(py, (index, error::raise(py, failure).into_value(py))).map(drop),
            Ok(outcome) => done.call1(py, (index, columns::cross(py, &outcome)?)).map(drop),
        },
    )
}

/// The complete configuration (JSON) of a given one: every default filled in, every value checked.
#[pyfunction]
fn expand(py: Python<'_>, config: &str) -> PyResult<String> {
    let given = error::document(config)?;
    let full = error::caught(|| run::expand(&given))?;
    Ok(full.map_err(|e| error::raise(py, Failure::Config(e)))?.to_string())
}

/// What exists (JSON): allocators with eras and parameters, workloads, machines, statistics.
#[pyfunction]
fn catalog() -> PyResult<String> {
    Ok(error::caught(run::catalog)?.to_string())
}

/// Version of the core.
#[pyfunction]
fn version() -> &'static str {
    run::VERSION
}
