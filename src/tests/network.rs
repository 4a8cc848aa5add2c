//! The network workloads against the workloads specification, section by section: event counts, which no cost enters; and
//! every workload on every allocator and machine: it ends with clean invariants, and nothing of it is left (a run whose
//! network leaks an object or a page does not end with a result).

use serde_json::{Map, Value, json};

use crate::run::{Cancel, Column, Failure, Outcome, catalog, run};

pub(super) fn outcome(machine: Value, allocator: &str, workload: Value) -> Outcome {
    let config = json!({ "machine": machine, "allocator": allocator, "workload": workload, "seed": 1 });
    run(&config, &Cancel::default()).unwrap_or_else(|e| panic!("{config}: {e:?}"))
}

pub(super) fn of(row: &Map<String, Value>, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key}: {}", row[key]))
}

#[track_caller]
pub(super) fn near(row: &Map<String, Value>, key: &str, expected: f64, tolerance: f64) {
    let got = of(row, key);
    assert!((got - expected).abs() <= tolerance, "{key}: {got}, expected {expected} ± {tolerance}");
}

fn opteron(cpus: u64) -> Value {
    json!({ "name": "opteron-2x4-2007", "cpus": cpus })
}

/// One statistic of a cache over all CPUs.
pub(super) fn counted(outcome: &Outcome, cache: &str, stats: &[&str]) -> u64 {
    let frame = outcome.frames.iter().find(|f| f.name == "stats").expect("a stats frame");
    let column = |name: &str| &frame.columns.iter().find(|(n, _)| n == name).expect("a column").1;
    let (Column::Str(caches), Column::Str(names), Column::U64(counts)) =
        (column("cache"), column("stat"), column("count"))
    else {
        panic!("the kinds of the stats columns have changed");
    };
    (0..counts.len()).filter(|&i| caches[i] == cache && stats.contains(&names[i].as_str())).map(|i| counts[i]).sum()
}

const ALLOCS: [&str; 2] = ["alloc_fastpath", "alloc_slowpath"];

fn tbench(era: &str) -> Value {
    json!({ "name": "tbench", "clients": 12, "warmup": 0.05, "seconds": 0.1, "era": era })
}

#[test]
fn s3_3_tbench_takes_one_4_kib_buffer_per_data_packet_under_2_6_24_rules() {
    let outcome = outcome(opteron(8), "slub@2.6.25", tbench("2.6.24"));
    let packets = of(&outcome.summary, "data_packets_per_op") * of(&outcome.summary, "ops");
    for cache in ["kmalloc-4096", "skbuff_fclone_cache"] {
        // SLUB merges the pair of headers with kmalloc-512.
        let names = if cache == "kmalloc-4096" { vec![cache] } else { vec![cache, "kmalloc-512"] };
        let allocs: u64 = names.iter().map(|n| counted(&outcome, n, &ALLOCS)).sum();
        let share = allocs as f64 / packets;
        assert!((share - 1.0).abs() < 0.01, "{cache}: {share} per data packet");
    }
    // §3.4, dump (b): 99 % of allocations and frees on the fast path, in both caches.
    for key in ["alloc_fast_pct", "free_fast_pct"] {
        assert!(of(&outcome.summary, key) >= 94.0, "{key}: {}", outcome.summary[key]);
    }
}

#[test]
fn s3_3_packets_and_pages_of_an_exchange_up_to_3_0() {
    for (era, pages) in [("2.6.24", 0.89), ("2.6.28", 1.37), ("3.0", 1.37)] {
        let row = outcome(opteron(8), "slab@2.6.24", tbench(era)).summary;
        near(&row, "data_packets_per_op", 2.236, 0.045);
        near(&row, "frag_pages_per_op", pages, 0.03 * pages);
        near(&row, "net_allocs_per_op", 2.0 * (2.236 + 0.105), 0.1);
        near(&row, "switches_per_op", 2.0, 0.1);
    }
}

#[test]
fn s3_4_acknowledgements_are_4_7_of_100_data_packets_up_to_3_0() {
    for era in ["2.6.24", "2.6.28", "3.0"] {
        let row = outcome(opteron(8), "null", tbench(era)).summary;
        let share = 100.0 * of(&row, "acks_per_op") / of(&row, "data_packets_per_op");
        assert!((share - 4.7).abs() <= 0.4, "{era}: {share} acknowledgements per 100 data packets");
    }
}

