//! The invariants of slub.md §11 that are rules about moments, in every era. Those about a state (1 to 3, 5 to 7, 10, 13, and
//! that a tid has its CPU's number) are `verify()`'s, which every test calls; 11 is
//! `tests::pages_of_a_typesafe_by_rcu_cache_…`, 12 `tests::a_fresh_slab_…`, 15 `tests::destroying_a_cache_…`.

use serde_json::json;

use super::policy::*;
use super::tests::{config, give, on, take, with_slub};
use super::*;
use crate::alloc::Configuration;
use crate::machine::Sim;
use crate::machine::presets::Machinery;
use crate::machine::sim::Schedule;
use crate::page::PageModel;

/// Every era, and the sheaves of 6.18 in all caches.
fn each(body: impl Fn(&str, &Config)) {
    for era in Config::ERAS {
        body(era, &config(json!({ "era": era, "merge": false })));
    }
    body("6.18 with sheaves", &config(json!({ "era": "6.18", "merge": false, "sheaf_capacity": 32 })));
}

fn slabs(slub: &mut Slub<'_, Sim>, id: CacheId) -> u64 {
    slub.info(id).slabs.expect("SLUB has slabs")
}

#[test]
fn a_slab_that_the_last_free_empties_is_kept_by_the_threshold_of_the_era_only() {
    each(|name, config| {
        with_slub(2, 1, config, |sim, slub| {
            let id = slub.create_cache(CacheSpec::new("test", 256)).unwrap();
            let held = take(slub, sim, 0, id, 640);
            give(slub, sim, 1, id, &held);
            on(sim, 0, |c| slub.flush_all(c, slub.cache(id)));
            let most = slub.cache(id).limits.min_partial + u64::from(config.t.discard_empty == DiscardEmpty::Above);
            let listed = slub.caches[id.0 as usize].nodes[0].nr_partial.peek();
            assert!(listed <= most, "{name}: {listed} partial slabs, at most {most} are kept empty");
        });
    });
}

#[test]
fn a_flush_and_a_shrink_leave_no_slab_of_a_cache_without_objects() {
    each(|name, config| {
        with_slub(2, 2, config, |sim, slub| {
            let id = slub.create_cache(CacheSpec::new("test", 256)).unwrap();
            let near = take(slub, sim, 0, id, 640);
            let far = take(slub, sim, 1, id, 640);
            give(slub, sim, 0, id, &far[..600]);
            give(slub, sim, 1, id, &near[..600]);
            give(slub, sim, 0, id, &near[600..]);
            give(slub, sim, 1, id, &far[600..]);
            on(sim, 0, |c| slub.shrink(c, id));
            // Where sheaves stand over cpu slabs, emptying the barns makes cpu partials (slub-eras.md §6.7).
            if slub.cache(id).limits.sheaf_capacity > 0 && config.era == "6.18" {
                on(sim, 0, |c| slub.shrink(c, id));
            }
            assert_eq!(slabs(slub, id), 0, "{name}");
        });
    });
}

#[test]
fn a_cpu_s_partial_list_is_at_its_limit_after_a_free_and_never_above() {
    for era in ["3.2", "6.1", "6.8", "6.18"] {
        with_slub(1, 1, &config(json!({ "era": era, "merge": false })), |sim, slub| {
            let id = slub.create_cache(CacheSpec::new("test", 512)).unwrap();
            let objects = slub.cache(id).layout.objects as usize;
            let limits = slub.cache(id).limits;
            let held = take(slub, sim, 0, id, 60 * objects);
            let mut most = 0;
            for slab in held.chunks(objects) {
                give(slub, sim, 0, id, &slab[..1]);
                let list = &slub.caches[id.0 as usize].cpus.get_mut(CpuId(0)).partial;
                most = most.max(if era == "3.2" { list.pobjects() } else { list.len() });
            }
            // Tested before the push: the top may be at the limit, in objects (3.2) one above.
            let limit = if era == "3.2" { limits.cpu_partial.unwrap() + 1 } else { limits.cpu_partial_slabs };
            assert_eq!(most, limit, "{era}");
            give(slub, sim, 0, id, &held.chunks(objects).flat_map(|s| s[1..].to_vec()).collect::<Vec<_>>());
        });
    }
}

#[test]
fn a_tid_rises_with_every_operation_by_steps_of_the_number_of_cpus() {
    for era in ["3.1", "6.1", "6.8"] {
        with_slub(3, 1, &config(json!({ "era": era, "merge": false })), |sim, slub| {
            let id = slub.create_cache(CacheSpec::new("test", 256)).unwrap();
            let tid = |slub: &mut Slub<'_, Sim>| slub.caches[id.0 as usize].cpus.get_mut(CpuId(1)).tid();
            let mut last = tid(slub);
            for _ in 0..40 {
                let held = take(slub, sim, 1, id, 1);
                let now = tid(slub);
                assert!(now > last && now % 4 == 1, "{era}: {last}, {now}");
                give(slub, sim, 1, id, &held);
                last = tid(slub);
                assert!(last > now && last % 4 == 1, "{era}: {now}, {last}");
            }
        });
    }
}

#[test]
fn a_double_free_without_checks_makes_a_cycle() {
    each(|name, config| {
        let sim = Sim::new(&Machinery::for_topology(1, 1, 64 << 20).unwrap(), Schedule::default()).unwrap();
        let pages = Pages::new(&sim, PageModel::HotCold).unwrap();
        let mut slub = Slub::new(&pages, config).unwrap();
        let id = slub.create_cache(CacheSpec::new("test", 256)).unwrap();
        let held = take(&slub, &sim, 0, id, 5);
        give(&slub, &sim, 0, id, &[held[0], held[1], held[0]]);
        let again = take(&slub, &sim, 0, id, 3);
        assert_eq!(again, [held[0], held[1], held[0]], "{name}: nothing is mended silently");
    });
}
