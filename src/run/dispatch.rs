//! From names to types, once: the one place that matches on allocator, machine and workload.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use crate::alloc::{Configuration, SlabAllocator};
use crate::error::Error;
use crate::machine::sim::{Cancel, Schedule};
use crate::machine::{Cpu, Machine, Native, Sim};
use crate::page::Pages;
use crate::spec::CacheId;
use crate::topology::Topology;
use crate::units::PAGE_SIZE;
use crate::workload::script::{Script, ScriptOp};
use crate::workload::{Plan, Workload};

use super::exec::Executor;
use super::sched::Rules;
use super::{Config, Failure, Outcome, report};

/// Names of all allocators.
macro_rules! allocator_names {
    ($($name:literal => $alloc:ty, $config:ty;)*) => { &[$($name),*] };
}
/// Names of all workloads.
macro_rules! workload_names {
    ($($name:literal => $workload:ty;)*) => { &[$($name),*] };
}

fn name(part: &Value) -> &str {
    part["name"].as_str().unwrap_or_default()
}

fn era(allocator: &Value) -> &str {
    allocator["era"].as_str().unwrap_or_default()
}

/// Fills in every default of the allocator and the workload, and checks the machine.
pub(super) fn complete(config: &mut Config) -> Result<(), Error> {
    if config.machine.is_native() {
        let (cpus, ..) = config.machine.native_shape()?;
        config.machine.cpus = Some(cpus);
    } else {
        config.machine.cpus = Some(config.machine.machinery()?.cpus);
    }
    config.allocator = complete_allocator(&config.allocator)?;
    config.machine.page_model(era(&config.allocator))?;
    config.machine.fragmentation()?;
    let cpus = config.machine.cpus.unwrap_or(1) as u16;
    config.workload = complete_workload(&config.workload, cpus)?;
    if config.workload["era"] == "machine" {
        // Network and file rules are those of the machine's kernel; the host and machines to order have a recent one.
        let kernel = if config.machine.is_native() { (6, 18, 0) } else { config.machine.machinery()?.kernel() };
        config.workload["era"] = json!(crate::workload::net::Era::of_release(kernel));
        config.workload = complete_workload(&config.workload, cpus)?;
    }
    Ok(())
}

fn with_name(name: &str, value: Value) -> Value {
    let mut object = value.as_object().cloned().unwrap_or_default();
    object.insert("name".into(), json!(name));
    Value::Object(object)
}

fn complete_allocator(given: &Value) -> Result<Value, Error> {
    // `slub@2.6.24` is the short form of a name with its era.
    let (bare, era) = name(given).split_once('@').map_or((name(given), None), |(n, e)| (n, Some(e)));
    let mut given = given.clone();
    if let (Some(era), Some(object)) = (era, given.as_object_mut()) {
        if object.get("era").is_some_and(|e| e != era) {
            return Err(Error::new("allocator.era", &object["era"], format!("{era}, or no era after @")));
        }
        object.insert("era".into(), json!(era));
    }
    macro_rules! complete {
        ($($name:literal => $alloc:ty, $config:ty;)*) => {
            match bare {
                $($name => Ok(with_name($name, json!(<$config as Configuration>::from_json(&given)?))),)*
                other => Err(Error::unknown("allocator", other, crate::allocators!(allocator_names))),
            }
        };
    }
    crate::allocators!(complete)
}

/// What a configuration asks to run.
enum Job {
    /// Tasks, as a workload of the registry plans them.
    Tasks(Plan),
    /// An explicit list of operations.
    Script(Script),
}

/// Names of everything that can stand under `workload`.
fn workload_list() -> Vec<&'static str> {
    let registered: &[&'static str] = crate::workloads!(workload_names);
    registered.iter().copied().chain(["script"]).collect()
}

/// A script, entry by entry, so that a refusal names the entry: `workload.ops[17]`.
fn script(given: &Value) -> Result<Script, Error> {
    let mut fields = given.as_object().cloned().unwrap_or_default();
    fields.remove("name");
    let script = Script {
        caches: entries("caches", fields.remove("caches").unwrap_or(json!([])))?,
        ops: entries("ops", fields.remove("ops").ok_or_else(|| Error::new("workload.ops", "nothing", "a list"))?)?,
    };
    match fields.keys().next() {
        Some(key) => Err(Error::unknown("workload", key, &["caches", "ops"])),
        None => Ok(script),
    }
}

