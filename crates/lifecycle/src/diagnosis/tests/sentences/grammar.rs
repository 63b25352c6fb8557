//! Mistakes that a program can find: sentences with an empty or cut part, and words that no colleague would say.

use criscope_cri::status::{Code, code_name};

/// Sequences that no sentence has.
const BROKEN: [&str; 13] = [
    "  ", " ;", ": :", ":;", ";;", "; ;", ",,", ", ;", ": ,", "()", "( ", " )", "\n",
];
/// Words after which a sentence goes on.
const UNFINISHED: [&str; 14] = [
    "the", "an", "of", "by", "and", "or", "with", "is", "was", "were", "has", "its", "while",
    "until",
];
/// Words that may follow themselves.
const MAY_REPEAT: [&str; 2] = ["had", "that"];

/// Longest first line, in bytes: about two lines of a terminal.
const MAX_PLAIN_LINE: usize = 250;
/// Parts of lines that may be longer: lists of reasons that the calls leave, and two faults of one pod.
const LONG_LINES: [&str; 3] = ["unknown which", "no call shows which", "; and also: "];

/// What is wrong with the voice of a first line. Texts of runtimes are quoted as they are, so that only what stands around them counts.
pub(super) fn voice_mistake(line: &str) -> Option<String> {
    let words: Vec<_> = line.split(' ').collect();
    if line.contains("(now)") {
        return Some("`now` beside ages".to_owned());
    }
    let mut pairs = words.windows(2);
    if let Some(pair) =
        pairs.find(|pair| is_code(pair[0]) && pair[1].starts_with(char::is_alphabetic))
    {
        return Some(format!(
            "a status code before words: `{} {}`",
            pair[0], pair[1]
        ));
    }
    let mut pairs = words.windows(2);
    if let Some(pair) = pairs.find(|pair| is_too_exact(pair[0], pair[1])) {
        return Some(format!("more than two digits: `{} {}`", pair[0], pair[1]));
    }
    let is_list = LONG_LINES.iter().any(|part| line.contains(part));
    (line.len() > MAX_PLAIN_LINE && !is_list).then(|| format!("{} bytes", line.len()))
}

/// Returns whether a word is the name of a status code of gRPC.
fn is_code(word: &str) -> bool {
    (0..=16).any(|code| code_name(Code::from_i32(code)) == word)
}

/// Returns whether a duration has milliseconds, or more than two significant digits.
fn is_too_exact(number: &str, unit: &str) -> bool {
    let number = number.trim_start_matches('(');
    let is_number = number.parse::<f64>().is_ok();
    let digits = number.trim_start_matches(['0', '.']);
    let digits = digits.bytes().filter(u8::is_ascii_digit).count();
    let unit = unit.trim_end_matches([';', ',', ')', ':']);
    is_number && (unit == "ms" || unit == "s" && digits > 2)
}

/// The first mistake in a first line.
pub(super) fn mistake(line: &str) -> Option<String> {
    // The words of runc for a hook that printed nothing.
    let line = &line.replace("stdout: , ", "");
    if let Some(broken) = BROKEN.iter().find(|broken| line.contains(**broken)) {
        return Some(format!("`{broken}`"));
    }
    // Texts of runtimes end and are cut anywhere, and may repeat themselves. Only the words around them are criscope's own.
    if line.starts_with([' ', ':', ';', ',', ')']) || line.ends_with([' ', ':', ';', ',', '(']) {
        return Some("an empty part at its begin or end".to_owned());
    }
    let clauses = line.split(['(', ')', ':', ';', ',']);
    let unfinished = clauses.map(|clause| clause.rsplit(' ').next().unwrap_or_default());
    if let Some(word) = unfinished.into_iter().find(|word| is_unfinished(word)) {
        return Some(format!("a clause ends with `{word}`"));
    }
    let words: Vec<_> = line.split(' ').collect();
    let mut pairs = words.windows(2);
    if let Some(pair) = pairs.find(|pair| {
        let is_word = pair[0].bytes().all(|byte| byte.is_ascii_lowercase());
        is_word && pair[0] == pair[1] && !MAY_REPEAT.contains(&pair[0])
    }) {
        return Some(format!("`{} {}`", pair[0], pair[1]));
    }
    // A text that was cut in its middle has " ... " there.
    let is_cut = line.contains(" ... ");
    let brackets = line.matches('(').count() == line.matches(')').count();
    let quotes = line.matches('"').count().is_multiple_of(2);
    let is_whole = is_cut || (brackets && quotes);
    (!is_whole).then(|| "a bracket or quote without its other half".to_owned())
}

/// Returns whether a clause cannot end with this word.
fn is_unfinished(word: &str) -> bool {
    UNFINISHED.contains(&word) || word.ends_with("'s")
}

#[test]
fn mistakes_are_found() {
    for (line, broken) in [
        ("RunPodSandbox failed; the runtime says: the caller's", true),
        ("the pod was stopped by  just now", true),
        ("cannot start: : no", true),
        ("started after the the call", true),
        ("no network (code 11", true),
        ("app was stopped by, exit code 0", true),
        ("app up after 1.2 s, nothing slow", false),
    ] {
        assert_eq!(
            mistake(line).is_some(),
            broken,
            "{line}: {:?}",
            mistake(line)
        );
    }
}

#[test]
fn mistakes_of_the_voice_are_found() {
    for (line, broken) in [
        ("cannot pull web:1: NOT_FOUND no such image (5 s ago)", true),
        ("cannot pull web:1: no such image (now)", true),
        ("app up after 1.20 s, nothing slow", true),
        ("app up after 860 ms, nothing slow", true),
        ("app up after 0.86 s, nothing slow", false),
        (
            "cannot pull web:1: NOT_FOUND, without a text (5 s ago)",
            false,
        ),
    ] {
        assert_eq!(voice_mistake(line).is_some(), broken, "{line}");
    }
}
