//! What is decided before the first allocation: tunables, object layout, slab order, batches, colours (slqb.md §2, §4).

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::debug::{Debug, DebugOption, TRACK};
use crate::alloc::geometry::{self, Columns, LARGEST_ORDER, Shape, Slots, Wanted};
use crate::alloc::{Configuration, Parameter};
use crate::error::Error;
use crate::spec::CacheSpec;
use crate::units::{MAX_ORDER, Order, fls, round_up};

/// Where descriptors, CPU and node structures of caches come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metadata {
    /// Three caches of their own, as in the kernel.
    Own,
    /// Nowhere: they cost no memory.
    Free,
}

/// Tunables of SLQB. `None` is the kernel's default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Always `2.6.29`: the final form of 2009.
    pub era: String,
    /// Smallest slab order tried (kernel: slqb_min_order); `None` is 0.
    pub order: Option<u8>,
    /// Smallest number of objects per slab accepted (kernel: slqb_min_objects).
    pub min_objects: u64,
    /// LIFO length above which a batch is flushed; `None` is 4·freebatch.
    pub hiwater: Option<u64>,
    /// Objects of one flush; `None` is the formula of the object size.
    pub freebatch: Option<u64>,
    /// Where the structures of caches lie.
    pub metadata: Metadata,
    /// Debug option as on the kernel's command line (see [`super::debug`]); empty: none.
    pub debug: String,
    /// The original counts an allocation of a CPU without local memory twice: on the node's list and on its own.
    pub quirk_double_count: bool,
    /// The original sets the check flag at the upward crossing of freebatch only, and misses it if freebatch is lowered
    /// below the length that remote_free has.
    pub quirk_lost_crossing: bool,
    /// The original's destruction passes over the CPUs once and loses what its own first pass puts on its rlist.
    pub quirk_destroy_leftovers: bool,
}

impl Configuration for Config {
    const NAME: &'static str = "slqb";
    const ERAS: &'static [&'static str] = &["2.6.29"];
    const DEFAULT_ERA: &'static str = "2.6.29";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter { name: "order", unit: "", meaning: "smallest slab order tried, 0..10 (slqb_min_order; unset: 0)" },
        Parameter {
            name: "min_objects",
            unit: "objects",
            meaning: "fewest objects per slab accepted, 1 or more (slqb_min_objects)",
        },
        Parameter {
            name: "hiwater",
            unit: "objects",
            meaning: "length of a CPU's LIFO above which one batch is flushed, freebatch - 1 or more (unset: 4 freebatch)",
        },
        Parameter {
            name: "freebatch",
            unit: "objects",
            meaning: "objects flushed in one batch, 1 or more (unset: 16 KiB worth or 256 objects within 256 KiB)",
        },
        Parameter {
            name: "metadata",
            unit: "",
            meaning: "where cache, CPU and node structures come from: own (three caches, as in the kernel) or free",
        },
        Parameter {
            name: "debug",
            unit: "",
            meaning: "debug letters F Z P U or - and a prefix of names, as \"FZ,kmalloc\"; empty: none (slqb_debug)",
        },
        Parameter {
            name: "quirk_double_count",
            unit: "",
            meaning: "count an allocation of a CPU without local memory on its own list too, as the original",
        },
        Parameter {
            name: "quirk_lost_crossing",
            unit: "",
            meaning: "miss the check flag when freebatch is lowered below a queue's length, as the original",
        },
        Parameter {
            name: "quirk_destroy_leftovers",
            unit: "",
            meaning: "destroy a cache in one pass, which can leave objects and lose their pages, as the original",
        },
    ];

    fn era(era: &str) -> Option<Self> {
        let defaults = Config {
            era: era.into(),
            order: None,
            min_objects: 1,
            hiwater: None,
            freebatch: None,
            metadata: Metadata::Own,
            debug: String::new(),
            quirk_double_count: true,
            quirk_lost_crossing: true,
            quirk_destroy_leftovers: true,
        };
        (era == "2.6.29").then_some(defaults)
    }

    fn geometry(&self, wanted: &Wanted, shape: &Shape) -> Result<Columns, Error> {
        asked(self, wanted, shape)
    }
    fn check(&self) -> Result<(), Error> {
        if let Some(order) = self.order.filter(|o| usize::from(*o) >= MAX_ORDER) {
            return Err(Error::new("allocator.order", order, "0..10"));
        }
        if self.min_objects == 0 {
            return Err(Error::new("allocator.min_objects", 0, "1 or more"));
        }
        if self.freebatch == Some(0) {
            return Err(Error::new("allocator.freebatch", 0, "1 or more"));
        }
        if let Err(right) = DebugOption::parse(&self.debug) {
            return Err(Error::new("allocator.debug", format!("{:?}", self.debug), right));
        }
        match (self.hiwater, self.freebatch) {
            (Some(h), Some(f)) => check_batches("allocator", h, f),
            _ => Ok(()),
        }
    }
}

