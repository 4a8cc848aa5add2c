//! Processes that come and go: what fork, exec and exit take and give back, and who does (workloads.md §8).
//!
//! A *parent* task forks: it takes the new process's objects and passes them to a *child* task, which stands for whatever
//! process runs there. The child replaces its memory map (exec), works, gives back map and files on the CPU where it runs
//! (exit), and passes the rest back: the parent reaps it. So objects of a process are freed remotely as often as parent and
//! child run on different CPUs. Parent and child draw the same numbers from copies of one stream.

use std::sync::Arc;

use super::kernel::{Kernel, Kind, Program, about};
use super::{Op, Random, Task, What};
use crate::units::Picos;

/// First slot of a child's own objects; those of its process lie below.
const OWN: u32 = 1024;
/// Most system calls of a process of which user work is spread over.
const MOST: u32 = 100_000;

/// What an average process of a mix does. Numbers are means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// Processes of one unit (a compilation, a shell script).
    pub(crate) processes: f64,
    /// Share of forks that copy the memory map (others are vfork), and what a copy takes.
    pub(crate) copies: f64,
    pub(crate) copy: Map,
    /// Share of processes that exec, and what the new map takes all together.
    pub(crate) execs: f64,
    pub(crate) exec: Map,
    /// Tree nodes of one mmap, and of one brk.
    pub(crate) nodes: u32,
    /// Per unit: brk calls, lookups of what exists, access calls, lookups of what does not, files opened, files created and
    /// removed, pipes, pages faulted in.
    pub(crate) brks: f64,
    pub(crate) stats: f64,
    pub(crate) accesses: f64,
    pub(crate) missing: f64,
    pub(crate) opens: f64,
    pub(crate) creates: f64,
    pub(crate) pipes: f64,
    pub(crate) pages: f64,
    /// kmalloc memory per fork (kept until the process is reaped) and per exec (given back at once): bytes, number.
    pub(crate) fork_kmalloc: &'static [(u32, f64)],
    pub(crate) exec_kmalloc: &'static [(u32, f64)],
    /// Tree nodes of the table of process numbers per fork, areas of mapped stacks, files of /proc per exec.
    pub(crate) radix: f64,
    pub(crate) areas: f64,
    pub(crate) proc_files: f64,
}

/// VMAs, anon_vmas, chains and tree nodes of a memory map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map {
    pub(crate) vmas: f64,
    pub(crate) anons: f64,
    pub(crate) chains: f64,
    pub(crate) nodes: f64,
}

/// One compilation unit with gcc: sh, driver, compiler, assembler (recorded on 6.1: profile `gcc`).
pub(crate) const GCC: Mix = Mix {
    processes: 4.0,
    copies: 0.4167,
    copy: Map { vmas: 15.0, anons: 11.0, chains: 11.0, nodes: 0.0 },
    execs: 1.0,
    exec: Map { vmas: 50.4, anons: 9.1, chains: 18.5, nodes: 0.0 },
    nodes: 7,
    brks: 110.5,
    stats: 788.4,
    accesses: 15.0,
    missing: 271.3,
    opens: 224.3,
    creates: 0.0,
    pipes: 0.0,
    pages: 1850.0,
    fork_kmalloc: &[(32, 1.1667), (64, 1.1667)],
    exec_kmalloc: &[(512, 1.75), (1024, 1.4167)],
    radix: 0.0,
    areas: 0.0,
    proc_files: 0.0,
};

/// One pass of a shell script with small programs (recorded on 6.1: profile `kbuildlike`).
pub(crate) const SHELL: Mix = Mix {
    processes: 10.2,
    copies: 0.902,
    copy: Map { vmas: 10.0, anons: 5.0, chains: 10.0, nodes: 6.0 },
    execs: 0.3995,
    exec: Map { vmas: 10.0, anons: 4.0, chains: 5.0, nodes: 47.0 },
    nodes: 0,
    brks: 0.0,
    stats: 19.575,
    accesses: 0.0,
    missing: 14.125,
    opens: 22.075,
    creates: 6.275,
    pipes: 1.05,
    pages: 331.0,
    fork_kmalloc: &[(32, 0.6446), (64, 0.6446)],
    exec_kmalloc: &[(16, 2.0), (4096, 1.0), (512, 1.0), (1024, 1.0), (256, 0.2454)],
    radix: 2.632,
    areas: 1.289,
    proc_files: 2.0,
};

/// When an object of a process goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// With the old memory map: at exec, else at exit.
    Map,
    Exit,
    /// When the parent reaps, at once or after a grace period.
    Reap,
    ReapRcu,
}

/// A process as both sides know it: what fork takes, in slots from 0 on; whether it execs; its share of the unit's work.
pub(crate) struct Process {
    objects: Vec<(What, Fate, u32)>,
    execs: bool,
    share: f64,
    random: Random,
}

