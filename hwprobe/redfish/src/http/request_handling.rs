//! Handling of one request in its turn: breaker, delays, login, and retries.

use super::bmc::{AccountRole, Bmc, RequestState};
use super::error::FetchError;
use super::session::{self, Login};
use super::wire::{HttpRequest, Reply};
use reqwest::Method;
use std::time::Duration;
use tokio::time::Instant;

impl Bmc {
    /// Sends one request and returns its answer, before `deadline`.
    pub(super) async fn exchange(
        &self,
        role: AccountRole,
        ask: &HttpRequest,
        deadline: Instant,
    ) -> Result<Reply, FetchError> {
        // An open breaker rejects the request at once, even while another caller waits for this BMC.
        self.admit()?;
        let began_at = Instant::now();
        let turn = tokio::time::timeout_at(deadline, self.line.lock()).await;
        let mut line = turn.map_err(|_| FetchError::Timeout {
            after: deadline - began_at,
        })?;
        self.admit()?;
        let result = self.send_after_delay(&mut line, role, ask, deadline).await;
        self.report_to_breaker(&result);
        result
    }

    /// Reports the result of a request to the breaker.
    fn report_to_breaker(&self, result: &Result<Reply, FetchError>) {
        let failure = match result {
            Ok(reply) => reply.success().err(),
            Err(error) => Some(error.clone()),
        };
        match failure {
            Some(error) if error.is_bmc_failure() => {
                let now = self.environment.clock.now();
                let random = self.environment.randomness.next();
                let mut breaker = self.lock_breaker();
                breaker.record_failure(now, random, error.to_string());
            }
            // The BMC demanded a delay, or no request was sent: neither a failure nor an answer.
            Some(FetchError::Busy { .. } | FetchError::OutsideService) => {}
            _ => self.lock_breaker().record_answer(),
        }
    }

    /// Sends a request after the delay that the BMC demanded, if the time suffices. If the answer demands a delay, the
    /// request is repeated once.
    async fn send_after_delay(
        &self,
        line: &mut RequestState,
        role: AccountRole,
        ask: &HttpRequest,
        deadline: Instant,
    ) -> Result<Reply, FetchError> {
        let mut is_last = false;
        loop {
            let quiet_until = *self.lock_quiet();
            if let Some(until) = quiet_until.filter(|until| *until > Instant::now()) {
                if until >= deadline {
                    let retry_in = until - Instant::now();
                    return Err(FetchError::Busy { retry_in });
                }
                tokio::time::sleep_until(until).await;
            }
            let reply = self.send_with_login(line, role, ask, deadline).await?;
            let Some(patience) = reply.demanded_delay() else {
                return Ok(reply);
            };
            let patience = patience.min(self.settings.max_retry_after);
            *self.lock_quiet() = Some(Instant::now() + patience);
            if is_last {
                return Err(FetchError::Busy { retry_in: patience });
            }
            is_last = true;
        }
    }

    /// Sends a request with a login. A login that the BMC no longer accepts is renewed, once. If the request is denied
    /// with the new login too, the resource is not available to this account. The session is then kept, and further
    /// denials in this pass are accepted.
    async fn send_with_login(
        &self,
        line: &mut RequestState,
        role: AccountRole,
        ask: &HttpRequest,
        deadline: Instant,
    ) -> Result<Reply, FetchError> {
        let mut had_login = !matches!(line.login(role), Login::None);
        loop {
            if matches!(line.login(role), Login::None) {
                let account = self.account(role).ok_or(FetchError::NoSessionService)?;
                let timeout = remaining_time(deadline, self.settings.request_timeout)?;
                let login = session::login(&account.wire, &account.endpoint, timeout).await?;
                *line.login(role) = login;
            }
            let reply = self.retry_after_reset(line, role, ask, deadline).await?;
            if reply.status != 401 {
                return Ok(reply);
            }
            if matches!(line.login(role), Login::Basic) {
                *line.login(role) = Login::None;
                let user = self
                    .account(role)
                    .map(|account| account.endpoint.user.clone());
                return Err(FetchError::LoginDenied {
                    user: user.unwrap_or_default(),
                    status: reply.status,
                });
            }
            let look = self.current_pass();
            if !had_login {
                *line.refused_in(role) = Some(look);
            }
            if *line.refused_in(role) == Some(look) {
                return Ok(reply);
            }
            // The old session may still be open, and BMCs have few.
            let account = self.account(role).ok_or(FetchError::NoSessionService)?;
            let Ok(timeout) = remaining_time(deadline, self.settings.request_timeout) else {
                return Ok(reply);
            };
            let former = std::mem::take(line.login(role));
            session::logout(&account.wire, &account.endpoint, former, timeout).await;
            had_login = false;
        }
    }

    /// Repeats a request, once, if the connection ended without an answer and a repetition is harmless.
    async fn retry_after_reset(
        &self,
        line: &mut RequestState,
        role: AccountRole,
        ask: &HttpRequest,
        deadline: Instant,
    ) -> Result<Reply, FetchError> {
        let account = self.account(role).ok_or(FetchError::NoSessionService)?;
        let credential = line.login(role).credential(&account.endpoint);
        let mut is_last = ask.method != Method::GET;
        loop {
            let timeout = remaining_time(deadline, self.settings.timeout_of(&ask.path))?;
            let asked = account
                .wire
                .send(&account.endpoint, &credential, ask, timeout);
            match asked.await {
                Err(FetchError::Broken { .. }) if !is_last => is_last = true,
                result => return result,
            }
        }
    }
}

/// Remaining time of a request: its own timeout, or the time left until the deadline if that is shorter.
fn remaining_time(deadline: Instant, bound: Duration) -> Result<Duration, FetchError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(FetchError::Timeout { after: bound });
    }
    Ok(left.min(bound))
}
