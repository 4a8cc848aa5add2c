//! compose: a workload put together from primitives, without a line of Rust.
//!
//! In JSON (from Python: `sl.Workload(tasks=[…])`, dicts of the same shape):
//!
//! ```json
//! { "name": "compose",
//!   "caches": [{ "name": "request", "size": 320 }],
//!   "queues": [{ "name": "disk", "capacity": 64, "delay_us": 100 }],
//!   "tasks": [
//!     { "count": 4, "loop": [
//!       { "alloc": { "cache": "request", "slot": 0 } }, { "touch": { "slot": 0, "bytes": 320, "write": true } },
//!       { "work": { "us": { "exponential": 5 } } }, { "send": { "queue": "disk", "slot": 0 } } ] },
//!     { "cpu": 0, "loop": [
//!       { "recv": { "queue": "disk", "slot": 0 } }, { "free": { "slot": 0 } }, { "done": {} } ] } ] }
//! ```
//!
//! Each task repeats its loop until the run ends. A number may be a distribution, drawn anew each time from the run's seed:
//! `{"uniform": [low, high]}` (whole numbers, both ends included, where a whole number is meant), `{"exponential": mean}`,
//! `{"choice": [[value, weight], …]}`. A *slot* is the task's name for what it has taken; what a filled slot held is given
//! back when something else comes in. One pass of a loop takes a nanosecond of its own.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Links, NativeWork, Op, Parameter, Plan, QueueSpec, Random, Task, What, Workload};
use crate::error::Error;
use crate::spec::{CacheSpec, check_name};
use crate::units::{CpuId, MAX_ORDER, Picos};

/// Slots of a task are numbers below.
pub const MAX_SLOTS: u64 = 1 << 16;
/// Most tasks.
const MAX_TASKS: u64 = 4096;
/// Deepest nesting of loops.
const MAX_DEPTH: usize = 16;
/// Largest number of any kind: bytes, repetitions, microseconds.
const MAX_NUMBER: f64 = 1e9;

/// Configuration of compose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compose {
    /// Caches, by name.
    pub caches: Vec<CacheSpec>,
    /// Queues, by name.
    pub queues: Vec<QueueOf>,
    /// Tasks.
    pub tasks: Vec<TaskOf>,
    /// Seconds measured.
    pub seconds: f64,
    /// Seconds before.
    pub warmup: f64,
    /// What becomes of work on Native.
    pub native_work: NativeWork,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueOf {
    /// Name.
    pub name: String,
    /// Messages it holds.
    #[serde(default = "sixteen")]
    pub capacity: u64,
    /// How long a message is under way.
    #[serde(default)]
    pub delay_us: f64,
}

fn sixteen() -> u64 {
    16
}
fn one() -> u64 {
    1
}

/// One or more tasks that do the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskOf {
    /// How many.
    #[serde(default = "one")]
    pub count: u64,
    /// CPU that the first of them never leaves; the next ones have the CPUs after it, round and round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u16>,
    /// They interrupt other tasks of their CPU, as interrupt handlers do. Needs `cpu`.
    #[serde(default)]
    pub urgent: bool,
    /// What they do, again and again.
    #[serde(rename = "loop")]
    pub steps: Vec<Step>,
}

/// A number, or how it is drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// Always this.
    Fixed(f64),
    /// A distribution.
    Drawn(Drawn),
}

