"""Request bodies as typed dictionaries.

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
    "ClassExpectationBody",
    "ClearRequest",
    "CohortSelectorBody",
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
"""Reference to another allocation: its number, or an array element as `12_7`."""


MetricBody = Union[Literal["gpu", "cpu"], dict[str, Any]]
"""Metric that determines the number of nodes."""


ReservationsView = Union[int, Literal["all"]]
"""Blocked jobs for which nodes are reserved."""


class AddMemberRequest(TypedDict):
    """Request to add a member. The member must be running with `join: true`."""

    address: str
    """Mesh address, `ip:port`."""
    id: int
    """Member number. The member's certificate identity is `spiffe://<cluster>/quorum/<id>`."""


class _AllocationRequestNeeded(TypedDict):
    """Required fields."""

    nodes: int
    """Number of nodes, at least 1."""
    project: str
    """Project for limits and usage."""


_AllocationRequestWords = TypedDict(
    "_AllocationRequestWords", {"class": "Optional[int]"}, total=False
)


class AllocationRequest(_AllocationRequestNeeded, _AllocationRequestWords, total=False):
    """Request for nodes. The user comes from the token; the request has no field for it.

    `class`: Priority class, 0-10; 5 when left out."""

    argv: list[str]
    """Program and arguments; with `script`, the arguments of the script. Give at least one of
    the two."""
    array: Optional[str]
    """Job array, as indices: `0-99%10`, `1,3,5-7`, `0-15:4`. The number after `%` limits how
    many elements run at a time. Each element gets its own allocation when it is placed, and its
    index in `LATTICE_ARRAY_INDEX`."""
    begin: Optional[str]
    """Earliest start: `2026-12-01T08:00:00Z`, `16:00` (UTC), `tomorrow`, `now+1hour`. With an
    idempotency key give an absolute time: in a repeated request `now` is a later time."""
    checkpoint: Optional[CheckpointBody]
    """Checkpoint mode, trigger and directory of the job. Left out: the allocation writes no
    checkpoints."""
    checkpoint_time: Optional[str]
    """Time to write a job checkpoint, in the format of `walltime`; 7 days at most. Left out:
    estimated from the memory of the GPUs."""
    constraints: ConstraintsBody
    """Requirements on the nodes."""
    data_ready: Optional[float]
    """Fraction of the input data that is on the hot tier, 0 to 1. Left out: unknown, scored as
    0.5."""
    deadline: Optional[str]
    """Time by which the allocation must have ended, in the format of `begin`; a time of day is
    the first one after `begin`."""
    dependencies: list[DependencyBody]
    """Allocations that must end first. The allocation waits for all of them."""
    dependency: Optional[str]
    """Dependencies in the syntax of batch schedulers: `afterok:12:13,afternotok:14_7,singleton`.
    Give this or `dependencies`, not both."""
    env: dict[str, str]
    """Environment variables, added to a minimal environment. The values are never shown again."""
    error: Optional[str]
    """File for standard error; written like `output`. Left out, on a site with a default file:
    the file of standard output."""
    hold: bool
    """Submit the allocation on hold."""
    mutex: Optional[str]
    """Mutex name: like `singleton`, but by this name instead of the allocation's name."""
    name: Optional[str]
    """Free-text name."""
    on_limit: Optional[str]
    """Handling of a request that fits the limits, but not with the present usage: `reject`, or
    `wait` to accept the allocation, which then waits for quota headroom. Left out: the setting
    of the tenant. A request above a limit itself is always refused. An allocation with
    dependencies, and a member of a DAG, always waits."""
    output: Optional[str]
    """File for standard output, which each node opens as the user and appends to. `%j` is the
    allocation, `%A` the array, `%a` the index in the array, `%r` the rank, `%n` the node. Left
    out: the default file of the site, if it has one. Otherwise, and for `-`, each node keeps the
    first and the last part of the output for some days, readable as logs."""
    requeue: Optional[str]
    """Policy after the loss of a node: `never` (default), `once` or `always`."""
    reservation: Optional[str]
    """Reservation. The allocation uses the nodes of this reservation only."""
    scale: Optional[ScaleBody]
    """Scaling of the number of nodes by a metric."""
    script: Optional[str]
    """Script, run by the interpreter of its `#!` line with `argv` as its arguments. Its first
    line is `#!` and the path of the interpreter; its lines have no carriage returns."""
    sensitive: bool
    """Sensitive data: attested nodes of one conformance group, no preemption, audit of each
    request, and a wipe afterwards."""
    singleton: bool
    """Make only one of the user's allocations with this name eligible at a time, in the order of
    submission."""
    storage_gb_s: dict[str, float]
    """Storage bandwidth that the whole allocation needs while it runs, GB/s (10^9 bytes per
    second) by storage system; 16 systems at most. Values are rounded to whole MB/s."""
    vcluster: Optional[str]
    """vCluster that schedules the allocation; `default` when left out."""
    walltime: Optional[str]
    """Longest run time: `90s`, `1h30m`, `HH:MM:SS`. Left out: unbounded, never backfilled."""
    working_dir: Optional[str]
    """Working directory, an absolute path."""


