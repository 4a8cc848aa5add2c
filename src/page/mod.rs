//! FLOOR 2. Pages: frames, buddy lists, per-CPU page lists, zones and their fallback (page-allocator.md, 2.6.24 form).
//!
//! One zone named `Normal` per node, one migrate type. Frames of all nodes are numbered through from 0; node n owns one
//! contiguous range. Order 0 goes through the hot list of the running CPU for the page's zone, without the zone lock
//! unless it is empty or full; higher orders take the zone lock each time.
//!
//! Invariants (checked by [`Pages::verify`]): every frame is in exactly one of a free block, a per-CPU list, or lent out;
//! `free pages of a zone = Σ nr_free[o] << o`; heads of free blocks are aligned; no two free buddies stay apart;
//! `lent + on per-CPU lists + free = all`.
//!
//! Left out, as the specs allow: the bitmap of zones recently found full, migrate types, background reclaim. Direct
//! reclaim is a hook that the slab layer calls itself: see [`Pages::alloc_pages`].

mod buddy;
mod frame;
mod pcp;

pub use frame::{Field, FrameList, Pfn};

use crate::error::{Corruption, Error};
use crate::machine::{Addr, Arena, Cpu, Machine, PerCpu, SpinLock, Word, cost};
use crate::units::{MAX_ORDER, NodeId, Order, PAGE_SIZE};

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

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
}

/// How blocks are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PageModel {
    /// 2.6.24: buddy lists and hot/cold per-CPU lists.
    #[default]
    HotCold,
    /// What the recordings' stand-ins do: per node fresh blocks from the lowest address up; a returned block is handed
    /// out first to the next request of its order. Blocks are never split or merged. For replays only.
    Stack,
}

/// Event counts of the page allocator, per CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStats {
    /// Successful allocations per order.
    pub allocated: [u64; MAX_ORDER],
    /// Returned blocks per order.
    pub freed: [u64; MAX_ORDER],
    /// Failed allocations per order.
    pub failed: [u64; MAX_ORDER],
    /// Order-0 allocations served by the per-CPU list without the zone lock.
    pub pcp_hit: u64,
    /// Refills of a per-CPU list.
    pub pcp_refill: u64,
    /// Returns from a full per-CPU list.
    pub pcp_return: u64,
    /// Pages taken by refills.
    pub pages_refilled: u64,
    /// Pages given back by returns.
    pub pages_returned: u64,
    /// Times the zone lock was taken.
    pub zone_lock: u64,
    /// Splits of a block.
    pub split: u64,
    /// Merges of two buddies.
    pub merge: u64,
    /// Blocks that came from another node than the one asked for.
    pub fallback_node: u64,
}

/// What one CPU owns of the page allocator: a pageset per zone and its counts.
struct CpuPages {
    sets: Vec<Pageset>,
    stats: PageStats,
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
    model: PageModel,
    /// One request in so many fails, at random; 0: none.
    one_in: AtomicU64,
}

/// One CPU's balance of pages, on a host line of its own.
#[repr(align(128))]
struct Lent(AtomicI64);

