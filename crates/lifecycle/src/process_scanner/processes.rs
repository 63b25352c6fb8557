//! Processes of the node that may work for a call: those started after the oldest call in flight.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::cni::{self, CniParameters};
use super::oci;
use super::proc::{ProcFs, ProcReadError, ProcessComm, ProcessStat, shown};
use super::upstream::{MonitorArgs, ProcessOwner, Upstream, is_of_another_namespace};

/// Upper bound of processes that are kept. A node has some thousands at most.
const MAX_PROCESSES: usize = 1 << 15;

/// Interval after which an old process is read again.
const OLD_PROCESS_RECHECK: Duration = Duration::from_secs(2);

/// Upper bound of generations that are followed upwards.
const MAX_ANCESTORS: usize = 32;

/// Names of the first process of a node, the parent of services.
const INIT_NAMES: [&str; 2] = ["systemd", "init"];

/// The kind of a process.
#[derive(Debug)]
pub(super) enum ProcessKind {
    /// Older than every call in flight.
    Old,
    /// Not read yet, or between fork and exec.
    New,
    /// Another process.
    Plain,
    /// A CNI plugin, or a program started by one.
    Plugin(CniParameters),
    /// The OCI runtime.
    Runtime(oci::OciCommand),
    /// Another program that the runtime started.
    Helper,
}

/// A process.
#[derive(Debug)]
pub(super) struct ScannedProcess {
    pub(super) comm: ProcessComm,
    pub(super) ppid: u32,
    /// Start time, in ticks since boot.
    pub(super) start: u64,
    pub(super) kind: ProcessKind,
    /// The call that the process works for.
    pub(super) call: Option<u64>,
    /// The number of the last scan that found the process.
    last_scan: u64,
}

/// Denied reads of environments, without one that succeeded, after which plugins are recognised by name.
const MAX_DENIED_READS: u32 = 3;

/// The processes that the last scan found, and the kind of each.
#[derive(Debug)]
pub(super) struct ProcessTable {
    pub(super) proc: ProcFs,
    all: HashMap<u32, ScannedProcess>,
    /// Number of environments that were read.
    environs_read: u32,
    /// Number of environments whose reading was denied.
    environs_denied: u32,
    scan: u64,
    /// Time since boot at which old processes were last read.
    old_checked: Duration,
    /// The runtimes behind the proxy.
    pub(super) upstreams: Vec<Upstream>,
}

impl ProcessTable {
    pub(super) fn new(proc: ProcFs) -> Self {
        Self {
            proc,
            all: HashMap::new(),
            environs_read: 0,
            environs_denied: 0,
            scan: 0,
            old_checked: Duration::ZERO,
            upstreams: Vec::new(),
        }
    }

    /// Returns whether plugins are recognised by name only, because environments may not be read.
    pub(super) fn is_limited(&self) -> bool {
        self.environs_read == 0 && self.environs_denied >= MAX_DENIED_READS
    }

    /// Returns whether other users' processes are visible (`hidepid`, proc(5)): the first process always exists.
    pub(super) fn sees_others(&self) -> bool {
        self.proc.stat(1).is_ok()
    }

    /// Drops all processes and frees the memory.
    pub(super) fn forget(&mut self) {
        self.all = HashMap::new();
        self.old_checked = Duration::ZERO;
    }

    /// Processes started after the oldest call in flight, the oldest first.
    pub(super) fn young(&self) -> Vec<u32> {
        let young = self
            .all
            .iter()
            .filter(|(_, p)| !matches!(p.kind, ProcessKind::Old));
        let mut young: Vec<_> = young.map(|(pid, p)| (p.start, *pid)).collect();
        young.sort_unstable();
        young.into_iter().map(|(_, pid)| pid).collect()
    }

