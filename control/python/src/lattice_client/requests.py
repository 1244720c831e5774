"""What a server takes: dictionaries, as JSON has them.

Written by `generate` from the served OpenAPI document: do not edit. A field that is left out stays
as it is, or takes its default; `None` is JSON's `null`, which lifts a limit.
"""

from __future__ import annotations

from typing import Any, Literal, Optional, TypedDict, Union

__all__ = [
    "AddMemberRequest",
    "AllocationRequest",
    "AuthorityRequest",
    "BaselineRequest",
    "BrakeReleaseRequest",
    "CheckpointBody",
    "CheckpointRequest",
    "CheckpointSettingsChange",
    "ClaimRequest",
    "ClassForm",
    "ClearRequest",
    "CohortForm",
    "ConstraintsBody",
    "DagRequest",
    "DependencyBody",
    "DrainRequest",
    "EdgeBody",
    "ExtendRequest",
    "JobBody",
    "LimitChangeBody",
    "LimitPolicyUpdate",
    "LimitsRequest",
    "MemberRequest",
    "MetricBody",
    "MovementChange",
    "PreemptionChange",
    "ProjectRequest",
    "ProjectUpdate",
    "ReconcileRequest",
    "ReleaseRequest",
    "ReservationRequest",
    "ReservationsView",
    "RevokeRequest",
    "ScaleBody",
    "ScalingChange",
    "SchedulerChange",
    "SharingChange",
    "StepDownRequest",
    "SystemLimitsUpdate",
    "TenantRequest",
    "TenantUpdate",
    "TokenRequest",
    "VclusterNodesRequest",
    "VclusterRequest",
    "WeightsChange",
]


JobBody = Union[int, str]
"""Another allocation: its number, or an element as `12_7`."""


MetricBody = Union[Literal["gpu", "cpu"], dict[str, Any]]
"""What the number of nodes follows."""


ReservationsView = Union[int, Literal["all"]]
"""Which blocked jobs get nodes held back for them."""


class AddMemberRequest(TypedDict):
    """One more member. It must run, with `join: true`."""

    address: str
    """Its mesh address, `ip:port`."""
    id: int
    """Its number; its certificate is `spiffe://<cluster>/quorum/<id>`."""


class _AllocationRequestNeeded(TypedDict):
    """What it must have."""

    nodes: int
    """Number of nodes, at least 1."""
    project: str
    """The project whose limits apply."""


_AllocationRequestWords = TypedDict(
    "_AllocationRequestWords", {"class": "Optional[int]"}, total=False
)


class AllocationRequest(_AllocationRequestNeeded, _AllocationRequestWords, total=False):
    """A request for nodes. Who asks is known from the token; there is no field for it.

    `class`: Priority class, 0-10; 5 when left out."""

    argv: list[str]
    """Program and arguments; beside `script` that one's arguments. Give at least one of the two."""
    array: Optional[str]
    """Many pieces of work that differ in their index alone: `0-99%10`, `1,3,5-7`, `0-15:4`;
    behind `%` how many run at a time. Each has an allocation of its own as soon as it is placed,
    and `LATTICE_ARRAY_INDEX`."""
    begin: Optional[str]
    """It is not placed before: `2026-12-01T08:00:00Z`, `16:00` (UTC), `tomorrow`, `now+1hour`.
    With an idempotency key write a time: of a repeat, `now` is another one."""
    checkpoint: Optional[CheckpointBody]
    """It can write checkpoints."""
    checkpoint_time: Optional[str]
    """How long it takes to write a checkpoint, as a walltime is written; 7 days at most. Left
    out: as long as its GPUs' memory makes it."""
    constraints: ConstraintsBody
    """What the nodes must be like."""
    data_ready: Optional[float]
    """The part of its input data that is on the hot tier, 0 to 1. Left out: not known, and
    weighed as a half."""
    deadline: Optional[str]
    """It must have ended by then; written as `begin` is."""
    dependencies: list[DependencyBody]
    """Those it comes after: it waits for each of them."""
    dependency: Optional[str]
    """The same as batch schedulers write it: `afterok:12:13,afternotok:14_7,singleton`. Give one
    of both."""
    env: dict[str, str]
    """Environment added to a minimal one. Never shown again."""
    error: Optional[str]
    """The same for standard error."""
    hold: bool
    """Submit on hold."""
    mutex: Optional[str]
    """The same under another name than the work's own."""
    name: Optional[str]
    """A name for people."""
    output: Optional[str]
    """File of the user's own for standard output, opened as the user on each node and appended
    to: `%j` is the allocation, `%A` its array, `%a` its index there, `%r` the rank, `%n` the
    node. Left out: kept by the node and read as logs."""
    requeue: Optional[str]
    """What happens when a node is lost: `never` (default), `once` or `always`."""
    reservation: Optional[str]
    """It uses nodes that are reserved under this name, and no others."""
    scale: Optional[ScaleBody]
    """Its number of nodes follows a metric."""
    script: Optional[str]
    """A script, run by its own `#!` line with `argv` as its arguments."""
    sensitive: bool
    """All nodes must share one conformance group."""
    singleton: bool
    """Of the same user's work with the same name, one is eligible at a time, in the order of the
    submits."""
    storage_gb_s: dict[str, float]
    """Bandwidth that the whole of it needs of storage systems while it runs, GB/s (thousand
    million bytes a second) by the system's name; 16 systems at most. Whole MB/s are kept."""
    vcluster: Optional[str]
    """The vCluster whose scheduler places it; `default` when left out."""
    walltime: Optional[str]
    """Longest run time: `90s`, `1h30m`, `HH:MM:SS`. Left out: unbounded, never backfilled."""
    working_dir: Optional[str]
    """Working directory, from the root."""


