"""Models of the answers of a server.

Written by `generate` from the served OpenAPI document: do not edit. A field that this version does
not know is in `extra`.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as _field
from typing import Any, Literal, Optional, Union

from ._decode import Model, Page, Reading

__all__ = [
    "AccountingStatus",
    "AllocationChange",
    "AllocationView",
    "AuditHeadView",
    "AuditView",
    "AuthorityView",
    "BaselineChange",
    "BaselineComparisonView",
    "BaselineResult",
    "BaselineView",
    "BmcReadResult",
    "BrakeChange",
    "BrakeState",
    "BrakeView",
    "CertificateView",
    "Change",
    "ChangeResult",
    "Changes",
    "ChangesView",
    "CheckpointBody",
    "CheckpointInProgressView",
    "CheckpointSettingsView",
    "CheckpointsView",
    "ClaimResult",
    "ClaimView",
    "ClassRuleView",
    "ClassView",
    "CohortSelectorBody",
    "CompactedEvents",
    "ConstraintsBody",
    "DagDryRunMember",
    "DagDryRunResult",
    "DagEdgeView",
    "DagMemberView",
    "DagPlaceView",
    "DagSubmitResult",
    "DagView",
    "DependencyView",
    "DiffView",
    "DifferenceView",
    "DiskPart",
    "DrainResult",
    "DrainView",
    "DriftReportView",
    "DriftView",
    "ElementCountsView",
    "ElementView",
    "ExhaustedBudget",
    "ExplanationView",
    "FactorView",
    "FindingView",
    "FleetChangeView",
    "GpuPart",
    "GpuPlaceView",
    "GraphEdgeView",
    "GraphNodeView",
    "GraphView",
    "GroupView",
    "GroupsView",
    "HeadroomLevelView",
    "HeadroomView",
    "HealthView",
    "HistoryEntryView",
    "HolderView",
    "InventoryIdentity",
    "InventoryPower",
    "InventoryResources",
    "InventoryTopology",
    "InventoryView",
    "KeyChangeView",
    "LimitsBody",
    "LossView",
    "MetricBody",
    "MissingRightView",
    "MovementView",
    "NicPart",
    "NoMajorityView",
    "NodeChange",
    "NodeEventView",
    "NodeHealthView",
    "NodeProblemView",
    "NodeView",
    "NotReadView",
    "NvlinkView",
    "ObservedChanges",
    "OutlookView",
    "OutputPlaceView",
    "OutputView",
    "Page",
    "PairView",
    "PausedProjectView",
    "PowerView",
    "PreemptionView",
    "ProbeView",
    "ProblemDocument",
    "ProjectChange",
    "ProjectDeletedChange",
    "ProjectView",
    "QuorumMemberView",
    "QuorumStep",
    "QuorumView",
    "RankView",
    "Reading",
    "ReasonView",
    "ReconcileView",
    "RecordView",
    "RejectedRequestView",
    "ReleaseResult",
    "ReprobeResult",
    "ReservationConflictView",
    "ReservationView",
    "ReservationsView",
    "ResourcesView",
    "RevocationView",
    "SavedCheckpointView",
    "ScaleBody",
    "ScalingView",
    "SchedulerView",
    "ScoreView",
    "SharingView",
    "StatusView",
    "StepView",
    "SubmitResult",
    "SystemLimitsView",
    "TenantUsage",
    "TenantView",
    "TokenCreated",
    "TokenView",
    "TotalDifference",
    "UndrainResult",
    "UnknownChange",
    "UnknownView",
    "UsageView",
    "UserTenantUsage",
    "UserUsage",
    "ValueWithNodes",
    "VclusterNodes",
    "VclusterView",
    "VersionView",
    "Violation",
    "WaitingAllocation",
    "WaitsForView",
    "WeightsView",
    "WorkloadView",
]


@dataclass(frozen=True, repr=False)
class AccountingStatus(Model):
    """Status of the delivery of usage to the accounting system."""

    acknowledged: int
    """Number of the newest usage record that the accounting system has acknowledged."""
    buffer_size: int
    """Maximum number of events in memory."""
    disk_buffer_max_events: int
    """Maximum number of events on disk."""
    dropped: int
    """Events dropped since the cluster was founded. Totals stay correct, and `reconcile` sends
    dropped events again."""
    enabled: bool
    """Whether accounting is configured."""
    full: bool
    """Whether the disk buffer is full, so that the next event is dropped."""
    is_active: bool
    """Whether the control that answers is the control that sends to the accounting system.
    Another control has only part of these values."""
    last: int
    """Number of the newest usage record."""
    rejected: list[RejectedRequestView]
    """Requests that the accounting system rejects, and totals that differ from the recorded
    usage. Each rejected request is retried every 15 minutes and delays no other request."""
    reported: int
    """Usage reports sent since this control started."""
    sent: int
    """Events sent since this control started."""
    behind: Optional[int] = None
    """Usage records that the accounting system has not acknowledged yet: `last` less
    `acknowledged`."""
    clock_skew_ms: Optional[int] = None
    """Difference of the accounting system's clock from that of the control, in milliseconds;
    positive where that clock is ahead. `null` while it is unknown."""
    complete_at: Optional[str] = None
    """Time at which the accounting system last had all usage; `null` if that has not happened
    since this control started."""
    failure: Optional[str] = None
    """Why the last delivery failed; `null` if it succeeded or there was none yet."""
    in_memory: Optional[int] = None
    """Events in memory; `null` until this control has read the usage records and its journal."""
    missing_rights: list[MissingRightView] = _field(default_factory=list)
    """Rights that the user of the accounting system's token lacks, each once, with the number of
    requests that wait for it. One request of each place is retried every 15 minutes, and a right
    that was granted disappears then."""
    on_disk: Optional[int] = None
    """Events that are on disk only; `null` while `in_memory` is."""
    provider: Optional[str] = None
    """`waldur`; `null` if accounting is not configured."""
    retry_at: Optional[str] = None
    """Time of the next retry."""
    round_began_at: Optional[str] = None
    """Start of the round that is running; `null` between two rounds. `failure` is that of the
    round before."""
    version: Optional[str] = None
    """Version of the accounting system; `null` until the first request to it has succeeded, or
    if the token's user may not read it."""


@dataclass(frozen=True, repr=False)
class AllocationView(Model):
    """Allocation as shown."""

    attempt: int
    """Attempt number: counts assignments."""
    class_: int = _field(metadata={"wire": "class"})
    """Priority class."""
    constraints: ConstraintsBody
    """Requirements on the nodes."""
    id: int
    """Allocation number."""
    nodelist: str
    """Nodes of the current or last attempt, as a hostlist; empty before the first attempt."""
    nodes: int
    """Number of nodes requested."""
    project: str
    """Project for limits and usage."""
    ranks: list[RankView]
    """Ranks of the current or last attempt."""
    requeue: str
    """Policy after the loss of a node: `never`, `once` or `always`."""
    revision: int
    """Revision of the last change."""
    sensitive: bool
    """Whether the allocation is sensitive: attested nodes of one conformance group, no
    preemption, audit of each request, and a wipe afterwards."""
    state: str
    """`blocked`, `pending`, `held`, `starting`, `running`, `checkpointing`, `stopping`,
    `suspended`, `completed`, `failed` or `cancelled`."""
    state_since: str
    """Time at which the allocation entered its state."""
    submitted_at: str
    """Time of the submit."""
    user: str
    """User that submitted the allocation."""
    vcluster: str
    """vCluster that schedules the allocation."""
    array: Optional[str] = None
    """Indices of a job array, and how many of its elements run at a time."""
    begin_at: Optional[str] = None
    """Earliest start."""
    checkpoint: Optional[CheckpointBody] = None
    """Checkpoint mode, trigger and directory of the job."""
    checkpoint_time: Optional[str] = None
    """Time to write a job checkpoint; absent if the request gave none."""
    checkpoints: Optional[CheckpointsView] = None
    """Job checkpoints; absent if none was requested."""
    dag: Optional[DagPlaceView] = None
    """DAG of which this allocation is a member."""
    data_ready: Optional[float] = None
    """Fraction of the input data that is on the hot tier, 0 to 1; absent when unknown."""
    deadline_at: Optional[str] = None
    """Time by which the allocation must have ended."""
    dependencies: list[DependencyView] = _field(default_factory=list)
    """Allocations that must end first."""
    element: Optional[ElementView] = None
    """Array of which this allocation is an element."""
    element_counts: Optional[ElementCountsView] = None
    """Array elements by state."""
    ended_at: Optional[str] = None
    """Time at which the allocation ended."""
    ends_at: Optional[str] = None
    """End of the walltime, by the nodes' clocks, while the processes run; absent when unbounded."""
    kill_at: Optional[str] = None
    """Time at which SIGKILL is due: the walltime has ended, or the allocation is being stopped,
    and processes still run."""
    mutex: Optional[str] = None
    """Mutex: of the same user's allocations with this mutex, one is eligible at a time."""
    name: Optional[str] = None
    """Free-text name."""
    node_problems: list[NodeProblemView] = _field(default_factory=list)
    """Nodes of the allocation that are out of order, out of service or unknown, while it holds
    them; worst first."""
    output: Optional[OutputView] = None
    """Places of the output; only in the answer for a single allocation, for a caller that may
    see the workload, while the records that name the files can be read."""
    preempted: Optional[int] = None
    """Number of preemptions."""
    reason: Optional[str] = None
    """Why the allocation waits, as of the last scheduling cycle; or, while it holds nodes, what
    is wrong: nodes that do not answer or are faulty, a time limit that was reached, and the due
    SIGKILL."""
    reservation: Optional[str] = None
    """Reservation that provides the nodes."""
    scale: Optional[ScaleBody] = None
    """Scaling of the number of nodes by a metric."""
    started_at: Optional[str] = None
    """Time at which the allocation first began to run."""
    stop: Optional[str] = None
    """Why the allocation is being, or was, stopped."""
    storage_gb_s: dict[str, float] = _field(default_factory=dict)
    """Storage bandwidth that the allocation needs while it runs, GB/s by storage system."""
    time_left: Optional[str] = None
    """Time from this answer until `ends_at`, rounded, such as `2 h`; `0 s` after the end."""
    waits_for: Optional[WaitsForView] = None
    """Dependencies and mutex holder that the allocation waits for, while it is blocked."""
    walltime: Optional[str] = None
    """Longest run time; absent when unbounded."""
    workload: Optional[WorkloadView] = None
    """Workload; absent when the caller may not see it."""


@dataclass(frozen=True, repr=False)
class AuditHeadView(Model):
    """End of the audit, the newest signed head, and the trusted CAs."""

    authorities: list[AuthorityView]
    """CAs that are trusted now."""
    cluster: str
    """Name of the cluster."""
    hash: str
    """Hash of the last entry, 64 hex digits."""
    number: int
    """Number of the last entry; 0 if there is none."""
    signed_head: int
    """Entry number of the newest signed head; 0 if there is none."""


@dataclass(frozen=True, repr=False)
class AuditView(Model):
    """Audit entry."""

    action: dict[str, Any]
    """Action: its name and its fields."""
    at: str
    """State time of the entry."""
    by: str
    """Principal that acted."""
    hash: str
    """blake3 over the previous hash and this entry, 64 hex digits."""
    number: int
    """Audit sequence number, starting at 1, without gaps."""
    privilege: str
    """Role in which the principal acted: `user`, `operator`, `admin`, `service` or `accounting`."""
    revision: int
    """Revision that wrote the entry."""
    summary: str
    """The action as a sentence."""