#[test]
fn s2_3_the_sender_frees_what_it_drops_and_the_receiver_all_else() {
    for (payload, pinned) in [(1024, [0, 1]), (4096, [0, 7])] {
        let row = outcome(
            opteron(8),
            "slab@2.6.24",
            json!({ "name": "netperf", "test": "UDP_STREAM", "message": payload, "client_cpu": pinned[0],
                    "server_cpu": pinned[1], "rcvbuf": 8192, "seconds": 0.02, "warmup": 0.01 }),
        )
        .summary;
        near(&row, "net_allocs_per_op", 2.0, 0.01);
        let arrived = 1.0 - of(&row, "dropped_per_op");
        assert!(arrived > 0.1 && arrived < 0.99, "{arrived} of the datagrams arrive");
        near(&row, "free_remote_pct", 100.0 * arrived, 1.0);
    }
}

#[test]
fn s5_2_a_message_of_hackbench_is_two_objects_that_the_reader_frees() {
    for era in ["2.6.24", "2.6.28", "3.0", "6.1", "6.18"] {
        let hackbench =
            json!({ "name": "hackbench", "groups": 1, "loops": 2000, "seconds": 0.02, "warmup": 0.02, "era": era });
        let row = outcome(opteron(8), "slub@3.1", hackbench).summary;
        let per_message = of(&row, "net_allocs_per_op") / of(&row, "net_messages_per_op");
        assert!((per_message - 2.0).abs() < 0.02, "{era}: {per_message} objects per message");
        assert!(of(&row, "free_remote_pct") > 50.0, "{era}: {}", row["free_remote_pct"]);
        // The job is scaled, and says so.
        let half = (1.0 + of(&row, "net_messages_per_op")) * of(&row, "ops") / 2.0;
        assert_eq!(row["job_ops"], 400 * 2000);
        near(&row, "scaled_by", 800_000.0 / half, 1e-6 * 800_000.0 / half);
        near(&row, "throughput", 800_000.0 * 0.02 / half, 1e-9 * 800_000.0 / half);
        assert_eq!(row["unit"], "s");
    }
}

#[test]
fn s5_1_pipes_take_pages_and_no_objects() {
    for mode in ["process", "thread"] {
        let pipes = json!({ "name": "hackbench", "groups": 1, "transport": "pipe", "mode": mode, "seconds": 0.02, "warmup": 0.02 });
        let row = outcome(opteron(4), "slub@2.6.24", pipes).summary;
        assert_eq!(of(&row, "net_allocs_per_op"), 0.0);
        // 40 messages of 100 bytes share a page.
        assert!(of(&row, "frag_pages_per_op") <= 1.0 / 40.0 + 0.005, "{}", row["frag_pages_per_op"]);
        assert!(of(&row, "ops") > 1000.0);
    }
}

fn netperf(test: &str, more: Value) -> Value {
    let mut config = json!({ "name": "netperf", "test": test, "seconds": 0.02, "warmup": 0.01 });
    for (key, value) in more.as_object().expect("an object") {
        config[key.as_str()] = value.clone();
    }
    config
}

#[test]
fn s6_a_tcp_stream_takes_3_1_pages_a_segment_and_one_acknowledgement_per_two() {
    let pinned = json!({ "client_cpu": 0, "server_cpu": 1, "era": "2.6.24", "seconds": 0.05 });
    let row = outcome(opteron(8), "slab@2.6.24", netperf("TCP_STREAM", pinned)).summary;
    near(&row, "frag_pages_per_op", 3.1, 0.062);
    near(&row, "data_packets_per_op", 1.0, 0.01);
    near(&row, "acks_per_op", 0.5, 0.01);
    assert_eq!(row["unit"], "Mbit/s");
}

#[test]
fn s6_a_transaction_is_two_packets_and_its_acknowledgements_ride_along() {
    for era in ["2.6.24", "2.6.28", "3.0", "6.1", "6.18"] {
        let row = outcome(opteron(8), "slub@2.6.24", netperf("TCP_RR", json!({ "pairs": 4, "era": era }))).summary;
        near(&row, "data_packets_per_op", 2.0, 0.02);
        assert_eq!(of(&row, "acks_per_op"), 0.0, "{era}");
        near(&row, "net_allocs_per_op", 4.0, 0.02);
    }
}

#[test]
fn s0_3_the_prequeue_makes_frees_local_and_its_end_remote_unless_they_are_deferred() {
    for (era, defer, remote) in
        [("2.6.24", Value::Null, 0.0), ("3.0", Value::Null, 0.0), ("6.1", json!(0), 100.0), ("6.1", Value::Null, 0.0)]
    {
        let pinned = json!({ "client_cpu": 0, "server_cpu": 1, "era": era, "skb_defer": defer });
        let row = outcome(opteron(2), "slub@2.6.24", netperf("TCP_RR", pinned)).summary;
        near(&row, "free_remote_pct", remote, 1.0);
    }
}

