//! The invariants of slqb.md §18 and its quirks, each as the sentence it proves.

use super::*;
use crate::machine::Cpu;
use crate::units::{CpuId, PAGE_SIZE};

fn quirkless() -> Config {
    Config {
        quirk_double_count: false,
        quirk_lost_crossing: false,
        quirk_destroy_leftovers: false,
        ..config(&[("freebatch", 4)])
    }
}

fn lifo(lab: &mut Lab<'_>, cpu: usize) -> u64 {
    lab.slqb.state(lab.cache)["cpu"][cpu]["freelist"].as_u64().unwrap()
}

#[test]
fn a_lifo_that_a_claim_lifted_falls_by_a_batch_less_one_with_each_free() {
    // 18.6. The owner's remote_free holds hiwater/2 + freebatch = 8 + 4 objects and more, its LIFO is full: a trim claims all.
    let shape = Shape { cpus: 2, nodes: 2, mib: 16 };
    lab(shape, config(&[("freebatch", 4), ("hiwater", 16)]), plain(1024), |lab| {
        let mine = lab.alloc(0, 40);
        lab.free(1, &mine[..12]);
        lab.free(0, &mine[12..28]);
        assert_eq!((lifo(lab, 0), lab.slqb.state(lab.cache)["cpu"][0]["remote_free"].as_u64()), (16, Some(12)));
        lab.trim(0);
        assert_eq!(lifo(lab, 0), 24, "16 + 12, less one batch, is above hiwater");
        lab.verify();
        for (free, left) in [21, 18, 15, 16, 13].into_iter().enumerate() {
            lab.free(0, &mine[28 + free..29 + free]);
            assert_eq!(lifo(lab, 0), left);
            lab.verify();
        }
    });
}

#[test]
fn a_lifo_above_hiwater_that_no_claim_explains_is_found() {
    lab(ONE, config(&[("freebatch", 4)]), plain(256), |lab| {
        let objects = lab.alloc(0, 16);
        lab.free(0, &objects);
        let slab = &lab.slqb.caches[lab.cache.0 as usize];
        slab.hiwater.poke(8);
        assert!(lab.slqb.verify().unwrap_err().to_string().contains("LIFO of cpu0: 16 objects > 8"));
        lab.slqb.caches[lab.cache.0 as usize].hiwater.poke(16);
    });
}

#[test]
fn pages_taken_less_pages_returned_are_those_of_the_slabs() {
    // 18.13, against the page allocator's own balance: nobody else has pages here.
    for order in [0, 2] {
        lab(TWO_NODES, config(&[("order", order), ("freebatch", 4)]), plain(1024), |lab| {
            let before = lab.slqb.pages().lent();
            let objects = lab.alloc(0, 50);
            lab.free(1, &objects[..30]);
            lab.free(0, &objects[30..]);
            let slabs = lab.slqb.state(lab.cache)["nr_slabs"].as_u64().unwrap();
            assert!(slabs > 0);
            assert_eq!(lab.slqb.pages().lent() - before, slabs << order);
            lab.verify();
            let cache = &mut lab.slqb.caches[lab.cache.0 as usize];
            cache.cpus.get_mut(CpuId(0)).pages_taken += 1;
            assert!(lab.slqb.verify().unwrap_err().to_string().contains("pages: taken"));
            lab.slqb.caches[lab.cache.0 as usize].cpus.get_mut(CpuId(0)).pages_taken -= 1;
        });
    }
}

#[test]
fn the_check_flag_is_set_exactly_when_a_batch_waits() {
    // 18.8, at every length that splices of one to three objects can reach.
    let shape = Shape { cpus: 3, nodes: 3, mib: 16 };
    lab(shape, config(&[("freebatch", 4), ("hiwater", 100)]), plain(1024), |lab| {
        let (a, b) = (lab.alloc(0, 16), lab.alloc(1, 16));
        let mut sent = 0;
        for i in 0..5 {
            // An object of another owner in between flushes the rlist.
            lab.free(2, &a[3 * i..3 * i + 3]);
            lab.free(2, &b[i..i + 1]);
            sent += 3;
            let state = lab.slqb.state(lab.cache);
            assert_eq!(
                (&state["cpu"][0]["remote_free"], &state["cpu"][0]["remote_free_check"]),
                (&sent.into(), &i32::from(sent >= 4).into())
            );
        }
    });
}

