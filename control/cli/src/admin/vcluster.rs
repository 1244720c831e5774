//! `lattice admin vcluster`: tenants' views of the nodes.

use crate::{
    connect::Connection,
    failure::Failure,
    node::named::expand,
    output::{self, Columns, Format, or_dash},
};
use clap::{Args, Subcommand};
use lattice_api::{
    duration,
    scheduler::{AllReservations, ReservationsView, SchedulerChange, WeightsChange},
    vcluster::{VclusterNodesRequest, VclusterRequest, VclusterView},
};
use lattice_quorum_types::hostlist;

/// What is done with vClusters. All but looking is for administrators.
#[derive(Subcommand)]
pub enum VclusterCommand {
    /// List vClusters: for whom they are, and how many nodes they have.
    List,
    /// Show one vCluster: for whom it is, its nodes, which of them are lent, and which control schedules it.
    Show {
        /// Its name.
        name: String,
    },
    /// Say what a vCluster is, the first time too; what is not named stays as it is.
    ///
    /// A new one is open to all tenants until --tenants says otherwise. Work that waits in a vCluster
    /// stays when it is closed to its tenant. From the first time on its nodes are taken only where
    /// `assign` names it with --from. What its scheduler goes by (--reservations, --reference-wait, a
    /// checkpoint bandwidth), with nothing else, neither makes a vCluster nor changes that.
    Set(SetArgs),
    /// Change by what a vCluster's queue is ordered; from the next plan on it is.
    ///
    /// The score of a job is the sum of nine factors times their weights (`lattice why ID` shows them). A
    /// weight that is not named stays. Weights are relative: they need not add up to 1. The vCluster must be
    /// there: `lattice admin vcluster set NAME` makes one.
    SetWeights(WeightsArgs),
    /// Move nodes to a vCluster: they belong to it from now on, all of them or none.
    ///
    /// The nodes must be idle and claimed by nobody. `lattice submit --vcluster NAME` asks for them.
    Assign(AssignArgs),
    /// Delete a vCluster that has no nodes.
    Delete(DeleteArgs),
}

