//! Cluster and simulated Waldur of the tests of the synchronisation. The Waldur replies as a real one did.

use crate::common::{BEGIN, World};
use jiff::{Timestamp, tz::TimeZone};
use lattice_fake_waldur::{Version, Waldur};
use lattice_quorum_types::UnixMillis;
use lattice_waldur::{
    client::{WaldurClient, http_client},
    cluster::AccountedCluster as _,
    config::AccountingSettings,
    journal::Bounds,
    secret::{SecretRef, Secrets},
    status::SyncStatus,
    step::NoObserver,
    sync::AccountingSync,
};
use std::{
    collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, sync::Arc, time::Duration,
};
use tempfile::TempDir;

pub struct SyncFixture {
    pub world: Arc<World>,
    pub waldur: Waldur,
    pub folder: TempDir,
    pub settings: AccountingSettings,
    pub sync: AccountingSync,
}

/// Another cluster at the same Waldur.
pub struct Neighbour {
    pub world: Arc<World>,
    sync: AccountingSync,
    _folder: TempDir,
}

impl Neighbour {
    pub async fn round(&mut self) -> SyncStatus {
        self.sync.round().await;
        self.sync.status().lock().clone()
    }
}

pub fn stamp(at: UnixMillis) -> Timestamp {
    Timestamp::from_millisecond(at.0 as i64).unwrap()
}

impl SyncFixture {
    pub async fn new(version: Version) -> Self {
        Self::with(version, |_| {}).await
    }

    pub async fn with(version: Version, change: impl FnOnce(&mut AccountingSettings)) -> Self {
        let world = Arc::new(World::new());
        world.project("physics", 100);
        world.project("physics/higgs", 50);
        world.project("bio", 100);
        let waldur = Waldur::builder().version(version).now(stamp(BEGIN));
        let waldur = waldur.start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, waldur.token()).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let mut settings = AccountingSettings {
            api: format!("{}/api/", waldur.url()).parse().unwrap(),
            token: SecretRef::File(token),
            interval: Duration::from_secs(60),
            bounds: Bounds {
                memory: 10_000,
                disk: 100_000,
            },
            folder: folder.path().join("wal"),
            zone: TimeZone::UTC,
            ca_file: None,
            vault: None,
            offerings: BTreeMap::new(),
            plans: BTreeMap::new(),
            reconcile_every: None,
            order_check_every: None,
            lower_totals: false,
            provider_customer: None,
            category: "HPC".to_owned(),
            take_limits: true,
            hook_secret: None,
            order_per_allocation: false,
            seed_paths: false,
        };
        change(&mut settings);
        let sync = sync(&world, &settings);
        Self {
            world,
            waldur,
            folder,
            settings,
            sync,
        }
    }

    /// Another control takes over; with `has_journal` on the same machine.
    pub fn succeeded(&mut self, has_journal: bool) {
        if !has_journal {
            let _ = fs::remove_dir_all(&self.settings.folder);
        }
        self.sync = sync(&self.world, &self.settings);
    }

    pub fn wait(&self, ms: u64) {
        self.world.wait(ms);
        self.waldur.set_now(stamp(self.world.now()));
    }

    pub async fn round(&mut self) -> SyncStatus {
        self.waldur.set_now(stamp(self.world.now()));
        self.sync.round().await;
        self.status()
    }

    /// Another cluster with the same projects, which reports to the offering `offering`.
    pub fn neighbour(&self, cluster: &'static str, offering: &str) -> Neighbour {
        let world = Arc::new(World::of(cluster));
        world.project("physics", 100);
        let folder = tempfile::tempdir().unwrap();
        let settings = AccountingSettings {
            folder: folder.path().join("wal"),
            offerings: [(crate::common::vcluster("batch"), offering.to_owned())].into(),
            ..self.settings.clone()
        };
        Neighbour {
            sync: sync(&world, &settings),
            world,
            _folder: folder,
        }
    }

    pub fn status(&self) -> SyncStatus {
        self.sync.status().lock().clone()
    }

    /// Amounts of one month in hundredths, by resource and component.
    pub fn totals(&self, month: &str) -> BTreeMap<(String, String), i128> {
        let totals = self.waldur.totals().into_iter();
        let of_month = totals.filter(|((_, _, of), _)| of == month);
        of_month
            .map(|((id, kind, _), amount)| ((id, kind), amount))
            .collect()
    }

    pub fn assert_equal(&self, month: &str, from: UnixMillis, until: UnixMillis) {
        assert_eq!(self.totals(month), self.world.truth(from, until));
    }
}

/// Client of a cluster with these settings.
pub fn client(world: &World, settings: &AccountingSettings) -> WaldurClient {
    let http = http_client(&[]).unwrap();
    let secrets = Secrets {
        http: http.clone(),
        vault: None,
    };
    WaldurClient::new(
        world.cluster(),
        http,
        settings.api.clone(),
        secrets,
        settings.token.clone(),
    )
}

fn sync(world: &Arc<World>, settings: &AccountingSettings) -> AccountingSync {
    AccountingSync::new(
        world.clone(),
        client(world, settings),
        settings.clone(),
        Arc::new(NoObserver),
    )
}

pub fn id(text: &str, kind: &str) -> (String, String) {
    (format!("lattice:alps:{text}"), kind.to_owned())
}
