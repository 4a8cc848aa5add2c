//! Per-CPU page lists: LIFO for reuse, FIFO for return (page-allocator.md §4 to §6).
//!
//! Slab pages and socket pages are freed hot, and nobody in this lab asks for cold pages, so of the two lists of 2.6.24
//! (hot, cold) only the hot one ever holds anything; the cold one is left out. With one migrate type the twelve lists of
//! 5.14 are four, one per order 0..3. No zone is ever in background reclaim here, so the rules for that are absent.

use crate::machine::{Access, Addr, Arena, Cpu, Machine};
use crate::units::{Order, fls};

use super::frame::{self, Field, FrameList, Pfn};
use super::{PageModel, Pages};

/// Most orders that lists hold.
const ORDERS: usize = 4;
/// How far the self-tuning sizes may grow: `batch << SCALE` (kernel: CONFIG_PCP_BATCH_SCALE_MAX).
const SCALE: u32 = 5;

/// The lists of one CPU for one zone.
///
/// `count = Σ length of list[o] << o`. After a free `count < high` or, with `high` 0, nothing stays.
#[derive(Debug)]
pub(super) struct Pageset {
    addr: Addr,
    lists: [FrameList; ORDERS],
    /// Base pages on all lists.
    pub(super) count: u32,
    pub(super) high: u32,
    pub(super) batch: u32,
    tuning: Tuning,
    /// Ticks without traffic.
    idle_ticks: u32,
}

/// What changes the sizes of refills and returns.
#[derive(Debug)]
enum Tuning {
    /// Nothing: `batch` each time.
    Fixed,
    /// Returns double from one to the next until something is allocated (5.14 to 6.6).
    Growing { free_factor: u32, high_orders: HighOrders },
    /// `high` moves between its bounds; refills and returns grow with use (6.7 and later).
    Moving { high_min: u32, high_max: u32, alloc_factor: u32, free_count: u32, high_orders: HighOrders },
}

/// Frees of orders 1..3 in a row, without an allocation in between (page-allocator.md §19.9).
#[derive(Debug, Default)]
struct HighOrders {
    last_was_one: bool,
}

impl HighOrders {
    /// Counts a free; true if it and the one before were of orders 1..3.
    fn freed(&mut self, order: Order) -> bool {
        let again = self.last_was_one && order.0 > 0;
        self.last_was_one = order.0 > 0;
        again
    }
}

/// `batch` and `high` as a zone of `present` pages gives them to each of the `cpus` CPUs of its node; with 6.7 and later
/// also the upper bound of `high`.
pub(super) fn sizes(model: PageModel, present: u64, low: u64, cpus: u64) -> (u32, u32, u32) {
    if !model.is_modern() {
        let v = batch_value(present, 128);
        return (v.max(1), 6 * v, 6 * v);
    }
    let batch = batch_value(present, 256).max(1);
    let floor = 4 * batch;
    let per_cpu = |pages: u64| (pages / cpus.max(1)).min(u64::from(u32::MAX / 2)) as u32;
    (batch, per_cpu(low).max(floor), per_cpu(present / 8).max(floor))
}

/// The batch value of a zone: always 2^n − 1, or 0 for tiny zones (kernel: zone_batchsize). `cap`: pages before the
/// division by four, 128 (512 KiB) up to 3.x, 256 (1 MiB) today.
fn batch_value(present: u64, cap: u64) -> u32 {
    let b = ((present / 1024).min(cap) / 4).max(1);
    (1u32 << (fls(b + b / 2) - 1)) - 1
}

impl Pageset {
    pub(super) fn new(model: PageModel, addr: Addr, present: u64, low: u64, cpus: u64) -> Pageset {
        let (batch, high, high_max) = sizes(model, present, low, cpus);
        let high_orders = HighOrders::default();
        let tuning = match model {
            PageModel::Watermark => Tuning::Growing { free_factor: 0, high_orders },
            PageModel::SelfTuning => {
                Tuning::Moving { high_min: high, high_max, alloc_factor: 0, free_count: 0, high_orders }
            }
            _ => Tuning::Fixed,
        };
        Pageset { addr, lists: Default::default(), count: 0, high, batch, tuning, idle_ticks: 0 }
    }

