//! SLAB as in 2.6.24 (slab.md, the rules marked 24): caches of slabs, an array of free objects per CPU in front, shared
//! and alien arrays per node in between.
//!
//! Reading order: `cpu` (fast paths, refill, flush), `node` (lists, objects back into slabs, other nodes), `grow`
//! (a slab's birth and end), `policy` (all formulas), `header` (a slab in memory), `cache` (who owns what).
//!
//! Locks: alien lock → `list_lock` → whatever the page allocator and a header's cache take. A slab is destroyed under
//! `list_lock` when a free empties it.
//!
//! Boot: the general caches (`size-32` … `size-4194304`) come first, with arrays at reserved addresses, as the kernel's
//! static boot arrays; when all exist, their arrays move into objects of theirs, and later caches get theirs from the
//! start. Node 0's first CPU asks for the memory. Left out: run-time tuning, debug options, grace
//! periods of SLAB_DESTROY_BY_RCU, the cache of caches.

mod array;
mod cache;
mod cpu;
mod grow;
mod header;
mod node;
mod policy;
mod reap;
mod report;
#[cfg(test)]
mod tests;
mod verify;

pub use policy::{Config, Metadata};

use std::sync::Mutex;

use super::{CacheInfo, Configuration, Counters, Destroyed, Placement, SlabAllocator, ZERO_SIZE};
use crate::error::{Corruption, Error};
use crate::machine::{Access, Addr, Arena, Cpu, Machine, PerCpu, SpinLock, Wakeup, cost};
use crate::page::Pages;
use crate::spec::{CacheId, CacheSpec, Object, Request};
use crate::units::{CpuId, LINE, NodeId, Picos};

use cache::{Cache, CpuSlot};
use policy::{Geometry, KMALLOC_MAX, Tunables};

/// Sizes of the general caches. With 64-byte lines there is no size-96, with lines below 128 bytes there is a size-192.
const GENERAL: [u64; 19] = {
    let mut sizes = [32, 64, 128, 192, 256, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut i = 5;
    while i < sizes.len() {
        sizes[i] = 2 * sizes[i - 1];
        i += 1;
    }
    sizes
};
const _: () = assert!(GENERAL[GENERAL.len() - 1] == KMALLOC_MAX);

/// Index of the smallest general cache that holds `bytes`.
fn general(bytes: u64) -> Option<usize> {
    // Two searches of a power-of-two ladder with 192 in between.
    let i = GENERAL.partition_point(|size| *size < bytes);
    (i < GENERAL.len()).then_some(i)
}

/// The SLAB allocator.
pub struct Slab<'p, M: Machine> {
    pages: &'p Pages<'p, M>,
    config: Config,
    order_break: u8,
    caches: Vec<Cache<M>>,
    /// The list of caches, held by a run of the reaper (kernel: cache_chain_mutex).
    chain: SpinLock<M, ()>,
    /// The node whose aliens the CPU's next run drains.
    reap_node: PerCpu<M, NodeId>,
    several_nodes: bool,
    /// Nodes to try, by the node of the CPU (kernel: zonelist).
    fallback: Vec<Vec<NodeId>>,
    /// Off-slab headers with `metadata = "free"`.
    private_headers: Option<Arena>,
}

impl<'p, M: Machine + 'p> SlabAllocator<'p, M> for Slab<'p, M> {
    type Config = Config;

    fn new(pages: &'p Pages<'p, M>, config: &Config) -> Result<Self, Error> {
        config.check()?;
        let machine = pages.machine();
        let topology = machine.topology();
        let memory = topology.node_ids().map(|n| topology.node_bytes(n)).sum();
        let private = (config.metadata == Metadata::Free).then(|| Arena::new(pages.frames() * header::PRIVATE_BYTES));
        let mut slab = Slab {
            pages,
            config: config.clone(),
            order_break: policy::order_break(config, memory),
            caches: Vec::new(),
            chain: SpinLock::new(machine.lock("cache_chain_mutex", machine.reserve(LINE, NodeId(0))), ()),
            reap_node: PerCpu::new(machine, |cpu| NodeId((topology.node_of(cpu).0 + 1) % topology.nodes() as u16)),
            several_nodes: topology.nodes() > 1,
            fallback: topology.node_ids().map(|n| topology.fallback(n)).collect(),
            private_headers: private.transpose().map_err(|e| Error::new("machine.memory", memory, e))?,
        };
        for size in GENERAL {
            let spec = CacheSpec::new(format!("size-{size}"), size).hwcache();
            let (geometry, tunables) = slab.shape(&spec)?;
            let arrays = slab.reserved_arrays(&tunables);
            slab.add(spec, geometry, tunables, &arrays, Picos(0));
        }
        if config.metadata == Metadata::Kmalloc {
            let made: Vec<(Vec<Addr>, Picos)> =
                (0..GENERAL.len()).map(|i| slab.kmalloc_arrays(&slab.caches[i].tunables)).collect::<Result<_, _>>()?;
            slab.caches.iter_mut().zip(&made).for_each(|(cache, (arrays, _))| cache.place_arrays(machine, arrays));
        }
        Ok(slab)
    }
    fn pages(&self) -> &'p Pages<'p, M> {
        self.pages
    }

