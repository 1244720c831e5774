//! `lattice admin vcluster`: tenants, nodes and settings of vClusters.

use crate::{
    connect::Connection,
    failure::Failure,
    node::node_args::expand,
    output::{self, Columns, Format, or_dash},
    user_file,
};
use clap::{ArgGroup, Args, Subcommand};
use lattice_api::{
    duration,
    movement::{MovementChange, MovementView},
    problem::FieldError,
    scheduler::{AllReservations, ReservationsView, SchedulerChange, WEIGHTS, WeightsChange},
    vcluster::{VclusterNodesRequest, VclusterRequest, VclusterView},
};
use lattice_quorum_types::hostlist;
use serde_json::json;
use std::path::PathBuf;

/// vCluster subcommands. All except `list` and `show` are for administrators.
#[derive(Subcommand)]
pub enum VclusterCommand {
    /// List vClusters: their tenants and their numbers of nodes.
    List,
    /// Show one vCluster: its tenants, its nodes, lent and borrowed nodes, the control that schedules it, and all
    /// scheduler and movement settings.
    Show {
        /// vCluster name.
        name: String,
    },
    /// Define a vCluster, or change it; a setting not given keeps its value.
    ///
    /// A new vCluster is open to all tenants until --tenants restricts it. Allocations that wait in a vCluster stay
    /// there when the vCluster is closed to their tenant. The nodes of a defined vCluster are moved only by an `assign`
    /// with --from and the name of that vCluster. Scheduler settings (--reservations, --reference-wait, a checkpoint
    /// bandwidth) and movement settings (--set, --unset) alone do not define a vCluster. `show` lists the names of all
    /// settings.
    Set(SetArgs),
    /// Change the weights by which a vCluster's queue is ordered, in effect from the next plan on.
    ///
    /// The score of a job is the sum of nine factors times their weights (`lattice why ID` shows them). A weight not
    /// given keeps its value. Weights are relative: they need not add up to 1. The vCluster must exist: `lattice admin
    /// vcluster set NAME` creates one.
    SetWeights(WeightsArgs),
    /// Assign nodes to a vCluster, all of them or none.
    ///
    /// The nodes must be idle and not claimed. `lattice submit --vcluster NAME` uses them.
    Assign(AssignArgs),
    /// Delete a vCluster that has no nodes.
    Delete(DeleteArgs),
}

