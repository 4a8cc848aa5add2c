//! The two fast paths written by hand for one machine and one cache, statistics as shipped: what the generic ones are
//! compared with. Same memory (relaxed atomic words of an arena), same counters, no machine, no token, no policy.

use slablab::machine::{Addr, Arena};
use std::sync::atomic::{AtomicU64, Ordering};

/// SLAB: an array of at most `limit` objects, newest on top.
pub struct HandSlab {
    entries: Vec<u64>,
    limit: usize,
    touched: bool,
    counts: [u64; 4],
}

impl HandSlab {
    pub fn new() -> HandSlab {
        HandSlab { entries: (0..16).map(|i| i * 256).collect(), limit: 120, touched: false, counts: [0; 4] }
    }
    #[inline(never)]
    pub fn alloc(&mut self) -> Option<u64> {
        let top = self.entries.pop();
        self.touched |= top.is_some();
        self.counts[usize::from(top.is_none())] += 1;
        top
    }
    #[inline(never)]
    pub fn free(&mut self, object: u64) {
        let fits = self.entries.len() < self.limit;
        self.counts[2 + usize::from(!fits)] += 1;
        if fits {
            self.entries.push(object);
        }
    }
}

/// SLUB: a list through the free objects of the cpu slab; a free finds its slab through the page's descriptor.
pub struct HandSlub {
    arena: Arena,
    descriptors: Vec<AtomicU64>,
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
        let descriptors = (0..256).map(|i| AtomicU64::new(i + 1)).collect();
        HandSlub { arena, descriptors, freelist: 0, slab: 1, node: 0, counts: [0; 4] }
    }
    #[inline(never)]
    pub fn alloc(&mut self, node: Option<u32>) -> Option<u64> {
        let object = self.freelist;
        if object == NONE || node.is_some_and(|n| n != self.node) {
            return None;
        }
        self.freelist = self.arena.peek(Addr(object));
        self.counts[0] += 1;
        Some(object)
    }
    #[inline(never)]
    pub fn free(&mut self, object: u64) -> bool {
        let slab = self.descriptors[(object / 4096) as usize].load(Ordering::Relaxed);
        if slab != self.slab || !object.is_multiple_of(256) {
            return false;
        }
        self.arena.poke(Addr(object), self.freelist);
        self.freelist = object;
        self.counts[2] += 1;
        true
    }
}
