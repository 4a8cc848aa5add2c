//! aim7: tasks that each work through a mix of jobs (workloads.md §8): files created, linked and removed, processes forked and
//! exec'd, pipes, signals, disk blocks, arithmetic.
//!
//! Objects it moves: per file job path names, entries, inodes and open files, taken and given back by the task (files and
//! entries through RCU); per process job those of `process.rs`, between the task and the child it forks; per pipe, signal and
//! disk job a few kmalloc objects, bios, buffers and pages on the spot. The file job is the recorded one of a 6.1 kernel.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::kernel::{Kernel, Kind, Program, about};
use super::process::{self, Child, Mix, Source};
use super::{Links, NativeWork, Op, Parameter, Plan, QueueSpec, Random, Task, What, Workload};
use crate::error::Error;
use crate::units::Picos;

/// Jobs with their weights: a mix in the manner of the benchmark's (our choice, no mix file is published with the results).
const JOBS: [(&str, u64); 8] = [
    ("creat", 15),
    ("link", 10),
    ("fork", 10),
    ("exec", 10),
    ("pipe", 15),
    ("signal", 10),
    ("disk", 15),
    ("arithmetic", 15),
];

/// The child of a fork job copies its map and ends; that of an exec job runs a small program (as in the recorded script).
const ONE: Mix = Mix {
    processes: 1.0,
    execs: 0.5,
    stats: 2.0,
    missing: 1.4,
    opens: 2.2,
    creates: 0.0,
    pipes: 0.0,
    pages: 32.0,
    ..process::SHELL
};

/// Configuration of aim7.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aim7 {
    /// Tasks at the same time.
    pub tasks: u64,
    /// One job, or all of them.
    pub job: String,
    /// Kernel release whose objects are used.
    pub era: String,
    /// User work of a job, in microseconds.
    pub user_us: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// Seconds before.
    pub warmup: f64,
    /// What becomes of work on Native.
    pub native_work: NativeWork,
}

impl Default for Aim7 {
    fn default() -> Self {
        Aim7 {
            tasks: 16,
            job: "all".into(),
            era: "2.6.24".into(),
            user_us: 500.0,
            seconds: 0.5,
            warmup: 0.2,
            native_work: NativeWork::Skip,
        }
    }
}

impl Workload for Aim7 {
    const NAME: &'static str = "aim7";
    const MEANING: &'static str = "multiuser job mix: files, processes, pipes, signals, disk blocks, arithmetic";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter { name: "tasks", unit: "tasks", meaning: "tasks at the same time, each with a child for its forks" },
        Parameter {
            name: "job",
            unit: "",
            meaning: "all, or one of creat, link, fork, exec, pipe, signal, disk, arithmetic",
        },
        Parameter {
            name: "era",
            unit: "",
            meaning: "kernel release whose objects are used: 2.6.24, 2.6.28, 3.0, 6.1 or 6.18",
        },
        Parameter { name: "user_us", unit: "us", meaning: "user work of a job" },
        Parameter { name: "seconds", unit: "s", meaning: "seconds measured, virtual on Sim" },
        Parameter { name: "warmup", unit: "s", meaning: "seconds before the measurement" },
        Parameter { name: "native_work", unit: "", meaning: "work on native: skip (allocator only) or spin" },
    ];

    fn check(&self) -> Result<(), Error> {
        if !(1..=4096).contains(&self.tasks) {
            return Err(Error::new("workload.tasks", self.tasks, "1..4096"));
        }
        let known: Vec<&str> = ["all"].into_iter().chain(JOBS.iter().map(|j| j.0)).collect();
        if !known.contains(&self.job.as_str()) {
            return Err(Error::unknown("workload.job", &self.job, &known));
        }
        if !(0.0..=1e6).contains(&self.user_us) {
            return Err(Error::new("workload.user_us", self.user_us, "0..1000000"));
        }
        Kernel::check(&self.era)?;
        super::check_times(self.seconds, self.warmup)
    }

    fn plan(&self, seed: u64) -> Plan {
        let kernel = Arc::new(Kernel::new(&self.era));
        let jobs: Vec<(&'static str, u64)> =
            JOBS.into_iter().filter(|(name, _)| self.job == "all" || self.job == *name).collect();
        // With one of the two process jobs alone, every child does the same.
        let execs = match self.job.as_str() {
            "fork" => 0.0,
            "exec" => 1.0,
            _ => ONE.execs,
        };
        let forks = jobs.iter().any(|(name, _)| ["fork", "exec"].contains(name));
        let mut tasks: Vec<Box<dyn Task>> = Vec::new();
        for i in 0..self.tasks as u32 {
            let source = Source {
                kernel: kernel.clone(),
                mix: Mix { execs, ..ONE },
                user: Picos::from_ns(500.0 * self.user_us),
                random: Random::new(seed, u64::from(i)),
            };
            tasks.push(Box::new(User {
                source: source.clone(),
                jobs: jobs.clone(),
                random: Random::new(seed, (1 << 32) + u64::from(i)),
                user: Picos::from_ns(1000.0 * self.user_us),
                link: i,
                program: Program::from(1024),
                journal: Vec::new(),
            }));
            if forks {
                tasks.push(Box::new(Child::new(source, 2 * i, 2 * i + 1)));
            }
        }
        Plan {
            warmup_s: self.warmup,
            seconds: self.seconds,
            // Jobs per minute.
            scale: 60.0,
            native_work: self.native_work,
            links: Links {
                queues: vec![QueueSpec { capacity: 1, delay: Picos(0) }; 2 * self.tasks as usize],
                ..Links::default()
            },
            ..Plan::of(kernel.caches.clone(), tasks, "jobs/min")
        }
    }
}

