//! FLOOR 3. Slab allocators. Each borrows the page allocator; setup takes `&mut self`, running takes `&self`.
//!
//! An allocator is added by writing its file and one line in [`allocators!`]: tests, benches, catalog and shell walk
//! the registry.

pub mod geometry;
mod info;
mod kinds;
mod map;
pub mod null;
pub mod periodic;
#[cfg(not(loom))]
pub mod slab;
#[cfg(not(loom))]
pub mod slob;
#[cfg(not(loom))]
pub mod slqb;
pub mod slub;
mod stats;
pub mod tool;

pub use crate::spec::Parameter;
pub use info::{CacheInfo, Placement, slabinfo_text};
pub use map::{Block, Live, Map, SlabMap, State};
pub use stats::{Counters, Shares, Stat};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Corruption, Error};
use crate::machine::{Access, Addr, Cpu, Machine};
use crate::page::Pages;
use crate::spec::{CacheId, CacheSpec, Kind, Object, Request, merge_fields};
use crate::units::{CpuId, PAGE_SIZE, Picos};

use geometry::{Columns, Shape, Wanted};

/// What kmalloc(0) returns: a valid address of nothing. Freeing it does nothing (kernel: ZERO_SIZE_PTR, 16; here the
/// end of the address space, because offset 16 is memory).
pub const ZERO_SIZE: Addr = Addr(u64::MAX);

/// What a destroyed cache left behind. `pages_lost` is 0 when all its objects had been freed, except where the original
/// loses some (SLQB, see there).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destroyed {
    /// Pages that were not returned.
    pub pages_lost: u64,
    /// Complaints that the kernel would have printed.
    pub warnings: u64,
    /// Objects that the kernel would have listed: SLUB since 2.6.26 names those of its partial slabs. It knows no list of full
    /// ones.
    pub leftovers: Vec<Addr>,
}

/// Objects set aside by [`SlabAllocator::prefill`].
#[derive(Debug)]
pub struct Prefilled {
    objects: Vec<Addr>,
    capacity: u64,
    /// Address of the sheaf it was made of, if it is one of the cache's.
    own: Option<Addr>,
}

impl Prefilled {
    /// Objects that are left.
    pub fn len(&self) -> usize {
        self.objects.len()
    }
    /// True if none is left.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

/// Tunables of a cache as they are written to `/proc/slabinfo`; any number can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Objects of a CPU's array.
    pub limit: i64,
    /// Objects moved at once.
    pub batchcount: i64,
    /// Capacity of a node's shared array in batches.
    pub sharedfactor: i64,
}

/// A slab allocator on machine `M`.
pub trait SlabAllocator<'p, M: Machine + 'p>: Sync + Sized {
    /// Era and tunables, complete and explicit.
    type Config: Configuration;

    /// An allocator over `pages` with its kmalloc caches made.
    fn new(pages: &'p Pages<'p, M>, config: &Self::Config) -> Result<Self, Error>;
    /// The pages it takes its slabs from.
    fn pages(&self) -> &'p Pages<'p, M>;

