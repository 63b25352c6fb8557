//! What error texts may quote of a request, and that none of its secrets is among it: no canary has a part in common with
//! another, so that each is found by its own value only.

use criscope::cri::Method;
use criscope::cri::identity::{QUOTABLE, SHOWN};
use criscope::cri::secrets::{Secrets, Value, each_value};
use prost::Message;

use super::filler::{Filler, leaks_of, pool};
use super::shown::{each_field, each_map, methods};
use super::words::{percent, texts};
use crate::prelude::*;

/// A window of a secret of an earlier request: shorter parts are not recognised.
const WINDOW: usize = 6;

/// A word that is not known to the program.
const FACT: &str = "plugin sticky-zebra failed";

#[test]
fn what_may_be_quoted_is_on_the_list() {
    let pool = pool();
    let mut quotable = BTreeSet::new();
    let mut read = 0;
    for (method, of) in methods(&pool) {
        let is_plain = |bytes: &[u8], value: &str| {
            let (mut plain, mut secret) = (false, false);
            each_value(method, bytes, &mut |it| match it {
                Value::Plain(it) | Value::Program(it) => plain |= contains(it, value),
                Value::Secret(it) => secret |= contains(it, value),
            })?;
            assert!(plain != secret, "{method}: {value} is neither or both");
            Some(plain)
        };
        each_field(&of.input(), &mut |field, bytes, value| {
            if let Some(is_plain) = is_plain(bytes, value) {
                read += 1;
                let is_listed = SHOWN.contains(&field) || QUOTABLE.contains(&field);
                assert_eq!(is_plain, is_listed, "{method}: {field}");
                quotable.insert(field.to_owned());
            }
        });
        each_map(&of.input(), &mut |entry, with| {
            let name = format!("{entry}.key");
            let bytes = with("kwyjibo", "zqvex");
            let (Some(is_plain), value) = (is_plain(&bytes, "kwyjibo"), is_plain(&bytes, "zqvex"))
            else {
                return;
            };
            assert_eq!(is_plain, QUOTABLE.contains(&&*name), "{method}: {name}");
            assert_eq!(value, Some(false), "{method}: {entry}.value");
            quotable.insert(name);
        });
    }
    assert!(read > 150, "{read}");
    let idle: Vec<_> = QUOTABLE
        .iter()
        .filter(|name| !quotable.contains(**name))
        .collect();
    assert_eq!(idle, Vec::<&&str>::new(), "on the list, but in no request");
}

fn contains(bytes: &[u8], value: &str) -> bool {
    let mut windows = bytes.windows(value.len());
    windows.any(|window| window == value.as_bytes())
}

/// Requests of one pod with everything filled in, and the cores of their secrets.
struct Pod {
    run: v1::RunPodSandboxRequest,
    pull: v1::PullImageRequest,
    create: v1::CreateContainerRequest,
    secrets: Vec<String>,
    cores: Vec<String>,
}

const SANDBOX: &str = "sandbox-1";
const CONTAINER: &str = "container-1";

impl Pod {
    fn new() -> Self {
        let pool = pool();
        let mut filler = Filler::distinct();
        let mut filled = |name: &str| {
            let of = pool.get_message_by_name(&format!("runtime.v1.{name}"));
            filler.bytes(&of.expect("message"))
        };
        let run = filled("RunPodSandboxRequest");
        let run = v1::RunPodSandboxRequest::decode(&*run).expect("run");
        let pull = filled("PullImageRequest");
        let mut pull = v1::PullImageRequest::decode(&*pull).expect("pull");
        let create = filled("CreateContainerRequest");
        let mut create = v1::CreateContainerRequest::decode(&*create).expect("create");
        pull.sandbox_config.clone_from(&run.config);
        create.sandbox_config.clone_from(&run.config);
        create.pod_sandbox_id = SANDBOX.to_owned();
        let cores = filler.cores.expect("cores");
        // What nothing holds any more is no secret.
        let sent = [
            run.encode_to_vec(),
            pull.encode_to_vec(),
            create.encode_to_vec(),
        ]
        .concat();
        let is_sent = |secret: &String| {
            cores
                .iter()
                .any(|core| secret.contains(core) && contains(&sent, core))
        };
        let secrets = filler.secrets.into_iter().filter(is_sent).collect();
        Self {
            run,
            pull,
            create,
            secrets,
            cores,
        }
    }

    /// Error texts that quote the secrets which these messages hold.
    fn texts(&self, messages: &[&[u8]]) -> Vec<String> {
        let sent = messages.concat();
        let is_sent = |secret: &&String| {
            let mut cores = self.cores.iter().filter(|core| secret.contains(*core));
            cores.any(|core| contains(&sent, core))
        };
        let secrets: Vec<_> = self.secrets.iter().filter(is_sent).cloned().collect();
        assert!(!secrets.is_empty());
        texts(&secrets, 700)
    }
}

struct Session {
    fake: Fake,
    client: Client,
    calls: usize,
}

