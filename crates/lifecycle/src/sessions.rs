//! Sessions of exec, attach and port-forward: caller, duration and outcome. A session belongs to no episode; the story of
//! its pod lists it separately.
//!
//! Sessions are kept in memory only: a restart ends the open ones and loses the ended ones.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::view::{self, OpenSessionView};
use criscope_cri::call::Client;
use criscope_cri::subject::{ContainerIdentity, PodIdentity};
use criscope_cri::units::times::{UnixMicros, millis};

/// Upper bound of ended sessions that are kept, of all pods together.
const MAX_ENDED_SESSIONS: usize = 512;

/// The request and its caller.
#[derive(Clone, Debug)]
pub struct SessionRequest {
    /// The container of exec and attach.
    pub container: Option<Arc<ContainerIdentity>>,
    /// `exec`, `attach` or `portforward`.
    pub kind: &'static str,
    /// Transport and protocol.
    pub carrier: (&'static str, &'static str),
    /// The caller of Exec, Attach or PortForward.
    pub client: Option<Client>,
    /// The program of exec, without path and arguments.
    pub program: Option<String>,
    /// Begin, by the wall clock.
    pub began: SystemTime,
}

/// A session that has ended.
#[derive(Clone, Debug)]
pub struct EndedSession {
    /// The pod.
    pub pod: Arc<PodIdentity>,
    /// The request.
    pub request: SessionRequest,
    /// Duration of the session.
    pub elapsed: Duration,
    /// Bytes to the container or pod, and from it.
    pub bytes: (u64, u64),
    /// Outcome of the session.
    pub outcome: &'static str,
    /// Exit code of the program, if known.
    pub exit_code: Option<i32>,
}

/// A session that is open.
#[derive(Clone, Debug)]
pub struct ActiveSession {
    /// The number, shared by begin and end.
    pub number: u64,
    /// Id of the container, or of the sandbox for port-forward.
    pub id: String,
    /// The pod, if known.
    pub pod: Option<Arc<PodIdentity>>,
    /// The request.
    pub request: SessionRequest,
    /// Begin, by the monotonic clock.
    pub since: Instant,
    /// Byte counters.
    pub bytes: SessionBytes,
}

/// Reads a session's bytes to and from the container or pod; `None` once it has ended, also if the end event was lost.
#[derive(Clone)]
pub struct SessionBytes(Arc<dyn Fn() -> Option<(u64, u64)> + Send + Sync>);

impl SessionBytes {
    /// Reads with `read`, which must not block.
    pub fn new(read: impl Fn() -> Option<(u64, u64)> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl fmt::Debug for SessionBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Carried").field(&(self.0)()).finish()
    }
}

impl SessionRequest {
    fn view(&self, pod: Option<&PodIdentity>) -> view::SessionView {
        view::SessionView {
            kind: self.kind.to_owned(),
            uid: pod.map(|pod| pod.uid.to_string()).unwrap_or_default(),
            container: self.container.as_deref().map(|c| c.name.to_string()),
            program: self.program.clone(),
            client: self.client.map(|client| client.name().to_owned()),
            transport: self.carrier.0.to_owned(),
            protocol: self.carrier.1.to_owned(),
            began_unix_us: UnixMicros::from(self.began),
            ..view::SessionView::default()
        }
    }
}

impl EndedSession {
    fn view(&self) -> view::SessionView {
        view::SessionView {
            duration_ms: millis(self.elapsed),
            bytes_in: self.bytes.0,
            bytes_out: self.bytes.1,
            outcome: self.outcome.to_owned(),
            exit_code: self.exit_code,
            ..self.request.view(Some(&self.pod))
        }
    }
}

impl ActiveSession {
    /// The view of the session; `None` if it has ended.
    fn view(&self) -> Option<view::SessionView> {
        let (bytes_in, bytes_out) = (self.bytes.0)()?;
        Some(view::SessionView {
            duration_ms: millis(self.since.elapsed()),
            bytes_in,
            bytes_out,
            outcome: view::SessionView::OPEN.to_owned(),
            ..self.request.view(self.pod.as_deref())
        })
    }

    fn view_of_all(&self) -> Option<OpenSessionView> {
        let pod = self.pod.as_deref();
        Some(OpenSessionView {
            id: self.id.clone(),
            namespace: pod.map(|pod| pod.namespace.to_string()),
            pod: pod.map(|pod| pod.name.to_string()),
            session: self.view()?,
        })
    }
}

/// The open sessions by number, and the last ended ones.
#[derive(Debug, Default)]
pub(super) struct SessionHistory {
    open: BTreeMap<u64, ActiveSession>,
    ended: VecDeque<EndedSession>,
}

impl SessionHistory {
    /// Adds a session that has begun. `streaming.max_sessions` bounds the number of open ones.
    pub(super) fn begin(&mut self, open: ActiveSession) {
        self.open.insert(open.number, open);
        // The end event of a session is lost if the queue is full.
        self.open.retain(|_, open| (open.bytes.0)().is_some());
    }

    /// Moves the session with this number to the ended ones. A session whose pod is unknown is not listed.
    pub(super) fn end(&mut self, number: u64, session: Option<EndedSession>) {
        self.open.remove(&number);
        let Some(session) = session else { return };
        if self.ended.len() == MAX_ENDED_SESSIONS {
            self.ended.pop_front();
        }
        self.ended.push_back(session);
    }

