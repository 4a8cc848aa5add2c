//! Prefilled sheaves: objects set aside so that later allocations cannot fail (kernel: kmem_cache_prefill_sheaf,
//! kmem_cache_refill_sheaf, kmem_cache_return_sheaf).

use super::sheaf::Sheaf;
use super::{Cache, Slub};
use crate::alloc::{Prefilled, Stat};
use crate::machine::{Access, Addr, Cpu, Machine, cost};
use crate::spec::Request;

impl<M: Machine> Slub<'_, M> {
    /// Sets at least `n` objects aside.
    pub(super) fn prefill_from(&self, cpu: &M::Cpu, cache: &Cache<M>, n: u64, want: Request) -> Option<Prefilled> {
        if n > cache.limits.sheaf_capacity {
            cache.count(cpu, Stat::SheafPrefillOversize);
            let mut objects = Vec::with_capacity(n as usize);
            let filled = self.alloc_past_sheaves(cpu, cache, want, n, &mut objects);
            return filled.then_some(Prefilled { capacity: n, objects, own: None });
        }
        let spare = self.sheaves(cpu, cache, |s| s.spare.take());
        cache.count(cpu, if spare.is_some() { Stat::SheafPrefillFast } else { Stat::SheafPrefillSlow });
        let mut sheaf = spare.unwrap_or_else(|| self.sheaf_of_barn(cpu, cache));
        let had = sheaf.objects.len();
        if (had as u64) < n && !self.fill(cpu, cache, &mut sheaf, want) {
            self.flush_sheaf(cpu, cache, &mut sheaf);
            self.drop_sheaf(cpu, cache, sheaf);
            return None;
        }
        cache.cpus.with(cpu, |c| c.moved(sheaf.objects.len() as i64));
        Some(Prefilled { capacity: sheaf.capacity as u64, objects: sheaf.objects, own: Some(sheaf.addr) })
    }

    /// A sheaf of the barn, full if there is one, else empty; else a new one.
    fn sheaf_of_barn(&self, cpu: &M::Cpu, cache: &Cache<M>) -> Sheaf {
        let barn = self.barn(cpu, cache);
        if let Some(full) = barn.take_full(cpu) {
            cache.count(cpu, Stat::BarnGet);
            return full;
        }
        cache.count(cpu, Stat::BarnGetFail);
        barn.take_empty(cpu).unwrap_or_else(|| self.make_sheaf(cpu, cache))
    }

    /// Takes `n` objects in bulk, past the cache's sheaves if it has any.
    fn alloc_past_sheaves(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request, n: u64, out: &mut Vec<Addr>) -> bool {
        if cache.limits.sheaf_capacity == 0 {
            return self.alloc_bulk_from(cpu, cache, want, n, out);
        }
        if self.alone() {
            cache.add(cpu, Stat::AllocSlowpath, n);
        }
        self.take_objects(cpu, cache, want, n, out);
        if out.len() as u64 == n {
            cache.cpus.with(cpu, |c| c.moved(n as i64));
            return true;
        }
        self.give_objects(cpu, cache, std::mem::take(out));
        false
    }

    /// Takes one of the objects set aside. Nothing counts that: they were counted when they were set aside.
    pub(super) fn alloc_prefilled(&self, cpu: &M::Cpu, from: &mut Prefilled) -> Option<Addr> {
        let object = from.objects.pop()?;
        cpu.work(cost::SLUB_SHEAF_ALLOC);
        if let Some(addr) = from.own {
            cpu.touch(addr, Access::Write);
        }
        Some(object)
    }

    /// Makes sure that at least `n` objects are set aside; false if memory is out.
    pub(super) fn refill_prefilled(
        &self,
        cpu: &M::Cpu,
        cache: &Cache<M>,
        held: &mut Prefilled,
        n: u64,
        want: Request,
    ) -> bool {
        if held.objects.len() as u64 >= n {
            return true;
        }
        if n > held.capacity {
            let Some(new) = self.prefill_from(cpu, cache, n, want) else { return false };
            let old = std::mem::replace(held, new);
            self.take_back(cpu, cache, old, want);
            return true;
        }
        let need = held.capacity - held.objects.len() as u64;
        let mut more = Vec::with_capacity(need as usize);
        if held.own.is_none() {
            let filled = self.alloc_past_sheaves(cpu, cache, want, need, &mut more);
            held.objects.append(&mut more);
            return filled;
        }
        self.take_objects(cpu, cache, want, need, &mut more);
        let got = more.len() as u64;
        cache.cpus.with(cpu, |c| c.moved(got as i64));
        cache.add(cpu, Stat::SheafRefill, got);
        held.objects.append(&mut more);
        got == need
    }

    /// Takes back what was set aside and not used.
    pub(super) fn take_back(&self, cpu: &M::Cpu, cache: &Cache<M>, held: Prefilled, want: Request) {
        let Prefilled { objects, capacity, own } = held;
        if cache.limits.sheaf_capacity == 0 {
            return self.free_bulk_to(cpu, cache, objects);
        }
        cache.cpus.with(cpu, |c| c.moved(-(objects.len() as i64)));
        let Some(addr) = own else {
            cache.add(cpu, Stat::SheafFlush, objects.len() as u64);
            return self.give_objects(cpu, cache, objects);
        };
        let mut sheaf = Sheaf { objects, capacity: capacity as usize, addr };
        if self.sheaves(cpu, cache, |s| s.spare.is_none()) {
            cache.count(cpu, Stat::SheafReturnFast);
            return self.sheaves(cpu, cache, |s| s.spare = Some(sheaf));
        }
        cache.count(cpu, Stat::SheafReturnSlow);
        let barn = self.barn(cpu, cache);
        let room = barn.full(cpu) < cache.limits.barn_max_full;
        if room && (sheaf.is_full() || self.fill(cpu, cache, &mut sheaf, want)) {
            barn.put_full(cpu, sheaf);
            return cache.count(cpu, Stat::BarnPut);
        }
        self.flush_sheaf(cpu, cache, &mut sheaf);
        self.drop_sheaf(cpu, cache, sheaf);
    }
}
