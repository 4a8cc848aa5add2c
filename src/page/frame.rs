//! The page frame descriptor: 64 bytes per page, and lists of pages linked through their frames.

use crate::machine::{Access, Addr, Arena, Cpu, Machine};
use crate::units::Order;

use super::Pages;

/// Bytes of a descriptor (page-allocator.md §19.14).
pub(super) const FRAME_BYTES: u64 = 64;

/// Number of a page frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pfn(pub u32);

/// The eight words of a descriptor. `Private` and `Count` belong to the page allocator, `Head` to compound pages; the
/// others to whoever owns the page (a slab allocator).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// Flag bits of the owner; bit 0 is the slab lock. Cleared when the page is freed.
    Flags = 0,
    /// Reference count.
    Count = 1,
    /// Page allocator: order of a free block's head, or where the page is.
    Private = 2,
    /// Neighbours in a list: next in the low half, previous in the high half; frame number + 1, 0 for none.
    Links = 3,
    /// Owner: cache, list. Cleared when the page is freed.
    Owner = 4,
    /// Owner: freelist and counters.
    Counters = 5,
    /// Owner: one more word.
    Extra = 6,
    /// Head frame + 1 of a compound tail; 0 otherwise.
    Head = 7,
}

/// `Private` of the head of a free block.
pub(super) fn free(order: Order) -> u64 {
    0x100 | u64::from(order.0)
}
/// `Private` of the head of a lent block, and in its upper half to whom (see [`lent_to`]).
pub(super) fn lent(order: Order, asker: usize) -> u64 {
    0x200 | u64::from(order.0) | (asker as u64) << 32
}
/// What `Private` of a lent block says but for the asker, and the asker.
pub(super) fn lent_to(private: u64) -> (u64, usize) {
    (private & 0xffff_ffff, (private >> 32) as usize)
}
/// `Private` of the head of a block on a per-CPU list.
pub(super) fn on_list(order: Order) -> u64 {
    0x300 | u64::from(order.0)
}
/// `Private` of a page that fragmentation holds.
pub(super) const HELD: u64 = 0x400;

/// A doubly linked list of pages (kernel: list_head in struct page), head first. Every operation takes the page table and
/// pays for the descriptors it touches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameList {
    first: u32,
    last: u32,
    len: u32,
}

