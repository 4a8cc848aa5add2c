//! Pure rules of SLAB in 2.6.24: configuration, slot size, objects per slab, order, where management lives, colours,
//! tunables. No state, no machine.

use serde::{Deserialize, Serialize};

use super::super::{Configuration, Parameter};
use crate::error::Error;
use crate::spec::CacheSpec;
use crate::units::{LINE, MAX_ORDER, Order, PAGE_SIZE, round_up};

/// Largest object of a cache, and of kmalloc (kernel: KMALLOC_MAX_SIZE).
pub(super) const KMALLOC_MAX: u64 = 4 << 20;
/// Most objects of a refill while the CPU's array has not been used since it was made (kernel: BATCHREFILL_LIMIT).
pub(super) const COLD_BATCH: usize = 16;
/// Capacity of an alien array.
const ALIEN_LIMIT: u64 = 12;
/// Arrays hold one pointer per object behind a header of this size.
pub(super) const ARRAY_HEADER: u64 = 24;
/// Size of a slab's header without its chain (kernel: struct slab).
pub(super) const HEADER: u64 = 48;
/// Bytes of one chain entry (kernel: kmem_bufctl_t).
pub(super) const CHAIN_ENTRY: u64 = 4;
/// Size from which management is tried outside the slab.
const OFF_SLAB_MIN: u64 = PAGE_SIZE / 8;
/// Memory above which a slab may have order 1.
const BIG_MEMORY: u64 = 32 << 20;

/// Where arrays and off-slab headers come from.
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
    /// `2.6.24`.
    pub era: String,
    /// Order at which the order search stops; `None`: 1 with more than 32 MiB of memory, else 0.
    pub order: Option<u8>,
    /// Objects of a CPU's array, for every cache; `None`: by size.
    pub limit: Option<u64>,
    /// Objects moved at once; `None`: half the limit. Never more than a cache's limit.
    pub batchcount: Option<u64>,
    /// Capacity of a node's shared array in batches, 0 for none; `None`: 8, or 0 for one CPU or more than a page.
    pub sharedfactor: Option<u64>,
    /// Where arrays and off-slab headers come from.
    pub metadata: Metadata,
    /// The reaper runs on every CPU every two seconds.
    pub reaper: bool,
    /// The first trim of a cache's nodes, 4 s after its creation, is put off by its address, by up to 4 s more.
    pub reap_spread: bool,
}

impl Configuration for Config {
    const NAME: &'static str = "slab";
    const ERAS: &'static [&'static str] = &["2.6.24"];
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
    ];

    fn era(era: &str) -> Option<Self> {
        (era == "2.6.24").then(|| Config {
            era: era.into(),
            order: None,
            limit: None,
            batchcount: None,
            sharedfactor: None,
            metadata: Metadata::Kmalloc,
            reaper: true,
            reap_spread: true,
        })
    }

    fn check(&self) -> Result<(), Error> {
        if let Some(order) = self.order
            && usize::from(order) >= MAX_ORDER
        {
            return Err(Error::new("allocator.order", order, "0..10"));
        }
        let most = (KMALLOC_MAX - ARRAY_HEADER) / 8;
        if let Some(limit) = self.limit
            && !(1..=most).contains(&limit)
        {
            return Err(Error::new("allocator.limit", limit, format!("1..{most}: an array is one object of kmalloc")));
        }
        let limit = self.limit.unwrap_or(TABLE[TABLE.len() - 1].1);
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

/// Tunables of one cache: `1 ≤ batch ≤ limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tunables {
    pub(super) limit: u64,
    pub(super) batch: u64,
    pub(super) sharedfactor: u64,
}

/// Slots above this size get this limit; largest size first.
const TABLE: [(u64, u64); 5] = [(131_072, 1), (PAGE_SIZE, 8), (1024, 24), (256, 54), (0, 120)];

impl Tunables {
    /// Tunables of a cache of this slot size on a machine of `cpus` CPUs (kernel: enable_cpucache).
    pub(super) fn new(config: &Config, slot: u64, cpus: usize) -> Tunables {
        let by_size = TABLE.iter().find(|(above, _)| slot > *above).map_or(1, |(_, limit)| *limit);
        let limit = config.limit.unwrap_or(by_size);
        let batch = config.batchcount.map_or(limit.div_ceil(2), |b| b.min(limit));
        let shared = if slot <= PAGE_SIZE && cpus > 1 { 8 } else { 0 };
        Tunables { limit, batch, sharedfactor: config.sharedfactor.unwrap_or(shared) }
    }
    /// Capacity of a shared array.
    pub(super) fn shared_limit(&self) -> u64 {
        self.sharedfactor * self.batch
    }
    /// Capacity of an alien array.
    pub(super) fn alien_limit(&self) -> u64 {
        if self.limit > 1 { ALIEN_LIMIT } else { self.limit }
    }
}

/// Bytes of an array of this capacity.
pub(super) fn array_bytes(limit: u64) -> u64 {
    ARRAY_HEADER + 8 * limit
}

