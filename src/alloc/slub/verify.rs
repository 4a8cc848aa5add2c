//! Quiescent walk of SLUB's invariants (slub.md §11). When no CPU runs.
//!
//! Per cache: each slab is in exactly one place (a CPU, its own node's list, a queue of slabs waiting for RCU, or full and
//! nowhere); free lists are as long as `objects − inuse`, without duplicates and inside their slab; counts equal what is
//! found; allocations less frees equal the objects that no list holds.

use std::collections::HashSet;

use super::order::{Asked, Layout};
use super::policy::Policy;
use super::report::View;
use super::word::Slab;
use super::{Cache, Slub};
use crate::ensure;
use crate::error::Corruption;
use crate::machine::{Addr, Machine};
use crate::page::{Field, Pages, Pfn};

/// Where a slab was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Cpu(u16),
    CpuPartial(u16),
    Node(u16),
    Waiting,
}

impl<M: Machine> Slub<'_, M> {
    pub(super) fn verify_all(&mut self) -> Result<(), Corruption> {
        let pages = self.pages;
        let mut owned: Vec<Vec<Slab>> = vec![Vec::new(); self.caches.len()];
        for slab in pages.taken_frames().map(Slab) {
            let pfn = slab.0.0;
            if let Some(owner) = slab.owner(pages) {
                let known = owner < owned.len();
                ensure!(known, format!("slab {pfn}"), "owner {owner}, but there are {} caches", owned.len());
                owned[owner].push(slab);
            }
        }
        let (policy, shape) = (self.policy, self.shape);
        for (i, (cache, slabs)) in self.caches.iter_mut().zip(owned).enumerate() {
            let asked = Asked { spec: &cache.spec, kmalloc: i < self.kmalloc_caches, debug: cache.debug };
            let fresh =
                Layout::new(asked, &policy, &shape).map_err(|e| Corruption::new(&cache.spec.name, e.to_string()))?;
            // The order may have been changed at run time.
            let same = (fresh.slot, fresh.offset) == (cache.layout.slot, cache.layout.offset);
            ensure!(same, &cache.spec.name, "geometry {:?} ≠ computed {fresh:?}", cache.layout);
            cache.verify(pages, &policy, &slabs)?;
        }
        Ok(())
    }
}

impl<M: Machine> Cache<M> {
    fn verify(&mut self, pages: &Pages<'_, M>, policy: &Policy, slabs: &[Slab]) -> Result<(), Corruption> {
        let name = self.spec.name.clone();
        let mut places: Vec<Option<Place>> = vec![None; slabs.len()];
        let mut put = |slab: Slab, place: Place| -> Result<(), Corruption> {
            let at = slabs.binary_search(&slab);
            ensure!(at.is_ok(), place_name(&name, slab), "on {place:?}, but its page is no slab of the cache");
            let seen = places[at.unwrap_or(0)].replace(place);
            ensure!(seen.is_none(), place_name(&name, slab), "on {place:?} and on {seen:?}");
            Ok(())
        };
        let mut private = Vec::new();
        let mut outstanding = 0;
        let cpus = self.cpus.iter_mut().count();
        for (cpu, c) in self.cpus.iter_mut() {
            outstanding += c.outstanding();
            ensure!(c.own().is_some() || c.list().is_none(), &name, "CPU {cpu} has a private list and no slab");
            let step = cpus.next_power_of_two() as u64;
            ensure!(c.tid() % step == u64::from(cpu.0), &name, "CPU {cpu} has transaction id {}", c.tid());
            if let Some(slab) = c.own() {
                put(slab, Place::Cpu(cpu.0))?;
                let node = pages.node_of(slab.0);
                let knows = c.node == node || c.list().is_none();
                ensure!(knows, place_name(&name, slab), "CPU {cpu} says node {}, pages lie on {node}", c.node);
                private.push((slab, c.list()));
            }
            c.partial.iter().try_for_each(|l| put(l.slab, Place::CpuPartial(cpu.0)))?;
            for pfn in c.waiting.iter(pages) {
                put(Slab(pfn), Place::Waiting)?;
            }
        }
        for (n, node) in self.nodes.iter_mut().enumerate() {
            let list = node.listed(pages);
            let seen = node.nr_partial.peek();
            ensure!(seen == list.len() as u64, &name, "node {n}: nr_partial {seen} ≠ {} slabs on the list", list.len());
            list.into_iter().try_for_each(|pfn| put(Slab(pfn), Place::Node(n as u16)))?;
        }
        let mut free = HashSet::new();
        for (&slab, &place) in slabs.iter().zip(&places) {
            let list = private.iter().find(|(s, _)| *s == slab).and_then(|(_, list)| *list);
            self.verify_slab(pages, policy, slab, place, list, &mut free)?;
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let here = |(s, p): &(&Slab, &Option<Place>)| {
                usize::from(pages.node_of(s.0).0) == n && **p != Some(Place::Waiting)
            };
            let found: Vec<u64> = slabs.iter().zip(&places).filter(here).map(|(s, _)| s.objects(pages)).collect();
            let (counted, total) = (node.nr_slabs.peek(), node.total_objects.peek());
            let (slabs, objects) = (found.len() as u64, found.iter().sum::<u64>());
            ensure!(counted == slabs, &name, "node {n}: nr_slabs {counted} ≠ {slabs} slabs found");
            ensure!(total == objects, &name, "node {n}: total_objects {total} ≠ {objects} found");
        }
        let total: u64 = self.nodes.iter().map(|n| n.total_objects.peek()).sum();
        self.verify_sheaves(&name, &free)?;
        let parked = self.in_sheaves();
        let live = total as i64 - free.len() as i64 - parked as i64;
        ensure!(
            live == outstanding,
            &name,
            "{total} objects − {} free − {parked} in sheaves = {live} ≠ allocations − frees = {outstanding}",
            free.len()
        );
        Ok(())
    }

