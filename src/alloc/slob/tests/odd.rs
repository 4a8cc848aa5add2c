//! Odd inputs, memory that was overwritten, grace periods, sizes and reports.

use super::*;
use crate::machine::Cpu;
use crate::units::Picos;

/// Message of the panic of `f`.
fn complaint(f: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).expect_err("a complaint");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).expect("a text")
}

/// What a free of `bytes` bytes says after three blocks of 64 bytes, the middle one freed.
fn give_says(place: (u32, u64), bytes: u64) -> String {
    complaint(|| {
        with_heap(config("2.6.24"), |b| {
            let blocks: Vec<_> = (0..3).map(|_| b.take(64, 0)).collect();
            b.give(blocks[1], 64);
            b.give(place, bytes);
        })
    })
}

#[test]
fn a_free_list_that_was_overwritten_ends_every_walk_and_is_said() {
    // A next that points back, one past the page, one into the block itself, and a size that reaches over the next block.
    for words in [[64i16, 0], [64, 3000], [64, 40], [2000, 96], [-1, 0], [0, 0]] {
        for (what, era) in [("alloc", "2.6.24"), ("free", "2.6.24-headmerge"), ("alloc", "6.1"), ("free", "6.1")] {
            let mut verified = String::new();
            let text = complaint(|| {
                with_heap(config(era), |b| {
                    let blocks: Vec<_> = (0..4).map(|_| b.take(64, 0)).collect();
                    b.give(blocks[1], 64);
                    let page = HeapPage::of(b.slob.pages, Pfn(0));
                    assert_eq!(b.free(0), [(32, 32), (128, 1920)]);
                    let (a, z) = (words[0] as u16, words[1] as u16);
                    b.slob.pages.arena().poke_bits(page.addr(32), 0xffff_ffff, u64::from(a) | u64::from(z) << 16);
                    verified = b.slob.verify().unwrap_err().to_string();
                    match what {
                        "alloc" => drop(b.take(200, 0)),
                        _ => b.give(blocks[3], 64),
                    }
                })
            });
            assert!(text.contains("free list corrupted") && text.contains("Pfn(0)"), "{words:?} {what} {era}: {text}");
            assert!(verified.contains("heap page 0"), "{words:?}: {verified}");
        }
    }
}

#[test]
fn freeing_twice_or_what_is_no_block_is_said_with_what_was_expected() {
    assert!(give_says((0, 64), 64).contains("freed twice"));
    assert!(give_says((0, 32), 64).contains("freed twice, or with the wrong size"));
    assert!(give_says((0, 4090), 64).contains("expected a block of a heap page"));
    assert!(give_says((9, 0), 64).contains("expected a block of a heap page"));
    assert!(give_says((1 << 20, 0), 64).contains("outside the arena"));
}

#[test]
fn kfree_of_what_kmalloc_never_returned_is_said() {
    let kfree = |address: fn(&mut Bench) -> Addr| {
        complaint(|| {
            with_heap(config("6.1"), |b| {
                let x = address(b);
                let slob = &b.slob;
                slob.on_boot_cpu(|cpu| slob.kfree(cpu, Object::at(x)));
            })
        })
    };
    assert!(kfree(|_| Addr(1 << 40)).contains("outside the arena"));
    assert!(kfree(|_| Addr(4096 * 100)).contains("expected what kmalloc returned"));
    assert!(kfree(|b| Addr(b.kmalloc(8192).1 + 4096)).contains("expected what kmalloc returned"));
    assert!(kfree(|b| Addr(b.kmalloc(100).1 + 4)).contains("an object of kmalloc"));
    assert!(
        kfree(|b| {
            b.kmalloc(100);
            Addr(0)
        })
        .contains("an object of kmalloc")
    );
    // A cache's object has no header: what lies in front of it is another object's content.
    let of_a_cache = |b: &mut Bench| {
        let id = b.slob.create_cache(CacheSpec::new("c", 64)).unwrap();
        let slob = &b.slob;
        slob.on_boot_cpu(|cpu| {
            let first = slob.alloc(cpu, id, Request::default()).unwrap();
            slob.pages.arena().fill(first.addr(), 64, 0xff);
            slob.alloc(cpu, id, Request::default()).unwrap().addr()
        })
    };
    assert!(kfree(of_a_cache).contains("header of"));
}

