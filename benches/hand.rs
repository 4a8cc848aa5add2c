//! The two fast paths written by hand for one machine and one cache, statistics as shipped: what the generic ones are
//! compared with. Same memory (relaxed atomic words of an arena), same counters, no machine, no token, no policy.

use slablab::machine::{Addr, Arena};
use std::sync::atomic::{AtomicU64, Ordering};

/// SLAB: per cache and CPU an array of at most `limit` objects, newest on top.
pub struct HandSlab {
    caches: Vec<Vec<HandArray>>,
}

struct HandArray {
    entries: Vec<u64>,
    limit: usize,
    touched: bool,
    counts: [u64; 4],
}

impl HandSlab {
    pub fn new() -> HandSlab {
        let array =
            || HandArray { entries: (0..16).map(|i| i * 256).collect(), limit: 120, touched: false, counts: [0; 4] };
        HandSlab { caches: (0..20).map(|_| vec![array()]).collect() }
    }
    #[inline(never)]
    pub fn alloc(&mut self, cache: usize, cpu: usize) -> Option<u64> {
        let array = &mut self.caches[cache][cpu];
        let top = array.entries.pop();
        array.touched |= top.is_some();
        array.counts[usize::from(top.is_none())] += 1;
        top
    }
    #[inline(never)]
    pub fn free(&mut self, cache: usize, cpu: usize, object: u64) {
        let array = &mut self.caches[cache][cpu];
        let fits = array.entries.len() < array.limit;
        array.counts[2 + usize::from(!fits)] += 1;
        if fits {
            array.entries.push(object);
        }
    }
}

/// SLUB: a list through the free objects of the cpu slab; a free finds its slab through the page's descriptor.
pub struct HandSlub {
    arena: Arena,
    descriptors: Vec<[AtomicU64; 2]>,
    caches: Vec<Vec<HandSlot>>,
}

struct HandSlot {
    freelist: u64,
    slab: u64,
    node: u32,
    counts: [u64; 4],
}

const NONE: u64 = u64::MAX;

impl HandSlub {
    pub fn new() -> HandSlub {
        let arena = Arena::new(1 << 20).expect("a megabyte");
        (0..16).for_each(|i| arena.poke(Addr(i * 256), if i == 15 { NONE } else { (i + 1) * 256 }));
        let descriptors = (0..256).map(|i| [AtomicU64::new(i + 1), AtomicU64::new(3)]).collect();
        let slot = || HandSlot { freelist: 0, slab: 1, node: 0, counts: [0; 4] };
        HandSlub { arena, descriptors, caches: (0..20).map(|_| vec![slot()]).collect() }
    }
    #[inline(never)]
    pub fn alloc(&mut self, cache: usize, cpu: usize, node: Option<u32>) -> Option<u64> {
        let slot = &mut self.caches[cache][cpu];
        let object = slot.freelist;
        if object == NONE || node.is_some_and(|n| n != slot.node) {
            return None;
        }
        slot.freelist = self.arena.peek(Addr(object));
        slot.counts[0] += 1;
        Some(object)
    }
    #[inline(never)]
    pub fn free(&mut self, cache: usize, cpu: usize, object: u64) -> bool {
        let [slab, owner] = &self.descriptors[(object / 4096) as usize];
        let (slab, owner) = (slab.load(Ordering::Relaxed), owner.load(Ordering::Relaxed));
        let slot = &mut self.caches[cache][cpu];
        if owner != cache as u64 || slab != slot.slab || !object.is_multiple_of(256) {
            return false;
        }
        self.arena.poke(Addr(object), slot.freelist);
        slot.freelist = object;
        slot.counts[2] += 1;
        true
    }
}
