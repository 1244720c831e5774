//! Errors and exit codes for wrong input, without a running cluster.

use crate::common::{CommandResult, Sandbox, demo_folders};
use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _};

#[track_caller]
fn refused(sandbox: &Sandbox, args: &[&str], code: i32, words: &[&str]) {
    let done = sandbox.lattice(args);
    assert_eq!(done.code, Some(code), "{args:?}: {done:?}");
    for word in words {
        assert!(
            done.stderr.contains(word),
            "{args:?} says no {word:?}: {}",
            done.stderr
        );
    }
    assert_eq!(done.stdout, "", "{args:?}");
}

/// Returns a context file with a server that is never contacted: the mistakes are reported before.
fn context(sandbox: &Sandbox) -> String {
    let folder = sandbox.path("https");
    let file = sandbox.path("context.json");
    let (folder, path) = (folder.to_str().unwrap(), file.to_str().unwrap().to_owned());
    if file.exists() {
        return path;
    }
    let args = ["admin", "https", "--host", "localhost", "--out", folder];
    assert_eq!(sandbox.lattice(&args).code, Some(0));
    let ca_pem = fs::read_to_string(format!("{folder}/https-ca.pem")).unwrap();
    let server = "https://localhost:1";
    let text = serde_json::json!({"server": server, "ca_pem": ca_pem, "token": "t"});
    fs::write(&file, text.to_string()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn wrong_command_lines_end_with_2() {
    let sandbox = Sandbox::new();
    refused(
        &sandbox,
        &["frobnicate"],
        2,
        &["unrecognized subcommand 'frobnicate'"],
    );
    refused(&sandbox, &["node", "lst"], 2, &["'lst'", "list"]);
    refused(&sandbox, &["submit", "--project", "a"], 2, &["<COMMAND>"]);
    refused(
        &sandbox,
        &["status", "--state", "runing"],
        2,
        &["unknown state", "running"],
    );
    refused(
        &sandbox,
        &["demo", "--nodes", "0"],
        2,
        &["--nodes", "1..=512"],
    );
    refused(
        &sandbox,
        &["demo", "--run-as", "0"],
        2,
        &["jobs never run as root"],
    );
    refused(
        &sandbox,
        &["conformance", "groups", "--class", "gpus"],
        2,
        &["gpu"],
    );
}

#[test]
fn missing_cluster_error_names_demo() {
    let sandbox = Sandbox::new();
    refused(
        &sandbox,
        &["node", "list"],
        3,
        &[
            "no context file found",
            "--context FILE",
            "LATTICE_CONTEXT",
            "lattice demo",
        ],
    );
}

#[test]
fn a_context_others_can_read_is_refused_and_a_silent_server_ends_with_3() {
    let sandbox = Sandbox::new();
    let ca = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
    // The socket stays bound and never listens, so that no other test gets its port.
    let unused = tokio::net::TcpSocket::new_v4().unwrap();
    unused.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = unused.local_addr().unwrap();
    let context = |ca: &str| {
        serde_json::json!({
            "server": format!("https://{closed}"), "ca_pem": ca, "token": "t",
        })
        .to_string()
    };
    let file = sandbox.path("context.json");
    let arg = file.to_str().unwrap();
    fs::write(&file, context(ca)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    refused(
        &sandbox,
        &["--context", arg, "node", "list"],
        2,
        &["chmod 600"],
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    refused(
        &sandbox,
        &["--context", arg, "node", "list"],
        2,
        &["certificate"],
    );
    fs::write(&file, "{\"server\":1}").unwrap();
    refused(
        &sandbox,
        &["--context", arg, "node", "list"],
        2,
        &["context.json"],
    );
    let authority = lattice_mesh::Authority::create(
        "test",
        lattice_mesh::Validity::from_now(
            lattice_quorum_types::UnixMillis(1_700_000_000_000),
            std::time::Duration::from_secs(3600),
        ),
    )
    .unwrap();
    let folder = sandbox.path("ca");
    fs::create_dir(&folder).unwrap();
    authority.save(&folder).unwrap();
    let pem = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .find(|text| text.contains("BEGIN CERTIFICATE"))
        .unwrap();
    fs::write(&file, context(&pem)).unwrap();
    let server = closed.to_string();
    refused(&sandbox, &["--context", arg, "node", "list"], 3, &[&server]);
}

#[test]
fn a_demo_does_not_start_on_what_is_not_its_own() {
    let sandbox = Sandbox::new();
    let dir = sandbox.path("data");
    let arg = dir.to_str().unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("thesis.tex"), "x").unwrap();
    refused(
        &sandbox,
        &["demo", "--data-dir", arg],
        1,
        &["not empty and was not created by a demo"],
    );
    assert_eq!(
        fs::read_dir(&dir).unwrap().count(),
        1,
        "nothing was written"
    );
    fs::remove_file(dir.join("thesis.tex")).unwrap();
    fs::write(dir.join("demo.json"), r#"{"format":9,"nodes":24}"#).unwrap();
    refused(
        &sandbox,
        &["demo", "--data-dir", arg],
        1,
        &["has format 9", "another folder"],
    );
    refused(
        &sandbox,
        &["demo", "--fixtures", arg],
        1,
        &["cluster.yaml is missing"],
    );
}

#[test]
fn demo_larger_than_the_machine_is_refused_before_it_starts() {
    let sandbox = Sandbox::new();
    let data = sandbox.path("data");
    let program = env!("CARGO_BIN_EXE_lattice");
    // A process may lower its own limit of open files, and not raise it again.
    let script = format!(
        "ulimit -Sn 320 && ulimit -Hn 320 && exec {program} demo --nodes 512 --data-dir {}",
        data.display()
    );
    let done = std::process::Command::new("sh")
        .args(["-c", &script])
        .output();
    let done = CommandResult::from(done.unwrap());
    assert_eq!(done.code, Some(1), "{done:?}");
    // (320 - 256) / 16
    let text =
        "needs 8448 open files, and the limit is 320; this machine can carry 4: give --nodes 4";
    assert!(done.stderr.contains(text), "{done:?}");
    assert_eq!(done.stdout, "");
    assert!(!data.exists(), "nothing was created");
}

#[test]
fn several_demos_are_listed_with_exit_code_2() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("run/lattice");
    fs::create_dir(&folder).unwrap();
    let mut children = Vec::new();
    let mut expected = Vec::new();
    for port in [7001, 7002] {
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let child = child.unwrap();
        let (pid, server) = (child.id(), format!("https://127.0.0.1:{port}"));
        let text = serde_json::json!({
            "server": server, "ca_pem": "c", "token": "t", "demo_pid": pid,
        });
        let file = folder.join(format!("demo-{pid}.json"));
        fs::write(&file, text.to_string()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        expected.push(format!(
            "  --context {}   ({server}, process {pid})",
            file.display()
        ));
        children.push(child);
    }
    let words: Vec<&str> = expected.iter().map(String::as_str).collect();
    refused(&sandbox, &["node", "list"], 2, &words);
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn demo_reports_port_in_use() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let temporary = sandbox.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let args = ["demo", "--nodes", "1", "--listen", &address];
    let mut command = sandbox.command(&args);
    let done: CommandResult = command.env("TMPDIR", &temporary).output().unwrap().into();
    assert_eq!(done.code, Some(1), "{done:?}");
    for word in [address.as_str(), "in use", "stopped; removed"] {
        assert!(done.stderr.contains(word), "{word:?}: {done:?}");
    }
    assert_eq!(demo_folders(&temporary), 0, "{done:?}");
    assert_eq!(sandbox.contexts(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn an_authority_is_made_once_and_issues_what_a_member_needs() {
    let sandbox = Sandbox::new();
    let path = |name: &str| sandbox.path(name).to_str().unwrap().to_owned();
    let (ca, out) = (path("ca"), path("member"));
    let create = ["admin", "ca", "create", "--cluster", "site", "--out", &ca];
    let done = sandbox.lattice(&create);
    assert_eq!(done.code, Some(0), "{done:?}");
    refused(&sandbox, &create, 1, &["ca.pem"]);
    let issue = |role: &str, id: &str| {
        let args = [
            "admin",
            "ca",
            "issue",
            "--ca",
            &ca,
            "--cluster",
            "site",
            "--role",
            role,
            "--id",
            id,
            "--out",
            &out,
        ];
        sandbox.lattice(&args)
    };
    let done = issue("quorum", "1");
    assert!(done.stderr.contains("spiffe://site/quorum/1"), "{done:?}");
    let credentials = lattice_mesh::Credentials::load(&sandbox.path("member")).unwrap();
    assert_eq!(credentials.identity().uri(), "spiffe://site/quorum/1");
    let mode = fs::metadata(sandbox.path("member/identity.key"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(issue("quorum", "1").stderr.contains("exists already"));
    fs::remove_dir_all(sandbox.path("member")).unwrap();
    assert_eq!(issue("voter", "1").code, Some(2));
    assert!(issue("quorum", "one").stderr.contains("its number"));
    assert_eq!(issue("quorum", "a/b").code, Some(1));
}

/// Renewal keeps the CA, so that clients need no change.
#[test]
fn https_certificate_is_renewed_under_its_ca() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("web");
    let out = folder.to_str().unwrap();
    let create = ["admin", "https", "--out", out];
    refused(&sandbox, &create, 2, &["--host"]);
    let hosts = ["--host", "login1.example", "--host", "10.0.0.7"];
    let done = sandbox.lattice(&[&create[..], &hosts].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    refused(&sandbox, &[&create[..], &hosts].concat(), 1, &["https.key"]);
    let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let parse = |name: &str| {
        let all = lattice_api::x509::read_pem(&text(name)).unwrap();
        lattice_api::x509::parse_certificate(&all[0]).unwrap()
    };
    let (first, ca) = (parse("https.pem"), text("https-ca.pem"));
    assert_eq!(first.hosts, ["login1.example", "10.0.0.7"]);

    let renew = ["admin", "https", "--renew", "--out", out];
    let done = sandbox.lattice(&[&renew[..], &["--days", "30"]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("login1.example, 10.0.0.7"), "{done:?}");
    let second = parse("https.pem");
    assert_eq!((&second.hosts, text("https-ca.pem")), (&first.hosts, ca));
    assert!(second.pin != first.pin && second.public_key != first.public_key);
    assert!(second.names_as_issuer(&parse("https-ca.pem")));
    let life = second.not_after.since(second.not_before) / 86_400_000;
    assert!((30..=31).contains(&life), "{life} days");
    for name in ["https.key", "https-ca.key"] {
        let mode = fs::metadata(folder.join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let done = sandbox.lattice(&[&renew[..], &["--host", "login2.example"]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(parse("https.pem").hosts, ["login2.example"]);

    let ca_key = folder.join("https-ca.key");
    fs::set_permissions(&ca_key, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&sandbox, &renew, 1, &["chmod 600"]);
    fs::remove_file(&ca_key).unwrap();
    fs::copy(folder.join("https.key"), &ca_key).unwrap();
    refused(
        &sandbox,
        &renew,
        1,
        &["does not belong to the CA certificate"],
    );
    fs::remove_file(&ca_key).unwrap();
    refused(
        &sandbox,
        &renew,
        1,
        &["https-ca.key: no such file", "in another folder"],
    );
}

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

#[test]
fn certificate_is_readable_without_cluster() {
    let sandbox = Sandbox::new();
    let path = |name: &str| sandbox.path(name).to_str().unwrap().to_owned();
    let (ca, member) = (path("ca"), path("member"));
    let make = ["admin", "ca", "create", "--cluster", "site", "--out", &ca];
    let pin = sandbox.lattice(&make).stderr;
    let pin = pin
        .split_once("pin ")
        .unwrap()
        .1
        .trim_end()
        .trim_end_matches(')');
    let issue = [
        "admin",
        "ca",
        "issue",
        "--ca",
        &ca,
        "--cluster",
        "site",
        "--role",
        "quorum",
        "--id",
        "1",
        "--out",
        &member,
        "--days",
        "30",
    ];
    assert_eq!(sandbox.lattice(&issue).code, Some(0));
    let show = |file: &str, form: &str| {
        sandbox.lattice(&["admin", "certificate", "show", file, "-o", form])
    };
    let shown = show(&member, "json").json();
    assert_eq!(shown["identity"], "spiffe://site/quorum/1");
    assert_eq!(shown["issuer_pin"], pin);
    let words = show(&member, "table").stdout;
    assert!(
        words.contains("(in 30 d)") && words.contains(pin),
        "{words}"
    );
    assert_eq!(show(&ca, "json").json()["pin"], pin);
    // Without the issuer's certificate in the same folder, only the name of the issuer is shown.
    let alone = path("alone.pem");
    fs::copy(format!("{member}/identity.pem"), &alone).unwrap();
    assert!(show(&alone, "json").json().get("issuer_pin").is_none());
    for (file, words) in [
        ("nothing.pem", "nothing.pem"),
        ("key.pem", "private key"),
        ("text.pem", "no certificate"),
    ] {
        let file = path(file);
        if words == "private key" {
            fs::copy(format!("{member}/identity.key"), &file).unwrap();
        } else if words == "no certificate" {
            fs::write(&file, "hello").unwrap();
        }
        refused(
            &sandbox,
            &["admin", "certificate", "show", &file],
            1,
            &[words],
        );
    }
    let add = [
        "--context",
        &context(&sandbox),
        "admin",
        "ca",
        "add",
        &member,
    ];
    refused(&sandbox, &add, 1, &["ca.pem"]);
    let leaf = format!("{member}/identity.pem");
    let add = ["--context", &context(&sandbox), "admin", "ca", "add", &leaf];
    refused(
        &sandbox,
        &add,
        2,
        &["spiffe://site/quorum/1", "is not a CA certificate"],
    );
}

#[test]
fn an_export_is_checked_without_a_cluster() {
    let sandbox = Sandbox::new();
    let file = sandbox.path("export.jsonl");
    let verify = ["audit", "verify", file.to_str().unwrap(), "--chain-only"];
    refused(&sandbox, &verify, 1, &["export.jsonl", "No such file"]);
    for text in ["", "{\"number\":1}\n"] {
        fs::write(&file, text).unwrap();
        refused(
            &sandbox,
            &verify,
            1,
            &["export.jsonl", "is not an audit export"],
        );
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = sandbox.lattice(&["completions", shell]);
        assert_eq!(done.code, Some(0), "{shell}: {done:?}");
        for word in ["certificate", "force-release", "audit", "skip-gate"] {
            assert!(done.stdout.contains(word), "{shell} knows no {word}");
        }
    }
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
