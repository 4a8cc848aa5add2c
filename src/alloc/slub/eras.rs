//! SLUB's releases, oldest first, each an update of the one before. Reads as a changelog.

use super::policy::*;
use crate::alloc::Stat;
use crate::spec::Kind;

/// April 2007, -mm. Every operation takes the slab lock (kernel: slab_lock in slab_alloc and slab_free).
pub const V2_6_21_MM1: Policy = Policy { t: Tunables { fast_path: FastPath::SlabLock, ..V2_6_22.t }, ..V2_6_22 };

/// July 2007. The lockless freelist: a CPU takes its slab's whole list, into a word of the descriptor.
pub const V2_6_22: Policy = Policy {
    t: Tunables {
        min_order: 0,
        max_order: 1,
        min_objects: MinObjects::Objects(4),
        order_search: OrderSearch::HalveFrom8,
        order_fallback: OrderFallback::None,
        min_partial: MinPartial::Slabs(2),
        first_free: FirstFree::Head,
        deactivate: Deactivate::Head,
        discard_empty: DiscardEmpty::FreedAlways,
        remote_node_defrag_ratio: 100,
        named_node: NamedNode::ThenAny,
        kmalloc_max: 4 << 20,
        kmalloc_order3: false,
        kmalloc_random: false,
        merge: true,
        merge_walk: MergeWalk::Newest,
        hw_align: HwAlign::WholeLine,
        free_pointer: FreePointer::Start,
        freelist_hardened: false,
        freelist_random: false,
        fast_path: FastPath::Descriptor,
        slow_path: SlowPath::Locked,
        atomic_unlock: true,
        cpu_partial: CpuPartial::Rule(CpuPartialRule::None),
        cpu_partial_count: CpuPartialCount::Objects,
        delayed_freezing: false,
        sheaf_capacity: SheafCapacity::Rule(SheafRule::None),
        barn_max_full: 10,
        barn_max_empty: 10,
    },
    max_objects: Some(65_535),
    max_objects_refuses: true,
    slow_irq_off: true,
    track_stack: 0,
    track_handle: false,
    modern_layout: false,
    kmalloc_align: KmallocAlign::None,
    // Made at their first request: none is there at boot.
    kmalloc_kinds: &[Kind::Normal, Kind::Dma],
    kmalloc_built: "",
    kmalloc_dma: "kmalloc_dma-",
    debug_path: DebugPath::CpuSlab,
    debug_globs: false,
    lists_leftovers: false,
    shrink_sort: ShrinkSort::AllAbove(10),
    count_entries: false,
    bulk: Bulk::Loop,
    sheaves: None,
    slabinfo: false,
    stats: &[],
};

/// The state of November 2007. A `kmem_cache_cpu` per CPU holds the private list (kernel: slab_alloc, slab_free), and
/// kmalloc above half a page goes to the page allocator (kernel: kmalloc_large).
pub const V2_6_24_RC2: Policy = Policy {
    t: Tunables { fast_path: FastPath::IrqOff, kmalloc_max: 2048, ..V2_6_22.t },
    max_objects: None,
    max_objects_refuses: false,
    shrink_sort: ShrinkSort::AllAbove(0),
    ..V2_6_22
};

/// January 2008. 2.6.24-rc7 keeps five partial slabs and appends to the list at the first free (kernel: __slab_free,
/// MIN_PARTIAL), and gets `/proc/slabinfo`.
pub const V2_6_24: Policy = Policy {
    t: Tunables { min_partial: MinPartial::Slabs(5), first_free: FirstFree::Tail, ..V2_6_24_RC2.t },
    slabinfo: true,
    ..V2_6_24_RC2
};

/// April 2008. kmalloc caches whole pages again, from slabs of order 3; a slab lock is released without a locked cycle;
/// event counters (kernel: SLUB_STATS).
pub const V2_6_25: Policy = Policy {
    t: Tunables {
        deactivate: Deactivate::TailUnlessPrivate,
        order_fallback: OrderFallback::KmallocBlock,
        kmalloc_max: 4096,
        kmalloc_order3: true,
        hw_align: HwAlign::HalvedLine,
        atomic_unlock: false,
        ..V2_6_24.t
    },
    stats: &STATS_2_6_25,
    ..V2_6_24
};

/// October 2008. Objects per slab grow with the number of CPUs, slabs of the smallest order when memory is scattered
/// (kernel: calculate_order, allocate_slab, both 2.6.26); more partial slabs for larger objects, other nodes' slabs first.
pub const V2_6_27: Policy = Policy {
    t: Tunables {
        max_order: 3,
        min_objects: MinObjects::Rule(MinObjectsRule::ByCpus),
        order_search: OrderSearch::HalveFrom16,
        order_fallback: OrderFallback::MinOrder,
        min_partial: MinPartial::Rule(MinPartialRule::Log2),
        remote_node_defrag_ratio: 1000,
        kmalloc_order3: false,
        ..V2_6_25.t
    },
    max_objects: Some(65_535),
    lists_leftovers: true,
    stats: &STATS_2_6_27,
    ..V2_6_25
};

