//! Tests of the replay itself: it runs every recorded sequence, and it notices differences.

use super::*;
use crate::alloc::null::Null;

/// Replays on `null`, which has nothing of the recorded state: what remains is that all sequences run to their end, hold
/// as many objects at each checkpoint as the recording says (asserted in `checkpoints`), and leave `null` consistent.
fn on_null(path: &str) -> Tally {
    replay(path, &json!({}), |group, pages, config| world::<Null<Sim>>(group, pages, config))
}

fn runs_on_null(path: &str, lines: u64) {
    let tally = on_null(path);
    let left_out: u64 = tally.left_out.values().sum();
    println!("{}", tally.report(path));
    assert_eq!((tally.total + left_out, tally.equal), (lines, 0));
    assert!(!tally.left_out.keys().any(|why| why.contains("not built")), "{}", tally.report(path));
    assert!(!tally.keys.contains_key("panic"), "{}", tally.report(path));
    assert_eq!(tally.keys["verify()"].different, 0);
}

#[test]
fn the_sequences_of_slob_run() {
    runs_on_null("controlled/slob2624_smp1", 5823);
}

#[test]
fn the_sequences_of_slqb_on_two_nodes_run() {
    runs_on_null("controlled/slqb_numa", 13939);
}

#[test]
fn the_sequences_of_slab_run_its_reaper_s_too() {
    runs_on_null("controlled/slab2624_smp2", 13625);
}

#[test]
fn the_phases_of_placement_run() {
    for (path, lines) in
        [("placement/slab2624_smp2", 108), ("placement/slqb_numa", 350), ("placement/slob2624_smp1", 376)]
    {
        let tally = on_null(path);
        println!("{}", tally.report(path));
        let left_out: u64 = tally.left_out.values().sum();
        assert_eq!((tally.total + left_out, tally.keys["objs"].compared), (lines, tally.total));
        assert!(!tally.keys.contains_key("panic"), "{}", tally.report(path));
    }
}
