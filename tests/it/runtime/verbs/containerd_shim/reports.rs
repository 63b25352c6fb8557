//! Shims whose reports of usage a test makes up: a socket in front of the real shim of a pod.

use std::sync::atomic::AtomicU32;

use criscope_shim::protocol::{
    self, Answer, Failure, Metrics, Request, SYSTEM, Stats, UNIMPLEMENTED,
};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::prelude::*;
use crate::runtime::verbs::old_shim::{directory, frame, replace};

/// The answers of the shim of a pod to queries of statistics.
#[derive(Clone)]
pub(super) struct Reporter {
    answer: Arc<Mutex<Option<Answer>>>,
    asked: Arc<AtomicU32>,
}

impl Reporter {
    /// Restarts the daemon with a shim that answers so, or with `None` never.
    pub(super) async fn of(
        daemon: &mut Daemon,
        pod: &Pod,
        answer: Option<Answer>,
    ) -> (Self, Kubelet) {
        let dir = directory(daemon, pod);
        daemon.kill();
        let (listener, real) = replace(&dir);
        let reporter = Self {
            answer: Arc::new(Mutex::new(answer)),
            asked: Arc::default(),
        };
        let serving = reporter.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(connection, real.clone()));
            }
        });
        (reporter, daemon.serve().await)
    }

    pub(super) fn set(&self, answer: Option<Answer>) {
        *self.answer.lock().expect("lock") = answer;
    }

    /// How often it was asked.
    pub(super) fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    async fn serve(self, daemon: UnixStream, real: PathBuf) {
        let shim = UnixStream::connect(real).await.expect("the shim");
        let (mut from_shim, to_shim) = shim.into_split();
        let (from_daemon, to_daemon) = daemon.into_split();
        let to_daemon = Arc::new(tokio::sync::Mutex::new(to_daemon));
        let answers = async {
            while let Some(bytes) = frame(&mut from_shim).await {
                send(&to_daemon, &bytes).await;
            }
        };
        let requests = self.requests(from_daemon, to_shim, &to_daemon);
        tokio::select! {
            () = answers => {}
            () = requests => {}
        }
    }

    async fn requests(
        &self,
        mut from: OwnedReadHalf,
        mut shim: OwnedWriteHalf,
        daemon: &tokio::sync::Mutex<OwnedWriteHalf>,
    ) {
        while let Some(bytes) = frame(&mut from).await {
            let read = protocol::decode_request(&bytes);
            let Ok((number, Ok(Request::Stats(Stats { .. })))) = read else {
                let len = u32::try_from(bytes.len()).expect("a frame");
                shim.write_u32_le(len).await.expect("written");
                shim.write_all(&bytes).await.expect("written");
                continue;
            };
            self.asked.fetch_add(1, Ordering::SeqCst);
            let answer = self.answer.lock().expect("lock").clone();
            if let Some(answer) = answer {
                let mut out = Vec::new();
                protocol::encode_answer(number, &answer, &mut out);
                send(daemon, &out[4..]).await;
            }
        }
        // The daemon has gone.
        let _ended = from.read_u8().await;
    }
}

async fn send(to: &tokio::sync::Mutex<OwnedWriteHalf>, frame: &[u8]) {
    let mut to = to.lock().await;
    let len = u32::try_from(frame.len()).expect("a frame");
    let _gone = to.write_u32_le(len).await;
    let _gone = to.write_all(frame).await;
}

/// What a shim answers that is older than the request.
pub(super) fn unknown() -> Answer {
    Answer::Failed(Failure {
        kind: UNIMPLEMENTED,
        message: "protocol 2 has no such request".to_owned(),
    })
}

/// The failure of a containerd shim.
pub(super) fn failed() -> Answer {
    Answer::Failed(Failure {
        kind: SYSTEM,
        message: "no statistics today".to_owned(),
    })
}

pub(super) fn metrics(type_url: &str, value: &[u8]) -> Answer {
    Answer::Metrics(Metrics {
        type_url: type_url.to_owned(),
        value: value.to_vec(),
    })
}

/// What gVisor's shim reports: no more than processor time in nanoseconds, memory in bytes, and the number of processes.
pub(super) fn gvisor(time: u64, memory: u64, processes: u64) -> Answer {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Number {
        #[prost(uint64, tag = "1")]
        value: u64,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Cpu {
        #[prost(message, optional, tag = "1")]
        usage: Option<Number>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Entry {
        #[prost(uint64, tag = "2")]
        usage: u64,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Memory {
        #[prost(message, optional, tag = "33")]
        usage: Option<Entry>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct All {
        #[prost(message, optional, tag = "2")]
        pids: Option<Number>,
        #[prost(message, optional, tag = "3")]
        cpu: Option<Cpu>,
        #[prost(message, optional, tag = "4")]
        memory: Option<Memory>,
    }
    let all = All {
        pids: Some(Number { value: processes }),
        cpu: Some(Cpu {
            usage: Some(Number { value: time }),
        }),
        memory: Some(Memory {
            usage: Some(Entry { usage: memory }),
        }),
    };
    metrics("io.containerd.cgroups.v1.Metrics", &all.encode_to_vec())
}
