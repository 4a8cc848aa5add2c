//! Replays the allocations of a whole boot, recorded by the kernel's tracer, on caches that were empty when it began, and
//! compares the slabs each of them has at the end.

use std::collections::HashMap;

use serde_json::Value;

use super::recording;
use crate::alloc::SlabAllocator;
use crate::machine::presets::Machinery;
use crate::machine::sim::Schedule;
use crate::machine::{Machine, Sim};
use crate::page::{PageModel, Pages};
use crate::spec::{CacheId, CacheSpec, Object, Request};

/// A line of a trace, `comm-pid [cpu] flags time: event: key=value …`, in its parts.
pub(super) struct Traced<'a> {
    pub(super) seconds: f64,
    pub(super) event: &'a str,
    fields: &'a str,
}

impl<'a> Traced<'a> {
    /// `None` for comments.
    pub(super) fn parse(line: &'a str) -> Option<Traced<'a>> {
        let (head, rest) = line.split_once(": ")?;
        let (event, fields) = rest.split_once(": ")?;
        Some(Traced { seconds: head.rsplit(' ').next()?.parse().ok()?, event, fields })
    }
    pub(super) fn field(&self, key: &str) -> Option<&'a str> {
        self.fields.split(' ').find_map(|f| f.strip_prefix(key)?.strip_prefix('='))
    }
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.field(key)?.parse().ok()
    }
}

/// What a line says of caches: an object taken from one, or given back. The address is the recorded one.
pub(super) enum Event<'a> {
    Alloc { cache: String, ptr: &'a str },
    Free { ptr: &'a str },
}

/// `None` for comments, other events, and kmallocs above the largest cache.
pub(super) fn event(line: &str) -> Option<Event<'_>> {
    let traced = Traced::parse(line)?;
    let ptr = traced.field("ptr")?;
    match traced.event {
        "kmem_cache_alloc" => Some(Event::Alloc { cache: traced.field("name")?.into(), ptr }),
        "kmalloc" => {
            let (asked, got) = (traced.number("bytes_req")?, traced.number("bytes_alloc")?);
            // SLAB reports 128 bytes for its kmalloc-96, too.
            let bytes = if (65..=96).contains(&asked) { 96 } else { got };
            let kind = if traced.field("gfp_flags")?.contains("__GFP_RECLAIMABLE") { "-rcl" } else { "" };
            let size = if bytes < 1024 { bytes.to_string() } else { format!("{}k", bytes / 1024) };
            (got <= 8192).then(|| Event::Alloc { cache: format!("kmalloc{kind}-{size}"), ptr })
        }
        "kfree" | "kmem_cache_free" => Some(Event::Free { ptr }),
        _ => None,
    }
}

/// Names of the caches that were empty when the trace began and were used in it.
pub(super) fn covered(name: &str) -> Vec<String> {
    let text = recording::plain(&format!("boottrace/{name}.coverage.csv"));
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let at = |column: &str| columns.iter().position(|c| *c == column).expect("a column of the coverage");
    let (allocs, before) = (at("traced_allocs"), at("objects_from_before_the_trace"));
    let rows = lines.map(|l| l.split(',').collect::<Vec<_>>());
    rows.filter(|row| row[allocs] != "0" && row[before] == "0").map(|row| row[0].to_string()).collect()
}

/// What the running kernel made the cache of.
pub(super) fn spec(cache: &Value) -> CacheSpec {
    let number = |key: &str| cache[key].as_u64().expect("a number of a snapshot");
    let flags = cache["flags"].as_str().expect("flags").trim_start_matches("0x");
    let flags = u64::from_str_radix(flags, 16).expect("flags in hex");
    let name = cache["name"].as_str().expect("a name");
    CacheSpec {
        align: number("align"),
        hwcache_align: flags & 0x2000 != 0,
        typesafe_by_rcu: flags & 0x8_0000 != 0,
        reclaim_account: flags & 0x2_0000 != 0,
        // Snapshots of SLOB do not say.
        ctor: cache["has_ctor"].as_u64() == Some(1),
        ..CacheSpec::new(name, number("object_size"))
    }
}

