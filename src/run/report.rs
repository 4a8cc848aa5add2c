//! Gathers what allocator, pages and machine report after a run, as one row and some frames.

use serde_json::{Map, Value, json};

use crate::alloc::tool::{Directory, Report};
use crate::alloc::{CacheInfo, Counters, Shares, SlabAllocator, Stat};
use crate::machine::presets::Machinery;
use crate::machine::{LatencyReport, Machine, Native, Operation, Report as MachineReport, WaitReport};
use crate::page::{self, Pages};
use crate::spec::CacheId;
use crate::units::MAX_ORDER;
use crate::workload::LapSpec;

use super::config::flatten;
use super::exec::Totals;
use super::job::JobSeen;
use super::result::{Column, Frame, Outcome};
use super::{Config, VERSION};

/// Results of one run on their way to an [`Outcome`].
pub(super) struct Gathered {
    summary: Map<String, Value>,
    frames: Vec<Frame>,
    texts: Map<String, Value>,
    tool: Value,
    /// Names of the caches.
    names: Vec<String>,
    checkpoints: Vec<Value>,
    cpus: u64,
    elapsed: f64,
}

/// Event counts at the end of a measurement: per cache and CPU, and of kmallocs that no cache served.
pub(super) struct Counts {
    caches: Vec<Vec<Counters>>,
    uncached: Vec<Counters>,
}

impl Counts {
    pub(super) fn of<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(alloc: &mut A) -> Counts {
        let caches = (0..alloc.cache_count() as u32).map(|id| alloc.counters(CacheId(id))).collect();
        Counts { caches, uncached: alloc.uncached_counters() }
    }
}

impl Gathered {
    pub(super) fn new<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(
        alloc: &mut A,
        counts: &Counts,
        totals: &Totals,
        throughput: f64,
        unit: String,
    ) -> Gathered {
        let ids: Vec<CacheId> = (0..alloc.cache_count() as u32).map(CacheId).collect();
        let infos: Vec<CacheInfo> = ids.iter().map(|id| alloc.info(*id)).collect();
        let mut all = Counters::default();
        counts.caches.iter().flatten().chain(&counts.uncached).for_each(|c| all.merge(c));
        let Shares { alloc_fast, alloc: allocs, free_fast, free } = all.shares();
        let c = &totals.cpu;
        let pct =
            |part: u64, whole: u64| if whole == 0 { Value::Null } else { json!(100.0 * part as f64 / whole as f64) };
        let per_op = |n: u64| if c.ops == 0 { Value::Null } else { json!(n as f64 / c.ops as f64) };
        let mut summary = Map::new();
        let mut put = |key: &str, value: Value| summary.insert(key.to_string(), value);
        put("throughput", json!(throughput));
        put("unit", json!(unit));
        put("elapsed_s", json!(totals.elapsed));
        put("ops", json!(c.ops));
        put("alloc_fast_pct", pct(alloc_fast, allocs));
        put("free_fast_pct", pct(free_fast, free));
        put("free_remote_pct", pct(c.net.remote_frees + c.objects.remote_frees, c.net.frees + c.objects.frees));
        put("slab_pages_peak", json!(c.pages_peak));
        put("slab_pages_end", json!(c.pages_last));
        put("used_kb", json!(c.pages_last * 4 + totals.other_kb));
        put("alloc_failed", json!(c.net.failed + c.objects.failed));
        put("data_packets_per_op", per_op(c.net.data_packets));
        put("acks_per_op", per_op(c.net.acks));
        put("frag_pages_per_op", per_op(c.net.frag_pages));
        put("direct_per_op", per_op(c.net.direct));
        put("bytes_copied_per_op", per_op(c.net.bytes_copied + c.objects.bytes_copied));
        put("switches_per_op", per_op(c.switches));
        put("wakes_local_per_op", per_op(c.net.wakes_local));
        put("wakes_remote_per_op", per_op(c.net.wakes_remote));
        if c.objects.allocs + c.objects.frees > 0 {
            let cpus = alloc.pages().machine().topology().cpus() as f64;
            put("allocs_per_op", per_op(c.objects.allocs));
            put("frees_per_op", per_op(c.objects.frees));
            put("messages_per_op", per_op(c.objects.messages));
            if !totals.laps.is_empty() {
                let (ps, n) = totals.laps.iter().fold((0, 0), |(t, n), (_, ps, ops)| (t + ps, n + ops));
                let cycles = totals.ghz.filter(|_| n > 0).map(|ghz| ps as f64 / n as f64 / 1000.0 * ghz);
                put("cycles_per_op", json!(cycles));
            }
            put("allocs_per_cpu_s", json!(c.objects.allocs as f64 / (totals.elapsed * cpus)));
        }
        put("net_allocs_per_op", per_op(c.net.allocs));
        put("net_frees_per_op", per_op(c.net.frees));
        put("net_messages_per_op", per_op(c.net.messages));
        put("dropped_per_op", per_op(c.net.dropped));
        put("deferred_per_op", per_op(c.net.deferred));
        let mut texts = Map::new();
        if let Some(text) = alloc.slabinfo() {
            texts.insert("slabinfo".into(), json!(text));
        }
        if let Some(text) = alloc.queues_text() {
            texts.insert("queues".into(), json!(text));
        }
        if let Some(text) = alloc.heap_text() {
            texts.insert("heap".into(), json!(text));
        }
        let cpus = alloc.pages().machine().topology().cpus() as u64;
        let named = infos.iter().map(|i| i.name.as_str()).zip(counts.caches.iter().map(Vec::as_slice));
        let stats = stats_frame(named.chain([("(page allocator)", counts.uncached.as_slice())]));
        let left = if totals.as_left.is_empty() { &infos } else { &totals.as_left };
        let tool = alloc.tool();
        let queues = super::table::frame("queues", &alloc.queues_rows());
        let mut frames = vec![caches_frame(left, tool.as_ref()), stats, queues, totals.timeline.frame()];
        if !totals.laps.is_empty() {
            frames.push(laps_frame(&totals.laps, totals.ghz));
        }
        let tool = json!(tool);
        let names = infos.into_iter().map(|i| i.name).collect();
        Gathered { summary, frames, texts, tool, names, checkpoints: Vec::new(), cpus, elapsed: totals.elapsed }
    }

