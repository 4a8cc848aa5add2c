//! Makes scripts of the recorded sequences. Everything comes from the recording's own lines: parameters from `params`,
//! which states are shown from the names of the checkpoints.

use serde_json::Value;

use super::recording::Group;
use crate::spec::{CacheSpec, Kind};
use crate::workload::script::{Script, ScriptOp, Step};

/// xorshift64, the generator of all sequences.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// Fisher-Yates on the identity permutation, as the recordings' driver does it.
    pub(super) fn permutation(&mut self, n: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n).collect();
        for i in (1..n as usize).rev() {
            let j = self.next() % (i as u64 + 1);
            order.swap(i, j as usize);
        }
        order
    }
}

/// The seed of all recordings that do not name one.
pub(super) const SEED: u64 = 88_172_645_463_325_252;

/// Order in which `n` objects are freed.
pub(super) fn order(name: &str, n: u32, seed: u64) -> Vec<u32> {
    match name {
        "fifo" => (0..n).collect(),
        "lifo" => (0..n).rev().collect(),
        "random" => Random::new(seed).permutation(n),
        other => panic!("order {other} of a recording is unknown"),
    }
}

/// A script in the making. Only checkpoints that the recording has are put into it.
pub(super) struct Writer {
    ops: Vec<Step>,
    names: Vec<String>,
    every: bool,
    kmalloc: bool,
    size: u64,
    /// Objects held, and bytes asked for, by slot.
    held: Vec<Option<u64>>,
    /// `live` and `live_bytes` of each checkpoint written.
    pub(super) live: Vec<(u64, u64)>,
}

impl Writer {
    pub(super) fn new(kmalloc: bool, size: u64, names: Vec<String>) -> Writer {
        Writer { ops: Vec::new(), names, kmalloc, size, held: Vec::new(), live: Vec::new(), every: false }
    }
    /// A writer that puts in every checkpoint it is given.
    pub(super) fn every(kmalloc: bool, size: u64) -> Writer {
        Writer { every: true, ..Writer::new(kmalloc, size, Vec::new()) }
    }
    fn push(&mut self, cpu: u64, op: ScriptOp) {
        self.ops.push(Step { cpu: cpu as u16, op });
    }
    fn take(&mut self, slot: u32, bytes: u64) {
        if self.held.len() <= slot as usize {
            self.held.resize(slot as usize + 1, None);
        }
        self.held[slot as usize] = Some(bytes);
    }
    pub(super) fn is_held(&self, slot: u32) -> bool {
        self.held.get(slot as usize).is_some_and(Option::is_some)
    }
    /// Takes an object of the cache's size into `slot`.
    pub(super) fn alloc(&mut self, cpu: u64, slot: u32) {
        if self.kmalloc { self.kmalloc(cpu, slot, self.size) } else { self.alloc_node(cpu, slot, None) }
    }
    fn alloc_node(&mut self, cpu: u64, slot: u32, node: Option<u16>) {
        self.take(slot, self.size);
        self.push(cpu, ScriptOp::Alloc { cache: 0, slot, node });
    }
    fn kmalloc(&mut self, cpu: u64, slot: u32, bytes: u64) {
        self.take(slot, bytes);
        self.push(cpu, ScriptOp::Kmalloc { bytes, slot, node: None, kind: Kind::Normal });
    }
    pub(super) fn free(&mut self, cpu: u64, slot: u32) {
        self.held[slot as usize] = None;
        self.push(cpu, if self.kmalloc { ScriptOp::Kfree { slot } } else { ScriptOp::Free { slot } });
    }
    pub(super) fn free_all(&mut self, cpu: u64, slots: impl IntoIterator<Item = u32>) {
        slots.into_iter().for_each(|slot| self.free(cpu, slot));
    }
    pub(super) fn alloc_all(&mut self, cpu: u64, slots: impl IntoIterator<Item = u32>) {
        slots.into_iter().for_each(|slot| self.alloc(cpu, slot));
    }
    /// A checkpoint, if the recording shows it.
    pub(super) fn checkpoint(&mut self, name: impl Into<String>) {
        let name = name.into();
        if self.every {
            self.push(0, ScriptOp::Checkpoint { name });
        } else if self.names.get(self.live.len()) == Some(&name) {
            let live = self.held.iter().flatten();
            self.live.push((live.clone().count() as u64, live.sum()));
            self.push(0, ScriptOp::Checkpoint { name });
        }
    }
    /// The next checkpoint of the recording, whatever its name.
    fn next_checkpoint(&mut self) {
        if let Some(name) = self.names.get(self.live.len()).cloned() {
            self.checkpoint(name);
        }
    }
    fn alloc_bulk(&mut self, cpu: u64, slots: Vec<u32>) {
        slots.iter().for_each(|slot| self.take(*slot, self.size));
        self.push(cpu, ScriptOp::AllocBulk { cache: 0, slots });
    }
    fn free_bulk(&mut self, cpu: u64, slots: Vec<u32>) {
        slots.iter().for_each(|slot| self.held[*slot as usize] = None);
        self.push(cpu, ScriptOp::FreeBulk { slots });
    }
    /// Numbers of operations after which the recording shows a checkpoint `ops_N`.
    fn shown_ops(&self) -> Vec<u64> {
        self.names.iter().filter_map(|n| n.strip_prefix("ops_")?.parse().ok()).collect()
    }
    /// One pass of periodic work: CPU 0, 1, … once each.
    fn trim(&mut self, cpus: u64) {
        (0..cpus).for_each(|cpu| self.push(cpu, ScriptOp::Trim {}));
    }
    /// The script, if it shows every checkpoint of the recording.
    pub(super) fn finish(self, caches: Vec<CacheSpec>) -> Script {
        let shown = self.live.len();
        assert!(shown == self.names.len(), "the sequence has no checkpoint {:?} here", self.names.get(shown));
        Script { caches, ops: self.ops }
    }
}

