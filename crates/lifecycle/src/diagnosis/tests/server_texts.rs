//! Pulls that fail for what an image is made of, or for a server that is not the registry.

use super::texts::check;
use super::*;

/// Codes, texts, and the words of the class.
const PARTS: &[(Code, &str, &str)] = &[
    (
        Code::NotFound,
        "failed to copy: httpReadSeeker: failed open: could not fetch content descriptor sha256:0a (application/vnd.oci.image.config.v1+json) from remote: not found",
        "the registry lacks a part of the image",
    ),
    (
        Code::NotFound,
        "blob sha256:0a: r.io: HTTP 404 Not Found: not found",
        "the registry lacks a part of the image",
    ),
    (
        Code::NotFound,
        "failed to resolve image: unexpected media type text/html for sha256:0a: not found",
        "a web page was sent, as by a portal or a proxy, in place of the image's manifest",
    ),
    (
        Code::Unknown,
        "r.io: unusable answer: a web page instead of a manifest",
        "a web page was sent, as by a portal or a proxy, in place of the image's manifest",
    ),
    (
        Code::Unknown,
        "children: invalid desc sha256:0a: invalid character 't' looking for beginning of object key string",
        "its manifest cannot be read",
    ),
    (
        Code::Unknown,
        "media type \"application/vnd.docker.distribution.manifest.v1+prettyjws\" is no longer supported since containerd v2.1, please rebuild the image",
        "its manifest has Docker's schema 1, which the runtime does not read",
    ),
    (
        Code::Unknown,
        "failed to extract layer sha256:0a: unexpected EOF: unknown",
        "a layer cannot be unpacked",
    ),
    (
        Code::Unknown,
        "failed to copy: httpReadSeeker: failed open: failed to do request: Get \"https://r.io/v2/a/blobs/sha256:0a\": EOF",
        "the connection to the registry broke",
    ),
    (
        Code::Unknown,
        "failed to copy: unexpected EOF",
        "the connection to the registry broke",
    ),
    (
        Code::NotFound,
        "failed to extract layer sha256:0a: failed to get reader from content store: blob sha256:1b expected at /var/lib/containerd/blobs/sha256/1b: blob not found: not found",
        "the runtime's image store has lost a part of the image",
    ),
    (
        Code::Unknown,
        "failed to extract layer sha256:0a: wrong diff id calculated on extraction \"sha256:1b\"",
        "the content does not match its digest",
    ),
    (
        Code::Unknown,
        "pulling from host r.io failed with status code [manifests 1]: 400 Bad Request",
        "the registry calls the request invalid, as one without TLS to a port with TLS",
    ),
];

/// The image's registry is r.io.
const SERVERS: &[(Code, &str, &str)] = &[
    (
        Code::Unknown,
        "failed to authorize: failed to fetch anonymous token: Get \"https://auth.r.io/token?scope=x\": dial tcp: lookup auth.r.io on 10.0.0.10:53: no such host",
        "the token service's name cannot be resolved",
    ),
    (
        Code::Unknown,
        "failed to authorize: failed to fetch oauth token: unexpected status: 503 Service Unavailable",
        "the token service failed",
    ),
    (
        Code::Unavailable,
        "RegistryUnavailable: token service auth.r.io: HTTP 500 Internal Server Error",
        "the token service failed",
    ),
    (
        Code::Unknown,
        "failed to copy: httpReadSeeker: failed open: failed to do request: Get \"https://cdn.example/blob?sig=x\": dial tcp 10.0.0.1:443: i/o timeout",
        "cdn.example did not answer in time",
    ),
    (
        Code::Unknown,
        "failed to resolve reference \"r.io/a:1\": failed to do request: Head \"https://mirror.local:5000/v2/a/manifests/1?ns=r.io\": dial tcp 10.0.0.1:5000: connect: connection refused",
        "mirror.local:5000's address refuses connections",
    ),
    (
        Code::Unavailable,
        "RegistryUnavailable: s3.example:9000, to which r.io redirects: error sending request: Connection refused (os error 111)",
        "s3.example:9000's address refuses connections",
    ),
    // Its own.
    (
        Code::Unknown,
        "failed to do request: Head \"https://eu.r.io:443/v2/a/manifests/1\": dial tcp 10.0.0.1:443: connect: connection refused",
        "the registry's address refuses connections",
    ),
];

