//! Server side of a connection: runs the requests and messages of its peer.

use super::{link::Link, state::Core};
use crate::{
    Caller,
    pki::certificate::CertificateFields,
    rpc::{
        frame::{
            Fault, HELLO, LEAVE, ReadFault, Status, fault_bytes, frame_bytes, read_body,
            read_method, send_last,
        },
        message::serve_message,
        router::{Handler, StreamFn, UnaryFn},
    },
    transport::close::CLOSE_EXPIRED,
};
use quinn::{RecvStream, SendStream};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// Maximum number of stream items that wait for a slow reader.
const ITEM_QUEUE: usize = 16;
/// Interval between two checks of a certificate's expiry, because the clock may step.
const EXPIRY_CHECK: Duration = Duration::from_secs(60);

/// Serves one connection, dialled or accepted, until it closes. Returns the reason for the close.
pub(crate) async fn serve_link(core: &Arc<Core>, link: &Link) -> String {
    let connection = &link.connection;
    let caller = Caller {
        identity: link.identity.clone(),
        issued_at: link.issued_at,
        addr: connection.remote_address(),
    };
    let expires_at = link
        .chain
        .first()
        .and_then(|leaf| CertificateFields::read(leaf).ok())
        .map(|l| l.not_after);
    let mut check = tokio::time::interval(EXPIRY_CHECK);
    loop {
        let left = expires_at.map_or(0, |end| end.after(1).since(core.config.clock.now()));
        tokio::select! {
            () = core.cancel.cancelled() => return "shutting down".to_owned(),
            _ = check.tick() => {}
            () = tokio::time::sleep(Duration::from_millis(left)) => {
                if expires_at.is_none_or(|end| core.config.clock.now() > end) {
                    connection.close(CLOSE_EXPIRED.into(), b"the certificate has expired");
                    return "the peer's certificate has expired".to_owned();
                }
            }
            stream = connection.accept_bi() => match stream {
                Ok((send, recv)) => {
                    let (core, caller, link) = (core.clone(), caller.clone(), link.clone());
                    let (tasks, running) = (core.tasks.clone(), link.running_calls.begin());
                    tasks.spawn(async move {
                        let _running = running;
                        serve_request(&core, &link, caller, send, recv).await;
                    });
                }
                Err(error) => return error.to_string(),
            },
            stream = connection.accept_uni() => match stream {
                Ok(recv) => {
                    let (core, caller) = (core.clone(), caller.clone());
                    let (tasks, running) = (core.tasks.clone(), link.running_calls.begin());
                    tasks.spawn(async move {
                        let _running = running;
                        serve_message(&core.router, caller, recv).await;
                    });
                }
                Err(error) => return error.to_string(),
            },
        }
    }
}

async fn serve_request(
    core: &Core,
    link: &Link,
    caller: Caller,
    mut send: SendStream,
    mut recv: RecvStream,
) {
    let limit = core.config.request_timeout;
    let read = tokio::time::timeout(limit, read_request(core, &caller, &mut recv)).await;
    let asked = match read {
        Ok(Ok(asked)) => asked,
        Ok(Err(ReadFault::Lost(_))) => return,
        Ok(Err(ReadFault::Bad(fault))) => {
            tracing::info!(peer = %caller.identity, ?fault, "mesh request refused");
            send_last(&mut send, &fault_bytes(&fault)).await;
            let _ = recv.stop(0u32.into());
            return;
        }
        Err(_) => return send_last(&mut send, &fault_bytes(&deadline(limit))).await,
    };
    match asked {
        IncomingRequest::Leave => {
            link.no_new_calls.store(true, Ordering::Relaxed);
            send_last(&mut send, &frame_bytes(Status::Item, &[])).await;
        }
        IncomingRequest::Hello => send_last(&mut send, &frame_bytes(Status::Item, &[])).await,
        IncomingRequest::Unary(handler, body) => {
            let bytes = match run_unary(core, handler, caller, &body).await {
                Ok(reply) => frame_bytes(Status::Item, &reply),
                Err(fault) => fault_bytes(&fault),
            };
            send_last(&mut send, &bytes).await;
        }
        IncomingRequest::Stream(handler, body) => {
            let last = match run_stream(core, handler, caller, &body, &mut send).await {
                Ok(()) => frame_bytes(Status::End, &[]),
                Err(fault) => fault_bytes(&fault),
            };
            send_last(&mut send, &last).await;
        }
    }
    // Waits until the last bytes are acknowledged, before a shutdown drops the stream.
    let _ = tokio::time::timeout(limit, send.stopped()).await;
}

