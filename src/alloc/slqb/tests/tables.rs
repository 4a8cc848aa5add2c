//! The tables of slqb.md §19, as they stand there, and what reads and replays them.

use std::collections::BTreeMap;

use super::super::chain::Chain;
use super::super::node::ListId;
use super::super::report::STATS;
use super::*;
use crate::machine::Cpu;
use crate::page::Pfn;
use crate::units::CpuId;

/// One row of a table: cells by column name.
type Row = BTreeMap<String, String>;

/// The rows of a table: cells trimmed, keyed by the header.
fn rows(table: &str) -> Vec<Row> {
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|c| c.trim().to_string()).collect()
    };
    let mut lines = table.trim().lines();
    let header = cells(lines.next().unwrap());
    let rows: Vec<Row> = lines.skip(1).map(|line| header.iter().cloned().zip(cells(line)).collect()).collect();
    assert!(!rows.is_empty() && rows.iter().all(|r| r.len() == header.len()), "a table without rows: {table}");
    rows
}

fn number(row: &Row, column: &str) -> u64 {
    let cell = row.get(column).unwrap_or_else(|| panic!("no column {column:?} in {row:?}"));
    cell.parse().unwrap_or_else(|_| panic!("{column} = {cell:?} is no number"))
}

#[test]
fn geometry_is_that_of_the_table() {
    for row in rows(GEOMETRY) {
        let size = number(&row, "size");
        let g = Geometry::of(&plain(size), &config(&[]), &X86).unwrap();
        let colours = {
            let mut offsets = vec![0];
            while let Some(next) = Some(g.next_colour(*offsets.last().unwrap())).filter(|c| *c != 0) {
                offsets.push(next);
            }
            offsets.len() as u64
        };
        let waste = format!("{:.2}", g.colour_range as f64 * 100.0 / g.order.bytes() as f64);
        let found = [
            ("size", g.size),
            ("order", g.order.0.into()),
            ("slab bytes", g.order.bytes()),
            ("objects", g.objects),
            ("waste B", g.colour_range),
            ("freebatch", g.freebatch),
            ("hiwater", g.hiwater),
            ("hiwater bytes", g.hiwater * g.size),
            ("colours", colours),
        ];
        found.iter().for_each(|(column, value)| assert_eq!(number(&row, column), *value, "{size}: {column}"));
        assert_eq!(row["waste %"], waste, "{size}");
    }
}

#[test]
fn boot_parameters_move_orders_as_in_the_table() {
    for row in rows(BOOT_PARAMETERS) {
        let n = |column| number(&row, column);
        let set = config(&[("order", n("min_order")), ("min_objects", n("min_objects"))]);
        let g = Geometry::of(&plain(n("size")), &set, &X86).unwrap();
        let found = (u64::from(g.order.0), g.objects, g.colour_range, g.freebatch, g.hiwater);
        assert_eq!(found, (n("order"), n("objects"), n("waste"), n("freebatch"), n("hiwater")), "{row:?}");
    }
}

#[test]
fn layouts_are_those_of_the_table() {
    for row in rows(LAYOUT) {
        let n = |column| number(&row, column);
        let mut spec = plain(n("objsize"));
        let mut debug = String::new();
        for word in row["attributes"].split(" + ") {
            match word {
                "none" => {}
                "poison" => debug += "P",
                "red zone" => debug += "Z",
                "user" | "store user" => debug += "U",
                "ctor" => spec.ctor = true,
                "RCU" => spec.typesafe_by_rcu = true,
                "HWCACHE_ALIGN" => spec.hwcache_align = true,
                "align=32" => spec.align = 32,
                other => panic!("unknown attribute {other}"),
            }
        }
        let colours = debug.is_empty();
        let g = Geometry::of(&spec, &Config { debug, ..config(&[]) }, &X86).unwrap();
        let waste = g.order.bytes() - g.objects * g.size;
        assert_eq!((g.colour_range, g.colour_off > 0), if colours { (waste, true) } else { (0, false) }, "{row:?}");
        let found = [g.align, g.inuse, g.offset, g.size, g.order.0.into(), g.objects, waste];
        let columns = ["align", "inuse", "free-pointer offset", "size", "order", "objects", "waste"];
        assert_eq!(found, columns.map(n), "{row:?}");
    }
}

#[test]
fn successive_slabs_of_one_cpu_take_successive_colours() {
    for row in rows(COLOURS) {
        lab(ONE, config(&[]), plain(number(&row, "size")), |lab| {
            let g = lab.slqb.caches[lab.cache.0 as usize].geometry.clone();
            assert_eq!(g.colour_range, number(&row, "colour_range"));
            let objects = lab.alloc(0, 12 * g.objects as usize);
            let offsets: Vec<String> = objects
                .chunks(g.objects as usize)
                .map(|slab| lab.slqb.placement(lab.cache, slab[0]).offset.to_string())
                .collect();
            assert_eq!(offsets.join(", "), row["successive slab offsets on one CPU"]);
        });
    }
}

/// Letters for slabs, in order of first appearance.
#[derive(Default)]
struct Letters(Vec<Pfn>);