@dataclass(frozen=True, repr=False)
class AuthorityView(Model):
    """CA as shown."""

    certificate: str
    """CA certificate, PEM."""
    phase: str
    """`issuing`, or `trusted`: certificates that it signed stay valid, and new ones come from
    another CA."""
    pin: str
    """blake3 of the CA certificate, 64 hex digits."""
    since: str
    """Time at which the CA was added."""
    subject: str
    """Subject name in the CA certificate."""
    certificates: Optional[int] = None
    """Number of members with a newest certificate that this CA issued and that is still valid,
    derived from issue times; absent if unknown."""
    expires_at: Optional[str] = None
    """Expiry time of the CA certificate; absent if the certificate cannot be read."""


@dataclass(frozen=True, repr=False)
class BaselineComparisonView(Model):
    """Nodes that a baseline applies to, by conformance. Nodes are hostlists."""

    compared: str
    """Nodes that the baseline applies to."""
    compared_count: int
    """Number of nodes that the baseline applies to."""
    conform: str
    """Nodes that conform."""
    conform_count: int
    """Number of nodes that conform."""
    deprioritise: str
    """Drifting nodes that the policy deprioritises, so that they get new allocations last."""
    differ: str
    """Nodes that drift."""
    differ_count: int
    """Number of nodes that drift."""
    drain: str
    """Drifting nodes that the policy drains."""
    unknown: str
    """Nodes without known drift for which a required value is unknown."""
    unknown_count: int
    """Number of nodes with an unknown value and no known drift."""
    warnings: list[str]
    """Node names, cohort parts and keys that match no node: of nodes not registered yet, or
    misspelt."""


@dataclass(frozen=True, repr=False)
class BaselineResult(Model):
    """Version in force after a change."""

    classes: list[str]
    """Classes that the baseline covers."""
    comparison: BaselineComparisonView
    """Nodes that the baseline applies to, and whether they conform, at this moment."""
    dry_run: bool
    """Whether the request was a dry run, which changes nothing."""
    name: str
    """Baseline name."""
    revision: int
    """Revision that set the version, or the present revision if it was in force already."""
    version: int
    """Baseline version."""


@dataclass(frozen=True, repr=False)
class BaselineView(Model):
    """Baseline as shown."""

    at: str
    """Time at which this version was set."""
    by: str
    """Principal that set this version."""
    bytes: int
    """Size, bytes; one baseline may have 256 KiB."""
    classes: dict[str, ClassRuleView]
    """Rules by class."""
    description: str
    """Free-text description."""
    name: str
    """Baseline name."""
    nodes: str
    """Nodes that the baseline names, as a hostlist."""
    version: int
    """Version shown."""
    cohort: Optional[CohortSelectorBody] = None
    """Cohort that the baseline applies to."""
    compared: Optional[str] = None
    """Nodes that this version applies to now, as a hostlist. This and the next three fields are
    left out if the version is not in force: not yet, or no longer."""
    compared_count: Optional[int] = None
    """Number of nodes that this version applies to now."""
    differ: Optional[str] = None
    """Nodes that drift, as a hostlist."""
    unknown: Optional[str] = None
    """Nodes with an unknown value, as a hostlist."""
    versions: list[VersionView] = _field(default_factory=list)
    """Stored versions, oldest first; only in the answer for a single baseline."""


@dataclass(frozen=True, repr=False)
class BmcReadResult(Model):
    """Result of reading a BMC on request."""

    differs: list[str]
    """Classes with changed BMC values. A change counts after two equal readings."""
    error: Optional[str] = None
    """Why nothing was read; absent if the reading succeeded."""


@dataclass(frozen=True, repr=False)
class BrakeState(Model):
    """Brake on automatic draining."""

    held: Optional[BrakeView] = None
    """Present while automatic draining is stopped; otherwise left out."""


@dataclass(frozen=True, repr=False)
class BrakeView(Model):
    """Stop of automatic draining, because too many nodes would have been drained in a short
    time."""

    by: str
    """Control that stopped automatic draining."""
    reason: str
    """Drains that the brake prevented."""
    since: str
    """Time at which automatic draining stopped."""


@dataclass(frozen=True, repr=False)
class CertificateView(Model):
    """Certificates of one member, as far as the quorum has records or the member is connected."""

    name: str
    """Name of the member; of the control for `https`."""
    role: str
    """`agent`, `control` or `quorum`: the certificate of a member in the mesh. `https`: that of
    a control's TLS port."""
    state: str
    """State of the newest certificate."""
    expires_at: Optional[str] = None
    """Expiry time of the newest certificate."""
    issued_at: Optional[str] = None
    """Issue time of the newest certificate; absent if it is unknown."""
    revoked: Optional[RevocationView] = None
    """Last revocation. A newer certificate may be valid in spite of it."""


@dataclass(frozen=True, repr=False)
class ChangeResult(Model):
    """Answer to a change that creates nothing."""

    revision: int
    """Revision of the change."""


@dataclass(frozen=True, repr=False)
class Changes(Model):
    """All changes of one revision."""

    at: str
    """State time of the revision."""
    changes: list[Change]
    """Changes in order."""
    revision: int
    """Revision of the changes; pass it as `since` to resume after them."""


@dataclass(frozen=True, repr=False)
class ChangesView(Model):
    """Changes over the fleet."""

    changes: list[FleetChangeView]
    """Changes: known differences first, then by number of nodes (most first), class and key."""
    left_out: int
    """Number of entries that list only part of their keys; the history of the node has the rest."""
    new: str
    """Nodes that were read for the first time in the range, as a hostlist."""
    since: str
    """Start of the range, RFC 3339."""
    reaches_back_to: Optional[str] = None
    """Present if the range has more entries than one answer holds. Entries before this time, RFC
    3339, were not searched; the nodes' own histories have them."""


@dataclass(frozen=True, repr=False)
class CheckpointBody(Model):
    """Checkpoint mode, trigger and directory of a job."""

    mode: str
    """Way in which Lattice requests a checkpoint: `signal` (SIGUSR1), `shared_memory` or
    `callback` (gRPC)."""
    directory: Optional[str] = None
    """Target directory, an absolute path. Left out: the directory of the site."""
    trigger: Optional[str] = None
    """Trigger of checkpoints: `automatic` (when a checkpoint is worth its cost, and on request;
    the default) or `manual` (on request, and for preemption)."""


@dataclass(frozen=True, repr=False)
class CheckpointInProgressView(Model):
    """Job checkpoint that is being written."""

    directory: str
    """Target directory."""
    extended: bool
    """Whether the deadline was extended once."""
    number: int
    """Checkpoint number."""
    ranks_written: int
    """Ranks that have written their part."""
    requested_at: str
    """Time of the request."""
    times_out_at: str
    """Deadline, after which the checkpoint is abandoned."""
    release_reason: Optional[str] = None
    """Why the allocation releases its nodes after the checkpoint; absent if the allocation keeps
    running."""


@dataclass(frozen=True, repr=False)
class CheckpointSettingsView(Model):
    """Job checkpoints: when they are written, and how long one may take."""

    max_deferral_count: int
    """Number of times that a job may defer a checkpoint. Default: 3."""
    max_deferral_s: float
    """Total time by which a job may defer a checkpoint, seconds. Default: 300."""
    max_interval_s: float
    """Maximum time since the last checkpoint or the start, regardless of cost, seconds. Default:
    21600."""
    min_interval_s: float
    """Minimum time since the last checkpoint or the start, seconds. Default: 300."""
    sensitive_max_interval_s: float
    """`max_interval_s` for sensitive jobs, seconds. Default: 3600."""
    sensitive_min_interval_s: float
    """`min_interval_s` for sensitive jobs, seconds. Default: 600."""
    sensitive_timeout_s: float
    """`timeout_s` for sensitive jobs, seconds. Default: 900."""
    timeout_s: float
    """Time that a checkpoint may take before it is extended or abandoned, seconds. Default: 600."""


@dataclass(frozen=True, repr=False)
class CheckpointsView(Model):
    """Job checkpoints of an allocation."""

    failed: int
    """Checkpoints that failed."""
    requested: int
    """Checkpoints requested."""
    in_progress: Optional[CheckpointInProgressView] = None
    """Checkpoint that is being written."""
    last: Optional[SavedCheckpointView] = None
    """Newest complete checkpoint."""
    last_error: Optional[str] = None
    """Why the last failed checkpoint failed; absent for callers without access to the workload,
    since the reason may quote it."""


@dataclass(frozen=True, repr=False)
class ClaimResult(Model):
    """Result of a claim."""

    nodes: str
    """Claimed nodes, as a hostlist."""
    revision: int
    """Revision of the change."""


@dataclass(frozen=True, repr=False)
class ClaimView(Model):
    """Node claim as shown."""

    project: str
    """Project for limits and usage of the node."""
    since: str
    """Time of the claim."""
    state: str
    """`claimed`: the node takes sensitive allocations of its user; `releasing`: released and not
    wiped yet; `unclean`: the wipe failed."""
    user: str
    """User that claimed the node."""
    purpose: Optional[str] = None
    """Free-text purpose, given by the user."""
    reason: Optional[str] = None
    """Why the wipe failed."""


@dataclass(frozen=True, repr=False)
class ClassRuleView(Model):
    """Rule of a baseline for one conformance class."""

    kind: str
    """`exact` or `partial`."""
    policy: str
    """`warn`, `deprioritise` or `drain`."""
    sensitive: str
    """`strict` or `ignore`."""
    digest: Optional[str] = None
    """Expected digest of an exact rule."""
    keys: dict[str, str] = _field(default_factory=dict)
    """Expected value of each key, as shown. Left out of lists for exact rules."""
    schema: Optional[int] = None
    """Schema version of the keys in that digest."""
    unreadable: Optional[str] = None
    """Why this control cannot read the rule, and so applies it to no node."""


@dataclass(frozen=True, repr=False)
class ClassView(Model):
    """State of one conformance class of a node."""

    state: str
    """`complete`, `incomplete` (a required key is unknown) or `disabled`."""
    complete_until: Optional[str] = None
    """Time at which the class ceased to be complete, RFC 3339."""
    digest: Optional[str] = None
    """Class digest, 64 hex digits; absent unless complete."""
    last_digest: Optional[str] = None
    """For an incomplete class, the digest when the class was last complete; only in the answer
    for a single node, if the history has it. The present digest is unknown."""


@dataclass(frozen=True, repr=False)
class CohortSelectorBody(Model):
    """Cohort selector: every field that is given must equal that of the node."""

    gpu_count: Optional[int] = None
    """Number of GPUs; 0 for nodes without GPUs."""
    gpu_model: Optional[str] = None
    """GPU model."""
    product: Optional[str] = None
    """Product name."""
    vendor: Optional[str] = None
    """System vendor."""


@dataclass(frozen=True, repr=False)
class CompactedEvents(Model):
    """The requested revision is no longer kept: read the lists again and resume from `oldest`."""

    oldest: int
    """Oldest revision to resume from."""


@dataclass(frozen=True, repr=False)
class ConstraintsBody(Model):
    """Node constraints; a field left out means "any"."""

    exclude: Optional[str] = None
    """Excluded nodes, as a hostlist."""
    features: list[str] = _field(default_factory=list)
    """Features that every node must have."""
    gpu_models: list[str] = _field(default_factory=list)
    """Acceptable GPU models, any one of them, by words of the driver's name, ignoring case:
    `h100`; `A10` matches no A100. One text may name several: `V100M16|V100M32`."""
    gpus_per_node: Optional[int] = None
    """Minimum number of GPUs per node. On a node with more GPUs the job gets exactly this
    number, those that are connected best."""
    memory_bytes: Optional[int] = None
    """Minimum memory per node, bytes."""
    nodelist: Optional[str] = None
    """Allowed nodes, as a hostlist."""
    spread: Optional[str] = None
    """Layout over topology groups: `tight` (default), `spread` or `any`."""


