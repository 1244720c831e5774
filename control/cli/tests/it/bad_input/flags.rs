//! Values of flags that are rejected with the name of the flag, before a cluster is contacted.

use crate::common::{Sandbox, context, refused};

#[test]
fn each_flag_of_administrators_names_its_mistakes() {
    let sandbox = Sandbox::new();
    let create = |rest: &[&'static str]| {
        let mut args = vec!["admin", "token", "create", "--role", "agent"];
        args.extend(rest);
        args
    };
    // All mistakes are reported before a cluster is contacted; only the context file is read.
    let file = context(&sandbox);
    let cases: Vec<(Vec<&str>, &[&str])> = vec![
        (create(&["--uses", "0"]), &["--uses: ", "at least 1"]),
        (
            create(&["--uses", "100001"]),
            &["--uses: ", "more than 100000"],
        ),
        (create(&["--uses", "many"]), &["--uses"]),
        (create(&["--ttl", "8d"]), &["--ttl: ", "longer than 7d"]),
        (create(&["--ttl", "soon"]), &["--ttl: ", "write it like"]),
        (
            create(&["--nodes", "gpu[1-"]),
            &["--nodes: ", "gpu[001-064,100]"],
        ),
        (create(&["--nodes", ""]), &["--nodes: ", "leave it out"]),
        (
            create(&["--cidr", "10.0.0.0/8", "--cidr", "10.1.2.3/16"]),
            &["--cidr: ", "the network is 10.1.0.0/16"],
        ),
        (create(&["--cidr", "here"]), &["--cidr: ", "10.1.0.0/16"]),
        (vec!["admin", "token", "create"], &["--role"]),
        (
            vec!["admin", "token", "create", "--role", "king"],
            &["agent, quorum, control"],
        ),
        (vec!["admin", "token", "revoke"], &["<IDS>"]),
        (
            vec!["admin", "certificate", "revoke", "agent/gpu1"],
            &["--reason"],
        ),
        (
            vec![
                "admin",
                "certificate",
                "revoke",
                "agent/gpu1",
                "--reason",
                " ",
            ],
            &["--reason: give the reason"],
        ),
        (
            vec!["admin", "certificate", "revoke", "gpu1", "--reason", "x"],
            &["\"gpu1\"", "agent/gpu[001-004]"],
        ),
        (
            vec![
                "admin",
                "certificate",
                "revoke",
                "king/gpu1",
                "--reason",
                "x",
            ],
            &["king", "agent, quorum, control"],
        ),
        (
            vec![
                "admin",
                "certificate",
                "revoke",
                "agent/gpu[4-1]",
                "--reason",
                "x",
            ],
            &["must be ascending"],
        ),
        (
            vec!["admin", "certificate", "list", "--ending-within", "soon"],
            &["--ending-within: "],
        ),
        (vec!["admin", "ca", "retire"], &["<PIN>"]),
        (vec!["node", "drain", "gpu1"], &["--reason"]),
        (
            vec!["node", "drain", "gpu1", "--force-release"],
            &["--reason"],
        ),
        (
            vec!["node", "drain", "gpu1", "--force-release", "--reason", " "],
            &[
                "--reason: give the reason, and the proof that no process of the allocation runs on the node",
            ],
        ),
        (
            vec!["node", "drain", "gpu[1-", "--reason", "x"],
            &["']' is missing"],
        ),
        (vec!["node", "undrain"], &["<NODES>"]),
        (
            vec!["audit", "query", "--action", "deleted"],
            &["force_released"],
        ),
        (vec!["audit", "query", "--limit", "0"], &["--limit"]),
        (vec!["audit", "verify", "x.jsonl"], &["--ca", "--pin"]),
        (vec!["audit", "export"], &["<FILE>"]),
    ];
    for (args, words) in cases {
        let mut all = vec!["--context", &file];
        all.extend(args);
        refused(&sandbox, &all, 2, words);
    }
}

