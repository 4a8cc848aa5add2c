//! What a `map` of a script shows: every slab with its objects, what the script's slots hold, event counts.

use serde_json::{Map as Fields, Value, json};

use super::script::Slots;
use crate::alloc::{Counters, Live, SlabAllocator, Stat, ZERO_SIZE};
use crate::machine::{Effort, Machine};
use crate::spec::CacheId;
use crate::units::PAGE_SIZE;

/// The map: `caches` (those of the script, of slabs, and with events; `made` gives the number of each of the script's),
/// `slabs`, `slots`, `failed` (slots), `uncached` (events of no cache), `pages`
/// (lent by the page allocator), `queues` and `queues_text` (who holds what in which queue, of an allocator that says so),
/// `nodes` (how many), `cpu_nodes` (of each CPU) and `effort`: what the allocator's operations have cost since the map before.
pub(super) fn map<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(
    alloc: &mut A,
    made: &[CacheId],
    slots: &Slots,
) -> Value {
    let held: Vec<(u32, Live)> = slots.live().collect();
    let live: Vec<Live> = held.iter().map(|(_, live)| *live).filter(|(_, at)| *at != ZERO_SIZE).collect();
    let map = alloc.objects(&live);
    let slabs: Vec<Value> = map
        .slabs()
        .iter()
        .map(|s| {
            let objects: Vec<_> = s.objects.iter().map(|o| json!([o.at, o.bytes, o.state.to_string()])).collect();
            json!({
                "cache": s.cache.map(|id| id.0), "slab": s.slab.0, "pages": s.pages, "node": s.node.0,
                "list": s.list, "objects": objects,
            })
        })
        .collect();
    let slots_held: Vec<Value> = held
        .iter()
        .map(|(slot, (cache, at))| {
            let mut row = json!({ "slot": slot, "cache": cache.map(|id| id.0) });
            match map.find(*at) {
                Some((slab, index)) => row["at"] = json!([slab, index]),
                None if *at == ZERO_SIZE => row["zero_size"] = json!(true),
                None => row["frame"] = json!(at.0 / PAGE_SIZE),
            }
            row
        })
        .collect();
    let caches: Vec<Value> = (0..alloc.cache_count() as u32)
        .map(CacheId)
        .filter_map(|id| {
            let events = events(&alloc.counters(id));
            let shown = made.contains(&id) || !events.is_empty() || map.slabs().iter().any(|s| s.cache == Some(id));
            shown.then(|| {
                let info = alloc.info(id);
                json!({ "cache": id.0, "name": info.name, "object_size": info.object_size, "events": events })
            })
        })
        .collect();
    let machine = alloc.pages().machine();
    let topology = machine.topology();
    json!({
        "nodes": topology.nodes(),
        "cpu_nodes": topology.cpu_ids().map(|c| topology.node_of(c).0).collect::<Vec<_>>(),
        "made": made.iter().map(|id| id.0).collect::<Vec<_>>(),
        "caches": caches,
        "slabs": slabs,
        "slots": slots_held,
        "failed": slots.failures().collect::<Vec<_>>(),
        "uncached": events(&alloc.uncached_counters()),
        "pages": alloc.pages().lent(),
        "queues": alloc.queues_rows(),
        "queues_text": alloc.queues_text(),
        "effort": machine.effort().map(effort),
    })
}

fn effort(e: Effort) -> Value {
    let [objects, descriptors, structures] = e.lines;
    json!({
        "operations": e.operations, "instructions": e.instructions, "loads": e.loads, "stores": e.stores,
        "atomics": e.atomics, "local_exchanges": e.local_exchanges, "irq_pairs": e.irq_pairs,
        "object_lines": objects, "descriptor_lines": descriptors, "structure_lines": structures,
        "time_ps": e.time_ps,
    })
}

/// Counts over all CPUs, without those that are 0.
fn events(cpus: &[Counters]) -> Fields<String, Value> {
    let mut sum = Counters::default();
    cpus.iter().for_each(|c| sum.merge(c));
    let seen = Stat::ALL.iter().filter(|s| sum.get(**s) > 0);
    seen.map(|s| (s.name().to_string(), json!(sum.get(*s)))).collect()
}
