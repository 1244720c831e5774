//! Certificates of the TLS ports of all controls, for lists and metrics. A control publishes the validity period of its
//! own certificate by gossip. Gossip is a hint: the periods are shown, and nothing is decided by them.

pub use lattice_gossip::CertificatePeriod;

use lattice_quorum_types::UnixMillis;
use parking_lot::Mutex;
use std::{collections::BTreeMap, net::SocketAddr};

/// Part of its life after which a certificate that was not renewed is reported as expiring: five sixths.
const EXPIRING_NUMERATOR: u64 = 5;
const EXPIRING_DENOMINATOR: u64 = 6;

/// Certificates of the TLS ports.
#[derive(Debug, Default)]
pub struct HttpsCertificates {
    own: Mutex<Option<OwnCertificate>>,
    /// Controls that publish themselves, by cell and name.
    published: Mutex<BTreeMap<String, BTreeMap<String, PublishedControl>>>,
}

/// A control, as it publishes itself in a gossip cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedControl {
    /// Mesh address.
    pub addr: SocketAddr,
    /// Validity period of the certificate of its TLS port; `None` if it publishes none.
    pub https: Option<CertificatePeriod>,
}

/// Certificate of this control's port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCertificate {
    /// Validity period of the certificate in use.
    pub period: CertificatePeriod,
    /// Reason why the files on disk cannot be used. The certificate in use then stays in use.
    pub reload_error: Option<String>,
}

impl OwnCertificate {
    /// Whether the certificate has expired, or has less than a sixth of its life left.
    pub fn is_expiring(&self, now: UnixMillis) -> bool {
        let CertificatePeriod {
            issued_at_ms,
            expires_at_ms,
        } = self.period;
        let life = expires_at_ms.saturating_sub(issued_at_ms);
        now.0 >= issued_at_ms.saturating_add(life / EXPIRING_DENOMINATOR * EXPIRING_NUMERATOR)
    }
}

impl HttpsCertificates {
    /// Stores the certificate that this control's port presents, and the reason why a newer one on disk cannot be used.
    pub fn set_own(&self, own: OwnCertificate) {
        *self.own.lock() = Some(own);
    }

    /// Certificate of this control's port; `None` before the control is started.
    pub fn own(&self) -> Option<OwnCertificate> {
        self.own.lock().clone()
    }

    /// Replaces the controls of one gossip cell.
    pub fn set_published(&self, cell: &str, controls: BTreeMap<String, PublishedControl>) {
        self.published.lock().insert(cell.to_owned(), controls);
    }

    /// Mesh addresses of the published controls, by name.
    pub fn addresses(&self) -> BTreeMap<String, SocketAddr> {
        let published = self.published.lock();
        let controls = published.values().flatten();
        controls
            .map(|(name, control)| (name.clone(), control.addr))
            .collect()
    }

    /// Validity periods by the name of the control; that of this control, `name`, as this control has it.
    pub fn all(&self, name: &str) -> BTreeMap<String, CertificatePeriod> {
        let published = self.published.lock();
        let mut all = BTreeMap::new();
        for (name, control) in published.values().flatten() {
            if let Some(period) = control.https {
                all.insert(name.clone(), period);
            }
        }
        if let Some(own) = &*self.own.lock() {
            all.insert(name.to_owned(), own.period);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(issued_at_ms: u64, expires_at_ms: u64) -> CertificatePeriod {
        CertificatePeriod {
            issued_at_ms,
            expires_at_ms,
        }
    }

    #[test]
    fn own_certificate_counts_more_than_published_one() {
        let certificates = HttpsCertificates::default();
        assert!(certificates.all("c1").is_empty() && certificates.own().is_none());
        let of = |name: &str, end| (name.to_owned(), period(0, end));
        let published = |name: &str, https| {
            let addr = SocketAddr::from(([127, 0, 0, 1], 1));
            (name.to_owned(), PublishedControl { addr, https })
        };
        let (c1, c2) = (
            published("c1", Some(period(0, 5))),
            published("c2", Some(period(0, 6))),
        );
        certificates.set_published("a", BTreeMap::from([c1, c2, published("c4", None)]));
        let c3 = published("c3", Some(period(0, 7)));
        certificates.set_published("b", BTreeMap::from([c3]));
        assert_eq!(certificates.addresses().len(), 4);
        certificates.set_own(OwnCertificate {
            period: period(0, 9),
            reload_error: None,
        });
        let expected = BTreeMap::from([of("c1", 9), of("c2", 6), of("c3", 7)]);
        assert_eq!(certificates.all("c1"), expected);
        certificates.set_published("b", BTreeMap::new());
        assert_eq!(certificates.all("c1").len(), 2);
    }

    #[test]
    fn certificate_is_expiring_in_last_sixth_of_its_life() {
        let own = OwnCertificate {
            period: period(1_000, 7_000),
            reload_error: None,
        };
        assert!(!own.is_expiring(UnixMillis(5_999)));
        assert!(own.is_expiring(UnixMillis(6_000)) && own.is_expiring(UnixMillis(9_000)));
    }
}
