//! Replays the recordings of the original allocators (see data/README.md) and compares every checkpoint and every placed
//! object, key by key.
//!
//! `SLABLAB_ORACLE=part` replays a fixed fifth of the sequences, chosen by a hash of their parameters; default: all.

mod boot;
mod boottrace;
mod compare;
mod geometry;
mod placement;
mod recording;
mod sequences;
mod slob;

use std::panic::{AssertUnwindSafe, catch_unwind};

use rayon::prelude::*;
use serde_json::{Value, json};

use crate::alloc::{Configuration, SlabAllocator};
use crate::machine::Sim;
use crate::machine::presets::Machinery;
use crate::machine::sim::Schedule;
use crate::page::{PageModel, Pages};
use crate::run::script::{Slots, execute};
use crate::spec::CacheId;
use compare::{Line, Tally};
use recording::{Group, RawGroup};

/// Memory of every replay: what the recordings' stand-ins report to SLAB's order rule. Untouched pages cost nothing.
const MEMORY: u64 = 512 << 20;

/// One test per recording. `name: path under data/, allocator, configuration;`
macro_rules! recordings {
    ($($name:ident: $path:literal, $allocator:ident, $config:tt;)*) => {
        $(
            #[test]
            fn $name() {
                check($path, &json!($config), |group, pages, config| world::<$allocator<Sim>>(group, pages, config));
            }
        )*
    };
}

// SLAB: the recordings of 2.6.24 trim every cache 4 s after its creation; those of 6.1 were made with slab_nomerge.
use crate::alloc::slab::Slab;
recordings! {
    slab2624_smp1_every_checkpoint_is_equal: "controlled/slab2624_smp1", Slab, { "era": "2.6.24", "reap_spread": false };
    slab2624_smp2_every_checkpoint_is_equal: "controlled/slab2624_smp2", Slab, { "era": "2.6.24", "reap_spread": false };
    slab2624_numa_every_checkpoint_is_equal: "controlled/slab2624_numa", Slab, { "era": "2.6.24", "reap_spread": false };
    slab_smp1_every_checkpoint_is_equal: "controlled/slab_smp1", Slab, { "era": "6.1", "merge": false };
    slab_smp2_every_checkpoint_is_equal: "controlled/slab_smp2", Slab, { "era": "6.1", "merge": false };
    slab_numa_every_checkpoint_is_equal: "controlled/slab_numa", Slab, { "era": "6.1", "merge": false };
    slab_smp1_every_object_is_placed_equal: "placement/slab_smp1", Slab, { "era": "6.1", "merge": false };
    slab2624_smp1_every_object_is_placed_equal: "placement/slab2624_smp1", Slab, { "era": "2.6.24" };
    slab2624_smp2_every_object_is_placed_equal: "placement/slab2624_smp2", Slab, { "era": "2.6.24" };
}

