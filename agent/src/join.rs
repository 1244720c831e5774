//! How the agent comes to its credentials.

use crate::data_dir::{DataDir, Membership};
use crate::error::StartError;
use crate::settings::{Edges, JoinSettings, Settings};
use lattice_mesh::{Credentials, EnrolError, Enrolled, Role, enrol_with};

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

/// Asks each member of the quorum in turn. A member's "no" is the cluster's, and is final.
async fn enrol(
    settings: &Settings,
    join: &JoinSettings,
    edges: &Edges,
) -> Result<Enrolled, StartError> {
    let mut last = None;
    for addr in &join.quorum {
        let node = settings.node.as_str();
        match enrol_with(*addr, &join.token, node, join.replace, &edges.mesh).await {
            Ok(enrolled) => {
                tracing::info!(identity = %enrolled.credentials.identity(), "enrolled");
                return Ok(enrolled);
            }
            Err(error) if is_final(&error) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%addr, error = %crate::with_causes(&error), "not enrolled here");
                last = Some(error);
            }
        }
    }
    Err(last.map_or(StartError::NoQuorum, StartError::Enrol))
}

fn is_final(error: &EnrolError) -> bool {
    use lattice_mesh::EnrolRefused::{Invalid, NameTaken, TokenRefused};
    matches!(
        error,
        EnrolError::Refused(TokenRefused | NameTaken { .. } | Invalid { .. })
            | EnrolError::Name(_)
            | EnrolError::Credentials(_)
    )
}
