//! `lattice reservation`: nodes that only certain users and projects may use in a time window.

use crate::{
    connect::Connection,
    failure::Failure,
    node::node_args::expand,
    output::{self, Columns, Fitting, Format, ResultList, or_dash, time, until},
};
use clap::{ArgGroup, Args, Subcommand, builder::NonEmptyStringValueParser};
use lattice_api::{
    allocation::name_text,
    reservation::{ReservationRequest, ReservationView},
};
use lattice_client::ClientError;
use lattice_quorum_types::{Revision, hostlist};
use serde::Serialize;

/// Reservation subcommands. All except `list` and `show` are for operators.
#[derive(Subcommand)]
pub enum ReservationCommand {
    /// Reserve nodes for certain users and projects in a time window.
    ///
    /// Running allocations continue; those that may not end in time are listed (`conflicts`). Allocations that would
    /// run into the window are not placed on the nodes. Without users and projects the reservation is a maintenance
    /// window. `lattice submit --reservation NAME` uses it.
    ///
    /// For example: lattice reservation create firmware --nodes 'gpu[001-016]' --from tomorrow --duration 4h --reason
    /// 'BIOS'
    Create(Box<CreateArgs>),
    /// List reservations, including future ones.
    List,
    /// Show one reservation.
    Show {
        /// Reservation name.
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
    /// Delete reservations, so that their nodes are available to all again.
    Delete {
        /// Reservation names.
        #[arg(required = true, value_parser = NonEmptyStringValueParser::new())]
        names: Vec<String>,
    },
}

#[derive(Args)]
#[command(group = ArgGroup::new("which").args(["nodes", "groups"]).required(true).multiple(true))]
pub struct CreateArgs {
    /// Reservation name.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// Nodes: gpu007, gpu[001-004]; repeat for several.
    #[arg(long, value_name = "NODES")]
    nodes: Vec<String>,
    /// Topology group, expanded to its present nodes; repeat for several.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Start: 2026-12-01T08:00, 16:00 (UTC), tomorrow, now+1hour [default: now].
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// End, exclusive; a time of day is the first one after --from: --from 22:00 --until 06:00 [default: none, until
    /// the reservation is deleted].
    #[arg(long, value_name = "TIME", conflicts_with = "duration")]
    until: Option<String>,
    /// Duration, instead of --until: 2h, 1d.
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// User with access to the nodes; repeat for several.
    #[arg(long = "user", value_name = "USER")]
    users: Vec<String>,
    /// Project with access to the nodes, including projects below it; repeat for several.
    #[arg(long = "project", value_name = "PROJECT")]
    projects: Vec<String>,
    /// Free-text reason.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Replace an existing reservation completely; without this option only a new one is created.
    #[arg(long)]
    replace: bool,
    /// With --replace: refuse unless the reservation has this revision.
    #[arg(long, value_name = "NUMBER", requires = "replace")]
    expected_revision: Option<u64>,
}

impl CreateArgs {
    fn request(self) -> Result<ReservationRequest, Failure> {
        let nodes = match self.nodes.is_empty() {
            true => None,
            false => Some(hostlist::fold(&expand(&self.nodes)?)),
        };
        let expected = match self.replace {
            true => self.expected_revision,
            false => Some(0),
        };
        Ok(ReservationRequest {
            nodes,
            groups: self.groups,
            from: self.from,
            until: self.until,
            duration: self.duration,
            users: self.users.into_iter().collect(),
            projects: self.projects.into_iter().collect(),
            reason: self.reason,
            expected_revision: expected.map(Revision),
        })
    }
}

/// Deleted reservation, as a document.
#[derive(Serialize)]
struct DeletedReservation {
    name: String,
    /// Revision of the change.
    revision: Revision,
}

/// Runs a reservation command.
pub async fn run(command: ReservationCommand, connection: &Connection) -> Result<(), Failure> {
    let (client, format) = (&connection.client, connection.format);
    match command {
        ReservationCommand::Create(args) => {
            let (name, replace) = (args.name.clone(), args.replace);
            let request = args.request()?;
            let made = client.set_reservation(&name, &request, None).await;
            let is_there = |error: &ClientError| {
                let problem = error.problem();
                problem.is_some_and(|problem| problem.code == "reservation_changed")
            };
            show(
                &made.map_err(|error| {
                    let is_there = is_there(&error) && !replace;
                    let mut failure = Failure::from(error);
                    if is_there {
                        failure.text.push_str("; --replace changes it");
                    }
                    failure
                })?,
                format,
            )
        }
        ReservationCommand::List => {
            let all = client.reservations().await?;
            let rows = all.iter().map(row);
            Ok(output::print_fitted(
                format,
                &all,
                LIST,
                Fitting::Lines(DROPPED_FIRST),
                rows,
            )?)
        }
        ReservationCommand::Show { name } => show(&client.reservation(&name).await?, format),
        ReservationCommand::Delete { names } => {
            let mut all = ResultList::for_count(format, names.len());
            for name in names {
                match client.delete_reservation(&name, None).await {
                    Ok(done) => {
                        let sentence = format!("{name}: deleted");
                        let revision = done.revision;
                        all.add(DeletedReservation { name, revision }, &sentence);
                    }
                    Err(error) => all.refuse(&name, error.into()),
                }
            }
            let columns = Columns::only(&["name", "revision"]);
            all.finish(columns, |deleted| {
                vec![deleted.name.clone(), deleted.revision.to_string()]
            })
        }
    }
}

const LIST: Columns<'_> = Columns {
    narrow: &[
        "name", "nodes", "from", "until", "active", "users", "projects", "reason",
    ],
    wide: &["node_count", "by", "revision", "conflicts"],
};