/// A distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Drawn {
    /// Evenly between, both ends included.
    Uniform(f64, f64),
    /// With this mean.
    Exponential(f64),
    /// Values with their weights.
    Choice(Vec<(f64, f64)>),
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Takes an object of a cache, kmalloc memory (bytes), or pages (order): one of the three.
    Alloc {
        /// Name of a cache.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cache: Option<String>,
        /// Bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kmalloc: Option<Number>,
        /// Order.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pages: Option<u8>,
        /// Where it goes.
        slot: Number,
    },
    /// Gives back what a slot holds.
    Free {
        /// Slot.
        slot: Number,
        /// After a grace period.
        #[serde(default)]
        rcu: bool,
    },
    /// Reads or writes the first bytes of it.
    Touch {
        /// Slot.
        slot: Number,
        /// Bytes.
        bytes: Number,
        /// Written.
        #[serde(default)]
        write: bool,
    },
    /// Copies payload out of it, or into it.
    Copy {
        /// Slot.
        slot: Number,
        /// Bytes.
        bytes: Number,
        /// Into it.
        #[serde(default)]
        write: bool,
    },
    /// Passes the contents of slots on; waits while the queue is full.
    Send {
        /// Name of a queue.
        queue: String,
        /// First slot.
        slot: u32,
        /// Slots.
        #[serde(default = "one_slot")]
        count: u32,
    },
    /// Takes the oldest message; waits until there is one.
    Recv {
        /// Name of a queue.
        queue: String,
        /// First slot.
        slot: u32,
    },
    /// Works.
    Work {
        /// Microseconds.
        us: Number,
    },
    /// Sleeps.
    Pause {
        /// Microseconds.
        us: Number,
    },
    /// Enters and leaves the kernel.
    Syscall {},
    /// Lets others run.
    Yield {},
    /// Counts an operation.
    Done {},
    /// Repeats steps.
    Repeat {
        /// How often.
        times: Number,
        /// What.
        steps: Vec<Step>,
    },
}

fn one_slot() -> u32 {
    1
}

impl Default for Compose {
    fn default() -> Self {
        Compose {
            caches: Vec::new(),
            queues: Vec::new(),
            tasks: Vec::new(),
            seconds: 0.1,
            warmup: 0.05,
            native_work: NativeWork::Skip,
        }
    }
}

impl Number {
    /// Smallest and largest value that can be drawn; `None` for a distribution that is none.
    fn range(&self) -> Option<(f64, f64)> {
        let ends = match self {
            Number::Fixed(n) => (*n, *n),
            Number::Drawn(Drawn::Uniform(low, high)) if low <= high => (*low, *high),
            Number::Drawn(Drawn::Exponential(mean)) if *mean >= 0.0 => (0.0, 50.0 * mean),
            Number::Drawn(Drawn::Choice(values))
                if values.iter().all(|(_, w)| *w >= 0.0 && w.is_finite()) && values.iter().any(|(_, w)| *w > 0.0) =>
            {
                let fold = |f: fn(f64, f64) -> f64, from| values.iter().map(|v| v.0).fold(from, f);
                (fold(f64::min, f64::INFINITY), fold(f64::max, f64::NEG_INFINITY))
            }
            Number::Drawn(_) => return None,
        };
        (ends.0.is_finite() && ends.1.is_finite()).then_some(ends)
    }

    fn draw(&self, random: &mut Random) -> f64 {
        let unit = |random: &mut Random| (random.bits() >> 11) as f64 / (1u64 << 53) as f64;
        match self {
            Number::Fixed(n) => *n,
            Number::Drawn(Drawn::Uniform(low, high)) => low + unit(random) * (high - low),
            // No draw is longer than fifty means.
            Number::Drawn(Drawn::Exponential(mean)) => -mean * (1.0 - unit(random)).ln().max(-50.0),
            Number::Drawn(Drawn::Choice(values)) => {
                let mut at = unit(random) * values.iter().map(|v| v.1).sum::<f64>();
                let last = values.last().map_or(0.0, |v| v.0);
                let found = values.iter().find(|(_, w)| {
                    let here = at < *w;
                    at -= w;
                    here
                });
                found.map_or(last, |v| v.0)
            }
        }
    }

    /// A whole number: with `uniform` every one between the ends is as likely.
    fn whole(&self, random: &mut Random) -> u32 {
        match self {
            Number::Drawn(Drawn::Uniform(low, high)) => {
                *low as u32 + random.below((*high as u64).saturating_sub(*low as u64) + 1) as u32
            }
            other => other.draw(random).round() as u32,
        }
    }

    fn time(&self, random: &mut Random) -> Picos {
        Picos::from_ns(1000.0 * self.draw(random))
    }
}

