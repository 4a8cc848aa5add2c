//! The shape of a cache's slabs, and its tunables: slot size, objects per slab, order, where management lies, colours.
//! Pure formulas of configuration, specification and number of CPUs.

use super::debug::{self, Checks};
use super::policy::{CHAIN_ENTRY, Config, HEADER, HEADER_32, Management, Policy};
use crate::alloc::geometry::Shape;
use crate::error::Error;
use crate::spec::{CacheSpec, Kind};
use crate::units::{MAX_ORDER, Order, round_up};

/// Capacity of an alien array.
const ALIEN_LIMIT: u64 = 12;
/// Memory above which a slab may have order 1.
const BIG_MEMORY: u64 = 32 << 20;

/// Tunables of one cache: `1 ≤ batch ≤ limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tunables {
    pub(super) limit: u64,
    pub(super) batch: u64,
    pub(super) sharedfactor: u64,
}

/// Largest limit of any cache.
pub(super) const LARGEST_LIMIT: u64 = 120;

/// Limit of a cache of this slot size.
pub(super) fn default_limit(slot: u64, page_size: u64) -> u64 {
    // Slots above this size get this limit; largest size first.
    let table = [(131_072, 1), (page_size, 8), (1024, 24), (256, 54)];
    table.iter().find(|(above, _)| slot > *above).map_or(LARGEST_LIMIT, |(_, limit)| *limit)
}

impl Tunables {
    /// Tunables of a cache of this shape on a machine of `cpus` CPUs (kernel: enable_cpucache).
    pub(super) fn new(config: &Config, geometry: &Geometry, shape: &Shape) -> Tunables {
        let slot = geometry.slot;
        let most = if geometry.checks.any { debug::LIMIT } else { u64::MAX };
        let limit = config.limit.unwrap_or(default_limit(slot, shape.page_size).min(most));
        let batch = config.batchcount.map_or(limit.div_ceil(2), |b| b.min(limit));
        let shared = if slot <= shape.page_size && shape.cpus > 1 { 8 } else { 0 };
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

/// Where a slab's management lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the slab: header and chain before the objects, or indexes behind them.
    OnSlab,
    /// In an object of a general cache.
    OffSlab,
    /// In one of the slab's own free objects (kernel: OBJFREELIST).
    InObject,
}

/// The fixed shape of a cache's slabs. `management on the slab + num·slot + left = bytes of the block`,
/// `colour·colour_off ≤ left`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Bytes from one object to the next.
    pub(super) slot: u64,
    /// Bytes of an object, rounded up to words.
    pub(super) object: u64,
    pub(super) align: u64,
    pub(super) order: Order,
    /// Objects per slab.
    pub(super) num: u64,
    /// Header and chain, with padding if they lie in the slab; or index bytes.
    pub(super) management: u64,
    pub(super) place: Place,
    /// Bytes before object 0, besides the colour.
    pub(super) before: u64,
    /// Bytes of the block that nothing uses.
    pub(super) left: u64,
    /// Number of colours.
    pub(super) colour: u64,
    /// Bytes between two colours.
    pub(super) colour_off: u64,
    /// The order search was told to stop at an order that cannot hold one object.
    pub(super) order_raised: bool,
    /// What is checked in its objects.
    pub(super) checks: Checks,
}

/// Order at which the search stops.
fn order_break(config: &Config, shape: &Shape) -> u8 {
    config.order.unwrap_or(u8::from(shape.memory > BIG_MEMORY))
}

/// What the order search found.
struct Found {
    order: Order,
    num: u64,
    left: u64,
}

