//! Classes of faults that an error text proves. Each row of the table is a class of faults and the wordings of containerd, CRI-O, runc, crun,
//! libcni and the built-in runtime that only this fault has. A text that matches no row has no class: it is shown as it is.

mod detail;
mod plugin;
mod server;
mod words;

use crate::episode_call::EpisodeCall;
use criscope_cri::Method;
use criscope_cri::status::Code;

pub(super) use self::plugin::{names_plugin, plugin};
pub(super) use self::server::{host, registry};

/// The calls in which a wording counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultScope {
    Any,
    /// Pulls, including the pull of the pause image.
    Image,
    /// CreateContainer and StartContainer.
    Container,
    /// All calls but pulls: the same words of a registry mean its disk or its limits.
    Node,
    /// Networks of sandboxes.
    Network,
    /// Calls in which no program of a container runs, so that a missing program is one of the node.
    NoContainer,
}

use FaultScope::{Any, Container, Image, Network, NoContainer, Node};

macro_rules! faults {
    ($($fault:ident = $name:literal, $words:expr, $scope:ident: [$($wording:literal),* $(,)?];)*) => {
        /// A class of faults.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum FaultClass {$($fault),*}

        impl FaultClass {
            /// The stable names; several classes have the same.
            pub(super) const NAMES: &'static [&'static str] = &[$($name),*];

            /// The stable name.
            pub(super) const fn name(self) -> &'static str {
                match self {$(Self::$fault => $name),*}
            }

            /// The class in plain words, with `the registry` for any server of images; `None` if the error texts are plain enough.
            const fn plain(self) -> Option<&'static str> {
                match self {$(Self::$fault => $words),*}
            }
        }

        /// The rows, the most specific first. Lower case; `*` stands for any text.
        const FAULT_TABLE: &[(FaultClass, FaultScope, &[&str])] = &[$((FaultClass::$fault, $scope, &[$($wording),*])),*];
    };
}

