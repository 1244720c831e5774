//! Gossip key schema: converts [`PublishedState`] to a few short texts and back.
//!
//! | key | value |
//! |---|---|
//! | `fp.<class>` | mark of the class |
//! | `fp.<class>.<schema>` | mark of the class under the earlier schema, during a cluster upgrade |
//! | `id` | digest of the identity document |
//! | `hlth` | `<verdict>` or `<verdict>:<code>,<code>...` |
//! | `load` | `<running ranks>,<load average in hundredths>` |
//! | `pw` | milliwatts |
//! | `boot` | `<boot id>:<incarnation>` |
//! | `ver` | version |
//! | `grp` | topology group |
//! | `hist` | `<journal, hex>:<number of the last entry>` |
//! | `grace` | milliseconds between SIGTERM and SIGKILL |
//! | `https` | `<start>,<end>` of the certificate of a TLS port, milliseconds since 1970 |
//! | `keep` | seconds for which output is kept after the end of an allocation |
//!
//! A reader ignores unknown and unreadable keys, and lists them.

use crate::{
    Boot, CertificatePeriod, Health, HistoryMark, Load, NotPublishable, Power, PublishedState,
};
use std::{collections::BTreeMap, sync::Arc};

/// Maximum number of keys of a member.
const MAX_KEYS: usize = 32;
/// Longest value, bytes: a mark has 70, a verdict with a dozen codes 300.
const MAX_VALUE_BYTES: usize = 512;
/// Limit of all keys and values of a member, bytes: 128 members fill half a megabyte.
const MAX_TOTAL_BYTES: usize = 4096;
/// Longest class name, bytes.
const MAX_CLASS_BYTES: usize = 32;
/// Maximum number of unreadable keys listed per member: a hostile member could have thousands.
const MAX_UNREADABLE_LISTED: usize = 8;

/// Published texts of this process by key, shared by its cell and the cell's server.
pub(crate) type Texts = Arc<BTreeMap<String, String>>;

const FINGERPRINT: &str = "fp.";
const IDENTITY: &str = "id";
const HEALTH: &str = "hlth";
const LOAD: &str = "load";
const POWER: &str = "pw";
const BOOT: &str = "boot";
const VERSION: &str = "ver";
const GROUP: &str = "grp";
const HISTORY: &str = "hist";
const GRACE: &str = "grace";
const HTTPS: &str = "https";
const KEEP_OUTPUT: &str = "keep";

fn is_code(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    !text.is_empty() && text.bytes().all(allowed)
}

fn is_class(text: &str) -> bool {
    text.len() <= MAX_CLASS_BYTES && is_code(text)
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

/// Encodes `published`, within all limits.
pub(crate) fn to_texts(
    published: &PublishedState,
) -> Result<BTreeMap<String, String>, NotPublishable> {
    let mut texts = BTreeMap::new();
    for (class, mark) in &published.fingerprints {
        let key = format!("{FINGERPRINT}{class}");
        if !is_class(class) {
            let reason = "a class name is up to 32 letters, digits, '.', '_' and '-'";
            return Err(NotPublishable::BadText { key, reason });
        }
        texts.insert(key, mark.clone());
    }
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            texts.insert(key.to_owned(), value);
        }
    };
    put(IDENTITY, published.identity.clone());
    put(
        HEALTH,
        published.health.as_ref().map(health_text).transpose()?,
    );
    let load = published.load;
    put(
        LOAD,
        load.map(|l| format!("{},{}", l.running, l.load1_hundredths)),
    );
    put(POWER, published.power.map(|p| p.milliwatts.to_string()));
    let boot = published.boot.as_ref();
    put(
        BOOT,
        boot.map(|b| format!("{}:{}", b.boot_id, b.incarnation)),
    );
    put(VERSION, published.version.clone());
    put(GROUP, published.group.clone());
    let history = published.history;
    put(
        HISTORY,
        history.map(|h| format!("{:016x}:{}", h.journal, h.seq)),
    );
    put(GRACE, published.grace_ms.map(|ms| ms.to_string()));
    let https = published.https;
    put(
        HTTPS,
        https.map(|period| format!("{},{}", period.issued_at_ms, period.expires_at_ms)),
    );
    put(
        KEEP_OUTPUT,
        published.keep_output_s.map(|seconds| seconds.to_string()),
    );
    check(&texts)?;
    Ok(texts)
}

fn health_text(health: &Health) -> Result<String, NotPublishable> {
    if !health.reasons.iter().all(|code| is_code(code)) {
        let reason = "a reason code consists of letters, digits, '.', '_' and '-'";
        return Err(NotPublishable::BadText {
            key: HEALTH.to_owned(),
            reason,
        });
    }
    if health.reasons.is_empty() {
        return Ok(health.verdict.to_string());
    }
    Ok(format!("{}:{}", health.verdict, health.reasons.join(",")))
}

