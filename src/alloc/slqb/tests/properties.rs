//! Any sequence on any interleaving. Properties, for one to four CPUs and one to four nodes, any batch size:
//!
//! - no object is handed out twice, and what is handed out is of the node asked for when only that one will do;
//! - after each round the invariants of `verify()` hold;
//! - everything freed, trims in rounds empty every list within 8 + 4·CPUs rounds, destruction then warns of nothing, and
//!   all pages are back.
//!
//! The machine's schedule is jittered: each seed is another interleaving. The pool of live objects is an ordered set, so a
//! seed that fails fails again.

use std::collections::BTreeSet;
use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::machine::sim::Schedule;
use crate::machine::{Cpu, Wakeup};
use crate::units::CpuId;

/// One CPU's part of a round: random allocations and frees against the common pool.
fn play<M: Machine>(slqb: &Slqb<'_, M>, cache: CacheId, cpu: &M::Cpu, ops: u64, pool: &Mutex<BTreeSet<Addr>>) {
    let nodes = slqb.pages().machine().topology().nodes() as u64;
    for _ in 0..ops {
        match cpu.random(20) {
            0..=8 => {
                let node = (cpu.random(4) == 0).then(|| NodeId(cpu.random(nodes) as u16));
                let want = Request { node, this_node: cpu.random(2) == 0, ..Request::default() };
                let Some(x) = slqb.alloc(cpu, cache, want).map(|o| o.addr()) else { continue };
                let at = slqb.pages().node_of(slqb.pages().pfn_of(x).unwrap());
                assert!(!want.this_node || at == node.unwrap_or(cpu.node()), "{want:?} gave node {at}");
                assert!(pool.lock().unwrap().insert(x), "{x:?} is handed out twice");
            }
            9..=17 => {
                let pick = cpu.random(1 << 40);
                let taken = {
                    let mut pool = pool.lock().unwrap();
                    let n = (pick % pool.len().max(1) as u64) as usize;
                    let x = pool.iter().nth(n).copied();
                    x.inspect(|x| assert!(pool.remove(x)))
                };
                if let Some(x) = taken {
                    slqb.free(cpu, cache, Object::at(x));
                }
            }
            18 => slqb.trim(cpu),
            _ => cpu.serve(),
        }
    }
    while cpu.idle(None) != Wakeup::Quiet {}
}

/// Runs `f` on one CPU while the others answer calls.
fn on<M: Machine>(slqb: &Slqb<'_, M>, cpu: u16, f: impl Fn(&M::Cpu) + Sync) {
    slqb.pages().machine().boot(|c| {
        if c.id() == CpuId(cpu) {
            f(c);
        } else {
            while c.idle(None) != Wakeup::Quiet {}
        }
    });
}

fn check<M: Machine>(machine: &M, config: &Config, spec: CacheSpec, ops: u64) {
    let cpus = machine.topology().cpus() as u16;
    let mut pages = Pages::new(machine, PageModel::HotCold).unwrap();
    {
        let mut slqb = Slqb::new(&pages, config).unwrap();
        let cache = slqb.create_cache(spec).unwrap();
        let pool = Mutex::new(BTreeSet::new());
        for round in 0..4 {
            machine.boot(|cpu| play(&slqb, cache, cpu, ops, &pool));
            slqb.verify().unwrap();
            let live = pool.lock().unwrap().len() as u64;
            assert_eq!(slqb.info(cache).live_objects, live);
            on(&slqb, round % cpus, |cpu| slqb.shrink(cpu, cache));
            slqb.verify().unwrap();
        }
        // Everything is freed at once by all CPUs.
        machine.boot(|cpu| {
            while let Some(x) = { pool.lock().unwrap().pop_first() } {
                slqb.free(cpu, cache, Object::at(x));
            }
        });
        slqb.verify().unwrap();
        let mut rounds = 0;
        while slqb.state(cache)["nr_slabs"] != 0 {
            rounds += 1;
            assert!(rounds <= 8 + 4 * cpus, "{}", slqb.state(cache));
            (0..cpus).for_each(|c| on(&slqb, c, |cpu| slqb.trim(cpu)));
            // A node without a CPU has nobody to trim it periodically.
            on(&slqb, 0, |cpu| slqb.shrink(cpu, cache));
        }
        slqb.verify().unwrap();
        on(&slqb, 0, |cpu| assert_eq!(slqb.destroy(cpu, cache), Destroyed::default()));
    }
    pages.verify().unwrap();
    assert_eq!(pages.lent(), 0);
}

/// A cache of 1 to 7 or 64 objects per slab, with and without its links inside the objects.
fn specs() -> impl Strategy<Value = CacheSpec> {
    let size = prop::sample::select(vec![64, 584, 680, 816, 1024, 1360, 2048, 4096, 8192]);
    (size, any::<bool>(), any::<bool>()).prop_map(|(size, ctor, typesafe_by_rcu)| CacheSpec {
        ctor,
        typesafe_by_rcu,
        ..plain(size)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn every_interleaving_keeps_the_invariants(
        (cpus, nodes) in (1u64..=4, 1u64..=4),
        freebatch in 1u64..=5,
        spec in specs(),
        seed in any::<u64>(),
        jitter_ps in prop::sample::select(vec![0u64, 2_000, 200_000]),
    ) {
        let machine = Shape { cpus, nodes, mib: 8 }.machine(Schedule { seed, jitter_ps, ..Schedule::default() });
        check(&machine, &config(&[("freebatch", freebatch)]), spec, 300);
    }
}

#[test]
fn real_threads_keep_the_invariants() {
    for (cpus, nodes, freebatch) in [(1, 1, 3), (2, 1, 2), (4, 2, 1), (4, 4, 5)] {
        let machine = Native::new(Topology::blocks(cpus, nodes, 16 << 20)).unwrap();
        check(&machine, &config(&[("freebatch", freebatch)]), plain(816), 4000);
    }
}
