from dataclasses import replace

import pytest
import yaml

from autogemm.catalogue.gpus import (
    CATALOGUE_PATH,
    find_device,
    known_devices,
    known_gpus,
    roof_of,
)
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.splitting import Splitting
from autogemm.support.errors import NotFoundError

# Vendor datasheets: peak FP32 TFLOP/s without tensor cores, memory bandwidth in GB/s.
DATASHEET = {
    "t4": (8.1, 320),
    "v100": (15.7, 900),
    "a100": (19.5, 1555),
    "a100-80gb": (19.5, 2039),
    "a5000": (27.8, 768),
    "a10": (31.2, 600),
    "l4": (30.3, 300),
    "l40s": (91.6, 864),
    "rtx3060ti": (16.2, 448),
    "rtx3090": (35.6, 936),
    "rtx4090": (82.6, 1008),
    "gtx1650": (2.98, 128),
    "h100": (67, 3350),
    "h200": (67, 4800),
    "b200": (75, 8000),
}


def test_every_gpu_agrees_with_its_datasheet() -> None:
    # Clocks, cores, SMs and bus width all enter: a slip in one of them shows here.
    devices = known_devices()
    assert list(devices) == list(DATASHEET)
    for short_name, (tflops, bandwidth_gb_s) in DATASHEET.items():
        device = devices[short_name]
        assert device.peak_f32_tflops == pytest.approx(tflops, rel=0.02), short_name
        assert device.peak_bandwidth_gb_s == pytest.approx(bandwidth_gb_s, rel=0.03), short_name


def test_h100_limits() -> None:
    device = find_device("h100")
    assert (device.num_sms, device.sm, device.l2_bytes) == (132, "sm_90", 50 * 2**20)
    assert (device.max_smem_per_block_bytes, device.smem_per_sm_bytes) == (232448, 233472)
    assert (device.max_threads_per_sm, device.max_blocks_per_sm) == (2048, 32)
    assert device.reserved_smem_per_block_bytes == 1024


@pytest.mark.parametrize("name", ["h100", "H100", "NVIDIA H100 80GB HBM3", "nvidia h100 80gb hbm3"])
def test_found_by_short_or_full_name(name: str) -> None:
    assert find_device(name) is known_devices()["h100"]


def test_spelling_with_spaces_is_found() -> None:
    assert find_device("RTX 3060 Ti").name == "NVIDIA GeForce RTX 3060 Ti"


@pytest.mark.parametrize("name", ["h10", "", "[red]h100[/red]"])
def test_unknown_name_lists_the_short_names(name: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        find_device(name)
    assert all(short_name in str(caught.value) for short_name in DATASHEET)
    assert repr(name) in str(caught.value)


def test_names_do_not_collide() -> None:
    devices = known_devices()
    assert all(find_device(short) is device for short, device in devices.items())
    assert all(find_device(device.name) is device for device in devices.values())


def test_the_catalogue_cannot_be_changed_by_a_caller() -> None:
    known_devices().clear()
    assert known_devices()


def test_every_gpu_states_its_source() -> None:
    gpus = yaml.safe_load(CATALOGUE_PATH.read_text())["gpus"]
    assert all(len(gpu["source"]) > 10 for gpu in gpus.values())


def test_peaks_agree_with_what_each_source_publishes() -> None:
    # Tensor cores are published at a boost clock that is up to 8 percent below the maximum.
    dtypes = {"f32": DType.F32, "tf32": DType.TF32, "bf16": DType.BF16, "f16": DType.F16}
    for gpu in known_gpus():
        for name, figure in gpu.published:
            roof = roof_of(gpu.device, dtypes[name.partition("_")[0]]) if name != "gb_s" else None
            found = roof.peak_tflops if roof else gpu.device.peak_bandwidth_gb_s
            assert 0.98 <= found / figure <= 1.09, (gpu.short_name, name, found, figure)


def test_ridge_points() -> None:
    # T4: 8.14 TFLOP/s over 320 GB/s; its tensor cores 65.1.
    t4 = find_device("t4")
    f32, f16 = roof_of(t4), roof_of(t4, DType.F16)
    assert f32 is not None
    assert f16 is not None
    assert f32.ridge_flop_per_byte == pytest.approx(25.4, abs=0.1)
    assert f16.ridge_flop_per_byte == pytest.approx(203.5, abs=0.5)


def test_gpus_without_tensor_cores_for_a_dtype_have_no_roof() -> None:
    assert roof_of(find_device("gtx1650"), DType.F16) is None
    assert roof_of(find_device("v100"), DType.TF32) is None
    assert roof_of(replace(find_device("h100"), arch=120), DType.F16) is None


def test_every_gpu_says_where_its_figures_come_from() -> None:
    assert all("NVIDIA" in gpu.source and gpu.published for gpu in known_gpus())


@pytest.mark.parametrize(
    ("splitting", "of_tf32"),
    [
        (Splitting.TF32X3, 1 / 3),
        (Splitting.BF16X6, 2 / 6),
        (Splitting.BF16X9, 2 / 9),
        (Splitting.F16X3, 2 / 3),
    ],
)
def test_emulated_fp32_has_the_roof_of_its_products(splitting: Splitting, of_tf32: float) -> None:
    device = find_device("h100")
    config = Config.of("any", {"SPLIT": splitting.label})
    roof, tf32 = roof_of(device, DType.F32, config), roof_of(device, DType.TF32)
    assert roof is not None
    assert tf32 is not None
    assert roof.peak_tflops == pytest.approx(of_tf32 * tf32.peak_tflops)
    assert roof.bandwidth_gb_s == tf32.bandwidth_gb_s
