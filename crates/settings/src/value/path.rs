//! Sockets in the file system, their mode and owner.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::unistd::{Group, User};

use super::super::FileOwner;
use super::{UnparsedValue, ValueError, ValueKind, quoted, quoted_text};

/// `sun_path` has 108 bytes and ends with a zero (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// The path of a unix socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketPath;

impl ValueKind for SocketPath {
    type Value = PathBuf;

    fn words(&self) -> String {
        "a unix socket such as \"unix:///run/name.sock\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<PathBuf, ValueError> {
        let text = raw.text(self)?;
        let path = match text.strip_prefix("unix:") {
            Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
            None if text.contains("://") => return Err(ValueError::NotUnix(text.to_owned())),
            None => text,
        };
        if !path.starts_with('/') {
            return Err(ValueError::Relative(text.to_owned()));
        }
        if path.ends_with('/') || path.contains(|c: char| c.is_control()) {
            return Err(ValueError::NotAFile(text.to_owned()));
        }
        if path.len() > MAX_SOCKET_PATH {
            return Err(ValueError::PathTooLong(path.len()));
        }
        Ok(PathBuf::from(path))
    }

    fn show(&self, value: &PathBuf) -> String {
        quoted(show_endpoint(value))
    }
}

/// The path of a unix socket, or `off`.
#[derive(Clone, Copy, Debug)]
pub struct OptionalSocketPath;

impl ValueKind for OptionalSocketPath {
    type Value = Option<PathBuf>;

    fn words(&self) -> String {
        format!("{}, or \"off\"", SocketPath.words())
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<Option<PathBuf>, ValueError> {
        match raw.text(self)? {
            "off" => Ok(None),
            _ => SocketPath.read(raw).map(Some),
        }
    }

    fn show(&self, value: &Option<PathBuf>) -> String {
        match value {
            Some(path) => SocketPath.show(path),
            None => quoted("off"),
        }
    }
}

/// Returns whether the path is short enough for a unix socket.
pub fn fits(socket: &Path) -> bool {
    socket.as_os_str().len() <= MAX_SOCKET_PATH
}

/// The path of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryPath;

impl ValueKind for DirectoryPath {
    type Value = PathBuf;

    fn words(&self) -> String {
        "the absolute path of a directory".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<PathBuf, ValueError> {
        absolute(raw.text(self)?)
    }

    fn show(&self, value: &PathBuf) -> String {
        quoted_text(&value.to_string_lossy())
    }
}

/// The path of a file.
#[derive(Clone, Copy, Debug)]
pub struct FilePath;

impl ValueKind for FilePath {
    type Value = PathBuf;

    fn words(&self) -> String {
        "the absolute path of a file".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<PathBuf, ValueError> {
        let text = raw.text(self)?;
        if text.ends_with('/') {
            return Err(ValueError::NotAPath(text.to_owned()));
        }
        absolute(text)
    }

    fn show(&self, value: &PathBuf) -> String {
        DirectoryPath.show(value)
    }
}

fn absolute(text: &str) -> Result<PathBuf, ValueError> {
    if !text.starts_with('/') {
        return Err(ValueError::NotAbsolute(text.to_owned()));
    }
    if text.contains(|c: char| c.is_control()) {
        return Err(ValueError::NotAPath(text.to_owned()));
    }
    Ok(PathBuf::from(text))
}

/// Formats the path of a socket as the kubelet and crictl do.
pub fn show_endpoint(path: &Path) -> String {
    format!("unix://{}", path.display())
}

/// Normalizes paths that name the same socket, without accessing the file system: removes `.` and double slashes, and
/// replaces `/var/run` by `/run`, which it has linked to since 2011.
pub fn lexical(path: &Path) -> PathBuf {
    let mut bytes = path.as_os_str().as_bytes();
    if bytes.starts_with(b"/var/run/") {
        bytes = &bytes[4..];
    }
    Path::new(std::ffi::OsStr::from_bytes(bytes))
        .components()
        .filter(|component| *component != Component::CurDir)
        .collect()
}

/// Permission bits.
#[derive(Clone, Copy, Debug)]
pub struct PermissionBits;

impl ValueKind for PermissionBits {
    type Value = u32;

