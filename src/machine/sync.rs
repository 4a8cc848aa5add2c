//! The std/loom façade, and `SpinLock`: a lock of the machine around a value.
//!
//! Soundness of the unsafe code here: the value inside a [`SpinLock`] is only reachable through a [`Guard`], which
//! exists from a successful `lock` to `unlock`, or through `&mut`. The machine's [`RawLock`] excludes other CPUs in
//! between (its obligation), with acquire and release ordering on machines that have several host threads. Under loom the
//! cell itself checks that.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub(crate) use {
    cell::UnsafeCell,
    std::sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::{Machine, RawLock};

/// std's cell with loom's way in.
#[cfg(not(loom))]
mod cell {
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }
        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

/// Runs `body` for 0..n at the same time, 0 on the calling thread; returns when all have returned.
#[cfg(all(test, loom))]
pub(super) fn at_once(n: usize, body: &(dyn Fn(usize) + Sync)) {
    // SAFETY: only the lifetime is erased, because loom has no scoped threads; all of them are joined here.
    let body = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(body) };
    let others: Vec<_> = (1..n).map(|i| loom::thread::spawn(move || body(i))).collect();
    body(0);
    others.into_iter().for_each(|thread| thread.join().expect("a thread that returns"));
}

/// A value of type `T` behind a lock of machine `M`.
pub struct SpinLock<M: Machine, T> {
    raw: M::Lock,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is only accessed by the holder of `raw` (see above); handing it over needs `T: Send`.
unsafe impl<M: Machine, T: Send> Sync for SpinLock<M, T> where M::Lock: Sync {}

impl<M: Machine, T> SpinLock<M, T> {
    /// Wraps `value` behind `raw`.
    pub fn new(raw: M::Lock, value: T) -> Self {
        SpinLock { raw, value: UnsafeCell::new(value) }
    }
    /// Takes the lock on `cpu`.
    #[inline]
    pub fn lock<'a>(&'a self, cpu: &'a M::Cpu) -> Guard<'a, M, T> {
        self.raw.lock(cpu);
        Guard { lock: self, cpu }
    }
    /// Takes the lock if it is free.
    pub fn try_lock<'a>(&'a self, cpu: &'a M::Cpu) -> Option<Guard<'a, M, T>> {
        self.raw.try_lock(cpu).then(|| Guard { lock: self, cpu })
    }
    /// The value, when nobody else can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self`: there is no guard, and nobody else has a reference.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

/// The held lock; unlocks when dropped.
pub struct Guard<'a, M: Machine, T> {
    lock: &'a SpinLock<M, T>,
    cpu: &'a M::Cpu,
}

impl<M: Machine, T> Deref for Guard<'_, M, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, so nobody else has a reference to the value.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<M: Machine, T> DerefMut for Guard<'_, M, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock and is borrowed mutably.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<M: Machine, T> Drop for Guard<'_, M, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock(self.cpu);
    }
}