#[test]
fn a_freebatch_lowered_below_a_queue_loses_the_crossing_and_the_fixed_form_sees_it() {
    // 19.11.
    let shape = Shape { cpus: 3, nodes: 3, mib: 16 };
    for (config, check) in [(config(&[("freebatch", 4)]), 0), (quirkless(), 1)] {
        lab(shape, config, plain(1024), |lab| {
            let (a, b) = (lab.alloc(0, 8), lab.alloc(1, 8));
            lab.free(2, &a[..3]);
            lab.free(2, &b[..1]);
            let length = |lab: &mut Lab<'_>| {
                let state = lab.slqb.state(lab.cache);
                (state["cpu"][0]["remote_free"].as_u64(), state["cpu"][0]["remote_free_check"].as_u64())
            };
            assert_eq!(length(lab), (Some(3), Some(0)), "a forced flush");
            lab.on(0, |cpu| lab.slqb.tune(cpu, lab.cache, None, Some(2)).unwrap());
            lab.free(2, &a[3..5]);
            assert_eq!(length(lab), (Some(5), Some(check)));
            // A trim of the owner takes the list, flag or not.
            lab.trim(0);
            assert_eq!(length(lab), (Some(0), Some(0)));
        });
    }
}

#[test]
fn tunables_change_while_the_cache_is_used_and_are_refused_as_sysfs_refuses_them() {
    lab(PAIR, config(&[]), plain(256), |lab| {
        let tune = |h, f| lab.on(1, |cpu| lab.slqb.tune(cpu, lab.cache, h, f));
        assert!(tune(Some(2), Some(4)).unwrap_err().to_string().contains("cache.hiwater = 2: freebatch - 1 = 3"));
        assert!(tune(None, Some(0)).unwrap_err().to_string().contains("cache.freebatch = 0: 1 or more"));
        assert!(
            tune(Some(10), None).unwrap_err().to_string().contains("freebatch - 1 = 255"),
            "the old freebatch counts"
        );
        tune(Some(3), Some(4)).unwrap();
        let info = lab.slqb.info(lab.cache);
        assert_eq!((info.limit, info.batchcount), (Some(3), Some(4)));
        let objects = lab.alloc(0, 7);
        lab.free(0, &objects);
        assert_eq!(lifo(lab, 0), 3, "the fourth free flushes a batch of four");
    });
}

#[test]
fn every_allocation_counts_once_without_the_double_count() {
    let place = |node| Place { socket: node, core: node, l2: node, llc: node, node: NodeId(node) };
    let topology = Topology::new(vec![place(0), place(1)], vec![16 << 20, 0]);
    for (config, counted) in [(config(&[]), 40), (quirkless(), 20)] {
        let machine = Native::new(topology.clone()).unwrap();
        let pages = Pages::new(&machine, PageModel::HotCold).unwrap();
        let mut slqb = Slqb::new(&pages, &config).unwrap();
        let cache = slqb.create_cache(plain(256)).unwrap();
        machine.boot(|cpu| {
            if cpu.node() == NodeId(1) {
                let some: Vec<Object> = (0..20).map(|_| slqb.alloc(cpu, cache, Request::default()).unwrap()).collect();
                some.into_iter().for_each(|x| slqb.free(cpu, cache, x));
            }
        });
        slqb.verify().unwrap();
        assert_eq!(slqb.state(cache)["stat"]["alloc"], counted);
        assert_eq!(slqb.info(cache).live_objects, 0);
    }
}

