//! A BMC with complete readings that take longer than a request waits.

use super::{super::reading_requests::ReadingRequest, *};
use tokio::sync::mpsc;

#[tokio::test]
async fn running_reading_answers_next_request() {
    let bmc = FakeBmc::builder(tree("hpe-dl325-ilo5")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let entry = format!("url: '{}', nodes: gpu001", bmc.url());
    let path = file(folder.path(), &[entry]);
    let seldom = fs::read_to_string(&path).unwrap();
    let seldom = seldom.replace("interval_s: 1\ninterval_s: 2\n", "interval_s: 3600\n");
    fs::write(&path, seldom).unwrap();
    let fixture = BmcFixture::start(BmcPlan::load(&path).unwrap());
    let node = id("gpu001");
    fixture.until("who reads it", |r| r.parts(&node)).await;
    let look = |requester: &'static str, within| fixture.readings.look(&node, requester, within);
    let read = Some(RequestedReading::Read { differs: vec![] });
    assert_eq!(look("ada", LONG).await, read);
    let first = fixture.readings.parts(&node).unwrap().read_at;
    bmc.break_path("/redfish/v1/Chassis*", Fault::Slow { ms: 300 });
    let within = Duration::from_millis(100);
    assert_eq!(
        look("ada", within).await,
        Some(RequestedReading::Late { within })
    );
    let is_over = |r: &Readings| (r.parts(&node)?.read_at > first).then_some(());
    fixture.until("the end of that look", is_over).await;
    let requests = bmc.counters().requests;
    assert_eq!(look("ada", within).await, read);
    assert_eq!(bmc.counters().requests, requests, "no other look was made");
    // The reading answers one request only, and only of the same principal.
    for requester in ["ada", "ben"] {
        assert_eq!(
            look(requester, within).await,
            Some(RequestedReading::Late { within })
        );
        assert_eq!(look(requester, LONG).await, read, "{requester}");
    }
    assert!(bmc.counters().requests > requests);
}

/// A BMC reader that answers as a test requires.
struct Reader {
    readings: Readings,
    asks: mpsc::Receiver<ReadingRequest>,
}

impl Reader {
    fn of(node: &NodeId) -> Self {
        let readings = Readings::default();
        let (worker, asks) = mpsc::channel(1);
        readings.put_worker(node.clone(), worker);
        Self { readings, asks }
    }

    async fn answers(&mut self, requester: &str) {
        let ask = self.asks.recv().await.unwrap();
        assert_eq!(ask.requester, requester);
        let _ = ask.answer.send(RequestedReading::Read { differs: vec![] });
    }
}

const SHORT: Duration = Duration::from_millis(20);

#[tokio::test]
async fn unanswered_request_is_repeated() {
    let node = id("gpu001");
    let mut reader = Reader::of(&node);
    let readings = reader.readings.clone();
    let late = Some(RequestedReading::Late { within: SHORT });
    assert_eq!(readings.look(&node, "ada", SHORT).await, late);
    // There is no room for another request while the first one waits.
    assert_eq!(readings.look(&node, "ben", SHORT).await, late);
    let read = Some(RequestedReading::Read { differs: vec![] });
    let answers = tokio::spawn(async move {
        for requester in ["ada", "ben"] {
            reader.answers(requester).await;
        }
    });
    for requester in ["ada", "ben"] {
        assert_eq!(
            readings.look(&node, requester, LONG).await,
            read,
            "{requester}"
        );
    }
    answers.await.unwrap();
}

#[tokio::test]
async fn returning_caller_gets_finished_reading() {
    let node = id("gpu001");
    let mut reader = Reader::of(&node);
    let readings = reader.readings.clone();
    // Like a caller that disconnects.
    let look = tokio::time::timeout(SHORT, readings.look(&node, "ada", LONG));
    assert!(look.await.is_err());
    reader.answers("ada").await;
    let read = Some(RequestedReading::Read { differs: vec![] });
    assert_eq!(readings.look(&node, "ada", SHORT).await, read);
}

#[tokio::test]
async fn a_look_that_sees_a_fault_first_does_not_confirm_it() {
    let node = id("gpu001");
    let mut reader = Reader::of(&node);
    let readings = reader.readings.clone();
    readings.put_parts(node.clone(), Parts::naming([]));
    let late = Some(RequestedReading::Late { within: SHORT });
    let read = Some(RequestedReading::Read { differs: vec![] });
    assert_eq!(readings.look(&node, "ada", SHORT).await, late);
    readings.put_parts(node.clone(), Parts::naming([Parts::critical()]));
    reader.answers("ada").await;
    // A new reading is requested now; it confirms the fault.
    assert_eq!(readings.look(&node, "ada", SHORT).await, late);
    reader.answers("ada").await;
    assert_eq!(readings.look(&node, "ada", SHORT).await, read);
}
