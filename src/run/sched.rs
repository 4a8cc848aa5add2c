//! The schedulers of 2.6.24, 2.6.28 and 2.6.32: run queues, wake-up placement, newly-idle and periodic balance
//! (machine-model.md §7). They differ in where a woken task goes and how long slices are ([`Rules`]).
//!
//! A task is a box that is in exactly one place: on a CPU (running), in one run queue, or parked (asleep). `nr` of a
//! queue counts its waiting tasks plus the running one. Waking a task that is still running leaves a mark, and its next
//! attempt to sleep fails: no wake-up is lost.
//!
//! The queue lock is the machine's, so its line travels and its waits are counted as in the kernel (`rq->lock`). The load
//! figures that other CPUs read without it are published when the lock is held (the load of the last tick: at the tick).
//! A holder publishes up to one hold time, about 0.1 µs, ahead of its clock; that is the error of those unlocked reads.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::machine::{Cpu, Event, Machine, Section, SpinLock};
use crate::topology::Topology;
use crate::units::{CpuId, JIFFY, Picos};
use crate::workload::{Links, Op, Random, Task};

/// Load of one task (kernel: NICE_0_LOAD).
const WEIGHT: u32 = 1024;
/// A waiting task that ran less than this ago is cache-hot (kernel: sysctl_sched_migration_cost).
const HOT: Picos = Picos(500_000_000);
/// Time between two periodic balances of a busy CPU ("every 1–32 ms"); an idle one balances at each tick.
const BALANCE: Picos = Picos(32_000_000_000);
/// Failed periodic balances after which a hot task may be pulled (kernel: cache_nice_tries).
const NICE_TRIES: u32 = 1;

/// What differs from release to release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rules {
    /// Period in which all waiting tasks of a queue run once, and the least time of one of them, in picoseconds, both times
    /// 1 + log2 CPUs (kernel: sched_latency, sched_min_granularity).
    latency: u64,
    granularity: u64,
    /// A waker that will soon sleep says so, and its own load does not count (kernel: sync wake-ups of sockets).
    sync: bool,
    /// An idle CPU is looked for among all that share the last-level cache (kernel: select_idle_sibling); otherwise only
    /// among those of the second-level cache, and only if the choice runs exactly one task (kernel: wake_idle).
    idle_sibling: bool,
    /// Time between two timer ticks.
    tick: Picos,
}

impl Rules {
    /// 2.6.24.
    pub(super) const V2_6_24: Rules =
        Rules { latency: 20_000_000_000, granularity: 4_000_000_000, sync: false, idle_sibling: false, tick: JIFFY };
    /// 2.6.28: sockets wake in sync.
    pub(super) const V2_6_28: Rules = Rules { sync: true, ..Rules::V2_6_24 };
    /// 2.6.32 and later.
    pub(super) const V2_6_32: Rules =
        Rules { latency: 6_000_000_000, granularity: 1_000_000_000, sync: true, idle_sibling: true, tick: JIFFY };

    /// The same with `hz` timer ticks in a second.
    pub(super) fn at(self, hz: f64) -> Rules {
        Rules { tick: Picos((1e12 / hz).round() as u64), ..self }
    }

    /// Those of a name as `sched=` gives it, or of the kernel `release`.
    pub(super) fn named(name: &str, release: (u32, u32, u32)) -> Rules {
        match name {
            "2.6.24" => Rules::V2_6_24,
            "2.6.28" => Rules::V2_6_28,
            "2.6.32" => Rules::V2_6_32,
            _ if release <= (2, 6, 24) => Rules::V2_6_24,
            _ if release < (2, 6, 32) => Rules::V2_6_28,
            _ => Rules::V2_6_32,
        }
    }
}

/// A task with what the scheduler and the executor keep beside it.
pub(super) struct Running {
    pub(super) id: u32,
    pub(super) body: Box<dyn Task>,
    /// An operation that could not be completed: repeated when the task runs again.
    pub(super) pending: Option<Op>,
    /// Bytes of `pending` that are done.
    pub(super) progress: u32,
    /// The operation at hand is repeated after a sleep: its system call has been entered already.
    pub(super) resumed: bool,
    pub(super) random: Random,
    pub(super) last_cpu: CpuId,
    pub(super) since: Picos,
    /// What generic operations keep: slots, stopwatch, place.
    pub(super) more: super::objects::Own,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Box<Running>>,
    /// A task runs on this CPU (or is being switched to).
    busy: bool,
}

/// What others may read of a queue without its lock.
#[derive(Default)]
struct Published {
    nr: AtomicU32,
    tick_load: AtomicU32,
    /// An urgent task waits.
    urgent: AtomicBool,
}

enum Parked {
    /// Running or queued.
    Awake,
    /// Woken while awake: the next attempt to sleep fails.
    Woken,
    Asleep(Box<Running>),
}

