//! The README example of the Rust SDK, as a separate program that uses the cluster.

use crate::{
    fixture::{ClusterFixture, TOKEN},
    scenario_groups::Group,
};
use lattice_client::context::{CONTEXT_VARIABLE, ContextFile};
use std::{fs, os::unix::fs::PermissionsExt as _, process::ExitCode};
use tokio::process::Command;

mod shown {
    include!("../../client/readme.rs");

    pub fn run() -> Result<(), Box<dyn std::error::Error>> {
        main()
    }
}

/// First argument of the process that runs the example.
pub const PROGRAM: &str = "readme-example";
const TOLD: &str = "completed on gpu[001-002]\natlas used 0.0 node hours in 90 days\n";
const README: &str = include_str!("../../../README.md");
const SHOWN: &str = include_str!("../../client/readme.rs");

pub fn main() -> ExitCode {
    match shown::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

pub fn group() -> Group {
    Group::new("example", || Box::pin(founded()))
        .scenario("the_example_of_the_readme_runs_as_it_is", |cluster| {
            Box::pin(runs(cluster))
        })
}

async fn founded() -> ClusterFixture {
    let mut cluster = ClusterFixture::found().await;
    for name in ["gpu001", "gpu002"] {
        cluster.serves(name).await;
    }
    for project in ["atlas", "atlas/operations", "atlas/operations/web"] {
        cluster.create_project(project, 2).await;
    }
    cluster
}

async fn runs(cluster: &ClusterFixture) {
    assert!(
        README.contains(&format!("```rust\n{SHOWN}```\n\n```text\n{TOLD}```\n")),
        "the README shows another program than control/client/readme.rs"
    );
    let context = ContextFile {
        server: cluster.client(TOKEN).url().to_string(),
        ca_pem: cluster.https.0.clone(),
        token: TOKEN.to_owned(),
        demo_pid: None,
    };
    let file = cluster.part("example").join("context.json");
    fs::write(&file, serde_json::to_vec(&context).unwrap()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let ran = Command::new(std::env::current_exe().unwrap())
        .arg(PROGRAM)
        .env(CONTEXT_VARIABLE, &file)
        .output()
        .await
        .unwrap();
    let output = String::from_utf8(ran.stdout).unwrap();
    let wrong = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{output}{wrong}");
    assert_eq!(output, TOLD);
}
