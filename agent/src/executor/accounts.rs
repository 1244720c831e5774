//! Local accounts, as `/etc/passwd` has them.
//!
//! Read as text and never through the C library: a directory service that hangs must not hang a
//! launch. Sites whose users live in a directory set `executor.run_as`.

use crate::attempt::LocalUser;
use std::io;
use std::path::{Path, PathBuf};

/// A passwd file.
#[derive(Debug, Clone)]
pub struct Accounts {
    path: PathBuf,
}

impl Accounts {
    /// The accounts in the file at `path`, which is read anew each time.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// The account of this name.
    pub fn by_name(&self, name: &str) -> io::Result<Option<LocalUser>> {
        Ok(self.read()?.into_iter().find(|user| user.name == name))
    }
    /// The first account of this number.
    pub fn by_uid(&self, uid: u32) -> io::Result<Option<LocalUser>> {
        Ok(self.read()?.into_iter().find(|user| user.uid == uid))
    }
    fn read(&self) -> io::Result<Vec<LocalUser>> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        Ok(parse(&String::from_utf8_lossy(&bytes)))
    }
}

/// `name:password:uid:gid:comment:home:shell`; other lines are left out.
fn parse(text: &str) -> Vec<LocalUser> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<LocalUser> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, shell] = fields.as_slice() else {
        return None;
    };
    Some(LocalUser {
        name: (*name).to_owned(),
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        home: PathBuf::from(if home.is_empty() { "/" } else { home }),
        shell: PathBuf::from(if shell.is_empty() { "/bin/sh" } else { shell }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_no_accounts_are_left_out() {
        let text = "root:x:0:0:root:/root:/bin/bash\n# note\n+::::::\nalice:x:1000:1001:::\n";
        let all = parse(text);
        assert_eq!(all.len(), 2);
        let alice = &all[1];
        assert_eq!((alice.uid, alice.gid), (1000, 1001));
        assert_eq!(alice.home, Path::new("/"));
        assert_eq!(alice.shell, Path::new("/bin/sh"));
    }
}
