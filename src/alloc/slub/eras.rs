//! SLUB's releases, oldest first, each an update of the one before. Reads as a changelog.

use super::policy::{FirstFree, OrderRule, Policy};

/// The state of November 2007. A `kmem_cache_cpu` per CPU holds the private list (kernel: slab_alloc, slab_free), and
/// kmalloc above half a page goes to the page allocator (kernel: kmalloc_large).
pub const V2_6_24_RC2: Policy = Policy {
    min_partial: 2,
    first_free: FirstFree::Head,
    order: OrderRule { min_order: 0, max_order: 1, min_objects: 4 },
    defrag_ratio: 100,
    kmalloc_max: 2048,
    slabinfo: false,
};

/// January 2008. 2.6.24-rc7 keeps five partial slabs and appends to the list at the first free (kernel: __slab_free,
/// MIN_PARTIAL), and gets `/proc/slabinfo`.
pub const V2_6_24: Policy = Policy { min_partial: 5, first_free: FirstFree::Tail, slabinfo: true, ..V2_6_24_RC2 };

/// The policy of an era by name.
pub fn policy(era: &str) -> Option<Policy> {
    match era {
        "2.6.24-rc2" => Some(V2_6_24_RC2),
        "2.6.24" => Some(V2_6_24),
        _ => None,
    }
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
    fn rc2_is_the_release_with_two_fields_changed() {
        let given = serde_json::json!({"era": "2.6.24", "min_partial": 2, "first_free": "head"});
        let update = Config::from_json(&given).unwrap();
        assert_eq!(Config { era: "2.6.24-rc2".into(), ..update }, Config::era("2.6.24-rc2").unwrap());
    }
}
