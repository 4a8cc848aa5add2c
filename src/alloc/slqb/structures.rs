//! SLQB's own structures as objects: descriptors, CPU structures and node structures come from three caches, whose own
//! structures are static (slqb.md §14, §24.15). So boot needs no phases.
//!
//! The boot CPU takes them when a cache is made, each from the node it serves; who destroys the cache gives them back. The
//! pointer arrays, which the original never frees, are not accounted.

use std::sync::Mutex;

use super::policy::{Config, Geometry, KMALLOC, Metadata, STRUCT_BYTES};
use super::{Ask, Cache, Slqb};
use crate::alloc::SlabAllocator;
use crate::alloc::geometry::Shape;
use crate::error::Error;
use crate::machine::Cpu as _;
use crate::machine::{Addr, Machine, Wakeup};
use crate::page::Pages;
use crate::spec::{CacheId, CacheSpec, Object, Request};
use crate::units::{CpuId, NodeId};

/// Bytes of a descriptor: the fast paths' fields in the first line, the rest in a second and third.
const DESCRIPTOR_BYTES: u64 = 192;
/// The three caches, and bytes of their objects.
const OWN: [(&str, u64); 3] =
    [("kmem_cache", DESCRIPTOR_BYTES), ("kmem_cache_cpu", STRUCT_BYTES), ("kmem_cache_node", STRUCT_BYTES)];

/// Where the structures of a cache lie.
pub(super) struct Places {
    pub(super) descriptor: Addr,
    /// One per CPU, then one per node.
    pub(super) lists: Vec<Addr>,
    /// Those that are objects of the three caches.
    pub(super) objects: Vec<(CacheId, Addr)>,
}

impl Places {
    /// Static structures: outside the memory that anyone can allocate.
    fn fixed<M: Machine>(machine: &M) -> Places {
        let nodes = homes(machine);
        Places {
            descriptor: machine.reserve(DESCRIPTOR_BYTES, NodeId(0)),
            lists: nodes.into_iter().map(|(_, node)| machine.reserve(STRUCT_BYTES, node)).collect(),
            objects: Vec::new(),
        }
    }
}

/// Of each list of a cache: which of the three caches its structure is an object of, and on which node: the one it serves,
/// or the nearest to that with memory.
fn homes<M: Machine>(machine: &M) -> Vec<(usize, NodeId)> {
    let t = machine.topology();
    let near = |node| t.fallback(node).first().copied().unwrap_or(node);
    t.cpu_ids().map(|c| (1, near(t.node_of(c)))).chain(t.node_ids().map(|n| (2, near(n)))).collect()
}

/// The three caches; none where structures are free.
pub(super) fn caches<'p, M: Machine>(pages: &'p Pages<'p, M>, config: &Config, shape: &Shape) -> Vec<Cache<'p, M>> {
    if config.metadata == Metadata::Free {
        return Vec::new();
    }
    let cache = |(i, (name, size)): (usize, (&str, u64))| {
        let spec = CacheSpec::new(name, size).hwcache();
        let id = CacheId((KMALLOC.len() + i) as u32);
        // Their slabs stay as small as they can be, whatever order and min_objects say: those are for the caches under study,
        // and where memory is fragmented beforehand the machine could not boot.
        let small = Config { order: None, min_objects: 1, ..config.clone() };
        let geometry = Geometry::fitting(&spec, &small, shape);
        Cache::new(pages, id, spec, geometry, config, Places::fixed(pages.machine()))
    };
    OWN.into_iter().enumerate().map(cache).collect()
}

/// Places for the structures of `count` new caches, taken from the three caches `own`; `None` without memory for them.
pub(super) fn place<'p, M: Machine>(
    pages: &'p Pages<'p, M>,
    own: &[Cache<'p, M>],
    count: usize,
) -> Option<Vec<Places>> {
    let machine = pages.machine();
    if own.is_empty() {
        return Some((0..count).map(|_| Places::fixed(machine)).collect());
    }
    let homes = homes(machine);
    let taken = Mutex::new(None);
    machine.boot(|cpu| {
        if cpu.id() != CpuId(0) {
            while cpu.idle(None) != Wakeup::Quiet {}
            return;
        }
        let take = |which: usize, node| {
            let want = Request { node: Some(node), ..Request::default() };
            own[which].take(cpu, &Ask { want, caches: own })
        };
        let one = |_| {
            let descriptor = take(0, NodeId(0))?;
            let lists: Vec<Addr> = homes.iter().map(|(which, node)| take(*which, *node)).collect::<Option<_>>()?;
            let of = |which: usize, at: Addr| (own[which].id, at);
            let mut objects = vec![of(0, descriptor)];
            objects.extend(homes.iter().zip(&lists).map(|((which, _), at)| of(*which, *at)));
            Some(Places { descriptor, lists, objects })
        };
        *taken.lock().expect("no holder panics") = (0..count).map(one).collect::<Option<Vec<Places>>>();
        // What a user counts begins with his own calls.
        own.iter().for_each(|c| c.cpus.with(cpu, |s| s.before = s.caused()));
    });
    taken.into_inner().expect("no holder panics")
}

impl<'p, M: Machine> Slqb<'p, M> {
    /// The three caches.
    fn own(&self) -> &[Cache<'p, M>] {
        let count = if self.config.metadata == Metadata::Free { 0 } else { OWN.len() };
        &self.caches[KMALLOC.len()..KMALLOC.len() + count]
    }

    /// Places for a cache that is being made.
    pub(super) fn place(&self, name: &str) -> Result<Places, Error> {
        let places = place(self.pages, self.own(), 1).and_then(|mut p| p.pop());
        places.ok_or_else(|| Error::new("cache", name, "memory for the cache's own structures, which is out"))
    }

    /// Gives back the structures of a cache that has been destroyed.
    pub(super) fn give_structures(&self, cpu: &M::Cpu, cache: &Cache<'p, M>) {
        for (id, at) in &cache.structures {
            self.free(cpu, *id, Object::at(*at));
        }
    }

    /// Numbers of all caches as they stand on the kernel's list, newest first: the three were there before kmalloc's.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = usize> + use<M> {
        let (kmalloc, own, all) = (KMALLOC.len(), KMALLOC.len() + self.own().len(), self.caches.len());
        (own..all).rev().chain((0..kmalloc).rev()).chain((kmalloc..own).rev())
    }
}