@dataclass(frozen=True, repr=False)
class DagDryRunMember(Model):
    """Member that would be submitted, as parsed."""

    name: str
    """Member name."""
    nodes: int
    """Number of nodes of the member, or of each element of an array."""
    project: str
    """Project for limits and usage."""
    vcluster: str
    """vCluster that would schedule the member."""
    after: list[DagEdgeView] = _field(default_factory=list)
    """Members that must end first."""
    elements: Optional[int] = None
    """Number of elements; only for an array."""
    walltime: Optional[str] = None
    """Walltime, such as `1h30m`; absent: unbounded."""


@dataclass(frozen=True, repr=False)
class DagDryRunResult(Model):
    """Answer to a dry run of a submit: the DAG would be accepted, and nothing was changed."""

    dry_run: bool
    """Always true."""
    members: list[DagDryRunMember]
    """Members that would be submitted, in this order."""
    revision: int
    """Revision at which the DAG was checked."""


@dataclass(frozen=True, repr=False)
class DagEdgeView(Model):
    """Dependency of a DAG member."""

    condition: str
    """Required end of that member: `success`, `failure`, `any` or `corresponding`."""
    member: str
    """Member that must end first."""


@dataclass(frozen=True, repr=False)
class DagMemberView(Model):
    """DAG member as shown."""

    allocation: int
    """Allocation number of the member."""
    name: str
    """Member name."""
    after: list[DagEdgeView] = _field(default_factory=list)
    """Members that must end first."""
    state: Optional[str] = None
    """State of the allocation; absent if its record is no longer kept."""
    stop: Optional[str] = None
    """Why the allocation is being, or was, stopped."""


@dataclass(frozen=True, repr=False)
class DagPlaceView(Model):
    """Position of an allocation in a DAG."""

    dag: int
    """DAG number."""
    member: str
    """Member name in the DAG."""


@dataclass(frozen=True, repr=False)
class DagSubmitResult(Model):
    """Answer to the submit of a DAG."""

    id: int
    """DAG number."""
    revision: int
    """Revision at which the DAG was created."""


@dataclass(frozen=True, repr=False)
class DagView(Model):
    """DAG as shown."""

    id: int
    """DAG number. The allocation numbers of the members follow it."""
    name: str
    """Free-text name; may be empty."""
    project: str
    """Project of the first member."""
    revision: int
    """Revision of the last change."""
    size: int
    """Number of members."""
    state: str
    """`running`, `completed`, `failed` or `cancelled`. `failed`: a member failed, missed its
    deadline or had an unmet dependency, and no dependent member ran on that failure."""
    submitted_at: str
    """Time of the submit."""
    unfinished: int
    """Members that have not ended."""
    user: str
    """User that submitted the DAG."""
    cancelled_by: Optional[str] = None
    """User that cancelled the DAG or one of its members."""
    ended_at: Optional[str] = None
    """Time at which the last member ended."""
    failed: Optional[str] = None
    """First member that counts as a failure of the DAG; see `state`."""
    members: list[DagMemberView] = _field(default_factory=list)
    """Members in the order of submission; left out of lists."""


@dataclass(frozen=True, repr=False)
class DependencyView(Model):
    """Dependency on another allocation, as shown."""

    condition: str
    """Required end of the other allocation: `success`, `failure`, `any` or `corresponding`."""
    on: int
    """Allocation that must end first."""
    element: Optional[ElementView] = None
    """Array of which that allocation is an element."""


@dataclass(frozen=True, repr=False)
class DiffView(Model):
    """Key-by-key comparison: of two nodes or groups, of a node with its cohort's majority or
    with its earlier state, or of a baseline with a node or another baseline."""

    differences: list[DifferenceView]
    """Keys that differ, or are unknown on one side."""
    left: str
    """Left side: a node, a node with the time of its earlier state, or a baseline. For a group:
    its digest, its classes, its number of nodes and the node compared."""
    right: str
    """Right side: a node, group or baseline, `majority of the cohort of` and the node, or the
    node with `now`."""


@dataclass(frozen=True, repr=False)
class DifferenceView(Model):
    """Key on which two sides differ, or may differ."""

    class_: str = _field(metadata={"wire": "class"})
    """Conformance class."""
    key: str
    """Key."""
    left: str
    """Value of the left side as shown; states other than a value are in angle brackets."""
    right: str
    """Value of the right side as shown."""
    verdict: str
    """`differs`, or `unknown` if a side is unknown. `moved`, on the key `parts` of a class: both
    sides have the same parts in different places."""


@dataclass(frozen=True, repr=False)
class DiskPart(Model):
    """Identity of the disk in a slot."""

    address: Reading[str]
    """PCI address."""
    name: str
    """Device name in the kernel."""
    serial: Reading[str]
    """Serial number."""
    slot: str
    """Slot name, as in the keys `storage.<slot>`."""
    wwid: Reading[str]
    """World-wide id."""


@dataclass(frozen=True, repr=False)
class DrainResult(Model):
    """Result of a drain."""

    revision: int
    """Revision of the change."""
    force_released_from: Optional[HolderView] = None
    """Attempt from which the node was taken by force."""


@dataclass(frozen=True, repr=False)
class DrainView(Model):
    """Drain reason with its owner."""

    owner: str
    """Owner of the drain reason."""
    reason: str
    """Reason text."""
    since: str
    """Time at which the reason was set."""


@dataclass(frozen=True, repr=False)
class DriftReportView(Model):
    """Drift report. Each key of a node is compared with the node's baseline if the baseline
    covers the key, otherwise with the majority of the node's cohort."""

    drifted: list[DriftView]
    """Drift by node, class and key."""
    no_majority: list[NoMajorityView]
    """Keys without a majority."""
    unknown: list[UnknownView]
    """Classes with unknown conformance."""
    without_reference: str
    """Nodes without a reference (no baseline; cohort unknown or smaller than four), as a
    hostlist."""
    brake: Optional[BrakeView] = None
    """Set while automatic draining is stopped."""
    pending: Optional[str] = None
    """Nodes for which the data needed for a comparison is missing or pending, as a hostlist.
    These nodes are not known to conform."""


@dataclass(frozen=True, repr=False)
class DriftView(Model):
    """Drift of a node in one key."""

    class_: str = _field(metadata={"wire": "class"})
    """Conformance class."""
    expected: str
    """Expected value: of the baseline, or of the cohort's majority."""
    found: str
    """Value of the node."""
    key: str
    """Key, e.g. `nic.0.firmware`."""
    node: str
    """Node name."""
    as_of: Optional[str] = None
    """Set if the node does not answer: the time of the state shown, RFC 3339."""
    baseline: Optional[str] = None
    """Name of the baseline."""
    by: Optional[str] = None
    """Reference: `baseline h100 v3`, or `cohort` if no baseline of the node covers the key."""
    cohort: Optional[str] = None
    """For drift from a cohort: the cohort (vendor, product, GPUs)."""
    cohort_nodes: Optional[int] = None
    """For drift from a cohort: number of nodes with a known value, this node included."""
    majority_nodes: Optional[int] = None
    """For drift from a cohort: number of those nodes with the majority's value."""
    policy: Optional[str] = None
    """Policy: `warn`, `deprioritise` or `drain`."""
    sensitive: Optional[str] = None
    """`strict`: the node gets no new sensitive allocation. `ignore`: the drift has no effect on
    sensitive allocations. Left out for drift from a cohort."""
    since: Optional[str] = None
    """Time at which the key got this value, from the node's history. Without a history line, and
    after the first 500 keys of the report: the time at which the answering control first
    received the node's present record of the class."""
    since_or_before: bool = False
    """Whether the value was already present at the first reading, so that the drift may be
    older."""


@dataclass(frozen=True, repr=False)
class ElementCountsView(Model):
    """Array elements by state."""

    blocked: int
    """Elements that wait for the same index of another array."""
    cancelled: int
    """Elements that were cancelled, before or after they held nodes."""
    completed: int
    """Elements that completed."""
    elements: int
    """All elements."""
    failed: int
    """Elements that failed."""
    pending: int
    """Elements that wait for nodes."""
    running: int
    """Elements that have their own allocation, which has not ended."""


@dataclass(frozen=True, repr=False)
class ElementView(Model):
    """Position of an allocation in a job array."""

    array: int
    """Allocation number of the array."""
    index: int
    """Element index, as in `LATTICE_ARRAY_INDEX`."""


@dataclass(frozen=True, repr=False)
class ExhaustedBudget(Model):
    """Tenant that has used up a budget."""

    admins: list[str]
    """Administrators of the tenant, for notification."""
    budget_used: float
    """Fraction of the budget used, 1 or more."""
    tenant: str
    """Tenant name."""


@dataclass(frozen=True, repr=False)
class ExplanationView(Model):
    """Explanation of an allocation's state."""

    allocation: int
    """Allocation number."""
    state: str
    """State of the allocation."""
    summary: str
    """Summary in one sentence."""
    as_of: Optional[str] = None
    """Time of the scheduling cycle that produced this explanation."""
    blocker: Optional[str] = None
    """Blocking condition, if the allocation waits."""
    element: Optional[ElementView] = None
    """Array of which the allocation is an element."""
    ends_at: Optional[str] = None
    """End of the walltime, by the nodes' clocks, while the processes run; absent when unbounded."""
    estimated_start: Optional[str] = None
    """Estimated start."""
    kill_at: Optional[str] = None
    """Time at which SIGKILL is due: the walltime has ended, or the allocation is being stopped,
    and processes still run."""
    node_problems: list[NodeProblemView] = _field(default_factory=list)
    """Nodes of the allocation that are out of order, out of service or unknown, while it holds
    them; worst first."""
    reserved: Optional[str] = None
    """Nodes that are reserved for the allocation from the estimated start on, as a hostlist."""
    score: Optional[ScoreView] = None
    """Score of the allocation."""
    steps: list[StepView] = _field(default_factory=list)
    """Constraints in the order in which they were applied."""


@dataclass(frozen=True, repr=False)
class FactorView(Model):
    """One of the nine factors of the score."""

    name: str
    """Factor name, equal to the name of its weight."""
    value: float
    """Factor value: 0 to 1; only wait_time exceeds 1."""
    weight: float
    """Weight of the factor in the vCluster."""


@dataclass(frozen=True, repr=False)
class FindingView(Model):
    """Contradiction between two sources that should agree."""

    class_: str = _field(metadata={"wire": "class"})
    """Conformance class of the finding."""
    code: str
    """Stable code, such as `gpu_count_mismatch`."""
    detail: str
    """Free-text description."""


@dataclass(frozen=True, repr=False)
class FleetChangeView(Model):
    """Change that is the same on one or more nodes."""

    causes: dict[str, int]
    """Triggers of the agents' readings, with the number of nodes for each: `boot`, `periodic`, …"""
    class_: str = _field(metadata={"wire": "class"})
    """Conformance class."""
    count: int
    """Number of nodes."""
    first: str
    """Time of the first change, RFC 3339."""
    from_: str = _field(metadata={"wire": "from"})
    """Value before, as shown; states other than a value are in angle brackets."""
    key: str
    """Key, e.g. `nic.0.firmware`."""
    last: str
    """Time of the last change, RFC 3339."""
    nodes: str
    """Nodes with this change, as a hostlist."""
    to: str
    """Value after, as shown."""
    verdict: str
    """`differs`; `unknown` if the value was unreadable before or after, so that a change is not
    certain."""


