//! Output of `sacct`, valid and invalid.

use super::*;

const SACCT: &str = "JobID|User|Account|Partition|QOS|Submit|Start|End|ElapsedRaw|TimelimitRaw|AllocNodes|AllocCPUS|AllocTRES|State";

#[test]
fn byte_order_mark_at_the_start_is_ignored() {
    let job = "7|a|p|q|n|2026-09-01T08:00:00|2026-09-01T08:05:00|2026-09-01T08:35:00|1800|60|2|4|node=2|COMPLETED";
    for text in [
        format!("\u{feff}{SACCT}\r\n{job}\r\n"),
        format!("\u{feff}; MaxProcs: 16\n{SWF}\n"),
    ] {
        assert_eq!(read_text(&text).jobs.len(), 1, "{text}");
    }
}

#[test]
fn jobs_of_slurm_are_read_and_their_steps_are_not() {
    let text = format!(
        "{SACCT}\n\
         12|eve|phys|gpu|high|2026-01-31T23:59:00|2026-02-01T00:00:00|2026-02-01T01:00:00|3600|120|2|64|billing=64,cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=1T,node=2|COMPLETED\n\
         12.batch|||||2026-02-01T00:00:00|2026-02-01T00:00:00|2026-02-01T01:00:00|3600||1|32|cpu=32|COMPLETED\n\
         12.0|||||2026-02-01T00:00:00|2026-02-01T00:00:00|2026-02-01T01:00:00|3600||2|64|cpu=64|COMPLETED\n\
         13_4|bob|phys|cpu|normal|2026-01-31T23:59:30|Unknown|2026-02-01T01:00:00|0|UNLIMITED|0|0||CANCELLED by 7\n\
         14_[1-9]|bob|phys|cpu|normal|2026-01-31T23:59:30|Unknown|Unknown|0|60|1|1||PENDING\n\
         15_7|bob|phys|cpu|normal|2026-01-31T23:59:40|2026-01-31T23:59:41|2026-02-01T00:00:11|30|UNLIMITED|1|8||FAILED\n\
         16|bob|phys|cpu|normal|yesterday|Unknown|Unknown|0|60|1|1||FAILED\n"
    );
    let workload = read_text(&text);
    assert_eq!(workload.unit, Unit::Nodes);
    let [first, last] = workload.jobs[..] else {
        panic!("{:?}", workload.jobs)
    };
    assert_eq!((first.number, first.size, first.waited_ms), (12, 2, 60_000));
    assert_eq!((first.run_ms, first.estimate_ms), (3_600_000, 7_200_000));
    assert_eq!(
        (last.number, last.run_ms, last.estimate_ms),
        (15, 30_000, UNKNOWN)
    );
    let asked = &workload.requests[first.request as usize];
    assert_eq!(
        (asked.queue.as_deref(), asked.qos.as_deref()),
        (Some("gpu"), Some("high"))
    );
    assert_eq!(asked.constraints.gpus_per_node, Some(4));
    assert_eq!(asked.constraints.gpu_models, ["a100"]);
    assert_eq!(workload.tenants, ["phys"]);
    let expected = [
        (SkipReason::NotRead, 1),
        (SkipReason::NoSize, 1),
        (SkipReason::StillRunning, 1),
    ];
    assert_eq!(counts(&workload), expected);
    assert!(
        workload.skipped.descriptions()[0].contains("Submit: \"yesterday\" is not a time"),
        "{:?}",
        workload.skipped
    );
    assert!(
        workload
            .notes
            .iter()
            .any(|note| note.contains("2 lines are steps")),
        "{:?}",
        workload.notes
    );
    // With sizes in cores.
    let options = Options {
        unit: Some(Unit::Processors),
        ..Options::default()
    };
    let by_cores = read_with(text, options).unwrap();
    let sizes: Vec<u32> = by_cores.jobs.iter().map(|job| job.size).collect();
    assert_eq!((sizes, by_cores.unit), (vec![64, 8], Unit::Processors));
}

