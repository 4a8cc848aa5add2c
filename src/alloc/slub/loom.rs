//! Models of what CPUs do to one cache at the same time, under every interleaving and every weak reading that the C11 memory
//! model allows, with at most [`PREEMPTIONS`] preemptions. What runs is the allocator itself, its page allocator, words and
//! locks, on the machine [`Model`]; `verify()` judges the end of each run. `make loom` runs them.
//!
//! Lockless eras only: the slab lock of earlier ones is a bit of a word that its holder changes by plain stores. That is sound,
//! as others only set the bit again in vain; but loom lets such a store and their read-modify-writes pass each other.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::alloc::Configuration;
use crate::machine::Cpu;
use crate::machine::model::{Model, ModelCpu};
use crate::page::PageModel;
use crate::units::PAGE_SIZE;

/// Preemptions of a run, each in any place: of two CPUs, and of three.
const PREEMPTIONS: [usize; 2] = [3, 2];
/// Pages of the model: some more than the page allocator keeps for itself.
const FRAMES: u64 = 64;
/// Three of them fill a page.
const SIZE: u64 = 1360;
/// Where holders write, clear of the free pointer in any release.
const MARK: u64 = 16;

/// A cache of objects of which three fill a slab.
struct World<'p> {
    model: &'p Model,
    slub: Slub<'p, Model>,
    id: CacheId,
}

impl World<'_> {
    fn cache(&self) -> &Cache<Model> {
        self.slub.cache(self.id)
    }
    fn alloc(&self, cpu: &ModelCpu) -> Addr {
        self.slub.alloc(cpu, self.id, Request::default()).expect("memory").addr()
    }
    fn free(&self, cpu: &ModelCpu, object: Addr) {
        self.slub.free(cpu, self.id, Object::at(object));
    }
    /// Objects taken on a CPU while no other runs.
    fn take(&self, cpu: u16, n: usize) -> Vec<Addr> {
        self.model.alone(cpu, |c| (0..n).map(|_| self.alloc(c)).collect())
    }
    fn give(&self, cpu: u16, objects: &[Addr]) {
        self.model.alone(cpu, |c| objects.iter().for_each(|o| self.free(c, *o)));
    }
    fn partial(&mut self) -> usize {
        let pages = self.slub.pages;
        self.slub.caches[self.id.0 as usize].nodes[0].listed(pages).len()
    }
    /// Sound, with `held` objects in users' hands; when they are freed and the cache is shrunk nothing is left.
    fn ends_with(&mut self, held: &[Addr]) {
        self.slub.verify().expect("sound slabs");
        assert_eq!(self.slub.info(self.id).live_objects, held.len() as u64);
        let mut distinct = held.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), held.len(), "an object was handed out twice: {held:?}");
        self.give(0, held);
        self.model.alone(0, |c| self.slub.shrink(c, self.id));
        self.slub.verify().expect("sound slabs after the last free");
        assert_eq!(self.slub.info(self.id).slabs, Some(0));
        assert_eq!(self.slub.pages.lent(), 0);
    }
}

/// Explores `body` on `cpus` CPUs, where `given` configures the allocator. Only what happens in [`Machine::boot`] is
/// explored; there must be a choice in it.
fn explore(cpus: u16, given: Value, body: impl Fn(&mut World<'_>) + Send + Sync + 'static) {
    let mut model = ::loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS[usize::from(cpus) - 2]);
    model.max_branches = 100_000;
    model.expect_explicit_explore = true;
    let mut given = given;
    given["merge"] = false.into();
    given["kmalloc_max"] = 256.into();
    let config = Config::from_json(&given).expect("a configuration");
    let runs = Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let model = Model::new(cpus, FRAMES * PAGE_SIZE);
        let pages = Pages::new(&model, PageModel::HotCold).expect("pages");
        let mut slub = Slub::new(&pages, &config).expect("an allocator");
        let id = slub.create_cache(CacheSpec::new("test", SIZE)).expect("a cache");
        body(&mut World { model: &model, slub, id });
    });
    let runs = runs.load(Ordering::Relaxed);
    println!("{given}: {runs} runs");
    assert!(runs > 2, "{runs} runs: nothing happened at the same time");
}

/// Proves: of two objects that two CPUs free while the owner of their slab takes over what was freed, each is handed out
/// once more or lies on a list; the slab is on a list if it has free objects and no owner, and only then.
#[test]
fn two_remote_frees_and_the_owner_lose_no_object() {
    for era in ["3.1", "6.1", "6.8"] {
        explore(3, json!({ "era": era, "order": 0 }), |world| {
            let taken = world.take(0, 3);
            let got = Mutex::new(None);
            world.model.boot(|cpu| match cpu.id().0 {
                0 => *got.lock().unwrap() = Some(world.alloc(cpu)),
                n => world.free(cpu, taken[usize::from(n)]),
            });
            let got = got.into_inner().unwrap().expect("an object");
            world.ends_with(&[taken[0], got]);
        });
    }
}