#[derive(Args)]
pub struct SetArgs {
    /// Its name.
    name: String,
    /// The tenants that may use it, with commas, and no others.
    #[arg(long, value_name = "TENANTS", value_delimiter = ',')]
    tenants: Vec<String>,
    /// All tenants may use it.
    #[arg(long, conflicts_with = "tenants")]
    all_tenants: bool,
    /// No tenant may use it.
    #[arg(long, conflicts_with_all = ["tenants", "all_tenants"])]
    no_tenants: bool,
    /// Text for people.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Which blocked jobs get nodes held back for them: a number of the first, or `all`.
    #[arg(long, value_name = "COUNT|all", allow_negative_numbers = true, value_parser = reservations)]
    reservations: Option<ReservationsView>,
    /// Waiting after which the wait time factor is ln 2: 90m, 2h.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    reference_wait: Option<f64>,
    /// What all nodes together write to checkpoint storage, GB/s.
    #[arg(long, value_name = "GB/s", allow_negative_numbers = true, value_parser = finite)]
    checkpoint_bandwidth: Option<f64>,
    /// Take that back: what they write is not known.
    #[arg(long, conflicts_with = "checkpoint_bandwidth")]
    no_checkpoint_bandwidth: bool,
    /// Refuse unless this version is in force; 0: unless there is none.
    #[arg(long, value_name = "NUMBER")]
    expected_version: Option<u32>,
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

fn weight(text: &str) -> Result<f64, String> {
    let weight = finite(text)?;
    match weight >= 0.0 {
        true => Ok(weight),
        false => Err("it must be at least 0".to_owned()),
    }
}

fn reservations(text: &str) -> Result<ReservationsView, String> {
    match text.parse() {
        Ok(count) => Ok(ReservationsView::First(count)),
        Err(_) if text == "all" => Ok(ReservationsView::All(AllReservations::All)),
        Err(_) => Err("it must be a number of at least 0, or `all`".to_owned()),
    }
}

/// The weights by the names of their arguments.
const WEIGHTS: [&str; 9] = [
    "priority",
    "wait_time",
    "fair_share",
    "topology",
    "data_ready",
    "backlog",
    "energy",
    "checkpoint",
    "conformance",
];

#[derive(Args)]
pub struct WeightsArgs {
    /// Its name.
    name: String,
    /// All weights of one kind of work: hpc-batch, ml-training, service, sensitive, interactive, or
    /// balanced. Those named beside it are changed after it.
    #[arg(long, value_name = "KIND", required_unless_present_any = WEIGHTS)]
    profile: Option<String>,
    /// Of the priority class.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = weight)]
    priority: Option<f64>,
    /// Of the time in the queue.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = weight)]
    wait_time: Option<f64>,
    /// Of how far the tenant is from its share.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = weight)]
    fair_share: Option<f64>,
    /// Of few topology groups.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = weight)]
    topology: Option<f64>,
    /// Of input data on the hot tier.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = weight)]
    data_ready: Option<f64>,
    /// Of the backlog.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = weight)]
    backlog: Option<f64>,
    /// Of cheap energy.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = weight)]
    energy: Option<f64>,
    /// Of cheap checkpoints.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = weight)]
    checkpoint: Option<f64>,
    /// Of one conformance group.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, value_parser = weight)]
    conformance: Option<f64>,
    /// Refuse unless this version is in force; 0: unless there is none.
    #[arg(long, value_name = "NUMBER")]
    expected_version: Option<u32>,
}

#[derive(Args)]
pub struct AssignArgs {
    /// The vCluster.
    name: String,
    /// The nodes: gpu007, gpu[001-004]. All of them or none.
    #[arg(required = true, value_name = "NODES")]
    nodes: Vec<String>,
    /// The vCluster they are taken from. Needed where somebody has said what that one is.
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
}

#[derive(Args)]
pub struct DeleteArgs {
    /// Its name.
    name: String,
    /// Refuse unless this version is in force.
    #[arg(long, value_name = "NUMBER")]
    expected_version: Option<u32>,
}

impl SetArgs {
    fn request(self) -> VclusterRequest {
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
        VclusterRequest {
            description: self.description,
            tenants,
            expected_version: self.expected_version,
            scheduler: (change != SchedulerChange::default()).then_some(change),
        }
    }
}

impl WeightsArgs {
    fn request(self) -> VclusterRequest {
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
        VclusterRequest {
            expected_version: self.expected_version,
            scheduler: Some(change),
            ..VclusterRequest::default()
        }
    }
}

/// Runs one of them.
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
            let set = client.set_vcluster(&name, &args.request(), None).await?;
            show(&set, format)
        }
        VclusterCommand::SetWeights(args) => {
            let name = args.name.clone();
            let set = client.set_vcluster(&name, &args.request(), None).await?;
            show(&set, format)
        }
        VclusterCommand::Assign(args) => {
            let nodes = hostlist::fold(&expand(&args.nodes)?);
            let from = args.from;
            let request = VclusterNodesRequest { nodes, from };
            let done = client.assign_vcluster(&args.name, &request, None).await?;
            if matches!(format, Format::Table | Format::Wide) {
                eprintln!("{} belong to vCluster {} now", done.nodes, done.vcluster);
                return Ok(());
            }
            let row = vec![
                done.vcluster.clone(),
                done.nodes.clone(),
                done.revision.to_string(),
            ];
            let columns = Columns::only(&["vcluster", "nodes", "revision"]);
            Ok(output::print(format, &done, columns, [row])?)
        }
        VclusterCommand::Delete(args) => {
            let version = args.expected_version;
            client.delete_vcluster(&args.name, version, None).await?;
            eprintln!("{}: deleted", args.name);
            Ok(())
        }
    }
}

const COLUMNS: Columns<'_> = Columns {
    narrow: &["vcluster", "tenants", "nodes", "lent", "borrowed"],
    wide: &["node list", "version", "scheduled by", "description"],
};

fn tenants(vcluster: &VclusterView) -> String {
    match vcluster.tenants.as_deref() {
        None => "all".to_owned(),
        // Of whom one may not know.
        Some([]) if vcluster.usable => "others".to_owned(),
        Some([]) => "none".to_owned(),
        Some(names) => names.join(","),
    }
}

/// Version 0 is none: nobody has said what it is.
fn version(vcluster: &VclusterView) -> String {
    match vcluster.version {
        0 => "not set".to_owned(),
        version => version.to_string(),
    }
}

/// The control that holds its scheduler's lease, and for the how manieth time it changed hands.
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

