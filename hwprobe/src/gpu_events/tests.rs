#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_conformance::driver_events::{AmdEvent, EventCode, Mlx5Event};

const ONE: &str = "0000:5d:00.0";

#[test]
fn lines_of_all_driver_generations_are_read() {
    let read = |text: &str| line(text).map(|parsed| (parsed.address, parsed.code, parsed.detail));
    let is = |address: &str, xid, detail: &str| {
        Some((address.to_owned(), EventCode::Xid(xid), detail.to_owned()))
    };
    assert_eq!(
        read("NVRM: Xid (PCI:0000:5d:00): 79, pid=1234, name=python, GPU has fallen off the bus."),
        is(
            ONE,
            79,
            "pid=1234, name=python, GPU has fallen off the bus."
        )
    );
    assert_eq!(
        read("[12345.678] NVRM: Xid (0000:03:00): 13, 0001 00000000 0000a0c0"),
        is("0000:03:00.0", 13, "0001 00000000 0000a0c0")
    );
    assert_eq!(
        read("NVRM: Xid (PCI:0009:01:00.0): 154, GPU recovery action changed from 0x0 to 0x2"),
        is(
            "0009:01:00.0",
            154,
            "GPU recovery action changed from 0x0 to 0x2"
        )
    );
    assert_eq!(
        read("NVRM: Xid (PCI:00010000:01:00): 43"),
        is("10000:01:00.0", 43, "")
    );
    // Of a GPU in MIG mode: with the GPU instance, and with the compute instance.
    assert_eq!(
        read("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 145, RLW_REMAP Nonfatal XC0 i0 Link -1"),
        is("0000:01:00.0", 145, "RLW_REMAP Nonfatal XC0 i0 Link -1")
    );
    assert_eq!(
        read("NVRM: Xid (PCI:0000:5d:00.0 GPU-I:05 GPU-CI:00): 43, pid=1, name=x, Ch 00000008"),
        is(ONE, 43, "pid=1, name=x, Ch 00000008")
    );
}

#[test]
fn fatal_errors_of_nvswitches_are_read_and_their_further_lines_are_not() {
    for (text, number, detail) in [
        (
            "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
            20034,
            "Fatal, Link 48 LTSSM Fault Up",
        ),
        (
            "[131453.740743] nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 22013, fatal, Link 30 x (First)",
            22013,
            "fatal, Link 30 x (First)",
        ),
        (
            "nvidia-nvswitch1 SXid (PCI:0000:06:00): 00019, Fatal",
            19,
            "Fatal",
        ),
        (
            "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, [Fatal] Link 48",
            20034,
            "[Fatal] Link 48",
        ),
    ] {
        let parsed = line(text).unwrap();
        assert_eq!(parsed.address, "0000:06:00.0", "{text}");
        assert_eq!(parsed.code, EventCode::Sxid(number), "{text}");
        assert_eq!(parsed.detail, detail);
        let code = parsed.code.reason();
        assert_eq!(EventCode::from_reason(&code), Some(parsed.code), "{code}");
    }
    for text in [
        "nvidia-nvswitch3: SXid (PCI:0000:06:00.0): 12028, Non-fatal, Link 32 egress non-posted \
         PRIV error (First)",
        "nvidia-nvswitch3: SXid (PCI:0000:06:00.0): 12028, severity=NON_FATAL, Link 32",
        "nvidia-nvswitch3: SXid (PCI:0000:06:00.0): 20034, Severity 1 Engine instance 60 \
         Sub-engine instance 00",
        "nvidia-nvswitch3: SXid (PCI:0000:06:00.0): 20034, Data {0x10000000, 0x00000000}",
        "nvidia-nvswitch3: SXid (PCI:0000:06:00.0): garbled, Fatal",
        "nvidia-nvswitch3: SXid (PCI:zz): 20034, Fatal",
        "nvidia-nvswitch3: SXid (PCI:0000:06:00.0)",
        "systemd: SXid (PCI:0000:06:00.0): 20034, Fatal",
    ] {
        assert_eq!(line(text), None, "{text}");
    }
}

#[test]
fn other_and_broken_lines_are_none() {
    for text in [
        "",
        "NVRM: GPU at PCI:0000:5d:00: GPU-e5dbb4d7",
        "NVRM: Xid (PCI:0000:5d:00)",
        "NVRM: Xid (PCI:zz): 79, x",
        "NVRM: Xid (PCI: ): 79, x",
        "NVRM: Xid ( GPU-I:05): 79, x",
        "NVRM: Xid (PCI:0000:5d:00): , x",
        "NVRM: Xid (PCI:0000:5d:00): 99999999999999, x",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal",
    ] {
        assert_eq!(line(text), None, "{text}");
    }
    let long = format!("NVRM: Xid (PCI:0000:5d:00): 79, {}", "ä".repeat(100_000));
    assert_eq!(line(&long).unwrap().detail.chars().count(), 400);
}

