//! What the `slabinfo` tool prints of SLUB's caches (slabinfo.md): the listing, the activity listing (-AD) and the totals (-T),
//! computed from the attributes a cache has in sysfs. When no CPU runs.

use super::policy::{Policy, SlowPath};
use super::{Cache, Slub};
use crate::alloc::{Counters, Stat};
use crate::machine::Machine;
use crate::page::Pages;
use crate::units::PAGE_SIZE;

/// The attributes of a cache that the tool reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Directory name.
    pub name: String,
    /// Further names.
    pub aliases: Vec<String>,
    /// All objects less the free ones of node partial slabs; up to 2.6.25 objects in use.
    pub objects: u64,
    /// Objects in use in node partial slabs.
    pub objects_partial: u64,
    /// Bytes asked for.
    pub object_size: u64,
    /// Bytes of a slot.
    pub slab_size: u64,
    /// Slots of a slab of the preferred order.
    pub objs_per_slab: u64,
    /// That order.
    pub order: u8,
    /// All slabs.
    pub slabs: u64,
    /// Slabs on node lists.
    pub partial: u64,
    /// Cpu slabs and slabs on per-CPU lists.
    pub cpu_slabs: u64,
    /// Flag letters: `*` aliases, `A` hardware aligned, `P` poison, `a` reclaimable, `Z` red zone, `F` checks, `U` user, `T`.
    pub flags: String,
    /// Event counts, all CPUs together.
    pub counters: Counters,
}

impl Attributes {
    /// Bytes of all slabs, taken as of the preferred order.
    pub fn space(&self) -> u64 {
        self.slabs * (PAGE_SIZE << self.order)
    }
    fn used(&self) -> u64 {
        self.objects * self.object_size
    }
    fn count(&self, stats: &[Stat]) -> u64 {
        stats.iter().map(|s| self.counters.get(*s)).sum()
    }
    fn allocs(&self) -> u64 {
        self.count(&[Stat::AllocFastpath, Stat::AllocSlowpath])
    }
    fn frees(&self) -> u64 {
        self.count(&[Stat::FreeFastpath, Stat::FreeSlowpath])
    }
}

/// A number with one decimal and a unit above a thousand, truncated, as the tool prints it.
pub fn scaled(value: u64) -> String {
    let with = |unit: u64, letter: char| format!("{}.{}{letter}", value / unit, value / (unit / 10) % 10);
    match value {
        v if v > 1_000_000_000 => with(1_000_000_000, 'G'),
        v if v > 1_000_000 => with(1_000_000, 'M'),
        v if v > 1_000 => with(1_000, 'K'),
        v => v.to_string(),
    }
}

fn percent(part: u64, whole: u64, empty: u64) -> u64 {
    (100 * part).checked_div(whole).unwrap_or(empty)
}

/// The normal listing, by name; caches without slabs are left out.
pub fn listing(caches: &[Attributes]) -> String {
    let mut text = format!(
        "{:<21} {:>8} {:>7} {:>15} {:>14} {:>4} O %Fr %Ef Flg\n",
        "Name", "Objects", "Objsize", "Space", "Slabs/Part/Cpu", "O/S"
    );
    let mut shown: Vec<&Attributes> = caches.iter().filter(|c| c.slabs > 0).collect();
    shown.sort_by_key(|c| c.name.to_lowercase());
    for c in shown {
        let slabs = format!("{}/{}/{}", c.slabs - c.cpu_slabs.min(c.slabs), c.partial, c.cpu_slabs);
        text += &format!(
            "{:<21} {:>8} {:>7} {:>15} {:>14} {:>4} {:>1} {:>3} {:>3} {}\n",
            c.name,
            c.objects,
            c.object_size,
            scaled(c.space()),
            slabs,
            c.objs_per_slab,
            c.order,
            percent(c.partial, c.slabs, 100),
            percent(c.used(), c.space(), 100),
            c.flags
        );
    }
    text
}

/// The activity listing, the most active first. `retries`: the releases whose tool shows lost compare-exchanges (3.1).
pub fn activity(caches: &[Attributes], retries: bool) -> String {
    let mut text = format!(
        "{:<21} {:>8} {:>10} {:>10} %Fast   Fallb O{}\n",
        "Name",
        "Objects",
        "Alloc",
        "Free",
        if retries { " CmpX   UL" } else { "" }
    );
    let mut shown: Vec<&Attributes> = caches.iter().filter(|c| c.slabs > 0).collect();
    shown.sort_by_key(|c| (std::cmp::Reverse(c.allocs() + c.frees()), c.name.to_lowercase()));
    for c in shown {
        text += &format!(
            "{:<21} {:>8} {:>10} {:>10} {:>3} {:>3} {:>5} {:>1}",
            c.name,
            c.objects,
            c.allocs(),
            c.frees(),
            percent(c.count(&[Stat::AllocFastpath]), c.allocs(), 0),
            percent(c.count(&[Stat::FreeFastpath]), c.frees(), 0),
            c.count(&[Stat::OrderFallback]),
            c.order
        );
        if retries {
            let lost = [Stat::CmpxchgDoubleFail, Stat::CmpxchgDoubleCpuFail].map(|s| c.count(&[s]));
            text += &format!(" {:>4} {:>4}", lost[0], lost[1]);
        }
        text.push('\n');
    }
    text
}

