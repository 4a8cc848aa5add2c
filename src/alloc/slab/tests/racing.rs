//! Random operations on racing CPUs. After every round: all invariants of `verify()`; no object is in two hands; `info`
//! counts the objects held; every allocation was a hit or a miss; at the end nothing is left.

use std::collections::BTreeSet;

use super::*;

#[test]
fn random_operations_on_racing_cpus_keep_every_invariant() {
    for seed in 0..24 {
        let cpus = 1 + seed % 4;
        let nodes = if cpus == 4 { 2 } else { 1 };
        let schedule = Schedule { seed, jitter_ps: 200_000, ..Schedule::default() };
        let machine = Sim::new(&Machinery::for_topology(cpus, nodes, 32 << 20).unwrap(), schedule).unwrap();
        let mut pages = Pages::new(&machine, PageModel::default()).unwrap();
        {
            let metadata = if seed % 2 == 0 { Metadata::Kmalloc } else { Metadata::Free };
            let tight = (seed % 3 == 0).then_some(6);
            let era = if seed % 5 < 3 { "6.1" } else { "2.6.24" };
            let config = Config { metadata, limit: tight, merge: false, ..Config::era(era).unwrap() };
            let mut slab = Slab::new(&pages, &config).unwrap();
            let sizes = [40, 128, 700, 1024];
            let caches: Vec<CacheId> =
                sizes.map(|s| slab.create_cache(CacheSpec::new(format!("t{s}"), s)).unwrap()).into();
            // Objects in nobody's hands, freed by whoever comes first.
            let pool = Mutex::new(Vec::<(usize, Addr)>::new());
            let allocated = Mutex::new([0u64; 4]);
            for _round in 0..3 {
                machine.boot(|cpu| {
                    for step in 0..1500u64 {
                        let kind = cpu.random(4) as usize;
                        match cpu.random(16) {
                            0..=7 => {
                                let node = (cpu.random(8) == 0).then(|| NodeId(cpu.random(nodes) as u16));
                                let want = Request { node, atomic: cpu.random(2) == 0, ..Request::default() };
                                let object = slab.alloc(cpu, caches[kind], want).expect("enough memory");
                                allocated.lock().unwrap()[kind] += 1;
                                pool.lock().unwrap().push((kind, object.addr()));
                            }
                            8..=14 => {
                                let n = pool.lock().unwrap().len() as u64;
                                let picked = (n > 0).then(|| cpu.random(n) as usize);
                                let picked = picked.map(|i| pool.lock().unwrap().swap_remove(i));
                                if let Some((kind, addr)) = picked {
                                    slab.free(cpu, caches[kind], Object::at(addr));
                                }
                            }
                            _ if step % 100 == 7 => slab.shrink(cpu, caches[kind]),
                            _ => cpu.work(crate::units::Instr(500)),
                        }
                        cpu.serve();
                    }
                    while cpu.idle(None) != Wakeup::Quiet {}
                });
                slab.verify().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                let pool = pool.lock().unwrap();
                let distinct: BTreeSet<Addr> = pool.iter().map(|(_, a)| *a).collect();
                assert_eq!(distinct.len(), pool.len(), "seed {seed}: an object was handed out twice");
                for (kind, cache) in caches.iter().enumerate() {
                    let held = pool.iter().filter(|(k, _)| *k == kind).count() as u64;
                    assert_eq!(slab.info(*cache).live_objects, held, "seed {seed}: {}", sizes[kind]);
                    let mut all = Counters::default();
                    slab.counters(*cache).iter().for_each(|c| all.merge(c));
                    // Invariant 8, on one node: every allocation was a hit or a miss.
                    let counted = all.get(Stat::Allochit) + all.get(Stat::Allocmiss);
                    let made = allocated.lock().unwrap()[kind];
                    assert!(nodes == 2 || counted == made, "seed {seed}: {counted} counted, {made} made");
                }
            }
            let rest = std::mem::take(&mut *pool.lock().unwrap());
            on(&machine, 0, |c| {
                rest.iter().for_each(|(kind, addr)| slab.free(c, caches[*kind], Object::at(*addr)));
                caches.iter().for_each(|cache| slab.shrink(c, *cache));
            });
            for cache in &caches {
                assert_eq!(see(&mut slab, *cache, &["nr_slabs", "active_slabinfo", "stat.num_active"]), [0, 0, 0]);
            }
        }
        pages.verify().unwrap();
    }
}

#[test]
fn racing_native_workers_keep_every_invariant() {
    use crate::machine::Native;
    use crate::topology::Topology;
    let machine = Native::new(Topology::blocks(3, 1, 64 << 20)).unwrap();
    let mut pages = Pages::new(&machine, PageModel::default()).unwrap();
    {
        let mut slab = Slab::new(&pages, &Config { limit: Some(8), ..config() }).unwrap();
        let caches = [64, 600].map(|s| slab.create_cache(CacheSpec::new(format!("t{s}"), s)).unwrap());
        let pool = Mutex::new(Vec::<(usize, Addr)>::new());
        machine.boot(|cpu| {
            for step in 0..20_000u64 {
                let kind = cpu.random(2) as usize;
                if cpu.random(2) == 0 {
                    let object = slab.alloc(cpu, caches[kind], Request::default()).expect("enough memory");
                    pool.lock().unwrap().push((kind, object.addr()));
                } else {
                    let newest = pool.lock().unwrap().pop();
                    if let Some((kind, addr)) = newest {
                        slab.free(cpu, caches[kind], Object::at(addr));
                    }
                }
                if step % 5000 == 4999 {
                    slab.shrink(cpu, caches[kind]);
                }
                cpu.serve();
            }
            while cpu.idle(None) != Wakeup::Quiet {}
        });
        slab.verify().unwrap();
        let live: u64 = caches.map(|c| slab.info(c).live_objects).iter().sum();
        assert_eq!(live, pool.lock().unwrap().len() as u64);
    }
    pages.verify().unwrap();
}
