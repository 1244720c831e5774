//! One of three quorum members answers: a control without a view must not answer as if the cluster were empty, and one
//! with an old view shows the age.

use crate::common::{CommandResult, Sandbox, wait_until};
use lattice_cluster::{ClusterFounder, ControlPlan};
use lattice_mesh::{Authority, Clock as _, SystemClock, Validity};
use serde_json::json;
use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{runtime::Runtime, time::timeout};

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Every command that only reads from the cluster, and needs no answer of the quorum's members themselves.
const READS: &[&[&str]] = &[
    &["status"],
    &["status", "--all"],
    &["status", "7"],
    &["logs", "7"],
    &["why", "7"],
    &["usage"],
    &["usage", "--tenant", "atlas"],
    &["dag", "list"],
    &["dag", "status", "7"],
    &["dag", "graph", "7"],
    &["reservation", "list"],
    &["reservation", "show", "course"],
    &["node", "list"],
    &["node", "list", "gpu[001-002]"],
    &["node", "show", "gpu001"],
    &["node", "diff", "gpu001", "gpu002"],
    &["node", "health", "gpu001"],
    &["node", "history", "gpu001"],
    &["conformance", "groups"],
    &["conformance", "drift"],
    &["conformance", "changes"],
    &["conformance", "baseline", "list"],
    &["conformance", "baseline", "show", "h100"],
    &["conformance", "baseline", "diff", "h100"],
    &["conformance", "brake", "show"],
    &["project", "tree"],
    &["project", "show", "atlas"],
    &["project", "headroom", "atlas"],
    &["admin", "ca", "list"],
    &["admin", "certificate", "list"],
    &["admin", "token", "list"],
    &["admin", "tenant", "list"],
    &["admin", "tenant", "show", "atlas"],
    &["admin", "accounting", "status"],
    &["admin", "vcluster", "list"],
    &["admin", "vcluster", "show", "default"],
    &["admin", "system", "show"],
    &["audit", "query"],
    &["audit", "verify"],
];

/// Changes that look up their object in the view: an empty view would make them report an unknown object.
const CHANGES: &[&[&str]] = &[
    &["cancel", "7"],
    &["node", "drain", "gpu001", "--reason", "fan"],
    &["project", "delete", "atlas"],
    &["reservation", "delete", "course"],
];

/// Last words of commands that read.
const READING_VERBS: [&str; 12] = [
    "list", "show", "status", "tree", "headroom", "groups", "drift", "changes", "history",
    "health", "diff", "query",
];

/// Commands with such a word that use no view, each with its reason.
const WITHOUT_VIEW: &[(&str, &str)] = &[
    (
        "admin quorum status",
        "the members answer, which shows why there is no view",
    ),
    ("admin certificate show", "reads a file"),
    ("host diff", "reads captured hosts"),
    ("host groups", "reads captured hosts"),
    ("host drift", "reads captured hosts"),
];

/// Two controls of a cluster that has lost two of its three members: the first began before, the second after.
struct Site {
    members: Vec<lattice_quorum::App>,
    controls: Vec<lattice_control::App>,
    ca_pem: String,
}

impl Site {
    async fn start(folder: &Path) -> Self {
        let lifetime = Duration::from_secs(3_600);
        let validity = Validity::from_now(SystemClock.now(), lifetime);
        let founder = ClusterFounder {
            cluster: "test".to_owned(),
            authority: Arc::new(Authority::create("test", validity).unwrap()),
            lifetime,
            gossip_interval: Duration::from_millis(200),
            bind_timeout: PATIENCE,
        };
        let https = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let (ca_pem, key_pem) = (https.cert.pem(), https.signing_key.serialize_pem());
        let mut members = founder.start_members(3, folder, |_| {}).await.unwrap();
        let addresses: Vec<SocketAddr> = members.iter().map(lattice_quorum::App::addr).collect();
        let control = async |name: &str| {
            let plan = ControlPlan {
                name,
                cells: vec!["c0".parse().unwrap()],
                certificate_pem: &ca_pem,
                key_pem: &key_pem,
                administrator: ("root", TOKEN),
            };
            let mut control = founder.bind_control(plan, |_| {}).await.unwrap();
            control.start(addresses.clone()).await.unwrap();
            control
        };
        let before = control("c1").await;
        let core = before.core().unwrap();
        timeout(PATIENCE, core.first_view()).await.unwrap();
        for member in members.drain(1..) {
            member.stop().await;
        }
        let after = control("c2").await;
        Self {
            members,
            controls: vec![before, after],
            ca_pem,
        }
    }

