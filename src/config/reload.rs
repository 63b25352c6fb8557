//! What changed between two configurations, and which of it takes effect without a restart.

mod runtime;
mod streaming;

use std::collections::BTreeMap;

use super::schema::{self as keys, Key, KindOfBackend, Reload};
use super::value::Kind;
use super::{
    Admin, Backend, BackendKind, Config, IdentityLimits, Log, MethodSampling, Otlp, Recorder,
    Routing, Rule, Sampler, Sampling, Server, Story, Telemetry,
};

/// The key paths whose values differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadDiff {
    /// What takes effect now.
    pub reloadable: Vec<String>,
    /// What needs a restart.
    pub restart: Vec<String>,
}

/// Compares two configurations key by key.
pub fn reload_diff(old: &Config, new: &Config) -> ReloadDiff {
    let (old, new) = (old.settings(), new.settings());
    let mut diff = ReloadDiff::default();
    let differ =
        |path: &&String| old.get(*path).map(|s| &s.value) != new.get(*path).map(|s| &s.value);
    let mut paths: Vec<_> = old.keys().chain(new.keys()).filter(differ).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let setting = new.get(path).or_else(|| old.get(path));
        match setting.map(|setting| setting.reload) {
            Some(Reload::Live) => diff.reloadable.push(path.clone()),
            _ => diff.restart.push(path.clone()),
        }
    }
    diff
}

/// One value in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// As it would be written in the file.
    pub value: String,
    /// When a change takes effect.
    pub reload: Reload,
}

#[derive(Default)]
struct Listing(BTreeMap<String, Setting>);

impl Listing {
    fn add<K: Kind, D>(&mut self, key: &Key<K, D>, value: &K::Value) {
        self.add_at(key.section, key, value);
    }

    fn add_if<K: Kind, D>(&mut self, key: &Key<K, D>, value: Option<&K::Value>) {
        self.add_at_if(key.section, key, value);
    }

    fn add_at_if<K: Kind, D>(&mut self, path: &str, key: &Key<K, D>, value: Option<&K::Value>) {
        if let Some(value) = value {
            self.add_at(path, key, value);
        }
    }

    fn add_at<K: Kind, D>(&mut self, path: &str, key: &Key<K, D>, value: &K::Value) {
        let setting = Setting {
            value: key.kind.show(value),
            reload: key.reload,
        };
        self.0.insert(format!("{path}.{}", key.name), setting);
    }
}

impl Config {
    /// Every value in effect by its key path, as it would be written in the file. Keys that are not set are left out.
    pub fn settings(&self) -> BTreeMap<String, Setting> {
        // Taken apart by name, so that a field that is forgotten here does not compile.
        let Config {
            server,
            admin,
            backends,
            routing,
            telemetry,
            story,
            sampler,
            receiver,
            recorder,
            streaming,
            runtime,
        } = self;
        let mut list = Listing::default();
        list_server(&mut list, server);
        list_admin(&mut list, admin);
        for Backend { name, kind } in backends {
            let path = format!("backends.{name}");
            match kind {
                BackendKind::Upstream { endpoint } => {
                    list.add_at(&path, &keys::BACKEND_KIND, &KindOfBackend::Upstream);
                    list.add_at(&path, &keys::BACKEND_ENDPOINT, endpoint);
                }
                BackendKind::Builtin => {
                    list.add_at(&path, &keys::BACKEND_KIND, &KindOfBackend::Builtin);
                }
            }
        }
        list_routing(&mut list, routing);
        list_telemetry(&mut list, telemetry);
        list_story(&mut list, story);
        list_sampler(&mut list, sampler);
        list.add(&keys::RECEIVER_LISTEN, receiver);
        list_recorder(&mut list, recorder);
        streaming::list_streaming(&mut list, streaming);
        if let Some(runtime) = runtime {
            runtime::list_runtime(&mut list, runtime);
        }
        list.0
    }

    /// This configuration with the reloadable values of another: what is in effect after a reload.
    #[must_use]
    pub fn with_reloadable_of(&self, new: &Config) -> Config {
        let mut config = self.clone();
        config
            .telemetry
            .log
            .level
            .clone_from(&new.telemetry.log.level);
        config.telemetry.sampling = new.telemetry.sampling.clone();
        config
    }
}

