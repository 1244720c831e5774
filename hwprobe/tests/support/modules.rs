//! EEPROM images of pluggable modules, composed by hand from the public specifications (SFF-8472, SFF-8636, OIF-CMIS;
//! identifiers of SFF-8024). None is the image of a real module: vendor and part numbers are invented, and every byte
//! that no test uses has a value that would be detected if it were kept.

/// Filler for bytes that no test uses, such as measured values.
const NOISE: u8 = b'#';
/// Text in place of a serial number.
pub const SERIAL: &str = "MT2333SERIAL";
/// Text in place of the date code.
pub const DATE: &str = "241130";

fn image(identifier: u8, fields: &[(usize, usize, &str)]) -> Vec<u8> {
    let mut image = vec![NOISE; 256];
    image[0] = identifier;
    for (at, length, text) in fields {
        let place = &mut image[*at..at + length];
        place.fill(b' ');
        place[..text.len()].copy_from_slice(text.as_bytes());
    }
    image
}

/// SFF-8472, address A0h: a 25G cable.
pub fn sfp() -> Vec<u8> {
    image(
        0x03,
        &[
            (20, 16, "EXAMPLE OPTICS"),
            (40, 16, "EX-SFP28-DAC1"),
            (56, 4, "A1"),
            (68, 16, SERIAL),
            (84, 8, DATE),
        ],
    )
}

/// SFF-8636, lower page and page 00h: a 100G module.
pub fn qsfp28() -> Vec<u8> {
    image(
        0x11,
        &[
            (148, 16, "EXAMPLE OPTICS"),
            (168, 16, "EX-QSFP28-SR4"),
            (184, 2, "02"),
            (196, 16, SERIAL),
            (212, 8, DATE),
        ],
    )
}

/// CMIS, lower memory and page 00h: a 400G module with this firmware version.
pub fn osfp(firmware: [u8; 2]) -> Vec<u8> {
    let mut image = image(
        0x19,
        &[
            (129, 16, "EXAMPLE OPTICS"),
            (148, 16, "EX-OSFP-DR4"),
            (164, 2, "B"),
            (166, 16, SERIAL),
            (182, 8, DATE),
        ],
    );
    image[39..41].copy_from_slice(&firmware);
    image
}
