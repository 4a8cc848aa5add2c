//! The door between Python and the core: configurations come in as JSON, results go out as columns.
//!
//! Ten functions, private to the package; people meet `slablab.run`, `slablab.sweep` and their frames.

mod columns;
mod error;
mod gate;

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use columns::Crossing;
use slablab::run::{self, Failure, Outcome};

/// The compiled part of slablab. It has no state of its own, so a free-threaded interpreter needs no lock around it.
#[pymodule(gil_used = false)]
mod _core {
    #[pymodule_export]
    use super::error::{ConfigError, SlabCorruption};
    #[pymodule_export]
    use super::{catalog, expand, geometry, machine, probe, run_many, run_one, slabinfo, sysfs, version};
}

/// Runs one configuration. Returns its document (JSON: config, summary, texts, checkpoints, host) and its frames by name.
#[pyfunction]
#[pyo3(name = "run")]
fn run_one<'py>(py: Python<'py>, config: &str) -> PyResult<Crossing<'py>> {
    let config = error::document(py, config)?;
    let outcome = gate::pass(py, |cancel, _: gate::Teller<()>| run::run(&config, cancel), |_, ()| Ok(()))?;
    columns::cross(py, &outcome.map_err(|failure| error::raise(py, failure))?)
}

/// Runs many configurations: simulated ones side by side on `threads` host threads (all cores when None), native ones
/// one at a time. `done(index, outcome)` hears of each as it ends, in the calling thread; an outcome is what `run`
/// returns, or the exception it would have raised. `done` may return indices that are not wanted any more.
#[pyfunction]
#[pyo3(signature = (configs, threads, done))]
fn run_many(py: Python<'_>, configs: Vec<String>, threads: Option<usize>, done: Py<PyAny>) -> PyResult<()> {
    let configs = configs.iter().map(|c| error::document(py, c)).collect::<PyResult<Vec<_>>>()?;
    let unwanted: Vec<AtomicBool> = configs.iter().map(|_| AtomicBool::new(false)).collect();
    gate::pass(
        py,
        |cancel, tell: gate::Teller<(usize, Result<Outcome, Failure>)>| {
            let wanted = |index: usize| !unwanted[index].load(Ordering::Relaxed);
            run::run_many(&configs, threads, cancel, &wanted, &|index, outcome| tell.tell((index, outcome)));
        },
        |py, (index, outcome)| {
            let answer = match outcome {
                // Not run to its end because the caller has stopped: nothing to hear.
                Err(Failure::Cancelled) => return Ok(()),
                Err(failure) => done.call1(py, (index, error::raise(py, failure).into_value(py)))?,
                Ok(outcome) => done.call1(py, (index, columns::cross(py, &outcome)?))?,
            };
            for index in answer.extract::<Option<Vec<usize>>>(py)?.into_iter().flatten() {
                if let Some(mark) = unwanted.get(index) {
                    mark.store(true, Ordering::Relaxed);
                }
            }
            Ok(())
        },
    )
}

/// The complete configuration (JSON) of a given one: every default filled in, every value checked.
#[pyfunction]
fn expand(py: Python<'_>, config: &str) -> PyResult<String> {
    let given = error::document(py, config)?;
    let full = error::caught(|| run::expand(&given))?;
    Ok(full.map_err(|e| error::raise(py, Failure::Config(e)))?.to_string())
}

/// What caches look like without a machine (JSON): of an allocator and sizes the columns by name, one entry per size.
#[pyfunction]
fn geometry(py: Python<'_>, asked: &str) -> PyResult<String> {
    let asked = error::document(py, asked)?;
    let columns = error::caught(|| run::geometry(&asked))?;
    Ok(columns.map_err(|e| error::raise(py, Failure::Config(e)))?.to_string())
}

/// The text that the slabinfo tool prints with `options` of what a run's document has as `tool` (JSON).
#[pyfunction]
fn slabinfo(py: Python<'_>, tool: &str, options: &str) -> PyResult<String> {
    let text = error::caught(|| run::slabinfo(tool, options))?;
    text.map_err(|e| error::raise(py, Failure::Config(e)))
}

/// The attributes of a cache in sysfs (JSON), by any of its names, of what a run's document has as `tool` (JSON).
#[pyfunction]
fn sysfs(py: Python<'_>, tool: &str, cache: &str) -> PyResult<String> {
    let files = error::caught(|| run::sysfs(tool, cache))?;
    Ok(files.map_err(|e| error::raise(py, Failure::Config(e)))?.to_string())
}

/// A simulated machine (JSON) of a configuration's `machine`: every figure with unit, source and confidence, and its CPUs.
#[pyfunction]
fn machine(py: Python<'_>, config: &str) -> PyResult<String> {
    let given = error::document(py, config)?;
    let full = error::caught(|| run::machine(&given))?;
    Ok(full.map_err(|e| error::raise(py, Failure::Config(e)))?.to_string())
}

/// A simulated machine and an allocator measured on themselves (JSON): transfers, hand-offs, wake-ups, pairs, paths.
#[pyfunction]
fn probe(py: Python<'_>, config: &str) -> PyResult<String> {
    let given = error::document(py, config)?;
    let measured = gate::pass(py, |_, _: gate::Teller<()>| run::probe(&given), |_, ()| Ok(()))?;
    Ok(measured.map_err(|failure| error::raise(py, failure))?.to_string())
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
