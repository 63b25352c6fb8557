//! A dump as a trace file for <https://ui.perfetto.dev> and `chrome://tracing`: the JSON of the Trace Event Format.
//!
//! A pod is a process. Concurrent calls of a pod are on separate tracks (threads), since slices of one track must nest. A
//! finished call is a complete event (`X`) that contains the backend's part; a call in flight is a begin (`B`) without an end.
//! Times are microseconds from the first call; `otherData` holds the time of the first call.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use super::dump::{DumpHeader, RecorderDump};
use super::select::{OmittedCalls, SelectedCalls, json_len};
use super::when::since_epoch;
use crate::view;
use criscope_cri::Method;
use criscope_cri::call::CallRecord;
use criscope_cri::method::Class;
use criscope_cri::units::times::UnixMicros;

/// Thread numbers start above the process numbers: viewers take a thread whose number equals its process's for the main
/// thread.
const FIRST_THREAD_ID: u32 = 1 << 20;

/// One event.
#[derive(Serialize)]
struct TraceEvent<'a> {
    ph: &'static str,
    pid: u32,
    tid: u32,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<TraceEventArgs<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum TraceEventArgs<'a> {
    Call(&'a view::CallView),
    Name { name: &'a str },
    Order { sort_index: u32 },
}

/// A call and its time span, in nanoseconds since 1970.
struct CallSlice {
    row: view::CallView,
    begin: u64,
    /// Nanoseconds; `None` while in flight.
    took: Option<u64>,
    /// Begin and length of the backend's part, from `begin`.
    backend: Option<(u64, u64)>,
}

/// The process and thread of a slice.
#[derive(Clone, Copy)]
struct TraceTrack {
    pid: u32,
    tid: u32,
}

impl CallSlice {
    fn ended(record: &CallRecord) -> Self {
        let took = nanos(record.elapsed());
        let backend = record
            .backend_time
            .map(|(offset, took)| (nanos(offset), nanos(took)));
        Self {
            row: view::CallView::from_record(record),
            begin: nanos(since_epoch(record.began)),
            took: Some(took),
            // The backend's part lies within the call even if the clocks disagree.
            backend: backend.map(|(at, length)| (at.min(took), length.min(took - at.min(took)))),
        }
    }

    fn in_flight(row: &view::CallView) -> Self {
        Self {
            begin: nanos(row.began_unix_us.since(UnixMicros::EPOCH)),
            took: None,
            backend: row
                .backend_offset_ms
                .map(|offset| ((offset * 1e6) as u64, 0)),
            row: row.clone(),
        }
    }

    /// The events of the slice, the outer one first.
    fn events(&self, track: TraceTrack, base: u64) -> impl Iterator<Item = TraceEvent<'_>> {
        let TraceTrack { pid, tid } = track;
        let ph = if self.took.is_some() { "X" } else { "B" };
        let begin = self.begin.saturating_sub(base);
        let call = TraceEvent {
            ph,
            pid,
            tid,
            name: &self.row.method,
            cat: Some(category(&self.row.method)),
            ts: Some(micros(begin)),
            dur: self.took.map(micros),
            args: Some(TraceEventArgs::Call(&self.row)),
        };
        let backend = self.backend.map(|(offset, length)| TraceEvent {
            ph,
            pid,
            tid,
            name: self.row.backend.as_deref().unwrap_or("backend"),
            cat: Some("backend"),
            ts: Some(micros(begin + offset)),
            dur: self.took.map(|_| micros(length)),
            args: None,
        });
        std::iter::once(call).chain(backend)
    }
}

fn nanos(time: std::time::Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

fn category(method: &str) -> &'static str {
    let method = Method::ALL.into_iter().find(|m| m.name() == method);
    match method.unwrap_or(Method::Other).class() {
        Class::Mutating => "mutating",
        Class::Poll => "poll",
        Class::Watch => "watch",
    }
}

/// Assigns processes and threads. Calls must be passed in the order in which they began.
#[derive(Default)]
struct TraceTracks {
    /// Processes by pod uid, or by path if there is none; the empty key stands for calls without a pod.
    processes: HashMap<String, u32>,
    /// Name of each process. The number of a process is its index plus one.
    names: Vec<String>,
    /// The process of each thread, and the end of its last slice.
    threads: Vec<(u32, u64)>,
    /// The threads of each process.
    process_metadata: Vec<Vec<usize>>,
}

impl TraceTracks {
    fn track(&mut self, slice: &CallSlice) -> TraceTrack {
        let pid = self.process(&slice.row);
        let own = &mut self.process_metadata[pid as usize - 1];
        let threads = &self.threads;
        let free = own.iter().copied().find(|t| threads[*t].1 <= slice.begin);
        let end = slice
            .took
            .map_or(u64::MAX, |took| slice.begin.saturating_add(took.max(1)));
        let thread = free.unwrap_or_else(|| {
            own.push(threads.len());
            threads.len()
        });
        match self.threads.get_mut(thread) {
            Some(taken) => taken.1 = end,
            None => self.threads.push((pid, end)),
        }
        TraceTrack {
            pid,
            tid: FIRST_THREAD_ID + thread as u32,
        }
    }

    fn process(&mut self, row: &view::CallView) -> u32 {
        let path = row.pod_path();
        let uid = row.pod_uid.clone().filter(|uid| !uid.is_empty());
        let key = uid.or_else(|| path.clone()).unwrap_or_default();
        if let Some(pid) = self.processes.get(&key) {
            return *pid;
        }
        self.names.push(path.unwrap_or_else(|| "no pod".to_owned()));
        self.process_metadata.push(Vec::new());
        let pid = self.names.len() as u32;
        self.processes.insert(key, pid);
        pid
    }