class AuthorityRequest(TypedDict):
    """One more authority to trust."""

    certificate: str
    """Its certificate, PEM; never its key."""


class BaselineRequest(TypedDict, total=False):
    """A new version of a baseline."""

    classes: dict[str, ClassForm]
    """Rules by class. With `from_node` or `from_group` and none here: every class that is
    complete there."""
    cohort: Optional[CohortForm]
    """The nodes it is for, by what they are. Named nodes go before a cohort."""
    description: str
    """For people."""
    expected_version: Optional[int]
    """The version this rests on, 0 for none; refused when there is another by then."""
    from_group: Optional[str]
    """The conformance group that others should be like: its digest, or its first 8 digits or
    more. One of its members is asked now."""
    from_node: Optional[str]
    """The node that others should be like. It is asked now."""
    name: Optional[str]
    """Its name, as a check: the one of the path counts."""
    nodes: Optional[str]
    """The nodes it is for, as a hostlist."""
    policy: Optional[str]
    """What follows where a node differs, for classes that do not say: `warn` (when left out),
    `deprioritise`, `drain`."""
    sensitive: Optional[str]
    """What that means to sensitive work, for classes that do not say: `strict` (when left out:
    no new sensitive work at once) or `ignore`."""


class BrakeReleaseRequest(TypedDict):
    """A person has looked."""

    reason: str
    """What was found, for the audit."""


class _CheckpointBodyNeeded(TypedDict):
    """What it must have."""

    mode: str
    """How it is told to: `signal` (SIGUSR1), `shared_memory` or `callback` (gRPC)."""


class CheckpointBody(_CheckpointBodyNeeded, total=False):
    """How work writes checkpoints."""

    directory: Optional[str]
    """Where to: a directory from the root. Left out: where the site says."""
    trigger: Optional[str]
    """Who decides when: `automatic` (when it pays, and whenever somebody asks; the default) or
    `manual` (people, and who needs the nodes)."""


class CheckpointRequest(TypedDict, total=False):
    """A checkpoint that is asked for."""

    directory: Optional[str]
    """Where to: a directory from the root. Left out: where the work or the site says."""
    timeout: Optional[str]
    """How long it may take, as a walltime is written; `10m` when left out."""


class CheckpointSettingsChange(TypedDict, total=False):
    """When its work writes checkpoints, and how long one may take.

    What is left out stays; `null` takes it back to its default."""

    max_deferral_count: Optional[int]
    """How often it may. Default: 3."""
    max_deferral_s: Optional[float]
    """How long work may put one off, in all, seconds. Default: 300."""
    max_interval_s: Optional[float]
    """None later, whatever it costs, seconds. Default: 21600."""
    min_interval_s: Optional[float]
    """None sooner after the last one, or after the start, seconds. Default: 300."""
    sensitive_max_interval_s: Optional[float]
    """As `max_interval_s`, of sensitive work. Default: 3600."""
    sensitive_min_interval_s: Optional[float]
    """As `min_interval_s`, of sensitive work. Default: 600."""
    sensitive_timeout_s: Optional[float]
    """As `timeout_s`, of sensitive work. Default: 900."""
    timeout_s: Optional[float]
    """How long one may take before it is extended or given up, seconds. Default: 600."""


