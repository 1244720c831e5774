//! Lossless Ethernet configuration, by data centre bridging (DCB) over netlink: priorities with priority flow control
//! (PFC), and the mapping of DSCP values to priorities.
//!
//! `include/uapi/linux/dcbnl.h`: a request names the interface; the answer nests `struct ieee_pfc` and a table of
//! `struct dcb_app` in `DCB_ATTR_IEEE`.

use super::netlink::{Malformed, Socket, attributes, push};
use lattice_conformance::Reading;
use std::collections::BTreeSet;
use std::io;

/// `RTM_GETDCB`, `DCB_CMD_IEEE_GET` and the attributes.
const GET_DCB: u16 = 78;
const IEEE_GET: u8 = 21;
const INTERFACE: u16 = 1;
const IEEE: u16 = 13;
const IEEE_PFC: u16 = 2;
const IEEE_APP_TABLE: u16 = 3;
const IEEE_APP: u16 = 1;
/// `IEEE_8021QAZ_APP_SEL_DSCP`: the entry maps a DSCP value.
const SELECTOR_DSCP: u8 = 5;
/// `struct dcbmsg`: family, command, padding.
const HEADER: usize = 4;
/// Offset of `pfc_en` in `struct ieee_pfc`, after `pfc_cap`.
const ENABLED: usize = 1;

/// The answer for one interface.
pub(super) struct PfcAnswer {
    /// Priorities with priority flow control, sorted.
    pub pfc: Reading<Vec<u8>>,
    /// DSCP values and their priorities, such as `26:3`, sorted by value.
    pub dscp: Reading<Vec<String>>,
}

/// DCB queries over one netlink socket.
pub(super) struct DcbQuery(io::Result<Socket>);

impl DcbQuery {
    pub(super) fn open() -> Self {
        Self(Socket::open(None))
    }

    /// Queries both settings; unsupported if the driver has no DCB.
    pub(super) fn query(&mut self, name: &str) -> PfcAnswer {
        let answer = self.answer(name);
        PfcAnswer {
            pfc: answer.as_ref().and_then(|answer| match &answer.0 {
                Some(priorities) => Reading::Present(priorities.clone()),
                None => Reading::Unsupported,
            }),
            dscp: answer.map(|answer| answer.1),
        }
    }

    fn answer(&mut self, name: &str) -> Reading<Answer> {
        let socket = match &mut self.0 {
            Ok(socket) => socket,
            Err(error) => return Reading::from_io("socket for DCB", error),
        };
        let mut payload = vec![0, IEEE_GET, 0, 0];
        push(&mut payload, INTERFACE, format!("{name}\0").as_bytes());
        let mut found = Ok(Answer::default());
        let asked = socket.request_all(GET_DCB, false, &payload, |answer| found = decode(answer));
        match (asked, found) {
            (Ok(()), Ok(answer)) => Reading::Present(answer),
            (Ok(()), Err(error)) => Reading::failed(format!("DCB: {error}")),
            (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => {
                Reading::Timeout { after_ms: 2000 }
            }
            (Err(error), _) => Reading::from_io("DCB", &error),
        }
    }
}

/// The enabled priorities, if the answer contains them, and the DSCP mappings.
type Answer = (Option<Vec<u8>>, Vec<String>);

fn decode(answer: &[u8]) -> Result<Answer, Malformed> {
    let body = answer.get(HEADER..).unwrap_or_default();
    let (mut pfc, mut marks) = (None, BTreeSet::new());
    for attribute in attributes(body) {
        let attribute = attribute?;
        if attribute.kind != IEEE {
            continue;
        }
        for nested in attributes(attribute.payload) {
            let nested = nested?;
            match nested.kind {
                IEEE_PFC => pfc = nested.payload.get(ENABLED).map(|bits| priorities(*bits)),
                IEEE_APP_TABLE => {
                    for entry in attributes(nested.payload) {
                        let entry = entry?;
                        if entry.kind == IEEE_APP {
                            marks.extend(dscp_mapping(entry.payload));
                        }
                    }
                }
                _ => {}
            }
        }
    }
    let marks = marks.into_iter();
    let shown = marks.map(|(mark, priority)| format!("{mark}:{priority}"));
    Ok((pfc, shown.collect()))
}

fn priorities(enabled: u8) -> Vec<u8> {
    (0..8)
        .filter(|priority| enabled >> priority & 1 == 1)
        .collect()
}

/// `struct dcb_app`: selector, priority, protocol; for a DSCP entry, protocol is the DSCP value.
fn dscp_mapping(entry: &[u8]) -> Option<(u16, u8)> {
    match *entry {
        [SELECTOR_DSCP, priority, low, high, ..] => {
            Some((u16::from_ne_bytes([low, high]), priority))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn answer() -> Vec<u8> {
        let mut ieee = Vec::new();
        push(&mut ieee, 1, &[0; 64]);
        // struct ieee_pfc: capability 8, enabled 0b1000, no MACsec bypass, no delay, counters.
        let mut pfc = vec![8, 0b1000, 0, 0, 0, 0, 0, 0];
        pfc.resize(136, 0);
        push(&mut ieee, IEEE_PFC, &pfc);
        let mut table = Vec::new();
        for (selector, priority, protocol) in [(5, 6, 48_u16), (5, 3, 26), (1, 4, 0x8915)] {
            let [low, high] = protocol.to_ne_bytes();
            push(&mut table, IEEE_APP, &[selector, priority, low, high]);
        }
        push(&mut ieee, IEEE_APP_TABLE | 0x8000, &table);
        let mut answer = vec![0, IEEE_GET, 0, 0];
        push(&mut answer, INTERFACE, b"eth0\0");
        push(&mut answer, IEEE | 0x8000, &ieee);
        answer
    }

    #[test]
    fn priorities_and_marks_are_found_in_what_is_nested() {
        let (pfc, marks) = decode(&answer()).unwrap();
        assert_eq!(pfc, Some(vec![3]));
        // An entry about an EtherType is not a DSCP mapping.
        assert_eq!(marks, ["26:3", "48:6"]);
        assert_eq!(decode(&answer()[..16]), Ok((None, Vec::new())));
        assert!(decode(&answer()[..answer().len() - 1]).is_err());
        assert_eq!(decode(&[]), Ok((None, Vec::new())));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
