//! List and counters of a lockless slab in one word, changed by one compare-exchange (kernel: cmpxchg_double_slab).
//!
//! | bits | holds |
//! |---|---|
//! | 0..16 | head of the slab's own list: index of the object + 1; 0: empty |
//! | 16..32 | inuse: objects not on that list |
//! | 32 | frozen: the slab belongs to a CPU |
//! | 33..64 | generation: one more at each change |
//!
//! The kernel exchanges two words, a pointer and the counters, and has no generation: a word that looks the same again is
//! the same to it. What it does without `list_lock` is right all the same: a push whose object already points to the head
//! it finds, and taking the whole list. The generation makes every change visible, so nothing has to be argued here.

use super::word::Slab;
use crate::machine::{Cpu, Machine};
use crate::page::{Field, Pages};

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SlabWord(u64);

const FROZEN: u64 = 1 << 32;
const GENERATION: u64 = 1 << 33;

impl SlabWord {
    /// Index of the first free object.
    pub(super) fn head(self) -> Option<u64> {
        (self.0 & 0xffff).checked_sub(1)
    }
    /// Objects not on the list.
    pub(super) fn inuse(self) -> u64 {
        self.0 >> 16 & 0xffff
    }
    /// The slab belongs to a CPU.
    pub(super) fn frozen(self) -> bool {
        self.0 & FROZEN != 0
    }
    /// What replaces this word.
    pub(super) fn then(self, head: Option<u64>, inuse: u64, frozen: bool) -> SlabWord {
        debug_assert!(head.is_none_or(|h| h < 0xffff) && inuse <= 0xffff);
        let generation = (self.0 & !(GENERATION - 1)).wrapping_add(GENERATION);
        SlabWord(head.map_or(0, |h| h + 1) | inuse << 16 | if frozen { FROZEN } else { 0 } | generation)
    }
}

impl Slab {
    /// The word as it is now, its line already paid for. A point of interaction: others may have changed it. Acquire: who pops
    /// the head reads its free pointer before the exchange, and must find what was pushed with the head.
    pub(super) fn read<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu) -> SlabWord {
        cpu.interact();
        SlabWord(pages.arena().peek_acquire(pages.field(self.0, Field::Counters)))
    }
    /// Replaces `old` by `new` in one locked operation; false if it is not `old` any more.
    pub(super) fn exchange<M: Machine>(self, pages: &Pages<'_, M>, cpu: &M::Cpu, old: SlabWord, new: SlabWord) -> bool {
        pages.arena().cmpxchg(cpu, pages.field(self.0, Field::Counters), old.0, new.0)
    }
    /// The word for reports and `verify()`.
    pub(super) fn peek_word<M: Machine>(self, pages: &Pages<'_, M>) -> SlabWord {
        SlabWord(pages.peek(self.0, Field::Counters))
    }
    /// The word of a slab that nobody else knows.
    pub(super) fn set_word<M: Machine>(self, pages: &Pages<'_, M>, head: Option<u64>, inuse: u64, frozen: bool) {
        let word = self.peek_word(pages).then(head, inuse, frozen);
        pages.poke(self.0, Field::Counters, word.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_gives_back_what_was_put_into_it_and_never_repeats() {
        let empty = SlabWord(0);
        let w = empty.then(Some(32_766), 32_767, true);
        assert_eq!((w.head(), w.inuse(), w.frozen()), (Some(32_766), 32_767, true));
        let same = w.then(None, 3, false).then(Some(32_766), 32_767, true);
        assert_eq!((same.head(), same.inuse(), same.frozen()), (w.head(), w.inuse(), w.frozen()));
        assert_ne!(same, w);
        assert_eq!(SlabWord(u64::MAX).then(None, 0, false), SlabWord(0));
    }
}
