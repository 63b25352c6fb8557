//! Requests and responses pass through criscope as if sent directly.

mod generate;

use criscope::cri::Method;
use http::HeaderMap;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

use self::generate::{CASE, Case, case};
use crate::harness::client::Got;
use crate::harness::fake::Seen;
use crate::harness::sorted;
use crate::prelude::*;

/// Concurrent cases.
const WORKERS: usize = 8;

fn seed() -> u64 {
    let given = std::env::var("CRISCOPE_SEED").ok();
    let seed = given.map_or_else(
        || rand::rng().next_u64(),
        |s| s.parse().expect("CRISCOPE_SEED is a number"),
    );
    println!("CRISCOPE_SEED={seed}");
    seed
}

/// Two connections to the same runtime: direct, and through criscope.
struct Ways {
    direct: Client,
    through: Client,
}

struct Bench {
    fake: Arc<Fake>,
    proxy: Proxy,
    scripts: Arc<Mutex<HashMap<String, Vec<Step>>>>,
    /// The only API version that the runtime serves, or the one that criscope prefers.
    package: &'static str,
}

impl Bench {
    async fn new(v1: bool, v1alpha2: bool) -> Self {
        let fake = Arc::new(Fake::new());
        fake.node().v1 = v1;
        fake.node().v1alpha2 = v1alpha2;
        let scripts: Arc<Mutex<HashMap<String, Vec<Step>>>> = Arc::default();
        let known = Arc::clone(&scripts);
        fake.on(move |head| {
            let id = head.headers.get(CASE).and_then(|id| id.to_str().ok());
            let steps = id.and_then(|id| lock(&known).get(id).cloned());
            steps.unwrap_or_else(script::empty)
        });
        // Logging thousands of errors is not tested here.
        let proxy = configured(
            &fake,
            "[telemetry.log]\nlevel = \"info,criscope::rpc=off\"\n",
        )
        .await;
        Self {
            fake,
            proxy,
            scripts,
            package: if v1 { "runtime.v1" } else { "runtime.v1alpha2" },
        }
    }

    async fn ways(&self) -> Ways {
        Ways {
            direct: Client::connect(self.fake.path()).await,
            through: self.proxy.client().await,
        }
    }

    /// The path that the runtime should receive.
    fn spelled(&self, path: &str) -> String {
        match Method::from_path(path) {
            Some((method, _)) => {
                format!(
                    "/{}",
                    method.full_name().replacen("runtime.v1", self.package, 1)
                )
            }
            None => path.to_owned(),
        }
    }

    fn only(&self, id: &str) -> Seen {
        let mut seen = self
            .fake
            .take(|seen| seen.headers.get(CASE).is_some_and(|v| v == id));
        assert_eq!(seen.len(), 1, "case {id} reached the runtime once");
        seen.remove(0)
    }

    async fn compare(&self, ways: &Ways, case: Case) {
        let is_head_only = matches!(case.answer.last(), Some(Step::HeadOnly(..)));
        lock(&self.scripts).insert(case.id.clone(), case.answer);
        let direct_call = Call {
            uri: self.respelled(&case.call.uri),
            ..case.call.clone()
        };
        let direct = ways.direct.call(direct_call).await;
        let direct_seen = self.only(&case.id);
        let through = ways.through.call(case.call).await;
        let through_seen = self.only(&case.id);
        lock(&self.scripts).remove(&case.id);

        same_request(&case.id, &direct_seen, &through_seen);
        same_answer(&case.id, &direct, &through);
        if is_head_only {
            assert!(
                direct.head_only && through.head_only,
                "case {}: one HEADERS frame",
                case.id
            );
        }
    }

    fn respelled(&self, uri: &str) -> String {
        let at = uri.find("//").expect("scheme") + 2;
        let at = at + uri[at..].find('/').expect("path");
        format!("{}{}", &uri[..at], self.spelled(&uri[at..]))
    }
}

fn show(map: &HeaderMap) -> String {
    format!("{map:?}").chars().take(4000).collect()
}

fn same_headers(what: &str, direct: &HeaderMap, through: &HeaderMap) {
    assert!(
        sorted(direct) == sorted(through),
        "{what}\n direct: {}\nthrough: {}",
        show(direct),
        show(through)
    );
}

