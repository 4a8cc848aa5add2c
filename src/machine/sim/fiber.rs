//! Fibers: suspending and resuming a simulated CPU, and the cell that holds the world.
//!
//! Soundness of the unsafe code here. A [`WorldCell`] is only used on the host thread that made it (asserted in `run`
//! and `at_rest`), where one fiber runs at a time; `with` gives `&mut World` to a closure that can neither suspend (a
//! `World` has no way to) nor nest (checked in debug builds), so the reference is unique. That also makes sharing `&Sim`
//! between the fibers sound, which is what `Sync` is used for. A [`SimCpu`] points to the cell, the mailboxes and its
//! fiber's yielder; all three outlive it: it lives in the body of a fiber, and `run` borrows the others longer than that.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;
use std::thread::ThreadId;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::cost::IdleStates;
use super::time::Part;
use super::{Tally, World};
use crate::machine::percpu::Mailboxes;
use crate::machine::{Access, Addr, Arena, Cpu, Event, Operation, Path, Section, Wakeup};
use crate::topology::Topology;
use crate::units::{CpuId, Instr, NodeId, Picos};

/// Bytes of a fiber's stack: deep call chains of debug builds fit; untouched pages cost nothing.
const STACK: usize = 256 << 10;

/// The world of one simulation, bound to one host thread.
pub(super) struct WorldCell {
    world: UnsafeCell<World>,
    busy: Cell<bool>,
    thread: ThreadId,
}

// SAFETY: every access asserts (or, in `with`, descends from an assertion) that it is on `thread`.
unsafe impl Sync for WorldCell {}
// SAFETY: a World holds no thread-bound value; a moved cell refuses to run elsewhere.
unsafe impl Send for WorldCell {}

impl WorldCell {
    pub(super) fn new(world: World) -> WorldCell {
        WorldCell { world: UnsafeCell::new(world), busy: Cell::new(false), thread: std::thread::current().id() }
    }
    pub(super) fn get_mut(&mut self) -> &mut World {
        self.world.get_mut()
    }
    fn assert_thread(&self) {
        assert_eq!(self.thread, std::thread::current().id(), "a Sim runs on the host thread that made it");
    }
    /// Access from outside a fiber, or from set-up code.
    pub(super) fn at_rest<R>(&self, f: impl FnOnce(&mut World) -> R) -> R {
        self.assert_thread();
        self.with(f)
    }
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut World) -> R) -> R {
        debug_assert!(!self.busy.replace(true), "the world is borrowed twice");
        // SAFETY: on the world's thread, not nested, and `f` cannot suspend: the reference is unique.
        let result = f(unsafe { &mut *self.world.get() });
        if cfg!(debug_assertions) {
            self.busy.set(false);
        }
        result
    }
}

/// The token of a simulated CPU, alive inside its fiber.
pub struct SimCpu {
    id: CpuId,
    node: NodeId,
    world: NonNull<WorldCell>,
    calls: NonNull<Mailboxes<SimCpu>>,
    yielder: NonNull<Yielder<(), ()>>,
}

impl SimCpu {
    #[inline]
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut World) -> R) -> R {
        // SAFETY: the cell outlives the fiber this token lives in.
        unsafe { self.world.as_ref() }.with(f)
    }
    pub(super) fn index(&self) -> usize {
        usize::from(self.id.0)
    }
    fn calls(&self) -> &Mailboxes<SimCpu> {
        // SAFETY: the mailboxes outlive the fiber this token lives in.
        unsafe { self.calls.as_ref() }
    }
    /// What the machine was asked for so far.
    pub fn tally(&self) -> Tally {
        self.with(|w| w.tally)
    }
    /// How deep the operation under way has gone, if there is one.
    pub fn reached(&self) -> Option<Path> {
        self.with(|w| w.account.path(self.index()))
    }
    /// The CPU has finished, but others may still call it: sleeps, and serves them, until all have finished. A reschedule
    /// does not wake it.
    fn linger(&self) {
        let me = self.index();
        self.with(|w| w.finished[me] = true);
        loop {
            self.serve();
            if self.with(|w| w.dead || w.finished.iter().all(|f| *f) && w.queue.head() == u64::MAX) {
                return;
            }
            self.with(|w| w.lingers[me] = true);
            self.suspend();
            self.with(|w| w.lingers[me] = false);
        }
    }
    /// Ends the run: nothing suspends any more, and this fiber, then all others, unwind.
    #[cold]
    fn cancel(&self) -> ! {
        self.with(|w| w.dead = true);
        crate::error::stop()
    }
    /// Lets the others run; returns when this CPU is resumed.
    pub(super) fn suspend(&self) {
        if self.with(|w| w.dead) {
            return;
        }
        // SAFETY: the yielder belongs to the running fiber, which is this one: the token is not Send.
        unsafe { self.yielder.as_ref() }.suspend(());
    }
}

