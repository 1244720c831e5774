//! Name service queries through `getent`.

use super::files::{parse_line, with_groups};
use super::{Answer, Key, LookupError};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Exit code of `getent` for a missing key.
const NOT_FOUND: i32 = 2;

/// Looks up the account of `key` within `deadline`.
pub(super) async fn look_up(getent: &Path, deadline: Duration, key: &Key) -> Answer {
    let (program, text) = (getent.display().to_string(), key.text());
    let failed = |reason: String| LookupError::Failed {
        program: program.clone(),
        key: text.clone(),
        reason,
    };
    let asking = async {
        let Some(said) = run_getent(getent, &["passwd", &text])
            .await
            .map_err(failed)?
        else {
            return Ok(None);
        };
        let line = said.lines().next().unwrap_or_default();
        let user = parse_line(line);
        let user = user.ok_or_else(|| failed(format!("{line:?} is not a valid passwd line")))?;
        let groups = match key {
            Key::Uid(uid) if user.uid == *uid => return Ok(Some(user)),
            Key::Name(name) if user.name == *name => run_getent(getent, &["initgroups", name])
                .await
                .map_err(failed)?,
            // The name service returned another spelling or another domain. The site must state in the user map that
            // both are the same account.
            Key::Uid(_) | Key::Name(_) => {
                return Err(failed(format!(
                    "answered with {}; name that account in executor.user_map",
                    user.name
                )));
            }
        };
        let said = groups.ok_or_else(|| {
            failed("the supplementary groups of the account could not be read".to_owned())
        })?;
        let groups = said
            .split_whitespace()
            .skip(1)
            .filter_map(|g| g.parse().ok());
        Ok(Some(with_groups(user, groups)))
    };
    let answer = tokio::time::timeout(deadline, asking).await;
    answer.unwrap_or_else(|_| {
        Err(LookupError::Deadline {
            program: program.clone(),
            key: text.clone(),
            seconds: deadline.as_secs(),
        })
    })
}

/// Output of `getent`; `None` if the key is missing. The process is killed when this future is dropped.
async fn run_getent(getent: &Path, arguments: &[&str]) -> Result<Option<String>, String> {
    let done = Command::new(getent)
        .args(arguments)
        .env_clear()
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| error.to_string())?;
    if done.status.success() {
        return Ok(Some(String::from_utf8_lossy(&done.stdout).into_owned()));
    }
    if done.status.code() == Some(NOT_FOUND) {
        return Ok(None);
    }
    let complaint = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(format!("{}: {complaint}", done.status))
}
