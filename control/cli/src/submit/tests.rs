//! Requests made from command lines, with and without a script.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use clap::{Command, FromArgMatches as _, error::ErrorKind};
use lattice_api::problem::{Kind, Problem, Violation};

fn read(words: &[&str]) -> Result<SubmitArgs, clap::Error> {
    let command = SubmitArgs::augment_args(Command::new("submit").no_binary_name(true));
    SubmitArgs::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// Writes a script into a folder that is removed when the returned value is dropped.
fn script(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.sh");
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap().to_owned();
    (folder, file)
}

fn asked(words: &[&str]) -> Result<SubmitInput, String> {
    read(words)
        .unwrap()
        .read_input()
        .map_err(|failure| failure.text)
}

fn request(words: &[&str]) -> Result<AllocationRequest, String> {
    let args = read(words).unwrap();
    let asked = args.read_input().map_err(|failure| failure.text)?;
    asked
        .check_request(&args.said)
        .map_err(|failure| failure.text)
}

#[test]
fn a_script_is_a_file_with_arguments_or_a_flag() {
    let text = "#!/bin/sh\n#SBATCH -A atlas/web -N 2\n./run\n";
    let (_folder, file) = script(text);
    let asked = request(&["-N", "3", &file, "-N", "9", "--", "--fast", "x"]).unwrap();
    assert_eq!((asked.project.as_str(), asked.nodes), ("atlas/web", 3));
    assert_eq!(asked.argv, ["-N", "9", "--", "--fast", "x"]);
    assert_eq!(asked.script.as_deref(), Some(text));
    assert_eq!(asked.name.as_deref(), Some("job.sh"));
    let asked = request(&["--script", &file, "--walltime", "1h"]).unwrap();
    assert_eq!((asked.nodes, asked.argv, asked.name), (2, Vec::new(), None));
    assert_eq!(asked.walltime.as_deref(), Some("1h"));
    let asked = request(&["--name", "fit", "-p", "b", &file]).unwrap();
    assert_eq!(
        (asked.name.as_deref(), asked.project.as_str()),
        (Some("fit"), "b")
    );
}

#[test]
fn refusal_names_the_flag_of_a_constraint() {
    for (field, refusal, text) in [
        (
            "constraints.gpu_models",
            "constraints.gpu_models: no node",
            "--gpu-model: no node",
        ),
        (
            "constraints.nodelist",
            "constraints.nodelist: 1 node",
            "--nodelist: 1 node",
        ),
        (
            "constraints",
            "constraints.nodelist: 1",
            "constraints.nodelist: 1",
        ),
        ("name", "name: too long", "name: too long"),
        ("constraints.memory_bytes", "no node", "no node"),
    ] {
        assert_eq!(with_flag(refusal, field), text);
    }
}

#[test]
fn value_of_a_short_option_may_be_in_its_word() {
    let (_folder, file) = script("#!/bin/sh\ntrue\n");
    for last in [&[file.as_str(), "-N9"] as &[&str], &["--", "./run", "-N9"]] {
        let words = [&["lattice", "submit", "-N3", "-t1h", "-pa/web"][..], last].concat();
        let words = words.into_iter().map(std::ffi::OsString::from).collect();
        let command = crate::read_arguments(words).map(|cli| cli.command);
        let Ok(crate::Command::Cluster(crate::ClusterCommand::Submit(args))) = command else {
            panic!("{last:?} is another command");
        };
        let input = args.read_input().map_err(|failure| failure.text).unwrap();
        let request = input.check_request(&args.said);
        let request = request.map_err(|failure| failure.text).unwrap();
        assert_eq!((request.nodes, request.project.as_str()), (3, "a/web"));
        assert_eq!(request.argv.last().map(String::as_str), Some("-N9"));
    }
}

#[test]
fn a_command_is_behind_the_dashes() {
    let asked = request(&["-p", "a", "--", "job.sh", "-N", "4", "--", "x"]).unwrap();
    assert_eq!(asked.argv, ["job.sh", "-N", "4", "--", "x"]);
    assert_eq!((asked.nodes, asked.script, asked.name), (1, None, None));
}

#[test]
fn what_is_missing_or_too_much_is_named() {
    let (_folder, file) = script("#!/bin/sh\n#SBATCH -N 2\ntrue\n");
    let why = request(&[&file]).unwrap_err();
    assert!(
        why.starts_with("--project: name the project whose limits apply"),
        "{why}"
    );
    for (words, why) in [
        (&["nosuch.sh"] as &[&str], "a command is written after --"),
        (
            &["--nodez", "4", "--", "true"],
            "unknown option \"--nodez\"; did you mean --nodes? (see",
        ),
        (&["--nodez", "4", &file], "did you mean --nodes?"),
        (&["-Z"], "unknown option \"-Z\""),
    ] {
        let error = request(words).unwrap_err();
        assert!(error.contains(why), "{words:?}: {error}");
    }
    for (words, kind) in [
        (&["-p", "a"] as &[&str], ErrorKind::MissingRequiredArgument),
        (&["--script", &file, &file], ErrorKind::ArgumentConflict),
        (
            &["--script", &file, "--", "true"],
            ErrorKind::ArgumentConflict,
        ),
        (&["--nodes", "x", "--", "true"], ErrorKind::ValueValidation),
        (&["--env", "x", "--", "true"], ErrorKind::ValueValidation),
        (
            &["-N", "1", "-N", "2", "--", "true"],
            ErrorKind::ArgumentConflict,
        ),
    ] {
        assert_eq!(
            read(words).err().map(|error| error.kind()),
            Some(kind),
            "{words:?}"
        );
    }
    let (_other, program) = script("");
    fs::write(&program, [0x7f, b'E', b'L', b'F', 0xff]).unwrap();
    let why = request(&[&program]).unwrap_err();
    assert!(
        why.contains("it is not text; a program is written after --"),
        "{why}"
    );
}

#[test]
fn error_names_line() {
    let (_folder, file) =
        script("#!/bin/sh\n#SBATCH -A atlas//web\n#LATTICE --walltime soon\ntrue\n");
    let usage = |words: &[&str]| request(words).unwrap_err();
    let why = usage(&[&file]);
    let [heading, account, walltime] = why.lines().collect::<Vec<_>>()[..] else {
        panic!("{why}")
    };
    assert_eq!(heading, "not submitted: 2 errors");
    assert!(account.starts_with(&format!("{file}:2: #SBATCH --account: project path")));
    assert!(walltime.starts_with(&format!("{file}:3: #LATTICE --walltime: \"soon\" is not")));
    let why = usage(&["-p", "a", &file]);
    assert!(
        why.starts_with(&format!("{file}:3: #LATTICE --walltime: \"soon\" is not")),
        "{why}"
    );
    let why = usage(&["-p", "a", "-t", "later", &file]);
    assert!(why.starts_with("--walltime: \"later\" is not"), "{why}");
    let (_other, file) = script("#!/bin/sh\n#SBATCH --qos=a\n#SBATCH --nice\n");
    let why = request(&[&file]).unwrap_err();
    let lines: Vec<&str> = why.lines().collect();
    let begins = [
        "not submitted: 3 errors",
        "--project: name the project",
        &format!("{file}:2: #SBATCH --qos: "),
        &format!("{file}:3: #SBATCH --nice: "),
    ];
    assert_eq!(lines.len(), begins.len(), "{why}");
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "{why}");
    }
}

