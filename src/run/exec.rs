//! The executor: interprets a workload's operations on any machine with any allocator. There is one; `boot` is part of
//! the machine.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::alloc::{CacheInfo, SlabAllocator, periodic};
use crate::machine::sim::Cancel;
use crate::machine::{Cpu, Event, Machine, PerCpu, Section, Wakeup};
use crate::page::{self, Pages};
use crate::spec::CacheId;
use crate::units::Picos;
use crate::workload::{LapSpec, Op, Plan};

use super::net::{self, Context, Net, NetCounts};
use super::objects::{self, Local, ObjectCounts, Objects, Step};
use super::sched::{Rules, Running, Scheduler, TickState};
use super::timeline::{Sample, Timeline};

/// What one CPU counts during the measured interval.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuCounts {
    pub(super) ops: u64,
    pub(super) bytes: u64,
    /// The same per interval of the measured time.
    pub(super) series: Vec<(u64, u64)>,
    pub(super) switches: u64,
    pub(super) net: NetCounts,
    pub(super) objects: ObjectCounts,
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
    /// What was timed: time in picoseconds, operations.
    pub(super) laps: Vec<(LapSpec, u64, u64)>,
    /// Clock of the machine, for laps in cycles.
    pub(super) ghz: Option<f64>,
    /// The caches as the run left them, before what tasks still held was freed; empty if nobody asked.
    pub(super) as_left: Vec<CacheInfo>,
    /// kB in use that no slab allocator gave out.
    pub(super) other_kb: u64,
}

