//! The built-in runtime: whether the programs and networks it needs are there.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use super::super::output::Finding;
use crate::config::{Cni, Runtime};

const TOPIC: &str = "runtime";

/// What files of `conf_dir` end in, by the specification of CNI.
const NETWORK_ENDINGS: [&str; 3] = ["conf", "conflist", "json"];

pub(super) fn check(runtime: &Runtime) -> Vec<Finding> {
    let search = env::var_os("PATH").unwrap_or_default();
    let own = env::current_exe().unwrap_or_default();
    let mut findings = handlers(runtime, &search);
    findings.push(shim(runtime, &own, &search));
    findings.push(networks(&runtime.cni));
    findings
}

fn handlers(runtime: &Runtime, search: &OsStr) -> Vec<Finding> {
    let found = match runtime.handler_programs(search) {
        Ok(found) => found,
        Err(error) => return vec![Finding::fail(TOPIC, error.to_string())],
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
    let ok = Finding::ok(TOPIC, format!("handlers: {}", words.join(", ")));
    let missing = found.missing.iter();
    let missing = missing.map(|error| Finding::warn(TOPIC, error.to_string()));
    std::iter::once(ok).chain(missing).collect()
}

fn shim(runtime: &Runtime, own: &Path, search: &OsStr) -> Finding {
    match runtime.shim_program(own, search) {
        Ok(program) => Finding::ok(TOPIC, format!("shim: {}", program.display())),
        Err(error) => Finding::fail(TOPIC, error.to_string()),
    }
}

fn networks(cni: &Cni) -> Finding {
    let dir = &cni.conf_dir;
    let mut names: Vec<_> = entries(dir)
        .filter(|name| {
            let ending = Path::new(name).extension().and_then(OsStr::to_str);
            ending.is_some_and(|ending| NETWORK_ENDINGS.contains(&ending))
        })
        .collect();
    names.sort();
    let Some(first) = names.first() else {
        let text = format!("no network is configured in {}", dir.display());
        return Finding::warn(TOPIC, text).hint(
            "the node stays NotReady until the network add-on of the cluster writes one there",
        );
    };
    if !cni.bin_dirs.iter().any(|dir| entries(dir).next().is_some()) {
        let dirs: Vec<_> = cni
            .bin_dirs
            .iter()
            .map(|dir| dir.display().to_string())
            .collect();
        let text = format!("there is no CNI plugin in {}", dirs.join(", "));
        return Finding::fail(TOPIC, text).hint("install them, or set runtime.cni.bin_dirs");
    }
    Finding::ok(TOPIC, format!("networks: {first} in {}", dir.display()))
}

/// The names in a directory; none if it cannot be read.
fn entries(dir: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::super::output::Level;
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

        assert_eq!(handlers(&runtime, search)[0].level, Level::Fail);
        assert_eq!(shim(&runtime, &own, search).level, Level::Fail);
        assert_eq!(networks(&runtime.cni).level, Level::Warn);

        program(dir.path(), "crun");
        program(dir.path(), "criscope-shim");
        fs::create_dir(dir.path().join("net.d")).expect("made");
        fs::write(dir.path().join("net.d/10-a.conflist"), "{}").expect("written");
        let found = handlers(&runtime, search);
        let text = format!("handlers: crun ({}/crun, default)", dir.path().display());
        assert_eq!((found.len(), &found[0].text), (1, &text));
        assert_eq!(shim(&runtime, &own, search).level, Level::Ok);
        assert_eq!(networks(&runtime.cni).level, Level::Fail);

        fs::create_dir(dir.path().join("bin")).expect("made");
        program(&dir.path().join("bin"), "bridge");
        assert_eq!(networks(&runtime.cni).level, Level::Ok);
    }
}
