//! slab_test: the in-kernel microbenchmark's six shapes and its bulk table, cycles per operation.
//!
//! Objects it moves: kmalloc memory of one size at a time, `objects` of it on each CPU that takes part. In the first four
//! shapes every object is freed where it was allocated; in `remote_free` all CPUs allocate and CPU 0 frees everything; in
//! `one_allocator` CPU 0 allocates for all and every CPU frees its share. `bulk` takes and gives back 256-byte objects in
//! batches of 1 to 250 on CPU 0.

use serde::{Deserialize, Serialize};

use super::{LapSpec, Links, Op, Parameter, Plan, QueueSpec, Task, What, Workload};
use crate::error::Error;
use crate::spec::CacheSpec;
use crate::units::{CpuId, Picos};

/// Shapes by name.
const SHAPES: [&str; 7] = ["burst", "pair", "burst_all", "pair_all", "remote_free", "one_allocator", "bulk"];
/// Sizes of the kernel module's tables.
const SIZES: [u64; 12] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
/// Batches of the bulk table.
const BULKS: [u64; 14] = [1, 2, 3, 4, 8, 16, 30, 32, 34, 48, 64, 128, 158, 250];
/// Object size of the bulk table.
const BULK_SIZE: u64 = 256;
/// Most objects per CPU.
const MAX_OBJECTS: u64 = 1 << 20;

/// Configuration of slab_test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlabTest {
    /// Which shape.
    pub shape: String,
    /// One size, or all of them.
    pub size: Option<u64>,
    /// Objects per CPU.
    pub objects: u64,
}

impl Default for SlabTest {
    fn default() -> Self {
        SlabTest { shape: "all".into(), size: None, objects: 1000 }
    }
}

impl SlabTest {
    fn shapes(&self) -> Vec<&'static str> {
        SHAPES.into_iter().filter(|s| self.shape == "all" || self.shape == *s).collect()
    }
    fn sizes(&self) -> Vec<u64> {
        self.size.map_or(SIZES.to_vec(), |size| vec![size])
    }
}

impl Workload for SlabTest {
    const NAME: &'static str = "slab_test";
    const MEANING: &'static str =
        "the in-kernel microbenchmark: bursts, pairs, remote frees and bulk calls, cycles per operation";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "shape",
            unit: "",
            meaning: "all, or one of burst, pair, burst_all, pair_all, remote_free, one_allocator, bulk",
        },
        Parameter { name: "size", unit: "B", meaning: "one object size, 1..4194304; none: 8, 16, .. 16384" },
        Parameter { name: "objects", unit: "", meaning: "objects that each CPU allocates in a shape" },
    ];

    fn check(&self) -> Result<(), Error> {
        if self.shapes().is_empty() {
            let known: Vec<&str> = ["all"].into_iter().chain(SHAPES).collect();
            return Err(Error::unknown("workload.shape", &self.shape, &known));
        }
        if let Some(size) = self.size.filter(|size| !(1..=4 << 20).contains(size)) {
            return Err(Error::new("workload.size", size, "1..4194304, or none for all sizes"));
        }
        if self.shape == "bulk" && self.size.is_some() {
            let right = "no size: the bulk table is of 256-byte objects";
            return Err(Error::new("workload.size", self.size.unwrap_or(0), right));
        }
        if !(1..=MAX_OBJECTS).contains(&self.objects) {
            return Err(Error::new("workload.objects", self.objects, format!("1..{MAX_OBJECTS}")));
        }
        Ok(())
    }

    fn plan(&self, seed: u64) -> Plan {
        self.plan_on(seed, 1)
    }

    fn plan_on(&self, _seed: u64, cpus: u16) -> Plan {
        let n = self.objects as u32;
        let mut programs: Vec<Vec<Part>> = vec![Vec::new(); usize::from(cpus)];
        let mut laps = Vec::new();
        for shape in self.shapes() {
            let cases: Vec<(u64, u64)> = match shape {
                "bulk" => BULKS.map(|bulk| (BULK_SIZE, bulk)).to_vec(),
                _ => self.sizes().into_iter().map(|size| (size, 1)).collect(),
            };
            for (size, bulk) in cases {
                let mut lap = |part| {
                    laps.push(LapSpec { test: shape, part, size, bulk });
                    laps.len() as u32 - 1
                };
                let (first, second) = match shape {
                    "pair" | "pair_all" => (lap("pair"), 0),
                    _ => (lap("alloc"), lap("free")),
                };
                for (cpu, program) in programs.iter_mut().enumerate() {
                    program.push(Part::One(MEET));
                    program.extend(parts(
                        shape,
                        cpu as u32,
                        u32::from(cpus),
                        n,
                        size as u32,
                        bulk as u32,
                        [first, second],
                    ));
                }
            }
        }
        let tasks: Vec<Box<dyn Task>> =
            programs.into_iter().map(|p| Box::new(Tester::new(p)) as Box<dyn Task>).collect();
        let caches = vec![CacheSpec::new("bulk_test", BULK_SIZE).hwcache()];
        let links = Links {
            // One queue towards each CPU.
            queues: vec![QueueSpec { capacity: u32::from(cpus), delay: Picos(0) }; usize::from(cpus)],
            barriers: vec![u32::from(cpus)],
            laps,
            pinned: (0..cpus).map(|c| (u32::from(c), CpuId(c))).collect(),
            ..Links::default()
        };
        Plan { links, per_byte: true, ..Plan::of(caches, tasks, "ops/s") }
    }
}

