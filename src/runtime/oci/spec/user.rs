//! The user of a container.

use std::io::{self, Read};
use std::path::Path;

use criscope_linux::rootfs::{self, open_in_root};
use criscope_linux::untrusted;

use super::error::SpecError;
use crate::cri::v1::{LinuxContainerSecurityContext, SupplementalGroupsPolicy};

/// Maximum size of a user or group database: 4 MiB. Images are untrusted.
const TABLE_LIMIT: u64 = 4 << 20;

/// The text of an image's `/etc/passwd` and `/etc/group`; empty if a file does not exist.
#[derive(Debug, Clone, Default)]
pub struct UserDatabase {
    passwd: String,
    group: String,
}

impl UserDatabase {
    /// Reads `/etc/passwd` and `/etc/group` below the root of a container.
    ///
    /// # Errors
    /// As [`open_in_root`], and for a table of more than 4 MiB.
    pub fn of_rootfs(rootfs: &Path) -> rootfs::Result<Self> {
        let table = |path| -> rootfs::Result<Box<dyn Read>> {
            Ok(match open_in_root(rootfs, path)? {
                Some(file) => Box::new(file),
                None => Box::new(io::empty()),
            })
        };
        Self::read(table("etc/passwd")?, table("etc/group")?).map_err(|source| rootfs::Error::Io {
            action: "read the users in",
            path: rootfs.to_owned(),
            source,
        })
    }

    /// Parses both databases. The caller opened the files inside the root file system.
    ///
    /// # Errors
    /// If a database is larger than 4 MiB: a truncated row could name another user.
    pub fn read(passwd: impl Read, group: impl Read) -> io::Result<Self> {
        let text = |from: &mut dyn Read| -> io::Result<String> {
            let bytes = untrusted::read(from, TABLE_LIMIT)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (mut passwd, mut group) = (passwd, group);
        Ok(Self {
            passwd: text(&mut passwd)?,
            group: text(&mut group)?,
        })
    }

    /// The rows of passwd: name, uid, gid. Invalid rows are skipped.
    fn users(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            Some((name, uid, gid))
        })
    }

    /// The rows of group: name, gid, members.
    fn groups(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let gid = fields.nth(1)?.parse().ok()?;
            Some((name, gid, fields.next().unwrap_or("")))
        })
    }
}

/// The user of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedUser {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// All its group ids, the primary one first, without duplicates.
    pub groups: Vec<u32>,
}

/// Resolves the user of a container: from the request, else from the image, else root.
///
/// A name must be in the image's databases; a number need not be. A group without a user is an error. With policy Merge
/// the user's groups in the image are included, with Strict only those of the request.
pub fn resolve_user(
    context: &LinuxContainerSecurityContext,
    image_user: &str,
    tables: &UserDatabase,
) -> Result<ResolvedUser, SpecError> {
    let (user, group) = wanted(context, image_user)?;
    let (uid, mut gid, name) = find_user(&user, tables)?;
    if let Some(group) = group {
        gid = find_group(&group, tables)?;
    }
    let mut groups = vec![gid];
    if context.supplemental_groups_policy == SupplementalGroupsPolicy::Merge as i32
        && let Some(name) = name
    {
        let member = |members: &str| members.split(',').any(|member| member.trim() == name);
        groups.extend(
            tables
                .groups()
                .filter(|(_, _, members)| member(members))
                .map(|(_, gid, _)| gid),
        );
    }
    for group in &context.supplemental_groups {
        groups.push(id(*group, "supplemental group")?);
    }
    let mut seen = std::collections::HashSet::new();
    groups.retain(|group| seen.insert(*group));
    Ok(ResolvedUser { uid, gid, groups })
}

/// User and group as text, from the request, else from the image.
fn wanted(
    context: &LinuxContainerSecurityContext,
    image_user: &str,
) -> Result<(String, Option<String>), SpecError> {
    let user = match (&context.run_as_user, context.run_as_username.as_str()) {
        (Some(uid), _) => Some(id(uid.value, "user")?.to_string()),
        (None, "") => None,
        (None, name) => Some(name.to_owned()),
    };
    let group = match &context.run_as_group {
        Some(gid) => Some(id(gid.value, "group")?.to_string()),
        None => None,
    };
    if let Some(user) = user {
        return Ok((user, group));
    }
    if group.is_some() {
        return Err(SpecError::Invalid(
            "user group is specified without user".to_owned(),
        ));
    }
    let (user, group) = match image_user.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
        None => (image_user, None),
    };
    let user = if user.is_empty() { "0" } else { user };
    Ok((user.to_owned(), group.map(str::to_owned)))
}

