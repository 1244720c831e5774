//! Reader for the Standard Workload Format.

use super::{Builder, Job, Reader, SkipReason, UNKNOWN, Unit, Workload};
use crate::{
    lines::Line,
    request::Request,
    swf::{HeaderLine, SwfRecord, add_comment, header_number, parse_record},
};

/// Reader for the Standard Workload Format.
#[derive(Debug, Default)]
pub(super) struct Swf {
    header: Vec<HeaderLine>,
    unit: Option<Unit>,
    records: u64,
    extra: u64,
}

impl Swf {
    pub(super) fn new(unit: Option<Unit>) -> Self {
        Self {
            unit,
            ..Self::default()
        }
    }
}

impl Reader for Swf {
    fn line(&mut self, line: &Line<'_>, into: &mut Builder) -> Result<(), String> {
        if let Some(comment) = line.text.strip_prefix(';') {
            add_comment(&mut self.header, comment);
            return Ok(());
        }
        if line.is_lossy {
            return Err("it is not UTF-8 text".to_owned());
        }
        let (record, has_more) =
            parse_record(line.number, line.text).map_err(|error| error.without_line())?;
        self.records += 1;
        self.extra += u64::from(has_more);
        match job(&record, into) {
            Ok(job) => into.push(job),
            Err(why) => into.skip(line.number, why, String::new),
        }
        Ok(())
    }

    fn finish(&mut self, workload: &mut Workload) {
        let number = |key| header_number(&self.header, key);
        workload.epoch_ms = number("UnixStartTime").and_then(|s| s.checked_mul(1000));
        let (procs, nodes) = (number("MaxProcs"), number("MaxNodes"));
        // Sizes are processors by default: if a node has several processors, jobs may share nodes.
        workload.unit = self.unit.unwrap_or_default();
        workload.machine = match workload.unit {
            Unit::Processors => procs.or(nodes),
            Unit::Nodes => nodes.or(procs),
        };
        let said = number("MaxRecords").or_else(|| number("MaxJobs"));
        if let Some(said) = said.filter(|said| *said != self.records) {
            let found = self.records;
            workload.notes.push(format!(
                "the header gives {said} records, the file has {found}; the records in the file are replayed"
            ));
        }
        if self.extra > 0 {
            let extra = self.extra;
            workload.notes.push(format!(
                "{extra} lines have more than 18 columns; the others are ignored"
            ));
        }
        if let (Some(procs), Some(nodes), Unit::Processors) = (procs, nodes, workload.unit)
            && procs > nodes
        {
            workload.notes.push(format!(
                "sizes are processors ({procs} on {nodes} nodes): node sharing is replayed only with interchangeable \
                 processors; with sizes rounded up to full nodes, the load differs from the recorded load"
            ));
        }
    }
}

fn job(record: &SwfRecord, into: &mut Builder) -> Result<Job, SkipReason> {
    let known = record.replayable()?;
    if known.run_s == 0 {
        return Err(SkipReason::ZeroRunTime);
    }
    let ms = |s: u64| s.saturating_mul(1000);
    let named = |kind: &str, number: Option<u64>| match number {
        Some(number) => format!("{kind}{number}"),
        None => "unknown".to_owned(),
    };
    let user = named("user", record.user);
    let tenant = match record.group {
        Some(group) => format!("group{group}"),
        None => user.clone(),
    };
    Ok(Job {
        number: known.job,
        line: known.line,
        submit_ms: ms(known.submit_s),
        run_ms: ms(known.run_s),
        estimate_ms: known.estimate_s.map_or(UNKNOWN, ms),
        waited_ms: record.wait_s.map_or(UNKNOWN, ms),
        size: u32::try_from(known.procs).map_err(|_| SkipReason::TooLarge)?,
        user: into.users.number(user.as_str()),
        tenant: into.tenants.number(tenant.as_str()),
        request: into.requests.number(&Request {
            queue: record.queue.map(|queue| format!("queue{queue}")),
            ..Request::default()
        }),
    })
}
