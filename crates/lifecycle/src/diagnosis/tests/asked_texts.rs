//! Error texts of components that the runtime consults: NRI plugins, image verifiers, signature policies, key providers, hooks.
//! What these say may read like the fault of a disk, a network or the registry.

use super::texts::check;
use super::*;

/// Of pulls, with the words of the class.
const PULLS: &[(&str, &str)] = &[
    (
        "SignatureValidationFailed: r.io:5000/a:1: verifier scan rejected it (exit code 1): 2 critical vulnerabilities",
        "an image verifier of this node rejects it",
    ),
    (
        "image verifier scan blocked pull of r.io/a:1 with digest sha256:0a for reason: 401 unauthorized: no report",
        "an image verifier of this node rejects it",
    ),
    (
        "SignatureValidationFailed: r.io/a:1: verifier scan: no answer within 10 s",
        "an image verifier of this node fails",
    ),
    (
        "SignatureValidationFailed: r.io/a:1: verifier scan was killed: signal: 9 (SIGKILL)",
        "an image verifier of this node fails",
    ),
    (
        "SignatureValidationFailed: r.io/a:1: verifiers in /opt/verifiers: there are none",
        "an image verifier of this node fails",
    ),
    (
        "SignatureValidationFailed: r.io/a:1: policy /etc/containers/policy.json: No such file or directory (os error 2)",
        "the signature policy of this node cannot be used",
    ),
    (
        "SignatureValidationFailed: r.io/a:1: none of the signatures is accepted: a signature for \"q.io/a:1\" is not one for r.io/a:1",
        "its signature is not accepted",
    ),
    (
        "image r.io/a:1: layer sha256:0a is encrypted: its key is wrapped for provider.kms; key provider kms: /usr/bin/kms: no answer within 30 s",
        "a key provider of this node fails",
    ),
    (
        "image r.io/a:1: layer sha256:0a is encrypted: its key is wrapped for provider.kms; key provider kms: unix:/run/kms.sock: transport error: Connection refused (os error 111)",
        "a key provider of this node fails",
    ),
    (
        "image r.io/a:1: layer sha256:0a is encrypted: its key is wrapped for jwe; only key providers are supported",
        "the key of an encrypted layer is not available",
    ),
    (
        "image r.io/a:1: layer sha256:0a is encrypted: its key is wrapped for provider.kms; key provider kms is not configured",
        "the key of an encrypted layer is not available",
    ),
    (
        "failed to extract layer sha256:0a: ctd-decoder: missing private key needed for decryption",
        "the key of an encrypted layer is not available",
    ),
    // A store of signatures, which is not the registry.
    (
        "RegistryUnavailable: sigstore.example: error sending request: Connection refused (os error 111)",
        "sigstore.example's address refuses connections",
    ),
    (
        "RegistryUnavailable: r.io: error sending request: Connection refused (os error 111)",
        "the registry's address refuses connections",
    ),
];

/// Of CreateContainer.
const CREATIONS: &[(&str, &str)] = &[
    (
        "SignatureValidationFailed: r.io/a:1: none of the signatures is accepted: there are none",
        "the signature of its image is not accepted",
    ),
    (
        "NRI plugin 10-quota: CreateContainer: dial unix /run/quota.sock: connect: connection refused (code 2)",
        "",
    ),
    (
        "NRI plugins 20-b and 10-a both set environment variable X",
        "",
    ),
    (
        "CDI device vendor.example/gpu=0 does not exist on this node; /etc/cdi/gpu.yaml was not read: permission denied",
        "its CDI device is not known",
    ),
    (
        "hooks: /etc/hooks.d/gpu.json: its program /usr/bin/gpu-hook does not exist",
        "the node's own hooks cannot be used",
    ),
    (
        "container \"app\": RDT class \"gold\": /sys/fs/resctrl/gold: No space left on device (os error 28)",
        "a limit of the kernel is reached, no disk is full",
    ),
];

#[test]
fn of_verifiers_and_key_providers() {
    let pull = pod("web").pull("r.io/a:1", 0, 500);
    for (text, words) in PULLS {
        let operation = "image r.io/a:1 cannot be pulled";
        check(&pull, operation, &[(Code::Unknown, text, words)]);
    }
}

#[test]
fn of_plugins_devices_hooks_and_classes() {
    let create = pod("web").create(("app", 0), 0, 500);
    for (text, words) in CREATIONS {
        let operation = "container app cannot be created";
        check(&create, operation, &[(Code::Unknown, text, words)]);
    }
}

/// Its words may be those of a network.
#[test]
fn of_a_plugin_that_refuses_a_sandbox() {
    let run = pod("web").run(0, 500);
    let text = "NRI plugin 10-cni-guard: RunPodSandbox: no network policy: access denied (code 2)";
    check(
        &run,
        "the sandbox cannot be made",
        &[(Code::Unknown, text, "")],
    );
}
