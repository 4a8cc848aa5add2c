//! Which arrays a cache has, how large they are, and where their memory comes from.

use super::Slab;
use super::geometry::Tunables;
use super::policy::{Config, CpuArrays, Metadata};
use crate::error::Error;
use crate::machine::{Addr, Cpu, Machine};
use crate::spec::Request;
use crate::topology::Topology;
use crate::units::{CpuId, NodeId, Picos};

/// Offset of the lock in an alien array's header.
pub(super) const ARRAY_LOCK_OFFSET: u64 = 16;
/// Bytes of an alien array's lock where other arrays have none.
const ALIEN_LOCK: u64 = 8;

/// Who has an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Cpu(CpuId),
    Shared(NodeId),
    Alien { here: NodeId, home: NodeId },
}

/// An array of a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) owner: Owner,
    bytes: u64,
    node: NodeId,
    /// From a general cache; otherwise from the per-CPU area.
    kmalloc: bool,
}

/// Where an array lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) owner: Owner,
    pub(super) at: Addr,
    /// It is an object of a general cache, to be given back.
    pub(super) object: bool,
}

/// The arrays of a cache in the order in which their memory is asked for: node arrays first, then the CPUs'. The order is
/// ours.
pub(super) fn plan(topology: &Topology, tunables: &Tunables, config: &Config) -> Vec<Wanted> {
    let policy = config.policy();
    let mut all = Vec::new();
    let lock = if policy.array_header > ARRAY_LOCK_OFFSET { 0 } else { ALIEN_LOCK };
    for here in topology.node_ids() {
        let mut add = |owner, bytes| all.push(Wanted { owner, bytes, node: here, kmalloc: true });
        if tunables.shared_limit() > 0 {
            add(Owner::Shared(here), policy.array_bytes(tunables.shared_limit()));
        }
        for home in topology.node_ids().filter(|h| *h != here && config.aliens) {
            add(Owner::Alien { here, home }, lock + policy.array_bytes(tunables.alien_limit()));
        }
    }
    for cpu in topology.cpu_ids() {
        let bytes = policy.array_bytes(tunables.limit);
        let kmalloc = policy.cpu_arrays == CpuArrays::Kmalloc;
        all.push(Wanted { owner: Owner::Cpu(cpu), bytes, node: topology.node_of(cpu), kmalloc });
    }
    all
}

impl<M: Machine> Slab<'_, M> {
    /// The arrays that a cache with these tunables has.
    pub(super) fn plan(&self, tunables: &Tunables) -> Vec<Wanted> {
        let all = plan(self.pages.machine().topology(), tunables, &self.config);
        all.into_iter().filter(|wanted| self.is_served(wanted)).collect()
    }

    /// Puts arrays outside the memory that anyone can allocate.
    pub(super) fn reserve_arrays(&self, wanted: &[Wanted]) -> Vec<Placed> {
        let machine = self.pages.machine();
        wanted.iter().map(|w| Placed { owner: w.owner, at: machine.reserve(w.bytes, w.node), object: false }).collect()
    }

    /// Puts arrays where `metadata` says. Returns the time when they were there, too; refuses what memory has no room for,
    /// with nothing taken.
    pub(super) fn make_arrays(&self, wanted: &[Wanted]) -> Result<(Vec<Placed>, Picos), Error> {
        if self.config.metadata == Metadata::Free {
            return Ok((self.reserve_arrays(wanted), self.on_first_cpu(|cpu| cpu.now())));
        }
        let asked: Vec<&Wanted> = wanted.iter().filter(|w| w.kmalloc).collect();
        let (got, now) = self.on_first_cpu(|cpu| {
            let mut got = Vec::new();
            for w in &asked {
                let want = Request { node: Some(w.node), ..Request::default() };
                match self.kmalloc_any(cpu, w.bytes, want) {
                    Some(object) => got.push(object.addr()),
                    None => break,
                }
            }
            if got.len() < asked.len() {
                got.drain(..).for_each(|addr| self.kfree_any(cpu, addr));
            }
            (got, cpu.now())
        });
        if got.len() < asked.len() {
            let bytes: u64 = asked.iter().map(|w| w.bytes).sum();
            let room = format!("room for {bytes} bytes of arrays per cache");
            return Err(Error::new("machine.memory", "too small", room));
        }
        let mut got = got.into_iter();
        let machine = self.pages.machine();
        let place = |w: &Wanted| match w.kmalloc {
            true => Placed { owner: w.owner, at: got.next().expect("as many as asked for"), object: true },
            false => Placed { owner: w.owner, at: machine.reserve(w.bytes, w.node), object: false },
        };
        Ok((wanted.iter().map(place).collect(), now))
    }
}
