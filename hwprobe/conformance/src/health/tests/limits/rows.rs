//! Expected case for each check of the shipped table.

use super::Case::{self, Above, Finds, Left, Rises, Word};

pub(super) const ROWS: &[(&str, Case)] = &[
    ("bios.reboot_pending", Finds("bios_reboot_pending")),
    ("bios.settings_pending", Finds("bios_settings_pending")),
    ("bios.version_mismatch", Finds("bios_version_mismatch")),
    ("bmc.dead_link", Finds("bmc_dead_link")),
    ("bmc.not_available", Finds("bmc_not_available")),
    ("bmc.version_mismatch", Finds("bmc_version_mismatch")),
    ("bmc.wrong_system", Finds("bmc_identity_mismatch")),
    ("gpu.driver_mismatch", Finds("gpu_driver_mismatch")),
    ("gpu.fabric.differs", Finds("gpu_fabric_differs")),
    ("gpu.gone", Finds("gpu_lost")),
    ("gpu.lost", Finds("gpu_count_mismatch")),
    ("gpu.mode_pending", Finds("gpu_mode_pending")),
    ("gpu.topology", Finds("gpu_topology_mismatch")),
    ("nic.missing", Finds("nic_missing")),
    ("nic.reboot_pending", Finds("nic_reboot_pending")),
    ("nic.verbs_missing", Finds("nic_verbs_missing")),
    ("nic.without_driver", Finds("nic_without_driver")),
    ("power.meter_ambiguous", Finds("power_meter_ambiguous")),
    (
        "bmc.manager_critical",
        Word("bmc.manager.health", "Warning", "Critical", 0),
    ),
    (
        "bmc.part_critical",
        Word("bmc.health_rollup", "Warning", "Critical", 0),
    ),
    (
        "bmc.part_warning",
        Word("bmc.health_rollup", "OK", "Warning", 0),
    ),
    (
        "bmc.system_critical",
        Word("bmc.health", "Warning", "Critical", 0),
    ),
    ("bmc.system_warning", Word("bmc.health", "OK", "Warning", 0)),
    (
        "gpu.ecc.sram_threshold",
        Word("gpu.1.ecc.sram.threshold_exceeded", "false", "true", 0),
    ),
    (
        "gpu.fabric.access_timeout",
        Word("gpu.1.fabric.access_timeout_recovery", "false", "true", 300),
    ),
    (
        "gpu.fabric.degraded_bandwidth",
        Word("gpu.1.fabric.degraded_bandwidth", "false", "true", 300),
    ),
    (
        "gpu.fabric.limited",
        Word("gpu.1.fabric.health", "healthy", "limited_capacity", 300),
    ),
    (
        "gpu.fabric.misconfigured",
        Word("gpu.1.fabric.misconfigured", "no", "no partition", 300),
    ),
    (
        "gpu.fabric_manager.down",
        Word("gpu.fabric_manager", "running", "not running", 120),
    ),
    (
        "gpu.fabric.route_recovery",
        Word("gpu.1.fabric.route_recovery", "false", "true", 300),
    ),
    (
        "gpu.fabric.route_unhealthy",
        Word("gpu.1.fabric.route_unhealthy", "false", "true", 300),
    ),
    (
        "gpu.fabric.state",
        Word("gpu.1.fabric.state", "completed", "in_progress", 300),
    ),
    (
        "gpu.fabric.status",
        Word(
            "gpu.1.fabric.status",
            "success",
            "insufficient resources",
            300,
        ),
    ),
    (
        "gpu.fabric.unhealthy",
        Word("gpu.1.fabric.health", "limited_capacity", "unhealthy", 300),
    ),
    (
        "gpu.nvlink.inactive",
        Word("gpu.1.nvlink.2.state", "active", "inactive", 300),
    ),
    (
        "gpu.retired_pages.pending",
        Word("gpu.1.retired_pages.pending", "false", "true", 0),
    ),
    (
        "gpu.row_remap.failed",
        Word("gpu.1.remapped_rows.failure", "false", "true", 0),
    ),
    (
        "gpu.row_remap.pending",
        Word("gpu.1.remapped_rows.pending", "false", "true", 0),
    ),
    (
        "nic.port_down",
        Word("nic.1.port.1.state", "ACTIVE", "DOWN", 240),
    ),
    (
        "storage.nvme_state",
        Word("storage.nvme.0.state", "live", "resetting", 120),
    ),
    (
        "storage.root_read_only",
        Word("storage.root_read_only", "false", "true", 0),
    ),
    (
        "gpu.clock.hw_slowdown",
        Above("gpu.1.clocks.event_reasons", 0xf7, 0x8, 300, None),
    ),
    (
        "gpu.clock.hw_thermal",
        Above("gpu.1.clocks.event_reasons", 0xbf, 0x40, 300, None),
    ),
    (
        "gpu.clock.power_brake",
        Above("gpu.1.clocks.event_reasons", 0x7f, 0x80, 300, None),
    ),
    (
        "gpu.clock.sw_thermal",
        Above("gpu.1.clocks.event_reasons", 0xdf, 0x20, 300, None),
    ),
    (
        "gpu.ecc.sram_corrected",
        Above("gpu.1.ecc.sram.corrected_ever", 10_000, 10_001, 0, None),
    ),
    (
        "gpu.ecc.dram_corrected",
        Above(
            "gpu.1.ecc.dram.corrected_ever",
            20_000_000,
            20_000_001,
            0,
            None,
        ),
    ),
    (
        "gpu.ecc.sram_uncorrected",
        Above("gpu.1.ecc.sram.uncorrected", 0, 1, 0, None),
    ),
    (
        "gpu.nvlink.bit_error_rate",
        Above(
            "gpu.1.nvlink.0.bit_error_rate.effective",
            1_000_000,
            1_000_001,
            120,
            None,
        ),
    ),
    (
        "gpu.nvlink.symbol_error_rate",
        Above(
            "gpu.1.nvlink.0.bit_error_rate.symbol",
            1_000_000,
            1_000_001,
            120,
            None,
        ),
    ),
    (
        "gpu.pcie.width",
        Above(
            "gpu.1.pcie.width",
            16,
            15,
            600,
            Some(("gpu.1.max_link_width", 16)),
        ),
    ),
    (
        "gpu.pcie.width_amd",
        Above(
            "gpu.amd.1.pcie.width",
            16,
            15,
            600,
            Some(("gpu.amd.1.max_link_width", 16)),
        ),
    ),
    (
        "gpu.retired_pages.full",
        Above("gpu.1.retired_pages.total", 62, 63, 0, None),
    ),
    (
        "gpu.retired_pages.many",
        Above("gpu.1.retired_pages.double_bit", 14, 15, 0, None),
    ),
    (
        "gpu.row_remap.many",
        Above("gpu.1.remapped_rows.uncorrectable", 511, 512, 0, None),
    ),
    (
        "gpu.temperature.margin",
        Above(
            "gpu.1.temperature_margin",
            3,
            2,
            60,
            Some(("gpu.1.temperature_margin_limit.slowdown", 2)),
        ),
    ),
    (
        "gpu.temperature.memory",
        Above(
            "gpu.1.temperature.memory",
            94,
            95,
            60,
            Some(("gpu.1.temperature_limit.memory", 95)),
        ),
    ),
    (
        "gpu.temperature.slowdown",
        Above(
            "gpu.1.temperature",
            91,
            92,
            60,
            Some(("gpu.1.temperature_limit.slowdown", 92)),
        ),
    ),
    (
        "nic.config_pending",
        Above("nic.1.config.pending", 0, 1, 0, None),
    ),
    (
        "nic.pcie_width",
        Above(
            "nic.1.pcie.width",
            16,
            8,
            600,
            Some(("nic.1.max_link_width", 16)),
        ),
    ),
    (
        "storage.nvme_width",
        Above(
            "storage.nvme.0.link_width",
            4,
            3,
            600,
            Some(("storage.nvme.0.max_link_width", 4)),
        ),
    ),
    (
        "storage.raid_degraded",
        Above("storage.raid.0.degraded", 0, 1, 0, None),
    ),
    (
        "gpu.ecc.corrected_rate",
        Rises("gpu.1.ecc.corrected.volatile", 1_000_000, 3600),
    ),
    (
        "gpu.ecc.uncorrected",
        Rises("gpu.1.ecc.uncorrected.volatile", 1, 3600),
    ),
    (
        "gpu.nvlink.crc",
        Rises("gpu.1.nvlink.0.errors.crc_flit", 6000, 60),
    ),
    (
        "gpu.nvlink.crc_data",
        Rises("gpu.1.nvlink.0.errors.crc_data", 1, 3600),
    ),
    (
        "gpu.nvlink.effective_errors",
        Rises("gpu.1.nvlink.0.errors.effective", 1, 3600),
    ),
    (
        "gpu.nvlink.symbol_errors",
        Rises("gpu.1.nvlink.0.errors.symbol", 1, 3600),
    ),
    (
        "gpu.nvlink.link_recovery",
        Rises("gpu.1.nvlink.0.errors.link_recovery", 1, 3600),
    ),
    (
        "gpu.nvlink.link_recovery_failed",
        Rises("gpu.1.nvlink.0.errors.link_recovery_failed", 1, 86_400),
    ),
    (
        "gpu.nvlink.recovery",
        Rises("gpu.1.nvlink.0.errors.recovery", 1, 3600),
    ),
    (
        "gpu.nvlink.replay",
        Rises("gpu.1.nvlink.0.errors.replay", 1, 3600),
    ),
    ("gpu.pcie.replays", Rises("gpu.1.pcie.replays", 100, 3600)),
    (
        "gpu.ras.correctable_rate",
        Rises("gpu.amd.1.ras.umc.correctable", 1_000_000, 3600),
    ),
    (
        "gpu.ras.uncorrectable",
        Rises("gpu.amd.1.ras.umc.uncorrectable", 1, 3600),
    ),
    (
        "memory.corrected_rate",
        Rises("memory.edac.0.ce_count", 1000, 3600),
    ),
    (
        "memory.uncorrected",
        Rises("memory.edac.0.ue_count", 1, 86_400),
    ),
    (
        "memory.uncorrected_unplaced",
        Rises("memory.controller.0.ue_noinfo_count", 1, 86_400),
    ),
    (
        "nic.buffer_overrun",
        Rises("nic.1.port.1.excessive_buffer_overrun_errors", 1, 3600),
    ),
    (
        "nic.carrier_flaps",
        Rises("nic.1.net.0.carrier_down_count", 3, 43_200),
    ),
    (
        "nic.link_downed",
        Rises("nic.1.port.1.link_downed", 1, 3600),
    ),
    (
        "nic.link_flaps",
        Rises("nic.1.port.1.link_downed", 3, 43_200),
    ),
    (
        "nic.link_integrity",
        Rises("nic.1.port.1.local_link_integrity_errors", 1, 3600),
    ),
    (
        "nic.link_recovery",
        Rises("nic.1.port.1.link_error_recovery", 6, 60),
    ),
    (
        "nic.rnr_nak_retry",
        Rises("nic.1.port.1.rnr_nak_retry_err", 1, 3600),
    ),
    (
        "nic.roce_slow_restart",
        Rises("nic.1.port.1.roce_slow_restart", 600, 60),
    ),
    (
        "nic.symbol_errors",
        Rises("nic.1.port.1.symbol_error", 121, 3600),
    ),
    (
        "gpu.nvlink.lost",
        Left("gpu.1.nvlink.2.state", "active", "inactive", 300),
    ),
    (
        "nic.interface_lost",
        Left("nic.1.net.0.operstate", "up", "down", 240),
    ),
    (
        "nic.port_lost",
        Left("nic.1.port.1.state", "ACTIVE", "DOWN", 240),
    ),
    (
        "nic.slingshot_lost",
        Left("nic.1.cxi.link_state", "up", "down", 240),
    ),
];
