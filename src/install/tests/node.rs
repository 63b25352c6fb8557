//! A machine for tests: real files below a directory, and units, sockets and a kubelet that do what those files say.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::detect::DetectedKubelet;
use super::super::machine::{NodeOperations, RuntimeReadiness};
use super::super::run::{InstallError, Installer};
use super::super::{
    FilesystemRoot, InstallMode, InstallOptions, InstallPlan, PlanError, RemovalPlan,
};
use super::fixtures::Fixture;
use crate::config::{Config, FlagOverrides};
use crate::settings::lexical;

/// What a crash unwinds with.
pub(super) struct PowerOff;

pub(super) struct Node {
    _directory: tempfile::TempDir,
    pub(super) root: FilesystemRoot,
    pub(super) unit: &'static str,
    socket: PathBuf,
    /// Running units; of the kubelet and the runtime, the socket that they had when they started.
    running: RefCell<BTreeMap<String, Option<PathBuf>>>,
    pub(super) log: RefCell<Vec<String>>,
    /// At which point the power goes off.
    pub(super) power_off: Cell<Option<usize>>,
    pub(super) points: Cell<usize>,
    /// The kubelet cannot work with this socket.
    pub(super) rejects: RefCell<Option<PathBuf>>,
    /// Units that failed too often.
    pub(super) limited: RefCell<BTreeSet<String>>,
    pub(super) broken_runtime: Cell<bool>,
    pub(super) interrupt_at: Cell<Option<usize>>,
    pub(super) pods: Cell<usize>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Node")
    }
}

const CRISCOPE: &str = "criscope.service";

