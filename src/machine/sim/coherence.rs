//! The line directory: who holds each cache line, and what an access therefore costs (machine-model.md §3).
//!
//! One record of eight u32 per line: `[owner:16 state:8 home:8] [l1] [l2] [llc] [sharers lo] [sharers hi] [until] [length]`.
//! States: 0 invalid (in memory only), 1 exclusive clean, 2 modified, 3 shared. `owner` is the only holder in states 1
//! and 2 and the last CPU that touched the line in state 3. `l1`, `l2`, `llc` are the fill counters of the owner's
//! caches when it last touched the line: the line is still resident if fewer than the cache's lines × κ have been filled
//! since (fill-count residency, §3.3). Sharers are a bit per CPU; beyond 64 CPUs a bit per group of neighbours.
//!
//! `until` and `length` are the stretch of time, in units of 64 ps, in which the line is on its way between caches: a transfer
//! that comes within it waits for its end, so that CPUs that hammer one line get it one after the other (§3.4).
//!
//! A line that many CPUs read (a cache descriptor) changes its last toucher all the time, so what a sharer that was
//! not the last one still holds is kept in a small per-CPU table, 1,024 lines by line number.

use super::cost::CostModel;
use super::lru::Exact;
use crate::machine::memory::Records;
use crate::machine::{Access, Addr};
use crate::topology::{Distance, Topology};
use crate::units::{CpuId, LINE, NodeId, PAGE_SIZE};

const INVALID: u32 = 0;
const EXCLUSIVE: u32 = 1;
const MODIFIED: u32 = 2;
const SHARED: u32 = 3;
const NOBODY: usize = 0xffff;
const SHARED_TABLE: usize = 1024;
/// Transfers are timed in units of 2 to this many picoseconds.
const TRANSFER_UNIT: u32 = 6;
/// Longest wait for a bus: two microseconds, about 300 lines.
const FAR_AHEAD: u64 = 2_000_000;
/// Prefetches of a CPU that can be under way at once.
const PREFETCHES: usize = 4;

/// Where in its caches a CPU finds a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    L1,
    L2,
    Llc,
    Memory,
}

/// Fill counters and small tables of one CPU.
struct CpuCaches {
    l1_fills: u32,
    l2: usize,
    llc: usize,
    node: u16,
    shared: Vec<(u32, u32)>,
    /// The last prefetched lines and when they arrive, and which entry is the oldest.
    prefetched: [(usize, u64); PREFETCHES],
    next_prefetch: usize,
    /// Prefetches under way: usually none, and then nothing is searched.
    in_flight: u32,
    /// Inside `grouped`: longest latency, sum of all, and a line that moved.
    group: Option<(u64, u64, Option<usize>)>,
}

impl CpuCaches {
    /// Cost of an access to a line that may be under way.
    fn await_prefetch(&mut self, line: usize, now: u64, ps: u64) -> u64 {
        match self.prefetched.iter_mut().find(|p| p.0 == line) {
            Some(p) => {
                p.0 = usize::MAX;
                self.in_flight -= 1;
                ps.max(p.1.saturating_sub(now))
            }
            None => ps,
        }
    }
}

/// Directory and cache occupancy of the whole machine.
pub(super) struct Coherence {
    lines: Records,
    blobs: Records,
    cpus: Vec<CpuCaches>,
    l2_fills: Vec<u32>,
    llc_fills: Vec<u32>,
    distances: Vec<Distance>,
    /// Of each CPU the CPUs at most so far away: same core, second-level cache, last-level cache, socket.
    near: Vec<[u64; 4]>,
    group_shift: u32,
    /// Sets and ways instead of fill counts (residency = exact).
    exact: Option<Box<Exact>>,
    /// When each socket's front-side bus is free (bus = contended).
    buses: Vec<u64>,
    sockets: Vec<usize>,
    node_starts: Vec<u64>,
    arena: u64,
    /// Accesses that did not find the line in the own first-level cache: served by the second-level one, the last-level
    /// one or another CPU's, memory.
    pub(super) beyond_l1: [u64; 3],
    /// The last access moved a line from another CPU's cache, or took the others' copies away.
    pub(super) moved: bool,
}

