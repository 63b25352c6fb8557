//! Users and groups as requests and images name them: by id or by name, never by both.

use super::error::SpecError;

/// The highest id. The kernel takes the next value, 4294967295, as "no change".
const MAX_ID: u32 = u32::MAX - 1;

/// Kind of an id or a name, for error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountKind {
    /// A user.
    User,
    /// A group.
    Group,
    /// A group besides the primary one.
    SupplementalGroup,
}

impl AccountKind {
    fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::SupplementalGroup => "supplemental group",
        }
    }
}

/// A user or a group, as a request or an image names it.
///
/// A number is an id and is never looked up as a name: the databases belong to the image, and the kubelet has judged the
/// number. This is the only parser of such texts, so that ImageStatus reports what a container will run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountRef {
    /// An id.
    Id(u32),
    /// A name, to be looked up in the databases of the image.
    Name(String),
}

impl AccountRef {
    /// Parses a text of an image or a request. ASCII digits are a decimal id. Every other text is a name, if it can be one:
    /// printable ASCII without blanks and `:`, beginning with a letter, a digit or `_`, with at least one letter or `_`.
    ///
    /// # Errors
    /// [`SpecError::Invalid`] for a number that is not an id, and for a text that is neither an id nor a name, such as `+5`,
    /// `-1`, ` 5` or `1.5`: another program might take it for a number.
    pub fn parse(kind: AccountKind, text: &str) -> Result<Self, SpecError> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let id = parse_id(text).ok_or_else(|| no_id(kind, text))?;
            return Ok(Self::Id(id));
        }
        if is_name(text) {
            return Ok(Self::Name(text.to_owned()));
        }
        let kind = kind.name();
        Err(SpecError::Invalid(format!(
            "{kind} {text:?} is neither an id nor a name"
        )))
    }
}

/// The user and the group in the configuration of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageUser {
    /// The user; root if the image names none.
    pub user: AccountRef,
    /// The group, if the image names one.
    pub group: Option<AccountRef>,
}

impl ImageUser {
    /// Parses `USER`: `user`, `user:group`, or empty for root.
    ///
    /// # Errors
    /// As [`AccountRef::parse`].
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let (user, group) = split_image_user(text);
        Ok(Self {
            user: match user {
                "" => AccountRef::Id(0),
                user => AccountRef::parse(AccountKind::User, user)?,
            },
            group: match group {
                "" => None,
                group => Some(AccountRef::parse(AccountKind::Group, group)?),
            },
        })
    }
}

/// Splits `USER` of an image into user and group, which are empty if the image does not name them.
pub fn split_image_user(text: &str) -> (&str, &str) {
    text.split_once(':').unwrap_or((text, ""))
}

/// Returns a number of a request as an id.
///
/// # Errors
/// [`SpecError::Invalid`] if it is negative or above 4294967294.
pub fn account_id(kind: AccountKind, number: i64) -> Result<u32, SpecError> {
    let id = u32::try_from(number).ok().filter(|id| *id <= MAX_ID);
    id.ok_or_else(|| no_id(kind, &number.to_string()))
}

/// Parses decimal ASCII digits as an id; `None` for any other text, and for a value that is not an id.
pub(super) fn parse_id(text: &str) -> Option<u32> {
    // The parser of the standard library accepts a sign as well.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let id = text.parse().ok().filter(|_| digits);
    id.filter(|id| *id <= MAX_ID)
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes
        .first()
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        && bytes
            .iter()
            .any(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_graphic() && *byte != b':')
}

fn no_id(kind: AccountKind, number: &str) -> SpecError {
    let kind = kind.name();
    SpecError::Invalid(format!(
        "{kind} {number} is not an id: ids are 0 to {MAX_ID}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_an_id_and_never_a_name() {
        for (text, id) in [
            ("0", 0),
            ("00", 0),
            ("0001000", 1000),
            ("1000", 1000),
            ("2147483648", 2_147_483_648),
            ("4294967294", MAX_ID),
        ] {
            let parsed = AccountRef::parse(AccountKind::User, text).expect(text);
            assert_eq!(parsed, AccountRef::Id(id), "{text}");
        }
        for text in [
            "4294967295",
            "4294967296",
            "4294968296",
            "9223372036854775808",
            "18446744073709551616",
            &"9".repeat(500),
        ] {
            let error = AccountRef::parse(AccountKind::Group, text).expect_err(text);
            assert!(error.to_string().contains("is not an id"), "{error}");
        }
    }

    #[test]
    fn names_are_ascii_with_a_letter() {
        for name in [
            "root", "_apt", "www-data", "0x10", "1e3", "u1000", "a.b", "host$", "D\\u",
        ] {
            let parsed = AccountRef::parse(AccountKind::User, name).expect(name);
            assert_eq!(parsed, AccountRef::Name(name.to_owned()));
        }
    }

    #[test]
    fn what_might_be_taken_for_a_number_is_refused() {
        for text in [
            "",
            "+5",
            "-1",
            "+root",
            "-root",
            " 5",
            "5 ",
            "1000\n",
            "\t0",
            "a b",
            "1.5",
            "1,000",
            "1-2",
            "1000:0",
            "root:",
            "a\0",
            "\u{661}\u{660}",
            "\u{ff11}\u{ff10}\u{ff10}",
            "\u{b2}",
            "\u{2167}",
            "r\u{f6}\u{f6}t",
        ] {
            let error = AccountRef::parse(AccountKind::User, text).expect_err(text);
            assert_eq!(error.code(), tonic::Code::InvalidArgument, "{error}");
        }
    }

    #[test]
    fn numbers_of_requests_are_ids_of_32_bits() {
        for number in [0, 1000, i64::from(MAX_ID)] {
            let id = account_id(AccountKind::User, number).expect("an id");
            assert_eq!(i64::from(id), number);
        }
        for number in [-1, i64::MIN, 4_294_967_295, 4_294_967_296, i64::MAX] {
            account_id(AccountKind::User, number).expect_err("no id");
        }
    }

    #[test]
    fn the_user_of_an_image_has_a_group_or_not() {
        let root = AccountRef::Id(0);
        let web = AccountRef::Name("web".to_owned());
        for (text, user, group) in [
            ("", &root, None),
            (":", &root, None),
            (":33", &root, Some(AccountRef::Id(33))),
            ("web", &web, None),
            ("web:", &web, None),
            ("web:web", &web, Some(web.clone())),
        ] {
            let parsed = ImageUser::parse(text).expect(text);
            assert_eq!((&parsed.user, parsed.group), (user, group), "{text}");
        }
        for text in ["web:4294967296", "4294967296:web", "1:2:3", "+1:2"] {
            ImageUser::parse(text).expect_err(text);
        }
    }
}
