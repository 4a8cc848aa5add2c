//! The map of an allocator: every slab, the list it is on, and what each of its objects is. For people to look at; when no
//! CPU runs.

use std::collections::HashMap;
use std::fmt;

use crate::machine::Addr;
use crate::page::Pfn;
use crate::spec::CacheId;
use crate::units::{CpuId, NodeId, PAGE_SIZE};

/// What an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// In somebody's hands.
    Used,
    /// Free in its slab.
    Free,
    /// Free on the list that this CPU allocates from: array, private list, LIFO, sheaf.
    Cpu(CpuId),
    /// Free in another queue, by name: it counts as in use in its slab.
    Queue(String),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Used => f.write_str("used"),
            State::Free => f.write_str("free"),
            State::Cpu(cpu) => write!(f, "cpu {cpu}"),
            State::Queue(name) => f.write_str(name),
        }
    }
}

/// One object of a slab, or a block of a SLOB page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// First byte, from the start of the slab.
    pub at: u64,
    /// Bytes of its slot.
    pub bytes: u64,
    /// What it is.
    pub state: State,
}

/// A slab. Its objects are in order of address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabMap {
    /// Its cache; none for a page that caches share.
    pub cache: Option<CacheId>,
    /// First frame.
    pub slab: Pfn,
    /// Pages.
    pub pages: u64,
    /// Node of its memory.
    pub node: NodeId,
    /// The list it is on, or whose it is.
    pub list: String,
    /// What lies in it.
    pub objects: Vec<Block>,
}

impl SlabMap {
    /// The same with `num` objects, one every `slot` bytes from `first` on, all in use.
    pub fn cut(mut self, first: u64, slot: u64, num: u64) -> SlabMap {
        let used = |i| Block { at: first + i * slot, bytes: slot, state: State::Used };
        self.objects = (0..num).map(used).collect();
        self
    }
}

/// An object that the caller of the allocator holds: its cache, or none for kmalloc, and its address.
pub type Live = (Option<CacheId>, Addr);

/// Every slab.
#[derive(Debug, Default)]
pub struct Map {
    /// In order of address once [`Map::sort`] has been called.
    slabs: Vec<SlabMap>,
    by_frame: HashMap<u32, usize>,
}

impl Map {
    /// Adds a slab.
    pub fn add(&mut self, slab: SlabMap) {
        for frame in slab.slab.0..slab.slab.0 + slab.pages as u32 {
            self.by_frame.insert(frame, self.slabs.len());
        }
        self.slabs.push(slab);
    }
    /// Says what the object at `object` is. An address outside all slabs is nobody's.
    pub fn mark(&mut self, object: Addr, state: State) {
        if let Some((slab, index)) = self.find(object) {
            self.slabs[slab].objects[index].state = state;
        }
    }
    /// Slab and index of the object that `at` lies in.
    pub fn find(&self, at: Addr) -> Option<(usize, usize)> {
        let slab = *self.by_frame.get(&u32::try_from(at.0 / PAGE_SIZE).ok()?)?;
        let map = &self.slabs[slab];
        let inside = at.0 - u64::from(map.slab.0) * PAGE_SIZE;
        let index = map.objects.partition_point(|o| o.at <= inside).checked_sub(1)?;
        (inside < map.objects[index].at + map.objects[index].bytes).then_some((slab, index))
    }
    /// The slabs.
    pub fn slabs(&self) -> &[SlabMap] {
        &self.slabs
    }
    /// Puts the slabs in order of address.
    pub fn sort(self) -> Map {
        let mut slabs = self.slabs;
        slabs.sort_by_key(|s| s.slab);
        let mut sorted = Map::default();
        slabs.into_iter().for_each(|slab| sorted.add(slab));
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_by_any_of_its_bytes_and_a_gap_is_nobodys() {
        let slab = |pfn, pages| SlabMap {
            cache: None,
            slab: Pfn(pfn),
            pages,
            node: NodeId(0),
            list: "full".into(),
            objects: Vec::new(),
        };
        let mut map = Map::default();
        map.add(slab(8, 2).cut(64, 100, 80));
        map.add(slab(4, 1).cut(0, 1024, 3));
        let mut map = map.sort();
        let at = |frame: u64, byte: u64| Addr(frame * PAGE_SIZE + byte);
        assert_eq!(map.find(at(8, 64)), Some((1, 0)));
        assert_eq!(map.find(at(9, 0)), Some((1, 40)), "byte 4096 lies in object 40");
        assert_eq!(map.find(at(8, 63)), None, "management");
        assert_eq!(map.find(at(4, 3072)), None, "the rest");
        assert_eq!(map.find(at(5, 0)), None, "no slab");
        map.mark(at(4, 1024), State::Cpu(CpuId(3)));
        let states: Vec<String> = map.slabs()[0].objects.iter().map(|o| o.state.to_string()).collect();
        assert_eq!(states, ["used", "cpu 3", "used"]);
    }
}
