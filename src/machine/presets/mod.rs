//! Machines by name: one TOML file each, every value with unit, source and confidence; and machines from files of the same
//! form.

mod check;
mod file;
mod limits;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::topology::{Place, Topology};
use crate::units::{NodeId, PAGE_SIZE};

/// The built-in presets: file contents by name.
const FILES: &[(&str, &str)] = &[
    ("opteron-2x4-2007", include_str!("opteron-2x4-2007.toml")),
    ("woodcrest-2x2", include_str!("woodcrest-2x2.toml")),
    ("clovertown-2x4", include_str!("clovertown-2x4.toml")),
    ("stoakley-2x4", include_str!("stoakley-2x4.toml")),
    ("tigerton-4x4", include_str!("tigerton-4x4.toml")),
    ("small-2008", include_str!("small-2008.toml")),
    ("nehalem-2x4-2011", include_str!("nehalem-2x4-2011.toml")),
    ("opteron-4x4-2011", include_str!("opteron-4x4-2011.toml")),
    ("epyc-milan-2x64", include_str!("epyc-milan-2x64.toml")),
    ("epyc-genoa-2x96", include_str!("epyc-genoa-2x96.toml")),
    ("xeon-spr-2x56", include_str!("xeon-spr-2x56.toml")),
];
/// Factors of the cost model that hold for all machines.
const MODEL: &str = include_str!("model.toml");

/// Most CPUs of one machine.
pub const MAX_CPUS: u64 = 192;
/// Largest figure of a machine, in whatever unit: beyond it times would not fit into 64 bits of picoseconds.
const MAX_FIGURE: f64 = 1e9;
/// Least memory per node: two blocks of the largest order.
pub const MIN_NODE_BYTES: u64 = 8 << 20;

/// Other names of figures, as a machine to order is usually described.
pub const ALIASES: [(&str, &str); 4] =
    [("threads_per_core", "smt"), ("nodes", "numa_nodes"), ("clock_ghz", "freq"), ("l2_kb", "l2")];
/// Latencies: a machine that has one of them has it above 0.
const LATENCIES: [&str; 11] = [
    "l1_lat",
    "l1_amortised",
    "l2_lat",
    "llc_lat",
    "mem_local",
    "mem_remote",
    "dirty_smt",
    "dirty_same_l2",
    "dirty_same_socket",
    "dirty_cross_ccd_same_socket",
    "dirty_cross_socket",
];
/// Figures that make a machine to order when they are set: its kernel is then the newest one.
const SHAPE: [&str; 4] = ["sockets", "cores_per_socket", "smt", "numa_nodes"];
/// The figures that are words of a list, and the lists.
const WORDS: [(&str, &[&str]); 8] = [
    ("locks", &["kernel", "dec-and-test", "ticket", "mcs"]),
    ("sched", &["kernel", "2.6.24", "2.6.28", "2.6.32"]),
    ("order", &["exact", "skewed"]),
    ("residency", &["cheap", "exact"]),
    ("bus", &["free", "contended"]),
    ("idle_states", &["c1", "deep", "poll"]),
    ("governor", &["performance", "ondemand"]),
    ("snoop_filter", &["yes", "no"]),
];

/// A kernel release as numbers: `2.6.24` is (2, 6, 24), `6.18` is (6, 18, 0).
pub fn release(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split('.').map(|p| p.parse().ok());
    let release = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    parts.next().is_none().then_some(release)
}

/// A number or a word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// A number.
    Number(f64),
    /// A word (`yes`, a kernel release).
    Word(String),
}

/// One value with where it comes from and how far to trust it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// The value.
    pub value: Scalar,
    /// Its unit.
    pub unit: String,
    /// high, medium, low, fitted, or "set" for an override.
    pub confidence: String,
    /// Where it comes from.
    pub source: String,
}

/// Every figure of a machine by name.
pub type Figures = BTreeMap<String, Value>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    values: Figures,
}

/// All figures of one simulated machine, and how many of its CPUs are used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machinery {
    /// Name of the preset it is, or derives from.
    pub name: String,
    /// Every figure by name.
    pub values: Figures,
    /// CPUs used.
    pub cpus: u64,
    /// Which of them: `spread` over sockets first, or `packed` in order of number.
    pub placement: Placement,
}

