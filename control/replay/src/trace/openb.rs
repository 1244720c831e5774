//! Reader for tasks of Alibaba's GPU cluster trace (cluster-trace-gpu-v2023, `openb_pod_list_*.csv`), with a header
//! line. A task requests a part of one node, and becomes a job with a full node. Source: Weng et al., USENIX ATC 2023.

use super::{Builder, Job, Reader, SkipReason, UNKNOWN, Unit, Workload};
use crate::{lines::Line, request::Request};
use lattice_quorum_types::spec::Constraints;

const NAME: &str = "name";
const CREATED: &str = "creation_time";
const DELETED: &str = "deletion_time";
const SCHEDULED: &str = "scheduled_time";
const GPUS: &str = "num_gpu";
const MILLI: &str = "gpu_milli";
const MODELS: &str = "gpu_spec";
const MEMORY: &str = "memory_mib";
const QOS: &str = "qos";
const MIB: u64 = 1 << 20;

pub(super) fn is_header(line: &str) -> bool {
    let has = |wanted: &str| line.split(',').any(|name| name.trim() == wanted);
    has(NAME) && has(CREATED) && has(DELETED)
}

/// Reader for tasks of Alibaba's trace.
#[derive(Debug, Default)]
pub(super) struct Openb {
    columns: Vec<String>,
    shared: u64,
}

impl Reader for Openb {
    fn line(&mut self, line: &Line<'_>, into: &mut Builder) -> Result<(), String> {
        if is_header(line.text) {
            self.columns = line
                .text
                .split(',')
                .map(|name| name.trim().to_owned())
                .collect();
            return Ok(());
        }
        if self.columns.is_empty() {
            return Err("the first line must name the columns".to_owned());
        }
        let cells: Vec<&str> = line.text.split(',').map(str::trim).collect();
        if cells.len() != self.columns.len() {
            let (found, wanted) = (cells.len(), self.columns.len());
            return Err(format!(
                "the line has {found} columns, the header has {wanted}"
            ));
        }
        let get = |wanted: &str| {
            let place = self.columns.iter().position(|name| name == wanted)?;
            Some(cells[place]).filter(|cell| !cell.is_empty())
        };
        let number = |name: &str| match get(name) {
            None => Ok(None),
            Some(text) => {
                let whole = text.strip_suffix(".0").unwrap_or(text);
                let wrong = |_| format!("{name}: {text:?} is not a whole number");
                whole.parse::<u64>().map(Some).map_err(wrong)
            }
        };
        let gpus = number(GPUS)?.unwrap_or(0);
        let is_part = number(MILLI)?.is_some_and(|milli| milli > 0 && milli < 1000);
        self.shared += u64::from(gpus == 0 || is_part);
        let constraints = Constraints {
            gpu_models: get(MODELS).map_or_else(Vec::new, |models| {
                models.split('|').map(str::to_owned).collect()
            }),
            gpus_per_node: u32::try_from(gpus).ok().filter(|gpus| *gpus > 0),
            memory_bytes: number(MEMORY)?.and_then(|mib| mib.checked_mul(MIB)),
            ..Constraints::default()
        };
        let (created, deleted, scheduled) =
            (number(CREATED)?, number(DELETED)?, number(SCHEDULED)?);
        let name = get(NAME).unwrap_or_default();
        let kept = || -> Result<Job, SkipReason> {
            let submit_s = created.ok_or(SkipReason::NoSubmitTime)?;
            let started_s = scheduled.ok_or(SkipReason::NoRunTime)?;
            let run_s = deleted
                .and_then(|end| end.checked_sub(started_s))
                .ok_or(SkipReason::NoRunTime)?;
            if run_s == 0 {
                return Err(SkipReason::ZeroRunTime);
            }
            let ms = |s: u64| s.saturating_mul(1000);
            let digits = name
                .rsplit('-')
                .next()
                .and_then(|digits| digits.parse().ok());
            Ok(Job {
                number: digits.unwrap_or(line.number),
                line: line.number,
                submit_ms: ms(submit_s),
                run_ms: ms(run_s),
                estimate_ms: UNKNOWN,
                waited_ms: ms(started_s.saturating_sub(submit_s)),
                size: 1,
                user: 0,
                tenant: 0,
                request: 0,
            })
        };
        match kept() {
            Ok(job) => {
                let request = Request {
                    queue: None,
                    qos: get(QOS).map(str::to_owned),
                    class: None,
                    constraints,
                };
                let (user, tenant) = (into.users.number("unknown"), into.tenants.number("unknown"));
                let request = into.requests.number(&request);
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
        if self.shared > 0 {
            let shared = self.shared;
            workload.notes.push(format!(
                "{shared} tasks request no GPU or a part of one and shared their node; the replay gives each a full \
                 node, so the load differs from the recorded load"
            ));
        }
    }
}
