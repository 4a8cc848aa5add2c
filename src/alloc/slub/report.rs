//! What SLUB shows of a cache: slabinfo's columns, every list for comparison with recordings, where an object lies. When no
//! CPU runs.

use serde_json::{Map, Value, json};

use super::barn::Barn;
use super::order::Layout;
use super::policy::{Policy, SlowPath};
use super::rcu::Waiting;
use super::sheaf::Sheaf;
use super::word::{Links, Slab};
use super::{Cache, Slub};
use crate::alloc::{CacheInfo, Counters, Placement, slabinfo_text};
use crate::machine::{Addr, Machine};
use crate::page::Pages;
use crate::spec::{CacheId, CacheSpec};
use crate::units::CpuId;

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

/// A slab's own list and counters, wherever its release keeps them.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub freelist: Option<Addr>,
    pub inuse: u64,
    pub objects: u64,
    pub frozen: bool,
}

impl View {
    /// Free objects on the own list.
    pub fn free(&self) -> u64 {
        self.objects - self.inuse
    }
}

/// A CPU's slab with the length of its private list, and its partial slabs from the top.
pub(super) type OnCpu = (Option<(Slab, View, u64)>, Vec<View>);

impl<M: Machine> Cache<M> {
    /// The state of a slab. When no CPU runs.
    pub(super) fn view(&self, pages: &Pages<'_, M>, slab: Slab) -> View {
        let objects = slab.objects(pages);
        if self.lockless {
            let word = slab.peek_word(pages);
            let freelist = word.head().map(|h| self.object_at(pages, slab, h));
            View { freelist, inuse: word.inuse(), objects, frozen: word.frozen() }
        } else {
            View { freelist: slab.freelist(pages), inuse: slab.inuse(pages), objects, frozen: slab.frozen(pages) }
        }
    }

    /// The node's list, head first.
    pub(super) fn listed(&mut self, pages: &Pages<'_, M>, node: usize) -> Vec<View> {
        let listed = self.nodes[node].listed(pages);
        listed.into_iter().map(|pfn| self.view(pages, Slab(pfn))).collect()
    }

    /// What each CPU owns.
    pub(super) fn on_cpus(&mut self, pages: &Pages<'_, M>) -> Vec<OnCpu> {
        let cpus: Vec<_> = self
            .cpus
            .iter_mut()
            .map(|(_, c)| (c.own(), c.list(), c.partial.iter().map(|l| l.slab).collect()))
            .collect();
        let view = |(own, list, partial): (Option<Slab>, Option<Addr>, Vec<Slab>)| {
            let own = own.map(|slab| {
                let view = self.view(pages, slab);
                (slab, view, length(pages, list, self.links, view.objects))
            });
            (own, partial.into_iter().map(|slab| self.view(pages, slab)).collect())
        };
        cpus.into_iter().map(view).collect()
    }

    /// Objects in sheaves and barns that no user has given to RCU.
    pub(super) fn in_sheaves(&mut self) -> u64 {
        let on_cpus: usize = self
            .cpus
            .iter_mut()
            .filter_map(|(_, c)| c.sheaves.as_ref())
            .map(|s| s.main.objects.len() + s.spare.as_ref().map_or(0, |spare| spare.objects.len()))
            .sum();
        let in_barns: usize = self.barns.iter_mut().flat_map(|b| b.peek().0).map(|sheaf| sheaf.objects.len()).sum();
        (on_cpus + in_barns) as u64
    }
    /// What waits for a grace period.
    pub(super) fn waiting(&mut self) -> impl Iterator<Item = &Waiting> + '_ {
        self.rcu.iter_mut().flat_map(|queue| queue.get_mut().iter())
    }
    /// Objects that wait for RCU: in sheaves of CPUs, or for their grace period.
    pub(super) fn in_rcu(&mut self) -> u64 {
        let on_cpus: usize = self
            .cpus
            .iter_mut()
            .filter_map(|(_, c)| c.sheaves.as_ref()?.rcu_free.as_ref())
            .map(|sheaf| sheaf.objects.len())
            .sum();
        (on_cpus + self.waiting().map(|w| w.objects().len()).sum::<usize>()) as u64
    }

    fn totals(&mut self, pages: &Pages<'_, M>) -> Totals {
        let slabs: u64 = self.nodes.iter().map(|n| n.nr_slabs.peek()).sum();
        let total: u64 = self.nodes.iter().map(|n| n.total_objects.peek()).sum();
        let listed: Vec<View> = (0..self.nodes.len()).flat_map(|n| self.listed(pages, n)).collect();
        let free: u64 = listed.iter().map(View::free).sum();
        let on_cpus: u64 = self
            .on_cpus(pages)
            .iter()
            .map(|(own, partial)| {
                own.map_or(0, |(_, view, list)| view.free() + list) + partial.iter().map(View::free).sum::<u64>()
            })
            .sum();
        let live = total - free - on_cpus - self.in_sheaves();
        Totals { slabs, partial: listed.len() as u64, total, active: total - free, live }
    }
}

