//! Geometry: how large a slot is, how many pages a slab gets, where the free pointer lies, how many slabs and objects are
//! kept (kernel: calculate_sizes, calculate_order, set_min_partial, set_cpu_partial). Pure functions of what was asked, the
//! release's [`Policy`] and the [`Shape`] of the machine: no machine is needed.

use super::debug::Debug;
use super::policy::*;
use crate::alloc::geometry::Shape;
use crate::error::Error;
use crate::spec::CacheSpec;
use crate::units::{Order, fls, round_up};

/// Bytes of a word of the modelled machines: the granularity of slots.
pub(super) const WORD: u64 = 8;

/// A cache to be made: what the creator asked for, and what the allocator adds.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The creator's wishes.
    pub spec: &'a CacheSpec,
    /// It is one of kmalloc's.
    pub kmalloc: bool,
    /// Its debug flags.
    pub debug: Debug,
}

/// The geometry of a cache. `slot ≥ left + inuse`, `inuse ≥ object_size`, `objects·slot ≤ page_size << order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes the creator asked for; with aliases the most any of them asked for (kernel: object_size).
    pub object_size: u64,
    /// Alignment of slots (kernel: align).
    pub align: u64,
    /// Bytes up to the end of the object, rounded to words, with its red zone; what lies behind is the allocator's (kernel:
    /// inuse).
    pub inuse: u64,
    /// Byte offset of the free pointer from the object's start (kernel: offset).
    pub offset: u64,
    /// Bytes of a slot before its object (kernel: red_left_pad).
    pub left: u64,
    /// Bytes of a slot (kernel: size).
    pub slot: u64,
    /// Order of a slab.
    pub order: Order,
    /// Slots of a slab of that order.
    pub objects: u64,
    /// Most slots that any slab of the cache has: its order may have been another.
    bound: u64,
    /// Smallest order that holds one slot, and its slots: the geometry of a fallback.
    pub min_order: Order,
    /// Slots of a slab of the smallest order.
    pub min_objects: u64,
    /// Debug flags that are left (O may have dropped some).
    pub debug: Debug,
    /// `slot = odd << shift`; the inverse of `odd` modulo 2^64 and `shift`: see [`Layout::index_of`].
    inverse: u64,
    shift: u32,
}

impl Layout {
    /// The geometry of what is `asked` under `policy`.
    pub fn new(asked: Asked<'_>, policy: &Policy, shape: &Shape) -> Result<Layout, Error> {
        let (spec, largest) = (asked.spec, shape.bytes(LARGEST_ORDER.into()));
        if spec.size == 0 || spec.size > largest {
            return Err(Error::new("cache.size", spec.size, format!("1..{largest} bytes")));
        }
        if spec.align != 0 && (!spec.align.is_power_of_two() || spec.align > shape.page_size) {
            let right = format!("0 or a power of two up to {}: slabs are aligned to pages", shape.page_size);
            return Err(Error::new("cache.align", spec.align, right));
        }
        let layout = match Self::with_debug(asked, asked.debug, policy, shape) {
            // The largest kmalloc class of 2.6.22 fills the largest block: with debug fields the kernel would not boot.
            Err(_) if asked.kmalloc => Self::with_debug(asked, asked.debug.without_metadata(), policy, shape)?,
            made => made?,
        };
        let grown = asked.debug.spare_order && shape.order_for(layout.slot) > shape.order_for(spec.size);
        if grown { Self::with_debug(asked, asked.debug.without_metadata(), policy, shape) } else { Ok(layout) }
    }

