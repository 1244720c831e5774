//! The NVLink fabric, and the position of a board in its rack.

use super::{Code, RawDevice, ask, struct_version};
use nvml_wrapper_sys::bindings as nvml;
use nvml_wrapper_sys::bindings::nvmlReturn_t;

/// The driver's report on the NVLink fabric.
pub(in crate::gpu_driver::nvml) struct FabricInfo {
    pub cluster: [u8; 16],
    pub clique: u32,
    pub state: u8,
    pub status: nvmlReturn_t,
    /// Absent in the first version of the call.
    pub health_mask: Option<u32>,
    /// Absent before the third version of the call.
    pub summary: Option<u8>,
}

/// Position of a GPU in its rack.
pub(in crate::gpu_driver::nvml) struct Platform {
    pub chassis_serial: String,
    pub slot: u8,
    pub tray: u8,
    pub host: u8,
    pub module: u8,
}

impl RawDevice<'_> {
    /// Queries the fabric with the newest version of the call that this driver supports.
    pub(in crate::gpu_driver::nvml) fn fabric(self) -> Result<FabricInfo, Code> {
        let mut info = nvml::nvmlGpuFabricInfoV_t {
            version: struct_version::<nvml::nvmlGpuFabricInfoV_t>(3),
            clusterUuid: [0; 16],
            status: 0,
            cliqueId: 0,
            state: 0,
            healthMask: 0,
            healthSummary: 0,
        };
        let mut asked = ask!(self, nvmlDeviceGetGpuFabricInfoV, &mut info);
        let mut summary = true;
        if asked == Err(Code::ARGUMENT_VERSION_MISMATCH) {
            // The second version of the struct is a prefix of the third.
            info.version = struct_version::<nvml::nvmlGpuFabricInfo_v2_t>(2);
            asked = ask!(self, nvmlDeviceGetGpuFabricInfoV, &mut info);
            summary = false;
        }
        if asked == Err(Code::FUNCTION_NOT_FOUND) || asked == Err(Code::ARGUMENT_VERSION_MISMATCH) {
            return self.fabric_v1();
        }
        asked?;
        Ok(FabricInfo {
            cluster: info.clusterUuid,
            clique: info.cliqueId,
            state: info.state,
            status: info.status,
            health_mask: Some(info.healthMask),
            summary: summary.then_some(info.healthSummary),
        })
    }

    fn fabric_v1(self) -> Result<FabricInfo, Code> {
        let mut info = nvml::nvmlGpuFabricInfo_t {
            clusterUuid: [0; 16],
            status: 0,
            cliqueId: 0,
            state: 0,
        };
        ask!(self, nvmlDeviceGetGpuFabricInfo, &mut info)?;
        Ok(FabricInfo {
            cluster: info.clusterUuid,
            clique: info.cliqueId,
            state: info.state,
            status: info.status,
            health_mask: None,
            summary: None,
        })
    }

    pub(in crate::gpu_driver::nvml) fn platform(self) -> Result<Platform, Code> {
        let mut info = nvml::nvmlPlatformInfo_t {
            version: struct_version::<nvml::nvmlPlatformInfo_t>(2),
            ibGuid: [0; 16],
            chassisSerialNumber: [0; 16],
            slotNumber: 0,
            trayIndex: 0,
            hostId: 0,
            peerType: 0,
            moduleId: 0,
        };
        ask!(self, nvmlDeviceGetPlatformInfo, &mut info)?;
        let serial = info.chassisSerialNumber;
        let end = serial.iter().position(|byte| *byte == 0);
        Ok(Platform {
            chassis_serial: String::from_utf8_lossy(&serial[..end.unwrap_or(serial.len())])
                .into_owned(),
            slot: info.slotNumber,
            tray: info.trayIndex,
            host: info.hostId,
            module: info.moduleId,
        })
    }

    /// Position on the baseboard, for drivers without [`RawDevice::platform`].
    pub(in crate::gpu_driver::nvml) fn module(self) -> Result<u32, Code> {
        let mut module = 0;
        ask!(self, nvmlDeviceGetModuleId, &mut module)?;
        Ok(module)
    }
}