impl Cpu for SimCpu {
    fn id(&self) -> CpuId {
        self.id
    }
    fn node(&self) -> NodeId {
        self.node
    }
    fn now(&self) -> Picos {
        Picos(self.with(|w| w.clocks[self.index()]))
    }
    #[inline]
    fn work(&self, instructions: Instr) {
        self.with(|w| {
            w.tally.instructions += u64::from(instructions.0);
            let ps = w.cost_of(self.index()).instructions(instructions);
            w.watched(self.index(), |e| e.instructions += u64::from(instructions.0));
            w.work(self.index(), ps);
        });
    }
    fn delay(&self, time: Picos) {
        self.with(|w| w.work(self.index(), time.0));
    }
    #[inline]
    fn spend(&self, event: Event) {
        self.with(|w| {
            w.tally.events[event as usize] += 1;
            let ps = w.cost_of(self.index()).event(event);
            w.watched(self.index(), |e| match event {
                Event::IrqSaveRestore | Event::IrqDisableEnable => e.irq_pairs += 1,
                Event::CmpxchgLocal => e.local_exchanges += 1,
                _ => {}
            });
            w.spend(self.index(), ps);
        });
    }
    #[inline]
    fn touch(&self, addr: Addr, access: Access) {
        self.with(|w| w.touch(self.index(), addr, access));
    }
    fn enter(&self, section: Section) -> Section {
        self.with(|w| {
            let before = w.account.enter(self.index(), section, w.clocks[self.index()]);
            if section == Section::Pages && before != section && w.cost.page_extra > 0 {
                w.work(self.index(), w.cost.page_extra);
            }
            before
        })
    }
    fn begin(&self, operation: Operation) {
        self.with(|w| w.account.begin(self.index(), operation, w.clocks[self.index()]));
    }
    fn leave_fast_path(&self) {
        self.with(|w| w.account.leave_fast_path(self.index(), w.clocks[self.index()]));
    }
    fn end(&self) {
        self.with(|w| {
            let took = w.account.end(self.index(), w.clocks[self.index()]);
            if let (Some(took), Some(watch)) = (took, &mut w.watch) {
                watch.ended(took);
            }
        });
    }
    fn grouped(&self, accesses: impl FnOnce(&Self)) {
        self.with(|w| w.memory.group_begin(self.index()));
        accesses(self);
        self.with(|w| {
            let (ps, moved) = w.memory.group_end(&w.cost, self.index());
            w.spend_on_line(self.index(), ps, moved);
        });
    }
    fn footprint(&self, lines: u32) {
        self.with(|w| w.memory.footprint(self.index(), lines));
    }
    fn copy(&self, _arena: &Arena, addr: Addr, bytes: u64, write: bool) {
        self.with(|w| {
            let now = w.clocks[self.index()];
            let ps = w.memory.copy(&w.cost, self.index(), addr, bytes, write, now);
            w.spend(self.index(), ps);
        });
    }
    #[inline]
    fn interact(&self) {
        let me = self.index();
        if self.with(|w| w.cancel.is_cancelled() && !w.dead) {
            self.cancel();
        }
        let yields = self.with(|w| {
            if w.dead {
                return false;
            }
            if w.schedule.jitter_ps > 0 {
                let extra = w.random(me, w.schedule.jitter_ps);
                w.spend(me, extra);
            }
            let now = w.clocks[me];
            if let Some(governor) = &mut w.governor {
                governor.samples.look(me, now);
            }
            let head = w.queue.head();
            let early = now < head || (w.cost.skew > 0 && now - head < w.cost.skew);
            let yields = !early || now >= w.alarm || w.schedule.always_suspend;
            if yields {
                w.queue.push(now, me);
            } else if now > head {
                w.inversions += 1;
                w.max_inversion = w.max_inversion.max(now - head);
            }
            yields
        });
        if yields {
            self.suspend();
        }
        self.with(|w| {
            w.trace = (w.trace ^ w.clocks[me] ^ ((me as u64) << 56)).wrapping_mul(0x0000_0100_0000_01b3);
        });
    }
    fn bit_lock(&self, _arena: &Arena, addr: Addr, _bit: u32) {
        self.acquire(self.bit_id(addr));
    }
    fn bit_trylock(&self, _arena: &Arena, addr: Addr, _bit: u32) -> bool {
        self.try_acquire(self.bit_id(addr))
    }
    fn bit_unlock(&self, _arena: &Arena, addr: Addr, _bit: u32) {
        self.release(self.bit_id(addr));
    }
    fn idle(&self, until: Option<Picos>) -> Wakeup {
        self.serve();
        self.interact();
        let me = self.index();
        let until = until.map_or(u64::MAX, |t| t.0);
        let at_once = self.with(|w| {
            if std::mem::take(&mut w.kicked[me]) {
                return Some(Wakeup::Kicked);
            }
            if w.clocks[me] >= until {
                return Some(Wakeup::Time);
            }
            if w.dead {
                return Some(Wakeup::Quiet);
            }
            w.idle[me] = true;
            w.wake_at[me] = until;
            w.alarm = w.alarm.min(until);
            None
        });
        if let Some(reason) = at_once {
            return reason;
        }
        self.suspend();
        let reason = self.with(|w| w.reason[me]);
        self.serve();
        reason
    }
    fn kick(&self, target: CpuId) {
        self.interact();
        let called = self.calls().waits_for(target);
        let (me, target) = (self.index(), usize::from(target.0));
        self.with(|w| {
            if w.idle[target] {
                let (send, exit) = match w.cost.idle {
                    // A polling CPU sees the flag's line change: no interrupt.
                    IdleStates::Poll(exit) => (w.memory.transfer_between(&w.cost, me, target), exit),
                    states => (w.cost.event(Event::IpiSend), w.cost.ipi_to_run + states.extra(w.last_sleep[target])),
                };
                w.spend(me, send);
                let at = w.clocks[me] + exit;
                w.wake(target, at, Wakeup::Kicked);
            } else if !w.finished[target] {
                w.kicked[target] = true;
            } else if w.lingers[target] && called {
                let (send, exit) = (w.cost.event(Event::IpiSend), w.cost.ipi_to_run);
                w.spend(me, send);
                w.lingers[target] = false;
                let at = w.clocks[me] + exit;
                w.resume_at(target, at, Part::Idle);
            }
        });
    }
    fn is_idle(&self, target: CpuId) -> bool {
        self.with(|w| w.idle[usize::from(target.0)])
    }
    fn call_on(&self, target: CpuId, f: &(dyn Fn(&Self) + Sync)) {
        self.calls().post_and_wait(self, target, f);
    }
    #[inline]
    fn serve(&self) {
        self.calls().serve(self);
    }
    fn random(&self, below: u64) -> u64 {
        self.with(|w| w.random(self.index(), below))
    }
}

