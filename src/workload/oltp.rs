//! oltp: a large database on many disks, direct I/O (workloads.md §9).
//!
//! Objects it moves: per I/O a request in four parts (bio 128, kiocb 256, dio 512, command 1024 bytes), taken by the
//! submitting task on its CPU, under way for the time of the disk, and freed by the interrupt handler of the disk on an
//! interrupt CPU: every object is freed remotely unless submitter and handler share the CPU, as many are in flight as the
//! disks' queues hold.

use serde::{Deserialize, Serialize};

use super::{Links, NativeWork, Op, Parameter, Plan, QueueSpec, Random, Task, What, Workload};
use crate::error::Error;
use crate::spec::CacheSpec;
use crate::units::{CpuId, Picos};

/// Caches of one I/O, in order of allocation, with the bytes that submission writes and completion reads.
const PARTS: [(&str, u64, u32); 4] =
    [("kiocb", 256, 192), ("dio", 512, 448), ("bio", 128, 128), ("scsi_cmnd", 1024, 320)];

/// Configuration of oltp.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Oltp {
    /// Tasks that submit.
    pub submitters: u64,
    /// CPUs that take interrupts, from CPU 0 on.
    pub irq_cpus: u64,
    /// I/Os under way per disk.
    pub depth: u64,
    /// Time of an I/O, in microseconds.
    pub disk_us: f64,
    /// I/Os of a transaction.
    pub ios: u64,
    /// User work of a transaction, in microseconds.
    pub user_us: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// Seconds before.
    pub warmup: f64,
    /// What becomes of work on Native.
    pub native_work: NativeWork,
}

impl Default for Oltp {
    fn default() -> Self {
        Oltp {
            submitters: 32,
            irq_cpus: 1,
            depth: 256,
            disk_us: 500.0,
            ios: 10,
            user_us: 200.0,
            seconds: 0.1,
            warmup: 0.1,
            native_work: NativeWork::Skip,
        }
    }
}

impl Workload for Oltp {
    const NAME: &'static str = "oltp";
    const MEANING: &'static str =
        "database I/O: objects taken by submitters on all CPUs, freed by the disks' interrupt handlers";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter { name: "submitters", unit: "tasks", meaning: "tasks that submit transactions" },
        Parameter {
            name: "irq_cpus",
            unit: "CPUs",
            meaning: "CPUs that complete I/O, from CPU 0 on; one disk queue each",
        },
        Parameter { name: "depth", unit: "I/Os", meaning: "I/Os under way per disk queue, 1..65536" },
        Parameter { name: "disk_us", unit: "us", meaning: "time of an I/O on its disk" },
        Parameter { name: "ios", unit: "", meaning: "I/Os of a transaction" },
        Parameter { name: "user_us", unit: "us", meaning: "user work of a transaction" },
        Parameter { name: "seconds", unit: "s", meaning: "seconds measured, virtual on Sim" },
        Parameter { name: "warmup", unit: "s", meaning: "seconds before the measurement" },
        Parameter { name: "native_work", unit: "", meaning: "work on native: skip (allocator only) or spin" },
    ];

    fn check(&self) -> Result<(), Error> {
        for (name, value, high) in [
            ("submitters", self.submitters, 4096),
            ("irq_cpus", self.irq_cpus, 4096),
            ("depth", self.depth, 65536),
            ("ios", self.ios, 10_000),
        ] {
            super::check_whole(name, value, 1..=high)?;
        }
        for (name, value) in [("disk_us", self.disk_us), ("user_us", self.user_us)] {
            if !(0.0..=1e6).contains(&value) {
                return Err(Error::new(format!("workload.{name}"), value, "0..1000000"));
            }
        }
        super::check_times(self.seconds, self.warmup)
    }

    fn check_on(&self, cpus: u16) -> Result<(), Error> {
        if self.irq_cpus > u64::from(cpus) {
            return Err(Error::new("workload.irq_cpus", self.irq_cpus, format!("1..{cpus}: the CPUs of this machine")));
        }
        Ok(())
    }

    fn plan(&self, seed: u64) -> Plan {
        let disks = self.irq_cpus as u32;
        let mut tasks: Vec<Box<dyn Task>> = Vec::new();
        for cpu in 0..disks {
            tasks.push(Box::new(Handler { queue: cpu, phase: 0 }));
        }
        let time = Picos::from_ns(1000.0 * self.user_us / self.ios as f64);
        for i in 0..self.submitters {
            tasks.push(Box::new(Submitter { random: Random::new(seed, i), disks, time, phase: 0 }));
        }
        let queue = QueueSpec { capacity: self.depth as u32, delay: Picos::from_ns(1000.0 * self.disk_us) };
        Plan {
            warmup_s: self.warmup,
            seconds: self.seconds,
            scale: 1.0 / self.ios as f64,
            native_work: self.native_work,
            links: Links {
                queues: vec![queue; disks as usize],
                pinned: (0..disks).map(|c| (c, CpuId(c as u16))).collect(),
                urgent: (0..disks).collect(),
                ..Links::default()
            },
            ..Plan::of(PARTS.map(|(name, size, _)| CacheSpec::new(name, size).hwcache()).to_vec(), tasks, "trans/s")
        }
    }
}

/// Submits one I/O after another, each to a disk drawn at random.
struct Submitter {
    random: Random,
    disks: u32,
    time: Picos,
    phase: u32,
}

impl Task for Submitter {
    fn step(&mut self) -> Op {
        let phase = self.phase;
        self.phase = (phase + 1) % 11;
        match phase {
            0 => Op::Compute { time: self.time },
            1 => Op::Syscall,
            2..10 => {
                let slot = (phase - 2) / 2;
                if phase.is_multiple_of(2) {
                    Op::Alloc { what: What::Cache(slot), into: slot }
                } else {
                    Op::Touch { slot, bytes: PARTS[slot as usize].2, write: true }
                }
            }
            _ => Op::Send { queue: self.random.below(u64::from(self.disks)) as u32, from: 0, count: 4 },
        }
    }
}

/// The interrupt handler of a disk: reads the command, frees the parts, last taken first.
struct Handler {
    queue: u32,
    phase: u32,
}

impl Task for Handler {
    fn step(&mut self) -> Op {
        let phase = self.phase;
        self.phase = (phase + 1) % 10;
        match phase {
            0 => Op::Recv { queue: self.queue, into: 0 },
            1..9 => {
                let slot = 3 - (phase - 1) / 2;
                if phase % 2 == 1 {
                    Op::Touch { slot, bytes: PARTS[slot as usize].2 / 2, write: false }
                } else {
                    Op::Free { slot }
                }
            }
            _ => Op::Done { bytes: 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_make_no_sense_together_are_refused_by_name() {
        let e = Oltp { irq_cpus: 9, ..Oltp::default() }.check_on(8).unwrap_err().to_string();
        assert!(e.contains("workload.irq_cpus = 9: 1..8"), "{e}");
        let e = Oltp { depth: 0, ..Oltp::default() }.check().unwrap_err().to_string();
        assert!(e.contains("workload.depth = 0: 1..65536"), "{e}");
        let e = Oltp { disk_us: f64::NAN, ..Oltp::default() }.check().unwrap_err().to_string();
        assert!(e.contains("workload.disk_us"), "{e}");
    }
}
