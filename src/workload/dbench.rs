//! dbench: the load of tbench, done on a local file system instead of a socket (workloads.md §4).
//!
//! Objects it moves, all taken and given back by the client's own CPU: per path operation one `names_cache` object, last in
//! first out; per open a `filp`, given back through RCU; per created file entry and inode, per page a tree node in 64 and (on a
//! disk) a `buffer_head`, given back in bulk when the file is removed; journal heads and bios at fsync.
//!
//! Which operations succeed is not in the load file. On a disk as many files are created as removed; in memory the shares are
//! those of the recorded 6.1 kernel (profile `dbench2`).

use serde::{Deserialize, Serialize};

use super::kernel::{File, Fs_, Kernel, Open, Program, about};
use super::{NativeWork, Op, Parameter, Plan, Random, Task, Workload};
use crate::error::Error;
use crate::units::Picos;

const EXCHANGES: &str = include_str!("tbench_exchanges.csv");
/// Opens that fail: as many as opens exceed closes in the load file.
const FAILED_OPENS: f64 = (79_230.0 - 58_200.0) / 79_230.0;
/// Files that a client keeps, once it has made them. As many are created as removed, but in a random order: without bounds
/// their number, and with it the memory that reads and writes go through, is a random walk that makes seeds differ by 4 %
/// after 0.8 s, and more the longer one measures.
const FILES: std::ops::RangeInclusive<usize> = 32..=64;
/// Files that a directory listing looks at: 278,700 path names per pass with those of the other operations, as recorded.
const LISTED: f64 = 2.78;
/// Of a create in memory: tree nodes (the recorded 0.0412 per path against 0.0280 inodes).
const NODES: f64 = 1.47;

/// Configuration of dbench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dbench {
    /// Clients.
    pub clients: u64,
    /// Kernel release whose objects are used.
    pub era: String,
    /// Pages of files that a client keeps.
    pub file_pages: u64,
    /// User work of an operation, in microseconds.
    pub user_us: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// Seconds before.
    pub warmup: f64,
    /// What becomes of work on Native.
    pub native_work: NativeWork,
}

impl Default for Dbench {
    fn default() -> Self {
        Dbench {
            clients: 8,
            era: "2.6.24".into(),
            file_pages: 1024,
            user_us: 2.0,
            seconds: 0.3,
            warmup: 0.1,
            native_work: NativeWork::Skip,
        }
    }
}

impl Workload for Dbench {
    const NAME: &'static str = "dbench";
    const MEANING: &'static str = "file-server traffic on a local file system: the load of tbench without the network";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter { name: "clients", unit: "clients", meaning: "clients, one task each" },
        Parameter {
            name: "era",
            unit: "",
            meaning: "kernel release whose objects are used: 2.6.24, 2.6.28, 3.0 (files on a disk), 6.1 or 6.18 (in memory)",
        },
        Parameter { name: "file_pages", unit: "pages", meaning: "pages of files that a client keeps, 32..1048576" },
        Parameter { name: "user_us", unit: "us", meaning: "user work of an operation" },
        Parameter { name: "seconds", unit: "s", meaning: "seconds measured, virtual on Sim" },
        Parameter { name: "warmup", unit: "s", meaning: "seconds before the measurement" },
        Parameter { name: "native_work", unit: "", meaning: "work on native: skip (allocator only) or spin" },
    ];

    fn check(&self) -> Result<(), Error> {
        if !(1..=4096).contains(&self.clients) {
            return Err(Error::new("workload.clients", self.clients, "1..4096"));
        }
        if !(32..=1 << 20).contains(&self.file_pages) {
            return Err(Error::new("workload.file_pages", self.file_pages, "32..1048576"));
        }
        if !(0.0..=1e6).contains(&self.user_us) {
            return Err(Error::new("workload.user_us", self.user_us, "0..1000000"));
        }
        Kernel::check(&self.era)?;
        super::check_times(self.seconds, self.warmup)
    }

    fn plan(&self, seed: u64) -> Plan {
        let kernel = Kernel::new(&self.era);
        let load = load();
        let client = |i| {
            let mut program = Program::default();
            program.user = Picos::from_ns(1000.0 * self.user_us);
            Box::new(Client {
                kernel: kernel.clone(),
                load: load.clone(),
                random: Random::new(seed, i),
                program,
                open: Vec::new(),
                files: Vec::new(),
                journal: Vec::new(),
                most: self.file_pages as usize,
                owed: [Owed(0.5); 4],
            }) as Box<dyn Task>
        };
        Plan {
            warmup_s: self.warmup,
            seconds: self.seconds,
            per_byte: true,
            scale: 1e-6,
            native_work: self.native_work,
            ..Plan::of(kernel.caches.clone(), (0..self.clients).map(client).collect(), "MB/s")
        }
    }
}

/// An operation of the load file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Read,
    Write,
    Open,
    Stat,
    Close,
    List,
    Unlink,
    Rename,
    Sync,
    /// By descriptor: no path and no object.
    Other,
}

/// The load: calls with payload bytes and cumulative counts.
fn load() -> std::sync::Arc<[(u64, Call, u32)]> {
    let mut total = 0;
    let rows = EXCHANGES.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |i: usize| fields[i].parse::<u64>().expect("a number in tbench_exchanges.csv");
        total += number(4);
        let call = match fields[0] {
            "ReadX" => Call::Read,
            "WriteX" => Call::Write,
            "NTCreateX" => Call::Open,
            "QUERY_PATH_INFORMATION" => Call::Stat,
            "Close" => Call::Close,
            "FIND_FIRST" => Call::List,
            "Unlink" => Call::Unlink,
            "Rename" => Call::Rename,
            "Flush" => Call::Sync,
            _ => Call::Other,
        };
        (total, call, number(3) as u32)
    });
    rows.collect()
}