/// The first error is the one that the others depend on: such a file is not read any further.
#[test]
fn file_that_is_not_a_script_is_refused_before_its_options() {
    let why = |text: &str| {
        let (_folder, file) = script(text);
        let why = request(&[&file]).unwrap_err();
        assert_eq!(why.lines().count(), 1, "{why}");
        why.replace(&file, "job.sh")
    };
    for text in ["", "\n  \n", "\r\n"] {
        let why = why(text);
        assert!(
            why.starts_with("script job.sh: it is empty; write"),
            "{why}"
        );
    }
    for text in [
        "hostname\n",
        "#SBATCH -A a\ntrue\n",
        "#!\ntrue\n",
        " #!/bin/sh\n",
    ] {
        let why = why(text);
        let start = "script job.sh:1: it does not begin with #! and the path of an interpreter";
        assert!(why.starts_with(start), "{text}: {why}");
    }
    for (text, line) in [
        ("#!/bin/bash\r\n#SBATCH -A a\r\ntrue\r\n", 1),
        ("#!/bin/bash\n#SBATCH -A a\r\ntrue\n", 2),
        ("true\r\n", 1),
        ("#!/bin/bash\n#SBATCH -A a\n\ntrue\r\n", 4),
    ] {
        let why = why(text);
        let start = format!("script job.sh:{line}: it has DOS line endings");
        assert!(why.starts_with(&start), "{text}: {why}");
        assert!(why.ends_with(r"sed -i 's/\r$//' FILE"), "{why}");
    }
    let mark = why("\u{feff}#!/bin/sh\ntrue\n");
    assert!(mark.contains("byte-order mark"), "{mark}");
    let (_folder, file) = script("#! /usr/bin/env python3\nprint(1)\n");
    request(&["-p", "a", &file]).unwrap();
}

