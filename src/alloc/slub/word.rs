//! The words of a slab's descriptor, and the free pointers in its objects.
//!
//! | field | holds | changed by |
//! |---|---|---|
//! | `Flags` bit 0 | the slab lock | whoever takes it |
//! | `Flags` bit 1 | SLAB: the page belongs to a cache | creation; cleared with the page |
//! | `Flags` bit 2 | FROZEN: belongs to a CPU, is on no list | holder of the lock |
//! | `Flags` bit 3 | LARGE: a kmalloc that went to the page allocator | creation; cleared with the page |
//! | `Flags` bit 4 | WAITING: empty, its pages wait for a grace period | the discarding CPU |
//! | `Owner` | index of the cache | creation |
//! | `Counters` | the slab's own freelist (LARGE: the order; WAITING: when it may go) | holder of the lock |
//! | `Extra` | inuse | holder of the lock |
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
/// Reads the free pointer of `object`, `offset` bytes into it.
#[inline]
pub(super) fn next<C: Cpu>(arena: &Arena, cpu: &C, object: Addr, offset: u64) -> Option<Addr> {
    decode(arena.load(cpu, object.plus(offset)))
}
/// Writes it.
#[inline]
pub(super) fn set_next<C: Cpu>(arena: &Arena, cpu: &C, object: Addr, offset: u64, next: Option<Addr>) {
    arena.store(cpu, object.plus(offset), encode(next));
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
            Kind::Slab(owner as usize)
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
    /// Makes the descriptor of a new slab of cache `owner`: nothing in use.
    pub(super) fn found<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu, owner: usize, freelist: Option<Addr>) {
        pages.store(cpu, self.0, Field::Flags, SLAB);
        pages.poke(self.0, Field::Owner, owner as u64);
        pages.poke(self.0, Field::Counters, encode(freelist));
        pages.poke(self.0, Field::Extra, 0);
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

    /// Takes the slab lock (kernel: slab_lock).
    #[inline]
    pub(super) fn lock<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu) {
        cpu.bit_lock(pages.arena(), pages.field(self.0, Field::Flags), LOCK_BIT);
    }
    /// Tries the same once (kernel: slab_trylock).
    pub(super) fn try_lock<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu) -> bool {
        cpu.bit_trylock(pages.arena(), pages.field(self.0, Field::Flags), LOCK_BIT)
    }
    /// Gives it back with a locked operation, as bit locks did up to 2.6.24 (kernel: slab_unlock).
    #[inline]
    pub(super) fn unlock<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu) {
        cpu.touch(pages.field(self.0, Field::Flags), Access::Rmw);
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
    /// Reads inuse without the slab lock, paying for the line: the walk of a shrink.
    pub(super) fn glance_inuse<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu) -> u64 {
        pages.load(cpu, self.0, Field::Extra)
    }

    /// The slab is empty and waits until `due`.
    pub(super) fn wait<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu, due: Picos) {
        pages.store(cpu, self.0, Field::Flags, SLAB | WAITING);
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
        slab.then(|| pages.peek(self.0, Field::Owner) as usize)
    }
}