fn entries<T: serde::de::DeserializeOwned>(field: &str, given: Value) -> Result<Vec<T>, Error> {
    let Value::Array(list) = given else {
        return Err(Error::new(format!("workload.{field}"), given, "a list"));
    };
    let entry = |(i, one): (usize, Value)| {
        serde_json::from_value(one.clone())
            .map_err(|e| Error::new(format!("workload.{field}[{i}]"), one, e.to_string()))
    };
    list.into_iter().enumerate().map(entry).collect()
}

fn complete_workload(given: &Value, cpus: u16) -> Result<Value, Error> {
    if name(given) == "script" {
        return Ok(with_name("script", json!(script(given)?)));
    }
    macro_rules! complete {
        ($($name:literal => $workload:ty;)*) => {
            match name(given) {
                $($name => {
                    let full = <$workload as Workload>::from_json(given)?;
                    full.check_on(cpus)?;
                    Ok(with_name($name, json!(full)))
                })*
                other => Err(Error::unknown("workload", other, &workload_list())),
            }
        };
    }
    crate::workloads!(complete)
}

fn job(config: &Config) -> Result<Job, Error> {
    if name(&config.workload) == "script" {
        return Ok(Job::Script(script(&config.workload)?));
    }
    let cpus = config.machine.cpus.unwrap_or(1) as u16;
    macro_rules! plan {
        ($($name:literal => $workload:ty;)*) => {
            match name(&config.workload) {
                $($name => Ok(Job::Tasks(<$workload as Workload>::from_json(&config.workload)?.plan_on(config.seed, cpus))),)*
                other => Err(Error::unknown("workload", other, &workload_list())),
            }
        };
    }
    crate::workloads!(plan)
}

/// Runs a completed configuration. A panic of the core becomes a failure with its message. The host's `wall_s` is all of
/// this: the start of the world and its end count.
pub(super) fn run(config: &Config, cancel: &Cancel) -> Result<Outcome, Failure> {
    let started = Instant::now();
    let caught = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let job = job(config)?;
        if config.machine.is_native() {
            let (cpus, nodes, mib) = config.machine.native_shape()?;
            let topology = Topology::blocks(cpus as u16, nodes as u16, (mib << 20) / PAGE_SIZE * PAGE_SIZE);
            on_machine(Native::new(topology)?, config, job, cancel)
        } else {
            let hardware = config.machine.machinery()?;
            let jitter_ps = (hardware.number("jitter")? * 1000.0).round() as u64;
            let schedule = Schedule { seed: config.seed, jitter_ps, ..Schedule::default() };
            on_machine(Sim::new(&hardware, schedule)?, config, job, cancel)
        }
    }));
    let mut outcome = caught.unwrap_or_else(|panic| Err(Failure::Corruption(message(&*panic))))?;
    outcome.host.insert("wall_s".into(), json!(started.elapsed().as_secs_f64()));
    Ok(outcome)
}

fn on_machine<M: Machine>(machine: M, config: &Config, job: Job, cancel: &Cancel) -> Result<Outcome, Failure> {
    let mut machine = machine;
    macro_rules! pick {
        ($($name:literal => $alloc:ty, $config:ty;)*) => {
            match name(&config.allocator) {
                $($name => {
                    let tunables = <$config as Configuration>::from_json(&config.allocator)?;
                    let mut gathered = {
                        let model = config.machine.page_model(era(&config.allocator))?;
                        let mut pages = Pages::fragmented(&machine, model, config.machine.fragmentation()?)?;
                        let mut gathered = {
                            let mut alloc = <$alloc as SlabAllocator<'_, M>>::new(&pages, &tunables)?;
                            match job {
                                Job::Tasks(plan) => execute(&mut alloc, config, plan, cancel)?,
                                Job::Script(script) => execute_script(&mut alloc, &script)?,
                            }
                        };
                        pages.verify().map_err(|c| Failure::Corruption(c.to_string()))?;
                        gathered.pages(&mut pages);
                        gathered
                    };
                    gathered.machine(machine.report());
                    Ok(gathered.outcome(config))
                })*
                other => Err(Error::unknown("allocator", other, crate::allocators!(allocator_names)).into()),
            }
        };
    }
    crate::allocators!(pick)
}

