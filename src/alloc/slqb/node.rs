//! Lists: what the owner of slabs shares with other CPUs. Partial slabs under `page_lock`, the `remote_free` queue
//! under its own lock, the flag that tells the owner of it, and the node structures, whose LIFO is shared as well.
//!
//! Lock order, outer to inner: `list_lock`, then `page_lock` or `remote_free.lock` (never both), then the page
//! allocator's. A slab that becomes empty is freed with `page_lock` held; a new one is allocated with no lock held.

use super::chain::{Chain, NIL};
use super::{Ask, Cache};
use crate::alloc::{Counters, Stat};
use crate::machine::{Access, Addr, Cpu, Guard, Machine, SpinLock, Word, cost};
use crate::page::{Field, FrameList, Pfn};
use crate::units::{CpuId, NodeId};

/// Index of a list in its cache: CPU lists first, then node lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ListId(pub u32);

/// The shared half of a kmem_cache_list; its LIFO is the owning CPU's slot or in [`NodeSlot`].
///
/// `nr_partial = length of slabs.partial`, `remote_nr = remote.nr`: copies for readers without the lock.
/// `check = 1 ⇔ remote.nr ≥ freebatch`.
pub(super) struct List<M: Machine> {
    /// Line 0: LIFO, check flag, nr_partial and the ends of the partial list.
    pub hot: Addr,
    /// Node whose pages it owns.
    pub node: NodeId,
    /// remote_free_check: set by remote CPUs, cleared by the owner.
    pub check: Word,
    /// Partial slabs, as page_pop reads it without the lock.
    pub nr_partial: Word,
    /// Line 1, under page_lock. The lock also protects inuse and free list of every slab the list owns.
    pub slabs: SpinLock<M, Slabs>,
    /// Length of remote_free, as claim and flush_rlist read it without the lock.
    pub remote_nr: Word,
    /// Line 2: objects that other CPUs have sent home.
    pub remote: SpinLock<M, Chain>,
}

/// Slabs owned by a list: `nr_slabs = partial + full`; there are no empty ones.
#[derive(Default)]
pub(super) struct Slabs {
    pub partial: FrameList,
    pub nr_slabs: u64,
    /// Events that other CPUs caused here by synchronous freeing.
    pub by_others: Counters,
}

/// The locked half of a kmem_cache_node.
#[derive(Default)]
pub(super) struct NodeSlot {
    pub lifo: Chain,
    pub counters: Counters,
}

/// What became of the objects of a flush.
#[derive(Clone, Copy, Default)]
pub(super) struct Flushed {
    pub objects: u64,
    pub remote: u64,
    pub partial: u64,
    pub freed: u64,
}

impl Flushed {
    /// Counts a flush of a LIFO.
    pub fn count(&self, counters: &mut Counters) {
        counters.add(Stat::FlushFreeList, u64::from(self.objects > 0));
        counters.add(Stat::FlushFreeListObjects, self.objects);
        counters.add(Stat::FlushFreeListRemote, self.remote);
        self.count_slabs(counters);
    }
    /// Counts what happened to slabs.
    pub fn count_slabs(&self, counters: &mut Counters) {
        counters.add(Stat::FlushSlabPartial, self.partial);
        counters.add(Stat::FlushSlabFree, self.freed);
    }
}

/// Counts a taken remote_free list.
pub(super) fn count_claim(counters: &mut Counters, objects: u64) {
    counters.add(Stat::ClaimRemoteList, u64::from(objects > 0));
    counters.add(Stat::ClaimRemoteListObjects, objects);
}

impl<M: Machine> List<M> {
    /// An empty list in the structure at `hot`.
    pub fn new(machine: &M, hot: Addr, node: NodeId) -> Self {
        let (page_lock, remote_lock) = (hot.plus(64), hot.plus(128));
        List {
            hot,
            node,
            check: Word::new(hot, 0),
            nr_partial: Word::new(hot, 0),
            slabs: SpinLock::new(machine.lock("page_lock", page_lock), Slabs::default()),
            remote_nr: Word::new(remote_lock, 0),
            remote: SpinLock::new(machine.lock("remote_free.lock", remote_lock), Chain::default()),
        }
    }

