//! What `geometry` says of a cache without a machine is what an allocator on a machine makes of it: every allocator and
//! era of the registry, caches of all kinds, and kmalloc's own.

use serde_json::{Value, json};

use crate::alloc::geometry::{Columns, Shape, Wanted};
use crate::alloc::{CacheInfo, Configuration, SlabAllocator};
use crate::machine::presets::Machinery;
use crate::machine::sim::Schedule;
use crate::machine::{Machine, Sim, Wakeup};
use crate::page::{PageModel, Pages};
use crate::spec::{CacheId, CacheSpec, Request};
use crate::units::PAGE_SIZE;

const CPUS: u64 = 4;
const MEMORY: u64 = 64 << 20;
const SIZES: [u64; 18] = [8, 16, 24, 40, 64, 96, 104, 192, 200, 256, 500, 700, 1024, 1400, 2048, 3000, 4096, 9000];

fn specs() -> Vec<CacheSpec> {
    let kinds = |size: u64| {
        let spec = |kind: &str| CacheSpec::new(format!("{kind}-{size}"), size);
        [
            spec("plain"),
            spec("line").hwcache(),
            CacheSpec { align: 128, ..spec("aligned") },
            CacheSpec { ctor: true, ..spec("ctor") },
            CacheSpec { typesafe_by_rcu: true, ..spec("typesafe") },
            CacheSpec { reclaim_account: true, ..spec("reclaim") },
        ]
    };
    let named = ["vm_area_struct", "maple_node"].map(|name| CacheSpec::new(name, 192));
    SIZES.iter().flat_map(|size| kinds(*size)).chain(named).collect()
}

/// The columns that a cache at work shows too.
fn compare(row: &Columns, info: &CacheInfo, name: &str) {
    let equal = |column: &str, at_work: Option<u64>| {
        let Some(found) = at_work else { return };
        let said = row.get(column).and_then(Value::as_u64);
        assert_eq!(said, Some(found), "{name}: {column} of {}, which says {row:?}", info.name);
    };
    equal("object_size", Some(info.object_size));
    equal("slot_size", Some(info.slot_size));
    equal("order", info.order.map(u64::from));
    equal("objects_per_slab", info.objects_per_slab);
    equal("min_partial", info.min_partial);
    let slqb = name.starts_with("slqb");
    equal(if slqb { "hiwater" } else { "limit" }, info.limit);
    equal(if slqb { "freebatch" } else { "batchcount" }, info.batchcount);
    equal("sharedfactor", info.sharedfactor);
}

fn sim() -> Sim {
    let hardware = Machinery::for_topology(CPUS, 1, MEMORY).expect("a small machine");
    Sim::new(&hardware, Schedule::default()).expect("a machine")
}

fn each_era<'p, C: Configuration, A: SlabAllocator<'p, Sim, Config = C>>(pages: &'p Pages<'p, Sim>, shape: &Shape) {
    for (era, extra) in C::ERAS.iter().flat_map(|era| [(era, ""), (era, "ZPU")]) {
        let has = |parameter: &str| C::PARAMETERS.iter().any(|p| p.name == parameter);
        if !extra.is_empty() && !has("debug") {
            continue;
        }
        let name = format!("{}@{era} {extra}", C::NAME);
        let mut given = json!({ "era": era });
        if has("merge") {
            given["merge"] = json!(false);
        }
        if !extra.is_empty() {
            given["debug"] = json!(extra);
        }
        let config = C::from_json(&given).expect("an era");
        let mut alloc = A::new(pages, &config).expect("an allocator");
        for spec in specs() {
            let said = config.geometry(&Wanted::Cache(spec.clone()), shape);
            match (alloc.create_cache(spec.clone()), said) {
                (Ok(id), Ok(row)) => compare(&row, &alloc.info(id), &name),
                (Err(made), Err(said)) => assert_eq!(made, said, "{name}"),
                (made, said) => panic!("{name}: {spec:?} is {made:?}, geometry says {said:?}"),
            }
        }
        let infos: Vec<CacheInfo> = (0..alloc.cache_count() as u32).map(|id| alloc.info(CacheId(id))).collect();
        for bytes in [1, 8, 13, 65, 96, 97, 130, 193, 1000, 4096, 8192] {
            let row = config.geometry(&Wanted::Kmalloc(bytes), shape).expect("a size of every era");
            let cache = row["cache"].as_str().expect("a name");
            if let Some(info) = infos.iter().find(|i| i.name == cache).filter(|_| C::NAME != "slob") {
                compare(&row, info, &name);
            } else {
                assert!(cache == "(page allocator)" || C::NAME == "slob", "{name}: {bytes} in {cache}");
            }
        }
    }
}

#[test]
fn geometry_says_what_every_allocator_makes() {
    let shape = Shape::of_machine(CPUS as usize, MEMORY);
    macro_rules! each {
        ($($name:literal => $alloc:ty, $config:ty;)*) => { $({
            let sim = sim();
            let pages = Pages::new(&sim, PageModel::HotCold).expect("pages");
            each_era::<$config, $alloc>(&pages, &shape);
        })* };
    }
    crate::allocators!(each);
}

/// How many objects of a cache, or of kmalloc, an empty page of SLOB's heap holds.
fn on_the_first_page(config: &crate::alloc::slob::Config, wanted: &Wanted) -> u64 {
    use crate::alloc::slob::Slob;
    let sim = sim();
    let pages = Pages::new(&sim, PageModel::HotCold).expect("pages");
    let mut slob = Slob::new(&pages, config).expect("an allocator");
    let cache = match wanted {
        Wanted::Cache(spec) => Some(slob.create_cache(spec.clone()).expect("a cache")),
        Wanted::Kmalloc(_) => None,
    };
    let found = std::sync::atomic::AtomicU64::new(0);
    sim.boot(|cpu| {
        use crate::machine::Cpu;
        if cpu.id().0 != 0 {
            while cpu.idle(None) != Wakeup::Quiet {}
            return;
        }
        let mut first = None;
        loop {
            let object = match (cache, wanted) {
                (Some(id), _) => slob.alloc(cpu, id, Request::default()),
                (None, Wanted::Kmalloc(bytes)) => slob.kmalloc(cpu, *bytes, Request::default()),
                (None, Wanted::Cache(_)) => unreachable!("it has been made"),
            };
            let page = object.expect("memory").addr().0 / PAGE_SIZE;
            if *first.get_or_insert(page) != page {
                break;
            }
            found.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    found.into_inner()
}

#[test]
fn slob_s_pages_hold_as_many_blocks_as_geometry_says() {
    use crate::alloc::slob::Config;
    for era in Config::ERAS {
        // The descriptor of the cache would be in the first page.
        let config = Config { descriptor: 0, ..Config::era(era).expect("an era") };
        let caches = [24, 37, 104, 256, 700, 2000, 4000].into_iter().flat_map(|size| {
            let plain = CacheSpec::new("t", size);
            [plain.clone(), plain.clone().hwcache(), CacheSpec { align: 512, ..plain }].map(Wanted::Cache)
        });
        let blocks = [1, 8, 24, 64, 100, 256, 1024, 2000, 2048].into_iter().map(Wanted::Kmalloc);
        for wanted in caches.chain(blocks) {
            let said = config.geometry(&wanted, &Shape::of_machine(1, MEMORY)).expect("a block");
            assert_eq!(said["objects_per_slab"], on_the_first_page(&config, &wanted), "{era}: {wanted:?}");
        }
    }
}
