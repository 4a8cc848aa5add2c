//! Every page of the heap with its blocks, for [`crate::alloc::Map`]. A used block carries nothing: those of the callers are
//! told apart by what they hold, and by kmalloc's headers.

use super::heap::HEAP;
use super::page::{HeapPage, UNIT, units};
use super::{MIN_ALIGN, Slob};
use crate::alloc::{Block, Live, Map, SlabMap, State};
use crate::machine::{Addr, Machine};
use crate::page::{Field, Pfn};
use crate::units::PAGE_SIZE;

impl<M: Machine> Slob<'_, M> {
    pub(super) fn map_objects(&mut self, live: &[Live]) -> Map {
        let mut used: Vec<(Addr, u64, State)> = live.iter().filter_map(|l| self.block_of(*l)).collect();
        used.extend(self.descriptors());
        used.extend(self.waiting_blocks());
        used.sort_by_key(|(at, ..)| *at);
        let mut map = Map::default();
        for pfn in self.pages.taken_frames() {
            if self.pages.peek(pfn, Field::Flags) & HEAP != 0 {
                map.add(self.map_page(pfn, &used));
            }
        }
        map.sort()
    }

    /// The block of what a caller holds; none for blocks of pages.
    fn block_of(&self, (cache, addr): Live) -> Option<(Addr, u64, State)> {
        let pfn = self.pages.pfn_of(addr)?;
        if self.pages.peek(pfn, Field::Flags) & HEAP == 0 {
            return None;
        }
        match cache {
            Some(id) => Some((addr, self.caches[id.0 as usize].size, State::Used)),
            None => {
                let header = Addr(addr.0 - MIN_ALIGN);
                Some((header, self.pages.arena().peek(header) + MIN_ALIGN, State::Used))
            }
        }
    }
    fn descriptors(&self) -> impl Iterator<Item = (Addr, u64, State)> {
        let alive = self.caches.iter().filter(|c| c.destroyed.peek() == 0);
        alive.filter_map(|c| Some((c.descriptor?, self.policy.descriptor, State::Used)))
    }
    fn waiting_blocks(&mut self) -> Vec<(Addr, u64, State)> {
        let caches = &self.caches;
        let blocks = self.waiting.iter_mut().flat_map(|(_, waiting)| waiting.iter());
        let state = || State::Queue("RCU queue".into());
        blocks.map(|(addr, id, _)| (*addr, caches[id.0 as usize].size, state())).collect()
    }

    fn map_page(&self, pfn: Pfn, used: &[(Addr, u64, State)]) -> SlabMap {
        let page = HeapPage::of(self.pages, pfn);
        let start = self.pages.addr_of(pfn);
        let free = page.blocks().map(|b| Block { at: b.at * UNIT, bytes: b.units * UNIT, state: State::Free });
        let from = used.partition_point(|(at, ..)| *at < start);
        let here = used[from..].iter().take_while(|(at, ..)| at.0 < start.0 + PAGE_SIZE);
        let known = here.map(|(at, bytes, state)| Block {
            at: at.0 - start.0,
            bytes: units(*bytes) * UNIT,
            state: state.clone(),
        });
        let mut blocks: Vec<Block> = free.chain(known).collect();
        blocks.sort_by_key(|b| b.at);
        let list = match page.free_units() {
            0 => "full".into(),
            _ => format!("list {}", self.policy.list_names()[self.pages.peek(pfn, Field::Owner) as usize]),
        };
        SlabMap { cache: None, slab: pfn, pages: 1, node: self.pages.node_of(pfn), list, objects: without_gaps(blocks) }
    }
}

/// The blocks of a page in order, with what lies between them: used by nobody who is known.
fn without_gaps(blocks: Vec<Block>) -> Vec<Block> {
    let mut whole = Vec::with_capacity(blocks.len());
    let mut at = 0;
    let gap = |at, end| Block { at, bytes: end - at, state: State::Used };
    for block in blocks {
        if block.at > at {
            whole.push(gap(at, block.at));
        }
        at = block.at + block.bytes;
        whole.push(block);
    }
    if at < PAGE_SIZE {
        whole.push(gap(at, PAGE_SIZE));
    }
    whole
}
