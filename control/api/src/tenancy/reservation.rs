//! Reservations: nodes that only certain users and projects may use in a time window.

use crate::{
    jobs::allocation::ElementView,
    notation::{begin, duration, text},
    problem::FieldError,
};
use lattice_quorum_types::{
    AllocationId, NodeId, ProjectPath, Revision, UnixMillis, hostlist,
    reservation::{Reservation, ReservationSpec},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// Request for a reservation. Give `nodes`, `groups` or both, and at most one of `until` and `duration`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReservationRequest {
    /// Nodes, as a hostlist.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "gpu[001-016]")]
    pub nodes: Option<String>,
    /// Topology groups, expanded to their present nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Start: `2026-12-01T08:00:00Z`, `16:00` (UTC), `tomorrow`, `now+1hour`; now when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// End, exclusive, in the format of `from`; a time of day is the first one after `from`. Without `until` and
    /// `duration` the reservation lasts until it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Duration, instead of `until`: `2h`, `1d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// Users that may use the nodes.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub users: BTreeSet<String>,
    /// Projects with access to the nodes, including projects below them. Without users and projects the reservation is
    /// a maintenance window, in which no allocation may use the nodes.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<crate::notation::schema::ProjectPath>, inline)]
    pub projects: BTreeSet<String>,
    /// Free-text reason.
    pub reason: String,
    /// Revision of the reservation that this change is based on, 0 for none; the change is rejected if the reservation
    /// has another revision.
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

fn non_blank(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.trim().is_empty())
}

impl ReservationRequest {
    /// Converts the request for the quorum. `grouped` are the nodes of the request's groups.
    ///
    /// # Errors
    /// The first field that cannot be read.
    pub fn spec(
        &self,
        now: UnixMillis,
        grouped: BTreeSet<NodeId>,
    ) -> Result<ReservationSpec, FieldError> {
        let mut nodes = grouped;
        if let Some(list) = non_blank(&self.nodes) {
            nodes.extend(hostlist::expand(list).map_err(at("nodes"))?);
        }
        if nodes.is_empty() {
            return Err(at("nodes")(
                "no nodes are selected; give nodes such as gpu[001-016], or groups that contain nodes",
            ));
        }
        let from = match non_blank(&self.from) {
            Some(text) => begin::parse_begin_time(text, now).map_err(at("from"))?,
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
        match (non_blank(&self.until), non_blank(&self.duration)) {
            (None, None) => Ok(None),
            (Some(text), None) => begin::parse_end_time(text, now, from)
                .map(Some)
                .map_err(at("until")),
            (None, Some(text)) => {
                let ms = duration::parse(text).map_err(at("duration"))?;
                Ok(Some(from.after(ms)))
            }
            (Some(_), Some(_)) => Err(at("duration")(
                "duration and until are both given; give one of them",
            )),
        }
    }
}

/// Allocation that holds nodes of a reservation without access to the reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservationConflictView {
    /// Allocation number.
    #[schema(value_type = u64)]
    pub allocation: AllocationId,
    /// Array of which the allocation is an element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<ElementView>,
    /// Reserved nodes that the allocation holds, as a hostlist.
    pub nodes: String,
    /// End of the walltime; absent if the allocation has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// Reservation as shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservationView {
    /// Reservation name.
    pub name: String,
    /// Nodes, as a hostlist.
    pub nodes: String,
    /// Number of nodes.
    pub node_count: u32,
    /// Start; from this time on, other allocations cannot use the nodes.
    pub from: String,
    /// End, exclusive; absent: until the reservation is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Whether the reservation is in effect now.
    pub active: bool,
    /// Users that may use the nodes, as far as the caller may see them.
    pub users: Vec<String>,
    /// Projects with access to the nodes, as far as the caller may see them.
    pub projects: Vec<String>,
    /// Whether the caller may use the nodes.
    pub usable: bool,
    /// Free-text reason.
    pub reason: String,
    /// Principal that created or last changed the reservation.
    pub by: String,
    /// Revision of the last change.
    #[schema(value_type = u64)]
    pub revision: Revision,
    /// Allocations without access that hold nodes of the reservation now and may still hold them at its start. The list
    /// contains only those that the caller may see. A reservation stops no allocation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<ReservationConflictView>,
}

impl ReservationView {
    /// Creates the view with all users and projects. The caller of this function fills in `usable` and `conflicts`.
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
            active: spec.overlaps(now, Some(1)),
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Window of a request at 00:38 on 28 November 2026.
    fn window(from: Option<&str>, until: &str) -> (String, String) {
        let request = ReservationRequest {
            nodes: Some("gpu[101-102]".to_owned()),
            from: from.map(str::to_owned),
            until: Some(until.to_owned()),
            ..ReservationRequest::default()
        };
        let now = text::read_time("2026-11-28T00:38:00Z").unwrap();
        let spec = request.spec(now, BTreeSet::new()).unwrap();
        (text::time(spec.from), text::time(spec.until.unwrap()))
    }

    #[test]
    fn time_of_day_ends_the_window_after_its_start() {
        for (from, until, start, end) in [
            (Some("22:00"), "06:00", "28T22:00", "29T06:00"),
            (Some("00:30"), "01:00", "29T00:30", "29T01:00"),
            (Some("tomorrow"), "06:00", "29T00:00", "29T06:00"),
            (Some("2026-11-30T08:00"), "10:00", "30T08:00", "30T10:00"),
            (Some("08:00"), "noon", "28T08:00", "28T12:00"),
            (None, "00:30", "28T00:38", "29T00:30"),
            (Some(" "), "06:00", "28T00:38", "28T06:00"),
            (Some("now+1min"), "00:39:30", "28T00:39", "28T00:39"),
            // An end with a date stays where it is, for the quorum to refuse.
            (Some("22:00"), "2026-11-28T06:00", "28T22:00", "28T06:00"),
        ] {
            let (from_at, until_at) = window(from, until);
            let wanted = [start, end].map(|at| format!("2026-11-{at}"));
            assert!(from_at.starts_with(&wanted[0]), "{from:?}: {from_at}");
            assert!(until_at.starts_with(&wanted[1]), "{until}: {until_at}");
        }
    }
}
