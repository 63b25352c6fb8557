//! Validation of strings that pod authors control.
//!
//! Strings of a request become parts of paths, mount options, environment variables, files and arguments of other programs. Each
//! kind has one rule, which is safe for all its uses: a string that any of them could take for more than one value is refused.
//! The kubelet and the API server already refuse most of them; other callers do not.
//!
//! Environment, arguments, devices, resources and security options are checked where the specification is built (`oci/spec`).

use std::path::{Component, Path};

use super::error::{Error, Result};
use super::oci::spec::{check_cgroup_parent, check_selinux_options};
use criscope_cri::v1::{ContainerConfig, DnsConfig, Mount, PodSandboxConfig};

/// The kernel's limit on host names (`__NEW_UTS_LEN`), in bytes.
const HOST_NAME: usize = 64;
/// The maximum length of names of Kubernetes objects, in bytes.
const NAME: usize = 253;

/// Checks the configuration of a pod.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
pub(super) fn sandbox(config: &PodSandboxConfig) -> Result<()> {
    let metadata = config.metadata.clone().unwrap_or_default();
    name("pod name", &metadata.name)?;
    name("pod namespace", &metadata.namespace)?;
    name("pod uid", &metadata.uid)?;
    host_name(&config.hostname)?;
    if !config.log_directory.is_empty() {
        absolute("log directory", &config.log_directory)?;
    }
    config.dns_config.as_ref().map_or(Ok(()), dns)?;
    for mapping in &config.port_mappings {
        let address = &mapping.host_ip;
        if !address.is_empty() && address.parse::<std::net::IpAddr>().is_err() {
            return invalid("host address of a port", "no IP address");
        }
    }
    let Some(linux) = &config.linux else {
        return Ok(());
    };
    check_cgroup_parent(&linux.cgroup_parent)?;
    for (key, value) in &linux.sysctls {
        plain("sysctl", key)?;
        plain("sysctl", value)?;
    }
    let context = linux.security_context.as_ref();
    let selinux = context.and_then(|context| context.selinux_options.as_ref());
    Ok(check_selinux_options(selinux)?)
}

/// Checks the configuration of a container.
///
/// # Errors
/// [`Error::Invalid`], naming the field.
pub(super) fn container(config: &ContainerConfig) -> Result<()> {
    let metadata = config.metadata.clone().unwrap_or_default();
    name("container name", &metadata.name)?;
    if !config.log_path.is_empty() {
        plain("log path", &config.log_path)?;
        if !below(Path::new(&config.log_path)) {
            return invalid("log path", "not a path below the log directory of the pod");
        }
    }
    config.mounts.iter().try_for_each(mount)?;
    let Some(context) = config.security_context() else {
        return Ok(());
    };
    for path in context.masked_paths.iter().chain(&context.readonly_paths) {
        absolute("masked or read-only path", path)?;
    }
    Ok(check_selinux_options(context.selinux_options.as_ref())?)
}

fn mount(mount: &Mount) -> Result<()> {
    // `..` is allowed: the path is normalised inside the container.
    plain("mount at a container path", &mount.container_path)?;
    match mount.host_path.as_str() {
        "" => Ok(()),
        path => absolute("mount from a host path", path),
    }
}

/// Checks the lines of a resolv.conf(5): words separated by blanks.
fn dns(dns: &DnsConfig) -> Result<()> {
    let lists = [
        ("DNS search domain", &dns.searches),
        ("DNS server", &dns.servers),
        ("DNS option", &dns.options),
    ];
    for (what, list) in lists {
        for value in list {
            plain(what, value)?;
            if value.contains(char::is_whitespace) {
                return invalid(what, "more than one word");
            }
        }
    }
    Ok(())
}

/// Checks a host name, for the kernel, `/etc/hostname` and the variable `HOSTNAME`; may be empty.
fn host_name(value: &str) -> Result<()> {
    let is_host_name = value.len() <= HOST_NAME
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
    if !is_host_name {
        return invalid("host name", "not a host name of up to 64 bytes");
    }
    Ok(())
}

/// Checks a name of an object: part of log lines, annotations and `CNI_ARGS`.
fn name(what: &str, value: &str) -> Result<()> {
    plain(what, value)?;
    // `;` and `=` have a meaning in CNI_ARGS, which DEL receives as well: such a pod could not be removed either.
    if value.len() > NAME || value.contains(['/', ';', '=']) {
        return invalid(
            what,
            "not a name of up to 253 bytes without `/`, `;` and `=`",
        );
    }
    Ok(())
}

/// Checks for an absolute path without `..`.
fn absolute(what: &str, value: &str) -> Result<()> {
    plain(what, value)?;
    let path = Path::new(value);
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return invalid(what, "not an absolute path without `..`");
    }
    Ok(())
}

/// Returns whether a relative path names something below its parent.
fn below(path: &Path) -> bool {
    // `.` alone is the parent itself.
    path.file_name().is_some()
        && path
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Checks for a string without control characters, which a terminal, a mount table or a C string would interpret.
fn plain(what: &str, value: &str) -> Result<()> {
    if value.contains(char::is_control) {
        return invalid(what, "it has control characters");
    }
    Ok(())
}

/// The error omits the value, which may be long and which the author knows.
fn invalid<T>(what: &str, why: &str) -> Result<T> {
    Err(Error::invalid(format!("{what}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use criscope_cri::v1::{ContainerMetadata, LinuxPodSandboxConfig, PodSandboxMetadata};

    #[test]
    fn configurations_of_the_kubelet_are_accepted() {
        let pod = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: "web-0".to_owned(),
                namespace: "shop".to_owned(),
                uid: "b0e4c6a2-9f0c-4f0e-8d7e-0a4b8a6f2c11".to_owned(),
                attempt: 1,
            }),
            hostname: "web-0.shop_a".to_owned(),
            log_directory: "/var/log/pods/shop_web-0_b0e4".to_owned(),
            dns_config: Some(DnsConfig {
                servers: vec!["fe80::1%eth0".to_owned()],
                searches: vec!["shop.svc.cluster.local".to_owned(), ".".to_owned()],
                options: vec!["ndots:5".to_owned()],
            }),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: "/kubepods.slice/kubepods-podb0e4_c6a2.slice".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        };
        sandbox(&pod).expect("accepted");
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: "app".to_owned(),
                attempt: 0,
            }),
            log_path: "app/0.log".to_owned(),
            mounts: vec![Mount {
                container_path: "/with space/..data/../x".to_owned(),
                host_path: "/var/lib/kubelet/pods/b0e4/volumes/a..b".to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        };
        container(&config).expect("accepted");
    }

    #[test]
    fn paths_that_lead_outside_are_rejected() {
        for (path, expected) in [
            ("app/0.log", true),
            ("./app.log", true),
            ("../app.log", false),
            ("app/../../x", false),
            ("/app.log", false),
            (".", false),
        ] {
            assert_eq!(below(Path::new(path)), expected, "{path}");
        }
        for path in ["relative", "/a/../b", "/a\nb", "/a\0b"] {
            assert!(absolute("path", path).is_err(), "{path:?}");
        }
    }
}