/// Length of a list of free objects, walked at most `most` + 1 objects far.
fn length<M: Machine>(pages: &Pages<'_, M>, mut at: Option<Addr>, links: Links, most: u64) -> u64 {
    let mut n = 0;
    while let (Some(object), true) = (at, n <= most) {
        n += 1;
        at = links.peek(pages.arena(), object);
    }
    n
}

/// The kernel's flag word of a cache. The numbers of the flags are the release's.
pub(super) fn flags(spec: &CacheSpec, layout: &Layout, policy: &Policy) -> u64 {
    let bit = |on: bool, mask: u64| if on { mask } else { 0 };
    let d = layout.debug;
    if policy.sheaves.is_some() {
        // 6.11 numbered the flags anew.
        return bit(!d.any(), 0x1_0000)
            | bit(spec.hwcache_align, 0x10)
            | bit(d.checks, 0x1)
            | bit(d.red_zone, 0x2)
            | bit(d.poison, 0x4)
            | bit(d.user, 0x40)
            | bit(spec.typesafe_by_rcu, 0x200)
            | bit(spec.reclaim_account, 0x4000);
    }
    let poisons = d.poison && !spec.typesafe_by_rcu && !spec.ctor;
    let lockless = policy.t.slow_path == SlowPath::Lockless;
    bit(d.checks, 0x100)
        | bit(d.red_zone, 0x400)
        | bit(d.poison, 0x800)
        | bit(d.user, 0x1_0000)
        | bit(d.trace, 0x20_0000)
        | bit(spec.hwcache_align, 0x2000)
        | bit(spec.reclaim_account, 0x2_0000)
        | bit(spec.typesafe_by_rcu, 0x8_0000)
        | bit(poisons, 0x8000_0000)
        | bit(lockless && !(d.checks || d.user || d.trace), 0x4000_0000)
}

impl<M: Machine> Slub<'_, M> {
    pub(super) fn report(&mut self, id: CacheId) -> CacheInfo {
        let pages = self.pages;
        let cache = &mut self.caches[id.0 as usize];
        let t = cache.totals(pages);
        let pages_of_nodes = cache.nodes.iter().map(|n| n.nr_pages.peek()).sum();
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
            pages: Some(pages_of_nodes),
            min_partial: Some(cache.limits.min_partial),
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
        let index = layout.object_index(object.0 - self.pages.addr_of(slab).0).expect("an object of the cache");
        Placement { slab, index, offset: 0 }
    }

    pub(super) fn snapshot(&mut self, id: CacheId) -> Value {
        let (pages, policy) = (self.pages, self.policy);
        let cache = &mut self.caches[id.0 as usize];
        let totals = cache.totals(pages);
        let nodes: Vec<Value> = (0..cache.nodes.len()).map(|n| cache.node_state(pages, n)).collect();
        let on_cpus = cache.on_cpus(pages);
        let cpus: Vec<Value> = on_cpus
            .into_iter()
            .enumerate()
            .map(|(n, (own, partial))| cache.cpu_state(pages, n, own, &partial))
            .collect();
        let counters: Vec<Counters> = cache.cpus.iter_mut().map(|(_, c)| c.counters.clone()).collect();
        let mut sum = Counters::default();
        counters.iter().for_each(|c| sum.merge(c));
        let stat: Map<String, Value> =
            policy.stats.iter().map(|s| (s.name().to_string(), sum.get(*s).into())).collect();
        let per_cpu = |c: &Counters| policy.stats.iter().map(|s| c.get(*s)).collect::<Vec<u64>>();
        let stat_cpu: Vec<Vec<u64>> = counters.iter().map(per_cpu).collect();
        // Slabs may differ in their order, and counters may have been cleared.
        let made: u64 = cache.nodes.iter().map(|n| n.pages_made.peek()).sum();
        let there: u64 = cache.nodes.iter().map(|n| n.nr_pages.peek()).sum();
        json!({
            "geometry": cache.geometry(&policy),
            "node": nodes,
            "cpu": cpus,
            "nr_slabs": totals.slabs,
            "total_objects": totals.total,
            "active_exact": totals.live,
            "active_slabinfo": totals.active,
            "pages_alloced": made,
            "pages_freed": made - there,
            "held": cache.in_rcu(),
            "stat": stat,
            "stat_cpu": stat_cpu,
        })
    }
}

