//! Failures for tests: every so many-th allocation gets nothing, whatever is free.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::machine::Machine;

use super::Pages;

/// Which allocations fail; none by default.
#[derive(Default)]
pub(super) struct Failing {
    every: AtomicU64,
    asked: AtomicU64,
    struck: AtomicU64,
}

impl Failing {
    /// True for the allocation that fails.
    pub(super) fn strikes(&self) -> bool {
        let every = self.every.load(Ordering::Relaxed);
        let strikes = every > 0 && (self.asked.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every);
        self.struck.fetch_add(u64::from(strikes), Ordering::Relaxed);
        strikes
    }
}

impl<M: Machine> Pages<'_, M> {
    /// From now on every `every`-th allocation fails; 0: none.
    pub(crate) fn fail_every(&self, every: u64) {
        self.failing.every.store(every, Ordering::Relaxed);
    }
    /// How many have failed so far.
    pub(crate) fn struck(&self) -> u64 {
        self.failing.struck.load(Ordering::Relaxed)
    }
}
