//! Which page allocator: the states of history that the lab tells apart (page-allocator.md §16 and §17).

use crate::error::Error;

/// How blocks are handed out, named as `pages=` names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PageModel {
    /// 2.6.24: one list of order-0 pages per CPU and zone that matters (hot), every other order under the zone lock.
    #[default]
    HotCold,
    /// 2.6.25 to about 2.6.35: hot and cold lists are one. With nobody asking for cold pages it works as 2.6.24.
    Single,
    /// 3.1: as before; a freed block that will probably merge soon goes to the tail of its list.
    SingleTail,
    /// 5.14 to 6.6: per-CPU lists of orders 0..3; `high` from the low watermark and the CPUs of the node; returns that grow.
    Watermark,
    /// 6.7 and later: the same lists; `high` tunes itself between two bounds.
    SelfTuning,
    /// No per-CPU lists: every call takes the zone lock. A baseline; otherwise as 2.6.24.
    NoLists,
    /// What the recordings' stand-ins do: per node fresh blocks from the lowest address up; a returned block is handed
    /// out first to the next request of its order. Blocks are never split or merged. For replays only.
    Stack,
}

/// Names that `pages=` accepts, each with its model: kinds first, then the kernel releases that stand for them.
const NAMES: [(&str, PageModel); 10] = [
    ("hot-cold", PageModel::HotCold),
    ("single", PageModel::Single),
    ("watermark", PageModel::Watermark),
    ("self-tuning", PageModel::SelfTuning),
    ("none", PageModel::NoLists),
    ("2.6.24", PageModel::HotCold),
    ("2.6.27", PageModel::Single),
    ("3.1", PageModel::SingleTail),
    ("6.1", PageModel::Watermark),
    ("6.8", PageModel::SelfTuning),
];

impl PageModel {
    /// The model of a name.
    pub fn named(name: &str) -> Result<PageModel, Error> {
        let found = NAMES.iter().find(|(n, _)| *n == name).map(|(_, m)| *m);
        found.ok_or_else(|| Error::unknown("machine.pages", name, &PageModel::names()))
    }
    /// Every name that `pages=` accepts.
    pub fn names() -> [&'static str; NAMES.len()] {
        NAMES.map(|(name, _)| name)
    }
    /// The release that stands for it, or its kind where there is none.
    pub fn name(self) -> &'static str {
        match self {
            PageModel::HotCold => "2.6.24",
            PageModel::Single => "2.6.27",
            PageModel::SingleTail => "3.1",
            PageModel::Watermark => "6.1",
            PageModel::SelfTuning => "6.8",
            PageModel::NoLists => "none",
            PageModel::Stack => "stack",
        }
    }
    /// The page allocator around an allocator of kernel `release` (page-allocator.md §17): that of its time.
    pub fn of_release(release: &str) -> PageModel {
        match release {
            "2.6.25" | "2.6.27" | "2.6.29" | "2.6.31" => PageModel::Single,
            "3.1" | "3.2" => PageModel::SingleTail,
            "6.1" => PageModel::Watermark,
            "6.8" | "6.18" | "7.1" => PageModel::SelfTuning,
            _ => PageModel::HotCold,
        }
    }

    /// Orders that per-CPU lists hold: 0..this.
    pub(super) fn listed_orders(self) -> usize {
        match self {
            PageModel::HotCold | PageModel::Single | PageModel::SingleTail => 1,
            PageModel::Watermark | PageModel::SelfTuning => 4,
            PageModel::NoLists | PageModel::Stack => 0,
        }
    }
    /// Blocks split and merge, and every page is accounted for. Not so in replays.
    pub(super) fn is_buddy(self) -> bool {
        self != PageModel::Stack
    }
    /// A block whose next merge needs one more free only goes to the tail (about 2.6.36 on).
    pub(super) fn likely_merge_to_tail(self) -> bool {
        matches!(self, PageModel::SingleTail) || self.is_modern()
    }
    /// 5.14 and later: marks with a scale factor, any sufficient block passes, boot memory is queued at the tail, lists
    /// under a lock of their own.
    pub(super) fn is_modern(self) -> bool {
        matches!(self, PageModel::Watermark | PageModel::SelfTuning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_allocator_era_has_the_page_allocator_of_its_time() {
        for (release, name) in [
            ("2.6.21-mm1", "2.6.24"),
            ("2.6.24-headmerge", "2.6.24"),
            ("2.6.25", "2.6.27"),
            ("2.6.29", "2.6.27"),
            ("2.6.31", "2.6.27"),
            ("3.2", "3.1"),
            ("6.1", "6.1"),
            ("6.18", "6.8"),
            ("7.1", "6.8"),
        ] {
            assert_eq!(PageModel::of_release(release).name(), name, "{release}");
        }
    }

    #[test]
    fn every_name_is_known_and_another_is_refused_with_them() {
        for (name, model) in NAMES {
            assert_eq!(PageModel::named(name).unwrap(), model);
            assert_eq!(PageModel::named(model.name()).unwrap(), model);
        }
        let e = PageModel::named("watermarks").unwrap_err().to_string();
        assert!(e.contains("machine.pages") && e.contains("did you mean \"watermark\""), "{e}");
    }
}
