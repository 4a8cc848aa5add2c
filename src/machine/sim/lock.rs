//! Locks in virtual time (machine-model.md §5): `dec-and-test`, `ticket` and `mcs` spin locks, and bit locks, which behave as
//! dec-and-test.
//!
//! `held` is the holder or nobody. A holder that ran ahead and released leaves the release time in `free_at`; whoever
//! comes earlier waits for it. A release with waiters
//!
//! - of a ticket or mcs lock makes the first one the holder, which resumes after the hand-off;
//! - of a dec-and-test or bit lock picks the nearest one (ties by the seed), which resumes after the hand-off and *tries
//!   again*: the lock stays free until somebody takes it, so a CPU that acquires before that time wins, the releaser too.

use std::collections::HashMap;

use super::World;
use super::fiber::SimCpu;
use super::time::{Account, Part};
use crate::machine::{Access, Addr, Cpu, LockReport, Path, RawLock, WaitReport};
use crate::units::CpuId;

const NOBODY: u16 = u16::MAX;

/// Who gets a lock next, and what the hand-off costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// x86-64 up to 2.6.24: a decrement, then everybody spins on the word. The nearest waiter wins, if nobody comes first.
    DecAndTest,
    /// 2.6.25 to 4.1: first come, first served; all waiters re-read the word at each hand-off.
    Ticket,
    /// 4.2 and later: first come, first served; each waiter spins on a line of its own.
    Mcs,
}

impl LockKind {
    /// The kind of a name as `locks=` gives it, or that of the kernel `release`.
    pub fn named(name: &str, release: (u32, u32, u32)) -> LockKind {
        match name {
            "dec-and-test" => LockKind::DecAndTest,
            "ticket" => LockKind::Ticket,
            "mcs" => LockKind::Mcs,
            _ if release <= (2, 6, 24) => LockKind::DecAndTest,
            _ if release < (4, 2, 0) => LockKind::Ticket,
            _ => LockKind::Mcs,
        }
    }
    fn is_fair(self) -> bool {
        self != LockKind::DecAndTest
    }
}

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
    class: usize,
    kind: LockKind,
    addr: Addr,
    held: u16,
    /// Whoever released it last.
    last: u16,
    free_at: u64,
    /// In order of arrival.
    waiters: Vec<u16>,
}

/// Every lock of a world.
#[derive(Default)]
pub(super) struct LockTable {
    records: Vec<Record>,
    /// By class; a class is named once. Their `wait_ps` stays 0: what was waited is in the account of time.
    reports: Vec<LockReport>,
    bits: HashMap<u64, usize>,
    /// By class and CPU: how long the CPU waited for such locks, and how long others waited for it.
    waits: Vec<Vec<Waits>>,
    /// Up to when each waiting CPU's wait has been put down to a holder.
    accounted: Vec<u64>,
}

/// Waiting of one CPU and for one CPU, in picoseconds: from the first access that finds the lock taken until the CPU goes
/// on, further accesses in vain among it. The access that takes the lock is none of it. The waiter books the first from its own clock when it goes on; the
/// holders book the second, each for the stretch until its release. Over all CPUs of a class both are the same time.
#[derive(Clone, Copy, Default)]
struct Waits {
    waited: u64,
    waited_for: u64,
}

/// The class of bit locks.
const BIT_CLASS: &str = "slab_lock";

