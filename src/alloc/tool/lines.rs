//! The listing and the activity listing: one line per cache. SLUB's columns are the tool's (slabinfo.md §3); those of SLAB
//! and SLQB are ours.

use std::cmp::Reverse;

use super::{Directory, Form, Kind, Report, percent, scaled};

/// Allocations and frees, and those of them on the fastest path.
struct Activity {
    allocs: u64,
    frees: u64,
    fast_allocs: u64,
    fast_frees: u64,
}

impl Activity {
    fn of(c: &Directory, kind: Kind) -> Activity {
        let n = |name| c.number(name);
        match kind {
            Kind::Slub => Activity {
                allocs: c.sum(&["alloc_fastpath", "alloc_slowpath"]),
                frees: c.sum(&["free_fastpath", "free_slowpath"]),
                fast_allocs: n("alloc_fastpath"),
                fast_frees: n("free_fastpath"),
            },
            // Fast: served by the CPU's own array.
            Kind::Slab => Activity {
                allocs: c.sum(&["allochit", "allocmiss", "nodeallocs"]),
                frees: c.sum(&["freehit", "freemiss", "remotefrees"]),
                fast_allocs: n("allochit"),
                fast_frees: n("freehit"),
            },
            // Fast: no slab was needed, no batch flushed.
            Kind::Slqb => Activity {
                allocs: n("total_alloc"),
                frees: n("total_free"),
                fast_allocs: n("total_alloc").saturating_sub(n("total_alloc_slab_fill")),
                fast_frees: n("total_free").saturating_sub(n("total_flush_free_list") + n("total_free_remote")),
            },
        }
    }
}

/// Caches with slabs by name, or the most active first.
pub(super) fn sorted(report: &Report, by_activity: bool) -> Vec<&Directory> {
    let mut shown: Vec<&Directory> = report.caches.iter().filter(|c| c.number("slabs") > 0).collect();
    let activity = |c: &Directory| {
        let a = Activity::of(c, report.kind);
        if by_activity { a.allocs + a.frees } else { 0 }
    };
    shown.sort_by_key(|c| (Reverse(activity(c)), c.shown().to_lowercase()));
    shown
}

/// The normal line.
pub(super) fn listing(report: &Report, caches: &[&Directory]) -> String {
    let space = if report.kind == Kind::Slub && report.form == Form::New { 15 } else { 8 };
    let (slabs, own) = match report.kind {
        Kind::Slub => ("Slabs/Part/Cpu", String::new()),
        Kind::Slab => ("Slabs/Part/Free", format!(" {:>7} {:>13}", "Queued", "Lim/Bat/Share")),
        Kind::Slqb => ("Slabs/Part", format!(" {:>7} {:>13}", "Queued", "Hiwater/Batch")),
    };
    let width = if report.kind == Kind::Slab { 15 } else { 14 };
    let mut text = format!(
        "{:<21} {:>8} {:>7} {:>space$} {slabs:>width$} {:>4} O %Fr %Ef{own} Flg\n",
        "Name", "Objects", "Objsize", "Space", "O/S"
    );
    for c in caches {
        let n = |name| c.number(name);
        let (all, partial, cpu) = (n("slabs"), n("partial"), n("cpu_slabs"));
        let (slabs, with_free, own) = match report.kind {
            Kind::Slub if report.form == Form::Oldest => (format!("{all}/{partial}/{cpu}"), partial, String::new()),
            Kind::Slub => (format!("{}/{partial}/{cpu}", all as i64 - cpu as i64), partial, String::new()),
            // Empty slabs have a list of their own; both are slabs with free objects.
            Kind::Slab => (
                format!("{all}/{partial}/{}", n("free_slabs")),
                partial + n("free_slabs"),
                format!(
                    " {:>7} {:>13}",
                    n("queued"),
                    format!("{}/{}/{}", n("limit"), n("batchcount"), n("shared_limit"))
                ),
            ),
            Kind::Slqb => (
                format!("{all}/{partial}"),
                partial,
                format!(" {:>7} {:>13}", n("queued"), format!("{}/{}", n("hiwater"), n("freebatch"))),
            ),
        };
        let line = format!(
            "{:<21} {:>8} {:>7} {:>space$} {slabs:>width$} {:>4} {:>1} {:>3} {:>3}{own} {}",
            c.shown(),
            n("objects"),
            n("object_size"),
            scaled(c.space()),
            n("objs_per_slab"),
            n("order"),
            percent(with_free, all, 100),
            percent(c.used(), c.space(), 100),
            c.flags()
        );
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The line of -D. Columns that a release does not count are not there.
pub(super) fn activity(report: &Report, caches: &[&Directory]) -> String {
    let counts = |event: &str| report.events.iter().any(|e| e == event);
    // Name of the column, its width, and the figure in it.
    let own: Vec<(&str, usize, &str)> = match report.kind {
        Kind::Slub => {
            let fallback = [("Fallb", 5, "order_fallback"), ("O", 1, "order")];
            let retries = [("CmpX", 4, "cmpxchg_double_fail"), ("UL", 4, "cmpxchg_double_cpu_fail")];
            let has =
                |on: bool, columns: [(&'static str, usize, &'static str); 2]| columns.into_iter().filter(move |_| on);
            has(counts("order_fallback"), fallback).chain(has(counts("cmpxchg_double_fail"), retries)).collect()
        }
        Kind::Slab => vec![
            ("O", 1, "order"),
            ("Grown", 7, "grown"),
            ("Reaped", 7, "reaped"),
            ("Node", 7, "nodeallocs"),
            ("Remote", 7, "remotefrees"),
            ("Overfl", 7, "alienoverflow"),
        ],
        Kind::Slqb => vec![
            ("O", 1, "order"),
            ("New", 7, "total_alloc_slab_new"),
            ("Flush", 7, "total_flush_free_list"),
            ("Sent", 7, "total_flush_rfree_list"),
            ("Claim", 7, "total_claim_remote_list"),
            ("Remote", 7, "total_free_remote"),
        ],
    };
    let cell = |width: &usize, value: &str| format!(" {value:>width$}");
    let heads: String = own.iter().map(|(name, width, _)| cell(width, name)).collect();
    let mut text = format!("{:<21} {:>8} {:>10} {:>10}   %Fast{heads}\n", "Name", "Objects", "Alloc", "Free");
    for c in caches {
        let a = Activity::of(c, report.kind);
        let cells: String = own.iter().map(|(_, width, name)| cell(width, &c.number(name).to_string())).collect();
        text += &format!(
            "{:<21} {:>8} {:>10} {:>10} {:>3} {:>3}{cells}\n",
            c.shown(),
            c.number("objects"),
            a.allocs,
            a.frees,
            percent(a.fast_allocs, a.allocs, 0),
            percent(a.fast_frees, a.frees, 0),
        );
    }
    text
}