impl Node {
    pub(super) fn new(fixture: &Fixture) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let root = FilesystemRoot::at(directory.path());
        let node = Self {
            root,
            unit: fixture.unit,
            socket: fixture.socket.into(),
            running: RefCell::default(),
            log: RefCell::default(),
            power_off: Cell::default(),
            points: Cell::default(),
            rejects: RefCell::default(),
            limited: RefCell::default(),
            broken_runtime: Cell::default(),
            interrupt_at: Cell::default(),
            pods: Cell::default(),
            _directory: directory,
        };
        for (path, text) in fixture.files {
            node.write(path, text);
        }
        for directory in [
            "/run",
            "/etc/systemd/system/multi-user.target.wants",
            "/var/lib",
            "/usr/local/bin",
        ] {
            fs::create_dir_all(node.root.path(directory)).expect("made");
        }
        node.write("/download/criscope", "program 1");
        node.boot(true);
        node
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.root.path(path);
        fs::create_dir_all(path.parent().expect("one")).expect("made");
        fs::write(&path, text).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o640)).expect("set");
    }

    pub(super) fn read(&self, path: &str) -> Option<String> {
        self.root.text(path).expect("text")
    }

    pub(super) fn options(&self, mode: InstallMode) -> InstallOptions {
        InstallOptions {
            mode,
            upstream: None,
            unit: None,
            cluster: None,
            agent: false,
            bypass: None,
            program: self.root.path("/download/criscope"),
        }
    }

    pub(super) fn installer(&self) -> Installer<'_> {
        Installer {
            root: &self.root,
            machine: self,
            patience: Duration::from_secs(20),
            say: &|_| {},
        }
    }

    pub(super) fn plan(&self, mode: InstallMode) -> Result<InstallPlan, PlanError> {
        InstallPlan::make(&self.root, self, &self.options(mode))
    }

    pub(super) fn install(&self, mode: InstallMode) -> Result<(), InstallError> {
        let plan = self.plan(mode).expect("a plan");
        self.installer().install(&plan)
    }

    pub(super) fn uninstall(&self) -> Result<(), InstallError> {
        let removal = RemovalPlan::make(&self.root)?;
        self.installer().uninstall(&removal)
    }

    /// Files and links that survive a reboot, with their contents and modes.
    pub(super) fn files(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        walk(&self.root.path("/"), &mut found);
        let base = self.root.path("/");
        let kept = found.into_iter().filter_map(|(path, state)| {
            let path = path.strip_prefix(&base).ok()?.to_owned();
            let gone = path.starts_with("run") || path.starts_with("download");
            (!gone).then_some((path, state))
        });
        kept.collect()
    }

    /// The power goes on; `recovers` tells whether the recovery unit is run if it is there.
    pub(super) fn boot(&self, recovers: bool) {
        self.power_off.set(None);
        self.running.borrow_mut().clear();
        let _ = fs::remove_dir_all(self.root.path("/run/criscope"));
        let wants = "/etc/systemd/system/multi-user.target.wants";
        let linked = |unit: &str| {
            let link = fs::read_link(self.root.path(format!("{wants}/{unit}")));
            link.is_ok_and(|target| self.root.has(target))
        };
        if recovers
            && linked("criscope-recover.service")
            && self.root.has(super::super::journal::TRANSACTION)
        {
            self.installer().recover(true).expect("recovered");
        }
        for unit in ["containerd.service", "crio.service"] {
            if !self.fragments(unit).is_empty() {
                self.start(unit);
            }
        }
        if linked(CRISCOPE) {
            self.start(CRISCOPE);
        }
        self.start(self.unit);
    }

    /// The kubelet runs, and the socket it uses answers.
    pub(super) fn works(&self) -> Result<PathBuf, String> {
        let running = self.running.borrow().get(self.unit).cloned().flatten();
        let socket = running.ok_or("the kubelet does not run")?;
        let ready = self.runtime(&socket)?;
        if ready.runtime {
            Ok(socket)
        } else {
            Err("not ready".to_owned())
        }
    }

    fn fragments(&self, unit: &str) -> Vec<PathBuf> {
        let directories = ["/etc/systemd/system", "/usr/lib/systemd/system"];
        let main = directories
            .iter()
            .map(|directory| Path::new(directory).join(unit));
        let main = main.into_iter().find(|path| self.root.has(path));
        let mut drop_ins: Vec<_> = directories
            .iter()
            .flat_map(|directory| self.root.names(format!("{directory}/{unit}.d"), &["conf"]))
            .collect();
        drop_ins.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
        main.into_iter().chain(drop_ins).collect()
    }

    fn start(&self, unit: &str) {
        let socket = if unit == self.unit {
            let kubelet = DetectedKubelet::find(&self.root, &Stopped(self), Some(unit));
            Some(lexical(&kubelet.expect("a kubelet").runtime))
        } else {
            None
        };
        self.running.borrow_mut().insert(unit.to_owned(), socket);
    }

    fn runs(&self, unit: &str) -> bool {
        self.running.borrow().contains_key(unit)
    }

    /// Where the runtime listens by its configuration.
    fn listens(&self) -> PathBuf {
        let moved = |path: &str, table, key| {
            let text = self.read(path)?;
            super::super::edit::table::get(&text, table, key).expect("toml")
        };
        let crio = self.read("/etc/crio/crio.conf.d/zz-criscope.conf");
        let crio = crio.and_then(|text| Some(text.split('"').nth(1)?.to_owned()));
        let containerd = moved("/etc/containerd/config.toml", "grpc", "address");
        crio.or(containerd)
            .map_or_else(|| self.socket.clone(), PathBuf::from)
    }

    fn systemd(&self, arguments: &[&str]) -> Result<String, String> {
        match arguments {
            ["show", _, "--", unit] => {
                let fragments = self.fragments(unit);
                let mut text = format!(
                    "LoadState={}\nActiveState={}\nMainPID=0\nNRestarts=0\n",
                    if fragments.is_empty() {
                        "not-found"
                    } else {
                        "loaded"
                    },
                    if self.runs(unit) {
                        "active"
                    } else {
                        "inactive"
                    },
                );
                let mut fragments = fragments.iter().map(|path| path.display().to_string());
                text.push_str(&format!(
                    "FragmentPath={}\n",
                    fragments.next().unwrap_or_default()
                ));
                text.push_str(&format!(
                    "DropInPaths={}\n",
                    fragments.collect::<Vec<_>>().join(" ")
                ));
                return Ok(text);
            }
            ["daemon-reload"] => {}
            ["reset-failed", unit] => {
                self.limited.borrow_mut().remove(*unit);
            }
            ["start" | "restart", units @ ..] => {
                for unit in units {
                    if self.fragments(unit).is_empty() {
                        return Err(format!("Unit {unit} not found."));
                    }
                    if self.limited.borrow().contains(*unit) {
                        return Err("Start request repeated too quickly.".to_owned());
                    }
                    self.start(unit);
                    let rejected = self.running.borrow().get(*unit).cloned().flatten();
                    if rejected.is_some() && rejected == *self.rejects.borrow() {
                        self.limited.borrow_mut().insert((*unit).to_owned());
                    }
                }
            }
            ["stop", units @ ..] => {
                for unit in units.iter().filter(|unit| **unit != "--no-block") {
                    self.running.borrow_mut().remove(*unit);
                }
            }
            other => panic!("{other:?}"),
        }
        self.log.borrow_mut().push(arguments.join(" "));
        Ok(String::new())
    }
}

