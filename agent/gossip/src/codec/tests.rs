#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use bytes::Bytes;
use std::{
    future::Future,
    net::UdpSocket as StdSocket,
    task::{Context, Poll},
};

/// Real message with a given text.
pub(super) fn syn(text: &str) -> ChitchatEnvelope {
    ChitchatEnvelope {
        version: ProtocolVersion::V1,
        message: ChitchatMessage::Syn {
            cluster_id: text.to_owned(),
            digest: Default::default(),
        },
    }
}

pub(super) fn text_of(outcome: &RecvOutcome) -> &str {
    match &outcome.envelope.message {
        ChitchatMessage::Syn { cluster_id, .. } => cluster_id,
        other => panic!("{other:?}"),
    }
}

pub(super) fn peer(n: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], n))
}

pub(super) struct Bench {
    pub(super) codec: Codec,
    pub(super) door: CellReceiver,
    submit: mpsc::Sender<InboundMessage>,
    inbox: mpsc::Receiver<InboundMessage>,
}

impl Bench {
    pub(super) async fn new() -> Self {
        let (submit, inbox) = mpsc::channel(20_000);
        let mut codec = Codec::open().await.unwrap();
        // A stalled machine must lose no message.
        codec.decode_timeout = Duration::from_secs(30);
        Self {
            codec,
            door: CellReceiver::new("c0".parse().unwrap(), Duration::from_secs(2)),
            submit,
            inbox,
        }
    }
    pub(super) fn put(&self, from: u16, bytes: Vec<u8>) {
        let (from, bytes) = (peer(from), Bytes::from(bytes));
        self.submit
            .try_send(InboundMessage { from, bytes })
            .unwrap();
    }
    pub(super) async fn next(&mut self) -> RecvOutcome {
        let next = self.codec.decode_next(&mut self.inbox, &self.door);
        let next = tokio::time::timeout(Duration::from_secs(60), next).await;
        next.unwrap().unwrap().unwrap()
    }
}

#[tokio::test]
async fn what_is_encoded_is_decoded_with_the_senders_address() {
    let mut bench = Bench::new().await;
    let messages = [
        syn("short"),
        syn(&"long ".repeat(10_000)),
        ChitchatEnvelope {
            version: ProtocolVersion::V1,
            message: ChitchatMessage::SynAck {
                digest: Default::default(),
                delta: Default::default(),
            },
        },
        ChitchatEnvelope {
            version: ProtocolVersion::V1,
            message: ChitchatMessage::Ack {
                delta: Default::default(),
            },
        },
    ];
    for (n, message) in (0..).zip(messages) {
        let shown = format!("{message:?}");
        let bytes = bench.codec.encode(message).await.unwrap();
        bench.put(n, bytes);
        let outcome = bench.next().await;
        assert_eq!(outcome.from_addr, peer(n));
        assert_eq!(format!("{:?}", outcome.envelope), shown);
    }
}

#[tokio::test]
async fn drops_garbage_and_keeps_real_message_senders() {
    let mut bench = Bench::new().await;
    let real: Vec<Vec<u8>> = {
        let mut real = Vec::new();
        for n in 0..100 {
            real.push(bench.codec.encode(syn(&format!("m{n}"))).await.unwrap());
        }
        real
    };
    let mark = bench.codec.marker.clone();
    for (n, bytes) in (0..).zip(&real) {
        bench.put(900, vec![n as u8; usize::from(n) * 13]);
        bench.put(901, bytes[..bytes.len() - 1].to_vec());
        bench.put(902, mark.clone());
        let other_version = vec![mark[0], mark[1], 0, mark[3], 1, 2, 3];
        bench.put(903, other_version);
        bench.put(904, vec![0; MAX_PAYLOAD_BYTES + 1]);
        bench.put(n, bytes.clone());
    }
    for n in 0..100 {
        let outcome = bench.next().await;
        let expected = format!("m{n}");
        assert_eq!(
            (outcome.from_addr, text_of(&outcome)),
            (peer(n), &*expected)
        );
    }
    let stats = bench.door.counters.read();
    assert_eq!((stats.garbage, stats.codec_late), (500, 0));
}

