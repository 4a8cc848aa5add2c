//! The node record (kernel: kmem_list3, later kmem_cache_node): three lists of slabs, the shared array, alien arrays; allocation from a named node
//! and frees of other nodes' objects.

use std::ops::{Deref, DerefMut};

use super::Slab;
use super::array::{Array, modify};
use super::cache::Cache;
use super::grow::Growth;
use super::header::{Header, Headers};
use super::list::SlabList;
use super::policy::{Excess, NewSlab, SharedTouched};
use crate::alloc::Stat;
use crate::machine::{Access, Addr, Cpu, Guard, Machine, SpinLock, Word, cost};
use crate::spec::Request;
use crate::units::NodeId;

/// Bytes of a node record: lists and counts in the first line, `list_lock` and pointers in the second.
pub(super) const RECORD_BYTES: u64 = 128;
/// Offset of `list_lock` in the record.
pub(super) const LOCK_OFFSET: u64 = 64;

/// One node's part of a cache.
pub(super) struct Node<M: Machine> {
    pub(super) addr: Addr,
    pub(super) lists: SpinLock<M, Lists>,
    /// Objects of node k freed on this node wait in `alien[k]`. `None` for the node itself, and on one node,
    /// and everywhere without `aliens`.
    pub(super) alien: Vec<Option<SpinLock<M, Array>>>,
    /// Jiffy from which the reaper may trim shared array and free list again. Read and written without a lock.
    pub(super) next_reap: Word,
    /// Colour of the last slab, or of the next one, as the era has it.
    pub(super) colour_next: Word,
    /// Objects in slabs and in the shared array, as of the last release of `list_lock`.
    pub(super) stock: Word,
}

/// What `list_lock` protects. `free_objects = Σ (num − inuse)` over partial and free slabs; inuse is `num` in full,
/// 0 in free, in between in partial ones.
pub(super) struct Lists {
    pub(super) full: SlabList,
    pub(super) partial: SlabList,
    pub(super) free: SlabList,
    pub(super) free_objects: u64,
    /// Above this empty slabs are destroyed: `(1 + CPUs of the node)·batch + num`.
    pub(super) free_limit: u64,
    /// The free list was looked at since the reaper came by.
    pub(super) free_touched: bool,
    pub(super) shared: Option<Array>,
    /// Longest free list seen at a flush (slabinfo: maxfreeable).
    pub(super) longest_free: u64,
}

/// A node's lists, held by their lock. What others read without the lock is brought up to date when it is released.
pub(super) struct Held<'a, M: Machine> {
    lists: Guard<'a, M, Lists>,
    stock: &'a Word,
}

impl<M: Machine> Deref for Held<'_, M> {
    type Target = Lists;
    fn deref(&self) -> &Lists {
        &self.lists
    }
}
impl<M: Machine> DerefMut for Held<'_, M> {
    fn deref_mut(&mut self) -> &mut Lists {
        &mut self.lists
    }
}
impl<M: Machine> Drop for Held<'_, M> {
    fn drop(&mut self) {
        self.stock.poke(self.lists.free_objects + self.lists.shared.as_ref().map_or(0, |s| s.len() as u64));
    }
}

/// Slabs that a free has made superfluous, taken off their lists: to be destroyed once the locks are released.
#[derive(Default)]
#[must_use]
pub(super) struct Doomed(Vec<Header>);

impl<M: Machine> Node<M> {
    /// Takes `list_lock` and pays for the record, read and written by the holder; the lock's line has come with the lock.
    pub(super) fn lock<'a>(&'a self, cpu: &'a M::Cpu) -> Held<'a, M> {
        let lists = self.lists.lock(cpu);
        modify(cpu, self.addr);
        cpu.touch(self.addr.plus(LOCK_OFFSET), Access::Write);
        Held { lists, stock: &self.stock }
    }
    /// True if slabs and shared array seem to hold nothing: read without the lock.
    pub(super) fn seems_empty(&self, cpu: &M::Cpu) -> bool {
        cpu.touch(self.addr, Access::Read);
        self.stock.peek() == 0
    }
    /// Slabs on all lists.
    pub(super) fn slabs(&self, cpu: &M::Cpu) -> u64 {
        let lists = self.lists.lock(cpu);
        cpu.touch(self.addr, Access::Read);
        lists.full.len() + lists.partial.len() + lists.free.len()
    }
}