    fn words(&self) -> String {
        "permission bits in octal, such as \"0660\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<u32, ValueError> {
        // A TOML integer 0660 does not parse and 660 would be decimal, so only a string is taken.
        let digits = match raw {
            UnparsedValue::Text(text) if (3..=4).contains(&text.len()) => Some(text),
            _ => None,
        };
        digits
            .filter(|text| text.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|text| u32::from_str_radix(text, 8).ok())
            .filter(|mode| *mode <= 0o777)
            .ok_or_else(|| ValueError::Mode(raw.found()))
    }

    fn show(&self, value: &u32) -> String {
        quoted(format_args!("{value:04o}"))
    }
}

/// A user and a group, by number or by name.
#[derive(Clone, Copy, Debug)]
pub struct UserAndGroup;

impl ValueKind for UserAndGroup {
    type Value = FileOwner;

    fn words(&self) -> String {
        "\"uid:gid\" or \"user:group\"".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<FileOwner, ValueError> {
        let text = raw.text(self)?;
        let Some((user, group)) = text.split_once(':') else {
            return Err(ValueError::Owner(text.to_owned()));
        };
        if user.is_empty() || group.is_empty() || group.contains(':') {
            return Err(ValueError::Owner(text.to_owned()));
        }
        Ok(FileOwner {
            uid: uid_of(user)?,
            gid: gid_of(group)?,
        })
    }

    fn show(&self, value: &FileOwner) -> String {
        quoted(format_args!("{}:{}", value.uid, value.gid))
    }
}

/// A group, by number or by name.
#[derive(Clone, Copy, Debug)]
pub struct GroupNameOrId;

impl ValueKind for GroupNameOrId {
    type Value = u32;

    fn words(&self) -> String {
        "the number or the name of a group".to_owned()
    }

    fn read(&self, raw: &UnparsedValue<'_>) -> Result<u32, ValueError> {
        match raw {
            UnparsedValue::Integer(number) => gid_of(&number.to_string()),
            _ => gid_of(raw.text(self)?),
        }
    }

