//! Pipes: sixteen pages, of which the last takes short messages while it has room, and one spare page (workloads.md §5.1;
//! kernel: fs/pipe.c). Nothing of it is a slab object. Its mutex is modelled as a spin lock.

use std::collections::VecDeque;

use crate::alloc::SlabAllocator;
use crate::machine::{Access, Addr, Cpu, Machine};
use crate::page::{Page, PageFlags, Pfn};
use crate::units::{Order, PAGE_SIZE};

use super::{Context, Net, Running, Step};

/// Pages of a full pipe (kernel: PIPE_BUFFERS).
const BUFFERS: usize = 16;

/// A page with unread bytes.
struct Buffer {
    pfn: Pfn,
    start: u32,
    end: u32,
}

/// A pipe.
pub(super) struct Pipe {
    addr: Addr,
    buffers: VecDeque<Buffer>,
    /// Kept for the next message (kernel: tmp_page).
    spare: Option<Pfn>,
    readers: Vec<u32>,
    writers: Vec<u32>,
}

impl Pipe {
    pub(super) fn new(addr: Addr) -> Pipe {
        Pipe { addr, buffers: VecDeque::new(), spare: None, readers: Vec::new(), writers: Vec::new() }
    }
}

impl<M: Machine> Net<M> {
    /// Writes a message; sleeps while the pipe is full.
    pub(super) fn pipe_write<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        pipe: u32,
        bytes: u32,
    ) -> Step {
        let mut guard = self.pipes[pipe as usize].lock(c.cpu);
        let addr = guard.addr;
        self.use_file(c.cpu, addr.plus(128));
        c.cpu.touch(addr.plus(64), Access::Write);
        while task.progress < bytes {
            let n = (bytes - task.progress).min(PAGE_SIZE as u32);
            let room = guard.buffers.back().is_some_and(|b| b.end + n <= PAGE_SIZE as u32);
            if !room {
                if guard.buffers.len() == BUFFERS {
                    guard.writers.push(task.id);
                    let readers = std::mem::take(&mut guard.readers);
                    drop(guard);
                    self.wake_all(c, readers);
                    return Step::Wait;
                }
                let pfn = match guard.spare.take() {
                    Some(pfn) => pfn,
                    None => {
                        let Some(page) = c.pages.alloc_pages(c.cpu, Order(0), None, PageFlags::default()) else {
                            c.counts.failed += 1;
                            return Step::Retry;
                        };
                        c.counts.frag_pages += 1;
                        self.lent(Order(0), 1);
                        page.into_pfn()
                    }
                };
                guard.buffers.push_back(Buffer { pfn, start: 0, end: 0 });
            }
            let last = guard.buffers.back_mut().expect("one with room");
            let at = c.pages.addr_of(last.pfn).plus(u64::from(last.end));
            last.end += n;
            self.copy_bytes(c, at, n, true);
            task.progress += n;
        }
        self.work(c.cpu, self.plan.rules.costs.pipe.0);
        c.counts.messages += 1;
        let readers = std::mem::take(&mut guard.readers);
        drop(guard);
        self.wake_all(c, readers);
        Step::Done
    }

    /// Reads exactly `bytes` bytes; sleeps while they are not there.
    pub(super) fn pipe_read<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        pipe: u32,
        bytes: u32,
    ) -> Step {
        let mut guard = self.pipes[pipe as usize].lock(c.cpu);
        let addr = guard.addr;
        self.use_file(c.cpu, addr.plus(128));
        c.cpu.touch(addr.plus(64), Access::Write);
        let mut writers = Vec::new();
        while task.progress < bytes {
            let Some(first) = guard.buffers.front_mut() else {
                guard.readers.push(task.id);
                break;
            };
            let n = (first.end - first.start).min(bytes - task.progress);
            let (pfn, at) = (first.pfn, c.pages.addr_of(first.pfn).plus(u64::from(first.start)));
            first.start += n;
            let empty = first.start == first.end;
            self.copy_bytes(c, at, n, false);
            task.progress += n;
            if empty {
                guard.buffers.pop_front();
                writers.append(&mut guard.writers);
                if guard.spare.is_none() {
                    guard.spare = Some(pfn);
                } else {
                    c.pages.free_pages(c.cpu, Page::of(pfn, Order(0)));
                    self.lent(Order(0), -1);
                }
            }
        }
        self.work(c.cpu, self.plan.rules.costs.pipe.1);
        drop(guard);
        self.wake_all(c, writers);
        if task.progress == bytes { Step::Done } else { Step::Wait }
    }

    /// Pipes wake in sync in every era.
    fn wake_all<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>, tasks: Vec<u32>) {
        tasks.into_iter().for_each(|task| self.wake(c, task, true));
    }

    pub(super) fn tear_down_pipes<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>) {
        for pipe in &self.pipes {
            let (buffers, spare) = {
                let mut guard = pipe.lock(c.cpu);
                (std::mem::take(&mut guard.buffers), guard.spare.take())
            };
            for pfn in buffers.iter().map(|b| b.pfn).chain(spare) {
                c.pages.free_pages(c.cpu, Page::of(pfn, Order(0)));
                self.lent(Order(0), -1);
            }
        }
    }
}
