//! Every choice in which one SLAB release differs from another, and the configuration in which users write it.
//!
//! [`Policy`] is what the code reads: orthogonal, so that each step of history can be looked at alone. [`Config`] is what
//! crosses the door: era and tunables.

use serde::{Deserialize, Serialize};

use super::super::geometry::{Columns, Shape, Wanted};
use super::super::{Configuration, Parameter};
use super::debug::{Debug, DebugOption};
use super::eras;
pub use super::general::Kmalloc;
use super::geometry::LARGEST_LIMIT;
use crate::error::Error;
use crate::spec::{CacheSpec, Kind};
use crate::units::MAX_ORDER;

/// Largest object of a cache, and of kmalloc (kernel: KMALLOC_MAX_SIZE).
pub(super) const KMALLOC_MAX: u64 = 4 << 20;
/// Most objects of a refill while the CPU's array has not been used since it was made (kernel: BATCHREFILL_LIMIT).
pub(super) const COLD_BATCH: usize = 16;
/// Size of a slab's header without its chain (kernel: struct slab of 2.6.24).
pub(super) const HEADER: u64 = 48;
/// The same on 32-bit machines.
pub(super) const HEADER_32: u64 = 28;
/// Bytes of one chain entry (kernel: kmem_bufctl_t).
pub(super) const CHAIN_ENTRY: u64 = 4;

/// How a slab knows its free objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Management {
    /// A header with a chain of indexes, at the slab's start or in an object of a general cache.
    Chain,
    /// A stack of one-byte indexes: in a free object, in an object of a general cache, or at the slab's end. The page
    /// descriptor is the header.
    Indexes,
}

/// When the colour counter of a node steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourStep {
    /// After use, under `list_lock`, before the pages are asked for: 0, 1, …; a failure uses one up.
    After,
    /// Before use, without a lock, on the node that the pages came from: 1, 2, …
    Before,
}

/// Where a slab goes that a refill had to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSlab {
    /// On the free list; the refill starts again. The lists are looked at under the lock even when they are empty.
    ToFreeList,
    /// Its objects go into the array before it is on a list; empty lists are noticed without the lock.
    IntoArray,
}

/// Which slab is destroyed when a node has more than `free_limit` free objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// The one that a free has just emptied, at once, under `list_lock`.
    JustEmptied,
    /// The last ones of the free list, until the limit is kept, after the lock is released.
    Coldest,
}

/// What marks a shared array as used, so that the reaper spares it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedTouched {
    /// Alien drains: on one node it is trimmed every time.
    ByAliens,
    /// Refills from it.
    ByRefills,
}

/// Where the CPUs' arrays lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuArrays {
    /// In objects of the general caches.
    Kmalloc,
    /// In the per-CPU area: no object, no page of a slab.
    PerCpuArea,
}

/// One release of SLAB as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How a slab knows its free objects.
    pub management: Management,
    /// When the colour counter steps.
    pub colour: ColourStep,
    /// Where a slab goes that a refill had to make.
    pub new_slab: NewSlab,
    /// Which slab is destroyed when there are too many free objects.
    pub excess: Excess,
    /// What marks a shared array as used.
    pub shared_touched: SharedTouched,
    /// Where the CPUs' arrays lie.
    pub cpu_arrays: CpuArrays,
    /// Bytes of an array before its entries.
    pub array_header: u64,
    /// Smallest slot.
    pub min_slot: u64,
    /// The general caches.
    pub kmalloc: Kmalloc,
    /// Kinds of general caches in an ordinary build, as the parameter `kmalloc` has them.
    pub kmalloc_built: &'static str,
    /// Caches of equal slots may share their slabs.
    pub mergeable: bool,
    /// A name can be used once.
    pub unique_names: bool,
}

impl Policy {
    /// Bytes of an array of this capacity.
    pub fn array_bytes(&self, limit: u64) -> u64 {
        self.array_header + 8 * limit
    }
}

/// Where arrays and off-slab management come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metadata {
    /// From the allocator's own general caches, as in the kernel: they count in those caches and in the pages used.
    Kmalloc,
    /// From outside: only the users' objects move through the caches.
    Free,
}