fn id(value: i64, what: &str) -> Result<u32, SpecError> {
    // The kernel takes the highest value as "no change": it is not an id.
    match u32::try_from(value) {
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err(SpecError::Invalid(format!("{what} {value} is not an id"))),
    }
}

/// Returns the uid, the gid and, if it is in the database, the name.
fn find_user<'t>(
    user: &str,
    tables: &'t UserDatabase,
) -> Result<(u32, u32, Option<&'t str>), SpecError> {
    // As usual in Unix, digits are looked up as a name first.
    if let Some((name, uid, gid)) = tables.users().find(|(name, _, _)| *name == user) {
        return Ok((uid, gid, Some(name)));
    }
    let Ok(number) = user.parse::<i64>() else {
        return Err(SpecError::NotFound(format!(
            "user {user} is not in the image's passwd"
        )));
    };
    let uid = id(number, "user")?;
    let known = tables.users().find(|(_, known, _)| *known == uid);
    Ok(known.map_or((uid, 0, None), |(name, uid, gid)| (uid, gid, Some(name))))
}

fn find_group(group: &str, tables: &UserDatabase) -> Result<u32, SpecError> {
    if let Some((_, gid, _)) = tables.groups().find(|(name, _, _)| *name == group) {
        return Ok(gid);
    }
    let number = group.parse().map_err(|_| {
        SpecError::NotFound(format!("group {group} is not in the image's group file"))
    })?;
    id(number, "group")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::v1::Int64Value;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\nweb:x:33:34:web:/:/bin/false\n";
    const GROUP: &str = "root:x:0:\nweb:x:34:\nlogs:x:70:web,root\nplain:x:71:other\n";

    fn tables() -> UserDatabase {
        UserDatabase::read(PASSWD.as_bytes(), GROUP.as_bytes()).expect("present")
    }

    #[test]
    fn users_come_from_the_request_then_the_image_then_root() {
        let number = |value| Some(Int64Value { value });
        type Case = (
            Option<i64>,
            &'static str,
            Option<i64>,
            &'static str,
            Option<(u32, u32, &'static [u32])>,
        );
        let cases: &[Case] = &[
            (None, "", None, "", Some((0, 0, &[0, 70]))),
            (None, "", None, "web", Some((33, 34, &[34, 70]))),
            (None, "", None, "web:plain", Some((33, 71, &[71, 70]))),
            (None, "", None, "1000:2000", Some((1000, 2000, &[2000]))),
            (None, "", None, "1000", Some((1000, 0, &[0]))),
            (None, "", None, "nobody", None),
            (None, "", None, "web:nogroup", None),
            (Some(33), "", None, "root", Some((33, 34, &[34, 70]))),
            (Some(1000), "", Some(5), "web", Some((1000, 5, &[5]))),
            (None, "web", Some(5), "", Some((33, 5, &[5, 70]))),
            (None, "ghost", None, "", None),
            (None, "", Some(5), "web", None),
            (Some(-1), "", None, "", None),
            (Some(i64::from(u32::MAX)), "", None, "", None),
        ];
        for (uid, name, gid, image, expected) in cases {
            let context = LinuxContainerSecurityContext {
                run_as_user: uid.and_then(number),
                run_as_username: (*name).to_owned(),
                run_as_group: gid.and_then(number),
                ..Default::default()
            };
            let found = resolve_user(&context, image, &tables()).ok();
            let found = found.map(|user| (user.uid, user.gid, user.groups));
            let expected = expected.map(|(uid, gid, groups)| (uid, gid, groups.to_vec()));
            assert_eq!(found, expected, "{uid:?} {name:?} {gid:?} {image:?}");
        }
    }

    #[test]
    fn strict_includes_only_the_groups_of_the_request() {
        let mut context = LinuxContainerSecurityContext {
            run_as_username: "web".to_owned(),
            supplemental_groups: vec![900, 34, 900],
            ..Default::default()
        };
        let merged = resolve_user(&context, "", &tables()).expect("present");
        assert_eq!(merged.groups, [34, 70, 900]);
        context.supplemental_groups_policy = SupplementalGroupsPolicy::Strict as i32;
        let strict = resolve_user(&context, "", &tables()).expect("present");
        assert_eq!(strict.groups, [34, 900]);
    }
}