class AuthorityRequest(TypedDict):
    """Request to trust one more CA."""

    certificate: str
    """CA certificate, PEM; never the private key."""


class BaselineRequest(TypedDict, total=False):
    """New version of a baseline."""

    classes: dict[str, ClassExpectationBody]
    """Rules by class. Left empty with `from_node` or `from_group`: every class that is complete
    in the reference."""
    cohort: Optional[CohortSelectorBody]
    """Nodes that the baseline applies to, by cohort. A baseline that names a node takes
    precedence over one by cohort."""
    description: str
    """Free-text description."""
    expected_version: Optional[int]
    """Version that this change is based on, 0 for none; the change is rejected if another
    version exists by then."""
    from_group: Optional[str]
    """Digest of the reference conformance group, or a prefix of at least 8 digits. Control reads
    the records of the group's members during this request."""
    from_node: Optional[str]
    """Reference node; control requests the node's last reading during this request."""
    name: Optional[str]
    """Baseline name, as a check; the name in the request path counts."""
    nodes: Optional[str]
    """Nodes that the baseline applies to, as a hostlist."""
    policy: Optional[str]
    """Default policy for nodes that drift, for classes without their own: `warn` (when left
    out), `deprioritise`, `drain`."""
    sensitive: Optional[str]
    """Default effect of drift on sensitive allocations, for classes without their own: `strict`
    (when left out) or `ignore`. `strict`: from the first drift on, the node gets no new
    sensitive allocation."""


class BrakeReleaseRequest(TypedDict):
    """Request to release the brake after an operator has checked the nodes."""

    reason: str
    """Finding of the operator, for the audit."""


class _CheckpointBodyNeeded(TypedDict):
    """Required fields."""

    mode: str
    """Way in which Lattice requests a checkpoint: `signal` (SIGUSR1), `shared_memory` or
    `callback` (gRPC)."""


class CheckpointBody(_CheckpointBodyNeeded, total=False):
    """Checkpoint mode, trigger and directory of a job."""

    directory: Optional[str]
    """Target directory, an absolute path. Left out: the directory of the site."""
    trigger: Optional[str]
    """Trigger of checkpoints: `automatic` (when a checkpoint is worth its cost, and on request;
    the default) or `manual` (on request, and for preemption)."""


class CheckpointRequest(TypedDict, total=False):
    """Request for a job checkpoint."""

    directory: Optional[str]
    """Target directory, an absolute path. Left out: the directory of the allocation or the site."""
    timeout: Optional[str]
    """Time the checkpoint may take, in the format of a walltime; `10m` when left out."""