/// Parameters of a sequence.
struct Params<'a>(&'a Value);

impl Params<'_> {
    fn number(&self, key: &str) -> u64 {
        self.0[key].as_u64().unwrap_or_else(|| panic!("parameter {key} of a recording: {}", self.0[key]))
    }
    fn or(&self, key: &str, default: u64) -> u64 {
        self.0[key].as_u64().unwrap_or(default)
    }
    fn order(&self, n: u32) -> Vec<u32> {
        order(self.0["order"].as_str().unwrap_or("fifo"), n, self.seed())
    }
    fn seed(&self) -> u64 {
        self.0["seed"].as_str().map_or(SEED, |s| s.parse().expect("a seed"))
    }
    fn sizes(&self) -> Vec<u64> {
        self.0["sizes"].as_array().expect("sizes").iter().map(|s| s.as_u64().expect("a size")).collect()
    }
}

/// The script of a group with `live` and `live_bytes` of its checkpoints; `None` for a sequence that is not built.
pub(super) fn script(group: &Group) -> Option<(Script, Vec<(u64, u64)>)> {
    let names: Vec<String> =
        group.lines.iter().map(|l| l["checkpoint"].as_str().expect("checkpoint").to_string()).collect();
    let trims = names.iter().filter(|n| n.starts_with("trim_")).count() as u64;
    let spec = group.spec();
    let kmalloc = group.get("api") == "kmalloc";
    let p = Params(group.get("params"));
    let (cpus, _) = group.shape();
    let mut w = Writer::new(kmalloc, spec.size, names);
    match group.get("sequence").as_str().expect("sequence") {
        "fill_free" => fill_free(&mut w, &p),
        "checkerboard" => checkerboard(&mut w, &p),
        "churn" | "churn_cross" => churn(&mut w, &p),
        "pingpong" => pingpong(&mut w, &p),
        "rotate" => rotate(&mut w, &p),
        "trim_rounds" => trim_rounds(&mut w, &p, cpus),
        "remote_burst" => remote_burst(&mut w, &p),
        "node_alloc" => node_alloc(&mut w, &p, cpus),
        "reap" => reap(&mut w, &p, cpus),
        "shrink_partial" => shrink_partial(&mut w, &p),
        "bulk" => bulk(&mut w, &p),
        "prefill" => prefill(&mut w, &p),
        "rcu_free" => rcu_free(&mut w, &p),
        "named_node" => named_node(&mut w, &p, cpus),
        "mixed_churn" => mixed_churn(&mut w, &p),
        "mixed_stack" => mixed_stack(&mut w, &p),
        _ => return None,
    }
    for pass in 1..=trims {
        w.trim(cpus);
        w.checkpoint(format!("trim_{pass}"));
    }
    if w.names.iter().any(|n| n == "shrunk") {
        w.push(0, ScriptOp::Shrink { cache: 0 });
        w.checkpoint("shrunk");
    }
    if w.names.last().is_some_and(|n| n == "destroyed") {
        w.push(0, ScriptOp::Destroy { cache: 0 });
        w.checkpoint("destroyed");
    }
    let live = w.live.clone();
    // kmalloc recordings have no cache of their own.
    Some((w.finish(if kmalloc { vec![] } else { vec![spec] }), live))
}

