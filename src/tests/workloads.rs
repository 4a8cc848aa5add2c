//! Every workload on every allocator: it does something, ends sound, and leaves nothing behind.
//!
//! Properties: (1) each registered workload runs on each allocator at 1, 2 and 8 simulated CPUs and at 1 and 2 native ones,
//! completes operations and fails no allocation; (2) when it is over no cache holds an object and every page is back
//! (`run` verifies allocator and pages); (3) a run repeats byte by byte; (4) running ahead changes nothing.

use serde_json::{Value, json};

use crate::run::{Cancel, run};

macro_rules! allocator_names {
    ($($name:literal => $alloc:ty, $config:ty;)*) => { [$($name),*] };
}
macro_rules! workload_names {
    ($($name:literal => $workload:ty;)*) => { [$($name),*] };
}

/// A short run of a workload on so many CPUs.
pub(super) fn short(workload: &str, cpus: u64) -> Value {
    match workload {
        "tbench" => json!({ "name": workload, "clients": 2 * cpus, "seconds": 0.005, "warmup": 0.002 }),
        "oltp" => json!({ "name": workload, "irq_cpus": cpus.div_ceil(4), "seconds": 0.01, "warmup": 0.005 }),
        "specjbb" | "cpu2k" => json!({ "name": workload, "seconds": 0.02, "warmup": 0.005 }),
        "dbench" => json!({ "name": workload, "clients": cpus, "seconds": 0.01, "warmup": 0.005 }),
        "kbuild" => {
            json!({ "name": workload, "mix": "shell", "jobs": cpus, "user_ms": 1, "seconds": 0.03, "warmup": 0.01 })
        }
        "aim7" => json!({ "name": workload, "tasks": cpus, "user_us": 20, "seconds": 0.01, "warmup": 0.005 }),
        // Ten groups on one CPU fill their sockets for longer than this lasts.
        "hackbench" => json!({ "name": workload, "groups": 1, "seconds": 0.05, "warmup": 0.02 }),
        "boot" => json!({ "name": workload, "scale": 0.05 }),
        "compose" => json!({ "name": workload, "seconds": 0.005, "warmup": 0.001, "tasks": [
            { "count": 2, "loop": [
                { "alloc": { "kmalloc": { "uniform": [8, 3000] }, "slot": { "uniform": [0, 9] } } },
                { "work": { "us": 1 } }, { "free": { "slot": { "uniform": [0, 9] }, "rcu": true } }, { "done": {} },
            ] },
        ] }),
        "slab_test" => json!({ "name": workload, "objects": 100 }),
        _ => json!({ "name": workload }),
    }
}

/// The same natively: wall time, so that workers have started before it is over.
fn native(workload: &str, cpus: u64) -> Value {
    let mut short = short(workload, cpus);
    if short.get("seconds").is_some() {
        (short["seconds"], short["warmup"]) = (json!(0.03), json!(0));
    }
    short
}

/// An allocator whose own structures take no objects.
fn bare(allocator: &str) -> Value {
    match allocator {
        "slab" => json!({ "name": "slab", "metadata": "free" }),
        _ => json!({ "name": allocator }),
    }
}

fn outcome(machine: Value, allocator: &str, workload: Value) -> Value {
    let config = json!({ "machine": machine, "allocator": bare(allocator), "workload": workload, "seed": 3 });
    match run(&config, &Cancel::default()) {
        Ok(outcome) => outcome.to_json()["result"].take(),
        Err(failure) => panic!("{config}: {failure:?}"),
    }
}

fn check(result: &Value, what: &str) {
    let summary = &result["summary"];
    assert!(summary["ops"].as_u64().unwrap() > 0, "{what}: {summary}");
    assert!(summary["throughput"].as_f64().unwrap() > 0.0, "{what}: {summary}");
    sound(result, what);
}

fn sound(result: &Value, what: &str) {
    assert_eq!(result["summary"]["alloc_failed"], 0, "{what}");
    if result["config"]["workload"]["name"] != "boot" {
        let column = |key: &str| result["frames"]["caches"][key].as_array().unwrap();
        // The allocator's own structures (kmem_cache, kmem_cache_cpu, kmem_cache_node) live as long as it does.
        let of_others = |name: &Value| !name.as_str().unwrap().starts_with("kmem_cache");
        let left: Vec<_> = column("cache")
            .iter()
            .zip(column("live_objects"))
            .filter(|(name, live)| of_others(name) && **live != 0)
            .collect();
        assert!(left.is_empty(), "{what} leaks: {left:?}");
    }
}

#[test]
fn every_workload_runs_on_every_allocator_and_leaves_nothing() {
    for workload in crate::workloads!(workload_names) {
        for allocator in crate::allocators!(allocator_names) {
            for cpus in [1, 2, 8] {
                let machine = json!({ "name": "opteron-2x4-2007", "cpus": cpus });
                let what = format!("{workload} on {allocator} at {cpus} CPUs");
                check(&outcome(machine, allocator, short(workload, cpus)), &what);
            }
        }
    }
}

#[test]
fn every_workload_runs_natively_and_leaves_nothing() {
    for workload in crate::workloads!(workload_names) {
        let mut ops = 0;
        for allocator in crate::allocators!(allocator_names) {
            for cpus in [1, 2] {
                let machine = json!({ "name": "native", "cpus": cpus, "memory_mib": 512 });
                let what = format!("{workload} on {allocator} at {cpus} native CPUs");
                let result = outcome(machine, allocator, native(workload, cpus));
                sound(&result, &what);
                ops += result["summary"]["ops"].as_u64().unwrap();
            }
        }
        // A busy host may keep the workers of one run from running: not those of all.
        assert!(ops > 0, "{workload} does nothing natively");
    }
}

#[test]
fn every_workload_repeats() {
    for workload in crate::workloads!(workload_names) {
        let once = || outcome(json!({ "name": "opteron-2x4-2007", "cpus": 4 }), "slub", short(workload, 4)).to_string();
        assert_eq!(once(), once(), "{workload}");
    }
}
