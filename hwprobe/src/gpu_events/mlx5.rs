//! What mlx5_core writes into the kernel's log of a NIC that does not work any more.
//!
//! The lines are those of the driver's `health.c` and `cmd.c`. Kernels put the function, its line
//! and the process before them (`poll_health:739:(pid 0): `), OFED the address once more, and
//! what is of one interface its name; so a line is known by its words. What the driver says twice
//! of one occurrence is taken once.

use super::EventCode;
use super::Mlx5Event;
use super::kmsg::{KernelLine, shortened};
use crate::pci;

/// Reads `mlx5_core 0000:5e:00.0: device's health compromised - reached miss count` and its like.
/// Any other line is none, also one of another driver that quotes such a line.
pub(super) fn line(text: &str) -> Option<KernelLine> {
    let rest = text.strip_prefix("mlx5_core ")?;
    let (place, message) = rest.split_once(' ')?;
    let place = place.strip_suffix(':').unwrap_or(place);
    let address = pci::address(place).present()?.clone();
    let code = EventCode::Mlx5(event(message)?);
    let again = message.strip_prefix(place);
    let message = again.map_or(message, |rest| rest.trim_start_matches(':'));
    Some(KernelLine {
        address,
        code,
        detail: shortened(message.trim()),
    })
}

fn event(message: &str) -> Option<Mlx5Event> {
    let has = |words: &str| message.contains(words);
    if has("timeout. Will cause a leak of a command resource") {
        return Some(Mlx5Event::CommandTimeout);
    }
    if has("device's health compromised") {
        return Some(Mlx5Event::HealthCompromised);
    }
    // Newer kernels say it in `Health issue observed, …` before, too; all say the syndrome.
    if has("synd 0x8: unrecoverable hardware error") || has("synd 0xb: HW fatal error") {
        return Some(Mlx5Event::Unrecoverable);
    }
    if has("health recovery succeeded") {
        return Some(Mlx5Event::Recovered);
    }
    if has("health recovery failed") || has("Driver is in error state. Unloading") {
        return Some(Mlx5Event::RecoveryFailed);
    }
    let (_, sensor) = message.split_once("Fatal error ")?;
    let sensor = sensor.trim_end().strip_suffix(" detected")?;
    let is_number = !sensor.is_empty() && sensor.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(Mlx5Event::Fatal)
}
