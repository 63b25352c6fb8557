//! The way back: of an installation that failed, of one that was interrupted, and of one that is not wanted any more.

use std::fs;
use std::io;

use super::config;
use super::files::{self, PathContent};
use super::health::{self, HealthBaseline, KubeletCheck};
use super::journal::{AffectedUnits, ChangeGroup, FileChange, InstallationRecord, Transaction};
use super::lines;
use super::plan::InstallMode;
use super::root::FilesystemRoot;
use super::run::{
    CRISCOPE_SERVICE, CRISCOPE_SOCKET_UNIT, InstallError, Installer, UninterruptedNode, joined,
};
use super::services::{AGENT_DIRECTORY, AGENT_SOCKET};
use crate::lifecycle::node::{BYPASS_SINCE_FILE, LAST_BYPASS_FILE};

/// The changes of an uninstallation, planned before the first one.
#[derive(Debug)]
pub struct RemovalPlan {
    pub(super) record: InstallationRecord,
    /// In the order of removal, from the current state to the one wanted.
    pub(super) changes: Vec<FileChange>,
    /// New contents.
    pub(super) contents: Vec<Vec<u8>>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The time of undoing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakedownMoment {
    /// By the command that made the changes. Files that it did not reach are unchanged.
    Now,
    /// By a later command. Running programs may have been started with any of the files.
    Later,
    /// Before kubelet and runtime start.
    Boot,
}

/// Outcome of finishing or undoing an interrupted installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryOutcome {
    /// Nothing was unfinished.
    Nothing,
    /// An installation had been completed.
    Completed,
    /// An installation was undone.
    Undone,
    /// Taking away was finished.
    Removed,
}

impl RemovalPlan {
    /// Plans it.
    ///
    /// # Errors
    /// If nothing is installed, or a file cannot be read.
    pub fn make(root: &FilesystemRoot) -> Result<Self, InstallError> {
        let journal = super::journal::InstallJournal { root };
        let record = journal.record()?.ok_or(InstallError::NotInstalled)?;
        let mut removal = Self {
            changes: Vec::new(),
            contents: Vec::new(),
            notes: Vec::new(),
            record,
        };
        for change in removal.record.changes.clone().into_iter().rev() {
            let after = removal.target(root, &change)?;
            let (before, _) = files::capture(&change.file(root))?;
            removal.changes.push(FileChange {
                before,
                after,
                ..change
            });
        }
        Ok(removal)
    }

    /// The original, unless the file was changed since.
    fn target(&mut self, root: &FilesystemRoot, change: &FileChange) -> io::Result<PathContent> {
        let (now, bytes) = files::capture(&change.file(root))?;
        let shown = change.path.display();
        if now.has_same_content(&change.after) || now.has_same_content(&change.before) {
            return Ok(change.before.clone());
        }
        if change.path == std::path::Path::new(config::CONFIG_PATH) {
            self.notes
                .push(format!("{shown} was edited since and is kept"));
            return Ok(now);
        }
        if matches!(change.group, ChangeGroup::Program | ChangeGroup::Service) {
            return Ok(change.before.clone());
        }
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let (Some(text), PathContent::File { mode, uid, gid, .. }) = (text, &now) else {
            self.notes.push(format!(
                "{shown} was removed or replaced since and is left alone"
            ));
            return Ok(now);
        };
        if change.before == PathContent::Absent {
            // criscope made this file.
            return Ok(PathContent::Absent);
        }
        let units = &self.record.units;
        let restored = lines::restore(&text, &change.lines, &units.new, &units.old);
        self.notes.push(if restored == text {
            format!("{shown} was edited since and no longer names criscope")
        } else {
            format!("{shown} was edited since: only the endpoint changes back")
        });
        let bytes = restored.into_bytes();
        let state = PathContent::File {
            sha256: files::sha256(&bytes),
            mode: *mode,
            uid: *uid,
            gid: *gid,
        };
        self.contents.push(bytes);
        Ok(state)
    }
}

