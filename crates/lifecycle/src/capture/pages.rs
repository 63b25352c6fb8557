//! Leaves other pods out of stored pages. A page is JSON whose rows name their pod as `namespace` and `pod`, or `namespace`
//! and `name`.

use serde_json::Value;

/// Keeps the rows of a page that name a wanted pod (by namespace and name) or no pod. A page that is not JSON, such as the
/// metrics, stays as it is: it names no pod.
pub(super) fn keep(page: &mut Vec<u8>, is_wanted: &impl Fn(&str, &str) -> bool) {
    let Ok(mut value) = serde_json::from_slice(page) else {
        return;
    };
    prune(&mut value, is_wanted);
    if let Ok(text) = serde_json::to_vec(&value) {
        *page = text;
    }
}

fn prune(value: &mut Value, is_wanted: &impl Fn(&str, &str) -> bool) {
    match value {
        Value::Array(rows) => {
            rows.retain(|row| pod(row).is_none_or(|(namespace, name)| is_wanted(namespace, name)));
            rows.iter_mut().for_each(|row| prune(row, is_wanted));
        }
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| prune(field, is_wanted)),
        _ => {}
    }
}

/// The pod that a row is about.
fn pod(row: &Value) -> Option<(&str, &str)> {
    let [namespace, pod, name] =
        ["namespace", "pod", "name"].map(|key| row.get(key).and_then(Value::as_str));
    Some((namespace?, pod.or(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_other_pods_are_left_out() {
        let mut page = br#"{"calls":[{"namespace":"shop","pod":"web","method":"A"},{"namespace":"shop","pod":"db"},{"method":"Status"}],
            "pods":[{"namespace":"shop","name":"db","tries":[{"namespace":"shop","pod":"web"}]}],"name":"n"}"#
            .to_vec();
        keep(&mut page, &|namespace, name| {
            (namespace, name) == ("shop", "db")
        });
        let kept: Value = serde_json::from_slice(&page).expect("JSON");
        let expected = serde_json::json!({
            "calls": [{"namespace": "shop", "pod": "db"}, {"method": "Status"}],
            "pods": [{"namespace": "shop", "name": "db", "tries": []}],
            "name": "n",
        });
        assert_eq!(kept, expected);
        let mut metrics = b"# TYPE criscope_x counter\n".to_vec();
        keep(&mut metrics, &|_, _| false);
        assert!(metrics.starts_with(b"# TYPE"));
    }
}
