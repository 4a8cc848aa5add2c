//! What the slabinfo tool reads of SLAB. The kernel has no files for it: `/proc/slabinfo` and its statistics under their own
//! names, with the queues that the file does not show. When no CPU runs.

use serde_json::{Map, json};

use super::Slab;
use super::geometry::Place;
use crate::alloc::tool::{Directory, Form, Kind, Report};
use crate::alloc::{Counters, Stat};
use crate::machine::Machine;

/// Events of the statistics columns, in their order.
const EVENTS: [Stat; 10] = [
    Stat::Listallocs,
    Stat::Grown,
    Stat::Reaped,
    Stat::NodeAllocs,
    Stat::RemoteFrees,
    Stat::AlienOverflow,
    Stat::Allochit,
    Stat::Allocmiss,
    Stat::Freehit,
    Stat::Freemiss,
];

impl<M: Machine> Slab<'_, M> {
    fn tool_directory(&mut self, index: usize) -> Directory {
        let info = self.report_info(index);
        let nodes = self.count(index);
        let queued = self.parked(index, &nodes);
        let cache = &mut self.caches[index];
        let (g, t) = (cache.geometry, cache.tunables);
        let mut all = Counters::default();
        cache.cpus.iter_mut().for_each(|(_, c)| all.merge(&c.counters));
        let sum = |f: &dyn Fn(&super::report::NodeCount) -> u64| nodes.iter().map(f).sum::<u64>();
        let mut lab = Map::new();
        let mut put = |name: &str, n: u64| lab.insert(name.into(), json!(n));
        put("object_size", cache.spec.size);
        put("slab_size", g.slot);
        put("align", g.align);
        put("order", g.order.0.into());
        put("objs_per_slab", g.num);
        put("objects", info.active_objects);
        put("objects_partial", sum(&|n| n.partial.iter().sum()));
        put("total_objects", info.total_objects.unwrap_or(0));
        put("slabs", info.slabs.unwrap_or(0));
        put("partial", sum(&|n| n.partial.len() as u64));
        put("free_slabs", sum(&|n| n.free));
        put("queued", queued);
        put("limit", t.limit);
        put("batchcount", t.batch);
        put("shared_limit", t.shared_limit());
        put("aliases", cache.users.peek().saturating_sub(1));
        put("hwcache_align", cache.spec.hwcache_align.into());
        put("reclaim_account", cache.spec.reclaim_account.into());
        put("off_slab", g.off_slab().into());
        put("in_object", (g.place == Place::InObject).into());
        put("sanity_checks", g.checks.lists.into());
        put("red_zone", g.checks.red_zone.into());
        put("poison", g.checks.poison.into());
        put("store_user", g.checks.user.into());
        EVENTS.iter().for_each(|s| {
            put(s.name(), all.get(*s));
        });
        let (name, links) = (cache.spec.name.clone(), cache.aliases.clone());
        Directory { cache: index as u32, name, links, files: Map::new(), lab }
    }

    /// What the slabinfo tool reads.
    pub(super) fn tool_report(&mut self) -> Report {
        let there: Vec<usize> = (0..self.caches.len()).filter(|i| self.caches[*i].gone.peek() == 0).collect();
        Report {
            kind: Kind::Slab,
            form: Form::New,
            era: self.config.era.clone(),
            sysfs: false,
            events: EVENTS.iter().map(|s| s.name().to_string()).collect(),
            caches: there.into_iter().map(|i| self.tool_directory(i)).collect(),
        }
    }
}
