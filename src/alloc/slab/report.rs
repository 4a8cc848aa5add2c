//! Reports, when no CPU runs.

use serde_json::{Value, json};

use super::Slab;
use super::columns::Columns;
use super::header::Headers;
use crate::alloc::{CacheInfo, Counters, Placement, Stat};
use crate::machine::{Addr, Machine};
use crate::units::HZ;

/// Entries of a list in a recording.
const LISTED: usize = 400;

/// Everything countable of one node.
pub(super) struct NodeCount {
    full: u64,
    pub(super) partial: Vec<u64>,
    pub(super) free: u64,
    /// Objects outside slabs.
    active: u64,
    free_objects: u64,
    shared: u64,
    aliens: Vec<Option<u64>>,
}

impl<M: Machine> Slab<'_, M> {
    pub(super) fn count(&mut self, index: usize) -> Vec<NodeCount> {
        let (pages, private, management) = (self.pages, self.private.as_ref(), self.policy.management);
        let cache = &mut self.caches[index];
        let geometry = cache.geometry;
        let private = private.filter(|_| cache.has_private_management());
        let headers = Headers { pages, management, geometry: &geometry, private };
        let num = geometry.num;
        cache
            .nodes
            .iter_mut()
            .map(|node| {
                let lists = node.lists.get_mut();
                let partial: Vec<u64> = lists.partial.iter(&headers).map(|s| headers.inuse(s)).collect();
                NodeCount {
                    full: lists.full.len(),
                    free: lists.free.len(),
                    active: lists.full.len() * num + partial.iter().sum::<u64>(),
                    partial,
                    free_objects: lists.free_objects,
                    shared: lists.shared.as_ref().map_or(0, |s| s.len() as u64),
                    aliens: node.alien.iter_mut().map(|a| a.as_mut().map(|a| a.get_mut().len() as u64)).collect(),
                }
            })
            .collect()
    }

    /// Objects in arrays of every kind.
    pub(super) fn parked(&mut self, index: usize, nodes: &[NodeCount]) -> u64 {
        let own: u64 = self.caches[index].cpus.iter_mut().map(|(_, c)| c.array.len() as u64).sum();
        own + nodes.iter().map(|n| n.shared + n.aliens.iter().flatten().sum::<u64>()).sum::<u64>()
    }

    pub(super) fn report_info(&mut self, index: usize) -> CacheInfo {
        let nodes = self.count(index);
        let parked = self.parked(index, &nodes);
        let cache = &self.caches[index];
        let (g, t) = (&cache.geometry, &cache.tunables);
        let sum = |f: &dyn Fn(&NodeCount) -> u64| nodes.iter().map(f).sum::<u64>();
        let slabs = sum(&|n| n.full + n.partial.len() as u64 + n.free);
        let active = sum(&|n| n.active);
        CacheInfo {
            name: cache.spec.name.clone(),
            object_size: cache.spec.size,
            slot_size: g.slot,
            order: Some(g.order.0),
            order_raised: g.order_raised,
            objects_per_slab: Some(g.num),
            active_objects: active,
            live_objects: active - parked,
            total_objects: Some(slabs * g.num),
            active_slabs: Some(sum(&|n| n.full + n.partial.len() as u64)),
            slabs: Some(slabs),
            pages: Some(slabs * g.order.pages()),
            limit: Some(t.limit),
            batchcount: Some(t.batch),
            sharedfactor: Some(t.sharedfactor),
            sharedavail: Some(sum(&|n| n.shared)),
            min_partial: None,
            partial: Some(sum(&|n| n.partial.len() as u64)),
        }
    }

    /// The keys of the recordings, except `shared_batchcount`, which the original never initialises.
    pub(super) fn report_state(&mut self, index: usize) -> Value {
        let nodes = self.count(index);
        let parked = self.parked(index, &nodes);
        let several_nodes = self.several_nodes;
        let cache = &mut self.caches[index];
        let (g, t) = (cache.geometry, cache.tunables);
        let slabs: u64 = nodes.iter().map(|n| n.full + n.partial.len() as u64 + n.free).sum();
        let active: u64 = nodes.iter().map(|n| n.active).sum();
        let mut longest_free = 0;
        let node_rows: Vec<Value> = cache
            .nodes
            .iter_mut()
            .zip(&nodes)
            .enumerate()
            .map(|(i, (node, n))| {
                let lists = node.lists.get_mut();
                longest_free = longest_free.max(lists.longest_free);
                let aliens: Vec<i64> =
                    n.aliens.iter().filter(|_| several_nodes).map(|a| a.map_or(-1, |a| a as i64)).collect();
                json!({
                    "node": i,
                    "total_slabs": n.full + n.partial.len() as u64 + n.free,
                    "free_slabs": n.free,
                    "free_objects": n.free_objects,
                    "free_limit": lists.free_limit,
                    "partial_active": n.partial.iter().take(LISTED).collect::<Vec<_>>(),
                    "partial_slabs": n.partial.len(),
                    "full_slabs": n.full,
                    "empty_slabs": n.free,
                    "shared_avail": n.shared,
                    "shared_limit": lists.shared.as_ref().map_or(0, |s| s.limit),
                    "colour_next": node.colour_next.peek(),
                    "free_touched": u8::from(lists.free_touched),
                    "alien_avail": aliens,
                })
            })
            .collect();
        let since = |jiffy: u64| jiffy.saturating_sub(cache.created) / HZ;
        let next_reap: Vec<u64> = cache.nodes.iter().map(|n| since(n.next_reap.peek())).collect();
        let mut all = Counters::default();
        let cpu_rows: Vec<Value> = cache
            .cpus
            .iter_mut()
            .map(|(cpu, c)| {
                all.merge(&c.counters);
                let a = &c.array;
                json!({
                    "cpu": cpu.0, "avail": a.len(), "limit": a.limit, "batchcount": t.batch, "touched": u8::from(a.touched),
                })
            })
            .collect();
        let (num_active, high_mark) = cache.active.peek();
        json!({
            "geometry": Columns::new(&cache.spec, &g, &t).to_json(),
            "next_reap_seconds": next_reap,
            "node": node_rows,
            "cpu": cpu_rows,
            "nr_slabs": slabs,
            "total_objects": slabs * g.num,
            "active_exact": active - parked,
            "active_slabinfo": active,
            "stat": {
                "num_active": num_active, "num_allocations": all.get(Stat::Listallocs), "high_mark": high_mark,
                "grown": all.get(Stat::Grown), "reaped": all.get(Stat::Reaped), "errors": 0,
                "max_freeable": longest_free, "node_allocs": all.get(Stat::NodeAllocs),
                "node_frees": all.get(Stat::RemoteFrees), "node_overflow": all.get(Stat::AlienOverflow),
                "allochit": all.get(Stat::Allochit), "allocmiss": all.get(Stat::Allocmiss),
                "freehit": all.get(Stat::Freehit), "freemiss": all.get(Stat::Freemiss),
            },
        })
    }

    pub(super) fn report_placement(&mut self, index: usize, object: Addr) -> Placement {
        let cache = &self.caches[index];
        let Some((slab, index)) = self.locate(cache, cache.slot_of(object)) else {
            panic!("{}", self.stray(cache, object))
        };
        let headers = self.headers(cache);
        let head = headers.head(slab).expect("an object lies in the arena");
        Placement { slab: head, index, offset: headers.first(slab).0 - self.pages.addr_of(head).0 }
    }
}
