//! The mechanisms behind the first figure, counted: what one exchange of tbench takes from the allocators under 2.6.24
//! rules (workloads.md §3.3–§3.4). Event counts are stronger than times: no cost enters them.

use serde_json::{Value, json};

use crate::run::{Cancel, Column, Outcome, run};

fn plateau(allocator: &str) -> Outcome {
    let config = json!({
        "machine": "opteron-2x4-2007",
        "allocator": allocator,
        "workload": { "name": "tbench", "clients": 12, "warmup": 0.05, "seconds": 0.1 },
        "seed": 3,
    });
    run(&config, &Cancel::default()).expect("a run")
}

#[track_caller]
fn within(row: &serde_json::Map<String, Value>, key: &str, expected: f64, tolerance: f64) {
    let got = row[key].as_f64().expect("a number");
    assert!((got / expected - 1.0).abs() <= tolerance, "{key}: {got}, expected {expected} ± {tolerance}");
}

/// Counts of one statistic of the cache that holds 512-byte headers, over all CPUs.
fn of_headers(outcome: &Outcome, stat: &str) -> u64 {
    let frame = outcome.frames.iter().find(|f| f.name == "stats").expect("a stats frame");
    let column = |name: &str| &frame.columns.iter().find(|(n, _)| n == name).expect("a column").1;
    let (Column::Str(cache), Column::Str(stats), Column::U64(count)) =
        (column("cache"), column("stat"), column("count"))
    else {
        panic!("the kinds of the stats columns have changed");
    };
    // SLUB merges skbuff_fclone_cache with kmalloc-512.
    let headers = |c: &str| c == "skbuff_fclone_cache" || c == "kmalloc-512";
    (0..count.len()).filter(|&i| headers(&cache[i]) && stats[i] == stat).map(|i| count[i]).sum()
}

#[test]
fn an_exchange_takes_2_24_data_packets_and_one_acknowledgement_per_21_of_them() {
    let row = plateau("slab@2.6.24").summary;
    within(&row, "data_packets_per_op", 2.236, 0.02);
    let share = 100.0 * row["acks_per_op"].as_f64().unwrap() / row["data_packets_per_op"].as_f64().unwrap();
    assert!((share - 4.7).abs() <= 0.4, "{share} acknowledgements per 100 data packets");
    // Six system calls need two switches: one outstanding request per client.
    within(&row, "switches_per_op", 2.0, 0.05);
}

#[test]
fn slub_passes_the_4_kib_buffers_to_the_page_allocator_and_the_others_do_not() {
    for (allocator, pages) in [("slab@2.6.24", 0.89), ("slqb@2.6.29", 0.89), ("slub@2.6.24-rc2", 3.13)] {
        within(&plateau(allocator).summary, "pages_order0_per_op", pages, 0.03);
    }
}

#[test]
fn slub_serves_headers_from_its_fast_path() {
    let outcome = plateau("slub@2.6.24-rc2");
    let share = |fast: &str, slow: &str| {
        let (f, s) = (of_headers(&outcome, fast), of_headers(&outcome, slow));
        f as f64 / (f + s) as f64
    };
    assert!(share("alloc_fastpath", "alloc_slowpath") >= 0.97);
    let fast = of_headers(&outcome, "alloc_fastpath") + of_headers(&outcome, "free_fastpath");
    let slow = of_headers(&outcome, "alloc_slowpath") + of_headers(&outcome, "free_slowpath");
    assert!(fast as f64 / (fast + slow) as f64 >= 0.97);
}

#[test]
fn nothing_is_left_of_a_run_when_its_sockets_are_closed() {
    for allocator in ["slab@2.6.24", "slub@2.6.24", "slob@2.6.24", "slqb@2.6.29", "null"] {
        let outcome = plateau(allocator);
        let caches = outcome.frames.iter().find(|f| f.name == "caches").expect("a caches frame");
        let column = |name: &str| &caches.columns.iter().find(|(n, _)| n == name).expect("a column").1;
        let (Column::Str(names), Column::U64(live)) = (column("cache"), column("live_objects")) else {
            panic!("the kinds of the caches columns have changed");
        };
        for (name, live) in names.iter().zip(live).filter(|(n, _)| n.starts_with("skbuff")) {
            assert_eq!(*live, 0, "{allocator}: {name}");
        }
    }
}
