//! The 6.x rules against allocation profiles of running kernels (`profiles_network.csv`): allocations per operation within
//! 3 %, the share freed on another CPU within 5 points, for the same placement and length of the lists of deferred frees.
//!
//! Compared are the caches of the network layer: what starting the programs allocated is in the recordings too. Left out,
//! because they hang on how fast the two ends were on the recording machine and vary between recordings of one workload by
//! more than these limits: the share of a stream of datagrams that arrives, joined segments of TCP_STREAM, and hackbench on
//! four CPUs (recorded 66 % and 69 % remote where an even spread gives 75 %, as here). docs/network-workloads.md has the
//! figures side by side.

use serde_json::{Value, json};

use super::network::{of, outcome};

const PROFILES: &str = include_str!("oracle/data/profiles_network.csv");

/// What a workload was recorded to do in the caches of the network layer.
#[derive(Debug)]
struct Recorded {
    /// Objects per operation.
    allocs: f64,
    /// Share of them freed on another CPU.
    remote: f64,
    /// Headers of pure acknowledgements, or of datagrams and messages, per operation.
    plain_headers: f64,
    peak: u64,
}

fn recorded(workload: &str, source: &str) -> Recorded {
    let mut sum = Recorded { allocs: 0.0, remote: 0.0, plain_headers: 0.0, peak: 0 };
    for line in PROFILES.lines().skip(1) {
        let f: Vec<&str> = line.split(',').collect();
        if (f[0], f[1]) == (workload, source) {
            let (allocs, remote): (f64, f64) = (f[4].parse().unwrap(), f[5].parse().unwrap_or(0.0));
            sum.allocs += allocs;
            sum.remote += allocs * remote;
            if f[3] == "skbuff_head_cache" {
                sum.plain_headers = allocs;
                sum.peak = f[6].parse().unwrap();
            }
        }
    }
    assert!(sum.allocs > 0.0, "{workload} on {source} is not recorded");
    sum.remote /= sum.allocs;
    sum
}

/// The machine that the recordings' CPUs are like: cores of one last-level cache, kernel 6.1 or 6.18.
fn machine(cpus: u64) -> Value {
    json!({ "name": "epyc-milan-2x64", "cpus": cpus, "placement": "packed" })
}

fn netperf(test: &str, defer: u64, pinned: bool) -> Value {
    let mut config = json!({ "name": "netperf", "test": test, "era": "6.1", "seconds": 0.03, "warmup": 0.01 });
    if test.starts_with("TCP") {
        // MAX_TCP_HEADER of the recorded configuration: its buffers are of 512 bytes.
        config["tcp_header"] = json!(192);
    } else {
        config["response"] = json!(512);
    }
    config["skb_defer"] = json!(defer);
    if pinned {
        (config["client_cpu"], config["server_cpu"]) = (json!(0), json!(1));
    }
    config
}

#[track_caller]
fn agrees(what: &str, allocs: f64, remote_pct: f64, recorded: &Recorded) {
    assert!((allocs / recorded.allocs - 1.0).abs() <= 0.03, "{what}: {allocs} objects per operation, {recorded:?}");
    let points = (remote_pct - 100.0 * recorded.remote).abs();
    assert!(points <= 5.0, "{what}: {remote_pct} % freed on another CPU, {recorded:?}");
}

#[test]
fn tcp_rr_takes_and_frees_as_recorded_with_and_without_deferred_frees() {
    for defer in [0, 64] {
        for place in ["free", "pinned"] {
            let name = format!("tcp_rr_defer{defer}_{place}");
            let row = outcome(machine(2), "slub@6.1", netperf("TCP_RR", defer, place == "pinned")).summary;
            let seen = recorded(&name, "slub_smp2_tcpdefer");
            agrees(&name, of(&row, "net_allocs_per_op"), of(&row, "free_remote_pct"), &seen);
        }
    }
    for (cpus, source, allocator) in [
        (1, "slub_smp1", "slub@6.1"),
        (2, "slub_smp2", "slub@6.1"),
        (2, "slab_smp2", "slab@6.1"),
        (4, "slab_smp4", "slab@6.1"),
    ] {
        let row = outcome(machine(cpus), allocator, netperf("TCP_RR", 64, false)).summary;
        agrees(source, of(&row, "net_allocs_per_op"), of(&row, "free_remote_pct"), &recorded("tcp_rr", source));
    }
}

#[test]
fn udp_rr_takes_and_frees_as_recorded() {
    for defer in [0, 64] {
        for place in ["free", "pinned"] {
            let name = format!("udp_rr_1_512_defer{defer}_{place}");
            let row = outcome(machine(2), "slub@6.1", netperf("UDP_RR", defer, place == "pinned")).summary;
            let seen = recorded(&name, "slub_smp2_tcpdefer");
            agrees(&name, of(&row, "net_allocs_per_op"), of(&row, "free_remote_pct"), &seen);
        }
    }
    // 6.18 defers datagrams too: their buffers are freed at home (headers in bulk, which the recording does not see).
    let mut config = netperf("UDP_RR", 64, true);
    config["era"] = json!("6.18");
    let row = outcome(machine(2), "slub@6.18", config).summary;
    assert!(of(&row, "free_remote_pct") < 1.0, "{}", row["free_remote_pct"]);
}