fn same_bytes(what: &str, direct: &[u8], through: &[u8]) {
    if direct != through {
        let at = direct
            .iter()
            .zip(through)
            .take_while(|(a, b)| a == b)
            .count();
        panic!(
            "{what}: {} bytes direct, {} through, different from {at} on",
            direct.len(),
            through.len()
        );
    }
}

fn same_request(id: &str, direct: &Seen, through: &Seen) {
    assert_eq!(direct.method, through.method, "case {id}: method");
    assert_eq!(direct.uri, through.uri, "case {id}: uri");
    assert_eq!(direct.end, through.end, "case {id}: end of the request");
    same_headers(
        &format!("case {id}: request headers"),
        &direct.headers,
        &through.headers,
    );
    same_bytes(&format!("case {id}: request"), &direct.body, &through.body);
}

fn same_answer(id: &str, direct: &Got, through: &Got) {
    assert_eq!(direct.http, through.http, "case {id}: http status");
    assert_eq!(
        direct.broken, through.broken,
        "case {id}: end of the answer"
    );
    assert_eq!(
        direct.trailers.is_some(),
        through.trailers.is_some(),
        "case {id}: trailers"
    );
    same_headers(
        &format!("case {id}: headers"),
        &direct.headers,
        &through.headers,
    );
    let empty = HeaderMap::new();
    let trailers = |got: &Got| got.trailers.clone().unwrap_or_else(|| empty.clone());
    same_headers(
        &format!("case {id}: trailers"),
        &trailers(direct),
        &trailers(through),
    );
    same_bytes(&format!("case {id}: answer"), &direct.data, &through.data);
}

/// Runs cases on several connections concurrently.
async fn run(bench: &Arc<Bench>, seed: u64, count: usize, largest: usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let cases: Vec<_> = (0..count).map(|n| (n, rng.next_u64())).collect();
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..WORKERS {
        let bench = Arc::clone(bench);
        let mine: Vec<_> = cases
            .iter()
            .skip(worker)
            .step_by(WORKERS)
            .copied()
            .collect();
        workers.spawn(async move {
            let ways = bench.ways().await;
            for (number, seed) in mine {
                let mut rng = StdRng::seed_from_u64(seed);
                bench.compare(&ways, case(&mut rng, number, largest)).await;
            }
        });
    }
    while let Some(done) = workers.join_next().await {
        done.unwrap_or_else(|e| panic!("CRISCOPE_SEED={seed}: {e}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_calls_arrive_as_if_sent_directly() {
    let bench = Arc::new(Bench::new(true, true).await);
    run(&bench, seed(), 3200, 300_000).await;
    bench.proxy.wait_balanced(3200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_runtime_sees_only_the_service_spelled_differently() {
    let bench = Arc::new(Bench::new(false, true).await);
    run(&bench, seed(), 400, 10_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_runtime_sees_only_the_service_spelled_differently() {
    let bench = Arc::new(Bench::new(true, false).await);
    run(&bench, seed(), 400, 10_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_at_and_over_16_mib_pass() {
    const MIB: usize = 1 << 20;
    let bench = Bench::new(true, true).await;
    let ways = bench.ways().await;
    let mut rng = StdRng::seed_from_u64(seed());
    let mut noise = vec![0; 20 * MIB];
    rng.fill_bytes(&mut noise);
    let sizes = [16 * MIB, 16 * MIB + 1, 20 * MIB];
    let methods = ["CreateContainer", "ListContainers", "ExecSync"];
    for (number, (size, method)) in sizes.into_iter().zip(methods).enumerate() {
        let body = message(&noise[..size]);
        let id = number.to_string();
        let call = Call::runtime(method, body.clone()).with(CASE, &id);
        let answer = script::ok(&[body]);
        bench.compare(&ways, Case { id, call, answer }).await;
    }
    let id = "small".to_owned();
    let call = Call::runtime("Status", Bytes::new()).with(CASE, &id);
    let answer = script::empty();
    bench.compare(&ways, Case { id, call, answer }).await;
}