/// Elements of an array have distinct numbers, and equal faults of several lines are reported once.
#[test]
fn arrays_of_slurm_and_lines_that_are_wrong_alike() {
    let workload = read_text(
        "JobID|JobIDRaw|Submit|ElapsedRaw|AllocNodes\n15_7|15|100|30|1\n15_8|16|100|30|1\n17|17|100\n18|18|100|1|2|3\n19|19|100\n",
    );
    let numbers: Vec<u64> = workload.jobs.iter().map(|job| job.number).collect();
    assert_eq!(numbers, [15, 16]);
    assert_eq!(
        workload.skipped.descriptions(),
        [
            "line 4 cannot be read: the line has 3 columns, the header has 5 (line 6 likewise)",
            "line 5 cannot be read: the line has 6 columns, the header has 5",
        ]
    );
}

/// Without `--noconvert` the largest jobs have a unit.
#[test]
fn counts_of_slurm_have_units() {
    let line = |id: u64, nodes: &str, cpus: &str, tres: &str| {
        format!(
            "{id}|u1|phys|batch|normal|2026-09-01T08:00:00|2026-09-01T08:05:00|2026-09-01T09:05:00|3600|120|{nodes}|\
             {cpus}|{tres}|COMPLETED\n"
        )
    };
    let text = [
        format!("{SACCT}\n"),
        line(1, "4", "512", "billing=512,cpu=512,mem=1000G,node=4"),
        line(2, "1K", "128K", "cpu=131072,mem=500T,node=1024"),
        line(3, "1.50K", "192K", "cpu=192K,gres/gpu=6K,node=1.50K"),
        line(4, "2k", "1M", "cpu=1M,gres/gpu:a100=2K,node=2K"),
        line(5, "1500", "192000", ""),
        // With --units=K even small counts are rounded, and the exact one is in AllocTRES.
        line(6, "1.46K", "187.50K", ""),
        line(7, "0.00K", "0.00K", "cpu=4,node=2"),
    ]
    .concat();
    let workload = read_text(&text);
    let sizes: Vec<u32> = workload.jobs.iter().map(|job| job.size).collect();
    assert_eq!(sizes, [4, 1024, 1536, 2048, 1500, 1495, 2]);
    assert!(counts(&workload).is_empty(), "{:?}", workload.skipped);
    let gpus = |place: usize| {
        let request = workload.jobs[place].request as usize;
        workload.requests[request].constraints.gpus_per_node
    };
    assert_eq!((gpus(2), gpus(3)), (Some(4), Some(1)));
    let rounded = "1 sizes were rounded by sacct";
    assert!(
        workload.notes.iter().any(|note| note.starts_with(rounded)),
        "{:?}",
        workload.notes
    );
    let options = Options {
        unit: Some(Unit::Processors),
        ..Options::default()
    };
    let by_cores = read_with(text, options).unwrap();
    let sizes: Vec<u32> = by_cores.jobs.iter().map(|job| job.size).collect();
    let expected = [512, 131_072, 196_608, 1 << 20, 192_000, 192_000, 4];
    assert_eq!(sizes, expected);
}

