//! Machine files: the form in which a machine is exchanged, that of the presets (machine-model.md §14). Every figure has its
//! value, unit, source and confidence; the factors of the model need not be named.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::{FILES, Figures, MODEL, Scalar, Value, built_in, parse};
use crate::error::Error;

const FIELDS: [&str; 4] = ["value", "unit", "confidence", "source"];
const CONFIDENCES: [&str; 5] = ["high", "medium", "low", "fitted", "set"];

/// The figures of a file's table of values, checked, with the model's factors.
pub(super) fn figures(given: &Json) -> Result<Figures, Error> {
    let Some(table) = given.as_object() else {
        return Err(Error::new(
            "machine.values",
            given,
            "a table of figures, each with value, unit, confidence, source",
        ));
    };
    let mut figures = parse(MODEL).values;
    let presets: Vec<&Figures> = FILES.iter().filter_map(|(name, _)| built_in(name)).map(|f| &f.values).collect();
    let known: BTreeSet<&str> = presets.iter().flat_map(|p| p.keys()).map(String::as_str).collect();
    for (key, entry) in table {
        let Some(like) = presets.iter().find_map(|p| p.get(key)) else {
            return Err(Error::unknown(&format!("machine.{key}"), key, &known.into_iter().collect::<Vec<_>>()));
        };
        figures.insert(key.clone(), figure(key, entry, like)?);
    }
    match known.into_iter().find(|key| presets.iter().all(|p| p.contains_key(*key)) && !figures.contains_key(*key)) {
        Some(missing) => Err(Error::new(format!("machine.{missing}"), "nothing", "a figure that every machine has")),
        None => Ok(figures),
    }
}

fn figure(key: &str, entry: &Json, like: &Value) -> Result<Value, Error> {
    let Some(fields) = entry.as_object() else {
        return Err(Error::new(format!("machine.{key}"), entry, "a table with value, unit, confidence, source"));
    };
    if let Some(field) = fields.keys().find(|f| !FIELDS.contains(&f.as_str())) {
        return Err(Error::unknown(&format!("machine.{key}.{field}"), field, &FIELDS));
    }
    let word = |field: &str, right: &str| match fields.get(field).and_then(Json::as_str) {
        Some(text) => Ok(text.to_string()),
        None => {
            let found = fields.get(field).map_or("nothing".to_string(), Json::to_string);
            Err(Error::new(format!("machine.{key}.{field}"), found, right))
        }
    };
    let value = match fields.get("value") {
        Some(Json::Number(n)) => Scalar::Number(n.as_f64().unwrap_or(f64::NAN)),
        Some(Json::String(w)) => Scalar::Word(w.clone()),
        other => {
            let found = other.map_or("nothing".to_string(), Json::to_string);
            return Err(Error::new(format!("machine.{key}.value"), found, "a number or a word"));
        }
    };
    super::acceptable(key, &value, like)?;
    let source = word("source", "where the figure comes from, in words")?;
    if source.trim().is_empty() {
        return Err(Error::new(format!("machine.{key}.source"), "\"\"", "where the figure comes from, in words"));
    }
    let confidence = word("confidence", &format!("one of {}", CONFIDENCES.join(", ")))?;
    if !CONFIDENCES.contains(&confidence.as_str()) {
        return Err(Error::unknown(&format!("machine.{key}.confidence"), &confidence, &CONFIDENCES));
    }
    let unit = word("unit", &format!("its unit, as {:?}", like.unit))?;
    if unit != like.unit {
        return Err(Error::new(format!("machine.{key}.unit"), format!("{unit:?}"), format!("{:?}", like.unit)));
    }
    Ok(Value { value, unit, confidence, source })
}
