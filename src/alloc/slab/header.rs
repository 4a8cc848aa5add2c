//! What a slab knows of itself: lists, object 0, objects in use, which are free. Two representations, [`super::chain`] and
//! [`super::index`]; what follows pays for their lines and hides which it is.
//!
//! With `metadata = "free"` off-slab management lies in an arena of its own and is charged as part of the page frame's
//! descriptor.

use super::array::modify;
use super::chain::Chain;
use super::debug::poison_free;
use super::geometry::{Geometry, Place};
use super::index::Indexes;
use super::policy::{CHAIN_ENTRY, HEADER, Management};
use crate::machine::{Access, Addr, Arena, Cpu, Machine};
use crate::page::{Pages, Pfn};
use crate::units::NodeId;

/// Bytes per frame of the arena of `metadata = "free"`: more than any off-slab management needs.
pub(super) const PRIVATE_BYTES: u64 = 256;

/// A slab, named by the address of its header: that of its chain, or the descriptor of its first page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Header(pub(super) Addr);

/// What is written into the header of a new slab.
pub(super) struct Fresh {
    pub(super) colour: u64,
    pub(super) first: Addr,
    pub(super) node: NodeId,
    /// Where off-slab indexes lie.
    pub(super) outside: Option<Addr>,
    /// The order in which its objects are handed out; none: ascending.
    pub(super) order: Option<Vec<u64>>,
}

/// How to reach the slabs of one cache.
pub(super) struct Headers<'a, 'p, M: Machine> {
    pub(super) pages: &'a Pages<'p, M>,
    pub(super) management: Management,
    pub(super) geometry: &'a Geometry,
    /// Where off-slab management lies with `metadata = "free"`.
    pub(super) private: Option<&'a Arena>,
}

