//! Which calls a fault is for, and what happens to them: the JSON of `/debug/faults`.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::MAX_FAULTS;
use crate::call::{Call, FaultKind};
use crate::cri::Method;
use crate::cri::status::{CODES, Code, code_name};
use crate::units::times::UnixMicros;

/// How long a fault may last.
const MAX_FAULT_DURATION: Duration = Duration::from_secs(3600);

/// Longest name of a pod or namespace, in bytes (RFC 1123 subdomain, as Kubernetes has it).
const MAX_NAME_BYTES: usize = 253;

/// A fault to inject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRule {
    /// The method.
    pub method: Method,
    /// Only calls for pods of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Only calls for pods of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Effect on the calls.
    pub effect: FaultEffect,
    /// Duration of the fault.
    pub for_ms: u64,
}

/// Effect of a fault on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultEffect {
    /// Hold the call for this time, at most until the fault ends.
    Delay {
        /// Milliseconds.
        ms: u64,
    },
    /// Answer the call with this code.
    Fail {
        /// The code, by name.
        #[serde(serialize_with = "write_code", deserialize_with = "read_code")]
        code: Code,
    },
    /// Hold the call until the fault ends.
    Hang,
}

/// A fault in effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultView {
    /// Number of the fault, for `clear`.
    pub number: u64,
    /// The rule.
    #[serde(flatten)]
    pub rule: FaultRule,
    /// End of the fault.
    pub until_unix_us: UnixMicros,
    /// Calls that it was injected into.
    pub calls: u64,
}

/// Why a fault is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultRuleError {
    /// A method that is not in the table.
    #[error("faults need a method of the CRI")]
    Method,
    /// No end, or too late a one.
    #[error("a fault lasts between 1 ms and {} s", MAX_FAULT_DURATION.as_secs())]
    Lasts,
    /// A delay that no call would get in full.
    #[error("the delay is longer than the fault lasts")]
    Delay,
    /// `OK` is no failure.
    #[error("a call cannot fail with OK")]
    Code,
    /// A name that no pod has.
    #[error("names of pods and namespaces have 1 to {MAX_NAME_BYTES} bytes")]
    Name,
    /// The limit is reached.
    #[error("{MAX_FAULTS} faults are in effect already: clear some")]
    TooMany,
}

impl FaultRule {
    /// How long it lasts.
    pub fn lasts(&self) -> Duration {
        Duration::from_millis(self.for_ms)
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// If a bound is exceeded.
    pub fn check(&self) -> Result<(), FaultRuleError> {
        if self.method == Method::Other {
            return Err(FaultRuleError::Method);
        }
        if self.for_ms == 0 || self.lasts() > MAX_FAULT_DURATION {
            return Err(FaultRuleError::Lasts);
        }
        let mut names = [&self.namespace, &self.pod].into_iter().flatten();
        if names.any(|name| name.is_empty() || name.len() > MAX_NAME_BYTES) {
            return Err(FaultRuleError::Name);
        }
        match self.effect {
            FaultEffect::Delay { ms } if ms > self.for_ms => Err(FaultRuleError::Delay),
            FaultEffect::Fail { code: Code::Ok } => Err(FaultRuleError::Code),
            _ => Ok(()),
        }
    }

    /// Returns whether the rule applies to this call.
    pub(super) fn fits(&self, call: &Call) -> bool {
        if call.method != self.method {
            return false;
        }
        if self.namespace.is_none() && self.pod.is_none() {
            return true;
        }
        let pod = call
            .subject
            .get()
            .and_then(|subject| subject.pod.as_deref());
        pod.is_some_and(|pod| {
            let (namespace, name) = (self.namespace.as_deref(), self.pod.as_deref());
            namespace.is_none_or(|namespace| *namespace == *pod.namespace)
                && name.is_none_or(|name| *name == *pod.name)
        })
    }
}

impl Display for FaultRule {
    /// `RunPodSandbox of shop/web is delayed by 3000 ms`
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.method)?;
        match (&self.namespace, &self.pod) {
            (Some(namespace), Some(pod)) => write!(f, " of {namespace}/{pod}")?,
            (Some(namespace), None) => write!(f, " of pods in {namespace}")?,
            (None, Some(pod)) => write!(f, " of pods named {pod}")?,
            (None, None) => {}
        }
        match self.effect {
            FaultEffect::Delay { ms } => write!(f, " is delayed by {ms} ms"),
            FaultEffect::Fail { code } => write!(f, " fails with {}", code_name(code)),
            FaultEffect::Hang => f.write_str(" hangs"),
        }
    }
}

