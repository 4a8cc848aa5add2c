//! Odd inputs: each works as in the kernel, or is refused with a reason.

use super::*;

fn make(era: &str, spec: CacheSpec) -> Result<String, String> {
    let machine = machine(1, 1, 64);
    let pages = Pages::new(&machine, PageModel::default()).unwrap();
    let mut slab = Slab::new(&pages, &Config { merge: false, ..Config::era(era).unwrap() }).unwrap();
    let (size, align) = (spec.size, spec.align);
    let cache = slab.create_cache(spec).map_err(|e| e.to_string())?;
    let objects = allocate(&slab, 0, cache, 9);
    for x in &objects {
        assert!(x.0.is_multiple_of(align.max(8)), "{era}: {x:?} of align {align}");
        slab.pages.arena().fill(*x, size, 0xff);
    }
    slab.verify().unwrap();
    release(&slab, 0, cache, &objects);
    on(&machine, 0, |c| assert_eq!(slab.destroy(c, cache), Destroyed::default()));
    slab.verify().unwrap();
    Ok(slab.caches[cache.0 as usize].spec.name.clone())
}

#[test]
fn sizes_from_one_byte_to_the_largest_block_work_and_others_are_refused() {
    for era in Config::ERAS {
        for size in [8, 9, 4 << 20, (4 << 20) - 1] {
            make(era, CacheSpec::new("odd", size)).unwrap();
        }
        for size in [0, (4 << 20) + 1, u64::MAX] {
            let e = make(era, CacheSpec::new("odd", size)).unwrap_err();
            assert!(e.contains(&format!("cache.size = {size}")) && e.contains("4194304 bytes"), "{era}: {e}");
        }
    }
    for size in [1, 7] {
        // 2.6.24 refuses what is smaller than a word; 6.1 has no smallest size.
        let e = make("2.6.24", CacheSpec::new("odd", size)).unwrap_err();
        assert!(e.contains(&format!("cache.size = {size}: 8..4194304")), "{e}");
        make("6.1", CacheSpec::new("odd", size)).unwrap();
    }
}

#[test]
fn alignments_of_a_page_and_more_work_and_what_is_no_power_of_two_is_refused() {
    for era in Config::ERAS {
        for align in [4096, 8192] {
            for size in [8, 100, 5000] {
                make(era, CacheSpec { align, ..CacheSpec::new("odd", size) }).unwrap();
            }
        }
        let e = make(era, CacheSpec { align: 3, ..CacheSpec::new("odd", 100) }).unwrap_err();
        assert!(e.contains("cache.align = 3: 0 or a power of two"), "{era}: {e}");
    }
}

#[test]
fn a_name_may_be_anything_and_slabinfo_shows_it_as_the_kernel_would() {
    for era in Config::ERAS {
        for name in ["", "two words", "größe-☃", &"x".repeat(300)] {
            assert_eq!(make(era, CacheSpec::new(name, 100)).unwrap(), name);
        }
        with_cache_of(era, 1, 1, 100, |slab, _| {
            slab.create_cache(CacheSpec::new("two words", 100)).unwrap();
            slab.create_cache(CacheSpec::new("ä", 100)).unwrap();
            let text = slab.slabinfo().unwrap();
            // 17 bytes, of which the umlaut takes two.
            assert!(text.contains("\nä                     0      0"), "{text}");
            // The kernel takes the first word of a written line for the name.
            assert!(slab.write_slabinfo("two words 10 5 1").is_err());
            assert_eq!(slab.write_slabinfo("ä 10 5 1"), Ok(true));
        });
    }
}

#[test]
fn a_name_in_use_is_refused_in_2_6_24_and_allowed_in_6_1() {
    with_cache_of("6.1", 1, 1, 100, |slab, cache| {
        let twin = slab.create_cache(CacheSpec::new("test", 100)).unwrap();
        assert_ne!(twin, cache);
        assert_eq!(slab.slabinfo().unwrap().matches("\ntest ").count(), 2);
    });
    with_cache_of("2.6.24", 1, 1, 100, |slab, _| {
        let e = slab.create_cache(CacheSpec::new("test", 100)).unwrap_err().to_string();
        assert!(e.contains("cache.name = \"test\": a name that no cache has"), "{e}");
    });
}

#[test]
fn ten_thousand_caches_work() {
    for era in Config::ERAS {
        with_cache_of(era, 1, 1, 100, |slab, _| {
            let made: Vec<CacheId> = (0..10_000u64)
                .map(|i| slab.create_cache(CacheSpec::new(format!("cache-{i}"), 8 + i % 3000)).unwrap())
                .collect();
            let objects: Vec<Vec<Addr>> = made.iter().step_by(97).map(|c| allocate(slab, 0, *c, 3)).collect();
            slab.verify().unwrap();
            for (cache, objects) in made.iter().step_by(97).zip(objects) {
                release(slab, 0, *cache, &objects);
            }
            on(slab.pages.machine(), 0, |c| {
                slab.trim(c);
                made.iter().for_each(|cache| assert_eq!(slab.destroy(c, *cache), Destroyed::default()));
            });
            assert_eq!(slab.slabinfo().unwrap().lines().filter(|l| l.starts_with("cache-")).count(), 0);
        });
    }
}
