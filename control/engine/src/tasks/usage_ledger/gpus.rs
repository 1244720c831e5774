//! GPU counts of nodes: as reported, and the last reported value while a node is silent. The counts are stored on disk,
//! so that a node that is down when control starts keeps the GPU count that its usage is based on.

use lattice_host::durable;
use lattice_quorum_types::NodeId;
use lattice_view::View;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

const FILE: &str = "gpus.json";

/// Last known GPU counts; see the module.
#[derive(Debug, Default)]
pub(super) struct GpuCounts {
    /// File of the counts; `None` keeps them in memory only.
    file: Option<PathBuf>,
    known: BTreeMap<NodeId, u32>,
}

impl GpuCounts {
    /// Loads the counts from the folder. The file is a cache; an unreadable file counts as empty.
    pub(super) fn open(folder: Option<&Path>) -> Self {
        let Some(file) = folder.map(|folder| folder.join(FILE)) else {
            return Self::default();
        };
        let read = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        };
        let known = read.unwrap_or_else(|error| {
            tracing::warn!(
                file = %file.display(),
                %error,
                "stored GPU counts unreadable; each node that is down counts as one GPU until it \
                 reports again"
            );
            BTreeMap::new()
        });
        let file = Some(file);
        Self { file, known }
    }

    /// Takes over the counts from the last known documents of the nodes, and writes the file if a count has changed.
    pub(super) fn update(&mut self, view: &View) {
        let mut has_news = false;
        for id in view.nodes.keys() {
            let document = view.as_known(id).and_then(|entry| entry.document.as_ref());
            let Some(gpus) = document.and_then(|document| document.resources.gpus()) else {
                continue;
            };
            has_news |= self.known.insert(id.clone(), gpus) != Some(gpus);
        }
        if !has_news {
            return;
        }
        if let Some(file) = &self.file
            && let Err(error) = self.write(file)
        {
            tracing::warn!(file = %file.display(), %error, "GPU counts of nodes not stored");
        }
    }

    fn write(&self, file: &Path) -> io::Result<()> {
        durable::replace(file, &serde_json::to_vec(&self.known)?, 0o600)
    }

    /// All nodes with a known GPU count.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&NodeId, u32)> {
        self.known.iter().map(|(id, gpus)| (id, *gpus))
    }
}
