//! The executor: interprets a workload's operations on any machine with any allocator. There is one; `boot` is part of
//! the machine.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::alloc::{SlabAllocator, periodic};
use crate::machine::sim::Cancel;
use crate::machine::{Cpu, Event, Machine, PerCpu, Section, Wakeup};
use crate::page::{self, Pages};
use crate::spec::CacheId;
use crate::units::Picos;
use crate::workload::{Op, Plan};

use super::net::{Context, Net, NetCounts, Received};
use super::sched::{Rules, Running, Scheduler, TickState};
use super::timeline::{Sample, Timeline};

/// What one CPU counts during the measured interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuCounts {
    pub(super) ops: u64,
    pub(super) bytes: u64,
    pub(super) switches: u64,
    pub(super) net: NetCounts,
    /// Samples of pages held by the slab layer: the highest, the last.
    pub(super) pages_peak: u64,
    pub(super) pages_last: u64,
}

/// The totals of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub(super) cpu: CpuCounts,
    pub(super) elapsed: f64,
    pub(super) cancelled: bool,
    pub(super) timeline: Timeline,
}

/// One workload on one machine with one allocator.
pub(super) struct Executor<'a, 'p, M: Machine, A: SlabAllocator<'p, M>> {
    machine: &'p M,
    alloc: &'a A,
    pages: &'p Pages<'p, M>,
    sched: Scheduler<M>,
    net: Net<M>,
    counts: PerCpu<M, (CpuCounts, Timeline)>,
    warm: Picos,
    end: Picos,
    cancel: &'a Cancel,
}

