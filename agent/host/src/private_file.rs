//! Private files: a file with a secret must be readable by its owner only.
//!
//! Permissions are read from the open file: a file that replaces the checked one is never read.

use secrecy::SecretString;
use std::{
    fs::{File, Metadata},
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Permissions of group and others.
const GROUP_AND_OTHERS: u32 = 0o077;

/// A file with a secret is accessible to other users of this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("others can read {} (mode {mode:03o}); run `chmod 600 {}`", path.display(), path.display())]
pub struct ExposedFile {
    /// The file.
    pub path: PathBuf,
    /// Permission bits of the file.
    pub mode: u32,
}

/// A private file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// The file cannot be opened or read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Group or others have a permission on the file.
    #[error(transparent)]
    Exposed(#[from] ExposedFile),
}

/// Checks the permissions in `metadata`, which were read from the file at `path`.
///
/// # Errors
/// If group or others have any permission.
pub fn check(path: &Path, metadata: &Metadata) -> Result<(), ExposedFile> {
    let mode = metadata.permissions().mode() & 0o777;
    match mode & GROUP_AND_OTHERS {
        0 => Ok(()),
        _ => Err(ExposedFile {
            path: path.to_owned(),
            mode,
        }),
    }
}

/// Opens a private file for reading.
///
/// # Errors
/// If the file cannot be opened, or group or others have any permission.
pub fn open(path: &Path) -> Result<File, PrivateFileError> {
    let file = File::open(path).map_err(unreadable(path))?;
    check(path, &file.metadata().map_err(unreadable(path))?)?;
    Ok(file)
}

/// Reads the text of a private file.
///
/// # Errors
/// If the file cannot be read as text, or group or others have any permission.
pub fn read(path: &Path) -> Result<SecretString, PrivateFileError> {
    read_text(path).map(SecretString::from)
}

/// Reads the one secret in a private file, such as a password or a token, without trailing line ends.
///
/// # Errors
/// If the file cannot be read as text, is empty, or group or others have any permission.
pub fn read_secret(path: &Path) -> Result<SecretString, PrivateFileError> {
    one_secret(path, read_text(path)?)
}

/// Reads the one secret in a file as [`read_secret`] does, also if others can read the file. For commands that an
/// operator runs once; the second value is the warning to print.
///
/// # Errors
/// If the file cannot be read as text, or is empty.
pub fn read_exposed_secret(
    path: &Path,
) -> Result<(SecretString, Option<ExposedFile>), PrivateFileError> {
    let mut file = File::open(path).map_err(unreadable(path))?;
    let metadata = file.metadata().map_err(unreadable(path))?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(unreadable(path))?;
    Ok((one_secret(path, text)?, check(path, &metadata).err()))
}

fn one_secret(path: &Path, mut text: String) -> Result<SecretString, PrivateFileError> {
    text.truncate(text.trim_end_matches(['\n', '\r']).len());
    match text.is_empty() {
        true => Err(unreadable(path)(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file is empty",
        ))),
        false => Ok(text.into()),
    }
}

fn read_text(path: &Path) -> Result<String, PrivateFileError> {
    let mut text = String::new();
    let read = open(path)?.read_to_string(&mut text);
    read.map_err(unreadable(path))?;
    Ok(text)
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> PrivateFileError + '_ {
    move |source| PrivateFileError::Unreadable {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::error_text::with_causes;
    use secrecy::ExposeSecret as _;
    use std::fs;

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn refuses_each_permission_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for mode in [0o601, 0o602, 0o604, 0o610, 0o620, 0o640, 0o644, 0o666] {
            write(&path, "secret", mode);
            let refused = read_secret(&path).unwrap_err();
            let expected = ExposedFile {
                path: path.clone(),
                mode,
            };
            assert!(matches!(&refused, PrivateFileError::Exposed(found) if *found == expected));
            let text = refused.to_string();
            assert!(text.contains(&format!("mode {mode:03o}")), "{text}");
            assert!(
                text.contains(&format!("chmod 600 {}", path.display())),
                "{text}"
            );
        }
        for mode in [0o600, 0o400, 0o700] {
            write(&path, "secret", mode);
            assert_eq!(read_secret(&path).unwrap().expose_secret(), "secret");
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn secret_ends_before_the_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        write(&path, " two words \r\n", 0o600);
        assert_eq!(read_secret(&path).unwrap().expose_secret(), " two words ");
        assert_eq!(read(&path).unwrap().expose_secret(), " two words \r\n");
        write(&path, "\n", 0o600);
        let refused = with_causes(&read_secret(&path).unwrap_err());
        assert!(refused.ends_with("the file is empty"), "{refused}");
    }

    #[test]
    fn missing_file_is_named_with_the_cause() {
        let refused = open(Path::new("/nonexistent/token")).unwrap_err();
        let text = with_causes(&refused);
        assert!(
            text.starts_with("cannot read /nonexistent/token: No such file"),
            "{text}"
        );
    }
}