/// September 2009. kmalloc up to two pages from caches, and an order search that skips no number of objects (both 2.6.30).
pub const V2_6_31: Policy =
    Policy { t: Tunables { order_search: OrderSearch::StepFrom16, kmalloc_max: 8192, ..V2_6_27.t }, ..V2_6_27 };

/// October 2011. No locks but `list_lock`: a transaction id guards the private list (2.6.39), list and counters of a slab
/// change in one compare-exchange (kernel: cmpxchg_double_slab).
pub const V3_1: Policy = Policy {
    t: Tunables {
        fast_path: FastPath::DoubleCas,
        slow_path: SlowPath::Lockless,
        deactivate: Deactivate::HeadUnlessRemote,
        discard_empty: DiscardEmpty::Above,
        named_node: NamedNode::ThenNew,
        ..V2_6_31.t
    },
    max_objects: Some(LOCKLESS_OBJECTS),
    kmalloc_dma: "dma-kmalloc-",
    track_stack: 16,
    debug_path: DebugPath::Deactivate,
    stats: &STATS_3_1,
    ..V2_6_31
};

/// January 2012. A list of partial slabs per CPU, counted in objects (kernel: put_cpu_partial).
pub const V3_2: Policy = Policy {
    t: Tunables {
        min_partial: MinPartial::Rule(MinPartialRule::HalfLog2),
        cpu_partial: CpuPartial::Rule(CpuPartialRule::BySize),
        ..V3_1.t
    },
    stats: &STATS_3_2,
    ..V3_1
};

/// December 2022. The list is counted in slabs (5.16); a local lock in short sections instead of interrupts off (5.15); free
/// pointer in the middle (5.7); debug caches without cpu slabs.
pub const V6_1: Policy = Policy {
    t: Tunables {
        discard_empty: DiscardEmpty::From,
        merge_walk: MergeWalk::Oldest,
        free_pointer: FreePointer::Middle,
        cpu_partial_count: CpuPartialCount::Slabs,
        ..V3_2.t
    },
    slow_irq_off: false,
    track_stack: 0,
    track_handle: true,
    modern_layout: true,
    kmalloc_align: KmallocAlign::PowersOfTwo,
    kmalloc_kinds: &[Kind::Normal, Kind::Reclaimable, Kind::Dma, Kind::Accounted],
    // The recorded kernels have neither a DMA zone nor memory cgroups.
    kmalloc_built: "rcl",
    debug_path: DebugPath::NodeList,
    debug_globs: true,
    shrink_sort: ShrinkSort::NearlyFull,
    count_entries: true,
    bulk: Bulk::Uncounted,
    stats: &STATS_6_1,
    ..V3_2
};

/// March 2024. Slabs are frozen when they are used, not while they wait (kernel: slab_test_node_partial); a shorter order
/// search (6.7).
pub const V6_8: Policy = Policy {
    t: Tunables { delayed_freezing: true, order_search: OrderSearch::FitFrom16, ..V6_1.t },
    bulk: Bulk::Counted,
    ..V6_1
};

/// November 2025. Sheaves of objects per CPU and barns per node over the cpu slabs, for caches that ask.
pub const V6_18: Policy = Policy {
    t: Tunables {
        named_node: NamedNode::TwoAttempts,
        sheaf_capacity: SheafCapacity::Rule(SheafRule::ByCreator),
        ..V6_8.t
    },
    kmalloc_align: KmallocAlign::Divisor,
    // The recorded kernel has both.
    kmalloc_built: "rcl,dma,cg",
    sheaves: Some(SheafForm::OverCpuSlabs),
    stats: &STATS_6_18,
    ..V6_8
};

/// 2026. Sheaves for all caches; cpu slabs and their partial lists are gone (7.0).
pub const V7_1: Policy = Policy {
    t: Tunables {
        fast_path: FastPath::Sheaf,
        cpu_partial: CpuPartial::Rule(CpuPartialRule::None),
        sheaf_capacity: SheafCapacity::Rule(SheafRule::BySize),
        ..V6_18.t
    },
    sheaves: Some(SheafForm::Alone),
    stats: &STATS_7_1,
    ..V6_18
};

/// All eras by name, oldest first.
pub const ALL: [(&str, Policy); 13] = [
    ("2.6.21-mm1", V2_6_21_MM1),
    ("2.6.22", V2_6_22),
    ("2.6.24-rc2", V2_6_24_RC2),
    ("2.6.24", V2_6_24),
    ("2.6.25", V2_6_25),
    ("2.6.27", V2_6_27),
    ("2.6.31", V2_6_31),
    ("3.1", V3_1),
    ("3.2", V3_2),
    ("6.1", V6_1),
    ("6.8", V6_8),
    ("6.18", V6_18),
    ("7.1", V7_1),
];

/// The policy of an era by name.
pub fn policy(era: &str) -> Option<Policy> {
    ALL.iter().find(|(name, _)| *name == era).map(|(_, policy)| *policy)
}

