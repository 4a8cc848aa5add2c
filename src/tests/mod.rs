//! Tests that span floors.

mod conformance;
mod determinism;
mod floors;
mod mechanisms;
mod oracle;
mod soak;