class CheckpointSettingsChange(TypedDict, total=False):
    """Job checkpoints: when they are written, and how long one may take.

    A field left out keeps its value; `null` resets it to the default."""

    max_deferral_count: Optional[int]
    """Number of times that a job may defer a checkpoint. Default: 3."""
    max_deferral_s: Optional[float]
    """Total time by which a job may defer a checkpoint, seconds. Default: 300."""
    max_interval_s: Optional[float]
    """Maximum time since the last checkpoint or the start, regardless of cost, seconds. Default:
    21600."""
    min_interval_s: Optional[float]
    """Minimum time since the last checkpoint or the start, seconds. Default: 300."""
    sensitive_max_interval_s: Optional[float]
    """`max_interval_s` for sensitive jobs, seconds. Default: 3600."""
    sensitive_min_interval_s: Optional[float]
    """`min_interval_s` for sensitive jobs, seconds. Default: 600."""
    sensitive_timeout_s: Optional[float]
    """`timeout_s` for sensitive jobs, seconds. Default: 900."""
    timeout_s: Optional[float]
    """Time that a checkpoint may take before it is extended or abandoned, seconds. Default: 600."""


class _ClaimRequestNeeded(TypedDict):
    """Required fields."""

    project: str
    """Project for limits and usage of the nodes. The nodes take sensitive allocations of this
    project."""


class ClaimRequest(_ClaimRequestNeeded, total=False):
    """Request to claim nodes for the caller alone."""

    purpose: str
    """Free-text purpose; kept in the audit."""


class ClassExpectationBody(TypedDict, total=False):
    """Expected state of one conformance class."""

    keys: Optional[dict[str, Any]]
    """Expected values by key; other keys of the class are not checked. An expectation is a
    value, `{value: a}` or `{any_of: [a, b]}`, both also with `or_absent: true`, or `{absent:
    true}`. `nic.*.firmware` matches every slot. Without keys the class must equal that of
    `from_node` or `from_group` exactly."""
    policy: Optional[str]
    """`warn`, `deprioritise` or `drain`; the baseline's policy when left out."""
    sensitive: Optional[str]
    """`strict` or `ignore`; the baseline's value when left out."""


class _ClearRequestNeeded(TypedDict):
    """Required fields."""

    code: str
    """Code of the reasons to clear."""


class ClearRequest(_ClearRequestNeeded, total=False):
    """Request to clear health reasons after a repair."""

    entity: Optional[str]
    """Affected part; left out: all parts."""


class CohortSelectorBody(TypedDict, total=False):
    """Cohort selector: every field that is given must equal that of the node."""

    gpu_count: Optional[int]
    """Number of GPUs; 0 for nodes without GPUs."""
    gpu_model: Optional[str]
    """GPU model."""
    product: Optional[str]
    """Product name."""
    vendor: Optional[str]
    """System vendor."""


class ConstraintsBody(TypedDict, total=False):
    """Node constraints; a field left out means "any"."""

    exclude: Optional[str]
    """Excluded nodes, as a hostlist."""
    features: list[str]
    """Features that every node must have."""
    gpu_models: list[str]
    """Acceptable GPU models, any one of them, by words of the driver's name, ignoring case:
    `h100`; `A10` matches no A100. One text may name several: `V100M16|V100M32`."""
    gpus_per_node: Optional[int]
    """Minimum number of GPUs per node. On a node with more GPUs the job gets exactly this
    number, those that are connected best."""
    memory_bytes: Optional[int]
    """Minimum memory per node, bytes."""
    nodelist: Optional[str]
    """Allowed nodes, as a hostlist."""
    spread: Optional[str]
    """Layout over topology groups: `tight` (default), `spread` or `any`."""


class _DagRequestNeeded(TypedDict):
    """Required fields."""

    members: list[MemberRequest]
    """Members, at least one. The allocation numbers of the members are in this order."""


class DagRequest(_DagRequestNeeded, total=False):
    """Request for a DAG."""

    name: str
    """Free-text name; may be left out."""


class DependencyBody(TypedDict):
    """Dependency on another allocation."""

    condition: str
    """Required end of the other allocation: `success`, `failure`, `any`, or `corresponding` (the
    element of the same index succeeded)."""
    on: JobBody
    """Allocation that must end first."""


class _DrainRequestNeeded(TypedDict):
    """Required fields."""

    reason: str
    """Free-text reason, shown with the node."""


class DrainRequest(_DrainRequestNeeded, total=False):
    """Request to drain a node, so that it gets no new allocation."""

    force_release: bool
    """Release the node by force, although it is unconfirmed that the holder's processes have
    ended. The caller takes responsibility; the reason is kept in the audit."""


