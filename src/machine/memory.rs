//! The memory of the experiment: one aligned block of relaxed atomic words, addressed by offset.
//!
//! Soundness of the unsafe code here: an [`Arena`] owns one anonymous mapping (or zeroed allocation) of `words` u64,
//! from construction to drop; every access goes through `&AtomicU64` references inside it, after a bounds check, so
//! no data race and no aliasing `&mut` can exist. Reading a free pointer from an object that another CPU has just
//! taken is therefore a defined operation.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::sync::{AtomicU64, Ordering};
use super::{Access, Cpu};
use crate::units::Addr;

/// A word as it is stored. Loom's are objects of the model, of which it bears some hundreds: made when first touched.
#[cfg(not(loom))]
type Stored = AtomicU64;
#[cfg(loom)]
type Stored = lazy::Word;

#[cfg(loom)]
mod lazy {
    use std::cell::OnceCell;

    use super::AtomicU64;

    #[derive(Default)]
    pub(super) struct Word(OnceCell<AtomicU64>);

    impl std::ops::Deref for Word {
        type Target = AtomicU64;
        fn deref(&self) -> &AtomicU64 {
            self.0.get_or_init(|| AtomicU64::new(0))
        }
    }
}

/// Object memory and page frames: `bytes` of zeroed memory, committed when first touched.
pub struct Arena {
    words: NonNull<Stored>,
    count: usize,
}

// SAFETY: the block is only reachable through `&AtomicU64`, which is Sync; the arena owns it.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

/// Eight words of an arena.
#[derive(Clone, Copy)]
pub struct Record<'a>(&'a [Stored; 8]);

impl Record<'_> {
    /// Word `i`.
    #[inline]
    pub fn peek(self, i: usize) -> u64 {
        self.0[i].load(Ordering::Relaxed)
    }
}

impl Arena {
    /// Maps `bytes` (rounded up to a page) of zeroed memory.
    pub fn new(bytes: u64) -> Result<Arena, String> {
        let bytes = crate::units::round_up(bytes.max(1), crate::units::PAGE_SIZE) as usize;
        let words = map_words(bytes / 8).ok_or_else(|| format!("the host refuses {bytes} bytes of address space"))?;
        Ok(Arena { words, count: bytes / 8 })
    }

    fn word(&self, addr: Addr) -> &AtomicU64 {
        let index = (addr.0 / 8) as usize;
        if index >= self.count {
            self.outside(addr);
        }
        // SAFETY: `index < count`, the block holds `count` initialised (zeroed) words and lives as long as `self`.
        unsafe { self.words.add(index).as_ref() }
    }

