//! A million random operations per era on 4 CPUs of 2 nodes, with every page there and with one request for pages in fifty
//! failing. Properties: after every round `verify()` is clean, which counts live objects, too; no object is in two hands;
//! a failed allocation leaves nothing behind; in the end every cache can be destroyed and every page is back.

use std::collections::BTreeSet;

use super::*;

/// Objects in nobody's hands: what they are of, and where.
type Pool = Mutex<Vec<(usize, Addr)>>;

const SIZES: [u64; 6] = [8, 40, 128, 700, 1024, 5000];
/// Kinds after those of the caches are of kmalloc.
const KMALLOC: [u64; 4] = [20, 96, 600, 9000];
const ROUNDS: u64 = 10;

fn churn(slab: &Slab<Sim>, caches: &[CacheId], pool: &Pool, steps: u64) {
    slab.pages.machine().boot(|cpu| {
        for _ in 0..steps {
            match cpu.random(100) {
                0..50 => {
                    let kind = cpu.random((SIZES.len() + KMALLOC.len()) as u64) as usize;
                    let node = (cpu.random(8) == 0).then(|| NodeId(cpu.random(2) as u16));
                    let this_node = node.is_some() && cpu.random(2) == 0;
                    let want = Request { node, this_node, atomic: cpu.random(2) == 0, ..Request::default() };
                    let object = match caches.get(kind) {
                        Some(cache) => slab.alloc(cpu, *cache, want),
                        None => slab.kmalloc(cpu, KMALLOC[kind - caches.len()], want),
                    };
                    if let Some(object) = object {
                        pool.lock().unwrap().push((kind, object.addr()));
                    }
                }
                50..98 => {
                    let n = pool.lock().unwrap().len() as u64;
                    let picked = (n > 0).then(|| cpu.random(n) as usize);
                    // Several CPUs pick: the pool may have shrunk.
                    let taken = picked.and_then(|i| {
                        let mut pool = pool.lock().unwrap();
                        (i < pool.len()).then(|| pool.swap_remove(i))
                    });
                    if let Some((kind, addr)) = taken {
                        give(slab, cpu, caches, kind, addr);
                    }
                }
                98 => slab.trim(cpu),
                _ if cpu.random(20) == 0 => slab.shrink(cpu, caches[cpu.random(caches.len() as u64) as usize]),
                _ => cpu.work(crate::units::Instr(2000)),
            }
            cpu.serve();
        }
        while cpu.idle(None) != Wakeup::Quiet {}
    });
}

fn give(slab: &Slab<Sim>, cpu: &SimCpu, caches: &[CacheId], kind: usize, addr: Addr) {
    match caches.get(kind) {
        Some(cache) => slab.free(cpu, *cache, Object::at(addr)),
        None => slab.kfree(cpu, Object::at(addr)),
    }
}

/// `operations` in all on a fresh machine.
fn soak(era: &str, metadata: Metadata, operations: u64, one_in: u64) {
    let schedule = Schedule { seed: 7, jitter_ps: 200_000, ..Schedule::default() };
    let machine = Sim::new(&Machinery::for_topology(4, 2, 32 << 20).unwrap(), schedule).unwrap();
    let mut pages = Pages::new(&machine, PageModel::default()).unwrap();
    {
        let config = Config { metadata, ..Config::era(era).unwrap() };
        let mut slab = Slab::new(&pages, &config).unwrap();
        let made = SIZES.map(|s| slab.create_cache(CacheSpec { ctor: s == 128, ..CacheSpec::new(format!("t{s}"), s) }));
        let caches: Vec<CacheId> = made.into_iter().map(|c| c.unwrap()).collect();
        let pool = Pool::default();
        for round in 0..ROUNDS {
            pages.fail_one_in(one_in);
            churn(&slab, &caches, &pool, operations / 4 / ROUNDS);
            pages.fail_one_in(0);
            slab.verify().unwrap_or_else(|e| panic!("{era}, round {round}: {e}"));
            let pool = pool.lock().unwrap();
            let distinct: BTreeSet<Addr> = pool.iter().map(|(_, a)| *a).collect();
            assert_eq!(distinct.len(), pool.len(), "{era}, round {round}: an object was handed out twice");
        }
        let rest = std::mem::take(&mut *pool.lock().unwrap());
        let all = slab.cache_count() as u32;
        on(&machine, 0, |c| {
            rest.iter().for_each(|(kind, addr)| give(&slab, c, &caches, *kind, *addr));
            for cache in &caches {
                assert_eq!(slab.destroy(c, *cache), Destroyed::default());
            }
            // Management of destroyed slabs has gone back into the arrays of the general caches.
            (0..2 * all).for_each(|id| slab.shrink(c, CacheId(id % all)));
        });
        slab.verify().unwrap();
        let held: u64 = (0..all as usize).filter_map(|i| slab.report_info(i).pages).sum();
        assert_eq!(pages.lent(), held);
        if metadata == Metadata::Free {
            assert_eq!(held, 0, "{era}: every page is back");
        }
    }
    pages.verify().unwrap();
}

fn every_era(operations: u64) {
    for era in Config::ERAS {
        for metadata in [Metadata::Kmalloc, Metadata::Free] {
            for one_in in [0, 50] {
                soak(era, metadata, operations, one_in);
            }
        }
    }
}

#[test]
fn random_operations_with_failing_pages_keep_every_invariant_and_return_every_page() {
    every_era(60_000);
}

/// The whole of it: `cargo test --release slab_survives_a_million_operations -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn slab_survives_a_million_operations() {
    every_era(1_000_000);
}