@dataclass(frozen=True, repr=False)
class GpuPart(Model):
    """Identity of the GPU in a slot."""

    address: Reading[str]
    """PCI address."""
    model: Reading[str]
    """Model."""
    serial: Reading[str]
    """Serial number."""
    slot: int
    """Slot number, as in the keys `gpu.<slot>`."""
    uuid: Reading[str]
    """UUID."""


@dataclass(frozen=True, repr=False)
class GpuPlaceView(Model):
    """Physical position of a GPU."""

    chassis_serial: Reading[str]
    """Serial number of the chassis."""
    gpu: int
    """Slot number of the GPU."""
    host: Reading[int]
    """Host number in the tray."""
    module: Reading[int]
    """Module number on the board."""
    slot: Reading[int]
    """Slot number in the chassis."""
    tray: Reading[int]
    """Tray number."""


@dataclass(frozen=True, repr=False)
class GraphEdgeView(Model):
    """Edge of the graph: a dependency."""

    condition: str
    """Required end of the first member."""
    from_: str = _field(metadata={"wire": "from"})
    """Member that must end first."""
    to: str
    """Member that depends on the first member."""


@dataclass(frozen=True, repr=False)
class GraphNodeView(Model):
    """Node of the graph: a DAG member."""

    allocation: int
    """Allocation number of the member."""
    name: str
    """Member name."""
    state: Optional[str] = None
    """State of the allocation; absent if its record is no longer kept."""


@dataclass(frozen=True, repr=False)
class GraphView(Model):
    """DAG as nodes and edges."""

    edges: list[GraphEdgeView]
    """Edges, from the member that ends first to the member that depends on it."""
    id: int
    """DAG number."""
    name: str
    """Free-text name."""
    nodes: list[GraphNodeView]
    """One node per member."""


@dataclass(frozen=True, repr=False)
class GroupView(Model):
    """Conformance group: nodes that share a digest."""

    class_: str = _field(metadata={"wire": "class"})
    """Conformance class, several classes separated by commas, or `all` for the node fingerprint."""
    count: int
    """Number of members."""
    digest: str
    """Shared digest, 64 hex digits."""
    nodes: str
    """Members of the group, as a hostlist."""
    first_seen: Optional[str] = None
    """Time at which the first member got this digest, from the nodes' histories. The histories
    of at most 500 members are searched, those of the smallest groups first. For the other
    members, and without a history line: the time at which the answering control first received
    the digest."""


@dataclass(frozen=True, repr=False)
class GroupsView(Model):
    """Conformance groups of one scope."""

    groups: list[GroupView]
    """Groups, largest first."""
    unknown: str
    """Nodes with an unknown digest, as a hostlist. An unknown digest is equal to no other."""
    not_read: list[NotReadView] = _field(default_factory=list)
    """Nodes that, by configuration, do not read one of the requested classes."""


@dataclass(frozen=True, repr=False)
class HeadroomLevelView(Model):
    """Level of a `HeadroomView`."""

    counted: UsageView
    """Usage that counts against these limits for a request from the project."""
    limits: LimitsBody
    """Limits of the level."""
    path: str
    """Project or tenant."""
    allocations_left: Optional[int] = None
    """Allocations left under `limits.max_concurrent_allocations`; `null` if the level does not
    limit them."""
    nodes_left: Optional[int] = None
    """Nodes left under `limits.max_nodes`; `null` if the level does not limit nodes."""


@dataclass(frozen=True, repr=False)
class HeadroomView(Model):
    """Headroom of a project: resources that the project could still get now, by its limits."""

    levels: list[HeadroomLevelView]
    """Levels that count, the project first."""
    path: str
    """Project path."""
    revision: int
    """Revision that the headroom is based on."""
    allocations: Optional[int] = None
    """Number of further allocations that could hold nodes; `null` if no level limits them."""
    nodes: Optional[int] = None
    """Maximum number of nodes of one more allocation; 0 if none fits, `null` if no level limits
    nodes."""


@dataclass(frozen=True, repr=False)
class HealthView(Model):
    """Health verdict of a node."""

    verdict: str
    """`healthy`, `degraded`, `faulty` or `unknown`."""
    reasons: list[str] = _field(default_factory=list)
    """Stable reason codes."""


@dataclass(frozen=True, repr=False)
class HistoryEntryView(Model):
    """Line of a node's history: a change of one class, or another event."""

    at: str
    """Time of the event, RFC 3339. For an event that occurred several times, the last time."""
    kind: str
    """Kind of the line; newer agents may report more kinds. - `change`: a class changed. -
    `boot`: the host booted. - `agent`: the agent started or ended. - `driver`, `device`: a
    kernel module or a device was added or removed. - `xid`: XID, or an event of AMD's GPU driver
    or of a NIC driver. - `health`: a reason of the checks began, changed or ended; `cleared`: an
    operator cleared a reason. - `drain`, `lifecycle`, `liveness`: changes that this control
    observed. - `audit`: audit entries about the node; `bmc`: ended tasks and log entries of its
    BMC. Both are shown only to callers that may read the audit."""
    number: int
    """Line number; it increases with each line of the node that this control receives. Lines are
    sorted by time, so a line that arrives late is placed at the time of the event."""
    what: str
    """Description in one line."""
    boot_id: Optional[str] = None
    """Boot id of the host when the agent wrote the line; empty for other sources."""
    cause: Optional[str] = None
    """For a change, the trigger of the reading by the agent or control: `first`, `boot`,
    `driver_load`, `device_event`, `operator`, `agent_start`, `periodic`. The trigger need not be
    the cause of the change."""
    changes: list[KeyChangeView] = _field(default_factory=list)
    """Changed keys, sorted. Empty for a class that was read for the first time."""
    class_: Optional[str] = _field(default=None, metadata={"wire": "class"})
    """For a change, the class."""
    event: Optional[NodeEventView] = None
    """Event; present for every kind except `change`."""
    from_: Optional[str] = _field(default=None, metadata={"wire": "from"})
    """For a change, the state published before: `<schema>:<digest>`, `incomplete`, `disabled`.
    Absent at the first reading."""
    more: Optional[int] = None
    """Number of changed keys that are not listed."""
    occasion: Optional[str] = None
    """Description of the trigger, with the module, the device or the operator."""
    source: Optional[str] = None
    """Source of the line: `agent` (its journal), `bmc` (read by this control) or `control`."""
    to: Optional[str] = None
    """For a change, the state published after it."""


@dataclass(frozen=True, repr=False)
class HolderView(Model):
    """Attempt that holds a node."""

    allocation: int
    """Allocation number."""
    attempt: int
    """Attempt number."""
    element: Optional[ElementView] = None
    """Array of which the allocation is an element."""


@dataclass(frozen=True, repr=False)
class InventoryIdentity(Model):
    """Identity of the node and of its parts."""

    board_serial: Reading[str]
    """Serial number of the board."""
    boot_id: Reading[str]
    """Boot id."""
    chassis_serial: Reading[str]
    """Serial number of the chassis."""
    dimm_serials: list[Reading[str]]
    """Serial numbers of the memory modules."""
    disks: list[DiskPart]
    """Disks of the node."""
    gpu_count: Reading[int]
    """Number of GPUs."""
    gpu_model: Reading[str]
    """GPU model, if all GPUs share one."""
    gpus: list[GpuPart]
    """GPUs of the node."""
    hostname: Reading[str]
    """Host name."""
    nics: list[NicPart]
    """NICs of the node."""
    product: Reading[str]
    """Product name."""
    product_serial: Reading[str]
    """Serial number of the system."""
    product_uuid: Reading[str]
    """UUID of the system."""
    vendor: Reading[str]
    """System vendor."""


@dataclass(frozen=True, repr=False)
class InventoryPower(Model):
    """Power draw and power limit of the node."""

    draw: Reading[int]
    """Power draw, milliwatts."""
    exception_action: Reading[str]
    """Action of the BMC when the limit cannot be kept."""
    limit: Reading[int]
    """Power limit, milliwatts."""
    limit_max: Reading[int]
    """Highest limit that may be set, milliwatts."""
    limit_min: Reading[int]
    """Lowest limit that may be set, milliwatts."""
    limit_state: str
    """`absent`, `uncapped`, `set` or `unknown`."""
    source: str
    """Source of the power draw."""


@dataclass(frozen=True, repr=False)
class InventoryResources(Model):
    """Properties that placement may require. An unknown value is never zero."""

    cores: Reading[int]
    """Physical cores."""
    features: list[str]
    """Features that were detected. A feature that is not listed may be absent or unknown."""
    gpu_count: Reading[int]
    """Number of GPUs that the driver can use; absent on a node without any."""
    gpu_memory_bytes: Reading[int]
    """Memory of the smallest GPU, bytes."""
    gpu_model: Reading[str]
    """GPU model, if all GPUs share one."""
    memory_bytes: Reading[int]
    """Memory that the kernel can use, bytes."""
    numa_nodes: Reading[int]
    """NUMA nodes."""
    rdma_count: Reading[int]
    """RDMA-capable network functions."""
    sockets: Reading[int]
    """Processor packages."""
    threads: Reading[int]
    """Hardware threads online."""


@dataclass(frozen=True, repr=False)
class InventoryTopology(Model):
    """Topology of the devices, as read from the machine."""

    fabric: Reading[str]
    """NVLink fabric that the node belongs to."""
    nvlinks: list[NvlinkView]
    """NVLinks by peer."""
    pairs: list[PairView]
    """Distances between devices."""
    places: list[GpuPlaceView]
    """Physical position of each GPU."""


@dataclass(frozen=True, repr=False)
class InventoryView(Model):
    """Inventory: result of one pass over a node."""

    findings: list[FindingView]
    """Contradictions between sources."""
    identity: InventoryIdentity
    """Names, serial numbers, addresses: never compared."""
    probes: list[ProbeView]
    """Outcome of each probe."""
    records: dict[str, RecordView]
    """One record for each class."""
    resources: InventoryResources
    """Properties that placement may require."""
    stuck: dict[str, int]
    """Number of processes of earlier probes that could not be killed and still exist, by probe."""
    topology: InventoryTopology
    """Topology of the node's devices."""
    vitals: dict[str, Reading[Union[bool, int, str, list[str]]]]
    """Live values, by key."""
    power: Optional[InventoryPower] = None
    """Power draw, from the best available source; null if nothing measures it."""


@dataclass(frozen=True, repr=False)
class KeyChangeView(Model):
    """Change of one key."""

    from_: str = _field(metadata={"wire": "from"})
    """Value before, as shown; states other than a value are in angle brackets."""
    key: str
    """Key, e.g. `nic.0.firmware`."""
    to: str
    """Value after, as shown."""


@dataclass(frozen=True, repr=False)
class LimitsBody(Model):
    """Limits of a project; `null` is unlimited."""

    max_concurrent_allocations: Optional[int] = None
    """Allocations that hold nodes at the same time."""
    max_nodes: Optional[int] = None
    """Nodes held at the same time by the project and everything below it."""


@dataclass(frozen=True, repr=False)
class MissingRightView(Model):
    """Right in the accounting system that the token's user lacks."""

    effect: str
    """What does not work without it."""
    next_step: str
    """Step by which an administrator of the accounting system grants it."""
    places: list[str]
    """Where it is missing: `vCluster batch` for its offering, `tenant physics` for its customer."""
    reason: str
    """Last rejected request, with the reason that the accounting system gave."""
    right: str
    """Name of the permission or role in the accounting system, and where it is granted."""
    since: str
    """Time of the first rejection."""
    waiting: int
    """Number of requests that wait for it."""


