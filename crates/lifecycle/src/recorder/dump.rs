//! A copy of the recorder's contents at one moment, written as JSON with one call per line so that grep can search it.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::RecordedCalls;
use super::select::{AvailableCalls, OmittedCalls, SelectedCalls, json_len};
use crate::view;
use criscope_cri::Method;
use criscope_cri::units::times::UnixMicros;

/// The `format` field of every JSON dump.
pub const DUMP_FORMAT: &str = "criscope-dump/1";

/// Head of a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpHeader {
    /// [`DUMP_FORMAT`].
    pub format: String,
    /// Version of the program.
    pub version: String,
    /// Commit it was built from.
    pub commit: String,
    /// Time of the dump.
    pub time_unix_us: UnixMicros,
    /// Reason of the dump: `sigusr2`, `panic`, `stuck` or `http`.
    pub reason: String,
    /// The place of the panic, or the call that is stuck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Fingerprint of the configuration, as `criscope_config_hash_info` has it.
    pub config: String,
    /// Calls that ended since the start of the process and have been overwritten.
    pub forgotten: u64,
}

/// Selects calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpFilter {
    /// Namespace and name of the pod.
    pub pod: Option<(String, String)>,
    /// The method.
    pub method: Option<Method>,
}

impl DumpFilter {
    fn admits(&self, method: &str, namespace: Option<&str>, pod: Option<&str>) -> bool {
        let is_method = self.method.is_none_or(|wanted| wanted.name() == method);
        let is_pod = self.pod.as_ref().is_none_or(|(wanted_namespace, name)| {
            namespace == Some(wanted_namespace) && pod == Some(name)
        });
        is_method && is_pod
    }

    fn apply(&self, in_flight: &mut Vec<view::CallView>, memory: &mut RecordedCalls) {
        if *self == Self::default() {
            return;
        }
        in_flight
            .retain(|row| self.admits(&row.method, row.namespace.as_deref(), row.pod.as_deref()));
        for records in [&mut memory.calls, &mut memory.polls] {
            records.retain(|record| {
                let pod = record.pod.as_deref();
                let namespace = pod.map(|p| &*p.namespace);
                self.admits(record.method.name(), namespace, pod.map(|p| &*p.name))
            });
        }
    }
}

/// The calls of a dump, with its header.
#[derive(Clone, Debug, Default)]
pub struct RecorderDump {
    pub(super) about: DumpHeader,
    /// The oldest first.
    pub(super) in_flight: Vec<view::CallView>,
    pub(super) memory: RecordedCalls,
}

/// The head of the file, before the lists.
#[derive(Serialize)]
struct DumpFileHead<'a> {
    #[serde(flatten)]
    about: &'a DumpHeader,
    left_out: OmittedCalls,
}

impl RecorderDump {
    /// A dump of these calls, the oldest in flight first.
    pub fn new(
        mut about: DumpHeader,
        mut in_flight: Vec<view::CallView>,
        mut memory: RecordedCalls,
        filter: &DumpFilter,
    ) -> Self {
        about.format = DUMP_FORMAT.to_owned();
        about.time_unix_us = UnixMicros::now();
        about.forgotten = memory.forgotten;
        filter.apply(&mut in_flight, &mut memory);
        Self {
            about,
            in_flight,
            memory,
        }
    }

    /// Calls in flight.
    pub fn in_flight(&self) -> &[view::CallView] {
        &self.in_flight
    }

    /// Calls that have ended.
    pub fn memory(&self) -> &RecordedCalls {
        &self.memory
    }

    pub(super) fn available(&self) -> AvailableCalls<'_> {
        AvailableCalls {
            in_flight: &self.in_flight,
            calls: &self.memory.calls,
            polls: &self.memory.polls,
        }
    }

    /// Writes the dump as JSON of at most about `max_bytes`; returns the number of omitted calls.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn write_json(&self, out: &mut impl Write, max_bytes: usize) -> io::Result<OmittedCalls> {
        /// The brackets around the lists, and counts of up to twenty digits.
        const BRACKETS_LEN: usize = 256;
        let fixed = json_len(&self.about) + BRACKETS_LEN;
        let selected = self
            .available()
            .select(max_bytes.saturating_sub(fixed), |row| json_len(row) + 2);
        self.write_selected(out, &selected)?;
        Ok(selected.left_out)
    }

    fn write_selected(&self, out: &mut impl Write, selected: &SelectedCalls<'_>) -> io::Result<()> {
        let head = serde_json::to_string(&DumpFileHead {
            about: &self.about,
            left_out: selected.left_out,
        })?;
        // The lists are written as they are made, so the object stays open.
        let open = head.strip_suffix('}').unwrap_or(&head);
        write!(out, "{open},\n\"in_flight\":[")?;
        write_rows(out, selected.in_flight.iter().cloned())?;
        write!(out, "],\n\"calls\":[")?;
        write_rows(
            out,
            selected
                .calls
                .iter()
                .map(|call| view::CallView::from_record(call)),
        )?;
        write!(out, "],\n\"polls\":[")?;
        write_rows(
            out,
            selected
                .polls
                .iter()
                .map(|call| view::CallView::from_record(call)),
        )?;
        writeln!(out, "]}}")
    }
}