fn show(vcluster: &VclusterView, format: Format) -> Result<(), Failure> {
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
        line("reservations", reservations),
        line(
            "reference wait",
            duration::format((scheduler.reference_wait_s * 1000.0).round() as u64),
        ),
        line("checkpoint bandwidth", or_dash(bandwidth.as_deref())),
    ];
    let w = &scheduler.weights;
    let weights = [
        ("priority", w.priority),
        ("wait_time", w.wait_time),
        ("fair_share", w.fair_share),
        ("topology", w.topology),
        ("data_ready", w.data_ready),
        ("backlog", w.backlog),
        ("energy", w.energy),
        ("checkpoint", w.checkpoint),
        ("conformance", w.conformance),
    ];
    let weights = weights.map(|(name, weight)| line(&format!("weight {name}"), weight.to_string()));
    let rows = rows.into_iter().chain(settings).chain(weights);
    let columns = Columns::only(&["key", "value"]);
    Ok(output::print(format, vcluster, columns, rows)?)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use clap::Parser;
    use serde_json::{Value, json};

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: VclusterCommand,
    }

    fn asked(line: &str) -> Result<Value, String> {
        let words = std::iter::once("vcluster").chain(line.split(' '));
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        match line.command {
            VclusterCommand::Set(args) => Ok(serde_json::to_value(args.request()).unwrap()),
            VclusterCommand::SetWeights(args) => Ok(serde_json::to_value(args.request()).unwrap()),
            _ => Err("it is no set".to_owned()),
        }
    }

    #[test]
    fn what_is_not_named_is_not_asked_for() {
        for (line, body) in [
            ("set ml", json!({})),
            ("set ml --tenants a,b", json!({"tenants": ["a", "b"]})),
            ("set ml --all-tenants", json!({"tenants": null})),
            ("set ml --no-tenants", json!({"tenants": []})),
            (
                "set ml --reservations 64 --reference-wait 2h",
                json!({"scheduler": {"reservations": 64, "reference_wait_s": 7200.0}}),
            ),
            (
                "set ml --reservations all",
                json!({"scheduler": {"reservations": "all"}}),
            ),
            (
                "set ml --checkpoint-bandwidth 200",
                json!({"scheduler": {"checkpoint_gb_s": 200.0}}),
            ),
            (
                "set ml --no-checkpoint-bandwidth",
                json!({"scheduler": {"checkpoint_gb_s": null}}),
            ),
            (
                "set-weights ml --profile ml-training --energy 0",
                json!({"scheduler": {"profile": "ml-training", "weights": {"energy": 0.0}}}),
            ),
            (
                "set ml --description night --expected-version 0",
                json!({"description": "night", "expected_version": 0}),
            ),
        ] {
            assert_eq!(asked(line).unwrap(), body, "{line}");
        }
        assert!(asked("set ml --tenants a --all-tenants").is_err());
        assert!(asked("set ml --reservations many").is_err());
        assert!(asked("set ml --checkpoint-bandwidth 1 --no-checkpoint-bandwidth").is_err());
        assert!(asked("set-weights ml").is_err(), "no weight named");
    }

    #[test]
    fn one_of_which_nobody_has_said_anything_is_shown_as_such() {
        let view = VclusterView {
            name: "default".to_owned(),
            description: String::new(),
            tenants: None,
            usable: true,
            version: 0,
            nodes: "gpu[001-024]".to_owned(),
            node_count: 24,
            lent: String::new(),
            borrowed: String::new(),
            scheduler: serde_json::from_value(json!({
                "weights": {
                    "priority": 0.2, "wait_time": 0.2, "fair_share": 0.2, "topology": 0.15,
                    "data_ready": 0.1, "backlog": 0.05, "energy": 0.0, "checkpoint": 0.0,
                    "conformance": 0.1
                },
                "weights_sum": 1.0,
                "reference_wait_s": 3600.0,
                "reservations": 1,
                "checkpoint_gb_s": null
            }))
            .unwrap(),
            scheduled_by: Some("control-1".to_owned()),
            scheduler_epoch: 3,
            revision: lattice_quorum_types::Revision(0),
        };
        let cells = [
            "default",
            "all",
            "24",
            "-",
            "-",
            "gpu[001-024]",
            "not set",
            "control-1 (epoch 3)",
            "-",
        ];
        assert_eq!(row(&view), cells);
        let columns = COLUMNS.narrow.len() + COLUMNS.wide.len();
        assert_eq!(columns, cells.len());
        for (usable, said) in [(true, "others"), (false, "none")] {
            let view = VclusterView {
                tenants: Some(Vec::new()),
                usable,
                ..view.clone()
            };
            assert_eq!(tenants(&view), said);
        }
    }
}
