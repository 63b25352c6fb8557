//! Checks the built-in runtime: the programs and networks it needs.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::unistd::geteuid;
use serde_json::Value;

use super::super::output::ReportFinding;
use super::classes;
use super::criu;
use super::hook_environment;
use super::hooks;
use super::images;
use super::oci_faults;
use super::oci_runtimes::oci_runtimes;
use super::trial::{self, TrialContainer};
use crate::config::{CgroupDriver, Cni, Misfit, Runtime};
use crate::units;

const TOPIC: &str = "runtime";

/// Where cgroups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Exists if cgroups are v2 only.
const CGROUP_V2: &str = "/sys/fs/cgroup/cgroup.controllers";

/// Suffixes of files in `conf_dir` (CNI specification).
const NETWORK_ENDINGS: [&str; 3] = ["conf", "conflist", "json"];

pub(super) fn check(runtime: &Runtime) -> Vec<ReportFinding> {
    let search = env::var_os("PATH").unwrap_or_default();
    let own = env::current_exe().unwrap_or_default();
    let is_root = geteuid().is_root();
    let mut findings = handlers(runtime, &search);
    if is_root {
        findings.extend(trials(runtime, &search));
    }
    findings.extend(privilege(is_root));
    findings.push(shim(runtime, &own, &search));
    findings.extend(networks(&runtime.cni));
    findings.extend(hooks::check(&runtime.pods.hooks_dir));
    let runtimes = oci_runtimes(runtime, &search);
    findings.extend(hook_environment::check(&runtimes));
    findings.extend(oci_faults::check(&runtimes));
    let pods = &runtime.pods;
    let (blockio, rdt) = (&pods.blockio_config_file, &pods.rdt_config_file);
    findings.extend(classes::check(blockio.as_deref(), rdt.as_deref()));
    findings.extend(images::check(runtime));
    findings.extend(criu::check(runtime, &search, is_root));
    findings
}

/// The runtime mounts, creates namespaces and cgroups.
fn privilege(is_root: bool) -> Option<ReportFinding> {
    (!is_root).then(|| {
        ReportFinding::warn(TOPIC, "it needs root; this is another user")
            .hint("run criscope as root, or with the systemd unit; run the doctor as root too, to see everything")
    })
}

fn handlers(runtime: &Runtime, search: &OsStr) -> Vec<ReportFinding> {
    let found = match runtime.handler_programs(search) {
        Ok(found) => found,
        Err(error) => return vec![ReportFinding::fail(TOPIC, error.to_string())],
    };
    let words: Vec<_> = found
        .handlers
        .iter()
        .map(|(handler, program)| {
            let default = if handler.name == found.default {
                ", default"
            } else {
                ""
            };
            format!("{} ({}{default})", handler.name, program.display())
        })
        .collect();
    let ok = ReportFinding::ok(TOPIC, format!("handlers: {}", words.join(", ")));
    let missing = found.missing.iter();
    let missing = missing.map(|error| ReportFinding::warn(TOPIC, error.to_string()));
    std::iter::once(ok)
        .chain(missing)
        .chain(misfits(runtime))
        .chain(without_cgroup_v2(runtime, Path::new(CGROUP_V2)))
        .collect()
}

/// Handlers whose program is not called like runc.
fn misfits(runtime: &Runtime) -> impl Iterator<Item = ReportFinding> {
    runtime.handlers.iter().filter_map(|handler| {
        let program = handler.program().display();
        let text = format!("handler {}: {program} {}", handler.name, handler.misfit()?);
        Some(ReportFinding::warn(TOPIC, text).hint(Misfit::HINT))
    })
}

