//! What every allocator of the registry must do, in every era, on machines of 1, 2 and 4 CPUs and 1 and 2 nodes:
//!
//! 1. an object is disjoint from all live ones, aligned as asked, and inside the arena;
//! 2. it lies on the node that was named, while that node has memory, and is zero if that was asked;
//! 3. it keeps what is written into it until it is freed, on whatever CPU that is;
//! 4. when memory runs out, requests get `None`; what is live stays whole, and what is freed can be taken again;
//! 5. with everything freed and shrunk no object of a user is live, and `verify()` of allocator and pages is clean.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::alloc::{Configuration, SlabAllocator, ZERO_SIZE};
use crate::machine::presets::Machinery;
use crate::machine::sim::Schedule;
use crate::machine::{Cpu, Machine, Sim, Wakeup};
use crate::page::{Page, PageFlags, PageModel, Pages};
use crate::spec::{CacheId, CacheSpec, Object, Request};
use crate::units::{Addr, CpuId, NodeId, Order};

type SimCpu = <Sim as Machine>::Cpu;

/// kmalloc promises this alignment for any size.
const KMALLOC_ALIGN: u64 = 8;
const KMALLOC_SIZES: [u64; 16] = [1, 8, 13, 24, 32, 64, 96, 100, 192, 500, 1000, 2048, 4090, 4096, 5000, 20_000];
const MACHINES: [(u64, u64); 5] = [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2)];

/// Caches of all shapes, and the alignment each must keep.
fn caches() -> Vec<(CacheSpec, u64)> {
    let spec = |size, align| CacheSpec { align, ..CacheSpec::new(format!("size-{size}/{align}"), size) };
    let mut all: Vec<_> = [
        (8, 0),
        (30, 0),
        (64, 0),
        (104, 0),
        (200, 16),
        (256, 256),
        (700, 0),
        (1024, 128),
        (3000, 0),
        (4096, 0),
        (9000, 0),
    ]
    .map(|(size, align)| (spec(size, align), align.max(1)))
    .into();
    all.push((CacheSpec::new("line-40", 40).hwcache(), 64));
    all.push((CacheSpec { ctor: true, ..CacheSpec::new("ctor-120", 120) }, 1));
    all.push((CacheSpec { typesafe_by_rcu: true, ..CacheSpec::new("typesafe-88", 88) }, 1));
    all.push((CacheSpec { reclaim_account: true, ..CacheSpec::new("reclaim-568", 568) }, 1));
    all
}

/// What a trial does.
#[derive(Clone, Copy, Debug)]
enum Exercise {
    /// Random requests and frees on all CPUs.
    Mix,
    /// One CPU takes objects of one kind until memory is out.
    Exhaust(usize),
}

/// One live object.
struct Held {
    object: Object,
    cache: Option<CacheId>,
    bytes: u64,
    tag: u8,
}

/// All live objects: to pick one from, and by address.
#[derive(Default)]
struct Ledger {
    held: Vec<Held>,
    ends: BTreeMap<u64, u64>,
    taken: u64,
}

/// An allocator at work, and what it has handed out.
struct Trial<'a, 'p, A> {
    alloc: &'a A,
    pages: &'a Pages<'p, Sim>,
    caches: &'a [(CacheId, u64, u64)],
    heeds_requests: bool,
    ledger: Mutex<Ledger>,
}

impl<'p, A: SlabAllocator<'p, Sim>> Trial<'_, 'p, A> {
    /// Takes an object of `choice`: a cache, or beyond those a size of kmalloc. False when memory is out.
    fn take(&self, cpu: &SimCpu, choice: usize, want: Request) -> bool {
        let (cache, bytes, align) = match self.caches.get(choice) {
            Some(&(id, bytes, align)) => (Some(id), bytes, align),
            None => (None, KMALLOC_SIZES[choice - self.caches.len()], KMALLOC_ALIGN),
        };
        let object = match cache {
            Some(id) => self.alloc.alloc(cpu, id, want),
            None => self.alloc.kmalloc(cpu, bytes, want),
        };
        let Some(object) = object else { return false };
        let (start, end) = (object.addr().0, object.addr().0 + bytes);
        let arena = self.pages.arena();
        assert!(end <= self.pages.frames() * 4096, "{start:#x}..{end:#x} is outside the arena");
        assert_eq!(start % align, 0, "{start:#x} of {bytes} bytes is not aligned to {align}");
        // Without THISNODE a named node is a wish: SLUB up to 2.6.31 tosses its coin before it makes a new slab there.
        if let Some(node) = want.node.filter(|_| want.this_node && self.heeds_requests) {
            let found = self.pages.node_of(self.pages.pfn_of(object.addr()).expect("inside the arena"));
            assert_eq!(found, node, "{bytes} bytes at {start:#x} were asked of node {node}");
        }
        if want.zero && self.heeds_requests {
            assert!((start..end).all(|at| byte(arena, at) == 0), "{start:#x} of {bytes} bytes is not zeroed");
        }
        let mut ledger = self.ledger.lock().unwrap();
        let below = ledger.ends.range(..end).next_back();
        assert!(below.is_none_or(|(_, e)| *e <= start), "{start:#x}..{end:#x} overlaps a live object: {below:x?}");
        ledger.taken += 1;
        let tag = (ledger.taken % 251) as u8 + 1;
        ledger.ends.insert(start, end);
        ledger.held.push(Held { object, cache, bytes, tag });
        arena.fill(Addr(start), bytes, tag);
        true
    }

