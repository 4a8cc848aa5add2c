//! Red zones, poison, last user, lists: each kind of corruption is found, and named by cache, object, expected and found.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::alloc::slab::geometry::Geometry;

/// A machine with two nodes and a cache "victim" of `size` bytes, debugged by `letters`.
struct Lab {
    machine: Sim,
    config: Config,
}

impl Lab {
    fn new(era: &str, letters: &str, nodes: u64) -> Lab {
        Lab { machine: machine(2, nodes, 64), config: Config { debug: letters.into(), ..Config::era(era).unwrap() } }
    }
    /// What a panic of `mischief` says; "" if there is none.
    fn says(&self, size: u64, mischief: impl Fn(&Slab<Sim>, &SimCpu, CacheId) + Sync) -> String {
        let pages = Pages::new(&self.machine, PageModel::default()).unwrap();
        let mut slab = Slab::new(&pages, &self.config).unwrap();
        let cache = slab.create_cache(CacheSpec::new("victim", size)).unwrap();
        let run = || on(&self.machine, 0, |c| mischief(&slab, c, cache));
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(()) => String::new(),
            Err(panic) => panic.downcast_ref::<String>().expect("a message").clone(),
        }
    }
}

fn poke_byte(slab: &Slab<Sim>, at: Addr, byte: u8) {
    slab.pages.arena().fill(at, 1, byte);
}
fn take(slab: &Slab<Sim>, c: &SimCpu, cache: CacheId) -> Addr {
    slab.alloc(c, cache, Request::default()).unwrap().addr()
}

/// Runs a mischief in every era on one and two nodes; each must be reported with all of `parts`.
fn reported(letters: &str, parts: &[&str], mischief: impl Fn(&Slab<Sim>, &SimCpu, CacheId) + Sync) {
    for era in Config::ERAS {
        for nodes in [1, 2] {
            let text = Lab::new(era, letters, nodes).says(100, &mischief);
            for part in parts {
                assert!(text.contains(part), "{era}, {nodes} nodes, {letters}: {part:?} is not in {text:?}");
            }
        }
    }
}

#[test]
fn debug_options_make_the_slots_of_example_e12() {
    let config = Config { debug: "FZPU".into(), ..config() };
    let shape = |size: u64, align: u64, hwcache_align: bool| {
        let spec = CacheSpec { align, hwcache_align, ..CacheSpec::new("t", size) };
        let g = Geometry::new(&spec, &config, &Shape::of_machine(1, 1 << 30)).unwrap();
        let t = geometry::Tunables::new(&config, &g, &Shape::of_machine(8, 1 << 30));
        (g, t)
    };
    for size in [100, 104] {
        let (g, _) = shape(size, 0, false);
        assert_eq!((g.slot, g.num), (128, 30));
        // Red zone 2 at 112, last user at 120.
        assert_eq!((g.checks.before() + g.object, g.slot - 8), (112, 120));
    }
    let (g, t) = shape(128, 0, true);
    assert_eq!((g.slot, g.num, t.limit, t.batch, t.shared_limit()), (152, 25, 32, 16, 128));
    let (g, _) = shape(256, 0, true);
    assert_eq!((g.slot, g.num), (280, 14));
    let (g, _) = shape(4090, 0, false);
    assert_eq!((g.slot, g.num, g.order.0, g.checks.red_zone), (4120, 1, 1, true));
    let (g, _) = shape(4096, 0, false);
    assert_eq!((g.slot, g.checks.red_zone, g.checks.user, g.checks.poison), (4096, false, false, true));
    let (g, _) = shape(100, 64, false);
    assert_eq!((g.slot, g.checks.red_zone, g.checks.user), (128, false, false));
}

#[test]
fn in_6_1_an_alignment_hint_wins_over_red_zones() {
    let config = Config { debug: "FZPU".into(), ..Config::era("6.1").unwrap() };
    let shape = |spec: CacheSpec| Geometry::new(&spec, &config, &Shape::of_machine(1, 1 << 30)).unwrap();
    let hinted = shape(CacheSpec::new("t", 128).hwcache());
    assert_eq!((hinted.slot, hinted.checks.red_zone), (128, false));
    let plain = shape(CacheSpec::new("t", 128));
    assert_eq!((plain.slot, plain.checks.red_zone, plain.checks.user), (152, true, true));
}

