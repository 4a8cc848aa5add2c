//! `CostModel`: the preset's hardware figures, turned once into integer picoseconds.

use super::LockKind;
use crate::error::Error;
use crate::machine::Event;
use crate::machine::presets::Machinery;
use crate::units::Instr;

/// Everything the simulated machine charges, in picoseconds unless said.
#[derive(Clone, Debug)]
pub struct CostModel {
    /// Picoseconds of one instruction × 1024 (clock period times cycles per instruction).
    pub instruction_x1024: u64,
    /// Load hit in the own first-level cache, amortised.
    pub l1: u64,
    /// Hit in the second-level cache.
    pub l2: u64,
    /// Hit in the last-level cache; 0 where there is none.
    pub llc: u64,
    /// Memory of the own node.
    pub mem_local: u64,
    /// Memory of another node.
    pub mem_remote: u64,
    /// Line dirty in another CPU's cache, by distance: same L2, same socket, other CCD, other socket.
    pub dirty: [u64; 4],
    /// The same between two threads of a core.
    pub dirty_smt: u64,
    /// Store to a line that others share: added to the transfer.
    pub shared_extra: u64,
    /// Locked read-modify-write of a line in the own cache.
    pub atomic: u64,
    /// Issue cost of a prefetch.
    pub prefetch: u64,
    /// Part of a store's latency that the store buffer leaves visible, in 1/1024.
    pub store_overlap_x1024: u64,
    /// Part of the shorter latencies of a group that stays visible, in 1/1024.
    pub group_rest_x1024: u64,
    /// Lines in flight at once in a payload copy.
    pub mlp: u64,
    /// Payload copy with both buffers in the own caches, picoseconds per byte × 1024.
    pub copy_x1024: u64,
    /// Lines of the three cache levels that the fill-count rule counts as resident.
    pub resident: [u32; 3],
    /// Fixed costs in the order of [`Event`].
    events: [u64; 8],
    /// From the interrupt to the woken task's first instruction on an idle CPU.
    pub ipi_to_run: u64,
    /// Extra lines a waiter's re-read costs in a hand-off, as part of a transfer in 1/1024, and at how many waiters it stops.
    pub reread_x1024: u64,
    /// See `reread_x1024`.
    pub reread_cap: usize,
    /// Kind of plain spin locks.
    pub locks: LockKind,
    /// What an idle CPU does.
    pub idle: IdleStates,
    /// Time of a line on a front-side bus; 0: buses are free.
    pub bus_line: u64,
    /// Every bus sees every line (no snoop filter).
    pub bus_snooped: bool,
    /// Speed of each of two busy sibling threads, in 1/1024.
    pub smt_x1024: u64,
    /// How far a visible action may pass others (order = skewed); 0: exact order.
    pub skew: u64,
    /// Added to every allocation and every free of pages (page_extra): 0 but for hypotheses.
    pub page_extra: u64,
    /// Sets and ways of the three cache levels, for exact residency; empty when the cheap rule is used.
    pub exact: Option<[(usize, usize); 3]>,
}

/// What an idle CPU does, and what leaving that costs beyond `ipi_to_run_c1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleStates {
    /// It halts (C1).
    C1,
    /// It polls a flag: no interrupt is sent, and it runs after this time.
    Poll(u64),
    /// It goes deeper the longer it slept the last time: pairs of (least last sleep, exit time beyond that of C1), deepest
    /// last (machine-model.md §15.3).
    Deep([(u64, u64); 3]),
}

impl IdleStates {
    fn new(m: &Machinery, micros: impl Fn(&str) -> Result<Option<u64>, Error>) -> Result<IdleStates, Error> {
        Ok(match m.word("idle_states").as_deref() {
            Some("poll") => IdleStates::Poll((m.number("idle_poll_exit")? * 1000.0).round() as u64),
            Some("deep") => {
                let c1 = micros("idle_c1_exit")?.unwrap_or(0);
                let state = |name: &str, least: &dyn Fn(u64) -> u64| {
                    micros(name).map(|exit| exit.map_or((u64::MAX, 0), |e| (least(e), e.saturating_sub(c1))))
                };
                IdleStates::Deep([
                    state("idle_c1e_exit", &|_| 20_000_000)?,
                    state("idle_c3_exit", &|exit| 3 * exit)?,
                    state("idle_c6_exit", &|exit| 3 * exit)?,
                ])
            }
            _ => IdleStates::C1,
        })
    }

