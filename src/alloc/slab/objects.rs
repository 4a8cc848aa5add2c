//! Every slab with its objects, for [`crate::alloc::Map`].

use super::Slab;
use super::array::Array;
use super::header::{Header, Headers};
use crate::alloc::{Map, SlabMap, State};
use crate::machine::{Addr, Machine};
use crate::spec::CacheId;
use crate::units::NodeId;

impl<M: Machine> Slab<'_, M> {
    pub(super) fn map_objects(&mut self) -> Map {
        let mut map = Map::default();
        (0..self.caches.len()).for_each(|index| self.map_cache(index, &mut map));
        map.sort()
    }

    fn map_cache(&mut self, index: usize, map: &mut Map) {
        let (pages, private, management) = (self.pages, self.private.as_ref(), self.policy.management);
        let cache = &mut self.caches[index];
        let geometry = cache.geometry;
        let private = private.filter(|_| cache.has_private_management());
        let headers = Headers { pages, management, geometry: &geometry, private };
        for (n, node) in cache.nodes.iter_mut().enumerate() {
            let lists = node.lists.get_mut();
            let partial = format!("partial of node {n}");
            for (list, name) in [(&lists.full, "full"), (&lists.partial, &partial), (&lists.free, "empty")] {
                for slab in list.iter(&headers).collect::<Vec<Header>>() {
                    let Some(head) = headers.head(slab) else { continue };
                    let (start, first) = (pages.addr_of(head), headers.first(slab));
                    let cut = SlabMap {
                        cache: Some(CacheId(index as u32)),
                        slab: head,
                        pages: geometry.order.pages(),
                        node: NodeId(n as u16),
                        list: name.into(),
                        objects: Vec::new(),
                    };
                    map.add(cut.cut(first.0 - start.0, geometry.slot, geometry.num));
                    for free in headers.free_indexes(slab) {
                        map.mark(first.plus(u64::from(free) * geometry.slot), State::Free);
                    }
                }
            }
        }
        let mut mark =
            |array: &Array, state: State| array.entries().iter().for_each(|o: &Addr| map.mark(*o, state.clone()));
        for (cpu, c) in cache.cpus.iter_mut() {
            mark(&c.array, State::Cpu(cpu));
        }
        for (n, node) in cache.nodes.iter_mut().enumerate() {
            if let Some(shared) = &node.lists.get_mut().shared {
                mark(shared, State::Queue(format!("shared array of node {n}")));
            }
            for (home, alien) in node.alien.iter_mut().enumerate() {
                if let Some(alien) = alien {
                    mark(alien.get_mut(), State::Queue(format!("alien[{home}] of node {n}")));
                }
            }
        }
    }
}
