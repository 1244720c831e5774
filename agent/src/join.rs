//! How the agent comes to its credentials.

use crate::data_dir::{DataDir, Membership};
use crate::error::StartError;
use crate::settings::{Edges, JoinSettings, Settings};
use lattice_mesh::{Credentials, Enrolled, Role, enrol_at_any};

/// What membership gives.
pub(crate) struct Member {
    pub(crate) credentials: Credentials,
    /// The gossip cell that enrolment told.
    pub(crate) cell: Option<String>,
}

/// Takes the given credentials, or those of an earlier enrolment, or enrols. Renewal before they
/// expire has its place here; nothing renews yet.
pub(crate) async fn member(
    settings: &Settings,
    edges: &Edges,
    data: &DataDir,
) -> Result<Member, StartError> {
    let member = if let Some(credentials) = edges.credentials.clone() {
        Member {
            credentials,
            cell: None,
        }
    } else if DataDir::is_enrolled(&settings.data_dir) {
        Member {
            credentials: Credentials::load(&data.identity())?,
            cell: data.membership()?.unwrap_or_default().cell,
        }
    } else {
        let join = settings.join.as_ref().ok_or(StartError::NotEnrolled)?;
        let Enrolled { credentials, cell } = enrol(settings, join, edges).await?;
        // The certificate comes last: with it, enrolment is done.
        data.write_membership(&Membership { cell: cell.clone() })?;
        credentials.save(&data.identity())?;
        Member { credentials, cell }
    };
    let identity = member.credentials.identity();
    if (identity.role(), identity.id()) != (Role::Agent, settings.node.as_str()) {
        return Err(StartError::OtherIdentity {
            node: settings.node.clone(),
            found: identity.to_string(),
        });
    }
    Ok(member)
}

async fn enrol(
    settings: &Settings,
    join: &JoinSettings,
    edges: &Edges,
) -> Result<Enrolled, StartError> {
    let (addrs, node) = (join.quorum.iter().copied(), settings.node.as_str());
    let asked = enrol_at_any(addrs, &join.token, node, join.replace, &edges.mesh).await;
    Ok(asked.ok_or(StartError::NoQuorum)??)
}
