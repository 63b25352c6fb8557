//! Carries out a plan, and takes it back if the node does not work with it.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;

use super::files::{self, PathContent};
use super::health::{self, HealthBaseline, KubeletCheck};
use super::journal::{
    AffectedUnits, ChangeGroup, FileChange, InstallJournal, InstallationRecord, Transaction,
};
use super::lines;
use super::machine::NodeOperations;
use super::plan::{InstallMode, InstallPlan, PlannedContent, PlannedEdit, active};
use super::root::FilesystemRoot;
use super::takedown::TakedownMoment;

pub(super) const CRISCOPE_SERVICE: &str = "criscope.service";
pub(super) const CRISCOPE_SOCKET_UNIT: &str = "criscope.socket";

/// Why an installation or its opposite failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// Another one is at work.
    #[error("another `criscope install` or `uninstall` is running")]
    Busy,
    /// The node is as it was.
    #[error("not installed; every change was rolled back: {0}")]
    RolledBack(String),
    /// The node is not as it was.
    #[error("{reason}; and the rollback failed: {rollback}")]
    Stuck {
        /// Why it was taken back.
        reason: String,
        /// Why that failed.
        rollback: String,
    },
    /// Files are restored, and the node does not work as it did.
    #[error("uninstalled, but {0}")]
    Unhealthy(String),
    /// There is nothing to uninstall.
    #[error("criscope was not installed by `criscope install` on this node")]
    NotInstalled,
    /// Pods of the built-in runtime could not be stopped any more.
    #[error("criscope still has {0} pods, and nothing could stop them after the change")]
    Pods(usize),
    /// A file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl InstallError {
    /// A recommendation for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::RolledBack(_) => Some("journalctl -u kubelet -u criscope; `criscope doctor`"),
            Self::Stuck { .. } => Some(
                "run `criscope uninstall` again, or restart the node: both finish what is recorded in /var/lib/criscope-install",
            ),
            Self::NotInstalled => Some("docs/INSTALL.md has the steps by hand"),
            Self::Pods(_) => Some("drain the node first: docs/MIGRATION.md"),
            _ => None,
        }
    }
}

/// Carries out plans on a node.
#[derive(Clone, Copy)]
pub struct Installer<'a> {
    /// The files.
    pub root: &'a FilesystemRoot,
    /// The programs.
    pub machine: &'a dyn NodeOperations,
    /// How long the node may take to become healthy.
    pub patience: Duration,
    /// Called with each step.
    pub say: &'a dyn Fn(&str),
}

impl std::fmt::Debug for Installer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installer")
            .field("root", self.root)
            .finish_non_exhaustive()
    }
}

