//! Reader for published logs of Argonne's machines. After a header line, each line has six columns: name, submit (in
//! seconds, Unix time or from 0), run time in seconds, nodes, and two columns that do not affect a schedule. The logs
//! have no estimates and no users.

use super::{Builder, Job, Reader, SkipReason, UNKNOWN, Unit, Workload};
use crate::{lines::Line, request::Request};

const COLUMNS: [&str; 4] = ["Job_name", "Submit", "Runtime", "Nodes"];

const YEAR_2000_MS: u64 = 946_684_800_000;

pub(super) fn is_header(line: &str) -> bool {
    let found = line.split_ascii_whitespace().take(COLUMNS.len());
    found.eq(COLUMNS)
}

/// Reader for logs of Argonne's machines.
#[derive(Debug)]
pub(super) struct Alcf;

impl Reader for Alcf {
    fn line(&mut self, line: &Line<'_>, into: &mut Builder) -> Result<(), String> {
        if is_header(line.text) || line.text.starts_with('#') {
            return Ok(());
        }
        let mut fields = line.text.split_ascii_whitespace();
        let mut values = [0; COLUMNS.len()];
        for (place, (value, name)) in values.iter_mut().zip(COLUMNS).enumerate() {
            let column = place + 1;
            let text = fields
                .next()
                .ok_or_else(|| format!("column {column} ({name:?}) is missing"))?;
            // Some logs write whole numbers as 12.0.
            let whole = text.strip_suffix(".0").unwrap_or(text);
            *value = whole.parse::<i64>().map_err(|_| {
                format!("column {column} ({name:?}): {text:?} is not a whole number")
            })?;
        }
        let [number, submit_s, run_s, nodes] = values;
        let ms = |s: i64| u64::try_from(s).ok().and_then(|s| s.checked_mul(1000));
        let kept = || -> Result<Job, SkipReason> {
            Ok(Job {
                number: u64::try_from(number).unwrap_or(line.number),
                line: line.number,
                submit_ms: ms(submit_s).ok_or(SkipReason::NoSubmitTime)?,
                run_ms: match run_s {
                    0 => return Err(SkipReason::ZeroRunTime),
                    _ => ms(run_s).ok_or(SkipReason::NoRunTime)?,
                },
                estimate_ms: UNKNOWN,
                waited_ms: UNKNOWN,
                size: match nodes {
                    ..1 => return Err(SkipReason::NoSize),
                    _ => u32::try_from(nodes).map_err(|_| SkipReason::TooLarge)?,
                },
                user: 0,
                tenant: 0,
                request: 0,
            })
        };
        match kept() {
            Ok(job) => {
                let (user, tenant) = (into.users.number("unknown"), into.tenants.number("unknown"));
                let request = into.requests.number(&Request::default());
                into.push(Job {
                    user,
                    tenant,
                    request,
                    ..job
                });
            }
            Err(why) => into.skip(line.number, why, String::new),
        }
        Ok(())
    }

    fn finish(&mut self, workload: &mut Workload) {
        workload.unit = Unit::Nodes;
        // Some logs begin at 0, others have Unix seconds.
        let first = workload.jobs.first().map(|job| job.submit_ms);
        workload.epoch_ms = first.filter(|at| *at > YEAR_2000_MS).map(|_| 0);
        let note = "the log has no estimates: run times are used, more exact than any estimate";
        workload.notes.push(note.to_owned());
    }
}
