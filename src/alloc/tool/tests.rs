//! The tool on files written by hand: the specification's example, units, naming, options.

use serde_json::json;

use super::*;

fn cache(name: &str, files: Value) -> Directory {
    let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), String::from);
    let files = files.as_object().expect("files").iter().map(|(n, v)| (n.clone(), json!(text(v)))).collect();
    Directory { name: name.into(), files, ..Directory::default() }
}

fn example() -> Directory {
    cache(
        "X",
        json!({ "object_size": 104, "slab_size": 104, "order": 0, "objs_per_slab": 39, "slabs": "10 N0=10",
                "partial": "2 N0=2", "cpu_slabs": "1 N0=1", "objects": "370 N0=370" }),
    )
}

fn report(caches: Vec<Directory>) -> Report {
    let events = ["alloc_fastpath", "alloc_slowpath", "order_fallback", "cmpxchg_double_fail"].map(String::from);
    Report { kind: Kind::Slub, form: Form::New, era: "6.1".into(), sysfs: true, events: events.into(), caches }
}

fn words(text: &str, line: usize) -> Vec<&str> {
    text.lines().nth(line).expect("a line").split_whitespace().collect()
}

/// slabinfo.md §9.
#[test]
fn the_worked_example_is_equal() {
    let text = report(vec![example()]).print("").unwrap();
    assert_eq!(words(&text, 1), ["X", "370", "104", "40.9K", "9/2/1", "39", "0", "20", "93"]);
    let old = Report { form: Form::Oldest, ..report(vec![example()]) };
    assert_eq!(words(&old.print("-l").unwrap(), 1)[4], "10/2/1");
    assert_eq!(old.print("").unwrap().lines().next().unwrap().len() + 7, text.lines().next().unwrap().len());
}

#[test]
fn numbers_are_scaled_by_truncation() {
    let shown = [1_048_576, 4096, 1000, 1001, 2_500_000_000].map(scaled);
    assert_eq!(shown, ["1.0M", "4.0K", "1000", "1.0K", "2.5G"]);
}

#[test]
fn activity_is_sorted_and_shows_shares_and_what_the_release_counts() {
    let mut busy = Directory { name: "busy".into(), ..example() };
    for (file, text) in [
        ("alloc_fastpath", "99 C0=99"),
        ("alloc_slowpath", "1 C1=1"),
        ("free_slowpath", "50 C0=20 C1=30"),
        ("cmpxchg_double_fail", "3 C0=3"),
    ] {
        busy.files.insert(file.into(), json!(text));
    }
    let mut r = report(vec![example(), busy]);
    let text = r.print("-AD").unwrap();
    assert_eq!(words(&text, 1), ["busy", "370", "100", "50", "99", "0", "0", "0", "3", "0"]);
    assert_eq!(words(&text, 2)[1..6], ["370", "0", "0", "0", "0"]);
    assert_eq!(words(&r.print("-D").unwrap(), 1)[0], "busy", "by name, though");
    r.events = vec!["alloc_fastpath".into()];
    assert_eq!(words(&r.print("-AD").unwrap(), 0), ["Name", "Objects", "Alloc", "Free", "%Fast"]);
    r.events.clear();
    let e = r.print("-AD").unwrap_err().to_string();
    assert!(e.contains("options = \"-AD\"") && e.contains("since 2.6.25"), "{e}");
}

#[test]
fn totals_read_back_to_the_same_numbers() {
    let mut other = example();
    for (file, text) in [("slabs", "2"), ("objects", "78"), ("partial", "0"), ("object_size", "100")] {
        other.files.insert(file.into(), json!(text));
    }
    let text = report(vec![example(), other, Directory::default()]).print("-T").unwrap();
    let row = |name: &str| -> Vec<String> {
        let line = text.lines().find(|l| l.starts_with(&format!("{name:<10} "))).expect(name);
        line[10..].split_whitespace().map(String::from).collect()
    };
    assert!(text.contains("Slabcaches: 3 Aliases: 0->0 Active: 2"));
    assert_eq!(row("#Objects"), ["224", "78", "370", "448"]);
    assert_eq!(row("#Slabs"), ["6", "2", "10", "12"]);
    assert_eq!(row("%PartSlab"), ["10", "0", "20", "16"]);
    assert_eq!(row("Memory"), ["24.5K", "8.1K", "40.9K", "49.1K"]);
    assert_eq!(report(vec![]).print("-T").unwrap(), "No objects and no slabs\n");
}

#[test]
fn a_shared_directory_shows_its_id_and_one_of_a_single_name_the_name() {
    let mut one = Directory { name: ":0000104".into(), links: vec!["buffer_head".into()], ..example() };
    assert_eq!(one.shown(), "buffer_head");
    one.links.push("kmalloc-104".into());
    one.files.insert("aliases".into(), json!("1"));
    let r = report(vec![one]);
    assert!(r.print("").unwrap().lines().nth(1).unwrap().starts_with(":0000104 "));
    assert!(r.print("").unwrap().ends_with("93 *\n"));
    assert_eq!(r.find("kmalloc-104").map(|d| d.name.as_str()), Some(":0000104"));
    assert!(r.print("-T").unwrap().contains("Aliases: 2->1"));
}

#[test]
fn sysfs_has_every_event_file_of_the_release() {
    let r = report(vec![example()]);
    let files = r.sysfs(&r.caches[0]);
    assert_eq!(files["alloc_fastpath"], "0");
    assert_eq!(files["slabs"], "10 N0=10");
    assert_eq!(files.keys().next_back().unwrap(), "cmpxchg_double_fail");
}

#[test]
fn options_are_the_tool_s() {
    let r = report(vec![example()]);
    for same in ["-AD", "-A -D", "-DA", "--activity --display-active"] {
        assert_eq!(r.print(same), r.print("-AD"), "{same}");
    }
    assert_eq!(r.print("--Totals"), r.print("-T"));
    for odd in ["-Q", "AD", "--", "-", "--all"] {
        assert!(r.print(odd).unwrap_err().to_string().contains("-AD, -T (totals)"), "{odd}");
    }
}
