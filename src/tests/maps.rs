//! The map of every allocator, in every era, agrees with what the script holds and with the allocator's own figures.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::run::{Cancel, run};
use crate::workload::random::Random;

const CPUS: u64 = 4;

/// Every allocator with each of its eras.
fn allocators() -> Vec<String> {
    let catalog = crate::run::catalog();
    let list = |v: &Value| v.as_array().unwrap().clone();
    let eras = |a: &Value| {
        list(&a["eras"])
            .iter()
            .map(|e| format!("{}@{}", a["name"].as_str().unwrap(), e["era"].as_str().unwrap()))
            .collect()
    };
    list(&catalog["allocators"]).iter().flat_map(|a: &Value| -> Vec<String> { eras(a) }).collect()
}

/// Takes and gives back objects of two caches and of kmalloc on all CPUs, with a map now and then; shrinks at the end.
fn ops(seed: u64) -> Vec<Value> {
    let mut random = Random::new(seed, 0);
    let mut below = move |n: u64| random.below(n);
    let (mut ops, mut held): (Vec<Value>, Vec<(u64, bool)>) = (Vec::new(), Vec::new());
    for step in 0..3000u64 {
        let cpu = below(CPUS);
        let grows = below(1500) > step % 1500;
        let op = if held.is_empty() || (grows && below(3) > 0) {
            let kind = below(3);
            held.push((step, kind == 2));
            match kind {
                2 => json!({ "kmalloc": { "bytes": 1 + below(900), "slot": step } }),
                cache => json!({ "alloc": { "cache": cache, "slot": step } }),
            }
        } else {
            let (slot, kmalloc) = held.swap_remove(below(held.len() as u64) as usize);
            json!({ if kmalloc { "kfree" } else { "free" }: { "slot": slot } })
        };
        ops.push(json!({ "cpu": cpu, "op": op }));
        if step % 250 == 249 {
            ops.push(json!({ "op": { "map": { "name": step.to_string() } } }));
        }
    }
    ops.push(json!({ "op": { "shrink": { "cache": 0 } } }));
    ops.push(json!({ "op": { "map": { "name": "shrunk" } } }));
    ops
}

#[test]
fn a_map_shows_every_held_object_as_used_and_no_other() {
    for allocator in allocators() {
        let config = json!({
            "machine": { "name": "opteron-2x4-2007", "cpus": CPUS, "arena_per_node": 64 },
            "allocator": allocator,
            "workload": { "name": "script", "ops": ops(7), "caches": [
                { "name": "one", "size": 104 }, { "name": "two", "size": 700, "hwcache_align": true } ] },
        });
        let result = run(&config, &Cancel::default()).unwrap().to_json()["result"].take();
        let shared = allocator.starts_with("slob");
        let mut queued = 0;
        for checkpoint in result["checkpoints"].as_array().unwrap() {
            let map = &checkpoint["map"];
            let what = format!("{allocator}, {}", checkpoint["name"]);
            let slabs = map["slabs"].as_array().unwrap();
            let mut held: BTreeSet<(u64, u64)> = BTreeSet::new();
            for slot in map["slots"].as_array().unwrap() {
                let at: Vec<u64> = slot["at"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
                assert!(held.insert((at[0], at[1])), "{what}: two slots hold {at:?}");
                let object = &slabs[at[0] as usize]["objects"][at[1] as usize];
                assert_eq!(object[2], "used", "{what}: {slot}");
            }
            assert_eq!(held.len() as u64, checkpoint["filled"].as_u64().unwrap(), "{what}");
            let (made, caches) = (map["made"].as_array().unwrap(), map["caches"].as_array().unwrap());
            assert!(made.iter().all(|id| caches.iter().any(|c| c["cache"] == *id)), "{what}");
            let mut end = 0;
            for (number, slab) in slabs.iter().enumerate() {
                let (first, pages) = (slab["slab"].as_u64().unwrap(), slab["pages"].as_u64().unwrap());
                assert!(first >= end, "{what}: slabs overlap at frame {first}");
                end = first + pages;
                let mut inside = 0;
                let mut free = 0;
                for (index, object) in slab["objects"].as_array().unwrap().iter().enumerate() {
                    let (at, bytes) = (object[0].as_u64().unwrap(), object[1].as_u64().unwrap());
                    assert!(at >= inside && bytes > 0, "{what}: objects overlap in {slab}");
                    inside = at + bytes;
                    let state = object[2].as_str().unwrap();
                    queued += u64::from(state != "used" && state != "free");
                    free += u64::from(state == "free");
                    // Of the script's caches, what is in use is what the script holds.
                    let ours = !shared && made.contains(&slab["cache"]);
                    assert!(
                        !ours || (state == "used") == held.contains(&(number as u64, index as u64)),
                        "{what}: {slab}"
                    );
                }
                assert!(inside <= pages * 4096, "{what}: {slab}");
                let list = slab["list"].as_str().unwrap();
                assert!(!list.starts_with("full") || free == 0, "{what}: {slab}");
                // SLUB lets empty slabs stay partial.
                assert!(
                    list != "empty" || free as usize == slab["objects"].as_array().unwrap().len(),
                    "{what}: {slab}"
                );
            }
        }
        // SLOB has no lists of objects; a CPU of SLUB at first took its objects one by one from its slab.
        assert_eq!(queued > 0, !shared && allocator != "slub@2.6.21-mm1", "{allocator}");
    }
}

#[test]
fn a_cache_made_by_a_step_is_the_next_one() {
    let config = json!({
        "machine": { "name": "opteron-2x4-2007", "cpus": 1 },
        "allocator": "slab@2.6.24",
        "workload": { "name": "script", "caches": [{ "name": "one", "size": 104 }], "ops": [
            { "op": { "alloc": { "cache": 0, "slot": 0 } } },
            { "op": { "create": { "cache": { "name": "two", "size": 300 } } } },
            { "op": { "alloc": { "cache": 1, "slot": 1 } } },
            { "op": { "map": { "name": "both" } } },
            { "op": { "checkpoint": { "name": "plain" } } },
        ] },
    });
    let result = run(&config, &Cancel::default()).unwrap().to_json()["result"].take();
    let map = &result["checkpoints"][0]["map"];
    assert_eq!(map["slots"].as_array().unwrap().len(), 2);
    let name = |n: usize| {
        map["caches"].as_array().unwrap().iter().find(|c| c["cache"] == map["made"][n]).unwrap()["name"].clone()
    };
    assert_eq!([name(0), name(1)], [json!("one"), json!("two")]);
    assert_eq!(result["checkpoints"][1].get("map"), None);
}
