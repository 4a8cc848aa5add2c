//! From an address to its cache and slab (kernel: virt_to_slab, page_get_cache): 2.6.24 writes both into the descriptor of
//! every page of a slab, 6.1 into that of the first, to which the others point.

use super::Slab;
use super::cache::Cache;
use super::header::{Header, Headers};
use super::index::Indexes;
use super::policy::Management;
use crate::machine::{Addr, Cpu, Machine};
use crate::page::{Field, Pages, Pfn};

impl<M: Machine> Slab<'_, M> {
    /// The slabs of a cache.
    pub(super) fn headers<'a>(&'a self, cache: &'a Cache<M>) -> Headers<'a, 'a, M> {
        cache.headers(self.pages, self.policy, self.private.as_ref())
    }

    /// Slab of an object, by the descriptor of its page.
    #[inline]
    pub(super) fn slab_of(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) -> Header {
        if self.pages.pfn_of(object).is_none() {
            panic!("{}", self.stray(cache, object));
        }
        let (pfn, owner) = self.owner(cpu, object);
        assert!(owner == u64::from(cache.id) + 1, "{}", self.stray(cache, object));
        slab_at(self.pages, self.policy.management, pfn)
    }

    /// First page and owner word of an address of the arena.
    #[inline]
    pub(super) fn owner(&self, cpu: &M::Cpu, object: Addr) -> (Pfn, u64) {
        let pfn = match (self.policy.management, self.pages.pfn_of(object)) {
            (Management::Chain, Some(pfn)) => {
                cpu.touch(self.pages.descriptor(pfn), crate::machine::Access::Read);
                pfn
            }
            _ => self.pages.head(cpu, object),
        };
        (pfn, self.pages.peek(pfn, Field::Owner))
    }

    /// The same, uncharged.
    pub(super) fn peek_owner(&self, object: Addr) -> Option<(Pfn, u64)> {
        let pfn = match self.policy.management {
            Management::Chain => self.pages.pfn_of(object),
            Management::Indexes => self.pages.peek_head(object),
        }?;
        Some((pfn, self.pages.peek(pfn, Field::Owner)))
    }

    /// Slab and index of the object in a slot of the cache, free or not. Uncharged.
    pub(super) fn locate(&self, cache: &Cache<M>, object: Addr) -> Option<(Header, u64)> {
        let (pfn, owner) = self.peek_owner(object)?;
        if owner != u64::from(cache.id) + 1 {
            return None;
        }
        let slab = slab_at(self.pages, self.policy.management, pfn);
        let offset = object.0.wrapping_sub(self.headers(cache).first(slab).0);
        let index = offset / cache.geometry.slot;
        (offset.is_multiple_of(cache.geometry.slot) && index < cache.geometry.num).then_some((slab, index))
    }

    /// What is wrong with a freed address: cache, slab, object, expected, found.
    #[cold]
    pub(super) fn stray(&self, cache: &Cache<M>, object: Addr) -> String {
        let name = &cache.spec.name;
        let found = match self.peek_owner(object) {
            None => "an address outside memory".into(),
            Some((pfn, 0)) => format!("page {} that belongs to no cache", pfn.0),
            Some((pfn, owner)) if owner == u64::from(cache.id) + 1 => {
                let slab = slab_at(self.pages, self.policy.management, pfn);
                let first = self.headers(cache).first(slab).0;
                let (num, slot) = (cache.geometry.num, cache.geometry.slot);
                format!("the slab at page {}, whose {num} objects of {slot} bytes begin at {first:#x}", pfn.0)
            }
            Some((pfn, owner)) => match self.caches.get(owner as usize - 1) {
                Some(other) => format!("page {} of cache {:?}", pfn.0, other.spec.name),
                None => format!("page {} of a block of the page allocator", pfn.0),
            },
        };
        format!("cache {name:?}: free of {:#x}: expected one of its objects, found {found}", object.0)
    }
}

/// The slab that a page with an owner belongs to.
pub(super) fn slab_at<M: Machine>(pages: &Pages<'_, M>, management: Management, pfn: Pfn) -> Header {
    match management {
        Management::Chain => Header(Addr(pages.peek(pfn, Field::Extra))),
        Management::Indexes => Indexes::slab(pages, pfn),
    }
}
