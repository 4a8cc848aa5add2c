//! From names to types, once: the one place that matches on allocator, machine and workload.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use crate::alloc::geometry::{Columns, Shape, Wanted};
use crate::alloc::{Configuration, SlabAllocator};
use crate::error::{Cancelled, Error};
use crate::machine::presets::Machinery;
use crate::machine::sim::{Cancel, Schedule};
use crate::machine::{Cpu, Machine, Native, Sim};
use crate::page::{PageModel, Pages};
use crate::spec::CacheId;
use crate::topology::Topology;
use crate::units::{PAGE_SIZE, Picos};
use crate::workload::script::{Script, ScriptOp};
use crate::workload::{Plan, Workload};

use super::exec::{Executor, latest};
use super::job::JobSeen;
use super::profile::Recorder;
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
    shapes(config)
}

/// Refuses tunables with which a cache of the allocator, or one of the workload, cannot be made: tries it on a small machine
/// with the same CPUs, unless they are the era's own. What the user set is named, not the cache.
fn shapes(config: &Config) -> Result<(), Error> {
    let given = &config.allocator;
    let own = complete_allocator(&json!({ "name": given["name"], "era": given["era"] }))?;
    if *given == own {
        return Ok(());
    }
    let caches = match job(config)? {
        Job::Tasks(plan) => plan.caches,
        Job::Script(_) => Vec::new(),
    };
    let cpus = config.machine.cpus.unwrap_or(1);
    let machine = Sim::new(&Machinery::for_topology(cpus, 1, SMALL)?, Schedule::default())?;
    let pages = Pages::new(&machine, PageModel::HotCold)?;
    macro_rules! tried {
        ($($name:literal => $alloc:ty, $config:ty;)*) => {
            match name(given) {
                $($name => {
                    let tunables = <$config as Configuration>::from_json(given)?;
                    <$alloc as SlabAllocator<'_, Sim>>::new(&pages, &tunables)
                        .and_then(|mut alloc| caches.into_iter().try_for_each(|c| alloc.create_cache(c).map(drop)))
                })*
                other => Err(Error::unknown("allocator", other, crate::allocators!(allocator_names))),
            }
        };
    }
    let Err(refused) = crate::allocators!(tried) else { return Ok(()) };
    let set = ["order", "min_objects", "min_order", "max_order", "kmalloc_max", "debug"];
    match set.into_iter().find(|key| given[*key] != own[*key]) {
        Some(key) if refused.parameter.starts_with("cache.") => {
            let right = format!("one that all caches can have: with it {refused}");
            Err(Error::new(format!("allocator.{key}"), &given[key], right))
        }
        // Memory and the like are the run's own affair.
        _ => Ok(()),
    }
}

/// Memory of the machine that shapes are tried on.
const SMALL: u64 = 64 << 20;

fn with_name(name: &str, value: Value) -> Value {
    let mut object = value.as_object().cloned().unwrap_or_default();
    object.insert("name".into(), json!(name));
    Value::Object(object)
}

/// An allocator by its bare name, its era beside it: `slub@2.6.24` is the short form of a name with its era.
pub(super) fn named(given: &Value) -> Result<Value, Error> {
    let mut given = if given.is_string() { json!({ "name": given }) } else { given.clone() };
    let whole = name(&given).to_string();
    let (bare, era) = whole.split_once('@').map_or((whole.as_str(), None), |(n, e)| (n, Some(e)));
    if let (Some(era), Some(object)) = (era, given.as_object_mut()) {
        if object.get("era").is_some_and(|e| e != era) {
            return Err(Error::new("allocator.era", &object["era"], format!("{era}, or no era after @")));
        }
        object.insert("era".into(), json!(era));
    }
    Ok(with_name(bare, given))
}

/// What a cache looks like with an allocator on a machine of this shape.
pub(super) type Answers = dyn Fn(&Wanted) -> Result<Columns, Error>;

/// The geometry of an allocator as [`named`] gives it.
pub(super) fn answers(given: &Value, shape: &Shape) -> Result<Box<Answers>, Error> {
    let shape = *shape;
    macro_rules! answers {
        ($($name:literal => $alloc:ty, $config:ty;)*) => {
            match name(given) {
                $($name => {
                    let config = <$config as Configuration>::from_json_on(given, shape.page_size)?;
                    Ok(Box::new(move |wanted| config.geometry(wanted, &shape)))
                })*
                other => Err(Error::unknown("allocator", other, crate::allocators!(allocator_names))),
            }
        };
    }
    crate::allocators!(answers)
}