    /// Pays for the line of the set; from 5.14 on its lock is taken with it, which nobody else holds.
    pub(super) fn charge<C: Cpu>(&self, cpu: &C) {
        let locked = !matches!(self.tuning, Tuning::Fixed);
        cpu.touch(self.addr, if locked { Access::Rmw } else { Access::Write });
    }

    /// Takes the most recently freed block of `order`.
    pub(super) fn take<M: Machine>(&mut self, pages: &Pages<'_, M>, cpu: &M::Cpu, order: Order) -> Option<Pfn> {
        let pfn = self.lists[usize::from(order.0)].pop_front(pages, cpu)?;
        self.count -= order.pages() as u32;
        self.allocated();
        Some(pfn)
    }

    /// An allocation was served: the next return is smaller.
    fn allocated(&mut self) {
        self.idle_ticks = 0;
        match &mut self.tuning {
            Tuning::Fixed => {}
            Tuning::Growing { free_factor, high_orders } => {
                *free_factor /= 2;
                high_orders.last_was_one = false;
            }
            Tuning::Moving { free_count, high_orders, .. } => {
                *free_count /= 2;
                high_orders.last_was_one = false;
            }
        }
    }

    /// Blocks of `order` that the next refill takes. `ample`: the zone is above its high mark.
    pub(super) fn refill_size(&mut self, order: Order, ample: bool) -> u32 {
        let batch = self.batch;
        if let Tuning::Moving { high_min, high_max, alloc_factor, .. } = &mut self.tuning
            && order.0 == 0
        {
            if self.high < batch {
                return 1;
            }
            let want = batch << *alloc_factor;
            if high_min != high_max && ample {
                self.high = (self.high + want).min(*high_max);
            }
            let room = self.high.saturating_sub(self.count).saturating_sub(batch).max(batch);
            if want <= room && *alloc_factor < SCALE {
                *alloc_factor += 1;
            }
            return want.min(room);
        }
        if batch == 1 || order.0 == 0 { batch } else { (batch >> order.0).max(2) }
    }

    /// Chains the blocks of a refill, in the order taken, into the list, which is empty.
    pub(super) fn refill<M: Machine>(&mut self, pages: &Pages<'_, M>, order: Order, taken: &[Pfn]) {
        for &pfn in taken.iter().rev() {
            pages.poke(pfn, Field::Private, frame::on_list(order));
            let map = pages.descriptor(Pfn(0));
            self.lists[usize::from(order.0)].link(
                &mut |p, f| frame::edit_raw::<M::Cpu>(None, pages.arena(), map, p, f),
                pfn,
                true,
            );
        }
        self.count += taken.len() as u32 * order.pages() as u32;
    }

    /// Puts a block at the head; returns the blocks that have to go back, tail first. `ample`: the zone is above its high
    /// mark.
    pub(super) fn put<M: Machine>(
        &mut self,
        pages: &Pages<'_, M>,
        cpu: &M::Cpu,
        pfn: Pfn,
        order: Order,
        ample: bool,
    ) -> Vec<(Pfn, Order)> {
        self.idle_ticks = 0;
        pages.poke(pfn, Field::Private, frame::on_list(order));
        self.lists[usize::from(order.0)].push_front(pages, cpu, pfn);
        self.count += order.pages() as u32;
        let n = self.return_size(order, ample);
        self.take_tail(pages, n, order)
    }

