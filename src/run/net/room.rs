//! Rooms: one message for all members (workloads.md §7: a queue under a mutex, and a futex for those that wait). Nothing of
//! it is allocated.

use crate::alloc::SlabAllocator;
use crate::machine::{Access, Addr, Cpu, Event, Machine};

use super::{Context, Net, Running, Step};

/// A room.
pub(super) struct Room {
    addr: Addr,
    posted: u64,
    /// Messages that each member has taken.
    taken: Vec<u64>,
    asleep: Vec<u32>,
}

impl Room {
    pub(super) fn new(addr: Addr, members: u32) -> Room {
        Room { addr, posted: 0, taken: vec![0; members as usize], asleep: Vec::new() }
    }
}

impl<M: Machine> Net<M> {
    /// Puts a message before all members and wakes those that sleep.
    pub(super) fn post<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, room: u32) -> Step {
        let mut guard = self.rooms[room as usize].lock(c.cpu);
        c.cpu.touch(guard.addr.plus(64), Access::Write);
        guard.posted += 1;
        self.work(c.cpu, self.plan.rules.costs.room.0);
        let asleep = std::mem::take(&mut guard.asleep);
        drop(guard);
        if !asleep.is_empty() {
            c.cpu.spend(Event::Syscall);
        }
        asleep.into_iter().for_each(|task| self.wake(c, task, false));
        Step::Done
    }

    /// Takes the next message, or sleeps.
    pub(super) fn take<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        room: u32,
        member: u32,
    ) -> Step {
        let mut guard = self.rooms[room as usize].lock(c.cpu);
        c.cpu.touch(guard.addr.plus(64), Access::Write);
        if guard.taken[member as usize] < guard.posted {
            guard.taken[member as usize] += 1;
            drop(guard);
            self.work(c.cpu, self.plan.rules.costs.room.1);
            return Step::Done;
        }
        guard.asleep.push(task.id);
        drop(guard);
        c.cpu.spend(Event::Syscall);
        Step::Wait
    }
}
