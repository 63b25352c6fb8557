//! Which requirements apply to an image, and policies that are not usable.

use super::*;

fn policy(text: &str) -> serde_json::Result<Policy> {
    serde_json::from_str(text)
}

#[test]
fn the_narrowest_scope_applies_alone() {
    let text = r#"{"default": [{"type":"reject"}], "transports": {
        "docker-daemon": {"": [{"type":"reject"}]},
        "docker": {
            "q.io/a/b:1": [{"type":"insecureAcceptAnything"}],
            "q.io/a/c": [{"type":"insecureAcceptAnything"}],
            "q.io/a": [{"type":"reject"}],
            "q.io": [{"type":"insecureAcceptAnything"}],
            "p.io:5000": [{"type":"insecureAcceptAnything"}],
            "*.example.com": [{"type":"insecureAcceptAnything"}],
            "bad.example.com": [{"type":"reject"}],
            "*.bad.example.com": [{"type":"reject"}],
            "docker.io/library/busybox": [{"type":"insecureAcceptAnything"}]
        }}}"#;
    let policy = policy(text).expect("a policy");
    let digest = format!("q.io/a/b@{}", crate::Digest::sha256(b"x"));
    for (name, accepted) in [
        ("q.io/a/b:1", true),
        ("q.io/a/b:2", false),
        (&digest, false),
        ("q.io/a/c:2", true),
        ("q.io/a/cc:2", false),
        ("q.io/z", true),
        ("qq.io/z", false),
        ("p.io:5000/x", true),
        ("p.io/x", false),
        ("z.example.com/x", true),
        ("y.z.example.com:5000/x", true),
        ("example.com/x", false),
        ("bad.example.com/x", false),
        ("z.bad.example.com/x", false),
        ("busybox", true),
        ("alpine", false),
    ] {
        let reference = Reference::parse(name).expect(name);
        let mut requirements = policy.requirements(&reference).iter();
        let judged = requirements.all(|one| one.judge(&reference, &[]).is_ok());
        assert_eq!(judged, accepted, "{name}");
    }
}

