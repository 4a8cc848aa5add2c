//! Native table: an alloc+free pair, and a remote free (one worker allocates, another frees what it finds in a bounded queue),
//! for every era of SLUB as a ratio to glibc's malloc and to mimalloc. All contenders take turns in one run, so that what the
//! host does meanwhile meets all of them; a ratio is the median over the turns. Where it is above 1.6 the cause is printed:
//! what the era's operations did on the machine, counted, not timed.
//!
//! glibc and mimalloc are called through `GlobalAlloc` side by side: neither is the allocator of this program's own making.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::{black_box, spin_loop};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use mimalloc::MiMalloc;
use slablab::alloc::slub::policy::SlowPath;
use slablab::alloc::slub::{Config, Slub};
use slablab::alloc::{Configuration, SlabAllocator, Stat};
use slablab::machine::native::NativeCpu;
use slablab::machine::{Addr, Cpu, Machine, Native};
use slablab::page::{PageModel, Pages};
use slablab::spec::{CacheId, CacheSpec, Object, Request};
use slablab::topology::Topology;

/// Bytes of an object.
const SIZE: u64 = 256;
/// Pairs, and remote frees, of a turn.
const PAIRS: u64 = 40_000;
const REMOTE: u64 = 20_000;
/// Turns of every contender.
const TURNS: usize = 41;
/// Objects that wait to be freed at most.
const QUEUE: usize = 256;
/// A larger ratio is explained.
const EXPLAINED: f64 = 1.6;

/// What is measured.
#[derive(Clone, Copy)]
enum What {
    Pair = 0,
    Remote = 1,
}

/// What takes part.
enum Contender<'p> {
    /// With a cache for pairs and one for remote frees, so that each has counters of its own.
    Slub(Box<Slub<'p, Native>>, [CacheId; 2]),
    Glibc,
    Mimalloc,
}

fn layout() -> Layout {
    Layout::from_size_align(SIZE as usize, 8).expect("a layout")
}

impl Contender<'_> {
    #[inline]
    fn alloc(&self, cpu: &NativeCpu, what: What) -> u64 {
        match self {
            Contender::Slub(slub, caches) => {
                slub.alloc(cpu, caches[what as usize], Request::default()).expect("memory").addr().0
            }
            // SAFETY: the layout has a size above 0.
            Contender::Glibc => unsafe { System.alloc(layout()) as u64 },
            // SAFETY: as above.
            Contender::Mimalloc => unsafe { MiMalloc.alloc(layout()) as u64 },
        }
    }
    #[inline]
    fn free(&self, cpu: &NativeCpu, what: What, at: u64) {
        match self {
            Contender::Slub(slub, caches) => slub.free(cpu, caches[what as usize], Object::at(Addr(at))),
            // SAFETY: `at` came from `alloc` of the same contender with the same layout, and is freed once: each value goes
            // through one variable or one place of the queue.
            Contender::Glibc => unsafe { System.dealloc(at as *mut u8, layout()) },
            // SAFETY: as above.
            Contender::Mimalloc => unsafe { MiMalloc.dealloc(at as *mut u8, layout()) },
        }
    }
}

/// A queue between two workers: single values, in order.
struct Queue {
    slots: Vec<AtomicU64>,
    put: Padded,
    taken: Padded,
}

/// A counter on a line of its own.
#[repr(align(128))]
struct Padded(AtomicUsize);

impl Queue {
    fn new() -> Queue {
        let slots = (0..QUEUE).map(|_| AtomicU64::new(0)).collect();
        Queue { slots, put: Padded(AtomicUsize::new(0)), taken: Padded(AtomicUsize::new(0)) }
    }
    fn put(&self, value: u64) {
        let at = self.put.0.load(Ordering::Relaxed);
        while at - self.taken.0.load(Ordering::Acquire) == QUEUE {
            pause();
        }
        self.slots[at % QUEUE].store(value, Ordering::Relaxed);
        self.put.0.store(at + 1, Ordering::Release);
    }
    fn take(&self) -> u64 {
        let at = self.taken.0.load(Ordering::Relaxed);
        while self.put.0.load(Ordering::Acquire) == at {
            pause();
        }
        let value = self.slots[at % QUEUE].load(Ordering::Relaxed);
        self.taken.0.store(at + 1, Ordering::Release);
        value
    }
}