impl Coherence {
    pub(super) fn new(t: &Topology, cost: &CostModel, arena: u64, end: u64) -> Result<Coherence, String> {
        let n = t.cpus();
        let group_shift = n.div_ceil(64).next_power_of_two().trailing_zeros();
        let bit = |c: usize| 1u64 << (c >> group_shift);
        let distances: Vec<Distance> =
            (0..n * n).map(|i| t.distance(CpuId((i / n) as u16), CpuId((i % n) as u16))).collect();
        let mask =
            |c: usize, far: Distance| (0..n).filter(|&o| distances[c * n + o] <= far).fold(0u64, |m, o| m | bit(o));
        let mut start = 0;
        let mut node_starts = Vec::new();
        for node in t.node_ids() {
            node_starts.push(start);
            start += t.node_bytes(node);
        }
        let place = |c: usize| t.place(CpuId(c as u16));
        let count = |f: &dyn Fn(usize) -> u16| (0..n).map(f).max().map_or(0, |m| usize::from(m) + 1);
        Ok(Coherence {
            lines: Records::new((end / LINE) as usize)?,
            blobs: Records::new((arena / PAGE_SIZE) as usize)?,
            cpus: (0..n)
                .map(|c| CpuCaches {
                    l1_fills: 1 << 30,
                    l2: usize::from(place(c).l2),
                    llc: usize::from(place(c).llc),
                    node: place(c).node.0,
                    shared: vec![(u32::MAX, 0); SHARED_TABLE],
                    prefetched: [(usize::MAX, 0); PREFETCHES],
                    next_prefetch: 0,
                    in_flight: 0,
                    group: None,
                })
                .collect(),
            l2_fills: vec![1 << 30; count(&|c| place(c).l2)],
            llc_fills: vec![1 << 30; count(&|c| place(c).llc)],
            near: (0..n)
                .map(|c| {
                    [Distance::SameCore, Distance::SameL2, Distance::SameSocket, Distance::CrossCcd].map(|d| mask(c, d))
                })
                .collect(),
            distances,
            group_shift,
            exact: cost.exact.map(|shape| Box::new(Exact::new(t, shape))),
            buses: vec![0; count(&|c| place(c).socket)],
            sockets: (0..n).map(|c| usize::from(place(c).socket)).collect(),
            node_starts,
            arena,
            beyond_l1: [0; 3],
            moved: false,
        })
    }

    pub(super) fn distance(&self, a: usize, b: usize) -> Distance {
        self.distances[a * self.cpus.len() + b]
    }

    /// Declares the home node of a metadata range.
    pub(super) fn set_home(&mut self, addr: Addr, bytes: u64, node: NodeId) {
        for line in addr.line()..(addr.0 + bytes).div_ceil(LINE) {
            self.lines.at(line as usize)[0] = (NOBODY as u32) | u32::from(node.0) << 24;
        }
    }

    /// How far the farthest of some sharers is from `cpu`; none: it is of the CPUs that share a bit with `cpu`.
    fn farthest(&self, cpu: usize, sharers: u64) -> Distance {
        if sharers == 0 {
            return self.distance(cpu, (cpu ^ 1).min(self.cpus.len() - 1));
        }
        let beyond = self.near[cpu].map(|near| sharers & !near != 0);
        match beyond {
            [_, _, _, true] => Distance::CrossSocket,
            [_, _, true, _] => Distance::CrossCcd,
            [_, true, _, _] => Distance::SameSocket,
            [true, ..] => Distance::SameL2,
            _ => Distance::SameCore,
        }
    }

    fn node_of_byte(&self, byte: u64) -> u16 {
        self.node_starts.iter().rposition(|&s| s <= byte).unwrap_or(0) as u16
    }

    /// Home of a line of the arena or of the frames; metadata lines were told theirs.
    fn home(&self, line: usize, record: u32) -> u16 {
        let byte = line as u64 * LINE;
        if byte < self.arena {
            self.node_of_byte(byte)
        } else if byte < self.arena + self.arena / PAGE_SIZE * LINE {
            self.node_of_byte((byte - self.arena) / LINE * PAGE_SIZE)
        } else {
            (record >> 24) as u16
        }
    }

