//! The signal that stops a container.

use crate::error::{Error, Result};
use criscope_cri::v1::{ContainerConfig, Signal};

/// The first real-time signal that glibc and musl leave to programs; the kernel's first one is 32.
const RTMIN: i32 = 34;
/// The last real-time signal, and the last of all.
const RTMAX: i32 = 64;

/// The signal that stops a container.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StopSignal {
    /// The number of the signal.
    pub(super) number: i32,
    /// A warning for people, if the image names a signal that does not exist.
    pub(super) remark: Option<String>,
}

impl StopSignal {
    /// The stop signal of the request, else of the image, else SIGTERM. An image whose signal is unknown runs, and is stopped by
    /// SIGTERM: containerd runs it too, and then fails to stop it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a signal of the request that the CRI does not have.
    pub(super) fn choose(config: &ContainerConfig, image: &str) -> Result<Self> {
        let requested = Signal::try_from(config.stop_signal);
        let requested = requested.ok().and_then(|signal| match signal {
            Signal::RuntimeDefault => Some(None),
            signal => number_of(signal).map(Some),
        });
        let Some(requested) = requested else {
            let number = config.stop_signal;
            return Err(Error::invalid(format!("unknown signal {number}")));
        };
        let term = nix::sys::signal::Signal::SIGTERM as i32;
        let (number, remark) = match (requested, image) {
            (Some(number), _) => (number, None),
            (None, "") => (term, None),
            (None, name) => match parse(name) {
                Some(number) => (number, None),
                None => (term, Some(unknown(name))),
            },
        };
        Ok(Self { number, remark })
    }
}

/// The number of a signal of the CRI; `None` for the default of the runtime.
pub(super) fn number_of(signal: Signal) -> Option<i32> {
    parse(signal.as_str_name().strip_prefix("SIGNAL_")?)
}

fn unknown(name: &str) -> String {
    format!("the stop signal {name:?} of the image is unknown: SIGTERM stops its containers")
}

/// Parses a signal in the notations of images and of the CRI: `SIGQUIT`, `quit`, `3`, `SIGRTMIN+3`, `SIGRTMINPLUS3`. `None` if there is no
/// such signal.
pub(super) fn parse(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return Some(number).filter(|number| (1..=RTMAX).contains(number));
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = if let Some(rest) = name.strip_prefix("RTMIN") {
        RTMIN.checked_add(offset(rest, ["+", "PLUS"])?)?
    } else if let Some(rest) = name.strip_prefix("RTMAX") {
        RTMAX.checked_sub(offset(rest, ["-", "MINUS"])?)?
    } else {
        return named(name);
    };
    Some(number).filter(|number| (RTMIN..=RTMAX).contains(number))
}

/// The distance from the first or the last real-time signal, behind one of these signs; 0 without any.
fn offset(text: &str, signs: [&str; 2]) -> Option<i32> {
    if text.is_empty() {
        return Some(0);
    }
    let digits = signs.iter().find_map(|sign| text.strip_prefix(sign))?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

fn named(name: &str) -> Option<i32> {
    // Synonyms (signal(7)).
    let name = match name {
        "CLD" => "CHLD",
        "POLL" => "IO",
        "IOT" => "ABRT",
        "UNUSED" => "SYS",
        name => name,
    };
    let signal = format!("SIG{name}").parse::<nix::sys::signal::Signal>();
    signal.ok().map(|signal| signal as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_parsed_in_every_notation() {
        for (text, number) in [
            ("SIGTERM", Some(15)),
            ("sigquit", Some(3)),
            ("SigQuit", Some(3)),
            ("KILL", Some(9)),
            ("9", Some(9)),
            ("37", Some(37)),
            ("SIGRTMIN+3", Some(37)),
            ("rtmin+3", Some(37)),
            ("RTMIN", Some(34)),
            ("SIGRTMINPLUS3", Some(37)),
            ("SIGRTMAXMINUS2", Some(62)),
            ("RTMAX-1", Some(63)),
            ("SIGPOLL", Some(29)),
            ("0", None),
            ("-9", None),
            ("65", None),
            ("99999999999", None),
            ("SIGNOTHING", None),
            ("SIG", None),
            ("SIGSIGTERM", None),
            ("15 SIGTERM", None),
            ("SIGRTMIN+99", None),
            ("SIGRTMIN+-3", None),
            ("SIGRTMIN-3", None),
            ("SIGRTMIN+", None),
            ("SIGRTMINPPP3", None),
            ("SIGRTMAX+1", None),
            ("SIGRTMAX-2147483648", None),
        ] {
            assert_eq!(parse(text), number, "{text}");
        }
    }

    #[test]
    fn every_signal_of_the_cri_is_parsed() {
        for number in 1..=65 {
            if let Ok(signal) = Signal::try_from(number) {
                let name = signal.as_str_name();
                assert!(number_of(signal).is_some(), "{name}");
            }
        }
    }

    #[test]
    fn the_signal_of_the_request_comes_before_that_of_the_image() {
        let choose = |signal: i32, image: &str| {
            let config = ContainerConfig {
                stop_signal: signal,
                ..Default::default()
            };
            StopSignal::choose(&config, image)
        };
        let none = Signal::RuntimeDefault as i32;
        for (requested, image, number) in [
            (none, "", 15),
            (none, "SIGINT", 2),
            (Signal::Sigusr1 as i32, "SIGINT", 10),
            (Signal::Sigusr1 as i32, "SIGFOO", 10),
        ] {
            let chosen = choose(requested, image).expect("a signal");
            assert_eq!((chosen.number, chosen.remark), (number, None), "{image}");
        }
        for image in ["SIGFOO", "0", "99", "-1", "SIGTERM # stop"] {
            let chosen = choose(none, image).expect("SIGTERM");
            let remark = chosen.remark.expect("a warning");
            assert!(chosen.number == 15 && remark.contains(image), "{remark}");
        }
        choose(4711, "").expect_err("no signal of the CRI");
    }
}
