//! Translation of every option of sbatch, and of every sample script.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use clap::{Args as _, Command, FromArgMatches as _};
use std::{collections::BTreeSet, env, fs, path::Path};

/// Returns the flags of a command line.
fn said(line: &str) -> CommandLineFlags {
    let command = CommandLineFlags::augment_args(Command::new("submit").no_binary_name(true));
    let words = line.split_whitespace();
    CommandLineFlags::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
}

/// Returns the flags, or all mistakes, one per line.
fn judged(file: &str, text: &str, outside: &ScriptContext<'_>) -> Result<Vec<Directive>, String> {
    let header = super::read(text, outside);
    let faults = header.faults.iter();
    let faults: Vec<String> = faults.map(|fault| format!("{file}:{fault}")).collect();
    match faults.is_empty() {
        true => Ok(header.directives),
        false => Err(faults.join("\n")),
    }
}

fn read(text: &str, said: &CommandLineFlags) -> Result<Vec<Directive>, String> {
    let (file, name) = ("job.sh", Some("job.sh"));
    judged(
        file,
        text,
        &ScriptContext {
            name,
            command_line: said,
        },
    )
}

/// Returns the words that Slurm's options translate to, or the first mistake.
fn slurm(options: &str) -> Result<String, String> {
    let text = format!("#!/bin/sh\n#SBATCH {options}\ntrue\n");
    match read(&text, &said("")) {
        Ok(all) => Ok(all
            .into_iter()
            .flat_map(|one| one.given.words)
            .collect::<Vec<_>>()
            .join(" ")),
        Err(error) => Err(error.to_string()),
    }
}

#[track_caller]
fn becomes(options: &str, words: &str) {
    assert_eq!(slurm(options).as_deref(), Ok(words), "{options}");
}

#[track_caller]
fn refused(options: &str, option: &str, why: &str) {
    let error = slurm(options).unwrap_err();
    let begin = format!("job.sh:2: #SBATCH {option}: ").replace(" : ", ": ");
    assert!(error.starts_with(&begin), "{options}: {error}");
    assert!(error.contains(why), "{options}: {error}");
}

#[test]
fn common_options_become_flags() {
    for (options, words) in [
        ("-N 4", "--nodes=4"),
        ("--nodes=4", "--nodes=4"),
        ("--nodes 4", "--nodes=4"),
        ("-N4", "--nodes=4"),
        ("-J x", "--name=x"),
        ("--job-name='two words'", "--name=two words"),
        ("-p ml", "--vcluster=ml"),
        ("-A atlas/web.v2", "--project=atlas/web.v2"),
        ("-H", "--hold"),
        ("-HN4", "--hold --nodes=4"),
        ("--requeue", "--requeue=always"),
        ("--no-requeue", "--requeue=never"),
        ("-x gpu[1-2]", "--exclude=gpu[1-2]"),
        ("-D /scratch/a", "--chdir=/scratch/a"),
        ("-C ib", "--feature=ib"),
        ("-C 'ib&nvme'", "--feature=ib --feature=nvme"),
        ("--export=NONE", ""),
        ("--export=A=b,C=d=e,F=", "--env=A=b --env=C=d=e --env=F="),
        ("--exclusive", ""),
        ("--parsable -Q", ""),
        ("--ignore-pbs", ""),
        ("--mail-type=NONE", ""),
        ("--open-mode=append", ""),
        ("--kill-on-invalid-dep=yes", ""),
        ("--wait-all-nodes=1", ""),
        // Shortened names, as sbatch reads them.
        ("--job=x --acco=y", "--project=y --name=x"),
        ("", ""),
    ] {
        becomes(options, words);
    }
}

