//! What system calls take from the allocator, by kernel era: the primitives that kbuild, aim7 and dbench are made of
//! (workloads.md §8, object sizes §1).
//!
//! A [`Program`] is a list of operations that grows at its end and is worked off at its front. Whoever writes it keeps the
//! numbers of the slots in which long-lived objects lie; short-lived ones (path names, negative entries, VMA tree nodes) are
//! taken and given back inside a primitive.

use std::collections::VecDeque;

use super::{Op, Random, What};
use crate::error::Error;
use crate::spec::CacheSpec;
use crate::units::Picos;

/// Object and slot sizes of kernel caches by era, x86-64.
const OBJECTS: &str = include_str!("kernel_objects.csv");
/// Eras that the table knows.
pub(crate) const ERAS: [&str; 5] = ["2.6.24", "2.6.28", "3.0", "6.1", "6.18"];
/// Longest stretch of user work in one operation: ticks are not late by more.
const LONGEST: Picos = Picos(500_000_000);
/// Kernel work of looking up one path, of opening a file, of changing the VMA tree, of a page fault (our choice: the specs
/// leave the costs of these calls open; they are the same for every allocator).
const LOOKUP: Picos = Picos(900_000);
const OPEN: Picos = Picos(700_000);
const MAP: Picos = Picos(600_000);
const FAULT: Picos = Picos(500_000);
const FORK: Picos = Picos(20_000_000);
const EXEC: Picos = Picos(60_000_000);

/// A kind of kernel object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Names,
    Dentry,
    Inode,
    Filp,
    Vma,
    AnonVma,
    AnonVmaChain,
    Maple,
    Task,
    Signal,
    Sighand,
    Files,
    Fs,
    Pid,
    Cred,
    Mm,
    Sigqueue,
    ProcInode,
    Radix,
    BufferHead,
    JournalHead,
    Bio,
    VmapArea,
}

use Kind::*;

/// Kinds in order of their caches. The bool: the objects can be reclaimed.
const KINDS: [(Kind, &str, bool); 23] = [
    (Names, "names_cache", false),
    (Dentry, "dentry", true),
    (Inode, "", true),
    (Filp, "filp", false),
    (Vma, "vm_area_struct", false),
    (AnonVma, "anon_vma", false),
    (AnonVmaChain, "anon_vma_chain", false),
    (Maple, "maple_node", false),
    (Task, "task_struct", false),
    (Signal, "signal_cache", false),
    (Sighand, "sighand_cache", false),
    (Files, "files_cache", false),
    (Fs, "fs_cache", false),
    (Pid, "pid", false),
    (Cred, "cred_jar", false),
    (Mm, "mm_struct", false),
    (Sigqueue, "sigqueue", false),
    (ProcInode, "proc_inode_cache", true),
    (Radix, "radix_tree_node", true),
    (BufferHead, "buffer_head", true),
    (JournalHead, "journal_head", false),
    (Bio, "bio", false),
    (VmapArea, "vmap_area", false),
];

/// Sizes that the table leaves out: name, first era, object, slot. Those of 6.1 are the recorded kernels'.
const MORE: [(&str, &str, u64, u64); 10] = [
    ("shmem_inode_cache", "6.1", 728, 728),
    ("proc_inode_cache", "2.6.24", 592, 592),
    ("sigqueue", "2.6.24", 160, 160),
    ("sigqueue", "6.1", 80, 80),
    ("journal_head", "2.6.24", 96, 96),
    ("vmap_area", "6.1", 64, 64),
    ("ext3_inode_cache", "3.0", 760, 760),
    ("fs_cache", "6.18", 64, 64),
    ("cred_jar", "6.18", 192, 192),
    ("bio", "6.18", 128, 128),
];

/// Which file system the files are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fs_ {
    /// A journalling file system on a disk: negative entries stay cached, pages have buffers.
    Disk,
    /// Memory (tmpfs), as on the recorded 6.1 kernels: negative entries are dropped at once, open directories have a cursor.
    Memory,
}

/// The objects of one kernel era.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) fs: Fs_,
    /// Cache of each kind, in the order of [`KINDS`]: `None` where the era has no such object.
    ids: Vec<Option<u32>>,
    pub(crate) caches: Vec<CacheSpec>,
}

impl Kernel {
    /// Refuses an era that the table does not know.
    pub(crate) fn check(era: &str) -> Result<(), Error> {
        if ERAS.contains(&era) { Ok(()) } else { Err(Error::unknown("workload.era", era, &ERAS)) }
    }