/// All run queues of a machine.
pub(super) struct Scheduler<M: Machine> {
    queues: Vec<SpinLock<M, Queue>>,
    published: Vec<Published>,
    parked: Vec<Mutex<Parked>>,
    topology: Topology,
    rules: Rules,
    /// 1 + log2 CPUs.
    scale: u64,
    /// Time between two timer ticks, and ticks between two periodic balances.
    period: Picos,
    balance_ticks: u32,
}

/// Where a wake-up went.
pub(super) enum Woke {
    Local,
    Remote,
    /// The task was awake already.
    Awake,
}

impl<M: Machine> Scheduler<M> {
    pub(super) fn new(machine: &M, tasks: usize, rules: Rules) -> Self {
        let topology = machine.topology().clone();
        let queues = topology
            .cpu_ids()
            .map(|cpu| {
                let addr = machine.reserve(192, topology.node_of(cpu));
                SpinLock::new(machine.lock("rq->lock", addr), Queue::default())
            })
            .collect();
        Scheduler {
            queues,
            published: topology.cpu_ids().map(|_| Published::default()).collect(),
            parked: (0..tasks).map(|_| Mutex::new(Parked::Awake)).collect(),
            rules,
            scale: u64::from(1 + topology.cpus().ilog2()),
            period: rules.tick,
            balance_ticks: (BALANCE.0 / rules.tick.0).max(1) as u32,
            topology,
        }
    }

    /// Time between two timer ticks.
    pub(super) fn period(&self) -> Picos {
        self.period
    }

