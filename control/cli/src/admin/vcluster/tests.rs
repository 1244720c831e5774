//! Requests made from command lines, mistakes in them, and the display of a vCluster.
#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use clap::{Command, Parser};
use lattice_api::scheduler::PROFILES;
use serde_json::{Value, json};

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: VclusterCommand,
}

fn asked(line: &str) -> Result<Value, String> {
    let words = std::iter::once("vcluster").chain(line.split(' '));
    let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
    match line.command {
        VclusterCommand::Set(args) => {
            let request = args.request().map_err(|error| error.to_string())?;
            Ok(serde_json::to_value(request).unwrap())
        }
        VclusterCommand::SetWeights(args) => {
            Ok(serde_json::to_value(args.request().unwrap()).unwrap())
        }
        _ => Err("it is no set".to_owned()),
    }
}

/// A file of settings has the report of a configuration file.
#[test]
fn weights_file_reports_all_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.yaml");
    std::fs::write(
        &path,
        "profil: ml\nweights: {energy: much, wait_tim: 1}\nreservations: some\n",
    )
    .unwrap();
    let line = format!("vcluster set-weights ml --from {}", path.display());
    let VclusterCommand::SetWeights(args) = Line::try_parse_from(line.split(' ')).unwrap().command
    else {
        panic!("another command")
    };
    let failure = args.request().unwrap_err();
    assert_eq!(failure.code, 2);
    let text = failure.to_string();
    for part in [
        " has 4 mistakes:\n  ",
        "weights.energy: must be a number, not the text \"much\"",
        "weights.wait_tim: unknown key; did you mean weights.wait_time?",
        "reservations: it must be a whole number from 0 to 4294967295, or \"all\"",
        "profil: unknown key; did you mean profile?",
    ] {
        assert!(text.contains(part), "{part}\nis missing in: {text}");
    }
}

#[test]
fn what_is_not_named_is_not_asked_for() {
    for (line, body) in [
        ("set ml", json!({})),
        ("set ml --tenants a,b", json!({"tenants": ["a", "b"]})),
        ("set ml --all-tenants", json!({"tenants": null})),
        ("set ml --no-tenants", json!({"tenants": []})),
        (
            "set ml --reservations 64 --reference-wait 2h",
            json!({"scheduler": {"reservations": 64, "reference_wait_s": 7200.0}}),
        ),
        (
            "set ml --reservations all",
            json!({"scheduler": {"reservations": "all"}}),
        ),
        (
            "set ml --checkpoint-bandwidth 200",
            json!({"scheduler": {"checkpoint_gb_s": 200.0}}),
        ),
        (
            "set ml --no-checkpoint-bandwidth",
            json!({"scheduler": {"checkpoint_gb_s": null}}),
        ),
        (
            "set-weights ml --profile ml-training --energy 0",
            json!({"scheduler": {"profile": "ml-training", "weights": {"energy": 0.0}}}),
        ),
        (
            "set ml --set preemption.patience_s=0.5 --set sharing.allow_lending=false --unset scaling.calm_s",
            json!({"movement": {
                "preemption": {"patience_s": 0.5},
                "sharing": {"allow_lending": false},
                "scaling": {"calm_s": null}
            }}),
        ),
        (
            "set ml --set checkpoint.timeout_s=20m",
            json!({"movement": {"checkpoint": {"timeout_s": 1200.0}}}),
        ),
        (
            "set ml --description night --expected-version 0",
            json!({"description": "night", "expected_version": 0}),
        ),
    ] {
        assert_eq!(asked(line).unwrap(), body, "{line}");
    }
    assert!(asked("set ml --tenants a --all-tenants").is_err());
    assert!(asked("set ml --reservations many").is_err());
    assert!(asked("set ml --checkpoint-bandwidth 1 --no-checkpoint-bandwidth").is_err());
    for line in [
        "set ml --set sharing",
        "set ml --set sharing.lending_limit=",
    ] {
        assert!(asked(line).is_err(), "{line}");
    }
    let none = asked("set-weights ml").unwrap_err();
    let each = "<--priority <WEIGHT>|--wait-time <WEIGHT>|";
    assert!(none.contains(each), "{none}");
}

#[test]
fn each_weight_has_flag_and_kind() {
    for name in WEIGHTS {
        let line = format!("set-weights ml --{} 0.5", name.replace('_', "-"));
        let body = json!({"scheduler": {"weights": {name: 0.5}}});
        assert_eq!(asked(&line).unwrap(), body, "{line}");
    }
    let command = WeightsArgs::augment_args(Command::new("set-weights"));
    let profile = command.get_arguments().find(|a| a.get_id() == "profile");
    let help = profile.unwrap().get_help().unwrap().to_string();
    for kind in PROFILES {
        assert!(help.contains(kind), "{kind}: {help}");
    }
}

