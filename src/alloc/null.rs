//! `null`: hands out objects in O(1) from per-CPU stacks and never returns a page. The harness baseline: what a run
//! costs without an allocator. Every free goes to the freeing CPU's own stack, whatever its node.

use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::geometry::{Columns, Shape, Slots, Wanted, too_large};
use super::{
    CacheInfo, Configuration, Counters, Destroyed, Live, Map, Parameter, Placement, SlabAllocator, SlabMap, Stat,
    State, ZERO_SIZE,
};
use crate::error::{Corruption, Error};
use crate::machine::{Addr, Cpu, Machine, PerCpu};
use crate::page::{Asker, Page, PageFlags, Pages};
use crate::spec::{CacheId, CacheSpec, Object, Request};
use crate::units::{CpuId, Order, round_up};

/// `null` has no tunables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Always `1`.
    pub era: String,
}

impl Configuration for Config {
    const NAME: &'static str = "null";
    const ERAS: &'static [&'static str] = &["1"];
    const DEFAULT_ERA: &'static str = "1";
    const PARAMETERS: &'static [Parameter] = &[];
    fn era(era: &str) -> Option<Self> {
        (era == "1").then(|| Config { era: era.into() })
    }
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
    fn geometry(&self, wanted: &Wanted, shape: &Shape) -> Result<Columns, Error> {
        let class = |bytes: u64| KMALLOC.iter().find(|s| **s >= bytes).ok_or_else(|| too_large(bytes, 4 << 20));
        let spec = match wanted {
            Wanted::Cache(spec) => spec.clone(),
            Wanted::Kmalloc(bytes) => class(*bytes).map(|size| CacheSpec::new(format!("null-{size}"), *size))?,
        };
        let (slot_size, align) = slot(&spec, shape)?;
        let order = shape.order_for(slot_size);
        let objects = shape.bytes(order) / slot_size;
        let slots = Slots { object_size: spec.size, align, slot_size, order, objects, management: 0 };
        Ok(slots.columns(&spec.name, shape))
    }
}

/// Bytes and alignment of a slot; refuses what does not fit.
fn slot(spec: &CacheSpec, shape: &Shape) -> Result<(u64, u64), Error> {
    if spec.align > 4096 || !(spec.align == 0 || spec.align.is_power_of_two()) {
        return Err(Error::new("cache.align", spec.align, "0, or a power of two up to 4096"));
    }
    if spec.size == 0 || spec.size > 4 << 20 {
        return Err(Error::new("cache.size", spec.size, "1..4194304 bytes"));
    }
    let align = spec.align.max(spec.halved_line(shape.line)).max(8);
    Ok((round_up(spec.size, align), align))
}

/// A cache: a slot size and a stack per CPU. `pages·objects per page = live + stacked` over all CPUs.
struct Cache<M: Machine> {
    spec: CacheSpec,
    slot: u64,
    order: Order,
    stacks: PerCpu<M, Stack>,
}

#[derive(Default)]
struct Stack {
    free: Vec<Addr>,
    pages: u64,
    live: i64,
    counters: Counters,
}

/// The null allocator.
pub struct Null<'p, M: Machine> {
    pages: &'p Pages<'p, M>,
    caches: Vec<Cache<M>>,
}

const KMALLOC: [u64; 20] = {
    let mut sizes = [0; 20];
    let mut i = 0;
    while i < 20 {
        sizes[i] = 8 << i;
        i += 1;
    }
    sizes
};

