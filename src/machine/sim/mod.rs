//! `Sim`: a multi-socket machine in virtual time. CPUs are fibers, resumed in order of their clocks.
//!
//! Glossary. *World*: the state of one simulated machine. *Clock*: virtual picoseconds of one CPU. *Point of
//! interaction*: where a CPU waits until it is the earliest (machine-model.md §6). *Run-ahead*: between two such points
//! a CPU runs alone past the others' clocks, which nobody can see. *Line directory*: who holds each cache line.
//! Order of everything visible is (time, sequence number); randomness comes from the seed.

mod clock;
mod coherence;
mod cost;
mod effort;
mod fiber;
mod governor;
mod lock;
mod lru;
mod tally;
mod time;

pub use cost::CostModel;
pub use fiber::SimCpu;
pub use lock::{LockKind, SimLock};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::machine::percpu::Mailboxes;
use crate::machine::presets::Machinery;
use crate::machine::{Addr, Effort, Machine, Report};
use crate::topology::{Distance, Topology};
use crate::units::{CpuId, LINE, NodeId, PAGE_SIZE, Picos, round_up};

pub use tally::Tally;

use clock::EventQueue;
use coherence::Coherence;
use effort::Watch;
use lock::LockTable;
use time::{Account, Part, Structure};

/// Simulated address space past the frames for structures whose fields live in Rust.
const METADATA_BYTES: u64 = 256 << 20;

/// Randomness and order of a simulated run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Seed of the machine's streams: ties between lock waiters, jitter.
    pub seed: u64,
    /// Adds 0..jitter picoseconds at each point of interaction: every seed is another schedule (for tests).
    pub jitter_ps: u64,
    /// Suspends at every point of interaction, even when the CPU is the earliest (for the run-ahead test).
    pub always_suspend: bool,
}

/// A simulated machine.
pub struct Sim {
    topology: Topology,
    world: fiber::WorldCell,
    calls: Mailboxes<SimCpu>,
    next_reserved: AtomicU64,
    reserved_end: u64,
    cancel: Cancel,
}

/// The state of one simulated machine. Nothing in it can suspend a fiber.
struct World {
    cost: CostModel,
    governor: Option<governor::Governor>,
    /// The other thread of each CPU's core, if the machine uses it.
    sibling: Vec<Option<usize>>,
    /// Length of each CPU's last sleep.
    last_sleep: Vec<u64>,
    clocks: Vec<u64>,
    queue: EventQueue,
    memory: Coherence,
    locks: LockTable,
    idle: Vec<bool>,
    kicked: Vec<bool>,
    wake_at: Vec<u64>,
    reason: Vec<super::Wakeup>,
    alarm: u64,
    finished: Vec<bool>,
    /// CPUs that have finished and sleep until a call comes, or the boot ends.
    lingers: Vec<bool>,
    schedule: Schedule,
    draws: Vec<u64>,
    trace: u64,
    account: Account,
    /// Counts what operations do, once somebody has asked.
    watch: Option<Box<Watch>>,
    tally: Tally,
    /// First byte of the frames, and the byte after them.
    frames: (u64, u64),
    inversions: u64,
    max_inversion: u64,
    /// Set when a fiber has panicked: nothing suspends any more, so that the others can unwind.
    dead: bool,
    cancel: Cancel,
}

impl Sim {
    /// A machine of this hardware, at virtual time 0.
    pub fn new(hardware: &Machinery, schedule: Schedule) -> Result<Sim, Error> {
        let topology = hardware.topology();
        let cost = CostModel::new(hardware)?;
        let arena: u64 = topology.node_ids().map(|n| topology.node_bytes(n)).sum();
        let frames_end = arena + arena / PAGE_SIZE * LINE;
        let reserved_end = frames_end + METADATA_BYTES;
        let cpus = topology.cpus();
        let sibling = topology
            .cpu_ids()
            .map(|c| {
                let shares = |o: &CpuId| *o != c && topology.place(*o).core == topology.place(c).core;
                topology.cpu_ids().find(shares).map(|o| usize::from(o.0))
            })
            .collect();
        let governor = governor::Governor::new(hardware, cpus)?;
        let memory = Coherence::new(&topology, &cost, arena, reserved_end)
            .map_err(|e| hardware.memory_refused(&format!("less: {e}")))?;
        let world = World {
            clocks: vec![0; cpus],
            queue: EventQueue::default(),
            memory,
            locks: LockTable::new(cpus),
            idle: vec![false; cpus],
            kicked: vec![false; cpus],
            wake_at: vec![u64::MAX; cpus],
            reason: vec![super::Wakeup::Quiet; cpus],
            alarm: u64::MAX,
            finished: vec![false; cpus],
            lingers: vec![false; cpus],
            schedule,
            draws: vec![0; cpus],
            trace: 0xcbf2_9ce4_8422_2325,
            account: Account::new(cpus),
            watch: None,
            tally: Tally::default(),
            frames: (arena, frames_end),
            inversions: 0,
            max_inversion: 0,
            dead: false,
            cancel: Cancel::default(),
            cost,
            governor,
            sibling,
            last_sleep: vec![0; cpus],
        };
        Ok(Sim {
            calls: Mailboxes::new(cpus),
            world: fiber::WorldCell::new(world),
            topology,
            next_reserved: AtomicU64::new(frames_end),
            reserved_end,
            cancel: Cancel::default(),
        })
    }