#[test]
fn only_caches_with_the_prefix_are_debugged_and_pay_for_it() {
    let config = Config { debug: "Z,vic".into(), ..config() };
    let slot = |name: &str| geometry(&config, &CacheSpec::new(name, 64), &Shape::of_machine(2, 64 << 20)).unwrap();
    assert_eq!((slot("victim").slab_size, slot("victim").limit), (80, 32));
    assert_eq!((slot("other").slab_size, slot("other").limit), (64, 120));
}

#[test]
fn a_write_past_the_object_is_found_when_it_is_freed() {
    let parts = ["victim", "memory outside object was overwritten", "expected 0xd84156c5635688c0", "found"];
    reported("Z", &parts, |slab, c, cache| {
        let x = take(slab, c, cache);
        poke_byte(slab, x.plus(104), 0);
        slab.free(c, cache, Object::at(x));
    });
    // In front of it, too.
    reported("FZPU", &parts, |slab, c, cache| {
        let x = take(slab, c, cache);
        poke_byte(slab, Addr(x.0 - 1), 1);
        slab.free(c, cache, Object::at(x));
    });
    // Up to the object's last byte everything is the user's.
    for letters in ["Z", "FZPU"] {
        let fine = Lab::new("2.6.24", letters, 1).says(104, |slab, c, cache| {
            let x = take(slab, c, cache);
            slab.pages.arena().fill(x, 104, 0xee);
            slab.free(c, cache, Object::at(x));
        });
        assert_eq!(fine, "", "{letters}");
    }
}

#[test]
fn a_write_after_free_is_found_when_the_object_is_handed_out_again() {
    let parts = ["victim", "use after free", "byte 5: expected 0x6b, found 0x6a", "Single bit error", "obj: start="];
    reported("P", &parts, |slab, c, cache| {
        let x = take(slab, c, cache);
        slab.free(c, cache, Object::at(x));
        poke_byte(slab, x.plus(5), 0x6a);
        take(slab, c, cache);
    });
    // With its last user, and the line of bytes.
    let parts = ["byte 16: expected 0x6b, found 0x01", "last user cpu=0 at", "010: 01 6b 6b"];
    reported("FZPU", &parts, |slab, c, cache| {
        let x = take(slab, c, cache);
        slab.free(c, cache, Object::at(x));
        poke_byte(slab, x.plus(16), 1);
        take(slab, c, cache);
    });
    reported("P", &["byte 103: expected 0xa5, found 0x00"], |slab, c, cache| {
        let x = take(slab, c, cache);
        slab.free(c, cache, Object::at(x));
        poke_byte(slab, x.plus(103), 0);
        take(slab, c, cache);
    });
}

#[test]
fn a_write_after_free_is_found_when_the_slab_is_destroyed() {
    reported("P", &["victim", "use after free", "found 0x00"], |slab, c, cache| {
        let x = take(slab, c, cache);
        slab.free(c, cache, Object::at(x));
        poke_byte(slab, x.plus(40), 0);
        slab.shrink(c, cache);
    });
}

#[test]
fn a_double_free_is_found_by_red_zones_at_once_and_by_lists_when_it_goes_back() {
    reported(
        "Z",
        &["victim", "double free", "expected 0xd84156c5635688c0", "found 0x09f911029d74e35b"],
        |slab, c, cache| {
            let x = take(slab, c, cache);
            slab.free(c, cache, Object::at(x));
            slab.free(c, cache, Object::at(x));
        },
    );
    reported("F", &["victim", "double free", "expected one in use", "found index"], |slab, c, cache| {
        let (x, _y) = (take(slab, c, cache), take(slab, c, cache));
        slab.free(c, cache, Object::at(x));
        slab.free(c, cache, Object::at(x));
        slab.shrink(c, cache);
    });
}

#[test]
fn freeing_to_the_wrong_cache_or_a_foreign_address_names_what_was_found() {
    for letters in ["F", "FZPU", "U"] {
        reported(letters, &["victim", "expected one of its objects", "found page"], |slab, c, cache| {
            let x = slab.kmalloc(c, 100, Request::default()).unwrap();
            slab.free(c, cache, x);
        });
        reported(letters, &["victim", "expected one of its objects", "whose"], |slab, c, cache| {
            let x = take(slab, c, cache);
            slab.free(c, cache, Object::at(x.plus(4)));
        });
        reported(letters, &["victim", "belongs to no cache"], |slab, c, cache| {
            let page = slab.pages.alloc_pages(c, crate::units::Order(0), None, Default::default()).unwrap();
            slab.free(c, cache, Object::at(slab.pages.addr_of(page.pfn())));
        });
        reported(letters, &["victim", "outside memory"], |slab, c, cache| {
            slab.free(c, cache, Object::at(Addr(1 << 40)));
        });
    }
}

