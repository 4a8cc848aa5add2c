//! Tests that span floors.
