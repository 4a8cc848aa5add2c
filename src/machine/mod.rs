//! FLOOR 1. What a CPU, a lock and a word of memory are.
//!
//! [`Machine`] is the only platform contract. Its obligations:
//!
//! 1. `boot` brings every CPU of the topology to life, hands each exactly one [`Cpu`] token and returns when every
//!    CPU has returned. The token is the proof of "running on this CPU": it is neither `Clone` nor `Sync`, and there is
//!    never a second one for the same CPU at the same time. `boot` may be called again; state and clocks go on.
//! 2. Everything that one CPU does and another can see happens at a *point of interaction*: taking a lock, an atomic
//!    access to a shared [`Word`], `kick`, `call_on`, `idle`. `Sim` orders these by virtual time; on `Native` they are
//!    the real thing.
//! 3. Value and cost travel together: [`Arena::load`], [`Word::cmpxchg`] do the thing and pay for it. What has no
//!    value in our code (a cache line of a structure whose fields are plain Rust) is paid for with [`Cpu::touch`].
//! 4. On `Native` all hooks that only charge are empty and inlined away.
//!
//! A *run* is a machine, the pages and slabs that borrow it, and the tasks: a handful of values on one stack frame.

pub mod cost;
mod memory;
#[cfg(all(test, loom))]
pub mod model;
pub mod native;
mod percpu;
pub mod presets;
pub mod sim;
mod sync;

pub use crate::units::Addr;
pub use memory::{Arena, Record, Word};
pub use native::Native;
pub use percpu::PerCpu;
pub use sim::Sim;
pub use sync::{Guard, SpinLock};

use crate::topology::Topology;
use crate::units::{CpuId, Instr, NodeId, Picos};

/// A machine: CPUs, their memory, their locks.
pub trait Machine: Sync + Sized {
    /// The token of a running CPU.
    type Cpu: Cpu;
    /// A lock of this machine.
    type Lock: RawLock<Self::Cpu>;

    /// CPUs and nodes.
    fn topology(&self) -> &Topology;

    /// Reserves `bytes` of simulated address space for a structure whose fields live in Rust, on `node`, so that its
    /// cache lines can be charged. Line-aligned. Past the arena and its page frames.
    fn reserve(&self, bytes: u64, node: NodeId) -> Addr;
    /// Bytes that can still be reserved.
    fn room(&self) -> u64;

    /// Makes a lock whose word lies at `addr`. `name` is the class it is reported under (`list_lock`, `zone->lock`).
    fn lock(&self, name: &'static str, addr: Addr) -> Self::Lock;

    /// What the machine counted: locks, idle time. When no CPU runs.
    fn report(&mut self) -> Report;
    /// Counts from `start` to `end` only, and forgets what was counted. Before a run.
    fn measure(&self, start: Picos, end: Picos);
    /// Forgets the counts of locks: the end of a warm-up.
    fn reset_report(&self, cpu: &Self::Cpu);

    /// What the operations of the allocator (between [`Cpu::begin`] and [`Cpu::end`]) have done since the last call, and
    /// counts from now on; the first call finds nothing. `None` where nothing is charged. When no CPU runs.
    fn effort(&self) -> Option<Effort> {
        None
    }

    /// Asked to stop from outside. Sim looks at every point of interaction and unwinds with [`Cancelled`]; long work
    /// between boots asks by [`Machine::poll`].
    ///
    /// [`Cancelled`]: crate::error::Cancelled
    fn cancelled(&self) -> bool;
    /// Unwinds if the machine was asked to stop. When no CPU runs.
    fn poll(&self) {
        if self.cancelled() {
            crate::error::stop();
        }
    }

    /// Runs `body` on every CPU and returns when all have returned.
    fn boot(&self, body: impl Fn(&Self::Cpu) + Sync);
}

/// Whose time passes on a CPU. Lock waits, line transfers and sleep are told apart from all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Section {
    /// User and protocol code.
    #[default]
    Workload,
    /// The allocator, up to where it leaves its fast path.
    Fast,
    /// The allocator's slow paths.
    Slow,
    /// The page allocator.
    Pages,
    /// Run queues, wake-ups, context switches.
    Scheduler,
}

impl Section {
    /// All sections in order.
    pub const ALL: &'static [Section] =
        &[Section::Workload, Section::Fast, Section::Slow, Section::Pages, Section::Scheduler];
    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Section::Workload => "workload",
            Section::Fast => "allocator, fast paths",
            Section::Slow => "allocator, slow paths",
            Section::Pages => "page allocator",
            Section::Scheduler => "scheduler",
        }
    }
}

/// An operation whose latency is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// An object is taken.
    Alloc,
    /// An object is given back.
    Free,
}

impl Operation {
    /// Both operations.
    pub const ALL: &'static [Operation] = &[Operation::Alloc, Operation::Free];
}