class _ClaimRequestNeeded(TypedDict):
    """What it must have."""

    project: str
    """The project against whose limits they count, and whose sensitive work they take."""


class ClaimRequest(_ClaimRequestNeeded, total=False):
    """Nodes are to belong to the caller alone."""

    purpose: str
    """What for; kept in the audit."""


class ClassForm(TypedDict, total=False):
    """What one class is meant to be."""

    keys: Optional[dict[str, Any]]
    """Keys and what they must be, whatever the rest: a value, a list `{any_of: [a, b]}`, either
    with `or_absent: true`, or `{absent: true}`. `nic.*.firmware` speaks of every slot. Without
    keys the class must be exactly what `from_node` or `from_group` is."""
    policy: Optional[str]
    """`warn`, `deprioritise` or `drain`; the baseline's own when left out."""
    sensitive: Optional[str]
    """`strict` or `ignore`; the baseline's own when left out."""


class _ClearRequestNeeded(TypedDict):
    """What it must have."""

    code: str
    """The code of the reasons that are over."""


class ClearRequest(_ClearRequestNeeded, total=False):
    """Somebody repaired it."""

    entity: Optional[str]
    """Of this part alone; of all of them when left out."""


class CohortForm(TypedDict, total=False):
    """Which cohort is meant: every part that is given must be equal."""

    gpu_count: Optional[int]
    """Number of GPUs; 0 for nodes without."""
    gpu_model: Optional[str]
    """GPU model."""
    product: Optional[str]
    """Product name."""
    vendor: Optional[str]
    """System vendor."""


class ConstraintsBody(TypedDict, total=False):
    """What the nodes must be like; every field left out means "any"."""

    exclude: Optional[str]
    """None of these, as a hostlist."""
    features: list[str]
    """Features every node must carry."""
    gpu_models: list[str]
    """Acceptable GPU models, any one of them; part of the name is enough, case is ignored. One
    text may name several: `V100M16|V100M32`."""
    gpus_per_node: Optional[int]
    """GPUs each node must have at least. On a node that has more the work sees so many, those
    that hang together best."""
    memory_bytes: Optional[int]
    """Memory each node must have at least, bytes."""
    nodelist: Optional[str]
    """Only these nodes, as a hostlist."""
    spread: Optional[str]
    """Layout over topology groups: `tight` (default), `spread` or `any`."""


class _DagRequestNeeded(TypedDict):
    """What it must have."""

    members: list[MemberRequest]
    """At least one. They get their numbers in this order."""


class DagRequest(_DagRequestNeeded, total=False):
    """A graph as somebody asks for it."""

    name: str
    """A name for people; may be left out."""


class DependencyBody(TypedDict):
    """One allocation after another."""

    condition: str
    """How that one must have ended: `success`, `failure`, `any`, or `corresponding` (the element
    of the same index succeeded)."""
    on: JobBody
    """Which one."""


class _DrainRequestNeeded(TypedDict):
    """What it must have."""

    reason: str
    """For people; shown with the node."""


class DrainRequest(_DrainRequestNeeded, total=False):
    """Why a node is to get no new work."""

    force_release: bool
    """Take the node from its holder although nobody knows that its processes are gone. Who asks
    answers for that: the reason is kept in the audit."""


class _EdgeBodyNeeded(TypedDict):
    """What it must have."""

    member: str
    """The member that comes before."""


class EdgeBody(_EdgeBodyNeeded, total=False):
    """One member after another."""

    condition: Optional[str]
    """How that must have ended: `success` (when left out), `failure`, `any` or `corresponding`."""


class ExtendRequest(TypedDict):
    """Another walltime."""

    walltime: str
    """Of each attempt, from its begin on: `3h`; or so much more than now: `+30m`."""


class _LimitChangeBodyNeeded(TypedDict):
    """What it must have."""

    path: str
    """Which project, or tenant."""


class LimitChangeBody(_LimitChangeBodyNeeded, total=False):
    """A change to the limits of one project. A field left out stays, `null` lifts the ceiling."""

    max_concurrent_allocations: Optional[int]
    """Allocations holding nodes at the same time."""
    max_nodes: Optional[int]
    """Nodes held at the same time."""