    /// All processes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &ScannedProcess)> {
        self.all.iter().map(|(pid, process)| (*pid, process))
    }

    pub(super) fn get(&self, pid: u32) -> Option<&ScannedProcess> {
        self.all.get(&pid)
    }

    pub(super) fn get_mut(&mut self, pid: u32) -> Option<&mut ScannedProcess> {
        self.all.get_mut(&pid)
    }

    /// The ancestors of a process, its parent first.
    pub(super) fn ancestors(&self, pid: u32) -> impl Iterator<Item = (u32, &ScannedProcess)> {
        let pids = std::iter::successors(self.parent(pid), |pid| self.parent(*pid));
        pids.take(MAX_ANCESTORS)
            .map_while(|pid| Some((pid, self.get(pid)?)))
    }

    fn parent(&self, pid: u32) -> Option<u32> {
        Some(self.get(pid)?.ppid)
    }

    /// Reads the list of processes. Those started before `horizon`, in ticks since boot, are old.
    ///
    /// # Errors
    /// If there is no `/proc`.
    pub(super) fn scan(&mut self, horizon: u64, now: Duration) -> io::Result<()> {
        self.scan += 1;
        let skips_old = now.saturating_sub(self.old_checked) < OLD_PROCESS_RECHECK;
        if !skips_old {
            self.old_checked = now;
        }
        for pid in self.proc.pids()? {
            let known = self.all.get_mut(&pid);
            if let Some(process) = known
                && skips_old
                && matches!(process.kind, ProcessKind::Old)
            {
                process.last_scan = self.scan;
                continue;
            }
            // The process may have exited meanwhile, and a zombie does no work.
            if let Ok(stat) = self.proc.stat(pid)
                && !stat.has_ended()
            {
                self.update(pid, &stat, horizon);
            }
        }
        let scan = self.scan;
        self.all.retain(|_, process| process.last_scan == scan);
        self.classify();
        Ok(())
    }

    fn update(&mut self, pid: u32, stat: &ProcessStat, horizon: u64) {
        let full = self.all.len() >= MAX_PROCESSES;
        let old = stat.start < horizon;
        match self.all.get_mut(&pid) {
            Some(process) if process.start == stat.start => {
                if process.comm != stat.comm {
                    process.comm = stat.comm;
                    if matches!(process.kind, ProcessKind::Plain) {
                        // The process has called exec. Until then it was a copy of its parent.
                        process.kind = ProcessKind::New;
                    }
                }
                process.ppid = stat.ppid;
                process.last_scan = self.scan;
                if old {
                    process.kind = ProcessKind::Old;
                }
            }
            None if full => {}
            // New, or a reused process id.
            _ => {
                let process = ScannedProcess {
                    comm: stat.comm,
                    ppid: stat.ppid,
                    start: stat.start,
                    kind: if old {
                        ProcessKind::Old
                    } else {
                        ProcessKind::New
                    },
                    call: None,
                    last_scan: self.scan,
                };
                self.all.insert(pid, process);
            }
        }
    }

    fn classify(&mut self) {
        for pid in self.young() {
            let Some(process) = self.get(pid).filter(|p| matches!(p.kind, ProcessKind::New)) else {
                continue;
            };
            let (comm, start) = (process.comm, process.start);
            let kind = if oci::is_runtime(&comm) {
                self.runtime(pid, |texts| oci::read(texts, |_| ()))
            } else {
                self.kind_by_origin(pid, &comm)
            };
            // The id may have been reused between the two reads.
            let same = self.proc.stat(pid).is_ok_and(|stat| stat.start == start);
            if same && let Some(process) = self.get_mut(pid) {
                process.kind = kind;
            }
        }
    }

    /// Returns whether a daemon older than the call started the process, as daemons start plugins. The daemon is neither the
    /// first process of the node, which starts services, nor a shim, the parent of containers: environments of their children
    /// are not opened.
    fn may_be_plugin(&self, pid: u32) -> bool {
        let mut started_by = None;
        for (pid, ancestor) in self.ancestors(pid) {
            if oci::is_monitor(&ancestor.comm) {
                return false;
            }
            if started_by.is_none() && matches!(ancestor.kind, ProcessKind::Old) {
                started_by = Some((pid, ancestor));
            }
        }
        started_by
            .is_some_and(|(pid, by)| pid != 1 || !INIT_NAMES.iter().any(|name| by.comm.is(name)))
    }

    fn plugin(&mut self, pid: u32, comm: &ProcessComm) -> ProcessKind {
        let read = self.proc.texts(pid, "environ", |texts| {
            (!texts.is_empty()).then(|| CniParameters::read(texts))
        });
        match read {
            Ok(read) => {
                self.environs_read = self.environs_read.saturating_add(1);
                match read {
                    // The process is in the middle of an exec.
                    None => ProcessKind::New,
                    Some(None) => ProcessKind::Plain,
                    Some(Some(plugin)) => ProcessKind::Plugin(plugin),
                }
            }
            Err(ProcReadError::Denied) => {
                self.environs_denied = self.environs_denied.saturating_add(1);
                if cni::is_well_known(comm) {
                    ProcessKind::Plugin(CniParameters::default())
                } else {
                    ProcessKind::Plain
                }
            }
            // The process is ending, or the next scan reads it again.
            Err(ProcReadError::Gone) => ProcessKind::New,
        }
    }

    /// The kind of a process whose name says nothing, by the process that started it.
    fn kind_by_origin(&mut self, pid: u32, comm: &ProcessComm) -> ProcessKind {
        if self.may_be_plugin(pid) {
            let kind = self.plugin(pid, comm);
            if !matches!(kind, ProcessKind::Plain) {
                return kind;
            }
        }
        if self.may_be_wrapper(pid) {
            self.runtime(pid, oci::read_wrapper)
        } else {
            ProcessKind::Plain
        }
    }

    /// Returns whether a shim or the runtime itself started the process, as they start a wrapper of an OCI runtime. The
    /// containers of a shim are its children too: they have mount namespaces of their own, and their command lines are not
    /// opened.
    fn may_be_wrapper(&self, pid: u32) -> bool {
        let Some((parent, by)) = self.ancestors(pid).next() else {
            return false;
        };
        let is_monitor = oci::is_monitor(&by.comm);
        let mut upstreams = self.upstreams.iter();
        if !is_monitor && !upstreams.any(|upstream| upstream.pid == Some(parent)) {
            return false;
        }
        match (
            self.proc.mount_namespace(parent),
            self.proc.mount_namespace(pid),
        ) {
            (Ok(parent), Ok(own)) => parent == own,
            _ => false,
        }
    }

    fn runtime(
        &mut self,
        pid: u32,
        command: impl Fn(&[u8]) -> Option<oci::OciCommand>,
    ) -> ProcessKind {
        let read = self.proc.texts(pid, "cmdline", |texts| {
            (!texts.is_empty()).then(|| command(texts))
        });
        match read {
            Ok(None) => ProcessKind::New,
            Ok(Some(Some(command))) => ProcessKind::Runtime(command),
            Ok(Some(None)) | Err(_) => ProcessKind::Plain,
        }
    }

    /// The engine that an OCI runtime works for, from its ancestors and command lines.
    pub(super) fn owner(&mut self, pid: u32, monitor: Option<u32>) -> ProcessOwner {
        let other = self.proc.texts(pid, "cmdline", is_of_another_namespace);
        if other != Ok(false) {
            return ProcessOwner::Other;
        }
        let itself = self.get(pid).filter(|own| oci::is_monitor(&own.comm));
        let monitor = monitor.or(itself.map(|_| pid));
        let args = monitor.map(|pid| self.proc.texts(pid, "cmdline", MonitorArgs::read));
        let by_args = match args {
            // A monitor that names a call was matched before: this one belongs to another engine.
            Some(Ok(args)) if args.named => ProcessOwner::Other,
            Some(Ok(args)) => args.owner(&self.upstreams),
            _ => ProcessOwner::Unknown,
        };
        if by_args != ProcessOwner::Unknown {
            return by_args;
        }
        let above = self.ancestors(pid).find_map(|(pid, _)| {
            let mut upstreams = self.upstreams.iter();
            upstreams.find(|upstream| upstream.pid == Some(pid))
        });
        above.map_or(ProcessOwner::Unknown, |upstream| {
            ProcessOwner::Backend(Arc::clone(&upstream.backend))
        })
    }

    /// The name of a process: the file name of its executable if it begins with the comm. Scripts, links to multi-call
    /// binaries and programs that run from memory keep the comm.
    pub(super) fn name(&self, pid: u32, comm: &ProcessComm) -> Arc<str> {
        match self.proc.program(pid) {
            Ok(program) if !comm.bytes().is_empty() && program.starts_with(comm.bytes()) => {
                shown(&program)
            }
            _ => shown(comm.bytes()),
        }
    }
}
