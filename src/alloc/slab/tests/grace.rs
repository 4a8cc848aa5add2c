//! Type-safe caches: objects are reused at once, pages after a grace period.

use super::*;

const GRACE: Picos = Picos(10_000_000_000);

fn typesafe(era: &str, nodes: u64, test: impl FnOnce(&mut Slab<Sim>, CacheId)) {
    let machine = machine(2, nodes, 64);
    let mut pages = Pages::new(&machine, PageModel::default()).unwrap();
    {
        let config = Config { metadata: Metadata::Free, ..Config::era(era).unwrap() };
        let mut slab = Slab::new(&pages, &config).unwrap();
        let spec = CacheSpec { typesafe_by_rcu: true, ..CacheSpec::new("rcu", 256) };
        let cache = slab.create_cache(spec).unwrap();
        test(&mut slab, cache);
        slab.verify().unwrap();
    }
    pages.verify().unwrap();
}

#[test]
fn pages_of_a_type_safe_cache_wait_for_a_grace_period_and_its_objects_do_not() {
    for era in Config::ERAS {
        typesafe(era, 1, |slab, cache| {
            let objects = allocate(slab, 0, cache, 100);
            release(slab, 0, cache, &objects[99..]);
            assert_eq!(allocate(slab, 0, cache, 1), &objects[99..], "{era}: reused at once");
            let lent = slab.pages.lent();
            assert_eq!(lent, 7);
            release(slab, 0, cache, &objects);
            on(slab.pages.machine(), 0, |c| {
                slab.shrink(c, cache);
                assert_eq!(slab.pages.lent(), 7, "{era}: the pages still wait");
                c.delay(Picos(GRACE.0 - 1_000_000_000));
                slab.trim(c);
                assert_eq!(slab.pages.lent(), 7, "{era}: 9 ms are not enough");
                c.delay(Picos(1_000_000_001));
                slab.trim(c);
                assert_eq!(slab.pages.lent(), 0, "{era}: they are back");
            });
            assert_eq!(see(slab, cache, &["nr_slabs"]), [0]);
        });
    }
}

#[test]
fn a_barrier_and_a_destruction_wait_for_the_pages_of_every_cpu() {
    for era in Config::ERAS {
        typesafe(era, 2, |slab, cache| {
            for cpu in [0, 1] {
                let objects = allocate(slab, cpu, cache, 40);
                release(slab, cpu, cache, &objects);
                on(slab.pages.machine(), cpu, |c| slab.shrink(c, cache));
            }
            assert!(slab.pages.lent() > 0);
            on(slab.pages.machine(), 0, |c| {
                let before = c.now();
                slab.rcu_barrier(c);
                assert!(c.now() > before && slab.pages.lent() == 0, "{era}");
            });
            let objects = allocate(slab, 1, cache, 40);
            release(slab, 0, cache, &objects);
            on(slab.pages.machine(), 0, |c| {
                let before = c.now();
                assert_eq!(slab.destroy(c, cache), Destroyed::default());
                assert!(c.now().0 - before.0 >= GRACE.0 && slab.pages.lent() == 0, "{era}");
            });
        });
    }
}