    /// The kernel of an era of [`ERAS`]. Its files are in memory since 6.1, where that is what was recorded.
    pub(crate) fn new(era: &str) -> Kernel {
        let fs = if era.starts_with('6') { Fs_::Memory } else { Fs_::Disk };
        let mut kernel = Kernel { fs, ids: Vec::new(), caches: Vec::new() };
        for (kind, name, reclaim) in KINDS {
            let name = match (kind, fs) {
                (Inode, Fs_::Memory) => "shmem_inode_cache",
                (Inode, Fs_::Disk) => "ext3_inode_cache",
                _ => name,
            };
            let size = size_of(era, name);
            kernel.ids.push(size.map(|_| kernel.caches.len() as u32));
            if let Some((object, slot)) = size {
                let spec = CacheSpec { reclaim_account: reclaim, ..CacheSpec::new(name, object) };
                kernel.caches.push(if slot > object.next_multiple_of(8) { spec.hwcache() } else { spec });
            }
        }
        kernel
    }

    /// The cache of a kind, if the era has one.
    pub(crate) fn what(&self, kind: Kind) -> Option<What> {
        let at = KINDS.iter().position(|(k, ..)| *k == kind).expect("every kind is listed");
        self.ids[at].map(What::Cache)
    }
}

/// Object and slot size of a cache in an era: its own figures, else the newest of an earlier era (an object that is not in
/// the table of an era has not changed as far as is known).
pub(super) fn size_of(era: &str, name: &str) -> Option<(u64, u64)> {
    let rank = |e: &str| ERAS.iter().position(|known| *known == e);
    let now = rank(era)?;
    let table = OBJECTS.lines().skip(1).filter_map(|line| {
        let mut fields = line.split(',');
        let (era, cache) = (fields.next()?, fields.next()?);
        let (object, slot) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some((rank(era)?, cache, object, slot))
    });
    let more = MORE.iter().filter_map(|(name, era, object, slot)| Some((rank(era)?, *name, *object, *slot)));
    let newest = table.chain(more).filter(|(at, cache, ..)| *at <= now && *cache == name).max_by_key(|(at, ..)| *at)?;
    Some((newest.2, newest.3))
}

/// Operations to come, and which slots are free.
#[derive(Debug, Default)]
pub(crate) struct Program {
    ops: VecDeque<Op>,
    spare: Vec<u32>,
    next: u32,
    /// User work before each system call.
    pub(crate) user: Picos,
}

impl Program {
    /// An empty program whose slots begin at `first`.
    pub(crate) fn from(first: u32) -> Program {
        Program { next: first, ..Program::default() }
    }
    /// The next operation.
    pub(crate) fn next(&mut self) -> Option<Op> {
        self.ops.pop_front()
    }
    /// Appends an operation.
    pub(crate) fn push(&mut self, op: Op) {
        self.ops.push_back(op);
    }
    /// Works for so long, in stretches that a tick can end.
    pub(crate) fn work(&mut self, time: Picos) {
        let mut left = time.0;
        while left > 0 {
            let part = left.min(LONGEST.0);
            self.push(Op::Compute { time: Picos(part) });
            left -= part;
        }
    }
    /// User work, then into the kernel.
    pub(crate) fn enter(&mut self) {
        self.work(self.user);
        self.push(Op::Syscall);
    }
    /// Takes something and writes its first bytes.
    pub(crate) fn take(&mut self, what: What, bytes: u32) -> u32 {
        let slot = self.spare.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.push(Op::Alloc { what, into: slot });
        self.push(Op::Touch { slot, bytes, write: true });
        slot
    }
    /// Gives it back.
    pub(crate) fn give(&mut self, slot: u32) {
        self.push(Op::Free { slot });
        self.spare.push(slot);
    }
    /// Gives it back after a grace period.
    pub(crate) fn give_rcu(&mut self, slot: u32) {
        self.push(Op::FreeRcu { slot });
        self.spare.push(slot);
    }
}

/// An open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    filp: u32,
    /// An open directory's cursor.
    cursor: Option<u32>,
}

/// A file that exists: its entry, inode and pages.
#[derive(Debug, Default)]
pub(crate) struct File {
    objects: Vec<u32>,
    dentry: Option<u32>,
    pages: Vec<u32>,
}

impl File {
    /// Pages it has.
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }
}

