//! Captured hosts are compared without a cluster.

use crate::common;
use crate::common::Sandbox;
use lattice_hwprobe::{
    Host, NvmlSource,
    capture::{Privacy, archive, capture},
};
use std::{fs, path::PathBuf, process::Command};

fn tree(name: &str) -> PathBuf {
    let hosts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
    hosts.join(name)
}

fn lattice(sandbox: &Sandbox, args: &[&str], roots: &[&PathBuf]) -> common::CommandResult {
    let roots = roots.iter().map(|root| root.to_str().unwrap());
    sandbox.lattice(&args.iter().copied().chain(roots).collect::<Vec<_>>())
}

#[test]
fn trees_are_compared_key_by_key_grouped_and_held_against_their_majority() {
    let sandbox = Sandbox::new();
    let trees = ["gpu001", "gpu002", "gpu003", "gpu005"].map(tree);
    let all: Vec<_> = trees.iter().collect();
    let diff = lattice(&sandbox, &["host", "diff", "-o", "json"], &[all[0], all[3]]).json();
    let differing = diff.as_array().unwrap().iter();
    let differing: Vec<_> = differing.filter(|d| d["verdict"] == "differs").collect();
    assert_eq!(differing.len(), 1, "{diff}");
    assert_eq!(differing[0]["key"], "nic.0.firmware");

    let args = ["host", "groups", "--class", "gpu,nic", "-o", "json"];
    let groups = lattice(&sandbox, &args, &all).json();
    let sizes = groups["groups"].as_array().unwrap().iter();
    let sizes: Vec<_> = sizes
        .map(|g| g["nodes"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [3, 1], "{groups}");

    let drift = lattice(&sandbox, &["host", "drift", "-o", "json"], &all).json();
    let drifts = drift["drifts"].as_array().unwrap();
    assert_eq!(drifts.len(), 1, "{drift}");
    assert_eq!(
        (&drifts[0]["node"], &drifts[0]["found"]),
        (&"gpu005".into(), &"28.39.2048".into())
    );
}

#[test]
fn swapped_cards_precede_moved_keys() {
    let sandbox = Sandbox::new();
    let (one, other) = (tree("gpu005"), sandbox.path("swapped"));
    let copied = Command::new("cp").arg("-a").args([&one, &other]).status();
    assert!(copied.unwrap().success());
    let firmware = |name: &str| other.join(format!("sys/class/infiniband/{name}/fw_ver"));
    let versions = ["mlx5_6", "mlx5_1"].map(|name| fs::read(firmware(name)).unwrap());
    fs::write(firmware("mlx5_6"), &versions[1]).unwrap();
    fs::write(firmware("mlx5_1"), &versions[0]).unwrap();
    let diff = lattice(&sandbox, &["host", "diff", "-o", "json"], &[&one, &other]).json();
    let of_nics = diff
        .as_array()
        .unwrap()
        .iter()
        .filter(|d| d["class"] == "nic");
    let of_nics: Vec<_> = of_nics.map(|d| [&d["verdict"], &d["key"]]).collect();
    let expected = [
        ["moved", "parts"],
        ["differs", "nic.0.firmware"],
        ["differs", "nic.3.firmware"],
    ];
    assert_eq!(of_nics, expected, "{diff}");
}

#[test]
fn an_archive_is_as_good_as_the_tree_it_was_made_of() {
    let sandbox = Sandbox::new();
    let (made, packed) = (sandbox.path("made"), sandbox.path("gpu001.tar.zst"));
    let host = Host::new(tree("gpu001"), NvmlSource::Disabled);
    capture(&host, &made, Privacy::Mask).unwrap();
    archive::pack(&made, &packed).unwrap();
    let args = [
        "host",
        "groups",
        "--class",
        "nic,kernel,storage",
        "-o",
        "json",
    ];
    let groups = lattice(&sandbox, &args, &[&packed, &made, &tree("gpu002")]).json();
    let groups = groups["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 1, "{groups:?}");
    assert_eq!(groups[0]["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(groups[0]["count"], 3);
    let done = lattice(&sandbox, &["host", "diff"], &[&packed, &tree("gpu005")]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("GPU001 "), "{}", done.stdout);
    assert!(done.stdout.contains("nic.0.firmware"), "{}", done.stdout);
}

/// The name of a tree is text of others: it must not clear or colour the terminal, or reverse a line.
#[test]
fn names_of_others_do_not_control_the_terminal() {
    let sandbox = Sandbox::new();
    let name = "n\u{1b}[31m\u{1b}[2J\u{7}\u{9b}1m\u{202e}x";
    let shown = r"n\u{1b}[31m\u{1b}[2J\u{7}\u{9b}1m\u{202e}x";
    let (evil, other) = (sandbox.path(name), tree("gpu005"));
    common::copy_tree(&tree("gpu001"), &evil);
    let is_unsafe = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
    let run = |args: &[&str], roots: &[&PathBuf]| {
        let done = lattice(&sandbox, args, roots);
        for text in [&done.stdout, &done.stderr] {
            assert!(!text.contains(is_unsafe), "{args:?}: {text:?}");
        }
        done
    };
    let groups = ["host", "groups", "--class", "nic", "-o"];
    for format in ["table", "wide", "csv"] {
        let done = run(&[&groups[..], &[format]].concat(), &[&evil, &other]);
        assert!(done.stdout.contains(shown), "{format}: {}", done.stdout);
        let diff = run(&["host", "diff", "-o", format], &[&evil, &other]);
        assert_eq!(diff.code, Some(0), "{diff:?}");
        assert!(diff.stdout.contains("nic.0.firmware"), "{}", diff.stdout);
    }
    // Documents have the exact name.
    let done = run(&[&groups[..], &["json"]].concat(), &[&evil, &other]);
    let json = done.json();
    let mut groups_found = json["groups"].as_array().unwrap().iter();
    assert!(
        groups_found.any(|group| group["nodes"][0] == name),
        "{json}"
    );
    let done = run(&[&groups[..], &["yaml"]].concat(), &[&evil, &other]);
    let yaml: serde_json::Value = serde_yaml_ng::from_str(&done.stdout).unwrap();
    assert_eq!(yaml, json);
    // Failures, messages, and errors of the command line.
    let gone = sandbox.path(&format!("gone {name}"));
    let failed = run(&["host", "groups"], &[&gone]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains(shown), "{}", failed.stderr);
    let alone = run(&["host", "drift"], &[&evil]);
    assert!(alone.stderr.contains(shown), "{}", alone.stderr);
    let usage = run(&["host", name], &[]);
    assert_eq!(usage.code, Some(2), "{usage:?}");
    assert!(usage.stderr.contains(shown), "{}", usage.stderr);
}

#[test]
fn what_is_no_host_is_refused_and_showing_one_is_the_agents() {
    let sandbox = Sandbox::new();
    let nothing = sandbox.path("nothing");
    let done = lattice(&sandbox, &["host", "groups"], &[&nothing]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("neither a folder nor an archive"),
        "{done:?}"
    );
    let text = sandbox.path("text");
    std::fs::write(&text, "no archive").unwrap();
    let done = lattice(&sandbox, &["host", "groups"], &[&text]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("cannot be unpacked"), "{done:?}");
    for gone in ["show", "capture"] {
        assert_eq!(sandbox.lattice(&["host", gone]).code, Some(2));
    }
}