    /// Writes the context of a control.
    fn context(&self, sandbox: &Sandbox, control: usize) -> PathBuf {
        let server = format!("https://{}", self.controls[control].https_addr());
        let context = json!({ "server": server, "ca_pem": self.ca_pem, "token": TOKEN });
        let file = sandbox.path(&format!("control-{control}.json"));
        fs::write(&file, context.to_string()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        file
    }

    async fn stop(self) {
        for control in self.controls {
            control.stop().await;
        }
        for member in self.members {
            member.stop().await;
        }
    }
}

fn run(sandbox: &Sandbox, context: &Path, args: &[&str]) -> CommandResult {
    let context = ["--context", context.to_str().unwrap()];
    sandbox.lattice(&[args, &context[..]].concat())
}

#[test]
fn with_one_of_three_members_unknown_is_not_empty() {
    let sandbox = Sandbox::new();
    let runtime = Runtime::new().unwrap();
    let site = runtime.block_on(Site::start(sandbox.dir.path()));
    is_refused_without_a_view(&sandbox, &site.context(&sandbox, 1));
    shows_the_age_of_the_view(&sandbox, &site.context(&sandbox, 0));
    runtime.block_on(site.stop());
}

fn is_refused_without_a_view(sandbox: &Sandbox, context: &Path) {
    for args in READS.iter().chain(CHANGES) {
        let done = run(sandbox, context, args);
        assert_eq!(done.code, Some(3), "{args:?}: {done:?}");
        assert_eq!(done.stdout, "", "{args:?}");
        let text = "this control has no view of the cluster";
        assert!(done.stderr.contains(text), "{args:?}: {done:?}");
        assert!(
            done.stderr.contains("lattice admin quorum status"),
            "{args:?}: {done:?}"
        );
    }
    for args in READS {
        let done = run(sandbox, context, &[*args, &["-o", "json"][..]].concat());
        assert_eq!(done.code, Some(3), "{args:?}: {done:?}");
        // A refusal may be a problem document, and is never a list.
        assert!(!done.stdout.starts_with('['), "{args:?}: {done:?}");
        assert!(
            done.stderr.contains("no view of the cluster"),
            "{args:?}: {done:?}"
        );
    }
    for args in [&["audit", "export"][..], &["replay", "record", "--output"]] {
        let file = sandbox.path("new");
        let done = run(
            sandbox,
            context,
            &[args, &[file.to_str().unwrap()][..]].concat(),
        );
        assert_eq!(done.code, Some(3), "{args:?}: {done:?}");
        assert!(!file.exists(), "{args:?}");
    }
    // This command shows the cause.
    let quorum = run(sandbox, context, &["admin", "quorum", "status"]);
    assert_eq!(quorum.code, Some(0), "{quorum:?}");
}

fn shows_the_age_of_the_view(sandbox: &Sandbox, context: &Path) {
    let age = "the quorum does not answer; the data is ";
    wait_until("the view is old", PATIENCE, || {
        let done = run(sandbox, context, &["node", "list"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stderr.contains(age)
    });
    for (args, code) in [
        (&["node", "list", "-o", "json"][..], 0),
        (&["status"], 0),
        (&["project", "tree", "-o", "csv"], 0),
        (&["admin", "tenant", "list"], 0),
        (&["admin", "tenant", "list", "-o", "yaml"], 0),
        // An object may be unknown only because the view is old.
        (&["node", "show", "gpu001"], 4),
    ] {
        let done = run(sandbox, context, args);
        assert_eq!(done.code, Some(code), "{args:?}: {done:?}");
        assert_eq!(done.stderr.matches(age).count(), 1, "{args:?}: {done:?}");
    }
}

/// Names of all commands below `path` that have no subcommands, from the help texts.
fn verbs(sandbox: &Sandbox, path: &[String]) -> Vec<String> {
    let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
    args.push("--help");
    let help = sandbox.lattice(&args).stdout;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    // Deeper lines continue the description of a command.
    let names = commands.filter_map(|line| line.strip_prefix("  ").filter(|l| !l.starts_with(' ')));
    let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
    if names.is_empty() {
        return vec![path.join(" ")];
    }
    let below = names.into_iter().filter(|name| *name != "help");
    below
        .flat_map(|name| verbs(sandbox, &[path, &[name.to_owned()][..]].concat()))
        .collect()
}

/// A new command that reads must be in the table above, or in the list of exceptions.
#[test]
fn every_reading_verb_is_checked() {
    let sandbox = Sandbox::new();
    let verbs = verbs(&sandbox, &[]);
    assert!(verbs.len() > 80, "{verbs:?}");
    for verb in &verbs {
        let last = verb.rsplit(' ').next().unwrap();
        let is_listed = WITHOUT_VIEW.iter().any(|(name, _)| name == verb);
        let words: Vec<&str> = verb.split(' ').collect();
        let is_checked = READS.iter().any(|args| args.starts_with(&words));
        let is_read = READING_VERBS.contains(&last);
        assert!(
            !is_read || is_checked != is_listed,
            "{verb}: check it without a view"
        );
    }
    for (name, reason) in WITHOUT_VIEW {
        assert!(
            verbs.iter().any(|verb| verb == name),
            "{name} ({reason}) is gone"
        );
    }
}
