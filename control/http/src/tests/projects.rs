//! Projects and limits.

use super::fixture::ApiFixture;
use lattice_client::{
    ClientError,
    api::{project::*, tenant::TenantUpdate},
};
use lattice_quorum_types::limit::Patch;
use reqwest::Method;

pub(super) fn request(path: &str, max_nodes: Option<u64>) -> ProjectRequest {
    ProjectRequest {
        path: path.to_owned(),
        limits: LimitsBody {
            max_nodes,
            max_concurrent_allocations: None,
        }
        .into(),
        ..ProjectRequest::default()
    }
}

#[tokio::test]
async fn a_tree_is_made_shown_changed_and_taken_down() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let made = root
        .create_project(&request("atlas/web/blog", Some(5)), None)
        .await
        .unwrap();
    assert_eq!(
        (made.path.as_str(), made.limits.max_nodes),
        ("atlas/web/blog", Some(5))
    );
    let paths =
        |tree: Vec<ProjectView>| -> Vec<String> { tree.into_iter().map(|p| p.path).collect() };
    assert_eq!(
        paths(root.projects(Some("atlas/web")).await.unwrap()),
        ["atlas/web", "atlas/web/blog"]
    );
    assert_eq!(root.projects(None).await.unwrap().len(), 5);
    let update = ProjectUpdate {
        max_nodes: Patch::Set(7),
        max_concurrent_allocations: Patch::Set(3),
    };
    root.update_project("atlas/web/blog", &update)
        .await
        .unwrap();
    let lift = ProjectUpdate {
        max_concurrent_allocations: Patch::Unlimited,
        ..ProjectUpdate::default()
    };
    let lifted = root.update_project("atlas/web/blog", &lift).await.unwrap();
    assert_eq!(lifted.limits.max_nodes, Some(7));
    assert_eq!(lifted.limits.max_concurrent_allocations, None);
    root.delete_project("atlas/web/blog").await.unwrap();
    let gone = root.project("atlas/web/blog").await.unwrap_err();
    assert!(matches!(gone, ClientError::NotFound(_)), "{gone:?}");
    assert!(gone.to_string().contains("lattice project tree"), "{gone}");
}

#[tokio::test]
async fn a_batch_of_limits_is_all_or_none() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let change = |path: &str, nodes| LimitChangeBody {
        path: path.to_owned(),
        max_nodes: Patch::Set(nodes),
        max_concurrent_allocations: Patch::Unchanged,
    };
    let too_much = LimitsRequest {
        changes: vec![change("atlas/web", 60), change("atlas/physics", 70)],
        force: false,
    };
    let refused = root.set_limits(&too_much, None).await.unwrap_err();
    assert!(matches!(&refused, ClientError::Refused(p) if p.code == "limit_conflict"));
    assert!(refused.to_string().contains("add up to 130"), "{refused}");
    assert_eq!(
        root.project("atlas/web").await.unwrap().limits.max_nodes,
        Some(50)
    );
    let fits = LimitsRequest {
        changes: vec![change("atlas/web", 60), change("atlas/physics", 60)],
        force: false,
    };
    root.set_limits(&fits, None).await.unwrap();
    assert_eq!(
        root.project("atlas/web").await.unwrap().limits.max_nodes,
        Some(60)
    );
    assert_eq!(
        root.project("atlas/physics")
            .await
            .unwrap()
            .limits
            .max_nodes,
        Some(60)
    );
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_its_kind() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let code = |error: ClientError| (error.exit_code(), error.problem().unwrap().code.clone());
    let twice = root
        .create_project(&request("atlas/web", Some(1)), None)
        .await;
    assert_eq!(code(twice.unwrap_err()), (1, "project_exists".to_owned()));
    let orphan = root
        .create_project(&request("ocean/a", Some(1)), None)
        .await;
    assert_eq!(code(orphan.unwrap_err()), (4, "unknown_project".to_owned()));
    let full = root.delete_project("atlas/physics").await;
    assert_eq!(code(full.unwrap_err()), (1, "project_not_empty".to_owned()));
    let named = root
        .create_project(&request("atlas//x", Some(1)), None)
        .await
        .unwrap_err();
    assert_eq!(named.problem().unwrap().field.as_deref(), Some("path"));
    assert_eq!(code(named), (2, "invalid".to_owned()));
    let user = fixture
        .client("alice")
        .create_project(&request("mine", Some(1)), None)
        .await;
    assert_eq!(code(user.unwrap_err()), (5, "forbidden".to_owned()));
    let below = root.projects(Some("ocean")).await.unwrap_err();
    assert_eq!(code(below), (4, "unknown_project".to_owned()));
}

