//! Tests that span floors.

mod determinism;
mod oracle;
