//! boot: what a boot leaves in memory (workloads.md §11). A footprint test, no timing.
//!
//! Objects it moves: those of a booting 6.1 kernel as its tracer recorded them on one CPU, allocation by allocation and free by
//! free; or only those alive at the end, in the order in which they were taken, their numbers scaled; or a histogram of live
//! objects from anywhere. All of it on CPU 0. The run ends with the objects in place: `caches()` shows what they occupy, then
//! the executor frees them.

use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::kernel::{Kernel, size_of};
use super::{Links, Op, Parameter, Plan, Random, Task, What, Workload};
use crate::error::Error;
use crate::spec::{CacheSpec, check_name};
use crate::units::CpuId;

/// Recorded boots (how they are packed: `pack.py`).
const RECORDINGS: [(&str, &[u8]); 3] = [
    ("slub-6.1", include_bytes!("slub-6.1.xz")),
    ("slab-6.1", include_bytes!("slab-6.1.xz")),
    ("slob-6.1", include_bytes!("slob-6.1.xz")),
];
/// The machine of January 2008: the live objects of the recorded SLAB boot times this, with which SLAB 2.6.24 uses the
/// published 3200.8 kB. Fitted on that row alone; the other allocators are predictions.
const JANUARY_2008: f64 = 0.5207;
/// Marks a free in the events.
const FREE: u8 = 255;
/// Most memory of others.
const MAX_OTHER_KB: u64 = 1 << 40;
/// Most objects of a histogram.
const MAX_OBJECTS: u64 = 1 << 24;

/// Configuration of boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// Which boot.
    pub source: String,
    /// So many times the objects.
    pub scale: Option<f64>,
    /// With a scale: what the boot freed again is there too, scaled alike.
    pub frees: bool,
    /// Era whose object sizes stand in place of the recorded ones.
    pub sizes: Option<String>,
    /// kB in use that no slab allocator gave out.
    pub other_kb: u64,
    /// Rows of a histogram: cache, bytes of an object, live objects.
    pub histogram: Vec<(String, u64, u64)>,
}

impl Default for Boot {
    fn default() -> Self {
        Boot { source: "slub-6.1".into(), scale: None, frees: false, sizes: None, other_kb: 0, histogram: Vec::new() }
    }
}

