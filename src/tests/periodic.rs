//! Periodic work of allocators, as runs drive it.

use serde_json::json;

use crate::run::{Cancel, run};

/// Everything a run of so many seconds returns, besides its configuration.
fn outcome(allocator: &str, seconds: f64, reaper: bool) -> serde_json::Value {
    let mut outcome = run(
        &json!({
            "machine": { "name": "opteron-2x4-2007", "cpus": 2 },
            "allocator": { "name": allocator, "reaper": reaper },
            "workload": { "name": "tbench", "clients": 1, "seconds": seconds, "warmup": 0.0 },
            "seed": 1,
        }),
        &Cancel::default(),
    )
    .unwrap();
    outcome.summary.remove("reaper");
    json!([outcome.summary, outcome.texts])
}

#[test]
fn a_run_drives_the_reaper_and_a_shorter_one_than_its_period_knows_nothing_of_it() {
    assert_eq!(outcome("slab", 0.3, true), outcome("slab", 0.3, false));
    // Its first pass, after a second, only marks arrays as idle; the second, at three seconds, takes from them.
    let (with, without) = (outcome("slab", 3.1, true), outcome("slab", 3.1, false));
    let parked = |o: &serde_json::Value| -> u64 {
        let text = o[1]["slabinfo"].as_str().unwrap();
        text.lines().skip(2).map(|l| l.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
    };
    assert!(parked(&with) < parked(&without), "{} {}", parked(&with), parked(&without));
}
