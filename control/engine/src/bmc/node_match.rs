//! BMC ownership check: compares the identity reported by the BMC with the identity of the host.
//!
//! A machine's name is written in many ways, so only a clear difference counts. Vendors are compared by families of
//! names, products by a common model number. Equal serial numbers or UUIDs prove ownership. Different ones prove
//! nothing, because a blade and its node may each have their own.

use lattice_conformance::{Identity, Reading};
use lattice_redfish::SystemName;

/// Result of the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeMatch {
    /// The BMC belongs to the node: a serial number, UUID, model number or, without model numbers, the vendor is equal.
    Own,
    /// The BMC belongs to another machine; the text gives the evidence.
    Other(String),
    /// Host and BMC have no value in common that can be compared.
    Unverified,
}

/// Vendors, each with the first words of its names in lower case.
const FAMILIES: &[&[&str]] = &[
    &["hpe", "hp", "hewlett", "cray"],
    &["supermicro", "super", "smci"],
    &["gigabyte", "giga"],
    &["quanta", "qct"],
    &["asus", "asustek"],
    &["lenovo", "ibm"],
    &["bull", "atos", "eviden"],
];

/// Placeholder values of boards without a programmed identity.
const PLACEHOLDERS: &[&str] = &[
    "to be filled",
    "default string",
    "system manufacturer",
    "system product",
    "not specified",
    "unknown",
    "o.e.m",
    "none",
    "n/a",
];

/// Compares a BMC's system with the host's own identity.
pub(super) fn match_node(system: &SystemName, host: &Identity) -> NodeMatch {
    let is_one = |ours: &Reading<String>, theirs: &Reading<String>| {
        let plain = |text: &str| text.trim().replace('-', "").to_lowercase();
        let both = known_text(ours).zip(known_text(theirs));
        both.is_some_and(|(ours, theirs)| plain(ours) == plain(theirs))
    };
    if is_one(&host.product_uuid, &system.uuid) || is_one(&host.product_serial, &system.serial) {
        return NodeMatch::Own;
    }
    let vendors = known_text(&host.vendor).zip(known_text(&system.vendor));
    let vendor = vendors.map(|(ours, theirs)| family(ours) == family(theirs));
    let products = known_text(&host.product).zip(known_text(&system.model));
    let product = products.and_then(|(ours, theirs)| have_common_model(ours, theirs));
    match (vendor, product) {
        // Manufacturer and reseller of a machine may both put their name on it.
        (_, Some(true)) | (Some(true), None) => NodeMatch::Own,
        (_, Some(false)) | (Some(false), None) => {
            let named = |of: [&Reading<String>; 2]| {
                let texts: Vec<&str> = of.into_iter().filter_map(known_text).collect();
                texts.join(" ")
            };
            NodeMatch::Other(format!(
                "host is {}, but BMC system {} is {}",
                named([&host.vendor, &host.product]),
                system.id,
                named([&system.vendor, &system.model])
            ))
        }
        (None, None) => NodeMatch::Unverified,
    }
}

fn known_text(reading: &Reading<String>) -> Option<&str> {
    let text = reading.present()?.trim();
    let plain = text.to_lowercase();
    let is_placeholder = PLACEHOLDERS.iter().any(|word| plain.starts_with(word));
    (!text.is_empty() && !is_placeholder).then_some(text)
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|c: char| !c.is_alphanumeric());
    parts.filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// Vendor family, such as `hpe` for `Hewlett Packard Enterprise`.
fn family(vendor: &str) -> String {
    let first = words(vendor).next().unwrap_or_default();
    let mut families = FAMILIES.iter();
    let known = families.find(|names| names.contains(&first.as_str()));
    known.map_or(first, |names| names[0].to_owned())
}

/// Whether two products have a model number in common; `None` if one of them contains no model number.
fn have_common_model(ours: &str, theirs: &str) -> Option<bool> {
    let models = |text| -> Vec<String> {
        let has = |word: &String, of: fn(char) -> bool| word.chars().any(of);
        let is_model =
            |word: &String| has(word, char::is_numeric) && has(word, char::is_alphabetic);
        words(text).filter(is_model).collect()
    };
    let (ours, theirs) = (models(ours), models(theirs));
    if ours.is_empty() || theirs.is_empty() {
        return None;
    }
    Some(ours.iter().any(|model| theirs.contains(model)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reading<String> {
        match text {
            "" => Reading::Absent,
            text => Reading::Present(text.to_owned()),
        }
    }

    /// Compares a host with a system, each given as vendor, product and serial number.
    fn compare(host: [&str; 3], system: [&str; 3]) -> NodeMatch {
        let host = Identity {
            vendor: text(host[0]),
            product: text(host[1]),
            product_serial: text(host[2]),
            ..Identity::default()
        };
        let system = SystemName {
            id: "1".to_owned(),
            vendor: text(system[0]),
            model: text(system[1]),
            serial: text(system[2]),
            ..SystemName::default()
        };
        match_node(&system, &host)
    }

    #[test]
    fn one_machine_has_many_names() {
        for (host, system) in [
            (
                ["Dell Inc.", "PowerEdge XE9680", "A"],
                ["Dell", "PowerEdge XE9680", ""],
            ),
            (
                ["HPE", "HPE Cray EX235n", ""],
                ["Cray Inc.", "HPE CRAY EX235n", "B"],
            ),
            (
                [
                    "Hewlett Packard Enterprise",
                    "ProLiant DL325 Gen10 Plus",
                    "",
                ],
                ["HPE", "ProLiant DL325 Gen10 Plus", ""],
            ),
            (
                ["Giga Computing", "H262-Z63-00", ""],
                ["GIGABYTE", "H262-Z63", ""],
            ),
            // Sold under another brand.
            (
                ["Penguin", "H262-Z63-00", ""],
                ["GIGABYTE", "H262-Z63-00", ""],
            ),
            (["Dell Inc.", "PowerEdge", ""], ["Dell", "", ""]),
            (["a", "b1", "S1"], ["c", "d1", "S1"]),
        ] {
            assert_eq!(compare(host, system), NodeMatch::Own, "{host:?} {system:?}");
        }
    }

    #[test]
    fn foreign_bmc_is_reported_unverified() {
        let cray = ["HPE", "HPE Cray EX235n", "DP20300012"];
        let other = compare(cray, ["Dell Inc.", "PowerEdge XE9680", ""]);
        let said = "host is HPE HPE Cray EX235n, but BMC system 1 is Dell Inc. PowerEdge XE9680";
        assert_eq!(other, NodeMatch::Other(said.to_owned()));
        assert!(matches!(
            compare(cray, ["Dell Inc.", "", ""]),
            NodeMatch::Other(_)
        ));
        let dell = ["Dell Inc.", "PowerEdge R650", ""];
        assert!(matches!(
            compare(dell, ["Dell Inc.", "PowerEdge XE9680", ""]),
            NodeMatch::Other(_)
        ));
        for nothing in [
            ["", "", ""],
            ["To be filled by O.E.M.", "Default string", ""],
        ] {
            assert_eq!(compare(cray, nothing), NodeMatch::Unverified);
        }
    }
}
