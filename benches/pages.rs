//! Native cost of pages and of SLQB, as ratios to `slub@3.2` and to the host's malloc: everything in turn in one run, so that
//! what the host does meanwhile meets all of them. Below each ratio stands its cause: which path was taken, how often.
//!
//! - a page pair: order 0, from the list of the CPU and back to it;
//! - an object pair: 256 bytes, taken and given back on one CPU;
//! - producer and consumer: one CPU takes, another one gives back, in batches that change hands.
//!
//! `cargo bench --bench pages`. Ratios are medians of neighbouring turns, with quartiles.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use slablab::alloc::{Configuration, Counters, SlabAllocator, Stat, slqb, slub};
use slablab::machine::{Cpu, Machine, Native};
use slablab::page::{PageFlags, PageModel, Pages};
use slablab::spec::{CacheId, CacheSpec, Object, Request};
use slablab::topology::Topology;
use slablab::units::{CpuId, Order};

/// Pairs of one turn, and turns of each contender.
const TURN: u64 = 100_000;
const TURNS: usize = 61;
/// Objects that change hands at once, and hand-overs of one turn.
const BATCH: usize = 256;
const HANDED: u64 = 400;

/// The memory of the host's malloc, as wide as an object.
type Block = [std::mem::MaybeUninit<u8>; 256];

/// Times of the contenders' turns, in seconds.
struct Race {
    names: Vec<&'static str>,
    times: Vec<Vec<f64>>,
}