faults! {
    RuntimeLost = "runtime_lost", Some("the connection to the runtime broke during the call"), Any:
        ["backend *at unix://*: connection lost"];
    RuntimeAway = "runtime_away", Some("the runtime cannot be reached"), Any:
        ["backend *at unix://"];
    // The message of a plugin, a verifier or a key provider may read like the fault of a disk or of the registry.
    Nri = "nri_plugin", None, Any: ["nri plugin ", "nri plugins ", "nri runpodsandbox failed", "nri container *failed"];
    Verifier = "image_verifier", Some("an image verifier of this node rejects it"), Image:
        ["signaturevalidationfailed: *verifier * rejected it", "image verifier * blocked pull of "];
    VerifierFails = "image_verifier_fails", Some("an image verifier of this node fails"), Image:
        ["signaturevalidationfailed: *verifier *: ", "signaturevalidationfailed: *verifier * was killed",
         "signaturevalidationfailed: *: verifiers in "];
    SignaturePolicy = "signature_policy", Some("the signature policy of this node cannot be used"), Any:
        ["signaturevalidationfailed: *: policy /"];
    SignatureOfContainer = "image_signature", Some("the signature of its image is not accepted"), Container:
        ["signaturevalidationfailed"];
    Signature = "image_signature", Some("its signature is not accepted"), Image:
        ["signaturevalidationfailed", "source image rejected"];
    KeyProvider = "image_key_provider", Some("a key provider of this node fails"), Image:
        ["layer sha256:* is encrypted: *key provider *: "];
    LayerKey = "image_key", Some("the key of an encrypted layer is not available"), Image:
        ["layer sha256:* is encrypted: ", "missing private key needed for decryption", "no suitable key unwrapper found",
         "no suitable key found for decrypting layer key"];
    // A text about a limit of the kernel, not about a disk.
    KernelLimit = "kernel_limit", Some("a limit of the kernel is reached, no disk is full"), Any:
        ["inotify*no space left on device", "cgroup*no space left on device", "cpuset*no space left on device", "resctrl*no space left on device",
         "/dev/ptmx: no space left on device"];
    KeyQuota = "key_quota", Some("the kernel's quota of keys is used up"), Any:
        ["session key*disk quota exceeded", "keyctl*disk quota exceeded", "keyring*disk quota exceeded"];
    // systemd answers over a socket, whose errors read like those of a file system.
    Systemd = "systemd_fails", Some("systemd did not make its cgroup"), Node:
        ["sd-bus", "unable to start unit", "error creating systemd unit", "/run/systemd/private", "message bus",
         "org.freedesktop.systemd1", "d-bus connection"];
    NoInodes = "no_inodes", Some("no inodes are left"), Any: ["no space: * inodes are free"];
    NoSpace = "no_space", Some("a disk is full, or out of inodes"), Any:
        ["no space left on device", "no space: * are free"];
    Quota = "disk_quota", Some("a disk quota is used up"), Any: ["disk quota exceeded"];
    ReadOnly = "read_only", Some("a file system is read-only"), Any: ["read-only file system"];
    DiskError = "disk_error", Some("a disk or file system fails"), Any:
        ["input/output error", "structure needs cleaning"];
    BrokenMount = "broken_mount", Some("a network or FUSE file system is not connected"), Any:
        ["stale file handle", "stale nfs file handle", "transport endpoint is not connected"];
    TooManyFiles = "too_many_files", Some("the limit of open files or inotify instances is reached"), Any:
        ["too many open files"];
    TooManyProcesses = "too_many_processes", Some("the limit of processes is reached"), Any:
        ["fork/exec *resource temporarily unavailable", "clone*resource temporarily unavailable", "pthread_create failed",
         "failed to create new os thread"];
    NoMemory = "no_memory", Some("no memory could be allocated"), Any: ["cannot allocate memory"];
    AgentSocket = "cni_agent_away", Some("its agent on this node does not answer"), Network:
        ["dial unix *connection refused", "dial unix *no such file or directory"];
    ApiAway = "api_unreachable", Some("the Kubernetes API cannot be reached"), Network:
        ["/api*dial tcp ", "/api*i/o timeout", "/api*tls handshake timeout", "/api*connection refused", "/api*deadline exceeded",
         "/api*\": eof"];
    Agent = "cni_agent_away", Some("its agent on this node does not answer"), Network:
        ["dial tcp 127.*connection refused",
         "dial tcp [::1]*connection refused", "/run/flannel/subnet.env: no such file", "/var/lib/calico/nodename: no such file",
         "waiting for felix", "readinessindicatorfile", "cilium api client timeout exceeded"];
    LocalService = "local_service_away", Some("a local service cannot be reached"), Any:
        ["dial unix *connection refused", "dial unix *no such file or directory"];

    // The words of layers and parts come first: what breaks at them may read like a broken connection, or a missing image.
    StoreBroken = "image_store_broken", Some("the runtime's image store has lost a part of the image"), Any:
        ["failed to get reader from content store", "failed to stat snapshot *not found", "missing parent *bucket: not found",
         "content digest *not found", "blob not found: not found", "layer not known",
         "failed to prepare extraction snapshot *not found"];
    PartMissing = "image_part_missing", Some("the registry lacks a part of the image"), Image:
        ["could not fetch content descriptor *not found", "blob_unknown", "blob unknown to registry", "fetching blob*404",
         "blob sha256:*404 not found"];
    LayerBroken = "image_layer_broken", Some("a layer cannot be unpacked"), Image:
        ["failed to extract layer *unexpected eof", "failed to extract layer *invalid tar header",
         "failed to extract layer *invalid header", "failed to extract layer *magic number mismatch",
         "failed to extract layer *archive/tar", "failed to extract layer *flate", "layer sha256:*: archive:"];
    NoRegistry = "image_web_page", Some("a portal or a proxy sent a web page in place of the image's manifest"), Image:
        ["media type text/html", "media type \"text/html", "a web page instead of a manifest"];
    OldManifest = "image_schema_1", Some("its manifest has Docker's schema 1, which the runtime does not read"), Image:
        ["manifest.v1+*no longer supported", "manifest.v1+*not supported", "schema 1 of docker is not supported"];
    ManifestBroken = "image_manifest_broken", Some("its manifest cannot be read"), Image:
        ["children: invalid desc", "manifest: * at line ", "unmarshal*manifest", "manifest*unmarshal"];

    RateLimited = "registry_rate_limit", Some("the registry limits the rate of pulls"), Image:
        ["429 too many requests", "toomanyrequests", "rate limit", "too many requests"];
    Proxy = "proxy_unreachable", Some("the HTTP proxy cannot be reached"), Image: ["proxyconnect "];
    Dns = "registry_dns", Some("the registry's name cannot be resolved"), Image:
        ["no such host", "dial tcp: lookup ", "lookup *server misbehaving", "lookup *i/o timeout", "lookup *connection refused",
         "temporary failure in name resolution", "name or service not known", "failed to lookup address", "dns error"];
    Refused = "registry_refuses_connections", Some("the registry's address refuses connections"), Image:
        ["connection refused"];
    Unreachable = "registry_unreachable", Some("no route to the registry"), Image:
        ["no route to host", "network is unreachable", "host is unreachable", "network unreachable", "host unreachable"];
    PlainRedirect = "registry_redirects_without_tls",
        Some("the registry redirects to a server without TLS, which this node does not allow"), Image:
        ["unusable answer: a redirect from https://"];
    PlainHttp = "registry_plain_http", Some("the registry speaks HTTP without TLS"), Image:
        ["server gave http response to https client", "does not look like a tls handshake",
         "received corrupt message of type invalidcontenttype"];
    NoAnswer = "registry_timeout", Some("the registry did not answer in time"), Image:
        ["tls handshake timeout", "dial tcp *i/o timeout", "client.timeout exceeded", "awaiting headers", "connection timed out",
         "i/o timeout", "operation timed out", "no answer within", "no connection within"];
    Stalled = "registry_stalled", Some("the registry stopped sending, or sends too slowly"), Image:
        [" bytes in * s, less than ", "no whole answer within"];
    Certificate = "registry_certificate", Some("the registry's certificate is not accepted"), Image:
        ["x509:", "certificate signed by unknown", "invalid peer certificate", "certificate verify failed",
         "certificate has expired"];
    Tls = "registry_tls", Some("the TLS handshake with the registry failed"), Image:
        ["tls: handshake failure", "remote error: tls", "tls: protocol version", "received fatal alert"];
    Broke = "registry_connection_broke", Some("the connection to the registry broke"), Image:
        ["connection reset by peer", "broken pipe", "unexpected eof", "\": eof", "connection closed before message completed",
         "cut off after", "end of file before message length reached", "error reading a body from connection"];
    RegistryFails = "registry_error", Some("the registry failed"), Image:
        ["500 internal server error", "502 bad gateway", "503 service unavailable", "504 gateway time"];
    BadRequest = "registry_bad_request", Some("the registry calls the request invalid: perhaps its port needs TLS"), Image:
        ["400 bad request"];
    Platform = "image_platform", Some("the image has no variant for this node's platform"), Image:
        ["no match for platform", "no matching manifest", "no image found in manifest list", "no image found in image index",
         ": no image for "];
    Digest = "image_digest", Some("the content does not match its digest"), Image:
        ["wrong digest", "failed commit on ref*unexpected commit digest", "unexpected commit digest",
         "digest did not match", "does not match the digest", "wrong diff id"];
    Reference = "image_reference", Some("the image reference is invalid"), Image:
        ["invalid reference format", "invalid image reference", "couldn't parse image", "failed to parse reference",
         "failed to parse image reference"];
    NoLogin = "image_no_access", Some("the registry asks for a login and the pod has none, or there is no such image"), Image:
        ["pull access denied*no basic auth credentials"];
    NoAccess = "image_no_access", Some("the registry has no such image, or denies access with these credentials"), Image:
        ["pull access denied", "insufficient_scope", "requested access to the resource is denied"];
    Unauthorized = "registry_unauthorized", Some("the registry does not accept the credentials, or none were sent"), Image:
        ["authorization token has expired", "401 unauthorized", "unauthorized: ", "authentication required", "no basic auth credentials",
         "invalid username/password", "incorrect username or password", ": authentication failed"];
    Denied = "registry_denied", Some("the registry denies access"), Image: ["403 forbidden", ": access denied"];
    ImageMissing = "image_not_found", Some("the registry has no such image"), Image:
        ["manifest unknown", "name unknown", "repository name not known", "resolve reference *: not found"];

    PluginMissing = "cni_plugin_missing", Some("the program is not installed"), Network:
        ["failed to find plugin", "cni plugin * was not found in"];
    Addresses = "cni_no_addresses", Some("no free address"), Network:
        ["no ip addresses available", "no addresses available", "no available addresses", "no available ip", "ip pool exhausted", "no free ip",
         "no more ip", "failed to assign an ip address", "could not allocate ip in range", "no more free affine blocks",
         "ipam*range is full", "no address allocated"];
    NetworkNamespace = "cni_no_namespace", Some("the pod's network namespace is gone"), Network:
        ["failed to statfs *no such file", "failed to open netns*no such file", "unknown fs magic on"];
    Interface = "cni_no_interface", Some("its configuration names an interface that the node lacks"), Network:
        ["failed (add): link not found", " add: link not found", "failed to lookup master"];
    Dhcp = "cni_no_dhcp_answer", Some("no DHCP server answered"), Network: ["dhcp*no more tries"];
    AgentBusy = "cni_agent_busy", Some("its agent on this node limits the rate of requests"), Network: ["[429]"];
    ApiCertificate = "api_certificate", Some("the certificate of the Kubernetes API is not accepted"), Network:
        ["/api*x509:"];
    ApiDenied = "api_denied", Some("the Kubernetes API does not accept its credentials"), Network:
        ["connection is unauthorized", "error getting pod: unauthorized", "forbidden: user \"", "the server has asked for the client to provide credentials"];
    NetworkUnready = "cni_not_ready", Some("no CNI configuration is loaded"), Network:
        ["cni plugin not initialized", "cni config uninitialized", "no cni configuration file", "no network is ready",
         "no networks found in", "no network config found"];
    PluginKilled = "cni_plugin_killed", Some("its process was killed"), Network:
        ["signal: killed", "was killed: timed out"];
    HostPort = "host_port_taken", Some("a host port is taken"), Node:
        ["cannot open hostport", "hostport*already allocated", "hostport*address already in use"];
    Handler = "unknown_handler", Some("the runtime has no such runtime handler"), Node:
        ["no runtime for \"*is configured", "failed to find runtime handler", "unknown runtime handler",
         "no runtime handler", "runtime handler * is not configured"];
    ShimGone = "shim_gone", Some("the pod's shim has ended"), Node:
        ["ttrpc: closed", "shim is gone", "no connection to the shim", "shim disconnected"];

    ProgramMissing = "program_missing", Some("a program of the node is missing"), Node:
        ["fork/exec *no such file or directory", "unable to retrieve oci runtime error *executable file *not found",
         "exec: \"runc\": executable file not found", "exec: \"crun\": executable file not found",
         "exec: \"containerd-shim*executable file not found", "binary not installed"];
    // Programs of containerd itself, which leaves a container's command to the OCI runtime.
    HelperOfContainer = "program_missing", Some("a program of the node is missing"), Container:
        ["failed to create containerd container*exec: \"*executable file not found", "apparmor_parser*executable file not found"];
    Helper = "program_missing", Some("a program of the node is missing"), NoContainer: ["exec: \"*executable file not found"];
    ProgramBroken = "program_broken", Some("a program of the node cannot be executed"), Node:
        ["fork/exec *exec format error", "fork/exec *permission denied"];
    OciRuntime = "oci_runtime_fails", Some("the OCI runtime ended without saying why"), Node:
        ["unable to retrieve oci runtime error *did not terminate successfully"];
    NodeHooks = "hooks_dir", Some("the node's own hooks cannot be used"), Container: ["hooks: /"];
    Hook = "oci_hook_failed", Some("an OCI hook failed"), Container: ["error running *hook", "error executing hook"];
    MemoryLimit = "memory_limit_too_low", Some("it has too little memory"), Container:
        ["container init was oom-killed", "oom-killed (memory limit too low", "unable to set memory limit to"];
    // The AppArmor texts end in words that a missing command has as well.
    AppArmorGone = "apparmor_profile", Some("its AppArmor profile is not loaded"), Container:
        ["apparmor failed to apply profile*no such file"];
    AppArmorFails = "apparmor_fails", Some("its AppArmor profile cannot be applied"), Container:
        ["apparmor failed to apply profile"];
    Selinux = "selinux_label", Some("its SELinux label is not accepted"), Container:
        ["unable to set process label", "/attr/keycreate: ", "failed to set selinux", "/attr/exec: invalid argument"];
    // Those of runc and of CRI-O.
    CgroupDriver = "cgroup_driver", Some("the kubelet and the runtime use different cgroup drivers"), Node:
        ["expected cgroupspath to be of format", "systemd cgroup manager, but did not receive slice as parent",
         "cgroupfs cgroup manager, but received systemd slice as parent"];
    Cgroup = "cgroup_missing", Some("its cgroup, or a controller in it, is missing"), Node:
        ["open /sys/fs/cgroup/*: no such file or directory", "openat2 /sys/fs/cgroup/*: no such file or directory",
         "stat /sys/fs/cgroup/*: no such file or directory", "mkdir /sys/fs/cgroup/*: no such file or directory"];
    CgroupLimit = "cgroup_limit", Some("the kernel does not accept a resource limit"), Node:
        ["/sys/fs/cgroup/*cpuset.*: numerical result out of range", "/sys/fs/cgroup/*cpuset.*: permission denied",
         "/sys/fs/cgroup/*cpuset.*: invalid argument",
         "/sys/fs/cgroup/*quota_us: invalid argument", "/sys/fs/cgroup/*: numerical result out of range",
         "/sys/fs/cgroup/*.max: invalid argument"];
    Sysctl = "unknown_sysctl", Some("the kernel has no such sysctl here, or its module is not loaded"), Node:
        ["open /proc/sys/*no such file or directory", "open `/proc/sys/*no such file or directory",
         "write to `/proc/sys/*no such file or directory"];
    Rlimit = "rlimit", Some("a ulimit is above what the runtime may set"), Container:
        ["error setting rlimit*operation not permitted"];
    InitDied = "init_died", Some("its process ended before the command ran: memory ran out, or a seccomp profile forbids too much"), Node:
        ["read init-p: connection reset", "final child's pid from pipe: eof", "cannot start a stopped process",
         "cannot start a container that has stopped", "init preliminary setup: eof"];
    WorkingDir = "working_dir", Some("its working directory cannot be entered"), Container:
        ["chdir to ", "container init: mkdir /*: not a directory", "container init: mkdir /*: permission denied", "working directory \"*is not a directory"];
    CommandPath = "command_or_interpreter_not_found", Some("its command is not in the image"), Container:
        ["executable file `/*` not found"];
    CommandMissing = "command_not_found", Some("the image's PATH has no executable of that name"), Container:
        ["executable file *not found"];
    CommandOrInterpreterMissing = "command_or_interpreter_not_found",
        Some("its command, or its interpreter, is not in the image"), Container:
        ["exec: \"*no such file or directory", "exec /*no such file or directory", "exec: <redacted>*no such file or directory",
         "exec <redacted>: no such file or directory", "exec container process *no such file or directory"];
    CommandDenied = "command_not_executable", Some("its command may not be executed"), Container:
        ["exec: \"*permission denied", "exec /*permission denied", "exec: <redacted>*permission denied", "exec: \"*is a directory",
         "exec container process *permission denied", "open executable: permission denied"];
    CommandFormat = "command_format", Some("its command is made for another architecture, or is no program"), Container:
        ["exec format error"];
    User = "unknown_user", Some("the image does not have its user or group"), Container:
        ["unable to find user", "unable to find group", "no matching entries in passwd", "no users found",
         "is not in the passwd of image", "is not in the group file of image"];
    AppArmor = "apparmor_profile", Some("its AppArmor profile is not loaded"), Container:
        ["apparmor*not loaded", "apparmor profile not found", "no profile of this name is loaded", "apparmor*not found"];
    Device = "cdi_device", Some("its CDI device is not known"), Container: ["unresolvable cdi device", "cdi device * does not exist on this node"];
    SandboxGone = "sandbox_gone", Some("its sandbox is gone"), Container:
        ["failed to find sandbox id", "sandbox \"*\" does not exist", "sandbox \"*\": not found"];
    SandboxEnded = "sandbox_ended", Some("its sandbox has ended"), Container:
        ["sandbox *is not running", "sandbox *is not ready", "failed to get sandbox container task*not found"];
    ImageGone = "image_gone", Some("its image is not on this node"), Container:
        ["failed to get image", "failed to resolve image", "image \"*\": not found", "image \"*\" does not exist",
         "does not resolve to an image id", "image not known"];
    MountType = "mount_failed", Some("a directory is mounted over a file, or a file over a directory"), Container:
        ["error mounting*not a directory", "error mounting*is a directory", "mount*trying to mount a directory onto a file"];
    Mount = "mount_failed", Some("a mount failed"), Container:
        ["error mounting", "failed to fulfil mount request", "failed to mount", "failed to generate spec: failed to stat",
         "failed to generate container*spec: failed to stat", "failed to apply oci options: *failed to stat",
         "failed to prepare to mount"];

    Busy = "busy", None, Any: ["device or resource busy"];
    PermissionDenied = "permission_denied", None, Any: ["permission denied", "operation not permitted"];
}

