//! Shell completions.

use crate::common::Sandbox;

#[test]
fn completions_are_made_for_every_shell() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = sandbox.lattice(&["completions", shell]);
        assert_eq!(done.code, Some(0), "{shell}: {done:?}");
        for word in ["certificate", "force-release", "audit", "skip-gate"] {
            assert!(done.stdout.contains(word), "{shell} knows no {word}");
        }
    }
}
