//! Commands of kubectl, crictl and linkerd that users type by habit, and the equivalents here.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A word that users of other tools type, and the commands that do it here.
const HABITS: [(&str, &str); 25] = [
    ("get", "criscope pods, criscope explain NAMESPACE/POD"),
    ("list", "criscope pods"),
    ("pod", "criscope explain NAMESPACE/POD"),
    ("events", "criscope daemon-log NAMESPACE/POD"),
    (
        "logs",
        "kubectl logs or crictl logs for the output of a container, criscope daemon-log for criscope's own",
    ),
    ("stats", "criscope calls"),
    ("tap", "criscope calls"),
    ("stat", "criscope calls"),
    ("requests", "criscope calls"),
    (
        "trace",
        "criscope explain NAMESPACE/POD, which names the trace",
    ),
    ("metrics", "curl http://127.0.0.1:9478/metrics"),
    ("dashboard", "a browser: http://127.0.0.1:9478"),
    ("viz", "a browser: http://127.0.0.1:9478"),
    ("info", "criscope status"),
    ("health", "criscope status"),
    ("inspect", "criscope explain NAMESPACE/POD"),
    ("run", "criscope serve, or criscope smoke for a test pod"),
    ("start", "criscope serve"),
    ("daemon", "criscope serve"),
    ("proxy", "criscope serve --upstream SOCKET"),
    (
        "image",
        "criscope images, criscope prune, criscope load-image ARCHIVE, criscope export IMAGE -o FILE",
    ),
    ("load", "criscope load-image ARCHIVE"),
    ("save", "criscope export IMAGE -o FILE"),
    ("config", "criscope check-config"),
    ("bugreport", "criscope capture"),
];

/// Commands of crictl that criscope leaves to it.
const CRICTL_COMMANDS: [&str; 12] = [
    "attach",
    "create",
    "imagefsinfo",
    "inspecti",
    "inspectp",
    "port-forward",
    "pull",
    "rm",
    "rmi",
    "rmp",
    "runp",
    "stopp",
];

/// The command to type instead of a subcommand that does not exist, or before one whose pod is missing.
pub(super) fn hint(error: &clap::Error) -> Option<String> {
    if error.kind() == ErrorKind::MissingRequiredArgument {
        let ContextValue::Strings(missing) = error.get(ContextKind::InvalidArg)? else {
            return None;
        };
        let lacks_pod = missing.iter().any(|argument| argument.starts_with("<POD>"));
        return lacks_pod.then(|| "criscope pods lists the pods".to_owned());
    }
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    if CRICTL_COMMANDS.contains(&typed.as_str()) {
        let socket = "--runtime-endpoint unix:///run/criscope/criscope.sock";
        return Some(format!("crictl {socket} {typed}"));
    }
    let mut habits = HABITS.iter();
    let (_, here) = habits.find(|(word, _)| word == typed)?;
    Some((*here).to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::super::CommandLine;
    use super::*;

    fn hinted(word: &str) -> Option<String> {
        let error = CommandLine::try_parse_from(["criscope", word]).expect_err("no such command");
        hint(&error)
    }

    #[test]
    fn habits_lead_to_commands_that_exist() {
        let cli = CommandLine::command();
        for (word, here) in HABITS {
            assert_eq!(hinted(word).as_deref(), Some(here));
            let commands = here
                .split(", ")
                .filter_map(|word| word.strip_prefix("criscope "));
            for command in commands {
                let name = command.split(' ').next().expect("a word");
                assert!(cli.find_subcommand(name).is_some(), "{word}: {name}");
            }
        }
        for word in CRICTL_COMMANDS {
            assert!(hinted(word).expect("a hint").ends_with(word));
        }
        assert_eq!(hinted("nonsense"), None);
        assert_eq!(
            hinted("explain").as_deref(),
            Some("criscope pods lists the pods")
        );
        assert_eq!(hinted("view"), None, "another argument is missing");
    }
}