#[derive(Args)]
pub struct SetArgs {
    /// vCluster name.
    name: String,
    /// Tenants that may use the vCluster, separated by commas; all other tenants are excluded.
    #[arg(long, value_name = "TENANTS", value_delimiter = ',')]
    tenants: Vec<String>,
    /// Let all tenants use the vCluster.
    #[arg(long, conflicts_with = "tenants")]
    all_tenants: bool,
    /// Let no tenant use the vCluster.
    #[arg(long, conflicts_with_all = ["tenants", "all_tenants"])]
    no_tenants: bool,
    /// Free-text description.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Blocked jobs for which nodes are reserved: a number, from the front of the queue, or `all`.
    #[arg(long, value_name = "COUNT|all", allow_negative_numbers = true, value_parser = reservations)]
    reservations: Option<ReservationsView>,
    /// Waiting time after which the wait time factor is ln 2: 90m, 2h.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    reference_wait: Option<f64>,
    /// Total bandwidth of all nodes to checkpoint storage, GB/s.
    #[arg(long, value_name = "GB/s", allow_negative_numbers = true, value_parser = finite)]
    checkpoint_bandwidth: Option<f64>,
    /// Remove the checkpoint bandwidth, which is then unknown.
    #[arg(long, conflicts_with = "checkpoint_bandwidth")]
    no_checkpoint_bandwidth: bool,
    /// Movement setting: preemption.patience_s=30, sharing.allow_lending=false. Times are seconds, may have a fraction,
    /// and may be written like 90s, 1h30m. Repeat for several.
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Reset a movement setting to its default. Repeat for several.
    #[arg(long, value_name = "NAME")]
    unset: Vec<String>,
    /// Refuse unless this version is in force; 0: unless the vCluster is undefined.
    #[arg(long, value_name = "NUMBER")]
    expected_version: Option<u32>,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((_, "")) => {
            Err("the value is empty; --unset NAME resets a setting to its default".to_owned())
        }
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err("it must be NAME=VALUE, as in preemption.patience_s=30".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let millis = duration::parse(text).map_err(|error| error.to_string())?;
    Ok(millis as f64 / 1000.0)
}

fn finite(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it must be a number".to_owned())?;
    match number.is_finite() {
        true => Ok(number),
        false => Err("it must be a finite number".to_owned()),
    }
}

fn reservations(text: &str) -> Result<ReservationsView, String> {
    match text.parse() {
        Ok(count) => Ok(ReservationsView::First(count)),
        Err(_) if text == "all" => Ok(ReservationsView::All(AllReservations::All)),
        Err(_) => Err("it must be a number of at least 0, or `all`".to_owned()),
    }
}

#[derive(Args)]
#[command(group = ArgGroup::new("what").args(WEIGHTS).args(["profile", "from"]).required(true).multiple(true))]
pub struct WeightsArgs {
    /// vCluster name.
    name: String,
    /// File (YAML) with weights, and optionally reservations and reference wait, as written by `lattice replay sweep
    /// --save`.
    #[arg(long, value_name = "FILE", conflicts_with_all = WEIGHTS, conflicts_with = "profile")]
    from: Option<PathBuf>,
    /// Workload profile that sets all weights: hpc-batch, ml-training, service, sensitive, interactive, or balanced.
    /// Single weights given with the profile are applied after it.
    #[arg(long, value_name = "KIND")]
    profile: Option<String>,
    /// Weight of the priority class.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = finite)]
    priority: Option<f64>,
    /// Weight of the time in the queue.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = finite)]
    wait_time: Option<f64>,
    /// Weight of the tenant's distance from its share.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = finite)]
    fair_share: Option<f64>,
    /// Weight of few topology groups.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = finite)]
    topology: Option<f64>,
    /// Weight of input data on the hot tier.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = finite)]
    data_ready: Option<f64>,
    /// Weight of the backlog.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = finite)]
    backlog: Option<f64>,
    /// Weight of cheap energy.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = finite)]
    energy: Option<f64>,
    /// Weight of a low checkpoint cost.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = finite)]
    checkpoint: Option<f64>,
    /// Weight of one conformance group.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = finite)]
    conformance: Option<f64>,
    /// Refuse unless this version is in force; 0: unless the vCluster is undefined.
    #[arg(long, value_name = "NUMBER")]
    expected_version: Option<u32>,
}

#[derive(Args)]
pub struct AssignArgs {
    /// vCluster name.
    name: String,
    /// Nodes: gpu007, gpu[001-004]. All of them are assigned, or none.
    #[arg(required = true, value_name = "NODES")]
    nodes: Vec<String>,
    /// vCluster from which the nodes are taken. Required if that vCluster is defined.
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
}

#[derive(Args)]
pub struct DeleteArgs {
    /// vCluster name.
    name: String,
    /// Refuse unless this version is in force.
    #[arg(long, value_name = "NUMBER")]
    expected_version: Option<u32>,
}

/// Returns the command-line flag for a field of the request, without its dashes.
fn flag(field: &str) -> String {
    if let Some(setting) = field.strip_prefix("movement.") {
        return format!("set {setting}");
    }
    match field {
        field if field.starts_with("unset ") => field.to_owned(),
        "scheduler.reference_wait_s" => "reference-wait".to_owned(),
        "scheduler.checkpoint_gb_s" => "checkpoint-bandwidth".to_owned(),
        field => {
            let name = field.rsplit_once('.').map_or(field, |(_, name)| name);
            name.replace('_', "-")
        }
    }
}

fn usage(error: FieldError) -> Failure {
    Failure::usage(format!("--{}: {}", flag(&error.field), error.reason))
}

/// Checks the server's rules, so that a mistake is reported with its flag before a request is sent.
fn check_request(request: VclusterRequest) -> Result<VclusterRequest, Failure> {
    request.clone().change().map_err(usage)?;
    if let Some(change) = &request.scheduler {
        change.check().map_err(usage)?;
    }
    if let Some(change) = &request.movement {
        change.check().map_err(usage)?;
    }
    Ok(request)
}

impl SetArgs {
    fn request(self) -> Result<VclusterRequest, FieldError> {
        let mut movement = MovementChange::default();
        for (name, value) in &self.set {
            movement.put(name, Some(value))?;
        }
        for name in &self.unset {
            movement.put(name, None).map_err(|error| FieldError {
                field: format!("unset {name}"),
                ..error
            })?;
        }
        let tenants = match (self.all_tenants, self.no_tenants) {
            (true, _) => Some(None),
            (false, true) => Some(Some(Vec::new())),
            (false, false) => (!self.tenants.is_empty()).then_some(Some(self.tenants)),
        };
        let checkpoint_gb_s = match self.no_checkpoint_bandwidth {
            true => Some(None),
            false => self.checkpoint_bandwidth.map(Some),
        };
        let change = SchedulerChange {
            reservations: self.reservations,
            reference_wait_s: self.reference_wait,
            checkpoint_gb_s,
            ..SchedulerChange::default()
        };
        Ok(VclusterRequest {
            description: self.description,
            tenants,
            expected_version: self.expected_version,
            scheduler: (change != SchedulerChange::default()).then_some(change),
            movement: (movement != MovementChange::default()).then_some(movement),
        })
    }
}

impl WeightsArgs {
    fn request(self) -> Result<VclusterRequest, Failure> {
        if let Some(path) = &self.from {
            let text = user_file::read_text(path)?;
            return Ok(VclusterRequest {
                expected_version: self.expected_version,
                scheduler: Some(user_file::parse(path, &text)?),
                ..VclusterRequest::default()
            });
        }
        let weights = WeightsChange {
            priority: self.priority,
            wait_time: self.wait_time,
            fair_share: self.fair_share,
            topology: self.topology,
            data_ready: self.data_ready,
            backlog: self.backlog,
            energy: self.energy,
            checkpoint: self.checkpoint,
            conformance: self.conformance,
        };
        let change = SchedulerChange {
            profile: self.profile,
            weights: (weights != WeightsChange::default()).then_some(weights),
            ..SchedulerChange::default()
        };
        Ok(VclusterRequest {
            expected_version: self.expected_version,
            scheduler: Some(change),
            ..VclusterRequest::default()
        })
    }
}

/// Runs a vCluster command.
pub async fn run(command: VclusterCommand, connection: &Connection) -> Result<(), Failure> {
    let (client, format) = (&connection.client, connection.format);
    match command {
        VclusterCommand::List => {
            let all = client.vclusters().await?;
            Ok(output::print(format, &all, COLUMNS, all.iter().map(row))?)
        }
        VclusterCommand::Show { name } => show(&client.vcluster(&name).await?, format),
        VclusterCommand::Set(args) => {
            let name = args.name.clone();
            let request = check_request(args.request().map_err(usage)?)?;
            show(&client.set_vcluster(&name, &request, None).await?, format)
        }
        VclusterCommand::SetWeights(args) => {
            let name = args.name.clone();
            let request = check_request(args.request()?)?;
            show(&client.set_vcluster(&name, &request, None).await?, format)
        }
        VclusterCommand::Assign(args) => {
            let nodes = hostlist::fold(&expand(&args.nodes)?);
            let from = args.from;
            let request = VclusterNodesRequest { nodes, from };
            let done = client.assign_vcluster(&args.name, &request, None).await?;
            if format.is_for_reading() {
                output::message!("moved to vCluster {}: {}", done.vcluster, done.nodes);
                return Ok(());
            }
            let row = vec![
                done.vcluster.clone(),
                done.nodes.clone(),
                done.revision.to_string(),
            ];
            let columns = Columns::only(&["vcluster", "nodes", "revision"]);
            Ok(output::print_record(format, &done, columns, row)?)
        }
        VclusterCommand::Delete(args) => {
            let version = args.expected_version;
            let done = client.delete_vcluster(&args.name, version, None).await?;
            let deleted = json!({"name": args.name, "revision": done.revision});
            let sentence = format!("{}: deleted", args.name);
            Ok(output::print_done(format, &deleted, &sentence)?)
        }
    }
}

const COLUMNS: Columns<'_> = Columns {
    narrow: &["name", "tenants", "node_count", "lent", "borrowed"],
    wide: &["nodes", "version", "scheduled_by", "description"],
};

