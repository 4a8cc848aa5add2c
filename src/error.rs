//! What was asked, what was wrong, what would have been right.

use std::fmt;

/// A refused configuration. The Python side raises it as `ConfigError`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Dotted name of the parameter, as the user writes it.
    pub parameter: String,
    /// The value that was refused, as the user wrote it.
    pub value: String,
    /// What would have been right.
    pub expected: String,
}

impl Error {
    /// Refuses `value` of `parameter`.
    pub fn new(parameter: impl Into<String>, value: impl fmt::Display, expected: impl Into<String>) -> Error {
        Error { parameter: parameter.into(), value: value.to_string(), expected: expected.into() }
    }

    /// Refuses an unknown name and offers the nearest of the known ones.
    pub fn unknown(what: &str, value: &str, known: &[&str]) -> Error {
        let nearest = known
            .iter()
            .map(|k| (edit_distance(value, k), *k))
            .min()
            .filter(|(d, k)| *d <= k.len().max(value.len()) / 2)
            .map(|(_, k)| format!("did you mean {k:?}? "))
            .unwrap_or_default();
        Error::new(what, format!("{value:?}"), format!("{nearest}known: {}", known.join(", ")))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: {}", self.parameter, self.value, self.expected)
    }
}

impl std::error::Error for Error {}

/// What a run unwinds with when it was asked to stop from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// Ends the run at hand: unwinds with [`Cancelled`], without a message.
pub fn stop() -> ! {
    std::panic::resume_unwind(Box::new(Cancelled))
}

/// A broken invariant, found by a `verify()` walker: where, what was expected, what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The structure that is wrong: cache, slab, list, zone.
    pub place: String,
    /// The broken rule with both values.
    pub detail: String,
}

impl Corruption {
    /// Reports `detail` at `place`.
    pub fn new(place: impl Into<String>, detail: impl Into<String>) -> Corruption {
        Corruption { place: place.into(), detail: detail.into() }
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.detail)
    }
}

impl std::error::Error for Corruption {}

/// Returns a [`Corruption`] unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($cond:expr, $place:expr, $($detail:tt)+) => {
        if !$cond {
            return Err($crate::error::Corruption::new($place, format!($($detail)+)));
        }
    };
}

/// Levenshtein distance over bytes; names are short, so the simple quadratic form is enough.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.bytes().enumerate() {
            let next = (diagonal + usize::from(ca != cb)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_name_offers_the_nearest() {
        let e = Error::unknown("allocator", "slubb", &["slab", "slub", "slob"]);
        assert!(e.to_string().contains("did you mean \"slub\""), "{e}");
        let e = Error::unknown("allocator", "zzzzzzzz", &["slab", "slub"]);
        assert!(!e.to_string().contains("did you mean"), "{e}");
    }
}
