//! `sl.geometry` for SLUB: a cache's layout and limits as columns, without a machine.

use serde_json::{Value, json};

use super::config::Config;
use super::kmalloc;
use super::order::{Asked, Layout, Limits};
use super::policy::{OrderFallback, Policy, SheafCapacity, SheafRule};
use super::report::flags;
use crate::alloc::geometry::{self, Columns, Shape, Slots, Wanted};
use crate::error::Error;
use crate::spec::{CacheSpec, Kind};

/// The columns of a cache, or of what serves a kmalloc (kernel: kmem_cache_open, get_slab).
pub(super) fn geometry(config: &Config, wanted: &Wanted, shape: &Shape) -> Result<Columns, Error> {
    let policy = config.policy();
    let by_size = policy.t.sheaf_capacity == SheafCapacity::Rule(SheafRule::BySize);
    if shape.word != 8 && by_size {
        let right =
            "8, or a sheaf_capacity: what a sheaf takes on 32-bit machines is not known (up to 6.18 it is asked for)";
        return Err(Error::new("geometry.word", shape.word, right));
    }
    match wanted {
        Wanted::Cache(spec) => of(spec, false, config, &policy, shape),
        Wanted::Kmalloc(bytes) => {
            let class = kmalloc::sizes(config.t.kmalloc_max).find(|size| size >= bytes);
            match class {
                Some(size) => {
                    let spec = kmalloc::spec(size, Kind::Normal, &policy);
                    of(&spec, true, config, &policy, shape)
                }
                // The largest class is the end where there is no way to the page allocator (up to 2.6.23).
                None if config.t.kmalloc_max >= 4 << 20 => Err(geometry::too_large(*bytes, config.t.kmalloc_max)),
                None => geometry::of_pages(*bytes, shape),
            }
        }
    }
}

fn of(spec: &CacheSpec, kmalloc: bool, config: &Config, policy: &Policy, shape: &Shape) -> Result<Columns, Error> {
    let policy = &config.per_cache_option().policy(&spec.name, *policy);
    let debug = config.debug_option().of(&spec.name);
    let layout = Layout::new(Asked { spec, kmalloc, debug }, policy, shape)?;
    let limits = Limits::new(&spec.name, &layout, policy, shape);
    let l = &layout;
    let slots = Slots {
        object_size: l.object_size,
        align: l.align,
        slot_size: l.slot,
        order: l.order.0.into(),
        objects: l.objects,
        management: 0,
    };
    let mut row = slots.columns(&spec.name, shape);
    let fallback = policy.t.order_fallback == OrderFallback::MinOrder;
    let partial = policy.has_cpu_partial();
    let since = |has: bool, value: u64| if has { json!(value) } else { Value::Null };
    row.extend(geometry::columns(json!({
        "inuse": l.inuse,
        "free_pointer": l.offset,
        "red_left_pad": l.left,
        "min_order": since(fallback, l.min_order.0.into()),
        "min_objects_per_slab": since(fallback, l.min_objects),
        "min_partial": limits.min_partial,
        "cpu_partial": since(partial, limits.cpu_partial.unwrap_or(0)),
        "cpu_partial_slabs": since(partial, limits.cpu_partial_slabs),
        "sheaf_capacity": since(policy.sheaves.is_some(), limits.sheaf_capacity),
        "debug": l.debug.to_string(),
        "flags": format!("{:#x}", flags(spec, l, policy)),
    })));
    Ok(row)
}