#[test]
fn without_the_leftovers_a_destruction_returns_every_page() {
    for (config, left) in [(config(&[("freebatch", 8)]), 1), (Config { freebatch: Some(8), ..quirkless() }, 0)] {
        lab(PAIR, config, plain(1024), |lab| {
            let objects = lab.alloc(0, 4);
            lab.free(1, &objects);
            let destroyed = lab.on(0, |cpu| lab.slqb.destroy(cpu, lab.cache));
            assert_eq!(destroyed, Destroyed { pages_lost: left, warnings: left, ..Destroyed::default() });
        });
    }
}

#[test]
fn allocations_less_frees_are_the_live_objects() {
    // 18.12, and the inequalities between counters.
    lab(TWO_NODES, config(&[("freebatch", 3)]), plain(680), |lab| {
        let a = lab.alloc(0, 50);
        let b = lab.alloc_on(1, 30, Some(0));
        lab.free(1, &a[..40]);
        lab.free(0, &b[..20]);
        assert_eq!(lab.slqb.info(lab.cache).live_objects, 20);
        let stat = lab.slqb.state(lab.cache)["stat"].clone();
        let n = |name: &str| stat[name].as_u64().unwrap();
        assert_eq!(n("alloc") - n("free"), 20);
        assert!(n("alloc_slab_fill") >= n("alloc_slab_new"));
        assert!(n("flush_free_list_remote") <= n("flush_free_list_objects"));
        assert!(n("claim_remote_list_objects") <= n("flush_rfree_list_objects"));
        assert_eq!(n("alloc_slab_new") - n("flush_slab_free"), lab.slqb.state(lab.cache)["nr_slabs"].as_u64().unwrap());
    });
}

#[test]
fn every_object_lies_aligned_at_a_multiple_of_its_stride_behind_the_colour() {
    // 18.15.
    for (size, align) in
        [(8, 0), (20, 0), (208, 0), (704, 0), (100, 64), (64, 4096), (64, 8192), (1400, 256), (5000, 0)]
    {
        lab(ONE, config(&[]), CacheSpec { align, ..plain(size) }, |lab| {
            let objects = lab.alloc(0, 60);
            let g = lab.slqb.caches[lab.cache.0 as usize].geometry.clone();
            for x in objects {
                let at = lab.slqb.placement(lab.cache, x);
                let start = u64::from(at.slab.0) * PAGE_SIZE;
                assert_eq!(x.0, start + at.offset + at.index * g.size);
                assert_eq!(x.0 % align.max(8), 0, "{size} bytes, align {align}");
                assert!(at.index < g.objects && x.0 + g.size <= start + g.order.bytes());
            }
        });
    }
}

#[test]
fn zeroing_spares_the_link_behind_a_constructed_object() {
    // 18.18: bytes 0..objsize-1 and no other.
    lab(ONE, config(&[]), CacheSpec { typesafe_by_rcu: true, ..plain(44) }, |lab| {
        let objects = lab.alloc(0, 2);
        let arena = lab.slqb.pages().arena();
        arena.fill(objects[0], 56, 0xff);
        lab.free(0, &objects[..1]);
        let link = arena.peek(objects[0].plus(48));
        let want = Request { zero: true, ..Request::default() };
        let x = lab.on(0, |cpu| lab.slqb.alloc(cpu, lab.cache, want).unwrap().addr());
        assert_eq!(x, objects[0]);
        assert!((0..5).all(|i| arena.peek(x.plus(8 * i)) == 0));
        assert_eq!((arena.peek(x.plus(40)), arena.peek(x.plus(48))), (0xffff_ffff_0000_0000, link));
    });
}

#[test]
fn no_empty_slab_stays_attached() {
    // 18.17: the last object of a slab that comes home takes the slab with it, by a flush and by synchronous freeing.
    lab(TWO_NODES, config(&[("freebatch", 1), ("hiwater", 0)]), plain(2048), |lab| {
        let objects = lab.alloc(0, 2);
        lab.free(0, &objects);
        assert_eq!(lab.slqb.state(lab.cache)["nr_slabs"], 0);
        let objects = lab.alloc(0, 6);
        lab.free(1, &objects);
        let state = lab.slqb.state(lab.cache);
        assert_eq!((&state["cpu"][0]["remote_free"], &state["nr_slabs"]), (&1.into(), &1.into()));
    });
}