/// Handlers with writable cgroups where cgroups are v1, with which the runtime does not start.
fn without_cgroup_v2(runtime: &Runtime, v2: &Path) -> impl Iterator<Item = ReportFinding> {
    let is_v2 = v2.exists();
    let handlers = runtime.handlers.iter();
    let handlers = handlers.filter(move |handler| handler.cgroup_writable && !is_v2);
    handlers.map(|handler| {
        let name = &handler.name;
        let text = format!(
            "runtime.handlers.{name}.cgroup_writable needs cgroup v2, and this node has v1"
        );
        ReportFinding::fail(TOPIC, text)
            .hint("remove the key, or boot the node with cgroup v2 only")
    })
}

/// Runs a container with each handler.
fn trials(runtime: &Runtime, search: &OsStr) -> Vec<ReportFinding> {
    // Reported above.
    let Ok(found) = runtime.handler_programs(search) else {
        return Vec::new();
    };
    let temp = env::temp_dir();
    // A misfit is reported above. A shim of containerd cannot be tried by a command line: it needs a pod.
    let fitting = found.handlers.iter();
    let fitting =
        fitting.filter(|(handler, _)| handler.misfit().is_none() && handler.runtime_type.is_none());
    let findings = fitting.map(|(handler, program)| {
        let systemd = handler.systemd_cgroup;
        let trial = TrialContainer {
            program,
            systemd_cgroup: systemd.unwrap_or_else(|| is_systemd(runtime.cgroup_driver)),
            options: &handler.options,
            temp: &temp,
            cgroups: Path::new(CGROUPS),
        };
        tried(&handler.name, handler.name == found.default, trial.run())
    });
    findings.collect()
}

fn tried(
    name: &str,
    is_default: bool,
    result: Result<Duration, trial::TrialError>,
) -> ReportFinding {
    match result {
        Ok(took) => {
            let took = units::duration(took.as_secs_f64() * 1e3);
            ReportFinding::ok(TOPIC, format!("{name} ran a container in {took}"))
        }
        Err(error @ (trial::TrialError::NoProgram | trial::TrialError::Prepare(_))) => {
            ReportFinding::warn(TOPIC, format!("{name} was not tried: {error}"))
        }
        Err(error) => {
            let text = format!("{name} cannot run a container on this node: {error}");
            if is_default {
                ReportFinding::fail(TOPIC, text)
            } else {
                ReportFinding::warn(TOPIC, text)
            }
        }
    }
}

/// Returns whether the built-in runtime uses systemd's cgroup driver: by default where systemd runs the node and cgroups are v2.
fn is_systemd(driver: Option<CgroupDriver>) -> bool {
    match driver {
        Some(driver) => driver == CgroupDriver::Systemd,
        None => Path::new("/run/systemd/system").is_dir() && Path::new(CGROUP_V2).exists(),
    }
}

fn shim(runtime: &Runtime, own: &Path, search: &OsStr) -> ReportFinding {
    match runtime.shim_program(own, search) {
        Ok(program) => ReportFinding::ok(TOPIC, format!("shim: {}", program.display())),
        Err(error) => ReportFinding::fail(TOPIC, error.to_string()),
    }
}

/// The network of pods: the first valid one in the order of file names. Each of its plugins must be installed.
fn networks(cni: &Cni) -> Vec<ReportFinding> {
    let dir = &cni.conf_dir;
    let mut names: Vec<_> = entries(dir)
        .filter(|name| {
            let ending = Path::new(name).extension().and_then(OsStr::to_str);
            ending.is_some_and(|ending| NETWORK_ENDINGS.contains(&ending))
        })
        .collect();
    names.sort();
    let mut findings = Vec::new();
    for name in names {
        match plugins(&dir.join(&name)) {
            Ok(plugins) => {
                findings.push(network(cni, &name, plugins));
                return findings;
            }
            Err(why) => {
                let text = format!("{} is not a network: {why}", dir.join(&name).display());
                findings.push(ReportFinding::warn(TOPIC, text));
            }
        }
    }
    let text = format!("no network is configured in {}", dir.display());
    findings.push(
        ReportFinding::warn(TOPIC, text).hint(
            "the node stays NotReady until the network add-on of the cluster writes one there",
        ),
    );
    findings
}

