//! SLAB (slab.md): caches of slabs, an array of free objects per CPU in front, shared and alien arrays per node in
//! between. Releases 2.6.24 and 6.1; what differs between them is a field of [`policy::Policy`], see `eras`.
//!
//! Reading order: `cpu` (fast paths, refill, flush), `node` (lists, objects back into slabs, other nodes), `grow`
//! (a slab's birth and end), `geometry` (all formulas), `header` (a slab in memory), `cache` (who owns what), `reap`,
//! `debug`.
//!
//! Locks: reaper's list of caches → alien lock → `list_lock` → whatever the page allocator and off-slab management take
//! (2.6.24 destroys a slab under `list_lock` when a free empties it; 6.1 after releasing it).
//!
//! Boot: the general caches come first, with arrays at reserved addresses, as the kernel's static boot arrays; when all
//! exist, their arrays move into objects of theirs, and later caches get theirs from the start. Node 0's first CPU asks
//! for the memory. Left out: the cache of caches,
//! CPUs that come and go, page-unmapping debug builds.

mod array;
mod arrays;
mod bulk;
mod cache;
mod chain;
mod columns;
mod cpu;
mod debug;
mod eras;
mod general;
mod geometry;
mod grow;
mod header;
mod index;
mod kmalloc;
mod list;
mod lookup;
mod merge;
mod node;
mod objects;
mod offline;
mod policy;
mod rcu;
mod reap;
mod report;
mod slabinfo;
#[cfg(test)]
mod tests;
mod tool;
mod tune;
mod verify;

pub use columns::{Columns, geometry};
pub use policy::{Config, Metadata};

use std::sync::Mutex;

use super::geometry::Shape;
use super::{CacheInfo, Configuration, Counters, Destroyed, Live, Map, Placement, SlabAllocator, Stat, Tuning};
use crate::error::{Corruption, Error};
use crate::machine::{Access, Addr, Arena, Cpu, Machine, PerCpu, SpinLock, Wakeup};
use crate::page::Pages;
use crate::spec::{CacheId, CacheSpec, Kind, Object, Request};
use crate::units::{CpuId, LINE, NodeId, Picos};

use arrays::Placed;
use cache::{Cache, CpuSlot};
use geometry::{Geometry, Tunables};
use policy::Policy;

/// The SLAB allocator.
pub struct Slab<'p, M: Machine> {
    pages: &'p Pages<'p, M>,
    config: Config,
    policy: &'static Policy,
    shape: Shape,
    caches: Vec<Cache<M>>,
    /// The general cache of each kind and size (kernel: malloc_sizes, kmalloc_caches).
    general: [Vec<usize>; 4],
    /// The list of caches, held by a run of the reaper (kernel: cache_chain_mutex).
    chain: SpinLock<M, ()>,
    /// The node whose aliens the CPU's next run drains.
    reap_node: PerCpu<M, NodeId>,
    several_nodes: bool,
    /// Nodes to try, by the node of the CPU (kernel: zonelist).
    fallback: Vec<Vec<NodeId>>,
    /// Off-slab management with `metadata = "free"`.
    private: Option<Arena>,
    /// Counts of kmallocs that took whole pages.
    large: PerCpu<M, Counters>,
    /// CPUs that are out of service.
    dead: Vec<CpuId>,
    /// Pages of type-safe caches that wait for a grace period.
    waiting: PerCpu<M, rcu::Waiting>,
}

impl<'p, M: Machine + 'p> SlabAllocator<'p, M> for Slab<'p, M> {
    type Config = Config;

