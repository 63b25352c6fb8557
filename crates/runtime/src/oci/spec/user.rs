//! The user of a container.

use std::io::{self, Read};
use std::path::Path;

use criscope_linux::rootfs::{self, open_in_root};
use criscope_linux::untrusted;
use oci_spec::runtime::Spec;

use super::account::{AccountKind, AccountRef, ImageUser, account_id, parse_id};
use super::error::SpecError;
use super::facts::ImageConfig;
use criscope_cri::v1::{LinuxContainerSecurityContext, SupplementalGroupsPolicy};

/// Maximum size of a user or group database: 4 MiB. Images are untrusted.
const TABLE_LIMIT: u64 = 4 << 20;

/// Maximum number of groups of a process (`NGROUPS_MAX`).
const MAX_GROUPS: usize = 65_536;

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
    pub fn read_below(rootfs: &Path) -> rootfs::Result<Self> {
        let passwd = open_table(rootfs, "etc/passwd")?;
        let group = open_table(rootfs, "etc/group")?;
        Self::read(passwd, group).map_err(|source| rootfs::Error::Io {
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
        let passwd = untrusted::read(passwd, TABLE_LIMIT)?;
        let group = untrusted::read(group, TABLE_LIMIT)?;
        Ok(Self {
            passwd: String::from_utf8_lossy(&passwd).into_owned(),
            group: String::from_utf8_lossy(&group).into_owned(),
        })
    }

    /// The rows of passwd: name, uid, gid. Rows with an id that the kernel does not have are skipped, like other invalid ones.
    fn users(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let uid = parse_id(fields.nth(1)?)?;
            let gid = parse_id(fields.next()?)?;
            Some((name, uid, gid))
        })
    }

    /// The rows of group: name, gid, members.
    fn groups(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let gid = parse_id(fields.nth(1)?)?;
            Some((name, gid, fields.next().unwrap_or("")))
        })
    }

    /// Returns whether a group is named like this id and has another one. Reads rows as runc does, which takes an id that it
    /// cannot parse for 0.
    fn has_group_named(&self, id: u32) -> bool {
        let id = id.to_string();
        self.group.lines().any(|line| {
            let mut fields = line.trim().split(':');
            fields.next() == Some(&*id) && fields.nth(1) != Some(&*id)
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

/// Opens a database below the root of a container. One that does not exist is empty.
fn open_table(rootfs: &Path, path: &str) -> rootfs::Result<Box<dyn Read>> {
    Ok(match open_in_root(rootfs, path)? {
        Some(file) => Box::new(file),
        None => Box::new(io::empty()),
    })
}

/// Resolves the user of a container: from the request, else from the image, else root.
///
/// A name must be in the image's databases; an id need not be, and is never looked up as a name. A group without a user is an
/// error. With policy Merge the user's groups in the image are included, with Strict only those of the request.
pub fn resolve_user(
    context: &LinuxContainerSecurityContext,
    image: &ImageConfig,
    tables: &UserDatabase,
) -> Result<ResolvedUser, SpecError> {
    let ImageUser { user, group } = requested_user(context, image)?;
    let (uid, mut gid, name) = find_user(&user, image, tables)?;
    if let Some(group) = group {
        gid = find_group(&group, image, tables)?;
    }
    let mut groups = vec![gid];
    if context.supplemental_groups_policy == SupplementalGroupsPolicy::Merge as i32
        && let Some(name) = name
    {
        groups.extend(
            tables
                .groups()
                .filter(|(_, _, members)| members.split(',').any(|member| member.trim() == name))
                .map(|(_, gid, _)| gid),
        );
    }
    for group in &context.supplemental_groups {
        groups.push(account_id(AccountKind::SupplementalGroup, *group)?);
    }
    let mut seen = std::collections::HashSet::new();
    groups.retain(|group| seen.insert(*group));
    if groups.len() > MAX_GROUPS {
        return Err(SpecError::Invalid(format!(
            "{} groups are more than the {MAX_GROUPS} that a process can have",
            groups.len()
        )));
    }
    Ok(ResolvedUser { uid, gid, groups })
}

/// User and group of the request, else of the image.
fn requested_user(
    context: &LinuxContainerSecurityContext,
    image: &ImageConfig,
) -> Result<ImageUser, SpecError> {
    let user = match (&context.run_as_user, context.run_as_username.as_str()) {
        (Some(uid), _) => Some(AccountRef::Id(account_id(AccountKind::User, uid.value)?)),
        (None, "") => None,
        // The kubelet sends the name that ImageStatus reported.
        (None, name) => Some(AccountRef::parse(AccountKind::User, name)?),
    };
    let group = context.run_as_group.as_ref();
    let group = group.map(|gid| account_id(AccountKind::Group, gid.value));
    let group = group.transpose()?.map(AccountRef::Id);
    match (user, group) {
        (Some(user), group) => Ok(ImageUser { user, group }),
        (None, None) => ImageUser::parse(&image.user).map_err(|error| {
            let (user, name) = (&image.user, &image.name);
            SpecError::Invalid(format!("user {user:?} of image {name:?}: {error}"))
        }),
        (None, Some(_)) => Err(SpecError::Invalid(
            "user group is specified without user".to_owned(),
        )),
    }
}

/// Returns the uid, the gid and, if it is in the database, the name.
fn find_user<'t>(
    user: &AccountRef,
    image: &ImageConfig,
    tables: &'t UserDatabase,
) -> Result<(u32, u32, Option<&'t str>), SpecError> {
    let mut users = tables.users();
    match user {
        AccountRef::Id(id) => Ok(users
            .find(|(_, uid, _)| uid == id)
            .map_or((*id, 0, None), |(name, uid, gid)| (uid, gid, Some(name)))),
        AccountRef::Name(wanted) => users
            .find(|(name, _, _)| name == wanted)
            .map(|(name, uid, gid)| (uid, gid, Some(name)))
            .ok_or_else(|| {
                let name = &image.name;
                SpecError::NotFound(format!(
                    "user {wanted} is not in the passwd of image {name:?}"
                ))
            }),
    }
}

fn find_group(
    group: &AccountRef,
    image: &ImageConfig,
    tables: &UserDatabase,
) -> Result<u32, SpecError> {
    match group {
        AccountRef::Id(id) => Ok(*id),
        AccountRef::Name(wanted) => tables
            .groups()
            .find(|(name, _, _)| name == wanted)
            .map(|(_, gid, _)| gid)
            .ok_or_else(|| {
                let name = &image.name;
                SpecError::NotFound(format!(
                    "group {wanted} is not in the group file of image {name:?}"
                ))
            }),
    }
}

/// Keeps the image from exchanging additional groups of the finished specification: runc before 1.3 looks each of them up in
/// the container's group file, by name first. The primary group is taken from that list if a group is named like its id, since
/// every process has it anyway.
///
/// # Errors
/// [`SpecError::Invalid`] if another group of the list has such a namesake.
pub fn protect_additional_groups(spec: &mut Spec, tables: &UserDatabase) -> Result<(), SpecError> {
    let Some(process) = spec.process_mut() else {
        return Ok(());
    };
    let mut user = process.user().clone();
    let (mut groups, primary) = (
        user.additional_gids().clone().unwrap_or_default(),
        user.gid(),
    );
    groups.retain(|group| *group != primary || !tables.has_group_named(primary));
    if let Some(group) = groups.iter().find(|group| tables.has_group_named(**group)) {
        return Err(SpecError::Invalid(format!(
            "the image's group file has a group named {group} with another id, which OCI runtimes would take for group {group}"
        )));
    }
    user.set_additional_gids(Some(groups));
    process.set_user(user);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use criscope_cri::v1::Int64Value;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\nweb:x:33:34:web:/:/bin/false\n";
    const GROUP: &str = "root:x:0:\nweb:x:34:\nlogs:x:70:web,root\nplain:x:71:other\n";

    fn image(user: &str) -> ImageConfig {
        ImageConfig {
            name: "shop/web:1".to_owned(),
            user: user.to_owned(),
            ..Default::default()
        }
    }

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
            let found = resolve_user(&context, &self::image(image), &tables()).ok();
            let found = found.map(|user| (user.uid, user.gid, user.groups));
            let expected = expected.map(|(uid, gid, groups)| (uid, gid, groups.to_vec()));
            assert_eq!(found, expected, "{uid:?} {name:?} {gid:?} {image:?}");
        }
    }

    #[test]
    fn errors_name_the_image_and_its_user() {
        let context = LinuxContainerSecurityContext::default();
        for (user, texts) in [
            ("ghost", &["user ghost", "passwd"][..]),
            ("web:ghosts", &["group ghosts", "group file"]),
            ("a b:web", &["\"a b:web\"", "neither an id nor a name"]),
            ("web:+5", &["\"web:+5\"", "\"+5\""]),
            ("4294967296", &["4294967296", "not an id"]),
        ] {
            let error = resolve_user(&context, &image(user), &tables()).expect_err(user);
            let error = error.to_string();
            for text in texts.iter().chain(&["image \"shop/web:1\""]) {
                assert!(error.contains(text), "{error}");
            }
        }
    }

    #[test]
    fn strict_includes_only_the_groups_of_the_request() {
        let mut context = LinuxContainerSecurityContext {
            run_as_username: "web".to_owned(),
            supplemental_groups: vec![900, 34, 900],
            ..Default::default()
        };
        let merged = resolve_user(&context, &image(""), &tables()).expect("present");
        assert_eq!(merged.groups, [34, 70, 900]);
        context.supplemental_groups_policy = SupplementalGroupsPolicy::Strict as i32;
        let strict = resolve_user(&context, &image(""), &tables()).expect("present");
        assert_eq!(strict.groups, [34, 900]);
    }

    /// An image in which users and groups are named like ids of others.
    fn hostile() -> UserDatabase {
        let passwd = "root:x:0:0::/:/bin/sh\n1000:x:0:0::/:/bin/sh\n+5:x:0:0::/:\n-1:x:0:0::/:\n 5:x:0:0::/:\n\
            4294967295:x:0:0::/:\n4294967296:x:0:0::/:\n\u{661}:x:0:0::/:\n\
            huge:x:4294967296:0::/:\nlast:x:4294967295:0::/:\nsigned:x:+0:0::/:\ngroup:x:7:4294967295::/:\n";
        let group = "root:x:0:\n2000:x:0:\nhuge:x:4294967296:\nlast:x:4294967295:last\nsigned:x:+0:\n4294967296:x:0:\n";
        UserDatabase::read(passwd.as_bytes(), group.as_bytes()).expect("tables")
    }

    #[test]
    fn a_number_is_an_id_whatever_users_and_groups_are_named() {
        let number = |value| Some(Int64Value { value });
        let requested = LinuxContainerSecurityContext {
            run_as_user: number(1000),
            run_as_group: number(2000),
            supplemental_groups: vec![2000, 3000],
            ..Default::default()
        };
        let found = resolve_user(&requested, &image("root"), &hostile()).expect("resolved");
        assert_eq!((found.uid, found.gid), (1000, 2000));
        assert_eq!(found.groups, [2000, 3000]);
        let by_name = |name: &str| LinuxContainerSecurityContext {
            run_as_username: name.to_owned(),
            ..Default::default()
        };
        for (text, expected) in [
            ("1000", Some((1000, 0))),
            ("001000", Some((1000, 0))),
            ("1000:2000", Some((1000, 2000))),
            ("7", Some((7, 0))),
            ("0", Some((0, 0))),
            ("4294967294", Some((4_294_967_294, 0))),
            ("4294967295", None),
            ("4294967296", None),
            ("+5", None),
            ("-1", None),
            (" 5", None),
            ("\u{661}", None),
            ("huge", None),
            ("last", None),
            ("signed", None),
            ("group", None),
            ("1000:4294967295", None),
            ("1000:4294967296", None),
            ("1000:huge", None),
            ("1000:last", None),
            ("1000:signed", None),
            ("1000:+5", None),
        ] {
            let ids = |user: ResolvedUser| (user.uid, user.gid);
            let own = LinuxContainerSecurityContext::default();
            let own = resolve_user(&own, &image(text), &hostile());
            assert_eq!(own.ok().map(ids), expected, "image {text:?}");
            if !text.contains(':') {
                let request = resolve_user(&by_name(text), &image(""), &hostile());
                assert_eq!(request.ok().map(ids), expected, "request {text:?}");
            }
        }
        // A group belongs to the image's `USER` alone.
        resolve_user(&by_name("1000:0"), &image(""), &hostile()).expect_err("no user");
        for value in [-1, 4_294_967_295, 4_294_967_296] {
            let context = LinuxContainerSecurityContext {
                supplemental_groups: vec![value],
                ..Default::default()
            };
            resolve_user(&context, &image(""), &hostile()).expect_err("no group");
        }
    }

    #[test]
    fn no_group_of_the_image_takes_the_place_of_an_additional_one() {
        let of = |gid: u32, groups: &[u32], table: &str| {
            let tables = UserDatabase::read(&b""[..], table.as_bytes()).expect("tables");
            let mut spec = Spec::default();
            let process = spec.process_mut().as_mut().expect("a process");
            let mut user = process.user().clone();
            user.set_gid(gid).set_additional_gids(Some(groups.to_vec()));
            process.set_user(user);
            protect_additional_groups(&mut spec, &tables).ok()?;
            spec.process().as_ref()?.user().additional_gids().clone()
        };
        assert_eq!(of(5, &[5, 6], "5:x:5:\nsix:x:6:\n"), Some(vec![5, 6]));
        assert_eq!(of(5, &[5, 6], "5:x:0:\n"), Some(vec![6]));
        // Rows as runc reads them.
        for row in [
            "6:x:0:",
            "6:x:7:",
            "6:x:nonsense:",
            "6:x::",
            "6",
            " 6:x:0:",
            "a:x:1:\n6:x:4294967302:",
        ] {
            assert_eq!(of(5, &[5, 6], row), None, "{row}");
        }
    }
}