#[test]
fn note_names_options_that_go_to_the_script() {
    let (_folder, file) = script("#!/bin/sh\ntrue\n");
    let note = |after: &[&str]| {
        let words = [&["-p", "a", file.as_str()][..], after].concat();
        read(&words).unwrap().passed_note()
    };
    assert_eq!(
        note(&["--dry-run"]).unwrap(),
        "--dry-run comes after the script and is passed to it"
    );
    assert_eq!(
        note(&["--dry-run", "-N", "2", "input"]).unwrap(),
        "--dry-run, -N 2 come after the script and are passed to it"
    );
    assert_eq!(
        note(&["in", "--walltime=1h", "-N4", "-o", "json", "--context"]).unwrap(),
        "--walltime=1h, -N4, -o json, --context come after the script and are passed to it"
    );
    for own in [
        &["--fast", "-q", "--steps", "100", "-5", "-", "x=-N"] as &[&str],
        &["--", "--dry-run"],
        &[],
    ] {
        assert_eq!(note(own), None, "{own:?}");
    }
    // A command has no such note: everything after -- belongs to it.
    assert_eq!(
        read(&["--", "job", "--dry-run"]).unwrap().passed_note(),
        None
    );
}

/// Mistakes in single lines, and mistakes that only the server's rules find, are reported together.
#[test]
fn reports_all_errors_at_once() {
    let (_folder, file) = script(
        "#!/bin/sh\n#SBATCH --array=0-9%0\n#LATTICE --class 11\n#LATTICE --deadline yesterdayish\n\
         #SBATCH --dependency=afterok:\n#SBATCH --mem=4X\n#SBATCH --begin=\n#LATTICE -p a\ntrue\n",
    );
    let why = request(&["--reservation", "", &file]).unwrap_err();
    let places: Vec<&str> = why
        .lines()
        .map(|line| line.strip_prefix(&*file).unwrap_or(line))
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    assert_eq!(
        places,
        [
            "not submitted",
            "--reservation",
            ":2",
            ":3",
            ":4",
            ":5",
            ":6",
            ":7",
        ],
        "{why}"
    );
}

#[test]
fn what_is_given_and_empty_is_refused() {
    for flag in [
        "--name",
        "--vcluster",
        "--walltime",
        "--nodelist",
        "--exclude",
        "--array",
        "--dependency",
        "--begin",
        "--deadline",
        "--reservation",
        "--chdir",
        "--checkpoint-time",
        "--feature",
        "--gpu-model",
        "--output",
        "--error",
    ] {
        let why = request(&["-p", "a", flag, "", "--", "true"]).unwrap_err();
        assert!(why.starts_with(&format!("{flag}: ")), "{flag}: {why}");
    }
}

#[test]
fn warns_that_script_runs_on_every_node() {
    let (_folder, file) = script("#!/bin/sh\n#SBATCH -A a -N 2\ntrue\n");
    let notes = |words: &[&str]| asked(words).unwrap().notes();
    let has = |words: &[&str], what: &str| notes(words).iter().any(|note| note.contains(what));
    assert!(has(&[&file], "on each of the 2 nodes"));
    assert!(has(&[&file], "in your home directory"));
    assert_eq!(notes(&["-N", "1", "--chdir", "/scratch", &file]), [""; 0]);
    let (_other, file) = script("#!/bin/sh\n#LATTICE -p a -N 2\ntrue $SLURM_JOB_ID\n");
    assert_eq!(notes(&[&file]), [""; 0]);
}

