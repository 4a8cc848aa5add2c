//! Exact residency: caches of sets and ways, least recently used line goes (machine-model.md §3.3). The optional check of
//! the fill-count rule.

use crate::topology::Topology;
use crate::units::CpuId;

/// One cache. A tag is a line number + 1; 0 is an empty way.
struct Cache {
    sets: usize,
    ways: usize,
    /// Tag and time of last use, `ways` per set.
    slots: Vec<(u64, u64)>,
    clock: u64,
}

impl Cache {
    fn new((sets, ways): (usize, usize)) -> Cache {
        Cache { sets, ways, slots: vec![(0, 0); sets * ways], clock: 0 }
    }
    fn set(&self, line: u64) -> std::ops::Range<usize> {
        let first = (line % self.sets as u64) as usize * self.ways;
        first..first + self.ways
    }
    fn holds(&self, line: u64) -> bool {
        self.slots[self.set(line)].iter().any(|s| s.0 == line + 1)
    }
    /// Uses a line: it comes in if it was not there.
    fn touch(&mut self, line: u64) {
        if self.ways == 0 {
            return;
        }
        self.clock += 1;
        let clock = self.clock;
        let range = self.set(line);
        let set = &mut self.slots[range];
        let at = set.iter().position(|s| s.0 == line + 1);
        let at = at.or_else(|| (0..set.len()).min_by_key(|&i| set[i].1)).expect("a way");
        set[at] = (line + 1, clock);
    }
    fn drop_line(&mut self, line: u64) {
        let range = self.set(line);
        for slot in &mut self.slots[range] {
            if slot.0 == line + 1 {
                *slot = (0, 0);
            }
        }
    }
}

/// The caches of a machine.
pub(super) struct Exact {
    l1: Vec<Cache>,
    l2: Vec<Cache>,
    llc: Vec<Cache>,
    /// First-level, second-level and last-level cache of each CPU.
    of: Vec<[usize; 3]>,
    /// Line numbers of memory that nobody names (user code), beyond all real ones.
    foreign: u64,
}

/// Most lines of foreign memory used before the numbers start again.
const FOREIGN_SPAN: u64 = 1 << 22;
/// First line number of foreign memory.
const FOREIGN: u64 = 1 << 48;

impl Exact {
    pub(super) fn new(topology: &Topology, shape: [(usize, usize); 3]) -> Exact {
        let of: Vec<[usize; 3]> = (0..topology.cpus())
            .map(|c| {
                let place = topology.place(CpuId(c as u16));
                [usize::from(place.core), usize::from(place.l2), usize::from(place.llc)]
            })
            .collect();
        let caches = |level: usize| {
            let count = of.iter().map(|o| o[level]).max().map_or(0, |m| m + 1);
            (0..count).map(|_| Cache::new(shape[level])).collect()
        };
        Exact { l1: caches(0), l2: caches(1), llc: caches(2), of, foreign: 0 }
    }

    /// The innermost level at which `cpu` holds a line: 0, 1, 2, or 3 for none.
    pub(super) fn level(&self, cpu: usize, line: usize) -> usize {
        let [l1, l2, llc] = self.of[cpu];
        let line = line as u64;
        if self.l1[l1].holds(line) {
            0
        } else if self.l2[l2].holds(line) {
            1
        } else if self.llc[llc].holds(line) {
            2
        } else {
            3
        }
    }

    /// `cpu` uses a line: it is in all its levels then.
    pub(super) fn touch(&mut self, cpu: usize, line: usize) {
        let [l1, l2, llc] = self.of[cpu];
        let line = line as u64;
        self.l1[l1].touch(line);
        self.l2[l2].touch(line);
        self.llc[llc].touch(line);
    }

    /// Another CPU has taken the line for itself: `cpu` holds it no longer.
    pub(super) fn take_away(&mut self, cpu: usize, line: usize) {
        let [l1, l2, llc] = self.of[cpu];
        self.l1[l1].drop_line(line as u64);
        self.l2[l2].drop_line(line as u64);
        self.llc[llc].drop_line(line as u64);
    }

    /// `cpu` uses `lines` lines of memory that nobody names. They come into its first-level cache, and into the second-level
    /// one unless they are `hot` there: what the fill counts count too, so that the two rules see the same memory.
    pub(super) fn footprint(&mut self, cpu: usize, lines: u32, hot: bool) {
        let [l1, l2, _] = self.of[cpu];
        for _ in 0..lines {
            self.foreign = (self.foreign + 1) % FOREIGN_SPAN;
            self.l1[l1].touch(FOREIGN + self.foreign);
            if !hot {
                self.l2[l2].touch(FOREIGN + self.foreign);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_line_of_a_set_goes() {
        let mut cache = Cache::new((4, 2));
        for line in [0, 4, 0, 8] {
            cache.touch(line);
        }
        assert!(cache.holds(0) && cache.holds(8) && !cache.holds(4));
        cache.drop_line(8);
        assert!(!cache.holds(8));
        cache.touch(4);
        assert!(cache.holds(0) && cache.holds(4), "an empty way is used first");
    }
}
