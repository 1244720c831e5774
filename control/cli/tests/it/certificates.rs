//! CAs, certificates of members and the HTTPS certificate: created, renewed and shown without a cluster.

use crate::common::{Sandbox, context, refused};
use std::{fs, os::unix::fs::PermissionsExt as _};

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
    let nowhere = sandbox.path("nowhere");
    refused(
        &sandbox,
        &[
            "admin",
            "https",
            "--renew",
            "--out",
            nowhere.to_str().unwrap(),
        ],
        1,
        &["nowhere: no such folder", "give with --out the folder"],
    );
    assert!(!nowhere.exists());
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
