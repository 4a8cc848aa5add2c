use serde_json::{Value, json};

use super::{Failure, probe};

fn opteron(more: &[(&str, Value)]) -> Value {
    let mut machine = json!({ "name": "opteron-2x4-2007" });
    for (key, value) in more {
        machine[key] = value.clone();
    }
    probe(&json!({ "machine": machine, "allocator": "slub@2.6.24" })).unwrap()
}

fn found<'a>(rows: &'a Value, wanted: &[(&str, Value)]) -> &'a Value {
    rows.as_array().unwrap().iter().find(|r| wanted.iter().all(|(k, v)| r[k] == *v)).expect("a row")
}

#[test]
fn a_transfer_costs_what_the_table_says() {
    let p = opteron(&[]);
    // 2 GHz: 81 and 172 cycles of 500 ps, 16 more for a locked operation, 75 more for a store to a shared line, of whose
    // latency the store buffer leaves 0.4 (410 of 1024).
    for (distance, ps) in [("same_socket", 40_500), ("cross_socket", 86_000)] {
        let of = |what: &str| {
            found(&p["transfers"], &[("distance", json!(distance)), ("what", json!(what))])["ps"].as_u64().unwrap()
        };
        assert_eq!(of("load of a dirty line"), ps);
        assert_eq!(of("locked operation"), ps + 8_000);
        assert_eq!(of("locked operation back"), ps + 8_000);
        assert_eq!(of("store to a dirty line"), ps * 410 / 1024);
        assert_eq!(of("store to a shared line"), (ps + 37_500) * 410 / 1024);
    }
}

#[test]
fn a_hand_off_costs_by_kind_and_waiters() {
    // A locked operation on the line that came with the lock: 1 + 16 cycles.
    let own = 8_500;
    let d = |name: &Value| if name == "same_socket" { 40_500 } else { 86_000 };
    for (kind, reread) in [("mcs", 0), ("ticket", 2), ("dec-and-test", 1)] {
        let p = opteron(&[("locks", json!(kind))]);
        let rows = p["hand_offs"].as_array().unwrap();
        assert_eq!(rows.len(), 7 + 2, "seven waiters in turn, and one at each distance");
        for row in rows {
            let rest = row["rest"].as_array().unwrap();
            let most = if kind == "dec-and-test" { 4 } else { 7 };
            let others: u64 = rest.iter().take(most).map(d).sum();
            assert_eq!(row["ps"].as_u64().unwrap(), d(&row["distance"]) + reread * others / 2 + own, "{kind}: {row}");
        }
    }
}

#[test]
fn a_wake_up_costs_by_idle_state() {
    let p = opteron(&[]);
    assert!(p["wake_ups"].as_array().unwrap().iter().all(|r| r["ps"] == 2_300_000), "{}", p["wake_ups"]);
    let p = opteron(&[("idle_states", json!("poll"))]);
    assert_eq!(found(&p["wake_ups"], &[("distance", json!("same_socket"))])["ps"], 400_000 + 40_500);
}

#[test]
fn the_fast_path_of_slub_asks_for_what_its_table_says() {
    let p = opteron(&[]);
    let fast = |op: &str| found(&p["paths"], &[("operation", json!(op)), ("path", json!("fast"))]).clone();
    let (alloc, free) = (fast("alloc"), fast("free"));
    // slub.md §10, 2.6.24: cache read, per-CPU structure written, object read; and on free the descriptor.
    assert_eq!(["loads", "stores", "atomics", "irq_save_restore"].map(|k| alloc[k].as_u64().unwrap()), [2, 1, 0, 1]);
    assert_eq!(["stores", "atomics", "irq_save_restore"].map(|k| free[k].as_u64().unwrap()), [2, 0, 1]);
}

#[test]
fn odd_requests_are_refused_by_name() {
    for (given, part) in [
        (json!({ "machine": "native", "allocator": "slub" }), "machine = \"native\""),
        (json!({ "machine": "opteron-2x4-2007", "allocator": "slub", "size": 0 }), "size = 0"),
        (json!({ "machine": "opteron-2x4-2007", "allocator": "slup" }), "did you mean \"slub\""),
    ] {
        let Failure::Config(e) = probe(&given).unwrap_err() else { panic!("{given}: not refused") };
        assert!(e.to_string().contains(part), "{e}");
    }
}