#[test]
fn time_limits_are_read_as_slurm_reads_them() {
    for (text, walltime) in [
        ("90", "90m"),
        ("90:00", "90:00"),
        ("02:00:00", "02:00:00"),
        ("1-12", "1-12:00:00"),
        ("1-36", "1-36:00:00"),
        ("1-12:30", "1-12:30:00"),
        ("1-12:30:00", "1-12:30:00"),
        ("0-1", "0-1:00:00"),
        // Minutes and seconds above 59.
        ("00:90:00", "1h30m"),
        ("1:75:00", "2h15m"),
        ("0:300", "5m"),
        ("00:00:5400", "1h30m"),
        ("2-30:90", "3d7h30m"),
        ("1-0:0:3600", "1d1h"),
        ("0-0:90", "1h30m"),
        // Seconds are rounded up to a minute.
        ("90:30", "1h31m"),
        ("0:30", "1m"),
        ("10:75", "12m"),
        ("1-12:30:15", "1d12h31m"),
    ] {
        becomes(&format!("-t {text}"), &format!("--walltime={walltime}"));
        becomes(&format!("--time={text}"), &format!("--walltime={walltime}"));
    }
    for unlimited in ["UNLIMITED", "infinite", "-1", "0", "00:00:00"] {
        becomes(&format!("-t {unlimited}"), "");
    }
    for (text, why) in [
        ("2h", "numbers, colons and one dash only"),
        ("30s", "write minutes, minutes:seconds"),
        ("''", "is not a valid time limit"),
        ("1:2:3:4", "too many colons"),
        ("1-", "whole numbers"),
        ("1-2-3", "whole numbers"),
        ("1::30", "whole numbers"),
        ("1-1:2:3:4", "too many colons"),
        ("99999", "hours"),
        ("9999-0", "longer than ten years"),
        ("99999999999999999999", "longer than ten years"),
        ("0:18446744073709551615", "longer than ten years"),
    ] {
        if text != "99999" {
            refused(&format!("-t {text}"), "--time", why);
        }
    }
    becomes("-t 99999", "--walltime=99999m");
}

#[test]
fn memory_is_that_of_a_node() {
    for (text, memory) in [
        ("16000", "16000MiB"),
        ("16G", "16384MiB"),
        ("16GB", "16384MiB"),
        ("16g", "16384MiB"),
        ("2T", "2097152MiB"),
        ("500M", "500MiB"),
        ("1500K", "2MiB"),
    ] {
        becomes(&format!("--mem={text}"), &format!("--memory={memory}"));
    }
    // 0 means all memory of a node.
    becomes("--mem=0", "");
    for text in [
        "16GiB",
        "G",
        "-1",
        "1.5G",
        "16P",
        "99999999999999999999",
        "99999999999999999T",
        "B",
    ] {
        refused(
            &format!("--mem={text}"),
            "--mem",
            "is not a valid size; write it like 512G",
        );
    }
}

#[test]
fn gpus_are_counted_by_nodes() {
    for (options, words) in [
        ("--gres=gpu", "--gpus-per-node=1"),
        ("--gres=gpu:4", "--gpus-per-node=4"),
        ("--gres=gpu:a100:4", "--gpus-per-node=4 --gpu-model=a100"),
        ("--gres=gpu:a100", "--gpus-per-node=1 --gpu-model=a100"),
        ("--gres=gpu:0", ""),
        ("--gres=none", ""),
        ("--gpus-per-node=4", "--gpus-per-node=4"),
        (
            "--gpus-per-node=h100:4",
            "--gpus-per-node=4 --gpu-model=h100",
        ),
        ("--gpus-per-task=2", "--gpus-per-node=2"),
        ("-G 2", "--gpus-per-node=2"),
        ("-N 4 -G 16", "--gpus-per-node=4 --nodes=4"),
        (
            "-N 2 --gpus=v100:2",
            "--gpus-per-node=1 --gpu-model=v100 --nodes=2",
        ),
        (
            "-w n[1-4] -G 4",
            "--gpus-per-node=1 --nodelist=n[1-4] --nodes=4",
        ),
        // The same request, given twice.
        (
            "-N 2 -G 8 --gres=gpu:4 --gpus-per-node=4",
            "--gpus-per-node=4 --nodes=2",
        ),
    ] {
        becomes(options, words);
    }
    for (options, option, why) in [
        (
            "-N 4 -G 6",
            "--gpus",
            "6 GPUs on 4 nodes: each node needs the same number",
        ),
        ("-G a100:1,v100:1", "--gpus", "several models together"),
        ("-G a100", "--gpus", "is not a valid number of GPUs"),
        ("-G :4", "--gpus", "is not a valid number of GPUs"),
        ("-G a:b:4", "--gpus", "is not a valid number of GPUs"),
        (
            "--gpus-per-node=-1",
            "--gpus-per-node",
            "is not a valid number of GPUs",
        ),
        (
            "--gres=nvme:1",
            "--gres",
            "\"nvme:1\": GPUs are the only such resource",
        ),
        (
            "--gres=gpu:2,nvme:1",
            "--gres",
            "\"nvme:1\": GPUs are the only",
        ),
        (
            "--gres=gpu:a100:1,gpu:v100:1",
            "--gres",
            "several models together",
        ),
        ("--gres=gpu:", "--gres", "write it like gpu:4"),
        (
            "--gres=gpu:a100:x",
            "--gres",
            "is not a valid number of GPUs",
        ),
        ("--gres=gpus:4", "--gres", "GPUs are the only such resource"),
        (
            "--gres=gpu:4 --gpus-per-node=8",
            "--gres",
            "conflicts with --gpus-per-node on line 2 (both set --gpus-per-node); remove one of them",
        ),
    ] {
        refused(options, option, why);
    }
}

