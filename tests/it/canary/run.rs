//! Sends every call with everything filled in, once well and then with every sort of quoting error, and gathers all that
//! is to be seen from outside.

use std::borrow::Cow;

use criscope::cri::identity::SHOWN;
use http::request::Parts;
use prost::Message;

use super::expected;
use super::filler::{Filler, pool};
use super::shown::methods;
use super::words::{head, metadata, percent, texts, trailers};
use crate::prelude::*;

/// Runs of which one has to lose nothing.
const TRIES: usize = 5;

/// What was seen.
pub(super) struct Run {
    /// Everything that is to be seen from outside, by place.
    pub(super) places: Vec<(&'static str, Vec<u8>)>,
    tokens: Vec<(String, String)>,
}

impl Run {
    /// The fields on the list whose token is in one of these places.
    pub(super) fn told(&self, places: &[&str]) -> BTreeSet<&'static str> {
        let texts = self.places.iter().filter(|(p, _)| places.contains(p));
        let texts: Vec<_> = texts.map(|(_, t)| String::from_utf8_lossy(t)).collect();
        told(&self.tokens, &texts)
    }

    /// All calls through one criscope with this log. What is dropped is not searched, so a run that has lost something
    /// because the machine is busy is made again.
    pub(super) async fn through(level: &str, format: &str) -> Self {
        for _ in 0..TRIES {
            match Self::once(level, format).await {
                Ok(run) => return run,
                Err(lost) => eprintln!("{lost} lines or spans were lost"),
            }
        }
        panic!("something was lost {TRIES} times");
    }

    /// One run, or how much was lost in it.
    async fn once(level: &str, format: &str) -> Result<Self, f64> {
        let collector = Collector::new(Manner::Takes).await;
        let mut filler = Filler::default();
        let fake = Fake::new();
        let known = fill_node(&fake, &mut filler);
        let plans = Plans::of(&fake);
        let config = format!(
            "[telemetry.log]\nlevel = \"{level}\"\nformat = \"{format}\"\n\
             [telemetry.otlp]\nendpoint = \"{}\"\ntimeout = \"120s\"\nmetrics = true\nlogs = true\n\
             [telemetry.sampling]\npolls = 1.0\n",
            collector.endpoint()
        );
        let start = Start::new(crate::CRISCOPE)
            .config(&config)
            .upstream(fake.path());
        // The default holds too few spans for a slow machine.
        let proxy = start
            .env("OTEL_BSP_MAX_QUEUE_SIZE", "60000")
            .env("OTEL_BLRP_MAX_QUEUE_SIZE", "60000")
            .spawn();
        proxy.wait_ready().await;
        let mut session = Session {
            client: proxy.client().await,
            plans,
            calls: 0,
        };

        let is_flood = level.contains("h2=");
        let cases = cases(&mut filler);
        let mut pages = session.all_in_flight(&cases, &fake, &proxy).await;
        for case in &cases {
            session.with_errors(case, &mut filler).await;
        }
        session.odd_ones(&mut filler).await;
        session.by_id(&known).await;
        if is_flood {
            let all = (&cases[..], &known);
            session.until_logged(all, &filler.tokens, &proxy).await;
        }

        let scrape = proxy.wait_balanced(session.calls).await;
        let lost = scrape.metric("criscope_telemetry_dropped_total").sum();
        if lost > 0.0 && !is_flood {
            return Err(lost);
        }
        pages.extend(self::pages(&proxy).await);
        let capture = capture(&proxy).await;
        proxy.signal(Signal::SIGUSR2);
        let dumps = proxy.wait_dump("sigusr2").await.concat();
        let log = proxy.stop().await.join("\n");
        let spans = collector.spans().len();
        assert!(
            spans >= session.calls,
            "{spans} spans of {} calls",
            session.calls
        );
        let mut exported = Vec::new();
        for request in collector.requests() {
            exported.extend(request.encode_to_vec());
        }
        for job in collector.jobs() {
            exported.extend(job.encode_to_vec());
        }
        let (records, readings) = (collector.logs(), collector.metrics());
        assert!(!readings.is_empty(), "the last one is sent at the end");
        let records = records.iter().flat_map(|it| it.encode_to_vec());
        let readings = readings.iter().flat_map(|it| it.encode_to_vec());
        Ok(Self {
            places: vec![
                ("log", log.into_bytes()),
                ("pages", pages),
                ("dumps", dumps),
                ("capture", capture),
                ("spans", exported),
                ("log records", records.collect()),
                ("metrics", readings.collect()),
            ],
            tokens: filler.tokens,
        })
    }
}