// SLUB: recorded with slub_nomerge.
use crate::alloc::slub::Slub;
recordings! {
    slub2622_smp2_every_checkpoint_is_equal: "controlled/slub2622_smp2", Slub, { "era": "2.6.22", "merge": false };
    slub2624rc2_smp2_every_checkpoint_is_equal: "controlled/slub2624rc2_smp2", Slub, { "era": "2.6.24-rc2", "merge": false };
    slub2624_smp1_every_checkpoint_is_equal: "controlled/slub2624_smp1", Slub, { "era": "2.6.24", "merge": false };
    slub2624_smp2_every_checkpoint_is_equal: "controlled/slub2624_smp2", Slub, { "era": "2.6.24", "merge": false };
    slub2625_smp2_every_checkpoint_is_equal: "controlled/slub2625_smp2", Slub, { "era": "2.6.25", "merge": false };
    slub2627_smp2_every_checkpoint_is_equal: "controlled/slub2627_smp2", Slub, { "era": "2.6.27", "merge": false };
    slub2631_smp2_every_checkpoint_is_equal: "controlled/slub2631_smp2", Slub, { "era": "2.6.31", "merge": false };
    slub31_smp2_every_checkpoint_is_equal: "controlled/slub31_smp2", Slub, { "era": "3.1", "merge": false };
    slub32_smp1_every_checkpoint_is_equal: "controlled/slub32_smp1", Slub, { "era": "3.2", "merge": false };
    slub32_smp2_every_checkpoint_is_equal: "controlled/slub32_smp2", Slub, { "era": "3.2", "merge": false };
    slub_smp1_every_checkpoint_is_equal: "controlled/slub_smp1", Slub, { "era": "6.1", "merge": false };
    slub_smp2_every_checkpoint_is_equal: "controlled/slub_smp2", Slub, { "era": "6.1", "merge": false };
    slub_numa_r0_every_checkpoint_is_equal: "controlled/slub_numa_r0", Slub, { "era": "6.1", "merge": false, "remote_node_defrag_ratio": 0 };
    slub_smp1_debugfzpu_every_checkpoint_is_equal: "controlled/slub_smp1_debugFZPU", Slub, { "era": "6.1", "merge": false, "debug": "FZPU" };
    slub_smp2_min16max4_every_checkpoint_is_equal: "controlled/slub_smp2_min16max4", Slub, { "era": "6.1", "merge": false, "min_objects": 16, "max_order": 4 };
    slubncp_smp1_every_checkpoint_is_equal: "controlled/slubncp_smp1", Slub, { "era": "6.1", "merge": false, "cpu_partial": "none" };
    slubncp_smp2_every_checkpoint_is_equal: "controlled/slubncp_smp2", Slub, { "era": "6.1", "merge": false, "cpu_partial": "none" };
    slub68_smp2_every_checkpoint_is_equal: "controlled/slub68_smp2", Slub, { "era": "6.8", "merge": false };
    slub618_smp2_every_checkpoint_is_equal: "controlled/slub618_smp2", Slub, { "era": "6.18", "merge": false };
    slub618sheaf_smp2_every_checkpoint_is_equal: "controlled/slub618sheaf_smp2", Slub, { "era": "6.18", "merge": false, "sheaf_capacity": 32 };
    slub71_smp1_every_checkpoint_is_equal: "controlled/slub71_smp1", Slub, { "era": "7.1", "merge": false };
    slub71_smp2_every_checkpoint_is_equal: "controlled/slub71_smp2", Slub, { "era": "7.1", "merge": false };
    slub2622_smp1_every_object_is_placed_equal: "placement/slub2622_smp1", Slub, { "era": "2.6.22", "merge": false };
    slub2622_smp2_every_object_is_placed_equal: "placement/slub2622_smp2", Slub, { "era": "2.6.22", "merge": false };
    slub2624rc2_smp1_every_object_is_placed_equal: "placement/slub2624rc2_smp1", Slub, { "era": "2.6.24-rc2", "merge": false };
    slub2624rc2_smp2_every_object_is_placed_equal: "placement/slub2624rc2_smp2", Slub, { "era": "2.6.24-rc2", "merge": false };
    slub2624_smp1_every_object_is_placed_equal: "placement/slub2624_smp1", Slub, { "era": "2.6.24", "merge": false };
    slub2624_smp2_every_object_is_placed_equal: "placement/slub2624_smp2", Slub, { "era": "2.6.24", "merge": false };
    slub2625_smp1_every_object_is_placed_equal: "placement/slub2625_smp1", Slub, { "era": "2.6.25", "merge": false };
    slub2625_smp2_every_object_is_placed_equal: "placement/slub2625_smp2", Slub, { "era": "2.6.25", "merge": false };
    slub2627_smp1_every_object_is_placed_equal: "placement/slub2627_smp1", Slub, { "era": "2.6.27", "merge": false };
    slub2627_smp2_every_object_is_placed_equal: "placement/slub2627_smp2", Slub, { "era": "2.6.27", "merge": false };
    slub2631_smp1_every_object_is_placed_equal: "placement/slub2631_smp1", Slub, { "era": "2.6.31", "merge": false };
    slub2631_smp2_every_object_is_placed_equal: "placement/slub2631_smp2", Slub, { "era": "2.6.31", "merge": false };
    slub31_smp1_every_object_is_placed_equal: "placement/slub31_smp1", Slub, { "era": "3.1", "merge": false };
    slub31_smp2_every_object_is_placed_equal: "placement/slub31_smp2", Slub, { "era": "3.1", "merge": false };
    slub32_smp1_every_object_is_placed_equal: "placement/slub32_smp1", Slub, { "era": "3.2", "merge": false };
    slub32_smp2_every_object_is_placed_equal: "placement/slub32_smp2", Slub, { "era": "3.2", "merge": false };
    slub_smp1_every_object_is_placed_equal: "placement/slub_smp1", Slub, { "era": "6.1", "merge": false };
    slubncp_smp1_every_object_is_placed_equal: "placement/slubncp_smp1", Slub, { "era": "6.1", "merge": false, "cpu_partial": "none" };
    slub68_smp1_every_object_is_placed_equal: "placement/slub68_smp1", Slub, { "era": "6.8", "merge": false };
    slub68_smp2_every_object_is_placed_equal: "placement/slub68_smp2", Slub, { "era": "6.8", "merge": false };
    slub618_smp1_every_object_is_placed_equal: "placement/slub618_smp1", Slub, { "era": "6.18", "merge": false };
    slub618_smp2_every_object_is_placed_equal: "placement/slub618_smp2", Slub, { "era": "6.18", "merge": false };
    slub618sheaf_smp1_every_object_is_placed_equal: "placement/slub618sheaf_smp1", Slub, { "era": "6.18", "merge": false, "sheaf_capacity": 32 };
    slub618sheaf_smp2_every_object_is_placed_equal: "placement/slub618sheaf_smp2", Slub, { "era": "6.18", "merge": false, "sheaf_capacity": 32 };
    slub71_smp1_every_object_is_placed_equal: "placement/slub71_smp1", Slub, { "era": "7.1", "merge": false };
    slub71_smp2_every_object_is_placed_equal: "placement/slub71_smp2", Slub, { "era": "7.1", "merge": false };
}

