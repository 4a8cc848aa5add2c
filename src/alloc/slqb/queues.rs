//! Who holds what: objects, slabs and queues per cache, CPU and node, with the events that moved them. SLQB had no tool
//! that showed this. When no CPU runs.

use serde::Serialize;
use serde_json::{Value, json};

use super::report::{Seen, total};
use super::{Cache, Slqb};
use crate::alloc::{Counters, Stat};
use crate::machine::Machine;

/// A cache: sums over its lists, and the lists. `slabs · objects per slab = objects + lifo + rlist + remote_free + free
/// in pages`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheQueues {
    /// Name of the cache.
    pub name: String,
    /// Objects that users hold.
    pub objects: u64,
    /// Pages of its slabs.
    pub pages: u64,
    /// Objects of one slab.
    pub objects_per_slab: u64,
    /// LIFO length above which a batch is flushed.
    pub hiwater: u64,
    /// Objects of a batch.
    pub freebatch: u64,
    /// Everything summed over the lists.
    pub sum: ListQueues,
    /// CPU lists, then node lists.
    pub lists: Vec<ListQueues>,
}

/// A list: its slabs, its queues, and what has happened to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ListQueues {
    /// `cpu0`, …, `node0`, …; empty for a sum.
    pub name: String,
    /// Slabs it owns.
    pub slabs: u64,
    /// Those with free objects.
    pub partial: u64,
    /// Free objects in its pages.
    pub free_in_pages: u64,
    /// Free objects on the LIFO.
    pub lifo: u64,
    /// Free objects on their way to another list (CPUs only).
    pub rlist: u64,
    /// The list they are for.
    pub rlist_to: Option<String>,
    /// Free objects that others have sent home.
    pub remote_free: u64,
    /// The owner has been told of them.
    pub check: bool,
    /// Allocations, and those that needed no slab.
    pub allocs: u64,
    /// Allocations from LIFO and claimed objects.
    pub alloc_fast: u64,
    /// Frees.
    pub frees: u64,
    /// Frees of another node's object.
    pub remote_frees: u64,
    /// Batches flushed from the LIFO.
    pub flushes: u64,
    /// Objects of those.
    pub flushed: u64,
    /// Objects of those that belonged to another list.
    pub flushed_remote: u64,
    /// Rlists sent home, spliced or freed into pages.
    pub sent: u64,
    /// Objects of those.
    pub sent_objects: u64,
    /// `remote_free` lists taken.
    pub claims: u64,
    /// Objects of those.
    pub claimed: u64,
}

impl ListQueues {
    /// Frees that neither flushed nor left the node.
    pub fn free_fast(&self) -> u64 {
        self.frees.saturating_sub(self.flushes + self.remote_frees)
    }
    fn counted(self, c: &Counters) -> ListQueues {
        let get = |s| c.get(s);
        ListQueues {
            allocs: get(Stat::SlqbAlloc),
            alloc_fast: get(Stat::SlqbAlloc).saturating_sub(get(Stat::AllocSlabFill)),
            frees: get(Stat::SlqbFree),
            remote_frees: get(Stat::FreeRemote),
            flushes: get(Stat::FlushFreeList),
            flushed: get(Stat::FlushFreeListObjects),
            flushed_remote: get(Stat::FlushFreeListRemote),
            sent: get(Stat::FlushRfreeList),
            sent_objects: get(Stat::FlushRfreeListObjects),
            claims: get(Stat::ClaimRemoteList),
            claimed: get(Stat::ClaimRemoteListObjects),
            ..self
        }
    }
    /// True if there is nothing to say.
    fn is_idle(&self) -> bool {
        self.slabs + self.lifo + self.rlist + self.remote_free + self.allocs + self.frees + self.claims == 0
    }
    fn line(&self, name: &str, objects: Option<u64>, pages: Option<u64>) -> String {
        let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
        let pct = |part, all| percent(part, all).map_or("-".into(), |p| format!("{p:.1}"));
        let remote = format!("{}{}", self.remote_free, if self.check { "!" } else { "" });
        let to = self.rlist_to.as_ref().map_or(String::new(), |to| format!("  rlist to {to}"));
        format!(
            "{name:<20} {:>8} {:>6} {:>7} {:>6} {:>7} {:>7} {:>6} {:>7} {:>9} {:>6} {:>9} {:>6} {:>7} {:>8} {:>8} {:>6} {:>8} {:>7} {:>8} {:>8}{to}\n",
            number(objects),
            self.slabs,
            self.partial,
            number(pages),
            self.free_in_pages,
            self.lifo,
            self.rlist,
            remote,
            self.allocs,
            pct(self.alloc_fast, self.allocs),
            self.frees,
            pct(self.free_fast(), self.frees),
            self.flushes,
            self.flushed,
            self.flushed_remote,
            self.sent,
            self.sent_objects,
            self.claims,
            self.claimed,
            self.remote_frees,
        )
    }
}

