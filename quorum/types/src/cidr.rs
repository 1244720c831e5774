//! Networks (CIDR blocks) for join tokens.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::{fmt, net::IpAddr, str::FromStr};

/// A network: addresses with a common prefix. No bit after the prefix is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr(IpNet);

/// Reasons why a text is not a valid network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCidr {
    /// The text is neither an address nor `address/prefix`.
    #[error("{text:?} is not a valid network; write it like 10.1.0.0/16 or fd00:1::/64")]
    Form {
        /// Text as given.
        text: String,
    },
    /// Bits after the prefix are set.
    #[error("{text:?} has host bits set; the network is {meant}")]
    HostBits {
        /// Text as given.
        text: String,
        /// The network without these bits.
        meant: Cidr,
    },
}

/// Formats networks as a comma-separated list.
pub fn list(networks: &[Cidr]) -> String {
    let networks: Vec<String> = networks.iter().map(Cidr::to_string).collect();
    networks.join(", ")
}

impl Cidr {
    /// Checks whether the network contains an address. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Cidr {
    type Err = InvalidCidr;
    fn from_str(text: &str) -> Result<Self, InvalidCidr> {
        // A single address is a network with one address.
        let net = match text.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address),
            Err(_) => text.parse::<IpNet>().map_err(|_| InvalidCidr::Form {
                text: text.to_owned(),
            })?,
        };
        let cidr = Self(net.trunc());
        if cidr.0 == net {
            Ok(cidr)
        } else {
            Err(InvalidCidr::HostBits {
                text: text.to_owned(),
                meant: cidr,
            })
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl TryFrom<String> for Cidr {
    type Error = InvalidCidr;
    fn try_from(text: String) -> Result<Self, InvalidCidr> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> String {
        cidr.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_inside_or_outside() {
        let net = cidr("10.1.0.0/16");
        assert!(net.contains("10.1.255.7".parse().unwrap()));
        assert!(!net.contains("10.2.0.1".parse().unwrap()));
        assert!(net.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!net.contains("fd00::1".parse().unwrap()));
        assert!(cidr("0.0.0.0/0").contains("8.8.8.8".parse().unwrap()));
        assert!(!cidr("0.0.0.0/0").contains("fd00::1".parse().unwrap()));
        assert!(cidr("fd00:1::/64").contains("fd00:1::9".parse().unwrap()));
        assert!(!cidr("fd00:1::/64").contains("fd00:1:0:1::9".parse().unwrap()));
        let one = cidr("192.0.2.4");
        assert_eq!(one.to_string(), "192.0.2.4/32");
        assert!(!one.contains("192.0.2.5".parse().unwrap()));
    }

    #[test]
    fn what_is_no_network_is_named_with_what_is_meant() {
        for text in [
            "",
            "10.1",
            "10.1.0.0/33",
            "10.1.0.0/-1",
            "fd00::/129",
            "10.0.0.0/+8",
            "x/8",
        ] {
            assert!(
                matches!(text.parse::<Cidr>(), Err(InvalidCidr::Form { .. })),
                "{text}"
            );
        }
        let error = "10.1.2.3/16".parse::<Cidr>().unwrap_err();
        assert!(
            error.to_string().contains("the network is 10.1.0.0/16"),
            "{error}"
        );
    }
}
