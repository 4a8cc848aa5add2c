//! slablab: the Linux slab allocators SLAB, SLUB, SLOB and SLQB, re-created to be measured and explained.
//!
//! # Floors
//!
//! ```text
//! floor 0  units topology spec error     words
//! floor 1  machine                       what a CPU, a lock and a word of memory are (Native, Sim)
//! floor 2  page                          pages: buddy, per-CPU lists, frames
//! floor 3  alloc                         slab allocators
//! floor 4  workload                      tasks that say what they want (beside machine, on floor 0 alone)
//! floor 5  run                           where the two meet: executor, dispatch, sweep, results
//! ```
//!
//! Reading order: this page, [`machine`], [`page`], [`alloc::slob`], then `alloc::slub::cpu`.
#![warn(missing_docs)]

pub mod alloc;
pub mod error;
pub mod machine;
pub mod page;
pub mod run;
pub mod spec;
pub mod topology;
pub mod units;
pub mod workload;

#[cfg(test)]
mod tests;
