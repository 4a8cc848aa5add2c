//! The allocation profile of a run: what each cache was asked for, who gave it back, and how long it lived
//! (`Result.profile()`).
//!
//! Kept only when a run asks for it. On Sim it takes no virtual time, so a run with it is the same run; on Native it takes a
//! lock per allocation, and the run is slower.

use std::collections::HashMap;
use std::sync::Mutex;

use super::result::{Column, Frame};
use crate::page::{Observer, Taken};
use crate::spec::{CacheId, CacheSpec};
use crate::units::{Addr, CpuId, Picos};

/// Classes of kmalloc, whatever the allocator makes of a request: rows of different allocators compare.
const CLASSES: [u64; 10] = [8, 16, 32, 64, 96, 128, 192, 256, 512, 1024];

/// An object that is out.
struct Birth {
    row: usize,
    cpu: CpuId,
    /// Allocations of all caches before it.
    order: u64,
    time: Picos,
}

/// One cache, or one class of kmalloc.
#[derive(Default)]
struct Row {
    allocs: u64,
    frees: u64,
    remote: u64,
    live: u64,
    peak: u64,
    /// Lifetimes in allocations between, by powers of two: bucket b holds 2^(b-1) to 2^b - 1.
    lives: [u64; 32],
    time_ps: u128,
}

#[derive(Default)]
struct Books {
    out: HashMap<u64, Birth>,
    rows: Vec<Row>,
    index: HashMap<Taken, usize>,
    order: u64,
    /// Counts what happens from here on.
    from: Picos,
    until: Option<Picos>,
}

/// Watches a run.
#[derive(Default)]
pub(super) struct Recorder(Mutex<Books>);

/// The class of a kmalloc request.
fn class(bytes: u64) -> u64 {
    CLASSES.into_iter().find(|c| *c >= bytes).unwrap_or_else(|| bytes.next_power_of_two())
}

impl Observer for Recorder {
    fn taken(&self, cpu: CpuId, now: Picos, what: Taken, at: Addr) {
        let key = match what {
            Taken::Kmalloc(bytes) => Taken::Kmalloc(class(bytes)),
            cache => cache,
        };
        let mut books = self.0.lock().expect("no observer panics");
        let books = &mut *books;
        let row = *books.index.entry(key).or_insert_with(|| {
            books.rows.push(Row::default());
            books.rows.len() - 1
        });
        let r = &mut books.rows[row];
        r.live += 1;
        if now >= books.from {
            r.allocs += 1;
            r.peak = r.peak.max(r.live);
        }
        books.out.insert(at.0, Birth { row, cpu, order: books.order, time: now });
        books.order += 1;
    }

    fn given(&self, cpu: CpuId, now: Picos, at: Addr) {
        let mut books = self.0.lock().expect("no observer panics");
        let books = &mut *books;
        let Some(birth) = books.out.remove(&at.0) else { return };
        let r = &mut books.rows[birth.row];
        r.live -= 1;
        // What is freed when the run is over is not the workload's.
        if now >= books.from && books.until.is_none_or(|end| now <= end) {
            r.frees += 1;
            r.remote += u64::from(birth.cpu != cpu);
            let between = books.order - birth.order - 1;
            r.lives[(64 - between.leading_zeros() as usize).min(31)] += 1;
            r.time_ps += u128::from(now.0.saturating_sub(birth.time.0));
        }
    }
}