impl Race {
    fn new(names: &[&'static str]) -> Race {
        Race { names: names.to_vec(), times: vec![Vec::new(); names.len()] }
    }
    fn turn(&mut self, of: usize, run: impl FnOnce()) {
        let start = Instant::now();
        run();
        self.times[of].push(start.elapsed().as_secs_f64());
    }
    fn of(&self, name: &str) -> &[f64] {
        &self.times[self.names.iter().position(|n| *n == name).expect("a contender")]
    }
    /// `who` against `base`: median of the ratios of neighbouring turns, and the quartiles.
    fn line(&self, what: &str, who: &str, base: &str) -> String {
        let mut ratios: Vec<f64> = self.of(who).iter().zip(self.of(base)).map(|(a, b)| a / b).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let at = |part: usize| ratios[part * (ratios.len() - 1) / 4];
        format!("{what:<44} / {base:<10} {:>6.2} (quartiles {:.2} to {:.2})", at(2), at(1), at(3))
    }
}

fn sum(counters: &[Counters]) -> Counters {
    let mut sum = Counters::default();
    counters.iter().for_each(|c| sum.merge(c));
    sum
}

fn pairs<'p, A: SlabAllocator<'p, Native>>(alloc: &A, cpu: &<Native as Machine>::Cpu, cache: CacheId) {
    for _ in 0..TURN {
        let object = alloc.alloc(cpu, cache, Request::default()).expect("memory");
        alloc.free(cpu, cache, black_box(object));
    }
}

/// One CPU: page pairs and object pairs.
fn on_one_cpu() {
    let machine = Native::new(Topology::blocks(1, 1, 64 << 20)).expect("a machine");
    let mut lists = Pages::new(&machine, PageModel::Single).expect("memory");
    let (slqb_pages, slub_pages) = (
        Pages::new(&machine, PageModel::Single).expect("memory"),
        Pages::new(&machine, PageModel::SingleTail).expect("memory"),
    );
    let mut slqb = slqb::Slqb::new(&slqb_pages, &slqb::Config::era("2.6.29").expect("an era")).expect("an allocator");
    let mut slub = slub::Slub::new(&slub_pages, &slub::Config::era("3.2").expect("an era")).expect("an allocator");
    let cache = |name| CacheSpec::new(name, 256);
    let (of_slqb, of_slub) =
        (slqb.create_cache(cache("pair")).expect("new"), slub.create_cache(cache("pair")).expect("new"));
    let race = Mutex::new(Race::new(&["page", "slqb", "slub@3.2", "glibc"]));
    machine.boot(|cpu| {
        let mut race = race.lock().expect("one CPU");
        for _ in 0..TURNS {
            race.turn(0, || {
                for _ in 0..TURN {
                    let page = lists.alloc_pages(cpu, Order(0), None, PageFlags::default()).expect("memory");
                    lists.free_pages(cpu, black_box(page));
                }
            });
            race.turn(1, || pairs(&slqb, cpu, of_slqb));
            race.turn(2, || pairs(&slub, cpu, of_slub));
            race.turn(3, || (0..TURN).for_each(|_| drop(black_box(Box::<Block>::new_uninit()))));
        }
    });
    let race = race.into_inner().expect("one CPU");
    let pages = lists.stats();
    for base in ["slub@3.2", "glibc"] {
        println!("{}", race.line("page pair, order 0", "page", base));
    }
    let all = pages.allocated[0] as f64;
    println!(
        "  cause: {:.2} % from the CPU's list, {:.5} zone locks a pair; a zonelist, a watermark test, an atomic reference count and the counts of who asked are paid by every pair",
        100.0 * pages.pcp_hit as f64 / all,
        pages.zone_lock as f64 / all
    );
    for base in ["slub@3.2", "glibc"] {
        println!("{}", race.line("slqb pair, 256 B", "slqb", base));
    }
    let (queues, lockless) = (sum(&slqb.counters(of_slqb)), sum(&slub.counters(of_slub)));
    let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    println!(
        "  cause: {:.2} % of the allocations from the LIFO, no lock and no atomic operation; slub@3.2 {:.2} % on its fast path, one compare-exchange on each side in the kernel",
        100.0 - share(queues.get(Stat::AllocSlabFill), queues.get(Stat::SlqbAlloc)),
        share(lockless.shares().alloc_fast, lockless.shares().alloc)
    );
}

/// Where a batch changes hands, and how many have.
struct Hand<T> {
    batch: Mutex<Vec<T>>,
    turn: AtomicU64,
}

impl<T> Hand<T> {
    fn new() -> Hand<T> {
        Hand { batch: Mutex::new(Vec::with_capacity(BATCH)), turn: AtomicU64::new(0) }
    }
    /// Waits for its turn (the producer's are even), works on the batch, and hands it over.
    fn each(&self, parity: u64, mut work: impl FnMut(&mut Vec<T>)) {
        for round in 0..HANDED {
            let mut tries = 0u32;
            while self.turn.load(Ordering::Acquire) != 2 * round + parity {
                tries += 1;
                if tries.is_multiple_of(64) { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
            work(&mut self.batch.lock().expect("one at a time"));
            self.turn.store(2 * round + parity + 1, Ordering::Release);
        }
    }
}

fn handed<'p, A: SlabAllocator<'p, Native>>(alloc: &A, machine: &Native, cache: CacheId) -> f64 {
    let hand = Hand::new();
    let took = Mutex::new(0.0);
    machine.boot(|cpu| {
        let start = Instant::now();
        if cpu.id() == CpuId(0) {
            hand.each(0, |batch| {
                batch.extend((0..BATCH).map(|_| alloc.alloc(cpu, cache, Request::default()).expect("memory").addr()));
            });
        } else {
            hand.each(1, |batch| batch.drain(..).for_each(|at| alloc.free(cpu, cache, Object::at(at))));
            *took.lock().expect("one consumer") = start.elapsed().as_secs_f64();
        }
    });
    took.into_inner().expect("one consumer")
}

fn handed_by_malloc(machine: &Native) -> f64 {
    let hand = Hand::new();
    let took = Mutex::new(0.0);
    machine.boot(|cpu| {
        let start = Instant::now();
        if cpu.id() == CpuId(0) {
            hand.each(0, |batch| batch.extend((0..BATCH).map(|_| Box::<Block>::new_uninit())));
        } else {
            hand.each(1, |batch| black_box(batch).clear());
            *took.lock().expect("one consumer") = start.elapsed().as_secs_f64();
        }
    });
    took.into_inner().expect("one consumer")
}

/// Two CPUs: one takes, the other gives back.
fn on_two_cpus() {
    let machine = Native::new(Topology::blocks(2, 1, 64 << 20)).expect("a machine");
    let (slqb_pages, slub_pages) = (
        Pages::new(&machine, PageModel::Single).expect("memory"),
        Pages::new(&machine, PageModel::SingleTail).expect("memory"),
    );
    let mut slqb = slqb::Slqb::new(&slqb_pages, &slqb::Config::era("2.6.29").expect("an era")).expect("an allocator");
    let mut slub = slub::Slub::new(&slub_pages, &slub::Config::era("3.2").expect("an era")).expect("an allocator");
    let cache = |name| CacheSpec::new(name, 256);
    let (of_slqb, of_slub) =
        (slqb.create_cache(cache("pair")).expect("new"), slub.create_cache(cache("pair")).expect("new"));
    let mut race = Race::new(&["slqb", "slub@3.2", "glibc"]);
    for _ in 0..TURNS {
        race.times[0].push(handed(&slqb, &machine, of_slqb));
        race.times[1].push(handed(&slub, &machine, of_slub));
        race.times[2].push(handed_by_malloc(&machine));
    }
    for base in ["slub@3.2", "glibc"] {
        println!("{}", race.line("slqb, one CPU takes and another gives back", "slqb", base));
    }
    let (queues, lockless) = (sum(&slqb.counters(of_slqb)), sum(&slub.counters(of_slub)));
    let objects = queues.get(Stat::SlqbFree) as f64;
    println!(
        "  cause: slqb {:.4} locks an object ({} rlists sent, {} lists claimed, {:.4} fills from slabs); slub@3.2 {:.1} % of its frees on the slow path, a compare-exchange on the slab each",
        (queues.get(Stat::FlushRfreeList) + queues.get(Stat::ClaimRemoteList) + queues.get(Stat::AllocSlabFill)) as f64
            / objects,
        queues.get(Stat::FlushRfreeList),
        queues.get(Stat::ClaimRemoteList),
        queues.get(Stat::AllocSlabFill) as f64 / objects,
        100.0 - 100.0 * lockless.shares().free_fast as f64 / lockless.shares().free.max(1) as f64
    );
    if machine.oversubscribed() {
        println!("  the host has fewer than two cores: the two take turns on it");
    }
}

fn main() {
    println!("ratios of time, medians of {TURNS} turns in one run; below 1: faster than the base");
    on_one_cpu();
    on_two_cpus();
}