#[test]
fn records_of_the_kernel_device_are_split() {
    let is = |seq, stamp_us, message| {
        Some(KernelRecord {
            seq,
            stamp_us,
            message,
        })
    };
    assert_eq!(
        record("4,1151,98765432100,-;NVRM: Xid (PCI:0000:5d:00): 31, pid=1"),
        is(
            1151,
            98_765_432_100,
            "NVRM: Xid (PCI:0000:5d:00): 31, pid=1"
        )
    );
    assert_eq!(
        record("6,339,5140900,-,caller=T1;a;b"),
        is(339, 5_140_900, "a;b")
    );
    for text in [
        " SUBSYSTEM=pci",
        " DEVICE=+pci:0000:5d:00.0",
        "",
        "x,y,z;no",
        "6;no",
    ] {
        assert_eq!(record(text), None, "{text}");
    }
}

/// Lines of amdgpu from public reports, kernels 5.4 to 6.16, with the expected event of each.
const AMD_LINES: &[(&str, Option<AmdEvent>)] = &[
    (
        "amdgpu 0000:c1:00.0: GPU reset begin!",
        Some(AmdEvent::ResetBegun),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!. Source:  4",
        Some(AmdEvent::ResetBegun),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: GPU reset(1) succeeded!",
        Some(AmdEvent::ResetDone),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: GPU reset(3) failed",
        Some(AmdEvent::ResetFailed),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: GPU reset end with ret = -110",
        Some(AmdEvent::ResetFailed),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: GPU reset end with ret = 0",
        None,
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: GPU Recovery Failed: -19",
        Some(AmdEvent::ResetFailed),
    ),
    // Intermediate: the result is reported later.
    (
        "amdgpu 0000:c1:00.0: amdgpu: GPU reset succeeded, trying to resume",
        None,
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=70, emitted seq=72",
        Some(AmdEvent::RingTimeout),
    ),
    (
        "amdgpu 0000:c1:00.0: [drm] *ERROR* ring comp_1.0.1 timeout, signaled seq=1",
        Some(AmdEvent::RingTimeout),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: ring gfx timeout, but soft recovered",
        None,
    ),
    (
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=73",
        None,
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block, \
         no user action is needed.",
        Some(AmdEvent::Uncorrectable),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: {14}socket: 0, die: 1, 1 new uncorrectable hardware errors \
         detected in gfx block",
        Some(AmdEvent::Uncorrectable),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: {14}socket: 0, die: 1, 9 uncorrectable hardware errors \
         detected in total in gfx block",
        None,
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: no uncorrectable hardware errors detected in umc block",
        None,
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
        None,
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: 7 correctable hardware errors detected in umc block",
        None,
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: socket: 1, die: 0, 1 new deferred hardware errors detected \
         in umc block",
        Some(AmdEvent::Deferred),
    ),
    (
        "amdgpu 0000:c1:00.0: {15}Poison is created",
        Some(AmdEvent::Deferred),
    ),
    (
        "amdgpu 0000:c1:00.0: {14}poison is consumed by client 12, kick off gpu reset flow",
        Some(AmdEvent::Poison),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: RAS poison consumption, fall back to gpu reset flow: \
         client id 27",
        Some(AmdEvent::Poison),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) \
         detected!",
        Some(AmdEvent::Fatal),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: Saved bad pages 256 reaches threshold value 256",
        Some(AmdEvent::BadPages),
    ),
    // A board due for replacement reports that at every boot, in the words of its driver.
    (
        "amdgpu 0000:c1:00.0: amdgpu: RAS records:300 exceed threshold:256, GPU will not be \
         initialized. Replace this GPU or increase the threshold",
        Some(AmdEvent::BadPages),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: Exceeding the bad_page_threshold parameter, disabling the \
         GPU.",
        Some(AmdEvent::BadPages),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: This GPU is in BAD status.",
        Some(AmdEvent::BadPages),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: RAS records:231 exceeds 90% of threshold:256",
        None,
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: records:4 threshold:256, resetting RAS table header \
         signature",
        None,
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: {16} socket: 0, die: 1, 2 new poison detected in gfx block",
        Some(AmdEvent::Deferred),
    ),
    (
        "amdgpu 0000:c1:00.0: amdgpu: {16} socket: 0, die: 1, 5 poison detected in total in gfx \
         block",
        None,
    ),
    (
        "amdgpu 0000:c1:00.0: 2 displays detected in gfx block",
        None,
    ),
    // The name of a process does not count as a message.
    (
        "amdgpu 0000:c1:00.0: amdgpu: Process information: process ring x timeout pid 4711",
        None,
    ),
    ("amdgpu: GPU reset begin!", None),
    ("amdgpu zz: GPU reset begin!", None),
    ("amdgpu 0000:c1:00.0: ", None),
    ("amdgpu 0000:c1:00.0: [drm {unclosed", None),
    ("nouveau 0000:c1:00.0: GPU reset begin!", None),
];

