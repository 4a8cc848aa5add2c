//! Debugging (slqb.md §12): what the flags add to objects, and the checks at the entries of alloc and free.
//!
//! Objects pass through LIFO, rlist and remote_free as without it. An object with everything on:
//!
//! ```text
//! 0 ........ objsize ... inuse ... +8 ........ +24 ....... +24 ....... size
//! | content | red zone   | link    | last alloc | last free | padding   |
//! ```
//!
//! | byte | means |
//! |---|---|
//! | 0x6b, last 0xa5 | content of a free object (poison; not with RCU or a constructor, who own it then too) |
//! | 0xbb / 0xcc | red zone of a free object / of one in use |
//! | 0x5a | padding, and the rest of a fresh slab (poison) |
//!
//! The original's letters T (trace) and A (fault injection) are refused: there is no log to trace to, and memory runs out
//! here when it does. Content bytes are compared and written a word at a time.

use super::Cache;
use super::node::unpack;
use crate::machine::{Access, Addr, Cpu, Machine};
use crate::page::Field;
use crate::spec::CacheSpec;
use crate::units::Picos;

/// Bytes of a track: who last allocated or freed (caller 8, CPU 4, process 4, time 8).
pub(super) const TRACK: u64 = 24;

const POISON_FREE: u8 = 0x6b;
const POISON_END: u8 = 0xa5;
const POISON_INUSE: u8 = 0x5a;
const RED_INACTIVE: u8 = 0xbb;
const RED_ACTIVE: u8 = 0xcc;

/// Debug flags of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debug {
    /// F: what is freed is an object of the cache that is not on its page's free list.
    pub checks: bool,
    /// Z: red zones.
    pub red_zone: bool,
    /// P: poison.
    pub poison: bool,
    /// U: tracks of the last user.
    pub user: bool,
    /// The content of free objects is poisoned: P, and nobody relies on it.
    content: bool,
}

impl Debug {
    /// True if anything is checked: the cache has no colours.
    pub fn any(self) -> bool {
        self.checks || self.red_zone || self.poison || self.user
    }
}

/// The debug option: flags, and the prefix of the names they are for.
pub(in crate::alloc) struct DebugOption<'a> {
    flags: Debug,
    prefix: &'a str,
}

impl<'a> DebugOption<'a> {
    /// Parses `letters[,prefix]`: nothing at all is no debugging, `,prefix` all flags, `-` none (kernel: slqb_debug).
    pub fn parse(text: &'a str) -> Result<DebugOption<'a>, String> {
        let mut flags = Debug::default();
        let (letters, prefix) = text.split_once(',').unwrap_or((text, ""));
        if letters.is_empty() && !text.is_empty() {
            flags = Debug { checks: true, red_zone: true, poison: true, user: true, content: false };
        }
        for letter in letters.chars() {
            match letter.to_ascii_uppercase() {
                'F' => flags.checks = true,
                'Z' => flags.red_zone = true,
                'P' => flags.poison = true,
                'U' => flags.user = true,
                '-' => flags = Debug::default(),
                other => {
                    return Err(format!(
                        "letters of F Z P U or -, then perhaps a comma and a prefix of names; not {other:?}"
                    ));
                }
            }
        }
        Ok(DebugOption { flags, prefix })
    }
    /// Flags of a cache.
    pub fn of(&self, spec: &CacheSpec) -> Debug {
        if !spec.name.starts_with(self.prefix) {
            return Debug::default();
        }
        Debug { content: self.flags.poison && !spec.typesafe_by_rcu && !spec.ctor, ..self.flags }
    }
}

impl<M: Machine> Cache<'_, M> {
    /// Fills a fresh slab before its objects are linked.
    pub(super) fn debug_slab(&self, cpu: &M::Cpu, start: Addr) {
        if self.geometry.debug.poison {
            self.set(cpu, start, self.geometry.order.bytes(), POISON_INUSE);
        }
    }
    /// Marks an object of a fresh slab as free.
    pub(super) fn debug_object(&self, cpu: &M::Cpu, x: Addr) {
        let debug = self.geometry.debug;
        if debug.user {
            self.set(cpu, self.tracks(x), 2 * TRACK, 0);
        }
        if debug.any() {
            self.mark_free(cpu, x);
        }
    }

    /// What is handed out must look as a free object does; from now on it looks used.
    #[cold]
    pub(super) fn debug_alloc(&self, cpu: &M::Cpu, x: Addr) {
        self.touch_checked(cpu, x);
        self.check(x, false).unwrap_or_else(|e| panic!("{e}"));
        if self.geometry.debug.red_zone {
            self.set_red_zone(cpu, x, RED_ACTIVE);
        }
        self.track(cpu, x, 0);
    }
    /// What is freed must be an object of this cache that looks used; from now on it looks free.
    #[cold]
    pub(super) fn debug_free(&self, cpu: &M::Cpu, x: Addr) {
        assert!(self.is_object(x), "{}", self.no_object(x));
        self.touch_checked(cpu, x);
        if self.geometry.debug.checks {
            let slab = self.pages.peek_head(x).expect("an object of the arena");
            let free = self.geometry.objects - unpack(self.pages.peek(slab, Field::Counters)).inuse;
            let head = Addr(self.pages.peek(slab, Field::Extra));
            let listed = self.links().walk(head, free, self.last_link()).contains(&x);
            assert!(!listed, "{}", self.complaint(x, "Object already free", "", ""));
        }
        self.check(x, true).unwrap_or_else(|e| panic!("{e}"));
        self.mark_free(cpu, x);
        self.track(cpu, x, TRACK);
    }

