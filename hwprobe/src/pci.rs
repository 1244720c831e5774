//! Functions on the PCI bus, in address order.

mod path;

#[cfg(test)]
pub(crate) use path::parse_path;
pub(crate) use path::{PciPath, Switches, pci_path};

use crate::Root;
use lattice_conformance::{Reading, Value, text};
use std::collections::BTreeMap;

/// Vendor id of NVIDIA.
pub const NVIDIA: &str = "10de";
/// Vendor id of AMD.
pub const AMD: &str = "1002";
/// Vendor id of Mellanox, which NVIDIA's NICs still use.
pub const MELLANOX: &str = "15b3";

const DEVICES: &str = "/sys/bus/pci/devices";

/// One PCI function, as described by sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// PCI address `domain:bus:device.function`, in lower case.
    pub address: String,
    /// Class code, six hex digits.
    pub class: Reading<String>,
    /// Vendor id, four hex digits.
    pub vendor: Reading<String>,
}

impl Function {
    /// Path of `file` in the function's sysfs directory.
    #[must_use]
    pub fn path(&self, file: &str) -> String {
        format!("{DEVICES}/{}/{file}", self.address)
    }

    /// Whether the class code starts with `prefix`.
    #[must_use]
    pub fn is_class(&self, prefix: &str) -> bool {
        self.class
            .present()
            .is_some_and(|class| class.starts_with(prefix))
    }

    /// Whether the function has this vendor id.
    #[must_use]
    pub fn is_vendor(&self, vendor: &str) -> bool {
        self.vendor.present().is_some_and(|found| found == vendor)
    }

    /// Whether this is a VGA or 3D controller. GPUs have these classes, but so do the display controllers of BMCs.
    #[must_use]
    pub fn is_gpu(&self) -> bool {
        self.is_class("0300") || self.is_class("0302")
    }

    /// Whether this is a virtual function; these are created and removed in operation.
    #[must_use]
    pub fn is_virtual(&self, root: &Root) -> bool {
        root.exists(self.path("physfn"))
    }
}

/// Every function on the bus, sorted by address; absent without a PCI bus.
#[must_use]
pub fn functions(root: &Root) -> Reading<Vec<Function>> {
    root.list(DEVICES).map(|names| {
        let sorted: BTreeMap<(u64, u64), Function> = names
            .iter()
            .filter_map(|name| {
                let path = |file: &str| format!("{DEVICES}/{name}/{file}");
                let id = |file: &str, width| {
                    root.line(path(file))
                        .and_then(|raw| text::hex_id(&raw, width))
                };
                let function = Function {
                    address: name.clone(),
                    class: id("class", 6),
                    vendor: id("vendor", 4),
                };
                Some((address_sort_key(name)?, function))
            })
            .collect();
        sorted.into_values().collect()
    })
}

/// Sort key of an address, as numbers, because a domain may have more than four digits.
#[must_use]
pub fn address_sort_key(address: &str) -> Option<(u64, u64)> {
    let (rest, function) = address.rsplit_once('.')?;
    let mut parts = rest.rsplitn(3, ':');
    let hex = |part: &str| u64::from_str_radix(part, 16).ok();
    let device = hex(parts.next()?)?;
    let bus = hex(parts.next()?)?;
    let domain = hex(parts.next()?)?;
    Some((domain, bus << 16 | device << 8 | hex(function)?))
}

/// Converts an address from NVML's form (`00000000:1B:00.0`) or sysfs's own form to sysfs form.
#[must_use]
pub fn address(raw: &str) -> Reading<String> {
    match address_sort_key(raw.trim()) {
        Some((domain, rest)) => Reading::Present(format!(
            "{domain:04x}:{:02x}:{:02x}.{:x}",
            rest >> 16,
            rest >> 8 & 0xff,
            rest & 0xff
        )),
        None => Reading::failed(format!(
            "\"{}\" is not a valid PCI address",
            text::excerpt(raw)
        )),
    }
}

/// `vendor:device` id of a function.
#[must_use]
pub fn id(root: &Root, function: &Function) -> Reading<Value> {
    pair(root, function, "vendor", "device")
}

/// `vendor:device` id of a function's subsystem.
#[must_use]
pub fn subsystem(root: &Root, function: &Function) -> Reading<Value> {
    pair(root, function, "subsystem_vendor", "subsystem_device")
}