/// One client with its open files and the files it keeps.
struct Client {
    kernel: Kernel,
    load: std::sync::Arc<[(u64, Call, u32)]>,
    random: Random,
    program: Program,
    open: Vec<Open>,
    files: Vec<File>,
    journal: Vec<u32>,
    most: usize,
    /// Of opens that fail, opens that create, stats of what is missing, unlinks that remove.
    owed: [Owed; 4],
}

/// Makes a share of events come evenly.
#[derive(Clone, Copy)]
struct Owed(f64);

impl Owed {
    /// True for the share `p` of all calls.
    fn due(&mut self, p: f64) -> bool {
        self.due_if(p, true)
    }

    /// The same where the event may not be possible now: then it is owed until it is.
    fn due_if(&mut self, p: f64, possible: bool) -> bool {
        self.0 += p;
        let due = possible && self.0 >= 1.0;
        self.0 -= f64::from(u8::from(due));
        due
    }
}

/// Shares of operations that succeed.
struct Shares {
    creates: f64,
    unlinks: f64,
    missing_stats: f64,
}

impl Shares {
    fn of(fs: Fs_) -> Shares {
        match fs {
            // Of 79,230 opens as many create as there are unlinks; all stats succeed or are cached.
            Fs_::Disk => Shares { creates: 16_000.0 / 79_230.0, unlinks: 1.0, missing_stats: 0.0 },
            // 0.0280 creates and 0.3925 entries per path (recorded).
            Fs_::Memory => Shares { creates: 7_804.0 / 79_230.0, unlinks: 7_804.0 / 16_000.0, missing_stats: 0.5744 },
        }
    }
}

impl Task for Client {
    fn step(&mut self) -> Op {
        loop {
            if let Some(op) = self.program.next() {
                return op;
            }
            self.call();
        }
    }
}

impl Client {
    fn call(&mut self) {
        let total = self.load.last().expect("rows").0;
        let at = self.random.below(total);
        let (_, call, bytes) = self.load[self.load.partition_point(|(sum, ..)| *sum <= at)];
        let shares = Shares::of(self.kernel.fs);
        let Client { kernel: k, program: p, random, open, files, journal, most, owed, .. } = self;
        match call {
            Call::Open if owed[0].due(FAILED_OPENS) => k.missing(p),
            Call::Open if owed[1].due_if(shares.creates / (1.0 - FAILED_OPENS), files.len() < *FILES.end()) => {
                let (opened, mut file) = k.create(p, journal);
                if k.fs == Fs_::Memory {
                    k.write(p, &mut file, 0, 0, about(random, NODES));
                }
                open.push(opened);
                files.push(file);
            }
            Call::Open => open.push(k.open(p)),
            Call::Close if !open.is_empty() => {
                let opened = open.swap_remove(random.below(open.len() as u64) as usize);
                k.close(p, opened);
            }
            Call::Stat if owed[2].due(shares.missing_stats) => k.missing(p),
            Call::Stat => k.stat(p),
            Call::List => {
                let dir = k.open_dir(p);
                (0..about(random, LISTED)).for_each(|_| k.stat(p));
                k.close(p, dir);
            }
            Call::Unlink if owed[3].due_if(shares.unlinks, files.len() > *FILES.start()) => {
                let file = files.swap_remove(random.below(files.len() as u64) as usize);
                k.unlink(p, file, journal);
            }
            Call::Unlink => k.missing(p),
            Call::Rename => k.rename(p, journal),
            Call::Write if !files.is_empty() => {
                let kept: usize = files.iter().map(File::pages).sum();
                let at = random.below(files.len() as u64) as usize;
                let file = &mut files[at];
                let pages = bytes.div_ceil(4096) as usize;
                let new = pages.saturating_sub(file.pages()).min(most.saturating_sub(kept));
                // In memory the nodes come with the file, as recorded; on a disk one comes with every 64th page.
                let before = file.pages();
                let nodes =
                    if k.fs == Fs_::Disk { ((before + new).div_ceil(64) - before.div_ceil(64)) as u32 } else { 0 };
                k.write(p, file, bytes, new, nodes);
            }
            Call::Read if !files.is_empty() => {
                // From a file drawn at random on, the first that has been written.
                let from = random.below(files.len() as u64) as usize;
                let file = files[from..].iter().chain(&files[..from]).find(|f| f.pages() > 0);
                file.into_iter().for_each(|f| k.read(p, f, bytes));
            }
            Call::Sync => k.commit(p, journal),
            Call::Read | Call::Write | Call::Close | Call::Other => p.enter(),
        }
        if journal.len() > 512 {
            k.commit(p, journal);
        }
        p.push(Op::Done { bytes: u64::from(bytes) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_that_of_the_file() {
        let load = load();
        assert_eq!(load.last().unwrap().0, 458_342);
        let mut before = 0;
        let mut of = |call: Call| {
            let rows = load.iter().map(|(sum, c, _)| {
                let n = sum - std::mem::replace(&mut before, *sum);
                if *c == call { n } else { 0 }
            });
            let n: u64 = rows.sum();
            before = 0;
            n
        };
        assert_eq!([of(Call::Read), of(Call::Open), of(Call::Unlink)], [124_199, 79_230, 16_000]);
    }
}
