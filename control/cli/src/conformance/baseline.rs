//! `lattice conformance baseline`: expected states of nodes.

use crate::{
    connect::Connection,
    failure::Failure,
    node::difference_row,
    output::{self, Columns, Fitting, or_dash, time},
    user_file,
};
use clap::{Args, Subcommand};
use lattice_api::{
    baseline::{
        BaselineRequest, BaselineResult, BaselineView, ClassExpectationBody, ClassRuleView,
        CohortSelectorBody,
    },
    conformance::DiffView,
};
use lattice_conformance::Class;
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::PathBuf};

/// Shown for a baseline version that no node is compared with now.
const NOT_JUDGED: &str = "not compared";

/// Baseline subcommands. `set` and `delete` are for operators.
#[derive(Subcommand)]
pub enum BaselineCommand {
    /// Set the expected state of nodes: that of a node or group, or from a file or keys.
    ///
    /// `baseline set h100 --from-node gpu001 --class nic,bios --nodes 'gpu[001-012]'`
    ///
    /// `baseline set cx7 --key nic.0.firmware=28.41.1000 --nodes 'gpu[001-064]' --policy drain --dry-run`
    ///
    /// A key with `*` (`nic.*.firmware`) matches every slot, that of a DPU as well as those of cards.
    Set(Box<SetArgs>),
    /// List the baselines in force, and how many nodes drift from each.
    List,
    /// Show one baseline: its keys, author, and the nodes that drift.
    Show(ShowArgs),
    /// Show, key by key, where a node or another baseline differs from this one; without either, every drifting node
    /// that the baseline applies to.
    Diff(DiffArgs),
    /// Delete a baseline, so that it applies to no node.
    Delete(DeleteArgs),
}