/// Refuses a pair that sysfs refuses (slqb.md §13): a batch is 1 or more and at most one longer than the LIFO may be.
pub(super) fn check_batches(part: &str, hiwater: u64, freebatch: u64) -> Result<(), Error> {
    if freebatch == 0 {
        return Err(Error::new(format!("{part}.freebatch"), 0, "1 or more"));
    }
    if hiwater < freebatch - 1 {
        return Err(Error::new(
            format!("{part}.hiwater"),
            hiwater,
            format!("freebatch - 1 = {} or more", freebatch - 1),
        ));
    }
    Ok(())
}

/// Shape of a cache. `objects·size + colour_range = bytes of a slab` without debugging, which has no colours; object `i` of a slab lies at
/// `start + colour + i·size`, its link `offset` bytes further on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes asked for.
    pub object_size: u64,
    /// Alignment of every object.
    pub align: u64,
    /// Stride.
    pub size: u64,
    /// Bytes up to which the object's own data reach.
    pub inuse: u64,
    /// Where in a free object the link to the next one is stored.
    pub offset: u64,
    /// Order of its slabs.
    pub order: Order,
    /// Objects of a slab.
    pub objects: u64,
    /// Objects of one flush.
    pub freebatch: u64,
    /// LIFO length above which a flush is done.
    pub hiwater: u64,
    /// Bytes of a slab left for colouring.
    pub colour_range: u64,
    /// Step from one slab's colour to the next one's.
    pub colour_off: u64,
    /// What is checked in its objects.
    pub debug: Debug,
}

impl Geometry {
    /// The shape of a cache that somebody creates; what the kernel refuses is refused by name (kernel: kmem_cache_create).
    pub fn created(spec: &CacheSpec, config: &Config, shape: &Shape) -> Result<Geometry, Error> {
        if spec.size < 8 {
            return Err(Error::new("cache.size", spec.size, "8 bytes or more: a free object holds a link"));
        }
        if spec.align != 0 && !spec.align.is_power_of_two() {
            return Err(Error::new("cache.align", spec.align, "0 or a power of two"));
        }
        let most = shape.largest();
        for (name, value) in [("cache.size", spec.size), ("cache.align", spec.align)] {
            if value > most {
                return Err(Error::new(name, value, format!("at most {most} bytes: a slab of order 10")));
            }
        }
        Geometry::of(spec, config, shape).ok_or_else(|| {
            let why = format!("{} objects of {} bytes in a slab of {most} bytes", config.min_objects, spec.size);
            Error::new("cache.size", spec.size, format!("a size that allows {why}"))
        })
    }

    /// The shape a cache gets; `None` if no order up to 10 holds `min_objects`.
    pub fn of(spec: &CacheSpec, config: &Config, shape: &Shape) -> Option<Geometry> {
        let debug = DebugOption::parse(&config.debug).expect("an option that check() has seen").of(spec);
        let (align, inuse, offset, size) = layout(spec, debug, shape);
        let order = order(size, u32::from(config.order.unwrap_or(0)), config.min_objects, shape)?;
        let bytes = shape.bytes(order.0.into());
        let objects = bytes / size;
        let (freebatch, hiwater) = batches(size, config, shape);
        Some(Geometry {
            object_size: spec.size,
            align,
            size,
            inuse,
            offset,
            order,
            objects,
            freebatch,
            hiwater,
            colour_range: if debug.any() { 0 } else { bytes - objects * size },
            colour_off: if debug.any() { 0 } else { spec.align.max(shape.line) },
            debug,
        })
    }

