//! Nothing of a run's time is lost or counted twice.

use serde_json::{Value, json};

use crate::run::{Cancel, run};

/// `time_ps` of every part, and CPUs × measured time.
fn parts(machine: Value, allocator: &str) -> (Vec<(String, u64)>, u64) {
    let cpus = machine["cpus"].as_u64().expect("a number of CPUs");
    let config = json!({
        "machine": machine,
        "allocator": allocator,
        "workload": { "name": "tbench", "clients": 2 * cpus, "seconds": 0.02, "warmup": 0.01 },
    });
    let result = run(&config, &Cancel::default()).unwrap().to_json()["result"].take();
    let frame = &result["frames"]["time"];
    let names = frame["part"].as_array().unwrap().iter().map(|n| n.as_str().unwrap().to_string());
    let times = frame["time_ps"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap());
    let elapsed = (result["summary"]["elapsed_s"].as_f64().unwrap() * 1e12).round() as u64;
    (names.zip(times).collect(), cpus * elapsed)
}

#[test]
fn the_parts_of_time_sum_to_cpus_times_elapsed_to_the_picosecond() {
    for allocator in ["null", "slab", "slub", "slob", "slqb"] {
        for machine in [
            json!({ "name": "opteron-2x4-2007", "cpus": 1 }),
            json!({ "name": "opteron-2x4-2007", "cpus": 8 }),
            json!({ "name": "opteron-2x4-2007", "cpus": 8, "locks": "ticket" }),
            json!({ "name": "tigerton-4x4", "cpus": 16 }),
            json!({ "name": "nehalem-2x4-2011", "cpus": 16 }),
        ] {
            let (parts, total) = parts(machine.clone(), allocator);
            assert_eq!(parts.iter().map(|p| p.1).sum::<u64>(), total, "{allocator} on {machine}: {parts:?}");
            let of = |name: &str| parts.iter().find(|p| p.0 == name).map_or(0, |p| p.1);
            assert!(of("workload") > 0, "{allocator}: {parts:?}");
            assert_eq!(of("allocator, fast paths") > 0, allocator != "null", "{allocator}: {parts:?}");
        }
    }
}
