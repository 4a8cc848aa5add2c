//! SLUB's directory of each cache in sysfs (slub.md §8.2): attributes with the kernel's text, and its event counts. Which
//! there are is the release's matter. When no CPU runs.
//!
//! Left out: `shrink` and `validate`, which are there to be written to (see [`super::write`]), and `alloc_calls` and `free_calls`, as objects are not
//! tracked. A lab's constructor has no symbol: it is shown as the cache's name with `_ctor`.

use serde_json::{Map, Value, json};

use super::policy::{CpuPartialCount, OrderSearch, Policy, SheafForm, SlowPath};
use super::{Cache, Slub};
use crate::alloc::tool::{Directory, Form, Kind, Report};
use crate::alloc::{Counters, Stat};
use crate::machine::Machine;
use crate::page::Pages;
use crate::spec::Kind as Memory;

/// A count with those of its places that are not 0: `10 N0=7 N1=3`.
pub(in crate::alloc) fn by_place(total: u64, letter: char, places: impl IntoIterator<Item = u64>) -> String {
    let places = places.into_iter().enumerate().filter(|(_, n)| *n > 0);
    places.fold(total.to_string(), |text, (at, n)| format!("{text} {letter}{at}={n}"))
}

/// The same where the total is the sum.
fn summed(letter: char, places: &[u64]) -> String {
    by_place(places.iter().sum(), letter, places.iter().copied())
}

/// Slabs and objects of a cache by node.
struct Counted {
    slabs: Vec<u64>,
    partial: Vec<u64>,
    cpu_slabs: Vec<u64>,
    total: Vec<u64>,
    objects: Vec<u64>,
    in_partial: Vec<u64>,
}

impl<M: Machine> Cache<M> {
    /// `objects`: all less the free ones of node partial slabs; up to 2.6.25 those in use, as the slabs count them, which
    /// leaves out what is free on a cpu slab's own list too.
    fn counted(&mut self, pages: &Pages<'_, M>, policy: &Policy) -> Counted {
        let nodes = self.nodes.len();
        let listed: Vec<_> = (0..nodes).map(|n| self.listed(pages, n)).collect();
        let mut cpu_slabs = vec![0; nodes];
        let mut unused = vec![0; nodes];
        let on_lists: Vec<_> =
            self.cpus.iter_mut().flat_map(|(_, c)| c.partial.iter().map(|l| l.slab).collect::<Vec<_>>()).collect();
        for slab in on_lists {
            cpu_slabs[usize::from(pages.node_of(slab.0).0)] += 1;
        }
        for (own, _) in self.on_cpus(pages) {
            let Some((slab, view, _)) = own else { continue };
            let node = usize::from(pages.node_of(slab.0).0);
            cpu_slabs[node] += 1;
            unused[node] += if has(policy, Stat::OrderFallback) { 0 } else { view.free() };
        }
        let total: Vec<u64> = self.nodes.iter().map(|n| n.total_objects.peek()).collect();
        let free: Vec<u64> = listed.iter().map(|slabs| slabs.iter().map(|v| v.free()).sum()).collect();
        Counted {
            slabs: self.nodes.iter().map(|n| n.nr_slabs.peek()).collect(),
            partial: listed.iter().map(|slabs| slabs.len() as u64).collect(),
            cpu_slabs,
            objects: (0..nodes).map(|n| total[n] - free[n] - unused[n]).collect(),
            in_partial: listed.iter().map(|slabs| slabs.iter().map(|v| v.inuse).sum()).collect(),
            total,
        }
    }

    /// Slabs on per-CPU partial lists with their free objects: as noted when each was put there, later (5.16) taken as half
    /// of their slots.
    fn slabs_cpu_partial(&mut self, policy: &Policy) -> String {
        let noted = policy.t.cpu_partial_count == CpuPartialCount::Objects;
        let half = self.layout.objects;
        let objects = |slabs: u64, noted_here: u64| if noted { noted_here } else { slabs * half / 2 };
        let lists: Vec<(u64, u64)> =
            self.cpus.iter_mut().map(|(_, c)| (c.partial.len(), c.partial.pobjects())).collect();
        let (slabs, free) = lists.iter().fold((0, 0), |sum, l| (sum.0 + l.0, sum.1 + l.1));
        let mut text = format!("{}({slabs})", objects(slabs, free));
        for (cpu, (slabs, free)) in lists.iter().enumerate().filter(|(_, (slabs, _))| *slabs > 0) {
            text += &format!(" C{cpu}={}({slabs})", objects(*slabs, *free));
        }
        text
    }

