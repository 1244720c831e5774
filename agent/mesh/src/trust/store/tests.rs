#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use crate::{Authority, Identity, Role, TrustBundle, TrustedAuthority, Validity};
use lattice_quorum_types::UnixMillis;
use std::{os::unix::fs::PermissionsExt as _, time::Duration};

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

fn authority() -> Authority {
    Authority::create("demo", Validity::from_now(NOW, Duration::from_secs(86_400))).unwrap()
}

fn own(authority: &Authority, trust: Option<u64>) -> Credentials {
    let identity = Identity::new("demo", Role::Agent, "a1").unwrap();
    let validity = Validity::from_now(NOW, Duration::from_secs(3600));
    let own = Credentials::issued_by(authority, &identity, validity).unwrap();
    let Some(number) = trust else { return own };
    let bundle = TrustBundle {
        cluster: "demo".to_owned(),
        number,
        authorities: vec![TrustedAuthority {
            certificate: authority.certificate().to_vec().into(),
            issuing: true,
        }],
        revoked: Vec::new(),
    };
    own.with_bundle(&bundle.sign([authority]).unwrap()).unwrap()
}

/// Saves, and simulates a crash before step number `crash_at`. Returns whether the save completed before that step.
fn save_until(own: &Credentials, folder: &Path, crash_at: usize) -> bool {
    let mut step = 0;
    let saved = own.save_stepwise(folder, &mut |path| {
        step += 1;
        if step == crash_at {
            // Leaves half a file where the step writes one.
            if path.extension().is_some_and(|e| e == "tmp") {
                std::fs::write(path, "half").unwrap();
            }
            return Err(io::Error::other("crashed here"));
        }
        Ok(())
    });
    saved.is_ok()
}

#[test]
fn crash_during_save_leaves_a_valid_pair() {
    let authority = authority();
    let (old, new, newer) = (
        own(&authority, Some(1)),
        own(&authority, Some(2)),
        own(&authority, Some(3)),
    );
    let mut outcomes = Vec::new();
    for crash_at in 1.. {
        let folder = tempfile::tempdir().unwrap();
        old.save(folder.path()).unwrap();
        let over = save_until(&new, folder.path(), crash_at);
        let read = Credentials::load(folder.path()).unwrap();
        let found = match read.chain() {
            chain if chain == old.chain() => "old",
            chain if chain == new.chain() => "new",
            _ => panic!("neither"),
        };
        outcomes.push(found);
        // A second renewal that crashes at each step, on top of the state that the first crash left.
        for again_at in 1.. {
            let copy = tempfile::tempdir().unwrap();
            for entry in std::fs::read_dir(folder.path()).unwrap() {
                let entry = entry.unwrap();
                std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
            }
            let over = save_until(&newer, copy.path(), again_at);
            let after = Credentials::load(copy.path()).unwrap();
            assert!([newer.chain(), read.chain()].contains(&after.chain()));
            newer.save(copy.path()).unwrap();
            let read = Credentials::load(copy.path()).unwrap();
            assert_eq!((read.chain(), read.trust_number()), (newer.chain(), 3));
            assert!(!copy.path().join(NEXT_KEY_FILE).exists());
            if over {
                break;
            }
        }
        if over {
            break;
        }
    }
    println!("after a crash before each step: {}", outcomes.join(" "));
    assert_eq!(outcomes.first(), Some(&"old"));
    assert_eq!(outcomes.last(), Some(&"new"));
    let turn = outcomes.iter().position(|found| *found == "new").unwrap();
    assert!(
        outcomes.iter().skip(turn).all(|found| *found == "new"),
        "{outcomes:?}"
    );
}

#[test]
fn a_first_save_that_was_cut_short_does_not_count() {
    let authority = authority();
    let own = own(&authority, None);
    for crash_at in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let over = save_until(&own, folder.path(), crash_at);
        assert_eq!(Credentials::are_in(folder.path()), over, "step {crash_at}");
        assert_eq!(
            Credentials::load(folder.path()).is_ok(),
            over,
            "step {crash_at}"
        );
        own.save(folder.path()).unwrap();
        assert!(Credentials::load(folder.path()).is_ok());
        if over {
            break;
        }
    }
}

#[test]
fn a_waiting_key_that_others_can_read_is_refused() {
    let authority = authority();
    let folder = tempfile::tempdir().unwrap();
    let own = own(&authority, None);
    own.save(folder.path()).unwrap();
    let (key, next) = (
        folder.path().join(KEY_FILE),
        folder.path().join(NEXT_KEY_FILE),
    );
    std::fs::rename(&key, &next).unwrap();
    assert!(Credentials::load(folder.path()).is_ok());
    std::fs::set_permissions(&next, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(Credentials::load(folder.path()).is_err());
}

#[test]
fn pem_is_what_others_read() {
    let authority = authority();
    let certificates = [authority.certificate().clone()];
    let text = to_pem(&certificates);
    assert_eq!(
        CertificateDer::from_pem_slice(text.as_bytes()).unwrap(),
        certificates[0]
    );
}
