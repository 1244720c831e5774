"""What a server sends.

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
    "BaselineSet",
    "BaselineStanding",
    "BaselineView",
    "BmcLooked",
    "BrakeChange",
    "BrakeState",
    "BrakeView",
    "CertificateView",
    "Change",
    "Changed",
    "Changes",
    "ChangesView",
    "CheckpointBody",
    "CheckpointSettingsView",
    "CheckpointsView",
    "ClaimView",
    "Claimed",
    "ClassRuleView",
    "ClassView",
    "CohortForm",
    "Compacted",
    "ConstraintsBody",
    "DagEdgeView",
    "DagJudged",
    "DagMemberJudged",
    "DagMemberView",
    "DagPlaceView",
    "DagSubmitted",
    "DagView",
    "DependencyView",
    "DiffView",
    "DifferenceView",
    "DiskPart",
    "DrainView",
    "Drained",
    "DriftReportView",
    "DriftView",
    "ElementView",
    "Exhausted",
    "ExplanationView",
    "FactorView",
    "FactsView",
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
    "HeldValue",
    "HistoryEntryView",
    "HolderView",
    "InventoryFacts",
    "InventoryIdentity",
    "InventoryPower",
    "InventoryTopology",
    "InventoryView",
    "KeptView",
    "KeyChangeView",
    "LimitsBody",
    "LossView",
    "MetricBody",
    "MovementView",
    "NicPart",
    "NoMajorityView",
    "NodeChange",
    "NodeEventView",
    "NodeHealthView",
    "NodeView",
    "NotReadView",
    "NvlinkView",
    "Observed",
    "OutlookView",
    "Page",
    "PairView",
    "ParkedView",
    "PausedView",
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
    "Released",
    "Reprobed",
    "ReservationConflictView",
    "ReservationView",
    "ReservationsView",
    "RevocationView",
    "ScaleBody",
    "ScalingView",
    "SchedulerView",
    "ScoreView",
    "SharingView",
    "StatusView",
    "StepView",
    "Submitted",
    "SystemLimitsView",
    "TallyView",
    "TenantUsage",
    "TenantView",
    "TokenCreated",
    "TokenView",
    "TotalDifference",
    "Undrained",
    "UnknownChange",
    "UnknownView",
    "UsageView",
    "UsedInTenant",
    "UserUsage",
    "VclusterNodes",
    "VclusterView",
    "VersionView",
    "Violation",
    "Waiting",
    "WaitsForView",
    "WeightsView",
    "WorkloadView",
    "WritingView",
]


@dataclass(frozen=True, repr=False)
class AccountingStatus(Model):
    """How accounting stands."""

    acknowledged: int
    """Up to which it has them."""
    acts: bool
    """Whether the control that answers is the one that does it. Another one knows less."""
    buffer_size: int
    """How many may be."""
    disk_buffer_max_events: int
    """How many may be."""
    dropped: int
    """Events that were dropped, ever. No total is another for it; `reconcile` tells them again."""
    enabled: bool
    """Whether anything of it runs."""
    full: bool
    """As many events are on the disk as may be: the next one is dropped."""
    in_memory: int
    """Events in memory."""
    last: int
    """Number of the last fact there is."""
    on_disk: int
    """Events on the disk alone."""
    parked: list[ParkedView]
    """What it refuses. It is tried again every quarter of an hour, and nothing waits for it."""
    reported: int
    """Reports of usage that were sent since this control began."""
    sent: int
    """Events that were sent since this control began."""
    failure: Optional[str] = None
    """Why it did not when it was last tried; `null`: it did, or was not tried yet."""
    provider: Optional[str] = None
    """`waldur`; `null`: nothing of it runs."""
    pushed_at: Optional[str] = None
    """When it last had everything there was; `null`: not since this control began."""
    retry_at: Optional[str] = None
    """When it is tried again."""
    version: Optional[str] = None
    """Of which version it is; `null`: it was not asked yet."""


@dataclass(frozen=True, repr=False)
class AllocationView(Model):
    """An allocation as shown."""

    attempt: int
    """Counts assignments."""
    class_: int = _field(metadata={"wire": "class"})
    """Priority class."""
    constraints: ConstraintsBody
    """What the nodes must be like."""
    id: int
    """Its number."""
    nodelist: str
    """The nodes of the current, or last, attempt, as a hostlist; empty before the first."""
    nodes: int
    """Number of nodes asked for."""
    project: str
    """The project whose limits apply."""
    ranks: list[RankView]
    """The ranks of the current, or last, attempt."""
    requeue: str
    """What happens when a node is lost."""
    revision: int
    """Last change."""
    sensitive: bool
    """All nodes must share one conformance group."""
    state: str
    """`blocked`, `pending`, `held`, `starting`, `running`, `checkpointing`, `stopping`,
    `suspended`, `completed`, `failed` or `cancelled`."""
    state_since: str
    """When it entered that state."""
    submitted_at: str
    """When it was submitted."""
    user: str
    """Who submitted it."""
    vcluster: str
    """The vCluster whose scheduler places it."""
    array: Optional[str] = None
    """The indices of an array, and how many of them run at a time."""
    begin_at: Optional[str] = None
    """It is not placed before."""
    checkpoint: Optional[CheckpointBody] = None
    """How it writes checkpoints."""
    checkpoint_time: Optional[str] = None
    """How long it takes to write a checkpoint; absent when nothing was said."""
    checkpoints: Optional[CheckpointsView] = None
    """Its checkpoints; absent where none was asked for."""
    dag: Optional[DagPlaceView] = None
    """The graph it is a member of."""
    data_ready: Optional[float] = None
    """The part of its input data that is on the hot tier, 0 to 1; absent when not known."""
    deadline_at: Optional[str] = None
    """It must have ended by then."""
    dependencies: list[DependencyView] = _field(default_factory=list)
    """Those it comes after."""
    element: Optional[ElementView] = None
    """The array it is an element of."""
    ended_at: Optional[str] = None
    """When it ended."""
    mutex: Optional[str] = None
    """Of the same user's work with this mutex one is eligible at a time."""
    name: Optional[str] = None
    """A name for people."""
    preempted: Optional[int] = None
    """How often others took its nodes."""
    reason: Optional[str] = None
    """Why it waits, as of the last scheduling cycle."""
    reservation: Optional[str] = None
    """It uses nodes that are reserved under this name."""
    scale: Optional[ScaleBody] = None
    """The metric that its number of nodes follows."""
    started_at: Optional[str] = None
    """When it first began to run."""
    stop: Optional[str] = None
    """Why it is being, or was, stopped."""
    storage_gb_s: dict[str, float] = _field(default_factory=dict)
    """Bandwidth it needs of storage systems while it runs, GB/s by the system's name."""
    tally: Optional[TallyView] = None
    """What became of the elements of an array."""
    waits_for: Optional[WaitsForView] = None
    """For whom it waits, while it is blocked."""
    walltime: Optional[str] = None
    """Longest run time; absent when unbounded."""
    workload: Optional[WorkloadView] = None
    """What runs; absent when the asker may not see it."""


@dataclass(frozen=True, repr=False)
class AuditHeadView(Model):
    """Where the audit ends, how far it is signed, and by whose authority."""

    authorities: list[AuthorityView]
    """The authorities that are trusted now."""
    checkpoint: int
    """The entry of the newest signed checkpoint; 0 while there is none."""
    cluster: str
    """Whose audit it is."""
    hash: str
    """Its hash, 64 hex digits."""
    number: int
    """The last entry; 0 while there is none."""


@dataclass(frozen=True, repr=False)
class AuditView(Model):
    """One entry."""

    action: dict[str, Any]
    """What was done: the action's word, and what belongs to it."""
    at: str
    """State time."""
    by: str
    """Who did it."""
    hash: str
    """blake3 over the hash before it and this entry, 64 hex digits."""
    number: int
    """Its number, from 1 without a gap."""
    power: str
    """As what: `user`, `operator`, `admin` or `service`."""
    revision: int
    """The revision that made it."""
    summary: str
    """The same in words."""


@dataclass(frozen=True, repr=False)
class AuthorityView(Model):
    """An authority as shown."""

    certificate: str
    """Its certificate, PEM."""
    phase: str
    """`issuing`, or `trusted`: certificates it signed hold, new ones come from another."""
    pin: str
    """blake3 of its certificate, 64 hex digits."""
    since: str
    """Since when it is known."""
    subject: str
    """Its name in certificates."""
    certificates: Optional[int] = None
    """Members whose newest certificate it issued and still holds, by when they were issued;
    absent when that is not known."""
    expires_at: Optional[str] = None
    """Its own last moment; absent when its certificate cannot be read."""


@dataclass(frozen=True, repr=False)
class BaselineSet(Model):
    """The version that is in force after a change."""

    classes: list[str]
    """The classes it speaks of."""
    dry_run: bool
    """Nothing was set: it would be so."""
    name: str
    """Its name."""
    revision: int
    """The revision that made it, or the present one when it was so already."""
    standing: BaselineStanding
    """Whom it speaks for, at this moment."""
    version: int
    """Its version."""


@dataclass(frozen=True, repr=False)
class BaselineStanding(Model):
    """For whom a baseline speaks, and how they stand. Nodes are hostlists."""

    conform: str
    """Those that are what it asks."""
    conform_count: int
    """How many."""
    deprioritise: str
    """Of those that differ: what gets new work last."""
    differ: str
    """Those that differ."""
    differ_count: int
    """How many."""
    drain: str
    """Of those that differ: what is drained by its policy."""
    judged: str
    """Those it speaks for."""
    judged_count: int
    """How many."""
    unknown: str
    """Those where nothing is found to differ, and something is not known."""
    unknown_count: int
    """How many."""
    warnings: list[str]
    """Names, parts of the cohort, and keys that no node has: they may come, or be misspelt."""


