//! The paths of an allocation and a free: zonelist, marks, per-CPU lists, zone lock.

use std::sync::atomic::Ordering;

use crate::machine::{Access, Cpu, Machine, Section, cost};
use crate::units::{NodeId, Order};

use super::buddy::{self, Zone};
use super::frame::{self, Field, Pfn};
use super::{Mark, PAGESETS, Page, PageFlags, Pages, marks};

impl<M: Machine> Pages<'_, M> {
    /// Allocates a block (kernel: alloc_pages_node). `None` when memory is out; the caller may then reclaim (shrink its
    /// caches) and try once more with [`Pages::drain_local`] done, as in page-allocator.md §19.6.
    pub fn alloc_pages(&self, cpu: &M::Cpu, order: Order, node: Option<NodeId>, flags: PageFlags) -> Option<Page> {
        let before = cpu.enter(Section::Pages);
        let page = self.alloc_block(cpu, order, node, flags);
        cpu.enter(before);
        page
    }

    fn alloc_block(&self, cpu: &M::Cpu, order: Order, node: Option<NodeId>, flags: PageFlags) -> Option<Page> {
        cpu.work(cost::PAGE_ALLOC);
        if node.is_none() {
            cpu.work(cost::PAGE_POLICY);
        }
        // The list of zones to try, and the CPU's event counters: with the zone's two lines, the four lines that every
        // call touches besides the page's own (page-allocator.md §14 and §20.2: one constant for all allocators).
        cpu.touch(self.events[usize::from(cpu.id().0)], Access::Write);
        let near = node.unwrap_or(cpu.node());
        cpu.touch(self.zonelists[usize::from(near.0)], Access::Read);
        let list = &self.fallback[usize::from(near.0)];
        let list =
            if flags.this_node { &list[..list.len().min(usize::from(list.first() == Some(&near)))] } else { &list[..] };
        let walk = |mark| self.walk(cpu, list, order, flags, mark);
        let found = match self.fails(cpu) {
            true => None,
            false => walk(Mark::Low).or_else(|| if flags.no_retry { None } else { walk(Mark::Min) }),
        };
        let o = usize::from(order.0);
        let asker = flags.asker.index();
        let Some((pfn, got)) = found else {
            self.cpus.with(cpu, |c| {
                c.stats[usize::from(near.0)].failed[o] += u64::from(!flags.no_retry && !flags.reclaims);
                c.asked.at(asker, o).refused(flags);
            });
            return None;
        };
        self.cpus.with(cpu, |c| {
            let (stats, asked) = (&mut c.stats[usize::from(got.0)], c.asked.at(asker, o));
            stats.allocated[o] += 1;
            stats.fallback_node += u64::from(got != near);
            asked.allocated += 1;
            asked.held += 1;
            asked.fallback_node += u64::from(got != near);
        });
        self.lend(cpu, order.pages() as i64);
        self.prepare(cpu, pfn, order, flags);
        Some(Page { pfn, order })
    }

    /// Whether this request is one of those that [`Pages::fail_one_in`] lets fail.
    fn fails(&self, cpu: &M::Cpu) -> bool {
        let one_in = self.one_in.load(Ordering::Relaxed);
        let fails = one_in > 0 && cpu.random(one_in) == 0;
        if fails {
            self.struck.fetch_add(1, Ordering::Relaxed);
        }
        fails
    }

    /// Gives a block back (kernel: __free_pages, the last reference dropped).
    pub fn free_pages(&self, cpu: &M::Cpu, page: Page) {
        let before = cpu.enter(Section::Pages);
        cpu.touch(self.events[usize::from(cpu.id().0)], Access::Write);
        // The reference is dropped by an atomic decrement.
        cpu.touch(self.field(page.pfn, Field::Count), Access::Rmw);
        self.free_dropped(cpu, page);
        cpu.enter(before);
    }

    /// The same when the last reference has been dropped already.
    fn free_dropped(&self, cpu: &M::Cpu, page: Page) {
        cpu.work(cost::PAGE_FREE);
        let Page { pfn, order } = page;
        let count = self.load(cpu, pfn, Field::Count);
        assert!(count == 1, "page {pfn:?} of order {} freed with a reference count of {count}", order.0);
        let (was, asker) = frame::lent_to(self.peek(pfn, Field::Private));
        assert!(was == frame::lent(order, 0), "page {pfn:?} freed with order {}, allocated as {was:#x}", order.0);
        self.poke(pfn, Field::Count, 0);
        self.poke(pfn, Field::Flags, 0);
        self.poke(pfn, Field::Owner, 0);
        self.clear_tails(cpu, pfn, order);
        let zone = usize::from(self.node_of(pfn).0);
        self.cpus.with(cpu, |c| {
            let (o, of) = (usize::from(order.0), c.asked.at(asker, usize::from(order.0)));
            c.stats[zone].freed[o] += 1;
            of.freed += 1;
            of.held -= 1;
        });
        self.lend(cpu, -(order.pages() as i64));
        if self.is_listed(order) {
            self.free_listed(cpu, zone, pfn, order);
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
        self.put_block(cpu, pfn, Order(0))
    }
    /// The same for a block of `order`, whose references are counted in its first page.
    pub fn put_block(&self, cpu: &M::Cpu, pfn: Pfn, order: Order) -> bool {
        let old = self.arena.fetch_add(cpu, self.field(pfn, Field::Count), -1);
        if old == 1 {
            self.poke(pfn, Field::Count, 1);
            let before = cpu.enter(Section::Pages);
            self.free_dropped(cpu, Page { pfn, order });
            cpu.enter(before);
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
            cpu.touch(self.zone_addr[zone], Access::Read);
            cpu.touch(self.zone_addr[zone].plus(PAGESETS), Access::Read);
            if self.model.is_buddy() && !self.watermark_ok(zone, order, flags, mark) {
                continue;
            }
            let pfn = if self.is_listed(order) {
                self.alloc_listed(cpu, zone, order)
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

    /// Whether blocks of `order` go through the per-CPU lists.
    #[inline]
    fn is_listed(&self, order: Order) -> bool {
        usize::from(order.0) < self.model.listed_orders()
    }

    /// The test against a mark (page-allocator.md §7). The counts of single orders are read without the lock, as in the
    /// kernel.
    fn watermark_ok(&self, zone: usize, order: Order, flags: PageFlags, mark: Mark) -> bool {
        let seen = &self.published[zone];
        let urgent = flags.atomic && mark == Mark::Min;
        let mark = marks::lowered(self.marks[zone][mark as usize], urgent, urgent);
        marks::watermark_ok(self.model, seen.free.peek(), |o| seen.nr_free[o].peek(), order, mark)
    }

    /// The zone is above its high mark: self-tuning lists may grow.
    fn ample(&self, zone: usize) -> bool {
        self.published[zone].free.peek() > self.marks[zone][Mark::High as usize]
    }

    /// Takes a block from this CPU's lists; refills them under the zone lock if the list is empty.
    fn alloc_listed(&self, cpu: &M::Cpu, zone: usize, order: Order) -> Option<Pfn> {
        cpu.irq_save();
        let hit = self.cpus.with(cpu, |c| {
            let set = &mut c.sets[zone];
            set.charge(cpu);
            let hit = set.take(self, cpu, order);
            c.stats[zone].pcp_hit += u64::from(hit.is_some());
            hit
        });
        if hit.is_some() {
            return hit;
        }
        let ample = self.ample(zone);
        let n = self.cpus.with(cpu, |c| c.sets[zone].refill_size(order, ample)) as usize;
        let mut taken = Vec::with_capacity(n);
        self.with_zone(cpu, zone, |zone, charge| {
            while taken.len() < n
                && let Some(pfn) = zone.take(charge, order)
            {
                charge.cpu.work(cost::PAGE_REFILL);
                taken.push(pfn);
            }
        });
        self.cpus.with(cpu, |c| {
            c.stats[zone].pcp_refill += 1;
            c.stats[zone].pages_refilled += taken.len() as u64 * order.pages();
            let set = &mut c.sets[zone];
            set.refill(self, order, &taken);
            set.take(self, cpu, order)
        })
    }

    /// Puts a block on this CPU's lists, and gives some back under the zone lock when they are full.
    fn free_listed(&self, cpu: &M::Cpu, zone: usize, pfn: Pfn, order: Order) {
        cpu.irq_save();
        let ample = self.ample(zone);
        let back = self.cpus.with(cpu, |c| {
            let set = &mut c.sets[zone];
            set.charge(cpu);
            let back = set.put(self, cpu, pfn, order, ample);
            if !back.is_empty() {
                c.stats[zone].pcp_return += 1;
                c.stats[zone].pages_returned += back.iter().map(|(_, o)| o.pages()).sum::<u64>();
            }
            back
        });
        self.give_back(cpu, zone, &back);
    }

    fn give_back(&self, cpu: &M::Cpu, zone: usize, blocks: &[(Pfn, Order)]) {
        if blocks.is_empty() {
            return;
        }
        self.with_zone(cpu, zone, |zone, charge| {
            for &(pfn, order) in blocks {
                charge.cpu.work(cost::PAGE_RETURN);
                zone.give(charge, pfn, order);
            }
        });
    }

    /// Gives all pages of this CPU's lists back to the buddy lists (kernel: drain_local_pages).
    pub fn drain_local(&self, cpu: &M::Cpu) {
        for zone in 0..self.zones.len() {
            let blocks = self.cpus.with(cpu, |c| c.sets[zone].drain(self));
            self.drained(cpu, zone, &blocks);
        }
    }

    /// This CPU's work of once a second: pages of other nodes that nobody has asked for go back, and self-tuning lists
    /// shrink (page-allocator.md §19.8).
    pub fn tick(&self, cpu: &M::Cpu) {
        for zone in 0..self.zones.len() {
            let remote = zone != usize::from(cpu.node().0);
            let blocks = self.cpus.with(cpu, |c| c.sets[zone].tick(self, remote));
            self.drained(cpu, zone, &blocks);
        }
    }

    fn drained(&self, cpu: &M::Cpu, zone: usize, blocks: &[(Pfn, Order)]) {
        self.cpus.with(cpu, |c| c.stats[zone].drained += blocks.iter().map(|(_, o)| o.pages()).sum::<u64>());
        self.give_back(cpu, zone, blocks);
    }

    /// Runs `f` under the zone lock and publishes the zone's free count.
    fn with_zone<R>(&self, cpu: &M::Cpu, index: usize, f: impl FnOnce(&mut Zone, &buddy::Charge<M>) -> R) -> R {
        let mut guard = self.zones[index].lock(cpu);
        let charge = buddy::Charge { cpu, arena: &self.arena, map: self.map };
        let (splits, merges) = (guard.splits, guard.merges);
        let result = f(&mut guard, &charge);
        let (splits, merges) = (guard.splits - splits, guard.merges - merges);
        // Readers see the count at once: not before their clocks have come here.
        cpu.interact();
        cpu.touch(self.zone_addr[index], Access::Write);
        self.published[index].publish(&guard);
        drop(guard);
        self.cpus.with(cpu, |c| {
            let stats = &mut c.stats[index];
            stats.zone_lock += 1;
            stats.split += splits;
            stats.merge += merges;
        });
        result
    }

    /// Reference count, order and compound links of a block that is about to be lent.
    fn prepare(&self, cpu: &M::Cpu, pfn: Pfn, order: Order, flags: PageFlags) {
        self.store(cpu, pfn, Field::Count, 1);
        self.poke(pfn, Field::Private, frame::lent(order, flags.asker.index()));
        self.poke(pfn, Field::Head, 0);
        if order.0 > 0 && flags.compound {
            cpu.work(cost::PAGE_COMPOUND);
            for i in 1..order.pages() as u32 {
                self.store(cpu, Pfn(pfn.0 + i), Field::Head, u64::from(pfn.0) + 1);
            }
        }
        if flags.zero {
            self.arena.fill(self.addr_of(pfn), order.bytes(), 0);
            cpu.touch_span(self.addr_of(pfn), order.bytes(), Access::Write);
        }
    }

    fn clear_tails(&self, cpu: &M::Cpu, pfn: Pfn, order: Order) {
        for i in 1..order.pages() as u32 {
            cpu.work(cost::PAGE_TAIL);
            self.store(cpu, Pfn(pfn.0 + i), Field::Head, 0);
        }
    }
}