#[derive(Args)]
pub struct SetArgs {
    /// Baseline name. Setting an existing baseline creates a new version.
    name: String,
    /// Reference node, which is queried now for its last reading.
    #[arg(long, value_name = "NODE", conflicts_with = "from_group")]
    from_node: Option<String>,
    /// Reference conformance group: its digest, or at least 8 digits of it.
    #[arg(long, value_name = "DIGEST")]
    from_group: Option<String>,
    /// File (YAML or JSON; - for standard input) with nodes, cohort, policy and classes.
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Expected value of a key: nic.0.firmware=28.41.1000. Other keys of its class are not checked. Repeat for the same
    /// key to accept either value.
    #[arg(long, value_name = "KEY=VALUE")]
    key: Vec<String>,
    /// Classes of the reference to include, such as nic,bios,gpu; every complete one when left out.
    #[arg(long, value_name = "CLASSES", value_delimiter = ',')]
    class: Vec<Class>,
    /// Nodes that the baseline applies to: gpu[001-012].
    #[arg(long, value_name = "HOSTLIST")]
    nodes: Option<String>,
    /// Cohort that the baseline applies to: "product=PowerEdge XE9680,gpu_count=8" (also vendor, gpu_model), each as
    /// `lattice node list -o wide` shows it.
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    cohort: Vec<String>,
    /// Policy for drift: warn (the default), deprioritise, drain.
    #[arg(long, value_parser = ["warn", "deprioritise", "drain"])]
    policy: Option<String>,
    /// Effect of drift on sensitive allocations: strict (the default: none is placed there), ignore.
    #[arg(long, value_parser = ["strict", "ignore"])]
    sensitive: Option<String>,
    /// Free-text description.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Refuse unless this version is in force; 0: unless the baseline does not exist.
    #[arg(long, value_name = "NUMBER")]
    expected_version: Option<u32>,
    /// Set nothing; show which nodes the baseline would apply to, which would drift, and which would be drained.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
pub struct ShowArgs {
    /// Baseline name, or name@3 for an earlier version.
    name: String,
}

#[derive(Args)]
pub struct DiffArgs {
    /// Baseline name, or name@3 for an earlier version.
    name: String,
    /// Node, or another baseline.
    with: Option<String>,
}

#[derive(Args)]
pub struct DeleteArgs {
    /// Baseline name.
    name: String,
    /// Refuse unless this version is in force.
    #[arg(long, value_name = "NUMBER")]
    expected_version: Option<u32>,
}

/// Runs a baseline command.
pub async fn run(command: BaselineCommand, connection: &Connection) -> Result<(), Failure> {
    match command {
        BaselineCommand::Set(args) => set(*args, connection).await,
        BaselineCommand::List => list(connection).await,
        BaselineCommand::Show(args) => show(&args, connection).await,
        BaselineCommand::Diff(args) => diff(&args, connection).await,
        BaselineCommand::Delete(args) => {
            let client = &connection.client;
            let deleted = client
                .delete_baseline(&args.name, args.expected_version, None)
                .await?;
            let words = format!(
                "baseline {} is deleted: no node is checked against it",
                args.name
            );
            let document = json!({"name": args.name, "revision": deleted.revision});
            Ok(output::print_done(connection.format, &document, &words)?)
        }
    }
}

async fn set(args: SetArgs, connection: &Connection) -> Result<(), Failure> {
    let name = args.name.clone();
    let dry_run = args.dry_run;
    let request = request(args)?;
    let client = &connection.client;
    let set = match dry_run {
        true => client.dry_run_baseline(&name, &request).await?,
        false => client.set_baseline(&name, &request, None).await?,
    };
    let standing = &set.comparison;
    let columns = Columns {
        narrow: &[
            "name",
            "version",
            "compared_count",
            "conform_count",
            "differ_count",
            "unknown_count",
            "classes",
        ],
        wide: &["compared", "differ", "drain", "deprioritise"],
    };
    let row = vec![
        set.name.clone(),
        set.version.to_string(),
        standing.compared_count.to_string(),
        standing.conform_count.to_string(),
        standing.differ_count.to_string(),
        standing.unknown_count.to_string(),
        set.classes.join(","),
        or_dash(Some(&standing.compared)),
        or_dash(Some(&standing.differ)),
        or_dash(Some(&standing.drain)),
        or_dash(Some(&standing.deprioritise)),
    ];
    output::print_record(connection.format, &set, columns, row)?;
    for line in consequences(&set) {
        output::message!("{line}");
    }
    Ok(())
}

/// Lists the consequences of a baseline that was set or tried, and the warnings.
fn consequences(set: &BaselineResult) -> Vec<String> {
    let standing = &set.comparison;
    let mut lines = Vec::new();
    let (drained, last) = match set.dry_run {
        true => ("would be drained", "would get new work last"),
        false => ("to be drained", "get new work last"),
    };
    let mut tell = |what: &str, nodes: &str| {
        if !nodes.is_empty() {
            lines.push(format!("{what}: {nodes}"));
        }
    };
    tell("differ", &standing.differ);
    tell("unknown", &standing.unknown);
    tell(drained, &standing.drain);
    tell(last, &standing.deprioritise);
    for warning in &standing.warnings {
        tell("warning", warning);
    }
    match (set.dry_run, standing.compared_count) {
        (true, _) => lines.push("nothing is set: --dry-run".to_owned()),
        (false, 0) => lines.push("the baseline applies to no nodes now".to_owned()),
        (false, _) => {}
    }
    lines
}

/// Reads the file, if there is one, and applies the flags, which take precedence.
fn request(args: SetArgs) -> Result<BaselineRequest, Failure> {
    let mut request = match &args.file {
        Some(path) => user_file::parse(path, &user_file::read_text(path)?)?,
        None => BaselineRequest::default(),
    };
    let over = |field: &mut Option<String>, said: Option<String>| {
        if said.is_some() {
            *field = said;
        }
    };
    over(&mut request.from_node, args.from_node);
    over(&mut request.from_group, args.from_group);
    over(&mut request.nodes, args.nodes);
    over(&mut request.policy, args.policy);
    over(&mut request.sensitive, args.sensitive);
    request.description = args.description.unwrap_or(request.description);
    request.expected_version = args.expected_version.or(request.expected_version);
    if !args.cohort.is_empty() {
        request.cohort = Some(cohort(&args.cohort)?);
    }
    for class in args.class {
        let form = request.classes.entry(class.to_string());
        form.or_insert_with(ClassExpectationBody::default);
    }
    add_keys(&mut request.classes, &args.key)?;
    Ok(request)
}

fn cohort(parts: &[String]) -> Result<CohortSelectorBody, Failure> {
    let mut form = CohortSelectorBody::default();
    for part in parts {
        let wrong = || {
            Failure::usage(format!(
                "--cohort {part}: write vendor=…, product=…, gpu_model=… or gpu_count=8"
            ))
        };
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let text = Some(value.trim().to_owned());
        match name.trim() {
            "vendor" => form.vendor = text,
            "product" => form.product = text,
            "gpu_model" => form.gpu_model = text,
            "gpu_count" => form.gpu_count = Some(value.trim().parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        }
    }
    Ok(form)
}

/// Adds each `KEY=VALUE` to its class; a repeated key accepts any of its values.
fn add_keys(
    classes: &mut BTreeMap<String, ClassExpectationBody>,
    keys: &[String],
) -> Result<(), Failure> {
    let mut values: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for pair in keys {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            Failure::usage(format!("--key {pair}: write nic.*.firmware=28.41.1000"))
        })?;
        let value = Value::String(value.trim().to_owned());
        values.entry(key.trim()).or_default().push(value);
    }
    for (key, values) in values {
        let class = key.split('.').next().unwrap_or_default();
        let form = classes.entry(class.to_owned()).or_default();
        let keys = form.keys.get_or_insert_with(BTreeMap::new);
        keys.insert(key.to_owned(), json!({ "any_of": values }));
    }
    Ok(())
}

