//! Packages of the workspace, as their manifests declare them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Root folder of the repository.
pub(super) fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().to_owned()
}

/// One package of the workspace.
#[derive(Debug)]
pub(super) struct Package {
    /// Folder, relative to the root.
    pub folder: String,
    pub name: String,
    pub description: Option<String>,
    /// Dependencies on the project's packages, outside tests.
    pub uses: BTreeSet<String>,
}

impl Package {
    fn read(folder: &str) -> Self {
        let file = root().join(folder).join("Cargo.toml");
        let text = fs::read_to_string(&file).unwrap();
        let mut package = Package {
            folder: folder.to_owned(),
            name: String::new(),
            description: None,
            uses: BTreeSet::new(),
        };
        let mut section = "";
        for line in text.lines() {
            if let Some(title) = line.strip_prefix('[') {
                section = title.trim_end_matches(']');
                continue;
            }
            match section {
                "package" => match line.split_once(" = ") {
                    Some(("name", value)) => value.trim_matches('"').clone_into(&mut package.name),
                    Some(("description", value)) => {
                        package.description = Some(value.trim_matches('"').to_owned());
                    }
                    _ => {}
                },
                "dependencies" => package.uses.extend(dependency(line)),
                _ => {}
            }
        }
        assert!(!package.name.is_empty(), "{} has no name", file.display());
        package
    }

    /// Name of a package without the prefix that all have.
    pub(super) fn short(name: &str) -> &str {
        name.strip_prefix("lattice-").unwrap_or(name)
    }
}

/// Package of the project that a line of a manifest names as a dependency.
fn dependency(line: &str) -> Option<String> {
    let end = line.find(['.', ' ', '='])?;
    line.starts_with("lattice-").then(|| line[..end].to_owned())
}

/// All packages, in the order of the workspace's manifest.
pub(super) fn packages() -> Vec<Package> {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, members) = text.split_once("\nmembers = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let folders = members.split('"').skip(1).step_by(2);
    folders.map(Package::read).collect()
}