/// Which CPUs a subset of a machine consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Round-robin over sockets, then over second-level caches.
    #[default]
    Spread,
    /// In order of CPU number.
    Packed,
}

/// Names of the built-in presets.
pub fn names() -> Vec<&'static str> {
    FILES.iter().map(|(name, _)| *name).collect()
}

fn parse(text: &str) -> File {
    toml::from_str(text).unwrap_or_else(|e| panic!("a built-in preset does not parse: {e}"))
}

/// A built-in preset with the model's factors; its file is parsed at first use and once in a process.
fn built_in(name: &str) -> Option<&'static File> {
    static PARSED: [OnceLock<File>; FILES.len()] = [const { OnceLock::new() }; FILES.len()];
    let at = FILES.iter().position(|(n, _)| *n == name)?;
    Some(PARSED[at].get_or_init(|| {
        let (mut model, file) = (parse(MODEL), parse(FILES[at].1));
        model.values.extend(file.values);
        File { name: file.name, values: model.values }
    }))
}

impl Machinery {
    /// A preset, with some values replaced and `cpus` of its CPUs (all when `None`).
    pub fn preset(
        name: &str,
        overrides: &BTreeMap<String, Scalar>,
        cpus: Option<u64>,
        placement: Placement,
    ) -> Result<Machinery, Error> {
        let Some(file) = built_in(name) else {
            let mut known = names();
            known.push("native");
            return Err(Error::unknown("machine", name, &known));
        };
        Machinery::of(&file.name, file.values.clone(), overrides, cpus, placement).map_err(|e| as_given(e, overrides))
    }

    /// A machine of a file: `given` is its table of values (JSON), the rest as for a preset.
    pub fn from_file(
        name: &str,
        given: &serde_json::Value,
        overrides: &BTreeMap<String, Scalar>,
        cpus: Option<u64>,
        placement: Placement,
    ) -> Result<Machinery, Error> {
        let values = file::figures(given)?;
        if name == "native" || built_in(name).is_some_and(|preset| preset.values != values) {
            let right = "a name of its own: there is a machine of this name with other figures";
            return Err(Error::new("machine", format!("{name:?}"), right));
        }
        Machinery::of(name, values, overrides, cpus, placement).map_err(|e| as_given(e, overrides))
    }

    fn of(
        name: &str,
        mut values: Figures,
        overrides: &BTreeMap<String, Scalar>,
        cpus: Option<u64>,
        placement: Placement,
    ) -> Result<Machinery, Error> {
        for (given, value) in overrides {
            let key = ALIASES.iter().find(|(alias, _)| alias == given).map_or(given.as_str(), |(_, key)| key);
            if key != given && overrides.contains_key(key) {
                let right = format!("given once: machine.{key} is the same figure");
                return Err(Error::new(format!("machine.{given}"), scalar(value), right));
            }
            let Some(old) = values.get_mut(key) else {
                let known: Vec<&str> = values.keys().map(String::as_str).collect();
                return Err(Error::unknown(&format!("machine.{key}"), key, &known));
            };
            limits::settable(key, value)?;
            acceptable(key, value, old)?;
            old.value = value.clone();
            old.confidence = "set".into();
            old.source = "set by the user".into();
        }
        let set = |key: &str| {
            let alias = ALIASES.iter().find(|(_, k)| *k == key).map(|(alias, _)| *alias);
            overrides.contains_key(key) || alias.is_some_and(|a| overrides.contains_key(a))
        };
        let mut derive = |key: &str, value: Scalar, source: &str| {
            let old = values.get_mut(key).expect("every preset has it");
            (old.value, old.source) = (value, source.into());
        };
        if SHAPE.iter().any(|key| set(key)) && !set("kernel") {
            derive("kernel", Scalar::Word("6.18".into()), "a machine to order (machine-model.md §2.1)");
        }
        // A NUMA machine with another number of sockets keeps one node per socket.
        if set("sockets") && !set("numa_nodes") {
            let sockets = values["sockets"].value.clone();
            let nodes = values.get_mut("numa_nodes").expect("every preset has it");
            if nodes.value != Scalar::Number(1.0) {
                nodes.value = sockets;
                nodes.source = "one per socket, which the user set".into();
            }
        }
        // Memory given for the whole machine is what is simulated.
        if let Some(Scalar::Number(gib)) = overrides.get("memory")
            && !set("arena_per_node")
        {
            let nodes = match values["numa_nodes"].value {
                Scalar::Number(n) => n.max(1.0),
                Scalar::Word(_) => 1.0,
            };
            let arena = values.get_mut("arena_per_node").expect("every preset has it");
            (arena.value, arena.source) = (Scalar::Number(gib * 1024.0 / nodes), "memory, which the user set".into());
        }
        let mut machinery = Machinery { name: name.to_string(), values, cpus: 0, placement };
        machinery.check_shape()?;
        machinery.check_limits()?;
        let all = machinery.all_cpus();
        machinery.cpus = cpus.unwrap_or(all);
        if machinery.cpus == 0 || machinery.cpus > all {
            return Err(Error::new("machine.cpus", machinery.cpus, format!("1..{all} on {name}")));
        }
        Ok(machinery)
    }