fn write_rows(out: &mut impl Write, rows: impl Iterator<Item = view::CallView>) -> io::Result<()> {
    for (n, row) in rows.enumerate() {
        out.write_all(if n == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, &row)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::examples::{plain, pod, record};
    use criscope_cri::call::{Call, CallRecord};

    /// Three calls of pods, two polls, and a call in flight.
    pub(crate) fn example() -> RecorderDump {
        filtered(&DumpFilter::default())
    }

    fn filtered(filter: &DumpFilter) -> RecorderDump {
        let mut poll = plain(4, Method::ContainerStatus);
        poll.pod = Some(pod("web-1"));
        let memory = RecordedCalls {
            calls: (1..4).map(record).map(Arc::new).collect(),
            polls: vec![Arc::new(poll), Arc::new(plain(5, Method::ListContainers))],
            forgotten: 17,
        };
        let flying = vec![view::CallView::from_record(&CallRecord::in_flight(
            &Call::example(Method::PullImage),
        ))];
        let about = DumpHeader {
            reason: "http".to_owned(),
            config: "c0ffee".to_owned(),
            ..DumpHeader::default()
        };
        RecorderDump::new(about, flying, memory, filter)
    }

    fn json(dump: &RecorderDump, most: usize) -> (String, Value) {
        let mut text = Vec::new();
        dump.write_json(&mut text, most).expect("written");
        let value = serde_json::from_slice(&text).expect("json");
        (String::from_utf8(text).expect("utf-8"), value)
    }

    #[test]
    fn everything_is_in_it() {
        let (text, dump) = json(&example(), 1 << 20);
        assert_eq!(dump["format"], DUMP_FORMAT);
        assert_eq!(
            (&dump["reason"], &dump["config"]),
            (&"http".into(), &"c0ffee".into())
        );
        assert_eq!(dump["forgotten"], 17);
        assert!(dump["time_unix_us"].as_u64() > Some(1_600_000_000_000_000));
        assert_eq!(dump["in_flight"][0]["method"], "PullImage");
        assert_eq!(dump["calls"].as_array().map(Vec::len), Some(3));
        assert_eq!(dump["polls"][1]["method"], "ListContainers");
        assert_eq!(dump["left_out"]["calls"], 0);
        assert_eq!(text.lines().filter(|l| l.contains("\"seq\"")).count(), 6);
    }

    #[test]
    fn it_is_never_larger_than_asked_for_and_says_what_is_missing() {
        let whole = json(&example(), usize::MAX).0.len();
        let mut seen = Vec::new();
        for most in (500..whole + 300).step_by(10) {
            let (text, dump) = json(&example(), most);
            assert!(text.len() <= most, "{} of {most}", text.len());
            let left_out: u64 = ["in_flight", "calls", "polls"]
                .iter()
                .map(|list| {
                    let there = dump[list].as_array().expect("list").len() as u64;
                    let missing = dump["left_out"][list].as_u64().expect("number");
                    assert_eq!(
                        there + missing,
                        if *list == "calls" {
                            3
                        } else if *list == "polls" {
                            2
                        } else {
                            1
                        }
                    );
                    missing
                })
                .sum();
            seen.push(left_out);
        }
        assert!(seen.is_sorted_by(|a, b| a >= b), "{seen:?}");
        assert_eq!((seen[0], seen[seen.len() - 1]), (6, 0));
    }

    #[test]
    fn filters_leave_what_is_asked_for() {
        let of_pod = |name: &str| DumpFilter {
            pod: Some(("shop".to_owned(), name.to_owned())),
            method: None,
        };
        let counts = |filter: &DumpFilter| {
            let dump = filtered(filter);
            let memory = dump.memory();
            [
                dump.in_flight().len(),
                memory.calls.len(),
                memory.polls.len(),
            ]
        };
        assert_eq!(counts(&of_pod("web-1")), [0, 1, 1]);
        assert_eq!(counts(&of_pod("web")), [0, 0, 0]);
        let mut filter = of_pod("web-1");
        filter.method = Some(Method::ContainerStatus);
        assert_eq!(counts(&filter), [0, 0, 1]);
        filter.pod = None;
        filter.method = Some(Method::PullImage);
        assert_eq!(counts(&filter), [1, 0, 0]);
    }
}
