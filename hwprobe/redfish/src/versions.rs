//! Contradictions between a host and its BMC about the version of the same firmware.

use lattice_conformance::{ClassRecord, Finding, FindingCode};
use std::collections::BTreeSet;

/// Findings for versions that the host and its BMC report differently: the BIOS version in class `bios`, and the BMC's
/// own version over IPMI in class `bmc`. Each record merges the keys of both sides; a missing value contradicts
/// nothing.
#[must_use]
pub fn contradictions(bios: Option<&ClassRecord>, bmc: Option<&ClassRecord>) -> Vec<Finding> {
    let bios = bios.and_then(|record| {
        let (host, bmc) = both_texts(record, "bios.version", "bios.redfish.version")?;
        are_contradictory(&host, &bmc).then(|| {
            let detail = format!("the host reports \"{host}\", the BMC \"{bmc}\"");
            Finding::new(FindingCode::BiosVersionMismatch, detail)
        })
    });
    let bmc = bmc.and_then(|record| {
        let (ipmi, redfish) = both_texts(record, "bmc.ipmi.firmware", "bmc.firmware")?;
        contradicts_ipmi(&ipmi, &redfish).then(|| {
            let detail =
                format!("the BMC reports \"{ipmi}\" over IPMI, \"{redfish}\" over Redfish");
            Finding::new(FindingCode::BmcVersionMismatch, detail)
        })
    });
    bios.into_iter().chain(bmc).collect()
}

fn both_texts(record: &ClassRecord, one: &str, other: &str) -> Option<(String, String)> {
    let text = |key| Some(record.get(key).present()?.as_text()?.to_owned());
    Some((text(one)?, text(other)?))
}

/// Whether two texts name different versions. Vendors write one version in two forms (DMI `A43`, Redfish `A43 v2.52
/// (10/29/2021)`): a text contained in the other is not a contradiction. Texts without parts of the same form (`0.1.3`,
/// `T20221205`) do not contradict each other either, because they may name the same version.
pub(crate) fn are_contradictory(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_ascii_lowercase(), other.to_ascii_lowercase());
    if one.contains(&other) || other.contains(&one) {
        return false;
    }
    let (one, other) = (words(&one), words(&other));
    let shapes: BTreeSet<&str> = one.iter().map(|word| &*word.shape).collect();
    let of = |words: &[VersionPart], shape: &str| -> BTreeSet<String> {
        let alike = words.iter().filter(|word| word.shape == shape);
        alike.map(|word| word.text.clone()).collect()
    };
    let mut shapes = shapes.into_iter();
    shapes.any(|shape| {
        let there = of(&other, shape);
        !there.is_empty() && of(&one, shape).is_disjoint(&there)
    })
}

/// A part of a version, such as `a43` or `2.52`.
struct VersionPart {
    /// Text of the part, with numbers without leading zeros.
    text: String,
    /// Form of the part: `#` for each number, `a` for each run of letters, and the characters between them: `a#`,
    /// `#.#`.
    shape: String,
}

/// The words of a version with more than one part. A date contains slashes and is not a version.
fn words(text: &str) -> Vec<VersionPart> {
    let split = |c: char| c.is_whitespace() || "()[],;:-_".contains(c);
    let words = text.split(split).filter(|word| !word.contains('/'));
    words.filter_map(word).collect()
}

fn word(text: &str) -> Option<VersionPart> {
    let number = text
        .strip_prefix('v')
        .filter(|rest| begins_with_digit(rest));
    let mut rest = number.unwrap_or(text);
    let mut word = VersionPart {
        text: String::new(),
        shape: String::new(),
    };
    let mut runs = 0;
    while let Some(first) = rest.chars().next() {
        let is_alike = |c: char| match first {
            '0'..='9' => c.is_ascii_digit(),
            _ if first.is_alphabetic() => c.is_alphabetic(),
            _ => !c.is_alphanumeric(),
        };
        let (run, more) = rest.split_at(rest.find(|c| !is_alike(c)).unwrap_or(rest.len()));
        match first {
            '0'..='9' => {
                let digits = run.trim_start_matches('0');
                word.text
                    .push_str(if digits.is_empty() { "0" } else { digits });
                word.shape.push('#');
                runs += 1;
            }
            _ if first.is_alphabetic() => {
                word.text.push_str(run);
                word.shape.push('a');
                runs += 1;
            }
            _ => {
                word.text.push_str(run);
                word.shape.push_str(run);
            }
        }
        rest = more;
    }
    (runs > 1 && word.shape.contains('#')).then_some(word)
}

