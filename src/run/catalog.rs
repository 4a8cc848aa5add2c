//! What exists: allocators, workloads, machines, statistics, with every parameter, default, unit and meaning.

use serde_json::{Value, json};

use crate::alloc::{Configuration, Stat};
use crate::machine::presets::{self, ALIASES, Machinery, Placement};
use crate::page::PageModel;
use crate::spec::Parameter;
use crate::workload::Workload;

use super::VERSION;

fn parameters(list: &[Parameter], defaults: &Value) -> Vec<Value> {
    list.iter()
        .map(|p| json!({ "name": p.name, "unit": p.unit, "meaning": p.meaning, "default": defaults[p.name] }))
        .collect()
}

/// What every machine has besides its figures; a simulated one also goes by other names of some of them.
fn machine_parameters(simulated: bool) -> Vec<Value> {
    let own = |name: &str, unit: &str, meaning: String| json!({ "name": name, "unit": unit, "default": null, "meaning": meaning });
    let mut list = vec![own("cpus", "", "CPUs used; all of the machine when none is given".into())];
    if simulated {
        list.push(own("placement", "", "which CPUs a subset consists of: spread (the default) or packed".into()));
    }
    let words = PageModel::names().join(", ");
    list.push(own("pages", "", format!("page allocator: {words}; that of the allocator's time when none is given")));
    let fragment = "memory fragmented beforehand, [level, seed]: level 0 (not) to 1 (single pages only), a seed from 0";
    list.push(own("fragment", "share, seed", fragment.into()));
    if simulated {
        list.extend(ALIASES.map(|(alias, key)| own(alias, "", format!("another name of {key}"))));
    }
    list
}

/// The catalog as JSON.
pub fn catalog() -> Value {
    macro_rules! allocators {
        ($($name:literal => $alloc:ty, $config:ty;)*) => { vec![$({
            let defaults = |era: &str| json!(<$config as Configuration>::era(era).expect("a listed era"));
            let eras: Vec<Value> = <$config as Configuration>::ERAS.iter().map(|e| json!({ "era": e, "defaults": defaults(e) })).collect();
            json!({
                "name": $name,
                "default_era": <$config as Configuration>::DEFAULT_ERA,
                "eras": eras,
                "parameters": parameters(<$config as Configuration>::PARAMETERS, &defaults(<$config as Configuration>::DEFAULT_ERA)),
            })
        }),*] };
    }
    macro_rules! workloads {
        ($($name:literal => $workload:ty;)*) => { vec![$(json!({
            "name": $name,
            "meaning": <$workload as Workload>::MEANING,
            "parameters": parameters(<$workload as Workload>::PARAMETERS, &json!(<$workload>::default())),
        })),*] };
    }
    let mut workloads: Vec<Value> = crate::workloads!(workloads);
    workloads.push(json!({
        "name": "script",
        "meaning": "an explicit list of operations, each on the CPU it names, one at a time",
        "parameters": [
            { "name": "caches", "unit": "", "default": [], "meaning": "caches made before the first step: name, size, align, flags" },
            { "name": "ops", "unit": "", "default": [], "meaning": "steps: cpu and op (alloc, free, kmalloc, kfree, alloc_pages, free_pages, alloc_bulk, free_bulk, free_rcu, rcu_barrier, prefill, alloc_prefilled, refill, return_prefilled, touch, shrink, trim, tune, write, create, destroy, checkpoint, map)" },
        ],
    }));
    let mut machines: Vec<Value> = presets::names()
        .into_iter()
        .map(|name| {
            let m =
                Machinery::preset(name, &Default::default(), None, Placement::default()).expect("a built-in preset");
            json!({ "name": name, "simulated": true, "cpus": m.all_cpus(), "parameters": machine_parameters(true), "values": m.values })
        })
        .collect();
    machines.push(json!({
        "name": "native",
        "simulated": false,
        "cpus": crate::machine::Native::host_cores(),
        "parameters": machine_parameters(false),
        "values": {
            "nodes": { "value": 1, "unit": "", "confidence": "high", "source": "logical nodes; CPUs are dealt to them in blocks" },
            "memory_mib": { "value": 1024, "unit": "MiB", "confidence": "high", "source": "memory of each node, committed when touched" },
        },
    }));
    let statistics: Vec<Value> =
        Stat::ALL.iter().map(|s| json!({ "name": s.name(), "meaning": s.meaning() })).collect();
    json!({
        "version": VERSION,
        "allocators": crate::allocators!(allocators),
        "workloads": workloads,
        "machines": machines,
        "statistics": statistics,
        "history": { "slub": crate::alloc::slub::history::steps() },
    })
}