/// Held while something is changed.
#[derive(Debug)]
pub struct InstallLock(#[expect(dead_code, reason = "closing it releases the lock")] File);

impl Installer<'_> {
    /// Excludes other installations until the result is dropped.
    ///
    /// # Errors
    /// If there is another one.
    pub fn lock(&self) -> Result<InstallLock, InstallError> {
        let path = self.root.path("/run/criscope-install.lock");
        let open = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        let file = open.map_err(|error| files::at(&path, &error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(InstallLock(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(InstallError::Busy),
            Err(error) => Err(InstallError::Io(error.into())),
        }
    }

    pub(super) fn journal(&self) -> InstallJournal<'_> {
        InstallJournal { root: self.root }
    }

    /// Installs. If the node does not work with it, everything is taken back.
    ///
    /// # Errors
    /// If the node is as before ([`InstallError::RolledBack`]), or is not.
    pub fn install(&self, plan: &InstallPlan) -> Result<(), InstallError> {
        let transaction = self.begin(plan)?;
        self.machine.reached("the journal written");
        let before = if plan.record.is_some() {
            HealthBaseline::look(self.machine, &plan.units.new)
        } else {
            HealthBaseline::look(self.machine, &plan.units.old)
        };
        if let Err(reason) = self.forward(plan, &transaction, before) {
            (self.say)(&format!("failed: {reason}"));
            (self.say)("rolling everything back");
            let back = self.take_back(&transaction, TakedownMoment::Now);
            let back = back.and_then(|()| self.works_as_before(&transaction.units, before));
            return Err(match back {
                Ok(()) => InstallError::RolledBack(reason),
                Err(rollback) => InstallError::Stuck { reason, rollback },
            });
        }
        self.journal().commit(&self.record(plan, transaction)?)?;
        self.machine.reached("the record written");
        self.journal().finish()?;
        Ok(())
    }

    fn begin(&self, plan: &InstallPlan) -> Result<Transaction, InstallError> {
        let journal = self.journal();
        let mut changes = Vec::new();
        for edit in &plan.edits {
            changes.push(self.change(&journal, edit)?);
        }
        changes.sort_by_key(|change| change.group);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let transaction = Transaction {
            id: now.map_or(1, |now| u64::try_from(now.as_nanos()).unwrap_or(1)),
            installs: true,
            first: plan.record.is_none(),
            units: plan.units.clone(),
            changes,
        };
        journal.begin(&transaction)?;
        Ok(transaction)
    }

    /// Reads the current contents and stores both.
    fn change(&self, journal: &InstallJournal<'_>, edit: &PlannedEdit) -> io::Result<FileChange> {
        let mut change = FileChange {
            path: edit.path.clone(),
            group: edit.group,
            before: PathContent::Absent,
            after: PathContent::Absent,
            lines: Vec::new(),
            made: files::missing_parents(self.root, &edit.path),
        };
        let (before, old) = files::capture(&change.file(self.root))?;
        if let Some(old) = &old {
            journal.keep(old)?;
        }
        let (new, mode) = match &edit.content {
            PlannedContent::Link(target) => {
                change.after = PathContent::Link {
                    target: target.clone(),
                };
                change.before = before;
                return Ok(change);
            }
            PlannedContent::Text(text, mode) => (text.clone().into_bytes(), *mode),
            PlannedContent::Program(from) => {
                let bytes = fs::read(from).map_err(|error| files::at(from, &error))?;
                (bytes, 0o755)
            }
        };
        journal.keep(&new)?;
        let (mode, uid, gid) = match before {
            PathContent::File { mode, uid, gid, .. } => (mode, uid, gid),
            _ => (mode, 0, 0),
        };
        change.after = PathContent::File {
            sha256: files::sha256(&new),
            mode,
            uid,
            gid,
        };
        change.before = before;
        change.lines = lines::between(old.as_deref(), &new);
        Ok(change)
    }

    fn forward(
        &self,
        plan: &InstallPlan,
        transaction: &Transaction,
        before: HealthBaseline,
    ) -> Result<(), String> {
        let units = &transaction.units;
        self.apply_groups(transaction, &[ChangeGroup::Program, ChangeGroup::Service])?;
        self.systemctl(&["daemon-reload"])?;
        if plan.has(ChangeGroup::Runtime) {
            self.apply_groups(transaction, &[ChangeGroup::Runtime])?;
            let unit = units.runtime.as_deref().unwrap_or_default();
            self.systemctl(&["restart", unit])?;
            if let Some(moved) = &plan.upstream {
                self.wait(false, || health::runtime(self.machine, moved, before))?;
            }
        }
        self.start_criscope(plan)?;
        (self.say)(&format!(
            "waiting until the runtime is ready at {}",
            units.new.display()
        ));
        self.wait(false, || {
            self.criscope_runs()?;
            health::runtime(self.machine, &units.new, before)
        })?;
        self.machine.reached("criscope started");
        if plan.has(ChangeGroup::Kubelet) {
            self.apply_groups(transaction, &[ChangeGroup::Kubelet])?;
            self.systemctl(&["daemon-reload"])?;
            if units.kubelet_active {
                self.systemctl(&["restart", &units.kubelet])?;
                self.machine.reached("the kubelet restarted");
            }
        }
        if units.kubelet_active {
            (self.say)(&format!("waiting until {} works with it", units.kubelet));
            let mut kubelet = KubeletCheck::new(self.machine, units, &units.new, before);
            self.wait(true, || {
                self.criscope_runs()?;
                kubelet.look()
            })?;
        }
        Ok(())
    }

    /// The runtime also answers while criscope is bypassed.
    fn criscope_runs(&self) -> Result<(), String> {
        let runs = active(self.machine, CRISCOPE_SERVICE);
        runs.then_some(())
            .ok_or_else(|| format!("{CRISCOPE_SERVICE} is not active"))
    }

    fn start_criscope(&self, plan: &InstallPlan) -> Result<(), String> {
        let changes_socket = plan.edits.iter().any(|edit| {
            edit.path.ends_with(CRISCOPE_SOCKET_UNIT)
                && matches!(edit.content, PlannedContent::Text(..))
        });
        let changed = plan.has(ChangeGroup::Service)
            || plan.has(ChangeGroup::Program)
            || plan.mode == InstallMode::TakeOver;
        let running = active(self.machine, CRISCOPE_SERVICE);
        if running && changed {
            // The socket stays, so callers wait; unless its address changes.
            if changes_socket {
                self.systemctl(&["stop", CRISCOPE_SERVICE, CRISCOPE_SOCKET_UNIT])?;
            } else {
                return self.systemctl(&["restart", CRISCOPE_SERVICE]);
            }
        }
        self.systemctl(&["start", CRISCOPE_SOCKET_UNIT])?;
        self.systemctl(&["start", CRISCOPE_SERVICE])
    }

    fn apply_groups(
        &self,
        transaction: &Transaction,
        groups: &[ChangeGroup],
    ) -> Result<(), String> {
        for change in &transaction.changes {
            if groups.contains(&change.group) {
                files::make_parents(self.root, &change.made).map_err(|error| error.to_string())?;
                self.apply(change, &change.after)?;
            }
            if self.machine.interrupted() {
                return Err("interrupted".to_owned());
            }
        }
        Ok(())
    }

    /// Returns whether anything changed.
    pub(super) fn apply(&self, change: &FileChange, state: &PathContent) -> Result<bool, String> {
        let journal = self.journal();
        let path = change.file(self.root);
        let changed = files::apply(&path, state, |name| journal.content(name), self.machine);
        let changed = changed.map_err(|error| error.to_string())?;
        if changed {
            let verb = match state {
                PathContent::Absent => "removed",
                _ => "wrote",
            };
            (self.say)(&format!("{verb} {}", change.path.display()));
        }
        self.machine.reached("a change made");
        Ok(changed)
    }

    pub(super) fn systemctl(&self, arguments: &[&str]) -> Result<(), String> {
        if arguments != ["daemon-reload"] {
            (self.say)(&format!("systemctl {}", arguments.join(" ")));
        }
        let done = self.machine.systemctl(arguments);
        self.machine.reached("systemctl");
        done.map(drop)
            .map_err(|error| format!("systemctl {}: {error}", arguments.join(" ")))
    }

    pub(super) fn wait(
        &self,
        hold: bool,
        check: impl FnMut() -> Result<(), String>,
    ) -> Result<(), String> {
        health::wait(self.machine, self.patience, hold, check)
    }

    /// The originals stay those of the first installation.
    fn record(
        &self,
        plan: &InstallPlan,
        transaction: Transaction,
    ) -> io::Result<InstallationRecord> {
        let mut changes = match &plan.record {
            Some(record) => record.changes.clone(),
            None => Vec::new(),
        };
        for change in transaction.changes {
            match changes.iter_mut().find(|known| known.path == change.path) {
                Some(known) => {
                    known.after = change.after;
                    known.lines.extend(change.lines);
                }
                None => changes.push(change),
            }
        }
        changes.sort_by_key(|change| change.group);
        Ok(InstallationRecord {
            id: transaction.id,
            version: crate::version::VERSION.to_owned(),
            mode: plan.mode.name().to_owned(),
            units: transaction.units,
            changes,
        })
    }

    /// After a roll-back: the kubelet runs if it ran, and the runtime answers where it did.
    fn works_as_before(&self, units: &AffectedUnits, before: HealthBaseline) -> Result<(), String> {
        let patience = self.patience;
        // Also after an interrupt.
        health::wait(&UninterruptedNode(self.machine), patience, false, || {
            if units.kubelet_active && !active(self.machine, &units.kubelet) {
                return Err(format!("{} is not active", units.kubelet));
            }
            let now = HealthBaseline::look(self.machine, &units.old);
            if before.network && !now.network {
                Err(format!(
                    "the runtime at {} is not ready",
                    units.old.display()
                ))
            } else {
                Ok(())
            }
        })
    }
}

/// The node, without interrupts: for steps that must be completed.
#[derive(Debug)]
pub(super) struct UninterruptedNode<'a>(pub(super) &'a dyn NodeOperations);

impl NodeOperations for UninterruptedNode<'_> {
    fn systemctl(&self, arguments: &[&str]) -> Result<String, String> {
        self.0.systemctl(arguments)
    }
    fn runtime(&self, socket: &Path) -> Result<super::machine::RuntimeReadiness, String> {
        self.0.runtime(socket)
    }
    fn pods(&self, socket: &Path) -> Result<usize, String> {
        self.0.pods(socket)
    }
    fn healthz(&self) -> bool {
        self.0.healthz()
    }
    fn connected(&self, unit: &str, socket: &Path) -> bool {
        self.0.connected(unit, socket)
    }
    fn pause(&self, time: Duration) {
        self.0.pause(time);
    }
}

/// Joins what went wrong, if anything.
pub(super) fn joined(problems: &[impl Display]) -> Result<(), String> {
    if problems.is_empty() {
        Ok(())
    } else {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        Err(problems.join("; "))
    }
}