/// One workload on one machine with one allocator.
pub(super) struct Executor<'a, 'p, M: Machine, A: SlabAllocator<'p, M>> {
    machine: &'p M,
    alloc: &'a A,
    pages: &'p Pages<'p, M>,
    sched: Scheduler<M>,
    net: Net<M>,
    objects: Objects<M>,
    counts: PerCpu<M, (CpuCounts, Timeline, Local)>,
    warm: Picos,
    end: Picos,
    /// Length of an interval of the series.
    interval: Picos,
    /// What it costs to go from one task to another.
    switch: Event,
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
        // The boot took time, too: a measurement begins after it.
        let warm = Picos::from_secs_f64(plan.warmup_s).max(latest(machine));
        let end = Picos(warm.0 + Picos::from_secs_f64(plan.seconds).0);
        let objects = Objects::new(machine, &plan, caches, simulated);
        let interval = Picos(Picos::from_secs_f64(plan.interval_s).0.max(1));
        let switch = if plan.links.threads { Event::ThreadSwitch } else { Event::ContextSwitch };
        sched.place(plan.tasks, seed, &plan.links);
        Executor {
            machine,
            alloc,
            pages,
            sched,
            net,
            objects,
            counts: PerCpu::new(machine, |_| Default::default()),
            warm,
            end,
            interval,
            switch,
            cancel,
        }
    }

    /// Start and end of what is measured.
    pub(super) fn window(&self) -> (Picos, Picos) {
        (self.warm, self.end)
    }

    /// Runs to the end of the measured interval, or until the last task is over. What is under way then is left for
    /// [`Rest::tear_down`].
    pub(super) fn run(mut self) -> (Totals, Rest<'p, M>) {
        self.machine.measure(self.warm, self.end);
        self.machine.boot(|cpu| self.cpu_loop(cpu));
        let end = self.end.min(self.objects.over());
        let mut totals = Totals { elapsed: end.0.saturating_sub(self.warm.0) as f64 / 1e12, ..Totals::default() };
        let mut locals = Vec::new();
        for (cpu, (counts, timeline, local)) in self.counts.iter_mut() {
            totals.cpu.add(counts);
            totals.cpu.objects.add(&local.counts);
            if cpu.0 == 0 {
                totals.timeline = std::mem::take(timeline);
            }
            locals.push(local);
        }
        totals.laps = self.objects.laps(&locals);
        totals.cancelled = self.cancel.is_cancelled();
        let deferred = locals.into_iter().map(objects::deferred_of).collect();
        let tasks = self.sched.drain();
        let (machine, pages, held) = (self.machine, self.pages, totals.cpu.net.held);
        (
            totals,
            Rest { held, machine, pages, sched: self.sched, net: self.net, objects: self.objects, tasks, deferred },
        )
    }

    fn context<'c>(&'c self, cpu: &'c M::Cpu, counts: &'c mut NetCounts) -> Context<'c, 'p, M, A> {
        Context { cpu, alloc: self.alloc, pages: self.pages, sched: &self.sched, counts }
    }

    fn generic<'c>(&'c self, cpu: &'c M::Cpu, local: &'c mut Local) -> objects::Context<'c, 'p, M, A> {
        objects::Context { cpu, alloc: self.alloc, pages: self.pages, sched: &self.sched, local }
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
        let (mut counts, mut timeline, mut local) = (CpuCounts::default(), Timeline::default(), self.objects.local());
        let mut last_ran = u32::MAX;
        // True until the CPU has slept once without a task: only then is it no longer *newly* idle.
        let mut newly_idle = true;
        let mut current: Option<Box<Running>> = None;
        let card = self.net.interrupts(cpu.id());
        let mut next_irq = card.map(|(_, period)| period);
        loop {
            cpu.serve();
            let now = cpu.now();
            // First: a step may be longer than the whole window, and what it did does not count.
            if !warm && now >= self.warm {
                warm = true;
                self.reset(cpu, &mut counts);
                local.counts = ObjectCounts::default();
            }
            if now >= self.end || self.cancel.is_cancelled() {
                break;
            }
            let over = self.objects.over();
            if over < Picos(u64::MAX) {
                if now >= over {
                    break;
                }
                cpu.idle(Some(over));
                continue;
            }
            if local.next_timer().is_some_and(|due| now >= due) {
                self.objects.timers(&mut self.generic(cpu, &mut local));
            }
            if let (Some((queue, period)), Some(due)) = (card, next_irq)
                && now >= due
            {
                self.net.interrupt(&mut self.context(cpu, &mut counts.net), queue);
                next_irq = Some(Picos((cpu.now().0 / period.0 + 1) * period.0));
            }
            if now >= next_tick {
                while next_tick <= now {
                    next_tick = Picos(next_tick.0 + tick);
                }
                self.sample(cpu, &mut counts);
                self.picture(cpu, &mut timeline);
                self.objects.tick(&mut self.generic(cpu, &mut local));
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
                self.net.flush_deferred(&mut self.context(cpu, &mut counts.net));
                let until = self.until(next_tick, next_irq, &local);
                last_ran = u32::MAX;
                if cpu.idle(Some(if warm { until } else { until.min(self.warm) })) == Wakeup::Quiet {
                    break;
                }
                continue;
            };
            newly_idle = true;
            if last_ran != task.id {
                let before = cpu.enter(Section::Scheduler);
                cpu.spend(self.switch);
                cpu.enter(before);
                counts.switches += 1;
                last_ran = task.id;
            }
            let stop = self.until(next_tick, next_irq, &local);
            let stop = if warm { stop } else { stop.min(self.warm) };
            current = self.run_task(cpu, task, &mut counts, &mut local, stop);
        }
        if let Some(task) = current {
            self.sched.yield_to_others(cpu, task);
        }
        self.sample(cpu, &mut counts);
        self.picture(cpu, &mut timeline);
        self.counts.with(cpu, |c| *c = (counts, timeline, local));
    }

    /// Lets a task run until it sleeps (`None`) or `stop` has come.
    fn run_task(
        &self,
        cpu: &M::Cpu,
        mut task: Box<Running>,
        counts: &mut CpuCounts,
        local: &mut Local,
        stop: Picos,
    ) -> Option<Box<Running>> {
        loop {
            task.resumed = task.pending.is_some();
            let op = task.pending.take().unwrap_or_else(|| task.body.step());
            match op {
                Op::User { lines } => cpu.footprint(lines),
                Op::Net(asked) => match self.net.step(&mut self.context(cpu, &mut counts.net), &mut task, asked) {
                    net::Step::Done => task.progress = 0,
                    net::Step::Wait => {
                        task.pending = Some(op);
                        task = self.sched.sleep(cpu, task)?;
                    }
                    net::Step::Retry => {
                        task.pending = Some(op);
                        return Some(task);
                    }
                },
                Op::Done { bytes } => {
                    counts.done(bytes, self.interval_at(cpu.now()));
                }
                _ => match self.objects.step(&mut self.generic(cpu, local), &mut task, op) {
                    Step::Done => {}
                    Step::Interacted => {
                        if !task.more.urgent && self.sched.interrupted(cpu) {
                            self.sched.step_aside(cpu, task);
                            return None;
                        }
                    }
                    Step::Wait => {
                        task.pending = Some(op);
                        task = self.sched.sleep(cpu, task)?;
                    }
                    Step::Sleep => task = self.sched.sleep(cpu, task)?,
                    Step::Yield => {
                        self.sched.yield_to_others(cpu, task);
                        return None;
                    }
                    step @ (Step::Exit | Step::Retire) => {
                        if matches!(step, Step::Exit) {
                            self.sched.exit(cpu, task);
                        } else if let Some(task) = self.sched.sleep(cpu, task) {
                            // Woken by somebody meanwhile: it does not matter any more.
                            self.sched.sleep(cpu, task);
                        }
                        if self.objects.over() < Picos(u64::MAX) {
                            self.machine.topology().cpu_ids().filter(|id| *id != cpu.id()).for_each(|id| cpu.kick(id));
                        }
                        return None;
                    }
                },
            }
            if cpu.now() >= stop {
                return Some(task);
            }
        }
    }

    /// The warm-up is over on this CPU: all its counts start from zero.
    fn reset(&self, cpu: &M::Cpu, counts: &mut CpuCounts) {
        let net = NetCounts { held: counts.net.held, ..NetCounts::default() };
        *counts = CpuCounts { net, ..CpuCounts::default() };
        self.alloc.reset_counters(cpu);
        self.pages.reset_stats(cpu);
        if cpu.id().0 == 0 {
            self.machine.reset_report(cpu);
        }
    }

    /// When a CPU looks up from what it does: at the next tick, interrupt or timer.
    fn until(&self, next_tick: Picos, next_irq: Option<Picos>, local: &Local) -> Picos {
        let timer = local.next_timer().unwrap_or(self.end);
        next_tick.min(self.end).min(next_irq.unwrap_or(self.end)).min(timer)
    }

    /// Interval of the measured time that `at` falls into.
    fn interval_at(&self, at: Picos) -> usize {
        (at.0.saturating_sub(self.warm.0) / self.interval.0) as usize
    }

    /// Pages the slab layer holds.
    fn slab_pages(&self) -> u64 {
        self.pages.lent().saturating_sub(self.net.frag_pages() + self.objects.pages_direct())
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

/// What a run leaves behind.
pub(super) struct Rest<'p, M: Machine> {
    machine: &'p M,
    pages: &'p Pages<'p, M>,
    sched: Scheduler<M>,
    net: Net<M>,
    objects: Objects<M>,
    tasks: Vec<Running>,
    deferred: Vec<VecDeque<(Picos, objects::Held)>>,
    /// Objects and pages of the network under way.
    held: i64,
}

