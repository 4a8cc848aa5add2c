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

criterion_group!(benches, pairs);
criterion_main!(benches);
