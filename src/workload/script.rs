//! `script`: an explicit list of operations, each on a named CPU, executed one at a time in the order given.
//!
//! In JSON (from Python: dicts and lists of the same shape):
//!
//! ```json
//! { "caches": [{ "name": "dentry", "size": 208, "reclaim_account": true }],
//!   "ops": [
//!     { "cpu": 0, "op": { "alloc": { "cache": 0, "slot": 7 } } },
//!     { "cpu": 1, "op": { "free": { "slot": 7 } } },
//!     { "cpu": 0, "op": { "checkpoint": { "name": "freed on the other CPU" } } }
//! ] }
//! ```
//!
//! A *slot* is the script's name for what an operation has taken: any number below [`MAX_SLOTS`], empty at first. `cache`
//! counts the script's own caches from 0. `cpu` may be left out: 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::spec::{CacheSpec, Kind, check_name};
use crate::units::MAX_ORDER;

/// Slots of a script are numbered below this.
pub const MAX_SLOTS: u32 = 1 << 24;

/// Longest single `wait`, in seconds: virtual time is counted in picoseconds of 64 bits.
pub const MAX_WAIT: f64 = 86_400.0;

/// Longest sum of all waits of a script: 200 days; 64 bits of picoseconds hold 213.
pub const MAX_WAITS: f64 = 200.0 * MAX_WAIT;

/// Most objects that one `prefill` sets aside.
pub const MAX_PREFILL: u64 = 1 << 20;

/// Caches, and what is done with them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Caches, made in this order before the first step.
    #[serde(default)]
    pub caches: Vec<CacheSpec>,
    /// The steps.
    pub ops: Vec<Step>,
}

