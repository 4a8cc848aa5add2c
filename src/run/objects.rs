//! Generic operations as the executor does them: objects in slots, messages between tasks, barriers, stopwatches, timers.
//!
//! Whatever a task has taken is in exactly one place: a slot of the task, a message in a queue, or the list of a CPU that
//! waits for a grace period. [`Objects::tear_down`] empties all three, so that nothing is leaked.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use super::measured;
use super::sched::{Running, Scheduler};
use crate::alloc::{SlabAllocator, ZERO_SIZE};
use crate::machine::{Access, Addr, Cpu, Event, Machine, SpinLock};
use crate::page::{Page, PageFlags, Pages};
use crate::spec::{CacheId, Object, Request};
use crate::units::{CpuId, JIFFY, NodeId, Order, Picos};
use crate::workload::{LapSpec, NativeWork, Op, Plan, QueueSpec, What};

/// From a deferred free to the grace period that ends after it: two ticks, in which every CPU has gone through its scheduler.
const GRACE: Picos = Picos(2 * JIFFY.0);
/// Messages whose pointers share a cache line of a queue's ring.
const PER_LINE: u64 = 8;

/// What a slot holds.
#[derive(Debug, Default)]
pub(super) enum Held {
    #[default]
    Nothing,
    Object(u32, Object, CpuId),
    Kmalloc(u64, Object, CpuId),
    Pages(Page),
}

/// What the executor keeps for one task beside the scheduler's fields.
#[derive(Default)]
pub(super) struct Own {
    /// It never leaves its CPU.
    pub(super) pinned: bool,
    /// It runs before all others, and interrupts them.
    pub(super) urgent: bool,
    slots: Vec<Held>,
    started: Picos,
    /// Generation of the barrier it waits at.
    barrier: Option<u64>,
    /// The pause under way has been entered.
    until: Option<Picos>,
}

impl Own {
    pub(super) fn new(pinned: bool, urgent: bool) -> Own {
        Own { pinned, urgent, ..Own::default() }
    }

    fn take(&mut self, slot: u32) -> Held {
        self.slots.get_mut(slot as usize).map(std::mem::take).unwrap_or_default()
    }

    /// Puts something into a slot; what was there comes back.
    fn put(&mut self, slot: u32, held: Held) -> Held {
        let at = slot as usize;
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, Held::default);
        }
        std::mem::replace(&mut self.slots[at], held)
    }
}

/// A message under way.
struct Message {
    due: Picos,
    contents: Vec<Held>,
}

/// A queue between tasks.
#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    senders: VecDeque<u32>,
    receivers: VecDeque<u32>,
    sent: u64,
    received: u64,
}

#[derive(Default)]
struct Meeting {
    arrived: u32,
    generation: u64,
    waiting: Vec<u32>,
}

/// Event counts of generic operations, per CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectCounts {
    pub(super) allocs: u64,
    pub(super) frees: u64,
    pub(super) remote_frees: u64,
    pub(super) bytes_copied: u64,
    pub(super) failed: u64,
    pub(super) messages: u64,
}

impl ObjectCounts {
    pub(super) fn add(&mut self, other: &ObjectCounts) {
        self.allocs += other.allocs;
        self.frees += other.frees;
        self.remote_frees += other.remote_frees;
        self.bytes_copied += other.bytes_copied;
        self.failed += other.failed;
        self.messages += other.messages;
    }
}

/// What a CPU keeps for generic operations while it runs.
#[derive(Default)]
pub(super) struct Local {
    pub(super) counts: ObjectCounts,
    /// Pauses of tasks that sleep here: when they end, and whose.
    timers: Vec<(Picos, u32)>,
    /// Waiting for a grace period, in order.
    deferred: VecDeque<(Picos, Held)>,
    /// Time and operations of each lap.
    laps: Vec<(u64, u64)>,
}

impl Local {
    /// When the next pause ends.
    pub(super) fn next_timer(&self) -> Option<Picos> {
        self.timers.iter().map(|(when, _)| *when).min()
    }
}