    /// Names and order of processes and threads.
    fn metadata(&self, mut put: impl FnMut(&TraceEvent<'_>) -> io::Result<()>) -> io::Result<()> {
        for (index, name) in self.names.iter().enumerate() {
            let pid = index as u32 + 1;
            for event in process_metadata(pid, name) {
                put(&event)?;
            }
            for (n, thread) in self.process_metadata[index].iter().enumerate() {
                put(&thread_metadata(
                    pid,
                    FIRST_THREAD_ID + *thread as u32,
                    &thread_name(n),
                ))?;
            }
        }
        Ok(())
    }
}

fn thread_name(n: usize) -> String {
    match n {
        0 => "calls".to_owned(),
        n => format!("calls at the same time {n}"),
    }
}

fn process_metadata(pid: u32, name: &str) -> [TraceEvent<'_>; 2] {
    [
        metadata(pid, 0, "process_name", TraceEventArgs::Name { name }),
        metadata(
            pid,
            0,
            "process_sort_index",
            TraceEventArgs::Order { sort_index: pid },
        ),
    ]
}

fn metadata<'a>(
    pid: u32,
    tid: u32,
    event: &'static str,
    args: TraceEventArgs<'a>,
) -> TraceEvent<'a> {
    TraceEvent {
        ph: "M",
        pid,
        tid,
        name: event,
        cat: None,
        ts: None,
        dur: None,
        args: Some(args),
    }
}

fn thread_metadata(pid: u32, tid: u32, name: &str) -> TraceEvent<'_> {
    metadata(pid, tid, "thread_name", TraceEventArgs::Name { name })
}

/// Upper bound of the bytes that a call's events take if the call is the only one of its process.
fn cost(row: &view::CallView) -> usize {
    // The longest possible numbers.
    let track = TraceTrack {
        pid: u32::MAX,
        tid: u32::MAX,
    };
    let longest = 123_456_789_012_345_678;
    let slice = CallSlice {
        row: row.clone(),
        begin: longest,
        took: Some(longest),
        backend: Some((longest, longest)),
    };
    let name = row.pod_path().unwrap_or_default();
    let [process, order] = process_metadata(u32::MAX, &name);
    let thread = thread_name(1_000_000);
    let thread = thread_metadata(u32::MAX, u32::MAX, &thread);
    let events = slice.events(track, 0).chain([process, order, thread]);
    events.map(|event| json_len(&event) + 2).sum()
}

#[derive(Serialize)]
struct OtherData<'a> {
    #[serde(flatten)]
    about: &'a DumpHeader,
    left_out: OmittedCalls,
    /// The Unix time of `ts` 0.
    begin_unix_us: UnixMicros,
}

impl RecorderDump {
    /// Writes the dump as a trace file of at most about `max_bytes`; returns the number of omitted calls.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn write_trace(&self, out: &mut impl Write, max_bytes: usize) -> io::Result<OmittedCalls> {
        /// The text around the events, and counts of up to twenty digits.
        const BRACKETS_LEN: usize = 320;
        let fixed = json_len(&self.about) + BRACKETS_LEN;
        let selected = self
            .available()
            .select(max_bytes.saturating_sub(fixed), cost);
        self.write_events(out, &selected)?;
        Ok(selected.left_out)
    }

    fn write_events(&self, out: &mut impl Write, selected: &SelectedCalls<'_>) -> io::Result<()> {
        let order = in_order(selected);
        let base = order.first().map_or(0, |(begin, _)| *begin);
        let other = OtherData {
            about: &self.about,
            left_out: selected.left_out,
            begin_unix_us: UnixMicros::new(base / 1000),
        };
        write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":")?;
        serde_json::to_writer(&mut *out, &other)?;
        write!(out, ",\n\"traceEvents\":[")?;
        let mut rows = TraceRows { out, first: true };
        let mut tracks = TraceTracks::default();
        for (_, call) in &order {
            let slice = call.slice();
            let track = tracks.track(&slice);
            for event in slice.events(track, base) {
                rows.put(&event)?;
            }
        }
        tracks.metadata(|event| rows.put(event))?;
        writeln!(out, "]}}")
    }
}

/// Writes the rows of a JSON array, one per line.
struct TraceRows<'a, W> {
    out: &'a mut W,
    first: bool,
}

impl<W: Write> TraceRows<'_, W> {
    fn put(&mut self, event: &TraceEvent<'_>) -> io::Result<()> {
        let first = std::mem::take(&mut self.first);
        self.out.write_all(if first { b"\n" } else { b",\n" })?;
        Ok(serde_json::to_writer(&mut *self.out, event)?)
    }
}

/// A call to be written. Its events are formatted when its turn comes.
enum SelectedCall<'a> {
    Ended(&'a CallRecord),
    InFlight(&'a view::CallView),
}

impl SelectedCall<'_> {
    fn slice(&self) -> CallSlice {
        match self {
            Self::Ended(record) => CallSlice::ended(record),
            Self::InFlight(row) => CallSlice::in_flight(row),
        }
    }
}

/// All calls by their begin.
fn in_order<'a>(selected: &SelectedCalls<'a>) -> Vec<(u64, SelectedCall<'a>)> {
    let ended = selected.calls.iter().chain(selected.polls);
    let ended = ended.map(|r| (nanos(since_epoch(r.began)), SelectedCall::Ended(r)));
    let flying = selected.in_flight.iter();
    let flying = flying.map(|r| {
        (
            nanos(r.began_unix_us.since(UnixMicros::EPOCH)),
            SelectedCall::InFlight(r),
        )
    });
    let mut order: Vec<_> = ended.chain(flying).collect();
    order.sort_by_key(|(begin, _)| *begin);
    order
}

#[cfg(test)]
mod tests;