    /// Makes a cache (kernel: kmem_cache_create). May return an existing one where the era merges.
    fn create_cache(&mut self, spec: CacheSpec) -> Result<CacheId, Error>;
    /// Takes one object (kernel: kmem_cache_alloc, kmem_cache_alloc_node). `None` when memory is out.
    fn alloc(&self, cpu: &M::Cpu, cache: CacheId, want: Request) -> Option<Object>;
    /// Gives one object back (kernel: kmem_cache_free).
    fn free(&self, cpu: &M::Cpu, cache: CacheId, object: Object);
    /// Takes an object of at least `bytes` bytes (kernel: kmalloc). 0 bytes give [`ZERO_SIZE`].
    fn kmalloc(&self, cpu: &M::Cpu, bytes: u64, want: Request) -> Option<Object>;
    /// Kinds of kmalloc memory that have caches of their own.
    fn kmalloc_kinds(&self) -> Vec<Kind> {
        vec![Kind::Normal]
    }
    /// Gives back what kmalloc returned.
    fn kfree(&self, cpu: &M::Cpu, object: Object);
    /// Bytes that the owner of a kmalloc object may use, 0 of [`ZERO_SIZE`] (kernel: ksize).
    fn ksize(&self, cpu: &M::Cpu, object: &Object) -> u64;
    /// Makes a kmalloc object at least `bytes` long: in place if it has room, else a new one with the old contents; 0 bytes
    /// free it (kernel: krealloc). When memory is out the old object comes back, whole, as the error.
    fn krealloc(&self, cpu: &M::Cpu, object: Object, bytes: u64, want: Request) -> Result<Object, Object> {
        if bytes == 0 {
            self.kfree(cpu, object);
            return Ok(Object::at(ZERO_SIZE));
        }
        let old = self.ksize(cpu, &object);
        if old >= bytes {
            return Ok(object);
        }
        let Some(new) = self.kmalloc(cpu, bytes, want) else { return Err(object) };
        if old > 0 {
            let (from, to, arena) = (object.addr(), new.addr(), self.pages().arena());
            (0..old / 8).for_each(|word| arena.poke(to.plus(8 * word), arena.peek(from.plus(8 * word))));
            let (rest, whole) = (old % 8, old - old % 8);
            if rest > 0 {
                arena.poke_bits(to.plus(whole), u64::MAX >> (64 - 8 * rest), arena.peek(from.plus(whole)));
            }
            cpu.touch_span(from, old, Access::Read);
            cpu.touch_span(to, old, Access::Write);
        }
        self.kfree(cpu, object);
        Ok(new)
    }
    /// Takes `n` objects or none (kernel: kmem_cache_alloc_bulk). Allocators without a path of their own take one by one.
    fn alloc_bulk(&self, cpu: &M::Cpu, cache: CacheId, want: Request, n: u64) -> Option<Vec<Object>> {
        let objects: Vec<Object> = (0..n).map_while(|_| self.alloc(cpu, cache, want)).collect();
        if objects.len() as u64 == n {
            return Some(objects);
        }
        self.free_bulk(cpu, cache, objects);
        None
    }
    /// Gives objects back (kernel: kmem_cache_free_bulk).
    fn free_bulk(&self, cpu: &M::Cpu, cache: CacheId, objects: Vec<Object>) {
        objects.into_iter().for_each(|object| self.free(cpu, cache, object));
    }
    /// Gives an object back once an RCU grace period has passed (kernel: kfree_rcu). No task holds an RCU read section
    /// between two operations, so allocators without a queue of their own free at once.
    fn free_rcu(&self, cpu: &M::Cpu, cache: CacheId, object: Object) {
        self.free(cpu, cache, object);
    }
    /// Waits for the grace period of all that [`SlabAllocator::free_rcu`] was given (kernel: rcu_barrier).
    fn rcu_barrier(&self, _cpu: &M::Cpu) {}
    /// Sets at least `n` objects aside, so that taking them later cannot fail (kernel: kmem_cache_prefill_sheaf; without
    /// sheaves a plain array).
    fn prefill(&self, cpu: &M::Cpu, cache: CacheId, want: Request, n: u64) -> Option<Prefilled> {
        let objects = self.alloc_bulk(cpu, cache, want, n)?;
        Some(Prefilled { objects: objects.iter().map(Object::addr).collect(), capacity: n, own: None })
    }
    /// Takes one of the objects set aside; `None` when all are taken (kernel: kmem_cache_alloc_from_sheaf).
    fn alloc_from_prefilled(&self, _cpu: &M::Cpu, _cache: CacheId, from: &mut Prefilled) -> Option<Object> {
        from.objects.pop().map(Object::at)
    }
    /// Makes sure that at least `n` objects are set aside; false if memory is out (kernel: kmem_cache_refill_sheaf).
    fn refill(&self, cpu: &M::Cpu, cache: CacheId, held: &mut Prefilled, want: Request, n: u64) -> bool {
        let missing = n.saturating_sub(held.objects.len() as u64);
        let Some(more) = self.alloc_bulk(cpu, cache, want, missing) else { return false };
        held.objects.extend(more.iter().map(Object::addr));
        true
    }
    /// Takes back what was set aside and not used (kernel: kmem_cache_return_sheaf).
    fn return_prefilled(&self, cpu: &M::Cpu, cache: CacheId, held: Prefilled) {
        self.free_bulk(cpu, cache, held.objects.into_iter().map(Object::at).collect());
    }
    /// Returns what can be returned of a cache's empty slabs (kernel: kmem_cache_shrink). Asks the other CPUs.
    fn shrink(&self, cpu: &M::Cpu, cache: CacheId);
    /// Does the periodic work of this CPU on every cache once (SLAB: the reaper, kernel: cache_reap; SLQB: the trimmer,
    /// kernel: cache_trim_worker). Allocators without periodic work have nothing to do.
    fn trim(&self, _cpu: &M::Cpu) {}
    /// Takes a CPU out of service: what it holds of every cache is given up (SLAB: cpuup_canceled; SLUB:
    /// slab_cpu_down_callback). SLQB leaves its queued objects where they are, SLOB has nothing per CPU. When no CPU runs.
    fn offline(&mut self, _cpu: CpuId) {}
    /// Time from the end of one round of a CPU's periodic work to the next; `None` for an allocator that has none, or has
    /// it switched off. A run calls [`SlabAllocator::trim`] at the times of [`periodic`]; a script where it says so.
    fn period(&self) -> Option<Picos> {
        None
    }
    /// Changes a cache's tunables at run time (SLAB; kernel: slabinfo_write). When no CPU runs. False for values that the
    /// kernel ignores silently; an allocator without tunables, and a lack of memory, are errors.
    fn tune(&mut self, _cache: CacheId, asked: Tuning) -> Result<bool, Error> {
        let right = format!("a step for slab: {} has nothing to tune at run time", Self::Config::NAME);
        Err(Error::new("tune", format!("{} {} {}", asked.limit, asked.batchcount, asked.sharedfactor), right))
    }
    /// For replays of a boot: the kernel made this cache before it counted its CPUs. Only SLAB's caches remember that.
    fn made_before_cpus(&mut self, _cache: CacheId) {}
    /// Gives a cache up (kernel: kmem_cache_destroy): empties its queues, asking the other CPUs, and returns its slabs.
    /// The id stays known: `info` and `state` show what is left. Allocating from it again is the caller's error.
    fn destroy(&self, cpu: &M::Cpu, cache: CacheId) -> Destroyed;

