"""Driver and coordinator as supervised processes, here with small Python programs in their place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reprise.controller.agent.processes import inspect
from reprise.controller.local.errors import ServiceError
from reprise.controller.local.run.services import Service
from tools.testbed.waiting import until


def _service(tmp_path: Path, program: str) -> Service:
    return Service("driver", [sys.executable, "-c", program], {}, tmp_path / "driver.log")


def _gone(pid: int) -> bool:
    process = inspect(pid)
    return process is None or process.state in "ZX"


def test_a_service_that_is_killed_is_started_again_and_its_children_are_gone(tmp_path: Path) -> None:
    child = "import subprocess, sys, time; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); time.sleep(600)"
    service = _service(tmp_path, child)
    service.start()
    try:
        until(lambda: service.log.exists() and service.log.read_text().strip())
        pid = int(service.log.read_text().split()[0])
        assert not _gone(pid)
        assert service.revive() is None
        service.crash()
        assert _gone(pid)
        assert service.revive() == -9
        assert service.alive
        assert service.restarts == 1
    finally:
        service.stop(5.0)
    assert not service.alive


def test_a_service_that_never_stays_is_given_up_with_its_log(tmp_path: Path) -> None:
    service = _service(tmp_path, "print('no such topology'); raise SystemExit(7)")
    service.start()
    restarts = 0
    with pytest.raises(ServiceError, match=r"status 7\).*no such topology"):
        while restarts < 10:
            until(lambda: not service.alive)
            service.revive()
            restarts += 1
    assert restarts == 2
    service.stop(1.0)


def test_a_service_that_refuses_to_start_is_given_up_with_its_reason_alone(tmp_path: Path) -> None:
    service = _service(tmp_path, "print('starting'); raise SystemExit('refused: ranges/1.json is damaged')")
    service.start()
    with pytest.raises(ServiceError) as given_up:
        for _ in range(3):
            until(lambda: not service.alive)
            service.revive()
    assert str(given_up.value) == "the driver ends at every start (status 1): ranges/1.json is damaged"
    service.command = [sys.executable, "-c", "raise SystemExit('no Java is found')"]
    with pytest.raises(ServiceError, match=r"no Java is found$"):
        for _ in range(4):
            service.start()
            until(lambda: not service.alive)
            service.revive()
    service.stop(1.0)


def test_stop_kills_what_does_not_listen(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    service = _service(tmp_path, deaf)
    service.start()
    until(lambda: service.log.exists() and "up" in service.log.read_text())
    service.stop(0.1)
    assert not service.alive
