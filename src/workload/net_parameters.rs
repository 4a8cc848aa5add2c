//! Parameters that several network workloads have: what they mean, and what they may be.

use super::Parameter;
use super::net::Era;
use crate::error::Error;

pub(crate) const SECONDS: Parameter =
    Parameter { name: "seconds", unit: "s", meaning: "seconds measured, virtual on Sim" };
pub(crate) const WARMUP: Parameter = Parameter { name: "warmup", unit: "s", meaning: "seconds before the measurement" };
pub(crate) const ERA: Parameter = Parameter {
    name: "era",
    unit: "",
    meaning: "kernel whose network rules hold: 2.6.24, 2.6.28, 3.0, 6.1, 6.18, or machine: the machine's",
};
pub(crate) const SKB_DEFER: Parameter = Parameter {
    name: "skb_defer",
    unit: "packets",
    meaning: "length of a CPU's list of deferred frees, 0 for none (unset: 64 since 5.19)",
};
pub(crate) const TCP_HEADER: Parameter = Parameter {
    name: "tcp_header",
    unit: "bytes",
    meaning: "room for headers in a TCP buffer, 128..512 (unset: the era's MAX_TCP_HEADER)",
};
pub(crate) const PROTOCOL_SCALE: Parameter =
    Parameter { name: "protocol_scale", unit: "", meaning: "factor on the protocol's CPU per message" };
pub(crate) const NATIVE_WORK: Parameter =
    Parameter { name: "native_work", unit: "", meaning: "protocol work on native: skip (allocator only) or spin" };

/// Protocol scale: 0..1000.
pub(crate) fn scale(scale: f64) -> Result<(), Error> {
    if (0.0..=1000.0).contains(&scale) { Ok(()) } else { Err(Error::new("workload.protocol_scale", scale, "0..1000")) }
}
/// Room for TCP headers: whole lines are made of it, and a segment must fit behind it.
pub(crate) fn tcp_header(bytes: Option<u64>) -> Result<(), Error> {
    match bytes {
        Some(n) if !(128..=512).contains(&n) => Err(Error::new("workload.tcp_header", n, "128..512, or null")),
        _ => Ok(()),
    }
}
/// Deferred frees exist since 5.19.
pub(crate) fn skb_defer(packets: Option<u64>, era: &str) -> Result<(), Error> {
    let old = era != "machine" && Era::named(era).is_some_and(|e| e <= Era::V3_0);
    match packets {
        Some(n) if n > 1024 => Err(Error::new("workload.skb_defer", n, "0..1024, or null")),
        Some(n) if n > 0 && old => {
            Err(Error::new("workload.skb_defer", n, format!("0 or null: {era} frees where it is, since 5.19")))
        }
        _ => Ok(()),
    }
}
