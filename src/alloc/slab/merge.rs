//! Merging (kernel: find_mergeable): a new cache may share the slabs of an existing one. Saves the memory of half-empty
//! slabs; both then appear as one.

use super::Slab;
use super::cache::Cache;
use super::debug::Checks;
use super::geometry::alignment;
use crate::machine::{Cpu, Machine};
use crate::spec::{CacheId, CacheSpec, Kind};
use crate::units::round_up;

const WORD: u64 = 8;

/// Constructed objects, and those that readers may look at after their free, are nobody else's; nor are checked ones.
fn unmergeable(spec: &CacheSpec) -> bool {
    spec.ctor || spec.typesafe_by_rcu
}

impl<M: Machine> Slab<'_, M> {
    /// The oldest cache that `spec` can share: slot large and aligned enough, less than a word wasted, the same kind of
    /// pages.
    pub(super) fn find_mergeable(&self, spec: &CacheSpec) -> Option<CacheId> {
        let (_, checks) = Checks::of(spec, self.policy, self.config.debug_of(spec), &self.shape);
        if !self.config.merge || unmergeable(spec) || checks.unmergeable() {
            return None;
        }
        let align = alignment(spec, self.policy, &self.shape);
        let need = round_up(round_up(spec.size, WORD), align);
        let fits = |c: &&Cache<M>| {
            let g = &c.geometry;
            !unmergeable(&c.spec)
                && !g.checks.unmergeable()
                && c.gone.peek() == 0
                && c.spec.reclaim_account == spec.reclaim_account
                && !matches!(c.kind, Kind::Dma | Kind::Accounted)
                && need <= g.slot
                && g.slot - need < WORD
                && g.slot.is_multiple_of(align)
                && g.align.is_multiple_of(align)
        };
        self.caches.iter().find(fits).map(|c| CacheId(c.id))
    }

    /// Lets `spec` use the cache `id` too.
    pub(super) fn merge(&mut self, id: CacheId, spec: CacheSpec) {
        let cache = &mut self.caches[id.0 as usize];
        cache.spec.size = cache.spec.size.max(spec.size);
        cache.users.poke(cache.users.peek() + 1);
        cache.aliases.push(spec.name);
    }

    /// Gives up one use of a cache; true if others remain.
    pub(super) fn lose_user(&self, cpu: &M::Cpu, cache: &Cache<M>) -> bool {
        cpu.interact();
        let users = cache.users.peek();
        cache.users.poke(users.saturating_sub(1).max(1));
        users > 1
    }

    /// Names under which a cache was asked for after its own.
    pub fn aliases(&self, cache: CacheId) -> &[String] {
        &self.caches[cache.0 as usize].aliases
    }
}
