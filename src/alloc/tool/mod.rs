//! The `slabinfo` tool (slabinfo.md): what it reads, and what it prints of it. It knows no allocator, only files: each cache
//! is a directory of attributes with text in them, as the kernel shows it in sysfs; a missing attribute reads as 0.
//!
//! SLAB and SLQB never had such a tool. What theirs reads besides files stands beside them, as figures of the lab, and
//! the columns that hang on SLUB's cpu slabs give way to columns on queues.

mod lines;
mod totals;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::units::PAGE_SIZE;

/// Which allocator's columns are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Slabs and cpu slabs.
    Slub,
    /// Arrays of objects.
    Slab,
    /// Queues of objects.
    Slqb,
}

/// Form of the tool's lines: it grew with SLUB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// 2.6.22: all slabs stand first in the column of slabs.
    Oldest,
    /// Up to 2.6.37.
    Old,
    /// 3.2: lost compare-exchanges.
    Mid,
    /// From 4.3 on: a wider column of space.
    New,
}

/// A cache as the tool finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// Number of the cache.
    pub cache: u32,
    /// Name of the directory: the cache's own, or an id like `:0000104` for one that can be shared.
    pub name: String,
    /// Links to it: names under which caches were asked for.
    pub links: Vec<String>,
    /// Attributes with their text, without its closing newline. An event file that reads 0 is left out.
    pub files: Map<String, Value>,
    /// What no file shows.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub lab: Map<String, Value>,
}

/// All caches of an allocator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Whose.
    pub kind: Kind,
    /// How lines look.
    pub form: Form,
    /// Era, for messages.
    pub era: String,
    /// The files are in sysfs; SLAB shows what it has in /proc/slabinfo.
    pub sysfs: bool,
    /// Names of the event files that the release has, in order.
    pub events: Vec<String>,
    /// One directory per cache that exists.
    pub caches: Vec<Directory>,
}

impl Directory {
    /// The leading number of an attribute, or a figure of the lab; 0 if there is none.
    pub fn number(&self, name: &str) -> u64 {
        match self.files.get(name).or_else(|| self.lab.get(name)) {
            Some(Value::String(text)) => {
                let digits = text.find(|c: char| !c.is_ascii_digit()).map_or(text.as_str(), |end| &text[..end]);
                digits.parse().unwrap_or(0)
            }
            Some(number) => number.as_u64().unwrap_or(0),
            None => 0,
        }
    }
    /// True if there is such an attribute or figure.
    pub fn has(&self, name: &str) -> bool {
        self.files.contains_key(name) || self.lab.contains_key(name)
    }
    /// Sum of several.
    fn sum(&self, names: &[&str]) -> u64 {
        names.iter().map(|n| self.number(n)).sum()
    }
    /// Bytes of all slabs, taken as of the preferred order.
    pub fn space(&self) -> u64 {
        self.number("slabs") * (PAGE_SIZE << self.number("order"))
    }
    fn used(&self) -> u64 {
        self.number("objects") * self.number("object_size")
    }
    /// The letters of a line.
    pub fn flags(&self) -> String {
        let letters = [
            ("aliases", '*'),
            ("cache_dma", 'd'),
            ("hwcache_align", 'A'),
            ("poison", 'P'),
            ("reclaim_account", 'a'),
            ("red_zone", 'Z'),
            ("sanity_checks", 'F'),
            ("store_user", 'U'),
            ("trace", 'T'),
            ("off_slab", 'o'),
            ("in_object", 'i'),
        ];
        letters.iter().filter(|(file, _)| self.number(file) > 0).map(|(_, letter)| letter).collect()
    }
    /// The name that is printed: a directory with an id shows its only link's name, with several its id (slabinfo.md §1).
    pub fn shown(&self) -> &str {
        match self.links.as_slice() {
            [one] if self.name.starts_with(':') => one,
            _ => &self.name,
        }
    }
}

impl Report {
    /// The cache that a name, a link or an id means.
    pub fn find(&self, name: &str) -> Option<&Directory> {
        let is = |d: &&Directory| d.name == name || d.links.iter().any(|link| link == name);
        // The newest, if a name was used again after its cache was destroyed.
        self.caches.iter().rev().find(is)
    }
    /// The attributes of a cache in sysfs: name and text, the event files last.
    pub fn sysfs(&self, cache: &Directory) -> Map<String, Value> {
        let is_event = |name: &&String| self.events.contains(*name);
        let plain = cache.files.iter().filter(|(name, _)| !is_event(name)).map(|(n, v)| (n.clone(), v.clone()));
        let event = |name: &String| (name.clone(), cache.files.get(name).cloned().unwrap_or_else(|| "0".into()));
        plain.chain(self.events.iter().map(event)).collect()
    }
    /// What the tool prints with these options: `-AD`, `-T`, …; none: the listing.
    pub fn print(&self, options: &str) -> Result<String, Error> {
        let chosen = Options::parse(options)?;
        if chosen.totals {
            return Ok(totals::text(self));
        }
        let events = self.kind != Kind::Slub || !self.events.is_empty();
        if (chosen.activity || chosen.columns) && !events {
            let right = format!("-l or -T for slub@{}: it counts no events, -A and -D exist since 2.6.25", self.era);
            return Err(Error::new("options", format!("{options:?}"), right));
        }
        let shown = lines::sorted(self, chosen.activity);
        Ok(if chosen.columns { lines::activity(self, &shown) } else { lines::listing(self, &shown) })
    }
}

/// The options that are built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Options {
    /// A: the most active caches first.
    activity: bool,
    /// D: columns of activity.
    columns: bool,
    /// T: totals.
    totals: bool,
}

impl Options {
    fn parse(text: &str) -> Result<Options, Error> {
        let mut chosen = Options::default();
        let refuse = || {
            let right = "of -l (listing), -A (by activity), -D (activity), -AD, -T (totals)";
            Err(Error::new("options", format!("{text:?}"), right))
        };
        for word in text.split_whitespace() {
            let letters: Cow<'_, str> = match word {
                "--slabs" => "l".into(),
                "--activity" => "A".into(),
                "--display-active" | "--display-activity" => "D".into(),
                "--Totals" => "T".into(),
                _ => match word.strip_prefix('-').filter(|rest| !rest.is_empty() && !rest.starts_with('-')) {
                    Some(letters) => letters.into(),
                    None => return refuse(),
                },
            };
            for letter in letters.chars() {
                match letter {
                    'l' => {}
                    'A' => chosen.activity = true,
                    'D' => chosen.columns = true,
                    'T' => chosen.totals = true,
                    _ => return refuse(),
                }
            }
        }
        Ok(chosen)
    }
}

/// A number with one decimal and a unit above a thousand, truncated, as the tool prints it.
pub fn scaled(value: u64) -> String {
    let with = |unit: u64, letter: char| format!("{}.{}{letter}", value / unit, value / (unit / 10) % 10);
    match value {
        v if v > 1_000_000_000 => with(1_000_000_000, 'G'),
        v if v > 1_000_000 => with(1_000_000, 'M'),
        v if v > 1_000 => with(1_000, 'K'),
        v => v.to_string(),
    }
}

/// `part` of `whole` in percent, truncated; `empty` if there is nothing.
fn percent(part: u64, whole: u64, empty: u64) -> u64 {
    (100 * part).checked_div(whole).unwrap_or(empty)
}

#[cfg(test)]
mod tests;