// SLOB: the recordings keep the descriptors of caches elsewhere.
use crate::alloc::slob::Slob;
recordings! {
    slob2624_smp1_every_checkpoint_is_equal: "controlled/slob2624_smp1", Slob, { "era": "2.6.24", "descriptor": 0 };
    slob2624_smp1_every_object_is_placed_equal: "placement/slob2624_smp1", Slob, { "era": "2.6.24", "descriptor": 0 };
    slob2624headmerge_smp1_every_checkpoint_is_equal: "controlled/slob2624headmerge_smp1", Slob, { "era": "2.6.24-headmerge", "descriptor": 0 };
    slob2624headmerge_smp1_every_object_is_placed_equal: "placement/slob2624headmerge_smp1", Slob, { "era": "2.6.24-headmerge", "descriptor": 0 };
    slob2627_smp1_every_checkpoint_is_equal: "controlled/slob2627_smp1", Slob, { "era": "2.6.27", "descriptor": 0 };
    slob2627_smp1_every_object_is_placed_equal: "placement/slob2627_smp1", Slob, { "era": "2.6.27", "descriptor": 0 };
    slob_smp1_every_checkpoint_is_equal: "controlled/slob_smp1", Slob, { "era": "6.1", "descriptor": 0 };
    slob_smp1_every_object_is_placed_equal: "placement/slob_smp1", Slob, { "era": "6.1", "descriptor": 0 };
}

// SLQB
use crate::alloc::slqb::Slqb;
recordings! {
    slqb_smp1_every_checkpoint_is_equal: "controlled/slqb_smp1", Slqb, { "era": "2.6.29" };
    slqb_smp2_every_checkpoint_is_equal: "controlled/slqb_smp2", Slqb, { "era": "2.6.29" };
    slqb_numa_every_checkpoint_is_equal: "controlled/slqb_numa", Slqb, { "era": "2.6.29" };
    slqb_smp1_every_object_is_placed_equal: "placement/slqb_smp1", Slqb, { "era": "2.6.29" };
    slqb_smp2_every_object_is_placed_equal: "placement/slqb_smp2", Slqb, { "era": "2.6.29" };
    slqb_numa_every_object_is_placed_equal: "placement/slqb_numa", Slqb, { "era": "2.6.29" };
}

