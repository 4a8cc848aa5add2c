//! Lists of slabs, linked through what carries a slab's management.

use super::header::{Header, Headers};
use crate::machine::{Access, Addr, Cpu, Machine};

/// A doubly linked list of slabs, head first. Pays for the neighbours it changes; the list head is in the node's
/// record and the slab's own header in the caller's hand, both paid for.
#[derive(Default)]
pub(super) struct SlabList {
    /// Addresses + 1, 0 for none.
    first: u64,
    last: u64,
    len: u64,
}

fn name(slab: Option<Header>) -> u64 {
    slab.map_or(0, |s| s.0.0 + 1)
}
fn slab(name: u64) -> Option<Header> {
    name.checked_sub(1).map(|a| Header(Addr(a)))
}

impl SlabList {
    pub(super) fn len(&self) -> u64 {
        self.len
    }
    pub(super) fn first(&self) -> Option<Header> {
        slab(self.first)
    }
    pub(super) fn last(&self) -> Option<Header> {
        slab(self.last)
    }

    pub(super) fn push_front<M: Machine>(&mut self, headers: &Headers<'_, '_, M>, cpu: &M::Cpu, new: Header) {
        headers.set_next(new, slab(self.first));
        headers.set_prev(new, None);
        match slab(self.first) {
            Some(next) => {
                cpu.touch(headers.line(next), Access::Write);
                headers.set_prev(next, Some(new));
            }
            None => self.last = name(Some(new)),
        }
        self.first = name(Some(new));
        self.len += 1;
    }
    pub(super) fn push_back<M: Machine>(&mut self, headers: &Headers<'_, '_, M>, cpu: &M::Cpu, new: Header) {
        headers.set_next(new, None);
        headers.set_prev(new, slab(self.last));
        match slab(self.last) {
            Some(prev) => {
                cpu.touch(headers.line(prev), Access::Write);
                headers.set_next(prev, Some(new));
            }
            None => self.first = name(Some(new)),
        }
        self.last = name(Some(new));
        self.len += 1;
    }
    pub(super) fn remove<M: Machine>(&mut self, headers: &Headers<'_, '_, M>, cpu: &M::Cpu, old: Header) {
        let (next, prev) = (headers.next(old), headers.prev(old));
        // Both neighbours are known from the slab's own header: two independent stores.
        cpu.grouped(|cpu| {
            [next, prev].into_iter().flatten().for_each(|s| cpu.touch(headers.line(s), Access::Write));
        });
        match next {
            Some(s) => headers.set_prev(s, prev),
            None => self.last = name(prev),
        }
        match prev {
            Some(s) => headers.set_next(s, next),
            None => self.first = name(next),
        }
        self.len -= 1;
    }
    /// Slabs in order, uncharged; ends after `len` also when the links are broken.
    pub(super) fn iter<M: Machine>(&self, headers: &Headers<'_, '_, M>) -> impl Iterator<Item = Header> {
        let (mut at, mut left) = (self.first, self.len);
        std::iter::from_fn(move || {
            let found = slab(at)?;
            left = left.checked_sub(1)?;
            at = name(headers.next(found));
            Some(found)
        })
    }
}
