"""What `--gpu` means where cards are attached."""

from dataclasses import replace

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.support.errors import NotFoundError
from autogemm.tuning import choice, choose_target

H100 = find_device("h100")
CARDS = [replace(H100, name="NVIDIA H100 80GB HBM3"), replace(H100, name="NVIDIA L4")]


class CardStub:
    """Only remembers which card it stands for."""

    def __init__(self, device_index: int) -> None:
        self.device_index = device_index


@pytest.fixture(autouse=True)
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "attached_devices", lambda: CARDS)
    monkeypatch.setattr(choice, "CudaTarget", CardStub)


@pytest.mark.parametrize(
    ("gpu", "index"),
    [("auto", 0), ("0", 0), ("1", 1), ("h100", 0), ("L4", 1), ("nvidia", 0), (" l4 ", 1)],
)
def test_a_card_by_number_or_name(gpu: str, index: int) -> None:
    chosen = choose_target(gpu, ["sgemm_simt"], require_gpu=True)
    assert isinstance(chosen.target, CardStub)
    assert chosen.target.device_index == index
    assert chosen.notice == ""


@pytest.mark.parametrize("gpu", ["2", "-1", "h200", "", " "])
def test_a_card_that_is_not_there(gpu: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        choose_target(gpu, ["sgemm_simt"])
    assert "attached: 0 NVIDIA H100 80GB HBM3, 1 NVIDIA L4" in str(caught.value)
