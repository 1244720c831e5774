# Written by `generate` from `_async/`: do not edit.
"""Tenants, projects, limits and usage."""

from __future__ import annotations

from typing import Literal

from ..models import (
    ChangeResult,
    HeadroomView,
    ProjectView,
    SystemLimitsView,
    TenantUsage,
    TenantView,
    UserUsage,
)
from ..requests import (
    LimitChangeBody,
    ProjectRequest,
    ProjectUpdate,
    SystemLimitsUpdate,
    TenantRequest,
    TenantUpdate,
)
from .pages import Pages
from .transport import Transport


class Tenants(Transport):
    """Calls of tenants, projects, limits and usage."""

    def list_tenants(self) -> Pages[TenantView]:
        """List all tenants by name."""
        return self._list(TenantView, "/tenants", {})

    def get_tenant(self, id: str) -> TenantView:
        """Show a tenant."""
        return self._ask(TenantView, "/tenants/{id}", {"id": id})

    def create_tenant(self, request: TenantRequest, *, key: str | None = None) -> TenantView:
        """Create a tenant. Without `max_nodes` it is 0.

        For administrators.
        """
        return self._write(TenantView, "POST", "/tenants", {}, body=request, key=key)

    def update_tenant(
        self, id: str, update: TenantUpdate, *, key: str | None = None
    ) -> TenantView:
        """Change the limits of a tenant.

        A field left out stays; `None` removes the limit where that is allowed. A limit may be set
        below the present usage; running allocations are not affected. Below the sum of the project
        limits it raises `Refused`, unless `force` is set in `update`, which marks the tenant as
        overcommitted. For administrators of the whole cluster.
        """
        return self._write(
            TenantView, "PUT", "/tenants/{id}", {"id": id}, body=update, key=key
        )

    def delete_tenant(self, id: str, *, key: str | None = None) -> ChangeResult:
        """Delete a tenant without projects, unfinished allocations or claimed nodes.

        For administrators.
        """
        return self._write(ChangeResult, "DELETE", "/tenants/{id}", {"id": id}, key=key)

    def tenant_usage(self, id: str, *, days: int | None = None) -> TenantUsage:
        """Show the usage of a tenant in the last `days`, and the rest of its budgets.

        At most 30 s old.
        """
        return self._ask(TenantUsage, "/tenants/{id}/usage", {"id": id}, query={"days": days})

    def user_usage(self, user: str | None = None, *, days: int | None = None) -> UserUsage:
        """Show the usage of a user in the last `days`, by tenant; default is the caller.

        At most 30 s old.
        """
        return self._ask(UserUsage, "/usage", {}, query={"user": user, "days": days})

    def list_projects(self, below: str | None = None) -> Pages[ProjectView]:
        """List the project tree, parents before children, or one project and its descendants."""
        return self._list(ProjectView, "/projects", {}, query={"below": below})

    def get_project(self, path: str) -> ProjectView:
        """Show a project or tenant."""
        return self._ask(ProjectView, "/projects/{path}", {"path": path})

    def create_project(
        self, request: ProjectRequest, *, key: str | None = None
    ) -> ProjectView:
        """Create a project below its parent, or a tenant.

        A limit left out is 0 if a level above limits that resource.
        """
        return self._write(ProjectView, "POST", "/projects", {}, body=request, key=key)

    def update_project(
        self, path: str, update: ProjectUpdate, *, key: str | None = None
    ) -> ProjectView:
        """Change the limits of a project.

        A field left out stays; `None` removes the limit.
        """
        return self._write(
            ProjectView, "PUT", "/projects/{path}", {"path": path}, body=update, key=key
        )

    def delete_project(self, path: str, *, key: str | None = None) -> ChangeResult:
        """Delete an empty project."""
        return self._write(
            ChangeResult, "DELETE", "/projects/{path}", {"path": path}, key=key
        )

    def get_headroom(self, path: str) -> HeadroomView:
        """Show the headroom of a project under its limits, with every level that applies."""
        return self._ask(HeadroomView, "/projects/{path}/headroom", {"path": path})

    def set_limits(
        self, changes: list[LimitChangeBody], *, force: bool = False, key: str | None = None
    ) -> ChangeResult:
        """Change several limits, all or none, checked on the resulting tree.

        With `force`, the limits of children may exceed the limit of their parent in sum.
        """
        body = {"changes": changes, "force": force}
        return self._write(ChangeResult, "PUT", "/limits", {}, body=body, key=key)

    def get_system_limits(self) -> SystemLimitsView:
        """Show the cluster-wide limits and the limit policy."""
        return self._ask(SystemLimitsView, "/system/limits", {})

    def update_system_limits(
        self, update: SystemLimitsUpdate, *, key: str | None = None
    ) -> SystemLimitsView:
        """Change the cluster-wide limits.

        A field left out stays; `None` removes the limit. A limit may go below the usage, which ends
        nothing. For administrators of the whole cluster.
        """
        return self._write(
            SystemLimitsView, "PUT", "/system/limits", {}, body=update, key=key
        )

    def set_limit_policy(
        self, name: Literal["strict", "flat"], *, key: str | None = None
    ) -> SystemLimitsView:
        """Set the limit policy.

        Raises `Refused` while the project tree violates it. For administrators of the whole
        cluster.
        """
        body = {"limit_policy": name}
        return self._write(
            SystemLimitsView, "PUT", "/system/limit-policy", {}, body=body, key=key
        )
