//! Compares states key by key, and counts.

use std::collections::BTreeMap;

use serde_json::Value;

/// Keys that say what was done, not what came of it.
const TEST_KEYS: [&str; 17] = [
    "kernel",
    "source",
    "allocator",
    "smp",
    "nodes",
    "api",
    "cache",
    "sequence",
    "params",
    "checkpoint",
    "live",
    "live_bytes",
    "seed",
    "placement",
    "on_cpu",
    "objs",
    "seconds",
];

/// Keys whose recorded value is uninitialised memory: compared only if the allocator shows them.
const GARBAGE: [&str; 1] = ["shared_batchcount"];

/// A statistic of SLAB that CPUs of several nodes change without a common lock. A shrink lets all CPUs drain at once; in a
/// booted kernel a decrement can get lost there (see data/README.md).
const RACED: &str = "stat.num_active";

/// True for a line in which decrements of [`RACED`] may be missing.
fn may_have_raced(line: &Value) -> bool {
    line.get("source").is_none() && line["nodes"].as_u64() > Some(1) && line["checkpoint"] == "shrunk"
}

/// How often one key was compared and differed.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyTally {
    pub(super) compared: u64,
    pub(super) different: u64,
    /// Line number and description of the first difference.
    pub(super) first: Option<(usize, String)>,
}

/// What came of a replay.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Lines equal in every key, of the lines compared.
    pub(super) equal: u64,
    pub(super) total: u64,
    /// Lines whose counters depend on a race in the recorded kernel, and were not compared.
    pub(super) racing: u64,
    /// Lines whose page counts hold pages of other caches, and were not compared.
    pub(super) others_pages: u64,
    pub(super) keys: BTreeMap<String, KeyTally>,
    /// Lines left out, by reason.
    pub(super) left_out: BTreeMap<String, u64>,
}

impl Tally {
    pub(super) fn merge(mut self, other: Tally) -> Tally {
        self.equal += other.equal;
        self.total += other.total;
        self.racing += other.racing;
        self.others_pages += other.others_pages;
        for (key, theirs) in other.keys {
            let ours = self.keys.entry(key).or_default();
            ours.compared += theirs.compared;
            ours.different += theirs.different;
            ours.first = [ours.first.take(), theirs.first].into_iter().flatten().min_by_key(|(line, _)| *line);
        }
        for (why, lines) in other.left_out {
            *self.left_out.entry(why).or_default() += lines;
        }
        self
    }

    /// Counts one comparison of a key of `line`; `difference` describes it if there is one.
    pub(super) fn key(&mut self, key: &str, line: &Line, difference: Option<String>) -> bool {
        if !self.keys.contains_key(key) {
            self.keys.insert(key.to_string(), KeyTally::default());
        }
        let tally = self.keys.get_mut(key).expect("just made");
        tally.compared += 1;
        let equal = difference.is_none();
        if let Some(text) = difference {
            tally.different += 1;
            tally.first.get_or_insert_with(|| (line.number, format!("line {}, {}: {text}", line.number, line.title)));
        }
        equal
    }

    /// Compares everything in the recorded line that depends on the allocator; true if all of it is equal.
    pub(super) fn state(&mut self, line: &Line, recorded: &Value, ours: &Value) -> bool {
        let mut equal = true;
        for (key, value) in recorded.as_object().expect("a line is an object") {
            // Placement lines of SLOB name the CPU of the phase `cpu`, where others have their CPUs' states.
            if TEST_KEYS.contains(&key.as_str()) || (key == "cpu" && value.is_u64()) {
                continue;
            }
            equal &= match (may_have_raced(recorded), ours.get(key)) {
                (true, Some(ours)) if key == "stat" => self.value(key, line, &without_lost(value, ours), Some(ours)),
                (_, ours) => self.value(key, line, value, ours),
            };
        }
        equal
    }

