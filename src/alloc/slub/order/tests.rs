//! Geometry against the specification's tables and the geometry of running kernels.

use super::super::eras::{self, V2_6_22, V2_6_24, V6_1, V6_18, V7_1};
use super::*;

const X86: Shape = Shape { page_size: 4096, line: 64, word: 8, cpus: 1, memory: 1 << 30 };

fn plain(spec: &CacheSpec) -> Asked<'_> {
    Asked { spec, kmalloc: false, debug: Debug::default() }
}
fn layout(spec: &CacheSpec, policy: &Policy, shape: &Shape) -> Layout {
    Layout::new(plain(spec), policy, shape).unwrap_or_else(|e| panic!("{}: {e}", spec.name))
}
fn of_size(size: u64, policy: &Policy, shape: &Shape) -> (u8, u64) {
    let l = layout(&CacheSpec::new("test", size), policy, shape);
    (l.order.0, l.objects)
}
fn tuned(policy: Policy, min_objects: u64, max_order: u8) -> Policy {
    let min_objects = MinObjects::Objects(min_objects);
    Policy { t: Tunables { min_objects, max_order, ..policy.t }, ..policy }
}
fn debug(letters: &str, policy: &Policy) -> Debug {
    super::super::debug::DebugOption::parse(letters, policy).unwrap().of("test")
}

/// Leaves where `make test` sums it up that all these rows are equal (each was asserted).
fn tallied(name: &str, rows: usize) {
    let Some(folder) = std::env::var_os("SLABLAB_TALLY") else { return };
    let line = format!("geometry/{name}\trows\t{rows}\t{rows}\n");
    std::fs::write(std::path::Path::new(&folder).join(format!("geometry-{name}")), line).expect("a folder to write to");
}

/// Rows of a table as maps from column to text.
struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<&'static str>>,
}

