//! Error texts of OCI runtimes about the kernel, systemd and security modules, as containerd passes them on.

use super::texts::check;
use super::*;

/// What they wrote, and the words of the class.
const TEXTS: &[(&str, &str)] = &[
    (
        "runc create failed: unable to start container process: error during container init: unable to apply apparmor profile: apparmor failed to apply profile: write /proc/self/attr/apparmor/exec: no such file or directory",
        "its AppArmor profile is not loaded",
    ),
    (
        "runc create failed: unable to start container process: error during container init: unable to apply apparmor profile: apparmor failed to apply profile: write fsmount:fscontext:proc/thread-self/attr/apparmor/exec: no such file or directory",
        "its AppArmor profile is not loaded",
    ),
    (
        "sd-bus call: Transport endpoint is not connected: Transport endpoint is not connected",
        "systemd did not make its cgroup",
    ),
    (
        "runc create failed: unable to start container process: unable to apply cgroup configuration: unable to start unit \"cri-containerd-0f2e8d7c.scope\" (properties [{Name:Description Value:\"libcontainer container 0f2e8d7c\"} {Name:Slice Value:\"kubepods-besteffort.slice\"} {Name:Delegate Value:true} {Name:PIDs Value:@au [71234]} {Name:MemoryAccounting Value:true} {Name:CPUAccounting Value:true} {Name:IOAccounting Value:true} {Name:TasksAccounting Value:true} {Name:DefaultDependencies Value:false}]): Unit cri-containerd-0f2e8d7c.scope already exists.",
        "systemd did not make its cgroup",
    ),
    (
        "runc create failed: unable to start container process: unable to apply cgroup configuration: unable to start unit \"cri-containerd-0f2e8d7c.scope\": Message recipient disconnected from message bus without replying",
        "systemd did not make its cgroup",
    ),
    (
        "runc create failed: unable to start container process: unable to apply cgroup configuration: dial unix /run/systemd/private: connect: no such file or directory",
        "systemd did not make its cgroup",
    ),
    (
        "runc create failed: unable to start container process: unable to apply cgroup configuration: failed to write 71234: openat2 /sys/fs/cgroup/kubepods/burstable/pod0b5e/0f2e/cgroup.procs: no such file or directory",
        "its cgroup, or a controller of it, is not there",
    ),
    (
        "runc create failed: unable to start container process: waiting for init preliminary setup: read init-p: connection reset by peer",
        "it ended before its command ran, as when memory runs out or a seccomp profile forbids too much",
    ),
    (
        "runc create failed: unable to start container process: can't get final child's PID from pipe: EOF",
        "it ended before its command ran, as when memory runs out or a seccomp profile forbids too much",
    ),
    (
        "runc create failed: unable to start container process: error during container init: open /proc/sys/net/ipv4/vs/conn_reuse_mode: no such file or directory",
        "the kernel has no such sysctl here, or its module is not loaded",
    ),
    (
        "runc create failed: sysctl \"vm.max_map_count\" is not in a separate kernel namespace",
        "",
    ),
    (
        "executable file `/srv/app` not found: No such file or directory",
        "its command is not in the image",
    ),
    (
        "chdir to `/srv/none`: No such file or directory",
        "its working directory cannot be entered",
    ),
    (
        "runc create failed: unable to start container process: error during container init: chdir to cwd (\"/root\") set in config.json failed: permission denied",
        "its working directory cannot be entered",
    ),
    (
        "runc create failed: unable to start container process: error during container init: unable to join session keyring: unable to create session key: disk quota exceeded",
        "the kernel's quota of keys is used up",
    ),
    (
        "runc create failed: unable to start container process: error during container init: write /proc/self/attr/keycreate: permission denied",
        "its SELinux label is not accepted",
    ),
    (
        "runc create failed: unable to start container process: error during container init: unable to set process label: write /proc/thread-self/attr/exec: invalid argument",
        "its SELinux label is not accepted",
    ),
    (
        "runc create failed: unable to start container process: error during container init: error setting rlimits for ready process: error setting rlimit type 7: operation not permitted",
        "a limit of its processes (ulimit) is above what the runtime may set",
    ),
    (
        "runc create failed: unable to start container process: error during container init: error mounting \"/var/lib/lxcfs/proc/meminfo\" to rootfs at \"/proc/meminfo\": mount /var/lib/lxcfs/proc/meminfo:/proc/meminfo (via /proc/self/fd/6), flags: 0x1000: transport endpoint is not connected",
        "a network or FUSE file system is not connected",
    ),
    (
        "runc create failed: unable to start container process: unable to apply cgroup configuration: failed to write 100000: write /sys/fs/cgroup/cpu,cpuacct/kubepods/pod0b5e/0f2e/cpu.cfs_quota_us: invalid argument",
        "the kernel does not accept a limit of its resources",
    ),
    (
        "runc create failed: unable to start container process: unable to apply cgroup configuration: failed to write \"0-3\": write /sys/fs/cgroup/cpuset/kubepods/pod0b5e/0f2e/cpuset.cpus: permission denied",
        "the kernel does not accept a limit of its resources",
    ),
    (
        "runc create failed: unable to start container process: open /dev/ptmx: no space left on device",
        "a limit of the kernel is reached, no disk is full",
    ),
    (
        "runc create failed: unable to start container process: error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory",
        "an OCI hook failed",
    ),
    (
        "runc create failed: unable to start container process: error during container init: error running hook #0: fork/exec /usr/bin/nvidia-container-runtime-hook: no such file or directory",
        "a program of the node is missing",
    ),
    (
        "runc create failed: unable to start container process: error during container init: error mounting \"/var/lib/kubelet/subpaths/0\" to rootfs at \"/etc/app\": mount /var/lib/kubelet/subpaths/0:/etc/app (via /proc/self/fd/6), flags: 0x5001: not a directory: Are you trying to mount a directory onto a file (or vice-versa)? Check if the specified host path exists and is the expected type",
        "a mount failed",
    ),
    (
        "runc create failed: unable to start container process: unable to apply cgroup configuration: unable to set devices: unable to load eBPF program: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted",
        "",
    ),
    (
        "Failed to check if grpc server is working: rpc error: code = DeadlineExceeded desc = timed out connecting to vsock 1234:1024",
        "",
    ),
    (
        "runc create failed: unable to start container process: failed to set MOUNT_ATTR_IDMAP on /var/lib/kubelet/pods/0b5e/volumes/x: invalid argument (maybe the filesystem used doesn't support idmap mounts on this kernel?)",
        "",
    ),
    (
        "runc create failed: unable to start container process: error during container init: unable to apply apparmor profile: apparmor failed to apply profile: write /proc/self/attr/exec: permission denied",
        "its AppArmor profile cannot be applied",
    ),
    (
        "exec container process (missing dynamic library?) `/srv/app`: No such file or directory",
        "its command, or its interpreter, is not in the image",
    ),
    (
        "exec container process `/srv/app`: Permission denied",
        "its command may not be executed",
    ),
    (
        "runc create failed: unable to start container process: error during container init: unable to set memory limit to 4096 (current usage: 450560, peak usage: 471040)",
        "its memory limit is too low to start",
    ),
];