    fn new(pages: &'p Pages<'p, M>, config: &Config) -> Result<Self, Error> {
        config.check()?;
        let policy = config.policy();
        let machine = pages.machine();
        let topology = machine.topology();
        let memory = topology.node_ids().map(|n| topology.node_bytes(n)).sum();
        let private = (config.metadata == Metadata::Free).then(|| Arena::new(pages.frames() * header::PRIVATE_BYTES));
        let mut slab = Slab {
            pages,
            config: config.clone(),
            policy,
            shape: Shape::of_machine(topology.cpus(), memory),
            caches: Vec::new(),
            general: std::array::from_fn(|_| vec![usize::MAX; policy.kmalloc.sizes.len()]),
            chain: SpinLock::new(machine.lock("cache_chain_mutex", machine.reserve(LINE, NodeId(0))), ()),
            reap_node: PerCpu::new(machine, |cpu| NodeId((topology.node_of(cpu).0 + 1) % topology.nodes() as u16)),
            several_nodes: topology.nodes() > 1,
            fallback: topology.node_ids().map(|n| topology.fallback(n)).collect(),
            private: private.transpose().map_err(|e| Error::new("machine.memory", memory, e))?,
            large: PerCpu::new(machine, |_| Counters::default()),
            dead: Vec::new(),
            waiting: PerCpu::new(machine, |_| rcu::Waiting::new()),
        };
        for (class, kind) in policy.kmalloc.making(&config.kinds()) {
            let spec = geometry::kmalloc_spec(policy, policy.kmalloc.sizes[class], kind);
            let (geometry, tunables) = slab.shaped(&spec)?;
            let placed = slab.reserve_arrays(&slab.plan(&tunables));
            let id = slab.add(spec, geometry, tunables, &placed, Picos(0));
            slab.caches[id.0 as usize].kind = kind;
            slab.general[kind as usize][class] = id.0 as usize;
        }
        // Off-slab management of the first may come from those made later.
        for at in 0..slab.caches.len() {
            slab.caches[at].management_cache = slab.management_cache(&slab.caches[at].geometry);
        }
        if config.metadata == Metadata::Kmalloc {
            let made: Vec<(Vec<Placed>, Picos)> =
                slab.caches.iter().map(|c| slab.make_arrays(&slab.plan(&c.tunables))).collect::<Result<_, _>>()?;
            for (cache, (placed, _)) in slab.caches.iter_mut().zip(&made) {
                cache.place_arrays(machine, policy, placed);
            }
        }
        Ok(slab)
    }
    fn pages(&self) -> &'p Pages<'p, M> {
        self.pages
    }