/// Draws the processes of a mix.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) mix: Mix,
    /// User work of a unit.
    pub(crate) user: Picos,
    pub(crate) random: Random,
}

impl Source {
    /// Processes of the next unit.
    pub(crate) fn unit(&mut self) -> u32 {
        about(&mut self.random, self.mix.processes).max(1)
    }

    /// The next process of a unit of `n`.
    pub(crate) fn process(&mut self, n: u32) -> Process {
        let (k, mix, random) = (&self.kernel, &self.mix, &mut self.random);
        let mut objects: Vec<(What, Fate, u32)> = Vec::new();
        let mut add = |what: Option<What>, fate, bytes, n: u32| {
            objects.extend(what.into_iter().flat_map(|w| std::iter::repeat_n((w, fate, bytes), n as usize)));
        };
        use Fate::{Exit, Map, Reap, ReapRcu};
        add(k.what(Kind::Task), ReapRcu, 1024, 1);
        // The stack: two pages, mapped one by one since it is mapped at all (6.1).
        if k.what(Kind::VmapArea).is_none() {
            add(Some(What::Pages(1)), Reap, 512, 1);
        } else {
            add(Some(What::Pages(0)), Reap, 512, 4);
            let (areas, radix) = (about(random, mix.areas), about(random, mix.radix));
            add(k.what(Kind::VmapArea), Reap, 64, areas);
            add(k.what(Kind::Radix), ReapRcu, 64, radix);
            for (bytes, mean) in mix.fork_kmalloc {
                add(Some(What::Kmalloc(*bytes)), Reap, 32, about(random, *mean));
            }
        }
        add(k.what(Kind::Cred), ReapRcu, 128, 1);
        add(k.what(Kind::Files), Exit, 256, 1);
        add(k.what(Kind::Fs), Exit, 64, 1);
        add(k.what(Kind::Sighand), Reap, 256, 1);
        add(k.what(Kind::Signal), ReapRcu, 256, 1);
        add(k.what(Kind::Pid), ReapRcu, 64, 1);
        if random.chance(mix.copies) {
            add(k.what(Kind::Mm), Map, 512, 1);
            // The page directory.
            add(Some(What::Pages(0)), Map, 512, 1);
            for (kind, bytes, mean) in [
                (Kind::Vma, 176, mix.copy.vmas),
                (Kind::AnonVma, 64, mix.copy.anons),
                (Kind::AnonVmaChain, 64, mix.copy.chains),
                (Kind::Maple, 64, mix.copy.nodes),
            ] {
                add(k.what(kind), Map, bytes, about(random, mean));
            }
        }
        let execs = random.chance(mix.execs);
        let random = Random::new(random.bits(), 1);
        Process { objects, execs, share: 1.0 / f64::from(n), random }
    }
}

/// Forks, waits, reaps.
pub(crate) fn fork_and_reap(k: &Kernel, p: &mut Program, process: &Process, to: u32, back: u32) {
    k.fork_work(p);
    let n = process.objects.len() as u32;
    for (slot, (what, _, bytes)) in (0..).zip(&process.objects) {
        p.push(Op::Alloc { what: *what, into: slot });
        p.push(Op::Touch { slot, bytes: *bytes, write: true });
    }
    p.push(Op::Send { queue: to, from: 0, count: n });
    p.push(Op::Recv { queue: back, into: 0 });
    for (slot, (_, fate, _)) in (0..).zip(&process.objects) {
        match fate {
            Fate::Reap => p.push(Op::Free { slot }),
            Fate::ReapRcu => p.push(Op::FreeRcu { slot }),
            Fate::Map | Fate::Exit => {}
        }
    }
    // The signal that told of the end.
    p.push(Op::Free { slot: n });
}

/// Stands for the processes that one parent forks, one after another.
pub(crate) struct Child {
    pub(crate) source: Source,
    pub(crate) queue: u32,
    pub(crate) back: u32,
    program: Program,
    left: u32,
    unit: u32,
}

impl Child {
    pub(crate) fn new(source: Source, queue: u32, back: u32) -> Child {
        Child { source, queue, back, program: Program::from(OWN), left: 0, unit: 1 }
    }

    /// Writes the life of the next process.
    fn live(&mut self) {
        if self.left == 0 {
            self.unit = self.source.unit();
            self.left = self.unit;
        }
        self.left -= 1;
        let process = self.source.process(self.unit);
        let (source, p) = (&self.source, &mut self.program);
        p.push(Op::Recv { queue: self.queue, into: 0 });
        life(&source.kernel, &source.mix, source.user, p, process, self.back);
    }
}

impl Task for Child {
    fn step(&mut self) -> Op {
        loop {
            if let Some(op) = self.program.next() {
                return op;
            }
            self.live();
        }
    }
}