#[test]
fn warns_of_slurm_times_and_variables() {
    let notes = |text: &str, more: &[&str]| {
        let (_folder, file) = script(&format!("#!/bin/sh\n{text}"));
        let words = [more, &["--chdir", "/scratch", file.as_str()]].concat();
        asked(&words).unwrap().notes()
    };
    let begins = |at: &str| format!("#SBATCH -A a --begin={at}\ntrue\n");
    for (at, more, count) in [
        ("16:00", &[] as &[&str], 1),
        ("2026-12-01T08:00", &[], 1),
        ("2026-12-01T08:00+01:00", &[], 0),
        ("now+1hour", &[], 0),
    ] {
        let warnings = notes(&begins(at), more);
        assert_eq!(warnings.len(), count, "{at}: {warnings:?}");
    }
    assert!(notes(&begins("16:00"), &[])[0].contains("--begin=16:00 is UTC"));
    let warnings = notes(
        "#SBATCH -A a\n# $SLURM_CPUS\nrun --of=${SLURM_ARRAY_TASK_ID}\n",
        &[],
    );
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("the script uses SLURM_ARRAY_TASK_ID, which"));
}

#[test]
fn where_checkpoints_go_may_stand_on_another_line_than_how() {
    let (_folder, file) = script(
        "#!/bin/sh\n#LATTICE -p a --checkpoint signal\n#LATTICE --checkpoint-dir /c\ntrue\n",
    );
    let directory = |words: &[&str]| request(words).unwrap().checkpoint.unwrap().directory;
    assert_eq!(directory(&[&file]).as_deref(), Some("/c"));
    assert_eq!(
        directory(&["--checkpoint-dir", "/d", &file]).as_deref(),
        Some("/d")
    );
    let (_other, file) = script("#!/bin/sh\n#LATTICE -p a\n#LATTICE --checkpoint-dir /c\ntrue\n");
    let why = request(&[&file]).unwrap_err();
    assert!(
        why.starts_with(&format!(
            "{file}:3: #LATTICE --checkpoint-dir: give --checkpoint too"
        )),
        "{why}"
    );
}

#[test]
fn wait_for_limit_is_a_flag_of_line_and_script() {
    let on_limit = |words: &[&str]| request(words).unwrap().on_limit;
    let wait = Some("wait".to_owned());
    let reject = Some("reject".to_owned());
    assert_eq!(on_limit(&["-p", "a", "--", "true"]), None);
    assert_eq!(
        on_limit(&["-p", "a", "--wait-for-limit", "--", "true"]),
        wait
    );
    assert_eq!(
        on_limit(&["-p", "a", "--wait-for-limit=false", "--", "true"]),
        reject
    );
    let (_folder, file) = script("#!/bin/sh\n#LATTICE -p a --wait-for-limit\ntrue\n");
    assert_eq!(on_limit(&[&file]), wait);
    assert_eq!(on_limit(&["--wait-for-limit=false", &file]), reject);
    // The flag takes no separate word, so a script may follow it.
    let (_other, file) = script("#!/bin/sh\n#LATTICE -p a\ntrue\n");
    assert_eq!(on_limit(&["--wait-for-limit", &file]), wait);
}

#[test]
fn refusal_names_wait_for_limit_where_it_helps() {
    let refused = |code, requested, limit| {
        let mut problem = Problem::new(Kind::Conflict, code, "allocation rejected");
        problem.violations = vec![Violation {
            path: "acme".to_owned(),
            limit_name: "max_nodes".to_owned(),
            current: 2,
            requested,
            limit,
        }];
        ClientError::Refused(Box::new(problem))
    };
    for code in ["limit_exceeded", "sensitive_pool"] {
        assert!(wait_note(&refused(code, 3, 4)).is_some(), "{code}");
        assert_eq!(wait_note(&refused(code, 5, 4)), None, "{code}");
    }
    let other = Problem::new(Kind::Conflict, "paused", "the project is paused");
    assert_eq!(wait_note(&ClientError::Refused(Box::new(other))), None);
}

/// Fields that the rules of the API or of control can reject.
#[test]
fn a_field_is_named_by_a_flag_that_there_is() {
    let command = SubmitArgs::augment_args(Command::new("submit"));
    let is_flag = |name: &str| command.get_arguments().any(|a| a.get_long() == Some(name));
    for field in [
        "project",
        "nodes",
        "vcluster",
        "walltime",
        "class",
        "requeue",
        "output",
        "error",
        "working_dir",
        "data_ready",
        "checkpoint_time",
        "storage_gb_s",
        "on_limit",
        "script",
        "constraints.gpu_models",
        "constraints.gpus_per_node",
        "constraints.memory_bytes",
        "constraints.features",
        "constraints.nodelist",
        "constraints.exclude",
        "constraints.spread",
    ] {
        let flag = flag(field);
        assert!(is_flag(&flag), "{field} would be --{flag}");
    }
}