/// Returns the cohort that the baseline applies to: `product=XE9680,gpu_count=8`.
fn cohort_text(baseline: &BaselineView) -> Option<String> {
    baseline.cohort.as_ref().map(|cohort| {
        let mut parts = Vec::new();
        let texts = [
            ("vendor", &cohort.vendor),
            ("product", &cohort.product),
            ("gpu_model", &cohort.gpu_model),
        ];
        for (name, text) in texts {
            parts.extend(text.as_ref().map(|text| format!("{name}={text}")));
        }
        parts.extend(cohort.gpu_count.map(|count| format!("gpu_count={count}")));
        parts.join(",")
    })
}

fn applies_to(baseline: &BaselineView) -> String {
    let cohort = cohort_text(baseline);
    let nodes = (!baseline.nodes.is_empty()).then(|| baseline.nodes.clone());
    let both: Vec<String> = nodes.into_iter().chain(cohort).collect();
    both.join(" and ")
}

/// Lists each rule once, with its classes: `exact, warn: bios, nic`.
fn rules(classes: &BTreeMap<String, ClassRuleView>) -> String {
    let mut alike: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (class, rule) in classes {
        let same = alike.entry((&rule.kind, &rule.policy));
        same.or_default().push(class);
    }
    let groups = alike.into_iter().map(|((kind, policy), classes)| {
        let classes = classes.join(", ");
        format!("{kind}, {policy}: {classes}")
    });
    groups.collect::<Vec<_>>().join("; ")
}

/// Formats a value of the comparison; `None`, for a version that is not in force, differs from "no nodes".
fn comparison_cell(nodes: Option<&str>) -> String {
    nodes.map_or_else(|| NOT_JUDGED.to_owned(), |nodes| or_dash(Some(nodes)))
}

fn applies_to_text(baseline: &BaselineView) -> String {
    let Some(count) = baseline.compared_count else {
        return format!(
            "no node is checked against version {} now",
            baseline.version
        );
    };
    format!(
        "matches {}: {}; differ: {}; unknown: {}",
        output::counted(count, "node"),
        comparison_cell(baseline.compared.as_deref()),
        comparison_cell(baseline.differ.as_deref()),
        comparison_cell(baseline.unknown.as_deref())
    )
}

async fn list(connection: &Connection) -> Result<(), Failure> {
    let found = connection.client.baselines().await?;
    let rows = found.iter().map(|baseline| {
        vec![
            baseline.name.clone(),
            baseline.version.to_string(),
            or_dash(Some(&baseline.nodes)),
            or_dash(cohort_text(baseline).as_deref()),
            comparison_cell(baseline.compared_count.map(|n| n.to_string()).as_deref()),
            comparison_cell(baseline.differ.as_deref()),
            comparison_cell(baseline.unknown.as_deref()),
            rules(&baseline.classes),
            baseline.by.clone(),
            time(&baseline.at),
            baseline.bytes.to_string(),
            baseline.description.clone(),
        ]
    });
    let columns = Columns {
        narrow: &[
            "name",
            "version",
            "nodes",
            "cohort",
            "compared_count",
            "differ",
            "unknown",
            "classes",
        ],
        wide: &["by", "at", "bytes", "description"],
    };
    let dropped_first = &["classes", "cohort", "unknown", "compared_count", "nodes"];
    output::print_fitted(
        connection.format,
        &found,
        columns,
        Fitting::Lines(dropped_first),
        rows,
    )?;
    Ok(())
}

