//! Join tokens, certificates and CAs, step by step.

use crate::common::{self, Cluster, node};
use bytes::Bytes;
use lattice_quorum_types::{
    Applied, Command, Outcome, Refusal, UnixMillis, VclusterName,
    audit::{AuditAction, AuditEntry, verify_chain},
    command::{IssuedCertificate, Privilege, TokenGrant},
    event::EventKind,
    id::LeaseName,
    node::Lifecycle,
    rpc::Role,
    view::{Answer, CertificateView, Query, TokenView, TrustView},
};

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
const QUORUM: &str = "service:quorum";

fn grant(first: &str) -> TokenGrant {
    TokenGrant {
        hash: format!("{first:0<64}"),
        role: Role::Agent,
        names: None,
        cidrs: Vec::new(),
        uses: 10,
        replace: false,
        expires_at: UnixMillis(common::START.0 + 1000 * DAY),
    }
}

fn create(c: &mut Cluster, grant: &TokenGrant) -> Result<Applied, Refusal> {
    let grant = grant.clone();
    c.admin(Command::CreateToken { grant })
}

/// A certificate for a day, issued now or a given number of seconds later.
fn certificate(c: &Cluster, after_s: u64) -> IssuedCertificate {
    let issued_at = UnixMillis((c.now().0 / 1000 + after_s) * 1000);
    IssuedCertificate {
        issued_at,
        expires_at: issued_at.after(DAY),
    }
}

/// Enrolment as an agent with these exceptions.
#[derive(Clone, Default)]
struct Enrol {
    from: Option<&'static str>,
    replace: bool,
    after_s: u64,
}

impl Enrol {
    fn command(&self, c: &Cluster, grant: &TokenGrant, name: &str) -> Command {
        Command::ConsumeToken {
            hash: grant.hash.clone(),
            name: name.to_owned(),
            role: grant.role,
            from: self.from.map(|from| from.parse().unwrap()),
            replace: self.replace,
            certificate: certificate(c, self.after_s),
        }
    }
    fn run(&self, c: &mut Cluster, grant: &TokenGrant, name: &str) -> Result<Applied, Refusal> {
        let command = self.command(c, grant, name);
        c.propose(QUORUM, Privilege::Service, command)
    }
}

fn renew(c: &mut Cluster, name: &str, shown: UnixMillis, after_s: u64) -> Result<Applied, Refusal> {
    let command = Command::RenewCertificate {
        name: name.to_owned(),
        role: Role::Agent,
        shown_issued_at: shown,
        certificate: certificate(c, after_s),
    };
    c.propose(QUORUM, Privilege::Service, command)
}

fn revoke(c: &mut Cluster, role: Role, name: &str) -> Result<Applied, Refusal> {
    let (name, reason) = (name.to_owned(), "its disk was sold".to_owned());
    c.admin(Command::RevokeCertificates { name, role, reason })
}

fn trust(c: &Cluster) -> TrustView {
    match c.state.query(&Query::Trust) {
        Answer::Trust(trust) => trust,
        other => panic!("{other:?}"),
    }
}

fn tokens(c: &Cluster) -> Vec<TokenView> {
    match c.state.query(&Query::Tokens) {
        Answer::Tokens(tokens) => tokens,
        other => panic!("{other:?}"),
    }
}

fn of(c: &Cluster, role: Role, name: &str) -> Option<CertificateView> {
    match c.state.query(&Query::Certificates) {
        Answer::Certificates(all) => all.into_iter().find(|v| v.role == role && v.name == name),
        other => panic!("{other:?}"),
    }
}

fn audit(c: &Cluster) -> Vec<AuditEntry> {
    let (after, limit) = (0, u32::MAX);
    match c.state.query(&Query::Audit { after, limit }) {
        Answer::Audit(entries) => entries,
        other => panic!("{other:?}"),
    }
}

/// Advances the clock by days; state time follows by a day per command.
fn days(c: &mut Cluster, count: u64) {
    for day in 0..count {
        c.clock += DAY;
        let (lease, holder) = (LeaseName::new("x").unwrap(), format!("h{day}"));
        let ttl_ms = 1;
        c.admin(Command::AcquireLease {
            lease,
            holder,
            ttl_ms,
        })
        .unwrap();
    }
}

