"""The rare orders of operators to hosts that elect: one is to step down, or to lead."""

from typing import Final

from cqrepl.testing.operators import Operator
from cqrepl.testing.plan import Fault, Kind

STEP_DOWN: Final = "step down"


class ElectedOperator(Operator):
    """The operator of the hosts of one queue whose leader is elected. Elections go on meanwhile, so
    what comes of an order is not compared with a plan."""

    async def act(self, fault: Fault) -> None:
        """Does what a plan says; returns when it is over."""
        name = self._led.name
        if fault.kind is Kind.STEP_DOWN:
            leader = self._led.leader
            await self.tell(self._hosts[leader], {"do": STEP_DOWN, "queue": name})
        else:
            asked = {"do": "promote", "queue": name, "accept_loss": False}
            done = await self.tell(self._hosts[fault.host], asked)
            if done is not None:
                self.counts["refused" if "error" in done else "done"] += 1
