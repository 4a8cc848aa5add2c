//! What SLUB shows of a cache: slabinfo's columns, every list for comparison with recordings, where an object lies. When no
//! CPU runs.

use serde_json::json;

use super::word::{self, Slab};
use super::{Cache, Slub};
use crate::alloc::{CacheInfo, Placement, slabinfo_text};
use crate::machine::{Addr, Machine};
use crate::page::Pages;
use crate::spec::{CacheId, CacheSpec};

/// Entries of a list that recordings show.
const SHOWN: usize = 400;

/// Counts over all slabs of a cache. `total = active + free in partial slabs`, `live ≤ active`.
struct Totals {
    slabs: u64,
    partial: u64,
    /// Slots of all slabs.
    total: u64,
    /// As slabinfo counts: all but the free objects of partial slabs.
    active: u64,
    /// Objects that users hold: active less those free in cpu slabs, on the private or the own list.
    live: u64,
}

impl<M: Machine> Cache<M> {
    fn totals(&mut self, pages: &Pages<'_, M>) -> Totals {
        let objects = self.layout.objects;
        let slabs: u64 = self.nodes.iter().map(|n| n.nr_slabs.peek()).sum();
        let listed: Vec<Slab> = self.nodes.iter_mut().flat_map(|n| n.listed(pages)).map(Slab).collect();
        let free: u64 = listed.iter().map(|s| objects - s.inuse(pages)).sum();
        let (offset, total) = (self.layout.offset, slabs * objects);
        let on_cpus: u64 = self
            .cpus
            .iter_mut()
            .map(|(_, c)| {
                let own = c.slab().map_or(0, |s| objects - s.inuse(pages));
                own + length(pages, c.freelist(), offset, objects)
            })
            .sum();
        Totals { slabs, partial: listed.len() as u64, total, active: total - free, live: total - free - on_cpus }
    }
}

/// Length of a list of free objects, walked at most `most` + 1 objects far.
fn length<M: Machine>(pages: &Pages<'_, M>, mut at: Option<Addr>, offset: u64, most: u64) -> u64 {
    let mut n = 0;
    while let (Some(object), true) = (at, n <= most) {
        n += 1;
        at = word::decode(pages.arena().peek(object.plus(offset)));
    }
    n
}

/// The kernel's flag word of a cache (SLAB_HWCACHE_ALIGN, SLAB_RECLAIM_ACCOUNT, SLAB_DESTROY_BY_RCU).
fn flags(spec: &CacheSpec) -> u64 {
    let bit = |on: bool, mask: u64| if on { mask } else { 0 };
    bit(spec.hwcache_align, 0x2000) | bit(spec.reclaim_account, 0x2_0000) | bit(spec.typesafe_by_rcu, 0x8_0000)
}

impl<M: Machine> Slub<'_, M> {
    pub(super) fn report(&mut self, id: CacheId) -> CacheInfo {
        let (pages, policy) = (self.pages, self.policy);
        let cache = &mut self.caches[id.0 as usize];
        let t = cache.totals(pages);
        let l = &cache.layout;
        CacheInfo {
            name: cache.spec.name.clone(),
            object_size: l.object_size,
            slot_size: l.slot,
            order: Some(l.order.0),
            order_raised: self.order_asked.is_some_and(|asked| l.order.0 > asked),
            objects_per_slab: Some(l.objects),
            active_objects: t.active,
            live_objects: t.live,
            total_objects: Some(t.total),
            // SLUB does not know which slabs are empty without walking them; slabinfo prints all as active.
            active_slabs: Some(t.slabs),
            slabs: Some(t.slabs),
            pages: Some(t.slabs * l.order.pages()),
            min_partial: Some(policy.min_partial),
            partial: Some(t.partial),
            ..CacheInfo::default()
        }
    }

    /// `/proc/slabinfo`, newest cache first as the kernel's list of caches runs; destroyed ones are gone.
    pub(super) fn proc_slabinfo(&mut self) -> Option<String> {
        if !self.policy.slabinfo {
            return None;
        }
        let ids = (0..self.caches.len()).rev().filter(|&i| !self.caches[i].is_destroyed()).collect::<Vec<_>>();
        let lines: Vec<CacheInfo> = ids.into_iter().map(|i| self.report(CacheId(i as u32))).collect();
        Some(slabinfo_text(&lines))
    }

    pub(super) fn place(&self, id: CacheId, object: Addr) -> Placement {
        let layout = &self.cache(id).layout;
        let slab = self.pages.peek_head(object).expect("an address of the arena");
        let index = layout.index_of(object.0 - self.pages.addr_of(slab).0).expect("an object of the cache");
        Placement { slab, index, offset: 0 }
    }

    pub(super) fn snapshot(&mut self, id: CacheId) -> serde_json::Value {
        let (pages, min_partial) = (self.pages, self.policy.min_partial);
        let cache = &mut self.caches[id.0 as usize];
        let totals = cache.totals(pages);
        let layout = cache.layout;
        let nodes = cache.nodes.iter_mut().enumerate().map(|(n, node)| {
            let inuse: Vec<u64> = node.listed(pages).into_iter().map(|s| Slab(s).inuse(pages)).collect();
            json!({
                "node": n,
                "nr_slabs": node.nr_slabs.peek(),
                "total_objects": node.nr_slabs.peek() * layout.objects,
                "nr_partial": node.nr_partial.peek(),
                "partial_free": inuse.iter().map(|n| layout.objects - n).sum::<u64>(),
                "partial_inuse": inuse[..inuse.len().min(SHOWN)],
            })
        });
        let nodes: Vec<_> = nodes.collect();
        let cpus = cache.cpus.iter_mut().map(|(cpu, c)| {
            json!({
                "cpu": cpu.0,
                "slab": u64::from(c.slab().is_some()),
                "objects": c.slab().map_or(0, |_| layout.objects),
                "inuse": c.slab().map_or(0, |s| s.inuse(pages)),
                "freelist": length(pages, c.freelist(), layout.offset, layout.objects),
                "slab_node": c.slab().map_or(-1, |s| i64::from(pages.node_of(s.0).0)),
                // The release has no per-CPU partial list; recordings show zeros.
                "partial_slabs": 0,
                "partial_free": 0,
            })
        });
        let cpus: Vec<_> = cpus.collect();
        json!({
            "geometry": {
                "object_size": layout.object_size,
                "align": cache.spec.align,
                "slab_size": layout.slot,
                "inuse": layout.inuse,
                "fp_offset": layout.offset,
                "objs_per_slab": layout.objects,
                "order": layout.order.0,
                "min_partial": min_partial,
                "flags": format!("{:#x}", flags(&cache.spec)),
                "has_ctor": u64::from(cache.spec.ctor),
            },
            "node": nodes,
            "cpu": cpus,
            "nr_slabs": totals.slabs,
            "total_objects": totals.total,
            "active_exact": totals.live,
            "active_slabinfo": totals.active,
        })
    }
}
