//! The images and requests that both runtimes get.

use tar::EntryType;

use crate::harness::image::{Image, Layer, configured, descriptor, gzip, image_running, layer};
use crate::prelude::*;

/// Where the image of a case comes from.
pub(super) enum Source {
    Image(Image),
    /// An index with these entries, by their platform.
    Index(Vec<(Value, Image)>),
}

/// What is observed of a container.
pub(super) enum Look {
    /// Its output and exit code.
    Output,
    /// Its exit code after StopContainer with a long grace period.
    Stop,
}

/// An image and a request.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) source: Source,
    /// Run by a shell; empty for what the image says.
    pub(super) script: &'static str,
    pub(super) change: fn(&mut v1::ContainerConfig),
    /// Whether the request says that the pod, which began unprivileged, is privileged now.
    pub(super) is_privileged: bool,
    pub(super) look: Look,
}

impl Case {
    fn new(name: &'static str, image: Image, script: &'static str) -> Self {
        Self {
            name,
            source: Source::Image(image),
            script,
            change: |_| {},
            is_privileged: false,
            look: Look::Output,
        }
    }

    fn index(name: &'static str, entries: Vec<(Value, Image)>, script: &'static str) -> Self {
        Self {
            source: Source::Index(entries),
            ..Self::new(name, plain(), script)
        }
    }

    fn change(mut self, change: fn(&mut v1::ContainerConfig)) -> Self {
        self.change = change;
        self
    }

    fn privileged(mut self) -> Self {
        self.is_privileged = true;
        self
    }

    fn stopped(mut self) -> Self {
        self.look = Look::Stop;
        self
    }
}

/// An image of busybox with these settings.
fn with(run: Value) -> Image {
    let mut run = run;
    if run.get("Env").is_none() {
        run["Env"] = json!(["PATH=/bin"]);
    }
    configured(&run, &[busybox::layer()])
}

fn plain() -> Image {
    with(json!({}))
}

/// An image of busybox and these layers.
fn layered(layers: impl IntoIterator<Item = Layer>) -> Image {
    let mut all = vec![busybox::layer()];
    all.extend(layers.into_iter().map(Layer::end));
    configured(&json!({"Env": ["PATH=/bin"]}), &all)
}

/// An image of busybox with a file `/variant`.
fn variant(text: &str) -> Image {
    layered([layer().file("variant", text.as_bytes())])
}

/// A layer with two files.
fn content() -> Layer {
    layer().file("f", b"base").file("d/x", b"x")
}

/// A compressed image whose configuration has this media type.
fn typed(kind: &str) -> Image {
    let run = json!({"Env": ["PATH=/bin"]});
    let image = image_running(&run, &[(gzip(&busybox::layer()), busybox::layer())]);
    image.with_manifest(|manifest| manifest["config"]["mediaType"] = kind.into())
}

/// An image that says that it is for this machine.
fn labelled(architecture: &str, os: &str) -> Image {
    plain().with_config(|config| {
        config["architecture"] = architecture.into();
        config["os"] = os.into();
    })
}

/// The platform of a level of x86-64.
fn amd64(variant: &str) -> Value {
    json!({"os": "linux", "architecture": "amd64", "variant": variant})
}

/// An image with this `USER` and databases of users and groups.
fn user(user: &str) -> Image {
    let passwd = b"root:x:0:0::/:/bin/sh\nplain:x:1000:1000::/:/bin/sh\na b:x:7:7::/:/bin/sh\n";
    let databases = layer()
        .file("etc/passwd", passwd)
        .file("etc/group", b"root:x:0:\nextra:x:2000:\n");
    let run = json!({"Env": ["PATH=/bin"], "User": user});
    configured(&run, &[busybox::layer(), databases.end()])
}

