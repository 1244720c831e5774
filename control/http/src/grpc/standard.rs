//! Standard services for generic gRPC clients: health (`grpc.health.v1`) and reflection (`grpc.reflection`). Neither
//! requires a token: probes have none, and the list of services is not secret.

use super::service_router;
use crate::MAX_BODY_BYTES;
use crate::{ops::status as readiness, state::Api, streams::StreamPlace};
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

/// Interval between two checks of a watched status.
const WATCH_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Stream shares of clients without a token. Health and reflection have separate shares, so that reflection clients
/// cannot keep health watches out.
const HEALTH_SHARE: &str = "clients of the health service";
const REFLECTION_SHARE: &str = "clients of the reflection service";

/// Adds health and reflection; reflection also in the version that older clients use.
pub(super) fn add(router: Router, api: &Api, names: Vec<&'static str>) -> Result<Router, Error> {
    let described = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(v1::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(OF_HEALTH)
            .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
    };
    let health = HealthServer::new(HealthService {
        api: api.clone(),
        names,
    });
    let reflection = service_router(
        described()
            .build_v1()?
            .max_decoding_message_size(MAX_BODY_BYTES),
    )
    .merge(service_router(
        described()
            .build_v1alpha()?
            .max_decoding_message_size(MAX_BODY_BYTES),
    ))
    .layer(from_fn_with_state(api.clone(), within_share));
    Ok(router
        .merge(service_router(
            health.max_decoding_message_size(MAX_BODY_BYTES),
        ))
        .merge(reflection))
}

/// Limits reflection streams to their share. A response holds its place until its last part is read, because a
/// reflection stream lasts as long as its client reads.
async fn within_share(State(api): State<Api>, request: extract::Request, next: Next) -> Answer {
    let place = match api.streams().open(&Arc::from(REFLECTION_SHARE), None) {
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

/// Health service: the known services and their status.
struct HealthService {
    api: Api,
    names: Vec<&'static str>,
}

impl HealthService {
    /// Whether the service is known. The empty name stands for the server.
    fn knows(&self, name: &str) -> bool {
        name.is_empty() || self.names.contains(&name)
    }
}

/// Status as in `/readyz`: all services answer from the same view.
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
impl Health for HealthService {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let name = request.into_inner().service;
        if !self.knows(&name) {
            return Err(Status::not_found(format!(
                "unknown service {name:?}; reflection lists all services"
            )));
        }
        Ok(Response::new(answer(status(&self.api))))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// Streams the current status and every change. For an unknown service, the status is `ServiceUnknown`.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let place = self.api.streams().open(&Arc::from(HEALTH_SHARE), None);
        let place = place.map_err(|problem| problem.to_grpc())?;
        let watch = Watch {
            is_known: self.knows(&request.into_inner().service),
            api: self.api.clone(),
            last_sent: None,
            _place: place,
        };
        let statuses = stream::unfold(watch, |mut watch| async {
            let status = watch.next().await;
            Some((Ok(answer(status)), watch))
        });
        let stop = self.api.stop().clone().cancelled_owned();
        Ok(Response::new(Box::pin(statuses.take_until(stop))))
    }
}

/// A client that watches a status.
struct Watch {
    api: Api,
    is_known: bool,
    last_sent: Option<ServingStatus>,
    _place: StreamPlace,
}

impl Watch {
    /// Returns the first status, then each status that differs from the last one sent.
    async fn next(&mut self) -> ServingStatus {
        loop {
            let now = match self.is_known {
                true => status(&self.api),
                false => ServingStatus::ServiceUnknown,
            };
            if self.last_sent.replace(now) != Some(now) {
                return now;
            }
            tokio::time::sleep(WATCH_POLL_INTERVAL).await;
        }
    }
}