#[test]
fn freeing_to_the_wrong_cache_frees_its_size_as_the_kernel_would_and_verify_finds_it() {
    // 64 bytes of a 128-byte object stay lost: the kernel would not notice.
    with_heap(config("2.6.24"), |b| {
        let [small, large] = [64, 128].map(|n| b.slob.create_cache(CacheSpec::new(format!("c{n}"), n)).unwrap());
        let slob = &b.slob;
        let mine = slob.on_boot_cpu(|cpu| {
            let (x, y) = (slob.alloc(cpu, large, Request::default()), slob.alloc(cpu, large, Request::default()));
            slob.free(cpu, small, Object::at(x.unwrap().addr()));
            y.unwrap().addr()
        });
        assert_eq!(b.free(0), [(0, 32), (128, 1920)]);
        let found = b.slob.verify().unwrap_err().to_string();
        assert!(found.contains("c64") && found.contains("freed twice"), "{found}");
        // Put right again, so that the heap is whole at the end.
        let slob = &b.slob;
        slob.on_boot_cpu(|cpu| {
            slob.free_block(cpu, Addr(64), 64);
            slob.caches[small.0 as usize].tally.with(cpu, |t| (t.objects, t.bytes, t.units) = (0, 0, 0));
            slob.caches[large.0 as usize].tally.with(cpu, |t| (t.objects, t.bytes, t.units) = (1, 128, 64));
            slob.free(cpu, large, Object::at(mine));
        });
    });
}

#[test]
fn any_size_from_one_byte_to_the_largest_block_works_and_no_other() {
    for era in ALL {
        with_heap(config(era), |b| {
            for size in [0, (4 << 20) + 1, u64::MAX] {
                let e = b.slob.create_cache(CacheSpec::new("odd", size)).unwrap_err().to_string();
                assert!(e.starts_with(&format!("cache.size = {size}: 1..")), "{e}");
            }
            // A type-safe object has its footer behind it.
            let rcu = CacheSpec { typesafe_by_rcu: true, ..CacheSpec::new("odd", 4 << 20) };
            let e = b.slob.create_cache(rcu).unwrap_err().to_string();
            assert!(e.contains("cache.size = 4194304: 1..4194280 bytes"), "{e}");
            for (size, align) in [(1, 0), (7, 0), (100, 4096), (4095, 0), (4096, 4096), (8192, 8192), (4 << 20, 0)] {
                let id = b.slob.create_cache(CacheSpec { align, ..CacheSpec::new("odd", size) }).unwrap();
                let slob = &b.slob;
                slob.on_boot_cpu(|cpu| {
                    let x = slob.alloc(cpu, id, Request::default()).expect("memory");
                    assert_eq!(x.addr().0 % align.max(1), 0, "{era}: {size} bytes");
                    slob.free(cpu, id, x);
                });
            }
            let e =
                b.slob.create_cache(CacheSpec { align: 8192, ..CacheSpec::new("odd", 100) }).unwrap_err().to_string();
            assert!(e.contains("cache.align = 8192: at most 4096"), "{e}");
            let slob = &b.slob;
            slob.on_boot_cpu(|cpu| {
                assert!(slob.kmalloc(cpu, (4 << 20) + 1, Request::default()).is_none());
                let most = slob.kmalloc(cpu, 4 << 20, Request::default()).expect("memory");
                slob.kfree(cpu, most);
            });
        });
    }
}

#[test]
fn ten_thousand_caches_of_any_name_take_descriptors_and_give_them_back() {
    for era in ["2.6.24", "6.1"] {
        let descriptor = Config::era(era).unwrap().descriptor;
        with_heap(Config::era(era).unwrap(), |b| {
            let names = ["", "with blanks", "größe", "twice", "twice"];
            let ids: Vec<CacheId> =
                (0..10_000).map(|i| b.slob.create_cache(CacheSpec::new(names[i % 5], 1 + i as u64)).unwrap()).collect();
            assert_eq!(b.slob.heap().heap_pages, (10_000 * descriptor).div_ceil(PAGE_SIZE));
            let slob = &b.slob;
            slob.on_boot_cpu(|cpu| ids.iter().for_each(|id| assert_eq!(slob.destroy(cpu, *id), Destroyed::default())));
            assert_eq!(b.slob.heap().heap_pages, 0);
        });
    }
}

#[test]
fn a_cache_that_was_destroyed_is_refused() {
    let text = complaint(|| {
        with_heap(config("6.1"), |b| {
            let id = b.slob.create_cache(CacheSpec::new("gone", 64)).unwrap();
            let slob = &b.slob;
            slob.on_boot_cpu(|cpu| slob.destroy(cpu, id));
            slob.on_boot_cpu(|cpu| slob.destroy(cpu, id));
        })
    });
    assert!(text.contains("cache gone has been destroyed"), "{text}");
}

#[test]
fn a_type_safe_object_goes_back_after_the_grace_period() {
    for (era, size) in [("2.6.24", 104), ("6.1", 104), ("6.1", 5000)] {
        with_heap(config(era), |b| {
            let spec = CacheSpec { typesafe_by_rcu: true, ..CacheSpec::new("c", size) };
            let id = b.slob.create_cache(spec).unwrap();
            let slob = &b.slob;
            slob.on_boot_cpu(|cpu| {
                let objects: Vec<_> = (0..3).map(|_| slob.alloc(cpu, id, Request::default()).unwrap()).collect();
                objects.into_iter().for_each(|x| slob.free(cpu, id, x));
                slob.trim(cpu);
            });
            assert_eq!(b.slob.info(id).live_objects, 0, "no user holds one");
            assert!(b.slob.pages.lent() > 0, "but the memory is still theirs");
            b.slob.verify().unwrap();
            let slob = &b.slob;
            slob.on_boot_cpu(|cpu| {
                cpu.delay(Picos(10_000_000_000));
                slob.trim(cpu);
            });
            assert_eq!(b.slob.pages.lent(), 0, "{era}");
        });
    }
}

