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
//! - `big.rs`: requests of a page or more. `rcu.rs`: blocks that wait for a grace period.
//! - `cache.rs`: a cache, and the account that each CPU keeps of it.
//! - `report.rs`: the whole heap in figures, and its invariants, walked.
//!
//! What it costs: time grows with the pages in front of the one that fits and with the fragments in a page, all of it
//! spent with `slob_lock` held, so no number of CPUs does more than one of them could.
//!
//! Not of the original: `kmalloc` keeps its counts under a cache of its own, number 0, because nothing else could. Blocks
//! of a type-safe cache whose grace period is over go back when the CPU that freed them next frees such a block, needs a
//! page or trims; the kernel has a timer tick for that.

mod asked;
mod big;
mod cache;
mod heap;
mod map;
mod objects;
mod page;
mod policy;
mod rcu;
mod report;
#[cfg(test)]
mod tests;

pub use policy::{Config, Create, Lists, PageReturn, Relist, Rotation};
pub use report::{HeapReport, ListReport};

use std::sync::Mutex;

use super::geometry::Shape;
use super::{CacheInfo, Counters, Destroyed, Live, Map, Placement, SlabAllocator, Stat, ZERO_SIZE};
use crate::error::{Corruption, Error};
use crate::machine::{Access, Addr, Cpu, Machine, PerCpu, SpinLock, cost};
use crate::page::{Asker, Field, Page, PageFlags, Pages, Pfn};
use crate::spec::{CacheId, CacheSpec, Object, Request};
use crate::units::{CpuId, LINE, MAX_ORDER, NodeId, Order, PAGE_SIZE};

use cache::Cache;
use heap::{HEAP, Heap};
use page::{Fit, UNIT, units};
use rcu::Waiting;

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
    waiting: PerCpu<M, Waiting>,
}