fn pair(root: &Root, function: &Function, first: &str, second: &str) -> Reading<Value> {
    let hex = |file: &str| {
        root.line(function.path(file))
            .and_then(|raw| text::hex_id(&raw, 4))
    };
    hex(first).and_then(|first| hex(second).map(|second| Value::Text(format!("{first}:{second}"))))
}

/// Parses `32.0 GT/s PCIe` as transfers per second.
#[must_use]
pub fn link_speed(raw: &str) -> Reading<Value> {
    let number = raw.split_whitespace().next().unwrap_or_default();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let tenths = fraction.get(..1).unwrap_or("0").parse::<i64>();
    match (whole.parse::<i64>(), tenths) {
        (Ok(whole), Ok(tenths)) if raw.contains("GT/s") && whole < 10_000 => {
            Reading::Present(Value::Number((whole * 10 + tenths) * 100_000_000))
        }
        // sysfs reports "Unknown" for a function without a link.
        _ => Reading::Unsupported,
    }
}

/// Parses the link width in lanes; sysfs reports 0 or 255 without a link.
#[must_use]
pub fn link_width(raw: &str) -> Reading<Value> {
    match raw.parse::<i64>() {
        Ok(lanes @ 1..=64) => Reading::Present(Value::Number(lanes)),
        _ => Reading::Unsupported,
    }
}

/// Name of the bound driver; absent if none is bound.
#[must_use]
pub fn driver(root: &Root, function: &Function) -> Reading<String> {
    root.link_name(function.path("driver"))
}

/// Name of the driver's kernel module, which may differ from the driver's name (driver `cxi_core`, module `cxi_ss1`).
/// Returns the driver's name if there is no link to a module, as for a built-in driver.
#[must_use]
pub fn module(root: &Root, function: &Function) -> Reading<String> {
    match root.link_name(function.path("driver/module")) {
        Reading::Absent => driver(root, function),
        known => known,
    }
}

/// NUMA node of the function; unsupported if the firmware reports none (-1).
#[must_use]
pub fn numa_node(root: &Root, function: &Function) -> Reading<Value> {
    root.line(function.path("numa_node")).and_then(|raw| {
        raw.parse::<u32>()
            .map_or(Reading::Unsupported, |node| Reading::Present(node.into()))
    })
}

/// The last PCI address in a sysfs device path: the function that the device belongs to.
#[must_use]
pub fn address_in(path: &str) -> Option<&str> {
    path.split('/')
        .rev()
        .find(|part| address(part).present().is_some_and(|same| same == part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_form_and_the_order_of_the_bus() {
        for raw in ["00000000:1B:00.0", "0000:1b:00.0", " 0:1b:0.0\n"] {
            assert_eq!(address(raw), Reading::Present("0000:1b:00.0".to_owned()));
        }
        assert_eq!(
            address("00010000:01:1F.7"),
            Reading::Present("10000:01:1f.7".to_owned())
        );
        assert!(matches!(address("1b:00"), Reading::Failed { .. }));
        let order = [
            "0000:02:00.1",
            "0000:10:00.0",
            "0001:01:00.0",
            "10000:00:00.0",
        ];
        assert!(
            order
                .windows(2)
                .all(|pair| address_sort_key(pair[0]) < address_sort_key(pair[1]))
        );
    }

    #[test]
    fn link_speeds_are_transfers_a_second() {
        let number = |raw| match link_speed(raw) {
            Reading::Present(Value::Number(number)) => number,
            other => panic!("{raw}: {other:?}"),
        };
        assert_eq!(number("32.0 GT/s PCIe"), 32_000_000_000);
        assert_eq!(number("2.5 GT/s"), 2_500_000_000);
        assert_eq!(number("8 GT/s"), 8_000_000_000);
        assert_eq!(link_speed("Unknown speed"), Reading::Unsupported);
    }

    #[test]
    fn a_device_hangs_on_the_last_function_of_its_path() {
        let path = "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:18:00.0/net/ib0";
        assert_eq!(address_in(path), Some("0000:18:00.0"));
        assert_eq!(address_in("/sys/devices/virtual/net/lo"), None);
        assert_eq!(address_in("/sys/devices/platform/a:b:c.d"), None);
    }
}