impl FaultClass {
    /// The class that code and text of a failed call prove.
    pub(super) fn from_call(call: &EpisodeCall) -> Option<Self> {
        let text = lower(call);
        let answers = server::answers(&text);
        let code = call.outcome().map(|outcome| outcome.code);
        let telling = code.and_then(|code| server::telling(&answers, code));
        let found = Self::in_text(telling.unwrap_or(&text), call);
        found
            .or_else(|| telling.and_then(|answer| missing(answer, &text)))
            .or_else(|| by_code(call))
    }

    /// The class that a text in lower case proves. What a server says counts only if nothing else does.
    fn in_text(text: &str, call: &EpisodeCall) -> Option<Self> {
        let own = server::without_words(text);
        Self::in_table(&own, call).or_else(|| Self::in_table(text, call))
    }

    /// The class of the first row with a wording that the text has.
    fn in_table(text: &str, call: &EpisodeCall) -> Option<Self> {
        let pulls = call.method == Method::PullImage || is_of_sandbox_image(call);
        let creates = matches!(
            call.method,
            Method::CreateContainer | Method::StartContainer
        );
        let mut rows = FAULT_TABLE.iter().filter(|(_, scope, _)| match scope {
            Any => true,
            Image => pulls,
            Container => creates,
            Node => !pulls,
            Network => !pulls && is_of_network(call),
            NoContainer => !creates && call.method != Method::ExecSync,
        });
        let row = rows.find(|(.., wordings)| wordings.iter().any(|wording| has(text, wording)));
        row.map(|(fault, ..)| *fault)
    }
}

