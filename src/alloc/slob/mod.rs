//! `slob`: the smallest complete allocator. Read this one first.
//!
//! A first-fit heap of single pages for objects of all sizes together. No caches of objects, no per-CPU anything, one
//! lock. What a request becomes:
//!
//! ```text
//! cache object  ─ size known by its cache ──────────────► block of `size` bytes   ┐
//! kmalloc       ─ 8 bytes of header that say the size ──► block of `size + 8`     ├► first page of a list that can
//! a cache's own descriptor ─────────────────────────────► block                   ┘  hold it, lowest place in it
//! a page or more ───────────────────────────────────────► the page allocator, and straight back to it
//! ```
//!
//! - `policy.rs`: what the releases disagree about.
//! - `page.rs`: blocks within a page, and how free ones are written into themselves.
//! - `heap.rs`: the lists of pages, where a block comes from and goes to.
//! - this file: requests by cache and by size, and the lock.
//! - `cache.rs`: a cache, and the account that each CPU keeps of it.
//! - `report.rs`: the whole heap in figures, and its invariants, walked.
//!
//! What it costs: time grows with the pages in front of the one that fits and with the fragments in a page, all of it
//! spent with `slob_lock` held, so no number of CPUs does more than one of them could.
//!
//! Not of the original: `kmalloc` keeps its counts under a cache of its own, number 0, because nothing else could. A
//! grace period has length zero here, as no simulated reader ever looks at a freed object: a type-safe cache
//! has its footer, and its blocks are free at once.

mod cache;
mod heap;
mod page;
mod policy;
mod report;
#[cfg(test)]
mod tests;

pub use policy::{Config, Create, Lists, PageReturn, Relist, Rotation};
pub use report::{HeapReport, ListReport};

use std::sync::Mutex;

use super::{CacheInfo, Counters, Destroyed, Placement, SlabAllocator, Stat, ZERO_SIZE};
use crate::error::{Corruption, Error};
use crate::machine::{Access, Addr, Cpu, Machine, PerCpu, SpinLock, cost};
use crate::page::{Field, Page, PageFlags, Pages};
use crate::spec::{CacheId, CacheSpec, Object, Request};
use crate::units::{CpuId, LINE, MAX_ORDER, NodeId, Order, PAGE_SIZE};

use cache::{Cache, RCU_FOOTER, Tally};
use heap::{HEAP, Heap};
use page::{Fit, UNIT, units};

/// Alignment of every block, and bytes of kmalloc's header (kernel: ARCH_KMALLOC_MINALIGN, ARCH_SLAB_MINALIGN on x86-64).
const MIN_ALIGN: u64 = 8;
/// `Field::Flags` of a block of pages that kmalloc passed on; `Field::Extra` has its size in bytes.
const BIG: u64 = 1 << 2;
/// Most bytes of one object.
const MAX_BYTES: u64 = PAGE_SIZE << (MAX_ORDER - 1);
/// The cache that stands for kmalloc.
const KMALLOC: CacheId = CacheId(0);

/// The SLOB allocator.
pub struct Slob<'p, M: Machine> {
    pages: &'p Pages<'p, M>,
    policy: Config,
    heap: SpinLock<M, Heap>,
    caches: Vec<Cache<M>>,
}