    /// Number of caches, those for kmalloc included; ids count from 0 in order of creation.
    fn cache_count(&self) -> usize;
    /// Quiescent walk of the invariants, page lists included. When no CPU runs.
    fn verify(&mut self) -> Result<(), Corruption>;
    /// One line of slabinfo. When no CPU runs.
    fn info(&mut self, cache: CacheId) -> CacheInfo;
    /// Event counts per CPU.
    fn counters(&mut self, cache: CacheId) -> Vec<Counters>;
    /// Event counts of kmallocs that no cache served, per CPU (SLUB: blocks of the page allocator). None where caches count
    /// everything.
    fn uncached_counters(&mut self) -> Vec<Counters> {
        Vec::new()
    }
    /// Sets this CPU's event counts of every cache to zero: the end of a warm-up.
    fn reset_counters(&self, cpu: &M::Cpu);
    /// Every list and queue of a cache, with the keys of the recordings in tests/oracle. When no CPU runs.
    fn state(&mut self, cache: CacheId) -> serde_json::Value;
    /// Where an object lies: first frame of its slab, index in it, and offset of object 0 from the slab's start.
    fn placement(&mut self, cache: CacheId, object: Addr) -> Placement;
    /// Every slab and what each of its objects is. When no CPU runs. `live` is what callers hold: SLOB tells its blocks by
    /// it, the others know.
    fn objects(&mut self, live: &[Live]) -> Map;
    /// The text of `/proc/slabinfo`; `None` for an allocator that has none.
    fn slabinfo(&mut self) -> Option<String>;
    /// What the slabinfo tool reads of every cache, its directory in sysfs above all; `None` for an allocator without slabs of
    /// its caches' own. When no CPU runs.
    fn tool(&mut self) -> Option<tool::Report> {
        None
    }
    /// Writes to an attribute of a cache (SLUB; kernel: its directory in sysfs). When no CPU runs. What the release refuses
    /// is an error.
    fn write_attribute(&mut self, _cache: CacheId, attribute: &str, value: i64) -> Result<(), Error> {
        let right = format!("a step for slub: {} has no attributes to write", Self::Config::NAME);
        Err(Error::new(format!("cache.{attribute}"), value, right))
    }
    /// Objects, slabs and queues of every cache per CPU and node, as text; `None` for an allocator without such queues.
    fn queues_text(&mut self) -> Option<String> {
        None
    }
    /// The same as rows: an object per cache and list, all with the same fields of words, numbers and truth values.
    fn queues_rows(&mut self) -> Vec<serde_json::Value> {
        Vec::new()
    }
    /// The heap as a whole, as text: pages, free blocks, fragmentation; `None` for an allocator of caches.
    fn heap_text(&mut self) -> Option<String> {
        None
    }
}

