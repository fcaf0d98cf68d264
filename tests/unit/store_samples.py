"""Values to fill a store with."""

import statistics
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import KernelSource, Resources
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.certificate import Certificate, Check, Verdict
from autogemm.model.results.outcome import (
    Call,
    Environment,
    Finals,
    FinalsEntry,
    Measurement,
    Outcome,
    Provenance,
    Status,
    Sustained,
    Telemetry,
    Verification,
)
from autogemm.store import RunSpec, RunState, Store, open_store

H100 = Device(
    name="NVIDIA H100 80GB HBM3",
    arch=90,
    num_sms=132,
    max_threads_per_block=1024,
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    max_registers_per_thread=255,
    registers_per_sm=65536,
    max_smem_per_block_bytes=232448,
    smem_per_sm_bytes=233472,
    reserved_smem_per_block_bytes=1024,
    l2_bytes=50 * 2**20,
    memory_bytes=85_045_477_376,
    sm_clock_mhz=1980,
    memory_clock_mhz=2619,
    memory_bus_bits=5120,
    fp32_cores_per_sm=128,
)
T4 = replace(H100, name="Tesla T4", arch=75, num_sms=40)

ENVIRONMENT = Environment(driver="580.1", compiler="nvrtc 13.0.88", cublas="13.1", autogemm="0.1.0")

SPEC = RunSpec(
    problem=Problem(4096, 4096, 4096),
    device=H100,
    environment=ENVIRONMENT,
    families=("sgemm_simt",),
    family_sha256="f" * 64,
    fix=(("BM", (128, 256)), ("FMA_ORDER", ("snake",))),
    sampler="surrogate",
    seed=2**40,
    provenance=Provenance.MEASURED,
    command="autogemm tune --size 4096",
)

CERTIFICATE = Certificate(
    (
        Check("finals", Verdict.PASSED, "60 more results, every element compared"),
        Check("gpu", Verdict.PASSED, "41 of 41 edge cases", "NVIDIA H100, nvrtc 13.0", 3.25),
        Check("emulator", Verdict.NOT_DONE, "no g++ \u00fc"),
    ),
    datetime(2026, 11, 21, 6, 30, tzinfo=UTC),
)

VERIFIED = Verification(max_abs_error=1.5e-4, max_error_ratio=1 / 3, error=1.1e-6)
TELEMETRY = Telemetry(
    sm_clock_mhz=1755,
    memory_clock_mhz=2619,
    power_w=691.25,
    temperature_c=61,
    throttle_reasons=2**62,
)


def config(bm: int = 128) -> Config:
    """Not in alphabetical order, as families are not."""
    return Config("sgemm_simt", (("BM", bm), ("BK", 16), ("FMA_ORDER", "snake")))


def source(bm: int = 128) -> KernelSource:
    return KernelSource(
        family="sgemm_simt",
        template_sha256="a" * 64,
        config=config(bm),
        layout=Layout.NN,
        text=f"// µs, \r\n\tconstexpr int BM = {bm};\n",
    )


def measurement(*samples_us: float, **facts: Any) -> Measurement:
    return Measurement(
        samples_us=samples_us, provenance=facts.pop("provenance", Provenance.MEASURED), **facts
    )


def ok(bm: int, time_us: float, provenance: Provenance = Provenance.MEASURED) -> Outcome:
    return Outcome(
        config=config(bm),
        status=Status.OK,
        kernel_sha256=source(bm).sha256,
        resources=(
            Resources("gemm_kernel", 125, 0, 0, 0, 1024),
            Resources("reduce_kernel", 32, 4, 8, 16, 0),
        ),
        verification=VERIFIED,
        measurement=Measurement(
            samples_us=(time_us + 0.1, time_us, time_us - 0.1),
            provenance=provenance,
            method="graph",
            launches_per_sample=20,
            telemetry=TELEMETRY,
            throttled_samples=4,
        ),
        compile_seconds=1 / 3,
        measure_seconds=0.25,
    )


def failed(bm: int, status: Status = Status.CRASHED, reason: str = "illegal address") -> Outcome:
    return Outcome(config=config(bm), status=status, reason=reason, kernel_sha256=source(bm).sha256)


def entry(bm: int, *samples_us: float, ratio: float) -> FinalsEntry:
    return FinalsEntry(
        name=f"BM={bm}",
        config=config(bm),
        kernel_sha256=source(bm).sha256,
        samples_us=samples_us,
        ratio=ratio,
        ratio_low=ratio - 0.01,
        ratio_high=ratio + 0.01,
        tied=False,
        verification=VERIFIED,
    )


def finals(*entries: FinalsEntry, provenance: Provenance = Provenance.MEASURED) -> Finals:
    baseline_us = statistics.median(entries[0].samples_us) * entries[0].ratio
    return Finals(
        entries=entries,
        baseline=FinalsEntry("cuBLAS", None, "", (baseline_us,) * 3, 1.0, 1.0, 1.0, False),
        rounds=3,
        provenance=provenance,
        telemetry=TELEMETRY,
        method="graph",
        launches_per_sample=20,
        throttled_rounds=2,
        calls=(
            Call("cuBLASLt proposal 3", samples_us=(baseline_us + 1,) * 3),
            Call("cuBLAS GemmEx", Status.WRONG_RESULT, "4 of 9 elements are wrong"),
        ),
        sustained=Sustained(3.0, 1.25 * baseline_us, 1.5 * baseline_us, 700.5, None),
    )


def fill(store: Store) -> None:
    """A finished run with finals (run 1), a recorded one (2) and an interrupted one on a T4 (3)."""
    run = store.begin_run(SPEC)
    store.record_trial(run, 0, ok(64, 2800.0), source(64))
    store.record_trial(run, 1, ok(128, 2700.0), source(128))
    store.record_trial(run, 2, failed(256), source(256))
    best = finals(entry(128, 2650.0, 2660.0, 2655.0, ratio=1.01), entry(64, 2790.0, ratio=0.96))
    store.record_finals(run, best, {})
    store.record_certificate(run, source(128).sha256, CERTIFICATE)
    store.finish_run(run, RunState.FINISHED)
    recorded = replace(SPEC, provenance=Provenance.RECORDED, environment=Environment())
    run = store.begin_run(recorded)
    store.record_trial(run, 0, ok(64, 2500.0, Provenance.RECORDED), source(64))
    store.finish_run(run, RunState.FINISHED)
    run = store.begin_run(replace(SPEC, device=T4, problem=Problem(512, 256, 64)))
    store.record_trial(run, 0, ok(32, 55.0), source(32))
    store.record_trial(run, 1, ok(64, 50.0), source(64))
    store.finish_run(run, RunState.INTERRUPTED)


@cache
def _empty_database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        open_store(str(path)).close()
        return path.read_bytes()


def new_store(folder: Path) -> Store:
    """A new store in a folder. A copy: the tables are made once."""
    path = folder / "a.db"
    path.write_bytes(_empty_database())
    return open_store(str(path))
