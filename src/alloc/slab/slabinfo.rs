//! The text of `/proc/slabinfo`, with the columns of a build with statistics if they are asked for.

use super::Slab;
use crate::alloc::{CacheInfo, Counters, Stat, slabinfo_text};
use crate::machine::Machine;

/// What the second header line gains.
const HEADER: &str = " : globalstat <listallocs> <maxobjs> <grown> <reaped> <error> <maxfreeable> <nodeallocs> <remotefrees> <alienoverflow> : cpustat <allochit> <allocmiss> <freehit> <freemiss>";

impl<M: Machine> Slab<'_, M> {
    /// Newest cache first, as the kernel lists them.
    pub(super) fn proc_slabinfo(&mut self) -> String {
        let there = |i: &usize| self.caches[*i].gone.peek() == 0;
        let known: Vec<usize> = (0..self.caches.len()).rev().filter(there).collect();
        let infos: Vec<CacheInfo> = known.iter().map(|i| self.report_info(*i)).collect();
        let text = slabinfo_text(&infos);
        if !self.config.statistics {
            return text;
        }
        let mut ends = vec![" (statistics)".to_string(), HEADER.to_string()];
        ends.extend(known.iter().map(|i| self.statistics(*i)));
        text.lines().zip(ends).map(|(line, end)| format!("{line}{end}\n")).collect()
    }

    /// The statistics of a cache. `error` is never counted by the kernel. (2.6.24 puts more white space in the middle of
    /// `globalstat`; how much is not known here, so both eras have one blank.)
    fn statistics(&mut self, index: usize) -> String {
        let cache = &mut self.caches[index];
        let mut all = Counters::default();
        cache.cpus.iter_mut().for_each(|(_, c)| all.merge(&c.counters));
        let longest = cache.nodes.iter_mut().map(|n| n.lists.get_mut().longest_free).max().unwrap_or(0);
        let (_, high) = cache.active.peek();
        let n = |stat| all.get(stat);
        let (error, nodes) = (0, n(Stat::NodeAllocs));
        let global = format!(
            "{:>7} {:>6} {:>5} {:>4} {error:>4} {longest:>4} {nodes:>4} {:>4} {:>4}",
            n(Stat::Listallocs),
            high,
            n(Stat::Grown),
            n(Stat::Reaped),
            n(Stat::RemoteFrees),
            n(Stat::AlienOverflow),
        );
        let own = [Stat::Allochit, Stat::Allocmiss, Stat::Freehit, Stat::Freemiss].map(|s| format!("{:>6}", n(s)));
        format!(" : globalstat {global} : cpustat {}", own.join(" "))
    }
}
