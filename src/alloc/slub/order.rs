//! Geometry: how large a slot is, how many pages a slab gets, where the free pointer lies (kernel: calculate_sizes,
//! slab_order, calculate_order).

use crate::error::Error;
use crate::spec::CacheSpec;
use crate::units::{LINE, Order, PAGE_SHIFT, PAGE_SIZE, fls, round_up};

use super::policy::{LARGEST_ORDER, OrderRule};

/// Bytes of a word: the granularity of slots.
pub(super) const WORD: u64 = 8;

/// The geometry of a cache. `slot ≥ inuse ≥ object_size`, `objects·slot ≤ PAGE_SIZE << order`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes the creator asked for; with aliases the most any of them asked for (kernel: objsize).
    pub object_size: u64,
    /// Bytes up to the end of the object, rounded to words; what lies behind is the allocator's (kernel: inuse).
    pub inuse: u64,
    /// Byte offset of the free pointer in a free slot (kernel: offset).
    pub offset: u64,
    /// Bytes of a slot (kernel: size).
    pub slot: u64,
    /// Order of a slab.
    pub order: Order,
    /// Slots of a slab.
    pub objects: u64,
    /// `slot = odd << shift`; the inverse of `odd` modulo 2^64 and `shift`: see [`Layout::index_of`].
    inverse: u64,
    shift: u32,
}

impl Layout {
    /// The geometry of `spec` under `rule`.
    pub fn new(spec: &CacheSpec, rule: &OrderRule) -> Result<Layout, Error> {
        let largest = Order(LARGEST_ORDER).bytes();
        if spec.size == 0 || spec.size > largest {
            return Err(Error::new("cache.size", spec.size, format!("1..{largest} bytes")));
        }
        if spec.align != 0 && (!spec.align.is_power_of_two() || spec.align > PAGE_SIZE) {
            let right = format!("0 or a power of two up to {PAGE_SIZE}: slabs are aligned to pages");
            return Err(Error::new("cache.align", spec.align, right));
        }
        let inuse = round_up(spec.size, WORD);
        // An object that is read after its free, or keeps its constructed state, cannot hold the pointer.
        let outside = spec.typesafe_by_rcu || spec.ctor;
        let (offset, end) = if outside { (inuse, inuse + WORD) } else { (0, inuse) };
        let slot = round_up(end, alignment(spec));
        let Some(order) = order_of(slot, rule) else {
            return Err(Error::new(
                "cache.size",
                spec.size,
                format!("a slot of {slot} bytes needs more than {largest}"),
            ));
        };
        let shift = slot.trailing_zeros();
        let layout = Layout {
            object_size: spec.size,
            inuse,
            offset,
            slot,
            order,
            objects: order.bytes() / slot,
            inverse: inverse(slot >> shift),
            shift,
        };
        Ok(layout)
    }

    /// Index of the slot that begins `bytes` from the slab's start; `None` if none does.
    ///
    /// For a multiple of the slot size, multiplying by the inverse and rotating divides exactly; for anything else the
    /// result exceeds every index. One multiplication, so that each free can afford the check.
    #[inline]
    pub fn index_of(&self, bytes: u64) -> Option<u64> {
        let index = bytes.wrapping_mul(self.inverse).rotate_right(self.shift);
        (index < self.objects).then_some(index)
    }
}

/// Alignment a cache really gets: a whole line if asked and the object fills more than half of one, else what was asked,
/// at least a word (eras up to 2.6.24; kernel: calculate_alignment).
pub(super) fn alignment(spec: &CacheSpec) -> u64 {
    if spec.hwcache_align && spec.size > LINE / 2 { spec.align.max(LINE) } else { round_up(spec.align.max(WORD), WORD) }
}

/// Order of the slabs of slots of `slot` bytes (kernel: calculate_order): as many objects as wanted with at most an
/// eighth wasted, else a quarter; failing that half as many, and so on; at last whatever holds one object.
fn order_of(slot: u64, rule: &OrderRule) -> Option<Order> {
    let mut objects = rule.min_objects;
    while objects > 1 {
        let fit =
            [8, 4].into_iter().find_map(|fraction| trial(slot, objects, rule.min_order, rule.max_order, fraction));
        if fit.is_some() {
            return fit;
        }
        objects /= 2;
    }
    trial(slot, 1, rule.min_order, rule.max_order, 1).or_else(|| trial(slot, 1, rule.min_order, LARGEST_ORDER, 1))
}