/// Era and tunables of SLAB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Release.
    pub era: String,
    /// Order at which the order search stops; `None`: 1 with more than 32 MiB of memory, else 0.
    pub order: Option<u8>,
    /// Objects of a CPU's array, for every cache; `None`: by size.
    pub limit: Option<u64>,
    /// Objects moved at once; `None`: half the limit. Never more than a cache's limit.
    pub batchcount: Option<u64>,
    /// Capacity of a node's shared array in batches, 0 for none; `None`: 8, or 0 for one CPU or more than a page.
    pub sharedfactor: Option<u64>,
    /// Where arrays and off-slab management come from.
    pub metadata: Metadata,
    /// The reaper runs on every CPU every two seconds.
    pub reaper: bool,
    /// The first trim of a cache's nodes, 4 s after its creation, is put off by its address, by up to 4 s more.
    pub reap_spread: bool,
    /// Caches of equal slots share their slabs, where the era does that (kernel: off with slab_nomerge).
    pub merge: bool,
    /// Nodes keep arrays for objects of other nodes (kernel: off with noaliencache).
    pub aliens: bool,
    /// The indexes of a new slab are a random permutation (kernel: SLAB_FREELIST_RANDOM), in 6.1.
    pub freelist_random: bool,
    /// A free of the object on top of the CPU's array is ignored with a warning (kernel: SLAB_FREELIST_HARDENED), in 6.1.
    pub freelist_hardened: bool,
    /// Kinds of kmalloc that have caches of their own besides the ordinary ones: words of rcl, dma, cg.
    pub kmalloc: String,
    /// `/proc/slabinfo` shows the columns of a build with statistics. They are always counted.
    pub statistics: bool,
    /// Debug option (see [`super::debug`]): letters of F Z P U, and a prefix of names; empty: none.
    pub debug: String,
}

impl Config {
    /// What the code reads.
    pub fn policy(&self) -> &'static Policy {
        eras::policy(&self.era).expect("an era that check() has seen")
    }
    /// What the debug option asks for in a cache.
    pub(super) fn debug_of(&self, spec: &CacheSpec) -> Debug {
        DebugOption::parse(&self.debug).expect("an option that check() has seen").of(spec)
    }
    /// Kinds of kmalloc that have caches.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        self.policy().kmalloc.kinds_of(&self.kmalloc).expect("a list that check() has seen")
    }
}

