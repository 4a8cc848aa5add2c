//! The direction of the house: `floor 0 ← machine ← page ← alloc ← run`, and `workload` beside `machine`, on floor 0 alone.
//! Read from the `crate::` paths of every file, so that a shortcut upwards does not pass unseen.

use std::fs;
use std::path::{Path, PathBuf};

/// Floor 0 and the macros that live there.
const WORDS: &[&str] = &["units", "topology", "spec", "error", "ensure"];
/// Each floor above it, with its exported macro if it has one, and the floors it stands on.
const FLOORS: &[(&str, &[&str])] = &[
    ("machine", &[]),
    ("page", &["machine"]),
    ("alloc", &["machine", "page"]),
    ("workload", &[]),
    ("run", &["machine", "page", "alloc", "allocators", "workload", "workloads"]),
];

/// What `floor` may name, itself and its own macro aside.
fn allowed(floor: &str) -> Vec<&'static str> {
    let below = FLOORS.iter().find(|(name, _)| *name == floor).map_or(&[][..], |(_, below)| below);
    WORDS.iter().chain(below).copied().collect()
}

/// First names of all `crate::` paths in `text`, comments aside. `$crate::` belongs to whoever calls the macro.
fn named(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        for (at, _) in code.match_indices("crate::") {
            let before = code[..at].chars().next_back();
            if before.is_none_or(|c| c != '$' && c != '_' && !c.is_alphanumeric()) {
                let path = &code[at + "crate::".len()..];
                let end = path.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(path.len());
                names.push(path[..end].to_string());
            }
        }
    }
    names
}

/// What a file on `floor` names and may not. A group `crate::{…}` comes out as an empty name: one `use` per module.
fn trespasses(floor: &str, text: &str) -> Vec<String> {
    let allowed = allowed(floor);
    named(text).into_iter().filter(|name| name != floor && !allowed.contains(&name.as_str())).collect()
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_file_names_lower_floors_only() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let (mut seen, mut wrong) = (Vec::new(), Vec::new());
    for file in files {
        let inside = file.strip_prefix(&src).expect("below src");
        let floor = inside.iter().next().and_then(|f| f.to_str()).expect("a name").trim_end_matches(".rs").to_string();
        // The map names every floor, and tests stand outside the house.
        if ["lib", "walkthrough", "tests"].contains(&floor.as_str()) {
            continue;
        }
        let known = WORDS.contains(&floor.as_str()) || FLOORS.iter().any(|(name, _)| *name == floor);
        assert!(known, "{} stands on no floor", inside.display());
        let text = fs::read_to_string(&file).expect("a source file");
        wrong.extend(trespasses(&floor, &text).into_iter().map(|name| format!("{}: crate::{name}", inside.display())));
        seen.push(floor);
    }
    assert_eq!(wrong, Vec::<String>::new(), "paths against the direction of the house");
    assert!(FLOORS.iter().all(|(name, _)| seen.iter().any(|s| s == name)), "a floor without a file: {seen:?}");
}

#[test]
fn a_path_upwards_is_seen_wherever_it_stands() {
    for (floor, text, wrong) in [
        ("page", "use crate::alloc::Stat;", vec!["alloc"]),
        ("units", "pub use crate::machine::Addr;", vec!["machine"]),
        ("workload", "fn f() { let _ = crate::machine::cost::PAGE_ALLOC; }", vec!["machine"]),
        ("machine", "use crate::{page, units};", vec![""]),
        ("alloc", "// as in crate::run\n    crate::ensure!(x);\n    $crate::run::f();", vec![]),
        ("alloc", "use crate::alloc::Stat;\nuse crate::page::Pages;\nuse crate::units::Order;", vec![]),
        ("run", "crate::workloads!(names)", vec![]),
    ] {
        assert_eq!(trespasses(floor, text), wrong, "{floor}: {text}");
    }
}