impl Letters {
    fn slab(&mut self, slab: Pfn) -> String {
        let i = self.0.iter().position(|p| *p == slab).unwrap_or_else(|| {
            self.0.push(slab);
            self.0.len() - 1
        });
        char::from(b'A' + i as u8).to_string()
    }
    /// `A.3`: object 3 of page A.
    fn object(&mut self, lab: &mut Lab<'_>, x: Addr) -> String {
        let at = lab.slqb.placement(lab.cache, x);
        format!("{}.{}", self.slab(at.slab), at.index)
    }
    /// Names, or `-` for none.
    fn list(&mut self, lab: &mut Lab<'_>, objects: &[Addr]) -> String {
        let names: Vec<String> = objects.iter().map(|x| self.object(lab, *x)).collect();
        if names.is_empty() { "-".into() } else { names.join(" ") }
    }
    /// Every column of the step tables, of all lists.
    fn columns(&mut self, lab: &mut Lab<'_>) -> Row {
        let mut row = Row::new();
        let pages = lab.slqb.pages();
        let end = Addr(pages.frames() * 4096);
        let cache = &mut lab.slqb.caches[lab.cache.0 as usize];
        let seen = cache.look();
        let rlists: Vec<(Chain, Option<ListId>)> = cache.cpus.iter_mut().map(|(_, s)| (s.rlist, s.rlist_to)).collect();
        let links = Links { arena: pages.arena(), offset: cache.geometry.offset };
        for list in &seen {
            let lifo = self.list(lab, &list.lifo.walk(links, end));
            row.insert(format!("{} LIFO", list.name), lifo);
            let check = if list.check == 1 { " **chk**" } else { "" };
            let remote = self.list(lab, &list.remote.walk(links, end)) + check;
            row.insert(format!("{} remote_free", list.name), remote);
            let partial: Vec<String> = list.partial.iter().map(|p| self.slab(*p)).collect();
            let partial = if partial.is_empty() { "-".into() } else { partial.join(" ") };
            row.insert(format!("{} partial", list.name), partial);
        }
        for (cpu, (rlist, to)) in rlists.into_iter().enumerate() {
            let objects = self.list(lab, &rlist.walk(links, end));
            let to = to.map_or(String::new(), |l| format!("→{}", seen[l.0 as usize].name));
            row.insert(format!("cpu{cpu} rlist"), objects + &to);
        }
        let cache = &lab.slqb.caches[lab.cache.0 as usize];
        let live = self.0.clone().into_iter().filter(|p| cache.owns(*p));
        let inuse: Vec<String> =
            live.map(|p| format!("{}{}", self.slab(p), node::unpack(pages.peek(p, Field::Counters)).inuse)).collect();
        row.insert("page inuse".into(), inuse.join(" "));
        row
    }
}

/// Replays the steps of a table (4 objects per slab, freebatch 2, hiwater 4) and compares every cell, then the counters
/// of every list, the pages and the locks.
fn replay(shape: Shape, table: &str, statistics: &str) {
    let mut letters = Letters::default();
    let (pages, locks) = lab(shape, config(&[("freebatch", 2), ("hiwater", 4)]), plain(1024), |lab| {
        let mut named: BTreeMap<String, Addr> = BTreeMap::new();
        for row in rows(table) {
            let step = &row["step"];
            let (todo, result) = step.split_once(" → ").map_or((step.as_str(), None), |(t, r)| (t, Some(r)));
            let mut words: Vec<&str> = todo.split(' ').collect();
            let cpu = words[0].strip_prefix("cpu").map_or(0, |n| n.parse().unwrap());
            if words[0].starts_with("cpu") {
                words.remove(0);
            }
            match words[..] {
                ["alloc", ref rest @ ..] => {
                    let count = rest.last().and_then(|w| w.strip_prefix('×')).map_or(1, |n| n.parse().unwrap());
                    let node = (rest.first() == Some(&"on")).then(|| rest[2].parse().unwrap());
                    let objects = lab.alloc_on(cpu, count, node);
                    let names: Vec<String> = objects.iter().map(|x| letters.object(lab, *x)).collect();
                    result.iter().for_each(|r| assert_eq!(names.join(" "), *r, "{step}"));
                    named.extend(names.into_iter().zip(objects));
                }
                ["free", name] => lab.free(cpu, &[named[name]]),
                ["trim", target] => lab.trim(target[3..].parse().unwrap()),
                _ => panic!("unknown step {step:?}"),
            }
            let found = letters.columns(lab);
            for (column, cell) in row.iter().filter(|(c, _)| *c != "step") {
                assert_eq!(found.get(column), Some(cell), "after {step:?}: {column}");
            }
            lab.verify();
        }
        let state = lab.slqb.state(lab.cache);
        for list in lab.slqb.caches[lab.cache.0 as usize].look() {
            let found: Vec<String> = STATS
                .iter()
                .filter(|s| list.counters.get(**s) > 0)
                .map(|s| format!("{} {}", s.name().to_uppercase(), list.counters.get(*s)))
                .collect();
            assert_eq!(sorted(found), counts_of(statistics, &list.name), "{}", list.name);
        }
        format!("Pages obtained {}, returned {}", state["pages_alloced"], state["pages_freed"])
    });
    assert!(statistics.contains(&pages), "{pages}");
    let taken = statistics.split("Locks taken: ").nth(1).unwrap().trim_end_matches('.');
    let mut expected = BTreeMap::from([("page_lock", 0), ("remote_free.lock", 0), ("list_lock", 0)]);
    for (name, n) in taken.split(", ").map(|l| l.rsplit_once(' ').unwrap()) {
        let class = if name.starts_with("remote_lock") { "remote_free.lock" } else { name.split('(').next().unwrap() };
        *expected.get_mut(class).unwrap() += n.parse::<u64>().unwrap();
    }
    assert_eq!(locks, expected);
}

/// The counters of a list in a statistics line, those not named being 0.
fn counts_of(statistics: &str, list: &str) -> Vec<String> {
    let of_list = statistics.split(&format!("`{list}`: ")).nth(1).map_or("", |s| s.split(['`', '.']).next().unwrap());
    sorted(of_list.split([',', ';']).map(|c| c.trim().to_string()).filter(|c| !c.is_empty()).collect())
}
fn sorted(mut list: Vec<String>) -> Vec<String> {
    list.sort();
    list
}

