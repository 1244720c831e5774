//! Kernel log messages of amdgpu, which correspond to the XIDs of NVIDIA's driver.
//!
//! The messages are meant for people and differ between kernels. This module accepts the messages printed by the
//! driver's sources (`amdgpu_ras.c`, `amdgpu_device.c`, `amdgpu_job.c`, `amdgpu_ras_eeprom.c`). A line without the
//! device's address (old kernels' `[drm:amdgpu_job_timedout [amdgpu]]`) belongs to no GPU and is ignored: the reset
//! that follows has an address.

use super::kmsg::{KernelLine, shortened};
use crate::pci;
use lattice_conformance::driver_events::{AmdEvent, EventCode};

/// Parses `amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!` and similar lines. Returns `None` for any other line.
pub(super) fn line(text: &str) -> Option<KernelLine> {
    let (_, rest) = text.split_once("amdgpu ")?;
    let (place, rest) = rest.split_once(": ")?;
    let address = pci::address(place).present()?.clone();
    let message = message(rest.trim());
    Some(KernelLine {
        address,
        code: EventCode::Amd(event(message)?),
        detail: shortened(message),
    })
}

/// The message without the prefixes that kernels add: `amdgpu: `, `[drm] *ERROR* `, `{12}`.
fn message(mut rest: &str) -> &str {
    loop {
        let trimmed = rest.trim_start();
        let shorter = trimmed
            .strip_prefix("amdgpu: ")
            .or_else(|| trimmed.strip_prefix("*ERROR* "))
            .or_else(|| strip_bracketed(trimmed, "[drm", "] "))
            .or_else(|| strip_bracketed(trimmed, "{", "}"));
        match shorter {
            Some(shorter) => rest = shorter,
            None => return trimmed,
        }
    }
}

fn strip_bracketed<'t>(text: &'t str, open: &str, close: &str) -> Option<&'t str> {
    let inside = text.strip_prefix(open)?;
    inside.split_once(close).map(|(_, rest)| rest)
}

fn event(message: &str) -> Option<AmdEvent> {
    let begins = |with: &str| message.starts_with(with);
    let has = |words: &str| message.contains(words);
    if begins("GPU reset begin") {
        return Some(AmdEvent::ResetBegun);
    }
    if let Some(rest) = message.strip_prefix("GPU reset(") {
        let (_, outcome) = rest.split_once(')')?;
        return Some(match outcome.trim_start().starts_with("succeeded") {
            true => AmdEvent::ResetDone,
            false => AmdEvent::ResetFailed,
        });
    }
    if let Some(code) = message.strip_prefix("GPU reset end with ret = ") {
        // Code zero follows "succeeded", which reported the result already.
        return (code.trim() != "0").then_some(AmdEvent::ResetFailed);
    }
    if begins("GPU Recovery Failed") {
        return Some(AmdEvent::ResetFailed);
    }
    // After a soft recovery, only the job on the queue is lost.
    if begins("ring ") && has(" timeout") && !has("soft recovered") {
        return Some(AmdEvent::RingTimeout);
    }
    if has("ERREVENT_ATHUB_INTERRUPT") {
        return Some(AmdEvent::Fatal);
    }
    if begins("poison is consumed") || has("RAS poison consumption") {
        return Some(AmdEvent::Poison);
    }
    if begins("Poison is created") {
        return Some(AmdEvent::Deferred);
    }
    if is_page_limit_reached(message) {
        return Some(AmdEvent::BadPages);
    }
    error_count_event(message)
}

/// Printed when the last allowed page is retired, and again at each start of the driver: a reboot does not clear it.
/// `exceeds 90% of threshold` is a warning before the limit.
fn is_page_limit_reached(message: &str) -> bool {
    let begins = |with: &str| message.starts_with(with);
    let has = |words: &str| message.contains(words);
    begins("Saved bad pages") && has("reaches threshold")
        || begins("RAS records:") && has(" exceed threshold:")
        || begins("Exceeding the bad_page_threshold parameter")
        || begins("This GPU is in BAD status")
}

/// Parses `2 uncorrectable hardware errors detected in umc block`, `socket: 0, die: 1, 2 new deferred hardware errors
/// detected in umc block`, and for a unit other than memory `2 new poison detected in gfx block`. `no uncorrectable …`
/// and a count of zero are not events. `… in total in …` is not an event either, because it repeats earlier counts.
fn error_count_event(message: &str) -> Option<AmdEvent> {
    let (before, place) = message.split_once(" detected in ")?;
    if place.starts_with("total in ") {
        return None;
    }
    let before = before.strip_suffix(" hardware errors").unwrap_or(before);
    let mut words = before.split_whitespace().rev();
    let event = match words.next()? {
        "uncorrectable" => AmdEvent::Uncorrectable,
        "deferred" | "poison" => AmdEvent::Deferred,
        _ => return None,
    };
    let count = words.find(|word| *word != "new")?;
    let count: u64 = count.parse().ok()?;
    (count > 0).then_some(event)
}