impl Geometry {
    /// Shape of the slabs of `spec` (kernel: kmem_cache_create, calculate_slab_order).
    pub(super) fn new(spec: &CacheSpec, config: &Config, shape: &Shape) -> Result<Geometry, Error> {
        let (policy, order_break, word) = (config.policy(), order_break(config, shape), shape.word);
        let smallest = if policy.management == Management::Chain { word } else { 1 };
        let most = shape.kmalloc_cap(MAX_ORDER as u32 - 1);
        if !(smallest..=most).contains(&spec.size) {
            return Err(Error::new("cache.size", spec.size, format!("{smallest}..{most} bytes")));
        }
        if spec.align != 0 && (!spec.align.is_power_of_two() || spec.align > most) {
            return Err(Error::new("cache.align", spec.align, format!("0 or a power of two up to {most}")));
        }
        let asked = config.debug_of(spec);
        if asked.any() && word != 8 {
            let right = "8 with debugging: what it adds to a slot is known for 64-bit machines";
            return Err(Error::new("geometry.word", word, right));
        }
        let (align, checks) = Checks::of(spec, policy, asked, shape);
        let slot = slot(spec, policy, align, checks, shape);
        let stop = Stop { first_fit: spec.reclaim_account, order_break, shape };
        let found = match policy.management {
            Management::Chain => {
                // From an eighth of a page on, the chain and its header are tried outside the slab.
                let large = round_up(spec.size, word) + checks.bytes() >= shape.page_size / 8;
                chained(slot, align, large, stop)
            }
            Management::Indexes => indexed(spec, policy, slot, stop),
        };
        let (found, place, management) = found.ok_or_else(|| {
            Error::new("cache.size", spec.size, format!("an object of {slot} bytes that fits a block of order 10"))
        })?;
        let colour_off = shape.line.max(align);
        let headed = policy.management == Management::Chain && place == Place::OnSlab;
        Ok(Geometry {
            slot,
            object: round_up(spec.size, word),
            align,
            order: found.order,
            num: found.num,
            management,
            place,
            before: if headed { management } else { 0 },
            left: found.left,
            colour: found.left / colour_off,
            colour_off,
            order_raised: found.order.0 > order_break,
            checks,
        })
    }
    pub(super) fn off_slab(&self) -> bool {
        self.place == Place::OffSlab
    }
    /// Bytes of management in the slab, outside its objects.
    pub(super) fn on_slab_bytes(&self) -> u64 {
        if self.place == Place::OnSlab { self.management } else { 0 }
    }
}

/// Alignment of the objects. 2.6.24 rounds the size up before it halves the line; 6.1 does not (kernel:
/// calculate_alignment).
pub(super) fn alignment(spec: &CacheSpec, policy: &Policy, shape: &Shape) -> u64 {
    let (size, least) = match policy.management {
        Management::Chain => (round_up(spec.size, shape.word), shape.word),
        Management::Indexes => (spec.size, 8),
    };
    CacheSpec { size, ..spec.clone() }.halved_line(shape.line).max(least).max(spec.align)
}

/// Bytes from one object to the next.
fn slot(spec: &CacheSpec, policy: &Policy, align: u64, checks: Checks, shape: &Shape) -> u64 {
    let slot = round_up(round_up(spec.size, shape.word) + checks.bytes(), align);
    // The smallest slot is what one-byte indexes need.
    let least = if index_bytes(shape) == 1 { policy.min_slot } else { 0 };
    if slot < least { round_up(least, align) } else { slot }
}

/// Bytes of one index of 6.1 (kernel: freelist_idx_t).
fn index_bytes(shape: &Shape) -> u64 {
    if shape.page_size >> 8 <= 16 { 1 } else { 2 }
}

/// When the order search ends.
#[derive(Clone, Copy)]
struct Stop<'a> {
    /// Reclaimable caches take the first order that holds an object.
    first_fit: bool,
    order_break: u8,
    shape: &'a Shape,
}

/// The first order that wastes at most 1/8, or the last one allowed. `fit` gives objects and rest of a block; an order for
/// which `allowed` is [`Allowed::Skip`] does not count, and [`Allowed::End`] ends the search with what was found before.
fn search(stop: Stop<'_>, fit: impl Fn(u64) -> (u64, u64), allowed: impl Fn(u64) -> Allowed) -> Option<Found> {
    let mut found = None;
    for order in (0..MAX_ORDER as u8).map(Order) {
        let bytes = stop.shape.bytes(order.0.into());
        let (num, left) = fit(bytes);
        if num == 0 {
            continue;
        }
        match allowed(num) {
            Allowed::Yes => {}
            Allowed::Skip => continue,
            Allowed::End => break,
        }
        found = Some(Found { order, num, left });
        if stop.first_fit || order.0 >= stop.order_break || left * 8 <= bytes {
            break;
        }
    }
    found
}

/// What becomes of an order in the search.
enum Allowed {
    Yes,
    Skip,
    End,
}

