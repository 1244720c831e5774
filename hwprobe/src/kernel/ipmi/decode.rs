//! Decoding of BMC answers.

use lattice_conformance::{Milliwatts, Reading};

/// Completion code of an answer, other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion(pub u8);

impl Completion {
    /// Converts the code to a reading. Codes are those of IPMI 2.0, table 5-2.
    #[must_use]
    pub fn reading<T>(self) -> Reading<T> {
        match self.0 {
            // Invalid command, invalid for this LUN, invalid data field, not supported in the present state.
            0xc1 | 0xc2 | 0xcc | 0xd5 => Reading::Unsupported,
            0xc3 => Reading::failed("the BMC timed out while it processed the command"),
            0xd4 | 0xd6 => Reading::denied(format!(
                "the BMC denied the command (completion code {:#04x}: insufficient privilege or disabled)",
                self.0
            )),
            code => Reading::failed(format!("the BMC returned completion code {code:#04x}")),
        }
    }
}

/// The data after the completion code.
fn data(answer: &[u8]) -> Result<&[u8], Reading<()>> {
    match answer {
        [] => Err(Reading::failed("the BMC sent an empty answer")),
        [0, data @ ..] => Ok(data),
        [code, ..] => Err(Completion(*code).reading()),
    }
}

/// Identity of a management controller: IPMI 2.0, table 20-2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceId {
    /// Device id, chosen by the vendor.
    pub device_id: u8,
    /// Hardware revision.
    pub device_revision: u8,
    /// Whether the controller is in normal operation; otherwise it is updating or initialising.
    pub is_available: bool,
    /// Firmware version as `major.minor`, the minor part in two decimal digits.
    pub firmware: String,
    /// Four bytes that a vendor may add to the firmware version, in hexadecimal.
    pub auxiliary: Reading<String>,
    /// Version of the IPMI specification, `major.minor`.
    pub ipmi: String,
    /// IANA enterprise number of the vendor.
    pub manufacturer: u32,
    /// Product id, chosen by the vendor.
    pub product: u16,
}

impl DeviceId {
    /// Decodes an answer that starts with the completion code.
    #[must_use]
    pub fn decode(answer: &[u8]) -> Reading<Self> {
        let data = match data(answer) {
            Ok(data) => data,
            Err(state) => return state.and_then(|()| Reading::Unsupported),
        };
        let &[
            id,
            revision,
            major,
            minor,
            ipmi,
            _,
            m0,
            m1,
            m2,
            p0,
            p1,
            ref more @ ..,
        ] = data
        else {
            return Reading::failed(format!(
                "the Get Device ID answer has {} bytes, fewer than 11",
                data.len()
            ));
        };
        Reading::Present(Self {
            device_id: id,
            device_revision: revision & 0x0f,
            is_available: major & 0x80 == 0,
            // The minor version is BCD. Some vendors write binary; both are displayed in the same way.
            firmware: format!("{}.{minor:02x}", major & 0x7f),
            auxiliary: match more {
                [a, b, c, d, ..] => Reading::Present(format!("{a:02x}{b:02x}{c:02x}{d:02x}")),
                _ => Reading::Unsupported,
            },
            ipmi: format!("{}.{}", ipmi & 0x0f, ipmi >> 4),
            // The number has 20 bits.
            manufacturer: u32::from_le_bytes([m0, m1, m2 & 0x0f, 0]),
            product: u16::from_le_bytes([p0, p1]),
        })
    }
}

/// Power draw of the node: DCMI 1.5, table 6-17.
///
/// Only the current value is decoded: minimum, maximum and average cover a period chosen by the BMC, in practice up to
/// the time since the BMC started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerReading {
    /// Current power draw of the node.
    pub draw: Milliwatts,
}

/// Group extension id that the answer must contain: `DCMI`.
const GROUP: u8 = 0xdc;

