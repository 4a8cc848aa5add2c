//! The configuration in which users write a policy: the era's values, any of which may be replaced.

use serde::{Deserialize, Serialize};

use super::debug::DebugOption;
use super::eras;
use super::percache::PerCache;
use super::policy::*;
use crate::alloc::geometry::{Columns, Shape, Wanted};
use crate::alloc::{Configuration, Parameter, kinds};
use crate::error::Error;
use crate::spec::Kind;
use crate::units::PAGE_SIZE;

/// Most objects of a sheaf that can be asked for.
pub(super) const LARGEST_SHEAF: u64 = 4096;
/// Most sheaves of a kind that a barn can be told to keep.
pub(super) const LARGEST_BARN: u64 = 1 << 20;

/// Era and tunables of SLUB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Release.
    pub era: String,
    /// Common order axis: `min_order` = `max_order` = this.
    pub order: Option<u8>,
    /// See [`Tunables`].
    #[serde(flatten)]
    pub t: Tunables,
    /// Kinds of kmalloc that have caches of their own besides the ordinary ones: words of rcl, dma, cg.
    pub kmalloc: String,
    /// Debug option, as on the kernel's command line (see [`super::debug`]).
    pub debug: String,
    /// Tunables of single caches (see [`super::percache`]).
    pub per_cache: String,
}

impl Config {
    /// What the code reads: the era with the tunables in place.
    pub fn policy(&self) -> Policy {
        let era = eras::policy(&self.era).expect("an era that check() has seen");
        let min_order = self.order.unwrap_or(self.t.min_order);
        let max_order = self.order.unwrap_or(self.t.max_order);
        Policy { t: Tunables { min_order, max_order, ..self.t }, ..era }
    }
    /// Kinds of kmalloc that have caches.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        kinds::listed(self.policy().kmalloc_kinds, &self.kmalloc).expect("a list that check() has seen")
    }
    /// The debug option, parsed.
    pub(super) fn debug_option(&self) -> DebugOption {
        DebugOption::parse(&self.debug, &self.policy()).expect("an option that check() has seen")
    }

    /// The tunables of single caches, parsed.
    pub(super) fn per_cache_option(&self) -> PerCache {
        PerCache::parse(&self.per_cache, &self.policy()).expect("an option that check() has seen")
    }

    /// Refuses orders that do not exist or contradict each other.
    fn check_orders(&self, era: &Tunables) -> Result<(), Error> {
        let orders =
            [("order", self.order.unwrap_or(0)), ("min_order", self.t.min_order), ("max_order", self.t.max_order)];
        for (name, order) in orders {
            if order > LARGEST_ORDER {
                return refuse(name, order, "0..10 (since 2.6.22)");
            }
        }
        if let Some(order) = self.order {
            let also = [("min_order", self.t.min_order, era.min_order), ("max_order", self.t.max_order, era.max_order)];
            for (name, value, default) in also {
                if value != default && value != order {
                    return refuse(name, value, format!("{order}, or no order: order = {order} sets it"));
                }
            }
        } else if self.t.min_order > self.t.max_order {
            let right = format!("at most max_order, which is {}", self.t.max_order);
            return refuse("min_order", self.t.min_order, right);
        }
        Ok(())
    }

    /// Refuses policies that need one another and are not together.
    fn check_paths(&self, era: &Policy) -> Result<(), Error> {
        let t = &self.t;
        let lockless = t.slow_path == SlowPath::Lockless;
        match t.fast_path {
            FastPath::SlabLock | FastPath::Descriptor if lockless => {
                let right = "irq_off, double_cas or sheaf with slow_path = lockless (since 3.1)";
                return refuse("fast_path", written(&t.fast_path), right);
            }
            FastPath::Sheaf if !lockless || era.sheaves.is_none() => {
                return refuse(
                    "fast_path",
                    written(&t.fast_path),
                    format!("one with cpu slabs in {}: sheaf exists since 6.18", self.era),
                );
            }
            _ => {}
        }
        if self.policy().has_cpu_partial() && (!lockless || t.fast_path == FastPath::Sheaf) {
            let right = format!(
                "none in {} with slow_path = {}, fast_path = {}: per-CPU partial lists exist from 3.2 to 6.18 and need \
                 lockless slabs (since 3.1) and cpu slabs",
                self.era,
                written(&t.slow_path),
                written(&t.fast_path)
            );
            return refuse("cpu_partial", written(&t.cpu_partial), right);
        }
        if !self.policy().has_cpu_partial() && t.cpu_partial_count != era.t.cpu_partial_count {
            let right = format!("{} where there are no per-CPU partial lists", written(&era.t.cpu_partial_count));
            return refuse("cpu_partial_count", written(&t.cpu_partial_count), right);
        }
        if let CpuPartial::Objects(n) = t.cpu_partial
            && n > LOCKLESS_OBJECTS
        {
            return refuse("cpu_partial", n, "0..32767, none or by_size (since 3.2)");
        }
        if t.delayed_freezing && !lockless {
            return refuse("delayed_freezing", true, "false with slow_path = locked: it exists since 6.8");
        }
        if era.sheaves.is_none() && t.sheaf_capacity != SheafCapacity::Rule(SheafRule::None) {
            let right = format!("none in {}: sheaves exist since 6.18", self.era);
            return refuse("sheaf_capacity", written(&t.sheaf_capacity), right);
        }
        if let SheafCapacity::Objects(n) = t.sheaf_capacity
            && !(1..=LARGEST_SHEAF).contains(&n)
        {
            return refuse("sheaf_capacity", n, "1..4096, none, by_creator or by_size (since 6.18)");
        }
        for (name, value) in [("barn_max_full", t.barn_max_full), ("barn_max_empty", t.barn_max_empty)] {
            if era.sheaves.is_none() && value != 10 {
                return refuse(name, value, format!("10 in {}, which has no barns: they exist since 6.18", self.era));
            }
            if t.sheaf_capacity == SheafCapacity::Rule(SheafRule::None) && value != 10 {
                return refuse(name, value, "10 with sheaf_capacity = none: barns hold sheaves");
            }
            if value > LARGEST_BARN {
                return refuse(name, value, "0..1048576 (since 6.18)");
            }
        }
        for (name, on, since) in
            [("freelist_hardened", t.freelist_hardened, "4.14"), ("freelist_random", t.freelist_random, "4.8")]
        {
            if on && !(era.modern_layout && lockless) {
                return refuse(name, true, format!("false in {}: it exists since {since}", self.era));
            }
        }
        if t.kmalloc_random && era.t.order_search != OrderSearch::FitFrom16 {
            return refuse("kmalloc_random", true, format!("false in {}: it exists since 6.6", self.era));
        }
        Ok(())
    }
}