impl<M: Machine> Cache<M> {
    /// The alignment that a cache shows: up to 2.6.31 it remembers the one asked for.
    pub(super) fn shown_align(&self, policy: &Policy) -> u64 {
        if policy.t.slow_path == SlowPath::Locked { self.spec.align } else { self.layout.align }
    }
    fn geometry(&self, policy: &Policy) -> Value {
        let l = &self.layout;
        json!({
            "object_size": l.object_size,
            "align": self.shown_align(policy),
            "slab_size": l.slot,
            "inuse": l.inuse,
            "fp_offset": l.offset,
            "objs_per_slab": l.objects,
            "order": l.order.0,
            "min_order": l.min_order.0,
            "min_objs_per_slab": l.min_objects,
            "min_partial": self.limits.min_partial,
            "cpu_partial": self.limits.cpu_partial.unwrap_or(0),
            "cpu_partial_slabs": self.limits.cpu_partial_slabs,
            "sheaf_capacity": self.limits.sheaf_capacity,
            "flags": format!("{:#x}", flags(&self.spec, l, policy)),
            "has_ctor": u64::from(self.spec.ctor),
        })
    }

    fn node_state(&mut self, pages: &Pages<'_, M>, n: usize) -> Value {
        let listed = self.listed(pages, n);
        let inuse: Vec<u64> = listed.iter().map(|v| v.inuse).collect();
        let (full, empty) = self.barns.get_mut(n).map_or((vec![], vec![]), Barn::peek);
        let full: Vec<usize> = full.iter().map(|sheaf| sheaf.objects.len()).collect();
        let empty = empty.len();
        let node = &self.nodes[n];
        json!({
            "node": n,
            "nr_slabs": node.nr_slabs.peek(),
            "total_objects": node.total_objects.peek(),
            "nr_partial": node.nr_partial.peek(),
            "partial_free": listed.iter().map(View::free).sum::<u64>(),
            "partial_inuse": inuse[..inuse.len().min(SHOWN)],
            "barn_full": full.len(),
            "barn_empty": empty,
            "barn_full_sizes": full,
        })
    }

    fn cpu_state(&mut self, pages: &Pages<'_, M>, n: usize, own: Option<(Slab, View, u64)>, partial: &[View]) -> Value {
        let capacity = self.limits.sheaf_capacity;
        let c = self.cpus.get_mut(CpuId(n as u16));
        let length = |sheaf: Option<&Sheaf>| sheaf.map_or(-1, |s| s.objects.len() as i64);
        let sheaves = c.sheaves.as_ref();
        json!({
            "cpu": n,
            "slab": u64::from(own.is_some()),
            "objects": own.map_or(0, |(_, view, _)| view.objects),
            "inuse": own.map_or(0, |(_, view, _)| view.inuse),
            "freelist": own.map_or(0, |(.., list)| list),
            "slab_node": own.map_or(-1, |(slab, ..)| i64::from(pages.node_of(slab.0).0)),
            "partial_slabs": partial.len(),
            "partial_free": partial.iter().map(View::free).sum::<u64>(),
            "partial_inuse": partial.iter().map(|v| v.inuse).take(SHOWN).collect::<Vec<_>>(),
            "partial_pages": c.partial.len(),
            "partial_pobjects": c.partial.pobjects(),
            "partial_count": c.partial.len(),
            "main": length(sheaves.map(|s| &s.main)),
            "spare": length(sheaves.and_then(|s| s.spare.as_ref())),
            "rcu_free": length(sheaves.and_then(|s| s.rcu_free.as_ref())),
            "capacity": capacity,
        })
    }
}
