//! A slab's header with its chain of free objects, as in 2.6.24.
//!
//! ```text
//! word 0 next slab    1 previous slab    2 colour offset    3 address of object 0    4 inuse | first free << 32    5 node
//! then 4 bytes per object: chain[i] = the free object after i, END after the last
//! ```
//!
//! On-slab headers lie at the start of their slab, behind the colour gap; off-slab headers in an object of a general
//! cache. With `metadata = "free"` off-slab headers lie in an arena of their own.

use super::header::Header;
use crate::machine::{Addr, Arena};
use crate::units::NodeId;

const NEXT: u64 = 0;
const PREV: u64 = 1;
const COLOUR: u64 = 2;
const FIRST: u64 = 3;
const STATE: u64 = 4;
const NODE: u64 = 5;
/// End of a chain (kernel: BUFCTL_END).
const END: u32 = u32::MAX;
/// Chain entry of an object that is out of its slab, in caches that are debugged (kernel: BUFCTL_FREE).
const OUT: u32 = u32::MAX - 1;

/// The headers of a cache, in the memory where they lie.
pub(super) struct Chain<'a>(pub(super) &'a Arena);

impl Chain<'_> {
    fn get(&self, slab: Header, word: u64) -> u64 {
        self.0.peek(slab.0.plus(8 * word))
    }
    fn set(&self, slab: Header, word: u64, value: u64) {
        self.0.poke(slab.0.plus(8 * word), value);
    }
    pub(super) fn links(&self, slab: Header) -> [Option<Header>; 2] {
        [NEXT, PREV].map(|word| self.get(slab, word).checked_sub(1).map(|a| Header(Addr(a))))
    }
    /// Writes the link to the next slab (`which` 0) or the previous one (1).
    pub(super) fn set_link(&self, slab: Header, which: u64, to: Option<Header>) {
        self.set(slab, NEXT + which, to.map_or(0, |s| s.0.0 + 1));
    }
    pub(super) fn inuse(&self, slab: Header) -> u64 {
        self.get(slab, STATE) & 0xffff_ffff
    }
    fn first_free(&self, slab: Header) -> u32 {
        (self.get(slab, STATE) >> 32) as u32
    }
    pub(super) fn is_full(&self, slab: Header) -> bool {
        self.first_free(slab) == END
    }
    pub(super) fn first(&self, slab: Header) -> Addr {
        Addr(self.get(slab, FIRST))
    }
    pub(super) fn node(&self, slab: Header) -> NodeId {
        NodeId(self.get(slab, NODE) as u16)
    }
    pub(super) fn colour(&self, slab: Header) -> u64 {
        self.get(slab, COLOUR)
    }
    pub(super) fn free_indexes(&self, slab: Header, num: u64) -> Vec<u32> {
        let mut at = self.first_free(slab);
        let mut all = Vec::new();
        while at != END && all.len() <= num as usize {
            all.push(at);
            at = if u64::from(at) < num { self.chain(slab, at) } else { END };
        }
        all
    }
    /// Index of the next object to be handed out.
    pub(super) fn peek(&self, slab: Header) -> u64 {
        u64::from(self.first_free(slab))
    }
    /// True if object `index` was taken, and is marked so.
    pub(super) fn is_out(&self, slab: Header, index: u64) -> bool {
        self.chain(slab, index as u32) == OUT
    }
    /// Takes that object (kernel: slab_get_obj), and marks it as out.
    pub(super) fn take_marked(&self, slab: Header) {
        let index = self.first_free(slab);
        self.take(slab);
        self.set_chain(slab, index, OUT);
    }
    /// Takes that object (kernel: slab_get_obj).
    pub(super) fn take(&self, slab: Header) {
        let next = self.chain(slab, self.first_free(slab));
        self.set(slab, STATE, (self.inuse(slab) + 1) | u64::from(next) << 32);
    }
    /// Puts object `index` back in front of the chain (kernel: slab_put_obj).
    pub(super) fn put(&self, slab: Header, index: u64) {
        self.set_chain(slab, index as u32, self.first_free(slab));
        self.set(slab, STATE, (self.inuse(slab) - 1) | index << 32);
    }
    /// Writes the header and the chain 0 → 1 → … → END of a new slab (kernel: cache_init_objs).
    pub(super) fn init(&self, slab: Header, num: u64, colour: u64, first: Addr, node: NodeId) {
        self.set(slab, COLOUR, colour);
        self.set(slab, FIRST, first.0);
        self.set(slab, STATE, 0);
        self.set(slab, NODE, u64::from(node.0));
        let num = num as u32;
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