    /// Adds operations and throughput over time.
    pub(super) fn with_series(mut self, series: Frame) -> Gathered {
        self.frames.push(series);
        self
    }

    /// Says that throughput is the time of a whole job, from what was seen of it.
    pub(super) fn with_job(mut self, job: Option<JobSeen>) -> Gathered {
        if let Some(job) = job {
            self.summary.insert("job_ops".into(), json!(job.operations));
            self.summary.insert("scaled_by".into(), json!(job.scaled_by()));
            self.summary.insert("steady".into(), json!(job.is_steady()));
        }
        self
    }

    /// Adds what a script's checkpoints saw.
    pub(super) fn with_checkpoints(self, checkpoints: Vec<Value>) -> Gathered {
        Gathered { checkpoints, ..self }
    }

    /// Adds a frame.
    pub(super) fn with_frame(mut self, frame: Frame) -> Gathered {
        self.frames.push(frame);
        self
    }

    /// Adds the page allocator's counts: per order and asker what was allocated, returned, refused; per order what is free.
    pub(super) fn pages<M: Machine>(&mut self, pages: &mut Pages<'_, M>) {
        let stats = pages.stats();
        let ops = self.summary["ops"].as_u64().unwrap_or(0);
        let per_op = |n: u64| if ops == 0 { Value::Null } else { json!(n as f64 / ops as f64) };
        self.summary.insert("pages_order0_per_op".into(), per_op(stats.allocated[0]));
        self.summary.insert("zone_locks_per_op".into(), per_op(stats.zone_lock));
        self.summary.insert("pages".into(), json!(pages.model().name()));
        let rows = pages.buddyinfo();
        let free: [u64; MAX_ORDER] = std::array::from_fn(|o| rows.iter().map(|node| node[o]).sum());
        let asked = pages.asked();
        let sum = |f: fn(&page::Asked) -> u64| json!(asked.iter().map(|(_, _, a)| f(a)).sum::<u64>());
        self.summary.insert("page_failures".into(), sum(|a| a.failed));
        self.summary.insert("page_fallbacks".into(), sum(|a| a.fallback));
        let row = |order: usize, asker: String, a: page::Asked| {
            json!({
                "order": order, "asker": asker, "allocated": a.allocated, "freed": a.freed, "failed": a.failed,
                "fallback": a.fallback, "reclaim": a.reclaim, "fallback_node": a.fallback_node,
                "held": a.held.max(0), "free_blocks": free[order],
                "unusable_index": page::unusable_index(&free, order) as f64 / 1000.0,
                "fragmentation_index": page::fragmentation_index(&free, order) as f64 / 1000.0,
            })
        };
        let of_order = |order: usize| {
            let by = asked.iter().filter(move |(_, o, _)| *o == order);
            let mut rows: Vec<Value> = by.map(|(asker, _, a)| row(order, asker.name(&self.names), *a)).collect();
            if rows.is_empty() {
                rows.push(row(order, "(nobody)".into(), page::Asked::default()));
            }
            rows
        };
        let rows: Vec<Value> = (0..MAX_ORDER).flat_map(of_order).collect();
        self.frames.push(super::table::frame("pages", &rows));
        let cell = |c: &page::Cell| {
            json!({
                "node": c.node.0, "first": c.first.0, "pages": c.pages, "free": c.free, "listed": c.listed,
                "held": c.held, "lent": c.lent(), "largest": c.largest.map(|o| o.0),
            })
        };
        let cells: Vec<Value> = pages.zone_map().iter().map(cell).collect();
        self.frames.push(super::table::frame("zone_map", &cells));
        let (mut cpu, mut node, mut stat, mut count) = (vec![], vec![], vec![], vec![]);
        for (c, n, stats) in pages.stats_by_place() {
            for (name, value) in stats.named().into_iter().filter(|(_, v)| *v > 0) {
                cpu.push(u64::from(c.0));
                node.push(u64::from(n.0));
                stat.push(name.to_string());
                count.push(value);
            }
        }
        self.frames.push(Frame {
            name: "page_stats",
            columns: vec![
                ("cpu".into(), Column::U64(cpu)),
                ("node".into(), Column::U64(node)),
                ("stat".into(), Column::Str(stat)),
                ("count".into(), Column::U64(count)),
            ],
        });
        self.texts.insert("buddyinfo".into(), json!(pages.buddyinfo_text()));
    }