impl<M: Machine> Headers<'_, '_, M> {
    fn arena(&self) -> &Arena {
        self.private.unwrap_or(self.pages.arena())
    }
    fn chain(&self) -> Option<Chain<'_>> {
        (self.management == Management::Chain).then(|| Chain(self.arena()))
    }
    fn indexes(&self) -> Indexes<'_, '_, M> {
        Indexes { pages: self.pages, geometry: self.geometry, arrays: self.arena() }
    }

    /// The address that is charged for a header.
    pub(super) fn line(&self, slab: Header) -> Addr {
        self.inside(slab, slab.0)
    }
    /// The address that is charged for `at`, which belongs to a slab's management.
    fn inside(&self, slab: Header, at: Addr) -> Addr {
        match (self.private, self.management) {
            (None, _) => at,
            (Some(_), Management::Chain) => self.pages.descriptor(Pfn((slab.0.0 / PRIVATE_BYTES) as u32)),
            (Some(_), Management::Indexes) => slab.0,
        }
    }
    /// Pays for reading a slab's header.
    pub(super) fn read(&self, cpu: &M::Cpu, slab: Header) {
        cpu.touch(self.line(slab), Access::Read);
    }
    /// Pays for reading and changing a slab's header: due before the calls below.
    pub(super) fn modify(&self, cpu: &M::Cpu, slab: Header) {
        modify(cpu, self.line(slab));
    }

    fn links(&self, slab: Header) -> [Option<Header>; 2] {
        self.chain().map_or_else(|| self.indexes().links(slab), |c| c.links(slab))
    }
    /// The next slab of the list.
    pub(super) fn next(&self, slab: Header) -> Option<Header> {
        self.links(slab)[0]
    }
    /// The slab before it in the list.
    pub(super) fn prev(&self, slab: Header) -> Option<Header> {
        self.links(slab)[1]
    }
    fn set_link(&self, slab: Header, which: u64, to: Option<Header>) {
        match self.chain() {
            Some(chain) => chain.set_link(slab, which, to),
            None => self.indexes().set_link(slab, which, to),
        }
    }
    pub(super) fn set_next(&self, slab: Header, to: Option<Header>) {
        self.set_link(slab, 0, to);
    }
    pub(super) fn set_prev(&self, slab: Header, to: Option<Header>) {
        self.set_link(slab, 1, to);
    }

    /// Objects in use.
    pub(super) fn inuse(&self, slab: Header) -> u64 {
        self.chain().map_or_else(|| self.indexes().active(slab), |c| c.inuse(slab))
    }
    /// True if no object is free.
    pub(super) fn is_full(&self, slab: Header) -> bool {
        self.chain().map_or_else(|| self.indexes().active(slab) == self.geometry.num, |c| c.is_full(slab))
    }
    /// Address of object 0.
    pub(super) fn first(&self, slab: Header) -> Addr {
        self.chain().map_or_else(|| self.indexes().first(slab), |c| c.first(slab))
    }
    /// Node of the slab's memory.
    pub(super) fn node(&self, slab: Header) -> NodeId {
        self.chain().map_or_else(|| self.pages.node_of(self.indexes().pfn(slab)), |c| c.node(slab))
    }
    /// Bytes of the colour gap.
    pub(super) fn colour(&self, slab: Header) -> u64 {
        match self.chain() {
            Some(chain) => chain.colour(slab),
            None => self.first(slab).0.wrapping_sub(self.pages.addr_of(self.indexes().pfn(slab)).0),
        }
    }
    /// First page of the slab. Blocks are aligned to their size, and object 0 lies in the block.
    pub(super) fn head(&self, slab: Header) -> Option<Pfn> {
        match self.chain() {
            Some(chain) => {
                let pfn = self.pages.pfn_of(chain.first(slab))?;
                Some(Pfn(pfn.0 & !(self.geometry.order.pages() as u32 - 1)))
            }
            None => Some(self.indexes().pfn(slab)),
        }
    }
    /// Where off-slab indexes lie.
    pub(super) fn outside(&self, slab: Header) -> Option<Addr> {
        match self.management {
            Management::Chain => Some(slab.0),
            Management::Indexes => self.indexes().home(slab),
        }
        .filter(|_| self.geometry.place == Place::OffSlab)
    }
    /// Indexes of the free objects in the order they will be handed out; at most `num + 1` of them, also when broken.
    pub(super) fn free_indexes(&self, slab: Header) -> Vec<u32> {
        self.chain().map_or_else(|| self.indexes().free_indexes(slab), |c| c.free_indexes(slab, self.geometry.num))
    }

    /// Slot of the free object that holds the slab's indexes.
    pub(super) fn home_object(&self, slab: Header) -> Option<Addr> {
        if self.geometry.place != Place::InObject {
            return None;
        }
        let home = self.indexes().home(slab)?;
        Some(Addr(home.0 - self.geometry.checks.before()))
    }
    /// True if object `index` is out of the slab: needs the marks of [`Checks`] in 2.6.24.
    ///
    /// [`Checks`]: super::debug::Checks
    pub(super) fn is_out(&self, slab: Header, index: u64) -> bool {
        match self.chain() {
            Some(chain) => chain.is_out(slab, index),
            None => !self.indexes().free_indexes(slab).contains(&(index as u32)),
        }
    }
    /// Takes the next free object.
    pub(super) fn take(&self, cpu: &M::Cpu, slab: Header) -> Addr {
        let index = match self.chain() {
            Some(chain) => {
                let index = chain.peek(slab);
                cpu.touch(self.inside(slab, slab.0.plus(HEADER + CHAIN_ENTRY * index)), Access::Read);
                if self.geometry.checks.lists {
                    chain.take_marked(slab)
                } else {
                    chain.take(slab)
                }
                index
            }
            None => {
                let indexes = self.indexes();
                if let Some(at) = indexes.top(slab) {
                    cpu.touch(self.inside(slab, at), Access::Read);
                }
                let index = indexes.peek(slab);
                let home = indexes.home(slab);
                indexes.take(slab);
                if self.geometry.checks.poison
                    && let (Some(object), None) = (home, indexes.home(slab))
                {
                    // The indexes have left the object that held them.
                    poison_free(self.pages.arena(), object, self.geometry.object);
                }
                index
            }
        };
        self.first(slab).plus(index * self.geometry.slot)
    }
    /// Puts object `index` back; it is the next to be taken. Returns the objects left in use.
    pub(super) fn put(&self, cpu: &M::Cpu, slab: Header, index: u64) -> u64 {
        let at = match self.chain() {
            Some(chain) => {
                chain.put(slab, index);
                slab.0.plus(HEADER + CHAIN_ENTRY * index)
            }
            None => {
                let object = self.first(slab).plus(index * self.geometry.slot + self.geometry.checks.before());
                self.indexes().put(slab, index, object)
            }
        };
        cpu.touch(self.inside(slab, at), Access::Write);
        self.inuse(slab)
    }
    /// Writes the management of a new slab.
    pub(super) fn init(&self, cpu: &M::Cpu, slab: Header, fresh: Fresh) {
        let num = self.geometry.num;
        let (at, bytes) = match self.chain() {
            Some(chain) => {
                chain.init(slab, num, fresh.colour, fresh.first, fresh.node);
                (slab.0, HEADER + CHAIN_ENTRY * num)
            }
            None => (self.indexes().init(slab, &fresh), num),
        };
        let bytes = if self.private.is_some() { HEADER } else { bytes };
        cpu.touch_span(self.inside(slab, at), bytes, Access::Write);
    }
}
