//! Commands of the first version.

use lattice_quorum_types::{
    self as now, AllocationId, NodeId, ProjectPath, UnixMillis, VclusterName,
    allocation::{RankExit, StopCause},
    command::{Fence, IssuedCertificate, LimitChange, Principal, TokenGrant},
    id::LeaseName,
    limit::Limits,
    node::Lifecycle,
    rpc::Role,
    spec::{Constraints, Demand, OutputFiles, Requeue},
    terms::Terms,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A command as the first version wrote it into its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    schema: u16,
    principal: Principal,
    key: Option<String>,
    at: UnixMillis,
    fence: Option<Fence>,
    command: Command,
}

impl From<Envelope> for now::Envelope {
    fn from(old: Envelope) -> Self {
        now::Envelope {
            schema: old.schema,
            principal: old.principal,
            key: old.key,
            at: old.at,
            fence: old.fence,
            command: old.command.into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ExpectedNode {
    node: NodeId,
    version: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum RankReport {
    Started { at: UnixMillis },
    Ended { at: UnixMillis, exit: RankExit },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Workload {
    argv: Vec<String>,
    script: Option<String>,
    env: BTreeMap<String, String>,
    working_dir: Option<String>,
}

/// Also part of the first version's snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AllocationSpec {
    name: Option<String>,
    project: ProjectPath,
    vcluster: VclusterName,
    nodes: u32,
    workload: Workload,
    walltime_ms: Option<u64>,
    class: u8,
    sensitive: bool,
    constraints: Constraints,
    requeue: Requeue,
    hold: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Command {
    CreateProject {
        path: ProjectPath,
        limits: Option<Limits>,
        admins: Vec<String>,
        description: String,
    },
    DeleteProject {
        path: ProjectPath,
    },
    SetLimits {
        changes: Vec<LimitChange>,
    },
    Submit {
        spec: Box<AllocationSpec>,
    },
    Cancel {
        id: AllocationId,
    },
    Hold {
        id: AllocationId,
    },
    Release {
        id: AllocationId,
    },
    Assign {
        id: AllocationId,
        nodes: Vec<ExpectedNode>,
    },
    Stop {
        id: AllocationId,
        cause: StopCause,
    },
    Report {
        id: AllocationId,
        attempt: u32,
        node: NodeId,
        report: RankReport,
    },
    RegisterNode {
        node: NodeId,
        vcluster: VclusterName,
    },
    SetLifecycle {
        node: NodeId,
        lifecycle: Lifecycle,
    },
    Drain {
        node: NodeId,
        reason: Option<String>,
    },
    AcquireLease {
        lease: LeaseName,
        holder: String,
        ttl_ms: u64,
    },
    ReleaseLease {
        lease: LeaseName,
        holder: String,
    },
    CreateToken {
        hash: String,
        role: Role,
        names: Option<Vec<NodeId>>,
        uses: u32,
        expires_at: UnixMillis,
    },
    ConsumeToken {
        hash: String,
        name: String,
        role: Role,
    },
}

impl From<AllocationSpec> for now::spec::AllocationSpec {
    fn from(old: AllocationSpec) -> Self {
        let Workload {
            argv,
            script,
            env,
            working_dir,
        } = old.workload;
        now::spec::AllocationSpec {
            name: old.name,
            project: old.project,
            vcluster: old.vcluster,
            nodes: old.nodes,
            workload: now::spec::Workload {
                argv,
                script,
                env,
                working_dir,
                output: OutputFiles::default(),
            },
            walltime_ms: old.walltime_ms,
            class: old.class,
            sensitive: old.sensitive,
            constraints: old.constraints,
            requeue: old.requeue,
            hold: old.hold,
            demand: Demand::default(),
            terms: Terms::default(),
        }
    }
}

impl From<ExpectedNode> for now::command::ExpectedNode {
    fn from(old: ExpectedNode) -> Self {
        let ExpectedNode { node, version } = old;
        let boot = None;
        now::command::ExpectedNode {
            node,
            version,
            boot,
        }
    }
}

impl From<RankReport> for now::command::RankReport {
    fn from(old: RankReport) -> Self {
        match old {
            RankReport::Started { at } => now::command::RankReport::Started { at },
            RankReport::Ended { at, exit } => now::command::RankReport::Ended {
                at,
                exit,
                fault: None,
            },
        }
    }
}

/// Of tokens and enrolments of the first version: nothing was said of certificates.
const UNKNOWN: IssuedCertificate = IssuedCertificate {
    issued_at: UnixMillis(0),
    expires_at: UnixMillis(0),
};

impl From<Command> for now::Command {
    fn from(old: Command) -> Self {
        match old {
            Command::CreateProject {
                path,
                limits,
                admins,
                description,
            } => now::Command::CreateProject {
                path,
                limits,
                admins,
                description,
            },
            Command::DeleteProject { path } => now::Command::DeleteProject { path },
            Command::SetLimits { changes } => now::Command::SetLimits { changes },
            Command::Submit { spec } => now::Command::Submit {
                spec: Box::new((*spec).into()),
            },
            Command::Cancel { id } => now::Command::Cancel { id },
            Command::Hold { id } => now::Command::Hold { id },
            Command::Release { id } => now::Command::Release { id },
            Command::Assign { id, nodes } => now::Command::Assign {
                id,
                nodes: nodes.into_iter().map(Into::into).collect(),
            },
            Command::Stop { id, cause } => now::Command::Stop { id, cause },
            Command::Report {
                id,
                attempt,
                node,
                report,
            } => now::Command::Report {
                id,
                attempt,
                node,
                report: report.into(),
            },
            Command::RegisterNode { node, vcluster } => {
                now::Command::RegisterNode { node, vcluster }
            }
            Command::SetLifecycle { node, lifecycle } => {
                now::Command::SetLifecycle { node, lifecycle }
            }
            Command::Drain { node, reason } => now::Command::Drain {
                node,
                reason,
                expected: None,
            },
            Command::AcquireLease {
                lease,
                holder,
                ttl_ms,
            } => now::Command::AcquireLease {
                lease,
                holder,
                ttl_ms,
            },
            Command::ReleaseLease { lease, holder } => now::Command::ReleaseLease { lease, holder },
            Command::CreateToken {
                hash,
                role,
                names,
                uses,
                expires_at,
            } => now::Command::CreateToken {
                grant: TokenGrant {
                    hash,
                    role,
                    names,
                    cidrs: Vec::new(),
                    uses,
                    replace: false,
                    expires_at,
                },
            },
            Command::ConsumeToken { hash, name, role } => now::Command::ConsumeToken {
                hash,
                name,
                role,
                from: None,
                replace: false,
                certificate: UNKNOWN,
            },
        }
    }
}

/// The command as the first version would have encoded it. One that asks for what that version did
/// not know is encoded as it is, and so equals none of then.
pub(crate) fn encode(command: &now::Command) -> Vec<u8> {
    let bytes = match as_first(command) {
        Some(old) => postcard::to_stdvec(&old),
        None => postcard::to_stdvec(command),
    };
    #[expect(
        clippy::expect_used,
        reason = "plain data serialised into memory cannot fail"
    )]
    bytes.expect("a command serialises")
}

fn as_first(command: &now::Command) -> Option<Command> {
    Some(match command.clone() {
        now::Command::CreateProject {
            path,
            limits,
            admins,
            description,
        } => Command::CreateProject {
            path,
            limits,
            admins,
            description,
        },
        now::Command::DeleteProject { path } => Command::DeleteProject { path },
        now::Command::SetLimits { changes } => Command::SetLimits { changes },
        now::Command::Submit { spec } => Command::Submit {
            spec: Box::new(spec_as_first(*spec)?),
        },
        now::Command::SubmitFormer { spec } => Command::Submit {
            spec: Box::new(spec_as_first((*spec).into())?),
        },
        now::Command::SubmitFifth { spec } => Command::Submit {
            spec: Box::new(spec_as_first((*spec).into())?),
        },
        now::Command::Cancel { id } => Command::Cancel { id },
        now::Command::Hold { id } => Command::Hold { id },
        now::Command::Release { id } => Command::Release { id },
        now::Command::Assign { id, nodes } => Command::Assign {
            id,
            nodes: nodes
                .into_iter()
                .map(|expected| ExpectedNode {
                    node: expected.node,
                    version: expected.version,
                })
                .collect(),
        },
        now::Command::Stop { id, cause } => Command::Stop { id, cause },
        now::Command::Report {
            id,
            attempt,
            node,
            report,
        } => Command::Report {
            id,
            attempt,
            node,
            report: report_as_first(report)?,
        },
        now::Command::RegisterNode { node, vcluster } => Command::RegisterNode { node, vcluster },
        now::Command::SetLifecycle { node, lifecycle } => Command::SetLifecycle { node, lifecycle },
        now::Command::Drain {
            node,
            reason,
            expected: None,
        } => Command::Drain { node, reason },
        now::Command::AcquireLease {
            lease,
            holder,
            ttl_ms,
        } => Command::AcquireLease {
            lease,
            holder,
            ttl_ms,
        },
        now::Command::ReleaseLease { lease, holder } => Command::ReleaseLease { lease, holder },
        now::Command::CreateToken { grant } if grant.cidrs.is_empty() && !grant.replace => {
            Command::CreateToken {
                hash: grant.hash,
                role: grant.role,
                names: grant.names,
                uses: grant.uses,
                expires_at: grant.expires_at,
            }
        }
        now::Command::ConsumeToken {
            hash, name, role, ..
        } => Command::ConsumeToken { hash, name, role },
        _ => return None,
    })
}

fn spec_as_first(spec: now::spec::AllocationSpec) -> Option<AllocationSpec> {
    let now::spec::Workload {
        argv,
        script,
        env,
        working_dir,
        output,
    } = spec.workload;
    let workload = Workload {
        argv,
        script,
        env,
        working_dir,
    };
    let is_known = output == OutputFiles::default() && spec.demand.is_empty();
    is_known.then_some(AllocationSpec {
        name: spec.name,
        project: spec.project,
        vcluster: spec.vcluster,
        nodes: spec.nodes,
        workload,
        walltime_ms: spec.walltime_ms,
        class: spec.class,
        sensitive: spec.sensitive,
        constraints: spec.constraints,
        requeue: spec.requeue,
        hold: spec.hold,
    })
}

fn report_as_first(report: now::command::RankReport) -> Option<RankReport> {
    match report {
        now::command::RankReport::Started { at } => Some(RankReport::Started { at }),
        now::command::RankReport::Ended {
            exit: RankExit::NeverStarted { .. },
            ..
        } => None,
        now::command::RankReport::Ended {
            at,
            exit,
            fault: None,
        } => Some(RankReport::Ended { at, exit }),
        now::command::RankReport::Ended { fault: Some(_), .. }
        | now::command::RankReport::Checkpoint { .. } => None,
    }
}