/// 2.6.24: header and chain, outside the slab for objects of half a kilobyte and more, and back in it if they fit in what
/// is left over.
fn chained(slot: u64, align: u64, large: bool, stop: Stop<'_>) -> Option<(Found, Place, u64)> {
    let header = if stop.shape.word == 8 { HEADER } else { HEADER_32 };
    let fit = |bytes: u64| if large { (bytes / slot, bytes % slot) } else { fit_chain(slot, align, header, bytes) };
    // A chain longer than a slot could need a header from a cache with off-slab headers itself.
    let allowed = |num| if large && num > (slot - header) / CHAIN_ENTRY { Allowed::End } else { Allowed::Yes };
    let mut found = search(stop, fit, allowed)?;
    let exact = header + CHAIN_ENTRY * found.num;
    let padded = round_up(exact, align);
    if large && found.left < padded {
        return Some((found, Place::OffSlab, exact));
    }
    if large {
        found.left -= padded;
    }
    Some((found, Place::OnSlab, padded))
}

/// Objects in a block of `bytes` with a header and a chain in front, and what is left (kernel: cache_estimate).
fn fit_chain(slot: u64, align: u64, header: u64, bytes: u64) -> (u64, u64) {
    let management = |n: u64| round_up(header + CHAIN_ENTRY * n, align);
    let mut n = (bytes - header) / (slot + CHAIN_ENTRY);
    if n > 0 && management(n) + n * slot > bytes {
        n -= 1;
    }
    (n, bytes.saturating_sub(n * slot + management(n)))
}

/// 6.1: indexes, in a free object if nothing forbids it and they fit in what was asked for; else outside if they do not
/// fit in what is left over; else behind the objects (kernel: set_objfreelist_slab_cache, set_off_slab_cache,
/// set_on_slab_cache).
fn indexed(spec: &CacheSpec, policy: &Policy, slot: u64, stop: Stop<'_>) -> Option<(Found, Place, u64)> {
    let each = index_bytes(stop.shape);
    // Most objects of a slab that its indexes can name.
    let most = (1 << (8 * each)) - 1;
    let countable = |num| if num > most { Allowed::End } else { Allowed::Yes };
    let plain = |bytes: u64| (bytes / slot, bytes % slot);
    let with = |found: Found, place| {
        let management = each * found.num;
        Some((found, place, management))
    };
    // A constructed object, or one that readers may still look at, is not to be written to.
    if !spec.ctor
        && !spec.typesafe_by_rcu
        && let Some(found) = search(stop, plain, countable)
        && each * found.num <= spec.size
    {
        return with(found, Place::InObject);
    }
    // The indexes' cache must have small slots: half of what was asked for.
    let worthwhile = |num| match policy.kmalloc.size_of_class(each * num, stop.shape) {
        _ if num > most => Allowed::End,
        Some(size) if kmalloc_slot(policy, size, stop.shape) <= spec.size / 2 => Allowed::Yes,
        _ => Allowed::Skip,
    };
    if let Some(found) = search(stop, plain, worthwhile)
        && found.left < each * found.num
    {
        return with(found, Place::OffSlab);
    }
    let behind = |bytes: u64| (bytes / (slot + each), bytes % (slot + each));
    with(search(stop, behind, countable)?, Place::OnSlab)
}

/// What a general cache is made of.
pub(super) fn kmalloc_spec(policy: &Policy, size: u64, kind: Kind) -> CacheSpec {
    let natural = policy.kmalloc.natural_align && size.is_power_of_two();
    let align = if natural { size } else { 0 };
    let reclaim_account = kind == Kind::Reclaimable;
    CacheSpec { align, reclaim_account, ..CacheSpec::new(policy.kmalloc.name(size, kind), size).hwcache() }
}

/// Slot of a general cache.
fn kmalloc_slot(policy: &Policy, size: u64, shape: &Shape) -> u64 {
    let spec = kmalloc_spec(policy, size, Kind::Normal);
    slot(&spec, policy, alignment(&spec, policy, shape), Checks::default(), shape)
}

#[cfg(test)]
mod tests {
    use super::super::eras::{V2_6_24, V6_1};
    use super::*;
    use crate::alloc::Configuration;
    use crate::units::PAGE_SIZE;

    /// A machine on which the order search stops at 1 unless told otherwise.
    const X86: Shape = Shape { page_size: 4096, line: 64, word: 8, cpus: 8, memory: 1 << 30 };

    fn config() -> Config {
        Config::era("2.6.24").unwrap()
    }
    /// Geometry with the search stopped at an order.
    fn made(era: &str, spec: &CacheSpec, order_break: u8) -> Geometry {
        let config = Config { order: Some(order_break), ..Config::era(era).unwrap() };
        Geometry::new(spec, &config, &X86).unwrap()
    }
    fn spec(size: u64, align: u64, hwcache: bool, reclaim: bool) -> CacheSpec {
        CacheSpec { align, hwcache_align: hwcache, reclaim_account: reclaim, ..CacheSpec::new("t", size) }
    }

