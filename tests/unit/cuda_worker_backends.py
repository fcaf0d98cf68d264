"""Backends without a GPU for test_cuda_worker.py: what a candidate does is in its config."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from autogemm.device import Device
from autogemm.errors import DeviceError, UsageError
from autogemm.kernel import Candidate
from autogemm.outcome import Environment, Finals, Measurement, Provenance, Status
from autogemm.targets.cuda.messages import (
    FinalsDone,
    Measure,
    Measured,
    Prepare,
    Prepared,
    RunFinals,
    Start,
    Started,
    outcome_without_times,
)

FAKE_DEVICE = Device(
    "fake", 90, 132, 1024, 2048, 32, 255, 65536, 232448, 233472, 1024, 2**20, 2**30, 1, 1, 1, 128
)


class FakeBackend:
    """Keeps the protocol, except where a candidate's ``act`` says otherwise."""

    def __init__(self) -> None:
        self.prepared: Prepare | None = None

    def start(self, request: Start) -> Started:
        if request.device_index:
            raise DeviceError(f"there is no GPU {request.device_index}: 1 attached")
        return Started(FAKE_DEVICE, Environment(driver=str(os.getpid())))

    def prepare(self, request: Prepare) -> Prepared:
        if request.problem.m > 1000:
            raise UsageError("larger than the card")
        if log := os.environ.get("FAKE_BACKEND_LOG"):
            with Path(log).open("a") as file:
                file.write(f"prepare {request.problem.label}\n")
        self.prepared = request
        return Prepared(100.0)

    def measure(self, request: Measure) -> Measured:
        assert self.prepared is not None
        act = request.candidate.config["act"]
        if act == "hang":
            time.sleep(600)
        if act == "die":
            os.kill(os.getpid(), 9)
        if act == "exit":
            print("Segmentation fault in the driver", file=sys.stderr, flush=True)
            os._exit(3)
        if act == "raise":
            raise RuntimeError("not foreseen\nat all")
        if act == "lie":
            return "fine, thank you"  # type: ignore[return-value]
        if act == "out of turn":
            return Prepared(1.0)  # type: ignore[return-value]
        if act == "poison":
            crashed = outcome_without_times(request.candidate, Status.CRASHED, "illegal address")
            return Measured(crashed, 100.0, poisoned=True)
        outcome = outcome_without_times(request.candidate, Status.OK, "")
        measurement = Measurement((float(os.getpid()),), Provenance.MEASURED)
        return Measured(replace(outcome, measurement=measurement), 101.0)

    def finals(self, request: RunFinals) -> FinalsDone:
        # Imported here: NumPy would double the start of every worker.
        from autogemm.targets.finals import Contestant, decide

        def contestant(candidate: Candidate) -> Contestant:
            if candidate.config["act"] == "hang":
                time.sleep(600)
            if candidate.config["act"] in {"die", "die in finals"}:
                os.kill(os.getpid(), 9)
            sha256 = candidate.source.sha256
            return Contestant("one", candidate.config, sha256, (50.0,) * request.rounds)

        baseline = Contestant("baseline", None, "", (100.0,) * request.rounds)
        entries, own = decide(baseline, [contestant(one) for one in request.candidates], 0)
        return FinalsDone(Finals(entries, own, request.rounds, Provenance.MEASURED))


class DeadOnStart(FakeBackend):
    def start(self, request: Start) -> Started:
        os._exit(7)
