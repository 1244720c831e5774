//! A BMC that takes longer for everything than who asks would wait.

use super::*;

#[tokio::test]
async fn a_look_that_goes_on_is_the_answer_to_the_next_question_of_who_asked() {
    let bmc = FakeBmc::builder(tree("hpe-dl325-ilo5")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let entry = format!("url: '{}', nodes: gpu001", bmc.url());
    let path = file(folder.path(), &[entry]);
    let seldom = fs::read_to_string(&path).unwrap();
    let seldom = seldom.replace("interval_s: 1\ninterval_s: 2\n", "interval_s: 3600\n");
    fs::write(&path, seldom).unwrap();
    let bed = Bed::start(BmcPlan::load(&path).unwrap());
    let node = id("gpu001");
    bed.until("who reads it", |r| r.parts(&node)).await;
    let look = |who: &'static str, within| bed.readings.look(&node, who, within);
    let read = Some(Looked::Read { differs: vec![] });
    assert_eq!(look("ada", LONG).await, read);
    let first = bed.readings.parts(&node).unwrap().read_at;
    bmc.break_path("/redfish/v1/Chassis*", Fault::Slow { ms: 300 });
    let within = Duration::from_millis(100);
    assert_eq!(look("ada", within).await, Some(Looked::Late { within }));
    let is_over = |r: &Readings| (r.parts(&node)?.read_at > first).then_some(());
    bed.until("the end of that look", is_over).await;
    let requests = bmc.counters().requests;
    assert_eq!(look("ada", within).await, read);
    assert_eq!(bmc.counters().requests, requests, "no other look was made");
    // It is the answer once, and to nobody else.
    for who in ["ada", "ben"] {
        assert_eq!(look(who, within).await, Some(Looked::Late { within }));
        assert_eq!(look(who, LONG).await, read, "{who}");
    }
    assert!(bmc.counters().requests > requests);
}

#[tokio::test]
async fn a_question_that_was_not_taken_is_asked_anew() {
    let readings = Readings::default();
    let (worker, mut asks) = tokio::sync::mpsc::channel(1);
    let node = id("gpu001");
    readings.put_worker(node.clone(), worker);
    let within = Duration::from_millis(20);
    let late = Some(Looked::Late { within });
    assert_eq!(readings.look(&node, "ada", within).await, late);
    // There is no place for another's question while the first one waits.
    assert_eq!(readings.look(&node, "ben", within).await, late);
    let read = Looked::Read { differs: vec![] };
    let answer = read.clone();
    let answers = async move {
        for who in ["ada", "ben"] {
            let ask = asks.recv().await.unwrap();
            assert_eq!(ask.who, who);
            ask.answer.send(answer.clone()).unwrap();
        }
    };
    let answers = AbortOnDropHandle::new(tokio::spawn(answers));
    for who in ["ada", "ben"] {
        let looked = readings.look(&node, who, LONG).await;
        assert_eq!(looked.as_ref(), Some(&read), "{who}");
    }
    answers.await.unwrap();
}