    /// The record of eight words at `addr`, to be read uncharged with one bounds check for all.
    #[inline]
    pub fn record(&self, addr: Addr) -> Record<'_> {
        let index = (addr.0 / 8) as usize;
        if index + 8 > self.count {
            self.outside(addr);
        }
        // SAFETY: the eight words from `index` on lie inside the block (checked above), initialised, alive as `self`.
        Record(unsafe { self.words.add(index).cast::<[Stored; 8]>().as_ref() })
    }

    #[cold]
    fn outside(&self, addr: Addr) -> ! {
        panic!("address {:#x} is outside the arena of {:#x} bytes", addr.0, self.count * 8);
    }

    /// Loads the word at `addr` and pays for the line.
    #[inline]
    pub fn load<C: Cpu>(&self, cpu: &C, addr: Addr) -> u64 {
        cpu.touch(addr, Access::Read);
        self.word(addr).load(Ordering::Relaxed)
    }
    /// Stores the word at `addr` and pays for the line.
    #[inline]
    pub fn store<C: Cpu>(&self, cpu: &C, addr: Addr, value: u64) {
        cpu.touch(addr, Access::Write);
        self.word(addr).store(value, Ordering::Relaxed);
    }
    /// Adds to the word at `addr` atomically at a point of interaction; returns the old value.
    pub fn fetch_add<C: Cpu>(&self, cpu: &C, addr: Addr, delta: i64) -> u64 {
        cpu.interact();
        cpu.touch(addr, Access::Rmw);
        self.word(addr).fetch_add(delta as u64, Ordering::AcqRel)
    }
    /// Replaces `old` by `new` in the word at `addr` by a locked operation, at a point of interaction; false if it was
    /// something else.
    #[inline]
    pub fn cmpxchg<C: Cpu>(&self, cpu: &C, addr: Addr, old: u64, new: u64) -> bool {
        cpu.interact();
        cpu.touch(addr, Access::Rmw);
        self.word(addr).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
    /// Reads without charging: reports, `verify()`, and words whose line has just been paid for.
    #[inline]
    pub fn peek(&self, addr: Addr) -> u64 {
        self.word(addr).load(Ordering::Relaxed)
    }
    /// The same, ordered before what is read next (acquire): for a word that says where another CPU has written.
    #[inline]
    pub fn peek_acquire(&self, addr: Addr) -> u64 {
        self.word(addr).load(Ordering::Acquire)
    }
    /// Writes without charging: set-up, and words whose line has just been paid for.
    #[inline]
    pub fn poke(&self, addr: Addr, value: u64) {
        self.word(addr).store(value, Ordering::Relaxed);
    }
    /// The word itself, for the machines' bit locks.
    pub(super) fn atomic(&self, addr: Addr) -> &AtomicU64 {
        self.word(addr)
    }
    /// Replaces the bits of `mask` in the word at `addr`; other CPUs may write the word's other bits meanwhile. Uncharged.
    #[inline]
    pub fn poke_bits(&self, addr: Addr, mask: u64, value: u64) {
        let replace = |word: u64| Some(word & !mask | value & mask);
        let _ = self.word(addr).fetch_update(Ordering::Relaxed, Ordering::Relaxed, replace);
    }
    /// Fills exactly the `bytes` bytes from `addr` with `byte`. Uncharged.
    pub fn fill(&self, addr: Addr, bytes: u64, byte: u8) {
        let value = u64::from_ne_bytes([byte; 8]);
        let end = addr.0 + bytes;
        let mut at = addr.0;
        while at < end {
            let (skipped, stop) = (at % 8, (at - at % 8 + 8).min(end));
            if stop - at == 8 {
                self.poke(Addr(at), value);
            } else {
                self.poke_bits(Addr(at), (u64::MAX >> (64 - 8 * (stop - at))) << (8 * skipped), value);
            }
            at = stop;
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        unmap_words(self.words, self.count);
    }
}

#[cfg(target_os = "linux")]
fn map_zeroed(bytes: usize) -> Option<NonNull<u64>> {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice has no preconditions.
    let p = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if p == libc::MAP_FAILED { None } else { NonNull::new(p.cast()) }
}

#[cfg(target_os = "linux")]
fn unmap(words: NonNull<u64>, bytes: usize) {
    // SAFETY: exactly the mapping made by `map_zeroed`, unmapped once, by its owner's drop.
    unsafe { libc::munmap(words.as_ptr().cast(), bytes) };
}

#[cfg(not(target_os = "linux"))]
fn map_zeroed(bytes: usize) -> Option<NonNull<u64>> {
    let layout = std::alloc::Layout::from_size_align(bytes, 4096).ok()?;
    // SAFETY: the layout has a non-zero size; zeroed memory is a valid `[u64]`.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }.cast())
}

#[cfg(not(target_os = "linux"))]
fn unmap(words: NonNull<u64>, bytes: usize) {
    let layout = std::alloc::Layout::from_size_align(bytes, 4096).expect("the layout of map_zeroed");
    // SAFETY: allocated by `map_zeroed` with this layout, freed once, by its owner's drop.
    unsafe { std::alloc::dealloc(words.as_ptr().cast(), layout) };
}

/// The words of an arena: zeroed memory is that of atomic words.
#[cfg(not(loom))]
fn map_words(count: usize) -> Option<NonNull<Stored>> {
    map_zeroed(count * 8).map(NonNull::cast)
}
#[cfg(not(loom))]
fn unmap_words(words: NonNull<Stored>, count: usize) {
    unmap(words.cast(), count * 8);
}
#[cfg(loom)]
fn map_words(count: usize) -> Option<NonNull<Stored>> {
    let words: Box<[Stored]> = (0..count).map(|_| Stored::default()).collect();
    NonNull::new(Box::into_raw(words).cast())
}
#[cfg(loom)]
fn unmap_words(words: NonNull<Stored>, count: usize) {
    // SAFETY: the boxed slice leaked by `map_words`, taken back once.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(words.as_ptr(), count)) });
}

/// A shared word with an address: an atomic that other CPUs read and write.
pub struct Word {
    addr: Addr,
    value: AtomicU64,
}

impl Word {
    /// A word at `addr` holding `value`.
    pub fn new(addr: Addr, value: u64) -> Word {
        Word { addr, value: AtomicU64::new(value) }
    }
    /// Loads, at a point of interaction (acquire). For reads that the specs call racy.
    pub fn load<C: Cpu>(&self, cpu: &C) -> u64 {
        cpu.interact();
        cpu.touch(self.addr, Access::Read);
        self.value.load(Ordering::Acquire)
    }
    /// Stores, at a point of interaction (release).
    pub fn store<C: Cpu>(&self, cpu: &C, value: u64) {
        cpu.interact();
        cpu.touch(self.addr, Access::Write);
        self.value.store(value, Ordering::Release);
    }
    /// Adds `delta`, at a point of interaction; returns the old value.
    pub fn fetch_add<C: Cpu>(&self, cpu: &C, delta: i64) -> u64 {
        cpu.interact();
        cpu.touch(self.addr, Access::Rmw);
        self.value.fetch_add(delta as u64, Ordering::AcqRel)
    }
    /// Replaces `old` by `new`, at a point of interaction; returns what was found on failure.
    pub fn cmpxchg<C: Cpu>(&self, cpu: &C, old: u64, new: u64) -> Result<(), u64> {
        cpu.interact();
        cpu.touch(self.addr, Access::Rmw);
        self.value.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
    /// Reads without charging and without ordering: reports, and the lock holder's own view.
    pub fn peek(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
    /// Adds without charging: the line is already paid for.
    pub fn poke_add(&self, delta: i64) {
        self.value.fetch_add(delta as u64, Ordering::Relaxed);
    }
    /// Writes without charging: set-up, and the lock holder whose line is already paid for.
    pub fn poke(&self, value: u64) {
        self.value.store(value, Ordering::Relaxed);
    }
}

/// `[u32; 8]` records, zero until written, committed when first touched: the simulator's tables over all memory.
pub(super) struct Records {
    base: NonNull<u64>,
    count: usize,
}

// SAFETY: the block is owned, and reached through `&self`/`&mut self` like a Box<[[u32; 8]]>.
unsafe impl Send for Records {}
// SAFETY: as above.
unsafe impl Sync for Records {}

impl Records {
    pub(super) fn new(count: usize) -> Result<Records, String> {
        let bytes = crate::units::round_up((count as u64 * 32).max(1), crate::units::PAGE_SIZE) as usize;
        let base = map_zeroed(bytes).ok_or_else(|| format!("the host refuses {bytes} bytes of address space"))?;
        Ok(Records { base, count: bytes / 32 })
    }
    #[inline]
    pub(super) fn at(&mut self, index: usize) -> &mut [u32; 8] {
        assert!(index < self.count, "record {index} of {}", self.count);
        // SAFETY: in bounds of the zeroed block; all bit patterns are valid; `&mut self` makes the access exclusive.
        unsafe { self.base.cast::<[u32; 8]>().add(index).as_mut() }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        unmap(self.base, self.count * 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_writes_its_bytes_and_no_others() {
        for (start, bytes) in [(0, 8), (0, 30), (3, 2), (5, 20), (6, 2), (7, 1), (8, 0)] {
            let arena = Arena::new(64).expect("a page");
            arena.fill(Addr(start), bytes, 0xab);
            let filled = |at: u64| (arena.peek(Addr(at)) >> (at % 8 * 8)) as u8 == 0xab;
            assert!((0..64).all(|at| filled(at) == (start..start + bytes).contains(&at)), "{bytes} from {start}");
        }
    }
}
