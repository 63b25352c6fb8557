//! The cause within an error text. Each layer of a runtime puts its own words in front of those of the layer below, and a
//! bound on the length cuts off the end, where the cause is.
//!
//! Texts are those of containerd, CRI-O, cri-dockerd, runc, crun, libcni and registry clients, and of criscope's built-in
//! runtime. What is not recognised as the words of a layer stays.

use std::borrow::Cow;

/// Words that a layer puts in front of a cause. `*` stands for any text. Words with a fact that the headline does not
/// tell anyway do not belong here.
const WRAPPERS: &[&str] = &[
    // gRPC, and cri-dockerd in front of Docker.
    "rpc error",
    "Error response from daemon",
    "error response from daemon",
    // containerd
    "failed to create containerd task",
    "failed to create containerd container",
    "failed to create task for container",
    "failed to create shim task",
    "failed to create shim",
    "failed to create task",
    "failed to start containerd task *",
    "failed to start container *",
    "failed to start container",
    "failed to start sandbox container task *",
    "failed to start sandbox *",
    "failed to create sandbox container task",
    "failed to create sandbox container",
    "failed to create container",
    "failed to exec in container",
    "failed to exec *",
    "failed to start exec *",
    "failed to create exec *",
    "failed to generate container * spec",
    "failed to generate spec",
    "failed to apply OCI options",
    "failed to get sandbox image *",
    "failed to generate sandbox container spec",
    "failed to set up sandbox container * network for pod *",
    "failed to setup network for sandbox *",
    "failed to setup network for sandbox",
    "failed to destroy network for sandbox *",
    "failed to stop sandbox *",
    "failed to stop container *",
    "failed to remove container *",
    "failed to remove sandbox *",
    "failed to kill container *",
    "failed to forcibly stop sandbox *",
    "networkPlugin cni failed to set up pod * network",
    "networkPlugin cni failed to teardown pod * network",
    "failed to pull and unpack image *",
    "failed to pull image *",
    "failed to resolve reference *",
    "failed to resolve image *",
    "failed to extract layer *",
    "failed to prepare extraction snapshot *",
    "failed to unpack image on snapshotter *",
    "failed to do request",
    "failed to authorize",
    "failed to copy",
    "httpReadSeeker",
    "failed open",
    // CRI-O
    "container create failed",
    "failed to create pod network sandbox *",
    "failed to destroy network for pod sandbox *",
    "failed to mount container *",
    "error adding pod * to CNI network *",
    "error removing pod * from CNI network *",
    "error creating pod sandbox with name *",
    "creating container storage",
    "initializing source *",
    "reading manifest *",
    "pinging container registry *",
    "writing blob",
    "storing blob to file *",
    "copying system image from manifest list",
    "copying image from manifest list",
    "Error committing the finished image",
    "error committing the finished image",
    "command error",
    // OCI runtimes
    "OCI runtime create failed",
    "OCI runtime start failed",
    "OCI runtime exec failed",
    "OCI runtime error",
    "runc create failed",
    "runc run failed",
    "runc exec failed",
    "exec failed",
    // runc wrote no log; its exit status follows
    "unable to retrieve OCI runtime error (open *",
    "no such file or directory)",
    "unable to start container process",
    "error during container init",
    "starting container process caused",
    "container init caused",
    "*_linux.go:*",
    // CNI
    "plugin type=* failed (add)",
    "plugin type=* failed (delete)",
    "plugin type=* failed (check)",
    "delegateAdd",
    "DelegateAdd",
    "error invoking DelegateAdd - *",
    "error invoking confAdd - *",
    // criscope
    "network",
    "CNI network *",
    "error configuring pod * networking",
    "CmdAdd (shim)",
    "the OCI runtime failed",
];

/// A sentence that CRI-O puts in front of a refusal.
const BUSY: &str =
    "Kubelet may be retrying requests that are timing out in CRI-O due to system load. ";

/// Input that programs repeat in their errors, by its first and last characters; empty for the end of the text. The input is longer
/// than the cause, which comes before or after it.
const DUMPS: &[(&str, &str)] = &[
    // multus: the request, and the configuration of its shim
    (": 'ContainerID:", " ERRORED"),
    (": '&{ContainerID:", " ERRORED"),
    ("': StdinData: {", ""),
    // runc: the properties of its request to systemd
    (" (properties [", "])"),
];

/// Ends that say nothing: containerd's name for an error without a class, and results of a program that has said more.
const EMPTY_ENDS: &[&str] = &["unknown", "<nil>", "exit status 1"];

/// How deep texts within texts are unwrapped.
const MOST_DEPTH: usize = 4;

