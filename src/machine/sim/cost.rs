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
    /// Fixed costs.
    events: [u64; 7],
    /// From the interrupt to the woken task's first instruction on an idle CPU.
    pub ipi_to_run: u64,
    /// Extra lines a waiter's re-read costs in a hand-off, as part of a transfer in 1/1024, and at how many waiters it stops.
    pub reread_x1024: u64,
    /// See `reread_x1024`.
    pub reread_cap: usize,
    /// Kind of plain spin locks.
    pub locks: LockKind,
}

impl CostModel {
    /// Reads the figures of a machine.
    pub fn new(m: &Machinery) -> Result<CostModel, Error> {
        let period = 1000.0 / m.number("freq")?;
        let cycles = |name: &str| m.optional(name).map(|v| v.map_or(0, |c| (c * period).round() as u64));
        let nanos = |name: &str| m.optional(name).map(|v| v.map_or(0, |ns| (ns * 1000.0).round() as u64));
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
                nanos("ttwu_local")?,
                scaled(nanos("ipi_send")?),
            ],
            ipi_to_run: scaled(nanos("ipi_to_run_c1")?),
            reread_x1024: part("handoff_reread")?,
            reread_cap: m.number("handoff_reread_cap")? as usize,
            locks: LockKind::named(&m.word("locks").unwrap_or_default(), m.kernel()),
        })
    }

    /// Time of `n` instructions.
    #[inline]
    pub fn instructions(&self, n: Instr) -> u64 {
        (u64::from(n.0) * self.instruction_x1024) >> 10
    }
    /// A fixed cost.
    #[inline]
    pub fn event(&self, event: Event) -> u64 {
        self.events[match event {
            Event::IrqSaveRestore => 0,
            Event::IrqDisableEnable => 1,
            Event::CmpxchgLocal => 2,
            Event::Syscall => 3,
            Event::ContextSwitch => 4,
            Event::Wake => 5,
            Event::IpiSend => 6,
        }]
    }
}