impl Workload for Compose {
    const NAME: &'static str = "compose";
    const MEANING: &'static str = "tasks put together from primitives: loops of alloc, free, send, recv, touch, work";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter { name: "caches", unit: "", meaning: "caches that steps name: name, size, align, flags" },
        Parameter { name: "queues", unit: "", meaning: "queues that steps name: name, capacity (messages), delay_us" },
        Parameter {
            name: "tasks",
            unit: "",
            meaning: "tasks: loop (steps: alloc, free, touch, copy, send, recv, work, pause, syscall, yield, done, repeat), count, cpu, urgent",
        },
        Parameter { name: "seconds", unit: "s", meaning: "seconds measured, virtual on Sim" },
        Parameter { name: "warmup", unit: "s", meaning: "seconds before the measurement" },
        Parameter { name: "native_work", unit: "", meaning: "work on native: skip (allocator only) or spin" },
    ];

    fn check(&self) -> Result<(), Error> {
        super::check_times(self.seconds, self.warmup)?;
        if self.tasks.is_empty() {
            return Err(Error::new(
                "workload.tasks",
                "no task",
                "at least one, as {\"loop\": [{\"work\": {\"us\": 5}}]}",
            ));
        }
        let total = self.tasks.iter().map(|t| t.count).fold(0, u64::saturating_add);
        if !(1..=MAX_TASKS).contains(&total) {
            return Err(Error::new("workload.tasks", format!("{total} tasks"), format!("1..{MAX_TASKS} in all")));
        }
        for (i, cache) in self.caches.iter().enumerate() {
            check_name(&format!("workload.caches[{i}].name"), &cache.name)?;
            if self.caches[..i].iter().any(|other| other.name == cache.name) {
                let right = "a name of its own: steps name caches";
                return Err(Error::new(format!("workload.caches[{i}].name"), format!("{:?}", cache.name), right));
            }
        }
        for (i, q) in self.queues.iter().enumerate() {
            if !(1..=1 << 20).contains(&q.capacity) {
                return Err(Error::new(format!("workload.queues[{i}].capacity"), q.capacity, "1..1048576"));
            }
            if !(0.0..=1e6).contains(&q.delay_us) {
                return Err(Error::new(format!("workload.queues[{i}].delay_us"), q.delay_us, "0..1000000"));
            }
            if self.queues[..i].iter().any(|other| other.name == q.name) {
                return Err(Error::new(format!("workload.queues[{i}].name"), &q.name, "a name of its own"));
            }
        }
        for (i, task) in self.tasks.iter().enumerate() {
            let place = format!("workload.tasks[{i}]");
            if task.urgent && task.cpu.is_none() {
                return Err(Error::new(format!("{place}.urgent"), true, "a task with a cpu: interrupts have one"));
            }
            if task.steps.is_empty() {
                return Err(Error::new(format!("{place}.loop"), "no steps", "at least one"));
            }
            self.check_steps(&task.steps, &format!("{place}.loop"), 0)?;
        }
        Ok(())
    }

    fn check_on(&self, cpus: u16) -> Result<(), Error> {
        for (i, task) in self.tasks.iter().enumerate() {
            if let Some(cpu) = task.cpu.filter(|cpu| *cpu >= cpus) {
                return Err(Error::new(
                    format!("workload.tasks[{i}].cpu"),
                    cpu,
                    format!("0..{} on this machine", cpus - 1),
                ));
            }
        }
        Ok(())
    }

    fn plan(&self, seed: u64) -> Plan {
        self.plan_on(seed, 1)
    }

    fn plan_on(&self, seed: u64, cpus: u16) -> Plan {
        let mut tasks: Vec<Box<dyn Task>> = Vec::new();
        let mut links = Links {
            queues: self
                .queues
                .iter()
                .map(|q| QueueSpec { capacity: q.capacity as u32, delay: Picos::from_ns(1000.0 * q.delay_us) })
                .collect(),
            ..Links::default()
        };
        for task in &self.tasks {
            let steps: Arc<[Bound]> = self.bind(&task.steps);
            for i in 0..task.count {
                let id = tasks.len() as u32;
                if let Some(cpu) = task.cpu {
                    links.pinned.push((id, CpuId((u64::from(cpu) + i).rem_euclid(u64::from(cpus)) as u16)));
                }
                if task.urgent {
                    links.urgent.push(id);
                }
                let random = Random::new(seed, u64::from(id));
                tasks.push(Box::new(Player { stack: vec![(steps.clone(), 0, u32::MAX)], random, begins: true }));
            }
        }
        Plan {
            warmup_s: self.warmup,
            seconds: self.seconds,
            native_work: self.native_work,
            links,
            ..Plan::of(self.caches.clone(), tasks, "ops/s")
        }
    }
}

