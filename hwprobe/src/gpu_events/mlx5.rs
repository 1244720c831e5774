//! Kernel log messages of mlx5_core about a failed NIC.
//!
//! The messages are those of the driver's `health.c` and `cmd.c`. Kernels prefix them with the function, its line and
//! the process (`poll_health:739:(pid 0): `). OFED repeats the address, and messages about one interface add its name.
//! So a line is identified by its words. If the driver reports one occurrence in two lines, only one of them is an
//! event.

use super::kmsg::{KernelLine, shortened};
use crate::pci;
use lattice_conformance::driver_events::{EventCode, Mlx5Event};

/// Parses `mlx5_core 0000:5e:00.0: device's health compromised - reached miss count` and similar lines. Returns `None`
/// for any other line, including one of another driver that quotes such a line.
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
    // Every kernel prints the syndrome. Newer kernels also print `Health issue observed, …` before it.
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