/// The fields on the list whose token is in one of these texts.
fn told(tokens: &[(String, String)], texts: &[Cow<'_, str>]) -> BTreeSet<&'static str> {
    let is_episodic = |name: &str| {
        let mut tokens = tokens.iter().filter(|(field, _)| field == name);
        tokens.any(|(_, token)| texts.iter().any(|text| text.contains(token)))
    };
    SHOWN
        .iter()
        .copied()
        .filter(|name| is_episodic(name))
        .collect()
}

/// One method with its messages.
struct Case {
    path: String,
    request: Vec<u8>,
    answers: Vec<Vec<u8>>,
    /// What the request and the answers hold.
    secrets: Vec<String>,
}

fn cases(filler: &mut Filler) -> Vec<Case> {
    let pool = pool();
    let all = methods(&pool).into_iter().map(|(method, of)| {
        let before = filler.secrets.len();
        let request = filler.bytes(&of.input());
        let count = if of.is_server_streaming() { 2 } else { 1 };
        let answers = (0..count).map(|_| filler.bytes(&of.output())).collect();
        // A runtime also quotes what it was told before.
        let _ = (filler.canary(), filler.canary());
        Case {
            path: format!("/{}", method.full_name()),
            request,
            answers,
            secrets: filler.secrets[before..].to_vec(),
        }
    });
    all.collect()
}

/// A pod with one container in the lists, and a condition with a message; gives the ids.
fn fill_node(fake: &Fake, filler: &mut Filler) -> [String; 2] {
    let pool = pool();
    let mut filled = |name: &str| {
        let of = pool.get_message_by_name(&format!("runtime.v1.{name}"));
        filler.bytes(&of.expect("message"))
    };
    let sandbox = v1::PodSandbox::decode(&*filled("PodSandbox")).expect("sandbox");
    let mut container = v1::Container::decode(&*filled("Container")).expect("container");
    let condition = v1::RuntimeCondition::decode(&*filled("RuntimeCondition")).expect("condition");
    container.pod_sandbox_id.clone_from(&sandbox.id);
    let field = "Container.pod_sandbox_id".to_owned();
    filler.tokens.push((field, sandbox.id.clone()));
    let ids = [sandbox.id.clone(), container.id.clone()];
    let mut node = fake.node();
    node.sandboxes.push(sandbox);
    node.containers.push(container);
    node.conditions.push(condition);
    ids
}

/// What the fake answers, by a number in the request's headers.
struct Plans(Arc<Mutex<HashMap<usize, Vec<Step>>>>);

const PLAN: &str = "x-plan";

impl Plans {
    fn of(fake: &Fake) -> Self {
        let plans = Self(Arc::default());
        let all = Arc::clone(&plans.0);
        fake.on(move |head: &Parts| {
            let number = head.headers.get(PLAN).expect("a plan").to_str();
            let number: usize = number.expect("text").parse().expect("number");
            lock(&all).remove(&number).expect("a plan")
        });
        plans
    }
}

struct Session {
    client: Client,
    plans: Plans,
    calls: usize,
}

impl Session {
    /// A call that will be answered like this.
    fn plan(&mut self, path: &str, body: Bytes, steps: Vec<Step>) -> Call {
        self.calls += 1;
        lock(&self.plans.0).insert(self.calls, steps);
        let mut call = Call::new(path, body).with(PLAN, &self.calls.to_string());
        call.headers.extend(metadata(&mut Filler::default()));
        call
    }

    /// All calls at once, and the pages while every one of them waits for its answer.
    async fn all_in_flight(&mut self, cases: &[Case], fake: &Fake, proxy: &Proxy) -> Vec<u8> {
        let gate = CancellationToken::new();
        let mut open = Vec::new();
        for case in cases {
            let mut steps = vec![Step::Read, Step::Wait(gate.clone()), head()];
            steps.extend(case.answers.iter().map(|a| Step::Data(message(a))));
            steps.push(Step::Trailers(trailers(0, "", &case.secrets)));
            let call = self.plan(&case.path, message(&case.request), steps);
            open.push(self.client.start(call).await);
        }
        fake.wait_count(cases.len()).await;
        let pages = pages(proxy).await;
        gate.cancel();
        for open in open {
            let got = open.finish().await;
            assert_eq!(got.code(), 0, "{got:?}");
        }
        pages
    }

    /// The call again and again, until every value was quoted in every form.
    async fn with_errors(&mut self, case: &Case, filler: &mut Filler) {
        // The program looks at the first 4 KiB of a text.
        for (i, text) in texts(&case.secrets, 3000).into_iter().enumerate() {
            let code = if i % 2 == 0 { 13 } else { 5 };
            let end = trailers(code, &text, &case.secrets);
            let mut steps = vec![Step::Read];
            if i % 3 == 0 {
                let mut all = end;
                all.extend(headers(&[("content-type", "application/grpc")]));
                all.extend(metadata(filler));
                steps.push(Step::HeadOnly(200, all));
            } else {
                steps.push(head());
                steps.extend(case.answers.iter().map(|a| Step::Data(message(a))));
                steps.push(Step::Trailers(end));
            }
            let call = self.plan(&case.path, message(&case.request), steps);
            let got = self.client.call(call).await;
            assert_eq!(got.code(), code, "{}", case.path);
            assert!(!got.text().is_empty(), "the caller gets the text");
        }
    }

    /// Calls that are not read: unknown, compressed, cut off, in another spelling; and one that the caller leaves.
    async fn odd_ones(&mut self, filler: &mut Filler) {
        let secret = filler.canary();
        let body = message(secret.as_bytes());
        let texts = texts(std::slice::from_ref(&secret), 3000);
        let error = |text: &str| script::error(2, &percent(text));
        for text in &texts {
            for (path, body) in [
                ("/runtime.v1.RuntimeService/NoSuch", body.clone()),
                ("/grpc.health.v1.Health/Check", body.clone()),
                (
                    "/runtime.v1.RuntimeService/Exec",
                    message_with(1, secret.as_bytes()),
                ),
                (
                    "/runtime.v1.RuntimeService/Exec",
                    message(b"\x0a\x7fbroken"),
                ),
                ("/runtime.v1alpha2.RuntimeService/Exec", body.clone()),
            ] {
                let call = self.plan(path, body, error(text));
                assert_eq!(self.client.call(call).await.code(), 2, "{path}");
            }
        }
        let reset = vec![Step::Read, Step::Reset(h2::Reason::INTERNAL_ERROR)];
        let call = self.plan("/runtime.v1.RuntimeService/Attach", body.clone(), reset);
        assert!(self.client.call(call).await.broken.is_some());
        let hang = vec![Step::Read, Step::Hang];
        let call = self.plan("/runtime.v1.RuntimeService/Attach", body, hang);
        let open = self.client.start(call).await;
        open.reset(h2::Reason::CANCEL);
    }

    /// Calls again until the log tells all that it has to: of a flood, lines are lost.
    async fn until_logged(
        &mut self,
        (cases, known): (&[Case], &[String; 2]),
        tokens: &[(String, String)],
        proxy: &Proxy,
    ) {
        let end = Instant::now() + PATIENCE;
        loop {
            // What was said before has time to come.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let told = told(tokens, &[proxy.log().join("\n").into()]);
            let wanted = expected(&["log"]);
            let missing: Vec<_> = wanted.difference(&told).collect();
            if missing.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "never in the log: {missing:?}");
            for case in cases {
                self.well(case).await;
            }
            self.by_id(known).await;
        }
    }

    /// The call by itself, which goes well.
    async fn well(&mut self, case: &Case) {
        let mut steps = vec![Step::Read, head()];
        steps.extend(case.answers.iter().map(|a| Step::Data(message(a))));
        steps.push(Step::Trailers(trailers(0, "", &case.secrets)));
        let call = self.plan(&case.path, message(&case.request), steps);
        assert_eq!(self.client.call(call).await.code(), 0, "{}", case.path);
    }

    /// Calls that name a pod of the lists by id only.
    async fn by_id(&mut self, [sandbox, container]: &[String; 2]) {
        let sandbox = requests::stop_pod(sandbox);
        let container = requests::start(container);
        for (method, body) in [
            ("StopPodSandbox", sandbox.encode_to_vec()),
            ("StartContainer", container.encode_to_vec()),
        ] {
            let path = format!("/runtime.v1.RuntimeService/{method}");
            let call = self.plan(&path, message(&body), script::empty());
            assert_eq!(self.client.call(call).await.code(), 0);
        }
    }
}

/// Every page of the admin endpoint.
async fn pages(proxy: &Proxy) -> Vec<u8> {
    let mut all = Vec::new();
    for path in [
        "/",
        "/metrics",
        "/livez",
        "/readyz",
        "/readyz?verbose",
        "/debug/calls",
        "/debug/calls?format=json",
        "/debug/rpcz",
        "/debug/rpcz?format=json",
        "/debug/tracez",
        "/debug/tracez?format=json",
        "/debug/flight",
        "/debug/flight?format=json",
        "/debug/flight?format=perfetto",
        "/debug/backends",
        "/debug/backends?format=json",
        "/debug/routes",
        "/debug/routes?format=json",
        "/debug/config",
        "/debug/config?format=json",
        "/debug/log-level",
    ] {
        let (status, text) = proxy.get(path).await;
        assert_eq!(status, 200, "{path}");
        all.extend(text.into_bytes());
    }
    let (status, snapshot) = proxy.by_socket("GET", "/debug/capture", "").await;
    assert_eq!(status, 200);
    all.extend(snapshot.into_bytes());
    all
}

/// All that `criscope capture` writes, unpacked.
async fn capture(proxy: &Proxy) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("capture.tar.gz");
    let mut command = Command::new(crate::CRISCOPE);
    command.args(["capture", "--admin"]);
    command.arg(format!("unix://{}", proxy.admin_socket().display()));
    command.arg("-o").arg(&file);
    let run = tokio::task::spawn_blocking(move || command.output());
    let output = run.await.expect("joined").expect("run");
    assert!(output.status.success(), "{output:?}");
    let file = std::fs::File::open(&file).expect("there");
    let mut all = Vec::new();
    let mut unpacked = flate2::read::GzDecoder::new(file);
    std::io::Read::read_to_end(&mut unpacked, &mut all).expect("gzip");
    assert!(all.len() > 10_000, "{} bytes", all.len());
    all
}
