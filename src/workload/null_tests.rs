//! specjbb and cpu2k: the null tests (workloads.md §10). Little of the kernel after the start.
//!
//! Objects they move: per allocation step one `vm_area_struct` with its `anon_vma` and an order-0 page of a fault, taken and
//! given back by the same task; specjbb also takes a 64-byte kmalloc object per step. All of it on one CPU, so that every
//! allocator is within noise of every other: a difference here is the machine's, not the allocator's.

use serde::{Deserialize, Serialize};

use super::{NativeWork, Op, Parameter, Plan, Random, Task, What, Workload};
use crate::error::Error;
use crate::spec::CacheSpec;
use crate::units::Picos;

/// What both have.
#[derive(Clone, Copy)]
struct Shape {
    tasks: u64,
    step_us: f64,
    seconds: f64,
    warmup: f64,
    native_work: NativeWork,
    /// Cache lines that user code touches per step.
    lines: u32,
    /// It takes kmalloc memory too.
    kmalloc: bool,
}

impl Shape {
    fn check(&self, tasks: &str, cpus: Option<u16>) -> Result<(), Error> {
        if !(1..=4096).contains(&self.tasks) {
            return Err(Error::new(format!("workload.{tasks}"), self.tasks, "1..4096"));
        }
        if !(1.0..=1000.0).contains(&self.step_us) {
            let right = "1..1000: at least 1,000 steps of each CPU per second";
            return Err(Error::new("workload.step_us", self.step_us, right));
        }
        if let Some(cpus) = cpus.filter(|c| u64::from(*c) > self.tasks) {
            let right = format!("{cpus} or more: with an idle CPU it is no null test");
            return Err(Error::new(format!("workload.{tasks}"), self.tasks, right));
        }
        super::check_times(self.seconds, self.warmup)
    }

    fn plan(&self, seed: u64, unit: &'static str, scale: f64) -> Plan {
        let task = |i| {
            let time = Picos::from_ns(1000.0 * self.step_us);
            Box::new(Worker {
                random: Random::new(seed, i),
                time,
                lines: self.lines,
                kmalloc: self.kmalloc,
                phase: 0,
                drawn: 0,
            }) as Box<dyn Task>
        };
        let caches = vec![CacheSpec::new("vm_area_struct", 176), CacheSpec::new("anon_vma", 24)];
        Plan {
            warmup_s: self.warmup,
            seconds: self.seconds,
            scale,
            native_work: self.native_work,
            ..Plan::of(caches, (0..self.tasks).map(task).collect(), unit)
        }
    }
}

/// Computes, and now and then takes and gives back a mapping with a page.
struct Worker {
    random: Random,
    time: Picos,
    lines: u32,
    kmalloc: bool,
    phase: u32,
    drawn: u64,
}

/// Mappings a worker keeps; each step replaces one.
const KEPT: u64 = 16;

impl Task for Worker {
    fn step(&mut self) -> Op {
        let phase = self.phase;
        self.phase = (phase + 1) % 8;
        let slot = 4 * self.drawn as u32;
        match phase {
            0 => {
                self.drawn = self.random.below(KEPT);
                // Between half and one and a half of the mean.
                Op::Compute { time: Picos(self.time.0 / 2 + self.random.below(self.time.0)) }
            }
            1 => Op::User { lines: self.lines },
            2 => Op::Alloc { what: What::Cache(0), into: slot },
            3 => Op::Touch { slot, bytes: 176, write: true },
            4 => Op::Alloc { what: What::Cache(1), into: slot + 1 },
            5 => Op::Alloc { what: What::Pages(0), into: slot + 2 },
            6 if self.kmalloc => Op::Alloc { what: What::Kmalloc(64), into: slot + 3 },
            6 => Op::Syscall,
            _ => Op::Done { bytes: 0 },
        }
    }
}

macro_rules! null_test {
    ($type:ident, $name:literal, $meaning:literal, $tasks:ident = $default:literal, $what:literal, $lines:literal, $kmalloc:literal, $unit:literal, $scale:expr) => {
        #[doc = concat!("Configuration of ", $name, ".")]
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $type {
            #[doc = $what]
            pub $tasks: u64,
            /// Mean user work between two steps into the kernel, in microseconds.
            pub step_us: f64,
            /// Seconds measured.
            pub seconds: f64,
            /// Seconds before.
            pub warmup: f64,
            /// What becomes of work on Native.
            pub native_work: NativeWork,
        }

        impl Default for $type {
            fn default() -> Self {
                $type { $tasks: $default, step_us: 500.0, seconds: 2.0, warmup: 0.1, native_work: NativeWork::Spin }
            }
        }

        impl $type {
            fn shape(&self) -> Shape {
                let &$type { $tasks: tasks, step_us, seconds, warmup, native_work } = self;
                Shape { tasks, step_us, seconds, warmup, native_work, lines: $lines, kmalloc: $kmalloc }
            }
        }

        impl Workload for $type {
            const NAME: &'static str = $name;
            const MEANING: &'static str = $meaning;
            const PARAMETERS: &'static [Parameter] = &[
                Parameter { name: stringify!($tasks), unit: "tasks", meaning: $what },
                Parameter {
                    name: "step_us",
                    unit: "us",
                    meaning: "mean user work between two steps into the kernel, 1..1000",
                },
                Parameter { name: "seconds", unit: "s", meaning: "seconds measured, virtual on Sim" },
                Parameter { name: "warmup", unit: "s", meaning: "seconds before the measurement" },
                Parameter { name: "native_work", unit: "", meaning: "work on native: skip (allocator only) or spin" },
            ];

            fn check(&self) -> Result<(), Error> {
                self.shape().check(stringify!($tasks), None)
            }
            fn check_on(&self, cpus: u16) -> Result<(), Error> {
                self.shape().check(stringify!($tasks), Some(cpus))
            }
            fn plan(&self, seed: u64) -> Plan {
                self.shape().plan(seed, $unit, $scale)
            }
        }
    };
}

null_test!(
    Specjbb,
    "specjbb",
    "Java server benchmark: a null test, little kernel allocation after start",
    warehouses = 8,
    "warehouses, one task each; at least one per CPU",
    512,
    true,
    "bops",
    1.0
);
null_test!(
    Cpu2k,
    "cpu2k",
    "SPEC CPU2000: a null test, page faults and nothing else",
    copies = 8,
    "copies of the benchmark, one task each; at least one per CPU",
    2048,
    false,
    "steps/s",
    1.0
);