/// How deep an operation went: the deepest step it took, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Path {
    /// The fast path alone.
    Fast,
    /// A slow path without a lock of lists: an allocation refilled, a free went to a slab that is not this CPU's.
    Refill,
    /// It took a lock of lists or queues.
    List,
    /// It went to the page allocator.
    Page,
}

impl Path {
    /// All paths in order.
    pub const ALL: &'static [Path] = &[Path::Fast, Path::Refill, Path::List, Path::Page];
    /// Name in reports: a free that leaves its fast path without a list lock is a remote one.
    pub const fn name(self, operation: Operation) -> &'static str {
        match (self, operation) {
            (Path::Fast, _) => "fast",
            (Path::Refill, Operation::Alloc) => "refill",
            (Path::Refill, Operation::Free) => "remote",
            (Path::List, _) => "node list",
            (Path::Page, _) => "page",
        }
    }
}

/// Latencies of one operation on one path, in picoseconds; quantiles to 6 %.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyReport {
    /// Which operation.
    pub operation: Operation,
    /// How deep it went.
    pub path: Path,
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean_ps: u64,
    /// Half are below.
    pub p50_ps: u64,
    /// Nine of ten are below.
    pub p90_ps: u64,
    /// Ninety-nine of a hundred are below.
    pub p99_ps: u64,
    /// The longest.
    pub max_ps: u64,
}

/// What operations of the allocator cost a simulated machine, in what it charges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Operations.
    pub operations: u64,
    /// Instructions besides the accesses.
    pub instructions: u64,
    /// Loads.
    pub loads: u64,
    /// Plain stores.
    pub stores: u64,
    /// Locked read-modify-writes: bit locks, spin locks, compare-exchanges, counters that CPUs share.
    pub atomics: u64,
    /// Unlocked compare-exchanges of a CPU's own words.
    pub local_exchanges: u64,
    /// Times that interrupts were off and on again.
    pub irq_pairs: u64,
    /// Lines touched, each once, by whose they are: objects, page descriptors, the allocators' structures.
    pub lines: [u64; 3],
    /// Picoseconds.
    pub time_ps: u64,
}

/// What a machine counted during a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Acquisitions and waits per class of lock.
    pub locks: Vec<LockReport>,
    /// Who waited for locks, and who was waited for, inside the measured time. Empty on Native.
    pub waits: Vec<WaitReport>,
    /// Where the time of all CPUs went, in picoseconds: the parts add up to CPUs × measured time. Empty on Native.
    pub time: Vec<(String, u64)>,
    /// Latencies of the allocator's operations. Empty on Native.
    pub latencies: Vec<LatencyReport>,
    /// Points of interaction that were passed out of order, and the farthest, in picoseconds (order = skewed).
    pub inversions: u64,
    /// See `inversions`.
    pub max_inversion_ps: u64,
    /// Idle time over all CPUs, in picoseconds.
    pub idle_ps: u64,
    /// Hash over all points of interaction: equal for equal runs. 0 where time is not ours.
    pub trace: u64,
    /// Accesses to lines since the machine was made; and those of them that missed the first-level cache: served by the
    /// second-level one, by the last-level one or another CPU's cache, by memory. 0 on Native.
    pub accesses: u64,
    /// See `accesses`.
    pub beyond_l1: [u64; 3],
    /// Time is virtual.
    pub simulated: bool,
    /// Workers outnumber the host's cores.
    pub oversubscribed: bool,
}

/// Counts of one class of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockReport {
    /// Name of the class.
    pub class: &'static str,
    /// Times a lock of the class was taken.
    pub acquired: u64,
    /// Times the taker had to wait.
    pub contended: u64,
    /// Time spent waiting inside the measured time, in picoseconds over all CPUs: the part "waiting for `class`" of
    /// [`Report::time`]. Zero on Native.
    pub wait_ps: u64,
}

/// Waiting for locks of one class, by one CPU and for one CPU. Over all CPUs the two are the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReport {
    /// Name of the class.
    pub class: &'static str,
    /// The CPU.
    pub cpu: CpuId,
    /// How long it waited, in picoseconds.
    pub waited_ps: u64,
    /// How long others waited while it held such a lock or handed it on, in picoseconds over all of them.
    pub waited_for_ps: u64,
}

/// How a line is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A plain store; the store buffer hides part of its latency.
    Write,
    /// A locked read-modify-write.
    Rmw,
    /// A prefetch for writing: the line moves now, the next access waits for what is left of the latency.
    Prefetch,
}

