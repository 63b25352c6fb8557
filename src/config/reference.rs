//! `docs/CONFIG.md`, made from the schema.

use std::fmt::Write;

use super::schema::{self, Described, Reload};

/// A complete, annotated configuration file.
pub const EXAMPLE: &str = include_str!("../../deploy/criscope.toml");

const INTRO: &str = "\
# Configuration

<!-- Made from src/config/schema by `UPDATE_DOCS=1 cargo test --lib config`; do not edit. -->

criscope reads one TOML file, given with `--config`. `serve` has no default file: with none at all it is the built-in
runtime, and with `--upstream unix:///run/containerd/containerd.sock` alone a pure proxy; every key below has its default.
Commands that are about the criscope of the node (`doctor`, `load-image`, `pods`, `explain`, `calls`) take
`/etc/criscope/criscope.toml`, where the units have theirs, if it is there and nothing else is said.
Who comes from containerd or CRI-O finds their keys in [MIGRATION.md](MIGRATION.md).

`criscope check-config FILE` (`-` is standard input) reports everything that is wrong at once, each with its line and
key, and exits with 64. So does `serve` before it touches anything:

    criscope.toml:3: server.mdoe: unknown key; did you mean `mode`?
    criscope.toml:9: routing.default: there is no backend \"containred\"; did you mean `containerd`?

## Flags

Flags of `serve` are put on top of the file.

| flag | effect |
|---|---|
| `--listen URI` | replaces `server.listen` |
| `--upstream URI` | replaces the endpoint of the backend `upstream`, or adds that backend; it is the default if there is no other. Beside other backends the file must say which is the default |
| `--admin ADDR` | replaces `admin.listen` |

## How values are written

| value | how |
|---|---|
| duration | a string of a whole number and `ms`, `s`, `m` or `h`: `\"500ms\"`, `\"10s\"` |
| size | a string of a whole number and `KiB`, `MiB` or `GiB`, or a number of bytes |
| socket | `\"unix:///path\"` or an absolute path, at most 107 bytes (the kernel's limit) |
| mode | a string of octal digits: `\"0660\"` |
| path | absolute |
| array | in brackets: `[\"/etc/cdi\", \"/var/run/cdi\"]` |

## Reload

On SIGHUP the file is read again with the same flags. Keys marked *live* take effect at once; changes of other keys are
named in the log and wait for a restart. A file with errors changes nothing.

What other files say needs no SIGHUP at all:

| what | when it is read |
|---|---|
| networks in `runtime.cni.conf_dir` | for each pod |
| `hosts.toml` and certificates in `runtime.images.certs_dirs` | for each pull |
| credentials in `runtime.images.docker_config` | for each pull |
| CDI devices in `runtime.cdi_spec_dirs` | for each container that asks for one |
| archives in `runtime.images.import_dir` | when criscope starts, and when they appear or change |
";

/// The reference of every key, as Markdown.
pub fn reference_markdown() -> String {
    let mut page = INTRO.to_owned();
    for (section, help) in schema::SECTIONS {
        let title = match section.strip_suffix("[]") {
            Some(rows) => format!("[[{rows}]]"),
            None => format!("[{section}]"),
        };
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## `{title}`\n\n{help}\n\n");
        page.push_str(
            "| key | value | default | takes effect | what it does |\n|---|---|---|---|---|\n",
        );
        for key in schema::all().filter(|key| key.section() == *section) {
            page.push_str(&row(key));
        }
    }
    page.push_str("\n## A complete file\n\nThis is `deploy/criscope.toml`.\n\n```toml\n");
    page.push_str(EXAMPLE);
    page.push_str("```\n");
    page
}

fn row(key: &dyn Described) -> String {
    let effect = match key.reload() {
        Reload::Live => "live",
        Reload::Restart => "restart",
    };
    let cells = [
        format!("`{}`", key.name()),
        key.words(),
        key.fallback(),
        effect.to_owned(),
        key.help().to_owned(),
    ];
    format!(
        "| {} |\n",
        cells.map(|cell| cell.replace('|', "\\|")).join(" | ")
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{env, fs};

    use super::super::{Config, Overrides};
    use super::*;

    #[test]
    fn the_reference_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/CONFIG.md");
        let page = reference_markdown();
        if env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
            fs::write(&path, &page).expect("writable");
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == page,
            "docs/CONFIG.md is out of date: run UPDATE_DOCS=1 cargo test --lib config"
        );
    }

    #[test]
    fn the_page_on_migration_names_only_keys_there_are() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/MIGRATION.md");
        let page = fs::read_to_string(path).expect("readable");
        let known: Vec<_> = schema::all()
            .map(|key| format!("{}.{}", key.section(), key.name()))
            .collect();
        let tables: Vec<_> = schema::SECTIONS.iter().map(|(name, _)| *name).collect();
        let ours = ["runtime.", "server.", "admin.", "telemetry.", "routing."];
        let mut named = 0;
        // What is in code marks is every other piece.
        for code in page.split('`').skip(1).step_by(2) {
            let table = code
                .strip_prefix('[')
                .map(|code| code.trim_matches(['[', ']']));
            if let Some(table) = table {
                let there = tables
                    .iter()
                    .any(|name| name.trim_end_matches("[]") == table);
                assert!(there, "{code}");
            } else if ours.iter().any(|start| code.starts_with(start)) {
                assert!(known.iter().any(|key| key == code), "{code}");
                named += 1;
            }
        }
        assert!(named > 50, "{named}");
    }

    #[test]
    fn the_example_is_valid_and_all_default() {
        let config = Config::from_text("example", EXAMPLE, &Overrides::default()).expect("valid");
        let defaults = Config::with_upstream("/run/containerd/containerd.sock".into());
        assert_eq!(config.server, defaults.server);
        assert_eq!(config.admin, defaults.admin);
        assert_eq!(config.telemetry, defaults.telemetry);
        assert_eq!(config.runtime, None);
    }

    #[test]
    fn the_example_has_every_key_and_what_is_commented_out_is_the_default() {
        let whole: String = EXAMPLE
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let full = Config::from_text("example", &whole, &Overrides::default()).expect("valid");
        let full = full.settings();
        for key in schema::all() {
            let there = full.keys().any(|path| {
                let section = key
                    .section()
                    .replace("backends.NAME", "backends.containerd")
                    .replace("handlers.NAME", "handlers.kata")
                    .replace("[]", "[0]");
                *path == format!("{section}.{}", key.name())
            });
            assert!(there, "{}.{}", key.section(), key.name());
        }
        for (path, setting) in Config::builtin().settings() {
            if path.starts_with("backends.") || path.starts_with("routing.") {
                continue;
            }
            assert_eq!(full.get(&path), Some(&setting), "{path}");
        }
    }
}
