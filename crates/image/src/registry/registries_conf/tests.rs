//! What an image is fetched from, and what a short name stands for.

use super::*;

fn conf(text: &str) -> RegistriesConf {
    let mut conf = RegistriesConf {
        is_there: true,
        ..RegistriesConf::default()
    };
    conf.merge(File::parse(text).expect(text));
    conf
}

fn sources(conf: &RegistriesConf, name: &str) -> Vec<String> {
    let name = Reference::parse(name).expect(name);
    let sources = conf.sources(&name).expect("not blocked");
    let shown = |source: Source| {
        let mark = if source.insecure { "!" } else { "" };
        format!("{}{mark}", source.name)
    };
    sources.into_iter().map(shown).collect()
}

const DIGEST: &str = "@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn the_longest_prefix_decides() {
    let conf = conf(
        r#"
        [[registry]]
        prefix = "example.com/foo"
        location = "internal.example/bar"
        [[registry.mirror]]
        location = "m0.local/mirror-for-foo"
        [[registry.mirror]]
        location = "m1.local:5000/mirrors/foo/"
        insecure = true

        [[registry]]
        location = "registry.com"
        [[registry.mirror]]
        location = "digests.local"
        pull-from-mirror = "digest-only"
        [[registry.mirror]]
        location = "tags.local"
        pull-from-mirror = "tag-only"

        [[registry]]
        location = "old.com"
        mirror-by-digest-only = true
        [[registry.mirror]]
        location = "m2.local"

        [[registry]]
        prefix = "*.wild.com"
        [[registry.mirror]]
        location = "m3.local/wild"

        [[registry]]
        prefix = "*.moved.com"
        location = "there.com/x"
        insecure = true

        [[registry]]
        prefix = "docker.io/library"
        location = "hub.local"
        "#,
    );
    for (name, expected) in [
        (
            "example.com/foo/image:1",
            &[
                "m0.local/mirror-for-foo/image:1",
                "m1.local:5000/mirrors/foo/image:1!",
                "internal.example/bar/image:1",
            ][..],
        ),
        (
            "example.com/foo:1",
            &[
                "m0.local/mirror-for-foo:1",
                "m1.local:5000/mirrors/foo:1!",
                "internal.example/bar:1",
            ],
        ),
        ("example.com/food:1", &["example.com/food:1"]),
        ("registry.com/a:1", &["tags.local/a:1", "registry.com/a:1"]),
        ("registry.com:5000/a:1", &["registry.com:5000/a:1"]),
        ("old.com/a:1", &["old.com/a:1"]),
        (
            "a.b.wild.com/c:1",
            &["m3.local/wild/c:1", "a.b.wild.com/c:1"],
        ),
        ("wild.com/c:1", &["wild.com/c:1"]),
        ("a.moved.com/c:1", &["there.com/x/c:1!"]),
        ("busybox", &["hub.local/busybox:latest"]),
    ] {
        assert_eq!(sources(&conf, name), expected, "{name}");
    }
    let by_digest = |name: &str| sources(&conf, &format!("{name}{DIGEST}"));
    assert_eq!(
        by_digest("registry.com/a")[0],
        format!("digests.local/a{DIGEST}")
    );
    assert_eq!(by_digest("old.com/a")[0], format!("m2.local/a{DIGEST}"));
}

#[test]
fn what_is_blocked_is_not_fetched() {
    let conf = conf("[[registry]]\nlocation = \"bad.com/x\"\nblocked = true");
    let blocked = |name: &str| conf.sources(&Reference::parse(name).expect(name)).is_err();
    assert!(blocked("bad.com/x/y:1") && blocked("bad.com/x") && !blocked("bad.com/z"));
}

