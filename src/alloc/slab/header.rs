//! Slabs in simulated memory: header, chain of free objects, and lists linked through the headers.
//!
//! ```text
//! word 0 next slab    1 previous slab    2 colour offset    3 address of object 0    4 inuse | first free << 32    5 node
//! then 4 bytes per object: chain[i] = the free object after i, END after the last
//! ```
//!
//! On-slab headers lie at the start of their slab, behind the colour gap; off-slab headers in an object of a general
//! cache. With `metadata = "free"` off-slab headers lie in an arena of their own and are charged as part of the page
//! frame's descriptor.

use super::array::modify;
use super::policy::{CHAIN_ENTRY, Geometry, HEADER};
use crate::machine::{Access, Addr, Arena, Cpu, Machine};
use crate::page::{Pages, Pfn};
use crate::units::NodeId;

const NEXT: u64 = 0;
const PREV: u64 = 1;
const COLOUR: u64 = 2;
const FIRST: u64 = 3;
const STATE: u64 = 4;
const NODE: u64 = 5;
/// End of a chain (kernel: BUFCTL_END).
const END: u32 = u32::MAX;
/// Bytes per frame of the arena of `metadata = "free"`: more than any off-slab header needs.
pub(super) const PRIVATE_BYTES: u64 = 128;

/// A slab, named by the address of its header.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Header(pub(super) Addr);

/// What is written into the header of a new slab.
pub(super) struct Fresh {
    pub(super) colour: u64,
    pub(super) first: Addr,
    pub(super) node: NodeId,
}

/// How to reach the headers of one cache.
pub(super) struct Headers<'a, 'p, M: Machine> {
    pub(super) pages: &'a Pages<'p, M>,
    /// Where off-slab headers lie with `metadata = "free"`.
    pub(super) private: Option<&'a Arena>,
}

impl<M: Machine> Headers<'_, '_, M> {
    fn get(&self, slab: Header, word: u64) -> u64 {
        self.private.unwrap_or(self.pages.arena()).peek(slab.0.plus(8 * word))
    }
    fn set(&self, slab: Header, word: u64, value: u64) {
        self.private.unwrap_or(self.pages.arena()).poke(slab.0.plus(8 * word), value);
    }
    /// The address that is charged for byte `offset` of a header.
    fn line(&self, slab: Header, offset: u64) -> Addr {
        match self.private {
            None => slab.0.plus(offset),
            Some(_) => self.pages.descriptor(Pfn((slab.0.0 / PRIVATE_BYTES) as u32)),
        }
    }
    /// Pays for reading a slab's header.
    pub(super) fn read(&self, cpu: &M::Cpu, slab: Header) {
        cpu.touch(self.line(slab, 0), Access::Read);
    }
    /// Pays for reading and changing a slab's header: due before the calls below.
    pub(super) fn modify(&self, cpu: &M::Cpu, slab: Header) {
        modify(cpu, self.line(slab, 0));
    }

    /// Objects in use.
    pub(super) fn inuse(&self, slab: Header) -> u64 {
        self.get(slab, STATE) & 0xffff_ffff
    }
    /// True if no object is free.
    pub(super) fn is_full(&self, slab: Header) -> bool {
        (self.get(slab, STATE) >> 32) as u32 == END
    }
    /// Address of object 0.
    pub(super) fn first(&self, slab: Header) -> Addr {
        Addr(self.get(slab, FIRST))
    }
    pub(super) fn node(&self, slab: Header) -> NodeId {
        NodeId(self.get(slab, NODE) as u16)
    }
    pub(super) fn colour(&self, slab: Header) -> u64 {
        self.get(slab, COLOUR)
    }
    /// Indexes of the free objects in the order they will be handed out; at most `num + 1` of them, also when broken.
    pub(super) fn free_indexes(&self, slab: Header, num: u64) -> Vec<u32> {
        let mut at = (self.get(slab, STATE) >> 32) as u32;
        let mut all = Vec::new();
        while at != END && all.len() <= num as usize {
            all.push(at);
            at = if u64::from(at) < num { self.chain(slab, at) } else { END };
        }
        all
    }

