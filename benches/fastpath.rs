//! Time of one native alloc+free pair of a 256-byte cache: every allocator, the two by hand, and the host's malloc.

mod hand;

use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use slablab::alloc::{Configuration, SlabAllocator};
use slablab::machine::{Machine, Native};
use slablab::page::{PageModel, Pages};
use slablab::spec::{CacheSpec, Request};
use slablab::topology::Topology;

fn pairs(c: &mut Criterion) {
    let mut group = c.benchmark_group("native pair, 256 B");
    let machine = Native::new(Topology::blocks(1, 1, 64 << 20)).expect("a machine");
    macro_rules! each {
        ($($name:literal => $alloc:ty, $config:ty;)*) => { $({
            let pages = Pages::new(&machine, PageModel::HotCold).expect("memory");
            let config = <$config as Configuration>::era(<$config as Configuration>::DEFAULT_ERA).expect("an era");
            let mut alloc = <$alloc as SlabAllocator<'_, Native>>::new(&pages, &config).expect("an allocator");
            let cache = alloc.create_cache(CacheSpec::new("pair", 256)).expect("a cache");
            group.bench_function($name, |b| b.iter_custom(|n| {
                let time = Mutex::new(Duration::ZERO);
                machine.boot(|cpu| {
                    let start = Instant::now();
                    for _ in 0..n {
                        let object = alloc.alloc(cpu, cache, Request::default()).expect("memory");
                        alloc.free(cpu, cache, black_box(object));
                    }
                    *time.lock().expect("one CPU") = start.elapsed();
                });
                time.into_inner().expect("one CPU")
            }));
        })* };
    }
    slablab::allocators!(each);
    let mut slab = hand::HandSlab::new();
    group.bench_function("by hand: slab", |b| {
        b.iter(|| {
            let object = slab.alloc(3, 0).expect("16 objects");
            slab.free(3, 0, black_box(object));
        })
    });
    let mut slub = hand::HandSlub::new();
    group.bench_function("by hand: slub", |b| {
        b.iter(|| {
            let object = slub.alloc(3, 0, None).expect("16 objects");
            slub.free(3, 0, black_box(object))
        })
    });
    group.bench_function("host malloc", |b| b.iter(|| drop(black_box(Box::new([0u8; 256])))));
    group.finish();
}

/// Pairs of one turn, and turns of each side.
const TURN: u64 = 200_000;
const TURNS: usize = 101;

/// SLAB's native pair as a ratio to glibc's malloc and free, both in turn in one run, so that what the host does meanwhile
/// meets both: the median of the ratios of neighbouring turns, with the quartiles.
fn ratio_to_malloc(_: &mut Criterion) {
    let machine = Native::new(Topology::blocks(1, 1, 64 << 20)).expect("a machine");
    let pages = Pages::new(&machine, PageModel::HotCold).expect("memory");
    for era in slablab::alloc::slab::Config::ERAS {
        let config = slablab::alloc::slab::Config::era(era).expect("an era");
        let mut slab = slablab::alloc::slab::Slab::new(&pages, &config).expect("an allocator");
        let cache = slab.create_cache(CacheSpec::new("pair", 256)).expect("a cache");
        let ratios = Mutex::new(Vec::new());
        machine.boot(|cpu| {
            for _ in 0..TURNS {
                let start = Instant::now();
                for _ in 0..TURN {
                    let object = slab.alloc(cpu, cache, Request::default()).expect("memory");
                    slab.free(cpu, cache, black_box(object));
                }
                let ours = start.elapsed();
                let start = Instant::now();
                for _ in 0..TURN {
                    // Rust's allocator is the host's malloc; nothing is written.
                    drop(black_box(Box::<[u8; 256]>::new_uninit()));
                }
                let theirs = start.elapsed();
                ratios.lock().expect("one CPU").push(ours.as_secs_f64() / theirs.as_secs_f64());
            }
        });
        let mut ratios = ratios.into_inner().expect("one CPU");
        ratios.sort_unstable_by(f64::total_cmp);
        let at = |part: usize| ratios[part * (TURNS - 1) / 4];
        println!("slab@{era} pair / glibc malloc+free, 256 B: {:.2} (quartiles {:.2} to {:.2})", at(2), at(1), at(3));
    }
}

criterion_group!(benches, pairs, ratio_to_malloc);
criterion_main!(benches);
