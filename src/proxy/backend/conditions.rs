//! The conditions of a runtime: `RuntimeReady`, `NetworkReady` and others of its Status, from responses to the probe
//! and to the kubelet.

use std::path::Path;
use std::time::SystemTime;

use super::Backend;
use super::health::HealthCondition;
use crate::cri::redact;
use crate::cri::subject::{ResponseDetails, RuntimeCondition};
use crate::units::duration;

impl Backend {
    /// Updates the state of the runtime from a response to a caller.
    pub fn learn(&self, answer: &ResponseDetails) {
        if let Some(conditions) = &answer.conditions {
            self.saw_conditions(conditions);
        }
        if let Some(path) = &answer.image_fs {
            self.health().set_image_fs(Path::new(path.text()));
        }
    }

    /// Updates the conditions from a Status response, and logs the changed ones.
    pub(super) fn saw_conditions(&self, conditions: &[RuntimeCondition]) {
        let now = SystemTime::now();
        let conditions = conditions.iter().map(|condition| HealthCondition {
            kind: redact::own_text(&condition.kind).into(),
            status: condition.status,
            reason: redact::own_text(&condition.reason).into(),
            message: self.shown(condition.message.text()),
            since: now,
        });
        for (before, now) in self.health().set_conditions(conditions.collect()) {
            log(self.name(), before.as_ref(), &now);
        }
    }

    /// Redacts a message of the runtime. Those of the built-in runtime quote no other program.
    fn shown(&self, message: &str) -> String {
        let text = if self.is_local() {
            redact::own_text(message)
        } else {
            redact::error_text(message, None, None, Some(self.name()))
        };
        text.into()
    }
}

fn log(backend: &str, before: Option<&HealthCondition>, now: &HealthCondition) {
    if !now.status {
        return tracing::warn!(
            event = "backend.condition",
            criscope.backend = backend,
            condition = now.kind,
            status = false,
            reason = now.reason,
            error.message = now.message,
            "{} is false: {}",
            now.kind,
            now.said()
        );
    }
    let lasted = before.and_then(|before| now.since.duration_since(before.since).ok());
    let lasted = lasted.unwrap_or_default().as_secs_f64() * 1e3;
    tracing::info!(
        event = "backend.condition",
        criscope.backend = backend,
        condition = now.kind,
        status = true,
        "{} is true again after {}",
        now.kind,
        duration(lasted)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::subject::Unseen;

    fn condition(kind: &str, status: bool, message: &str) -> RuntimeCondition {
        RuntimeCondition {
            kind: kind.into(),
            status,
            reason: "NetworkPluginNotReady".into(),
            message: Unseen::new(message),
        }
    }

    #[test]
    fn a_condition_keeps_the_time_of_its_change() {
        let backend = Backend::remote("main", "/nowhere".into());
        let states = || backend.health().state().conditions;
        backend.saw_conditions(&[condition("NetworkReady", false, "hunter2: not ready")]);
        let first = states();
        assert!(!first[0].status);
        assert!(!first[0].message.contains("hunter2"), "{first:?}");
        assert!(first[0].message.contains("not ready"), "{first:?}");
        backend.saw_conditions(&[condition("NetworkReady", false, "another reason")]);
        assert_eq!(states()[0].since, first[0].since);
        backend.saw_conditions(&[condition("NetworkReady", true, "")]);
        assert!(states()[0].since > first[0].since);
        assert_eq!(states()[0].said(), "NetworkPluginNotReady");
    }
}
