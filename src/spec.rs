//! CacheSpec, Request and Object: the words workloads and allocators share.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;
use crate::units::{Addr, NodeId};

/// What `kmem_cache_create` is asked for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// Name as it appears in reports.
    pub name: String,
    /// Bytes of one object, as asked.
    pub size: u64,
    /// Alignment asked for: 0 (none) or a power of two.
    #[serde(default)]
    pub align: u64,
    /// SLAB_HWCACHE_ALIGN: begin each object on a cache line of its own (small ones share a line).
    #[serde(default)]
    pub hwcache_align: bool,
    /// SLAB_RECLAIM_ACCOUNT: the objects can be reclaimed under memory pressure.
    #[serde(default)]
    pub reclaim_account: bool,
    /// SLAB_DESTROY_BY_RCU / TYPESAFE_BY_RCU.
    #[serde(default)]
    pub typesafe_by_rcu: bool,
    /// The cache has a constructor.
    #[serde(default)]
    pub ctor: bool,
}

/// Most characters of a cache's name.
pub const MAX_NAME: usize = 255;

/// Refuses, by its place in the configuration, a name that /proc/slabinfo could not show.
pub fn check_name(place: &str, name: &str) -> Result<(), Error> {
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    let right = format!("1..{MAX_NAME} printable ASCII characters without blanks, as in slabinfo");
    Err(Error::new(place, format!("{shown:?}"), right))
}

impl CacheSpec {
    /// A plain cache of `size` bytes without flags.
    pub fn new(name: impl Into<String>, size: u64) -> CacheSpec {
        CacheSpec {
            name: name.into(),
            size,
            align: 0,
            hwcache_align: false,
            reclaim_account: false,
            typesafe_by_rcu: false,
            ctor: false,
        }
    }

    /// The same with SLAB_HWCACHE_ALIGN.
    pub fn hwcache(mut self) -> CacheSpec {
        self.hwcache_align = true;
        self
    }

    /// Alignment of SLAB_HWCACHE_ALIGN with line halving (all eras but SLUB up to 2.6.24): the cache line of `line` bytes,
    /// halved while the object fits in half of it. Without the flag: 1.
    pub fn halved_line(&self, line: u64) -> u64 {
        if !self.hwcache_align {
            return 1;
        }
        let mut r = line;
        while self.size <= r / 2 {
            r /= 2;
        }
        r
    }
}

/// A cache of one allocator, counted in order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CacheId(pub u32);

/// Which family of kmalloc caches serves a request, where an allocator has several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// No flag.
    #[default]
    Normal,
    /// __GFP_RECLAIMABLE: can be taken back under memory pressure.
    Reclaimable,
    /// GFP_DMA: memory that old devices reach. The nodes here have one zone, of which they reach all.
    Dma,
    /// __GFP_ACCOUNT: charged to a memory cgroup.
    Accounted,
}

impl Kind {
    /// Its name in scripts and errors.
    pub fn name(self) -> &'static str {
        ["normal", "reclaimable", "dma", "accounted"][self as usize]
    }
    /// True for [`Kind::Normal`].
    pub fn is_normal(&self) -> bool {
        *self == Kind::Normal
    }
}

/// What an allocation asks for besides its size: the part of the GFP flags that matters to a slab allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Memory of this node; `None` is "any, local first".
    pub node: Option<NodeId>,
    /// GFP_THISNODE: that node or nothing.
    pub this_node: bool,
    /// GFP_ZERO: clear the object.
    pub zero: bool,
    /// GFP_ATOMIC: the caller cannot sleep, no reclaim.
    pub atomic: bool,
    /// kmalloc: the family of caches to take from, one of `kmalloc_kinds` of the allocator.
    pub kind: Kind,
}

/// An allocated object. Freeing consumes it: it cannot be freed twice by accident.
#[derive(Debug, PartialEq, Eq)]
pub struct Object(Addr);

impl Object {
    /// The object at `addr`. Allocators make objects; `kfree` of a stored address makes them again.
    pub fn at(addr: Addr) -> Object {
        Object(addr)
    }
    /// Address of the object's first byte.
    pub fn addr(&self) -> Addr {
        self.0
    }
}

/// One parameter: name, unit, one-line meaning. Its default is a field of the configuration's default.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Parameter {
    /// Name, as in `allocator.order`.
    pub name: &'static str,
    /// Unit, or "" for a plain number or word.
    pub unit: &'static str,
    /// One line.
    pub meaning: &'static str,
}

/// A complaint of the reader of JSON without the names of Rust's types.
pub fn in_words(complaint: &str) -> String {
    let Some((what, kind)) = complaint.rsplit_once("expected ") else {
        return complaint.split(": data did not match").next().unwrap_or_default().to_string();
    };
    let kind = match kind {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more".into(),
        "i64" | "i32" => "a whole number".into(),
        "f64" | "f32" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a string" => "a word".into(),
        other => other.replace('`', ""),
    };
    format!("{what}expected {kind}")
}

/// What a parameter takes, in the user's words: its meaning, and what kind of value the reader of `complaint` asked for.
fn expected(parameter: &Parameter, complaint: &str) -> String {
    let complaint = in_words(complaint);
    let kind = complaint.split_once("expected ").map_or("", |(_, kind)| kind);
    if kind.is_empty() { parameter.meaning.into() } else { format!("{} ({kind})", parameter.meaning) }
}

/// `defaults` with the fields that the JSON object `given` names (`name` and `era` of the object aside, unless `era` is a
/// parameter). An unknown field, or a value of the wrong kind, is refused by its dotted name.
pub fn merge_fields<C: Serialize + DeserializeOwned>(
    part: &str,
    owner: &str,
    defaults: &C,
    given: &Value,
    parameters: &[Parameter],
) -> Result<C, Error> {
    let mut full = serde_json::to_value(defaults).expect("a configuration is plain data");
    for (key, value) in given.as_object().into_iter().flatten() {
        let Some(parameter) = parameters.iter().find(|p| p.name == key) else {
            if key == "name" || key == "era" {
                continue;
            }
            let known: Vec<&str> = parameters.iter().map(|p| p.name).collect();
            return Err(Error::unknown(&format!("parameter of {owner}"), key, &known));
        };
        let fields = full.as_object_mut().expect("a configuration is an object");
        fields.insert(key.clone(), value.clone());
        if let Err(e) = serde_json::from_value::<C>(full.clone()) {
            return Err(Error::new(format!("{part}.{key}"), value, expected(parameter, &e.to_string())));
        }
    }
    Ok(serde_json::from_value(full).expect("checked field by field"))
}
