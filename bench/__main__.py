"""Runs every benchmark: each module of this package that has a `main`."""

from __future__ import annotations

import importlib
import pkgutil

import bench

for module in sorted(pkgutil.iter_modules(bench.__path__), key=lambda found: found.name):
    if module.name != "__main__":
        main = getattr(importlib.import_module(f"bench.{module.name}"), "main", None)
        if main is not None:
            main()