fn deadline(after: Duration) -> Fault {
    Fault::Deadline {
        after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
    }
}

enum IncomingRequest {
    Hello,
    Leave,
    Unary(UnaryFn, Vec<u8>),
    Stream(StreamFn, Vec<u8>),
}

/// Looks the method up and checks the caller's role before it reads any of the body.
async fn read_request(
    core: &Core,
    caller: &Caller,
    recv: &mut RecvStream,
) -> Result<IncomingRequest, ReadFault> {
    let method = read_method(recv).await?;
    if method == HELLO {
        return Ok(IncomingRequest::Hello);
    }
    if method == LEAVE {
        return Ok(IncomingRequest::Leave);
    }
    let Some(entry) = core
        .router
        .get()
        .and_then(|router| router.methods.get(method.as_str()))
    else {
        return Err(ReadFault::Bad(Fault::UnknownMethod { method }));
    };
    let role = caller.identity.role();
    if !entry.callers.contains(&role) {
        return Err(ReadFault::Bad(Fault::Denied { method, role }));
    }
    let body = read_body(recv, core.config.max_request_bytes).await?;
    Ok(match &entry.handler {
        Handler::Unary(handler) => IncomingRequest::Unary(handler.clone(), body),
        Handler::Stream(handler) => IncomingRequest::Stream(handler.clone(), body),
    })
}

async fn run_unary(
    core: &Core,
    handler: UnaryFn,
    caller: Caller,
    body: &[u8],
) -> Result<Vec<u8>, Fault> {
    let limit = core.config.request_timeout;
    // A task of its own, so that a panic ends this request only.
    let task = AbortOnDropHandle::new(tokio::spawn(handler(caller, body)?));
    let reply = match tokio::time::timeout(limit, task).await {
        Ok(Ok(reply)) => reply?,
        Ok(Err(_)) => {
            return Err(Fault::HandlerFailed {
                reason: "it panicked".to_owned(),
            });
        }
        Err(_) => return Err(deadline(limit)),
    };
    check_size(core, &reply)?;
    Ok(reply)
}

fn check_size(core: &Core, reply: &[u8]) -> Result<(), Fault> {
    let (bytes, limit_bytes) = (reply.len() as u64, core.config.max_reply_bytes as u64);
    if bytes > limit_bytes {
        Err(Fault::TooLarge { bytes, limit_bytes })
    } else {
        Ok(())
    }
}

async fn run_stream(
    core: &Core,
    handler: StreamFn,
    caller: Caller,
    body: &[u8],
    send: &mut SendStream,
) -> Result<(), Fault> {
    let gone = || Fault::HandlerFailed {
        reason: "the reader closed the stream".to_owned(),
    };
    let (queue, mut items) = mpsc::channel(ITEM_QUEUE);
    let work = handler(caller, body, queue)?;
    send.write_all(&frame_bytes(Status::Accepted, &[]))
        .await
        .map_err(|_| gone())?;
    let task = AbortOnDropHandle::new(tokio::spawn(work));
    let mut stopped = std::pin::pin!(send.stopped());
    loop {
        tokio::select! {
            () = core.cancel.cancelled() => return Err(Fault::ShuttingDown),
            _ = &mut stopped => return Err(gone()),
            item = items.recv() => match item {
                Some(item) => {
                    check_size(core, &item)?;
                    let frame = frame_bytes(Status::Item, &item);
                    send.write_all(&frame).await.map_err(|_| gone())?;
                }
                // All senders are dropped: the handler has returned, or is about to.
                None => break,
            },
        }
    }
    tokio::select! {
        () = core.cancel.cancelled() => Err(Fault::ShuttingDown),
        _ = &mut stopped => Err(gone()),
        done = task => done
            .unwrap_or_else(|_| Err(Fault::HandlerFailed { reason: "it panicked".to_owned() })),
    }
}