#[tokio::test]
async fn a_repeat_with_its_key_makes_nothing_new() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let made = root
        .create_project(&request("ocean", Some(9)), Some("k1"))
        .await
        .unwrap();
    let again = root
        .create_project(&request("ocean", Some(9)), Some("k1"))
        .await
        .unwrap();
    assert_eq!(made, again);
    let other = root
        .create_project(&request("river", Some(9)), Some("k1"))
        .await
        .unwrap_err();
    assert_eq!(other.problem().unwrap().code, "key_reused");
}

#[tokio::test]
async fn forced_overcommit_is_marked_until_fixed() {
    let fixture = ApiFixture::furnished().await;
    let root = fixture.client("root");
    let change = |path: &str, nodes| LimitChangeBody {
        path: path.to_owned(),
        max_nodes: Patch::Set(nodes),
        max_concurrent_allocations: Patch::Unchanged,
    };
    let mut asked = LimitsRequest {
        changes: vec![change("atlas/web", 60), change("atlas/physics", 70)],
        force: true,
    };
    let alice = fixture.client("alice").set_limits(&asked, None).await;
    assert!(
        matches!(alice, Err(ClientError::NotAllowed(_))),
        "{alice:?}"
    );
    assert!(!root.project("atlas").await.unwrap().overcommitted);
    root.set_limits(&asked, None).await.unwrap();
    assert!(root.project("atlas").await.unwrap().overcommitted);
    assert!(root.tenant("atlas").await.unwrap().overcommitted);
    assert!(!root.project("atlas/web").await.unwrap().overcommitted);
    let closed = ProjectRequest {
        path: "atlas/closed".to_owned(),
        ..ProjectRequest::default()
    };
    root.create_project(&closed, None).await.unwrap();
    asked.force = false;
    asked.changes = vec![change("atlas/physics", 60)];
    root.set_limits(&asked, None).await.unwrap();
    assert!(!root.project("atlas").await.unwrap().overcommitted);

    let mut lower = TenantUpdate {
        max_nodes: Patch::Set(100),
        ..TenantUpdate::default()
    };
    let refused = root.update_tenant("atlas", &lower).await.unwrap_err();
    assert!(matches!(&refused, ClientError::Refused(p) if p.code == "limit_conflict"));
    assert!(refused.to_string().contains("\"atlas\""), "{refused}");
    assert!(refused.to_string().contains("add up to 120"), "{refused}");
    lower.force = true;
    let forced = root.update_tenant("atlas", &lower).await;
    let forced = forced.unwrap();
    assert_eq!((forced.max_nodes, forced.overcommitted), (Some(100), true));
}

#[tokio::test]
async fn a_headroom_is_read_and_nothing_else() {
    let fixture = ApiFixture::furnished().await;
    for method in [Method::PUT, Method::DELETE, Method::OPTIONS, Method::POST] {
        let url = fixture.url("/api/v1/projects/atlas/physics/headroom");
        let request = fixture.raw().request(method.clone(), url);
        let answer = request
            .bearer_auth(fixture.token("root"))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 405, "{method}");
        assert_eq!(answer.headers()["allow"], "GET,HEAD");
    }
}
