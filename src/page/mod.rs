//! FLOOR 2. Pages: frames, buddy lists, per-CPU page lists, zones and their fallback (page-allocator.md).
//!
//! One zone named `Normal` per node, one migrate type. Frames of all nodes are numbered through from 0; node n owns one
//! contiguous range. Order 0 (from 5.14 on: orders 0..3) goes through the lists of the running CPU for the page's zone,
//! without the zone lock unless they are empty or full; higher orders take the zone lock each time. Which release's page
//! allocator it is: [`PageModel`].
//!
//! Invariants (checked by [`Pages::verify`]): every frame is in exactly one of a free block, a per-CPU list, lent out, or
//! held by fragmentation; `free pages of a zone = Σ nr_free[o] << o`; heads of free blocks are aligned; no two free buddies
//! stay apart; a page on a per-CPU list of a zone lies in that zone; `lent + on per-CPU lists + free + held = all`.
//!
//! Left out, as the specs allow: the bitmap of zones recently found full, migrate types, background reclaim. Direct
//! reclaim is a hook that the slab layer calls itself: see [`Pages::alloc_pages`].

mod asker;
mod buddy;
mod fragment;
mod frame;
mod map;
mod marks;
mod model;
mod observe;
mod path;
mod pcp;
mod report;
mod verify;

pub use asker::{Asked, Asker};
pub use fragment::{Fragmentation, extfrag_percent, fragmentation_index, unusable_index};
pub use frame::{Field, FrameList, Pfn};
pub use map::Cell;
pub use model::PageModel;
pub use observe::{Observer, Taken};
pub use report::PageStats;

use crate::error::Error;
use crate::machine::{Addr, Arena, Cpu, Machine, PerCpu, SpinLock, Word};
use crate::units::{NodeId, Order, PAGE_SIZE, Picos};

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use asker::Ledger;
use buddy::Zone;
use pcp::Pageset;

/// A block of pages lent by [`Pages`]. Returning it consumes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    pfn: Pfn,
    order: Order,
}

impl Page {
    /// Its first frame.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }
    /// Its order.
    pub fn order(&self) -> Order {
        self.order
    }
    /// Takes the block apart into what an allocator stores: its first frame. [`Page::of`] makes it again.
    pub fn into_pfn(self) -> Pfn {
        self.pfn
    }
    /// The block at `pfn`, which its owner had taken apart.
    pub fn of(pfn: Pfn, order: Order) -> Page {
        Page { pfn, order }
    }
}

/// The part of the GFP flags that the page allocator heeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageFlags {
    /// GFP_ATOMIC: no reclaim, may go to three eighths of the min mark (HIGH and HARDER).
    pub atomic: bool,
    /// NORETRY | NOWARN: one walk over the low mark, nothing else (SLUB's first attempt at a high order).
    pub no_retry: bool,
    /// THISNODE: no other node.
    pub this_node: bool,
    /// COMP: set up a compound page, so that tails find their head.
    pub compound: bool,
    /// ZERO: clear the pages.
    pub zero: bool,
    /// The caller reclaims and asks once more if there is nothing: what is refused now is no failure yet.
    pub reclaims: bool,
    /// On whose behalf.
    pub asker: Asker,
}

/// What one CPU owns of the page allocator: a pageset and its counts per zone, and who asked it for what.
struct CpuPages {
    sets: Vec<Pageset>,
    stats: Vec<PageStats>,
    asked: Ledger,
    /// The counts that reports show, if not the present ones.
    kept: Option<Kept>,
}

/// Counts of the past.
struct Kept {
    stats: Vec<PageStats>,
    asked: Ledger,
}

