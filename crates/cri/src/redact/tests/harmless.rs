//! Paths, devices and numbers that runtimes, plugins and the kernel name, and what only resembles them.

use super::{HIDDEN, shown};

/// Nothing of these is a user's.
#[test]
fn what_runtimes_name_stays_readable() {
    for text in [
        "exec: \"/srv/run\": stat /srv/run: no such file or directory",
        "exec /usr/sbin/init: exec format error",
        "lstat /lib64: no such file or directory",
        "CDI device injection failed: unresolvable CDI devices vendor.com/gpu=0, nvidia.com/gpu=all",
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.2, please update your driver",
        "error mounting \"sysfs\" to rootfs at \"/sys\": mount src=sysfs, dst=/sys, dstFd=/proc/thread-self/fd/8, \
         flags=MS_RDONLY|MS_NOSUID|MS_NODEV|MS_NOEXEC: operation not permitted",
        "mount src=tmpfs, dst=/dev/shm, flags=0x200000, data=mode=1777,size=65536k: invalid argument",
        "invalid mount data \"mode=755,uid=0,gid=5\"",
        "cannot set the link: mtu=1450: invalid argument",
        "openat2 /sys/fs/cgroup/memory.max: no such file or directory",
        "open /var/run/secrets/kubernetes.io/serviceaccount: permission denied",
        "requests of 64Mi and limits of 128k do not fit",
    ] {
        assert_eq!(shown(text), text);
    }
}

/// The value of a variable, a flag or a credential, whatever resembles a device, a mount option or a condition.
#[test]
fn what_resembles_them_is_hidden() {
    for (text, want) in [
        ("vendor.com/token=1234", "vendor.com/token=<redacted>"),
        (
            "https://vendor.com/gpu=1234",
            "https://vendor.com/gpu=<redacted>",
        ),
        ("vendor.com/gpu=hunter2", "vendor.com/gpu=<redacted>"),
        ("/srv/hunter2", "/srv/<redacted>"),
        ("run --mode=1234 now", "run --mode=<redacted> now"),
        ("FILE_MODE=1234", "FILE_MODE=<redacted>"),
        ("pin.mode=1234", HIDDEN),
        ("mode=12345678", "mode=<redacted>"),
        ("\"mode\"=\"1234\"", "\"mode\"=\"<redacted>\""),
        ("code=1234", "code=<redacted>"),
        ("uid=10.0.0.1", "uid=<redacted>"),
        (
            "got 0x68756e746572 from server",
            "got <redacted> from server",
        ),
        ("limit 6k5g4k", "limit <redacted>"),
    ] {
        assert_eq!(shown(text), want);
    }
}

/// The bytes of a value, as Go writes them.
#[test]
fn a_series_of_bytes_is_hidden_after_the_first() {
    let bytes: Vec<_> = "hunter2".bytes().map(|b| format!("{b:#x}")).collect();
    let got = shown(&format!("[]byte{{{}}}", bytes.join(", ")));
    assert!(!got.contains("0x74"), "{got}");
    assert!(got.contains(HIDDEN), "{got}");
}
