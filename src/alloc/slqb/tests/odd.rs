//! Odd inputs, debugging, and what is said when something is wrong.

use super::*;

fn debugged(letters: &str) -> Config {
    Config { debug: letters.into(), ..config(&[]) }
}

/// Message of the panic of `f`.
fn complaint(f: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).expect_err("a complaint");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).expect("a text")
}

#[test]
fn sizes_below_a_link_and_above_the_largest_slab_are_refused_and_the_largest_works() {
    lab(ONE, config(&[]), plain(64), |lab| {
        for size in [0, 1, 7, (4 << 20) + 1, u64::MAX] {
            let e = lab.slqb.create_cache(CacheSpec::new("odd", size)).unwrap_err().to_string();
            assert!(e.starts_with(&format!("cache.size = {size}: ")), "{e}");
        }
        for align in [3, 24, 8 << 20] {
            let e = lab.slqb.create_cache(CacheSpec { align, ..CacheSpec::new("odd", 64) }).unwrap_err().to_string();
            assert!(e.starts_with("cache.align") || e.starts_with("cache.size"), "{e}");
        }
        for (size, align) in [(4 << 20, 0), (64, 4096), (64, 8192)] {
            let name = format!("{size}/{align}");
            let id = lab.slqb.create_cache(CacheSpec { align, ..CacheSpec::new(name, size) }).unwrap();
            lab.on(0, |cpu| {
                let x = lab.slqb.alloc(cpu, id, Request::default()).unwrap();
                assert_eq!(x.addr().0 % align.max(8), 0);
                lab.slqb.free(cpu, id, x);
            });
        }
    });
}

#[test]
fn ten_thousand_caches_are_made_used_and_destroyed() {
    lab(PAIR, config(&[]), plain(64), |lab| {
        let before = lab.slqb.cache_count();
        let ids: Vec<CacheId> = (0..10_000)
            .map(|i| lab.slqb.create_cache(CacheSpec::new(format!("c{i}"), 64 + i % 512)).unwrap())
            .collect();
        assert_eq!(lab.slqb.cache_count(), before + 10_000);
        lab.on(1, |cpu| {
            for id in ids.iter().step_by(97) {
                let x = lab.slqb.alloc(cpu, *id, Request::default()).unwrap();
                lab.slqb.free(cpu, *id, x);
            }
            assert!(ids.iter().all(|id| lab.slqb.destroy(cpu, *id) == Destroyed::default()));
        });
    });
}

#[test]
fn a_name_is_any_text_but_none_and_none_twice() {
    lab(ONE, config(&[]), plain(64), |lab| {
        for name in ["with blanks", "größe", "日本", "tab\there"] {
            let id = lab.slqb.create_cache(CacheSpec::new(name, 64)).unwrap();
            assert_eq!(lab.slqb.info(id).name, name);
            assert!(lab.slqb.create_cache(CacheSpec::new(name, 64)).unwrap_err().to_string().contains("cache.name"));
        }
    });
}

#[test]
fn each_kind_of_corruption_is_said_with_cache_object_expected_and_found() {
    // What is written where, while the object is in use or free, and what the next free or allocation says of it.
    for (letters, in_use, byte, part) in [
        ("Z", true, 104, "Redzone overwritten"),
        ("P", false, 10, "Poison overwritten"),
        ("P", false, 103, "Poison overwritten"),
        ("ZPU", true, 173, "Object padding overwritten"),
    ] {
        let text = complaint(|| {
            lab(ONE, debugged(letters), plain(104), |lab| {
                let x = lab.alloc(0, 1)[0];
                if !in_use {
                    lab.free(0, &[x]);
                }
                lab.slqb.pages().arena().fill(x.plus(byte), 1, 0x11);
                if in_use { lab.free(0, &[x]) } else { drop(lab.alloc(0, 1)) }
            });
        });
        assert!(text.contains("cache test") && text.contains(part), "{letters}: {text}");
        assert!(text.contains(&format!("byte {byte}: expected 0x")) && text.contains("found 0x11"), "{text}");
    }
}

