//! Prints the events that the BMC in each recorded tree reports, and the number of requests needed to read them.
//!
//! `cargo run -p lattice-redfish --example deeds -- fixtures/captures/redfish/hpe-dl325-ilo5.tar.gz`

use lattice_conformance::Reading;
use lattice_redfish::{Documents, FetchedEventDocuments, find_event_lists, read_events, recorded};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let tree = recorded::load(Path::new(&path))?;
        let mut documents = Documents::default();
        let fetch = |documents: &mut Documents, wanted: std::collections::BTreeSet<_>| {
            let is_final = wanted.is_empty();
            for path in wanted {
                let answer = tree.get(&path).cloned().unwrap_or(Reading::Absent);
                documents.0.insert(path, answer);
            }
            is_final
        };
        let mut found = find_event_lists(&documents);
        while !fetch(&mut documents, found.wanted) {
            found = find_event_lists(&documents);
        }
        let before = documents.0.len();
        let seen = FetchedEventDocuments::default();
        let mut read = read_events(&documents, &found.route, &seen);
        while !fetch(&mut documents, std::mem::take(&mut read.wanted)) {
            read = read_events(&documents, &found.route, &seen);
        }
        let took = documents.0.len() - before;
        println!("{path}: found in {before} requests, read in {took}");
        for (list, why) in read.unread {
            println!("  silent: {list}: {why:?}");
        }
        for deed in read.events {
            println!("  {}", serde_json::to_string(&deed)?);
        }
    }
    Ok(())
}
