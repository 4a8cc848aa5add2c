//! A padded slot per CPU, and the mailboxes of `call_on`.
//!
//! Soundness of the unsafe code here: a slot is reached either with the token of its CPU (`Machine::boot` hands out
//! one each, it is not Sync, and `with` does not nest: a flag per slot checks that in debug builds), or through
//! `&mut`, when no CPU runs. A mailbox holds a pointer to a closure on the caller's stack; the caller does not return
//! from `post_and_wait` before the target has run it, so it is alive and called from one thread at a time.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{Cpu, Machine};
use crate::units::CpuId;

#[repr(align(128))]
struct Slot<T> {
    value: UnsafeCell<T>,
    taken: Cell<bool>,
}

/// One `T` per CPU of a machine.
pub struct PerCpu<M: Machine, T> {
    slots: Box<[Slot<T>]>,
    machine: PhantomData<fn(&M)>,
}

// SAFETY: each slot is only reached by its own CPU (the token proves it) or through `&mut`.
unsafe impl<M: Machine, T: Send> Sync for PerCpu<M, T> {}

impl<M: Machine, T> PerCpu<M, T> {
    /// One slot per CPU of `machine`, made by `init`.
    pub fn new(machine: &M, mut init: impl FnMut(CpuId) -> T) -> Self {
        let slots = machine
            .topology()
            .cpu_ids()
            .map(|cpu| Slot { value: UnsafeCell::new(init(cpu)), taken: Cell::new(false) })
            .collect();
        PerCpu { slots, machine: PhantomData }
    }

    /// Runs `f` on this CPU's slot. Does not nest for one `PerCpu`; `f` must not reach a point of interaction.
    #[inline]
    pub fn with<R>(&self, cpu: &M::Cpu, f: impl FnOnce(&mut T) -> R) -> R {
        let slot = &self.slots[usize::from(cpu.id().0)];
        debug_assert!(!slot.taken.replace(true), "PerCpu::with nests on CPU {}", cpu.id());
        // SAFETY: `cpu` is the only token for this slot, it is not Sync, and `with` does not nest (checked above).
        let result = f(unsafe { &mut *slot.value.get() });
        if cfg!(debug_assertions) {
            slot.taken.set(false);
        }
        result
    }

    /// Another CPU's slot, when no CPU runs.
    pub fn get_mut(&mut self, cpu: CpuId) -> &mut T {
        self.slots[usize::from(cpu.0)].value.get_mut()
    }
    /// All slots in order of CPU, when no CPU runs.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (CpuId, &mut T)> {
        self.slots.iter_mut().enumerate().map(|(i, s)| (CpuId(i as u16), s.value.get_mut()))
    }
}

struct Call<C> {
    run: *const (dyn Fn(&C) + Sync),
    done: *const AtomicBool,
    from: CpuId,
}
// SAFETY: the pointers stay valid until `done` is set (see above); the closure is Sync.
unsafe impl<C> Send for Call<C> {}

/// Calls waiting for each CPU.
pub(super) struct Mailboxes<C> {
    waiting: Box<[Mutex<Vec<Call<C>>>]>,
    pending: AtomicUsize,
}

impl<C: Cpu> Mailboxes<C> {
    pub(super) fn new(cpus: usize) -> Self {
        Mailboxes { waiting: (0..cpus).map(|_| Mutex::new(Vec::new())).collect(), pending: AtomicUsize::new(0) }
    }

    /// Leaves `f` for `target`, wakes it, and serves and sleeps on `cpu` until it has run.
    pub(super) fn post_and_wait(&self, cpu: &C, target: CpuId, f: &(dyn Fn(&C) + Sync)) {
        if target == cpu.id() {
            return f(cpu);
        }
        cpu.interact();
        let done = AtomicBool::new(false);
        // SAFETY: only the lifetime is erased; this function does not return before `done` is set, and `serve` does
        // not use either pointer after setting it.
        let run =
            unsafe { std::mem::transmute::<*const (dyn Fn(&C) + Sync + '_), *const (dyn Fn(&C) + Sync + 'static)>(f) };
        self.waiting[usize::from(target.0)].lock().unwrap().push(Call { run, done: &done, from: cpu.id() });
        self.pending.fetch_add(1, Ordering::Release);
        cpu.kick(target);
        while !done.load(Ordering::Acquire) {
            cpu.serve();
            if !done.load(Ordering::Acquire) {
                cpu.idle(None);
            }
        }
    }

    /// True if a call waits for `target`.
    pub(super) fn waits_for(&self, target: CpuId) -> bool {
        self.pending.load(Ordering::Acquire) != 0 && !self.waiting[usize::from(target.0)].lock().unwrap().is_empty()
    }

    /// Runs what waits for `cpu`, in order of arrival.
    #[inline]
    pub(super) fn serve(&self, cpu: &C) {
        if self.pending.load(Ordering::Acquire) != 0 {
            self.serve_slow(cpu);
        }
    }

    #[cold]
    fn serve_slow(&self, cpu: &C) {
        loop {
            let calls = std::mem::take(&mut *self.waiting[usize::from(cpu.id().0)].lock().unwrap());
            if calls.is_empty() {
                return;
            }
            for call in calls {
                self.pending.fetch_sub(1, Ordering::Release);
                // SAFETY: the poster waits for `done`, so the closure is alive; it is called here only.
                unsafe { (*call.run)(cpu) };
                // SAFETY: as above; after this store the poster may return, and nothing of the call is used again.
                unsafe { (*call.done).store(true, Ordering::Release) };
                cpu.kick(call.from);
            }
        }
    }
}
