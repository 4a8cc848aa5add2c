//! Where virtual time goes: every picosecond of every CPU inside the measured window belongs to exactly one part.
//!
//! `Σ parts = CPUs × window`, exactly: clocks move in one place only ([`super::World::advance`]), which names the part, and
//! what lies outside the window is cut off there. Waits and line transfers are parts of their own, by lock and by structure;
//! everything else belongs to the section that the CPU is in.

use crate::machine::{LatencyReport, Operation, Path, Section};

/// What a stretch of time was spent on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// Instructions, cache hits and fixed costs of the section the CPU is in.
    Section(Section),
    /// Waiting for a lock of the class with this index.
    Lock(usize),
    /// A line that came from another CPU's cache, or whose copies there had to go.
    Transfer(Structure),
    /// Asleep.
    Idle,
}

/// Which structure a cache line belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Structure {
    /// Object and payload memory.
    Objects,
    /// Page frame descriptors.
    Frames,
    /// Whatever was reserved for structures: caches, queues, zones, locks.
    Metadata,
}

const SECTIONS: usize = Section::ALL.len();
const STRUCTURES: [(Structure, &str); 3] =
    [(Structure::Objects, "objects"), (Structure::Frames, "struct page"), (Structure::Metadata, "structures")];

/// The account of one machine.
pub(super) struct Account {
    /// Start and end of the window.
    window: (u64, u64),
    sections: Vec<[u64; SECTIONS]>,
    transfers: [u64; STRUCTURES.len()],
    locks: Vec<u64>,
    idle: u64,
    /// Section of each CPU now.
    pub(super) now_in: Vec<Section>,
    operations: Vec<Option<Under>>,
    latencies: Vec<Histogram>,
}

/// An operation under way on a CPU.
#[derive(Clone, Copy)]
struct Under {
    operation: Operation,
    since: u64,
    path: Path,
    before: Section,
}

impl Account {
    pub(super) fn new(cpus: usize) -> Account {
        Account {
            window: (0, u64::MAX),
            sections: vec![[0; SECTIONS]; cpus],
            transfers: [0; STRUCTURES.len()],
            locks: Vec::new(),
            idle: 0,
            now_in: vec![Section::Workload; cpus],
            operations: vec![None; cpus],
            latencies: vec![Histogram::default(); Operation::ALL.len() * Path::ALL.len()],
        }
    }

    /// From now on only what lies between `start` and `end` counts; forgets what was counted.
    pub(super) fn measure(&mut self, start: u64, end: u64) {
        self.window = (start, end);
        self.sections.fill([0; SECTIONS]);
        self.transfers = [0; STRUCTURES.len()];
        self.locks.fill(0);
        self.idle = 0;
        self.latencies.fill(Histogram::default());
    }

    /// Books the stretch from `from` to `to` of `cpu`.
    #[inline]
    pub(super) fn book(&mut self, cpu: usize, part: Part, from: u64, to: u64) {
        let (start, end) = self.window;
        if from >= start && to <= end {
            self.add(cpu, part, to - from);
        } else {
            self.add(cpu, part, to.min(end).saturating_sub(from.max(start)));
        }
    }
    #[inline]
    fn add(&mut self, cpu: usize, part: Part, ps: u64) {
        match part {
            Part::Section(s) => self.sections[cpu][s as usize] += ps,
            Part::Transfer(s) => self.transfers[s as usize] += ps,
            Part::Idle => self.idle += ps,
            Part::Lock(class) => {
                if class >= self.locks.len() {
                    self.locks.resize(class + 1, 0);
                }
                self.locks[class] += ps;
            }
        }
    }

    pub(super) fn begin(&mut self, cpu: usize, operation: Operation, now: u64) {
        let before = std::mem::replace(&mut self.now_in[cpu], Section::Fast);
        self.operations[cpu] = Some(Under { operation, since: now, path: Path::Fast, before });
    }
    /// An operation is under way on `cpu`.
    #[inline]
    pub(super) fn under_way(&self, cpu: usize) -> bool {
        self.operations[cpu].is_some()
    }
    /// Ends the operation under way on `cpu`, if there is one; returns how long it took.
    pub(super) fn end(&mut self, cpu: usize, now: u64) -> Option<u64> {
        let under = self.operations[cpu].take()?;
        self.now_in[cpu] = under.before;
        if under.since >= self.window.0 && now <= self.window.1 {
            let at = under.operation as usize * Path::ALL.len() + under.path as usize;
            self.latencies[at].add(now - under.since);
        }
        Some(now - under.since)
    }
    /// The operation under way on `cpu`, if any, went at least as far as `path`.
    pub(super) fn reached(&mut self, cpu: usize, path: Path) {
        if let Some(under) = &mut self.operations[cpu] {
            under.path = under.path.max(path);
        }
    }
    pub(super) fn leave_fast_path(&mut self, cpu: usize) {
        if self.operations[cpu].is_some() {
            self.reached(cpu, Path::Refill);
            self.now_in[cpu] = Section::Slow;
        }
    }
    pub(super) fn enter(&mut self, cpu: usize, section: Section) -> Section {
        if section == Section::Pages {
            self.reached(cpu, Path::Page);
        }
        std::mem::replace(&mut self.now_in[cpu], section)
    }