/// A site may record GPUs only by model (`AccountingStorageTRES=gres/gpu:a100`).
#[test]
fn gpus_of_slurm_are_counted_by_model() {
    let line = |id: u64, nodes: u32, alloc: &str, requested: &str| {
        format!("{id}|1700000000|{nodes}|60|{alloc}|{requested}\n")
    };
    let text = [
        "JobID|Submit|AllocNodes|ElapsedRaw|AllocTRES|ReqTRES\n".to_owned(),
        line(70, 2, "cpu=64,gres/gpu:a100=8,mem=1T,node=2", ""),
        line(71, 2, "cpu=64,gres/gpu:a100=8,gres/gpu=8,mem=1T,node=2", ""),
        line(72, 2, "cpu=64,gres/gpu:a100=4,gres/gpu:h100=4,node=2", ""),
        // The number of nodes may be in its column alone.
        line(73, 2, "gres/gpu:a100=8", ""),
        // The request has what the allocation lacks.
        line(74, 2, "cpu=64,node=2", "cpu=64,gres/gpu:a100=8,node=2"),
        line(75, 2, "cpu=64,gres/gpumem=80G,gres/gpuutil=95,node=2", ""),
        line(76, 2, "cpu=64,gres/gpu:a100=0,gres/gpu=0,node=2", ""),
        line(77, 2, "cpu=64,gres/gpu:a100=many,node=2", ""),
    ]
    .concat();
    let workload = read_text(&text);
    let asked = |number: u64| {
        let job = workload.jobs.iter().find(|job| job.number == number);
        let request = &workload.requests[job.unwrap().request as usize];
        let constraints = &request.constraints;
        (
            constraints.gpus_per_node,
            constraints.gpu_models.join(" and "),
        )
    };
    for number in [70, 71, 73, 74] {
        assert_eq!(asked(number), (Some(4), "a100".to_owned()), "{number}");
    }
    assert_eq!(asked(72), (Some(4), "a100 and h100".to_owned()));
    for number in [75, 76] {
        assert_eq!(asked(number), (None, String::new()), "{number}");
    }
    assert_eq!(
        workload.skipped.descriptions(),
        [
            "line 9 cannot be read: AllocTRES: gres/gpu:a100: \"many\" is not a count such as 1500, 2K or 1.50K"
        ]
    );
    let unknown = read_text("JobID|Submit|AllocNodes|ElapsedRaw\n1|1700000000|4|60\n");
    let note = "the export has no AllocTRES column: GPUs of jobs are unknown";
    assert_eq!(unknown.notes, [note]);
}

/// Releases before 20.11 have columns of generic resources, and sites may not count GPUs in TRES.
#[test]
fn gpus_of_older_slurm_are_generic_resources() {
    let line = |id: u64, tres: &str, alloc: &str, requested: &str| {
        format!("{id}|1700000000|2|60|{tres}|{alloc}|{requested}\n")
    };
    let text = [
        "JobID|Submit|AllocNodes|ElapsedRaw|AllocTRES|AllocGRES|ReqGRES\n".to_owned(),
        line(80, "", "gpu:a100:8", "gpu:a100:8"),
        line(81, "cpu=64,node=2", "gpu:a100:8", ""),
        line(82, "", "", "PER_NODE:gpu:a100:4"),
        // TRES have precedence.
        line(83, "gres/gpu:a100=8,node=2", "gpu:h100:2", ""),
        line(84, "", "gpu:0", "nvme:1"),
        line(85, "", "gpu:a100:many", ""),
    ]
    .concat();
    let workload = read_text(&text);
    let asked: Vec<(Option<u32>, String)> = workload
        .jobs
        .iter()
        .map(|job| {
            let constraints = &workload.requests[job.request as usize].constraints;
            let models = constraints.gpu_models.join(" and ");
            (constraints.gpus_per_node, models)
        })
        .collect();
    let four = vec![(Some(4), "a100".to_owned()); 4];
    assert_eq!(asked, [four, vec![(None, String::new())]].concat());
    assert_eq!(
        workload.skipped.descriptions(),
        [
            "line 7 cannot be read: AllocGRES: gpu:a100: \"many\" is not a count such as 1500, 2K or 1.50K"
        ]
    );
    let only = "JobID|Submit|AllocNodes|ElapsedRaw|AllocGRES\n1|1700000000|2|60|gpu:8\n";
    let only = read_text(only);
    assert_eq!(only.requests[0].constraints.gpus_per_node, Some(4));
    assert!(only.notes.is_empty(), "{:?}", only.notes);
}