/// Frees in `order` with checkpoints at each quarter.
fn free_in_quarters(w: &mut Writer, cpu: u64, order: &[u32]) {
    let mut done = 0;
    for percent in [25, 50, 75, 100] {
        let until = order.len() * percent / 100;
        w.free_all(cpu, order[done..until].iter().copied());
        done = until;
        w.checkpoint(format!("freed_{percent}"));
    }
}

fn fill_free(w: &mut Writer, p: &Params) {
    let n = p.number("n") as u32;
    w.checkpoint("created");
    w.alloc_all(0, 0..n);
    w.checkpoint("allocated");
    free_in_quarters(w, 0, &p.order(n));
}

fn checkerboard(w: &mut Writer, p: &Params) {
    let n = p.number("n") as u32;
    w.alloc_all(0, 0..n);
    w.checkpoint("allocated");
    w.free_all(0, (0..n).step_by(2));
    w.checkpoint("even_freed");
    w.alloc_all(0, n..n + n / 4);
    w.checkpoint("quarter_realloc");
    w.alloc_all(0, n + n / 4..n + n / 4 * 2);
    w.checkpoint("half_realloc");
    w.free_all(0, (1..n).step_by(2));
    w.checkpoint("odd_freed");
    w.free_all(0, n..n + n / 4 * 2);
    w.checkpoint("all_freed");
}

/// One operation of the churns: frees slot `k`, or fills it by `fill`.
fn churn_op(w: &mut Writer, cpu: u64, slot: u32, fill: impl FnOnce(&mut Writer)) {
    if w.is_held(slot) { w.free(cpu, slot) } else { fill(w) }
}

fn free_held(w: &mut Writer, slots: u32) {
    for slot in 0..slots {
        if w.is_held(slot) {
            w.free(0, slot);
        }
    }
    w.checkpoint("all_freed");
}

fn churn(w: &mut Writer, p: &Params) {
    let (slots, ops) = (p.number("slots"), p.number("ops"));
    let (batch, cpus) = (p.or("batch", ops), p.or("ncpu", 1));
    let (mut random, shown) = (Random::new(p.seed()), w.shown_ops());
    for op in 0..ops {
        let (cpu, slot) = (op / batch % cpus, (random.next() % slots) as u32);
        churn_op(w, cpu, slot, |w| w.alloc(cpu, slot));
        if shown.contains(&(op + 1)) {
            w.checkpoint(format!("ops_{}", op + 1));
        }
    }
    free_held(w, slots as u32);
}

fn mixed_churn(w: &mut Writer, p: &Params) {
    let (slots, sizes) = (p.number("slots"), p.sizes());
    let (mut random, shown) = (Random::new(p.seed()), w.shown_ops());
    for op in 0..p.number("ops") {
        let slot = (random.next() % slots) as u32;
        churn_op(w, 0, slot, |w| w.kmalloc(0, slot, sizes[(random.next() % sizes.len() as u64) as usize]));
        if shown.contains(&(op + 1)) {
            w.checkpoint(format!("ops_{}", op + 1));
        }
    }
    free_held(w, slots as u32);
}

fn mixed_stack(w: &mut Writer, p: &Params) {
    let (n, sizes) = (p.number("n") as u32, p.sizes());
    let mut random = Random::new(p.seed());
    let mut top = 0;
    for round in 0..p.number("rounds") {
        for _ in 0..n {
            w.kmalloc(0, top, sizes[(random.next() % sizes.len() as u64) as usize]);
            top += 1;
        }
        w.checkpoint(format!("round{round}_pushed"));
        w.free_all(0, (top - n / 2..top).rev());
        top -= n / 2;
        w.checkpoint(format!("round{round}_popped"));
    }
    w.free_all(0, (0..top).rev());
    w.checkpoint("all_freed");
}

