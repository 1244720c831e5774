//! What generic gRPC clients ask of any server: whether it serves (`grpc.health.v1`), and what
//! (`grpc.reflection`). Neither needs a token: probes have none, and the services are no secret.

use super::alone;
use crate::http::{MAX_BODY_BYTES, ops::status as readiness, state::Api, streams::StreamPlace};
use axum::{
    Router,
    body::Body,
    extract::{self, State},
    middleware::{Next, from_fn_with_state},
    response::Response as Answer,
};
use futures::{Stream, StreamExt, stream};
use http_body_util::BodyExt as _;
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
/// Whose share of the streams those have who ask without a token. Two, so that who reads what there is keeps nobody from
/// watching health.
const WATCHES: &str = "who watches health";
const READS: &str = "who reads what there is";

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
    let reflection = alone(
        described()
            .build_v1()?
            .max_decoding_message_size(MAX_BODY_BYTES),
    )
    .merge(alone(
        described()
            .build_v1alpha()?
            .max_decoding_message_size(MAX_BODY_BYTES),
    ))
    .layer(from_fn_with_state(api.clone(), within_share));
    Ok(router
        .merge(alone(health.max_decoding_message_size(MAX_BODY_BYTES)))
        .merge(reflection))
}

/// An answer has its place until its last part is read: a stream of reflection is held for as long as its reader
/// likes.
async fn within_share(State(api): State<Api>, request: extract::Request, next: Next) -> Answer {
    let place = match api.streams().open(&Arc::from(READS), None) {
        Ok(place) => place,
        Err(problem) => return problem.to_grpc().into_http(),
    };
    let answer = next.run(request).await;
    answer.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _held = &place;
            frame
        }))
    })
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
        let place = self.api.streams().open(&Arc::from(WATCHES), None);
        let place = place.map_err(|problem| problem.to_grpc())?;
        let watch = Watch {
            is_known: self.knows(&request.into_inner().service),
            api: self.api.clone(),
            told: None,
            _place: place,
        };
        let told = stream::unfold(watch, |mut watch| async {
            let status = watch.next().await;
            Some((Ok(answer(status)), watch))
        });
        let stop = self.api.stop().clone().cancelled_owned();
        Ok(Response::new(Box::pin(told.take_until(stop))))
    }
}

/// One who watches.
struct Watch {
    api: Api,
    is_known: bool,
    told: Option<ServingStatus>,
    _place: StreamPlace,
}

impl Watch {
    /// The first status, or another one than was told.
    async fn next(&mut self) -> ServingStatus {
        loop {
            let now = match self.is_known {
                true => status(&self.api),
                false => ServingStatus::ServiceUnknown,
            };
            if self.told.replace(now) != Some(now) {
                return now;
            }
            tokio::time::sleep(WATCHED).await;
        }
    }
}