impl<'p, M: Machine> SlabAllocator<'p, M> for Slob<'p, M> {
    type Config = Config;

    fn new(pages: &'p Pages<'p, M>, config: &Config) -> Result<Self, Error> {
        let machine = pages.machine();
        let lock = machine.lock("slob_lock", machine.reserve(LINE, NodeId(0)));
        let heap = SpinLock::new(lock, Heap::new(machine.reserve(LINE, NodeId(0))));
        let kmalloc = Cache::new(machine, CacheSpec::new("kmalloc", 0), config);
        Ok(Slob { pages, policy: config.clone(), heap, caches: vec![kmalloc] })
    }
    fn pages(&self) -> &'p Pages<'p, M> {
        self.pages
    }

    /// Makes a cache. Only its descriptor takes memory: the boot CPU takes the block.
    fn create_cache(&mut self, spec: CacheSpec) -> Result<CacheId, Error> {
        if spec.size == 0 || spec.size > MAX_BYTES - RCU_FOOTER {
            return Err(Error::new("cache.size", spec.size, format!("1..{} bytes", MAX_BYTES - RCU_FOOTER)));
        }
        if spec.align > PAGE_SIZE || spec.align > 0 && !spec.align.is_power_of_two() {
            return Err(Error::new("cache.align", spec.align, "0 or a power of two up to a page"));
        }
        let mut cache = Cache::new(self.pages.machine(), spec, &self.policy);
        if self.policy.descriptor > 0 {
            let fit = Fit { units: units(self.policy.descriptor), align: MIN_ALIGN, offset: 0 };
            let take = |cpu: &_| self.alloc_block(cpu, self.policy.descriptor, fit, Request::default());
            let Some((block, _)) = self.on_boot_cpu(take) else {
                return Err(Error::new("machine.memory", cache.spec.name, "a free page for the cache's descriptor"));
            };
            cache.descriptor = Some(block);
            cache.tally.get_mut(CpuId(0)).units += fit.units as i64;
        }
        cache.base = self.page_counts();
        self.caches.push(cache);
        Ok(CacheId(self.caches.len() as u32 - 1))
    }

    /// A block of the cache's size, or pages.
    fn alloc(&self, cpu: &M::Cpu, id: CacheId, want: Request) -> Option<Object> {
        let cache = self.cache(id);
        let addr = if cache.size < PAGE_SIZE {
            let fit = Fit { units: units(cache.size), align: cache.align, offset: 0 };
            let (addr, stat) = self.alloc_block(cpu, cache.size, fit, want)?;
            cache.tally.with(cpu, |t| t.take(stat, cache.spec.size, fit.units));
            self.clear(cpu, addr, if want.zero { cache.size } else { 0 });
            addr
        } else {
            let page = self.alloc_big(cpu, &cache.tally, cache.spec.size, Order::for_bytes(cache.size), false, want)?;
            self.pages.addr_of(page.into_pfn())
        };
        // Every allocation constructs: objects are not kept constructed. A constructor writes the whole object.
        if cache.spec.ctor {
            cpu.touch_span(addr, cache.spec.size, Access::Write);
        }
        Some(Object::at(addr))
    }

    /// Back to the page it came from. Its size is the cache's.
    fn free(&self, cpu: &M::Cpu, id: CacheId, object: Object) {
        let (cache, addr) = (self.cache(id), object.addr());
        if cache.spec.typesafe_by_rcu {
            cpu.touch(addr.plus(cache.size - RCU_FOOTER), Access::Write);
        }
        if cache.size < PAGE_SIZE {
            let emptied = self.free_block(cpu, addr, cache.size);
            cache.tally.with(cpu, |t| t.give(emptied, cache.spec.size, units(cache.size)));
        } else {
            self.free_big(cpu, &cache.tally, addr, cache.spec.size, Order::for_bytes(cache.size));
        }
    }

    /// A block with a header that says its size; from a page less the header on, pages.
    fn kmalloc(&self, cpu: &M::Cpu, bytes: u64, want: Request) -> Option<Object> {
        if bytes == 0 {
            return Some(Object::at(ZERO_SIZE));
        }
        cpu.work(cost::SLOB_KMALLOC);
        let tally = &self.caches[0].tally;
        if bytes >= PAGE_SIZE - MIN_ALIGN {
            return self.kmalloc_big(cpu, tally, bytes, want);
        }
        let block = bytes + MIN_ALIGN;
        let fit = match self.policy.natural_align && bytes.is_power_of_two() {
            true => Fit { units: units(block), align: bytes.max(MIN_ALIGN), offset: MIN_ALIGN },
            false => Fit { units: units(block), align: MIN_ALIGN, offset: 0 },
        };
        let (addr, stat) = self.alloc_block(cpu, block, fit, want)?;
        tally.with(cpu, |t| t.take(stat, bytes, fit.units));
        self.clear(cpu, addr, if want.zero { block } else { 0 });
        self.pages.arena().store(cpu, addr, bytes);
        Some(Object::at(addr.plus(MIN_ALIGN)))
    }

    /// Looks into the page's descriptor, then for the size into the header or the descriptor.
    fn kfree(&self, cpu: &M::Cpu, object: Object) {
        let addr = object.addr();
        if addr == ZERO_SIZE {
            return;
        }
        cpu.work(cost::SLOB_KFREE);
        let tally = &self.caches[0].tally;
        let pfn = self.pages.pfn_of(addr).expect("an address of the arena");
        let flags = self.pages.load(cpu, pfn, Field::Flags);
        if flags & HEAP != 0 {
            let block = Addr(addr.0 - MIN_ALIGN);
            let bytes = self.pages.arena().load(cpu, block);
            let emptied = self.free_block(cpu, block, bytes + MIN_ALIGN);
            tally.with(cpu, |t| t.give(emptied, bytes, units(bytes + MIN_ALIGN)));
        } else {
            assert!(
                flags & BIG != 0,
                "slob: kfree of {addr:?} in page {pfn:?}, expected kmalloc's, found flags {flags:#x}"
            );
            let bytes = self.pages.peek(pfn, Field::Extra);
            self.free_big(cpu, tally, addr, bytes, Order::for_bytes(bytes));
        }
    }

    /// Nothing is held back, so there is nothing to return.
    fn shrink(&self, _: &M::Cpu, _: CacheId) {}
    /// Frees the descriptor and nothing else: objects still alive stay so, in pages that belong to no cache.
    fn destroy(&self, cpu: &M::Cpu, id: CacheId) -> Destroyed {
        let cache = self.cache(id);
        if let Some(block) = cache.descriptor {
            self.free_block(cpu, block, self.policy.descriptor);
            cache.tally.with(cpu, |t| t.units -= units(self.policy.descriptor) as i64);
        }
        Destroyed::default()
    }

    fn cache_count(&self) -> usize {
        self.caches.len()
    }
    fn verify(&mut self) -> Result<(), Corruption> {
        self.walk_invariants()
    }
    /// Live objects; every page column is empty, because the pages of the heap belong to no cache.
    fn info(&mut self, id: CacheId) -> CacheInfo {
        let cache = &mut self.caches[id.0 as usize];
        let objects = cache.sum(|t| t.objects) as u64;
        CacheInfo {
            name: cache.spec.name.clone(),
            object_size: cache.spec.size,
            slot_size: cache.size,
            active_objects: objects,
            live_objects: objects,
            ..CacheInfo::default()
        }
    }
    fn counters(&mut self, id: CacheId) -> Vec<Counters> {
        self.caches[id.0 as usize].tally.iter_mut().map(|(_, t)| t.counters.clone()).collect()
    }
    fn reset_counters(&self, cpu: &M::Cpu) {
        self.caches.iter().for_each(|c| c.tally.with(cpu, |t| t.counters.reset()));
    }
    fn state(&mut self, id: CacheId) -> serde_json::Value {
        self.state_since_creation(id)
    }
    fn placement(&mut self, _: CacheId, object: Addr) -> Placement {
        let slab = self.pages.pfn_of(object).expect("an address of the arena");
        Placement { slab, index: object.0 - self.pages.addr_of(slab).0, offset: 0 }
    }
    /// SLOB has no /proc/slabinfo.
    fn slabinfo(&mut self) -> Option<String> {
        None
    }
}