#[test]
fn nodes_and_processes_are_as_many_as_they_can_be() {
    for (options, words) in [
        ("-n 1", ""),
        ("--tasks-per-node=1", ""),
        ("-N 4 -n 4", "--nodes=4"),
        ("--ntasks-per-node=1", ""),
        ("-c 1", ""),
        ("-w n1,n2", "--nodelist=n1,n2 --nodes=2"),
        ("-w n[1-3] -n 3", "--nodelist=n[1-3] --nodes=3"),
        ("-w n[1-3] -N 3", "--nodelist=n[1-3] --nodes=3"),
    ] {
        becomes(options, words);
    }
    for (options, option, why) in [
        (
            "-N 2-4",
            "--nodes",
            "\"2-4\": a range is not supported; write one number",
        ),
        ("-N 1k", "--nodes", "is not a valid number of nodes"),
        ("-N 99999999999", "--nodes", "invalid value '99999999999'"),
        (
            "-n 4",
            "--ntasks",
            "\"4\" on 1 node: one process is started per node",
        ),
        (
            "-N 2 -n 8",
            "--ntasks",
            "\"8\" on 2 nodes: one process is started",
        ),
        (
            "--ntasks-per-node=8",
            "--ntasks-per-node",
            "one process is started",
        ),
        ("-c 16", "--cpus-per-task", "all processors of its node"),
        (
            "-w n[1-3] -N 4",
            "--nodelist",
            "lists 3 of 4 nodes; sbatch would add further nodes",
        ),
        (
            "-w n[1-3] -N 2",
            "--nodelist",
            "lists 3 nodes, but --nodes is 2",
        ),
        ("-w n[1-", "--nodelist", "']' is missing"),
        ("-w ./nodes", "--nodelist", "no file of nodes is read"),
        ("-x /etc/nodes", "--exclude", "no file of nodes is read"),
    ] {
        refused(options, option, why);
    }
}

#[test]
fn files_are_named_in_our_letters() {
    for (options, words) in [
        ("-o a-%j -e b-%j", "--error=b-%j --output=a-%j"),
        // Both streams go to this file, as in sbatch.
        ("-o a", "--output=a --error=a"),
        ("-e b", "--error=b"),
        (
            "-o %x-%N-%n-%t-100%%",
            "--output=job.sh-%n-%r-%r-100%% --error=job.sh-%n-%r-%r-100%%",
        ),
        ("-e %A/%a-%j", "--error=%A/%a-%j"),
        ("-e %x -J 5%", "--error=5%% --name=5%"),
        ("-o /dev/null", "--output=/dev/null --error=/dev/null"),
    ] {
        becomes(options, words);
    }
    for (pattern, why) in [
        ("%u", "%u: not supported; write the user name"),
        ("%J", "%J: there are no steps"),
        ("%s", "%s: it is not supported"),
        ("%4j", "%4: field widths are not supported"),
        ("x%", "nothing follows its last %"),
        ("'a\\b'", "a backslash is not supported"),
    ] {
        refused(&format!("-e {pattern}"), "--error", why);
    }
    refused("-o %x -J a/b", "--output", "the name has a / in it");
    let text = "#SBATCH -o %x\n";
    let stdin = ScriptContext {
        name: None,
        command_line: &said(""),
    };
    let error = judged("-", text, &stdin).unwrap_err();
    assert!(
        error.starts_with("-:1: #SBATCH --output: \"%x\": %x: the job has no name"),
        "{error}"
    );
    // The name on the command line takes precedence.
    let all = read(text, &said("--name fit")).unwrap();
    assert_eq!(all[0].given.words, ["--output=fit"]);
}