/// What became of an operation.
pub(super) enum Step {
    Done,
    /// Done at a point of interaction: an urgent task may have been woken.
    Interacted,
    /// The task must sleep; the operation is repeated after the wake-up.
    Wait,
    /// The task sleeps; the operation is complete when it is woken.
    Sleep,
    Yield,
    /// The task is over.
    Exit,
    /// It is over, and keeps what it holds.
    Retire,
}

/// What an operation needs: who runs, the allocator and its pages, the scheduler, this CPU's part.
pub(super) struct Context<'a, 'p, M: Machine, A: SlabAllocator<'p, M>> {
    pub(super) cpu: &'a M::Cpu,
    pub(super) alloc: &'a A,
    pub(super) pages: &'p Pages<'p, M>,
    pub(super) sched: &'a Scheduler<M>,
    pub(super) local: &'a mut Local,
}

/// Queues, barriers and laps of a run.
pub(super) struct Objects<M: Machine> {
    caches: Vec<(CacheId, u64)>,
    specs: Vec<QueueSpec>,
    queues: Vec<SpinLock<M, Queue>>,
    addrs: Vec<Addr>,
    parties: Vec<u32>,
    meetings: Vec<SpinLock<M, Meeting>>,
    laps: Vec<LapSpec>,
    /// Work is spent.
    works: bool,
    /// What a task holds when it is over stays until the run's end.
    keeps: bool,
    /// Pages taken outside the slab layer, for reports: not modelled, so not charged.
    direct_pages: AtomicI64,
    /// Tasks that are not over, and when the last one was.
    running: AtomicU32,
    over: AtomicU64,
}

impl<M: Machine> Objects<M> {
    pub(super) fn new(machine: &M, plan: &Plan, caches: &[CacheId], simulated: bool) -> Self {
        let nodes = machine.topology().nodes();
        let node = |i: usize| NodeId((i % nodes) as u16);
        let queues = &plan.links.queues;
        // Lock and indices on the first line, the ring behind it.
        let bytes = |q: &QueueSpec| 64 + 8 * u64::from(q.capacity);
        let addrs: Vec<Addr> = queues.iter().enumerate().map(|(i, q)| machine.reserve(bytes(q), node(i))).collect();
        let lock = |at: &Addr| SpinLock::new(machine.lock("queue", *at), Queue::default());
        let meeting =
            |i: usize| SpinLock::new(machine.lock("barrier", machine.reserve(64, node(i))), Meeting::default());
        Objects {
            caches: caches.iter().zip(&plan.caches).map(|(id, spec)| (*id, spec.size)).collect(),
            specs: queues.clone(),
            queues: addrs.iter().map(lock).collect(),
            addrs,
            parties: plan.links.barriers.clone(),
            meetings: (0..plan.links.barriers.len()).map(meeting).collect(),
            laps: plan.links.laps.clone(),
            works: simulated || plan.native_work == NativeWork::Spin,
            keeps: plan.links.as_left,
            direct_pages: AtomicI64::new(0),
            running: AtomicU32::new(plan.tasks.len() as u32),
            over: AtomicU64::new(u64::MAX),
        }
    }

    /// A CPU's part at the start.
    pub(super) fn local(&self) -> Local {
        Local { laps: vec![(0, 0); self.laps.len()], ..Local::default() }
    }

    /// When the last task ended; the end of time as long as one has not.
    pub(super) fn over(&self) -> Picos {
        Picos(self.over.load(Ordering::Relaxed))
    }

    /// Pages taken outside the slab layer. While CPUs run, a sample.
    pub(super) fn pages_direct(&self) -> u64 {
        self.direct_pages.load(Ordering::Relaxed).max(0) as u64
    }

    /// What is timed.
    pub(super) fn laps(&self, locals: &[&mut Local]) -> Vec<(LapSpec, u64, u64)> {
        let sum = |i: usize| locals.iter().fold((0, 0), |(t, n), l| (t + l.laps[i].0, n + l.laps[i].1));
        self.laps.iter().cloned().enumerate().map(|(i, lap)| (lap, sum(i).0, sum(i).1)).collect()
    }

