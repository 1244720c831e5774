//! Valid and invalid cluster descriptions.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

fn read(text: &str) -> Result<Cluster, ClusterError> {
    file::read(text, Path::new("site.yaml"))
}

fn faults(text: &str) -> Vec<String> {
    match read(text).unwrap_err() {
        ClusterError::Faults { faults, .. } => faults,
        other => panic!("{other}"),
    }
}

/// The example of the module documentation is valid.
#[test]
fn the_documented_form_is_read() {
    let text: String = include_str!("file.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! "))
        .skip_while(|line| *line != "```yaml")
        .skip(1)
        .take_while(|line| *line != "```")
        .map(|line| format!("{line}\n"))
        .collect();
    // The documentation abbreviates the weights.
    let cluster = read(&text.replace(", …}", "}")).unwrap();
    assert_eq!(cluster.nodes.len(), 128);
    let (name, host) = cluster.nodes.first_key_value().unwrap();
    assert_eq!((name.as_str(), host.vcluster.as_str()), ("gpu001", "batch"));
    assert_eq!(host.facts.gpu_count, Some(4));
    assert_eq!(host.facts.charge.as_ref().unwrap().mw, 2_200_000);
    assert_eq!(cluster.power["row1"].budget_mw, 900_000_000);
    assert_eq!(cluster.shares["physics"], 0.3);
    assert_eq!(cluster.targets_ms[&8], 60_000);
    let debug = &cluster.vclusters[&VclusterName::new("debug").unwrap()];
    let policy = debug.policy.unwrap();
    assert_eq!(policy.weights.get().wait_time, 1.0);
    assert_eq!(policy.reference_wait_ms, 600_000);
}

#[test]
fn reports_all_errors_together() {
    let found_faults = faults(
        "
groups:
  - {nodes: 'a[1-2]', model: none}
  - {nodes: 'b[1-'}
  - {nodes: 'c1,c2', power_domain: row}
  - {nodes: 'd1', vcluster: night}
  - {nodes: 'e1'}
  - {nodes: 'e1'}
power_domains:
  x: {parent: y, budget_kw: 1}
  y: {parent: x, budget_kw: -1}
projects:
  a/b: {share: 2}
classes: {low: 11}
targets_s: {3: -1}
",
    );
    for wanted in [
        "groups[0].model: model \"none\" is not defined",
        "groups[1].nodes: hostlist",
        "groups[2].power_domain: power domain \"row\" is not defined",
        "groups[3].vcluster: vCluster \"night\" is not defined; it must be one of default",
        "groups[5].nodes: e1 is in two groups",
        "power_domains.x.parent: the power domain contains itself",
        "power_domains.y.budget_kw: it must be a number of at least 0",
        "projects.a/b.share: it must be a number from 0 to 1",
        "projects.a: it is missing, but projects below it are defined",
        "classes.low: 11 is above 10",
        "targets_s.3: it must be a number of seconds of at least 0",
    ] {
        assert!(
            found_faults.iter().any(|fault| fault.starts_with(wanted)),
            "{wanted}: {found_faults:#?}"
        );
    }
}