class _EdgeBodyNeeded(TypedDict):
    """Required fields."""

    member: str
    """Member that must end first."""


class EdgeBody(_EdgeBodyNeeded, total=False):
    """Dependency on another member."""

    condition: Optional[str]
    """Required end of that member: `success` (when left out), `failure`, `any` or
    `corresponding`."""


class ExtendRequest(TypedDict):
    """Request for a different walltime."""

    walltime: str
    """Total walltime, including the run time in the checkpoint that the allocation resumed from:
    `3h`. Or an increment: `+30m`."""


class _LimitChangeBodyNeeded(TypedDict):
    """Required fields."""

    path: str
    """Project or tenant."""


class LimitChangeBody(_LimitChangeBodyNeeded, total=False):
    """Change to the limits of one project. A field left out keeps its value; `null` removes the
    limit."""

    max_concurrent_allocations: Optional[int]
    """Allocations that hold nodes at the same time."""
    max_nodes: Optional[int]
    """Nodes held at the same time."""


class LimitPolicyUpdate(TypedDict):
    """Change of the limit policy."""

    limit_policy: str
    """`strict`: the limits of children add up to at most their parent's, and every level counts.
    `flat`: only the limits of the project itself and of its tenant count."""


class _LimitsRequestNeeded(TypedDict):
    """Required fields."""

    changes: list[LimitChangeBody]
    """At least one change."""


class LimitsRequest(_LimitsRequestNeeded, total=False):
    """Limit changes, applied all or none and checked on the resulting tree."""

    force: bool
    """Apply the change even if the limits of children then add up to more than their parent's.
    The parent is marked as overcommitted until the limits fit. For administrators of the whole
    cluster."""


class _MemberRequestNeeded(TypedDict):
    """Required fields."""

    name: str
    """Name by which other members refer to this member."""
    nodes: int
    """Number of nodes, at least 1."""
    project: str
    """Project for limits and usage."""


_MemberRequestWords = TypedDict(
    "_MemberRequestWords", {"class": "Optional[int]"}, total=False
)


class MemberRequest(_MemberRequestNeeded, _MemberRequestWords, total=False):
    """Member of a graph: a request for nodes with a name and dependencies.

    `class`: Priority class, 0-10; 5 when left out."""

    after: Union[list[str], list[EdgeBody], dict[str, list[str]]]
    """Dependencies of a member, in one of three forms."""
    argv: list[str]
    """Program and arguments; with `script`, the arguments of the script. Give at least one of
    the two."""
    array: Optional[str]
    """Job array, as indices: `0-99%10`, `1,3,5-7`, `0-15:4`. The number after `%` limits how
    many elements run at a time. Each element gets its own allocation when it is placed, and its
    index in `LATTICE_ARRAY_INDEX`."""
    begin: Optional[str]
    """Earliest start: `2026-12-01T08:00:00Z`, `16:00` (UTC), `tomorrow`, `now+1hour`. With an
    idempotency key give an absolute time: in a repeated request `now` is a later time."""
    checkpoint: Optional[CheckpointBody]
    """Checkpoint mode, trigger and directory of the job. Left out: the allocation writes no
    checkpoints."""
    checkpoint_time: Optional[str]
    """Time to write a job checkpoint, in the format of `walltime`; 7 days at most. Left out:
    estimated from the memory of the GPUs."""
    constraints: ConstraintsBody
    """Requirements on the nodes."""
    data_ready: Optional[float]
    """Fraction of the input data that is on the hot tier, 0 to 1. Left out: unknown, scored as
    0.5."""
    deadline: Optional[str]
    """Time by which the allocation must have ended, in the format of `begin`; a time of day is
    the first one after `begin`."""
    dependencies: list[DependencyBody]
    """Allocations that must end first. The allocation waits for all of them."""
    dependency: Optional[str]
    """Dependencies in the syntax of batch schedulers: `afterok:12:13,afternotok:14_7,singleton`.
    Give this or `dependencies`, not both."""
    env: dict[str, str]
    """Environment variables, added to a minimal environment. The values are never shown again."""
    error: Optional[str]
    """File for standard error; written like `output`. Left out, on a site with a default file:
    the file of standard output."""
    hold: bool
    """Submit the allocation on hold."""
    mutex: Optional[str]
    """Mutex name: like `singleton`, but by this name instead of the allocation's name."""
    on_limit: Optional[str]
    """Handling of a request that fits the limits, but not with the present usage: `reject`, or
    `wait` to accept the allocation, which then waits for quota headroom. Left out: the setting
    of the tenant. A request above a limit itself is always refused. An allocation with
    dependencies, and a member of a DAG, always waits."""
    output: Optional[str]
    """File for standard output, which each node opens as the user and appends to. `%j` is the
    allocation, `%A` the array, `%a` the index in the array, `%r` the rank, `%n` the node. Left
    out: the default file of the site, if it has one. Otherwise, and for `-`, each node keeps the
    first and the last part of the output for some days, readable as logs."""
    requeue: Optional[str]
    """Policy after the loss of a node: `never` (default), `once` or `always`."""
    reservation: Optional[str]
    """Reservation. The allocation uses the nodes of this reservation only."""
    scale: Optional[ScaleBody]
    """Scaling of the number of nodes by a metric."""
    script: Optional[str]
    """Script, run by the interpreter of its `#!` line with `argv` as its arguments. Its first
    line is `#!` and the path of the interpreter; its lines have no carriage returns."""
    sensitive: bool
    """Sensitive data: attested nodes of one conformance group, no preemption, audit of each
    request, and a wipe afterwards."""
    singleton: bool
    """Make only one of the user's allocations with this name eligible at a time, in the order of
    submission."""
    storage_gb_s: dict[str, float]
    """Storage bandwidth that the whole allocation needs while it runs, GB/s (10^9 bytes per
    second) by storage system; 16 systems at most. Values are rounded to whole MB/s."""
    vcluster: Optional[str]
    """vCluster that schedules the allocation; `default` when left out."""
    walltime: Optional[str]
    """Longest run time: `90s`, `1h30m`, `HH:MM:SS`. Left out: unbounded, never backfilled."""
    working_dir: Optional[str]
    """Working directory, an absolute path."""


