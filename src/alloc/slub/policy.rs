//! Every choice in which one SLUB release differs from another.
//!
//! [`Policy`] is what the code reads: orthogonal values, so that each step of history can be switched alone. Those that a
//! user may replace are its [`Tunables`], which cross the door inside [`super::Config`]; the others belong to the era.

use serde::{Deserialize, Serialize};

use crate::alloc::Stat;
use crate::spec::Kind;

/// Largest buddy order.
pub(super) const LARGEST_ORDER: u8 = crate::units::MAX_ORDER as u8 - 1;
/// Objects that fit the counters of a lockless slab word (kernel: 15 bits of struct page's counters).
pub(super) const LOCKLESS_OBJECTS: u64 = 32_767;

/// How the fast paths keep others away from the CPU's private list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FastPath {
    /// There is no private list: every operation takes the slab lock (2.6.21-mm1).
    SlabLock,
    /// Interrupts off; the list lies in the slab's descriptor, on the line that remote frees write (2.6.22).
    Descriptor,
    /// Interrupts off; the list lies in a structure of the CPU (2.6.24).
    IrqOff,
    /// Interrupts on; list and transaction id change in one compare-exchange of this CPU, without a locked cycle (2.6.39).
    #[serde(alias = "double-cas")]
    DoubleCas,
    /// No cpu slab: what the sheaves do not have comes one by one from the node's list (7.0).
    Sheaf,
}

/// What protects a slab's own list and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlowPath {
    /// The slab lock, a bit of the descriptor, with interrupts off.
    Locked,
    /// One compare-exchange of list and counters together; a locked cycle, no lock (3.1).
    Lockless,
}

/// Where on the node's list a full slab goes at its first free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FirstFree {
    /// Head: allocated from next, while its line is warm, and soon full again. Nearly full slabs bounce between full and
    /// partial, each time under `list_lock`.
    Head,
    /// Tail: waits until the slabs before it are used up, and gathers more frees meanwhile (2.6.24-rc7).
    Tail,
}

/// Where on the node's list a partial cpu slab goes when it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deactivate {
    /// Head; an empty one that is kept: tail (2.6.22).
    Head,
    /// Tail; head if this CPU had private objects left, whose lines are warm (2.6.25).
    TailUnlessPrivate,
    /// Head; tail if others had freed into it (3.1).
    HeadUnlessRemote,
}

/// When an empty slab is returned to the page allocator; `n` slabs are on the node's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiscardEmpty {
    /// By a free: always. A given-up cpu slab: unless n < min_partial (2.6.22).
    FreedAlways,
    /// n > min_partial (3.1).
    Above,
    /// n ≥ min_partial (3.16).
    From,
}

/// Objects a slab should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MinObjects {
    /// This many (kernel: slub_min_objects).
    Objects(u64),
    /// By the number of CPUs.
    Rule(MinObjectsRule),
}

/// Objects of a slab by the number of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MinObjectsRule {
    /// 4·(fls(CPUs) + 1) (2.6.26).
    ByCpus,
}

impl MinObjects {
    /// The number on a machine of `cpus` CPUs.
    pub fn on(self, cpus: u64) -> u64 {
        match self {
            MinObjects::Objects(n) => n,
            MinObjects::Rule(MinObjectsRule::ByCpus) => 4 * (u64::from(crate::units::fls(cpus)) + 1),
        }
    }
}

/// Partial slabs a node keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MinPartial {
    /// This many in every cache.
    Slabs(u64),
    /// By the size of a slot.
    Rule(MinPartialRule),
}

/// Partial slabs by slot size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MinPartialRule {
    /// log2 of the size, 5 to 10 (2.6.27).
    Log2,
    /// Half of it, 5 to 10 (3.2).
    HalfLog2,
}

/// Per-CPU list of partial slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CpuPartial {
    /// Free objects that the list should hold.
    Objects(u64),
    /// No list, or one by size.
    Rule(CpuPartialRule),
}

/// Whether there is a list, without a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuPartialRule {
    /// There is none.
    None,
    /// 30, 13, 6 or 2 objects by slot size; four times that (three for whole pages) where slabs are counted.
    BySize,
}

/// What the limit of a per-CPU partial list is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuPartialCount {
    /// Free objects, as they were when each slab was put on the list (3.2).
    Objects,
    /// Slabs, taken as half full (5.16).
    Slabs,
}

/// Which partial slabs may serve a caller that names a node without insisting on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamedNode {
    /// That node's, then any node's (2.6.22).
    ThenAny,
    /// That node's, then a new slab (3.1).
    ThenNew,
    /// That node's or a new slab there without reclaim, then any node's (6.12).
    TwoAttempts,
}