/// Whether a step takes time or waits whatever the slots hold and the other tasks do.
fn takes_time(step: &Step) -> bool {
    let more = |n: &Number| n.range().is_some_and(|(_, high)| high > 0.0);
    match step {
        Step::Alloc { kmalloc: Some(bytes), .. } => more(bytes),
        Step::Alloc { .. } | Step::Send { .. } | Step::Recv { .. } | Step::Syscall {} => true,
        Step::Work { us } | Step::Pause { us } => more(us),
        Step::Repeat { times, steps } => more(times) && steps.iter().any(takes_time),
        Step::Free { .. } | Step::Touch { .. } | Step::Copy { .. } | Step::Yield {} | Step::Done {} => false,
    }
}

/// A number as it stands in a workload.
fn written(number: &Number) -> String {
    serde_json::to_string(number).expect("plain data")
}

impl Compose {
    fn check_steps(&self, steps: &[Step], place: &str, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(place, format!("{depth} loops in each other"), format!("at most {MAX_DEPTH}")));
        }
        for (i, step) in steps.iter().enumerate() {
            let place = format!("{place}[{i}]");
            let number = |field: &str, n: &Number, low: f64, high: f64| match n.range() {
                Some((a, b)) if a >= low && b <= high => Ok(()),
                _ => Err(Error::new(format!("{place}.{field}"), written(n), format!("from {low} to {high}"))),
            };
            let slot = |n: &Number| number("slot", n, 0.0, (MAX_SLOTS - 1) as f64);
            let queue = |name: &str| match self.queues.iter().any(|q| q.name == name) {
                true => Ok(()),
                false => {
                    let known: Vec<&str> = self.queues.iter().map(|q| q.name.as_str()).collect();
                    Err(Error::unknown(&format!("{place}.queue"), name, &known))
                }
            };
            match step {
                Step::Alloc { cache, kmalloc, pages, slot: into } => {
                    slot(into)?;
                    match (cache, kmalloc, pages) {
                        (Some(name), None, None) => {
                            if !self.caches.iter().any(|c| c.name == *name) {
                                let known: Vec<&str> = self.caches.iter().map(|c| c.name.as_str()).collect();
                                return Err(Error::unknown(&format!("{place}.cache"), name, &known));
                            }
                        }
                        (None, Some(bytes), None) => number("kmalloc", bytes, 0.0, f64::from(4 << 20))?,
                        (None, None, Some(order)) if usize::from(*order) < MAX_ORDER => {}
                        (None, None, Some(order)) => {
                            let right = format!("0..{}", MAX_ORDER - 1);
                            return Err(Error::new(format!("{place}.pages"), order, right));
                        }
                        _ => return Err(Error::new(place, "alloc", "one of cache, kmalloc and pages")),
                    }
                }
                Step::Free { slot: from, .. } => slot(from)?,
                Step::Touch { slot: at, bytes, .. } | Step::Copy { slot: at, bytes, .. } => {
                    slot(at)?;
                    number("bytes", bytes, 0.0, MAX_NUMBER)?;
                }
                Step::Send { queue: name, slot: from, count } => {
                    queue(name)?;
                    number("slot", &Number::Fixed(f64::from(*from) + f64::from(*count)), 0.0, MAX_SLOTS as f64)?;
                }
                Step::Recv { queue: name, slot: into } => {
                    queue(name)?;
                    slot(&Number::Fixed(f64::from(*into)))?;
                }
                Step::Work { us } | Step::Pause { us } => number("us", us, 0.0, MAX_NUMBER)?,
                Step::Repeat { times, steps } => {
                    number("times", times, 0.0, MAX_NUMBER)?;
                    self.check_steps(steps, &format!("{place}.steps"), depth + 1)?;
                }
                Step::Syscall {} | Step::Yield {} | Step::Done {} => {}
            }
        }
        if !steps.iter().any(takes_time) {
            // It would go on for ever at one moment.
            let right = "a step that takes time or waits: alloc, send, recv, syscall, work or pause of more than 0";
            return Err(Error::new(place, "no such step", right));
        }
        Ok(())
    }

    /// The steps with names replaced by indices.
    fn bind(&self, steps: &[Step]) -> Arc<[Bound]> {
        let queue = |name: &str| self.queues.iter().position(|q| q.name == name).expect("checked") as u32;
        let bound = steps.iter().cloned().map(|step| match step {
            Step::Alloc { cache: Some(name), slot, .. } => {
                let cache = self.caches.iter().position(|c| c.name == name).expect("checked");
                Bound::Alloc(What::Cache(cache as u32), None, slot)
            }
            Step::Alloc { pages: Some(order), slot, .. } => Bound::Alloc(What::Pages(order), None, slot),
            Step::Alloc { kmalloc, slot, .. } => Bound::Alloc(What::Kmalloc(0), kmalloc, slot),
            Step::Send { queue: name, slot, count } => Bound::Op(Op::Send { queue: queue(&name), from: slot, count }),
            Step::Recv { queue: name, slot } => Bound::Op(Op::Recv { queue: queue(&name), into: slot }),
            Step::Repeat { times, steps } => Bound::Repeat(times, self.bind(&steps)),
            Step::Syscall {} => Bound::Op(Op::Syscall),
            Step::Yield {} => Bound::Op(Op::Yield),
            Step::Done {} => Bound::Op(Op::Done { bytes: 0 }),
            other => Bound::Drawn(other),
        });
        bound.collect()
    }
}

