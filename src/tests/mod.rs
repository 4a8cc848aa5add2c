//! Tests that span floors.

mod conformance;
mod conservation;
mod determinism;
mod floors;
mod limits;
mod maps;
mod mechanisms;
mod oracle;
mod periodic;
mod soak;
