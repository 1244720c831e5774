//! Node operations.

use super::{certificates::of_node, conformance, node_id, paging, time};
use crate::caller::{Caller, Role};
use crate::state::Api;
use lattice_api::{
    allocation::ElementView,
    claim::ClaimView,
    conformance::{DiffView, DifferenceView},
    node::{
        BmcReadResult, ClassView, DrainView, HealthView, HolderView, NodeView, PowerView,
        ReprobeResult, ResourcesView,
    },
    node_status::NodeStatus,
    page::Page,
    problem::{Kind, Problem},
};
use lattice_conformance::{
    Class, ClassMark, Difference, Inventory, KeyVerdict, Milliwatts, NodeDocument, Power, Reading,
    Value, health::Severity,
};
use lattice_engine::{AgentError, Core, ReadingKind, bmc::RequestedReading};
use lattice_placement::Health;
use lattice_quorum_types::{NodeId, ProjectPath, Revision, UnixMillis, node::Node};
use lattice_view::{NodeEntry, View};
use std::{ops::Bound, time::Duration};
use tokio::time::timeout;

/// Value of `with` that compares a node with the majority of its cohort.
pub(crate) const MAJORITY: &str = "majority";

/// Timeout of a requested BMC reading. Most BMCs need half a minute; a slow one takes minutes, and its reading
/// continues after the timeout.
const BMC_LOOK_TIMEOUT: Duration = Duration::from_secs(50);

/// Timeout for the agent's power reading in an answer about a node.
const IN_BAND_TIMEOUT: Duration = Duration::from_secs(2);

/// Hides user, project and purpose of a node claim in a tenant that the caller does not see, unless the claim is the
/// caller's own.
pub(super) fn hide_foreign_claim(caller: &Caller, mut shown: NodeView) -> NodeView {
    const OTHERS: &str = "(another tenant)";
    if let Some(claim) = &mut shown.claim {
        let project = ProjectPath::new(&claim.project);
        let is_seen = project.is_ok_and(|project| caller.sees(&project));
        if !is_seen && *claim.user != *caller.name {
            OTHERS.clone_into(&mut claim.user);
            OTHERS.clone_into(&mut claim.project);
            claim.purpose = None;
        }
    }
    shown
}