/// Era and tunables of an allocator, as they cross the door in JSON.
pub trait Configuration: Clone + Serialize + DeserializeOwned + PartialEq + std::fmt::Debug {
    /// Name of the allocator (`slab`).
    const NAME: &'static str;
    /// Known eras, oldest first.
    const ERAS: &'static [&'static str];
    /// The era meant when none is named.
    const DEFAULT_ERA: &'static str;
    /// Every tunable with unit and one-line meaning; the defaults are those of `era(…)`.
    const PARAMETERS: &'static [Parameter];

    /// All defaults of an era.
    fn era(era: &str) -> Option<Self>;
    /// All defaults of an era on pages of `page_size` bytes.
    fn era_on(era: &str, _page_size: u64) -> Option<Self> {
        Self::era(era)
    }
    /// Refuses impossible values, naming the parameter (`allocator.order`).
    fn check(&self) -> Result<(), Error>;
    /// The same on pages of `page_size` bytes.
    fn check_on(&self, _page_size: u64) -> Result<(), Error> {
        self.check()
    }
    /// What a cache looks like on a machine of this shape: the columns of `sl.geometry`. Bad wishes are refused by name.
    fn geometry(&self, wanted: &Wanted, shape: &Shape) -> Result<Columns, Error>;

    /// A complete configuration from a JSON object that may name the era and any tunables.
    fn from_json(given: &serde_json::Value) -> Result<Self, Error> {
        Self::from_json_on(given, PAGE_SIZE)
    }
    /// The same with the defaults that pages of `page_size` bytes have.
    fn from_json_on(given: &serde_json::Value, page_size: u64) -> Result<Self, Error> {
        let era = given.get("era").and_then(|e| e.as_str()).unwrap_or(Self::DEFAULT_ERA);
        let defaults = Self::era_on(era, page_size)
            .ok_or_else(|| Error::unknown(&format!("era of {}", Self::NAME), era, Self::ERAS))?;
        let config = merge_fields("allocator", Self::NAME, &defaults, given, Self::PARAMETERS)?;
        config.check_on(page_size)?;
        Ok(config)
    }
}

/// The registry: each allocator's type (its lifetime and machine left to inference) and configuration, by name. `$with!` is
/// called with all of them.
#[macro_export]
macro_rules! allocators {
    ($with:ident) => {
        $with! {
            "null" => $crate::alloc::null::Null<'_, _>, $crate::alloc::null::Config;
            "slab" => $crate::alloc::slab::Slab<'_, _>, $crate::alloc::slab::Config;
            "slub" => $crate::alloc::slub::Slub<'_, _>, $crate::alloc::slub::Config;
            "slob" => $crate::alloc::slob::Slob<'_, _>, $crate::alloc::slob::Config;
            "slqb" => $crate::alloc::slqb::Slqb<'_, _>, $crate::alloc::slqb::Config;
        }
    };
}