    /// The steps of slub.md §2, numbered as there.
    fn with_debug(asked: Asked<'_>, debug: Debug, policy: &Policy, shape: &Shape) -> Result<Layout, Error> {
        let (spec, word) = (asked.spec, shape.word);
        let align = alignment(spec, asked.kmalloc, policy, shape);
        let mut size = round_up(spec.size, word); // 1
        if debug.red_zone && size == spec.size {
            size += word; // 3
        }
        let inuse = size; // 4
        // An object that is read after its free, or keeps its constructed state, cannot hold the pointer. (5)
        let outside = spec.typesafe_by_rcu
            || spec.ctor
            || debug.poison
            || (policy.modern_layout && debug.red_zone && spec.size < word)
            || (policy.sheaves.is_some() && debug.red_zone && asked.kmalloc && debug.user);
        let offset = match policy.t.free_pointer {
            _ if outside => size,
            FreePointer::Start => 0,
            FreePointer::Middle => spec.size / 2 / word * word,
        };
        if outside {
            size += word;
        }
        if debug.user {
            size += 2 * track_bytes(policy, word); // 6
            size += if policy.modern_layout && asked.kmalloc { 4 } else { 0 };
        }
        let mut left = 0;
        if debug.red_zone {
            size += word; // 7
            if policy.modern_layout {
                left = round_up(word, align);
                size += left;
            }
        }
        let slot = round_up(size, align); // 9
        let (Some(order), min_order) = (order_of(slot, asked.kmalloc, policy, shape), shape.order_for(slot)) else {
            let largest = shape.bytes(LARGEST_ORDER.into());
            return Err(Error::new(
                "cache.size",
                spec.size,
                format!("a slot of {slot} bytes needs more than {largest}"),
            ));
        };
        let objects = shape.bytes(order) / slot;
        if policy.max_objects_refuses && policy.max_objects.is_some_and(|most| objects > most) {
            let right = format!("a slab of order {order} would hold {objects} objects: more than 65535");
            return Err(Error::new("cache.size", spec.size, right));
        }
        let zeros = slot.trailing_zeros();
        Ok(Layout {
            object_size: spec.size,
            align,
            inuse,
            offset,
            left,
            slot,
            order: Order(order as u8),
            objects,
            bound: objects,
            min_order: Order(min_order as u8),
            min_objects: shape.bytes(min_order) / slot,
            debug,
            inverse: inverse(slot >> zeros),
            shift: zeros,
        })
    }

    /// Index of the slot that begins `bytes` from the slab's start; `None` if none does.
    ///
    /// For a multiple of the slot size, multiplying by the inverse and rotating divides exactly; for anything else the
    /// result exceeds every index. One multiplication, so that each free can afford the check.
    #[inline]
    pub fn index_of(&self, bytes: u64) -> Option<u64> {
        let index = bytes.wrapping_mul(self.inverse).rotate_right(self.shift);
        (index < self.bound).then_some(index)
    }
    /// Gives new slabs another order.
    pub(super) fn set_order(&mut self, order: Order, shape: &Shape) {
        self.order = order;
        self.objects = shape.bytes(order.0.into()) / self.slot;
        self.bound = self.bound.max(self.objects);
    }
    /// Index of the object that begins `bytes` from the slab's start: behind its slot's left red zone.
    #[inline]
    pub fn object_index(&self, bytes: u64) -> Option<u64> {
        self.index_of(bytes.wrapping_sub(self.left))
    }
}

/// Bytes of one user-tracking record: address, stack, CPU, process, time.
fn track_bytes(policy: &Policy, word: u64) -> u64 {
    let handle = if policy.track_handle { 4 } else { 0 };
    round_up(word + policy.track_stack * word + handle + 4 + 4, word) + word
}

/// Alignment a cache really gets (kernel: calculate_alignment), at least a word.
pub(super) fn alignment(spec: &CacheSpec, kmalloc: bool, policy: &Policy, shape: &Shape) -> u64 {
    let mut align = spec.align;
    if kmalloc {
        // Slabs of several pages are aligned to their size, so this may be more than a page.
        align = align.max(match policy.kmalloc_align {
            KmallocAlign::PowersOfTwo if spec.size.is_power_of_two() => spec.size,
            KmallocAlign::Divisor => 1 << spec.size.trailing_zeros(),
            _ => 1,
        });
    }
    if spec.hwcache_align {
        match policy.t.hw_align {
            HwAlign::WholeLine if spec.size > shape.line / 2 => return align.max(shape.line),
            HwAlign::WholeLine => {}
            HwAlign::HalvedLine => {
                let mut line = shape.line;
                while spec.size <= line / 2 {
                    line /= 2;
                }
                align = align.max(line);
            }
        }
    }
    round_up(align.max(8), shape.word)
}

