//! Resource limits of processes (getrlimit(2)), in the notation of Docker and CRI-O.

use oci_spec::runtime::{PosixRlimit, PosixRlimitBuilder, PosixRlimitType};

use super::{UnparsedValue, ValueError, ValueKind, quoted_text};

/// Without a limit, `-1` in the notation.
const UNLIMITED: u64 = u64::MAX;

/// Limits such as `nofile=1024:4096`: soft and hard, or one number for both.
#[derive(Clone, Copy, Debug)]
pub struct ResourceLimits;

impl ValueKind for ResourceLimits {
    type Value = Vec<PosixRlimit>;

    fn words(&self) -> String {
        "an array of limits such as \"nofile=1024:4096\" (soft and hard; -1 is unlimited)"
            .to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<Self::Value, ValueError> {
        let UnparsedValue::List(entries) = raw else {
            return Err(ValueError::Type {
                expected: self.words(),
                found: raw.found(),
            });
        };
        let mut limits = Vec::<PosixRlimit>::new();
        let mut wrong = Vec::new();
        for (i, entry) in entries.iter().enumerate() {
            let raw = UnparsedValue::new(entry.get_ref());
            let limit = match raw {
                UnparsedValue::Text(text) => parsed(text),
                _ => None,
            };
            // The OCI specification forbids two limits of one type.
            match limit.filter(|new| limits.iter().all(|limit| limit.typ() != new.typ())) {
                Some(limit) => limits.push(limit),
                None => wrong.push((i + 1, ValueError::Ulimit(raw.found()))),
            }
        }
        if wrong.is_empty() {
            Ok(limits)
        } else {
            Err(ValueError::Entries(wrong))
        }
    }

    fn show(&self, value: &Self::Value) -> String {
        let entries: Vec<_> = value.iter().map(|one| quoted_text(&shown(one))).collect();
        format!("[{}]", entries.join(", "))
    }
}

fn parsed(text: &str) -> Option<PosixRlimit> {
    let (name, values) = text.split_once('=')?;
    if !name.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return None;
    }
    let kind: PosixRlimitType = format!("RLIMIT_{}", name.to_ascii_uppercase())
        .parse()
        .ok()?;
    let (soft, hard) = values.split_once(':').unwrap_or((values, values));
    let (soft, hard) = (number(soft)?, number(hard)?);
    if soft > hard {
        return None;
    }
    let limit = PosixRlimitBuilder::default()
        .typ(kind)
        .soft(soft)
        .hard(hard);
    limit.build().ok()
}

fn number(text: &str) -> Option<u64> {
    match text {
        "-1" => Some(UNLIMITED),
        _ => text.parse().ok(),
    }
}

fn shown(limit: &PosixRlimit) -> String {
    let name = limit.typ().to_string().to_ascii_lowercase();
    let name = name.trim_start_matches("rlimit_");
    let [soft, hard] = [limit.soft(), limit.hard()].map(|value| match value {
        UNLIMITED => "-1".to_owned(),
        value => value.to_string(),
    });
    format!("{name}={soft}:{hard}")
}

#[cfg(test)]
mod tests {
    use super::super::tests::read_toml;
    use super::*;

    fn read(text: &str) -> Result<Vec<PosixRlimit>, String> {
        read_toml(&ResourceLimits, text)
    }

    #[test]
    fn limits_are_read_as_by_crio() {
        for (text, shown) in [
            ("[]", "[]"),
            (r#"["nofile=1024:4096"]"#, r#"["nofile=1024:4096"]"#),
            (
                r#"["core=0", "memlock=-1"]"#,
                r#"["core=0:0", "memlock=-1:-1"]"#,
            ),
            (r#"["nproc=7:-1"]"#, r#"["nproc=7:-1"]"#),
        ] {
            let limits = read(text).expect(text);
            assert_eq!(ResourceLimits.show(&limits), shown);
        }
        for wrong in [
            "nofile",
            "nofile=",
            "nofile=2:1",
            "nofile=-1:1",
            "nofile=1:2:3",
            "nofile=-2",
            "NOFILE=1",
            "files=1",
            "=1",
        ] {
            let error = read(&format!("[{wrong:?}]")).expect_err(wrong);
            assert!(error.starts_with("entry 1: "), "{error}");
        }
        let twice = read(r#"["nofile=1", "nofile=2"]"#).expect_err("twice");
        assert!(twice.starts_with("entry 2: "), "{twice}");
        assert!(read("\"nofile=1\"").is_err());
    }
}