#[test]
fn s6_every_datagram_of_udp_rr_is_freed_on_the_other_cpu_if_there_is_one() {
    for (server, remote) in [(0, 0.0), (1, 100.0)] {
        let pinned = json!({ "client_cpu": 0, "server_cpu": server, "response": 512 });
        let row = outcome(opteron(2), "slab@2.6.24", netperf("UDP_RR", pinned)).summary;
        near(&row, "free_remote_pct", remote, 0.5);
        near(&row, "net_allocs_per_op", 4.0, 0.02);
    }
}

/// Clients of a server on another machine, one on each CPU in turn, as in the event counts of 2011.
fn two_machines(threads: u64) -> Outcome {
    let wire = json!({ "link": "wire", "pairs": threads, "era": "3.0", "rx_buffer": 4096, "client_cpu": 0, "seconds": 0.1, "warmup": 0.05 });
    outcome(json!("opteron-4x4-2011"), "slub@2.6.31", netperf("TCP_RR", wire))
}

#[test]
fn s6_a_transaction_with_another_machine_is_one_object_of_256_1024_and_4096_bytes_each() {
    let outcome = two_machines(16);
    let ops = of(&outcome.summary, "ops");
    for cache in ["kmalloc-256", "kmalloc-1024", "kmalloc-4096"] {
        // The plain header merges with kmalloc-256 under whichever name came first.
        let names = if cache == "kmalloc-256" { vec![cache, "skbuff_head_cache"] } else { vec![cache] };
        let allocs: u64 = names.iter().map(|n| counted(&outcome, n, &ALLOCS)).sum();
        let per_op = allocs as f64 / ops;
        assert!((per_op - 1.0).abs() < 0.02, "{cache}: {per_op} per transaction");
    }
}

#[test]
fn s6_two_thirds_of_what_is_sent_are_freed_where_they_were_allocated() {
    // Received: 15 of 16 CPUs free what the interrupt CPU allocates. Sent: one third is freed there.
    let row = two_machines(16).summary;
    let (received, sent) = (15.0 / 16.0, 15.0 / 16.0 / 3.0);
    near(&row, "free_remote_pct", 100.0 * (received + sent) / 2.0, 5.0);
}

#[test]
fn s7_a_post_of_volanomark_is_delivered_to_twenty_users() {
    for era in ["2.6.24", "3.0", "6.1"] {
        let rooms = json!({ "name": "volanomark", "rooms": 2, "seconds": 0.05, "warmup": 0.05, "era": era });
        let row = outcome(opteron(8), "slab@2.6.24", rooms).summary;
        near(&row, "data_packets_per_op", 1.0, 0.02);
        // Up to one acknowledgement per two deliveries: 20 of 21 messages.
        let most = 0.5 * 20.0 / 21.0;
        assert!(
            of(&row, "acks_per_op") > 0.8 * most && of(&row, "acks_per_op") <= 1.03 * most,
            "{}",
            row["acks_per_op"]
        );
        assert!(of(&row, "switches_per_op") > 0.5, "threads yield: {}", row["switches_per_op"]);
    }
}

/// Every network workload in its main forms, short.
fn workloads() -> Vec<Value> {
    let of = |name: &str, more: Value| {
        let mut config = json!({ "name": name, "seconds": 0.002, "warmup": 0.001 });
        for (key, value) in more.as_object().expect("an object") {
            config[key.as_str()] = value.clone();
        }
        config
    };
    let mut all = Vec::new();
    for era in ["2.6.24", "2.6.28", "3.0", "6.1", "6.18"] {
        all.push(of("tbench", json!({ "clients": 3, "era": era })));
        all.push(of("hackbench", json!({ "groups": 1, "fds": 4, "era": era })));
        all.push(of("netperf", json!({ "test": "TCP_STREAM", "pairs": 2, "era": era })));
        all.push(of("netperf", json!({ "test": "UDP_STREAM", "pairs": 2, "era": era, "message": 20_000 })));
        all.push(of(
            "netperf",
            json!({ "test": "TCP_RR", "pairs": 3, "era": era, "link": "wire", "round_trip_us": 30.0 }),
        ));
    }
    all.push(of("hackbench", json!({ "groups": 1, "transport": "pipe", "mode": "thread", "datasize": 5000 })));
    all.push(of("hackbench", json!({ "groups": 1, "fds": 2, "datasize": 40_000, "sndbuf": 2048 })));
    all.push(of("netperf", json!({ "test": "UDP_RR", "pairs": 2, "link": "wire", "round_trip_us": 30.0 })));
    all.push(of("netperf", json!({ "test": "UDP_RR", "era": "6.18", "response": 512 })));
    all.push(of("volanomark", json!({ "rooms": 1, "users": 3 })));
    all.push(of("volanomark", json!({ "rooms": 1, "users": 3, "era": "6.1", "skb_defer": 2 })));
    all
}

/// Names of all allocators with their default eras.
fn allocators() -> Vec<String> {
    let all = catalog();
    all["allocators"].as_array().expect("a list").iter().map(|a| a["name"].as_str().expect("a name").into()).collect()
}

