//! The configuration of one run as it crosses the door: JSON in, checked and completed here, once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::machine::presets::{Machinery, Placement, Scalar};
use crate::page::{Fragmentation, PageModel};

/// One run: machine, allocator, workload, seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Which machine.
    pub machine: MachineConfig,
    /// `{"name", "era", …}`: completed by the allocator's own configuration.
    pub allocator: Value,
    /// `{"name", …}`: completed by the workload's own configuration.
    pub workload: Value,
    /// Seed of everything random.
    pub seed: u64,
    /// Keep an allocation profile: a frame more, the same run.
    pub profile: bool,
}

/// A machine by name, how many of its CPUs, and what is different from the preset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineConfig {
    /// A preset, or `native`.
    pub name: String,
    /// CPUs used; all of the preset (or of the host) when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u64>,
    /// Which CPUs a subset consists of.
    #[serde(default)]
    pub placement: Placement,
    /// Which page allocator (see [`PageModel::named`]); that of the allocator's time when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<String>,
    /// The figures of a machine file (JSON), where the machine is no preset; `name` is then the file's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Value>,
    /// Memory fragmented beforehand: level from 0 to 1, and seed (see [`Fragmentation`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragment: Option<(f64, u64)>,
    /// Preset values replaced by name; for `native`: `nodes` and `memory_mib` per node.
    #[serde(default, flatten)]
    pub overrides: BTreeMap<String, Scalar>,
}

impl Config {
    /// Reads, checks and completes a configuration.
    pub fn from_json(given: &Value) -> Result<Config, Error> {
        let object = given.as_object().ok_or_else(|| Error::new("config", given, "an object"))?;
        const KEYS: [&str; 5] = ["machine", "allocator", "workload", "seed", "profile"];
        if let Some(key) = object.keys().find(|k| !KEYS.contains(&k.as_str())) {
            return Err(Error::unknown("config", key, &KEYS));
        }
        let part = |key: &str| match object.get(key) {
            Some(Value::String(name)) => Ok(json!({ "name": name })),
            Some(Value::Object(o)) if o.get("name").is_some_and(Value::is_string) => Ok(Value::Object(o.clone())),
            Some(other) => Err(Error::new(key, other, "a name, or an object with a name")),
            None => Err(Error::new(key, "nothing", "a name, or an object with a name")),
        };
        let machine = part("machine")?;
        if let Some(cpus) = machine.get("cpus")
            && cpus.as_u64().is_none()
            && !cpus.is_null()
        {
            return Err(Error::new("machine.cpus", cpus, "a whole number of 1 or more"));
        }
        if let Some(fragment) = machine.get("fragment")
            && !fragment.is_null()
            && serde_json::from_value::<(f64, u64)>(fragment.clone()).is_err()
        {
            return Err(Error::new(
                "machine.fragment",
                fragment,
                "[level, seed]: a number from 0 to 1, a whole number",
            ));
        }
        let machine: MachineConfig =
            serde_json::from_value(machine.clone()).map_err(|e| Error::new("machine", &machine, e.to_string()))?;
        let seed = match object.get("seed") {
            None => 1,
            Some(s) => s.as_u64().ok_or_else(|| Error::new("seed", s, "a whole number, 0 or more"))?,
        };
        let profile = match object.get("profile") {
            None => false,
            Some(p) => p.as_bool().ok_or_else(|| Error::new("profile", p, "true or false"))?,
        };
        let mut config = Config { profile, machine, allocator: part("allocator")?, workload: part("workload")?, seed };
        super::dispatch::complete(&mut config)?;
        Ok(config)
    }

    /// The complete configuration as JSON.
    pub fn to_json(&self) -> Value {
        let mut all = json!({ "machine": self.machine, "allocator": self.allocator, "workload": self.workload, "seed": self.seed });
        if self.profile {
            all["profile"] = json!(true);
        }
        all
    }
}

/// Most memory per node of the native machine: a tebibyte, committed when touched.
const MAX_NATIVE_MIB: u64 = 1 << 20;

impl MachineConfig {
    /// The page allocator around an allocator of `era`.
    pub fn page_model(&self, era: &str) -> Result<PageModel, Error> {
        self.pages.as_deref().map_or(Ok(PageModel::of_release(era)), PageModel::named)
    }

    /// How memory is fragmented before the run.
    pub fn fragmentation(&self) -> Result<Option<Fragmentation>, Error> {
        self.fragment.map(|(level, seed)| Fragmentation::new(level, seed)).transpose()
    }

    /// True for the host itself.
    pub fn is_native(&self) -> bool {
        self.name == "native"
    }

    /// The simulated machine of this configuration.
    pub fn machinery(&self) -> Result<Machinery, Error> {
        match &self.values {
            Some(values) => Machinery::from_file(&self.name, values, &self.overrides, self.cpus, self.placement),
            None => Machinery::preset(&self.name, &self.overrides, self.cpus, self.placement),
        }
    }

    /// CPUs, logical nodes and MiB of memory per node of a native machine.
    pub fn native_shape(&self) -> Result<(u64, u64, u64), Error> {
        let mut shape = BTreeMap::from([("nodes", 1.0), ("memory_mib", 1024.0)]);
        for (key, value) in &self.overrides {
            let known: Vec<&str> = shape.keys().copied().collect();
            let Some(slot) = shape.get_mut(key.as_str()) else {
                return Err(Error::unknown(&format!("machine.{key}"), key, &known));
            };
            match value {
                Scalar::Number(n) if n.fract() == 0.0 && *n >= 1.0 => *slot = *n,
                other => {
                    return Err(Error::new(
                        format!("machine.{key}"),
                        crate::machine::presets::scalar(other),
                        "a whole number of 1 or more",
                    ));
                }
            }
        }
        let cpus = self.cpus.unwrap_or(crate::machine::Native::host_cores() as u64);
        let (nodes, mib) = (shape["nodes"] as u64, shape["memory_mib"] as u64);
        if cpus == 0 || cpus > crate::machine::presets::MAX_CPUS {
            return Err(Error::new("machine.cpus", cpus, format!("1..{}", crate::machine::presets::MAX_CPUS)));
        }
        if nodes > cpus.min(16) {
            return Err(Error::new(
                "machine.nodes",
                nodes,
                format!("1..{} (at most one per CPU, and 16)", cpus.min(16)),
            ));
        }
        if mib > MAX_NATIVE_MIB {
            return Err(Error::new("machine.memory_mib", mib, format!("at most {MAX_NATIVE_MIB} MiB per node")));
        }
        if mib < crate::machine::presets::MIN_NODE_BYTES >> 20 {
            return Err(Error::new(
                "machine.memory_mib",
                mib,
                format!(
                    "at least {} MiB per node: the machine cannot boot in less",
                    crate::machine::presets::MIN_NODE_BYTES >> 20
                ),
            ));
        }
        Ok((cpus, nodes, mib))
    }
}

/// Names of the fields of a completed part, flattened for a row: `clients`, `era`, ….
pub(super) fn flatten(part: &Value, into: &mut Map<String, Value>, skip: &[&str]) {
    for (key, value) in part.as_object().into_iter().flatten() {
        if !skip.contains(&key.as_str()) {
            into.insert(key.clone(), value.clone());
        }
    }
}
