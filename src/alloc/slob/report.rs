//! The whole heap in figures, the state in the words of the recordings, and the invariants, walked.

use serde::Serialize;
use serde_json::{Value, json};

use crate::ensure;
use crate::error::Corruption;
use crate::machine::Machine;
use crate::page::{Field, Pfn};
use crate::spec::CacheId;
use crate::units::PAGE_SIZE;

use super::Slob;
use super::heap::HEAP;
use super::page::{HeapPage, UNITS};

/// The heap as a whole: what no cache can say of itself. `memory = (heap_pages + big_pages) · 4 KiB`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeapReport {
    /// Pages of the heap, full ones included.
    pub heap_pages: u64,
    /// Pages of objects of a page or more.
    pub big_pages: u64,
    /// Bytes of live objects, as asked for.
    pub live_bytes: u64,
    /// The lists of partly free pages.
    pub lists: Vec<ListReport>,
}

/// One list of partly free pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ListReport {
    /// `all`, or `small`, `medium`, `large`.
    pub name: &'static str,
    /// Pages.
    pub pages: u64,
    /// Free units of two bytes.
    pub free_units: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks that end where the next one begins: what is lost without head merge.
    pub touching: u64,
    /// Units of the largest free block of each page, all together.
    pub largest: u64,
}

impl ListReport {
    /// Share of the free units that lie outside their page's largest free block: 0 when every page has one.
    pub fn fragmentation(&self) -> f64 {
        if self.free_units == 0 { 0.0 } else { 1.0 - self.largest as f64 / self.free_units as f64 }
    }
}

impl HeapReport {
    /// Bytes of live objects per byte of memory held: what the mail of January 2008 calls efficiency. 0 for an empty heap.
    pub fn efficiency(&self) -> f64 {
        let held = (self.heap_pages + self.big_pages) * PAGE_SIZE;
        if held == 0 { 0.0 } else { self.live_bytes as f64 / held as f64 }
    }
}

impl<'p, M: Machine> Slob<'p, M> {
    /// The heap as a whole. When no CPU runs.
    pub fn heap(&mut self) -> HeapReport {
        let [taken, returned, big_pages] = self.page_counts();
        HeapReport {
            heap_pages: taken - returned - big_pages,
            big_pages,
            live_bytes: self.caches.iter_mut().map(|c| c.sum(|t| t.bytes)).sum::<i64>() as u64,
            lists: self.list_reports(),
        }
    }

    fn list_reports(&mut self) -> Vec<ListReport> {
        let (pages, heap) = (self.pages, self.heap.get_mut());
        let report = |(&name, list): (&&'static str, &crate::page::FrameList)| {
            let mut report = ListReport { name, ..ListReport::default() };
            for page in list.iter(pages).map(|pfn| HeapPage::of(pages, pfn)) {
                report.pages += 1;
                report.free_units += page.free_units();
                report.largest += page.blocks().map(|b| b.units).max().unwrap_or(0);
                for block in page.blocks() {
                    report.free_blocks += 1;
                    report.touching += u64::from(block.touches_next());
                }
            }
            report
        };
        self.policy.list_names().iter().zip(&heap.lists).map(report).collect()
    }

    /// Pages taken and returned since the start, big ones included, and big ones now.
    pub(super) fn page_counts(&mut self) -> [u64; 3] {
        let heap = self.heap.get_mut();
        let (mut taken, mut returned, mut big) = (heap.taken, heap.returned, 0);
        for cache in &mut self.caches {
            let (ever, now) = (cache.sum(|t| t.big_taken as i64), cache.sum(|t| t.big_pages));
            taken += ever as u64;
            returned += (ever - now) as u64;
            big += now as u64;
        }
        [taken, returned, big]
    }

    /// The state with the keys of the recordings. Pages are counted from the creation of the cache on (kmalloc: from the
    /// start), the lists are those of the whole heap: a replay begins with an empty one, its `descriptor` set to 0.
    pub(super) fn state_since_creation(&mut self, id: CacheId) -> Value {
        let [taken, returned, big] = self.page_counts();
        let lists = self.list_reports();
        let cache = &self.caches[id.0 as usize];
        let [taken, returned, big_then] = [taken - cache.base[0], returned - cache.base[1], cache.base[2]];
        let list = |l: &ListReport| {
            let figures = json!({ "pages": l.pages, "free_units": l.free_units, "free_blocks": l.free_blocks,
                "touching": l.touching });
            (l.name.to_string(), figures)
        };
        json!({
            "geometry": {
                "object_size": cache.spec.size,
                "align": cache.align,
                "slab_size": cache.size,
                "flags": format!("{:#x}", cache.flags()),
            },
            "pages_live": taken as i64 - returned as i64,
            "pages_alloced": taken,
            "pages_freed": returned,
            "big_pages_live": big as i64 - big_then as i64,
            "list": lists.iter().map(list).collect::<serde_json::Map<_, _>>(),
        })
    }

