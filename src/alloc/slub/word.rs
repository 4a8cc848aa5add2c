//! The words of a slab's descriptor, and the free pointers in its objects.
//!
//! | field | holds | changed by |
//! |---|---|---|
//! | `Flags` bit 0 | the slab lock | whoever takes it |
//! | `Flags` bit 1 | SLAB: the page belongs to a cache | creation; cleared with the page |
//! | `Flags` bit 2 | FROZEN: belongs to a CPU, is on no list | holder of the lock |
//! | `Flags` bit 3 | LARGE: a kmalloc that went to the page allocator | creation; cleared with the page |
//! | `Flags` bit 4 | WAITING: empty, its pages wait for a grace period | the discarding CPU |
//! | `Flags` bit 5 | LISTED: on its node's list (6.8) | holder of `list_lock` |
//! | `Flags` from bit 32 | slots of the slab | creation |
//! | `Owner` | index of the cache + 1, in the low half; WAITING: 1 in the high half; 0: no slab | creation; cleared with the page |
//! | `Counters` | the slab's own freelist (LARGE: the order; WAITING: when it may go) | holder of the lock |
//! | `Extra` | inuse | holder of the lock |
//!
//! Where slabs are lockless (3.1), `Counters` holds list, inuse and frozen together: see [`super::slabword`].
//!
//! `inuse + length of the own freelist = objects`. A CPU that takes the whole list counts its objects as in use. All fields
//! lie in one 64-byte line: taking the lock pays for it, what follows under the lock does not pay again.

use crate::machine::{Access, Addr, Arena, Cpu, Machine};
use crate::page::{Field, Pages, Pfn};
use crate::units::Picos;

const LOCK_BIT: u32 = 0;
const LOCKED: u64 = 1 << LOCK_BIT;
const SLAB: u64 = 1 << 1;
const FROZEN: u64 = 1 << 2;
const LARGE: u64 = 1 << 3;
const WAITING: u64 = 1 << 4;
const LISTED: u64 = 1 << 5;
const OBJECTS_SHIFT: u32 = 32;

/// The free pointer that ends a list (kernel: NULL; here offset 0 of the arena is an object).
const END: u64 = u64::MAX;

/// A free pointer as it lies in memory.
pub(super) const fn encode(object: Option<Addr>) -> u64 {
    match object {
        Some(addr) => addr.0,
        None => END,
    }
}
/// The address in a free pointer.
pub(super) const fn decode(word: u64) -> Option<Addr> {
    if word == END { None } else { Some(Addr(word)) }
}

/// Where a cache's free pointers lie, and how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Links {
    /// Byte offset from the object's start.
    pub offset: u64,
    /// XORed, with the byte-swapped address of the pointer, into what is stored; 0: plain (kernel: freelist_ptr).
    pub secret: u64,
}

impl Links {
    fn mask(self, at: Addr) -> u64 {
        if self.secret == 0 { 0 } else { self.secret ^ at.0.swap_bytes() }
    }
    /// Reads the free pointer of `object`.
    #[inline]
    pub(super) fn next<C: Cpu>(self, arena: &Arena, cpu: &C, object: Addr) -> Option<Addr> {
        let at = object.plus(self.offset);
        decode(arena.load(cpu, at) ^ self.mask(at))
    }
    /// Writes it. With a secret, an object that would point to itself is one freed twice in a row (kernel:
    /// set_freepointer).
    #[inline]
    pub(super) fn set_next<C: Cpu>(self, arena: &Arena, cpu: &C, object: Addr, next: Option<Addr>) {
        assert!(
            self.secret == 0 || next != Some(object),
            "slub: object {:#x} freed twice: expected another first free object, found itself",
            object.0
        );
        let at = object.plus(self.offset);
        arena.store(cpu, at, encode(next) ^ self.mask(at));
    }
    /// Reads it uncharged: reports and `verify()`.
    pub(super) fn peek(self, arena: &Arena, object: Addr) -> Option<Addr> {
        let at = object.plus(self.offset);
        decode(arena.peek(at) ^ self.mask(at))
    }
}

