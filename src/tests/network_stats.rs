//! Slow-path shares of the two-machine runs of 2011 (`rientjes_2011_slub_stats.csv`, workloads.md §6): SLUB of kernel 3.0 on
//! sixteen CPUs, one of which takes the network interrupt. The machine and the driver are as the specification has them;
//! nothing is fitted. What does not agree is named in docs/network-workloads.md, with the figures.

use serde_json::json;

use super::network::counted;
use crate::run::{Cancel, run};

const PUBLISHED: &str = include_str!("oracle/data/rientjes_2011_slub_stats.csv");

/// Slow-path shares of allocations and of frees, in percent.
fn published(threads: u64, cache: &str) -> (f64, f64) {
    let mut lines = PUBLISHED.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let row = lines.find(|f| f[0] == threads.to_string() && f[1] == cache).expect("a row of the file");
    let count = |i: usize| row[i].parse::<f64>().expect("a count");
    (100.0 * count(3) / (count(2) + count(3)), 100.0 * count(5) / (count(4) + count(5)))
}

#[test]
fn s6_slow_paths_of_the_runs_over_two_machines_agree_where_the_order_of_frees_does_not_enter() {
    for threads in [16, 160] {
        let config = json!({
            "machine": "opteron-4x4-2011",
            "allocator": { "name": "slub", "era": "2.6.31", "fast_path": "double-cas" },
            "workload": { "name": "netperf", "test": "TCP_RR", "pairs": threads, "link": "wire", "irq_cpus": 1,
                          "rx_buffer": 4096, "client_cpu": 0, "seconds": 0.2, "warmup": 0.1 },
            "seed": 1,
        });
        let outcome = run(&config, &Cancel::default()).unwrap();
        let share = |cache: &str, slow: &str, fast: &str| {
            let (slow, fast) = (counted(&outcome, cache, &[slow]), counted(&outcome, cache, &[fast]));
            100.0 * slow as f64 / (slow + fast) as f64
        };
        let near = |what: &str, cache: &str, ours: f64, published: f64| {
            assert!(
                (ours - published).abs() <= 5.0,
                "{what} of {cache}, {threads} threads: {ours}, published {published}"
            );
        };
        // Who frees: what the interrupt's CPU has allocated goes back from other CPUs, to slabs that are on none.
        for cache in ["kmalloc-256", "kmalloc-4096"] {
            near("slow frees", cache, share(cache, "free_slowpath", "free_fastpath"), published(threads, cache).1);
        }
        // What is sent is allocated on the application's own CPU.
        let ours = share("kmalloc-1024", "alloc_slowpath", "alloc_fastpath");
        near("slow allocations", "kmalloc-1024", ours, published(threads, "kmalloc-1024").0);
        if threads == 16 {
            let ours = share("kmalloc-256", "alloc_slowpath", "alloc_fastpath");
            near("slow allocations", "kmalloc-256", ours, published(threads, "kmalloc-256").0);
        } else {
            // A third is noticed to be sent late, and goes back on the interrupt's CPU.
            let ours = share("kmalloc-1024", "free_slowpath", "free_fastpath");
            near("slow frees", "kmalloc-1024", ours, published(threads, "kmalloc-1024").1);
        }
    }
}
