//! Debugging (slab.md §16; kernel: CONFIG_DEBUG_SLAB): what is added to objects, and the checks at the entries of alloc and
//! free. An object with everything on, in a slot that holds its size rounded up to a word and 24 bytes:
//!
//! ```text
//! slot       object                 slot end − 16   − 8
//! | red zone | content              | red zone      | last user |
//! ```
//!
//! | content | means |
//! |---|---|
//! | 0x6b, last byte 0xa5 | free: poison, verified when the object is handed out and when its slab is destroyed |
//! | 0x5a, last byte 0xa5 | handed out, and not written to by its user |
//!
//! The letters are those of SLUB: F checks what goes back into slabs and the lists in them, Z red zones, P poison, U last
//! user. The kernel of a debug build has them all; the conditions under which it leaves some out are its own. Arrays
//! of caches that are debugged are closed ([`super::array::Array`]), so that the fast paths need not ask.
//!
//! Ours: what the kernel prints and survives is a panic here. The last user is a CPU and a time, as the lab has no callers.
//! The free object that holds its slab's indexes (6.1) is poisoned anew when they leave it.

use super::Slab;
use super::cache::Cache;
use super::header::Header;
use super::node::Lists;
use super::policy::{Management, Policy};
use crate::alloc::Stat;
use crate::alloc::geometry::Shape;
pub(super) use crate::alloc::slqb::debug::{Debug, DebugOption};
use crate::machine::{Access, Addr, Arena, Cpu, Machine};
use crate::spec::{CacheSpec, Request};
use crate::units::{Picos, fls};

/// Most objects of a CPU's array (kernel: enable_cpucache of debug builds).
pub(super) const LIMIT: u64 = 32;
const WORD: u64 = 8;
const RED_INACTIVE: u64 = 0x09F9_1102_9D74_E35B;
const RED_ACTIVE: u64 = 0xD841_56C5_6356_88C0;
const POISON_FREE: u8 = 0x6b;
const POISON_INUSE: u8 = 0x5a;
const POISON_END: u8 = 0xa5;
/// Lines of 16 bytes in a report, and of a neighbour.
const LINES: usize = 6;
const NEIGHBOUR_LINES: u64 = 2;
/// Bits of the last user's word that hold the time in nanoseconds; above it stands the CPU + 1.
const TIME_BITS: u32 = 48;

/// What is checked in a cache's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checks {
    /// Anything at all was asked for.
    pub(super) any: bool,
    /// What goes back into a slab is out of it, and the slab's list is whole.
    pub(super) lists: bool,
    pub(super) red_zone: bool,
    pub(super) poison: bool,
    pub(super) user: bool,
}

impl Checks {
    /// Alignment of the objects of `spec`, and what of `asked` is possible there (kernel: kmem_cache_create). 2.6.24 lets
    /// red zones and last user win over the hint HWCACHE_ALIGN, 6.1 does not; a larger alignment forbids both. Large
    /// objects have neither where 24 bytes would cost another page order.
    pub(super) fn of(spec: &CacheSpec, policy: &Policy, asked: Debug, shape: &Shape) -> (u64, Checks) {
        let fits = spec.size < 4096 || fls(spec.size - 1) == fls(spec.size - 1 + 3 * WORD);
        let (mut red_zone, mut user) = (asked.red_zone && fits, asked.user && fits);
        let chain = policy.management == Management::Chain;
        let align = match chain && (red_zone || user) {
            true => WORD.max(spec.align),
            false => super::geometry::alignment(spec, policy, shape),
        };
        if align > WORD {
            (red_zone, user) = (false, false);
        }
        let poison = asked.poison && !spec.typesafe_by_rcu;
        (align, Checks { any: asked.any(), lists: asked.checks, red_zone, poison, user })
    }
    /// Bytes that they add to a slot.
    pub(super) fn bytes(&self) -> u64 {
        2 * WORD * u64::from(self.red_zone) + WORD * u64::from(self.user)
    }
    /// Bytes of a slot before its object (kernel: obj_offset).
    pub(super) fn before(&self) -> u64 {
        WORD * u64::from(self.red_zone)
    }
    /// True if the cache shares its slabs with no other.
    pub(super) fn unmergeable(&self) -> bool {
        self.red_zone || self.poison || self.user
    }
}

