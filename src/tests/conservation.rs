//! Nothing of a run's time is lost or counted twice.

use serde_json::{Value, json};

use crate::run::{Cancel, run};

/// The `result` of a short run of tbench with two clients a CPU.
fn result(machine: &Value, allocator: &str) -> Value {
    let clients = 2 * machine["cpus"].as_u64().expect("a number of CPUs");
    let config = json!({
        "machine": machine,
        "allocator": allocator,
        "workload": { "name": "tbench", "clients": clients, "seconds": 0.02, "warmup": 0.01 },
    });
    run(&config, &Cancel::default()).unwrap().to_json()["result"].take()
}

/// A column of a frame.
fn column<'a, T>(frame: &'a Value, name: &str, read: impl Fn(&'a Value) -> Option<T>) -> Vec<T> {
    frame[name].as_array().unwrap().iter().map(|v| read(v).unwrap()).collect()
}

/// `time_ps` of every part, and CPUs × measured time.
fn parts(machine: Value, allocator: &str) -> (Vec<(String, u64)>, u64) {
    let cpus = machine["cpus"].as_u64().expect("a number of CPUs");
    let result = result(&machine, allocator);
    let frame = &result["frames"]["time"];
    let names = column(frame, "part", Value::as_str).into_iter().map(String::from);
    let times = column(frame, "time_ps", Value::as_u64);
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

#[test]
fn who_waits_for_a_lock_is_waited_for_by_nobody_else() {
    for (machine, contended) in [
        (json!({ "name": "opteron-2x4-2007", "cpus": 8 }), true),
        (json!({ "name": "opteron-2x4-2007", "cpus": 8, "locks": "ticket", "jitter": 40 }), true),
        (json!({ "name": "opteron-2x4-2007", "cpus": 8, "locks": "mcs", "order": "skewed" }), true),
        (json!({ "name": "tigerton-4x4", "cpus": 16, "idle_states": "deep" }), true),
        (json!({ "name": "opteron-2x4-2007", "cpus": 1 }), false),
    ] {
        for allocator in ["slab", "slub", "slob", "slqb"] {
            let result = result(&machine, allocator);
            let frame = &result["frames"]["waits"];
            let (locks, waited) = (column(frame, "lock", Value::as_str), column(frame, "waited_ps", Value::as_u64));
            let waited_for = column(frame, "waited_for_ps", Value::as_u64);
            let time = &result["frames"]["time"];
            let (parts, ps) = (column(time, "part", Value::as_str), column(time, "time_ps", Value::as_u64));
            let waits = waited.iter().sum::<u64>() > 0;
            assert!(waits == contended || contended && allocator != "slob", "{allocator} on {machine}: {waited:?}");
            for (part, booked) in parts.iter().zip(ps) {
                let Some(lock) = part.strip_prefix("waiting for ") else { continue };
                let of = |column: &[u64]| locks.iter().zip(column).filter(|l| *l.0 == lock).map(|l| l.1).sum::<u64>();
                assert_eq!((of(&waited), of(&waited_for)), (booked, booked), "{allocator} on {machine}: {lock}");
            }
        }
    }
}

#[test]
fn what_the_locks_report_as_waiting_is_their_part_of_time_to_the_picosecond() {
    for kind in ["dec-and-test", "ticket", "mcs"] {
        let machine = json!({ "name": "opteron-2x4-2007", "cpus": 8, "locks": kind });
        for allocator in ["slab", "slub", "slob", "slqb"] {
            let result = result(&machine, allocator);
            let (locks, time) = (&result["frames"]["locks"], &result["frames"]["time"]);
            let (names, waits) = (column(locks, "lock", Value::as_str), column(locks, "wait_ns", Value::as_f64));
            let waits: Vec<u64> = waits.iter().map(|ns| (ns * 1000.0).round() as u64).collect();
            let parts = column(time, "part", Value::as_str).into_iter().zip(column(time, "time_ps", Value::as_u64));
            let booked: Vec<(&str, u64)> =
                parts.filter_map(|(p, ps)| Some((p.strip_prefix("waiting for ")?, ps))).collect();
            for (lock, wait) in names.iter().zip(&waits) {
                let part = booked.iter().find(|b| b.0 == *lock).map_or(0, |b| b.1);
                assert_eq!(*wait, part, "{allocator} with {kind} locks: {lock}");
            }
            let sum: u64 = waits.iter().sum();
            assert_eq!(sum, booked.iter().map(|b| b.1).sum::<u64>(), "{allocator} with {kind} locks");
            assert!(sum > 0, "{allocator} with {kind} locks: nobody waited");
            let cpu_ps = 8.0 * result["summary"]["elapsed_s"].as_f64().unwrap() * 1e12;
            let pct = result["summary"]["lock_wait_pct"].as_f64().unwrap();
            assert!((pct - 100.0 * sum as f64 / cpu_ps).abs() < 1e-9, "{allocator} with {kind} locks: {pct} %");
        }
    }
}
