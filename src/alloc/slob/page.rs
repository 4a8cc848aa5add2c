//! Blocks within a page: the free list inside the free memory itself, first fit, split and merge.
//!
//! A page is 2048 units of two bytes. Its free blocks form a list in order of address, written into themselves; used
//! blocks carry nothing at all, so whoever frees one must know its size. Offsets are in units from the page's start.
//!
//! | first unit of a free block | second unit | the block |
//! |---|---|---|
//! | n ≥ 2 | next | n units; the next free block begins at `next` |
//! | −next | (not its own) | one unit; the next free block begins at `next` |
//!
//! A next offset is larger than the block's own, so it is never 0 and the sign tells the two forms apart. The last block
//! says 2048: the address after the page.

use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::page::{Field, Pages, Pfn};
use crate::units::{PAGE_SIZE, round_up};

/// Bytes of a unit.
pub(super) const UNIT: u64 = 2;
/// Units of a page, and the `next` of its last free block.
pub(super) const UNITS: u64 = PAGE_SIZE / UNIT;

/// Units that hold `bytes` bytes.
pub(super) const fn units(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT)
}

/// A free block: its first unit, its length, and the first unit of the next free block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub at: u64,
    pub units: u64,
    pub next: u64,
}

impl Block {
    /// The unit after the last.
    pub fn end(self) -> u64 {
        self.at + self.units
    }
    /// True if the next free block begins where this one ends.
    pub fn touches_next(self) -> bool {
        self.end() == self.next && self.next != UNITS
    }
    /// What its first two units hold; a block of one unit leaves the second alone.
    fn encode(self) -> (i16, Option<i16>) {
        match self.units {
            1 => (-(self.next as i16), None),
            n => (n as i16, Some(self.next as i16)),
        }
    }
    /// The block at `at` that begins with these two units.
    fn decode(at: u64, first: i16, second: i16) -> Block {
        match first {
            n @ 1.. => Block { at, units: n as u64, next: second as u64 },
            next => Block { at, units: 1, next: u64::from(next.unsigned_abs()) },
        }
    }
}

/// What a page is searched for: `units` units such that the address `offset` bytes into them is aligned to `align`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    pub units: u64,
    pub align: u64,
    pub offset: u64,
}

impl Fit {
    /// The first unit from `at` on that is aligned as asked. A page is aligned to any `align` up to its own size.
    fn start(self, at: u64) -> u64 {
        match self.align {
            0 => at,
            align => (round_up(at * UNIT + self.offset, align) - self.offset) / UNIT,
        }
    }
}

/// A page of the heap. Its descriptor holds the number of free units and the first free block.
///
/// `free_units = Σ units of its free blocks`, and `free_units = 2048 − units of its used blocks`. A page is in a list
/// of pages exactly while `free_units > 0` (the kernel keeps this as a second flag); at 0 `first` means nothing.
pub(super) struct HeapPage<'a, 'p, M: Machine> {
    pages: &'a Pages<'p, M>,
    pub pfn: Pfn,
}

impl<'a, 'p, M: Machine> HeapPage<'a, 'p, M> {
    pub fn of(pages: &'a Pages<'p, M>, pfn: Pfn) -> Self {
        HeapPage { pages, pfn }
    }

    /// Takes the lowest block that fits and returns its first unit; `None` if all are too small or badly placed
    /// (kernel: slob_page_alloc). The low end is used and the rest stays free, as does what alignment cuts off in front.
    /// One line per free block looked at, one or two written, the descriptor.
    pub fn take(&self, cpu: &M::Cpu, fit: Fit) -> Option<u64> {
        let (mut at, mut below) = (self.first(), None);
        loop {
            let block = self.read(cpu, at);
            let start = fit.start(at);
            if start + fit.units <= block.end() {
                self.split(cpu, below, block, start, fit.units);
                return Some(start);
            }
            cpu.work(cost::SLOB_WALK_BLOCK);
            if block.next == UNITS {
                return None;
            }
            (at, below) = (block.next, Some(block));
        }
    }

    /// Takes `start..start + units` out of `block`, whose predecessor in the list is `below`.
    fn split(&self, cpu: &M::Cpu, below: Option<Block>, block: Block, start: u64, units: u64) {
        let end = start + units;
        let next = if end < block.end() {
            self.write(cpu, Block { at: end, units: block.end() - end, next: block.next });
            end
        } else {
            block.next
        };
        let cut = (start > block.at).then(|| Block { units: start - block.at, ..block });
        match cut.or(below) {
            Some(before) => self.write(cpu, Block { next, ..before }),
            None => self.pages.poke(self.pfn, Field::Extra, next),
        }
        self.set_free_units(cpu, self.free_units() - units);
    }

    /// Puts `units` units from `at` back into the list of a page that is neither full nor becomes empty (kernel:
    /// slob_free). One line per free block below, and the blocks that change.
    ///
    /// A block joins its free neighbours, with one exception: below the first free block it joins it only with
    /// `head_merge`.
    pub fn give(&self, cpu: &M::Cpu, at: u64, units: u64, head_merge: bool) {
        let first = self.first();
        if at < first {
            let mut block = Block { at, units, next: first };
            self.expect_used(block, 0);
            if head_merge {
                block = self.absorb_next(cpu, block);
            }
            self.write(cpu, block);
            self.pages.poke(self.pfn, Field::Extra, at);
        } else {
            let mut below = self.read(cpu, first);
            while below.next <= at {
                cpu.work(cost::SLOB_FREE_WALK);
                below = self.read(cpu, below.next);
            }
            let block = Block { at, units, next: below.next };
            self.expect_used(block, below.end());
            let block = self.absorb_next(cpu, block);
            if below.end() == at {
                self.write(cpu, Block { units: below.units + block.units, next: block.next, ..below });
            } else {
                self.write(cpu, block);
                self.write(cpu, Block { next: at, ..below });
            }
        }
        self.set_free_units(cpu, self.free_units() + units);
    }