impl<'p, M: Machine> SlabAllocator<'p, M> for Slob<'p, M> {
    type Config = Config;

    fn new(pages: &'p Pages<'p, M>, config: &Config) -> Result<Self, Error> {
        let machine = pages.machine();
        let lock = machine.lock("slob_lock", machine.reserve(LINE, NodeId(0)));
        let heap = SpinLock::new(lock, Heap::new(machine.reserve(LINE, NodeId(0))));
        let kmalloc = Cache::new(machine, CacheSpec::new("kmalloc", 0), config);
        let waiting = PerCpu::new(machine, |_| Waiting::default());
        Ok(Slob { pages, policy: config.clone(), heap, caches: vec![kmalloc], waiting })
    }
    fn pages(&self) -> &'p Pages<'p, M> {
        self.pages
    }

    /// Makes a cache. Only its descriptor takes memory: the boot CPU takes the block.
    fn create_cache(&mut self, spec: CacheSpec) -> Result<CacheId, Error> {
        asked::check(&spec, &self.policy, &Shape::of_machine(1, 0))?;
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
            let page = self.alloc_big(
                cpu,
                &cache.tally,
                cache.spec.size,
                Order::for_bytes(cache.size),
                Asker::Cache(id),
                want,
            )?;
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
        let stat = if cache.size < PAGE_SIZE { Stat::BlockFree } else { Stat::LargeFree };
        cache.tally.with(cpu, |t| t.give(stat, cache.spec.size));
        if cache.spec.typesafe_by_rcu {
            self.free_later(cpu, id, addr);
        } else {
            self.free_now(cpu, id, addr);
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
        let (align, offset) = asked::kmalloc_align(bytes, &self.policy, MIN_ALIGN);
        let fit = Fit { units: units(block), align, offset };
        let (addr, stat) = self.alloc_block(cpu, block, fit, want)?;
        tally.with(cpu, |t| t.take(stat, bytes, fit.units));
        self.clear(cpu, addr, if want.zero { block } else { 0 });
        self.pages.arena().store(cpu, addr, bytes);
        Some(Object::at(addr.plus(MIN_ALIGN)))
    }

    fn ksize(&self, cpu: &M::Cpu, object: &Object) -> u64 {
        self.usable(cpu, object)
    }
    fn krealloc(&self, cpu: &M::Cpu, object: Object, bytes: u64, want: Request) -> Result<Object, Object> {
        self.resize(cpu, object, bytes, want)
    }
    /// Looks into the page's descriptor, then for the size into the header or the descriptor.
    fn kfree(&self, cpu: &M::Cpu, object: Object) {
        let addr = object.addr();
        if addr == ZERO_SIZE {
            return;
        }
        cpu.work(cost::SLOB_KFREE);
        let tally = &self.caches[0].tally;
        let pfn = self.frame(addr);
        if self.pages.load(cpu, pfn, Field::Flags) & HEAP == 0 {
            return self.kfree_big(cpu, tally, addr);
        }
        let bytes = self.header(cpu, addr);
        tally.with(cpu, |t| t.give(Stat::BlockFree, bytes));
        let emptied = self.free_block(cpu, Addr(addr.0 - MIN_ALIGN), bytes + MIN_ALIGN);
        tally.with(cpu, |t| t.release(emptied, units(bytes + MIN_ALIGN)));
    }

    /// Nothing is held back, so there is nothing to return.
    fn shrink(&self, _: &M::Cpu, _: CacheId) {}
    /// Gives back the blocks of this CPU whose grace period is over. SLOB has no periodic work: a run never calls this.
    fn trim(&self, cpu: &M::Cpu) {
        self.free_waited(cpu, false);
    }
    /// Frees the descriptor and nothing else: objects still alive stay so, in pages that belong to no cache. The common
    /// code of later releases waits for the grace period of a type-safe cache first.
    fn destroy(&self, cpu: &M::Cpu, id: CacheId) -> Destroyed {
        let cache = self.cache(id);
        cache.destroyed.poke(1);
        if cache.spec.typesafe_by_rcu && self.policy.create == Create::Common {
            for target in self.pages.machine().topology().cpu_ids() {
                cpu.call_on(target, &|cpu| self.await_grace(cpu));
            }
        }
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
        let slab = self.frame(object);
        Placement { slab, index: object.0 - self.pages.addr_of(slab).0, offset: 0 }
    }
    fn objects(&mut self, live: &[Live]) -> Map {
        self.map_objects(live)
    }
    /// SLOB has no /proc/slabinfo.
    fn slabinfo(&mut self) -> Option<String> {
        None
    }
    fn heap_text(&mut self) -> Option<String> {
        Some(self.heap_as_text())
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
        let asker = Asker::Heap;
        let flags = PageFlags { atomic: want.atomic, this_node: want.this_node, asker, ..PageFlags::default() };
        let pfn = self.take_pages(cpu, Order(0), want.node, flags)?.into_pfn();
        cpu.work(cost::SLOB_NEW_PAGE);
        cpu.irq_save();
        Some(self.heap.lock(cpu).add(self.pages, cpu, list, fit, pfn))
    }

    /// Pages; a caller that may wait asks twice. Nothing is held back here but blocks that wait for a grace period, so all
    /// there is to give up in between are those, and this CPU's page lists (page-allocator.md §19.6).
    fn take_pages(&self, cpu: &M::Cpu, order: Order, node: Option<NodeId>, flags: PageFlags) -> Option<Page> {
        self.free_waited(cpu, false);
        let first = PageFlags { reclaims: !flags.atomic, ..flags };
        let page = self.pages.alloc_pages(cpu, order, node, first);
        if page.is_some() || flags.atomic {
            return page;
        }
        self.await_grace(cpu);
        self.pages.drain_local(cpu);
        self.pages.alloc_pages(cpu, order, node, flags)
    }

    /// Gives an object of a cache back into its page, or its pages.
    fn free_now(&self, cpu: &M::Cpu, id: CacheId, addr: Addr) {
        let cache = &self.caches[id.0 as usize];
        if cache.size < PAGE_SIZE {
            let emptied = self.free_block(cpu, addr, cache.size);
            cache.tally.with(cpu, |t| t.release(emptied, units(cache.size)));
        } else {
            self.free_big(cpu, &cache.tally, addr, Order::for_bytes(cache.size));
        }
    }

    /// Gives a block of `bytes` bytes back; true if that emptied its page, which is then returned (kernel: slob_free).
    fn free_block(&self, cpu: &M::Cpu, addr: Addr, bytes: u64) -> bool {
        cpu.work(cost::SLOB_FREE);
        let pfn = self.frame(addr);
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

    /// Clears the first `bytes` bytes, not one more: a free block may follow.
    fn clear(&self, cpu: &M::Cpu, addr: Addr, bytes: u64) {
        if bytes > 0 {
            self.pages.arena().fill(addr, bytes, 0);
            cpu.touch_span(addr, bytes, Access::Write);
        }
    }

    fn cache(&self, id: CacheId) -> &Cache<M> {
        assert!(id != KMALLOC, "slob: cache 0 counts for kmalloc and has no objects of its own");
        let cache = &self.caches[id.0 as usize];
        assert!(cache.destroyed.peek() == 0, "slob: cache {} has been destroyed", cache.spec.name);
        cache
    }
    fn frame(&self, addr: Addr) -> Pfn {
        let pfn = self.pages.pfn_of(addr);
        pfn.unwrap_or_else(|| panic!("slob: {addr:?} is outside the arena: expected an object"))
    }
    /// Bytes of a kmalloc object of the heap, from the header in front of it.
    fn header(&self, cpu: &M::Cpu, addr: Addr) -> u64 {
        let inside = addr.0 % PAGE_SIZE;
        assert!(
            inside >= MIN_ALIGN && addr.0.is_multiple_of(MIN_ALIGN),
            "slob: {addr:?} is at byte {inside} of a heap page: expected an object of kmalloc, which has a header in front"
        );
        let bytes = self.pages.arena().load(cpu, Addr(addr.0 - MIN_ALIGN));
        assert!(
            (1..PAGE_SIZE - MIN_ALIGN).contains(&bytes),
            "slob: header of {addr:?}: expected a size of 1..{} bytes, found {bytes}: freed before, overwritten, or not of \
             kmalloc",
            PAGE_SIZE - MIN_ALIGN - 1
        );
        bytes
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
