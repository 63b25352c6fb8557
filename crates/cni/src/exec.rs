//! Runs a plugin with limits on time and output, and kills its process group.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use criscope_linux::environment;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout_at;

use super::error::{Error, PluginError, Verb};
use super::network::blocking;

/// Maximum size of the output, in bytes.
const MAX_STDOUT: u64 = 1 << 20;
/// Maximum size of the error output that is kept, in bytes; the rest is read and discarded.
const MAX_STDERR: u64 = 16 << 10;
/// Maximum length of the output quoted in an error, in characters.
const MAX_WORDS: usize = 512;
/// How long its pipes are read after it has exited: a process that it left behind may keep them open.
const DRAIN: Duration = Duration::from_millis(500);

/// One run of a plugin.
pub(crate) struct Run<'a> {
    pub(crate) plugin: &'a str,
    pub(crate) verb: Verb,
    pub(crate) bin_dirs: &'a [PathBuf],
    pub(crate) env: Vec<(&'static str, String)>,
    pub(crate) stdin: Vec<u8>,
    pub(crate) deadline: Instant,
}

/// Kills the process group when dropped before the process has exited.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // The pid is valid until the process is reaped: it cannot have been reused.
        if let Some(id) = self.0.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
        }
    }
}

impl Run<'_> {
    /// Runs the plugin; returns its standard output if it succeeds.
    pub(crate) async fn output(self) -> Result<Vec<u8>, Error> {
        let candidates = candidates(self.plugin, self.bin_dirs);
        let started = Instant::now();
        let Self {
            plugin,
            verb,
            bin_dirs,
            deadline,
            env,
            stdin,
        } = self;
        let started_group = start(candidates, env).await;
        let Some(mut group) = started_group.map_err(|source| run_error(plugin, source))? else {
            return Err(missing(plugin, bin_dirs));
        };
        match timeout_at(deadline.into(), converse(&mut group.0, &stdin)).await {
            Ok(Ok(done)) => done.judge(plugin, verb),
            Ok(Err(source)) => Err(run_error(plugin, source)),
            Err(_) => {
                drop(group);
                Err(Error::TimedOut {
                    plugin: plugin.to_owned(),
                    verb,
                    after: started.elapsed(),
                })
            }
        }
    }
}

/// The number of the first of these plugins that is not installed.
pub(crate) async fn first_missing(
    plugins: impl Iterator<Item = &str>,
    bin_dirs: &[PathBuf],
) -> Result<Option<usize>, Error> {
    let programs = plugins.map(|plugin| candidates(plugin, bin_dirs));
    let mut programs = programs.collect::<Vec<_>>().into_iter();
    blocking(move || Ok(programs.position(|one| installed(one).is_none()))).await
}

/// Where the program of a plugin may be.
fn candidates(plugin: &str, bin_dirs: &[PathBuf]) -> Vec<PathBuf> {
    bin_dirs.iter().map(|dir| dir.join(plugin)).collect()
}

/// The first of these programs that exists.
fn installed(candidates: Vec<PathBuf>) -> Option<PathBuf> {
    candidates.into_iter().find(|path| path.is_file())
}

fn run_error(plugin: &str, source: io::Error) -> Error {
    Error::Run {
        plugin: plugin.to_owned(),
        source,
    }
}

pub(crate) fn missing(plugin: &str, bin_dirs: &[PathBuf]) -> Error {
    Error::PluginMissing {
        plugin: plugin.to_owned(),
        dirs: bin_dirs.to_vec(),
    }
}

/// Starts the first of these programs that exists. Spawning blocks the thread until the program is loaded, and a slow disk
/// may delay the search, so it does not run on the caller's thread.
async fn start(
    candidates: Vec<PathBuf>,
    env: Vec<(&'static str, String)>,
) -> io::Result<Option<Group>> {
    tokio::task::spawn_blocking(move || {
        let program = installed(candidates);
        program.map(|program| spawn(&program, env)).transpose()
    })
    .await
    .map_err(io::Error::other)?
}

fn spawn(program: &Path, env: Vec<(&'static str, String)>) -> io::Result<Group> {
    let mut command = Command::new(program);
    // Like libcni, passes on the environment, which plugins depend on (PATH, KUBECONFIG, proxies), except `CNI_`
    // variables.
    for (key, _) in std::env::vars_os() {
        if key.to_string_lossy().starts_with("CNI_") {
            command.env_remove(key);
        }
    }
    for name in environment::SERVICE_MANAGER {
        command.env_remove(name);
    }
    command
        .envs(env)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    // A plugin that is being installed is open for writing (ETXTBSY); libcni retries as well.
    for _ in 0..10 {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(50));
            }
            other => return other.map(Group),
        }
    }
    command.spawn().map(Group)
}

struct Done {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    too_much: bool,
}

async fn converse(child: &mut Child, stdin: &[u8]) -> io::Result<Done> {
    let (input, output, complaints) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let status = {
        let tell = async {
            if let Some(mut input) = input {
                // A plugin that does not read its input may still succeed; its exit code decides.
                let _ = input.write_all(stdin).await;
            }
        };
        let read_out = take(output, MAX_STDOUT + 1, &mut stdout);
        let read_err = take(complaints, MAX_STDERR, &mut stderr);
        let mut pipes = std::pin::pin!(async { tokio::join!(tell, read_out, read_err) });
        tokio::select! {
            _ = &mut pipes => child.wait().await?,
            status = child.wait() => {
                let _ = tokio::time::timeout(DRAIN, &mut pipes).await;
                status?
            }
        }
    };
    let too_much = stdout.len() as u64 > MAX_STDOUT;
    Ok(Done {
        status,
        stdout,
        stderr,
        too_much,
    })
}

/// Keeps the first `most` bytes and continues reading, so that the writer does not block.
async fn take(pipe: Option<impl AsyncRead + Unpin>, most: u64, into: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else { return };
    let kept = (&mut pipe).take(most).read_to_end(into).await;
    if kept.is_ok() {
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
}

impl Done {
    fn judge(self, plugin: &str, verb: Verb) -> Result<Vec<u8>, Error> {
        let plugin = plugin.to_owned();
        if self.too_much {
            let why = format!("more than {MAX_STDOUT} bytes");
            return Err(Error::BadResult { plugin, verb, why });
        }
        if self.status.success() {
            return Ok(self.stdout);
        }
        // An object with neither code nor message is not an error.
        match serde_json::from_slice::<PluginError>(&self.stdout) {
            Ok(error) if error.code != 0 || !error.msg.is_empty() => Err(Error::Plugin {
                plugin,
                verb,
                error,
            }),
            _ => Err(Error::PluginFailed {
                plugin,
                verb,
                status: self.status.to_string(),
                output: words(&[self.stderr, self.stdout].concat()),
            }),
        }
    }
}

/// Returns the text as one line, truncated, without control characters.
fn words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let plain = text
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c });
    plain.take(MAX_WORDS).collect()
}
