//! Geometry as a call: one allocator, one machine on paper, any number of sizes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::dispatch;
use crate::alloc::geometry::{Shape, Wanted};
use crate::error::Error;
use crate::spec::{CacheSpec, Parameter, merge_fields};

/// What is asked besides the allocator and the sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Question {
    page_size: u64,
    cache_line: u64,
    word: u64,
    cpus: u64,
    memory_mib: u64,
    name: String,
    align: u64,
    hwcache_align: bool,
    reclaim_account: bool,
    typesafe_by_rcu: bool,
    ctor: bool,
    kmalloc: bool,
}

const PARAMETERS: &[Parameter] = &[
    Parameter { name: "page_size", unit: "bytes", meaning: "4096, 16384 or 65536 bytes" },
    Parameter { name: "cache_line", unit: "bytes", meaning: "16, 32, 64, 128 or 256 bytes" },
    Parameter { name: "word", unit: "bytes", meaning: "8 bytes (64-bit) or 4 (32-bit)" },
    Parameter { name: "cpus", unit: "", meaning: "1..4096" },
    Parameter { name: "memory_mib", unit: "MiB", meaning: "memory of the machine, 1 or more MiB" },
    Parameter { name: "name", unit: "", meaning: "name of the cache" },
    Parameter { name: "align", unit: "bytes", meaning: "0 or a power of two" },
    Parameter { name: "hwcache_align", unit: "", meaning: "true or false" },
    Parameter { name: "reclaim_account", unit: "", meaning: "true or false" },
    Parameter { name: "typesafe_by_rcu", unit: "", meaning: "true or false" },
    Parameter { name: "ctor", unit: "", meaning: "true or false" },
    Parameter { name: "kmalloc", unit: "", meaning: "true: whatever serves a kmalloc of that size" },
];

impl Question {
    /// A plain cache on one 64-bit CPU with 4 KiB pages and 1 GiB.
    fn plain() -> Question {
        Question {
            page_size: 4096,
            cache_line: 64,
            word: 8,
            cpus: 1,
            memory_mib: 1024,
            name: "cache".into(),
            align: 0,
            hwcache_align: false,
            reclaim_account: false,
            typesafe_by_rcu: false,
            ctor: false,
            kmalloc: false,
        }
    }
    fn shape(&self) -> Result<Shape, Error> {
        let memory = self.memory_mib.saturating_mul(1 << 20);
        let shape =
            Shape { page_size: self.page_size, line: self.cache_line, word: self.word, cpus: self.cpus, memory };
        shape.check().map(|()| shape)
    }
    fn wanted(&self, size: u64) -> Result<Wanted, Error> {
        if !self.kmalloc {
            return Ok(Wanted::Cache(CacheSpec {
                align: self.align,
                hwcache_align: self.hwcache_align,
                reclaim_account: self.reclaim_account,
                typesafe_by_rcu: self.typesafe_by_rcu,
                ctor: self.ctor,
                ..CacheSpec::new(self.name.clone(), size)
            }));
        }
        let flags = [
            ("hwcache_align", self.hwcache_align),
            ("reclaim_account", self.reclaim_account),
            ("typesafe_by_rcu", self.typesafe_by_rcu),
            ("ctor", self.ctor),
        ];
        if self.align != 0 {
            return Err(Error::new("geometry.align", self.align, "0 with kmalloc, whose caches have their own"));
        }
        if let Some((name, _)) = flags.iter().find(|(_, on)| *on) {
            return Err(Error::new(
                "geometry.flags",
                format!("{name:?}"),
                "none with kmalloc, whose caches have their own",
            ));
        }
        if size == 0 {
            return Err(Error::new("geometry.size", 0, "1 or more bytes: kmalloc of 0 bytes takes nothing"));
        }
        Ok(Wanted::Kmalloc(size))
    }
}

