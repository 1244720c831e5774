//! Folder that a supervisor and its job share.

use crate::attempt::{CheckpointPlan, LocalUser, foreign_write_access};
use rustix::fs::{AtFlags, CWD, chownat};
use rustix::process::{Gid, Uid};
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Mode of the folder. Every user may enter it; only the owner may list or change it, so names in it are stable.
const MODE: u32 = 0o711;

/// Creates the folder, replacing an old one. The error text is for operators.
pub(super) fn make(plan: &CheckpointPlan) -> Result<(), String> {
    let place = &plan.place;
    let failed =
        |path: &Path, error: io::Error| format!("{} cannot be created: {error}", path.display());
    plan.remove_shared_folder()
        .map_err(|error| failed(place, error))?;
    // The folder of this agent, and the parent of all agents' folders.
    let parent = place.parent().unwrap_or(place);
    let above = parent.parent().unwrap_or(parent);
    for path in [above, parent, place] {
        make_one(path).map_err(|error| failed(path, error))?;
    }
    Ok(())
}

fn make_one(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(MODE).create(path)?;
    if let Some((uid, mode)) = foreign_write_access(path)? {
        let why = format!("owner uid {uid} with mode {mode:04o}: other users could change it");
        return Err(io::Error::other(why));
    }
    let mode = std::fs::metadata(path)?.permissions().mode();
    // The supervisor's umask removes permissions that the job needs.
    std::fs::set_permissions(path, Permissions::from_mode(mode | MODE))
}

/// Makes the job's user the owner of `path`, with access for the owner only.
pub(super) fn set_owner(path: &Path, user: Option<&LocalUser>) -> io::Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    if let Some(user) = user {
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}
