//! Every choice in which one SLUB release differs from another, and the configuration in which users write it.
//!
//! [`Policy`] is what the code reads: orthogonal, so that each step of history can be switched alone. [`Config`] is what
//! crosses the door: the era's values, any of which the user may replace.

use serde::{Deserialize, Serialize};

use super::eras;
use crate::alloc::{Configuration, Parameter};
use crate::error::Error;

/// Largest buddy order.
pub(super) const LARGEST_ORDER: u8 = crate::units::MAX_ORDER as u8 - 1;

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

/// How many objects and pages a slab gets (see [`super::order`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderRule {
    /// Smallest order tried (kernel: slub_min_order).
    pub min_order: u8,
    /// Largest order tried before the object itself needs more (kernel: slub_max_order).
    pub max_order: u8,
    /// Objects a slab should hold (kernel: slub_min_objects).
    pub min_objects: u64,
}

/// One release of SLUB as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Empty slabs are kept at deactivation while a node has fewer partial slabs than this. More keeps memory, fewer asks
    /// the page allocator more often.
    pub min_partial: u64,
    /// Where a full slab goes at its first free.
    pub first_free: FirstFree,
    /// Slab sizes.
    pub order: OrderRule,
    /// An allocation looks at other nodes' partial slabs iff a draw from 0..1024 is at most this; 0 never. Low keeps
    /// memory local, high fills old slabs first.
    pub defrag_ratio: u64,
    /// Largest kmalloc served from a cache, in bytes. Larger ones take whole pages: no per-CPU list, no statistics.
    pub kmalloc_max: u64,
    /// The release has `/proc/slabinfo`.
    pub slabinfo: bool,
}

/// Era and tunables of SLUB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Release.
    pub era: String,
    /// Common order axis: `min_order` = `max_order` = this.
    pub order: Option<u8>,
    /// See [`OrderRule::min_order`].
    pub min_order: u8,
    /// See [`OrderRule::max_order`].
    pub max_order: u8,
    /// See [`OrderRule::min_objects`].
    pub min_objects: u64,
    /// See [`Policy::min_partial`].
    pub min_partial: u64,
    /// See [`Policy::first_free`].
    pub first_free: FirstFree,
    /// See [`Policy::defrag_ratio`].
    pub defrag_ratio: u64,
    /// See [`Policy::kmalloc_max`].
    pub kmalloc_max: u64,
    /// Caches of equal slots share their slabs (kernel: off with slub_nomerge).
    pub merge: bool,
}

impl Config {
    /// What the code reads: the era with the tunables in place.
    pub fn policy(&self) -> Policy {
        let order = OrderRule {
            min_order: self.order.unwrap_or(self.min_order),
            max_order: self.order.unwrap_or(self.max_order),
            min_objects: self.min_objects,
        };
        Policy {
            min_partial: self.min_partial,
            first_free: self.first_free,
            order,
            defrag_ratio: self.defrag_ratio,
            kmalloc_max: self.kmalloc_max,
            ..eras::policy(&self.era).expect("an era that check() has seen")
        }
    }
}