impl std::fmt::Display for Checks {
    /// The letters of what is left of the option.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letters = [(self.lists, 'F'), (self.red_zone, 'Z'), (self.poison, 'P'), (self.user, 'U')];
        letters.iter().filter(|(on, _)| *on).try_for_each(|(_, letter)| write!(f, "{letter}"))
    }
}

/// Fills the object at `at` as a free one.
pub(super) fn poison_free(arena: &Arena, at: Addr, bytes: u64) {
    fill(arena, at, bytes, POISON_FREE);
}
fn fill(arena: &Arena, at: Addr, bytes: u64, byte: u8) {
    arena.fill(at, bytes - 1, byte);
    arena.fill(at.plus(bytes - 1), 1, POISON_END);
}
fn byte(arena: &Arena, at: Addr) -> u8 {
    arena.peek(at).to_le_bytes()[(at.0 % 8) as usize]
}

impl<M: Machine> Cache<M> {
    /// True if the fast paths may not serve the cache.
    #[inline]
    pub(super) fn closed(&self) -> bool {
        self.geometry.checks.any
    }
    fn second_zone(&self, slot: Addr) -> Addr {
        let behind = if self.geometry.checks.user { 2 * WORD } else { WORD };
        slot.plus(self.geometry.slot - behind)
    }
    fn last_user(&self, slot: Addr) -> Addr {
        slot.plus(self.geometry.slot - WORD)
    }
}

