//! `Model`: a machine whose CPUs loom interleaves in every way that the C11 memory model allows. Words, arena and locks are
//! those of `Native`; nothing is charged and no time passes.

use std::sync::atomic::{AtomicU64, Ordering};

use super::native::{NativeLock, bits};
use super::sync::at_once;
use super::{Access, Addr, Arena, Cpu, Event, Machine, Report, Wakeup};
use crate::topology::Topology;
use crate::units::{CpuId, Instr, LINE, NodeId, PAGE_SIZE, Picos, round_up};

/// A machine of a few CPUs. Lives in one execution of a model.
pub struct Model {
    topology: Topology,
    next_reserved: AtomicU64,
}

impl Model {
    /// One with this many CPUs, and one node of `bytes`.
    pub fn new(cpus: u16, bytes: u64) -> Model {
        let past = bytes + bytes / PAGE_SIZE * LINE;
        Model { topology: Topology::blocks(cpus, 1, bytes), next_reserved: AtomicU64::new(past) }
    }
    /// Runs `body` as this CPU while no other runs.
    pub fn alone<R>(&self, cpu: u16, body: impl FnOnce(&ModelCpu) -> R) -> R {
        body(&ModelCpu { id: CpuId(cpu), alone: true })
    }
}

impl Machine for Model {
    type Cpu = ModelCpu;
    type Lock = NativeLock;

    fn topology(&self) -> &Topology {
        &self.topology
    }
    fn reserve(&self, bytes: u64, _: NodeId) -> Addr {
        Addr(self.next_reserved.fetch_add(round_up(bytes.max(1), LINE), Ordering::Relaxed))
    }
    fn room(&self) -> u64 {
        u64::MAX
    }
    fn lock(&self, _: &'static str, _: Addr) -> NativeLock {
        NativeLock::new()
    }
    fn cancelled(&self) -> bool {
        false
    }
    fn report(&mut self) -> Report {
        Report::default()
    }
    fn measure(&self, _: Picos, _: Picos) {}
    fn reset_report(&self, _: &ModelCpu) {}
    /// What happens in here is explored, and nothing else. Once in an execution: loom has few threads.
    fn boot(&self, body: impl Fn(&ModelCpu) + Sync) {
        loom::explore();
        at_once(self.topology.cpus(), &|i| body(&ModelCpu { id: CpuId(i as u16), alone: false }));
        loom::stop_exploring();
    }
}

/// A CPU of the model.
pub struct ModelCpu {
    id: CpuId,
    /// No other CPU runs.
    alone: bool,
}

impl Cpu for ModelCpu {
    fn id(&self) -> CpuId {
        self.id
    }
    fn node(&self) -> NodeId {
        NodeId(0)
    }
    fn now(&self) -> Picos {
        Picos(0)
    }
    fn work(&self, _: Instr) {}
    fn delay(&self, _: Picos) {}
    fn spend(&self, _: Event) {}
    fn touch(&self, _: Addr, _: Access) {}
    fn touch_span(&self, _: Addr, _: u64, _: Access) {}
    fn grouped(&self, accesses: impl FnOnce(&Self)) {
        accesses(self);
    }
    fn footprint(&self, _: u32) {}
    fn copy(&self, _: &Arena, _: Addr, _: u64, _: bool) {}
    fn irq_save(&self) {}
    fn interact(&self) {}
    fn bit_lock(&self, arena: &Arena, addr: Addr, bit: u32) {
        bits::lock(arena, addr, bit);
    }
    fn bit_trylock(&self, arena: &Arena, addr: Addr, bit: u32) -> bool {
        bits::try_lock(arena, addr, bit)
    }
    fn bit_unlock(&self, arena: &Arena, addr: Addr, bit: u32) {
        bits::unlock(arena, addr, bit);
    }
    fn idle(&self, _: Option<Picos>) -> Wakeup {
        Wakeup::Quiet
    }
    fn kick(&self, _: CpuId) {}
    fn is_idle(&self, _: CpuId) -> bool {
        false
    }
    fn call_on(&self, target: CpuId, f: &(dyn Fn(&Self) + Sync)) {
        assert!(self.alone, "a call to CPU {target} while it runs: models have no interrupts");
        f(&ModelCpu { id: target, alone: true });
    }
    fn serve(&self) {}
    /// Always the first.
    fn random(&self, _: u64) -> u64 {
        0
    }
}
