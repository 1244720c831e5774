//! Content codings of an answer (RFC 9110, section 8.4): unpacks gzip and deflate within a size limit.
//!
//! BMCs store large documents (registries, schemas) compressed, and some cannot send them in another form.

use super::error::FetchError;
use crate::body;
use flate2::bufread::{DeflateDecoder, GzDecoder, ZlibDecoder};
use lattice_conformance::text;
use std::io::Read;

/// Value of `Accept-Encoding`.
pub(super) const ACCEPTED: &str = "gzip, deflate";
/// Maximum number of codings applied to one body.
const MAX_CODINGS: usize = 4;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// No compression.
    Identity,
    Gzip,
    Deflate,
    /// A coding that is not supported, or a name that is not a coding, such as a character set.
    Unknown,
}

impl Coding {
    fn parse(name: &str) -> Self {
        match name.trim().to_ascii_lowercase().as_str() {
            "" | "identity" | "none" => Self::Identity,
            "gzip" | "x-gzip" => Self::Gzip,
            "deflate" => Self::Deflate,
            _ => Self::Unknown,
        }
    }
}

/// Unpacks a body with these codings, the value of `Content-Encoding`. A gzip stream is unpacked without that header as
/// well, because no JSON text can begin like one. Some BMCs write a character set or another wrong name into the header
/// of a plain body: a coding that is not supported is ignored if the result is JSON.
///
/// # Errors
/// The coding is not supported, the body is damaged, or the unpacked body exceeds `limit` bytes.
pub(super) fn unpack(codings: &str, body: Vec<u8>, limit: usize) -> Result<Vec<u8>, FetchError> {
    if body.is_empty() {
        return Ok(body);
    }
    let mut body = body;
    let mut unpacked_count = 0;
    let mut unknown = None;
    // The header lists the codings in the order in which they were applied.
    for name in codings.rsplit(',') {
        let coding = Coding::parse(name);
        if matches!(coding, Coding::Gzip | Coding::Deflate) {
            unpacked_count += 1;
            if unpacked_count > MAX_CODINGS {
                let why = format!("more than {MAX_CODINGS} codings");
                return Err(unsupported(codings, why));
            }
        }
        body = match coding {
            Coding::Identity => body,
            Coding::Gzip => gunzip(body, limit)?,
            Coding::Deflate => inflate(body, limit)?,
            Coding::Unknown => {
                unknown = Some(name.trim());
                body
            }
        };
    }
    let body = gunzip(body, limit)?;
    match unknown {
        Some(name) if !is_plain_json(&body) => {
            let why = "only gzip and deflate are supported, and the body is not plain JSON";
            Err(unsupported(name, why))
        }
        _ => Ok(body),
    }
}

/// Whether the codings compress the body.
pub(super) fn is_compressed(codings: &str) -> bool {
    let mut codings = codings.split(',').map(Coding::parse);
    codings.any(|coding| matches!(coding, Coding::Gzip | Coding::Deflate))
}

fn unsupported(coding: &str, why: impl Into<String>) -> FetchError {
    FetchError::Encoding {
        coding: text::excerpt(coding),
        why: why.into(),
    }
}

/// Whether the body is JSON without a coding. A scalar does not count: a compressed body may contain a single digit.
fn is_plain_json(body: &[u8]) -> bool {
    body::parse(body).is_ok_and(|value| value.is_object() || value.is_array())
}

/// Whether the bytes begin with the header of a gzip member (RFC 1952).
fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// Unpacks all members of a gzip stream. A body that is not one stays as it is: some BMCs send the header with a plain
/// body. Bytes after the last member are ignored.
fn gunzip(body: Vec<u8>, limit: usize) -> Result<Vec<u8>, FetchError> {
    if !is_gzip(&body) {
        return Ok(body);
    }
    let mut unpacked = Vec::new();
    let mut rest = body.as_slice();
    while is_gzip(rest) {
        let mut decoder = GzDecoder::new(rest);
        read_within("gzip", &mut decoder, &mut unpacked, limit)?;
        rest = decoder.into_inner();
    }
    Ok(unpacked)
}

/// Unpacks `deflate`: the zlib format, or the raw one that some servers send in its place. A plain JSON body stays as
/// it is.
fn inflate(body: Vec<u8>, limit: usize) -> Result<Vec<u8>, FetchError> {
    let mut unpacked = Vec::new();
    if is_zlib(&body) {
        let decoder = ZlibDecoder::new(body.as_slice());
        read_within("deflate", decoder, &mut unpacked, limit)?;
    } else if is_plain_json(&body) {
        return Ok(body);
    } else {
        let decoder = DeflateDecoder::new(body.as_slice());
        read_within("deflate", decoder, &mut unpacked, limit)?;
    }
    Ok(unpacked)
}

/// Whether the bytes begin with a zlib header (RFC 1950, section 2.2).
fn is_zlib(bytes: &[u8]) -> bool {
    match bytes {
        [method, flags, ..] => {
            let check = u16::from_be_bytes([*method, *flags]);
            method & 0x0f == 8 && check % 31 == 0
        }
        _ => false,
    }
}