    fn memory_latency(&self, cost: &CostModel, cpu: usize, home: u16) -> u64 {
        if self.cpus[cpu].node == home { cost.mem_local } else { cost.mem_remote }
    }

    /// Finds at which level `cpu` still holds a line it touched when its counters stood at `stamps`.
    fn level(&self, cost: &CostModel, cpu: usize, line: usize, stamps: [u32; 3]) -> Level {
        if let Some(exact) = &self.exact {
            return [Level::L1, Level::L2, Level::Llc, Level::Memory][exact.level(cpu, line)];
        }
        let c = &self.cpus[cpu];
        if c.l1_fills.wrapping_sub(stamps[0]) < cost.resident[0] {
            Level::L1
        } else if self.l2_fills[c.l2].wrapping_sub(stamps[1]) < cost.resident[1] {
            Level::L2
        } else if self.llc_fills[c.llc].wrapping_sub(stamps[2]) < cost.resident[2] {
            Level::Llc
        } else {
            Level::Memory
        }
    }

    /// Counts the fills that an access served at `level` causes on the way to the CPU.
    fn fill(&mut self, cpu: usize, level: Level, lines: u32) {
        let c = &mut self.cpus[cpu];
        if level != Level::L1 {
            c.l1_fills = c.l1_fills.wrapping_add(lines);
        }
        if matches!(level, Level::Llc | Level::Memory) {
            self.l2_fills[c.l2] = self.l2_fills[c.l2].wrapping_add(lines);
        }
        if level == Level::Memory {
            self.llc_fills[c.llc] = self.llc_fills[c.llc].wrapping_add(lines);
        }
    }

    fn level_latency(&self, cost: &CostModel, cpu: usize, level: Level, home: u16) -> u64 {
        match level {
            Level::L1 => cost.l1,
            Level::L2 => cost.l2,
            Level::Llc => cost.llc,
            Level::Memory => self.memory_latency(cost, cpu, home),
        }
    }

    fn transfer(cost: &CostModel, d: Distance) -> u64 {
        match d {
            Distance::Own => cost.l1,
            Distance::SameCore => cost.dirty_smt,
            Distance::SameL2 => cost.dirty[0],
            Distance::SameSocket => cost.dirty[1],
            Distance::CrossCcd => cost.dirty[2],
            Distance::CrossSocket => cost.dirty[3],
        }
    }

    /// Charges one access and moves the line: returns picoseconds.
    #[inline]
    pub(super) fn access(&mut self, cost: &CostModel, cpu: usize, line: usize, access: Access, now: u64) -> u64 {
        let r = *self.lines.at(line);
        let (owner, state) = (r[0] as usize & 0xffff, (r[0] >> 16) & 0xff);
        // Fast case: the line is ours alone and in the first-level cache.
        let own = owner == cpu && (state == MODIFIED || state == EXCLUSIVE);
        let ps = if own && self.exact.is_none() && self.cpus[cpu].l1_fills.wrapping_sub(r[1]) < cost.resident[0] {
            if access != Access::Read && state != MODIFIED {
                self.lines.at(line)[0] = (r[0] & 0xff00_ffff) | MODIFIED << 16;
            }
            self.lines.at(line)[1] = self.cpus[cpu].l1_fills;
            match access {
                Access::Read | Access::Write => cost.l1,
                Access::Rmw => cost.l1 + cost.atomic,
                Access::Prefetch => cost.prefetch,
            }
        } else {
            self.access_slow(cost, cpu, line, access, now)
        };
        let c = &mut self.cpus[cpu];
        let ps = if c.in_flight > 0 && access != Access::Prefetch { c.await_prefetch(line, now, ps) } else { ps };
        match &mut c.group {
            None => ps,
            Some((longest, sum, moved)) => {
                *longest = (*longest).max(ps);
                *sum += ps;
                if std::mem::take(&mut self.moved) {
                    *moved = Some(line);
                }
                0
            }
        }
    }