/// With `--duplicates` each run of a requeued job has a line.
#[test]
fn runs_of_requeued_jobs_of_slurm_follow_each_other() {
    let header = "JobID|JobIDRaw|User|Submit|Start|End|ElapsedRaw|AllocNodes|State\n";
    let (first, second) = (
        "12|12|eve|1000|1100|1700|600|4|NODE_FAIL\n",
        "12|12|eve|1000|2000|2300|300|4|REQUEUED\n",
    );
    let text = [
        header,
        first,
        second,
        "12.batch|12.batch||1000|2000|2300|300|4|CANCELLED\n",
        "12|12|eve|2301|2400|3000|600|4|COMPLETED\n",
        // Another user had the number before; elements of an array are different jobs.
        "13|13|bob|1000|1100|1700|600|1|COMPLETED\n",
        "13|13|eve|1200|1800|1900|100|1|COMPLETED\n",
        "15_1|20|bob|1000|1100|1700|600|1|COMPLETED\n",
        "15_2|21|bob|1000|1800|1900|100|1|COMPLETED\n",
        // A requeued run that never started.
        "16|16|bob|1000|Unknown|1500|0|0|REQUEUED\n",
        "16|16|bob|1501|1600|1700|100|1|COMPLETED\n",
        // The next month's export begins with the last job of this one.
        header,
        second,
    ];
    let workload = read_text(&text.concat());
    let runs = |number: u64| -> Vec<[u64; 3]> {
        let of = workload.jobs.iter().filter(|job| job.number == number);
        let of = of.map(|job| [job.submit_ms, job.waited_ms, job.run_ms].map(|ms| ms / 1000));
        of.collect()
    };
    let expected = [[1000, 100, 600], [1700, 300, 300], [2301, 99, 600]];
    assert_eq!(runs(12), expected);
    assert_eq!(runs(13), [[1000, 100, 600], [1200, 600, 100]]);
    assert_eq!(
        (runs(20), runs(21)),
        (vec![[1000, 100, 600]], vec![[1000, 800, 100]])
    );
    assert_eq!(runs(16), [[1501, 99, 100]]);
    let skipped = [(SkipReason::NoSize, 1), (SkipReason::Repeated, 1)];
    assert_eq!(counts(&workload), skipped);
    assert!(
        workload.notes[1].starts_with("2 lines are later runs of requeued jobs"),
        "{:?}",
        workload.notes
    );
    // Without JobIDRaw, elements of an array differ by their index.
    let elements = read_text(
        "JobID|User|Submit|Start|ElapsedRaw|AllocNodes\n15_1|bob|1000|1100|600|1\n15_2|bob|1000|1800|100|1\n",
    );
    let submits: Vec<u64> = elements.jobs.iter().map(|job| job.submit_ms).collect();
    assert_eq!(submits, [1_000_000, 1_000_000]);
}