impl PowerReading {
    /// Decodes an answer that starts with the completion code. Zero watts, and an inactive measurement, are
    /// unsupported: a running node always draws power.
    #[must_use]
    pub fn decode(answer: &[u8]) -> Reading<Self> {
        const ACTIVE: u8 = 1 << 6;
        let data = match data(answer) {
            Ok(data) => data,
            Err(state) => return state.and_then(|()| Reading::Unsupported),
        };
        let &[
            GROUP,
            c0,
            c1,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            state,
            ..,
        ] = data
        else {
            return Reading::failed(format!(
                "{} bytes are not a valid power reading",
                data.len()
            ));
        };
        match u16::from_le_bytes([c0, c1]) {
            watts @ 1.. if state & ACTIVE != 0 => Reading::Present(Self {
                draw: Milliwatts(u64::from(watts) * 1000),
            }),
            _ => Reading::Unsupported,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The three answers in the tests of github gebn/bmc @2724feda (pkg/ipmi/get_device_id_test.go, Apache-2.0), with
    /// the completion code that its lower layer strips.
    const QUANTA: &[u8] = &[
        0, 0x20, 0x81, 0x03, 0x45, 0x02, 0xbf, 0x4c, 0x1c, 0x00, 0x42, 0x32, 0x01, 0x00, 0x00, 0x00,
    ];
    const UPDATING: &[u8] = &[
        0, 0x20, 0x7f, 0xff, 0x41, 0x51, 0xaa, 0xa2, 0x02, 0x00, 0x00, 0x01, 0x00, 0x07, 0x28, 0x28,
    ];
    const SUPERMICRO: &[u8] = &[
        0, 0x20, 0x01, 0x03, 0x72, 0x02, 0xbf, 0x7c, 0x2a, 0x00, 0x04, 0x08, 0x00, 0x00, 0x00, 0x00,
    ];

    fn id(answer: &[u8]) -> DeviceId {
        match DeviceId::decode(answer) {
            Reading::Present(id) => id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn published_device_ids_read_as_published() {
        let quanta = id(QUANTA);
        assert_eq!(
            quanta,
            DeviceId {
                device_id: 32,
                device_revision: 1,
                is_available: true,
                firmware: "3.45".to_owned(),
                auxiliary: Reading::Present("01000000".to_owned()),
                ipmi: "2.0".to_owned(),
                manufacturer: 7244,
                product: 12866,
            }
        );
        let updating = id(UPDATING);
        assert!(!updating.is_available);
        assert_eq!(
            (updating.device_revision, &*updating.firmware),
            (15, "127.41")
        );
        assert_eq!((updating.manufacturer, updating.product), (674, 256));
        assert_eq!(&*updating.ipmi, "1.5");
        assert_eq!(updating.auxiliary, Reading::Present("00072828".to_owned()));
        let supermicro = id(SUPERMICRO);
        assert_eq!(&*supermicro.firmware, "3.72");
        assert_eq!((supermicro.manufacturer, supermicro.product), (10876, 2052));
    }

    #[test]
    fn the_auxiliary_part_may_be_missing_and_nothing_else() {
        assert_eq!(id(&QUANTA[..12]).auxiliary, Reading::Unsupported);
        for end in 0..12 {
            let cut = DeviceId::decode(&QUANTA[..end]);
            assert!(matches!(cut, Reading::Failed { .. }), "{end}: {cut:?}");
        }
    }

    #[test]
    fn a_refusal_is_no_value() {
        for (code, state) in [(0xc1, "<unsupported>"), (0xd5, "<unsupported>")] {
            assert_eq!(DeviceId::decode(&[code]).map(|_| 0).to_string(), state);
        }
        assert!(matches!(DeviceId::decode(&[0xd4]), Reading::Denied { .. }));
        assert!(matches!(DeviceId::decode(&[0xc0]), Reading::Failed { .. }));
        assert!(matches!(
            PowerReading::decode(&[0xc3]),
            Reading::Failed { .. }
        ));
    }

    /// The two answers in the tests of github gebn/bmc @95f40625 (pkg/dcmi/get_power_reading_test.go, Apache-2.0), with
    /// completion code and group.
    const ACTIVE: &[u8] = &[
        0, 0xdc, 0xae, 0x08, 0x57, 0x04, 0x05, 0x0d, 0xd2, 0x04, 0x73, 0xb6, 0x44, 0x5d, 0xaa,
        0xbb, 0xcc, 0xdd, 0x40,
    ];
    const INACTIVE: &[u8] = &[
        0, 0xdc, 0x7a, 0x00, 0x50, 0x00, 0x96, 0x00, 0x78, 0x00, 0x2b, 0xb8, 0x44, 0x5d, 0xdd,
        0xcc, 0xbb, 0xaa, 0xbf,
    ];

    #[test]
    fn the_draw_is_the_current_value_and_only_while_it_is_measured() {
        let draw = PowerReading::decode(ACTIVE).map(|reading| reading.draw);
        assert_eq!(draw, Reading::Present(Milliwatts(2_222_000)));
        assert_eq!(PowerReading::decode(INACTIVE), Reading::Unsupported);
        let mut zero = ACTIVE.to_vec();
        (zero[2], zero[3]) = (0, 0);
        assert_eq!(PowerReading::decode(&zero), Reading::Unsupported);
        let mut other_group = ACTIVE.to_vec();
        other_group[1] = 0xdd;
        assert!(matches!(
            PowerReading::decode(&other_group),
            Reading::Failed { .. }
        ));
    }

    proptest! {
        #[test]
        fn any_answer_is_a_state(answer in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = DeviceId::decode(&answer);
            let _ = PowerReading::decode(&answer);
        }
    }
}