    /// Refuses a name in use, as the kernel does.
    fn create_cache(&mut self, spec: CacheSpec) -> Result<CacheId, Error> {
        if self.caches.iter().any(|c| c.spec.name == spec.name && c.gone.peek() == 0) {
            return Err(Error::new("cache.name", format!("{:?}", spec.name), "a name that no cache has"));
        }
        let (geometry, tunables) = self.shape(&spec)?;
        let (arrays, now) = match self.config.metadata {
            Metadata::Kmalloc => self.kmalloc_arrays(&tunables)?,
            Metadata::Free => (self.reserved_arrays(&tunables), self.on_first_cpu(|cpu| cpu.now())),
        };
        Ok(self.add(spec, geometry, tunables, &arrays, now))
    }

    #[inline]
    fn alloc(&self, cpu: &M::Cpu, cache: CacheId, want: Request) -> Option<Object> {
        cpu.irq_save();
        self.alloc_object(cpu, &self.caches[cache.0 as usize], want)
    }
    #[inline]
    fn free(&self, cpu: &M::Cpu, cache: CacheId, object: Object) {
        cpu.irq_save();
        self.free_cpu(cpu, &self.caches[cache.0 as usize], object.addr());
    }
    fn kmalloc(&self, cpu: &M::Cpu, bytes: u64, want: Request) -> Option<Object> {
        if bytes == 0 {
            return Some(Object::at(ZERO_SIZE));
        }
        cpu.work(cost::KMALLOC_LOOKUP);
        cpu.irq_save();
        self.alloc_object(cpu, &self.caches[general(bytes)?], want)
    }
    fn kfree(&self, cpu: &M::Cpu, object: Object) {
        if object.addr() == ZERO_SIZE {
            return;
        }
        cpu.work(cost::KMALLOC_LOOKUP);
        cpu.irq_save();
        self.free_cpu(cpu, self.cache_of(cpu, object.addr()), object.addr());
    }
    fn period(&self) -> Option<Picos> {
        self.config.reaper.then_some(reap::PERIOD)
    }
    /// One run of the reaper on this CPU, also when it does not run by itself.
    fn trim(&self, cpu: &M::Cpu) {
        self.reap(cpu);
    }
    fn shrink(&self, cpu: &M::Cpu, cache: CacheId) {
        self.shrink_cache(cpu, &self.caches[cache.0 as usize]);
    }
    /// A cache with objects in use stays, with one warning; of others the arrays are freed and the name with them.
    fn destroy(&self, cpu: &M::Cpu, cache: CacheId) -> Destroyed {
        let cache = &self.caches[cache.0 as usize];
        self.shrink_cache(cpu, cache);
        let slabs: u64 = cache.nodes.iter().map(|n| n.slabs(cpu)).sum();
        if slabs > 0 {
            return Destroyed { pages_lost: slabs * cache.geometry.order.pages(), warnings: 1 };
        }
        if cache.gone.cmpxchg(cpu, 0, 1).is_ok() && self.config.metadata == Metadata::Kmalloc {
            cache.arrays.iter().for_each(|a| self.kfree(cpu, Object::at(*a)));
        }
        Destroyed::default()
    }

