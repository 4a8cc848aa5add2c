//! The walk of the invariants, when no CPU runs.

use std::collections::BTreeMap;

use super::Slab;
use super::array::Array;
use super::cache::Cache;
use super::header::{Header, Headers};
use super::lookup::slab_at;
use super::policy::Management;
use crate::ensure;
use crate::error::Corruption;
use crate::machine::{Addr, Machine};
use crate::page::{Field, Pfn};
use crate::topology::Topology;
use crate::units::NodeId;

/// Every object outside its slab: its node, and whether an array has been seen to hold it.
type Outside = BTreeMap<Addr, (NodeId, bool)>;

impl<M: Machine> Slab<'_, M> {
    /// Invariants 1 to 5 and 12 of slab.md §20, that no two slabs share a page, and that as many objects are live as were
    /// allocated and not freed. (6, that a slab enters the free list
    /// only at or below `free_limit`, is a rule about a moment: tests check it on the counts.)
    pub(super) fn verify_caches(&mut self) -> Result<(), Corruption> {
        let mut owners = BTreeMap::new();
        for index in 0..self.caches.len() {
            let slabs = self.verify_cache(index)?;
            let cache = &self.caches[index];
            for head in slabs {
                for pfn in head.0..head.0 + cache.geometry.order.pages() as u32 {
                    let other = owners.insert(pfn, index).map(|other| &self.caches[other].spec.name);
                    ensure!(other.is_none(), place(cache), "page {pfn} also belongs to a slab of {other:?}");
                }
            }
        }
        Ok(())
    }

    /// Checks one cache; returns the first frames of its slabs.
    fn verify_cache(&mut self, index: usize) -> Result<Vec<Pfn>, Corruption> {
        let (pages, private, management) = (self.pages, self.private.as_ref(), self.policy.management);
        let cache = &mut self.caches[index];
        let g = cache.geometry;
        let private = private.filter(|_| cache.has_private_management());
        let headers = Headers { pages, management, geometry: &g, private };
        let total = g.on_slab_bytes() + g.num * g.slot + g.left;
        ensure!(
            total == g.order.bytes(),
            place(cache),
            "management, objects and rest are {total} of {}",
            g.order.bytes()
        );
        ensure!(g.colour * g.colour_off <= g.left, place(cache), "colours reach past the {} bytes left", g.left);

        let mut outside: Outside = BTreeMap::new();
        let mut heads = Vec::new();
        let (id, name) = (cache.id, cache.spec.name.clone());
        for (n, node) in cache.nodes.iter_mut().enumerate() {
            let lists = node.lists.get_mut();
            let at = || format!("{name}, node {n}");
            let mut free = 0;
            let kinds = [
                (&lists.full, "full", g.num..=g.num),
                (&lists.partial, "partial", 1..=g.num - 1),
                (&lists.free, "free", 0..=0),
            ];
            for (list, kind, fits) in kinds {
                let slabs: Vec<Header> = list.iter(&headers).collect();
                ensure!(slabs.len() as u64 == list.len(), at(), "{kind} list: {} of {}", slabs.len(), list.len());
                for slab in slabs {
                    let inuse = headers.inuse(slab);
                    ensure!(fits.contains(&inuse), at(), "a {kind} slab has {inuse} of {} objects in use", g.num);
                    ensure!(headers.node(slab) == NodeId(n as u16), at(), "slab of node {}", headers.node(slab));
                    free += g.num - inuse;
                    heads.push(check_slab(&headers, id, slab, &at, &mut outside)?);
                }
            }
            ensure!(free == lists.free_objects, at(), "free_objects {} but {free} are free", lists.free_objects);
        }
        check_arrays(cache, pages.machine().topology(), &mut outside)?;
        let live = outside.values().filter(|(_, parked)| !parked).count() as u64;
        let (out, back) = cache.cpus.iter_mut().fold((0, 0), |(a, b), (_, c)| (a + c.balance().0, b + c.balance().1));
        ensure!(
            out.wrapping_sub(back) == live,
            name,
            "{live} objects are live, but {out} went out and {back} came back"
        );
        Ok(heads)
    }
}