    /// Idle time of all CPUs in the window.
    pub(super) fn idle(&self) -> u64 {
        self.idle
    }

    /// Every part with its time over all CPUs; `classes`: names of the lock classes.
    pub(super) fn parts(&self, classes: &[&'static str]) -> Vec<(String, u64)> {
        let mut parts = Vec::new();
        for section in Section::ALL {
            parts.push((section.name().to_string(), self.sections.iter().map(|s| s[*section as usize]).sum()));
        }
        for (class, ps) in classes.iter().zip(&self.locks) {
            parts.push((format!("waiting for {class}"), *ps));
        }
        for (structure, name) in STRUCTURES {
            parts.push((format!("line transfers: {name}"), self.transfers[structure as usize]));
        }
        parts.push(("idle".into(), self.idle));
        parts
    }

    /// Latencies of each operation and path that was seen.
    pub(super) fn latencies(&self) -> Vec<LatencyReport> {
        let mut rows = Vec::new();
        for operation in Operation::ALL {
            for path in Path::ALL {
                let h = &self.latencies[*operation as usize * Path::ALL.len() + *path as usize];
                if h.count > 0 {
                    rows.push(h.report(*operation, *path));
                }
            }
        }
        rows
    }
}

/// Counts of latencies in buckets of a sixteenth of an octave: quantiles are right to 6 %, the extremes exact.
#[derive(Clone, Default)]
struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

const PARTS: u32 = 4;

impl Histogram {
    fn bucket(ps: u64) -> usize {
        let octave = 63 - (ps | 1 << PARTS).leading_zeros();
        (((octave - PARTS) << PARTS) + ((ps >> (octave - PARTS)) as u32)) as usize
    }
    /// The lowest value of a bucket.
    fn low(bucket: usize) -> u64 {
        let (octave, part) = (bucket >> PARTS, bucket as u64 & 15);
        if octave <= 1 { bucket as u64 } else { (16 + part) << (octave - 1) }
    }
    fn add(&mut self, ps: u64) {
        let at = Self::bucket(ps);
        if at >= self.buckets.len() {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] += 1;
        self.count += 1;
        self.sum += ps;
        self.max = self.max.max(ps);
    }
    fn quantile(&self, q: f64) -> u64 {
        let wanted = ((self.count as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= wanted {
                return Self::low(bucket).min(self.max);
            }
        }
        self.max
    }
    fn report(&self, operation: Operation, path: Path) -> LatencyReport {
        LatencyReport {
            operation,
            path,
            count: self.count,
            mean_ps: self.sum / self.count.max(1),
            p50_ps: self.quantile(0.5),
            p90_ps: self.quantile(0.9),
            p99_ps: self.quantile(0.99),
            max_ps: self.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_a_sixteenth_of_an_octave_and_in_order() {
        let mut last = 0;
        for ps in (0..100_000).chain((0..50).map(|i| 1 << i)) {
            let low = Histogram::low(Histogram::bucket(ps));
            assert!(low <= ps && ps as f64 <= low as f64 * 1.0626 + 0.1, "{ps}: {low}");
            last = last.max(Histogram::bucket(ps));
        }
        assert!(last < 1024);
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut h = Histogram::default();
        (1..=1000).for_each(|i| h.add(i * 100));
        let r = h.report(Operation::Alloc, Path::Fast);
        assert!((46_900..=50_000).contains(&r.p50_ps) && (93_000..=99_000).contains(&r.p99_ps), "{r:?}");
        assert_eq!((r.count, r.mean_ps, r.max_ps), (1000, 50_050, 100_000));
    }

    #[test]
    fn what_lies_outside_the_window_does_not_count() {
        let mut a = Account::new(1);
        a.measure(100, 200);
        a.book(0, Part::Idle, 50, 120);
        a.book(0, Part::Section(Section::Workload), 120, 190);
        a.book(0, Part::Lock(1), 190, 300);
        a.book(0, Part::Idle, 300, 400);
        let parts = a.parts(&["a", "b"]);
        let of = |name: &str| parts.iter().find(|p| p.0 == name).unwrap().1;
        assert_eq!((of("idle"), of("workload"), of("waiting for b")), (20, 70, 10));
        assert_eq!(parts.iter().map(|p| p.1).sum::<u64>(), 100);
    }
}