/// How the order of a cache is searched (see [`super::order`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderSearch {
    /// At most 1/8 wasted, then 1/4; then half the objects (2.6.22).
    HalveFrom8,
    /// At most 1/16 wasted, then 1/8, 1/4; then half the objects (2.6.26).
    HalveFrom16,
    /// The same; then one object less (2.6.30).
    StepFrom16,
    /// From the order that holds the objects: at most 1/16, 1/8, 1/4, 1/2 wasted (6.7).
    FitFrom16,
}

/// What is tried when there are no pages of the preferred order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderFallback {
    /// Nothing.
    None,
    /// For kmalloc: one block of the page allocator instead of an object (2.6.25).
    KmallocBlock,
    /// A slab of the smallest order that holds an object (2.6.26).
    MinOrder,
}

/// Where the free pointer lies in an object whose bytes are free to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FreePointer {
    /// In its first word.
    Start,
    /// In the middle, where an overflow of the neighbour does not reach (5.7).
    Middle,
}

/// What SLAB_HWCACHE_ALIGN aligns to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HwAlign {
    /// A cache line, if the object fills more than half of one; else nothing (2.6.22).
    WholeLine,
    /// The line, halved while the object fits in half of it (2.6.25).
    HalvedLine,
}

/// In which order a new cache looks for one to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeWalk {
    /// Newest first.
    Newest,
    /// Oldest first (3.18).
    Oldest,
}

/// Objects a sheaf holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SheafCapacity {
    /// This many in every cache without debug flags.
    Objects(u64),
    /// No sheaves, or a capacity by cache.
    Rule(SheafRule),
}

/// Which caches have sheaves, without a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SheafRule {
    /// None.
    None,
    /// Those whose creator asks: `vm_area_struct` and `maple_node`, 32 (6.18).
    ByCreator,
    /// All without debug flags: 60, 28, 12 or 4 by slot size (7.0).
    BySize,
}

/// The values of a policy that a user may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunables {
    /// Smallest order tried (kernel: slub_min_order).
    pub min_order: u8,
    /// Largest order tried before the object itself needs more (kernel: slub_max_order).
    pub max_order: u8,
    /// See [`MinObjects`].
    pub min_objects: MinObjects,
    /// See [`OrderSearch`].
    pub order_search: OrderSearch,
    /// See [`OrderFallback`].
    pub order_fallback: OrderFallback,
    /// Empty slabs are kept while a node has few partial ones. More keeps memory, fewer asks the page allocator more often.
    pub min_partial: MinPartial,
    /// See [`FirstFree`].
    pub first_free: FirstFree,
    /// See [`Deactivate`].
    pub deactivate: Deactivate,
    /// See [`DiscardEmpty`].
    pub discard_empty: DiscardEmpty,
    /// An allocation looks at other nodes' partial slabs iff a draw from 0..1024 is at most this; 0 never. Low keeps
    /// memory local, high fills old slabs first.
    pub remote_node_defrag_ratio: u64,
    /// See [`NamedNode`].
    pub named_node: NamedNode,
    /// Largest kmalloc served from a cache, in bytes. Larger ones take whole pages: no per-CPU list, no statistics.
    pub kmalloc_max: u64,
    /// kmalloc caches of few objects a page get order 3 at least (2.6.25).
    pub kmalloc_order3: bool,
    /// Every kmalloc class exists sixteen times, and the place of a call says which it takes from: an overflow meets fewer
    /// strangers, at the price of partly filled slabs (kernel: RANDOM_KMALLOC_CACHES, 6.6). Here the bytes asked for stand
    /// for the place.
    pub kmalloc_random: bool,
    /// Caches of equal slots share their slabs (kernel: off with slub_nomerge).
    pub merge: bool,
    /// See [`MergeWalk`].
    pub merge_walk: MergeWalk,
    /// See [`HwAlign`].
    pub hw_align: HwAlign,
    /// See [`FreePointer`].
    pub free_pointer: FreePointer,
    /// Free pointers are stored XORed with a secret of the cache and their own address (kernel: SLAB_FREELIST_HARDENED).
    pub freelist_hardened: bool,
    /// A new slab's free list is a permutation (kernel: SLAB_FREELIST_RANDOM).
    pub freelist_random: bool,
    /// See [`FastPath`].
    pub fast_path: FastPath,
    /// See [`SlowPath`].
    pub slow_path: SlowPath,
    /// The slab lock is released by a locked operation (2.6.22), not by a plain store (2.6.25).
    pub atomic_unlock: bool,
    /// See [`CpuPartial`].
    pub cpu_partial: CpuPartial,
    /// See [`CpuPartialCount`].
    pub cpu_partial_count: CpuPartialCount,
    /// Slabs on per-CPU partial lists are not frozen; a flag says whether a slab is on its node's list (6.8).
    pub delayed_freezing: bool,
    /// See [`SheafCapacity`].
    pub sheaf_capacity: SheafCapacity,
    /// Full sheaves a barn takes (kernel: MAX_FULL_SHEAVES).
    pub barn_max_full: u64,
    /// Empty sheaves a barn keeps after an RCU sheaf was emptied (kernel: MAX_EMPTY_SHEAVES).
    pub barn_max_empty: u64,
}