    /// Adds locks and idle time.
    pub(super) fn machine(&mut self, report: MachineReport) {
        self.waits(&report.waits);
        let cpu_ps = self.cpus as f64 * self.elapsed * 1e12;
        let pct = |ps: u64| if report.simulated { json!(100.0 * ps as f64 / cpu_ps) } else { Value::Null };
        let waited: u64 = report.locks.iter().map(|l| l.wait_ps).sum();
        self.summary.insert("lock_wait_pct".into(), pct(waited));
        self.summary.insert("idle_pct".into(), pct(report.idle_ps));
        self.summary.insert("simulated".into(), json!(report.simulated));
        self.summary.insert("oversubscribed".into(), json!(report.oversubscribed));
        self.summary.insert("inversions".into(), json!(report.inversions));
        self.summary.insert("max_inversion_ns".into(), json!(report.max_inversion_ps as f64 / 1000.0));
        let served = |missed: u64| match report.accesses {
            0 => Value::Null,
            all => json!(100.0 * (all - missed) as f64 / all as f64),
        };
        let [l2, far, memory] = report.beyond_l1;
        self.summary.insert("l1_hit_pct".into(), served(l2 + far + memory));
        self.summary.insert("l2_hit_pct".into(), served(far + memory));
        self.summary.insert("trace".into(), json!(format!("{:016x}", report.trace)));
        let column = |f: &dyn Fn(&crate::machine::LockReport) -> u64| Column::U64(report.locks.iter().map(f).collect());
        self.frames.push(Frame {
            name: "time",
            columns: vec![
                ("part".into(), Column::Str(report.time.iter().map(|(name, _)| name.clone()).collect())),
                ("time_ps".into(), Column::U64(report.time.iter().map(|(_, ps)| *ps).collect())),
                (
                    "share_pct".into(),
                    Column::F64(report.time.iter().map(|(_, ps)| 100.0 * *ps as f64 / cpu_ps).collect()),
                ),
            ],
        });
        let l = &report.latencies;
        let ns = |f: &dyn Fn(&LatencyReport) -> u64| Column::F64(l.iter().map(|r| f(r) as f64 / 1000.0).collect());
        let operation = |r: &LatencyReport| match r.operation {
            Operation::Alloc => "alloc",
            Operation::Free => "free",
        };
        self.frames.push(Frame {
            name: "latency",
            columns: vec![
                ("operation".into(), Column::Str(l.iter().map(|r| operation(r).to_string()).collect())),
                ("path".into(), Column::Str(l.iter().map(|r| r.path.name(r.operation).to_string()).collect())),
                ("count".into(), Column::U64(l.iter().map(|r| r.count).collect())),
                ("mean_ns".into(), ns(&|r| r.mean_ps)),
                ("p50_ns".into(), ns(&|r| r.p50_ps)),
                ("p90_ns".into(), ns(&|r| r.p90_ps)),
                ("p99_ns".into(), ns(&|r| r.p99_ps)),
                ("max_ns".into(), ns(&|r| r.max_ps)),
            ],
        });
        self.frames.push(Frame {
            name: "locks",
            columns: vec![
                ("lock".into(), Column::Str(report.locks.iter().map(|l| l.class.to_string()).collect())),
                ("acquired".into(), column(&|l| l.acquired)),
                ("contended".into(), column(&|l| l.contended)),
                ("wait_ns".into(), Column::F64(report.locks.iter().map(|l| l.wait_ps as f64 / 1000.0).collect())),
            ],
        });
    }