fn network(cni: &Cni, name: &str, mut plugins: Vec<String>) -> ReportFinding {
    plugins.retain(|plugin| !cni.bin_dirs.iter().any(|dir| dir.join(plugin).is_file()));
    let dirs: Vec<_> = cni
        .bin_dirs
        .iter()
        .map(|dir| dir.display().to_string())
        .collect();
    if plugins.is_empty() {
        let text = format!("network: {name} in {}", cni.conf_dir.display());
        return ReportFinding::ok(TOPIC, text);
    }
    let text = format!(
        "the network {name} needs the CNI plugins {}, which are not in {}",
        plugins.join(", "),
        dirs.join(", ")
    );
    ReportFinding::fail(TOPIC, text).hint(
        "install them (Debian: containernetworking-plugins; others come with the network add-on), or set runtime.cni.bin_dirs",
    )
}

/// The plugins of a network's configuration, IPAM plugins included.
fn plugins(path: &Path) -> Result<Vec<String>, String> {
    let text = fs::read(path).map_err(|error| error.to_string())?;
    let network: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    // A list has an array of plugins; in the older form the file is a single one.
    let alone = std::slice::from_ref(&network);
    let listed = network.get("plugins").and_then(Value::as_array);
    let types = listed
        .map_or(alone, Vec::as_slice)
        .iter()
        .flat_map(|plugin| {
            let ipam = plugin.get("ipam").and_then(|ipam| ipam.get("type"));
            [plugin.get("type"), ipam]
        });
    let names: Vec<_> = types
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        return Err("it names no plugin".to_owned());
    }
    Ok(names)
}