impl<'m, M: Machine> Pages<'m, M> {
    /// Takes over all memory of `machine`; every page is free (page-allocator.md §19.2).
    pub fn new(machine: &'m M, model: PageModel) -> Result<Self, Error> {
        let t = machine.topology();
        let bytes: u64 = t.node_ids().map(|n| t.node_bytes(n)).sum();
        let frames = bytes / PAGE_SIZE;
        let refused = |e| Error::new("machine.memory", bytes, e);
        let arena = Arena::new(bytes + frames * frame::FRAME_BYTES).map_err(refused)?;
        let map = Addr(bytes);
        let (mut zones, mut zone_of, mut published, mut zone_addr, mut marks) =
            (vec![], vec![], vec![], vec![], vec![]);
        let mut start = 0u64;
        for node in t.node_ids() {
            let pages = t.node_bytes(node) / PAGE_SIZE;
            // A zone: marks and counts, free areas (two lines), the lock, pointers to the pagesets (page-allocator.md §14).
            let addr = machine.reserve(320, node);
            let mut zone = Zone::new(addr.plus(64), Pfn(start as u32), pages as u32, model);
            zone.release_all(&arena, map);
            published.push(Published::new(addr, &zone));
            zones.push(SpinLock::new(machine.lock("zone->lock", addr.plus(192)), zone));
            zone_of.push((Pfn(start as u32), node));
            zone_addr.push(addr);
            marks.push(buddy::watermarks(pages, frames));
            start += pages;
        }
        let cpus = PerCpu::new(machine, |cpu| CpuPages {
            sets: t
                .node_ids()
                .map(|n| Pageset::new(machine.reserve(64, t.node_of(cpu)), t.node_bytes(n) / PAGE_SIZE))
                .collect(),
            stats: PageStats::default(),
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
            one_in: AtomicU64::new(0),
            model,
        })
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
    /// The same, with two fields of the head's descriptor.
    #[inline]
    pub fn head_with(&self, cpu: &M::Cpu, addr: Addr, fields: [Field; 2]) -> (Pfn, [u64; 2]) {
        let pfn = self.pfn_of(addr).expect("an address of the arena");
        let at = self.descriptor(pfn);
        cpu.touch(at, crate::machine::Access::Read);
        let [a, b] = fields.map(|f| f as usize);
        let [head, x, y] = self.arena.peek_record(at, [Field::Head as usize, a, b]);
        if head == 0 {
            return (pfn, [x, y]);
        }
        let head = Pfn(head as u32 - 1);
        cpu.touch(self.descriptor(head), crate::machine::Access::Read);
        (head, self.arena.peek_record(self.descriptor(head), [a, b]))
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

    /// Allocates a block (kernel: alloc_pages_node). `None` when memory is out; the caller may then reclaim (shrink its
    /// caches) and try once more with [`Pages::drain_local`] done, as in page-allocator.md §19.6.
    pub fn alloc_pages(&self, cpu: &M::Cpu, order: Order, node: Option<NodeId>, flags: PageFlags) -> Option<Page> {
        cpu.work(cost::PAGE_ALLOC);
        if node.is_none() {
            cpu.work(cost::PAGE_POLICY);
        }
        // The list of zones to try, and the CPU's event counters: with the zone's two lines, the four lines that every
        // call touches besides the page's own (page-allocator.md §14 and §20.2: one constant for all allocators).
        cpu.touch(self.events[usize::from(cpu.id().0)], crate::machine::Access::Write);
        let near = node.unwrap_or(cpu.node());
        cpu.touch(self.zonelists[usize::from(near.0)], crate::machine::Access::Read);
        let list = &self.fallback[usize::from(near.0)];
        let list =
            if flags.this_node { &list[..list.len().min(usize::from(list.first() == Some(&near)))] } else { &list[..] };
        let walk = |mark| self.walk(cpu, list, order, flags, mark);
        let found = match self.fails(cpu) {
            true => None,
            false => walk(Mark::Low).or_else(|| if flags.no_retry { None } else { walk(Mark::Min) }),
        };
        let o = usize::from(order.0);
        let Some((pfn, got)) = found else {
            self.cpus.with(cpu, |c| c.stats.failed[o] += 1);
            return None;
        };
        self.cpus.with(cpu, |c| {
            c.stats.allocated[o] += 1;
            c.stats.fallback_node += u64::from(got != near);
        });
        self.lend(cpu, order.pages() as i64);
        self.prepare(cpu, pfn, order, flags);
        Some(Page { pfn, order })
    }

    /// Lets one request in `one_in` fail from now on, drawn from the CPU's own stream (kernel: fail_page_alloc); 0 ends it.
    pub fn fail_one_in(&self, one_in: u64) {
        self.one_in.store(one_in, Ordering::Relaxed);
    }
    fn fails(&self, cpu: &M::Cpu) -> bool {
        let one_in = self.one_in.load(Ordering::Relaxed);
        one_in > 0 && cpu.random(one_in) == 0
    }

    /// Gives a block back (kernel: __free_pages, the last reference dropped).
    pub fn free_pages(&self, cpu: &M::Cpu, page: Page) {
        cpu.touch(self.events[usize::from(cpu.id().0)], crate::machine::Access::Write);
        // The reference is dropped by an atomic decrement.
        cpu.touch(self.field(page.pfn, Field::Count), crate::machine::Access::Rmw);
        self.free_dropped(cpu, page);
    }

    /// The same when the last reference has been dropped already.
    fn free_dropped(&self, cpu: &M::Cpu, page: Page) {
        cpu.work(cost::PAGE_FREE);
        let Page { pfn, order } = page;
        let count = self.load(cpu, pfn, Field::Count);
        assert!(count == 1, "page {pfn:?} of order {} freed with a reference count of {count}", order.0);
        let was = self.peek(pfn, Field::Private);
        assert!(was == frame::lent(order), "page {pfn:?} freed with order {}, allocated as {was:#x}", order.0);
        self.poke(pfn, Field::Count, 0);
        self.poke(pfn, Field::Flags, 0);
        self.clear_tails(cpu, pfn, order);
        self.cpus.with(cpu, |c| {
            c.stats.freed[usize::from(order.0)] += 1;
        });
        self.lend(cpu, -(order.pages() as i64));
        let zone = usize::from(self.node_of(pfn).0);
        if order.0 == 0 && self.model == PageModel::HotCold {
            self.free_order0(cpu, zone, pfn);
        } else {
            cpu.irq_save();
            cpu.work(cost::PAGE_FREE_ZONE);
            self.with_zone(cpu, zone, |zone, charge| zone.give(charge, pfn, order));
        }
    }

    /// Takes one more reference to a page (kernel: get_page).
    pub fn get_page(&self, cpu: &M::Cpu, pfn: Pfn) {
        self.arena.fetch_add(cpu, self.field(pfn, Field::Count), 1);
    }
    /// Drops a reference to an order-0 page and frees it at the last one; true if it was (kernel: put_page).
    pub fn put_page(&self, cpu: &M::Cpu, pfn: Pfn) -> bool {
        let old = self.arena.fetch_add(cpu, self.field(pfn, Field::Count), -1);
        if old == 1 {
            self.poke(pfn, Field::Count, 1);
            self.free_dropped(cpu, Page { pfn, order: Order(0) });
        }
        old == 1
    }

    /// First page of `order` on the nodes of `list` whose marks allow it.
    fn walk(&self, cpu: &M::Cpu, list: &[NodeId], order: Order, flags: PageFlags, mark: Mark) -> Option<(Pfn, NodeId)> {
        for (i, &node) in list.iter().enumerate() {
            if i > 0 {
                cpu.work(cost::PAGE_NEXT_ZONE);
            }
            let zone = usize::from(node.0);
            // Marks, reserve and free counter of the zone: shared lines that every CPU reads.
            cpu.touch(self.zone_addr[zone], crate::machine::Access::Read);
            cpu.touch(self.zone_addr[zone].plus(PAGESETS), crate::machine::Access::Read);
            if self.model == PageModel::HotCold && !self.watermark_ok(zone, order, flags, mark) {
                continue;
            }
            let pfn = if order.0 == 0 && self.model == PageModel::HotCold {
                self.alloc_order0(cpu, zone)
            } else {
                cpu.irq_save();
                cpu.work(cost::PAGE_ALLOC_ZONE);
                self.with_zone(cpu, zone, |zone, charge| zone.take(charge, order))
            };
            if let Some(pfn) = pfn {
                return Some((pfn, node));
            }
        }
        None
    }

    /// The 2.6.24 test (page-allocator.md §7). The counts of single orders are read without the lock, as in the kernel.
    fn watermark_ok(&self, zone: usize, order: Order, flags: PageFlags, mark: Mark) -> bool {
        let seen = &self.published[zone];
        let mut m = self.marks[zone][mark as usize];
        if flags.atomic && mark == Mark::Min {
            m -= m / 2;
            m -= m / 4;
        }
        buddy::watermark_ok(seen.free.peek(), |o| seen.nr_free[o].peek(), order, m)
    }

    fn alloc_order0(&self, cpu: &M::Cpu, zone: usize) -> Option<Pfn> {
        cpu.irq_save();
        let hit = self.cpus.with(cpu, |c| {
            let set = &mut c.sets[zone];
            set.charge(cpu);
            let hit = set.hot.take(self, cpu);
            c.stats.pcp_hit += u64::from(hit.is_some());
            hit
        });
        if hit.is_some() {
            return hit;
        }
        let batch = self.cpus.with(cpu, |c| c.sets[zone].hot.batch);
        let mut taken = Vec::with_capacity(batch as usize);
        self.with_zone(cpu, zone, |zone, charge| {
            while taken.len() < batch as usize
                && let Some(pfn) = zone.take(charge, Order(0))
            {
                charge.cpu.work(cost::PAGE_REFILL);
                taken.push(pfn);
            }
        });
        self.cpus.with(cpu, |c| {
            c.stats.pcp_refill += 1;
            c.stats.pages_refilled += taken.len() as u64;
            let set = &mut c.sets[zone];
            set.hot.refill(self, &taken);
            set.hot.take(self, cpu)
        })
    }

    fn free_order0(&self, cpu: &M::Cpu, zone: usize, pfn: Pfn) {
        cpu.irq_save();
        let back = self.cpus.with(cpu, |c| {
            let set = &mut c.sets[zone];
            set.charge(cpu);
            self.poke(pfn, Field::Private, frame::ON_PCP);
            let back = set.hot.put(self, cpu, pfn);
            if !back.is_empty() {
                c.stats.pcp_return += 1;
                c.stats.pages_returned += back.len() as u64;
            }
            back
        });
        self.give_back(cpu, zone, &back);
    }

    fn give_back(&self, cpu: &M::Cpu, zone: usize, pages: &[Pfn]) {
        if pages.is_empty() {
            return;
        }
        self.with_zone(cpu, zone, |zone, charge| {
            for &pfn in pages {
                charge.cpu.work(cost::PAGE_RETURN);
                zone.give(charge, pfn, Order(0));
            }
        });
    }

    /// Gives all pages of this CPU's lists back to the buddy lists (kernel: drain_local_pages).
    pub fn drain_local(&self, cpu: &M::Cpu) {
        for zone in 0..self.zones.len() {
            let pages = self.cpus.with(cpu, |c| c.sets[zone].hot.drain(self));
            self.give_back(cpu, zone, &pages);
        }
    }

    /// Runs `f` under the zone lock and publishes the zone's free count.
    fn with_zone<R>(&self, cpu: &M::Cpu, zone: usize, f: impl FnOnce(&mut Zone, &buddy::Charge<M>) -> R) -> R {
        let mut guard = self.zones[zone].lock(cpu);
        let charge = buddy::Charge { cpu, arena: &self.arena, map: self.map };
        let (splits, merges) = (guard.splits, guard.merges);
        let result = f(&mut guard, &charge);
        let (splits, merges) = (guard.splits - splits, guard.merges - merges);
        // Readers see the count at once: not before their clocks have come here.
        cpu.interact();
        cpu.touch(self.zone_addr[zone], crate::machine::Access::Write);
        self.published[zone].publish(&guard);
        drop(guard);
        self.cpus.with(cpu, |c| {
            c.stats.zone_lock += 1;
            c.stats.split += splits;
            c.stats.merge += merges;
        });
        result
    }

    /// Reference count, order and compound links of a block that is about to be lent.
    fn prepare(&self, cpu: &M::Cpu, pfn: Pfn, order: Order, flags: PageFlags) {
        self.store(cpu, pfn, Field::Count, 1);
        self.poke(pfn, Field::Private, frame::lent(order));
        self.poke(pfn, Field::Head, 0);
        if order.0 > 0 && flags.compound {
            cpu.work(cost::PAGE_COMPOUND);
            for i in 1..order.pages() as u32 {
                self.store(cpu, Pfn(pfn.0 + i), Field::Head, u64::from(pfn.0) + 1);
            }
        }
        if flags.zero {
            self.arena.fill(self.addr_of(pfn), order.bytes(), 0);
            cpu.touch_span(self.addr_of(pfn), order.bytes(), crate::machine::Access::Write);
        }
    }

    fn clear_tails(&self, cpu: &M::Cpu, pfn: Pfn, order: Order) {
        for i in 1..order.pages() as u32 {
            cpu.work(cost::PAGE_TAIL);
            self.store(cpu, Pfn(pfn.0 + i), Field::Head, 0);
        }
    }

    /// Counts summed over CPUs.
    pub fn stats(&mut self) -> PageStats {
        let mut sum = PageStats::default();
        for (_, c) in self.cpus.iter_mut() {
            sum.add(&c.stats);
        }
        sum
    }
    /// Sets all counts to zero: the end of a warm-up, run by each CPU.
    pub fn reset_stats(&self, cpu: &M::Cpu) {
        self.cpus.with(cpu, |c| c.stats = PageStats::default());
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
    /// Free blocks of each order, one row per node (kernel: /proc/buddyinfo).
    pub fn buddyinfo(&mut self) -> Vec<[u64; MAX_ORDER]> {
        self.zones.iter_mut().map(|z| z.get_mut().nr_free).collect()
    }
    /// The text of `/proc/buddyinfo`, to the last blank.
    pub fn buddyinfo_text(&mut self) -> String {
        let mut text = String::new();
        for (node, row) in self.buddyinfo().iter().enumerate() {
            text += &format!("Node {node}, zone {:>8} ", "Normal");
            row.iter().for_each(|n| text += &format!("{n:>6} "));
            text.push('\n');
        }
        text
    }

    /// Walks all lists and checks the invariants of this module. When no CPU runs.
    pub fn verify(&mut self) -> Result<(), Corruption> {
        let mut seen = vec![false; self.frames as usize];
        let (mut free, mut cached) = (0, 0);
        for (z, zone) in self.zones.iter_mut().enumerate() {
            let zone = zone.get_mut();
            free += zone.verify(&self.arena, self.map, &mut seen, z)?;
            let seen = self.published[z].free.peek();
            crate::ensure!(seen == zone.free, format!("zone {z}"), "published free count {seen} ≠ {}", zone.free);
        }
        let lists: Vec<(crate::units::CpuId, usize, Vec<Pfn>)> = {
            let (arena, map) = (&self.arena, self.map);
            self.cpus
                .iter_mut()
                .flat_map(|(cpu, c)| {
                    c.sets.iter().enumerate().map(move |(z, s)| (cpu, z, s.hot.pages(arena, map))).collect::<Vec<_>>()
                })
                .collect()
        };
        for (cpu, z, pages) in lists {
            for pfn in pages {
                let place = || format!("pcp list of CPU {cpu}, zone {z}");
                crate::ensure!(!seen[pfn.0 as usize], place(), "page {pfn:?} is also elsewhere");
                crate::ensure!(
                    self.peek(pfn, Field::Private) == frame::ON_PCP,
                    place(),
                    "page {pfn:?} has no list mark"
                );
                seen[pfn.0 as usize] = true;
                cached += 1;
            }
        }
        if self.model == PageModel::HotCold {
            let lent = self.lent();
            crate::ensure!(
                lent + cached + free == self.frames,
                "pages",
                "lent {lent} + cached {cached} + free {free} ≠ {}",
                self.frames
            );
        }
        Ok(())
    }
}

/// Counts of a zone that other CPUs read without its lock.
struct Published {
    free: Word,
    nr_free: Vec<Word>,
}

impl Published {
    fn new(addr: Addr, zone: &Zone) -> Published {
        Published {
            free: Word::new(addr, zone.free),
            nr_free: zone.nr_free.iter().map(|n| Word::new(addr, *n)).collect(),
        }
    }
    fn publish(&self, zone: &Zone) {
        self.free.poke(zone.free);
        for (word, n) in self.nr_free.iter().zip(zone.nr_free) {
            word.poke(n);
        }
    }
}

/// Offset of the pageset pointers in a zone.
const PAGESETS: u64 = 256;

/// Which watermark a walk heeds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Min = 0,
    Low = 1,
}

impl PageStats {
    /// Adds another CPU's counts.
    pub fn add(&mut self, other: &PageStats) {
        for o in 0..MAX_ORDER {
            self.allocated[o] += other.allocated[o];
            self.freed[o] += other.freed[o];
            self.failed[o] += other.failed[o];
        }
        self.pcp_hit += other.pcp_hit;
        self.pcp_refill += other.pcp_refill;
        self.pcp_return += other.pcp_return;
        self.pages_refilled += other.pages_refilled;
        self.pages_returned += other.pages_returned;
        self.zone_lock += other.zone_lock;
        self.split += other.split;
        self.merge += other.merge;
        self.fallback_node += other.fallback_node;
    }
}

#[cfg(test)]
mod tests;
