//! Build script: packs the captured hosts and the recorded workload of the demo into one file, which the program
//! contains. A demo then runs without a checkout.
//!
//! The nodes of one model share most of their files, so each content is stored once: 7 thousand files of 2.4 MB become
//! 800 contents of 0.7 MB. `src/demo/packed.rs` describes and reads the format.

#![expect(
    clippy::disallowed_macros,
    reason = "Cargo reads the instructions of a build script from standard output"
)]

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
};

/// Files and folders below `fixtures/` that the demo reads.
const PARTS: [&str; 3] = [
    "bmc/xe9680",
    "captures/redfish/cray-ex235n-a100.tar.gz",
    "traces/KTH-SP2-1996-2.first200.swf",
];

/// Files by path below `fixtures/`, with the number of their content, and symbolic links with their targets.
#[derive(Default)]
struct Archive {
    contents: Vec<Vec<u8>>,
    numbers: BTreeMap<Vec<u8>, usize>,
    files: BTreeMap<String, usize>,
    links: BTreeMap<String, String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let fixtures = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../fixtures");
    let mut archive = Archive::default();
    archive.add(&fixtures, "hosts/cluster.yaml")?;
    for name in names(&fixtures.join("hosts"))? {
        if name.starts_with("gpu") {
            archive.add(&fixtures, &format!("hosts/{name}"))?;
        }
    }
    for part in PARTS {
        archive.add(&fixtures, part)?;
    }
    // Single files: Cargo would follow the links in a folder.
    for path in archive.files.keys() {
        println!("cargo:rerun-if-changed=../../fixtures/{path}");
    }
    let file = PathBuf::from(env::var("OUT_DIR")?).join("demo-fixtures.bin");
    fs::write(file, archive.packed()?)?;
    Ok(())
}

/// Returns the names in a folder, in order.
fn names(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(text(&PathBuf::from(entry?.file_name()))?);
    }
    names.sort();
    Ok(names)
}

fn text(path: &Path) -> Result<String, Box<dyn Error>> {
    let text = path.to_str();
    Ok(text
        .ok_or_else(|| format!("{} is not UTF-8", path.display()))?
        .to_owned())
}

impl Archive {
    /// Adds a file, a link, or a folder with everything in it.
    fn add(&mut self, fixtures: &Path, path: &str) -> Result<(), Box<dyn Error>> {
        let file = fixtures.join(path);
        let kind = fs::symlink_metadata(&file)
            .map_err(|error| format!("{}: {error}", file.display()))?
            .file_type();
        if kind.is_symlink() {
            let target = text(&fs::read_link(&file)?)?;
            self.links.insert(path.to_owned(), target);
        } else if kind.is_dir() {
            for name in names(&file)? {
                self.add(fixtures, &format!("{path}/{name}"))?;
            }
        } else {
            let number = self.content_number(fs::read(&file)?);
            self.files.insert(path.to_owned(), number);
        }
        Ok(())
    }

    fn content_number(&mut self, content: Vec<u8>) -> usize {
        if let Some(number) = self.numbers.get(&content) {
            return *number;
        }
        let number = self.contents.len();
        self.contents.push(content.clone());
        self.numbers.insert(content, number);
        number
    }

    fn packed(&self) -> Result<Vec<u8>, Box<dyn Error>> {
        let mut packed = Vec::new();
        put_number(&mut packed, self.contents.len())?;
        for content in &self.contents {
            put_bytes(&mut packed, content)?;
        }
        put_number(&mut packed, self.files.len())?;
        for (path, content) in &self.files {
            put_bytes(&mut packed, path.as_bytes())?;
            put_number(&mut packed, *content)?;
        }
        put_number(&mut packed, self.links.len())?;
        for (path, target) in &self.links {
            put_bytes(&mut packed, path.as_bytes())?;
            put_bytes(&mut packed, target.as_bytes())?;
        }
        Ok(packed)
    }
}

fn put_number(packed: &mut Vec<u8>, number: usize) -> Result<(), Box<dyn Error>> {
    packed.extend_from_slice(&u32::try_from(number)?.to_le_bytes());
    Ok(())
}

fn put_bytes(packed: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    put_number(packed, bytes.len())?;
    packed.extend_from_slice(bytes);
    Ok(())
}