#[test]
fn a_slab_of_an_rcu_cache_returns_its_pages_after_the_grace_period() {
    let spec = CacheSpec { typesafe_by_rcu: true, ..plain(2040) };
    lab(ONE, config(&[("freebatch", 1), ("hiwater", 0)]), spec, |lab| {
        let before = lab.slqb.pages().lent();
        let objects = lab.alloc(0, 4);
        lab.free(0, &objects);
        assert_eq!(lab.slqb.state(lab.cache)["nr_slabs"], 0, "unlinked and counted off at once");
        assert_eq!(lab.slqb.pages().lent() - before, 2, "but not returned");
        lab.verify();
        lab.trim(0);
        assert_eq!(lab.slqb.pages().lent() - before, 2, "10 ms have not passed");
        lab.on(0, |cpu| cpu.delay(Picos(10_000_000_000)));
        lab.trim(0);
        assert_eq!(lab.slqb.pages().lent(), before);
        let objects = lab.alloc(0, 1);
        lab.free(0, &objects);
        assert_eq!(lab.on(0, |cpu| lab.slqb.destroy(cpu, lab.cache)), Destroyed::default());
        assert_eq!(lab.slqb.pages().lent(), before, "a destruction waits for it");
    });
}

#[test]
fn a_destruction_waits_for_the_grace_periods_of_every_cpu() {
    let spec = CacheSpec { typesafe_by_rcu: true, ..plain(4000) };
    let shape = Shape { cpus: 4, nodes: 2, mib: 16 };
    lab(shape, config(&[("freebatch", 1), ("hiwater", 0)]), spec, |lab| {
        let before = lab.slqb.pages().lent();
        for cpu in 0..4 {
            let objects = lab.alloc(cpu, 15);
            lab.free(cpu, &objects);
        }
        assert_eq!(lab.slqb.pages().lent() - before, 4 * 15);
        assert_eq!(lab.on(2, |cpu| lab.slqb.destroy(cpu, lab.cache)), Destroyed::default());
        assert_eq!(lab.slqb.pages().lent(), before);
    });
}

#[test]
fn memory_that_is_out_trims_every_cache_before_it_says_none() {
    let shape = Shape { cpus: 2, nodes: 1, mib: 8 };
    lab(shape, config(&[("freebatch", 300)]), plain(4096), |lab| {
        let mut objects = lab.on(0, |cpu| {
            let atomic = Request { atomic: true, ..Request::default() };
            std::iter::from_fn(|| lab.slqb.alloc(cpu, lab.cache, atomic)).map(|x| x.addr()).collect::<Vec<_>>()
        });
        // The objects of one batch lie on the other CPU's LIFO.
        lab.free(1, &objects.split_off(objects.len() - 300));
        let other = lab.slqb.create_cache(plain_named("other", 4096)).unwrap();
        let take = |want| lab.on(0, |cpu| lab.slqb.alloc(cpu, other, want).map(|x| x.addr()));
        assert_eq!(take(Request { atomic: true, ..Request::default() }), None, "who cannot sleep cannot reclaim");
        let x = take(Request::default());
        assert!(x.is_some(), "the other CPU's queue was sent home");
        lab.on(0, |cpu| lab.slqb.free(cpu, other, Object::at(x.unwrap())));
        lab.free(0, &objects);
    });
}

fn plain_named(name: &str, size: u64) -> CacheSpec {
    CacheSpec::new(name, size)
}