/// A number with this mean: the whole numbers around it, drawn.
pub(crate) fn about(random: &mut Random, mean: f64) -> u32 {
    mean as u32 + u32::from(random.chance(mean.fract()))
}

impl Kernel {
    fn object(&self, p: &mut Program, kind: Kind, bytes: u32) -> Option<u32> {
        self.what(kind).map(|what| p.take(what, bytes))
    }

    /// A path name copied in, looked up and given back (kernel: getname, path_lookup, putname).
    pub(crate) fn path(&self, p: &mut Program) {
        let name = self.object(p, Names, 64);
        p.work(LOOKUP);
        name.into_iter().for_each(|slot| p.give(slot));
    }

    /// stat, access, readlink: of something that exists.
    pub(crate) fn stat(&self, p: &mut Program) {
        p.enter();
        self.path(p);
    }

    /// access: with credentials of its own since 2.6.29.
    pub(crate) fn access(&self, p: &mut Program) {
        p.enter();
        let cred = self.object(p, Cred, 128);
        self.path(p);
        cred.into_iter().for_each(|slot| p.give_rcu(slot));
    }

    /// A path that does not exist: in memory its entry is dropped at once, on a disk it stays cached and costs nothing more.
    pub(crate) fn missing(&self, p: &mut Program) {
        p.enter();
        let name = self.object(p, Names, 64);
        p.work(LOOKUP);
        if self.fs == Fs_::Memory {
            let dentry = self.object(p, Dentry, 192);
            dentry.into_iter().for_each(|slot| p.give(slot));
        }
        name.into_iter().for_each(|slot| p.give(slot));
    }

    /// open of a file that exists.
    pub(crate) fn open(&self, p: &mut Program) -> Open {
        p.enter();
        let name = self.object(p, Names, 64);
        let filp = self.object(p, Filp, 128).expect("every era has files");
        p.work(Picos(LOOKUP.0 + OPEN.0));
        name.into_iter().for_each(|slot| p.give(slot));
        Open { filp, cursor: None }
    }

    /// open of a directory: in memory it has an entry of its own that remembers where reading stands.
    pub(crate) fn open_dir(&self, p: &mut Program) -> Open {
        let open = self.open(p);
        let cursor = if self.fs == Fs_::Memory { self.object(p, Dentry, 192) } else { None };
        Open { cursor, ..open }
    }

    /// close: the file goes after a grace period.
    pub(crate) fn close(&self, p: &mut Program, open: Open) {
        p.enter();
        p.give_rcu(open.filp);
        open.cursor.into_iter().for_each(|slot| p.give_rcu(slot));
    }

    /// open with O_CREAT of a new file: entry and inode; on a disk the blocks that change get journal heads and a buffer.
    pub(crate) fn create(&self, p: &mut Program, journal: &mut Vec<u32>) -> (Open, File) {
        let open = self.open(p);
        let dentry = self.object(p, Dentry, 192);
        let objects = self.object(p, Inode, 512).into_iter().collect();
        self.log(p, journal, 3);
        (open, File { objects, dentry, pages: Vec::new() })
    }

    /// Blocks that a transaction changes (inode, bitmap, directory).
    fn log(&self, p: &mut Program, journal: &mut Vec<u32>, blocks: u32) {
        if self.fs == Fs_::Disk {
            journal.extend((0..blocks).filter_map(|_| self.object(p, JournalHead, 64)));
            journal.extend(self.object(p, BufferHead, 104));
        }
    }

    /// The transaction is on disk (fsync, or the journal's timer): bios are made and done, journal heads go.
    pub(crate) fn commit(&self, p: &mut Program, journal: &mut Vec<u32>) {
        p.enter();
        let bios: Vec<u32> = (0..journal.len().div_ceil(4)).filter_map(|_| self.object(p, Bio, 104)).collect();
        bios.into_iter().for_each(|slot| p.give(slot));
        journal.drain(..).for_each(|slot| p.give(slot));
    }

    /// rename: two names, and the entry of the new one.
    pub(crate) fn rename(&self, p: &mut Program, journal: &mut Vec<u32>) {
        p.enter();
        let names: Vec<u32> = (0..2).filter_map(|_| self.object(p, Names, 64)).collect();
        let dentry = self.object(p, Dentry, 192);
        p.work(Picos(2 * LOOKUP.0));
        self.log(p, journal, 2);
        dentry.into_iter().for_each(|slot| p.give_rcu(slot));
        names.into_iter().rev().for_each(|slot| p.give(slot));
    }