    /// Frees the `k`-th live object.
    fn give(&self, cpu: &SimCpu, k: usize) {
        let Held { object, cache, bytes, tag } = {
            let mut ledger = self.ledger.lock().unwrap();
            let held = ledger.held.swap_remove(k);
            ledger.ends.remove(&held.object.addr().0);
            held
        };
        let start = object.addr().0;
        let changed = (start..start + bytes).find(|&at| byte(self.pages.arena(), at) != tag);
        assert_eq!(changed, None, "{bytes} bytes at {start:#x}: a live object was overwritten");
        match cache {
            Some(id) => self.alloc.free(cpu, id, object),
            None => self.alloc.kfree(cpu, object),
        }
    }

    fn live(&self) -> usize {
        self.ledger.lock().unwrap().held.len()
    }

    /// Random requests and frees, of any live object.
    fn mix(&self, cpu: &SimCpu, steps: u64) {
        let choices = (self.caches.len() + KMALLOC_SIZES.len()) as u64;
        let nodes = self.pages.machine().topology().nodes() as u64;
        for step in 0..steps {
            cpu.serve();
            let live = self.live() as u64;
            if live > 0 && cpu.random(10) < if step < steps / 2 { 3 } else { 7 } {
                self.give(cpu, cpu.random(live) as usize);
            } else {
                let node = (cpu.random(2) == 0).then(|| NodeId(cpu.random(nodes) as u16));
                let want = Request {
                    node,
                    this_node: node.is_some() && cpu.random(2) == 0,
                    zero: cpu.random(4) == 0,
                    atomic: cpu.random(4) == 0,
                    ..Request::default()
                };
                assert!(self.take(cpu, cpu.random(choices) as usize, want), "memory is free");
            }
        }
    }

    /// Leaves half a mebibyte of memory, takes objects of one kind until it is out, and again after half has been freed.
    fn exhaust(&self, cpu: &SimCpu, choice: usize) {
        let block = || self.pages.alloc_pages(cpu, Order(4), None, PageFlags::default());
        let mut blocks: Vec<Page> = std::iter::from_fn(block).collect();
        blocks.drain(..8).for_each(|b| self.pages.free_pages(cpu, b));
        while self.take(cpu, choice, Request::default()) {}
        let most = self.live();
        assert!(most > 0);
        (0..most / 2).for_each(|_| self.give(cpu, 0));
        assert!(self.take(cpu, choice, Request::default()), "{} objects were freed", most / 2);
        while self.take(cpu, choice, Request::default()) {}
        blocks.into_iter().for_each(|b| self.pages.free_pages(cpu, b));
    }

    fn give_all(&self, cpu: &SimCpu) {
        loop {
            let Some(last) = self.live().checked_sub(1) else { return };
            cpu.serve();
            self.give(cpu, last);
        }
    }
}

fn byte(arena: &crate::machine::Arena, at: u64) -> u8 {
    (arena.peek(Addr(at)) >> (at % 8 * 8)) as u8
}

