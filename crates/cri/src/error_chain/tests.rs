//! Texts as runtimes write them, and the cause in each.

use super::*;

/// The text, and its cause.
const TEXTS: &[(&str, &str)] = &[
    // containerd 1.6 to 2.x with runc
    (
        r#"failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "/bin/nope": stat /bin/nope: no such file or directory: unknown"#,
        r#"exec: "/bin/nope": stat /bin/nope: no such file or directory"#,
    ),
    (
        r#"failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: exec: "strt.sh": executable file not found in $PATH: unknown"#,
        r#"exec: "strt.sh": executable file not found in $PATH"#,
    ),
    (
        r#"failed to create containerd task: failed to create shim: OCI runtime create failed: container_linux.go:380: starting container process caused: process_linux.go:545: container init caused: rootfs_linux.go:76: mounting "/srv/app.conf" to rootfs at "/etc/app.conf" caused: mount through procfd: not a directory: unknown"#,
        r#"mounting "/srv/app.conf" to rootfs at "/etc/app.conf" caused: mount through procfd: not a directory"#,
    ),
    (
        r#"OCI runtime create failed: container_linux.go:348: starting container process caused "exec: \"app\": executable file not found in $PATH": unknown"#,
        r#"exec: "app": executable file not found in $PATH"#,
    ),
    (
        r#"failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error mounting "/dev/shm" to rootfs at "/dev/shm": mount src=/dev/shm, dst=/dev/shm, dstFd=/proc/thread-self/fd/8, flags=MS_NOSUID: no space left on device: unknown"#,
        r#"error mounting "/dev/shm" to rootfs at "/dev/shm": mount src=/dev/shm, dst=/dev/shm, dstFd=/proc/thread-self/fd/8, flags=MS_NOSUID: no space left on device"#,
    ),
    (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: container init was OOM-killed (memory limit too low?): unknown",
        "container init was OOM-killed (memory limit too low?)",
    ),
    (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: cannot set memory limit: container could not join or create cgroup: unknown",
        "cannot set memory limit: container could not join or create cgroup",
    ),
    (
        r#"failed to start containerd task "app": cannot start a stopped process: unknown"#,
        "cannot start a stopped process",
    ),
    (
        r#"failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error running prestart hook #0: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy' nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown"#,
        "error running prestart hook #0: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy' nvidia-container-cli: initialization error: nvml error: driver not loaded",
    ),
    (
        "failed to create shim task: context deadline exceeded: unknown",
        "context deadline exceeded",
    ),
    (
        "failed to start shim: start failed: io.containerd.runc.v2: create new shim socket: listen unix /run/containerd/s/1f: bind: no space left on device: exit status 1: unknown",
        "failed to start shim: start failed: io.containerd.runc.v2: create new shim socket: listen unix /run/containerd/s/1f: bind: no space left on device",
    ),
    (
        r#"failed to generate container "3f0c" spec: failed to generate spec: path "/data/dir" is mounted on "/" but it is not a shared mount"#,
        r#"path "/data/dir" is mounted on "/" but it is not a shared mount"#,
    ),
    (
        r#"failed to generate container "3f0c" spec: failed to apply OCI options: no users found: unknown"#,
        "no users found",
    ),
    (
        r#"failed to create containerd container: get apparmor_parser version: exec: "apparmor_parser": executable file not found in $PATH"#,
        r#"get apparmor_parser version: exec: "apparmor_parser": executable file not found in $PATH"#,
    ),
    (
        r#"failed to exec in container: failed to start exec "e3b0": OCI runtime exec failed: exec failed: unable to start container process: exec: "curl": executable file not found in $PATH: unknown"#,
        r#"exec: "curl": executable file not found in $PATH"#,
    ),
    (
        "failed to exec in container: timeout 1s exceeded: context deadline exceeded",
        "timeout 1s exceeded: context deadline exceeded",
    ),
    (
        r#"failed to get sandbox image "registry.k8s.io/pause:3.9": failed to pull image "registry.k8s.io/pause:3.9": failed to pull and unpack image "registry.k8s.io/pause:3.9": failed to resolve reference "registry.k8s.io/pause:3.9": failed to do request: Head "https://registry.k8s.io/v2/pause/manifests/3.9": dial tcp 10.0.0.9:443: i/o timeout"#,
        r#"Head "https://registry.k8s.io/v2/pause/manifests/3.9": dial tcp 10.0.0.9:443: i/o timeout"#,
    ),
    (
        "no runtime for \"kata\" is configured",
        "no runtime for \"kata\" is configured",
    ),
    (
        r#"failed to reserve sandbox name "web_shop_9a1c_0": name "web_shop_9a1c_0" is reserved for "4b82""#,
        r#"failed to reserve sandbox name "web_shop_9a1c_0": name "web_shop_9a1c_0" is reserved for "4b82""#,
    ),
    // Registries, through containerd
    (
        r#"failed to pull and unpack image "docker.io/library/nope:1": failed to resolve reference "docker.io/library/nope:1": docker.io/library/nope:1: not found"#,
        "docker.io/library/nope:1: not found",
    ),
    (
        r#"rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/library/nope:1": failed to resolve reference "docker.io/library/nope:1": pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed"#,
        "pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed",
    ),
    (
        r#"failed to pull and unpack image "r.example/a:1": failed to resolve reference "r.example/a:1": failed to do request: Head "https://r.example/v2/a/manifests/1": tls: failed to verify certificate: x509: certificate signed by unknown authority"#,
        r#"Head "https://r.example/v2/a/manifests/1": tls: failed to verify certificate: x509: certificate signed by unknown authority"#,
    ),
    (
        r#"failed to pull and unpack image "r.example/a:1": failed to resolve reference "r.example/a:1": failed to do request: Head "http://r.example/v2/a/manifests/1": http: server gave HTTP response to HTTPS client"#,
        r#"Head "http://r.example/v2/a/manifests/1": http: server gave HTTP response to HTTPS client"#,
    ),
    (
        r#"failed to pull and unpack image "ghcr.io/a/b:1": failed to resolve reference "ghcr.io/a/b:1": failed to authorize: failed to fetch anonymous token: unexpected status from GET request to https://ghcr.io/token?<redacted>: 403 Forbidden"#,
        "failed to fetch anonymous token: unexpected status from GET request to https://ghcr.io/token?<redacted>: 403 Forbidden",
    ),
    (
        r#"failed to pull and unpack image "docker.io/library/redis:7": failed to copy: httpReadSeeker: failed open: unexpected status code https://registry-1.docker.io/v2/library/redis/manifests/sha256:ab: 429 Too Many Requests - Server message: toomanyrequests: You have reached your pull rate limit."#,
        "unexpected status code https://registry-1.docker.io/v2/library/redis/manifests/sha256:ab: 429 Too Many Requests - Server message: toomanyrequests: You have reached your pull rate limit.",
    ),
    (
        r#"failed to pull and unpack image "r.example/a:1": failed to extract layer sha256:0a1b: write /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/9/fs/usr/lib/x.so: no space left on device: unknown"#,
        "write /var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/9/fs/usr/lib/x.so: no space left on device",
    ),
    (
        r#"failed to pull and unpack image "r.example/a:1": no match for platform in manifest: not found"#,
        "no match for platform in manifest: not found",
    ),
    (
        r#"failed to pull and unpack image "r.example/a:1": failed to unpack image on snapshotter overlayfs: unexpected media type text/html for sha256:0a: not found"#,
        "unexpected media type text/html for sha256:0a: not found",
    ),
    // CNI, through containerd
    (
        r#"failed to setup network for sandbox "4b82": plugin type="calico" failed (add): error getting ClusterInformation: connection is unauthorized: Unauthorized"#,
        "error getting ClusterInformation: connection is unauthorized: Unauthorized",
    ),
    (
        r#"failed to setup network for sandbox "4b82": plugin type="bridge" name="net" failed (add): failed to allocate for range 0: no IP addresses available in range set: 10.88.0.1-10.88.0.254"#,
        "failed to allocate for range 0: no IP addresses available in range set: 10.88.0.1-10.88.0.254",
    ),
    (
        r#"failed to setup network for sandbox "4b82": plugin type="flannel" failed (add): loadFlannelSubnetEnv failed: open /run/flannel/subnet.env: no such file or directory"#,
        "loadFlannelSubnetEnv failed: open /run/flannel/subnet.env: no such file or directory",
    ),
    (
        r#"failed to setup network for sandbox "4b82": plugin type="cilium-cni" failed (add): unable to connect to Cilium agent: failed to create cilium agent client after 30.000000 seconds timeout: Get "http://localhost/v1/config": dial unix /var/run/cilium/cilium.sock: connect: no such file or directory"#,
        r#"unable to connect to Cilium agent: failed to create cilium agent client after 30.000000 seconds timeout: Get "http://localhost/v1/config": dial unix /var/run/cilium/cilium.sock: connect: no such file or directory"#,
    ),
    (
        r#"failed to setup network for sandbox "4b82": failed to find plugin "bridge" in path [/opt/cni/bin]"#,
        r#"failed to find plugin "bridge" in path [/opt/cni/bin]"#,
    ),
    (
        r#"failed to setup network for sandbox "4b82": cni plugin not initialized"#,
        "cni plugin not initialized",
    ),
    (
        r#"failed to destroy network for sandbox "4b82": plugin type="aws-cni" failed (delete): del cmd: error received from DelNetwork gRPC call: rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:50051: connect: connection refused""#,
        r#"del cmd: error received from DelNetwork gRPC call: connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:50051: connect: connection refused""#,
    ),
    (
        r#"failed to setup network for sandbox "4b82": plugin type="multus" failed (add): Multus: [shop/web/9a1c]: error adding container to network "macvlan": plugin type="macvlan" failed (add): Link not found"#,
        r#"Multus: [shop/web/9a1c]: error adding container to network "macvlan": Link not found"#,
    ),
    // CRI-O with runc and crun
    (
        r#"container create failed: time="2026-01-02T03:04:05Z" level=error msg="runc create failed: unable to start container process: exec: \"nope\": executable file not found in $PATH""#,
        r#"exec: "nope": executable file not found in $PATH"#,
    ),
    (
        r#"container create failed: time="2026-01-02T03:04:05Z" level=warning msg="lstat /sys/fs/cgroup/x: no such file or directory"
time="2026-01-02T03:04:05Z" level=error msg="runc create failed: unable to start container process: can't get final child's PID from pipe: EOF""#,
        "can't get final child's PID from pipe: EOF",
    ),
    (
        "rpc error: code = Unknown desc = container create failed: executable file `nope` not found in $PATH: No such file or directory",
        "executable file `nope` not found in $PATH: No such file or directory",
    ),
    (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: crun: open executable: Permission denied: unknown",
        "crun: open executable: Permission denied",
    ),
    (
        r#"rpc error: code = Unknown desc = failed to create pod network sandbox k8s_web_shop_9a1c_0(4b82): error adding pod shop_web to CNI network "k8s-pod-network": plugin type="calico" failed (add): stat /var/lib/calico/nodename: no such file or directory: check that the calico/node container is running and has mounted /var/lib/calico/"#,
        "stat /var/lib/calico/nodename: no such file or directory: check that the calico/node container is running and has mounted /var/lib/calico/",
    ),
    (
        "Kubelet may be retrying requests that are timing out in CRI-O due to system load. Currently at stage container runtime creation: context deadline exceeded: error reserving ctr name k8s_app_web for id 4b82: name is reserved",
        "Currently at stage container runtime creation: context deadline exceeded: error reserving ctr name k8s_app_web for id 4b82: name is reserved",
    ),
    (
        "initializing source docker://nope:latest: reading manifest latest in docker.io/library/nope: requested access to the resource is denied",
        "requested access to the resource is denied",
    ),
    (
        r#"initializing source docker://r.example/a:1: pinging container registry r.example: Get "https://r.example/v2/": dial tcp: lookup r.example on 10.0.0.2:53: no such host"#,
        r#"Get "https://r.example/v2/": dial tcp: lookup r.example on 10.0.0.2:53: no such host"#,
    ),
    (
        r#"copying system image from manifest list: writing blob: adding layer with blob "sha256:0a": processing tar file(write /usr/lib/x.so: no space left on device): exit status 1"#,
        r#"adding layer with blob "sha256:0a": processing tar file(write /usr/lib/x.so: no space left on device)"#,
    ),
    (
        "creating container storage: the container name \"k8s_app\" is already in use by 4b82. You have to remove that container to be able to reuse that name: that name is already in use",
        "the container name \"k8s_app\" is already in use by 4b82. You have to remove that container to be able to reuse that name: that name is already in use",
    ),
    (
        r#"short-name "nope:1" did not resolve to an alias and no unqualified-search registries are defined in "/etc/containers/registries.conf""#,
        r#"short-name "nope:1" did not resolve to an alias and no unqualified-search registries are defined in "/etc/containers/registries.conf""#,
    ),
    // cri-dockerd, gVisor, Kata
    (
        r#"failed to start container "4b82": Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "nope": executable file not found in $PATH: unknown"#,
        r#"exec: "nope": executable file not found in $PATH"#,
    ),
    (
        r#"failed to set up sandbox container "4b82" network for pod "web": networkPlugin cni failed to set up pod "web_shop" network: open /run/flannel/subnet.env: no such file or directory"#,
        "open /run/flannel/subnet.env: no such file or directory",
    ),
    (
        r#"OCI runtime start failed: starting container: starting root container: urpc method "containerManager.StartRoot" failed: EOF: unknown"#,
        r#"starting container: starting root container: urpc method "containerManager.StartRoot" failed: EOF"#,
    ),
    (
        "failed to create containerd task: failed to create shim task: Failed to Check if grpc server is working: rpc error: code = DeadlineExceeded desc = timed out connecting to vsock 1234:1024: unknown",
        "Failed to Check if grpc server is working: timed out connecting to vsock 1234:1024",
    ),
    // More of the same
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
        "unexpected status code https://r/v2/a/blobs/sha256:00: 429 Too Many Requests - Server message: toomanyrequests: rate exceeded",
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
        "exec: \"x\": permission denied",
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
        "runc did not terminate successfully: exit status 127",
    ),
    (
        r#"failed to get sandbox image "registry.k8s.io/pause:3.8": failed to pull image "registry.k8s.io/pause:3.8": failed to pull and unpack image "registry.k8s.io/pause:3.8": failed to resolve reference "registry.k8s.io/pause:3.8": failed to do request: Head "https://registry.k8s.io/v2/pause/manifests/3.8": dial tcp: lookup registry.k8s.io on 10.0.0.2:53: no such host"#,
        r#"Head "https://registry.k8s.io/v2/pause/manifests/3.8": dial tcp: lookup registry.k8s.io on 10.0.0.2:53: no such host"#,
    ),
    (
        "failed to stop container \"0123\": an error occurs during waiting for container \"0123\" to be killed: wait container \"0123\": context deadline exceeded",
        "an error occurs during waiting for container \"0123\" to be killed: wait container \"0123\": context deadline exceeded",
    ),
    (
        "failed to create containerd task: ",
        "failed to create containerd task",
    ),
    (
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        "context deadline exceeded",
    ),
    (
        "crun: executable file `nope` not found in $PATH: No such file or directory",
        "crun: executable file `nope` not found in $PATH: No such file or directory",
    ),
    // Input that is repeated
    (
        "failed to setup network for sandbox \"0a\": plugin type=\"multus-shim\" failed (add): CmdAdd (shim): CNI request failed with status 400: 'ContainerID:\"5e6c\" Netns:\"/var/run/netns/cni-6b\" IfName:\"eth0\" Args:\"K8S_POD_NAME=web\" Path:\"\" ERRORED: error configuring pod [shop/web] networking: [shop/web/8ba5:kube-ovn]: error adding container to network \"kube-ovn\": RPC failed; no address allocated to pod shop/web\n': StdinData: {\"cniVersion\":\"0.3.1\",\"name\":\"multus-cni-network\"}",
        "CNI request failed with status 400: [shop/web/8ba5:kube-ovn]: error adding container to network \"kube-ovn\": RPC failed; no address allocated to pod shop/web",
    ),
    (
        "runc create failed: unable to start container process: unable to apply cgroup configuration: unable to start unit \"cri-0a.scope\" (properties [{Name:Description Value:\"libcontainer container 0a\"} {Name:PIDs Value:@au [7]}]): Unit cri-0a.scope already exists.: unknown",
        "unable to apply cgroup configuration: unable to start unit \"cri-0a.scope\": Unit cri-0a.scope already exists.",
    ),
    // Nothing to unwrap
    ("context deadline exceeded", "context deadline exceeded"),
    ("unknown", "unknown"),
    ("failed to create shim task", "failed to create shim task"),
    (
        "a \"broken quote: stays: as it is",
        "a \"broken quote: stays: as it is",
    ),
    ("", ""),
];