const STATS_2_6_25: [Stat; 17] = [
    Stat::AllocFastpath,
    Stat::AllocSlowpath,
    Stat::FreeFastpath,
    Stat::FreeSlowpath,
    Stat::FreeFrozen,
    Stat::FreeAddPartial,
    Stat::FreeRemovePartial,
    Stat::AllocFromPartial,
    Stat::AllocSlab,
    Stat::AllocRefill,
    Stat::FreeSlab,
    Stat::CpuslabFlush,
    Stat::DeactivateFull,
    Stat::DeactivateEmpty,
    Stat::DeactivateToHead,
    Stat::DeactivateToTail,
    Stat::DeactivateRemoteFrees,
];
const STATS_2_6_27: [Stat; 18] = appended(&STATS_2_6_25, &[Stat::OrderFallback]);
const STATS_3_1: [Stat; 22] = [
    Stat::AllocFastpath,
    Stat::AllocSlowpath,
    Stat::FreeFastpath,
    Stat::FreeSlowpath,
    Stat::FreeFrozen,
    Stat::FreeAddPartial,
    Stat::FreeRemovePartial,
    Stat::AllocFromPartial,
    Stat::AllocSlab,
    Stat::AllocRefill,
    Stat::AllocNodeMismatch,
    Stat::FreeSlab,
    Stat::CpuslabFlush,
    Stat::DeactivateFull,
    Stat::DeactivateEmpty,
    Stat::DeactivateToHead,
    Stat::DeactivateToTail,
    Stat::DeactivateRemoteFrees,
    Stat::DeactivateBypass,
    Stat::OrderFallback,
    Stat::CmpxchgDoubleCpuFail,
    Stat::CmpxchgDoubleFail,
];
const STATS_3_2: [Stat; 24] = appended(&STATS_3_1, &[Stat::CpuPartialAlloc, Stat::CpuPartialFree]);
const STATS_6_1: [Stat; 26] = appended(&STATS_3_2, &[Stat::CpuPartialNode, Stat::CpuPartialDrain]);
const SHEAF_STATS: [Stat; 13] = [
    Stat::SheafFlush,
    Stat::SheafRefill,
    Stat::SheafAlloc,
    Stat::SheafFree,
    Stat::BarnGet,
    Stat::BarnGetFail,
    Stat::BarnPut,
    Stat::BarnPutFail,
    Stat::SheafPrefillFast,
    Stat::SheafPrefillSlow,
    Stat::SheafPrefillOversize,
    Stat::SheafReturnFast,
    Stat::SheafReturnSlow,
];
const STATS_6_18: [Stat; 43] = {
    let first = [
        Stat::AllocCpuSheaf,
        Stat::AllocFastpath,
        Stat::AllocSlowpath,
        Stat::FreeCpuSheaf,
        Stat::FreeRcuSheaf,
        Stat::FreeRcuSheafFail,
    ];
    let Some((_, rest)) = STATS_6_1.split_first_chunk::<2>() else { panic!() };
    let Some(rest) = rest.first_chunk::<24>() else { panic!() };
    let over_cpu_slabs: [Stat; 30] = appended(&first, rest);
    appended(&over_cpu_slabs, &SHEAF_STATS)
};
const STATS_7_1: [Stat; 26] = appended(
    &[
        Stat::AllocFastpath,
        Stat::AllocSlowpath,
        Stat::FreeRcuSheaf,
        Stat::FreeRcuSheafFail,
        Stat::FreeFastpath,
        Stat::FreeSlowpath,
        Stat::FreeAddPartial,
        Stat::FreeRemovePartial,
        Stat::AllocSlab,
        Stat::AllocNodeMismatch,
        Stat::FreeSlab,
        Stat::OrderFallback,
        Stat::CmpxchgDoubleFail,
    ],
    &SHEAF_STATS,
);

/// One list after the other.
const fn appended<const A: usize, const B: usize, const N: usize>(a: &[Stat; A], b: &[Stat; B]) -> [Stat; N] {
    assert!(A + B == N);
    let mut all = [Stat::AllocFastpath; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < A { a[i] } else { b[i - A] };
        i += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::Configuration;
    use crate::alloc::slub::Config;

    #[test]
    fn every_era_has_a_policy_that_its_configuration_gives_back() {
        for era in Config::ERAS {
            assert_eq!(Config::era(era).unwrap().policy(), policy(era).unwrap(), "{era}");
        }
    }

    #[test]
    fn the_two_eras_of_published_results_are_updates_by_name() {
        for (from, given, to) in [
            ("2.6.24", serde_json::json!({"era": "2.6.24", "min_partial": 2, "first_free": "head"}), "2.6.24-rc2"),
            ("2.6.22", serde_json::json!({"era": "2.6.22", "fast_path": "slab_lock"}), "2.6.21-mm1"),
        ] {
            let update = Config::from_json(&given).unwrap();
            assert_eq!(Config { era: to.into(), ..update }, Config::era(to).unwrap(), "{from}");
        }
    }

    #[test]
    fn counters_are_named_once_each() {
        for (era, policy) in ALL {
            let mut names: Vec<&str> = policy.stats.iter().map(|s| s.name()).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|w| w[0] != w[1]), "{era}: {names:?}");
        }
    }
}