/// The fixed shape of a cache's slabs. `management in the slab + num·slot + left = bytes of the block`,
/// `colour·colour_off ≤ left`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Bytes from one object to the next.
    pub(super) slot: u64,
    pub(super) align: u64,
    pub(super) order: Order,
    /// Objects per slab.
    pub(super) num: u64,
    /// Header and chain, with padding if they lie in the slab.
    pub(super) management: u64,
    pub(super) off_slab: bool,
    /// Bytes of the block that nothing uses.
    pub(super) left: u64,
    /// Number of colours.
    pub(super) colour: u64,
    /// Bytes between two colours.
    pub(super) colour_off: u64,
    /// The order search was told to stop at an order that cannot hold one object.
    pub(super) order_raised: bool,
}

/// Order at which the search stops, given all memory of the machine.
pub(super) fn order_break(config: &Config, memory: u64) -> u8 {
    config.order.unwrap_or(u8::from(memory > BIG_MEMORY))
}

impl Geometry {
    /// Shape of the slabs of `spec` (kernel: kmem_cache_create, calculate_slab_order).
    pub(super) fn new(spec: &CacheSpec, order_break: u8) -> Result<Geometry, Error> {
        if !(8..=KMALLOC_MAX).contains(&spec.size) {
            return Err(Error::new("cache.size", spec.size, format!("8..{KMALLOC_MAX} bytes")));
        }
        if spec.align != 0 && (!spec.align.is_power_of_two() || spec.align > KMALLOC_MAX) {
            return Err(Error::new("cache.align", spec.align, format!("0 or a power of two up to {KMALLOC_MAX}")));
        }
        let size = round_up(spec.size, 8);
        let align = CacheSpec { size, ..spec.clone() }.halved_line().max(8).max(spec.align);
        let tentative = size >= OFF_SLAB_MIN;
        let slot = round_up(size, align);
        let (order, num, left) =
            search(slot, align, tentative, spec.reclaim_account, order_break).ok_or_else(|| {
                Error::new("cache.size", spec.size, format!("an object of {slot} bytes that fits a block of order 10"))
            })?;
        // Off-slab management that fits in what is left over moves back into the slab.
        let padded = round_up(HEADER + CHAIN_ENTRY * num, align);
        let off_slab = tentative && left < padded;
        let left = if tentative && !off_slab { left - padded } else { left };
        let management = if off_slab { HEADER + CHAIN_ENTRY * num } else { padded };
        let colour_off = LINE.max(align);
        Ok(Geometry {
            slot,
            align,
            order,
            num,
            management,
            off_slab,
            left,
            colour: left / colour_off,
            colour_off,
            order_raised: order.0 > order_break,
        })
    }
}

/// The first order that wastes at most 1/8, or the last one allowed: (order, objects, bytes left).
fn search(slot: u64, align: u64, off_slab: bool, first_fit: bool, order_break: u8) -> Option<(Order, u64, u64)> {
    let mut found = None;
    for order in (0..MAX_ORDER as u8).map(Order) {
        let (num, left) = fit(slot, align, off_slab, order.bytes());
        if num == 0 {
            continue;
        }
        // A chain longer than a slot could need a header from a cache with off-slab headers itself.
        if off_slab && num > (slot - HEADER) / CHAIN_ENTRY {
            break;
        }
        found = Some((order, num, left));
        if first_fit || order.0 >= order_break || left * 8 <= order.bytes() {
            break;
        }
    }
    found
}