@dataclass(frozen=True, repr=False)
class BaselineView(Model):
    """One baseline."""

    at: str
    """When."""
    by: str
    """Who decided it."""
    bytes: int
    """What it takes of the 256 KiB that one baseline may have."""
    classes: dict[str, ClassRuleView]
    """What it says of each class."""
    description: str
    """For people."""
    name: str
    """Its name."""
    nodes: str
    """The nodes it names, as a hostlist."""
    version: int
    """The version shown."""
    cohort: Optional[CohortForm] = None
    """The cohort it is for."""
    differ: Optional[str] = None
    """Those of them that differ."""
    judged: Optional[str] = None
    """Nodes it speaks for now, as a hostlist. Like the next three left out where nobody is
    judged by this version: not yet, or no more."""
    judged_count: Optional[int] = None
    """How many."""
    unknown: Optional[str] = None
    """Those of them of which something is not known."""
    versions: list[VersionView] = _field(default_factory=list)
    """The versions that are kept, oldest first; only where one baseline is asked for."""


@dataclass(frozen=True, repr=False)
class BmcLooked(Model):
    """A BMC was looked at because somebody asked."""

    differs: list[str]
    """Classes that it tells otherwise than before. They count once read twice."""
    error: Optional[str] = None
    """Why it told nothing; none where it did."""


@dataclass(frozen=True, repr=False)
class BrakeState(Model):
    """The brake on automatic draining."""

    held: Optional[BrakeView] = None
    """Left out while nothing stands still."""


@dataclass(frozen=True, repr=False)
class BrakeView(Model):
    """Automatic draining stands still since too many nodes would have been drained in a short
    time."""

    by: str
    """Who noticed."""
    reason: str
    """What was about to happen."""
    since: str
    """Since when."""


@dataclass(frozen=True, repr=False)
class CertificateView(Model):
    """What is known of one member's certificates."""

    name: str
    """Its name."""
    role: str
    """`agent`, `control` or `quorum`."""
    state: str
    """How the newest one stands."""
    expires_at: Optional[str] = None
    """When that one ends."""
    issued_at: Optional[str] = None
    """When the newest one was issued; absent when it did not come by enrolment."""
    revoked: Optional[RevocationView] = None
    """The last revocation, which a newer certificate may have outlived."""


@dataclass(frozen=True, repr=False)
class Changed(Model):
    """The answer to a change that makes nothing new."""

    revision: int
    """The revision it made."""


@dataclass(frozen=True, repr=False)
class Changes(Model):
    """Everything one revision changed."""

    at: str
    """State time."""
    changes: list[Change]
    """In order."""
    revision: int
    """The revision; resume with `since` set to it."""


@dataclass(frozen=True, repr=False)
class ChangesView(Model):
    """What changed anywhere."""

    changes: list[FleetChangeView]
    """What is known to differ first, then what most nodes did, then by class and key."""
    left_out: int
    """Entries that list only some of their keys: ask the node itself."""
    new: str
    """Nodes that were read for the first time since, as a hostlist."""
    since: str
    """From when on, RFC 3339."""
    reaches_back_to: Optional[str] = None
    """Present where more happened since than one answer holds: what was before this moment, RFC
    3339, was not looked at. Nodes' own histories have it."""


@dataclass(frozen=True, repr=False)
class CheckpointBody(Model):
    """How work writes checkpoints."""

    mode: str
    """How it is told to: `signal` (SIGUSR1), `shared_memory` or `callback` (gRPC)."""
    directory: Optional[str] = None
    """Where to: a directory from the root. Left out: where the site says."""
    trigger: Optional[str] = None
    """Who decides when: `automatic` (when it pays, and whenever somebody asks; the default) or
    `manual` (people, and who needs the nodes)."""


@dataclass(frozen=True, repr=False)
class CheckpointSettingsView(Model):
    """When its work writes checkpoints, and how long one may take."""

    max_deferral_count: int
    """How often it may. Default: 3."""
    max_deferral_s: float
    """How long work may put one off, in all, seconds. Default: 300."""
    max_interval_s: float
    """None later, whatever it costs, seconds. Default: 21600."""
    min_interval_s: float
    """None sooner after the last one, or after the start, seconds. Default: 300."""
    sensitive_max_interval_s: float
    """As `max_interval_s`, of sensitive work. Default: 3600."""
    sensitive_min_interval_s: float
    """As `min_interval_s`, of sensitive work. Default: 600."""
    sensitive_timeout_s: float
    """As `timeout_s`, of sensitive work. Default: 900."""
    timeout_s: float
    """How long one may take before it is extended or given up, seconds. Default: 600."""


@dataclass(frozen=True, repr=False)
class CheckpointsView(Model):
    """The checkpoints of an allocation."""

    asked: int
    """How many were asked for."""
    failed: int
    """How many of them came to nothing."""
    failed_because: Optional[str] = None
    """Why the last of these did; absent for who may not see what runs, whose words it may be."""
    kept: Optional[KeptView] = None
    """The last one that is whole."""
    writing: Optional[WritingView] = None
    """The one that is being written."""


@dataclass(frozen=True, repr=False)
class ClaimView(Model):
    """Whose a node is."""

    project: str
    """The project against whose limits it counts."""
    since: str
    """Since when."""
    state: str
    """`claimed`: takes its user's sensitive work; `releasing`: given back, and not wiped yet;
    `unclean`: its wipe failed."""
    user: str
    """The user who claimed it."""
    purpose: Optional[str] = None
    """What for, in the user's words."""
    reason: Optional[str] = None
    """How its wipe failed."""


@dataclass(frozen=True, repr=False)
class Claimed(Model):
    """What a claim did."""

    nodes: str
    """The nodes, as a hostlist."""
    revision: int
    """The revision it made."""


@dataclass(frozen=True, repr=False)
class ClassRuleView(Model):
    """What a baseline says of one class."""

    kind: str
    """`exact` or `partial`."""
    policy: str
    """`warn`, `deprioritise` or `drain`."""
    sensitive: str
    """`strict` or `ignore`."""
    digest: Optional[str] = None
    """The digest that is met exactly."""
    keys: dict[str, str] = _field(default_factory=dict)
    """Each key with what it is meant to be, as shown. Left out of lists where the rule is exact."""
    schema: Optional[int] = None
    """The schema of that digest's keys."""
    unreadable: Optional[str] = None
    """Why nobody is judged by it here: it cannot be read."""


@dataclass(frozen=True, repr=False)
class ClassView(Model):
    """What a node says of one class."""

    state: str
    """`complete`, `incomplete` (a required key is unknown) or `disabled`."""
    complete_until: Optional[str] = None
    """When it ceased to be that, RFC 3339."""
    digest: Optional[str] = None
    """The class digest, 64 hex digits; absent unless complete."""
    last_digest: Optional[str] = None
    """Of a class that is incomplete, its digest when it was complete last; only of a single
    node, where its history says so. It is not what the class is: that is unknown."""


@dataclass(frozen=True, repr=False)
class CohortForm(Model):
    """Which cohort is meant: every part that is given must be equal."""

    gpu_count: Optional[int] = None
    """Number of GPUs; 0 for nodes without."""
    gpu_model: Optional[str] = None
    """GPU model."""
    product: Optional[str] = None
    """Product name."""
    vendor: Optional[str] = None
    """System vendor."""


@dataclass(frozen=True, repr=False)
class Compacted(Model):
    """The revision asked for is no longer kept: read the lists again and resume from `oldest`."""

    oldest: int
    """Oldest revision that can be resumed from."""


@dataclass(frozen=True, repr=False)
class ConstraintsBody(Model):
    """What the nodes must be like; every field left out means "any"."""

    exclude: Optional[str] = None
    """None of these, as a hostlist."""
    features: list[str] = _field(default_factory=list)
    """Features every node must carry."""
    gpu_models: list[str] = _field(default_factory=list)
    """Acceptable GPU models, any one of them; part of the name is enough, case is ignored. One
    text may name several: `V100M16|V100M32`."""
    gpus_per_node: Optional[int] = None
    """GPUs each node must have at least. On a node that has more the work sees so many, those
    that hang together best."""
    memory_bytes: Optional[int] = None
    """Memory each node must have at least, bytes."""
    nodelist: Optional[str] = None
    """Only these nodes, as a hostlist."""
    spread: Optional[str] = None
    """Layout over topology groups: `tight` (default), `spread` or `any`."""


@dataclass(frozen=True, repr=False)
class DagEdgeView(Model):
    """One that a member comes after."""

    condition: str
    """How that must have ended: `success`, `failure`, `any` or `corresponding`."""
    member: str
    """Which member."""


@dataclass(frozen=True, repr=False)
class DagJudged(Model):
    """The answer to the dry run of a submit: the graph would be accepted, and nothing was
    changed."""

    dry_run: bool
    """Always true."""
    members: list[DagMemberJudged]
    """What would be submitted, in that order."""
    revision: int
    """The revision it was judged at."""


@dataclass(frozen=True, repr=False)
class DagMemberJudged(Model):
    """A member that would be submitted, as the request was understood."""

    name: str
    """What it is called."""
    nodes: int
    """Nodes of it, or of each element of an array."""
    project: str
    """Whose limits apply."""
    vcluster: str
    """Where it would wait for nodes."""
    after: list[DagEdgeView] = _field(default_factory=list)
    """The members it comes after."""
    elements: Optional[int] = None
    """How many elements it has, of an array."""
    walltime: Optional[str] = None
    """As `1h30m`; absent: unbounded."""