#[test]
fn unknown_fields_are_refused_by_name() {
    for (text, field) in [
        ("groups: []\nnode: 1\n", "node"),
        ("groups: [{nodes: a, size: 1}]\n", "size"),
        (
            "groups: [{nodes: a}]\nvclusters: {v: {qeues: [a]}}\n",
            "qeues",
        ),
        ("groups: [{nodes: a}]\nmodels: {m: {gpu: 1}}\n", "gpu"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
    let mistakes = faults("groups: [{nodes: a, size: 1}]\nmodels: {m: {gpus: many}}\ngroup: 1\n");
    assert_eq!(
        mistakes,
        [
            "models.m.gpus: must be a whole number from 0 to 4294967295, not the text \"many\"",
            "groups.0.size: unknown key; known here: name, nodes, model, conformance, vcluster, power_domain",
            "group: unknown key; did you mean groups?",
        ]
    );
    let errors = faults("groups: [{nodes: a}]\nvclusters: {v: {weights: {energie: 1}}}\n");
    assert!(
        errors[0].contains("unknown weight \"energie\""),
        "{errors:?}"
    );
}

#[test]
fn reports_certain_errors() {
    let found_faults = faults(
        "
groups: [{nodes: a, vcluster: v}, {nodes: b}]
vclusters: {v: {queues: [q]}, w: {queues: [q]}}
projects: {p: {max_nodes: 4}, p/q: {share: 0.7}, r: {share: 0.4}}
accounts: {ph: s}
targets_s: {77: 3}
",
    );
    for wanted in [
        "groups[1].vcluster: it is missing; it must be one of v, w",
        "vclusters.w.queues: \"q\" already belongs to vCluster v",
        "projects: shares add up to 1.1",
        "projects.p/q.max_nodes: it is required, because the parent project has a limit",
        "accounts.ph: project \"s\" is not defined",
        "targets_s.77: the class is above 10",
    ] {
        assert!(
            found_faults.iter().any(|fault| fault.starts_with(wanted)),
            "{wanted}: {found_faults:#?}"
        );
    }
}

#[test]
fn hardware_that_is_not_described_is_not_there_where_any_is() {
    let text = "groups: [{nodes: a, model: m}, {nodes: b}]\nmodels: {m: {gpus: 4}}\n";
    let cluster = read(text).unwrap();
    let gpus: Vec<Option<u32>> = cluster
        .nodes
        .values()
        .map(|host| host.facts.gpu_count)
        .collect();
    assert_eq!(
        (gpus, cluster.has_hardware()),
        (vec![Some(4), Some(0)], true)
    );
    assert!(!Cluster::dragonfly(2, 2).unwrap().has_hardware());
}

/// A description may be compressed, like a trace.
#[test]
fn a_packed_list_is_read() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = file.join("../../fixtures/traces/openb_node_list_all_node.csv.gz");
    assert_eq!(Cluster::open(&file).unwrap().nodes.len(), 1_523);
}

#[test]
fn real_machines_have_their_sizes() {
    let known = Machines::known().unwrap();
    for (machine, nodes, groups, last) in [
        (Machine::Frontier, 9_408, 74, 64),
        (Machine::Perlmutter, 1_792, 14, 128),
        (Machine::Alps, 2_688, 21, 128),
    ] {
        let cluster = known.cluster(machine).unwrap();
        let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
        for host in cluster.nodes.values() {
            *sizes.entry(host.facts.group.clone().unwrap()).or_default() += 1;
        }
        let found = (
            cluster.nodes.len(),
            sizes.len(),
            *sizes.values().last().unwrap(),
        );
        assert_eq!(found, (nodes, groups, last), "{machine:?}");
    }
    assert!(Cluster::dragonfly(0, 5).is_err());
    assert!(Cluster::dragonfly(u64::MAX, u64::MAX).is_err());
}

#[test]
fn alibabas_nodes_are_read() {
    let text = "sn,cpu_milli,memory_mib,gpu,model\na-1,32000,262144,0,\na-2,96000,786432,8,G2\n";
    let cluster = openb::read(text, Path::new("nodes.csv")).unwrap();
    let host = &cluster.nodes[&NodeId::new("a-2").unwrap()];
    assert_eq!(
        (host.facts.gpu_count, host.facts.gpu_model.as_deref()),
        (Some(8), Some("G2"))
    );
    assert_eq!(host.facts.memory_bytes, Some(786_432 << 20));
    let error = openb::read(
        "sn,cpu_milli,memory_mib,gpu,model\na 1,1,x,0,\n,1\n",
        Path::new("nodes.csv"),
    );
    let ClusterError::Faults { faults, .. } = error.unwrap_err() else {
        panic!("faults")
    };
    assert!(
        faults[0].starts_with("line 2: node name \"a 1\""),
        "{faults:?}"
    );
    assert_eq!(faults[1], "line 3: the line has 2 columns; 5 are required");
}