/// Runs the plan over an allocator and gathers what it reports.
fn execute<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(
    alloc: &mut A,
    config: &Config,
    plan: Plan,
    cancel: &Cancel,
) -> Result<report::Gathered, Failure> {
    let caches = plan.caches.iter().map(|c| alloc.create_cache(c.clone())).collect::<Result<Vec<_>, _>>()?;
    let simulated = !config.machine.is_native();
    let (unit, scale, per_byte, job, interval) = (plan.unit, plan.scale, plan.per_byte, plan.job, plan.interval_s);
    let rules = if simulated {
        let hardware = config.machine.machinery()?;
        Rules::named(&hardware.word("sched").unwrap_or_default(), hardware.kernel())
    } else {
        Rules::V2_6_24
    };
    let skipped = !simulated && plan.native_work == crate::workload::NativeWork::Skip;
    let totals = Executor::new(alloc, plan, &caches, config.seed, simulated, rules, cancel).run();
    if totals.cancelled {
        return Err(Failure::Cancelled);
    }
    alloc.verify().map_err(|c| Failure::Corruption(c.to_string()))?;
    let done = if per_byte { totals.cpu.bytes } else { totals.cpu.ops } as f64;
    let unit = if skipped { format!("{unit} (allocator only)") } else { unit.to_string() };
    let rate = done * scale / totals.elapsed;
    let throughput = match job {
        None => rate,
        // Nothing was done: no time can be said.
        Some(_) if totals.cpu.ops == 0 => 0.0,
        Some(operations) => operations as f64 * totals.elapsed / totals.cpu.ops as f64,
    };
    let series = super::timeline::series(&totals.cpu.series, interval, totals.elapsed, |ops, bytes, seconds| {
        let (done, whole) = if per_byte { (bytes, scale) } else { (ops, scale) };
        done as f64 * whole / seconds
    });
    Ok(report::Gathered::new(alloc, &totals, throughput, unit).with_series(series).with_job(job, totals.cpu.ops))
}

/// Runs a script over an allocator: steps one at a time, and the state of its caches at each checkpoint.
fn execute_script<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(
    alloc: &mut A,
    script: &Script,
) -> Result<report::Gathered, Failure> {
    let machine = alloc.pages().machine();
    let mut checkpoints = Vec::new();
    let mut drawn = script.ops.iter().filter_map(|s| match s.op {
        ScriptOp::Checkpoint { .. } => Some(false),
        ScriptOp::Map { .. } => Some(true),
        _ => None,
    });
    let mut seen = |alloc: &mut A, caches: &[CacheId], slots: &super::script::Slots, name: &str| {
        let states: Vec<Value> = caches.iter().map(|c| alloc.state(*c)).collect();
        let mut seen = json!({ "name": name, "filled": slots.filled(), "caches": states });
        if drawn.next() == Some(true) {
            seen["map"] = super::mapped::map(alloc, caches, slots);
        }
        checkpoints.push(seen);
    };
    let slots = super::script::execute(machine, alloc, script, &mut seen)?;
    alloc.verify().map_err(|c| Failure::Corruption(c.to_string()))?;
    let last = AtomicU64::new(0);
    machine.boot(|cpu| {
        last.fetch_max(cpu.now().0, Ordering::Relaxed);
    });
    let elapsed = last.into_inner() as f64 / 1e12;
    let mut totals = super::exec::Totals { elapsed, ..Default::default() };
    totals.cpu.ops = script.ops.len() as u64;
    totals.cpu.net.failed = slots.failed;
    totals.cpu.pages_last = alloc.pages().lent();
    totals.cpu.pages_peak = totals.cpu.pages_last;
    let throughput = if elapsed > 0.0 { totals.cpu.ops as f64 / elapsed } else { 0.0 };
    Ok(report::Gathered::new(alloc, &totals, throughput, "ops/s".into()).with_checkpoints(checkpoints))
}