impl Table {
    fn of(text: &'static str) -> Table {
        let mut lines = text.lines();
        let columns = lines.next().expect("a header").split(',').collect();
        Table { columns, rows: lines.map(|l| l.split(',').collect()).collect() }
    }
    fn text(&self, row: &[&'static str], column: &str) -> &'static str {
        row[self.columns.iter().position(|c| *c == column).unwrap_or_else(|| panic!("column {column}"))]
    }
    fn number(&self, row: &[&'static str], column: &str) -> u64 {
        let text = self.text(row, column);
        let number = text.strip_prefix("0x").map_or(text.parse(), |hex| u64::from_str_radix(hex, 16));
        number.unwrap_or_else(|_| panic!("{column} of {row:?}"))
    }
    fn option(&self, row: &[&'static str], column: &str) -> Option<u64> {
        (!self.text(row, column).is_empty()).then(|| self.number(row, column))
    }
}

#[test]
fn buffer_head_of_104_bytes_is_order_0_with_39_objects() {
    for min_objects in [4, 16] {
        for max_order in [1, 4] {
            let policy = tuned(V2_6_22, min_objects, max_order);
            assert_eq!(of_size(104, &policy, &X86), (0, 39), "{min_objects} objects, order up to {max_order}");
        }
    }
}

/// The specification's examples: every era, sizes, CPUs and tunables.
#[test]
fn every_example_of_the_specification_is_equal() {
    let t = Table::of(include_str!("../../../tests/oracle/data/geometry/slub_geometry_examples.csv"));
    for row in &t.rows {
        let era = eras::policy(t.text(row, "era")).expect("an era");
        let min_objects = t.option(row, "min_objects_param").map_or(era.t.min_objects, MinObjects::Objects);
        let max_order = t.option(row, "max_order_param").map_or(era.t.max_order, |o| o as u8);
        let policy = Policy { t: Tunables { min_objects, max_order, ..era.t }, ..era };
        let shape = Shape { cpus: t.number(row, "cpus"), ..X86 };
        let spec = CacheSpec::new("test", t.number(row, "size"));
        let l = layout(&spec, &policy, &shape);
        let limits = Limits::new("test", &l, &policy, &shape);
        let expected = (t.number(row, "order"), t.number(row, "objects"), t.number(row, "min_partial"));
        assert_eq!((l.order.0.into(), l.objects, limits.min_partial), expected, "{row:?}");
        if let Some(cpu_partial) = t.option(row, "cpu_partial") {
            assert_eq!(limits.cpu_partial, Some(cpu_partial), "{row:?}");
        }
        if let Some(slabs) = t.option(row, "cpu_partial_slabs") {
            assert_eq!(limits.cpu_partial_slabs, slabs, "{row:?}");
        }
        if let Some(capacity) = t.option(row, "sheaf_capacity_auto") {
            assert_eq!(limits.sheaf_capacity, capacity, "{row:?}");
        }
    }
    assert_eq!(t.rows.len(), 4774);
    tallied("slub_geometry_examples", t.rows.len());
}

/// Compares every column of a row of a running 6.1 kernel.
fn compare_6_1(t: &Table, row: &[&'static str], asked: Asked<'_>, policy: &Policy, shape: &Shape) {
    let l = Layout::new(asked, policy, shape).expect("a cache of a running kernel");
    let limits = Limits::new(&asked.spec.name, &l, policy, shape);
    for (column, ours) in [
        ("object_size", l.object_size),
        ("align", l.align),
        ("slab_size", l.slot),
        ("objs_per_slab", l.objects),
        ("order", l.order.0.into()),
        ("min_partial", limits.min_partial),
        ("cpu_partial", limits.cpu_partial.unwrap_or(0)),
        ("cpu_partial_slabs", limits.cpu_partial_slabs),
        ("min_order", l.min_order.0.into()),
        ("min_objs_per_slab", l.min_objects),
        ("inuse", l.inuse),
        ("fp_offset", l.offset),
    ] {
        assert_eq!(ours, t.number(row, column), "{column} of {row:?}");
    }
}

#[test]
fn every_cache_of_the_sweeps_of_a_running_kernel_is_equal() {
    let files = [
        (include_str!("../../../tests/oracle/data/geometry/sweep_slub.csv"), V6_1, ""),
        (include_str!("../../../tests/oracle/data/geometry/sweep_slub_debug_FZPU.csv"), V6_1, "FZPU"),
        (
            include_str!("../../../tests/oracle/data/geometry/sweep_slub_min_objects16_max_order4.csv"),
            tuned(V6_1, 16, 4),
            "",
        ),
    ];
    let mut rows = 0;
    for (text, policy, letters) in files {
        let t = Table::of(text);
        for row in &t.rows {
            let flags = t.text(row, "req_flags");
            let spec = CacheSpec {
                align: t.number(row, "req_align"),
                hwcache_align: flags.contains("HWCACHE_ALIGN"),
                typesafe_by_rcu: flags.contains("TYPESAFE_BY_RCU"),
                ctor: flags.contains("ctor"),
                ..CacheSpec::new("test", t.number(row, "req_size"))
            };
            let debug = if letters.is_empty() { Debug::default() } else { debug(letters, &policy) };
            compare_6_1(&t, row, Asked { spec: &spec, kmalloc: false, debug }, &policy, &X86);
        }
        assert!(t.rows.len() > 1700);
        rows += t.rows.len();
    }
    tallied("slub_sweeps_6.1", rows);
}

#[test]
fn every_cache_of_running_kernels_is_equal() {
    let files = [
        (include_str!("../../../tests/oracle/data/geometry/geometry_slub.csv"), V6_1, "", 1),
        (include_str!("../../../tests/oracle/data/geometry/geometry_slub_smp2.csv"), V6_1, "", 2),
        (include_str!("../../../tests/oracle/data/geometry/geometry_slub_debug_FZPU.csv"), V6_1, "FZPU", 1),
        (
            include_str!("../../../tests/oracle/data/geometry/geometry_slub_min_objects16_max_order4.csv"),
            tuned(V6_1, 16, 4),
            "",
            1,
        ),
    ];
    let mut rows = 0;
    for (text, policy, letters, cpus) in files {
        let t = Table::of(text);
        for row in &t.rows {
            let (name, flags) = (t.text(row, "cache"), t.number(row, "flags"));
            let kmalloc = name.starts_with("kmalloc-") || name.starts_with("dma-kmalloc-");
            // The alignment is the one the cache got: asked for, it is got again.
            let spec = CacheSpec {
                align: if kmalloc { 0 } else { t.number(row, "align") },
                hwcache_align: flags & 0x2000 != 0,
                typesafe_by_rcu: flags & 0x8_0000 != 0,
                ctor: t.number(row, "has_ctor") != 0,
                ..CacheSpec::new(name, t.number(row, "object_size"))
            };
            // The two caches made before the debug options were read have none.
            let debugged = flags & 0x1_0d00 != 0 && !letters.is_empty();
            let debug = if debugged { debug(letters, &policy) } else { Debug::default() };
            compare_6_1(&t, row, Asked { spec: &spec, kmalloc, debug }, &policy, &Shape { cpus, ..X86 });
        }
        assert_eq!(t.rows.len(), 114);
        rows += t.rows.len();
    }
    tallied("slub_boot_caches_6.1", rows);
}

/// A real 6.18 machine: what follows from the size of a slot.
#[test]
fn every_cache_of_a_real_6_18_machine_is_equal() {
    let t = Table::of(include_str!("../../../tests/oracle/data/geometry/geometry_slub_host618.csv"));
    let shape = Shape { cpus: 2, ..X86 };
    for row in &t.rows {
        let spec = CacheSpec::new(t.text(row, "cache"), t.number(row, "slab_size"));
        let l = layout(&spec, &V6_18, &shape);
        let limits = Limits::new(&spec.name, &l, &V6_18, &shape);
        for (column, ours) in [
            ("slab_size", l.slot),
            ("objs_per_slab", l.objects),
            ("order", l.order.0.into()),
            ("min_partial", limits.min_partial),
            ("sheaf_capacity", limits.sheaf_capacity),
        ] {
            assert_eq!(ours, t.number(row, column), "{column} of {row:?}");
        }
        // A cache with sheaves has the same list below.
        assert_eq!(limits.cpu_partial, Some(t.number(row, "cpu_partial")), "{row:?}");
    }
    assert_eq!(t.rows.len(), 429);
    tallied("slub_host_6.18", t.rows.len());
}

/// slub.md §7.7: object, letters, era, alignment, kmalloc, RCU; end of the object, free pointer, left red zone, slot, order,
/// objects.
#[test]
fn debug_layouts_equal_the_table() {
    type Row = (u64, &'static str, &'static str, u64, bool, bool, [u64; 6]);
    let rows: [Row; 20] = [
        (64, "", "6.1", 64, true, false, [64, 32, 0, 64, 0, 64]),
        (64, "FZPU", "6.1", 64, true, false, [72, 72, 64, 256, 0, 16]),
        (64, "Z", "6.1", 64, true, false, [72, 32, 64, 192, 0, 21]),
        (64, "P", "6.1", 64, true, false, [64, 64, 0, 128, 0, 32]),
        (64, "U", "6.1", 64, true, false, [64, 32, 0, 192, 0, 21]),
        (104, "", "6.1", 8, false, false, [104, 48, 0, 104, 0, 39]),
        (104, "FZPU", "6.1", 8, false, false, [112, 112, 8, 200, 0, 20]),
        (192, "FZPU", "6.1", 8, false, false, [200, 200, 8, 288, 0, 14]),
        (256, "", "6.1", 8, false, true, [256, 256, 0, 264, 0, 15]),
        (4096, "FZPU", "6.1", 4096, true, false, [4104, 4104, 4096, 12288, 3, 2]),
        (8, "Z", "6.1", 8, true, false, [16, 0, 8, 32, 0, 128]),
        (8, "", "6.1", 0, true, false, [8, 0, 0, 8, 0, 512]),
        (104, "", "2.6.22", 8, false, false, [104, 0, 0, 104, 0, 39]),
        (104, "FZPU", "2.6.22", 8, false, false, [112, 112, 0, 176, 0, 23]),
        (64, "FZPU", "2.6.22", 8, false, false, [72, 72, 0, 136, 0, 30]),
        (100, "Z", "2.6.22", 8, false, false, [104, 0, 0, 112, 0, 36]),
        (104, "FZPU", "3.2", 8, false, false, [112, 112, 0, 432, 1, 18]),
        (64, "FZPU", "3.2", 8, false, false, [72, 72, 0, 392, 1, 20]),
        (4096, "FZPU", "2.6.22", 8, false, false, [4104, 4104, 0, 4168, 1, 1]),
        (24, "", "2.6.22", 8, false, false, [24, 0, 0, 24, 0, 170]),
    ];
    for (size, letters, era, align, kmalloc, rcu, expected) in rows {
        let policy = eras::policy(era).unwrap();
        let spec = CacheSpec { align, typesafe_by_rcu: rcu, ..CacheSpec::new("test", size) };
        let debug = if letters.is_empty() { Debug::default() } else { debug(letters, &policy) };
        let l = Layout::new(Asked { spec: &spec, kmalloc, debug }, &policy, &Shape { cpus: 2, ..X86 }).unwrap();
        let ours = [l.inuse, l.offset, l.left, l.slot, l.order.0.into(), l.objects];
        assert_eq!(ours, expected, "{size} {letters} {era}");
    }
}

/// The steps of slub.md §2 and the fifth of §7.1, in plain numbers: end of the object, free pointer, left red zone, slot.
fn by_the_steps(spec: &CacheSpec, kmalloc: bool, letters: &str, era: &str, align: u64) -> [u64; 4] {
    let nth = eras::ALL.iter().position(|(name, _)| *name == era).unwrap();
    let from = |first: &str| nth >= eras::ALL.iter().position(|(name, _)| *name == first).unwrap();
    let has = |letter: char| letters.contains(letter);
    let mut size = spec.size.div_ceil(8) * 8;
    if has('Z') && size == spec.size {
        size += 8;
    }
    let end = size;
    let mut outside = spec.typesafe_by_rcu || spec.ctor || has('P');
    outside |= from("6.1") && has('Z') && spec.size < 8;
    outside |= from("6.18") && has('Z') && has('U') && kmalloc;
    let pointer = if outside {
        size += 8;
        end
    } else if from("6.1") {
        spec.size / 2 / 8 * 8
    } else {
        0
    };
    if has('U') {
        let track = if from("6.1") {
            32
        } else if from("3.1") {
            152
        } else {
            24
        };
        size += 2 * track + if from("6.1") && kmalloc { 4 } else { 0 };
    }
    let mut left = 0;
    if has('Z') {
        size += 8;
        if from("6.1") {
            left = 8u64.div_ceil(align) * align;
            size += left;
        }
    }
    [end, pointer, left, size.div_ceil(align) * align]
}

#[test]
fn debug_layouts_follow_the_steps_of_the_specification_in_every_era() {
    let kinds: [fn(CacheSpec) -> CacheSpec; 4] = [
        |s| s,
        |s| CacheSpec { ctor: true, ..s },
        |s| CacheSpec { typesafe_by_rcu: true, ..s },
        |s| CacheSpec { align: 32, ..s },
    ];
    let mut layouts = 0;
    for (era, policy) in eras::ALL {
        for letters in ["F", "Z", "P", "U", "T", "FZ", "ZP", "ZU", "PU", "FZPU", "FZPUT", ""] {
            for size in [4, 7, 8, 24, 64, 100, 104, 192, 700, 1024, 4096] {
                for (kind, kmalloc) in kinds.iter().map(|k| (k, false)).chain([(&kinds[0], true)]) {
                    let spec = kind(CacheSpec::new("test", size));
                    let debug = if letters.is_empty() { Debug::default() } else { debug(letters, &policy) };
                    let l = Layout::new(Asked { spec: &spec, kmalloc, debug }, &policy, &X86).unwrap();
                    let expected = by_the_steps(&spec, kmalloc, letters, era, l.align);
                    assert_eq!(
                        [l.inuse, l.offset, l.left, l.slot],
                        expected,
                        "{size} {letters} {era} {spec:?} {kmalloc}"
                    );
                    assert!(l.objects * l.slot <= X86.bytes(l.order.0.into()));
                    layouts += 1;
                }
            }
        }
    }
    assert_eq!(layouts, 13 * 12 * 11 * 5);
}

#[test]
fn the_104_byte_buffer_head_of_2007_is_order_0_with_39_objects_also_with_max_order_4_and_min_objects_16() {
    for era in ["2.6.21-mm1", "2.6.22", "2.6.24-rc2", "2.6.24"] {
        let policy = eras::policy(era).unwrap();
        for cpus in [1, 2, 8, 64] {
            let shape = Shape { cpus, ..X86 };
            for policy in [policy, tuned(policy, 16, 4)] {
                let l = layout(&CacheSpec::new("buffer_head", 104), &policy, &shape);
                assert_eq!((l.slot, l.order, l.objects), (104, Order(0), 39), "{era}, {cpus} CPUs");
            }
        }
    }
}

/// slub.md §3 (a) and the points of §13.1 that were published or measured.
#[test]
fn published_points_are_reproduced() {
    let at = |era: &str, size: u64, cpus: u64| of_size(size, &eras::policy(era).unwrap(), &Shape { cpus, ..X86 });
    assert_eq!([4096, 8192, 16384].map(|size| at("2.6.27", size, 8).0), [3, 2, 3]);
    let kmalloc = |size: u64| {
        let spec = CacheSpec::new("kmalloc", size);
        let asked = Asked { spec: &spec, kmalloc: true, debug: Debug::default() };
        let l = Layout::new(asked, &eras::V2_6_25, &X86).unwrap();
        (l.order.0, l.objects)
    };
    assert_eq!([2048, 4096].map(kmalloc), [(3, 16), (3, 8)]);
    let four = tuned(V2_6_24, 4, 3);
    assert_eq!([2048, 4096].map(|size| of_size(size, &four, &X86).0), [1, 2]);
    assert_eq!(of_size(8192, &tuned(V2_6_24, 4, 0), &X86), (1, 1));
    assert_eq!(at("6.18", 5888, 2), (3, 5));
    assert_eq!(at("6.18", 624, 2), (1, 13));
    let automatic = |cpus| MinObjects::Rule(MinObjectsRule::ByCpus).on(cpus);
    let expected =
        [(1, 8), (2, 12), (3, 12), (4, 16), (7, 16), (8, 20), (15, 20), (16, 24), (31, 24), (32, 28), (63, 28)];
    assert!(expected.into_iter().all(|(cpus, n)| automatic(cpus) == n));
    assert_eq!([64, 127, 1024, 4096].map(automatic), [32, 32, 48, 56]);
}

/// slub.md §13: default tunables, and the tuned table of the 2.6.22 algorithm. Columns: min_objects 4, 8, 16 with max_order 0,
/// 1, 3, 4 each.
#[test]
fn geometry_equals_the_tuned_table() {
    let a = (1, 1);
    let rows: [(u64, [(u8, u64); 12]); 4] = [
        (1024, {
            let (a, b, c) = ((0, 4), (1, 8), (2, 16));
            [a, a, a, a, a, b, b, b, a, b, c, c]
        }),
        (2048, {
            let (a, b, c, d) = ((0, 2), (1, 4), (2, 8), (3, 16));
            [a, b, b, b, a, b, c, c, a, b, d, d]
        }),
        (4096, {
            let (a, b, c, d, e) = ((0, 1), (1, 2), (2, 4), (3, 8), (4, 16));
            [a, b, c, c, a, b, d, d, a, b, d, e]
        }),
        (8192, {
            let (b, c) = ((3, 4), (4, 8));
            [a, a, b, b, a, a, b, c, a, a, b, c]
        }),
    ];
    for (size, expected) in rows {
        for (i, expected) in expected.into_iter().enumerate() {
            let policy = tuned(V2_6_24, [4, 8, 16][i / 4], [0, 1, 3, 4][i % 4]);
            assert_eq!(of_size(size, &policy, &X86), expected, "{size}, column {i}");
        }
    }
}

#[test]
fn the_halving_anomaly_of_2_6_27_is_there_and_gone_in_2_6_31() {
    let at = |era, cpus| of_size(8192, &eras::policy(era).unwrap(), &Shape { cpus, ..X86 }).0;
    assert_eq!([at("2.6.27", 8), at("2.6.27", 16), at("2.6.31", 8)], [2, 3, 3]);
}

#[test]
fn larger_pages_and_smaller_words_have_their_defaults() {
    let shape = |page_size, word| Shape { page_size, line: 64, word, cpus: 8, memory: 1 << 30 };
    let old = V2_6_24.on_pages(65_536);
    assert_eq!((old.t.max_order, old.t.min_objects), (2, MinObjects::Objects(8)));
    assert_eq!(of_size(8192, &old, &shape(65_536, 8)), (0, 8));
    assert_eq!(of_size(192, &V6_1, &shape(65_536, 8)), (0, 341));
    assert_eq!(of_size(192, &V6_1, &shape(16_384, 8)), (0, 85));
    // 28 bytes stay 28 with words of four, but for the alignment of at least eight.
    let l = layout(&CacheSpec::new("test", 28), &V2_6_24, &shape(4096, 4));
    assert_eq!((l.inuse, l.slot), (28, 32));
    let asked = CacheSpec::new("test", 104);
    let l = Layout::new(Asked { spec: &asked, kmalloc: false, debug: debug("U", &V2_6_22) }, &V2_6_22, &shape(4096, 4))
        .unwrap();
    assert_eq!(l.slot, 104 + 2 * 16);
}

#[test]
fn a_slab_has_no_more_objects_than_its_counters_hold() {
    let forced = |policy: Policy| Policy { t: Tunables { min_order: 10, max_order: 10, ..policy.t }, ..policy };
    let spec = CacheSpec::new("test", 8);
    let objects = |policy: Policy| Layout::new(plain(&spec), &forced(policy), &X86).map(|l| l.objects);
    assert!(objects(V2_6_22).unwrap_err().to_string().contains("more than 65535"));
    assert_eq!(objects(V2_6_24).unwrap(), 524_288);
    for (policy, most) in [(eras::V2_6_27, 65_535), (eras::V3_1, 32_767), (V6_18, 32_767), (V7_1, 32_767)] {
        let n = objects(policy).unwrap();
        assert!(n <= most && n > most / 4, "{n} of {most}");
    }
    let locked = Policy { t: Tunables { slow_path: SlowPath::Lockless, ..V2_6_24.t }, ..V2_6_24 };
    assert!(objects(locked).unwrap() <= 32_767);
}

#[test]
fn debug_flags_that_would_raise_the_order_are_spared_by_o() {
    let spec = CacheSpec::new("test", 4096);
    let slot = |letters| {
        let debug = debug(letters, &V6_1);
        Layout::new(Asked { spec: &spec, kmalloc: false, debug }, &V6_1, &X86).unwrap().slot
    };
    assert_eq!((slot("FZPUO"), slot("FZPU")), (4096, 4192));
    let small = CacheSpec::new("test", 64);
    let l = Layout::new(Asked { spec: &small, kmalloc: false, debug: debug("ZO", &V6_1) }, &V6_1, &X86).unwrap();
    assert!(l.slot > 64);
}

#[test]
fn flags_move_the_free_pointer_and_the_alignment() {
    let of = |spec: CacheSpec| {
        let l = layout(&spec, &V2_6_24, &X86);
        (l.inuse, l.offset, l.slot)
    };
    assert_eq!(of(CacheSpec::new("a", 100)), (104, 0, 104));
    assert_eq!(of(CacheSpec { ctor: true, ..CacheSpec::new("a", 100) }), (104, 104, 112));
    assert_eq!(of(CacheSpec { typesafe_by_rcu: true, ..CacheSpec::new("a", 256) }), (256, 256, 264));
    assert_eq!(of(CacheSpec::new("a", 24).hwcache()), (24, 0, 24));
    assert_eq!(of(CacheSpec::new("a", 40).hwcache()), (40, 0, 64));
    assert_eq!(of(CacheSpec { align: 256, ..CacheSpec::new("a", 40).hwcache() }), (40, 0, 256));
    assert_eq!(of(CacheSpec { align: 4, ..CacheSpec::new("a", 9) }), (16, 0, 16));
    // 24 bytes on lines: 170 a page before 2.6.25, 128 after.
    let hw = CacheSpec::new("a", 24).hwcache();
    assert_eq!((layout(&hw, &V2_6_24, &X86).objects, layout(&hw, &eras::V2_6_25, &X86).objects), (170, 128));
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
        let e = Layout::new(plain(&spec), &V2_6_24, &X86).unwrap_err().to_string();
        assert!(e.contains(part), "{e}");
    }
}

#[test]
fn a_forced_order_holds_until_the_object_does_not_fit() {
    for policy in [V2_6_24, V6_1, V6_18] {
        for k in 0..=10 {
            let forced = Policy { t: Tunables { min_order: k, max_order: k, ..policy.t }, ..policy };
            for size in [104, 2048, 4096, 5000, 8192, 40_000, 4 << 20] {
                let expected = k.max(Order::for_bytes(size).0);
                let cap = forced.most_objects().is_some_and(|most| (4096 << k) / size > most);
                assert!(cap || of_size(size, &forced, &X86).0 == expected, "{size} bytes, order {k}");
            }
        }
    }
}

#[test]
fn index_of_accepts_slot_starts_only() {
    for size in [8, 24, 104, 192, 2048, 5888] {
        let l = layout(&CacheSpec::new("a", size), &tuned(V2_6_24, 4, 3), &X86);
        for bytes in 0..l.order.bytes() + 64 {
            let expected = (bytes % l.slot == 0 && bytes / l.slot < l.objects).then_some(bytes / l.slot);
            assert_eq!(l.index_of(bytes), expected, "{bytes} in slots of {size}");
        }
    }
}