    fn access_slow(&mut self, cost: &CostModel, cpu: usize, line: usize, access: Access, now: u64) -> u64 {
        let r = *self.lines.at(line);
        let (owner, state) = (r[0] as usize & 0xffff, (r[0] >> 16) & 0xff);
        let home = self.home(line, r[0]);
        let me = 1u64 << (cpu >> self.group_shift);
        let sharers = u64::from(r[4]) | u64::from(r[5]) << 32;
        let stamps = [r[1], r[2], r[3]];
        let store = access != Access::Read;

        // Latency of getting the data here, and whether others had to give up a copy of it.
        let (latency, level, new_state, new_sharers) = match state {
            INVALID => {
                let s = if store { MODIFIED } else { EXCLUSIVE };
                (self.memory_latency(cost, cpu, home), Level::Memory, s, 0)
            }
            EXCLUSIVE | MODIFIED if owner == cpu => {
                let level = self.level(cost, cpu, line, stamps);
                (self.level_latency(cost, cpu, level, home), level, if store { MODIFIED } else { state }, 0)
            }
            EXCLUSIVE | MODIFIED => {
                let d = self.distance(cpu, owner);
                let held = self.level(cost, owner, line, stamps);
                let here = self.cpus[cpu].llc == self.cpus[owner].llc;
                let (latency, level) = match held {
                    Level::L1 | Level::L2 if state == MODIFIED => (Self::transfer(cost, d), Level::Llc),
                    Level::L1 | Level::L2 | Level::Llc if here && cost.llc > 0 => (cost.llc, Level::Llc),
                    Level::Llc if state == MODIFIED => (Self::transfer(cost, d), Level::Llc),
                    _ => (self.memory_latency(cost, cpu, home), Level::Memory),
                };
                self.moved = state == MODIFIED && held != Level::Memory;
                let theirs = 1u64 << (owner >> self.group_shift);
                if store { (latency, level, MODIFIED, 0) } else { (latency, level, SHARED, me | theirs) }
            }
            _ => {
                let level = if owner == cpu {
                    self.level(cost, cpu, line, stamps)
                } else if sharers & me != 0 {
                    self.shared_level(cost, cpu, line)
                } else if self.cpus.get(owner).is_some_and(|o| o.llc == self.cpus[cpu].llc)
                    && cost.llc > 0
                    && self.level(cost, owner, line, stamps) != Level::Memory
                {
                    Level::Llc
                } else {
                    Level::Memory
                };
                let read = self.level_latency(cost, cpu, level, home);
                if !store {
                    (read, level, SHARED, sharers | me)
                } else {
                    // A shared line has at least two sharers, so somebody else has to give it up.
                    let far = self.farthest(cpu, sharers & !me);
                    self.moved = true;
                    (Self::transfer(cost, far) + cost.shared_extra, level, MODIFIED, 0)
                }
            }
        };
        match level {
            Level::L1 => {}
            Level::L2 => self.beyond_l1[0] += 1,
            Level::Llc => self.beyond_l1[1] += 1,
            Level::Memory => self.beyond_l1[2] += 1,
        }
        if self.exact.is_some() {
            self.use_exact(cpu, line, store, state, owner, sharers);
        }
        let other = (owner != cpu && owner != NOBODY && self.moved).then_some(owner);
        let latency = match level {
            _ if self.moved => latency + self.wait_for_line(line, now, latency),
            Level::Memory => {
                // On its way from memory: a transfer meanwhile waits for it.
                let record = self.lines.at(line);
                record[7] = (latency >> TRANSFER_UNIT).max(1) as u32;
                record[6] = ((now >> TRANSFER_UNIT) as u32).wrapping_add(record[7]);
                latency
            }
            _ => latency,
        };
        let latency = if cost.bus_line > 0 && matches!(level, Level::Llc | Level::Memory) {
            latency + self.wait_for_bus(cost, cpu, other, 1, now)
        } else {
            latency
        };
        self.fill(cpu, level, 1);
        let c = &self.cpus[cpu];
        let stamps = [c.l1_fills, self.l2_fills[c.l2], self.llc_fills[c.llc]];
        let record = self.lines.at(line);
        record[0] = cpu as u32 | new_state << 16 | (r[0] & 0xff00_0000);
        record[1..4].copy_from_slice(&stamps);
        record[4] = new_sharers as u32;
        record[5] = (new_sharers >> 32) as u32;
        if new_state == SHARED {
            self.cpus[cpu].shared[line % SHARED_TABLE] = (line as u32, stamps[0]);
        }
        match access {
            Access::Read => latency,
            Access::Write if latency <= cost.l1 => latency,
            Access::Write => ((latency * cost.store_overlap_x1024) >> 10).max(cost.l1),
            Access::Rmw => latency + cost.atomic,
            Access::Prefetch => {
                let c = &mut self.cpus[cpu];
                c.in_flight += u32::from(c.prefetched[c.next_prefetch].0 == usize::MAX);
                c.prefetched[c.next_prefetch] = (line, now + latency);
                c.next_prefetch = (c.next_prefetch + 1) % PREFETCHES;
                cost.prefetch
            }
        }
    }

