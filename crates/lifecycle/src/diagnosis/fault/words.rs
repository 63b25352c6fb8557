//! What a class of faults says of one failed call, with the facts that the error text has.

use std::borrow::Cow;

use super::{FaultClass, detail, missing, server};
use crate::diagnosis::failure::error_message;
use crate::episode_call::EpisodeCall;
use crate::kubelet::execs::program;

/// The words of a class for one failed call.
#[derive(Debug)]
pub(crate) struct FaultWords {
    pub(in crate::diagnosis) words: Cow<'static, str>,
    /// True if the words say all that the error text says, so that a sentence does without the text.
    pub(in crate::diagnosis) is_whole: bool,
}

/// A fact of an error text.
enum FaultDetail {
    /// The words need none.
    None,
    /// This fact stands behind the words, in brackets.
    Behind(String),
    /// These words have the fact in them.
    Within(String),
    /// The words need one that the text does not have in a known form, or only the text says why.
    Missing,
}

impl FaultDetail {
    fn behind(fact: Option<impl Into<String>>) -> Self {
        fact.map_or(Self::Missing, |fact| Self::Behind(fact.into()))
    }

    fn within(fact: Option<&str>, words: impl FnOnce(&str) -> String) -> Self {
        fact.map_or(Self::Missing, |fact| Self::Within(words(fact)))
    }

    /// A fact that may be missing.
    fn or_none(self) -> Self {
        match self {
            Self::Missing => Self::None,
            found => found,
        }
    }
}

impl FaultClass {
    /// The class of this failed call in plain words; `None` if the error text is plain enough. Each of several servers that were asked has
    /// a class of its own.
    pub(in crate::diagnosis) fn words(self, call: &EpisodeCall) -> Option<FaultWords> {
        let (text, image) = (error_message(call), call.image.as_deref());
        let answers = server::answers(text);
        if answers.is_empty() {
            let words = server::named(self.plain()?, text, image);
            return Some(self.with_detail(words, text));
        }
        let mut all: Vec<Cow<'static, str>> = Vec::new();
        for answer in answers {
            let lower = answer.to_ascii_lowercase();
            let class = Self::in_table(&server::without_words(&lower), call)
                .or_else(|| missing(answer, text))
                .or_else(|| Self::in_table(&lower, call));
            let words = class.and_then(Self::plain);
            let words = words.map(|words| server::named_in(words, answer, image));
            all.extend(words.filter(|words| !all.contains(words)));
        }
        let words = if all.is_empty() {
            Cow::Borrowed(self.plain()?)
        } else {
            Cow::Owned(all.join(", "))
        };
        let is_whole = true;
        Some(FaultWords { words, is_whole })
    }

    fn with_detail(self, words: Cow<'static, str>, text: &str) -> FaultWords {
        let (words, is_whole) = match self.detail(&words, text) {
            FaultDetail::None => (words, true),
            FaultDetail::Behind(fact) if words.contains(&fact) => (words, true),
            FaultDetail::Behind(fact) => (Cow::Owned(format!("{words} ({fact})")), true),
            FaultDetail::Within(words) => (Cow::Owned(words), true),
            FaultDetail::Missing => (words, false),
        };
        FaultWords { words, is_whole }
    }

    /// Returns whether a program, or its interpreter, was not found.
    pub(in crate::diagnosis) fn is_missing_program(self) -> bool {
        matches!(
            self,
            Self::CommandMissing | Self::CommandPath | Self::CommandOrInterpreterMissing
        )
    }

