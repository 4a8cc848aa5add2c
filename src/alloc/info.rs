//! What every allocator reports of a cache: the columns of slabinfo.

use serde::Serialize;

use crate::page::Pfn;

/// The state of one cache. `None` is a column that the allocator does not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheInfo {
    /// Name.
    pub name: String,
    /// Bytes the creator asked for.
    pub object_size: u64,
    /// Bytes of a slot: with alignment and debug fields.
    pub slot_size: u64,
    /// Order the cache got for its slabs.
    pub order: Option<u8>,
    /// The order asked for could not hold one object and was raised.
    pub order_raised: bool,
    /// Objects of a slab of that order.
    pub objects_per_slab: Option<u64>,
    /// Objects outside slabs as slabinfo counts them: objects parked in queues count as active.
    pub active_objects: u64,
    /// Objects the users really hold.
    pub live_objects: u64,
    /// Slots of all slabs.
    pub total_objects: Option<u64>,
    /// Slabs with an active object.
    pub active_slabs: Option<u64>,
    /// Slabs.
    pub slabs: Option<u64>,
    /// Pages of all slabs (SLOB: none, its heap pages belong to no cache).
    pub pages: Option<u64>,
    /// SLAB: array limit; SLQB: hiwater.
    pub limit: Option<u64>,
    /// SLAB: batchcount; SLQB: freebatch.
    pub batchcount: Option<u64>,
    /// SLAB: sharedfactor.
    pub sharedfactor: Option<u64>,
    /// SLAB: objects in shared arrays.
    pub sharedavail: Option<u64>,
    /// SLUB: partial slabs kept per node.
    pub min_partial: Option<u64>,
    /// Slabs on partial lists.
    pub partial: Option<u64>,
}

/// Where an object lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement {
    /// First frame of its slab.
    pub slab: Pfn,
    /// Index in the slab (SLOB: byte offset in the page).
    pub index: u64,
    /// Byte offset of object 0 from the slab's start.
    pub offset: u64,
}

/// The text of `/proc/slabinfo` version 2.1 without statistics: two header lines, one line per cache in the given order.
pub fn slabinfo_text(caches: &[CacheInfo]) -> String {
    let mut text = String::from("slabinfo - version: 2.1\n");
    text += "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>\n";
    for c in caches {
        // The kernel counts bytes, not characters.
        let blanks = " ".repeat(17usize.saturating_sub(c.name.len()));
        text += &format!(
            "{}{blanks} {:>6} {:>6} {:>6} {:>4} {:>4} : tunables {:>4} {:>4} {:>4} : slabdata {:>6} {:>6} {:>6}\n",
            c.name,
            c.active_objects,
            c.total_objects.unwrap_or(0),
            c.slot_size,
            c.objects_per_slab.unwrap_or(0),
            1u64 << c.order.unwrap_or(0),
            c.limit.unwrap_or(0),
            c.batchcount.unwrap_or(0),
            c.sharedfactor.unwrap_or(0),
            c.active_slabs.unwrap_or(0),
            c.slabs.unwrap_or(0),
            c.sharedavail.unwrap_or(0),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_example_e5_is_equal_to_the_last_blank() {
        let cache = CacheInfo {
            name: "size-256".into(),
            active_objects: 105,
            total_objects: Some(105),
            slot_size: 256,
            objects_per_slab: Some(15),
            order: Some(0),
            limit: Some(120),
            batchcount: Some(60),
            sharedfactor: Some(8),
            active_slabs: Some(7),
            slabs: Some(7),
            ..CacheInfo::default()
        };
        let text = slabinfo_text(&[cache]);
        assert_eq!(
            text.lines().nth(2).unwrap(),
            "size-256             105    105    256   15    1 : tunables  120   60    8 : slabdata      7      7      0"
        );
    }
}
