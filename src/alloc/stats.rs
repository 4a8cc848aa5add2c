//! The `stats!` list: every event counter of every allocator, its name and one-line meaning.

macro_rules! stats {
    ($($variant:ident $name:literal $meaning:literal;)*) => {
        /// An event that allocators count.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Stat {
            $(#[doc = $meaning] $variant,)*
        }
        impl Stat {
            /// All counters in order.
            pub const ALL: &'static [Stat] = &[$(Stat::$variant,)*];
            /// Name as columns and sysfs spell it.
            pub const fn name(self) -> &'static str {
                match self { $(Stat::$variant => $name,)* }
            }
            /// One-line meaning.
            pub const fn meaning(self) -> &'static str {
                match self { $(Stat::$variant => $meaning,)* }
            }
        }
    };
}

stats! {
    AllocFastpath "alloc_fastpath" "object taken from the CPU's own list without the slow path (SLUB)";
    AllocSlowpath "alloc_slowpath" "allocation that went through the slow path (SLUB)";
    FreeFastpath "free_fastpath" "object put on the CPU's own list (SLUB)";
    FreeSlowpath "free_slowpath" "free that went through the slow path (SLUB)";
    FreeFrozen "free_frozen" "slow free into a slab that belongs to a CPU (SLUB)";
    FreeAddPartial "free_add_partial" "slow free put a formerly full slab on the node list (SLUB)";
    FreeRemovePartial "free_remove_partial" "slow free of the last object took the slab off the node list (SLUB)";
    AllocFromPartial "alloc_from_partial" "a node partial slab became cpu slab (SLUB)";
    AllocSlab "alloc_slab" "a new slab came from the page allocator (SLUB)";
    AllocRefill "alloc_refill" "the cpu slab's own free list was taken over (SLUB)";
    FreeSlab "free_slab" "a slab was returned to the page allocator (SLUB; not by shrink)";
    CpuslabFlush "cpuslab_flush" "a cpu slab was given up by a flush (SLUB)";
    DeactivateFull "deactivate_full" "a cpu slab was given up full (SLUB)";
    DeactivateEmpty "deactivate_empty" "a cpu slab was given up empty (SLUB)";
    DeactivateToHead "deactivate_to_head" "a cpu slab was given up to the head of the node list (SLUB)";
    DeactivateToTail "deactivate_to_tail" "a cpu slab was given up to the tail of the node list (SLUB)";
    DeactivateRemoteFrees "deactivate_remote_frees" "a given-up cpu slab held objects freed by others (SLUB)";
    AllocNodeMismatch "alloc_node_mismatch" "a cpu slab or sheaf did not serve the node asked for (SLUB)";
    DeactivateBypass "deactivate_bypass" "a used-up cpu slab was forgotten without deactivation (SLUB)";
    OrderFallback "order_fallback" "a new slab got the smallest order instead of the preferred one (SLUB)";
    CmpxchgDoubleCpuFail "cmpxchg_double_cpu_fail" "a compare-exchange of the CPU's structure was lost (SLUB)";
    CmpxchgDoubleFail "cmpxchg_double_fail" "a compare-exchange of a slab's word was lost (SLUB)";
    CpuPartialAlloc "cpu_partial_alloc" "a cpu slab was taken from the CPU's partial list (SLUB)";
    CpuPartialFree "cpu_partial_free" "a slab was put on the CPU's partial list (SLUB)";
    CpuPartialNode "cpu_partial_node" "a further slab moved from the node list to the CPU's partial list (SLUB)";
    CpuPartialDrain "cpu_partial_drain" "the CPU's partial list was at its limit and moved to the node lists (SLUB)";
    AllocCpuSheaf "alloc_cpu_sheaf" "object taken from the CPU's sheaf (SLUB)";
    FreeCpuSheaf "free_cpu_sheaf" "object put into the CPU's sheaf (SLUB)";
    FreeRcuSheaf "free_rcu_sheaf" "object put into the CPU's RCU sheaf (SLUB)";
    FreeRcuSheafFail "free_rcu_sheaf_fail" "RCU-delayed free that found no RCU sheaf (SLUB)";
    SheafFlush "sheaf_flush" "objects moved from sheaves to slabs (SLUB)";
    SheafRefill "sheaf_refill" "objects moved from slabs to sheaves (SLUB)";
    SheafAlloc "sheaf_alloc" "empty sheaves made (SLUB)";
    SheafFree "sheaf_free" "sheaves given up (SLUB)";
    BarnGet "barn_get" "a full sheaf was taken from the barn (SLUB)";
    BarnGetFail "barn_get_fail" "the barn had no full sheaf (SLUB)";
    BarnPut "barn_put" "a full sheaf was put into the barn (SLUB)";
    BarnPutFail "barn_put_fail" "the barn took no full sheaf (SLUB)";
    SheafPrefillFast "sheaf_prefill_fast" "a prefilled sheaf was the CPU's spare (SLUB)";
    SheafPrefillSlow "sheaf_prefill_slow" "a prefilled sheaf came from the barn or was new (SLUB)";
    SheafPrefillOversize "sheaf_prefill_oversize" "a prefilled sheaf was larger than the cache's (SLUB)";
    SheafReturnFast "sheaf_return_fast" "a returned sheaf became the CPU's spare (SLUB)";
    SheafReturnSlow "sheaf_return_slow" "a returned sheaf went to the barn or was emptied (SLUB)";
    LargeAlloc "large_alloc" "kmalloc passed on to the page allocator (SLUB, SLOB)";
    LargeFree "large_free" "kfree of a block of the page allocator (SLUB, SLOB)";

    Allochit "allochit" "object taken from the CPU's array (SLAB)";
    Allocmiss "allocmiss" "allocation that found the CPU's array empty (SLAB)";
    Freehit "freehit" "object put into the CPU's array (SLAB)";
    Freemiss "freemiss" "free that found the CPU's array full (SLAB)";
    Listallocs "listallocs" "objects moved from slabs to arrays by refills (SLAB)";
    Grown "grown" "slabs created (SLAB)";
    Reaped "reaped" "slabs destroyed by the periodic reaper (SLAB)";
    NodeAllocs "nodeallocs" "objects taken from another node's slabs (SLAB)";
    RemoteFrees "remotefrees" "frees of another node's object (SLAB)";
    AlienOverflow "alienoverflow" "frees that found the alien array full (SLAB)";
    Warnings "warnings" "misuse that the kernel goes on after, with a warning (SLAB 6.1)";

    SlqbAlloc "alloc" "allocations (SLQB)";
    AllocSlabFill "alloc_slab_fill" "objects taken from a partial slab (SLQB)";
    AllocSlabNew "alloc_slab_new" "slabs created (SLQB)";
    SlqbFree "free" "frees (SLQB)";
    FreeRemote "free_remote" "frees of another node's object (SLQB)";
    FlushFreeList "flush_free_list" "batches flushed from a LIFO (SLQB)";
    FlushFreeListObjects "flush_free_list_objects" "objects flushed from LIFOs (SLQB)";
    FlushFreeListRemote "flush_free_list_remote" "flushed objects of another list's slabs (SLQB)";
    FlushSlabPartial "flush_slab_partial" "slabs that a flush made partial (SLQB)";
    FlushSlabFree "flush_slab_free" "slabs that a flush emptied and returned (SLQB)";
    FlushRfreeList "flush_rfree_list" "rlists spliced or freed (SLQB)";
    FlushRfreeListObjects "flush_rfree_list_objects" "objects of those (SLQB)";
    ClaimRemoteList "claim_remote_list" "remote_free lists taken (SLQB)";
    ClaimRemoteListObjects "claim_remote_list_objects" "objects of those (SLQB)";

    FirstPage "first_page" "allocations satisfied by the first page tried (SLOB)";
    LaterPage "later_page" "allocations satisfied by a later page of the list (SLOB)";
    NewPage "new_page" "allocations that took a new page (SLOB)";
    BlockFree "block_free" "blocks freed (SLOB)";
    PageFree "page_free" "pages returned because their last block was freed (SLOB)";
}