pub(crate) fn list(
    api: &Api,
    caller: &Caller,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<Page<NodeView>, Problem> {
    let core = api.core();
    let limit = paging::limit(limit)?;
    let start = paging::after::<NodeId>(cursor)?.map_or(Bound::Unbounded, Bound::Excluded);
    let view = core.view();
    let entries = view.nodes.range((start, Bound::Unbounded));
    let page = paging::page(entries, limit, |(id, _)| id.to_string());
    Ok(page.map(|(_, entry)| {
        hide_foreign_claim(caller, with_bmc(api, node_view(core, &view, entry), entry))
    }))
}

/// Shows one node: with its certificate for operators of the whole cluster, and with the agent's power reading if this
/// control has none from the BMC.
pub(crate) async fn show(api: &Api, caller: &Caller, node: &str) -> Result<NodeView, Problem> {
    let core = api.core();
    let id = node_id(node)?;
    let is_without_power = get(api, node)?.power.is_none();
    let power = async {
        match is_without_power {
            true => in_band_power(api, &id).await,
            false => None,
        }
    };
    let certificate = async {
        match caller.is_cluster_operator() {
            true => of_node(core, &id).await,
            false => None,
        }
    };
    // Agent and quorum may take long, and the agent may have ended meanwhile: the view is read after their answers.
    let (power, certificate) = tokio::join!(power, certificate);
    let mut shown = hide_foreign_claim(caller, get(api, node)?);
    shown.power = shown.power.or(power);
    shown.certificate = certificate;
    add_last_complete(api, &mut shown).await;
    Ok(shown)
}

pub(crate) fn get(api: &Api, node: &str) -> Result<NodeView, Problem> {
    let core = api.core();
    let view = core.view();
    let entry = view.node(&node_id(node)?);
    let entry = entry.ok_or_else(|| Problem::unknown_node(node))?;
    Ok(with_bmc(api, node_view(core, &view, entry), entry))
}

/// Adds to each incomplete class its last complete state.
async fn add_last_complete(api: &Api, shown: &mut NodeView) {
    let mut classes = shown.classes.values();
    if !classes.any(|class| class.state == "incomplete") {
        return;
    }
    let Ok(last) = api.stores().history.last_complete(shown.name.clone()).await else {
        return;
    };
    for (name, class) in &mut shown.classes {
        let last = name.parse::<Class>().ok().and_then(|name| last.get(&name));
        if let Some(last) = last.filter(|_| class.state == "incomplete") {
            class.last_digest = Some(last.digest.to_string());
            class.complete_until = Some(time(UnixMillis(last.until)));
        }
    }
}

/// Adds BMC data, which changes constantly and is not part of the view. A fault reported by the BMC counts as a fault
/// of the node.
pub(super) fn with_bmc(api: &Api, mut shown: NodeView, entry: &NodeEntry) -> NodeView {
    shown.power = api
        .stores()
        .readings
        .power(&entry.id)
        .map(|seen| power(&seen.power, seen.read_at));
    let parts = api.stores().readings.parts(&entry.id);
    let reasons = parts.iter().flat_map(|parts| &parts.reasons);
    let (mut verdict, _) = entry.shown_health();
    for reason in reasons.filter(|reason| !reason.observe_only) {
        verdict = verdict.max(match reason.severity {
            Severity::Inform => Health::Healthy,
            Severity::Degraded => Health::Degraded,
            Severity::Faulty => Health::Faulty,
        });
        if !shown.health.reasons.contains(&reason.code) {
            shown.health.reasons.push(reason.code.clone());
        }
    }
    verdict.as_str().clone_into(&mut shown.health.verdict);
    with_status(shown)
}

/// Adds the combined status. The health verdict must be complete.
fn with_status(mut shown: NodeView) -> NodeView {
    shown.status = Some(NodeStatus::of_view(&shown).to_string());
    shown
}

/// Power reading from an agent's last probe; `None` if the agent does not answer in time or has no reading. A node that
/// does not answer pings is not waited for.
async fn in_band_power(api: &Api, node: &NodeId) -> Option<PowerView> {
    let records = api.records();
    let asked = timeout(IN_BAND_TIMEOUT, records.inventory(node, ReadingKind::Last));
    let answer = tokio::select! {
        answer = asked => answer,
        () = api.core().until_silent(node) => return None,
    };
    let measured = answer.ok()?.ok()?.power?;
    Some(power(&measured, None))
}

fn power(power: &Power, read_at: Option<UnixMillis>) -> PowerView {
    let watts = |reading: &Reading<Milliwatts>| Some((reading.present()?.0 + 500) / 1000);
    PowerView {
        draw_watts: watts(&power.draw),
        draw_state: power.draw.state().to_string(),
        reason: why(&power.draw),
        limit_watts: watts(&power.limit),
        limit_state: power.limit_state.to_string(),
        limit_min_watts: watts(&power.limit_min),
        limit_max_watts: watts(&power.limit_max),
        exception_action: power.exception_action.present().cloned(),
        source: power.source.clone(),
        read_at: read_at.map(time),
    }
}

/// Reason why a reading is unknown.
fn why<T>(reading: &Reading<T>) -> Option<String> {
    match reading {
        Reading::Denied { why } | Reading::Failed { why } | Reading::Disabled { why } => {
            Some(why.clone())
        }
        Reading::Timeout { after_ms } => Some(format!("no answer within {after_ms} ms")),
        Reading::Present(_) | Reading::Absent | Reading::Unsupported => None,
    }
}

pub(crate) async fn inventory(
    api: &Api,
    caller: &Caller,
    node: &str,
    fresh: bool,
) -> Result<Inventory, Problem> {
    if fresh {
        caller.check_role(Role::Operator, "probing again (fresh=true)")?;
    }
    let id = node_id(node)?;
    let read = match fresh {
        true => {
            let looked = request_reading(api, caller, &id).await;
            let (mut read, _) = looked?;
            api.records().merge_bmc_inventory(&id, &mut read);
            Ok(read)
        }
        false => api.records().inventory(&id, ReadingKind::Last).await,
    };
    read.map_err(|e| agent_problem(&e))
}

/// Requests a new reading of the hardware from the agent, and at the same time reads the BMC, which works also if the
/// node is off. The returned inventory contains agent data only.
async fn request_reading(
    api: &Api,
    caller: &Caller,
    node: &NodeId,
) -> Result<(Inventory, Option<BmcReadResult>), Problem> {
    let core = api.core();
    let look = ReadingKind::Fresh {
        by: Some(caller.name.to_string()),
    };
    let view = core.view();
    let (read, bmc) = tokio::join!(
        core.agents.inventory(&view, node, look),
        read_bmc(api, node, caller)
    );
    Ok((read.map_err(|e| agent_problem(&e))?, bmc))
}

/// Reads the BMC of a node now; `None` if this control reads no BMC for it.
pub(super) async fn read_bmc(api: &Api, node: &NodeId, caller: &Caller) -> Option<BmcReadResult> {
    let requester = caller.name.to_string();
    let (error, differs) = match api
        .stores()
        .readings
        .look(node, &requester, BMC_LOOK_TIMEOUT)
        .await?
    {
        RequestedReading::Read { differs } => (None, differs),
        RequestedReading::Silent { why } => (Some(why), Vec::new()),
        RequestedReading::Late { within } => {
            let seconds = within.as_secs();
            let why = format!("not read within {seconds} s; reading continues");
            (Some(why), Vec::new())
        }
    };
    let differs = differs.iter().map(Class::to_string).collect();
    Some(BmcReadResult { error, differs })
}

/// Probes a node and its BMC again, and returns the classes that differ from those last published.
pub(crate) async fn reprobe(
    api: &Api,
    caller: &Caller,
    node: &str,
) -> Result<ReprobeResult, Problem> {
    let core = api.core();
    caller.check_role(Role::Operator, "probing again")?;
    let id = node_id(node)?;
    let (mut read, bmc) = request_reading(api, caller, &id).await?;
    let view = core.view();
    // Agent data is compared with the marks that the agent published; BMC data is reported separately.
    let entry = view.node(&id);
    let announced = |class: &Class| entry.and_then(|entry| entry.published(*class));
    let marks = read.marks().into_iter();
    let differs = marks.filter(|(class, mark)| announced(class) != Some(*mark));
    let differs = differs.map(|(class, _)| class.to_string()).collect();
    // The reported classes combine agent and BMC, as everywhere.
    api.records().merge_bmc_inventory(&id, &mut read);
    Ok(ReprobeResult {
        node: node.to_owned(),
        fingerprint: view.fingerprint_of(&read).map(|d| d.to_string()),
        differs,
        classes: read
            .marks()
            .iter()
            .map(|(class, mark)| (class.to_string(), class_view(mark)))
            .collect(),
        bmc,
    })
}

/// Converts an agent error to a problem.
pub(crate) fn agent_problem(error: &AgentError) -> Problem {
    match error {
        AgentError::UnknownNode { node } => Problem::unknown_node(node.as_str()),
        AgentError::NotSeen { .. } => {
            Problem::new(Kind::Unavailable, "node_not_seen", error.to_string())
        }
        AgentError::Call { .. } | AgentError::Refused { .. } => {
            Problem::new(Kind::Unavailable, "node_unavailable", error.to_string())
        }
    }
}

pub(crate) async fn diff(api: &Api, left: &str, right: &str) -> Result<DiffView, Problem> {
    let id = node_id(left)?;
    if right == MAJORITY {
        return diff_majority(api, left).await;
    }
    let differences = api.records().diff(&id, &node_id(right)?).await;
    let differences = differences.map_err(|error| agent_problem(&error))?;
    Ok(DiffView {
        left: left.to_owned(),
        right: right.to_owned(),
        differences: differences.into_iter().map(difference).collect(),
    })
}

pub(super) fn difference(d: Difference) -> DifferenceView {
    let verdict = match d.verdict {
        KeyVerdict::Differs => "differs",
        KeyVerdict::Unknown => "unknown",
        KeyVerdict::Moved => "moved",
    };
    DifferenceView {
        class: d.class.to_string(),
        key: d.key,
        left: d.left.to_string(),
        right: d.right.to_string(),
        verdict: verdict.to_owned(),
    }
}

/// Differences from the majority of the cohort. A node that was not compared causes an error, because an empty list
/// would mean that the node is equal.
async fn diff_majority(api: &Api, node: &str) -> Result<DiffView, Problem> {
    let core = api.core();
    get(api, node)?;
    let (id, view) = (node_id(node)?, core.view());
    let (judged, drift) = (&view.cluster_drift, &view.cohort_drift);
    let is_alone = drift.alone.iter().any(|alone| alone == node);
    let is_compared = judged.compared.contains(&id) || judged.alone.iter().any(|a| a == node);
    if !is_compared || (is_alone && judged.pending.contains(&id)) {
        let detail = format!(
            "{node} is not compared with its cohort yet, because its hardware is unknown; try \
             again, or compare it with another node by name"
        );
        return Err(Problem::new(Kind::Unavailable, "not_compared", detail));
    }
    if is_alone {
        let detail = format!(
            "{node} is not compared with a cohort: its cohort is unknown or too small; compare it \
             with another node by name"
        );
        return Err(Problem::new(Kind::Conflict, "no_cohort", detail));
    }
    let of_node = drift.drifts.iter().filter(|d| d.node == node);
    let mut differences: Vec<DifferenceView> = of_node
        .map(|d| DifferenceView {
            class: d.class.to_string(),
            key: d.key.clone(),
            left: d.found.clone(),
            right: d.expected.clone(),
            verdict: "differs".to_owned(),
        })
        .collect();
    let row = |class: Class, key: &str, left: String, right: String| DifferenceView {
        class: class.to_string(),
        key: key.to_owned(),
        left,
        right,
        verdict: "unknown".to_owned(),
    };
    for none in &drift.no_majority {
        let mut values = none.values.iter();
        let own = values.find(|(_, nodes)| nodes.iter().any(|name| name == node));
        if let Some((value, _)) = own {
            let right = format!("<no majority: {} values>", none.values.len());
            differences.push(row(none.class, &none.key, value.clone(), right));
        }
    }
    for unknown in drift.unknown.iter().filter(|unknown| unknown.node == node) {
        let why = conformance::why_incomplete(api, &id, unknown.class).await;
        let why = why.unwrap_or_else(|| unknown.why.clone());
        let left = Reading::<Value>::failed(why).to_string();
        let right = "<not compared>".to_owned();
        differences.push(row(unknown.class, "class", left, right));
    }
    let place = |d: &DifferenceView| (d.class.parse::<Class>().ok(), d.key.clone());
    differences.sort_by_cached_key(place);
    Ok(DiffView {
        left: node.to_owned(),
        right: format!("majority of the cohort of {node}"),
        differences,
    })
}

/// View of a node.
pub(crate) fn node_view(core: &Core, view: &View, entry: &NodeEntry) -> NodeView {
    node_view_with_record(core, view, entry, entry.record.as_ref())
}

/// View of a node with a replicated record other than that of the view.
pub(crate) fn node_view_with_record(
    core: &Core,
    view: &View,
    entry: &NodeEntry,
    record: Option<&Node>,
) -> NodeView {
    let seen = entry.gossip.as_ref();
    let (verdict, reasons) = entry.shown_health();
    let drain = record.map_or(&[][..], |r| &r.drain);
    with_status(NodeView {
        name: entry.id.to_string(),
        status: None,
        lifecycle: record
            .map_or("unregistered", |r| r.lifecycle.as_str())
            .to_owned(),
        drain: drain
            .iter()
            .map(|d| DrainView {
                owner: d.owner.clone(),
                reason: d.reason.clone(),
                since: time(d.since),
            })
            .collect(),
        holder: record.and_then(|r| r.holder).map(|h| HolderView {
            allocation: h.allocation,
            attempt: h.attempt,
            element: ElementView::of(view.name_of(h.allocation)),
        }),
        claim: record
            .and_then(|r| r.node_claim.as_ref())
            .map(ClaimView::from),
        vcluster: record.map(|r| r.current.to_string()).unwrap_or_default(),
        lent_by: record
            .filter(|r| r.home != r.current)
            .map(|r| r.home.to_string()),
        liveness: entry.liveness.as_str().to_owned(),
        liveness_reason: entry.liveness_reason.clone(),
        last_seen: core.reply_times.of(&entry.id).map(time),
        health: HealthView {
            verdict: verdict.as_str().to_owned(),
            reasons,
        },
        cell: seen.map(|s| s.cell.clone()),
        group: entry.group().map(str::to_owned),
        resources: entry.document.as_deref().map(facts).unwrap_or_default(),
        fingerprint: entry.conformance().fingerprint.map(|d| d.to_string()),
        classes: entry
            .marks()
            .iter()
            .map(|(class, mark)| (class.to_string(), class_view(mark)))
            .collect(),
        drifted_keys: view.drifted_keys(&entry.id),
        boot_id: entry
            .boot
            .clone()
            .or_else(|| seen.and_then(|s| s.boot_id.clone())),
        agent_version: seen.and_then(|s| s.agent_version.clone()),
        attestation_fault: entry.attestation_fault.clone(),
        power: None,
        certificate: None,
        revision: record.map_or(Revision(0), |r| r.revision),
    })
}

fn class_view(mark: &ClassMark) -> ClassView {
    let state = match mark {
        ClassMark::Complete { .. } => "complete",
        ClassMark::Incomplete => "incomplete",
        ClassMark::Disabled => "disabled",
    };
    ClassView {
        state: state.to_owned(),
        digest: mark.digest().map(|d| d.to_string()),
        last_digest: None,
        complete_until: None,
    }
}

fn facts(document: &NodeDocument) -> ResourcesView {
    let (identity, facts) = (&document.identity, &document.resources);
    ResourcesView {
        vendor: identity.vendor.present().cloned(),
        product: identity.product.present().cloned(),
        gpu_model: facts.gpu_model.present().cloned(),
        gpu_count: facts.gpus(),
        gpu_memory_bytes: facts.gpu_memory_bytes.present().copied(),
        memory_bytes: facts.memory_bytes.present().copied(),
        sockets: facts.sockets.present().copied(),
        cores: facts.cores.present().copied(),
        threads: facts.threads.present().copied(),
        numa_nodes: facts.numa_nodes.present().copied(),
        rdma_count: facts.rdma_count.present().copied(),
        features: facts.features.iter().cloned().collect(),
    }
}
