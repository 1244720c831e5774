#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use lattice_agent_rpc::GetPreimage;
use lattice_conformance::{Class, ClassMark, EarlierDigest, Reading, Value};
use lattice_mesh::{
    Authority, Clock as _, Credentials, Identity, Mesh, MeshConfig, Role, Router, SystemClock,
    Validity,
};
use lattice_placement::{Health, Liveness};
use lattice_view::GossipedNode;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

struct World {
    authority: Authority,
    peers: Vec<Mesh>,
    view: View,
}

impl World {
    fn new() -> Self {
        Self {
            authority: Authority::create("test", day()).unwrap(),
            peers: Vec::new(),
            view: View::default(),
        }
    }

    fn mesh(&self, role: Role, id: &str) -> Mesh {
        let identity = Identity::new("test", role, id).unwrap();
        let credentials = Credentials::issued_by(&self.authority, &identity, day()).unwrap();
        Mesh::bind(
            "127.0.0.1:0".parse().unwrap(),
            credentials,
            MeshConfig::default(),
        )
        .unwrap()
    }

    /// An alive agent that publishes a digest and returns these bytes. Returns the counter of its requests.
    fn agent(&mut self, name: &str, says: Digest, bytes: Option<Vec<u8>>) -> Arc<AtomicUsize> {
        let asked = Arc::new(AtomicUsize::new(0));
        let mesh = self.mesh(Role::Agent, name);
        let count = asked.clone();
        let router = Router::new().rpc::<GetPreimage, _, _>(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
            let bytes = bytes.clone().map(Bytes::from);
            async move { Ok(bytes) }
        });
        mesh.serve(router).unwrap();
        let id = node(name);
        let mut entry = NodeEntry::new(id.clone());
        entry.liveness = Liveness::Alive;
        entry.gossip = Some(GossipedNode {
            cell: "c0".to_owned(),
            addr: mesh.local_addr(),
            marks: BTreeMap::from([(
                Class::Nic,
                ClassMark::Complete {
                    schema: 1,
                    digest: says,
                },
            )]),
            earlier: BTreeMap::new(),
            document: None,
            health: Health::Healthy,
            health_reasons: Vec::new(),
            boot_id: None,
            generation: 1,
            agent_version: None,
            group: None,
            history: None,
            grace_ms: None,
            keep_output_s: None,
            is_alive: true,
        });
        self.peers.push(mesh);
        self.view.insert(entry);
        self.view.settle(lattice_quorum_types::UnixMillis(1));
        asked
    }

    async fn fetch(
        &self,
        preimages: &Preimages,
        agents: &Agents,
        digest: Digest,
        of: &str,
    ) -> Result<Arc<ClassRecord>, PreimageUnavailable> {
        let node = self.view.node(&node(of)).unwrap();
        preimages
            .fetch_record(agents, &self.view, digest, node)
            .await
    }
}

fn count(asked: &Arc<AtomicUsize>) -> usize {
    asked.load(Ordering::Relaxed)
}

fn day() -> Validity {
    Validity::from_now(SystemClock.now(), Duration::from_secs(86_400))
}

fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn record(firmware: &str) -> ClassRecord {
    let mut record = ClassRecord::new(Class::Nic);
    record.require(
        "nic.0.firmware",
        Reading::Present(Value::from(firmware.to_owned())),
    );
    record
}

