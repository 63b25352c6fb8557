//! Facts within an error text that belong in the sentence: the program, the path, the address, the range, the platforms.

use criscope_cri::error_chain;

/// Longest fact that a sentence repeats, in bytes. A longer one stays in the text of the runtime.
const MAX_DETAIL_BYTES: usize = 100;

/// Characters around paths and names in error texts.
const QUOTES: [char; 7] = ['"', '`', '\'', '(', ')', '[', ']'];

/// The first absolute path.
pub(super) fn path(text: &str) -> Option<&str> {
    let words = text.split(|c: char| c.is_whitespace() || QUOTES.contains(&c));
    let words = words.flat_map(|word| word.strip_prefix("unix://").or(Some(word)));
    let words = words.map(|word| word.trim_end_matches([':', ';', ',', '.']));
    // Two paths of a mount stand on both sides of a colon.
    let words = words.map(|word| word.split(':').next().unwrap_or(word));
    short(words.filter(|word| word.starts_with('/') && word.len() > 1))
}

/// The file of a cgroup, which is named after a limit: `cpuset.cpus`.
pub(super) fn cgroup_file(text: &str) -> Option<&str> {
    // The cgroup is named after the ids of its pod and container.
    let (_, rest) = text.split_once("/sys/fs/cgroup/")?;
    let path = rest.split([':', ' ', '"', '`']).next()?;
    short(path.rsplit('/').next().into_iter())
}

/// The address that did not answer: `10.96.0.1:443`.
pub(super) fn address(text: &str) -> Option<&str> {
    let dialled = text.split("dial tcp ").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".:[]-%".contains(c)))?;
        let address = rest[..end].trim_end_matches(':');
        address
            .ends_with(|c: char| c.is_ascii_digit())
            .then_some(address)
    });
    // The built-in runtime names the token service by its host.
    short(dialled)
        .or_else(|| between(text, "token service ", &[' ']).map(|host| host.trim_end_matches(':')))
}

/// The name that could not be resolved.
pub(super) fn name(text: &str) -> Option<&str> {
    between(text, "lookup ", &[' ', ':']).filter(|name| *name != "address")
}

/// The addresses of a range: `10.91.0.1-10.91.255.254`, `10.88.0.0/24`.
pub(super) fn range(text: &str) -> Option<&str> {
    let words = text.split(|c: char| c.is_whitespace() || QUOTES.contains(&c));
    let words = words.map(|word| word.trim_end_matches([':', ';', ',', '.']));
    short(words.filter(|word| {
        let parts = word.split_once(['-', '/']);
        parts.is_some_and(|(first, _)| first.parse::<std::net::IpAddr>().is_ok())
    }))
}

/// The platform of the node, and those of the image.
pub(super) fn platforms(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = text.split_once(": no image for ")?;
    let (node, image) = rest.split_once(", only for ")?;
    (image.len() <= MAX_DETAIL_BYTES).then_some((node, image))
}

/// What a server says in the body of an error, which the built-in runtime quotes.
pub(super) fn server_words(text: &str) -> Option<&str> {
    let statuses = text.split("HTTP ").skip(1);
    let said = statuses.filter_map(|rest| {
        let (status, words) = rest.split_once(": \"")?;
        let is_status = status.starts_with(|c: char| c.is_ascii_digit()) && !status.contains(':');
        let (words, _) = words.split_once('"')?;
        is_status.then_some(words)
    });
    short(said)
}

/// The text between one of the beginnings and a quote.
pub(super) fn quoted<'a>(text: &'a str, beginnings: &[&str]) -> Option<&'a str> {
    let mut found = beginnings
        .iter()
        .filter_map(|before| between(text, before, &['"', '`', '\'']));
    found.next()
}

/// The text between a beginning and one of these characters.
pub(super) fn between<'a>(text: &'a str, before: &str, ends: &[char]) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    let end = rest.find(ends).unwrap_or(rest.len());
    short(Some(&rest[..end]).into_iter())
}

/// The last words of the innermost cause, without additions in brackets.
pub(super) fn last_words(text: &str) -> Option<String> {
    let cause = error_chain::innermost(text);
    let last = cause.rsplit(": ").next().unwrap_or_default();
    let last = last
        .split(" (")
        .next()
        .unwrap_or_default()
        .trim_matches('"');
    short(Some(last).into_iter()).map(str::to_owned)
}

/// The first that is neither empty nor too long.
fn short<'a>(mut found: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    found.find(|text| !text.is_empty() && text.len() <= MAX_DETAIL_BYTES)
}
