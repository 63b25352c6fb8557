//! From a node to a plan: which files change, and what the commands between the changes need to know. A plan is data; making
//! one changes nothing.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::bypass::{self, NoBypass};
use super::config::{self, ExistingConfig, RequiredSettings};
use super::detect::{DetectError, DetectedKubelet};
use super::files;
use super::journal::{AffectedUnits, ChangeGroup, InstallJournal, InstallationRecord};
use super::machine::{NodeOperations, UnitState};
use super::root::FilesystemRoot;
use super::services;
use super::takeover::{self, TakeOverError};
use super::workspace::EditWorkspace;
use crate::config::ConfigErrors;
use crate::settings::{lexical, show_endpoint};

/// Modes of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallMode {
    /// A proxy in front of the runtime that the kubelet uses.
    Front,
    /// The runtime.
    Runtime,
    /// A proxy at the path of the runtime's socket; the runtime moves.
    TakeOver,
}

impl InstallMode {
    /// The mode's name in the record.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Front => "front",
            Self::Runtime => "runtime",
            Self::TakeOver => "take-over",
        }
    }
}

/// Options of `criscope install`.
#[derive(Clone, Debug)]
pub struct InstallOptions {
    /// The mode.
    pub mode: InstallMode,
    /// The runtime's socket, if it is not the one that the kubelet uses.
    pub upstream: Option<PathBuf>,
    /// The kubelet's unit, if it cannot be found.
    pub unit: Option<String>,
    /// The name of the cluster, for the attributes of spans, metrics and log records.
    pub cluster: Option<String>,
    /// True if pods of criscope-agent read a socket of the daemon. A socket from an earlier installation stays in any case.
    pub agent: bool,
    /// Whether calls shall reach the runtime while criscope cannot serve; `None` if an earlier installation decides.
    pub bypass: Option<bool>,
    /// The running program.
    pub program: PathBuf,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The kubelet's configuration is not understood.
    #[error(transparent)]
    Detect(#[from] DetectError),
    /// The runtime's socket cannot be moved.
    #[error(transparent)]
    TakeOver(#[from] TakeOverError),
    /// The existing configuration of criscope is invalid.
    #[error(transparent)]
    Invalid(#[from] ConfigErrors),
    /// The existing configuration of criscope is for something else.
    #[error("{} needs {needs}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The missing setting.
        needs: String,
    },
    /// criscope is installed in another mode.
    #[error("criscope is installed on this node in another mode ({0})")]
    Mode(String),
    /// Nothing tells which runtime is meant.
    #[error("the kubelet already uses {}, and the runtime behind it is unknown", .0.display())]
    NoUpstream(PathBuf),
    /// Pods of another runtime could not be stopped any more.
    #[error("{} still has {pods} pods, and nothing could stop them after the change", runtime.display())]
    Pods {
        /// The socket of the other runtime.
        runtime: PathBuf,
        /// How many.
        pods: usize,
    },
    /// The runtime does not work before the change.
    #[error("the runtime at {} does not work, so nothing is changed: {reason}", runtime.display())]
    Broken {
        /// Socket of the runtime.
        runtime: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A program is missing.
    #[error("{} is missing: the built-in runtime needs it in the directory of criscope", .0.display())]
    NoShim(PathBuf),
    /// A file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl PlanError {
    /// A recommendation for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Detect(error) => error.hint(),
            Self::Config { .. } => {
                Some("change it, or move it away: then `criscope install` writes one")
            }
            Self::Mode(_) => Some("run `criscope uninstall` first"),
            Self::NoUpstream(_) => Some("name it with --upstream"),
            Self::Pods { .. } => Some("drain the node first: docs/MIGRATION.md"),
            Self::Broken { .. } => Some("repair the runtime first: `criscope doctor`"),
            Self::TakeOver(_) | Self::Invalid(_) | Self::NoShim(_) | Self::Io(_) => None,
        }
    }
}

/// The planned content at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedContent {
    /// A text with a mode.
    Text(String, u32),
    /// A copy of a program.
    Program(PathBuf),
    /// A link to a path.
    Link(PathBuf),
}

/// A file that the plan changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedEdit {
    /// Path of the file.
    pub path: PathBuf,
    /// When it changes.
    pub group: ChangeGroup,
    /// The new content.
    pub content: PlannedContent,
}

