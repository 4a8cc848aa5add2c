//! Where a zone's memory is: free in blocks of which order, on per-CPU lists, lent, held by fragmentation.

use crate::machine::Machine;
use crate::units::{MAX_ORDER, NodeId, Order};

use super::Pages;
use super::frame::{Field, HELD, Pfn};

/// Cells of a zone's map at most.
const MOST: u64 = 256;

/// An aligned stretch of a zone: `pages = free + listed + held + lent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Node of the zone.
    pub node: NodeId,
    /// First frame.
    pub first: Pfn,
    /// Pages of it.
    pub pages: u64,
    /// Pages in free blocks.
    pub free: u64,
    /// Pages on per-CPU lists.
    pub listed: u64,
    /// Pages that fragmentation holds.
    pub held: u64,
    /// Order of the largest free block that begins, ends or lies here.
    pub largest: Option<Order>,
}

impl Cell {
    /// Pages that somebody has.
    pub fn lent(&self) -> u64 {
        self.pages - self.free - self.listed - self.held
    }
}

/// The cells of one zone.
struct Grid {
    first: u64,
    size: u64,
    cells: Vec<Cell>,
}

impl Grid {
    fn new(node: NodeId, first: Pfn, pages: u64) -> Grid {
        let (first, size) = (u64::from(first.0), pages.div_ceil(MOST).next_power_of_two());
        let cell = |i: u64| Cell {
            node,
            first: Pfn((first + i * size) as u32),
            pages: size.min(pages - i * size),
            free: 0,
            listed: 0,
            held: 0,
            largest: None,
        };
        Grid { first, size, cells: (0..pages.div_ceil(size)).map(cell).collect() }
    }
    /// Each cell that `pages` pages from `at` on lie in, with how many of them.
    fn spread(&mut self, at: Pfn, pages: u64, mut f: impl FnMut(&mut Cell, u64)) {
        if pages == 0 {
            return;
        }
        let (mut at, end) = (u64::from(at.0) - self.first, u64::from(at.0) - self.first + pages);
        while at < end {
            let next = ((at / self.size + 1) * self.size).min(end);
            f(&mut self.cells[(at / self.size) as usize], next - at);
            at = next;
        }
    }
    fn free(&mut self, at: Pfn, pages: u64, order: usize) {
        let order = Some(Order(order as u8));
        self.spread(at, pages, |cell, n| {
            cell.free += n;
            cell.largest = cell.largest.max(order);
        });
    }
}

impl<M: Machine> Pages<'_, M> {
    /// A map of every zone with memory, in cells of equal size. When no CPU runs.
    pub fn zone_map(&mut self) -> Vec<Cell> {
        let t = self.machine.topology();
        let pages = |n: usize| t.node_bytes(NodeId(n as u16)) / crate::units::PAGE_SIZE;
        let firsts = self.zone_of.iter().enumerate();
        let mut grids: Vec<Grid> = firsts.map(|(n, (first, node))| Grid::new(*node, *first, pages(n))).collect();
        for (zone, grid) in self.zones.iter_mut().zip(&mut grids) {
            let zone = zone.get_mut();
            for order in 0..MAX_ORDER {
                for pfn in zone.linked(&self.arena, self.map, order) {
                    grid.free(pfn, 1 << order, order);
                }
            }
            let [first, end] = zone.untouched();
            grid.free(Pfn(first), u64::from(end - first), MAX_ORDER - 1);
        }
        for (_, c) in self.cpus.iter_mut() {
            for (set, grid) in c.sets.iter().zip(&mut grids) {
                for (pfn, order) in set.blocks(&self.arena, self.map) {
                    grid.spread(pfn, order.pages(), |cell, n| cell.listed += n);
                }
            }
        }
        let mut cells: Vec<Cell> = grids.into_iter().flat_map(|g| g.cells).collect();
        if self.held > 0 {
            for cell in &mut cells {
                let held = |i: u64| self.peek(Pfn(cell.first.0 + i as u32), Field::Private) == HELD;
                cell.held = (0..cell.pages).filter(|i| held(*i)).count() as u64;
            }
        }
        cells
    }
}