    /// slot, num, order, management, off-slab, left, colour.
    type Seen = (u64, u64, u8, u64, bool, u64, u64);
    fn shape(spec: &CacheSpec, order_break: u8) -> Seen {
        let g = made("2.6.24", spec, order_break);
        assert_eq!(g.on_slab_bytes() + g.num * g.slot + g.left, g.order.bytes(), "{spec:?}");
        assert!(g.colour * g.colour_off <= g.left);
        (g.slot, g.num, g.order.0, g.management, g.off_slab(), g.left, g.colour)
    }

    fn tunables(spec: &CacheSpec, cpus: u64) -> Tunables {
        Tunables::new(&config(), &made("2.6.24", spec, 1), &Shape { cpus, ..X86 })
    }

    #[test]
    fn general_caches_have_the_shape_and_tunables_of_example_e1() {
        let rows: [(Seen, (u64, u64, u64)); 12] = [
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
            let general = CacheSpec::new("size", expected.0).hwcache();
            assert_eq!(shape(&general, 1), expected);
            let t = |cpus| tunables(&general, cpus);
            assert_eq!(t(8), Tunables { limit, batch, sharedfactor }, "{}", expected.0);
            assert_eq!(t(1).sharedfactor, 0, "one CPU shares with nobody");
        }
    }