    /// Base pages to give back after a free of `order`.
    fn return_size(&mut self, order: Order, ample: bool) -> u32 {
        let (count, batch, high) = (self.count, self.batch, self.high);
        let within = |want: u32, high: u32| if high < batch { 1 } else { want.clamp(batch, (high - batch).max(batch)) };
        match &mut self.tuning {
            Tuning::Fixed => {
                if count >= high {
                    batch.min(count)
                } else {
                    0
                }
            }
            Tuning::Growing { free_factor, high_orders } => {
                let in_a_row = high_orders.freed(order);
                if count < high {
                    return 0;
                }
                if in_a_row {
                    return count;
                }
                let want = batch << *free_factor;
                if high >= batch && want < high - batch {
                    *free_factor += 1;
                }
                within(want, high).min(count)
            }
            Tuning::Moving { high_min, high_max, alloc_factor, free_count, high_orders } => {
                let in_a_row = high_orders.freed(order);
                *alloc_factor /= 2;
                let most = batch << SCALE;
                if *free_count < most {
                    *free_count += order.pages() as u32;
                }
                let all = in_a_row && count >= *high_min;
                let mut allowed = high;
                if all {
                    allowed = 0;
                    self.high = high.saturating_sub(most).max(*high_min);
                } else if high_min == high_max {
                } else if !ample {
                    self.high = high.saturating_sub((*free_count).max(batch)).max(*high_min);
                    allowed = count.max(*high_min);
                } else if count >= high {
                    self.high = high.max((*free_count + batch).min(*high_max));
                }
                match (count < allowed, all) {
                    (true, _) => 0,
                    (false, true) => count.min(most),
                    (false, false) => within(*free_count, allowed).min(count),
                }
            }
        }
    }

    /// Empties all lists, tails first.
    pub(super) fn drain<M: Machine>(&mut self, pages: &Pages<'_, M>) -> Vec<(Pfn, Order)> {
        self.take_tail(pages, self.count, Order(0))
    }

    /// What the tick of once a second gives back. `remote`: the zone is on another node.
    pub(super) fn tick<M: Machine>(&mut self, pages: &Pages<'_, M>, remote: bool) -> Vec<(Pfn, Order)> {
        let n = self.tick_size(remote);
        self.take_tail(pages, n, Order(0))
    }

    /// Base pages the tick gives back. Sets of other nodes' zones: a batch each time after three ticks without traffic
    /// (§19.8). Self-tuning ones: `high` decays, and what exceeds it goes.
    fn tick_size(&mut self, remote: bool) -> u32 {
        if let Tuning::Moving { high_min, .. } = self.tuning {
            let (count, high) = (self.count, self.high);
            self.high = count.saturating_sub(self.batch << SCALE).max(high - high / 8).max(high_min);
            return count.saturating_sub(self.high);
        }
        self.idle_ticks += 1;
        if remote && self.idle_ticks > 3 { self.batch.min(self.count) } else { 0 }
    }

    /// Takes blocks of at least `n` base pages in all from the tails: of the freed block's order first, then of the others
    /// in turn.
    fn take_tail<M: Machine>(&mut self, pages: &Pages<'_, M>, n: u32, first: Order) -> Vec<(Pfn, Order)> {
        let (mut taken, mut left) = (Vec::new(), n.min(self.count) as i64);
        for i in 0..ORDERS {
            let o = (usize::from(first.0) + i) % ORDERS;
            while left > 0
                && let Some(pfn) = self.lists[o].last()
            {
                let map = pages.descriptor(Pfn(0));
                let edit = &mut |p, f: &mut dyn FnMut(u32, u32) -> (u32, u32)| {
                    frame::edit_raw::<M::Cpu>(None, pages.arena(), map, p, f);
                };
                self.lists[o].unlink(edit, pfn);
                pages.poke(pfn, Field::Private, 0);
                self.count -= 1 << o;
                left -= 1 << o;
                taken.push((pfn, Order(o as u8)));
            }
        }
        taken
    }

