//! The programs that the built-in runtime calls: OCI runtimes and criscope-shim.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::runtime::runtime;
use super::*;

/// A directory with these programs.
fn programs(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for name in names {
        let path = dir.path().join(name);
        fs::write(&path, "").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
    }
    dir
}

fn found(runtime: &Runtime, dir: &Path) -> Result<(Vec<String>, String), ProgramError> {
    let found = runtime.handler_programs(dir.as_os_str())?;
    let names = found.handlers.into_iter().map(|(handler, program)| {
        assert!(program.starts_with(dir));
        handler.name
    });
    Ok((names.collect(), found.default))
}

#[test]
fn without_handlers_those_on_the_path_are_there() {
    let runtime = runtime("");
    let expect = |there: &[&str], names: &[&str], default: &str| {
        let dir = programs(there);
        let names = names.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(found(&runtime, dir.path()), Ok((names, default.to_owned())));
    };
    expect(&["runc"], &["runc"], "runc");
    expect(&["crun"], &["crun"], "crun");
    expect(&["crun", "runc"], &["runc", "crun"], "runc");
    let none = programs(&[]);
    assert_eq!(found(&runtime, none.path()), Err(ProgramError::NoRuntime));
    fs::write(none.path().join("runc"), "").expect("written");
    let not_executable = found(&runtime, none.path());
    assert_eq!(not_executable, Err(ProgramError::NoRuntime));

    // A missing program is not reported if its handler is not used.
    let one = programs(&["runc"]);
    let programs = runtime.handler_programs(one.path().as_os_str());
    assert_eq!(programs.expect("found").missing, []);
}

#[test]
fn the_default_handler_must_be_there_others_need_not() {
    let dir = programs(&["kata", "crun"]);
    let crun = runtime("[runtime]\ndefault_handler = \"crun\"\n");
    assert_eq!(found(&crun, dir.path()).expect("found").1, "crun");
    let runc = runtime("[runtime]\ndefault_handler = \"runc\"\n");
    assert!(matches!(
        found(&runc, dir.path()),
        Err(ProgramError::NoHandler { handler, .. }) if handler == "runc"
    ));

    let text = format!(
        "[runtime]\ndefault_handler = \"kata\"\n[runtime.handlers.kata]\n[runtime.handlers.x]\npath = \"{}\"\n",
        dir.path().join("no").display()
    );
    let search = dir.path().as_os_str();
    let two = runtime(&text);
    let programs = two.handler_programs(search).expect("the default is there");
    assert_eq!(programs.handlers[0].1, dir.path().join("kata"));
    assert_eq!(programs.default, "kata");
    let missing: Vec<_> = programs.missing.iter().map(|e| e.to_string()).collect();
    let path = dir.path().join("no");
    assert_eq!(
        missing,
        [format!(
            "the OCI runtime of handler x, {}, is not there or cannot be executed",
            path.display()
        )]
    );
    let kata = &programs.handlers[0].0;
    assert_eq!(
        two.handler_root(kata),
        Path::new("/run/criscope/runtime/oci/kata")
    );
}

#[test]
fn the_shim_is_beside_the_program_or_on_the_path() {
    let (own, path) = (programs(&["criscope-shim"]), programs(&["criscope-shim"]));
    let program = own.path().join("criscope");
    let search = path.path().as_os_str();
    let mut runtime = runtime("");
    let shim =
        |runtime: &Runtime, program: &Path, search: &OsStr| runtime.shim_program(program, search);
    assert_eq!(
        shim(&runtime, &program, search),
        Ok(own.path().join("criscope-shim"))
    );
    assert_eq!(
        shim(&runtime, Path::new("/nowhere/criscope"), search),
        Ok(path.path().join("criscope-shim"))
    );
    let none = shim(&runtime, Path::new("/nowhere/criscope"), OsStr::new(""));
    assert_eq!(none, Err(ProgramError::NoShim("criscope-shim".into())));
    // A configured path is not searched for elsewhere.
    runtime.shim = Some("/nowhere/shim".into());
    assert!(shim(&runtime, &program, search).is_err());
}
