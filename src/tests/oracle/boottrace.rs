//! Replays the allocations of a booting 6.1 kernel from almost empty caches. Caches of which nothing was allocated before
//! the trace began have as many slabs at its end as the kernel had.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

use serde_json::Value;

use super::MEMORY;
use crate::alloc::slab::{Config, Slab};
use crate::alloc::{Configuration, SlabAllocator};
use crate::machine::presets::Machinery;
use crate::machine::sim::Schedule;
use crate::machine::{Machine, Sim};
use crate::page::{PageModel, Pages};
use crate::spec::{CacheId, CacheSpec, Object, Request};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/tests/oracle/data/boottrace").join(name)
}
fn unpacked(name: &str) -> String {
    let packed = std::fs::read(path(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut text = String::new();
    lzma_rust2::XzReader::new(packed.as_slice(), true).read_to_string(&mut text).expect("an xz file of text");
    text
}

/// One event: the kernel's address, and for an allocation the cache's name.
enum Event<'a> {
    Alloc { at: &'a str, cache: String },
    Free { at: &'a str },
}

/// The value of `key=` in a line of ftrace.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// The event in a line; none for kmallocs above the largest cache and frees of nothing.
fn event(line: &str) -> Option<Event<'_>> {
    let at = field(line, "ptr")?;
    if line.contains(" kmem_cache_alloc: ") {
        return Some(Event::Alloc { at, cache: field(line, "name")?.to_string() });
    }
    if line.contains(" kmalloc: ") {
        let number = |key| field(line, key).and_then(|n| n.parse::<u64>().ok());
        let (asked, got) = (number("bytes_req")?, number("bytes_alloc")?);
        let size = if (65..=96).contains(&asked) { 96 } else { got };
        let kind = if line.contains("__GFP_RECLAIMABLE") { "rcl-" } else { "" };
        let size = if size >= 1024 { format!("{}k", size / 1024) } else { size.to_string() };
        return (got <= 8192).then(|| Event::Alloc { at, cache: format!("kmalloc-{kind}{size}") });
    }
    Some(Event::Free { at })
}

/// A cache of the snapshot.
struct Known {
    spec: CacheSpec,
    /// Slabs at the end.
    slabs: u64,
    /// Made before the kernel counted its CPU: seen from `free_limit`.
    early: bool,
}

/// Every cache of the snapshot.
fn caches() -> Vec<Known> {
    let cache = |line: &str| {
        let snap: Value = serde_json::from_str(line).expect("a line of a snapshot");
        let c = &snap["cache"];
        let flags = c["flags"].as_str().and_then(|f| u64::from_str_radix(&f[2..], 16).ok()).expect("flags");
        let spec = CacheSpec {
            align: c["align"].as_u64().expect("align"),
            hwcache_align: flags & 0x2000 != 0,
            reclaim_account: flags & 0x2_0000 != 0,
            typesafe_by_rcu: flags & 0x8_0000 != 0,
            ctor: c["has_ctor"] == 1,
            ..CacheSpec::new(c["name"].as_str().expect("name"), c["object_size"].as_u64().expect("object_size"))
        };
        let number = |value: &Value| value.as_u64().expect("a number");
        let early = number(&snap["node"][0]["free_limit"]) == number(&c["batchcount"]) + number(&c["objs_per_slab"]);
        Known { spec, slabs: number(&snap["nr_slabs"]), early }
    };
    unpacked("slabnoreap_smp1.boot.snap.jsonl.xz").lines().map(cache).collect()
}

/// Names of the caches that the trace covers from their first object on and that were used.
fn covered() -> Vec<String> {
    let text = std::fs::read_to_string(path("slabnoreap_smp1.coverage.csv")).expect("coverage");
    let rows = text.lines().skip(1).map(|l| l.split(',').collect::<Vec<_>>());
    rows.filter(|r| r[7] == "0" && r[4] != "0").map(|r| r[0].to_string()).collect()
}

#[test]
fn a_replayed_boot_ends_with_the_slabs_of_the_kernel() {
    let sim = Sim::new(&Machinery::for_topology(1, 1, MEMORY).expect("a machine"), Schedule::default()).expect("one");
    let pages = Pages::new(&sim, PageModel::Stack).expect("its pages");
    let given = serde_json::json!({ "era": "6.1", "merge": false, "metadata": "free" });
    let mut slab = Slab::new(&pages, &Config::from_json(&given).expect("a configuration")).expect("an allocator");
    let caches = caches();
    let mut ids: HashMap<&str, CacheId> = HashMap::new();
    for known in &caches {
        let id = slab.create_cache(known.spec.clone()).expect("a cache of the kernel");
        if known.early {
            slab.made_before_cpus(id);
        }
        ids.insert(&known.spec.name, id);
    }
    let trace = unpacked("slabnoreap_smp1.boot.trace.xz");
    sim.boot(|cpu| {
        let mut live: HashMap<&str, (CacheId, Object)> = HashMap::new();
        for event in trace.lines().filter(|l| !l.starts_with('#')).filter_map(event) {
            match event {
                Event::Alloc { at, cache } => {
                    let id = ids[cache.as_str()];
                    let object = slab.alloc(cpu, id, Request::default()).expect("memory");
                    assert!(live.insert(at, (id, object)).is_none(), "{at} is handed out twice");
                }
                // Frees of what was there before the trace began concern caches that are not compared.
                Event::Free { at } => {
                    if let Some((id, object)) = live.remove(at) {
                        slab.free(cpu, id, object);
                    }
                }
            }
        }
    });
    slab.verify().expect("a consistent allocator");
    let covered = covered();
    let slabs: HashMap<&str, u64> = caches.iter().map(|c| (c.spec.name.as_str(), c.slabs)).collect();
    let wrong: Vec<String> = covered
        .iter()
        .map(|name| (name, slabs[name.as_str()], slab.info(ids[name.as_str()]).slabs.expect("slabs")))
        .filter(|(_, recorded, ours)| recorded != ours)
        .map(|(name, recorded, ours)| format!("{name}: recorded {recorded}, ours {ours}"))
        .collect();
    println!("boottrace/slabnoreap_smp1: {}/{} covered caches equal", covered.len() - wrong.len(), covered.len());
    assert_eq!(covered.len(), 44);
    assert!(wrong.is_empty(), "{wrong:?}");
}