    /// Publishes the new length of the partial list; the owner's hot line is written. Readers without the lock see it
    /// from now on: a point of interaction.
    pub fn publish(&self, cpu: &M::Cpu, slabs: &Slabs) {
        self.nr_partial.store(cpu, slabs.partial.len() as u64);
    }
}

impl<'p, M: Machine> Cache<'p, M> {
    /// Takes one object of the list's first partial slab. Exactly one: while the LIFO is empty every allocation costs
    /// one page_lock.
    pub(super) fn page_pop(&self, cpu: &M::Cpu, l: ListId) -> Option<Addr> {
        let list = self.list(l);
        if list.nr_partial.load(cpu) == 0 {
            return None;
        }
        let mut slabs = list.slabs.lock(cpu);
        self.take_from_first(cpu, list, &mut slabs)
    }

    pub(super) fn take_from_first(&self, cpu: &M::Cpu, list: &List<M>, slabs: &mut Slabs) -> Option<Addr> {
        let pfn = slabs.partial.first()?;
        cpu.work(cost::SLQB_PAGE_POP);
        let SlabState { inuse, colour } = unpack(self.pages.load(cpu, pfn, Field::Counters));
        if inuse + 1 == self.geometry.objects {
            slabs.partial.remove(self.pages, cpu, pfn);
            list.publish(cpu, slabs);
        }
        let x = Addr(self.pages.peek(pfn, Field::Extra));
        let next = self.links().next(cpu, x);
        if next != NIL {
            cpu.touch(next.plus(self.geometry.offset), Access::Prefetch);
        }
        self.pages.store(cpu, pfn, Field::Extra, next.0);
        self.pages.poke(pfn, Field::Counters, pack(SlabState { inuse: inuse + 1, colour }));
        Some(x)
    }

    /// Puts an object back into its slab, which `slabs` owns; a slab that becomes empty is freed at once.
    fn put_in_page(&self, cpu: &M::Cpu, list: &List<M>, slabs: &mut Slabs, (pfn, x): (Pfn, Addr), f: &mut Flushed) {
        cpu.work(cost::SLQB_FLUSH_OBJECT);
        let SlabState { inuse, colour } = unpack(self.pages.peek(pfn, Field::Counters));
        assert!(inuse > 0, "cache {}: slab {pfn:?} gets {x:?} back, but all its objects are free", self.spec.name);
        self.links().set(cpu, x, Addr(self.pages.peek(pfn, Field::Extra)));
        self.pages.store(cpu, pfn, Field::Extra, x.0);
        self.pages.poke(pfn, Field::Counters, pack(SlabState { inuse: inuse - 1, colour }));
        if inuse == 1 {
            if self.geometry.objects > 1 {
                slabs.partial.remove(self.pages, cpu, pfn);
                list.publish(cpu, slabs);
            }
            slabs.nr_slabs -= 1;
            f.freed += 1;
            self.discard(cpu, pfn);
        } else if inuse == self.geometry.objects {
            slabs.partial.push_front(self.pages, cpu, pfn);
            list.publish(cpu, slabs);
            f.partial += 1;
        }
    }

    /// Sends one batch of a LIFO home, most recently freed objects first (kernel: flush_free_list). Objects of slabs of
    /// list `l` go into their page, under one page_lock per run of them; others to the rlist of the running CPU.
    pub(super) fn flush(&self, cpu: &M::Cpu, l: ListId, lifo: &mut Chain) -> Flushed {
        let mut flushed = Flushed { objects: self.freebatch().min(lifo.nr), ..Flushed::default() };
        if flushed.objects == 0 {
            return flushed;
        }
        cpu.work(cost::SLQB_FLUSH);
        let list = self.list(l);
        lifo.nr -= flushed.objects;
        let mut held: Option<Guard<'_, M, Slabs>> = None;
        for _ in 0..flushed.objects {
            let x = lifo.head;
            lifo.head = self.links().next(cpu, x);
            let pfn = self.slab_of(cpu, x);
            let owner = self.owner(pfn);
            if owner == l {
                let slabs = held.get_or_insert_with(|| list.slabs.lock(cpu));
                self.put_in_page(cpu, list, slabs, (pfn, x), &mut flushed);
            } else {
                held = None;
                self.remote_put(cpu, owner, x);
                flushed.remote += 1;
            }
        }
        flushed
    }