fn begins_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether IPMI's `major.minor` and the Redfish version cannot be the same. IPMI has one byte for each number: it
/// reports `6.10` for `6.10.30.00`. A version that does not contain exactly one dotted number is not compared.
fn contradicts_ipmi(ipmi: &str, redfish: &str) -> bool {
    let Some((major, minor)) = ipmi.split_once('.') else {
        return false;
    };
    let split = |c: char| c.is_whitespace() || "()[],;:-_/".contains(c);
    let mut dotted = redfish.split(split).filter_map(major_and_minor);
    let (Some((reported_major, reported_minor)), None) = (dotted.next(), dotted.next()) else {
        return false;
    };
    // IPMI's version is not filled in.
    if major == "0" && minor.trim_matches('0').is_empty() {
        return false;
    }
    let Ok(major) = major.parse::<u32>() else {
        return false;
    };
    if reported_major > 0x7f || reported_minor.len() > 2 {
        return false;
    }
    // IPMI's minor number has two decimal digits, so that Redfish's `6.1` may be `6.01` or `6.10`. Some vendors store
    // the minor number in binary.
    let is_minor = reported_minor.parse() == minor.parse::<u32>()
        || reported_minor.parse() == u32::from_str_radix(minor, 16)
        || format!("{reported_minor:0<2}") == minor;
    reported_major != major || !is_minor
}

/// Major and minor number of `v1.66`, `2.40P`, `6.10.30.00`.
fn major_and_minor(word: &str) -> Option<(u32, &str)> {
    let number = word.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let (major, rest) = number.split_once('.')?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    let minor = &rest[..end.unwrap_or(rest.len())];
    let major = major.parse().ok()?;
    (!minor.is_empty()).then_some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_contradict_only_where_they_are_written_alike() {
        for (host, bmc, is_other) in [
            ("A43", "A43 v2.52 (10/29/2021)", false),
            ("A43 v2.52", "A43, 2.52", false),
            ("A43 v2.52", "A43 v2.60 (10/29/2021)", true),
            ("U32", "A43 v2.52 (10/29/2021)", true),
            ("2.10.2", "2.10.2", false),
            ("2.10.2", "2.12.4", true),
            ("2.10.2", "02.10.02", false),
            ("1.4", "BIOS Date: 10/28/2022 Ver 1.4", false),
            ("1.4", "BIOS Date: 10/28/2022 Ver 1.6", true),
            ("-[IVE164L-3.22]-", "IVE164L", false),
            ("-[IVE164L-3.22]-", "IVE166M", true),
            ("1.7.2", "ex425.bios-1.7.2", false),
            ("1.7.2", "ex425.bios-1.6.1", true),
            // Different forms.
            ("0.1.3", "T20221205", false),
            ("2.1", "02.01.00", false),
            ("7", "8", false),
            ("10/29/2021", "10/30/2021", false),
            ("", "A43", false),
            ("é1", "ß2", true),
        ] {
            assert_eq!(are_contradictory(host, bmc), is_other, "{host} {bmc}");
            assert_eq!(are_contradictory(bmc, host), is_other, "{bmc} {host}");
        }
    }

    #[test]
    fn ipmi_version_has_two_numbers() {
        for (ipmi, redfish, is_other) in [
            ("6.10", "6.10.30.00", false),
            ("7.00", "7.00.30.00", false),
            ("6.10", "7.00.30.00", true),
            ("6.00", "6.10.30.00", true),
            ("1.66", "iLO 6 v1.66", false),
            ("1.65", "iLO 6 v1.66", true),
            ("2.50", "AFBT10N 2.50 2023-03-30", false),
            ("3.37", "3.37P", false),
            ("1.01", "01.01.06", false),
            // One digit may be tens or ones, and ten may be written as 0x0a.
            ("4.20", "4.2(3b)", false),
            ("4.02", "4.2(3b)", false),
            ("6.0a", "6.10.30.00", false),
            // Not the same kind of number, or more than one of them.
            ("2.12", "fw1020.00-61", false),
            ("1.23", "1.234", false),
            ("1.00", "12.60.39 1.00.2", false),
            ("1.00", "2024-05", false),
            ("0.00", "2.12.0-dev", false),
            ("garbage", "6.10", false),
            ("1.00", "", false),
        ] {
            assert_eq!(
                contradicts_ipmi(ipmi, redfish),
                is_other,
                "{ipmi} {redfish}"
            );
        }
    }
}