fn refuse(name: &str, value: impl std::fmt::Display, right: impl Into<String>) -> Result<(), Error> {
    Err(Error::new(format!("allocator.{name}"), value, right))
}

/// A value as it is written in a configuration.
fn written<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data").replace('"', "")
}

impl Configuration for Config {
    const NAME: &'static str = "slub";
    const ERAS: &'static [&'static str] = &ERA_NAMES;
    const DEFAULT_ERA: &'static str = "2.6.24";
    const PARAMETERS: &'static [Parameter] = &[
        parameter("order", "", "order of every slab: min_order = max_order = order, 0..10, or null (since 2.6.22)"),
        parameter("min_order", "", "smallest slab order tried, 0..10, at most max_order (since 2.6.22)"),
        parameter("max_order", "", "largest slab order tried while the object fits, 0..10 (since 2.6.22)"),
        parameter(
            "min_objects",
            "objects",
            "objects a slab should hold, 1..65536 (since 2.6.22), or by_cpus: 4 (fls(CPUs) + 1) (since 2.6.26)",
        ),
        parameter("order_search", "", "halve_from8, halve_from16 (2.6.26), step_from16 (2.6.30) or fit_from16 (6.7)"),
        parameter(
            "order_fallback",
            "",
            "without pages of the preferred order: none, kmalloc_block (2.6.25) or min_order (2.6.26)",
        ),
        parameter(
            "min_partial",
            "slabs",
            "partial slabs a node keeps before it returns empty ones: a number, log2 (2.6.27) or half_log2 (3.2)",
        ),
        parameter("first_free", "", "where on the node list a full slab goes at its first free: head or tail"),
        parameter(
            "deactivate",
            "",
            "where a given-up partial cpu slab goes: head, tail_unless_private (2.6.25), head_unless_remote (3.1)",
        ),
        parameter(
            "discard_empty",
            "",
            "empty slabs are returned: freed_always, above min_partial (3.1), from min_partial (3.16)",
        ),
        parameter(
            "remote_node_defrag_ratio",
            "of 1024",
            "how often an allocation looks at other nodes' partial slabs, 0 (never) .. 1024 (always)",
        ),
        parameter(
            "named_node",
            "",
            "a named node's partial slabs, then_any node's, then_new slab (3.1), or two_attempts (6.12)",
        ),
        parameter(
            "kmalloc_max",
            "bytes",
            "largest kmalloc served from a cache, a power of two, 256..4194304; larger ones take pages",
        ),
        parameter("kmalloc_order3", "", "kmalloc caches of few objects a page get order 3: true (2.6.25) or false"),
        parameter("kmalloc_random", "", "each kmalloc class exists sixteen times: true or false (since 6.6)"),
        parameter("merge", "", "caches of equal slots share their slabs: true or false"),
        parameter("merge_walk", "", "which cache is shared, if several could be: newest or oldest (3.18)"),
        parameter("hw_align", "", "what HWCACHE_ALIGN aligns to: whole_line or halved_line (2.6.25)"),
        parameter("free_pointer", "", "place of the free pointer in a free object: start or middle (5.7)"),
        parameter("freelist_hardened", "", "free pointers are stored XORed with a secret: true or false (since 4.14)"),
        parameter("freelist_random", "", "new slabs are linked in random order: true or false (since 4.8)"),
        parameter(
            "fast_path",
            "",
            "slab_lock, descriptor (2.6.22), irq_off (2.6.24), double_cas (2.6.39) or sheaf (7.0)",
        ),
        parameter("slow_path", "", "what guards a slab: locked, or lockless (3.1)"),
        parameter("atomic_unlock", "", "the slab lock is released by a locked operation: true, or false (2.6.25)"),
        parameter(
            "cpu_partial",
            "objects",
            "free objects on each CPU's list of partial slabs: a number, by_size or none (since 3.2)",
        ),
        parameter("cpu_partial_count", "", "what limits that list: objects (3.2) or slabs (5.16)"),
        parameter("delayed_freezing", "", "slabs are frozen when used, not when listed: true (6.8) or false"),
        parameter(
            "sheaf_capacity",
            "objects",
            "objects of each CPU's sheaves: a number, by_creator (since 6.18), by_size (since 7.0) or none",
        ),
        parameter("barn_max_full", "sheaves", "full sheaves a node's barn takes (since 6.18)"),
        parameter("barn_max_empty", "sheaves", "empty sheaves it keeps after RCU frees (since 6.18)"),
        parameter(
            "kmalloc",
            "",
            "kinds of kmalloc caches besides the ordinary: dma; since 6.1 also rcl and cg; empty: none",
        ),
        parameter("debug", "", "debug letters F Z P U T O A and names, as on the kernel's command line; empty: none"),
        parameter(
            "per_cache",
            "",
            "tunables of single caches, as kmalloc-512:min_partial=20,cpu_partial=0;dentry*:order=1; empty: none",
        ),
    ];

    fn era(era: &str) -> Option<Self> {
        Self::era_on(era, PAGE_SIZE)
    }
    fn era_on(era: &str, page_size: u64) -> Option<Self> {
        let p = eras::policy(era)?.on_pages(page_size);
        Some(Config {
            era: era.into(),
            order: None,
            t: p.t,
            kmalloc: p.kmalloc_built.into(),
            debug: String::new(),
            per_cache: String::new(),
        })
    }
    fn geometry(&self, wanted: &Wanted, shape: &Shape) -> Result<Columns, Error> {
        super::asked::geometry(self, wanted, shape)
    }

    fn check(&self) -> Result<(), Error> {
        self.check_on(PAGE_SIZE)
    }
    fn check_on(&self, page_size: u64) -> Result<(), Error> {
        let Some(era) = eras::policy(&self.era) else {
            return Err(Error::unknown("era of slub", &self.era, Self::ERAS));
        };
        let era = era.on_pages(page_size);
        self.check_orders(&era.t)?;
        if let MinObjects::Objects(n) = self.t.min_objects
            && !(1..=65_536).contains(&n)
        {
            return refuse(
                "min_objects",
                n,
                "1..65536 (since 2.6.22), or by_cpus: from the number of CPUs (since 2.6.26)",
            );
        }
        if self.t.remote_node_defrag_ratio > 1024 {
            return refuse("remote_node_defrag_ratio", self.t.remote_node_defrag_ratio, "0..1024 (since 2.6.22)");
        }
        if !self.t.kmalloc_max.is_power_of_two() || !(256..=4 << 20).contains(&self.t.kmalloc_max) {
            return refuse("kmalloc_max", self.t.kmalloc_max, "a power of two, 256..4194304");
        }
        self.check_paths(&era)?;
        if let Err(right) = kinds::listed(era.kmalloc_kinds, &self.kmalloc) {
            let since = if era.modern_layout { "" } else { " (rcl and cg: since 6.1)" };
            return refuse("kmalloc", format!("{:?}", self.kmalloc), right + since);
        }
        if let Err(right) = DebugOption::parse(&self.debug, &self.policy()) {
            return refuse("debug", format!("{:?}", self.debug), right);
        }
        match PerCache::parse(&self.per_cache, &self.policy()) {
            Ok(_) => Ok(()),
            Err(right) => refuse("per_cache", format!("{:?}", self.per_cache), right),
        }
    }
}

