//! The options that a request adds to a mount (`Mount.mount_options`).
//!
//! The list is closed. Each option takes something from the container, so no order of options can give more than the request's other
//! fields do. OCI runtimes take an option that they do not know for data of the file system, which the kernel ignores for a bind mount: an
//! option that was let through could be lost without a word.

use super::error::SpecError;
use criscope_cri::v1;

/// The flags of a bind mount that every OCI runtime knows (OCI runtime specification 1.0, "Mounts").
const FLAGS: [&str; 3] = ["nodev", "noexec", "nosuid"];
/// The option of the OCI specification for a read-only mount.
const READ_ONLY: &str = "ro";

/// The options that a request adds to a mount.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AddedOptions {
    /// Flags for the OCI runtime, each once.
    pub(super) flags: Vec<&'static str>,
    /// Whether the mount is read-only even without `readonly`.
    pub(super) is_read_only: bool,
}

impl AddedOptions {
    /// # Errors
    /// [`SpecError::Invalid`] for an option that is not on the list, such as `exec`, `rw` or `noexec,nosuid`.
    pub(super) fn read(requested: &v1::Mount) -> Result<Self, SpecError> {
        let mut added = Self::default();
        for option in &requested.mount_options {
            if option == READ_ONLY {
                added.is_read_only = true;
            } else if let Some(flag) = FLAGS.into_iter().find(|flag| flag == option) {
                if !added.flags.contains(&flag) {
                    added.flags.push(flag);
                }
            } else {
                return Err(SpecError::Invalid(format!(
                    "mount at {}: mount option {option:?}: only {} and {READ_ONLY} can be added to a mount",
                    requested.container_path,
                    FLAGS.join(", "),
                )));
            }
        }
        Ok(added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[&str]) -> Result<AddedOptions, SpecError> {
        AddedOptions::read(&v1::Mount {
            container_path: "/data".to_owned(),
            mount_options: options.iter().map(|&option| option.to_owned()).collect(),
            ..Default::default()
        })
    }

    #[test]
    fn options_that_restrict_are_added_once() {
        let added = read(&["noexec", "nosuid", "noexec", "nodev"]).expect("known");
        assert_eq!(added.flags, ["noexec", "nosuid", "nodev"]);
        assert!(!added.is_read_only);
        let added = read(&["ro", "ro"]).expect("known");
        assert!(added.is_read_only && added.flags.is_empty());
        assert_eq!(read(&[]).expect("none"), AddedOptions::default());
    }

    #[test]
    fn any_other_option_is_refused_by_name() {
        for option in [
            "",
            "rw",
            "exec",
            "suid",
            "dev",
            "rro",
            "rnoexec",
            "NOEXEC",
            " noexec",
            "noexec,nosuid",
            "bind",
            "remount",
            "rshared",
            "idmap",
            "uid=0",
            "size=1m",
            "nosymfollow",
            "noatime",
        ] {
            let error = read(&["nosuid", option]).expect_err(option).to_string();
            let quoted = format!(
                "mount at /data: mount option {option:?}: only nodev, noexec, nosuid and ro"
            );
            assert!(error.contains(&quoted), "{error}");
        }
    }
}
