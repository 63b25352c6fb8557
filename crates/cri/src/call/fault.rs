//! What was injected into a call on purpose, by `proxy::faults`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

crate::named! {
    /// Kind of fault. A metric label.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    pub enum FaultKind {
        /// The call is held for a time, then goes on.
        Delay = "delay",
        /// The call is answered with an error and never reaches a backend.
        Fail = "fail",
        /// The call is held until the fault ends, then goes on.
        Hang = "hang",
    }
}

/// A fault that was injected into a call. Small, since every record in the flight recorder has room for it. Its serde form is
/// part of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct InjectedFault {
    kind: FaultKind,
    /// Milliseconds, big-endian: up to four hours, and faults last one at most.
    held: [u8; 3],
}

#[derive(Serialize, Deserialize)]
struct Written {
    kind: FaultKind,
    held_ms: u32,
}

impl InjectedFault {
    /// A fault that held a call for this time, or has held it so far.
    pub fn new(kind: FaultKind, held: Duration) -> Self {
        Self::from_millis(kind, u32::try_from(held.as_millis()).unwrap_or(u32::MAX))
    }

    fn from_millis(kind: FaultKind, ms: u32) -> Self {
        let [_, a, b, c] = ms.min(0xff_ffff).to_be_bytes();
        let held = [a, b, c];
        Self { kind, held }
    }

    /// Its kind.
    pub const fn kind(&self) -> FaultKind {
        self.kind
    }

    /// How long the call was held, or has been held so far, in milliseconds.
    pub const fn held_ms(&self) -> u32 {
        let [a, b, c] = self.held;
        u32::from_be_bytes([0, a, b, c])
    }

    /// The same.
    pub const fn held(&self) -> Duration {
        Duration::from_millis(self.held_ms() as u64)
    }
}

impl From<InjectedFault> for Written {
    fn from(fault: InjectedFault) -> Self {
        let (kind, held_ms) = (fault.kind, fault.held_ms());
        Self { kind, held_ms }
    }
}

impl From<Written> for InjectedFault {
    fn from(written: Written) -> Self {
        Self::from_millis(written.kind, written.held_ms)
    }
}

crate::serde_by_name!(FaultKind);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_and_read_to_the_millisecond() {
        for ms in [0, 1, 3000, 3_600_000] {
            let fault = InjectedFault::new(FaultKind::Hang, Duration::from_millis(ms));
            assert_eq!(u64::from(fault.held_ms()), ms);
            let text = serde_json::to_string(&fault).expect("json");
            assert_eq!(text, format!(r#"{{"kind":"hang","held_ms":{ms}}}"#));
            assert_eq!(
                serde_json::from_str::<InjectedFault>(&text).ok(),
                Some(fault)
            );
        }
        let long = InjectedFault::new(FaultKind::Delay, Duration::MAX);
        assert!(long.held() > Duration::from_secs(3600));
    }
}
