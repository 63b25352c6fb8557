//! The cause in an error message: a runtime wraps it in the names of the layers it passed, each in the form `layer: cause`.
//!
//! The wrappers say what failed, which the call says too; the end says why. So wrappers are removed from the front, and a text
//! that is still too long is cut in the middle.

use std::borrow::Cow;

/// Wrappers of containerd, CRI-O, runc, crun, libcni, gRPC and criscope, in lower case, as the first words of a layer. What
/// follows them in the layer is a name or an id.
const WRAPPERS: &[&str] = &[
    // gRPC and Docker
    "rpc error",
    "desc =",
    "error response from daemon",
    // containerd
    "failed to create containerd container",
    "failed to create containerd task",
    "failed to start containerd task",
    "failed to create shim task",
    "failed to create shim",
    "failed to create task for container",
    "failed to start container",
    "failed to create container",
    "failed to exec in container",
    "failed to start exec",
    "failed to generate container",
    "failed to generate spec",
    "failed to generate sandbox container spec",
    "failed to create sandbox container",
    "failed to start sandbox container task",
    "failed to create sandbox",
    "failed to start sandbox",
    "failed to setup network for sandbox",
    "failed to destroy network for sandbox",
    "failed to stop container",
    "failed to kill container",
    "failed to remove container",
    "failed to pull and unpack image",
    "failed to pull image",
    "failed to resolve reference",
    "failed to resolve image",
    "failed to unpack image on snapshotter",
    "failed to prepare extraction snapshot",
    "failed to extract layer",
    "failed to copy",
    "failed to do request",
    "failed to get sandbox image",
    // OCI runtimes
    "oci runtime create failed",
    "oci runtime start failed",
    "oci runtime exec failed",
    "oci runtime error",
    "runc create failed",
    "runc start failed",
    "runc run failed",
    "runc exec failed",
    "unable to start container process",
    "error during container init",
    "container_linux.go",
    "process_linux.go",
    "rootfs_linux.go",
    "starting container process caused",
    "container init caused",
    // CRI-O
    "container create failed",
    "creating container",
    "starting container",
    "initializing source docker",
    "reading manifest",
    "pinging container registry",
    "copying system image from manifest list",
    "writing blob",
    "storing blob to file",
    "failed to create pod network sandbox",
    "error adding pod",
    "error removing pod",
    // libcni
    "plugin type=",
    "netplugin failed",
];

/// Ends that say nothing.
const EMPTY_ENDS: &[&str] = &[": unknown", ": <nil>", ": exit status 1"];

/// The text without the wrappers in front of its cause; the whole text if nothing would be left.
pub fn innermost(text: &str) -> &str {
    let text = text.trim();
    let mut rest = text;
    while let Some((layer, inner)) = split_layer(rest) {
        if !is_wrapper(layer) || inner.is_empty() {
            break;
        }
        rest = inner;
    }
    for end in EMPTY_ENDS {
        match rest.strip_suffix(end) {
            Some(shorter) if !shorter.is_empty() => rest = shorter,
            _ => {}
        }
    }
    rest
}

/// The text in at most `most` bytes: if it is longer, its first third, ` ... ` and its end.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    const GAP: &str = " ... ";
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let room = most.saturating_sub(GAP.len());
    let head = text.floor_char_boundary(room / 3);
    let tail = text.ceil_char_boundary(text.len() - (room - room / 3));
    let (head, tail) = (text[..head].trim_end(), text[tail..].trim_start());
    Cow::Owned(format!("{head}{GAP}{tail}"))
}

/// The layer in front of the first `: ` (or `desc = `) that is outside quotes, and what follows it.
fn split_layer(text: &str) -> Option<(&str, &str)> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b':' if !is_quoted && text[at..].starts_with(": ") => {
                return Some((&text[..at], text[at + 2..].trim_start()));
            }
            b'd' if !is_quoted && at > 0 && text[at..].starts_with("desc = ") => {
                return Some((&text[..at], &text[at + "desc = ".len()..]));
            }
            _ => {}
        }
    }
    None
}

