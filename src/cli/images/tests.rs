//! Which images are in use, and the table.

use super::*;

fn container(id: &str, image: &str, image_ref: &str, image_id: &str) -> v1::Container {
    v1::Container {
        id: id.to_owned(),
        image: Some(v1::ImageSpec {
            image: image.to_owned(),
            ..v1::ImageSpec::default()
        }),
        image_ref: image_ref.to_owned(),
        image_id: image_id.to_owned(),
        ..v1::Container::default()
    }
}

fn image(id: &str, tags: &[&str], digests: &[&str]) -> v1::Image {
    let owned = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
    v1::Image {
        id: id.to_owned(),
        repo_tags: owned(tags),
        repo_digests: owned(digests),
        size: 5 << 20,
        ..v1::Image::default()
    }
}

#[test]
fn whatever_a_runtime_calls_the_image_of_a_container_keeps_it() {
    let one = || image("sha256:1", &["a.example/x:1"], &["a.example/x@sha256:d"]);
    let two = || image("sha256:2", &["a.example/y:1"], &[]);
    for (by, mounted) in [
        (container("c", "sha256:1", "", ""), None),
        (container("c", "a.example/x:1", "", ""), None),
        (container("c", "", "a.example/x@sha256:d", ""), None),
        (container("c", "gone", "gone", "sha256:1"), None),
        (container("c", "", "", ""), Some("sha256:1")),
    ] {
        let mut users = ImageUsers::default();
        users.add(&by, mounted.into_iter().map(str::to_owned).collect());
        assert_eq!(users.image(one()).used_by, ["c"], "{}", by.image_ref);
        assert!(users.image(two()).is_unused());
        // An image without any name is not that of a container without one.
        assert!(users.image(image("", &[], &[])).is_unused());
    }
}

#[test]
fn a_pinned_image_is_never_unused() {
    let mut pause = image("sha256:1", &["pause:3.10"], &[]);
    pause.pinned = true;
    assert!(!ImageUsers::default().image(pause).is_unused());
}

#[test]
fn a_row_for_each_tag_and_the_pod_that_uses_it() {
    let mut users = ImageUsers::default();
    let mut by = container("c1", "", "", "sha256:0123456789abcdef");
    for (name, value) in [
        ("pod.namespace", "prod"),
        ("pod.name", "web"),
        ("container.name", "app"),
    ] {
        by.labels
            .insert(format!("io.kubernetes.{name}"), value.to_owned());
    }
    users.add(&by, Vec::new());
    users.add(
        &container("c2", "", "", "sha256:0123456789abcdef"),
        Vec::new(),
    );
    let images = [
        users.image(image(
            "sha256:0123456789abcdef",
            &["r.example:5000/x:1", "r.example:5000/x:2"],
            &["r.example:5000/x@sha256:fedcba9876543210"],
        )),
        users.image(image("sha256:1", &[], &["r.example:5000/y@sha256:d"])),
        users.image(image("sha256:2", &["r.example:5000/\u{1b}z"], &[])),
    ];
    let text = table(&images, true, false);
    let rows: Vec<Vec<_>> = text
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|it| !it.is_empty())
                .collect()
        })
        .collect();
    let size = "5.0 MiB";
    let used = "c2 and 1 more";
    assert_eq!(
        rows[0],
        ["IMAGE", "TAG", "DIGEST", "IMAGE ID", "SIZE", "USED BY"]
    );
    let (digest, id) = ("fedcba9876543", "0123456789abc");
    assert_eq!(rows[1], ["r.example:5000/x", "1", digest, id, size, used]);
    assert_eq!(rows[2], ["r.example:5000/x", "2", digest, id, size, used]);
    assert_eq!(
        rows[3],
        ["r.example:5000/y", MISSING_NAME, "d", "1", size, "-"]
    );
    assert!(!text.contains('\u{1b}'), "{text}");
    assert_eq!(rows[4][1..], [MISSING_NAME, MISSING_NAME, "2", size, "-"]);
    assert!(!table(&images, false, false).contains("DIGEST"));
    assert!(table(&images, false, true).contains("c2,prod/web/app"));
}

#[test]
fn images_are_found_by_a_part_of_a_name_or_the_begin_of_an_id() {
    let found = ImageUsers::default().image(image("sha256:abc", &["r.example/x:1"], &[]));
    for part in ["x:1", "example", "ab", "sha256:ab"] {
        assert!(found.is_named(part), "{part}");
    }
    for part in ["bc", "y", "sha256:b"] {
        assert!(!found.is_named(part), "{part}");
    }
}