/// Objects in a block of `bytes`, and what is left (kernel: cache_estimate).
fn fit(slot: u64, align: u64, off_slab: bool, bytes: u64) -> (u64, u64) {
    if off_slab {
        return (bytes / slot, bytes % slot);
    }
    let management = |n: u64| round_up(HEADER + CHAIN_ENTRY * n, align);
    let mut n = (bytes - HEADER) / (slot + CHAIN_ENTRY);
    if n > 0 && management(n) + n * slot > bytes {
        n -= 1;
    }
    (n, bytes.saturating_sub(n * slot + management(n)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::era("2.6.24").unwrap()
    }
    fn spec(size: u64, align: u64, hwcache: bool, reclaim: bool) -> CacheSpec {
        CacheSpec { align, hwcache_align: hwcache, reclaim_account: reclaim, ..CacheSpec::new("t", size) }
    }

    /// slot, num, order, management, off-slab, left, colour.
    type Shape = (u64, u64, u8, u64, bool, u64, u64);
    fn shape(spec: &CacheSpec, order_break: u8) -> Shape {
        let g = Geometry::new(spec, order_break).unwrap();
        let in_slab = if g.off_slab { 0 } else { g.management };
        assert_eq!(in_slab + g.num * g.slot + g.left, g.order.bytes(), "{spec:?}");
        assert!(g.colour * g.colour_off <= g.left);
        (g.slot, g.num, g.order.0, g.management, g.off_slab, g.left, g.colour)
    }

    #[test]
    fn general_caches_have_the_shape_and_tunables_of_example_e1() {
        let rows: [(Shape, (u64, u64, u64)); 12] = [
            ((32, 112, 0, 512, false, 0, 0), (120, 60, 8)),
            ((64, 59, 0, 320, false, 0, 0), (120, 60, 8)),
            ((128, 30, 0, 192, false, 64, 1), (120, 60, 8)),
            ((192, 20, 0, 128, false, 128, 2), (120, 60, 8)),
            ((256, 15, 0, 128, false, 128, 2), (120, 60, 8)),
            ((512, 8, 0, 80, true, 0, 0), (54, 27, 8)),
            ((1024, 4, 0, 64, true, 0, 0), (54, 27, 8)),
            ((2048, 2, 0, 56, true, 0, 0), (24, 12, 8)),
            ((4096, 1, 0, 52, true, 0, 0), (24, 12, 8)),
            ((8192, 1, 1, 52, true, 0, 0), (8, 4, 0)),
            ((131_072, 1, 5, 52, true, 0, 0), (8, 4, 0)),
            ((262_144, 1, 6, 52, true, 0, 0), (1, 1, 0)),
        ];
        for (expected, (limit, batch, sharedfactor)) in rows {
            assert_eq!(shape(&CacheSpec::new("size", expected.0).hwcache(), 1), expected);
            let t = |cpus| Tunables::new(&config(), expected.0, cpus);
            assert_eq!(t(8), Tunables { limit, batch, sharedfactor }, "{}", expected.0);
            assert_eq!(t(1).sharedfactor, 0, "one CPU shares with nobody");
        }
    }

    #[test]
    fn other_caches_have_the_shape_of_example_e2() {
        let rows: [(CacheSpec, u8, Shape); 16] = [
            (spec(8, 0, false, false), 1, (8, 337, 0, 1400, false, 0, 0)),
            (spec(24, 0, false, false), 1, (24, 144, 0, 624, false, 16, 0)),
            (spec(40, 0, false, false), 1, (40, 92, 0, 416, false, 0, 0)),
            (spec(104, 0, false, false), 1, (104, 37, 0, 200, false, 48, 0)),
            (spec(104, 0, true, false), 1, (128, 30, 0, 192, false, 64, 1)),
            (spec(200, 0, false, false), 1, (200, 19, 0, 128, false, 168, 2)),
            (spec(500, 0, false, false), 1, (504, 7, 0, 80, false, 488, 7)),
            (spec(513, 0, false, false), 1, (520, 7, 0, 80, false, 376, 5)),
            (spec(700, 0, false, false), 1, (704, 11, 1, 96, false, 352, 5)),
            (spec(700, 0, false, false), 0, (704, 5, 0, 72, false, 504, 7)),
            (spec(1016, 0, false, false), 1, (1016, 4, 0, 64, true, 32, 0)),
            (spec(1360, 16, false, false), 1, (1360, 3, 0, 60, true, 16, 0)),
            (spec(1400, 0, false, false), 1, (1400, 5, 1, 72, false, 1120, 17)),
            (spec(1400, 0, false, true), 1, (1400, 2, 0, 56, false, 1240, 19)),
            (spec(3000, 0, false, false), 1, (3000, 2, 1, 56, false, 2136, 33)),
            (spec(5000, 0, false, false), 1, (5000, 1, 1, 56, false, 3136, 49)),
        ];
        for (spec, stop, expected) in rows {
            assert_eq!(shape(&spec, stop), expected, "{spec:?}");
        }
    }

    #[test]
    fn arrays_have_the_sizes_of_example_e13() {
        for (entries, bytes) in
            [(120, 984), (54, 456), (24, 216), (8, 88), (480, 3864), (216, 1752), (96, 792), (12, 120)]
        {
            assert_eq!(array_bytes(entries), bytes);
        }
        let t = Tunables::new(&config(), 256, 8);
        assert_eq!(8 * t.limit + t.shared_limit(), 1440, "a small cache can park this many objects on 8 CPUs");
    }

    #[test]
    fn every_shape_is_consistent_and_off_slab_headers_stay_small() {
        for order_break in [0, 1, 3, 10] {
            for size in (8..9000).step_by(4) {
                let s = spec(size, 0, size % 3 == 0, size % 5 == 0);
                let (slot, num, order, management, off_slab, ..) = shape(&s, order_break);
                assert!(num > 0 && slot >= size && Order(order).bytes() >= num * slot);
                // So a header never needs a cache that has off-slab headers itself.
                assert!(!off_slab || management <= 128, "{size}: {management}");
            }
        }
    }

    #[test]
    fn an_order_that_cannot_hold_one_object_is_raised_and_flagged() {
        let g = Geometry::new(&CacheSpec::new("t", 20_000), 1).unwrap();
        assert_eq!((g.order, g.order_raised), (Order(3), true));
        assert!(!Geometry::new(&CacheSpec::new("t", 4096), 0).unwrap().order_raised);
    }

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
        ] {
            let e = Config::from_json(&serde_json::from_str(json).unwrap()).unwrap_err().to_string();
            assert!(e.contains(part), "{json}: {e}");
        }
    }
}
