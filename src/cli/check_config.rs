//! `criscope check-config`

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{CommandFailure, output};
use crate::app;
use crate::config::{BackendSettings, Config, FlagOverrides, LoadedConfig, Misfit, Runtime};
use crate::settings::show_endpoint;

/// Check a configuration file and its drop-in files, and report every error in them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file; its drop-in files in `conf.d` are read too; `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print every value in effect and where it comes from, instead of a summary
    #[arg(long)]
    effective: bool,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    if let Some(runtime) = other_runtime(&args.file) {
        let file = args.file.clone();
        return Err(CommandFailure::OtherConfig { file, runtime });
    }
    let loaded = Config::load(Some(&args.file), &FlagOverrides::default())?;
    if loaded.config.metrics.listen.is_some() {
        app::check_web_config(&loaded.config.metrics.web_config)?;
    }
    if args.effective {
        let text = effective(&loaded);
        return Ok(anstream::stdout().lock().write_all(text.as_bytes())?);
    }
    let mut text = String::from("ok\n");
    let drop_ins = loaded.drop_ins.iter();
    let drop_ins = drop_ins.map(|path| ("drop-in", path.display().to_string()));
    for (name, value) in drop_ins.chain(summary(&loaded.config)) {
        text.push_str(&format!("  {name:<9} {value}\n"));
    }
    anstream::stdout().lock().write_all(text.as_bytes())?;
    for warning in warnings(&loaded.config) {
        output::hint(warning);
    }
    Ok(())
}

/// The runtime whose configuration file this is, by a table that only that runtime has; `None` for any other file.
fn other_runtime(file: &Path) -> Option<&'static str> {
    let text = fs::read_to_string(file).ok()?;
    let table: toml::Table = text.parse().ok()?;
    let tables = [("plugins", "containerd"), ("crio", "CRI-O")];
    let mut own = tables.iter().filter(|(key, _)| table.contains_key(*key));
    own.next().map(|(_, runtime)| *runtime)
}

/// Warns about settings that are valid but cannot work.
fn warnings(config: &Config) -> Vec<String> {
    let handlers = config.runtime.iter().flat_map(|runtime| &runtime.handlers);
    let found = handlers.filter_map(|handler| {
        let program = handler.program().display();
        let name = &handler.name;
        let misfit = handler.misfit()?;
        Some(format!(
            "runtime.handlers.{name}: {program} {misfit}; {}",
            Misfit::HINT
        ))
    });
    let handlers = config.runtime.iter().flat_map(|runtime| &runtime.handlers);
    let without_effect = handlers.flat_map(|handler| {
        let keys = handler.without_effect().into_iter();
        keys.map(move |key| {
            let name = &handler.name;
            format!("runtime.handlers.{name}.{key} has no effect with this runtime_type")
        })
    });
    let runtime = config.runtime.iter();
    let hooks = runtime.flat_map(|runtime| app::Hooks::read(&runtime.pods.hooks_dir).broken);
    let hooks = hooks.map(|(path, error)| {
        let path = path.display();
        format!("runtime.hooks_dir: {path}: {error}; no container can be created")
    });
    let classes = config.runtime.iter();
    let classes = classes.flat_map(|runtime| self::classes(runtime));
    let images = config.runtime.iter();
    let images = images.flat_map(|runtime| app::unusable_image_files(runtime));
    let images = images.map(|file| {
        let (reason, words) = (file.reason, file.affected.words());
        format!("runtime.images: {reason}; {words}")
    });
    { found.chain(without_effect) }
        .chain(hooks)
        .chain(classes)
        .chain(images)
        .collect()
}

/// Files of classes that are broken on every node.
fn classes(runtime: &Runtime) -> impl Iterator<Item = String> {
    let pods = &runtime.pods;
    let blockio = pods.blockio_config_file.iter().filter_map(|path| {
        let error = app::blockio::Classes::read(path).err()?;
        Some(("blockio_config_file", path, error, "block I/O"))
    });
    let rdt = pods.rdt_config_file.iter().filter_map(|path| {
        let error = app::rdt::RdtFile::read(path).err()?;
        Some(("rdt_config_file", path, error, "RDT"))
    });
    blockio.chain(rdt).map(|(key, path, error, of)| {
        let path = path.display();
        format!("runtime.{key}: {path}: {error}; no container with classes of {of} can be created")
    })
}

/// Every value in effect, one `KEY = VALUE  # ORIGIN` per line.
fn effective(loaded: &LoadedConfig) -> String {
    let mut text = String::new();
    for (key, setting) in loaded.config.settings() {
        let origin = match loaded.origins.get(&key) {
            Some(place) => place.to_string(),
            None => "default".to_owned(),
        };
        text.push_str(&format!("{key} = {}  # {origin}\n", setting.value));
    }
    text
}

/// A summary of the configuration, one entry per line.
fn summary(config: &Config) -> Vec<(&'static str, String)> {
    let server = &config.server;
    let mut listen = format!(
        "{}, mode {:04o}",
        show_endpoint(&server.listen),
        server.mode
    );
    if let Some(owner) = server.owner {
        listen.push_str(&format!(", owner {}:{}", owner.uid, owner.gid));
    }
    let admin = match config.admin.listen {
        Some(address) => format!("http://{address}"),
        None => "off".to_owned(),
    };
    let mut lines = vec![("listen", listen), ("admin", admin)];
    if let Some(address) = config.metrics.listen {
        let file = config.metrics.web_config.display();
        lines.push(("metrics", format!("{address}, {file}")));
    }
    for backend in &config.backends {
        lines.push(("backend", describe(backend, config)));
    }
    if let Some(runtime) = &config.runtime {
        lines.push(("handlers", handlers(runtime)));
    }
    for rule in &config.routing.rules {
        let rule = format!("handler {:?} -> {}", rule.runtime_handler, rule.backend);
        lines.push(("rule", rule));
    }
    let otlp = &config.telemetry.otlp;
    let traces = otlp.traces_endpoint.as_ref().or(otlp.endpoint.as_ref());
    lines.push(("log", config.telemetry.log.level.clone()));
    lines.push((
        "traces",
        traces
            .cloned()
            .unwrap_or_else(|| "as OTEL_EXPORTER_OTLP_ENDPOINT says".to_owned()),
    ));
    lines
}