/// Replays a group on a fresh allocator of type `A` over `pages`.
fn world<'p, A: SlabAllocator<'p, Sim>>(group: &Group, pages: &'p Pages<'p, Sim>, config: &Value) -> Tally {
    let config = A::Config::from_json(config).expect("a configuration of the recording's allocator");
    let mut allocator = A::new(pages, &config).expect("the allocator boots");
    if group.get("placement").is_string() {
        placement::replay(&mut allocator, group)
    } else {
        checkpoints(&mut allocator, group)
    }
}

/// Replays a sequence and compares the state at each checkpoint.
fn checkpoints<'p, A: SlabAllocator<'p, Sim>>(allocator: &mut A, group: &Group) -> Tally {
    let mut tally = Tally::default();
    let Some((script, live)) = sequences::script(group) else {
        return left_out(group, format!("sequence {}: not built", group.get("sequence")));
    };
    let mut shown = 0;
    let mut at = |allocator: &mut A, caches: &[CacheId], slots: &Slots, _: &str| {
        let recorded = &group.lines[shown];
        let line = Line { number: group.line + shown, title: format!("{} {}", group.title(), recorded["checkpoint"]) };
        // These two check the replay, not the allocator.
        assert_eq!(recorded["live"], live[shown].0, "{}: live", line.title);
        if let Some(bytes) = recorded.get("live_bytes") {
            assert_eq!(*bytes, live[shown].1, "{}: live_bytes", line.title);
        }
        let ours = state(allocator, caches, slots, recorded);
        let equal = if racing(recorded) {
            tally.racing += 1;
            tally.state(&line, &without(recorded, &["stat", "stat_cpu"]), &ours)
        } else if others_pages(recorded) {
            tally.others_pages += 1;
            tally.state(&line, &without(recorded, &["pages_alloced", "pages_freed"]), &ours)
        } else {
            tally.state(&line, recorded, &ours)
        };
        tally.total += 1;
        tally.equal += u64::from(equal);
        let last = group.lines.get(shown + 1).is_none_or(|next| next["checkpoint"] == "destroyed");
        if last && recorded["checkpoint"] != "destroyed" {
            tally.key("verify()", &line, allocator.verify().err().map(|e| e.to_string()));
        }
        shown += 1;
    };
    let machine = allocator.pages().machine();
    let slots = execute(machine, allocator, &script, &mut at).expect("a script that runs");
    assert_eq!(slots.failed, 0, "{}: memory is out", group.title());
    tally
}

/// The state to compare with `recorded`. kmalloc has no cache of its own: what belongs to one is left out.
fn state<'p, A: SlabAllocator<'p, Sim>>(
    allocator: &mut A,
    caches: &[CacheId],
    slots: &Slots,
    recorded: &Value,
) -> Value {
    let mut state = allocator.state(caches.first().copied().unwrap_or(CacheId(0)));
    let fields = state.as_object_mut().expect("a state is an object");
    if caches.is_empty() {
        fields.insert("geometry".into(), recorded["geometry"].clone());
    }
    if let Some(held) = fields.get("held").and_then(Value::as_u64) {
        fields.insert("held".into(), (held + slots.prefilled()).into());
    }
    if recorded["checkpoint"] == "destroyed" {
        fields.insert("warnings".into(), slots.destroyed.warnings.into());
        fields.entry("pages_live").or_insert(slots.destroyed.pages_lost.into());
    }
    state
}

/// A booted kernel flushes its CPUs in racing order: which CPU's slabs find the node list below its limit is chance, and so are
/// the counters of a shrink. Recordings of compiled sources (key `source`) go in order.
fn racing(recorded: &Value) -> bool {
    recorded["checkpoint"] == "shrunk" && recorded["smp"] != 1 && recorded.get("source").is_none()
}

