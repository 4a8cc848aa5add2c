//! The allocator's operations with their latency and time accounted for (`latency()`, `time()`).

use crate::alloc::SlabAllocator;
use crate::machine::{Cpu, Machine, Operation};
use crate::spec::{CacheId, Object, Request};

fn measured<C: Cpu, R>(cpu: &C, operation: Operation, run: impl FnOnce() -> R) -> R {
    cpu.begin(operation);
    let result = run();
    cpu.end();
    result
}

/// [`SlabAllocator::alloc`].
pub(super) fn alloc<'p, M, A>(allocator: &A, cpu: &M::Cpu, cache: CacheId, want: Request) -> Option<Object>
where
    M: Machine + 'p,
    A: SlabAllocator<'p, M>,
{
    measured(cpu, Operation::Alloc, || allocator.alloc(cpu, cache, want))
}

/// [`SlabAllocator::free`].
pub(super) fn free<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(
    allocator: &A,
    cpu: &M::Cpu,
    cache: CacheId,
    object: Object,
) {
    measured(cpu, Operation::Free, || allocator.free(cpu, cache, object));
}

/// [`SlabAllocator::kmalloc`].
pub(super) fn kmalloc<'p, M, A>(allocator: &A, cpu: &M::Cpu, bytes: u64, want: Request) -> Option<Object>
where
    M: Machine + 'p,
    A: SlabAllocator<'p, M>,
{
    measured(cpu, Operation::Alloc, || allocator.kmalloc(cpu, bytes, want))
}

/// [`SlabAllocator::kfree`].
pub(super) fn kfree<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(allocator: &A, cpu: &M::Cpu, object: Object) {
    measured(cpu, Operation::Free, || allocator.kfree(cpu, object));
}