#[test]
fn of_parts_of_images() {
    let pull = pod("web").pull("r.io/a:1", 0, 500);
    check(&pull, "image r.io/a:1 cannot be pulled", PARTS);
}

#[test]
fn of_other_servers_than_the_registry() {
    let pull = pod("web").pull("r.io/a:1", 0, 500);
    check(&pull, "image r.io/a:1 cannot be pulled", SERVERS);
    // Docker's registry has a name of its own.
    let text = "failed to do request: Head \"https://registry-1.docker.io/v2/library/busybox/manifests/1\": dial tcp 10.0.0.1:443: i/o timeout";
    check(
        &pod("web").pull("busybox:1", 0, 500),
        "image busybox:1 cannot be pulled",
        &[(Code::Unknown, text, "the registry did not answer in time")],
    );
}

/// Texts of the built-in runtime about several servers.
const SEVERAL: &[(Code, &str, &str)] = &[
    (
        Code::PermissionDenied,
        "r.io/a:1: 2 servers were asked: mirror.local:5000: access denied: HTTP 403 Forbidden: \"DENIED: no quota\"; then r.io: error sending request: client error (Connect): tcp connect error: Connection refused (os error 111)",
        "mirror.local:5000 denies access, the registry's address refuses connections",
    ),
    (
        Code::Unknown,
        "RegistryUnavailable: r.io/a:1: 3 servers were asked: a.example: no answer within 60 s; then b.example: HTTP 404 Not Found: not found; then r.io: HTTP 503 Service Unavailable",
        "a.example did not answer in time, b.example has no such image, the registry failed",
    ),
    (
        Code::Unknown,
        "r.io/a:1: 2 servers were asked: m.example: unusable answer: a redirect from https://m.example to http://s3.example:9000, which insecure_redirect_hosts does not allow; then r.io: dns error: failed to lookup address information",
        "m.example redirects to a server without TLS, which this node does not allow, the registry's name cannot be resolved",
    ),
    // What servers say proves nothing, and ends no answer.
    (
        Code::NotFound,
        "r.io/a:1: 2 servers were asked: m.example: HTTP 404 Not Found: \"x; then y: connection refused\": not found; then r.io: HTTP 404 Not Found: \"manifest unknown\": not found",
        "m.example has no such image, the registry has no such image",
    ),
    (
        Code::NotFound,
        "blob sha256:0a: 2 servers were asked: m.example: HTTP 404 Not Found: not found; then r.io: HTTP 404 Not Found: not found",
        "m.example lacks a part of the image, the registry lacks a part of the image",
    ),
    (
        Code::Unauthenticated,
        "r.io/a:1: 2 servers were asked: token service t.example: authentication failed: no token: HTTP 401 Unauthorized; then r.io: 5 bytes in 60 s, less than 61440",
        "the token service does not accept the credentials, or none were sent, the registry stopped sending, or sends too slowly",
    ),
];

/// What a registry says, in texts about one server.
const SAID: &[(Code, &str, &str)] = &[
    (
        Code::PermissionDenied,
        "r.io: access denied: HTTP 403 Forbidden: \"DENIED: upstream: connection refused\"",
        "the registry denies access",
    ),
    (
        Code::Unknown,
        "RegistryUnavailable: r.io: HTTP 429 Too Many Requests: \"TOOMANYREQUESTS: no such host\"; it asks to wait: 3600 s",
        "the registry limits the rate of pulls",
    ),
    (
        Code::Unknown,
        "r.io: unusable answer: HTTP 418 I'm a teapot: \"rate limit exceeded\"",
        "the registry limits the rate of pulls",
    ),
];

#[test]
fn of_several_servers() {
    let pull = pod("web").pull("r.io/a:1", 0, 500);
    check(&pull, "image r.io/a:1 cannot be pulled", SEVERAL);
    check(&pull, "image r.io/a:1 cannot be pulled", SAID);
}
