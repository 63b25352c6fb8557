//! A dump as a trace file for <https://ui.perfetto.dev> and `chrome://tracing`: the JSON of the Trace Event Format.
//!
//! A pod is a process. Concurrent calls of a pod are on separate tracks (threads), since slices of one track must nest. A
//! finished call is a complete event (`X`) that contains the backend's part; one in flight is a begin (`B`) without an end.
//! Times are microseconds from the first call; `otherData` holds the time of that.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use super::dump::{About, Dump};
use super::select::{LeftOut, Selected, json_len};
use super::when::since_epoch;
use crate::call::CallRecord;
use crate::cri::Method;
use crate::cri::method::Class;
use crate::lifecycle::view;

/// Thread numbers start above those of processes: viewers take a thread whose number equals its process's for the main
/// thread.
const FIRST_THREAD: u32 = 1 << 20;

/// One event.
#[derive(Serialize)]
struct Event<'a> {
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
    args: Option<Args<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Args<'a> {
    Call(&'a view::CallView),
    Name { name: &'a str },
    Order { sort_index: u32 },
}

/// A call and its time span, in nanoseconds since 1970.
struct Slice {
    row: view::CallView,
    begin: u64,
    /// Nanoseconds; `None` while in flight.
    took: Option<u64>,
    /// Begin and length of the backend's part, from `begin`.
    backend: Option<(u64, u64)>,
}

/// The process and thread of a slice.
#[derive(Clone, Copy)]
struct Track {
    pid: u32,
    tid: u32,
}

impl Slice {
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
            begin: row.began_unix_us.saturating_mul(1000),
            took: None,
            backend: row
                .backend_offset_ms
                .map(|offset| ((offset * 1e6) as u64, 0)),
            row: row.clone(),
        }
    }

    /// Its events, the outer one first.
    fn events(&self, track: Track, base: u64) -> impl Iterator<Item = Event<'_>> {
        let Track { pid, tid } = track;
        let ph = if self.took.is_some() { "X" } else { "B" };
        let begin = self.begin.saturating_sub(base);
        let call = Event {
            ph,
            pid,
            tid,
            name: &self.row.method,
            cat: Some(category(&self.row.method)),
            ts: Some(micros(begin)),
            dur: self.took.map(micros),
            args: Some(Args::Call(&self.row)),
        };
        let backend = self.backend.map(|(offset, length)| Event {
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
struct Tracks {
    /// By pod uid, or by path if there is none; the empty key is that of calls without a pod.
    processes: HashMap<String, u32>,
    /// Name of each process; its number is its index plus one.
    names: Vec<String>,
    /// Each thread: its process, and when its last slice ends.
    threads: Vec<(u32, u64)>,
    /// The threads of each process.
    of_process: Vec<Vec<usize>>,
}

impl Tracks {
    fn track(&mut self, slice: &Slice) -> Track {
        let pid = self.process(&slice.row);
        let own = &mut self.of_process[pid as usize - 1];
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
        Track {
            pid,
            tid: FIRST_THREAD + thread as u32,
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
        self.of_process.push(Vec::new());
        let pid = self.names.len() as u32;
        self.processes.insert(key, pid);
        pid
    }

    /// Names and order of processes and threads.
    fn metadata(&self, mut put: impl FnMut(&Event<'_>) -> io::Result<()>) -> io::Result<()> {
        for (index, name) in self.names.iter().enumerate() {
            let pid = index as u32 + 1;
            for event in of_process(pid, name) {
                put(&event)?;
            }
            for (n, thread) in self.of_process[index].iter().enumerate() {
                put(&of_thread(
                    pid,
                    FIRST_THREAD + *thread as u32,
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

fn of_process(pid: u32, name: &str) -> [Event<'_>; 2] {
    let event = |event, args| Event {
        ph: "M",
        pid,
        tid: 0,
        name: event,
        cat: None,
        ts: None,
        dur: None,
        args: Some(args),
    };
    [
        event("process_name", Args::Name { name }),
        event("process_sort_index", Args::Order { sort_index: pid }),
    ]
}

fn of_thread(pid: u32, tid: u32, name: &str) -> Event<'_> {
    Event {
        ph: "M",
        pid,
        tid,
        name: "thread_name",
        cat: None,
        ts: None,
        dur: None,
        args: Some(Args::Name { name }),
    }
}

/// Upper bound of the bytes of a call's events, if it is the only one of its process.
fn cost(row: &view::CallView) -> usize {
    // The longest possible numbers.
    let track = Track {
        pid: u32::MAX,
        tid: u32::MAX,
    };
    let longest = 123_456_789_012_345_678;
    let slice = Slice {
        row: row.clone(),
        begin: longest,
        took: Some(longest),
        backend: Some((longest, longest)),
    };
    let name = row.pod_path().unwrap_or_default();
    let [process, order] = of_process(u32::MAX, &name);
    let thread = thread_name(1_000_000);
    let thread = of_thread(u32::MAX, u32::MAX, &thread);
    let events = slice.events(track, 0).chain([process, order, thread]);
    events.map(|event| json_len(&event) + 2).sum()
}

#[derive(Serialize)]
struct OtherData<'a> {
    #[serde(flatten)]
    about: &'a About,
    left_out: LeftOut,
    /// The time of `ts` 0, in microseconds since 1970.
    begin_unix_us: u64,
}

impl Dump {
    /// Writes it as a trace file of at most about `most` bytes; returns the number of omitted calls.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_trace(&self, out: &mut impl Write, most: usize) -> io::Result<LeftOut> {
        /// The text around the events, and counts of up to twenty digits.
        const AROUND: usize = 320;
        let fixed = json_len(&self.about) + AROUND;
        let selected = self.available().select(most.saturating_sub(fixed), cost);
        self.write_events(out, &selected)?;
        Ok(selected.left_out)
    }

    fn write_events(&self, out: &mut impl Write, selected: &Selected<'_>) -> io::Result<()> {
        let order = in_order(selected);
        let base = order.first().map_or(0, |(begin, _)| *begin);
        let other = OtherData {
            about: &self.about,
            left_out: selected.left_out,
            begin_unix_us: base / 1000,
        };
        write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":")?;
        serde_json::to_writer(&mut *out, &other)?;
        write!(out, ",\n\"traceEvents\":[")?;
        let mut first = true;
        let mut put = |event: &Event<'_>| {
            out.write_all(if std::mem::take(&mut first) {
                b"\n"
            } else {
                b",\n"
            })?;
            Ok(serde_json::to_writer(&mut *out, event)?)
        };
        let mut tracks = Tracks::default();
        for (_, what) in &order {
            let slice = what.slice();
            let track = tracks.track(&slice);
            for event in slice.events(track, base) {
                put(&event)?;
            }
        }
        tracks.metadata(&mut put)?;
        writeln!(out, "]}}")
    }
}

/// A call to be written; its events are formatted when its turn comes.
enum What<'a> {
    Ended(&'a CallRecord),
    InFlight(&'a view::CallView),
}

impl What<'_> {
    fn slice(&self) -> Slice {
        match self {
            Self::Ended(record) => Slice::ended(record),
            Self::InFlight(row) => Slice::in_flight(row),
        }
    }
}

/// All calls by their begin, of those that began together the longest first.
fn in_order<'a>(selected: &Selected<'a>) -> Vec<(u64, What<'a>)> {
    let ended = selected.calls.iter().chain(selected.polls);
    let ended = ended.map(|r| (nanos(since_epoch(r.began)), What::Ended(r)));
    let flying = selected.in_flight.iter();
    let flying = flying.map(|r| (r.began_unix_us.saturating_mul(1000), What::InFlight(r)));
    let mut order: Vec<_> = ended.chain(flying).collect();
    order.sort_by_key(|(begin, _)| *begin);
    order
}

#[cfg(test)]
mod tests;