/// Does `exercise` on a fresh allocator, then frees and shrinks everything and lets both floors be verified.
fn trial<'p, A: SlabAllocator<'p, Sim>>(pages: &'p Pages<'p, Sim>, config: &A::Config, exercise: Exercise) {
    let mut alloc = A::new(pages, config).expect("the allocator boots");
    let made = |(spec, align): (CacheSpec, u64)| {
        let bytes = spec.size;
        (alloc.create_cache(spec).expect("a cache that can be made"), bytes, align)
    };
    let caches: Vec<_> = caches().into_iter().map(made).collect();
    let all = alloc.cache_count() as u32;
    // A cache that shares its slabs with one for kmalloc holds the allocator's own metadata from the start.
    let own: Vec<u64> = caches.iter().map(|(id, ..)| alloc.info(*id).live_objects).collect();
    let ledger = Mutex::new(Ledger::default());
    // `null` hands out whatever the CPU has: neither node nor zeroing concerns it.
    let heeds_requests = A::Config::NAME != "null";
    let trial = Trial { alloc: &alloc, pages, caches: &caches, heeds_requests, ledger };
    let machine = pages.machine();
    machine.boot(|cpu| {
        let empty = trial.alloc.kmalloc(cpu, 0, Request::default()).expect("nothing needs no memory");
        assert_eq!(empty.addr(), ZERO_SIZE);
        trial.alloc.kfree(cpu, empty);
        match exercise {
            Exercise::Mix => trial.mix(cpu, 1200),
            Exercise::Exhaust(choice) if cpu.id() == CpuId(0) => trial.exhaust(cpu, choice),
            Exercise::Exhaust(_) => {}
        }
        wait(cpu);
    });
    machine.boot(|cpu| {
        trial.give_all(cpu);
        wait(cpu);
    });
    machine.boot(|cpu| {
        if cpu.id() == CpuId(0) {
            (0..all).for_each(|id| trial.alloc.shrink(cpu, CacheId(id)));
        }
        wait(cpu);
    });
    let verified = alloc.verify();
    verified.expect("an allocator whose invariants hold");
    for ((id, ..), own) in caches.iter().zip(own) {
        assert_eq!(alloc.info(*id).live_objects, own, "{}", alloc.info(*id).name);
    }
}

/// Answers the other CPUs' calls until nothing happens any more.
fn wait(cpu: &SimCpu) {
    while cpu.idle(None) != Wakeup::Quiet {}
}

/// Does `exercise` on every allocator and era, on a machine of `cpus` CPUs and `nodes` nodes of `mib` MiB.
fn for_every_allocator((cpus, nodes): (u64, u64), mib: u64, exercise: Exercise) {
    macro_rules! each {
        ($($name:literal => $alloc:ty, $config:ty;)*) => {
            $(for era in <$config as Configuration>::ERAS {
                println!("{}@{era} on {cpus} CPUs and {nodes} nodes: {exercise:?}", $name);
                let hardware = Machinery::for_topology(cpus, nodes, mib << 20).expect("a small machine");
                let schedule = Schedule { seed: cpus * 16 + nodes, jitter_ps: 200_000, always_suspend: false };
                let sim = Sim::new(&hardware, schedule).expect("a machine");
                let mut pages = Pages::new(&sim, PageModel::HotCold).expect("its pages");
                trial::<$alloc>(&pages, &<$config as Configuration>::era(era).expect("an era of its list"), exercise);
                pages.verify().expect("pages whose invariants hold");
            })*
        };
    }
    crate::allocators!(each);
}

#[test]
fn objects_are_disjoint_aligned_on_their_node_and_keep_what_is_written() {
    for shape in MACHINES {
        for_every_allocator(shape, 64, Exercise::Mix);
    }
}

#[test]
fn memory_that_runs_out_is_none_and_leaves_everything_whole() {
    let choices = caches().len() + KMALLOC_SIZES.len();
    for shape in [(1, 1), (2, 2)] {
        for choice in (0..choices).step_by(5) {
            for_every_allocator(shape, 8, Exercise::Exhaust(choice));
        }
    }
}