/// Proves: a cpu slab that is given up with a private object while another CPU frees into it ends on its node's list, once,
/// with both objects free; in the forms that give the private objects back one by one (3.1) or in one exchange (6.1), and
/// take `list_lock` before the exchange or after it (6.8).
#[test]
fn deactivation_and_a_remote_free_list_the_slab_once() {
    for era in ["3.1", "6.1", "6.8"] {
        explore(2, json!({ "era": era, "order": 0 }), |world| {
            let taken = world.take(0, 2);
            world.model.boot(|cpu| match cpu.id().0 {
                0 => world.slub.flush(cpu, world.cache()),
                _ => world.free(cpu, taken[1]),
            });
            assert_eq!(world.partial(), 1);
            world.ends_with(&taken[..1]);
        });
    }
}

/// Proves: a slab on a CPU's partial list that is drained while another CPU frees its last objects is kept on its node's
/// list or returned, by one of the two, and never both or neither: with the slab frozen while it waits (3.2, 6.1), and with
/// the mark that says whether it is on the node's list (6.8).
#[test]
fn a_drain_of_partial_slabs_and_the_last_frees_agree_who_keeps_the_slab() {
    for era in ["3.2", "6.1", "6.8"] {
        for keep in [0, 5] {
            explore(2, json!({ "era": era, "order": 0, "min_partial": keep }), |world| {
                let taken = world.take(0, 4);
                world.give(0, &taken[..1]);
                world.model.boot(|cpu| match cpu.id().0 {
                    0 => world.slub.flush_cpu_partial(cpu, world.cache()),
                    _ => taken[1..3].iter().for_each(|o| world.free(cpu, *o)),
                });
                world.ends_with(&taken[3..]);
            });
        }
    }
}

/// Proves: a CPU that takes a slab off its node's list while another frees the slab's last objects gets it, or the slab is
/// returned and it gets another.
#[test]
fn a_walk_of_the_partial_list_and_the_last_free_agree_who_has_the_slab() {
    for era in ["3.1", "6.1", "6.8"] {
        explore(2, json!({ "era": era, "order": 0, "min_partial": 0 }), |world| {
            let taken = world.take(0, 4);
            world.give(1, &taken[..1]);
            world.model.alone(0, |cpu| world.slub.flush(cpu, world.cache()));
            world.model.alone(1, |cpu| world.slub.flush(cpu, world.cache()));
            let got = Mutex::new(None);
            world.model.boot(|cpu| match cpu.id().0 {
                0 => *got.lock().unwrap() = Some(world.alloc(cpu)),
                _ => taken[1..3].iter().for_each(|o| world.free(cpu, *o)),
            });
            let got = got.into_inner().unwrap().expect("an object");
            world.ends_with(&[taken[3], got]);
        });
    }
}

/// Proves: one object at a time can be taken off a listed slab under `list_lock` while others push without it (7.1): the
/// free pointer that is read is the one that was pushed with the head.
#[test]
fn a_single_object_is_taken_while_others_push() {
    explore(2, json!({ "era": "7.1", "order": 0, "sheaf_capacity": "none" }), |world| {
        let taken = world.take(0, 3);
        world.give(0, &taken[..1]);
        let got = Mutex::new(None);
        world.model.boot(|cpu| match cpu.id().0 {
            0 => *got.lock().unwrap() = Some(world.alloc(cpu)),
            _ => taken[1..].iter().for_each(|o| world.free(cpu, *o)),
        });
        let got = got.into_inner().unwrap().expect("an object");
        world.ends_with(&[got]);
    });
}

/// Proves: a sheaf that one CPU puts into the barn while another looks there is handed over whole, with what the users of its
/// objects wrote; who read the barn's count too early is served by the slabs.
#[test]
fn a_barn_hands_each_sheaf_to_one_cpu() {
    for era in ["6.18", "7.1"] {
        explore(2, json!({ "era": era, "order": 0, "sheaf_capacity": 1 }), |world| {
            // CPU 0 has a full sheaf in either place; one more free sends a full one to the barn.
            let taken = world.take(0, 3);
            world.give(0, &taken[..2]);
            let arena = world.slub.pages.arena();
            let got = Mutex::new(Vec::new());
            world.model.boot(|cpu| {
                if cpu.id().0 == 0 {
                    arena.poke(taken[2].plus(MARK), 77);
                    return world.free(cpu, taken[2]);
                }
                let object = world.alloc(cpu);
                let mark = arena.peek(object.plus(MARK));
                assert!(object != taken[2] || mark == 77, "object {:#x} holds {mark}", object.0);
                got.lock().unwrap().push(object);
            });
            let got = got.into_inner().unwrap();
            world.ends_with(&got);
        });
    }
}