#[test]
fn one_cpu_flushes_the_most_recently_freed_end_in_batches() {
    replay(ONE, ONE_CPU, ONE_CPU_STATISTICS);
}

#[test]
fn objects_freed_on_another_cpu_of_the_node_come_home_in_batches() {
    replay(PAIR, TWO_CPUS, TWO_CPUS_STATISTICS);
}

#[test]
fn an_owner_that_does_not_keep_up_has_its_objects_freed_into_its_pages() {
    replay(TWO_NODES, SYNCHRONOUS, SYNCHRONOUS_STATISTICS);
}

#[test]
fn a_node_list_owns_what_other_nodes_cpus_asked_of_it() {
    replay(TWO_NODES, NODE_LIST, NODE_LIST_STATISTICS);
}

#[test]
fn a_burst_of_a_producer_fills_the_consumer_before_it_comes_home() {
    for row in rows(BURST) {
        let n = |column| number(&row, column);
        let many = n("N") as usize;
        // Locks are counted up to the consumer's frees, so the producer allocates again in a second run.
        let run = |again: bool| {
            lab(PAIR, config(&[]), plain(n("size")), |lab| {
                let objects = lab.alloc(0, many);
                assert_eq!(lab.slqb.state(lab.cache)["nr_slabs"], n("pages for N"));
                lab.free(1, &objects);
                let state = lab.slqb.state(lab.cache);
                assert_eq!(state["stat_cpu"][1][5], n("LIFO flushes"));
                assert_eq!(state["stat"]["flush_slab_free"], n("pages returned"));
                assert_eq!(state["cpu"][1]["freelist"], n("left on consumer LIFO"));
                assert_eq!(state["cpu"][0]["remote_free"], n("left in producer remote_free"));
                let made = lab.stat(Stat::AllocSlabNew);
                if again {
                    lab.alloc(0, many);
                    assert_eq!(lab.stat(Stat::AllocSlabNew) - made, n("new pages when producer re-allocates N"));
                }
                lab.stat(Stat::FlushRfreeList)
            })
        };
        let (sent, locks) = run(false);
        let splices = locks["remote_free.lock"];
        assert_eq!((splices, sent - splices), (n("remote splices"), n("sync flushes")), "{row:?}");
        run(true);
    }
}

#[test]
fn a_steady_stream_costs_two_locks_a_batch() {
    for row in rows(STEADY) {
        let n = |column| number(&row, column);
        let shape = if row["topology"] == "two nodes" { TWO_NODES } else { PAIR };
        let g = Geometry::of(&plain(n("size")), &config(&[]), &X86).unwrap();
        let measured = 100 * g.freebatch;
        let (_, locks) = lab(shape, config(&[]), plain(n("size")), |lab| {
            warm_and_measure(lab, 40 * g.hiwater, measured);
            assert_eq!(lab.slqb.state(lab.cache)["nr_slabs"], n("slabs in steady state"));
            for (stat, column) in [
                (Stat::FlushRfreeList, "splices"),
                (Stat::ClaimRemoteList, "claims"),
                (Stat::FlushFreeList, "LIFO flushes"),
                (Stat::AllocSlabNew, "new pages"),
            ] {
                assert_eq!(lab.stat(stat), n(column), "{column} of {row:?}");
            }
        });
        assert_eq!(locks["page_lock"], n("page_lock"));
        let per_object = locks.values().sum::<u64>() as f64 / measured as f64;
        // The table cuts off after six digits.
        assert_eq!(format!("{:.6}", (per_object * 1e6).floor() / 1e6), row["lock operations per object"], "{row:?}");
    }
}

/// Rounds of "cpu0 allocates one, cpu1 frees it", with every count begun again after the warm-up.
fn warm_and_measure(lab: &Lab<'_>, warm: u64, measured: u64) {
    lab.on(0, |cpu| {
        for i in 0..warm + measured {
            if i == warm {
                lab.slqb.pages().machine().reset_report(cpu);
                lab.slqb.reset_counters(cpu);
                cpu.call_on(CpuId(1), &|c| lab.slqb.reset_counters(c));
            }
            let x = lab.slqb.alloc(cpu, lab.cache, Request::default()).unwrap().addr();
            cpu.call_on(CpuId(1), &|c| lab.slqb.free(c, lab.cache, Object::at(x)));
        }
    });
}

#[test]
fn an_idle_lifo_empties_by_one_batch_a_trim() {
    for row in rows(REVERSE) {
        let n = |column| number(&row, column);
        let many = n("N") as usize;
        let (_, locks) = lab(ONE, config(&[]), plain(n("size")), |lab| {
            lab.alloc(0, many);
        });
        assert_eq!(locks["page_lock"], n("page_lock while allocating"), "{row:?}");
        lab(ONE, config(&[]), plain(n("size")), |lab| {
            let mut objects = lab.alloc(0, many);
            assert_eq!(lab.slqb.state(lab.cache)["nr_slabs"], n("pages"));
            objects.reverse();
            lab.free(0, &objects);
            let state = lab.slqb.state(lab.cache);
            assert_eq!(state["stat"]["flush_free_list"], n("LIFO flushes while freeing"));
            assert_eq!(state["pages_freed"], n("pages returned"));
            assert_eq!(state["cpu"][0]["freelist"], n("LIFO left"));
            assert_eq!(
                (&state["nr_slabs"], &state["nr_partial"]),
                (&n("slabs left").into(), &n("partial left").into())
            );
            let trims = row["(LIFO, slabs) after each trim"].trim_matches(['(', ')']).split(") (");
            for left in trims {
                lab.trim(0);
                let state = lab.slqb.state(lab.cache);
                assert_eq!(format!("{}, {}", state["cpu"][0]["freelist"], state["nr_slabs"]), left, "{row:?}");
            }
        });
    }
}