impl Lists {
    /// Takes up to `max` objects out of the first partial slab, or the first free one; that slab goes to the head of full
    /// or partial. Returns the number taken, 0 if there is no such slab.
    pub(super) fn draw<M: Machine>(
        &mut self,
        headers: &Headers<'_, '_, M>,
        cpu: &M::Cpu,
        max: usize,
        mut give: impl FnMut(Addr),
    ) -> usize {
        let list = if self.partial.first().is_some() {
            &mut self.partial
        } else {
            self.free_touched = true;
            &mut self.free
        };
        let Some(slab) = list.first() else { return 0 };
        headers.modify(cpu, slab);
        list.remove(headers, cpu, slab);
        let mut taken = 0;
        while taken < max && !headers.is_full(slab) {
            give(headers.take(cpu, slab));
            taken += 1;
        }
        let list = if headers.is_full(slab) { &mut self.full } else { &mut self.partial };
        list.push_front(headers, cpu, slab);
        self.free_objects -= taken as u64;
        taken
    }
}

impl<M: Machine> Slab<'_, M> {
    /// Puts objects back into their slabs, the lists' lock held (kernel: free_block): `object` names the first, second, …
    /// of `n`. Superfluous slabs are destroyed here or returned to be, as the era has it.
    pub(super) fn free_block(
        &self,
        cpu: &M::Cpu,
        cache: &Cache<M>,
        lists: &mut Lists,
        n: usize,
        object: impl Fn(usize) -> Addr,
    ) -> Doomed {
        (0..n).for_each(|i| self.put_object(cpu, cache, lists, object(i)));
        let mut doomed = Doomed::default();
        if self.policy.excess == Excess::Coldest {
            let headers = self.headers(cache);
            while lists.free_objects > lists.free_limit
                && let Some(slab) = lists.free.last()
            {
                headers.modify(cpu, slab);
                lists.free.remove(&headers, cpu, slab);
                lists.free_objects -= cache.geometry.num;
                doomed.0.push(slab);
            }
        }
        doomed
    }

    /// Destroys what [`Slab::free_block`] has left over, the last one taken off its list first: so the recordings of 6.1
    /// reuse pages. No lock is held.
    pub(super) fn destroy_doomed(&self, cpu: &M::Cpu, cache: &Cache<M>, doomed: Doomed) {
        doomed.0.into_iter().rev().for_each(|slab| self.destroy_slab(cpu, cache, slab));
    }

    /// Puts one object back. Where the era destroys the slab just emptied, it does so at once when the node has more free
    /// objects than `free_limit`.
    fn put_object(&self, cpu: &M::Cpu, cache: &Cache<M>, lists: &mut Lists, object: Addr) {
        cpu.work(cost::SLAB_FLUSH_OBJECT);
        let headers = self.headers(cache);
        let geometry = &cache.geometry;
        let slab = self.slab_of(cpu, cache, object);
        headers.modify(cpu, slab);
        let offset = object.0.wrapping_sub(headers.first(slab).0);
        let index = offset / geometry.slot;
        assert!(index < geometry.num && offset.is_multiple_of(geometry.slot), "{}", self.stray(cache, object));
        if geometry.checks.lists {
            self.debug_put(cache, slab, index, object);
        }
        let list = if headers.is_full(slab) { &mut lists.full } else { &mut lists.partial };
        list.remove(&headers, cpu, slab);
        let inuse = headers.put(cpu, slab, index);
        lists.free_objects += 1;
        cache.active.sub(1);
        if inuse > 0 {
            lists.partial.push_back(&headers, cpu, slab);
        } else if self.policy.excess == Excess::JustEmptied && lists.free_objects > lists.free_limit {
            lists.free_objects -= geometry.num;
            self.destroy_slab(cpu, cache, slab);
        } else {
            lists.free.push_front(&headers, cpu, slab);
        }
    }

    /// Takes one object from a node's slabs, growing there if need be, then from anywhere
    /// (kernel: ____cache_alloc_node, fallback_alloc).
    pub(super) fn alloc_node(&self, cpu: &M::Cpu, cache: &Cache<M>, node: NodeId, want: Request) -> Option<Addr> {
        cpu.work(cost::SLAB_ALLOC_HIT);
        cpu.touch(cache.node_pointer(node), Access::Read);
        let growth = Growth { atomic: want.atomic, this_node: self.several_nodes };
        loop {
            let found = self.take_one(cpu, cache, node);
            if found.is_some() {
                return found;
            }
            let Some(slab) = self.grow(cpu, cache, node, growth) else { break };
            if self.policy.new_slab == NewSlab::ToFreeList {
                self.link_slab(cpu, cache, slab);
                continue;
            }
            let headers = self.headers(cache);
            headers.modify(cpu, slab);
            let found = headers.take(cpu, slab);
            self.link_slab(cpu, cache, slab);
            self.took_one(cpu, cache);
            return Some(found);
        }
        if want.this_node { None } else { self.alloc_fallback(cpu, cache, want) }
    }

    /// Takes one object from the slabs that a node has.
    fn take_one(&self, cpu: &M::Cpu, cache: &Cache<M>, node: NodeId) -> Option<Addr> {
        cpu.work(cost::SLAB_REFILL);
        let mut lists = cache.node(node).lock(cpu);
        let mut found = None;
        if cache.closed() {
            self.debug_draw(cache, &lists);
        }
        lists.draw(&self.headers(cache), cpu, 1, |object| found = Some(object));
        drop(lists);
        if found.is_some() {
            self.took_one(cpu, cache);
        }
        found
    }

    /// Counts an object that the per-node path has taken.
    fn took_one(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        cpu.work(cost::SLAB_REFILL_OBJECT);
        cache.cpus.with(cpu, |c| c.counters.count(Stat::NodeAllocs));
        cache.active.add(1);
    }

    /// The wanted node is out of memory: takes an object of a node that has free ones, in zonelist order; else grows
    /// wherever the page allocator finds pages (kernel: fallback_alloc).
    #[cold]
    fn alloc_fallback(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        for &node in &self.fallback[usize::from(cpu.node().0)] {
            // The kernel reads free_objects without the lock; here every look takes it, on this rare path only.
            let record = cache.node(node);
            let has_free = record.lists.lock(cpu).free_objects > 0;
            cpu.touch(record.addr, Access::Read);
            if has_free && let Some(found) = self.take_one(cpu, cache, node) {
                return Some(found);
            }
        }
        loop {
            let node = self.grow_anywhere(cpu, cache, want.atomic)?;
            let found = self.take_one(cpu, cache, node);
            if found.is_some() {
                return found;
            }
        }
    }

    /// Frees an object of another node into the alien array for it; a full array is drained first
    /// (kernel: cache_free_alien).
    pub(super) fn free_alien(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr, home: NodeId) {
        cpu.work(cost::SLAB_FREE_ALIEN);
        cpu.touch(cache.node_pointer(cpu.node()), Access::Read);
        let here = cache.node(cpu.node());
        cpu.touch(here.addr.plus(LOCK_OFFSET), Access::Read);
        cache.cpus.with(cpu, |c| c.counters.count(Stat::RemoteFrees));
        let Some(alien) = &here.alien[usize::from(home.0)] else { return self.free_home(cpu, cache, object, home) };
        let mut alien = alien.lock(cpu);
        let mut doomed = Doomed::default();
        if alien.room() == 0 {
            cache.cpus.with(cpu, |c| c.counters.count(Stat::AlienOverflow));
            doomed = self.drain_alien(cpu, cache, &mut alien, home);
        }
        let fits = alien.push(cpu, object);
        debug_assert!(fits, "a drain makes room");
        drop(alien);
        self.destroy_doomed(cpu, cache, doomed);
    }

    /// Without alien arrays an object goes straight back into its slab, under the other node's `list_lock`.
    #[cold]
    fn free_home(&self, cpu: &M::Cpu, cache: &Cache<M>, object: Addr, home: NodeId) {
        let mut lists = cache.node(home).lock(cpu);
        let doomed = self.free_block(cpu, cache, &mut lists, 1, |_| object);
        drop(lists);
        self.destroy_doomed(cpu, cache, doomed);
    }

    /// Empties an alien array: the newest objects into the home node's shared array as far as they fit, the others into
    /// their slabs (kernel: __drain_alien_cache). The alien lock is held; takes the home node's `list_lock`.
    pub(super) fn drain_alien(&self, cpu: &M::Cpu, cache: &Cache<M>, alien: &mut Array, home: NodeId) -> Doomed {
        if alien.is_empty() {
            return Doomed::default();
        }
        cpu.work(cost::SLAB_FLUSH);
        let mut lists = cache.node(home).lock(cpu);
        if let Some(shared) = &mut lists.shared {
            let n = alien.len().min(shared.room());
            if n > 0 {
                cpu.work(cost::SLAB_TRANSFER_OBJECT.times(n as u64));
                alien.move_newest(cpu, shared, n);
                shared.touched |= self.policy.shared_touched == SharedTouched::ByAliens;
            }
        }
        let n = alien.len();
        alien.read(cpu, 0, n);
        let doomed = self.free_block(cpu, cache, &mut lists, n, |i| alien.get(i));
        alien.slide(cpu, n);
        doomed
    }

    /// Empties every array of the cache, then returns all slabs of the free lists (kernel: drain_cpu_caches,
    /// __cache_shrink): CPUs in ascending order, each on itself, then aliens, then shared arrays.
    pub(super) fn shrink_cache(&self, cpu: &M::Cpu, cache: &Cache<M>) {
        for target in self.pages.machine().topology().cpu_ids() {
            cpu.call_on(target, &|c| self.drain_cpu(c, cache));
        }
        for node in &cache.nodes {
            for (home, alien) in node.alien.iter().enumerate() {
                if let Some(alien) = alien {
                    let doomed = self.drain_alien(cpu, cache, &mut alien.lock(cpu), NodeId(home as u16));
                    self.destroy_doomed(cpu, cache, doomed);
                }
            }
        }
        for node in &cache.nodes {
            let mut lists = node.lock(cpu);
            let n = lists.shared.as_ref().map_or(0, Array::len);
            let doomed = self.free_shared(cpu, cache, &mut lists, n);
            drop(lists);
            self.destroy_doomed(cpu, cache, doomed);
        }
        for node in &cache.nodes {
            while self.destroy_coldest(cpu, cache, node) {}
        }
    }

    /// Puts the `n` oldest objects of a node's shared array back into their slabs.
    pub(super) fn free_shared(&self, cpu: &M::Cpu, cache: &Cache<M>, lists: &mut Lists, n: usize) -> Doomed {
        let Some(mut shared) = lists.shared.take() else { return Doomed::default() };
        shared.read(cpu, 0, n);
        let doomed = self.free_block(cpu, cache, lists, n, |i| shared.get(i));
        shared.slide(cpu, n);
        lists.shared = Some(shared);
        doomed
    }

    /// Destroys the last slab of a free list, the pages outside the lock (kernel: drain_freelist); false if there is none.
    pub(super) fn destroy_coldest(&self, cpu: &M::Cpu, cache: &Cache<M>, node: &Node<M>) -> bool {
        let mut lists = node.lock(cpu);
        let Some(slab) = lists.free.last() else { return false };
        let headers = self.headers(cache);
        headers.modify(cpu, slab);
        lists.free.remove(&headers, cpu, slab);
        lists.free_objects -= cache.geometry.num;
        drop(lists);
        self.destroy_slab(cpu, cache, slab);
        true
    }
}