#[test]
fn what_is_not_supported_is_refused_by_its_name() {
    for (options, option, why) in [
        (
            "-C 'a|b'",
            "--constraint",
            "'|' (one of several) is not supported",
        ),
        ("-C a*4", "--constraint", "'*' (a number of nodes)"),
        ("-C [a]", "--constraint", "'[' is not supported"),
        ("-C a,b", "--constraint", "',' is not supported"),
        ("-C !a", "--constraint", "'!' (without a feature)"),
        ("-C 'a&'", "--constraint", "a feature is missing"),
        ("-p a,b", "--partition", "name one of them"),
        ("-D run", "--chdir", "use an absolute path"),
        (
            "--export=ALL",
            "--export",
            "ALL: the variables of the submitting shell are not sent",
        ),
        ("--export=ALL,A=b", "--export", "ALL: "),
        (
            "--export=A",
            "--export",
            "\"A\": its value in the submitting shell is not sent",
        ),
        ("--export==b", "--export", "write NAME=VALUE"),
        (
            "--exclusive=user",
            "--exclusive",
            "\"user\": nodes are always allocated exclusively",
        ),
        (
            "--open-mode=truncate",
            "--open-mode",
            "always opened in append mode",
        ),
        ("--mail-type=ALL", "--mail-type", "no mail is sent"),
        (
            "--kill-on-invalid-dep=no",
            "--kill-on-invalid-dep",
            "a job that can never start is cancelled",
        ),
        (
            "--wait-all-nodes=0",
            "--wait-all-nodes",
            "nodes that are ready",
        ),
        ("--priority=10", "--priority", "#LATTICE --class, 0 to 10"),
        ("--nice", "--nice", "#LATTICE --class"),
        ("--nice=5", "--nice", "#LATTICE --class"),
        ("-q high", "--qos", "#LATTICE --class"),
        ("--mem-per-cpu=4G", "--mem-per-cpu", "write --mem"),
        ("-L matlab", "--licenses", "licences are not counted"),
        ("--signal=USR1@60", "--signal", "catch the SIGTERM"),
        ("-s", "--oversubscribe", "never shared"),
        (
            "--test-only",
            "--test-only",
            "--dry-run on the command line",
        ),
        (
            "--requeue --no-requeue",
            "--requeue",
            "conflicts with --no-requeue on line 2",
        ),
        (
            "--tiem=4",
            "",
            "unknown option \"--tiem\"; did you mean --time?",
        ),
        ("--frobnicate", "", "unknown option \"--frobnicate\""),
        ("-Z", "", "unknown option \"-Z\""),
        ("--nodes", "", "a value is required for '--nodes"),
        ("--hold=yes", "", "unexpected value 'yes' for '--hold'"),
        ("-N 1 -N 2", "", "cannot be used multiple times"),
        ("four", "", "unknown option \"four\""),
        ("--mem=16 G", "", "unknown option \"G\""),
        ("-J 'x", "", "a quote is not closed"),
        ("-J x#y -t 5", "", "# within a word"),
        ("hetjob", "hetjob", "submit each part"),
    ] {
        refused(options, option, why);
    }
}

/// An option is rejected until submit has the corresponding flag.
#[test]
fn what_has_no_flag_yet_is_refused() {
    let command = Flags::command();
    let has = |flag: &str| command.get_arguments().any(|a| a.get_long() == Some(flag));
    for (flag, options) in [
        ("array", "--array=0-99%10"),
        ("begin", "--begin=16:00"),
        ("comment", "--comment=x"),
        ("deadline", "--deadline=now+1hour"),
        ("dependency", "--dependency=afterok:12"),
        ("reservation", "--reservation=night"),
    ] {
        match has(flag) {
            true => becomes(options, options),
            false => refused(
                options,
                &format!("--{flag}"),
                "it is not supported yet; leave it out",
            ),
        }
    }
}

