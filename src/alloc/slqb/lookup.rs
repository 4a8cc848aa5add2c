//! From an address to the slab and cache it belongs to, and what is said when it belongs to none.

use super::Cache;
use super::node::{SLAB, unpack};
use crate::machine::{Addr, Cpu, Machine};
use crate::page::{Field, Pfn};

impl<M: Machine> Cache<'_, M> {
    /// Frees an object whose page has been looked up.
    #[inline]
    pub(super) fn free_of(&self, cpu: &M::Cpu, pfn: Pfn, x: Addr) {
        if self.numa && self.pages.node_of(pfn) != cpu.node() {
            self.free_remote(cpu, self.owner(pfn), x);
        } else {
            self.free_local(cpu, x);
        }
    }

    /// Head frame of the slab that `x` is an object of; reads the page structure (kernel: virt_to_head_slb_page).
    #[inline]
    pub(super) fn slab_of(&self, cpu: &M::Cpu, x: Addr) -> Pfn {
        assert!(self.pages.pfn_of(x).is_some(), "{}", self.no_object(x));
        let pfn = self.pages.head(cpu, x);
        assert!(self.owns(pfn), "{}", self.no_object(x));
        debug_assert!(self.is_object(x), "{}", self.no_object(x));
        pfn
    }

    /// True if the frame is the head of a slab of this cache.
    pub(super) fn owns(&self, pfn: Pfn) -> bool {
        self.pages.peek(pfn, Field::Flags) & SLAB != 0
            && self.pages.peek(pfn, Field::Owner) >> 32 == u64::from(self.id.0 + 1)
    }
    /// Object `i` of a slab.
    pub(super) fn object(&self, slab: Pfn, i: u64) -> Addr {
        let colour = unpack(self.pages.peek(slab, Field::Counters)).colour;
        self.pages.addr_of(slab).plus(colour + i * self.geometry.size)
    }
    /// True if an object of this cache begins at `x`.
    pub(super) fn is_object(&self, x: Addr) -> bool {
        let Some(pfn) = self.pages.peek_head(x).filter(|p| self.owns(*p)) else { return false };
        let first = self.pages.addr_of(pfn).plus(unpack(self.pages.peek(pfn, Field::Counters)).colour);
        let from_first = x.0.wrapping_sub(first.0);
        x >= first
            && from_first.is_multiple_of(self.geometry.size)
            && from_first / self.geometry.size < self.geometry.objects
    }
    #[cold]
    pub(super) fn no_object(&self, x: Addr) -> String {
        let Some(pfn) = self.pages.peek_head(x) else {
            return format!("slqb: cache {}: {x:?} is outside the arena", self.spec.name);
        };
        let owner = self.pages.peek(pfn, Field::Owner) >> 32;
        let slab = self.pages.peek(pfn, Field::Flags) & SLAB != 0;
        let found = if slab { format!("cache {}", owner - 1) } else { "no slab".into() };
        let expected = format!("an object of cache {} ({} bytes apart)", self.id.0, self.geometry.size);
        format!("slqb: cache {}: {x:?} in frame {pfn:?}: expected {expected}, found {found}", self.spec.name)
    }
}
