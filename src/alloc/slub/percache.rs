//! Tunables of single caches: `name:parameter=value,…`, several blocks split by `;`, a name with `*` at its end for all that
//! begin so. The first block that names a cache is the one for it, as with the debug option. A cache with limits or orders of
//! its own shares its slabs with no other; `merge` alone says whether a cache may.

use super::policy::*;
use crate::alloc::slub::config::{LARGEST_BARN, LARGEST_SHEAF};

/// What can be set for a cache.
const KNOWN: &str = "order, min_order, max_order, min_objects (since 2.6.22), min_partial, remote_node_defrag_ratio (since \
                     2.6.22), cpu_partial (3.2 to 6.18), sheaf_capacity, barn_max_full, barn_max_empty (since 6.18), merge";

/// A parsed option.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PerCache {
    blocks: Vec<(String, Vec<(Key, u64)>)>,
}

/// A tunable that a cache can have for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Order,
    MinOrder,
    MaxOrder,
    MinObjects,
    MinPartial,
    DefragRatio,
    CpuPartial,
    SheafCapacity,
    BarnMaxFull,
    BarnMaxEmpty,
    Merge,
}

impl PerCache {
    /// Parses the option for an era; `Err` says what would be right.
    pub(super) fn parse(text: &str, policy: &Policy) -> Result<PerCache, String> {
        let mut blocks: Vec<(String, Vec<(Key, u64)>)> = Vec::new();
        let example = "name:parameter=value,…, as kmalloc-512:min_partial=20,cpu_partial=0;dentry:order=1";
        for block in text.split(';').map(str::trim).filter(|_| !text.is_empty()) {
            let (name, rest) = block.split_once(':').ok_or_else(|| format!("{example}; not {block:?}"))?;
            let name = name.trim();
            if name.trim_end_matches('*').contains('*') || name.is_empty() {
                return Err(format!("names, which may end in *; not {name:?}"));
            }
            if blocks.iter().any(|(known, _)| known == name) {
                return Err(format!("each name once; {name} is there twice"));
            }
            let mut values: Vec<(Key, u64)> = Vec::new();
            for item in rest.split(',') {
                let (key, value) = item.split_once('=').ok_or_else(|| format!("{example}; not {item:?}"))?;
                let (kind, value) = Self::value(key.trim(), value.trim(), policy)?;
                if values.iter().any(|(known, _)| *known == kind) {
                    return Err(format!("each parameter once for {name}; {} is there twice", key.trim()));
                }
                values.push((kind, value));
            }
            if values.len() > 1 && values.contains(&(Key::Merge, 1)) {
                return Err(format!("merge=true alone: {name} has other tunables of its own, and shares with none"));
            }
            blocks.push((name.to_string(), values));
        }
        Ok(PerCache { blocks })
    }

    fn value(key: &str, text: &str, policy: &Policy) -> Result<(Key, u64), String> {
        let orders = (0, u64::from(LARGEST_ORDER));
        let no_sheaves = policy.sheaves.is_none().then_some("sheaves exist since 6.18");
        let (kind, (low, high), since) = match key {
            "order" => (Key::Order, orders, None),
            "min_order" => (Key::MinOrder, orders, None),
            "max_order" => (Key::MaxOrder, orders, None),
            "min_objects" => (Key::MinObjects, (1, 65_536), None),
            "min_partial" => (Key::MinPartial, (0, u64::MAX), None),
            "remote_node_defrag_ratio" => (Key::DefragRatio, (0, 1024), None),
            "cpu_partial" => {
                let missing = (!policy.has_cpu_partial()).then_some("per-CPU partial lists exist from 3.2 to 6.18");
                (Key::CpuPartial, (0, LOCKLESS_OBJECTS), missing)
            }
            "sheaf_capacity" => (Key::SheafCapacity, (0, LARGEST_SHEAF), no_sheaves),
            "barn_max_full" => (Key::BarnMaxFull, (0, LARGEST_BARN), no_sheaves),
            "barn_max_empty" => (Key::BarnMaxEmpty, (0, LARGEST_BARN), no_sheaves),
            "merge" => {
                let said = [("false", 0), ("true", 1)].into_iter().find(|(word, _)| *word == text);
                return said
                    .map(|(_, n)| (Key::Merge, n))
                    .ok_or_else(|| format!("merge of true or false; not {text:?}"));
            }
            _ => return Err(format!("parameters {KNOWN}; not {key:?}")),
        };
        if let Some(since) = since {
            return Err(format!("no {key} in this release: {since}"));
        }
        match text.parse::<u64>() {
            Ok(n) if (low..=high).contains(&n) => Ok((kind, n)),
            _ if high == u64::MAX => Err(format!("{key} of {low} or more; not {text:?}")),
            _ => Err(format!("{key} of {low}..{high}; not {text:?}")),
        }
    }