/// Fixed costs of a machine that are not memory accesses or instructions; values are in the preset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// `local_irq_save` + `local_irq_restore`.
    IrqSaveRestore,
    /// `local_irq_disable` + `local_irq_enable`.
    IrqDisableEnable,
    /// Unlocked per-CPU compare-exchange.
    CmpxchgLocal,
    /// Entry and exit of a system call.
    Syscall,
    /// Switch from one task to another.
    ContextSwitch,
    /// Switch from one thread of a process to another.
    ThreadSwitch,
    /// `try_to_wake_up` onto a run queue.
    Wake,
    /// Sending a reschedule interrupt.
    IpiSend,
}

/// A running CPU: handed down explicitly where the kernel would ask `smp_processor_id()`.
pub trait Cpu: Sized {
    /// Which CPU this is.
    fn id(&self) -> CpuId;
    /// The node it belongs to.
    fn node(&self) -> NodeId;
    /// Its clock: virtual time on Sim, time since boot on Native.
    fn now(&self) -> Picos;

    /// Charges the instructions of a code path (see [`cost`]).
    fn work(&self, instructions: Instr);
    /// Charges `time` of work that is not ours to model in detail (protocol code).
    fn delay(&self, time: Picos);
    /// Charges a fixed cost of the machine.
    fn spend(&self, event: Event);
    /// Charges one access to the line of `addr`.
    fn touch(&self, addr: Addr, access: Access);
    /// Charges accesses to every line of `bytes` bytes from `addr`.
    fn touch_span(&self, addr: Addr, bytes: u64, access: Access) {
        let first = addr.0 / crate::units::LINE;
        let last = (addr.0 + bytes.max(1) - 1) / crate::units::LINE;
        for line in first..=last {
            self.touch(Addr(line * crate::units::LINE), access);
        }
    }
    /// Charges independent accesses made in one step: the longest in full, a quarter of the rest (machine-model.md
    /// §3.4). Marked where the kernel's code issues them back to back, by one rule for all allocators.
    fn grouped(&self, accesses: impl FnOnce(&Self));
    /// Counts `lines` of user memory through the caches: what is evicted is not charged now but when it is missed.
    fn footprint(&self, lines: u32);
    /// Copies `bytes` of payload to (`write`) or from memory at `addr`: really done on Native, charged on Sim per blob.
    fn copy(&self, arena: &Arena, addr: Addr, bytes: u64, write: bool);

    /// From here on time is of `section`; returns whose it was. Reports only.
    #[inline(always)]
    fn enter(&self, _section: Section) -> Section {
        Section::Workload
    }
    /// An allocator's operation begins: its time is of the fast path until it says otherwise. Reports only.
    #[inline(always)]
    fn begin(&self, _operation: Operation) {}
    /// The operation under way, if there is one, has left its fast path. Reports only.
    #[inline(always)]
    fn leave_fast_path(&self) {}
    /// It ends; time is again whose it was.
    #[inline(always)]
    fn end(&self) {}

    /// Interrupts off until the guard is dropped; charges save and restore.
    fn irq_save(&self) {
        self.spend(Event::IrqSaveRestore);
    }
    /// A point of interaction: on Sim the CPU continues when it is the earliest of the machine.
    fn interact(&self);
    /// Takes bit `bit` of the word at `addr` in `arena` as a spin lock (kernel: bit_spin_lock).
    fn bit_lock(&self, arena: &Arena, addr: Addr, bit: u32);
    /// Tries the same once.
    fn bit_trylock(&self, arena: &Arena, addr: Addr, bit: u32) -> bool;
    /// Releases it.
    fn bit_unlock(&self, arena: &Arena, addr: Addr, bit: u32);

    /// Sleeps until kicked, until `until`, or until no CPU of the machine can ever act again. Serves `call_on`
    /// requests before sleeping and after waking.
    fn idle(&self, until: Option<Picos>) -> Wakeup;
    /// Wakes an idle CPU (or makes its next `idle` return at once); charges the interrupt if it really slept.
    fn kick(&self, target: CpuId);
    /// True if the CPU is idle now.
    fn is_idle(&self, target: CpuId) -> bool;
    /// Runs `f` on `target`, between two of its operations (kernel: smp_call_function_single), and waits for it.
    fn call_on(&self, target: CpuId, f: &(dyn Fn(&Self) + Sync));
    /// Runs what other CPUs have asked of this one. Called between two operations.
    fn serve(&self);
    /// A number below `below` from the machine's own seeded stream of this CPU.
    fn random(&self, below: u64) -> u64;
}

/// Why `idle` returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wakeup {
    /// Another CPU kicked, or asked for a call.
    Kicked,
    /// The time asked for has come.
    Time,
    /// Every CPU is idle and nothing is due: the run is over.
    Quiet,
}

/// A lock without data. `lock` waits, `unlock` is called by the holder only.
pub trait RawLock<C>: Sync {
    /// Takes the lock.
    fn lock(&self, cpu: &C);
    /// Takes it if it is free.
    fn try_lock(&self, cpu: &C) -> bool;
    /// Gives it back.
    fn unlock(&self, cpu: &C);
}
