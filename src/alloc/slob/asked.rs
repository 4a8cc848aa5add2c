//! How large a block is and where it may begin, and `sl.geometry` for SLOB. Pure functions: no machine is needed.

use serde_json::json;

use super::cache::RCU_FOOTER;
use super::policy::{Config, Create};
use crate::alloc::geometry::{self, Columns, Shape, Slots, Wanted};
use crate::error::Error;
use crate::spec::CacheSpec;
use crate::units::round_up;

/// Bytes of a unit: 2, or 4 where offsets in a page do not fit 16 bits (slob.md §2).
fn unit(shape: &Shape) -> u64 {
    if shape.page_size <= 65_534 { 2 } else { 4 }
}
/// Alignment of every block, and bytes of kmalloc's header: 8; on 32-bit machines 4 while SLOB decides itself (slob.md §6).
fn least(config: &Config, shape: &Shape) -> u64 {
    if shape.word == 4 && config.create == Create::Own { 4 } else { 8 }
}
/// Bytes behind a type-safe object: two words and a number, padded to words.
fn footer(shape: &Shape) -> u64 {
    if shape.word == 8 { RCU_FOOTER } else { 12 }
}

/// Bytes and alignment of the blocks of a cache (kernel: kmem_cache_create, __kmem_cache_create).
pub(super) fn block(spec: &CacheSpec, config: &Config, shape: &Shape) -> (u64, u64) {
    let footer = if spec.typesafe_by_rcu { footer(shape) } else { 0 };
    let (line, size) = match config.create {
        Create::Own => (if spec.hwcache_align { shape.line } else { 0 }, spec.size + footer),
        Create::Common => (spec.halved_line(shape.line), round_up(spec.size + footer, unit(shape))),
    };
    (size, line.max(spec.align).max(least(config, shape)))
}

/// Alignment of a kmalloc block of less than a page, and at which byte of it that holds (kernel: __kmalloc_node).
pub(super) fn kmalloc_align(bytes: u64, config: &Config, header: u64) -> (u64, u64) {
    if config.natural_align && bytes.is_power_of_two() { (bytes.max(header), header) } else { (header, 0) }
}

/// Refuses what no page can hold, by name.
pub(super) fn check(spec: &CacheSpec, config: &Config, shape: &Shape) -> Result<(), Error> {
    let (align, most) = (spec.align, shape.largest() - if spec.typesafe_by_rcu { footer(shape) } else { 0 });
    if spec.size == 0 || spec.size > most {
        return Err(Error::new("cache.size", spec.size, format!("1..{most} bytes")));
    }
    if align > 0 && !align.is_power_of_two() {
        return Err(Error::new("cache.align", align, "0 or a power of two"));
    }
    // A block lies in one page, and a block of pages is aligned to its own size.
    let (size, _) = block(spec, config, shape);
    let most = if size < shape.page_size { shape.page_size } else { shape.bytes(shape.order_for(size)) };
    if align > most {
        return Err(Error::new("cache.align", align, format!("at most {most} for {size} bytes")));
    }
    Ok(())
}

/// Objects that a page of the heap holds if nothing else is in it: blocks of `bytes` bytes whose byte `offset` is aligned,
/// each at the first place behind the one before.
fn in_a_page(bytes: u64, align: u64, offset: u64, shape: &Shape) -> u64 {
    let first = round_up(offset, align) - offset;
    let stride = round_up(bytes, align);
    let room = (shape.page_size - first).checked_sub(bytes);
    room.map_or(0, |room| room / stride + 1)
}

/// The columns of a cache or of a kmalloc. A slab is a page of the heap, `objects_per_slab` what it holds of these objects
/// alone; objects of a page or more are blocks of pages.
pub(super) fn geometry(config: &Config, wanted: &Wanted, shape: &Shape) -> Result<Columns, Error> {
    let header = least(config, shape);
    let (name, object_size, size, align, offset) = match wanted {
        Wanted::Cache(spec) => {
            check(spec, config, shape)?;
            let (size, align) = block(spec, config, shape);
            (spec.name.as_str(), spec.size, size, align, 0)
        }
        Wanted::Kmalloc(bytes) if *bytes >= shape.page_size - header => return geometry::of_pages(*bytes, shape),
        Wanted::Kmalloc(bytes) => {
            let (align, offset) = kmalloc_align(*bytes, config, header);
            ("kmalloc", *bytes, bytes + header, align, offset)
        }
    };
    let whole_pages = size >= shape.page_size;
    let order = if whole_pages { shape.order_for(size) } else { 0 };
    let block = round_up(size, unit(shape));
    let objects = if whole_pages { 1 } else { in_a_page(block, align, offset, shape) };
    let slots = Slots { object_size, align, slot_size: size, order, objects, management: objects * (block - size) };
    let list = if whole_pages { "(pages)" } else { config.list_names()[config.list(size)] };
    let mut row = slots.columns(name, shape);
    row.extend(geometry::columns(json!({
        "header": if matches!(wanted, Wanted::Kmalloc(_)) { header } else { 0 },
        "unit": unit(shape),
        "list": list,
    })));
    Ok(row)
}