    /// unlink of a file: its pages at once, entry and inode after a grace period.
    pub(crate) fn unlink(&self, p: &mut Program, file: File, journal: &mut Vec<u32>) {
        p.enter();
        self.path(p);
        self.log(p, journal, 2);
        file.pages.into_iter().for_each(|slot| p.give(slot));
        file.objects.into_iter().chain(file.dentry).for_each(|slot| p.give_rcu(slot));
    }

    /// write of so many bytes: pages that the file does not have yet (a tree node per 64, on a disk a buffer each), and the copy.
    pub(crate) fn write(&self, p: &mut Program, file: &mut File, bytes: u32, new_pages: usize, nodes: u32) {
        p.enter();
        for _ in 0..new_pages {
            let page = p.take(What::Pages(0), 0);
            file.pages.push(page);
            if self.fs == Fs_::Disk {
                file.objects.extend(self.object(p, BufferHead, 104));
            }
        }
        for _ in 0..nodes {
            file.objects.extend(self.object(p, Radix, 128));
        }
        self.copy(p, file, bytes, true);
    }

    /// read of so many bytes that are in memory.
    pub(crate) fn read(&self, p: &mut Program, file: &File, bytes: u32) {
        p.enter();
        self.copy(p, file, bytes, false);
    }

    fn copy(&self, p: &mut Program, file: &File, bytes: u32, write: bool) {
        let mut left = bytes;
        // A file of which fewer pages are kept than it has bytes is gone through again.
        for slot in file.pages.iter().rev().cycle() {
            if left == 0 {
                break;
            }
            let n = left.min(4096);
            p.push(Op::Copy { slot: *slot, bytes: n, write });
            left -= n;
        }
    }

    /// A change of the VMA tree: since 6.1 nodes are set aside for the worst case and given back.
    fn tree(&self, p: &mut Program, nodes: u32) {
        let nodes: Vec<u32> = (0..nodes).filter_map(|_| self.object(p, Maple, 64)).collect();
        p.work(MAP);
        nodes.into_iter().for_each(|slot| p.give(slot));
    }

    /// brk, mprotect: a change of the tree and nothing else.
    pub(crate) fn brk(&self, p: &mut Program, nodes: u32) {
        p.enter();
        self.tree(p, nodes);
    }

    /// mmap: a VMA; the slots of it and of `anon` and `chains` objects of its first fault come back.
    pub(crate) fn mmap(&self, p: &mut Program, nodes: u32, anon: u32, chains: u32) -> Vec<u32> {
        p.enter();
        let mut held: Vec<u32> = self.object(p, Vma, 176).into_iter().collect();
        self.tree(p, nodes);
        held.extend((0..anon).filter_map(|_| self.object(p, AnonVma, 64)));
        held.extend((0..chains).filter_map(|_| self.object(p, AnonVmaChain, 64)));
        held
    }

    /// A page fault that takes a page and clears it.
    pub(crate) fn fault(&self, p: &mut Program) -> u32 {
        p.work(Picos(p.user.0 / 4));
        let page = p.take(What::Pages(0), 0);
        p.push(Op::Copy { slot: page, bytes: 4096, write: true });
        p.work(FAULT);
        page
    }

    /// Kernel work of fork and exec besides their objects.
    pub(crate) fn fork_work(&self, p: &mut Program) {
        p.enter();
        p.work(FORK);
    }
    /// See [`Kernel::fork_work`].
    pub(crate) fn exec_work(&self, p: &mut Program) {
        p.enter();
        p.work(EXEC);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_table_and_an_era_has_what_it_had() {
        let old = Kernel::new("2.6.24");
        let of = |k: &Kernel, name: &str| k.caches.iter().find(|c| c.name == name).map(|c| (c.size, c.hwcache_align));
        assert_eq!(of(&old, "filp"), Some((200, true)));
        assert_eq!(of(&old, "vm_area_struct"), Some((176, false)));
        assert_eq!(of(&old, "maple_node"), None);
        assert_eq!(of(&old, "cred_jar"), None);
        let new = Kernel::new("6.1");
        assert_eq!(of(&new, "maple_node"), Some((256, false)));
        assert_eq!(of(&new, "shmem_inode_cache"), Some((728, false)));
        assert_eq!(of(&new, "ext3_inode_cache"), None);
        assert!(ERAS.iter().all(|era| Kernel::new(era).what(Names).is_some()));
        assert!(Kernel::check("2.6.25").unwrap_err().to_string().contains("workload.era"));
    }
}
