"""One pool's own way to the journal, for as long as it is this process's."""

import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Self

from skyward.journal.claim import Claim
from skyward.journal.entries import PoolEntry, WorkerEntry
from skyward.journal.sealing import Seal
from skyward.journal.store import Journal
from skyward.providers.protocol import Cluster, Instance

__all__ = ["PoolRecord"]


class PoolRecord:
    """What is on record of a pool.

    Attributes:
        id: what the pool's machines are known by, everywhere.
    """

    def __init__(self, id: str, journal: Journal, claim: Claim) -> None:
        self.id = id
        self._journal = journal
        self._claim = claim
        self._seal = Seal(claim.secrets_key)
        self._over = False

    @classmethod
    def new(cls, name: str, groups: Mapping[str, object], options: object, lease: float) -> Self:
        """The record of a pool that is about to be opened.

        Raises:
            JournalError: it cannot be written down.
        """
        id = f"{_plain(name)}-{secrets.token_hex(5)}"
        journal = Journal()
        claim = Claim.new(id)
        journal.add_pool(
            PoolEntry(id, name, socket.gethostname(), os.getpid(), time.time(), lease, _packed(groups, options, claim))
        )
        return cls(id, journal, claim)

    @classmethod
    def taken_over(cls, id: str, journal: Journal, claim: Claim) -> Self:
        """The record of a pool that another process has opened; it is ours from now on."""
        journal.hand_over(id, socket.gethostname(), os.getpid())
        claim.renew()
        return cls(id, journal, claim)

    # What is about to be done, and was.

    def preparing(self, group: str, offered: object) -> int:
        """What machines share is about to be prepared; the number to name it by."""
        return self._journal.add_cluster(self.id, group, self._seal.pack(offered))

    def prepared(self, number: int, cluster: Cluster) -> None:
        """It was prepared."""
        self._journal.prepared(number, self._seal.pack(cluster))

    def asking(self, number: int) -> str:
        """Machines are about to be asked for; the token that tells this request from every other."""
        token = secrets.token_hex(8)
        self._journal.ask(number, token)
        return token

    def came(self, number: int, token: str, cluster: Cluster, instances: Sequence[Instance]) -> None:
        """These machines came of it."""
        self._journal.came(number, token, self._seal.pack(cluster), instances)

    def installed(self, number: int, instance: Instance, worker: WorkerEntry) -> None:
        """A machine has its worker."""
        self._journal.installed(number, instance, worker)

    def gone(self, number: int, instance: str) -> None:
        """A machine was given back."""
        self._journal.gone(number, instance)

    def torn_down(self, number: int) -> None:
        """What the machines of one place shared is gone, and so are they."""
        self._journal.forget_cluster(number)

    def took(self, provider: str, image: str) -> Mapping[str, list[float]]:
        """Seconds that the phases of the latest starts of any pool took."""
        return self._journal.took(provider, image)

    def add_took(self, provider: str, image: str, seconds: Mapping[str, float], keep: int) -> None:
        """A node is up whose phases took so long; of each, the last `keep` are kept."""
        self._journal.add_took(provider, image, seconds, keep)

    # Whose it is.

    def renew(self) -> None:
        """We live."""
        self._claim.renew()

    def derive(self, purpose: str) -> bytes:
        """A secret of the pool, the same for the same purpose."""
        return self._claim.derive(purpose)

    def end(self) -> None:
        """Nothing is left of the pool. Twice does no harm, nor does it once the pool is left to others."""
        if self._over:
            return
        self._journal.forget_pool(self.id)
        self._over = True
        self._claim.end()
        self._journal.close()

    def leave(self) -> None:
        """Something may be left of the pool, and this process has given up on it: others may reap it."""
        self._over = True
        self._claim.release()
        self._journal.close()


def _packed(groups: Mapping[str, object], options: object, claim: Claim) -> bytes:
    """Groups and options as the journal keeps them; empty where something in them cannot be pickled."""
    try:
        return Seal(claim.secrets_key).pack((dict(groups), options))
    except Exception:  # whatever a policy of the user's own may hold
        return b""


def _plain(name: str) -> str:
    """`name` as far as it may be in the name of a file, and in a tag of any cloud."""
    return "".join(each if each.isascii() and (each.isalnum() or each in "-_") else "-" for each in name)[:40]
