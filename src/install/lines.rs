//! The lines in which two texts differ, to take a change back from a file that others have changed since.

use std::path::Path;

use similar::{DiffOp, TextDiff};

use super::journal::ChangedLine;

/// The lines that a change replaces or adds; none for new files and for files that are not text.
pub(super) fn between(old: Option<&[u8]>, new: &[u8]) -> Vec<ChangedLine> {
    let (Some(old), Ok(new)) = (old, str::from_utf8(new)) else {
        return Vec::new();
    };
    let Ok(old) = str::from_utf8(old) else {
        return Vec::new();
    };
    let diff = TextDiff::from_lines(old, new);
    let mut lines = Vec::new();
    for op in diff.ops() {
        if let DiffOp::Equal { .. } = op {
            continue;
        }
        let mut before = op.old_range().filter_map(|at| diff.old_slices().get(at));
        for at in op.new_range() {
            lines.push(ChangedLine {
                old: before.next().map(|line| (*line).to_owned()),
                new: diff
                    .new_slices()
                    .get(at)
                    .map(|line| (*line).to_owned())
                    .unwrap_or_default(),
            });
        }
    }
    lines
}

/// Takes the lines back from a text that has changed since. Where a changed line has changed again, only the path in it is
/// set back.
pub(super) fn restore(text: &str, lines: &[ChangedLine], new: &Path, old: &Path) -> String {
    let [new, old] = [new, old].map(|path| path.display().to_string());
    let mut result = String::new();
    for line in text.split_inclusive('\n') {
        let same = lines
            .iter()
            .find(|known| known.new.trim_end() == line.trim_end());
        if let Some(known) = same {
            result.push_str(known.old.as_deref().unwrap_or_default());
            continue;
        }
        let mut added = lines.iter().filter(|known| known.old.is_none());
        let was_added = line.contains(&new) && added.any(|known| key(&known.new) == key(line));
        if !was_added {
            result.push_str(&line.replace(&new, &old));
        }
    }
    result
}

/// The key of a line such as `key: value` or `key = value`.
fn key(line: &str) -> &str {
    line.split([':', '=']).next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restored(old: &str, new: &str, now: &str) -> String {
        let lines = between(Some(old.as_bytes()), new.as_bytes());
        restore(now, &lines, Path::new("/n"), Path::new("/o"))
    }

    #[test]
    fn only_the_change_is_taken_back() {
        assert_eq!(
            restored("a\nx: /o\nb\n", "a\nx: /n\nb\n", "a\nx: /n\nB\nc\n"),
            "a\nx: /o\nB\nc\n"
        );
        assert_eq!(
            restored("a\n", "a\nx: /n\n", "a\nb\nx: /n\nc\n"),
            "a\nb\nc\n"
        );
        assert_eq!(restored("a\n", "a\nx: /n\n", "a\nx:  \"/n\"\n"), "a\n");
    }

    #[test]
    fn in_a_line_that_changed_again_the_path_is_set_back() {
        assert_eq!(
            restored(
                "A=\"--e=/o --a\"\n",
                "A=\"--e=/n --a\"\n",
                "A=\"--e=/n --b\"\n"
            ),
            "A=\"--e=/o --b\"\n"
        );
        assert_eq!(restored("A=/o\n", "A=/n\n", "A=/else\n"), "A=/else\n");
    }

    #[test]
    fn what_is_not_text_has_no_lines() {
        assert!(between(Some(b"\xff"), b"a").is_empty());
        assert!(between(None, b"a").is_empty());
    }
}