    /// A machine of `cpus` CPUs in blocks on `nodes` nodes (a socket each) with `node_bytes` of memory per node; all
    /// other figures are those of `opteron-2x4-2007`.
    pub fn for_topology(cpus: u64, nodes: u64, node_bytes: u64) -> Result<Machinery, Error> {
        if nodes == 0 || cpus == 0 || !cpus.is_multiple_of(nodes) {
            return Err(Error::new("machine.cpus", cpus, format!("the same number of CPUs on each of {nodes} nodes")));
        }
        let shape = [
            ("sockets", nodes as f64),
            ("cores_per_socket", (cpus / nodes) as f64),
            ("numa_nodes", nodes as f64),
            ("arena_per_node", node_bytes as f64 / (1 << 20) as f64),
        ];
        let overrides = shape.map(|(key, value)| (key.to_string(), Scalar::Number(value))).into();
        Machinery::preset("opteron-2x4-2007", &overrides, None, Placement::Packed)
    }

    /// A figure that must be a number.
    pub fn number(&self, key: &str) -> Result<f64, Error> {
        match self.values.get(key).map(|v| &v.value) {
            Some(Scalar::Number(n)) => Ok(*n),
            Some(Scalar::Word(w)) => Err(Error::new(format!("machine.{key}"), w, "a number")),
            None => Err(Error::new(format!("machine.{key}"), "nothing", "a value: this machine has none")),
        }
    }

    /// A figure that may be absent: what does not exist on this machine.
    pub fn optional(&self, key: &str) -> Result<Option<f64>, Error> {
        if self.values.contains_key(key) { self.number(key).map(Some) } else { Ok(None) }
    }

    /// A figure that must be a word.
    pub fn word(&self, key: &str) -> Option<String> {
        match self.values.get(key).map(|v| &v.value) {
            Some(Scalar::Word(w)) => Some(w.clone()),
            Some(Scalar::Number(n)) => Some(n.to_string()),
            None => None,
        }
    }

    fn whole(&self, key: &str) -> u64 {
        self.number(key).map_or(0, |v| v as u64)
    }

    /// The kernel release of the machine.
    pub fn kernel(&self) -> (u32, u32, u32) {
        self.word("kernel").and_then(|k| release(&k)).unwrap_or((2, 6, 24))
    }

    /// CPUs of the whole machine.
    pub fn all_cpus(&self) -> u64 {
        self.whole("sockets") * self.whole("cores_per_socket") * self.whole("smt").max(1)
    }

    /// Bytes of simulated memory per node.
    pub fn node_bytes(&self) -> Result<u64, Error> {
        Ok((self.number("arena_per_node")? * (1 << 20) as f64) as u64 / PAGE_SIZE * PAGE_SIZE)
    }