/// Columns that a narrow terminal leaves out, in this order.
const DROPPED_FIRST: &[&str] = &["active", "reason", "projects", "users"];

fn row(reservation: &ReservationView) -> Vec<String> {
    let is_active = if reservation.active { "yes" } else { "no" };
    vec![
        reservation.name.clone(),
        reservation.nodes.clone(),
        time(&reservation.from),
        or_dash(reservation.until.as_deref().map(time).as_deref()),
        is_active.to_owned(),
        or_dash(Some(&reservation.users.join(","))),
        or_dash(Some(&reservation.projects.join(","))),
        reservation.reason.clone(),
        reservation.node_count.to_string(),
        reservation.by.clone(),
        reservation.revision.to_string(),
        conflicts(reservation),
    ]
}

/// Returns the allocations that may still hold nodes of the reservation when it starts.
fn conflicts(reservation: &ReservationView) -> String {
    let of = reservation.conflicts.iter().map(|conflict| {
        let name = name_text(conflict.allocation, conflict.element.as_ref());
        let nodes = &conflict.nodes;
        match &conflict.until {
            Some(at) => format!("{name} on {nodes} until {}", time(at)),
            None => format!("{name} on {nodes} without end"),
        }
    });
    or_dash(Some(&of.collect::<Vec<_>>().join(", ")))
}

fn show(reservation: &ReservationView, format: Format) -> Result<(), Failure> {
    if format == Format::Csv {
        return Ok(output::print_record(
            format,
            reservation,
            LIST,
            row(reservation),
        )?);
    }
    let headers = LIST.narrow.iter().chain(LIST.wide);
    let mut lines: Vec<Vec<String>> = headers
        .zip(row(reservation))
        .map(|(key, value)| vec![(*key).to_owned(), value])
        .collect();
    for line in &mut lines {
        match line[0].as_str() {
            "from" => line[1] = until(format, &reservation.from),
            "until" => {
                let end = reservation.until.as_deref();
                let end = end.map(|end| until(format, end));
                line[1] = end.unwrap_or_else(|| "no end".to_owned());
            }
            _ => {}
        }
    }
    Ok(output::print_details(
        format,
        reservation,
        ["key", "value"],
        lines,
    )?)
}