/// The class that one of several servers does not have.
fn missing(answer: &str, text: &str) -> Option<FaultClass> {
    let is_missing = answer.ends_with(": not found");
    let is_part = text.starts_with("blob ");
    let whole = (!is_part).then_some(FaultClass::ImageMissing);
    let what = whole.unwrap_or(FaultClass::PartMissing);
    is_missing.then_some(what)
}

/// What the code of a pull proves without its text.
fn by_code(call: &EpisodeCall) -> Option<FaultClass> {
    let code = call.outcome()?.code;
    // Layers and snapshots can be missing as well.
    let text = lower(call);
    let parts = ["snapshot", "extract", "content digest", "layer", "blob"];
    let whole = !parts.iter().any(|part| text.contains(part));
    match (call.method, code) {
        (Method::PullImage, Code::NotFound) if whole => Some(FaultClass::ImageMissing),
        (Method::PullImage, Code::Unauthenticated) => Some(FaultClass::Unauthorized),
        _ => None,
    }
}

/// Returns whether the text has the parts of the wording, which `*` separates, in this order.
fn has(text: &str, wording: &str) -> bool {
    let mut rest = Some(text);
    for part in wording.split('*') {
        rest = rest.and_then(|rest| Some(rest.split_once(part)?.1));
    }
    rest.is_some()
}

