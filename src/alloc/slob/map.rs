//! The heap as text: figures per list, and a map of every page. SLOB has no slabinfo; this is instead of it.

use super::Slob;
use super::heap::HEAP;
use super::page::{HeapPage, UNITS};
use crate::machine::Machine;
use crate::page::{Field, Pfn};
use crate::units::PAGE_SIZE;

/// Characters of a page in a map.
const CELLS: u64 = 64;
/// Heaps of more pages are not drawn.
const DRAWN: u64 = 64;

impl<M: Machine> Slob<'_, M> {
    /// Pages, live bytes and efficiency; per list pages, free units, free blocks and fragmentation; for a small heap the map.
    pub(super) fn heap_as_text(&mut self) -> String {
        let heap = self.heap();
        let mut text = format!(
            "slob: {} heap pages, {} big pages ({} KiB), {} bytes live, efficiency {:.1} %\n",
            heap.heap_pages,
            heap.big_pages,
            (heap.heap_pages + heap.big_pages) * PAGE_SIZE / 1024,
            heap.live_bytes,
            100.0 * heap.efficiency()
        );
        text += "list      pages  free units  free blocks  touching  fragmentation\n";
        for l in &heap.lists {
            let fragmentation = 100.0 * l.fragmentation();
            text += &format!(
                "{:<8} {:>6} {:>11} {:>12} {:>9} {fragmentation:>12.1} %\n",
                l.name, l.pages, l.free_units, l.free_blocks, l.touching
            );
        }
        if heap.heap_pages <= DRAWN {
            text += &self.map();
        }
        text
    }

    /// A line per page of the heap, 64 bytes a character: `#` used, `.` free, `+` both. Free blocks that touch one another
    /// alternate between `.` and `:`.
    pub fn map(&self) -> String {
        let heap = self.pages.taken_frames();
        let heap = heap.filter(|p| self.pages.peek(*p, Field::Flags) & HEAP != 0);
        heap.map(|pfn| format!("page {:>6} {:>4} free |{}|\n", pfn.0, self.page(pfn).free_units(), self.row(pfn)))
            .collect()
    }

    fn row(&self, pfn: Pfn) -> String {
        let per_cell = UNITS / CELLS;
        // 0: used; 1, 2: free, by turns.
        let mut units = vec![0u8; UNITS as usize];
        let mut last = (UNITS, 2u8);
        for block in self.page(pfn).blocks() {
            let mark = if last.0 == block.at { 3 - last.1 } else { 1 };
            units[block.at as usize..block.end().min(UNITS) as usize].fill(mark);
            last = (block.end(), mark);
        }
        let cell = |cell: &[u8]| match cell {
            [first, rest @ ..] if rest.iter().all(|m| m == first) => [b'#', b'.', b':'][usize::from(*first)],
            _ => b'+',
        };
        units.chunks(per_cell as usize).map(|c| char::from(cell(c))).collect()
    }
    fn page(&self, pfn: Pfn) -> HeapPage<'_, '_, M> {
        HeapPage::of(self.pages, pfn)
    }
}
