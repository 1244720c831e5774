# Written by `generate` from `_async/`: do not edit.
"""Tenants, projects, limits, and what was used."""

from __future__ import annotations

from typing import Literal

from ..models import (
    Changed,
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
    """See the module."""

    def list_tenants(self) -> Pages[TenantView]:
        """All tenants by name."""
        return self._list(TenantView, "/tenants", {})

    def get_tenant(self, id: str) -> TenantView:
        """One tenant."""
        return self._ask(TenantView, "/tenants/{id}", {"id": id})

    def create_tenant(self, request: TenantRequest, *, key: str | None = None) -> TenantView:
        """A new tenant. `max_nodes` that is left out is 0. For administrators."""
        return self._write(TenantView, "POST", "/tenants", {}, body=request, key=key)

    def update_tenant(
        self, id: str, update: TenantUpdate, *, key: str | None = None
    ) -> TenantView:
        """Changes its limits: a field left out stays, `None` lifts the limit where that is allowed.
        It may go below what is used, which ends nothing. For administrators."""
        return self._write(
            TenantView, "PUT", "/tenants/{id}", {"id": id}, body=update, key=key
        )

    def delete_tenant(self, id: str, *, key: str | None = None) -> Changed:
        """Deletes a tenant without projects and unfinished allocations. For administrators."""
        return self._write(Changed, "DELETE", "/tenants/{id}", {"id": id}, key=key)

    def tenant_usage(self, id: str, *, days: int | None = None) -> TenantUsage:
        """What it used in the last days, and what is left of its budgets."""
        return self._ask(TenantUsage, "/tenants/{id}/usage", {"id": id}, query={"days": days})

    def user_usage(self, user: str | None = None, *, days: int | None = None) -> UserUsage:
        """What a user used in the last days, by tenant; whoever asks when none is named."""
        return self._ask(UserUsage, "/usage", {}, query={"user": user, "days": days})

    def list_projects(self, below: str | None = None) -> Pages[ProjectView]:
        """The tree, parents before children; or one project and what is below."""
        return self._list(ProjectView, "/projects", {}, query={"below": below})

    def get_project(self, path: str) -> ProjectView:
        """One project, or tenant."""
        return self._ask(ProjectView, "/projects/{path}", {"path": path})

    def create_project(
        self, request: ProjectRequest, *, key: str | None = None
    ) -> ProjectView:
        """A new project below its parent, or a tenant. A limit that is left out is 0 of what a
        level above limits."""
        return self._write(ProjectView, "POST", "/projects", {}, body=request, key=key)

    def update_project(
        self, path: str, update: ProjectUpdate, *, key: str | None = None
    ) -> ProjectView:
        """Changes its limits: a field left out stays, `None` lifts the limit."""
        return self._write(
            ProjectView, "PUT", "/projects/{path}", {"path": path}, body=update, key=key
        )

    def delete_project(self, path: str, *, key: str | None = None) -> Changed:
        """Deletes an empty project."""
        return self._write(Changed, "DELETE", "/projects/{path}", {"path": path}, key=key)

    def get_headroom(self, path: str) -> HeadroomView:
        """How much more a project could be given now, as far as limits go, with every level that
        has a say."""
        return self._ask(HeadroomView, "/projects/{path}/headroom", {"path": path})

    def set_limits(
        self, changes: list[LimitChangeBody], *, force: bool = False, key: str | None = None
    ) -> Changed:
        """Changes several limits, all or none, judged on the resulting tree. With `force` also
        where children then add up to more than their parent."""
        body = {"changes": changes, "force": force}
        return self._write(Changed, "PUT", "/limits", {}, body=body, key=key)

    def get_system_limits(self) -> SystemLimitsView:
        """What is limited for the whole cluster, and what limits of projects mean."""
        return self._ask(SystemLimitsView, "/system/limits", {})

    def update_system_limits(
        self, update: SystemLimitsUpdate, *, key: str | None = None
    ) -> SystemLimitsView:
        """Changes it: a field left out stays, `None` lifts the limit. For administrators."""
        return self._write(
            SystemLimitsView, "PUT", "/system/limits", {}, body=update, key=key
        )

    def set_limit_policy(
        self, name: Literal["strict", "flat"], *, key: str | None = None
    ) -> SystemLimitsView:
        """What limits of projects mean from now on. Refused while the tree does not obey it. For
        administrators."""
        body = {"limit_policy": name}
        return self._write(
            SystemLimitsView, "PUT", "/system/limit-policy", {}, body=body, key=key
        )