class MovementChange(TypedDict, total=False):
    """Change of a vCluster's movement settings; a field left out keeps its value."""

    checkpoint: Optional[CheckpointSettingsChange]
    """Job checkpoints: when they are written, and how long one may take."""
    preemption: Optional[PreemptionChange]
    """Preemption for jobs of a higher class."""
    scaling: Optional[ScalingChange]
    """Scaling: how quickly services follow their metrics."""
    sharing: Optional[SharingChange]
    """Lending and borrowing of nodes."""


class PreemptionChange(TypedDict, total=False):
    """Preemption for jobs of a higher class.

    A field left out keeps its value; `null` resets it to the default."""

    enabled: Optional[bool]
    """Whether preemption is enabled. Default: true."""
    max_victims: Optional[int]
    """Maximum number of victims per preemptor, 1 to 3. Default: 3."""
    near_completion_threshold_s: Optional[float]
    """A job with less than this time to its end is not preempted, seconds. Default: 300."""
    only_borrowed: Optional[bool]
    """Preempt only jobs that hold nothing but borrowed nodes. Default: false; true for services."""
    patience_s: Optional[float]
    """Minimum time that a job has waited, and is still expected to wait, before it preempts,
    seconds. Default: 60."""
    thrash_count: Optional[int]
    """A job that was preempted this often counts as one class higher; 0: never. Default: 3."""
    thrash_interval_s: Optional[float]
    """A job that was preempted or resumed within this time is not preempted, seconds. Default:
    900."""


class _ProjectRequestNeeded(TypedDict):
    """Required fields."""

    path: str
    """Path: the name of a tenant, or `tenant/a/b`; the parent must exist."""


class ProjectRequest(_ProjectRequestNeeded, total=False):
    """Request for a new project or tenant."""

    admins: list[str]
    """Administrators, which may also set the limits of child projects."""
    description: str
    """Free-text description."""
    limits: ProjectUpdate
    """Limits; `null` is unlimited. A limit left out is 0 if a level above limits the same
    resource, else unlimited. A tenant without `max_nodes` may hold no nodes."""


