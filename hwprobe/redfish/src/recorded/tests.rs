#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn paths(documents: &Documents) -> Vec<&str> {
    documents.0.keys().map(ResourcePath::as_str).collect()
}

#[test]
fn every_layout_leads_to_the_same_paths() {
    let root = r#"{"@odata.id": "/redfish/v1/"}"#;
    let system = r#"{"@odata.id": "/redfish/v1/Systems/1"}"#;
    let layouts: [[&str; 2]; 5] = [
        ["index.json", "Systems/1/index.json"],
        ["redfish/v1/index.json", "redfish/v1/Systems/1/index.json"],
        ["index.json", "Systems/1.json"],
        ["_redfish_v1.json", "_redfish_v1_Systems_1.json"],
        ["root.json", "dell_system.json"],
    ];
    for [first, second] in layouts {
        let folder = folder(&[(first, root), (second, system)]);
        let documents = load(folder.path()).unwrap();
        assert_eq!(
            paths(&documents),
            ["/redfish/v1", "/redfish/v1/Systems/1"],
            "{first}"
        );
    }
}

#[test]
fn a_resource_is_found_by_its_folder_and_by_the_name_links_use() {
    let bios = r#"{"@odata.id": "/redfish/v1/systems/1/bios/"}"#;
    let root = r#"{"@odata.id": "/redfish/v1"}"#;
    let tree = folder(&[("index.json", root), ("Systems/1/Bios/index.json", bios)]);
    let documents = load(tree.path()).unwrap();
    for name in ["/redfish/v1/Systems/1/Bios", "/redfish/v1/systems/1/bios"] {
        assert!(paths(&documents).contains(&name), "{name}");
    }
}

#[test]
fn a_name_that_cannot_say_where_it_lies_leaves_that_to_the_resource() {
    let registry = r#"{"@odata.id": "/redfish/v1/Registries/Base.v1_4_0"}"#;
    let name = "_redfish_v1_Registries_Base.v1_4_0.json";
    let documents = load(folder(&[(name, registry)]).path()).unwrap();
    assert_eq!(paths(&documents), ["/redfish/v1/Registries/Base.v1_4_0"]);
}

#[test]
fn a_broken_file_is_a_resource_that_failed() {
    let tree = folder(&[
        ("index.json", r#"{"@odata.id": "/redfish/v1"}"#),
        ("Chassis/1/Power/index.json", "{\"PowerControl\": ["),
    ]);
    let documents = load(tree.path()).unwrap();
    let power = ResourcePath::parse("/redfish/v1/Chassis/1/Power").unwrap();
    assert!(matches!(
        documents.get(&power),
        Some(Reading::Failed { .. })
    ));
}

#[test]
fn recorded_error_is_no_resource() {
    let error = r#"{"error": {"code": "Base.1.4.ResourceMissingAtURI"}}"#;
    let tree = folder(&[
        (
            "index.json",
            "\u{feff}{\"@odata.id\": \"/redfish/v1\", \"Name\": \"a\rb\"}",
        ),
        ("Chassis/Mezz0/Power/index.json", error),
    ]);
    let documents = load(tree.path()).unwrap();
    let power = ResourcePath::parse("/redfish/v1/Chassis/Mezz0/Power").unwrap();
    let Some(Reading::Failed { why }) = documents.get(&power) else {
        panic!("{documents:?}");
    };
    assert!(why.ends_with("Base.1.4.ResourceMissingAtURI"), "{why}");
    let root = documents
        .get(&ResourcePath::root())
        .and_then(Reading::present);
    assert_eq!(root.unwrap()["Name"], "a\rb");
}

#[test]
fn a_compressed_archive_reads_like_its_folder() {
    let tree = folder(&[
        ("machine/index.json", r#"{"@odata.id": "/redfish/v1"}"#),
        ("machine/Systems/index.json", r#"{"Members": []}"#),
    ]);
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(
        Vec::new(),
        flate2::Compression::fast(),
    ));
    archive.append_dir_all(".", tree.path()).unwrap();
    let packed = archive.into_inner().unwrap().finish().unwrap();
    let file = tree.path().join("machine.tar.gz");
    std::fs::write(&file, packed).unwrap();
    let unpacked = load(&tree.path().join("machine")).unwrap();
    assert_eq!(paths(&unpacked), ["/redfish/v1", "/redfish/v1/Systems"]);
    assert_eq!(load(&file).unwrap(), unpacked);
}

#[test]
fn a_folder_without_resources_is_an_error() {
    let error = load(folder(&[("README.md", "nothing")]).path()).unwrap_err();
    assert!(matches!(error, RecordedError::Empty { .. }));
    assert!(matches!(
        load(Path::new("/nonexistent/tree")).unwrap_err(),
        RecordedError::Io { .. }
    ));
}
