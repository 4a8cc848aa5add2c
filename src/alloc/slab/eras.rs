//! SLAB's releases, oldest first, each an update of the one before. Reads as a changelog.

use crate::spec::Kind;

use super::policy::{ColourStep, CpuArrays, Excess, Kmalloc, Management, NewSlab, Policy, SharedTouched};

/// Sizes of the general caches of 2.6.24: with 64-byte lines there is no size-96, with lines below 128 bytes there is a
/// size-192; doubling up to the largest block of pages.
const SIZES: [u64; 19] = {
    let mut sizes = [32, 64, 128, 192, 256, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut i = 5;
    while i < sizes.len() {
        sizes[i] = 2 * sizes[i - 1];
        i += 1;
    }
    sizes
};
/// Sizes of kmalloc in 6.1, up to two pages.
const KMALLOC: [u64; 11] = [32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192];

/// January 2008.
pub const V2_6_24: Policy = Policy {
    management: Management::Chain,
    colour: ColourStep::After,
    new_slab: NewSlab::ToFreeList,
    excess: Excess::JustEmptied,
    shared_touched: SharedTouched::ByAliens,
    cpu_arrays: CpuArrays::Kmalloc,
    array_header: 24,
    min_slot: 8,
    kmalloc: Kmalloc { sizes: &SIZES, natural_align: false, kinds: &[Kind::Normal, Kind::Dma], twins: true, first: 32 },
    kmalloc_built: "dma",
    mergeable: false,
    unique_names: true,
};

/// December 2022. Byte indexes instead of a chain (3.15), in the page descriptor's slab and, if need be, in a free object
/// (4.6); arrays in the per-CPU area and merging (3.18); a new slab goes straight into the array (4.7); naturally aligned
/// kmalloc (5.4) up to two pages, larger ones from the page allocator (6.1).
pub const V6_1: Policy = Policy {
    management: Management::Indexes,
    colour: ColourStep::Before,
    new_slab: NewSlab::IntoArray,
    excess: Excess::Coldest,
    shared_touched: SharedTouched::ByRefills,
    cpu_arrays: CpuArrays::PerCpuArea,
    array_header: 16,
    min_slot: 16,
    kmalloc: Kmalloc {
        sizes: &KMALLOC,
        natural_align: true,
        kinds: &[Kind::Normal, Kind::Reclaimable, Kind::Dma, Kind::Accounted],
        twins: false,
        // The recorded boots list it as the oldest.
        first: 128,
    },
    // The recorded kernels have neither a DMA zone nor memory cgroups.
    kmalloc_built: "rcl",
    mergeable: true,
    unique_names: false,
};

/// The policy of an era by name.
pub fn policy(era: &str) -> Option<&'static Policy> {
    match era {
        "2.6.24" => Some(&V2_6_24),
        "6.1" => Some(&V6_1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::Configuration;
    use crate::alloc::slab::{Config, policy::KMALLOC_MAX};

    #[test]
    fn every_era_has_a_policy() {
        for era in Config::ERAS {
            assert_eq!(Config::era(era).unwrap().policy(), policy(era).unwrap(), "{era}");
        }
    }

    #[test]
    fn the_largest_general_cache_of_2_6_24_holds_the_largest_block() {
        assert_eq!(SIZES.last(), Some(&KMALLOC_MAX));
        assert!(SIZES.is_sorted() && KMALLOC.is_sorted());
    }
}
