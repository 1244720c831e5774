//! Scenarios in groups; those of a group share a cluster.

use crate::fixture::ClusterFixture;
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Trial};
use std::{
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};
use tokio::runtime::Runtime;

type FoundCluster = fn() -> LocalBoxFuture<'static, ClusterFixture>;
type Play = Box<dyn for<'a> Fn(&'a mut ClusterFixture) -> LocalBoxFuture<'a, ()> + Send>;

/// Scenarios that share a cluster. Each uses the cluster as the previous one left it, and works on a new one too.
pub struct Group {
    name: &'static str,
    found: FoundCluster,
    scenarios: Vec<(String, Play)>,
}

impl Group {
    /// Creates a group without scenarios; `found` starts its cluster.
    pub fn new(name: &'static str, found: FoundCluster) -> Self {
        Self {
            name,
            found,
            scenarios: Vec::new(),
        }
    }

    pub fn scenario(
        mut self,
        name: impl Into<String>,
        play: impl for<'a> Fn(&'a mut ClusterFixture) -> LocalBoxFuture<'a, ()> + Send + 'static,
    ) -> Self {
        self.scenarios.push((name.into(), Box::new(play)));
        self
    }
}

/// Runtime, and the cluster in use with the name of its group.
struct Stage {
    runtime: Runtime,
    current: Option<(&'static str, ClusterFixture)>,
}

impl Stage {
    /// Runs one scenario. A cluster in which a scenario failed is not used again.
    fn play(&mut self, group: &'static str, found: FoundCluster, name: &str, play: &Play) {
        let started_at = Instant::now();
        if self.current.as_ref().is_some_and(|(of, _)| *of != group) {
            self.stop();
        }
        let _entered = self.runtime.enter();
        let mut cluster = match self.current.take() {
            Some((_, cluster)) => cluster,
            None => self.runtime.block_on(found()),
        };
        self.runtime.block_on(play(&mut cluster));
        self.current = Some((group, cluster));
        println!("{name}: {} ms", started_at.elapsed().as_millis());
    }

    fn stop(&mut self) {
        if let Some((_, cluster)) = self.current.take() {
            self.runtime.block_on(cluster.stop());
        }
    }
}

/// Runs the scenarios that the arguments select, one at a time.
pub fn run(groups: Vec<Group>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let runtime = Runtime::new().unwrap();
    let stage = Arc::new(Mutex::new(Stage {
        runtime,
        current: None,
    }));
    let mut trials = Vec::new();
    for group in groups {
        for (name, play) in group.scenarios {
            let stage = Arc::clone(&stage);
            let path = format!("{}::{name}", group.name);
            trials.push(Trial::test(path, move || {
                let mut stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
                stage.play(group.name, group.found, &name, &play);
                Ok(())
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    stage.lock().unwrap_or_else(PoisonError::into_inner).stop();
    conclusion.exit_code()
}
