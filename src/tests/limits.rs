//! Runs at the edge: measurements shorter than a step, memory that is out on many CPUs, runs that are stopped.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::run::{Cancel, Column, Failure, Outcome, expand, run};

fn tbench(machine: Value, allocator: &str, workload: Value) -> Outcome {
    let mut full = json!({ "name": "tbench" });
    full.as_object_mut().unwrap().extend(workload.as_object().unwrap().clone());
    let config = json!({ "machine": machine, "allocator": allocator, "workload": full });
    run(&config, &Cancel::default()).expect("a run")
}

fn number(outcome: &Outcome, key: &str) -> f64 {
    outcome.summary[key].as_f64().unwrap_or_else(|| panic!("{key}: {}", outcome.summary[key]))
}

/// Operations complete at about this rate, however short the measurement: those of the warm-up do not count.
#[test]
fn a_measurement_shorter_than_a_step_counts_none_of_the_warm_up() {
    let slow = |seconds: f64| {
        let workload = json!({ "protocol_scale": 1000, "seconds": seconds, "warmup": 0.05 });
        tbench(json!("opteron-2x4-2007"), "slub", workload)
    };
    let long = slow(0.05);
    assert!((20.0..60.0).contains(&number(&long, "ops")), "{}", number(&long, "ops"));
    let short = slow(1e-3);
    assert!(number(&short, "ops") <= 3.0, "0.7 operations a millisecond: {}", number(&short, "ops"));
    let shortest = tbench(json!("opteron-2x4-2007"), "slub", json!({ "seconds": 1e-6, "warmup": 0.01 }));
    assert!(number(&shortest, "ops") <= 2.0, "{}", number(&shortest, "ops"));
    assert_eq!(number(&shortest, "elapsed_s"), 1e-6);
}

/// Counts of a column of a frame, where another column says `word`.
fn sum(outcome: &Outcome, frame: &str, by: &str, words: &[&str], of: &str) -> u64 {
    let frame = outcome.frames.iter().find(|f| f.name == frame).expect("the frame");
    let column = |name: &str| &frame.columns.iter().find(|(n, _)| n == name).expect("the column").1;
    let (Column::Str(by), Column::U64(of)) = (column(by), column(of)) else { panic!("kinds of columns") };
    by.iter().zip(of).filter(|(b, _)| words.contains(&b.as_str())).map(|(_, n)| n).sum()
}

/// `latency()` has the operations that lie inside the measurement as a whole, `stats()` those of the steps that began in it.
/// They differ by at most a step on each CPU: what is freed when the run is over is in neither.
#[test]
fn frees_after_the_measurement_are_not_counted() {
    let machine = json!({ "name": "opteron-2x4-2007", "cpus": 2, "arena_per_node": 8 });
    let outcome = tbench(machine, "slab", json!({ "clients": 200, "seconds": 0.01 }));
    let stats = |names: &[&str]| sum(&outcome, "stats", "stat", names, "count");
    let latency = |word: &str| sum(&outcome, "latency", "operation", &[word], "count");
    let (allocs, frees) =
        (stats(&["allochit", "allocmiss", "nodeallocs"]), stats(&["freehit", "freemiss", "remotefrees"]));
    for (stats, latency) in [(allocs, latency("alloc")), (frees, latency("free"))] {
        assert!(latency > 2000 && stats.abs_diff(latency) <= 50, "{stats} of stats, {latency} of latency");
    }
}

/// CPUs that have come to the end of the measurement still answer those that are reclaiming memory.
#[test]
fn memory_that_is_out_on_128_cpus_ends() {
    let machine = json!({ "name": "epyc-genoa-2x96", "cpus": 128, "arena_per_node": 8 });
    for allocator in ["slub@6.1", "slub@7.1"] {
        let outcome = tbench(machine.clone(), allocator, json!({ "clients": 128, "seconds": 5e-5, "warmup": 0 }));
        assert_eq!(number(&outcome, "elapsed_s"), 5e-5);
    }
}

#[test]
fn a_measurement_too_short_for_the_clock_is_refused() {
    let config = json!({ "machine": "small-2008", "allocator": "slub",
                         "workload": { "name": "tbench", "seconds": 1e-300 } });
    assert!(expand(&config).unwrap_err().to_string().starts_with("workload.seconds = "));
}

/// Runs `config`, stops it after a moment, and returns how long it took to end.
fn stopped(config: Value) -> Duration {
    let shown = config.to_string().chars().take(200).collect::<String>();
    let cancel = Cancel::default();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| run(&config, &cancel));
        std::thread::sleep(Duration::from_millis(300));
        let asked = Instant::now();
        cancel.cancel();
        let end = run.join().expect("a thread that does not panic");
        assert!(matches!(end, Err(Failure::Cancelled)), "it did not stop: {:?}, {shown}", end.err());
        asked.elapsed()
    })
}

