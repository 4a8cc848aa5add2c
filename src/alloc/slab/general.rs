//! The general caches, from which kmalloc serves: their sizes, names and kinds, and the order in which they are made.

use super::super::geometry::Shape;
use super::super::kinds;
use crate::spec::Kind;
use crate::units::MAX_ORDER;

/// The general caches of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kmalloc {
    /// Their sizes, ascending. Larger requests take whole pages, if the largest block is larger.
    pub sizes: &'static [u64],
    /// Sizes that are powers of two are aligned to themselves.
    pub natural_align: bool,
    /// Kinds of which each size can have a cache, in the order in which they are made; the first is [`Kind::Normal`].
    pub kinds: &'static [Kind],
    /// Each size's twins are made right after it; otherwise all of one kind, then all of the next.
    pub twins: bool,
    /// The cache that is made first of all: the allocator's own records come from it.
    pub first: u64,
}

impl Kmalloc {
    /// Name of the cache of this size and kind: `size-1024(DMA)`, `kmalloc-rcl-1k`.
    pub fn name(&self, size: u64, kind: Kind) -> String {
        match kind {
            _ if !self.twins => kinds::name(kind, &kinds::short(size)),
            Kind::Dma => format!("size-{size}(DMA)"),
            _ => format!("size-{size}"),
        }
    }

    /// Index of the smallest size that holds `bytes`.
    #[inline]
    pub fn class(&self, bytes: u64) -> Option<usize> {
        // Two searches of a power-of-two ladder with some in between.
        let i = self.sizes.partition_point(|size| *size < bytes);
        (i < self.sizes.len()).then_some(i)
    }

    /// Sizes of the general caches on a machine of this shape, ascending (slab.md §13). Those of the machines that run here
    /// are [`Kmalloc::sizes`].
    pub(super) fn sizes_on(&self, shape: &Shape) -> Vec<u64> {
        let (any, line) = (self.natural_align, shape.line);
        let steps = [
            (32, any || shape.page_size == 4096),
            (64, true),
            (96, any || line < 64),
            (128, true),
            (192, any || line < 128),
        ];
        let most = if self.natural_align { 2 * shape.page_size } else { shape.kmalloc_cap(MAX_ORDER as u32 - 1) };
        let small = steps.iter().filter(|(_, there)| *there).map(|(size, _)| *size);
        small.chain((8..64).map(|i| 1 << i).take_while(|size| *size <= most)).collect()
    }

    /// Size of the smallest of them that holds `bytes`.
    pub(super) fn size_of_class(&self, bytes: u64, shape: &Shape) -> Option<u64> {
        self.sizes_on(shape).into_iter().find(|size| *size >= bytes)
    }

    /// The kinds that a list of words as `"rcl,dma"` names, [`Kind::Normal`] included, in the order of their making; or what
    /// would be right.
    pub fn kinds_of(&self, list: &str) -> Result<Vec<Kind>, String> {
        kinds::listed(self.kinds, list)
    }

    /// Every cache of these kinds as (index of its size, kind), in the order of their making.
    pub fn making(&self, kinds: &[Kind]) -> Vec<(usize, Kind)> {
        let mut classes: Vec<usize> = (0..self.sizes.len()).collect();
        classes.sort_by_key(|class| self.sizes[*class] != self.first);
        let mut all = Vec::new();
        if self.twins {
            classes.iter().for_each(|class| all.extend(kinds.iter().map(|kind| (*class, *kind))));
            return all;
        }
        for kind in kinds {
            // Only the first of all is pulled forward.
            if *kind != Kind::Normal {
                classes.sort_unstable();
            }
            all.extend(classes.iter().map(|class| (*class, *kind)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::eras::{V2_6_24, V6_1};
    use super::*;

    #[test]
    fn general_caches_have_the_names_of_their_era() {
        let name = |size, kind| [V2_6_24, V6_1].map(|p| p.kmalloc.name(size, kind));
        assert_eq!(name(192, Kind::Normal), ["size-192", "kmalloc-192"]);
        assert_eq!(name(1024, Kind::Normal), ["size-1024", "kmalloc-1k"]);
        assert_eq!(name(8192, Kind::Dma), ["size-8192(DMA)", "dma-kmalloc-8k"]);
        assert_eq!(V6_1.kmalloc.name(96, Kind::Reclaimable), "kmalloc-rcl-96");
        assert_eq!(V6_1.kmalloc.name(2048, Kind::Accounted), "kmalloc-cg-2k");
    }

    #[test]
    fn a_request_takes_the_smallest_size_that_holds_it() {
        assert_eq!([65, 97, 8193].map(|bytes| V6_1.kmalloc.class(bytes)), [Some(2), Some(3), None]);
        assert_eq!([65, 4 << 20, (4 << 20) + 1].map(|bytes| V2_6_24.kmalloc.class(bytes)), [Some(2), Some(18), None]);
    }

    #[test]
    fn kinds_are_named_by_words_of_the_era() {
        use Kind::{Accounted, Dma, Normal, Reclaimable};
        assert_eq!(V6_1.kmalloc.kinds_of("cg, rcl"), Ok(vec![Normal, Reclaimable, Accounted]));
        assert_eq!(V6_1.kmalloc.kinds_of(""), Ok(vec![Normal]));
        assert_eq!(V2_6_24.kmalloc.kinds_of("dma"), Ok(vec![Normal, Dma]));
        assert_eq!(V2_6_24.kmalloc.kinds_of("rcl"), Err("a list of dma, or nothing".into()));
    }

    #[test]
    fn twins_of_2_6_24_stand_together_and_kinds_of_6_1_apart() {
        let making = |p: &super::super::policy::Policy, list: &str| {
            let k = p.kmalloc;
            k.making(&k.kinds_of(list).unwrap()).into_iter().map(|(class, kind)| k.name(k.sizes[class], kind)).collect()
        };
        let old: Vec<String> = making(&V2_6_24, "dma");
        assert_eq!(old[..4], ["size-32", "size-32(DMA)", "size-64", "size-64(DMA)"]);
        let new: Vec<String> = making(&V6_1, "rcl");
        assert_eq!(new[..4], ["kmalloc-128", "kmalloc-32", "kmalloc-64", "kmalloc-96"]);
        assert_eq!(
            new[11..16].join(" "),
            "kmalloc-rcl-32 kmalloc-rcl-64 kmalloc-rcl-96 kmalloc-rcl-128 kmalloc-rcl-192"
        );
        assert_eq!((old.len(), new.len()), (38, 22));
    }
}
