//! Where a line is found: the two rules of residency beside each other.

use super::*;
use crate::machine::Arena;

#[test]
fn exact_residency_keeps_what_fits_and_loses_what_does_not() {
    for residency in ["cheap", "exact"] {
        let sim = machine("opteron-2x4-2007", &[("residency", word(residency))]);
        let start = sim.reserve(256 << 10, NodeId(0));
        let means = Mutex::new(Vec::new());
        sim.boot(|cpu| {
            if cpu.id() != CpuId(0) {
                return;
            }
            // 32 KiB fit into the first level (64 KiB), 200 KiB into the second (512 KiB).
            for kib in [32u64, 200] {
                let pass = || (0..kib * 16).for_each(|i| cpu.touch(start.plus(64 * i), Access::Read));
                pass();
                let before = cpu.now().0;
                pass();
                means.lock().unwrap().push((cpu.now().0 - before) / (kib * 16));
            }
        });
        assert_eq!(means.into_inner().unwrap(), [500, 7000], "{residency}: one cycle, fourteen cycles");
    }
}

#[test]
fn memory_that_nobody_names_pushes_out_the_same_under_both_rules() {
    for residency in ["cheap", "exact"] {
        let sim = machine("opteron-2x4-2007", &[("residency", word(residency))]);
        let (start, arena) = (sim.reserve(32 << 10, NodeId(0)), Arena::new(4096).unwrap());
        let means = Mutex::new(Vec::new());
        sim.boot(|cpu| {
            if cpu.id() != CpuId(0) {
                return;
            }
            let pass = || (0..512).for_each(|i| cpu.touch(start.plus(64 * i), Access::Read));
            let timed = || {
                let before = cpu.now().0;
                pass();
                means.lock().unwrap().push((cpu.now().0 - before) / 512);
            };
            pass();
            // The user's side of 200 pages, 12,800 lines: more than both caches hold, but hot in the second one.
            (0..200).for_each(|_| cpu.copy(&arena, Addr(0), 4096, true));
            timed();
            // As many lines of user memory that are not.
            cpu.footprint(12_800);
            timed();
        });
        assert_eq!(means.into_inner().unwrap(), [7000, 23_000], "{residency}: fourteen cycles, the last-level cache");
    }
}