@dataclass(frozen=True, repr=False)
class DagMemberView(Model):
    """A member as shown."""

    allocation: int
    """Its allocation."""
    name: str
    """What it is called."""
    after: list[DagEdgeView] = _field(default_factory=list)
    """The members it comes after."""
    state: Optional[str] = None
    """Where that stands; absent when it is not kept any more."""
    stop: Optional[str] = None
    """Why it is being, or was, stopped."""


@dataclass(frozen=True, repr=False)
class DagPlaceView(Model):
    """A member of a graph."""

    dag: int
    """Which graph."""
    member: str
    """What it is called there."""


@dataclass(frozen=True, repr=False)
class DagSubmitted(Model):
    """The answer to the submit of a graph."""

    id: int
    """Its number."""
    revision: int
    """The revision it was made at."""


@dataclass(frozen=True, repr=False)
class DagView(Model):
    """A graph as shown."""

    id: int
    """Its number. Its members' are behind it."""
    name: str
    """A name for people; may be empty."""
    project: str
    """The project of its first member."""
    revision: int
    """Last change."""
    size: int
    """How many members it has."""
    state: str
    """`running`; `completed`; `failed`: a member failed and no other comes after that;
    `cancelled`."""
    submitted_at: str
    """When it was submitted."""
    unfinished: int
    """Members that have not ended."""
    user: str
    """Who submitted it."""
    cancelled_by: Optional[str] = None
    """Who cancelled it."""
    ended_at: Optional[str] = None
    """When its last member ended."""
    failed: Optional[str] = None
    """The first member that failed without another that comes after its failure."""
    members: list[DagMemberView] = _field(default_factory=list)
    """Its members, in the order in which they were submitted; left out of lists."""


@dataclass(frozen=True, repr=False)
class DependencyView(Model):
    """One allocation after another, as shown."""

    condition: str
    """How that one must have ended: `success`, `failure`, `any` or `corresponding`."""
    on: int
    """Which one."""


@dataclass(frozen=True, repr=False)
class DiffView(Model):
    """Two nodes or groups, or a node and its cohort's majority, key by key."""

    differences: list[DifferenceView]
    """Keys on which they differ, or of which one side is unknown."""
    left: str
    """The left side: a node; of a group its digest, how many nodes it has, and which was
    compared."""
    right: str
    """The right side: the same, or `majority of` and the cohort."""


@dataclass(frozen=True, repr=False)
class DifferenceView(Model):
    """One key on which two sides do not agree, or may not."""

    class_: str = _field(metadata={"wire": "class"})
    """The class."""
    key: str
    """The key."""
    left: str
    """The left side's value as shown; other states stand in angle brackets."""
    right: str
    """The right side's."""
    verdict: str
    """`differs`, or `unknown` when a side is not known; `moved` says of a class, by the key
    `parts`, that both sides have the same parts in other places."""


@dataclass(frozen=True, repr=False)
class DiskPart(Model):
    """Which disk is in a slot."""

    address: Reading[str]
    """PCI address."""
    name: str
    """The kernel's name."""
    serial: Reading[str]
    """Serial number."""
    slot: str
    """As in `storage.<slot>` of keys."""
    wwid: Reading[str]
    """World-wide id."""


@dataclass(frozen=True, repr=False)
class DrainView(Model):
    """A drain reason with its owner."""

    owner: str
    """Who set it."""
    reason: str
    """Why."""
    since: str
    """Since when."""


@dataclass(frozen=True, repr=False)
class Drained(Model):
    """What a drain did."""

    revision: int
    """The revision it made."""
    given_up: Optional[HolderView] = None
    """Whose work was given up by force."""


@dataclass(frozen=True, repr=False)
class DriftReportView(Model):
    """Who is not what it is meant to be: judged by its baseline where one speaks for it, else by
    the majority of its cohort."""

    alone: str
    """Nodes judged by nothing (no baseline; cohort unknown, or fewer than four), as a hostlist."""
    drifted: list[DriftView]
    """By node, class, key."""
    no_majority: list[NoMajorityView]
    """Keys without a majority."""
    unknown: list[UnknownView]
    """What is not known."""
    brake: Optional[BrakeView] = None
    """Set while automatic draining stands still."""
    pending: Optional[str] = None
    """Nodes of which what it takes to judge them is not known, or not yet, as a hostlist: they
    are not known to be as they are meant to be."""


@dataclass(frozen=True, repr=False)
class DriftView(Model):
    """A node that is not what it is meant to be in one key."""

    class_: str = _field(metadata={"wire": "class"})
    """The class."""
    expected: str
    """What it is meant to be, or the majority's value."""
    found: str
    """The node's value."""
    key: str
    """The key, e.g. `nic.0.firmware`."""
    node: str
    """The node."""
    as_of: Optional[str] = None
    """Set where the node does not answer: it is shown as it was then, RFC 3339."""
    baseline: Optional[str] = None
    """That baseline's name."""
    by: Optional[str] = None
    """What it was judged by: `baseline h100 v3`, or `cohort` where no baseline speaks for it."""
    cohort: Optional[str] = None
    """By its cohort: which one that is: vendor, product, GPUs."""
    like: Optional[int] = None
    """By its cohort: those of them that have the majority's value."""
    of: Optional[int] = None
    """By its cohort: like nodes whose value is known, this one too."""
    policy: Optional[str] = None
    """What follows: `warn`, `deprioritise` or `drain`."""
    sensitive: Optional[str] = None
    """`strict`: it gets no new sensitive work. Left out where no baseline speaks for it."""
    since: Optional[str] = None
    """Since when it reads so, by the node's history; where that says nothing, since when the
    control that answers has seen the node's present record of the class."""
    since_or_before: bool = False
    """It was so when it was first seen: it may be older."""


@dataclass(frozen=True, repr=False)
class ElementView(Model):
    """An element of an array."""

    array: int
    """Which array."""
    index: int
    """Its index, as in `LATTICE_ARRAY_INDEX`."""


@dataclass(frozen=True, repr=False)
class Exhausted(Model):
    """A tenant that has used up a budget."""

    admins: list[str]
    """Who may see to it."""
    budget_used: float
    """The part used, 1 or more."""
    tenant: str
    """Which."""


@dataclass(frozen=True, repr=False)
class ExplanationView(Model):
    """Why an allocation does not run, or what it does instead."""

    allocation: int
    """Which."""
    state: str
    """Its state."""
    summary: str
    """All of it in one sentence."""
    as_of: Optional[str] = None
    """When the scheduler last looked at it."""
    blocker: Optional[str] = None
    """What stops it, for one that waits."""
    estimated_start: Optional[str] = None
    """When it is expected to start."""
    reserved: Optional[str] = None
    """Nodes that are held back for it from then on, as a hostlist."""
    score: Optional[ScoreView] = None
    """Its place in the queue, and why it is there."""
    steps: list[StepView] = _field(default_factory=list)
    """Constraints in the order in which they were applied."""


@dataclass(frozen=True, repr=False)
class FactorView(Model):
    """One of the nine factors."""

    name: str
    """Its name, as that of its weight."""
    value: float
    """The factor: 0 to 1; only wait_time goes above."""
    weight: float
    """Its weight in the vCluster."""


@dataclass(frozen=True, repr=False)
class FactsView(Model):
    """What placement may ask of a node; a field left out is unknown, which is never zero."""

    cores: Optional[int] = None
    """Physical cores."""
    features: list[str] = _field(default_factory=list)
    """What was seen to be there."""
    gpu_count: Optional[int] = None
    """Number of GPUs."""
    gpu_memory_bytes: Optional[int] = None
    """Memory of the smallest GPU, bytes."""
    gpu_model: Optional[str] = None
    """GPU model."""
    memory_bytes: Optional[int] = None
    """Memory the kernel can use, bytes."""
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
class FindingView(Model):
    """Two sources that should agree do not."""

    class_: str = _field(metadata={"wire": "class"})
    """The class it was found in."""
    code: str
    """Stable code, such as `gpu_count_mismatch`."""
    detail: str
    """What was seen, for a person."""


@dataclass(frozen=True, repr=False)
class FleetChangeView(Model):
    """One change that one or more nodes made."""

    causes: dict[str, int]
    """What made their agents look, with how many each: `boot`, `periodic`, …"""
    class_: str = _field(metadata={"wire": "class"})
    """The class."""
    count: int
    """How many."""
    first: str
    """The first of them, RFC 3339."""
    from_: str = _field(metadata={"wire": "from"})
    """As it was, as shown; other states than a value stand in angle brackets."""
    key: str
    """The key, e.g. `nic.0.firmware`."""
    last: str
    """The last of them, RFC 3339."""
    nodes: str
    """Who changed so, as a hostlist."""
    to: str
    """As it is."""
    verdict: str
    """`differs`; `unknown` where it could not be read before, or cannot be since: nobody knows
    whether it changed."""


@dataclass(frozen=True, repr=False)
class GpuPart(Model):
    """Which GPU is in a slot."""

    address: Reading[str]
    """PCI address."""
    model: Reading[str]
    """Model."""
    serial: Reading[str]
    """Serial number."""
    slot: int
    """As in `gpu.<slot>` of keys."""
    uuid: Reading[str]
    """UUID."""


@dataclass(frozen=True, repr=False)
class GpuPlaceView(Model):
    """Where a GPU sits."""

    chassis_serial: Reading[str]
    """The chassis' serial number."""
    gpu: int
    """The GPU's slot."""
    host: Reading[int]
    """The host in the tray."""
    module: Reading[int]
    """The module on its board."""
    slot: Reading[int]
    """The slot in the chassis."""
    tray: Reading[int]
    """The tray."""