impl Installer<'_> {
    /// Finishes or undoes an interrupted installation. At boot nothing is restarted: kubelet and runtime start afterwards.
    ///
    /// # Errors
    /// If something could not be restored; then the journal stays.
    pub fn recover(&self, boot: bool) -> Result<RecoveryOutcome, InstallError> {
        let journal = self.journal();
        let Some(transaction) = journal.pending()? else {
            return Ok(RecoveryOutcome::Nothing);
        };
        let moment = if boot {
            TakedownMoment::Boot
        } else {
            TakedownMoment::Later
        };
        let (result, outcome) = if !transaction.installs {
            let removed = self.finish_removal(&transaction, moment);
            (removed, RecoveryOutcome::Removed)
        } else if journal.has_record(transaction.id)? {
            journal.finish()?;
            return Ok(RecoveryOutcome::Completed);
        } else {
            let taken_back = self.take_back(&transaction, moment);
            (taken_back, RecoveryOutcome::Undone)
        };
        match result {
            Ok(()) => Ok(outcome),
            Err(rollback) => Err(InstallError::Stuck {
                reason: "an installation was interrupted".to_owned(),
                rollback,
            }),
        }
    }

    /// Restores the files as they were before a transaction.
    pub(super) fn take_back(
        &self,
        transaction: &Transaction,
        moment: TakedownMoment,
    ) -> Result<(), String> {
        let steps: Vec<_> = transaction
            .changes
            .iter()
            .rev()
            .map(|change| (change, &change.before))
            .collect();
        self.take_away(&steps, &transaction.units, transaction.first, moment)?;
        self.journal().finish().map_err(|error| error.to_string())
    }

    /// Uninstalls, and waits until the node works without criscope.
    ///
    /// # Errors
    /// If files could not be restored, or the node does not work as before.
    pub fn uninstall(&self, removal: &RemovalPlan) -> Result<(), InstallError> {
        let units = &removal.record.units;
        let kubelet_active = super::plan::active(self.machine, &units.kubelet);
        if removal.record.mode == InstallMode::Runtime.name() {
            let pods = self.machine.pods(&units.new).unwrap_or(0);
            if pods > 0 {
                return Err(InstallError::Pods(pods));
            }
        }
        let before = HealthBaseline::look(self.machine, &units.new);
        for content in &removal.contents {
            self.journal().keep(content)?;
        }
        let transaction = Transaction {
            id: removal.record.id,
            installs: false,
            first: true,
            units: AffectedUnits {
                kubelet_active,
                ..units.clone()
            },
            changes: removal.changes.clone(),
        };
        self.journal().begin(&transaction)?;
        self.machine.reached("the journal written");
        self.finish_removal(&transaction, TakedownMoment::Now)
            .map_err(|rollback| InstallError::Stuck {
                reason: "not uninstalled".to_owned(),
                rollback,
            })?;
        if kubelet_active {
            (self.say)(&format!("waiting until {} works without it", units.kubelet));
            let mut kubelet = KubeletCheck::new(self.machine, units, &units.old, before);
            let machine = UninterruptedNode(self.machine);
            health::wait(&machine, self.patience, true, || kubelet.look())
                .map_err(InstallError::Unhealthy)?;
        }
        Ok(())
    }

    fn finish_removal(
        &self,
        transaction: &Transaction,
        moment: TakedownMoment,
    ) -> Result<(), String> {
        let changes = &transaction.changes;
        let steps: Vec<_> = changes
            .iter()
            .map(|change| (change, &change.after))
            .collect();
        self.take_away(&steps, &transaction.units, true, moment)?;
        self.journal().forget().map_err(|error| error.to_string())?;
        self.machine.reached("the record removed");
        self.journal().finish().map_err(|error| error.to_string())
    }

    /// Upwards: the kubelet first, so that it never uses a socket behind which nothing is. Goes on after a failure, and
    /// reports all.
    fn take_away(
        &self,
        steps: &[(&FileChange, &PathContent)],
        units: &AffectedUnits,
        gone: bool,
        moment: TakedownMoment,
    ) -> Result<(), String> {
        let boot = moment == TakedownMoment::Boot;
        let mut problems = Vec::new();
        let has_kubelet = has_group(steps, ChangeGroup::Kubelet);
        let has_runtime = has_group(steps, ChangeGroup::Runtime);
        let (changed, applied) = self.apply_group(steps, ChangeGroup::Kubelet);
        problems.extend(applied.err());
        if changed || (moment == TakedownMoment::Later && has_kubelet) {
            problems.extend(self.systemctl(&["daemon-reload"]).err());
            if units.kubelet_active && !boot {
                problems.extend(self.restart(&units.kubelet).err());
            }
        }
        if !boot && (gone || has_runtime) {
            problems.extend(self.stop().err());
        }
        let (_, applied) = self.apply_group(steps, ChangeGroup::Runtime);
        problems.extend(applied.err());
        if let Some(runtime) = &units.runtime
            && !boot
            && has_runtime
        {
            problems.extend(self.restart(runtime).err());
        }
        if gone && boot {
            // While they are known; whether they have started is not, and this must not wait for jobs that wait for it.
            for unit in [CRISCOPE_SOCKET_UNIT, CRISCOPE_SERVICE] {
                let _ = self.systemctl(&["stop", "--no-block", unit]);
            }
        }
        for group in [ChangeGroup::Service, ChangeGroup::Program] {
            let (_, applied) = self.apply_group(steps, group);
            problems.extend(applied.err());
        }
        // Directories that different commands made may be in each other. They are removed from the end of the list.
        let made = steps.iter().flat_map(|(change, _)| &change.made);
        let mut made: Vec<_> = made.cloned().collect();
        made.sort();
        files::remove_empty(self.root, &made);
        problems.extend(self.systemctl(&["daemon-reload"]).err());
        if !gone && !boot {
            let restarted = self.systemctl(&["restart", CRISCOPE_SERVICE]);
            problems.extend(restarted.err());
        }
        if gone {
            self.remove_run_directory();
        }
        joined(&problems)
    }

    /// Applies the changes of a group. Returns whether any file changed, and all failures.
    fn apply_group(
        &self,
        steps: &[(&FileChange, &PathContent)],
        group: ChangeGroup,
    ) -> (bool, Result<(), String>) {
        let (mut failed, mut changed) = (Vec::new(), false);
        for (change, state) in steps.iter().filter(|(change, _)| change.group == group) {
            match self.apply(change, state) {
                Ok(done) => changed |= done,
                Err(reason) => failed.push(reason),
            }
        }
        (changed, joined(&failed))
    }

    /// A unit that has failed too often is started again only after that is forgotten.
    fn restart(&self, unit: &str) -> Result<(), String> {
        // `reset-failed` fails for a unit that is not loaded; the restart then reports that.
        let _ = self.machine.systemctl(&["reset-failed", unit]);
        self.systemctl(&["restart", unit])
    }

    /// A unit that was never written cannot be stopped, and need not be. One that is stopped between two starts of a crash loop stays
    /// listed as failed, even without its file, until that is forgotten.
    fn stop(&self) -> Result<(), String> {
        for unit in [CRISCOPE_SOCKET_UNIT, CRISCOPE_SERVICE] {
            let state = super::machine::UnitState::read(self.machine, unit)?;
            if state.loaded {
                self.systemctl(&["stop", unit])?;
                // It fails for a unit that systemd has unloaded with the stop.
                let _ = self.machine.systemctl(&["reset-failed", unit]);
            }
        }
        Ok(())
    }

    /// Sockets and the journal of stories. The state of the built-in runtime's pods stays if there is any, and so does the directory of
    /// the socket for agents: pods that have mounted it would not see a new one of the same name.
    fn remove_run_directory(&self) {
        let directory = self.root.path("/run/criscope");
        if directory.join("runtime").exists() {
            return;
        }
        // The directory is on a tmpfs and gone after the next boot in any case, so errors do not matter.
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if path == self.root.path(AGENT_DIRECTORY) {
                let _ = fs::remove_file(self.root.path(AGENT_SOCKET.trim_start_matches("unix://")));
                for file in [BYPASS_SINCE_FILE, LAST_BYPASS_FILE] {
                    let _ = fs::remove_file(path.join(file));
                }
            } else if path.is_dir() && !path.is_symlink() {
                let _ = fs::remove_dir_all(path);
            } else {
                let _ = fs::remove_file(path);
            }
        }
        let _ = fs::remove_dir(directory);
    }
}

fn has_group(steps: &[(&FileChange, &PathContent)], group: ChangeGroup) -> bool {
    steps.iter().any(|(change, _)| change.group == group)
}