/// Average, smallest, largest and sum over the active caches.
struct Spread {
    average: u64,
    min: u64,
    max: u64,
    total: u64,
}

impl Spread {
    fn of(values: impl Iterator<Item = u64> + Clone) -> Spread {
        let (total, n) = (values.clone().sum::<u64>(), values.clone().count() as u64);
        let average = total.checked_div(n).unwrap_or(0);
        Spread { average, min: values.clone().min().unwrap_or(0), max: values.max().unwrap_or(0), total }
    }
    fn line(&self, name: &str) -> String {
        let [a, min, max, total] = [self.average, self.min, self.max, self.total].map(scaled);
        format!("{name:<10} {a:>10} {min:>10} {max:>10} {total:>10}\n")
    }
}

/// The totals over caches with slabs and objects.
pub fn totals(caches: &[Attributes]) -> String {
    let active: Vec<&Attributes> = caches.iter().filter(|c| c.slabs > 0 && c.objects > 0).collect();
    if active.is_empty() {
        return "No objects and no slabs\n".into();
    }
    let spread =
        |f: &dyn Fn(&Attributes) -> u64| Spread::of(active.iter().map(|c| f(c)).collect::<Vec<_>>().into_iter());
    let space = spread(&|c| c.space());
    let used = spread(&|c| c.used());
    let loss = spread(&|c| c.space() - c.used().min(c.space()));
    let objects = spread(&|c| c.objects);
    let slabs = spread(&|c| c.slabs);
    let partial = spread(&|c| c.partial);
    let partial_share = Spread {
        total: percent(partial.total, slabs.total, 0),
        ..spread(&|c| percent(c.partial, c.slabs, 0).min(100))
    };
    let in_partial = spread(&|c| c.objects_partial);
    let share = percent(in_partial.total, objects.total, 0);
    // The tool prints the overall share where the average of this row would be.
    let in_partial_row = Spread { average: share, ..spread(&|c| c.objects_partial) };
    let in_partial_share = Spread { total: share, ..spread(&|c| percent(c.objects_partial, c.objects, 0).min(100)) };
    let aliases: usize = caches.iter().map(|c| c.aliases.len()).sum();
    let targets = caches.iter().filter(|c| !c.aliases.is_empty()).count();
    let mut text = format!(
        "Slabcache Totals\nSlabcaches: {} Aliases: {aliases}->{targets} Active: {}\n",
        caches.len(),
        active.len()
    );
    text += &format!(
        "Memory used: {} # Loss: {} MRatio: {}%\n",
        scaled(space.total),
        scaled(loss.total),
        percent(loss.total, used.total, 0)
    );
    text +=
        &format!("# Objects: {} # PartObj: {} ORatio: {share}%\n\n", scaled(objects.total), scaled(in_partial.total));
    text += &format!("{:<10} {:>10} {:>10} {:>10} {:>10}\n", "Per Cache", "Average", "Min", "Max", "Total");
    let rows = [
        ("#Objects", &objects),
        ("#Slabs", &slabs),
        ("#PartSlab", &partial),
        ("%PartSlab", &partial_share),
        ("PartObjs", &in_partial_row),
        ("% PartObj", &in_partial_share),
        ("Memory", &space),
        ("Used", &used),
        ("Loss", &loss),
    ];
    rows.iter().for_each(|(name, spread)| text += &spread.line(name));
    let per_object = |f: &dyn Fn(&Attributes) -> u64| {
        let weighted: u64 = active.iter().map(|c| c.objects * f(c)).sum();
        Spread { average: weighted / objects.total, ..spread(f) }
    };
    text += &format!("\n{:<10} {:>10} {:>10} {:>10}\n", "Per Object", "Average", "Min", "Max");
    let rows = [
        ("Memory", per_object(&|c| c.slab_size)),
        ("User", per_object(&|c| c.object_size)),
        ("Loss", per_object(&|c| c.slab_size - c.object_size)),
    ];
    for (name, s) in rows {
        text += &format!("{name:<10} {:>10} {:>10} {:>10}\n", scaled(s.average), scaled(s.min), scaled(s.max));
    }
    text
}

