//! What can be said of a cache when no CPU runs: the invariants (slqb.md §18), slabinfo, and every list and queue.

use serde_json::{Map, Value, json};

use super::chain::Chain;
use super::node::{ListId, SLAB, unpack};
use super::{Cache, CpuSlot};
use crate::alloc::{CacheInfo, Counters, Stat};
use crate::error::Corruption;
use crate::machine::{Addr, Machine};
use crate::page::{Field, Pages, Pfn};
use crate::units::PAGE_SIZE;

/// The fourteen counters of a list, in sysfs order.
pub(super) const STATS: [Stat; 14] = [
    Stat::SlqbAlloc,
    Stat::AllocSlabFill,
    Stat::AllocSlabNew,
    Stat::SlqbFree,
    Stat::FreeRemote,
    Stat::FlushFreeList,
    Stat::FlushFreeListObjects,
    Stat::FlushFreeListRemote,
    Stat::FlushSlabPartial,
    Stat::FlushSlabFree,
    Stat::FlushRfreeList,
    Stat::FlushRfreeListObjects,
    Stat::ClaimRemoteList,
    Stat::ClaimRemoteListObjects,
];

/// Entries of `partial_inuse` that a state shows.
const SHOWN: usize = 400;

/// Head frames of the slabs of each cache, found by looking at every frame.
pub(super) fn slabs_by_cache<M: Machine>(pages: &Pages<'_, M>, caches: usize) -> Vec<Vec<Pfn>> {
    let mut slabs = vec![Vec::new(); caches];
    for pfn in (0..pages.frames() as u32).map(Pfn) {
        if pages.peek(pfn, Field::Flags) & SLAB != 0 {
            slabs[(pages.peek(pfn, Field::Owner) >> 32) as usize - 1].push(pfn);
        }
    }
    slabs
}

/// A list as it stands: both halves.
pub(super) struct Seen {
    pub name: String,
    pub lifo: Chain,
    pub check: u64,
    pub nr_partial: u64,
    pub partial: Vec<Pfn>,
    pub nr_slabs: u64,
    pub remote: Chain,
    pub remote_nr: u64,
    pub counters: Counters,
}