class LimitPolicyUpdate(TypedDict):
    """What limits of projects are to mean from now on."""

    limit_policy: str
    """`strict`: children add up to at most their parent's, and every level counts. `flat`: a
    project's own limit counts, and its tenant's."""


class _LimitsRequestNeeded(TypedDict):
    """What it must have."""

    changes: list[LimitChangeBody]
    """At least one."""


class LimitsRequest(_LimitsRequestNeeded, total=False):
    """Limit changes, applied all or none and judged on the resulting tree."""

    force: bool
    """Also where the limits of children then add up to more than their parent's, which is marked
    as overcommitted until they fit. For administrators of the whole cluster."""


class _MemberRequestNeeded(TypedDict):
    """What it must have."""

    name: str
    """Others come after it by that."""
    nodes: int
    """Number of nodes, at least 1."""
    project: str
    """The project whose limits apply."""


_MemberRequestWords = TypedDict(
    "_MemberRequestWords", {"class": "Optional[int]"}, total=False
)


class MemberRequest(_MemberRequestNeeded, _MemberRequestWords, total=False):
    """A member of a graph: a request for nodes, with its name, and what it comes after.

    `class`: Priority class, 0-10; 5 when left out."""

    after: Union[list[str], list[EdgeBody], dict[str, list[str]]]
    """What a member comes after, in one of three forms."""
    argv: list[str]
    """Program and arguments; beside `script` that one's arguments. Give at least one of the two."""
    array: Optional[str]
    """Many pieces of work that differ in their index alone: `0-99%10`, `1,3,5-7`, `0-15:4`;
    behind `%` how many run at a time. Each has an allocation of its own as soon as it is placed,
    and `LATTICE_ARRAY_INDEX`."""
    begin: Optional[str]
    """It is not placed before: `2026-12-01T08:00:00Z`, `16:00` (UTC), `tomorrow`, `now+1hour`.
    With an idempotency key write a time: of a repeat, `now` is another one."""
    checkpoint: Optional[CheckpointBody]
    """It can write checkpoints."""
    checkpoint_time: Optional[str]
    """How long it takes to write a checkpoint, as a walltime is written; 7 days at most. Left
    out: as long as its GPUs' memory makes it."""
    constraints: ConstraintsBody
    """What the nodes must be like."""
    data_ready: Optional[float]
    """The part of its input data that is on the hot tier, 0 to 1. Left out: not known, and
    weighed as a half."""
    deadline: Optional[str]
    """It must have ended by then; written as `begin` is."""
    dependencies: list[DependencyBody]
    """Those it comes after: it waits for each of them."""
    dependency: Optional[str]
    """The same as batch schedulers write it: `afterok:12:13,afternotok:14_7,singleton`. Give one
    of both."""
    env: dict[str, str]
    """Environment added to a minimal one. Never shown again."""
    error: Optional[str]
    """The same for standard error."""
    hold: bool
    """Submit on hold."""
    mutex: Optional[str]
    """The same under another name than the work's own."""
    output: Optional[str]
    """File of the user's own for standard output, opened as the user on each node and appended
    to: `%j` is the allocation, `%A` its array, `%a` its index there, `%r` the rank, `%n` the
    node. Left out: kept by the node and read as logs."""
    requeue: Optional[str]
    """What happens when a node is lost: `never` (default), `once` or `always`."""
    reservation: Optional[str]
    """It uses nodes that are reserved under this name, and no others."""
    scale: Optional[ScaleBody]
    """Its number of nodes follows a metric."""
    script: Optional[str]
    """A script, run by its own `#!` line with `argv` as its arguments."""
    sensitive: bool
    """All nodes must share one conformance group."""
    singleton: bool
    """Of the same user's work with the same name, one is eligible at a time, in the order of the
    submits."""
    storage_gb_s: dict[str, float]
    """Bandwidth that the whole of it needs of storage systems while it runs, GB/s (thousand
    million bytes a second) by the system's name; 16 systems at most. Whole MB/s are kept."""
    vcluster: Optional[str]
    """The vCluster whose scheduler places it; `default` when left out."""
    walltime: Optional[str]
    """Longest run time: `90s`, `1h30m`, `HH:MM:SS`. Left out: unbounded, never backfilled."""
    working_dir: Optional[str]
    """Working directory, from the root."""


