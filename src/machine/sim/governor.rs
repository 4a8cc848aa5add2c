//! The clock of each CPU under `ondemand` (machine-model.md §7): full after a sample in which it was busy for more than four
//! fifths of the time, low after any other.

use super::CostModel;
use crate::error::Error;
use crate::machine::presets::Machinery;

/// Busy part of a sample above which the clock is full, in 1/1024.
const UP: u64 = 819;

struct Clock {
    slow: bool,
    sampled: u64,
    idle: u64,
}

/// Samples every CPU of a machine.
pub(super) struct Samples {
    period: u64,
    clocks: Vec<Clock>,
}

/// The samples, and the machine's figures at the lowest clock.
pub(super) struct Governor {
    pub(super) samples: Samples,
    slow: CostModel,
}

impl Governor {
    /// `None` for `performance`: the clock is always full.
    pub(super) fn new(m: &Machinery, cpus: usize) -> Result<Option<Governor>, Error> {
        if m.word("governor").as_deref() != Some("ondemand") {
            return Ok(None);
        }
        let period = (m.number("governor_sample")? * 1e9).round() as u64;
        let clocks = (0..cpus).map(|_| Clock { slow: true, sampled: 0, idle: 0 }).collect();
        let slow = CostModel::slowed(m, m.number("governor_low")?)?;
        Ok(Some(Governor { samples: Samples { period, clocks }, slow }))
    }
    /// The figures of `cpu` if its clock is low.
    #[inline]
    pub(super) fn slow(&self, cpu: usize) -> Option<&CostModel> {
        self.samples.clocks[cpu].slow.then_some(&self.slow)
    }
}

impl Samples {
    pub(super) fn slept(&mut self, cpu: usize, ps: u64) {
        self.clocks[cpu].idle += ps;
    }
    /// Samples `cpu` if it is due at `now`.
    pub(super) fn look(&mut self, cpu: usize, now: u64) {
        let clock = &mut self.clocks[cpu];
        let passed = now.saturating_sub(clock.sampled);
        if passed >= self.period {
            let busy = passed.saturating_sub(clock.idle);
            *clock = Clock { slow: busy << 10 <= passed * UP, sampled: now, idle: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_sample_raises_the_clock_and_an_idle_one_lowers_it() {
        let mut g = Samples { period: 100, clocks: vec![Clock { slow: true, sampled: 0, idle: 0 }] };
        let mut at = |now, slept| {
            g.slept(0, slept);
            g.look(0, now);
            g.clocks[0].slow
        };
        assert_eq!([at(50, 0), at(100, 0), at(200, 19), at(300, 21), at(390, 0)], [true, false, false, true, true]);
    }
}