impl Session {
    async fn fails(&mut self, method: &str, request: &[u8], texts: &[String]) {
        for text in texts {
            let text = format!("{FACT}: {text}: {FACT}");
            self.fake.always(script::error(13, &percent(&text)));
            let got = self.client.call(call(method, request)).await;
            assert_eq!(got.code(), 13, "{method}");
            self.calls += 1;
        }
    }

    async fn succeeds(&mut self, method: &str, request: &[u8], answer: &[u8]) {
        self.fake.always(script::ok(&[message(answer)]));
        let got = self.client.call(call(method, request)).await;
        assert_eq!(got.code(), 0, "{method}");
        self.calls += 1;
    }
}

fn call(method: &str, request: &[u8]) -> Call {
    match method {
        "PullImage" => Call::image(method, message(request)),
        _ => Call::runtime(method, message(request)),
    }
}

/// Facts that no request holds are shown, and no secret of the present request or of an earlier one is.
#[tokio::test(flavor = "multi_thread")]
async fn errors_are_redacted_by_value() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    let config = format!(
        "[telemetry.otlp]\nendpoint = \"{}\"\ntimeout = \"120s\"\n",
        collector.endpoint()
    );
    let proxy = Start::new(crate::CRISCOPE)
        .config(&config)
        .upstream(fake.path())
        .env("OTEL_BSP_MAX_QUEUE_SIZE", "60000")
        .spawn();
    proxy.wait_ready().await;
    let client = proxy.client().await;
    let mut session = Session {
        fake,
        client,
        calls: 0,
    };
    let pod = Pod::new();
    let run = pod.run.encode_to_vec();
    let pull = pod.pull.encode_to_vec();
    let create = pod.create.encode_to_vec();

    let id = |id: &str| {
        v1::RunPodSandboxResponse {
            pod_sandbox_id: id.to_owned(),
        }
        .encode_to_vec()
    };
    session
        .fails("RunPodSandbox", &run, &pod.texts(&[&run]))
        .await;
    session.succeeds("RunPodSandbox", &run, &id(SANDBOX)).await;
    session
        .fails("PullImage", &pull, &pod.texts(&[&run, &pull]))
        .await;
    session.succeeds("PullImage", &pull, &[]).await;
    let all = pod.texts(&[&run, &pull, &create]);
    session.fails("CreateContainer", &create, &all).await;
    session
        .succeeds("CreateContainer", &create, &id(CONTAINER))
        .await;
    for method in ["StartContainer", "StopContainer", "RemoveContainer"] {
        session.fails(method, &id(CONTAINER), &all).await;
    }
    for method in ["StopPodSandbox", "RemovePodSandbox"] {
        session.fails(method, &id(SANDBOX), &all).await;
    }
    let shown = session.calls;
    // Its answer could quote anything.
    session.fails("ExecSync", &id(CONTAINER), &all[..3]).await;

    let (_, calls) = proxy.get("/debug/rpcz?format=json").await;
    let log = proxy.stop().await.join("\n");
    let mut exported = Vec::new();
    for request in collector.requests() {
        exported.extend(request.encode_to_vec());
    }
    for job in collector.jobs() {
        exported.extend(job.encode_to_vec());
    }
    let spans = String::from_utf8_lossy(&exported);
    let seen = [calls, log, spans.into_owned()].concat();
    for core in &pod.cores {
        assert_eq!(leaks_of(core, WINDOW, &seen), [""; 0], "{core}");
    }
    assert!(
        seen.matches(FACT).count() > shown,
        "{} of {shown}",
        seen.matches(FACT).count()
    );
    assert!(seen.contains("plugin <redacted> failed"), "ExecSync");
}

/// A process that has not seen a pod's requests does not know its secrets.
#[tokio::test(flavor = "multi_thread")]
async fn errors_about_pods_of_an_earlier_process_show_known_words_only() {
    let fake = Fake::new();
    let proxy = Start::new(crate::CRISCOPE)
        .upstream(fake.path())
        .ready()
        .await;
    let mut session = Session {
        client: proxy.client().await,
        fake,
        calls: 0,
    };
    let id = requests::start(CONTAINER);
    let id = id.encode_to_vec();
    session
        .fails("StartContainer", &id, &["hunter2".to_owned()])
        .await;
    let log = proxy.stop().await.join("\n");
    assert!(log.contains("plugin <redacted> failed"), "{log}");
    assert!(!log.contains("hunter2") && !log.contains("zebra"), "{log}");
}

#[test]
fn methods_without_secrets_are_not_remembered() {
    for (method, of) in methods(&pool()) {
        let mut secrets = 0;
        let mut filler = Filler::default();
        let bytes = filler.bytes(&of.input());
        each_value(method, &bytes, &mut |value| {
            secrets += usize::from(matches!(value, Value::Secret(_)))
        });
        let has_secrets = secrets > 0;
        let is_own = method == Method::UpdatePodSandboxResources;
        assert!(
            Secrets::are_in(method) || !has_secrets || is_own,
            "{method}"
        );
    }
}
