//! Traces of every format, valid and invalid.
#![expect(clippy::unwrap_used, reason = "tests")]

mod sacct;

use super::*;
use crate::workload::{Overrun, fit};
use std::io::{Cursor, Write as _};

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/");

fn recorded(name: &str) -> Workload {
    open(&Path::new(TRACES).join(name), Options::default()).unwrap()
}

fn read_with(text: impl Into<Vec<u8>>, options: Options) -> Result<Workload, TraceError> {
    let lines = Lines::read(Cursor::new(text.into())).unwrap();
    read(lines, Path::new("trace"), options)
}

fn read_text(text: &str) -> Workload {
    read_with(text, Options::default()).unwrap()
}

fn refused(text: &str) -> String {
    let options = Options {
        is_strict: true,
        ..Options::default()
    };
    read_with(text, options).unwrap_err().to_string()
}

fn counts(workload: &Workload) -> Vec<(SkipReason, u64)> {
    workload
        .skipped
        .counts()
        .iter()
        .map(|(why, count)| (*why, *count))
        .collect()
}

#[test]
fn every_recorded_log_has_the_jobs_that_it_is_known_to_have() {
    for (name, jobs, skipped, unit) in [
        (
            "KTH-SP2-1996-2.swf.gz",
            28_481,
            vec![(SkipReason::ZeroRunTime, 8)],
            Unit::Processors,
        ),
        (
            "NASA-iPSC-1993-3.1-cln.swf.gz",
            18_066,
            vec![(SkipReason::ZeroRunTime, 173)],
            Unit::Processors,
        ),
        (
            "UniLu-Gaia-2014-2.swf.gz",
            51_859,
            vec![(SkipReason::ZeroRunTime, 1), (SkipReason::PartOfAJob, 127)],
            Unit::Processors,
        ),
        ("lublin_256.swf.gz", 10_000, vec![], Unit::Processors),
        ("alcf-theta-2018.txt.gz", 3_000, vec![], Unit::Nodes),
        ("alcf-intrepid-2009.txt.gz", 3_000, vec![], Unit::Nodes),
        (
            "openb_pod_list_default.csv.gz",
            7_255,
            vec![(SkipReason::NoRunTime, 897)],
            Unit::Nodes,
        ),
    ] {
        let workload = recorded(name);
        assert_eq!(
            (workload.jobs.len(), counts(&workload), workload.unit),
            (jobs, skipped, unit),
            "{name}"
        );
        assert!(
            workload
                .jobs
                .is_sorted_by_key(|job| (job.submit_ms, job.line)),
            "{name}"
        );
    }
}

#[test]
fn reports_wrong_header() {
    let kth = recorded("KTH-SP2-1996-2.swf.gz");
    assert_eq!((kth.machine, kth.users.len()), (Some(100), 214));
    assert!(
        kth.notes[0].contains("28490 records, the file has 28489"),
        "{:?}",
        kth.notes
    );
    let gaia = recorded("UniLu-Gaia-2014-2.swf.gz");
    assert!(
        gaia.notes
            .iter()
            .any(|note| note.contains("2004 on 151 nodes")),
        "{:?}",
        gaia.notes
    );
    assert_eq!(gaia.epoch_ms, Some(1_400_749_079_000));
}

const SWF: &str = "7 100 20 30 4 1.5 600 8 3600 700 1 3 2 9 1 5 6 77";

#[test]
fn a_line_of_swf_is_a_job() {
    let workload = read_text(SWF);
    let job = workload.jobs[0];
    assert_eq!((job.number, job.line, job.size), (7, 1, 8));
    assert_eq!((job.submit_ms, job.run_ms), (100_000, 30_000));
    assert_eq!((job.estimate_ms, job.waited_ms), (3_600_000, 20_000));
    assert_eq!(
        (&workload.users[..], &workload.tenants[..]),
        (&["user3".to_owned()][..], &["group2".to_owned()][..])
    );
    assert_eq!(workload.requests[0].queue.as_deref(), Some("queue1"));
    assert_eq!(workload.epoch_ms, None);
}