#[test]
fn unusable_policies_are_refused() {
    let accept = r#"{"type":"insecureAcceptAnything"}"#;
    for wrong in [
        "".to_owned(),
        "{}".to_owned(),
        r#"{"default": []}"#.to_owned(),
        r#"{"default": [{"type":"acceptAll"}]}"#.to_owned(),
        r#"{"default": [{"type":"reject","x":1}]}"#.to_owned(),
        r#"{"default": [{"type":"insecureAcceptAnything","x":1}]}"#.to_owned(),
        format!(r#"{{"default": [{accept}], "Default": [{accept}]}}"#),
        format!(r#"{{"default": [{accept}], "default": [{accept}]}}"#),
        format!(r#"{{"default": [{accept}], "transports": {{"docker": {{"a": []}}}}}}"#),
        format!(r#"{{"default": [{accept}], "transports": {{"docker": {{"a": [{accept}], "a": [{accept}]}}}}}}"#),
        format!(r#"{{"default": [{accept}], "transports": {{"dir": {{"/a": [{{"type":"?"}}]}}}}}}"#),
        r#"{"default": [{"type":"signedBy","keyPath":"/a"}]}"#.to_owned(),
        r#"{"default": [{"type":"signedBy","keyType":"Keys","keyPath":"/a"}]}"#.to_owned(),
        r#"{"default": [{"type":"signedBy","keyType":"GPGKeys"}]}"#.to_owned(),
        r#"{"default": [{"type":"signedBy","keyType":"GPGKeys","keyPath":"/a","keyPaths":["/b"]}]}"#.to_owned(),
        r#"{"default": [{"type":"signedBy","keyType":"GPGKeys","keyDatas":["YQ=="]}]}"#.to_owned(),
        r#"{"default": [{"type":"sigstoreSigned"}]}"#.to_owned(),
        r#"{"default": [{"type":"sigstoreSigned","keyPath":"/a","keyData":"YQ=="}]}"#.to_owned(),
        r#"{"default": [{"type":"sigstoreSigned","keyPath":"/a","unknown":1}]}"#.to_owned(),
        r#"{"default": [{"type":"sigstoreSigned","keyPaths":[]}]}"#.to_owned(),
        r#"{"default": [{"type":"sigstoreSigned","keyData":"*"}]}"#.to_owned(),
        r#"{"default": [{"type":"sigstoreSigned","fulcio":{"caPath":"/a","oidcIssuer":"o","subjectEmail":"e"}}]}"#.to_owned(),
        r#"{"default": [{"type":"sigstoreSigned","pki":{"caRootsPath":"/a"}}]}"#.to_owned(),
    ] {
        assert!(policy(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn what_cannot_be_checked_is_refused() {
    let reference = Reference::parse("q.io/a:1").expect("name");
    for text in [
        r#"{"type":"signedBy","keyType":"X509Certificates","keyPath":"/a"}"#,
        r#"{"type":"signedBy","keyType":"GPGKeys","keyPath":"/does/not/exist"}"#,
        r#"{"type":"signedBy","keyType":"GPGKeys","keyData":"bm8ga2V5"}"#,
        r#"{"type":"sigstoreSigned","keyPath":"/does/not/exist"}"#,
        r#"{"type":"sigstoreSigned","keyData":"bm8ga2V5"}"#,
    ] {
        let policy = policy(&format!(r#"{{"default": [{text}]}}"#)).expect(text);
        let judged = policy.default[0].judge(&reference, &[]);
        assert!(judged.is_err(), "{text}");
    }
}

#[test]
fn a_namespace_has_its_own_policy_or_the_default() {
    let dir = tempfile::tempdir().expect("directory");
    let write = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("write");
        dir.path().join(name)
    };
    let reject = r#"{"default": [{"type":"reject"}]}"#;
    let accept = r#"{"default": [{"type":"insecureAcceptAnything"}]}"#;
    let default = write("default", reject);
    write("open.json", accept);
    write("broken.json", "{");
    std::os::unix::fs::symlink("nowhere", dir.path().join("lost.json")).expect("link");
    let files = PolicyFiles {
        default: Some(default),
        namespaces: Some(dir.path().to_owned()),
        ..PolicyFiles::default()
    };
    let names = [JudgedName::Name(
        Reference::parse("q.io/a:1").expect("name"),
    )];
    let judge = |files: &PolicyFiles, namespace| files.judge(&names, namespace, &[]);
    assert!(judge(&files, None).is_err());
    assert!(judge(&files, Some("")).is_err());
    assert!(judge(&files, Some("other")).is_err());
    assert!(judge(&files, Some("open")).is_ok());
    assert!(judge(&files, Some("broken")).is_err());
    assert!(judge(&files, Some("lost")).is_err(), "a link to nowhere");
    assert!(judge(&files, Some("../open")).is_err());
    let only = PolicyFiles {
        default: None,
        ..files.clone()
    };
    assert!(judge(&only, Some("other")).is_ok());
    assert!(judge(&only, Some("broken")).is_err());
    let missing = PolicyFiles {
        default: Some(dir.path().join("missing")),
        ..PolicyFiles::default()
    };
    assert!(judge(&missing, Some("open")).is_err());
}

#[test]
fn all_names_must_be_allowed_and_an_image_without_one_by_what_applies_to_all() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("policy.json");
    let files = PolicyFiles {
        default: Some(path.clone()),
        ..PolicyFiles::default()
    };
    let name = |text: &str| JudgedName::Name(Reference::parse(text).expect(text));
    let nameless = || JudgedName::Nameless(Digest::sha256(b"image"));
    let accept = r#"[{"type":"insecureAcceptAnything"}]"#;
    let reject = r#"[{"type":"reject"}]"#;
    let signed = r#"[{"type":"sigstoreSigned","keyData":"bm8ga2V5","signedIdentity":{"type":"exactRepository","dockerRepository":"q.io/a"}}]"#;
    for (default, docker, names, allowed) in [
        (
            reject,
            format!(r#""q.io": {accept}"#),
            vec![name("q.io/a:1"), name("q.io/b:1")],
            true,
        ),
        (
            reject,
            format!(r#""q.io": {accept}"#),
            vec![name("q.io/a:1"), name("p.io/a:1")],
            false,
        ),
        (
            accept,
            format!(r#""q.io": {reject}"#),
            vec![name("p.io/a:1"), name("Q.io/a:1")],
            false,
        ),
        (accept, String::new(), vec![nameless()], true),
        (
            accept,
            format!(r#""q.io": {reject}"#),
            vec![nameless()],
            true,
        ),
        (accept, format!(r#""": {reject}"#), vec![nameless()], false),
        (reject, format!(r#""": {accept}"#), vec![nameless()], false),
        (signed, String::new(), vec![nameless()], false),
    ] {
        let text = format!(r#"{{"default": {default}, "transports": {{"docker": {{{docker}}}}}}}"#);
        std::fs::write(&path, &text).expect("write");
        let judged = files.judge(&names, None, &[]);
        assert_eq!(judged.is_ok(), allowed, "{text} {names:?}: {judged:?}");
    }
}