impl Configuration for Config {
    const NAME: &'static str = "slub";
    const ERAS: &'static [&'static str] = &["2.6.24-rc2", "2.6.24"];
    const DEFAULT_ERA: &'static str = "2.6.24";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "order",
            unit: "",
            meaning: "order of every slab: min_order = max_order = order, 0..10, or null",
        },
        Parameter { name: "min_order", unit: "", meaning: "smallest slab order tried, 0..10" },
        Parameter { name: "max_order", unit: "", meaning: "largest slab order tried while the object fits, 0..10" },
        Parameter { name: "min_objects", unit: "objects", meaning: "objects a slab should hold, 1..65536" },
        Parameter {
            name: "min_partial",
            unit: "slabs",
            meaning: "an empty cpu slab is kept while its node has fewer partial slabs than this",
        },
        Parameter {
            name: "first_free",
            unit: "",
            meaning: "where on the node list a full slab goes at its first free: \"head\" or \"tail\"",
        },
        Parameter {
            name: "defrag_ratio",
            unit: "of 1024",
            meaning: "how often an allocation looks at other nodes' partial slabs, 0 (never) .. 1024 (always)",
        },
        Parameter {
            name: "kmalloc_max",
            unit: "bytes",
            meaning: "largest kmalloc served from a cache, a power of two, 256..4194304; larger ones take pages",
        },
        Parameter { name: "merge", unit: "", meaning: "caches of equal slots share their slabs: true or false" },
    ];

    fn era(era: &str) -> Option<Self> {
        let p = eras::policy(era)?;
        Some(Config {
            era: era.into(),
            order: None,
            min_order: p.order.min_order,
            max_order: p.order.max_order,
            min_objects: p.order.min_objects,
            min_partial: p.min_partial,
            first_free: p.first_free,
            defrag_ratio: p.defrag_ratio,
            kmalloc_max: p.kmalloc_max,
            merge: true,
        })
    }

    /// `min_order` above `max_order` is no error: the order rule then ends in its last step, as in the kernel.
    fn check(&self) -> Result<(), Error> {
        let refuse = |name: &str, value: &dyn std::fmt::Display, right: &str| {
            Err(Error::new(format!("allocator.{name}"), value, right))
        };
        let Some(era) = Self::era(&self.era) else {
            return Err(Error::unknown("era of slub", &self.era, Self::ERAS));
        };
        let orders = [("order", self.order.unwrap_or(0)), ("min_order", self.min_order), ("max_order", self.max_order)];
        for (name, order) in orders {
            if order > LARGEST_ORDER {
                return refuse(name, &order, "0..10");
            }
        }
        if let Some(order) = self.order {
            let also = [("min_order", self.min_order, era.min_order), ("max_order", self.max_order, era.max_order)];
            for (name, value, default) in also {
                if value != default && value != order {
                    return refuse(name, &value, &format!("{order}, or no order: order = {order} sets it"));
                }
            }
        }
        if !(1..=65536).contains(&self.min_objects) {
            return refuse("min_objects", &self.min_objects, "1..65536");
        }
        if self.defrag_ratio > 1024 {
            return refuse("defrag_ratio", &self.defrag_ratio, "0..1024");
        }
        if !self.kmalloc_max.is_power_of_two() || !(256..=4 << 20).contains(&self.kmalloc_max) {
            return refuse("kmalloc_max", &self.kmalloc_max, "a power of two, 256..4194304");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn impossible_values_are_refused_by_name() {
        for (given, part) in [
            (json!({"order": 11}), "allocator.order = 11: 0..10"),
            (json!({"min_order": 11}), "allocator.min_order = 11"),
            (json!({"max_order": 11}), "allocator.max_order = 11"),
            (json!({"order": 2, "max_order": 3}), "allocator.max_order = 3: 2, or no order"),
            (json!({"min_objects": 0}), "allocator.min_objects = 0: 1..65536"),
            (json!({"min_partial": -1}), "allocator.min_partial = -1"),
            (json!({"first_free": "middle"}), "allocator.first_free = \"middle\": where on the node list"),
            (json!({"defrag_ratio": 1025}), "allocator.defrag_ratio = 1025: 0..1024"),
            (json!({"kmalloc_max": 3000}), "allocator.kmalloc_max = 3000: a power of two"),
            (json!({"kmalloc_max": 8 << 20}), "allocator.kmalloc_max = 8388608"),
            (json!({"merge": 1}), "allocator.merge = 1"),
            (json!({"min_partal": 1}), "did you mean \"min_partial\""),
            (json!({"era": "2.6.42"}), "known: 2.6.24-rc2, 2.6.24"),
        ] {
            let e = Config::from_json(&given).unwrap_err().to_string();
            assert!(e.contains(part), "{given}: {e}");
        }
    }

    #[test]
    fn every_field_is_a_described_parameter() {
        let full = serde_json::to_value(Config::era("2.6.24").unwrap()).unwrap();
        let mut fields: Vec<&str> =
            full.as_object().unwrap().keys().map(String::as_str).filter(|k| *k != "era").collect();
        let mut described: Vec<&str> = Config::PARAMETERS.iter().map(|p| p.name).collect();
        described.sort_unstable();
        fields.sort_unstable();
        assert_eq!(fields, described);
    }

    #[test]
    fn the_order_axis_sets_both_ends() {
        let p = Config::from_json(&json!({"order": 3})).unwrap().policy();
        assert_eq!((p.order.min_order, p.order.max_order), (3, 3));
    }
}
