//! Processes of the node that may work for a call: those started after the oldest call in flight.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::cni::{self, Plugin};
use super::oci;
use super::proc::{Comm, Failure, Proc, Stat, shown};
use super::upstream::{MonitorArgs, Owner, Upstream, is_of_another_namespace};

/// Most processes kept. A node has some thousands at most.
const MOST: usize = 1 << 15;

/// For how long an old process is not read again.
const OLD_STAYS: Duration = Duration::from_secs(2);

/// Most generations of ancestors that are followed.
const GENERATIONS: usize = 32;

/// Names of the first process of a node, the parent of services.
const INIT: [&str; 2] = ["systemd", "init"];

/// What a process is.
#[derive(Debug)]
pub(super) enum Kind {
    /// Older than every call in flight.
    Old,
    /// Not read yet, or between fork and exec.
    New,
    /// Something else.
    Plain,
    /// A CNI plugin, or a program started by one.
    Plugin(Plugin),
    /// The OCI runtime.
    Runtime(oci::Verb),
    /// Another program that the runtime started.
    Helper,
}

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) comm: Comm,
    pub(super) ppid: u32,
    /// In ticks since boot.
    pub(super) start: u64,
    pub(super) kind: Kind,
    /// The call it works for.
    pub(super) call: Option<u64>,
    seen: u64,
}

/// Denied reads of environments, without one that succeeded, after which plugins are recognised by name.
const REFUSALS: u32 = 3;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Processes {
    pub(super) proc: Proc,
    all: HashMap<u32, Process>,
    /// Environments that were read, and reads that were denied.
    environs: (u32, u32),
    scan: u64,
    /// When old processes were last verified, since boot.
    sure: Duration,
    /// The runtimes behind the proxy.
    pub(super) upstreams: Vec<Upstream>,
}

impl Processes {
    pub(super) fn new(proc: Proc) -> Self {
        Self {
            proc,
            all: HashMap::new(),
            environs: (0, 0),
            scan: 0,
            sure: Duration::ZERO,
            upstreams: Vec::new(),
        }
    }

    /// Returns whether plugins are recognised by name only, because environments may not be read.
    pub(super) fn is_limited(&self) -> bool {
        self.environs.0 == 0 && self.environs.1 >= REFUSALS
    }

    /// Returns whether other users' processes are visible (`hidepid`, proc(5)): the first process always exists.
    pub(super) fn sees_others(&self) -> bool {
        self.proc.stat(1).is_ok()
    }

    /// Drops all processes and frees the memory.
    pub(super) fn forget(&mut self) {
        self.all = HashMap::new();
        self.sure = Duration::ZERO;
    }

    /// Processes started after the oldest call in flight, the oldest first.
    pub(super) fn young(&self) -> Vec<u32> {
        let young = self
            .all
            .iter()
            .filter(|(_, p)| !matches!(p.kind, Kind::Old));
        let mut young: Vec<_> = young.map(|(pid, p)| (p.start, *pid)).collect();
        young.sort_unstable();
        young.into_iter().map(|(_, pid)| pid).collect()
    }