/// Checks the chain and page table of one slab; notes its objects in use and returns its first frame.
fn check_slab<M: Machine>(
    headers: &Headers<'_, '_, M>,
    id: u32,
    slab: Header,
    at: &dyn Fn() -> String,
    outside: &mut Outside,
) -> Result<Pfn, Corruption> {
    let (pages, g) = (headers.pages, headers.geometry);
    let first = headers.first(slab);
    let Some(head) = headers.head(slab).filter(|_| pages.pfn_of(first).is_some()) else {
        return Err(Corruption::new(at(), format!("slab {slab:?} begins outside memory at {:#x}", first.0)));
    };
    let colour = headers.colour(slab);
    let expected = pages.addr_of(head).plus(colour + g.before);
    ensure!(first == expected, at(), "slab {slab:?}: first object {:#x}, expected {:#x}", first.0, expected.0);
    ensure!(
        first.0.is_multiple_of(g.align),
        at(),
        "slab {slab:?}: objects at {:#x} are not aligned to {}",
        first.0,
        g.align
    );
    ensure!(colour <= g.left, at(), "slab {slab:?}: colour offset {colour} of {}", g.left);
    for i in 0..g.order.pages() as u32 {
        let page = Pfn(head.0 + i);
        let found = match headers.management {
            Management::Chain => page,
            Management::Indexes => pages.peek_head(pages.addr_of(page)).unwrap_or(page),
        };
        let (owner, of) = (pages.peek(found, Field::Owner), slab_at(pages, headers.management, found));
        ensure!(owner == u64::from(id) + 1 && of == slab, at(), "page {page:?} has owner {owner}, slab {:#x}", of.0.0);
    }
    let chain = headers.free_indexes(slab);
    let mut used = vec![true; g.num as usize];
    for &i in &chain {
        let fresh = used.get_mut(i as usize).is_some_and(|u| std::mem::replace(u, false));
        ensure!(fresh, at(), "slab {slab:?}: index {i} is free twice or out of range");
    }
    let inuse = headers.inuse(slab);
    ensure!(
        chain.len() as u64 + inuse == g.num,
        at(),
        "slab {slab:?}: free {} + inuse {inuse} ≠ {}",
        chain.len(),
        g.num
    );
    for i in (0..g.num).filter(|i| used[*i as usize]) {
        outside.insert(first.plus(i * g.slot), (headers.node(slab), false));
    }
    Ok(head)
}

/// Checks that every array keeps its limit, and holds each object once, outside its slab, and of the right node.
fn check_arrays<M: Machine>(
    cache: &mut Cache<M>,
    topology: &Topology,
    outside: &mut Outside,
) -> Result<(), Corruption> {
    let name = cache.spec.name.clone();
    let mut check = |array: &Array, what: String, home: NodeId| -> Result<(), Corruption> {
        let at = || format!("{name}, {what}");
        ensure!(array.len() <= array.limit, at(), "{} entries, limit {}", array.len(), array.limit);
        for object in array.entries() {
            let Some((node, parked)) = outside.get_mut(object) else {
                return Err(Corruption::new(at(), format!("{:#x} is free in its slab, or no object", object.0)));
            };
            ensure!(!*parked, at(), "{:#x} is in two arrays", object.0);
            ensure!(home == *node, at(), "{:#x} is of node {node}", object.0);
            *parked = true;
        }
        Ok(())
    };
    for (cpu, c) in cache.cpus.iter_mut() {
        check(&c.array, format!("array of CPU {cpu}"), topology.node_of(cpu))?;
    }
    for (n, node) in cache.nodes.iter_mut().enumerate() {
        if let Some(shared) = &node.lists.get_mut().shared {
            check(shared, format!("shared array of node {n}"), NodeId(n as u16))?;
        }
        for (home, alien) in node.alien.iter_mut().enumerate() {
            if let Some(alien) = alien {
                check(alien.get_mut(), format!("alien[{home}] of node {n}"), NodeId(home as u16))?;
            }
        }
    }
    Ok(())
}

fn place<M: Machine>(cache: &Cache<M>) -> String {
    cache.spec.name.clone()
}