class ProjectUpdate(TypedDict, total=False):
    """Change to the project named in the request's path. A field left out keeps its value;
    `null` removes the limit."""

    max_concurrent_allocations: Optional[int]
    """Allocations that hold nodes at the same time."""
    max_nodes: Optional[int]
    """Nodes held at the same time."""


class _ReconcileRequestNeeded(TypedDict):
    """Required fields."""

    since: str
    """Start of the range: `2026-03-01`, or with a time. Every month that overlaps the range is
    included."""
    until: str
    """End of the range, exclusive."""


class ReconcileRequest(_ReconcileRequestNeeded, total=False):
    """Months to compare with the recorded usage and to correct."""

    accept: bool
    """Correct what can be corrected, and take the differences that remain in ended months off
    the status, for good. Not together with `dry_run`."""
    dry_run: bool
    """Compare only, and correct nothing."""


class ReleaseRequest(TypedDict, total=False):
    """Request to release claimed nodes."""

    reason: Optional[str]
    """Reason; required from a caller other than the claimant, and kept in the audit."""
    wipe: Literal["once", "again", "waive"]
    """Handling of the wipe."""


_ReservationRequestWords = TypedDict(
    "_ReservationRequestWords", {"from": "Optional[str]"}, total=False
)


class ReservationRequest(_ReservationRequestWords, total=False):
    """Request for a reservation. Give `nodes`, `groups` or both, and at most one of `until` and
    `duration`.

    `from`: Start: `2026-12-01T08:00:00Z`, `16:00` (UTC), `tomorrow`, `now+1hour`; now when left
    out."""

    duration: Optional[str]
    """Duration, instead of `until`: `2h`, `1d`."""
    expected_revision: Optional[int]
    """Revision of the reservation that this change is based on, 0 for none; the change is
    rejected if the reservation has another revision."""
    groups: list[str]
    """Topology groups, expanded to their present nodes."""
    nodes: Optional[str]
    """Nodes, as a hostlist."""
    projects: list[str]
    """Projects with access to the nodes, including projects below them. Without users and
    projects the reservation is a maintenance window, in which no allocation may use the nodes."""
    reason: str
    """Free-text reason."""
    until: Optional[str]
    """End, exclusive, in the format of `from`; a time of day is the first one after `from`.
    Without `until` and `duration` the reservation lasts until it is deleted."""
    users: list[str]
    """Users that may use the nodes."""


class RevokeRequest(TypedDict):
    """Request to revoke a member's certificates."""

    reason: str
    """Reason for the revocation; kept in the audit and shown with the member."""


class _ScaleBodyNeeded(TypedDict):
    """Required fields."""

    max_nodes: int
    """Maximum number of nodes."""
    metric: MetricBody
    """Metric: `gpu`, `cpu`, or `{"prometheus": "QUERY"}`."""
    min_nodes: int
    """Minimum number of nodes, at least 1. The allocation starts with this number."""
    target: float
    """Target value, above 0. A higher metric value adds a node."""


class ScaleBody(_ScaleBodyNeeded, total=False):
    """Scaling of the number of nodes by a metric."""

    cooldown: Optional[str]
    """Minimum time between two changes; `0s` for none."""
    down_threshold: Optional[float]
    """Lower threshold, as a fraction of the target between 0 and 1."""
    down_window: Optional[str]
    """Time for which the metric must be below the lower threshold before a node is released."""
    up_window: Optional[str]
    """Time for which the metric must be above the target before a node is added, in the format
    of a walltime. Left out: the setting of the vCluster."""


