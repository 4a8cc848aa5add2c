//! Replays the allocations of a booting 6.1 kernel from almost empty caches. Caches of which nothing was allocated before
//! the trace began have as many slabs at its end as the kernel had.

use std::collections::HashMap;

use serde_json::Value;

use super::boot::{Event, covered, event, spec};
use super::{MEMORY, recording};
use crate::alloc::slab::{Config, Slab};
use crate::alloc::{Configuration, SlabAllocator};
use crate::machine::presets::Machinery;
use crate::machine::sim::Schedule;
use crate::machine::{Machine, Sim};
use crate::page::{PageModel, Pages};
use crate::spec::{CacheId, CacheSpec, Object, Request};

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
        let number = |value: &Value| value.as_u64().expect("a number");
        let early = number(&snap["node"][0]["free_limit"]) == number(&c["batchcount"]) + number(&c["objs_per_slab"]);
        Known { spec: spec(c), slabs: number(&snap["nr_slabs"]), early }
    };
    recording::text("boottrace/slabnoreap_smp1.boot.snap").lines().map(cache).collect()
}

#[test]
fn a_replayed_boot_ends_with_the_slabs_of_the_kernel() {
    let sim = Sim::new(&Machinery::for_topology(1, 1, MEMORY).expect("a machine"), Schedule::default()).expect("one");
    let pages = Pages::new(&sim, PageModel::Stack).expect("its pages");
    let given = serde_json::json!({ "era": "6.1", "merge": false, "metadata": "free" });
    let mut slab = Slab::new(&pages, &Config::from_json(&given).expect("a configuration")).expect("an allocator");
    let caches = caches();
    let mut ids: HashMap<&str, CacheId> = HashMap::new();
    // kmalloc's caches, reclaimable ones too, are the allocator's own.
    let own: HashMap<String, CacheId> =
        (0..slab.cache_count() as u32).map(CacheId).map(|id| (slab.info(id).name, id)).collect();
    for known in &caches {
        let id = match own.get(&known.spec.name) {
            Some(id) => *id,
            None => slab.create_cache(known.spec.clone()).expect("a cache of the kernel"),
        };
        if known.early {
            slab.made_before_cpus(id);
        }
        ids.insert(&known.spec.name, id);
    }
    let trace = recording::unpacked("boottrace/slabnoreap_smp1.boot.trace.xz");
    sim.boot(|cpu| {
        let mut live: HashMap<&str, (CacheId, Object)> = HashMap::new();
        for event in trace.lines().filter_map(event) {
            match event {
                Event::Alloc { ptr: at, cache } => {
                    let id = ids[cache.as_str()];
                    let object = slab.alloc(cpu, id, Request::default()).expect("memory");
                    assert!(live.insert(at, (id, object)).is_none(), "{at} is handed out twice");
                }
                // Frees of what was there before the trace began concern caches that are not compared.
                Event::Free { ptr: at } => {
                    if let Some((id, object)) = live.remove(at) {
                        slab.free(cpu, id, object);
                    }
                }
            }
        }
    });
    slab.verify().expect("a consistent allocator");
    let covered = covered("slabnoreap_smp1");
    let slabs: HashMap<&str, u64> = caches.iter().map(|c| (c.spec.name.as_str(), c.slabs)).collect();
    let wrong: Vec<String> = covered
        .iter()
        .map(|name| (name, slabs[name.as_str()], slab.info(ids[name.as_str()]).slabs.expect("slabs")))
        .filter(|(_, recorded, ours)| recorded != ours)
        .map(|(name, recorded, ours)| format!("{name}: recorded {recorded}, ours {ours}"))
        .collect();
    let there = covered.len() as u64;
    super::tallied("boottrace/slabnoreap_smp1", "covered caches", there - wrong.len() as u64, there);
    assert_eq!(covered.len(), 44);
    assert!(wrong.is_empty(), "{wrong:?}");
}