/// What a panic said.
fn message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
        .unwrap_or_else(|| "the core panicked".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(always_suspend: bool) -> String {
        let config = Config::from_json(&json!({
            "machine": { "name": "opteron-2x4-2007", "cpus": 4 },
            "allocator": "null",
            "workload": { "name": "tbench", "clients": 3, "seconds": 0.01, "warmup": 0.01 },
        }))
        .unwrap();
        let schedule = Schedule { seed: 1, always_suspend, ..Schedule::default() };
        let sim = Sim::new(&config.machine.machinery().unwrap(), schedule).unwrap();
        let outcome = on_machine(sim, &config, job(&config).unwrap(), &Cancel::default()).unwrap();
        outcome.to_json()["result"].to_string()
    }

    #[test]
    fn running_ahead_between_points_of_interaction_changes_no_result() {
        assert_eq!(traced(false), traced(true));
    }

    #[test]
    fn unknown_names_and_impossible_values_are_refused_with_their_dotted_names() {
        let good = json!({ "machine": "opteron-2x4-2007", "allocator": "null", "workload": "tbench" });
        for (path, value, part) in [
            ("/machine", json!("opteron"), "machine = \"opteron\""),
            ("/machine", json!({ "name": "opteron-2x4-2007", "cpus": 0 }), "machine.cpus = 0"),
            ("/machine", json!({ "name": "opteron-2x4-2007", "cpus": 100_000 }), "1..8"),
            ("/machine", json!({ "name": "opteron-2x4-2007", "arena_per_node": 3 }), "at least 8 MiB"),
            ("/machine", json!({ "name": "native", "memory_mib": 1 }), "machine.memory_mib = 1"),
            ("/machine", json!({ "name": "opteron-2x4-2007", "pages": "2.6.30" }), "machine.pages = \"2.6.30\""),
            ("/machine", json!({ "name": "native", "fragment": [2.0, 1] }), "machine.fragment = 2"),
            ("/machine", json!({ "name": "native", "fragment": 0.5 }), "machine.fragment = 0.5: [level, seed]"),
            ("/allocator", json!("nul"), "did you mean \"null\""),
            ("/allocator", json!("null@2"), "era of null"),
            ("/allocator", json!({ "name": "null", "order": 1 }), "parameter of null"),
            ("/workload", json!("tbensh"), "did you mean \"tbench\""),
            ("/workload", json!({ "name": "tbench", "clients": 0 }), "workload.clients = 0"),
            ("/workload", json!({ "name": "tbench", "clients": "many" }), "workload.clients = \"many\""),
            ("/workload", json!({ "name": "tbench", "client": 1 }), "did you mean \"clients\""),
            ("/workload", json!({ "name": "script", "ops": [{ "op": { "allok": {} } }] }), "unknown variant `allok`"),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(path).unwrap() = value.clone();
            let e = Config::from_json(&bad).unwrap_err().to_string();
            assert!(e.contains(part), "{value}: {e}");
        }
        let negative = json!({ "machine": "opteron-2x4-2007", "allocator": "null", "workload": "tbench", "seed": -1 });
        assert!(Config::from_json(&negative).unwrap_err().to_string().contains("seed = -1"));
    }

    #[test]
    fn a_script_reports_the_state_of_its_caches_at_each_checkpoint() {
        let config = json!({
            "machine": { "name": "opteron-2x4-2007", "cpus": 2 },
            "allocator": "null",
            "workload": { "name": "script", "caches": [{ "name": "buffer_head", "size": 104 }], "ops": [
                { "op": { "alloc": { "cache": 0, "slot": 0 } } },
                { "cpu": 1, "op": { "free": { "slot": 0 } } },
                { "op": { "checkpoint": { "name": "freed" } } },
            ] },
        });
        let result = super::super::run(&config, &Cancel::default()).unwrap().to_json()["result"].take();
        assert_eq!(result["checkpoints"][0]["name"], "freed");
        assert_eq!(result["checkpoints"][0]["caches"][0]["stacks"], json!([38, 1]));
        assert_eq!(result["summary"]["ops"], 3);
    }
}
