//! Entry points of the state machine: `check` and `apply`.

use crate::{
    State,
    change::Verdict,
    judge,
    keys::{KeyState, NewKey},
};
use lattice_quorum_types::{Applied, Envelope, Refusal, UnixMillis, command::SCHEMA};

impl State {
    /// Judges `envelope` on the present state without changing the state. A query can check a command this way;
    /// `apply` runs the same code at commit.
    ///
    /// # Errors
    /// The refusal that `apply` would return on this state.
    pub fn check(&self, envelope: &Envelope) -> Result<(), Refusal> {
        self.judge(envelope).map(|_| ())
    }

    /// Applies the command at log position `index`. A refused command changes nothing and makes no revision.
    ///
    /// # Errors
    /// The refusal, if the command was not applied.
    pub fn apply(&mut self, index: u64, envelope: &Envelope) -> Result<Applied, Refusal> {
        match self.judge(envelope)? {
            AcceptedCommand::Repeated(applied) => Ok(applied),
            AcceptedCommand::New { verdict, now, key } => {
                Ok(self.commit(index, envelope, now, verdict, key))
            }
        }
    }

    fn judge(&self, envelope: &Envelope) -> Result<AcceptedCommand, Refusal> {
        if envelope.schema != SCHEMA {
            let given = envelope.schema;
            return Err(Refusal::UnsupportedSchema {
                given,
                supported: SCHEMA,
            });
        }
        let now = self.clock.next(envelope.at);
        let mut new_key = None;
        if let Some(key) = &envelope.key {
            let Envelope {
                principal, command, ..
            } = envelope;
            match self.keys.look_up(&principal.name, key, command, now) {
                KeyState::Repeated(applied) => return Ok(AcceptedCommand::Repeated(applied)),
                KeyState::OtherCommand => return Err(Refusal::KeyReused { key: key.clone() }),
                KeyState::New(key) => new_key = Some(key),
            }
        }
        let verdict = judge::judge(self, envelope, now)?;
        Ok(AcceptedCommand::New {
            verdict,
            now,
            key: new_key,
        })
    }
}

/// An accepted command.
enum AcceptedCommand {
    /// The command was applied before under the same key.
    Repeated(Applied),
    /// The command can be committed.
    New {
        verdict: Verdict,
        now: UnixMillis,
        key: Option<NewKey>,
    },
}