#[test]
fn of_oci_runtimes() {
    let start = pod("web").start(("app", 0), 0, 500);
    for (text, words) in TEXTS {
        let text = format!(
            "failed to create containerd task: failed to create shim task: OCI runtime create failed: {text}: unknown"
        );
        check(
            &start,
            "container app cannot be started",
            &[(Code::Unknown, &text, words)],
        );
    }
}

/// containerd runs no command of a container: what it does not find is missing on the node.
#[test]
fn of_containerd_itself() {
    let cases = [
        (
            Code::Unknown,
            "failed to create containerd container: get apparmor_parser version: exec: \"apparmor_parser\": executable file not found in $PATH",
            "a program of the node is missing",
        ),
        (
            Code::NotFound,
            "failed to get sandbox container task: no running task found: task 0a not found: not found",
            "its sandbox has ended",
        ),
        (
            Code::NotFound,
            "failed to create containerd container: error unpacking image: failed to extract layer sha256:0a: failed to get reader from content store: content digest sha256:1b: not found",
            "the runtime's image store has lost a part of the image",
        ),
        (
            Code::Unknown,
            "creating container storage: layer not known",
            "the runtime's image store has lost a part of the image",
        ),
    ];
    let create = pod("web").create(("app", 0), 0, 500);
    check(&create, "container app cannot be created", &cases);
}