@dataclass(frozen=True, repr=False)
class MovementView(Model):
    """Movement settings of a vCluster that are in force."""

    checkpoint: CheckpointSettingsView
    """Job checkpoints: when they are written, and how long one may take."""
    preemption: PreemptionView
    """Preemption for jobs of a higher class."""
    scaling: ScalingView
    """Scaling: how quickly services follow their metrics."""
    set: list[str]
    """Settings that have been set, such as `preemption.patience_s`. All others have their
    default."""
    sharing: SharingView
    """Lending and borrowing of nodes."""
    unread: list[str]
    """Stored settings that are inconsistent, with the reason; the defaults of these settings
    apply instead."""


@dataclass(frozen=True, repr=False)
class NicPart(Model):
    """Identity of the NIC in a slot."""

    address: Reading[str]
    """PCI address."""
    interfaces: list[str]
    """Network interfaces."""
    macs: list[Reading[str]]
    """MAC addresses, in the order of the interfaces."""
    nid: Reading[str]
    """Fabric address of a Slingshot NIC."""
    node_guid: Reading[str]
    """Node GUID of an RDMA device."""
    rdma: list[str]
    """RDMA devices."""
    serial: Reading[str]
    """Serial number."""
    slot: int
    """Slot number, as in the keys `nic.<slot>`."""


@dataclass(frozen=True, repr=False)
class NoMajorityView(Model):
    """Key on which a cohort has no majority, so that no node counts as drifted from the cohort."""

    class_: str = _field(metadata={"wire": "class"})
    """Conformance class."""
    cohort: str
    """Cohort: vendor, product, GPUs."""
    key: str
    """Key."""
    values: list[ValueWithNodes]
    """Each value with its nodes."""


@dataclass(frozen=True, repr=False)
class NodeEventView(Model):
    """Event fields. The kind of the line determines which of them are present."""

    action: Optional[str] = None
    """Recommended action: `none`, `restart_application`, `reset_gpu`, `reboot`, `power_cycle`,
    `update`, `inspect`."""
    address: Optional[str] = None
    """PCI address of a GPU or NIC."""
    bmc_time: Optional[str] = None
    """Time of the event by the BMC's clock, RFC 3339. If that clock cannot be right, the line is
    placed at `read_at`."""
    by: Optional[str] = None
    """Owner of the drain, user that cleared the reason, or principal of the audit entry."""
    code: Optional[str] = None
    """Stable code: `gpu.xid.79`, `gpu.amd.fatal`, the name of a check; the id of a BMC message."""
    count: Optional[int] = None
    """Number of occurrences that the line stands for, if there is more than one."""
    detail: Optional[str] = None
    """Detail: evidence, a reason, a version, the previous boot."""
    entity: Optional[str] = None
    """Affected part: `gpu.3`, a kernel module, a device; the name of a BMC task."""
    first_at: Optional[str] = None
    """Time of the first occurrence, RFC 3339; for a boot, the start of the kernel; for a BMC
    task, its start."""
    late: bool = False
    """Whether the event may be older than the line's time, because this control was not
    observing."""
    left_out: Optional[int] = None
    """Number of preceding events of this kind that were not recorded, because there were too
    many."""
    observe_only: bool = False
    """Whether the reason is only observed and does not count in the health verdict."""
    read_at: Optional[str] = None
    """Time at which this control read the event from the BMC, RFC 3339."""
    severity: Optional[str] = None
    """`inform`, `degraded`, `faulty`; from a BMC, in Redfish terms: `ok`, `warning`, `critical`."""
    source: Optional[str] = None
    """Source of an XID or another driver event: `nvml`, `kernel_log`, `both`; name of the BMC
    log, or `tasks`."""
    state: Optional[str] = None
    """New state, depending on the kind of the line. - Health reason: `began`, `changed` or
    `ended`. - Drain: `set`, `changed` or `cleared`. - Liveness: `unreachable`, `alive`, or
    `suspect` for a past period as suspect. - Agent: `stopped`. - Lifecycle: the new lifecycle. -
    Audit entry: the action. - BMC task: the result: `completed`, `exception`, `killed`,
    `cancelled` or `failed`."""
    xid: Optional[int] = None
    """XID number."""


@dataclass(frozen=True, repr=False)
class NodeHealthView(Model):
    """Health of a node: results of its checks, read during this request, and of its BMC."""

    cleared: int
    """Number of reasons that this request cleared."""
    node: str
    """Node name."""
    reasons: list[ReasonView]
    """Health reasons, worst first."""
    table: str
    """Name of the check table that applies to the node, with a trailing `+` if the site changed
    it. Empty if the agent does not answer."""
    agent_error: Optional[str] = None
    """Why the agent returned nothing. The reasons are then those of the BMC and, if the node
    does not answer, those of the last pass that this control received (`as_of`)."""
    as_of: Optional[str] = None
    """Time at which the node was last present, RFC 3339. Set only if the agent does not answer
    and the reasons come from the last pass that this control received."""
    bmc_read_at: Optional[str] = None
    """Time at which the BMC was last read, RFC 3339; absent if this control does not read it."""


@dataclass(frozen=True, repr=False)
class NodeProblemView(Model):
    """Nodes of an allocation with the same problem."""

    nodes: str
    """Nodes, as a hostlist."""
    status: str
    """Combined status of the nodes, such as `unreachable`, `suspect`, `faulty` or `draining`."""
    reason: Optional[str] = None
    """Reason for the status, if it is known."""


@dataclass(frozen=True, repr=False)
class NodeView(Model):
    """Node as shown."""

    classes: dict[str, ClassView]
    """State of each class."""
    drain: list[DrainView]
    """Open drain reasons."""
    health: HealthView
    """Health verdict of the checks."""
    lifecycle: str
    """Intent: `joining`, `ready`, `draining`, `drained`, `quarantined` or `retired`;
    `unregistered` for a node that gossips but is not registered."""
    liveness: str
    """`alive`, `suspect`, `unreachable` or `unknown`."""
    name: str
    """Node name."""
    resources: ResourcesView
    """Properties that placement may require."""
    revision: int
    """Revision of the last change of the replicated record; 0 for a node that is not registered."""
    vcluster: str
    """vCluster that uses the node."""
    agent_version: Optional[str] = None
    """Version of the agent."""
    attestation_fault: Optional[str] = None
    """Why the node gets no sensitive allocation: its signed attestation contradicts its gossip."""
    boot_id: Optional[str] = None
    """Boot id of the host."""
    cell: Optional[str] = None
    """Gossip cell."""
    certificate: Optional[CertificateView] = None
    """Certificate of the node; only in the answer for a single node, for operators, while the
    quorum answers."""
    claim: Optional[ClaimView] = None
    """Node claim: a claimed node takes only sensitive allocations of its user."""
    drifted_keys: Optional[int] = None
    """Number of keys that differ from the baseline or, without a baseline, from the cohort's
    majority. Left out, not zero, if the node was not compared or has no reference, or if nothing
    differs and a class is unknown."""
    fingerprint: Optional[str] = None
    """Node fingerprint, 64 hex digits; absent while a class is incomplete or missing."""
    group: Optional[str] = None
    """Topology (dragonfly) group."""
    holder: Optional[HolderView] = None
    """Attempt that holds the node."""
    last_seen: Optional[str] = None
    """Time of the last answer."""
    lent_by: Optional[str] = None
    """vCluster that the node belongs to, while another one borrows it."""
    liveness_reason: Optional[str] = None
    """Reason for the liveness, if it is known."""
    power: Optional[PowerView] = None
    """Power draw and limit, read from the BMC. If control does not read the BMC, the agent's own
    measurement, only in the answer for a single node; else absent."""
    status: Optional[str] = None
    """Combined status, the worst of liveness, health, lifecycle, claim and use. From worst to
    best: `unreachable`, `suspect`, `faulty`, `quarantined`, `unclean`, `drained`, `draining`,
    `unregistered`, `joining`, `unknown`, `degraded`, `releasing`, `allocated`, `claimed`,
    `ready`; `retired` replaces all others."""


@dataclass(frozen=True, repr=False)
class NotReadView(Model):
    """Nodes that do not read a class, by configuration."""

    nodes: str
    """Nodes, as a hostlist."""
    why: str
    """Why the class is not read: `no BMC configured` or `disabled on the node`."""


@dataclass(frozen=True, repr=False)
class NvlinkView(Model):
    """NVLinks of a GPU to one peer."""

    gpu: int
    """Slot number of the GPU."""
    links: int
    """Number of links."""
    to: Reading[str]
    """Peer device."""


@dataclass(frozen=True, repr=False)
class ObservedChanges(Model):
    """Nodes with a change of observed data, such as liveness, health, digests or drift;
    allocations with a changed reason to wait; and tenants that have used up a budget."""

    exhausted: list[ExhaustedBudget] = _field(default_factory=list)
    """Tenants that have used up a budget: their pending allocations now rank behind those of
    other tenants, and running allocations continue."""
    nodes: list[NodeView] = _field(default_factory=list)
    """Nodes as observed now."""
    waiting: list[WaitingAllocation] = _field(default_factory=list)
    """Allocations with their reason to wait."""


@dataclass(frozen=True, repr=False)
class OutlookView(Model):
    """Result of the next scheduling cycle for the request, in the present state of the cluster."""

    starts_now: bool
    """Whether the allocation would start at once."""
    summary: str
    """Summary in one sentence."""
    explanation: Optional[ExplanationView] = None
    """Why the allocation would wait, in the form for a waiting allocation; the allocation number
    is 0."""
    groups: list[str] = _field(default_factory=list)
    """Topology groups of these nodes."""
    nodes: Optional[str] = None
    """Nodes that the allocation would start on, as a hostlist."""
    score: Optional[ScoreView] = None
    """Score, with the topology and conformance factors of these nodes."""
    span: Optional[int] = None
    """Number of topology groups; each node without a known group counts as one."""


@dataclass(frozen=True, repr=False)
class OutputPlaceView(Model):
    """Place of one output stream: a file of the user, or the nodes of the allocation."""

    file: Optional[str] = None
    """File of the user; relative paths are below the working directory. Allocation, array and
    index are filled in; `%r` and `%n` remain if the allocation has several ranks. Absent: the
    nodes keep the stream, readable as logs."""
    kept_for: Optional[str] = None
    """Time for which the nodes keep the stream after the end of the allocation. Absent for a
    file, and while a node does not report it."""
    kept_until: Optional[str] = None
    """Time until which every node keeps the stream; present with `kept_for` once the allocation
    has ended."""
    nodes: Optional[str] = None
    """Nodes of the current or last attempt, as a hostlist; absent before the first attempt."""


@dataclass(frozen=True, repr=False)
class OutputView(Model):
    """Places of both output streams of an allocation."""

    stderr: OutputPlaceView
    """Place of the standard error."""
    stdout: OutputPlaceView
    """Place of the standard output."""


@dataclass(frozen=True, repr=False)
class PairView(Model):
    """Distance between two devices."""

    a: str
    """First device, such as `gpu.0`."""
    b: str
    """Second device, such as `nic.1`."""
    distance: Reading[str]
    """`PIX`, `PXB`, `PHB`, `NODE` or `SYS`, as in `nvidia-smi topo`."""


@dataclass(frozen=True, repr=False)
class PausedProjectView(Model):
    """Project that starts no new allocation in a vCluster."""

    project: str
    """Project path."""
    vcluster: str
    """vCluster name."""