impl<M: Machine> Cache<M> {
    fn attributes(&mut self, pages: &Pages<'_, M>, policy: &Policy) -> Attributes {
        let mut counters = Counters::default();
        self.cpus.iter_mut().for_each(|(_, c)| counters.merge(&c.counters));
        let l = self.layout;
        let listed: Vec<_> = (0..self.nodes.len()).flat_map(|n| self.listed(pages, n)).collect();
        let free: u64 = listed.iter().map(|v| v.free()).sum();
        let on_cpus = self.on_cpus(pages);
        let total: u64 = self.nodes.iter().map(|n| n.total_objects.peek()).sum();
        // Up to 2.6.25 the tool's `objects` are those in use, as the slabs count them.
        let counts_use = policy.max_objects.is_none() || policy.max_objects_refuses;
        let unused: u64 = if counts_use {
            on_cpus.iter().filter_map(|(own, _)| own.map(|(_, view, _)| view.free())).sum()
        } else {
            0
        };
        let mut flags = String::new();
        let letters = [
            (!self.aliases.is_empty(), '*'),
            (self.spec.hwcache_align, 'A'),
            (l.debug.poison, 'P'),
            (self.spec.reclaim_account, 'a'),
            (l.debug.red_zone, 'Z'),
            (l.debug.checks, 'F'),
            (l.debug.user, 'U'),
            (l.debug.trace, 'T'),
        ];
        flags.extend(letters.iter().filter(|(on, _)| *on).map(|(_, letter)| letter));
        Attributes {
            name: self.spec.name.clone(),
            aliases: self.aliases.clone(),
            objects: total - free - unused,
            objects_partial: listed.iter().map(|v| v.inuse).sum(),
            object_size: l.object_size,
            slab_size: l.slot,
            objs_per_slab: l.objects,
            order: l.order.0,
            slabs: self.nodes.iter().map(|n| n.nr_slabs.peek()).sum(),
            partial: listed.len() as u64,
            cpu_slabs: on_cpus.iter().map(|(own, partial)| u64::from(own.is_some()) + partial.len() as u64).sum(),
            flags,
            counters,
        }
    }
}

impl<M: Machine> Slub<'_, M> {
    /// The attributes of every cache that exists. When no CPU runs.
    pub fn attributes(&mut self) -> Vec<Attributes> {
        let (pages, policy) = (self.pages, self.policy);
        let existing = self.caches.iter_mut().filter(|c| !c.is_destroyed());
        existing.map(|cache| cache.attributes(pages, &policy)).collect()
    }
    /// The text of `slabinfo`. When no CPU runs.
    pub fn tool_listing(&mut self) -> String {
        listing(&self.attributes())
    }
    /// The text of `slabinfo -AD`. When no CPU runs.
    pub fn tool_activity(&mut self) -> String {
        let retries = self.policy.t.slow_path == SlowPath::Lockless;
        activity(&self.attributes(), retries)
    }
    /// The text of `slabinfo -T`. When no CPU runs.
    pub fn tool_totals(&mut self) -> String {
        totals(&self.attributes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Attributes {
        Attributes {
            name: "X".into(),
            object_size: 104,
            slab_size: 104,
            objs_per_slab: 39,
            slabs: 10,
            partial: 2,
            cpu_slabs: 1,
            objects: 370,
            ..Attributes::default()
        }
    }

    /// slabinfo.md §9.
    #[test]
    fn the_worked_example_is_equal() {
        let text = listing(&[example()]);
        let line: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(line, ["X", "370", "104", "40.9K", "9/2/1", "39", "0", "20", "93"]);
        assert!(text.lines().all(|l| l.len() >= 80), "{text}");
    }

    #[test]
    fn numbers_are_scaled_by_truncation() {
        let shown = [1_048_576, 4096, 1000, 1001, 2_500_000_000].map(scaled);
        assert_eq!(shown, ["1.0M", "4.0K", "1000", "1.0K", "2.5G"]);
    }

    #[test]
    fn activity_is_sorted_and_shows_shares() {
        let mut busy = Attributes { name: "busy".into(), ..example() };
        busy.counters.add(Stat::AllocFastpath, 99);
        busy.counters.add(Stat::AllocSlowpath, 1);
        busy.counters.add(Stat::FreeSlowpath, 50);
        busy.counters.add(Stat::CmpxchgDoubleFail, 3);
        let text = activity(&[example(), busy], true);
        let line: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(line, ["busy", "370", "100", "50", "99", "0", "0", "0", "3", "0"]);
        let quiet: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(quiet[1..6], ["370", "0", "0", "0", "0"]);
    }

    #[test]
    fn totals_read_back_to_the_same_numbers() {
        let other = Attributes { slabs: 2, objects: 78, partial: 0, object_size: 100, ..example() };
        let text = totals(&[example(), other, Attributes::default()]);
        let row = |name: &str| -> Vec<String> {
            let line = text
                .lines()
                .find(|l| l.starts_with(&format!("{name:<10} ")))
                .unwrap_or_else(|| panic!("{name} in {text}"));
            line[10..].split_whitespace().map(String::from).collect()
        };
        assert!(text.contains("Slabcaches: 3 Aliases: 0->0 Active: 2"));
        assert_eq!(row("#Objects"), ["224", "78", "370", "448"]);
        assert_eq!(row("#Slabs"), ["6", "2", "10", "12"]);
        assert_eq!(row("%PartSlab"), ["10", "0", "20", "16"]);
        assert_eq!(row("Memory"), ["24.5K", "8.1K", "40.9K", "49.1K"]);
        assert_eq!(totals(&[]), "No objects and no slabs\n");
    }
}