impl Workload for Boot {
    const NAME: &'static str = "boot";
    const MEANING: &'static str = "footprint after a boot: a recorded one, its live objects scaled, or a histogram";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "source",
            unit: "",
            meaning: "recorded on 6.1 with one CPU: slub-6.1, slab-6.1 or slob-6.1; january-2008; or histogram",
        },
        Parameter {
            name: "scale",
            unit: "",
            meaning: "leave out what the boot freed, and take this many times the live objects; none: replay all of it",
        },
        Parameter {
            name: "frees",
            unit: "",
            meaning: "with scale: what the boot freed again is allocated and freed too, scaled alike",
        },
        Parameter {
            name: "sizes",
            unit: "",
            meaning: "era whose object sizes replace the recorded ones where they are known: 2.6.24 .. 6.18; none: as recorded",
        },
        Parameter {
            name: "other_kb",
            unit: "kB",
            meaning: "memory in use that no slab allocator gave out, counted in used_kb",
        },
        Parameter {
            name: "histogram",
            unit: "",
            meaning: "rows of live objects, with source=histogram: cache, bytes of an object, number",
        },
    ];

    fn check(&self) -> Result<(), Error> {
        let known: Vec<&str> = RECORDINGS.iter().map(|r| r.0).chain(["january-2008", "histogram"]).collect();
        if !known.contains(&self.source.as_str()) {
            return Err(Error::unknown("workload.source", &self.source, &known));
        }
        if let Some(scale) = self.scale.filter(|s| !(*s > 0.0 && *s <= 1000.0)) {
            return Err(Error::new("workload.scale", scale, "more than 0, at most 1000; or none"));
        }
        let own = self.source == "histogram";
        if self.frees && (own || self.scale.is_none()) {
            let right = "false: a histogram has no frees, and a boot without a scale is replayed with all of them";
            return Err(Error::new("workload.frees", true, right));
        }
        if let Some(era) = &self.sizes {
            if own {
                return Err(Error::new("workload.sizes", format!("{era:?}"), "none: the histogram gives its sizes"));
            }
            Kernel::check(era).map_err(|e| Error { parameter: "workload.sizes".into(), ..e })?;
        }
        if self.other_kb > MAX_OTHER_KB {
            return Err(Error::new("workload.other_kb", self.other_kb, format!("at most {MAX_OTHER_KB} kB")));
        }
        if own && self.histogram.is_empty() {
            return Err(Error::new(
                "workload.histogram",
                "no rows",
                "cache, bytes, number: source=histogram needs them",
            ));
        }
        if !own && !self.histogram.is_empty() {
            let right = format!("\"histogram\", as rows are given: {:?} has its own objects", self.source);
            return Err(Error::new("workload.source", format!("{:?}", self.source), right));
        }
        let mut seen = HashSet::new();
        for (i, (name, bytes, _)) in self.histogram.iter().enumerate() {
            if !(1..=4 << 20).contains(bytes) {
                let right = format!("1..4194304 bytes of an object of {name:?}");
                return Err(Error::new(format!("workload.histogram[{i}]"), bytes, right));
            }
            check_name(&format!("workload.histogram[{i}]"), name)?;
            if !seen.insert(name) {
                let right = "each cache once, with all its objects";
                return Err(Error::new(format!("workload.histogram[{i}]"), format!("{name:?} again"), right));
            }
        }
        let total = self.histogram.iter().map(|r| r.2).fold(0, u64::saturating_add);
        if total as f64 * self.scale.unwrap_or(1.0) > MAX_OBJECTS as f64 {
            return Err(Error::new(
                "workload.histogram",
                format!("{total} objects"),
                format!("at most {MAX_OBJECTS} in all"),
            ));
        }
        Ok(())
    }

    fn plan(&self, seed: u64) -> Plan {
        // A boot with its frees is another one with each seed; what is left of one is always the same.
        let seed = self.frees.then_some(seed);
        let (course, scale) = match self.source.as_str() {
            "histogram" => (rows(&self.histogram), Some(self.scale.unwrap_or(1.0))),
            "january-2008" => (recorded("slab-6.1"), Some(JANUARY_2008 * self.scale.unwrap_or(1.0))),
            name => (recorded(name), self.scale),
        };
        let course = match scale {
            None => course,
            Some(scale) if self.frees => scaled(course, scale, seed),
            Some(scale) => scaled(living(course), scale, seed),
        };
        let Course { mut caches, early, events } = course;
        if let Some(era) = &self.sizes {
            for cache in &mut caches {
                if let Some((bytes, _)) = size_of(era, &cache.name) {
                    cache.size = bytes;
                }
            }
        }
        let task = Booting { events: events.into(), at: 0, taken: 0, counts: false };
        let links =
            Links { pinned: vec![(0, CpuId(0))], early, as_left: true, other_kb: self.other_kb, ..Links::default() };
        Plan { links, ..Plan::of(caches, vec![Box::new(task)], "objects/s") }
    }
}

/// What a boot does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Alloc(What),
    /// Frees the object of allocation number so-and-so.
    Free(u32),
}

/// Caches, which of them are early, and what is done.
#[derive(Clone, Default)]
struct Course {
    caches: Vec<CacheSpec>,
    early: Vec<u32>,
    events: Vec<Event>,
}

/// A cache of a recording.
#[derive(Deserialize)]
struct Entry {
    spec: CacheSpec,
    #[cfg_attr(not(test), allow(dead_code))]
    slabs: u64,
    #[cfg_attr(not(test), allow(dead_code))]
    covered: bool,
    #[serde(default)]
    early: bool,
}

/// A cache of kmalloc.
#[derive(Deserialize)]
#[cfg_attr(not(test), allow(dead_code))]
struct General {
    name: String,
    slabs: u64,
    covered: bool,
}

#[derive(Deserialize)]
struct Header {
    caches: Vec<Entry>,
    #[cfg_attr(not(test), allow(dead_code))]
    kmalloc: Vec<General>,
}

/// Header and events of a recording.
fn unpacked(name: &str) -> (Header, Vec<u8>) {
    let packed = RECORDINGS.iter().find(|r| r.0 == name).expect("a recording").1;
    let mut bytes = Vec::new();
    lzma_rust2::XzReader::new(packed, false).read_to_end(&mut bytes).expect("a packed recording");
    let end = bytes.iter().position(|b| *b == b'\n').expect("a line of JSON");
    let header = serde_json::from_slice(&bytes[..end]).expect("a packed recording");
    (header, bytes.split_off(end + 1))
}

