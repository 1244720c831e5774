//! `lattice node`: state, health, hardware and history of nodes; drains and claims.

mod claim;
mod drain;
mod health;
mod history;
mod list;
pub(crate) mod node_args;
mod reprobe;

use crate::{
    connect::Connection,
    failure::Failure,
    output::{self, Columns, Fitting, Format, contrast, or_dash, time, until},
};
use claim::{ClaimArgs, ReleaseArgs};
use clap::{Args, Subcommand};
use drain::{DrainArgs, UndrainArgs};
use health::HealthArgs;
use history::HistoryArgs;
use lattice_api::{
    allocation::name_text,
    certificate::{CertificateState, CertificateView},
    conformance::DifferenceView,
    node::{ClassView, NodeView, PowerView},
    node_status::NodeStatus,
};
use lattice_conformance::Class;
use list::ListArgs;
use node_args::single_node;
use reprobe::ReprobeArgs;

/// Node subcommands.
#[derive(Subcommand)]
pub enum NodeCommand {
    /// List nodes with their status, holder and fingerprint: all, some, or those with a given status.
    List(ListArgs),
    /// Show one node: state, health, resources, power and the digest of each class.
    Show(ShowArgs),
    /// Show, key by key, how two nodes or groups differ, or how a node changed.
    Diff(DiffArgs),
    /// Show the hardware faults of a node: part, evidence, first observation, and recommended action.
    Health(HealthArgs),
    /// Show the history of a node, also while it is down: changes with time and cause, and other events.
    History(HistoryArgs),
    /// Probe nodes again now, and show the differences from their published state.
    Reprobe(ReprobeArgs),
    /// Drain nodes: they get no new allocations, and running ones continue.
    Drain(DrainArgs),
    /// Clear your own drain reason and that of a failed hook; reasons of other owners stay. If none is left, the node
    /// must first pass its health gate.
    Undrain(UndrainArgs),
    /// Claim nodes for your sensitive allocations: the nodes take no other allocations until you release them.
    Claim(ClaimArgs),
    /// Release claimed nodes. Each is wiped before another user gets it.
    Release(ReleaseArgs),
}

#[derive(Args)]
pub struct ShowArgs {
    /// Node name.
    node: String,
    /// Show every conformance key with its value, read from the node.
    #[arg(long)]
    inventory: bool,
    /// Show these classes of the inventory only, such as nic,bios.
    #[arg(
        long,
        value_name = "CLASSES",
        value_delimiter = ',',
        requires = "inventory"
    )]
    class: Vec<Class>,
}

#[derive(Args)]
pub struct DiffArgs {
    /// Node, or conformance group by its digest (8 digits or more).
    left: String,
    /// Node or group to compare with, or majority: the values of most nodes of the cohort.
    right: Option<String>,
    /// Compare with the node's own state at this time: 2026-11-21, 2026-11-21T09:30:00Z, 09:30 (of today), yesterday,
    /// or an age: 2d. UTC without an offset.
    #[arg(long, conflicts_with = "right")]
    since: Option<String>,
}

/// Runs a node command.
pub async fn run(command: NodeCommand, connection: &Connection) -> Result<(), Failure> {
    match command {
        NodeCommand::List(args) => list::list(&args, connection).await,
        NodeCommand::Show(args) => {
            let node = single_node(&args.node, |list| match args.inventory {
                true => "run the command for each node".to_owned(),
                false => format!("`lattice node list '{list}' -o wide`"),
            })?;
            match args.inventory {
                true => inventory(node, &args.class, connection).await,
                false => show(node, connection).await,
            }
        }
        NodeCommand::Diff(args) => diff(&args, connection).await,
        NodeCommand::Reprobe(args) => reprobe::reprobe(&args, connection).await,
        NodeCommand::Health(args) => health::health(&args, connection).await,
        NodeCommand::History(args) => history::history(args, connection).await,
        NodeCommand::Drain(args) => drain::drain(&args, connection).await,
        NodeCommand::Undrain(args) => drain::undrain(&args, connection).await,
        NodeCommand::Claim(args) => claim::claim(args, connection).await,
        NodeCommand::Release(args) => claim::release(args, connection).await,
    }
}

fn gpus(node: &NodeView) -> String {
    match (node.resources.gpu_count, &node.resources.gpu_model) {
        (Some(0), _) => "none".to_owned(),
        (Some(count), Some(_)) => format!("{count}x {}", gpu_model(node)),
        (Some(count), None) => count.to_string(),
        (None, _) => "unknown".to_owned(),
    }
}