/// The server drops `recv` whenever its timer fires, and encodes before it calls `recv` again.
#[tokio::test]
async fn a_dropped_call_loses_nothing() {
    let mut bench = Bench::new().await;
    const COUNT: u16 = 2000;
    for n in 0..COUNT {
        let bytes = bench.codec.encode(syn(&format!("m{n}"))).await.unwrap();
        bench.put(n, bytes);
    }
    let (mut decoded, mut dropped, mut attempts) = (0, 0u32, 0u32);
    while decoded < COUNT {
        attempts += 1;
        let outcome = {
            let next = bench.codec.decode_next(&mut bench.inbox, &bench.door);
            let mut next = std::pin::pin!(next);
            // Polled once, and stopped at the first, second, third or fourth await in turn.
            let steps = attempts % 4;
            std::future::poll_fn(|cx| {
                leave_budget(steps, cx);
                Poll::Ready(next.as_mut().poll(cx))
            })
            .await
        };
        let Poll::Ready(outcome) = outcome else {
            dropped += 1;
            tokio::task::yield_now().await;
            let bytes = bench.codec.encode(syn("between")).await.unwrap();
            assert!(!bytes.is_empty());
            continue;
        };
        let outcome = outcome.unwrap().unwrap();
        let expected = format!("m{decoded}");
        assert_eq!(
            (outcome.from_addr, text_of(&outcome)),
            (peer(decoded), &*expected)
        );
        decoded += 1;
        tokio::task::yield_now().await;
    }
    println!("{dropped} calls were dropped");
    assert!(dropped > 1000, "only {dropped} calls were dropped");
    let stats = bench.door.counters.read();
    assert_eq!((stats.garbage, stats.codec_late), (0, 0));
}

/// tokio makes a task yield after 128 operations in a row. This function uses all but `left` of them.
fn leave_budget(left: u32, cx: &mut Context<'_>) {
    for _ in left..128 {
        let mut step = std::pin::pin!(tokio::task::coop::consume_budget());
        if step.as_mut().poll(cx).is_pending() {
            return;
        }
    }
}

/// Another process on this machine has both ports and the message format.
#[tokio::test]
async fn what_strangers_on_this_machine_send_does_not_get_in() {
    let mut bench = Bench::new().await;
    let inner = bench.codec.twin.local_addr().unwrap();
    let outer = bench.codec.outer_addr;
    let forged = bench.codec.encode(syn("forged")).await.unwrap();
    let mark = bench.codec.marker.clone();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flood = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let stranger = StdSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let mut sent = 0u64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for to in [inner, outer] {
                    // Errors of earlier sends are returned here, because the connected sockets reject them.
                    let _ = stranger.send_to(&forged, to);
                    let _ = stranger.send_to(&mark, to);
                    sent += 2;
                }
            }
            sent
        }
    });
    for n in 0..2000 {
        let bytes = bench.codec.encode(syn(&format!("m{n}"))).await.unwrap();
        bench.put(n, bytes);
        let outcome = bench.next().await;
        let expected = format!("m{n}");
        assert_eq!(
            (outcome.from_addr, text_of(&outcome)),
            (peer(n), &*expected)
        );
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let sent = flood.join().unwrap();
    assert!(sent > 1000, "only {sent} were sent");
    println!("2000 messages got through right beside {sent} forged ones");
    // Another socket cannot bind to either port.
    assert!(StdSocket::bind(inner).is_err() && StdSocket::bind(outer).is_err());
}

#[tokio::test]
async fn a_message_too_long_for_a_datagram_is_an_error_and_no_end() {
    let mut bench = Bench::new().await;
    let long = syn(&"x".repeat(65_530));
    let error = bench.codec.encode(long).await.map(|bytes| bytes.len());
    let error = error.unwrap_err();
    println!("{error}");
    assert!(matches!(error, CodecError::Chitchat { .. }), "{error}");
    bench.codec.encode(syn("short")).await.unwrap();
}

#[tokio::test]
async fn many_pairs_live_in_one_process() {
    let mut benches = Vec::new();
    for _ in 0..20 {
        benches.push(Bench::new().await);
    }
    for (n, bench) in (0..).zip(&mut benches) {
        let bytes = bench.codec.encode(syn("x")).await.unwrap();
        bench.put(n, bytes);
        assert_eq!(bench.next().await.from_addr, peer(n));
    }
}