impl<M: Machine> Cache<'_, M> {
    /// All lists, CPUs first.
    pub(super) fn look(&mut self) -> Vec<Seen> {
        let halves: Vec<(String, Chain, Counters)> = self
            .cpus
            .iter_mut()
            .map(|(c, s)| (format!("cpu{c}"), s.lifo, s.counters.clone()))
            .chain(self.nodes.iter_mut().enumerate().map(|(n, slot)| {
                let slot = slot.get_mut();
                (format!("node{n}"), slot.lifo, slot.counters.clone())
            }))
            .collect();
        let see = |((name, lifo, mut counters), list): ((String, Chain, Counters), &mut super::List<M>)| {
            let slabs = list.slabs.get_mut();
            counters.merge(&slabs.by_others);
            Seen {
                name,
                lifo,
                check: list.check.peek(),
                nr_partial: list.nr_partial.peek(),
                partial: slabs.partial.iter(self.pages).collect(),
                nr_slabs: slabs.nr_slabs,
                remote: *list.remote.get_mut(),
                remote_nr: list.remote_nr.peek(),
                counters,
            }
        };
        halves.into_iter().zip(&mut self.lists).map(see).collect()
    }

    fn inuse(&self, pfn: Pfn) -> u64 {
        unpack(self.pages.peek(pfn, Field::Counters)).inuse
    }

    /// Objects in users' hands.
    fn live(&mut self) -> i64 {
        let count = |(_, s): (_, &mut CpuSlot)| {
            let c = s.caused();
            c.get(Stat::SlqbAlloc) as i64 - c.get(Stat::SlqbFree) as i64 - s.counted_twice as i64
        };
        self.cpus.iter_mut().map(count).sum()
    }

    /// Checks the invariants; `slabs` are the cache's head frames.
    pub(super) fn verify(&mut self, slabs: &[Pfn]) -> Result<(), Corruption> {
        let seen = self.look();
        let live = self.live();
        let mut found: Vec<(Addr, String)> = Vec::new();
        for (i, list) in seen.iter().enumerate() {
            self.verify_slabs(ListId(i as u32), list, slabs)?;
            self.verify_remote(list)?;
            self.collect(list.lifo, &format!("LIFO of {}", list.name), &mut found, |c, pfn| {
                // A node's LIFO holds what was sent home to it; a CPU's anything of its node.
                if i < c.lists.len() - c.nodes.len() {
                    c.pages.node_of(pfn) == c.lists[i].node || !c.numa
                } else {
                    c.owner(pfn) == ListId(i as u32)
                }
            })?;
            self.collect(list.remote, &format!("remote_free of {}", list.name), &mut found, |c, pfn| {
                c.owner(pfn) == ListId(i as u32)
            })?;
        }
        let rlists: Vec<(Chain, Option<ListId>)> = self.cpus.iter_mut().map(|(_, s)| (s.rlist, s.rlist_to)).collect();
        for (cpu, (rlist, to)) in rlists.into_iter().enumerate() {
            let place = format!("rlist of cpu{cpu}");
            crate::ensure!(
                rlist.nr < self.geometry.freebatch,
                self.at(&place),
                "{} objects ≥ freebatch {}",
                rlist.nr,
                self.geometry.freebatch
            );
            self.collect(rlist, &place, &mut found, |c, pfn| Some(c.owner(pfn)) == to)?;
        }
        let queued = found.len() as i64;
        let mut inuse = 0;
        for &pfn in slabs {
            inuse += self.verify_page(pfn, &mut found)? as i64;
        }
        crate::ensure!(
            inuse == live + queued,
            self.spec.name.clone(),
            "Σ inuse {inuse} ≠ live {live} + queued {queued}"
        );
        found.sort();
        for pair in found.windows(2) {
            let ((x, here), (y, there)) = (&pair[0], &pair[1]);
            crate::ensure!(x != y, self.spec.name.clone(), "object {x:?} is on {here} and on {there}");
        }
        self.verify_counters(&seen)
    }

    /// The place of a finding.
    fn at(&self, place: &str) -> String {
        format!("{}: {place}", self.spec.name)
    }

    fn verify_slabs(&self, l: ListId, list: &Seen, slabs: &[Pfn]) -> Result<(), Corruption> {
        let place = || self.at(&format!("slabs of {}", list.name));
        let owned: Vec<Pfn> = slabs.iter().copied().filter(|p| self.owner(*p) == l).collect();
        let (len, nr) = (list.partial.len(), list.nr_partial);
        crate::ensure!(len as u64 == nr, place(), "nr_partial {nr} ≠ length {len}");
        let n = owned.len();
        crate::ensure!(n as u64 == list.nr_slabs, place(), "nr_slabs {} ≠ {n} slabs owned", list.nr_slabs);
        let mut expected: Vec<Pfn> = owned.iter().copied().filter(|p| self.inuse(*p) < self.geometry.objects).collect();
        let mut partial = list.partial.clone();
        expected.sort();
        partial.sort();
        crate::ensure!(partial == expected, place(), "partial list {partial:?} ≠ slabs with free objects {expected:?}");
        for pfn in owned {
            let (node, home) = (self.pages.node_of(pfn), self.list(l).node);
            crate::ensure!(!self.numa || node == home, place(), "slab {pfn:?} is of node {node}, the list of {home}");
        }
        Ok(())
    }

    fn verify_remote(&self, list: &Seen) -> Result<(), Corruption> {
        let place = || self.at(&format!("remote_free of {}", list.name));
        let (nr, batch) = (list.remote.nr, self.geometry.freebatch);
        crate::ensure!(nr == list.remote_nr, place(), "published length {} ≠ {nr}", list.remote_nr);
        let check = list.check;
        crate::ensure!((check == 1) == (nr >= batch), place(), "check {check} with {nr} objects, freebatch {batch}");
        let cpus = (self.lists.len() - self.nodes.len()) as u64;
        let bound = self.geometry.remote_limit() + batch.saturating_mul(cpus);
        crate::ensure!(nr <= bound, place(), "{nr} objects > hiwater/2 + freebatch·CPUs = {bound}");
        Ok(())
    }

    fn verify_page(&self, pfn: Pfn, found: &mut Vec<(Addr, String)>) -> Result<u64, Corruption> {
        let place = || self.at(&format!("slab {pfn:?}"));
        let (inuse, objects) = (self.inuse(pfn), self.geometry.objects);
        crate::ensure!((1..=objects).contains(&inuse), place(), "inuse {inuse} is not in 1..{objects}");
        let head = Addr(self.pages.peek(pfn, Field::Extra));
        let free = self.links().walk(head, objects - inuse, self.last_link());
        let n = free.len() as u64;
        crate::ensure!(inuse + n == objects, place(), "inuse {inuse} + free list {n} ≠ {objects}");
        for x in free {
            let home = self.pages.peek_head(x);
            crate::ensure!(self.is_object(x) && home == Some(pfn), place(), "free list holds {x:?}, no object of it");
            found.push((x, format!("free list of {pfn:?}")));
        }
        Ok(inuse)
    }

    /// First address at which a link would reach past memory.
    fn last_link(&self) -> Addr {
        Addr((self.pages.frames() * PAGE_SIZE).saturating_sub(self.geometry.offset + 7))
    }

    /// Walks a queue: as long as it says, ending at its tail, of objects whose slab `belongs`.
    fn collect(
        &self,
        chain: Chain,
        place: &str,
        found: &mut Vec<(Addr, String)>,
        belongs: impl Fn(&Self, Pfn) -> bool,
    ) -> Result<(), Corruption> {
        let objects = chain.walk(self.links(), self.last_link());
        let n = objects.len() as u64;
        crate::ensure!(n == chain.nr, self.at(place), "nr {} ≠ length {n}", chain.nr);
        let last = objects.last().copied();
        crate::ensure!(
            last.is_none_or(|x| x == chain.tail),
            self.at(place),
            "tail {:?} ≠ last object {last:?}",
            chain.tail
        );
        for x in objects {
            let home = self.pages.peek_head(x).filter(|_| self.is_object(x));
            crate::ensure!(home.is_some_and(|p| belongs(self, p)), self.at(place), "{x:?} does not belong there");
            found.push((x, place.into()));
        }
        Ok(())
    }

    fn verify_counters(&mut self, seen: &[Seen]) -> Result<(), Corruption> {
        let (by_list, by_cpu) = (total(seen), {
            let mut sum = Counters::default();
            self.cpus.iter_mut().for_each(|(_, s)| sum.merge(&s.caused()));
            sum
        });
        let place = || self.at("counters");
        for stat in STATS {
            let (a, b) = (by_list.get(stat), by_cpu.get(stat));
            crate::ensure!(a == b, place(), "{} is {a} over lists and {b} over CPUs", stat.name());
        }
        let get = |s| by_list.get(s);
        let slabs: u64 = seen.iter().map(|l| l.nr_slabs).sum();
        let (new, gone) = (get(Stat::AllocSlabNew), get(Stat::FlushSlabFree));
        crate::ensure!(new == gone + slabs, place(), "slabs made {new} ≠ freed {gone} + present {slabs}");
        for (less, more) in [
            (Stat::AllocSlabNew, Stat::AllocSlabFill),
            (Stat::FlushFreeListRemote, Stat::FlushFreeListObjects),
            (Stat::ClaimRemoteListObjects, Stat::FlushRfreeListObjects),
        ] {
            let (a, b) = (get(less), get(more));
            crate::ensure!(a <= b, place(), "{} {a} > {} {b}", less.name(), more.name());
        }
        Ok(())
    }

    /// One line of slabinfo: queued objects count as active.
    pub(super) fn info(&mut self) -> CacheInfo {
        let seen = self.look();
        let g = &self.geometry;
        let slabs: u64 = seen.iter().map(|l| l.nr_slabs).sum();
        let partial: u64 = seen.iter().map(|l| l.nr_partial).sum();
        CacheInfo {
            name: self.spec.name.clone(),
            object_size: self.spec.size,
            slot_size: g.size,
            order: Some(g.order.0),
            order_raised: self.order_raised,
            objects_per_slab: Some(g.objects),
            active_objects: self.active(&seen),
            total_objects: Some(slabs * g.objects),
            active_slabs: Some(slabs),
            slabs: Some(slabs),
            pages: Some(slabs * g.order.pages()),
            limit: Some(g.hiwater),
            batchcount: Some(g.freebatch),
            partial: Some(partial),
            live_objects: self.live() as u64,
            ..CacheInfo::default()
        }
    }

    /// What slabinfo counts as active: objects that have left their page.
    fn active(&self, seen: &[Seen]) -> u64 {
        let of_list = |l: &Seen| {
            let partial: u64 = l.partial.iter().map(|p| self.inuse(*p)).sum();
            (l.nr_slabs - l.nr_partial) * self.geometry.objects + partial
        };
        seen.iter().map(of_list).sum()
    }

    /// Every list and queue, with the keys of the recordings. A destroyed cache has pages and warnings only.
    pub(super) fn state(&mut self) -> Value {
        let seen = self.look();
        let sum = total(&seen);
        let pages = self.geometry.order.pages();
        let (made, freed) = (sum.get(Stat::AllocSlabNew) * pages, sum.get(Stat::FlushSlabFree) * pages);
        let mut state = json!({
            "geometry": self.geometry_json(),
            "pages_live": made - freed, "pages_alloced": made, "pages_freed": freed,
        });
        if !self.alive() {
            state["warnings"] = json!(self.destroyed.peek() - 1);
            return state;
        }
        let cpus = seen.len() - self.nodes.len();
        let rlists: Vec<(u64, Value, u64)> = self
            .cpus
            .iter_mut()
            .map(|(_, s)| {
                let to = s.rlist_to.map_or(Value::Null, |l| json!(seen[l.0 as usize].name));
                (s.rlist.nr, to, s.colour_next)
            })
            .collect();
        let row = |l: &Seen| STATS.iter().map(|s| l.counters.get(*s)).collect::<Vec<_>>();
        let mut lists: Vec<Value> = seen.iter().map(|l| self.list_json(l)).collect();
        for (c, (nr, to, colour)) in rlists.iter().enumerate() {
            lists[c]["cpu"] = json!(c);
            lists[c]["node"] = json!(self.lists[c].node.0);
            lists[c]["rlist"] = json!(nr);
            lists[c]["rlist_to"] = to.clone();
            lists[c]["colour_next"] = json!(colour);
        }
        for (n, node) in lists[cpus..].iter_mut().enumerate() {
            node["node"] = json!(n);
        }
        let slabs: u64 = seen.iter().map(|l| l.nr_slabs).sum();
        let queued =
            seen.iter().map(|l| l.lifo.nr + l.remote.nr).sum::<u64>() + rlists.iter().map(|r| r.0).sum::<u64>();
        let active = self.active(&seen);
        state["node"] = lists.split_off(cpus).into();
        state["cpu"] = lists.into();
        state["nr_slabs"] = json!(slabs);
        state["nr_partial"] = json!(seen.iter().map(|l| l.nr_partial).sum::<u64>());
        state["total_objects"] = json!(slabs * self.geometry.objects);
        state["queued"] = json!(queued);
        state["active_exact"] = json!(active as i64 - queued as i64);
        state["active_slabinfo"] = json!(active);
        state["stat"] = STATS.iter().map(|s| (s.name().to_string(), json!(sum.get(*s)))).collect::<Map<_, _>>().into();
        if cpus > 1 {
            state["stat_cpu"] = json!(seen[..cpus].iter().map(row).collect::<Vec<_>>());
        }
        if self.numa {
            state["stat_node"] = json!(seen[cpus..].iter().map(row).collect::<Vec<_>>());
        }
        state
    }

    fn list_json(&self, l: &Seen) -> Value {
        let inuse: Vec<u64> = l.partial.iter().map(|p| self.inuse(*p)).collect();
        json!({
            "freelist": l.lifo.nr,
            "nr_slabs": l.nr_slabs,
            "nr_partial": l.nr_partial,
            "partial_inuse": inuse[..inuse.len().min(SHOWN)],
            "partial_free": inuse.iter().map(|n| self.geometry.objects - n).sum::<u64>(),
            "remote_free": l.remote.nr,
            "remote_free_check": l.check,
        })
    }

    /// `align` as it was asked for; `flags` has the two bits that this cache can have of those the recordings show:
    /// 0x2000 HWCACHE_ALIGN, 0x1 more than one node.
    fn geometry_json(&self) -> Value {
        let g = &self.geometry;
        let flags = u64::from(self.spec.hwcache_align) << 13 | u64::from(self.numa);
        json!({
            "object_size": g.object_size,
            "align": self.spec.align,
            "slab_size": g.size,
            "inuse": g.inuse,
            "fp_offset": g.offset,
            "objs_per_slab": g.objects,
            "order": g.order.0,
            "hiwater": g.hiwater,
            "freebatch": g.freebatch,
            "colour_range": g.colour_range,
            "colour_off": g.colour_off,
            "flags": format!("{flags:#x}"),
        })
    }
}

fn total(seen: &[Seen]) -> Counters {
    let mut sum = Counters::default();
    seen.iter().for_each(|l| sum.merge(&l.counters));
    sum
}