fn check(texts: &BTreeMap<String, String>) -> Result<(), NotPublishable> {
    if texts.len() > MAX_KEYS {
        return Err(NotPublishable::TooManyKeys {
            keys: texts.len(),
            limit: MAX_KEYS,
        });
    }
    for (key, value) in texts {
        if value.len() > MAX_VALUE_BYTES {
            let (key, bytes) = (key.clone(), value.len());
            return Err(NotPublishable::ValueTooLong {
                key,
                bytes,
                limit: MAX_VALUE_BYTES,
            });
        }
        if !is_plain(value) {
            let reason = "it is empty or holds control characters";
            return Err(NotPublishable::BadText {
                key: key.clone(),
                reason,
            });
        }
    }
    let bytes = texts
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if bytes > MAX_TOTAL_BYTES {
        return Err(NotPublishable::TooMuch {
            bytes,
            limit: MAX_TOTAL_BYTES,
        });
    }
    Ok(())
}

/// Decodes the texts of a member, and lists the unreadable keys. The texts come from other processes and may exceed any
/// limit.
pub(crate) fn from_texts<'a>(
    texts: impl Iterator<Item = (&'a str, &'a str)>,
) -> (PublishedState, Vec<String>) {
    let mut published = PublishedState::default();
    let mut unreadable = Vec::new();
    for (n, (key, value)) in texts.enumerate() {
        let within = n < MAX_KEYS && value.len() <= MAX_VALUE_BYTES && is_plain(value);
        if (!within || read_key(&mut published, key, value).is_none())
            && unreadable.len() < MAX_UNREADABLE_LISTED
        {
            unreadable.push(key.chars().take(MAX_CLASS_BYTES).collect());
        }
    }
    (published, unreadable)
}

fn read_key(published: &mut PublishedState, key: &str, value: &str) -> Option<()> {
    match key {
        IDENTITY => published.identity = Some(value.to_owned()),
        HEALTH => published.health = Some(read_health(value)?),
        LOAD => {
            let (running, load1) = value.split_once(',')?;
            let (running, load1_hundredths) = (running.parse().ok()?, load1.parse().ok()?);
            published.load = Some(Load {
                running,
                load1_hundredths,
            });
        }
        POWER => {
            let milliwatts = value.parse().ok()?;
            published.power = Some(Power { milliwatts });
        }
        BOOT => {
            let (boot_id, incarnation) = value.rsplit_once(':')?;
            let (boot_id, incarnation) = (boot_id.to_owned(), incarnation.parse().ok()?);
            published.boot = Some(Boot {
                boot_id,
                incarnation,
            });
        }
        VERSION => published.version = Some(value.to_owned()),
        GROUP => published.group = Some(value.to_owned()),
        HISTORY => {
            let (journal, seq) = value.split_once(':')?;
            published.history = Some(HistoryMark {
                journal: u64::from_str_radix(journal, 16).ok()?,
                seq: seq.parse().ok()?,
            });
        }
        GRACE => published.grace_ms = Some(value.parse().ok()?),
        HTTPS => {
            let (issued_at_ms, expires_at_ms) = value.split_once(',')?;
            published.https = Some(CertificatePeriod {
                issued_at_ms: issued_at_ms.parse().ok()?,
                expires_at_ms: expires_at_ms.parse().ok()?,
            });
        }
        KEEP_OUTPUT => published.keep_output_s = Some(value.parse().ok()?),
        _ => {
            let class = key
                .strip_prefix(FINGERPRINT)
                .filter(|class| is_class(class))?;
            published
                .fingerprints
                .insert(class.to_owned(), value.to_owned());
        }
    }
    Some(())
}

fn read_health(value: &str) -> Option<Health> {
    let (verdict, codes) = value.split_once(':').unwrap_or((value, ""));
    let reasons: Vec<String> = codes
        .split(',')
        .filter(|code| !code.is_empty())
        .map(str::to_owned)
        .collect();
    let verdict = verdict.parse().ok()?;
    reasons
        .iter()
        .all(|code| is_code(code))
        .then_some(Health { verdict, reasons })
}

