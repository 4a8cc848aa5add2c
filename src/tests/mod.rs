//! Tests that span floors.

mod conformance;
mod floors;
mod oracle;
