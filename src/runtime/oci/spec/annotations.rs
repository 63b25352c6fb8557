//! Annotations of the specification: what the OCI runtime may read.

use std::collections::HashMap;

use super::build::Request;

/// Whether a key is allowed by a list of keys, where `*` at the end stands for any rest.
fn allowed(key: &str, list: &[String]) -> bool {
    list.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => key.starts_with(prefix),
        None => key == pattern,
    })
}

/// The names every CRI runtime tells its OCI runtime, and the annotations the handler lets through.
pub(super) fn annotations(request: &Request<'_>) -> HashMap<String, String> {
    let mut all = HashMap::new();
    let handler = request.handler;
    let pod = request.pod.annotations.iter();
    all.extend(pod.filter(|(key, _)| allowed(key, &handler.pod_annotations)));
    let own = request.container.annotations.iter();
    all.extend(own.filter(|(key, _)| allowed(key, &handler.container_annotations)));
    let mut all: HashMap<String, String> = all
        .into_iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut put = |key: &str, value: &str| {
        all.insert(format!("io.kubernetes.cri.{key}"), value.to_owned());
    };
    put("container-type", "container");
    put("sandbox-id", &request.sandbox.id);
    if let Some(metadata) = &request.pod.metadata {
        put("sandbox-name", &metadata.name);
        put("sandbox-namespace", &metadata.namespace);
        put("sandbox-uid", &metadata.uid);
    }
    if let Some(metadata) = &request.container.metadata {
        put("container-name", &metadata.name);
    }
    if let Some(image) = &request.container.image {
        let name = match image.user_specified_image.as_str() {
            "" => &image.image,
            name => name,
        };
        put("image-name", name);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn a_star_ends_a_prefix() {
        let list = ["a.b/*".to_owned(), "exact".to_owned()];
        for (key, expected) in [
            ("a.b/c", true),
            ("a.b", false),
            ("exact", true),
            ("exactly", false),
        ] {
            assert_eq!(allowed(key, &list), expected, "{key}");
        }
    }
}
