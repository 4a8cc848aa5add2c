//! What the releases of SLOB disagree about: one switch each, and the eras as settings of the switches.

use serde::{Deserialize, Serialize};

use crate::alloc::geometry::{Columns, Shape, Wanted};
use crate::alloc::{Configuration, Parameter};
use crate::error::Error;
use crate::units::PAGE_SIZE;

/// Era and switches. Each switch can be set alone: the ablation is the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Release whose switches these are, before overrides.
    pub era: String,
    /// How many lists the partly free pages are kept in.
    pub lists: Lists,
    /// Join a block freed below the first free block of its page with that block. Without it the two stay apart for
    /// good, and freeing in stack order leaves one fragment per object (the patch of January 2008).
    pub head_merge: bool,
    /// With three lists: the list of a full page that has become partial.
    pub relist: Relist,
    /// Which page a list begins with after an allocation.
    pub rotation: Rotation,
    /// Align kmalloc objects of a power-of-two size to their size. Users relied on it and got it from 5.4 on; it halves
    /// the density of those sizes where nothing fills the holes.
    pub natural_align: bool,
    /// Who computes size and alignment of a cache.
    pub create: Create,
    /// When an empty page goes back to the page allocator.
    pub page_return: PageReturn,
    /// Bytes of a cache's descriptor, a block of the same heap. 0: kept elsewhere, as the recordings do.
    pub descriptor: u64,
}

/// How many lists the partly free pages are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lists {
    /// One for all sizes: small blocks land in the pages that large ones need.
    One,
    /// By size of the block: below 256 bytes, below 1024, the rest. Its author saw the overhead of a boot fall from 50 %
    /// to 6 % (commit 20cecbae4).
    Three,
}

/// The list of a full page that becomes partial by a free, with [`Lists::Three`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relist {
    /// The small one, whatever is freed: large blocks lose their pages to small ones (to 2.6.34 at least).
    AlwaysSmall,
    /// The one of the freed block's size: a page keeps its list for life.
    BySize,
}

/// Next fit: where the next search of a list begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rotation {
    /// At the page just used; if it has become full, at its successor.
    Old,
    /// At the page just used; if it has become full, where this search began (5.2).
    New,
}

/// Who computes size and alignment of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Create {
    /// SLOB itself: the size as given; SLAB_HWCACHE_ALIGN is a whole line even for a small object.
    Own,
    /// The code common to all slab allocators: the size in whole units; the line is halved while the object fits.
    Common,
}

/// When an empty page goes back to the page allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageReturn {
    /// Under `slob_lock`, which then waits for the zone lock.
    Locked,
    /// After unlocking.
    Unlocked,
}

/// Names of the lists in reports, by number of lists.
pub(super) const ONE: &[&str] = &["all"];
pub(super) const THREE: &[&str] = &["small", "medium", "large"];

/// Blocks of fewer bytes than this are small, …
const SMALL: u64 = 256;
/// … of fewer than this medium, the others large.
const MEDIUM: u64 = 1024;

impl Config {
    /// The list for blocks of `bytes` bytes, header included.
    pub(super) fn list(&self, bytes: u64) -> usize {
        match self.lists {
            Lists::One => 0,
            Lists::Three => usize::from(bytes >= SMALL) + usize::from(bytes >= MEDIUM),
        }
    }
    /// The list of a full page in which a block of `bytes` bytes has been freed.
    pub(super) fn relist(&self, bytes: u64) -> usize {
        match self.relist {
            Relist::AlwaysSmall => 0,
            Relist::BySize => self.list(bytes),
        }
    }
    /// Names of the lists.
    pub(super) fn list_names(&self) -> &'static [&'static str] {
        match self.lists {
            Lists::One => ONE,
            Lists::Three => THREE,
        }
    }

    fn v2_6_24() -> Config {
        Config {
            era: "2.6.24".into(),
            lists: Lists::One,
            head_merge: false,
            relist: Relist::AlwaysSmall,
            rotation: Rotation::Old,
            natural_align: false,
            create: Create::Own,
            page_return: PageReturn::Locked,
            descriptor: 32,
        }
    }
    fn v2_6_24_headmerge() -> Config {
        Config { era: "2.6.24-headmerge".into(), head_merge: true, ..Config::v2_6_24() }
    }
    fn v2_6_27() -> Config {
        Config { era: "2.6.27".into(), lists: Lists::Three, ..Config::v2_6_24_headmerge() }
    }
    fn v6_1() -> Config {
        Config {
            era: "6.1".into(),
            relist: Relist::BySize,
            rotation: Rotation::New,
            natural_align: true,
            create: Create::Common,
            page_return: PageReturn::Unlocked,
            descriptor: 64,
            ..Config::v2_6_27()
        }
    }
}