/// The recorded page counts hold pages that are not the cache's: a shrink of 3.1 and 3.2 takes its array of buckets from
/// kmalloc, and the first of each class in the whole recording makes a slab there. Seen from the line itself: more pages
/// taken and not returned than the cache has.
fn others_pages(recorded: &Value) -> bool {
    let number = |key: &str| recorded[key].as_u64();
    let (Some(taken), Some(freed)) = (number("pages_alloced"), number("pages_freed")) else { return false };
    let (Some(slabs), Some(order)) = (number("nr_slabs"), recorded["geometry"]["order"].as_u64()) else { return false };
    recorded["allocator"].as_str().is_some_and(|a| a.starts_with("slub")) && taken - freed != slabs << order
}

fn without(recorded: &Value, keys: &[&str]) -> Value {
    let mut rest = recorded.clone();
    let fields = rest.as_object_mut().expect("a line is an object");
    keys.iter().for_each(|key| {
        fields.remove(*key);
    });
    rest
}

fn left_out(group: &Group, why: String) -> Tally {
    let mut tally = Tally::default();
    tally.left_out.insert(why, group.lines.len() as u64);
    tally
}

/// Replays a group on an allocator of the type behind the pointer.
type World = for<'p> fn(&Group, &'p Pages<'p, Sim>, &Value) -> Tally;

/// Replays a whole recording: groups in parallel, each on a machine of its own.
fn replay(path: &str, config: &Value, world: World) -> Tally {
    let part = std::env::var("SLABLAB_ORACLE").is_ok_and(|v| v == "part");
    let one = |raw: &RawGroup| {
        let group = raw.parse();
        if part && !in_part(&group) {
            return left_out(&group, "not in the part that SLABLAB_ORACLE=part replays".into());
        }
        catch_unwind(AssertUnwindSafe(|| {
            let (cpus, nodes) = group.shape();
            let hardware = Machinery::for_topology(cpus, nodes, MEMORY / nodes).expect("a small machine");
            let sim = Sim::new(&hardware, Schedule::default()).expect("a machine");
            let pages = Pages::new(&sim, PageModel::Stack).expect("its pages");
            world(&group, &pages, config)
        }))
        .unwrap_or_else(|panic| panicked(&group, &*panic))
    };
    recording::groups(path).par_iter().map(one).reduce(Tally::default, Tally::merge)
}

/// A group whose replay panicked: none of its lines is equal.
fn panicked(group: &Group, panic: &(dyn std::any::Any + Send)) -> Tally {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
    let mut tally = Tally { total: group.lines.len() as u64, ..Tally::default() };
    tally.key("panic", &Line { number: group.line, title: group.title() }, Some(text));
    tally
}

/// One group of five, by FNV-1a over what identifies it.
fn in_part(group: &Group) -> bool {
    let hash = group
        .title()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    (hash >> 32) % 5 == 0
}

/// Leaves what was compared where `make test` sums it up (`SLABLAB_TALLY`: a folder): one line per file.
fn tallied(name: &str, what: &str, equal: u64, total: u64) {
    let Some(folder) = std::env::var_os("SLABLAB_TALLY") else { return };
    let line = format!("{name}\t{what}\t{equal}\t{total}\n");
    std::fs::write(std::path::Path::new(&folder).join(name.replace('/', "-")), line).expect("a folder to write to");
}

/// Replays a recording, prints what was compared, and fails unless all of it is equal.
fn check(path: &str, config: &Value, world: World) {
    let started = std::time::Instant::now();
    let tally = replay(path, config, world);
    let report = tally.report(path);
    println!("{report}  {:.1} s", started.elapsed().as_secs_f64());
    tallied(path, "checkpoints", tally.equal, tally.total);
    assert!(tally.total > 0 && tally.equal == tally.total, "{report}");
    let differing = tally.keys.values().map(|k| k.different).sum::<u64>();
    assert_eq!(differing, 0, "{report}");
}

#[cfg(test)]
mod tests;