#[test]
fn a_corrupted_object_is_found_by_verify_too() {
    lab(ONE, debugged("FZPU"), plain(104), |lab| {
        let objects = lab.alloc(0, 30);
        lab.free(0, &objects[..20]);
        lab.verify();
        let arena = lab.slqb.pages().arena();
        let word = arena.peek(objects[25].plus(104));
        arena.poke(objects[25].plus(104), 0);
        let e = lab.slqb.verify().unwrap_err().to_string();
        assert!(e.contains("Redzone overwritten") && e.contains("allocated in cpu=0"), "{e}");
        arena.poke(objects[25].plus(104), word);
    });
}

#[test]
fn a_second_free_is_said_with_debugging_and_found_by_verify_without() {
    let twice = |config: Config| {
        complaint(|| {
            lab(ONE, config, plain(104), |lab| {
                let objects = lab.alloc(0, 4);
                lab.free(0, &[objects[0], objects[1], objects[0]]);
            });
        })
    };
    assert!(twice(debugged("Z")).contains("Object already free"));
    // Its LIFO runs in a circle: the walk ends, and says so.
    assert!(twice(config(&[])).contains("LIFO of cpu0"));
    let listed = complaint(|| {
        lab(ONE, Config { freebatch: Some(1), hiwater: Some(0), ..debugged("F") }, plain(104), |lab| {
            let objects = lab.alloc(0, 4);
            lab.free(0, &[objects[0], objects[1], objects[0]]);
        });
    });
    assert!(listed.contains("Object already free"), "{listed}");
}

#[test]
fn foreign_addresses_are_refused_with_what_was_expected() {
    for debug in ["", "F"] {
        let free = |x: fn(&Lab<'_>) -> Addr| {
            complaint(|| {
                lab(TWO_NODES, debugged(debug), plain(256), |lab| {
                    lab.alloc(0, 1);
                    let x = x(lab);
                    lab.free(0, &[x]);
                });
            })
        };
        assert!(free(|_| Addr(1 << 40)).contains("outside the arena"));
        assert!(free(|_| Addr(4096 * 3000)).contains("found no slab"));
        let other = |lab: &Lab<'_>| lab.on(0, |cpu| lab.slqb.kmalloc(cpu, 256, Request::default()).unwrap().addr());
        assert!(free(other).contains("found cache"));
    }
    let kfree = |x: Addr| {
        complaint(|| drop(lab(ONE, config(&[]), plain(256), |lab| lab.on(0, |cpu| lab.slqb.kfree(cpu, Object::at(x))))))
    };
    assert!(kfree(Addr(1 << 40)).contains("outside the arena"));
    assert!(kfree(Addr(4096 * 3000)).contains("no slab"));
}

#[test]
fn debugging_works_on_queues_of_all_kinds_and_costs_memory() {
    let run = |debug: &str| {
        let config = Config { debug: debug.into(), ..config(&[("freebatch", 3)]) };
        lab(TWO_NODES, config, plain(104), |lab| {
            let a = lab.alloc(0, 200);
            let slabs = lab.slqb.info(lab.cache).slabs.unwrap();
            let b = lab.alloc_on(1, 50, Some(0));
            lab.free(1, &a);
            lab.free(0, &b);
            lab.verify();
            lab.alloc(0, 100);
            lab.verify();
            slabs
        })
        .0
    };
    assert_eq!([run(""), run("F"), run("FZPU"), run(",test"), run("FZPU,kmalloc")], [6, 6, 9, 9, 6]);
}

#[test]
fn debug_letters_that_do_not_exist_are_refused() {
    for letters in ["Q", "T", "A", "FZ-X"] {
        let e = Config::from_json(&serde_json::json!({ "debug": letters })).unwrap_err().to_string();
        assert!(e.contains("allocator.debug") && e.contains("F Z P U"), "{e}");
    }
}