    /// Spreads new tasks over the CPUs, each to a least loaded one, ties by the seed (fork and exec balancing).
    pub(super) fn place(&mut self, tasks: Vec<Box<dyn Task>>, seed: u64, links: &Links) {
        let mut random = Random::new(seed, u64::MAX);
        let pinned: HashMap<u32, CpuId> = links.pinned.iter().copied().collect();
        for (id, body) in tasks.into_iter().enumerate() {
            let least = self.published.iter().map(|p| p.nr.load(Ordering::Relaxed)).min().unwrap_or(0);
            let ties: Vec<usize> =
                (0..self.published.len()).filter(|&c| self.published[c].nr.load(Ordering::Relaxed) == least).collect();
            let pinned = pinned.get(&(id as u32));
            let drawn = ties[random.below(ties.len() as u64) as usize];
            let cpu = pinned.map_or(drawn, |cpu| usize::from(cpu.0));
            let task = Running {
                id: id as u32,
                body,
                pending: None,
                progress: 0,
                resumed: false,
                random: Random::new(seed, (1 << 32) + id as u64),
                last_cpu: CpuId(cpu as u16),
                since: Picos(0),
                more: super::objects::Own::new(pinned.is_some(), links.urgent.contains(&(id as u32))),
            };
            self.queues[cpu].get_mut().waiting.push_back(Box::new(task));
            self.published[cpu].nr.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the next task of this CPU. `newly_idle`: if there is none, one from another CPU, cache-hot ones included.
    /// `None`: the CPU may sleep.
    pub(super) fn next(&self, cpu: &M::Cpu, newly_idle: bool) -> Option<Box<Running>> {
        let before = cpu.enter(Section::Scheduler);
        let result = self.pick(cpu, newly_idle);
        cpu.enter(before);
        result
    }

    fn pick(&self, cpu: &M::Cpu, newly_idle: bool) -> Option<Box<Running>> {
        let me = index(cpu);
        let mut queue = self.queues[me].lock(cpu);
        let task = queue.waiting.pop_front();
        queue.busy = task.is_some();
        if task.as_ref().is_some_and(|t| t.more.urgent) {
            let more = queue.waiting.front().is_some_and(|t| t.more.urgent);
            self.published[me].urgent.store(more, Ordering::Relaxed);
        }
        drop(queue);
        if task.is_none() && newly_idle {
            self.pull(cpu, true);
            let mut queue = self.queues[me].lock(cpu);
            let pulled = queue.waiting.pop_front();
            queue.busy = pulled.is_some();
            drop(queue);
            return pulled.map(|t| self.start(cpu, t));
        }
        task.map(|t| self.start(cpu, t))
    }

    fn start(&self, cpu: &M::Cpu, mut task: Box<Running>) -> Box<Running> {
        task.last_cpu = cpu.id();
        task.since = cpu.now();
        task
    }

    /// Moves one waiting task from the busiest queue into this CPU's: of the own node first, then of the machine. Cache-hot
    /// tasks only if `take_hot`. False if there was a busier queue and nothing in it could be moved.
    fn pull(&self, cpu: &M::Cpu, take_hot: bool) -> bool {
        cpu.interact();
        let me = index(cpu);
        // A CPU with nothing to do takes from any queue in which a task waits; a busy one evens out a difference of two.
        let need = self.nr(me) + 2;
        let near = |c: usize| self.topology.node_of(CpuId(c as u16)) == cpu.node();
        let busiest = |near_only: bool| {
            (0..self.queues.len())
                .filter(|&c| c != me && (!near_only || near(c)) && self.nr(c) >= need)
                .max_by_key(|&c| (self.nr(c), std::cmp::Reverse(c)))
        };
        let Some(from) = busiest(true).or_else(|| busiest(false)) else { return true };
        let now = cpu.now();
        let mut queue = self.queues[from].lock(cpu);
        let movable = |t: &Running| !t.more.pinned && (take_hot || now.0.saturating_sub(t.since.0) >= HOT.0);
        let Some(task) = queue.waiting.iter().position(|t| movable(t)).and_then(|at| queue.waiting.remove(at)) else {
            return false;
        };
        self.published[from].nr.fetch_sub(1, Ordering::Relaxed);
        drop(queue);
        let mut queue = self.queues[me].lock(cpu);
        queue.waiting.push_back(task);
        self.published[me].nr.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Puts a task to sleep; gives it back if it has been woken in the meantime.
    pub(super) fn sleep(&self, cpu: &M::Cpu, task: Box<Running>) -> Option<Box<Running>> {
        let before = cpu.enter(Section::Scheduler);
        let result = self.park(cpu, task);
        cpu.enter(before);
        result
    }

    fn park(&self, cpu: &M::Cpu, mut task: Box<Running>) -> Option<Box<Running>> {
        let me = index(cpu);
        let queue = self.queues[me].lock(cpu);
        task.since = cpu.now();
        let mut parked = self.parked[task.id as usize].lock().unwrap();
        if matches!(*parked, Parked::Woken) {
            *parked = Parked::Awake;
            return Some(task);
        }
        *parked = Parked::Asleep(task);
        self.published[me].nr.fetch_sub(1, Ordering::Relaxed);
        drop(parked);
        drop(queue);
        None
    }

    /// Lets the waiting tasks of this CPU run before `task`.
    pub(super) fn yield_to_others(&self, cpu: &M::Cpu, mut task: Box<Running>) {
        let me = index(cpu);
        task.since = cpu.now();
        self.queues[me].lock(cpu).waiting.push_back(task);
    }

    /// True if an urgent task waits on this CPU. Asked at a point of interaction.
    pub(super) fn interrupted(&self, cpu: &M::Cpu) -> bool {
        self.published[index(cpu)].urgent.load(Ordering::Relaxed)
    }

    /// Lets the urgent tasks of this CPU run; `task` goes on after them.
    pub(super) fn step_aside(&self, cpu: &M::Cpu, mut task: Box<Running>) {
        task.since = cpu.now();
        let mut queue = self.queues[index(cpu)].lock(cpu);
        let at = queue.waiting.iter().take_while(|t| t.more.urgent).count();
        queue.waiting.insert(at, task);
    }

    /// A task is over: it leaves the machine.
    pub(super) fn exit(&self, cpu: &M::Cpu, task: Box<Running>) {
        let before = cpu.enter(Section::Scheduler);
        let me = index(cpu);
        drop(self.queues[me].lock(cpu));
        self.published[me].nr.fetch_sub(1, Ordering::Relaxed);
        cpu.enter(before);
        drop(task);
    }

    /// All tasks, wherever they are, in order of their numbers. When no CPU runs.
    pub(super) fn drain(&mut self) -> Vec<Running> {
        let queued = self.queues.iter_mut().flat_map(|q| std::mem::take(&mut q.get_mut().waiting));
        let mut all: Vec<Running> = queued.map(|task| *task).collect();
        for parked in &mut self.parked {
            if let Parked::Asleep(task) = std::mem::replace(parked.get_mut().unwrap(), Parked::Awake) {
                all.push(*task);
            }
        }
        all.sort_by_key(|t| t.id);
        all
    }

    /// Wakes a task (kernel: try_to_wake_up). `sync`: the waker says that it will soon sleep, whatever the release's sockets
    /// say.
    pub(super) fn wake(&self, cpu: &M::Cpu, id: u32, sync: bool) -> Woke {
        let before = cpu.enter(Section::Scheduler);
        let result = self.wake_task(cpu, id, sync || self.rules.sync);
        cpu.enter(before);
        result
    }

    fn wake_task(&self, cpu: &M::Cpu, id: u32, sync: bool) -> Woke {
        cpu.spend(Event::Wake);
        cpu.interact();
        let task = {
            let mut parked = self.parked[id as usize].lock().unwrap();
            match std::mem::replace(&mut *parked, Parked::Awake) {
                Parked::Asleep(task) => task,
                _ => {
                    *parked = Parked::Woken;
                    return Woke::Awake;
                }
            }
        };
        let prev = usize::from(task.last_cpu.0);
        let target = if task.more.pinned { prev } else { self.select(cpu, prev, sync) };
        let mut queue = self.queues[target].lock(cpu);
        if task.more.urgent {
            let at = queue.waiting.iter().take_while(|t| t.more.urgent).count();
            queue.waiting.insert(at, task);
            self.published[target].urgent.store(true, Ordering::Relaxed);
        } else {
            queue.waiting.push_back(task);
        }
        self.published[target].nr.fetch_add(1, Ordering::Relaxed);
        let busy = queue.busy;
        drop(queue);
        if target == index(cpu) {
            return Woke::Local;
        }
        if !busy {
            cpu.kick(CpuId(target as u16));
        }
        Woke::Remote
    }

    /// CPU for a woken task: its previous one, or the waker's if the load there allows it and both are of one node (the
    /// domain above has no affine wake-ups), then perhaps an idle CPU near that one.
    fn select(&self, cpu: &M::Cpu, prev: usize, sync: bool) -> usize {
        let this = index(cpu);
        if prev == this && !self.rules.idle_sibling {
            return this;
        }
        let mut target = prev;
        if prev != this && self.topology.node_of(CpuId(prev as u16)) == cpu.node() {
            let load = self.load(prev, u32::min);
            let own = if sync { WEIGHT } else { 0 };
            let here = self.load(this, u32::max).saturating_sub(own);
            let average = self.load(this, |now, _| now).checked_div(self.nr(this)).unwrap_or(WEIGHT).max(WEIGHT);
            if (here <= load && here + load <= average) || 100 * (here + WEIGHT) <= 112 * load {
                target = this;
            }
        }
        if self.rules.idle_sibling { self.idle_sibling(target, prev) } else { self.wake_idle(target) }
    }

    /// If `target` runs exactly one task: an idle CPU on its second-level cache (on AMD of that time no two CPUs share a
    /// cache as the kernel knows it).
    fn wake_idle(&self, target: usize) -> usize {
        let l2 = |c: usize| self.topology.place(CpuId(c as u16)).l2;
        let idle = |c: &usize| self.nr(*c) == 0 && l2(*c) == l2(target);
        if self.nr(target) == 1 { (0..self.queues.len()).find(idle).unwrap_or(target) } else { target }
    }

    /// `target` if it is idle; the previous CPU if that is idle and near; any idle CPU on the same last-level cache, counted
    /// on from `target`.
    fn idle_sibling(&self, target: usize, prev: usize) -> usize {
        let llc = |c: usize| self.topology.place(CpuId(c as u16)).llc;
        let idle = |c: &usize| self.nr(*c) == 0 && llc(*c) == llc(target);
        let n = self.queues.len();
        [target, prev].into_iter().chain((1..n).map(|i| (target + i) % n)).find(idle).unwrap_or(target)
    }

    fn nr(&self, cpu: usize) -> u32 {
        self.published[cpu].nr.load(Ordering::Relaxed)
    }
    /// The load of a CPU now and at its last tick, put together by `pick` (kernel: source_load, target_load).
    fn load(&self, cpu: usize, pick: impl Fn(u32, u32) -> u32) -> u32 {
        pick(self.nr(cpu) * WEIGHT, self.published[cpu].tick_load.load(Ordering::Relaxed))
    }

    /// A timer tick: publishes the load, balances from time to time (hot tasks only after some failures). True if the
    /// running task's slice is over.
    pub(super) fn tick(&self, cpu: &M::Cpu, state: &mut TickState, running: Option<&Running>) -> bool {
        let before = cpu.enter(Section::Scheduler);
        let result = self.on_tick(cpu, state, running);
        cpu.enter(before);
        result
    }

    fn on_tick(&self, cpu: &M::Cpu, state: &mut TickState, running: Option<&Running>) -> bool {
        cpu.interact();
        let me = index(cpu);
        self.published[me].tick_load.store(self.nr(me) * WEIGHT, Ordering::Relaxed);
        state.ticks += 1;
        if running.is_none() || state.ticks.is_multiple_of(self.balance_ticks) {
            let moved = self.pull(cpu, state.failed > NICE_TRIES);
            state.failed = if moved { 0 } else { state.failed + 1 };
        }
        let waiting = u64::from(self.nr(me));
        let slice = self.scale * (self.rules.latency / waiting.max(1)).max(self.rules.granularity);
        running.is_some_and(|t| waiting > 1 && cpu.now().0.saturating_sub(t.since.0) >= slice)
    }
}

/// What a CPU remembers between ticks.
#[derive(Default)]
pub(super) struct TickState {
    ticks: u32,
    failed: u32,
}

fn index<C: Cpu>(cpu: &C) -> usize {
    usize::from(cpu.id().0)
}

#[cfg(test)]
#[path = "sched_tests.rs"]
mod tests;