fn why(refused: Result<Applied, Refusal>) -> String {
    match refused {
        Err(Refusal::TokenRefused { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn token_limits_hold_and_refusals_use_nothing() {
    let mut c = Cluster::default();
    let only = TokenGrant {
        names: Some(vec![node("n1"), node("n2")]),
        cidrs: vec!["10.1.0.0/16".parse().unwrap(), "fd00::/64".parse().unwrap()],
        uses: 2,
        ..grant("a1")
    };
    create(&mut c, &only).unwrap();
    let inside = Enrol {
        from: Some("10.1.9.9"),
        ..Enrol::default()
    };
    let outside = Enrol {
        from: Some("10.2.0.1"),
        ..Enrol::default()
    };
    let unknown = Enrol::default();
    let refused = outside.run(&mut c, &only, "n1").unwrap_err().to_string();
    assert!(refused.contains("from 10.2.0.1, only from 10.1.0.0/16, fd00::/64"));
    assert!(why(unknown.run(&mut c, &only, "n1")).contains("limited to some networks"));
    assert!(why(inside.run(&mut c, &only, "n3")).contains("not for the name"));
    let forged = TokenGrant {
        role: Role::Control,
        ..only.clone()
    };
    assert!(why(inside.run(&mut c, &forged, "n1")).contains("it is for the role agent"));
    assert_eq!(tokens(&c)[0].grant.uses, 2);

    let applied = inside.run(&mut c, &only, "n1").unwrap();
    let certificate = certificate(&c, 0);
    assert_eq!(applied.outcome, Outcome::Certified { certificate });
    let mapped = Enrol {
        from: Some("::ffff:10.1.0.7"),
        ..Enrol::default()
    };
    mapped.run(&mut c, &only, "n2").unwrap();
    assert!(why(inside.run(&mut c, &only, "n2")).contains("used up"));
    assert!(
        tokens(&c).is_empty(),
        "a token that is used up is not shown"
    );
}

#[test]
fn token_permits_exact_number_of_enrolments() {
    let mut c = Cluster::default();
    let twenty = TokenGrant {
        uses: 20,
        ..grant("20")
    };
    create(&mut c, &twenty).unwrap();
    let tried = (0..50).map(|i| Enrol::default().run(&mut c, &twenty, &format!("n{i}")));
    assert_eq!(tried.filter(Result::is_ok).count(), 20);
}

#[test]
fn a_token_is_withdrawn_by_the_beginning_of_its_hash() {
    let mut c = Cluster::default();
    let (one, two) = (grant("abcdef0011"), grant("abcdef0022"));
    create(&mut c, &one).unwrap();
    create(&mut c, &two).unwrap();
    let mut withdraw = |id: &str| c.admin(Command::RevokeToken { id: id.to_owned() });
    for (id, said) in [
        ("abcdef00", "several tokens begin with this id"),
        ("abcdef0", "at least 8"),
        ("ABCDEF0011", "at least 8"),
    ] {
        let refused = withdraw(id).unwrap_err();
        assert!(refused.to_string().contains(said), "{refused}");
    }
    assert!(matches!(
        withdraw("ffffffff"),
        Err(Refusal::UnknownTrust { .. })
    ));
    withdraw("abcdef0011").unwrap();
    assert!(why(Enrol::default().run(&mut c, &one, "n1")).contains("it is unknown"));
    Enrol::default().run(&mut c, &two, "n1").unwrap();
    let shown: Vec<_> = tokens(&c)
        .into_iter()
        .map(|t| (t.grant.hash, t.by))
        .collect();
    assert_eq!(shown, [("abcdef002200".to_owned(), "root".to_owned())]);
}

#[test]
fn taking_a_name_needs_the_token_and_the_asker_and_voids_what_was_there() {
    let mut c = Cluster::default();
    let (plain, strong) = (
        grant("a1"),
        TokenGrant {
            replace: true,
            ..grant("a2")
        },
    );
    create(&mut c, &plain).unwrap();
    create(&mut c, &strong).unwrap();
    Enrol::default().run(&mut c, &plain, "n1").unwrap();
    let first = of(&c, Role::Agent, "n1").unwrap().issued_at.unwrap();
    let ask = |replace| Enrol {
        replace,
        after_s: 1,
        ..Enrol::default()
    };
    for (token, replace, said) in [
        (&plain, false, "--replace` and set join.replace"),
        (&plain, true, "does not permit"),
        (&strong, false, "set join.replace = true"),
    ] {
        match ask(replace).run(&mut c, token, "n1").unwrap_err() {
            Refusal::NameTaken { name, needs } => {
                assert_eq!(name, "n1");
                assert!(needs.contains(said), "{needs}");
            }
            other => panic!("{other}"),
        }
    }
    assert!(trust(&c).revoked.is_empty());
    let applied = ask(true).run(&mut c, &strong, "n1").unwrap();
    let view = trust(&c);
    let second = of(&c, Role::Agent, "n1").unwrap().issued_at.unwrap();
    assert_eq!(view.revoked.len(), 1);
    assert_eq!(view.revoked[0].issued_before, second);
    assert!(first < second);
    assert_eq!(view.number, applied.revision);
    let is_published = applied.events.iter().any(
        |event| matches!(event.kind, EventKind::Trust { number } if number == applied.revision),
    );
    assert!(is_published);
    // The former owner of the name cannot renew; the new one can.
    let refused = renew(&mut c, "n1", first, 2).unwrap_err();
    assert!(matches!(refused, Refusal::CertificateRevoked { .. }));
    let soon = renew(&mut c, "n1", second, 2).unwrap_err();
    assert!(soon.to_string().contains("issued moments ago"), "{soon}");
    renew(&mut c, "n1", second, 62).unwrap();
    // A name with an expired certificate is free, unless a node has it.
    days(&mut c, 3);
    Enrol::default().run(&mut c, &plain, "n1").unwrap();
    days(&mut c, 3);
    let (node, vcluster) = (node("n1"), VclusterName::new("main").unwrap());
    let registered = node.clone();
    c.admin(Command::RegisterNode { node, vcluster }).unwrap();
    let taken = Enrol::default().run(&mut c, &plain, "n1").unwrap_err();
    assert!(matches!(taken, Refusal::NameTaken { .. }));
    let lifecycle = Lifecycle::Retired;
    let node = registered;
    c.admin(Command::SetLifecycle { node, lifecycle }).unwrap();
    Enrol::default().run(&mut c, &plain, "n1").unwrap();
}

#[test]
fn revoked_process_cannot_use_old_token() {
    let mut c = Cluster::default();
    let fleet = |first| TokenGrant {
        replace: true,
        ..grant(first)
    };
    let (before, after) = (fleet("a1"), fleet("a2"));
    create(&mut c, &before).unwrap();
    let boot = |c: &mut Cluster, token: &TokenGrant, name: &str| {
        c.clock += 5_000;
        let replace = true;
        Enrol {
            replace,
            ..Enrol::default()
        }
        .run(c, token, name)
    };
    // A diskless node takes over its own name at each boot, which invalidates no token.
    for _ in 0..2 {
        boot(&mut c, &before, "n1").unwrap();
    }
    boot(&mut c, &before, "n2").unwrap();
    c.clock += 1;
    revoke(&mut c, Role::Agent, "n1").unwrap();
    let reason = why(boot(&mut c, &before, "n1"));
    assert!(
        reason.contains("created before the certificates"),
        "{reason}"
    );
    boot(&mut c, &before, "n2").unwrap();
    create(&mut c, &after).unwrap();
    boot(&mut c, &after, "n1").unwrap();
    let reason = why(boot(&mut c, &before, "n1"));
    assert!(reason.contains("created before"), "for good: {reason}");
}

#[test]
fn certificates_of_one_name_never_share_a_second() {
    let mut c = Cluster::default();
    let token = grant("a1");
    create(&mut c, &token).unwrap();
    Enrol::default().run(&mut c, &token, "n1").unwrap();
    let issued = certificate(&c, 0).issued_at;
    match renew(&mut c, "n1", issued, 0).unwrap_err() {
        Refusal::Invalid { field, .. } => assert_eq!(field, "certificate.issued_at"),
        other => panic!("{other}"),
    }
    renew(&mut c, "n1", issued, 60).unwrap();
    for (issued_at, expires_at) in [
        (issued.0 + 122_500, issued.0 + DAY),
        (issued.0 + 122_000, issued.0 + 122_000),
        (issued.0 + 3 * DAY, issued.0 + 5 * DAY),
        (issued.0 + 122_000, issued.0 + 900 * DAY),
    ] {
        let certificate = IssuedCertificate {
            issued_at: UnixMillis(issued_at),
            expires_at: UnixMillis(expires_at),
        };
        let command = Command::RenewCertificate {
            name: "n1".to_owned(),
            role: Role::Agent,
            shown_issued_at: issued,
            certificate,
        };
        let refused = c.propose(QUORUM, Privilege::Service, command).unwrap_err();
        assert_eq!(refused.code(), "invalid", "{refused}");
    }
}

#[test]
fn a_repeat_is_answered_with_the_certificate_of_the_first() {
    let mut c = Cluster::default();
    let token = TokenGrant {
        uses: 1,
        ..grant("a1")
    };
    create(&mut c, &token).unwrap();
    let ask = |c: &mut Cluster, after_s| {
        let enrol = Enrol {
            from: Some("192.0.2.1"),
            after_s,
            ..Enrol::default()
        };
        let command = enrol.command(c, &token, "n1");
        let by = common::principal(QUORUM, Privilege::Service);
        let mut envelope = common::envelope(c.now(), by, command);
        envelope.key = Some("enrol/1".to_owned());
        c.apply(envelope)
    };
    let first = ask(&mut c, 0).unwrap();
    c.clock += 5000;
    // Another member with another clock receives the same request.
    let again = ask(&mut c, 3).unwrap();
    assert_eq!(again.outcome, first.outcome);
    assert!(again.events.is_empty());
}

#[test]
fn revoked_certificates_stay_void_as_long_as_one_of_them_could_hold() {
    let mut c = Cluster::default();
    let token = grant("a1");
    create(&mut c, &token).unwrap();
    Enrol::default().run(&mut c, &token, "n1").unwrap();
    c.clock += 300;
    let by_quorum = revoke(&mut c, Role::Agent, "n1").unwrap();
    // The certificate was issued by hand, so it is not recorded.
    let by_hand = revoke(&mut c, Role::Control, "c1").unwrap();
    assert!(by_quorum.revision < by_hand.revision);
    let view = trust(&c);
    let names: Vec<_> = view.revoked.iter().map(|r| (r.role, &*r.name)).collect();
    assert_eq!(names, [(Role::Agent, "n1"), (Role::Control, "c1")]);
    for revoked in &view.revoked {
        assert_eq!(revoked.issued_before.0 % 1000, 0);
        // A certificate issued within this second is revoked too.
        assert!(revoked.issued_before > certificate(&c, 0).issued_at);
        assert_eq!(
            revoked.forget_at,
            revoked.issued_before.after(825 * DAY + 999)
        );
    }
    assert_eq!(revoke(&mut c, Role::Agent, "n1").unwrap().events, []);
    let shown = certificate(&c, 0).issued_at;
    let refused = renew(&mut c, "n1", shown, 5).unwrap_err();
    assert!(matches!(refused, Refusal::CertificateRevoked { .. }));
    // The agent enrols again with a later token, and its new certificate is valid.
    let token = grant("a2");
    create(&mut c, &token).unwrap();
    let later = Enrol {
        after_s: 1,
        ..Enrol::default()
    };
    later.run(&mut c, &token, "n1").unwrap();
    let view = of(&c, Role::Agent, "n1").unwrap();
    assert!(view.issued_at.unwrap() >= view.revoked.unwrap().issued_before);

    days(&mut c, 824);
    revoke(&mut c, Role::Control, "c2").unwrap();
    assert_eq!(trust(&c).revoked.len(), 3);
    days(&mut c, 3);
    // The document under one number does not change with time; the next change removes expired revocations.
    assert_eq!(trust(&c).revoked.len(), 3);
    revoke(&mut c, Role::Control, "c3").unwrap();
    let names: Vec<_> = trust(&c).revoked.into_iter().map(|r| r.name).collect();
    assert_eq!(names, ["c2", "c3"]);
}

#[test]
fn unknown_certificate_creates_record() {
    let mut c = Cluster::default();
    let shown = UnixMillis(common::START.0 - 20 * DAY);
    renew(&mut c, "n1", shown, 0).unwrap();
    assert!(of(&c, Role::Agent, "n1").unwrap().issued_at.is_some());
    // A takeover revokes the certificate of unknown expiry for the longest possible validity.
    let strong = TokenGrant {
        replace: true,
        ..grant("a2")
    };
    create(&mut c, &strong).unwrap();
    let take = Enrol {
        replace: true,
        after_s: 1,
        ..Enrol::default()
    };
    take.run(&mut c, &strong, "n1").unwrap();
    assert!(trust(&c).revoked[0].forget_at >= c.now().after(800 * DAY));
}

#[test]
fn an_authority_is_added_promoted_and_retired() {
    let mut c = Cluster::default();
    let der = |n: u8| Bytes::from(vec![n; 300]);
    let pin = |n: u8| blake3::hash(&der(n)).to_hex().to_string();
    let add = |n| Command::AddAuthority {
        certificate: der(n),
    };
    // The first CA of a new cluster comes from its members, and no later one does.
    let first = c.propose(QUORUM, Privilege::Service, add(1)).unwrap();
    assert_eq!(trust(&c).number, first.revision);
    let control = Cluster::default().propose("service:control/c1", Privilege::Service, add(1));
    assert!(matches!(control, Err(Refusal::Forbidden { .. })));
    let other = c.propose(QUORUM, Privilege::Service, add(2)).unwrap_err();
    assert!(matches!(other, Refusal::Forbidden { .. }));
    let again = c.propose(QUORUM, Privilege::Service, add(1)).unwrap();
    assert_eq!(again.revision, first.revision);
    c.admin(add(2)).unwrap();
    let issuing = |c: &Cluster| {
        let all = trust(c).authorities;
        let issuing: Vec<_> = all.iter().filter(|a| a.issuing).collect();
        assert_eq!(issuing.len(), 1);
        issuing[0].pin.clone()
    };
    assert_eq!(issuing(&c), pin(1));
    let retire = |n| Command::RetireAuthority { pin: pin(n) };
    let refused = c.admin(retire(1)).unwrap_err();
    assert!(refused.to_string().contains("promote another"), "{refused}");
    let promote = Command::PromoteAuthority { pin: pin(2) };
    let promoted = c.admin(promote.clone()).unwrap();
    assert_eq!(issuing(&c), pin(2));
    assert_eq!(c.admin(promote).unwrap().revision, promoted.revision);
    let retired = c.admin(retire(1)).unwrap();
    assert_eq!(trust(&c).authorities.len(), 1);
    assert_eq!(c.admin(retire(1)).unwrap().revision, retired.revision);
    for unknown in [retire(9), Command::PromoteAuthority { pin: pin(9) }] {
        let refused = c.admin(unknown).unwrap_err();
        assert!(matches!(refused, Refusal::UnknownTrust { .. }));
    }
    for certificate in [Bytes::new(), Bytes::from(vec![0; 9000])] {
        let refused = c.admin(Command::AddAuthority { certificate }).unwrap_err();
        assert_eq!(refused.code(), "invalid");
    }
    let said: Vec<_> = audit(&c).into_iter().map(|entry| entry.action).collect();
    let pins = |n| pin(n);
    assert_eq!(
        said,
        [
            AuditAction::AuthorityAdded { pin: pins(1) },
            AuditAction::AuthorityAdded { pin: pins(2) },
            AuditAction::AuthorityPromoted { pin: pins(2) },
            AuditAction::AuthorityRetired { pin: pins(1) },
        ]
    );
}

#[test]
fn permissions_match_roles() {
    let mut c = Cluster::default();
    let certificate = certificate(&c, 0);
    let name = || "n1".to_owned();
    let role = Role::Agent;
    let (pin, reason, id) = ("ab".repeat(32), "why".to_owned(), "0".repeat(8));
    use Privilege::{Admin, Operator, Service, User};
    let table: [(Command, &[Privilege]); 8] = [
        (Command::CreateToken { grant: grant("a1") }, &[Admin]),
        (Command::RevokeToken { id }, &[Admin]),
        (
            Command::RevokeCertificates {
                name: name(),
                role,
                reason: reason.clone(),
            },
            &[Admin],
        ),
        (Command::PromoteAuthority { pin: pin.clone() }, &[Admin]),
        (Command::RetireAuthority { pin }, &[Admin]),
        (
            Command::RenewCertificate {
                name: name(),
                role,
                shown_issued_at: UnixMillis(0),
                certificate,
            },
            &[Admin, Service],
        ),
        (
            Command::AddAuthority {
                certificate: Bytes::from_static(b"x"),
            },
            &[Admin, Service],
        ),
        (
            Command::ForceRelease {
                node: node("n1"),
                reason,
                expected: None,
            },
            &[Operator, Admin],
        ),
    ];
    for (command, allowed) in table {
        for power in [User, Operator, Admin, Service] {
            let outcome = c.clone().propose(QUORUM, power, command.clone());
            let forbidden = matches!(outcome, Err(Refusal::Forbidden { .. }));
            assert_eq!(
                forbidden,
                !allowed.contains(&power),
                "{power:?}: {command:?}"
            );
        }
        let _ = c.propose("root", Admin, command);
    }
}

#[test]
fn what_was_done_stays_known_in_a_chain_that_shows_every_change() {
    let mut c = Cluster::default();
    let strong = TokenGrant {
        replace: true,
        ..grant("a1")
    };
    create(&mut c, &strong).unwrap();
    for after_s in [0, 1] {
        let replace = after_s == 1;
        let enrol = Enrol {
            replace,
            after_s,
            ..Enrol::default()
        };
        enrol.run(&mut c, &strong, "n1").unwrap();
    }
    revoke(&mut c, Role::Agent, "n1").unwrap();
    let entries = audit(&c);
    verify_chain(&entries).unwrap();
    let numbers: Vec<_> = entries.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    let enrolled = |replaced| AuditAction::Enrolled {
        role: Role::Agent,
        name: "n1".to_owned(),
        token: "a10000000000".to_owned(),
        replaced,
        held: None,
        element: None,
    };
    assert_eq!(entries[1].action, enrolled(false));
    assert_eq!(entries[2].action, enrolled(true));
    assert_eq!(entries[3].by.name, "root");
    let (after, limit) = (1, 2);
    let Answer::Audit(page) = c.state.query(&Query::Audit { after, limit }) else {
        panic!("audit")
    };
    assert_eq!(page, entries[1..3]);
    let mut forged = entries;
    forged[2].action = enrolled(false);
    assert!(verify_chain(&forged).is_err());
}

#[test]
fn no_more_is_revoked_than_members_can_sign() {
    let mut c = Cluster::default();
    let name = |i: u32| format!("{i:0>253}");
    let mut i = 0;
    let refused = loop {
        match revoke(&mut c, Role::Agent, &name(i)) {
            Ok(_) => i += 1,
            Err(refusal) => break refusal,
        }
    };
    assert!(refused.to_string().contains("no more fit"), "{refused}");
    let names: usize = trust(&c).revoked.iter().map(|r| r.name.len() + 16).sum();
    assert!(names >= lattice_quorum_state::MAX_REVOCATION_BYTES);
    assert!(names < lattice_quorum_state::MAX_REVOCATION_BYTES + 300);
    // Another revocation of the same name needs no further space.
    c.clock += 5_000;
    revoke(&mut c, Role::Agent, &name(3)).unwrap();
}