@dataclass(frozen=True, repr=False)
class GraphEdgeView(Model):
    """One member after another."""

    condition: str
    """How the one before must have ended."""
    from_: str = _field(metadata={"wire": "from"})
    """The one before."""
    to: str
    """The one after."""


@dataclass(frozen=True, repr=False)
class GraphNodeView(Model):
    """A member."""

    allocation: int
    """Its allocation."""
    name: str
    """What it is called."""
    state: Optional[str] = None
    """Where that stands; absent when it is not kept any more."""


@dataclass(frozen=True, repr=False)
class GraphView(Model):
    """A graph as points and lines."""

    edges: list[GraphEdgeView]
    """From the one that comes before to the one that comes after."""
    id: int
    """Its number."""
    name: str
    """A name for people."""
    nodes: list[GraphNodeView]
    """A member each."""


@dataclass(frozen=True, repr=False)
class GroupView(Model):
    """Nodes that share a digest."""

    class_: str = _field(metadata={"wire": "class"})
    """The class, several with commas between them, or `all` for the node fingerprint."""
    count: int
    """How many."""
    digest: str
    """The shared digest, 64 hex digits."""
    nodes: str
    """Its members as a hostlist."""
    first_seen: Optional[str] = None
    """Since when the first of its members is so, by the nodes' histories; of members whose
    history says nothing, and of those beyond the first five hundred of all groups, when the
    control that answers first saw it."""


@dataclass(frozen=True, repr=False)
class GroupsView(Model):
    """The groups of one scope."""

    groups: list[GroupView]
    """Largest first."""
    unknown: str
    """Nodes whose digest is unknown, as a hostlist: equal to nobody."""
    not_read: list[NotReadView] = _field(default_factory=list)
    """Nodes where what is asked for is not read at all."""


@dataclass(frozen=True, repr=False)
class HeadroomLevelView(Model):
    """One level of a `HeadroomView`."""

    counted: UsageView
    """What counts against them for a request from the project that was asked for."""
    limits: LimitsBody
    """Its ceilings."""
    path: str
    """The project, or tenant."""


@dataclass(frozen=True, repr=False)
class HeadroomView(Model):
    """How much more a project could be given now, as far as limits go."""

    levels: list[HeadroomLevelView]
    """The levels that have a say, the project first."""
    path: str
    """Which project."""
    revision: int
    """When that was."""
    allocations: Optional[int] = None
    """Allocations that could hold nodes besides; `null` when no level limits them."""
    nodes: Optional[int] = None
    """Most nodes that one more allocation could have; 0 when none fits, `null` when no level
    limits them."""


@dataclass(frozen=True, repr=False)
class HealthView(Model):
    """A node's health verdict."""

    verdict: str
    """`healthy`, `degraded`, `faulty` or `unknown`."""
    reasons: list[str] = _field(default_factory=list)
    """Stable reason codes."""


@dataclass(frozen=True, repr=False)
class HeldValue(Model):
    """One value of a key without a majority."""

    nodes: str
    """Who holds it, as a hostlist."""
    value: str
    """The value as shown."""


@dataclass(frozen=True, repr=False)
class HistoryEntryView(Model):
    """A line of a node's history: a change of one of its classes, or something else that
    happened."""

    at: str
    """When, RFC 3339. Of something that happened several times, the last time."""
    kind: str
    """`change` of a class; `boot` of the host, start and end of the `agent`; kernel module
    (`driver`) or `device` that came or went; `xid`, or what AMD's driver tells instead; reason
    of the `health` checks that came or went, or was `cleared`; `drain`, `lifecycle` and
    `liveness` as this control saw them; what the `audit` says of the node, and what its `bmc`
    did (tasks that ended) and logged, for those who may read the audit. Newer agents may tell of
    more."""
    number: int
    """Rises with each line of the node that this control hears of. Lines are in order of time:
    one that was told late stands where it happened."""
    what: str
    """All of it in a line, for a person."""
    boot_id: Optional[str] = None
    """Under which boot of the host an agent wrote it; empty for what others told."""
    cause: Optional[str] = None
    """Of a change, what made the agent, or control, look: `first`, `boot`, `driver_load`,
    `device_event`, `operator`, `agent_start`, `periodic`. The occasion, not a proof."""
    changes: list[KeyChangeView] = _field(default_factory=list)
    """The keys that changed, sorted. None for a class that was read for the first time."""
    class_: Optional[str] = _field(default=None, metadata={"wire": "class"})
    """Of a change, the class."""
    event: Optional[NodeEventView] = None
    """Of everything but a change."""
    from_: Optional[str] = _field(default=None, metadata={"wire": "from"})
    """Of a change, what was published before: `<schema>:<digest>`, `incomplete`, `disabled`.
    None for the first time."""
    more: Optional[int] = None
    """Keys that changed and are not listed."""
    occasion: Optional[str] = None
    """The cause in words, with the module, the device or the person."""
    source: Optional[str] = None
    """Who told it: `agent`, from its journal; `bmc`, as this control read it; or `control`."""
    to: Optional[str] = None
    """Of a change, what is published since."""


@dataclass(frozen=True, repr=False)
class HolderView(Model):
    """The attempt that holds a node."""

    allocation: int
    """The allocation."""
    attempt: int
    """Its attempt."""


@dataclass(frozen=True, repr=False)
class InventoryFacts(Model):
    """The node as a resource. What is not known is never zero."""

    cores: Reading[int]
    """Physical cores."""
    features: list[str]
    """What was seen to be there; what is not named may be missing or unknown."""
    gpu_count: Reading[int]
    """Number of GPUs the driver can use; absent on a node without any."""
    gpu_memory_bytes: Reading[int]
    """Memory of the smallest GPU, bytes."""
    gpu_model: Reading[str]
    """GPU model, if all GPUs share one."""
    memory_bytes: Reading[int]
    """Memory the kernel can use, bytes."""
    numa_nodes: Reading[int]
    """NUMA nodes."""
    rdma_count: Reading[int]
    """RDMA-capable network functions."""
    sockets: Reading[int]
    """Processor packages."""
    threads: Reading[int]
    """Hardware threads online."""


@dataclass(frozen=True, repr=False)
class InventoryIdentity(Model):
    """Which node it is, and which parts are in it."""

    board_serial: Reading[str]
    """The board's serial number."""
    boot_id: Reading[str]
    """The boot."""
    chassis_serial: Reading[str]
    """The chassis' serial number."""
    dimm_serials: list[Reading[str]]
    """Serial numbers of its memory modules."""
    disks: list[DiskPart]
    """Its disks."""
    gpu_count: Reading[int]
    """Number of GPUs."""
    gpu_model: Reading[str]
    """GPU model, if all GPUs share one."""
    gpus: list[GpuPart]
    """Its GPUs."""
    hostname: Reading[str]
    """The host's name."""
    nics: list[NicPart]
    """Its NICs."""
    product: Reading[str]
    """Product name."""
    product_serial: Reading[str]
    """The system's serial number."""
    product_uuid: Reading[str]
    """The system's UUID."""
    vendor: Reading[str]
    """System vendor."""


@dataclass(frozen=True, repr=False)
class InventoryPower(Model):
    """What the node draws and what limits it."""

    draw: Reading[int]
    """Milliwatts."""
    exception_action: Reading[str]
    """What happens when the limit cannot be kept."""
    limit: Reading[int]
    """Milliwatts."""
    limit_max: Reading[int]
    """Highest limit that may be set, milliwatts."""
    limit_min: Reading[int]
    """Lowest limit that may be set, milliwatts."""
    limit_state: str
    """`absent`, `uncapped`, `set` or `unknown`."""
    source: str
    """Where the draw comes from."""


@dataclass(frozen=True, repr=False)
class InventoryTopology(Model):
    """How devices hang together, read from the machine."""

    fabric: Reading[str]
    """The NVLink fabric it belongs to."""
    nvlinks: list[NvlinkView]
    """NVLinks by peer."""
    pairs: list[PairView]
    """Distances between devices."""
    places: list[GpuPlaceView]
    """Where its GPUs sit."""


@dataclass(frozen=True, repr=False)
class InventoryView(Model):
    """Everything one pass over a node learned."""

    facts: InventoryFacts
    """What placement may ask."""
    findings: list[FindingView]
    """Contradictions between sources."""
    identity: InventoryIdentity
    """Names, serials, addresses: never compared."""
    probes: list[ProbeView]
    """How each probe went."""
    records: dict[str, RecordView]
    """One record for each class."""
    stuck: dict[str, int]
    """Processes of earlier probes that could not be ended and are still there, by probe."""
    topology: InventoryTopology
    """How its devices hang together."""
    vitals: dict[str, Reading[Union[bool, int, str, list[str]]]]
    """Live values, by key."""
    power: Optional[InventoryPower] = None
    """What it draws, by the best source that was asked; null where nothing measures it."""


@dataclass(frozen=True, repr=False)
class KeptView(Model):
    """A checkpoint that work can go on from."""

    asked_at: str
    """When it was asked for: what was done since is not in it."""
    attempt: int
    """The attempt that wrote it."""
    directory: str
    """Where it is."""
    number: int
    """Its number."""
    progress: str
    """How long the work had run then, in all attempts that are in it."""
    took: str
    """How long that took."""
    written_at: str
    """When it was whole."""
    bytes: Optional[int] = None
    """Bytes, where every rank said."""


@dataclass(frozen=True, repr=False)
class KeyChangeView(Model):
    """One key that changed."""

    from_: str = _field(metadata={"wire": "from"})
    """As it was, as shown; other states than a value stand in angle brackets."""
    key: str
    """The key, e.g. `nic.0.firmware`."""
    to: str
    """As it is."""


