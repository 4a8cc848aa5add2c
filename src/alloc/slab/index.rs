//! A slab's stack of free indexes, as in 6.1. The descriptor of its first page is the header:
//!
//! | field | holds |
//! |---|---|
//! | `Links` | neighbours in a list, as frame numbers |
//! | `Owner` | number of the cache + 1 |
//! | `Counters` | active (objects in use), and above bit 16 the address of the index array + 1, 0 for none |
//! | `Extra` | address of object 0 |
//!
//! `indexes[active..num]` are the free objects in the order in which they are handed out; what lies below is stale. With
//! the array in a free object: it starts in the last object, which is handed out last, and a full slab has none. The
//! first object freed into a full slab gives it a home, and is the last one again.

use super::geometry::{Geometry, Place};
use super::header::{Fresh, Header};
use crate::machine::{Addr, Arena, Machine};
use crate::page::{Field, Pages, Pfn};

/// The slabs of a cache.
pub(super) struct Indexes<'a, 'p, M: Machine> {
    pub(super) pages: &'a Pages<'p, M>,
    pub(super) geometry: &'a Geometry,
    /// Where the index arrays lie: in memory, or in the arena of `metadata = "free"`.
    pub(super) arrays: &'a Arena,
}

impl<M: Machine> Indexes<'_, '_, M> {
    /// The slab whose first page this is.
    pub(super) fn slab(pages: &Pages<'_, M>, pfn: Pfn) -> Header {
        Header(pages.descriptor(pfn))
    }
    pub(super) fn pfn(&self, slab: Header) -> Pfn {
        let bytes = self.pages.descriptor(Pfn(1)).0 - self.pages.descriptor(Pfn(0)).0;
        Pfn(((slab.0.0 - self.pages.descriptor(Pfn(0)).0) / bytes) as u32)
    }
    fn get(&self, slab: Header, field: Field) -> u64 {
        self.pages.peek(self.pfn(slab), field)
    }
    fn set(&self, slab: Header, field: Field, value: u64) {
        self.pages.poke(self.pfn(slab), field, value);
    }
    pub(super) fn links(&self, slab: Header) -> [Option<Header>; 2] {
        let word = self.get(slab, Field::Links);
        [word as u32, (word >> 32) as u32].map(|n| n.checked_sub(1).map(|pfn| Self::slab(self.pages, Pfn(pfn))))
    }
    /// Writes the link to the next slab (`which` 0) or the previous one (1).
    pub(super) fn set_link(&self, slab: Header, which: u64, to: Option<Header>) {
        let number = to.map_or(0, |s| u64::from(self.pfn(s).0) + 1);
        let kept = self.get(slab, Field::Links) & !(0xffff_ffff << (32 * which));
        self.set(slab, Field::Links, kept | number << (32 * which));
    }
    pub(super) fn active(&self, slab: Header) -> u64 {
        self.get(slab, Field::Counters) & 0xffff
    }
    /// Where the index array lies.
    pub(super) fn home(&self, slab: Header) -> Option<Addr> {
        (self.get(slab, Field::Counters) >> 16).checked_sub(1).map(Addr)
    }
    fn update(&self, slab: Header, active: u64, home: Option<Addr>) {
        self.set(slab, Field::Counters, active | home.map_or(0, |a| a.0 + 1) << 16);
    }
    pub(super) fn first(&self, slab: Header) -> Addr {
        Addr(self.get(slab, Field::Extra))
    }
    /// Entry `i` of the array; a broken slab has entries that name no object.
    fn index(&self, home: Addr, i: u64) -> u64 {
        let at = home.plus(i);
        self.arrays.peek(at) >> (8 * (at.0 % 8)) & 0xff
    }
    fn set_index(&self, home: Addr, i: u64, index: u64) {
        let at = home.plus(i);
        let shift = 8 * (at.0 % 8);
        self.arrays.poke_bits(at, 0xff << shift, index << shift);
    }
    pub(super) fn free_indexes(&self, slab: Header) -> Vec<u32> {
        let Some(home) = self.home(slab) else { return Vec::new() };
        (self.active(slab)..self.geometry.num).map(|i| self.index(home, i) as u32).collect()
    }
    /// Address of the entry that the next `take` reads.
    pub(super) fn top(&self, slab: Header) -> Option<Addr> {
        self.home(slab).map(|home| home.plus(self.active(slab)))
    }
    /// Index of the next object to be handed out.
    pub(super) fn peek(&self, slab: Header) -> u64 {
        self.index(self.home(slab).expect("a slab with free objects has its indexes"), self.active(slab))
    }
    /// Takes that object (kernel: slab_get_obj).
    pub(super) fn take(&self, slab: Header) {
        let active = self.active(slab) + 1;
        let lost = self.geometry.place == Place::InObject && active == self.geometry.num;
        self.update(slab, active, self.home(slab).filter(|_| !lost));
    }
    /// Puts object `index`, which lies at `object`, back on top (kernel: slab_put_obj). Returns the entry written.
    pub(super) fn put(&self, slab: Header, index: u64, object: Addr) -> Addr {
        let active = self.active(slab) - 1;
        let home = self.home(slab).unwrap_or(object);
        self.set_index(home, active, index);
        self.update(slab, active, Some(home));
        home.plus(active)
    }
    /// Sets up a new slab with all objects free, 0 on top or as a permutation has it (kernel: cache_init_objs,
    /// shuffle_freelist). Returns where its indexes lie.
    pub(super) fn init(&self, slab: Header, fresh: &Fresh) -> Addr {
        let (g, first) = (self.geometry, fresh.first);
        let index = |i: u64| fresh.order.as_ref().map_or(i, |order| order[i as usize]);
        let end = self.pages.addr_of(self.pfn(slab)).plus(g.order.bytes());
        let home = match g.place {
            Place::OnSlab => Addr(end.0 - g.num),
            Place::OffSlab => fresh.outside.expect("off-slab indexes have been allocated"),
            Place::InObject => first.plus(index(g.num - 1) * g.slot + g.checks.before()),
        };
        self.set(slab, Field::Extra, first.0);
        self.update(slab, 0, Some(home));
        (0..g.num).for_each(|i| self.set_index(home, i, index(i)));
        home
    }
}
