//! Trusted files: files that control actions with the agent's rights must be writable by root and the agent's user
//! only.

use super::ids::AgentUser;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Write permission of group or others.
const OTHERS_WRITE: u32 = 0o022;
/// Sticky bit of a folder: users can move or remove only their own files in it.
const STICKY: u32 = 0o1000;
const ANY_EXECUTES: u32 = 0o111;

/// Reason that a file is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum DistrustCause {
    /// The file does not exist, or its metadata cannot be read.
    #[error("{}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The path is relative, so it depends on the working directory of the agent.
    #[error("{} is not an absolute path", path.display())]
    Relative {
        /// Configured path.
        path: PathBuf,
    },
    /// The path is not a regular file, but a folder or a device, for example.
    #[error("{} is not a regular file", path.display())]
    NoFile {
        /// Path that was checked.
        path: PathBuf,
    },
    /// No user may execute the file.
    #[error("{} is not executable", path.display())]
    NotExecutable {
        /// Path of the file.
        path: PathBuf,
    },
    /// A user other than root and the agent's user can change or replace the file.
    #[error(
        "{} belongs to uid {uid} and has mode {mode:04o}: it can be written by others than root \
         and the agent's user",
        path.display()
    )]
    Writable {
        /// Path of the file, or of the folder above it that is writable.
        path: PathBuf,
        /// Uid of the owner.
        uid: u32,
        /// Permission bits.
        mode: u32,
    },
}

/// Checks that only root and the agent's user can change the file at `path`. Returns the path without links: no other
/// user can replace that file, whereas a link on the way may lead elsewhere later.
pub(in crate::executor) fn check_file(
    path: &Path,
    agent: AgentUser,
) -> Result<PathBuf, DistrustCause> {
    Ok(check(path, agent)?.0)
}

/// Checks like [`check_file`], and also that the file is executable.
pub(in crate::executor) fn check_program(
    path: &Path,
    agent: AgentUser,
) -> Result<PathBuf, DistrustCause> {
    let (real, found) = check(path, agent)?;
    if found.mode() & ANY_EXECUTES == 0 {
        return Err(DistrustCause::NotExecutable {
            path: path.to_owned(),
        });
    }
    Ok(real)
}

/// Resolves `path` and checks the file. Returns the resolved path and the metadata.
fn check(path: &Path, agent: AgentUser) -> Result<(PathBuf, Metadata), DistrustCause> {
    if !path.is_absolute() {
        return Err(DistrustCause::Relative {
            path: path.to_owned(),
        });
    }
    let failed = |source| DistrustCause::Io {
        path: path.to_owned(),
        source,
    };
    // Links are followed: the check applies to their target.
    let real = path.canonicalize().map_err(failed)?;
    let found = real.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(DistrustCause::NoFile {
            path: path.to_owned(),
        });
    }
    check_owner(&real, &found, agent, 0)?;
    for folder in real.ancestors().skip(1) {
        let meta = folder.metadata().map_err(failed)?;
        check_owner(folder, &meta, agent, STICKY)?;
    }
    Ok((real, found))
}

/// Checks owner and write permission. `allowed_bits`: mode bits that permit a writable folder.
fn check_owner(
    path: &Path,
    meta: &Metadata,
    agent: AgentUser,
    allowed_bits: u32,
) -> Result<(), DistrustCause> {
    let is_ours = meta.uid() == 0 || meta.uid() == agent.uid;
    let is_closed = meta.mode() & OTHERS_WRITE == 0 || meta.mode() & allowed_bits != 0;
    if is_ours && is_closed {
        return Ok(());
    }
    Err(DistrustCause::Writable {
        path: path.to_owned(),
        uid: meta.uid(),
        mode: meta.mode() & 0o7777,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_that_others_can_replace_is_not_run() {
        let agent = AgentUser::current();
        let folder = tempfile::tempdir().unwrap();
        let within = folder.path().join("hooks");
        let path = within.join("prolog");
        std::fs::create_dir(&within).unwrap();
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&within, 0o755);
        mode(&path, 0o644);
        assert!(matches!(
            check_program(&path, agent),
            Err(DistrustCause::NotExecutable { .. })
        ));
        mode(&path, 0o755);
        check_program(&path, agent).unwrap();
        mode(&path, 0o775);
        assert!(matches!(
            check_program(&path, agent),
            Err(DistrustCause::Writable { .. })
        ));
        mode(&path, 0o755);
        mode(&within, 0o777);
        let error = check_program(&path, agent).unwrap_err();
        assert!(error.to_string().contains("mode 0777"), "{error}");
        mode(&within, 0o1777);
        check_program(&path, agent).unwrap();
        assert!(matches!(
            check_program(&within, agent),
            Err(DistrustCause::NoFile { .. })
        ));
        let gone = check_program(&within.join("no"), agent).unwrap_err();
        assert!(matches!(gone, DistrustCause::Io { .. }));
        let relative = check_program(Path::new("prolog"), agent).unwrap_err();
        assert!(matches!(relative, DistrustCause::Relative { .. }));
    }
}
