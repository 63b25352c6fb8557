//! Errors of the kubelet, containerd, CRI-O, runc, crun, CNI plugins and the dynamic loader, whose cause must stay readable.

use super::shown;

#[test]
fn causes_stay_readable() {
    let texts = [
        // The kubelet.
        "couldn't find key in Secret",
        "container has runAsNonRoot and image will run as root",
        "container has runAsNonRoot and image has non-numeric user, cannot verify user is non-root",
        "failed to prepare subPath for volumeMount of container",
        "failed to create subPath directory for volumeMount of container",
        "container has runAsNonRoot, runAsUser is 0",
        "Failed to generate sandbox config for pod: open /etc/resolv.conf: no such file or directory",
        "Failed to create log directory for pod: mkdir /var/log/pods: read-only file system",
        "network is not ready: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady",
        "timed out waiting for the condition",
        "failed to get sandbox runtime: no runtime for \"nvidia\" is configured",
        "Back-off restarting failed container",
        "unable to ensure pod container exists: failed to create container: mkdir /sys/fs/cgroup: permission denied",
        "Unable to attach or mount volumes: unmounted volumes, unattached volumes: timed out waiting for the condition",
        "MountVolume.SetUp failed for volume: references non-existent secret key",
        "failed to sync secret cache: timed out waiting for the condition",
        "pull QPS exceeded",
        "insufficient memory to start the pod",
        "PostStartHook failed",
        "error killing pod: failed to stop container: context deadline exceeded",
        "cannot decrease memory limits",
        // containerd.
        "failed to extract layer: failed to convert whiteout file: operation not permitted: unknown",
        "failed to mount rootfs component: invalid argument: unknown",
        "failed to create shim task: failed to start shim: start failed: io.containerd.runc.v2: create new shim socket: listen unix: bind: address already in use: exit status 1",
        "failed to get imageFs info: failed to get imagefs stats",
        "failed to unpack image on snapshotter overlayfs: unexpected media type text/html",
        "failed to pull image: failed to copy: httpReadSeeker: failed open: content: not found",
        "error unpacking image: failed to extract layer: exit status 1: unpigz: skipping: corrupted: crc32 mismatch",
        "failed to reserve container name: name is reserved",
        "failed to generate container spec: failed to generate spec: path is mounted but it is not a shared mount",
        "failed to handle container TaskExit event: failed to stop container: ttrpc: closed",
        "failed to load cni during init, please check CRI plugin status before setting up network for pods",
        "failed to create containerd container: create snapshot: missing parent bucket: not found",
        "no match for platform in manifest: not found",
        "failed to start sandbox container task: the file system was remounted read-only",
        "failed to apply apparmor profile: profile not found",
        // CRI-O.
        "error creating pod sandbox: pinns: failed to create namespaces: exit status 1",
        "kubelet may be retrying requests that are timing out in CRI-O due to system load",
        "cannot set memory limit: minimum memory is 12MiB",
        "short-name resolution enforced but cannot prompt without a TTY",
        // runc and crun.
        "error during container init: error setting cgroup config for procHooks process: failed to write: device or resource busy",
        "error setting rlimit type 7: operation not permitted",
        "error adding seccomp filter rule for syscall: requested action matches default action of filter",
        "error during container init: unable to apply caps: operation not permitted",
        "read init-p: connection reset by peer",
        "crun: executable file not found: No such file or directory: OCI runtime attempted to invoke a command that was not found",
        "error mounting to rootfs: mount through procfd: not a directory: Are you trying to mount a directory onto a file (or vice-versa)?",
        "unable to find user: no matching entries in passwd file",
        "unable to find group: no matching entries in group file",
        "unable to setup user: unable to set groups: operation not permitted",
        "chdir to cwd set in config.json failed: permission denied",
        "error closing exec fds: get handle to fd dir: too many open files",
        "systemd not running on this host, cannot use systemd cgroups manager",
        "failed to write to cpuset.cpus: numerical result out of range",
        "bpf_prog_query failed: invalid argument",
        // CNI.
        "plugin type=\"flannel\" failed (add): loadFlannelSubnetEnv failed: open /run/flannel/subnet.env: no such file or directory",
        "plugin type=\"bridge\" failed (add): failed to set bridge addr: already has an IP address different from",
        "plugin type=\"host-local\" failed (add): failed to allocate for range 0: requested IP address is not available in range set",
        "plugin type=\"macvlan\" failed (add): failed to create macvlan: device or resource busy",
        "plugin type=\"portmap\" failed (add): unable to create chain: failed to list chains: running iptables: exit status 3",
        "plugin type=\"calico\" failed (add): stat /var/lib/calico/nodename: no such file or directory: check that the calico/node container is running and has mounted /var/lib/calico/",
        "plugin type=\"loopback\" failed (add): missing network name",
        "plugin type=\"cilium-cni\" failed (add): unable to connect to Cilium agent: Is the agent running?",
        "failed to find network info for sandbox",
        // The dynamic loader.
        "error while loading shared libraries: libssl.so.3: cannot open shared object file: No such file or directory",
        "version `GLIBC_2.38' not found (required by /lib/x86_64-linux-gnu/libstdc++.so.6)",
        "error while loading shared libraries: cannot apply additional memory protection after relocation: Permission denied",
        "symbol lookup error: undefined symbol",
        "cannot execute: required file not found",
    ];
    let hidden: Vec<_> = texts
        .iter()
        .map(|text| (text, shown(text)))
        .filter(|(text, shown)| shown != *text)
        .map(|(text, shown)| format!("{text}\n  {shown}"))
        .collect();
    assert!(
        hidden.is_empty(),
        "{} of {}:\n{}",
        hidden.len(),
        texts.len(),
        hidden.join("\n")
    );
}