/// A step ready to run.
#[derive(Clone, Debug)]
enum Bound {
    Op(Op),
    /// What, its bytes if they are drawn, and the slot.
    Alloc(What, Option<Number>, Number),
    Repeat(Number, Arc<[Bound]>),
    /// A step whose numbers are drawn.
    Drawn(Step),
}

/// Plays a loop.
struct Player {
    /// Loops entered: steps, position, passes left (the outermost has no end).
    stack: Vec<(Arc<[Bound]>, usize, u32)>,
    random: Random,
    /// A pass of the outermost loop begins.
    begins: bool,
}

impl Task for Player {
    fn step(&mut self) -> Op {
        loop {
            if std::mem::take(&mut self.begins) {
                return Op::Compute { time: Picos(1000) };
            }
            let outermost = self.stack.len() == 1;
            let (steps, at, left) = self.stack.last_mut().expect("the outermost loop stays");
            let Some(step) = steps.get(*at).cloned() else {
                *at = 0;
                if outermost {
                    self.begins = true;
                } else {
                    *left -= 1;
                    if *left == 0 {
                        self.stack.pop();
                    }
                }
                continue;
            };
            *at += 1;
            let r = &mut self.random;
            return match step {
                Bound::Op(op) => op,
                Bound::Alloc(what, bytes, slot) => {
                    let what = bytes.map_or(what, |b| What::Kmalloc(b.whole(r)));
                    Op::Alloc { what, into: slot.whole(r) }
                }
                Bound::Repeat(times, steps) => {
                    let times = times.whole(r);
                    if times > 0 && !steps.is_empty() {
                        self.stack.push((steps, 0, times));
                    }
                    continue;
                }
                Bound::Drawn(Step::Free { slot, rcu: false }) => Op::Free { slot: slot.whole(r) },
                Bound::Drawn(Step::Free { slot, .. }) => Op::FreeRcu { slot: slot.whole(r) },
                Bound::Drawn(Step::Touch { slot, bytes, write }) => {
                    Op::Touch { slot: slot.whole(r), bytes: bytes.whole(r), write }
                }
                Bound::Drawn(Step::Copy { slot, bytes, write }) => {
                    Op::Copy { slot: slot.whole(r), bytes: bytes.whole(r), write }
                }
                Bound::Drawn(Step::Work { us }) => Op::Compute { time: us.time(r) },
                Bound::Drawn(Step::Pause { us }) => Op::Pause { time: us.time(r) },
                Bound::Drawn(_) => unreachable!("bound otherwise"),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Result<Compose, Error> {
        Compose::from_json(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn what_cannot_run_is_refused_with_the_place_of_the_step() {
        for (text, part) in [
            (r#"{}"#, "workload.tasks = no task"),
            (r#"{"tasks": [{"loop": []}]}"#, "workload.tasks[0].loop = no steps"),
            (r#"{"tasks": [{"loop": [{"free": {"slot": 99999}}]}]}"#, "workload.tasks[0].loop[0].slot"),
            (r#"{"tasks": [{"loop": [{"alloc": {"slot": 0}}]}]}"#, "one of cache, kmalloc and pages"),
            (r#"{"tasks": [{"loop": [{"alloc": {"cache": "a", "slot": 0}}]}]}"#, "workload.tasks[0].loop[0].cache"),
            (r#"{"tasks": [{"loop": [{"send": {"queue": "q", "slot": 0}}]}]}"#, "workload.tasks[0].loop[0].queue"),
            (r#"{"tasks": [{"loop": [{"work": {"us": {"uniform": [5, 1]}}}]}]}"#, "workload.tasks[0].loop[0].us"),
            (r#"{"tasks": [{"loop": [{"work": {"us": {"choice": []}}}]}]}"#, "workload.tasks[0].loop[0].us"),
            (r#"{"tasks": [{"loop": [{"done": {}}]}]}"#, "workload.tasks[0].loop = no such step"),
            (r#"{"tasks": [{"urgent": true, "loop": [{"done": {}}]}]}"#, "workload.tasks[0].urgent"),
            (r#"{"tasks": [{"count": 5000, "loop": [{"done": {}}]}]}"#, "5000 tasks"),
            (r#"{"tasks": [{"loop": [{"repeat": {"times": -1, "steps": []}}]}]}"#, "loop[0].times"),
        ] {
            let e = given(text).unwrap_err().to_string();
            assert!(e.contains(part), "{text}: {e}");
        }
        let pinned = given(r#"{"tasks": [{"cpu": 4, "loop": [{"syscall": {}}]}]}"#).unwrap();
        assert!(pinned.check_on(4).unwrap_err().to_string().contains("workload.tasks[0].cpu = 4: 0..3"));
    }

    #[test]
    fn distributions_have_their_means_and_ends() {
        let mut r = Random::new(1, 1);
        let mean = |n: &Number, r: &mut Random| (0..20_000).map(|_| n.draw(r)).sum::<f64>() / 20_000.0;
        let parse = |text: &str| serde_json::from_str::<Number>(text).unwrap();
        assert!((mean(&parse(r#"{"exponential": 5}"#), &mut r) - 5.0).abs() < 0.2);
        assert!((mean(&parse(r#"{"uniform": [2, 4]}"#), &mut r) - 3.0).abs() < 0.02);
        assert!((mean(&parse(r#"{"choice": [[1, 3], [5, 1]]}"#), &mut r) - 2.0).abs() < 0.06);
        let seen: std::collections::BTreeSet<u32> =
            (0..200).map(|_| parse(r#"{"uniform": [3, 5]}"#).whole(&mut r)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5]);
    }

    #[test]
    fn loops_repeat_and_a_pass_takes_time() {
        let text = r#"{"tasks": [{"loop": [{"repeat": {"times": 2, "steps": [{"syscall": {}}]}}, {"done": {}}]}]}"#;
        let mut task = given(text).unwrap().plan(1).tasks.remove(0);
        let ops: Vec<Op> = (0..8).map(|_| task.step()).collect();
        let pass = [Op::Compute { time: Picos(1000) }, Op::Syscall, Op::Syscall, Op::Done { bytes: 0 }];
        assert_eq!(ops, [pass, pass].concat());
    }
}