const fn parameter(name: &'static str, unit: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, unit, meaning }
}

const ERA_NAMES: [&str; eras::ALL.len()] = {
    let mut names = [""; eras::ALL.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = eras::ALL[i].0;
        i += 1;
    }
    names
};

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn impossible_values_are_refused_by_name() {
        for (given, part) in [
            (json!({"order": 11}), "allocator.order = 11: 0..10"),
            (json!({"min_order": 11}), "allocator.min_order = 11"),
            (json!({"max_order": 11}), "allocator.max_order = 11: 0..10 (since 2.6.22)"),
            (
                json!({"max_order": -1}),
                "allocator.max_order = -1: largest slab order tried while the object fits, 0..10 (since 2.6.22)",
            ),
            (json!({"order": 2, "max_order": 3}), "allocator.max_order = 3: 2, or no order"),
            (json!({"min_order": 2}), "allocator.min_order = 2: at most max_order, which is 1"),
            (json!({"min_objects": 0}), "allocator.min_objects = 0: 1..65536 (since 2.6.22)"),
            (json!({"min_partial": -1}), "allocator.min_partial = -1"),
            (json!({"first_free": "middle"}), "allocator.first_free = \"middle\": where on the node list"),
            (json!({"remote_node_defrag_ratio": 1025}), "allocator.remote_node_defrag_ratio = 1025: 0..1024"),
            (json!({"kmalloc_max": 3000}), "allocator.kmalloc_max = 3000: a power of two"),
            (json!({"kmalloc_max": 8 << 20}), "allocator.kmalloc_max = 8388608"),
            (json!({"merge": 1}), "allocator.merge = 1"),
            (json!({"min_partal": 1}), "did you mean \"min_partial\""),
            (json!({"era": "2.6.42"}), "known: 2.6.21-mm1, 2.6.22"),
            (json!({"era": "3.3"}), "did you mean \"3.1\"? known: 2.6.21-mm1"),
            (json!({"per_cache": "a:order=11"}), "allocator.per_cache = \"a:order=11\": order of 0..10"),
            (json!({"debug": "Q"}), "allocator.debug = \"Q\": letters of F Z P U T (since 2.6.22)"),
            (json!({"sheaf_capacity": 32}), "allocator.sheaf_capacity = 32: none in 2.6.24: sheaves exist since 6.18"),
            (json!({"era": "6.8", "sheaf_capacity": "by_size"}), "allocator.sheaf_capacity = by_size: none in 6.8"),
            (json!({"era": "6.18", "sheaf_capacity": 0}), "allocator.sheaf_capacity = 0: 1..4096"),
            (json!({"barn_max_full": 3}), "allocator.barn_max_full = 3: 10 in 2.6.24"),
            (json!({"cpu_partial": 30}), "allocator.cpu_partial = 30: none in 2.6.24"),
            (json!({"cpu_partial": 30}), "exist from 3.2"),
            (json!({"cpu_partial_count": "slabs"}), "allocator.cpu_partial_count = slabs: objects where there are no"),
            (json!({"era": "7.1", "sheaf_capacity": "none", "barn_max_full": 3}), "barn_max_full = 3: 10 with sheaf"),
            (json!({"era": "7.1", "cpu_partial": "by_size"}), "allocator.cpu_partial = by_size: none in 7.1"),
            (json!({"era": "3.1", "fast_path": "slab_lock"}), "allocator.fast_path = slab_lock: irq_off"),
            (json!({"era": "6.1", "fast_path": "sheaf"}), "sheaf exists since 6.18"),
            (json!({"delayed_freezing": true}), "exists since 6.8"),
            (
                json!({"era": "6.1", "kmalloc_random": true}),
                "allocator.kmalloc_random = true: false in 6.1: it exists since 6.6",
            ),
            (
                json!({"kmalloc": "rcl"}),
                "allocator.kmalloc = \"rcl\": a list of dma, or nothing (rcl and cg: since 6.1)",
            ),
            (
                json!({"era": "6.1", "kmalloc": "dam"}),
                "allocator.kmalloc = \"dam\": a list of rcl, dma, cg, or nothing",
            ),
            (json!({"era": "3.2", "freelist_hardened": true}), "false in 3.2: it exists since 4.14"),
            (
                json!({"freelist_random": true}),
                "allocator.freelist_random = true: false in 2.6.24: it exists since 4.8",
            ),
        ] {
            let e = Config::from_json(&given).unwrap_err().to_string();
            assert!(e.contains(part), "{given}: {e}");
        }
    }

    #[test]
    fn single_policies_are_switched_alone() {
        for given in [
            json!({"era": "3.1", "cpu_partial": 30}),
            json!({"era": "7.1", "sheaf_capacity": 32, "barn_max_full": 10}),
            json!({"era": "2.6.24", "fast_path": "slab_lock"}),
            json!({"era": "2.6.31", "fast_path": "double-cas"}),
            json!({"era": "6.1", "cpu_partial": "none"}),
            json!({"era": "6.1", "min_partial": 10, "debug": "FZPU"}),
            json!({"era": "6.18", "sheaf_capacity": 32}),
            json!({"era": "2.6.24", "min_objects": "by_cpus"}),
        ] {
            Config::from_json(&given).unwrap_or_else(|e| panic!("{given}: {e}"));
        }
    }

    #[test]
    fn every_field_is_a_described_parameter_in_the_same_order() {
        for era in Config::ERAS {
            let full = serde_json::to_value(Config::era(era).unwrap()).unwrap();
            let fields: Vec<&str> =
                full.as_object().unwrap().keys().map(String::as_str).filter(|k| *k != "era").collect();
            let described: Vec<&str> = Config::PARAMETERS.iter().map(|p| p.name).collect();
            assert_eq!(fields, described);
            assert_eq!(Config::from_json(&full).unwrap(), Config::era(era).unwrap(), "{era}");
        }
    }

    #[test]
    fn the_order_axis_sets_both_ends() {
        let p = Config::from_json(&json!({"order": 3})).unwrap().policy();
        assert_eq!((p.t.min_order, p.t.max_order), (3, 3));
    }
}