    /// The same machine with every cost zero.
    #[cfg(test)]
    pub fn free_of_charge(mut self) -> Sim {
        let world = self.world.get_mut();
        world.cost = world.cost.clone().free_of_charge();
        self
    }

    /// The same machine, which stops when `cancel` says so.
    pub fn heeding(mut self, cancel: &Cancel) -> Sim {
        self.world.get_mut().cancel = cancel.clone();
        Sim { cancel: cancel.clone(), ..self }
    }

    /// Latest clock of all CPUs, in picoseconds.
    pub fn elapsed(&mut self) -> u64 {
        self.world.get_mut().clocks.iter().copied().max().unwrap_or(0)
    }
}

impl Machine for Sim {
    type Cpu = SimCpu;
    type Lock = SimLock;

    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn reserve(&self, bytes: u64, node: NodeId) -> Addr {
        let size = round_up(bytes.max(1), LINE);
        let at = self.next_reserved.fetch_add(size, Ordering::Relaxed);
        assert!(at + size <= self.reserved_end, "the metadata space of {METADATA_BYTES} bytes is used up");
        self.world.at_rest(|w| w.memory.set_home(Addr(at), size, node));
        Addr(at)
    }

    fn cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    fn room(&self) -> u64 {
        self.reserved_end - self.next_reserved.load(Ordering::Relaxed)
    }

    fn lock(&self, name: &'static str, addr: Addr) -> SimLock {
        SimLock::new(self.world.at_rest(|w| w.locks.add(name, w.cost.locks, addr)))
    }

    fn report(&mut self) -> Report {
        let w = self.world.get_mut();
        Report {
            locks: w.locks.report(&w.account),
            waits: w.locks.waits(),
            time: w.account.parts(&w.locks.classes(), &w.clocks),
            latencies: w.account.latencies(),
            inversions: w.inversions,
            max_inversion_ps: w.max_inversion,
            idle_ps: w.account.idle(),
            trace: w.trace,
            accesses: w.tally.accesses.iter().sum(),
            beyond_l1: w.memory.beyond_l1,
            simulated: true,
            oversubscribed: false,
        }
    }

    fn measure(&self, start: Picos, end: Picos) {
        self.world.at_rest(|w| {
            w.account.measure(start.0, end.0, &w.clocks);
            w.locks.forget_waits();
        });
    }

    fn reset_report(&self, cpu: &SimCpu) {
        cpu.with(|w| w.locks.reset());
    }

    fn effort(&self) -> Option<Effort> {
        self.world.at_rest(|w| {
            let seen = w.watch.take().map(|watch| watch.sum(|addr| w.structure(addr) as usize));
            w.watch = Some(Box::default());
            Some(seen.unwrap_or_default())
        })
    }

    fn boot(&self, body: impl Fn(&SimCpu) + Sync) {
        fiber::run(&self.world, &self.calls, &self.topology, &body);
    }
}

impl World {
    /// Moves the clock of `cpu` on by `ps`, spent on `part`.
    #[inline]
    fn advance(&mut self, cpu: usize, ps: u64, part: Part) {
        let from = self.clocks[cpu];
        self.clocks[cpu] = from + ps;
        self.account.book(cpu, part, from, from + ps);
    }

    /// Adds `ps` of the section that `cpu` is in.
    #[inline]
    fn spend(&mut self, cpu: usize, ps: u64) {
        let from = self.clocks[cpu];
        self.clocks[cpu] = from + ps;
        self.account.run(cpu, from, from + ps);
    }

    /// The figures that hold for `cpu` now.
    #[inline]
    fn cost_of(&self, cpu: usize) -> &CostModel {
        figures(&self.governor, &self.cost, cpu)
    }

    /// Adds `ps` of work that the core's other thread slows down while it is busy too (smt_speed).
    #[inline]
    fn work(&mut self, cpu: usize, ps: u64) {
        let shared = self.sibling[cpu].is_some_and(|s| !self.idle[s] && !self.finished[s]);
        self.spend(cpu, if shared { (ps << 10) / self.cost.smt_x1024 } else { ps });
    }

    /// Charges one access of `cpu` to the line of `addr`.
    #[inline]
    fn touch(&mut self, cpu: usize, addr: Addr, access: super::Access) {
        let ps = self.access(cpu, addr, access);
        let moved = std::mem::take(&mut self.memory.moved).then_some(addr.line() as usize);
        self.spend_on_line(cpu, ps, moved);
    }

