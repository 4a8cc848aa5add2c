//! Replays the placement files: phases of allocations on one cache, and which object each of them returns.

use std::collections::HashMap;

use serde_json::Value;

use super::compare::{Line, Tally};
use super::recording::Group;
use super::sequences::{Random, SEED, Writer, order};
use crate::alloc::{Placement, SlabAllocator};
use crate::machine::Sim;
use crate::page::Pfn;
use crate::run::script::{Slots, execute};
use crate::spec::CacheId;

/// Objects of a phase, and of the last two phases.
const FEW: u32 = 300;
const MANY: u32 = 1200;

/// How the objects of the phase before are freed, and what the phase allocates.
struct Phase {
    /// `cpu` and order of freeing.
    frees: Option<(u64, &'static str)>,
    allocates: Allocates,
}

enum Allocates {
    Objects(u32),
    /// Slots and operations.
    Churn(u32, u64),
}

/// The phase of this name, by its number; `last` is the last CPU, `before` the number of the phase before.
fn phase(name: &str, last: u64, before: u32) -> Phase {
    let number = number(name);
    let few = |cpu, order| Phase { frees: Some((cpu, order)), allocates: Allocates::Objects(FEW) };
    match number {
        1 => Phase { frees: None, allocates: Allocates::Objects(FEW) },
        2 => few(0, "lifo"),
        3 => few(0, "fifo"),
        4 => few(0, "random"),
        5 => few(0, "even_odd"),
        6 => {
            let count = |unit: &str| {
                let word = name.split('_').find_map(|w| w.strip_suffix(unit));
                word.and_then(|w| w.parse().ok()).unwrap_or_else(|| panic!("{name}: number of {unit}"))
            };
            Phase { frees: Some((0, "fifo")), allocates: Allocates::Churn(count("slots"), u64::from(count("ops"))) }
        }
        7 => few(0, "fifo"),
        8 | 10 => few(1, "fifo"),
        9 => few(1, "random"),
        11 => few(last, "fifo"),
        12 => few(last, "random"),
        20 => {
            let cpu = [(9, 1), (12, last)].iter().find(|(n, _)| *n == before).map_or(0, |(_, cpu)| *cpu);
            Phase { frees: Some((cpu, "fifo")), allocates: Allocates::Objects(MANY) }
        }
        21 => Phase { frees: Some((0, "random")), allocates: Allocates::Objects(MANY) },
        _ => panic!("placement phase {name} is unknown"),
    }
}

fn number(name: &str) -> u32 {
    name.split('_').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("placement phase {name}"))
}

/// The slots that hold something, in the order named.
fn slots_in(order_name: &str, held: &[u32], seed: u64) -> Vec<u32> {
    let n = held.len() as u32;
    let order = match order_name {
        "even_odd" => (0..n).step_by(2).chain((1..n).step_by(2)).collect(),
        name => order(name, n, seed),
    };
    order.into_iter().map(|i| held[i as usize]).collect()
}