impl LockTable {
    pub(super) fn new(cpus: usize) -> LockTable {
        LockTable { accounted: vec![0; cpus], ..LockTable::default() }
    }
    pub(super) fn add(&mut self, class: &'static str, kind: LockKind, addr: Addr) -> usize {
        let index = match self.reports.iter().position(|r| r.class == class) {
            Some(index) => index,
            None => {
                self.reports.push(LockReport { class, acquired: 0, contended: 0, wait_ps: 0 });
                self.waits.push(vec![Waits::default(); self.accounted.len()]);
                self.reports.len() - 1
            }
        };
        self.records.push(Record {
            class: index,
            kind,
            addr,
            held: NOBODY,
            last: NOBODY,
            free_at: 0,
            waiters: Vec::new(),
        });
        self.records.len() - 1
    }
    /// The record of the bit lock in the word at `addr`; made at first use, found by address, never iterated by it.
    fn bit(&mut self, addr: Addr) -> usize {
        if let Some(&id) = self.bits.get(&addr.0) {
            return id;
        }
        let id = self.add(BIT_CLASS, LockKind::DecAndTest, addr);
        self.bits.insert(addr.0, id);
        id
    }
    /// Counts of each class, with what `account` has put down as waiting for it.
    pub(super) fn report(&self, account: &Account) -> Vec<LockReport> {
        let with = |(class, r): (usize, &LockReport)| LockReport { wait_ps: account.waiting(class), ..r.clone() };
        self.reports.iter().enumerate().map(with).collect()
    }
    /// Who waited and who was waited for, by class and CPU: those that did.
    pub(super) fn waits(&self) -> Vec<WaitReport> {
        let rows = self.reports.iter().zip(&self.waits).flat_map(|(report, waits)| {
            waits.iter().enumerate().map(|(cpu, w)| WaitReport {
                class: report.class,
                cpu: CpuId(cpu as u16),
                waited_ps: w.waited,
                waited_for_ps: w.waited_for,
            })
        });
        rows.filter(|w| w.waited_ps + w.waited_for_ps > 0).collect()
    }
    /// Forgets who waited for whom: the window of the account begins.
    pub(super) fn forget_waits(&mut self) {
        for waits in &mut self.waits {
            waits.fill(Waits::default());
        }
    }
    /// Names of the classes by index.
    pub(super) fn classes(&self) -> Vec<&'static str> {
        self.reports.iter().map(|r| r.class).collect()
    }
    pub(super) fn reset(&mut self) {
        for r in &mut self.reports {
            (r.acquired, r.contended) = (0, 0);
        }
    }
    /// Held locks and their waiters, for the report of a deadlock.
    pub(super) fn held(&self) -> String {
        let held = self.records.iter().filter(|r| r.held != NOBODY || !r.waiters.is_empty());
        held.map(|r| {
            let class = self.reports[r.class].class;
            format!("{class} at {:#x}: held by CPU {}, waiting {:?}\n", r.addr.0, r.held, r.waiters)
        })
        .collect()
    }
}

/// What `attempt` decided.
#[derive(Clone, Copy)]
enum Attempt {
    Taken,
    /// Free only in the future: try again (fair kinds: it is ours) at this time.
    Later(u64),
    Queued,
}

impl World {
    /// Tries to take lock `id`; a CPU that waited for a fair lock finds itself the holder.
    fn attempt(&mut self, cpu: usize, id: usize, waited: bool) -> Attempt {
        let now = self.clocks[cpu];
        let r = &mut self.locks.records[id];
        if waited && r.kind.is_fair() {
            debug_assert_eq!(r.held, cpu as u16, "a fair lock is handed over");
            Attempt::Taken
        } else if r.held != NOBODY {
            r.waiters.push(cpu as u16);
            Attempt::Queued
        } else if now < r.free_at {
            if r.kind.is_fair() {
                r.held = cpu as u16;
            }
            Attempt::Later(r.free_at)
        } else {
            r.held = cpu as u16;
            Attempt::Taken
        }
    }

    /// What `waiter` waited until `to` was for `holder`.
    fn account_wait(&mut self, class: usize, holder: usize, waiter: usize, to: u64) {
        let from = self.locks.accounted[waiter];
        if to > from {
            self.locks.waits[class][holder].waited_for += self.account.inside(from, to);
            self.locks.accounted[waiter] = to;
        }
    }

    /// What all waiters of a lock waited until now was for `holder`, who has released it.
    fn account_waits(&mut self, id: usize, holder: usize) {
        let (now, locks) = (self.clocks[holder], &mut self.locks);
        let Record { class, waiters, .. } = &locks.records[id];
        let mut sum = 0;
        for waiter in waiters {
            let from = &mut locks.accounted[usize::from(*waiter)];
            if now > *from {
                sum += self.account.inside(*from, now);
                *from = now;
            }
        }
        locks.waits[*class][holder].waited_for += sum;
    }