class ScalingChange(TypedDict, total=False):
    """Scaling: how quickly services follow their metrics.

    A field left out keeps its value; `null` resets it to the default."""

    backoff_cooldowns: Optional[int]
    """Cooldowns without a proposal after the last repetition was rejected. Default: 2."""
    calm_s: Optional[float]
    """Time without a change of size after which the next change does not count as a change of
    direction, seconds. Default: 3600."""
    cooldown_s: Optional[float]
    """Time for which a service keeps its size after a change, seconds. Default: 180."""
    down_window_s: Optional[float]
    """Time for which the metric must be below the threshold before the service shrinks, seconds.
    Default: 300."""
    evaluation_s: Optional[float]
    """Interval between readings of the metric, seconds. Default: 60."""
    missing_alert: Optional[int]
    """Consecutive evaluations without a metric before an alert. Default: 3."""
    oscillation_alert: Optional[int]
    """Consecutive changes of direction, between growing and shrinking, before an alert. Default:
    5."""
    retries: Optional[int]
    """Number of times that a rejected proposal is repeated. Default: 3."""
    threshold: Optional[float]
    """A service shrinks below this fraction of the target; above 0 and below 1. Default: 0.5."""
    up_window_s: Optional[float]
    """Time for which the metric must be above the target before the service grows, seconds.
    Default: 120."""


class SchedulerChange(TypedDict, total=False):
    """Change of scheduler settings; a field left out keeps its value."""

    checkpoint_gb_s: Optional[float]
    """Total bandwidth of all nodes to checkpoint storage, GB/s; `null`: unknown."""
    profile: Optional[str]
    """Workload profile that sets all weights: `hpc-batch`, `ml-training`, `service`,
    `sensitive`, `interactive` or `balanced`. Weights in `weights` are applied after the profile."""
    reference_wait_s: Optional[float]
    """Seconds of waiting after which the wait time factor is ln 2; more than 0."""
    reservations: Optional[ReservationsView]
    """Blocked jobs for which nodes are reserved: a number or `all`."""
    weights: Optional[WeightsChange]
    """Single weights."""


class SharingChange(TypedDict, total=False):
    """Lending and borrowing of nodes.

    A field left out keeps its value; `null` resets it to the default."""

    allow_borrowing: Optional[bool]
    """Whether the vCluster borrows nodes. Default: true."""
    allow_lending: Optional[bool]
    """Whether the vCluster lends its idle nodes. Default: true. With the weights of `sensitive`:
    always false."""
    borrowing_limit: Optional[int]
    """Maximum number of nodes that are borrowed at once. Default: unlimited."""
    lending_limit: Optional[int]
    """Maximum number of own nodes that are lent at once. Default: all idle nodes."""
    return_grace_s: Optional[float]
    """Time for which a borrower keeps a reclaimed node before the job on it is stopped, seconds.
    Default: 60."""


class StepDownRequest(TypedDict, total=False):
    """Request to transfer leadership."""

    to: Optional[int]
    """Number of the voter that is to lead; left out: any voter with a complete log."""


class SystemLimitsUpdate(TypedDict, total=False):
    """Change to the cluster-wide limits. A field left out keeps its value; `null` removes the
    limit."""

    sensitive_pool_size: Optional[int]
    """Nodes that can be claimed for sensitive use."""


class _TenantRequestNeeded(TypedDict):
    """Required fields."""

    id: str
    """Tenant name."""


class TenantRequest(_TenantRequestNeeded, total=False):
    """Request for a new tenant."""

    admins: list[str]
    """Administrators, which may also set the limits of the tenant's projects."""
    burst_allowance: Optional[float]
    """Multiple of the fair share that the tenant may hold while others need nothing, 1 to 10000;
    not set when left out."""
    description: str
    """Free-text description."""
    fair_share_target: Optional[float]
    """Share of the cluster that the tenant should have, 0 to 1; not set when left out."""
    gpu_hours_budget: Optional[float]
    """GPU hours that the tenant may use in the budget period; no budget when left out."""
    max_concurrent_allocations: Optional[int]
    """Allocations that hold nodes at the same time; unlimited when left out."""
    max_nodes: Optional[int]
    """Nodes held at the same time; 0 when left out."""
    node_hours_budget: Optional[float]
    """Node hours that the tenant may use in the budget period; no budget when left out."""
    on_limit: Optional[str]
    """Handling of submits that fit the limits, but not with the present usage, and state no
    handling themselves: `reject` (when left out) or `wait`."""


