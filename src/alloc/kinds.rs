//! Kinds of kmalloc caches, as configurations write them (`kmalloc="rcl,dma"`) and as names of caches have them: what SLAB and
//! SLUB share.

use crate::spec::Kind;

/// What the parameter `kmalloc` calls a kind: its part of the names of 6.1.
fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Normal => "",
        Kind::Reclaimable => "rcl",
        Kind::Dma => "dma",
        Kind::Accounted => "cg",
    }
}

/// The kinds that a list of words as `"rcl,dma"` names, [`Kind::Normal`] included, in the order of `known`; or what would be
/// right. `known` begins with [`Kind::Normal`].
pub(super) fn listed(known: &[Kind], list: &str) -> Result<Vec<Kind>, String> {
    let words: Vec<&str> = list.split(',').map(str::trim).filter(|w| !w.is_empty()).collect();
    let right: Vec<&str> = known[1..].iter().map(|k| word(*k)).collect();
    if words.iter().any(|w| !right.contains(w)) {
        return Err(format!("a list of {}, or nothing", right.join(", ")));
    }
    Ok(known.iter().copied().filter(|k| *k == Kind::Normal || words.contains(&word(*k))).collect())
}

/// Name of the cache of this kind since all kinds are made at boot: `kmalloc-64`, `dma-kmalloc-64`, `kmalloc-rcl-64`.
pub(super) fn name(kind: Kind, size: &str) -> String {
    match kind {
        Kind::Normal => format!("kmalloc-{size}"),
        Kind::Dma => format!("dma-kmalloc-{size}"),
        Kind::Reclaimable | Kind::Accounted => format!("kmalloc-{}-{size}", word(kind)),
    }
}

/// A size in names since 5.x: in KiB from 1 KiB on.
pub(super) fn short(size: u64) -> String {
    if size >= 1024 { format!("{}k", size / 1024) } else { size.to_string() }
}