    /// Compares what the flags say with the bytes of an object.
    pub(super) fn check(&self, x: Addr, in_use: bool) -> Result<(), String> {
        let (g, d) = (&self.geometry, self.geometry.debug);
        if d.red_zone {
            let (right, other) = if in_use { (RED_ACTIVE, RED_INACTIVE) } else { (RED_INACTIVE, RED_ACTIVE) };
            if let Some((at, found)) = self.differs(x, g.object_size, g.inuse, right) {
                let what = match in_use && found == other {
                    true => "Object already free",
                    false => "Redzone overwritten",
                };
                return Err(self.found(x, what, at, right, found));
            }
        }
        if d.content && !in_use {
            let last = g.object_size - 1;
            let content = self.differs(x, 0, last, POISON_FREE).map(|(at, f)| (at, POISON_FREE, f));
            let end = self.differs(x, last, last + 1, POISON_END).map(|(at, f)| (at, POISON_END, f));
            if let Some((at, right, found)) = content.or(end) {
                return Err(self.found(x, "Poison overwritten", at, right, found));
            }
        }
        if d.poison
            && let Some((at, found)) = self.differs(x, self.metadata_end(), g.size, POISON_INUSE)
        {
            return Err(self.found(x, "Object padding overwritten", at, POISON_INUSE, found));
        }
        Ok(())
    }

    /// Bytes in front of the padding: object, red zone, link and tracks.
    fn metadata_end(&self) -> u64 {
        let g = &self.geometry;
        g.inuse + if g.offset > 0 { 8 } else { 0 } + if g.debug.user { 2 * TRACK } else { 0 }
    }
    fn mark_free(&self, cpu: &M::Cpu, x: Addr) {
        let g = &self.geometry;
        if g.debug.content {
            self.set(cpu, x, g.object_size - 1, POISON_FREE);
            self.set(cpu, x.plus(g.object_size - 1), 1, POISON_END);
        }
        if g.debug.red_zone {
            self.set_red_zone(cpu, x, RED_INACTIVE);
        }
    }
    fn set_red_zone(&self, cpu: &M::Cpu, x: Addr, byte: u8) {
        let g = &self.geometry;
        self.set(cpu, x.plus(g.object_size), g.inuse - g.object_size, byte);
    }
    fn set(&self, cpu: &M::Cpu, at: Addr, bytes: u64, byte: u8) {
        if bytes > 0 {
            self.pages.arena().fill(at, bytes, byte);
            cpu.touch_span(at, bytes, Access::Write);
        }
    }
    /// Pays for the lines that a check reads.
    fn touch_checked(&self, cpu: &M::Cpu, x: Addr) {
        cpu.touch_span(x, self.geometry.size, Access::Read);
    }

    /// Writes down who did it: CPU and time. The lab has neither callers nor processes.
    fn track(&self, cpu: &M::Cpu, x: Addr, which: u64) {
        if !self.geometry.debug.user {
            return;
        }
        let at = self.tracks(x).plus(which);
        let arena = self.pages.arena();
        arena.poke(at, 0);
        arena.poke(at.plus(8), u64::from(cpu.id().0) + 1);
        arena.poke(at.plus(16), cpu.now().0);
        cpu.touch_span(at, TRACK, Access::Write);
    }
    fn tracks(&self, x: Addr) -> Addr {
        x.plus(self.geometry.inuse + if self.geometry.offset > 0 { 8 } else { 0 })
    }
    /// ` Allocated in cpu=0 at 0.001 s.`, if there is a track of it.
    fn tracked(&self, x: Addr, which: u64, verb: &str) -> String {
        let arena = self.pages.arena();
        let at = self.tracks(x).plus(which);
        match arena.peek(at.plus(8)) {
            cpu if self.geometry.debug.user && (1..1 << 16).contains(&cpu) => {
                format!("; {verb} in cpu={} at {:.6} s", cpu - 1, Picos(arena.peek(at.plus(16))).secs())
            }
            _ => String::new(),
        }
    }

    /// First byte of `x + from..x + to` that is not `right`.
    fn differs(&self, x: Addr, from: u64, to: u64, right: u8) -> Option<(u64, u8)> {
        (from..to).map(|i| (i, self.byte(x.plus(i)))).find(|(_, found)| *found != right)
    }
    fn byte(&self, at: Addr) -> u8 {
        self.pages.arena().peek(at).to_ne_bytes()[(at.0 % 8) as usize]
    }
    fn found(&self, x: Addr, what: &str, at: u64, right: u8, found: u8) -> String {
        self.complaint(x, what, &format!(" byte {at}: expected {right:#04x}"), &format!(", found {found:#04x}"))
    }
    #[cold]
    fn complaint(&self, x: Addr, what: &str, expected: &str, found: &str) -> String {
        let (taken, given) = (self.tracked(x, 0, "allocated"), self.tracked(x, TRACK, "freed"));
        format!("slqb: cache {}: {what}: object {:#x}{expected}{found}{taken}{given}", self.spec.name, x.0)
    }
}