    /// Sessions of the selected pods: first the ended, then the open ones, each oldest first.
    pub(super) fn select(
        &self,
        is_selected: impl Fn(&PodIdentity) -> bool,
    ) -> Vec<view::SessionView> {
        let ended = self.ended.iter();
        let ended = ended.filter(|session| is_selected(&session.pod));
        let mut shown: Vec<_> = ended.map(EndedSession::view).collect();
        shown.sort_by_key(|session| session.began_unix_us);
        let open = self.open.values();
        let open = open.filter(|session| session.pod.as_deref().is_some_and(&is_selected));
        shown.extend(open.filter_map(ActiveSession::view));
        shown
    }

    /// The open sessions of all pods, the oldest first.
    pub(super) fn open(&self) -> Vec<OpenSessionView> {
        self.open
            .values()
            .filter_map(ActiveSession::view_of_all)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::UNIX_EPOCH;

    use super::*;

    fn pod(name: &str) -> Arc<PodIdentity> {
        Arc::new(PodIdentity {
            name: name.into(),
            namespace: "shop".into(),
            uid: "u".into(),
            attempt: 0,
        })
    }

    fn session_request(second: u64) -> SessionRequest {
        SessionRequest {
            container: None,
            kind: "portforward",
            carrier: ("spdy", "portforward.k8s.io"),
            client: Some(Client::Kubelet),
            program: None,
            began: UNIX_EPOCH + Duration::from_secs(second),
        }
    }

    fn session(name: &str, second: u64) -> EndedSession {
        EndedSession {
            pod: pod(name),
            request: session_request(second),
            elapsed: Duration::from_millis(1500),
            bytes: (1, 2),
            outcome: "done",
            exit_code: None,
        }
    }

    /// A session that is open until the flag is set.
    fn open(number: u64, name: Option<&str>) -> (ActiveSession, Arc<AtomicBool>) {
        let over = Arc::<AtomicBool>::default();
        let watched = Arc::clone(&over);
        let open = ActiveSession {
            number,
            id: format!("id-{number}"),
            pod: name.map(pod),
            request: session_request(number),
            since: Instant::now() - Duration::from_secs(60),
            bytes: SessionBytes::new(move || (!watched.load(Ordering::Relaxed)).then_some((3, 4))),
        };
        (open, over)
    }

    fn outcomes(views: &[view::SessionView]) -> Vec<&str> {
        views.iter().map(|session| &*session.outcome).collect()
    }

    #[test]
    fn the_sessions_of_a_pod_are_told_in_order() {
        let mut sessions = SessionHistory::default();
        for (name, second) in [("web", 7), ("db", 5), ("web", 3)] {
            sessions.end(second, Some(session(name, second)));
        }
        let of_web = sessions.select(|pod| &*pod.name == "web");
        let began: Vec<_> = of_web.iter().map(|s| s.began_unix_us).collect();
        assert_eq!(began, [3_000_000, 7_000_000].map(UnixMicros::new));
        assert_eq!(of_web[0].duration_ms, 1500.0);
        assert_eq!(of_web[0].client.as_deref(), Some("kubelet"));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut sessions = SessionHistory::default();
        for second in 0..MAX_ENDED_SESSIONS as u64 + 3 {
            sessions.end(second, Some(session("web", second)));
        }
        let views = sessions.select(|_| true);
        assert_eq!(views.len(), MAX_ENDED_SESSIONS);
        assert_eq!(views[0].began_unix_us, UnixMicros::new(3_000_000));
    }

    #[test]
    fn a_session_is_open_until_the_end_of_its_number() {
        let mut sessions = SessionHistory::default();
        for (number, name) in [(1, Some("web")), (2, Some("web")), (3, Some("db"))] {
            sessions.begin(open(number, name).0);
        }
        // An end without a begin, as after a begin that the full queue dropped.
        sessions.end(99, Some(session("web", 0)));
        let is_web = |pod: &PodIdentity| &*pod.name == "web";
        let views = sessions.select(is_web);
        assert_eq!(outcomes(&views), ["done", "open", "open"]);
        assert!(views[1].is_open() && !views[0].is_open());
        assert!(views[1].duration_ms >= 60_000.0, "{views:?}");
        assert_eq!((views[1].bytes_in, views[1].bytes_out), (3, 4));

        sessions.end(1, Some(session("web", 1)));
        let views = sessions.select(is_web);
        assert_eq!(outcomes(&views), ["done", "done", "open"]);
        assert_eq!(views[2].began_unix_us, UnixMicros::new(2_000_000));
        assert_eq!(sessions.open().len(), 2);
    }

    #[test]
    fn one_whose_pod_is_not_known_has_its_id() {
        let mut sessions = SessionHistory::default();
        sessions.begin(open(7, None).0);
        assert!(sessions.select(|_| true).is_empty());
        let views = sessions.open();
        assert_eq!((&*views[0].id, &views[0].pod), ("id-7", &None));
        sessions.end(7, None);
        assert!(sessions.open().is_empty() && sessions.select(|_| true).is_empty());
    }

    #[test]
    fn nothing_stays_of_sessions_whose_end_was_not_reported() {
        let mut sessions = SessionHistory::default();
        for number in 0..1000 {
            let (open, over) = open(number, Some("web"));
            sessions.begin(open);
            assert_eq!(sessions.open().len(), 1);
            over.store(true, Ordering::Relaxed);
            assert!(sessions.open().is_empty() && sessions.select(|_| true).is_empty());
            assert_eq!(sessions.open.len(), 1, "until the next begins");
        }
    }
}
