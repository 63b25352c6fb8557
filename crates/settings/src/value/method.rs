//! Names of CRI calls.

use super::super::suggest::nearest;
use super::{UnparsedValue, ValueError, ValueKind, quoted};
use criscope_cri::Method;

/// The short name of a call of the CRI.
#[derive(Clone, Copy, Debug)]
pub struct CriMethodName;

/// All calls with a name.
fn known() -> impl Iterator<Item = Method> {
    Method::ALL.into_iter().filter(|m| *m != Method::Other)
}

impl ValueKind for CriMethodName {
    type Value = Method;

    fn words(&self) -> String {
        "the name of a call such as \"PullImage\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<Method, ValueError> {
        let text = raw.text(self)?;
        known()
            .find(|m| m.name() == text)
            .ok_or_else(|| ValueError::Method {
                text: text.to_owned(),
                hint: match nearest(text, known().map(Method::name)) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "write the name of one such as \"PullImage\"".to_owned(),
                },
            })
    }

    fn show(&self, value: &Method) -> String {
        quoted(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_its_name_and_nothing_else_has() {
        for method in known() {
            assert_eq!(
                CriMethodName.read(&UnparsedValue::Text(method.name())),
                Ok(method)
            );
            assert_eq!(CriMethodName.show(&method), format!("\"{method}\""));
        }
        let message = |text| {
            let error = CriMethodName
                .read(&UnparsedValue::Text(text))
                .expect_err("refused");
            error.to_string()
        };
        assert_eq!(
            message("pullimage"),
            "there is no call \"pullimage\" in the CRI; did you mean `PullImage`?"
        );
        assert_eq!(
            message("_OTHER"),
            "there is no call \"_OTHER\" in the CRI; write the name of one such as \"PullImage\""
        );
    }
}
