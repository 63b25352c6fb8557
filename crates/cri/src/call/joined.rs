//! A retry that waits for an earlier call instead of repeating it, by `proxy::backend::retries`.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The call that a retry joined. Small, since every record in the flight recorder has room for it. Its serde form is part of the
/// journal: the deadline in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JoinedCall(NonZeroU32);

impl JoinedCall {
    /// A call whose caller gave up at this deadline.
    pub fn new(deadline: Duration) -> Self {
        let ms = u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX);
        Self(NonZeroU32::new(ms).unwrap_or(NonZeroU32::MIN))
    }

    /// The deadline at which its caller gave up.
    pub fn deadline(self) -> Duration {
        Duration::from_millis(self.0.get().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_written_in_milliseconds() {
        let joined = JoinedCall::new(Duration::from_secs(240));
        let text = serde_json::to_string(&joined).expect("json");
        assert_eq!(text, "240000");
        let read: JoinedCall = serde_json::from_str(&text).expect("number");
        assert_eq!(read.deadline(), Duration::from_secs(240));
        assert!(JoinedCall::new(Duration::ZERO).deadline() > Duration::ZERO);
    }
}