/// Wherever the run is: in one long operation, between steps, in tbench. The bound is
/// DESIGN's 200 ms with room for a busy host: none of them would end by itself in five seconds.
#[test]
fn a_run_that_is_asked_to_stop_stops() {
    let script = |ops: Vec<Value>| json!({ "name": "script", "caches": [{ "name": "a", "size": 64 }], "ops": ops });
    let steps = |rounds: u64, objects: u64| -> Vec<Value> {
        let prefill = json!({ "prefill": { "cache": 0, "slot": 0, "objects": objects } });
        let both = |i| [(i % 2, prefill.clone()), (1 - i % 2, json!({ "return_prefilled": { "slot": 0 } }))];
        (0..rounds).flat_map(both).map(|(cpu, op)| json!({ "cpu": cpu, "op": op })).collect()
    };
    let (long, many) = (steps(40, 1 << 20), steps(5000, 1 << 13));
    let tbench = json!({ "name": "tbench", "clients": 100, "seconds": 100 });
    for (machine, allocator, workload) in [
        (json!("opteron-2x4-2007"), "slub@7.1", script(long.clone())),
        (json!("opteron-2x4-2007"), "slab@2.6.24", script(long)),
        (json!("opteron-2x4-2007"), "slub@2.6.24", script(many)),
        (json!("opteron-2x4-2007"), "slqb", tbench.clone()),
        (json!({ "name": "native", "cpus": 2 }), "slub", tbench),
    ] {
        let took = stopped(json!({ "machine": machine, "allocator": allocator, "workload": workload }));
        assert!(took < Duration::from_secs(5), "{machine} {allocator}: {took:?}");
    }
}

/// The parts of `time()` are CPUs × elapsed: of scripts, whose CPUs end at different times, and of measurements that
/// would begin in the boot.
#[test]
fn time_adds_up_for_scripts_and_without_a_warm_up() {
    let ops: Vec<Value> = (0..60)
        .map(|i| json!({ "cpu": i % 3, "op": { "kmalloc": { "bytes": 100 * i, "slot": i } } }))
        .chain([json!({ "cpu": 1, "op": { "wait": { "seconds": 0.001 } } })])
        .collect();
    let script = json!({ "name": "script", "ops": ops });
    let short = json!({ "name": "tbench", "clients": 8, "seconds": 0.02, "warmup": 0 });
    for (allocator, workload) in [("slab", script.clone()), ("slub", script), ("slab", short.clone()), ("slqb", short)]
    {
        let machine = json!({ "name": "opteron-2x4-2007", "cpus": 4 });
        let config = json!({ "machine": machine, "allocator": allocator, "workload": workload });
        let outcome = run(&config, &Cancel::default()).expect("a run");
        let frame = outcome.frames.iter().find(|f| f.name == "time").expect("a time frame");
        let Column::U64(parts) = &frame.columns.iter().find(|(n, _)| n == "time_ps").expect("times").1 else {
            panic!()
        };
        let all = 4.0 * number(&outcome, "elapsed_s") * 1e12;
        let sum = parts.iter().sum::<u64>() as f64;
        assert!((sum / all - 1.0).abs() < 1e-9, "{allocator}: {sum} of {all}");
    }
}

/// A figure of the machine that can be set has an effect.
#[test]
fn the_timer_tick_and_the_cap_of_rereads_change_a_run() {
    let trace = |figures: Value| {
        let mut machine = json!({ "name": "opteron-2x4-2007" });
        machine.as_object_mut().unwrap().extend(figures.as_object().unwrap().clone());
        tbench(machine, "slab", json!({ "clients": 16, "seconds": 0.01, "warmup": 0.01 })).summary["trace"].clone()
    };
    let own = trace(json!({}));
    assert_eq!(trace(json!({ "hz": 250, "handoff_reread_cap": 4 })), own);
    assert_ne!(trace(json!({ "hz": 1000 })), own);
    assert_ne!(trace(json!({ "handoff_reread_cap": 1 })), own);
}

/// What a step asks for and the allocator or the machine has no room for is refused by the step, and by its range.
#[test]
fn steps_that_ask_for_too_much_are_refused_by_name() {
    let refused = |machine: Value, allocator: &str, caches: Value, op: Value| {
        let workload = json!({ "name": "script", "caches": caches, "ops": [{ "op": { "trim": {} } }, { "op": op }] });
        let config = json!({ "machine": machine, "allocator": allocator, "workload": workload });
        match run(&config, &Cancel::default()) {
            Err(Failure::Config(e)) => e.to_string(),
            Err(other) => panic!("{allocator}: {other:?}"),
            Ok(_) => panic!("{allocator}: not refused"),
        }
    };
    let two = || json!({ "name": "opteron-2x4-2007", "cpus": 2 });
    let one = || json!([{ "name": "x", "size": 64 }]);
    let tune = |limit: u64, factor: u64| json!({ "tune": { "cache": 0, "limit": limit, "batchcount": 1, "sharedfactor": factor } });
    for allocator in ["slab@6.1", "slab@2.6.24"] {
        let e = refused(two(), allocator, one(), tune((1 << 31) - 1, 1));
        assert!(e.starts_with("workload.ops[1].limit = 2147483647: 1..") && e.contains("ENOMEM"), "{e}");
        let e = refused(two(), allocator, one(), tune(4, 1 << 40));
        assert!(e.starts_with("workload.ops[1].sharedfactor = 1099511627776: 0.."), "{e}");
    }
    let e = refused(two(), "slub", one(), tune(4, 1));
    assert!(e.starts_with("workload.ops[1].tune = ") && e.contains("slub has nothing to tune"), "{e}");
    let write = json!({ "write": { "cache": 0, "attribute": "min_partial", "value": 0 } });
    let e = refused(two(), "slab", one(), write);
    assert!(e.starts_with("workload.ops[1].cache.min_partial = 0: a step for slub"), "{e}");
    let many: Vec<Value> = (0..10_000).map(|i| json!({ "name": format!("c{i}"), "size": 64, "ctor": true })).collect();
    let large = json!({ "name": "epyc-genoa-2x96", "arena_per_node": 1024 });
    let e = refused(large, "slab@6.1", json!(many), json!({ "trim": {} }));
    assert!(e.starts_with("workload.caches[") && e.contains("caches on this machine"), "{e}");
}
