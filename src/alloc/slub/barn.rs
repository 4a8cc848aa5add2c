//! Barns: per node and cache, stacks of full and of empty sheaves under one lock (kernel: struct node_barn). The counts are also
//! read without it, where a limit is asked for.

use super::sheaf::Sheaf;
use super::{Cache, Slub};
use crate::alloc::Stat;
use crate::machine::{Cpu, Machine, SpinLock, Word, cost};
use crate::units::NodeId;

/// `nr_full = length of the full stack`, `nr_empty` of the empty one, whenever the lock is free. Full sheaves hold their
/// capacity, unless they came from RCU; empty ones nothing.
pub(super) struct Barn<M: Machine> {
    stacks: SpinLock<M, Stacks>,
    nr_full: Word,
    nr_empty: Word,
}

#[derive(Default)]
struct Stacks {
    full: Vec<Sheaf>,
    empty: Vec<Sheaf>,
}

impl<M: Machine> Barn<M> {
    pub fn new(machine: &M, node: NodeId) -> Barn<M> {
        let addr = machine.reserve(64, node);
        let stacks = SpinLock::new(machine.lock("barn->lock", addr), Stacks::default());
        Barn { stacks, nr_full: Word::new(addr, 0), nr_empty: Word::new(addr, 0) }
    }

    fn change<R>(&self, cpu: &M::Cpu, f: impl FnOnce(&mut Stacks) -> R) -> R {
        cpu.irq_save();
        cpu.work(cost::SLUB_LIST);
        let mut stacks = self.stacks.lock(cpu);
        let result = f(&mut stacks);
        self.nr_full.poke(stacks.full.len() as u64);
        self.nr_empty.poke(stacks.empty.len() as u64);
        result
    }
    /// Takes a full sheaf, if there seems to be one.
    pub fn take_full(&self, cpu: &M::Cpu) -> Option<Sheaf> {
        if self.nr_full.load(cpu) == 0 { None } else { self.change(cpu, |s| s.full.pop()) }
    }
    /// Takes an empty sheaf, if there seems to be one.
    pub fn take_empty(&self, cpu: &M::Cpu) -> Option<Sheaf> {
        if self.nr_empty.load(cpu) == 0 { None } else { self.change(cpu, |s| s.empty.pop()) }
    }
    /// Puts a full sheaf.
    pub fn put_full(&self, cpu: &M::Cpu, sheaf: Sheaf) {
        self.change(cpu, |s| s.full.push(sheaf));
    }
    /// Puts an empty sheaf.
    pub fn put_empty(&self, cpu: &M::Cpu, sheaf: Sheaf) {
        self.change(cpu, |s| s.empty.push(sheaf));
    }
    /// Full sheaves, read without the lock.
    pub fn full(&self, cpu: &M::Cpu) -> u64 {
        self.nr_full.load(cpu)
    }
    /// Empty sheaves, read without the lock.
    pub fn empty(&self, cpu: &M::Cpu) -> u64 {
        self.nr_empty.load(cpu)
    }
    /// Full and empty sheaves, the top first. When no CPU runs.
    pub fn peek(&mut self) -> (Vec<&Sheaf>, Vec<&Sheaf>) {
        let s = self.stacks.get_mut();
        (s.full.iter().rev().collect(), s.empty.iter().rev().collect())
    }
    /// The counts that readers without the lock see.
    pub fn seen(&self) -> (u64, u64) {
        (self.nr_full.peek(), self.nr_empty.peek())
    }
}

impl<M: Machine> Slub<'_, M> {
    /// The barn this CPU uses.
    pub(super) fn barn<'a>(&self, cpu: &M::Cpu, cache: &'a Cache<M>) -> &'a Barn<M> {
        &cache.barns[usize::from(self.barn_node(cpu).0)]
    }

    /// Flushes the full sheaves of a barn and gives all of them up (kernel: barn_shrink).
    pub(super) fn empty_barn(&self, cpu: &M::Cpu, cache: &Cache<M>, barn: &Barn<M>) {
        if barn.full(cpu) + barn.empty(cpu) == 0 {
            return;
        }
        let (full, empty) = barn.change(cpu, |s| (std::mem::take(&mut s.full), std::mem::take(&mut s.empty)));
        for mut sheaf in full.into_iter().rev() {
            self.flush_sheaf(cpu, cache, &mut sheaf);
            self.drop_sheaf(cpu, cache, sheaf);
        }
        for sheaf in empty.into_iter().rev() {
            self.drop_sheaf(cpu, cache, sheaf);
        }
    }

    /// Puts a sheaf whose objects' grace period is over where there is room: full ones into the barn, else their objects to
    /// the slabs (kernel: rcu_free_sheaf). `barn`: that of the node where it was filled; `None`: it is given up.
    pub(super) fn put_after_rcu(&self, cpu: &M::Cpu, cache: &Cache<M>, mut sheaf: Sheaf, barn: Option<NodeId>) {
        let Some(node) = barn else {
            self.flush_sheaf(cpu, cache, &mut sheaf);
            return self.drop_sheaf(cpu, cache, sheaf);
        };
        let barn = &cache.barns[usize::from(node.0)];
        if !sheaf.is_empty() {
            if barn.full(cpu) < cache.limits.barn_max_full {
                cache.count(cpu, Stat::BarnPut);
                return barn.put_full(cpu, sheaf);
            }
            cache.count(cpu, Stat::BarnPutFail);
            self.flush_sheaf(cpu, cache, &mut sheaf);
        }
        if barn.empty(cpu) < cache.limits.barn_max_empty {
            barn.put_empty(cpu, sheaf);
        } else {
            self.drop_sheaf(cpu, cache, sheaf);
        }
    }
}
