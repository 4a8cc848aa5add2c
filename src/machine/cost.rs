//! How many instructions each code path of the allocators takes: the one table, fixed before any comparison.
//!
//! Rule (machine-model.md §4): where the path exists in a running 6.1 kernel, the count measured there (`instruction
//! counts`: statistics off, interrupts already off, the two time-stamp reads subtracted); elsewhere the count of our own
//! Native build times one factor common to all allocators, the one that makes the paths present in both agree in the
//! mean. Saving and restoring interrupts, atomics and cache misses are charged separately, by the machine. The counts
//! know no result; a change to this file is a commit of its own whose reason is not a result.
//!
//! Multi-part paths are split linearly over their recordings: a new SLUB slab costs 5042, 2866, 1778 instructions with
//! 256, 128, 64 objects, so 17 an object; of the remaining 688, the page allocator's own 322 are charged there.

use crate::units::Instr;

// --- SLUB: 6.1, statistics off ---------------------------------------------------------------------------------
/// Allocation from the CPU's private list (6.1: 68).
pub const SLUB_ALLOC_FAST: Instr = Instr(68);
/// Allocation that enters the slow path and takes over a list of free objects (6.1: 201), whole path.
pub const SLUB_ALLOC_SLOW: Instr = Instr(201);
/// Taking a slab from a node's partial list, on top of the slow path (6.1: 299 − 201).
pub const SLUB_GET_PARTIAL: Instr = Instr(98);
/// Setting up a new slab, on top of the slow path and without page allocator and objects (6.1: 366 − 201).
pub const SLUB_NEW_SLAB: Instr = Instr(165);
/// Linking one object of a new slab (6.1: 17).
pub const SLUB_NEW_OBJECT: Instr = Instr(17);
/// Free to the CPU's private list (6.1: 65).
pub const SLUB_FREE_FAST: Instr = Instr(65);
/// Free to a slab that is not this CPU's (6.1: 124), whole path.
pub const SLUB_FREE_SLOW: Instr = Instr(124);
/// Putting a slab on, or taking it off, a node's partial list in a free (6.1: 159 − 124).
pub const SLUB_LIST: Instr = Instr(35);
/// Giving up a cpu slab (6.1: like a get_partial).
pub const SLUB_DEACTIVATE: Instr = Instr(98);
/// Returning a slab's pages, without the page allocator (no recording of its own: as taking a slab from the partial list).
pub const SLUB_DISCARD: Instr = Instr(98);
/// Returning one private object to its slab in a deactivation (6.1: like one new object).
pub const SLUB_DEACTIVATE_OBJECT: Instr = Instr(17);

// Sheaves came later than the recordings: taking from and putting into an array of the CPU is what SLAB does (66, 80), and
// an exchange with the barn, a list under a lock, as a SLUB list operation.
/// Allocation from the CPU's sheaf.
pub const SLUB_SHEAF_ALLOC: Instr = Instr(66);
/// Free into the CPU's sheaf.
pub const SLUB_SHEAF_FREE: Instr = Instr(80);

// --- SLAB: 6.1, statistics off ---------------------------------------------------------------------------------
/// Allocation from the CPU's array (6.1: 66).
pub const SLAB_ALLOC_HIT: Instr = Instr(66);
/// Free into the CPU's array (6.1: 80).
pub const SLAB_FREE_HIT: Instr = Instr(80);
/// Refill, fixed part (6.1: 266 for 4 objects, 1102 for 48: 19 an object, 124 fixed).
pub const SLAB_REFILL: Instr = Instr(124);
/// Refill, per object taken from a slab.
pub const SLAB_REFILL_OBJECT: Instr = Instr(19);
/// Transfer between arrays, per object (a block copy of words).
pub const SLAB_TRANSFER_OBJECT: Instr = Instr(1);
/// Growing by a slab, fixed part without the page allocator (6.1: 2240 with 64 objects, 1017 with 16).
pub const SLAB_GROW: Instr = Instr(73);
/// Growing, per object of the slab.
pub const SLAB_GROW_OBJECT: Instr = Instr(8);
/// Flush of a batch, fixed part (6.1: 4377 with 60 objects, of which 80 are the free itself).
pub const SLAB_FLUSH: Instr = Instr(97);
/// Flush, per object put back into its slab.
pub const SLAB_FLUSH_OBJECT: Instr = Instr(70);
/// Destroying a slab, without the page allocator (6.1: 4379 − 4100 with one slab destroyed, less 177).
pub const SLAB_DESTROY: Instr = Instr(100);
/// Free of an object of another node into the alien array (no recording: as a hit and the two tests more).
pub const SLAB_FREE_ALIEN: Instr = Instr(96);
/// A run of the reaper, per idle cache (no recording: 45 of our own Native build, benches/instructions.rs, times 1.64).
pub const SLAB_REAP: Instr = Instr(74);