impl Row {
    /// Allocations that came between, of the free at share `q` of all: the lower end of its bucket.
    fn life(&self, q: f64) -> f64 {
        if self.frees == 0 {
            return f64::NAN;
        }
        let wanted = ((self.frees as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.lives.iter().position(|n| {
            seen += n;
            seen >= wanted
        });
        bucket.map_or(f64::NAN, |b| if b == 0 { 0.0 } else { (1u64 << (b - 1)) as f64 })
    }
}

impl Recorder {
    /// Counts from `warm` to `end` only.
    pub(super) fn window(&self, warm: Picos, end: Picos) {
        let mut books = self.0.lock().expect("no observer panics");
        (books.from, books.until) = (warm, Some(end));
    }

    /// One row per cache and class that was used. `specs` are the workload's caches with their numbers.
    pub(super) fn frame(&self, specs: &[(CacheId, CacheSpec)], names: &[String], ops: u64) -> Frame {
        let books = self.0.lock().expect("no observer panics");
        let mut rows: Vec<(String, f64, &Row)> = Vec::new();
        for (key, at) in &books.index {
            let row = &books.rows[*at];
            if row.allocs + row.frees == 0 {
                continue;
            }
            let (name, bytes) = match key {
                Taken::Kmalloc(bytes) => (format!("kmalloc-{bytes}"), *bytes as f64),
                Taken::Cache(id) => {
                    // Caches that the allocator has merged are one.
                    let own: Vec<&CacheSpec> = specs.iter().filter(|(c, _)| c.0 == *id).map(|(_, s)| s).collect();
                    let name = own.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join("+");
                    let name = if own.is_empty() { names[*id as usize].clone() } else { name };
                    (name, own.iter().map(|s| s.size).max().map_or(f64::NAN, |s| s as f64))
                }
            };
            rows.push((name, bytes, row));
        }
        rows.sort_by(|a, b| b.2.allocs.cmp(&a.2.allocs).then(a.0.cmp(&b.0)));
        let per_op = |n: u64| if ops == 0 { f64::NAN } else { n as f64 / ops as f64 };
        let number = |f: &dyn Fn(&Row) -> f64| Column::F64(rows.iter().map(|r| f(r.2)).collect());
        let count = |f: &dyn Fn(&Row) -> u64| Column::U64(rows.iter().map(|r| f(r.2)).collect());
        let share = |part: f64, whole: u64| if whole == 0 { f64::NAN } else { part / whole as f64 };
        Frame {
            name: "profile",
            columns: vec![
                ("cache".into(), Column::Str(rows.iter().map(|r| r.0.clone()).collect())),
                ("bytes".into(), Column::F64(rows.iter().map(|r| r.1).collect())),
                ("allocs".into(), count(&|r| r.allocs)),
                ("frees".into(), count(&|r| r.frees)),
                ("allocs_per_op".into(), number(&|r| per_op(r.allocs))),
                ("frees_per_op".into(), number(&|r| per_op(r.frees))),
                ("free_remote_pct".into(), number(&|r| share(100.0 * r.remote as f64, r.frees))),
                ("life_p50".into(), number(&|r| r.life(0.5))),
                ("life_p90".into(), number(&|r| r.life(0.9))),
                ("life_p99".into(), number(&|r| r.life(0.99))),
                ("life_mean_us".into(), number(&|r| share(r.time_ps as f64 / 1e6, r.frees))),
                ("in_flight_peak".into(), count(&|r| r.peak)),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_allocations_between_and_a_free_elsewhere_is_remote() {
        let r = Recorder::default();
        for (i, at) in [64, 128, 192, 256].into_iter().enumerate() {
            r.taken(CpuId(0), Picos(i as u64), Taken::Kmalloc(60), Addr(at));
        }
        r.window(Picos(0), Picos(100));
        r.given(CpuId(1), Picos(10), Addr(64));
        r.given(CpuId(0), Picos(11), Addr(256));
        r.given(CpuId(0), Picos(200), Addr(128));
        let frame = r.frame(&[], &[], 2);
        let column = |name: &str| frame.columns.iter().find(|c| c.0 == name).unwrap().1.clone();
        assert_eq!(column("cache"), Column::Str(vec!["kmalloc-64".into()]));
        assert_eq!((column("allocs"), column("frees")), (Column::U64(vec![4]), Column::U64(vec![2])));
        assert_eq!((column("life_p50"), column("life_p99")), (Column::F64(vec![0.0]), Column::F64(vec![2.0])));
        assert_eq!(
            (column("free_remote_pct"), column("in_flight_peak")),
            (Column::F64(vec![50.0]), Column::U64(vec![4]))
        );
    }
}