@dataclass(frozen=True, repr=False)
class PowerView(Model):
    """Power draw and power limit of a node."""

    draw_state: str
    """`present`, or why there is no draw: `absent`, `unsupported`, `denied`, `failed`,
    `timeout`, `disabled`."""
    limit_state: str
    """`absent`: nothing can limit the draw; `uncapped`; `set`; `unknown`."""
    source: str
    """Source of the draw: the resource of the BMC, or the interface that the agent reads
    (`ipmi`, `hwmon/…`); empty if there is none."""
    draw_watts: Optional[int] = None
    """Power draw, rounded to watts; absent if unknown, which is not zero."""
    exception_action: Optional[str] = None
    """Action of the BMC when the limit cannot be kept, as the BMC reports it."""
    limit_max_watts: Optional[int] = None
    """Highest limit that may be set, watts."""
    limit_min_watts: Optional[int] = None
    """Lowest limit that may be set, watts."""
    limit_watts: Optional[int] = None
    """Power limit, watts; only with `limit_state` `set`."""
    read_at: Optional[str] = None
    """Time of the BMC's last power reading, RFC 3339. Absent if there was none, and for values
    of the agent, which come from its last probe."""
    reason: Optional[str] = None
    """Why the draw is unknown; absent if it is known."""


@dataclass(frozen=True, repr=False)
class PreemptionView(Model):
    """Preemption for jobs of a higher class."""

    enabled: bool
    """Whether preemption is enabled. Default: true."""
    max_victims: int
    """Maximum number of victims per preemptor, 1 to 3. Default: 3."""
    near_completion_threshold_s: float
    """A job with less than this time to its end is not preempted, seconds. Default: 300."""
    only_borrowed: bool
    """Preempt only jobs that hold nothing but borrowed nodes. Default: false; true for services."""
    patience_s: float
    """Minimum time that a job has waited, and is still expected to wait, before it preempts,
    seconds. Default: 60."""
    thrash_count: int
    """A job that was preempted this often counts as one class higher; 0: never. Default: 3."""
    thrash_interval_s: float
    """A job that was preempted or resumed within this time is not preempted, seconds. Default:
    900."""


@dataclass(frozen=True, repr=False)
class ProbeView(Model):
    """Outcome of one probe."""

    class_: str = _field(metadata={"wire": "class"})
    """Conformance class that the probe reads."""
    duration_us: int
    """Wall time, microseconds."""
    keys: int
    """Number of keys in the record."""
    name: str
    """Probe name."""
    outcome: str
    """`complete`, `incomplete`, `hung`, `failed` or `disabled`."""
    unknown: int
    """Number of keys that are unknown."""
    loss: Optional[LossView] = None
    """Reason that the probe returned no result; null if it returned one."""
    why: Optional[str] = None
    """Free-text description of `loss`."""


@dataclass(frozen=True, repr=False)
class ProblemDocument(Model):
    """Error in the form of RFC 9457."""

    code: str
    """Stable code, e.g. `limit_exceeded`."""
    detail: str
    """What is wrong and what to do next, with one block per violated limit, the project first."""
    status: int
    """HTTP status."""
    title: str
    """Description of the kind."""
    type: str
    """`urn:lattice:problem:` and the code."""
    field: Optional[str] = None
    """Invalid field, if a field is at fault."""
    violations: list[Violation] = _field(default_factory=list)
    """Violated limits, the project first."""


@dataclass(frozen=True, repr=False)
class ProjectView(Model):
    """Tenant or project as shown."""

    admins: list[str]
    """Administrators."""
    created_at: str
    """Time of creation."""
    description: str
    """Free-text description."""
    limits: LimitsBody
    """Limits of the project."""
    own: UsageView
    """Usage of the project itself."""
    path: str
    """Path: `tenant/a/b`."""
    revision: int
    """Revision of the last change."""
    subtree: UsageView
    """Usage of everything below the project."""
    total: UsageView
    """Usage of the project and everything below it, which is compared with the limits."""
    overcommitted: bool = False
    """Whether the children's limits add up to more than the project's own, after a forced
    change. Requests must still fit the project's own limits."""


@dataclass(frozen=True, repr=False)
class QuorumMemberView(Model):
    """Quorum member."""

    address: str
    """Mesh address."""
    id: int
    """Member number."""
    role: str
    """`leader`, `voter`, or `learner`: a member without a vote that is catching up."""
    applied_index: Optional[int] = None
    """Last log entry that the member applied."""
    build: Optional[str] = None
    """Version of the member's program."""
    data_format: Optional[int] = None
    """Format of the member's data directory."""
    fault: Optional[str] = None
    """Why the member did not answer; absent if it did."""
    lag: Optional[int] = None
    """Log entries behind the leader; absent while unknown."""
    last_contact_ms: Optional[int] = None
    """Milliseconds since the leader received a message from the member. Absent for the leader,
    and for a member without a message since the leader's term began."""
    last_log_index: Optional[int] = None
    """Last log entry of the member."""
    revision: Optional[int] = None
    """Revision of the member's state."""
    snapshot_index: Optional[int] = None
    """Last log entry in the member's newest snapshot."""
    term: Optional[int] = None
    """Raft term of the member."""


@dataclass(frozen=True, repr=False)
class QuorumStep(Model):
    """Progress of a membership change. Repeat the request with the same key until the change is
    done."""

    state: str
    """`done`, `catching_up` or `under_way`."""
    unchanged: bool
    """Whether the change was already in effect, so that this request changed nothing."""
    at: Optional[int] = None
    """Last log entry of the new member, while it catches up."""
    fault: Optional[str] = None
    """Why the last call to the new member failed."""
    leader: Optional[int] = None
    """Leader after the change."""
    of: Optional[int] = None
    """Last log entry of the leader, while the new member catches up."""


@dataclass(frozen=True, repr=False)
class QuorumView(Model):
    """All members, as the leader reports them, or as any member reports them while there is no
    leader."""

    answered_by: int
    """Member that answered, after it had queried the others."""
    cluster: str
    """Cluster name."""
    incarnation: int
    """Incarnation of the cluster: 1 when it was founded, one more with each restore from a
    backup."""
    majority: int
    """Number of voters that a change needs."""
    members: list[QuorumMemberView]
    """Members, by number."""
    reachable: int
    """Number of voters that answered."""
    term: int
    """Newest term."""
    warnings: list[str]
    """Warnings for the operator, the worst first; empty if all is well."""
    leader: Optional[int] = None
    """Leader; absent while there is none."""
    restored_from: Optional[str] = None
    """Identifier of the restore that began this incarnation, 16 hex digits; absent for the first
    incarnation."""


@dataclass(frozen=True, repr=False)
class RankView(Model):
    """Rank as shown."""

    node: str
    """Node of the rank."""
    phase: str
    """`assigned`, `running` or `ended`; while the allocation shrinks by this rank: `leaving`,
    then `left`."""
    rank: int
    """Rank number, from 0."""
    exit: Optional[str] = None
    """Result of the rank."""
    since: Optional[str] = None
    """Start of the phase, by the node's clock; for `leaving`, the time at which the rank began
    to run, if known. Absent for `assigned`."""


@dataclass(frozen=True, repr=False)
class ReasonView(Model):
    """Health reason: one fault of one part of a node."""

    action: str
    """Recommended action: `none`, `restart_application`, `reset_gpu`, `reboot`, `power_cycle`,
    `update`, `inspect`."""
    code: str
    """Stable code: the name of a check or of an event: `gpu.xid.<number>`, `gpu.amd.<event>`."""
    count: int
    """Number of observations."""
    entity: str
    """Affected part: `gpu.3`, `nic.0.port.1`."""
    evidence: str
    """Value that was read."""
    first_seen: str
    """Time of the first observation, RFC 3339."""
    last_seen: str
    """Time of the last observation, RFC 3339."""
    observe_only: bool
    """Whether the reason is only observed and does not count in the health verdict."""
    severity: str
    """`inform`, `degraded` or `faulty`; `unknown` if something cannot be read."""
    source: Optional[str] = None
    """Source of the reason: `agent`, `bmc` (read by this control), or `control` itself."""


@dataclass(frozen=True, repr=False)
class ReconcileView(Model):
    """Result of a reconciliation."""

    differences: list[TotalDifference]
    """Totals that differ, or differed, from the recorded usage; empty if all totals are right."""


@dataclass(frozen=True, repr=False)
class RecordView(Model):
    """Record of one conformance class: all values that should be equal on equal nodes."""

    class_: str = _field(metadata={"wire": "class"})
    """Conformance class."""
    entries: dict[str, Reading[Union[bool, int, str, list[str]]]]
    """Every key, such as `nic.0.firmware`, with the result of reading it."""
    required: list[str]
    """Keys without which the class has no digest."""
    schema: int
    """Schema version of keys and values."""
    disabled: Optional[str] = None
    """Why the class is not probed; null if it is probed."""


@dataclass(frozen=True, repr=False)
class RejectedRequestView(Model):
    """Request that the accounting system rejects."""

    reason: str
    """Reason that the accounting system gave."""
    since: str
    """Time of the first rejection."""
    subject: str
    """Subject of the request."""


@dataclass(frozen=True, repr=False)
class ReleaseResult(Model):
    """Result of a release."""

    nodes: str
    """Released nodes, as a hostlist; a node becomes free when its wipe is confirmed."""
    revision: int
    """Last revision of the change."""


@dataclass(frozen=True, repr=False)
class ReprobeResult(Model):
    """Result of a new probe of a node."""

    classes: dict[str, ClassView]
    """State of each class, from this reading and the BMC's last values."""
    differs: list[str]
    """Classes that differ from the published classes. A change is published after two equal
    readings."""
    node: str
    """Node name."""
    bmc: Optional[BmcReadResult] = None
    """Result of reading the BMC; absent if control does not read it."""
    fingerprint: Optional[str] = None
    """Node fingerprint from this reading and the BMC's last values, 64 hex digits. The node
    joins the conformance group of this fingerprint when the node publishes the reading. Absent
    while a class is incomplete."""


@dataclass(frozen=True, repr=False)
class ReservationConflictView(Model):
    """Allocation that holds nodes of a reservation without access to the reservation."""

    allocation: int
    """Allocation number."""
    nodes: str
    """Reserved nodes that the allocation holds, as a hostlist."""
    element: Optional[ElementView] = None
    """Array of which the allocation is an element."""
    until: Optional[str] = None
    """End of the walltime; absent if the allocation has none."""


@dataclass(frozen=True, repr=False)
class ReservationView(Model):
    """Reservation as shown."""

    active: bool
    """Whether the reservation is in effect now."""
    by: str
    """Principal that created or last changed the reservation."""
    from_: str = _field(metadata={"wire": "from"})
    """Start; from this time on, other allocations cannot use the nodes."""
    name: str
    """Reservation name."""
    node_count: int
    """Number of nodes."""
    nodes: str
    """Nodes, as a hostlist."""
    projects: list[str]
    """Projects with access to the nodes, as far as the caller may see them."""
    reason: str
    """Free-text reason."""
    revision: int
    """Revision of the last change."""
    usable: bool
    """Whether the caller may use the nodes."""
    users: list[str]
    """Users that may use the nodes, as far as the caller may see them."""
    conflicts: list[ReservationConflictView] = _field(default_factory=list)
    """Allocations without access that hold nodes of the reservation now and may still hold them
    at its start. The list contains only those that the caller may see. A reservation stops no
    allocation."""
    until: Optional[str] = None
    """End, exclusive; absent: until the reservation is deleted."""


