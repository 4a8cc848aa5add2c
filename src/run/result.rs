//! What a run returns: one row of totals, and frames of columns.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// One column of a frame.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Column {
    /// Numbers with a fraction. NaN stands for "does not exist".
    F64(Vec<f64>),
    /// Counts.
    U64(Vec<u64>),
    /// Words.
    Str(Vec<String>),
}

/// A table: named columns of equal length.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Frame {
    /// `caches`, `stats`, `locks`, `pages`.
    pub name: &'static str,
    /// Columns in order.
    pub columns: Vec<(String, Column)>,
}

/// The outcome of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The complete configuration that was run.
    pub config: Value,
    /// One row of totals: `throughput`, `unit`, `elapsed_s`, `ops`, … in the order of `summary()`.
    pub summary: Map<String, Value>,
    /// Tables.
    pub frames: Vec<Frame>,
    /// Ready-made texts by name: `slabinfo`, `buddyinfo`, `queues` (SLQB), `heap` (SLOB).
    pub texts: Map<String, Value>,
    /// What the slabinfo tool reads at the end: every cache's directory in sysfs (see [`crate::alloc::tool::Report`]); null for
    /// an allocator without.
    pub tool: Value,
    /// What a script's checkpoints saw: name, filled slots, state of each of its caches.
    pub checkpoints: Vec<Value>,
    /// What the host had to do with it (wall time, core count): not compared between runs.
    pub host: Map<String, Value>,
}

impl Outcome {
    /// The result document: `result` is a pure function of configuration, seed and version; `host` is not compared.
    pub fn to_json(&self) -> Value {
        let frames: Map<String, Value> = self
            .frames
            .iter()
            .map(|f| {
                let columns: Map<String, Value> = f.columns.iter().map(|(k, c)| (k.clone(), json!(c))).collect();
                (f.name.to_string(), Value::Object(columns))
            })
            .collect();
        json!({
            "result": { "config": self.config, "summary": self.summary, "frames": frames, "texts": self.texts,
                        "tool": self.tool, "checkpoints": self.checkpoints },
            "host": self.host,
        })
    }
}
