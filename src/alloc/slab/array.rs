//! `array_cache`: a bounded stack of object addresses. CPUs, nodes (shared) and pairs of nodes (alien) have one each.

use crate::machine::{Access, Addr, Cpu};

/// A LIFO stack; index 0 is the oldest entry. `0 ≤ len ≤ limit`. The objects in it count as in use in their slabs.
///
/// The array of a cache that is debugged is *closed*: the fast paths find it empty and full at once, so that they need not
/// ask. A *guarded* one is full to the fast path of a free only.
#[derive(Default)]
pub(super) struct Array {
    /// Address of the kernel's structure: header, then one word per entry.
    pub(super) addr: Addr,
    /// Address of entry 0.
    base: Addr,
    pub(super) limit: usize,
    /// What the fast path may fill: the limit, or 0 of a closed or guarded array.
    open: usize,
    /// Used since it was made, or since the reaper came by.
    pub(super) touched: bool,
    entries: Vec<Addr>,
    /// The entries of a closed array.
    kept: Vec<Addr>,
    closed: bool,
}

impl Array {
    /// An empty array at `addr`, whose entries begin `header` bytes later.
    pub(super) fn new(addr: Addr, header: u64, limit: u64) -> Array {
        let entries = Vec::with_capacity(limit as usize);
        let limit = limit as usize;
        let base = addr.plus(header);
        Array { addr, base, limit, open: limit, touched: false, entries, kept: Vec::new(), closed: false }
    }
    /// Hides the entries from [`Array::pop`] and [`Array::push`].
    pub(super) fn close(&mut self) {
        if !self.closed {
            self.kept = std::mem::take(&mut self.entries);
            self.open = 0;
            self.closed = true;
        }
    }
    /// Hides the room from [`Array::push`] only: each free is looked at.
    pub(super) fn guard(&mut self) {
        self.open = 0;
    }
    fn list(&self) -> &Vec<Addr> {
        if self.closed { &self.kept } else { &self.entries }
    }
    fn list_mut(&mut self) -> &mut Vec<Addr> {
        if self.closed { &mut self.kept } else { &mut self.entries }
    }
    /// [`Array::pop`], of a closed array too.
    pub(super) fn pop_any<C: Cpu>(&mut self, cpu: &C) -> Option<Addr> {
        modify(cpu, self.addr);
        let top = self.list_mut().pop()?;
        self.touched = true;
        cpu.touch(self.entry(self.len()), Access::Read);
        Some(top)
    }
    /// [`Array::push`], into a closed array too.
    #[must_use]
    pub(super) fn push_any<C: Cpu>(&mut self, cpu: &C, object: Addr) -> bool {
        modify(cpu, self.addr);
        let fits = self.len() < self.limit;
        if fits {
            cpu.touch(self.entry(self.len()), Access::Write);
            self.list_mut().push(object);
        }
        fits
    }
    /// The same array with its structure at another address; an array that was never made gets `limit`.
    pub(super) fn moved(self, addr: Addr, header: u64, limit: u64) -> Array {
        if self.limit == 0 { Array::new(addr, header, limit) } else { Array { addr, base: addr.plus(header), ..self } }
    }

    /// Pops the newest entry: header line, entry line.
    #[inline]
    pub(super) fn pop<C: Cpu>(&mut self, cpu: &C) -> Option<Addr> {
        modify(cpu, self.addr);
        let top = self.entries.pop()?;
        self.touched = true;
        cpu.touch(self.entry(self.entries.len()), Access::Read);
        Some(top)
    }
    /// Pushes an entry unless the array is full: header line, entry line.
    #[inline]
    #[must_use]
    pub(super) fn push<C: Cpu>(&mut self, cpu: &C, object: Addr) -> bool {
        modify(cpu, self.addr);
        let fits = self.entries.len() < self.open;
        if fits {
            cpu.touch(self.entry(self.entries.len()), Access::Write);
            self.entries.push(object);
        }
        fits
    }

    pub(super) fn len(&self) -> usize {
        self.list().len()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.list().is_empty()
    }
    pub(super) fn room(&self) -> usize {
        self.limit - self.len()
    }
    pub(super) fn entries(&self) -> &[Addr] {
        self.list()
    }
    /// Entry `i`, counted from the oldest. The caller has paid for the line with [`Array::read`].
    #[inline]
    pub(super) fn get(&self, i: usize) -> Addr {
        self.list()[i]
    }

    /// Pushes an entry drawn from a slab; the caller pays for the lines with [`Array::wrote`].
    #[inline]
    pub(super) fn fill(&mut self, object: Addr) {
        debug_assert!(self.len() < self.limit);
        self.list_mut().push(object);
    }
    /// Pays for `n` entries just pushed.
    pub(super) fn wrote<C: Cpu>(&self, cpu: &C, n: usize) {
        cpu.touch_span(self.entry(self.len() - n), 8 * n as u64, Access::Write);
    }
    /// Pays for reading `n` entries from entry `from` on.
    pub(super) fn read<C: Cpu>(&self, cpu: &C, from: usize, n: usize) {
        cpu.touch_span(self.entry(from), 8 * n as u64, Access::Read);
    }

    /// Moves the `n` newest entries to the top of `to`, order kept (kernel: transfer_objects).
    pub(super) fn move_newest<C: Cpu>(&mut self, cpu: &C, to: &mut Array, n: usize) {
        let from = self.len() - n;
        modify(cpu, self.addr);
        self.read(cpu, from, n);
        to.list_mut().extend(self.list_mut().drain(from..));
        modify(cpu, to.addr);
        to.wrote(cpu, n);
    }
    /// Moves the `n` oldest entries to the top of `to`, order kept. The others slide down later: [`Array::slide`].
    pub(super) fn copy_oldest<C: Cpu>(&self, cpu: &C, to: &mut Array, n: usize) {
        self.read(cpu, 0, n);
        to.list_mut().extend_from_slice(&self.list()[..n]);
        modify(cpu, to.addr);
        to.wrote(cpu, n);
    }
    /// Forgets the `n` oldest entries and slides the others down.
    pub(super) fn slide<C: Cpu>(&mut self, cpu: &C, n: usize) {
        modify(cpu, self.addr);
        self.list_mut().drain(..n);
        if !self.is_empty() {
            self.read(cpu, n, self.len());
            cpu.touch_span(self.entry(0), 8 * self.len() as u64, Access::Write);
        }
    }

    fn entry(&self, i: usize) -> Addr {
        self.base.plus(8 * i as u64)
    }
}

/// Pays for a line that is read and then written: a load and a store.
#[inline]
pub(super) fn modify<C: Cpu>(cpu: &C, addr: Addr) {
    cpu.touch(addr, Access::Read);
    cpu.touch(addr, Access::Write);
}
