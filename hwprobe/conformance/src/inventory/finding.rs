//! Findings: every contradiction that a probe can report. One list, so that each finding can have a health check.

use crate::Class;
use serde::{Deserialize, Serialize};

/// Code of a contradiction. [`Self::name`] is stable: sites refer to it in their checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingCode {
    /// Firmware settings that a driver provides in band change at the next boot.
    BiosRebootPending,
    /// Settings sent to the BMC change at the next boot.
    BiosSettingsPending,
    /// Two sources report different BIOS versions.
    BiosVersionMismatch,
    /// The BMC lists entries of its firmware inventory that it does not provide.
    BmcDeadLink,
    /// UUID and serial number show that the BMC belongs to another machine.
    BmcIdentityMismatch,
    /// The BMC is updating or starting.
    BmcNotAvailable,
    /// The BMC reports different versions of itself over IPMI and Redfish.
    BmcVersionMismatch,
    /// The bus and the driver report different numbers of GPUs.
    GpuCountMismatch,
    /// NVIDIA's driver library and kernel module have different versions.
    GpuDriverMismatch,
    /// The GPUs of a node are in different NVLink fabrics.
    GpuFabricDiffers,
    /// A GPU that the driver lists does not respond.
    GpuLost,
    /// A mode of a GPU changes at the next reset of the GPU or reboot.
    GpuModePending,
    /// The bus and the driver report different distances between two GPUs.
    GpuTopologyMismatch,
    /// Settings of a NIC's firmware change at the next boot.
    NicConfigPending,
    /// A NIC that an earlier pass found is missing.
    NicMissing,
    /// The firmware stored on a NIC differs from the running one.
    NicRebootPending,
    /// An RDMA port is active, but programs have no verbs device to use it.
    NicVerbsMissing,
    /// A NIC on the bus has no driver.
    NicWithoutDriver,
    /// Several meters report the power of the whole node.
    PowerMeterAmbiguous,
}

impl FindingCode {
    /// Every finding code.
    pub const ALL: [Self; 19] = [
        Self::BiosRebootPending,
        Self::BiosSettingsPending,
        Self::BiosVersionMismatch,
        Self::BmcDeadLink,
        Self::BmcIdentityMismatch,
        Self::BmcNotAvailable,
        Self::BmcVersionMismatch,
        Self::GpuCountMismatch,
        Self::GpuDriverMismatch,
        Self::GpuFabricDiffers,
        Self::GpuLost,
        Self::GpuModePending,
        Self::GpuTopologyMismatch,
        Self::NicConfigPending,
        Self::NicMissing,
        Self::NicRebootPending,
        Self::NicVerbsMissing,
        Self::NicWithoutDriver,
        Self::PowerMeterAmbiguous,
    ];

    /// Name as reported in [`Finding::code`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BiosRebootPending => "bios_reboot_pending",
            Self::BiosSettingsPending => "bios_settings_pending",
            Self::BiosVersionMismatch => "bios_version_mismatch",
            Self::BmcDeadLink => "bmc_dead_link",
            Self::BmcIdentityMismatch => "bmc_identity_mismatch",
            Self::BmcNotAvailable => "bmc_not_available",
            Self::BmcVersionMismatch => "bmc_version_mismatch",
            Self::GpuCountMismatch => "gpu_count_mismatch",
            Self::GpuDriverMismatch => "gpu_driver_mismatch",
            Self::GpuFabricDiffers => "gpu_fabric_differs",
            Self::GpuLost => "gpu_lost",
            Self::GpuModePending => "gpu_mode_pending",
            Self::GpuTopologyMismatch => "gpu_topology_mismatch",
            Self::NicConfigPending => "nic_config_pending",
            Self::NicMissing => "nic_missing",
            Self::NicRebootPending => "nic_reboot_pending",
            Self::NicVerbsMissing => "nic_verbs_missing",
            Self::NicWithoutDriver => "nic_without_driver",
            Self::PowerMeterAmbiguous => "power_meter_ambiguous",
        }
    }

    /// The code with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// The class of the probe that reports the finding.
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            Self::BiosRebootPending | Self::BiosSettingsPending | Self::BiosVersionMismatch => {
                Class::Bios
            }
            Self::BmcDeadLink
            | Self::BmcIdentityMismatch
            | Self::BmcNotAvailable
            | Self::BmcVersionMismatch => Class::Bmc,
            Self::GpuCountMismatch
            | Self::GpuDriverMismatch
            | Self::GpuFabricDiffers
            | Self::GpuLost
            | Self::GpuModePending
            | Self::GpuTopologyMismatch => Class::Gpu,
            Self::NicConfigPending
            | Self::NicMissing
            | Self::NicRebootPending
            | Self::NicVerbsMissing
            | Self::NicWithoutDriver => Class::Nic,
            // The power probe has no class of its own.
            Self::PowerMeterAmbiguous => Class::Cpu,
        }
    }
}

/// A contradiction between two sources. It concerns health, never a digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The class of the probe that reported the finding.
    pub class: Class,
    /// Stable code, e.g. `gpu_count_mismatch`.
    pub code: String,
    /// Evidence, as text for operators.
    pub detail: String,
}

impl Finding {
    /// A finding with its evidence.
    #[must_use]
    pub fn new(code: FindingCode, detail: impl Into<String>) -> Self {
        Self {
            class: code.class(),
            code: code.name().to_owned(),
            detail: detail.into(),
        }
    }
}
