//! How fast the simulator is: alloc/free pairs per host second and core of the whole tbench model at 8 CPUs, everything
//! included (machine-model.md §13 counts slab and page pairs alike), and the memory it takes beyond the arena touched.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};
use slablab::run::{Cancel, run};

fn config(allocator: &str) -> Value {
    json!({
        "machine": "opteron-2x4-2007",
        "allocator": allocator,
        "workload": { "name": "tbench", "clients": 8, "seconds": 0.05, "warmup": 0.05 },
    })
}

/// Pairs of a run: what the measured half counted, twice.
fn pairs_of(config: &Value) -> u64 {
    let s = run(config, &Cancel::default()).expect("a run").summary;
    let per_op = |key: &str| s[key].as_f64().unwrap_or(0.0);
    // Two objects per data packet and acknowledgement; what went to the page allocator is among them or a fragment.
    let per_exchange = 2.0 * (per_op("data_packets_per_op") + per_op("acks_per_op")) + per_op("frag_pages_per_op");
    (2.0 * s["ops"].as_f64().unwrap_or(0.0) * per_exchange) as u64
}

/// Highest resident memory of this process, in MiB.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib: u64 =
        status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

fn tbench(c: &mut Criterion) {
    let mut group = c.benchmark_group("sim, tbench, 8 CPUs");
    group.sample_size(10);
    for allocator in ["null", "slab", "slub", "slob", "slqb"] {
        let config = config(allocator);
        group.throughput(Throughput::Elements(pairs_of(&config)));
        group.bench_function(allocator, |b| b.iter(|| run(&config, &Cancel::default()).expect("a run")));
    }
    group.finish();
    if let Some(mib) = peak_mib() {
        println!("highest resident memory of all runs: {mib} MiB, arena touched included");
    }
}

criterion_group!(benches, tbench);
criterion_main!(benches);
