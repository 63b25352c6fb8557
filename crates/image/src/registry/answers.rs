//! What the servers answered that were asked one after the other, in vain.

use crate::error::{Error, ServerAnswer};

/// The answers so far, in order.
#[derive(Debug, Default)]
pub(crate) struct Answers(Vec<ServerAnswer>);

impl Answers {
    /// Adds the answer of a server, or those of several.
    pub(crate) fn add(&mut self, server: &str, error: Error) {
        match error {
            Error::AllServersFailed { answers, .. } => {
                answers.into_iter().for_each(|answer| self.push(answer));
            }
            error => self.push(ServerAnswer {
                server: server.to_owned(),
                error,
            }),
        }
    }

    /// Adds an answer. A server that is a mirror and the registry itself, and answers the same twice, counts once.
    fn push(&mut self, answer: ServerAnswer) {
        let text = answer.error.to_string();
        self.0
            .retain(|known| known.server != answer.server || known.error.to_string() != text);
        self.0.push(answer);
    }

    /// The error of a request for `what`: the error of the only server, or the errors of all. `None` if no server was asked.
    pub(crate) fn into_error(mut self, what: impl Into<String>) -> Option<Error> {
        if self.0.len() < 2 {
            return self.0.pop().map(|only| only.error);
        }
        let last = self.0.len() - 1;
        let ranked = self.0.iter().enumerate();
        // Of equal ones the last, which is the registry itself.
        let telling = ranked.max_by_key(|(index, answer)| rank(&answer.error, *index == last));
        Some(Error::AllServersFailed {
            what: what.into(),
            telling: telling.map_or(last, |(index, _)| index),
            answers: self.0,
        })
    }
}

/// How much an answer tells. A server without the image tells more than an unreachable one, and a refusal tells most. A mirror may lack
/// an image; if the registry itself does, that is why the pull fails.
fn rank(answer: &Error, is_last: bool) -> u8 {
    match answer {
        Error::Unauthenticated { .. } | Error::PermissionDenied { .. } => 6,
        Error::RegistryUnavailable { reason, .. } if reason.starts_with("HTTP 429") => 4,
        Error::NotFound { .. } if is_last => 4,
        Error::RegistryUnavailable { reason, .. } if reason.starts_with("HTTP ") => 3,
        Error::NotFound { .. } => 2,
        Error::RegistryUnavailable { .. } => 1,
        // It sent something that cannot be used.
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(host: &str, kind: &str) -> Error {
        let (host, reason) = (host.to_owned(), kind.to_owned());
        match kind {
            "HTTP 403 Forbidden" => Error::PermissionDenied { host, reason },
            "HTTP 404 Not Found" => Error::NotFound {
                what: format!("{host}: {reason}"),
            },
            "a web page" => Error::BadResponse { host, reason },
            _ => Error::RegistryUnavailable { host, reason },
        }
    }

    #[test]
    fn all_servers_are_named_in_order_and_the_most_telling_counts() {
        let (refused, missing, away) = (
            "HTTP 403 Forbidden",
            "HTTP 404 Not Found",
            "connection refused",
        );
        let (busy, fails) = ("HTTP 429 Too Many Requests", "HTTP 503 Service Unavailable");
        for (kinds, telling) in [
            (&[refused, away][..], 0),
            (&[away, refused], 1),
            (&[missing, away], 0),
            (&[missing, fails], 1),
            (&[fails, missing], 1),
            (&[busy, away, missing], 2),
            (&[busy, fails], 0),
            (&[refused, missing], 0),
            (&[away, away, away], 2),
            (&["a web page", away], 0),
        ] {
            let mut answers = Answers::default();
            for (n, kind) in kinds.iter().enumerate() {
                let server = format!("s{n}.example");
                answers.add(&server, of(&server, kind));
            }
            let error = answers.into_error("r.io/a:1").expect("an error");
            let Error::AllServersFailed { telling: found, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!(*found, telling, "{error}");
            let text = error.to_string();
            let places: Vec<_> = (0..kinds.len())
                .map(|n| text.find(&format!("s{n}.example")).expect("named"))
                .collect();
            assert!(places.is_sorted(), "{text}");
        }
    }

    #[test]
    fn the_same_answer_of_a_server_counts_once() {
        let mut answers = Answers::default();
        let (missing, away) = ("HTTP 404 Not Found", "connection refused");
        for (server, kind) in [("a.example", missing), ("a.example", missing)] {
            answers.add(server, of(server, kind));
        }
        let text = answers
            .into_error("r.io/a:1")
            .expect("an error")
            .to_string();
        assert_eq!(text.matches("a.example").count(), 1, "{text}");
        assert!(!text.contains("servers were asked"), "{text}");
        let mut answers = Answers::default();
        for kind in [missing, away] {
            answers.add("a.example", of("a.example", kind));
        }
        let text = answers
            .into_error("r.io/a:1")
            .expect("an error")
            .to_string();
        assert!(text.contains("2 servers were asked"), "{text}");
    }

    #[test]
    fn one_server_is_as_before_and_many_are_bounded() {
        let mut answers = Answers::default();
        assert!(Answers::default().into_error("x").is_none());
        answers.add("a", of("a", "connection refused"));
        let error = answers.into_error("x").expect("one");
        assert!(matches!(error, Error::RegistryUnavailable { .. }));
        let mut answers = Answers::default();
        for n in 0..100 {
            let server = format!("s{n}.example");
            answers.add(&server, of(&server, &"\u{e9}".repeat(2000)));
        }
        let text = answers.into_error("x").expect("many").to_string();
        assert!(text.starts_with("RegistryUnavailable: x: "), "{text}");
        assert!(text.len() < 7 << 10, "{}", text.len());
        assert!(text.contains("s0.example") && text.contains("s99.example"));
        // An error that names no server.
        let mut answers = Answers::default();
        answers.add("a.example", Error::invalid("manifest", "no JSON"));
        answers.add("b.example", of("b.example", "connection refused"));
        let text = answers.into_error("x").expect("two").to_string();
        let said = "x: 2 servers were asked: a.example: manifest: no JSON; then b.example: ";
        assert!(text.starts_with(said), "{text}");
    }
}
