//! Quiescent walk of SLUB's invariants (slub.md §11). When no CPU runs.
//!
//! Per cache: each slab is in exactly one place (a CPU, its own node's list, a queue of slabs waiting for RCU, or full and
//! nowhere); free lists are as long as `objects − inuse`, without duplicates and inside their slab; counts equal what is
//! found; allocations less frees equal the objects that no list holds.

use super::order::Layout;
use super::word::{self, Slab};
use super::{Cache, Slub};
use crate::ensure;
use crate::error::Corruption;
use crate::machine::{Addr, Machine};
use crate::page::{Field, Pages, Pfn};

/// Where a slab was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Cpu(u16),
    Node(u16),
    Waiting,
}

impl<M: Machine> Slub<'_, M> {
    pub(super) fn verify_all(&mut self) -> Result<(), Corruption> {
        let pages = self.pages;
        let mut owned: Vec<Vec<Slab>> = vec![Vec::new(); self.caches.len()];
        for pfn in 0..pages.frames() {
            let slab = Slab(Pfn(pfn as u32));
            if let Some(owner) = slab.owner(pages) {
                let known = owner < owned.len();
                ensure!(known, format!("slab {pfn}"), "owner {owner}, but there are {} caches", owned.len());
                owned[owner].push(slab);
            }
        }
        let rule = self.policy.order;
        for (cache, slabs) in self.caches.iter_mut().zip(owned) {
            let fresh =
                Layout::new(&cache.spec, &rule).map_err(|e| Corruption::new(&cache.spec.name, e.to_string()))?;
            let same = (fresh.slot, fresh.order, fresh.objects)
                == (cache.layout.slot, cache.layout.order, cache.layout.objects);
            ensure!(same, &cache.spec.name, "geometry {:?} ≠ computed {fresh:?}", cache.layout);
            cache.verify(pages, &slabs)?;
        }
        Ok(())
    }
}

impl<M: Machine> Cache<M> {
    fn verify(&mut self, pages: &Pages<'_, M>, slabs: &[Slab]) -> Result<(), Corruption> {
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
        for (cpu, c) in self.cpus.iter_mut() {
            outstanding += c.outstanding();
            ensure!(c.slab().is_some() || c.freelist().is_none(), &name, "CPU {cpu} has a private list and no slab");
            if let Some(slab) = c.slab() {
                put(slab, Place::Cpu(cpu.0))?;
                let node = pages.node_of(slab.0);
                ensure!(c.node == node, place_name(&name, slab), "CPU {cpu} says node {}, pages lie on {node}", c.node);
                private.push((slab, c.freelist()));
            }
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
        let mut free = 0;
        for (&slab, &place) in slabs.iter().zip(&places) {
            let list = private.iter().find(|(s, _)| *s == slab).and_then(|(_, list)| *list);
            free += self.verify_slab(pages, slab, place, list)?;
        }
        for (n, node) in self.nodes.iter().enumerate() {
            let counted = node.nr_slabs.peek();
            let here = |(s, p): &(&Slab, &Option<Place>)| {
                usize::from(pages.node_of(s.0).0) == n && **p != Some(Place::Waiting)
            };
            let found = slabs.iter().zip(&places).filter(here).count() as u64;
            ensure!(counted == found, &name, "node {n}: nr_slabs {counted} ≠ {found} slabs found");
        }
        let waiting = places.iter().filter(|p| **p == Some(Place::Waiting)).count();
        let total = (slabs.len() - waiting) as u64 * self.layout.objects;
        let live = total as i64 - free as i64;
        ensure!(
            live == outstanding,
            &name,
            "{total} objects − {free} free = {live} ≠ allocations − frees = {outstanding}"
        );
        Ok(())
    }

    /// Checks one slab; returns its free objects, those on `private` included.
    fn verify_slab(
        &self,
        pages: &Pages<'_, M>,
        slab: Slab,
        place: Option<Place>,
        private: Option<Addr>,
    ) -> Result<u64, Corruption> {
        let at = || place_name(&self.spec.name, slab);
        let (locked, waiting) = slab.marks(pages);
        ensure!(!locked, at(), "lock held, and no CPU runs");
        ensure!(waiting == (place == Some(Place::Waiting)), at(), "waiting mark {waiting}, found on {place:?}");
        for tail in 1..self.layout.order.pages() as u32 {
            let head = pages.peek(Pfn(slab.0.0 + tail), Field::Head);
            ensure!(head == u64::from(slab.0.0) + 1, at(), "page {tail} of the slab points to head {head}");
        }
        if waiting {
            return Ok(0);
        }
        let objects = self.layout.objects;
        let mut seen = vec![false; objects as usize];
        let own = self.walk(pages, slab, slab.freelist(pages), &mut seen)?;
        let taken = self.walk(pages, slab, private, &mut seen)?;
        let (inuse, frozen) = (slab.inuse(pages), slab.frozen(pages));
        ensure!(own + inuse == objects, at(), "freelist of {own} + inuse {inuse} ≠ {objects} objects");
        ensure!(
            frozen == matches!(place, Some(Place::Cpu(_))),
            at(),
            "frozen is {frozen}, but the slab is on {place:?}"
        );
        match place {
            None => ensure!(inuse == objects, at(), "on no list with {inuse} of {objects} objects in use"),
            Some(Place::Node(n)) => {
                let node = pages.node_of(slab.0);
                ensure!(node.0 == n, at(), "pages of node {node} on the list of node {n}");
                ensure!(inuse < objects, at(), "full slab on a partial list");
            }
            _ => {}
        }
        Ok(own + taken)
    }

    /// Length of a list of free objects of `slab`; each must be a slot of it and not yet `seen`.
    fn walk(
        &self,
        pages: &Pages<'_, M>,
        slab: Slab,
        mut list: Option<Addr>,
        seen: &mut [bool],
    ) -> Result<u64, Corruption> {
        let at = || place_name(&self.spec.name, slab);
        let (start, mut n) = (pages.addr_of(slab.0).0, 0);
        while let Some(object) = list {
            let index = object.0.checked_sub(start).and_then(|bytes| self.layout.index_of(bytes));
            ensure!(index.is_some(), at(), "free pointer {:#x} is no object of the slab", object.0);
            let twice = std::mem::replace(&mut seen[index.unwrap_or(0) as usize], true);
            ensure!(!twice, at(), "object {:#x} is free twice", object.0);
            n += 1;
            list = word::decode(pages.arena().peek(object.plus(self.layout.offset)));
        }
        Ok(n)
    }
}

fn place_name(cache: &str, slab: Slab) -> String {
    format!("cache {cache}, slab {}", slab.0.0)
}