#[test]
fn jobs_that_ran_are_lost_only_with_notice() {
    let header = "JobID|Submit|Start|End|AllocNodes|State\n";
    let good = |count: usize| "1|1000|1100|1700|4|COMPLETED\n".repeat(count);
    let text = [
        header,
        "2|1000|1100|1700||COMPLETED\n",
        "3|1000|1100|Unknown|4|COMPLETED\n",
        "4|1000|1100|1000|4|TIMEOUT\n",
        "5|1000|Unknown|Unknown|4|COMPLETED\n",
        "6|1000|1100|1700|9999999999|COMPLETED\n",
        "7|1000|1100|1700|few|COMPLETED\n",
        // These jobs lose nothing: they did not run, or have not ended.
        "8|1000|Unknown|1700|0|CANCELLED by 7\n",
        "9|1000|1100|Unknown|4|COMPLETING\n",
        "10|1000|1100|Unknown|4|RUNNING\n",
        "11|1000|1100|1700|4|COMPLETED\n",
    ];
    let workload = read_text(&text.concat());
    let expected = [
        (SkipReason::NotRead, 6),
        (SkipReason::NoRunTime, 1),
        (SkipReason::StillRunning, 2),
    ];
    assert_eq!(counts(&workload), expected);
    assert_eq!(
        workload.skipped.descriptions()[..6],
        [
            "line 2 cannot be read: the job ran, but has no size in AllocNodes, NNodes, ReqNodes",
            "line 3 cannot be read: the job ran, but has no run time and no end (line 5 likewise)",
            "line 4 cannot be read: End is before Start",
            "line 6 cannot be read: the size 9999999999 is more than 4294967295",
            "line 7 cannot be read: AllocNodes: \"few\" is not a count such as 1500, 2K or 1.50K",
            "1 job skipped: it has no run time: the job never ran, or its run time was not recorded (line 8)",
        ]
    );
    let error = workload.check_losses().unwrap_err();
    assert_eq!(error, TooManyLost { lost: 6, jobs: 7 });
    assert!(
        error
            .to_string()
            .starts_with("6 of 7 jobs (85.7 %) are lost, and at most 1 %"),
        "{error}"
    );
    // One of a hundred may be lost, and no more.
    let bad = "2|1000|1100|1700||COMPLETED\n";
    let mut lines = String::from(header);
    for number in 0..99 {
        lines += &format!("{number}|1000|1100|1700|4|COMPLETED\n");
    }
    let few = read_text(&[lines.as_str(), bad].concat());
    assert_eq!((few.jobs.len(), few.check_losses()), (99, Ok(1)));
    let more = read_text(&[lines.as_str(), bad, bad].concat());
    let error = more.check_losses().unwrap_err();
    assert_eq!((error.lost, error.jobs), (2, 101));
    let repeated = read_text(&[header.to_owned(), good(3)].concat());
    assert_eq!((repeated.jobs.len(), repeated.check_losses()), (1, Ok(0)));
}

/// A job that waits for another job or for its begin time is submitted at its eligible time.
#[test]
fn work_of_slurm_comes_when_it_is_eligible() {
    let text = "JobID|Submit|Eligible|Start|NNodes|ElapsedRaw\n\
                1|1700000000|1700003600|1700003700|4|60\n\
                2|1700000000|Unknown|1700000060|4|60\n";
    let workload = read_text(text);
    let times: Vec<(u64, u64, u64)> = workload
        .jobs
        .iter()
        .map(|job| (job.number, job.submit_ms / 1000, job.waited_ms / 1000))
        .collect();
    assert_eq!(times, [(2, 1_700_000_000, 60), (1, 1_700_003_600, 100)]);
    assert!(
        workload.notes[0].starts_with("1 jobs became eligible after"),
        "{:?}",
        workload.notes
    );
}

#[test]
fn slurm_may_write_times_and_columns_otherwise() {
    let text = "Submit|JobID|NNodes|Elapsed|Timelimit|Start|\n\
                1700000000|1|4|1-02:03:04|2-00:00:00|1700000060|\n\
                1700000000|2|4|05:30|10:00:00|1700000060|\n\
                1700000000|3|4|five|1|1700000060|\n";
    let workload = read_text(text);
    let runs: Vec<(u64, u64)> = workload
        .jobs
        .iter()
        .map(|job| (job.run_ms, job.estimate_ms))
        .collect();
    assert_eq!(runs, [(93_784_000, 172_800_000), (330_000, 36_000_000)]);
    assert_eq!(
        workload.skipped.descriptions(),
        ["line 4 cannot be read: Elapsed: \"five\" is not a duration such as 1-02:03:04"]
    );
    let error_text = refused("JobID|User\n1|eve\n");
    assert!(
        error_text.contains("columns are missing: Submit; AllocNodes or NNodes or ReqNodes"),
        "{error_text}"
    );
    assert!(error_text.contains("sacct --parsable2"), "{error_text}");
    let error_text = refused("JobID|Submit|NNodes|Elapsed\n1|2\n");
    assert_eq!(
        error_text,
        "trace, line 2: the line has 2 columns, the header has 4"
    );
}