    /// The blocks of all lists with their orders, for `verify()`.
    pub(super) fn blocks(&self, arena: &Arena, map: Addr) -> Vec<(Pfn, Order)> {
        let of =
            |(o, list): (usize, &FrameList)| list.walk(arena, map).map(|p| (p, Order(o as u8))).collect::<Vec<_>>();
        self.lists.iter().enumerate().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(model: PageModel, batch: u32, high: u32, high_max: u32) -> Pageset {
        let mut set = Pageset::new(model, Addr(0), 4 << 20, 0, 1);
        (set.batch, set.high) = (batch, high);
        if let Tuning::Moving { high_min, high_max: max, .. } = &mut set.tuning {
            (*high_min, *max) = (high, high_max);
        }
        set
    }

    /// §13.8: pages; batch value and hot high/batch of 2.6.24; batch, then high with 1, 8, 32 CPUs, and high_max with 8.
    #[test]
    fn sizes_follow_the_table_of_zones() {
        for (pages, old, batch, high, max) in [
            (1024u64, (1, 0), 1, [80, 10, 4], 16),
            (3968, (1, 0), 1, [156, 19, 4], 62),
            (4096, (1, 0), 1, [160, 20, 5], 64),
            (8192, (1, 6), 1, [226, 28, 7], 128),
            (16384, (3, 18), 3, [320, 40, 12], 256),
            (32768, (7, 42), 7, [452, 56, 28], 512),
            (65536, (15, 90), 15, [640, 80, 60], 1024),
            (131_072, (31, 186), 31, [905, 124, 124], 2048),
            (229_376, (31, 186), 63, [1196, 252, 252], 3584),
            (262_144, (31, 186), 63, [1286, 252, 252], 4096),
            (524_288, (31, 186), 63, [1972, 252, 252], 8192),
            (1_048_576, (31, 186), 63, [3096, 387, 252], 16384),
            (2_097_152, (31, 186), 63, [4993, 624, 252], 32768),
            (4_194_304, (31, 186), 63, [8290, 1036, 259], 65536),
            (16_777_216, (31, 186), 63, [24969, 3121, 780], 262_144),
            (67_108_864, (31, 186), 63, [83492, 10436, 2609], 1_048_576),
        ] {
            let (b, h, _) = sizes(PageModel::HotCold, pages, 0, 1);
            assert_eq!((b, h), old, "{pages}, 2.6.24");
            let low = super::super::marks::watermarks(PageModel::Watermark, pages, pages)[1];
            for (cpus, high) in [1, 8, 32].into_iter().zip(high) {
                let (b, h, m) = sizes(PageModel::SelfTuning, pages, low, cpus);
                assert_eq!((b, h), (batch, high), "{pages}, {cpus} CPUs");
                assert!(cpus != 8 || m == max, "{pages}: high_max {m}");
            }
        }
    }

    #[test]
    fn the_batch_value_is_a_power_of_two_less_one() {
        for present in (0..2_000_000).step_by(997) {
            for cap in [128, 256] {
                assert!((batch_value(present, cap) + 1).is_power_of_two(), "{present}");
            }
        }
    }

    /// §13.12.
    #[test]
    fn a_refill_of_a_higher_order_takes_fewer_blocks_but_at_least_two() {
        for (batch, blocks) in [
            (1, [1, 1, 1, 1]),
            (3, [3, 2, 2, 2]),
            (7, [7, 3, 2, 2]),
            (15, [15, 7, 3, 2]),
            (31, [31, 15, 7, 3]),
            (63, [63, 31, 15, 7]),
        ] {
            for (order, n) in blocks.into_iter().enumerate() {
                let mut set = set(PageModel::Watermark, batch, 1000, 1000);
                assert_eq!(set.refill_size(Order(order as u8), true), n, "batch {batch}, order {order}");
            }
        }
    }

    /// Frees `n` pages, nothing allocated; returns (free, pages given back, count after, high after) of each return.
    fn frees(set: &mut Pageset, n: u32) -> Vec<(u32, u32, u32, u32)> {
        let mut returns = Vec::new();
        for i in 1..=n {
            set.count += 1;
            let back = set.return_size(Order(0), true);
            set.count -= back;
            if back > 0 {
                returns.push((i, back, set.count, set.high));
            }
        }
        returns
    }

    /// §13.10.
    #[test]
    fn returns_grow_from_5_14_on() {
        let mut set = set(PageModel::Watermark, 63, 649, 649);
        let returns = frees(&mut set, 3000);
        let seen: Vec<(u32, u32, u32)> = returns.iter().map(|r| (r.0, r.1, r.2)).collect();
        let table = [
            (649, 63, 586),
            (712, 126, 523),
            (838, 252, 397),
            (1090, 504, 145),
            (1594, 586, 63),
            (2180, 586, 63),
            (2766, 586, 63),
        ];
        assert_eq!((seen.as_slice(), set.count), (table.as_slice(), 297));
    }

    /// §13.11, allocations only.
    #[test]
    fn refills_grow_and_raise_high_from_6_7_on() {
        let mut set = set(PageModel::SelfTuning, 63, 1036, 65536);
        let mut refills = Vec::new();
        for i in 1..=8000 {
            if set.count == 0 {
                let n = set.refill_size(Order(0), true);
                set.count += n;
                refills.push((i, n, set.high));
            }
            set.count -= 1;
            set.allocated();
        }
        let table = [
            (1, 63, 1099),
            (64, 126, 1225),
            (190, 252, 1477),
            (442, 504, 1981),
            (946, 1008, 2989),
            (1954, 2016, 5005),
            (3970, 2016, 7021),
            (5986, 2016, 9037),
        ];
        assert_eq!(refills, table);
    }

    /// §13.11, frees only.
    #[test]
    fn returns_follow_the_count_of_frees_from_6_7_on() {
        let mut set = set(PageModel::SelfTuning, 63, 1036, 65536);
        let returns = frees(&mut set, 8000);
        assert_eq!(
            returns,
            [(1036, 973, 63, 1099), (2072, 1036, 63, 2079), (4088, 2016, 63, 2079), (6104, 2016, 63, 2079)]
        );
        assert_eq!(set.count, 1959);
    }

    /// §13.11, decay.
    #[test]
    fn high_decays_to_its_lower_bound_from_6_7_on() {
        let mut set = set(PageModel::SelfTuning, 63, 1036, 65536);
        (set.high, set.count) = (4000, 3500);
        let ticks: Vec<(u32, u32)> = (0..11)
            .map(|_| {
                let n = set.tick_size(false);
                set.count -= n;
                (set.high, n)
            })
            .collect();
        let table = [
            (3500, 0),
            (3063, 437),
            (2681, 382),
            (2346, 335),
            (2053, 293),
            (1797, 256),
            (1573, 224),
            (1377, 196),
            (1205, 172),
            (1055, 150),
            (1036, 19),
        ];
        assert_eq!(ticks, table);
    }

    #[test]
    fn lists_of_other_nodes_lose_a_batch_a_tick_after_three_ticks_without_traffic() {
        let mut set = set(PageModel::HotCold, 31, 186, 186);
        set.count = 40;
        let n: Vec<u32> = (0..5).map(|_| set.tick_size(true)).collect();
        assert_eq!(n, [0, 0, 0, 31, 31]);
        set.allocated();
        assert_eq!((set.tick_size(true), set.tick_size(false)), (0, 0));
    }

    #[test]
    fn a_run_of_high_order_frees_empties_the_lists_at_high() {
        let mut set = set(PageModel::Watermark, 63, 649, 649);
        set.count = 647;
        set.count += 2;
        assert_eq!(set.return_size(Order(1), true), 63, "the first of the run");
        set.count = 649;
        assert_eq!(set.return_size(Order(1), true), 649, "the second");
    }
}
