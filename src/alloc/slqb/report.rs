//! What can be said of a cache when no CPU runs: slabinfo, and every list and queue.

use serde_json::{Map, Value, json};

use super::Cache;
use super::chain::Chain;
use super::node::unpack;
use crate::alloc::{CacheInfo, Counters, Stat};
use crate::machine::Machine;
use crate::page::{Field, Pfn};

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

/// A list as it stands: both halves.
#[derive(Clone)]
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

    pub(super) fn inuse(&self, pfn: Pfn) -> u64 {
        unpack(self.pages.peek(pfn, Field::Counters)).inuse
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
            limit: Some(self.hiwater()),
            batchcount: Some(self.freebatch()),
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
        let [made, freed] = self.page_counts();
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
            "hiwater": self.hiwater(),
            "freebatch": self.freebatch(),
            "colour_range": g.colour_range,
            "colour_off": g.colour_off,
            "flags": format!("{flags:#x}"),
        })
    }
}

pub(super) fn total(seen: &[Seen]) -> Counters {
    let mut sum = Counters::default();
    seen.iter().for_each(|l| sum.merge(&l.counters));
    sum
}