/// Replays all phases of one cache.
pub(super) fn replay<'p, A: SlabAllocator<'p, Sim>>(allocator: &mut A, group: &Group) -> Tally {
    let spec = group.spec();
    let kmalloc = group.get("api") == "kmalloc";
    let seed = group.get("seed").as_str().map_or(SEED, |s| s.parse().expect("a seed"));
    let last = group.shape().0 - 1;
    // A checkpoint after every allocation (`o`), because its object may be gone at the end of the phase, and one at the
    // end of each phase (`p`).
    let mut w = Writer::every(kmalloc, spec.size);
    let (mut held, mut before) = (Vec::new(), 0);
    // Slot of each allocation.
    let mut taken: Vec<u32> = Vec::new();
    for line in &group.lines {
        let name = line["placement"].as_str().expect("placement");
        let cpu = line["on_cpu"].as_u64().or(line["cpu"].as_u64()).unwrap_or(0);
        let phase = phase(name, last, before);
        if let Some((cpu, order)) = phase.frees {
            w.free_all(cpu, slots_in(order, &held, seed));
        }
        match phase.allocates {
            Allocates::Objects(n) => {
                for slot in 0..n {
                    w.alloc(cpu, slot);
                    taken.push(slot);
                    w.checkpoint("o");
                }
                held = (0..n).collect();
            }
            Allocates::Churn(slots, ops) => {
                let mut random = Random::new(seed);
                for _ in 0..ops {
                    let slot = (random.next() % u64::from(slots)) as u32;
                    if w.is_held(slot) {
                        w.free(cpu, slot);
                    } else {
                        w.alloc(cpu, slot);
                        taken.push(slot);
                        w.checkpoint("o");
                    }
                }
                held = (0..slots).filter(|s| w.is_held(*s)).collect();
            }
        }
        w.checkpoint("p");
        before = number(name);
    }
    let script = w.finish(if kmalloc { vec![] } else { vec![spec] });

    let mut tally = Tally::default();
    // A booted kernel's page allocator hands out other pages than the stand-ins' stack once some were returned.
    let booted =
        group.get("source").is_null() && group.get("allocator").as_str().is_some_and(|a| a.starts_with("slub"));
    let off_slab = group.get("geometry")["off_slab"] == 1;
    let mut compare = Compare { renames: off_slab || booted, ..Compare::default() };
    let mut taken = taken.into_iter();
    let mut at = |allocator: &mut A, caches: &[CacheId], slots: &Slots, kind: &str| {
        let cache = caches.first().copied().unwrap_or(CacheId(0));
        if kind == "o" {
            let slot = taken.next().expect("a slot per checkpoint");
            let addr = slots.addr(slot).unwrap_or_else(|| panic!("{}: memory is out", group.title()));
            compare.objects.push(allocator.placement(cache, addr));
            return;
        }
        let recorded = &group.lines[compare.phase];
        let title = format!("{} {}", group.title(), recorded["placement"]);
        let line = Line { number: group.line + compare.phase, title };
        let placed = tally.key("objs", &line, compare.phase(&recorded["objs"]));
        let ours = super::state(allocator, caches, slots, recorded);
        let equal = tally.state(&line, recorded, &ours) && placed;
        tally.total += 1;
        tally.equal += u64::from(equal);
    };
    let machine = allocator.pages().machine();
    execute(machine, allocator, &script, &mut at).expect("a script that runs");
    tally
}

/// Compares the objects of phase after phase.
#[derive(Default)]
struct Compare {
    phase: usize,
    /// Objects of this phase so far.
    objects: Vec<Placement>,
    /// Slabs of all phases, by first appearance.
    ordinals: HashMap<Pfn, u64>,
    /// Slabs are compared up to renaming from the second phase on.
    renames: bool,
}

impl Compare {
    /// Compares the phase that ends here with `recorded`; describes the first difference.
    fn phase(&mut self, recorded: &Value) -> Option<String> {
        let recorded = recorded.as_array().expect("objs");
        let objects = std::mem::take(&mut self.objects);
        // Off-slab SLAB caches share the stack of pages with the caches of their headers, which are not the recorded
        // ones: from the second phase on their ordinals are equal up to renaming only.
        let renaming = self.renames && self.phase > 0;
        self.phase += 1;
        if recorded.len() != objects.len() {
            return Some(format!("recorded {} objects, ours {}", recorded.len(), objects.len()));
        }
        let (mut there, mut back) = (HashMap::new(), HashMap::new());
        for (i, (theirs, ours)) in recorded.iter().zip(&objects).enumerate() {
            let next = self.ordinals.len() as u64;
            let ordinal = *self.ordinals.entry(ours.slab).or_insert(next);
            let theirs: Vec<u64> =
                theirs.as_array().expect("an object").iter().map(|n| n.as_u64().expect("a number")).collect();
            let same_slab = if renaming {
                *there.entry(theirs[0]).or_insert(ordinal) == ordinal
                    && *back.entry(ordinal).or_insert(theirs[0]) == theirs[0]
            } else {
                theirs[0] == ordinal
            };
            let ours = [ordinal, ours.index, ours.offset];
            if !same_slab || theirs[1..] != ours[1..theirs.len()] {
                return Some(format!("object {i}: recorded {theirs:?}, ours {:?}", &ours[..theirs.len()]));
            }
        }
        None
    }
}