/// Replays `boottrace/NAME` on an allocator of one CPU. Returns how many caches were compared, and of those that differ
/// name, recorded and our slabs.
pub(super) fn replay<A: for<'p> Allocator<'p>>(name: &str, config: &Value) -> (usize, Vec<(String, u64, u64)>) {
    let hardware = Machinery::for_topology(1, 1, super::MEMORY).expect("a small machine");
    let sim = Sim::new(&hardware, Schedule::default()).expect("a machine");
    let pages = Pages::new(&sim, PageModel::Stack).expect("its pages");
    A::run(name, config, &pages)
}

/// An allocator type for any pages.
pub(super) trait Allocator<'p> {
    fn run(name: &str, config: &Value, pages: &'p Pages<'p, Sim>) -> (usize, Vec<(String, u64, u64)>);
}

/// The replay itself.
pub(super) fn run<'p, A: SlabAllocator<'p, Sim>>(
    name: &str,
    config: &Value,
    pages: &'p Pages<'p, Sim>,
) -> (usize, Vec<(String, u64, u64)>) {
    use crate::alloc::Configuration;
    let config = A::Config::from_json(config).expect("a configuration");
    let mut allocator = A::new(pages, &config).expect("the allocator boots");
    let covered = covered(name);
    let mut caches: HashMap<String, (CacheId, u64)> = HashMap::new();
    for line in recording::text(&format!("boottrace/{name}.boot.snap")).lines() {
        let snap: Value = serde_json::from_str(line).expect("a line of JSON");
        let mut spec = spec(&snap["cache"]);
        // kmalloc's own alignment, which may exceed a page, follows from the size.
        if spec.name.starts_with("kmalloc") {
            spec.align = 0;
        }
        if covered.contains(&spec.name) {
            let slabs = snap["nr_slabs"].as_u64().expect("slabs");
            let name = spec.name.clone();
            caches.insert(name, (allocator.create_cache(spec).expect("a cache"), slabs));
        }
    }
    let trace = recording::unpacked(&format!("boottrace/{name}.boot.trace.xz"));
    let shared: &A = &allocator;
    pages.machine().boot(|cpu| {
        let mut live: HashMap<&str, (CacheId, Object)> = HashMap::new();
        for event in trace.lines().filter_map(event) {
            match event {
                Event::Alloc { cache, ptr } => {
                    if let Some(&(id, _)) = caches.get(&cache) {
                        let object = shared.alloc(cpu, id, Request::default()).expect("memory");
                        live.insert(ptr, (id, object));
                    }
                }
                Event::Free { ptr } => {
                    if let Some((id, object)) = live.remove(ptr) {
                        shared.free(cpu, id, object);
                    }
                }
            }
        }
    });
    allocator.verify().expect("sound slabs");
    let mut different = Vec::new();
    for (name, (id, recorded)) in &caches {
        let ours = allocator.info(*id).slabs.expect("slabs");
        if ours != *recorded {
            different.push((name.clone(), *recorded, ours));
        }
    }
    (caches.len(), different)
}

struct Slub;
impl<'p> Allocator<'p> for Slub {
    fn run(name: &str, config: &Value, pages: &'p Pages<'p, Sim>) -> (usize, Vec<(String, u64, u64)>) {
        run::<crate::alloc::slub::Slub<'p, Sim>>(name, config, pages)
    }
}

#[test]
fn slub_smp1_every_covered_cache_has_the_slabs_of_the_booted_kernel() {
    let config = serde_json::json!({ "era": "6.1", "merge": false });
    let (compared, different) = replay::<Slub>("slub_smp1", &config);
    super::tallied("boottrace/slub_smp1", "covered caches", (compared - different.len()) as u64, compared as u64);
    assert_eq!((compared, different), (44, vec![]));
}