/// The page allocator: owns the arena and `mem_map`, lends pages.
pub struct Pages<'m, M: Machine> {
    machine: &'m M,
    arena: Arena,
    frames: u64,
    map: Addr,
    zones: Vec<SpinLock<M, Zone>>,
    zone_of: Vec<(Pfn, NodeId)>,
    /// Free pages and free blocks per order of each zone, as readers without the lock see them.
    published: Vec<Published>,
    zone_addr: Vec<Addr>,
    /// Line of each node's zonelist, and of each CPU's event counters.
    zonelists: Vec<Addr>,
    events: Vec<Addr>,
    marks: Vec<[u64; 3]>,
    fallback: Vec<Vec<NodeId>>,
    cpus: PerCpu<M, CpuPages>,
    /// Pages each CPU has taken minus returned: written by the CPU, read by reports at any time.
    lent: Vec<Lent>,
    /// Pages that fragmentation holds.
    held: u64,
    model: PageModel,
    /// One request in so many fails, at random; 0: none.
    one_in: AtomicU64,
    /// How many have.
    struck: AtomicU64,
    /// Who hears of every object, if anyone.
    observer: Option<Arc<dyn Observer>>,
}

/// One CPU's balance of pages, on a host line of its own.
#[repr(align(128))]
struct Lent(AtomicI64);

impl<'m, M: Machine> Pages<'m, M> {
    /// Takes over all memory of `machine`; every page is free (page-allocator.md §19.2).
    pub fn new(machine: &'m M, model: PageModel) -> Result<Self, Error> {
        Self::fragmented(machine, model, None)
    }

    /// The same with memory fragmented beforehand.
    pub fn fragmented(machine: &'m M, model: PageModel, fragment: Option<Fragmentation>) -> Result<Self, Error> {
        let t = machine.topology();
        let bytes: u64 = t.node_ids().map(|n| t.node_bytes(n)).sum();
        let frames = bytes / PAGE_SIZE;
        let refused = |e| Error::new("machine.memory", bytes, e);
        let arena = Arena::new(bytes + frames * frame::FRAME_BYTES).map_err(refused)?;
        let map = Addr(bytes);
        let (mut zones, mut zone_of, mut published, mut zone_addr, mut marks) =
            (vec![], vec![], vec![], vec![], vec![]);
        let (mut start, mut held) = (0u64, 0);
        for node in t.node_ids() {
            let pages = t.node_bytes(node) / PAGE_SIZE;
            // A zone: marks and counts, free areas (two lines), the lock, pointers to the pagesets (page-allocator.md §14).
            let addr = machine.reserve(320, node);
            let mut zone = Zone::new(addr.plus(64), Pfn(start as u32), pages as u32, model);
            zone.release_all(&arena, map, || machine.poll());
            held += fragment.map_or(0, |f| f.apply(&mut zone, &arena, map));
            published.push(Published::new(addr, &zone));
            zones.push(SpinLock::new(machine.lock("zone->lock", addr.plus(192)), zone));
            zone_of.push((Pfn(start as u32), node));
            zone_addr.push(addr);
            marks.push(marks::watermarks(model, pages, frames));
            start += pages;
        }
        let cpus = PerCpu::new(machine, |cpu| {
            let set = |n: NodeId| {
                let low = marks[usize::from(n.0)][Mark::Low as usize];
                // Nodes without CPUs count those of the whole machine (page-allocator.md §6.2).
                let sharing = if t.cpus_on(n) > 0 { t.cpus_on(n) } else { t.cpus() };
                let at = machine.reserve(64, t.node_of(cpu));
                Pageset::new(model, at, t.node_bytes(n) / PAGE_SIZE, low, sharing as u64)
            };
            CpuPages {
                sets: t.node_ids().map(set).collect(),
                stats: vec![PageStats::default(); t.nodes()],
                asked: Ledger::default(),
                kept: None,
            }
        });
        let lent = t.cpu_ids().map(|_| Lent(AtomicI64::new(0))).collect();
        let zonelists = t.node_ids().map(|n| machine.reserve(64, n)).collect();
        let events = t.cpu_ids().map(|c| machine.reserve(64, t.node_of(c))).collect();
        let fallback = t.node_ids().map(|n| t.fallback(n)).collect();
        Ok(Pages {
            machine,
            arena,
            frames,
            map,
            zones,
            zone_of,
            published,
            zone_addr,
            zonelists,
            events,
            marks,
            fallback,
            cpus,
            lent,
            held,
            one_in: AtomicU64::new(0),
            struck: AtomicU64::new(0),
            model,
            observer: None,
        })
    }