/// `Owner` of a slab of the cache with this index: every word that is not one says that an object is not the cache's.
pub(super) const fn owner_mark(index: usize) -> u64 {
    index as u64 + 1
}
/// `Owner` of a slab that waits for a grace period: none of its objects is anybody's.
const WAITING_MARK: u64 = 1 << 32;
/// The cache in an `Owner` word that is not 0.
const fn index_of_mark(owner: u64) -> usize {
    (owner as u32).wrapping_sub(1) as usize
}

/// What the page of an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A slab of the cache with this index.
    Slab(usize),
    /// A block of the page allocator, lent by kmalloc.
    Large,
    /// None of ours.
    Foreign,
}

impl Kind {
    #[inline]
    fn new(flags: u64, owner: u64) -> Kind {
        if flags & (SLAB | WAITING) == SLAB {
            Kind::Slab(index_of_mark(owner))
        } else if flags & LARGE != 0 {
            Kind::Large
        } else {
            Kind::Foreign
        }
    }
}

/// A slab, named by its first frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Slab(pub Pfn);

impl Slab {
    /// Makes the descriptor of a new slab of `objects` slots of cache `owner`: nothing in use, no list.
    pub(super) fn found<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu, owner: usize, objects: u64) {
        pages.store(cpu, self.0, Field::Flags, SLAB | objects << OBJECTS_SHIFT);
        pages.poke(self.0, Field::Owner, owner_mark(owner));
        pages.poke(self.0, Field::Counters, 0);
        pages.poke(self.0, Field::Extra, 0);
    }
    /// Slots of the slab: fewer than the cache's where a fallback made it.
    pub(super) fn objects<M: Machine>(self, pages: &Pages<'_, M>) -> u64 {
        pages.peek(self.0, Field::Flags) >> OBJECTS_SHIFT
    }
    /// Marks a block lent by kmalloc.
    pub(super) fn found_large<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu, order: u8) {
        pages.store(cpu, self.0, Field::Flags, LARGE);
        pages.poke(self.0, Field::Owner, 0);
        pages.poke(self.0, Field::Counters, u64::from(order));
    }
    /// Order of a block lent by kmalloc.
    pub(super) fn large_order<M: Machine>(self, pages: &Pages<'_, M>) -> u8 {
        pages.peek(self.0, Field::Counters) as u8
    }
    /// The slab (or block) that `object` lies in, and whose page it is: reads its descriptor.
    #[inline]
    pub(super) fn of<M: Machine>(pages: &Pages<'_, M>, cpu: &M::Cpu, object: Addr) -> (Slab, Kind) {
        let (head, [flags, owner]) = pages.head_with(cpu, object, [Field::Flags, Field::Owner]);
        (Slab(head), Kind::new(flags, owner))
    }
    /// The same for a free, which one word of the descriptor decides: the mark of the cache (see [`owner_mark`]), because it is
    /// 0 in pages that are no slabs.
    #[inline]
    pub(super) fn with_mark<M: Machine>(pages: &Pages<'_, M>, cpu: &M::Cpu, object: Addr) -> (Slab, u64) {
        let (head, [mark]) = pages.head_with(cpu, object, [Field::Owner]);
        (Slab(head), mark)
    }
    /// What the page of a slab with this mark is.
    pub(super) fn kind<M: Machine>(self, pages: &Pages<'_, M>, mark: u64) -> Kind {
        Kind::new(pages.peek(self.0, Field::Flags), mark)
    }

    /// Takes the slab lock (kernel: slab_lock).
    #[inline]
    pub(super) fn lock<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu) {
        cpu.bit_lock(pages.arena(), pages.field(self.0, Field::Flags), LOCK_BIT);
    }
    /// Tries the same once (kernel: slab_trylock).
    pub(super) fn try_lock<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu) -> bool {
        cpu.bit_trylock(pages.arena(), pages.field(self.0, Field::Flags), LOCK_BIT)
    }
    /// Gives it back: with a locked operation, as bit locks did up to 2.6.24 (kernel: slab_unlock), or with a store.
    #[inline]
    pub(super) fn unlock<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu, atomic: bool) {
        if atomic {
            cpu.touch(pages.field(self.0, Field::Flags), Access::Rmw);
        }
        cpu.bit_unlock(pages.arena(), pages.field(self.0, Field::Flags), LOCK_BIT);
    }

    /// The own freelist.
    #[inline]
    pub(super) fn freelist<M: Machine>(self, pages: &Pages<'_, M>) -> Option<Addr> {
        decode(pages.peek(self.0, Field::Counters))
    }
    /// Objects not on the own freelist.
    #[inline]
    pub(super) fn inuse<M: Machine>(self, pages: &Pages<'_, M>) -> u64 {
        pages.peek(self.0, Field::Extra)
    }
    /// Sets both, under the lock.
    #[inline]
    pub(super) fn set<M: Machine>(self, pages: &Pages<'_, M>, freelist: Option<Addr>, inuse: u64) {
        pages.poke(self.0, Field::Counters, encode(freelist));
        pages.poke(self.0, Field::Extra, inuse);
    }
    /// The slab belongs to a CPU.
    #[inline]
    pub(super) fn frozen<M: Machine>(self, pages: &Pages<'_, M>) -> bool {
        pages.peek(self.0, Field::Flags) & FROZEN != 0
    }
    /// Sets that, under the lock. The lock bit cannot change meanwhile: others only set it again in vain.
    pub(super) fn freeze<M: Machine>(self, pages: &Pages<'_, M>, frozen: bool) {
        let flags = pages.peek(self.0, Field::Flags);
        pages.poke(self.0, Field::Flags, if frozen { flags | FROZEN } else { flags & !FROZEN });
    }
    /// The slab is on its node's list (kernel: slab_test_node_partial).
    pub(super) fn listed<M: Machine>(self, pages: &Pages<'_, M>) -> bool {
        pages.peek(self.0, Field::Flags) & LISTED != 0
    }
    /// Sets that, under `list_lock`; nothing else of the flags changes while a lockless slab lives.
    pub(super) fn list<M: Machine>(self, pages: &Pages<'_, M>, listed: bool) {
        let flags = pages.peek(self.0, Field::Flags);
        pages.poke(self.0, Field::Flags, if listed { flags | LISTED } else { flags & !LISTED });
    }
    /// Reads inuse without the slab lock, paying for the line: the walk of a shrink.
    pub(super) fn glance_inuse<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu) -> u64 {
        pages.load(cpu, self.0, Field::Extra)
    }

    /// The slab is empty and waits until `due`.
    pub(super) fn wait<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu, due: Picos) {
        let objects = self.objects(pages);
        pages.store(cpu, self.0, Field::Flags, SLAB | WAITING | objects << OBJECTS_SHIFT);
        pages.poke(self.0, Field::Owner, pages.peek(self.0, Field::Owner) | WAITING_MARK);
        pages.poke(self.0, Field::Counters, due.0);
    }
    /// Until when it waits.
    pub(super) fn due<M: Machine>(self, pages: &Pages<'_, M>) -> Picos {
        Picos(pages.peek(self.0, Field::Counters))
    }
    /// Flags for `verify()`: (locked, waiting).
    pub(super) fn marks<M: Machine>(self, pages: &Pages<'_, M>) -> (bool, bool) {
        let flags = pages.peek(self.0, Field::Flags);
        (flags & LOCKED != 0, flags & WAITING != 0)
    }
    /// Index of the owning cache, waiting slabs included; `None` for a page that is no slab.
    pub(super) fn owner<M: Machine>(self, pages: &Pages<'_, M>) -> Option<usize> {
        let slab = pages.peek(self.0, Field::Flags) & SLAB != 0;
        slab.then(|| index_of_mark(pages.peek(self.0, Field::Owner)))
    }
}