fn complete_allocator(given: &Value) -> Result<Value, Error> {
    let given = named(given)?;
    macro_rules! complete {
        ($($name:literal => $alloc:ty, $config:ty;)*) => {
            match name(&given) {
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
    Tasks(Box<Plan>),
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
        None => script.check_alone().map(|()| script),
    }
}

fn entries<T: serde::de::DeserializeOwned>(field: &str, given: Value) -> Result<Vec<T>, Error> {
    let Value::Array(list) = given else {
        return Err(Error::new(format!("workload.{field}"), given, "a list"));
    };
    let entry = |(i, one): (usize, Value)| {
        serde_json::from_value(one.clone())
            .map_err(|e| Error::new(format!("workload.{field}[{i}]"), one, crate::spec::in_words(&e.to_string())))
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
                $($name => Ok(Job::Tasks(Box::new(<$workload as Workload>::from_json(&config.workload)?.plan_on(config.seed, cpus)))),)*
                other => Err(Error::unknown("workload", other, &workload_list())),
            }
        };
    }
    crate::workloads!(plan)
}

/// Runs a completed configuration. A panic of the core becomes a failure with its message. The host's `wall_s` is all of
/// this: the start of the world and its end count.
pub(super) fn run(config: &Config, cancel: &Cancel) -> Result<Outcome, Failure> {
    run_job(config, || job(config), cancel)
}

/// The same with tasks from elsewhere.
pub(super) fn run_plan(config: &Config, plan: Plan, cancel: &Cancel) -> Result<Outcome, Failure> {
    run_job(config, || Ok(Job::Tasks(Box::new(plan))), cancel)
}

fn run_job(config: &Config, job: impl FnOnce() -> Result<Job, Error>, cancel: &Cancel) -> Result<Outcome, Failure> {
    let started = Instant::now();
    let caught = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let job = job()?;
        if config.machine.is_native() {
            let (cpus, nodes, mib) = config.machine.native_shape()?;
            let topology = Topology::blocks(cpus as u16, nodes as u16, (mib << 20) / PAGE_SIZE * PAGE_SIZE);
            on_machine(Native::new(topology)?.heeding(cancel), config, None, job, cancel)
        } else {
            let hardware = config.machine.machinery()?;
            let jitter_ps = (hardware.number("jitter")? * 1000.0).round() as u64;
            let schedule = Schedule { seed: config.seed, jitter_ps, ..Schedule::default() };
            on_machine(Sim::new(&hardware, schedule)?.heeding(cancel), config, Some(&hardware), job, cancel)
        }
    }));
    let mut outcome = caught.unwrap_or_else(|panic| match panic.is::<Cancelled>() {
        true => Err(Failure::Cancelled),
        false => Err(Failure::Corruption(message(&*panic))),
    })?;
    outcome.host.insert("wall_s".into(), json!(started.elapsed().as_secs_f64()));
    Ok(outcome)
}