    /// Makes `units` units from `at` the only free block: of a new page, or of one that was full.
    pub fn restart(&self, cpu: &M::Cpu, at: u64, units: u64) {
        self.write(cpu, Block { at, units, next: UNITS });
        self.set_free_units(cpu, units);
        self.pages.poke(self.pfn, Field::Extra, at);
    }

    /// `block` and the next free block as one, if they touch.
    fn absorb_next(&self, cpu: &M::Cpu, block: Block) -> Block {
        if !block.touches_next() {
            return block;
        }
        let above = self.read(cpu, block.next);
        Block { units: block.units + above.units, next: above.next, ..block }
    }

    /// Refuses to free what is free already.
    fn expect_used(&self, block: Block, below: u64) {
        let (at, end, next) = (block.at, block.end(), block.next);
        assert!(
            below <= at && end <= next,
            "slob: page {:?}: freed units {at}..{end}, expected within the used units {below}..{next}: freed twice, \
             or with the wrong size",
            self.pfn
        );
    }

    /// Free units. Uncharged: its readers have paid for the descriptor's line.
    pub fn free_units(&self) -> u64 {
        self.pages.peek(self.pfn, Field::Counters) & 0xffff_ffff
    }
    fn set_free_units(&self, cpu: &M::Cpu, units: u64) {
        self.pages.store(cpu, self.pfn, Field::Counters, self.live_units() << 32 | units);
    }
    /// Units of the blocks in use, counted apart from the free ones. Not of the original, which does not know them: it is
    /// what `verify()` compares with.
    pub fn live_units(&self) -> u64 {
        self.pages.peek(self.pfn, Field::Counters) >> 32
    }
    pub fn set_live_units(&self, units: u64) {
        self.pages.poke(self.pfn, Field::Counters, units << 32 | self.free_units());
    }
    fn first(&self) -> u64 {
        self.pages.peek(self.pfn, Field::Extra)
    }

    /// Free blocks in order of address. For reports and `verify()`: uncharged, and it ends however broken the list is.
    pub fn blocks(&self) -> impl Iterator<Item = Block> {
        let mut at = if self.free_units() == 0 { UNITS } else { self.first() };
        std::iter::from_fn(move || {
            let block = (at < UNITS).then(|| self.peek(at))?;
            at = if block.next > at { block.next } else { UNITS };
            Some(block)
        })
    }

    /// The free block at `at`; pays for its line. What is no list any more is refused here, so that every walk ends: each
    /// block ends before the next one begins, within the page.
    fn read(&self, cpu: &M::Cpu, at: u64) -> Block {
        cpu.touch(self.addr(at), Access::Read);
        let block = self.peek(at);
        assert!(
            block.end() <= block.next && block.next <= UNITS,
            "slob: page {:?}: free list corrupted: expected a free block at unit {at} that ends before the next one, found \
             units {at}..{} and the next at {}: something wrote into free memory",
            self.pfn,
            block.end(),
            block.next
        );
        block
    }
    fn peek(&self, at: u64) -> Block {
        let second = if at + 1 < UNITS { self.unit(at + 1) } else { 0 };
        Block::decode(at, self.unit(at), second)
    }
    /// Writes a free block into its own memory; pays for its line.
    fn write(&self, cpu: &M::Cpu, block: Block) {
        cpu.touch(self.addr(block.at), Access::Write);
        let (first, second) = block.encode();
        self.set_unit(block.at, first);
        if let Some(second) = second {
            self.set_unit(block.at + 1, second);
        }
    }

    /// Address of a unit.
    pub fn addr(&self, at: u64) -> Addr {
        self.pages.addr_of(self.pfn).plus(at * UNIT)
    }
    /// One unit, out of the word of four that it lies in.
    pub fn unit(&self, at: u64) -> i16 {
        let addr = self.addr(at);
        (self.pages.arena().peek(addr) >> shift(addr)) as i16
    }
    /// Writes one unit and leaves the rest of its word alone: that may belong to a used block.
    fn set_unit(&self, at: u64, value: i16) {
        let addr = self.addr(at);
        self.pages.arena().poke_bits(addr, 0xffff << shift(addr), u64::from(value as u16) << shift(addr));
    }
}

/// Lowest bit of the unit at `addr` in its word.
fn shift(addr: Addr) -> u64 {
    addr.0 % 8 * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_decodes_to_what_was_encoded() {
        for at in 0..UNITS {
            for units in [1, 2, 3, (UNITS - at) / 2, UNITS - at] {
                for next in [at + units, at + units + 1, UNITS] {
                    let block = Block { at, units, next };
                    if units > 0 && next <= UNITS && at + units <= next {
                        let (first, second) = block.encode();
                        assert_eq!(Block::decode(at, first, second.unwrap_or(i16::MIN)), block);
                        assert_eq!(first < 0, units == 1);
                    }
                }
            }
        }
    }

    #[test]
    fn a_start_is_the_first_aligned_address_with_its_offset() {
        let fit = |align, offset| Fit { units: 1, align, offset };
        assert_eq!(fit(0, 0).start(5), 5);
        assert_eq!(fit(8, 0).start(5), 8);
        assert_eq!(fit(64, 0).start(5), 32);
        // kmalloc(64) with natural alignment (X8): the block begins at byte 56, its object at 64.
        assert_eq!(fit(64, 8).start(0), 28);
        assert_eq!(fit(64, 8).start(28), 28);
        assert_eq!(fit(2048, 8).start(0), 1020);
    }
}