/// Reads to the end. The limit stops a small body that unpacks to a huge one.
fn read_within(
    coding: &str,
    reader: impl Read,
    into: &mut Vec<u8>,
    limit: usize,
) -> Result<(), FetchError> {
    let left = limit.saturating_sub(into.len()).saturating_add(1);
    let read = reader.take(left as u64).read_to_end(into);
    if into.len() > limit {
        return Err(FetchError::TooLarge { limit });
    }
    read.map_err(|error| unsupported(coding, error.to_string()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use std::io::Write as _;

    const TEXT: &[u8] = br#"{"Id": "1"}"#;
    const LIMIT: usize = 64;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn raw_deflate(text: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn unpacks_every_supported_coding() {
        let (head, tail) = TEXT.split_at(4);
        for (codings, body) in [
            ("", TEXT.to_vec()),
            ("identity", TEXT.to_vec()),
            ("gzip", gzip(TEXT)),
            ("GZIP", gzip(TEXT)),
            ("x-gzip", gzip(TEXT)),
            ("deflate", zlib(TEXT)),
            ("deflate", raw_deflate(TEXT)),
            ("deflate, gzip", gzip(&zlib(TEXT))),
            // Without the header, with the header alone, in two members, and with padding at the end.
            ("", gzip(TEXT)),
            ("gzip", TEXT.to_vec()),
            ("gzip", [gzip(head), gzip(tail)].concat()),
            ("gzip", [gzip(TEXT), vec![0; 7]].concat()),
            ("gzip", [gzip(TEXT), b"garbage".to_vec()].concat()),
            ("deflate", [zlib(TEXT), vec![0; 7]].concat()),
            ("deflate", TEXT.to_vec()),
            ("deflate, gzip", TEXT.to_vec()),
            // Names that are not codings, or not those of the body.
            ("utf-8", TEXT.to_vec()),
            ("UTF-8", [b"\xef\xbb\xbf", TEXT].concat()),
            ("br", TEXT.to_vec()),
            ("identity, gzip", TEXT.to_vec()),
            ("identity,gzip", gzip(TEXT)),
            ("gzip, utf-8", gzip(TEXT)),
            ("utf-8, deflate", raw_deflate(TEXT)),
            ("aws-chunked, a, b, c, d, e", TEXT.to_vec()),
        ] {
            let unpacked = unpack(codings, body.clone(), LIMIT);
            let unpacked = unpacked.as_deref().map(|text| {
                let mark = &b"\xef\xbb\xbf"[..];
                text.strip_prefix(mark).unwrap_or(text)
            });
            assert_eq!(unpacked, Ok(TEXT), "{codings} {body:?}");
        }
        assert_eq!(unpack("br", Vec::new(), LIMIT), Ok(Vec::new()));
    }

    #[test]
    fn refuses_damaged_and_unknown_codings() {
        let whole = gzip(TEXT);
        for (codings, body, words) in [
            ("br", vec![1], "\"br\" cannot be unpacked: only gzip"),
            ("utf-8", b"<html>".to_vec(), "\"utf-8\" cannot"),
            ("gzip, br", b"\x0b\x05\x80{".to_vec(), "\"br\" cannot"),
            ("gzip", whole[..whole.len() - 5].to_vec(), "\"gzip\" cannot"),
            ("deflate", vec![0xff; 9], "\"deflate\" cannot"),
            ("gzip,gzip,gzip,a,gzip,gzip", whole, "more than 4 codings"),
        ] {
            let error = unpack(codings, body, LIMIT).unwrap_err().to_string();
            assert!(error.contains(words), "{codings}: {error}");
        }
    }

    #[test]
    fn only_unpacked_bodies_are_compressed() {
        for codings in ["gzip", "identity, X-GZIP", "deflate,utf-8"] {
            assert!(is_compressed(codings), "{codings}");
        }
        for codings in ["", "identity", "utf-8", "none, br"] {
            assert!(!is_compressed(codings), "{codings}");
        }
    }

    #[test]
    fn limit_counts_unpacked_bytes() {
        let bomb = vec![b' '; 1 << 20];
        for (codings, body) in [
            ("gzip", gzip(&bomb)),
            ("", gzip(&bomb)),
            ("deflate", zlib(&bomb)),
            ("deflate", raw_deflate(&bomb)),
            ("utf-8", gzip(&bomb)),
            ("identity, gzip", gzip(&gzip(&bomb))),
            ("gzip", [gzip(TEXT), gzip(&bomb[..LIMIT])].concat()),
        ] {
            let refused = unpack(codings, body, LIMIT);
            assert_eq!(refused, Err(FetchError::TooLarge { limit: LIMIT }));
        }
        let exact = vec![b' '; LIMIT];
        assert_eq!(unpack("gzip", gzip(&exact), LIMIT), Ok(exact));
    }
}
