//! Child side: GPU driver events, read as long as the parent reads the output.

use super::raw::RawDevice;
use super::{Reading, load, pci, to_reading};
use crate::gpu_driver::line::Line;
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

/// Waits for XIDs of all GPUs that support them, and passes each to `send`. Passes [`Line::Ready`] first, and
/// [`Line::Alive`] if no event arrives for `alive_interval`. Returns `Ok` when `send` returns false (no reader), and
/// the reason if the driver's events fail.
pub(in crate::gpu_driver) fn watch(
    library: &OsStr,
    alive_interval: Duration,
    send: &mut dyn FnMut(&Line) -> bool,
) -> Result<(), String> {
    let nvml = load(library).map_err(|reading| reading.to_string())?;
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let mut set = nvml
        .create_event_set()
        .map_err(|e| failed("no events", &e))?;
    let (mut devices, mut unwatched) = (Vec::new(), Vec::new());
    let count = nvml.device_count().map_err(|e| failed("no devices", &e))?;
    for index in 0..count {
        let Ok(device) = nvml.device_by_index(index) else {
            unwatched.push(format!("device {index}"));
            continue;
        };
        let address = to_reading(device.pci_info()).and_then(|info| pci::address(&info.bus_id));
        let Reading::Present(address) = address else {
            unwatched.push(format!("device {index}"));
            continue;
        };
        let wanted = EventTypes::CRITICAL_XID_ERROR;
        if !device
            .supported_event_types()
            .is_ok_and(|types| types.contains(wanted))
        {
            unwatched.push(address);
            continue;
        }
        // A failed registration consumes the event set. The parent starts a new child.
        set = device
            .register_events(wanted, set)
            .map_err(|e| failed(&address, &e))?;
        devices.push((RawDevice::of(nvml.lib(), &device), address));
    }
    let watched = devices.iter().map(|(_, address)| address.clone()).collect();
    if !send(&Line::Ready { watched, unwatched }) {
        return Ok(());
    }
    listen(&nvml, &set, &devices, alive_interval, send)
}

fn listen(
    nvml: &Nvml,
    set: &nvml_wrapper::EventSet<'_>,
    devices: &[(RawDevice<'_>, String)],
    every: Duration,
    say: &mut dyn FnMut(&Line) -> bool,
) -> Result<(), String> {
    let timeout_ms = u32::try_from(every.as_millis()).unwrap_or(u32::MAX);
    loop {
        let line = match set.wait(timeout_ms) {
            Ok(event) => {
                let Some(XidError::Value(xid)) = event.event_data else {
                    continue;
                };
                // A lost GPU no longer returns its address, but its handle is still known.
                let raw = RawDevice::of(nvml.lib(), &event.device);
                let known = devices.iter().find(|(device, _)| device.is_same(raw));
                let Some((_, address)) = known else { continue };
                Line::Xid {
                    at_ms: now_ms(),
                    address: address.clone(),
                    xid: u32::try_from(xid).unwrap_or(u32::MAX),
                }
            }
            Err(NvmlError::Timeout) => Line::Alive,
            Err(error) => return Err(format!("waiting for events: {error}")),
        };
        if !say(&line) {
            return Ok(());
        }
    }
}

/// Wall clock in Unix milliseconds: the driver's events carry no time.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
