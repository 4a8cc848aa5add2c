//! Tests that span floors.

mod conformance;
mod conservation;
mod determinism;
mod floors;
mod geometry;
mod limits;
mod maps;
mod mechanisms;
mod network;
mod network_profiles;
mod network_stats;
mod oracle;
mod periodic;
mod recorded;
mod soak;
mod workloads;
