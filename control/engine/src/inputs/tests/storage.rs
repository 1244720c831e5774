//! Numbers from a storage system's source, and the traffic that they include.

use crate::{
    inputs::storage::{others, used},
    scheduling_config::{BandwidthUnit, Counts},
};

#[test]
fn a_number_is_found_where_the_site_has_it_and_counted_in_its_unit() {
    let vast = br#"{"used": 120.5}"#;
    assert_eq!(used(vast, "/used", BandwidthUnit::GbS), Ok(120_500));
    // Reply of Prometheus to a query.
    let prometheus =
        br#"{"status":"success","data":{"result":[{"value":[1795435200.1,"2500000001"]}]}}"#;
    let pointer = "/data/result/0/value/1";
    assert_eq!(used(prometheus, pointer, BandwidthUnit::BytesS), Ok(2_501));
    assert_eq!(used(b"17", "", BandwidthUnit::MbS), Ok(17));
    assert_eq!(used(b"1e300", "", BandwidthUnit::GbS), Ok(u64::MAX));
}

#[test]
fn invalid_input_names_position() {
    for (body, part) in [
        ("<html>", "response is not valid JSON"),
        (r#"{"status":"success"}"#, "no value at /used"),
        (r#"{"used":null}"#, "/used is null: the value is unknown"),
        (r#"{"used":-1}"#, "/used is -1, not a number of at least 0"),
        (r#"{"used":"NaN"}"#, "/used is \"NaN\""),
        (r#"{"used":[1]}"#, "/used is [1]"),
        (r#"{"used":1e999}"#, "response is not valid JSON"),
    ] {
        let error = used(body.as_bytes(), "/used", BandwidthUnit::GbS);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(part), "{body}: {error}");
    }
}

#[test]
fn what_was_promised_when_it_was_measured_is_ours_and_the_rest_is_others() {
    assert_eq!(others(100, Counts::All, 30), 70);
    assert_eq!(others(20, Counts::All, 30), 0);
    assert_eq!(others(100, Counts::Others, 30), 100);
    assert_eq!(others(100, Counts::All, u128::MAX), 0);
}
