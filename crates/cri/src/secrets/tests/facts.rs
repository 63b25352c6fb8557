//! What is shown of a text, and when nothing but known words is.

use super::*;

/// What hid the cause before: facts that are no secrets of any request.
#[test]
fn facts_are_shown() {
    let secrets = Secrets::default();
    let request = create(with_facts(with_env("hunter2")));
    remember(&secrets, &request);
    for text in [
        "failed to generate spec: lstat /dev/nvidia7: no such file or directory",
        "mount /srv/ledger to /mnt/ledger: permission denied",
        "exec: \"nvidia-container-cli\": initialization error: nvml error: driver not loaded",
        "plugin type=\"tuning\" failed (add): open /proc/sys/net/ipv4/no_such_setting: no such file or directory",
        "CNI plugin sticky-bridge DEL: cannot be removed",
        "no IP addresses available in range set: 10.88.0.250-10.88.0.250",
        "failed to load seccomp profile /var/lib/kubelet/seccomp/audit-zone.json",
        "dial tcp: lookup quay.example.org on 10.0.0.2:53: no such host",
        "unable to find user nginx: no matching entries in passwd file",
    ] {
        assert_eq!(
            shown(&secrets, Method::StartContainer, &start(), text),
            text
        );
        assert_eq!(
            shown(&secrets, Method::CreateContainer, &request, text),
            text
        );
    }
}

/// A path that a request names as such is shown, even if an argument or annotation names it too; not what is below it.
#[test]
fn paths_of_mounts_and_devices_are_shown_in_any_case() {
    let secrets = Secrets::default();
    let config = v1::ContainerConfig {
        args: vec!["--data=/mnt/ledger/orderz --device /dev/nvidia7".into()],
        ..with_facts(with_env("/srv/ledger"))
    };
    let request = create(config);
    remember(&secrets, &request);
    for (text, want) in [
        (
            "mount /srv/ledger: no such device",
            "mount /srv/ledger: no such device",
        ),
        (
            "\"/run/c/rootfs/mnt/ledger\": read-only",
            "\"/run/c/rootfs/mnt/ledger\": read-only",
        ),
        (
            "bind /srv/ledger:/mnt/ledger:ro.",
            "bind /srv/ledger:/mnt/ledger:ro.",
        ),
        ("lstat /dev/nvidia7.", "lstat /dev/nvidia7."),
        ("stat /mnt/ledger/orderz: no", "stat /mnt/<redacted>: no"),
        ("ledger is missing", "<redacted> is missing"),
    ] {
        assert_eq!(
            shown(&secrets, Method::StartContainer, &start(), text),
            want
        );
        assert_eq!(
            shown(&secrets, Method::CreateContainer, &request, text),
            want
        );
    }
}

/// Its name has the form of an assignment. What only looks like one stays hidden.
#[test]
fn cdi_devices_of_the_request_are_shown() {
    let secrets = Secrets::default();
    let name = |name: &str| v1::CdiDevice { name: name.into() };
    let request = create(v1::ContainerConfig {
        cdi_devices: vec![
            name("vendor.example/zebra=0"),
            name("vendor.example/zebra=all"),
        ],
        ..with_env("zebra")
    });
    remember(&secrets, &request);
    for (text, want) in [
        (
            "CDI device vendor.example/zebra=0 does not exist on this node; /etc/cdi/a.json was not read",
            "CDI device vendor.example/zebra=0 does not exist on this node; /etc/cdi/a.json was not read",
        ),
        (
            "unresolvable CDI devices vendor.example/zebra=0, vendor.example/zebra=all.",
            "unresolvable CDI devices vendor.example/zebra=0, vendor.example/zebra=all.",
        ),
        (
            "no device vendor.example/zebra=77",
            "no device vendor.example/<redacted>",
        ),
        ("zebra is missing", "<redacted> is missing"),
    ] {
        for (method, request) in [
            (Method::StartContainer, start()),
            (Method::CreateContainer, request.clone()),
        ] {
            assert_eq!(shown(&secrets, method, &request, text), want);
        }
    }
}