#[test]
fn the_cause_is_what_no_layer_has_added() {
    assert!(TEXTS.len() > 50, "{}", TEXTS.len());
    for (text, cause) in TEXTS {
        assert_eq!(innermost(text), *cause, "{text}");
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

/// Of a cause that is too long, its end is the reason.
#[test]
fn both_ends_of_a_long_cause_survive() {
    let path = "/very/long/path".repeat(40);
    let text =
        format!("failed to create shim task: error mounting {path}: no such device: unknown");
    let cause = innermost(&text);
    let short = shortened(&cause, 300);
    assert!(short.len() <= 300, "{}", short.len());
    assert!(short.starts_with("error mounting "), "{short}");
    assert!(short.ends_with(": no such device"), "{short}");
    assert!(short.contains(" ... "), "{short}");
    for (_, cause) in TEXTS {
        let short = shortened(cause, 60);
        assert!(short.len() <= 60, "{short}");
        let end = &cause[cause.ceil_char_boundary(cause.len() - cause.len().min(25))..];
        assert!(short.ends_with(end), "{short}: {end}");
    }
}

#[test]
fn no_text_is_cut_within_a_character() {
    for max in 0..40 {
        assert!(shortened(&"größe ".repeat(20), max).len() <= max.max(5));
        let _ = innermost(&"ü\"\\: ".repeat(max));
    }
}