async fn show(args: &ShowArgs, connection: &Connection) -> Result<(), Failure> {
    let found = connection.client.baseline(&args.name).await?;
    let mut rows = Vec::new();
    for (class, rule) in &found.classes {
        for (key, expected) in &rule.keys {
            rows.push(vec![
                class.clone(),
                key.clone(),
                expected.clone(),
                rule.policy.clone(),
                rule.sensitive.clone(),
                rule.kind.clone(),
                or_dash(rule.digest.as_deref()),
            ]);
        }
    }
    let columns = Columns {
        narrow: &["class", "key", "expected", "policy", "sensitive"],
        wide: &["kind", "digest"],
    };
    let dropped_first = &["sensitive", "policy", "class"];
    output::print_fitted(
        connection.format,
        &found,
        columns,
        Fitting::Texts(dropped_first),
        rows,
    )?;
    output::message!(
        "{} v{} of {}, by {}, for {}",
        found.name,
        found.version,
        time(&found.at),
        found.by,
        applies_to(&found)
    );
    if !found.description.is_empty() {
        output::message!("{}", found.description);
    }
    for (class, rule) in &found.classes {
        if let Some(why) = &rule.unreadable {
            output::message!("class {class} checks no node: {why}");
        }
    }
    output::message!("{}", applies_to_text(&found));
    let versions: Vec<String> = found
        .versions
        .iter()
        .map(|version| format!("v{} {} {}", version.version, time(&version.at), version.by))
        .collect();
    output::message!("versions kept: {}", versions.join("; "));
    Ok(())
}

async fn diff(args: &DiffArgs, connection: &Connection) -> Result<(), Failure> {
    let Some(with) = &args.with else {
        return show_drifting_nodes(&args.name, connection).await;
    };
    let found: DiffView = connection.client.baseline_diff(&args.name, with).await?;
    let rows = found.differences.iter();
    let rows = rows.map(|d| difference_row(connection.format, d));
    let sides = (found.left.as_str(), found.right.as_str());
    output::print_difference(connection.format, &found, sides, rows)?;
    if found.differences.is_empty() {
        output::message!("no difference: {} matches {}", found.right, found.left);
    }
    Ok(())
}