#[test]
fn short_names_stand_for_aliases_or_are_looked_for() {
    let names = |conf: &RegistriesConf, text: &str| {
        let found = conf.candidates(text).map_err(|e| e.to_string())?;
        Ok::<_, String>(found.iter().map(Reference::to_string).collect::<Vec<_>>())
    };
    let mut conf = conf(
        r#"
        unqualified-search-registries = ["a.com", "docker.io"]
        [aliases]
        "fedora" = "registry.fedora.example/fedora"
        "gone" = "x.com/gone"
        "#,
    );
    let full = |text: &str| vec![text.to_owned()];
    assert_eq!(
        names(&conf, "fedora:41"),
        Ok(full("registry.fedora.example/fedora:41"))
    );
    let by_digest = names(&conf, &format!("fedora{DIGEST}"));
    assert_eq!(
        by_digest,
        Ok(full(&format!("registry.fedora.example/fedora{DIGEST}")))
    );
    assert_eq!(
        names(&conf, "busybox"),
        Ok(vec![
            "a.com/busybox:latest".to_owned(),
            "docker.io/library/busybox:latest".to_owned()
        ])
    );
    assert_eq!(
        names(&conf, "b.com/busybox"),
        Ok(full("b.com/busybox:latest"))
    );
    assert_eq!(names(&conf, "localhost/x"), Ok(full("localhost/x:latest")));
    conf.merge(
        File::parse("short-name-mode = \"enforcing\"\n[aliases]\n\"gone\" = \"\"").expect("a file"),
    );
    assert!(names(&conf, "busybox").is_err());
    assert!(names(&conf, "gone").is_err());
    conf.merge(File::parse("unqualified-search-registries = []").expect("a file"));
    assert!(names(&conf, "busybox").is_err());
    let without = RegistriesConf::default();
    assert_eq!(
        names(&without, "busybox"),
        Ok(full("docker.io/library/busybox:latest"))
    );
}

#[test]
fn later_files_replace_tables() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("registries.conf");
    assert!(read(Some(&path)).is_err(), "named, but missing");
    fs::write(&path, "[[registry]]\nlocation = \"a.com\"\nblocked = true").expect("write");
    let blocked = || {
        let conf = read(Some(&path)).expect("files");
        conf.sources(&Reference::parse("a.com/x").expect("name"))
            .is_err()
    };
    assert!(blocked());
    let more = dir.path().join("registries.conf.d");
    fs::create_dir(&more).expect("directory");
    fs::write(more.join("1.conf"), "[[registry]]\nlocation = \"a.com\"").expect("write");
    fs::write(more.join("2.txt"), "nonsense").expect("write");
    assert!(!blocked());
    fs::write(more.join("2.conf"), "nonsense").expect("write");
    let error = read(Some(&path)).expect_err("damaged").to_string();
    assert!(error.contains("2.conf"), "{error}");
}

#[test]
fn wrong_files_are_refused() {
    for wrong in [
        "[registries.search]\nregistries = [\"a.com\"]",
        "[[registry]]",
        "[[registry]]\nprefix = \"a.com\"",
        "[[registry]]\nlocation = \"https://a.com\"",
        "[[registry]]\nprefix = \"a.*.com\"\nlocation = \"b.com\"",
        "[[registry]]\nprefix = \"*.a.com/x\"\nlocation = \"b.com\"",
        "[[registry]]\nlocation = \"a.com\"\npull-from-mirror = \"all\"",
        "[[registry]]\nlocation = \"a.com\"\n[[registry.mirror]]\ninsecure = true",
        "[[registry]]\nlocation = \"a.com\"\n[[registry.mirror]]\nlocation = \"b.com\"\npull-from-mirror = \"never\"",
        "[[registry]]\nlocation = \"a.com\"\nmirror-by-digest-only = true\n[[registry.mirror]]\nlocation = \"b.com\"\npull-from-mirror = \"all\"",
        "[aliases]\n\"a.com/x\" = \"b.com/x\"",
        "[aliases]\n\"x\" = \"y\"",
        "[aliases]\n\"x:1\" = \"b.com/y\"",
    ] {
        assert!(File::parse(wrong).is_err(), "{wrong}");
    }
}
