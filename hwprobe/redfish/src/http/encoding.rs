//! Content codings of an answer (RFC 9110, section 8.4): unpacks gzip and deflate within a size limit.
//!
//! BMCs store large documents (registries, schemas) compressed, and some cannot send them in another form.

use super::error::FetchError;
use flate2::bufread::{DeflateDecoder, GzDecoder, ZlibDecoder};
use lattice_conformance::text;
use std::io::Read;

/// Value of `Accept-Encoding`.
pub(super) const ACCEPTED: &str = "gzip, deflate";
/// Maximum number of codings applied to one body.
const MAX_CODINGS: usize = 4;

/// Unpacks a body with these codings, the value of `Content-Encoding`. A gzip stream is unpacked without that header as
/// well, because no JSON text can begin like one.
///
/// # Errors
/// The coding is not supported, the body is damaged, or the unpacked body exceeds `limit` bytes.
pub(super) fn unpack(codings: &str, body: Vec<u8>, limit: usize) -> Result<Vec<u8>, FetchError> {
    if body.is_empty() {
        return Ok(body);
    }
    let mut body = body;
    // The header lists the codings in the order in which they were applied.
    for (at, coding) in codings.rsplit(',').enumerate() {
        if at >= MAX_CODINGS {
            let why = format!("more than {MAX_CODINGS} codings");
            return Err(unsupported(codings, why));
        }
        body = match coding.trim().to_ascii_lowercase().as_str() {
            "" | "identity" | "none" => body,
            "gzip" | "x-gzip" => gunzip(body, limit)?,
            "deflate" => inflate(&body, limit)?,
            other => return Err(unsupported(other, "only gzip and deflate are supported")),
        };
    }
    gunzip(body, limit)
}

/// Whether the codings compress the body.
pub(super) fn is_compressed(codings: &str) -> bool {
    let mut codings = codings.split(',').map(str::trim);
    codings.any(|coding| {
        !matches!(
            coding.to_ascii_lowercase().as_str(),
            "" | "identity" | "none"
        )
    })
}

fn unsupported(coding: &str, why: impl Into<String>) -> FetchError {
    FetchError::Encoding {
        coding: text::excerpt(coding),
        why: why.into(),
    }
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

/// Unpacks `deflate`: the zlib format, or the raw one that some servers send in its place.
fn inflate(body: &[u8], limit: usize) -> Result<Vec<u8>, FetchError> {
    let mut unpacked = Vec::new();
    if is_zlib(body) {
        read_within("deflate", ZlibDecoder::new(body), &mut unpacked, limit)?;
    } else {
        read_within("deflate", DeflateDecoder::new(body), &mut unpacked, limit)?;
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
        ] {
            let unpacked = unpack(codings, body.clone(), LIMIT);
            assert_eq!(unpacked.as_deref(), Ok(TEXT), "{codings} {body:?}");
        }
        assert_eq!(unpack("br", Vec::new(), LIMIT), Ok(Vec::new()));
    }

    #[test]
    fn refuses_damaged_and_unknown_codings() {
        let whole = gzip(TEXT);
        for (codings, body, words) in [
            ("br", vec![1], "\"br\" cannot be unpacked: only gzip"),
            ("gzip", whole[..whole.len() - 5].to_vec(), "\"gzip\" cannot"),
            ("deflate", vec![0xff; 9], "\"deflate\" cannot"),
            ("a,a,gzip,gzip,gzip,gzip", whole, "more than 4 codings"),
        ] {
            let error = unpack(codings, body, LIMIT).unwrap_err().to_string();
            assert!(error.contains(words), "{codings}: {error}");
        }
    }

    #[test]
    fn limit_counts_unpacked_bytes() {
        let bomb = vec![b' '; 1 << 20];
        for (codings, body) in [
            ("gzip", gzip(&bomb)),
            ("", gzip(&bomb)),
            ("deflate", zlib(&bomb)),
            ("gzip", [gzip(TEXT), gzip(&bomb[..LIMIT])].concat()),
        ] {
            let refused = unpack(codings, body, LIMIT);
            assert_eq!(refused, Err(FetchError::TooLarge { limit: LIMIT }));
        }
        let exact = vec![b' '; LIMIT];
        assert_eq!(unpack("gzip", gzip(&exact), LIMIT), Ok(exact));
    }
}