/// An image with this `WORKDIR`, a file and a link.
fn directory(directory: &str) -> Image {
    let files = layer()
        .file("file", b"f")
        .dir("dir", 0o755)
        .link("link", "dir");
    let run = json!({"Env": ["PATH=/bin"], "WorkingDir": directory});
    configured(&run, &[busybox::layer(), files.end()])
}

fn volume(volume: &str) -> Image {
    with(json!({"Volumes": {volume: {}}}))
}

fn signal(signal: &str) -> Image {
    with(json!({"StopSignal": signal}))
}

/// A sparse file of 1 MiB that ends with `tail`, in the format 1.0 of GNU tar.
fn sparse() -> Layer {
    let mut data = format!("1\n{}\n4\n", (1 << 20) - 4).into_bytes();
    data.resize(512, 0);
    data.extend(b"tail");
    layer()
        .pax(&[
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"sparse"),
            ("GNU.sparse.realsize", b"1048576"),
        ])
        .entry("GNUSparseFile.0/sparse", EntryType::Regular, &data, |_| {})
}

/// Images whose manifest or layers are unusual.
pub(super) fn images() -> Vec<Case> {
    let hides = layer().file(".wh.f", b"").file("d/.wh..wh..opq", b"");
    let twice = [content(), hides, content()];
    let empty = [layer(), layer().file("f", b"f"), layer()];
    let null = plain()
        .with_config(|config| {
            config["history"] = Value::Null;
            config["config"]["Labels"] = Value::Null;
            config["config"]["Volumes"] = Value::Null;
            config["config"]["User"] = Value::Null;
            config["config"]["Entrypoint"] = Value::Null;
        })
        .with_manifest(|manifest| {
            manifest["annotations"] = Value::Null;
            manifest["layers"][0]["urls"] = Value::Null;
        });
    let links = layer()
        .file("./../ext/a.jar", b"jar")
        .hard_link("./again", "./../ext/a.jar");
    let mut cases = vec![
        Case::new("a layer twice", layered(twice), "cat /f /d/x"),
        Case::new("an empty layer twice", layered(empty), "cat /f"),
        Case::new(
            "a configuration of the type application/octet-stream",
            typed("application/octet-stream"),
            "echo ran",
        ),
        Case::new(
            "another architecture",
            labelled("s390x", "linux"),
            "echo ran",
        ),
        Case::new("no architecture", labelled("", ""), "echo ran"),
        Case::new(
            "a sparse file",
            layered([sparse()]),
            "busybox wc -c </sparse; busybox tail -c 4 /sparse",
        ),
        Case::new(
            "a name with ./../",
            layered([links]),
            "cat /ext/a.jar /again",
        ),
        Case::new(
            "a name with /../ inside",
            layered([layer().file("opt/x/../y", b"y")]),
            "cat /opt/y",
        ),
        Case::new(
            "a name that climbs out of the layer",
            layered([layer().file("a/../../x", b"x")]),
            "cat /x",
        ),
        Case::new(
            "a hard link to a file of a lower layer",
            layered([layer().file("f", b"f"), layer().hard_link("again", "f")]),
            "cat /again",
        ),
        Case::new("null in manifest and configuration", null, "echo ran"),
        Case::new(
            "130 volumes",
            with(json!({"Volumes": volumes(130)})),
            "echo ran",
        ),
    ];
    if cfg!(target_arch = "x86_64") {
        cases.push(Case::index(
            "an index with amd64/v2 only",
            vec![(amd64("v2"), variant("v2"))],
            "cat /variant",
        ));
        cases.push(Case::index(
            "an index with amd64 of three levels",
            ["v1", "v2", "v3"]
                .map(|level| (amd64(level), variant(level)))
                .into(),
            "cat /variant",
        ));
    }
    cases
}

fn volumes(count: usize) -> Value {
    let volumes = (0..count).map(|number| (format!("/v{number}"), json!({})));
    volumes.collect::<serde_json::Map<_, _>>().into()
}

