"""`python -m reprise.algorithms`: compile the kernels, so that no plan has to wait for it."""

from __future__ import annotations

from reprise.algorithms import compiled

if __name__ == "__main__":
    raise SystemExit(0 if compiled.load() else f"kernels stay interpreted: {compiled.failure()}")