/// Runs all of it on a machine: no object of the packet caches is live at the end. Returns the operations of all runs.
fn leaves_nothing(machine: &Value) -> u64 {
    let mut ops = 0;
    for allocator in allocators() {
        for workload in workloads() {
            let outcome = outcome(machine.clone(), &allocator, workload.clone());
            let done = of(&outcome.summary, "ops");
            ops += done as u64;
            // On few CPUs hackbench's receivers run when the senders' slices are over, and a busy host has its own.
            let surely = machine["name"] != "native" && workload["name"] != "hackbench";
            assert!(done > 0.0 || !surely, "{allocator}, {workload}: nothing was done");
            assert_eq!(outcome.summary["alloc_failed"], 0, "{allocator}, {workload}");
            let caches = outcome.frames.iter().find(|f| f.name == "caches").expect("a caches frame");
            let column = |name: &str| &caches.columns.iter().find(|(n, _)| n == name).expect("a column").1;
            let (Column::Str(names), Column::U64(live)) = (column("cache"), column("live_objects")) else {
                panic!("the kinds of the caches columns have changed");
            };
            for (name, live) in names.iter().zip(live).filter(|(n, _)| n.starts_with("skbuff")) {
                assert_eq!(*live, 0, "{allocator}, {workload}: {name}");
            }
        }
    }
    ops
}

#[test]
fn every_network_workload_leaves_nothing_on_every_allocator_and_simulated_machine() {
    for cpus in [1, 2, 8] {
        assert!(leaves_nothing(&opteron(cpus)) > 1000);
    }
}

#[test]
fn every_network_workload_leaves_nothing_on_every_allocator_natively() {
    for cpus in [1, 2] {
        assert!(leaves_nothing(&json!({ "name": "native", "cpus": cpus, "memory_mib": 256 })) > 1000);
    }
}

#[test]
fn a_series_has_a_row_per_interval_and_loses_no_operation() {
    let tbench = json!({ "name": "tbench", "clients": 4, "seconds": 0.02, "warmup": 0.01, "interval": 0.005 });
    let outcome = outcome(opteron(4), "slab@2.6.24", tbench);
    let series = outcome.frames.iter().find(|f| f.name == "series").expect("a series frame");
    let [(_, Column::F64(at)), (_, Column::U64(ops)), (_, Column::F64(rate))] = &series.columns[..] else {
        panic!("the columns of series have changed");
    };
    assert_eq!(at.len(), 4);
    // An operation that ends after the last interval belongs to it no more.
    let counted: u64 = ops.iter().sum();
    assert!(of(&outcome.summary, "ops") - counted as f64 <= 4.0, "{counted} of {}", outcome.summary["ops"]);
    let mean = rate.iter().sum::<f64>() / 4.0;
    near(&outcome.summary, "throughput", mean, 0.02 * mean);
}

#[test]
fn what_makes_no_sense_on_a_machine_is_refused_by_name() {
    for (workload, part) in [
        (json!({ "name": "netperf", "link": "wire", "irq_cpus": 5 }), "workload.irq_cpus = 5: 1..4"),
        (json!({ "name": "netperf", "server_cpu": 4 }), "workload.server_cpu = 4"),
        (json!({ "name": "netperf", "test": "UDP_STREAM", "message": 70_000 }), "workload.message = 70000"),
        (json!({ "name": "hackbench", "fds": 0 }), "workload.fds = 0"),
        (json!({ "name": "hackbench", "loops": 0 }), "workload.loops = 0"),
        (json!({ "name": "volanomark", "rooms": 0 }), "workload.rooms = 0"),
        (json!({ "name": "tbench", "era": "2.6.25" }), "workload.era"),
        // The machine's kernel is 2.6.24: nothing is deferred there.
        (json!({ "name": "tbench", "skb_defer": 64 }), "workload.skb_defer = 64"),
    ] {
        let config = json!({ "machine": opteron(4), "allocator": "null", "workload": workload });
        let Err(Failure::Config(e)) = run(&config, &Cancel::default()) else { panic!("{config} runs") };
        assert!(e.to_string().contains(part), "{e}");
    }
}

#[test]
fn the_era_is_the_machines_unless_one_is_named() {
    for (machine, era) in [
        ("opteron-2x4-2007", "2.6.24"),
        ("stoakley-2x4", "2.6.28"),
        ("opteron-4x4-2011", "3.0"),
        ("epyc-milan-2x64", "6.18"),
        ("native", "6.18"),
    ] {
        let config = json!({ "machine": machine, "allocator": "null", "workload": "tbench" });
        assert_eq!(crate::run::expand(&config).expect("a configuration")["workload"]["era"], era, "{machine}");
    }
}