impl FrameList {
    /// Number of pages.
    pub fn len(&self) -> usize {
        self.len as usize
    }
    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The first page.
    pub fn first(&self) -> Option<Pfn> {
        self.first.checked_sub(1).map(Pfn)
    }
    /// The last page.
    pub fn last(&self) -> Option<Pfn> {
        self.last.checked_sub(1).map(Pfn)
    }
    /// The page after `pfn`, reading its descriptor.
    pub fn next<M: Machine>(&self, pages: &Pages<'_, M>, cpu: &M::Cpu, pfn: Pfn) -> Option<Pfn> {
        let (next, _) = unpack(pages.load(cpu, pfn, Field::Links));
        next.checked_sub(1).map(Pfn)
    }
    /// Puts a page at the head.
    pub fn push_front<M: Machine>(&mut self, pages: &Pages<'_, M>, cpu: &M::Cpu, pfn: Pfn) {
        self.link(&mut |p, f| edit(pages, cpu, p, f), pfn, true);
    }
    /// Puts a page at the tail.
    pub fn push_back<M: Machine>(&mut self, pages: &Pages<'_, M>, cpu: &M::Cpu, pfn: Pfn) {
        self.link(&mut |p, f| edit(pages, cpu, p, f), pfn, false);
    }
    /// Takes a page out.
    pub fn remove<M: Machine>(&mut self, pages: &Pages<'_, M>, cpu: &M::Cpu, pfn: Pfn) {
        // Its neighbours must be read before they can be joined; putting a page on a list needs no such load.
        cpu.touch(pages.descriptor(pfn), Access::Read);
        self.unlink(&mut |p, f| edit(pages, cpu, p, f), pfn);
    }
    /// Takes the first page out.
    pub fn pop_front<M: Machine>(&mut self, pages: &Pages<'_, M>, cpu: &M::Cpu) -> Option<Pfn> {
        let pfn = self.first()?;
        self.remove(pages, cpu, pfn);
        Some(pfn)
    }
    /// Rotates so that `pfn`, which is in the list, becomes the first: the cyclic order stays.
    pub fn rotate_to<M: Machine>(&mut self, pages: &Pages<'_, M>, cpu: &M::Cpu, pfn: Pfn) {
        if self.first() == Some(pfn) {
            return;
        }
        let (_, before) = unpack(pages.load(cpu, pfn, Field::Links));
        let (old_first, old_last) = (self.first, self.last);
        edit(pages, cpu, Pfn(old_last - 1), &mut |_, prev| (old_first, prev));
        edit(pages, cpu, Pfn(old_first - 1), &mut |next, _| (next, old_last));
        edit(pages, cpu, Pfn(before - 1), &mut |_, prev| (0, prev));
        edit(pages, cpu, pfn, &mut |next, _| (next, 0));
        self.first = pfn.0 + 1;
        self.last = before;
    }
    /// All pages in order, uncharged: reports and `verify()`.
    pub fn iter<'a, M: Machine>(&self, pages: &'a Pages<'_, M>) -> impl Iterator<Item = Pfn> + 'a {
        self.walk(pages.arena(), pages.descriptor(Pfn(0)))
    }
    pub(super) fn walk<'a>(&self, arena: &'a Arena, map: Addr) -> impl Iterator<Item = Pfn> + use<'a> {
        let mut at = self.first;
        let mut left = self.len;
        std::iter::from_fn(move || {
            let pfn = Pfn(at.checked_sub(1)?);
            left = left.checked_sub(1)?;
            at = unpack(arena.peek(links(map, pfn))).0;
            Some(pfn)
        })
    }

    pub(super) fn link(&mut self, edit: &mut Edit<'_>, pfn: Pfn, front: bool) {
        let me = pfn.0 + 1;
        let (next, prev) = if front { (self.first, 0) } else { (0, self.last) };
        edit(pfn, &mut |_, _| (next, prev));
        if next != 0 {
            edit(Pfn(next - 1), &mut |n, _| (n, me));
        } else {
            self.last = me;
        }
        if prev != 0 {
            edit(Pfn(prev - 1), &mut |_, p| (me, p));
        } else {
            self.first = me;
        }
        self.len += 1;
    }
    pub(super) fn unlink(&mut self, edit: &mut Edit<'_>, pfn: Pfn) {
        let (mut next, mut prev) = (0, 0);
        edit(pfn, &mut |n, p| {
            (next, prev) = (n, p);
            (0, 0)
        });
        if next != 0 {
            edit(Pfn(next - 1), &mut |n, _| (n, prev));
        } else {
            self.last = prev;
        }
        if prev != 0 {
            edit(Pfn(prev - 1), &mut |_, p| (next, p));
        } else {
            self.first = next;
        }
        self.len -= 1;
    }
}

/// Replaces the (next, previous) pair of a page.
pub(super) type Edit<'a> = dyn FnMut(Pfn, &mut dyn FnMut(u32, u32) -> (u32, u32)) + 'a;

fn edit<M: Machine>(pages: &Pages<'_, M>, cpu: &M::Cpu, pfn: Pfn, f: &mut dyn FnMut(u32, u32) -> (u32, u32)) {
    let (next, prev) = unpack(pages.peek(pfn, Field::Links));
    let (next, prev) = f(next, prev);
    pages.store(cpu, pfn, Field::Links, pack(next, prev));
}

/// The same with the parts of a page table, for the page allocator's own lists.
pub(super) fn edit_raw<C: Cpu>(
    cpu: Option<&C>,
    arena: &Arena,
    map: Addr,
    pfn: Pfn,
    f: &mut dyn FnMut(u32, u32) -> (u32, u32),
) {
    let at = links(map, pfn);
    let (next, prev) = unpack(arena.peek(at));
    let (next, prev) = f(next, prev);
    match cpu {
        Some(cpu) => arena.store(cpu, at, pack(next, prev)),
        None => arena.poke(at, pack(next, prev)),
    }
}

pub(super) fn field(map: Addr, pfn: Pfn, field: Field) -> Addr {
    map.plus(u64::from(pfn.0) * FRAME_BYTES + field as u64 * 8)
}
fn links(map: Addr, pfn: Pfn) -> Addr {
    field(map, pfn, Field::Links)
}
fn unpack(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}
fn pack(next: u32, prev: u32) -> u64 {
    u64::from(next) | u64::from(prev) << 32
}
