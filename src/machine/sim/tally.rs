//! What a machine was asked for: accesses by kind, fixed costs by kind, instructions. Counted where they are charged, so that
//! the counts of a path can be compared with a table of the path.

use std::ops::Sub;

use crate::machine::{Access, Event};

/// Counts since the machine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tally {
    /// Line accesses by [`Access`].
    pub accesses: [u64; 4],
    /// Fixed costs by [`Event`].
    pub events: [u64; 7],
    /// Instructions.
    pub instructions: u64,
}

impl Tally {
    /// Accesses of one kind.
    pub fn accesses_of(&self, access: Access) -> u64 {
        self.accesses[access as usize]
    }
    /// Fixed costs of one kind.
    pub fn events_of(&self, event: Event) -> u64 {
        self.events[event as usize]
    }
}

impl Sub for Tally {
    type Output = Tally;
    fn sub(self, before: Tally) -> Tally {
        Tally {
            accesses: std::array::from_fn(|i| self.accesses[i] - before.accesses[i]),
            events: std::array::from_fn(|i| self.events[i] - before.events[i]),
            instructions: self.instructions - before.instructions,
        }
    }
}