    /// Exact residency: the line comes in here, and a store takes it away elsewhere.
    fn use_exact(&mut self, cpu: usize, line: usize, store: bool, state: u32, owner: usize, sharers: u64) {
        let shift = self.group_shift;
        let Some(exact) = &mut self.exact else { return };
        if store && state != INVALID {
            let shares = |c: usize| state == SHARED && sharers & (1 << (c >> shift)) != 0;
            for other in (0..self.cpus.len()).filter(|&c| c != cpu && (c == owner || shares(c))) {
                exact.take_away(other, line);
            }
        }
        exact.touch(cpu, line);
    }

    /// How long a transfer of `latency` that starts at `now` waits for those before it.
    fn wait_for_line(&mut self, line: usize, now: u64, latency: u64) -> u64 {
        let record = self.lines.at(line);
        let (at, length) = ((now >> TRANSFER_UNIT) as u32, (latency >> TRANSFER_UNIT).max(1) as u32);
        let ahead = record[6].wrapping_sub(at);
        let waits = ahead > 0 && ahead <= record[7];
        let wait = if waits { ahead } else { 0 };
        record[6] = at.wrapping_add(wait).wrapping_add(length);
        record[7] = if waits { (record[7] + length).min(1 << 20) } else { length };
        u64::from(wait) << TRANSFER_UNIT
    }

    /// How long `lines` lines to `cpu` (from the caches of `other`, if not from memory) wait for the front-side buses they
    /// occupy. A bus that a CPU which ran ahead holds in the far future is no reason to wait.
    fn wait_for_bus(&mut self, cost: &CostModel, cpu: usize, other: Option<usize>, lines: u64, now: u64) -> u64 {
        if other.is_some_and(|o| self.cpus[o].l2 == self.cpus[cpu].l2) {
            return 0;
        }
        let own = self.sockets[cpu];
        let also = other.map(|o| self.sockets[o]);
        let takes = |bus: usize| bus == own || Some(bus) == also || cost.bus_snooped;
        let free = (0..self.buses.len()).filter(|&b| takes(b)).map(|b| self.buses[b]).max().unwrap_or(0);
        let wait = Some(free.saturating_sub(now)).filter(|w| *w < FAR_AHEAD).unwrap_or(0);
        for bus in (0..self.buses.len()).filter(|&b| takes(b)) {
            self.buses[bus] = now + wait + lines * cost.bus_line;
        }
        wait
    }

    /// Level at which a sharer that was not the last toucher holds a shared line.
    fn shared_level(&self, cost: &CostModel, cpu: usize, line: usize) -> Level {
        if self.exact.is_some() {
            return self.level(cost, cpu, line, [0; 3]);
        }
        let c = &self.cpus[cpu];
        let (tag, stamp) = c.shared[line % SHARED_TABLE];
        if tag == line as u32 && c.l1_fills.wrapping_sub(stamp) < cost.resident[0] { Level::L1 } else { Level::L2 }
    }

    /// Gives a line to `cpu` without charge: the transfer was part of a lock's hand-off.
    pub(super) fn hand_over(&mut self, cpu: usize, line: usize) {
        let c = &self.cpus[cpu];
        let stamps = [c.l1_fills, self.l2_fills[c.l2], self.llc_fills[c.llc]];
        let r = self.lines.at(line);
        r[0] = cpu as u32 | MODIFIED << 16 | (r[0] & 0xff00_0000);
        r[1..4].copy_from_slice(&stamps);
        r[4] = 0;
        r[5] = 0;
    }

