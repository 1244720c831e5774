//! Recorded logs and invalid logs.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::io::Write as _;

const FIXTURE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../fixtures/traces/KTH-SP2-1996-2.first200.swf"
);

const JOB: &str = "7 100 20 30 4 1.5 600 8 3600 700 1 3 2 9 1 5 6 77";

fn read(text: &str) -> Result<Trace, SwfError> {
    Trace::read(std::io::Cursor::new(text.to_owned()))
}

fn message(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn the_recorded_log_is_read_whole() {
    let trace = Trace::open(FIXTURE).unwrap();
    assert_eq!(trace.records.len(), 200);
    let with = |s| trace.records.iter().filter(|r| r.status == Some(s)).count();
    assert_eq!((with(Status::Completed), with(Status::Failed)), (103, 97));
    assert_eq!(
        trace.records.iter().filter_map(SwfRecord::procs).max(),
        Some(84)
    );
    assert!(
        trace.records.iter().all(|r| r.requested_s.is_some()),
        "every job has an estimate"
    );
    let first = &trace.records[0];
    assert_eq!(
        (first.job, first.submit_s, first.wait_s),
        (Some(1), Some(0), Some(964_980))
    );
    assert_eq!(
        (first.run_s, first.requested_procs),
        (Some(97_225), Some(56))
    );
    assert_eq!(
        (first.cpu_s, first.queue, first.think_s),
        (None, None, None)
    );
    let (jobs, skipped) = trace.replayable();
    assert_eq!((jobs.len(), skipped.len()), (200, 0));
    assert_eq!(jobs.last().unwrap().submit_s - jobs[0].submit_s, 691_596);
    assert!(jobs.is_sorted_by_key(|j| j.submit_s));
}

#[test]
fn header_comments_are_kept_as_keys_and_values() {
    let trace = Trace::open(FIXTURE).unwrap();
    assert_eq!(trace.header("computer"), Some("IBM SP2"));
    assert_eq!(trace.header_number("MaxProcs"), Some(100));
    // The second line of a two-line value also has a colon, in a URL.
    let information = trace.header("Information").unwrap();
    assert_eq!(information.lines().count(), 2, "{information}");
    assert_eq!(trace.header("No such key"), None);
}

#[test]
fn every_column_lands_in_its_field() {
    let trace = read(JOB).unwrap();
    let expected = SwfRecord {
        line: 1,
        job: Some(7),
        submit_s: Some(100),
        wait_s: Some(20),
        run_s: Some(30),
        allocated_procs: Some(4),
        cpu_s: Some(1.5),
        used_memory_kb: Some(600),
        requested_procs: Some(8),
        requested_s: Some(3600),
        requested_memory_kb: Some(700),
        status: Some(Status::Completed),
        user: Some(3),
        group: Some(2),
        executable: Some(9),
        queue: Some(1),
        partition: Some(5),
        preceding: Some(6),
        think_s: Some(77),
    };
    assert_eq!(trace.records, [expected]);
    assert!(trace.header.is_empty(), "a log without a header is a log");
}

#[test]
fn minus_one_is_missing_in_every_column() {
    let trace = read(&["-1"; 18].join(" ")).unwrap();
    let r = &trace.records[0];
    assert_eq!(
        (r.job, r.submit_s, r.run_s, r.status, r.cpu_s),
        (None, None, None, None, None)
    );
    let (jobs, skipped) = trace.replayable();
    assert!(jobs.is_empty());
    assert_eq!(
        skipped,
        [Skipped {
            line: 1,
            reason: SkipReason::NoSubmitTime
        }]
    );
}

#[test]
fn gzip_crlf_blank_lines_and_extra_columns_are_read() {
    let text = format!("; MaxProcs: 16\r\n\r\n{JOB}\r\n{JOB} 19 20\r\n");
    let plain = read(&text).unwrap();
    assert_eq!(
        (plain.records.len(), plain.lines_with_extra_columns),
        (2, 1)
    );
    assert_eq!(plain.records[1].line, 4);
    assert_eq!(plain.records[1].think_s, Some(77));

    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(text.as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    assert_eq!(
        Trace::read(std::io::Cursor::new(packed.clone())).unwrap(),
        plain
    );

    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&packed).unwrap();
    assert_eq!(
        Trace::open(file.path()).unwrap(),
        plain,
        "a name without .gz is no hindrance"
    );
}

#[test]
fn a_truncated_gzip_stream_is_an_error() {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    for _ in 0..100 {
        writeln!(packer, "{JOB}").unwrap();
    }
    let packed = packer.finish().unwrap();
    let cut = packed[..packed.len() - 12].to_vec();
    let error = Trace::read(std::io::Cursor::new(cut)).unwrap_err();
    assert!(
        matches!(
            &error,
            SwfError::Read(InputError::CutOff {
                compression: "gzip",
                ..
            })
        ),
        "{error:?}"
    );
}

#[test]
fn an_empty_log_has_no_jobs() {
    assert_eq!(read("").unwrap(), Trace::default());
    assert_eq!(read(";").unwrap().records.len(), 0);
}

#[test]
fn a_comment_that_is_not_utf_8_is_kept_as_well_as_it_can_be() {
    let trace = Trace::read(b"; Note: Universit\xe9\n".as_slice()).unwrap();
    assert!(trace.header("note").unwrap().starts_with("Universit"));
    let error = Trace::read(b"1 2 \xe9\n".as_slice()).unwrap_err();
    assert!(matches!(error, SwfError::NotText { line: 1 }));
}

#[test]
fn errors_name_line_and_column() {
    assert_eq!(
        message(&format!("; a: b\n{JOB}\n1 2 x")),
        "line 3: column 3 (\"wait time\"): \"x\" is not a whole number, or -1"
    );
    assert_eq!(
        message("1 2 3 4"),
        "line 1: the line has 4 columns; 18 are required; the first missing one is \"allocated processors\""
    );
    assert_eq!(
        message("1 2 3 4 5 nan 7 8 9 10 1 12 13 14 15 16 17 18"),
        "line 1: column 6 (\"average CPU time\"): \"NaN\" is not a number of seconds, or -1"
    );
    assert_eq!(
        message("1 2 3 4 5 6 7 8 9 10 6 12 13 14 15 16 17 18"),
        "line 1: column 11 (\"status\"): \"6\" is not a status from 0 to 5, or -1"
    );
    assert!(message("-2 2 3").contains("column 1 (\"job number\")"));
    assert!(message("99999999999999999999 2").contains("column 1"));
}

#[test]
fn unreplayable_line_has_reason() {
    let reasons: Vec<_> = [
        "1 0 0 5 -1 -1 -1 0 -1 -1 1 -1 -1 -1 -1 -1 -1 -1",
        "2 0 0 -1 4 -1 -1 4 -1 -1 5 -1 -1 -1 -1 -1 -1 -1",
        "3 0 0 5 4 -1 -1 4 -1 -1 2 -1 -1 -1 -1 -1 -1 -1",
        "4 0 0 0 4 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1",
    ]
    .map(|line| {
        read(line).unwrap().records[0]
            .replayable()
            .map(|job| (job.procs, job.run_s))
    })
    .into();
    assert_eq!(
        reasons,
        [
            Err(SkipReason::NoSize),
            Err(SkipReason::NoRunTime),
            Err(SkipReason::PartOfAJob),
            Ok((4, 0)),
        ]
    );
}

#[test]
fn jobs_of_one_second_keep_the_logs_order() {
    let line = |job: u64, submit: u64| {
        format!("{job} {submit} 0 5 1 -1 -1 1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n")
    };
    let trace = read(&[line(9, 50), line(3, 10), line(2, 10)].concat()).unwrap();
    let order: Vec<_> = trace.replayable().0.iter().map(|j| j.job).collect();
    assert_eq!(order, [3, 2, 9]);
}
