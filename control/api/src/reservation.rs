//! Reservations: nodes that are kept for some for a time.

use crate::{begin, duration, problem::FieldError, text};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, Revision, UnixMillis, hostlist,
    reservation::{Reservation, ReservationSpec},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// What is to be reserved. Of `nodes` and `groups` at least one, of `until` and `duration` one at most.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReservationRequest {
    /// Which nodes, as a hostlist.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "gpu[001-016]")]
    pub nodes: Option<String>,
    /// Topology groups; the nodes that are in them now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// From when on: `2026-12-01T08:00:00Z`, `16:00` (UTC), `tomorrow`, `now+1hour`; now when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Until when, exclusive; written as `from` is. Without it and `duration`: until it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// For how long instead: `2h`, `1d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// Users who may use them meanwhile.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub users: BTreeSet<String>,
    /// Projects whose work, and that of those below, may use them meanwhile. With no user and no project it is
    /// for nobody: a maintenance window.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<crate::schema::ProjectPath>, inline)]
    pub projects: BTreeSet<String>,
    /// Why, for people.
    pub reason: String,
    /// The revision of the reservation that this rests on, 0 for none; refused when it has another by now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub expected_revision: Option<Revision>,
}

fn at<E: std::fmt::Display>(field: &'static str) -> impl Fn(E) -> FieldError {
    move |error| FieldError {
        field: field.to_owned(),
        reason: error.to_string(),
    }
}

fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.trim().is_empty())
}

impl ReservationRequest {
    /// As the quorum is asked, but for the nodes of groups, which are in `grouped`.
    ///
    /// # Errors
    /// The first field that cannot be read.
    pub fn spec(
        &self,
        now: UnixMillis,
        grouped: BTreeSet<NodeId>,
    ) -> Result<ReservationSpec, FieldError> {
        let mut nodes = grouped;
        if let Some(list) = given(&self.nodes) {
            nodes.extend(hostlist::expand(list).map_err(at("nodes"))?);
        }
        if nodes.is_empty() {
            return Err(at("nodes")(
                "name nodes, as gpu[001-016], or groups that have some",
            ));
        }
        let from = match given(&self.from) {
            Some(text) => begin::begin(text, now).map_err(at("from"))?,
            None => now,
        };
        let projects = self.projects.iter();
        let projects = projects.map(|path| ProjectPath::new(path).map_err(at("projects")));
        Ok(ReservationSpec {
            nodes,
            from,
            until: self.until(now, from)?,
            users: self.users.clone(),
            projects: projects.collect::<Result<_, _>>()?,
            reason: self.reason.clone(),
        })
    }

    fn until(&self, now: UnixMillis, from: UnixMillis) -> Result<Option<UnixMillis>, FieldError> {
        match (given(&self.until), given(&self.duration)) {
            (None, None) => Ok(None),
            (Some(text), None) => begin::begin(text, now).map(Some).map_err(at("until")),
            (None, Some(text)) => {
                let ms = duration::parse(text).map_err(at("duration"))?;
                Ok(Some(from.after(ms)))
            }
            (Some(_), Some(_)) => Err(at("duration")(
                "it says until when, and so does `until`; give one of them",
            )),
        }
    }
}

/// Work on nodes of a reservation that is not for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservationConflictView {
    /// The allocation.
    #[schema(value_type = u64)]
    pub allocation: AllocationId,
    /// Which of the nodes it holds, as a hostlist.
    pub nodes: String,
    /// When its walltime is over; absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// A reservation as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservationView {
    /// Its name.
    pub name: String,
    /// Which nodes, as a hostlist.
    pub nodes: String,
    /// How many.
    pub node_count: u32,
    /// From when on nobody else has them.
    pub from: String,
    /// Until when, exclusive; absent: until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Whether it holds now.
    pub active: bool,
    /// Users who may use them, those that the asker may know.
    pub users: Vec<String>,
    /// Projects whose work may use them, those that the asker sees.
    pub projects: Vec<String>,
    /// Whether the asker may use them.
    pub usable: bool,
    /// Why.
    pub reason: String,
    /// Who made it, or changed it last.
    pub by: String,
    /// Last change.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Work that it is not for, and that holds nodes of it now and may still do so when it begins: none is stopped
    /// for it. That which the asker sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<ReservationConflictView>,
}

impl ReservationView {
    /// With everybody who may use it; `usable` and `conflicts` are for who asks to say.
    pub fn new(reservation: &Reservation, now: UnixMillis) -> Self {
        let Reservation {
            name,
            spec,
            by,
            revision,
        } = reservation;
        Self {
            name: name.to_string(),
            nodes: hostlist::fold(&spec.nodes),
            node_count: u32::try_from(spec.nodes.len()).unwrap_or(u32::MAX),
            from: text::time(spec.from),
            until: spec.until.map(text::time),
            active: spec.meets(now, Some(1)),
            users: spec.users.iter().cloned().collect(),
            projects: spec.projects.iter().map(ToString::to_string).collect(),
            usable: false,
            reason: spec.reason.clone(),
            by: by.clone(),
            revision: *revision,
            conflicts: Vec::new(),
        }
    }
}
