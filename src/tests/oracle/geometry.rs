//! Compares the geometry of every cache of booted 6.1 kernels, and of a sweep of sizes, with the pure functions: every
//! column of every row.

use std::path::Path;

use serde_json::Value;

use crate::alloc::Configuration;
use crate::alloc::geometry::Shape;
use crate::alloc::slab::{self, geometry};
use crate::spec::{CacheSpec, Kind};

/// Flags that the allocator sets itself.
const INTERNAL: u64 = 0xc000_0000;

/// Rows of a CSV file, as (column, value).
fn rows(file: &str) -> Vec<Vec<(String, String)>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/oracle/data/geometry").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let row = |l: &str| names.iter().zip(l.split(',')).map(|(n, v)| (n.to_string(), v.to_string())).collect();
    lines.map(row).collect()
}

fn get<'a>(row: &'a [(String, String)], name: &str) -> &'a str {
    row.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).unwrap_or_else(|| panic!("no column {name}"))
}
fn number(text: &str) -> u64 {
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    parsed.unwrap_or_else(|_| panic!("{text} is no number"))
}

/// What the kernel was asked for: in a sweep as it stands there, of a boot cache what its flags and its alignment say.
fn spec(row: &[(String, String)]) -> CacheSpec {
    let sweep = row.iter().any(|(n, _)| n == "req_size");
    let column = |boot: &str, asked: &str| number(get(row, if sweep { asked } else { boot }));
    let flags = number(get(row, "flags"));
    CacheSpec {
        align: column("align", "req_align"),
        hwcache_align: flags & 0x2000 != 0,
        reclaim_account: flags & 0x2_0000 != 0,
        typesafe_by_rcu: flags & 0x8_0000 != 0,
        ctor: get(row, "has_ctor") == "1",
        ..CacheSpec::new(if sweep { "sweep" } else { get(row, "cache") }, column("object_size", "req_size"))
    }
}

/// Compares all rows of a file; `describe` gives our columns.
fn check(file: &str, rows_there: usize, describe: impl Fn(&CacheSpec) -> Value) {
    let rows = rows(file);
    let (mut compared, mut wrong) = (0, Vec::new());
    for row in &rows {
        let spec = spec(row);
        let ours = describe(&spec);
        for (name, recorded) in row.iter().filter(|(n, _)| n != "cache" && !n.starts_with("req_")) {
            let value = &ours[name];
            let found = value.as_u64().unwrap_or_else(|| number(value.as_str().unwrap_or_else(|| panic!("{name}"))));
            // What is not a property of the allocator (panic on failure, page spreading, …) is taken over.
            let expected = match name.as_str() {
                "flags" => number(recorded) & (INTERNAL | 0xa_2000),
                _ => number(recorded),
            };
            compared += 1;
            if found != expected {
                wrong.push(format!("{spec:?}: {name} is {recorded}, ours {found}"));
            }
        }
    }
    super::tallied(&format!("geometry/{file}"), "fields", (compared - wrong.len()) as u64, compared as u64);
    assert_eq!(rows.len(), rows_there);
    assert!(wrong.is_empty(), "{}", wrong[..wrong.len().min(20)].join("\n"));
}

/// SLAB of 6.1 on a machine of so many CPUs.
fn slab61(cpus: usize) -> impl Fn(&CacheSpec) -> Value {
    let config = slab::Config::era("6.1").expect("an era");
    move |spec| {
        geometry(&config, spec, &Shape::of_machine(cpus, super::MEMORY))
            .expect("a cache that a kernel has made")
            .to_json()
    }
}

#[test]
fn slab_boot_caches_of_one_cpu_have_every_column_equal() {
    check("geometry_slab.csv", 109, slab61(1));
}

#[test]
fn slab_boot_caches_of_two_cpus_have_every_column_equal() {
    check("geometry_slab_smp2.csv", 109, slab61(2));
}

#[test]
fn slab_caches_of_every_size_have_every_column_equal() {
    check("sweep_slab.csv", 1781, slab61(1));
}

#[test]
fn slab_s_own_general_caches_are_those_of_the_kernel_reclaimable_ones_too() {
    let config = slab::Config::era("6.1").expect("an era");
    let kmalloc = config.policy().kmalloc;
    let rows = rows("geometry_slab.csv");
    let known = kmalloc.making(&kmalloc.kinds_of(&config.kmalloc).expect("kinds"));
    for &(class, kind) in &known {
        let name = kmalloc.name(kmalloc.sizes[class], kind);
        let row = rows.iter().find(|r| get(r, "cache") == name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(number(get(row, "flags")) & 0x2_0000 != 0, kind == Kind::Reclaimable, "{name}");
    }
    assert_eq!(rows.iter().filter(|r| get(r, "cache").starts_with("kmalloc-")).count(), known.len());
}

#[test]
fn slub_s_own_kmalloc_caches_are_those_of_the_kernels_of_every_kind() {
    use crate::alloc::{SlabAllocator, slub};
    use crate::machine::Sim;
    use crate::machine::presets::Machinery;
    use crate::machine::sim::Schedule;
    use crate::page::{PageModel, Pages};
    use crate::spec::CacheId;
    for (file, era, cpus, kinds) in [("geometry_slub.csv", "6.1", 1, 2), ("geometry_slub_host618.csv", "6.18", 2, 4)] {
        let sim = Sim::new(&Machinery::for_topology(cpus, 1, super::MEMORY).unwrap(), Schedule::default()).unwrap();
        let pages = Pages::new(&sim, PageModel::Stack).unwrap();
        let mut slub = slub::Slub::new(&pages, &slub::Config::era(era).unwrap()).unwrap();
        let rows = rows(file);
        let recorded: Vec<_> = rows.iter().filter(|r| get(r, "cache").contains("kmalloc-")).collect();
        assert_eq!((slub.kmalloc_kinds().len(), slub.cache_count()), (kinds, recorded.len()), "{era}");
        for id in (0..slub.cache_count() as u32).map(CacheId) {
            let (info, files) = (slub.info(id), slub.sysfs(id).expect("a cache"));
            let row = recorded.iter().find(|r| get(r, "cache") == info.name);
            let row = row.unwrap_or_else(|| panic!("{era}: {} is in no kernel", info.name));
            for name in ["object_size", "align", "slab_size", "objs_per_slab", "order", "min_partial", "cpu_partial"] {
                assert_eq!(files[name], get(row, name), "{era}: {name} of {}", info.name);
            }
            if row.iter().any(|(n, _)| n == "cache_dma") {
                assert_eq!(
                    (files["cache_dma"].as_str(), files["reclaim_account"].as_str()),
                    (Some(get(row, "cache_dma")), Some(get(row, "reclaim_account"))),
                    "{}",
                    info.name
                );
            } else {
                assert_eq!(files["reclaim_account"] == "1", number(get(row, "flags")) & 0x2_0000 != 0);
            }
        }
        super::tallied(&format!("kmalloc/{file}"), "caches", recorded.len() as u64, recorded.len() as u64);
    }
}