/// The names in a directory; none if it cannot be read.
fn entries(dir: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::super::output::FindingLevel;
    use super::*;
    use crate::config::Config;

    fn program(dir: &Path, name: &str) {
        let path = dir.join(name);
        fs::write(&path, "").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
    }

    #[test]
    fn what_is_missing_is_named_and_what_is_there_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let search = dir.path().as_os_str();
        let mut runtime = *Config::builtin().runtime.expect("built in");
        runtime.cni.conf_dir = dir.path().join("net.d");
        runtime.cni.bin_dirs = vec![dir.path().join("bin")];
        let own = dir.path().join("criscope");

        assert_eq!(handlers(&runtime, search)[0].level, FindingLevel::Fail);
        assert_eq!(shim(&runtime, &own, search).level, FindingLevel::Fail);
        assert_eq!(levels(&runtime.cni), [FindingLevel::Warn]);

        program(dir.path(), "crun");
        program(dir.path(), "criscope-shim");
        fs::create_dir(dir.path().join("net.d")).expect("made");
        let bridge = r#"{"type": "bridge", "ipam": {"type": "host-local"}}"#;
        let list = format!(r#"{{"plugins": [{bridge}]}}"#);
        for (name, text) in [("10-a.conflist", list.as_str()), ("20-b.conf", bridge)] {
            fs::write(dir.path().join("net.d").join(name), text).expect("written");
        }
        let found = handlers(&runtime, search);
        let text = format!("handlers: crun ({}/crun, default)", dir.path().display());
        assert_eq!((found.len(), &found[0].text), (1, &text));
        assert_eq!(shim(&runtime, &own, search).level, FindingLevel::Ok);
        assert_eq!(levels(&runtime.cni), [FindingLevel::Fail]);

        fs::create_dir(dir.path().join("bin")).expect("made");
        program(&dir.path().join("bin"), "bridge");
        let found = networks(&runtime.cni);
        assert!(
            found[0].text.contains("plugins host-local,"),
            "{}",
            found[0].text
        );
        program(&dir.path().join("bin"), "host-local");
        assert_eq!(levels(&runtime.cni), [FindingLevel::Ok]);

        // Invalid files are skipped, as the runtime does, and reported.
        fs::write(dir.path().join("net.d/10-a.conflist"), "{").expect("written");
        assert_eq!(levels(&runtime.cni), [FindingLevel::Warn, FindingLevel::Ok]);
    }

    #[test]
    fn a_shim_of_containerd_is_found_like_an_oci_runtime() {
        let dir = tempfile::tempdir().expect("made");
        let search = dir.path().as_os_str();
        let text = "[runtime]\ndefault_handler = \"runc\"\n[runtime.handlers.runc]\n\
            [runtime.handlers.kata]\nruntime_type = \"io.containerd.kata.v2\"\n\
            [runtime.handlers.both]\nruntime_type = \"io.containerd.runc.v2\"\npath = \"/no/such/crun\"\n";
        let config = Config::from_text("c", text, &crate::config::FlagOverrides::default());
        let runtime = config.expect("valid").runtime.expect("built in");
        program(dir.path(), "runc");
        program(dir.path(), "containerd-shim-runc-v2");
        let texts = || {
            let found = handlers(&runtime, search);
            found
                .into_iter()
                .map(|one| one.text)
                .collect::<Vec<_>>()
                .join("\n")
        };
        let found = texts();
        for part in [
            "the shim of containerd of handler kata, containerd-shim-kata-v2, is not there",
            "the OCI runtime of handler both, /no/such/crun, is not there",
        ] {
            assert!(found.contains(part), "{found}");
        }
        program(dir.path(), "containerd-shim-kata-v2");
        let path = dir.path().join("containerd-shim-kata-v2");
        let part = format!("kata ({})", path.display());
        assert!(texts().contains(&part), "{}", texts());
    }

    #[test]
    fn a_shim_of_containerd_is_no_oci_runtime() {
        let text = "[runtime]\ndefault_handler = \"runc\"\n[runtime.handlers.runc]\n\
            [runtime.handlers.kata]\npath = \"/opt/kata/bin/containerd-shim-kata-v2\"\n";
        let config = Config::from_text("c", text, &crate::config::FlagOverrides::default());
        let runtime = config.expect("valid").runtime.expect("built in");
        let found: Vec<_> = misfits(&runtime).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].level, FindingLevel::Warn);
        let hint = found[0].hint.as_deref().unwrap_or_default();
        assert!(hint.contains("runtime_type"), "{found:?}");
    }

    #[test]
    fn writable_cgroups_need_version_2() {
        let text = "[runtime.handlers.runc]\ncgroup_writable = true\n[runtime.handlers.crun]\n";
        let config = Config::from_text("c", text, &crate::config::FlagOverrides::default());
        let runtime = config.expect("valid").runtime.expect("built in");
        let dir = tempfile::tempdir().expect("made");
        assert_eq!(without_cgroup_v2(&runtime, dir.path()).count(), 0);
        let found: Vec<_> = without_cgroup_v2(&runtime, &dir.path().join("missing")).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].level, FindingLevel::Fail);
        assert!(found[0].text.contains("handlers.runc."), "{found:?}");
    }

    #[test]
    fn a_handler_that_refuses_containers_is_no_ok() {
        let refused = || {
            Err(trial::TrialError::Refused(
                "unknown cgroup version".to_owned(),
            ))
        };
        let finding = tried("crun", true, refused());
        assert_eq!(finding.level, FindingLevel::Fail);
        assert!(
            finding.text.ends_with("unknown cgroup version"),
            "{finding:?}"
        );
        assert_eq!(tried("crun", false, refused()).level, FindingLevel::Warn);
        assert_eq!(
            tried("crun", true, Ok(Duration::ZERO)).level,
            FindingLevel::Ok
        );
        assert_eq!(
            tried("crun", true, Err(trial::TrialError::NoProgram)).level,
            FindingLevel::Warn
        );
    }

    #[test]
    fn who_is_not_root_is_told() {
        assert_eq!(privilege(true), None);
        let finding = privilege(false).expect("a finding");
        assert_eq!(finding.level, FindingLevel::Warn);
    }

    fn levels(cni: &Cni) -> Vec<FindingLevel> {
        networks(cni).iter().map(|finding| finding.level).collect()
    }
}