#[test]
fn remote_frees_turn_synchronous_above_half_of_hiwater() {
    let run = |until: usize, check: &dyn Fn(&mut Lab<'_>)| {
        lab(TWO_NODES, config(&[]), plain(4096), |lab| {
            let objects = lab.alloc(0, 1000);
            lab.free(1, &objects[..until]);
            check(lab);
            lab.stat(Stat::FlushRfreeList)
        })
    };
    for row in rows(THRESHOLD) {
        let n = |column| number(&row, column);
        let (sent, locks) = run(n("free number") as usize, &|lab| {
            let state = lab.slqb.state(lab.cache);
            assert_eq!(state["cpu"][0]["remote_free"], n("remote_free length after"), "{row:?}");
            assert_eq!(state["cpu"][0]["remote_free_check"], n("check"));
            assert_eq!(state["pages_freed"], n("pages returned"));
        });
        let splices = locks["remote_free.lock"];
        assert_eq!((splices, sent - splices), (n("splices so far"), n("synchronous flushes so far")), "{row:?}");
    }
    run(1000, &|lab| assert_eq!(lab.slqb.state(lab.cache)["cpu"][1]["rlist"], 40));
}

/// Checks the bound of queued memory against the table.
pub(super) fn queued_memory() {
    for row in rows(QUEUED) {
        let n = |column| number(&row, column);
        let g = Geometry::of(&plain(n("size")), &config(&[]), &X86).unwrap();
        let objects = g.queued_bound();
        assert_eq!((g.freebatch, g.hiwater, objects), (n("freebatch"), n("hiwater"), n("objects per CPU")));
        let bytes = (objects * g.size) as f64;
        assert_eq!(format!("{:.2}", bytes / 1024.0), row["KiB per CPU"]);
        for cpus in [8, 16, 64] {
            let mib = bytes * f64::from(cpus) / 1048576.0;
            assert_eq!(format!("{mib:.2}"), row[&format!("MiB, {cpus} CPUs")], "{row:?}");
        }
    }
}

/// Checks the memory of structures against the table.
pub(super) fn structure_memory() {
    for row in rows(STRUCTURES) {
        let n = |column| number(&row, column);
        let total = structure_bytes(n("CPUs"), n("nodes"));
        assert_eq!(total, n("total B per cache"));
        assert_eq!(total, n("per-CPU structs B") + n("per-node structs B") + n("pointer arrays B"));
        assert_eq!(format!("{:.1}", total as f64 * 100.0 / 1024.0), row["100 caches KiB"]);
    }
}

/// §19.1.
const GEOMETRY: &str = r"
| size | order | slab bytes | objects | waste B | waste % | freebatch | hiwater | hiwater bytes | colours |
|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
| 8 | 0 | 4096 | 512 | 0 | 0.00 | 2048 | 8192 | 65536 | 1 |
| 16 | 0 | 4096 | 256 | 0 | 0.00 | 1024 | 4096 | 65536 | 1 |
| 24 | 0 | 4096 | 170 | 16 | 0.39 | 682 | 2728 | 65472 | 1 |
| 32 | 0 | 4096 | 128 | 0 | 0.00 | 512 | 2048 | 65536 | 1 |
| 40 | 0 | 4096 | 102 | 16 | 0.39 | 409 | 1636 | 65440 | 1 |
| 48 | 0 | 4096 | 85 | 16 | 0.39 | 341 | 1364 | 65472 | 1 |
| 64 | 0 | 4096 | 64 | 0 | 0.00 | 256 | 1024 | 65536 | 1 |
| 72 | 0 | 4096 | 56 | 64 | 1.56 | 256 | 1024 | 73728 | 1 |
| 96 | 0 | 4096 | 42 | 64 | 1.56 | 256 | 1024 | 98304 | 1 |
| 104 | 0 | 4096 | 39 | 40 | 0.98 | 256 | 1024 | 106496 | 1 |
| 128 | 0 | 4096 | 32 | 0 | 0.00 | 256 | 1024 | 131072 | 1 |
| 136 | 0 | 4096 | 30 | 16 | 0.39 | 256 | 1024 | 139264 | 1 |
| 160 | 0 | 4096 | 25 | 96 | 2.34 | 256 | 1024 | 163840 | 2 |
| 192 | 0 | 4096 | 21 | 64 | 1.56 | 256 | 1024 | 196608 | 1 |
| 208 | 0 | 4096 | 19 | 144 | 3.52 | 256 | 1024 | 212992 | 3 |
| 256 | 0 | 4096 | 16 | 0 | 0.00 | 256 | 1024 | 262144 | 1 |
| 320 | 0 | 4096 | 12 | 256 | 6.25 | 256 | 1024 | 327680 | 4 |
| 384 | 0 | 4096 | 10 | 256 | 6.25 | 256 | 1024 | 393216 | 4 |
| 512 | 0 | 4096 | 8 | 0 | 0.00 | 256 | 1024 | 524288 | 1 |
| 640 | 0 | 4096 | 6 | 256 | 6.25 | 256 | 1024 | 655360 | 4 |
| 704 | 0 | 4096 | 5 | 576 | 14.06 | 256 | 1024 | 720896 | 9 |
| 768 | 0 | 4096 | 5 | 256 | 6.25 | 256 | 1024 | 786432 | 4 |
| 1000 | 0 | 4096 | 4 | 96 | 2.34 | 256 | 1024 | 1024000 | 2 |
| 1024 | 0 | 4096 | 4 | 0 | 0.00 | 256 | 1024 | 1048576 | 1 |
| 1368 | 1 | 8192 | 5 | 1352 | 16.50 | 191 | 764 | 1045152 | 22 |
| 1400 | 1 | 8192 | 5 | 1192 | 14.55 | 187 | 748 | 1047200 | 19 |
| 1536 | 0 | 4096 | 2 | 1024 | 25.00 | 170 | 680 | 1044480 | 16 |
| 2048 | 0 | 4096 | 2 | 0 | 0.00 | 128 | 512 | 1048576 | 1 |
| 2056 | 1 | 8192 | 3 | 2024 | 24.71 | 127 | 508 | 1044448 | 32 |
| 2736 | 0 | 4096 | 1 | 1360 | 33.20 | 95 | 380 | 1039680 | 22 |
| 3000 | 0 | 4096 | 1 | 1096 | 26.76 | 87 | 348 | 1044000 | 18 |
| 4096 | 0 | 4096 | 1 | 0 | 0.00 | 64 | 256 | 1048576 | 1 |
| 4104 | 1 | 8192 | 1 | 4088 | 49.90 | 63 | 252 | 1034208 | 64 |
| 5000 | 1 | 8192 | 1 | 3192 | 38.96 | 52 | 208 | 1040000 | 50 |
| 6144 | 1 | 8192 | 1 | 2048 | 25.00 | 42 | 168 | 1032192 | 32 |
| 8192 | 1 | 8192 | 1 | 0 | 0.00 | 32 | 128 | 1048576 | 1 |
| 12288 | 2 | 16384 | 1 | 4096 | 25.00 | 21 | 84 | 1032192 | 64 |
| 16384 | 2 | 16384 | 1 | 0 | 0.00 | 16 | 64 | 1048576 | 1 |
| 65536 | 4 | 65536 | 1 | 0 | 0.00 | 4 | 16 | 1048576 | 1 |
| 131072 | 5 | 131072 | 1 | 0 | 0.00 | 2 | 8 | 1048576 | 1 |
| 2097152 | 9 | 2097152 | 1 | 0 | 0.00 | 1 | 4 | 8388608 | 1 |
";

