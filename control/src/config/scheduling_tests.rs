//! Section `scheduling` of the configuration: values, environment variables and mistakes.
#![expect(clippy::unwrap_used, reason = "tests")]
use crate::Config;
use lattice_config::{ConfigErrors, PREFIX, Source, load};
use lattice_engine::scheduling_config::*;
use std::path::PathBuf;

const REST: &str = "
cluster: c
listen: 10.0.0.1:7101
credentials: /etc/lattice/control
quorum: ['10.0.0.1:7100']
cells: []
https: {listen: '0.0.0.0:8443', certificate: server.pem, key: server.key}
tokens: /etc/lattice/tokens.yaml
";

const GOOD: &str = "
scheduling:
  energy_price: {file: /etc/lattice/energy-prices.csv}
  data_readiness:
    url: 'http://stage.example/ready?allocation={id}&project={project}&user={user}'
  storage:
    scratch:
      bandwidth_gb_s: 200
      utilisation: {url: 'https://vast.example/metrics', key: /used_gb_s, token_file: /etc/lattice/vast}
    home: {bandwidth_gb_s: 2.5}
";

fn read_with(text: &str, env: &[(&str, &str)]) -> Result<SchedulingConfig, ConfigErrors> {
    let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    let config: Config = load(Source::Text(&format!("{REST}{text}")), env, PREFIX)?;
    Ok(config.settings().unwrap().scheduling)
}

fn mistakes(text: &str) -> String {
    read_with(text, &[]).unwrap_err().to_string()
}

#[test]
fn section_shows_input_sources() {
    let read = read_with(GOOD, &[]).unwrap();
    let energy = read.energy_price.unwrap();
    assert_eq!((energy.refresh_s, energy.deadline_s), (300, 10));
    let readiness = read.data_readiness.unwrap();
    assert_eq!((readiness.refresh_s, readiness.max_age_s), (60, 600));
    let scratch = &read.storage["scratch"];
    assert_eq!(scratch.budget_mb_s(), 200_000);
    let used = scratch.utilisation.as_ref().unwrap();
    assert_eq!((used.unit, used.counts), (BandwidthUnit::GbS, Counts::All));
    assert_eq!(read.storage["home"].budget_mb_s(), 2_500);
    let nothing = read_with("", &[]).unwrap();
    assert!(nothing.energy_price.is_none() && nothing.storage.is_empty());
    assert!(read_with("scheduling:\n", &[]).is_ok());
}

#[test]
fn environment_sets_every_key() {
    let env = [
        ("LATTICE_SCHEDULING__ENERGY_PRICE__FILE", "/tmp/other.csv"),
        (
            "LATTICE_SCHEDULING__STORAGE__SCRATCH__BANDWIDTH_GB_S",
            "0.5",
        ),
        (
            "LATTICE_SCHEDULING__STORAGE__SCRATCH__UTILISATION__COUNTS",
            "others",
        ),
    ];
    let read = read_with(GOOD, &env).unwrap();
    let file = read.energy_price.unwrap().file.unwrap();
    assert_eq!(file, PathBuf::from("/tmp/other.csv"));
    let scratch = &read.storage["scratch"];
    assert_eq!(scratch.budget_mb_s(), 500);
    assert_eq!(scratch.utilisation.as_ref().unwrap().counts, Counts::Others);
}

#[test]
fn every_mistake_of_the_section_is_named_at_once() {
    let found_mistakes = mistakes(
        "
scheduling:
  energy_prise: {}
  energy_price: {file: a.csv, url: 'http://x/', refresh_s: 0}
  data_readiness: {url: 'http://stage.example/ready?who={who}', at_a_time: 0, max_age_s: 5}
  storage:
    'my scratch': {bandwidth_gb_s: .nan}
    a: {bandwidth_gb_s: -1, utilisation: {url: 'ftp://x/', key: used, unit: gb_s}}
    b: {bandwidth_gb_s: 1, utilisation: {url: 'http://u:p@x/', colour: red, deadline_s: 999}}
    c: {bandwidth_gb_s: 1, utilisation: {url: 'http://far.example/', token_file: /t}}
    d: {bandwidth_gb_s: 1, utilisation: {url: 'http://x/', refresh_s: 5, max_age_s: 20, deadline_s: 30}}
",
    );
    for part in [
        "scheduling.energy_prise: unknown key; did you mean scheduling.energy_price?",
        "scheduling.energy_price: give one of `file` and `url`",
        "scheduling.energy_price.refresh_s: give 1 to 86400 seconds, not 0",
        "scheduling.data_readiness.url: {who} is not a valid placeholder",
        "scheduling.data_readiness.url: must contain {id}",
        "scheduling.data_readiness.at_a_time: give 1 to 256, not 0",
        "scheduling.data_readiness.max_age_s: is less than `refresh_s`",
        "scheduling.storage.my scratch: ",
        "scheduling.storage.my scratch.bandwidth_gb_s: give 0.001 to",
        "scheduling.storage.a.bandwidth_gb_s: give 0.001 to",
        "scheduling.storage.a.utilisation.url: must begin with http or https, not ftp",
        "scheduling.storage.a.utilisation.key: must be a JSON pointer",
        "scheduling.storage.b.utilisation.url: must not contain a password",
        "scheduling.storage.b.utilisation.colour: unknown key",
        "scheduling.storage.b.utilisation.deadline_s: give 1 to 300 seconds, not 999",
        "scheduling.storage.c.utilisation.url: token would be sent unencrypted",
        "scheduling.storage.d.utilisation.deadline_s: is more than `max_age_s`",
    ] {
        assert!(
            found_mistakes.contains(part),
            "{part:?} is missing in {found_mistakes}"
        );
    }
    let found_mistakes = mistakes("scheduling: {energy_price: {}}\n");
    assert!(
        found_mistakes.contains("give one of `file` and `url`"),
        "{found_mistakes}"
    );
    let found_mistakes = mistakes("scheduling: {energy_price: {file: a.csv, token_file: /t}}\n");
    assert!(
        found_mistakes.contains("token_file: is for `url` only"),
        "{found_mistakes}"
    );
    let found_mistakes = mistakes("scheduling: {storage: {a: {}}}\n");
    assert!(
        found_mistakes.contains("bandwidth_gb_s"),
        "{found_mistakes}"
    );
    let local = "{bandwidth_gb_s: 1, utilisation: {url: 'http://127.0.0.1:9/', token_file: /t}}";
    assert!(read_with(&format!("scheduling: {{storage: {{a: {local}}}}}\n"), &[]).is_ok());
}

#[test]
fn what_stands_in_a_url_stays_one_piece_of_it() {
    let url = filled("http://x/{project}?u={user}", |name| match name {
        "project" => Some("atlas/web".to_owned()),
        "user" => Some("a&b=c ü".to_owned()),
        _ => None,
    });
    assert_eq!(url.unwrap(), "http://x/atlas%2Fweb?u=a%26b%3Dc%20%C3%BC");
    assert_eq!(filled("http://x/{id}", |_| None), Err("id".to_owned()));
    assert!(filled("http://x/{id", |_| Some(String::new())).is_err());
}