fn describe(backend: &BackendSettings, config: &Config) -> String {
    let serves = backend.endpoint.as_deref().map(show_endpoint);
    let serves = serves.unwrap_or_else(|| "built-in runtime".to_owned());
    let mut text = format!("{}, {serves}", backend.name);
    if backend.name == config.routing.default {
        text.push_str(", default");
    }
    if backend.name == config.routing.images {
        text.push_str(", images");
    }
    text
}

fn handlers(runtime: &Runtime) -> String {
    let names: Vec<_> = runtime
        .handlers
        .iter()
        .map(|handler| handler.name.as_str())
        .collect();
    let mut names = names.join(", ");
    if runtime.usual_besides.0 {
        let besides = if names.is_empty() { "" } else { ", and " };
        names.push_str(besides);
        names.push_str("runc and crun, those that are on PATH");
    }
    names
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_handler_that_is_no_oci_runtime_is_told() {
        let text = "[runtime]\n[runtime.handlers.runc]\n[runtime.handlers.kata]\n\
            path = \"/usr/bin/containerd-shim-kata-v2\"\n";
        let config = Config::from_text("c", text, &FlagOverrides::default()).expect("valid");
        let warnings = warnings(&config);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for part in [
            "runtime.handlers.kata: /usr/bin/containerd-shim-kata-v2 is a shim",
            "name its shim with runtime_type",
        ] {
            assert!(warnings[0].contains(part), "{warnings:?}");
        }
    }

    #[test]
    fn keys_that_a_shim_of_containerd_does_not_have_are_told() {
        let text = "[runtime]\ndefault_handler = \"runc\"\n[runtime.handlers.runc]\noptions = [\"--debug\"]\n\
            [runtime.handlers.kata]\nruntime_type = \"io.containerd.kata.v2\"\npath = \"/usr/bin/crun\"\n\
            [runtime.handlers.shim]\nruntime_type = \"io.containerd.runc.v2\"\npath = \"/usr/bin/crun\"\ntype_url = \"t\"\n";
        let config = Config::from_text("c", text, &FlagOverrides::default()).expect("valid");
        assert_eq!(
            warnings(&config),
            ["kata.path", "shim.type_url"]
                .map(|key| format!("runtime.handlers.{key} has no effect with this runtime_type"))
        );
    }

    #[test]
    fn every_value_in_effect_has_an_origin() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("criscope.toml");
        fs::create_dir(dir.path().join("conf.d")).expect("created");
        let drop_in = dir.path().join("conf.d/50-crun.toml");
        fs::write(&file, "[server]\nmode = \"0600\"\n").expect("written");
        fs::write(&drop_in, "[runtime.handlers.crun]\nno_pivot = true\n").expect("written");
        let flags = FlagOverrides {
            admin: Some("off".to_owned()),
            ..FlagOverrides::default()
        };
        let loaded = Config::load(Some(&file), &flags).expect("valid");
        let text = effective(&loaded);
        let (file, drop_in) = (file.display(), drop_in.display());
        for line in [
            format!("server.mode = \"0600\"  # {file}:2"),
            format!("runtime.handlers.crun.no_pivot = true  # {drop_in}:2"),
            "admin.listen = \"off\"  # --admin".to_owned(),
            "runtime.handlers.crun.no_new_keyring = false  # default".to_owned(),
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
        let runtime = loaded.config.runtime.as_deref().expect("the built-in one");
        assert_eq!(
            handlers(runtime),
            "crun, and runc and crun, those that are on PATH"
        );
    }

    #[test]
    fn the_summary_says_what_goes_where() {
        let text = "[server]\nowner = \"1:2\"\n[admin]\nlisten = \"off\"\n\
            [backends.a]\nkind = \"upstream\"\nendpoint = \"/run/a.sock\"\n\
            [backends.b]\nkind = \"upstream\"\nendpoint = \"/run/b.sock\"\n\
            [backends.c]\nkind = \"builtin\"\n[runtime.handlers.runc]\n[runtime.handlers.kata]\n\
            [routing]\ndefault = \"a\"\nimages = \"b\"\n\
            [[routing.rules]]\nruntime_handler = \"kata\"\nbackend = \"b\"\n";
        let config = Config::from_text("c", text, &FlagOverrides::default()).expect("valid");
        let lines: Vec<_> = summary(&config)
            .into_iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        assert_eq!(
            lines,
            [
                "listen: unix:///run/criscope/criscope.sock, mode 0660, owner 1:2",
                "admin: off",
                "backend: a, unix:///run/a.sock, default",
                "backend: b, unix:///run/b.sock, images",
                "backend: c, built-in runtime",
                "handlers: runc, kata",
                "rule: handler \"kata\" -> b",
                "log: info",
                "traces: as OTEL_EXPORTER_OTLP_ENDPOINT says",
            ]
        );
    }
}