impl NodeOperations for Node {
    fn systemctl(&self, arguments: &[&str]) -> Result<String, String> {
        self.systemd(arguments)
    }

    fn runtime(&self, socket: &Path) -> Result<RuntimeReadiness, String> {
        let ready = RuntimeReadiness {
            runtime: true,
            network: true,
        };
        let socket = lexical(socket);
        let own = !self.fragments("containerd.service").is_empty()
            || !self.fragments("crio.service").is_empty();
        let up = !own || self.runs("containerd.service") || self.runs("crio.service");
        // Also of a socket that criscope has taken over: a runtime removes what is there and binds.
        if up && socket == self.listens() {
            return Ok(ready);
        }
        if self.runs(CRISCOPE) {
            let text = self
                .read("/etc/criscope/criscope.toml")
                .ok_or("no configuration")?;
            let config = Config::from_text("c", &text, &FlagOverrides::default()).expect("valid");
            if config.server.listen == socket {
                if self.broken_runtime.get() {
                    return Err("broken".to_owned());
                }
                return match config
                    .backends
                    .first()
                    .and_then(|backend| backend.endpoint.clone())
                {
                    Some(upstream) => self.runtime(&upstream),
                    None => Ok(ready),
                };
            }
        }
        Err(format!("no process listens on {}", socket.display()))
    }

    fn pods(&self, _socket: &Path) -> Result<usize, String> {
        Ok(self.pods.get())
    }

    fn healthz(&self) -> bool {
        self.runs(self.unit)
    }

    fn connected(&self, unit: &str, socket: &Path) -> bool {
        let used = self.running.borrow().get(unit).cloned().flatten();
        used.as_deref() == Some(&lexical(socket))
            && self.rejects.borrow().as_deref() != Some(socket)
    }

    fn pause(&self, _time: Duration) {}

    fn reached(&self, _point: &str) {
        self.points.set(self.points.get() + 1);
        if self.power_off.get() == Some(self.points.get()) {
            std::panic::resume_unwind(Box::new(PowerOff));
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupt_at
            .get()
            .is_some_and(|at| self.points.get() >= at)
    }
}

/// Reads units without asking what runs.
#[derive(Debug)]
struct Stopped<'a>(&'a Node);

impl NodeOperations for Stopped<'_> {
    fn systemctl(&self, arguments: &[&str]) -> Result<String, String> {
        self.0.systemd(arguments)
    }
    fn runtime(&self, _: &Path) -> Result<RuntimeReadiness, String> {
        unreachable!("not asked")
    }
    fn pods(&self, _: &Path) -> Result<usize, String> {
        unreachable!("not asked")
    }
    fn healthz(&self) -> bool {
        false
    }
    fn connected(&self, _: &str, _: &Path) -> bool {
        false
    }
    fn pause(&self, _: Duration) {}
}

fn walk(directory: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let state = fs::symlink_metadata(&path).expect("there");
        let shown = if state.is_symlink() {
            format!("link {:?}", fs::read_link(&path).expect("a link"))
        } else if state.is_dir() {
            walk(&path, found);
            "directory".to_owned()
        } else {
            let bytes = fs::read(&path).expect("read");
            format!(
                "{:o} {}",
                state.permissions().mode(),
                String::from_utf8_lossy(&bytes)
            )
        };
        found.insert(path, shown);
    }
}
