//! Where virtual time goes: every picosecond of every CPU inside the measured window belongs to exactly one part.
//!
//! `Σ parts = CPUs × window`, exactly: clocks move in two places only ([`super::World::spend`] and
//! [`super::World::advance`]), and what lies outside the window is cut off there. Waits and line transfers are parts of
//! their own, by lock and by structure; everything else belongs to the section that the CPU is in.
//!
//! Time of a section is not booked stretch by stretch: `mark` says since when nothing of it was booked, other parts push
//! `mark` on by their length, and a change of section books `clock − mark`. A CPU's `bound` is the next edge of the window;
//! only the stretch that crosses it takes the long way.

use crate::machine::{LatencyReport, Operation, Path, Section};

/// What a stretch of time was spent on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
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
    cpus: Vec<OfCpu>,
    sections: [u64; SECTIONS],
    transfers: [u64; STRUCTURES.len()],
    locks: Vec<u64>,
    idle: u64,
    latencies: Vec<Histogram>,
}

/// What is kept per CPU.
#[derive(Clone)]
struct OfCpu {
    /// The next edge of the window: end of time when the clock is past it.
    bound: u64,
    /// The clock is inside the window.
    inside: bool,
    /// Since when, other parts taken out, time of `section` has not been booked.
    mark: u64,
    /// Section now.
    section: Section,
    operation: Option<Under>,
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
        let of = OfCpu { bound: u64::MAX, inside: true, mark: 0, section: Section::Workload, operation: None };
        Account {
            window: (0, u64::MAX),
            cpus: vec![of; cpus],
            sections: [0; SECTIONS],
            transfers: [0; STRUCTURES.len()],
            locks: Vec::new(),
            idle: 0,
            latencies: vec![Histogram::default(); Operation::ALL.len() * Path::ALL.len()],
        }
    }

    /// From now on only what lies between `start` and `end` counts; forgets what was counted.
    pub(super) fn measure(&mut self, start: u64, end: u64, clocks: &[u64]) {
        self.window = (start, end);
        for (cpu, clock) in clocks.iter().enumerate() {
            self.begin_stretch(cpu, *clock);
        }
        self.sections = [0; SECTIONS];
        self.transfers = [0; STRUCTURES.len()];
        self.locks.fill(0);
        self.idle = 0;
        self.latencies.fill(Histogram::default());
    }

    fn begin_stretch(&mut self, cpu: usize, clock: u64) {
        let (start, end) = self.window;
        let c = &mut self.cpus[cpu];
        c.mark = clock;
        c.inside = clock >= start && clock < end;
        c.bound = if clock < start {
            start
        } else if c.inside {
            end
        } else {
            u64::MAX
        };
    }

    /// The clock of `cpu` moves from `from` to `to` in its section.
    #[inline]
    pub(super) fn run(&mut self, cpu: usize, from: u64, to: u64) {
        if to > self.cpus[cpu].bound {
            self.cross(cpu, None, from, to);
        }
    }

    /// The clock of `cpu` moves from `from` to `to` for `part`.
    #[inline]
    pub(super) fn book(&mut self, cpu: usize, part: Part, from: u64, to: u64) {
        let c = &mut self.cpus[cpu];
        if to > c.bound {
            self.cross(cpu, Some(part), from, to);
        } else {
            c.mark += to - from;
            let ps = if c.inside { to - from } else { 0 };
            self.add(part, ps);
        }
    }

    /// Books the section's time up to the clock.
    #[inline]
    fn flush(&mut self, cpu: usize, clock: u64) {
        let c = &mut self.cpus[cpu];
        if c.inside {
            self.sections[c.section as usize] += clock - c.mark;
        }
        c.mark = clock;
    }

    /// A stretch that ends beyond the next edge of the window (`None`: of the section): what is inside counts.
    #[cold]
    fn cross(&mut self, cpu: usize, part: Option<Part>, from: u64, to: u64) {
        self.flush(cpu, from);
        let ps = self.inside(from, to);
        match part {
            Some(part) => self.add(part, ps),
            None => self.sections[self.cpus[cpu].section as usize] += ps,
        }
        self.begin_stretch(cpu, to);
    }

    /// How much of a stretch lies inside the window.
    #[inline]
    pub(super) fn inside(&self, from: u64, to: u64) -> u64 {
        let (start, end) = self.window;
        to.min(end).saturating_sub(from.max(start))
    }

    fn add(&mut self, part: Part, ps: u64) {
        match part {
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

    #[inline]
    pub(super) fn begin(&mut self, cpu: usize, operation: Operation, now: u64) {
        let before = self.enter(cpu, Section::Fast, now);
        self.cpus[cpu].operation = Some(Under { operation, since: now, path: Path::Fast, before });
    }
    /// An operation is under way on `cpu`.
    #[inline]
    pub(super) fn under_way(&self, cpu: usize) -> bool {
        self.cpus[cpu].operation.is_some()
    }
    /// Ends the operation under way on `cpu`, if there is one; returns how long it took.
    #[inline]
    pub(super) fn end(&mut self, cpu: usize, now: u64) -> Option<u64> {
        let under = self.cpus[cpu].operation.take()?;
        self.enter(cpu, under.before, now);
        if under.since >= self.window.0 && now <= self.window.1 {
            let at = under.operation as usize * Path::ALL.len() + under.path as usize;
            self.latencies[at].add(now - under.since);
        }
        Some(now - under.since)
    }
    /// The operation under way on `cpu`, if any, went at least as far as `path`.
    pub(super) fn reached(&mut self, cpu: usize, path: Path) {
        if let Some(under) = &mut self.cpus[cpu].operation {
            under.path = under.path.max(path);
        }
    }
    pub(super) fn path(&self, cpu: usize) -> Option<Path> {
        self.cpus[cpu].operation.map(|under| under.path)
    }
    pub(super) fn leave_fast_path(&mut self, cpu: usize, now: u64) {
        if self.cpus[cpu].operation.is_some() {
            self.reached(cpu, Path::Refill);
            self.enter(cpu, Section::Slow, now);
        }
    }
    #[inline]
    pub(super) fn enter(&mut self, cpu: usize, section: Section, now: u64) -> Section {
        if section == Section::Pages {
            self.reached(cpu, Path::Page);
        }
        self.flush(cpu, now);
        std::mem::replace(&mut self.cpus[cpu].section, section)
    }

    /// Idle time of all CPUs in the window.
    pub(super) fn idle(&self) -> u64 {
        self.idle
    }

    /// Time of all CPUs in the window spent waiting for locks of the class with this index.
    pub(super) fn waiting(&self, class: usize) -> u64 {
        self.locks.get(class).copied().unwrap_or(0)
    }

    /// Every part with its time over all CPUs; `classes`: names of the lock classes.
    pub(super) fn parts(&mut self, classes: &[&'static str], clocks: &[u64]) -> Vec<(String, u64)> {
        for (cpu, clock) in clocks.iter().enumerate() {
            self.flush(cpu, *clock);
        }
        let mut parts = Vec::new();
        for section in Section::ALL {
            parts.push((section.name().to_string(), self.sections[*section as usize]));
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
        a.measure(100, 200, &[0]);
        a.run(0, 0, 50);
        a.book(0, Part::Idle, 50, 120);
        a.run(0, 120, 190);
        a.book(0, Part::Lock(1), 190, 300);
        a.book(0, Part::Idle, 300, 400);
        let parts = a.parts(&["a", "b"], &[400]);
        let of = |name: &str| parts.iter().find(|p| p.0 == name).unwrap().1;
        assert_eq!((of("idle"), of("workload"), of("waiting for b")), (20, 70, 10));
        assert_eq!(parts.iter().map(|p| p.1).sum::<u64>(), 100);
    }
}
