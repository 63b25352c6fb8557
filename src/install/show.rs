//! Shows a plan to the user: findings, every file as a diff, and the commands.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use similar::TextDiff;

use super::files::{self, PathContent};
use super::journal::{ChangeGroup, InstallJournal};
use super::plan::{InstallPlan, PlannedContent, PlannedEdit};
use super::root::FilesystemRoot;
use super::run::{CRISCOPE_SERVICE, CRISCOPE_SOCKET_UNIT};
use super::takedown::RemovalPlan;

impl InstallPlan {
    /// The plan as text: a unified diff of every file, with one line of context.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn show(&self, root: &FilesystemRoot) -> io::Result<String> {
        let mut text = String::new();
        for found in &self.found {
            let _ = writeln!(text, "# {found}");
        }
        if self.is_empty() {
            text.push_str("# installed: nothing changes\n");
            return Ok(text);
        }
        for group in [
            ChangeGroup::Program,
            ChangeGroup::Service,
            ChangeGroup::Runtime,
            ChangeGroup::Kubelet,
        ] {
            for edit in self.edits.iter().filter(|edit| edit.group == group) {
                text.push_str(&show(root, edit)?);
            }
            for command in self.commands(group) {
                let _ = writeln!(text, "$ {command}");
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "# note: {note}");
        }
        Ok(text)
    }

    /// The commands after the files of a group.
    fn commands(&self, group: ChangeGroup) -> Vec<String> {
        let mut commands = Vec::new();
        match group {
            ChangeGroup::Program => {}
            ChangeGroup::Service => {
                commands.push("systemctl daemon-reload".to_owned());
                if !self.has(ChangeGroup::Runtime) {
                    commands.push(format!(
                        "systemctl start {CRISCOPE_SOCKET_UNIT} {CRISCOPE_SERVICE}"
                    ));
                }
            }
            ChangeGroup::Runtime if self.has(group) => {
                let unit = self.units.runtime.as_deref().unwrap_or_default();
                commands.push(format!("systemctl restart {unit}"));
                commands.push(format!(
                    "systemctl start {CRISCOPE_SOCKET_UNIT} {CRISCOPE_SERVICE}"
                ));
            }
            ChangeGroup::Kubelet if self.has(group) && self.units.kubelet_active => {
                commands.push(format!("systemctl restart {}", self.units.kubelet));
            }
            ChangeGroup::Runtime | ChangeGroup::Kubelet => {}
        }
        commands
    }
}

fn show(root: &FilesystemRoot, edit: &PlannedEdit) -> io::Result<String> {
    let path = edit.path.display();
    Ok(match &edit.content {
        PlannedContent::Link(target) => format!("link {path} -> {}\n", target.display()),
        PlannedContent::Program(from) => {
            let size = std::fs::metadata(from)?.len();
            format!(
                "copy {} to {path} ({} KiB)\n",
                from.display(),
                size.div_ceil(1024)
            )
        }
        PlannedContent::Text(new, _) => {
            let old = root.text(&edit.path)?;
            diff(&edit.path, old.as_deref(), Some(new))
        }
    })
}

fn diff(path: &Path, old: Option<&str>, new: Option<&str>) -> String {
    let [old_name, new_name] = [old, new].map(|text| match text {
        Some(_) => path.display().to_string(),
        None => "/dev/null".to_owned(),
    });
    let lines = TextDiff::from_lines(old.unwrap_or_default(), new.unwrap_or_default());
    lines
        .unified_diff()
        .context_radius(1)
        .header(&old_name, &new_name)
        .to_string()
}

impl RemovalPlan {
    /// Shows what uninstalling changes.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn show(&self, root: &FilesystemRoot) -> io::Result<String> {
        let mut text = String::new();
        let mut last = None;
        for change in &self.changes {
            if last == Some(ChangeGroup::Kubelet) && change.group != ChangeGroup::Kubelet {
                let _ = writeln!(text, "$ systemctl restart {}", self.record.units.kubelet);
            }
            last = Some(change.group);
            if change.before == change.after {
                continue;
            }
            let path = change.path.display();
            match &change.after {
                PathContent::Absent => {
                    let _ = writeln!(text, "remove {path}");
                }
                PathContent::Link { target } => {
                    let _ = writeln!(text, "link {path} -> {}", target.display());
                }
                PathContent::File { sha256, .. } => {
                    let kept = self
                        .contents
                        .iter()
                        .find(|bytes| files::sha256(bytes) == *sha256);
                    let new = match kept {
                        Some(bytes) => bytes.clone(),
                        None => InstallJournal { root }.content(sha256)?,
                    };
                    let old = root.read(&change.path)?;
                    let old = old.map(|old| String::from_utf8_lossy(&old).into_owned());
                    match String::from_utf8(new) {
                        Ok(new) => text.push_str(&diff(&change.path, old.as_deref(), Some(&new))),
                        Err(_) => {
                            let _ = writeln!(text, "restore {path}");
                        }
                    }
                }
            }
        }
        let _ = writeln!(
            text,
            "$ systemctl stop {CRISCOPE_SOCKET_UNIT} {CRISCOPE_SERVICE}"
        );
        for note in &self.notes {
            let _ = writeln!(text, "# note: {note}");
        }
        Ok(text)
    }
}