    fn show(&self, value: &u32) -> String {
        value.to_string()
    }
}

/// `u32::MAX` means "unchanged" to chown(2), so it is not an id.
fn id_of(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}

fn uid_of(user: &str) -> Result<u32, ValueError> {
    if let Some(uid) = id_of(user) {
        return Ok(uid);
    }
    match User::from_name(user) {
        Ok(Some(found)) => Ok(found.uid.as_raw()),
        Ok(None) => Err(ValueError::UnknownUser(user.to_owned())),
        Err(errno) => Err(ValueError::Lookup {
            name: user.to_owned(),
            cause: errno.desc().to_owned(),
        }),
    }
}

fn gid_of(group: &str) -> Result<u32, ValueError> {
    if let Some(gid) = id_of(group) {
        return Ok(gid);
    }
    match Group::from_name(group) {
        Ok(Some(found)) => Ok(found.gid.as_raw()),
        Ok(None) => Err(ValueError::UnknownGroup(group.to_owned())),
        Err(errno) => Err(ValueError::Lookup {
            name: group.to_owned(),
            cause: errno.desc().to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(text: &str) -> Result<PathBuf, String> {
        SocketPath
            .read(&UnparsedValue::Text(text))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn sockets_are_read_in_every_usual_spelling() {
        for text in ["unix:///run/a.sock", "unix:/run/a.sock", "/run/a.sock"] {
            assert_eq!(socket(text), Ok(PathBuf::from("/run/a.sock")));
        }
    }

    #[test]
    fn sockets_that_cannot_be_are_explained() {
        for (text, says) in [
            (
                "tcp://127.0.0.1:1",
                "\"tcp://127.0.0.1:1\" is not a unix socket; write unix:///path",
            ),
            (
                "unix://run/a.sock",
                "\"unix://run/a.sock\" is not an absolute path; write unix:///path",
            ),
            (
                "a.sock",
                "\"a.sock\" is not an absolute path; write unix:///path",
            ),
            ("", "\"\" is not an absolute path; write unix:///path"),
            ("/run/", "\"/run/\" cannot be the path of a socket"),
            ("/run/a\0b", "\"/run/a\\0b\" cannot be the path of a socket"),
        ] {
            assert_eq!(socket(text), Err(says.to_owned()));
        }
    }

    #[test]
    fn paths_of_files_and_directories_are_absolute() {
        let dir = |text| {
            DirectoryPath
                .read(&UnparsedValue::Text(text))
                .map_err(|e| e.to_string())
        };
        assert_eq!(dir("/a/b/"), Ok(PathBuf::from("/a/b/")));
        assert_eq!(dir("a"), Err("\"a\" is not an absolute path".to_owned()));
        assert_eq!(dir("/a\n"), Err("\"/a\\n\" cannot be a path".to_owned()));
        assert_eq!(
            DirectoryPath.show(&PathBuf::from("/a \"b\"")),
            r#""/a \"b\"""#
        );
        assert!(FilePath.read(&UnparsedValue::Text("/a/b")).is_ok());
        for text in ["", "b", "/a/", "/"] {
            assert!(FilePath.read(&UnparsedValue::Text(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn the_limit_of_the_kernel_is_exact() {
        let longest = format!("/{}", "a".repeat(MAX_SOCKET_PATH - 1));
        assert!(socket(&longest).is_ok());
        assert_eq!(
            socket(&format!("{longest}a")),
            Err(
                "the path is 108 bytes long; the kernel takes at most 107 for a unix socket"
                    .to_owned()
            )
        );
        // Checks the constant against the kernel's type.
        assert!(nix::sys::socket::UnixAddr::new(longest.as_str()).is_ok());
        assert!(nix::sys::socket::UnixAddr::new(format!("{longest}a").as_str()).is_err());
    }

    #[test]
    fn spellings_of_one_path_are_one() {
        for text in ["/var/run/a/b", "/run//a/./b", "/run/a/b"] {
            assert_eq!(lexical(Path::new(text)), Path::new("/run/a/b"));
        }
        assert_eq!(
            lexical(Path::new("/var/runner/b")),
            Path::new("/var/runner/b")
        );
    }

    #[test]
    fn modes_are_octal_strings() {
        assert_eq!(PermissionBits.read(&UnparsedValue::Text("0660")), Ok(0o660));
        assert_eq!(PermissionBits.read(&UnparsedValue::Text("600")), Ok(0o600));
        assert_eq!(PermissionBits.show(&0o660), "\"0660\"");
        for raw in [
            UnparsedValue::Text("0o660"),
            UnparsedValue::Text("1777"),
            UnparsedValue::Text("0680"),
            UnparsedValue::Text("+660"),
            UnparsedValue::Text(""),
            UnparsedValue::Integer(660),
        ] {
            assert!(PermissionBits.read(&raw).is_err(), "{raw:?}");
        }
    }

    #[test]
    fn owners_are_numbers_or_names() {
        let owner = |text| {
            UserAndGroup
                .read(&UnparsedValue::Text(text))
                .map_err(|e| e.to_string())
        };
        assert_eq!(owner("0:10"), Ok(FileOwner { uid: 0, gid: 10 }));
        assert_eq!(owner("root:root"), Ok(FileOwner { uid: 0, gid: 0 }));
        assert_eq!(
            owner("no-such-user-here:0"),
            Err("there is no user \"no-such-user-here\" on this machine".to_owned())
        );
        assert_eq!(
            owner("0:no-such-group-here"),
            Err("there is no group \"no-such-group-here\" on this machine".to_owned())
        );
        for text in ["0", "0:", ":0", "0:0:0", ""] {
            assert!(owner(text).is_err(), "{text}");
        }
        assert!(owner("4294967295:0").is_err());
        assert_eq!(GroupNameOrId.read(&UnparsedValue::Text("root")), Ok(0));
        for gid in [UnparsedValue::Integer(65532), UnparsedValue::Text("65532")] {
            assert_eq!(GroupNameOrId.read(&gid), Ok(65532));
        }
        for wrong in [
            UnparsedValue::Integer(4_294_967_295),
            UnparsedValue::Integer(-1),
            UnparsedValue::Text(""),
        ] {
            assert!(GroupNameOrId.read(&wrong).is_err());
        }
    }
}