impl<'p, M: Machine> Rest<'p, M> {
    /// Frees what is under way, so that nothing is leaked. Outside the measurement: no count shows it.
    pub(super) fn tear_down<A: SlabAllocator<'p, M>>(self, alloc: &A) {
        let Rest { machine, pages, sched, net, objects, tasks, deferred, held: under_way } = self;
        let held = Mutex::new((tasks, deferred));
        machine.boot(|cpu| {
            pages.keep_stats(cpu);
            if cpu.id().0 == 0 {
                let mut counts = NetCounts { held: under_way, ..NetCounts::default() };
                net.tear_down(&mut Context { cpu, alloc, pages, sched: &sched, counts: &mut counts });
                assert_eq!((counts.held, net.frag_pages()), (0, 0), "objects and pages that the network leaked");
                let local = &mut objects.local();
                let (mut tasks, mut deferred) = std::mem::take(&mut *held.lock().expect("CPU 0 alone takes it"));
                let mut c = objects::Context { cpu, alloc, pages, sched: &sched, local };
                objects.tear_down(&mut c, &mut tasks, &mut deferred);
            }
            while cpu.idle(None) != Wakeup::Quiet {}
        });
    }
}

impl CpuCounts {
    /// One operation is complete.
    fn done(&mut self, bytes: u64, interval: usize) {
        self.ops += 1;
        self.bytes += bytes;
        if self.series.len() <= interval {
            self.series.resize(interval + 1, (0, 0));
        }
        self.series[interval].0 += 1;
        self.series[interval].1 += bytes;
    }

    fn add(&mut self, other: &CpuCounts) {
        if self.series.len() < other.series.len() {
            self.series.resize(other.series.len(), (0, 0));
        }
        for (sum, (ops, bytes)) in self.series.iter_mut().zip(&other.series) {
            *sum = (sum.0 + ops, sum.1 + bytes);
        }
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.switches += other.switches;
        self.pages_peak += other.pages_peak;
        self.pages_last += other.pages_last;
        self.net.add(&other.net);
        self.objects.add(&other.objects);
    }
}
