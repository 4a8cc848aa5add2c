//! kmalloc: size classes over caches, and the page allocator for what is larger (kernel: get_slab, kmalloc_large).

use super::policy::Policy;
use super::word::{Kind, Slab};
use super::{Cache, Config, Slub};
use crate::alloc::kinds;
use crate::alloc::{Stat, ZERO_SIZE};
use crate::error::Error;
use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::page::{Asker, Page};
use crate::spec::{self, CacheSpec, Request};
use crate::units::{Order, fls};

/// Classes up to 192 bytes.
const SMALL: [u64; 7] = [8, 16, 32, 64, 96, 128, 192];

/// Class of (size − 1) / 8 up to 192 bytes (kernel: size_index).
const SMALL_INDEX: [u8; 24] = {
    let mut index = [0; 24];
    let mut i = 0;
    while i < 24 {
        let mut class = 0;
        while SMALL[class] < (i as u64 + 1) * 8 {
            class += 1;
        }
        index[i] = class as u8;
        i += 1;
    }
    index
};

/// Slot sizes of all classes, ascending: 96, 192 and the powers of two from 8 to `largest`.
pub(super) fn sizes(largest: u64) -> impl Iterator<Item = u64> {
    let large = (8..64).map(|i| 1u64 << i).take_while(move |s| *s <= largest);
    SMALL.into_iter().chain(large)
}

/// What the cache of a class is made from. Its name has the size in bytes, later (5.x) in KiB from 1 KiB on; and its kind.
pub(super) fn spec(size: u64, kind: spec::Kind, policy: &Policy) -> CacheSpec {
    let shown = if policy.modern_layout { kinds::short(size) } else { size.to_string() };
    let name = match kind {
        spec::Kind::Dma => format!("{}{shown}", policy.kmalloc_dma),
        _ => kinds::name(kind, &shown),
    };
    CacheSpec { reclaim_account: kind == spec::Kind::Reclaimable, ..CacheSpec::new(name, size) }
}

/// The same for a further copy of an ordinary class.
pub(super) fn copy_spec(size: u64, copy: usize) -> CacheSpec {
    CacheSpec::new(kinds::name(spec::Kind::Normal, &format!("rnd-{copy:02}-{}", kinds::short(size))), size)
}

/// Copies of each class where they are chosen at random.
pub(super) const COPIES: usize = 16;

/// The copy that a request of this many bytes takes from: fixed for a place in the code, as if at random over all of them.
fn copy_for(bytes: u64) -> usize {
    super::Draws(bytes).next() as usize % COPIES
}

/// Class of a size above 0: the smallest whose slots hold it, whether or not its cache exists.
#[inline]
fn class_of(bytes: u64) -> usize {
    if bytes <= 192 { usize::from(SMALL_INDEX[(bytes as usize - 1) / 8]) } else { fls(bytes - 1) as usize - 1 }
}