/// How a debug cache's objects are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DebugPath {
    /// From the cpu slab's own list, under the slab lock; the private list stays empty (2.6.22).
    CpuSlab,
    /// The same with the cpu slab given up each time (3.1).
    Deactivate,
    /// From the node's list, under `list_lock`; there is no cpu slab (6.1).
    NodeList,
}

/// What a kmalloc cache is aligned to besides a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KmallocAlign {
    /// Nothing.
    None,
    /// Powers of two to themselves (5.4).
    PowersOfTwo,
    /// Every size to the largest power of two that divides it: 96 to 32, 192 to 64 (seen in 6.18).
    Divisor,
}

/// What a shrink does with the order of a partial list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShrinkSort {
    /// Sorts all, fullest first, if more than this many remain.
    AllAbove(usize),
    /// Moves slabs with at most 32 free objects to the front, fullest first.
    NearlyFull,
}

/// How bulk operations go and count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bulk {
    /// One by one.
    Loop,
    /// Hits of the private list are not counted, a freed list counts once (6.1).
    Uncounted,
    /// Every object is counted (6.8).
    Counted,
}

/// The two forms of sheaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SheafForm {
    /// Over cpu slabs (6.18).
    OverCpuSlabs,
    /// Instead of cpu slabs (7.1).
    Alone,
}

/// One release of SLUB as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// What a user may replace.
    #[serde(flatten)]
    pub t: Tunables,
    /// Most objects of a slab (kernel: MAX_OBJS_PER_PAGE).
    pub max_objects: Option<u64>,
    /// A cache of more is refused instead of getting a smaller order (2.6.22).
    pub max_objects_refuses: bool,
    /// Interrupts are off throughout the slow path of an allocation.
    pub slow_irq_off: bool,
    /// Words of a user-tracking record that holds a stack, besides address, CPU, process and time: 16 in 3.1; 0 before.
    pub track_stack: u64,
    /// The stack is a handle of 4 bytes instead (5.19).
    pub track_handle: bool,
    /// Objects begin behind a left red zone (4.6), and kmalloc caches are named by k (5.x).
    pub modern_layout: bool,
    /// See [`KmallocAlign`].
    pub kmalloc_align: KmallocAlign,
    /// Kinds of kmalloc that can have caches of their own, in the order in which they are made.
    #[serde(skip)]
    pub kmalloc_kinds: &'static [Kind],
    /// Those of them that the recorded kernels have, as the parameter `kmalloc` has them.
    #[serde(skip)]
    pub kmalloc_built: &'static str,
    /// What stands before the size in names of DMA caches.
    #[serde(skip)]
    pub kmalloc_dma: &'static str,
    /// See [`DebugPath`].
    pub debug_path: DebugPath,
    /// Names in the debug option end in `*` or are exact (6.1), instead of being prefixes.
    pub debug_globs: bool,
    /// A cache that is destroyed with objects lists their addresses (2.6.26).
    pub lists_leftovers: bool,
    /// See [`ShrinkSort`].
    pub shrink_sort: ShrinkSort,
    /// Counts alloc_slowpath at every entry (6.1); else where slub.md §8.1 says.
    pub count_entries: bool,
    /// See [`Bulk`].
    pub bulk: Bulk,
    /// The form of sheaves this release can have.
    pub sheaves: Option<SheafForm>,
    /// The release has `/proc/slabinfo`.
    pub slabinfo: bool,
    /// Its event counters, in the order of its files.
    #[serde(skip)]
    pub stats: &'static [Stat],
}

impl Policy {
    /// Most objects a slab can have.
    pub fn most_objects(&self) -> Option<u64> {
        match self.t.slow_path {
            SlowPath::Locked => self.max_objects,
            SlowPath::Lockless => Some(self.max_objects.unwrap_or(LOCKLESS_OBJECTS).min(LOCKLESS_OBJECTS)),
        }
    }
    /// The same release on pages of another size: a few defaults depend on it (slub.md §3).
    pub fn on_pages(mut self, page_size: u64) -> Policy {
        if page_size > 4096 && matches!(self.t.min_objects, MinObjects::Objects(_)) {
            (self.t.max_order, self.t.min_objects) = (2, MinObjects::Objects(8));
        }
        // Limits of up to two pages are given in pages (slub.md §6).
        if self.t.kmalloc_max <= 2 * 4096 {
            self.t.kmalloc_max = self.t.kmalloc_max * page_size / 4096;
        }
        self
    }
    /// There is a per-CPU partial list.
    pub fn has_cpu_partial(&self) -> bool {
        self.t.cpu_partial != CpuPartial::Rule(CpuPartialRule::None)
    }
}
