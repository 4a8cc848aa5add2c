//! The node record (`kmem_list3`): three lists of slabs, the shared array, alien arrays; allocation from a named node
//! and frees of other nodes' objects.

use super::Slab;
use super::array::{Array, modify};
use super::cache::Cache;
use super::grow::Growth;
use super::header::{Headers, SlabList};
use super::policy::Geometry;
use crate::alloc::Stat;
use crate::machine::{Access, Addr, Cpu, Machine, SpinLock, Word, cost};
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
    /// Objects of node k freed on this node wait in `alien[k]`. `None` for the node itself, and on one node.
    pub(super) alien: Vec<Option<SpinLock<M, Array>>>,
    /// Jiffy from which the reaper may trim shared array and free list again. Read and written without a lock.
    pub(super) next_reap: Word,
}

/// What `list_lock` protects. `free_objects = Σ (num − inuse)` over partial and free slabs; inuse is `num` in full,
/// 0 in free, in between in partial ones.
pub(super) struct Lists {
    pub(super) full: SlabList,
    pub(super) partial: SlabList,
    pub(super) free: SlabList,
    pub(super) free_objects: u64,
    /// Above this an emptied slab is destroyed: `(1 + CPUs of the node)·batch + num`.
    pub(super) free_limit: u64,
    /// Colour of the next slab.
    pub(super) colour_next: u64,
    /// The free list was looked at since the reaper came by.
    pub(super) free_touched: bool,
    pub(super) shared: Option<Array>,
    /// Longest free list seen at a flush (slabinfo: maxfreeable).
    pub(super) longest_free: u64,
}

impl<M: Machine> Node<M> {
    /// Pays for the record, read and written by the holder of the lock, whose line has come with the lock.
    pub(super) fn charge(&self, cpu: &M::Cpu) {
        modify(cpu, self.addr);
        cpu.touch(self.addr.plus(LOCK_OFFSET), Access::Write);
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
        geometry: &Geometry,
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
            give(headers.take(cpu, slab, geometry.slot));
            taken += 1;
        }
        let list = if headers.is_full(slab) { &mut self.full } else { &mut self.partial };
        list.push_front(headers, cpu, slab);
        self.free_objects -= taken as u64;
        taken
    }
}

impl<M: Machine> Slab<'_, M> {
    /// Puts one object back into its slab, the lists' lock held (kernel: free_block, for each of its objects). A slab that
    /// becomes empty is destroyed at once when the node has more free objects than `free_limit`.
    pub(super) fn put_object(&self, cpu: &M::Cpu, cache: &Cache<M>, lists: &mut Lists, object: Addr) {
        cpu.work(cost::SLAB_FLUSH_OBJECT);
        let headers = self.headers(cache);
        let geometry = &cache.geometry;
        let slab = self.slab_of(cpu, cache, object);
        headers.modify(cpu, slab);
        let offset = object.0.wrapping_sub(headers.first(slab).0);
        let index = offset / geometry.slot;
        assert!(index < geometry.num && offset.is_multiple_of(geometry.slot), "{}", self.stray(cache, object));
        let list = if headers.is_full(slab) { &mut lists.full } else { &mut lists.partial };
        list.remove(&headers, cpu, slab);
        let inuse = headers.put(cpu, slab, index);
        lists.free_objects += 1;
        cache.active.sub(1);
        if inuse > 0 {
            lists.partial.push_back(&headers, cpu, slab);
        } else if lists.free_objects > lists.free_limit {
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
            if !self.grow(cpu, cache, node, growth) {
                break;
            }
        }
        if want.this_node { None } else { self.alloc_fallback(cpu, cache, want) }
    }

    /// Takes one object from the slabs that a node has.
    fn take_one(&self, cpu: &M::Cpu, cache: &Cache<M>, node: NodeId) -> Option<Addr> {
        cpu.work(cost::SLAB_REFILL);
        let record = cache.node(node);
        let mut lists = record.lists.lock(cpu);
        record.charge(cpu);
        let mut found = None;
        lists.draw(&self.headers(cache), cpu, &cache.geometry, 1, |object| found = Some(object));
        drop(lists);
        if found.is_some() {
            cpu.work(cost::SLAB_REFILL_OBJECT);
            cache.cpus.with(cpu, |c| c.counters.count(Stat::NodeAllocs));
            cache.active.add(1);
        }
        found
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
        let alien = here.alien[usize::from(home.0)].as_ref().expect("an alien array for every other node");
        let mut alien = alien.lock(cpu);
        if alien.room() == 0 {
            cache.cpus.with(cpu, |c| c.counters.count(Stat::AlienOverflow));
            self.drain_alien(cpu, cache, &mut alien, home);
        }
        let fits = alien.push(cpu, object);
        debug_assert!(fits, "a drain makes room");
    }

    /// Empties an alien array: the newest objects into the home node's shared array as far as they fit, the others into
    /// their slabs (kernel: __drain_alien_cache). The alien lock is held; takes the home node's `list_lock`.
    pub(super) fn drain_alien(&self, cpu: &M::Cpu, cache: &Cache<M>, alien: &mut Array, home: NodeId) {
        if alien.is_empty() {
            return;
        }
        cpu.work(cost::SLAB_FLUSH);
        let node = cache.node(home);
        let mut lists = node.lists.lock(cpu);
        node.charge(cpu);
        if let Some(shared) = &mut lists.shared {
            let n = alien.len().min(shared.room());
            if n > 0 {
                cpu.work(cost::SLAB_TRANSFER_OBJECT.times(n as u64));
                alien.move_newest(cpu, shared, n);
                shared.touched = true;
            }
        }
        let n = alien.len();
        alien.read(cpu, 0, n);
        (0..n).for_each(|i| self.put_object(cpu, cache, &mut lists, alien.get(i)));
        alien.slide(cpu, n);
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
                    let mut alien = alien.lock(cpu);
                    self.drain_alien(cpu, cache, &mut alien, NodeId(home as u16));
                }
            }
        }
        for node in &cache.nodes {
            let mut lists = node.lists.lock(cpu);
            node.charge(cpu);
            let n = lists.shared.as_ref().map_or(0, Array::len);
            self.free_shared(cpu, cache, &mut lists, n);
        }
        for node in &cache.nodes {
            while self.destroy_coldest(cpu, cache, node) {}
        }
    }

    /// Puts the `n` oldest objects of a node's shared array back into their slabs.
    pub(super) fn free_shared(&self, cpu: &M::Cpu, cache: &Cache<M>, lists: &mut Lists, n: usize) {
        let Some(mut shared) = lists.shared.take() else { return };
        shared.read(cpu, 0, n);
        (0..n).for_each(|i| self.put_object(cpu, cache, lists, shared.get(i)));
        shared.slide(cpu, n);
        lists.shared = Some(shared);
    }

    /// Destroys the last slab of a free list, the pages outside the lock (kernel: drain_freelist); false if there is none.
    pub(super) fn destroy_coldest(&self, cpu: &M::Cpu, cache: &Cache<M>, node: &Node<M>) -> bool {
        let mut lists = node.lists.lock(cpu);
        node.charge(cpu);
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
