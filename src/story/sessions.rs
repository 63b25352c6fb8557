//! Sessions of exec, attach and port-forward that have ended: who looked into a pod, for how long, and how that ended. A
//! session is no part of a start, restart or stop, so it stands beside them in the story of its pod.
//!
//! They are kept in memory, and are gone after a restart.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::told::{micros, millis, span};
use super::view;
use crate::cri::call::{Client, ContainerIdentity, PodIdentity};

/// Sessions that are remembered, of all pods.
const REMEMBERED: usize = 512;

/// A session that has ended.
#[derive(Clone, Debug)]
pub struct Session {
    /// The pod.
    pub pod: Arc<PodIdentity>,
    /// The container of exec and attach.
    pub container: Option<Arc<ContainerIdentity>>,
    /// `exec`, `attach` or `portforward`.
    pub kind: &'static str,
    /// What carried it, and the protocol that was spoken.
    pub carrier: (&'static str, &'static str),
    /// Who asked for it.
    pub client: Option<Client>,
    /// The program that was run, without its path and arguments.
    pub program: Option<String>,
    /// When it began.
    pub began: SystemTime,
    /// How long it lasted.
    pub elapsed: Duration,
    /// Bytes to the container or pod, and from it.
    pub bytes: (u64, u64),
    /// How it ended.
    pub outcome: &'static str,
    /// What the program returned, if that is known.
    pub exit_code: Option<i32>,
}

impl Session {
    fn view(&self) -> view::Session {
        view::Session {
            kind: self.kind.to_owned(),
            uid: self.pod.uid.to_string(),
            container: self.container.as_deref().map(|c| c.name.to_string()),
            program: self.program.clone(),
            client: self.client.map(|client| client.name().to_owned()),
            transport: self.carrier.0.to_owned(),
            protocol: self.carrier.1.to_owned(),
            began_unix_us: micros(self.began),
            duration_ms: millis(span(self.elapsed)),
            bytes_in: self.bytes.0,
            bytes_out: self.bytes.1,
            outcome: self.outcome.to_owned(),
            exit_code: self.exit_code,
        }
    }
}

/// The last sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions(VecDeque<Session>);

impl Sessions {
    pub(super) fn add(&mut self, session: Session) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(session);
    }

    /// Those of the pods of this name, the one that began first first.
    pub(super) fn of_pod(&self, is_meant: impl Fn(&PodIdentity) -> bool) -> Vec<view::Session> {
        let meant = self.0.iter().filter(|session| is_meant(&session.pod));
        let mut shown: Vec<_> = meant.map(Session::view).collect();
        shown.sort_by_key(|session| session.began_unix_us);
        shown
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn session(name: &str, second: u64) -> Session {
        Session {
            pod: Arc::new(PodIdentity {
                name: name.into(),
                namespace: "shop".into(),
                uid: "u".into(),
                attempt: 0,
            }),
            container: None,
            kind: "portforward",
            carrier: ("spdy", "portforward.k8s.io"),
            client: Some(Client::Kubelet),
            program: None,
            began: UNIX_EPOCH + Duration::from_secs(second),
            elapsed: Duration::from_millis(1500),
            bytes: (1, 2),
            outcome: "done",
            exit_code: None,
        }
    }

    #[test]
    fn the_sessions_of_a_pod_are_told_in_order() {
        let mut sessions = Sessions::default();
        for (name, second) in [("web", 7), ("db", 5), ("web", 3)] {
            sessions.add(session(name, second));
        }
        let of_web = sessions.of_pod(|pod| &*pod.name == "web");
        let began: Vec<_> = of_web.iter().map(|s| s.began_unix_us).collect();
        assert_eq!(began, [3_000_000, 7_000_000]);
        assert_eq!(of_web[0].duration_ms, 1500.0);
        assert_eq!(of_web[0].client.as_deref(), Some("kubelet"));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut sessions = Sessions::default();
        for second in 0..REMEMBERED as u64 + 3 {
            sessions.add(session("web", second));
        }
        let told = sessions.of_pod(|_| true);
        assert_eq!(told.len(), REMEMBERED);
        assert_eq!(told[0].began_unix_us, 3_000_000);
    }
}
