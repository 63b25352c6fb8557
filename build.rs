//! Finds the file in which git records commits. `crates/cri` compiles `proto/api.proto`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    find_head_log(&PathBuf::from(env::var("OUT_DIR")?))
}

/// Sets `CRISCOPE_HEAD_LOG` to git's reflog of HEAD, from which `src/main.rs` takes the commit. Without a reflog it is a
/// file in `out` of the same form, empty if there is no commit either.
fn find_head_log(out: &Path) -> Result<(), Box<dyn Error>> {
    let path = match head_log() {
        Some(path) => path,
        None => {
            let commit = own_repository().and_then(|()| git(&["rev-parse", "HEAD"]));
            let path = out.join("head");
            fs::write(
                &path,
                commit.map_or_else(String::new, |commit| format!("- {commit}\n")),
            )?;
            path
        }
    };
    println!("cargo:rustc-env=CRISCOPE_HEAD_LOG={}", path.display());
    Ok(())
}

fn head_log() -> Option<PathBuf> {
    own_repository()?;
    let path = fs::canonicalize(git(&["rev-parse", "--git-path", "logs/HEAD"])?).ok()?;
    // git gc empties the reflog of a repository without recent commits.
    (fs::metadata(&path).ok()?.len() > 0).then_some(path)
}

/// A source archive unpacked inside another repository must not take that one's commit.
fn own_repository() -> Option<()> {
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    (top.canonicalize().ok()? == here.canonicalize().ok()?).then_some(())
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
