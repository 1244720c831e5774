//! In-process test double for agents, for tests with their own clock, which cannot wait for a network.

use crate::error::AgentError;
use lattice_mesh::Rpc;
use lattice_quorum_types::NodeId;
use std::{
    any::Any,
    fmt,
    sync::{Arc, OnceLock},
};

/// Function that returns the reply of an agent to a request; `None`: no reply arrives.
type Answers = dyn Fn(&NodeId, &dyn Any) -> Option<Box<dyn Any>> + Send + Sync;

/// Test double for agents; see the module. Until it is set, calls use the network.
#[derive(Clone, Default)]
pub(crate) struct FakeAgents(Arc<OnceLock<Box<Answers>>>);

impl fmt::Debug for FakeAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.0.get().is_some())
    }
}

impl FakeAgents {
    /// Sets the function that answers all calls from now on; it cannot be replaced.
    pub(crate) fn set_answers(
        &self,
        answers: impl Fn(&NodeId, &dyn Any) -> Option<Box<dyn Any>> + Send + Sync + 'static,
    ) {
        let _ = self.0.set(Box::new(answers));
    }

    pub(super) fn reply_to<R: Rpc>(
        &self,
        node: &NodeId,
        request: &R,
    ) -> Option<Result<R::Reply, AgentError>> {
        let answers = self.0.get()?;
        let answer = answers(node, request).map(Box::<dyn Any>::downcast::<R::Reply>);
        Some(match answer {
            Some(Ok(reply)) => Ok(*reply),
            Some(Err(_)) => panic!("the answer to {} is of another type", R::METHOD),
            None => Err(AgentError::NotSeen { node: node.clone() }),
        })
    }
}
