//! Frames from rows: JSON objects that have the same fields in the same order.

use serde_json::Value;

use super::result::{Column, Frame};

/// A frame of these rows. A field is a column of words if its values are words, of counts if all are whole numbers, else of
/// numbers, where null stands for "does not exist".
pub(super) fn frame(name: &'static str, rows: &[Value]) -> Frame {
    let fields = rows.first().and_then(Value::as_object).into_iter().flat_map(|row| row.keys().cloned());
    let columns = fields.map(|field| {
        let column = column(rows.iter().map(|row| &row[&field]));
        (field, column)
    });
    Frame { name, columns: columns.collect() }
}

fn column<'a>(values: impl Iterator<Item = &'a Value> + Clone) -> Column {
    if values.clone().all(Value::is_string) {
        Column::Str(values.filter_map(|v| v.as_str().map(String::from)).collect())
    } else if values.clone().all(Value::is_u64) {
        Column::U64(values.filter_map(Value::as_u64).collect())
    } else {
        Column::F64(values.map(|v| v.as_f64().unwrap_or(f64::NAN)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_becomes_a_column_of_its_kind() {
        let rows = [json!({ "list": "cpu0", "n": 3, "share": null }), json!({ "list": "cpu1", "n": 4, "share": 0.5 })];
        let frame = frame("queues", &rows);
        let column = |name: &str| frame.columns.iter().find(|(n, _)| n == name).map(|(_, c)| c.clone());
        assert_eq!(column("list"), Some(Column::Str(vec!["cpu0".into(), "cpu1".into()])));
        assert_eq!(column("n"), Some(Column::U64(vec![3, 4])));
        assert!(matches!(column("share"), Some(Column::F64(v)) if v[0].is_nan() && v[1] == 0.5));
        assert_eq!(super::frame("queues", &[]).columns, []);
    }
}