/// On a host with fewer cores than workers the other one needs this core.
fn pause() {
    spin_loop();
    std::thread::yield_now();
}

/// Nanoseconds per pair, on one CPU.
fn pairs(contender: &Contender<'_>, cpu: &NativeCpu) -> f64 {
    let start = Instant::now();
    for _ in 0..PAIRS {
        let object = contender.alloc(cpu, What::Pair);
        contender.free(cpu, What::Pair, black_box(object));
    }
    start.elapsed().as_nanos() as f64 / PAIRS as f64
}

/// Times of all turns: per contender, of the pair and of the remote free.
type Times = Vec<[Vec<f64>; 2]>;

fn measure(machine: &Native, contenders: &[Contender<'_>]) -> Times {
    let times: Mutex<Times> = Mutex::new(contenders.iter().map(|_| [Vec::new(), Vec::new()]).collect());
    let queue = Queue::new();
    let done = AtomicUsize::new(0);
    machine.boot(|cpu| {
        for turn in 0..TURNS {
            for (i, contender) in contenders.iter().enumerate() {
                let nth = turn * contenders.len() + i + 1;
                if cpu.id().0 == 1 {
                    (0..REMOTE).for_each(|_| contender.free(cpu, What::Remote, queue.take()));
                    done.store(nth, Ordering::Release);
                    continue;
                }
                let start = Instant::now();
                (0..REMOTE).for_each(|_| queue.put(contender.alloc(cpu, What::Remote)));
                while done.load(Ordering::Acquire) < nth {
                    pause();
                }
                let remote = start.elapsed().as_nanos() as f64 / REMOTE as f64;
                let pair = pairs(contender, cpu);
                let mut times = times.lock().expect("one writer");
                times[i][0].push(pair);
                times[i][1].push(remote);
            }
        }
    });
    times.into_inner().expect("all have returned")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Events of a cache on all CPUs.
struct Counted {
    allocs: u64,
    slow_allocs: u64,
    slow_frees: u64,
    frees: u64,
    /// Sheaves that went through the barn.
    barn: u64,
    /// Times that a free put a slab on a list, the node's or its CPU's.
    listed: u64,
    /// Slab exchanges lost to the other worker.
    lost: u64,
    sheaves: bool,
}

impl Counted {
    fn new(slub: &mut Slub<'_, Native>, cache: CacheId) -> Counted {
        let all = slub.counters(cache);
        let sum = |stats: &[Stat]| stats.iter().flat_map(|s| all.iter().map(|c| c.get(*s))).sum::<u64>();
        let (slow_allocs, slow_frees) = (sum(&[Stat::AllocSlowpath]), sum(&[Stat::FreeSlowpath]));
        Counted {
            allocs: slow_allocs + sum(&[Stat::AllocFastpath, Stat::AllocCpuSheaf]),
            frees: slow_frees + sum(&[Stat::FreeFastpath, Stat::FreeCpuSheaf]),
            slow_allocs,
            slow_frees,
            barn: sum(&[Stat::BarnGet, Stat::BarnPut]),
            listed: sum(&[Stat::FreeAddPartial, Stat::CpuPartialFree]),
            lost: sum(&[Stat::CmpxchgDoubleFail]),
            sheaves: sum(&[Stat::SheafAlloc]) > 0,
        }
    }
    /// Percent of allocations, and of frees, that left the fast path.
    fn slow(&self) -> [f64; 2] {
        [(self.slow_allocs, self.allocs), (self.slow_frees, self.frees)]
            .map(|(slow, all)| 100.0 * slow as f64 / all.max(1) as f64)
    }
}

/// What the era's operations did, by its own counters: where the time goes that the other allocators do not spend.
fn cause(era: &str, n: &Counted, what: What) -> String {
    let locked = Config::era(era).expect("an era").policy().t.slow_path == SlowPath::Locked;
    let [alloc, free] = n.slow();
    let left = format!("{alloc:.0} % of allocations and {free:.0} % of frees left the fast path");
    let fast = alloc + free < 1.0;
    match what {
        What::Pair if fast => {
            let path = if n.sheaves {
                "the sheaf is behind a fast path that misses"
            } else {
                "the slab is found through its page"
            };
            format!("all on fast paths, a free takes 1 look at the descriptor: {path}, and every address is checked")
        }
        // Nobody else takes part: what it costs is the exclusion itself. One locked section, or one exchange, of the slab for
        // each operation off the fast path.
        What::Pair => {
            let sections = (n.slow_allocs + n.slow_frees) as f64 / n.allocs.max(1) as f64;
            let each = if locked { "locks" } else { "locked exchanges" };
            format!("{left}: {sections:.1} {each} of the slab a pair, which nobody contends")
        }
        What::Remote if fast => {
            let thousand = 1000.0 * n.barn as f64 / n.allocs.max(1) as f64;
            format!(
                "all on fast paths; sheaves go from the freeing worker to the allocating one through the barn, {thousand:.1} \
                 of them per 1000 objects, each under its lock"
            )
        }
        What::Remote => {
            let thousand = 1000.0 * n.listed as f64 / n.frees.max(1) as f64;
            let how = if locked { "locks the slab, whose line" } else { "exchanges the slab's word, whose line" };
            let lost = if locked { String::new() } else { format!("{} exchanges lost, ", n.lost) };
            format!("{left}: each {how} the other worker had ({lost}{thousand:.0} of 1000 frees put a slab on a list)")
        }
    }
}

fn main() {
    // `cargo test --benches` asks for a list.
    if std::env::args().any(|a| a == "--list" || a == "--test") {
        return;
    }
    let machine = Native::new(Topology::blocks(2, 1, 256 << 20)).expect("a machine");
    let pages = Pages::new(&machine, PageModel::HotCold).expect("memory");
    let mut contenders: Vec<Contender<'_>> = Config::ERAS
        .iter()
        .map(|era| {
            let mut slub = Slub::new(&pages, &Config::era(era).expect("an era")).expect("an allocator");
            // Constructed objects are in a cache of their own.
            let mut cache = |name| {
                let spec = CacheSpec { ctor: true, ..CacheSpec::new(name, SIZE - 8) };
                slub.create_cache(spec).expect("a cache")
            };
            let caches = [cache("pair"), cache("remote")];
            Contender::Slub(Box::new(slub), caches)
        })
        .collect();
    contenders.extend([Contender::Glibc, Contender::Mimalloc]);
    let times = measure(&machine, &contenders);
    let (glibc, mimalloc) = (Config::ERAS.len(), Config::ERAS.len() + 1);
    let ns = |i: usize, what: usize| median(times[i][what].clone());
    let ratio = |i: usize, to: usize, what: usize| {
        median(times[i][what].iter().zip(&times[to][what]).map(|(a, b)| a / b).collect())
    };
    println!("SLUB on this host, {SIZE} bytes, medians of {TURNS} turns; ratios to glibc and to mimalloc");
    if machine.oversubscribed() {
        println!("the two workers share a core: remote frees wait for the host's scheduler");
    }
    println!(
        "{:<12} {:>9} {:>7} {:>9}   {:>10} {:>7} {:>9}",
        "era", "pair ns", "glibc", "mimalloc", "remote ns", "glibc", "mimalloc"
    );
    let row = |name: &str, i: usize| {
        let [p, r] = [0, 1].map(|what| (ns(i, what), ratio(i, glibc, what), ratio(i, mimalloc, what)));
        println!("{name:<12} {:>9.1} {:>7.2} {:>9.2}   {:>10.1} {:>7.2} {:>9.2}", p.0, p.1, p.2, r.0, r.1, r.2);
        [p.1.max(p.2), r.1.max(r.2)]
    };
    let worst: Vec<[f64; 2]> = Config::ERAS.iter().enumerate().map(|(i, era)| row(era, i)).collect();
    row("glibc", glibc);
    row("mimalloc", mimalloc);
    for (era, (worst, contender)) in Config::ERAS.iter().zip(worst.into_iter().zip(&mut contenders)) {
        let Contender::Slub(slub, caches) = contender else { continue };
        for (what, name) in [(What::Pair, "pair"), (What::Remote, "remote free")] {
            let worst = worst[what as usize];
            if worst > EXPLAINED {
                let counted = Counted::new(slub, caches[what as usize]);
                println!("{era}, {name} {worst:.2}: {}", cause(era, &counted, what));
            }
        }
    }
}
