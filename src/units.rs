//! Newtypes for whatever could be swapped by mistake: CPU and node numbers, orders, addresses, instructions, time.

use std::fmt;

/// Bytes of a page. Every era of this release uses 4 KiB pages.
pub const PAGE_SIZE: u64 = 4096;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// Bytes of a cache line on every modelled machine.
pub const LINE: u64 = 64;
/// Timer ticks in a second (machine-model.md §2.1).
pub const HZ: u64 = 250;
/// Time between two timer ticks.
pub const JIFFY: Picos = Picos(1_000_000_000_000 / HZ);
/// Length of an RCU grace period (machine-model.md §2.1): whoever waits for one waits this long.
pub const RCU_GRACE: Picos = Picos(10_000_000_000);
/// Number of buddy orders (0..=10).
pub const MAX_ORDER: usize = 11;

/// A CPU of the machine, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CpuId(pub u16);

/// A NUMA node of the machine, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u16);

/// log2 of a number of contiguous pages, 0..=10.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Order(pub u8);

impl Order {
    /// Pages of a block of this order.
    pub fn pages(self) -> u64 {
        1 << self.0
    }
    /// Bytes of a block of this order.
    pub fn bytes(self) -> u64 {
        PAGE_SIZE << self.0
    }
    /// Smallest order whose block holds `bytes`.
    pub fn for_bytes(bytes: u64) -> Order {
        let pages = bytes.max(1).div_ceil(PAGE_SIZE);
        Order(pages.next_power_of_two().trailing_zeros() as u8)
    }
}

/// A number of machine instructions of kernel code; the machine's clock and cycles per instruction make time of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Instr(pub u32);

impl Instr {
    /// `n` times this many instructions.
    pub const fn times(self, n: u64) -> Instr {
        Instr((self.0 as u64 * n) as u32)
    }
}

/// An offset into the simulated address space. Offset 0 is a valid page of the arena; "no object" is `Option`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Addr(pub u64);

impl Addr {
    /// `bytes` further on.
    pub const fn plus(self, bytes: u64) -> Addr {
        Addr(self.0 + bytes)
    }
    /// Number of the cache line.
    pub const fn line(self) -> u64 {
        self.0 / LINE
    }
}

/// Virtual (or wall) time in integer picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Picos(pub u64);

impl Picos {
    /// Picoseconds of `s` seconds.
    pub fn from_secs_f64(s: f64) -> Picos {
        Picos((s * 1e12).round() as u64)
    }
    /// Picoseconds of `ns` nanoseconds.
    pub fn from_ns(ns: f64) -> Picos {
        Picos((ns * 1e3).round() as u64)
    }
    /// Whole timer ticks up to this time (kernel: jiffies).
    pub const fn jiffies(self) -> u64 {
        self.0 / JIFFY.0
    }
    /// This time in seconds.
    pub fn secs(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `v` rounded up to a multiple of `to` (any positive `to`).
pub const fn round_up(v: u64, to: u64) -> u64 {
    v.div_ceil(to) * to
}

/// 1-based index of the highest set bit, 0 for 0 (kernel: fls).
pub const fn fls(v: u64) -> u32 {
    64 - v.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_for_bytes_is_the_smallest_that_fits() {
        for (bytes, order) in [(1, 0), (4096, 0), (4097, 1), (8192, 1), (8193, 2), (4 << 20, 10)] {
            assert_eq!(Order::for_bytes(bytes), Order(order), "{bytes}");
        }
    }

    #[test]
    fn fls_counts_from_one() {
        assert_eq!([fls(0), fls(1), fls(4095), fls(4096)], [0, 1, 12, 13]);
    }
}
