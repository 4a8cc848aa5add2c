//! What the page allocator counts and shows.

use std::fmt::Write as _;

use crate::machine::Machine;
use crate::units::{CpuId, MAX_ORDER, NodeId};

use super::{Kept, Pages};

/// Event counts of the page allocator, per CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStats {
    /// Successful allocations per order.
    pub allocated: [u64; MAX_ORDER],
    /// Returned blocks per order.
    pub freed: [u64; MAX_ORDER],
    /// Requests refused in the end, per order. Not those that the caller repeats or makes up for (see [`super::Asked`]).
    pub failed: [u64; MAX_ORDER],
    /// Order-0 allocations served by the per-CPU list without the zone lock.
    pub pcp_hit: u64,
    /// Refills of a per-CPU list.
    pub pcp_refill: u64,
    /// Returns from a full per-CPU list.
    pub pcp_return: u64,
    /// Pages taken by refills.
    pub pages_refilled: u64,
    /// Pages given back by returns.
    pub pages_returned: u64,
    /// Times the zone lock was taken.
    pub zone_lock: u64,
    /// Splits of a block.
    pub split: u64,
    /// Merges of two buddies.
    pub merge: u64,
    /// Blocks that came from another node than the one asked for.
    pub fallback_node: u64,
    /// Pages that left the per-CPU lists by a drain or the tick of once a second.
    pub drained: u64,
}

impl PageStats {
    /// The counts that are not per order, by their names.
    pub fn named(&self) -> [(&'static str, u64); 10] {
        [
            ("pcp_hit", self.pcp_hit),
            ("pcp_refill", self.pcp_refill),
            ("pcp_return", self.pcp_return),
            ("pages_refilled", self.pages_refilled),
            ("pages_returned", self.pages_returned),
            ("zone_lock", self.zone_lock),
            ("split", self.split),
            ("merge", self.merge),
            ("fallback_node", self.fallback_node),
            ("drain", self.drained),
        ]
    }
    /// Adds another CPU's counts.
    pub fn add(&mut self, other: &PageStats) {
        for o in 0..MAX_ORDER {
            self.allocated[o] += other.allocated[o];
            self.freed[o] += other.freed[o];
            self.failed[o] += other.failed[o];
        }
        self.pcp_hit += other.pcp_hit;
        self.pcp_refill += other.pcp_refill;
        self.pcp_return += other.pcp_return;
        self.pages_refilled += other.pages_refilled;
        self.pages_returned += other.pages_returned;
        self.zone_lock += other.zone_lock;
        self.split += other.split;
        self.merge += other.merge;
        self.fallback_node += other.fallback_node;
        self.drained += other.drained;
    }
}

impl<M: Machine> Pages<'_, M> {
    /// Counts summed over CPUs and zones.
    pub fn stats(&mut self) -> PageStats {
        let mut sum = PageStats::default();
        self.stats_by_place().iter().for_each(|(_, _, s)| sum.add(s));
        sum
    }
    /// The counts of each CPU and zone.
    pub fn stats_by_place(&mut self) -> Vec<(CpuId, NodeId, PageStats)> {
        let zones = |(cpu, stats): (CpuId, Vec<PageStats>)| {
            stats.into_iter().enumerate().map(move |(n, s)| (cpu, NodeId(n as u16), s))
        };
        self.cpus
            .iter_mut()
            .map(|(cpu, c)| (cpu, c.kept.as_ref().map_or(&c.stats, |kept| &kept.stats).clone()))
            .flat_map(zones)
            .collect()
    }
    /// From now on reports show the counts of this moment: the end of a measurement, run by each CPU. What is held they show
    /// as it is.
    pub fn keep_stats(&self, cpu: &M::Cpu) {
        self.cpus.with(cpu, |c| c.kept = Some(Kept { stats: c.stats.clone(), asked: c.asked.clone() }));
    }
    /// Sets all counts to zero: the end of a warm-up, run by each CPU.
    pub fn reset_stats(&self, cpu: &M::Cpu) {
        self.cpus.with(cpu, |c| {
            c.stats.fill(PageStats::default());
            c.asked.reset();
        });
    }
    /// Free blocks of each order, one row per node (kernel: /proc/buddyinfo).
    pub fn buddyinfo(&mut self) -> Vec<[u64; MAX_ORDER]> {
        self.zones.iter_mut().map(|z| z.get_mut().nr_free).collect()
    }
    /// Free blocks of each order on all nodes, as readers without the zone locks see them: a sample while CPUs run.
    pub fn free_now(&self) -> [u64; MAX_ORDER] {
        std::array::from_fn(|o| self.published.iter().map(|p| p.nr_free[o].peek()).sum())
    }
    /// The text of `/proc/buddyinfo`, to the last blank.
    pub fn buddyinfo_text(&mut self) -> String {
        buddyinfo_text(&self.buddyinfo())
    }
}

fn buddyinfo_text(rows: &[[u64; MAX_ORDER]]) -> String {
    let mut text = String::new();
    for (node, row) in rows.iter().enumerate() {
        write!(text, "Node {node}, zone {:>8} ", "Normal").expect("a string");
        row.iter().for_each(|n| write!(text, "{n:>6} ").expect("a string"));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buddyinfo_prints_six_columns_per_order_each_with_a_blank_behind() {
        let text =
            buddyinfo_text(&[[400, 200, 50, 10, 2, 1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 2, 1, 1, 0, 1, 1, 1_234_567]]);
        let lines = [
            "Node 0, zone   Normal    400    200     50     10      2      1      0      0      0      0      0 \n",
            "Node 1, zone   Normal      1      1      1      0      2      1      1      0      1      1 1234567 \n",
        ];
        assert_eq!(text, lines.concat());
    }
}