    /// Refuses a name in use where the era does; merges where it can.
    fn create_cache(&mut self, spec: CacheSpec) -> Result<CacheId, Error> {
        let used = |c: &Cache<M>| c.spec.name == spec.name && c.gone.peek() == 0;
        if self.policy.unique_names && self.caches.iter().any(used) {
            return Err(Error::new("cache.name", format!("{:?}", spec.name), "a name that no cache has"));
        }
        let (geometry, tunables) = self.shaped(&spec)?;
        if let Some(id) = self.find_mergeable(&spec) {
            self.merge(id, spec);
            return Ok(id);
        }
        let (placed, now) = self.make_arrays(&self.plan(&tunables))?;
        Ok(self.add(spec, geometry, tunables, &placed, now))
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
        self.kmalloc_any(cpu, bytes, want)
    }
    fn kmalloc_kinds(&self) -> Vec<Kind> {
        self.config.kinds()
    }
    fn kfree(&self, cpu: &M::Cpu, object: Object) {
        self.kfree_any(cpu, object.addr());
    }
    fn ksize(&self, cpu: &M::Cpu, object: &Object) -> u64 {
        self.usable(cpu, object)
    }
    fn alloc_bulk(&self, cpu: &M::Cpu, cache: CacheId, want: Request, n: u64) -> Option<Vec<Object>> {
        self.alloc_many(cpu, &self.caches[cache.0 as usize], want, n as usize)
    }
    fn free_bulk(&self, cpu: &M::Cpu, cache: CacheId, objects: Vec<Object>) {
        self.free_many(cpu, &self.caches[cache.0 as usize], objects);
    }
    fn period(&self) -> Option<Picos> {
        self.config.reaper.then_some(reap::PERIOD)
    }
    /// One run of the reaper on this CPU, also when it does not run by itself.
    fn trim(&self, cpu: &M::Cpu) {
        self.reap(cpu);
    }
    /// Waits for the pages of type-safe caches too.
    fn rcu_barrier(&self, cpu: &M::Cpu) {
        self.await_grace(cpu);
    }
    fn shrink(&self, cpu: &M::Cpu, cache: CacheId) {
        self.shrink_cache(cpu, &self.caches[cache.0 as usize]);
    }
    fn made_before_cpus(&mut self, cache: CacheId) {
        Slab::made_before_cpus(self, cache);
    }
    fn offline(&mut self, cpu: CpuId) {
        self.remove_cpu(cpu);
    }
    fn tune(&mut self, cache: CacheId, asked: Tuning) -> Result<bool, Error> {
        self.tune_cache(cache.0 as usize, asked)
    }
    /// A cache that others were merged into loses one user. A cache with objects in use stays, with one warning; of others
    /// the arrays are freed and the name with them, after the grace period of a type-safe cache's pages (6.1 finishes such a
    /// cache in the background; here destroying it waits in both eras).
    fn destroy(&self, cpu: &M::Cpu, cache: CacheId) -> Destroyed {
        let cache = &self.caches[cache.0 as usize];
        if self.lose_user(cpu, cache) {
            return Destroyed::default();
        }
        self.shrink_cache(cpu, cache);
        if cache.spec.typesafe_by_rcu {
            self.await_grace(cpu);
        }
        let slabs: u64 = cache.nodes.iter().map(|n| n.slabs(cpu)).sum();
        if slabs > 0 {
            return Destroyed { pages_lost: slabs * cache.geometry.order.pages(), warnings: 1, ..Destroyed::default() };
        }
        if cache.gone.cmpxchg(cpu, 0, 1).is_ok() {
            cache.arrays.iter().filter(|a| a.object).for_each(|a| self.kfree_any(cpu, a.at));
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
    fn uncached_counters(&mut self) -> Vec<Counters> {
        self.large.iter_mut().map(|(_, c)| c.clone()).collect()
    }
    fn reset_counters(&self, cpu: &M::Cpu) {
        self.caches.iter().for_each(|c| c.cpus.with(cpu, CpuSlot::reset));
        self.large.with(cpu, Counters::reset);
    }
    fn state(&mut self, cache: CacheId) -> serde_json::Value {
        self.report_state(cache.0 as usize)
    }
    fn placement(&mut self, cache: CacheId, object: Addr) -> Placement {
        self.report_placement(cache.0 as usize, object)
    }
    fn objects(&mut self, _: &[Live]) -> Map {
        self.map_objects()
    }
    fn slabinfo(&mut self) -> Option<String> {
        Some(self.proc_slabinfo())
    }
    fn tool(&mut self) -> Option<super::tool::Report> {
        Some(self.tool_report())
    }
}

impl<M: Machine> Slab<'_, M> {
    #[inline]
    fn alloc_object(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Object> {
        let addr = self.alloc_any(cpu, cache, want)?;
        cache.prefetch(cpu, addr);
        if want.zero {
            if cache.spec.ctor && self.policy.management == policy::Management::Indexes {
                // What the constructor wrote is lost.
                cache.cpus.with(cpu, |c| c.counters.count(Stat::Warnings));
            }
            self.pages.arena().fill(addr, cache.spec.size, 0);
            cpu.touch_span(addr, cache.spec.size, Access::Write);
        }
        Some(Object::at(addr))
    }

    fn shaped(&self, spec: &CacheSpec) -> Result<(Geometry, Tunables), Error> {
        let geometry = Geometry::new(spec, &self.config, &self.shape)?;
        Ok((geometry, Tunables::new(&self.config, &geometry, &self.shape)))
    }

    /// The general cache that off-slab management comes from.
    fn management_cache(&self, geometry: &Geometry) -> Option<usize> {
        let from_cache = geometry.off_slab() && self.config.metadata == Metadata::Kmalloc;
        let class = self.policy.kmalloc.class(geometry.management).filter(|_| from_cache)?;
        Some(self.general[Kind::Normal as usize][class])
    }

    fn add(
        &mut self,
        spec: CacheSpec,
        geometry: Geometry,
        tunables: Tunables,
        placed: &[Placed],
        now: Picos,
    ) -> CacheId {
        let id = self.caches.len() as u32;
        let management_cache = self.management_cache(&geometry);
        let machine = self.pages.machine();
        let mut cache = Cache::new(machine, self.policy, id, spec, geometry, tunables, management_cache);
        cache.guarded = self.config.freelist_hardened;
        for node in machine.topology().node_ids() {
            cache.nodes[usize::from(node.0)].lists.get_mut().free_limit -= self.dead_on(node) * cache.tunables.batch;
        }
        cache.place_arrays(machine, self.policy, placed);
        cache.start(now.jiffies(), self.config.reap_spread);
        self.caches.push(cache);
        CacheId(id)
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