/// A device that the request names is shown, although `kubectl apply` writes it into an annotation; not another one.
#[test]
fn devices_are_shown_in_any_case() {
    let secrets = Secrets::default();
    let device = "zendor.example/gpu=GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c";
    let applied = format!("{{\"devices\":[\"{device}\",\"zendor.example/nic=orderz\"]}}");
    let name = device.to_owned();
    let request = create(v1::ContainerConfig {
        annotations: [("applied".to_owned(), applied)].into(),
        cdi_devices: vec![v1::CdiDevice { name }],
        ..with_env("hunter2")
    });
    remember(&secrets, &request);
    let hidden = "<redacted>/nic=<redacted>";
    for (text, want) in [
        (
            format!("unresolvable CDI devices {device}: unknown"),
            format!("unresolvable CDI devices {device}: unknown"),
        ),
        (
            format!("CDI devices [{device} zendor.example/nic=orderz]."),
            format!("CDI devices [{device} {hidden}]."),
        ),
        (format!("{device}0"), "<redacted>/gpu=<redacted>".to_owned()),
    ] {
        for (method, request) in [
            (Method::StartContainer, &start()),
            (Method::CreateContainer, &request),
        ] {
            assert_eq!(shown(&secrets, method, request, &text), want);
        }
    }
}

/// Values that are words of the field, numbers or addresses hide nothing.
#[test]
fn common_values_hide_nothing() {
    let secrets = Secrets::default();
    for value in [
        "true",
        "80",
        "/bin/sh",
        "443",
        "tcp://10.96.0.1:443",
        "10.96.0.1",
        "localhost",
        "config.yaml",
        "1",
        "info",
    ] {
        remember(&secrets, &create(with_env(value)));
    }
    for text in [
        "/bin/sh: not found, port 80 and 443 of 10.96.0.1 refused",
        "localhost is true: config.yaml has no info 1",
    ] {
        assert_eq!(
            shown(&secrets, Method::StartContainer, &start(), text),
            text
        );
    }
}

/// Secrets that no request holds: of the node, of the image, of a registry.
#[test]
fn what_looks_like_a_secret_is_hidden() {
    let secrets = Secrets::default();
    let request = create(with_env("hunter2"));
    for (text, want) in [
        (
            "Get \"https://mee:pazz@quay.example/v2/?zig=abz&x=1\": denied",
            "Get \"https://<redacted>@quay.example/v2/?<redacted>\": denied",
        ),
        (
            "Authorization: Bearer abz.dez/fgz+hiz==, done",
            "Authorization: Bearer <redacted>==, done",
        ),
        (
            "Authorization: Basic bWU6cA==",
            "Authorization: Basic <redacted>==",
        ),
        (
            "password zezame was refused",
            "password <redacted> was refused",
        ),
        (
            "API_URL=zezame in environment",
            "API_URL=<redacted> in environment",
        ),
        (
            "run --license zezame --zone=eu-zest",
            "run --license zezame --zone=<redacted>",
        ),
        (
            "got eyJhbGciOiJub25lIn0.eyJhIjoxfQ.x-y from server",
            "got <redacted> from server",
        ),
        ("id 0f8fad5bd9cb469fa16570867728950e", "id <redacted>"),
        (
            "access AKIA1OSF2DNN7EXA3PLE denied",
            "access <redacted> denied",
        ),
        ("blob aGVsbG8gd29ybGQh+3Zz/abcd1234==", "blob <redacted>=="),
        ("card 5105 1051 0510 5100", "card 5105 <redacted>"),
        ("naïve value", "<redacted> value"),
    ] {
        assert_eq!(
            shown(&secrets, Method::CreateContainer, &request, text),
            want
        );
    }
}

