//! Metrics of this process: the conventional `process_*`, the async runtimes, and the version and configuration in use.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::unistd::{SysconfVar, sysconf};
use tokio::runtime::Handle;

use super::computed::ComputedSeries;
use super::metric::{Metric, MetricKind, Unit, metrics, one};
use super::registry::{Registry, RegistryError};
use crate::version::{self, VERSION};

metrics! {
    BUILD_INFO = Metric::gauge("build_info", Unit::Flag,
        &[one("version", "version of the program"), one("commit", "commit it was built from, or `unknown`")],
        "The program that runs; always 1.");
    CONFIG_HASH_INFO = Metric::gauge("config_hash_info", Unit::Flag, &[one("hash", "hash of the configuration in force")],
        "The configuration in force; always 1.");
    CONFIG_TAKEN_OVER = Metric::gauge("config_last_reload_successful", Unit::Flag, &[],
        "1 if the configuration was taken over when it was last read; 0 if the one before it is still in force.");
    START_TIME = Metric::gauge("start_time_seconds", Unit::Seconds, &[],
        "When the process set up its telemetry.");
    TOKIO_WORKERS = Metric::gauge("tokio_workers", Unit::Count, &[],
        "Worker threads of the async runtimes.");
    TOKIO_ALIVE_TASKS = Metric::gauge("tokio_alive_tasks", Unit::Count, &[],
        "Tasks alive in the async runtimes.");
    TOKIO_GLOBAL_QUEUE_DEPTH = Metric::gauge("tokio_global_queue_depth", Unit::Count, &[],
        "Tasks that wait in the global queues of the async runtimes.");
    PROCESS_CPU = Metric::process(MetricKind::Counter, "process_cpu_seconds_total", Unit::Seconds,
        "User and system CPU time used.");
    PROCESS_RESIDENT_MEMORY = Metric::process(MetricKind::Gauge, "process_resident_memory_bytes", Unit::Bytes,
        "Resident memory.");
    PROCESS_VIRTUAL_MEMORY = Metric::process(MetricKind::Gauge, "process_virtual_memory_bytes", Unit::Bytes,
        "Virtual memory.");
    PROCESS_OPEN_FDS = Metric::process(MetricKind::Gauge, "process_open_fds", Unit::Count,
        "Open file descriptors.");
    PROCESS_MAX_FDS = Metric::process(MetricKind::Gauge, "process_max_fds", Unit::Count,
        "Soft limit of open file descriptors.");
    PROCESS_THREADS = Metric::process(MetricKind::Gauge, "process_threads", Unit::Count,
        "Threads of the process.");
    PROCESS_START_TIME = Metric::process(MetricKind::Gauge, "process_start_time_seconds", Unit::Seconds,
        "When the kernel started the process.");
}

/// Hash of the configuration in force, which a reload changes, and whether the last reload was refused.
#[derive(Clone, Debug, Default)]
pub struct ConfigHash {
    hash: Arc<Mutex<String>>,
    is_refused: Arc<AtomicBool>,
}

impl ConfigHash {
    /// Sets the hash of the configuration now in force.
    pub fn set(&self, hash: &str) {
        *self.hash.lock().unwrap_or_else(PoisonError::into_inner) = hash.to_owned();
        self.is_refused.store(false, Ordering::Relaxed);
    }

