//! Tests that span floors.

mod oracle;
