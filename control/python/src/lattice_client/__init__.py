"""Python SDK: the REST interface of a Lattice cluster as typed calls.

`AsyncClient` and `Client` have the same methods. Responses are frozen dataclasses
(`lattice_client.models`), requests are typed dictionaries (`lattice_client.requests`). Errors of
calls are `LatticeError`, with one subclass for each way in which a caller can react.
"""

from ._async.bytestream import AsyncByteStream
from ._async.client import AsyncClient
from ._async.pages import AsyncPages
from ._async.watch import AsyncWatch
from ._decode import Model, Page, Reading
from ._request import VERSION as __version__
from ._request import Retry
from ._sync.bytestream import ByteStream
from ._sync.client import Client
from ._sync.pages import Pages
from ._sync.watch import Watch
from .endpoint import Endpoint
from .errors import (
    EndpointError,
    Invalid,
    LatticeError,
    NotAllowed,
    NotFound,
    Problem,
    ProtocolError,
    Refused,
    ServerFault,
    TimedOut,
    Unavailable,
    Unreachable,
    Untrusted,
)
from .events import Event
from .models import (
    AllocationView,
    Changes,
    CompactedEvents,
    NodeView,
    ObservedChanges,
    ProjectView,
    SubmitResult,
    TenantUsage,
    TenantView,
    UserUsage,
    Violation,
)
from .requests import AllocationRequest, DagRequest, TenantRequest, TenantUpdate

__all__ = [
    "AllocationRequest",
    "AllocationView",
    "AsyncByteStream",
    "AsyncClient",
    "AsyncPages",
    "AsyncWatch",
    "ByteStream",
    "Changes",
    "Client",
    "CompactedEvents",
    "DagRequest",
    "Endpoint",
    "EndpointError",
    "Event",
    "Invalid",
    "LatticeError",
    "Model",
    "NodeView",
    "NotAllowed",
    "NotFound",
    "ObservedChanges",
    "Page",
    "Pages",
    "Problem",
    "ProjectView",
    "ProtocolError",
    "Reading",
    "Refused",
    "Retry",
    "ServerFault",
    "SubmitResult",
    "TenantRequest",
    "TenantUpdate",
    "TenantUsage",
    "TenantView",
    "TimedOut",
    "Unavailable",
    "Unreachable",
    "Untrusted",
    "UserUsage",
    "Violation",
    "Watch",
    "__version__",
]
