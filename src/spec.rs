//! CacheSpec, Request and Object: the words workloads and allocators share.

use crate::machine::Addr;
use crate::units::NodeId;

/// What `kmem_cache_create` is asked for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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

    /// Alignment of SLAB_HWCACHE_ALIGN with line halving (all eras but SLUB up to 2.6.24): the cache line, halved
    /// while the object fits in half of it. Without the flag: 1.
    pub fn halved_line(&self) -> u64 {
        if !self.hwcache_align {
            return 1;
        }
        let mut r = crate::units::LINE;
        while self.size <= r / 2 {
            r /= 2;
        }
        r
    }
}

/// A cache of one allocator, counted in order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CacheId(pub u32);

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