impl<'p, M: Machine> SlabAllocator<'p, M> for Null<'p, M> {
    type Config = Config;

    fn new(pages: &'p Pages<'p, M>, _: &Config) -> Result<Self, Error> {
        let mut null = Null { pages, caches: Vec::new() };
        for size in KMALLOC {
            null.create_cache(CacheSpec::new(format!("null-{size}"), size))?;
        }
        Ok(null)
    }
    fn pages(&self) -> &'p Pages<'p, M> {
        self.pages
    }
    fn create_cache(&mut self, spec: CacheSpec) -> Result<CacheId, Error> {
        let (slot, _) = slot(&spec, &Shape::of_machine(1, 0))?;
        let stacks = PerCpu::new(self.pages.machine(), |_| Stack::default());
        self.caches.push(Cache { spec, slot, order: Order::for_bytes(slot), stacks });
        Ok(CacheId(self.caches.len() as u32 - 1))
    }

    fn alloc(&self, cpu: &M::Cpu, cache: CacheId, _: Request) -> Option<Object> {
        let cache = &self.caches[cache.0 as usize];
        let hit = cache.stacks.with(cpu, |s| {
            let top = s.free.pop();
            s.live += i64::from(top.is_some());
            s.counters.add(Stat::AllocFastpath, u64::from(top.is_some()));
            top
        });
        match hit {
            Some(addr) => Some(Object::at(addr)),
            None => self.grow(cpu, cache),
        }
    }
    fn free(&self, cpu: &M::Cpu, cache: CacheId, object: Object) {
        self.caches[cache.0 as usize].stacks.with(cpu, |s| {
            s.free.push(object.addr());
            s.live -= 1;
            s.counters.count(Stat::FreeFastpath);
        });
    }
    fn kmalloc(&self, cpu: &M::Cpu, bytes: u64, want: Request) -> Option<Object> {
        if bytes == 0 {
            return Some(Object::at(ZERO_SIZE));
        }
        let class = KMALLOC.iter().position(|s| *s >= bytes)?;
        self.alloc(cpu, CacheId(class as u32), want)
    }
    fn kfree(&self, cpu: &M::Cpu, object: Object) {
        if object.addr() == ZERO_SIZE {
            return;
        }
        let head = self.pages.peek_head(object.addr()).expect("an object of the arena");
        let cache = self.pages.peek(head, crate::page::Field::Owner) - 1;
        self.free(cpu, CacheId(cache as u32), object);
    }
    fn ksize(&self, _: &M::Cpu, object: &Object) -> u64 {
        if object.addr() == ZERO_SIZE {
            return 0;
        }
        let head = self.pages.peek_head(object.addr()).expect("an object of the arena");
        self.caches[self.pages.peek(head, crate::page::Field::Owner) as usize - 1].spec.size
    }
    fn shrink(&self, _: &M::Cpu, _: CacheId) {}
    fn destroy(&self, cpu: &M::Cpu, id: CacheId) -> Destroyed {
        let cache = &self.caches[id.0 as usize];
        let all = Mutex::new((Vec::new(), 0));
        for target in self.pages.machine().topology().cpu_ids() {
            cpu.call_on(target, &|c| {
                let (free, pages) =
                    cache.stacks.with(c, |s| (std::mem::take(&mut s.free), std::mem::take(&mut s.pages)));
                let mut all = all.lock().expect("no holder panics");
                all.0.extend(free);
                all.1 += pages;
            });
        }
        let (mut free, blocks) = all.into_inner().expect("no holder panics");
        free.sort_unstable();
        let per = (cache.order.bytes() / cache.slot) as usize;
        let (mut left, mut stranded) = (blocks, Vec::new());
        for block in free.chunk_by(|a, b| self.pages.peek_head(*a) == self.pages.peek_head(*b)) {
            if block.len() == per {
                let pfn = self.pages.peek_head(block[0]).expect("an object of the arena");
                self.pages.free_pages(cpu, Page::of(pfn, cache.order));
                left -= 1;
            } else {
                stranded.extend_from_slice(block);
            }
        }
        cache.stacks.with(cpu, |s| {
            s.pages += left;
            s.free.append(&mut stranded);
        });
        Destroyed { pages_lost: left * cache.order.pages(), warnings: 0, ..Destroyed::default() }
    }

    fn cache_count(&self) -> usize {
        self.caches.len()
    }
    fn verify(&mut self) -> Result<(), Corruption> {
        for cache in &mut self.caches {
            let (mut pages, mut live, mut free) = (0, 0, 0);
            for (_, s) in cache.stacks.iter_mut() {
                pages += s.pages;
                live += s.live;
                free += s.free.len() as i64;
            }
            let per_block = (cache.order.bytes() / cache.slot) as i64;
            let blocks = pages as i64;
            crate::ensure!(
                live + free == blocks * per_block,
                cache.spec.name.clone(),
                "live {live} + free {free} ≠ {blocks} blocks of {per_block}"
            );
        }
        Ok(())
    }
    fn info(&mut self, id: CacheId) -> CacheInfo {
        let cache = &mut self.caches[id.0 as usize];
        let (mut blocks, mut live) = (0, 0);
        for (_, s) in cache.stacks.iter_mut() {
            blocks += s.pages;
            live += s.live;
        }
        let per = cache.order.bytes() / cache.slot;
        CacheInfo {
            name: cache.spec.name.clone(),
            object_size: cache.spec.size,
            slot_size: cache.slot,
            order: Some(cache.order.0),
            objects_per_slab: Some(per),
            active_objects: live as u64,
            live_objects: live as u64,
            total_objects: Some(blocks * per),
            active_slabs: Some(blocks),
            slabs: Some(blocks),
            pages: Some(blocks * cache.order.pages()),
            ..CacheInfo::default()
        }
    }
    fn counters(&mut self, id: CacheId) -> Vec<Counters> {
        self.caches[id.0 as usize].stacks.iter_mut().map(|(_, s)| s.counters.clone()).collect()
    }
    fn reset_counters(&self, cpu: &M::Cpu) {
        self.caches.iter().for_each(|c| c.stacks.with(cpu, |s| s.counters.reset()));
    }
    fn state(&mut self, id: CacheId) -> serde_json::Value {
        let stacks: Vec<usize> = self.caches[id.0 as usize].stacks.iter_mut().map(|(_, s)| s.free.len()).collect();
        serde_json::json!({ "stacks": stacks })
    }
    fn placement(&mut self, id: CacheId, object: Addr) -> Placement {
        let slab = self.pages.peek_head(object).expect("an object of the arena");
        Placement { slab, index: (object.0 - self.pages.addr_of(slab).0) / self.caches[id.0 as usize].slot, offset: 0 }
    }
    fn objects(&mut self, live: &[Live]) -> Map {
        let pages = self.pages;
        let mut map = Map::default();
        let stacks = |c: &mut Cache<M>| -> Vec<(CpuId, Vec<Addr>)> {
            c.stacks.iter_mut().map(|(cpu, s)| (cpu, s.free.clone())).collect()
        };
        let stacks: Vec<_> = self.caches.iter_mut().map(stacks).collect();
        // A block is known by the objects that are in it.
        let parked = stacks.iter().flatten().flat_map(|(_, free)| free);
        let mut heads: Vec<_> =
            parked.chain(live.iter().map(|(_, at)| at)).filter_map(|o| pages.peek_head(*o)).collect();
        heads.sort_unstable();
        heads.dedup();
        for head in heads {
            let Some(id) = pages.peek(head, crate::page::Field::Owner).checked_sub(1) else { continue };
            let cache = &self.caches[id as usize];
            let slab = SlabMap {
                cache: Some(CacheId(id as u32)),
                slab: head,
                pages: cache.order.pages(),
                node: pages.node_of(head),
                list: "none".into(),
                objects: Vec::new(),
            };
            map.add(slab.cut(0, cache.slot, cache.order.bytes() / cache.slot));
        }
        for (cpu, free) in stacks.into_iter().flatten() {
            free.into_iter().for_each(|object| map.mark(object, State::Cpu(cpu)));
        }
        map
    }
    fn slabinfo(&mut self) -> Option<String> {
        None
    }
}

impl<M: Machine> Null<'_, M> {
    #[cold]
    fn grow(&self, cpu: &M::Cpu, cache: &Cache<M>) -> Option<Object> {
        let id = self.caches.iter().position(|c| std::ptr::eq(c, cache)).expect("one of ours") as u64;
        let asker = Asker::Cache(CacheId(id as u32));
        let flags = PageFlags { compound: cache.order.0 > 0, asker, ..PageFlags::default() };
        let pfn = self.pages.alloc_pages(cpu, cache.order, None, flags)?.into_pfn();
        self.pages.poke(pfn, crate::page::Field::Owner, id + 1);
        let start = self.pages.addr_of(pfn);
        cache.stacks.with(cpu, |s| {
            s.pages += 1;
            s.live += 1;
            s.counters.count(Stat::AllocSlab);
            s.counters.count(Stat::AllocSlowpath);
            let n = cache.order.bytes() / cache.slot;
            s.free.extend((1..n).rev().map(|i| start.plus(i * cache.slot)));
        });
        Some(Object::at(start))
    }
}
