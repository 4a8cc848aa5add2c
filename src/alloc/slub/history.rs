//! SLUB's history as a table: when each era was, what it is known for, and which values of the [`Policy`] changed. Made from
//! the eras themselves: `docs/eras.md` shows it.

use serde_json::{Map, Value, json};

use super::eras;
use super::policy::Policy;

/// When, and what the era is known for, in the order of [`eras::ALL`].
const KNOWN_FOR: [(&str, &str); eras::ALL.len()] = [
    ("April 2007, -mm", "every operation takes the slab lock"),
    ("July 2007", "a CPU takes the whole list of its slab and allocates from it without the lock"),
    ("November 2007", "a structure per CPU holds that list; kmalloc above half a page goes to the page allocator"),
    ("January 2008", "keeps five partial slabs; a full slab's first free puts it at the tail; /proc/slabinfo"),
    ("April 2008", "kmalloc caches whole pages again; the slab lock is released by a plain store; event counters"),
    (
        "October 2008",
        "larger slabs on machines of more CPUs, small ones when memory is scattered; other nodes' slabs first",
    ),
    ("September 2009", "kmalloc up to two pages from caches; the order search skips no number of objects"),
    ("October 2011", "no locks but list_lock: a compare-exchange of the CPU's list, and one of the slab's word"),
    ("January 2012", "each CPU keeps a list of partial slabs, counted in objects"),
    ("December 2022", "that list is counted in slabs; free pointer in the middle; debug caches without cpu slabs"),
    ("March 2024", "a slab is frozen when it is used, not while it waits; a shorter order search"),
    ("November 2025", "sheaves per CPU and barns per node over the cpu slabs, for caches that ask"),
    ("2026", "sheaves for all caches; cpu slabs and their partial lists are gone"),
];

/// The values of a policy by name.
fn values(policy: &Policy) -> Map<String, Value> {
    match serde_json::to_value(policy) {
        Ok(Value::Object(values)) => values,
        other => unreachable!("a policy is an object, not {other:?}"),
    }
}

/// One entry per era: `era`, `when`, `what`, `changes` (name, before, after; the first era's are empty) and the event
/// counters that came and went.
pub fn steps() -> Vec<Value> {
    let mut before: Option<(Map<String, Value>, &Policy)> = None;
    let mut steps = Vec::new();
    for ((era, policy), (when, what)) in eras::ALL.iter().zip(KNOWN_FOR) {
        let now = values(policy);
        let mut changes = Vec::new();
        let (mut came, mut went): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        if let Some((old, last)) = &before {
            let changed = now.iter().filter(|(name, value)| old[name.as_str()] != **value);
            changes.extend(changed.map(|(name, value)| json!({ "policy": name, "before": old[name], "after": value })));
            came.extend(policy.stats.iter().filter(|s| !last.stats.contains(s)).map(|s| s.name()));
            went.extend(last.stats.iter().filter(|s| !policy.stats.contains(s)).map(|s| s.name()));
        }
        steps.push(json!({
            "era": era, "when": when, "what": what, "changes": changes,
            "counters": policy.stats.len(), "came": came, "went": went,
        }));
        before = Some((now, policy));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_era_changes_something_and_the_changes_lead_from_the_first_to_the_last() {
        let steps = steps();
        assert!(steps[0]["changes"].as_array().unwrap().is_empty());
        let mut policy = values(&eras::ALL[0].1);
        for (step, (era, expected)) in steps.iter().zip(eras::ALL).skip(1) {
            let changes = step["changes"].as_array().unwrap();
            assert!(!changes.is_empty(), "{era}");
            for change in changes {
                let name = change["policy"].as_str().unwrap();
                assert_eq!(policy.insert(name.into(), change["after"].clone()), Some(change["before"].clone()));
            }
            assert_eq!(policy, values(&expected), "{era}");
        }
        let of = |era: &str| steps.iter().find(|s| s["era"] == era).unwrap()["changes"].clone();
        assert_eq!(of("6.8").as_array().unwrap().len(), 3, "{}", of("6.8"));
    }
}