class MovementChange(TypedDict, total=False):
    """What is to be changed of how a vCluster's work is moved; what is left out stays."""

    checkpoint: Optional[CheckpointSettingsChange]
    """When its work writes checkpoints, and how long one may take."""
    preemption: Optional[PreemptionChange]
    """Who makes room for work of a higher class."""
    scaling: Optional[ScalingChange]
    """How quickly its services follow their metrics."""
    sharing: Optional[SharingChange]
    """What it lends and borrows."""


class PreemptionChange(TypedDict, total=False):
    """Who makes room for work of a higher class.

    What is left out stays; `null` takes it back to its default."""

    enabled: Optional[bool]
    """Whether anybody does. Default: true."""
    max_victims: Optional[int]
    """How many make room for one, at most; 1 to 3. Default: 3."""
    near_completion_threshold_s: Optional[float]
    """Work so near its end is left alone, seconds. Default: 300."""
    only_borrowed: Optional[bool]
    """Only work that has nothing but borrowed nodes makes room: so it is for services. Default:
    false."""
    patience_s: Optional[float]
    """How long work waits, and would wait on, before others make room for it, seconds. Default:
    60."""
    thrash_count: Optional[int]
    """Work that was preempted so often counts as one class higher; 0: never. Default: 3."""
    thrash_interval_s: Optional[float]
    """Work that was preempted or resumed so recently is left alone, seconds. Default: 900."""


class _ProjectRequestNeeded(TypedDict):
    """What it must have."""

    path: str
    """Where: a tenant's name, or `tenant/a/b`, whose parent must exist."""


class ProjectRequest(_ProjectRequestNeeded, total=False):
    """A new project, or tenant."""

    admins: list[str]
    """Who administers it and may set the limits of its children."""
    description: str
    """Text for people."""
    limits: ProjectUpdate
    """Its ceilings. One that is left out is closed: 0 of what a level above limits. `null` is no
    ceiling."""


class ProjectUpdate(TypedDict, total=False):
    """A change to the project named in the request's path. A field left out stays, `null` lifts
    the ceiling."""

    max_concurrent_allocations: Optional[int]
    """Allocations holding nodes at the same time."""
    max_nodes: Optional[int]
    """Nodes held at the same time."""


class _ReconcileRequestNeeded(TypedDict):
    """What it must have."""

    since: str
    """Every month of which a part lies behind this moment: `2026-03-01`, or with a time."""
    until: str
    """And before this one."""


class ReconcileRequest(_ReconcileRequestNeeded, total=False):
    """Which months are compared with what was used, and set."""

    dry_run: bool
    """Only compare."""


class ReleaseRequest(TypedDict, total=False):
    """Claimed nodes are given back."""

    reason: Optional[str]
    """Why; needed from who is not the claimant, and kept in the audit."""
    wipe: Literal["once", "again", "waive"]
    """What is done about the wipe."""


_ReservationRequestWords = TypedDict(
    "_ReservationRequestWords", {"from": "Optional[str]"}, total=False
)


class ReservationRequest(_ReservationRequestWords, total=False):
    """What is to be reserved. Of `nodes` and `groups` at least one, of `until` and `duration`
    one at most.

    `from`: From when on: `2026-12-01T08:00:00Z`, `16:00` (UTC), `tomorrow`, `now+1hour`; now
    when left out."""

    duration: Optional[str]
    """For how long instead: `2h`, `1d`."""
    expected_revision: Optional[int]
    """The revision of the reservation that this rests on, 0 for none; refused when it has
    another by now."""
    groups: list[str]
    """Topology groups; the nodes that are in them now."""
    nodes: Optional[str]
    """Which nodes, as a hostlist."""
    projects: list[str]
    """Projects whose work, and that of those below, may use them meanwhile. With no user and no
    project it is for nobody: a maintenance window."""
    reason: str
    """Why, for people."""
    until: Optional[str]
    """Until when, exclusive; written as `from` is. Without it and `duration`: until it is
    deleted."""
    users: list[str]
    """Users who may use them meanwhile."""


class RevokeRequest(TypedDict):
    """Why a member's certificates are to hold no more."""

    reason: str
    """For the audit, and for whoever wonders."""