fn lower(call: &EpisodeCall) -> String {
    call.error().map_or("", |text| text).to_ascii_lowercase()
}

/// Returns whether a sandbox failed for its pause image.
pub(super) fn is_of_sandbox_image(call: &EpisodeCall) -> bool {
    let wordings = [
        "sandbox image",
        "pause image",
        "infra image",
        "creating pod sandbox*initializing source",
    ];
    let text = lower(call);
    call.method == Method::RunPodSandbox && wordings.iter().any(|wording| has(&text, wording))
}

/// Returns whether the text of a sandbox's failure is about its network.
pub(super) fn is_of_network(call: &EpisodeCall) -> bool {
    let wordings = [
        "plugin type=",
        "network for sandbox",
        "network sandbox",
        "network: ",
        "networkplugin",
        "network plugin",
        "netplugin",
        "failed to find plugin",
        "network is ready",
        "network config",
        "hostport",
    ];
    // The names of handlers and of NRI plugins may be any words, and an OCI runtime with a network stack of its own (gVisor) has
    // faults of its own.
    let other_parts = [
        "runtime handler",
        "oci runtime",
        "nri plugin",
        "nri runpodsandbox",
    ];
    let text = lower(call);
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
    (call.method.makes_sandbox() || call.method == Method::StopPodSandbox)
        && !other_parts.iter().any(|part| text.contains(part))
        && !is_of_sandbox_image(call)
        && (wordings.iter().any(|wording| text.contains(wording))
            || words.any(|word| matches!(word, "cni" | "ipam")))
}

/// The name and the words of each class.
#[cfg(test)]
pub(crate) fn documented() -> Vec<(&'static str, Option<&'static str>)> {
    let rows = FAULT_TABLE.iter();
    rows.map(|(fault, ..)| (fault.name(), fault.plain()))
        .collect()
}