/// All CPUs begin together.
const MEET: Op = Op::Barrier { barrier: 0 };

/// What CPU `cpu` of `cpus` does in one shape. Laps: of allocations (or pairs) and of frees.
fn parts(shape: &str, cpu: u32, cpus: u32, n: u32, size: u32, bulk: u32, [first, second]: [u32; 2]) -> Vec<Part> {
    use Part::{Allocs, Bulks, Frees, One, Pairs};
    let timed = |part, lap, ops| [One(Op::Start), part, One(Op::Lap { lap, ops }), One(Op::Done { bytes: ops.into() })];
    let burst = [timed(Allocs { size, n }, first, n), timed(Frees { n }, second, n)].concat();
    match (shape, cpu) {
        ("burst", 0) => burst,
        ("burst_all", _) => {
            [timed(Allocs { size, n }, first, n).to_vec(), vec![One(MEET)], timed(Frees { n }, second, n).to_vec()]
                .concat()
        }
        ("pair", 0) | ("pair_all", _) => timed(Pairs { size, n }, first, n).to_vec(),
        ("remote_free", _) => {
            let mut parts = timed(Allocs { size, n }, first, n).to_vec();
            parts.push(One(Op::Send { queue: 0, from: 0, count: n }));
            if cpu == 0 {
                for _ in 0..cpus {
                    parts.push(One(Op::Recv { queue: 0, into: 0 }));
                    parts.extend(timed(Frees { n }, second, n));
                }
            }
            parts
        }
        ("one_allocator", _) => {
            let mut parts = Vec::new();
            if cpu == 0 {
                for to in 0..cpus {
                    parts.extend(timed(Allocs { size, n }, first, n));
                    parts.push(One(Op::Send { queue: to, from: 0, count: n }));
                }
            }
            // The frees of all CPUs run at the same time.
            parts.extend([One(Op::Recv { queue: cpu, into: 0 }), One(MEET)]);
            parts.extend(timed(Frees { n }, second, n));
            parts
        }
        ("bulk", 0) => {
            let rounds = n.div_ceil(bulk);
            [
                Bulks { bulk, rounds, lap: first, free: false },
                Bulks { bulk, rounds, lap: second, free: true },
                One(Op::Done { bytes: u64::from(2 * rounds * bulk) }),
            ]
            .to_vec()
        }
        _ => Vec::new(),
    }
}

/// A stretch of a program.
#[derive(Clone, Copy, Debug)]
enum Part {
    One(Op),
    /// Allocates into slots 0 to n - 1.
    Allocs {
        size: u32,
        n: u32,
    },
    /// Frees them in the order of allocation.
    Frees {
        n: u32,
    },
    /// Allocates and frees n times.
    Pairs {
        size: u32,
        n: u32,
    },
    /// One half of the bulk table, each call timed.
    Bulks {
        bulk: u32,
        rounds: u32,
        lap: u32,
        free: bool,
    },
}

impl Part {
    /// Operation `i` of the stretch.
    fn op(self, i: u32) -> Option<Op> {
        match self {
            Part::One(op) => (i == 0).then_some(op),
            Part::Allocs { size, n } => (i < n).then_some(Op::Alloc { what: What::Kmalloc(size), into: i }),
            Part::Frees { n } => (i < n).then_some(Op::Free { slot: i }),
            Part::Pairs { size, n } => (i < 2 * n).then_some(match i % 2 {
                0 => Op::Alloc { what: What::Kmalloc(size), into: 0 },
                _ => Op::Free { slot: 0 },
            }),
            Part::Bulks { bulk, rounds, lap, free } => (i < 3 * rounds).then(|| {
                let slot = i / 3 * bulk;
                match i % 3 {
                    0 => Op::Start,
                    1 if free => Op::FreeBulk { from: slot, count: bulk },
                    1 => Op::AllocBulk { cache: 0, into: slot, count: bulk },
                    _ => Op::Lap { lap, ops: bulk },
                }
            }),
        }
    }
}

/// Goes through its program once.
struct Tester {
    program: Vec<Part>,
    at: usize,
    i: u32,
}

impl Tester {
    fn new(program: Vec<Part>) -> Tester {
        Tester { program, at: 0, i: 0 }
    }
}

impl Task for Tester {
    fn step(&mut self) -> Op {
        while let Some(part) = self.program.get(self.at) {
            if let Some(op) = part.op(self.i) {
                self.i += 1;
                return op;
            }
            self.at += 1;
            self.i = 0;
        }
        Op::Exit
    }
}
