//! Commands for a terminal that go on where the page of a pod ends.

use maud::{Markup, html};

use crate::lifecycle::view::{EpisodeView, PodStory};

/// The commands on a pod: what criscope and the cluster know of it.
pub(super) fn for_pod(story: &PodStory) -> Markup {
    let (namespace, name) = (word(&story.namespace), word(&story.name));
    let explain = format!(
        "criscope explain {}",
        word(&format!("{}/{}", story.namespace, story.name))
    );
    let describe = format!("kubectl describe pod -n {namespace} {name}");
    html! {
        section.commands aria-label="Commands for this pod" {
            (command(&explain))
            (command(&describe))
            (command(&format!("kubectl logs -n {namespace} {name}{}", log_options(story))))
        }
    }
}

/// A text with its commands, which stand between backticks.
pub(super) fn with_code(text: &str) -> Markup {
    html! {
        @for (n, piece) in text.split('`').enumerate() {
            @if n % 2 == 1 { code { (piece) } } @else { (piece) }
        }
    }
}

/// Options for the log that is worth reading: the last run's, if a container does not stay up.
fn log_options(story: &PodStory) -> String {
    let mut newest_first = story.episodes.iter().rev();
    let looping = newest_first.find(|episode| episode.crash_loop.is_some());
    match looping.and_then(container) {
        Some(container) => format!(" -c {} --previous", word(container)),
        None => " --all-containers --prefix".to_owned(),
    }
}

fn container(episode: &EpisodeView) -> Option<&str> {
    let own = episode.container.as_deref();
    own.or_else(|| Some(&*episode.exits.last()?.container))
}

fn command(text: &str) -> Markup {
    html! { div.command { code { (text) } } }
}

/// A word of a shell's command line, quoted if need be: names come from callers.
fn word(text: &str) -> String {
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(needs_no_quotes) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn needs_no_quotes(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "._-/".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::examples;

    #[test]
    fn the_commands_name_the_pod() {
        let html = for_pod(&examples::story(examples::slow_cni())).into_string();
        for command in [
            "<code>criscope explain shop/web-7d4b9c6f5-x2x9k</code>",
            "<code>kubectl describe pod -n shop web-7d4b9c6f5-x2x9k</code>",
            "<code>kubectl logs -n shop web-7d4b9c6f5-x2x9k --all-containers --prefix</code>",
        ] {
            assert!(html.contains(command), "{command}: {html}");
        }
        let html = for_pod(&examples::story(examples::crash_loop())).into_string();
        assert!(
            html.contains("kubectl logs -n shop leaky-0 -c app --previous"),
            "{html}"
        );
    }

    #[test]
    fn a_name_is_one_word_to_a_shell() {
        assert_eq!(word("web-0.a_b/c"), "web-0.a_b/c");
        assert_eq!(word("a'; rm -rf $HOME"), "'a'\\''; rm -rf $HOME'");
        assert_eq!((word(""), word("-f")), ("''".to_owned(), "'-f'".to_owned()));
    }
}
