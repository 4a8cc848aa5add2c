//! Stream sockets of AF_UNIX: the writer allocates, the reader frees, first in first out; what was written and not yet read
//! counts against the *writer's* socket (workloads.md §2.4).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::alloc::SlabAllocator;
use crate::machine::{Access, Addr, Cpu, Machine, SpinLock};
use crate::workload::SockId;

use super::skb::Skb;
use super::{Context, Net, Running, Step};

/// A socket end.
pub(super) struct Stream<M: Machine> {
    received: SpinLock<M, Received>,
    /// Sum of truesize over what was written here and not yet freed (kernel: sk_wmem_alloc).
    written: AtomicU32,
    /// Tasks that wait until less of it is there, and how many: read without the lock.
    writers: SpinLock<M, Vec<u32>>,
    sleeping: AtomicU32,
    addr: Addr,
}

/// What waits to be read here.
#[derive(Default)]
struct Received {
    queue: VecDeque<Skb>,
    /// The task that sleeps in read.
    reader: Option<u32>,
}

impl<M: Machine> Stream<M> {
    pub(super) fn new(machine: &M, addr: Addr) -> Self {
        Stream {
            received: SpinLock::new(machine.lock("sk_receive_queue.lock", addr), Received::default()),
            written: AtomicU32::new(0),
            writers: SpinLock::new(machine.lock("sk_wq.lock", addr.plus(128)), Vec::new()),
            sleeping: AtomicU32::new(0),
            addr,
        }
    }

    /// The line of `written`, with a locked operation.
    fn charge(&self, cpu: &M::Cpu) {
        cpu.interact();
        cpu.touch(self.addr.plus(64), Access::Rmw);
    }
}

impl<M: Machine> Net<M> {
    /// Writes a message, one buffer unless it is very long. Sleeps while `written` has reached the limit.
    pub(super) fn unix_send<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        sock: SockId,
        bytes: u32,
    ) -> Step {
        let (own, peer) = (&self.unix[sock.0 as usize], &self.unix[sock.peer().0 as usize]);
        let rules = &self.plan.rules;
        self.use_file(c.cpu, own.addr.plus(192));
        while task.progress < bytes {
            c.cpu.interact();
            c.cpu.touch(own.addr.plus(64), Access::Read);
            if own.written.load(Ordering::SeqCst) >= self.plan.sndbuf {
                let mut writers = own.writers.lock(c.cpu);
                own.sleeping.fetch_add(1, Ordering::SeqCst);
                // Looked at again with the lock held: a reader that has freed since then finds this sleeper.
                if own.written.load(Ordering::SeqCst) >= self.plan.sndbuf {
                    writers.push(task.id);
                    return Step::Wait;
                }
                own.sleeping.fetch_sub(1, Ordering::SeqCst);
            }
            let len = (bytes - task.progress).min(rules.unix_most()).min(self.plan.sndbuf / 2);
            let Some(skb) = self.make_skb(c, len, rules.unix_buffer(len), rules.unix_small) else {
                c.counts.failed += 1;
                return Step::Retry;
            };
            own.charge(c.cpu);
            own.written.fetch_add(skb.truesize, Ordering::SeqCst);
            self.work(c.cpu, rules.costs.unix.0);
            let mut received = peer.received.lock(c.cpu);
            received.queue.push_back(skb);
            let reader = received.reader.take();
            drop(received);
            if let Some(reader) = reader {
                self.wake(c, reader, rules.sync);
            }
            task.progress += len;
        }
        c.counts.messages += 1;
        Step::Done
    }

    /// Reads exactly `bytes` bytes, sleeping as long as they are not there.
    pub(super) fn unix_recv<'p, A: SlabAllocator<'p, M>>(
        &self,
        c: &mut Context<'_, 'p, M, A>,
        task: &mut Running,
        sock: SockId,
        bytes: u32,
    ) -> Step {
        let (own, peer) = (&self.unix[sock.0 as usize], &self.unix[sock.peer().0 as usize]);
        self.use_file(c.cpu, own.addr.plus(192));
        while task.progress < bytes {
            let mut received = own.received.lock(c.cpu);
            let Some(mut skb) = received.queue.pop_front() else {
                received.reader = Some(task.id);
                return Step::Wait;
            };
            drop(received);
            let n = (skb.len - skb.read).min(bytes - task.progress);
            c.cpu.touch_span(skb.head, 128, Access::Read);
            self.work(c.cpu, self.plan.rules.costs.unix.1);
            self.copy_bytes(c, skb.data.plus(u64::from(skb.read)), n, false);
            task.progress += n;
            skb.read += n;
            if skb.read < skb.len {
                own.received.lock(c.cpu).queue.push_front(skb);
                continue;
            }
            peer.charge(c.cpu);
            let left = peer.written.fetch_sub(skb.truesize, Ordering::SeqCst) - skb.truesize;
            // A quarter of the limit must be free of it before writers are worth a wake-up (kernel: unix_writable).
            if u64::from(left) * 4 <= u64::from(self.plan.sndbuf) && peer.sleeping.load(Ordering::SeqCst) > 0 {
                let writers = {
                    let mut writers = peer.writers.lock(c.cpu);
                    peer.sleeping.store(0, Ordering::SeqCst);
                    std::mem::take(&mut *writers)
                };
                for writer in writers {
                    self.wake(c, writer, self.plan.rules.sync);
                }
            }
            self.free_skb(c, &skb);
        }
        Step::Done
    }

    pub(super) fn tear_down_unix<'p, A: SlabAllocator<'p, M>>(&self, c: &mut Context<'_, 'p, M, A>) {
        for sock in &self.unix {
            let queue = std::mem::take(&mut sock.received.lock(c.cpu).queue);
            queue.iter().for_each(|skb| self.free_skb(c, skb));
        }
    }
}
