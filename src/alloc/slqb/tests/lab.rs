//! A machine, its pages and one cache, driven one CPU at a time between looks at every list.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::machine::presets::{Machinery, Placement as Cpus, Scalar};
use crate::machine::sim::{Schedule, SimCpu};
use crate::machine::{Cpu, Wakeup};
use crate::units::CpuId;

/// How many CPUs, nodes, and MiB per node.
#[derive(Clone, Copy)]
pub struct Shape {
    pub cpus: u64,
    pub nodes: u64,
    pub mib: u64,
}

impl Shape {
    /// The machine: CPUs in equal blocks over the nodes (all of them on the first ones if they are fewer).
    pub fn machine(self, schedule: Schedule) -> Sim {
        let number = |n: u64| Scalar::Number(n as f64);
        let overrides = BTreeMap::from([
            ("sockets".to_string(), number(self.nodes)),
            ("cores_per_socket".to_string(), number(self.cpus.div_ceil(self.nodes))),
            ("numa_nodes".to_string(), number(self.nodes)),
            ("l2_shared_by_cores".to_string(), number(1)),
            ("arena_per_node".to_string(), number(self.mib)),
        ]);
        let hardware = Machinery::preset("opteron-2x4-2007", &overrides, Some(self.cpus), Cpus::Packed).unwrap();
        Sim::new(&hardware, schedule).unwrap()
    }
}

/// The defaults with some numbers set, and structures that take no memory: the examples count locks and pages of one cache.
pub fn config(set: &[(&str, u64)]) -> Config {
    let mut given: serde_json::Map<_, _> = set.iter().map(|(k, v)| (k.to_string(), (*v).into())).collect();
    given.insert("metadata".into(), "free".into());
    Config::from_json(&given.into()).unwrap()
}

pub struct Lab<'p> {
    pub slqb: Slqb<'p, Sim>,
    pub cache: CacheId,
}

/// Runs `body` on a new machine with one cache, then checks caches and pages; returns the locks taken by class too.
pub fn lab<R>(
    shape: Shape,
    config: Config,
    spec: CacheSpec,
    body: impl FnOnce(&mut Lab<'_>) -> R,
) -> (R, BTreeMap<&'static str, u64>) {
    let mut machine = shape.machine(Schedule::default());
    let result = {
        let mut pages = Pages::new(&machine, PageModel::HotCold).unwrap();
        let result = {
            let mut slqb = Slqb::new(&pages, &config).unwrap();
            let cache = slqb.create_cache(spec).unwrap();
            let mut lab = Lab { slqb, cache };
            let result = body(&mut lab);
            lab.verify();
            result
        };
        pages.verify().unwrap();
        result
    };
    let ours = ["page_lock", "remote_free.lock", "list_lock"];
    let locks = machine.report().locks;
    (result, locks.iter().filter(|l| ours.contains(&l.class)).map(|l| (l.class, l.acquired)).collect())
}

impl Lab<'_> {
    /// Runs `f` on one CPU while the others answer calls.
    pub fn on<R: Send>(&self, cpu: u16, f: impl Fn(&SimCpu) -> R + Sync) -> R {
        let result = Mutex::new(None);
        self.slqb.pages().machine().boot(|c| {
            if c.id() == CpuId(cpu) {
                let value = f(c);
                *result.lock().unwrap() = Some(value);
            } else {
                while c.idle(None) != Wakeup::Quiet {}
            }
        });
        result.into_inner().unwrap().unwrap()
    }
    pub fn alloc(&self, cpu: u16, n: usize) -> Vec<Addr> {
        self.alloc_on(cpu, n, None)
    }
    pub fn alloc_on(&self, cpu: u16, n: usize, node: Option<u16>) -> Vec<Addr> {
        let want = Request { node: node.map(NodeId), ..Request::default() };
        self.on(cpu, |c| (0..n).map(|_| self.slqb.alloc(c, self.cache, want).unwrap().addr()).collect())
    }
    pub fn free(&self, cpu: u16, objects: &[Addr]) {
        self.on(cpu, |c| objects.iter().for_each(|x| self.slqb.free(c, self.cache, Object::at(*x))));
    }
    pub fn trim(&self, cpu: u16) {
        self.on(cpu, |c| self.slqb.trim(c));
    }
    pub fn verify(&mut self) {
        self.slqb.verify().unwrap();
    }
    /// A counter, over all CPUs.
    pub fn stat(&mut self, stat: Stat) -> u64 {
        self.slqb.counters(self.cache).iter().map(|c| c.get(stat)).sum()
    }
    /// Trims all CPUs in rounds until no slab is left: at most 8 + 4·CPUs rounds (invariant 16).
    pub fn empty(&mut self) {
        let cpus = self.slqb.pages().machine().topology().cpus();
        for _ in 0..8 + 4 * cpus {
            (0..cpus as u16).for_each(|c| self.trim(c));
            if self.slqb.state(self.cache)["nr_slabs"] == 0 {
                return;
            }
        }
        panic!("slabs are left: {}", self.slqb.state(self.cache));
    }
}