impl<M: Machine> Slab<'_, M> {
    /// Allocation from a cache that is debugged: from the array that is hidden from the fast path.
    pub(super) fn alloc_closed(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        let top = cache.cpus.with(cpu, |c| {
            let top = c.array.pop_any(cpu);
            c.counters.count(if top.is_some() { Stat::Allochit } else { Stat::Allocmiss });
            top
        });
        let slot = top.or_else(|| self.alloc_missed(cpu, cache, want))?;
        Some(self.debug_alloc(cpu, cache, slot))
    }

    /// Free into a cache that is debugged; the slot has been checked.
    pub(super) fn free_closed(&self, cpu: &M::Cpu, cache: &Cache<M>, slot: Addr) {
        let fits = cache.cpus.with(cpu, |c| {
            let fits = c.array.push_any(cpu, slot);
            c.counters.count(if fits { Stat::Freehit } else { Stat::Freemiss });
            fits
        });
        if !fits {
            self.flush_for(cpu, cache, slot);
        }
    }

    /// Marks the objects of a fresh slab as free.
    pub(super) fn debug_fresh(&self, cpu: &M::Cpu, cache: &Cache<M>, first: Addr) {
        let g = &cache.geometry;
        for i in 0..g.num {
            self.mark_free(cpu, cache, first.plus(i * g.slot), None);
        }
    }

    /// What is handed out must look as a free object does; from now on it looks used. Returns the object's address
    /// (kernel: cache_alloc_debugcheck_after).
    pub(super) fn debug_alloc(&self, cpu: &M::Cpu, cache: &Cache<M>, slot: Addr) -> Addr {
        let (arena, checks) = (self.pages.arena(), cache.geometry.checks);
        cpu.touch_span(slot, cache.geometry.slot, Access::Read);
        let object = slot.plus(checks.before());
        self.check_free(cache, slot, true).unwrap_or_else(|e| panic!("{e}"));
        if checks.poison {
            fill(arena, object, cache.geometry.object, POISON_INUSE);
        }
        self.set_zones(cache, slot, RED_ACTIVE);
        self.set_user(cpu, cache, slot);
        cpu.touch_span(slot, cache.geometry.slot, Access::Write);
        if checks.poison && cache.spec.ctor {
            cpu.touch_span(object, cache.spec.size, Access::Write);
        }
        object
    }

    /// What is freed must be an object of this cache that looks used; from now on it looks free. Returns its slot
    /// (kernel: cache_free_debugcheck).
    pub(super) fn debug_free(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr) -> Addr {
        let slot = cache.slot_of(object);
        assert!(self.locate(cache, slot).is_some(), "{}", self.stray(cache, object));
        cpu.touch_span(slot, cache.geometry.slot, Access::Read);
        if cache.geometry.checks.red_zone {
            match self.zones(cache, slot) {
                [RED_ACTIVE, RED_ACTIVE] => {}
                [RED_INACTIVE, RED_INACTIVE] => panic!("{}", self.zone_report(cache, slot, "double free", RED_ACTIVE)),
                _ => panic!("{}", self.zone_report(cache, slot, "memory outside object was overwritten", RED_ACTIVE)),
            }
        }
        self.mark_free(cpu, cache, slot, Some(()));
        slot
    }

    /// Slabs are destroyed with all their objects as they were freed (kernel: slab_destroy_debugcheck). What holds the
    /// slab's indexes is not compared.
    pub(super) fn debug_destroy(&self, cpu: &M::Cpu, cache: &Cache<M>, slab: Header) {
        let (headers, g) = (self.headers(cache), &cache.geometry);
        let home = headers.home_object(slab);
        for slot in (0..g.num).map(|i| headers.first(slab).plus(i * g.slot)) {
            cpu.touch_span(slot, g.slot, Access::Read);
            let content = home != Some(slot);
            self.check_free(cache, slot, content).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    /// An object that goes back into its slab is out of it: its chain entry says so (2.6.24), or it is not among the free
    /// indexes (6.1). The slab's list is whole.
    pub(super) fn debug_put(&self, cache: &Cache<M>, slab: Header, index: u64, slot: Addr) {
        self.debug_list(cache, slab);
        if !self.headers(cache).is_out(slab, index) {
            let object = slot.plus(cache.geometry.checks.before());
            panic!(
                "slab: cache {:?}: double free: object {:#x}: expected one in use, found index {index} among its slab's \
                 free ones{}",
                cache.spec.name,
                object.0,
                self.user(cache, slot)
            );
        }
    }
    /// The slab from which objects are about to be taken has a whole list.
    pub(super) fn debug_draw(&self, cache: &Cache<M>, lists: &Lists) {
        if let Some(slab) = lists.partial.first().or(lists.free.first()) {
            self.debug_list(cache, slab);
        }
    }
    /// The free list of a slab names every free object once (kernel: check_slabp, for 2.6.24's chain).
    fn debug_list(&self, cache: &Cache<M>, slab: Header) {
        if !cache.geometry.checks.lists {
            return;
        }
        let headers = self.headers(cache);
        let num = cache.geometry.num;
        let free = headers.free_indexes(slab);
        let expected = num - headers.inuse(slab).min(num);
        let outside = free.iter().find(|i| u64::from(**i) >= num);
        assert!(
            free.len() as u64 == expected && outside.is_none(),
            "slab: cache {:?}: free list of a slab corrupted: slab at {:#x}: expected {expected} indexes below {num}, found \
             {}{}",
            cache.spec.name,
            headers.first(slab).0,
            free.len(),
            outside.map_or_else(String::new, |i| format!(", one of them {i}")),
        );
    }

    /// Compares a free object with what was written when it was freed; its content if asked to.
    fn check_free(&self, cache: &Cache<M>, slot: Addr, content: bool) -> Result<(), String> {
        let checks = cache.geometry.checks;
        if checks.poison && content {
            self.check_poison(cache, slot)?;
        }
        if checks.red_zone && self.zones(cache, slot) != [RED_INACTIVE; 2] {
            let what = "memory outside object was overwritten";
            return Err(self.zone_report(cache, slot, what, RED_INACTIVE));
        }
        Ok(())
    }

    fn check_poison(&self, cache: &Cache<M>, slot: Addr) -> Result<(), String> {
        let arena = self.pages.arena();
        let (object, bytes) = (slot.plus(cache.geometry.checks.before()), cache.geometry.object);
        let right = |i: u64| if i + 1 == bytes { POISON_END } else { POISON_FREE };
        let wrong: Vec<u64> = (0..bytes).filter(|i| byte(arena, object.plus(*i)) != right(*i)).collect();
        let Some(&at) = wrong.first() else { return Ok(()) };
        let found = byte(arena, object.plus(at));
        let mut text = self.report(
            cache,
            slot,
            "poison overwritten (use after free)",
            &format!("byte {at}: expected {:#04x}, found {found:#04x}", right(at)),
        );
        let mut lines: Vec<u64> = wrong.iter().map(|i| i / 16).collect();
        lines.dedup();
        lines.iter().take(LINES).for_each(|line| text += &self.dump(object, line * 16, bytes));
        if wrong.len() == 1 && (found ^ right(at)).count_ones() == 1 {
            text += "\nSingle bit error detected. Probably bad RAM.";
        }
        Err(text + &self.neighbours(cache, slot))
    }

    fn mark_free(&self, cpu: &M::Cpu, cache: &Cache<M>, slot: Addr, used: Option<()>) {
        let (arena, checks) = (self.pages.arena(), cache.geometry.checks);
        self.set_zones(cache, slot, RED_INACTIVE);
        match used {
            Some(()) => self.set_user(cpu, cache, slot),
            None if checks.user => arena.poke(cache.last_user(slot), 0),
            None => {}
        }
        if checks.poison {
            poison_free(arena, slot.plus(checks.before()), cache.geometry.object);
        }
        cpu.touch_span(slot, cache.geometry.slot, Access::Write);
    }

    fn zones(&self, cache: &Cache<M>, slot: Addr) -> [u64; 2] {
        [slot, cache.second_zone(slot)].map(|at| self.pages.arena().peek(at))
    }
    fn set_zones(&self, cache: &Cache<M>, slot: Addr, value: u64) {
        if cache.geometry.checks.red_zone {
            [slot, cache.second_zone(slot)].iter().for_each(|at| self.pages.arena().poke(*at, value));
        }
    }
    fn set_user(&self, cpu: &M::Cpu, cache: &Cache<M>, slot: Addr) {
        if cache.geometry.checks.user {
            let time = (cpu.now().0 / 1000) & ((1 << TIME_BITS) - 1);
            self.pages.arena().poke(cache.last_user(slot), (u64::from(cpu.id().0) + 1) << TIME_BITS | time);
        }
    }

    /// `; last user cpu=0 at 0.001 s`, if there is one.
    fn user(&self, cache: &Cache<M>, slot: Addr) -> String {
        if !cache.geometry.checks.user {
            return String::new();
        }
        let word = self.pages.arena().peek(cache.last_user(slot));
        match word >> TIME_BITS {
            0 => "; no last user".into(),
            cpu => {
                let time = Picos((word & ((1 << TIME_BITS) - 1)) * 1000).secs();
                format!("; last user cpu={} at {time:.6} s", cpu - 1)
            }
        }
    }

    #[cold]
    fn report(&self, cache: &Cache<M>, slot: Addr, what: &str, detail: &str) -> String {
        let object = slot.plus(cache.geometry.checks.before());
        let user = self.user(cache, slot);
        format!("slab: cache {:?}: {what}: object {:#x} {detail}{user}", cache.spec.name, object.0)
    }
    #[cold]
    fn zone_report(&self, cache: &Cache<M>, slot: Addr, what: &str, right: u64) -> String {
        let [before, behind] = self.zones(cache, slot);
        let detail = format!("red zones: expected {right:#018x} twice, found {before:#018x} and {behind:#018x}");
        self.report(cache, slot, what, &detail) + &self.neighbours(cache, slot)
    }
    /// One line of up to 16 bytes of an object, from byte `from` on.
    fn dump(&self, object: Addr, from: u64, bytes: u64) -> String {
        let line: Vec<String> =
            (from..bytes.min(from + 16)).map(|i| format!("{:02x}", byte(self.pages.arena(), object.plus(i)))).collect();
        format!("\n{from:03x}: {}", line.join(" "))
    }
    /// The objects on both sides, whose owners may have written too far.
    fn neighbours(&self, cache: &Cache<M>, slot: Addr) -> String {
        let Some((_, index)) = self.locate(cache, slot) else { return String::new() };
        let g = &cache.geometry;
        let mut text = String::new();
        let prev = (index > 0).then(|| ("Prev", Addr(slot.0 - g.slot)));
        let next = (index + 1 < g.num).then(|| ("Next", slot.plus(g.slot)));
        for (name, slot) in prev.into_iter().chain(next) {
            let object = slot.plus(g.checks.before());
            text += &format!(
                "\n{name} obj: start={:#x}, len={}{}",
                object.0,
                cache.geometry.object,
                self.user(cache, slot)
            );
            if g.checks.red_zone {
                let [before, behind] = self.zones(cache, slot);
                text += &format!("\nRedzone: {before:#x}/{behind:#x}");
            }
            for line in 0..NEIGHBOUR_LINES.min(cache.geometry.object.div_ceil(16)) {
                text += &self.dump(object, line * 16, cache.geometry.object);
            }
        }
        text
    }
}
