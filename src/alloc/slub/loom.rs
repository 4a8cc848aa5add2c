//! Models of what CPUs do to one lockless slab at the same time, under every interleaving that the C11 memory model allows
//! (`RUSTFLAGS="--cfg loom" cargo test --lib slub::loom`). The transitions are those of [`SlabWord`]; list membership, locks
//! and object contents are the model's own, as small as possible.

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::slabword::SlabWord;

/// A slab of a few objects: its word, the free pointers in the objects (index + 1), and its node's list.
struct World {
    word: AtomicU64,
    next: Vec<AtomicU64>,
    /// The slab is on the node's list. Guarded by the lock, as the list is.
    listed: Mutex<bool>,
}

impl World {
    /// `objects` objects, all in use; frozen if a CPU owns the slab.
    fn full(objects: u64, frozen: bool) -> World {
        let word = SlabWord::default().then(None, objects, frozen);
        World {
            word: AtomicU64::new(word.raw()),
            next: (0..objects).map(|_| AtomicU64::new(0)).collect(),
            listed: Mutex::new(false),
        }
    }
    fn objects(&self) -> u64 {
        self.next.len() as u64
    }
    fn read(&self) -> SlabWord {
        SlabWord::of_raw(self.word.load(Ordering::Relaxed))
    }
    fn exchange(&self, old: SlabWord, new: SlabWord) -> bool {
        self.word.compare_exchange(old.raw(), new.raw(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
    /// Pushes one object, as a slow free does (kernel: __slab_free); lists the slab if it was full and nobody's.
    fn free(&self, object: u64) {
        loop {
            let old = self.read();
            self.next[object as usize].store(old.head().map_or(0, |h| h + 1), Ordering::Relaxed);
            let lists = old.head().is_none() && !old.frozen();
            let lock = lists.then(|| self.listed.lock().unwrap());
            if self.exchange(old, old.then(Some(object), old.inuse() - 1, old.frozen())) {
                if let Some(mut listed) = lock {
                    assert!(!*listed, "a full slab is on no list");
                    *listed = true;
                }
                return;
            }
        }
    }
    /// Takes the whole list, as the owner does when its own is used up. An empty one unfreezes the slab.
    fn take_all(&self) -> Vec<u64> {
        loop {
            let old = self.read();
            if self.exchange(old, old.then(None, self.objects(), old.head().is_some())) {
                return self.walk(old.head());
            }
        }
    }
    /// Gives the slab up with the private objects of the owner (kernel: deactivate_slab).
    fn deactivate(&self, private: &[u64]) {
        loop {
            let old = self.read();
            let (mut head, mut inuse) = (old.head(), old.inuse());
            for &object in private {
                self.next[object as usize].store(head.map_or(0, |h| h + 1), Ordering::Relaxed);
                (head, inuse) = (Some(object), inuse - 1);
            }
            let lock = head.is_some().then(|| self.listed.lock().unwrap());
            if self.exchange(old, old.then(head, inuse, false)) {
                if let Some(mut listed) = lock {
                    *listed = true;
                }
                return;
            }
        }
    }
    fn walk(&self, mut at: Option<u64>) -> Vec<u64> {
        let mut objects = Vec::new();
        while let Some(object) = at {
            assert!(!objects.contains(&object), "object {object} is on the list twice");
            objects.push(object);
            at = self.next[object as usize].load(Ordering::Relaxed).checked_sub(1);
        }
        objects
    }
    /// At rest: the list is as long as the counter says, and the slab is listed iff it has free objects and no owner.
    fn check(&self) {
        let word = self.read();
        assert_eq!(self.walk(word.head()).len() as u64 + word.inuse(), self.objects());
        assert_eq!(*self.listed.lock().unwrap(), word.head().is_some() && !word.frozen());
    }
}

/// Proves: of two objects freed by two other CPUs while the owner takes the list over, each is either in the owner's hands or
/// on the list, never both and never lost, and the free pointers read are the ones written.
#[test]
fn two_remote_frees_and_the_owner_lose_no_object() {
    loom::model(|| {
        let world = Arc::new(World::full(3, true));
        let frees: Vec<_> = (1..3)
            .map(|object| {
                let world = world.clone();
                thread::spawn(move || world.free(object))
            })
            .collect();
        let taken = world.take_all();
        frees.into_iter().for_each(|t| t.join().unwrap());
        let left = world.walk(world.read().head());
        let mut all = [taken.clone(), left].concat();
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
        // What was taken counts as in use; a slab found empty was let go, and is listed by the first later free.
        world.check();
    });
}

/// Proves: a slab given up with a private object while another CPU frees into it ends up on the list exactly once, with both
/// objects free.
#[test]
fn deactivation_and_a_remote_free_list_the_slab_once() {
    loom::model(|| {
        let world = Arc::new(World::full(3, true));
        let other = world.clone();
        let free = thread::spawn(move || other.free(1));
        world.deactivate(&[0]);
        free.join().unwrap();
        world.check();
        assert_eq!(world.read().inuse(), 1);
        assert!(*world.listed.lock().unwrap());
    });
}

/// Proves: a slab on a CPU's partial list (frozen) that is drained while its last object is freed is either listed, or found
/// empty by the drain; it is never both, and never forgotten.
#[test]
fn a_drain_and_the_last_free_agree_who_keeps_the_slab() {
    loom::model(|| {
        let world = Arc::new(World::full(2, true));
        world.free(0);
        let other = world.clone();
        let free = thread::spawn(move || other.free(1));
        // The drain: lock, then unfreeze (kernel: unfreeze_partials); min_partial is 0, so an empty slab goes.
        let discarded = {
            let mut listed = world.listed.lock().unwrap();
            loop {
                let old = world.read();
                if world.exchange(old, old.then(old.head(), old.inuse(), false)) {
                    let empty = old.inuse() == 0;
                    *listed = !empty;
                    break empty;
                }
            }
        };
        free.join().unwrap();
        assert_eq!(world.read().inuse(), 0);
        assert_eq!(*world.listed.lock().unwrap(), !discarded);
    });
}

/// Proves: sheaves that two CPUs put into and take from a barn are handed over whole: each object is seen by one taker, with
/// what its putter wrote.
#[test]
fn a_barn_hands_each_sheaf_to_one_cpu() {
    loom::model(|| {
        let barn: Arc<Mutex<Vec<Vec<u64>>>> = Arc::new(Mutex::new(Vec::new()));
        let count = Arc::new(AtomicU64::new(0));
        let put = {
            let (barn, count) = (barn.clone(), count.clone());
            thread::spawn(move || {
                let mut full = barn.lock().unwrap();
                full.push(vec![1, 2]);
                count.store(full.len() as u64, Ordering::Relaxed);
            })
        };
        // The count is read without the lock: it may be late, and then no sheaf is found.
        let take = |barn: &Mutex<Vec<Vec<u64>>>, count: &AtomicU64| {
            if count.load(Ordering::Acquire) == 0 {
                return None;
            }
            let mut full = barn.lock().unwrap();
            let sheaf = full.pop();
            count.store(full.len() as u64, Ordering::Relaxed);
            sheaf
        };
        let other = {
            let (barn, count) = (barn.clone(), count.clone());
            thread::spawn(move || take(&barn, &count))
        };
        let mine = take(&barn, &count);
        put.join().unwrap();
        let theirs = other.join().unwrap();
        let left = barn.lock().unwrap().pop();
        let found: Vec<Vec<u64>> = [mine, theirs, left].into_iter().flatten().collect();
        assert_eq!(found, [vec![1, 2]]);
    });
}