    #[test]
    fn other_caches_have_the_shape_of_example_e2() {
        let rows: [(CacheSpec, u8, Seen); 16] = [
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
    fn with_the_header_of_32_bit_machines_size_32_holds_113_as_in_example_e2() {
        // 4096 − 113·32 = 480 bytes of management, nothing left.
        assert_eq!(fit_chain(32, 32, 28, PAGE_SIZE), (113, 0));
    }

    #[test]
    fn arrays_have_the_sizes_of_example_e13() {
        for (entries, old, new) in [
            (120, 984, 976),
            (54, 456, 448),
            (24, 216, 208),
            (8, 88, 80),
            (480, 3864, 3856),
            (216, 1752, 1744),
            (96, 792, 784),
        ] {
            assert_eq!([V2_6_24, V6_1].map(|p| p.array_bytes(entries)), [old, new]);
        }
        assert_eq!(V2_6_24.array_bytes(ALIEN_LIMIT), 120);
        let t = tunables(&spec(256, 0, false, false), 8);
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
        let g = made("2.6.24", &CacheSpec::new("t", 20_000), 1);
        assert_eq!((g.order, g.order_raised), (Order(3), true));
        assert!(!made("2.6.24", &CacheSpec::new("t", 4096), 0).order_raised);
    }

    /// slot, place, num, order, left, colour.
    type Shape61 = (u64, Place, u64, u8, u64, u64);
    fn shape61(spec: &CacheSpec) -> Shape61 {
        let g = made("6.1", spec, 1);
        assert_eq!(g.on_slab_bytes() + g.num * g.slot + g.left, g.order.bytes(), "{spec:?}");
        assert!(g.colour * g.colour_off <= g.left);
        (g.slot, g.place, g.num, g.order.0, g.left, g.colour)
    }

    #[test]
    fn kmalloc_of_6_1_has_the_shape_of_example_e3() {
        use Place::{InObject, OnSlab};
        for (size, expected, align) in [
            (32, (32, OnSlab, 124, 0, 4, 0), 32),
            (64, (64, InObject, 64, 0, 0, 0), 64),
            (96, (128, InObject, 32, 0, 0, 0), 64),
            (128, (128, InObject, 32, 0, 0, 0), 128),
            (192, (192, InObject, 21, 0, 64, 1), 64),
            (256, (256, InObject, 16, 0, 0, 0), 256),
            (512, (512, InObject, 8, 0, 0, 0), 512),
            (1024, (1024, InObject, 4, 0, 0, 0), 1024),
            (2048, (2048, InObject, 2, 0, 0, 0), 2048),
            (4096, (4096, InObject, 1, 0, 0, 0), 4096),
            (8192, (8192, InObject, 1, 1, 0, 0), 8192),
        ] {
            let spec = kmalloc_spec(&V6_1, size, Kind::Normal);
            assert_eq!((shape61(&spec), alignment(&spec, &V6_1, &X86)), (expected, align), "{size}");
        }
    }

    #[test]
    fn other_caches_of_6_1_have_the_shape_of_example_e4() {
        use Place::{InObject, OffSlab, OnSlab};
        let ctor = |size, reclaim| CacheSpec { ctor: true, ..spec(size, 0, false, reclaim) };
        let plain = |size| spec(size, 0, false, false);
        let whole = |size, num| (ctor(size, false), (size, OffSlab, num, 0, 0, 0));
        for (spec, expected) in [
            (plain(8), (16, OnSlab, 240, 0, 16, 0)),
            (plain(16), (16, OnSlab, 240, 0, 16, 0)),
            (plain(24), (24, OnSlab, 163, 0, 21, 0)),
            (plain(40), (40, OnSlab, 99, 0, 37, 0)),
            (plain(56), (56, OnSlab, 71, 0, 49, 0)),
            (plain(104), (104, InObject, 39, 0, 40, 0)),
            (ctor(104, false), (104, OnSlab, 39, 0, 1, 0)),
            (ctor(64, false), (64, OnSlab, 63, 0, 1, 0)),
            (ctor(128, false), (128, OffSlab, 32, 0, 0, 0)),
            (ctor(192, false), (192, OnSlab, 21, 0, 43, 0)),
            whole(256, 16),
            whole(512, 8),
            whole(1024, 4),
            whole(2048, 2),
            whole(4096, 1),
            (plain(700), (704, InObject, 11, 1, 448, 7)),
            (plain(1400), (1400, InObject, 5, 1, 1192, 18)),
            (spec(1400, 0, false, true), (1400, InObject, 2, 0, 1296, 20)),
            (plain(3000), (3000, InObject, 2, 1, 2192, 34)),
            (plain(5000), (5000, InObject, 1, 1, 3192, 49)),
            (ctor(568, true), (568, OnSlab, 7, 0, 113, 1)),
        ] {
            assert_eq!(shape61(&spec), expected, "{spec:?}");
        }
    }

    #[test]
    fn indexes_behind_the_objects_use_the_bytes_that_the_change_log_names_in_example_e14() {
        for (size, num, used) in
            [(32, 124, 4092), (64, 63, 4095), (88, 46, 4094), (96, 42, 4074), (272, 15, 4095), (408, 10, 4090)]
        {
            let n = PAGE_SIZE / (size + 1);
            assert_eq!((n, n * (size + 1)), (num, used));
            let spec = CacheSpec { typesafe_by_rcu: true, ..spec(size, 0, false, false) };
            let g = made("6.1", &spec, 1);
            if g.place == Place::OnSlab {
                assert_eq!((g.num, g.num * g.slot + g.management), (num, used), "{size}");
            }
        }
    }

    #[test]
    fn the_rule_between_the_two_eras_gives_the_rows_of_the_second_half_of_example_e14() {
        // 3.13 and 3.14: entries of 4 bytes as 2.6.24, no header; from 128 bytes on they lie outside if they do not fit.
        for (slot, align, num, limit) in [
            (32, 32, 113, (120, 60)),
            (64, 64, 60, (120, 60)),
            (128, 64, 31, (120, 60)),
            (192, 64, 20, (120, 60)),
            (256, 64, 15, (120, 60)),
            (512, 64, 8, (54, 27)),
        ] {
            let on_slab = fit_chain(slot, align, 0, PAGE_SIZE).0;
            let g = made("2.6.24", &CacheSpec::new("size", slot).hwcache(), 1);
            assert_eq!(if slot < 512 { on_slab } else { g.num }, num, "{slot}");
            let t = Tunables::new(&config(), &g, &Shape { cpus: 1, ..X86 });
            assert_eq!((t.limit, t.batch, t.sharedfactor), (limit.0, limit.1, 0), "{slot}");
        }
    }

    #[test]
    fn on_32_bit_machines_the_header_is_28_bytes() {
        let general = CacheSpec::new("size-32", 32).hwcache();
        let g = Geometry::new(&general, &config(), &Shape { word: 4, ..X86 }).unwrap();
        assert_eq!((g.num, g.management, g.left), (113, 480, 0));
    }

    #[test]
    fn large_pages_have_indexes_of_two_bytes_and_slots_below_16() {
        let config = Config::era("6.1").unwrap();
        let shape = Shape { page_size: 65_536, ..X86 };
        let g = Geometry::new(&spec(8, 0, false, false), &config, &shape).unwrap();
        assert_eq!((g.slot, g.num, g.place, g.management), (8, 6553, Place::OnSlab, 13_106));
        let g = Geometry::new(&spec(1024, 0, false, false), &config, &shape).unwrap();
        assert_eq!((g.num, g.place, g.management), (64, Place::InObject, 128));
    }
}
