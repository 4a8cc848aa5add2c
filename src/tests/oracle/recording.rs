//! Reads a recording: its lines, and the groups of lines that belong to one sequence on one fresh cache.

use std::io::Read;
use std::path::Path;

use rayon::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::spec::CacheSpec;

/// The lines of one sequence (or, in a placement file, of one cache), in order.
pub(super) struct Group {
    /// Number of its first line in the file, counted from 1.
    pub(super) line: usize,
    pub(super) lines: Vec<Value>,
}

impl Group {
    /// A value that is the same in all lines of the group.
    pub(super) fn get(&self, key: &str) -> &Value {
        &self.lines[0][key]
    }
    /// Number of CPUs and of nodes.
    pub(super) fn shape(&self) -> (u64, u64) {
        (self.get("smp").as_u64().expect("smp"), self.get("nodes").as_u64().expect("nodes"))
    }
    /// What the recording made its cache of.
    pub(super) fn spec(&self) -> CacheSpec {
        let cache = self.get("cache");
        let mut spec = CacheSpec::new("gt_test", cache["size"].as_u64().expect("cache.size"));
        spec.align = cache["align"].as_u64().expect("cache.align");
        for flag in cache["flags"].as_str().expect("cache.flags").split('|').filter(|f| !f.is_empty()) {
            match flag {
                "HWCACHE_ALIGN" => spec.hwcache_align = true,
                "RECLAIM_ACCOUNT" => spec.reclaim_account = true,
                "TYPESAFE_BY_RCU" | "DESTROY_BY_RCU" => spec.typesafe_by_rcu = true,
                "ctor" => spec.ctor = true,
                other => panic!("flag {other} of a recording is unknown"),
            }
        }
        spec
    }
    /// What a report calls it.
    pub(super) fn title(&self) -> String {
        let cache = self.get("cache");
        let flags = cache["flags"].as_str().unwrap_or("");
        let sequence = self.get("sequence").as_str().unwrap_or("placement");
        let api = self.get("api").as_str().unwrap_or("");
        format!(
            "{api} {}{} {sequence} {}",
            cache["size"],
            if flags.is_empty() { "" } else { "/hwalign" },
            self.params()
        )
    }
    fn params(&self) -> String {
        let pairs = self.get("params").as_object().into_iter().flatten().filter(|(k, _)| *k != "seed");
        pairs.map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
    }
}

/// A group whose lines are not parsed yet: a large recording would not fit in memory otherwise.
pub(super) struct RawGroup {
    line: usize,
    lines: Vec<String>,
}

impl RawGroup {
    pub(super) fn parse(&self) -> Group {
        let lines = self.lines.iter().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect();
        Group { line: self.line, lines }
    }
}

/// What the lines of one group have in common.
#[derive(PartialEq, Deserialize)]
struct Identity {
    api: Value,
    cache: Value,
    #[serde(default)]
    sequence: Value,
    #[serde(default)]
    params: Value,
}

/// A file of `data/`.
fn file(path: &str) -> Vec<u8> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/oracle/data").join(path);
    std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}
/// The text of `data/PATH`.
pub(super) fn plain(path: &str) -> String {
    String::from_utf8(file(path)).expect("a file of text")
}
/// The text of `data/PATH`, which is packed by xz.
pub(super) fn unpacked(path: &str) -> String {
    let mut text = String::new();
    lzma_rust2::XzReader::new(file(path).as_slice(), true).read_to_string(&mut text).expect("an xz file of text");
    text
}
/// The text of `data/PATH.jsonl.xz`.
pub(super) fn text(path: &str) -> String {
    unpacked(&format!("{path}.jsonl.xz"))
}

/// All groups of a recording, in order.
pub(super) fn groups(path: &str) -> Vec<RawGroup> {
    let text = text(path);
    let lines: Vec<&str> = text.lines().collect();
    let identities: Vec<Identity> =
        lines.par_iter().map(|l| serde_json::from_str(l).expect("a line of a recording")).collect();
    let mut groups: Vec<RawGroup> = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if identities[number - 1] == identities[number] => group.lines.push(line.to_string()),
            _ => groups.push(RawGroup { line: number + 1, lines: vec![line.to_string()] }),
        }
    }
    groups
}