@dataclass(frozen=True, repr=False)
class LimitsBody(Model):
    """A project's ceilings; `null` is unlimited."""

    max_concurrent_allocations: Optional[int] = None
    """Allocations holding nodes at the same time."""
    max_nodes: Optional[int] = None
    """Nodes held at the same time by the project and everything below it."""


@dataclass(frozen=True, repr=False)
class MovementView(Model):
    """How a vCluster's work is moved, as it is in force."""

    checkpoint: CheckpointSettingsView
    """When its work writes checkpoints, and how long one may take."""
    preemption: PreemptionView
    """Who makes room for work of a higher class."""
    scaling: ScalingView
    """How quickly its services follow their metrics."""
    set: list[str]
    """Those that somebody has set, as `preemption.patience_s`. All others are as by default."""
    sharing: SharingView
    """What it lends and borrows."""
    unread: list[str]
    """Stored settings that do not fit together, and why. The defaults hold for them."""


@dataclass(frozen=True, repr=False)
class NicPart(Model):
    """Which NIC is in a slot."""

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
    """As in `nic.<slot>` of keys."""


@dataclass(frozen=True, repr=False)
class NoMajorityView(Model):
    """A key on which a cohort disagrees without a majority: nobody drifts."""

    class_: str = _field(metadata={"wire": "class"})
    """The class."""
    cohort: str
    """The cohort: vendor, product, GPUs."""
    key: str
    """The key."""
    values: list[HeldValue]
    """Each value with its holders."""


@dataclass(frozen=True, repr=False)
class NodeEventView(Model):
    """What happened, in parts. Which there are depends on the kind."""

    action: Optional[str] = None
    """What helps: `none`, `restart_application`, `reset_gpu`, `reboot`, `power_cycle`, `update`,
    `inspect`."""
    address: Optional[str] = None
    """The PCI address of a GPU."""
    bmc_time: Optional[str] = None
    """When a BMC did it by its own clock, RFC 3339. Where that clock cannot be right, the line
    stands at `read_at`."""
    by: Optional[str] = None
    """Whose the drain is, who cleared, who did what is in the audit."""
    code: Optional[str] = None
    """Stable code: `gpu.xid.79`, `gpu.amd.fatal`, a check's name; the id of a BMC's message."""
    count: Optional[int] = None
    """For how many occurrences it stands, where that is more than one."""
    detail: Optional[str] = None
    """What was read or said: evidence, a reason, a version, the boot before."""
    entity: Optional[str] = None
    """The part: `gpu.3`, a kernel module, a device; the name of a BMC's task."""
    first_at: Optional[str] = None
    """The first of them, RFC 3339; of a boot, when the kernel began to run; of a BMC's task,
    when it began."""
    late: bool = False
    """It happened at this time or before: this control did not look."""
    left_out: Optional[int] = None
    """Events of this kind before it that are not written down: too many."""
    observe_only: bool = False
    """A reason that is only watched."""
    read_at: Optional[str] = None
    """When this control read it from the BMC, RFC 3339."""
    severity: Optional[str] = None
    """`inform`, `degraded`, `faulty`; in a BMC's own words `ok`, `warning`, `critical`."""
    state: Optional[str] = None
    """What became of it: `began`, `changed`, `ended` of a reason; `set`, `changed`, `cleared` of
    a drain; `unreachable`, `alive`, or `suspect` of a time that is over; `stopped` of an agent;
    the lifecycle; the audit's action; how a BMC's task ended: `completed`, `exception`,
    `killed`, `cancelled`, `failed`."""
    told_by: Optional[str] = None
    """Who told of an XID: `nvml`, `kernel_log`, `both`; which of a BMC's logs, or its `tasks`."""
    xid: Optional[int] = None
    """The number of an XID."""


@dataclass(frozen=True, repr=False)
class NodeHealthView(Model):
    """What a node's checks say, asked of it now, and what its BMC says."""

    cleared: int
    """Reasons that this request ended."""
    node: str
    """The node."""
    reasons: list[ReasonView]
    """Worst first."""
    table: str
    """The table of checks it is judged by; with `+` where the site changed it. Empty where its
    agent does not answer."""
    agent_error: Optional[str] = None
    """Why its agent said nothing: the reasons are its BMC's, and of a node that does not answer
    those of the last pass that was heard of (`as_of`)."""
    as_of: Optional[str] = None
    """Set where its agent does not answer and its reasons are of the last pass that this control
    heard of: when the node was there last, RFC 3339."""
    bmc_read_at: Optional[str] = None
    """When its BMC was last looked at, RFC 3339; none where this control reads none of it."""


@dataclass(frozen=True, repr=False)
class NodeView(Model):
    """A node as shown."""

    classes: dict[str, ClassView]
    """Each class's mark."""
    drain: list[DrainView]
    """Open drain reasons."""
    facts: FactsView
    """What placement may ask."""
    health: HealthView
    """What its checks say."""
    lifecycle: str
    """Intent: `joining`, `ready`, `draining`, `drained`, `quarantined` or `retired`;
    `unregistered` for one that gossips but is not registered."""
    liveness: str
    """`alive`, `suspect`, `unreachable` or `unknown`."""
    name: str
    """Its name."""
    revision: int
    """Last change of its replicated record; 0 for one that is not registered."""
    vcluster: str
    """The vCluster that uses it."""
    agent_version: Optional[str] = None
    """The agent's version."""
    boot_id: Optional[str] = None
    """The host's boot id."""
    cell: Optional[str] = None
    """Its gossip cell."""
    certificate: Optional[CertificateView] = None
    """Its certificate; only of a single node, for operators, while the quorum answers."""
    claim: Optional[ClaimView] = None
    """Whose it is: a claimed node takes nothing but its user's sensitive work."""
    claim_refused: Optional[str] = None
    """Why it gets no sensitive work: what its own signed claim said against what it gossips."""
    drifted_keys: Optional[int] = None
    """Keys in which it differs from its baseline, or else from the majority of its cohort; left
    out where it was held against neither, or not yet, or nothing differs and a class is not
    known: that is not zero."""
    fingerprint: Optional[str] = None
    """The node fingerprint, 64 hex digits; absent while a class is incomplete or unseen."""
    group: Optional[str] = None
    """Its topology (dragonfly) group."""
    holder: Optional[HolderView] = None
    """Who holds it."""
    last_seen: Optional[str] = None
    """When it last answered."""
    lent_by: Optional[str] = None
    """The vCluster it belongs to, where another one uses it for now."""
    liveness_reason: Optional[str] = None
    """Why it is thought to be so, where that is known."""
    power: Optional[PowerView] = None
    """What it draws and what limits it, by its BMC. Where control reads no BMC of it, what its
    agent measures in band, and that of a single node alone; else none."""


@dataclass(frozen=True, repr=False)
class NotReadView(Model):
    """Nodes where a class is not read, by intention."""

    nodes: str
    """A hostlist."""
    why: str
    """Why not: `no BMC configured`."""


@dataclass(frozen=True, repr=False)
class NvlinkView(Model):
    """Links of a GPU to one peer."""

    gpu: int
    """The GPU's slot."""
    links: int
    """How many links."""
    to: Reading[str]
    """The peer."""


@dataclass(frozen=True, repr=False)
class Observed(Model):
    """Nodes whose liveness, health, facts or digests are seen to be different, and allocations
    whose reason to wait is."""

    exhausted: list[Exhausted] = _field(default_factory=list)
    """Tenants that have used up a budget: their pending work waits behind the others' from now
    on, and what runs goes on."""
    nodes: list[NodeView] = _field(default_factory=list)
    """As they are now."""
    waiting: list[Waiting] = _field(default_factory=list)
    """Allocations with their reason to wait."""


@dataclass(frozen=True, repr=False)
class OutlookView(Model):
    """What the next scheduling cycle would make of it, as things are."""

    starts_now: bool
    """Whether it would start at once."""
    summary: str
    """All of it in one sentence."""
    explanation: Optional[ExplanationView] = None
    """Why it would wait, as of one that waits; its number is 0."""
    groups: list[str] = _field(default_factory=list)
    """The topology groups that these are in."""
    nodes: Optional[str] = None
    """The nodes it would start on, as a hostlist."""
    score: Optional[ScoreView] = None
    """Its score, with topology and conformance of these nodes."""
    span: Optional[int] = None
    """How many groups they are in; a node whose group is not known counts as one."""


@dataclass(frozen=True, repr=False)
class PairView(Model):
    """How far two devices are from each other."""

    a: str
    """One, such as `gpu.0`."""
    b: str
    """The other, such as `nic.1`."""
    distance: Reading[str]
    """`PIX`, `PXB`, `PHB`, `NODE` or `SYS`, as `nvidia-smi topo` says it."""


@dataclass(frozen=True, repr=False)
class ParkedView(Model):
    """Something that the accounting system refuses."""

    reason: str
    """What the accounting system says."""
    since: str
    """Since when."""
    what: str
    """What it is about."""


@dataclass(frozen=True, repr=False)
class PausedView(Model):
    """A project that begins nothing new in a vCluster."""

    project: str
    """Which."""
    vcluster: str
    """Where."""


@dataclass(frozen=True, repr=False)
class PowerView(Model):
    """What a node draws and what limits it."""

    draw_state: str
    """`present`, or why there is no draw: `absent`, `unsupported`, `denied`, `failed`,
    `timeout`, `disabled`."""
    limit_state: str
    """`absent`: nothing could limit it; `uncapped`; `set`; `unknown`."""
    source: str
    """Where the draw comes from: the resource of the BMC, or what the agent reads (`ipmi`,
    `hwmon/…`); empty where there is none."""
    draw_watts: Optional[int] = None
    """To the nearest watt; none where it is not known, which is not zero."""
    exception_action: Optional[str] = None
    """What the BMC does when the limit cannot be kept, as it says."""
    limit_max_watts: Optional[int] = None
    """Highest limit that may be set, watts."""
    limit_min_watts: Optional[int] = None
    """Lowest limit that may be set, watts."""
    limit_watts: Optional[int] = None
    """Watts; only with `limit_state` `set`."""
    read_at: Optional[str] = None
    """When its BMC last told anything of its power, RFC 3339; none where it never did, and of
    what the agent measures, which is of its last probe."""
    reason: Optional[str] = None
    """Why the draw is not known, in words; none where it is."""