/// What a cache keeps, by the size of its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Partial slabs a node keeps.
    pub min_partial: u64,
    /// Free objects a CPU's partial list should hold; `None`: there is no such list.
    pub cpu_partial: Option<u64>,
    /// Slabs it may hold, taken as half full.
    pub cpu_partial_slabs: u64,
    /// Objects of a sheaf; 0: no sheaves.
    pub sheaf_capacity: u64,
    /// How often of 1024 an allocation looks at other nodes' partial slabs.
    pub defrag_ratio: u64,
    /// Full sheaves a barn takes.
    pub barn_max_full: u64,
    /// Empty sheaves it keeps after RCU frees.
    pub barn_max_empty: u64,
}

impl Limits {
    /// The limits of the cache `name` of this layout.
    pub fn new(name: &str, layout: &Layout, policy: &Policy, shape: &Shape) -> Limits {
        let (t, slot, debug) = (&policy.t, layout.slot, layout.debug.any());
        let log2 = u64::from(fls(slot) - 1);
        let min_partial = match t.min_partial {
            MinPartial::Slabs(n) => n,
            MinPartial::Rule(MinPartialRule::Log2) => log2.clamp(5, 10),
            MinPartial::Rule(MinPartialRule::HalfLog2) => (log2 / 2).clamp(5, 10),
        };
        let by_size = |table: [u64; 4]| match slot {
            s if s >= shape.page_size => table[3],
            s if s >= 1024 => table[2],
            s if s >= 256 => table[1],
            _ => table[0],
        };
        let slabs = t.cpu_partial_count == CpuPartialCount::Slabs;
        let cpu_partial = match t.cpu_partial {
            CpuPartial::Rule(CpuPartialRule::None) => None,
            // 3.2 sets the table's value even where debugging keeps the list unused.
            _ if debug && slabs => Some(0),
            CpuPartial::Objects(n) => Some(n),
            CpuPartial::Rule(CpuPartialRule::BySize) if slabs => Some(by_size([120, 52, 24, 6])),
            CpuPartial::Rule(CpuPartialRule::BySize) => Some(by_size([30, 13, 6, 2])),
        };
        let sheaf_capacity = match t.sheaf_capacity {
            _ if debug => 0,
            SheafCapacity::Objects(n) => n,
            SheafCapacity::Rule(SheafRule::None) => 0,
            SheafCapacity::Rule(SheafRule::ByCreator) => creator_capacity(name),
            SheafCapacity::Rule(SheafRule::BySize) => {
                // Half of a CPU's partial objects, because it has two sheaves; then what fits the header's kmalloc class.
                let bytes = SHEAF_HEADER + 8 * by_size([60, 26, 12, 4]);
                let class = super::kmalloc::sizes(8192).find(|class| *class >= bytes).unwrap_or(bytes);
                ((class - SHEAF_HEADER) / 8).max(creator_capacity(name))
            }
        };
        Limits {
            min_partial,
            cpu_partial,
            cpu_partial_slabs: (2 * cpu_partial.unwrap_or(0)).div_ceil(layout.objects),
            sheaf_capacity,
            defrag_ratio: t.remote_node_defrag_ratio,
            barn_max_full: t.barn_max_full,
            barn_max_empty: t.barn_max_empty,
        }
    }
}

/// Bytes of a sheaf before its objects.
pub(super) const SHEAF_HEADER: u64 = 32;

/// The capacity that 6.18's own caches ask for.
fn creator_capacity(name: &str) -> u64 {
    if name == "vm_area_struct" || name == "maple_node" { 32 } else { 0 }
}