    fn value(&mut self, path: &str, line: &Line, recorded: &Value, ours: Option<&Value>) -> bool {
        match (recorded, ours) {
            (_, None) if GARBAGE.iter().any(|g| path.ends_with(g)) => true,
            (_, None) => self.key(path, line, Some(format!("recorded {recorded}, not in our state"))),
            (Value::Object(fields), Some(ours)) if ours.is_object() => {
                let mut equal = true;
                for (key, value) in fields {
                    equal &= self.value(&format!("{path}.{key}"), line, value, ours.get(key));
                }
                equal
            }
            (Value::Array(list), Some(Value::Array(our_list)))
                if list.len() == our_list.len() && list.iter().any(|v| v.is_object()) =>
            {
                let mut equal = true;
                for (value, our_value) in list.iter().zip(our_list) {
                    equal &= self.value(&format!("{path}[]"), line, value, Some(our_value));
                }
                equal
            }
            (_, Some(ours)) => {
                let difference =
                    (recorded != ours).then(|| format!("recorded {}, ours {}", short(recorded), short(ours)));
                self.key(path, line, difference)
            }
        }
    }

    /// What differs, key by key, the most frequent first.
    pub(super) fn report(&self, file: &str) -> String {
        let mut text = format!("{file}: {}/{} lines equal in every key\n", self.equal, self.total);
        if self.racing > 0 {
            text += &format!("  counters not compared: {} lines after a shrink on several CPUs\n", self.racing);
        }
        if self.others_pages > 0 {
            text += &format!(
                "  page counts not compared: {} lines that count pages of other caches too\n",
                self.others_pages
            );
        }
        for (why, lines) in &self.left_out {
            text += &format!("  left out: {lines} lines, {why}\n");
        }
        let mut different: Vec<_> = self.keys.iter().filter(|(_, k)| k.different > 0).collect();
        different.sort_by_key(|(_, k)| std::cmp::Reverse(k.different));
        let equal: Vec<&str> =
            self.keys.iter().filter(|(_, k)| k.different == 0).map(|(name, _)| name.as_str()).collect();
        text += &format!("  equal everywhere ({}): {}\n", equal.len(), equal.join(" "));
        for (name, k) in different {
            let first = k.first.as_ref().map_or("", |(_, text)| text.as_str());
            text += &format!("  {name}: {}/{} differ; first {first}\n", k.different, k.compared);
        }
        text
    }
}

/// The recorded counters, with [`RACED`] as we have it if decrements explain the difference.
fn without_lost(recorded: &Value, ours: &Value) -> Value {
    let key = RACED.split('.').next_back().expect("a key");
    let mut fixed = recorded.clone();
    if ours[key].as_u64() < recorded[key].as_u64() {
        fixed[key] = ours[key].clone();
    }
    fixed
}

/// Which line is compared.
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) title: String,
}

/// A value in at most 200 characters.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_shrink_of_several_nodes_in_a_booted_kernel_may_have_lost_decrements() {
        let line = Line { number: 1, title: "t".into() };
        let same = |nodes: u64, checkpoint: &str, recorded: u64| {
            let recorded =
                json!({ "nodes": nodes, "checkpoint": checkpoint, "stat": { "num_active": recorded, "x": 1 } });
            Tally::default().state(&line, &recorded, &json!({ "stat": { "num_active": 2, "x": 1 } }))
        };
        assert!(same(2, "shrunk", 3) && same(2, "shrunk", 2));
        assert!(!same(2, "shrunk", 1) && !same(1, "shrunk", 3) && !same(2, "freed_100", 3));
    }

    #[test]
    fn differences_are_counted_under_the_name_of_their_key() {
        let line = Line { number: 7, title: "t".into() };
        let recorded = json!({ "kernel": "k", "node": [{ "a": 1, "b": [1, 2] }, { "a": 1, "b": [] }], "n": 3, "m": 4 });
        let mut tally = Tally::default();
        let ours = json!({ "node": [{ "a": 1, "b": [1, 2] }, { "a": 2, "b": [] }], "n": 3 });
        assert!(!tally.state(&line, &recorded, &ours));
        let differ = |key: &str| (tally.keys[key].compared, tally.keys[key].different);
        assert_eq!(
            [differ("node[].a"), differ("node[].b"), differ("n"), differ("m")],
            [(2, 1), (2, 0), (1, 0), (1, 1)]
        );
        assert!(!tally.keys.contains_key("kernel"));
        assert!(tally.report("f").contains("node[].a: 1/2 differ; first line 7, t: recorded 1, ours 2"));
        let mut same = Tally::default();
        assert!(same.state(&line, &recorded, &json!({ "node": recorded["node"], "n": 3, "m": 4 })));
    }
}
