//! Account lines: passwd and group files, and the output of `getent`.

use super::{Answer, Key, LookupError};
use crate::attempt::LocalUser;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Sets supplementary groups, without the primary group and without group 0: jobs never get root's group.
pub(super) fn with_groups(user: LocalUser, groups: impl Iterator<Item = u32>) -> LocalUser {
    let groups: BTreeSet<u32> = groups.filter(|gid| *gid != 0 && *gid != user.gid).collect();
    LocalUser {
        groups: groups.into_iter().collect(),
        ..user
    }
}

/// Looks up `key` in the passwd file at `path`.
pub(super) fn read(path: &Path, key: &Key) -> Answer {
    let text = |path: &Path| match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(LookupError::Failed {
            program: path.display().to_string(),
            key: key.text(),
            reason: error.to_string(),
        }),
    };
    let accounts = text(path)?;
    let mut accounts = accounts.lines().filter_map(parse_line);
    match key {
        Key::Uid(uid) => Ok(accounts.find(|user| user.uid == *uid)),
        Key::Name(name) => {
            let Some(user) = accounts.find(|user| user.name == *name) else {
                return Ok(None);
            };
            let groups = text(&path.with_file_name("group"))?;
            let groups = groups.lines().filter_map(|line| member_of(line, name));
            Ok(Some(with_groups(user, groups)))
        }
    }
}

/// Parses `name:password:gid:member,member`; returns the gid if `name` is a member.
fn member_of(line: &str, name: &str) -> Option<u32> {
    let fields: Vec<&str> = line.split(':').collect();
    let [_, _, gid, members] = fields.as_slice() else {
        return None;
    };
    let is_member = members.split(',').any(|member| member == name);
    is_member.then(|| gid.parse().ok())?
}

/// Parses `name:password:uid:gid:comment:home:shell`; `None` for other lines.
pub(super) fn parse_line(line: &str) -> Option<LocalUser> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, shell] = fields.as_slice() else {
        return None;
    };
    Some(LocalUser {
        name: (*name).to_owned(),
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        groups: Vec::new(),
        home: PathBuf::from(if home.is_empty() { "/" } else { home }),
        shell: PathBuf::from(if shell.is_empty() { "/bin/sh" } else { shell }),
    })
}
