//! The simulated machine measured on itself: what one transfer, one hand-off of a lock, one wake-up, one pair of calls costs
//! in it. `slablab validate` compares the figures with the machine's own table and with published ones.

mod calls;
mod hardware;

use serde_json::{Value, json};

use crate::alloc::{Configuration, SlabAllocator};
use crate::error::Error;
use crate::machine::sim::Schedule;
use crate::machine::{Machine, Sim};
use crate::page::Pages;

use super::{Config, Failure};

/// Measures the machine and the allocator of a configuration without workload: `{"machine", "allocator", "size"}`, size of
/// the objects in bytes (256). All times in picoseconds.
pub fn probe(given: &Value) -> Result<Value, Failure> {
    let size = match given.get("size") {
        None => 256,
        Some(s) => s
            .as_u64()
            .filter(|s| (8..=8192).contains(s))
            .ok_or_else(|| Error::new("size", s, "a whole number of bytes, 8..8192"))?,
    };
    let mut whole = given.clone();
    if let Some(fields) = whole.as_object_mut() {
        fields.remove("size");
        fields.insert("workload".into(), json!({ "name": "script", "ops": [] }));
    }
    let config = Config::from_json(&whole)?;
    if config.machine.is_native() {
        return Err(Error::new("machine", "\"native\"", "a simulated machine").into());
    }
    let hardware = config.machine.machinery()?;
    let fresh = || Sim::new(&hardware, Schedule::default());
    let era = config.allocator["era"].as_str().unwrap_or_default();
    let model = config.machine.page_model(era)?;
    macro_rules! pick {
        ($($name:literal => $alloc:ty, $config:ty;)*) => {
            match config.allocator["name"].as_str().unwrap_or_default() {
                $($name => {
                    let tunables = <$config as Configuration>::from_json(&config.allocator)?;
                    let measure = |sim: &Sim, cross: bool| -> Result<Value, Failure> {
                        let pages = Pages::new(sim, model)?;
                        let mut alloc = <$alloc as SlabAllocator<'_, Sim>>::new(&pages, &tunables)?;
                        Ok(if cross { calls::paths(sim, &mut alloc, size)? } else { calls::pairs(sim, &mut alloc, size)? })
                    };
                    (measure(&fresh()?, false)?, measure(&fresh()?, true)?)
                })*
                // `Config::from_json` knows only those.
                other => return Err(Error::new("allocator", other, "an allocator of the catalog").into()),
            }
        };
    }
    let (pairs, paths) = crate::allocators!(pick);
    let pages = hardware::page_pairs(&fresh, model)?;
    Ok(json!({
        "config": { "machine": config.machine, "allocator": config.allocator },
        "values": hardware.values,
        "cpus": fresh()?.topology().cpus(),
        "transfers": hardware::transfers(&fresh)?,
        "hand_offs": hardware::hand_offs(&fresh)?,
        "wake_ups": hardware::wake_ups(&fresh)?,
        "pages": pages,
        "pairs": pairs,
        "paths": paths,
    }))
}

#[cfg(test)]
mod tests;
