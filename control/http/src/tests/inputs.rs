//! Metrics of the site's scheduling inputs.

use super::fixture::ApiFixture;
use lattice_engine::{
    core::Wakes,
    inputs::{Inputs, Price, Source, System},
};
use lattice_placement::Fraction;
use lattice_quorum_types::AllocationId;
use lattice_view::state::inputs::SourceState;
use std::sync::Arc;

async fn source_series(fixture: &ApiFixture) -> Vec<String> {
    let get = fixture.raw().get(fixture.url("/metrics"));
    let answer = get.bearer_auth(fixture.token("eye")).send().await.unwrap();
    let text = answer.text().await.unwrap();
    let is_ours = |line: &&str| {
        let named = ["scheduling_source", "energy", "readiness", "storage"];
        !line.starts_with('#') && named.iter().any(|name| line.contains(name))
    };
    text.lines().filter(is_ours).map(str::to_owned).collect()
}

#[tokio::test]
async fn metrics_show_source_state_and_age() {
    let fixture = ApiFixture::furnished().await;
    let none = source_series(&fixture).await;
    assert!(none.is_empty(), "{none:?}");
    let system = |others_mb_s| System {
        budget_mb_s: 200_000,
        others_mb_s,
        ..System::default()
    };
    let storage = [("home", system(None)), ("scratch", system(Some(50_000)))];
    let now = fixture.core.now();
    let state = |answered: bool, failure: Option<&str>| SourceState {
        answered_at: answered.then_some(lattice_quorum_types::UnixMillis(now.0 - 7_000)),
        failure: failure.map(Into::into),
    };
    let sources = [
        (Source::EnergyPrice, state(true, None)),
        (Source::DataReadiness, state(true, Some("no answer"))),
        (Source::Storage("home".to_owned()), state(false, Some("x"))),
        (Source::Storage("scratch".to_owned()), state(false, None)),
    ];
    fixture.core.publish(Wakes::Readers, |view| {
        view.inputs = Inputs {
            energy: Some(Price {
                price: -12.5,
                normalized: Fraction::millionths(250_000),
            }),
            data_ready: Arc::new([(AllocationId(1), Fraction::ONE)].into()),
            data_ready_failing: 4,
            storage: Arc::new(storage.map(|(name, s)| (name.to_owned(), s)).into()),
            sources: Arc::new(sources.into()),
        };
        view.promised = Arc::new([("scratch".to_owned(), 30_000)].into());
        Some(Vec::new())
    });
    let (ages, rest): (Vec<_>, Vec<_>) = source_series(&fixture)
        .await
        .into_iter()
        .partition(|line| line.contains("age_seconds"));
    assert_eq!(
        rest,
        [
            "lattice_scheduling_source_up{source=\"energy_price\"} 1",
            "lattice_scheduling_source_up{source=\"data_readiness\"} 0",
            "lattice_scheduling_source_up{source=\"storage.home\"} 0",
            "lattice_energy_price -12.5",
            "lattice_energy_price_normalized 0.25",
            "lattice_data_readiness_known 1",
            "lattice_data_readiness_failing 4",
            "lattice_storage_budget_bytes_per_second{system=\"home\"} 200000000000",
            "lattice_storage_budget_bytes_per_second{system=\"scratch\"} 200000000000",
            "lattice_storage_others_bytes_per_second{system=\"scratch\"} 50000000000",
            "lattice_storage_reserved_bytes_per_second{system=\"home\"} 0",
            "lattice_storage_reserved_bytes_per_second{system=\"scratch\"} 30000000000",
            "lattice_storage_available_bytes_per_second{system=\"home\"} 200000000000",
            "lattice_storage_available_bytes_per_second{system=\"scratch\"} 120000000000",
        ]
    );
    let age = |line: &String| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    assert_eq!(ages.len(), 2, "{ages:?}");
    assert!(ages.iter().all(|line| age(line) >= 7.0), "{ages:?}");
}