#[test]
fn irregular_lines_are_read_or_named() {
    let text = format!(
        "; MaxProcs: 16\r\n\r\n{SWF}\r\n{SWF} 19 20\r\n\
         8 -1 -1 5 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n\
         9 1 -1 5 -1 -1 -1 0 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n\
         10 1 -1 0 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n\
         11 1 -1 5 4 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1\n\
         12 1 x\n"
    );
    let workload = read_text(&text);
    let numbers: Vec<u64> = workload.jobs.iter().map(|job| job.number).collect();
    assert_eq!(numbers, [11, 7, 7]);
    // The job has 4 allocated processors and no request; user, wait and estimate are unknown.
    let job = workload.jobs[0];
    assert_eq!(
        (job.size, job.estimate_ms, job.waited_ms),
        (4, UNKNOWN, UNKNOWN)
    );
    assert_eq!(job.planned_ms(), 5_000);
    assert_eq!(workload.users[job.user as usize], "unknown");
    let expected = [
        SkipReason::NotRead,
        SkipReason::NoSubmitTime,
        SkipReason::NoSize,
        SkipReason::ZeroRunTime,
    ];
    assert_eq!(counts(&workload), expected.map(|why| (why, 1)));
    let descriptions = workload.skipped.descriptions();
    assert_eq!(
        descriptions[0],
        "line 9 cannot be read: column 3 (\"wait time\"): \"x\" is not a whole number, or -1"
    );
    assert_eq!(
        descriptions[1],
        "1 job skipped: it has no submit time (line 5)"
    );
    assert_eq!(
        refused(&text),
        "trace, line 9: column 3 (\"wait time\"): \"x\" is not a whole number, or -1"
    );
}

#[test]
fn reads_gzip_and_zstd_and_reports_truncation() {
    let text: String = (1..=500)
        .map(|n| format!("{n} {n}{}\n", &SWF[5..]))
        .collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    for (packed, packing) in [
        (gzip.finish().unwrap(), "gzip"),
        (zstd::encode_all(text.as_bytes(), 3).unwrap(), "zstd"),
    ] {
        let whole = read_with(packed.clone(), Options::default()).unwrap();
        assert_eq!(whole.jobs, read_text(&text).jobs, "{packing}");
        let cut = packed[..packed.len() - 20].to_vec();
        let TraceError::Input { source, .. } = read_with(cut, Options::default()).unwrap_err()
        else {
            panic!("{packing}")
        };
        let error = source.to_string();
        assert!(
            error.starts_with(&format!("the file is truncated: the {packing} stream ends")),
            "{error}"
        );
    }
    // Without a checksum the damage would go unnoticed.
    let mut packer = zstd::Encoder::new(Vec::new(), 3).unwrap();
    packer.include_checksum(true).unwrap();
    packer.write_all(text.as_bytes()).unwrap();
    let mut broken = packer.finish().unwrap();
    let middle = broken.len() / 2;
    broken[middle..middle + 8].fill(0xff);
    let Err(TraceError::Input { source, .. }) = read_with(broken, Options::default()) else {
        panic!("a broken stream")
    };
    assert!(
        matches!(
            source,
            InputError::Broken {
                packing: "zstd",
                ..
            }
        ),
        "{source:?}"
    );
}

#[test]
fn a_line_without_end_is_no_line() {
    let long = [
        SWF.as_bytes(),
        b" ",
        &vec![b'7'; 70 << 20],
        b"\n",
        SWF.as_bytes(),
    ]
    .concat();
    let workload = read_with(long, Options::default()).unwrap();
    assert_eq!((workload.jobs.len(), workload.jobs[0].line), (1, 2));
    assert_eq!(
        workload.skipped.descriptions(),
        ["line 1 cannot be read: it is longer than 64 MiB"]
    );
}

#[test]
fn what_is_no_trace_is_refused() {
    let error = |text: &str| read_with(text, Options::default()).unwrap_err().to_string();
    let error_text = error("\n# Lattice\n");
    assert!(
        error_text
            .starts_with("trace, line 2: unknown trace format: the first line is \"# Lattice\""),
        "{error_text}"
    );
    assert_eq!(
        error(""),
        "trace: no job can be replayed (0 lines, 0 skipped)"
    );
    assert!(error("1 2 3").contains("unknown trace format"));
    assert!(error("12|eve|phys|COMPLETED").contains("without --noheader"));
    let forced = Options {
        format: Some(Format::Swf),
        ..Options::default()
    };
    let error_text = read_with("1 2 3", forced).unwrap_err().to_string();
    assert_eq!(
        error_text,
        "trace: no job can be replayed (1 lines, 1 skipped)"
    );
}

