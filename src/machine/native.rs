//! `Native`: one pinned worker thread per CPU, real locks, wall-clock time. The hooks that only charge are empty.
//!
//! Soundness of the unsafe code here: `pin` calls one libc function with a set it owns; `NativeCpu` is neither Send nor
//! Sync, and `boot` makes exactly one per worker. What Native cannot do: interrupts cannot be disabled, nodes are only
//! logical, and when workers outnumber the host's cores a wait is a matter of the host's scheduler; locks therefore
//! yield to the host after [`SPINS`] tries.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::percpu::Mailboxes;
use super::sim::Cancel;
use super::sync::{AtomicBool, Ordering};
use super::{Access, Addr, Arena, Cpu, Event, Machine, RawLock, Report, Wakeup};
use crate::error::Error;
use crate::topology::Topology;
use crate::units::{CpuId, Instr, LINE, NodeId, PAGE_SIZE, Picos, round_up};

/// Tries of a spin lock before its waiter yields to the host.
#[cfg(not(loom))]
const SPINS: u32 = 64;

/// The host as a machine: logical nodes, pinned workers.
pub struct Native {
    topology: Topology,
    next_reserved: AtomicU64,
    shared: Shared,
    cancel: Cancel,
}

/// What the workers of a boot share.
struct Shared {
    start: Instant,
    calls: Mailboxes<NativeCpu>,
    threads: Mutex<Vec<Option<Thread>>>,
    /// One of the states below per CPU.
    states: Box<[AtomicU8]>,
    /// CPUs that run, have been kicked, or sleep with a time limit; 0 means that nothing can happen any more.
    active: AtomicUsize,
}

/// States of a worker. A kick moves RUNNING to RUNNING_KICKED (the next `idle` returns at once), IDLE to KICKED (the
/// kicker counts it in again, so that `active` cannot pass through 0) and IDLE_TIMED, which stays counted, to KICKED.
const RUNNING: u8 = 0;
const RUNNING_KICKED: u8 = 1;
const IDLE: u8 = 2;
const IDLE_TIMED: u8 = 3;
const KICKED: u8 = 4;

impl Native {
    /// The host with these logical CPUs and nodes. More CPUs than cores are allowed: see [`Native::oversubscribed`].
    pub fn new(topology: Topology) -> Result<Native, Error> {
        if cfg!(not(target_os = "linux")) {
            return Err(Error::new(
                "machine",
                "native",
                "the native machine needs Linux; every simulated machine works here",
            ));
        }
        let arena: u64 = topology.node_ids().map(|n| topology.node_bytes(n)).sum();
        let cpus = topology.cpus();
        Ok(Native {
            next_reserved: AtomicU64::new(arena + arena / PAGE_SIZE * LINE),
            shared: Shared {
                start: Instant::now(),
                calls: Mailboxes::new(cpus),
                threads: Mutex::new(vec![None; cpus]),
                states: (0..cpus).map(|_| AtomicU8::new(RUNNING)).collect(),
                active: AtomicUsize::new(0),
            },
            topology,
            cancel: Cancel::default(),
        })
    }
    /// The same machine, which stops when `cancel` says so.
    pub fn heeding(self, cancel: &Cancel) -> Native {
        Native { cancel: cancel.clone(), ..self }
    }

    /// Cores of the host this process may use.
    pub fn host_cores() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// Clock of the host's first CPU, if it says so.
    pub fn host_ghz() -> Option<f64> {
        let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = text.lines().find(|l| l.starts_with("cpu MHz"))?;
        line.split(':').nth(1)?.trim().parse::<f64>().ok().map(|mhz| mhz / 1000.0)
    }

    /// True if workers outnumber the host's cores, so that waits depend on the host's scheduler.
    pub fn oversubscribed(&self) -> bool {
        self.topology.cpus() > Native::host_cores()
    }
}

impl Machine for Native {
    type Cpu = NativeCpu;
    type Lock = NativeLock;

    fn topology(&self) -> &Topology {
        &self.topology
    }
    fn reserve(&self, bytes: u64, _node: NodeId) -> Addr {
        Addr(self.next_reserved.fetch_add(round_up(bytes.max(1), LINE), Ordering::Relaxed))
    }
    fn cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
    fn room(&self) -> u64 {
        u64::MAX - self.next_reserved.load(Ordering::Relaxed)
    }
    fn lock(&self, _name: &'static str, _addr: Addr) -> NativeLock {
        NativeLock::new()
    }
    fn report(&mut self) -> Report {
        Report { oversubscribed: self.oversubscribed(), ..Report::default() }
    }
    fn measure(&self, _start: Picos, _end: Picos) {}