    fn of(&self, name: &str) -> Option<&[(Key, u64)]> {
        let named = |pattern: &str| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        };
        self.blocks.iter().find(|(pattern, _)| named(pattern)).map(|(_, values)| values.as_slice())
    }
    /// Whether the cache of this name may share its slabs, where the others may or not: not with tunables of its own.
    pub(super) fn merges(&self, name: &str, others: bool) -> bool {
        match self.of(name) {
            None => others,
            Some(values) => values.contains(&(Key::Merge, 1)),
        }
    }

    /// The policy by which the cache of this name is made.
    pub(super) fn policy(&self, name: &str, mut policy: Policy) -> Policy {
        let t = &mut policy.t;
        for (key, n) in self.of(name).into_iter().flatten() {
            match key {
                Key::Order => (t.min_order, t.max_order) = (*n as u8, *n as u8),
                // As with the boot options: a floor raises the ceiling, a ceiling lowers the floor.
                Key::MinOrder => (t.min_order, t.max_order) = (*n as u8, t.max_order.max(*n as u8)),
                Key::MaxOrder => (t.min_order, t.max_order) = (t.min_order.min(*n as u8), *n as u8),
                Key::MinObjects => t.min_objects = MinObjects::Objects(*n),
                Key::MinPartial => t.min_partial = MinPartial::Slabs(*n),
                Key::DefragRatio => t.remote_node_defrag_ratio = *n,
                Key::CpuPartial => t.cpu_partial = CpuPartial::Objects(*n),
                Key::SheafCapacity if *n == 0 => t.sheaf_capacity = SheafCapacity::Rule(SheafRule::None),
                Key::SheafCapacity => t.sheaf_capacity = SheafCapacity::Objects(*n),
                Key::BarnMaxFull => t.barn_max_full = *n,
                Key::BarnMaxEmpty => t.barn_max_empty = *n,
                Key::Merge => t.merge = *n == 1,
            }
        }
        policy
    }
}

#[cfg(test)]
mod tests {
    use super::super::eras::{V2_6_24, V6_1, V6_18};
    use super::*;

    #[test]
    fn the_first_block_that_names_a_cache_is_its_own() {
        let option = PerCache::parse("kmalloc-512:min_partial=20,cpu_partial=0;kmalloc-*:order=2", &V6_1).unwrap();
        let of = |name| option.policy(name, V6_1).t;
        assert_eq!((of("kmalloc-512").min_partial, of("kmalloc-512").max_order), (MinPartial::Slabs(20), 3));
        assert_eq!((of("kmalloc-64").min_order, of("kmalloc-64").max_order), (2, 2));
        assert_eq!(of("dentry"), V6_1.t);
        assert!(!option.merges("kmalloc-8", true) && option.merges("dentry", true) && !option.merges("dentry", false));
    }

    #[test]
    fn merging_is_allowed_or_forbidden_by_name() {
        let option = PerCache::parse("dentry:merge=false;inode*:merge=true", &V6_1).unwrap();
        assert!(!option.merges("dentry", true) && option.merges("inode_cache", false));
        let barns = PerCache::parse("maple_node:barn_max_full=3,barn_max_empty=0", &V6_18).unwrap();
        let t = barns.policy("maple_node", V6_18).t;
        assert_eq!((t.barn_max_full, t.barn_max_empty, barns.merges("maple_node", true)), (3, 0, false));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (text, policy, part) in [
            ("dentry", &V6_1, "name:parameter=value"),
            ("dentry:order", &V6_1, "not \"order\""),
            ("dentry:order=11", &V6_1, "order of 0..10; not \"11\""),
            ("dentry:orders=1", &V6_1, "parameters order, min_order"),
            ("dentry:cpu_partial=3", &V2_6_24, "from 3.2 to 6.18"),
            ("dentry:sheaf_capacity=3", &V6_1, "since 6.18"),
            ("dentry:sheaf_capacity=9999", &V6_18, "0..4096"),
            ("dentry:min_partial=-1", &V6_18, "0 or more"),
            ("*a:order=1", &V6_1, "which may end in *"),
            ("a:order=1;a:min_partial=2", &V6_1, "each name once; a is there twice"),
            (";", &V6_1, "name:parameter=value"),
            ("a:order=1,order=2", &V6_1, "each parameter once for a; order is there twice"),
            ("a:order=1,merge=true", &V6_1, "merge=true alone"),
            ("a:merge=1", &V6_1, "merge of true or false"),
            ("a:barn_max_full=1", &V6_1, "since 6.18"),
            ("a:barn_max_empty=-1", &V6_18, "0..1048576"),
        ] {
            let e = PerCache::parse(text, policy).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
    }
}