    /// The fact that belongs to the words.
    fn detail(self, words: &str, text: &str) -> FaultDetail {
        let program = program(text);
        match self {
            Self::CommandMissing => FaultDetail::within(program, |program| {
                format!("{program} is not in the image's PATH")
            }),
            Self::CommandPath => {
                FaultDetail::within(program, |program| format!("{program} is not in the image"))
            }
            Self::CommandOrInterpreterMissing => FaultDetail::within(program, |program| {
                // A program that is found and has no interpreter fails later, without a stat.
                if text.contains(&format!("stat {program}")) {
                    format!("{program} is not in the image")
                } else {
                    format!("{program}, or its interpreter, is not in the image")
                }
            }),
            Self::CommandDenied => {
                FaultDetail::within(program, |program| format!("{program} may not be executed"))
            }
            Self::CommandFormat => FaultDetail::within(program, |program| {
                format!("{program} is built for another architecture, or is no program")
            }),
            Self::ProgramMissing | Self::Helper | Self::HelperOfContainer => {
                FaultDetail::within(program, |program| {
                    format!("{program} is missing on this node")
                })
            }
            Self::ProgramBroken => FaultDetail::within(program, |program| {
                format!("{program} of this node cannot be executed")
            }),
            Self::User => {
                let user = detail::between(text, "unable to find user ", &[':', ' ']);
                let group = detail::between(text, "unable to find group ", &[':', ' ']);
                match (user, group) {
                    (Some(user), _) => FaultDetail::Within(format!("the image has no user {user}")),
                    (None, group) => FaultDetail::within(group, |group| {
                        format!("the image has no group {group}")
                    }),
                }
            }
            Self::WorkingDir => FaultDetail::within(detail::path(text), |path| {
                format!("the working directory {path} cannot be entered")
            }),
            Self::Device => {
                let mut words = text.split([' ', ',', ';']);
                let device = words.find(|word| word.contains('/') && word.contains('='));
                FaultDetail::within(device, |device| {
                    format!("the CDI device {device} is not known on this node")
                })
            }
            Self::Handler => {
                let named = ["runtime for \"", "runtime handler \"", "handler \""];
                FaultDetail::within(detail::quoted(text, &named), |handler| {
                    format!("the runtime has no runtime handler {handler}")
                })
            }
            Self::Sysctl => FaultDetail::within(detail::path(text), |path| {
                let sysctl = path.trim_start_matches("/proc/sys/").replace('/', ".");
                format!("the kernel has no sysctl {sysctl} here, or its module is not loaded")
            }),
            Self::Platform => match detail::platforms(text) {
                Some((node, image)) => FaultDetail::Within(format!(
                    "the image is built for {image} only, this node is {node}"
                )),
                None => FaultDetail::None,
            },
            Self::Addresses => FaultDetail::within(detail::range(text), |range| {
                format!("no free address in {range}")
            })
            .or_none(),
            Self::Unauthorized => login(words, text),
            Self::Dns => FaultDetail::behind(detail::name(text)).or_none(),
            Self::Proxy | Self::Refused | Self::Unreachable | Self::NoAnswer => {
                FaultDetail::behind(detail::address(text)).or_none()
            }
            Self::ApiAway => FaultDetail::behind(detail::address(text)),
            Self::AgentSocket | Self::Agent => {
                FaultDetail::behind(detail::path(text).or_else(|| detail::address(text)))
            }
            Self::RuntimeLost | Self::RuntimeAway | Self::PluginMissing => {
                FaultDetail::behind(detail::path(text)).or_none()
            }
            Self::KernelLimit
            | Self::NoSpace
            | Self::NoInodes
            | Self::Quota
            | Self::ReadOnly
            | Self::DiskError
            | Self::BrokenMount
            | Self::LocalService
            | Self::Cgroup => FaultDetail::behind(detail::path(text)),
            Self::CgroupLimit => FaultDetail::behind(detail::cgroup_file(text)),
            Self::MountType => FaultDetail::behind(mounted(text)),
            Self::Mount => FaultDetail::within(mount(text).as_deref(), str::to_owned),
            Self::Interface => {
                FaultDetail::behind(detail::quoted(text, &["lookup master \""])).or_none()
            }
            Self::Certificate | Self::ApiCertificate => {
                let found = detail::between(text, "x509: ", &['(', '"', ';']).map(str::trim_end);
                FaultDetail::behind(
                    found
                        .map(str::to_owned)
                        .or_else(|| detail::last_words(text)),
                )
            }
            Self::Denied | Self::NoAccess | Self::RateLimited | Self::ImageMissing => {
                FaultDetail::behind(detail::server_words(text)).or_none()
            }
            Self::RegistryFails => FaultDetail::behind(
                detail::server_words(text)
                    .map(str::to_owned)
                    .or_else(|| detail::last_words(text)),
            ),
            Self::Tls => FaultDetail::behind(detail::last_words(text)),
            Self::TooManyProcesses | Self::NoMemory => FaultDetail::behind(program),
            Self::Nri
            | Self::Verifier
            | Self::VerifierFails
            | Self::SignaturePolicy
            | Self::SignatureOfContainer
            | Self::Signature
            | Self::KeyProvider
            | Self::LayerKey
            | Self::Systemd
            | Self::ManifestBroken
            | Self::LayerBroken
            | Self::Hook
            | Self::NodeHooks
            | Self::OciRuntime
            | Self::HostPort
            | Self::BadRequest
            | Self::Busy
            | Self::PermissionDenied => FaultDetail::Missing,
            _ => FaultDetail::None,
        }
    }
}

/// Why a registry or its token service, which the words of the class name first, did not accept a login, if the text says it.
fn login(words: &str, text: &str) -> FaultDetail {
    let server = words
        .split(" does not accept ")
        .next()
        .unwrap_or("the registry");
    let lower = text.to_ascii_lowercase();
    if has_any(
        &lower,
        &[
            "none are configured",
            "there are none",
            "no basic auth credentials",
            "anonymous token",
        ],
    ) {
        return FaultDetail::Within(format!("{server} asks for a login and the pod has none"));
    }
    if lower.contains("token has expired") {
        return FaultDetail::Within(format!("the login for {server} has expired"));
    }
    if has_any(
        &lower,
        &[
            "invalid username/password",
            "incorrect username or password",
        ],
    ) {
        return FaultDetail::Within(format!(
            "{server} does not accept the pod's user and password"
        ));
    }
    FaultDetail::behind(detail::server_words(text)).or_none()
}

/// Which mount failed, and why: `/host/data cannot be mounted at /data: not a directory`.
fn mount(text: &str) -> Option<String> {
    const REASONS: [&str; 7] = [
        "not a directory",
        "is a directory",
        "no such file or directory",
        "no such device",
        "permission denied",
        "operation not permitted",
        "invalid argument",
    ];
    let mounted = mounted(text)?.replace(" at ", " cannot be mounted at ");
    let reason = REASONS.iter().find(|reason| text.contains(**reason))?;
    Some(if mounted.contains(" cannot ") {
        format!("{mounted}: {reason}")
    } else {
        format!("{mounted} cannot be mounted: {reason}")
    })
}

/// Source and target of a mount that failed: `/host/data at /data`, `/data` if they are the same.
fn mounted(text: &str) -> Option<String> {
    let source = detail::quoted(text, &["error mounting \"", "failed to stat \""])?;
    Some(match detail::quoted(text, &["to rootfs at \""]) {
        Some(target) if target != source => format!("{source} at {target}"),
        _ => source.to_owned(),
    })
}

fn has_any(text: &str, wordings: &[&str]) -> bool {
    wordings.iter().any(|wording| text.contains(wording))
}