/// A recorded boot.
fn recorded(name: &str) -> Course {
    let (header, bytes) = unpacked(name);
    let mut events = Vec::new();
    let mut rest = bytes.into_iter();
    let mut taken = 0;
    let number = |rest: &mut dyn Iterator<Item = u8>| {
        let (mut value, mut shift) = (0u32, 0);
        for byte in rest {
            value |= u32::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                break;
            }
        }
        value
    };
    while let Some(kind) = rest.next() {
        events.push(match kind {
            FREE => Event::Free(taken - number(&mut rest)),
            0 => Event::Alloc(What::Kmalloc(number(&mut rest))),
            cache => Event::Alloc(What::Cache(u32::from(cache) - 1)),
        });
        taken += u32::from(kind != FREE);
    }
    let early = (0..).zip(&header.caches).filter(|(_, c)| c.early).map(|(i, _)| i).collect();
    Course { early, events, caches: header.caches.into_iter().map(|c| c.spec).collect() }
}

/// Slabs at the end of a recorded boot of every used cache of which all objects were recorded.
#[cfg(test)]
pub(crate) fn recorded_slabs(name: &str) -> Vec<(String, u64)> {
    let (header, _) = unpacked(name);
    let own = header.caches.into_iter().map(|c| (c.covered, c.spec.name, c.slabs));
    let all = own.chain(header.kmalloc.into_iter().map(|c| (c.covered, c.name, c.slabs)));
    all.filter(|(covered, ..)| *covered).map(|(_, name, slabs)| (name, slabs)).collect()
}

/// A boot without what it freed again: its live objects in the order in which they were taken.
fn living(course: Course) -> Course {
    let mut alive = Vec::new();
    for event in &course.events {
        match *event {
            Event::Alloc(what) => alive.push(Some(what)),
            Event::Free(at) => alive[at as usize] = None,
        }
    }
    Course { events: alive.into_iter().flatten().map(Event::Alloc).collect(), ..course }
}

/// `scale` times as many objects of each cache and kmalloc size, each freed where the original is.
fn scaled(course: Course, scale: f64, seed: Option<u64>) -> Course {
    // Each kind owes its own fraction, so that its total is right to one object; a seed says which objects those are.
    let mut random = seed.map(|seed| Random::new(seed, 0));
    let mut owed: Vec<(What, f64)> = Vec::new();
    let mut events = Vec::new();
    // Of each original the first copy, and how many.
    let mut copies: Vec<(u32, u32)> = Vec::new();
    let mut taken = 0;
    for event in course.events {
        match event {
            Event::Alloc(what) => {
                let at = owed.iter().position(|(w, _)| *w == what).unwrap_or_else(|| {
                    let begin = random.as_mut().map_or(0.5, |r| r.below(1 << 20) as f64 / f64::from(1 << 20));
                    owed.push((what, begin));
                    owed.len() - 1
                });
                owed[at].1 += scale;
                let n = owed[at].1 as u32;
                owed[at].1 -= f64::from(n);
                copies.push((taken, n));
                taken += n;
                events.extend(std::iter::repeat_n(Event::Alloc(what), n as usize));
            }
            Event::Free(at) => {
                let (first, n) = copies[at as usize];
                events.extend((first..first + n).map(Event::Free));
            }
        }
    }
    Course { events, ..course }
}

/// A histogram as a boot that takes its caches' objects in turn. Rows of kmalloc (`kmalloc-64`, `size-64`) are kmalloc.
fn rows(histogram: &[(String, u64, u64)]) -> Course {
    let mut caches = Vec::new();
    let mut kinds = Vec::new();
    for (name, bytes, count) in histogram {
        let general = ["kmalloc-", "size-"]
            .iter()
            .any(|p| name.strip_prefix(p).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())));
        let what = if general {
            What::Kmalloc(*bytes as u32)
        } else {
            caches.push(CacheSpec::new(name.clone(), *bytes));
            What::Cache(caches.len() as u32 - 1)
        };
        kinds.push((what, *count));
    }
    let most = kinds.iter().map(|k| k.1).max().unwrap_or(0);
    let mut events = Vec::new();
    for i in 0..most {
        events.extend(kinds.iter().filter(|(_, n)| i < *n).map(|(what, _)| Event::Alloc(*what)));
    }
    Course { caches, events, ..Course::default() }
}

/// Goes through the events; slots are numbers of allocations.
struct Booting {
    events: Arc<[Event]>,
    at: usize,
    taken: u32,
    /// An allocation is to be counted.
    counts: bool,
}

impl Task for Booting {
    fn step(&mut self) -> Op {
        if std::mem::take(&mut self.counts) {
            return Op::Done { bytes: 1 };
        }
        let Some(event) = self.events.get(self.at).copied() else { return Op::Exit };
        self.at += 1;
        match event {
            Event::Alloc(what) => {
                self.counts = true;
                self.taken += 1;
                Op::Alloc { what, into: self.taken - 1 }
            }
            Event::Free(slot) => Op::Free { slot },
        }
    }
}