/// Images whose configuration has unusual values.
pub(super) fn values() -> Vec<Case> {
    let (ids, place) = ("id -u; id -g", "pwd -P");
    let handles = "trap 'exit 37' 37; trap 'exit 3' QUIT; trap 'exit 15' TERM; echo ready; sleep 1000000 & wait";
    vec![
        Case::new(
            "ENTRYPOINT [\"\"]",
            with(json!({"Entrypoint": [""], "Cmd": ["/bin/sh", "-c", "echo ran"]})),
            "",
        ),
        Case::new(
            "a variable without =",
            with(json!({"Env": ["PATH=/bin", "LONELY", "A=b"]})),
            "echo $A",
        ),
        Case::new("USER name:", user("plain:"), ids),
        Case::new("USER :group", user(":extra"), ids),
        Case::new("USER 1000:", user("1000:"), ids),
        Case::new("a user that the image does not have", user("ghost"), ids),
        Case::new("a user with a blank", user("a b"), ids),
        Case::new("a user id with a sign", user("+5"), ids),
        Case::new("a relative working directory", directory("dir"), place),
        Case::new(
            "a working directory that is missing",
            directory("/new/one"),
            place,
        ),
        Case::new(
            "a working directory that is a link",
            directory("/link"),
            place,
        ),
        Case::new(
            "a working directory that is a file",
            directory("/file"),
            place,
        ),
        Case::new(
            "a working directory among the files of a process",
            directory("/proc/self/fd"),
            "echo ran",
        ),
        Case::new(
            "a relative volume",
            volume("relative"),
            "echo ran >/relative/x; cat /relative/x",
        ),
        Case::new(
            "a volume with slashes at its end",
            volume("/v//"),
            "echo ran >/v/x; cat /v/x",
        ),
        Case::new(
            "a volume that is a file",
            volume("/bin/busybox"),
            "echo ran",
        ),
        Case::new("a volume below /dev", volume("/dev/x"), "echo ran"),
        Case::new(
            "odd ports, labels and health checks",
            with(
                json!({"ExposedPorts": {"80": {}, "tcp/80": {}, "x": {}}, "Labels": null, "Healthcheck": [], "OnBuild": null}),
            ),
            "echo ran",
        ),
        Case::new("STOPSIGNAL 3", signal("3"), handles).stopped(),
        Case::new("STOPSIGNAL sigquit", signal("sigquit"), handles).stopped(),
        Case::new("STOPSIGNAL rtmin+3", signal("rtmin+3"), handles).stopped(),
        Case::new(
            "a stop signal that does not exist",
            signal("SIGFOO"),
            handles,
        )
        .stopped(),
    ]
}

/// Requests that are unusual.
pub(super) fn requests() -> Vec<Case> {
    vec![
        Case::new("an unknown capability", plain(), "echo ran").change(|config| {
            let context = security(config);
            let capabilities = context.capabilities.get_or_insert_default();
            capabilities.add_capabilities = vec!["FROBNICATE".to_owned()];
            capabilities.drop_capabilities = vec!["MEDDLE".to_owned()];
        }),
        Case::new(
            "a privileged container in a pod that began without",
            plain(),
            "grep CapEff /proc/self/status",
        )
        .change(|config| security(config).privileged = true)
        .privileged(),
        Case::new("a command that the image does not have", plain(), "").change(|config| {
            config.command = vec!["/none".to_owned()];
        }),
    ]
}

/// The manifest of an index.
pub(super) fn index(entries: &[(Value, Image)]) -> Vec<u8> {
    let manifests = entries.iter().map(|(platform, image)| {
        let mut entry = descriptor(image.media_type, &image.manifest);
        if !platform.is_null() {
            entry["platform"] = platform.clone();
        }
        entry
    });
    let manifests: Vec<_> = manifests.collect();
    json!({"schemaVersion": 2, "mediaType": crate::harness::image::INDEX, "manifests": manifests})
        .to_string()
        .into_bytes()
}
