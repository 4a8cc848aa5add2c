//! Counts what the allocator's operations do: instructions, accesses, lines (see [`Effort`]). Off until somebody asks, so that
//! runs that nobody watches do not pay for it.

use std::collections::BTreeSet;

use super::World;
use crate::machine::{Access, Addr, Effort};
use crate::units::LINE;

/// What was seen since the last look.
#[derive(Default)]
pub(super) struct Watch {
    effort: Effort,
    lines: BTreeSet<u64>,
}

impl Watch {
    pub(super) fn touched(&mut self, addr: Addr, access: Access) {
        match access {
            Access::Read => self.effort.loads += 1,
            Access::Write => self.effort.stores += 1,
            Access::Rmw => self.effort.atomics += 1,
            Access::Prefetch => {}
        }
        self.lines.insert(addr.line());
    }
    pub(super) fn ended(&mut self, took_ps: u64) {
        self.effort.operations += 1;
        self.effort.time_ps += took_ps;
    }
    /// All of it, the lines sorted by `structure`.
    pub(super) fn sum(mut self, structure: impl Fn(Addr) -> usize) -> Effort {
        for line in &self.lines {
            self.effort.lines[structure(Addr(line * LINE))] += 1;
        }
        self.effort
    }
}

impl World {
    /// Counts something if somebody watches and an operation is under way on `cpu`.
    #[inline]
    pub(super) fn watched(&mut self, cpu: usize, count: impl FnOnce(&mut Effort)) {
        if let Some(watch) = &mut self.watch
            && self.account.under_way(cpu)
        {
            count(&mut watch.effort);
        }
    }
}
