//! The core's failures as Python exceptions, mapped once.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::create_exception;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use slablab::error::Error;
use slablab::run::Failure;

create_exception!(
    slablab,
    ConfigError,
    PyValueError,
    "A refused configuration: which parameter, which value, what would be right."
);
create_exception!(
    slablab,
    SlabCorruption,
    PyRuntimeError,
    "A broken invariant of an allocator, or a panic of the core."
);

/// The exception of a failed run.
pub fn raise(py: Python<'_>, failure: Failure) -> PyErr {
    match failure {
        Failure::Config(e) => refusal(py, &e),
        Failure::Cancelled => PyKeyboardInterrupt::new_err("stopped"),
        Failure::Corruption(message) => SlabCorruption::new_err(message),
    }
}

/// A ConfigError with its three parts as attributes, so that a program need not take the message apart.
fn refusal(py: Python<'_>, e: &Error) -> PyErr {
    let err = ConfigError::new_err(e.to_string());
    let value = err.value(py);
    let parts = [("parameter", &e.parameter), ("value", &e.value), ("expected", &e.expected)];
    match parts.iter().try_for_each(|(name, part)| value.setattr(*name, part)) {
        Ok(()) => err,
        Err(other) => other,
    }
}

/// The JSON document in a string from Python.
pub fn document(py: Python<'_>, text: &str) -> PyResult<serde_json::Value> {
    let parsed = serde_json::from_str(text);
    parsed
        .map_err(|e| refusal(py, &Error::new("config", "(text)", format!("a JSON document of numbers in range ({e})"))))
}

/// Runs a short piece of the core; a panic becomes SlabCorruption.
pub fn caught<T>(work: impl FnOnce() -> T) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| panicked(payload.as_ref()))
}

/// The exception of a panic of the core.
pub fn panicked(payload: &(dyn Any + Send)) -> PyErr {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    SlabCorruption::new_err(text.unwrap_or_else(|| "the core panicked without a message".into()))
}
