//! Power limits: setting a limit, with confirmation.
//!
//! A [`ConfirmedLimit`] has only one source: the state that the BMC reports *after* the change, or before it if the
//! requested limit is in force already. An unconfirmed limit is an error, whatever status the BMC returned: BMCs accept
//! 500 W, store 556 W and return 200.

mod change;
mod confirm;
mod outcome;

use super::bmc::{AccountRole, Bmc};
use super::error::FetchError;
use super::session::path_of_location;
use super::wire::{HttpRequest, Reply};
use crate::power::{Route, Source};
use confirm::ControlReport;
use lattice_conformance::{LimitState, Milliwatts};
use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

pub use outcome::{ConfirmedLimit, LimitRefusal, SafeException, SetLimitError};

/// The sent change, as far as it matters for the confirmation.
struct Change {
    requested: Option<Milliwatts>,
    /// Status and message of an error after which the change may or may not have taken effect.
    server_error: Option<(u16, String)>,
}

/// A control before the change.
struct Control {
    source: Source,
    value: Value,
    etag: Option<String>,
    report: ControlReport,
}

impl Bmc {
    /// Limits the power of the node at `route`, or lifts its limit, and reads back the limit in force. The limit is
    /// rounded down to whole watts. The highest possible limit is equivalent to none, and is confirmed as no limit.
    /// Only one limit is set at a time.
    ///
    /// # Errors
    /// Every result other than *confirmed as requested*: see [`SetLimitError`]. After [`SetLimitError::Altered`] and
    /// [`SetLimitError::Unconfirmed`] the limit may have changed.
    pub async fn set_limit(
        &self,
        route: &Route,
        limit: Option<Milliwatts>,
    ) -> Result<ConfirmedLimit, SetLimitError> {
        let _only_one = self.writer.lock().await;
        let result = self.set_limit_alone(route, limit.map(whole_watts)).await;
        self.close_capper().await;
        result
    }

    /// Configures the BMC to take no action, or only log, if a limit cannot be enforced, and confirms the setting.
    ///
    /// # Errors
    /// The BMC does not accept the setting, or the result is unknown.
    pub async fn make_exception_safe(&self, route: &Route) -> Result<SafeException, SetLimitError> {
        let _only_one = self.writer.lock().await;
        let result = self.make_exception_safe_alone(route).await;
        self.close_capper().await;
        result
    }

    async fn set_limit_alone(
        &self,
        route: &Route,
        limit: Option<Milliwatts>,
    ) -> Result<ConfirmedLimit, SetLimitError> {
        let mut control = self.control(route).await?;
        let asked = check_limit(&control.report, limit)?;
        if control.report.is_in_force(asked) {
            return Ok(control.report.confirmed());
        }
        let mut sent = self.send(route, &control, asked).await?;
        if sent.as_ref().is_ok_and(|reply| reply.status == 412) {
            // Another client changed the control in between: retry once, from its current state.
            control = self.control(route).await?;
            check_limit(&control.report, limit)?;
            sent = self.send(route, &control, asked).await?;
        }
        self.confirm_result(route, &control, asked, sent).await
    }

    async fn send(
        &self,
        route: &Route,
        control: &Control,
        asked: Option<Milliwatts>,
    ) -> Result<Result<Reply, FetchError>, SetLimitError> {
        let system = route.system.as_ref();
        let body = change::limit_body(&control.source, &control.value, system, asked)?;
        Ok(self.patch(control, body).await)
    }

    async fn patch(&self, control: &Control, body: Value) -> Result<Reply, FetchError> {
        let path = control.source.path.as_str();
        let ask = HttpRequest {
            if_match: control.etag.clone(),
            ..HttpRequest::new(Method::PATCH, path, Some(body))
        };
        let deadline = Instant::now() + self.settings.slow_request_timeout;
        self.exchange(AccountRole::Capper, &ask, deadline).await
    }

