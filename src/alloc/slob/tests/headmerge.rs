//! `2.6.24` against `2.6.24-headmerge`: what the patch of January 2008 is worth on a random churn of kmalloc and kfree.
//! The mail claims 2.5 % better efficiency in a user-space harness.

use super::invariants::Stream;
use super::*;

/// What a churn came to: pages at its end and efficiency (bytes asked for per byte held), the mean of its second half.
#[derive(Clone, Copy)]
struct Outcome {
    pages: f64,
    efficiency: f64,
    blocks: f64,
}

/// `steps` operations around 1500 live objects of 8 to 600 bytes, mostly small ones; a share of the frees in stack order.
fn churn(era: &str, seed: u64, steps: usize, stack: u64) -> (Outcome, String) {
    let mut outcome = Outcome { pages: 0.0, efficiency: 0.0, blocks: 0.0 };
    let mut map = String::new();
    with_heap(config(era), |b| {
        let slob = &b.slob;
        let left = slob.on_boot_cpu(|cpu| {
            let mut random = Stream(seed);
            let mut live: Vec<Object> = Vec::new();
            for _ in 0..steps {
                let target = 1500 + 500 * (random.below(3) as usize);
                if live.len() > target || !live.is_empty() && random.below(100) < 40 {
                    let top = random.below(100) < stack;
                    let k = if top { live.len() - 1 } else { random.below(live.len() as u64) as usize };
                    slob.kfree(cpu, live.swap_remove(k));
                } else {
                    let most = [32, 64, 128, 600][random.below(4) as usize];
                    live.push(slob.kmalloc(cpu, 8 + random.below(most - 7), Request::default()).unwrap());
                }
            }
            live.iter().map(Object::addr).collect::<Vec<_>>()
        });
        let heap = b.slob.heap();
        outcome = Outcome {
            pages: heap.heap_pages as f64,
            efficiency: 100.0 * heap.efficiency(),
            blocks: heap.lists.iter().map(|l| l.free_blocks).sum::<u64>() as f64,
        };
        map = b.slob.map();
        let slob = &b.slob;
        slob.on_boot_cpu(|cpu| left.iter().for_each(|x| slob.kfree(cpu, Object::at(*x))));
    });
    (outcome, map)
}

/// Mean and half-width of the 95 % interval of differences (Student, 23 degrees of freedom).
fn interval(differences: &[f64]) -> (f64, f64) {
    let n = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / n;
    let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1.0);
    assert_eq!(differences.len(), 24);
    (mean, 2.069 * (variance / n).sqrt())
}

#[test]
fn head_merge_joins_fragments_and_its_effect_on_pages_is_printed_with_an_interval() {
    const STEPS: usize = 12_000;
    for stack in [0, 50, 90] {
        let pairs: Vec<(Outcome, Outcome)> = (1..=24)
            .map(|seed| (churn("2.6.24", seed, STEPS, stack).0, churn("2.6.24-headmerge", seed, STEPS, stack).0))
            .collect();
        let of = |figure: fn(&Outcome) -> f64| {
            let differences: Vec<f64> = pairs.iter().map(|(a, b)| figure(b) - figure(a)).collect();
            let base = pairs.iter().map(|(a, _)| figure(a)).sum::<f64>() / pairs.len() as f64;
            (base, interval(&differences))
        };
        println!("24 seeds, {STEPS} operations, {stack} % of the frees in stack order: with head merge less without");
        for (name, figure) in [
            ("pages", (|o| o.pages) as fn(&Outcome) -> f64),
            ("efficiency, points of %", |o| o.efficiency),
            ("free blocks", |o| o.blocks),
        ] {
            let (base, (mean, half)) = of(figure);
            println!("  {name:<24} {base:>9.2} {mean:>+8.3} ± {half:.3} ({:+.2} %)", 100.0 * mean / base);
        }
        // What the patch does for certain: fewer free blocks for the same objects.
        let (_, (fewer, half)) = of(|o| o.blocks);
        assert!(fewer + half < 0.0, "{fewer} ± {half}");
    }
    for era in ["2.6.24", "2.6.24-headmerge"] {
        let map = churn(era, 1, 600, 90).1;
        println!("{era}, after 600 operations, the first pages ('#' used, '.' and ':' free, '+' both):");
        map.lines().take(6).for_each(|l| println!("  {l}"));
    }
}

#[test]
fn block_maps_before_and_after_the_patch_differ_in_touching_blocks_only() {
    // X3 as a picture: three blocks freed in stack order at the end of a page.
    for (era, map) in [("2.6.24", "....::::....|"), ("2.6.24-headmerge", "............|")] {
        with_heap(config(era), |b| {
            let blocks: Vec<_> = (0..16).map(|_| b.take(256, 0)).collect();
            [15, 14, 13].iter().for_each(|&i| b.give(blocks[i], 256));
            assert!(b.slob.map().trim_end().ends_with(&format!("#{map}")), "{era}: {}", b.slob.map());
        });
    }
}

#[test]
fn x17_a_random_mix_takes_about_the_same_pages_and_fewer_blocks_with_head_merge() {
    // 20 000 operations, half of the frees in stack order. Counts depend on the generator: direction only.
    let (without, with) =
        (churn("2.6.24", 88172645463325252, 20_000, 50).0, churn("2.6.24-headmerge", 88172645463325252, 20_000, 50).0);
    assert!(with.blocks < 0.9 * without.blocks, "free blocks {} and {}", without.blocks, with.blocks);
    assert!((with.pages - without.pages).abs() <= 0.05 * without.pages, "pages {} and {}", without.pages, with.pages);
}
