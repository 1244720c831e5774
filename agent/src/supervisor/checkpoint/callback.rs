//! Checkpoint mode `callback`: a gRPC service of the supervisor on a Unix socket for the job. The agent may restart
//! while the job is connected; the supervisor lives as long as the job.

use super::report::{CheckpointMessage, ReportContent, ReportRejection};
use rustix::net::sockopt::socket_peercred;
use std::io;
use std::os::unix::net::UnixListener as Listener;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio_stream::wrappers::{ReceiverStream, WatchStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status};
use v1::checkpoints_server::{Checkpoints, CheckpointsServer};
use v1::report_request::Report;

/// Messages and service of `lattice.checkpoint.v1`.
#[allow(missing_docs, clippy::all, rust_2018_idioms)]
pub(super) mod v1 {
    tonic::include_proto!("lattice.checkpoint.v1");
}

/// Limits of the job's connections, streams and messages, so that their cost to the supervisor is bounded.
const MAX_CONNECTIONS: usize = 16;
const MAX_STREAMS: u32 = 32;
const MAX_PENDING_REPORTS: usize = 64;
const MOST_MESSAGE_BYTES: usize = 64 << 10;
/// Maximum number of characters of a failure reason.
const MAX_REASON_CHARS: usize = 1000;
/// Pause after the kernel failed to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Present request, visible to all watchers.
pub(super) type RequestSender = watch::Sender<Option<v1::WriteRequest>>;

/// gRPC server for the job. After its drop, the server accepts no new connection; open connections continue.
pub(super) struct CallbackServer(Vec<tokio::task::JoinHandle<()>>);

impl Drop for CallbackServer {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// Serves clients with this uid.
pub(super) fn serve(
    listener: Listener,
    uid: u32,
    request: &RequestSender,
    to: mpsc::UnboundedSender<CheckpointMessage>,
) -> io::Result<CallbackServer> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let (hand_on, connections) = mpsc::channel(1);
    let service = Service {
        request: request.subscribe(),
        to,
        slots: Arc::new(Semaphore::new(MAX_PENDING_REPORTS)),
    };
    let service = CheckpointsServer::new(service).max_decoding_message_size(MOST_MESSAGE_BYTES);
    let server = Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .add_service(service)
        .serve_with_incoming(ReceiverStream::new(connections));
    let server = async move {
        if let Err(error) = server.await {
            super::super::supervisor_log::log_line(format_args!(
                "the checkpoint service for the job failed: {error}"
            ));
        }
    };
    let accepting = tokio::spawn(accept(listener, uid, hand_on));
    Ok(CallbackServer(vec![accepting, tokio::spawn(server)]))
}

async fn accept(listener: UnixListener, uid: u32, to: mpsc::Sender<io::Result<Connection>>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) if has_uid(&stream, uid) => {
                let connection = Connection {
                    stream,
                    _place: place,
                };
                if to.send(Ok(connection)).await.is_err() {
                    return;
                }
            }
            Ok(_) => {}
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Whether the client runs as `uid`. The socket's mode already excludes other users, except root.
fn has_uid(stream: &UnixStream, uid: u32) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.as_raw() == uid)
}

/// Connection of a client.
struct Connection {
    stream: UnixStream,
    _place: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

struct Service {
    request: watch::Receiver<Option<v1::WriteRequest>>,
    to: mpsc::UnboundedSender<CheckpointMessage>,
    /// Slots for reports that are not processed yet.
    slots: Arc<Semaphore>,
}

fn is_ending() -> Status {
    Status::unavailable("the job is ending")
}

/// Text of the job, made safe for printing.
fn printable(text: &str) -> String {
    let text: String = text.chars().take(MAX_REASON_CHARS).collect();
    text.replace(char::is_control, " ").trim().to_owned()
}

fn report_content(report: Option<Report>) -> Result<ReportContent, Status> {
    Ok(match report {
        None => return Err(Status::invalid_argument("report: it is empty")),
        Some(Report::Started(_) | Report::Progress(_)) => ReportContent::Alive,
        Some(Report::Deferred(v1::Deferred { for_ms })) => ReportContent::Deferral { for_ms },
        Some(Report::Completed(v1::Completed { bytes })) => ReportContent::Complete { bytes },
        Some(Report::Failed(v1::Failed { reason })) => {
            ReportContent::Declined(match printable(&reason) {
                said if said.is_empty() => "the job reported a failure without a reason".to_owned(),
                said => said,
            })
        }
    })
}

#[tonic::async_trait]
impl Checkpoints for Service {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::WriteRequest, Status>> + Send>>;

    async fn watch(
        &self,
        _: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let requests = WatchStream::new(self.request.clone());
        Ok(Response::new(Box::pin(
            requests.filter_map(|asked| asked.map(Ok)),
        )))
    }

    async fn report(
        &self,
        request: Request<v1::ReportRequest>,
    ) -> Result<Response<v1::ReportReply>, Status> {
        let v1::ReportRequest { number, report } = request.into_inner();
        let word = report_content(report)?;
        let place = self.slots.clone().acquire_owned().await;
        let (reply, answered) = oneshot::channel();
        let said = CheckpointMessage {
            number,
            content: word,
            reply: Some(reply),
            slot: Some(place.map_err(|_| is_ending())?),
        };
        self.to.send(said).map_err(|_| is_ending())?;
        match answered.await.map_err(|_| is_ending())? {
            Ok(until) => Ok(Response::new(v1::ReportReply {
                deferred_until_ms: until.map(|until| until.0),
            })),
            Err(ReportRejection::NotRequested(why)) => Err(Status::failed_precondition(why)),
            Err(ReportRejection::Invalid(why)) => Err(Status::invalid_argument(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_text_is_printable() {
        assert!(report_content(None).is_err());
        let failed = |reason: &str| {
            let reason = reason.to_owned();
            report_content(Some(Report::Failed(v1::Failed { reason }))).ok()
        };
        let said = |text: &str| Some(ReportContent::Declined(text.to_owned()));
        assert_eq!(failed("no\nroom\u{1b} "), said("no room"));
        assert_eq!(
            failed(""),
            said("the job reported a failure without a reason")
        );
        assert_eq!(failed(&"x".repeat(5000)), said(&"x".repeat(1000)));
    }
}