    fn cache_count(&self) -> usize {
        self.caches.len()
    }
    fn verify(&mut self) -> Result<(), Corruption> {
        self.verify_caches()
    }
    fn info(&mut self, cache: CacheId) -> CacheInfo {
        self.report_info(cache.0 as usize)
    }
    fn counters(&mut self, cache: CacheId) -> Vec<Counters> {
        self.caches[cache.0 as usize].cpus.iter_mut().map(|(_, c)| c.counters.clone()).collect()
    }
    fn reset_counters(&self, cpu: &M::Cpu) {
        self.caches.iter().for_each(|c| c.cpus.with(cpu, |c| c.counters.reset()));
    }
    fn state(&mut self, cache: CacheId) -> serde_json::Value {
        self.report_state(cache.0 as usize)
    }
    fn placement(&mut self, cache: CacheId, object: Addr) -> Placement {
        self.report_placement(cache.0 as usize, object)
    }
    /// Newest cache first, as the kernel lists them.
    fn slabinfo(&mut self) -> Option<String> {
        let all: Vec<CacheInfo> = {
            let there = |i: &usize| self.caches[*i].gone.peek() == 0;
            let known: Vec<usize> = (0..self.caches.len()).rev().filter(there).collect();
            known.into_iter().map(|i| self.report_info(i)).collect()
        };
        Some(super::slabinfo_text(&all))
    }
}

impl<M: Machine> Slab<'_, M> {
    #[inline]
    fn alloc_object(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Object> {
        let addr = self.alloc_any(cpu, cache, want)?;
        cache.prefetch(cpu, addr);
        if want.zero {
            self.pages.arena().fill(addr, cache.spec.size, 0);
            cpu.touch_span(addr, cache.spec.size, Access::Write);
        }
        Some(Object::at(addr))
    }

    fn shape(&self, spec: &CacheSpec) -> Result<(Geometry, Tunables), Error> {
        let geometry = Geometry::new(spec, self.order_break)?;
        let cpus = self.pages.machine().topology().cpus();
        Ok((geometry, Tunables::new(&self.config, geometry.slot, cpus)))
    }

    fn add(&mut self, spec: CacheSpec, geometry: Geometry, tunables: Tunables, arrays: &[Addr], now: Picos) -> CacheId {
        let id = self.caches.len() as u32;
        let from_cache = geometry.off_slab && self.config.metadata == Metadata::Kmalloc;
        let header_cache = general(geometry.management).filter(|_| from_cache);
        let machine = self.pages.machine();
        let mut cache = Cache::new(machine, id, spec, geometry, tunables, header_cache, arrays);
        cache.start(now.jiffies(), self.config.reap_spread);
        self.caches.push(cache);
        CacheId(id)
    }

    /// Addresses of the arrays outside memory that anyone can allocate.
    fn reserved_arrays(&self, tunables: &Tunables) -> Vec<Addr> {
        let machine = self.pages.machine();
        let requests = cache::array_requests(machine.topology(), tunables);
        requests.into_iter().map(|(bytes, node)| machine.reserve(bytes, node)).collect()
    }

    /// Objects of the general caches for the arrays of a cache, and the time when they were there.
    fn kmalloc_arrays(&self, tunables: &Tunables) -> Result<(Vec<Addr>, Picos), Error> {
        let requests = cache::array_requests(self.pages.machine().topology(), tunables);
        let (got, now) = self.on_first_cpu(|cpu| {
            let mut got = Vec::new();
            for &(bytes, node) in &requests {
                match self.kmalloc(cpu, bytes, Request { node: Some(node), ..Request::default() }) {
                    Some(object) => got.push(object.addr()),
                    None => break,
                }
            }
            if got.len() < requests.len() {
                got.drain(..).for_each(|addr| self.kfree(cpu, Object::at(addr)));
            }
            (got, cpu.now())
        });
        if got.len() < requests.len() {
            let bytes: u64 = requests.iter().map(|(bytes, _)| bytes).sum();
            return Err(Error::new(
                "machine.memory",
                "too small",
                format!("room for {bytes} bytes of arrays per cache"),
            ));
        }
        Ok((got, now))
    }

    /// Runs `f` on the machine's first CPU, whose work creating a cache is; the others sleep through it, so that all
    /// clocks agree afterwards.
    fn on_first_cpu<R: Send>(&self, f: impl Fn(&M::Cpu) -> R + Sync) -> R {
        let made = Mutex::new((None, Picos(0)));
        self.pages.machine().boot(|cpu| {
            if cpu.id() != CpuId(0) {
                while cpu.idle(None) != Wakeup::Quiet {}
                let end = made.lock().expect("no holder panics").1;
                while cpu.now() < end {
                    cpu.idle(Some(end));
                }
                return;
            }
            let result = f(cpu);
            *made.lock().expect("no holder panics") = (Some(result), cpu.now());
        });
        made.into_inner().expect("no holder panics").0.expect("the first CPU has run")
    }
}
