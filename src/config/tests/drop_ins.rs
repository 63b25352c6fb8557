//! Drop-in files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::*;

/// A configuration file in a directory of its own, with drop-in files.
fn written(main: &str, drop_ins: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("criscope.toml");
    fs::write(&file, main).expect("written");
    fs::create_dir(dir.path().join("conf.d")).expect("created");
    for (name, text) in drop_ins {
        fs::write(dir.path().join("conf.d").join(name), text).expect("written");
    }
    (dir, file)
}

fn read(file: &Path) -> Result<LoadedConfig, ConfigErrors> {
    Config::load(Some(file), &FlagOverrides::default())
}

#[test]
fn tables_are_merged_and_arrays_replaced() {
    let (_dir, file) = written(
        "[server]\nmode = \"0600\"\ndrain_timeout = \"1s\"\n[runtime]\ncdi_spec_dirs = [\"/a\", \"/b\"]\n\
         [runtime.handlers.runc]\nno_pivot = true\noptions = [\"--debug\"]\n",
        &[
            ("20-late.toml", "[server]\ndrain_timeout = \"3s\"\n"),
            (
                "10-early.toml",
                "runtime.cdi_spec_dirs = [\"/c\"]\n[server]\ndrain_timeout = \"2s\"\n\
                 [runtime.handlers.runc]\noptions = []\n[runtime.handlers.kata]\npath = \"/k\"\n",
            ),
            (".hidden.toml", "nonsense"),
            ("note.txt", "nonsense"),
        ],
    );
    let loaded = read(&file).expect("valid");
    assert_eq!(loaded.drop_ins.len(), 2);
    let server = &loaded.config.server;
    assert_eq!(
        (server.mode, server.drain_timeout),
        (0o600, Duration::from_secs(3))
    );
    let runtime = loaded.config.runtime.expect("the built-in one");
    assert_eq!(runtime.pods.cdi_spec_dirs, [PathBuf::from("/c")]);
    let handlers: Vec<_> = runtime
        .handlers
        .iter()
        .map(|one| (&*one.name, one.no_pivot, one.options.len()))
        .collect();
    assert_eq!(handlers, [("runc", true, 0), ("kata", false, 0)]);
    assert!(!runtime.usual_besides.0);
}

#[test]
fn errors_name_the_file_and_the_line() {
    let (dir, file) = written(
        "[server]\nmdoe = \"0600\"\n",
        &[
            ("a.toml", "[runtime.handlers.a]\n\npth = \"/a\"\n"),
            ("b.toml", "server = 1\n"),
        ],
    );
    let at = |name: &str| dir.path().join(name).display().to_string();
    let error = read(&file).expect_err("refused").to_string();
    // A value in the place of a table hides what the table has.
    assert_eq!(
        error.lines().collect::<Vec<_>>(),
        [
            format!(
                "{}:3: runtime.handlers.a.pth: unknown key; did you mean `path`?",
                at("conf.d/a.toml")
            ),
            format!(
                "{}:1: server: expected a table, found a number",
                at("conf.d/b.toml")
            ),
        ]
    );
    // Syntax errors of all files, and nothing else.
    fs::write(at("conf.d/b.toml"), "\n[server\n").expect("written");
    fs::write(at("conf.d/c.toml"), "x =\n").expect("written");
    let error = read(&file).expect_err("refused").to_string();
    let mut lines = error.lines();
    let mut next = || lines.next().expect("a line").to_owned();
    assert!(
        next().starts_with(&format!("{}:2: not valid TOML", at("conf.d/b.toml"))),
        "{error}"
    );
    assert!(
        next().starts_with(&format!("{}:1: not valid TOML", at("conf.d/c.toml"))),
        "{error}"
    );
}

#[test]
fn a_drop_in_that_cannot_be_read_is_an_error() {
    let (dir, file) = written("", &[]);
    let missing = dir.path().join("conf.d/gone.toml");
    std::os::unix::fs::symlink("nowhere", &missing).expect("linked");
    let error = read(&file).expect_err("refused").to_string();
    assert!(
        error.starts_with(&format!("{}: cannot be read", missing.display())),
        "{error}"
    );
}

#[test]
fn a_reload_reads_files_that_were_added() {
    let (dir, file) = written("", &[]);
    let loaded = read(&file).expect("valid");
    fs::write(
        dir.path().join("conf.d/1.toml"),
        "telemetry.log.level = \"debug\"\n",
    )
    .expect("written");
    let again = loaded.reload().expect("valid");
    assert_eq!(again.config.telemetry.log.level, "debug");
    assert_eq!(
        reload_diff(&loaded.config, &again.config).reloadable,
        ["telemetry.log.level"]
    );
}

#[test]
fn a_handler_of_a_drop_in_is_one_more() {
    let (dir, file) = written(
        "",
        &[(
            "nvidia.toml",
            "[runtime.handlers.nvidia]\npath = \"NVIDIA\"\n",
        )],
    );
    let program = |name: &str| {
        let path = dir.path().join(name);
        fs::write(&path, "").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
        path
    };
    let nvidia = program("nvidia-container-runtime");
    let text = format!("[runtime.handlers.nvidia]\npath = {nvidia:?}\n");
    fs::write(dir.path().join("conf.d/nvidia.toml"), text).expect("written");
    let found = |search: &OsStr| {
        let runtime = read(&file)
            .expect("valid")
            .config
            .runtime
            .expect("built-in");
        let found = runtime.handler_programs(search).expect("enough");
        assert_eq!(found.missing, []);
        let names = found.handlers.into_iter().map(|(handler, _)| handler.name);
        (found.default, names.collect::<Vec<_>>())
    };
    let nothing = OsStr::new("/nonexistent");
    assert_eq!(
        found(nothing),
        ("nvidia".to_owned(), vec!["nvidia".to_owned()])
    );
    program("runc");
    let both = ["runc", "nvidia"].map(str::to_owned).to_vec();
    assert_eq!(found(dir.path().as_os_str()), ("runc".to_owned(), both));

    // If the main file names a handler, it lists them all.
    fs::write(
        &file,
        "[runtime.handlers.crun]\n[runtime]\ndefault_handler = \"crun\"\n",
    )
    .expect("written");
    program("crun");
    let named = ["crun", "nvidia"].map(str::to_owned).to_vec();
    assert_eq!(found(dir.path().as_os_str()), ("crun".to_owned(), named));
}