#[test]
fn lengths_read_without_the_lock_are_those_of_the_reader_s_time() {
    // A CPU that is behind in time does not see what one ahead of it has spliced: with every operation suspended and resumed
    // in order of time, the counts of a race are those of one that is not suspended.
    use crate::machine::sim::Schedule;
    let run = |always_suspend| {
        let machine = Shape { cpus: 4, nodes: 2, mib: 16 }.machine(Schedule { always_suspend, ..Schedule::default() });
        let pages = Pages::new(&machine, PageModel::HotCold).unwrap();
        let mut slqb = Slqb::new(&pages, &config(&[("freebatch", 2)])).unwrap();
        let cache = slqb.create_cache(plain(1024)).unwrap();
        let taken = std::sync::Mutex::new(Vec::new());
        machine.boot(|cpu| {
            let mine: Vec<Addr> = (0..40).map(|_| slqb.alloc(cpu, cache, Request::default()).unwrap().addr()).collect();
            taken.lock().unwrap().push((cpu.id(), mine));
        });
        let taken = taken.into_inner().unwrap();
        machine.boot(|cpu| {
            // Everybody frees what the next CPU has allocated.
            let next = CpuId((cpu.id().0 + 1) % 4);
            let theirs = &taken.iter().find(|(c, _)| *c == next).unwrap().1;
            theirs.iter().for_each(|x| slqb.free(cpu, cache, Object::at(*x)));
        });
        slqb.verify().unwrap();
        slqb.state(cache)
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn the_trimmer_of_a_cpu_comes_every_three_seconds_and_four_rounds_empty_a_full_lifo() {
    lab(ONE, config(&[("freebatch", 4)]), plain(256), |lab| {
        assert_eq!(lab.slqb.period(), Some(Picos(3_000_000_000_000)));
        let objects = lab.alloc(0, 16);
        lab.free(0, &objects);
        for left in [12, 8, 4, 0] {
            lab.trim(0);
            assert_eq!(lifo(lab, 0), left);
        }
    });
}

#[test]
fn the_queue_report_shows_who_holds_what() {
    lab(TWO_NODES, config(&[("freebatch", 4)]), plain(1024), |lab| {
        let objects = lab.alloc(0, 12);
        lab.free(1, &objects[..5]);
        lab.free(0, &objects[5..8]);
        let queues = lab.slqb.queues();
        let cache = queues.iter().find(|c| c.name == "test").unwrap();
        assert_eq!((cache.objects, cache.pages, cache.sum.slabs), (4, 3, 3));
        assert_eq!((cache.lists[0].lifo, cache.lists[0].remote_free, cache.lists[0].check), (3, 4, true));
        assert_eq!((cache.lists[1].rlist, cache.lists[1].rlist_to.as_deref()), (1, Some("cpu0")));
        assert_eq!((cache.sum.remote_frees, cache.sum.sent_objects, cache.sum.alloc_fast), (5, 4, 0));
        let held = cache.objects + cache.sum.lifo + cache.sum.rlist + cache.sum.remote_free + cache.sum.free_in_pages;
        assert_eq!(held, 12);
        let rows = lab.slqb.queues_rows();
        let row = |list: &str| rows.iter().find(|r| r["cache"] == "test" && r["list"] == list).unwrap();
        assert_eq!([&row("cpu0")["lifo"], &row("cpu0")["remote_free"], &row("cpu0")["check"]], [3, 4, 1]);
        assert_eq!([&row("cpu1")["rlist"], &row("cpu1")["remote_frees"], &row("cpu1")["sent_objects"]], [1, 5, 4]);
        assert_eq!(row("cpu1")["rlist_to"], "cpu0");
        let sum =
            |field: &str| rows.iter().filter(|r| r["cache"] == "test").map(|r| r[field].as_u64().unwrap()).sum::<u64>();
        let parts = ["lifo", "rlist", "remote_free", "free_in_pages"].map(sum).iter().sum::<u64>();
        assert_eq!(sum("total_objects"), cache.objects + parts);
        let text = lab.slqb.queues_text().unwrap();
        let line = |start: &str| {
            let line = text.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
            line.split_whitespace().map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(line("test ")[..8], ["test", "4", "3", "0", "3", "0", "3", "1"]);
        assert_eq!(line("test ")[8], "4!");
        assert_eq!(line("  cpu1 ").last().unwrap(), "cpu0", "where its rlist goes");
        assert!(!text.contains("kmalloc-64 "), "what nobody used is left out");
    });
}