    /// Transfer latency between two CPUs, for hand-offs.
    pub(super) fn transfer_between(&self, cost: &CostModel, a: usize, b: usize) -> u64 {
        Self::transfer(cost, self.distance(a, b))
    }

    /// Counts `lines` of user memory as filled into the first- and second-level cache, from the last-level one.
    pub(super) fn footprint(&mut self, cpu: usize, lines: u32) {
        if let Some(exact) = &mut self.exact {
            exact.footprint(cpu, lines, false);
        }
        self.fill(cpu, Level::Llc, lines);
    }

    pub(super) fn group_begin(&mut self, cpu: usize) {
        self.cpus[cpu].group = Some((0, 0, None));
    }

    /// Ends a group: the longest latency in full, the given part of the rest; and a line of it that moved.
    pub(super) fn group_end(&mut self, cost: &CostModel, cpu: usize) -> (u64, Option<usize>) {
        let (longest, sum, moved) = self.cpus[cpu].group.take().unwrap_or((0, 0, None));
        (longest + (((sum - longest) * cost.group_rest_x1024) >> 10), moved)
    }

    /// Charges a payload copy: one record per page, lines × latency / MLP for what is not in the own caches, plus
    /// the copy itself at the hot rate. The user's side of the copy is taken to be hot in the second-level cache: it costs
    /// nothing more, and fills the first-level one.
    /// A copy longer than a page is charged on the record of its first page.
    pub(super) fn copy(&mut self, cost: &CostModel, cpu: usize, addr: Addr, bytes: u64, write: bool, now: u64) -> u64 {
        let page = (addr.0 / PAGE_SIZE) as usize;
        let n = bytes.div_ceil(LINE);
        let r = *self.blobs.at(page);
        let (owner, dirty, used) = (r[0] as usize & 0xffff, (r[0] >> 16) & 1 == 1, (r[0] >> 17) & 1 == 1);
        let home = self.node_of_byte(addr.0);
        let stamps = [r[1], r[2], r[3]];
        let first = addr.line() as usize;
        let one = |line: usize| {
            if !used {
                (self.memory_latency(cost, cpu, home), Level::Memory)
            } else if owner == cpu {
                match self.level(cost, cpu, line, stamps) {
                    near @ (Level::L1 | Level::L2) => (0, near),
                    far => (self.level_latency(cost, cpu, far, home), far),
                }
            } else {
                match self.level(cost, owner, line, stamps) {
                    Level::Memory => (self.memory_latency(cost, cpu, home), Level::Memory),
                    _ if !dirty && (self.cpus[cpu].llc != self.cpus[owner].llc || cost.llc == 0) => {
                        (self.memory_latency(cost, cpu, home), Level::Memory)
                    }
                    _ => (self.transfer_between(cost, cpu, owner), Level::Llc),
                }
            }
        };
        // The cheap rule knows one level for the whole blob, the exact one a level per line.
        let (sum, level) = if self.exact.is_some() {
            let sum = (0..n as usize).map(|i| one(first + i).0).sum();
            (sum, one(first).1)
        } else {
            let (latency, level) = one(first);
            (n * latency, level)
        };
        if let Some(exact) = &mut self.exact {
            for line in first..first + n as usize {
                if write && used && owner != cpu {
                    exact.take_away(owner, line);
                }
                exact.touch(cpu, line);
            }
            exact.footprint(cpu, n as u32, true);
        }
        let bus = if cost.bus_line > 0 && matches!(level, Level::Llc | Level::Memory) {
            let other = (used && owner != cpu && level == Level::Llc).then_some(owner);
            self.wait_for_bus(cost, cpu, other, n, now)
        } else {
            0
        };
        self.fill(cpu, level, n as u32);
        self.fill(cpu, Level::L2, n as u32);
        let c = &self.cpus[cpu];
        let stamps = [c.l1_fills, self.l2_fills[c.l2], self.llc_fills[c.llc]];
        let record = self.blobs.at(page);
        record[0] = cpu as u32 | u32::from(write || (dirty && owner == cpu)) << 16 | 1 << 17;
        record[1..4].copy_from_slice(&stamps);
        ((bytes * cost.copy_x1024) >> 10) + sum / cost.mlp + bus
    }
}
