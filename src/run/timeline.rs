//! Memory over time: a sample at each tick of CPU 0, thinned out as a run gets long.

use crate::units::{MAX_ORDER, Picos};

use super::result::{Column, Frame};

/// Most samples kept: at this number every second one goes, and from then on every second tick is skipped.
const MOST: usize = 1024;

/// What memory looked like at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) at: Picos,
    /// Pages the slab layer holds.
    pub(super) slab_pages: u64,
    /// Free blocks per order, all nodes, per-CPU lists not included.
    pub(super) free: [u64; MAX_ORDER],
}

/// Samples evenly spaced in ticks, at most [`MOST`].
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    samples: Vec<Sample>,
    /// Ticks from one kept sample to the next.
    stride: u64,
    ticks: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline { samples: Vec::new(), stride: 1, ticks: 0 }
    }
}

impl Timeline {
    /// Offers the sample of a tick.
    pub(super) fn tick(&mut self, sample: impl FnOnce() -> Sample) {
        if self.ticks.is_multiple_of(self.stride) {
            if self.samples.len() == MOST {
                let mut index = 0;
                self.samples.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
            if self.ticks.is_multiple_of(self.stride) {
                self.samples.push(sample());
            }
        }
        self.ticks += 1;
    }

    /// One row per sample.
    pub(super) fn frame(&self) -> Frame {
        let counts = |f: &dyn Fn(&Sample) -> u64| Column::U64(self.samples.iter().map(f).collect());
        let mut columns = vec![
            ("time_s".to_string(), Column::F64(self.samples.iter().map(|s| s.at.0 as f64 / 1e12).collect())),
            ("slab_pages".to_string(), counts(&|s| s.slab_pages)),
        ];
        columns.extend((0..MAX_ORDER).map(|o| (format!("free_order{o}"), counts(&|s| s.free[o]))));
        Frame { name: "timeline", columns }
    }
}

/// Operations and throughput per interval of the measured time: one row each, `time_s` at its end.
pub(super) fn series(
    rows: &[(u64, u64)],
    interval_s: f64,
    elapsed_s: f64,
    rate: impl Fn(u64, u64, f64) -> f64,
) -> Frame {
    let ends = |i: usize| ((i + 1) as f64 * interval_s).min(elapsed_s);
    let whole = |i: &usize| ends(*i) - *i as f64 * interval_s > 1e-9;
    let kept: Vec<usize> = (0..rows.len()).filter(whole).collect();
    let length = |i: usize| ends(i) - i as f64 * interval_s;
    Frame {
        name: "series",
        columns: vec![
            ("time_s".into(), Column::F64(kept.iter().map(|i| ends(*i)).collect())),
            ("ops".into(), Column::U64(kept.iter().map(|i| rows[*i].0).collect())),
            ("throughput".into(), Column::F64(kept.iter().map(|&i| rate(rows[i].0, rows[i].1, length(i))).collect())),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_evenly_spaced_samples() {
        for ticks in [1, 1024, 1025, 5000, 100_000] {
            let mut line = Timeline::default();
            for t in 0..ticks {
                line.tick(|| Sample { at: Picos(t), slab_pages: t, free: [0; MAX_ORDER] });
            }
            let at: Vec<u64> = line.samples.iter().map(|s| s.at.0).collect();
            assert!(at.len() <= MOST && at.len() as u64 >= ticks.min(MOST as u64 / 2));
            assert!(at.iter().enumerate().all(|(i, t)| *t == i as u64 * line.stride), "{ticks}: {at:?}");
        }
    }
}