impl Configuration for Config {
    const NAME: &'static str = "slab";
    const ERAS: &'static [&'static str] = &["2.6.24", "6.1"];
    const DEFAULT_ERA: &'static str = "2.6.24";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter { name: "order", unit: "", meaning: "order at which the search for a slab's order stops, 0..10" },
        Parameter { name: "limit", unit: "objects", meaning: "capacity of each CPU's array in every cache" },
        Parameter {
            name: "batchcount",
            unit: "objects",
            meaning: "objects that a refill or a flush moves, at most limit",
        },
        Parameter { name: "sharedfactor", unit: "batches", meaning: "capacity of a node's shared array, 0 for none" },
        Parameter {
            name: "metadata",
            unit: "",
            meaning: "where arrays and off-slab headers come from: kmalloc (own caches, as in the kernel) or free",
        },
        Parameter {
            name: "reaper",
            unit: "",
            meaning: "the periodic reaper runs, every 2 s on each CPU: true or false",
        },
        Parameter {
            name: "reap_spread",
            unit: "",
            meaning: "a cache's first trim by the reaper is put off by its address, by up to 4 s: true or false",
        },
        Parameter { name: "merge", unit: "", meaning: "caches of equal slots share their slabs (6.1): true or false" },
        Parameter {
            name: "aliens",
            unit: "",
            meaning: "nodes keep arrays for the objects of other nodes, else each goes home alone: true or false",
        },
        Parameter {
            name: "freelist_random",
            unit: "",
            meaning: "objects of a new slab are handed out in random order (6.1): true or false",
        },
        Parameter {
            name: "freelist_hardened",
            unit: "",
            meaning: "an object freed twice in a row is ignored with a warning (6.1): true or false",
        },
        Parameter {
            name: "kmalloc",
            unit: "",
            meaning: "kinds of kmalloc caches besides the ordinary: dma (2.6.24); rcl, dma, cg (6.1); empty: none",
        },
        Parameter {
            name: "statistics",
            unit: "",
            meaning: "slabinfo shows the globalstat and cpustat columns: true or false",
        },
        Parameter {
            name: "debug",
            unit: "",
            meaning: "debug letters F Z P U or - and a prefix of names, as \"FZ,size-\"; empty: none",
        },
    ];

    fn era(era: &str) -> Option<Self> {
        let policy = eras::policy(era)?;
        Some(Config {
            era: era.into(),
            order: None,
            limit: None,
            batchcount: None,
            sharedfactor: None,
            metadata: Metadata::Kmalloc,
            reaper: true,
            reap_spread: true,
            merge: policy.mergeable,
            aliens: true,
            freelist_random: false,
            freelist_hardened: false,
            kmalloc: policy.kmalloc_built.into(),
            statistics: false,
            debug: String::new(),
        })
    }

    fn geometry(&self, wanted: &Wanted, shape: &Shape) -> Result<Columns, Error> {
        super::columns::asked(self, wanted, shape)
    }
    fn check(&self) -> Result<(), Error> {
        let Some(policy) = eras::policy(&self.era) else {
            return Err(Error::unknown("era of slab", &self.era, Self::ERAS));
        };
        if let Some(order) = self.order
            && usize::from(order) >= MAX_ORDER
        {
            return Err(Error::new("allocator.order", order, "0..10"));
        }
        if self.merge && !policy.mergeable {
            return Err(Error::new("allocator.merge", true, format!("false in {}", self.era)));
        }
        let hardening = [("freelist_random", self.freelist_random), ("freelist_hardened", self.freelist_hardened)];
        let early = policy.management == Management::Chain;
        if let Some((name, _)) = hardening.iter().find(|(_, on)| *on && early) {
            return Err(Error::new(format!("allocator.{name}"), true, format!("false in {}: in 6.1", self.era)));
        }
        if let Err(right) = DebugOption::parse(&self.debug) {
            return Err(Error::new("allocator.debug", format!("{:?}", self.debug), right));
        }
        if let Err(right) = policy.kmalloc.kinds_of(&self.kmalloc) {
            return Err(Error::new("allocator.kmalloc", format!("{:?}", self.kmalloc), right));
        }
        let most = (KMALLOC_MAX - policy.array_header) / 8;
        if let Some(limit) = self.limit
            && !(1..=most).contains(&limit)
        {
            return Err(Error::new("allocator.limit", limit, format!("1..{most}: an array is one object of kmalloc")));
        }
        let limit = self.limit.unwrap_or(LARGEST_LIMIT);
        if let Some(batch) = self.batchcount
            && !(1..=limit).contains(&batch)
        {
            return Err(Error::new("allocator.batchcount", batch, format!("1..{limit}, the limit")));
        }
        let batch = self.batchcount.unwrap_or(limit.div_ceil(2));
        match self.sharedfactor {
            Some(factor) if factor > most / batch => Err(Error::new(
                "allocator.sharedfactor",
                factor,
                format!("0..{}: an array is one object of kmalloc", most / batch),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_configurations_are_refused_by_name() {
        for (json, part) in [
            (r#"{"order": 11}"#, "allocator.order = 11: 0..10"),
            (r#"{"limit": 0}"#, "allocator.limit = 0"),
            (r#"{"limit": 10, "batchcount": 11}"#, "allocator.batchcount = 11: 1..10"),
            (r#"{"sharedfactor": 100000}"#, "allocator.sharedfactor = 100000"),
            (r#"{"metadata": "none"}"#, "allocator.metadata"),
            (r#"{"limits": 3}"#, "did you mean \"limit\""),
            (r#"{"era": "2.6.25"}"#, "2.6.24"),
            (r#"{"debug": "Q"}"#, "allocator.debug = \"Q\": letters of F Z P U"),
            (r#"{"kmalloc": "rcl"}"#, "allocator.kmalloc = \"rcl\": a list of dma, or nothing"),
            (r#"{"freelist_random": true}"#, "allocator.freelist_random = true: false in 2.6.24"),
            (r#"{"merge": true}"#, "allocator.merge = true: false in 2.6.24"),
        ] {
            let e = Config::from_json(&serde_json::from_str(json).unwrap()).unwrap_err().to_string();
            assert!(e.contains(part), "{json}: {e}");
        }
    }
}