@dataclass(frozen=True, repr=False)
class PreemptionView(Model):
    """Who makes room for work of a higher class."""

    enabled: bool
    """Whether anybody does. Default: true."""
    max_victims: int
    """How many make room for one, at most; 1 to 3. Default: 3."""
    near_completion_threshold_s: float
    """Work so near its end is left alone, seconds. Default: 300."""
    only_borrowed: bool
    """Only work that has nothing but borrowed nodes makes room: so it is for services. Default:
    false."""
    patience_s: float
    """How long work waits, and would wait on, before others make room for it, seconds. Default:
    60."""
    thrash_count: int
    """Work that was preempted so often counts as one class higher; 0: never. Default: 3."""
    thrash_interval_s: float
    """Work that was preempted or resumed so recently is left alone, seconds. Default: 900."""


@dataclass(frozen=True, repr=False)
class ProbeView(Model):
    """How one probe went."""

    class_: str = _field(metadata={"wire": "class"})
    """The class it fills."""
    duration_us: int
    """Wall time, microseconds."""
    keys: int
    """Keys in the record."""
    name: str
    """Its name."""
    outcome: str
    """`complete`, `incomplete`, `hung`, `failed` or `disabled`."""
    unknown: int
    """Keys that are unknown."""
    loss: Optional[LossView] = None
    """What went wrong, where the probe as a whole gave nothing."""
    why: Optional[str] = None
    """The same for a person."""


@dataclass(frozen=True, repr=False)
class ProblemDocument(Model):
    """A "no" in the form of RFC 9457."""

    code: str
    """Stable word for machines, e.g. `limit_exceeded`."""
    detail: str
    """What is wrong and what to do next. One block per violated level, the project first."""
    status: int
    """HTTP status."""
    title: str
    """The kind in words."""
    type: str
    """`urn:lattice:problem:` and the code."""
    field: Optional[str] = None
    """The field that is wrong, when it is one."""
    violations: list[Violation] = _field(default_factory=list)
    """The violated levels, the project first."""


@dataclass(frozen=True, repr=False)
class ProjectView(Model):
    """A tenant or project as shown."""

    admins: list[str]
    """Who administers it."""
    created_at: str
    """When it was created."""
    description: str
    """Text for people."""
    limits: LimitsBody
    """Its ceilings."""
    own: UsageView
    """Used by the project itself."""
    path: str
    """`tenant/a/b`."""
    revision: int
    """Last change."""
    subtree: UsageView
    """Used by everything below it."""
    total: UsageView
    """The sum of both: what the limit is compared with."""
    overcommitted: bool = False
    """By force the limits of its children add up to more than its own. Requests have to fit here
    all the same."""


@dataclass(frozen=True, repr=False)
class QuorumMemberView(Model):
    """One member."""

    address: str
    """Its mesh address."""
    id: int
    """Its number."""
    role: str
    """`leader`, `voter`, or `learner`: being brought up to date, without a vote."""
    applied_index: Optional[int] = None
    """Last log entry it applied."""
    build: Optional[str] = None
    """Version of its program."""
    data_format: Optional[int] = None
    """Format of its data directory."""
    fault: Optional[str] = None
    """Why it did not answer; absent when it did."""
    heard_ms: Optional[int] = None
    """Milliseconds since the leader heard from it; absent for the leader, and when it was not
    heard since that one began."""
    lag: Optional[int] = None
    """Log entries behind the leader; absent while that is not known."""
    last_log_index: Optional[int] = None
    """Last log entry it has."""
    revision: Optional[int] = None
    """Revision of its state."""
    snapshot_index: Optional[int] = None
    """Last log entry its newest snapshot covers."""
    term: Optional[int] = None
    """Its term."""


@dataclass(frozen=True, repr=False)
class QuorumStep(Model):
    """How far a change is. Ask again, with the same key, until it is done."""

    already: bool
    """It was so before; nothing was done now."""
    state: str
    """`done`, `catching_up` or `under_way`."""
    at: Optional[int] = None
    """Last log entry the new member has, while it catches up."""
    fault: Optional[str] = None
    """Why the last call to the new member failed."""
    leader: Optional[int] = None
    """Who leads, once it is done."""
    of: Optional[int] = None
    """Last log entry there is, while it catches up."""


@dataclass(frozen=True, repr=False)
class QuorumView(Model):
    """All members, as the leader sees them, or any member while there is none."""

    cluster: str
    """The cluster's name."""
    incarnation: int
    """Which life of it: 1 as it was founded, one more with each restore from a backup."""
    majority: int
    """Voters that must answer for anything to be changed."""
    members: list[QuorumMemberView]
    """By number."""
    reachable: int
    """Voters that answered."""
    term: int
    """The newest term."""
    told_by: int
    """The member that was asked, and asked the others."""
    warnings: list[str]
    """What somebody should look at, the worst first; empty when all is well."""
    leader: Optional[int] = None
    """Who leads; absent while nobody does."""
    restored_from: Optional[str] = None
    """What it was restored from, 16 hex digits; absent for a cluster as it was founded."""


@dataclass(frozen=True, repr=False)
class RankView(Model):
    """One rank as shown."""

    node: str
    """Its node."""
    phase: str
    """`assigned`, `running` or `ended`."""
    rank: int
    """Its number, from 0."""
    exit: Optional[str] = None
    """How it ended."""
    since: Optional[str] = None
    """Since when, by the node's clock."""


@dataclass(frozen=True, repr=False)
class ReasonView(Model):
    """One thing that is wrong with one part of a node."""

    action: str
    """What helps: `none`, `restart_application`, `reset_gpu`, `reboot`, `power_cycle`, `update`,
    `inspect`."""
    code: str
    """Stable code: a check's name, or an event's: `gpu.xid.<number>`, `gpu.amd.<event>`."""
    count: int
    """How often it was seen."""
    entity: str
    """The part: `gpu.3`, `nic.0.port.1`."""
    evidence: str
    """What was read."""
    first_seen: str
    """RFC 3339."""
    last_seen: str
    """RFC 3339."""
    observe_only: bool
    """Only watched: it counts in no verdict."""
    severity: str
    """`inform`, `degraded` or `faulty`; `unknown` where something cannot be read."""
    source: Optional[str] = None
    """Who says so: `agent`, `bmc`, as this control read it, or `control` itself."""


@dataclass(frozen=True, repr=False)
class ReconcileView(Model):
    """What was found."""

    differences: list[TotalDifference]
    """Totals that are, or were, not what was used; none: all are right."""


@dataclass(frozen=True, repr=False)
class RecordView(Model):
    """Everything of one class that should be equal between equal nodes."""

    class_: str = _field(metadata={"wire": "class"})
    """The class."""
    entries: dict[str, Reading[Union[bool, int, str, list[str]]]]
    """Every key, such as `nic.0.firmware`, with what came of reading it."""
    required: list[str]
    """Keys without which the class has no digest."""
    schema: int
    """The schema of keys and values."""
    disabled: Optional[str] = None
    """Why the class is not probed; null where it is."""


@dataclass(frozen=True, repr=False)
class Released(Model):
    """What a release did."""

    nodes: str
    """The nodes, as a hostlist. They are free when their wipe is confirmed."""
    revision: int
    """The last revision it made."""


@dataclass(frozen=True, repr=False)
class Reprobed(Model):
    """What a node is by a reading that was just made."""

    classes: dict[str, ClassView]
    """Each class by this reading, with what its BMC told last."""
    differs: list[str]
    """Classes that are other than the node announces. A change is announced once it was read
    twice."""
    node: str
    """The node."""
    bmc: Optional[BmcLooked] = None
    """What came of looking at its BMC; none where control reads none of it."""
    fingerprint: Optional[str] = None
    """The node fingerprint by this reading, with what its BMC told last, 64 hex digits: the one
    that it is grouped by once it announces this. None while a class is incomplete."""


@dataclass(frozen=True, repr=False)
class ReservationConflictView(Model):
    """Work on nodes of a reservation that is not for it."""

    allocation: int
    """The allocation."""
    nodes: str
    """Which of the nodes it holds, as a hostlist."""
    until: Optional[str] = None
    """When its walltime is over; absent: it has none."""


@dataclass(frozen=True, repr=False)
class ReservationView(Model):
    """A reservation as shown."""

    active: bool
    """Whether it holds now."""
    by: str
    """Who made it, or changed it last."""
    from_: str = _field(metadata={"wire": "from"})
    """From when on nobody else has them."""
    name: str
    """Its name."""
    node_count: int
    """How many."""
    nodes: str
    """Which nodes, as a hostlist."""
    projects: list[str]
    """Projects whose work may use them, those that the asker sees."""
    reason: str
    """Why."""
    revision: int
    """Last change."""
    usable: bool
    """Whether the asker may use them."""
    users: list[str]
    """Users who may use them, those that the asker may know."""
    conflicts: list[ReservationConflictView] = _field(default_factory=list)
    """Work that it is not for, and that holds nodes of it now and may still do so when it
    begins: none is stopped for it. That which the asker sees."""
    until: Optional[str] = None
    """Until when, exclusive; absent: until it is deleted."""


