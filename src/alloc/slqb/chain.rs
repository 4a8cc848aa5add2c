//! A queue of free objects, linked through the objects (kernel: kmlist).

use crate::machine::{Addr, Arena, Cpu};

/// The link of the last object.
pub(super) const NIL: Addr = Addr(u64::MAX);

/// `nr` objects from `head` to `tail`, each holding the address of the next at the cache's link offset.
/// `head = NIL ⇔ nr = 0`; `tail` means something only while `nr > 0`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub nr: u64,
    pub head: Addr,
    pub tail: Addr,
}

impl Default for Chain {
    fn default() -> Self {
        Chain { nr: 0, head: NIL, tail: NIL }
    }
}

/// Where links are: object memory, and their offset in an object.
#[derive(Clone, Copy)]
pub(super) struct Links<'a> {
    pub arena: &'a Arena,
    pub offset: u64,
}

impl Links<'_> {
    /// The object after `x`; pays for the line of `x`.
    #[inline]
    pub fn next<C: Cpu>(&self, cpu: &C, x: Addr) -> Addr {
        Addr(self.arena.load(cpu, x.plus(self.offset)))
    }
    /// Makes `next` follow `x`; pays for the line of `x`.
    #[inline]
    pub fn set<C: Cpu>(&self, cpu: &C, x: Addr, next: Addr) {
        self.arena.store(cpu, x.plus(self.offset), next.0);
    }
    /// The objects from `head` on, uncharged; stops at an address past `end` and after `expected + 1` objects, so that
    /// a broken or too long chain shows as one of the wrong length.
    pub fn walk(&self, head: Addr, expected: u64, end: Addr) -> Vec<Addr> {
        let mut found = Vec::new();
        let mut at = head;
        while at < end && found.len() as u64 <= expected {
            found.push(at);
            at = Addr(self.arena.peek(at.plus(self.offset)));
        }
        found
    }
}

impl Chain {
    /// Takes the head. Its line becomes hot for the caller, who is about to use the object.
    #[inline]
    pub fn pop<C: Cpu>(&mut self, cpu: &C, links: Links<'_>) -> Option<Addr> {
        if self.head == NIL {
            return None;
        }
        let x = self.head;
        self.head = links.next(cpu, x);
        self.nr -= 1;
        Some(x)
    }
    /// Puts `x` at the head.
    #[inline]
    pub fn push<C: Cpu>(&mut self, cpu: &C, links: Links<'_>, x: Addr) {
        links.set(cpu, x, self.head);
        if self.nr == 0 {
            self.tail = x;
        }
        self.head = x;
        self.nr += 1;
    }
    /// Puts `x` behind the tail: two object writes.
    pub fn push_back<C: Cpu>(&mut self, cpu: &C, links: Links<'_>, x: Addr) {
        links.set(cpu, x, NIL);
        self.append(cpu, links, Chain { nr: 1, head: x, tail: x });
    }
    /// Puts another chain behind the tail: one object write.
    pub fn append<C: Cpu>(&mut self, cpu: &C, links: Links<'_>, other: Chain) {
        if other.nr == 0 {
            return;
        }
        if self.nr == 0 {
            *self = other;
            return;
        }
        links.set(cpu, self.tail, other.head);
        self.tail = other.tail;
        self.nr += other.nr;
    }
    /// All objects in order, uncharged.
    pub fn walk(self, links: Links<'_>, end: Addr) -> Vec<Addr> {
        links.walk(self.head, self.nr, end)
    }
}
