//! What generic gRPC clients ask of any server: whether it serves (`grpc.health.v1`), and what
//! (`grpc.reflection`). Neither needs a token: probes have none, and the services are no secret.

use super::alone;
use crate::http::{ops::status as readiness, state::Api};
use axum::Router;
use futures::{Stream, StreamExt, stream};
use lattice_api::v1;
use std::{pin::Pin, sync::Arc, time::Duration};
use tonic::{Request, Response, Status};
use tonic_health::pb::{
    FILE_DESCRIPTOR_SET as OF_HEALTH, HealthCheckRequest, HealthCheckResponse,
    health_check_response::ServingStatus,
    health_server::{Health, HealthServer},
};
use tonic_reflection::server::{Builder, Error};

/// How often a watched status is looked at.
const WATCHED: Duration = Duration::from_secs(1);
/// Whose share of the streams those have who watch without a token.
const NOBODY: &str = "who watches health";

/// Adds both, reflection in the version that older clients know too.
pub(super) fn add(router: Router, api: &Api, names: Vec<&'static str>) -> Result<Router, Error> {
    let described = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(v1::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(OF_HEALTH)
            .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
    };
    let health = HealthServer::new(Served {
        api: api.clone(),
        names,
    });
    Ok(router
        .merge(alone(health))
        .merge(alone(described().build_v1()?))
        .merge(alone(described().build_v1alpha()?)))
}

/// Which services there are, and whether they can answer.
struct Served {
    api: Api,
    names: Vec<&'static str>,
}

impl Served {
    /// The empty name is the server as a whole.
    fn knows(&self, name: &str) -> bool {
        name.is_empty() || self.names.contains(&name)
    }
}

/// As `/readyz` tells it: all services answer from the same view.
fn status(api: &Api) -> ServingStatus {
    match readiness::ready(api.core()) {
        Ok(()) => ServingStatus::Serving,
        Err(_) => ServingStatus::NotServing,
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}

#[tonic::async_trait]
impl Health for Served {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let name = request.into_inner().service;
        if !self.knows(&name) {
            return Err(Status::not_found(format!(
                "there is no service {name:?}; reflection lists what there is"
            )));
        }
        Ok(Response::new(answer(status(&self.api))))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// The status now, and each other one that follows; of a service that is not there, that it is not.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let place = self.api.streams().open(&Arc::from(NOBODY), None);
        let place = place.map_err(|problem| problem.to_grpc())?;
        let is_known = self.knows(&request.into_inner().service);
        let api = self.api.clone();
        let told = stream::unfold(None, move |before| {
            let api = api.clone();
            async move {
                loop {
                    let now = match is_known {
                        true => status(&api),
                        false => ServingStatus::ServiceUnknown,
                    };
                    if Some(now) != before {
                        return Some((Ok(answer(now)), Some(now)));
                    }
                    tokio::time::sleep(WATCHED).await;
                }
            }
        });
        let stop = self.api.stop().clone().cancelled_owned();
        let told = told.take_until(stop).inspect(move |_| {
            let _ = &place;
        });
        Ok(Response::new(Box::pin(told)))
    }
}