    /// Notes that another configuration was refused: this one stays in force.
    pub fn refused(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Returns the hash.
    pub fn get(&self) -> String {
        self.hash
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Registers the metrics of this module. Metrics of `runtimes` are sums.
///
/// # Errors
/// If a metric is registered already.
pub fn register(
    registry: &Registry,
    config: ConfigHash,
    runtimes: Vec<Handle>,
) -> Result<(), RegistryError> {
    let started = since_epoch(SystemTime::now());
    registry.computed(&BUILD_INFO, |out| {
        out.put(&[VERSION, version::commit().unwrap_or("unknown")], 1.0);
    })?;
    let is_refused = Arc::clone(&config.is_refused);
    registry.computed(&CONFIG_HASH_INFO, move |out| out.put(&[&config.get()], 1.0))?;
    registry.computed(&CONFIG_TAKEN_OVER, move |out| {
        let taken_over = !is_refused.load(Ordering::Relaxed);
        out.put(&[], if taken_over { 1.0 } else { 0.0 });
    })?;
    registry.computed(&START_TIME, move |out| out.put(&[], started))?;
    register_runtimes(registry, runtimes)?;
    register_process(registry)
}

fn register_runtimes(registry: &Registry, runtimes: Vec<Handle>) -> Result<(), RegistryError> {
    type ReadRuntime = fn(&Handle) -> usize;
    let runtimes: Arc<[Handle]> = runtimes.into();
    let gauges: [(_, ReadRuntime); 3] = [
        (&TOKIO_WORKERS, |h| h.metrics().num_workers()),
        (&TOKIO_ALIVE_TASKS, |h| h.metrics().num_alive_tasks()),
        (&TOKIO_GLOBAL_QUEUE_DEPTH, |h| {
            h.metrics().global_queue_depth()
        }),
    ];
    for (gauge, read) in gauges {
        let runtimes = Arc::clone(&runtimes);
        registry.computed(gauge, move |out| {
            out.put(&[], runtimes.iter().map(read).sum::<usize>() as f64);
        })?;
    }
    Ok(())
}

fn register_process(registry: &Registry) -> Result<(), RegistryError> {
    /// Adds a value; one that cannot be read is omitted.
    fn put(out: &mut ComputedSeries, value: Option<f64>) {
        if let Some(value) = value {
            out.put(&[], value);
        }
    }
    registry.computed(&PROCESS_CPU, |out| put(out, cpu_seconds()))?;
    registry.computed(&PROCESS_RESIDENT_MEMORY, |out| {
        put(out, status("VmRSS:").map(|kib| kib * 1024.0))
    })?;
    registry.computed(&PROCESS_VIRTUAL_MEMORY, |out| {
        put(out, status("VmSize:").map(|kib| kib * 1024.0))
    })?;
    registry.computed(&PROCESS_THREADS, |out| put(out, status("Threads:")))?;
    registry.computed(&PROCESS_OPEN_FDS, |out| put(out, open_fds()))?;
    registry.computed(&PROCESS_MAX_FDS, |out| put(out, max_fds()))?;
    let started = start_time();
    registry.computed(&PROCESS_START_TIME, move |out| put(out, started))
}

fn since_epoch(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs_f64()
}

fn cpu_seconds() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let times = [usage.user_time(), usage.system_time()];
    let seconds = times.map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6);
    Some(seconds.iter().sum())
}

/// Reads a number from `/proc/self/status`; sizes are in KiB.
fn status(key: &str) -> Option<f64> {
    field(&fs::read_to_string("/proc/self/status").ok()?, key)
}

fn field(status: &str, key: &str) -> Option<f64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn open_fds() -> Option<f64> {
    // One entry is the directory opened for this.
    let entries = fs::read_dir("/proc/self/fd").ok()?.count();
    Some(entries.saturating_sub(1) as f64)
}

fn max_fds() -> Option<f64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some(soft as f64)
}

/// Reads the start of the process, in clock ticks since boot (proc(5), `/proc/PID/stat`, field 22).
fn start_time() -> Option<f64> {
    let ticks = start_ticks(&fs::read_to_string("/proc/self/stat").ok()?)?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    let boot = field(&fs::read_to_string("/proc/stat").ok()?, "btime")?;
    Some(boot + ticks / per_second as f64)
}

/// Field 2, the command name, is in parentheses and may itself contain parentheses.
fn start_ticks(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_found_after_an_odd_command_name() {
        let stat = "1 (a) b) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 424242 1 2 3";
        assert_eq!(start_ticks(stat), Some(424242.0));
        assert_eq!(start_ticks(""), None);
    }

    #[test]
    fn status_fields_match_whole_names() {
        let text = "VmSize:\t  12 kB\nVmRSS:\t  34 kB\nThreads:\t5\n";
        assert_eq!(field(text, "VmRSS:"), Some(34.0));
        assert_eq!(field(text, "Threads:"), Some(5.0));
        assert_eq!(field(text, "VmHWM:"), None);
    }

    #[tokio::test]
    async fn process_metrics_are_plausible() {
        let registry = Registry::new(prometheus::Registry::new(), []);
        let config = ConfigHash::default();
        config.set("abc");
        register(&registry, config.clone(), vec![Handle::current()]).expect("registers");
        let value = |name: &str| {
            let families = registry.gather();
            let family = families.iter().find(|f| f.name() == name).expect(name);
            let sample = &family.get_metric()[0];
            sample.get_gauge().get_value() + sample.get_counter().get_value()
        };
        let now = since_epoch(SystemTime::now());
        assert!(value("process_cpu_seconds_total") > 0.0);
        assert!(value("process_resident_memory_bytes") > 1e5);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") > value("process_open_fds"));
        assert!(value("process_threads") >= 1.0);
        let age = now - value("process_start_time_seconds");
        assert!((-1.0..3600.0).contains(&age), "{age}");
        assert_eq!(value("criscope_tokio_workers"), 1.0);
        assert_eq!(value("criscope_config_last_reload_successful"), 1.0);
        config.refused();
        assert_eq!(value("criscope_config_last_reload_successful"), 0.0);
        config.set("def");
        assert_eq!(value("criscope_config_last_reload_successful"), 1.0);
        let text = String::from_utf8(registry.encode().expect("encodes")).expect("utf-8");
        assert!(
            text.contains("criscope_config_hash_info{hash=\"def\"} 1\n"),
            "{text}"
        );
        assert!(!text.contains("abc"));
    }
}