    /// Adds who waited and who was waited for.
    pub(super) fn waits(&mut self, waits: &[WaitReport]) {
        let column = |f: &dyn Fn(&WaitReport) -> u64| Column::U64(waits.iter().map(f).collect());
        self.frames.push(Frame {
            name: "waits",
            columns: vec![
                ("lock".into(), Column::Str(waits.iter().map(|w| w.class.to_string()).collect())),
                ("cpu".into(), column(&|w| u64::from(w.cpu.0))),
                ("waited_ps".into(), column(&|w| w.waited_ps)),
                ("waited_for_ps".into(), column(&|w| w.waited_for_ps)),
            ],
        });
    }

    /// The result of a run of `config`; `hardware`: what was simulated.
    pub(super) fn outcome(self, config: &Config, hardware: Option<&Machinery>) -> Outcome {
        let mut row = Map::new();
        row.insert("machine".into(), json!(config.machine.name));
        row.insert("cpus".into(), json!(config.machine.cpus));
        row.insert("placement".into(), json!(config.machine.placement));
        if let Some((level, seed)) = config.machine.fragment {
            row.insert("fragment".into(), json!(level));
            row.insert("fragment_seed".into(), json!(seed));
        }
        if let Some(hardware) = hardware {
            row.insert("kernel".into(), json!(hardware.word("kernel")));
        }
        for (key, value) in &config.machine.overrides {
            row.insert(key.clone(), json!(value));
        }
        row.insert("pages".into(), self.summary["pages"].clone());
        row.insert("allocator".into(), config.allocator["name"].clone());
        flatten(&config.allocator, &mut row, &["name"]);
        row.insert("workload".into(), config.workload["name"].clone());
        let mut workload = Map::new();
        flatten(&config.workload, &mut workload, &["name", "caches", "ops"]);
        for (key, value) in workload {
            // The allocator's era keeps its plain name; the workload's own is told apart.
            let key = if row.contains_key(&key) { format!("workload_{key}") } else { key };
            row.insert(key, value);
        }
        row.insert("seed".into(), json!(config.seed));
        row.extend(self.summary);
        row.insert("version".into(), json!(VERSION));
        let host = Map::from_iter([("cores".to_string(), json!(Native::host_cores()))]);
        Outcome {
            config: config.to_json(),
            summary: row,
            frames: self.frames,
            texts: self.texts,
            tool: self.tool,
            checkpoints: self.checkpoints,
            host,
        }
    }
}