    /// The CPUs in use, in order of number, and the memory of every node (also of those without a CPU in use).
    ///
    /// CPUs are numbered over sockets, then second-level caches, then cores, all first threads before all second ones.
    pub fn topology(&self) -> Topology {
        let (sockets, cores) = (self.whole("sockets") as u16, self.whole("cores_per_socket") as u16);
        let l2 = (self.whole("l2_shared_by_cores") as u16).max(1);
        let llc = match self.whole("llc_shared_by_cores") as u16 {
            0 => l2,
            n => n.min(cores),
        };
        let nodes = self.whole("numa_nodes") as u16;
        let node = |socket: u16, core: u16| {
            if nodes >= sockets {
                let per = nodes / sockets;
                socket * per + core * per / cores
            } else {
                socket / (sockets / nodes)
            }
        };
        let place = |socket: u16, core: u16| Place {
            socket,
            core: socket * cores + core,
            l2: socket * (cores / l2) + core / l2,
            llc: socket * cores.div_ceil(llc) + core / llc,
            node: NodeId(node(socket, core)),
        };
        let threads = (self.whole("smt") as u16).max(1);
        let mut order: Vec<(u16, u16, u16)> =
            (0..threads).flat_map(|t| (0..sockets).flat_map(move |s| (0..cores).map(move |c| (t, s, c)))).collect();
        if self.placement == Placement::Spread {
            // First one core of each second-level cache, socket by socket, then the next core of each; second threads last.
            let domains = cores / l2;
            order.sort_by_key(|&(t, s, c)| (t, c % l2, c / l2 % domains, s));
        }
        order.truncate(self.cpus as usize);
        order.sort_unstable();
        let places = order.into_iter().map(|(_, s, c)| place(s, c)).collect();
        let bytes = self.node_bytes().unwrap_or(MIN_NODE_BYTES);
        let with_memory = nodes - (self.whole("memoryless_nodes") as u16).min(nodes - 1);
        Topology::new(places, (0..nodes).map(|n| if n < with_memory { bytes } else { 0 }).collect())
    }
}

/// Refuses a value that figure `key` cannot have: of another kind than `like`, negative, or too large.
fn acceptable(key: &str, value: &Scalar, like: &Value) -> Result<(), Error> {
    if matches!(value, Scalar::Number(n) if !(0.0..=MAX_FIGURE).contains(n)) {
        return Err(Error::new(format!("machine.{key}"), scalar(value), "a number, 0 to a billion"));
    }
    if std::mem::discriminant(&like.value) != std::mem::discriminant(value) {
        let right = format!("the kind of {}", scalar(&like.value));
        return Err(Error::new(format!("machine.{key}"), scalar(value), right));
    }
    Ok(())
}

/// Names the parameter of an error as the user did, who may know the figure by its other name.
fn as_given(mut e: Error, overrides: &BTreeMap<String, Scalar>) -> Error {
    let given =
        |(alias, key): &&(&str, &str)| e.parameter == format!("machine.{key}") && overrides.contains_key(*alias);
    if let Some((alias, _)) = ALIASES.iter().find(given) {
        e.parameter = format!("machine.{alias}");
    }
    e
}