/// Returns whether the layer is one of [`WRAPPERS`], with nothing but names and ids behind it. A rpc status in the middle
/// (`code = Unknown`) is one too.
fn is_wrapper(layer: &str) -> bool {
    let layer = layer.trim().to_ascii_lowercase();
    if layer.starts_with("code = ") {
        return true;
    }
    WRAPPERS.iter().any(|wrapper| {
        layer.strip_prefix(wrapper).is_some_and(|name| {
            name.split_whitespace().count() <= MOST_NAMES || name.starts_with(".go")
        })
    })
}

/// Most words of names in a wrapper: `failed to setup network for sandbox "ID"`, `error adding pod NS_NAME to CNI network "N"`.
const MOST_NAMES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages as runtimes write them, and their causes.
    const MESSAGES: &[(&str, &str)] = &[
        (
            r#"failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "nope": executable file not found in $PATH: unknown"#,
            r#"exec: "nope": executable file not found in $PATH"#,
        ),
        (
            r#"rpc error: code = Unknown desc = failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error mounting "/var/lib/x" to rootfs at "/data": mount /var/lib/x:/data (via /proc/self/fd/6), flags: 0x5000: not a directory: unknown"#,
            r#"error mounting "/var/lib/x" to rootfs at "/data": mount /var/lib/x:/data (via /proc/self/fd/6), flags: 0x5000: not a directory"#,
        ),
        (
            r#"failed to create containerd task: failed to create shim: OCI runtime create failed: container_linux.go:380: starting container process caused: process_linux.go:545: container init caused: rootfs_linux.go:75: mounting "/a" to rootfs at "/b" caused: no such file or directory: unknown"#,
            r#"mounting "/a" to rootfs at "/b" caused: no such file or directory"#,
        ),
        (
            r#"failed to pull and unpack image "docker.io/library/no:1": failed to resolve reference "docker.io/library/no:1": docker.io/library/no:1: not found"#,
            "docker.io/library/no:1: not found",
        ),
        (
            r#"failed to pull and unpack image "r:5000/a:1": failed to resolve reference "r:5000/a:1": failed to do request: Head "https://r:5000/v2/a/manifests/1": dial tcp 10.0.0.1:5000: connect: connection refused"#,
            r#"Head "https://r:5000/v2/a/manifests/1": dial tcp 10.0.0.1:5000: connect: connection refused"#,
        ),
        (
            r#"failed to pull and unpack image "r/a:1": failed to resolve reference "r/a:1": pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials"#,
            "pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials",
        ),
        (
            r#"failed to pull and unpack image "r/a:1": failed to copy: httpReadSeeker: failed open: unexpected status code https://r/v2/a/blobs/sha256:00: 429 Too Many Requests - Server message: toomanyrequests: rate exceeded"#,
            "httpReadSeeker: failed open: unexpected status code https://r/v2/a/blobs/sha256:00: 429 Too Many Requests - Server message: toomanyrequests: rate exceeded",
        ),
        (
            r#"failed to pull and unpack image "r/a:1": failed to extract layer sha256:00: write /var/lib/containerd/x: no space left on device: unknown"#,
            "write /var/lib/containerd/x: no space left on device",
        ),
        (
            r#"failed to pull and unpack image "r/a:1": no match for platform in manifest sha256:00: not found"#,
            "no match for platform in manifest sha256:00: not found",
        ),
        (
            r#"failed to setup network for sandbox "0123abc": plugin type="calico" failed (add): error getting ClusterInformation: connection is unauthorized: Unauthorized"#,
            "error getting ClusterInformation: connection is unauthorized: Unauthorized",
        ),
        (
            r#"failed to setup network for sandbox "0123abc": plugin type="bridge" failed (add): failed to allocate for range 0: no IP addresses available in range set: 10.88.0.1-10.88.0.2"#,
            "failed to allocate for range 0: no IP addresses available in range set: 10.88.0.1-10.88.0.2",
        ),
        (
            r#"failed to setup network for sandbox "0123abc": failed to find plugin "nope" in path [/opt/cni/bin]"#,
            r#"failed to find plugin "nope" in path [/opt/cni/bin]"#,
        ),
        (
            r#"failed to create pod network sandbox k8s_web_default_1_0(0123): error adding pod default_web to CNI network "multus-cni-network": plugin type="multus" name="multus-cni-network" failed (add): Multus: [default/web]: error getting pod: not found"#,
            "Multus: [default/web]: error getting pod: not found",
        ),
        (
            "container create failed: time=\"2026-01-01T00:00:00Z\" level=error msg=\"runc create failed: unable to start container process: exec: \\\"x\\\": permission denied\"\n",
            "time=\"2026-01-01T00:00:00Z\" level=error msg=\"runc create failed: unable to start container process: exec: \\\"x\\\": permission denied\"",
        ),
        (
            "initializing source docker://r/a:1: reading manifest 1 in r/a: manifest unknown",
            "manifest unknown",
        ),
        (
            r#"initializing source docker://r/a:1: pinging container registry r: Get "https://r/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority"#,
            r#"Get "https://r/v2/": tls: failed to verify certificate: x509: certificate signed by unknown authority"#,
        ),
        (
            "cannot load seccomp profile \"/var/lib/kubelet/seccomp/a.json\": open /var/lib/kubelet/seccomp/a.json: no such file or directory",
            "cannot load seccomp profile \"/var/lib/kubelet/seccomp/a.json\": open /var/lib/kubelet/seccomp/a.json: no such file or directory",
        ),
        (
            r#"failed to generate container "0123" spec: failed to generate spec: failed to stat "/host/x": stat /host/x: no such file or directory"#,
            r#"failed to stat "/host/x": stat /host/x: no such file or directory"#,
        ),
        (
            r#"failed to reserve sandbox name "web_default_1_0": name "web_default_1_0" is reserved for "0123""#,
            r#"failed to reserve sandbox name "web_default_1_0": name "web_default_1_0" is reserved for "0123""#,
        ),
        (
            "failed to create containerd task: failed to create shim task: OCI runtime create failed: unable to retrieve OCI runtime error (open /run/x/log.json: no such file or directory): runc did not terminate successfully: exit status 127: unknown",
            "unable to retrieve OCI runtime error (open /run/x/log.json: no such file or directory): runc did not terminate successfully: exit status 127",
        ),
        (
            r#"failed to get sandbox image "registry.k8s.io/pause:3.8": failed to pull image "registry.k8s.io/pause:3.8": failed to pull and unpack image "registry.k8s.io/pause:3.8": failed to resolve reference "registry.k8s.io/pause:3.8": failed to do request: Head "https://registry.k8s.io/v2/pause/manifests/3.8": dial tcp: lookup registry.k8s.io on 10.0.0.2:53: no such host"#,
            r#"Head "https://registry.k8s.io/v2/pause/manifests/3.8": dial tcp: lookup registry.k8s.io on 10.0.0.2:53: no such host"#,
        ),
        (
            "failed to stop container \"0123\": an error occurs during waiting for container \"0123\" to be killed: wait container \"0123\": context deadline exceeded",
            "an error occurs during waiting for container \"0123\" to be killed: wait container \"0123\": context deadline exceeded",
        ),
        ("context deadline exceeded", "context deadline exceeded"),
        ("", ""),
        (
            "failed to create containerd task: ",
            "failed to create containerd task:",
        ),
        (
            "rpc error: code = DeadlineExceeded desc = context deadline exceeded",
            "context deadline exceeded",
        ),
        (
            "crun: executable file `nope` not found in $PATH: No such file or directory",
            "crun: executable file `nope` not found in $PATH: No such file or directory",
        ),
    ];

    #[test]
    fn the_cause_is_what_is_left() {
        for (message, cause) in MESSAGES {
            assert_eq!(innermost(message), *cause, "{message}");
        }
    }

    #[test]
    fn nothing_is_lost_that_is_no_wrapper() {
        for text in [
            "failed to create shim task is what the operator wrote as a sentence of many words: here",
            "a: b: c",
            r#"exec: "failed to copy: x": not found"#,
            "größe: \"unclosed: x",
        ] {
            assert_eq!(innermost(text), text);
        }
    }

    #[test]
    fn a_long_text_keeps_its_end() {
        let text = format!("begin {} the innermost cause", "x".repeat(500));
        let short = shortened(&text, 100);
        assert!(short.len() <= 100, "{short}");
        assert!(short.starts_with("begin x") && short.ends_with("the innermost cause"));
        assert!(short.contains(" ... "));
        assert_eq!(shortened("short", 100), "short");
        let wide = "é".repeat(200);
        assert!(shortened(&wide, 101).len() <= 101);
    }
}