    /// Exit time beyond that of C1 for a CPU that slept `last` the last time.
    pub fn extra(self, last: u64) -> u64 {
        match self {
            IdleStates::Deep(states) => {
                states.iter().filter(|(least, _)| last >= *least).map(|(_, exit)| *exit).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
}

impl CostModel {
    /// Reads the figures of a machine.
    pub fn new(m: &Machinery) -> Result<CostModel, Error> {
        let period = 1000.0 / m.number("freq")?;
        let cycles = |name: &str| m.optional(name).map(|v| v.map_or(0, |c| (c * period).round() as u64));
        let nanos = |name: &str| m.optional(name).map(|v| v.map_or(0, |ns| (ns * 1000.0).round() as u64));
        let micros = |name: &str| m.optional(name).map(|v| v.map(|us| (us * 1e6).round() as u64));
        let part = |name: &str| m.number(name).map(|v| (v * 1024.0).round() as u64);
        let kappa = m.number("residency_kappa")?;
        let resident = |name: &str| m.number(name).map(|kib| (kib * 16.0 * kappa) as u32);
        let idle_scale = m.number("idle_scale")?;
        let socket = cycles("dirty_cross_socket")?;
        let same_socket = cycles("dirty_same_socket")?;
        let or = |a: u64, b: u64| if a == 0 { b } else { a };
        let scaled = |ps: u64| (ps as f64 * idle_scale).round() as u64;
        Ok(CostModel {
            instruction_x1024: (period * m.number("cpi")? * 1024.0).round() as u64,
            l1: (period * m.number("l1_amortised")?).round() as u64,
            l2: cycles("l2_lat")?,
            llc: nanos("llc_lat")?,
            mem_local: nanos("mem_local")?,
            mem_remote: or(nanos("mem_remote")?, nanos("mem_local")?),
            dirty: [
                or(cycles("dirty_same_l2")?, same_socket),
                same_socket,
                or(cycles("dirty_cross_ccd_same_socket")?, same_socket),
                socket,
            ],
            dirty_smt: nanos("dirty_smt")?,
            shared_extra: cycles("store_to_shared_extra")?,
            atomic: cycles("atomic_l1")?,
            prefetch: (period * m.number("prefetch_issue")?).round() as u64,
            store_overlap_x1024: part("store_overlap")?,
            group_rest_x1024: part("group_rest")?,
            mlp: m.number("payload_mlp")?.max(1.0) as u64,
            copy_x1024: (1024.0 * 1000.0 / m.number("copy_bw_hot")?).round() as u64,
            resident: [resident("l1d")?, resident("l2")?, resident("llc")?],
            events: [
                cycles("irq_save_restore")?,
                cycles("irq_disable_enable")?,
                cycles("cmpxchg_local")?,
                nanos("syscall")?,
                nanos("context_switch")?,
                // Without a change of address space 0.3 µs less (machine-model.md §7), at most half.
                {
                    let switch = nanos("context_switch")?;
                    switch.saturating_sub(300_000).max(switch / 2)
                },
                nanos("ttwu_local")?,
                scaled(nanos("ipi_send")?),
            ],
            ipi_to_run: scaled(nanos("ipi_to_run_c1")?),
            reread_x1024: part("handoff_reread")?,
            reread_cap: m.number("handoff_reread_cap")? as usize,
            idle: IdleStates::new(m, micros)?,
            bus_line: match (m.word("bus").as_deref(), m.optional("fsb")?) {
                (Some("contended"), Some(gb_s)) if gb_s > 0.0 => (64.0 * 1000.0 / gb_s).round() as u64,
                (Some("contended"), _) => {
                    return Err(Error::new("machine.bus", "\"contended\"", "a machine with a front-side bus (fsb)"));
                }
                _ => 0,
            },
            bus_snooped: m.word("snoop_filter").as_deref() != Some("yes"),
            smt_x1024: part("smt_speed")?,
            skew: if m.word("order").as_deref() == Some("skewed") { nanos("skew_max")? } else { 0 },
            page_extra: nanos("page_extra")?,
            exact: (m.word("residency").as_deref() == Some("exact")).then(|| shape(m)).transpose()?,
            locks: LockKind::named(&m.word("locks").unwrap_or_default(), m.kernel()),
        })
    }

    /// The figures of the same machine with its clock at `part` of the full one.
    pub fn slowed(m: &Machinery, part: f64) -> Result<CostModel, Error> {
        let mut slow = m.clone();
        if let Some(v) = slow.values.get_mut("freq") {
            v.value = crate::machine::presets::Scalar::Number(m.number("freq")? * part);
        }
        CostModel::new(&slow)
    }

    /// The same machine with every cost zero. What the code does is left, and of time the 64 ps that a moving line is
    /// busy at least.
    #[cfg(test)]
    pub fn free_of_charge(self) -> CostModel {
        CostModel {
            instruction_x1024: 0,
            l1: 0,
            l2: 0,
            llc: 0,
            mem_local: 0,
            mem_remote: 0,
            dirty: [0; 4],
            dirty_smt: 0,
            shared_extra: 0,
            atomic: 0,
            prefetch: 0,
            copy_x1024: 0,
            events: [0; 8],
            ipi_to_run: 0,
            ..self
        }
    }

    /// Time of `n` instructions.
    #[inline]
    pub fn instructions(&self, n: Instr) -> u64 {
        (u64::from(n.0) * self.instruction_x1024) >> 10
    }
    /// A fixed cost.
    #[inline]
    pub fn event(&self, event: Event) -> u64 {
        self.events[event as usize]
    }
}

/// Sets and ways of the three levels (the last one may not exist: one set, no way).
fn shape(m: &Machinery) -> Result<[(usize, usize); 3], Error> {
    let level = |size: &str, ways: usize| {
        let lines = m.number(size)? as usize * 1024 / crate::units::LINE as usize;
        Ok(if lines == 0 { (1, 0) } else { ((lines / ways).max(1), ways) })
    };
    let ways = |key: &str| Ok(m.optional(key)?.map_or(16, |w| (w as usize).max(1)));
    Ok([level("l1d", ways("l1d_assoc")?)?, level("l2", ways("l2_assoc")?)?, level("llc", 16)?])
}
