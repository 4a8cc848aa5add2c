//! Locks in virtual time (machine-model.md §5): `dec-and-test` spin locks, and bit locks that behave alike.
//!
//! `held` is the holder or nobody. A holder that ran ahead and released leaves the release time in `free_at`; whoever
//! comes earlier waits for it. A release with waiters picks the nearest one (ties by the seed), which resumes after the
//! hand-off and *tries again*: the lock stays free until somebody takes it, so a CPU that acquires before that time
//! wins, the releaser too.

use std::collections::HashMap;

use super::World;
use super::fiber::SimCpu;
use crate::machine::{Access, Addr, Cpu, LockReport, RawLock};

const NOBODY: u16 = u16::MAX;

/// Index of a lock in the world's table.
pub struct SimLock {
    id: usize,
}

impl SimLock {
    pub(super) fn new(id: usize) -> SimLock {
        SimLock { id }
    }
}

struct Record {
    class: &'static str,
    addr: Addr,
    held: u16,
    free_at: u64,
    waiters: Vec<u16>,
    acquired: u64,
    contended: u64,
    waited: u64,
}

/// Every lock of a world.
#[derive(Default)]
pub(super) struct LockTable {
    records: Vec<Record>,
    bits: HashMap<u64, usize>,
}

impl LockTable {
    pub(super) fn add(&mut self, class: &'static str, addr: Addr) -> usize {
        let waiters = Vec::new();
        self.records.push(Record {
            class,
            addr,
            held: NOBODY,
            free_at: 0,
            waiters,
            acquired: 0,
            contended: 0,
            waited: 0,
        });
        self.records.len() - 1
    }
    /// The record of the bit lock in the word at `addr`; made at first use, found by address, never iterated by it.
    fn bit(&mut self, addr: Addr) -> usize {
        if let Some(&id) = self.bits.get(&addr.0) {
            return id;
        }
        let id = self.add("slab_lock", addr);
        self.bits.insert(addr.0, id);
        id
    }
    pub(super) fn report(&self) -> Vec<LockReport> {
        let mut classes: Vec<LockReport> = Vec::new();
        for r in &self.records {
            let entry = match classes.iter_mut().find(|c| c.class == r.class) {
                Some(c) => c,
                None => {
                    classes.push(LockReport { class: r.class, acquired: 0, contended: 0, wait_ps: 0 });
                    classes.last_mut().expect("just pushed")
                }
            };
            entry.acquired += r.acquired;
            entry.contended += r.contended;
            entry.wait_ps += r.waited;
        }
        classes
    }
    pub(super) fn reset(&mut self) {
        for r in &mut self.records {
            (r.acquired, r.contended, r.waited) = (0, 0, 0);
        }
    }
    /// Held locks and their waiters, for the report of a deadlock.
    pub(super) fn held(&self) -> String {
        let held = self.records.iter().filter(|r| r.held != NOBODY || !r.waiters.is_empty());
        held.map(|r| format!("{} at {:#x}: held by CPU {}, waiting {:?}\n", r.class, r.addr.0, r.held, r.waiters))
            .collect()
    }
}

/// What `attempt` decided.
enum Attempt {
    Taken,
    /// Free only in the future: try again at this time.
    Later(u64),
    Queued,
}

impl World {
    fn attempt(&mut self, cpu: usize, id: usize) -> Attempt {
        let now = self.clocks[cpu];
        let r = &mut self.locks.records[id];
        if r.held != NOBODY {
            r.waiters.push(cpu as u16);
            Attempt::Queued
        } else if now < r.free_at {
            Attempt::Later(r.free_at)
        } else {
            r.held = cpu as u16;
            r.acquired += 1;
            Attempt::Taken
        }
    }