#[test]
fn without_the_request_only_known_words_are_shown() {
    let text = "plugin tunzing failed";
    let hidden = "plugin <redacted> failed";
    let secrets = Secrets::default();
    let of = |method, request: &[u8]| shown(&secrets, method, request, text);
    assert_eq!(of(Method::StartContainer, &start()), hidden);
    assert_eq!(of(Method::CreateContainer, b"\xff"), hidden);
    let request = create(with_env(""));
    assert_eq!(of(Method::CreateContainer, &request), text);
    remember(&secrets, &request);
    assert_eq!(of(Method::StartContainer, &start()), text);
    // The output of a command is not known.
    assert_eq!(of(Method::ExecSync, &start()), hidden);
    assert_eq!(of(Method::ContainerStatus, &start()), hidden);
    // The sandbox was made before.
    let subject = Subject {
        container: None,
        container_id: None,
        ..subject()
    };
    let stop = (Method::StopPodSandbox, Some(&*start()));
    let got = text_of_call(text, stop, Some(&subject), None, &secrets);
    assert_eq!(&*got, hidden);
    // Something was not understood.
    secrets.remember(Method::CreateContainer, None, None);
    assert_eq!(of(Method::StartContainer, &start()), hidden);
    remember(&secrets, &request);
    assert_eq!(of(Method::StartContainer, &start()), text);
    secrets.remember(Method::ExecSync, Some(b"\xff"), None);
    assert_eq!(of(Method::StartContainer, &start()), hidden);
}

#[test]
fn old_requests_are_forgotten_as_a_whole() {
    let secrets = Secrets::default();
    remember(&secrets, &create(with_env("hunter2")));
    let text = "plugin tunzing failed";
    assert_eq!(
        shown(&secrets, Method::StartContainer, &start(), text),
        text
    );
    for n in 0..4000_u64 {
        let noise: String = (0..12)
            .map(|i| format!("{:x}", (n * 31 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        let command = v1::ExecSyncRequest {
            cmd: vec!["run".into(), noise],
            ..Default::default()
        };
        secrets.remember(Method::ExecSync, Some(&command.encode_to_vec()), None);
    }
    let got = shown(&secrets, Method::StartContainer, &start(), text);
    assert_eq!(got, "plugin <redacted> failed");
    assert!(secrets.lock().bytes() <= 1 << 20);
}

/// The program of a command tells what is missing in an image; its arguments may be secrets.
#[test]
fn programs_are_shown_and_arguments_are_not() {
    let missing = "exec: \"/srv/zervd\": stat /srv/zervd: no such file or directory";
    for (command, text, want) in [
        (vec!["/srv/zervd", "--key=argzone"], missing, missing),
        (
            vec!["zervd", "argzone"],
            "exec: \"zervd\": executable file not found in $PATH",
            "exec: \"zervd\": executable file not found in $PATH",
        ),
        // A whole command in one word is a common mistake.
        (
            vec!["zervd argzone"],
            "exec: \"zervd argzone\": executable file not found in $PATH",
            "exec: \"zervd <redacted>\": executable file not found in $PATH",
        ),
        (
            vec!["zervd", "argzone"],
            "zervd: option argzone is not known",
            "zervd: option <redacted> is not known",
        ),
    ] {
        let secrets = Secrets::default();
        let command: Vec<String> = command.into_iter().map(Into::into).collect();
        let request = create(v1::ContainerConfig {
            command: command.clone(),
            ..Default::default()
        });
        remember(&secrets, &request);
        let created = shown(&secrets, Method::CreateContainer, &request, text);
        let started = shown(&secrets, Method::StartContainer, &start(), text);
        assert_eq!((&*created, &*started), (want, want));
        let exec = v1::ExecSyncRequest {
            cmd: command,
            ..Default::default()
        };
        let exec = shown(&secrets, Method::ExecSync, &exec.encode_to_vec(), text);
        assert_eq!(exec, want);
    }
}
