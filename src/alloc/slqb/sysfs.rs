//! SLQB's directory of each cache in sysfs (slqb.md §13), and what the slabinfo tool reads besides it: queues, and the event
//! counts of all CPUs since the end of the warm-up. When no CPU runs.
//!
//! An event file shows what has happened to each list since its cache was made: the total, that of the node lists included,
//! then those of the CPUs that are not 0.

use serde_json::{Map, json};

use super::report::{STATS, total};
use super::{Cache, Slqb};
use crate::alloc::slub::by_place;
use crate::alloc::tool::{Directory, Form, Kind, Report};
use crate::alloc::{Counters, SlabAllocator};
use crate::machine::Machine;
use crate::spec::CacheId;

impl<M: Machine> Cache<'_, M> {
    fn directory(&mut self, since: &Counters) -> Directory {
        let info = self.info();
        let seen = self.look();
        let cpus = seen.len() - self.nodes.len();
        let rlists: u64 = self.cpus.iter_mut().map(|(_, s)| s.rlist.nr).sum();
        let (g, spec) = (&self.geometry, &self.spec);
        let mut files = Map::new();
        let mut put = |name: &str, text: String| files.insert(name.into(), json!(text));
        let flag = |on: bool| u64::from(on).to_string();
        put("slab_size", g.size.to_string());
        put("object_size", g.object_size.to_string());
        put("objs_per_slab", g.objects.to_string());
        put("order", g.order.0.to_string());
        put("objects", info.active_objects.to_string());
        put("total_objects", info.total_objects.unwrap_or(0).to_string());
        put("slabs", info.slabs.unwrap_or(0).to_string());
        put("ctor", if spec.ctor { format!("{}_ctor", spec.name) } else { String::new() });
        put("align", spec.align.to_string());
        put("hwcache_align", flag(spec.hwcache_align));
        put("reclaim_account", flag(spec.reclaim_account));
        put("destroy_by_rcu", flag(spec.typesafe_by_rcu));
        put("red_zone", flag(g.debug.red_zone));
        put("poison", flag(g.debug.poison));
        put("store_user", flag(g.debug.user));
        put("cache_dma", flag(false));
        put("hiwater", self.hiwater().to_string());
        put("freebatch", self.freebatch().to_string());
        let sum = total(&seen);
        for stat in STATS {
            let per_cpu = seen[..cpus].iter().map(|l| l.counters.get(stat));
            if sum.get(stat) > 0 {
                put(stat.name(), by_place(sum.get(stat), 'C', per_cpu));
            }
        }
        let queued = seen.iter().map(|l| l.lifo.nr + l.remote.nr).sum::<u64>() + rlists;
        let in_partial: u64 = seen.iter().flat_map(|l| &l.partial).map(|page| self.inuse(*page)).sum();
        let mut lab = Map::new();
        lab.insert("partial".into(), json!(info.partial.unwrap_or(0)));
        lab.insert("objects_partial".into(), json!(in_partial));
        lab.insert("queued".into(), json!(queued));
        lab.insert("sanity_checks".into(), json!(u64::from(self.geometry.debug.checks)));
        for stat in STATS.iter().filter(|s| since.get(**s) > 0) {
            lab.insert(format!("total_{}", stat.name()), json!(since.get(*stat)));
        }
        Directory { cache: self.id.0, name: self.spec.name.clone(), links: Vec::new(), files, lab }
    }
}

impl<'p, M: Machine + 'p> Slqb<'p, M> {
    /// What the slabinfo tool reads.
    pub(super) fn tool_report(&mut self) -> Report {
        let there: Vec<u32> = self.caches.iter().filter(|c| c.alive()).map(|c| c.id.0).collect();
        let caches = there
            .into_iter()
            .map(|id| {
                let mut since = Counters::default();
                self.counters(CacheId(id)).iter().for_each(|c| since.merge(c));
                self.caches[id as usize].directory(&since)
            })
            .collect();
        Report {
            kind: Kind::Slqb,
            form: Form::New,
            era: self.config.era.clone(),
            sysfs: true,
            events: STATS.iter().map(|s| s.name().to_string()).collect(),
            caches,
        }
    }
}
