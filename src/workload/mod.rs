//! FLOOR 4. Tasks that say what they want.

pub mod script;