@dataclass(frozen=True, repr=False)
class ResourcesView(Model):
    """Properties that placement may require; a field left out is unknown, which is never zero."""

    cores: Optional[int] = None
    """Physical cores."""
    features: list[str] = _field(default_factory=list)
    """Features that were detected."""
    gpu_count: Optional[int] = None
    """Number of GPUs."""
    gpu_memory_bytes: Optional[int] = None
    """Memory of the smallest GPU, bytes."""
    gpu_model: Optional[str] = None
    """GPU model."""
    memory_bytes: Optional[int] = None
    """Memory that the kernel can use, bytes."""
    numa_nodes: Optional[int] = None
    """NUMA nodes."""
    product: Optional[str] = None
    """Product name."""
    rdma_count: Optional[int] = None
    """RDMA-capable network functions."""
    sockets: Optional[int] = None
    """Processor packages."""
    threads: Optional[int] = None
    """Hardware threads online."""
    vendor: Optional[str] = None
    """System vendor."""


@dataclass(frozen=True, repr=False)
class RevocationView(Model):
    """Revocation as shown."""

    by: str
    """Principal that revoked the certificates."""
    issued_before: str
    """Certificates issued before this time are invalid."""
    reason: str
    """Reason for the revocation."""


@dataclass(frozen=True, repr=False)
class SavedCheckpointView(Model):
    """Complete job checkpoint, from which the allocation can resume."""

    attempt: int
    """Attempt that wrote the checkpoint."""
    directory: str
    """Directory of the checkpoint."""
    duration: str
    """Duration from the request to completion."""
    number: int
    """Checkpoint number."""
    progress: str
    """Run time that the checkpoint covers, over all attempts that led to it."""
    requested_at: str
    """Time of the request. Later progress is not in the checkpoint."""
    written_at: str
    """Time at which the checkpoint was complete."""
    bytes: Optional[int] = None
    """Size, bytes; absent unless every rank reported its part."""


@dataclass(frozen=True, repr=False)
class ScaleBody(Model):
    """Scaling of the number of nodes by a metric."""

    max_nodes: int
    """Maximum number of nodes."""
    metric: MetricBody
    """Metric: `gpu`, `cpu`, or `{"prometheus": "QUERY"}`."""
    min_nodes: int
    """Minimum number of nodes, at least 1. The allocation starts with this number."""
    target: float
    """Target value, above 0. A higher metric value adds a node."""
    cooldown: Optional[str] = None
    """Minimum time between two changes; `0s` for none."""
    down_threshold: Optional[float] = None
    """Lower threshold, as a fraction of the target between 0 and 1."""
    down_window: Optional[str] = None
    """Time for which the metric must be below the lower threshold before a node is released."""
    up_window: Optional[str] = None
    """Time for which the metric must be above the target before a node is added, in the format
    of a walltime. Left out: the setting of the vCluster."""


@dataclass(frozen=True, repr=False)
class ScalingView(Model):
    """Scaling: how quickly services follow their metrics."""

    backoff_cooldowns: int
    """Cooldowns without a proposal after the last repetition was rejected. Default: 2."""
    calm_s: float
    """Time without a change of size after which the next change does not count as a change of
    direction, seconds. Default: 3600."""
    cooldown_s: float
    """Time for which a service keeps its size after a change, seconds. Default: 180."""
    down_window_s: float
    """Time for which the metric must be below the threshold before the service shrinks, seconds.
    Default: 300."""
    evaluation_s: float
    """Interval between readings of the metric, seconds. Default: 60."""
    missing_alert: int
    """Consecutive evaluations without a metric before an alert. Default: 3."""
    oscillation_alert: int
    """Consecutive changes of direction, between growing and shrinking, before an alert. Default:
    5."""
    retries: int
    """Number of times that a rejected proposal is repeated. Default: 3."""
    threshold: float
    """A service shrinks below this fraction of the target; above 0 and below 1. Default: 0.5."""
    up_window_s: float
    """Time for which the metric must be above the target before the service grows, seconds.
    Default: 120."""


@dataclass(frozen=True, repr=False)
class SchedulerView(Model):
    """Scheduler settings of a vCluster, as shown."""

    reference_wait_s: float
    """Seconds of waiting after which the wait time factor is ln 2."""
    reservations: ReservationsView
    """Blocked jobs for which nodes are reserved."""
    weights: WeightsView
    """Weights of the score."""
    weights_sum: float
    """Sum of the weights."""
    checkpoint_gb_s: Optional[float] = None
    """Total bandwidth of all nodes to checkpoint storage, GB/s; `null`: unknown."""
    profile: Optional[str] = None
    """Workload profile that last set the weights; `null`: none. Single weights may have changed
    since. A vCluster with the profile `sensitive` does not lend nodes."""


@dataclass(frozen=True, repr=False)
class ScoreView(Model):
    """Score, which determines the place in the queue."""

    ahead: int
    """Number of allocations of the queue that the last cycle considered before this one."""
    budget: float
    """Budget factor of the tenant: 1 up to 80 % of a budget used, 0.05 when it is used up."""
    factors: list[FactorView]
    """The nine factors, in the order of the scheduling document."""
    sum: float
    """Sum of the values times the weights."""
    total: float
    """Product of the sum and the lowest of the factors `budget`, `share` and `accounting`, by
    which the queue is ordered."""
    accounting: Optional[float] = None
    """Accounting factor of the tenant: 0.05 while the accounting system requests that its
    allocations rank behind those of others, else 1."""
    share: Optional[float] = None
    """Share factor of the tenant: 0.05 while it holds at least as many nodes as its burst
    allowance permits, else 1. An earlier version of control leaves this field and `accounting`
    out, and combines all three factors in `budget`."""


@dataclass(frozen=True, repr=False)
class SharingView(Model):
    """Lending and borrowing of nodes."""

    allow_borrowing: bool
    """Whether the vCluster borrows nodes. Default: true."""
    allow_lending: bool
    """Whether the vCluster lends its idle nodes. Default: true. With the weights of `sensitive`:
    always false."""
    return_grace_s: float
    """Time for which a borrower keeps a reclaimed node before the job on it is stopped, seconds.
    Default: 60."""
    borrowing_limit: Optional[int] = None
    """Maximum number of nodes that are borrowed at once. Default: unlimited."""
    lending_limit: Optional[int] = None
    """Maximum number of own nodes that are lent at once. Default: all idle nodes."""


@dataclass(frozen=True, repr=False)
class StatusView(Model):
    """Counts of nodes and allocations, the state of the answering control, and the caller's
    identity."""

    active: bool
    """Whether this control is active: it holds the lease of the dispatcher or of a vCluster's
    scheduler."""
    allocations_by_state: dict[str, int]
    """Allocations by state, including ended ones. While the quorum does not answer, only
    allocations that have not ended: a missing state is then unknown, not zero."""
    cells: dict[str, int]
    """Gossip cells that this control has joined, with their numbers of present agents."""
    cluster: str
    """Cluster name."""
    nodes: int
    """Registered nodes."""
    nodes_by_lifecycle: dict[str, int]
    """Nodes by lifecycle."""
    nodes_by_liveness: dict[str, int]
    """Nodes by liveness."""
    nodes_held: int
    """Nodes held by an allocation."""
    principal: str
    """Name of the caller, from the token."""
    revision: int
    """Revision of the view that the answer is based on."""
    roles: list[str]
    """Roles of the caller."""
    version: str
    """Version of this control service."""
    view_age_ms: int
    """Milliseconds since this control last received data from the quorum; 2^64-1 if it never
    did."""
    nodes_drifted: Optional[int] = None
    """Compared nodes that differ from their baseline or, without a baseline, from the majority
    of their cohort. Left out if no node was compared."""
    nodes_not_compared: Optional[int] = None
    """Nodes without a known comparison result: not compared yet, without a reference, or with an
    unknown class."""


@dataclass(frozen=True, repr=False)
class StepView(Model):
    """Effect of one constraint on the remaining nodes."""

    constraint: str
    """Description of the constraint."""
    left: int
    """Nodes that remained."""
    removed: int
    """Nodes that the constraint removed."""


@dataclass(frozen=True, repr=False)
class SubmitResult(Model):
    """Answer to a submit."""

    dry_run: bool
    """Whether the request was a dry run, which changes nothing."""
    revision: int
    """Revision at which the allocation was created, or checked."""
    id: Optional[int] = None
    """Allocation number; absent for a dry run, which creates none."""
    outlook: Optional[OutlookView] = None
    """Scheduling outlook of a dry run; absent if this control cannot plan at present."""


@dataclass(frozen=True, repr=False)
class SystemLimitsView(Model):
    """Cluster-wide limits."""

    limit_policy: str
    """Limit policy of projects: `strict` or `flat`."""
    sensitive_pool_size: Optional[int] = None
    """Nodes that can be claimed for sensitive use; `null`: unlimited."""


@dataclass(frozen=True, repr=False)
class TenantUsage(Model):
    """Usage of a tenant in a window of days that ends now, with its budgets and share. Clients
    ignore fields that they do not know, so that later versions of control may add some."""

    budget_factor: float
    """Budget factor: 1 up to 0.8 of a budget, 0.05 when it is used up."""
    budget_period_days: int
    """Days of the rolling window to which budgets apply."""
    days: int
    """Days of the window. Budgets always apply to the cluster's own period,
    `budget_period_days`."""
    downscaled: bool
    """Whether the accounting system requested that the tenant's allocations rank behind those of
    others."""
    exceeds_share: bool
    """Whether the tenant holds more than its share; the tenant's newest allocations are then the
    first victims of preemption."""
    gpu_hours_used: float
    """GPU hours of allocations, by the present number of GPUs of their nodes. A node with an
    unknown number counts as one GPU."""
    idle_claimed_node_hours: float
    """Node hours of nodes that were claimed for sensitive use and idle; billed, but not counted
    against the budget."""
    node_hours_used: float
    """Node hours of allocations in the window. Suspended time does not count."""
    paused: list[PausedProjectView]
    """Projects and vClusters in which the accounting system requested that no new allocation
    starts."""
    revision: int
    """Revision that the answer is based on, at least."""
    share: float
    """Fraction of the cluster's nodes that the tenant holds now."""
    since: str
    """Start of the window."""
    source: str
    """Source of the budget usage: `ledger`, the cluster's own count, or `accounting`, the
    accounting system."""
    tenant: str
    """Tenant name."""
    until: str
    """End of the window; running allocations are counted up to this time."""
    accounting_factor: Optional[float] = None
    """Accounting factor: 0.05 while the accounting system requests that the tenant's allocations
    rank behind those of others, else 1."""
    budget_used: Optional[float] = None
    """Used fraction of the budget that is used most, 1 when it is used up; `null` without a
    budget."""
    burst_allowance: Optional[float] = None
    """Multiple of the fair share that the tenant may hold while others need nothing; `null`: not
    set."""
    fair_share_target: Optional[float] = None
    """Share of the cluster that the tenant should have; `null`: not set."""
    gpu_hours_budget: Optional[float] = None
    """GPU hours in the budget; `null`: no budget."""
    node_hours_budget: Optional[float] = None
    """Node hours in the budget; `null`: no budget."""
    priority_factor: Optional[float] = None
    """Lowest of the three factors, by which the scores of the tenant's pending allocations are
    multiplied."""
    share_factor: Optional[float] = None
    """Share factor: 0.05 while the tenant holds at least as many nodes as its burst allowance
    permits, else 1. An earlier version of control leaves out this field and the next two, and
    combines all factors in `budget_factor`."""


