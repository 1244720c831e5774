//! Requests to the kernel's IPMI device.

use super::IpmiReport;
use crate::kernel::ioctl::{ipmi_receive, ipmi_send};
use data_encoding::HEXLOWER;
use lattice_conformance::Reading;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// `IPMI_NETFN_APP_REQUEST`, `IPMI_GET_DEVICE_ID_CMD` of `include/uapi/linux/ipmi_msgdefs.h`.
const GET_DEVICE_ID: (u8, u8) = (0x06, 0x01);
/// The group extension network function; DCMI 1.5, table 6-16: group, mode (system power
/// statistics), attributes, reserved.
const GET_POWER_READING: (u8, u8) = (0x2c, 0x02);
const POWER_READING_REQUEST: [u8; 4] = [0xdc, 0x01, 0x00, 0x00];
/// Maximum number of unrelated messages (events, answers to an earlier request) before the device counts as broken.
const MAX_UNRELATED_MESSAGES: usize = 64;

/// Queries the BMC through the device at `path`, until the deadline.
pub(super) fn report(path: &Path, deadline: Duration) -> IpmiReport {
    let ends_at = Instant::now() + deadline;
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    let what = path.to_string_lossy();
    let device = match device {
        Ok(device) => device,
        Err(error) => return IpmiReport::with_state(&Reading::from_io(&what, &error)),
    };
    let ask = |id, command, data: &[u8]| match exchange(&device, id, command, data, ends_at) {
        Ok(Some(answer)) => Reading::Present(HEXLOWER.encode(&answer)),
        Ok(None) => Reading::timed_out(deadline),
        Err(error) => Reading::from_io(&what, &error),
    };
    let device_id = ask(1, GET_DEVICE_ID, &[]);
    // A BMC that did not answer the simplest request gets no second one.
    let power_reading = match &device_id {
        Reading::Present(_) => ask(2, GET_POWER_READING, &POWER_READING_REQUEST),
        other => other.clone(),
    };
    IpmiReport {
        device_id,
        power_reading,
    }
}

/// Sends one request and returns its answer; `None` if no answer arrives until `ends_at`.
fn exchange(
    device: &File,
    id: i64,
    command: (u8, u8),
    data: &[u8],
    ends_at: Instant,
) -> io::Result<Option<Vec<u8>>> {
    ipmi_send(device, id, command, &mut data.to_vec())?;
    for _ in 0..MAX_UNRELATED_MESSAGES {
        let left = ends_at.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut ready = [PollFd::new(device, PollFlags::IN)];
        if poll(&mut ready, Some(&timeout))? == 0 {
            return Ok(None);
        }
        match ipmi_receive(device) {
            Ok(answer) if answer.id == Some(id) => return Ok(Some(answer.data)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!(
        "no answer to this request in {MAX_UNRELATED_MESSAGES} reads of the IPMI device"
    )))
}