impl<M: Machine> Cache<'_, M> {
    /// The queues of this cache.
    pub(super) fn queues(&mut self) -> CacheQueues {
        let seen = self.look();
        let objects = self.live().max(0) as u64;
        let free = |l: &Seen| l.partial.iter().map(|p| self.geometry.objects - self.inuse(*p)).sum();
        let mut lists: Vec<ListQueues> = seen
            .iter()
            .map(|l| {
                ListQueues {
                    name: l.name.clone(),
                    slabs: l.nr_slabs,
                    partial: l.nr_partial,
                    free_in_pages: free(l),
                    lifo: l.lifo.nr,
                    remote_free: l.remote.nr,
                    check: l.check != 0,
                    ..ListQueues::default()
                }
                .counted(&l.counters)
            })
            .collect();
        for ((_, s), list) in self.cpus.iter_mut().zip(&mut lists) {
            list.rlist = s.rlist.nr;
            list.rlist_to = s.rlist_to.filter(|_| s.rlist.nr > 0).map(|l| seen[l.0 as usize].name.clone());
        }
        let sum = |figure: fn(&ListQueues) -> u64| lists.iter().map(figure).sum::<u64>();
        let sum = ListQueues {
            slabs: sum(|l| l.slabs),
            partial: sum(|l| l.partial),
            free_in_pages: sum(|l| l.free_in_pages),
            lifo: sum(|l| l.lifo),
            rlist: sum(|l| l.rlist),
            remote_free: sum(|l| l.remote_free),
            check: lists.iter().any(|l| l.check),
            ..ListQueues::default()
        }
        .counted(&total(&seen));
        CacheQueues {
            name: self.spec.name.clone(),
            objects,
            pages: sum.slabs * self.geometry.order.pages(),
            objects_per_slab: self.geometry.objects,
            hiwater: self.hiwater(),
            freebatch: self.freebatch(),
            sum,
            lists,
        }
    }
}

/// A share in percent; none of nothing.
fn percent(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| 100.0 * part as f64 / all as f64)
}

impl CacheQueues {
    /// A row per list that had to do with the cache.
    fn rows(&self) -> impl Iterator<Item = Value> {
        self.lists.iter().filter(|l| !l.is_idle()).map(|l| {
            json!({
                "cache": self.name, "list": l.name, "slabs": l.slabs, "partial": l.partial,
                "total_objects": l.slabs * self.objects_per_slab, "free_in_pages": l.free_in_pages,
                "lifo": l.lifo, "rlist": l.rlist, "rlist_to": l.rlist_to.clone().unwrap_or_default(),
                "remote_free": l.remote_free, "check": u64::from(l.check), "hiwater": self.hiwater, "freebatch": self.freebatch,
                "allocs": l.allocs, "alloc_fast": l.alloc_fast, "alloc_fast_pct": percent(l.alloc_fast, l.allocs),
                "frees": l.frees, "free_fast": l.free_fast(), "free_fast_pct": percent(l.free_fast(), l.frees),
                "remote_frees": l.remote_frees, "flushes": l.flushes, "flushed": l.flushed,
                "flushed_remote": l.flushed_remote, "sent": l.sent, "sent_objects": l.sent_objects,
                "claims": l.claims, "claimed": l.claimed,
            })
        })
    }
}

impl<M: Machine> Slqb<'_, M> {
    /// The queues of every cache that has been used, newest first, a row per list.
    pub(super) fn queues_as_rows(&mut self) -> Vec<Value> {
        self.queues().iter().flat_map(CacheQueues::rows).collect()
    }
    /// The queues of every cache that has been used, newest first.
    pub fn queues(&mut self) -> Vec<CacheQueues> {
        let order: Vec<usize> = self.newest_first().filter(|i| self.caches[*i].alive()).collect();
        order.into_iter().map(|i| self.caches[i].queues()).filter(|c| !c.sum.is_idle()).collect()
    }
    /// The same as text: a line per cache, and below it one per CPU and node that had to do with it. `remote!`: the owner
    /// has been told.
    pub(super) fn queues_as_text(&mut self) -> String {
        let mut text = format!(
            "{:<20} {:>8} {:>6} {:>7} {:>6} {:>7} {:>7} {:>6} {:>7} {:>9} {:>6} {:>9} {:>6} {:>7} {:>8} {:>8} {:>6} {:>8} {:>7} {:>8} {:>8}\n",
            "Name",
            "Objects",
            "Slabs",
            "Partial",
            "Pages",
            "Free",
            "LIFO",
            "Rlist",
            "Remote",
            "Allocs",
            "Fast%",
            "Frees",
            "Fast%",
            "Flushes",
            "Flushed",
            "Foreign",
            "Sent",
            "Objects",
            "Claims",
            "Claimed",
            "RFrees"
        );
        for cache in self.queues() {
            text += &cache.sum.line(&cache.name, Some(cache.objects), Some(cache.pages));
            for list in cache.lists.iter().filter(|l| !l.is_idle()) {
                text += &list.line(&format!("  {}", list.name), None, None);
            }
        }
        text
    }
}
