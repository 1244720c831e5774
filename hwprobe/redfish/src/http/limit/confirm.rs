//! Confirmation of a limit: reads the control until it shows the new limit, or clearly another one.

use super::{Change, ConfirmedLimit, Control, SafeException, SetLimitError};
use crate::http::bmc::{AccountRole, Bmc};
use crate::http::error::FetchError;
use crate::http::wire::HttpRequest;
use crate::power::{Route, Source, read_by_route};
use crate::{Documents, ResourcePath};
use lattice_conformance::{LimitState, Milliwatts, Power, Reading};
use serde_json::Value;
use std::collections::BTreeMap;
use tokio::time::Instant;

/// Reading of one control in one pass.
#[derive(Clone, Debug)]
pub(super) struct ControlReport(Power);

impl ControlReport {
    /// The interpreter's reading of this single resource.
    pub fn of(route: &Route, source: &Source, value: &Value) -> Self {
        let present = Reading::Present(value.clone());
        let documents = Documents(BTreeMap::from([(source.path.clone(), present)]));
        let alone = Route {
            system: route.system.clone(),
            sources: vec![source.clone()],
            unread: Reading::Absent,
        };
        Self(read_by_route(&documents, &alone).power)
    }

    pub const fn state(&self) -> LimitState {
        self.0.limit_state
    }

    pub fn range(&self) -> (Option<Milliwatts>, Option<Milliwatts>) {
        let power = &self.0;
        (
            power.limit_min.present().copied(),
            power.limit_max.present().copied(),
        )
    }

    /// The reason if the limit is unknown.
    pub fn unreadable(&self) -> Option<String> {
        let unknown = self.state() == LimitState::Unknown;
        unknown.then(|| self.0.limit.to_string())
    }

    /// Whether exactly this limit is in force (`None`: no limit). The highest possible limit is in force if there is no
    /// limit.
    pub fn is_in_force(&self, asked: Option<Milliwatts>) -> bool {
        let (_, highest) = self.range();
        match (self.state(), asked) {
            (LimitState::Uncapped, asked) => asked.is_none() || asked == highest,
            (LimitState::Set, Some(asked)) => self.0.limit == Reading::Present(asked),
            _ => false,
        }
    }

    /// The limit in force, `Some(None)` if there is no limit; `None` if the limit is unknown or the control is absent.
    pub fn limit(&self) -> Option<Option<Milliwatts>> {
        match self.state() {
            LimitState::Uncapped => Some(None),
            LimitState::Set => self.0.limit.present().copied().map(Some),
            LimitState::Absent | LimitState::Unknown => None,
        }
    }

    pub fn confirmed(&self) -> ConfirmedLimit {
        ConfirmedLimit {
            limit: self.limit().flatten(),
            draw: self.0.draw.clone(),
            exception_action: self.0.exception_action.clone(),
        }
    }

    /// Proof that the BMC cuts no power: the action is harmless, or there is none. An unknown action is not harmless.
    pub fn safe_exception(&self) -> Option<SafeException> {
        let action = &self.0.exception_action;
        let is_safe = match action {
            Reading::Absent => true,
            Reading::Present(action) => action == "NoAction" || action == "LogEventOnly",
            _ => false,
        };
        is_safe.then(|| SafeException {
            action: action.clone(),
        })
    }

    pub fn exception_shown(&self) -> String {
        self.0.exception_action.to_string()
    }
}

impl Bmc {
    /// Reads the control until the requested limit is in force, another one clearly is, or the deadline has passed.
    pub(super) async fn confirm(
        &self,
        route: &Route,
        control: &Control,
        change: &Change,
        deadline: Instant,
    ) -> Result<ConfirmedLimit, SetLimitError> {
        let asked = change.requested;
        let before = control.report.limit();
        let mut seen = None;
        loop {
            let is_last = Instant::now() + self.settings.confirm_interval >= deadline;
            let why = match self.read_control(&control.source).await {
                Err(error) => error.to_string(),
                Ok((value, _)) => {
                    let report = ControlReport::of(route, &control.source, &value);
                    if report.is_in_force(asked) {
                        return confirm_safe(&report, asked);
                    }
                    let now = report.limit();
                    let is_settled = now.is_some() && now == seen;
                    match &change.server_error {
                        Some((status, message)) if is_settled && now == before => {
                            let (status, message) = (*status, message.clone());
                            return Err(SetLimitError::Rejected { status, message });
                        }
                        // The old limit may still be shown; a third limit, read twice, is final.
                        _ if now.is_some() && (is_last || is_settled && now != before) => {
                            let stored = report.confirmed();
                            return Err(SetLimitError::Altered { asked, stored });
                        }
                        _ => {}
                    }
                    seen = now;
                    report.unreadable().unwrap_or_default()
                }
            };
            if is_last {
                return Err(SetLimitError::Unconfirmed { asked, why });
            }
            tokio::time::sleep(self.settings.confirm_interval).await;
        }
    }

    /// Waits until a task has ended. A failed task, or one that does not end before `deadline`, is an error.
    pub(super) async fn follow_task(
        &self,
        task: &ResourcePath,
        deadline: Instant,
    ) -> Result<(), String> {
        loop {
            let reply = self
                .exchange(
                    AccountRole::Capper,
                    &HttpRequest::get(task.as_str()),
                    deadline,
                )
                .await;
            match reply.map(|reply| (reply.status, reply.json())) {
                // A task monitor returns 202 while the task runs, and disappears afterwards.
                Ok((202, _)) => {}
                Ok((204 | 404 | 410, _)) => return Ok(()),
                Ok((_, Ok(value))) => match value.get("TaskState").and_then(Value::as_str) {
                    None | Some("Completed") => return Ok(()),
                    Some(state @ ("Exception" | "Killed" | "Cancelled" | "Interrupted")) => {
                        return Err(format!("the BMC's task ended as {state}"));
                    }
                    Some(_) => {}
                },
                Ok((_, Err(error))) => return Err(format!("the BMC's task: {error}")),
                Err(error @ (FetchError::Open(_) | FetchError::Redirected { .. })) => {
                    return Err(error.to_string());
                }
                Err(_) => {}
            }
            if Instant::now() + self.settings.confirm_interval >= deadline {
                return Err("the BMC's task did not end in time".to_owned());
            }
            tokio::time::sleep(self.settings.confirm_interval).await;
        }
    }
}

/// A limit in force is confirmed only if enforcing it cuts no power.
fn confirm_safe(
    report: &ControlReport,
    asked: Option<Milliwatts>,
) -> Result<ConfirmedLimit, SetLimitError> {
    if asked.is_some() && report.safe_exception().is_none() {
        let action = report.exception_shown();
        let why = format!("the action for a limit that cannot be enforced changed to {action}");
        return Err(SetLimitError::Unconfirmed { asked, why });
    }
    Ok(report.confirmed())
}