/// Every option, with any value, gives either words or a reason with a hint.
#[test]
fn no_option_is_passed_over() {
    let mut names = BTreeSet::new();
    // Options with a behaviour that is always in effect, for any value.
    let mut always = Vec::new();
    for option in slurm::OPTIONS {
        assert!(names.insert(option.long), "{} is there twice", option.long);
        let value = if option.requires_value() { "=1" } else { "" };
        match slurm(&format!("--{}{value}", option.long)) {
            Ok(words) if words.is_empty() => always.push(option.long),
            Ok(_) => {}
            Err(error) => {
                let at = format!("job.sh:2: #SBATCH --{}: ", option.long);
                let reason = error.strip_prefix(&at).unwrap_or_else(|| panic!("{error}"));
                assert!(reason.len() > 20, "{error}");
            }
        }
    }
    assert_eq!(
        always,
        [
            "cpus-per-task",
            "exclusive",
            "ignore-pbs",
            "ntasks",
            "ntasks-per-node",
            "parsable",
            "quiet",
            "tasks-per-node",
            "wait-all-nodes",
        ]
    );
    assert!(slurm::OPTIONS.is_sorted_by_key(|option| option.long));
}

#[test]
fn the_command_line_wins_over_lattice_and_that_over_sbatch() {
    let text = "#!/bin/sh\n\
                #SBATCH -A a -N 8 -o %x -G 8 -C x -w n[1-8]\n\
                #LATTICE --nodes 4 --feature y --feature z\n\
                #LATTICE --feature q\n";
    let words = |line: &str| {
        let said = said(line);
        let all = read(text, &said).unwrap();
        merge_flags(&all, &said).join(" ")
    };
    assert_eq!(
        words(""),
        "--project=a --gpus-per-node=2 --nodelist=n[1-8] --output=job.sh --error=job.sh --nodes=4 --feature=y \
         --feature=z --feature=q"
    );
    // Flags that accompany an overridden flag are dropped with it.
    assert_eq!(
        words("-N 2 --feature f --output o --name fit"),
        "--project=a --gpus-per-node=4 --nodelist=n[1-8] --nodes=2 --name=fit --feature=f --output=o"
    );
    assert!(words("-w n[1-2]").contains("--nodes=4"));
    assert!(!words("--error e").contains("--error=job.sh"));
    let flags = Flags::read(&["--feature=a b".to_owned(), "--data-ready=-1".to_owned()]).unwrap();
    assert_eq!(flags.features, ["a b"]);
    assert_eq!(flags.nodes, 1);
}

/// Returns the options that a part of the guide lists, in this cell of its tables or in a paragraph.
fn listed(part: &str, cell: usize) -> BTreeSet<&str> {
    let cells = part.lines().map(|line| match line.strip_prefix('|') {
        Some(row) => row.split('|').nth(cell).unwrap_or_default(),
        None => line,
    });
    let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    quoted.filter_map(|text| text.strip_prefix("--")).collect()
}

#[test]
fn the_guide_lists_every_option_and_what_becomes_of_it() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("JOB-SCRIPTS.md");
    let guide = fs::read_to_string(guide).unwrap();
    let (_, options) = guide
        .split_once("## Which options of sbatch are read")
        .unwrap();
    let (taken, refused) = options.split_once("## Which are refused").unwrap();
    let (taken, refused) = (listed(taken, 0), listed(refused, 1));
    for option in slurm::OPTIONS {
        let name = option.long;
        let is_listed = (taken.contains(name), refused.contains(name));
        let value = if option.requires_value() { "=1" } else { "" };
        match is_listed {
            (true, false) => {}
            (false, true) => assert!(slurm(&format!("--{name}{value}")).is_err(), "{name}"),
            _ => panic!("--{name} is listed under (read, refused): {is_listed:?}"),
        }
    }
    assert_eq!(taken.len() + refused.len(), slurm::OPTIONS.len());
    let (_, example) = guide.split_once("```\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    assert_eq!(
        outcome("hello.sh", example),
        "2: #SBATCH --job-name: --name=hello\n\
         3: #SBATCH --account: --project=atlas/physics/simulation\n\
         4: #SBATCH --nodes: --nodes=2\n\
         5: #SBATCH --gres: --gpus-per-node=2\n\
         6: #SBATCH --time: --walltime=10m\n\
         7: #LATTICE --class: --class=6\n\
         8: #LATTICE --env: --env=GREETING=hello from\n"
    );
}