@dataclass(frozen=True, repr=False)
class RevocationView(Model):
    """A revocation as shown."""

    by: str
    """Who said so."""
    issued_before: str
    """Certificates issued before this moment hold no more."""
    reason: str
    """Why."""


@dataclass(frozen=True, repr=False)
class ScaleBody(Model):
    """Work whose number of nodes follows a metric."""

    max_nodes: int
    """Most nodes."""
    metric: MetricBody
    """What is measured: `gpu`, `cpu`, or `{"prometheus": "QUERY"}`."""
    min_nodes: int
    """Fewest nodes, at least 1; it starts with these."""
    target: float
    """More of it than this asks for a node more; above 0."""
    cooldown: Optional[str] = None
    """Nothing changes for so long after a change; `0s` for none."""
    down_threshold: Optional[float] = None
    """The lower threshold, a part of the target between 0 and 1."""
    down_window: Optional[str] = None
    """The metric is below the lower threshold for so long before one is given back."""
    up_window: Optional[str] = None
    """The metric is above the target for so long before a node is added, written as a walltime
    is. What is left out is as the vCluster says."""


@dataclass(frozen=True, repr=False)
class ScalingView(Model):
    """How quickly its services follow their metrics."""

    backoff_cooldowns: int
    """For how many cooldowns nothing is proposed then. Default: 2."""
    calm_s: float
    """How long it must have been calm for a change to be no turn, seconds. Default: 3600."""
    cooldown_s: float
    """How long it stays as it is after a change, seconds. Default: 180."""
    down_window_s: float
    """How long it must be below the threshold, seconds. Default: 300."""
    evaluation_s: float
    """How often its metric is read, seconds. Default: 60."""
    missing_alert: int
    """Evaluations without a metric, in a row, until somebody is told. Default: 3."""
    oscillation_alert: int
    """Turns from growing to shrinking or back, in a row, until somebody is told. Default: 5."""
    retries: int
    """How often a proposal that was refused is made again. Default: 3."""
    threshold: float
    """Below this part of the target a service shrinks; above 0 and below 1. Default: 0.5."""
    up_window_s: float
    """How long the metric must be above the target, seconds. Default: 120."""


@dataclass(frozen=True, repr=False)
class SchedulerView(Model):
    """How a vCluster's scheduler decides."""

    reference_wait_s: float
    """Seconds of waiting after which the wait time factor is ln 2."""
    reservations: ReservationsView
    """Which blocked jobs get nodes held back for them."""
    weights: WeightsView
    """Weights of the score."""
    weights_sum: float
    """What the weights add up to."""
    checkpoint_gb_s: Optional[float] = None
    """What all nodes together write to checkpoint storage, GB/s; `null`: not known."""
    profile: Optional[str] = None
    """The kind of work whose weights it was given last; `null`: of none. Single ones may be
    others since. The nodes of one for `sensitive` work are not lent."""


@dataclass(frozen=True, repr=False)
class ScoreView(Model):
    """What decided about the place in the queue."""

    ahead: int
    """How many of its queue were looked at before it in the last cycle."""
    budget: float
    """What the tenant's budgets leave of it: 1 up to 80 % used, 0.05 when used up."""
    factors: list[FactorView]
    """The nine factors, in the order of the scheduling document."""
    sum: float
    """Values times weights, added up."""
    total: float
    """The product, by which the queue is ordered."""


@dataclass(frozen=True, repr=False)
class SharingView(Model):
    """What it lends and borrows."""

    allow_borrowing: bool
    """Whether it borrows. Default: true."""
    allow_lending: bool
    """Whether its idle nodes are lent. Default: true; false where its weights are those of
    `sensitive`, and never anything else there."""
    return_grace_s: float
    """How long a borrower keeps a node that is asked back before its work is stopped, seconds.
    Default: 60."""
    borrowing_limit: Optional[int] = None
    """Most nodes that it has borrowed at once. Default: any number."""
    lending_limit: Optional[int] = None
    """Most of its nodes that are lent at once. Default: all that are idle."""


@dataclass(frozen=True, repr=False)
class StatusView(Model):
    """Counts and the state of the services."""

    allocations_by_state: dict[str, int]
    """Allocations by state, ended ones included. While the quorum does not answer only those
    that have not ended: a state that is not here is not known to be empty."""
    cells: dict[str, int]
    """Gossip cells with their members seen."""
    cluster: str
    """The cluster's name."""
    leader: bool
    """Whether this control acts: it dispatches, or schedules a vCluster (holds such a lease)."""
    nodes: int
    """Registered nodes."""
    nodes_by_lifecycle: dict[str, int]
    """Nodes by lifecycle."""
    nodes_by_liveness: dict[str, int]
    """Nodes by liveness."""
    nodes_held: int
    """Nodes held by an allocation."""
    principal: str
    """Who asks, as the token says."""
    revision: int
    """Revision of the view this was made from."""
    roles: list[str]
    """With these roles."""
    version: str
    """Version of this control service."""
    view_age_ms: int
    """Milliseconds since the quorum was last heard."""
    nodes_drifted: Optional[int] = None
    """Nodes that differ from their baseline, or else from the majority of their cohort, of those
    that were judged; left out while none was."""
    nodes_not_judged: Optional[int] = None
    """Nodes of which it is not known, or not yet, whether they differ."""


@dataclass(frozen=True, repr=False)
class StepView(Model):
    """One constraint's effect on the nodes that were left."""

    constraint: str
    """The constraint in words."""
    left: int
    """Nodes that were left."""
    removed: int
    """Nodes it dropped."""


@dataclass(frozen=True, repr=False)
class Submitted(Model):
    """The answer to a submit."""

    dry_run: bool
    """Whether nothing was changed."""
    revision: int
    """The revision it was made, or judged, at."""
    id: Optional[int] = None
    """Its number; absent for a dry run, which makes nothing."""
    outlook: Optional[OutlookView] = None
    """What would become of it, of a dry run; absent where this control cannot plan at present."""


@dataclass(frozen=True, repr=False)
class SystemLimitsView(Model):
    """What is limited for the whole cluster."""

    limit_policy: str
    """What limits of projects mean: `strict` or `flat`."""
    sensitive_pool_size: Optional[int] = None
    """Nodes that can be claimed for sensitive use; `null`: unlimited."""


@dataclass(frozen=True, repr=False)
class TallyView(Model):
    """How many elements of an array are where."""

    blocked: int
    """Wait for the same index of another array."""
    cancelled: int
    """Were cancelled, before they had nodes or later."""
    completed: int
    """Completed."""
    elements: int
    """All of them."""
    failed: int
    """Failed."""
    pending: int
    """Wait for nodes."""
    running: int
    """Have an allocation of their own that has not ended."""


@dataclass(frozen=True, repr=False)
class TenantUsage(Model):
    """What a tenant has used in a window of days that ends now, and how it stands to what it is
    meant to use."""

    budget_factor: float
    """What scores of its pending work are multiplied by: 1 up to 0.8 of a budget, 0.05 from its
    end on."""
    budget_period_days: int
    """Days of the rolling window in which budgets are used."""
    burst: bool
    """Whether it holds more than its share: what of its work began last is the first to make
    room."""
    days: int
    """Days of the window. Budgets are always of the cluster's own period, `budget_period_days`."""
    downscaled: bool
    """The accounting system asked that its work be put behind the others'."""
    gpu_hours_used: float
    """Hours of GPUs that work used, by how many GPUs its nodes have now; a node of which nobody
    knows that counts one."""
    idle_claimed_node_hours: float
    """Hours of nodes that were claimed for sensitive work and ran nothing. They are billed, and
    use no budget."""
    node_hours_used: float
    """Hours of nodes that work used. What lies before the window does not count, nor does
    suspended time."""
    paused: list[PausedView]
    """Where the accounting system asked that nothing new begins."""
    revision: int
    """The revision that this is of, at least."""
    share: float
    """The part of the cluster's nodes that it holds now."""
    since: str
    """Since when."""
    source: str
    """Who says how much of the budget is used: `ledger`, the cluster's own count, or
    `accounting`, the system that it reports to."""
    tenant: str
    """Which tenant."""
    until: str
    """Until when: what runs is counted up to here."""
    budget_used: Optional[float] = None
    """The part used of the budget that is nearer its end, 1 when it is used up; `null` without a
    budget."""
    burst_allowance: Optional[float] = None
    """How many times that part it may hold while others need nothing; `null`: none is said."""
    fair_share_target: Optional[float] = None
    """The part of the cluster that it is to have; `null`: none is said."""
    gpu_hours_budget: Optional[float] = None
    """Hours of GPUs that may be used in it; `null`: no budget."""
    node_hours_budget: Optional[float] = None
    """Hours of nodes that may be used in it; `null`: no budget."""


@dataclass(frozen=True, repr=False)
class TenantView(Model):
    """A tenant as shown."""

    admins: list[str]
    """Who administers it and may set the limits of its projects."""
    created_at: str
    """When it was created."""
    description: str
    """Text for people."""
    id: str
    """Its name, which is the path of its root project."""
    revision: int
    """Last change."""
    usage: UsageView
    """What it and everything in it uses."""
    burst_allowance: Optional[float] = None
    """How many times that part it may hold while others need nothing, 1 or more; `null`: none is
    said."""
    fair_share_target: Optional[float] = None
    """The part of the cluster that it is to have, 0 to 1; `null`: none is said."""
    gpu_hours_budget: Optional[float] = None
    """Hours of GPUs that its work may use in the budget period; `null`: no budget. Beyond it
    nothing is refused: its work waits behind the others'."""
    max_concurrent_allocations: Optional[int] = None
    """Allocations of it that may hold nodes at the same time; `null`: unlimited."""
    max_nodes: Optional[int] = None
    """Nodes that it and everything in it may hold at the same time."""
    node_hours_budget: Optional[float] = None
    """Hours of nodes, likewise. Of two budgets the one that is nearer its end counts."""
    overcommitted: bool = False
    """By force the limits of its projects add up to more than its own. Requests have to fit here
    all the same."""