#[test]
fn what_is_wrong_is_named_by_its_flag() {
    for (line, flag) in [
        ("set ml --tenants a@b", "--tenants: "),
        ("set ml --reference-wait 400d", "--reference-wait: "),
        (
            "set ml --checkpoint-bandwidth=-1",
            "--checkpoint-bandwidth: ",
        ),
        (
            "set ml --set preemption.patience_s=-1",
            "--set preemption.patience_s: -1 s is out of range; it must be from 0 to 31622400 s",
        ),
        (
            "set ml --set sharing.lending_limits=1",
            "--set sharing.lending_limits: unknown setting; did you mean sharing.lending_limit?",
        ),
        (
            "set ml --set scaling.retries=1 --unset scaling.retries",
            "--unset scaling.retries: the setting is given twice",
        ),
        ("set ml --unset nope", "--unset nope: unknown setting; "),
        (
            "set-weights ml --wait-time 2e6",
            "--wait-time: it is 2000000.0; ",
        ),
        (
            "set-weights ml --profile HPC",
            "--profile: \"HPC\" is not one of hpc-batch, ",
        ),
    ] {
        let words = std::iter::once("vcluster").chain(line.split(' '));
        let request = match Line::try_parse_from(words).unwrap().command {
            VclusterCommand::Set(args) => args.request().map_err(usage),
            VclusterCommand::SetWeights(args) => args.request(),
            _ => panic!("{line}"),
        };
        let refused = request.and_then(check_request).unwrap_err();
        assert!(refused.text.starts_with(flag), "{line}: {refused}");
    }
}

/// Default settings, except for two.
fn movement() -> MovementView {
    serde_json::from_value(json!({
        "preemption": {
            "enabled": true, "max_victims": 3, "patience_s": 0.5,
            "near_completion_threshold_s": 300.0, "thrash_interval_s": 900.0, "thrash_count": 3,
            "only_borrowed": false
        },
        "sharing": {
            "allow_lending": true, "lending_limit": null, "allow_borrowing": true,
            "borrowing_limit": 4, "return_grace_s": 60.0
        },
        "checkpoint": {
            "timeout_s": 600.0, "min_interval_s": 300.0, "max_interval_s": 21600.0,
            "sensitive_timeout_s": 900.0, "sensitive_min_interval_s": 600.0,
            "sensitive_max_interval_s": 3600.0, "max_deferral_s": 300.0, "max_deferral_count": 3
        },
        "scaling": {
            "threshold": 0.5, "evaluation_s": 60.0, "up_window_s": 120.0, "down_window_s": 300.0,
            "cooldown_s": 180.0, "missing_alert": 3, "retries": 3, "backoff_cooldowns": 2,
            "oscillation_alert": 5, "calm_s": 3600.0
        },
        "set": ["preemption.patience_s", "sharing.borrowing_limit"],
        "unread": []
    }))
    .unwrap()
}

#[test]
fn how_work_is_moved_is_shown_with_what_is_set() {
    let shown: Vec<_> = movement_lines(&movement()).collect();
    assert_eq!(shown.len(), lattice_api::movement::SETTINGS.len());
    let (set, usual): (Vec<_>, Vec<_>) =
        shown.iter().partition(|(_, text)| text.ends_with(" (set)"));
    let texts = |rows: &[&(&'static str, String)]| -> Vec<String> {
        rows.iter()
            .map(|(name, text)| format!("{name} {text}"))
            .collect()
    };
    assert_eq!(
        texts(&set),
        [
            "preemption.patience_s 0.5 (set)",
            "sharing.borrowing_limit 4 (set)"
        ]
    );
    let usual = texts(&usual);
    for line in [
        "preemption.max_victims 3 (default)",
        "sharing.lending_limit no limit (default)",
        "checkpoint.max_interval_s 21600 (default)",
        "scaling.threshold 0.5 (default)",
    ] {
        assert!(usual.iter().any(|text| text == line), "{line}: {usual:?}");
    }
}

#[test]
fn unreported_element_is_shown_as_unknown() {
    let view = VclusterView {
        name: "default".to_owned(),
        description: String::new(),
        tenants: None,
        usable: true,
        version: 0,
        nodes: "gpu[001-024]".to_owned(),
        node_count: 24,
        lent: String::new(),
        borrowed: String::new(),
        scheduler: serde_json::from_value(json!({
            "weights": {
                "priority": 0.2, "wait_time": 0.2, "fair_share": 0.2, "topology": 0.15,
                "data_ready": 0.1, "backlog": 0.05, "energy": 0.0, "checkpoint": 0.0,
                "conformance": 0.1
            },
            "weights_sum": 1.0,
            "reference_wait_s": 3600.0,
            "reservations": 1,
            "checkpoint_gb_s": null
        }))
        .unwrap(),
        movement: movement(),
        scheduled_by: Some("control-1".to_owned()),
        scheduler_epoch: 3,
        revision: lattice_quorum_types::Revision(0),
    };
    let cells = [
        "default",
        "all",
        "24",
        "-",
        "-",
        "gpu[001-024]",
        "not set",
        "control-1 (epoch 3)",
        "-",
    ];
    assert_eq!(row(&view), cells);
    let columns = COLUMNS.narrow.len() + COLUMNS.wide.len();
    assert_eq!(columns, cells.len());
    for (usable, said) in [(true, "others"), (false, "none")] {
        let view = VclusterView {
            tenants: Some(Vec::new()),
            usable,
            ..view.clone()
        };
        assert_eq!(tenants(&view), said);
    }
}
