//! Changing a cache at run time, as by writing to its attributes in sysfs (slub.md §7.1, §8.2), with the kernel's refusals.
//!
//! A change that the CPUs must know of gives up their slabs first. A debug flag holds for every slab from then on; up to 3.0
//! the kernel marks new slabs only, and the old ones go the ordinary way until they are returned.

use super::debug::Debug;
use super::order::{Asked, Layout};
use super::policy::*;
use super::{Slub, eras};
use crate::alloc::Stat;
use crate::error::{Corruption, Error};
use crate::machine::{Cpu, Machine, Wakeup};
use crate::spec::CacheId;
use crate::units::{CpuId, Order};

/// What can be written, and since when.
const WRITABLE: &str = "min_partial (since 2.6.30), cpu_partial (3.2 to 6.18), order (2.6.26 to 5.8), \
                        remote_node_defrag_ratio, shrink, validate (since 2.6.22), sanity_checks, red_zone, poison, \
                        store_user, trace (up to 5.8), or an event counter (since 2.6.33)";

/// What kept a write from being done: what would be right.
type Refused = String;

impl<M: Machine> Slub<'_, M> {
    /// Writes `value` to an attribute of a cache. When no CPU runs. A corruption that `validate` finds is a panic.
    pub(super) fn write(&mut self, id: CacheId, attribute: &str, value: i64) -> Result<(), Error> {
        let refuse = |right: String| Error::new(format!("cache.{attribute}"), value, right);
        let number = u64::try_from(value).map_err(|_| refuse("0 or more".into()))?;
        match attribute {
            "min_partial" => self.write_min_partial(id, number),
            "cpu_partial" => self.write_cpu_partial(id, number),
            "order" => self.write_order(id, number),
            "remote_node_defrag_ratio" => self.write_ratio(id, number),
            "shrink" | "validate" if value != 1 => Err("1: any other value is invalid".into()),
            "shrink" => {
                self.on_first_cpu(|slub, cpu| slub.shrink_cache(cpu, slub.cache(id)));
                Ok(())
            }
            "validate" => self.validate(id),
            "sanity_checks" | "red_zone" | "poison" | "store_user" | "trace" => self.write_debug(id, attribute, number),
            _ => self.clear_counter(id, attribute, number),
        }
        .map_err(refuse)
    }

    fn write_min_partial(&mut self, id: CacheId, n: u64) -> Result<(), Refused> {
        let policy = self.policy;
        if policy.t.order_search < OrderSearch::StepFrom16 {
            return Err("not writable in this release: since 2.6.30".into());
        }
        // Up to 3.2 at least the values that the sizes give are kept.
        let n = if policy.count_entries { n } else { n.clamp(5, 10) };
        self.caches[id.0 as usize].limits.min_partial = n;
        Ok(())
    }

    /// Flushes every CPU, which puts the new limit in force.
    fn write_cpu_partial(&mut self, id: CacheId, n: u64) -> Result<(), Refused> {
        if !self.policy.has_cpu_partial() {
            return Err("not writable in this release: from 3.2 to 6.18".into());
        }
        let cache = &mut self.caches[id.0 as usize];
        if cache.layout.debug.any() && n != 0 {
            return Err("0: a cache with debug flags has no per-CPU partial lists".into());
        }
        if n > LOCKLESS_OBJECTS {
            return Err(format!("0..{LOCKLESS_OBJECTS}"));
        }
        cache.limits.cpu_partial = Some(n);
        cache.limits.cpu_partial_slabs = (2 * n).div_ceil(cache.layout.objects);
        self.flush_every_cpu(id);
        Ok(())
    }

    /// New slabs get the order; those there are keep theirs.
    fn write_order(&mut self, id: CacheId, n: u64) -> Result<(), Refused> {
        let (policy, shape) = (self.policy, self.shape);
        let cache = &mut self.caches[id.0 as usize];
        let (min, max) = (u64::from(policy.t.min_order), u64::from(policy.t.max_order));
        if policy.t.order_fallback != OrderFallback::MinOrder || policy.count_entries {
            return Err("not writable in this release: from 2.6.26 to 5.8".into());
        }
        let least = min.max(cache.layout.min_order.0.into());
        if !(least..=max).contains(&n) {
            return Err(format!("{least}..{max}: min_order to max_order, and one object fits"));
        }
        cache.layout.set_order(Order(n as u8), &shape);
        Ok(())
    }

    fn write_ratio(&mut self, id: CacheId, n: u64) -> Result<(), Refused> {
        if n > 100 {
            return Err("0..100".into());
        }
        self.caches[id.0 as usize].limits.defrag_ratio = n * 10;
        Ok(())
    }

    /// Sets or clears a debug flag. Red zones, poison and tracks change the slots, so that no slab may be there.
    fn write_debug(&mut self, id: CacheId, attribute: &str, n: u64) -> Result<(), Refused> {
        let (policy, shape) = (self.policy, self.shape);
        if policy.count_entries {
            return Err("not writable in this release: up to 5.8, later only by the debug option".into());
        }
        if n > 1 {
            return Err("0 or 1".into());
        }
        let cache = &mut self.caches[id.0 as usize];
        let mut debug = cache.debug;
        let (flag, resizes) = flag_of(&mut debug, attribute);
        *flag = n == 1;
        let slabs: u64 = cache.nodes.iter().map(|n| n.nr_slabs.peek()).sum();
        if resizes && slabs > 0 {
            return Err(format!(
                "a cache without slabs (this one has {slabs}): busy; free its objects and shrink it first"
            ));
        }
        if resizes {
            // With aliases the most that any of them asked for.
            cache.spec.size = cache.layout.object_size;
            let kmalloc = cache.index < self.kmalloc_caches;
            let asked = Asked { spec: &cache.spec, kmalloc, debug };
            cache.layout = Layout::new(asked, &policy, &shape).map_err(|e| e.to_string())?;
        } else {
            (cache.layout.debug.checks, cache.layout.debug.trace) = (debug.checks, debug.trace);
        }
        cache.debug = debug;
        self.flush_every_cpu(id);
        let cache = &mut self.caches[id.0 as usize];
        cache.takes_one = policy.t.fast_path == FastPath::SlabLock || cache.layout.debug.any();
        let open = !cache.takes_one;
        cache.open = open;
        cache.cpus.iter_mut().for_each(|(_, c)| c.set_open(open));
        Ok(())
    }

    /// Looks at every slab (kernel: validate_slab_cache): from 6.1 on of caches with debug flags only.
    fn validate(&mut self, id: CacheId) -> Result<(), Refused> {
        if self.policy.debug_path == DebugPath::NodeList {
            if !self.cache(id).layout.debug.any() {
                return Err("a cache with debug flags (since 6.1)".into());
            }
        } else {
            self.flush_every_cpu(id);
        }
        let found: Result<(), Corruption> = self.verify_all();
        found.unwrap_or_else(|corruption| panic!("{corruption}"));
        Ok(())
    }

    /// Clears an event counter on every CPU, or refuses what is no attribute.
    fn clear_counter(&mut self, id: CacheId, attribute: &str, n: u64) -> Result<(), Refused> {
        let Some(stat) = self.policy.stats.iter().copied().find(|s: &Stat| s.name() == attribute) else {
            return Err(WRITABLE.into());
        };
        if self.policy.stats.len() < eras::V3_1.stats.len() {
            return Err("not writable in this release: since 2.6.33".into());
        }
        if n != 0 {
            return Err("0, which clears the counter".into());
        }
        self.caches[id.0 as usize].cpus.iter_mut().for_each(|(_, c)| c.reset_counter(stat));
        Ok(())
    }

    /// Gives up what every CPU has of the cache, one after the other as at a shrink.
    fn flush_every_cpu(&self, id: CacheId) {
        self.on_first_cpu(|slub, cpu| slub.flush_all(cpu, slub.cache(id)));
    }

    /// Runs `f` on the first CPU; the others serve its calls.
    fn on_first_cpu(&self, f: impl Fn(&Self, &M::Cpu) + Sync) {
        self.pages.machine().boot(|cpu| {
            if cpu.id() == CpuId(0) {
                return f(self, cpu);
            }
            while cpu.idle(None) != Wakeup::Quiet {}
        });
    }
}

/// The flag that an attribute shows, and whether it changes the slots.
fn flag_of<'a>(debug: &'a mut Debug, attribute: &str) -> (&'a mut bool, bool) {
    match attribute {
        "sanity_checks" => (&mut debug.checks, false),
        "red_zone" => (&mut debug.red_zone, true),
        "poison" => (&mut debug.poison, true),
        "store_user" => (&mut debug.user, true),
        _ => (&mut debug.trace, false),
    }
}
