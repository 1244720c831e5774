//! Agents that answer in this process: tests that have a clock of their own cannot wait for a network.

use crate::error::AgentError;
use lattice_mesh::Rpc;
use lattice_quorum_types::NodeId;
use std::{
    any::Any,
    fmt,
    sync::{Arc, OnceLock},
};

/// What an agent answers; `None`: nothing comes.
type Answers = dyn Fn(&NodeId, &dyn Any) -> Option<Box<dyn Any>> + Send + Sync;

/// See the module. Until somebody answers, calls go over the network.
#[derive(Clone, Default)]
pub(crate) struct Wire(Arc<OnceLock<Box<Answers>>>);

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.0.get().is_some())
    }
}

impl Wire {
    /// Who answers all calls from now on.
    pub(crate) fn is_answered_by(
        &self,
        answers: impl Fn(&NodeId, &dyn Any) -> Option<Box<dyn Any>> + Send + Sync + 'static,
    ) {
        let _ = self.0.set(Box::new(answers));
    }

    pub(super) fn asked<R: Rpc>(
        &self,
        node: &NodeId,
        request: &R,
    ) -> Option<Result<R::Reply, AgentError>> {
        let answers = self.0.get()?;
        let answer = answers(node, request).map(Box::<dyn Any>::downcast::<R::Reply>);
        Some(match answer {
            Some(Ok(reply)) => Ok(*reply),
            Some(Err(_)) => panic!("{} is answered by something else", R::METHOD),
            None => Err(AgentError::NotSeen { node: node.clone() }),
        })
    }
}
