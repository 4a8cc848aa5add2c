//! Gathers what allocator, pages and machine report after a run, as one row and four frames.

use serde_json::{Map, Value, json};

use crate::alloc::{CacheInfo, Counters, Shares, SlabAllocator, Stat};
use crate::machine::{LatencyReport, Machine, Native, Operation, Report};
use crate::page::{self, Pages};
use crate::spec::CacheId;
use crate::units::MAX_ORDER;

use super::config::flatten;
use super::exec::Totals;
use super::result::{Column, Frame, Outcome};
use super::{Config, VERSION};

/// Results of one run on their way to an [`Outcome`].
pub(super) struct Gathered {
    summary: Map<String, Value>,
    frames: Vec<Frame>,
    texts: Map<String, Value>,
    checkpoints: Vec<Value>,
    cpus: u64,
    elapsed: f64,
}

impl Gathered {
    pub(super) fn new<'p, M: Machine + 'p, A: SlabAllocator<'p, M>>(
        alloc: &mut A,
        totals: &Totals,
        throughput: f64,
        unit: String,
    ) -> Gathered {
        let ids: Vec<CacheId> = (0..alloc.cache_count() as u32).map(CacheId).collect();
        let infos: Vec<CacheInfo> = ids.iter().map(|id| alloc.info(*id)).collect();
        let counters: Vec<Vec<Counters>> = ids.iter().map(|id| alloc.counters(*id)).collect();
        let uncached = alloc.uncached_counters();
        let mut all = Counters::default();
        counters.iter().flatten().chain(&uncached).for_each(|c| all.merge(c));
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
        put("free_remote_pct", pct(c.net.remote_frees, c.net.frees));
        put("slab_pages_peak", json!(c.pages_peak));
        put("slab_pages_end", json!(c.pages_last));
        put("used_kb", json!(c.pages_last * 4));
        put("alloc_failed", json!(c.net.failed));
        put("data_packets_per_op", per_op(c.net.data_packets));
        put("acks_per_op", per_op(c.net.acks));
        put("frag_pages_per_op", per_op(c.net.frag_pages));
        put("direct_per_op", per_op(c.net.direct));
        put("bytes_copied_per_op", per_op(c.net.bytes_copied));
        put("switches_per_op", per_op(c.switches));
        put("wakes_local_per_op", per_op(c.net.wakes_local));
        put("wakes_remote_per_op", per_op(c.net.wakes_remote));
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
        let named = infos.iter().map(|i| i.name.as_str()).zip(counters.iter().map(Vec::as_slice));
        let stats = stats_frame(named.chain([("(page allocator)", uncached.as_slice())]));
        let frames = vec![caches_frame(&infos), stats, totals.timeline.frame()];
        Gathered { summary, frames, texts, checkpoints: Vec::new(), cpus, elapsed: totals.elapsed }
    }

    /// Adds operations and throughput over time.
    pub(super) fn with_series(mut self, series: Frame) -> Gathered {
        self.frames.push(series);
        self
    }

    /// Says that throughput is the time of a job of so many operations, at the rate of `measured` ones.
    pub(super) fn with_job(mut self, job: Option<u64>, measured: u64) -> Gathered {
        if let Some(operations) = job {
            let by = operations as f64 / measured as f64;
            self.summary.insert("job_ops".into(), json!(operations));
            self.summary.insert("scaled_by".into(), if measured == 0 { Value::Null } else { json!(by) });
        }
        self
    }

    /// Adds what a script's checkpoints saw.
    pub(super) fn with_checkpoints(self, checkpoints: Vec<Value>) -> Gathered {
        Gathered { checkpoints, ..self }
    }

    /// Adds the page allocator's counts: per order what was allocated, returned, refused, and what is free.
    pub(super) fn pages<M: Machine>(&mut self, pages: &mut Pages<'_, M>) {
        let stats = pages.stats();
        let ops = self.summary["ops"].as_u64().unwrap_or(0);
        let per_op = |n: u64| if ops == 0 { Value::Null } else { json!(n as f64 / ops as f64) };
        self.summary.insert("pages_order0_per_op".into(), per_op(stats.allocated[0]));
        self.summary.insert("zone_locks_per_op".into(), per_op(stats.zone_lock));
        self.summary.insert("pages".into(), json!(pages.model().name()));
        let rows = pages.buddyinfo();
        let free: [u64; MAX_ORDER] = std::array::from_fn(|o| rows.iter().map(|node| node[o]).sum());
        let index = |f: &dyn Fn(usize) -> f64| Column::F64((0..MAX_ORDER).map(|o| f(o) / 1000.0).collect());
        self.frames.push(Frame {
            name: "pages",
            columns: vec![
                ("order".into(), Column::U64((0..MAX_ORDER as u64).collect())),
                ("allocated".into(), Column::U64(stats.allocated.to_vec())),
                ("freed".into(), Column::U64(stats.freed.to_vec())),
                ("failed".into(), Column::U64(stats.failed.to_vec())),
                ("free_blocks".into(), Column::U64(free.to_vec())),
                ("unusable_index".into(), index(&|o| page::unusable_index(&free, o) as f64)),
                ("fragmentation_index".into(), index(&|o| page::fragmentation_index(&free, o) as f64)),
            ],
        });
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
    pub(super) fn machine(&mut self, report: Report) {
        let cpu_ps = self.cpus as f64 * self.elapsed * 1e12;
        let pct = |ps: u64| if report.simulated { json!(100.0 * ps as f64 / cpu_ps) } else { Value::Null };
        let waited: u64 = report.locks.iter().map(|l| l.wait_ps).sum();
        self.summary.insert("lock_wait_pct".into(), pct(waited));
        self.summary.insert("idle_pct".into(), pct(report.idle_ps));
        self.summary.insert("simulated".into(), json!(report.simulated));
        self.summary.insert("oversubscribed".into(), json!(report.oversubscribed));
        self.summary.insert("inversions".into(), json!(report.inversions));
        self.summary.insert("max_inversion_ns".into(), json!(report.max_inversion_ps as f64 / 1000.0));
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
                ("wait_ns".into(), column(&|l| l.wait_ps / 1000)),
            ],
        });
    }

    pub(super) fn outcome(self, config: &Config) -> Outcome {
        let mut row = Map::new();
        row.insert("machine".into(), json!(config.machine.name));
        row.insert("cpus".into(), json!(config.machine.cpus));
        row.insert("placement".into(), json!(config.machine.placement));
        if let Some((level, seed)) = config.machine.fragment {
            row.insert("fragment".into(), json!(level));
            row.insert("fragment_seed".into(), json!(seed));
        }
        if let Ok(hardware) = config.machine.machinery() {
            row.insert("kernel".into(), json!(hardware.word("kernel")));
        }
        for (key, value) in &config.machine.overrides {
            row.insert(key.clone(), json!(value));
        }
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
            checkpoints: self.checkpoints,
            host,
        }
    }
}

fn caches_frame(infos: &[CacheInfo]) -> Frame {
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
