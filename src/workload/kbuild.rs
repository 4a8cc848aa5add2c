//! kbuild: `make -jN`, compilations of small files (workloads.md §8).
//!
//! Objects it moves: those of processes (task, signal, files, memory map: taken by make's CPU, given back by the child's at
//! exit and by make's when it reaps), of path look-ups (`names_cache`, on the spot), of open files (through RCU, on the spot),
//! and pages. Counts per compilation are the recorded ones of a 6.1 kernel; older eras leave out what they do not have.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::kernel::{Kernel, Program};
use super::process::{self, Child, Source};
use super::{Links, NativeWork, Op, Parameter, Plan, QueueSpec, Random, Task, Workload};
use crate::error::Error;
use crate::units::Picos;

/// Configuration of kbuild.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kbuild {
    /// Jobs at the same time.
    pub jobs: u64,
    /// What a unit is.
    pub mix: String,
    /// Kernel release whose objects are used.
    pub era: String,
    /// User work of a unit, in milliseconds.
    pub user_ms: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// Seconds before.
    pub warmup: f64,
    /// What becomes of work on Native.
    pub native_work: NativeWork,
}

impl Default for Kbuild {
    fn default() -> Self {
        Kbuild {
            jobs: 16,
            mix: "gcc".into(),
            era: "2.6.24".into(),
            user_ms: 250.0,
            seconds: 16.0,
            warmup: 1.0,
            native_work: NativeWork::Skip,
        }
    }
}

impl Workload for Kbuild {
    const NAME: &'static str = "kbuild";
    const MEANING: &'static str = "make -jN: processes, path look-ups and page faults of compilations";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter { name: "jobs", unit: "jobs", meaning: "compilations at the same time (make -jN)" },
        Parameter {
            name: "mix",
            unit: "",
            meaning: "a unit is a compilation with gcc, or a pass of a shell script: gcc or shell",
        },
        Parameter {
            name: "era",
            unit: "",
            meaning: "kernel release whose objects are used: 2.6.24, 2.6.28, 3.0, 6.1 or 6.18",
        },
        Parameter { name: "user_ms", unit: "ms", meaning: "user work of a unit" },
        Parameter { name: "seconds", unit: "s", meaning: "seconds measured, virtual on Sim" },
        Parameter { name: "warmup", unit: "s", meaning: "seconds before the measurement" },
        Parameter { name: "native_work", unit: "", meaning: "work on native: skip (allocator only) or spin" },
    ];

    fn check(&self) -> Result<(), Error> {
        if !(1..=4096).contains(&self.jobs) {
            return Err(Error::new("workload.jobs", self.jobs, "1..4096"));
        }
        if !["gcc", "shell"].contains(&self.mix.as_str()) {
            return Err(Error::unknown("workload.mix", &self.mix, &["gcc", "shell"]));
        }
        if !(0.0..=1e5).contains(&self.user_ms) {
            return Err(Error::new("workload.user_ms", self.user_ms, "0..100000"));
        }
        Kernel::check(&self.era)?;
        super::check_times(self.seconds, self.warmup)
    }

    fn plan(&self, seed: u64) -> Plan {
        let kernel = Arc::new(Kernel::new(&self.era));
        let mix = if self.mix == "gcc" { process::GCC } else { process::SHELL };
        let mut tasks: Vec<Box<dyn Task>> = Vec::new();
        for job in 0..self.jobs as u32 {
            let source = Source {
                kernel: kernel.clone(),
                mix,
                user: Picos::from_ns(1e6 * self.user_ms),
                random: Random::new(seed, u64::from(job)),
            };
            let (to, back) = (2 * job, 2 * job + 1);
            tasks.push(Box::new(Make { source: source.clone(), to, back, program: Program::default() }));
            tasks.push(Box::new(Child::new(source, to, back)));
        }
        Plan {
            warmup_s: self.warmup,
            seconds: self.seconds,
            native_work: self.native_work,
            links: Links {
                queues: vec![QueueSpec { capacity: 1, delay: Picos(0) }; 2 * self.jobs as usize],
                ..Links::default()
            },
            ..Plan::of(kernel.caches.clone(), tasks, if self.mix == "gcc" { "files/s" } else { "units/s" })
        }
    }
}

/// One job slot of make: forks the processes of a unit one after another.
struct Make {
    source: Source,
    to: u32,
    back: u32,
    program: Program,
}

impl Task for Make {
    fn step(&mut self) -> Op {
        loop {
            if let Some(op) = self.program.next() {
                return op;
            }
            let n = self.source.unit();
            for _ in 0..n {
                let process = self.source.process(n);
                process::fork_and_reap(&self.source.kernel, &mut self.program, &process, self.to, self.back);
            }
            self.program.push(Op::Done { bytes: 0 });
        }
    }
}