/// The columns of caches of many sizes: `{"allocator": "slub@6.1", "sizes": [192], …}` to `{"slot_size": [192], …}`, one entry
/// per size. An error at one of several sizes names it.
pub fn geometry(asked: &Value) -> Result<Value, Error> {
    let question = merge_fields("geometry", "geometry", &Question::plain(), &without(asked), PARAMETERS)?;
    let shape = question.shape()?;
    let given = dispatch::named(&asked["allocator"])?;
    let sizes: Vec<u64> = serde_json::from_value(asked["sizes"].clone())
        .map_err(|e| Error::new("geometry.size", &asked["sizes"], format!("whole numbers of bytes ({e})")))?;
    let one = sizes.len() == 1;
    let answers = dispatch::answers(&given, &shape)?;
    let mut rows = Vec::with_capacity(sizes.len());
    for (at, size) in sizes.iter().enumerate() {
        let named =
            |e: Error| Error { parameter: if one { e.parameter } else { format!("size[{at}]: {}", e.parameter) }, ..e };
        let row = answers(&question.wanted(*size).map_err(named)?).map_err(named)?;
        rows.push(row);
    }
    // What the page allocator serves has fewer columns than what a cache serves: null there.
    let names: Vec<&String> = rows.iter().max_by_key(|row| row.len()).into_iter().flat_map(|row| row.keys()).collect();
    let column =
        |name: &String| rows.iter().map(|row| row.get(name).cloned().unwrap_or(Value::Null)).collect::<Vec<_>>();
    let columns: Map<String, Value> = names.into_iter().map(|name| (name.clone(), json!(column(name)))).collect();
    Ok(Value::Object(columns))
}

/// The question without the allocator and the sizes.
fn without(asked: &Value) -> Value {
    let mut rest = asked.as_object().cloned().unwrap_or_default();
    rest.retain(|key, _| key != "allocator" && key != "sizes");
    Value::Object(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(asked: Value) -> Map<String, Value> {
        let columns = geometry(&asked).unwrap_or_else(|e| panic!("{asked}: {e}"));
        columns.as_object().unwrap().iter().map(|(k, v)| (k.clone(), v[0].clone())).collect()
    }

    #[test]
    fn one_cache_and_many() {
        let row = one(json!({ "allocator": "slub@6.1", "sizes": [192], "cpus": 16 }));
        assert_eq!(
            (&row["order"], &row["objects_per_slab"], &row["cpu_partial"]),
            (&json!(1), &json!(42), &json!(120))
        );
        let many = geometry(&json!({ "allocator": "slab@2.6.24", "sizes": [104, 256] })).unwrap();
        assert_eq!((&many["objects_per_slab"], &many["limit"]), (&json!([37, 15]), &json!([120, 120])));
    }

    #[test]
    fn what_is_impossible_is_refused_by_name() {
        for (asked, part) in [
            (json!({ "allocator": "slub@6.1", "sizes": [0] }), "cache.size = 0"),
            (json!({ "allocator": "slub@6.1", "sizes": [8, 0] }), "size[1]: cache.size = 0"),
            (
                json!({ "allocator": "slub@6.1", "sizes": [8], "page_size": 8192 }),
                "geometry.page_size = 8192: 4096, 16384",
            ),
            (json!({ "allocator": "slub@6.1", "sizes": [8], "word": 2 }), "geometry.word = 2"),
            (json!({ "allocator": "slub@7.1", "sizes": [8], "word": 4 }), "geometry.word = 4: 8, or a sheaf_capacity"),
            (json!({ "allocator": "slub@6.1", "sizes": [8], "cpus": 0 }), "geometry.cpus = 0"),
            (json!({ "allocator": "slub@6.1", "sizes": [8], "cache_line": 48 }), "geometry.cache_line = 48"),
            (json!({ "allocator": "slub@6.1", "sizes": [8], "align": 8192 }), "cache.align = 8192"),
            (json!({ "allocator": "slub@6.1", "sizes": [8], "linesize": 8 }), "parameter of geometry"),
            (
                json!({ "allocator": "slub@6.1", "sizes": [8], "kmalloc": true, "ctor": true }),
                "geometry.flags = \"ctor\"",
            ),
            (json!({ "allocator": "slub@2.6.22", "sizes": [5 << 20], "kmalloc": true }), "geometry.size = 5242880"),
            (json!({ "allocator": "slqb", "sizes": [3 << 20], "kmalloc": true }), "1..2097152"),
            (json!({ "allocator": "slab", "sizes": [64], "word": 4, "debug": "Z" }), "parameter of geometry"),
            (json!({ "allocator": { "name": "slab", "debug": "Z" }, "sizes": [64], "word": 4 }), "geometry.word = 4"),
            (json!({ "allocator": { "name": "slub", "max_order": 11 }, "sizes": [64] }), "allocator.max_order = 11"),
        ] {
            let e = geometry(&asked).map(|v| panic!("{asked}: {v}")).unwrap_err().to_string();
            assert!(e.contains(part), "{asked}: {e}");
        }
    }
}