    /// Takes everything that other CPUs have sent home (kernel: claim_remote_free_list). By the list's owner only.
    pub(super) fn claim(&self, cpu: &M::Cpu, l: ListId) -> Chain {
        let list = self.list(l);
        if !self.smp || list.remote_nr.load(cpu) == 0 {
            return Chain::default();
        }
        cpu.work(cost::SLQB_CLAIM);
        let mut remote = list.remote.lock(cpu);
        list.check.store(cpu, 0);
        list.remote_nr.poke(0);
        std::mem::take(&mut *remote)
    }

    /// Puts a claimed chain behind a LIFO's tail, the cold end; it becomes the LIFO of one that is empty.
    pub(super) fn attach(&self, cpu: &M::Cpu, lifo: &mut Chain, claimed: Chain) {
        if claimed.nr == 0 {
            return;
        }
        if lifo.nr == 0 {
            cpu.touch(claimed.head.plus(self.geometry.offset), Access::Prefetch);
        }
        lifo.append(cpu, self.links(), claimed);
    }

    /// Sends an rlist to the list that owns all its objects (kernel: flush_remote_free_cache). If the owner is not
    /// keeping up the objects go into their pages right here.
    pub(super) fn send(&self, cpu: &M::Cpu, l: ListId, rlist: Chain) {
        let list = self.list(l);
        if list.remote_nr.load(cpu) > self.hiwater() / 2 {
            return self.send_into_pages(cpu, list, rlist);
        }
        cpu.work(cost::SLQB_SPLICE);
        let mut remote = list.remote.lock(cpu);
        let was = remote.nr;
        remote.append(cpu, self.links(), rlist);
        // Readers without the lock see the length from now on.
        cpu.interact();
        list.remote_nr.poke(remote.nr);
        // Only the upward crossing disturbs the owner's hot line. Quirk: none is seen where freebatch came down to `was`.
        let crossed = if self.quirks.lost_crossing { was < self.freebatch() } else { list.check.peek() == 0 };
        if crossed && remote.nr >= self.freebatch() {
            list.check.store(cpu, 1);
        }
    }

    #[cold]
    fn send_into_pages(&self, cpu: &M::Cpu, list: &List<M>, rlist: Chain) {
        cpu.work(cost::SLQB_SPLICE);
        let mut flushed = Flushed::default();
        let mut slabs = list.slabs.lock(cpu);
        let mut x = rlist.head;
        for _ in 0..rlist.nr {
            let next = self.links().next(cpu, x);
            let pfn = self.slab_of(cpu, x);
            self.put_in_page(cpu, list, &mut slabs, (pfn, x), &mut flushed);
            x = next;
        }
        flushed.count_slabs(&mut slabs.by_others);
        drop(slabs);
        self.cpus.with(cpu, |s| flushed.count_slabs(&mut s.elsewhere));
    }

    /// Allocates from another node's list, and if the request allows from any node's (kernel: __remote_slab_alloc).
    #[cold]
    pub(super) fn alloc_remote(&self, cpu: &M::Cpu, node: NodeId, ask: &Ask<'_, 'p, M>) -> Option<Addr> {
        cpu.leave_fast_path();
        self.alloc_on_node(cpu, node, ask).or_else(|| {
            let zones = if ask.want.this_node { &[][..] } else { &self.zonelists[usize::from(cpu.node().0)] };
            zones.iter().find_map(|n| self.alloc_on_node(cpu, *n, ask))
        })
    }