#[tokio::test]
async fn four_liars_with_low_names_keep_no_record_from_being_had() {
    let mut world = World::new();
    let (good, forged) = (record("28.41.1000"), record("28.39.2048"));
    let digest = good.state().digest().unwrap();
    let liars = [
        world.agent("a0", digest, Some(forged.encode())),
        world.agent("a1", digest, Some(b"no record at all".to_vec())),
        world.agent("a2", digest, None),
        world.agent("a3", digest, Some(vec![0; MOST_PREIMAGE_BYTES + 1000])),
    ];
    let honest = world.agent("z", digest, Some(good.encode()));
    let agents = Agents::new(world.mesh(Role::Control, "c1"));
    let preimages = Preimages::default();

    // Requested for one of the lying nodes, as a caller does that takes the first node publishing the digest.
    let why = world.fetch(&preimages, &agents, digest, "a0").await;
    let why = why.unwrap_err().to_string();
    println!("{why}");
    for part in [
        "5 nodes publish it, 4 were queried",
        "a0: ",
        "a1: ",
        "a2: the node does not have it",
        "a3: a message of",
        "is above the limit of",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert_eq!(preimages.record(&digest), None);
    assert_eq!((count(&honest), liars.each_ref().map(count)), (0, [1; 4]));

    let found = world.fetch(&preimages, &agents, digest, "a0").await;
    assert_eq!(
        found.unwrap().get("nic.0.firmware"),
        good.get("nic.0.firmware")
    );
    // A node that returned wrong bytes was not tried again.
    assert_eq!((count(&honest), count(&liars[0])), (1, 1));
    assert!(liars.iter().all(|liar| count(liar) <= 2));
}

#[tokio::test]
async fn owner_node_is_asked_first() {
    let mut world = World::new();
    let good = record("28.41.1000");
    let digest = good.state().digest().unwrap();
    let liar = world.agent("a0", digest, None);
    let itself = world.agent("z", digest, Some(good.encode()));
    let agents = Agents::new(world.mesh(Role::Control, "c1"));
    let preimages = Preimages::default();
    let found = world.fetch(&preimages, &agents, digest, "z").await;
    assert!(found.is_ok());
    assert_eq!((count(&liar), count(&itself)), (0, 1));
}

#[tokio::test]
async fn a_digest_that_many_want_at_once_is_fetched_once() {
    let mut world = World::new();
    let good = record("28.41.1000");
    let digest = good.state().digest().unwrap();
    let without = world.agent("without", digest, None);
    let holder = world.agent("holder", digest, Some(good.encode()));
    let agents = Agents::new(world.mesh(Role::Control, "c1"));
    let preimages = Preimages::default();
    let wants = (0..10).map(|_| world.fetch(&preimages, &agents, digest, "without"));
    let found = futures::future::join_all(wants).await;
    assert!(found.iter().all(Result::is_ok));
    assert_eq!((count(&without), count(&holder)), (1, 1));
}

#[test]
fn living_nodes_that_name_a_record_have_it_perhaps() {
    let (wanted, other) = (Digest([1; 32]), Digest([2; 32]));
    let mut view = View::default();
    let mut put = |name: &str, class, digest: Digest, beside: Option<Digest>| {
        let mut node = crate::tasks::testing::entry(name);
        if let Some(seen) = &mut node.gossip {
            let mark = ClassMark::Complete { schema: 2, digest };
            seen.marks.insert(class, mark);
            let beside = beside.map(|digest| (class, EarlierDigest { schema: 1, digest }));
            seen.earlier.extend(beside);
        }
        let id = node.id.clone();
        view.insert(node);
        view.settle(lattice_quorum_types::UnixMillis(1));
        view.nodes[&id].clone()
    };
    // Published as an earlier mark, or for another class.
    let liar = put("a0", Class::Nic, other, Some(wanted));
    let liar_too = put("a1", Class::Gpu, wanted, None);
    put("b0", Class::Nic, wanted, None);
    put("b1", Class::Nic, other, None);
    put("b2", Class::Nic, other, Some(wanted));
    let mut down = NodeEntry::clone(&put("b3", Class::Nic, wanted, None));
    down.liveness = Liveness::Unknown;
    Arc::make_mut(&mut view.nodes).insert(down.id.clone(), Arc::new(down));
    let names = |first: &NodeEntry| -> Vec<String> {
        let others = others(&view, wanted, first).into_iter();
        others.map(ToString::to_string).collect()
    };
    assert_eq!(names(&liar), ["a1", "b0", "b2"]);
    assert_eq!(names(&liar_too), ["a0", "b0", "b2"]);
}