    /// Checks the invariants of `heap.rs` and `page.rs`, and that the used units of all pages are those of the live blocks.
    pub(super) fn walk_invariants(&mut self) -> Result<(), Corruption> {
        let listed = self.walk_lists()?;
        let (mut heap_pages, mut used) = (0, 0);
        for pfn in self.pages.taken_frames() {
            if self.pages.peek(pfn, Field::Flags) & HEAP == 0 {
                continue;
            }
            heap_pages += 1;
            let free = self.walk_page(pfn)?;
            used += UNITS - free;
            let is_listed = listed.binary_search(&pfn).is_ok();
            ensure!(is_listed == (free > 0), place(pfn), "{free} units free, but in a list: {is_listed}");
        }
        let heap = self.heap.get_mut();
        let (taken, returned) = (heap.taken, heap.returned);
        ensure!(taken == returned + heap_pages, "heap", "taken {taken} ≠ returned {returned} + pages {heap_pages}");
        let mut live = 0;
        for cache in &mut self.caches {
            let (objects, units) = (cache.sum(|t| t.objects), cache.sum(|t| t.units));
            let name = cache.spec.name.clone();
            ensure!(objects >= 0 && units >= 0, name, "{objects} objects and {units} units are live: freed twice");
            live += units as u64;
        }
        ensure!(live == used, "heap", "units of live blocks {live} ≠ used units of all pages {used}");
        Ok(())
    }

    /// Every page of every list, sorted.
    fn walk_lists(&mut self) -> Result<Vec<Pfn>, Corruption> {
        let (pages, heap) = (self.pages, self.heap.get_mut());
        let names = self.policy.list_names();
        let mut listed = Vec::new();
        for (i, list) in heap.lists.iter().enumerate() {
            let before = listed.len();
            for pfn in list.iter(pages) {
                let (flags, owner) = (pages.peek(pfn, Field::Flags), pages.peek(pfn, Field::Owner));
                ensure!(
                    flags & HEAP != 0 && owner == i as u64,
                    place(pfn),
                    "flags {flags:#x}, list {owner} in list {i}"
                );
                listed.push(pfn);
            }
            let found = listed.len() - before;
            ensure!(found == list.len(), format!("list {i}"), "{found} pages linked, {} counted", list.len());
            ensure!(found == 0 || i < names.len(), format!("list {i}"), "{found} pages, but there are {names:?} only");
        }
        listed.sort_unstable();
        let pages = listed.len();
        listed.dedup();
        ensure!(listed.len() == pages, "lists", "{} pages are in more than one place", pages - listed.len());
        Ok(listed)
    }

    /// Free units of a page whose free list is sound.
    fn walk_page(&self, pfn: Pfn) -> Result<u64, Corruption> {
        let page = HeapPage::of(self.pages, pfn);
        let free = page.free_units();
        ensure!(free < UNITS, place(pfn), "{free} units free: an empty page is returned");
        let live = page.live_units();
        ensure!(live + free == UNITS, place(pfn), "{live} units of live blocks and {free} free ones are not {UNITS}");
        let (mut sum, mut last) = (0, UNITS);
        for block in page.blocks() {
            let (at, end, next) = (block.at, block.end(), block.next);
            ensure!(end <= next && next <= UNITS, place(pfn), "free block {at}..{end}, the next at {next}");
            let joined = !self.policy.head_merge || !block.touches_next();
            ensure!(joined, place(pfn), "free blocks {at}..{end} and {next}.. touch in spite of head_merge");
            sum += block.units;
            last = next;
        }
        ensure!(sum == free && last == UNITS, place(pfn), "free blocks of {sum} units to {last}, {free} counted");
        Ok(free)
    }
}

fn place(pfn: Pfn) -> String {
    format!("heap page {}", pfn.0)
}