/// Returns the GPU model without the vendor NVIDIA, to save column width.
fn gpu_model(node: &NodeView) -> String {
    match (node.resources.gpu_count, &node.resources.gpu_model) {
        (Some(0), _) => "-".to_owned(),
        (_, Some(model)) => model.strip_prefix("NVIDIA ").unwrap_or(model).to_owned(),
        (_, None) => "unknown".to_owned(),
    }
}

fn gibibytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "unknown".to_owned(), |b| format!("{} GiB", b >> 30))
}

fn number(n: Option<u32>) -> String {
    n.map_or_else(|| "unknown".to_owned(), |n| n.to_string())
}

fn reasons(node: &NodeView) -> Option<String> {
    let reasons = &node.health.reasons;
    (!reasons.is_empty()).then(|| reasons.join(","))
}

fn health(node: &NodeView) -> String {
    match reasons(node) {
        None => node.health.verdict.clone(),
        Some(reasons) => format!("{} ({reasons})", node.health.verdict),
    }
}

fn class_text(class: &ClassView) -> String {
    match (&class.digest, &class.last_digest, &class.complete_until) {
        (Some(digest), ..) => digest.clone(),
        (None, Some(last), Some(until)) => {
            format!("{}; was {last} until {}", class.state, time(until))
        }
        (None, ..) => class.state.clone(),
    }
}

/// Formats power draw, limit and source: `467 W, limit 800 W, read 2026-11-22T02:12:01Z by the BMC`.
fn power(power: &PowerView) -> String {
    let watts = |watts: Option<u64>| watts.map(|w| format!("{w} W"));
    let draw = watts(power.draw_watts).unwrap_or_else(|| match &power.reason {
        Some(why) => format!("<{}: {why}>", power.draw_state),
        None => format!("<{}>", power.draw_state),
    });
    let limit = match watts(power.limit_watts) {
        Some(limit) => format!("limit {limit}"),
        None => format!("limit {}", power.limit_state),
    };
    let range = match (power.limit_min_watts, power.limit_max_watts) {
        (Some(min), Some(max)) => format!(" (settable {min} to {max} W)"),
        _ => String::new(),
    };
    let action = power.exception_action.as_deref();
    let action = action.map_or_else(String::new, |a| format!(", over the limit: {a}"));
    let read = match (&power.read_at, power.source.as_str()) {
        (Some(at), _) if power.draw_watts.is_some() => format!("read {} by the BMC", time(at)),
        (Some(at), _) => format!("last BMC reading {}", time(at)),
        (None, "") => "never read".to_owned(),
        (None, source) => format!("measured by the node itself ({source})"),
    };
    format!("{draw}, {limit}{range}{action}, {read}")
}

/// Returns the vCluster that uses the node, and the home vCluster if the node is lent.
fn vcluster(node: &NodeView) -> String {
    match &node.lent_by {
        None => node.vcluster.clone(),
        Some(home) => format!("{} (lent by {home})", node.vcluster),
    }
}

/// Returns the combined status. A control of an earlier version sends none.
fn status(node: &NodeView) -> String {
    let combined = || NodeStatus::of_view(node).to_string();
    node.status.clone().unwrap_or_else(combined)
}

/// Returns the liveness and its reason.
fn liveness(node: &NodeView) -> String {
    match &node.liveness_reason {
        Some(reason) => format!("{} ({reason})", node.liveness),
        None => node.liveness.clone(),
    }
}

/// Returns the state of the certificate, in one line.
fn certificate_text(certificate: &CertificateView) -> String {
    let ends = certificate.expires_at.as_deref();
    let ends = ends.map(|at| until(Format::Table, at)).unwrap_or_default();
    match (certificate.state, &certificate.revoked) {
        (CertificateState::Revoked, Some(r)) => format!("revoked by {}: {}", r.by, r.reason),
        (CertificateState::Valid, _) => format!("valid until {ends}"),
        (CertificateState::Expired, _) => format!("expired {ends}"),
        (state, _) => state.as_str().to_owned(),
    }
}