    /// Barns count what they hold; full sheaves are full and empty ones empty; no object is parked twice, or free as well.
    fn verify_sheaves(&mut self, name: &str, free: &HashSet<Addr>) -> Result<(), Corruption> {
        let mut parked: Vec<Addr> = Vec::new();
        for (n, barn) in self.barns.iter_mut().enumerate() {
            let seen = barn.seen();
            let (full, empty) = barn.peek();
            let found = (full.len() as u64, empty.len() as u64);
            ensure!(seen == found, name, "barn {n}: counts {seen:?} ≠ sheaves {found:?}");
            ensure!(empty.iter().all(|s| s.is_empty()), name, "barn {n}: an empty sheaf holds objects");
            ensure!(full.iter().all(|s| !s.is_empty()), name, "barn {n}: a full sheaf holds nothing");
            full.iter().for_each(|sheaf| parked.extend(&sheaf.objects));
        }
        for (cpu, c) in self.cpus.iter_mut() {
            let Some(s) = &c.sheaves else { continue };
            for sheaf in [Some(&s.main), s.spare.as_ref(), s.rcu_free.as_ref()].into_iter().flatten() {
                let n = sheaf.objects.len();
                ensure!(n <= sheaf.capacity, name, "CPU {cpu}: {n} objects in a sheaf of {}", sheaf.capacity);
                parked.extend(&sheaf.objects);
            }
        }
        self.waiting().for_each(|waiting| parked.extend(waiting.objects()));
        let mut seen = HashSet::new();
        for object in parked {
            ensure!(seen.insert(object), name, "object {:#x} is parked twice", object.0);
            ensure!(!free.contains(&object), name, "object {:#x} is parked and free", object.0);
        }
        Ok(())
    }

    /// Checks one slab; adds its free objects, those on `private` included, to `free`.
    fn verify_slab(
        &self,
        pages: &Pages<'_, M>,
        policy: &Policy,
        slab: Slab,
        place: Option<Place>,
        private: Option<Addr>,
        free: &mut HashSet<Addr>,
    ) -> Result<(), Corruption> {
        let at = || place_name(&self.spec.name, slab);
        let (locked, waiting) = slab.marks(pages);
        ensure!(!locked, at(), "lock held, and no CPU runs");
        ensure!(waiting == (place == Some(Place::Waiting)), at(), "waiting mark {waiting}, found on {place:?}");
        for tail in 1..pages.order_of(slab.0).pages() as u32 {
            let head = pages.peek(Pfn(slab.0.0 + tail), Field::Head);
            ensure!(head == u64::from(slab.0.0) + 1, at(), "page {tail} of the slab points to head {head}");
        }
        if waiting {
            return Ok(());
        }
        let View { freelist, inuse, objects, frozen } = self.view(pages, slab);
        let own = self.walk(pages, slab, freelist, free)?;
        self.walk(pages, slab, private, free)?;
        ensure!(own + inuse == objects, at(), "freelist of {own} + inuse {inuse} ≠ {objects} objects");
        let belongs = match place {
            Some(Place::Cpu(_)) => true,
            Some(Place::CpuPartial(_)) => !policy.t.delayed_freezing,
            _ => false,
        };
        ensure!(frozen == belongs, at(), "frozen is {frozen}, but the slab is on {place:?}");
        if self.lockless {
            let (listed, on) = (slab.listed(pages), matches!(place, Some(Place::Node(_))));
            ensure!(listed == on, at(), "list mark is {listed}, but the slab is on {place:?}");
        }
        match place {
            None => ensure!(inuse == objects, at(), "on no list with {inuse} of {objects} objects in use"),
            Some(Place::Node(n)) => {
                let node = pages.node_of(slab.0);
                ensure!(node.0 == n, at(), "pages of node {node} on the list of node {n}");
                ensure!(inuse < objects, at(), "full slab on a partial list");
            }
            _ => {}
        }
        Ok(())
    }

    /// Length of a list of free objects of `slab`; each must be one of its objects and not yet in `free`.
    fn walk(
        &self,
        pages: &Pages<'_, M>,
        slab: Slab,
        mut list: Option<Addr>,
        free: &mut HashSet<Addr>,
    ) -> Result<u64, Corruption> {
        let at = || place_name(&self.spec.name, slab);
        let (start, objects, mut n) = (pages.addr_of(slab.0).0, slab.objects(pages), 0);
        while let Some(object) = list {
            let index = object.0.checked_sub(start).and_then(|bytes| self.layout.object_index(bytes));
            ensure!(index.is_some_and(|i| i < objects), at(), "free pointer {:#x} is no object of the slab", object.0);
            ensure!(free.insert(object), at(), "object {:#x} is free twice", object.0);
            n += 1;
            list = self.links.peek(pages.arena(), object);
        }
        Ok(n)
    }
}

fn place_name(cache: &str, slab: Slab) -> String {
    format!("cache {cache}, slab {}", slab.0.0)
}