/// Shows every drifting node that the baseline applies to.
async fn show_drifting_nodes(name: &str, connection: &Connection) -> Result<(), Failure> {
    // Returns "not found" for an unknown name.
    connection.client.baseline(name).await?;
    let mut report = connection.client.drift().await?;
    report
        .drifted
        .retain(|d| d.baseline.as_deref() == Some(name));
    super::print_drift(&report.drifted, connection)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use clap::Parser;
    use lattice_api::baseline::BaselineComparisonView;
    use lattice_quorum_types::Revision;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: BaselineCommand,
    }

    fn asked(line: &str) -> Result<BaselineRequest, Failure> {
        let words = std::iter::once("x").chain(line.split(' '));
        match Line::try_parse_from(words).unwrap().command {
            BaselineCommand::Set(args) => request(*args),
            _ => panic!("another command"),
        }
    }

    #[test]
    fn line_equals_file_content() {
        let like = asked("set h100 --from-node gpu001 --class nic,bios --nodes gpu[001-012]");
        let like = like.unwrap();
        assert_eq!(like.from_node.as_deref(), Some("gpu001"));
        assert_eq!(like.classes.keys().collect::<Vec<_>>(), ["bios", "nic"]);
        let keys = asked(
            "set cx7 --key nic.*.firmware=28.41 --key nic.*.firmware=28.42 --cohort \
             product=XE9680,gpu_count=8 --policy drain",
        );
        let keys = keys.unwrap();
        assert_eq!(
            keys.classes["nic"].keys.as_ref().unwrap()["nic.*.firmware"],
            json!({"any_of": ["28.41", "28.42"]})
        );
        assert_eq!(keys.cohort.unwrap().gpu_count, Some(8));
        assert_eq!(asked("set x --cohort eight=8").unwrap_err().code, 2);
        assert_eq!(asked("set x --key nic").unwrap_err().code, 2);
    }

    #[test]
    fn file_reports_all_mistakes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("baseline.yaml");
        let text = "polcy: drain\nnodes: [gpu001]\ncohort: {gpu_count: eight}\n\
                    classes: {nic: {keys: {nic.0.firmware: .nan}}}\n";
        std::fs::write(&path, text).unwrap();
        let failure = asked(&format!("set h100 --file {}", path.display())).unwrap_err();
        assert_eq!(failure.code, 2);
        let text = failure.to_string();
        for part in [
            " has 4 mistakes:\n  ",
            "classes.nic.keys.nic.0.firmware: .nan is not a finite number",
            "nodes: must be a text, not a list",
            "cohort.gpu_count: must be a whole number from 0 to 4294967295, not the text \"eight\"",
            "polcy: unknown key; did you mean policy?",
        ] {
            assert!(text.contains(part), "{part}\nis missing in: {text}");
        }
    }

    #[test]
    fn prints_node_standing_once_judged() {
        let mut baseline: BaselineView = serde_json::from_value(json!({
            "name": "h100", "version": 2, "description": "", "nodes": "gpu[001-003]",
            "classes": {}, "by": "olga", "at": "2026-01-01T00:00:00Z", "bytes": 1,
        }))
        .unwrap();
        assert_eq!(
            applies_to_text(&baseline),
            "no node is checked against version 2 now"
        );
        assert_eq!(comparison_cell(baseline.differ.as_deref()), "not compared");
        baseline.compared = Some("gpu[001-003]".to_owned());
        baseline.compared_count = Some(3);
        baseline.differ = Some(String::new());
        baseline.unknown = Some("gpu003".to_owned());
        assert_eq!(
            applies_to_text(&baseline),
            "matches 3 nodes: gpu[001-003]; differ: -; unknown: gpu003"
        );
    }

    #[test]
    fn prints_consequence_and_current_state() {
        let standing = BaselineComparisonView {
            compared_count: 12,
            differ: "gpu005".to_owned(),
            drain: "gpu005".to_owned(),
            warnings: vec!["no node has this name now: gpu999".to_owned()],
            ..BaselineComparisonView::default()
        };
        let mut set = BaselineResult {
            name: "cx7".to_owned(),
            version: 1,
            classes: vec!["nic".to_owned()],
            revision: Revision(7),
            dry_run: true,
            comparison: standing,
        };
        let warning = "warning: no node has this name now: gpu999";
        assert_eq!(
            consequences(&set),
            [
                "differ: gpu005",
                "would be drained: gpu005",
                warning,
                "nothing is set: --dry-run"
            ]
        );
        set.dry_run = false;
        assert_eq!(
            consequences(&set),
            ["differ: gpu005", "to be drained: gpu005", warning]
        );
        set.comparison = BaselineComparisonView::default();
        assert_eq!(consequences(&set), ["the baseline applies to no nodes now"]);
    }

    #[test]
    fn merges_equal_rules() {
        let rule = |policy: &str| ClassRuleView {
            kind: "exact".to_owned(),
            policy: policy.to_owned(),
            sensitive: "strict".to_owned(),
            digest: None,
            schema: None,
            keys: BTreeMap::new(),
            unreadable: None,
        };
        let classes = [("bios", "warn"), ("gpu", "drain"), ("nic", "warn")];
        let classes = classes.map(|(class, policy)| (class.to_owned(), rule(policy)));
        assert_eq!(
            rules(&classes.into()),
            "exact, drain: gpu; exact, warn: bios, nic"
        );
    }

    #[test]
    fn flags_override_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("baseline.yaml");
        std::fs::write(
            &path,
            "description: H100 nodes\nnodes: gpu[001-012]\nclasses:\n  nic:\n    policy: drain\n    \
             keys:\n      nic.*.firmware: 28.41.1000\n",
        )
        .unwrap();
        let line = format!("set h100 --file {} --nodes gpu001", path.display());
        let read = asked(&line).unwrap();
        assert_eq!(read.nodes.as_deref(), Some("gpu001"));
        assert_eq!(read.classes["nic"].policy.as_deref(), Some("drain"));
        std::fs::write(&path, "nodes: gpu001\nclases: {}\n").unwrap();
        let wrong = asked(&line).unwrap_err();
        assert!(wrong.text.contains("clases"), "{wrong}");
        assert_eq!(wrong.code, 2);
    }
}