/// A value as the user would write it.
pub fn scalar(v: &Scalar) -> String {
    match v {
        Scalar::Number(n) => n.to_string(),
        Scalar::Word(w) => format!("{w:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opteron(cpus: Option<u64>, placement: Placement) -> Result<Machinery, Error> {
        Machinery::preset("opteron-2x4-2007", &BTreeMap::new(), cpus, placement)
    }

    #[test]
    fn a_spread_subset_takes_sockets_in_turn() {
        let nodes = |n, p| {
            let t = opteron(Some(n), p).unwrap().topology();
            t.cpu_ids().map(|c| t.node_of(c).0).collect::<Vec<_>>()
        };
        assert_eq!(nodes(2, Placement::Spread), [0, 1]);
        assert_eq!(nodes(3, Placement::Spread), [0, 0, 1]);
        assert_eq!(nodes(4, Placement::Packed), [0, 0, 0, 0]);
        assert_eq!(nodes(8, Placement::Spread), [0, 0, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn a_machine_of_any_shape_has_its_cpus_in_blocks() {
        let nodes = |cpus, nodes| {
            let t = Machinery::for_topology(cpus, nodes, 64 << 20).unwrap().topology();
            assert_eq!((t.nodes() as u64, t.node_bytes(NodeId(0))), (nodes, 64 << 20));
            t.cpu_ids().map(|c| t.node_of(c).0).collect::<Vec<_>>()
        };
        assert_eq!([nodes(1, 1), nodes(3, 1), nodes(4, 2)], [vec![0], vec![0; 3], vec![0, 0, 1, 1]]);
        assert!(Machinery::for_topology(3, 2, 64 << 20).unwrap_err().to_string().contains("machine.cpus = 3"));
    }

    /// The table that the presets were made from, cell by cell; an empty cell does not exist on that machine. (The number of
    /// threads a core is 1 where all of them would be more CPUs than a machine has here.)
    #[test]
    fn the_presets_are_the_table() {
        let mut table = csv::Reader::from_reader(&include_bytes!("machine_presets.csv")[..]);
        let head = table.headers().unwrap().clone();
        let rows: Vec<csv::StringRecord> = table.records().map(Result::unwrap).collect();
        for (column, name) in head.iter().enumerate().filter(|(_, n)| names().contains(n)) {
            let m = Machinery::preset(name, &BTreeMap::new(), None, Placement::Spread).unwrap();
            for row in &rows {
                let (key, cell) = (&row[0], &row[column]);
                let found = m.values.get(key).map(|v| match &v.value {
                    Scalar::Number(n) => *n,
                    Scalar::Word(w) => w.parse().unwrap_or(f64::NAN),
                });
                let word = m.word(key).unwrap_or_default();
                if cell.is_empty() {
                    assert_eq!(found, None, "{name}, {key}");
                } else if key == "smt" && m.all_cpus() * 2 > MAX_CPUS {
                    assert_eq!(found, Some(1.0), "{name}");
                } else {
                    let same = cell.parse().is_ok_and(|c: f64| found == Some(c)) || word == cell;
                    assert!(same, "{name}, {key}: {cell} in the table, {found:?} {word}");
                }
            }
        }
        assert_eq!(names().len(), head.len() - 4 + 1, "every column is a preset; small-2008 has none");
    }

    #[test]
    fn a_machine_to_order_goes_by_the_usual_names() {
        let order = |set: &[(&str, f64)]| {
            let o = set.iter().map(|(k, v)| (k.to_string(), Scalar::Number(*v))).collect();
            Machinery::preset("opteron-2x4-2007", &o, None, Placement::Spread)
        };
        let m =
            order(&[("sockets", 4.0), ("cores_per_socket", 6.0), ("threads_per_core", 2.0), ("nodes", 8.0)]).unwrap();
        assert_eq!((m.all_cpus(), m.word("kernel").as_deref()), (48, Some("6.18")));
        let t = m.topology();
        assert_eq!((t.nodes(), t.cpus_on(NodeId(0)), t.cpus_on(NodeId(7))), (8, 6, 6));
        assert_eq!(order(&[("memory", 4.0)]).unwrap().node_bytes().unwrap(), 2 << 30);
        assert_eq!(order(&[("clock_ghz", 3.0), ("l2_kb", 1024.0)]).unwrap().number("l2").unwrap(), 1024.0);
        // A figure is refused by the name it was given.
        for (set, refused) in [
            (&[("sockets", 2.0), ("nodes", 3.0)][..], "machine.nodes = 3: "),
            (&[("sockets", 2.0), ("numa_nodes", 3.0)], "machine.numa_nodes = 3: "),
            (&[("clock_ghz", 0.0)], "machine.clock_ghz = 0: "),
            (&[("l2_kb", -5.0)], "machine.l2_kb = -5: "),
            (&[("threads_per_core", 0.0)], "machine.threads_per_core = 0: "),
        ] {
            let e = order(set).unwrap_err().to_string();
            assert!(e.starts_with(refused), "{e}");
        }
    }

    #[test]
    fn two_threads_a_core_are_refused_where_they_are_more_cpus_than_a_machine_has() {
        for (name, cpus) in [("epyc-milan-2x64", 256), ("epyc-genoa-2x96", 384), ("xeon-spr-2x56", 224)] {
            let with = |smt: f64| {
                let o = BTreeMap::from([("smt".to_string(), Scalar::Number(smt))]);
                Machinery::preset(name, &o, None, Placement::Spread).map(|m| m.all_cpus())
            };
            assert_eq!(with(1.0).unwrap(), cpus / 2);
            let e = with(2.0).unwrap_err().to_string();
            assert_eq!(e, format!("machine.smt = 2: 1: {cpus} CPUs are more than 192"));
        }
    }

    /// The values of a preset as a file has them.
    fn as_file(name: &str) -> serde_json::Value {
        serde_json::to_value(&built_in(name).unwrap().values).unwrap()
    }

    fn from_file(name: &str, values: &serde_json::Value) -> Result<Machinery, Error> {
        Machinery::from_file(name, values, &BTreeMap::new(), None, Placement::Spread)
    }

    #[test]
    fn a_file_of_a_preset_is_that_preset() {
        for name in names() {
            let preset = Machinery::preset(name, &BTreeMap::new(), None, Placement::Spread).unwrap();
            assert_eq!(from_file(name, &as_file(name)).unwrap(), preset);
            let mut alone = as_file(name);
            // The model's factors need not be named.
            parse(MODEL).values.keys().for_each(|k| {
                alone.as_object_mut().unwrap().remove(k);
            });
            from_file("mine", &alone).unwrap();
        }
    }

    #[test]
    fn a_file_is_refused_by_the_key_that_is_wrong() {
        use serde_json::json;
        let good = json!({ "value": 95.0, "unit": "ns", "confidence": "low", "source": "measured here" });
        let changed = |field: &str, value: serde_json::Value| {
            let mut figure = good.clone();
            match value {
                serde_json::Value::Null => drop(figure.as_object_mut().unwrap().remove(field)),
                value => figure[field] = value,
            }
            figure
        };
        for (key, figure, part) in [
            ("mem_locl", good.clone(), "did you mean \"mem_local\""),
            ("mem_local", changed("source", json!(null)), "machine.mem_local.source = nothing: where the figure comes"),
            ("mem_local", changed("source", json!(" ")), "machine.mem_local.source"),
            ("mem_local", changed("unit", json!("us")), "machine.mem_local.unit = \"us\": \"ns\""),
            ("mem_local", changed("confidence", json!("sure")), "machine.mem_local.confidence"),
            ("mem_local", changed("sorce", json!("x")), "did you mean \"source\""),
            ("mem_local", changed("value", json!(-95)), "machine.mem_local = -95: a number, 0 to a billion"),
            ("mem_local", changed("value", json!(0)), "machine.mem_local = 0: more than 0"),
            ("mem_local", changed("value", json!("fast")), "machine.mem_local = \"fast\": the kind of"),
            ("mem_local", json!(95), "machine.mem_local = 95: a table"),
            ("sockets", json!(null), "machine.sockets = nothing: a figure that every machine has"),
        ] {
            let mut values = as_file("opteron-2x4-2007");
            match figure {
                serde_json::Value::Null => drop(values.as_object_mut().unwrap().remove(key)),
                figure => values[key] = figure,
            }
            let e = from_file("mine", &values).unwrap_err().to_string();
            assert!(e.contains(part), "{key}: {e}");
        }
        let mut other = as_file("opteron-2x4-2007");
        other["mem_local"] = good;
        other["mem_local"]["value"] = json!(90.0);
        let e = from_file("opteron-2x4-2007", &other).unwrap_err().to_string();
        assert!(e.contains("a name of its own"), "{e}");
        assert_eq!(from_file("mine", &other).unwrap().number("mem_local").unwrap(), 90.0);
    }

    #[test]
    fn impossible_machines_are_refused_by_name() {
        for (cpus, part) in [(0, "machine.cpus = 0"), (9, "1..8"), (100_000, "1..8")] {
            assert!(opteron(Some(cpus), Placement::Spread).unwrap_err().to_string().contains(part));
        }
        for (key, value, part) in [
            ("sockets", 0.0, "machine.sockets = 0"),
            ("numa_nodes", 3.0, "machine.numa_nodes"),
            ("arena_per_node", 3.0, "at least 8 MiB"),
            ("l2_latt", 3.0, "did you mean \"l2_lat\""),
            ("mem_local", -1.0, "0 to a billion"),
            ("smt", 3.0, "machine.smt = 3: a whole number, 1..2"),
            ("memoryless_nodes", 2.0, "fewer than the 2 nodes"),
            ("cores_per_socket", 97.0, "at most 192 CPUs"),
            ("sockets", 193.0, "machine.sockets = 193"),
            ("l2_lat", 0.0, "machine.l2_lat = 0: more than 0"),
            ("mem_remote", 0.0, "machine.mem_remote = 0: more than 0"),
            ("dirty_cross_socket", -3.0, "machine.dirty_cross_socket = -3"),
        ] {
            let o = BTreeMap::from([(key.to_string(), Scalar::Number(value))]);
            let e = Machinery::preset("opteron-2x4-2007", &o, None, Placement::Spread).unwrap_err().to_string();
            assert!(e.contains(part), "{key} = {value}: {e}");
        }
    }
}