    /// Passes a lock that `cpu` has just released on to a waiter, if there is one.
    fn hand_off(&mut self, cpu: usize, id: usize) {
        if self.locks.records[id].waiters.is_empty() {
            return;
        }
        self.account_waits(id, cpu);
        let (now, class) = (self.clocks[cpu], self.locks.records[id].class);
        let mut rest = std::mem::take(&mut self.locks.records[id].waiters);
        let kind = self.locks.records[id].kind;
        let pick = if kind.is_fair() { 0 } else { self.nearest(cpu, &rest) };
        let winner = usize::from(rest.remove(pick));
        let delay = self.hand_off_delay(kind, cpu, winner, &rest);
        let record = &mut self.locks.records[id];
        record.waiters = rest;
        if kind.is_fair() {
            record.held = winner as u16;
        }
        let line = record.addr.line() as usize;
        self.memory.hand_over(winner, line);
        // The winner may still be paying for the access that found the lock taken.
        let at = (now + delay).max(self.clocks[winner]);
        self.account_wait(class, cpu, winner, at);
        self.resume_at(winner, at, Part::Lock(class));
    }

    /// The waiter with the cheapest transfer; ties by the seed.
    fn nearest(&mut self, cpu: usize, waiters: &[u16]) -> usize {
        let distance = |w: &u16| self.distance(cpu, usize::from(*w));
        let least = waiters.iter().map(distance).min();
        let equal: Vec<usize> = (0..waiters.len()).filter(|&i| Some(distance(&waiters[i])) == least).collect();
        if equal.len() > 1 { equal[self.random(cpu, equal.len() as u64) as usize] } else { equal[0] }
    }

    /// Transfer to the winner; for kinds whose waiters spin on one word also what their re-reading costs: part of a
    /// transfer each, of a few of them (dec-and-test), or a transfer each (ticket).
    fn hand_off_delay(&self, kind: LockKind, cpu: usize, winner: usize, rest: &[u16]) -> u64 {
        let transfer = |w: usize| self.memory.transfer_between(&self.cost, cpu, w);
        let to = |w: &u16| transfer(usize::from(*w));
        let rereads = match kind {
            LockKind::DecAndTest => {
                (rest.iter().take(self.cost.reread_cap).map(to).sum::<u64>() * self.cost.reread_x1024) >> 10
            }
            LockKind::Ticket => rest.iter().map(to).sum(),
            LockKind::Mcs => 0,
        };
        transfer(winner) + rereads
    }
}

impl SimCpu {
    pub(super) fn acquire(&self, id: usize) {
        self.interact();
        let me = self.index();
        let class = self.with(|w| w.locks.records[id].class);
        let mut waited = false;
        loop {
            let (attempt, since) = self.with(|w| {
                // The attempt is decided now; its atomic access, which pulls the line here, is paid whatever it finds: by
                // the wait if it finds the lock taken.
                let since = w.clocks[me];
                let attempt = w.attempt(me, id, waited);
                let addr = w.locks.records[id].addr;
                match attempt {
                    Attempt::Taken => w.touch(me, addr, Access::Rmw),
                    Attempt::Later(_) | Attempt::Queued => w.touch_for(me, addr, Access::Rmw, Part::Lock(class)),
                }
                w.locks.accounted[me] = since;
                (attempt, since)
            });
            match attempt {
                Attempt::Taken => break,
                Attempt::Later(time) => self.with(|w| {
                    let Record { kind, last, .. } = w.locks.records[id];
                    let delay = w.hand_off_delay(kind, usize::from(last), me, &[]);
                    let at = (time + delay).max(w.clocks[me]);
                    w.account_wait(class, usize::from(last), me, at);
                    w.resume_at(me, at, Part::Lock(class));
                }),
                Attempt::Queued => {}
            }
            waited = true;
            self.suspend();
            if self.with(|w| w.dead) {
                return;
            }
            self.with(|w| w.locks.waits[class][me].waited += w.account.inside(since, w.clocks[me]));
        }
        self.with(|w| {
            let report = &mut w.locks.reports[class];
            report.acquired += 1;
            report.contended += u64::from(waited);
            if report.class != BIT_CLASS {
                w.account.reached(me, Path::List);
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
                w.locks.reports[record.class].acquired += 1;
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
                "lock at {:#x} released by CPU {me}, held by {}",
                record.addr.0,
                record.held
            );
            record.held = NOBODY;
            record.last = me as u16;
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
