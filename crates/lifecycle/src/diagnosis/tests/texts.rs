//! Error texts as runtimes write them, and what the first line says of them: the class only where the text proves it.

use super::*;
use criscope_cri::error_chain;

/// The first line five seconds after this call failed with this code and text.
fn line(call: EpisodeCall, code: Code, text: &str) -> String {
    says([call.fails(code, text)], 5_500)
}

/// Checks that the line is this operation, these words of a class (if any) and the cause in the text.
pub(super) fn check(call: &EpisodeCall, operation: &str, cases: &[(Code, &str, &str)]) {
    for (code, text, words) in cases {
        let words = match *words {
            "" => String::new(),
            words => format!("{words}: "),
        };
        let code_name = criscope_cri::status::code_name(*code);
        let cause = error_chain::innermost(text);
        let cause = error_chain::shortened(&cause, 300);
        assert_eq!(
            line(call.clone(), *code, text),
            format!("{operation}: {words}{code_name} {cause} (5 s ago)")
        );
    }
}

#[test]
fn of_pulls() {
    let pull = pod("web").pull("r.io/a:1", 0, 500);
    let missing = "the registry has no such image";
    let no_access = "the registry has no such image, or denies access with these credentials";
    let unauthorized = "the registry does not accept the credentials, or none were sent";
    let dns = "the registry's name cannot be resolved";
    let slow = "the registry did not answer in time";
    let cases = [
        (
            Code::NotFound,
            "failed to resolve reference \"r.io/a:1\": r.io/a:1: not found",
            missing,
        ),
        (
            Code::Unknown,
            "reading manifest 1 in r.io/a: manifest unknown",
            missing,
        ),
        (Code::NotFound, "r.io/a:1: not found", missing),
        // What is missing is on the node.
        (
            Code::NotFound,
            "failed to extract layer sha256:0a: failed to stat snapshot sha256:1b: not found",
            "the runtime's image store has lost a part of the image",
        ),
        (
            Code::Unknown,
            "pull access denied, repository does not exist or may require authorization: server message: \
          insufficient_scope: authorization failed",
            no_access,
        ),
        (
            Code::Unknown,
            "reading manifest 1 in r.io/a: requested access to the resource is denied",
            no_access,
        ),
        (
            Code::Unknown,
            "failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized",
            "the token service does not accept the credentials, or none were sent",
        ),
        (
            Code::Unauthenticated,
            "r.io: authentication failed: it wants a login",
            unauthorized,
        ),
        (
            Code::Unknown,
            "failed to authorize: failed to fetch anonymous token: dial tcp: lookup auth.r.io: no such host",
            "the token service's name cannot be resolved",
        ),
        (
            Code::Unknown,
            "dial tcp: lookup r.io on 10.0.0.53:53: dial udp 10.0.0.53:53: connect: network is unreachable",
            dns,
        ),
        (
            Code::Unknown,
            "dial tcp: lookup r.io on 10.0.0.10:53: read udp 10.0.0.1:4: i/o timeout",
            dns,
        ),
        (
            Code::Unknown,
            "dial tcp: lookup r.io on 10.0.0.10:53: read udp: connection refused",
            dns,
        ),
        (
            Code::Unavailable,
            "RegistryUnavailable: r.io: dns error: failed to lookup address information",
            dns,
        ),
        (
            Code::Unknown,
            "failed to do request: dial tcp 10.0.0.1:443: connect: connection refused",
            "the registry's address refuses connections",
        ),
        (
            Code::Unknown,
            "dial tcp 10.0.0.1:443: connect: no route to host",
            "no route to the registry",
        ),
        (Code::Unknown, "dial tcp 10.0.0.1:443: i/o timeout", slow),
        (Code::Unknown, "net/http: TLS handshake timeout", slow),
        (
            Code::Unavailable,
            "RegistryUnavailable: r.io: no answer within 30 s",
            slow,
        ),
        (
            Code::Unknown,
            "RegistryUnavailable: r.io: no connection within 30 s (name, TCP, TLS)",
            slow,
        ),
        (
            Code::Unknown,
            "RegistryUnavailable: r.io: 120 bytes in 60 s, less than 61440",
            "the registry stopped sending, or sends too slowly",
        ),
        (
            Code::Unknown,
            "proxyconnect tcp: dial tcp 10.0.0.9:3128: connect: connection refused",
            "the HTTP proxy cannot be reached",
        ),
        (
            Code::Unavailable,
            "dial unix /run/stargz.sock: connect: connection refused",
            "a local service cannot be reached",
        ),
        (
            Code::Unknown,
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            "the registry's certificate is not accepted",
        ),
        (
            Code::Unknown,
            "x509: certificate has expired or is not yet valid",
            "the registry's certificate is not accepted",
        ),
        (
            Code::Unknown,
            "http: server gave HTTP response to HTTPS client",
            "the registry speaks HTTP without TLS",
        ),
        (
            Code::Unknown,
            "unexpected status from HEAD request: 429 Too Many Requests",
            "the registry limits the rate of pulls",
        ),
        (
            Code::Unknown,
            "toomanyrequests: You have reached your pull rate limit",
            "the registry limits the rate of pulls",
        ),
        (
            Code::Unknown,
            "unexpected status from GET request: 503 Service Unavailable",
            "the registry failed",
        ),
        (
            Code::Unknown,
            "unexpected status from HEAD request: 403 Forbidden",
            "the registry denies access",
        ),
        (
            Code::Unknown,
            "read tcp 10.0.0.1:4: connection reset by peer",
            "the connection to the registry broke",
        ),
        (
            Code::NotFound,
            "no match for platform in manifest: not found",
            "the image has no variant for this node's platform",
        ),
        (
            Code::FailedPrecondition,
            "r.io/a:1: no image for linux/arm64, only for linux/amd64",
            "the image has no variant for this node's platform",
        ),
        (
            Code::Unknown,
            "failed commit on ref \"layer\": unexpected commit digest sha256:0a",
            "the content does not match its digest",
        ),
        (
            Code::InvalidArgument,
            "invalid reference format",
            "the image reference is invalid",
        ),
        (
            Code::Unknown,
            "SignatureValidationFailed: no signature",
            "its signature is not accepted",
        ),
        (
            Code::Unknown,
            "failed to extract layer: write /a: no space left on device",
            "a disk is full, or out of inodes",
        ),
        (
            Code::ResourceExhausted,
            "/var/lib/criscope: no space: 1.2 MiB are free, 400.0 MiB are needed",
            "a disk is full, or out of inodes",
        ),
        (
            Code::ResourceExhausted,
            "/var/lib/criscope: no space: 3 inodes are free, 400 are needed",
            "no inodes are left",
        ),
        (
            Code::Unknown,
            "mkdir /var/lib/containerd/a: read-only file system",
            "a file system is read-only",
        ),
        (
            Code::Unknown,
            "open /var/lib/containerd/a: permission denied",
            "",
        ),
        (
            Code::Unavailable,
            "backend containerd at unix:///run/containerd/containerd.sock: Connection refused (os error 111)",
            "the runtime cannot be reached",
        ),
        (
            Code::Unavailable,
            "backend containerd at unix:///run/containerd/containerd.sock: connection lost during the call",
            "the connection to the runtime broke during the call",
        ),
        // It is not in the table.
        (Code::Unknown, "the moon is in the wrong phase", ""),
    ];
    check(&pull, "image r.io/a:1 cannot be pulled", &cases);
    assert_eq!(
        line(pull, Code::Unauthenticated, ""),
        format!("image r.io/a:1 cannot be pulled: {unauthorized}: UNAUTHENTICATED (5 s ago)")
    );
}
