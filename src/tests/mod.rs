//! Tests that span floors.

mod conformance;
mod conservation;
mod determinism;
mod floors;
mod maps;
mod mechanisms;
mod network;
mod network_profiles;
mod oracle;
mod periodic;
mod soak;
