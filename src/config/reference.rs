//! Generates `docs/CONFIG.md` and `deploy/criscope.toml` from the declarations.

use std::fmt::Write;

use super::Config;
use crate::settings::{KeyDescription, SettingsSchema};

const REFERENCE_INTRO: &str = "\
# Configuration

<!-- Made from the declarations (`settings!`) by `UPDATE_DOCS=1 cargo test --lib config`; do not edit. -->

criscope reads one TOML file, given with `--config`, and the [drop-in files](#drop-in-files) beside it. `serve` has no default file: without one it is the built-in runtime,
and with `--upstream unix:///run/containerd/containerd.sock` alone a pure proxy; every key below then has its default.
Commands about the criscope of the node (`doctor`, `load-image`, `pods`, `explain`, `calls`) read
`/etc/criscope/criscope.toml`, the file of the systemd units, if it exists and no other is given.
[MIGRATION.md](MIGRATION.md) maps the keys of containerd and CRI-O.

`criscope check-config FILE` (`-` is standard input) reports all errors at once, each with its line and key, and exits with
64. So does `serve` before it changes anything:

    criscope.toml:3: server.mdoe: unknown key; did you mean `mode`?
    criscope.toml:9: routing.default: there is no backend \"containred\"; did you mean `containerd`?

## Drop-in files

The files `*.toml` in the directory `conf.d` beside the configuration file (`/etc/criscope/conf.d` beside
`/etc/criscope/criscope.toml`) are read after it, in lexical order; hidden files and other names are left out. Installers
of other programs put a file of their own there instead of editing a shared one, as they do for containerd's `imports`:

```toml
# /etc/criscope/conf.d/50-nvidia.toml
[runtime.handlers.nvidia]
path = \"/usr/bin/nvidia-container-runtime\"
```

Tables are merged key by key, and a later file wins. Arrays, also those of tables such as `[[routing.rules]]`, are replaced
as a whole. A file that cannot be read or is not valid is an error like one in the main file, with the name of the file.
If the main file names no handler, `runc` and `crun` remain besides those of drop-in files.
There are none without `--config`, and none beside standard input.

`criscope check-config --effective FILE` prints every value in effect and its origin:

    runtime.handlers.nvidia.path = \"/usr/bin/nvidia-container-runtime\"  # /etc/criscope/conf.d/50-nvidia.toml:3
    server.mode = \"0600\"  # /etc/criscope/criscope.toml:7
    streaming.idle_timeout = \"4h\"  # default

## Flags

Flags of `serve` replace keys of the file.

| flag | effect |
|---|---|
| `--listen URI` | replaces `server.listen` |
| `--upstream URI` | replaces the endpoint of the backend `upstream`, or adds that backend; it is the default if there is no other. With other backends the file must name the default |
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

On SIGHUP the files are read again with the same flags, and drop-in files that were added. Keys marked *live* take effect at once; changes of other keys are
logged and wait for a restart, which touches no pod. A file with errors changes nothing, and neither
does one with a handler or a class that the built-in runtime cannot use ([RUNTIME.md](RUNTIME.md#a-reload)).

SIGHUP also applies RDT classes that have changed in `runtime.rdt_config_file`. Other files need no SIGHUP:

| file | when it is read |
|---|---|
| networks in `runtime.cni.conf_dir` | for each pod |
| `hosts.toml` and certificates in `runtime.images.certs_dirs` | for each pull |
| credentials in `runtime.images.docker_config` | for each pull |
| CDI devices in `runtime.cdi_spec_dirs` | for each container that asks for one |
| hooks in `runtime.hooks_dir` | for each container |
| block I/O classes in `runtime.blockio_config_file` | for each container that has one |
| archives in `runtime.images.import_dir` | when criscope starts, and when they appear or change |
";

const FILE_INTRO: &str = "\
# The configuration of criscope with all keys. A commented-out key shows its default, or an example if it has none.
# Check a file with `criscope check-config /etc/criscope/criscope.toml`. The reference is docs/CONFIG.md.
#
# Made from the declarations (`settings!`) by `UPDATE_DOCS=1 cargo test --lib config`; do not edit in the repository.
";

/// The reference of every key, as Markdown.
pub fn reference_markdown() -> String {
    let mut page = REFERENCE_INTRO.to_owned();
    let schema = SettingsSchema::from_section::<Config>();
    for (section, about) in &schema.sections {
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## `{}`\n\n{about}\n\n", header(section));
        page.push_str(
            "| key | value | default | takes effect | what it does |\n|---|---|---|---|---|\n",
        );
        for key in schema.keys.iter().filter(|key| key.section == *section) {
            page.push_str(&row(key));
        }
    }
    page.push_str("\n## A complete file\n\nThis is `deploy/criscope.toml`.\n\n```toml\n");
    page.push_str(&annotated_file());
    page.push_str("```\n");
    page
}

fn header(section: &str) -> String {
    match section.strip_suffix("[]") {
        Some(rows) => format!("[[{rows}]]"),
        None => format!("[{section}]"),
    }
}

fn row(key: &KeyDescription) -> String {
    let effect = if key.live { "live" } else { "restart" };
    let cells = [
        &format!("`{}`", key.name),
        &key.words,
        &key.fallback,
        effect,
        key.help,
    ];
    format!(
        "| {} |\n",
        cells.map(|cell| cell.replace('|', "\\|")).join(" | ")
    )
}

/// A complete configuration file with one upstream: each key with the first sentence of its description and, commented out,
/// its default, or an example if it has none.
pub fn annotated_file() -> String {
    let mut file = FILE_INTRO.to_owned();
    let schema = SettingsSchema::from_section::<Config>();
    for (section, about) in &schema.sections {
        file.push('\n');
        comment(&mut file, about);
        // The only table that is not commented out: it makes the file valid for a node with containerd.
        let mark = if *section == "backends.NAME" { "" } else { "#" };
        let optional = section.contains("NAME") || section.contains("[]");
        let named = section
            .replace("backends.NAME", "backends.containerd")
            .replace("NAME", "runc");
        let _ = writeln!(
            file,
            "{}{}",
            if optional { mark } else { "" },
            header(&named)
        );
        for key in schema.keys.iter().filter(|key| key.section == *section) {
            let first = key
                .help
                .split_once(". ")
                .map_or(key.help, |(first, _)| first);
            comment(&mut file, &format!("{}.", first.trim_end_matches('.')));
            let _ = writeln!(file, "{mark}{} = {}", key.name, key.example);
        }
        if *section == "backends.NAME" {
            file.push_str(
                "\n# The built-in runtime, instead of an upstream or in addition to one.\n",
            );
            file.push_str("#[backends.builtin]\n#kind = \"builtin\"\n");
        }
    }
    file
}

/// Adds a comment in lines of at most 120 columns.
fn comment(file: &mut String, text: &str) {
    let mut width = 0;
    for word in text.split(' ') {
        if width == 0 || width + 1 + word.len() > 120 {
            file.push_str(if width == 0 { "#" } else { "\n#" });
            width = 1;
        }
        let _ = write!(file, " {word}");
        width += 1 + word.len();
    }
    file.push('\n');
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{env, fs};

    use super::super::FlagOverrides;
    use super::*;

    fn check(path: &str, made: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        if env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
            fs::write(&path, made).expect("writable");
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == made,
            "{} is out of date: run UPDATE_DOCS=1 cargo test --lib config",
            path.display()
        );
    }

    #[test]
    fn the_reference_is_up_to_date() {
        check("docs/CONFIG.md", &reference_markdown());
        check("deploy/criscope.toml", &annotated_file());
    }

    #[test]
    fn the_page_on_migration_names_only_known_keys() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/MIGRATION.md");
        let page = fs::read_to_string(path).expect("readable");
        let schema = SettingsSchema::from_section::<Config>();
        let known = schema.keys.iter();
        let known: Vec<_> = known
            .map(|key| format!("{}.{}", key.section, key.name))
            .collect();
        let tables: Vec<_> = schema.sections.iter().map(|(name, _)| *name).collect();
        let ours = ["runtime.", "server.", "admin.", "telemetry.", "routing."];
        let mut named = 0;
        // Every other piece is inside code marks.
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
        let config = Config::from_text("example", &annotated_file(), &FlagOverrides::default())
            .expect("valid");
        let defaults = Config::with_upstream("/run/containerd/containerd.sock".into());
        assert_eq!(config.server, defaults.server);
        assert_eq!(config.admin, defaults.admin);
        assert_eq!(config.telemetry, defaults.telemetry);
        assert_eq!(config.runtime, None);
    }

    #[test]
    fn the_example_has_every_key_and_what_is_commented_out_is_the_default() {
        let whole: String = annotated_file()
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let full = Config::from_text("example", &whole, &FlagOverrides::default()).expect("valid");
        let full = full.settings();
        for key in SettingsSchema::from_section::<Config>().keys {
            let there = full.keys().any(|path| {
                let section = key
                    .section
                    .replace("backends.NAME", "backends.containerd")
                    .replace("handlers.NAME", "handlers.runc")
                    .replace("[]", "[0]");
                *path == format!("{section}.{}", key.name)
            });
            assert!(there, "{}.{}", key.section, key.name);
        }
        for (path, setting) in Config::builtin().settings() {
            if path.starts_with("backends.") || path.starts_with("routing.") {
                continue;
            }
            assert_eq!(full.get(&path), Some(&setting), "{path}");
        }
    }
}