/// exec, work, exit of one process.
fn life(k: &Kernel, mix: &Mix, user: Picos, p: &mut Program, process: Process, back: u32) {
    let Process { objects, execs, share, mut random } = process;
    let r = &mut random;
    let mut count = |mean: f64| about(r, mean * share);
    let (brks, stats, accesses, missing) = (count(mix.brks), count(mix.stats), count(mix.accesses), count(mix.missing));
    let (opens, creates, pipes, pages) = (count(mix.opens), count(mix.creates), count(mix.pipes), count(mix.pages));
    let vmas = if execs { about(r, mix.exec.vmas) } else { 0 };
    let calls = (brks + stats + accesses + missing + 2 * opens + 3 * creates + vmas + pages / 4).clamp(1, MOST);
    p.user = Picos((user.0 as f64 * share / f64::from(calls)) as u64);
    let mut map: Vec<u32> = Vec::new();
    let old_map = |p: &mut Program| {
        for (slot, (_, fate, _)) in (0..).zip(&objects) {
            if *fate == Fate::Map {
                p.push(Op::Free { slot });
            }
        }
    };
    if execs {
        k.exec_work(p);
        k.path(p);
        let brief: Vec<u32> = mix
            .exec_kmalloc
            .iter()
            .flat_map(|(bytes, mean)| std::iter::repeat_n(*bytes, about(r, *mean) as usize).collect::<Vec<_>>())
            .map(|bytes| p.take(What::Kmalloc(bytes), bytes.min(256)))
            .collect();
        map.extend(k.what(Kind::Mm).map(|what| p.take(what, 512)));
        map.push(p.take(What::Pages(0), 512));
        if let Some(what) = k.what(Kind::Cred) {
            let cred = p.take(what, 128);
            p.give_rcu(cred);
        }
        brief.into_iter().rev().for_each(|slot| p.give(slot));
        old_map(p);
        for _ in 0..about(r, mix.proc_files) {
            // A link of /proc is read: entry and inode, dropped soon.
            for (kind, bytes) in [(Kind::Dentry, 192), (Kind::ProcInode, 256)] {
                let object = k.what(kind).map(|what| p.take(what, bytes));
                object.into_iter().for_each(|slot| p.give_rcu(slot));
            }
        }
        let spread = |total: f64, r: &mut Random| about(r, if vmas == 0 { 0.0 } else { total / f64::from(vmas) });
        for _ in 0..vmas {
            let nodes = mix.nodes + spread(mix.exec.nodes, r);
            let (anons, chains) = (spread(mix.exec.anons, r), spread(mix.exec.chains, r));
            map.extend(k.mmap(p, nodes, anons, chains));
        }
    }
    // Opened files stay open for a while, so that they are not freed in the order in which they were taken.
    let mut open = Vec::new();
    let mut journal = Vec::new();
    let mut files = Vec::new();
    let rounds = stats.max(missing).max(opens).max(brks).max(pages).max(creates).max(accesses).max(1);
    let due = |n: u32, i: u32| {
        (u64::from(n) * u64::from(i + 1) / u64::from(rounds)) as u32
            - (u64::from(n) * u64::from(i) / u64::from(rounds)) as u32
    };
    for i in 0..rounds {
        (0..due(stats, i)).for_each(|_| k.stat(p));
        (0..due(accesses, i)).for_each(|_| k.access(p));
        (0..due(missing, i)).for_each(|_| k.missing(p));
        (0..due(brks, i)).for_each(|_| k.brk(p, mix.nodes));
        for _ in 0..due(pages, i) {
            map.push(k.fault(p));
        }
        for _ in 0..due(opens, i) {
            open.push(k.open(p));
            if open.len() > 3 {
                k.close(p, open.swap_remove(r.below(3) as usize));
            }
        }
        for _ in 0..due(creates, i) {
            let (opened, mut file) = k.create(p, &mut journal);
            k.write(p, &mut file, 2048, 1, 0);
            k.close(p, opened);
            files.push(file);
        }
    }
    for _ in 0..pipes {
        p.enter();
        let (info, ring) = (p.take(What::Kmalloc(192), 192), p.take(What::Kmalloc(1024), 64));
        p.give(ring);
        p.give(info);
    }
    open.into_iter().for_each(|o| k.close(p, o));
    files.into_iter().for_each(|f| k.unlink(p, f, &mut journal));
    if !journal.is_empty() {
        k.commit(p, &mut journal);
    }
    // exit
    p.enter();
    map.into_iter().rev().for_each(|slot| p.give(slot));
    if !execs {
        old_map(p);
    }
    for (slot, (_, fate, _)) in (0..).zip(&objects) {
        if *fate == Fate::Exit {
            p.push(Op::Free { slot });
        }
    }
    let n = objects.len() as u32;
    if let Some(what) = k.what(Kind::Sigqueue) {
        p.push(Op::Alloc { what, into: n });
        p.push(Op::Touch { slot: n, bytes: 80, write: true });
    }
    p.push(Op::Send { queue: back, from: 0, count: n + 1 });
}