impl<'p, M: Machine> Slob<'p, M> {
    /// Takes a block from the listed pages, or else from a new one; also says which (kernel: slob_alloc). The lock is
    /// held during the whole walk.
    fn alloc_block(&self, cpu: &M::Cpu, bytes: u64, fit: Fit, want: Request) -> Option<(Addr, Stat)> {
        cpu.work(cost::SLOB_ALLOC);
        let list = self.policy.list(bytes);
        cpu.irq_save();
        let found = self.heap.lock(cpu).take(self.pages, cpu, &self.policy, list, fit, want.node);
        match found {
            Some(found) => Some((found.addr, if found.first_page { Stat::FirstPage } else { Stat::LaterPage })),
            None => self.grow(cpu, list, fit, want).map(|addr| (addr, Stat::NewPage)),
        }
    }

    /// The same from a new page. The lock is not held while the page is fetched: what others free meanwhile is ignored.
    #[cold]
    fn grow(&self, cpu: &M::Cpu, list: usize, fit: Fit, want: Request) -> Option<Addr> {
        let flags = PageFlags { atomic: want.atomic, this_node: want.this_node, ..PageFlags::default() };
        let pfn = self.pages.alloc_pages(cpu, Order(0), want.node, flags)?.into_pfn();
        cpu.work(cost::SLOB_NEW_PAGE);
        cpu.irq_save();
        Some(self.heap.lock(cpu).add(self.pages, cpu, list, fit, pfn))
    }