/// §19.2.
const BOOT_PARAMETERS: &str = r"
| size | min_order | min_objects | order | objects | waste | freebatch | hiwater |
|--:|--:|--:|--:|--:|--:|--:|--:|
| 104 | 1 | 1 | 1 | 78 | 80 | 256 | 1024 |
| 192 | 0 | 32 | 1 | 42 | 128 | 256 | 1024 |
| 192 | 0 | 64 | 2 | 85 | 64 | 256 | 1024 |
| 1400 | 0 | 4 | 1 | 5 | 1192 | 187 | 748 |
| 4096 | 0 | 4 | 2 | 4 | 0 | 64 | 256 |
| 256 | 3 | 1 | 3 | 128 | 0 | 256 | 1024 |
| 2048 | 2 | 1 | 2 | 8 | 0 | 128 | 512 |
| 8192 | 0 | 4 | 3 | 4 | 0 | 32 | 128 |
";

/// §19.3.
const LAYOUT: &str = r"
| objsize | attributes | align | inuse | free-pointer offset | size | order | objects | waste |
|--:|---|--:|--:|--:|--:|--:|--:|--:|
| 104 | none | 8 | 104 | 0 | 104 | 0 | 39 | 40 |
| 104 | ctor | 8 | 104 | 104 | 112 | 0 | 36 | 64 |
| 104 | RCU + HWCACHE_ALIGN | 64 | 104 | 104 | 128 | 0 | 32 | 0 |
| 104 | poison | 8 | 104 | 104 | 112 | 0 | 36 | 64 |
| 104 | red zone | 8 | 112 | 0 | 120 | 0 | 34 | 16 |
| 104 | store user | 8 | 104 | 0 | 152 | 0 | 26 | 144 |
| 104 | poison + red zone + user | 8 | 112 | 112 | 176 | 0 | 23 | 48 |
| 100 | red zone | 8 | 104 | 0 | 112 | 0 | 36 | 64 |
| 192 | HWCACHE_ALIGN | 64 | 192 | 0 | 192 | 0 | 21 | 64 |
| 192 | HWCACHE_ALIGN + ctor | 64 | 192 | 192 | 256 | 0 | 16 | 0 |
| 192 | poison + red zone + user | 8 | 200 | 200 | 264 | 0 | 15 | 136 |
| 20 | HWCACHE_ALIGN | 32 | 24 | 0 | 32 | 0 | 128 | 0 |
| 33 | HWCACHE_ALIGN | 64 | 40 | 0 | 64 | 0 | 64 | 0 |
| 8 | HWCACHE_ALIGN | 8 | 8 | 0 | 8 | 0 | 512 | 0 |
| 64 | HWCACHE_ALIGN + RCU | 64 | 64 | 64 | 128 | 0 | 32 | 0 |
| 12 | align=32 | 32 | 16 | 0 | 32 | 0 | 128 | 0 |
| 4096 | ctor | 8 | 4096 | 4096 | 4104 | 1 | 1 | 4088 |
| 4096 | poison + red zone + user | 8 | 4104 | 4104 | 4168 | 1 | 1 | 4024 |
";

