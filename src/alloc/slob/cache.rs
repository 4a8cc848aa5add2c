//! A cache of SLOB: a size, an alignment and a name. It owns no pages; its objects lie among all others.

use crate::alloc::geometry::Shape;
use crate::alloc::{Counters, Stat};
use crate::machine::{Addr, Machine, PerCpu, Word};
use crate::spec::CacheSpec;
use crate::units::{LINE, NodeId};

use super::policy::Config;

/// Bytes behind a type-safe object: where the kernel queues it for the end of the grace period (kernel: slob_rcu).
pub(super) const RCU_FOOTER: u64 = 24;

/// A cache: how large its blocks are, and what has happened to them. Its objects lie among all others.
pub(super) struct Cache<M: Machine> {
    pub spec: CacheSpec,
    /// Bytes of a block: the object, and the footer of a type-safe one.
    pub size: u64,
    pub align: u64,
    /// The block that the cache's descriptor takes.
    pub descriptor: Option<Addr>,
    /// 1 after its destruction.
    pub destroyed: Word,
    /// Pages taken, returned and big ones, when the cache was made.
    pub base: [u64; 3],
    pub tally: PerCpu<M, Tally>,
}

/// One CPU's account of a cache. What is taken here may be given back on another CPU, so only sums mean something.
#[derive(Default)]
pub(super) struct Tally {
    pub counters: Counters,
    pub objects: i64,
    /// Bytes asked for.
    pub bytes: i64,
    /// Units of the heap, the cache's descriptor included.
    pub units: i64,
    /// Pages of blocks that came straight from the page allocator, now and ever.
    pub big_pages: i64,
    pub big_taken: u64,
}

impl<M: Machine> Cache<M> {
    pub fn new(machine: &M, spec: CacheSpec, policy: &Config) -> Cache<M> {
        let (size, align) = super::asked::block(&spec, policy, &Shape::of_machine(1, 0));
        let tally = PerCpu::new(machine, |_| Tally::default());
        let destroyed = Word::new(machine.reserve(LINE, NodeId(0)), 0);
        Cache { spec, size, align, descriptor: None, destroyed, base: [0; 3], tally }
    }
    /// SLAB_HWCACHE_ALIGN, SLAB_RECLAIM_ACCOUNT, SLAB_DESTROY_BY_RCU as the kernel numbers them.
    pub fn flags(&self) -> u64 {
        let CacheSpec { hwcache_align, reclaim_account, typesafe_by_rcu, .. } = self.spec;
        u64::from(hwcache_align) << 13 | u64::from(reclaim_account) << 17 | u64::from(typesafe_by_rcu) << 19
    }
    /// Sum of a figure over all CPUs.
    pub fn sum(&mut self, figure: impl Fn(&Tally) -> i64) -> i64 {
        self.tally.iter_mut().map(|(_, t)| figure(t)).sum()
    }
}

impl Tally {
    pub fn take(&mut self, stat: Stat, bytes: u64, units: u64) {
        self.counters.count(stat);
        self.objects += 1;
        self.bytes += bytes as i64;
        self.units += units as i64;
    }
    /// An object is freed.
    pub fn give(&mut self, stat: Stat, bytes: u64) {
        self.counters.count(stat);
        self.objects -= 1;
        self.bytes -= bytes as i64;
    }
    /// Its block goes back into its page; that may be later.
    pub fn release(&mut self, emptied: bool, units: u64) {
        self.counters.add(Stat::PageFree, u64::from(emptied));
        self.units -= units as i64;
    }
}
