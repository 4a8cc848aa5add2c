//! The debug option: letters, and which caches they are for (slub.md §7.1). Only what the flags do to layout and paths is
//! here; the checks themselves are not built.

use super::policy::Policy;

/// Debug flags of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Debug {
    /// F: consistency checks.
    pub checks: bool,
    /// Z: red zones.
    pub red_zone: bool,
    /// P: poison.
    pub poison: bool,
    /// U: tracks of the last user.
    pub user: bool,
    /// T: trace.
    pub trace: bool,
    /// A: marked for fault injection.
    pub failslab: bool,
    /// O: no Z, P and U where they would raise the smallest order.
    pub spare_order: bool,
}

impl Debug {
    /// True if the cache goes the debug path: F, Z, P, U or T (kernel: kmem_cache_debug).
    pub fn any(&self) -> bool {
        self.checks || self.red_zone || self.poison || self.user || self.trace
    }
    /// Never shared with such a cache.
    pub fn unmergeable(&self) -> bool {
        self.red_zone || self.poison || self.user || self.trace || self.failslab
    }
    /// Its flags with their letters.
    fn letters(&self) -> [(bool, char); 7] {
        [
            (self.checks, 'F'),
            (self.red_zone, 'Z'),
            (self.poison, 'P'),
            (self.user, 'U'),
            (self.trace, 'T'),
            (self.failslab, 'A'),
            (self.spare_order, 'O'),
        ]
    }
    /// Without the flags that enlarge objects (kernel: DEBUG_METADATA_FLAGS).
    pub fn without_metadata(self) -> Debug {
        Debug { red_zone: false, poison: false, user: false, ..self }
    }

    /// Flags of letters; `Err` is what would be right.
    fn of(letters: &str, policy: &Policy) -> Result<Debug, String> {
        let mut d = Debug::default();
        if letters.is_empty() {
            return Ok(Debug { checks: true, red_zone: true, poison: true, user: true, ..d });
        }
        // O came with 2.6.32 and A with 2.6.34: before the first lockless fast path.
        let newer = policy.stats.len() >= super::eras::V3_1.stats.len();
        for letter in letters.chars() {
            match letter.to_ascii_uppercase() {
                'F' => d.checks = true,
                'Z' => d.red_zone = true,
                'P' => d.poison = true,
                'U' => d.user = true,
                'T' => d.trace = true,
                'A' if newer => d.failslab = true,
                'O' if newer => d.spare_order = true,
                '-' => d = Debug::default(),
                other => {
                    let since = match other {
                        'A' => ": A exists since 2.6.34",
                        'O' => ": O exists since 2.6.32",
                        _ => "",
                    };
                    return Err(format!(
                        "letters of F Z P U T (since 2.6.22), O (2.6.32), A (2.6.34) or -, then perhaps a comma and names; not {other:?}{since}"
                    ));
                }
            }
        }
        Ok(d)
    }
}

impl std::fmt::Display for Debug {
    /// The letters, as the debug option takes them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.letters().iter().filter(|(on, _)| *on).try_for_each(|(_, letter)| write!(f, "{letter}"))
    }
}

/// One block of the option: flags, and the names they are for (none: all caches).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    flags: Debug,
    names: Vec<String>,
}

/// A parsed debug option.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugOption {
    blocks: Vec<Block>,
    globs: bool,
}

impl DebugOption {
    /// Parses `letters[,names]`, several blocks split by `;` where the release has that. Empty: no debugging.
    pub fn parse(text: &str, policy: &Policy) -> Result<DebugOption, String> {
        let globs = policy.debug_globs;
        let mut blocks = Vec::new();
        if !text.is_empty() {
            let parts: Vec<&str> = if globs { text.split(';').collect() } else { vec![text] };
            for part in parts {
                let (letters, names) = part.split_once(',').unwrap_or((part, ""));
                let names = names.split(',').filter(|n| !n.is_empty()).map(String::from).collect::<Vec<_>>();
                if !globs && names.len() > 1 {
                    return Err("one prefix of names in this release: several since 4.20".into());
                }
                blocks.push(Block { flags: Debug::of(letters, policy)?, names });
            }
        }
        Ok(DebugOption { blocks, globs })
    }

    /// Flags of the cache of this name: of the first block that names it, else of the last block without names.
    pub fn of(&self, name: &str) -> Debug {
        let named = |block: &&Block| {
            block.names.iter().any(|n| match n.strip_suffix('*') {
                Some(prefix) if self.globs => name.starts_with(prefix),
                _ if self.globs => name == n,
                _ => name.starts_with(n.as_str()),
            })
        };
        let found = self.blocks.iter().find(named);
        let found = found.or_else(|| self.blocks.iter().rfind(|b| b.names.is_empty()));
        found.map_or(Debug::default(), |b| b.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::super::eras::{V2_6_22, V6_1};
    use super::*;

    #[test]
    fn names_are_prefixes_first_and_patterns_later() {
        let old = DebugOption::parse("FZ,kmalloc-1", &V2_6_22).unwrap();
        assert!(old.of("kmalloc-128").red_zone && !old.of("kmalloc-8").any());
        let new = DebugOption::parse("P;U,dentry,kmalloc-1*;-,inode_cache", &V6_1).unwrap();
        let flags = |name| (new.of(name).poison, new.of(name).user);
        assert_eq!(flags("kmalloc-128"), (false, true));
        assert_eq!(flags("dentry_x"), (true, false));
        assert_eq!((flags("dentry"), flags("inode_cache")), ((false, true), (false, false)));
        let all = DebugOption::parse(",dentry", &V6_1).unwrap();
        assert!(all.of("dentry").checks && all.of("dentry").user && !all.of("a").any());
    }

    #[test]
    fn letters_have_their_release() {
        for (text, policy, part) in [
            ("Q", &V6_1, "not 'Q'"),
            ("FO", &V2_6_22, "O exists since 2.6.32"),
            ("A", &V2_6_22, "since 2.6.34"),
            ("F,a,b", &V2_6_22, "several since"),
        ] {
            let e = DebugOption::parse(text, policy).unwrap_err();
            assert!(e.contains(part), "{text}: {e}");
        }
        assert!(DebugOption::parse("fzo", &V6_1).unwrap().of("a").spare_order);
    }
}