class TenantUpdate(TypedDict, total=False):
    """Change to a tenant's hard and soft limits and to the handling of its submits, applied
    completely or not at all. A field left out keeps its value; `null` removes the limit where
    that is allowed."""

    burst_allowance: Optional[float]
    """Multiple of the fair share that the tenant may hold while others need nothing, 1 to 10000;
    `null` removes it."""
    fair_share_target: Optional[float]
    """Share of the cluster that the tenant should have, 0 to 1; `null` removes it."""
    force: bool
    """Apply limits even if they are below the sum of the projects' limits. The tenant is marked
    as overcommitted until the limits fit. For administrators of the whole cluster."""
    gpu_hours_budget: Optional[float]
    """GPU hours that the tenant may use in the budget period; `null` removes the budget."""
    max_concurrent_allocations: Optional[int]
    """Allocations that hold nodes at the same time."""
    max_nodes: Optional[int]
    """Nodes held at the same time; a number."""
    node_hours_budget: Optional[float]
    """Node hours that the tenant may use in the budget period; `null` removes the budget."""
    on_limit: Optional[str]
    """Handling of submits that fit the limits, but not with the present usage, and state no
    handling themselves: `reject` or `wait`. For administrators."""


class _TokenRequestNeeded(TypedDict):
    """Required fields."""

    role: str
    """Role to enrol: `agent`, `control` or `quorum`."""
    ttl: str
    """Lifetime, a week at most: `30m`, `1h`, `7d`."""


class TokenRequest(_TokenRequestNeeded, total=False):
    """Request for a join token."""

    cidrs: list[str]
    """Networks from which the token may be used, by the client address of the connection to the
    quorum member; left out: any network."""
    nodes: Optional[str]
    """Names that may enrol with the token, as a hostlist; left out: any name."""
    replace: bool
    """Whether the token may take over a name that is already enrolled, if the enrolling machine
    requests that too. Earlier certificates of the name then become invalid."""
    uses: int
    """Number of enrolments, 100000 at most; 1 when left out."""


class _VclusterNodesRequestNeeded(TypedDict):
    """Required fields."""

    nodes: str
    """Nodes, as a hostlist; all of them are assigned, or none."""


_VclusterNodesRequestWords = TypedDict(
    "_VclusterNodesRequestWords", {"from": "Optional[str]"}, total=False
)


class VclusterNodesRequest(_VclusterNodesRequestNeeded, _VclusterNodesRequestWords, total=False):
    """Request to assign nodes to a vCluster.

    `from`: vCluster from which the nodes may be taken. Nodes of an undefined vCluster are taken
    in any case."""


class VclusterRequest(TypedDict, total=False):
    """Definition or change of a vCluster. A field left out keeps its value. By default a new
    vCluster has no description, and all tenants may use it."""

    description: Optional[str]
    """Free-text description."""
    expected_version: Optional[int]
    """Version that this change is based on, 0 for none; the change is rejected if another
    version exists by then."""
    movement: Optional[MovementChange]
    """Change of the movement settings, under the conditions of `scheduler`; rejected if the
    settings would be inconsistent."""
    scheduler: Optional[SchedulerChange]
    """Change of the scheduler settings, in effect from the next plan on. Without other fields
    the vCluster must exist (defined, `default`, or with nodes), and the change does not define
    it."""
    tenants: Optional[list[str]]
    """Tenants that may use the vCluster; `null`: all, `[]`: none."""


class WeightsChange(TypedDict, total=False):
    """Change of weights; a field left out keeps its value."""

    backlog: Optional[float]
    """Weight of the backlog; see `WeightsView`."""
    checkpoint: Optional[float]
    """Weight of a low checkpoint cost; see `WeightsView`."""
    conformance: Optional[float]
    """Weight of one conformance group; see `WeightsView`."""
    data_ready: Optional[float]
    """Weight of input data on the hot tier; see `WeightsView`."""
    energy: Optional[float]
    """Weight of the energy price; see `WeightsView`."""
    fair_share: Optional[float]
    """Weight of the tenant's distance from its share; see `WeightsView`."""
    priority: Optional[float]
    """Weight of the priority class; see `WeightsView`."""
    topology: Optional[float]
    """Weight of few topology groups; see `WeightsView`."""
    wait_time: Optional[float]
    """Weight of the time in the queue; see `WeightsView`."""
