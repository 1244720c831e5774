//! Trial logins of `--check-config --online`.

use super::{super::access::check_access, *};
use lattice_config::online::OnlineCheck;
use std::{cell::RefCell, net::TcpListener};

/// A BMC that does not answer holds back no other result.
#[tokio::test]
async fn each_result_is_passed_on_at_once() {
    // Accepts connections, and answers nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let bmc = FakeBmc::builder(tree("hpe-dl325-ilo5")).steady();
    let bmc = bmc.start().await.unwrap();
    let folder = folder();
    let entries = [
        format!(
            "url: 'http://{}', nodes: gpu001",
            silent.local_addr().unwrap()
        ),
        format!("url: '{}', nodes: gpu002", bmc.url()),
    ];
    let plan = BmcPlan::load(&file(folder.path(), &entries)).unwrap();
    let ended = RefCell::new(Vec::new());
    let on_check = |check: OnlineCheck| ended.borrow_mut().push(check.to_string());
    let first = async {
        while ended.borrow().is_empty() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = check_access(&plan, LONG, &on_check) => {}
        () = first => {}
    }
    let ended = ended.into_inner();
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert!(
        ended[0].starts_with("ok       bmcs ") && ended[0].ends_with(": login accepted"),
        "{ended:?}"
    );
}
