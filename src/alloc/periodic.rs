//! When the periodic work of a CPU is due (kernel: schedule_delayed_work_on with round_jiffies_relative).

use crate::units::{CpuId, HZ, JIFFY, Picos};

/// First time: one second after the machine's start.
pub fn first(cpu: CpuId) -> Picos {
    rounded(cpu, 0, HZ)
}

/// Next time after a round that ended at `now`.
pub fn next(cpu: CpuId, now: Picos, period: Picos) -> Picos {
    rounded(cpu, now.jiffies(), now.jiffies() + period.jiffies())
}

/// A due time in jiffies, moved to a whole second minus three jiffies per CPU number, so that CPUs neither wake the
/// machine one by one nor all at once (kernel: round_jiffies). Not moved if that would lie in the past.
fn rounded(cpu: CpuId, now: u64, due: u64) -> Picos {
    let skew = 3 * u64::from(cpu.0);
    let past = (due + skew) % HZ;
    let moved = if past < HZ / 4 { due.saturating_sub(past) } else { due - past + HZ };
    Picos(if moved > now { moved } else { due } * JIFFY.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jiffies(cpu: u16, now: u64, due: u64) -> u64 {
        rounded(CpuId(cpu), now, due).jiffies()
    }

    #[test]
    fn a_due_time_is_moved_to_a_whole_second_minus_three_jiffies_per_cpu() {
        assert_eq!([0, 1, 7].map(|c| first(CpuId(c)).jiffies()), [250, 247, 229]);
        assert_eq!(jiffies(0, 256, 756), 750, "just after a second: down");
        assert_eq!(jiffies(0, 330, 830), 1000, "later: up");
        assert_eq!(jiffies(1, 247, 747), 747, "a fixed phase");
        assert_eq!(jiffies(0, 255, 256), 256, "not moved if that would lie in the past");
    }

    #[test]
    fn the_cpu_with_the_highest_number_comes_first_and_the_period_stays() {
        let two = Picos(2 * HZ * JIFFY.0);
        let ends = |cpu| Picos(first(CpuId(cpu)).0 + 5_000_000_000);
        let due: Vec<u64> = (0..4).map(|c| next(CpuId(c), ends(c), two).jiffies()).collect();
        assert_eq!(due, [750, 747, 744, 741]);
    }
}
