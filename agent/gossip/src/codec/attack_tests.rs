//! Randomly modified real messages, sent to the codec and to a running server.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::{
    tests::{Bench, peer, syn, text_of},
    *,
};
use crate::{Gossip, MESSAGE_KIND, frame::header, run::fixture};
use bytes::Bytes;
use lattice_mesh::{ExpectedIdentity, Role, Router};
use lattice_rng::Rng;

/// A SYN, a SYN-ACK and an ACK of a member with published state.
async fn real_messages() -> Vec<Vec<u8>> {
    let authority = fixture::authority();
    let spy = fixture::mesh(&authority, "spy");
    let (received, mut hear) = mpsc::channel(64);
    let router = Router::new().messages(MESSAGE_KIND, &[Role::Agent], move |caller, bytes| {
        let _ = received.try_send((caller.addr, bytes));
    });
    spy.serve(router).unwrap();
    let victim = fixture::mesh(&authority, "victim");
    let gossip = Gossip::new();
    victim.serve(gossip.route(Router::new())).unwrap();
    let config = fixture::config(vec![fixture::seed(&spy)]);
    let cell = gossip
        .join(&victim, config, &fixture::full())
        .await
        .unwrap();
    let header = header(cell.name());
    let mut codec = Codec::open().await.unwrap();
    let mut specimens = specimens().into_iter();
    let (mut ask, answer) = (specimens.next().unwrap(), specimens.next().unwrap());
    ask.message = ChitchatMessage::Syn {
        cluster_id: "demo/c0".to_owned(),
        digest: Default::default(),
    };
    let to_victim = spy.peer(victim.local_addr(), ExpectedIdentity::role(Role::Agent));
    let mut questions = Vec::new();
    for message in [ask, answer] {
        let bytes = codec.encode(message).await.unwrap();
        questions.push(Bytes::from([header.as_slice(), &bytes].concat()));
    }
    let mut real: Vec<Option<Vec<u8>>> = vec![None; 3];
    let all = async {
        while real.iter().any(Option::is_none) {
            // A message may be lost: the requests are repeated until all three answers have arrived.
            for question in &questions {
                let _ = to_victim.send_message(MESSAGE_KIND, question.clone());
            }
            let (_, bytes) = hear.recv().await.unwrap();
            let bytes = bytes[header.len()..].to_vec();
            let kind = usize::from(bytes[3]);
            real[kind] = Some(bytes);
        }
    };
    let all = tokio::time::timeout(Duration::from_secs(60), all).await;
    assert!(all.is_ok(), "{real:?}");
    real.into_iter().flatten().collect()
}

/// Modified copy of `message`. Three of four copies keep the header, so most of them pass the first check.
fn change(rng: &mut Rng, message: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    let first = if rng.below(4) == 0 { 0 } else { 7 };
    for _ in 0..=rng.below(3) {
        let at = first + rng.below(bytes.len() - first);
        match rng.below(8) {
            0 => bytes.truncate(at.max(8)),
            1 => bytes.extend_from_slice(&other[rng.below(other.len())..]),
            2 => bytes.insert(at, rng.below(256) as u8),
            _ => bytes[at] = rng.below(256) as u8,
        }
    }
    bytes
}

#[tokio::test]
async fn changed_messages_never_break_the_codec() {
    let real = real_messages().await;
    let mut bench = Bench::new().await;
    let mut rng = Rng::new(1, "changed messages");
    let mut got_through = 0;
    for n in 0..300u16 {
        for _ in 0..10 {
            let (one, other) = (rng.below(3), rng.below(3));
            bench.put(60_000, change(&mut rng, &real[one], &real[other]));
        }
        let bytes = bench.codec.encode(syn(&format!("m{n}"))).await.unwrap();
        bench.put(n, bytes);
        loop {
            let outcome = bench.next().await;
            if outcome.from_addr == peer(n) {
                assert_eq!(text_of(&outcome), format!("m{n}"));
                break;
            }
            assert_eq!(outcome.from_addr, peer(60_000));
            got_through += 1;
        }
    }
    let stats = bench.door.counters.read();
    println!("of 3000 changed messages {got_through} were still messages: {stats:?}");
    assert_eq!(stats.codec_late, 0);
    assert_eq!(stats.garbage + got_through, 3000);
}

#[tokio::test]
async fn changed_messages_never_stop_the_server() {
    let real = real_messages().await;
    let authority = fixture::authority();
    let (mesh, other) = (
        fixture::mesh(&authority, "a"),
        fixture::mesh(&authority, "b"),
    );
    let (gossip, door) = (Gossip::new(), fixture::receiver());
    mesh.serve(gossip.route(Router::new())).unwrap();
    let place = gossip.register(door.clone()).unwrap();
    let cell = fixture::start(place, &mesh, Vec::new()).await;
    let mut rng = Rng::new(2, "changed messages");
    for _ in 0..3000 {
        let (one, other) = (rng.below(3), rng.below(3));
        let bytes = change(&mut rng, &real[one], &real[other]).into();
        let from = peer(1);
        door.inject(InboundMessage { from, bytes }).await;
    }
    let joins = Gossip::new();
    other.serve(joins.route(Router::new())).unwrap();
    let config = fixture::config(vec![fixture::seed(&mesh)]);
    let beside = joins.join(&other, config, &fixture::full()).await.unwrap();
    fixture::until(&beside, "the attacked member", |s| {
        let attacked = s.members.get(&mesh.identity());
        attacked.is_some_and(|m| m.liveness == crate::GossipLiveness::Alive)
    })
    .await;
    let stats = cell.stats();
    println!("{stats:?}");
    assert_eq!(stats.restarts, 0, "{stats:?}");
    // A stalled machine may lose a few messages.
    assert!(stats.codec_late < 30, "of 3000: {stats:?}");
}
