//! The event queue: runnable CPUs keyed by (virtual time, sequence number).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::machine::presets::MAX_CPUS;

/// Runnable CPUs; each has at most one entry. Ties go to whoever was queued first.
#[derive(Default)]
pub(super) struct EventQueue {
    /// Time, and the sequence number with the CPU in its last byte: CPUs are fewer than 256.
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    sequence: u64,
}

const CPU_BITS: u32 = 8;
const _: () = assert!(MAX_CPUS <= 1 << CPU_BITS);

impl EventQueue {
    /// Queues `cpu` at `time`.
    #[inline]
    pub(super) fn push(&mut self, time: u64, cpu: usize) {
        self.sequence += 1;
        self.heap.push(Reverse((time, self.sequence << CPU_BITS | cpu as u64)));
    }
    /// Takes the earliest CPU.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<usize> {
        self.heap.pop().map(|Reverse((_, entry))| entry as usize & ((1 << CPU_BITS) - 1))
    }
    /// Time of the earliest entry; the end of time when there is none.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |Reverse((time, _))| *time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_whoever_was_queued_first() {
        let mut q = EventQueue::default();
        for cpu in [3, 1, 2] {
            q.push(10, cpu);
        }
        q.push(5, 0);
        assert_eq!(q.head(), 5);
        let order: Vec<_> = std::iter::from_fn(|| q.pop()).collect();
        assert_eq!(order, [0, 3, 1, 2]);
    }
}
