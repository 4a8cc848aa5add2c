//! Every slab with its objects, for [`crate::alloc::Map`].

use std::collections::BTreeMap;

use super::word::Slab;
use super::{Cache, Slub};
use crate::alloc::{Map, SlabMap, State};
use crate::machine::{Addr, Machine};
use crate::page::Pages;
use crate::spec::CacheId;

impl<M: Machine> Slub<'_, M> {
    pub(super) fn map_objects(&mut self) -> Map {
        let pages = self.pages;
        let lists: Vec<BTreeMap<Slab, String>> = self.caches.iter_mut().map(|c| c.slab_lists(pages)).collect();
        let mut map = Map::default();
        for slab in pages.taken_frames().map(Slab) {
            let Some(cache) = slab.owner(pages).and_then(|owner| self.caches.get(owner)) else { continue };
            let order = pages.order_of(slab.0);
            let list = lists[cache.index].get(&slab).map_or("full", String::as_str);
            let (_, waits) = slab.marks(pages);
            let cut = SlabMap {
                cache: Some(CacheId(cache.index as u32)),
                slab: slab.0,
                pages: order.pages(),
                node: pages.node_of(slab.0),
                list: list.into(),
                objects: Vec::new(),
            };
            map.add(cut.cut(cache.layout.left, cache.layout.slot, slab.objects(pages)));
            if waits {
                // Empty; its word says until when it waits.
                let free = (0..slab.objects(pages)).map(|i| cache.object_at(pages, slab, i));
                free.for_each(|object| map.mark(object, State::Free));
            } else {
                let view = cache.view(pages, slab);
                cache.mark_list(pages, &mut map, view.freelist, view.objects, State::Free);
            }
        }
        self.caches.iter_mut().for_each(|c| c.mark_queues(pages, &mut map));
        map.sort()
    }
}

impl<M: Machine> Cache<M> {
    /// Where each slab is that is not full and nowhere.
    fn slab_lists(&mut self, pages: &Pages<'_, M>) -> BTreeMap<Slab, String> {
        let mut lists = BTreeMap::new();
        for (cpu, c) in self.cpus.iter_mut() {
            lists.extend(c.own().map(|slab| (slab, format!("cpu {cpu}"))));
            lists.extend(c.partial.iter().map(|l| (l.slab, format!("partial of cpu {cpu}"))));
            lists.extend(c.waiting.iter(pages).map(|pfn| (Slab(pfn), "waiting for a grace period".into())));
        }
        for (n, node) in self.nodes.iter_mut().enumerate() {
            lists.extend(node.listed(pages).into_iter().map(|pfn| (Slab(pfn), format!("partial of node {n}"))));
        }
        lists
    }

    /// Marks the objects of a list of at most `most`.
    fn mark_list(&self, pages: &Pages<'_, M>, map: &mut Map, list: Option<Addr>, most: u64, state: State) {
        let (mut at, mut n) = (list, 0);
        while let (Some(object), true) = (at, n < most) {
            map.mark(object, state.clone());
            at = self.links.peek(pages.arena(), object);
            n += 1;
        }
    }

    /// Marks what lies on private lists, in sheaves, in barns, and in RCU's queues.
    fn mark_queues(&mut self, pages: &Pages<'_, M>, map: &mut Map) {
        let private: Vec<_> = self.cpus.iter_mut().map(|(cpu, c)| (cpu, c.list())).collect();
        for (cpu, list) in private {
            self.mark_list(pages, map, list, self.layout.objects, State::Cpu(cpu));
        }
        for (cpu, c) in self.cpus.iter_mut() {
            let Some(s) = &c.sheaves else { continue };
            let own = [Some(&s.main), s.spare.as_ref()];
            own.into_iter().flatten().flat_map(|s| &s.objects).for_each(|o| map.mark(*o, State::Cpu(cpu)));
            let rcu = s.rcu_free.iter().flat_map(|s| &s.objects);
            rcu.for_each(|o| map.mark(*o, State::Queue(format!("RCU sheaf of cpu {cpu}"))));
        }
        for (n, barn) in self.barns.iter_mut().enumerate() {
            let full = barn.peek().0;
            full.iter().flat_map(|s| &s.objects).for_each(|o| map.mark(*o, State::Queue(format!("barn of node {n}"))));
        }
        let waiting = self.rcu.iter_mut().flat_map(|rcu| rcu.get_mut().iter());
        waiting.flat_map(|w| w.objects()).for_each(|o| map.mark(*o, State::Queue("RCU queue".into())));
    }
}
