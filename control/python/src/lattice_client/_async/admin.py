"""The quorum, its authorities, certificates and tokens, and accounting. Nearly all of it is for
administrators."""

from __future__ import annotations

from typing import Literal

from .. import _request
from .._request import API
from ..models import (
    AccountingStatus,
    AuthorityView,
    CertificateView,
    Changed,
    QuorumStep,
    QuorumView,
    ReconcileView,
    TokenCreated,
    TokenView,
)
from ..requests import AddMemberRequest, ReconcileRequest, TokenRequest
from .bytestream import AsyncByteStream
from .pages import AsyncPages
from .transport import AsyncTransport


class Admin(AsyncTransport):
    """See the module."""

    async def get_quorum(self) -> QuorumView:
        """The quorum's members and how they are."""
        return await self._ask(QuorumView, "/quorum", {})

    async def add_quorum_member(
        self, request: AddMemberRequest, *, key: str | None = None
    ) -> QuorumStep:
        """One step towards another member; repeat it until it is done."""
        return await self._write(QuorumStep, "POST", "/quorum/members", {}, body=request, key=key)

    async def remove_quorum_member(
        self,
        id: int,
        *,
        reason: str | None = None,
        force: bool = False,
        key: str | None = None,
    ) -> QuorumStep:
        """One step towards one member less; repeat it until it is done."""
        return await self._write(
            QuorumStep,
            "DELETE",
            "/quorum/members/{id}",
            {"id": id},
            query={"reason": reason, "force": True if force else None},
            key=key,
        )

    async def step_down(self, to: int | None = None, *, key: str | None = None) -> QuorumStep:
        """Has another member lead: this one, or any."""
        body = {"to": to}
        return await self._write(QuorumStep, "POST", "/quorum/step-down", {}, body=body, key=key)

    def backup(self, *, key: str | None = None) -> AsyncByteStream:
        """A backup of the quorum's state, as a file's bytes."""
        call = _request.writing("POST", f"{API}/quorum/backup", {}, {}, None, key, True)
        return AsyncByteStream(self, call, None, patient=True)

    def list_authorities(self) -> AsyncPages[AuthorityView]:
        """The authorities of the mesh. They come on one page."""
        return self._list(AuthorityView, "/authorities", {})

    async def add_authority(self, certificate: str, *, key: str | None = None) -> Changed:
        """Certificates of this authority, PEM, are trusted from now on."""
        body = {"certificate": certificate}
        return await self._write(Changed, "POST", "/authorities", {}, body=body, key=key)

    async def promote_authority(self, pin: str, *, key: str | None = None) -> Changed:
        """New certificates come from this authority."""
        return await self._write(
            Changed, "POST", "/authorities/{pin}/promote", {"pin": pin}, key=key
        )

    async def retire_authority(
        self, pin: str, *, force: bool = False, key: str | None = None
    ) -> Changed:
        """Certificates of this authority are trusted no more."""
        query = {"force": True if force else None}
        return await self._write(
            Changed, "DELETE", "/authorities/{pin}", {"pin": pin}, query=query, key=key
        )

    def list_certificates(self) -> AsyncPages[CertificateView]:
        """Who has a certificate of the mesh."""
        return self._list(CertificateView, "/certificates", {})

    async def revoke_certificate(
        self,
        role: Literal["agent", "control", "quorum"],
        name: str,
        reason: str,
        *,
        key: str | None = None,
    ) -> Changed:
        """What this member was issued up to now holds no more."""
        return await self._write(
            Changed,
            "POST",
            "/certificates/{role}/{name}/revoke",
            {"role": role, "name": name},
            body={"reason": reason},
            key=key,
        )

    def list_tokens(self) -> AsyncPages[TokenView]:
        """Join tokens that are still good. They come on one page."""
        return self._list(TokenView, "/tokens", {})

    async def create_token(self, request: TokenRequest) -> TokenCreated:
        """A join token, which is shown once. Where its answer is lost it is not asked for again:
        nobody could know the first one."""
        return await self._write(
            TokenCreated, "POST", "/tokens", {}, body=request, repeatable=False
        )

    async def revoke_token(self, id: str, *, key: str | None = None) -> Changed:
        """Nobody enrols with it any more."""
        return await self._write(Changed, "DELETE", "/tokens/{id}", {"id": id}, key=key)

    async def accounting_status(self) -> AccountingStatus:
        """What the accounting system has, what waits for it, and what it refuses. For operators of
        the whole cluster."""
        return await self._ask(AccountingStatus, "/accounting/status", {})

    async def reconcile_accounting(self, request: ReconcileRequest) -> ReconcileView:
        """Compares the months between two moments with what was used, and sets what is another
        there. With `dry_run` it only compares. For administrators of the whole cluster."""
        return await self._write(ReconcileView, "POST", "/accounting/reconcile", {}, body=request)
