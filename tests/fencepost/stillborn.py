"""A lock service whose nodes die as soon as they are started."""

from __future__ import annotations

import sys

from cluster.systems.base import Launch, NodeView
from cluster.systems.lockd import Lockd


class Stillborn(Lockd):
    name = "stillborn"

    def launch(self, node: NodeView) -> Launch:
        return Launch([sys.executable, "-c", "raise SystemExit('I was born dead')"])
