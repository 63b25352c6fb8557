//! AppArmor: detection, and the profile behind `RuntimeDefault`.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use super::files::Files;

/// Name of the runtime's default profile.
pub const DEFAULT_PROFILE: &str = "criscope-default";

/// Paths of the profile loader in distributions, below the root.
const PARSERS: &[&str] = &["sbin/apparmor_parser", "usr/sbin/apparmor_parser"];
/// The loaded profiles: one name and mode in brackets per line.
const LOADED: &str = "sys/kernel/security/apparmor/profiles";

/// Why a profile cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("apparmor_parser: {0}")]
    Start(#[from] io::Error),
    #[error("apparmor_parser: {0}")]
    Refused(String),
    #[error("no profile of this name is loaded")]
    NotLoaded,
}

/// Returns whether the kernel enforces AppArmor and the profile loader is installed.
pub(super) fn is_on(files: &Files) -> bool {
    files.exists("sys/kernel/security/apparmor")
        && files
            .text("sys/module/apparmor/parameters/enabled")
            .is_some_and(|enabled| enabled.starts_with('Y'))
        && parser(files).is_some()
}

fn parser(files: &Files) -> Option<&'static str> {
    PARSERS.iter().copied().find(|path| files.exists(path))
}

/// Returns the profile for `RuntimeDefault`: the configured one if it is loaded, otherwise the built-in one, which is loaded
/// if necessary.
///
/// # Errors
/// The reason why the profile is unavailable, which is also logged as a warning: containers that request it are refused,
/// others run without one.
pub(super) fn usable(files: &Files, named: Option<&str>) -> Result<String, String> {
    let wanted = named.unwrap_or(DEFAULT_PROFILE);
    let had = match named {
        Some(name) if !is_loaded(files, name) => Err(Error::NotLoaded),
        Some(_) => Ok(()),
        None => ensure_default(files),
    };
    if let Err(error) = &had {
        tracing::warn!(
            target: "criscope::runtime::node::apparmor",
            event = "runtime.apparmor",
            profile = wanted,
            error.message = %error,
            "the default AppArmor profile cannot be loaded: containers that request it are refused, those without a profile run unconfined"
        );
    }
    had.map(|()| wanted.to_owned())
        .map_err(|error| error.to_string())
}

/// Loads the default profile unless it is loaded.
pub(super) fn ensure_default(files: &Files) -> Result<(), Error> {
    if is_loaded(files, DEFAULT_PROFILE) {
        return Ok(());
    }
    let parser = parser(files).ok_or_else(|| Error::Refused("it is not installed".to_owned()))?;
    load(&files.path(parser), &profile(files))
}

fn is_loaded(files: &Files, name: &str) -> bool {
    let loaded = files.text(LOADED).unwrap_or_default();
    loaded.lines().any(|line| {
        line.rsplit_once(" (")
            .is_some_and(|(first, _)| first == name)
    })
}