/// kmalloc, ksize and krealloc on one CPU of every allocator and era.
fn resize<'p, A: SlabAllocator<'p, Sim>>(pages: &'p Pages<'p, Sim>, config: &A::Config, at: &str) {
    let alloc = A::new(pages, config).expect("the allocator boots");
    let (want, arena) = (Request::default(), pages.arena());
    pages.machine().boot(|cpu| {
        for bytes in [1, 7, 8, 33, 100, 192, 1000, 4096, 5000, 70_000] {
            let object = alloc.kmalloc(cpu, bytes, want).expect("memory");
            let room = alloc.ksize(cpu, &object);
            assert!(room >= bytes, "{at}: {room} of {bytes}");
            arena.fill(object.addr(), bytes, 0xa7);
            let old = object.addr();
            let object = alloc.krealloc(cpu, object, room, want).expect("memory");
            assert_eq!(object.addr(), old, "{at}: {bytes} bytes with room for {room} stay");
            let object = alloc.krealloc(cpu, object, room + 1, want).expect("memory");
            assert_ne!(object.addr(), old, "{at}: {bytes} bytes with room for {room} move");
            assert!(alloc.ksize(cpu, &object) > room);
            let start = object.addr().0;
            assert!((start..start + bytes).all(|b| byte(arena, b) == 0xa7), "{at}: {bytes} bytes are copied");
            let too_much = alloc.krealloc(cpu, object, 1 << 40, want).expect_err("more than there is");
            assert_eq!(too_much.addr().0, start, "{at}: the old object comes back");
            let none = alloc.krealloc(cpu, too_much, 0, want).expect("a free");
            assert_eq!((none.addr(), alloc.ksize(cpu, &none)), (ZERO_SIZE, 0));
            let fresh = alloc.krealloc(cpu, none, bytes, want).expect("memory");
            alloc.kfree(cpu, fresh);
        }
    });
}

#[test]
fn krealloc_stays_where_ksize_has_room_and_otherwise_moves_the_contents() {
    macro_rules! each {
        ($($name:literal => $alloc:ty, $config:ty;)*) => {
            $(for era in <$config as Configuration>::ERAS {
                let hardware = Machinery::for_topology(1, 1, 64 << 20).expect("a small machine");
                let sim = Sim::new(&hardware, Schedule::default()).expect("a machine");
                let pages = Pages::new(&sim, PageModel::HotCold).expect("its pages");
                let config = <$config as Configuration>::era(era).expect("an era of its list");
                resize::<$alloc>(&pages, &config, &format!("{}@{era}", $name));
            })*
        };
    }
    crate::allocators!(each);
}

/// 400 objects taken on one CPU; 150 of them freed and 100 more taken on the other; all freed on the first.
fn counted<'p, A: SlabAllocator<'p, Sim>>(pages: &'p Pages<'p, Sim>, config: &A::Config, at: &str) {
    let mut alloc = A::new(pages, config).expect("the allocator boots");
    // A constructor keeps it from being merged with a cache that the allocator uses itself.
    let id = alloc.create_cache(CacheSpec { ctor: true, ..CacheSpec::new("counted", 120) }).expect("a cache");
    let held: Mutex<Vec<Object>> = Mutex::default();
    let take = |cpu: &SimCpu, n: usize| {
        for _ in 0..n {
            let object = alloc.alloc(cpu, id, Request::default()).expect("memory");
            held.lock().unwrap().push(object);
        }
    };
    let give = |cpu: &SimCpu, n: usize| {
        for _ in 0..n {
            let object = held.lock().unwrap().swap_remove(0);
            alloc.free(cpu, id, object);
        }
    };
    for (number, steps) in [(0, [400, 0]), (1, [100, 150]), (0, [0, 350])] {
        pages.machine().boot(|cpu| {
            if cpu.id() == CpuId(number) {
                give(cpu, steps[1]);
                take(cpu, steps[0]);
            }
            wait(cpu);
        });
    }
    let mut all = crate::alloc::Counters::default();
    alloc.counters(id).iter().for_each(|c| all.merge(c));
    let shares = all.shares();
    assert_eq!((shares.alloc, shares.free), (500, 500), "{at}: {shares:?}");
    assert!(shares.alloc_fast <= 500 && shares.free_fast <= 500, "{at}: {shares:?}");
}

/// The percentages of the summary are of all allocations and frees, whatever the counters of a release leave out.
#[test]
fn shares_count_every_allocation_and_free_once() {
    macro_rules! each {
        ($($name:literal => $alloc:ty, $config:ty;)*) => {
            $(for era in <$config as Configuration>::ERAS.iter().filter(|_| $name != "null") {
                let hardware = Machinery::for_topology(2, 1, 64 << 20).expect("a small machine");
                let sim = Sim::new(&hardware, Schedule::default()).expect("a machine");
                let pages = Pages::new(&sim, PageModel::HotCold).expect("its pages");
                let config = <$config as Configuration>::era(era).expect("an era of its list");
                counted::<$alloc>(&pages, &config, &format!("{}@{era}", $name));
            })*
        };
    }
    crate::allocators!(each);
}
