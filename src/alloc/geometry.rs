//! Geometry as a call: what a cache of an era looks like on a machine of any page size, cache line, word and number of
//! CPUs. No machine is needed: each allocator answers with the formulas by which it makes its caches.

use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::spec::CacheSpec;
use crate::units::{LINE, MAX_ORDER, PAGE_SIZE, fls};

/// Largest buddy order.
pub const LARGEST_ORDER: u32 = MAX_ORDER as u32 - 1;

/// What geometry depends on besides the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a page: 4096, 16384 or 65536.
    pub page_size: u64,
    /// Bytes of a cache line.
    pub line: u64,
    /// Bytes of a word: 8, or 4 on 32-bit machines.
    pub word: u64,
    /// CPUs: possible, online and present ones are the same.
    pub cpus: u64,
    /// Bytes of memory: SLAB's larger slabs need more than 32 MiB of it.
    pub memory: u64,
}

impl Shape {
    /// The machines that run here: 64-bit, 4 KiB pages. `memory` is that of all nodes together, in bytes.
    pub fn of_machine(cpus: usize, memory: u64) -> Shape {
        Shape { page_size: PAGE_SIZE, line: LINE, word: 8, cpus: cpus as u64, memory }
    }
    /// Refuses a machine that no kernel runs on, naming the parameter (`geometry.page_size`).
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |name: &str, value: u64, right: &str| Err(Error::new(format!("geometry.{name}"), value, right));
        if ![4096, 16_384, 65_536].contains(&self.page_size) {
            return refuse("page_size", self.page_size, "4096, 16384 or 65536 bytes");
        }
        if !self.line.is_power_of_two() || !(16..=256).contains(&self.line) {
            return refuse("cache_line", self.line, "16, 32, 64, 128 or 256 bytes");
        }
        if ![4, 8].contains(&self.word) {
            return refuse("word", self.word, "8 bytes (64-bit) or 4 (32-bit)");
        }
        if !(1..=4096).contains(&self.cpus) {
            return refuse("cpus", self.cpus, "1..4096");
        }
        if self.memory < 1 << 20 {
            return refuse("memory_mib", self.memory >> 20, "1 or more MiB");
        }
        Ok(())
    }
    /// Smallest order whose block holds `bytes`.
    pub fn order_for(&self, bytes: u64) -> u32 {
        fls(bytes.max(1).div_ceil(self.page_size) - 1)
    }
    /// Bytes of a block of this order.
    pub fn bytes(&self, order: u32) -> u64 {
        self.page_size << order
    }
    /// Bytes of the largest block.
    pub fn largest(&self) -> u64 {
        self.bytes(LARGEST_ORDER)
    }
    /// Largest kmalloc of releases that serve every size from a cache, less than `shift` doublings of a page (slab.md §13,
    /// slqb.md §2): never above 32 MiB.
    pub fn kmalloc_cap(&self, shift: u32) -> u64 {
        self.bytes(shift).min(1 << 25).min(self.largest())
    }
}

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A cache as `kmem_cache_create` is asked for it.
    Cache(CacheSpec),
    /// Whatever serves a kmalloc of so many bytes.
    Kmalloc(u64),
}

/// Columns of a cache by name, in order. A column that an era does not have is null.
pub type Columns = Map<String, Value>;

/// What is true of slabs of any allocator. `objects_per_slab·slot_size + waste + management = slab_bytes`.
pub(super) struct Slots {
    pub object_size: u64,
    pub align: u64,
    pub slot_size: u64,
    pub order: u32,
    pub objects: u64,
    /// Bytes of the slab outside slots that the allocator itself uses.
    pub management: u64,
}

impl Slots {
    /// The first columns of every allocator.
    pub(super) fn columns(&self, cache: &str, shape: &Shape) -> Columns {
        let bytes = shape.bytes(self.order);
        columns(json!({
            "cache": cache,
            "object_size": self.object_size,
            "align": self.align,
            "slot_size": self.slot_size,
            "order": self.order,
            "objects_per_slab": self.objects,
            "slab_bytes": bytes,
            "waste": bytes - self.objects * self.slot_size - self.management,
            "efficiency_pct": 100.0 * (self.objects * self.object_size) as f64 / bytes as f64,
        }))
    }
}

/// The fields of an object literal.
pub(super) fn columns(object: Value) -> Columns {
    match object {
        Value::Object(fields) => fields,
        other => unreachable!("{other} is no object"),
    }
}

/// A kmalloc that the page allocator serves: one block of pages.
pub(super) fn of_pages(bytes: u64, shape: &Shape) -> Result<Columns, Error> {
    let order = shape.order_for(bytes);
    if order > LARGEST_ORDER {
        return Err(too_large(bytes, shape.largest()));
    }
    let whole = shape.bytes(order);
    let slots = Slots { object_size: bytes, align: whole, slot_size: whole, order, objects: 1, management: 0 };
    Ok(slots.columns("(page allocator)", shape))
}

/// A kmalloc that fails in this era.
pub(super) fn too_large(bytes: u64, most: u64) -> Error {
    Error::new("geometry.size", bytes, format!("1..{most} bytes: kmalloc of more fails"))
}
