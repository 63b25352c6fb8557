//! Error texts of containers and sandboxes, as runtimes write them.

use super::texts::check;
use super::*;

#[test]
fn of_containers() {
    let start = pod("web").start(("app", 0), 0, 500);
    let not_there = "the image's PATH has no executable of that name";
    let not_there_or_interpreter = "its command, or its interpreter, is not in the image";
    let node = "a program of the node is missing";
    check(
        &start,
        "container app cannot be started",
        &[
            (
                Code::Unknown,
                "unable to start container process: exec: \"srv\": executable file not found in $PATH",
                not_there,
            ),
            (
                Code::Unknown,
                "exec: \"/srv\": stat /srv: no such file or directory",
                not_there_or_interpreter,
            ),
            (
                Code::Unknown,
                "executable file `srv` not found in $PATH",
                not_there,
            ),
            (
                Code::Unknown,
                "unable to retrieve OCI runtime error (open log.json: no such file or directory): exec: \"kata\": \
          executable file not found in $PATH",
                node,
            ),
            (
                Code::Unknown,
                "exec: \"runc\": executable file not found in $PATH",
                node,
            ),
            (
                Code::Unknown,
                "OCI runtime create failed: unable to retrieve OCI runtime error (open /run/x/log.json: no such file or directory): \
          /usr/sbin/runc did not terminate successfully: exit status 127: unknown",
                "the OCI runtime ended without saying why",
            ),
            (
                Code::Unknown,
                "error running prestart hook #0: fork/exec /usr/bin/gpu-hook: no such file or directory",
                node,
            ),
            (
                Code::Unknown,
                "error running prestart hook #0: exit status 1",
                "an OCI hook failed",
            ),
            (
                Code::Unknown,
                "exec: \"/srv\": permission denied",
                "its command may not be executed",
            ),
            (
                Code::Unknown,
                "exec /srv: exec format error",
                "its command is made for another architecture, or is no program",
            ),
            (
                Code::Unknown,
                "container init was OOM-killed (memory limit too low?)",
                "its memory limit is too low to start",
            ),
            (
                Code::Unknown,
                "fork/exec /usr/bin/runc: resource temporarily unavailable",
                "the limit of processes is reached",
            ),
            (
                Code::Unknown,
                "fork/exec /usr/bin/runc: cannot allocate memory",
                "no memory could be allocated",
            ),
            (
                Code::Unknown,
                "open /proc/self/fd: too many open files",
                "the limit of open files or inotify instances is reached",
            ),
            (
                Code::Unknown,
                "mkdir /sys/fs/cgroup/cpuset/kubepods: no space left on device",
                "a limit of the kernel is reached, no disk is full",
            ),
            (
                Code::Unknown,
                "failed to create inotify watch: no space left on device",
                "a limit of the kernel is reached, no disk is full",
            ),
            (
                Code::Unknown,
                "error mounting \"/data\" to rootfs at \"/data\": not a directory",
                "a mount failed",
            ),
            (
                Code::Unknown,
                "reference \"[overlay@/var/lib/containers/storage]r.io/app:1\" does not resolve to an image ID",
                "its image is not on this node",
            ),
            (
                Code::Unknown,
                "error mounting \"/data\" to rootfs: stale NFS file handle",
                "a network or FUSE file system is not connected",
            ),
            (
                Code::Unknown,
                "write /sys/fs/cgroup/kubepods/cgroup.procs: device or resource busy",
                "",
            ),
            (Code::Unknown, "ttrpc: closed", "the pod's shim has ended"),
        ],
    );
    let create = pod("web").create(("app", 0), 0, 500);
    check(
        &create,
        "container app cannot be created",
        &[
            (
                Code::NotFound,
                "failed to find sandbox id \"0a\"",
                "its sandbox does not exist any more",
            ),
            (
                Code::FailedPrecondition,
                "sandbox container \"0a\" is not running",
                "its sandbox has ended",
            ),
            (
                Code::Unknown,
                "unable to find user app: no matching entries in passwd file",
                "the image does not have its user or group",
            ),
            (
                Code::NotFound,
                "failed to get image from containerd \"sha256:0a\": not found",
                "its image is not on this node",
            ),
            (
                Code::Unknown,
                "failed to generate spec: failed to stat \"/host/data\": no such file or directory",
                "a mount failed",
            ),
            (
                Code::Unknown,
                "CDI device injection failed: unresolvable CDI devices vendor.com/gpu=0",
                "its CDI device is not known",
            ),
        ],
    );
}