impl Configuration for Config {
    const NAME: &'static str = "slob";
    const ERAS: &'static [&'static str] = &["2.6.24", "2.6.24-headmerge", "2.6.27", "6.1"];
    const DEFAULT_ERA: &'static str = "2.6.24";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter { name: "lists", unit: "", meaning: "lists of partly free pages: one, or three by block size" },
        Parameter {
            name: "head_merge",
            unit: "",
            meaning: "join a block freed below the first free block of its page with that block",
        },
        Parameter {
            name: "relist",
            unit: "",
            meaning: "with three lists, where a full page goes on its first free: always_small or by_size",
        },
        Parameter {
            name: "rotation",
            unit: "",
            meaning: "next fit after a page became full: old goes on at its successor, new where the search began",
        },
        Parameter {
            name: "natural_align",
            unit: "",
            meaning: "align kmalloc objects of a power-of-two size to their size",
        },
        Parameter {
            name: "create",
            unit: "",
            meaning: "cache geometry: own (size as given, whole cache lines) or common (whole units, halved lines)",
        },
        Parameter {
            name: "page_return",
            unit: "",
            meaning: "return empty pages with slob_lock held (locked) or after it (unlocked)",
        },
        Parameter {
            name: "descriptor",
            unit: "bytes",
            meaning: "block of the heap that each cache's descriptor takes; 0 for none",
        },
    ];

    fn era(era: &str) -> Option<Self> {
        match era {
            "2.6.24" => Some(Config::v2_6_24()),
            "2.6.24-headmerge" => Some(Config::v2_6_24_headmerge()),
            "2.6.27" => Some(Config::v2_6_27()),
            "6.1" => Some(Config::v6_1()),
            _ => None,
        }
    }
    fn geometry(&self, wanted: &Wanted, shape: &Shape) -> Result<Columns, Error> {
        super::asked::geometry(self, wanted, shape)
    }
    fn check(&self) -> Result<(), Error> {
        if self.descriptor >= PAGE_SIZE {
            return Err(Error::new("allocator.descriptor", self.descriptor, "0..4095 bytes: it lies within a page"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_to_lists_by_size_with_borders_at_256_and_1024() {
        // X10: kmalloc sizes 247, 248, 1015, 1016 with their header of 8 bytes.
        let three = Config::v2_6_27();
        assert_eq!([255, 256, 1023, 1024].map(|b| three.list(b)), [0, 1, 1, 2]);
        assert_eq!([255, 256, 1023, 1024].map(|b| Config::v2_6_24().list(b)), [0; 4]);
    }

    #[test]
    fn a_switch_can_be_set_alone_and_an_unknown_setting_is_refused_by_name() {
        let json = serde_json::json!({ "era": "2.6.24", "head_merge": true });
        let config = Config::from_json(&json).unwrap();
        assert_eq!(config, Config { head_merge: true, ..Config::v2_6_24() });
        let refused = |json| Config::from_json(&json).unwrap_err().to_string();
        assert!(refused(serde_json::json!({ "rotation": "newest" })).contains("allocator.rotation"));
        assert!(refused(serde_json::json!({ "descriptor": 4096 })).contains("allocator.descriptor"));
        assert!(refused(serde_json::json!({ "era": "2.6.25" })).contains("2.6.24-headmerge"));
    }

    #[test]
    fn every_era_has_every_parameter_and_no_other() {
        for era in Config::ERAS {
            let value = serde_json::to_value(Config::era(era).unwrap()).unwrap();
            let mut fields: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
            let mut named: Vec<&str> = Config::PARAMETERS.iter().map(|p| p.name).chain(["era"]).collect();
            fields.sort_unstable();
            named.sort_unstable();
            assert_eq!(fields, named, "{era}");
        }
    }
}