    fn alloc_on_node(&self, cpu: &M::Cpu, node: NodeId, ask: &Ask<'_, 'p, M>) -> Option<Addr> {
        let n = usize::from(node.0);
        if self.memoryless(node) {
            return None;
        }
        cpu.touch(self.node_array.plus(8 * n as u64), Access::Read);
        let l = self.node_list(node);
        let mut slot = self.nodes[n].lock(cpu);
        cpu.touch(self.list(l).hot, Access::Write);
        let mut x = slot.lifo.pop(cpu, self.links());
        if x.is_none() && self.list(l).check.load(cpu) != 0 {
            self.claim_node(cpu, l, &mut slot);
            if slot.lifo.nr > self.hiwater() {
                self.flush_node(cpu, l, &mut slot);
            }
            x = slot.lifo.pop(cpu, self.links());
        }
        if x.is_some() {
            cpu.work(cost::SLQB_ALLOC_HIT);
        } else {
            x = self.page_pop(cpu, l);
            self.count_on_node(cpu, &mut slot, |c| c.add(Stat::AllocSlabFill, u64::from(x.is_some())));
        }
        if x.is_some() {
            self.count_on_node(cpu, &mut slot, |c| c.count(Stat::SlqbAlloc));
            return x;
        }
        drop(slot);
        self.new_slab(cpu, Some(node), ask)
    }

    /// A round of trimming for a node's list: claim, then one batch, whatever the length.
    pub(super) fn trim_node(&self, cpu: &M::Cpu, node: NodeId) {
        if !self.numa || self.memoryless(node) {
            return;
        }
        let l = self.node_list(node);
        let mut slot = self.nodes[usize::from(node.0)].lock(cpu);
        self.claim_node(cpu, l, &mut slot);
        self.flush_node(cpu, l, &mut slot);
    }

    pub(super) fn claim_node(&self, cpu: &M::Cpu, l: ListId, slot: &mut NodeSlot) {
        let claimed = self.claim(cpu, l);
        self.attach(cpu, &mut slot.lifo, claimed);
        self.count_on_node(cpu, slot, |c| count_claim(c, claimed.nr));
    }

    pub(super) fn flush_node(&self, cpu: &M::Cpu, l: ListId, slot: &mut NodeSlot) -> Flushed {
        let flushed = self.flush(cpu, l, &mut slot.lifo);
        self.count_on_node(cpu, slot, |c| flushed.count(c));
        flushed
    }

    /// Counts events on a node's list, and for the per-CPU report on the CPU that caused them.
    pub(super) fn count_on_node(&self, cpu: &M::Cpu, slot: &mut NodeSlot, events: impl Fn(&mut Counters)) {
        events(&mut slot.counters);
        self.cpus.with(cpu, |s| events(&mut s.elsewhere));
    }

    /// True for a node without memory: it has no structure and owns no slab (nor does a node the machine lacks).
    pub(super) fn memoryless(&self, node: NodeId) -> bool {
        self.zonelists.get(usize::from(node.0)).is_none_or(|z| z.first() != Some(&node))
    }
    /// The list of a CPU.
    pub(super) fn cpu_list(&self, cpu: CpuId) -> ListId {
        ListId(u32::from(cpu.0))
    }
    /// The list of a node's structure.
    pub(super) fn node_list(&self, node: NodeId) -> ListId {
        ListId((self.lists.len() - self.nodes.len()) as u32 + u32::from(node.0))
    }
    pub(super) fn list(&self, l: ListId) -> &List<M> {
        &self.lists[l.0 as usize]
    }
    /// The list that owns a slab: set once, so it can be read without a lock while an object of the slab is held.
    pub(super) fn owner(&self, pfn: Pfn) -> ListId {
        ListId(self.pages.peek(pfn, Field::Owner) as u32)
    }
}

/// Flag bit of a slab's head frame.
pub(super) const SLAB: u64 = 1 << 1;
/// Set instead in an empty slab that waits for a grace period; `Counters` has the time it is over.
pub(super) const WAITING: u64 = 1 << 2;

/// The `Counters` word of a slab's head frame. `inuse` counts every object that has left the page, held by users or
/// waiting in a queue; `colour` is the byte offset of object 0.
#[derive(Clone, Copy)]
pub(super) struct SlabState {
    pub inuse: u64,
    pub colour: u64,
}

pub(super) fn pack(s: SlabState) -> u64 {
    s.inuse | s.colour << 32
}
pub(super) fn unpack(word: u64) -> SlabState {
    SlabState { inuse: word & 0xffff_ffff, colour: word >> 32 }
}