/// Runs on a machine that has been made; `hardware`: what it simulates (none: it is the host).
fn on_machine<M: Machine>(
    mut machine: M,
    config: &Config,
    hardware: Option<&Machinery>,
    job: Job,
    cancel: &Cancel,
) -> Result<Outcome, Failure> {
    macro_rules! pick {
        ($($name:literal => $alloc:ty, $config:ty;)*) => {
            match name(&config.allocator) {
                $($name => {
                    let tunables = <$config as Configuration>::from_json(&config.allocator)?;
                    let mut gathered = {
                        let model = config.machine.page_model(era(&config.allocator))?;
                        let mut pages = Pages::fragmented(&machine, model, config.machine.fragmentation()?)?;
                        let recorder = config.profile.then(|| Arc::new(Recorder::default()));
                        if let Some(recorder) = &recorder {
                            pages.observe(recorder.clone());
                        }
                        let mut gathered = {
                            let mut alloc = <$alloc as SlabAllocator<'_, M>>::new(&pages, &tunables)?;
                            match job {
                                Job::Tasks(plan) => execute(&mut alloc, config, hardware, *plan, recorder.as_deref(), cancel)?,
                                Job::Script(script) => execute_script(&mut alloc, config, &script)?,
                            }
                        };
                        pages.verify().map_err(|c| Failure::Corruption(c.to_string()))?;
                        gathered.pages(&mut pages);
                        gathered
                    };
                    gathered.machine(machine.report());
                    Ok(gathered.outcome(config, hardware))
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
    hardware: Option<&Machinery>,
    mut plan: Plan,
    recorder: Option<&Recorder>,
    cancel: &Cancel,
) -> Result<report::Gathered, Failure> {
    if plan.links.as_left {
        // A recorded boot holds its kernel's own structures (kmem_cache_node): beside an allocator's own of that name.
        let own: Vec<String> = (0..alloc.cache_count() as u32).map(|id| alloc.info(CacheId(id)).name).collect();
        plan.caches.iter_mut().filter(|c| own.contains(&c.name)).for_each(|c| c.name.push_str("(recorded)"));
    }
    let specs = plan.caches.clone();
    let caches = plan.caches.iter().map(|c| alloc.create_cache(c.clone())).collect::<Result<Vec<_>, _>>()?;
    plan.links.early.iter().for_each(|cache| alloc.made_before_cpus(caches[*cache as usize]));
    let simulated = hardware.is_some();
    let (unit, scale, per_byte, job, interval) = (plan.unit, plan.scale, plan.per_byte, plan.job, plan.interval_s);
    let rules = match hardware {
        Some(h) => Rules::named(&h.word("sched").unwrap_or_default(), h.kernel()).at(h.number("hz")?),
        None => Rules::V2_6_24,
    };
    let skipped = !simulated && plan.native_work == crate::workload::NativeWork::Skip;
    let (as_left, other_kb) = (plan.links.as_left, plan.links.other_kb);
    let executor = Executor::new(&*alloc, plan, &caches, config.seed, simulated, rules, cancel);
    let (warm, end) = executor.window();
    if let Some(recorder) = recorder {
        recorder.window(warm, end);
    }
    let (mut totals, rest) = executor.run();
    if let Some(recorder) = recorder {
        recorder.window(warm, Picos(warm.0 + Picos::from_secs_f64(totals.elapsed).0));
    }
    totals.other_kb = other_kb;
    let counts = report::Counts::of(alloc);
    if as_left {
        totals.as_left = (0..alloc.cache_count() as u32).map(|id| alloc.info(CacheId(id))).collect();
    }
    rest.tear_down(&*alloc);
    totals.ghz = hardware.map_or_else(Native::host_ghz, |h| h.number("freq").ok());
    if totals.cancelled {
        return Err(Failure::Cancelled);
    }
    alloc.verify().map_err(|c| Failure::Corruption(c.to_string()))?;
    let done = if per_byte { totals.cpu.bytes } else { totals.cpu.ops } as f64;
    let unit = if skipped { format!("{unit} (allocator only)") } else { unit.to_string() };
    let rate = done * scale / totals.elapsed;
    let job = job.map(|operations| JobSeen { operations, sent: totals.cpu.net.messages, received: totals.cpu.ops });
    let throughput = match &job {
        None => rate,
        // Only one half of messages was seen, or none: no time can be said.
        Some(job) => job.scaled_by().map_or(0.0, |by| by * totals.elapsed),
    };
    let series = super::timeline::series(&totals.cpu.series, interval, totals.elapsed, |ops, bytes, seconds| {
        let (done, whole) = if per_byte { (bytes, scale) } else { (ops, scale) };
        done as f64 * whole / seconds
    });
    let gathered = report::Gathered::new(alloc, &counts, &totals, throughput, unit).with_series(series).with_job(job);
    let Some(recorder) = recorder else { return Ok(gathered) };
    let names: Vec<String> = (0..alloc.cache_count() as u32).map(|id| alloc.info(CacheId(id)).name).collect();
    let specs: Vec<_> = caches.into_iter().zip(specs).collect();
    Ok(gathered.with_frame(recorder.frame(&specs, &names, totals.cpu.ops)))
}

/// Runs a script over an allocator: steps one at a time, and the state of its caches at each checkpoint.
fn execute_script<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(
    alloc: &mut A,
    config: &Config,
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
    // The others sleep to the end of the last step: every CPU's time is accounted for.
    let last = latest(machine);
    if !config.machine.is_native() {
        machine.boot(|cpu| {
            while cpu.now() < last {
                cpu.idle(Some(last));
            }
        });
    }
    let elapsed = last.0 as f64 / 1e12;
    let mut totals = super::exec::Totals { elapsed, ..Default::default() };
    totals.cpu.ops = script.ops.len() as u64;
    totals.cpu.net.failed = slots.failed;
    totals.cpu.pages_last = alloc.pages().lent();
    totals.cpu.pages_peak = totals.cpu.pages_last;
    let throughput = if elapsed > 0.0 { totals.cpu.ops as f64 / elapsed } else { 0.0 };
    let counts = report::Counts::of(alloc);
    Ok(report::Gathered::new(alloc, &counts, &totals, throughput, "ops/s".into()).with_checkpoints(checkpoints))
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
        on_sim(&config, Schedule { seed: 1, always_suspend, ..Schedule::default() }, |sim| sim).to_string()
    }

    /// The result of a run on the machine that `changed` makes of the configuration's.
    fn on_sim(config: &Config, schedule: Schedule, changed: impl Fn(Sim) -> Sim) -> Value {
        let hardware = config.machine.machinery().unwrap();
        let sim = changed(Sim::new(&hardware, schedule).unwrap());
        let outcome = on_machine(sim, config, Some(&hardware), job(config).unwrap(), &Cancel::default()).unwrap();
        outcome.to_json()["result"].take()
    }

    #[test]
    fn running_ahead_between_points_of_interaction_changes_no_result() {
        assert_eq!(traced(false), traced(true));
    }

    /// A script that takes and returns objects of two caches, kmallocs and pages on eight CPUs, by a fixed sequence.
    fn mixed_script() -> Value {
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) % below
        };
        let mut full = [false; 200];
        let mut ops: Vec<Value> = Vec::new();
        for _ in 0..4000 {
            let (slot, cpu) = (next(200) as usize, next(8));
            let op = match (full[slot], slot % 8) {
                (true, 0) => json!({ "free_pages": { "slot": slot } }),
                (true, 1) => json!({ "kfree": { "slot": slot } }),
                (true, _) => json!({ "free": { "slot": slot } }),
                (_, 0) => json!({ "alloc_pages": { "order": slot / 8 % 3, "slot": slot } }),
                (_, 1) => json!({ "kmalloc": { "bytes": 40 + 9 * slot, "slot": slot } }),
                _ => json!({ "alloc": { "cache": slot % 2, "slot": slot } }),
            };
            full[slot] = !full[slot];
            ops.push(json!({ "cpu": cpu, "op": op }));
        }
        ops.push(json!({ "op": { "checkpoint": { "name": "mixed" } } }));
        ops.push(json!({ "op": { "shrink": { "cache": 0 } } }));
        ops.push(json!({ "op": { "checkpoint": { "name": "shrunk" } } }));
        json!({ "name": "script", "caches": [{ "name": "a", "size": 104 }, { "name": "b", "size": 1000 }], "ops": ops })
    }

    #[test]
    fn what_the_code_does_hangs_on_no_cost() {
        for allocator in crate::allocators!(allocator_names) {
            let config = json!({ "machine": "opteron-2x4-2007", "allocator": allocator, "workload": mixed_script() });
            let config = Config::from_json(&config).unwrap();
            let charged = on_sim(&config, Schedule::default(), |sim| sim);
            let free = on_sim(&config, Schedule::default(), Sim::free_of_charge);
            let elapsed = |result: &Value| result["summary"]["elapsed_s"].as_f64().unwrap();
            assert!(elapsed(&free) < 1e-5 && elapsed(&charged) > 1e-3, "{allocator}");
            assert_eq!(charged["checkpoints"], free["checkpoints"], "{allocator}");
            for frame in ["caches", "stats", "pages", "page_stats"] {
                assert_eq!(charged["frames"][frame], free["frames"][frame], "{allocator}: {frame}");
            }
        }
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
            (
                "/machine",
                json!({ "name": "opteron-2x4-2007", "memory": 0.003 }),
                "machine.memory = 0.003 GiB: at least 8 MiB per node, not 1.535",
            ),
            (
                "/machine",
                json!({ "name": "opteron-2x4-2007", "nodes": 1, "numa_nodes": 1 }),
                "machine.numa_nodes is the same",
            ),
            ("/machine", json!({ "name": "native", "fragment": 0.5 }), "machine.fragment = 0.5: [level, seed]"),
            ("/allocator", json!("nul"), "did you mean \"null\""),
            ("/allocator", json!("null@2"), "era of null"),
            ("/allocator", json!({ "name": "null", "order": 1 }), "parameter of null"),
            (
                "/allocator",
                json!({ "name": "slub", "era": "2.6.22", "order": 10 }),
                "allocator.order = 10: one that all",
            ),
            ("/allocator", json!({ "name": "slub", "era": "2.6.21-mm1", "order": 10 }), "allocator.order = 10"),
            ("/workload", json!({ "name": "tbench", "clients": "2" }), "a whole number, 0 or more"),
            ("/workload", json!({ "name": "tbench", "native_work": "no" }), "skip or spin"),
            ("/allocator", json!({ "name": "slub", "min_partial": "x" }), "allocator.min_partial = \"x\": "),
            (
                "/workload",
                json!({ "name": "script", "caches": [{ "name": "a b", "size": 8 }], "ops": [] }),
                "caches[0].name",
            ),
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