/// One operation and the CPU it runs on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// CPU, counted from 0.
    #[serde(default)]
    pub cpu: u16,
    /// What it does.
    pub op: ScriptOp,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ScriptOp {
    /// Takes an object of a cache into a slot (kernel: kmem_cache_alloc; with `node` kmem_cache_alloc_node).
    Alloc {
        /// Index of the cache.
        cache: u32,
        /// An empty slot.
        slot: u32,
        /// Preferred node; none: local first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<u16>,
    },
    /// Gives the object of a slot back (kernel: kmem_cache_free).
    Free {
        /// A slot filled by `alloc`.
        slot: u32,
    },
    /// Takes at least `bytes` bytes into a slot (kernel: kmalloc).
    Kmalloc {
        /// Bytes asked for.
        bytes: u64,
        /// An empty slot.
        slot: u32,
        /// Preferred node; none: local first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<u16>,
        /// Kind of memory, where the allocator has caches for several (SLAB): normal, reclaimable, dma, accounted.
        #[serde(default, skip_serializing_if = "Kind::is_normal")]
        kind: Kind,
    },
    /// Gives them back (kernel: kfree).
    Kfree {
        /// A slot filled by `kmalloc`.
        slot: u32,
    },
    /// Takes a block of 2^order pages from the page allocator into a slot.
    AllocPages {
        /// 0..10.
        order: u8,
        /// An empty slot.
        slot: u32,
    },
    /// Gives the block back.
    FreePages {
        /// A slot filled by `alloc_pages`.
        slot: u32,
    },
    /// Writes to the first `bytes` bytes of what a slot holds.
    Touch {
        /// A filled slot.
        slot: u32,
        /// Bytes, at most as many as were asked for.
        bytes: u64,
    },
    /// Takes objects of a cache into slots, all or none (kernel: kmem_cache_alloc_bulk).
    AllocBulk {
        /// Index of the cache.
        cache: u32,
        /// Empty slots.
        slots: Vec<u32>,
    },
    /// Gives the objects of slots back, all of one cache (kernel: kmem_cache_free_bulk).
    FreeBulk {
        /// Slots filled by `alloc`, in the order of the array.
        slots: Vec<u32>,
    },
    /// Gives the object of a slot back after an RCU grace period (kernel: kfree_rcu).
    FreeRcu {
        /// A slot filled by `alloc`.
        slot: u32,
    },
    /// Waits for the grace period of all such frees (kernel: rcu_barrier).
    RcuBarrier {},
    /// Sets objects of a cache aside (kernel: kmem_cache_prefill_sheaf).
    Prefill {
        /// Index of the cache.
        cache: u32,
        /// An empty slot.
        slot: u32,
        /// How many at least.
        objects: u64,
    },
    /// Takes one of them (kernel: kmem_cache_alloc_from_sheaf).
    AllocPrefilled {
        /// A slot filled by `prefill`.
        from: u32,
        /// An empty slot.
        slot: u32,
    },
    /// Makes sure that so many are set aside (kernel: kmem_cache_refill_sheaf).
    Refill {
        /// A slot filled by `prefill`.
        slot: u32,
        /// How many at least.
        objects: u64,
    },
    /// Gives back what was set aside and not taken (kernel: kmem_cache_return_sheaf).
    ReturnPrefilled {
        /// A slot filled by `prefill`.
        slot: u32,
    },
    /// Returns a cache's empty slabs (kernel: kmem_cache_shrink).
    Shrink {
        /// Index of the cache.
        cache: u32,
    },
    /// Does this CPU's periodic work on all caches once.
    Trim {},
    /// Writes to an attribute of a cache (SLUB; kernel: sysfs) while all CPUs stand still: `min_partial`, `cpu_partial`,
    /// `order`, `remote_node_defrag_ratio`, `shrink`, `validate`, debug flags as `sanity_checks`, 0 to an event counter.
    /// What the release refuses ends the script. Its `cpu` does not matter.
    Write {
        /// Index of the cache.
        cache: u32,
        /// Name of the attribute.
        attribute: String,
        /// What is written.
        value: i64,
    },
    /// Changes tunables (SLAB; kernel: a write to /proc/slabinfo) while all CPUs stand still. Values that the kernel
    /// ignores change nothing. Its `cpu` does not matter.
    Tune {
        /// Index of the cache; none: every cache, those for kmalloc too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cache: Option<u32>,
        /// Objects of a CPU's array, 1 or more.
        limit: i64,
        /// Objects moved at once, 1..limit.
        batchcount: i64,
        /// Capacity of a node's shared array in batches, 0 for none.
        sharedfactor: i64,
    },
    /// Takes this CPU out of service (kernel: CPU hotplug) while all CPUs stand still: what it holds of every cache is given
    /// up. SLQB keeps its queues, as the kernel does. No step may name the CPU afterwards; CPU 0 stays.
    Offline {},
    /// Lets time pass on this CPU: virtual time on a simulated machine, real time on Native.
    Wait {
        /// How long.
        seconds: f64,
    },
    /// Gives a cache up (kernel: kmem_cache_destroy). All its objects must have been freed; it cannot be used again.
    Destroy {
        /// Index of the cache.
        cache: u32,
    },
    /// Stops all CPUs and reports the state of the caches under this name. Its `cpu` does not matter.
    Checkpoint {
        /// Name.
        name: String,
    },
    /// The same, and every slab with its objects, what every slot holds, and all event counts.
    Map {
        /// Name.
        name: String,
    },
    /// Makes a cache while all CPUs stand still (kernel: kmem_cache_create): the next one after those of `caches`. Its `cpu`
    /// does not matter.
    Create {
        /// The cache.
        cache: CacheSpec,
    },
}

impl ScriptOp {
    /// All CPUs stand still for it.
    pub fn stops(&self) -> bool {
        matches!(
            self,
            ScriptOp::Checkpoint { .. }
                | ScriptOp::Map { .. }
                | ScriptOp::Tune { .. }
                | ScriptOp::Write { .. }
                | ScriptOp::Create { .. }
                | ScriptOp::Offline {}
        )
    }
}

/// What a slot holds, as far as the text of the script says.
#[derive(Clone, Copy)]
enum Content {
    Empty,
    Object { cache: u32, size: u64 },
    Kmalloc { size: u64 },
    Pages { size: u64 },
    Prefilled { cache: u32 },
}