    fn directory(&mut self, pages: &Pages<'_, M>, policy: &Policy, id: Option<String>) -> Directory {
        let n = self.counted(pages, policy);
        let (l, debug, spec) = (self.layout, self.layout.debug, self.spec.clone());
        let mut files = Map::new();
        let mut put = |name: &str, text: String| files.insert(name.into(), json!(text));
        let flag = |on: bool| u64::from(on).to_string();
        put("object_size", l.object_size.to_string());
        put("slab_size", l.slot.to_string());
        put("align", self.shown_align(policy).to_string());
        put("order", l.order.0.to_string());
        put("objs_per_slab", l.objects.to_string());
        put("objects", summed('N', &n.objects));
        if has(policy, Stat::OrderFallback) {
            put("objects_partial", summed('N', &n.in_partial));
            put("total_objects", summed('N', &n.total));
        }
        put("slabs", summed('N', &n.slabs));
        put("partial", summed('N', &n.partial));
        put("cpu_slabs", summed('N', &n.cpu_slabs));
        if policy.t.order_search >= OrderSearch::StepFrom16 {
            put("min_partial", self.limits.min_partial.to_string());
        }
        if has(policy, Stat::CpuPartialAlloc) || policy.sheaves.is_some() {
            // Without cpu slabs the two are constants.
            let gone = policy.sheaves == Some(SheafForm::Alone);
            put("cpu_partial", if gone { 0 } else { self.limits.cpu_partial.unwrap_or(0) }.to_string());
            put("slabs_cpu_partial", self.slabs_cpu_partial(policy));
        }
        if policy.sheaves.is_some() {
            put("sheaf_capacity", self.limits.sheaf_capacity.to_string());
        }
        put("aliases", (*self.users.get_mut() - 1).to_string());
        put("ctor", if spec.ctor { format!("{}_ctor", spec.name) } else { String::new() });
        put("hwcache_align", flag(spec.hwcache_align));
        put("reclaim_account", flag(spec.reclaim_account));
        put("cache_dma", flag(self.kind == Memory::Dma));
        put("destroy_by_rcu", flag(spec.typesafe_by_rcu));
        put("sanity_checks", flag(debug.checks));
        put("red_zone", flag(debug.red_zone));
        put("poison", flag(debug.poison));
        put("store_user", flag(debug.user));
        put("trace", flag(debug.trace));
        if has(policy, Stat::CmpxchgDoubleFail) {
            put("failslab", flag(debug.failslab));
        }
        if policy.modern_layout {
            put("usersize", "0".into());
        }
        let ratio = if policy.stats.is_empty() { "defrag_ratio" } else { "remote_node_defrag_ratio" };
        put(ratio, (self.limits.defrag_ratio / 10).to_string());
        let counters: Vec<Counters> = self.cpus.iter_mut().map(|(_, c)| c.counters.clone()).collect();
        for stat in policy.stats {
            let per_cpu: Vec<u64> = counters.iter().map(|c| c.get(*stat)).collect();
            if per_cpu.iter().any(|n| *n > 0) {
                put(stat.name(), summed('C', &per_cpu));
            }
        }
        let mut links = self.aliases.clone();
        let name = match id {
            Some(id) => {
                links.insert(0, spec.name);
                id
            }
            None => spec.name,
        };
        Directory { cache: self.index as u32, name, links, files, lab: Map::new() }
    }
}

/// The release counts this event.
fn has(policy: &Policy, stat: Stat) -> bool {
    policy.stats.contains(&stat)
}

impl<M: Machine> Slub<'_, M> {
    /// The id of a cache that can be shared (kernel: create_unique_id): `:`, letters of its kind, its slot in seven digits.
    fn unique_id(&self, index: usize) -> Option<String> {
        let cache = &self.caches[index];
        if self.unmergeable(&cache.spec) {
            return None;
        }
        let mut letters = String::new();
        letters.extend((cache.kind == Memory::Dma).then_some('d'));
        letters.extend(cache.spec.reclaim_account.then_some('a'));
        letters.extend(self.debug.of(&cache.spec.name).checks.then_some('F'));
        // From 2.6.31 to 4.14: the memory checker may track it.
        let tracked = self.policy.t.order_search == OrderSearch::StepFrom16 && !self.policy.modern_layout;
        letters.extend(tracked.then_some('t'));
        letters.extend((cache.kind == Memory::Accounted).then_some('A'));
        let dash = if letters.is_empty() { "" } else { "-" };
        Some(format!(":{letters}{dash}{:07}", cache.layout.slot))
    }

    /// What the slabinfo tool reads: the directory of every cache that exists.
    pub(super) fn tool_report(&mut self) -> Report {
        let (pages, policy) = (self.pages, self.policy);
        let there: Vec<usize> = (0..self.caches.len()).filter(|i| !self.caches[*i].is_destroyed()).collect();
        let caches = there
            .into_iter()
            .map(|i| {
                let id = self.unique_id(i);
                self.caches[i].directory(pages, &policy, id)
            })
            .collect();
        let form = match () {
            () if policy.max_objects_refuses => Form::Oldest,
            () if policy.modern_layout => Form::New,
            () if policy.t.slow_path == SlowPath::Lockless => Form::Mid,
            () => Form::Old,
        };
        Report {
            kind: Kind::Slub,
            form,
            era: self.era.clone(),
            sysfs: true,
            events: policy.stats.iter().map(|s| s.name().to_string()).collect(),
            caches,
        }
    }

    /// The attributes of a cache by name; `None` for one that has been destroyed.
    pub fn sysfs(&mut self, cache: crate::spec::CacheId) -> Option<Map<String, Value>> {
        let report = self.tool_report();
        let found = report.caches.iter().find(|d| d.cache == cache.0)?;
        Some(report.sysfs(found))
    }
}