fn pingpong(w: &mut Writer, p: &Params) {
    let n = p.number("n") as u32;
    let (a, b) = (p.number("alloc_cpu"), p.number("free_cpu"));
    for round in 0..p.number("rounds") {
        let (from, to) = if p.or("alternate", 0) != 0 && round % 2 == 1 { (b, a) } else { (a, b) };
        w.alloc_all(from, 0..n);
        w.checkpoint(format!("round{round}_allocated"));
        w.free_all(to, p.order(n));
        w.checkpoint(format!("round{round}_freed"));
    }
}

fn rotate(w: &mut Writer, p: &Params) {
    let (n, cpus) = (p.number("n_per_cpu") as u32, p.number("ncpu"));
    let own = |cpu: u64| cpu as u32 * n..(cpu as u32 + 1) * n;
    for round in 0..p.number("rounds") {
        (0..cpus).for_each(|cpu| w.alloc_all(cpu, own(cpu)));
        w.checkpoint(format!("round{round}_allocated"));
        (0..cpus).for_each(|cpu| w.free_all(cpu, own((cpu + 1) % cpus)));
        w.checkpoint(format!("round{round}_freed"));
    }
}

fn trim_rounds(w: &mut Writer, p: &Params, cpus: u64) {
    let n = p.number("n") as u32;
    for round in 0..p.number("rounds") {
        w.alloc_all(p.number("alloc_cpu"), 0..n);
        w.checkpoint(format!("round{round}_allocated"));
        w.free_all(p.number("free_cpu"), p.order(n));
        w.checkpoint(format!("round{round}_freed"));
        w.trim(cpus);
        w.checkpoint(format!("round{round}_trimmed"));
    }
}

/// One tick: 2 s pass, then the reaper runs once on each CPU.
fn reap(w: &mut Writer, p: &Params, cpus: u64) {
    let n = p.number("n") as u32;
    w.alloc_all(0, 0..n);
    w.checkpoint("allocated");
    w.free_all(p.number("free_cpu"), p.order(n));
    w.checkpoint("freed");
    for tick in 1..=p.number("ticks") {
        w.push(0, ScriptOp::Wait { seconds: 2.0 });
        w.trim(cpus);
        w.checkpoint(format!("tick_{tick}"));
    }
}

fn remote_burst(w: &mut Writer, p: &Params) {
    let (n, home) = (p.number("n") as u32, p.number("alloc_cpu"));
    w.alloc_all(home, 0..n);
    w.checkpoint("allocated");
    free_in_quarters(w, p.number("free_cpu"), &p.order(n));
    w.alloc_all(home, 0..n / 2);
    w.checkpoint("half_realloc");
    w.alloc_all(home, n / 2..n);
    w.checkpoint("reallocated");
    w.free_all(home, 0..n);
    w.checkpoint("all_freed");
}

fn node_alloc(w: &mut Writer, p: &Params, cpus: u64) {
    let (n, home) = (p.number("n") as u32, p.number("alloc_cpu"));
    let node = Some(p.number("node") as u16);
    for round in 0..p.number("rounds") {
        (0..n).for_each(|slot| w.alloc_node(home, slot, node));
        w.checkpoint(format!("round{round}_allocated"));
        w.free_all(home, 0..n / 2);
        w.checkpoint(format!("round{round}_first_half_freed"));
        w.free_all(cpus - 1, n / 2..n);
        w.checkpoint(format!("round{round}_freed"));
    }
}

fn shrink_partial(w: &mut Writer, p: &Params) {
    let n = p.number("n") as u32;
    let order = order("random", n, p.seed());
    let (first, rest) = order.split_at(n as usize * 60 / 100);
    w.alloc_all(0, 0..n);
    w.free_all(0, first.iter().copied());
    w.checkpoint("freed_60");
    w.push(0, ScriptOp::Shrink { cache: 0 });
    w.checkpoint("shrunk_partial");
    w.alloc_all(0, n..n + n / 4);
    w.checkpoint("realloc");
    w.free_all(0, rest.iter().copied());
    w.checkpoint("old_freed");
    w.free_all(0, n..n + n / 4);
    w.checkpoint("all_freed");
}