#[test]
fn times_that_cannot_be_are_no_times() {
    let line = |submit: u64, run: u64, asked: u64| {
        format!("1 {submit} 0 {run} 4 -1 -1 4 {asked} -1 1 -1 -1 -1 -1 -1 -1 -1\n")
    };
    let (long, good) = (9_000_000_000_000, line(1, 60, 60));
    let text = [
        good,
        line(1, long, 60),
        line(long, 60, 60),
        line(1, 60, long),
    ]
    .concat();
    let workload = read_text(&text);
    assert_eq!(
        (workload.jobs.len(), counts(&workload)),
        (1, vec![(SkipReason::Implausible, 3)])
    );
}

#[test]
fn argonnes_columns_are_read() {
    let text = "Job_name Submit Runtime Nodes Comment Perc\n1 1514764835 60 128 1 50\n2 1514764836 0 8 1 30\n\
                3 1514764837 60 0 1 30\n4 -1 60 8 1 30\n5 1514764838 60\n6 1514764839 9 x 1 1\n";
    let workload = read_text(text);
    assert_eq!((workload.jobs.len(), workload.epoch_ms), (1, Some(0)));
    assert_eq!(
        (workload.jobs[0].size, workload.jobs[0].estimate_ms),
        (128, UNKNOWN)
    );
    let expected = [
        (SkipReason::NotRead, 2),
        (SkipReason::NoSubmitTime, 1),
        (SkipReason::NoSize, 1),
        (SkipReason::ZeroRunTime, 1),
    ];
    assert_eq!(counts(&workload), expected);
    assert_eq!(
        workload.skipped.descriptions()[0],
        "line 6 cannot be read: column 4 (\"Nodes\") is missing"
    );
}

#[test]
fn tasks_of_alibaba_ask_for_models() {
    let text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
                openb-pod-0007,12000,16384,2,1000,V100M16|V100M32,LS,Running,10,110,20\n\
                openb-pod-0008,6000,12288,1,460,,BE,Failed,427061,12902960,\n";
    let workload = read_text(text);
    let job = workload.jobs[0];
    assert_eq!(
        (job.number, job.size, job.run_ms, job.waited_ms),
        (7, 1, 90_000, 10_000)
    );
    let asked = &workload.requests[job.request as usize];
    assert_eq!(asked.constraints.gpu_models, ["V100M16", "V100M32"]);
    assert_eq!(asked.constraints.gpus_per_node, Some(2));
    assert_eq!(asked.constraints.memory_bytes, Some(16 << 30));
    assert_eq!(counts(&workload), [(SkipReason::NoRunTime, 1)]);
}

#[test]
fn a_workload_is_made_to_fit() {
    let line = |number: u32, run: u32, procs: u32, asked: i32| {
        format!("{number} 0 0 {run} {procs} -1 -1 {procs} {asked} -1 1 -1 -1 -1 -1 -1 -1 -1\n")
    };
    let text = [line(1, 50, 4, 40), line(2, 50, 5, 60), line(3, 50, 4, -1)].concat();
    let mut ended = read_text(&text);
    let mut extended = ended.clone();
    let fitted = fit(&mut ended, 4, Overrun::End);
    assert_eq!((fitted.overran, fitted.without_estimate), (1, 1));
    let times = |workload: &Workload| -> Vec<(u64, u64)> {
        workload
            .jobs
            .iter()
            .map(|job| (job.run_ms, job.planned_ms()))
            .collect()
    };
    assert_eq!(times(&ended), [(40_000, 40_000), (50_000, 50_000)]);
    assert_eq!(counts(&ended), [(SkipReason::TooLarge, 1)]);
    fit(&mut extended, 4, Overrun::Extend);
    assert_eq!(times(&extended), [(50_000, 50_000), (50_000, 50_000)]);
}