#[test]
fn a_broken_chain_is_found_before_anything_is_taken_from_it() {
    let text = Lab::new("2.6.24", "F", 1).says(3000, |slab, c, cache| {
        let x = take(slab, c, cache);
        slab.free(c, cache, Object::at(x));
        let cache_of = &slab.caches[cache.0 as usize];
        slab.drain_cpu(c, cache_of);
        let (header, _) = slab.locate(cache_of, cache_of.slot_of(x)).unwrap();
        // The header's fifth word: inuse and first free index.
        slab.pages.arena().poke(header.0.plus(32), 77 << 32);
        take(slab, c, cache);
    });
    assert!(text.contains("free list of a slab corrupted") && text.contains("one of them 77"), "{text}");
}

#[test]
fn what_is_handed_out_is_marked_and_a_zeroed_object_is_zero() {
    for era in Config::ERAS {
        let fine = Lab::new(era, "FZPU", 2).says(100, |slab, c, cache| {
            let x = take(slab, c, cache);
            let arena = slab.pages.arena();
            assert_eq!(arena.peek(x), 0x5a5a_5a5a_5a5a_5a5a);
            let zero = slab.alloc(c, cache, Request { zero: true, ..Request::default() }).unwrap();
            assert!((0..96).step_by(8).all(|i| arena.peek(zero.addr().plus(i)) == 0));
            slab.free(c, cache, zero);
        });
        assert_eq!(fine, "", "{era}");
    }
}

#[test]
fn debugged_caches_keep_every_rule_on_racing_nodes() {
    for (era, letters) in [("2.6.24", "FZPU"), ("6.1", "FZPU"), ("2.6.24", "F"), ("6.1", "P"), ("6.1", "FZPU,size")] {
        let lab = Lab { machine: machine(4, 2, 64), ..Lab::new(era, letters, 1) };
        let mut pages = Pages::new(&lab.machine, PageModel::default()).unwrap();
        {
            let mut slab = Slab::new(&pages, &lab.config).unwrap();
            let specs = [40, 104, 700, 4000].map(|size| CacheSpec::new(format!("c{size}"), size));
            let rcu = CacheSpec { typesafe_by_rcu: true, ..CacheSpec::new("rcu", 200) };
            let ctor = CacheSpec { ctor: true, ..CacheSpec::new("ctor", 200) };
            let caches: Vec<CacheId> =
                specs.into_iter().chain([rcu, ctor]).map(|s| slab.create_cache(s).unwrap()).collect();
            let pool: Mutex<Vec<(CacheId, Addr)>> = Mutex::default();
            lab.machine.boot(|c| {
                for i in 0..3000u64 {
                    let r = ((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) ^ (u64::from(c.id().0) * 7);
                    let cache = caches[r as usize % caches.len()];
                    if r % 5 < 3 || i < 500 {
                        let x = take(&slab, c, cache);
                        let size = slab.caches[cache.0 as usize].spec.size;
                        slab.pages.arena().fill(x, size, r as u8);
                        pool.lock().unwrap().push((cache, x));
                    } else {
                        let next = {
                            let mut pool = pool.lock().unwrap();
                            let n = pool.len().max(1);
                            if pool.is_empty() { None } else { Some(pool.swap_remove(r as usize % n)) }
                        };
                        if let Some((cache, x)) = next {
                            slab.free(c, cache, Object::at(x));
                        }
                    }
                }
                while c.idle(None) != Wakeup::Quiet {}
            });
            slab.verify().unwrap();
            let rest = std::mem::take(&mut *pool.lock().unwrap());
            on(&lab.machine, 1, |c| {
                rest.iter().for_each(|(cache, x)| slab.free(c, *cache, Object::at(*x)));
                caches.iter().for_each(|cache| assert_eq!(slab.destroy(c, *cache), Destroyed::default()));
            });
            slab.verify().unwrap();
        }
        pages.verify().unwrap();
    }
}