    /// Takes the first free object (kernel: slab_get_obj).
    #[inline]
    pub(super) fn take(&self, cpu: &M::Cpu, slab: Header, slot: u64) -> Addr {
        let state = self.get(slab, STATE);
        let (inuse, index) = (state & 0xffff_ffff, (state >> 32) as u32);
        cpu.touch(self.line(slab, HEADER + CHAIN_ENTRY * u64::from(index)), Access::Read);
        let next = self.chain(slab, index);
        self.set(slab, STATE, (inuse + 1) | u64::from(next) << 32);
        self.first(slab).plus(u64::from(index) * slot)
    }
    /// Puts object `index` back in front of the chain (kernel: slab_put_obj); returns the objects left in use.
    #[inline]
    pub(super) fn put(&self, cpu: &M::Cpu, slab: Header, index: u64) -> u64 {
        let state = self.get(slab, STATE);
        cpu.touch(self.line(slab, HEADER + CHAIN_ENTRY * index), Access::Write);
        self.set_chain(slab, index as u32, (state >> 32) as u32);
        let inuse = (state & 0xffff_ffff) - 1;
        self.set(slab, STATE, inuse | index << 32);
        inuse
    }
    /// Writes the header and the chain 0 → 1 → … → END of a new slab (kernel: cache_init_objs).
    pub(super) fn init(&self, cpu: &M::Cpu, slab: Header, geometry: &Geometry, fresh: Fresh) {
        let bytes = if self.private.is_some() { HEADER } else { HEADER + CHAIN_ENTRY * geometry.num };
        cpu.touch_span(self.line(slab, 0), bytes, Access::Write);
        self.set(slab, COLOUR, fresh.colour);
        self.set(slab, FIRST, fresh.first.0);
        self.set(slab, STATE, 0);
        self.set(slab, NODE, u64::from(fresh.node.0));
        let num = geometry.num as u32;
        for i in 0..num {
            self.set_chain(slab, i, if i + 1 < num { i + 1 } else { END });
        }
    }

    fn chain(&self, slab: Header, index: u32) -> u32 {
        (self.get(slab, 6 + u64::from(index / 2)) >> (32 * (index % 2))) as u32
    }
    fn set_chain(&self, slab: Header, index: u32, next: u32) {
        let (word, shift) = (6 + u64::from(index / 2), 32 * (index % 2));
        let kept = self.get(slab, word) & !(0xffff_ffff << shift);
        self.set(slab, word, kept | u64::from(next) << shift);
    }
}

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
        headers.set(new, NEXT, self.first);
        headers.set(new, PREV, 0);
        match slab(self.first) {
            Some(next) => {
                cpu.touch(headers.line(next, 0), Access::Write);
                headers.set(next, PREV, name(Some(new)));
            }
            None => self.last = name(Some(new)),
        }
        self.first = name(Some(new));
        self.len += 1;
    }
    pub(super) fn push_back<M: Machine>(&mut self, headers: &Headers<'_, '_, M>, cpu: &M::Cpu, new: Header) {
        headers.set(new, NEXT, 0);
        headers.set(new, PREV, self.last);
        match slab(self.last) {
            Some(prev) => {
                cpu.touch(headers.line(prev, 0), Access::Write);
                headers.set(prev, NEXT, name(Some(new)));
            }
            None => self.first = name(Some(new)),
        }
        self.last = name(Some(new));
        self.len += 1;
    }
    pub(super) fn remove<M: Machine>(&mut self, headers: &Headers<'_, '_, M>, cpu: &M::Cpu, old: Header) {
        let (next, prev) = (headers.get(old, NEXT), headers.get(old, PREV));
        // Both neighbours are known from the slab's own header: two independent stores.
        cpu.grouped(|cpu| {
            [next, prev].into_iter().filter_map(slab).for_each(|s| cpu.touch(headers.line(s, 0), Access::Write));
        });
        match slab(next) {
            Some(s) => headers.set(s, PREV, prev),
            None => self.last = prev,
        }
        match slab(prev) {
            Some(s) => headers.set(s, NEXT, next),
            None => self.first = next,
        }
        self.len -= 1;
    }
    /// Slabs in order, uncharged; ends after `len` also when the links are broken.
    pub(super) fn iter<M: Machine>(&self, headers: &Headers<'_, '_, M>) -> impl Iterator<Item = Header> {
        let (mut at, mut left) = (self.first, self.len);
        std::iter::from_fn(move || {
            let found = slab(at)?;
            left = left.checked_sub(1)?;
            at = headers.get(found, NEXT);
            Some(found)
        })
    }
}
