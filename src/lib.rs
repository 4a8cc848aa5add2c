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
//! Reading order: this page, [`walkthrough`], [`machine`], [`page`], [`alloc::slob`], then `alloc::slub::cpu`.
//!
//! # One run
//!
//! ```
//! use serde_json::json;
//! use slablab::run::{Cancel, run};
//!
//! let outcome = run(
//!     &json!({
//!         "machine": { "name": "opteron-2x4-2007", "cpus": 2 },
//!         "allocator": "slub@2.6.24",
//!         "workload": { "name": "tbench", "clients": 2, "seconds": 0.005, "warmup": 0.005 },
//!         "seed": 1,
//!     }),
//!     &Cancel::default(),
//! )
//! .expect("a run");
//! assert_eq!(outcome.summary["unit"], "MB/s");
//! assert!(outcome.summary["throughput"].as_f64().unwrap() > 0.0);
//! ```
#![warn(missing_docs)]
// Builds for loom leave out the tests of everything that its models do not run.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

pub mod alloc;
pub mod error;
pub mod machine;
pub mod page;
#[cfg(not(loom))]
pub mod run;
pub mod spec;
pub mod topology;
pub mod units;
pub mod walkthrough;
pub mod workload;

#[cfg(all(test, not(loom)))]
mod tests;
