//! A run repeats: the same configuration, seed and version give the same bytes, whatever the host does.
//!
//! Properties: (1) the same configuration twice gives byte-identical `result`; (2) one host thread or several make no
//! difference; (3) another seed gives another run; (4) every name in the registry keeps (1).

use serde_json::{Value, json};

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::run::{Cancel, Failure, Outcome, run, run_many};

fn config(allocator: &str, clients: u64, seed: u64) -> Value {
    json!({
        "machine": { "name": "opteron-2x4-2007", "cpus": 4 },
        "allocator": allocator,
        "workload": { "name": "tbench", "clients": clients, "seconds": 0.01, "warmup": 0.01 },
        "seed": seed,
    })
}

fn result(config: &Value) -> String {
    run(config, &Cancel::default()).expect("a run").to_json()["result"].to_string()
}

macro_rules! names {
    ($($name:literal => $alloc:ty, $config:ty;)*) => { [$($name),*] };
}

#[test]
fn the_same_seed_gives_the_same_bytes_for_every_allocator() {
    for name in crate::allocators!(names) {
        let c = config(name, 3, 7);
        assert_eq!(result(&c), result(&c), "{name}");
    }
}

#[test]
fn another_seed_gives_another_run() {
    assert_ne!(result(&config("null", 3, 7)), result(&config("null", 3, 8)));
}

#[test]
fn host_threads_do_not_change_a_result() {
    let configs: Vec<Value> = (1..=6).map(|n| config("null", n, 1)).collect();
    let with = |threads| {
        let outcomes = outcomes(&configs, threads, &Cancel::default(), &|_| {});
        outcomes.into_values().map(|o| o.expect("a run").to_json()["result"].to_string()).collect::<Vec<_>>()
    };
    let alone = with(1);
    assert_eq!(alone, with(2));
    assert_eq!(alone[2], result(&configs[2]));
}

/// One machine for each thing that the model can do differently.
fn every_kind() -> Vec<Value> {
    [
        json!({ "name": "opteron-2x4-2007", "cpus": 4, "order": "skewed" }),
        json!({ "name": "opteron-2x4-2007", "cpus": 4, "residency": "exact" }),
        json!({ "name": "opteron-2x4-2007", "cpus": 4, "jitter": 30, "locks": "ticket" }),
        json!({ "name": "opteron-2x4-2007", "cpus": 4, "governor": "ondemand", "governor_sample": 5 }),
        json!({ "name": "opteron-2x4-2007", "cpus": 4, "memoryless_nodes": 1, "sched": "2.6.32" }),
        json!({ "name": "clovertown-2x4", "cpus": 8, "bus": "contended", "idle_states": "deep" }),
        json!({ "name": "stoakley-2x4", "cpus": 4, "placement": "packed", "idle_states": "poll" }),
        json!({ "name": "nehalem-2x4-2011", "cpus": 16, "locks": "mcs" }),
        json!({ "name": "epyc-milan-2x64", "cpus": 24 }),
    ]
    .into_iter()
    .map(|machine| {
        json!({
            "machine": machine,
            "allocator": "slub@2.6.24",
            "workload": { "name": "tbench", "clients": 12, "seconds": 0.006, "warmup": 0.006 },
        })
    })
    .collect()
}

#[test]
fn every_kind_of_machine_repeats_on_any_number_of_host_threads() {
    let configs = every_kind();
    let with = |threads| {
        let outcomes = outcomes(&configs, threads, &Cancel::default(), &|_| {});
        outcomes.into_values().map(|o| o.expect("a run").to_json()["result"].to_string()).collect::<Vec<_>>()
    };
    let alone = with(1);
    assert_eq!(alone, with(2));
    assert_eq!(alone, with(4));
}

#[test]
fn a_cancelled_sweep_keeps_what_is_finished_and_stops() {
    let configs: Vec<Value> = (0..4).map(|n| config("null", 2, n)).collect();
    let cancel = Cancel::default();
    let outcomes = outcomes(&configs, 1, &cancel, &|i| {
        if i == 1 {
            cancel.cancel();
        }
    });
    let finished: Vec<bool> = outcomes.values().map(Result::is_ok).collect();
    assert_eq!(finished, [true, true, false, false]);
}

#[test]
fn what_is_not_wanted_any_more_is_not_run() {
    let configs: Vec<Value> = (0..4).map(|n| config("null", 2, n)).collect();
    let ran = Mutex::new(Vec::new());
    let done = |i, _| ran.lock().unwrap().push(i);
    run_many(&configs, Some(1), &Cancel::default(), &|i| i % 2 == 0, &done);
    assert_eq!(ran.into_inner().unwrap(), [0, 2]);
}

/// The outcomes of a sweep by index; `seen` hears of each.
fn outcomes(
    configs: &[Value],
    threads: usize,
    cancel: &Cancel,
    seen: &(dyn Fn(usize) + Sync),
) -> BTreeMap<usize, Result<Outcome, Failure>> {
    let all = Mutex::new(BTreeMap::new());
    run_many(configs, Some(threads), cancel, &|_| true, &|i, outcome| {
        seen(i);
        all.lock().unwrap().insert(i, outcome);
    });
    all.into_inner().unwrap()
}
