//! The nearest known word to a wrong one.

/// The candidate that `word` is most likely a typing error of; `None` if none is near. Case and the choice between `-` and
/// `_` are ignored.
pub(crate) fn nearest<'c>(
    word: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    let word = normalised(word);
    candidates
        .into_iter()
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&word, &normalised(candidate)),
                candidate,
            )
        })
        .filter(|(distance, candidate)| *distance <= tolerance(word.len().max(candidate.len())))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn normalised(text: &str) -> String {
    text.to_ascii_lowercase().replace('-', "_")
}

/// The number of typing errors allowed in a word of this length: one per three letters, and one in a short word.
fn tolerance(length: usize) -> usize {
    (length / 3).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_seen_through_and_other_words_are_not() {
        let known = [
            "listen",
            "mode",
            "owner",
            "max_message_bytes",
            "drain_timeout",
        ];
        assert_eq!(nearest("mdoe", known), Some("mode"));
        assert_eq!(nearest("Listen", known), Some("listen"));
        assert_eq!(nearest("drain-timeout", known), Some("drain_timeout"));
        assert_eq!(nearest("max_msg_bytes", known), Some("max_message_bytes"));
        assert_eq!(nearest("tls", known), None);
        assert_eq!(nearest("", known), None);
    }
}
