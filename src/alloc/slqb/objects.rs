//! Every slab with its objects, for [`crate::alloc::Map`].

use super::chain::Chain;
use super::node::unpack;
use super::verify::slabs_by_cache;
use super::{Cache, Slqb};
use crate::alloc::{Map, SlabMap, State};
use crate::machine::{Addr, Machine};
use crate::page::{Field, Pfn};

impl<M: Machine> Slqb<'_, M> {
    pub(super) fn map_objects(&mut self) -> Map {
        let slabs = slabs_by_cache(self.pages, self.caches.len());
        let mut map = Map::default();
        for (cache, slabs) in self.caches.iter_mut().zip(slabs) {
            cache.map_objects(&slabs, &mut map);
        }
        map.sort()
    }
}

impl<M: Machine> Cache<'_, M> {
    fn map_objects(&mut self, slabs: &[Pfn], map: &mut Map) {
        let g = self.geometry.clone();
        let seen = self.look();
        // "cpu0" of a recording is "cpu 0" to a reader.
        let names: Vec<String> = seen.iter().map(|l| l.name.replace("cpu", "cpu ").replace("node", "node ")).collect();
        for &pfn in slabs {
            let state = unpack(self.pages.peek(pfn, Field::Counters));
            let owner = &names[self.owner(pfn).0 as usize];
            let kind = if state.inuse < g.objects { "partial" } else { "full" };
            let cut = SlabMap {
                cache: Some(self.id),
                slab: pfn,
                pages: g.order.pages(),
                node: self.pages.node_of(pfn),
                list: format!("{kind} of {owner}"),
                objects: Vec::new(),
            };
            map.add(cut.cut(state.colour, g.size, g.objects));
            let free = Addr(self.pages.peek(pfn, Field::Extra));
            let free = self.links().walk(free, g.objects - state.inuse, self.last_link());
            free.into_iter().for_each(|object| map.mark(object, State::Free));
        }
        let cpus = seen.len() - self.nodes.len();
        for (i, list) in seen.iter().enumerate() {
            let own = match i < cpus {
                true => State::Cpu(crate::units::CpuId(i as u16)),
                false => State::Queue(format!("LIFO of {}", names[i])),
            };
            self.mark_chain(map, list.lifo, own);
            self.mark_chain(map, list.remote, State::Queue(format!("remote_free of {}", names[i])));
        }
        let rlists: Vec<_> = self.cpus.iter_mut().map(|(cpu, s)| (cpu, s.rlist)).collect();
        for (cpu, rlist) in rlists {
            self.mark_chain(map, rlist, State::Queue(format!("rlist of cpu {cpu}")));
        }
    }

    fn mark_chain(&self, map: &mut Map, chain: Chain, state: State) {
        chain.walk(self.links(), self.last_link()).into_iter().for_each(|object| map.mark(object, state.clone()));
    }
}
