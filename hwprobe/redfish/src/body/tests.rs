#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use serde_json::json;

fn tag(body: &[u8]) -> String {
    let value = parse(body).unwrap();
    assert_eq!(value["Watts"], 540, "{value}");
    value["Tag"].as_str().unwrap().to_owned()
}

/// A document with these bytes in one of its strings.
fn with_text(text: &[u8]) -> Vec<u8> {
    [br#"{"Tag": ""#, text, br#"", "Watts": 540}"#].concat()
}

#[test]
fn damaged_string_keeps_other_values() {
    for (text, expected) in [
        (&b"rack 7"[..], "rack 7"),
        (b"rack \xff\xff", "rack \u{fffd}\u{fffd}"),
        // Latin-1, and a letter that is cut off.
        (b"r\xe9seau", "r\u{fffd}seau"),
        (b"\xe2\x82", "\u{fffd}\u{fffd}"),
        (b"caf\xc3\xa9 \xff", "café \u{fffd}"),
        // Control characters.
        (b"rack\r7", "rack\r7"),
        (b"rack\n7\t\x00", "rack\n7\t\0"),
        // Escape sequences.
        (br"C:\Windows", "C:\\Windows"),
        (br"\x41 \u00e9 \u12", "\\x41 é \\u12"),
        (br"\udcff", "\u{fffd}"),
        (br"\ud83d\udd25 \ud83d", "🔥 \u{fffd}"),
        (br#"a \"b\" \xff"#, "a \"b\" \\xff"),
    ] {
        assert_eq!(tag(&with_text(text)), expected, "{expected:?}");
    }
}

#[test]
fn marks_around_a_document_are_ignored() {
    let plain = with_text(b"a");
    let marked = [b"\xef\xbb\xbf", plain.as_slice()].concat();
    let padded = [plain.as_slice(), b"\r\n\0\0"].concat();
    let text = String::from_utf8(plain).unwrap();
    let units: Vec<u16> = text.encode_utf16().collect();
    let little = units.iter().flat_map(|unit| unit.to_le_bytes());
    let big = units.iter().flat_map(|unit| unit.to_be_bytes());
    let little: Vec<u8> = [0xff, 0xfe].into_iter().chain(little).collect();
    let big: Vec<u8> = [0xfe, 0xff].into_iter().chain(big).collect();
    for body in [marked, padded, little, big] {
        assert_eq!(tag(&body), "a", "{body:?}");
    }
}

#[test]
fn damage_outside_of_strings_is_an_error() {
    for body in [
        &b""[..],
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"{\"Watts\": 54\xff}",
        b"{\"Watts\": 54\x00}",
        b"{\"Tag\": \"rack \xff",
        b"{\"Tag\": \"rack \xff\"",
        b"{\"Tag\": \"\\",
        b"<html>\xff</html>",
    ] {
        assert!(parse(body).is_err(), "{body:?}");
    }
}

#[test]
fn distinguishes_errors_from_resources() {
    let info = json!([{"MessageId": "Base.1.8.InternalError", "Message": "It failed."}]);
    for (body, text) in [
        (
            json!({"error": {"code": "x", "@Message.ExtendedInfo": info}}),
            "Base.1.8.InternalError: It failed.",
        ),
        (
            json!({"error": {"code": "Base.1.0.GeneralError"}}),
            "Base.1.0.GeneralError",
        ),
        (
            json!({"@odata.id": "/redfish/v1/Systems/1", "error": {"message": "busy"}}),
            "busy",
        ),
        (
            json!({"@Message.ExtendedInfo": info}),
            "Base.1.8.InternalError: It failed.",
        ),
        (json!({"error": "busy", "status": 500}), "busy"),
        (
            json!({"Messages": [{"MessageID": "iLO.0.10.X"}], "Type": "ExtendedError.1.0.0"}),
            "iLO.0.10.X",
        ),
    ] {
        assert!(is_error(&body), "{body}");
        assert_eq!(message(&body), text);
    }
    for resource in [
        json!({}),
        json!([]),
        json!({"@odata.id": "/redfish/v1/Systems/1", "Id": "1"}),
        // A complete resource with messages about a part of it.
        json!({"Id": "1", "@Message.ExtendedInfo": info, "error": {"code": "x"}}),
        json!({"Members": [], "Members@odata.count": 0, "@Message.ExtendedInfo": info}),
    ] {
        assert!(!is_error(&resource), "{resource}");
    }
}