#[test]
fn a_datagram_of_a_stream_takes_what_was_recorded_and_as_many_are_under_way() {
    for (payload, name) in [(1024, "udp_stream_1k"), (4096, "udp_stream_4k")] {
        let config = json!({ "name": "netperf", "test": "UDP_STREAM", "message": payload, "era": "6.1", "client_cpu": 0,
                             "server_cpu": 1, "seconds": 0.03, "warmup": 0.01 });
        let row = outcome(machine(2), "slub@6.1", config).summary;
        let seen = recorded(name, "slub_smp2");
        let allocs = of(&row, "net_allocs_per_op");
        assert!((allocs / seen.allocs - 1.0).abs() <= 0.03, "{name}: {allocs}, {seen:?}");
        // Who does not arrive is freed by the sender: the share hangs on the two ends' speed, not its sum.
        let arrived = 1.0 - of(&row, "dropped_per_op");
        assert!((of(&row, "free_remote_pct") - 100.0 * arrived).abs() < 1.0);
        assert_eq!(seen.peak, if payload == 1024 { 94 } else { 27 });
    }
}

#[test]
fn a_stream_over_tcp_takes_and_frees_as_recorded_where_no_writes_were_joined() {
    for (name, pinned, source, joined) in [
        ("tcp_stream", false, "slub_smp2", true),
        ("tcp_stream", false, "slab_smp2", true),
        ("tcp_stream_defer64_free", false, "slub_smp2_tcpdefer", true),
        ("tcp_stream_defer64_pinned", true, "slub_smp2_tcpdefer", false),
    ] {
        let row = outcome(machine(2), "slub@6.1", netperf("TCP_STREAM", 64, pinned)).summary;
        let seen = recorded(name, source);
        let (allocs, remote) = (of(&row, "net_allocs_per_op"), of(&row, "free_remote_pct"));
        // A packet per write here. There a sender that runs ahead joins writes in one packet, 2 % (pinned) to 40 % of them.
        if joined {
            assert!(seen.allocs < 0.97 * allocs, "{name} on {source}: {allocs} objects per write, {seen:?}");
            assert!((remote - 100.0 * seen.remote).abs() <= 5.0, "{name} on {source}: {remote} % remote, {seen:?}");
        } else {
            agrees(name, allocs, remote, &seen);
        }
    }
}

#[test]
fn tbench_takes_and_frees_as_recorded() {
    let run = |clients: u64, defer: u64, pinning: &str| {
        let config = json!({ "name": "tbench", "clients": clients, "era": "6.1", "tcp_header": 192, "skb_defer": defer,
                             "pinning": pinning, "seconds": 0.3, "warmup": 0.02 });
        outcome(machine(2), "slub@6.1", config).summary
    };
    for (clients, defer, pinning, name, source) in [
        (1, 64, "free", "tbench1", "slub_smp2"),
        (2, 64, "free", "tbench2", "slub_smp2"),
        (1, 64, "free", "tbench1_defer64_free", "slub_smp2_tcpdefer"),
    ] {
        let row = run(clients, defer, pinning);
        let seen = recorded(name, source);
        // A recorded operation is half of the packets of an exchange, acknowledgements among them.
        let packets = of(&row, "data_packets_per_op") + of(&row, "acks_per_op");
        agrees(name, of(&row, "net_allocs_per_op") / (packets / 2.0), of(&row, "free_remote_pct"), &seen);
    }
    // Without deferred frees: what carries data is freed by the peer, acknowledgements are not. The recorded runs are so
    // short that the start's acknowledgements are 8 % of all packets, ours 1.5 %; so the two are compared apart.
    for (pinning, name) in [("free", "tbench1_defer0_free"), ("next", "tbench1_defer0_pinned")] {
        let row = run(1, 0, pinning);
        let seen = recorded(name, "slub_smp2_tcpdefer");
        let data = |packets: f64, acks: f64, remote: f64| remote * packets / (packets - acks);
        let (ours, acks) = (of(&row, "data_packets_per_op"), of(&row, "acks_per_op"));
        let here = data(ours + acks, acks, of(&row, "free_remote_pct"));
        let there = data(seen.allocs / 2.0, seen.plain_headers, 100.0 * seen.remote);
        assert!((here - there).abs() <= 5.0, "{name}: {here} % of data packets are freed remotely, recorded {there} %");
    }
}

#[test]
fn tbench_of_6_1_acknowledges_one_message_in_forty() {
    // Acknowledgements above those of the start grow by 0.025 per exchange over seven recordings of 1,800 to 28,700
    // exchanges; 0.0276 of the load file's requests are longer than one segment of 64 KiB, and no response is.
    let config = json!({ "name": "tbench", "clients": 2, "era": "6.1", "seconds": 1.0, "warmup": 0.02 });
    let row = outcome(machine(2), "null", config).summary;
    assert!((of(&row, "acks_per_op") - 0.0276).abs() <= 0.0025, "{}", row["acks_per_op"]);
}

#[test]
fn hackbench_takes_and_frees_as_recorded() {
    for (cpus, source, allocator) in [
        (1, "slub_smp1", "slub@6.1"),
        (2, "slub_smp2", "slub@6.1"),
        (1, "slab_smp1", "slab@6.1"),
        (2, "slab_smp2", "slab@6.1"),
        (2, "slob_smp2", "slob@6.1"),
    ] {
        let config = json!({ "name": "hackbench", "groups": 1, "era": "6.1", "seconds": 0.05, "warmup": 0.02 });
        let row = outcome(machine(cpus), allocator, config).summary;
        let per_message = of(&row, "net_allocs_per_op") / of(&row, "net_messages_per_op");
        agrees(source, per_message, of(&row, "free_remote_pct"), &recorded("hackbench", source));
    }
    // 6.18 with a memory cgroup: buffers of kmalloc-512.
    let config =
        json!({ "name": "hackbench", "groups": 1, "era": "6.18", "memcg": true, "seconds": 0.05, "warmup": 0.02 });
    let row = outcome(machine(2), "slub@6.18", config).summary;
    let per_message = of(&row, "net_allocs_per_op") / of(&row, "net_messages_per_op");
    agrees("host618", per_message, of(&row, "free_remote_pct"), &recorded("hackbench", "host618"));
}
