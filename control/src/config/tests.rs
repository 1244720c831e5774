#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_config::{ConfigErrors, PREFIX, Source, load};

const GOOD: &str = "
cluster: c
listen: 10.0.0.1:7101
credentials: /etc/lattice/control
quorum: ['10.0.0.1:7100', '10.0.0.2:7100']
cells:
  - name: c0
  - {name: c1, seeds: ['10.0.1.7:7102']}
https: {listen: '0.0.0.0:8443', certificate: server.pem, key: server.key}
tokens: /etc/lattice/tokens.yaml
auto_register: true
";

fn read(text: &str) -> Result<Config, ConfigErrors> {
    load(Source::Text(text), std::iter::empty(), PREFIX)
}

#[test]
fn a_whole_file_becomes_settings() {
    let settings = read(GOOD).unwrap().settings().unwrap();
    assert_eq!(settings.quorum.len(), 2);
    assert_eq!(settings.cells[1].seeds[0].role, Role::Agent);
    assert_eq!(settings.vcluster.as_str(), "default");
    assert!(settings.auto_register && settings.advertise.is_none());
}

#[test]
fn every_mistake_is_named_at_once() {
    let text = GOOD
        .replace("listen: 10.0.0.1:7101", "listen: somewhere")
        .replace("auto_register", "auto_registr")
        .replace("name: c1", "name: c0")
        .replace("10.0.1.7:7102", "host")
        .replace("'10.0.0.2:7100'", "'10.0.0.2'");
    let errors = read(&text).unwrap_err().to_string();
    for part in [
        "listen: must be an address",
        "auto_registr",
        "did you mean",
        "cells.1.name: cell c0 is listed twice",
        "cells.1.seeds.0: must be an address",
        "quorum.1: must be an address",
    ] {
        assert!(errors.contains(part), "{part:?} is missing in {errors}");
    }
}

#[test]
fn default_output_names_a_file_of_each_allocation() {
    let of = |pattern: &str| read(&format!("{GOOD}default_output: '{pattern}'\n"));
    assert_eq!(read(GOOD).unwrap().settings().unwrap().default_output, None);
    let settings = of("lattice-%j.out").unwrap().settings().unwrap();
    assert_eq!(settings.default_output.as_deref(), Some("lattice-%j.out"));
    for (pattern, part) in [
        ("lattice.out", "default_output: %j (allocation) is missing"),
        ("%j.%u", "default_output: after % write j"),
        ("", "default_output: it is empty"),
    ] {
        let errors = of(pattern).unwrap_err().to_string();
        assert!(errors.contains(part), "{part:?} is missing in {errors}");
    }
}

#[test]
fn requires_members() {
    let text = GOOD.replace("quorum: ['10.0.0.1:7100', '10.0.0.2:7100']", "quorum: []");
    let errors = read(&text).unwrap_err().to_string();
    assert!(errors.contains("quorum: must list"), "{errors}");
}

#[test]
fn undialable_address_needs_advertised_one() {
    let anywhere = GOOD.replace("10.0.0.1:7101", "0.0.0.0:7101");
    let errors = read(&anywhere).unwrap_err().to_string();
    assert!(errors.contains("advertise: must be set"), "{errors}");
    read(&format!("{anywhere}advertise: 10.0.0.1:7101")).unwrap();
}

#[test]
fn lost_node_stops_work_after_ten_minutes_by_default() {
    let stop_after = |more: &str| {
        let config = read(&format!("{GOOD}{more}")).unwrap();
        config.settings().unwrap().stop_lost_after
    };
    assert_eq!(stop_after(""), Some(Duration::from_secs(600)));
    let an_hour = stop_after("node_loss: {stop_after_s: 3600}\n");
    assert_eq!(an_hour, Some(Duration::from_secs(3600)));
    assert_eq!(stop_after("node_loss: {stop_after_s: 0}\n"), None);
}

const OIDC: &str =
    "https: {listen: '0.0.0.0:8443', certificate: server.pem, key: server.key, oidc: {";

fn with_issuer(section: &str) -> Result<Config, ConfigErrors> {
    let plain = "https: {listen: '0.0.0.0:8443', certificate: server.pem, key: server.key";
    read(&GOOD.replace(&format!("{plain}}}"), &format!("{OIDC}{section}}}}}")))
}

#[test]
fn an_issuer_of_tokens_is_named_with_what_its_tokens_mean() {
    let text = "issuer: 'https://id.example.org/realms/hpc', audience: lattice, roles: {staff: operator, pi: \
                tenant-admin}, tenants_claim: groups";
    let settings = with_issuer(text).unwrap().settings().unwrap();
    let oidc = settings.oidc.unwrap();
    assert_eq!((oidc.leeway_s, oidc.refresh_s), (60, 3_600));
    assert_eq!(oidc.roles_claim, "lattice_roles");
    assert_eq!(oidc.roles["pi"], lattice_http::Role::TenantAdmin);
    assert!(read(GOOD).unwrap().settings().unwrap().oidc.is_none());
}

#[test]
fn every_mistake_about_an_issuer_is_named_at_once() {
    let text = "issuer: 'http://id.example.org', audience: '', roles: {pi: tenant-admin}, name_claim: ' ', \
                leeway_s: 3600, refresh_s: 5, rolls_claim: x";
    let errors = with_issuer(text).unwrap_err().to_string();
    for part in [
        "https.oidc.issuer: must be an https URL",
        "https.oidc.audience: give the audience",
        "https.oidc.name_claim: must be the name of a claim",
        "https.oidc.roles.pi: the role tenant-admin is limited to named tenants",
        "https.oidc.leeway_s: give 0 to 600",
        "https.oidc.refresh_s: give 60 to 86400",
        "rolls_claim",
    ] {
        assert!(errors.contains(part), "{part:?} is missing in {errors}");
    }
    for (text, part) in [
        (
            "issuer: 'https://x/?a=b', audience: a, roles: {a: user}",
            "no query",
        ),
        (
            "issuer: 'https://u@x', audience: a, roles: {a: user}",
            "not contain a user name",
        ),
        (
            "issuer: 'https://x', audience: a, roles: {}",
            "map at least one",
        ),
        ("issuer: 'https://x', audience: a, roles: {a: king}", "king"),
        ("audience: a, roles: {a: user}", "issuer"),
    ] {
        let errors = with_issuer(text).unwrap_err().to_string();
        assert!(errors.contains(part), "{part:?} is missing in {errors}");
    }
}
