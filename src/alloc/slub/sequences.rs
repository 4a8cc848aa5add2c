//! Short sequences whose end the specifications fix and no recording holds.

use serde_json::{Value, json};

use super::tests::{config, give, on, partial_inuse, stat, take, with_slub};
use super::*;
use crate::machine::Sim;
use crate::machine::presets::{Machinery, Placement, Scalar};
use crate::machine::sim::Schedule;
use crate::page::PageModel;

fn pages(slub: &mut Slub<'_, Sim>, id: CacheId) -> [u64; 2] {
    ["pages_alloced", "pages_freed"].map(|key| slub.state(id)[key].as_u64().expect("a number"))
}

fn named(node: u16) -> Request {
    Request { node: Some(NodeId(node)), ..Request::default() }
}

#[test]
fn pages_are_counted_as_slabs_have_them_whatever_their_order_and_the_counters() {
    // After a change of the order: one slab of one page, then one of eight.
    with_slub(1, 1, &config(json!({ "era": "3.2", "order": null, "merge": false })), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("test", 500)).unwrap();
        let first = take(slub, sim, 0, id, 1);
        let had = pages(slub, id)[0];
        slub.write_attribute(id, "order", 3).unwrap();
        let second = take(slub, sim, 0, id, 8 * had as usize);
        assert_eq!(pages(slub, id), [had + 8, 0]);
        slub.write_attribute(id, "alloc_slab", 0).unwrap();
        assert_eq!(pages(slub, id), [had + 8, 0], "a cleared counter is no page less");
        give(slub, sim, 0, id, &first);
        give(slub, sim, 0, id, &second);
        on(sim, 0, |c| slub.shrink(c, id));
        assert_eq!(pages(slub, id), [had + 8, had + 8]);
    });
}

#[test]
fn a_new_limit_of_cpu_partial_lists_flushes_the_cpus_in_their_order() {
    for era in ["3.2", "6.1", "6.8", "6.18"] {
        with_slub(2, 1, &config(json!({ "era": era, "merge": false })), |sim, slub| {
            let id = slub.create_cache(CacheSpec::new("test", 104)).unwrap();
            let mut held = take(slub, sim, 1, id, 1);
            held.extend(take(slub, sim, 0, id, 2));
            slub.write_attribute(id, "cpu_partial", 1).unwrap();
            // Both go to the head: CPU 0's first, then CPU 1's before it.
            assert_eq!(partial_inuse(slub, id, 0), [1, 2], "{era}");
            give(slub, sim, 0, id, &held);
        });
    }
}

#[test]
fn a_debug_cpu_slab_up_to_2_6_38_fits_no_named_node() {
    with_slub(2, 2, &config(json!({ "era": "2.6.31", "debug": "F", "order": 0 })), |sim, slub| {
        let id = slub.create_cache(CacheSpec::new("test", 1024)).unwrap();
        let held = take(slub, sim, 0, id, 5);
        give(slub, sim, 0, id, &held[..1]);
        let again = on(sim, 0, |c| slub.alloc(c, id, named(0)).unwrap().addr());
        // The cpu slab, the second, is given up behind the first, which is taken from the list.
        assert_eq!((again, stat(slub, id, 0, Stat::AllocFromPartial)), (held[0], 1));
        give(slub, sim, 0, id, &held);
    });
}

#[test]
fn from_7_1_on_a_cpu_without_memory_uses_sheaves_for_every_node_and_its_own_barn() {
    let shape = [("sockets", 3.0), ("cores_per_socket", 1.0), ("numa_nodes", 3.0), ("memoryless_nodes", 1.0)];
    let shape = shape.map(|(key, value)| (key.to_string(), Scalar::Number(value))).into();
    let hardware = Machinery::preset("opteron-2x4-2007", &shape, None, Placement::Packed).unwrap();
    let sim = Sim::new(&hardware, Schedule::default()).unwrap();
    let mut pages = Pages::new(&sim, PageModel::HotCold).unwrap();
    let mut slub = Slub::new(&pages, &config(json!({ "era": "7.1", "merge": false }))).unwrap();
    let id = slub.create_cache(CacheSpec::new("test", 500)).unwrap();
    let held = take(&slub, &sim, 1, id, 3);
    give(&slub, &sim, 2, id, &held[..1]);
    let state: Value = slub.state(id);
    assert_eq!(state["cpu"][2]["main"], 1, "{state}");
    assert_eq!(stat(&mut slub, id, 2, Stat::FreeSlowpath), 0);
    give(&slub, &sim, 0, id, &held[1..2]);
    assert_eq!(stat(&mut slub, id, 0, Stat::FreeSlowpath), 1, "a CPU with memory takes its own node's objects alone");
    give(&slub, &sim, 2, id, &held[2..]);
    on(&sim, 0, |c| slub.shrink(c, id));
    assert_eq!(slub.info(id).slabs, Some(0));
    slub.verify().unwrap();
    drop(slub);
    pages.verify().unwrap();
}
