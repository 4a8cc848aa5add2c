//! The invariants of slqb.md §18, walked when no CPU runs.

use super::chain::Chain;
use super::node::{ListId, SLAB};
use super::report::{STATS, Seen, total};
use super::{Cache, CpuSlot};
use crate::alloc::{Counters, Stat};
use crate::error::Corruption;
use crate::machine::{Addr, Machine};
use crate::page::{Field, Pages, Pfn};
use crate::units::PAGE_SIZE;

/// Head frames of the slabs of each cache, found by looking at every frame.
pub(super) fn slabs_by_cache<M: Machine>(pages: &Pages<'_, M>, caches: usize) -> Vec<Vec<Pfn>> {
    let mut slabs = vec![Vec::new(); caches];
    for pfn in pages.taken_frames() {
        if pages.peek(pfn, Field::Flags) & SLAB != 0 {
            slabs[(pages.peek(pfn, Field::Owner) >> 32) as usize - 1].push(pfn);
        }
    }
    slabs
}

impl<M: Machine> Cache<'_, M> {
    /// Objects in users' hands.
    pub(super) fn live(&mut self) -> i64 {
        let count = |(_, s): (_, &mut CpuSlot)| {
            let c = s.caused();
            c.get(Stat::SlqbAlloc) as i64 - c.get(Stat::SlqbFree) as i64 - s.counted_twice as i64
        };
        self.cpus.iter_mut().map(count).sum()
    }

    /// Checks the invariants; `slabs` are the cache's head frames.
    pub(super) fn verify(&mut self, slabs: &[Pfn]) -> Result<(), Corruption> {
        let seen = self.look();
        let live = self.live();
        let mut found: Vec<(Addr, String)> = Vec::new();
        for (i, list) in seen.iter().enumerate() {
            self.verify_slabs(ListId(i as u32), list, slabs)?;
            self.verify_remote(list)?;
            self.collect(list.lifo, &format!("LIFO of {}", list.name), &mut found, |c, pfn| {
                // A node's LIFO holds what was sent home to it; a CPU's anything of its node.
                if i < c.lists.len() - c.nodes.len() {
                    c.pages.node_of(pfn) == c.lists[i].node || !c.numa
                } else {
                    c.owner(pfn) == ListId(i as u32)
                }
            })?;
            self.collect(list.remote, &format!("remote_free of {}", list.name), &mut found, |c, pfn| {
                c.owner(pfn) == ListId(i as u32)
            })?;
        }
        let rlists: Vec<(Chain, Option<ListId>)> = self.cpus.iter_mut().map(|(_, s)| (s.rlist, s.rlist_to)).collect();
        for (cpu, (rlist, to)) in rlists.into_iter().enumerate() {
            let place = format!("rlist of cpu{cpu}");
            let (nr, batch) = (rlist.nr, self.freebatch());
            crate::ensure!(nr < batch || self.is_tuned(), self.at(&place), "{nr} objects ≥ freebatch {batch}");
            self.collect(rlist, &place, &mut found, |c, pfn| Some(c.owner(pfn)) == to)?;
        }
        let queued = found.len() as i64;
        let mut inuse = 0;
        for &pfn in slabs {
            inuse += self.verify_page(pfn, &mut found)? as i64;
        }
        crate::ensure!(
            inuse == live + queued,
            self.spec.name.clone(),
            "Σ inuse {inuse} ≠ live {live} + queued {queued}"
        );
        found.sort();
        for pair in found.windows(2) {
            let ((x, here), (y, there)) = (&pair[0], &pair[1]);
            crate::ensure!(x != y, self.spec.name.clone(), "object {x:?} is on {here} and on {there}");
        }
        self.verify_bytes(slabs, &found)?;
        self.verify_lengths()?;
        self.verify_pages(slabs.len() as u64)?;
        self.verify_counters(&seen)
    }

    /// With debugging: free objects look free, the others used.
    fn verify_bytes(&self, slabs: &[Pfn], free: &[(Addr, String)]) -> Result<(), Corruption> {
        if !self.geometry.debug.any() {
            return Ok(());
        }
        for &pfn in slabs {
            for i in 0..self.geometry.objects {
                let x = self.object(pfn, i);
                let in_use = free.binary_search_by_key(&x, |(y, _)| *y).is_err();
                let checked = self.check(x, in_use);
                crate::ensure!(checked.is_ok(), self.at(&format!("slab {pfn:?}")), "{}", checked.unwrap_err());
            }
        }
        Ok(())
    }

    /// A LIFO is not longer than hiwater, unless a claim lifted it.
    fn verify_lengths(&mut self) -> Result<(), Corruption> {
        let (hiwater, name) = (self.hiwater(), self.spec.name.clone());
        if self.is_tuned() {
            return Ok(());
        }
        for (cpu, s) in self.cpus.iter_mut() {
            let (nr, most) = (s.lifo.nr, hiwater.max(s.lifted));
            crate::ensure!(nr <= most, format!("{name}: LIFO of cpu{cpu}"), "{nr} objects > {most}");
        }
        Ok(())
    }

    /// Pages taken less pages returned are those of the slabs, and of those that wait for a grace period.
    fn verify_pages(&mut self, slabs: u64) -> Result<(), Corruption> {
        let (pages, order) = (self.pages, self.geometry.order.pages());
        let [taken, returned] = self.page_counts();
        let waiting: u64 = self.cpus.iter_mut().map(|(_, s)| s.waiting.iter(pages).count() as u64).sum();
        crate::ensure!(
            taken == returned + (slabs + waiting) * order,
            self.at("pages"),
            "taken {taken} ≠ returned {returned} + {slabs} slabs and {waiting} waiting of {order} pages"
        );
        Ok(())
    }

    /// Pages taken and returned since the cache was made.
    pub(super) fn page_counts(&mut self) -> [u64; 2] {
        let cpus = self.cpus.iter_mut();
        cpus.fold([0, 0], |[taken, returned], (_, s)| [taken + s.pages_taken, returned + s.pages_returned])
    }
    fn is_tuned(&self) -> bool {
        self.tuned.peek() != 0
    }

    /// The place of a finding.
    fn at(&self, place: &str) -> String {
        format!("{}: {place}", self.spec.name)
    }

    fn verify_slabs(&self, l: ListId, list: &Seen, slabs: &[Pfn]) -> Result<(), Corruption> {
        let place = || self.at(&format!("slabs of {}", list.name));
        let owned: Vec<Pfn> = slabs.iter().copied().filter(|p| self.owner(*p) == l).collect();
        let (len, nr) = (list.partial.len(), list.nr_partial);
        crate::ensure!(len as u64 == nr, place(), "nr_partial {nr} ≠ length {len}");
        let n = owned.len();
        crate::ensure!(n as u64 == list.nr_slabs, place(), "nr_slabs {} ≠ {n} slabs owned", list.nr_slabs);
        let mut expected: Vec<Pfn> = owned.iter().copied().filter(|p| self.inuse(*p) < self.geometry.objects).collect();
        let mut partial = list.partial.clone();
        expected.sort();
        partial.sort();
        crate::ensure!(partial == expected, place(), "partial list {partial:?} ≠ slabs with free objects {expected:?}");
        for pfn in owned {
            let (node, home) = (self.pages.node_of(pfn), self.list(l).node);
            crate::ensure!(!self.numa || node == home, place(), "slab {pfn:?} is of node {node}, the list of {home}");
        }
        Ok(())
    }

    fn verify_remote(&self, list: &Seen) -> Result<(), Corruption> {
        let place = || self.at(&format!("remote_free of {}", list.name));
        let (nr, batch) = (list.remote.nr, self.freebatch());
        crate::ensure!(nr == list.remote_nr, place(), "published length {} ≠ {nr}", list.remote_nr);
        let check = list.check;
        if self.is_tuned() {
            return Ok(());
        }
        crate::ensure!((check == 1) == (nr >= batch), place(), "check {check} with {nr} objects, freebatch {batch}");
        let cpus = (self.lists.len() - self.nodes.len()) as u64;
        let bound = self.hiwater() / 2 + batch.saturating_mul(cpus);
        crate::ensure!(nr <= bound, place(), "{nr} objects > hiwater/2 + freebatch·CPUs = {bound}");
        Ok(())
    }

    fn verify_page(&self, pfn: Pfn, found: &mut Vec<(Addr, String)>) -> Result<u64, Corruption> {
        let place = || self.at(&format!("slab {pfn:?}"));
        let (inuse, objects) = (self.inuse(pfn), self.geometry.objects);
        crate::ensure!((1..=objects).contains(&inuse), place(), "inuse {inuse} is not in 1..{objects}");
        let head = Addr(self.pages.peek(pfn, Field::Extra));
        let free = self.links().walk(head, objects - inuse, self.last_link());
        let n = free.len() as u64;
        crate::ensure!(inuse + n == objects, place(), "inuse {inuse} + free list {n} ≠ {objects}");
        for x in free {
            let home = self.pages.peek_head(x);
            crate::ensure!(self.is_object(x) && home == Some(pfn), place(), "free list holds {x:?}, no object of it");
            found.push((x, format!("free list of {pfn:?}")));
        }
        Ok(inuse)
    }

    /// First address at which a link would reach past memory.
    pub(super) fn last_link(&self) -> Addr {
        Addr((self.pages.frames() * PAGE_SIZE).saturating_sub(self.geometry.offset + 7))
    }

    /// Walks a queue: as long as it says, ending at its tail, of objects whose slab `belongs`.
    fn collect(
        &self,
        chain: Chain,
        place: &str,
        found: &mut Vec<(Addr, String)>,
        belongs: impl Fn(&Self, Pfn) -> bool,
    ) -> Result<(), Corruption> {
        let objects = chain.walk(self.links(), self.last_link());
        let n = objects.len() as u64;
        crate::ensure!(n == chain.nr, self.at(place), "nr {} ≠ length {n}", chain.nr);
        let last = objects.last().copied();
        crate::ensure!(
            last.is_none_or(|x| x == chain.tail),
            self.at(place),
            "tail {:?} ≠ last object {last:?}",
            chain.tail
        );
        for x in objects {
            let home = self.pages.peek_head(x).filter(|_| self.is_object(x));
            crate::ensure!(home.is_some_and(|p| belongs(self, p)), self.at(place), "{x:?} does not belong there");
            found.push((x, place.into()));
        }
        Ok(())
    }

    fn verify_counters(&mut self, seen: &[Seen]) -> Result<(), Corruption> {
        let (by_list, by_cpu) = (total(seen), {
            let mut sum = Counters::default();
            self.cpus.iter_mut().for_each(|(_, s)| sum.merge(&s.caused()));
            sum
        });
        let place = || self.at("counters");
        for stat in STATS {
            let (a, b) = (by_list.get(stat), by_cpu.get(stat));
            crate::ensure!(a == b, place(), "{} is {a} over lists and {b} over CPUs", stat.name());
        }
        let get = |s| by_list.get(s);
        let slabs: u64 = seen.iter().map(|l| l.nr_slabs).sum();
        let (new, gone) = (get(Stat::AllocSlabNew), get(Stat::FlushSlabFree));
        crate::ensure!(new == gone + slabs, place(), "slabs made {new} ≠ freed {gone} + present {slabs}");
        for (less, more) in [
            (Stat::AllocSlabNew, Stat::AllocSlabFill),
            (Stat::FlushFreeListRemote, Stat::FlushFreeListObjects),
            (Stat::ClaimRemoteListObjects, Stat::FlushRfreeListObjects),
        ] {
            let (a, b) = (get(less), get(more));
            crate::ensure!(a <= b, place(), "{} {a} > {} {b}", less.name(), more.name());
        }
        Ok(())
    }
}