impl Content {
    fn words(self) -> &'static str {
        match self {
            Content::Empty => "nothing",
            Content::Object { .. } => "an object of a cache",
            Content::Kmalloc { .. } => "kmalloc memory",
            Content::Pages { .. } => "pages",
            Content::Prefilled { .. } => "prefilled objects",
        }
    }
}

impl Script {
    /// Refuses what no machine can run: names of caches that /proc/slabinfo could not show, and waits that are longer
    /// together than virtual time is.
    pub fn check_alone(&self) -> Result<(), Error> {
        for (i, cache) in self.caches.iter().enumerate() {
            check_name(&format!("workload.caches[{i}].name"), &cache.name)?;
        }
        let mut waits = 0.0;
        for (i, step) in self.ops.iter().enumerate() {
            match &step.op {
                ScriptOp::Create { cache } => check_name(&format!("workload.ops[{i}].cache.name"), &cache.name)?,
                ScriptOp::Wait { seconds } => waits += seconds.max(0.0),
                _ => {}
            }
            if waits > MAX_WAITS {
                let right = format!("less: the waits of a script are at most {MAX_WAITS} seconds together");
                return Err(Error::new(
                    format!("workload.ops[{i}].seconds"),
                    format!("{waits} with those before"),
                    right,
                ));
            }
        }
        Ok(())
    }

    /// Refuses what cannot run on `cpus` CPUs and `nodes` nodes: a CPU, node, cache, order or slot that does not exist,
    /// a slot filled twice or used empty. The error names the step: `workload.ops[17].slot`.
    pub fn check(&self, cpus: usize, nodes: usize) -> Result<(), Error> {
        let sizes = self.caches.iter().map(|c| c.size).collect();
        let mut check = Check { sizes, at: 0, slots: Vec::new(), live: vec![Some(0); self.caches.len()] };
        let mut offline = BTreeMap::new();
        for (at, step) in self.ops.iter().enumerate() {
            check.at = at;
            if usize::from(step.cpu) >= cpus {
                return Err(check.refuse("cpu", step.cpu, format!("0..{} on this machine", cpus - 1)));
            }
            if let Some(from) = offline.get(&step.cpu) {
                return Err(check.refuse("cpu", step.cpu, format!("a CPU in service: ops[{from}] has taken it out")));
            }
            if matches!(step.op, ScriptOp::Offline {}) {
                if step.cpu == 0 {
                    return Err(check.refuse("cpu", 0, "1 or more: CPU 0 stays in service"));
                }
                offline.insert(step.cpu, at);
            }
            check.step(&step.op, nodes)?;
        }
        Ok(())
    }

    /// Number of slots: one more than the largest used.
    pub fn slots(&self) -> usize {
        let slot = |s: &Step| match &s.op {
            ScriptOp::Alloc { slot, .. }
            | ScriptOp::Kmalloc { slot, .. }
            | ScriptOp::AllocPages { slot, .. }
            | ScriptOp::Prefill { slot, .. }
            | ScriptOp::AllocPrefilled { slot, .. } => slot + 1,
            ScriptOp::AllocBulk { slots, .. } => slots.iter().max().map_or(0, |slot| slot + 1),
            _ => 0,
        };
        self.ops.iter().map(slot).max().unwrap_or(0) as usize
    }
}

/// Walks a script on paper.
struct Check {
    /// Sizes of the caches made so far.
    sizes: Vec<u64>,
    at: usize,
    slots: Vec<Content>,
    /// Objects each cache has out; `None` once destroyed.
    live: Vec<Option<u64>>,
}

impl Check {
    fn refuse(&self, field: &str, value: impl std::fmt::Display, expected: impl Into<String>) -> Error {
        Error::new(format!("workload.ops[{}].{field}", self.at), value, expected)
    }