@dataclass(frozen=True, repr=False)
class TenantView(Model):
    """Tenant as shown."""

    admins: list[str]
    """Administrators, which may also set the limits of the tenant's projects."""
    created_at: str
    """Time of creation."""
    description: str
    """Free-text description."""
    id: str
    """Name of the tenant, which is the path of its root project."""
    revision: int
    """Revision of the last change."""
    usage: UsageView
    """Usage of the tenant and everything in it."""
    burst_allowance: Optional[float] = None
    """Multiple of the fair share that the tenant may hold while others need nothing, 1 or more;
    `null`: not set."""
    fair_share_target: Optional[float] = None
    """Share of the cluster that the tenant should have, 0 to 1; `null`: not set."""
    gpu_hours_budget: Optional[float] = None
    """GPU hours that the tenant may use in the budget period; `null`: no budget. Beyond the
    budget nothing is rejected, but the tenant's allocations rank behind those of others."""
    max_concurrent_allocations: Optional[int] = None
    """Allocations of the tenant that may hold nodes at the same time; `null`: unlimited."""
    max_nodes: Optional[int] = None
    """Nodes that the tenant and everything in it may hold at the same time."""
    node_hours_budget: Optional[float] = None
    """Node hours that the tenant may use in the budget period; `null`: no budget. Of two budgets
    the one that is used more counts."""
    on_limit: Optional[str] = None
    """Handling of submits that fit the limits, but not with the present usage, and state no
    handling themselves: `reject` or `wait`."""
    overcommitted: bool = False
    """Whether the projects' limits add up to more than the tenant's own, after a forced change.
    Requests must still fit the tenant's own limits."""


@dataclass(frozen=True, repr=False)
class TokenCreated(Model):
    """New join token, with its text. The cluster keeps only a hash of the text."""

    expires_at: str
    """Expiry time."""
    token: str
    """Complete token, including the secret."""
    uses: int
    """Number of enrolments."""
    id: Optional[str] = None
    """Token id, for lists and for revocation: the prefix of the token's hash."""


@dataclass(frozen=True, repr=False)
class TokenView(Model):
    """Join token as shown in lists, without anything that permits an enrolment."""

    by: str
    """Principal that created the token."""
    cidrs: list[str]
    """Networks from which the token may be used; empty for any."""
    expires_at: str
    """Expiry time."""
    id: str
    """Token id: the prefix of the token's hash."""
    replace: bool
    """Whether the token may take over a name that is already enrolled."""
    role: str
    """Role to enrol."""
    uses_left: int
    """Number of enrolments left."""
    nodes: Optional[str] = None
    """Names that may enrol with the token, as a hostlist; absent for any."""


@dataclass(frozen=True, repr=False)
class TotalDifference(Model):
    """Total that differs, or differed, from the recorded usage."""

    component: str
    """`gpu_hours` or `node_hours`."""
    external_total: float
    """Total in the accounting system before the reconciliation, hours."""
    month: str
    """Month: `2026-11`."""
    outcome: str
    """`found`, `corrected`, `accepted` or `not_bookable`."""
    project: str
    """Project path."""
    recorded_total: float
    """Recorded usage, hours."""
    vcluster: str
    """vCluster name."""
    reason: Optional[str] = None
    """Why the total could not be corrected."""


@dataclass(frozen=True, repr=False)
class UndrainResult(Model):
    """Result of an undrain."""

    cleared: list[str]
    """Drain reasons that were cleared, each with its owner: `op: fan is loud`. Empty if the node
    had none; a repeated request clears nothing more."""
    revision: int
    """Revision of the change, or the present revision if nothing was cleared."""


@dataclass(frozen=True, repr=False)
class UnknownView(Model):
    """Conformance class of a node for which the comparison has no result."""

    class_: str = _field(metadata={"wire": "class"})
    """Conformance class."""
    node: str
    """Node name."""
    why: str
    """Why the conformance is unknown."""
    baseline: Optional[str] = None
    """Baseline that applies to the node."""


@dataclass(frozen=True, repr=False)
class UsageView(Model):
    """Usage that counts against limits."""

    allocations: int
    """Allocations that hold nodes."""
    nodes: int
    """Nodes held."""


@dataclass(frozen=True, repr=False)
class UserTenantUsage(Model):
    """Usage of a user in one tenant."""

    gpu_hours_used: float
    """GPU hours of allocations; see `TenantUsage`."""
    idle_claimed_node_hours: float
    """Node hours of claimed, idle nodes; see `TenantUsage`."""
    node_hours_used: float
    """Node hours of allocations; see `TenantUsage`."""
    tenant: str
    """Tenant name."""


@dataclass(frozen=True, repr=False)
class UserUsage(Model):
    """Usage of a user, in the tenants that the caller may see, in a window of days that ends
    now."""

    days: int
    """Days of the window."""
    gpu_hours_used: float
    """GPU hours of allocations; see `TenantUsage`."""
    idle_claimed_node_hours: float
    """Node hours of claimed, idle nodes; see `TenantUsage`."""
    node_hours_used: float
    """Node hours of allocations; see `TenantUsage`."""
    revision: int
    """Revision that the answer is based on, at least."""
    since: str
    """Start of the window."""
    tenants: list[UserTenantUsage]
    """Usage by tenant, for the tenants that the caller may see."""
    until: str
    """End of the window."""
    user: str
    """User name."""


@dataclass(frozen=True, repr=False)
class ValueWithNodes(Model):
    """Value of a key without a majority."""

    nodes: str
    """Nodes with this value, as a hostlist."""
    value: str
    """Value as shown."""


@dataclass(frozen=True, repr=False)
class VclusterNodes(Model):
    """Result of an assignment of nodes to a vCluster."""

    nodes: str
    """Assigned nodes, as a hostlist; they now belong to the vCluster, which uses them."""
    revision: int
    """Revision of the change."""
    vcluster: str
    """vCluster name."""


@dataclass(frozen=True, repr=False)
class VclusterView(Model):
    """vCluster as shown: its definition and its nodes."""

    borrowed: str
    """Nodes of other vClusters that this vCluster borrows, as a hostlist."""
    description: str
    """Free-text description."""
    lent: str
    """Own nodes that another vCluster borrows, as a hostlist."""
    movement: MovementView
    """Movement settings."""
    name: str
    """vCluster name."""
    node_count: int
    """Number of nodes that belong to the vCluster."""
    nodes: str
    """Nodes that belong to the vCluster, as a hostlist."""
    revision: int
    """Revision of the last change to the definition or the settings; 0: none."""
    scheduler: SchedulerView
    """Scheduler settings."""
    scheduler_epoch: int
    """Lease epoch of the scheduler, increased when another or a restarted control takes over; 0:
    never scheduled."""
    usable: bool
    """Whether any tenant may use the vCluster. With empty `tenants`: true means that the caller
    may not see those tenants, false means that the vCluster is closed."""
    version: int
    """Definition version; each change gets a new version, which is never reused. 0: the vCluster
    is not defined and is open to all tenants. A change of the scheduler settings alone does not
    define a vCluster."""
    scheduled_by: Optional[str] = None
    """Control that schedules the vCluster; `null`: none at present."""
    tenants: Optional[list[str]] = None
    """Tenants that may use the vCluster, as far as the caller may see them; `null`: all."""


@dataclass(frozen=True, repr=False)
class VersionView(Model):
    """Stored version of a baseline."""

    at: str
    """Time at which the version was set."""
    by: str
    """Principal that set the version."""
    version: int
    """Baseline version."""


@dataclass(frozen=True, repr=False)
class Violation(Model):
    """Limit that a request would exceed, at a level of the project tree or of the whole cluster."""

    current: int
    """Usage that counts against the limit. For a change of limits, the sum of the children's
    limits, or 0 if a child would be unlimited."""
    limit: int
    """The limit."""
    limit_name: str
    """Limit: `max_nodes`, `max_concurrent_allocations` or `sensitive_pool_size`."""
    path: str
    """Project or tenant; empty for the limit of the whole cluster, `sensitive_pool_size`."""
    requested: int
    """Amount requested; 0 for a change of limits."""


@dataclass(frozen=True, repr=False)
class WaitingAllocation(Model):
    """Reason why one allocation waits."""

    id: int
    """Allocation number."""
    reason: str
    """Reason to wait."""


@dataclass(frozen=True, repr=False)
class WaitsForView(Model):
    """Dependencies and mutex holder that a blocked allocation waits for."""

    allocations: list[int]
    """Dependencies that have not ended."""
    mutex: Optional[int] = None
    """Allocation that holds the mutex."""


@dataclass(frozen=True, repr=False)
class WeightsView(Model):
    """Weights of the nine factors. Weights are relative: they need not add up to 1. The
    resolution is 0.000001."""

    backlog: float
    """Backlog."""
    checkpoint: float
    """Low cost of a checkpoint."""
    conformance: float
    """One conformance group."""
    data_ready: float
    """Input data on the hot tier."""
    energy: float
    """Energy price."""
    fair_share: float
    """Distance of the tenant from its share."""
    priority: float
    """Priority class."""
    topology: float
    """Few topology groups."""
    wait_time: float
    """Time in the queue."""


@dataclass(frozen=True, repr=False)
class WorkloadView(Model):
    """Workload, as far as the caller may see it."""

    argv: list[str]
    """Program and arguments."""
    env: dict[str, str]
    """Names of the environment variables; every value reads `<redacted>`."""
    error: Optional[str] = None
    """File for standard error, as requested; absent: kept as logs."""
    output: Optional[str] = None
    """File for standard output, as requested; absent: kept as logs."""
    script: Optional[str] = None
    """Script."""
    working_dir: Optional[str] = None
    """Working directory."""


@dataclass(frozen=True, repr=False)
class AllocationChange(Model):
    """Change of an allocation."""

    change: str
    """Kind of change: `submitted`, `assigned`, `started`, `stopping`, `ended`, …"""
    kind: Literal["allocation"]
    record: AllocationView
    """Record after the change, without the workload, which never changes."""


@dataclass(frozen=True, repr=False)
class NodeChange(Model):
    """Change of a node."""

    kind: Literal["node"]
    record: NodeView
    """Record after the change."""


@dataclass(frozen=True, repr=False)
class ProjectChange(Model):
    """Change of a project."""

    kind: Literal["project"]
    record: ProjectView
    """Record after the change."""


@dataclass(frozen=True, repr=False)
class ProjectDeletedChange(Model):
    """Deletion of a project."""

    kind: Literal["project_deleted"]
    path: str
    """Project path."""


@dataclass(frozen=True, repr=False)
class BaselineChange(Model):
    """New version, or deletion, of a baseline."""

    kind: Literal["baseline"]
    name: str
    """Baseline name."""
    version: Optional[int] = None
    """Baseline version; left out after a deletion."""


@dataclass(frozen=True, repr=False)
class BrakeChange(Model):
    """Stop or resumption of automatic draining."""

    kind: Literal["brake"]
    held: Optional[BrakeView] = None
    """Why automatic draining is stopped; left out after it has resumed."""


@dataclass(frozen=True, repr=False)
class UnknownChange(Model):
    """A kind that this version does not know; it is in `extra`."""

    kind: str
    """Kind unknown to this client."""


Change = Union[
    AllocationChange,
    NodeChange,
    ProjectChange,
    ProjectDeletedChange,
    BaselineChange,
    BrakeChange,
    UnknownChange,
]
"""Change of one record, with the record after the change."""


LossView = dict[str, Any]
"""Reason that a probe returned no result."""


MetricBody = Union[str, dict[str, Any]]
"""Metric that determines the number of nodes."""


ReservationsView = Union[int, str]
"""Blocked jobs for which nodes are reserved."""