fn list_server(list: &mut Listing, server: &Server) {
    let Server {
        listen,
        mode,
        owner,
        max_message_bytes,
        drain_timeout,
    } = server;
    list.add(&keys::LISTEN, listen);
    list.add(&keys::MODE, mode);
    list.add_if(&keys::OWNER, owner.as_ref());
    list.add(&keys::MAX_MESSAGE_BYTES, max_message_bytes);
    list.add(&keys::DRAIN_TIMEOUT, drain_timeout);
}

fn list_admin(list: &mut Listing, admin: &Admin) {
    let Admin {
        listen,
        debug,
        socket,
        allowed_hosts,
    } = admin;
    list.add(&keys::ADMIN_LISTEN, listen);
    list.add(&keys::ADMIN_DEBUG, debug);
    list.add(&keys::ADMIN_SOCKET, socket);
    list.add(&keys::ADMIN_ALLOWED_HOSTS, allowed_hosts);
}

fn list_routing(list: &mut Listing, routing: &Routing) {
    let Routing {
        default,
        images,
        rules,
    } = routing;
    list.add(&keys::ROUTING_DEFAULT, default);
    list.add(&keys::ROUTING_IMAGES, images);
    for (i, rule) in rules.iter().enumerate() {
        let Rule {
            runtime_handler,
            backend,
        } = rule;
        let path = format!("routing.rules[{i}]");
        list.add_at(&path, &keys::RULE_HANDLER, runtime_handler);
        list.add_at(&path, &keys::RULE_BACKEND, backend);
    }
}

fn list_story(list: &mut Listing, story: &Story) {
    let Story {
        state_dir,
        episodes,
        quiet,
        give_up,
    } = story;
    list.add(&keys::STATE_DIR, state_dir);
    list.add(&keys::STORY_EPISODES, episodes);
    list.add(&keys::STORY_QUIET, quiet);
    list.add(&keys::STORY_GIVE_UP, give_up);
}

fn list_sampler(list: &mut Listing, sampler: &Sampler) {
    let Sampler {
        enabled,
        after,
        period,
    } = sampler;
    list.add(&keys::SAMPLER_ENABLED, enabled);
    list.add(&keys::SAMPLER_AFTER, after);
    list.add(&keys::SAMPLER_PERIOD, period);
}

fn list_recorder(list: &mut Listing, recorder: &Recorder) {
    let Recorder {
        calls,
        polls,
        dumps,
        max_dump_bytes,
    } = recorder;
    list.add(&keys::RECORDER_CALLS, calls);
    list.add(&keys::RECORDER_POLLS, polls);
    list.add(&keys::RECORDER_DUMPS, dumps);
    list.add(&keys::RECORDER_DUMP_BYTES, max_dump_bytes);
}

fn list_telemetry(list: &mut Listing, telemetry: &Telemetry) {
    let Telemetry {
        log,
        otlp,
        sampling,
        identity,
    } = telemetry;
    let Log { format, level } = log;
    list.add(&keys::LOG_FORMAT, format);
    list.add(&keys::LOG_LEVEL, level);
    let Otlp { endpoint, timeout } = otlp;
    list.add_if(&keys::OTLP_ENDPOINT, endpoint.as_ref());
    list.add(&keys::OTLP_TIMEOUT, timeout);
    let Sampling {
        mutating,
        polls,
        slow,
        episodes,
        on_unsampled_parent,
        methods,
    } = sampling;
    list.add(&keys::SAMPLE_MUTATING, mutating);
    list.add(&keys::SAMPLE_POLLS, polls);
    list.add(&keys::SAMPLE_SLOW, slow);
    list.add(&keys::SAMPLE_EPISODES, episodes);
    list.add(&keys::ON_UNSAMPLED_PARENT, on_unsampled_parent);
    for (i, row) in methods.iter().enumerate() {
        list_method(list, &format!("telemetry.sampling.methods[{i}]"), row);
    }
    let IdentityLimits {
        sandboxes,
        containers,
    } = identity;
    list.add(&keys::IDENTITY_SANDBOXES, sandboxes);
    list.add(&keys::IDENTITY_CONTAINERS, containers);
}

fn list_method(list: &mut Listing, path: &str, row: &MethodSampling) {
    let MethodSampling {
        method,
        ratio,
        slow,
    } = row;
    list.add_at(path, &keys::METHOD_NAME, method);
    list.add_at_if(path, &keys::METHOD_RATIO, ratio.as_ref());
    list.add_at_if(path, &keys::METHOD_SLOW, slow.as_ref());
}