/// §19.4.
const COLOURS: &str = r"
| size | colour_range | successive slab offsets on one CPU |
|--:|--:|---|
| 104 | 40 | 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 |
| 192 | 64 | 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 |
| 208 | 144 | 0, 64, 128, 0, 64, 128, 0, 64, 128, 0, 64, 128 |
| 320 | 256 | 0, 64, 128, 192, 0, 64, 128, 192, 0, 64, 128, 192 |
| 640 | 256 | 0, 64, 128, 192, 0, 64, 128, 192, 0, 64, 128, 192 |
| 704 | 576 | 0, 64, 128, 192, 256, 320, 384, 448, 512, 0, 64, 128 |
| 1000 | 96 | 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64 |
| 1400 | 1192 | 0, 64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 704 |
";

/// §19.5.
const ONE_CPU: &str = r"
| step | cpu0 LIFO | cpu0 remote_free | cpu0 partial | page inuse |
|---|---|---|---|---|
| alloc ×6 → A.0 A.1 A.2 A.3 B.0 B.1 | - | - | B | A4 B2 |
| free A.0 | A.0 | - | B | A4 B2 |
| free A.1 | A.1 A.0 | - | B | A4 B2 |
| free A.2 | A.2 A.1 A.0 | - | B | A4 B2 |
| free A.3 | A.3 A.2 A.1 A.0 | - | B | A4 B2 |
| free B.0 | A.2 A.1 A.0 | - | A B | A3 B1 |
| free B.1 | B.1 A.2 A.1 A.0 | - | A B | A3 B1 |
| alloc ×3 → B.1 A.2 A.1 | A.0 | - | A B | A3 B1 |
";
/// §19.5, below the table.
const ONE_CPU_STATISTICS: &str = "Statistics: `cpu0`: ALLOC 9, ALLOC_SLAB_FILL 6, ALLOC_SLAB_NEW 2, FLUSH_FREE_LIST 1, FLUSH_FREE_LIST_OBJECTS 2, FLUSH_SLAB_PARTIAL 1, FREE 6. Pages obtained 2, returned 0. Locks taken: page_lock 7.";

/// §19.6.
const TWO_CPUS: &str = r"
| step | cpu0 LIFO | cpu0 remote_free | cpu0 partial | cpu0 rlist | cpu1 LIFO | cpu1 remote_free | cpu1 partial | cpu1 rlist | page inuse |
|---|---|---|---|---|---|---|---|---|---|
| cpu0 alloc ×8 | - | - | - | - | - | - | - | - | A4 B4 |
| cpu1 free A.0 | - | - | - | - | A.0 | - | - | - | A4 B4 |
| cpu1 free A.1 | - | - | - | - | A.1 A.0 | - | - | - | A4 B4 |
| cpu1 free A.2 | - | - | - | - | A.2 A.1 A.0 | - | - | - | A4 B4 |
| cpu1 free A.3 | - | - | - | - | A.3 A.2 A.1 A.0 | - | - | - | A4 B4 |
| cpu1 free B.0 | - | B.0 A.3 **chk** | - | - | A.2 A.1 A.0 | - | - | -→cpu0 | A4 B4 |
| cpu1 free B.1 | - | B.0 A.3 **chk** | - | - | B.1 A.2 A.1 A.0 | - | - | -→cpu0 | A4 B4 |
| cpu1 free B.2 | - | B.0 A.3 B.2 B.1 **chk** | - | - | A.2 A.1 A.0 | - | - | -→cpu0 | A4 B4 |
| cpu1 free B.3 | - | B.0 A.3 B.2 B.1 **chk** | - | - | B.3 A.2 A.1 A.0 | - | - | -→cpu0 | A4 B4 |
| cpu0 alloc → B.0 | A.3 B.2 B.1 | - | - | - | B.3 A.2 A.1 A.0 | - | - | -→cpu0 | A4 B4 |
| cpu0 alloc → A.3 | B.2 B.1 | - | - | - | B.3 A.2 A.1 A.0 | - | - | -→cpu0 | A4 B4 |
| trim cpu1 | B.2 B.1 | B.3 A.2 **chk** | - | - | A.1 A.0 | - | - | -→cpu0 | A4 B4 |
| trim cpu0 | B.3 A.2 | - | B | - | A.1 A.0 | - | - | -→cpu0 | A4 B2 |
| trim cpu1 | B.3 A.2 | A.1 A.0 **chk** | B | - | - | - | - | -→cpu0 | A4 B2 |
| trim cpu0 | A.1 A.0 | - | A B | - | - | - | - | -→cpu0 | A3 B1 |
| trim cpu1 | A.1 A.0 | - | A B | - | - | - | - | -→cpu0 | A3 B1 |
| trim cpu0 | - | - | A B | - | - | - | - | -→cpu0 | A1 B1 |
";
/// §19.6, below the table.
const TWO_CPUS_STATISTICS: &str = "Statistics: `cpu0`: ALLOC 10, ALLOC_SLAB_FILL 8, ALLOC_SLAB_NEW 2, CLAIM_REMOTE_LIST 3, CLAIM_REMOTE_LIST_OBJECTS 8, FLUSH_FREE_LIST 3, FLUSH_FREE_LIST_OBJECTS 6, FLUSH_SLAB_PARTIAL 2; `cpu1`: FLUSH_FREE_LIST 4, FLUSH_FREE_LIST_OBJECTS 8, FLUSH_FREE_LIST_REMOTE 8, FLUSH_RFREE_LIST 4, FLUSH_RFREE_LIST_OBJECTS 8, FREE 8. Pages obtained 2, returned 0. Locks taken: page_lock 11, remote_lock(flush) 4, remote_lock(claim) 3.";

