//! Support of the kernel and the OCI runtime for seccomp, SELinux and recursive read-only mounts.

use serde_json::Value;

use super::NodeError;
use super::files::Files;
use crate::oci::version::Version;

/// Major and minor number of the kernel.
pub(super) fn kernel(files: &Files) -> Result<(u32, u32), NodeError> {
    const PATH: &str = "proc/sys/kernel/osrelease";
    let release = files.need(PATH)?;
    numbers(&release).ok_or_else(|| NodeError::File {
        path: PATH,
        reason: format!("{release:?} is no version"),
    })
}

/// Parses the first two numbers of a version.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.splitn(3, '.').map(|part| {
        let end = part.find(|c: char| !c.is_ascii_digit());
        part[..end.unwrap_or(part.len())].parse().ok()
    });
    Some((parts.next()??, parts.next()??))
}

/// Returns whether the kernel supports seccomp filters and the OCI runtime was built with libseccomp.
pub(super) fn seccomp(files: &Files, features: Option<&Value>) -> bool {
    let kernel = files.exists("proc/sys/kernel/seccomp/actions_avail")
        || files
            .text("proc/self/status")
            .is_some_and(|status| status.lines().any(|line| line.starts_with("Seccomp:")));
    let enabled = features.and_then(|told| told.pointer("/linux/seccomp/enabled")?.as_bool());
    kernel && enabled.unwrap_or(true)
}

/// Returns whether SELinux is enabled, enforcing or permissive.
pub(super) fn selinux(files: &Files) -> bool {
    files.exists("sys/fs/selinux/enforce")
}

/// `mount_setattr` is available since Linux 5.12; the option `rro` since runc 1.1 and crun 1.4.
pub(super) fn recursive_read_only(
    kernel: (u32, u32),
    features: Option<&Value>,
    version: Option<&Version>,
) -> bool {
    let told = features.and_then(|told| told.get("mountOptions")?.as_array());
    let runtime = match (told, version) {
        (Some(options), _) => options.iter().any(|option| option == "rro"),
        (None, Some(version)) => {
            let number = numbers(&version.version);
            match version.name.as_str() {
                "runc" => number >= Some((1, 1)),
                "crun" => number >= Some((1, 4)),
                _ => false,
            }
        }
        (None, None) => false,
    };
    runtime && kernel >= (5, 12)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn versions_are_parsed_with_any_suffix() {
        for (text, numbers_of) in [
            ("6.18.44-fc-v657", Some((6, 18))),
            ("5.4-rc1", Some((5, 4))),
            ("6.1", Some((6, 1))),
            ("6", None),
            ("x.y", None),
        ] {
            assert_eq!(numbers(text), numbers_of, "{text}");
        }
    }

    #[test]
    fn recursive_read_only_needs_support_of_kernel_and_runtime() {
        let features = json!({"mountOptions": ["ro", "rro"]});
        let without = json!({"mountOptions": ["ro"]});
        let version = |name: &str, version: &str| Version {
            name: name.to_owned(),
            version: version.to_owned(),
            spec: "1.0.0".to_owned(),
        };
        let (old, new) = (version("crun", "1.3"), version("crun", "1.8.1"));
        for (kernel, features, version, expected) in [
            ((6, 1), Some(&features), None, true),
            ((5, 11), Some(&features), None, false),
            ((6, 1), Some(&without), Some(&new), false),
            ((6, 1), None, Some(&new), true),
            ((6, 1), None, Some(&old), false),
            ((6, 1), None, None, false),
        ] {
            assert_eq!(recursive_read_only(kernel, features, version), expected);
        }
    }

    #[test]
    fn seccomp_needs_a_runtime_built_with_it() {
        let dir = tempfile::tempdir().expect("dir");
        let proc = dir.path().join("proc/self");
        std::fs::create_dir_all(&proc).expect("dir");
        std::fs::write(proc.join("status"), "Seccomp:\t0\n").expect("write");
        let files = Files::new(dir.path());
        assert!(seccomp(&files, None));
        let told = json!({"linux": {"seccomp": {"enabled": false}}});
        assert!(!seccomp(&files, Some(&told)));
    }
}