    /// All processes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Process)> {
        self.all.iter().map(|(pid, process)| (*pid, process))
    }

    pub(super) fn get(&self, pid: u32) -> Option<&Process> {
        self.all.get(&pid)
    }

    pub(super) fn get_mut(&mut self, pid: u32) -> Option<&mut Process> {
        self.all.get_mut(&pid)
    }

    /// The ancestors of a process, its parent first.
    pub(super) fn ancestors(&self, pid: u32) -> impl Iterator<Item = (u32, &Process)> {
        let up = move |pid: u32| Some(self.get(pid)?.ppid);
        let pids = std::iter::successors(up(pid), move |pid| up(*pid)).take(GENERATIONS);
        pids.map_while(|pid| Some((pid, self.get(pid)?)))
    }

    /// Reads the list of processes. Those started before `horizon`, in ticks since boot, are old.
    ///
    /// # Errors
    /// If there is no `/proc`.
    pub(super) fn scan(&mut self, horizon: u64, now: Duration) -> io::Result<()> {
        self.scan += 1;
        let sure = now.saturating_sub(self.sure) < OLD_STAYS;
        if !sure {
            self.sure = now;
        }
        for pid in self.proc.pids()? {
            let known = self.all.get_mut(&pid);
            if let Some(process) = known
                && sure
                && matches!(process.kind, Kind::Old)
            {
                process.seen = self.scan;
                continue;
            }
            // It may have exited meanwhile, and a zombie does no work.
            if let Ok(stat) = self.proc.stat(pid)
                && !stat.has_ended()
            {
                self.take_in(pid, &stat, horizon);
            }
        }
        let scan = self.scan;
        self.all.retain(|_, process| process.seen == scan);
        self.classify();
        Ok(())
    }

    fn take_in(&mut self, pid: u32, stat: &Stat, horizon: u64) {
        let full = self.all.len() >= MOST;
        let old = stat.start < horizon;
        match self.all.get_mut(&pid) {
            Some(process) if process.start == stat.start => {
                if process.comm != stat.comm {
                    process.comm = stat.comm;
                    if matches!(process.kind, Kind::Plain) {
                        // After exec: until then it was a copy of its parent.
                        process.kind = Kind::New;
                    }
                }
                process.ppid = stat.ppid;
                process.seen = self.scan;
                if old {
                    process.kind = Kind::Old;
                }
            }
            None if full => {}
            // New, or a reused process id.
            _ => {
                let process = Process {
                    comm: stat.comm,
                    ppid: stat.ppid,
                    start: stat.start,
                    kind: if old { Kind::Old } else { Kind::New },
                    call: None,
                    seen: self.scan,
                };
                self.all.insert(pid, process);
            }
        }
    }

    fn classify(&mut self) {
        for pid in self.young() {
            let Some(process) = self.get(pid).filter(|p| matches!(p.kind, Kind::New)) else {
                continue;
            };
            let (comm, start) = (process.comm, process.start);
            let kind = match oci::is_runtime(&comm) {
                true => self.runtime(pid, |texts| oci::read(texts, |_| ())),
                false => self.kind_of_any(pid, &comm),
            };
            // The id may have been reused between the two reads.
            let same = self.proc.stat(pid).is_ok_and(|stat| stat.start == start);
            if same && let Some(process) = self.get_mut(pid) {
                process.kind = kind;
            }
        }
    }

    /// Plugins are started by a daemon older than the call. That is neither the first process of the node, which starts
    /// services, nor a shim, the parent of containers: environments of their children are not opened.
    fn may_be_plugin(&self, pid: u32) -> bool {
        let mut started_by = None;
        for (pid, ancestor) in self.ancestors(pid) {
            if oci::is_monitor(&ancestor.comm) {
                return false;
            }
            if started_by.is_none() && matches!(ancestor.kind, Kind::Old) {
                started_by = Some((pid, ancestor));
            }
        }
        started_by.is_some_and(|(pid, by)| pid != 1 || !INIT.iter().any(|name| by.comm.is(name)))
    }

    fn plugin(&mut self, pid: u32, comm: &Comm) -> Kind {
        let read = self.proc.texts(pid, "environ", |texts| {
            (!texts.is_empty()).then(|| Plugin::read(texts))
        });
        match read {
            Ok(read) => {
                self.environs.0 = self.environs.0.saturating_add(1);
                match read {
                    // The process is in the middle of an exec.
                    None => Kind::New,
                    Some(None) => Kind::Plain,
                    Some(Some(plugin)) => Kind::Plugin(plugin),
                }
            }
            Err(Failure::Denied) => {
                self.environs.1 = self.environs.1.saturating_add(1);
                match cni::is_known(comm) {
                    true => Kind::Plugin(Plugin::default()),
                    false => Kind::Plain,
                }
            }
            // It is ending, or is read again.
            Err(Failure::Gone) => Kind::New,
        }
    }

    /// The kind of a process whose name says nothing.
    fn kind_of_any(&mut self, pid: u32, comm: &Comm) -> Kind {
        if self.may_be_plugin(pid) {
            let kind = self.plugin(pid, comm);
            if !matches!(kind, Kind::Plain) {
                return kind;
            }
        }
        match self.may_be_wrapper(pid) {
            true => self.runtime(pid, oci::verb_of_any),
            false => Kind::Plain,
        }
    }

    /// A wrapper of an OCI runtime is started by a shim, or by the runtime itself. The containers of a shim are its children
    /// too: they have mount namespaces of their own, and their command lines are not opened.
    fn may_be_wrapper(&self, pid: u32) -> bool {
        let Some((parent, by)) = self.ancestors(pid).next() else {
            return false;
        };
        let is_monitor = oci::is_monitor(&by.comm);
        if !is_monitor && !self.upstreams.iter().any(|it| it.pid == Some(parent)) {
            return false;
        }
        let namespace = |pid| self.proc.mount_namespace(pid).ok();
        namespace(parent).is_some_and(|of| namespace(pid) == Some(of))
    }

    fn runtime(&mut self, pid: u32, verb: impl Fn(&[u8]) -> Option<oci::Verb>) -> Kind {
        let read = self.proc.texts(pid, "cmdline", |texts| {
            (!texts.is_empty()).then(|| verb(texts))
        });
        match read {
            Ok(None) => Kind::New,
            Ok(Some(Some(verb))) => Kind::Runtime(verb),
            Ok(Some(None)) | Err(_) => Kind::Plain,
        }
    }

    /// The engine that an OCI runtime works for, from its ancestors and command lines.
    pub(super) fn owner(&mut self, pid: u32, monitor: Option<u32>) -> Owner {
        let other = self.proc.texts(pid, "cmdline", is_of_another_namespace);
        if other != Ok(false) {
            return Owner::Other;
        }
        let itself = self.get(pid).filter(|it| oci::is_monitor(&it.comm));
        let monitor = monitor.or(itself.map(|_| pid));
        let args = monitor.map(|pid| self.proc.texts(pid, "cmdline", MonitorArgs::read));
        let by_args = match args {
            // A name that is that of a call was compared before.
            Some(Ok(args)) if args.named => Owner::Other,
            Some(Ok(args)) => args.owner(&self.upstreams),
            _ => Owner::Unknown,
        };
        if by_args != Owner::Unknown {
            return by_args;
        }
        let above = self.ancestors(pid).find_map(|(pid, _)| {
            let mut upstreams = self.upstreams.iter();
            upstreams.find(|upstream| upstream.pid == Some(pid))
        });
        above.map_or(Owner::Unknown, |upstream| {
            Owner::Backend(Arc::clone(&upstream.backend))
        })
    }

    /// The name of a process: that of its executable if the comm is a prefix of it. Scripts, links to multi-call binaries
    /// and programs that run from memory keep the comm.
    pub(super) fn name(&self, pid: u32, comm: &Comm) -> Arc<str> {
        match self.proc.program(pid) {
            Ok(program) if !comm.bytes().is_empty() && program.starts_with(comm.bytes()) => {
                shown(&program)
            }
            _ => shown(comm.bytes()),
        }
    }
}
