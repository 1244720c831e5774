# Written by `generate` from `_async/`: do not edit.
"""Quorum, certificate authorities, certificates, join tokens and accounting.

All calls are for operators or administrators.
"""

from __future__ import annotations

from typing import Literal

from .. import _request
from .._request import API
from ..models import (
    AccountingStatus,
    AuthorityView,
    CertificateView,
    ChangeResult,
    QuorumStep,
    QuorumView,
    ReconcileView,
    TokenCreated,
    TokenView,
)
from ..requests import AddMemberRequest, ReconcileRequest, TokenRequest
from .bytestream import ByteStream
from .pages import Pages
from .transport import Transport


class Admin(Transport):
    """Calls of quorum administration and accounting."""

    def get_quorum(self) -> QuorumView:
        """Show the quorum: members, leader, replication state, and conditions that need attention.

        Answered also without a leader. For operators.
        """
        return self._ask(QuorumView, "/quorum", {})

    def add_quorum_member(
        self, request: AddMemberRequest, *, key: str | None = None
    ) -> QuorumStep:
        """Add a quorum member.

        Each call makes one step of at most some seconds: first the member becomes a learner, then a
        voter once it has caught up. Repeat the call until it is done. For administrators.
        """
        return self._write(QuorumStep, "POST", "/quorum/members", {}, body=request, key=key)

    def remove_quorum_member(
        self,
        id: int,
        *,
        reason: str | None = None,
        force: bool = False,
        key: str | None = None,
    ) -> QuorumStep:
        """Remove a quorum member.

        Each call makes one step; a leader hands over first. Repeat the call until it is done.
        Rejected while a majority of the others does not answer. For administrators.
        """
        return self._write(
            QuorumStep,
            "DELETE",
            "/quorum/members/{id}",
            {"id": id},
            query={"reason": reason, "force": True if force else None},
            key=key,
        )

    def step_down(self, to: int | None = None, *, key: str | None = None) -> QuorumStep:
        """Transfer leadership to the member `to`, or to any other member.

        The quorum pauses for one election. For administrators.
        """
        body = {"to": to}
        return self._write(QuorumStep, "POST", "/quorum/step-down", {}, body=body, key=key)

    def backup(self, *, key: str | None = None) -> ByteStream:
        """Create a backup of the whole state at one revision.

        The stream is the content of the backup file. For administrators.
        """
        call = _request.writing("POST", f"{API}/quorum/backup", {}, {}, None, key, True)
        return ByteStream(self, call, None, patient=True)

    def list_authorities(self) -> Pages[AuthorityView]:
        """List the trusted certificate authorities, in the order in which they were added.

        They fit on one page. For operators.
        """
        return self._list(AuthorityView, "/authorities", {})

    def add_authority(self, certificate: str, *, key: str | None = None) -> ChangeResult:
        """Trust an additional certificate authority, given in PEM form.

        The issuing authority does not change. For administrators.
        """
        body = {"certificate": certificate}
        return self._write(ChangeResult, "POST", "/authorities", {}, body=body, key=key)

    def promote_authority(self, pin: str, *, key: str | None = None) -> ChangeResult:
        """Promote a trusted certificate authority to the issuing one.

        All members then renew their certificates. For administrators.
        """
        return self._write(
            ChangeResult, "POST", "/authorities/{pin}/promote", {"pin": pin}, key=key
        )

    def retire_authority(
        self, pin: str, *, force: bool = False, key: str | None = None
    ) -> ChangeResult:
        """Retire a certificate authority.

        Rejected for the issuing authority, and, without `force`, while its certificates are in use.
        For administrators.
        """
        query = {"force": True if force else None}
        return self._write(
            ChangeResult, "DELETE", "/authorities/{pin}", {"pin": pin}, query=query, key=key
        )

    def list_certificates(self) -> Pages[CertificateView]:
        """List all members with a certificate, by role and name.

        For operators.
        """
        return self._list(CertificateView, "/certificates", {})

    def revoke_certificate(
        self,
        role: Literal["agent", "control", "quorum"],
        name: str,
        reason: str,
        *,
        key: str | None = None,
    ) -> ChangeResult:
        """Revoke all certificates of a member issued until now.

        All connections of the member end, and the member must enrol again with a new join token.
        For administrators.
        """
        return self._write(
            ChangeResult,
            "POST",
            "/certificates/{role}/{name}/revoke",
            {"role": role, "name": name},
            body={"reason": reason},
            key=key,
        )

    def list_tokens(self) -> Pages[TokenView]:
        """List usable join tokens, the first to expire first.

        They fit on one page. For administrators.
        """
        return self._list(TokenView, "/tokens", {})

    def create_token(self, request: TokenRequest) -> TokenCreated:
        """Create a join token for new agents, quorum members or controls.

        Only this response contains the token text. The request is not repeated once the server may
        have read it: if the response is lost, the first token cannot be read again. For
        administrators of the whole cluster.
        """
        return self._write(
            TokenCreated, "POST", "/tokens", {}, body=request, repeatable=False
        )

    def revoke_token(self, id: str, *, key: str | None = None) -> ChangeResult:
        """Revoke a join token.

        Members that enrolled with it stay enrolled. For administrators.
        """
        return self._write(ChangeResult, "DELETE", "/tokens/{id}", {"id": id}, key=key)

    def accounting_status(self) -> AccountingStatus:
        """Show the accounting status.

        The status lists the acknowledged, the pending and the rejected data. For operators of the
        whole cluster.
        """
        return self._ask(AccountingStatus, "/accounting/status", {})

    def reconcile_accounting(self, request: ReconcileRequest) -> ReconcileView:
        """Compare monthly totals with recorded usage.

        Differences are corrected, also downwards, unless `dry_run` is set in the request. For
        administrators of the whole cluster.
        """
        return self._write(ReconcileView, "POST", "/accounting/reconcile", {}, body=request)