class _ScaleBodyNeeded(TypedDict):
    """What it must have."""

    max_nodes: int
    """Most nodes."""
    metric: MetricBody
    """What is measured: `gpu`, `cpu`, or `{"prometheus": "QUERY"}`."""
    min_nodes: int
    """Fewest nodes, at least 1; it starts with these."""
    target: float
    """More of it than this asks for a node more; above 0."""


class ScaleBody(_ScaleBodyNeeded, total=False):
    """Work whose number of nodes follows a metric."""

    cooldown: Optional[str]
    """Nothing changes for so long after a change; `0s` for none."""
    down_threshold: Optional[float]
    """The lower threshold, a part of the target between 0 and 1."""
    down_window: Optional[str]
    """The metric is below the lower threshold for so long before one is given back."""
    up_window: Optional[str]
    """The metric is above the target for so long before a node is added, written as a walltime
    is. What is left out is as the vCluster says."""


class ScalingChange(TypedDict, total=False):
    """How quickly its services follow their metrics.

    What is left out stays; `null` takes it back to its default."""

    backoff_cooldowns: Optional[int]
    """For how many cooldowns nothing is proposed then. Default: 2."""
    calm_s: Optional[float]
    """How long it must have been calm for a change to be no turn, seconds. Default: 3600."""
    cooldown_s: Optional[float]
    """How long it stays as it is after a change, seconds. Default: 180."""
    down_window_s: Optional[float]
    """How long it must be below the threshold, seconds. Default: 300."""
    evaluation_s: Optional[float]
    """How often its metric is read, seconds. Default: 60."""
    missing_alert: Optional[int]
    """Evaluations without a metric, in a row, until somebody is told. Default: 3."""
    oscillation_alert: Optional[int]
    """Turns from growing to shrinking or back, in a row, until somebody is told. Default: 5."""
    retries: Optional[int]
    """How often a proposal that was refused is made again. Default: 3."""
    threshold: Optional[float]
    """Below this part of the target a service shrinks; above 0 and below 1. Default: 0.5."""
    up_window_s: Optional[float]
    """How long the metric must be above the target, seconds. Default: 120."""


class SchedulerChange(TypedDict, total=False):
    """What is to be changed of a scheduler; what is left out stays."""

    checkpoint_gb_s: Optional[float]
    """What all nodes together write to checkpoint storage, GB/s; `null`: it is not known any
    more."""
    profile: Optional[str]
    """All weights of one kind of work: `hpc-batch`, `ml-training`, `service`, `sensitive`,
    `interactive` or `balanced`. Those in `weights` are changed after it."""
    reference_wait_s: Optional[float]
    """Seconds of waiting after which the wait time factor is ln 2; more than 0."""
    reservations: Optional[ReservationsView]
    """Which blocked jobs get nodes held back for them: a number or `all`."""
    weights: Optional[WeightsChange]
    """Single weights."""


class SharingChange(TypedDict, total=False):
    """What it lends and borrows.

    What is left out stays; `null` takes it back to its default."""

    allow_borrowing: Optional[bool]
    """Whether it borrows. Default: true."""
    allow_lending: Optional[bool]
    """Whether its idle nodes are lent. Default: true; false where its weights are those of
    `sensitive`, and never anything else there."""
    borrowing_limit: Optional[int]
    """Most nodes that it has borrowed at once. Default: any number."""
    lending_limit: Optional[int]
    """Most of its nodes that are lent at once. Default: all that are idle."""
    return_grace_s: Optional[float]
    """How long a borrower keeps a node that is asked back before its work is stopped, seconds.
    Default: 60."""


class StepDownRequest(TypedDict, total=False):
    """Who is to lead."""

    to: Optional[int]
    """A voter's number; whoever has everything when left out."""


class SystemLimitsUpdate(TypedDict, total=False):
    """A change to what is limited for the whole cluster. A field left out stays, `null` lifts
    the ceiling."""

    sensitive_pool_size: Optional[int]
    """Nodes that can be claimed for sensitive use."""


class _TenantRequestNeeded(TypedDict):
    """What it must have."""

    id: str
    """Its name."""


