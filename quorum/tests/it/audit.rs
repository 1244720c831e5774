//! Audit log of real members: signed by the current leader, each signed head exactly once, and none missing.

use crate::common::{CLUSTER, Cluster, admin, control, create_project, until};
use lattice_mesh::{Pin, Role, StatementSignature};
use lattice_quorum_client::QuorumClient;
use lattice_quorum_types::{
    Command, ProjectPath, Refusal,
    audit::{
        AuditAction, AuditEntry, AuditFilter, AuditHead, AuditSearch, SignedHeadContent,
        verify_chain,
    },
    view::{Answer, Query},
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

async fn search(client: &QuorumClient, filter: AuditFilter) -> (Vec<AuditEntry>, AuditHead) {
    let mut search = AuditSearch {
        filter,
        limit: 500,
        ..AuditSearch::default()
    };
    let mut all = Vec::new();
    loop {
        let question = Query::AuditSearch {
            search: Box::new(search.clone()),
        };
        let Answer::AuditSearch(page) = client.read(question).await.unwrap() else {
            panic!("another answer");
        };
        all.extend(page.entries);
        search.cursor = match page.next {
            Some(next) => Some(next),
            None => return (all, page.head),
        };
    }
}

/// Returns all entries and the signed heads, after verifying the chain. For each signed
/// head: its own entry, the entry it covers, and its signer. The product's own check verifies the signer under the
/// cluster's authority.
async fn signed(c: &Cluster, client: &QuorumClient) -> (Vec<AuditEntry>, Vec<(u64, u64, String)>) {
    let (all, _) = search(client, AuditFilter::default()).await;
    verify_chain(&all).unwrap();
    let mut found = Vec::new();
    for entry in &all {
        let AuditAction::SignedHead {
            of,
            signer,
            signature,
            certificates,
        } = &entry.action
        else {
            continue;
        };
        let (root, chain) = certificates.split_last().unwrap();
        let root = (&root.0[..]).into();
        assert_eq!(Pin::of(&root), c.authority.pin());
        let statement = StatementSignature {
            chain: chain.iter().map(|c| c.0.clone()).collect(),
            signature: signature.0.clone(),
        };
        let bytes = of.signed_bytes();
        let by = statement
            .verify_by(&root, SignedHeadContent::CONTEXT, &bytes, of.at)
            .unwrap();
        assert_eq!(
            (by.identity.cluster(), by.identity.role()),
            (CLUSTER, Role::Quorum)
        );
        assert_eq!(*signer, format!("quorum/{}", by.identity.id()));
        let covered = &all[usize::try_from(of.number).unwrap() - 1];
        assert_eq!(
            (of.cluster.as_str(), &of.hash),
            (CLUSTER, &covered.hash.into())
        );
        found.push((entry.number, of.number, signer.clone()));
    }
    (all, found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_change_of_leader_neither_repeats_nor_loses_a_checkpoint() {
    let mut c = Cluster::start().await;
    c.knows_its_authority().await;
    let client = c.client("c1");
    let first = client.sign_audit().await.unwrap().unwrap();
    assert!(
        first.signed_head > 0 && first.unsigned_since.is_none(),
        "{first:?}"
    );
    let again = client.sign_audit().await.unwrap().unwrap();
    assert_eq!(again, first, "nothing is new");

    // One task writes and three others request signatures, continuously, while two leaders stop.
    let (over, made) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut working = Vec::new();
    for n in 0..4 {
        let (client, over, made) = (client.clone(), over.clone(), made.clone());
        working.push(tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                match n {
                    0 => {
                        let i = made.load(Ordering::SeqCst);
                        let create = admin(None, create_project(&format!("t{i}"), 1));
                        client.propose(create).await.unwrap().unwrap();
                        made.store(i + 1, Ordering::SeqCst);
                    }
                    // A member with a certificate older than its state may refuse, but must not sign wrongly.
                    _ => drop(client.sign_audit().await.unwrap()),
                }
            }
        }));
    }
    let grown = |by: u64| {
        let (made, from) = (made.clone(), made.load(Ordering::SeqCst));
        until("somebody writes", move || {
            let now = made.load(Ordering::SeqCst);
            async move { now >= from + by }
        })
    };
    let mut leaders = BTreeSet::new();
    for _ in 0..2 {
        grown(5).await;
        let leader = c.leader().await;
        leaders.insert(leader);
        c.stop_member(leader).await;
        grown(5).await;
        c.restart_member(leader).await;
    }
    over.store(true, Ordering::SeqCst);
    for task in working {
        task.await.unwrap();
    }
    leaders.insert(c.leader().await);
    assert!(leaders.len() > 1, "{leaders:?}");

    let last = client.sign_audit().await.unwrap().unwrap();
    assert_eq!(last.unsigned_since, None);
    let (all, checkpoints) = signed(&c, &client).await;
    let covered: Vec<u64> = checkpoints.iter().map(|(_, of, _)| *of).collect();
    let once: BTreeSet<u64> = covered.iter().copied().collect();
    assert_eq!(
        covered,
        once.into_iter().collect::<Vec<_>>(),
        "each head once, in order"
    );
    let is_checkpoint = |e: &AuditEntry| matches!(e.action, AuditAction::SignedHead { .. });
    let mut before = 0;
    for (number, of, _) in &checkpoints {
        let mut new = all.iter().filter(|e| e.number > before && e.number <= *of);
        assert!(
            new.any(|e| !is_checkpoint(e)),
            "{number} covers nothing new"
        );
        before = *of;
    }
    let signers: BTreeSet<&String> = checkpoints.iter().map(|(.., signer)| signer).collect();
    assert!(signers.len() > 1, "{signers:?}");
    let others = all
        .iter()
        .rev()
        .find(|entry| !is_checkpoint(entry))
        .unwrap();
    assert!(
        covered.last().unwrap() >= &others.number,
        "everything is covered"
    );
    c.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_leader_signs_by_itself_what_has_become_long() {
    let c = Cluster::start().await;
    c.knows_its_authority().await;
    let client = c.client("c1");
    let create = |n: u32| admin(None, create_project(&format!("t{n}"), 1));
    let commands = (0..300).map(create).collect();
    let done = client.propose_all(commands).await.unwrap();
    assert!(done.iter().all(Result::is_ok));
    let checkpoints = AuditFilter {
        actions: ["signed_head".to_owned()].into(),
        ..AuditFilter::default()
    };
    until("a checkpoint", || async {
        let (found, _) = search(&client, checkpoints.clone()).await;
        !found.is_empty()
    })
    .await;
    let (all, found) = signed(&c, &client).await;
    assert!(found[0].1 >= 256, "{found:?}");
    assert!(all.len() >= 300);
    c.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn only_leader_brings_signed_head() {
    let c = Cluster::start().await;
    c.knows_its_authority().await;
    let client = c.client("c1");
    client.sign_audit().await.unwrap().unwrap();
    let path = ProjectPath::new("t1").unwrap();
    client
        .propose(admin(None, create_project(path.as_str(), 1)))
        .await
        .unwrap()
        .unwrap();
    let (all, head) = search(&client, AuditFilter::default()).await;
    let old = all.iter().rev().find_map(|entry| match &entry.action {
        AuditAction::SignedHead {
            of,
            signer,
            signature,
            certificates,
        } => Some(lattice_quorum_types::audit::SignedHead {
            of: SignedHeadContent {
                number: head.number,
                hash: head.hash.into(),
                at: head.at,
                ..of.clone()
            },
            signer: signer.clone(),
            issued_at: head.at,
            signature: signature.clone(),
            certificates: certificates.clone(),
        }),
        _ => None,
    });
    let checkpoint = Box::new(old.unwrap());
    let forged = admin(
        None,
        Command::SignAudit {
            signed_head: checkpoint,
        },
    );
    let short = QuorumClient::new(control(&c.authority, "c2"), c.addrs());
    let said: Result<Result<_, Refusal>, _> = short.propose(forged).await;
    assert!(said.is_err(), "{said:?}");
    let (after, _) = search(&client, AuditFilter::default()).await;
    assert_eq!(after, all);
    c.stop().await;
}
