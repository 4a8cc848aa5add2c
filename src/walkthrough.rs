//! The life of one object, from `kmalloc` to a page and back. Documentation only.
//!
//! A server task of tbench sends a response. The executor ([`crate::run`]) interprets its `TcpSend` and needs a 4-KiB
//! buffer: `alloc.kmalloc(cpu, 4088, …)`. Follow it through the floors, on `slab@2.6.24`, CPU 5 of the simulated Opteron.
//!
//! **Floor 3, the allocator.** 4088 bytes is the class `size-4096`. Interrupts go off: on Sim that charges 36 cycles, on
//! Native the call is empty. CPU 5's array of the cache is reached with the token `cpu` ([`crate::machine::PerCpu`]: the
//! token is the lock). If it has an entry, the newest is the answer, and the hit has cost 66 instructions and three lines.
//! It is empty: the refill takes the node's `list_lock`, looks into the shared array, then into partial and free slabs.
//! Nothing there either: the cache grows by a slab.
//!
//! **Floor 2, pages.** `alloc_pages(cpu, Order(0), node 1, …)` reads the zone's watermarks and takes the first page of CPU
//! 5's hot list for that zone. If the list is empty, 31 pages come from the buddy lists under the zone lock: the head of
//! the smallest sufficient free area is split, the lower half handed out each time. The page's descriptor, one line of
//! `mem_map`, gets its reference count; the allocator writes the owning cache into it.
//!
//! **Floor 1, the machine.** Each of those steps was a touch of a line, an instruction count, or a point of interaction. On
//! Sim a touch looks the line up in the directory: is it in this CPU's cache, in another's, in memory of which node? The
//! answer is a number of picoseconds on CPU 5's clock. Taking `list_lock` was a point of interaction: the fiber of CPU 5
//! was suspended until no CPU's clock was behind its own. On Native the same lines of Rust are a load, a store and a
//! test-and-set.
//!
//! **Back up.** The refill has put the new slab's only object into the array; the pop returns it. The network layer copies
//! the payload in, and the client, woken on its own CPU, copies it out. When the acknowledgement is processed (by the
//! sending task itself: the prequeue) `kfree` finds the cache through the page's descriptor and the object's node in its
//! slab's header. It is node 1, and CPU 5 is of node 1: the object goes on top of the array. Had a CPU of node 0 freed it,
//! it would have gone to node 0's alien array, and with eleven others, under one lock, back to node 1.
//!
//! **The page goes home** when its array has filled to 24 and a flush moves the twelve oldest objects out: to the shared
//! array while that has room, else into their slabs. A slab that becomes empty while the node has more free objects than
//! its limit is destroyed, and its page goes to the head of the freeing CPU's hot list: still warm, first to be used again.
//!
//! The same object on `slub@2.6.24` never meets a slab: more than half a page is passed on, and both ends of its life
//! are the page allocator's. That difference is what the figure of November 2007 is about.