#[test]
fn an_output_file_that_can_be_none_is_refused_by_its_flag() {
    let sandbox = Sandbox::new();
    let file = context(&sandbox);
    for (flag, value, words) in [
        ("--output", "", "--output: the file name is empty"),
        ("--output", "o-%x.txt", "--output: \"o-%x.txt\""),
        ("--error", "half%", "--error: "),
        ("--error", "logs/", "is a folder"),
        ("--walltime", "soon", "--walltime: "),
        ("--nodelist", "gpu[", "--nodelist: "),
    ] {
        let args = [
            "--context",
            &file,
            "submit",
            "-p",
            "a",
            flag,
            value,
            "--",
            "true",
        ];
        refused(&sandbox, &args, 2, &[words]);
    }
    let args = ["submit", "-p", "a", "-o", "out.txt", "--", "true"];
    refused(&sandbox, &args, 2, &["--format", "json"]);
}

/// Each mistake is reported with its flag, before a request is sent.
#[test]
fn what_a_request_cannot_ask_for_is_named_by_its_flag() {
    let sandbox = Sandbox::new();
    let context = context(&sandbox);
    for (flags, words) in [
        (&["-N", "0"][..], &["--nodes", "at least 1"][..]),
        (&["-t", "0s"], &["--walltime", "longer than zero"]),
        // Some tools read the number as minutes, others as seconds.
        (&["-t", "60"], &["--walltime", "a number needs a unit"]),
        (&["-w", "n1,n1"], &["--nodelist", "n1 is named twice"]),
        (
            &["-w", "n[1-2]", "-x", "n[1-4]"],
            &["--exclude", "every node"],
        ),
        (&["--data-ready", "1.2"], &["--data-ready", "from 0 to 1"]),
        (&["--data-ready", "-0.5"], &["--data-ready", "from 0 to 1"]),
        (&["--data-ready", "nan"], &["--data-ready", "from 0 to 1"]),
        (&["--data-ready", "most"], &["--data-ready", "most"]),
        (
            &["--gpu-model", "V100|"],
            &["--gpu-model: one of them is empty"],
        ),
        (
            &["--storage", "scratch=2000000TB/s"],
            &["--storage: 2000000000GB/s of scratch exceeds the maximum"],
        ),
        (&["--checkpoint-time", "0"], &["--checkpoint-time"]),
        (
            &["--checkpoint-time", "8d"],
            &["--checkpoint-time", "exceeds the maximum of 7d"],
        ),
        (&["--memory", "512"], &["--memory", "512GiB"]),
        (&["--memory", "0GiB"], &["--memory", "512GiB"]),
        (&["--memory", "99999999999TiB"], &["--memory", "512GiB"]),
        (&["--storage", "scratch"], &["--storage", "SYSTEM=RATE"]),
        (&["--storage", "scratch=40"], &["--storage", "40GB/s"]),
        (
            &["--storage", "=1GB/s"],
            &["--storage", "not a valid storage system name"],
        ),
        (
            &["--storage", "a=1GB/s", "--storage", "a=2GB/s"],
            &["--storage", "named twice"],
        ),
    ] {
        let args: Vec<&str> = ["--context", &context, "submit", "-p", "a"]
            .into_iter()
            .chain(flags.iter().copied())
            .chain(["--", "true"])
            .collect();
        refused(&sandbox, &args, 2, words);
    }
}

#[test]
fn a_number_of_reservations_that_is_none_is_named_by_its_flag() {
    let sandbox = Sandbox::new();
    let context = context(&sandbox);
    for count in ["-1", "many"] {
        let args = ["--context", &context, "admin", "vcluster", "set", "default"];
        let args: Vec<&str> = (args.into_iter())
            .chain(["--reservations", count])
            .collect();
        refused(
            &sandbox,
            &args,
            2,
            &["--reservations", "at least 0, or `all`"],
        );
    }
}

#[test]
fn a_weight_that_is_no_weight_is_named_by_its_flag() {
    let sandbox = Sandbox::new();
    let context = context(&sandbox);
    for (weight, words) in [
        ("nan", "finite number"),
        ("inf", "finite number"),
        ("-1", "from 0 to 1000000"),
        ("1e7", "from 0 to 1000000"),
        ("much", "must be a number"),
    ] {
        let flag = format!("--energy={weight}");
        let args = ["--context", &context, "admin", "vcluster", "set-weights"];
        let args: Vec<&str> = args.into_iter().chain(["default", &flag]).collect();
        refused(&sandbox, &args, 2, &["--energy", words]);
    }
}