/// `-K` and `-r`: writes no cache to disk, and replaces a profile of this name loaded in the meantime.
fn load(parser: &Path, profile: &str) -> Result<(), Error> {
    let mut child = Command::new(parser)
        .args(["-K", "-r"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    // A profile fits into a pipe buffer, so this write does not block.
    let written = child
        .stdin
        .take()
        .map(|mut to| to.write_all(profile.as_bytes()));
    let done = child.wait_with_output()?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let line = said.lines().next().unwrap_or("it failed without a word");
        return Err(Error::Refused(line.chars().take(300).collect()));
    }
    written.transpose()?;
    Ok(())
}

/// The default profile: files, network and capabilities as granted to the container, but no mounts, no kernel settings, no
/// access to other processes, and signals only from the OCI runtime and containers with the same profile.
fn profile(files: &Files) -> String {
    let mut text = String::new();
    if files.exists("etc/apparmor.d/tunables/global") {
        text += "#include <tunables/global>\n";
    } else {
        text += "@{PROC}=/proc/\n";
    }
    text += &format!("profile {DEFAULT_PROFILE} flags=(attach_disconnected,mediate_deleted) {{\n");
    if files.exists("etc/apparmor.d/abstractions/base") {
        text += "  #include <abstractions/base>\n";
    }
    text += RULES;
    text += &format!("  signal (send,receive) peer={DEFAULT_PROFILE},\n");
    text += &format!("  ptrace (trace,read,tracedby,readby) peer={DEFAULT_PROFILE},\n}}\n");
    text
}

const RULES: &str = "  capability,
  file,
  network,
  deny network alg,
  umount,
  deny mount,
  deny @{PROC}/{acpi,bus,fs,irq,scsi,tty}/** wklx,
  deny @{PROC}/{kcore,keys,kmsg,sysrq-trigger,timer_list,latency_stats} rwklx,
  deny @{PROC}/sys/{abi,debug,dev,fs,user,vm}/** wklx,
  deny @{PROC}/sys/kernel/{[^s],s[^eh],se[^m]}** wklx,
  deny /sys/[^f]** wklx,
  deny /sys/f[^s]** wklx,
  deny /sys/fs/[^c]** wklx,
  deny /sys/fs/c[^g]** wklx,
  deny /sys/firmware/** rwklx,
  deny /sys/devices/virtual/powercap/** rwklx,
  deny /sys/kernel/security/** rwklx,
  signal (receive) peer=unconfined,
  signal (receive) peer=runc,
  signal (receive) peer=crun,
";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Writes a program, through a separate process: a child of another test would inherit the descriptor, and an executable
    /// that is open for writing cannot be started.
    fn install(path: &Path, text: &str) {
        let mut child = Command::new("install")
            .args(["-m755", "/dev/stdin"])
            .arg(path)
            .stdin(Stdio::piped())
            .spawn()
            .expect("install");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(text.as_bytes()).expect("written");
        drop(stdin);
        assert!(child.wait().expect("ends").success());
    }

    /// A machine with AppArmor, whose profile loader stores its input.
    fn machine(script: &str) -> (tempfile::TempDir, Files) {
        let dir = tempfile::tempdir().expect("dir");
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("below")).expect("dir");
            fs::write(path, text).expect("write");
        };
        put("sys/module/apparmor/parameters/enabled", "Y\n");
        put(
            LOADED,
            "docker-default (enforce)\ncriscope-default-2 (enforce)\n",
        );
        let file = dir.path().join("seen").display().to_string();
        let parser = dir.path().join(PARSERS[1]);
        fs::create_dir_all(parser.parent().expect("below")).expect("dir");
        install(
            &parser,
            &format!("#!/bin/sh\n{}\n", script.replace("SEEN", &file)),
        );
        let files = Files::new(dir.path());
        (dir, files)
    }

    #[test]
    fn the_default_profile_is_loaded_unless_it_is() {
        let (dir, files) = machine("echo \"$@\" > SEEN; cat >> SEEN");
        assert!(is_on(&files));
        assert!(!is_loaded(&files, DEFAULT_PROFILE));
        ensure_default(&files).expect("loaded");
        let seen = fs::read_to_string(dir.path().join("seen")).expect("called");
        assert!(
            seen.starts_with("-K -r\n@{PROC}=/proc/\nprofile criscope-default flags="),
            "{seen}"
        );
        assert!(
            seen.ends_with("}\n") && seen.contains("  deny mount,\n"),
            "{seen}"
        );
        // A loaded profile is not loaded again.
        fs::remove_file(dir.path().join("seen")).expect("present");
        fs::write(dir.path().join(LOADED), "criscope-default (enforce)\n").expect("write");
        ensure_default(&files).expect("present");
        assert!(!dir.path().join("seen").exists());
    }

    #[test]
    fn runtime_default_is_the_configured_profile_if_loaded() {
        let (dir, files) = machine("cat > SEEN");
        let found = usable(&files, Some("docker-default"));
        assert_eq!(found.as_deref(), Ok("docker-default"));
        assert_eq!(
            usable(&files, Some("docker")).expect_err("not loaded"),
            "no profile of this name is loaded"
        );
        assert!(
            !dir.path().join("seen").exists(),
            "the built-in profile is not loaded"
        );
        assert_eq!(usable(&files, None).as_deref(), Ok(DEFAULT_PROFILE));
        assert!(dir.path().join("seen").exists());
    }

    #[test]
    fn a_failed_load_is_reported_in_one_line() {
        let (_dir, files) =
            machine("cat > /dev/null; printf 'no such feature\\nmore\\n' >&2; exit 1");
        let error = ensure_default(&files).expect_err("refused").to_string();
        assert_eq!(error, "apparmor_parser: no such feature");
        assert_eq!(usable(&files, None), Err(error));
    }

    #[test]
    fn apparmor_is_off_without_the_loader_or_the_module() {
        let (dir, files) = machine("");
        fs::write(
            dir.path().join("sys/module/apparmor/parameters/enabled"),
            "N\n",
        )
        .expect("write");
        assert!(!is_on(&files));
        let (dir, files) = machine("");
        fs::remove_file(dir.path().join(PARSERS[1])).expect("present");
        assert!(!is_on(&files));
    }
}
