//! Results on their way out: the document as JSON, every frame as NumPy columns.

use std::collections::BTreeMap;

use numpy::{PyArray1, PyArrayMethods, ToPyArray};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Value, json};

use slablab::run::{Column, Outcome};

/// A finished run as Python gets it: its document, and its frames by name.
pub type Crossing<'py> = (String, Bound<'py, PyDict>);

/// Hands an outcome over.
pub fn cross<'py>(py: Python<'py>, outcome: &Outcome) -> PyResult<Crossing<'py>> {
    let document = json!({
        "config": outcome.config,
        "summary": outcome.summary,
        "texts": outcome.texts,
        // A text in the text: seldom read, so not taken apart each time.
        "tool": if outcome.tool.is_null() { Value::Null } else { outcome.tool.to_string().into() },
        "checkpoints": outcome.checkpoints,
        "host": outcome.host,
    });
    let frames = PyDict::new(py);
    for frame in &outcome.frames {
        let columns = PyDict::new(py);
        for (name, column) in &frame.columns {
            columns.set_item(name, self::column(py, column)?)?;
        }
        frames.set_item(frame.name, columns)?;
    }
    Ok((document.to_string(), frames))
}

/// Numbers as an array; words as a pair (codes, names), because a column of thousands of words has few of them.
fn column<'py>(py: Python<'py>, column: &Column) -> PyResult<Bound<'py, PyAny>> {
    Ok(match column {
        Column::F64(values) => values.to_pyarray(py).into_any(),
        Column::U64(values) => values.to_pyarray(py).into_any(),
        Column::Str(words) => {
            let mut known = BTreeMap::new();
            let mut names = Vec::new();
            let codes = PyArray1::<i32>::zeros(py, words.len(), false);
            {
                let mut codes = codes.readwrite();
                for (slot, word) in codes.as_slice_mut()?.iter_mut().zip(words) {
                    *slot = *known.entry(word.as_str()).or_insert_with(|| {
                        names.push(word.as_str());
                        names.len() as i32 - 1
                    });
                }
            }
            (codes, PyList::new(py, names)?).into_pyobject(py)?.into_any()
        }
    })
}
