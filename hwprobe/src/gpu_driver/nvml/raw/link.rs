//! NVML calls about one NVLink.

use super::{Code, RawDevice, ask};
use nvml_wrapper_sys::bindings as nvml;
use std::ffi::c_char;

/// The far end of an NVLink.
pub(in crate::gpu_driver::nvml) struct Remote {
    pub bus_id: String,
}

impl RawDevice<'_> {
    pub(in crate::gpu_driver::nvml) fn link_active(self, link: u32) -> Result<bool, Code> {
        let mut active = 0;
        ask!(self, nvmlDeviceGetNvLinkState, link, &mut active)?;
        Ok(active == nvml::nvmlEnableState_enum_NVML_FEATURE_ENABLED)
    }

    pub(in crate::gpu_driver::nvml) fn link_version(self, link: u32) -> Result<u32, Code> {
        let mut version = 0;
        ask!(self, nvmlDeviceGetNvLinkVersion, link, &mut version)?;
        Ok(version)
    }

    pub(in crate::gpu_driver::nvml) fn link_can(
        self,
        link: u32,
        capability: u32,
    ) -> Result<bool, Code> {
        let mut can = 0;
        ask!(
            self,
            nvmlDeviceGetNvLinkCapability,
            link,
            capability,
            &mut can
        )?;
        Ok(can != 0)
    }

    pub(in crate::gpu_driver::nvml) fn link_errors(
        self,
        link: u32,
        counter: u32,
    ) -> Result<u64, Code> {
        let mut count = 0;
        ask!(
            self,
            nvmlDeviceGetNvLinkErrorCounter,
            link,
            counter,
            &mut count
        )?;
        Ok(count)
    }

    /// Device type of the far end, as numbered by nvml.h.
    pub(in crate::gpu_driver::nvml) fn link_remote_kind(self, link: u32) -> Result<u32, Code> {
        let mut kind = 0;
        ask!(self, nvmlDeviceGetNvLinkRemoteDeviceType, link, &mut kind)?;
        Ok(kind)
    }

    pub(in crate::gpu_driver::nvml) fn link_remote(self, link: u32) -> Result<Remote, Code> {
        let mut info = nvml::nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        ask!(self, nvmlDeviceGetNvLinkRemotePciInfo_v2, link, &mut info)?;
        Ok(Remote {
            bus_id: chars(&info.busId),
        })
    }
}

fn chars(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field
        .iter()
        .take_while(|c| **c != 0)
        .map(|c| c.to_ne_bytes()[0])
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