class TenantRequest(_TenantRequestNeeded, total=False):
    """A new tenant. A limit that is left out is closed."""

    admins: list[str]
    """Who administers it and may set the limits of its projects."""
    burst_allowance: Optional[float]
    """How many times that part it may hold while others need nothing, 1 to 10000; none when left
    out."""
    description: str
    """Text for people."""
    fair_share_target: Optional[float]
    """The part of the cluster that it is to have, 0 to 1; none when left out."""
    gpu_hours_budget: Optional[float]
    """Hours of GPUs that its work may use in the budget period; none when left out."""
    max_concurrent_allocations: Optional[int]
    """Allocations holding nodes at the same time; unlimited when left out."""
    max_nodes: Optional[int]
    """Nodes held at the same time; 0 when left out."""
    node_hours_budget: Optional[float]
    """Hours of nodes that its work may use in the budget period; none when left out."""


class TenantUpdate(TypedDict, total=False):
    """A change to what a tenant may use and is meant to use: all of it or nothing. A field left
    out stays, `null` lifts the ceiling where that is allowed."""

    burst_allowance: Optional[float]
    """How many times that part it may hold while others need nothing, 1 to 10000; `null`: none
    any more."""
    fair_share_target: Optional[float]
    """The part of the cluster that it is to have, 0 to 1; `null`: none any more."""
    force: bool
    """Also below the sum of the limits of its projects: it is marked as overcommitted until they
    fit. For administrators of the whole cluster."""
    gpu_hours_budget: Optional[float]
    """Hours of GPUs that its work may use in the budget period; `null`: none any more."""
    max_concurrent_allocations: Optional[int]
    """Allocations holding nodes at the same time."""
    max_nodes: Optional[int]
    """Nodes held at the same time; a number."""
    node_hours_budget: Optional[float]
    """Hours of nodes that its work may use in the budget period; `null`: none any more."""


class _TokenRequestNeeded(TypedDict):
    """What it must have."""

    role: str
    """What it enrols: `agent`, `control` or `quorum`."""
    ttl: str
    """How long it is good for, a week at most: `30m`, `1h`, `7d`."""


class TokenRequest(_TokenRequestNeeded, total=False):
    """A request for a join token."""

    cidrs: list[str]
    """Only from these networks, as a quorum member sees the address; left out: from any."""
    nodes: Optional[str]
    """Only these names may enrol with it, as a hostlist; left out: any."""
    replace: bool
    """Whether it may take a name that is enrolled already, when who enrols asks for that too.
    Earlier certificates of the name hold no more from then on."""
    uses: int
    """How many enrolments it is good for, 100000 at most; 1 when left out."""


class _VclusterNodesRequestNeeded(TypedDict):
    """What it must have."""

    nodes: str
    """Which, as a hostlist: all of them or none."""


_VclusterNodesRequestWords = TypedDict(
    "_VclusterNodesRequestWords", {"from": "Optional[str]"}, total=False
)


class VclusterNodesRequest(_VclusterNodesRequestNeeded, _VclusterNodesRequestWords, total=False):
    """Nodes that are to belong to a vCluster.

    `from`: The vCluster they may be taken from. Nodes of one that nobody has defined are taken
    anyway."""


class VclusterRequest(TypedDict, total=False):
    """What is to be said of a vCluster, the first time too. A field left out stays; of a new one
    it is empty, and its tenants are all."""

    description: Optional[str]
    """Text for people."""
    expected_version: Optional[int]
    """The version this rests on, 0 for none; refused when there is another by then."""
    movement: Optional[MovementChange]
    """What is to be changed of how its work is moved; the same holds. It is refused where the
    whole would not fit together."""
    scheduler: Optional[SchedulerChange]
    """What is to be changed of its scheduler; from the next plan on it decides so. Where nothing
    else is said the vCluster must be there: defined, `default`, or with nodes. It is not defined
    by that."""
    tenants: Optional[list[str]]
    """The tenants that may use it; `null`: all, `[]`: none."""


class WeightsChange(TypedDict, total=False):
    """Weights to be changed; one left out stays."""

    backlog: Optional[float]
    """See `WeightsView`."""
    checkpoint: Optional[float]
    """See `WeightsView`."""
    conformance: Optional[float]
    """See `WeightsView`."""
    data_ready: Optional[float]
    """See `WeightsView`."""
    energy: Optional[float]
    """See `WeightsView`."""
    fair_share: Optional[float]
    """See `WeightsView`."""
    priority: Optional[float]
    """See `WeightsView`."""
    topology: Optional[float]
    """See `WeightsView`."""
    wait_time: Optional[float]
    """See `WeightsView`."""