/// Order of the slabs of slots of `slot` bytes (kernel: calculate_order).
fn order_of(slot: u64, kmalloc: bool, policy: &Policy, shape: &Shape) -> Option<u32> {
    let t = &policy.t;
    let wanted = t.min_objects.on(shape.cpus);
    if kmalloc && t.kmalloc_order3 && shape.page_size / slot < wanted {
        let order = u32::from(t.max_order.max(3));
        return Some(order.max(shape.order_for(slot))).filter(|o| *o <= LARGEST_ORDER.into());
    }
    let search = Search { slot, policy, shape };
    let most = (shape.bytes(t.max_order.into()) / slot).max(1);
    match t.order_search {
        OrderSearch::HalveFrom8 => search.by_objects(wanted, &[8, 4], |n| n / 2),
        OrderSearch::HalveFrom16 => search.by_objects(wanted, &[16, 8, 4], |n| n / 2),
        OrderSearch::StepFrom16 => search.by_objects(wanted.min(most), &[16, 8, 4], |n| n - 1),
        OrderSearch::FitFrom16 => search.by_waste(wanted.min(most)),
    }
}

/// A search for the order of slots of one size.
struct Search<'a> {
    slot: u64,
    policy: &'a Policy,
    shape: &'a Shape,
}

impl Search<'_> {
    /// As many objects as wanted with at most one part in the first fraction wasted, then the next; failing that `fewer`
    /// objects; at last whatever holds one.
    fn by_objects(&self, wanted: u64, fractions: &[u64], fewer: impl Fn(u64) -> u64) -> Option<u32> {
        let max = u32::from(self.policy.t.max_order);
        let mut objects = wanted;
        while objects > 1 {
            let fit = fractions.iter().find_map(|f| self.trial(objects, max, *f));
            if fit.is_some() {
                return fit;
            }
            objects = fewer(objects);
        }
        self.trial(1, max, 1).or_else(|| self.trial(1, LARGEST_ORDER.into(), 1))
    }

    /// From the order that holds as many objects as wanted up, the first that wastes little enough.
    fn by_waste(&self, wanted: u64) -> Option<u32> {
        let t = &self.policy.t;
        let first = u32::from(t.min_order).max(self.shape.order_for(wanted * self.slot));
        if let Some(order) = self.capped(first) {
            return Some(order);
        }
        let fit = [16, 8, 4, 2]
            .into_iter()
            .find_map(|fraction| (first..=t.max_order.into()).find(|o| self.wastes_at_most(*o, fraction)));
        fit.or_else(|| Some(self.shape.order_for(self.slot)).filter(|o| *o <= LARGEST_ORDER.into()))
    }

    /// Smallest order up to `max` that holds `objects` slots and wastes at most one part in `fraction` (kernel: slab_order).
    fn trial(&self, objects: u64, max: u32, fraction: u64) -> Option<u32> {
        let min = u32::from(self.policy.t.min_order);
        if let Some(order) = self.capped(min) {
            return Some(order).filter(|o| *o <= max);
        }
        let first = min.max(fls(objects * self.slot - 1).saturating_sub(self.shape.page_size.trailing_zeros()));
        (first..=max).find(|o| self.shape.bytes(*o) >= objects * self.slot && self.wastes_at_most(*o, fraction))
    }

    fn wastes_at_most(&self, order: u32, fraction: u64) -> bool {
        let bytes = self.shape.bytes(order);
        bytes % self.slot <= bytes / fraction
    }

    /// The order that holds as many objects as a slab may have, if `least` holds more.
    fn capped(&self, least: u32) -> Option<u32> {
        let most = self.policy.most_objects().filter(|_| !self.policy.max_objects_refuses)?;
        let over = self.shape.bytes(least) / self.slot > most;
        over.then(|| self.shape.order_for(self.slot * most).saturating_sub(1))
    }
}

/// Inverse of an odd number modulo 2^64, by Newton's iteration: each step doubles the number of right bits.
fn inverse(odd: u64) -> u64 {
    let mut x = odd; // right in the lowest three bits
    for _ in 0..5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
    }
    x
}

#[cfg(test)]
mod tests;
