//! Who asked for which order: requests and their fate per asker, on the CPU that asked.

use crate::machine::Machine;
use crate::spec::CacheId;
use crate::units::MAX_ORDER;

use super::{PageFlags, Pages};

/// On whose behalf pages are asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Asker {
    /// Anybody else: user pages, a script's own.
    #[default]
    Other,
    /// Payload of packets that their linear buffer does not hold.
    Fragments,
    /// kmalloc beyond the largest cache.
    Kmalloc,
    /// SLOB's heap, which all small objects share.
    Heap,
    /// Slabs of a cache.
    Cache(CacheId),
}

impl Asker {
    /// Its place in a table.
    pub(super) fn index(self) -> usize {
        match self {
            Asker::Other => 0,
            Asker::Fragments => 1,
            Asker::Kmalloc => 2,
            Asker::Heap => 3,
            Asker::Cache(id) => 4 + id.0 as usize,
        }
    }
    /// The asker of a place.
    fn at(index: usize) -> Asker {
        match index {
            0 => Asker::Other,
            1 => Asker::Fragments,
            2 => Asker::Kmalloc,
            3 => Asker::Heap,
            i => Asker::Cache(CacheId(i as u32 - 4)),
        }
    }
    /// What frames call it; `caches` are the names of the caches.
    pub fn name(self, caches: &[String]) -> String {
        match self {
            Asker::Other => "(other)".into(),
            Asker::Fragments => "(skb fragments)".into(),
            Asker::Kmalloc => "(kmalloc pages)".into(),
            Asker::Heap => "(heap)".into(),
            Asker::Cache(id) => caches.get(id.0 as usize).cloned().unwrap_or_else(|| format!("cache {}", id.0)),
        }
    }
}

/// What became of one asker's requests of one order. `failed`, `fallback` and `reclaim` are the three ends of an attempt
/// that got nothing: `attempts = allocated + failed + fallback + reclaim`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Blocks it got.
    pub allocated: u64,
    /// Blocks that came back.
    pub freed: u64,
    /// Requests that were refused in the end.
    pub failed: u64,
    /// Attempts without retry that were refused: the asker goes on with a smaller order, or another node.
    pub fallback: u64,
    /// Attempts that were refused and repeated after reclaim.
    pub reclaim: u64,
    /// Blocks that came from another node than the one asked for.
    pub fallback_node: u64,
    /// Blocks it holds: since boot, whatever warm-up was left out of the other counts.
    pub held: i64,
}

impl Asked {
    /// Counts an attempt that got nothing.
    pub(super) fn refused(&mut self, flags: PageFlags) {
        if flags.no_retry {
            self.fallback += 1;
        } else if flags.reclaims {
            self.reclaim += 1;
        } else {
            self.failed += 1;
        }
    }
    fn add(&mut self, other: &Asked) {
        self.allocated += other.allocated;
        self.freed += other.freed;
        self.failed += other.failed;
        self.fallback += other.fallback;
        self.reclaim += other.reclaim;
        self.fallback_node += other.fallback_node;
        self.held += other.held;
    }
}

/// One CPU's counts: a row of orders for each asker it has met.
#[derive(Clone, Default)]
pub(super) struct Ledger(Vec<Option<Box<[Asked; MAX_ORDER]>>>);

impl Ledger {
    pub(super) fn at(&mut self, asker: usize, order: usize) -> &mut Asked {
        if self.0.len() <= asker {
            self.0.resize_with(asker + 1, || None);
        }
        &mut self.0[asker].get_or_insert_default()[order]
    }
    fn of(&self, asker: usize, order: usize) -> Asked {
        self.0.get(asker).and_then(Option::as_ref).map_or(Asked::default(), |row| row[order])
    }
    /// The end of a warm-up: what is held stays.
    pub(super) fn reset(&mut self) {
        for asked in self.0.iter_mut().flatten().flat_map(|row| row.iter_mut()) {
            *asked = Asked { held: asked.held, ..Asked::default() };
        }
    }
}

impl<M: Machine> Pages<'_, M> {
    /// Who asked for which order, summed over CPUs: a row for every pair that occurred. When no CPU runs.
    pub fn asked(&mut self) -> Vec<(Asker, usize, Asked)> {
        let mut sum: Vec<[Asked; MAX_ORDER]> = Vec::new();
        for (_, c) in self.cpus.iter_mut() {
            sum.resize(sum.len().max(c.asked.0.len()), Default::default());
            for (asker, row) in c.asked.0.iter().enumerate() {
                for (order, now) in row.iter().flat_map(|r| r.iter()).enumerate() {
                    let shown = c.kept.as_ref().map_or(*now, |kept| kept.asked.of(asker, order));
                    sum[asker][order].add(&Asked { held: now.held, ..shown });
                }
            }
        }
        let rows = sum.into_iter().enumerate().flat_map(|(asker, row)| {
            row.into_iter().enumerate().map(move |(order, asked)| (Asker::at(asker), order, asked))
        });
        rows.filter(|(_, _, asked)| *asked != Asked::default()).collect()
    }
}
