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
fn foreign_bytes_between_tokens_are_blanks() {
    for body in [
        &b"{\"Tag\":\x00\"a\",\x00\"Watts\": 540\n\x00}"[..],
        b"{\"Tag\":\xa0\"a\",\xa0\"Watts\": 540}",
        b"{\xff\"Tag\"\xff:\"a\"\xff,\xff \"Watts\": 540 \xff}",
        b"\x00\xff {\"Tag\": \"a\", \"Watts\": 540}",
        // Blanks of Unicode, and control characters that JSON does not permit.
        b"{\"Tag\": \"a\", \"Watts\":\xc2\xa0540\xc2\xa0}",
        b"{\"Tag\": \"a\",\x0b\x0c\"Watts\":\xef\xbb\xbf540}",
        b"{\"Tag\": \"a\", \"Parts\": [\xc2\xa0], \"Watts\": 540}",
    ] {
        assert_eq!(tag(body), "a", "{body:?}");
    }
}

#[test]
fn bytes_behind_a_document_are_ignored() {
    let plain = with_text(b"a");
    for rest in [
        &b"\0\0\0"[..],
        b"\n\n",
        b"\n\0\n\0",
        b"\xff\xff",
        b"}",
        b"]}\r\n",
        b"garbage",
        b"\0\x1bgarbage\xff540",
        b"</pre>\n",
        // The end of an older and longer answer in the same buffer.
        b"ious\": \"x\", \"Watts\": 7}",
    ] {
        let body = [plain.as_slice(), rest].concat();
        assert_eq!(tag(&body), "a", "{rest:?}");
    }
    // The document ends too soon, or there are two.
    for rest in [
        &b", \"Limit\": 7}"[..],
        b"\0 , \"Limit\": 7}",
        b" \"Limit\": 7}",
        b": 7}",
        b"{\"Tag\": \"b\", \"Watts\": 7}",
        b"\n[1]",
    ] {
        let body = [plain.as_slice(), rest].concat();
        assert!(parse(&body).is_err(), "{rest:?}");
    }
}

#[test]
fn number_breaks_rather_than_changes() {
    for number in [
        &b"54\xff"[..],
        b"54\x00",
        b"54\xa0",
        b"\xff40",
        b"\xa040",
        b"5\xff0",
        b"5\x00 40",
        b"5\xc2\xa040",
        b"\xff",
        b"\x00\x00",
        b"-\xff5",
        b"5.\xff",
        b"5e\xff1",
        b"tru\xff",
        b"\xffull",
        b"[\xff]",
        b"[ \x00 ]",
        b"[5,\xff]",
        b"[\xff,5]",
        b"[5\xff5]",
    ] {
        let body = [b"{\"Watts\":", number, b",\"Tag\":\"a\"}"].concat();
        assert!(parse(&body).is_err(), "{number:?}");
        let body = [b"{\"Tag\":\"a\",\"Watts\":", number, b"}"].concat();
        assert!(parse(&body).is_err(), "{number:?}");
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
        // Other forms: another case, a code with a message, a message alone, and an error in an empty resource.
        (
            json!({"Error": {"Code": "Base.1.0.GeneralError", "@Message.ExtendedInfo": info[0]}}),
            "Base.1.8.InternalError: It failed.",
        ),
        (json!({"ERROR": "busy"}), "busy"),
        (json!({"errors": [{"code": 7}]}), ""),
        (json!({"code": 500, "message": "busy"}), "busy"),
        (json!({"code": "E7", "message": "busy"}), "E7: busy"),
        (json!({"Message": "busy", "Status": "failed"}), "busy"),
        (
            json!({"@odata.type": "#Message.v1_1_0.Message", "MessageId": "Base.1.8.X"}),
            "Base.1.8.X",
        ),
        (
            json!({"Id": "1", "Name": "Fan", "error": {"message": "busy"}}),
            "busy",
        ),
        (
            json!({"Members": [], "Members@odata.count": 0, "Error": {"message": "busy"}}),
            "busy",
        ),
    ] {
        assert!(is_error(&body), "{body}");
        assert_eq!(message(&body), text);
    }
    for resource in [
        json!([]),
        json!({"@odata.id": "/redfish/v1/Systems/1", "Id": "1"}),
        // A complete resource with messages about a part of it.
        json!({"PowerState": "On", "@Message.ExtendedInfo": info, "error": {"code": "x"}}),
        json!({"Members": [], "Members@odata.count": 0, "@Message.ExtendedInfo": info}),
        // The code and the message of a log entry.
        json!({"Id": "7", "Code": "x", "Message": "The fan failed.", "Errors": null}),
    ] {
        assert!(!is_error(&resource), "{resource}");
    }
}

#[test]
fn resource_has_an_identity() {
    for name in IDENTITY {
        assert!(!is_anonymous(&json!({name: "x"})), "{name}");
    }
    for body in [json!({}), json!({"success": false}), json!({"id": "1"})] {
        assert!(is_anonymous(&body), "{body}");
    }
    assert!(!is_anonymous(&json!([])));
}

#[test]
fn names_the_message_of_an_error() {
    let names = ["NoValidSession"];
    let info =
        json!([{"MessageId": "Base.1.8.GeneralError"}, {"MessageId": "Base.1.8.NoValidSession"}]);
    for body in [
        json!({"error": {"code": "Base.1.0.GeneralError", "@Message.ExtendedInfo": info}}),
        json!({"error": {"code": "Base.1.0.NoValidSession"}}),
        json!({"Error": "iLO.2.3.novalidsession"}),
        json!({"@Message.ExtendedInfo": info}),
        json!({"Messages": [{"MessageID": "Base.0.10.NoValidSession"}], "Type": "ExtendedError.1.0.0"}),
        json!({"code": "NoValidSession", "message": "x"}),
        json!({"@odata.type": "#Message.v1_0_0.Message", "MessageId": "Base.1.0.NoValidSession"}),
    ] {
        assert!(is_error_with(&body, &names), "{body}");
    }
    for body in [
        json!({"error": {"code": "Base.1.0.GeneralError", "message": "NoValidSession."}}),
        // A resource, for example an entry of a log.
        json!({"Id": "7", "MessageId": "Base.1.0.NoValidSession", "Message": "x"}),
    ] {
        assert!(!is_error_with(&body, &names), "{body}");
    }
}
