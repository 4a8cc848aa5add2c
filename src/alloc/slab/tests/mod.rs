//! Tests of SLAB: helpers here; the worked examples of the specification, single rules, and racing CPUs below.

mod debugging;
mod examples;
mod grace;
mod indexes;
mod invariants;
mod odd;
mod racing;
mod reaping;
mod rules;
mod soak;
mod tuning;

use std::sync::Mutex;

use super::*;
use crate::alloc::{Stat, ZERO_SIZE};
use crate::machine::Sim;
use crate::machine::presets::Machinery;
use crate::machine::sim::{Schedule, SimCpu};
use crate::page::PageModel;

/// A machine of `cpus` CPUs on `nodes` nodes.
fn machine(cpus: u64, nodes: u64, mib: u64) -> Sim {
    Sim::new(&Machinery::for_topology(cpus, nodes, mib << 20).unwrap(), Schedule::default()).unwrap()
}

/// Index of the smallest general cache of 2.6.24 that holds `bytes`: each is followed by its twin for DMA.
fn general(bytes: u64) -> Option<usize> {
    Some(2 * config().policy().kmalloc.class(bytes)?)
}

fn config() -> Config {
    Config::era("2.6.24").unwrap()
}

/// Runs `f` on one CPU while the others are idle and serve calls.
fn on<R: Send>(machine: &Sim, cpu: u16, f: impl Fn(&SimCpu) -> R + Sync) -> R {
    let out = Mutex::new(None);
    machine.boot(|c| {
        if c.id() == CpuId(cpu) {
            let r = f(c);
            *out.lock().unwrap() = Some(r);
        } else {
            while c.idle(None) != Wakeup::Quiet {}
        }
    });
    out.into_inner().unwrap().unwrap()
}

fn allocate(slab: &Slab<Sim>, cpu: u16, cache: CacheId, n: usize) -> Vec<Addr> {
    on(slab.pages.machine(), cpu, |c| {
        (0..n).map(|_| slab.alloc(c, cache, Request::default()).expect("memory").addr()).collect()
    })
}

fn release(slab: &Slab<Sim>, cpu: u16, cache: CacheId, objects: &[Addr]) {
    on(slab.pages.machine(), cpu, |c| objects.iter().for_each(|o| slab.free(c, cache, Object::at(*o))));
}

fn shrink(slab: &Slab<Sim>, cache: CacheId) {
    on(slab.pages.machine(), 0, |c| slab.shrink(c, cache));
}

/// The columns the worked examples name, by the keys of `state()`.
fn see(slab: &mut Slab<Sim>, cache: CacheId, keys: &[&str]) -> Vec<u64> {
    slab.verify().unwrap();
    let state = slab.state(cache);
    let find = |key: &&str| {
        let path = key.split('.').fold(&state, |v, k| match k.parse::<usize>() {
            Ok(i) => &v[i],
            Err(_) => &v[k],
        });
        path.as_u64().unwrap_or_else(|| panic!("{key} is {path}"))
    };
    keys.iter().map(find).collect()
}

/// Runs `test` on a fresh allocator with one cache of `size` bytes, and checks the pages after it.
fn with_cache(cpus: u64, nodes: u64, size: u64, test: impl FnOnce(&mut Slab<Sim>, CacheId)) {
    with_cache_of("2.6.24", cpus, nodes, size, test);
}

/// The same in a named era, without merging.
fn with_cache_of(era: &str, cpus: u64, nodes: u64, size: u64, test: impl FnOnce(&mut Slab<Sim>, CacheId)) {
    let machine = machine(cpus, nodes, 64);
    let mut pages = Pages::new(&machine, PageModel::default()).unwrap();
    {
        let config = Config { merge: false, ..Config::era(era).unwrap() };
        let mut slab = Slab::new(&pages, &config).unwrap();
        let cache = slab.create_cache(CacheSpec::new("test", size)).unwrap();
        test(&mut slab, cache);
        slab.verify().unwrap();
    }
    pages.verify().unwrap();
}