impl<'a, 'p, M: Machine, A: SlabAllocator<'p, M>> Executor<'a, 'p, M, A> {
    /// Places the plan's tasks. `caches` are those of `Plan::caches`, in order.
    pub(super) fn new(
        alloc: &'a A,
        plan: Plan,
        caches: &[CacheId],
        seed: u64,
        simulated: bool,
        rules: Rules,
        cancel: &'a Cancel,
    ) -> Self {
        let pages = alloc.pages();
        let machine = pages.machine();
        let mut sched = Scheduler::new(machine, plan.tasks.len(), rules);
        let net = Net::new(machine, &plan, caches, simulated);
        let warm = Picos::from_secs_f64(plan.warmup_s);
        let end = Picos(warm.0 + Picos::from_secs_f64(plan.seconds).0);
        sched.place(plan.tasks, seed);
        Executor {
            machine,
            alloc,
            pages,
            sched,
            net,
            counts: PerCpu::new(machine, |_| Default::default()),
            warm,
            end,
            cancel,
        }
    }

    /// Runs to the end of the measured interval. What is under way then is left for [`Leftover::tear_down`].
    pub(super) fn run(mut self) -> (Totals, Leftover<M>) {
        // The boot took time, too: a measurement begins after it.
        let booted = latest(self.machine);
        if self.warm < booted {
            self.end = Picos(self.end.0 + booted.0 - self.warm.0);
            self.warm = booted;
        }
        self.machine.measure(self.warm, self.end);
        self.machine.boot(|cpu| self.cpu_loop(cpu));
        let mut totals = Totals { elapsed: (self.end.0 - self.warm.0) as f64 / 1e12, ..Totals::default() };
        for (cpu, (counts, timeline)) in self.counts.iter_mut() {
            totals.cpu.add(counts);
            if cpu.0 == 0 {
                totals.timeline = std::mem::take(timeline);
            }
        }
        totals.cancelled = self.cancel.is_cancelled();
        (totals, Leftover { net: self.net, sched: self.sched })
    }

    fn context<'c>(&'c self, cpu: &'c M::Cpu, counts: &'c mut NetCounts) -> Context<'c, 'p, M, A> {
        Context { cpu, alloc: self.alloc, pages: self.pages, sched: &self.sched, counts }
    }

    /// One CPU: runs its tasks, pulls others when it has none, sleeps when there is none to pull.
    fn cpu_loop(&self, cpu: &M::Cpu) {
        let mut ticks = TickState::default();
        // Ticks of the CPUs are spread over the period, as a kernel's are (by CPU number).
        let tick = self.sched.period().0;
        let mut next_tick = Picos(cpu.now().0 + tick + tick * u64::from(cpu.id().0) / 256);
        let mut next_trim = self.alloc.period().map(|_| periodic::first(cpu.id()));
        let mut next_drain = periodic::first(cpu.id());
        let mut warm = false;
        let (mut counts, mut timeline) = (CpuCounts::default(), Timeline::default());
        let mut last_ran = u32::MAX;
        // True until the CPU has slept once without a task: only then is it no longer *newly* idle.
        let mut newly_idle = true;
        let mut current: Option<Box<Running>> = None;
        loop {
            cpu.serve();
            let now = cpu.now();
            // First: a step may be longer than the whole window, and what it did does not count.
            if !warm && now >= self.warm {
                warm = true;
                self.reset(cpu, &mut counts);
            }
            if now >= self.end || self.cancel.is_cancelled() {
                break;
            }
            if now >= next_tick {
                while next_tick <= now {
                    next_tick = Picos(next_tick.0 + tick);
                }
                self.sample(cpu, &mut counts);
                self.picture(cpu, &mut timeline);
                // Timers fire at ticks; periodic work of allocator and pages is nobody's task.
                if now >= next_drain {
                    let before = cpu.enter(Section::Pages);
                    self.pages.tick(cpu);
                    cpu.enter(before);
                    next_drain = periodic::next(cpu.id(), cpu.now(), page::TICK);
                }
                if next_trim.is_some_and(|due| now >= due) {
                    let before = cpu.enter(Section::Slow);
                    self.alloc.trim(cpu);
                    cpu.enter(before);
                    next_trim = self.alloc.period().map(|period| periodic::next(cpu.id(), cpu.now(), period));
                }
                if self.sched.tick(cpu, &mut ticks, current.as_deref()) {
                    self.sched.yield_to_others(cpu, current.take().expect("only a running task is preempted"));
                }
            }
            let Some(task) = current.take().or_else(|| self.sched.next(cpu, newly_idle)) else {
                newly_idle = false;
                let until = next_tick.min(self.end);
                last_ran = u32::MAX;
                if cpu.idle(Some(if warm { until } else { until.min(self.warm) })) == Wakeup::Quiet {
                    break;
                }
                continue;
            };
            newly_idle = true;
            if last_ran != task.id {
                let before = cpu.enter(Section::Scheduler);
                cpu.spend(Event::ContextSwitch);
                cpu.enter(before);
                counts.switches += 1;
                last_ran = task.id;
            }
            let stop = next_tick.min(self.end);
            current = self.run_task(cpu, task, &mut counts, if warm { stop } else { stop.min(self.warm) });
        }
        if let Some(task) = current {
            self.sched.yield_to_others(cpu, task);
        }
        self.sample(cpu, &mut counts);
        self.picture(cpu, &mut timeline);
        self.counts.with(cpu, |c| *c = (counts, timeline));
    }

    /// Lets a task run until it sleeps (`None`) or `stop` has come.
    fn run_task(
        &self,
        cpu: &M::Cpu,
        mut task: Box<Running>,
        counts: &mut CpuCounts,
        stop: Picos,
    ) -> Option<Box<Running>> {
        loop {
            task.resumed = task.pending.is_some();
            let op = task.pending.take().unwrap_or_else(|| task.body.step());
            match op {
                Op::User { lines } => cpu.footprint(lines),
                Op::TcpSend { sock, bytes } => {
                    let mut done = task.progress;
                    if self.net.send(&mut self.context(cpu, &mut counts.net), sock, bytes, &mut done, task.resumed) {
                        task.progress = 0;
                    } else {
                        // Memory is out: as in the kernel the sender waits and tries again.
                        task.progress = done;
                        task.pending = Some(op);
                        return Some(task);
                    }
                }
                Op::TcpRecv { sock, bytes, end } => {
                    match self.net.recv(&mut self.context(cpu, &mut counts.net), &mut task, sock, bytes, end) {
                        Received::Done => task.progress = 0,
                        Received::Wait => {
                            task.pending = Some(op);
                            task = self.sched.sleep(cpu, task)?;
                        }
                    }
                }
                Op::Done { bytes } => {
                    counts.ops += 1;
                    counts.bytes += bytes;
                }
            }
            if cpu.now() >= stop {
                return Some(task);
            }
        }
    }

    /// The warm-up is over on this CPU: all its counts start from zero.
    fn reset(&self, cpu: &M::Cpu, counts: &mut CpuCounts) {
        *counts = CpuCounts::default();
        self.alloc.reset_counters(cpu);
        self.pages.reset_stats(cpu);
        if cpu.id().0 == 0 {
            self.machine.reset_report(cpu);
        }
    }

    /// Pages the slab layer holds.
    fn slab_pages(&self) -> u64 {
        self.pages.lent().saturating_sub(self.net.frag_pages())
    }

    /// Adds what memory looks like now to the timeline.
    fn picture(&self, cpu: &M::Cpu, timeline: &mut Timeline) {
        if cpu.id().0 == 0 {
            timeline.tick(|| Sample { at: cpu.now(), slab_pages: self.slab_pages(), free: self.pages.free_now() });
        }
    }

    /// Looks at how many pages the slab layer holds.
    fn sample(&self, cpu: &M::Cpu, counts: &mut CpuCounts) {
        if cpu.id().0 == 0 {
            counts.pages_last = self.slab_pages();
            counts.pages_peak = counts.pages_peak.max(counts.pages_last);
        }
    }
}

/// The latest clock of all CPUs.
pub(super) fn latest<M: Machine>(machine: &M) -> Picos {
    let latest = AtomicU64::new(0);
    machine.boot(|cpu| {
        latest.fetch_max(cpu.now().0, Ordering::Relaxed);
    });
    Picos(latest.into_inner())
}

/// What is under way when a measurement ends: packets, and the tasks that would have handled them.
pub(super) struct Leftover<M: Machine> {
    net: Net<M>,
    sched: Scheduler<M>,
}

impl<M: Machine> Leftover<M> {
    /// Frees it, so that nothing is leaked. Outside the measurement: no count shows it.
    pub(super) fn tear_down<'p, A: SlabAllocator<'p, M>>(self, alloc: &A)
    where
        M: 'p,
    {
        let pages = alloc.pages();
        pages.machine().boot(|cpu| {
            pages.keep_stats(cpu);
            if cpu.id().0 == 0 {
                let mut counts = NetCounts::default();
                self.net.tear_down(&mut Context { cpu, alloc, pages, sched: &self.sched, counts: &mut counts });
            }
            while cpu.idle(None) != Wakeup::Quiet {}
        });
    }
}

impl CpuCounts {
    fn add(&mut self, other: &CpuCounts) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.switches += other.switches;
        self.pages_peak += other.pages_peak;
        self.pages_last += other.pages_last;
        self.net.add(&other.net);
    }
}