    /// From now on `observer` hears of every object that a run takes and gives back. Before a run.
    pub fn observe(&mut self, observer: Arc<dyn Observer>) {
        self.observer = Some(observer);
    }
    /// Who watches.
    #[inline]
    pub fn observer(&self) -> Option<&dyn Observer> {
        self.observer.as_deref()
    }

    /// Which release's page allocator this is.
    pub fn model(&self) -> PageModel {
        self.model
    }
    /// The machine whose memory this is.
    pub fn machine(&self) -> &'m M {
        self.machine
    }
    /// Object memory.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }
    /// Number of frames.
    pub fn frames(&self) -> u64 {
        self.frames
    }
    /// Every frame but those that nobody has ever taken: what a walk over all pages has to look at.
    pub fn taken_frames(&self) -> impl Iterator<Item = Pfn> + use<'_, 'm, M> {
        let mut at = 0;
        let rest = self.published.iter().map(|p| p.untouched[0].peek() as u32..p.untouched[1].peek() as u32);
        let mut skipped: Vec<_> = rest.filter(|r| !r.is_empty()).collect();
        skipped.push(self.frames as u32..self.frames as u32);
        skipped.into_iter().flat_map(move |skip| {
            let part = at..skip.start;
            at = skip.end;
            part.map(Pfn)
        })
    }
    /// Address of a frame's descriptor.
    pub fn descriptor(&self, pfn: Pfn) -> Addr {
        self.map.plus(u64::from(pfn.0) * frame::FRAME_BYTES)
    }
    /// Address of a frame's first byte.
    pub fn addr_of(&self, pfn: Pfn) -> Addr {
        Addr(u64::from(pfn.0) * PAGE_SIZE)
    }
    /// Frame of an address; `None` outside the arena.
    pub fn pfn_of(&self, addr: Addr) -> Option<Pfn> {
        let pfn = addr.0 / PAGE_SIZE;
        (pfn < self.frames).then_some(Pfn(pfn as u32))
    }
    /// Node of a frame. Uncharged: the node is part of the flags word of the descriptor, which its users have read.
    pub fn node_of(&self, pfn: Pfn) -> NodeId {
        let i = self.zone_of.partition_point(|(first, _)| *first <= pfn);
        self.zone_of[i - 1].1
    }

    /// Order of the lent block that begins at `pfn`, as its descriptor says. Uncharged.
    pub fn order_of(&self, pfn: Pfn) -> Order {
        Order(self.peek(pfn, Field::Private) as u8)
    }

    /// Head frame of the block that `addr` lies in: reads the frame's descriptor, and for a tail page points to its head
    /// (kernel: virt_to_head_page).
    pub fn head(&self, cpu: &M::Cpu, addr: Addr) -> Pfn {
        let pfn = self.pfn_of(addr).expect("an address of the arena");
        match self.load(cpu, pfn, Field::Head) {
            0 => pfn,
            head => {
                let head = Pfn(head as u32 - 1);
                cpu.touch(self.descriptor(head), crate::machine::Access::Read);
                head
            }
        }
    }
    /// The same, with fields of the head's descriptor.
    #[inline]
    pub fn head_with<const N: usize>(&self, cpu: &M::Cpu, addr: Addr, fields: [Field; N]) -> (Pfn, [u64; N]) {
        let pfn = addr.0 / PAGE_SIZE;
        // The descriptors end the arena: an address that has none is refused by `record`.
        let at = self.map.plus(pfn * frame::FRAME_BYTES);
        cpu.touch(at, crate::machine::Access::Read);
        let own = self.arena.record(at);
        let head = own.peek(Field::Head as usize);
        if head == 0 {
            return (Pfn(pfn as u32), fields.map(|f| own.peek(f as usize)));
        }
        let head = Pfn(head as u32 - 1);
        cpu.touch(self.descriptor(head), crate::machine::Access::Read);
        (head, fields.map(|f| self.peek(head, f)))
    }
    /// The same for reports, uncharged.
    pub fn peek_head(&self, addr: Addr) -> Option<Pfn> {
        let pfn = self.pfn_of(addr)?;
        Some(match self.peek(pfn, Field::Head) {
            0 => pfn,
            head => Pfn(head as u32 - 1),
        })
    }

    /// Reads a descriptor field and pays for its line.
    #[inline]
    pub fn load(&self, cpu: &M::Cpu, pfn: Pfn, field: Field) -> u64 {
        self.arena.load(cpu, self.field(pfn, field))
    }
    /// Writes a descriptor field and pays for its line.
    #[inline]
    pub fn store(&self, cpu: &M::Cpu, pfn: Pfn, field: Field, value: u64) {
        self.arena.store(cpu, self.field(pfn, field), value);
    }
    /// Reads a descriptor field whose line is already paid for.
    #[inline]
    pub fn peek(&self, pfn: Pfn, field: Field) -> u64 {
        self.arena.peek(self.field(pfn, field))
    }
    /// Writes a descriptor field whose line is already paid for.
    #[inline]
    pub fn poke(&self, pfn: Pfn, field: Field, value: u64) {
        self.arena.poke(self.field(pfn, field), value);
    }
    /// Address of a descriptor field.
    #[inline]
    pub fn field(&self, pfn: Pfn, field: Field) -> Addr {
        self.descriptor(pfn).plus(field as u64 * 8)
    }

    /// Lets one request in `one_in` fail from now on, drawn from the CPU's own stream (kernel: fail_page_alloc); 0 ends it.
    pub fn fail_one_in(&self, one_in: u64) {
        self.one_in.store(one_in, Ordering::Relaxed);
    }
    /// Requests that failed so.
    pub fn struck(&self) -> u64 {
        self.struck.load(Ordering::Relaxed)
    }
    /// Changes this CPU's balance. A plain add in its own line: nobody else writes it.
    fn lend(&self, cpu: &M::Cpu, pages: i64) {
        let balance = &self.lent[usize::from(cpu.id().0)].0;
        balance.store(balance.load(Ordering::Relaxed) + pages, Ordering::Relaxed);
    }
    /// Pages lent out and not returned. While CPUs run, a sample.
    pub fn lent(&self) -> u64 {
        self.lent.iter().map(|l| l.0.load(Ordering::Relaxed)).sum::<i64>().max(0) as u64
    }
}

/// Counts of a zone that other CPUs read without its lock.
struct Published {
    free: Word,
    nr_free: Vec<Word>,
    /// Ends of the memory that nobody has taken yet.
    untouched: [Word; 2],
}

impl Published {
    fn new(addr: Addr, zone: &Zone) -> Published {
        Published {
            free: Word::new(addr, zone.free),
            nr_free: zone.nr_free.iter().map(|n| Word::new(addr, *n)).collect(),
            untouched: zone.untouched().map(|end| Word::new(addr, u64::from(end))),
        }
    }
    fn publish(&self, zone: &Zone) {
        self.free.poke(zone.free);
        for (word, n) in self.nr_free.iter().zip(zone.nr_free) {
            word.poke(n);
        }
        for (word, end) in self.untouched.iter().zip(zone.untouched()) {
            word.poke(u64::from(end));
        }
    }
}

/// Period of each CPU's [`Pages::tick`] (page-allocator.md §19.8).
pub const TICK: Picos = Picos(1_000_000_000_000);

/// Offset of the pageset pointers in a zone.
const PAGESETS: u64 = 256;

/// Which watermark a walk heeds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Min = 0,
    Low = 1,
    High = 2,
}

#[cfg(test)]
mod tests;