#[test]
fn refuses_unused_lines() {
    for (text, why) in [
        (
            "true\n#SBATCH -N 4",
            "job.sh:2: #SBATCH -N: it is below the first command (line 1)",
        ),
        (
            "true\n\n#LATTICE --hold",
            "job.sh:3: #LATTICE --hold: it is below the first command (line 1)",
        ),
        (
            " #SBATCH -N 4",
            "job.sh:1: #SBATCH -N: must begin in the first column",
        ),
        ("#sbatch -N 4", "must be upper case"),
        ("#Lattice -N 4", "must be upper case"),
        ("#SBATCH-N 4", "put a space before its first option"),
        ("#SBTACH -N 4", "did you mean #SBATCH?"),
        ("#SLURM -N 4", "did you mean #SBATCH?"),
        ("#LATICE -N 4", "did you mean #LATTICE?"),
        ("#PBS -l nodes=4", "add #SBATCH --ignore-pbs"),
        ("#BSUB -n 4", "only #LATTICE and #SBATCH are read"),
        (
            "#!/bin/sh\r\n#SBATCH -N 4\r\ntrue\r\n",
            "job.sh:1: #!/bin/sh: it has a DOS line ending",
        ),
        (
            "cat <<EOF\n#SBATCH -N 4\n",
            "job.sh:2: #SBATCH -N: it is below",
        ),
        (
            "cat <<<EOF\n#SBATCH -N 4\nEOF\n",
            "job.sh:2: #SBATCH -N: it is below",
        ),
    ] {
        let error = read(text, &said("")).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    for text in [
        "",
        "#!/bin/sh",
        "##SBATCH -N 4",
        "# SBATCH -N 4",
        "#SBATCHES are many",
        "#sbatch: how to",
        "#patch - what is this",
        "#$ -N sge",
        "#SBATCH --ignore-pbs\n#PBS -l nodes=4",
        "true\n # SBATCH -N 4\n##SBATCH -N 4",
        "cat <<EOF\n#SBATCH -N 4\nEOF\n",
        "cat <<-'EOF' > a; cat << \"E2\"\n#SBATCH -N 4\n\tEOF\n#LATTICE --hold\nE2\n",
        "true\n#PBS -l nodes=4",
    ] {
        assert_eq!(read(text, &said("")), Ok(Vec::new()), "{text}");
    }
}

/// Returns what was read from a sample, as text.
fn outcome(file: &str, text: &str) -> String {
    let said = said("");
    let name = Some(file);
    let lines: Vec<String> = match judged(
        file,
        text,
        &ScriptContext {
            name,
            command_line: &said,
        },
    ) {
        Ok(all) => all
            .iter()
            .map(|one| format!("{}: {}", one.place(), one.given.words.join(" ")))
            .collect(),
        Err(error) => vec![error],
    };
    lines.join("\n") + "\n"
}

#[test]
fn sample_scripts_match_comments() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/scripts");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let ends = ["sh", "py"];
        if !path
            .extension()
            .is_some_and(|end| ends.iter().any(|known| end == *known))
        {
            continue;
        }
        let file = path.file_name().unwrap().to_str().unwrap();
        let read = outcome(file, &fs::read_to_string(&path).unwrap());
        let expected = path.with_file_name(format!("{file}.expected"));
        if env::var_os("LATTICE_BLESS").is_some() {
            fs::write(&expected, &read).unwrap();
        }
        assert_eq!(read, fs::read_to_string(&expected).unwrap(), "{file}");
        count += 1;
    }
    assert_eq!(count, 8);
}
