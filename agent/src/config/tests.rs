#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::executor::{CgroupUse, OrphanPolicy};
use crate::settings::{KEEP_OUTPUT, OUTPUT_CAP_BYTES};
use lattice_config::{ConfigErrors, Source, load};

fn try_load(text: &str, env: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    load(Source::Text(text), env, lattice_config::PREFIX)
}

#[test]
fn a_file_becomes_settings_and_the_environment_beats_it() {
    let text = "
node: gpu001
listen: 127.0.0.1:0
control: ['127.0.0.1:7500']
topology: {group: g3}
gossip: {cell: c1, seeds: ['127.0.0.1:7601'], interval_ms: 500}
probe: {interval_s: 60, root: /tmp, nvml: {source: disabled}, disabled: [storage], also: [optics]}
executor: {run_as: {uid: 65534, gid: 65534}, grace_s: 5}
";
    let env = [("LATTICE_EXECUTOR__GRACE_S", "7")];
    let settings = try_load(text, &env).unwrap().into_settings().unwrap();
    assert_eq!(settings.node.as_str(), "gpu001");
    assert_eq!(settings.control, ["127.0.0.1:7500".parse().unwrap()]);
    assert_eq!(settings.topology_group.as_deref(), Some("g3"));
    assert_eq!(settings.gossip.seeds[0].1, Role::Agent);
    assert_eq!(settings.gossip.interval, Some(Duration::from_millis(500)));
    assert_eq!(settings.probe.interval, Duration::from_secs(60));
    assert!(settings.probe.host.disabled.contains(&Class::Storage));
    assert_eq!(settings.probe.host.also, [Class::Optics].into());
    assert_eq!(settings.probe.host.nvml, NvmlSource::Disabled);
    assert_eq!(settings.executor.grace, Duration::from_secs(7));
    assert_eq!(settings.executor.output_cap_bytes, OUTPUT_CAP_BYTES);
    assert_eq!(settings.executor.keep_output, KEEP_OUTPUT);
    assert_eq!(settings.executor.working_dir, None);
}

#[test]
fn retention_of_output_is_in_days_and_the_key_in_hours_still_works() {
    let days = |count: u64| Duration::from_secs(count * 86_400);
    for (keys, expected) in [
        ("keep_output_days: 30", days(30)),
        ("keep_output_days: 0", days(0)),
        ("keep_output_h: 36", Duration::from_secs(36 * 3600)),
        ("working_dir: /scratch", days(7)),
    ] {
        let text = format!("listen: 127.0.0.1:0\nexecutor: {{{keys}}}\n");
        let settings = try_load(&text, &[]).unwrap().into_settings().unwrap();
        assert_eq!(settings.executor.keep_output, expected, "{keys}");
    }
    let text = "
listen: 127.0.0.1:0
executor: {keep_output_days: 1, keep_output_h: 24, output_cap_bytes: 100, working_dir: tmp}
";
    let errors = try_load(text, &[]).unwrap_err();
    let keys: Vec<&str> = errors.problems().iter().map(|p| p.key.as_str()).collect();
    for key in [
        "executor.working_dir",
        "executor.output_cap_bytes",
        "executor.keep_output_h",
    ] {
        assert!(keys.contains(&key), "{key} is not among {keys:?}");
    }
}

#[test]
fn every_mistake_is_named_at_once() {
    let text = "
node: 'gpu 1'
join: {quorum: []}
gossip: {cell: '-', intervall_ms: 3}
probe: {interval_s: 0, nvml: {source: recorded}, disabled: [gpus], also: [gpu], sysctls: [/vm], hashed_files: [a]}
executor: {run_as: {uid: 0, gid: 5}}
";
    let errors = try_load(text, &[]).unwrap_err();
    let keys: Vec<&str> = errors.problems().iter().map(|p| p.key.as_str()).collect();
    for key in [
        "node",
        "advertise",
        "join.token_file",
        "join.quorum",
        "gossip.cell",
        "gossip.intervall_ms",
        "probe.interval_s",
        "probe.nvml.file",
        "probe.disabled.0",
        "probe.also.0",
        "probe.sysctls.0",
        "probe.hashed_files.0",
        "executor.run_as",
    ] {
        assert!(keys.contains(&key), "{key} is not among {keys:?}");
    }
}

#[test]
fn a_token_file_that_is_not_there_is_named_until_the_node_is_enrolled() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "
listen: 127.0.0.1:0
data_dir: {}
join: {{token_file: /nonexistent/token, quorum: ['127.0.0.1:1']}}
",
        folder.path().display()
    );
    let settings = || try_load(&text, &[]).unwrap().into_settings();
    let error = settings().unwrap_err();
    assert_eq!(error.to_string(), "join.token_file: /nonexistent/token");
    std::fs::create_dir(folder.path().join("identity")).unwrap();
    for file in ["identity.pem", "roots.pem"] {
        std::fs::write(folder.path().join("identity").join(file), "").unwrap();
    }
    let enrolled = settings().unwrap();
    assert!(enrolled.join.is_none());
    let quorum: Vec<_> = enrolled.quorum.iter().map(ToString::to_string).collect();
    assert_eq!(quorum, ["127.0.0.1:1"], "whom it renews with");
}

#[test]
fn what_the_site_runs_and_where_work_runs_are_settings() {
    let text = "
listen: 127.0.0.1:0
executor:
  cgroup: required
  cgroup_parent: /site
  memory_reserve_bytes: 1073741824
  cpus: 2-63
  orphans: report
  runtime_dir: /run/site
  checkpoint_poll_ms: 250
  hooks:
    prolog: {program: /etc/lattice/prolog, args: [-v], timeout_s: 5, env: {A: b}}
    health_gate: {program: /etc/lattice/gate}
";
    let work = try_load(text, &[])
        .unwrap()
        .into_settings()
        .unwrap()
        .executor;
    assert_eq!(work.cgroup.use_of_cgroups, CgroupUse::Required);
    assert_eq!(work.cgroup.memory_reserve_bytes, Some(1 << 30));
    assert_eq!(work.cgroup.cpus.as_deref(), Some("2-63"));
    assert_eq!(work.orphans, OrphanPolicy::Report);
    assert_eq!(
        work.runtime_dir.as_deref(),
        Some(std::path::Path::new("/run/site"))
    );
    assert_eq!(work.checkpoint_poll, Duration::from_millis(250));
    let prolog = work.hooks.rank.prolog.unwrap();
    assert_eq!((prolog.timeout_ms, prolog.args.len()), (5000, 1));
    assert_eq!(work.hooks.health_gate.unwrap().timeout_ms, 60_000);
    assert_eq!(work.hooks.rank.wipe, None);

    let text = "
listen: 127.0.0.1:0
executor:
  run_as: {uid: 65534, gid: 65534}
  user_map: /etc/lattice/users
  cgroup_parent: /a/../b
  cpus: 5-2
  runtime_dir: run
  checkpoint_poll_ms: 0
  hooks: {epilog: {program: epilog, timeout_s: 0, env: {'A=B': c}}}
";
    let errors = try_load(text, &[]).unwrap_err();
    let keys: Vec<&str> = errors.problems().iter().map(|p| p.key.as_str()).collect();
    for key in [
        "executor.user_map",
        "executor.cgroup_parent",
        "executor.cpus",
        "executor.runtime_dir",
        "executor.checkpoint_poll_ms",
        "executor.hooks.epilog.program",
        "executor.hooks.epilog.timeout_s",
        "executor.hooks.epilog.env",
    ] {
        assert!(keys.contains(&key), "{key} is not among {keys:?}");
    }
}
