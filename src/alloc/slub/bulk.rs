//! Many objects at once (kernel: kmem_cache_alloc_bulk, kmem_cache_free_bulk): in releases that have no such calls one by one,
//! else from sheaves and then from slabs, frees as chains of objects of one slab.

use super::policy::*;
use super::sheaf::{Exchanged, FLUSH_BATCH};
use super::slow::Chain;
use super::word::{Kind, Slab};
use super::{Cache, Slub};
use crate::alloc::Stat;
use crate::machine::{Access, Addr, Cpu, Event, Machine, cost};
use crate::spec::Request;

/// Objects of other slabs that the search for one slab's objects passes over.
const LOOK_AHEAD: usize = 3;

impl<M: Machine> Slub<'_, M> {
    /// Takes `n` objects; all or, with false, none.
    pub(super) fn alloc_bulk_from(
        &self,
        cpu: &M::Cpu,
        cache: &Cache<M>,
        want: Request,
        n: u64,
        out: &mut Vec<Addr>,
    ) -> bool {
        let start = out.len();
        let missing = |out: &Vec<Addr>| n - (out.len() - start) as u64;
        if self.policy.bulk == Bulk::Loop {
            out.extend((0..n).map_while(|_| self.alloc_from(cpu, cache, want)));
        } else {
            assert!(!cache.is_destroyed(), "slub: allocation from cache {}, which was destroyed", cache.spec.name);
            if cache.limits.sheaf_capacity > 0 && want.node.is_none_or(|n| n == self.barn_node(cpu)) {
                self.alloc_from_sheaves(cpu, cache, want, n, out);
            }
            let (rest, had) = (missing(out), out.len());
            if rest > 0 {
                if cache.single && self.policy.t.fast_path == FastPath::Sheaf {
                    cpu.work(cost::SLUB_ALLOC_SLOW);
                    cache.add(cpu, Stat::AllocSlowpath, rest);
                }
                self.take_objects(cpu, cache, want, rest, out);
                cache.cpus.with(cpu, |c| c.moved((out.len() - had) as i64));
            }
            if want.zero {
                out[start..].iter().for_each(|object| self.clear(cpu, cache, *object));
            }
        }
        if missing(out) == 0 {
            return true;
        }
        let got = out.split_off(start);
        self.free_bulk_to(cpu, cache, got);
        false
    }

    /// Copies from the sheaves what they have, from the top, each piece in the order of its slots.
    fn alloc_from_sheaves(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request, mut n: u64, out: &mut Vec<Addr>) {
        cpu.work(cost::SLUB_SHEAF_ALLOC);
        while n > 0 {
            if self.sheaves(cpu, cache, |s| s.main.is_empty()) && !self.replace_empty(cpu, cache, want, false) {
                return;
            }
            let got = self.sheaves(cpu, cache, |s| {
                let from = s.main.objects.len().saturating_sub(n as usize);
                cpu.touch_span(s.main.addr, 8 * (s.main.objects.len() - from) as u64, Access::Read);
                let before = out.len();
                out.extend(s.main.objects.drain(from..));
                (out.len() - before) as u64
            });
            self.count_sheaf(cpu, cache, got as i64);
            n -= got;
        }
    }

    /// Takes objects from slabs, past any sheaf; who holds them is not noted. Fewer, or none, when memory is out.
    pub(super) fn take_objects(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request, n: u64, out: &mut Vec<Addr>) {
        if cache.single && !cache.layout.debug.any() {
            return self.refill_objects(cpu, cache, want, n, out);
        }
        cpu.spend(Event::CmpxchgLocal);
        let start = out.len();
        for _ in 0..n {
            let object = match self.pop_private(cpu, cache, want) {
                Some(object) => object,
                None => match self.alloc_slab_layer(cpu, cache, want) {
                    Some(object) => object,
                    None => {
                        let got = out.split_off(start);
                        return self.give_objects(cpu, cache, got);
                    }
                },
            };
            out.push(object);
        }
    }

    /// One object of the private list, in a row of them.
    fn pop_private(&self, cpu: &M::Cpu, cache: &Cache<M>, want: Request) -> Option<Addr> {
        if !cache.lockless || cache.takes_one || cache.single {
            return None;
        }
        let (slab, first) = cache.cpus.with(cpu, |c| (c.own(), c.list()));
        let (slab, first) = (slab?, first?);
        if want.node.is_some_and(|n| n != self.pages.node_of(slab.0)) {
            return None;
        }
        cpu.work(cost::SLUB_NEW_OBJECT);
        let rest = cache.links.next(self.pages.arena(), cpu, first);
        cache.cpus.with(cpu, |c| c.set_list(rest));
        if self.policy.bulk == Bulk::Counted {
            self.note_fast_alloc(cpu, cache, 1);
        }
        Some(first)
    }

    /// Gives objects back, which need not be of one slab.
    pub(super) fn free_bulk_to(&self, cpu: &M::Cpu, cache: &Cache<M>, objects: Vec<Addr>) {
        if self.policy.bulk == Bulk::Loop {
            return objects.into_iter().for_each(|object| self.free_to(cpu, cache, object));
        }
        for object in &objects {
            let (slab, kind) = Slab::of(self.pages, cpu, *object);
            let bytes = object.0 - self.pages.addr_of(slab.0).0;
            assert!(
                kind == Kind::Slab(cache.index) && cache.layout.object_index(bytes).is_some(),
                "slub: cache {}: bulk free of {:#x}: expected an object of the cache, found {kind:?}",
                cache.spec.name,
                object.0
            );
        }
        let rest = if cache.limits.sheaf_capacity > 0 { self.free_to_sheaves(cpu, cache, objects) } else { objects };
        self.free_to_slabs(cpu, cache, rest);
    }

    /// Gives users' objects to their slabs.
    fn free_to_slabs(&self, cpu: &M::Cpu, cache: &Cache<M>, objects: Vec<Addr>) {
        if objects.is_empty() {
            return;
        }
        cache.cpus.with(cpu, |c| c.moved(-(objects.len() as i64)));
        if cache.single && self.policy.t.fast_path == FastPath::Sheaf {
            cache.add(cpu, Stat::FreeSlowpath, objects.len() as u64);
        }
        self.give_objects(cpu, cache, objects);
    }

    /// Puts local objects into sheaves, piece by piece, remote ones into their slabs; returns what found no room.
    fn free_to_sheaves(&self, cpu: &M::Cpu, cache: &Cache<M>, mut objects: Vec<Addr>) -> Vec<Addr> {
        cpu.work(cost::SLUB_SHEAF_FREE);
        let (mut remote, mut i) = (Vec::new(), 0);
        while i < objects.len() {
            let pfn = self.pages.pfn_of(objects[i]).expect("an address of the arena");
            if self.is_local(cpu, self.pages.node_of(pfn)) {
                i += 1;
                continue;
            }
            remote.push(objects.swap_remove(i));
            if remote.len() == FLUSH_BATCH {
                self.free_to_slabs(cpu, cache, std::mem::take(&mut remote));
            }
        }
        let mut rest = &objects[..];
        while !rest.is_empty() {
            if self.sheaves(cpu, cache, |s| s.main.is_full())
                && !matches!(self.exchange_full(cpu, cache, false), Exchanged::Done)
            {
                break;
            }
            let put = self.sheaves(cpu, cache, |s| {
                let put = s.main.room().min(rest.len());
                cpu.touch_span(s.main.addr, 8 * put as u64, Access::Write);
                s.main.objects.extend_from_slice(&rest[..put]);
                put
            });
            self.count_sheaf(cpu, cache, -(put as i64));
            rest = &rest[put..];
        }
        let rest = rest.to_vec();
        self.free_to_slabs(cpu, cache, rest);
        remote
    }

    /// Gives objects to their slabs, past any sheaf, as chains of objects of one slab (kernel: build_detached_freelist): the
    /// last is the seed, earlier ones of its slab join until three of others have been passed.
    pub(super) fn give_objects(&self, cpu: &M::Cpu, cache: &Cache<M>, mut objects: Vec<Addr>) {
        while let Some(seed) = objects.pop() {
            let (slab, _) = Slab::of(self.pages, cpu, seed);
            let mut chain = Chain { head: seed, tail: seed, len: 1 };
            cache.links.set_next(self.pages.arena(), cpu, seed, None);
            let (mut passed, mut at) = (0, objects.len());
            while at > 0 {
                at -= 1;
                cpu.work(cost::SLUB_NEW_OBJECT);
                let object = objects[at];
                if Slab::of(self.pages, cpu, object).0 == slab {
                    cache.links.set_next(self.pages.arena(), cpu, object, Some(chain.head));
                    chain = Chain { head: object, len: chain.len + 1, ..chain };
                    objects.swap_remove(at);
                    continue;
                }
                passed += 1;
                if passed == LOOK_AHEAD {
                    break;
                }
            }
            if !cache.lockless || cache.single || !self.push_private(cpu, cache, slab, chain) {
                self.free_slab_layer(cpu, cache, slab, chain);
            }
        }
    }
}