    fn step(&mut self, op: &ScriptOp, nodes: usize) -> Result<(), Error> {
        match *op {
            ScriptOp::Alloc { cache, slot, node } => {
                let size = self.cache(cache)?;
                self.node(node, nodes)?;
                self.fill(slot, Content::Object { cache, size })?;
                *self.live[cache as usize].as_mut().expect("checked above") += 1;
            }
            ScriptOp::Kmalloc { bytes, slot, node, .. } => {
                self.node(node, nodes)?;
                self.fill(slot, Content::Kmalloc { size: bytes })?;
            }
            ScriptOp::AllocPages { order, slot } => {
                if usize::from(order) >= MAX_ORDER {
                    return Err(self.refuse("order", order, format!("0..{}", MAX_ORDER - 1)));
                }
                self.fill(slot, Content::Pages { size: crate::units::Order(order).bytes() })?;
            }
            ScriptOp::AllocBulk { cache, ref slots } => {
                let size = self.cache(cache)?;
                for slot in slots {
                    self.fill(*slot, Content::Object { cache, size })?;
                }
                *self.live[cache as usize].as_mut().expect("checked above") += slots.len() as u64;
            }
            ScriptOp::FreeBulk { ref slots } => {
                let mut first = None;
                for &slot in slots {
                    match self.empty(slot) {
                        Content::Object { cache, .. } if *first.get_or_insert(cache) == cache => {
                            *self.live[cache as usize].as_mut().expect("not destroyed: live") -= 1;
                        }
                        other => return Err(self.holds(slot, other, "an object of the first slot's cache")),
                    }
                }
            }
            ScriptOp::Prefill { cache, slot, objects } => {
                self.cache(cache)?;
                if !(1..=MAX_PREFILL).contains(&objects) {
                    return Err(self.refuse("objects", objects, format!("1..{MAX_PREFILL}")));
                }
                self.fill(slot, Content::Prefilled { cache })?;
                *self.live[cache as usize].as_mut().expect("checked above") += 1;
            }
            ScriptOp::AllocPrefilled { from, slot } => {
                let cache = self.prefilled(from)?;
                let size = self.cache(cache)?;
                self.fill(slot, Content::Object { cache, size })?;
                *self.live[cache as usize].as_mut().expect("checked above") += 1;
            }
            ScriptOp::Refill { slot, objects } => {
                self.prefilled(slot)?;
                if objects > MAX_PREFILL {
                    return Err(self.refuse("objects", objects, format!("0..{MAX_PREFILL}")));
                }
            }
            ScriptOp::ReturnPrefilled { slot } => {
                let cache = self.prefilled(slot)?;
                self.empty(slot);
                *self.live[cache as usize].as_mut().expect("not destroyed: live") -= 1;
            }
            ScriptOp::Free { slot } | ScriptOp::FreeRcu { slot } => match self.empty(slot) {
                Content::Object { cache, .. } => *self.live[cache as usize].as_mut().expect("not destroyed: live") -= 1,
                other => return Err(self.holds(slot, other, "an object of a cache")),
            },
            ScriptOp::Kfree { slot } => match self.empty(slot) {
                Content::Kmalloc { .. } => {}
                other => return Err(self.holds(slot, other, "kmalloc memory")),
            },
            ScriptOp::FreePages { slot } => match self.empty(slot) {
                Content::Pages { .. } => {}
                other => return Err(self.holds(slot, other, "pages")),
            },
            ScriptOp::Touch { slot, bytes } => {
                let content = self.slots.get(slot as usize).copied().unwrap_or(Content::Empty);
                let (Content::Object { size, .. } | Content::Kmalloc { size } | Content::Pages { size }) = content
                else {
                    return Err(self.holds(slot, content, "something to touch"));
                };
                if bytes > size {
                    return Err(self.refuse(
                        "bytes",
                        bytes,
                        format!("at most {size}, the size of what slot {slot} holds"),
                    ));
                }
            }
            ScriptOp::Shrink { cache } => {
                self.cache(cache)?;
            }
            ScriptOp::Destroy { cache } => {
                self.cache(cache)?;
                let live = self.live[cache as usize].take().expect("checked above");
                if live != 0 {
                    return Err(self.refuse("cache", cache, format!("a cache without objects: it still has {live}")));
                }
            }
            ScriptOp::Wait { seconds } => {
                if !(0.0..=MAX_WAIT).contains(&seconds) {
                    return Err(self.refuse("seconds", seconds, format!("0..{MAX_WAIT}")));
                }
            }
            ScriptOp::Write { cache, .. } => {
                self.cache(cache)?;
            }
            ScriptOp::Tune { cache, .. } => {
                cache.map(|cache| self.cache(cache)).transpose()?;
            }
            ScriptOp::Create { ref cache } => {
                self.sizes.push(cache.size);
                self.live.push(Some(0));
            }
            ScriptOp::Trim {}
            | ScriptOp::RcuBarrier {}
            | ScriptOp::Offline {}
            | ScriptOp::Checkpoint { .. }
            | ScriptOp::Map { .. } => {}
        }
        Ok(())
    }

