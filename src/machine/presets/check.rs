//! Machines that cannot be are refused, by the key.

use super::{LATENCIES, MAX_CPUS, MIN_NODE_BYTES, Machinery, WORDS, release};
use crate::error::Error;

/// The first release that nothing here is known of.
const AFTER: (u32, u32, u32) = (7, 2, 0);

impl Machinery {
    /// Refuses what cannot be, by the key.
    pub(super) fn check_shape(&self) -> Result<(), Error> {
        let count = |key: &str, low: u64, high: u64| {
            let v = self.number(key)?;
            let whole = v.fract() == 0.0 && v >= low as f64 && v <= high as f64;
            if whole {
                Ok(v as u64)
            } else {
                Err(Error::new(format!("machine.{key}"), v, format!("a whole number, {low}..{high}")))
            }
        };
        let sockets = count("sockets", 1, MAX_CPUS)?;
        let cores = count("cores_per_socket", 1, MAX_CPUS)?;
        let threads = count("smt", 1, 2)?;
        let nodes = count("numa_nodes", 1, 16)?;
        let shared = count("l2_shared_by_cores", 1, MAX_CPUS)?;
        if sockets * cores > MAX_CPUS {
            return Err(Error::new(
                "machine.sockets × machine.cores_per_socket",
                sockets * cores,
                format!("at most {MAX_CPUS} CPUs"),
            ));
        }
        if sockets * cores * threads > MAX_CPUS {
            let cpus = sockets * cores * threads;
            return Err(Error::new("machine.smt", threads, format!("1: {cpus} CPUs are more than {MAX_CPUS}")));
        }
        let per_socket = sockets % nodes == 0 || (nodes % sockets == 0 && cores % (nodes / sockets) == 0);
        if !per_socket {
            return Err(Error::new(
                "machine.numa_nodes",
                nodes,
                format!("1, or sockets ({sockets}) divided evenly among nodes or nodes among sockets"),
            ));
        }
        let empty = count("memoryless_nodes", 0, 15)?;
        if empty >= nodes {
            return Err(Error::new("machine.memoryless_nodes", empty, format!("fewer than the {nodes} nodes")));
        }
        for (key, words) in WORDS {
            if let Some(word) = self.word(key)
                && !words.contains(&word.as_str())
            {
                return Err(Error::unknown(&format!("machine.{key}"), &word, words));
            }
        }
        let kernel = self.word("kernel").unwrap_or_default();
        if release(&kernel).is_none_or(|r| r >= AFTER) {
            let right = "a release up to 7.1: 2.6.24, 2.6.28, 3.0, 6.18, …";
            return Err(Error::new("machine.kernel", format!("{kernel:?}"), right));
        }
        if cores % shared != 0 {
            return Err(Error::new(
                "machine.l2_shared_by_cores",
                shared,
                format!("a divisor of cores_per_socket ({cores})"),
            ));
        }
        let freq = self.number("freq")?;
        if !(0.01..=100.0).contains(&freq) {
            return Err(Error::new("machine.freq", freq, "0.01..100 GHz"));
        }
        for (key, high) in [
            ("residency_kappa", 1.0),
            ("store_overlap", 1.0),
            ("group_rest", 1.0),
            ("idle_scale", 1000.0),
            ("smt_speed", 1.0),
            ("governor_low", 1.0),
        ] {
            if self.number(key)? > high {
                return Err(Error::new(format!("machine.{key}"), self.number(key)?, format!("0..{high}")));
            }
        }
        for key in ["cpi", "copy_bw_hot", "l1d", "l2", "payload_mlp", "smt_speed", "governor_low", "governor_sample"] {
            if self.number(key)? <= 0.0 {
                return Err(Error::new(format!("machine.{key}"), self.number(key)?, "more than 0"));
            }
        }
        for key in LATENCIES {
            if self.optional(key)?.is_some_and(|v| v <= 0.0) {
                return Err(Error::new(format!("machine.{key}"), self.number(key)?, "more than 0: it is a latency"));
            }
        }
        let node_bytes = self.node_bytes()?;
        if node_bytes < MIN_NODE_BYTES {
            let mib = node_bytes as f64 / (1 << 20) as f64;
            let least = MIN_NODE_BYTES >> 20;
            let right = format!("at least {least} MiB per node, not {mib}: the machine cannot boot in less");
            return Err(self.memory_refused(&right));
        }
        Ok(())
    }
}