/// The cause at the end of the words of all layers, or the text itself if it has no such words, on one line.
pub fn innermost(text: &str) -> String {
    let cause = unwrapped(text, MOST_DEPTH);
    cause.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text with at most `max` bytes. A longer text loses words in the middle: the first words name the attempt, the last
/// words say why it failed.
pub fn shortened(text: &str, max: usize) -> Cow<'_, str> {
    const GAP: &str = " ... ";
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let room = max.saturating_sub(GAP.len());
    let head = &text[..text.floor_char_boundary(room / 3)];
    let tail = &text[text.ceil_char_boundary(text.len() - (room - room / 3))..];
    // At the end of a word, unless that is far away.
    let head = match head.rfind(' ') {
        Some(at) if at > head.len() / 2 => &head[..at],
        _ => head,
    };
    let tail = match tail.find(' ') {
        Some(at) if at < tail.len() / 4 => &tail[at + 1..],
        _ => tail,
    };
    Cow::Owned(format!("{}{GAP}{}", head.trim_end(), tail.trim_start()))
}

fn unwrapped(text: &str, depth: usize) -> String {
    let text = text.trim();
    let text = text.strip_prefix(BUSY).unwrap_or(text);
    let text = without_dumps(plain_log(text));
    let mut kept: Vec<Cow<'_, str>> = Vec::new();
    let mut last = "";
    for segment in segments(&text) {
        let segment = status_text(segment).trim();
        if segment.is_empty() {
            continue;
        }
        last = segment;
        if WRAPPERS.iter().any(|wrapper| is_like(segment, wrapper)) {
            continue;
        }
        let inner = match quoted(segment) {
            Some(inner) if depth > 0 => Cow::Owned(unwrapped(&inner, depth - 1)),
            _ => Cow::Borrowed(segment),
        };
        if kept.last() != Some(&inner) {
            kept.push(inner);
        }
    }
    while kept.len() > 1 && kept.last().is_some_and(|end| EMPTY_ENDS.contains(&&**end)) {
        kept.pop();
    }
    if kept.is_empty() {
        last.to_owned()
    } else {
        kept.join(": ")
    }
}

/// Splits a text at the colons outside of quotes.
fn segments(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let is_paired = quotes(text).count().is_multiple_of(2);
    let (mut found, mut begin, mut inside) = (Vec::new(), 0, false);
    for at in 0..bytes.len() {
        match bytes[at] {
            b'"' if is_paired && !is_escaped(bytes, at) => inside = !inside,
            b':' if !inside && matches!(bytes.get(at + 1), None | Some(b' ' | b'\n')) => {
                found.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(&text[begin..]);
    found
}

fn quotes(text: &str) -> impl Iterator<Item = usize> {
    let bytes = text.as_bytes();
    (0..bytes.len()).filter(move |&at| bytes[at] == b'"' && !is_escaped(bytes, at))
}

fn is_escaped(bytes: &[u8], at: usize) -> bool {
    let before = bytes[..at].iter().rev();
    before.take_while(|b| **b == b'\\').count() % 2 == 1
}

/// The description of a gRPC status that Go has written: `code = Unknown desc = ...`.
fn status_text(segment: &str) -> &str {
    let trimmed = segment.trim_start();
    match trimmed.split_once(" desc = ") {
        Some((code, text)) if code.starts_with("code = ") => text,
        _ => segment,
    }
}

/// The text that runc quotes behind `caused`.
fn quoted(segment: &str) -> Option<String> {
    let (_, rest) = segment.split_once(" caused \"")?;
    Some(unescaped(rest.strip_suffix('"')?))
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n' | 't' | 'r') => plain.push(' '),
                Some(c) => plain.push(c),
                None => plain.push('\\'),
            },
            (c, _) => plain.push(c),
        }
    }
    plain
}

/// The text with a line of runc's or crun's log (`time=... level=error msg="..."`) replaced by its message; of several
/// lines, by the last.
fn plain_log(text: &str) -> Cow<'_, str> {
    const MESSAGE: &str = "msg=\"";
    let Some(at) = text.rfind(MESSAGE) else {
        return Cow::Borrowed(text);
    };
    let line = ["time=", "level="];
    let begins = line.iter().filter_map(|word| text[..at].find(word)).min();
    let Some(begin) = begins else {
        return Cow::Borrowed(text);
    };
    let message = &text[at + MESSAGE.len()..];
    let end = quotes(message).next().unwrap_or(message.len());
    let rest = message.get(end + 1..).unwrap_or_default();
    Cow::Owned(format!(
        "{}{}{rest}",
        &text[..begin],
        unescaped(&message[..end])
    ))
}

/// The text without [`DUMPS`].
fn without_dumps(mut text: Cow<'_, str>) -> Cow<'_, str> {
    for (begin, end) in DUMPS {
        let found = text.find(begin).and_then(|from| {
            let after = from + begin.len();
            let to = match *end {
                "" => text.len(),
                end => after + text[after..].find(end)? + end.len(),
            };
            Some(from..to)
        });
        if let Some(range) = found {
            text.to_mut().replace_range(range, "");
        }
    }
    text
}

/// Returns whether a text is like a pattern, in which `*` stands for any text.
fn is_like(text: &str, pattern: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return text == pattern;
    };
    let Some(mut text) = text.strip_prefix(head) else {
        return false;
    };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests;