#[cfg(test)]
pub(crate) mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::Verdict;

    pub(crate) fn full() -> PublishedState {
        let mark = format!("1:{}", "ab".repeat(32));
        PublishedState {
            fingerprints: [
                ("gpu", mark.as_str()),
                ("nic", "incomplete"),
                ("bmc", "disabled"),
            ]
            .map(|(class, mark)| (class.to_owned(), mark.to_owned()))
            .into(),
            identity: Some("cd".repeat(32)),
            health: Some(Health {
                verdict: Verdict::Degraded,
                reasons: vec!["gpu.xid-63".to_owned(), "nic.down".to_owned()],
            }),
            load: Some(Load {
                running: 2,
                load1_hundredths: 1525,
            }),
            power: Some(Power {
                milliwatts: 5_420_000,
            }),
            boot: Some(Boot {
                boot_id: "5a0c1d1e-3d5f-4a27-9b1c-2f0f4c7d8e9a".to_owned(),
                incarnation: 7,
            }),
            version: Some("0.1.0".to_owned()),
            group: Some("g0".to_owned()),
            history: Some(HistoryMark {
                journal: 0x1f,
                seq: 12,
            }),
            grace_ms: Some(30_000),
            https: Some(CertificatePeriod {
                issued_at_ms: 1_700_000_000_000,
                expires_at_ms: 1_731_536_000_000,
            }),
            keep_output_s: Some(604_800),
        }
    }

    fn read_back(texts: &BTreeMap<String, String>) -> (PublishedState, Vec<String>) {
        from_texts(
            texts
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str())),
        )
    }

    #[test]
    fn what_is_published_is_read_back() {
        for published in [full(), PublishedState::default()] {
            let texts = to_texts(&published).unwrap();
            assert_eq!(read_back(&texts), (published, Vec::new()));
        }
        let texts = to_texts(&full()).unwrap();
        assert_eq!(texts["hlth"], "degraded:gpu.xid-63,nic.down");
        assert_eq!(texts["load"], "2,1525");
        assert_eq!(texts["hist"], "000000000000001f:12");
        assert_eq!(texts["grace"], "30000");
        assert_eq!(texts["https"], "1700000000000,1731536000000");
        assert_eq!(texts["keep"], "604800");
        assert!(texts.contains_key("fp.gpu"), "{texts:?}");
    }

    #[test]
    fn all_classes_fit_under_two_schemas_each() {
        let mut published = full();
        let reasons = (0..30).map(|n| format!("gpu.some_code.{n}")).collect();
        published.health.as_mut().unwrap().reasons = reasons;
        for class in [
            "gpu", "nic", "bios", "bmc", "kernel", "cpu", "memory", "storage", "software", "optics",
        ] {
            for (key, schema) in [
                (class.to_owned(), 65_535),
                (format!("{class}.65534"), 65_534),
            ] {
                let mark = format!("{schema}:{}", "ab".repeat(32));
                published.fingerprints.insert(key, mark);
            }
        }
        let texts = to_texts(&published).unwrap();
        assert!(texts.contains_key("fp.software.65534"));
        assert_eq!(read_back(&texts), (published, Vec::new()));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_the_rest_is_kept() {
        let long = "x".repeat(513);
        // Ten invalid keys, eight of them listed.
        let bad = [
            ("hlth", "splendid"),
            ("load", "1"),
            ("pw", "-3"),
            ("boot", "no incarnation"),
            ("hist", "12"),
            ("grace", "30 s"),
            ("future", "key"),
            ("fp.", "nameless"),
            ("id", "line\nbreak"),
            ("grp", long.as_str()),
            ("ver", "0.2.0"),
        ];
        let (published, unreadable) = from_texts(bad.into_iter());
        let version = Some("0.2.0".to_owned());
        assert_eq!(
            published,
            PublishedState {
                version,
                ..PublishedState::default()
            }
        );
        assert_eq!(
            unreadable,
            [
                "hlth", "load", "pw", "boot", "hist", "grace", "future", "fp."
            ]
        );
    }

    #[test]
    fn too_many_too_long_and_malformed_texts_are_refused() {
        let many: Vec<String> = (0..40).map(|n| format!("c{n}")).collect();
        let classes = |mark: &str, count: usize| PublishedState {
            fingerprints: many[..count]
                .iter()
                .map(|class| (class.clone(), mark.to_owned()))
                .collect(),
            ..PublishedState::default()
        };
        let refused = |published: &PublishedState| to_texts(published).unwrap_err();
        assert_eq!(
            refused(&classes("x", 40)),
            NotPublishable::TooManyKeys {
                keys: 40,
                limit: 32
            }
        );
        assert!(matches!(
            refused(&classes(&"x".repeat(513), 1)),
            NotPublishable::ValueTooLong { bytes: 513, .. }
        ));
        assert!(matches!(
            refused(&classes(&"x".repeat(500), 10)),
            NotPublishable::TooMuch { limit: 4096, .. }
        ));
        assert!(matches!(
            refused(&classes("", 1)),
            NotPublishable::BadText { .. }
        ));
        let health = Health {
            verdict: Verdict::Faulty,
            reasons: vec!["a,b".to_owned()],
        };
        let health = Some(health);
        let published = PublishedState {
            health,
            ..PublishedState::default()
        };
        assert!(matches!(
            refused(&published),
            NotPublishable::BadText { .. }
        ));
    }

    #[test]
    fn a_hostile_member_with_many_keys_stays_in_bounds() {
        let keys: Vec<String> = (0..10_000).map(|n| format!("fp.c{n}")).collect();
        let (published, unreadable) = from_texts(keys.iter().map(|key| (key.as_str(), "x")));
        assert_eq!(published.fingerprints.len(), 32);
        assert_eq!(unreadable.len(), 8);
    }
}