/// Rounds of bulk allocation and bulk frees; no batch crosses the half.
fn bulk(w: &mut Writer, p: &Params) {
    let (n, batch) = (p.number("n") as u32, p.number("batch") as usize);
    let orders = [("fifo", 0), ("lifo", 0), ("random", 0), ("fifo", p.or("free_cpu", 0))];
    let rounds = w.names.iter().filter(|name| name.ends_with("_allocated")).count();
    for (round, (name, cpu)) in orders.into_iter().enumerate().take(rounds) {
        let all: Vec<u32> = (0..n).collect();
        all.chunks(batch).for_each(|slots| w.alloc_bulk(0, slots.to_vec()));
        w.checkpoint(format!("round{round}_allocated"));
        let order = order(name, n, p.seed());
        let (first, second) = order.split_at(n as usize / 2);
        for (half, percent) in [(first, 50), (second, 100)] {
            half.chunks(batch).for_each(|slots| w.free_bulk(cpu, slots.to_vec()));
            w.checkpoint(format!("round{round}_freed_{percent}"));
        }
    }
}

fn prefill(w: &mut Writer, p: &Params) {
    let (n, refill, warm) = (p.number("n"), p.number("refill"), p.or("warm", 0));
    if warm != 0 {
        w.alloc_all(0, 0..1000);
        w.free_all(0, 0..1000);
        w.checkpoint("warmed");
    }
    // The slot behind all others holds the sheaf.
    let (first, second) = ((n as u32).div_ceil(2), refill as u32 / 2);
    let sheaf = first + second;
    let taken = |w: &mut Writer, slots: std::ops::Range<u32>| {
        for slot in slots {
            w.take(slot, w.size);
            w.push(0, ScriptOp::AllocPrefilled { from: sheaf, slot });
        }
    };
    w.push(0, ScriptOp::Prefill { cache: 0, slot: sheaf, objects: n });
    w.checkpoint("prefilled");
    taken(w, 0..first);
    w.checkpoint("half_taken");
    w.push(0, ScriptOp::Refill { slot: sheaf, objects: refill });
    w.checkpoint("refilled");
    taken(w, first..first + second);
    w.checkpoint("taken_again");
    w.push(0, ScriptOp::ReturnPrefilled { slot: sheaf });
    w.checkpoint("returned");
    w.free_all(0, 0..first + second);
    w.checkpoint("all_freed");
}

fn rcu_free(w: &mut Writer, p: &Params) {
    let (n, cpu) = (p.number("n") as u32, p.number("free_cpu"));
    for round in 0..p.number("rounds") {
        w.alloc_all(0, 0..n);
        w.checkpoint(format!("round{round}_allocated"));
        for slot in 0..n {
            w.held[slot as usize] = None;
            w.push(cpu, ScriptOp::FreeRcu { slot });
        }
        w.checkpoint(format!("round{round}_rcu_queued"));
        w.push(0, ScriptOp::RcuBarrier {});
        w.checkpoint(format!("round{round}_grace_period"));
    }
    w.push(0, ScriptOp::Shrink { cache: 0 });
    w.checkpoint("shrunk_before_grace_period");
    w.push(0, ScriptOp::RcuBarrier {});
}

/// Objects of named nodes and of any, frees on a CPU of either node, and named ones again. A checkpoint after each step.
fn named_node(w: &mut Writer, p: &Params, cpus: u64) {
    let n = p.number("n") as u32;
    (0..n).for_each(|slot| w.alloc_node(0, slot, Some(1)));
    w.next_checkpoint();
    (n..2 * n).for_each(|slot| w.alloc_node(0, slot, Some(0)));
    w.next_checkpoint();
    w.alloc_all(cpus - 1, 2 * n..3 * n);
    w.next_checkpoint();
    w.free_all(p.number("free_cpu"), 0..n / 2);
    w.next_checkpoint();
    (3 * n..4 * n).for_each(|slot| w.alloc_node(0, slot, Some(p.number("again_node") as u16)));
    w.next_checkpoint();
    w.free_all(0, n / 2..4 * n);
    w.next_checkpoint();
}