/// An installation that has not begun.
#[derive(Debug)]
pub struct InstallPlan {
    /// The mode.
    pub mode: InstallMode,
    /// Findings about the node, a sentence each.
    pub found: Vec<String>,
    /// Notes and tasks for the user.
    pub notes: Vec<String>,
    /// Only files that change.
    pub edits: Vec<PlannedEdit>,
    pub(super) units: AffectedUnits,
    /// The runtime that must work; `None` for the built-in one.
    pub(super) upstream: Option<PathBuf>,
    pub(super) record: Option<InstallationRecord>,
}

impl InstallPlan {
    /// Makes the plan for this node.
    ///
    /// # Errors
    /// If the node is not understood, or the result would not work.
    pub fn make(
        root: &FilesystemRoot,
        machine: &dyn NodeOperations,
        options: &InstallOptions,
    ) -> Result<Self, PlanError> {
        let record = InstallJournal { root }.record()?;
        if let Some(record) = record
            .as_ref()
            .filter(|record| record.mode != options.mode.name())
        {
            return Err(PlanError::Mode(record.mode.clone()));
        }
        let kubelet = DetectedKubelet::find(root, machine, options.unit.as_deref())?;
        let sockets = PlannedSockets::choose(root, &kubelet, options, record.as_ref())?;
        let mut edits = services::edits(root, options, &sockets, &kubelet)?;
        let (bypass, no_bypass) = bypass::edits(root, options.mode, options.bypass, &sockets)?;
        edits.extend(bypass);
        let mut moved = EditWorkspace::new(root);
        let mut runtime = None;
        if options.mode == InstallMode::TakeOver {
            runtime = Some(takeover::edit(root, machine, &sockets, &mut moved)?);
        }
        edits.extend(texts(moved, ChangeGroup::Runtime));
        let mut changed = EditWorkspace::new(root);
        if options.mode != InstallMode::TakeOver {
            kubelet.set(&show_endpoint(&sockets.endpoint), &mut changed)?;
        }
        edits.extend(texts(changed, ChangeGroup::Kubelet));
        let mut different = Vec::new();
        for edit in edits {
            if differs(root, &edit)? {
                different.push(edit);
            }
        }
        let plan = Self {
            mode: options.mode,
            found: vec![format!(
                "{}: {} uses {} ({})",
                kubelet.distribution,
                kubelet.unit,
                show_endpoint(&kubelet.runtime),
                kubelet.source
            )],
            notes: notes(&kubelet, &sockets, no_bypass.as_ref()),
            edits: different,
            units: AffectedUnits {
                kubelet: kubelet.unit,
                kubelet_active: kubelet.state.active,
                runtime,
                old: sockets.old.clone(),
                new: sockets.endpoint.clone(),
            },
            upstream: sockets.upstream.clone(),
            record,
        };
        plan.check(machine, &sockets)?;
        Ok(plan)
    }

    /// Nothing would change.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    pub(super) fn has(&self, group: ChangeGroup) -> bool {
        self.edits.iter().any(|edit| edit.group == group)
    }

    /// Checks the conditions for an installation, before anything is changed.
    fn check(
        &self,
        machine: &dyn NodeOperations,
        sockets: &PlannedSockets,
    ) -> Result<(), PlanError> {
        if self.is_empty() {
            return Ok(());
        }
        if self.mode == InstallMode::Runtime {
            let fresh = self.record.is_none() && sockets.old != sockets.endpoint;
            // The pods of a runtime that does not answer cannot be stopped now anyway.
            let pods = machine.pods(&sockets.old).unwrap_or(0);
            if fresh && pods > 0 {
                return Err(PlanError::Pods {
                    runtime: sockets.old.clone(),
                    pods,
                });
            }
            return Ok(());
        }
        let runtime = if self.record.is_none() && self.mode == InstallMode::TakeOver {
            &sockets.old
        } else {
            sockets.upstream.as_ref().unwrap_or(&sockets.old)
        };
        let reason = match machine.runtime(runtime) {
            Ok(ready) if ready.runtime => return Ok(()),
            Ok(_) => "it reports RuntimeReady=false".to_owned(),
            Err(reason) => reason,
        };
        Err(PlanError::Broken {
            runtime: runtime.clone(),
            reason,
        })
    }
}

/// The sockets of a plan.
#[derive(Debug)]
pub(super) struct PlannedSockets {
    /// The kubelet's endpoint without criscope.
    pub(super) old: PathBuf,
    /// criscope's socket.
    pub(super) endpoint: PathBuf,
    /// The runtime behind criscope; `None` for the built-in one.
    pub(super) upstream: Option<PathBuf>,
    /// The configuration of criscope.
    pub(super) config: String,
}