    /// Gives a block of `bytes` bytes back; true if that emptied its page, which is then returned (kernel: slob_free).
    fn free_block(&self, cpu: &M::Cpu, addr: Addr, bytes: u64) -> bool {
        cpu.work(cost::SLOB_FREE);
        let pfn = self.pages.pfn_of(addr).expect("an address of the arena");
        let block = ((addr.0 - self.pages.addr_of(pfn).0) / UNIT, units(bytes));
        cpu.irq_save();
        let mut heap = self.heap.lock(cpu);
        let Some(page) = heap.give(self.pages, cpu, &self.policy, pfn, block, self.policy.relist(bytes)) else {
            return false;
        };
        cpu.work(cost::SLOB_FREE_PAGE);
        if self.policy.page_return == PageReturn::Unlocked {
            drop(heap);
            self.pages.free_pages(cpu, page);
        } else {
            // slob_lock, then the zone lock if the CPU's page list is full.
            self.pages.free_pages(cpu, page);
            drop(heap);
        }
        true
    }

    /// kmalloc of a page or more: the descriptor remembers the size.
    fn kmalloc_big(&self, cpu: &M::Cpu, tally: &PerCpu<M, Tally>, bytes: u64, want: Request) -> Option<Object> {
        if bytes > MAX_BYTES {
            return None;
        }
        let pfn = self.alloc_big(cpu, tally, bytes, Order::for_bytes(bytes), true, want)?.into_pfn();
        self.pages.store(cpu, pfn, Field::Flags, BIG);
        self.pages.poke(pfn, Field::Extra, bytes);
        Some(Object::at(self.pages.addr_of(pfn)))
    }

    /// Passes a request on to the page allocator.
    fn alloc_big(
        &self,
        cpu: &M::Cpu,
        tally: &PerCpu<M, Tally>,
        bytes: u64,
        order: Order,
        compound: bool,
        want: Request,
    ) -> Option<Page> {
        let Request { node, this_node, zero, atomic } = want;
        let flags = PageFlags { atomic, this_node, zero, compound: compound && order.0 > 0, no_retry: false };
        let page = self.pages.alloc_pages(cpu, order, node, flags)?;
        tally.with(cpu, |t| {
            t.take(Stat::LargeAlloc, bytes, 0);
            t.big_pages += order.pages() as i64;
            t.big_taken += order.pages();
        });
        Some(page)
    }
    fn free_big(&self, cpu: &M::Cpu, tally: &PerCpu<M, Tally>, addr: Addr, bytes: u64, order: Order) {
        let pfn = self.pages.pfn_of(addr).expect("an address of the arena");
        self.pages.free_pages(cpu, Page::of(pfn, order));
        tally.with(cpu, |t| {
            t.counters.count(Stat::LargeFree);
            t.objects -= 1;
            t.bytes -= bytes as i64;
            t.big_pages -= order.pages() as i64;
        });
    }

    /// Clears the first `bytes` bytes, not one more: a free block may follow.
    fn clear(&self, cpu: &M::Cpu, addr: Addr, bytes: u64) {
        if bytes > 0 {
            self.pages.arena().fill(addr, bytes, 0);
            cpu.touch_span(addr, bytes, Access::Write);
        }
    }

    fn cache(&self, id: CacheId) -> &Cache<M> {
        assert!(id != KMALLOC, "slob: cache 0 counts for kmalloc and has no objects of its own");
        &self.caches[id.0 as usize]
    }

    /// Runs `f` on the first CPU while no other does anything.
    fn on_boot_cpu<R: Send>(&self, f: impl Fn(&M::Cpu) -> R + Sync) -> R {
        let result = Mutex::new(None);
        self.pages.machine().boot(|cpu| {
            if cpu.id() == CpuId(0) {
                let r = f(cpu);
                *result.lock().expect("no holder panics") = Some(r);
            }
        });
        result.into_inner().expect("no holder panics").expect("a machine has a CPU 0")
    }
}
