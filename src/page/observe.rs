//! Who watches objects being taken and given back: for allocation profiles. Watching charges nothing.

use crate::units::{Addr, CpuId, Picos};

/// What was taken: an object of a cache (its number), or so many bytes of kmalloc memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Taken {
    /// Number of the cache.
    Cache(u32),
    /// Bytes asked for.
    Kmalloc(u64),
}

/// Hears of every object. Called by the CPU that takes or gives it.
pub trait Observer: Send + Sync {
    /// An object was taken.
    fn taken(&self, cpu: CpuId, now: Picos, what: Taken, at: Addr);
    /// It is about to be given back.
    fn given(&self, cpu: CpuId, now: Picos, at: Addr);
}