/// Smallest order from `min` to `max` that holds `objects` slots and wastes at most one part in `fraction` (kernel:
/// slab_order).
fn trial(slot: u64, objects: u64, min: u8, max: u8, fraction: u64) -> Option<Order> {
    let first = fls(objects * slot - 1).saturating_sub(PAGE_SHIFT).max(u32::from(min));
    (first..=u32::from(max)).map(|o| Order(o as u8)).find(|o| {
        let bytes = o.bytes();
        bytes >= objects * slot && bytes % slot <= bytes / fraction
    })
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
mod tests {
    use super::*;

    fn rule(min_objects: u64, max_order: u8) -> OrderRule {
        OrderRule { min_order: 0, max_order, min_objects }
    }
    fn geometry(size: u64, rule: &OrderRule) -> (u8, u64) {
        let l = Layout::new(&CacheSpec::new("test", size), rule).unwrap();
        (l.order.0, l.objects)
    }

    #[test]
    fn buffer_heads_of_104_bytes_lie_39_to_a_page() {
        assert_eq!(geometry(104, &rule(4, 1)), (0, 39));
    }

    /// The rows of era 2.6.24 of the specification's `slub_geometry_examples.csv`: size, era, cpus, min_objects,
    /// max_order (empty: default), order, objects, min_partial.
    #[test]
    fn geometry_equals_the_examples() {
        let mut rows = 0;
        for line in include_str!("geometry_2.6.24.csv").lines().filter(|l| l.starts_with(|c: char| c.is_ascii_digit()))
        {
            let f: Vec<&str> = line.split(',').collect();
            let number = |i: usize, default: u64| if f[i].is_empty() { default } else { f[i].parse().unwrap() };
            let rule = rule(number(3, 4), number(4, 1) as u8);
            assert_eq!(geometry(number(0, 0), &rule), (number(5, 99) as u8, number(6, 0)), "{line}");
            assert_eq!(super::super::eras::V2_6_24.min_partial, number(7, 0));
            rows += 1;
        }
        assert_eq!(rows, 434);
    }

    /// slub.md §13: default tunables, and the tuned table of the 2.6.22 algorithm. Columns: defaults; min_objects 4, 8, 16
    /// with max_order 0, 1, 3, 4 each.
    #[test]
    fn geometry_equals_the_tuned_table() {
        type Row = (u64, (u8, u64), [(u8, u64); 12]);
        const fn small(size: u64, n: u64) -> Row {
            (size, (0, n), [(0, n); 12])
        }
        let table: [Row; 14] = [
            small(8, 512),
            small(16, 256),
            small(32, 128),
            small(64, 64),
            small(96, 42),
            small(104, 39),
            small(128, 32),
            small(192, 21),
            small(256, 16),
            (512, (0, 8), {
                let mut row = [(0, 8); 12];
                (row[9], row[10], row[11]) = ((1, 16), (1, 16), (1, 16));
                row
            }),
            (1024, (0, 4), {
                let (a, b, c) = ((0, 4), (1, 8), (2, 16));
                [a, a, a, a, a, b, b, b, a, b, c, c]
            }),
            (2048, (1, 4), {
                let (a, b, c, d) = ((0, 2), (1, 4), (2, 8), (3, 16));
                [a, b, b, b, a, b, c, c, a, b, d, d]
            }),
            (4096, (1, 2), {
                let (a, b, c, d, e) = ((0, 1), (1, 2), (2, 4), (3, 8), (4, 16));
                [a, b, c, c, a, b, d, d, a, b, d, e]
            }),
            (8192, (1, 1), {
                let (a, b, c) = ((1, 1), (3, 4), (4, 8));
                [a, a, b, b, a, a, b, c, a, a, b, c]
            }),
        ];
        for (size, default, tuned) in table {
            assert_eq!(geometry(size, &rule(4, 1)), default, "{size} with defaults");
            for (i, expected) in tuned.into_iter().enumerate() {
                let rule = rule([4, 8, 16][i / 4], [0, 1, 3, 4][i % 4]);
                assert_eq!(geometry(size, &rule), expected, "{size} with {rule:?}");
            }
        }
    }

    #[test]
    fn flags_move_the_free_pointer_and_the_alignment() {
        let of = |spec: CacheSpec| {
            let l = Layout::new(&spec, &rule(4, 1)).unwrap();
            (l.inuse, l.offset, l.slot)
        };
        assert_eq!(of(CacheSpec::new("a", 100)), (104, 0, 104));
        assert_eq!(of(CacheSpec { ctor: true, ..CacheSpec::new("a", 100) }), (104, 104, 112));
        assert_eq!(of(CacheSpec { typesafe_by_rcu: true, ..CacheSpec::new("a", 256) }), (256, 256, 264));
        assert_eq!(of(CacheSpec::new("a", 24).hwcache()), (24, 0, 24));
        assert_eq!(of(CacheSpec::new("a", 40).hwcache()), (40, 0, 64));
        assert_eq!(of(CacheSpec { align: 256, ..CacheSpec::new("a", 40).hwcache() }), (40, 0, 256));
        assert_eq!(of(CacheSpec { align: 4, ..CacheSpec::new("a", 9) }), (16, 0, 16));
    }

    #[test]
    fn impossible_caches_are_refused_by_name() {
        let big = 4 << 20;
        for (spec, part) in [
            (CacheSpec::new("a", 0), "cache.size = 0"),
            (CacheSpec::new("a", big + 1), "cache.size = 4194305"),
            (CacheSpec { ctor: true, ..CacheSpec::new("a", big) }, "a slot of 4194312 bytes"),
            (CacheSpec { align: 48, ..CacheSpec::new("a", 8) }, "cache.align = 48"),
            (CacheSpec { align: 8192, ..CacheSpec::new("a", 8) }, "cache.align = 8192"),
        ] {
            let e = Layout::new(&spec, &rule(4, 1)).unwrap_err().to_string();
            assert!(e.contains(part), "{e}");
        }
    }

    #[test]
    fn a_forced_order_holds_until_the_object_does_not_fit() {
        for k in 0..=10 {
            let forced = OrderRule { min_order: k, max_order: k, min_objects: 4 };
            for size in [8, 104, 2048, 4096, 5000, 8192, 40_000, 4 << 20] {
                let expected = k.max(Order::for_bytes(size).0);
                assert_eq!(geometry(size, &forced).0, expected, "{size} bytes, order {k}");
            }
        }
    }

    #[test]
    fn index_of_accepts_slot_starts_only() {
        for size in [8, 24, 104, 192, 2048, 5888] {
            let l = Layout::new(&CacheSpec::new("a", size), &rule(4, 3)).unwrap();
            for bytes in 0..l.order.bytes() + 64 {
                let expected = (bytes % l.slot == 0 && bytes / l.slot < l.objects).then_some(bytes / l.slot);
                assert_eq!(l.index_of(bytes), expected, "{bytes} in slots of {size}");
            }
        }
    }
}