thread_local! {
    static STACKS: Cell<Vec<DefaultStack>> = const { Cell::new(Vec::new()) };
}

type Fiber = Coroutine<(), (), (), DefaultStack>;

/// Runs `body` as one fiber per CPU until all have returned.
pub(super) fn run(cell: &WorldCell, calls: &Mailboxes<SimCpu>, topology: &Topology, body: &(impl Fn(&SimCpu) + Sync)) {
    cell.assert_thread();
    let cpus = topology.cpus();
    cell.with(|w| {
        assert!(!w.dead, "this simulation has panicked and cannot go on");
        w.finished.fill(false);
        w.kicked.fill(false);
        for cpu in 0..cpus {
            w.queue.push(w.clocks[cpu], cpu);
        }
    });
    let mut stacks = STACKS.take();
    let mut fibers: Vec<Fiber> = topology
        .cpu_ids()
        .map(|id| {
            let stack = stacks.pop().unwrap_or_else(|| DefaultStack::new(STACK).expect("a fiber's stack"));
            let node = topology.node_of(id);
            // SAFETY: the closure borrows `cell`, `calls` and `body`; every fiber ends (or is unwound by `Unwinder`)
            // before this function returns, so the borrows outlive it.
            unsafe {
                Coroutine::with_stack_unchecked(stack, move |yielder: &Yielder<(), ()>, ()| {
                    let cpu = SimCpu {
                        id,
                        node,
                        world: NonNull::from(cell),
                        calls: NonNull::from(calls),
                        yielder: NonNull::from(yielder),
                    };
                    body(&cpu);
                    cpu.linger();
                })
            }
        })
        .collect();
    let guard = Unwinder { cell, fibers: &mut fibers };
    while let Some(cpu) = cell.with(World::next) {
        guard.fibers[cpu].resume(());
    }
    // All have finished, and no call is left.
    for fiber in guard.fibers.iter_mut().filter(|f| !f.done()) {
        let end = fiber.resume(());
        debug_assert!(matches!(end, CoroutineResult::Return(())), "nobody calls a CPU that has finished");
    }
    drop(guard);
    stacks.extend(fibers.into_iter().map(Fiber::into_stack));
    STACKS.set(stacks);
}

/// When a fiber panics, marks the world dead so that the other fibers unwind without suspending, then unwinds them.
struct Unwinder<'a> {
    cell: &'a WorldCell,
    fibers: &'a mut Vec<Fiber>,
}

impl Drop for Unwinder<'_> {
    fn drop(&mut self) {
        if self.fibers.iter().all(Fiber::done) {
            return;
        }
        self.cell.busy.set(false);
        self.cell.with(|w| w.dead = true);
        for fiber in self.fibers.iter_mut().filter(|f| !f.done()) {
            if fiber.started() {
                fiber.force_unwind();
            } else {
                // SAFETY: a fiber that has not started holds nothing but copied references.
                unsafe { fiber.force_reset() };
            }
        }
    }
}