    /// Evaluates the answer to a change, and reads back the limit in force.
    async fn confirm_result(
        &self,
        route: &Route,
        control: &Control,
        asked: Option<Milliwatts>,
        sent: Result<Reply, FetchError>,
    ) -> Result<ConfirmedLimit, SetLimitError> {
        let deadline = Instant::now() + self.settings.confirm_timeout;
        let mut refused = None;
        match sent {
            Ok(reply) if reply.status >= 500 => refused = Some((reply.status, reply.message())),
            Ok(reply) if reply.status == 202 => {
                let location = reply.location.as_deref().and_then(path_of_location);
                if let Some(task) = location
                    && let Err(why) = self.follow_task(&task, deadline).await
                {
                    return Err(SetLimitError::Unconfirmed { asked, why });
                }
            }
            Ok(reply) => {
                if reply.success().is_err() {
                    return Err(SetLimitError::Rejected {
                        status: reply.status,
                        message: reply.message(),
                    });
                }
            }
            // The change may have been applied; only a read shows that.
            Err(
                FetchError::Timeout { .. }
                | FetchError::Broken { .. }
                | FetchError::TooLarge { .. }
                | FetchError::Encoding { .. },
            ) => {}
            Err(error) => {
                let FetchError::Redirected { status, .. } = error else {
                    return Err(SetLimitError::NotSent(error));
                };
                // A redirect that is not followed may have made the change (303).
                refused = Some((status, error.to_string()));
            }
        }
        let change = Change {
            requested: asked,
            server_error: refused,
        };
        self.confirm(route, control, &change, deadline).await
    }

    async fn make_exception_safe_alone(
        &self,
        route: &Route,
    ) -> Result<SafeException, SetLimitError> {
        let mut control = self.control(route).await?;
        let system = route.system.as_ref();
        for action in ["NoAction", "LogEventOnly"] {
            if let Some(safe) = control.report.safe_exception() {
                return Ok(safe);
            }
            let body = change::exception_body(&control.source, &control.value, system, action);
            let Some(body) = body else { break };
            // The status of the answer does not matter; the following read shows the action.
            let unconfirmed = |why| SetLimitError::ExceptionUnconfirmed { why };
            let sent = self.patch(&control, body).await;
            sent.map_err(|error| unconfirmed(error.to_string()))?;
            let looked = self.control(route).await;
            control = looked.map_err(|error| unconfirmed(error.to_string()))?;
        }
        let action = control.report.exception_shown();
        let safe = control.report.safe_exception();
        safe.ok_or_else(|| LimitRefusal::PowerOff { action }.into())
    }

    /// The first resource on the route that accepts a limit, in its current state.
    async fn control(&self, route: &Route) -> Result<Control, SetLimitError> {
        if !self.may_cap() {
            return Err(LimitRefusal::NoCredential.into());
        }
        let takes_limits = |source: &&Source| change::takes_limits(source);
        for source in route.sources.iter().filter(takes_limits) {
            let (value, etag) = self
                .read_control(source)
                .await
                .map_err(SetLimitError::NotSent)?;
            let report = ControlReport::of(route, source, &value);
            if report.state() != LimitState::Absent {
                return Ok(Control {
                    source: source.clone(),
                    value,
                    etag,
                    report,
                });
            }
        }
        Err(LimitRefusal::NoControl.into())
    }

    async fn read_control(&self, source: &Source) -> Result<(Value, Option<String>), FetchError> {
        let deadline = Instant::now() + self.settings.request_timeout;
        let fetched = self
            .get(AccountRole::Capper, &source.path, deadline)
            .await?;
        Ok((fetched.value, fetched.etag))
    }
}

/// Rounds a limit down to whole watts.
const fn whole_watts(limit: Milliwatts) -> Milliwatts {
    Milliwatts(limit.0 / 1000 * 1000)
}

/// Checks whether the limit may be sent. Returns the limit to send, or the reason against it.
fn check_limit(
    report: &ControlReport,
    limit: Option<Milliwatts>,
) -> Result<Option<Milliwatts>, LimitRefusal> {
    if let Some(why) = report.unreadable() {
        return Err(LimitRefusal::Unreadable { why });
    }
    // Lifting a limit needs no further check: the BMC cuts no power for it.
    let Some(asked) = limit else { return Ok(None) };
    let (lowest, highest) = report.range();
    let is_low = asked.0 == 0 || lowest.is_some_and(|lowest| asked < lowest);
    if is_low || highest.is_some_and(|highest| asked > highest) {
        return Err(LimitRefusal::OutOfRange {
            asked,
            lowest,
            highest,
        });
    }
    if report.safe_exception().is_none() {
        let action = report.exception_shown();
        return Err(LimitRefusal::PowerOff { action });
    }
    Ok(Some(asked))
}
