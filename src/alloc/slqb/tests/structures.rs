//! SLQB's own structures as objects of three caches (slqb.md §14, §19.17, §24.15).

use super::*;
use crate::alloc::slqb::policy::{Metadata, STRUCT_BYTES};
use crate::machine::sim::Schedule;

fn own() -> Config {
    Config { metadata: Metadata::Own, ..config(&[]) }
}

/// Live objects of `kmem_cache`, `kmem_cache_cpu` and `kmem_cache_node`.
fn live(lab: &mut Lab<'_>) -> [u64; 3] {
    [20, 21, 22].map(|id| lab.slqb.info(CacheId(id)).live_objects)
}

#[test]
fn every_cache_has_a_descriptor_and_a_structure_per_cpu_and_node_as_objects() {
    for (shape, cpus, nodes) in
        [(ONE, 1, 1), (PAIR, 2, 1), (TWO_NODES, 2, 2), (Shape { cpus: 16, nodes: 4, mib: 8 }, 16, 4)]
    {
        lab(shape, own(), plain(104), |lab| {
            let names = [20, 21, 22].map(|id| lab.slqb.info(CacheId(id)).name);
            assert_eq!(names, ["kmem_cache", "kmem_cache_cpu", "kmem_cache_node"]);
            // The twenty of kmalloc, and the lab's.
            assert_eq!(live(lab), [21, 21 * cpus, 21 * nodes]);
            let bytes = (cpus + nodes) * STRUCT_BYTES;
            assert_eq!(lab.slqb.structure_bytes(), bytes + 8 * (cpus + nodes), "§19.17, with the pointer arrays");
            assert_eq!(lab.slqb.info(CacheId(21)).slot_size, STRUCT_BYTES);
            let slabs: u64 = [20, 21, 22].map(|id| lab.slqb.info(CacheId(id)).slabs.unwrap()).iter().sum();
            assert_eq!(lab.slqb.pages().lent(), slabs, "they count as used memory");
            let cache = lab.cache;
            lab.on(0, |cpu| assert_eq!(lab.slqb.destroy(cpu, cache), Destroyed::default()));
            assert_eq!(live(lab), [20, 20 * cpus, 20 * nodes]);
        });
    }
}

#[test]
fn they_are_small_slabs_whatever_order_is_asked_for() {
    lab(PAIR, Config { order: Some(3), ..own() }, plain(104), |lab| {
        assert_eq!([20, 21, 22].map(|id| lab.slqb.info(CacheId(id)).order), [Some(0); 3]);
        assert_eq!(lab.slqb.info(lab.cache).order, Some(3));
    });
}

#[test]
fn each_structure_lies_on_the_node_it_serves() {
    lab(Shape { cpus: 4, nodes: 4, mib: 8 }, own(), plain(104), |lab| {
        let cache = &lab.slqb.caches[lab.cache.0 as usize];
        for list in &cache.lists {
            let pfn = lab.slqb.pages().pfn_of(list.hot).expect("an object, in the arena");
            assert_eq!(lab.slqb.pages().node_of(pfn), list.node);
        }
    });
}

#[test]
fn the_kernels_list_has_the_newest_cache_first_and_the_three_last() {
    lab(PAIR, own(), plain(104), |lab| {
        lab.slqb.create_cache(CacheSpec::new("newer", 64)).unwrap();
        let text = lab.slqb.slabinfo().unwrap();
        let names: Vec<&str> = text.lines().skip(2).filter_map(|l| l.split_whitespace().next()).collect();
        assert_eq!(names[..3], ["newer", "test", "kmalloc-2097152"]);
        assert_eq!(names[names.len() - 4..], ["kmalloc-8", "kmem_cache_node", "kmem_cache_cpu", "kmem_cache"]);
    });
}

#[test]
fn what_a_cache_is_made_of_counts_in_no_statistics_of_a_run() {
    lab(PAIR, own(), plain(104), |lab| {
        for id in 20..23 {
            assert!(lab.slqb.counters(CacheId(id)).iter().all(|c| c.get(Stat::SlqbAlloc) == 0));
        }
    });
}

/// §16, §19.17 and the mail of December 2008: structures grow with CPUs + nodes, which SLAB's arrays for other nodes do not.
#[test]
fn structures_of_slqb_grow_linearly_and_those_of_slab_with_the_square_of_the_nodes() {
    use crate::alloc::slab;
    for (cpus, nodes) in [(1, 1), (8, 1), (8, 2), (16, 4), (32, 8), (160, 16)] {
        let shape = Shape { cpus, nodes, mib: 16 };
        lab(shape, own(), plain(104), |lab| assert_eq!(live(lab), [21, 21 * cpus, 21 * nodes]));
        let machine = shape.machine(Schedule::default());
        let pages = Pages::new(&machine, PageModel::HotCold).unwrap();
        let mut slab = slab::Slab::new(&pages, &slab::Config::era("2.6.24").unwrap()).unwrap();
        let used = |slab: &mut slab::Slab<'_, Sim>| {
            let kmalloc = (0..slab.cache_count() as u32).map(|id| slab.info(CacheId(id)));
            kmalloc
                .filter(|i| ["size-128", "size-1024", "size-4096"].contains(&i.name.as_str()))
                .map(|i| i.live_objects * i.slot_size)
                .sum::<u64>()
        };
        let before = used(&mut slab);
        slab.create_cache(plain(104)).unwrap();
        // slab.md E13: arrays of 984, 3864 and 120 bytes, in the slots of kmalloc. The headers of the slabs that they lie in
        // are elsewhere.
        let shared = if cpus > 1 { 4096 * nodes } else { 0 };
        assert_eq!(
            used(&mut slab) - before,
            1024 * cpus + shared + 128 * nodes * (nodes - 1),
            "{cpus} CPUs, {nodes} nodes"
        );
    }
}