    /// Does one operation of a task.
    pub(super) fn step<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        op: Op,
    ) -> Step {
        match op {
            Op::Alloc { what, into } => {
                let taken = self.alloc(c, what);
                let old = task.more.put(into, taken);
                self.free(c, old);
            }
            Op::Free { slot } => {
                let held = task.more.take(slot);
                self.free(c, held);
            }
            Op::FreeRcu { slot } => {
                let held = task.more.take(slot);
                if !matches!(held, Held::Nothing) {
                    c.local.deferred.push_back((Picos(c.cpu.now().0 + GRACE.0), held));
                }
            }
            Op::AllocBulk { cache, into, count } => self.alloc_bulk(c, task, cache, into, count),
            Op::FreeBulk { from, count } => self.free_bulk(c, task, from, count),
            Op::Touch { slot, bytes, write } => {
                if let Some((at, bytes)) = self.place(c, task, slot, bytes) {
                    touch(c, at, bytes, write);
                }
            }
            Op::Copy { slot, bytes, write } => {
                if let Some((at, bytes)) = self.place(c, task, slot, bytes) {
                    c.cpu.copy(c.pages.arena(), at, bytes, write);
                    c.local.counts.bytes_copied += bytes;
                }
            }
            Op::Syscall => c.cpu.spend(Event::Syscall),
            Op::Compute { time } => {
                if self.works {
                    c.cpu.delay(time);
                }
            }
            Op::Send { queue, from, count } => return self.send(c, task, queue as usize, from, count),
            Op::Recv { queue, into } => return self.recv(c, task, queue as usize, into),
            Op::Sleep => return Step::Sleep,
            Op::Wake { task } => {
                c.sched.wake(c.cpu, task, false);
                return Step::Interacted;
            }
            Op::Pause { time } => return pause(c, task, time),
            Op::Yield => return Step::Yield,
            Op::Barrier { barrier } => return self.meet(c, task, barrier as usize),
            Op::Start => task.more.started = c.cpu.now(),
            Op::Lap { lap, ops } => {
                let (time, n) = &mut c.local.laps[lap as usize];
                *time += c.cpu.now().0 - task.more.started.0;
                *n += u64::from(ops);
            }
            Op::Exit => {
                if !self.keeps {
                    self.drop_all(c, task);
                }
                c.cpu.interact();
                if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.over.store(c.cpu.now().0, Ordering::Relaxed);
                }
                return if self.keeps { Step::Retire } else { Step::Exit };
            }
            Op::User { .. } | Op::Net(_) | Op::Done { .. } => {
                unreachable!("the executor does these itself")
            }
        }
        Step::Done
    }

    /// Work of a tick: ends pauses and grace periods that are due.
    pub(super) fn tick<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>) {
        let now = c.cpu.now();
        while c.local.deferred.front().is_some_and(|(due, _)| *due <= now) {
            let (_, held) = c.local.deferred.pop_front().expect("just seen");
            self.free(c, held);
        }
    }

    /// Wakes the tasks whose pauses are over.
    pub(super) fn timers<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>) {
        let now = c.cpu.now();
        while let Some(at) = c.local.timers.iter().position(|(when, _)| *when <= now) {
            let (_, id) = c.local.timers.swap_remove(at);
            c.sched.wake(c.cpu, id, false);
        }
    }

    /// Frees whatever tasks, queues and CPUs still hold. On one CPU, after the run.
    pub(super) fn tear_down<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        tasks: &mut [Running],
        deferred: &mut [VecDeque<(Picos, Held)>],
    ) {
        for task in tasks {
            self.drop_all(c, task);
        }
        for queue in &self.queues {
            let messages = std::mem::take(&mut queue.lock(c.cpu).messages);
            messages.into_iter().flat_map(|m| m.contents).for_each(|held| self.free(c, held));
        }
        for list in deferred {
            list.drain(..).for_each(|(_, held)| self.free(c, held));
        }
    }

    fn drop_all<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, task: &mut Running) {
        for held in std::mem::take(&mut task.more.slots) {
            self.free(c, held);
        }
    }

    fn alloc<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, what: What) -> Held {
        let here = c.cpu.id();
        let want = Request::default();
        let taken = match what {
            What::Cache(cache) => measured::alloc(c.alloc, c.cpu, self.caches[cache as usize].0, want)
                .map(|o| Held::Object(cache, o, here)),
            What::Kmalloc(bytes) => {
                let bytes = u64::from(bytes);
                measured::kmalloc(c.alloc, c.cpu, bytes, want).map(|o| Held::Kmalloc(bytes, o, here))
            }
            What::Pages(order) => {
                let flags = PageFlags { compound: order > 0, ..PageFlags::default() };
                let page = c.pages.alloc_pages(c.cpu, Order(order), None, flags);
                if page.is_some() {
                    self.direct_pages.fetch_add(1 << order, Ordering::Relaxed);
                }
                page.map(Held::Pages)
            }
        };
        let slab = !matches!(what, What::Pages(_));
        c.local.counts.allocs += u64::from(slab && taken.is_some());
        c.local.counts.failed += u64::from(taken.is_none());
        taken.unwrap_or_default()
    }

    fn free<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, held: Held) {
        let here = c.cpu.id();
        let from = match held {
            Held::Nothing => return,
            Held::Object(cache, object, from) => {
                measured::free(c.alloc, c.cpu, self.caches[cache as usize].0, object);
                from
            }
            Held::Kmalloc(_, object, from) => {
                measured::kfree(c.alloc, c.cpu, object);
                from
            }
            Held::Pages(page) => {
                self.direct_pages.fetch_sub(1 << page.order().0, Ordering::Relaxed);
                return c.pages.free_pages(c.cpu, page);
            }
        };
        c.local.counts.frees += 1;
        c.local.counts.remote_frees += u64::from(from != here);
    }

    fn alloc_bulk<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        cache: u32,
        into: u32,
        count: u32,
    ) {
        let id = self.caches[cache as usize].0;
        let Some(objects) = measured::alloc_bulk(c.alloc, c.cpu, id, u64::from(count)) else {
            c.local.counts.failed += 1;
            return;
        };
        c.local.counts.allocs += objects.len() as u64;
        for (slot, object) in (into..).zip(objects) {
            let old = task.more.put(slot, Held::Object(cache, object, c.cpu.id()));
            self.free(c, old);
        }
    }

    fn free_bulk<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        from: u32,
        count: u32,
    ) {
        let mut of = None;
        let mut objects = Vec::with_capacity(count as usize);
        for slot in from..from + count {
            match task.more.take(slot) {
                Held::Object(cache, object, born) if *of.get_or_insert(cache) == cache => {
                    c.local.counts.remote_frees += u64::from(born != c.cpu.id());
                    objects.push(object);
                }
                other => self.free(c, other),
            }
        }
        c.local.counts.frees += objects.len() as u64;
        if let Some(cache) = of {
            measured::free_bulk(c.alloc, c.cpu, self.caches[cache as usize].0, objects);
        }
    }

    /// Address of what a slot holds, and how many of `bytes` bytes it has.
    fn place<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &Context<'_, 'p, M, A>,
        task: &Running,
        slot: u32,
        bytes: u32,
    ) -> Option<(Addr, u64)> {
        let (at, size) = match task.more.slots.get(slot as usize)? {
            Held::Nothing => return None,
            Held::Object(cache, object, _) => (object.addr(), self.caches[*cache as usize].1),
            Held::Kmalloc(size, object, _) => (object.addr(), *size),
            Held::Pages(page) => (c.pages.addr_of(page.pfn()), page.order().bytes()),
        };
        (at != ZERO_SIZE).then_some((at, size.min(u64::from(bytes))))
    }

    fn send<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        queue: usize,
        from: u32,
        count: u32,
    ) -> Step {
        let spec = self.specs[queue];
        let mut guard = self.queues[queue].lock(c.cpu);
        if guard.messages.len() >= spec.capacity as usize {
            if !guard.senders.contains(&task.id) {
                guard.senders.push_back(task.id);
            }
            return Step::Wait;
        }
        self.touch_ring(c.cpu, queue, guard.sent, Access::Write);
        guard.sent += 1;
        let due = if spec.delay == Picos(0) { Picos(0) } else { Picos(c.cpu.now().0 + spec.delay.0) };
        let contents = (from..from + count).map(|slot| task.more.take(slot)).collect();
        guard.messages.push_back(Message { due, contents });
        let woken = guard.receivers.pop_front();
        drop(guard);
        c.local.counts.messages += 1;
        if let Some(id) = woken {
            c.sched.wake(c.cpu, id, false);
        }
        Step::Interacted
    }

    fn recv<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        queue: usize,
        into: u32,
    ) -> Step {
        let mut guard = self.queues[queue].lock(c.cpu);
        let Some(first) = guard.messages.front() else {
            if !guard.receivers.contains(&task.id) {
                guard.receivers.push_back(task.id);
            }
            return Step::Wait;
        };
        if first.due > Picos(0) && first.due > c.cpu.now() {
            c.local.timers.push((first.due, task.id));
            return Step::Wait;
        }
        self.touch_ring(c.cpu, queue, guard.received, Access::Read);
        guard.received += 1;
        let message = guard.messages.pop_front().expect("just seen");
        // Room for a sender; and if more is here than this task takes, somebody else may.
        let sender = guard.senders.pop_front();
        let receiver = if guard.messages.is_empty() { None } else { guard.receivers.pop_front() };
        drop(guard);
        for (slot, held) in (into..).zip(message.contents) {
            let old = task.more.put(slot, held);
            self.free(c, old);
        }
        for id in sender.into_iter().chain(receiver) {
            c.sched.wake(c.cpu, id, false);
        }
        Step::Interacted
    }

    fn touch_ring(&self, cpu: &M::Cpu, queue: usize, index: u64, access: Access) {
        let lines = u64::from(self.specs[queue].capacity).div_ceil(PER_LINE).max(1);
        cpu.touch(self.addrs[queue].plus(64 + 64 * (index / PER_LINE % lines)), access);
    }

    fn meet<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        barrier: usize,
    ) -> Step {
        let mut guard = self.meetings[barrier].lock(c.cpu);
        match task.more.barrier {
            Some(generation) if generation == guard.generation => return Step::Wait,
            Some(_) => {
                task.more.barrier = None;
                return Step::Interacted;
            }
            None => {}
        }
        guard.arrived += 1;
        if guard.arrived < self.parties[barrier] {
            task.more.barrier = Some(guard.generation);
            guard.waiting.push(task.id);
            return Step::Wait;
        }
        guard.arrived = 0;
        guard.generation += 1;
        let waiting = std::mem::take(&mut guard.waiting);
        drop(guard);
        for id in waiting {
            c.sched.wake(c.cpu, id, false);
        }
        Step::Interacted
    }
}

/// Sleeps until the pause is over; a wake-up before that does not end it.
fn pause<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(
    c: &mut Context<'_, 'p, M, A>,
    task: &mut Running,
    time: Picos,
) -> Step {
    let now = c.cpu.now();
    let until = *task.more.until.get_or_insert(Picos(now.0 + time.0));
    if now >= until {
        task.more.until = None;
        return Step::Interacted;
    }
    if !c.local.timers.contains(&(until, task.id)) {
        c.local.timers.push((until, task.id));
    }
    Step::Wait
}

/// One access in each line of what begins at `at`.
fn touch<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(c: &Context<'_, 'p, M, A>, at: Addr, bytes: u64, write: bool) {
    if write {
        super::script::write(c.cpu, c.alloc, at, bytes);
    } else {
        c.cpu.touch_span(at, bytes, Access::Read);
        std::hint::black_box(c.pages.arena().peek(Addr(at.0 & !7)));
    }
}

/// What a run leaves with its CPUs.
pub(super) fn deferred_of(local: &mut Local) -> VecDeque<(Picos, Held)> {
    std::mem::take(&mut local.deferred)
}
