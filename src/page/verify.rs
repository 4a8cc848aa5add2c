//! The invariants of this floor, walked.

use crate::error::Corruption;
use crate::machine::Machine;
use crate::units::CpuId;

use super::Pages;
use super::frame::{self, Field, Pfn};

impl<M: Machine> Pages<'_, M> {
    /// Walks all lists and checks the invariants of this module. When no CPU runs.
    pub fn verify(&mut self) -> Result<(), Corruption> {
        let mut seen = vec![false; self.frames as usize];
        let (mut free, mut cached) = (0, 0);
        let machine = self.machine;
        for (z, zone) in self.zones.iter_mut().enumerate() {
            let zone = zone.get_mut();
            let place = || format!("zone {z}");
            free += zone.verify(&self.arena, self.map, &mut seen, z, || machine.poll())?;
            let published = self.published[z].free.peek();
            crate::ensure!(published == zone.free, place(), "published free count {published} ≠ {}", zone.free);
            for (o, (word, n)) in self.published[z].nr_free.iter().zip(zone.nr_free).enumerate() {
                crate::ensure!(word.peek() == n, place(), "published nr_free[{o}] {} ≠ {n}", word.peek());
            }
        }
        let (arena, map) = (&self.arena, self.map);
        let mut lists: Vec<(CpuId, usize, u32, Vec<_>)> = Vec::new();
        for (cpu, c) in self.cpus.iter_mut() {
            lists.extend(c.sets.iter().enumerate().map(|(z, s)| (cpu, z, s.count, s.blocks(arena, map))));
        }
        for (cpu, z, count, blocks) in lists {
            let place = || format!("pcp lists of CPU {cpu}, zone {z}");
            let mut sum = 0;
            for (pfn, order) in blocks {
                crate::ensure!(usize::from(self.node_of(pfn).0) == z, place(), "page {pfn:?} lies in another zone");
                let mark = self.peek(pfn, Field::Private);
                crate::ensure!(mark == frame::on_list(order), place(), "block {pfn:?} has mark {mark:#x}");
                let zone = self.zones[z].get_mut();
                crate::ensure!(!zone.is_untouched(pfn), place(), "page {pfn:?} is free and untouched too");
                for i in pfn.0..pfn.0 + order.pages() as u32 {
                    crate::ensure!(!seen[i as usize], place(), "page {:?} is also elsewhere", Pfn(i));
                    seen[i as usize] = true;
                }
                sum += order.pages();
            }
            crate::ensure!(sum == u64::from(count), place(), "count {count} but {sum} pages on the lists");
            cached += sum;
        }
        if self.model.is_buddy() {
            let (lent, held) = (self.lent(), self.held);
            crate::ensure!(
                lent + cached + free + held == self.frames,
                "pages",
                "lent {lent} + cached {cached} + free {free} + held {held} ≠ {}",
                self.frames
            );
        }
        Ok(())
    }
}