    fn cache(&self, cache: u32) -> Result<u64, Error> {
        match self.live.get(cache as usize) {
            Some(Some(_)) => Ok(self.sizes[cache as usize]),
            Some(None) => Err(self.refuse("cache", cache, "a cache that has not been destroyed")),
            None if self.live.is_empty() => Err(self.refuse("cache", cache, "a cache of `caches`, which is empty")),
            None => Err(self.refuse("cache", cache, format!("0..{}, a cache of `caches`", self.live.len() - 1))),
        }
    }

    fn node(&self, node: Option<u16>, nodes: usize) -> Result<(), Error> {
        match node {
            Some(n) if usize::from(n) >= nodes => {
                Err(self.refuse("node", n, format!("0..{} on this machine", nodes - 1)))
            }
            _ => Ok(()),
        }
    }

    fn fill(&mut self, slot: u32, content: Content) -> Result<(), Error> {
        if slot >= MAX_SLOTS {
            return Err(self.refuse("slot", slot, format!("0..{}", MAX_SLOTS - 1)));
        }
        let at = slot as usize;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, Content::Empty);
        }
        match std::mem::replace(&mut self.slots[at], content) {
            Content::Empty => Ok(()),
            old => Err(self.refuse("slot", slot, format!("an empty slot: this one holds {}", old.words()))),
        }
    }

    fn empty(&mut self, slot: u32) -> Content {
        match self.slots.get_mut(slot as usize) {
            Some(content) => std::mem::replace(content, Content::Empty),
            None => Content::Empty,
        }
    }

    /// The cache of what `slot` has set aside.
    fn prefilled(&self, slot: u32) -> Result<u32, Error> {
        match self.slots.get(slot as usize).copied().unwrap_or(Content::Empty) {
            Content::Prefilled { cache } => Ok(cache),
            other => Err(self.holds(slot, other, "prefilled objects")),
        }
    }

    fn holds(&self, slot: u32, content: Content, wanted: &str) -> Error {
        self.refuse("slot", slot, format!("a slot that holds {wanted}: this one holds {}", content.words()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Script {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_script_reads_as_documented_and_writes_the_same_again() {
        let text = r#"{ "caches": [{ "name": "dentry", "size": 208, "reclaim_account": true }], "ops": [
            { "op": { "alloc": { "cache": 0, "slot": 7 } } },
            { "cpu": 1, "op": { "free": { "slot": 7 } } },
            { "cpu": 1, "op": { "trim": {} } },
            { "op": { "create": { "cache": { "name": "inode", "size": 600 } } } },
            { "op": { "alloc": { "cache": 1, "slot": 7 } } },
            { "op": { "map": { "name": "drawn" } } },
            { "cpu": 0, "op": { "checkpoint": { "name": "freed" } } } ] }"#;
        let script = parse(text);
        assert_eq!(script.check(2, 1), Ok(()));
        assert_eq!(script.slots(), 8);
        assert_eq!(script.ops[0], Step { cpu: 0, op: ScriptOp::Alloc { cache: 0, slot: 7, node: None } });
        assert_eq!(parse(&serde_json::to_string(&script).unwrap()), script);
        assert!(serde_json::from_str::<Step>(r#"{ "op": { "free": { "slot": 1, "size": 2 } } }"#).is_err());
    }

    #[test]
    fn what_no_machine_can_run_is_refused_at_once() {
        let of =
            |caches: &str, ops: &str| parse(&format!(r#"{{ "caches": [{caches}], "ops": [{ops}] }}"#)).check_alone();
        let long = "a".repeat(256);
        for name in ["", "a b", "a\\nb", "é", long.as_str()] {
            let cache = format!(r#"{{ "name": "{name}", "size": 64 }}"#);
            let e = of(&cache, "").unwrap_err().to_string();
            assert!(e.starts_with("workload.caches[0].name = ") && e.contains("1..255 printable"), "{e}");
            let e = of("", &format!(r#"{{ "op": {{ "create": {{ "cache": {cache} }} }} }}"#)).unwrap_err().to_string();
            assert!(e.starts_with("workload.ops[0].cache.name = "), "{e}");
        }
        let day = r#"{ "op": { "wait": { "seconds": 86400 } } }"#;
        assert_eq!(of("", &vec![day; 200].join(",")), Ok(()));
        let e = of("", &vec![day; 214].join(",")).unwrap_err().to_string();
        assert!(e.starts_with("workload.ops[200].seconds = 17366400 with those before: less"), "{e}");
        let e = serde_json::from_str::<CacheSpec>(r#"{ "name": "a", "size": 64, "algin": 4096 }"#).unwrap_err();
        assert!(e.to_string().contains("unknown field `algin`"), "{e}");
    }

    #[test]
    fn what_cannot_run_is_refused_with_the_number_of_the_step() {
        let alloc = r#"{ "op": { "alloc": { "cache": 0, "slot": 1 } } }"#;
        let free = r#"{ "op": { "free": { "slot": 1 } } }"#;
        for (last, part) in [
            (
                r#"{ "op": { "alloc": { "cache": 0, "slot": 1 } } }"#,
                "ops[3].slot = 1: an empty slot: this one holds an",
            ),
            (r#"{ "op": { "alloc": { "cache": 1, "slot": 2 } } }"#, "ops[3].cache = 1: 0..0, a cache of"),
            (r#"{ "op": { "alloc": { "cache": 0, "slot": 2, "node": 1 } } }"#, "ops[3].node = 1: 0..0"),
            (r#"{ "op": { "alloc": { "cache": 0, "slot": 16777216 } } }"#, "ops[3].slot = 16777216: 0..16777215"),
            (r#"{ "cpu": 2, "op": { "free": { "slot": 1 } } }"#, "ops[3].cpu = 2: 0..1"),
            (r#"{ "op": { "free": { "slot": 9 } } }"#, "ops[3].slot = 9: a slot that holds an object of a cache: this"),
            (r#"{ "op": { "kfree": { "slot": 1 } } }"#, "holds kmalloc memory: this one holds an object of a cache"),
            (r#"{ "op": { "free_pages": { "slot": 1 } } }"#, "a slot that holds pages"),
            (r#"{ "op": { "touch": { "slot": 1, "bytes": 9 } } }"#, "ops[3].bytes = 9: at most 8"),
            (r#"{ "op": { "alloc_pages": { "order": 11, "slot": 2 } } }"#, "ops[3].order = 11: 0..10"),
            (r#"{ "op": { "wait": { "seconds": -1 } } }"#, "ops[3].seconds = -1: 0..86400"),
            (r#"{ "op": { "destroy": { "cache": 0 } } }"#, "ops[3].cache = 0: a cache without objects: it still has 1"),
        ] {
            let text =
                format!(r#"{{ "caches": [{{ "name": "a", "size": 8 }}], "ops": [{alloc}, {free}, {alloc}, {last}] }}"#);
            let e = parse(&text).check(2, 1).unwrap_err().to_string();
            assert!(e.starts_with("workload.") && e.contains(part), "{last}: {e}");
        }
    }
}
