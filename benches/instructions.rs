//! Instructions of one native alloc+free pair of a 256-byte cache, generic against by hand, counted by callgrind: the
//! same on any machine. `cargo bench --bench instructions` prints the table; `-- --write FILE` also writes it as JSON.
//!
//! The count is the difference between a run of 200,000 pairs and one of 100,000, so start-up does not matter.

mod hand;

use std::process::{Command, Stdio};

use slablab::alloc::{Configuration, SlabAllocator};
use slablab::machine::{Machine, Native};
use slablab::page::{PageModel, Pages};
use slablab::spec::{CacheSpec, Request};
use slablab::topology::Topology;

macro_rules! names {
    ($($name:literal => $alloc:ty, $config:ty;)*) => { &[$($name),*] };
}

/// Does `pairs` pairs with the allocator of this name, or by hand.
fn work(name: &str, pairs: u64) {
    match name {
        "hand-slab" => {
            let mut hand = hand::HandSlab::new();
            for _ in 0..pairs {
                let object = hand.alloc(3, 0).expect("16 objects");
                hand.free(3, 0, object);
            }
        }
        "hand-slub" => {
            let mut hand = hand::HandSlub::new();
            for _ in 0..pairs {
                let object = hand.alloc(3, 0, None).expect("16 objects");
                assert!(hand.free(3, 0, object));
            }
        }
        // A run of the reaper over idle caches: what `cost::SLAB_REAP` was measured with.
        "slab-reaper" => {
            let machine = Native::new(Topology::blocks(1, 1, 64 << 20)).expect("a machine");
            let pages = Pages::new(&machine, PageModel::HotCold).expect("memory");
            let config = slablab::alloc::slab::Config::era("2.6.24").expect("an era");
            let slab = slablab::alloc::slab::Slab::new(&pages, &config).expect("an allocator");
            let runs = pairs / slab.cache_count() as u64;
            machine.boot(|cpu| (0..runs).for_each(|_| slab.trim(cpu)));
        }
        _ => {
            let machine = Native::new(Topology::blocks(1, 1, 64 << 20)).expect("a machine");
            let pages = Pages::new(&machine, PageModel::HotCold).expect("memory");
            macro_rules! run {
                ($($known:literal => $alloc:ty, $config:ty;)*) => {
                    match name {
                        $($known => {
                            let config = <$config as Configuration>::era(<$config as Configuration>::DEFAULT_ERA).expect("an era");
                            let mut alloc = <$alloc as SlabAllocator<'_, Native>>::new(&pages, &config).expect("an allocator");
                            let cache = alloc.create_cache(CacheSpec::new("pair", 256)).expect("a cache");
                            machine.boot(|cpu| {
                                for _ in 0..pairs {
                                    let object = alloc.alloc(cpu, cache, Request::default()).expect("memory");
                                    alloc.free(cpu, cache, object);
                                }
                            });
                        })*
                        other => panic!("no allocator {other}"),
                    }
                };
            }
            slablab::allocators!(run);
        }
    }
}

/// Instructions that callgrind counts for a run of this program.
fn counted(name: &str, pairs: u64) -> Option<u64> {
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--pairs", name, &pairs.to_string()])
        .stdout(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    text.lines().find_map(|l| l.split("Collected : ").nth(1)?.trim().parse().ok())
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|a| a == "--pairs") {
        return work(&args[at + 1], args[at + 2].parse().expect("a number"));
    }
    let registered: &[&str] = slablab::allocators!(names);
    let per_pair = |name: &str| Some((counted(name, 200_000)? - counted(name, 100_000)?) as f64 / 100_000.0);
    let names: Vec<&str> = registered.iter().copied().chain(["hand-slab", "hand-slub"]).collect();
    let mut table = serde_json::Map::new();
    for name in names {
        let Some(n) = per_pair(name) else {
            println!("instructions per pair: valgrind is not installed, nothing counted");
            return;
        };
        table.insert(name.into(), serde_json::json!(n));
    }
    if let Some(n) = per_pair("slab-reaper") {
        println!("instructions per idle cache in a run of slab's reaper: {n:.1}");
    }
    println!("instructions per native alloc+free pair, 256-byte cache, statistics as shipped:");
    for (name, n) in &table {
        let ratio = table.get(&format!("hand-{name}")).map_or(String::new(), |h| {
            format!("  {:.2} × by hand", n.as_f64().unwrap_or(0.0) / h.as_f64().unwrap_or(1.0))
        });
        println!("  {name:<10} {:>7.1}{ratio}", n.as_f64().unwrap_or(0.0));
    }
    if let Some(at) = args.iter().position(|a| a == "--write") {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "instructions_per_pair_256": table }))
            .expect("plain data");
        std::fs::write(&args[at + 1], text + "\n").expect("a writable file");
    }
}