    fn reset_report(&self, _: &NativeCpu) {}
    fn boot(&self, body: impl Fn(&NativeCpu) + Sync) {
        let shared = &self.shared;
        shared.active.store(self.topology.cpus(), Ordering::SeqCst);
        shared.states.iter().for_each(|s| s.store(RUNNING, Ordering::SeqCst));
        let pin_workers = !self.oversubscribed();
        let (body, topology) = (&body, &self.topology);
        std::thread::scope(|scope| {
            let workers: Vec<_> = topology
                .cpu_ids()
                .map(|id| {
                    scope.spawn(move || {
                        if pin_workers {
                            pin(usize::from(id.0));
                        }
                        shared.threads.lock().unwrap()[usize::from(id.0)] = Some(std::thread::current());
                        let cpu = NativeCpu {
                            id,
                            node: topology.node_of(id),
                            shared,
                            draws: Cell::new(u64::from(id.0) << 32 | 1),
                            counted: Cell::new(true),
                            not_send: PhantomData,
                        };
                        body(&cpu);
                        // Others may still call.
                        while cpu.counted.get() && cpu.idle(None) != Wakeup::Quiet {}
                    })
                })
                .collect();
            for worker in workers {
                if let Err(panic) = worker.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        });
    }
}

/// Counts a worker out, also when it panics, so that the others see that nothing can happen any more.
impl Drop for NativeCpu {
    fn drop(&mut self) {
        if self.counted.get() {
            self.shared().count_out();
        }
    }
}

impl Shared {
    fn count_out(&self) {
        if self.active.fetch_sub(1, Ordering::SeqCst) == 1 {
            for thread in self.threads.lock().unwrap().iter().flatten() {
                thread.unpark();
            }
        }
    }
}

/// The token of a native CPU: lives in its worker.
pub struct NativeCpu {
    id: CpuId,
    node: NodeId,
    shared: *const Shared,
    draws: Cell<u64>,
    /// Whether this worker is part of `active`.
    counted: Cell<bool>,
    not_send: PhantomData<*const ()>,
}

impl NativeCpu {
    fn shared(&self) -> &Shared {
        // SAFETY: `boot` borrows the machine for the whole life of its scoped workers, where this token lives.
        unsafe { &*self.shared }
    }
}

#[cfg(target_os = "linux")]
fn pin(core: usize) {
    // SAFETY: the set is owned, zeroed and of the size passed; a failing call leaves the thread where it was.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}
#[cfg(not(target_os = "linux"))]
fn pin(_core: usize) {}

impl Cpu for NativeCpu {
    #[inline(always)]
    fn id(&self) -> CpuId {
        self.id
    }
    #[inline(always)]
    fn node(&self) -> NodeId {
        self.node
    }
    fn now(&self) -> Picos {
        Picos(self.shared().start.elapsed().as_nanos() as u64 * 1000)
    }
    #[inline(always)]
    fn work(&self, _: Instr) {}
    fn delay(&self, time: Picos) {
        let end = Instant::now() + Duration::from_nanos(time.0 / 1000);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }
    #[inline(always)]
    fn spend(&self, _: Event) {}
    #[inline(always)]
    fn touch(&self, _: Addr, _: Access) {}
    #[inline(always)]
    fn touch_span(&self, _: Addr, _: u64, _: Access) {}
    #[inline(always)]
    fn grouped(&self, accesses: impl FnOnce(&Self)) {
        accesses(self);
    }
    #[inline(always)]
    fn footprint(&self, _: u32) {}
    fn copy(&self, arena: &Arena, addr: Addr, bytes: u64, write: bool) {
        if write {
            return arena.fill(addr, bytes, addr.0 as u8);
        }
        let mut at = addr.0 & !7;
        let mut sum = 0u64;
        while at < addr.0 + bytes {
            sum = sum.wrapping_add(arena.peek(Addr(at)));
            at += 8;
        }
        std::hint::black_box(sum);
    }
    #[inline(always)]
    fn irq_save(&self) {}
    #[inline(always)]
    fn interact(&self) {}
    fn bit_lock(&self, arena: &Arena, addr: Addr, bit: u32) {
        bits::lock(arena, addr, bit);
    }
    fn bit_trylock(&self, arena: &Arena, addr: Addr, bit: u32) -> bool {
        bits::try_lock(arena, addr, bit)
    }
    fn bit_unlock(&self, arena: &Arena, addr: Addr, bit: u32) {
        bits::unlock(arena, addr, bit);
    }
    fn idle(&self, until: Option<Picos>) -> Wakeup {
        self.serve();
        let shared = self.shared();
        let state = &shared.states[usize::from(self.id.0)];
        let asleep = if until.is_some() { IDLE_TIMED } else { IDLE };
        if state.compare_exchange(RUNNING, asleep, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            state.store(RUNNING, Ordering::SeqCst);
            self.serve();
            return Wakeup::Kicked;
        }
        if until.is_none() {
            shared.count_out();
        }
        let reason = loop {
            if state.load(Ordering::SeqCst) == KICKED {
                state.store(RUNNING, Ordering::SeqCst);
                break Wakeup::Kicked;
            }
            if until.is_none() && shared.active.load(Ordering::SeqCst) == 0 {
                self.counted.set(false);
                state.store(RUNNING, Ordering::SeqCst);
                break Wakeup::Quiet;
            }
            let now = self.now();
            match until {
                Some(t) if now >= t => {
                    let kicked = state.swap(RUNNING, Ordering::SeqCst) == KICKED;
                    break if kicked { Wakeup::Kicked } else { Wakeup::Time };
                }
                Some(t) => std::thread::park_timeout(Duration::from_nanos((t.0 - now.0) / 1000 + 1)),
                None => std::thread::park(),
            }
        };
        self.serve();
        reason
    }
    fn kick(&self, target: CpuId) {
        let shared = self.shared();
        let target = usize::from(target.0);
        let state = &shared.states[target];
        loop {
            let now = state.load(Ordering::SeqCst);
            let next = match now {
                RUNNING => RUNNING_KICKED,
                IDLE | IDLE_TIMED => KICKED,
                _ => return,
            };
            if now == IDLE {
                shared.active.fetch_add(1, Ordering::SeqCst);
            }
            if state.compare_exchange(now, next, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                break;
            }
            if now == IDLE {
                shared.count_out();
            }
        }
        if let Some(thread) = &shared.threads.lock().unwrap()[target] {
            thread.unpark();
        }
    }
    fn is_idle(&self, target: CpuId) -> bool {
        matches!(self.shared().states[usize::from(target.0)].load(Ordering::Relaxed), IDLE | IDLE_TIMED)
    }
    fn call_on(&self, target: CpuId, f: &(dyn Fn(&Self) + Sync)) {
        self.shared().calls.post_and_wait(self, target, f);
    }
    #[inline]
    fn serve(&self) {
        self.shared().calls.serve(self);
    }
    fn random(&self, below: u64) -> u64 {
        let mut x = self.draws.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.draws.set(x);
        ((u128::from(x) * u128::from(below)) >> 64) as u64
    }
}

/// Locks that are a bit of a word of the arena.
pub(super) mod bits {
    use super::{Addr, Arena, Ordering, relax};

    pub(in super::super) fn lock(arena: &Arena, addr: Addr, bit: u32) {
        let mut tries = 0;
        while !try_lock(arena, addr, bit) {
            relax(&mut tries);
        }
    }
    pub(in super::super) fn try_lock(arena: &Arena, addr: Addr, bit: u32) -> bool {
        arena.atomic(addr).fetch_or(1 << bit, Ordering::Acquire) & (1 << bit) == 0
    }
    pub(in super::super) fn unlock(arena: &Arena, addr: Addr, bit: u32) {
        arena.atomic(addr).fetch_and(!(1u64 << bit), Ordering::Release);
    }
}

#[cfg(loom)]
fn relax(_: &mut u32) {
    loom::thread::yield_now();
}
#[cfg(not(loom))]
fn relax(tries: &mut u32) {
    *tries += 1;
    if *tries >= SPINS {
        *tries = 0;
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// A test-and-set lock that yields to the host.
pub struct NativeLock {
    held: AtomicBool,
}

impl NativeLock {
    pub(super) fn new() -> NativeLock {
        NativeLock { held: AtomicBool::new(false) }
    }
}

impl<C> RawLock<C> for NativeLock {
    #[inline]
    fn lock(&self, cpu: &C) {
        let mut tries = 0;
        while !self.try_lock(cpu) {
            loop {
                relax(&mut tries);
                if !self.held.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    }
    #[inline]
    fn try_lock(&self, _: &C) -> bool {
        // Whoever fails writes nothing: the line stays with the holder, and loom sees one writer at a time.
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
    #[inline]
    fn unlock(&self, _: &C) {
        self.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_runs_on_the_cpu_it_was_sent_to() {
        let machine = Native::new(Topology::blocks(2, 1, 1 << 22)).unwrap();
        let ran = Mutex::new(Vec::new());
        machine.boot(|cpu| {
            if cpu.id() == CpuId(0) {
                cpu.call_on(CpuId(1), &|c| ran.lock().unwrap().push(c.id()));
            } else {
                while cpu.idle(None) != Wakeup::Quiet {}
            }
        });
        assert_eq!(ran.into_inner().unwrap(), [CpuId(1)]);
    }
}