impl FaultEffect {
    /// Kind of the effect.
    pub const fn kind(&self) -> FaultKind {
        match self {
            Self::Delay { .. } => FaultKind::Delay,
            Self::Fail { .. } => FaultKind::Fail,
            Self::Hang => FaultKind::Hang,
        }
    }
}

fn write_code<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(code_name(*code))
}

fn read_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
    let name = String::deserialize(deserializer)?;
    let code = CODES.into_iter().find(|code| code_name(*code) == name);
    code.ok_or_else(|| serde::de::Error::custom(format_args!("unknown code {name:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::subject::{PodIdentity, Subject};

    fn rule(text: &str) -> FaultRule {
        serde_json::from_str(text).expect("a rule")
    }

    fn call(namespace: &str, name: &str) -> Call {
        let call = Call::example(Method::RunPodSandbox);
        let pod = PodIdentity {
            namespace: namespace.into(),
            name: name.into(),
            uid: "u".into(),
            attempt: 0,
        };
        let subject = Subject {
            pod: Some(pod.into()),
            ..Subject::default()
        };
        call.subject.set(subject).expect("once");
        call
    }

    #[test]
    fn a_rule_fits_the_calls_that_it_names() {
        let any = r#"{"method":"RunPodSandbox","effect":"hang","for_ms":1000}"#;
        let named = |more: &str| rule(&any.replace('}', &format!(",{more}}}")));
        let web = call("shop", "web");
        assert!(rule(any).fits(&web));
        assert!(rule(any).fits(&Call::example(Method::RunPodSandbox)));
        assert!(!rule(any).fits(&Call::example(Method::PullImage)));
        for (more, fits) in [
            (r#""namespace":"shop""#, true),
            (r#""pod":"web""#, true),
            (r#""namespace":"shop","pod":"web""#, true),
            (r#""namespace":"other""#, false),
            (r#""namespace":"shop","pod":"web-1""#, false),
        ] {
            assert_eq!(named(more).fits(&web), fits, "{more}");
            // A rule for a pod does not apply to a call whose pod is unknown.
            assert!(!named(more).fits(&Call::example(Method::RunPodSandbox)));
        }
    }

    #[test]
    fn every_fault_has_an_end() {
        let with = |effect: &str, for_ms: u64| {
            let text = format!(r#"{{"method":"PullImage","effect":{effect},"for_ms":{for_ms}}}"#);
            rule(&text).check()
        };
        assert_eq!(with("\"hang\"", 3_600_000), Ok(()));
        assert_eq!(with("\"hang\"", 3_600_001), Err(FaultRuleError::Lasts));
        assert_eq!(with("\"hang\"", 0), Err(FaultRuleError::Lasts));
        assert_eq!(with(r#"{"delay":{"ms":3000}}"#, 3000), Ok(()));
        assert_eq!(
            with(r#"{"delay":{"ms":3001}}"#, 3000),
            Err(FaultRuleError::Delay)
        );
        assert_eq!(with(r#"{"fail":{"code":"UNAVAILABLE"}}"#, 1), Ok(()));
        assert_eq!(
            with(r#"{"fail":{"code":"OK"}}"#, 1),
            Err(FaultRuleError::Code)
        );
        let endless = r#"{"method":"PullImage","effect":"hang"}"#;
        assert!(serde_json::from_str::<FaultRule>(endless).is_err());
        let other = r#"{"method":"_OTHER","effect":"hang","for_ms":1}"#;
        assert_eq!(rule(other).check(), Err(FaultRuleError::Method));
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for name in ["", &*long] {
            let text =
                format!(r#"{{"method":"PullImage","pod":"{name}","effect":"hang","for_ms":1}}"#);
            assert_eq!(rule(&text).check(), Err(FaultRuleError::Name));
        }
    }
}