@dataclass(frozen=True, repr=False)
class TokenCreated(Model):
    """A join token, told this once: only its hash is kept."""

    expires_at: str
    """Until when it is good."""
    token: str
    """The whole text, secret included."""
    uses: int
    """How many enrolments it is good for."""
    id: Optional[str] = None
    """What lists call it, and what withdraws it: the beginning of its hash."""


@dataclass(frozen=True, repr=False)
class TokenView(Model):
    """A join token as lists show it: nothing of it lets anybody enrol."""

    by: str
    """Who made it."""
    cidrs: list[str]
    """The only networks it may be used from; empty for any."""
    expires_at: str
    """Until when it is good."""
    id: str
    """The beginning of its hash."""
    replace: bool
    """Whether it may take a name that is enrolled already."""
    role: str
    """What it enrols."""
    uses_left: int
    """How many enrolments are left."""
    nodes: Optional[str] = None
    """The only names that may enrol with it, as a hostlist; absent for any."""


@dataclass(frozen=True, repr=False)
class TotalDifference(Model):
    """One total that is, or was, not what was used."""

    component: str
    """`gpu_hours` or `node_hours`."""
    had: float
    """What the accounting system had."""
    month: str
    """Of which month: `2026-11`."""
    outcome: str
    """`found`, `corrected` or `not_bookable`."""
    project: str
    """Of which project."""
    used: float
    """What was used."""
    vcluster: str
    """In which vCluster."""
    reason: Optional[str] = None
    """Why it could not be put right."""


@dataclass(frozen=True, repr=False)
class Undrained(Model):
    """What an undrain did."""

    cleared: list[str]
    """The drain reasons that it cleared, each with its owner: `op: fan is loud`. Empty where the
    node had none; a repeat clears nothing more."""
    revision: int
    """The revision it made, or the present one when nothing was cleared."""


@dataclass(frozen=True, repr=False)
class UnknownView(Model):
    """A node about which nothing can be said in one class."""

    class_: str = _field(metadata={"wire": "class"})
    """The class."""
    node: str
    """The node."""
    why: str
    """Why."""
    baseline: Optional[str] = None
    """The baseline it would be judged by."""


@dataclass(frozen=True, repr=False)
class UsageView(Model):
    """What is counted against limits."""

    allocations: int
    """Allocations holding nodes."""
    nodes: int
    """Nodes held."""


@dataclass(frozen=True, repr=False)
class UsedInTenant(Model):
    """What a user has used in one tenant."""

    gpu_hours_used: float
    """See `TenantUsage`."""
    idle_claimed_node_hours: float
    """See `TenantUsage`."""
    node_hours_used: float
    """See `TenantUsage`."""
    tenant: str
    """Which."""


@dataclass(frozen=True, repr=False)
class UserUsage(Model):
    """What a user has used in a window of days that ends now."""

    days: int
    """Days of the window."""
    gpu_hours_used: float
    """See `TenantUsage`."""
    idle_claimed_node_hours: float
    """See `TenantUsage`."""
    node_hours_used: float
    """See `TenantUsage`."""
    revision: int
    """The revision that this is of, at least."""
    since: str
    """Since when."""
    tenants: list[UsedInTenant]
    """The same by tenant; of those of which the asker is told."""
    until: str
    """Until when."""
    user: str
    """Who."""


@dataclass(frozen=True, repr=False)
class VclusterNodes(Model):
    """What became of nodes that were to belong to a vCluster."""

    nodes: str
    """The nodes that were named, as a hostlist: they belong to it and serve it."""
    revision: int
    """The revision the change made."""
    vcluster: str
    """Which vCluster."""


@dataclass(frozen=True, repr=False)
class VclusterView(Model):
    """A vCluster as shown: what was said of it, and the nodes it has."""

    borrowed: str
    """Nodes of other vClusters that it uses for now, as a hostlist."""
    description: str
    """Text for people."""
    lent: str
    """Those of them that another vCluster uses for now, as a hostlist."""
    movement: MovementView
    """How its work is moved."""
    name: str
    """Its name."""
    node_count: int
    """How many those are."""
    nodes: str
    """The nodes that belong to it, as a hostlist."""
    revision: int
    """When something was said of it last; 0: never."""
    scheduler: SchedulerView
    """How its scheduler decides."""
    scheduler_epoch: int
    """Grows whenever another control, or another run of one, takes over; 0: nobody has scheduled
    it yet."""
    usable: bool
    """Some tenant may use it. Where `tenants` is empty and this is so, it is for others than the
    caller may know of; where it is not, the vCluster is closed."""
    version: int
    """Counts what was said of it, and never the same twice; 0: nobody has said what it is, and
    it is open to all. Settings of its scheduler alone do not say that."""
    scheduled_by: Optional[str] = None
    """The control that schedules it; `null`: none does now."""
    tenants: Optional[list[str]] = None
    """The tenants that may use it, of those that the caller may know of; `null`: all."""


@dataclass(frozen=True, repr=False)
class VersionView(Model):
    """A version that is kept."""

    at: str
    """When."""
    by: str
    """Who made it."""
    version: int
    """Its number."""


@dataclass(frozen=True, repr=False)
class Violation(Model):
    """One level of the tree whose limit a request would exceed."""

    current: int
    """What is in use there; of a change of limits, what the limits of its children would add up
    to, 0 where one of them would have none."""
    limit: int
    """The ceiling."""
    limit_name: str
    """The limit: `max_nodes` or `max_concurrent_allocations`."""
    path: str
    """The project, or tenant."""
    requested: int
    """What was asked for; of a change of limits 0."""


@dataclass(frozen=True, repr=False)
class Waiting(Model):
    """Why one allocation waits."""

    id: int
    """Which."""
    reason: str
    """Why."""


@dataclass(frozen=True, repr=False)
class WaitsForView(Model):
    """For whom it waits."""

    allocations: list[int]
    """Those it comes after that have not ended."""
    mutex: Optional[int] = None
    """The one that has its mutex."""


@dataclass(frozen=True, repr=False)
class WeightsView(Model):
    """Weights of the nine factors. They are relative: they need not add up to 1. Their
    resolution is 0.000001."""

    backlog: float
    """Backlog."""
    checkpoint: float
    """Cheap to checkpoint."""
    conformance: float
    """One conformance group."""
    data_ready: float
    """Input data on the hot tier."""
    energy: float
    """Energy price."""
    fair_share: float
    """How far the tenant is from its share."""
    priority: float
    """Priority class."""
    topology: float
    """Few topology groups."""
    wait_time: float
    """Time in the queue."""


@dataclass(frozen=True, repr=False)
class WorkloadView(Model):
    """What runs, as far as the asker may see it."""

    argv: list[str]
    """Program and arguments."""
    env: dict[str, str]
    """Names of the variables; every value reads `<redacted>`."""
    error: Optional[str] = None
    """File for standard error."""
    output: Optional[str] = None
    """File for standard output, as asked for; absent: kept as logs."""
    script: Optional[str] = None
    """The script."""
    working_dir: Optional[str] = None
    """Working directory."""


@dataclass(frozen=True, repr=False)
class WritingView(Model):
    """A checkpoint that is being written."""

    asked_at: str
    """Since when."""
    directory: str
    """Where it goes."""
    extended: bool
    """It was given more time once."""
    number: int
    """Its number."""
    ranks_written: int
    """Ranks that have written theirs."""
    until: str
    """When it is given up."""
    makes_room: Optional[str] = None
    """Why it makes room then; absent: it goes on."""


@dataclass(frozen=True, repr=False)
class AllocationChange(Model):
    """An allocation."""

    change: str
    """What happened: `submitted`, `assigned`, `started`, `stopping`, `ended`, …"""
    kind: Literal["allocation"]
    record: AllocationView
    """As it is now, without its workload, which never changes."""


@dataclass(frozen=True, repr=False)
class NodeChange(Model):
    """A node."""

    kind: Literal["node"]
    record: NodeView
    """As it is now."""


@dataclass(frozen=True, repr=False)
class ProjectChange(Model):
    """A project."""

    kind: Literal["project"]
    record: ProjectView
    """As it is now."""


@dataclass(frozen=True, repr=False)
class ProjectDeletedChange(Model):
    """A project was deleted."""

    kind: Literal["project_deleted"]
    path: str
    """Which."""


@dataclass(frozen=True, repr=False)
class BaselineChange(Model):
    """A baseline has a new version, or is gone."""

    kind: Literal["baseline"]
    name: str
    """Which."""
    version: Optional[int] = None
    """Its version; left out when it is gone."""


@dataclass(frozen=True, repr=False)
class BrakeChange(Model):
    """Automatic draining stands still, or goes on."""

    kind: Literal["brake"]
    held: Optional[BrakeView] = None
    """Why it stands still; left out when it goes on."""


@dataclass(frozen=True, repr=False)
class UnknownChange(Model):
    """A kind that this version does not know; it is in `extra`."""

    kind: str
    """What a newer server calls it."""


Change = Union[
    AllocationChange,
    NodeChange,
    ProjectChange,
    ProjectDeletedChange,
    BaselineChange,
    BrakeChange,
    UnknownChange,
]
"""One record after a change."""


LossView = dict[str, Any]
"""Why a probe as a whole gave nothing."""


MetricBody = Union[str, dict[str, Any]]
"""What the number of nodes follows."""


ReservationsView = Union[int, str]
"""Which blocked jobs get nodes held back for them."""