/// One CPU's counts of one cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    counts: [u64; Stat::ALL.len()],
    /// Allocations less those that `counts` holds, of a release whose counters leave some out and count others twice.
    left_out: i64,
}

impl Default for Counters {
    fn default() -> Self {
        Counters { counts: [0; Stat::ALL.len()], left_out: 0 }
    }
}

impl Counters {
    /// Counts one event.
    #[inline]
    pub fn count(&mut self, stat: Stat) {
        self.counts[stat as usize] += 1;
    }
    /// Counts `n` events.
    #[inline]
    pub fn add(&mut self, stat: Stat, n: u64) {
        self.counts[stat as usize] += n;
    }
    /// The count of an event.
    pub fn get(&self, stat: Stat) -> u64 {
        self.counts[stat as usize]
    }
    /// Adds all counts of another CPU or list.
    pub fn merge(&mut self, other: &Counters) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.left_out += other.left_out;
    }
    /// The counts that have been added since `earlier`.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            counts: std::array::from_fn(|i| self.counts[i] - earlier.counts[i]),
            left_out: self.left_out - earlier.left_out,
        }
    }
    /// Sets one count to zero.
    pub fn clear(&mut self, stat: Stat) {
        self.counts[stat as usize] = 0;
    }
    /// Sets all counts to zero.
    pub fn reset(&mut self) {
        *self = Counters::default();
    }
    /// Notes `n` allocations that the release's counters do not show: [`Counters::shares`] has them.
    pub fn leave_out(&mut self, n: i64) {
        self.left_out += n;
    }

    /// Allocations served by the fastest path, allocations in all, and the same for frees: whatever the allocator calls
    /// them. SLUB: private list. SLAB: the CPU's array. SLQB: what needed no slab (LIFO, claimed remote frees), and frees
    /// that caused no flush. SLOB: the first page tried; every free is alike. Pass-through to pages is never fast.
    pub fn shares(&self) -> Shares {
        let g = |s| self.get(s);
        let slqb_slow = g(Stat::AllocSlabFill);
        Shares {
            alloc_fast: g(Stat::AllocFastpath)
                + g(Stat::Allochit)
                + g(Stat::SlqbAlloc).saturating_sub(slqb_slow)
                + g(Stat::FirstPage),
            alloc: (g(Stat::AllocFastpath)
                + g(Stat::AllocSlowpath)
                + g(Stat::Allochit)
                + g(Stat::Allocmiss)
                + g(Stat::NodeAllocs)
                + g(Stat::SlqbAlloc)
                + g(Stat::FirstPage)
                + g(Stat::LaterPage)
                + g(Stat::NewPage)
                + g(Stat::LargeAlloc))
            .saturating_add_signed(self.left_out),
            free_fast: g(Stat::FreeFastpath)
                + g(Stat::Freehit)
                + g(Stat::SlqbFree).saturating_sub(g(Stat::FlushFreeList) + g(Stat::FreeRemote))
                + g(Stat::BlockFree),
            free: g(Stat::FreeFastpath)
                + g(Stat::FreeSlowpath)
                + g(Stat::Freehit)
                + g(Stat::Freemiss)
                + g(Stat::RemoteFrees)
                + g(Stat::SlqbFree)
                + g(Stat::BlockFree)
                + g(Stat::LargeFree),
        }
    }
}

/// Fast and all operations, in the allocator-independent words of `summary()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Allocations on the fastest path.
    pub alloc_fast: u64,
    /// All allocations.
    pub alloc: u64,
    /// Frees on the fastest path.
    pub free_fast: u64,
    /// All frees.
    pub free: u64,
}