fn tenants(vcluster: &VclusterView) -> String {
    match vcluster.tenants.as_deref() {
        None => "all".to_owned(),
        // The vCluster has tenants, but the caller may not see them.
        Some([]) if vcluster.usable => "others".to_owned(),
        Some([]) => "none".to_owned(),
        Some(names) => names.join(","),
    }
}

/// Formats the version of the definition; 0, that of an undefined vCluster, is `not set`.
fn version(vcluster: &VclusterView) -> String {
    match vcluster.version {
        0 => "not set".to_owned(),
        version => version.to_string(),
    }
}

/// Formats the control that holds the scheduler lease, with the lease epoch, or the lack of one.
fn scheduled_by(vcluster: &VclusterView) -> String {
    match &vcluster.scheduled_by {
        Some(control) => format!("{control} (epoch {})", vcluster.scheduler_epoch),
        None => "no control now".to_owned(),
    }
}

fn row(vcluster: &VclusterView) -> Vec<String> {
    vec![
        vcluster.name.clone(),
        tenants(vcluster),
        vcluster.node_count.to_string(),
        or_dash(Some(&vcluster.lent)),
        or_dash(Some(&vcluster.borrowed)),
        or_dash(Some(&vcluster.nodes)),
        version(vcluster),
        scheduled_by(vcluster),
        or_dash(Some(&vcluster.description)),
    ]
}