/// §19.7.
const SYNCHRONOUS: &str = r"
| step | cpu0 LIFO | cpu0 remote_free | cpu0 partial | cpu0 rlist | cpu1 LIFO | cpu1 remote_free | cpu1 partial | cpu1 rlist | page inuse |
|---|---|---|---|---|---|---|---|---|---|
| cpu0 alloc ×12 | - | - | - | - | - | - | - | - | A4 B4 C4 |
| cpu1 free A.0 | - | - | - | - | - | - | - | A.0→cpu0 | A4 B4 C4 |
| cpu1 free A.1 | - | A.0 A.1 **chk** | - | - | - | - | - | -→cpu0 | A4 B4 C4 |
| cpu1 free A.2 | - | A.0 A.1 **chk** | - | - | - | - | - | A.2→cpu0 | A4 B4 C4 |
| cpu1 free A.3 | - | A.0 A.1 A.2 A.3 **chk** | - | - | - | - | - | -→cpu0 | A4 B4 C4 |
| cpu1 free B.0 | - | A.0 A.1 A.2 A.3 **chk** | - | - | - | - | - | B.0→cpu0 | A4 B4 C4 |
| cpu1 free B.1 | - | A.0 A.1 A.2 A.3 **chk** | B | - | - | - | - | -→cpu0 | A4 B2 C4 |
| cpu1 free B.2 | - | A.0 A.1 A.2 A.3 **chk** | B | - | - | - | - | B.2→cpu0 | A4 B2 C4 |
| cpu1 free B.3 | - | A.0 A.1 A.2 A.3 **chk** | - | - | - | - | - | -→cpu0 | A4 C4 |
| cpu1 free C.0 | - | A.0 A.1 A.2 A.3 **chk** | - | - | - | - | - | C.0→cpu0 | A4 C4 |
| cpu1 free C.1 | - | A.0 A.1 A.2 A.3 **chk** | C | - | - | - | - | -→cpu0 | A4 C2 |
| cpu1 free C.2 | - | A.0 A.1 A.2 A.3 **chk** | C | - | - | - | - | C.2→cpu0 | A4 C2 |
| cpu1 free C.3 | - | A.0 A.1 A.2 A.3 **chk** | - | - | - | - | - | -→cpu0 | A4 |
| cpu0 alloc → A.0 | A.1 A.2 A.3 | - | - | - | - | - | - | -→cpu0 | A4 |
";
/// §19.7, below the table.
const SYNCHRONOUS_STATISTICS: &str = "Statistics: `cpu0`: ALLOC 13, ALLOC_SLAB_FILL 12, ALLOC_SLAB_NEW 3, CLAIM_REMOTE_LIST 1, CLAIM_REMOTE_LIST_OBJECTS 4, FLUSH_SLAB_FREE 2, FLUSH_SLAB_PARTIAL 2; `cpu1`: FLUSH_RFREE_LIST 6, FLUSH_RFREE_LIST_OBJECTS 12, FREE 12, FREE_REMOTE 12. Pages obtained 3, returned 2. Locks taken: page_lock 12, remote_lock(flush) 2, page_lock(sync) 4, remote_lock(claim) 1.";

/// §19.8.
const NODE_LIST: &str = r"
| step | cpu0 LIFO | cpu0 remote_free | cpu0 partial | cpu0 rlist | cpu1 LIFO | cpu1 remote_free | cpu1 partial | cpu1 rlist | node0 LIFO | node0 remote_free | node0 partial | page inuse |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
| cpu1 alloc on node 0 ×3 → A.0 A.1 A.2 | - | - | - | - | - | - | - | - | - | - | A | A3 |
| cpu1 free A.0 | - | - | - | - | - | - | - | A.0→node0 | - | - | A | A3 |
| cpu1 free A.1 | - | - | - | - | - | - | - | -→node0 | - | A.0 A.1 **chk** | A | A3 |
| cpu1 alloc on node 0 → A.0 | - | - | - | - | - | - | - | -→node0 | A.1 | - | A | A3 |
| cpu0 free A.2 | A.2 | - | - | - | - | - | - | -→node0 | A.1 | - | A | A3 |
| cpu0 alloc → A.2 | - | - | - | - | - | - | - | -→node0 | A.1 | - | A | A3 |
";
/// §19.8, below the table.
const NODE_LIST_STATISTICS: &str = "Statistics: `cpu0`: ALLOC 1, FREE 1; `cpu1`: FLUSH_RFREE_LIST 1, FLUSH_RFREE_LIST_OBJECTS 2, FREE 2, FREE_REMOTE 2; `node0`: ALLOC 4, ALLOC_SLAB_FILL 3, ALLOC_SLAB_NEW 1, CLAIM_REMOTE_LIST 1, CLAIM_REMOTE_LIST_OBJECTS 2. Pages obtained 1, returned 0. Locks taken: list_lock 5, page_lock 3, remote_lock(flush) 1, remote_lock(claim) 1.";

/// §19.12.
const BURST: &str = r"
| size | N | pages for N | LIFO flushes | remote splices | sync flushes | pages returned | left on consumer LIFO | left in producer remote_free | new pages when producer re-allocates N |
|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
| 64 | 3000 | 47 | 8 | 3 | 5 | 19 | 952 | 768 | 34 |
| 104 | 3000 | 77 | 8 | 3 | 5 | 32 | 952 | 768 | 57 |
| 192 | 3000 | 143 | 8 | 3 | 5 | 60 | 952 | 768 | 106 |
| 256 | 3000 | 188 | 8 | 3 | 5 | 79 | 952 | 768 | 138 |
| 1024 | 3000 | 750 | 8 | 3 | 5 | 319 | 952 | 768 | 557 |
| 4096 | 1000 | 1000 | 12 | 3 | 9 | 576 | 232 | 192 | 808 |
| 8192 | 300 | 300 | 6 | 3 | 3 | 96 | 108 | 96 | 204 |
";