#[test]
fn of_sandboxes() {
    let run = pod("web").run(0, 500);
    let add = |plugin: &str| format!("network: the CNI plugin {plugin} fails");
    let of = |operation: &str, code, text, words| check(&run, operation, &[(code, text, words)]);
    of(
        &add("bridge"),
        Code::Unknown,
        "failed to setup network for sandbox \"0a\": plugin type=\"bridge\" failed (add): no IP addresses available in range set",
        "no addresses are left",
    );
    // Of plugins that call each other the innermost.
    of(
        &add("cilium-cni"),
        Code::Unknown,
        "plugin type=\"multus\" name=\"net\" failed (add): error adding container: plugin type=\"cilium-cni\" failed (add): no route",
        "",
    );
    // CRI-O.
    of(
        &add("bridge"),
        Code::Unknown,
        "failed to create pod network sandbox k8s_web_shop_u_0(0a): error adding pod shop_web to CNI network \"crio\": \
         plugin type=\"bridge\" failed (add): failed to set bridge addr",
        "",
    );
    of(
        &add("flannel"),
        Code::Unknown,
        "failed to find plugin \"flannel\" in path [/opt/cni/bin]",
        "the program is not installed",
    );
    // The built-in runtime.
    of(
        &add("tuning"),
        Code::Unknown,
        "network: CNI plugin tuning ADD: no such setting",
        "",
    );
    of(
        &add("cilium-cni"),
        Code::Unknown,
        "network: CNI plugin cilium-cni was not found in /opt/cni/bin",
        "the program is not installed",
    );
    of(
        &add("slow"),
        Code::Unknown,
        "network: CNI plugin slow ADD was killed: timed out after 2000 ms",
        "it was killed",
    );
    of(
        &add("tuning"),
        Code::Unknown,
        "network: CNI plugin tuning ADD: no such setting; the rollback failed as well: CNI plugin bridge DEL: busy",
        "",
    );
    let network = "network: it cannot be set up";
    of(
        network,
        Code::Unavailable,
        "network: no network is ready: /etc/cni/net.d is empty",
        "no CNI configuration is loaded",
    );
    of(
        network,
        Code::Unknown,
        "failed to setup network for sandbox \"0a\": cni plugin not initialized",
        "no CNI configuration is loaded",
    );
    of(
        network,
        Code::Unknown,
        "failed to setup network for sandbox \"0a\": something else",
        "",
    );
    let made = "the sandbox cannot be made";
    let image = "the sandbox cannot be made, its pause image cannot be pulled";
    of(
        image,
        Code::Unknown,
        "failed to get sandbox image \"r.io/pause:3\": failed to pull image: dial tcp 10.0.0.1:443: connect: network is unreachable",
        "no route to the registry",
    );
    of(
        made,
        Code::Unknown,
        "failed to get sandbox runtime: no runtime for \"kata\" is configured",
        "the runtime has no such runtime handler",
    );
    of(
        made,
        Code::NotFound,
        "there is no runtime handler \"kata\"; there are: runc",
        "the runtime has no such runtime handler",
    );
    // gVisor has a network stack of its own.
    of(
        made,
        Code::Internal,
        "OCI runtime: OCI runtime start failed: starting container: setting up network: creating interfaces: no such device",
        "",
    );
    of(
        made,
        Code::Unknown,
        "failed to create containerd task: fork/exec /usr/bin/shim: no such file or directory",
        "a program of the node is missing",
    );
    of(
        made,
        Code::Unknown,
        "failed to create network namespace: permission denied",
        "",
    );
    let stop = pod("web").stop(0, 500);
    check(
        &stop,
        "network: the CNI plugin calico cannot take it down",
        &[
            (
                Code::Unknown,
                "failed to destroy network for sandbox \"0a\": plugin type=\"calico\" failed (delete): unauthorized",
                "",
            ),
            (
                Code::Unknown,
                "network: CNI plugin calico DEL: unauthorized",
                "",
            ),
        ],
    );
    check(
        &stop,
        "the sandbox cannot be stopped",
        &[(
            Code::Unknown,
            "failed to kill container: device or resource busy",
            "",
        )],
    );
}