/// Returns the movement settings by name: each value, and whether it was set or is the default.
fn movement_lines(moves: &MovementView) -> impl Iterator<Item = (&'static str, String)> {
    moves.named().into_iter().map(|(name, value)| {
        let is_set = moves.set.iter().any(|set| set == name);
        let shown_value = match is_set {
            true => format!("{value} (set)"),
            false => format!("{value} (default)"),
        };
        (name, shown_value)
    })
}

fn show(vcluster: &VclusterView, format: Format) -> Result<(), Failure> {
    if format == Format::Csv {
        return Ok(output::print_record(
            format,
            vcluster,
            COLUMNS,
            row(vcluster),
        )?);
    }
    let line = |key: &str, value: String| vec![key.to_owned(), value];
    let rows = [
        line("name", vcluster.name.clone()),
        line("tenants", tenants(vcluster)),
        line("nodes", or_dash(Some(&vcluster.nodes))),
        line("lent", or_dash(Some(&vcluster.lent))),
        line("borrowed", or_dash(Some(&vcluster.borrowed))),
        line("description", or_dash(Some(&vcluster.description))),
        line("version", version(vcluster)),
        line("scheduled by", scheduled_by(vcluster)),
    ];
    let scheduler = &vcluster.scheduler;
    let reservations = match scheduler.reservations {
        ReservationsView::First(count) => count.to_string(),
        ReservationsView::All(AllReservations::All) => "all".to_owned(),
    };
    let bandwidth = scheduler.checkpoint_gb_s.map(|gb_s| format!("{gb_s} GB/s"));
    let settings = [
        line("profile", or_dash(scheduler.profile.as_deref())),
        line("reservations", reservations),
        line(
            "reference wait",
            duration::format((scheduler.reference_wait_s * 1000.0).round() as u64),
        ),
        line("checkpoint bandwidth", or_dash(bandwidth.as_deref())),
    ];
    let weights = scheduler.weights.named();
    let weights = weights.map(|(name, weight)| line(&format!("weight {name}"), weight.to_string()));
    let moves = &vcluster.movement;
    let unread = moves.unread.iter();
    let unread = unread.map(|text| line("inconsistent", format!("{text}; the default applies")));
    let moved = movement_lines(moves).map(|(name, value)| line(name, value));
    let rows = rows.into_iter().chain(settings).chain(weights);
    let rows = rows.chain(moved).chain(unread);
    Ok(output::print_details(
        format,
        vcluster,
        ["key", "value"],
        rows,
    )?)
}

#[cfg(test)]
mod tests;
