//! The allocator's operations with their latency and time accounted for (`latency()`, `time()`).

use crate::alloc::SlabAllocator;
use crate::machine::{Cpu, Machine, Operation};
use crate::page::Taken;
use crate::spec::{CacheId, Object, Request};

fn measured<C: Cpu, R>(cpu: &C, operation: Operation, run: impl FnOnce() -> R) -> R {
    cpu.begin(operation);
    let result = run();
    cpu.end();
    result
}

/// Tells who watches of an object that was taken.
#[inline]
fn taken<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(allocator: &A, cpu: &M::Cpu, what: Taken, object: &Object) {
    if let Some(observer) = allocator.pages().observer() {
        observer.taken(cpu.id(), cpu.now(), what, object.addr());
    }
}

/// Tells who watches of an object that goes back.
#[inline]
fn given<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(allocator: &A, cpu: &M::Cpu, object: &Object) {
    if let Some(observer) = allocator.pages().observer() {
        observer.given(cpu.id(), cpu.now(), object.addr());
    }
}

/// [`SlabAllocator::alloc_bulk`].
pub(super) fn alloc_bulk<'p, M, A>(allocator: &A, cpu: &M::Cpu, cache: CacheId, n: u64) -> Option<Vec<Object>>
where
    M: Machine + 'p,
    A: SlabAllocator<'p, M>,
{
    let objects = allocator.alloc_bulk(cpu, cache, Request::default(), n)?;
    objects.iter().for_each(|object| taken(allocator, cpu, Taken::Cache(cache.0), object));
    Some(objects)
}

/// [`SlabAllocator::free_bulk`].
pub(super) fn free_bulk<'p, M, A>(allocator: &A, cpu: &M::Cpu, cache: CacheId, objects: Vec<Object>)
where
    M: Machine + 'p,
    A: SlabAllocator<'p, M>,
{
    objects.iter().for_each(|object| given(allocator, cpu, object));
    allocator.free_bulk(cpu, cache, objects);
}

/// [`SlabAllocator::alloc`].
pub(super) fn alloc<'p, M, A>(allocator: &A, cpu: &M::Cpu, cache: CacheId, want: Request) -> Option<Object>
where
    M: Machine + 'p,
    A: SlabAllocator<'p, M>,
{
    let object = measured(cpu, Operation::Alloc, || allocator.alloc(cpu, cache, want))?;
    taken(allocator, cpu, Taken::Cache(cache.0), &object);
    Some(object)
}

/// [`SlabAllocator::free`].
pub(super) fn free<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(
    allocator: &A,
    cpu: &M::Cpu,
    cache: CacheId,
    object: Object,
) {
    given(allocator, cpu, &object);
    measured(cpu, Operation::Free, || allocator.free(cpu, cache, object));
}

/// [`SlabAllocator::kmalloc`].
pub(super) fn kmalloc<'p, M, A>(allocator: &A, cpu: &M::Cpu, bytes: u64, want: Request) -> Option<Object>
where
    M: Machine + 'p,
    A: SlabAllocator<'p, M>,
{
    let object = measured(cpu, Operation::Alloc, || allocator.kmalloc(cpu, bytes, want))?;
    taken(allocator, cpu, Taken::Kmalloc(bytes), &object);
    Some(object)
}

/// [`SlabAllocator::kfree`].
pub(super) fn kfree<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(allocator: &A, cpu: &M::Cpu, object: Object) {
    given(allocator, cpu, &object);
    measured(cpu, Operation::Free, || allocator.kfree(cpu, object));
}