// --- SLOB: 6.1 -------------------------------------------------------------------------------------------------
/// Allocation from the first page tried (6.1: 198).
pub const SLOB_ALLOC: Instr = Instr(198);
/// Each further free block looked at in a page (6.1: 27).
pub const SLOB_WALK_BLOCK: Instr = Instr(27);
/// Each further page looked at in a list (6.1: about 10 of the walk).
pub const SLOB_WALK_PAGE: Instr = Instr(10);
/// Allocation with a new page, on top and without the page allocator (6.1: 637 − 198 − 322).
pub const SLOB_NEW_PAGE: Instr = Instr(117);
/// kmalloc's header and alignment, on top (6.1: 267 − 198).
pub const SLOB_KMALLOC: Instr = Instr(69);
/// Free (6.1: 123).
pub const SLOB_FREE: Instr = Instr(123);
/// Each free block passed on the way to the freed one's place (6.1: 13).
pub const SLOB_FREE_WALK: Instr = Instr(13);
/// Free of the last block of a page, on top and without the page allocator (6.1: 356 − 177 − 123).
pub const SLOB_FREE_PAGE: Instr = Instr(56);
/// kfree's look-up and header, on top (6.1: 176 − 123).
pub const SLOB_KFREE: Instr = Instr(53);

// --- SLQB: never in a bootable kernel ---------------------------------------------------------------------------
// Native pairs of a 256-byte cache (benches/instructions.rs): SLAB 55, SLUB 113, SLQB 83 instructions; the first two take
// 144 and 131 in 6.1, so the common factor is 275/168 = 1.64 and SLQB's pair 136. Its slow paths take the counts recorded
// for the same steps of the others: linking an object of a new slab and setting one up as SLUB, claims and splices as a
// SLUB list operation with its lock, returning a slab as SLUB.
/// Allocation from the CPU's LIFO.
pub const SLQB_ALLOC_HIT: Instr = Instr(67);
/// Free to the CPU's LIFO.
pub const SLQB_FREE_HIT: Instr = Instr(69);
/// Allocation of one object from a partial slab, whole path.
pub const SLQB_PAGE_POP: Instr = Instr(130);
/// Setting up a new slab, on top and without page allocator and objects.
pub const SLQB_NEW_SLAB: Instr = Instr(165);
/// Linking one object of a new slab.
pub const SLQB_NEW_OBJECT: Instr = Instr(17);
/// Claiming the remote_free list.
pub const SLQB_CLAIM: Instr = Instr(60);
/// Flush of a batch, fixed part.
pub const SLQB_FLUSH: Instr = Instr(60);
/// Flush, per object put back into its page.
pub const SLQB_FLUSH_OBJECT: Instr = Instr(40);
/// Object appended to the rlist.
pub const SLQB_REMOTE_PUT: Instr = Instr(40);
/// Splicing the rlist onto its destination.
pub const SLQB_SPLICE: Instr = Instr(60);
/// Returning an empty slab, without the page allocator (as SLUB).
pub const SLQB_DISCARD: Instr = Instr(98);

// --- kmalloc ---------------------------------------------------------------------------------------------------
/// Size to cache, and address to cache on the way back (6.1: kmalloc pair 195 − cache pair 132, halved).
pub const KMALLOC_LOOKUP: Instr = Instr(31);

/// kmalloc that is passed on to the page allocator, on top of its path (6.1, 8193 to 16384 bytes: 446 − 366 with three
/// tail pages, 474 − 370 with seven: 6 a tail page, 62 without).
pub const KMALLOC_LARGE: Instr = Instr(62);
/// kfree of such a block, on top of the page allocator's path (6.1: 341 − 250 and 429 − 326: 3 a tail page, 82 without).
pub const KFREE_LARGE: Instr = Instr(82);

// --- page allocator: 6.1, CONFIG_NUMA ---------------------------------------------------------------------------
/// Order-0 allocation from the per-CPU list on a named node (6.1: 268).
pub const PAGE_ALLOC: Instr = Instr(268);
/// Choosing the node by memory policy, when the caller names none (6.1: 322 − 268).
pub const PAGE_POLICY: Instr = Instr(54);
/// Order-0 free to the per-CPU list (6.1: 177).
pub const PAGE_FREE: Instr = Instr(177);
/// Per page of a per-CPU list refill, under the zone lock (6.1: 110).
pub const PAGE_REFILL: Instr = Instr(110);
/// Per page of a per-CPU list return, under the zone lock (6.1: 190).
pub const PAGE_RETURN: Instr = Instr(190);
/// Allocation straight from the buddy lists, on top (6.1, order 4: 708 − 370).
pub const PAGE_ALLOC_ZONE: Instr = Instr(338);
/// Free straight to the buddy lists, on top (6.1, order 4: 608 − 177 − 15·19).
pub const PAGE_FREE_ZONE: Instr = Instr(146);
/// Compound set-up, fixed part (6.1: 370 − 324).
pub const PAGE_COMPOUND: Instr = Instr(46);
/// Compound check per tail page on free (6.1: 19).
pub const PAGE_TAIL: Instr = Instr(19);
/// Watermark test of a further zone in the zonelist (6.1: like the policy part, 57).
pub const PAGE_NEXT_ZONE: Instr = Instr(57);