impl<M: Machine> Slub<'_, M> {
    /// Makes the kmalloc caches: the ordinary classes, their copies, then each further kind (kernel: create_kmalloc_caches).
    pub(super) fn make_kmalloc_caches(&mut self, config: &Config) -> Result<(), Error> {
        let all = || sizes(config.t.kmalloc_max);
        for kind in config.kinds() {
            self.kmalloc_kinds[kind as usize] = Some(self.caches.len());
            for size in all() {
                let id = self.add_cache(spec(size, kind, &self.policy), true)?;
                self.caches[id.0 as usize].kind = kind;
            }
            if kind.is_normal() && config.t.kmalloc_random {
                let first = self.caches.len();
                for (copy, size) in (1..COPIES).flat_map(|copy| all().map(move |size| (copy, size))) {
                    self.add_cache(copy_spec(size, copy), true)?;
                }
                self.kmalloc_copies = first..self.caches.len();
            }
        }
        self.kmalloc_caches = self.caches.len();
        self.kmalloc_several = self.kmalloc_caches > self.kmalloc_classes;
        Ok(())
    }

    #[inline]
    pub(super) fn kmalloc_any(&self, cpu: &M::Cpu, bytes: u64, want: Request) -> Option<Addr> {
        if bytes == 0 {
            return Some(ZERO_SIZE);
        }
        let mut class = self.caches[..self.kmalloc_classes].get(class_of(bytes));
        if self.kmalloc_several {
            class = class.map(|c| &self.caches[self.kmalloc_first(bytes, want.kind) + c.index]);
        }
        match class {
            Some(cache) => {
                cpu.work(cost::KMALLOC_LOOKUP);
                self.alloc_from(cpu, cache, want)
            }
            None => self.kmalloc_large(cpu, bytes, want),
        }
    }

    /// Index of the first class of a kind (kernel: kmalloc_type). The kind must be one that has caches.
    fn kmalloc_first(&self, bytes: u64, kind: spec::Kind) -> usize {
        let copy = if kind.is_normal() && self.policy.t.kmalloc_random { copy_for(bytes) } else { 0 };
        self.kmalloc_kinds[kind as usize].expect("a kind that has caches") + copy * self.kmalloc_classes
    }

    #[inline]
    pub(super) fn kfree_any(&self, cpu: &M::Cpu, object: Addr) {
        if object == ZERO_SIZE {
            return;
        }
        let (slab, kind) = Slab::of(self.pages, cpu, object);
        match kind {
            Kind::Slab(cache) => {
                cpu.work(cost::KMALLOC_LOOKUP);
                self.free_in(cpu, &self.caches[cache], slab, object);
            }
            Kind::Large => self.kfree_large(cpu, slab, object),
            Kind::Foreign => {
                panic!("slub: kfree of {:#x}: expected a slab or a kmalloc block, found page {}", object.0, slab.0.0)
            }
        }
    }

    /// Bytes that the owner of a kmalloc object may use (kernel: ksize): what debugging or a late reader does not need of its
    /// slot; of a block all pages.
    pub(super) fn usable(&self, cpu: &M::Cpu, object: Addr) -> u64 {
        if object == ZERO_SIZE {
            return 0;
        }
        let (slab, kind) = Slab::of(self.pages, cpu, object);
        match kind {
            Kind::Slab(cache) => {
                let (spec, layout) = (&self.caches[cache].spec, &self.caches[cache].layout);
                match layout.debug {
                    debug if debug.red_zone || debug.poison => layout.object_size,
                    debug if debug.user || spec.typesafe_by_rcu => layout.inuse,
                    _ => layout.slot,
                }
            }
            Kind::Large => Order(slab.large_order(self.pages)).bytes(),
            Kind::Foreign => {
                panic!("slub: ksize of {:#x}: expected a slab or a kmalloc block, found page {}", object.0, slab.0.0)
            }
        }
    }

    /// Takes one block of pages instead of an object, where the release does that.
    #[cold]
    pub(super) fn kmalloc_block(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        let block = if cache.block_will_do { self.kmalloc_large(cpu, cache.layout.object_size, want) } else { None };
        if block.is_some() {
            // It is no object of the cache, though the caller notes one.
            cache.cpus.with(cpu, |c| c.moved(-1));
        }
        block
    }

    /// Takes whole pages, a compound page if more than one; `None` also above the largest order.
    #[cold]
    fn kmalloc_large(&self, cpu: &M::Cpu, bytes: u64, want: Request) -> Option<Addr> {
        if bytes > Order(super::policy::LARGEST_ORDER).bytes() {
            return None;
        }
        cpu.work(cost::KMALLOC_LARGE);
        let order = Order::for_bytes(bytes);
        let head = self.alloc_block(cpu, order, want, Asker::Kmalloc)?.into_pfn();
        Slab(head).found_large(self.pages, cpu, order.0);
        self.large.with(cpu, |c| c.count(Stat::LargeAlloc));
        let at = self.pages.addr_of(head);
        if want.zero {
            self.pages.arena().fill(at, order.bytes(), 0);
            cpu.touch_span(at, order.bytes(), Access::Write);
        }
        Some(at)
    }

    #[cold]
    pub(super) fn kfree_large(&self, cpu: &M::Cpu, head: Slab, object: Addr) {
        let start = self.pages.addr_of(head.0);
        assert!(object == start, "slub: kfree of {:#x}: expected the block's start {:#x}", object.0, start.0);
        cpu.work(cost::KFREE_LARGE);
        self.large.with(cpu, |c| c.count(Stat::LargeFree));
        self.pages.free_pages(cpu, Page::of(head.0, Order(head.large_order(self.pages))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_find_the_class_of_the_table() {
        let all: Vec<u64> = sizes(4 << 20).collect();
        let slot = |bytes| all[class_of(bytes)];
        let ranges =
            [(1, 8, 8), (9, 16, 16), (17, 32, 32), (33, 64, 64), (65, 96, 96), (97, 128, 128), (129, 192, 192)];
        for (from, to, size) in ranges {
            assert!((from..=to).all(|b| slot(b) == size), "{from}..{to}");
        }
        for bytes in 193..=(4u64 << 20) {
            assert_eq!(slot(bytes), bytes.next_power_of_two());
        }
    }
}