async fn show(name: &str, connection: &Connection) -> Result<(), Failure> {
    let node = connection.client.node(name).await?;
    if connection.format == Format::Csv {
        return list::print_row(&node, connection.format);
    }
    let line = |key: &str, value: String| vec![key.to_owned(), value];
    let mut rows = vec![
        line("name", node.name.clone()),
        line("status", status(&node)),
        line("lifecycle", node.lifecycle.clone()),
        line("liveness", liveness(&node)),
        line(
            "last seen",
            or_dash(node.last_seen.as_deref().map(time).as_deref()),
        ),
        line("health", health(&node)),
        line("vcluster", vcluster(&node)),
        line("cell", or_dash(node.cell.as_deref())),
        line("group", or_dash(node.group.as_deref())),
        line("vendor", or_dash(node.resources.vendor.as_deref())),
        line("product", or_dash(node.resources.product.as_deref())),
        line("gpus", gpus(&node)),
        line("cores", number(node.resources.cores)),
        line("memory", gibibytes(node.resources.memory_bytes)),
        line(
            "features",
            or_dash(Some(&node.resources.features.join(","))),
        ),
        line("power", node.power.as_ref().map_or("-".to_owned(), power)),
        line("boot id", or_dash(node.boot_id.as_deref())),
        line("agent", or_dash(node.agent_version.as_deref())),
        line("drifted keys", number(node.drifted_keys)),
        line(
            "fingerprint",
            node.fingerprint
                .clone()
                .unwrap_or_else(|| "unknown".to_owned()),
        ),
    ];
    if let Some(holder) = &node.holder {
        let text = format!(
            "allocation {} attempt {}",
            name_text(holder.allocation, holder.element.as_ref()),
            holder.attempt
        );
        rows.insert(3, line("held by", text));
    }
    let drained = node.drain.iter().map(|drain| {
        let (owner, reason, since) = (&drain.owner, &drain.reason, time(&drain.since));
        line("drained by", format!("{owner}: {reason} (since {since})"))
    });
    let after_state = 3 + usize::from(node.holder.is_some());
    rows.splice(after_state..after_state, drained);
    if let Some(claim) = &node.claim {
        rows.insert(3, line("claimed by", claim::in_words(claim)));
    }
    if let Some(reason) = &node.attestation_fault {
        rows.push(line("no sensitive work", reason.clone()));
    }
    if let Some(certificate) = &node.certificate {
        rows.push(line("certificate", certificate_text(certificate)));
    }
    for (class, view) in &node.classes {
        rows.push(line(&format!("fp.{class}"), class_text(view)));
    }
    Ok(output::print_details(
        connection.format,
        &node,
        ["key", "value"],
        rows,
    )?)
}

async fn inventory(name: &str, classes: &[Class], connection: &Connection) -> Result<(), Failure> {
    let inventory = connection.client.inventory(name, false).await?;
    // The inventory is the agent's own document.
    let mut inventory: lattice_conformance::Inventory =
        serde_json::from_value(inventory).map_err(anyhow::Error::from)?;
    if !classes.is_empty() {
        let records = &mut inventory.records;
        records.retain(|class, _| classes.contains(class));
    }
    let rows = crate::host::inventory_rows(&inventory);
    let columns = Columns::only(&["class", "key", "value"]);
    Ok(output::print_fitted(
        connection.format,
        &inventory,
        columns,
        Fitting::Texts(&["class"]),
        rows,
    )?)
}

/// Returns the row of one difference.
pub(crate) fn difference_row(format: Format, d: &DifferenceView) -> Vec<String> {
    let (left, right) = contrast(format, &d.left, &d.right);
    vec![
        d.verdict.clone(),
        d.class.clone(),
        d.key.clone(),
        left,
        right,
    ]
}

/// Whether the difference only reports that the class is disabled on both sides.
fn is_off(d: &DifferenceView) -> bool {
    d.key == "class" && d.left == d.right && d.left.starts_with("<disabled")
}

async fn diff(args: &DiffArgs, connection: &Connection) -> Result<(), Failure> {
    let client = &connection.client;
    let diff = match (&args.right, &args.since) {
        (Some(right), _) => client.diff(&args.left, right).await?,
        (None, Some(since)) => {
            let since = output::moment("--since", since)?;
            client.diff_since(&args.left, &since).await?
        }
        (None, None) => {
            return Err(Failure::usage(format!(
                "give what to compare with: another node, majority, or {} itself with --since 1d",
                args.left
            )));
        }
    };
    let (off, shown): (Vec<_>, Vec<_>) = diff.differences.iter().partition(|d| is_off(d));
    let rows = shown.iter().map(|d| difference_row(connection.format, d));
    let sides = (diff.left.as_str(), diff.right.as_str());
    output::print_difference(connection.format, &diff, sides, rows)?;
    if shown.is_empty() {
        output::message!(
            "{} and {} do not differ in any known key",
            diff.left,
            diff.right
        );
    }
    if !off.is_empty() {
        let classes: Vec<_> = off.iter().map(|d| d.class.as_str()).collect();
        output::message!(
            "not compared, disabled on both sides: {}",
            classes.join(", ")
        );
    }
    Ok(())
}