    /// Picks the nearest waiter of a lock that `cpu` has just released and sends it to try again.
    fn hand_off(&mut self, cpu: usize, id: usize) {
        let waiters = std::mem::take(&mut self.locks.records[id].waiters);
        let Some(nearest) = waiters.iter().map(|&w| self.distance(cpu, usize::from(w))).min() else { return };
        let equal: Vec<usize> =
            (0..waiters.len()).filter(|&i| self.distance(cpu, usize::from(waiters[i])) == nearest).collect();
        let pick = if equal.len() > 1 { self.random(cpu, equal.len() as u64) as usize } else { 0 };
        let mut rest = waiters;
        let winner = usize::from(rest.remove(equal[pick]));
        let delay = self.hand_off_delay(cpu, winner, &rest);
        let line = self.locks.records[id].addr.line() as usize;
        self.locks.records[id].waiters = rest;
        self.memory.hand_over(winner, line);
        let at = self.clocks[cpu] + delay;
        self.resume_at(winner, at);
    }

    /// Transfer to the winner, and part of a transfer for each waiter that re-reads the line, up to a few of them.
    fn hand_off_delay(&self, cpu: usize, winner: usize, rest: &[u16]) -> u64 {
        let reread: u64 = rest
            .iter()
            .take(self.cost.reread_cap)
            .map(|&w| self.memory.transfer_between(&self.cost, cpu, usize::from(w)))
            .sum();
        self.memory.transfer_between(&self.cost, cpu, winner) + ((reread * self.cost.reread_x1024) >> 10)
    }
}

impl SimCpu {
    pub(super) fn acquire(&self, id: usize) {
        self.interact();
        let me = self.index();
        let since = self.with(|w| w.clocks[me]);
        let mut waited = false;
        loop {
            let attempt = self.with(|w| {
                // The attempt is decided now; its atomic access, which pulls the line here, is paid whatever it finds.
                let attempt = w.attempt(me, id);
                let addr = w.locks.records[id].addr;
                w.touch(me, addr, Access::Rmw);
                attempt
            });
            match attempt {
                Attempt::Taken => break,
                Attempt::Later(time) => self.with(|w| {
                    let delay = w.hand_off_delay(me, me, &[]);
                    w.resume_at(me, time + delay);
                }),
                Attempt::Queued => {}
            }
            waited = true;
            self.suspend();
            if self.with(|w| w.dead) {
                return;
            }
        }
        self.with(|w| {
            if waited {
                let record = &mut w.locks.records[id];
                record.contended += 1;
                record.waited += w.clocks[me] - since;
            }
        });
    }

    pub(super) fn try_acquire(&self, id: usize) -> bool {
        self.interact();
        let me = self.index();
        self.with(|w| {
            let now = w.clocks[me];
            let record = &mut w.locks.records[id];
            let free = record.held == NOBODY && now >= record.free_at;
            if free {
                record.held = me as u16;
                record.acquired += 1;
            }
            let addr = record.addr;
            w.touch(me, addr, Access::Rmw);
            free
        })
    }

    pub(super) fn release(&self, id: usize) {
        let me = self.index();
        let waiting = self.with(|w| {
            let addr = w.locks.records[id].addr;
            w.touch(me, addr, Access::Write);
            !w.locks.records[id].waiters.is_empty()
        });
        if waiting {
            self.interact();
        }
        self.with(|w| {
            let now = w.clocks[me];
            let record = &mut w.locks.records[id];
            debug_assert!(
                w.dead || record.held == me as u16,
                "{} released by CPU {me}, held by {}",
                record.class,
                record.held
            );
            record.held = NOBODY;
            record.free_at = now;
            if !w.dead {
                w.hand_off(me, id);
            }
        });
    }

    pub(super) fn bit_id(&self, addr: Addr) -> usize {
        self.with(|w| w.locks.bit(addr))
    }
}

impl RawLock<SimCpu> for SimLock {
    fn lock(&self, cpu: &SimCpu) {
        cpu.acquire(self.id);
    }
    fn try_lock(&self, cpu: &SimCpu) -> bool {
        cpu.try_acquire(self.id)
    }
    fn unlock(&self, cpu: &SimCpu) {
        cpu.release(self.id);
    }
}