#[test]
fn amd_driver_lines_precede_kernel_lines() {
    for (text, event) in AMD_LINES {
        let parsed = line(text);
        let code = parsed.as_ref().map(|parsed| parsed.code);
        assert_eq!(code, event.map(EventCode::Amd), "{text}");
        if let Some(parsed) = parsed {
            assert_eq!(parsed.address, "0000:c1:00.0");
            assert!(text.ends_with(&parsed.detail), "{}", parsed.detail);
        }
        // A truncated line is parsed or rejected, and never causes a panic.
        for end in 0..text.len() {
            let _ = line(&text[..end]);
        }
    }
}

#[test]
fn a_nic_of_mlx5_that_fails_is_an_event_in_whatever_words_its_kernel_has() {
    const AT: &str = "0000:5e:00.0";
    for (text, event) in [
        (
            "mlx5_core 0000:5e:00.0: device's health compromised - reached miss count",
            Mlx5Event::HealthCompromised,
        ),
        (
            "mlx5_core 0000:5e:00.0: 0000:5e:00.0:poll_health:274:(pid 0): device's health compromised",
            Mlx5Event::HealthCompromised,
        ),
        (
            "mlx5_core 0000:5e:00.0: wait_func:964:(pid 4213): CREATE_MKEY(0x200) timeout. Will \
             cause a leak of a command resource",
            Mlx5Event::CommandTimeout,
        ),
        (
            "mlx5_core 0000:5e:00.0: cmd[4]: ACCESS_REG(0x805) Async, timeout. Will cause a leak \
             of a command resource",
            Mlx5Event::CommandTimeout,
        ),
        (
            "mlx5_core 0000:5e:00.0: wait_func_handle_exec_timeout:1124:(pid 9): cmd[0]: \
             DESTROY_EQ(0x302) No done completion, timeout. Will cause a leak of a command resource",
            Mlx5Event::CommandTimeout,
        ),
        (
            "mlx5_core 0000:5e:00.0: poll_health:739:(pid 0): Fatal error 3 detected",
            Mlx5Event::Fatal,
        ),
        (
            "mlx5_core 0000:5e:00.0: synd 0x8: unrecoverable hardware error",
            Mlx5Event::Unrecoverable,
        ),
        (
            "mlx5_core 0000:5e:00.0: print_health_info:431:(pid 0): synd 0xb: HW fatal error",
            Mlx5Event::Unrecoverable,
        ),
        (
            "mlx5_core 0000:5e:00.0: mlx5_health_try_recover:337:(pid 5): health recovery succeeded",
            Mlx5Event::Recovered,
        ),
        (
            "mlx5_core 0000:5e:00.0: health recovery failed",
            Mlx5Event::RecoveryFailed,
        ),
        (
            "mlx5_core 0000:5e:00.0 eth2: Driver is in error state. Unloading",
            Mlx5Event::RecoveryFailed,
        ),
    ] {
        let parsed = line(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(
            (parsed.address.as_str(), parsed.code),
            (AT, EventCode::Mlx5(event)),
            "{text}"
        );
        assert!(!parsed.detail.is_empty() && !parsed.detail.starts_with(AT));
        let code = parsed.code.reason();
        assert_eq!(EventCode::from_reason(&code), Some(parsed.code), "{code}");
    }
}

#[test]
fn ignores_harmless_mlx5_messages() {
    for text in [
        "mlx5_core 0000:5e:00.0: firmware version: 20.26.4012",
        "mlx5_core 0000:5e:00.0 ib0: Link up",
        "mlx5_core 0000:5e:00.0: Port module event: module 0, Cable unplugged",
        "mlx5_core 0000:5e:00.0: assert_var[0] 0x00000001",
        "mlx5_core 0000:5e:00.0: ext_synd 0x40d0",
        "mlx5_core 0000:5e:00.0: synd 0x10: High temperature",
        // The same occurrence also reports its syndrome.
        "mlx5_core 0000:5e:00.0: Health issue observed, unrecoverable hardware error, severity(3) \
         ERROR:",
        "mlx5_core 0000:5e:00.0: cmd[1]: CREATE_EQ(0x301) Async, recovered after timeout",
        "mlx5_core 0000:5e:00.0: starting health recovery flow",
        "mlx5_core 0000:5e:00.0: Fatal error detected",
        "mlx5_core 0000:5e:00.0: Fatal error x detected",
        "mlx5_core: Fatal error 3 detected",
        "mlx5_core nowhere: Fatal error 3 detected",
        "mlx5_core 0000:5e:00.0:",
        "mlx5_core ",
        "mlx4_core 0000:5e:00.0: device's health compromised - reached miss count",
        "pcieport 0000:5d:00.0: mlx5_core 0000:5e:00.0: Fatal error 3 detected",
        "nvme nvme0: I/O 8 QID 0 timeout, reset controller",
    ] {
        assert_eq!(line(text), None, "{text}");
    }
}
