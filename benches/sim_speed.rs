//! How fast the simulator is, per second of one host core (machine-model.md §13), and what it takes:
//!
//! - alloc/free pairs of the whole tbench model, everything included, on 8 and 160 CPUs (slab and page pairs alike),
//! - pairs of a loop of allocations and frees alone, on 1 and 160 CPUs: 16 objects taken, then given back,
//! - the start of a world,
//! - memory beyond the arena touched: the highest resident memory less the pages of the arena that hold something; and
//!   that of whole runs of tbench, the arena with it.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};
use slablab::alloc::{Configuration, SlabAllocator};
use slablab::machine::presets::{Machinery, Placement, names};
use slablab::machine::sim::Schedule;
use slablab::machine::{Machine, Sim};
use slablab::page::{PageModel, Pages};
use slablab::run::{Cancel, run};
use slablab::spec::{CacheSpec, Request};
use slablab::units::{Addr, LINE, PAGE_SIZE};

/// The machines of the two sizes.
const SMALL: &str = "opteron-2x4-2007";
const LARGE: &str = "epyc-genoa-2x96";

fn tbench_of(allocator: &str, machine: &str, cpus: u64) -> Value {
    // Warm-up and measurement are equal: what was counted happened twice.
    let half = if cpus > 8 { 0.01 } else { 0.05 };
    json!({
        "machine": { "name": machine, "cpus": cpus },
        "allocator": allocator,
        "workload": { "name": "tbench", "clients": cpus, "seconds": half, "warmup": half },
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

/// Highest resident memory of this process since the last [`forget_peak`], in KiB.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Starts the high-water mark again from what is resident now (Linux; elsewhere there is none to read either).
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// KiB of the arena's pages (object memory and frames) that hold something. Reading an untouched page makes none resident.
fn arena_kib(pages: &Pages<'_, Sim>) -> u64 {
    let end = pages.frames() * (PAGE_SIZE + LINE) / PAGE_SIZE * PAGE_SIZE;
    let holds = |page: &u64| {
        (0..PAGE_SIZE).step_by(LINE as usize).any(|at| {
            let line = pages.arena().record(Addr(page + at));
            (0..8).any(|i| line.peek(i) != 0)
        })
    };
    (0..end).step_by(PAGE_SIZE as usize).filter(holds).count() as u64 * (PAGE_SIZE >> 10)
}

/// Objects of each size that every CPU takes and gives back.
const TAKEN: usize = 256;

/// Memory of the whole process, beyond the arena, for a world in which every CPU takes and gives back objects; and all that
/// whole runs of tbench take, the arena with it.
fn memory(_: &mut Criterion) {
    for (machine, cpus) in [(SMALL, None), (LARGE, Some(160))] {
        let hardware = hardware(machine, cpus);
        let Some((all, arena)) = world_kib(&hardware) else {
            return println!("memory: this host does not say what is resident");
        };
        let (cpus, beyond) = (hardware.cpus, all.saturating_sub(arena));
        println!(
            "memory, {machine}, {cpus} CPUs, {TAKEN} objects of each size: {beyond} KiB beyond {arena} of the arena"
        );
        for allocator in ["slab", "slub", "slob", "slqb"] {
            forget_peak();
            run(&tbench_of(allocator, machine, cpus), &Cancel::default()).expect("a run");
            let all = peak_kib().unwrap_or(0);
            println!("memory, {machine}, {cpus} CPUs, tbench with {allocator}: {all} KiB, arena included");
        }
    }
}

/// Highest resident memory and arena, in KiB, of a world of `hardware` whose CPUs have had objects.
fn world_kib(hardware: &Machinery) -> Option<(u64, u64)> {
    forget_peak();
    let sim = Sim::new(hardware, Schedule::default()).expect("a machine");
    let pages = Pages::new(&sim, PageModel::HotCold).expect("memory");
    let config = <slablab::alloc::slub::Config as Configuration>::era("2.6.24").expect("an era");
    let mut alloc = slablab::alloc::slub::Slub::new(&pages, &config).expect("an allocator");
    let caches = [64, 256, 1024, 2048].map(|size| alloc.create_cache(CacheSpec::new("memory", size)).expect("a cache"));
    sim.boot(|cpu| {
        for cache in caches {
            let take = |_| alloc.alloc(cpu, cache, Request::default()).expect("memory");
            let held: Vec<_> = (0..TAKEN).map(take).collect();
            held.into_iter().for_each(|object| alloc.free(cpu, cache, object));
        }
    });
    Some((peak_kib()?, arena_kib(&pages)))
}

fn tbench(c: &mut Criterion) {
    for (machine, cpus) in [(SMALL, 8), (LARGE, 160)] {
        let mut group = c.benchmark_group(format!("sim, tbench, {cpus} CPUs"));
        group.sample_size(10);
        for allocator in ["null", "slab", "slub", "slob", "slqb"] {
            let config = tbench_of(allocator, machine, cpus);
            group.throughput(Throughput::Elements(pairs_of(&config)));
            group.bench_function(allocator, |b| b.iter(|| run(&config, &Cancel::default()).expect("a run")));
        }
        group.finish();
    }
}

fn hardware(machine: &str, cpus: Option<u64>) -> Machinery {
    Machinery::preset(machine, &Default::default(), cpus, Placement::Spread).expect("a preset")
}

/// Objects each CPU holds at most, and how often it takes and returns them in one boot.
const HELD: usize = 16;
const ROUNDS: u64 = 2_000;

fn pairs(c: &mut Criterion) {
    for (machine, cpus) in [(SMALL, 1), (LARGE, 160)] {
        let mut group = c.benchmark_group(format!("sim, alloc and free alone, {cpus} CPUs"));
        group.sample_size(10);
        let rounds = (ROUNDS / cpus).max(50);
        group.throughput(Throughput::Elements(cpus * rounds * HELD as u64));
        let sim = Sim::new(&hardware(machine, Some(cpus)), Schedule::default()).expect("a machine");
        macro_rules! each {
            ($($name:literal => $alloc:ty, $config:ty;)*) => { $({
                let pages = Pages::new(&sim, PageModel::HotCold).expect("memory");
                let config = <$config as Configuration>::era(<$config as Configuration>::DEFAULT_ERA).expect("an era");
                let mut alloc = <$alloc as SlabAllocator<'_, Sim>>::new(&pages, &config).expect("an allocator");
                let cache = alloc.create_cache(CacheSpec::new("pair", 256)).expect("a cache");
                group.bench_function($name, |b| b.iter(|| sim.boot(|cpu| {
                    let mut held = Vec::with_capacity(HELD);
                    for _ in 0..rounds {
                        held.extend((0..HELD).map(|_| alloc.alloc(cpu, cache, Request::default()).expect("memory")));
                        held.drain(..).for_each(|object| alloc.free(cpu, cache, object));
                    }
                })));
            })* };
        }
        slablab::allocators!(each);
        group.finish();
    }
}

fn start(c: &mut Criterion) {
    let mut group = c.benchmark_group("sim, start of a world");
    group.sample_size(10);
    for name in names() {
        let config = <slablab::alloc::slub::Config as Configuration>::era("2.6.24").expect("an era");
        group.bench_function(name, |b| {
            b.iter(|| {
                let sim = Sim::new(&hardware(name, None), Schedule::default()).expect("a machine");
                let pages = Pages::new(&sim, PageModel::HotCold).expect("memory");
                let alloc = slablab::alloc::slub::Slub::new(&pages, &config).expect("an allocator");
                black_box(&alloc);
            })
        });
    }
    group.finish();
}

// Memory first: what the others leave with the heap would hide what a world takes.
criterion_group!(benches, memory, pairs, start, tbench);
criterion_main!(benches);
