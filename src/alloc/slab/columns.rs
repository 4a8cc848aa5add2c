//! What a cache looks like from outside before anything is allocated: the columns of the recordings, as a pure function.

use serde_json::{Value, json};

use super::geometry::{Geometry, Place, Tunables, kmalloc_spec};
use super::policy::Config;
use crate::alloc::geometry::{self as asked, LARGEST_ORDER, Shape, Slots, Wanted};
use crate::error::Error;
use crate::spec::{CacheSpec, Kind};

/// Flag bits of a cache as kernels print them (kernel: SLAB_HWCACHE_ALIGN, …, CFLGS_OBJFREELIST_SLAB, CFLGS_OFF_SLAB).
const HWCACHE_ALIGN: u64 = 0x2000;
const RECLAIM_ACCOUNT: u64 = 0x2_0000;
const TYPESAFE_BY_RCU: u64 = 0x8_0000;
const OBJFREELIST: u64 = 0x4000_0000;
const OFF_SLAB: u64 = 0x8000_0000;

/// Shape and tunables of a cache. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Bytes the creator asked for.
    pub object_size: u64,
    /// Alignment of the objects.
    pub align: u64,
    /// Bytes of a slot.
    pub slab_size: u64,
    /// Objects of a slab.
    pub objs_per_slab: u64,
    /// Order of a slab.
    pub order: u8,
    /// Capacity of a CPU's array.
    pub limit: u64,
    /// Objects moved at once.
    pub batchcount: u64,
    /// Capacity of a node's shared array in batches.
    pub sharedfactor: u64,
    /// Number of colours.
    pub colour: u64,
    /// Bytes between two colours.
    pub colour_off: u64,
    /// Bytes of header and chain (2.6.24) or of indexes (6.1).
    pub management: u64,
    /// Management lies in an object of a general cache.
    pub off_slab: bool,
    /// Management lies in a free object of the slab.
    pub objfreelist: bool,
    /// Creation flags, with those that the allocator sets itself.
    pub flags: u64,
    /// The cache has a constructor.
    pub has_ctor: bool,
}

/// The columns of a cache of `spec` on a machine of this shape.
pub fn geometry(config: &Config, spec: &CacheSpec, shape: &Shape) -> Result<Columns, Error> {
    let geometry = Geometry::new(spec, config, shape)?;
    Ok(Columns::new(spec, &geometry, &Tunables::new(config, &geometry, shape)))
}

/// `sl.geometry` for SLAB: a cache, or what serves a kmalloc. Every size up to the largest block has its cache in 2.6.24.
pub(super) fn asked(config: &Config, wanted: &Wanted, shape: &Shape) -> Result<asked::Columns, Error> {
    let policy = config.policy();
    let spec = match wanted {
        Wanted::Cache(spec) => spec.clone(),
        Wanted::Kmalloc(bytes) => match policy.kmalloc.size_of_class(*bytes, shape) {
            Some(size) => kmalloc_spec(policy, size, Kind::Normal),
            None if policy.kmalloc.natural_align => return asked::of_pages(*bytes, shape),
            None => return Err(asked::too_large(*bytes, shape.kmalloc_cap(LARGEST_ORDER))),
        },
    };
    let g = Geometry::new(&spec, config, shape)?;
    let t = Tunables::new(config, &g, shape);
    let slots = Slots {
        object_size: spec.size,
        align: g.align,
        slot_size: g.slot,
        order: g.order.0.into(),
        objects: g.num,
        management: g.on_slab_bytes(),
    };
    let mut row = slots.columns(&spec.name, shape);
    row.extend(asked::columns(json!({
        "order_raised": g.order_raised,
        "management": g.management,
        "management_place": match g.place {
            Place::OnSlab => "on_slab",
            Place::OffSlab => "off_slab",
            Place::InObject => "in_object",
        },
        "colour": g.colour,
        "colour_off": g.colour_off,
        "limit": t.limit,
        "batchcount": t.batch,
        "sharedfactor": t.sharedfactor,
        "shared_limit": t.shared_limit(),
        "alien_limit": t.alien_limit(),
        "debug": g.checks.to_string(),
        "flags": format!("{:#x}", Columns::new(&spec, &g, &t).flags),
    })));
    Ok(row)
}

impl Columns {
    pub(super) fn new(spec: &CacheSpec, g: &Geometry, t: &Tunables) -> Columns {
        let set = |on: bool, bit: u64| if on { bit } else { 0 };
        Columns {
            object_size: spec.size,
            align: g.align,
            slab_size: g.slot,
            objs_per_slab: g.num,
            order: g.order.0,
            limit: t.limit,
            batchcount: t.batch,
            sharedfactor: t.sharedfactor,
            colour: g.colour,
            colour_off: g.colour_off,
            management: g.management,
            off_slab: g.off_slab(),
            objfreelist: g.place == Place::InObject,
            flags: set(spec.hwcache_align, HWCACHE_ALIGN)
                | set(spec.reclaim_account, RECLAIM_ACCOUNT)
                | set(spec.typesafe_by_rcu, TYPESAFE_BY_RCU)
                | set(g.place == Place::InObject, OBJFREELIST)
                | set(g.off_slab(), OFF_SLAB),
            has_ctor: spec.ctor,
        }
    }

    /// With the keys of the recordings; `management` under its name in both eras.
    pub fn to_json(&self) -> Value {
        json!({
            "object_size": self.object_size, "align": self.align, "slab_size": self.slab_size,
            "objs_per_slab": self.objs_per_slab, "order": self.order,
            "limit": self.limit, "batchcount": self.batchcount, "sharedfactor": self.sharedfactor,
            "colour": self.colour, "colour_off": self.colour_off,
            "mgmt_size": self.management, "freelist_size": self.management,
            "off_slab": u8::from(self.off_slab), "objfreelist": u8::from(self.objfreelist),
            "flags": format!("{:#x}", self.flags), "has_ctor": u8::from(self.has_ctor),
        })
    }
}