    /// Charges one access to `part`, whether a line moved or not.
    fn touch_for(&mut self, cpu: usize, addr: Addr, access: super::Access, part: Part) {
        let ps = self.access(cpu, addr, access);
        self.memory.moved = false;
        self.advance(cpu, ps, part);
    }

    /// Accesses the line of `addr`, and says what that costs.
    #[inline]
    fn access(&mut self, cpu: usize, addr: Addr, access: super::Access) -> u64 {
        if let Some(watch) = &mut self.watch
            && self.account.under_way(cpu)
        {
            watch.touched(addr, access);
        }
        self.tally.accesses[access as usize] += 1;
        let cost = figures(&self.governor, &self.cost, cpu);
        self.memory.access(cost, cpu, addr.line() as usize, access, self.clocks[cpu])
    }

    /// Adds the `ps` of an access: a transfer if a line `moved`, time of the section otherwise.
    #[inline]
    fn spend_on_line(&mut self, cpu: usize, ps: u64, moved: Option<usize>) {
        match moved {
            Some(line) => self.advance(cpu, ps, Part::Transfer(self.structure(Addr(line as u64 * LINE)))),
            None => self.spend(cpu, ps),
        }
    }

    fn structure(&self, addr: Addr) -> Structure {
        if addr.0 < self.frames.0 {
            Structure::Objects
        } else if addr.0 < self.frames.1 {
            Structure::Frames
        } else {
            Structure::Metadata
        }
    }

    /// Puts a CPU that waited for `part` back into the queue at `time` (never before its own clock).
    fn resume_at(&mut self, cpu: usize, time: u64, part: Part) {
        let wait = time.saturating_sub(self.clocks[cpu]);
        self.advance(cpu, wait, part);
        self.queue.push(self.clocks[cpu], cpu);
    }

    /// A number below `below` from the stream of `cpu` (SplitMix64 over seed, CPU and a counter).
    fn random(&mut self, cpu: usize, below: u64) -> u64 {
        self.draws[cpu] += 1;
        let stream = self.schedule.seed ^ (cpu as u64).wrapping_mul(0xa076_1d64_78bd_642f);
        let mut z = stream.wrapping_add(self.draws[cpu].wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * u128::from(below)) >> 64) as u64
    }

    /// The next CPU to run, if any: fires the alarm, and declares the run quiet when nobody can act any more.
    fn next(&mut self) -> Option<usize> {
        loop {
            if self.queue.head() > self.alarm {
                self.fire_alarm();
                continue;
            }
            if let Some(cpu) = self.queue.pop() {
                return Some(cpu);
            }
            if self.finished.iter().all(|f| *f) {
                return None;
            }
            let stuck: Vec<usize> = (0..self.idle.len()).filter(|&c| !self.finished[c] && !self.idle[c]).collect();
            assert!(stuck.is_empty(), "deadlock: CPUs {stuck:?} wait for locks and nobody runs\n{}", self.locks.held());
            for cpu in 0..self.idle.len() {
                if self.idle[cpu] {
                    self.wake(cpu, self.clocks[cpu], super::Wakeup::Quiet);
                }
            }
        }
    }

    fn fire_alarm(&mut self) {
        let due = self.alarm;
        self.alarm = u64::MAX;
        for cpu in 0..self.idle.len() {
            if self.idle[cpu] && self.wake_at[cpu] <= due {
                let exit = self.cost.idle.extra(self.last_sleep[cpu]);
                self.wake(cpu, due + exit, super::Wakeup::Time);
            } else if self.idle[cpu] {
                self.alarm = self.alarm.min(self.wake_at[cpu]);
            }
        }
    }

    /// Ends the sleep of an idle CPU at `time`.
    fn wake(&mut self, cpu: usize, time: u64, reason: super::Wakeup) {
        self.last_sleep[cpu] = time.saturating_sub(self.clocks[cpu]);
        if let Some(governor) = &mut self.governor {
            governor.samples.slept(cpu, self.last_sleep[cpu]);
        }
        self.idle[cpu] = false;
        self.wake_at[cpu] = u64::MAX;
        self.reason[cpu] = reason;
        self.resume_at(cpu, time, Part::Idle);
    }

    fn distance(&self, a: usize, b: usize) -> Distance {
        self.memory.distance(a, b)
    }
}

/// The figures that hold for `cpu`: those of its clock now under a governor, the full ones without.
#[inline]
fn figures<'a>(governor: &'a Option<governor::Governor>, full: &'a CostModel, cpu: usize) -> &'a CostModel {
    governor.as_ref().and_then(|g| g.slow(cpu)).unwrap_or(full)
}

/// A flag that stops a run from outside (Ctrl-C); its clones are the same flag.
#[derive(Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the run to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
    /// True once asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