    /// The shape of a cache that must exist. One of which no order-10 slab holds min_objects would stop the kernel's boot;
    /// here it takes what fits.
    pub fn fitting(spec: &CacheSpec, config: &Config, shape: &Shape) -> Geometry {
        let relaxed = || Geometry::of(spec, &Config { min_objects: 1, ..config.clone() }, shape);
        Geometry::of(spec, config, shape).or_else(relaxed).expect("2 MiB fit into a slab of order 10")
    }

    /// Bytes of an object that its user may use (kernel: ksize).
    pub fn usable(&self) -> u64 {
        match self.debug {
            debug if debug.red_zone || debug.poison => self.object_size,
            // What lies behind belongs to debugging, or is the link that readers under RCU must not lose.
            debug if debug.user || self.offset > 0 => self.inuse,
            _ => self.size,
        }
    }

    /// The colour after `colour`: one step on, back to 0 at the end of the range.
    pub fn next_colour(&self, colour: u64) -> u64 {
        let next = colour + self.colour_off;
        if next >= self.colour_range { 0 } else { next }
    }

    /// Most objects that one CPU's queues hold at rest when one CPU flushes to it: LIFO, rlist, remote_free (§16).
    pub fn queued_bound(&self) -> u64 {
        self.hiwater + (self.freebatch - 1) + self.hiwater / 2 + self.freebatch
    }
}

/// Alignment, end of the object's own bytes, link offset and stride (§4.1).
fn layout(spec: &CacheSpec, debug: Debug, shape: &Shape) -> (u64, u64, u64, u64) {
    let word = shape.word;
    // The red zone begins right behind the object: it takes the padding, or a word of its own.
    let no_padding = debug.red_zone && spec.size.is_multiple_of(word);
    let inuse = round_up(spec.size, word) + if no_padding { word } else { 0 };
    // What a reader under RCU, a constructor or poison relies on must survive on the free list: the link goes behind it.
    let behind = spec.typesafe_by_rcu || spec.ctor || debug.poison;
    let (offset, mut used) = if behind { (inuse, inuse + word) } else { (0, inuse) };
    // Caller and time are words, CPU and process four bytes each.
    let track = if word == 8 { TRACK } else { 16 };
    used += if debug.user { 2 * track } else { 0 };
    // A guard between neighbours.
    used += if debug.red_zone { word } else { 0 };
    let align = round_up(spec.align.max(spec.halved_line(shape.line)).max(8), 8);
    (align, inuse, offset, round_up(used, align))
}

/// Slab order (§4.2): order 0 or 1 with at most a quarter wasted; otherwise the smallest that holds `min_objects`.
fn order(size: u64, min_order: u32, min_objects: u64, shape: &Shape) -> Option<Order> {
    let top = LARGEST_ORDER;
    let low = slab_order(size, min_order, min_objects, (1, 4), shape);
    let found = if low <= 1 { low } else { slab_order(size, min_order, min_objects, (top, 0), shape) };
    (found <= top).then_some(Order(found as u8))
}

/// First order from the smallest that holds one object up to `max_order` that holds `min_objects` and wastes at most
/// 1/`frac`; above `max_order` if there is none.
fn slab_order(size: u64, min_order: u32, min_objects: u64, (max_order, frac): (u32, u64), shape: &Shape) -> u32 {
    let mut order = fls(size - 1).saturating_sub(shape.page_size.trailing_zeros()).max(min_order);
    while order <= max_order {
        let bytes = shape.bytes(order);
        let n = bytes / size;
        if n > 0 && n >= min_objects && (bytes - n * size) * frac <= bytes {
            return order;
        }
        order += 1;
    }
    order
}

