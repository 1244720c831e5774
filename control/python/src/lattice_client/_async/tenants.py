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
from .pages import AsyncPages
from .transport import AsyncTransport


class Tenants(AsyncTransport):
    """See the module."""

    def list_tenants(self) -> AsyncPages[TenantView]:
        """All tenants by name."""
        return self._list(TenantView, "/tenants", {})

    async def get_tenant(self, id: str) -> TenantView:
        """One tenant."""
        return await self._ask(TenantView, "/tenants/{id}", {"id": id})

    async def create_tenant(self, request: TenantRequest, *, key: str | None = None) -> TenantView:
        """A new tenant. `max_nodes` that is left out is 0. For administrators."""
        return await self._write(TenantView, "POST", "/tenants", {}, body=request, key=key)

    async def update_tenant(
        self, id: str, update: TenantUpdate, *, key: str | None = None
    ) -> TenantView:
        """Changes its limits: a field left out stays, `None` lifts the limit where that is allowed.
        It may go below what is used, which ends nothing. For administrators."""
        return await self._write(
            TenantView, "PUT", "/tenants/{id}", {"id": id}, body=update, key=key
        )

    async def delete_tenant(self, id: str, *, key: str | None = None) -> Changed:
        """Deletes a tenant without projects and unfinished allocations. For administrators."""
        return await self._write(Changed, "DELETE", "/tenants/{id}", {"id": id}, key=key)

    async def tenant_usage(self, id: str, *, days: int | None = None) -> TenantUsage:
        """What it used in the last days, and what is left of its budgets."""
        return await self._ask(TenantUsage, "/tenants/{id}/usage", {"id": id}, query={"days": days})

    async def user_usage(self, user: str | None = None, *, days: int | None = None) -> UserUsage:
        """What a user used in the last days, by tenant; whoever asks when none is named."""
        return await self._ask(UserUsage, "/usage", {}, query={"user": user, "days": days})

    def list_projects(self, below: str | None = None) -> AsyncPages[ProjectView]:
        """The tree, parents before children; or one project and what is below."""
        return self._list(ProjectView, "/projects", {}, query={"below": below})

    async def get_project(self, path: str) -> ProjectView:
        """One project, or tenant."""
        return await self._ask(ProjectView, "/projects/{path}", {"path": path})

    async def create_project(
        self, request: ProjectRequest, *, key: str | None = None
    ) -> ProjectView:
        """A new project below its parent, or a tenant. A limit that is left out is 0 of what a
        level above limits."""
        return await self._write(ProjectView, "POST", "/projects", {}, body=request, key=key)

    async def update_project(
        self, path: str, update: ProjectUpdate, *, key: str | None = None
    ) -> ProjectView:
        """Changes its limits: a field left out stays, `None` lifts the limit."""
        return await self._write(
            ProjectView, "PUT", "/projects/{path}", {"path": path}, body=update, key=key
        )

    async def delete_project(self, path: str, *, key: str | None = None) -> Changed:
        """Deletes an empty project."""
        return await self._write(Changed, "DELETE", "/projects/{path}", {"path": path}, key=key)

    async def get_headroom(self, path: str) -> HeadroomView:
        """How much more a project could be given now, as far as limits go, with every level that
        has a say."""
        return await self._ask(HeadroomView, "/projects/{path}/headroom", {"path": path})

    async def set_limits(
        self, changes: list[LimitChangeBody], *, force: bool = False, key: str | None = None
    ) -> Changed:
        """Changes several limits, all or none, judged on the resulting tree. With `force` also
        where children then add up to more than their parent."""
        body = {"changes": changes, "force": force}
        return await self._write(Changed, "PUT", "/limits", {}, body=body, key=key)

    async def get_system_limits(self) -> SystemLimitsView:
        """What is limited for the whole cluster, and what limits of projects mean."""
        return await self._ask(SystemLimitsView, "/system/limits", {})

    async def update_system_limits(
        self, update: SystemLimitsUpdate, *, key: str | None = None
    ) -> SystemLimitsView:
        """Changes it: a field left out stays, `None` lifts the limit. For administrators."""
        return await self._write(
            SystemLimitsView, "PUT", "/system/limits", {}, body=update, key=key
        )

    async def set_limit_policy(
        self, name: Literal["strict", "flat"], *, key: str | None = None
    ) -> SystemLimitsView:
        """What limits of projects mean from now on. Refused while the tree does not obey it. For
        administrators."""
        body = {"limit_policy": name}
        return await self._write(
            SystemLimitsView, "PUT", "/system/limit-policy", {}, body=body, key=key
        )