/// Does one job after another.
struct User {
    source: Source,
    jobs: Vec<(&'static str, u64)>,
    random: Random,
    user: Picos,
    /// Its queues are 2 · link and 2 · link + 1.
    link: u32,
    program: Program,
    journal: Vec<u32>,
}

impl Task for User {
    fn step(&mut self) -> Op {
        loop {
            if let Some(op) = self.program.next() {
                return op;
            }
            self.job();
            self.program.push(Op::Done { bytes: 0 });
        }
    }
}

impl User {
    fn job(&mut self) {
        let total = self.jobs.iter().map(|j| j.1).sum();
        let mut at = self.random.below(total);
        let name = self.jobs.iter().find(|(_, weight)| {
            let found = at < *weight;
            at = at.saturating_sub(*weight);
            found
        });
        let User { source, random, program: p, journal, link, user, .. } = self;
        let k = &Arc::clone(&source.kernel);
        p.user = Picos(user.0 / 16);
        match name.expect("weights sum to the total").0 {
            "creat" => file(k, p, random, journal),
            "link" => {
                p.enter();
                k.rename(p, journal);
                k.stat(p);
                k.stat(p);
            }
            "fork" | "exec" => {
                let n = source.unit();
                let process = source.process(n);
                process::fork_and_reap(k, p, &process, 2 * *link, 2 * *link + 1);
            }
            "pipe" => {
                p.enter();
                let (info, ring) = (p.take(What::Kmalloc(192), 192), p.take(What::Kmalloc(1024), 128));
                let page = p.take(What::Pages(0), 0);
                for _ in 0..8 {
                    p.enter();
                    p.push(Op::Copy { slot: page, bytes: 512, write: true });
                    p.enter();
                    p.push(Op::Copy { slot: page, bytes: 512, write: false });
                }
                [page, ring, info].into_iter().for_each(|slot| p.give(slot));
            }
            "signal" => {
                for _ in 0..16 {
                    p.enter();
                    let queued = k.what(Kind::Sigqueue).map(|what| p.take(what, 80));
                    queued.into_iter().for_each(|slot| p.give(slot));
                }
            }
            "disk" => {
                let (open, mut made) = k.create(p, journal);
                (0..8).for_each(|i| k.write(p, &mut made, 4096, 1, u32::from(i == 0)));
                k.read(p, &made, 8192);
                k.commit(p, journal);
                k.close(p, open);
                k.unlink(p, made, journal);
            }
            _ => p.work(*user),
        }
        if journal.len() > 256 {
            k.commit(p, journal);
        }
    }
}

/// A file created, looked at, renamed and removed (recorded on 6.1, profile `fileops`: 12.69 names, 8.12 entries, 7.01 open
/// files, one inode).
fn file(k: &Kernel, p: &mut Program, random: &mut Random, journal: &mut Vec<u32>) {
    let (open, mut made) = k.create(p, journal);
    k.write(p, &mut made, 1024, 1, 0);
    k.close(p, open);
    for _ in 0..about(random, 2.4475) {
        k.stat(p);
    }
    for _ in 0..6 {
        let dir = k.open_dir(p);
        k.close(p, dir);
    }
    for _ in 0..about(random, 1.12) {
        k.rename(p, journal);
    }
    k.unlink(p, made, journal);
}