/// The columns of /proc/slabinfo, and behind them those that the slabinfo tool reads.
fn caches_frame(infos: &[CacheInfo], tool: Option<&Report>) -> Frame {
    let directory = |id: usize| tool.and_then(|t| t.caches.iter().find(|d| d.cache as usize == id));
    let read = |file: &str| {
        let number = |id| directory(id).filter(|d| d.has(file)).map_or(f64::NAN, |d| d.number(file) as f64);
        Column::F64((0..infos.len()).map(number).collect())
    };
    let word = |f: &dyn Fn(&Directory) -> String| {
        Column::Str((0..infos.len()).map(|id| directory(id).map_or(String::new(), f)).collect())
    };
    let counts = |f: &dyn Fn(&CacheInfo) -> u64| Column::U64(infos.iter().map(f).collect());
    let maybe = |f: &dyn Fn(&CacheInfo) -> Option<u64>| {
        Column::F64(infos.iter().map(|i| f(i).map_or(f64::NAN, |v| v as f64)).collect())
    };
    Frame {
        name: "caches",
        columns: vec![
            ("cache".into(), Column::Str(infos.iter().map(|i| i.name.clone()).collect())),
            ("object_size".into(), counts(&|i| i.object_size)),
            ("slot_size".into(), counts(&|i| i.slot_size)),
            ("order".into(), maybe(&|i| i.order.map(u64::from))),
            ("order_raised".into(), counts(&|i| u64::from(i.order_raised))),
            ("objects_per_slab".into(), maybe(&|i| i.objects_per_slab)),
            ("active_objects".into(), counts(&|i| i.active_objects)),
            ("live_objects".into(), counts(&|i| i.live_objects)),
            ("total_objects".into(), maybe(&|i| i.total_objects)),
            ("active_slabs".into(), maybe(&|i| i.active_slabs)),
            ("slabs".into(), maybe(&|i| i.slabs)),
            ("pages".into(), maybe(&|i| i.pages)),
            ("partial".into(), maybe(&|i| i.partial)),
            ("limit".into(), maybe(&|i| i.limit)),
            ("batchcount".into(), maybe(&|i| i.batchcount)),
            ("sharedfactor".into(), maybe(&|i| i.sharedfactor)),
            ("sharedavail".into(), maybe(&|i| i.sharedavail)),
            ("min_partial".into(), maybe(&|i| i.min_partial)),
            ("directory".into(), word(&|d| d.name.clone())),
            ("objects".into(), read("objects")),
            ("objects_partial".into(), read("objects_partial")),
            ("cpu_slabs".into(), read("cpu_slabs")),
            ("free_slabs".into(), read("free_slabs")),
            ("queued".into(), read("queued")),
            ("aliases".into(), read("aliases")),
            ("flags".into(), word(&Directory::flags)),
        ],
    }
}

/// What was timed: one row per test, half and size; nanoseconds and cycles of one operation.
fn laps_frame(laps: &[(LapSpec, u64, u64)], ghz: Option<f64>) -> Frame {
    let word =
        |f: &dyn Fn(&LapSpec) -> &'static str| Column::Str(laps.iter().map(|(l, ..)| f(l).to_string()).collect());
    let count = |f: &dyn Fn(&LapSpec) -> u64| Column::U64(laps.iter().map(|(l, ..)| f(l)).collect());
    let one = |ps: u64, n: u64| if n == 0 { f64::NAN } else { ps as f64 / n as f64 / 1000.0 };
    let ns: Vec<f64> = laps.iter().map(|(_, ps, n)| one(*ps, *n)).collect();
    let cycles = ns.iter().map(|ns| ghz.map_or(f64::NAN, |ghz| ns * ghz)).collect();
    Frame {
        name: "laps",
        columns: vec![
            ("test".into(), word(&|l| l.test)),
            ("part".into(), word(&|l| l.part)),
            ("size".into(), count(&|l| l.size)),
            ("bulk".into(), count(&|l| l.bulk)),
            ("operations".into(), Column::U64(laps.iter().map(|(.., n)| *n).collect())),
            ("ns".into(), Column::F64(ns)),
            ("cycles".into(), Column::F64(cycles)),
        ],
    }
}

/// cache × CPU × counter, without the counters that stayed at zero everywhere in a cache.
fn stats_frame<'a>(counters: impl Iterator<Item = (&'a str, &'a [Counters])>) -> Frame {
    let (mut cache, mut cpu, mut stat, mut count) = (vec![], vec![], vec![], vec![]);
    for (name, per_cpu) in counters {
        for s in Stat::ALL.iter().filter(|s| per_cpu.iter().any(|c| c.get(**s) > 0)) {
            for (i, c) in per_cpu.iter().enumerate() {
                cache.push(name.to_string());
                cpu.push(i as u64);
                stat.push(s.name().to_string());
                count.push(c.get(*s));
            }
        }
    }
    Frame {
        name: "stats",
        columns: vec![
            ("cache".into(), Column::Str(cache)),
            ("cpu".into(), Column::U64(cpu)),
            ("stat".into(), Column::Str(stat)),
            ("count".into(), Column::U64(count)),
        ],
    }
}
