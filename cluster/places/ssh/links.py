"""The testbed's side of the agents on hosts, over connections that may be lost and made again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from cluster.places.agent_links import Agents, AgentUnreachable
from cluster.places.data_folder import ENCODED_BYTES_MAX

#: What a connection that is lost may take to come back before a step fails; shorter than what the nemesis gives one.
AGAIN_BUDGET_S = 9.0
AGAIN_POLL_S = 0.1


class HostAgents(Agents):
    """Whatever is asked is asked again when the answer was lost: all of it may be done twice."""

    _answer_max = ENCODED_BYTES_MAX

    async def ask(self, name: str, what: str, **about: Any) -> Any:
        """Raises PlaceError."""
        return await self._ask(name, {"do": what, **about})

    async def _ask(self, name: str, request: Mapping[str, Any]) -> Any:
        clock = asyncio.get_running_loop().time
        deadline = clock() + AGAIN_BUDGET_S
        while True:
            try:
                return await super()._ask(name, request)
            except AgentUnreachable:
                if clock() > deadline:
                    raise
                await asyncio.sleep(AGAIN_POLL_S)
