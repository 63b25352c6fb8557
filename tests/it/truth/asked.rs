//! What a node asks besides the OCI runtime and CNI plugins: an image verifier, a key provider, hooks, classes, an NRI plugin. Each
//! says no to some images and containers, by their name or an annotation, and nothing to the others.

use criscope_nri::api::{ContainerRequest, Event};
use criscope_nri::{PluginReply, PluginStub};
use prost::Message as _;

use crate::prelude::*;

/// The container that the NRI plugin refuses.
pub(super) const GREEDY: &str = "greedy";

/// The annotation of a container whose hook fails.
pub(super) const HOOKED: &str = "hooks.example/on";

/// Called with `-name IMAGE`.
const VERIFIER: &str = "#!/bin/sh
case $2 in
    */vulnerable:*) echo 'critical vulnerabilities found'; exit 1 ;;
    */unjudged:*) sleep 1000000 & wait ;;
esac
";

const KEY_PROVIDER: &str =
    "#!/bin/sh\ncat > /dev/null; echo 'the vault does not answer' >&2; exit 1\n";

const HOOK: &str = "#!/bin/sh\necho 'the licence server is away' >&2; exit 3\n";

fn socket(daemon: &Daemon) -> PathBuf {
    daemon.state().join("nri/nri.sock")
}

/// Configures a daemon that asks them.
pub(super) fn configure(daemon: &mut Daemon) {
    let root = daemon.root();
    let dir = |name: &str| {
        let dir = root.join("asked").join(name);
        fs::create_dir_all(&dir).expect("a directory");
        dir
    };
    let (verifiers, keys, hooks) = (dir("verifiers"), dir("keys"), dir("hooks"));
    executable(&verifiers.join("scan"), VERIFIER);
    executable(&keys.join("kms"), KEY_PROVIDER);
    executable(&keys.join("hook"), HOOK);
    let providers =
        json!({"key-providers": {"kms": {"cmd": {"path": keys.join("kms"), "args": []}}}});
    fs::write(keys.join("providers.json"), providers.to_string()).expect("providers");
    let hook = json!({
        "version": "1.0.0",
        "hook": {"path": keys.join("hook")},
        "when": {"annotations": {HOOKED: "^yes$"}},
        "stages": ["createRuntime"],
    });
    fs::write(hooks.join("licence.json"), hook.to_string()).expect("a hook");
    let classes = keys.join("blockio.yaml");
    fs::write(&classes, "Classes: {slow: [{Weight: 50}]}\n").expect("classes");
    daemon.set_runtime(&format!(
        "hooks_dir = [{hooks:?}]\nblockio_config_file = {classes:?}\n"
    ));
    let socket = socket(daemon);
    daemon.configure(&format!(
        "[runtime.images]\nverifier_bin_dir = {verifiers:?}\nper_verifier_timeout = \"1s\"\nkeyprovider_config = {:?}\n\
         [runtime.nri]\nenable = true\nsocket_path = {:?}\nplugin_path = {:?}\nplugin_config_path = {:?}\n",
        keys.join("providers.json"),
        socket,
        root.join("asked/plugins"),
        root.join("asked/plugins.conf.d"),
    ));
}

/// Connects the NRI plugin.
pub(super) async fn plugin(daemon: &Daemon) -> PluginStub {
    let serve = |method: &str, payload: Bytes| {
        let request = ContainerRequest::decode(payload).unwrap_or_default();
        let name = request.container.unwrap_or_default().name;
        match (method, name.as_str()) {
            ("CreateContainer", GREEDY) => PluginReply::Error(2, "the quota is used up".to_owned()),
            _ => PluginReply::empty(),
        }
    };
    let path = socket(daemon);
    let connected = PluginStub::connect(&path, "10", "quota", &[Event::CreateContainer], serve);
    let (end, registered) = connected.await.expect("connects");
    registered.expect("registers");
    end
}
