//! Server-sent events: decoder of a byte stream.
//!
//! `eventsource-stream` is not used: it accepts events of any length, and a server must not be able to fill a client's
//! memory.

/// Largest event: the records of one revision, or a few hundred changed nodes.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// One event: its name and its data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) event: String,
    pub(crate) data: String,
}

/// Error: an event is larger than `MAX_EVENT_BYTES`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Oversize;

/// Assembles events from chunks that may end anywhere.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Bytes of the incomplete line.
    line: Vec<u8>,
    frame: Frame,
    has_data: bool,
}

impl Decoder {
    /// Takes the next bytes, and appends complete events to `out`.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<Frame>) -> Result<(), Oversize> {
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() + self.frame.data.len() > MAX_EVENT_BYTES {
                return Err(Oversize);
            }
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                let line = String::from_utf8_lossy(&line);
                self.take_line(line.trim_end_matches(['\r', '\n']), out);
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &str, out: &mut Vec<Frame>) {
        if line.is_empty() {
            let frame = std::mem::take(&mut self.frame);
            if std::mem::take(&mut self.has_data) {
                out.push(frame);
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.frame.event),
            "data" => {
                if self.has_data {
                    self.frame.data.push('\n');
                }
                self.has_data = true;
                self.frame.data.push_str(value);
            }
            // The id is the revision, which the data contains too; an empty field name is a comment.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn frames_come_out_the_same_however_the_bytes_are_cut() {
        let text = b": hello\n\nid: 7\nevent: changes\ndata: {\"a\":\r\ndata: 1}\r\n\r\n\
            event: keepalive\n\ndata:x\n\n";
        let frame = |event: &str, data: &str| Frame {
            event: event.to_owned(),
            data: data.to_owned(),
        };
        let wanted = [frame("changes", "{\"a\":\n1}"), frame("", "x")];
        for size in 1..=text.len() {
            let mut decoder = Decoder::default();
            let mut out = Vec::new();
            for chunk in text.chunks(size) {
                decoder.push(chunk, &mut out).unwrap();
            }
            assert_eq!(out, wanted, "in chunks of {size}");
        }
    }

    #[test]
    fn an_endless_event_is_given_up() {
        let mut decoder = Decoder::default();
        let mut out = Vec::new();
        let chunk = vec![b'x'; 1 << 20];
        let ends = (0..20).any(|_| decoder.push(&chunk, &mut out).is_err());
        assert!(ends);
    }
}
