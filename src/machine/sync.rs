//! The std/loom façade, and `SpinLock`: a lock of the machine around a value.
//!
//! Soundness of the unsafe code here: the value inside a [`SpinLock`] is only reachable through a [`Guard`], which
//! exists from a successful `lock` to `unlock`, or through `&mut`. The machine's [`RawLock`] excludes other CPUs in
//! between (its obligation), with acquire and release ordering on machines that have several host threads.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

use super::{Machine, RawLock};

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
        self.value.get_mut()
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
        unsafe { &*self.lock.value.get() }
    }
}

impl<M: Machine, T> DerefMut for Guard<'_, M, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock and is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<M: Machine, T> Drop for Guard<'_, M, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock(self.cpu);
    }
}
