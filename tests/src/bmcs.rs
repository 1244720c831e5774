//! Simulated BMCs of a site's nodes, with control's BMC list.

use lattice_fake_bmc::{FakeBmc, Tree};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    ops::Index,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// One simulated BMC per node. Dropping the value ends them.
#[derive(Debug)]
pub struct Bmcs {
    all: BTreeMap<String, FakeBmc>,
    folder: tempfile::TempDir,
}

impl Bmcs {
    /// Starts the BMCs, all with the fixture tree `tree`.
    pub async fn start(tree: &str, nodes: &[&str]) -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
        let tree = Tree::load(&fixtures.join(tree)).unwrap();
        let mut all = BTreeMap::new();
        for node in nodes {
            let bmc = FakeBmc::builder(tree.clone()).start().await.unwrap();
            all.insert((*node).to_owned(), bmc);
        }
        let folder = tempfile::tempdir().unwrap();
        Self { all, folder }
    }

    /// Path of a file in the folder of the BMC list.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the BMC list, with `lines` at its top. Each node is the system with the id `system`, or the only system
    /// of its BMC without an id. Returns the line of control's configuration that names the list.
    pub fn listed(&self, lines: &str, system: Option<&str>) -> String {
        let password = self.path("password");
        fs::write(&password, "lattice-bmc\n").unwrap();
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
        let mut listed = format!("{lines}bmcs:\n");
        for (node, bmc) in &self.all {
            let nodes = match system {
                Some(system) => format!("{{{node}: {system}}}"),
                None => node.clone(),
            };
            writeln!(
                listed,
                "  - {{url: '{}', user: admin, password_file: {}, nodes: {nodes}}}",
                bmc.url(),
                password.display()
            )
            .unwrap();
        }
        let list = self.path("bmcs.yaml");
        fs::write(&list, listed).unwrap();
        format!("bmcs: {}\n", list.display())
    }
}

impl Index<&str> for Bmcs {
    type Output = FakeBmc;

    fn index(&self, node: &str) -> &FakeBmc {
        &self.all[node]
    }
}
