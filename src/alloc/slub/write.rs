//! Changing a cache at run time, as by writing to its attributes in sysfs (slub.md §8.2), with the kernel's refusals.

use super::Slub;
use super::policy::*;
use crate::error::Error;
use crate::machine::Machine;
use crate::spec::CacheId;
use crate::units::Order;

/// What can be written, and since when.
const WRITABLE: &str = "min_partial (since 2.6.30), cpu_partial (3.2 to 6.18), order (2.6.26 to 5.8) or \
                        remote_node_defrag_ratio (since 2.6.22)";

impl<M: Machine> Slub<'_, M> {
    /// Writes `value` to an attribute of a cache. When no CPU runs.
    pub(super) fn write(&mut self, id: CacheId, attribute: &str, value: i64) -> Result<(), Error> {
        let refuse = |right: String| Err(Error::new(format!("cache.{attribute}"), value, right));
        let (policy, shape) = (self.policy, self.shape);
        let cache = &mut self.caches[id.0 as usize];
        let debug = cache.layout.debug.any();
        match (attribute, u64::try_from(value)) {
            ("min_partial", Ok(n)) => {
                if policy.t.order_search < OrderSearch::StepFrom16 {
                    return refuse("not writable in this release: since 2.6.30".into());
                }
                // Up to 3.2 at least the values that the sizes give are kept.
                cache.limits.min_partial = if policy.count_entries { n } else { n.clamp(5, 10) };
            }
            ("cpu_partial", Ok(n)) => {
                if !policy.has_cpu_partial() {
                    return refuse("not writable in this release: from 3.2 to 6.18".into());
                }
                if debug && n != 0 {
                    return refuse("0: a cache with debug flags has no per-CPU partial lists".into());
                }
                if n > LOCKLESS_OBJECTS {
                    return refuse(format!("0..{LOCKLESS_OBJECTS}"));
                }
                cache.limits.cpu_partial = Some(n);
                cache.limits.cpu_partial_slabs = (2 * n).div_ceil(cache.layout.objects);
                let (shared, cache) = (&*self, &self.caches[id.0 as usize]);
                self.pages.machine().boot(|cpu| shared.flush(cpu, cache));
            }
            ("order", Ok(n)) => {
                let (min, max) = (u64::from(policy.t.min_order), u64::from(policy.t.max_order));
                if policy.t.order_fallback != OrderFallback::MinOrder || policy.count_entries {
                    return refuse("not writable in this release: from 2.6.26 to 5.8".into());
                }
                if !(min..=max).contains(&n) || n < u64::from(cache.layout.min_order.0) {
                    let least = min.max(cache.layout.min_order.0.into());
                    return refuse(format!("{least}..{max}: min_order to max_order, and one object fits"));
                }
                cache.layout.set_order(Order(n as u8), &shape);
            }
            ("remote_node_defrag_ratio", Ok(n)) if n <= 100 => cache.limits.defrag_ratio = n * 10,
            ("remote_node_defrag_ratio", _) => return refuse("0..100".into()),
            ("min_partial" | "cpu_partial" | "order", Err(_)) => return refuse("0 or more".into()),
            _ => return refuse(WRITABLE.into()),
        }
        Ok(())
    }
}