#[test]
fn the_destruction_of_a_type_safe_cache_waits_in_later_releases() {
    for (era, left) in [("2.6.24", 1), ("6.1", 0)] {
        with_heap(config(era), |b| {
            let spec = CacheSpec { typesafe_by_rcu: true, ..CacheSpec::new("c", 104) };
            let id = b.slob.create_cache(spec).unwrap();
            let slob = &b.slob;
            slob.on_boot_cpu(|cpu| {
                let x = slob.alloc(cpu, id, Request::default()).unwrap();
                slob.free(cpu, id, x);
                slob.destroy(cpu, id);
            });
            assert_eq!(b.slob.pages.lent(), left, "{era}");
            let slob = &b.slob;
            slob.on_boot_cpu(|cpu| slob.await_grace(cpu));
            assert_eq!(b.slob.pages.lent(), 0);
        });
    }
}

#[test]
fn a_constructor_runs_at_every_allocation() {
    // Its writes are paid for each time: a hot pair of a constructed object of ten lines costs ten writes more.
    let elapsed = |ctor| {
        let mut sim = machine(1, Schedule::default());
        let pages = Pages::new(&sim, PageModel::Stack).unwrap();
        let mut slob = Slob::new(&pages, &config("6.1")).unwrap();
        let id = slob.create_cache(CacheSpec { ctor, ..CacheSpec::new("c", 640) }).unwrap();
        sim.boot(|cpu| {
            for _ in 0..50 {
                let x = slob.alloc(cpu, id, Request::default()).unwrap();
                slob.free(cpu, id, x);
            }
        });
        drop(slob);
        drop(pages);
        sim.elapsed()
    };
    let (without, with) = (elapsed(false), elapsed(true));
    let one = elapsed(true) - elapsed(false);
    assert!(with > without && one >= 50 * 10 * 100, "{with} {without}");
}

#[test]
fn ksize_is_whole_units_on_the_heap_and_the_page_run_or_the_exact_size_beyond() {
    for (era, big) in [("2.6.24", 5000), ("6.1", 8192)] {
        with_heap(config(era), |b| {
            let slob = &b.slob;
            slob.on_boot_cpu(|cpu| {
                for (bytes, size) in [(0, 0), (1, 2), (7, 8), (100, 100), (4087, 4088), (5000, big)] {
                    let x = slob.kmalloc(cpu, bytes, Request::default()).unwrap();
                    assert_eq!(slob.ksize(cpu, &x), size, "{era}: {bytes}");
                    slob.kfree(cpu, x);
                }
            });
        });
    }
}

#[test]
fn krealloc_stays_in_place_while_it_fits_and_copies_when_it_does_not() {
    with_heap(config("6.1"), |b| {
        let slob = &b.slob;
        slob.on_boot_cpu(|cpu| {
            let x = slob.kmalloc(cpu, 21, Request::default()).unwrap();
            let was = x.addr();
            slob.pages.arena().fill(was, 21, 0xab);
            let x = slob.krealloc(cpu, x, 22, Request::default()).unwrap();
            assert_eq!(x.addr(), was);
            let y = slob.krealloc(cpu, x, 300, Request::default()).unwrap();
            assert_ne!(y.addr(), was);
            let byte = |i: u64| (slob.pages.arena().peek(y.addr().plus(i)) >> ((y.addr().0 + i) % 8 * 8)) as u8;
            assert!((0..21).all(|i| byte(i) == 0xab));
            let none = slob.krealloc(cpu, y, 0, Request::default()).unwrap();
            assert_eq!(none.addr(), ZERO_SIZE);
        });
        assert_eq!(b.slob.heap().heap_pages, 0);
    });
}

#[test]
fn the_report_shows_pages_free_units_and_fragments_and_the_map_where_they_are() {
    with_heap(config("2.6.24"), |b| {
        let blocks: Vec<_> = (0..16).map(|_| b.take(256, 0)).collect();
        [15, 14, 13, 4].iter().for_each(|&i| b.give(blocks[i], 256));
        let text = b.slob.heap_text().unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "slob: 1 heap pages, 0 big pages (4 KiB), 3072 bytes live, efficiency 75.0 %");
        assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["all", "1", "512", "4", "2", "75.0", "%"]);
        assert_eq!(
            lines[3],
            "page      0  512 free |################....################################....::::....|"
        );
        let small = b.take(30, 0);
        assert!(b.slob.map().contains("+...################"), "half a cell is used");
        b.give(small, 30);
    });
}
