//! Figures that no run can have: caches beyond any machine, memory beyond the address space, and figures of the table
//! that the model does not use.

use super::{Machinery, Scalar};
use crate::error::Error;

/// Largest caches, in KiB: a thousand times what machines have.
const CACHES: [(&str, f64); 3] = [("l1d", 65_536.0), ("l2", 1_048_576.0), ("llc", 4_194_304.0)];
/// Ways of a cache; every access looks at all of a set.
const MAX_WAYS: f64 = 256.0;
/// Lines of all caches together under exact residency, 16 bytes of the host's memory each.
const MAX_EXACT_LINES: f64 = (1u64 << 26) as f64;
/// Most memory of a machine, in MiB: frames are numbered in 32 bits, and a line costs 32 bytes of address space.
const MAX_MEMORY: f64 = (4u64 << 20) as f64;

/// Refuses to set a figure that changes nothing. It is in the table of machines, but the model has another in its place.
pub(super) fn settable(key: &str, value: &Scalar) -> Result<(), Error> {
    let instead = match key {
        "l1_lat" => "l1_amortised: overlapping fast paths hide the rest of it (machine-model.md §3)",
        "copy_bw_mem" => "mem_local, mem_remote and payload_mlp: a copy from memory pays for its lines",
        _ => return Ok(()),
    };
    let right = format!("not set: the model does not use it, but {instead}");
    Err(Error::new(format!("machine.{key}"), super::scalar(value), right))
}

impl Machinery {
    /// Refuses figures beyond what a run can have.
    pub(super) fn check_limits(&self) -> Result<(), Error> {
        let refuse = |key: &str, value: f64, right: String| Err(Error::new(format!("machine.{key}"), value, right));
        for (key, most) in CACHES {
            let kib = self.number(key)?;
            if kib > most {
                return refuse(key, kib, format!("at most {most} KiB"));
            }
        }
        for (key, size) in [("l1d_assoc", "l1d"), ("l2_assoc", "l2")] {
            let most = (self.number(size)? * 16.0).clamp(1.0, MAX_WAYS).floor();
            if let Some(ways) = self.optional(key)?
                && !(ways.fract() == 0.0 && (1.0..=most).contains(&ways))
            {
                return refuse(key, ways, format!("a whole number, 1..{most}"));
            }
        }
        self.check_exact()?;
        let hz = self.number("hz")?;
        if !(hz.fract() == 0.0 && (10.0..=10_000.0).contains(&hz)) {
            return refuse("hz", hz, "a whole number, 10..10000".into());
        }
        let exits = ["idle_c1e_exit", "idle_c3_exit", "idle_c6_exit"];
        if self.word("idle_states").as_deref() == Some("deep") && exits.iter().all(|e| !self.values.contains_key(*e)) {
            let right = format!("c1 or poll: this machine has no deeper state ({})", exits.join(", "));
            return Err(Error::new("machine.idle_states", "\"deep\"", right));
        }
        let all = self.number("arena_per_node")? * self.number("numa_nodes")?;
        if all > MAX_MEMORY {
            return Err(self.memory_refused(&format!("at most {} GiB on all nodes together", MAX_MEMORY / 1024.0)));
        }
        Ok(())
    }

    /// Under exact residency every line of every cache is kept.
    fn check_exact(&self) -> Result<(), Error> {
        if self.word("residency").as_deref() != Some("exact") {
            return Ok(());
        }
        let cores = self.number("sockets")? * self.number("cores_per_socket")?;
        let sharing = |key: &str| self.number(key).map_or(1.0, |n| n.max(1.0));
        let lines = [
            ("l1d", self.number("l1d")? * 16.0 * cores),
            ("l2", self.number("l2")? * 16.0 * cores / sharing("l2_shared_by_cores")),
            ("llc", self.number("llc")? * 16.0 * cores / sharing("llc_shared_by_cores")),
        ];
        let all: f64 = lines.iter().map(|(_, n)| n).sum();
        if all > MAX_EXACT_LINES {
            let most = lines.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("l1d", |(key, _)| *key);
            let right = format!(
                "less, or residency = \"cheap\": the caches have {all} lines, at most {MAX_EXACT_LINES} can be kept"
            );
            return Err(Error::new(format!("machine.{most}"), self.number(most)?, right));
        }
        Ok(())
    }

    /// Refuses the memory of the machine by the figure that says how much it is.
    pub fn memory_refused(&self, right: &str) -> Error {
        let (arena, memory) = (&self.values["arena_per_node"], &self.values["memory"]);
        if memory.confidence == "set" && arena.confidence != "set" {
            return Error::new("machine.memory", format!("{} GiB", super::scalar(&memory.value)), right);
        }
        Error::new("machine.arena_per_node", format!("{} MiB", super::scalar(&arena.value)), right)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Machinery, Placement, Scalar, names};

    fn with(name: &str, set: &[(&str, Scalar)]) -> Result<Machinery, String> {
        let o: BTreeMap<String, Scalar> = set.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
        Machinery::preset(name, &o, None, Placement::Spread).map_err(|e| e.to_string())
    }
    fn number(n: f64) -> Scalar {
        Scalar::Number(n)
    }
    fn word(w: &str) -> Scalar {
        Scalar::Word(w.into())
    }

    #[test]
    fn figures_beyond_any_machine_are_refused_by_name() {
        let exact = ("residency", word("exact"));
        for (set, part) in [
            (vec![exact.clone(), ("l1d", number(1e9))], "machine.l1d = 1000000000: at most 65536 KiB"),
            (vec![("l2", number(1e9))], "machine.l2 = "),
            (vec![exact.clone(), ("l2", number(1e6))], "machine.l2 = 1000000: less, or residency = \"cheap\""),
            (vec![exact.clone(), ("l1d_assoc", number(1e6))], "machine.l1d_assoc = 1000000: a whole number, 1..256"),
            (vec![exact, ("l2_assoc", number(0.0))], "machine.l2_assoc = 0: a whole number, 1..256"),
            (vec![("hz", number(0.0))], "machine.hz = 0: a whole number, 10..10000"),
            (vec![("l1_lat", number(4.0))], "machine.l1_lat = 4: not set: the model does not use it, but l1_amortised"),
            (vec![("copy_bw_mem", number(4.0))], "machine.copy_bw_mem = 4: not set"),
            (vec![("arena_per_node", number(1e9))], "machine.arena_per_node = 1000000000 MiB: at most 4096 GiB"),
            (vec![("memory", number(1e6))], "machine.memory = 1000000 GiB: at most 4096 GiB"),
            (vec![("memory", number(0.0))], "machine.memory = "),
            (vec![("idle_states", word("deep"))], "machine.idle_states = \"deep\": c1 or poll"),
        ] {
            let e = with("opteron-2x4-2007", &set).unwrap_err();
            assert!(e.contains(part), "{set:?}: {e}");
        }
        with("epyc-genoa-2x96", &[("idle_states", word("deep"))]).unwrap();
    }

    #[test]
    fn every_preset_can_be_had_with_exact_residency() {
        for name in names() {
            with(name, &[("residency", word("exact"))]).unwrap();
        }
    }
}