/// §19.13.
const STEADY: &str = r"
| size | topology | slabs in steady state | splices | claims | LIFO flushes | page_lock | new pages | lock operations per object |
|--:|---|--:|--:|--:|--:|--:|--:|--:|
| 64 | same node | 17 | 100 | 100 | 100 | 0 | 0 | 0.007812 |
| 64 | two nodes | 4 | 100 | 100 | 0 | 0 | 0 | 0.007812 |
| 256 | same node | 65 | 100 | 100 | 100 | 0 | 0 | 0.007812 |
| 256 | two nodes | 16 | 100 | 100 | 0 | 0 | 0 | 0.007812 |
| 1024 | same node | 257 | 100 | 100 | 100 | 0 | 0 | 0.007812 |
| 1024 | two nodes | 64 | 100 | 100 | 0 | 0 | 0 | 0.007812 |
| 4096 | same node | 257 | 100 | 100 | 100 | 0 | 0 | 0.031250 |
| 4096 | two nodes | 64 | 100 | 100 | 0 | 0 | 0 | 0.031250 |
| 8192 | same node | 129 | 100 | 100 | 100 | 0 | 0 | 0.062500 |
| 8192 | two nodes | 32 | 100 | 100 | 0 | 0 | 0 | 0.062500 |
";

/// §19.14.
const REVERSE: &str = r"
| size | N | pages | page_lock while allocating | LIFO flushes while freeing | pages returned | LIFO left | slabs left | partial left | (LIFO, slabs) after each trim |
|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|
| 64 | 2000 | 32 | 2000 | 4 | 15 | 976 | 17 | 3 | (720, 12) (464, 8) (208, 4) (0, 0) |
| 256 | 5000 | 313 | 5000 | 16 | 255 | 904 | 58 | 3 | (648, 41) (392, 25) (136, 9) (0, 0) |
| 4096 | 300 | 300 | 300 | 1 | 64 | 236 | 236 | 0 | (172, 172) (108, 108) (44, 44) (0, 0) |
| 4096 | 1000 | 1000 | 1000 | 12 | 768 | 232 | 232 | 0 | (168, 168) (104, 104) (40, 40) (0, 0) |
| 192 | 3000 | 143 | 3000 | 8 | 97 | 952 | 46 | 3 | (696, 34) (440, 22) (184, 9) (0, 0) |
| 104 | 3000 | 77 | 3000 | 8 | 52 | 952 | 25 | 3 | (696, 18) (440, 12) (184, 5) (0, 0) |
";

/// §19.15.
const THRESHOLD: &str = r"
| free number | remote_free length after | check | splices so far | synchronous flushes so far | pages returned |
|--:|--:|--:|--:|--:|--:|
| 64 | 64 | 1 | 1 | 0 | 0 |
| 128 | 128 | 1 | 2 | 0 | 0 |
| 192 | 192 | 1 | 3 | 0 | 0 |
| 256 | 192 | 1 | 3 | 1 | 64 |
| 320 | 192 | 1 | 3 | 2 | 128 |
| 384 | 192 | 1 | 3 | 3 | 192 |
| 960 | 192 | 1 | 3 | 12 | 768 |
";

/// §19.16.
const QUEUED: &str = r"
| size | freebatch | hiwater | objects per CPU | KiB per CPU | MiB, 8 CPUs | MiB, 16 CPUs | MiB, 64 CPUs |
|--:|--:|--:|--:|--:|--:|--:|--:|
| 64 | 256 | 1024 | 2047 | 127.94 | 1.00 | 2.00 | 8.00 |
| 192 | 256 | 1024 | 2047 | 383.81 | 3.00 | 6.00 | 23.99 |
| 256 | 256 | 1024 | 2047 | 511.75 | 4.00 | 8.00 | 31.98 |
| 1024 | 256 | 1024 | 2047 | 2047.00 | 15.99 | 31.98 | 127.94 |
| 4096 | 64 | 256 | 511 | 2044.00 | 15.97 | 31.94 | 127.75 |
| 8192 | 32 | 128 | 255 | 2040.00 | 15.94 | 31.88 | 127.50 |
| 65536 | 4 | 16 | 31 | 1984.00 | 15.50 | 31.00 | 124.00 |
| 2097152 | 1 | 4 | 7 | 14336.00 | 112.00 | 224.00 | 896.00 |
";

/// §19.17.
const STRUCTURES: &str = r"
| CPUs | nodes | per-CPU structs B | per-node structs B | pointer arrays B | total B per cache | 100 caches KiB |
|--:|--:|--:|--:|--:|--:|--:|
| 1 | 1 | 256 | 256 | 16 | 528 | 51.6 |
| 2 | 1 | 512 | 256 | 24 | 792 | 77.3 |
| 8 | 1 | 2048 | 256 | 72 | 2376 | 232.0 |
| 16 | 2 | 4096 | 512 | 144 | 4752 | 464.1 |
| 16 | 4 | 4096 | 1024 | 160 | 5280 | 515.6 |
| 64 | 8 | 16384 | 2048 | 576 | 19008 | 1856.2 |
| 256 | 16 | 65536 | 4096 | 2176 | 71808 | 7012.5 |
| 4096 | 1024 | 1048576 | 262144 | 40960 | 1351680 | 132000.0 |
";