/// freebatch and hiwater (§4.4, §24.16): four pages worth of objects, or 256 objects within 64 pages if that is more.
fn batches(size: u64, config: &Config, shape: &Shape) -> (u64, u64) {
    let formula = (4 * shape.page_size / size).max((64 * shape.page_size / size).min(256)).max(1);
    match (config.freebatch, config.hiwater) {
        (Some(f), Some(h)) => (f, h),
        (Some(f), None) => (f, f.saturating_mul(4)),
        (None, Some(h)) => (formula.min(h.saturating_add(1)), h),
        (None, None) => (formula, 4 * formula),
    }
}

/// `sl.geometry` for SLQB: a cache, or the kmalloc class of a size. There is no way to the page allocator.
fn asked(config: &Config, wanted: &Wanted, shape: &Shape) -> Result<Columns, Error> {
    let (spec, g) = match wanted {
        Wanted::Cache(spec) => (spec.clone(), Geometry::created(spec, config, shape)?),
        Wanted::Kmalloc(bytes) => {
            let most = shape.kmalloc_cap(9);
            let there = |size: &u64| !(*size == 96 && shape.line >= 64 || *size == 192 && shape.line >= 128);
            let sizes = [8, 16, 32, 64, 96, 128, 192].into_iter().chain((8..64).map(|i| 1 << i));
            let class = sizes.filter(there).take_while(|size| *size <= most).find(|size| size >= bytes);
            let size = class.ok_or_else(|| geometry::too_large(*bytes, most))?;
            let spec = CacheSpec::new(format!("kmalloc-{size}"), size).hwcache();
            let g = Geometry::fitting(&spec, config, shape);
            (spec, g)
        }
    };
    let slots = Slots {
        object_size: g.object_size,
        align: g.align,
        slot_size: g.size,
        order: g.order.0.into(),
        objects: g.objects,
        management: 0,
    };
    let letters = [(g.debug.checks, 'F'), (g.debug.red_zone, 'Z'), (g.debug.poison, 'P'), (g.debug.user, 'U')];
    let debug: String = letters.iter().filter(|(on, _)| *on).map(|(_, letter)| letter).collect();
    let mut row = slots.columns(&spec.name, shape);
    row.extend(geometry::columns(json!({
        "inuse": g.inuse,
        "free_pointer": g.offset,
        "colour_range": g.colour_range,
        "colour_off": g.colour_off,
        "freebatch": g.freebatch,
        "hiwater": g.hiwater,
        "remote_limit": g.hiwater / 2,
        "debug": debug,
    })));
    Ok(row)
}

/// Bytes of kmem_cache_cpu and of kmem_cache_node: a list of three lines and what surrounds it.
pub const STRUCT_BYTES: u64 = 256;

/// Bytes of one cache's own structures, without its descriptor: CPU and node structures, and the two pointer arrays.
pub fn structure_bytes(cpus: u64, nodes: u64) -> u64 {
    (cpus + nodes) * (STRUCT_BYTES + 8)
}

/// kmalloc classes on 64-byte lines: powers of two from 8 to 2 MiB, and 192.
pub const KMALLOC: [u64; 20] = {
    let mut sizes = [0; 20];
    let (mut i, mut size) = (0, 8);
    while i < 20 {
        sizes[i] = size;
        size = match size {
            128 => 192,
            192 => 256,
            _ => size * 2,
        };
        i += 1;
    }
    sizes
};

/// Index in [`KMALLOC`] of the class for `bytes` > 0; `None` above 2 MiB. Up to 192 bytes a table, above that fls.
pub fn kmalloc_class(bytes: u64) -> Option<usize> {
    const SMALL: [u8; 24] = {
        let mut table = [0; 24];
        let mut i = 0;
        while i < 24 {
            let mut class = 0;
            while KMALLOC[class] < (i as u64 + 1) * 8 {
                class += 1;
            }
            table[i] = class as u8;
            i += 1;
        }
        table
    };
    if bytes <= 192 {
        return Some(usize::from(SMALL[(bytes as usize - 1) / 8]));
    }
    // 193..256 has fls 8 and class 6, because 192 sits in between.
    let class = fls(bytes - 1) as usize - 2;
    (class < KMALLOC.len()).then_some(class)
}