impl PlannedSockets {
    fn choose(
        root: &FilesystemRoot,
        kubelet: &DetectedKubelet,
        options: &InstallOptions,
        record: Option<&InstallationRecord>,
    ) -> Result<Self, PlanError> {
        let text = root.text(config::CONFIG_PATH)?;
        let written = config::written_upstream(text.as_deref());
        let existing = ExistingConfig::from_text(text)?;
        let used = lexical(&kubelet.runtime);
        let configured = existing
            .as_ref()
            .map(|existing| lexical(existing.endpoint()));
        let uses_criscope = record.is_some_and(|record| record.units.new == used)
            || configured.as_ref() == Some(&used)
            || used.starts_with("/run/criscope");
        let old = match record {
            Some(record) => record.units.old.clone(),
            None => used.clone(),
        };
        let (endpoint, upstream) = match options.mode {
            InstallMode::TakeOver => (old.clone(), Some(takeover::moved(&old))),
            InstallMode::Front => {
                let behind = existing
                    .as_ref()
                    .and_then(ExistingConfig::upstream)
                    .or(written);
                let named = options.upstream.as_deref().map(lexical);
                let direct = (!uses_criscope).then(|| used.clone());
                let upstream = named.or(direct).or(behind);
                let upstream = upstream.ok_or_else(|| PlanError::NoUpstream(used.clone()))?;
                (config::endpoint(&upstream, options.mode), Some(upstream))
            }
            InstallMode::Runtime => (PathBuf::from(config::DEFAULT_LISTEN), None),
        };
        // An existing configuration keeps its own socket.
        let endpoint = match &existing {
            Some(existing) if options.mode != InstallMode::TakeOver && !existing.is_packaged() => {
                existing.endpoint().to_owned()
            }
            _ => endpoint,
        };
        let wanted = RequiredSettings {
            endpoint: &endpoint,
            upstream: upstream.as_deref(),
            distribution: kubelet.distribution,
        };
        let config = match existing {
            Some(existing) if existing.is_packaged() => {
                let fits = existing.keep(&wanted);
                fits.unwrap_or_else(|_| config::write(&wanted))
            }
            Some(existing) => existing.keep(&wanted)?,
            None => config::write(&wanted),
        };
        Ok(Self {
            old,
            endpoint,
            upstream,
            config,
        })
    }
}

fn notes(
    kubelet: &DetectedKubelet,
    sockets: &PlannedSockets,
    no_bypass: Option<&NoBypass>,
) -> Vec<String> {
    let mut notes: Vec<_> = kubelet
        .notes
        .iter()
        .map(|note| note.replace("ENDPOINT", &show_endpoint(&sockets.endpoint)))
        .collect();
    if !kubelet.state.active {
        notes.push(format!(
            "{} is not running: criscope neither starts it nor checks that they work together",
            kubelet.unit
        ));
    }
    let is_told = no_bypass.filter(|reason| **reason != NoBypass::BuiltIn);
    notes.extend(is_told.map(|reason| {
        format!("no bypass: {reason}; while criscope cannot serve, the kubelet has no runtime")
    }));
    notes
}

fn texts(files: EditWorkspace<'_>, group: ChangeGroup) -> impl Iterator<Item = PlannedEdit> {
    files
        .finish()
        .into_iter()
        .map(move |(path, text)| PlannedEdit {
            path,
            group,
            content: PlannedContent::Text(text, 0o644),
        })
}

/// Returns whether the plan changes a file. An existing file keeps its mode.
fn differs(root: &FilesystemRoot, edit: &PlannedEdit) -> io::Result<bool> {
    let path = root.path(&edit.path);
    Ok(match &edit.content {
        PlannedContent::Text(text, _) => root.read(&edit.path)?.as_deref() != Some(text.as_bytes()),
        PlannedContent::Program(from) => {
            let new = fs::read(from).map_err(|error| files::at(from, &error))?;
            root.read(&edit.path)? != Some(new)
        }
        PlannedContent::Link(target) => fs::read_link(path).ok().as_ref() != Some(target),
    })
}

/// Returns whether a unit is active.
pub(super) fn active(machine: &dyn NodeOperations, unit: &str) -> bool {
    UnitState::read(machine, unit).is_ok_and(|state| state.active)
}
