"""The recorded target: answers what the recording says, and nothing else."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from export_samples import stored_kernel
from fake_target import BEST, PROBLEM, time_us, tiny_family, tiny_recording, tiny_space

from autogemm.cli import main
from autogemm.codegen import render
from autogemm.formats import (
    SHORT_SHA256,
    RecordedFinals,
    Recording,
    RecordingSource,
    read_recording,
    write_recording,
)
from autogemm.model.config import Config
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import CacheState, Provenance, Status
from autogemm.model.results.stored import TimedText
from autogemm.space import Family, launch_plan
from autogemm.support.errors import NotFoundError, RecordingError, UsageError
from autogemm.targets import MeasureOptions
from autogemm.targets.recorded import (
    RecordedTarget,
    list_recordings,
    recording_folder,
    timed_text,
)

COLUMNS = (
    "status",
    "time_us",
    "num_samples",
    "iqr_us",
    "registers",
    "spill_bytes",
    "static_smem_bytes",
    "max_error_ratio",
    "error",
)


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return tiny_family(tmp_path / "tiny")


@pytest.fixture
def folder(tmp_path: Path, family: Family) -> Path:
    folder = tmp_path / "recordings"
    folder.mkdir()
    write_recording(tiny_recording(family), folder / "a-1024.json.gz")
    other = tiny_recording(family, problem=Problem(256, 512, 128))
    write_recording(other, folder / "b-256.json.gz")
    return folder


def candidate(family: Family, config: Config) -> Candidate:
    return Candidate(render(family, config, PROBLEM), launch_plan(family, config, PROBLEM), None)


def config_of(family: Family, **values: int) -> Config:
    return Config.of(family.name, values)


def test_measures_what_was_recorded(family: Family, folder: Path) -> None:
    target = RecordedTarget(folder)
    target.prepare(PROBLEM, MeasureOptions())
    config = config_of(family, **BEST, ECHO=0)
    outcome = target.measure(candidate(family, config), None)
    assert outcome.status is Status.OK
    assert outcome.time_us == time_us(config)
    assert outcome.measurement is not None
    assert outcome.measurement.provenance is Provenance.RECORDED
    assert outcome.resources[0].registers == 40
    assert outcome.verification is not None
    assert outcome.verification.max_error_ratio == 0.1


def test_a_recorded_failure_stays_a_failure(family: Family, folder: Path) -> None:
    target = RecordedTarget(folder)
    target.prepare(PROBLEM, MeasureOptions())
    space = tiny_space(family)
    slowest = max((space.config(i) for i in range(len(space))), key=time_us)
    outcome = target.measure(candidate(family, slowest), None)
    assert (outcome.status, outcome.time_us) == (Status.WRONG_RESULT, None)
    assert outcome.reason


def test_a_config_outside_the_recording_is_rejected(family: Family, folder: Path) -> None:
    target = RecordedTarget(folder)
    target.prepare(PROBLEM, MeasureOptions())
    outcome = target.measure(candidate(family, config_of(family, BM=64, BN=64, U=1, ECHO=0)), 1.0)
    assert outcome.status is Status.REJECTED
    assert "not in the recording a-1024.json.gz" in outcome.reason


def test_the_problem_selects_the_recording(folder: Path) -> None:
    target = RecordedTarget(folder)
    target.prepare(Problem(256, 512, 128), MeasureOptions())
    assert target.path.name == "b-256.json.gz"
    assert target.baseline_us == 100.0
    assert target.device.name == "Recorded GPU"


def test_a_size_that_is_not_held_names_those_that_are(folder: Path) -> None:
    target = RecordedTarget(folder)
    with pytest.raises(UsageError) as caught:
        target.prepare(Problem(2048, 2048, 2048), MeasureOptions())
    message = str(caught.value)
    assert "no recording holds 2048 nn f32" in message
    assert "1024 nn f32, 256x512x128 nn f32 (tiny, Recorded GPU)" in message


@pytest.mark.parametrize("change", [{"beta": 1.0}, {"lda": 2000}, {"alpha": 2.0}])
def test_other_factors_or_strides_are_another_problem(folder: Path, change: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="no recording holds 1024"):
        RecordedTarget(folder).prepare(replace(PROBLEM, **change), MeasureOptions())


def test_a_warm_recording_does_not_answer_for_a_cold_cache(folder: Path) -> None:
    with pytest.raises(UsageError, match="--l2 warm, not cold"):
        RecordedTarget(folder).prepare(PROBLEM, MeasureOptions(l2=CacheState.COLD))


def test_of_a_warm_and_a_cold_recording_the_one_that_was_asked_for(
    family: Family, folder: Path
) -> None:
    warm = tiny_recording(family)
    cold = warm.model_copy(
        update={"source": warm.source.model_copy(update={"l2": CacheState.COLD})}
    )
    write_recording(cold, folder / "z-1024-cold.json.gz")
    target = RecordedTarget(folder)
    for l2, name in ((CacheState.COLD, "z-1024-cold"), (CacheState.WARM, "a-1024")):
        target.prepare(PROBLEM, MeasureOptions(l2=l2))
        assert target.path.name == f"{name}.json.gz"


def test_finals_claim_no_interval(family: Family, folder: Path) -> None:
    target = RecordedTarget(folder)
    target.prepare(PROBLEM, MeasureOptions())
    slower = config_of(family, BM=16, BN=16, U=1, ECHO=0)
    best = config_of(family, **BEST, ECHO=0)
    finals = target.finals([candidate(family, slower), candidate(family, best)], 30, 0)
    assert finals.provenance is Provenance.RECORDED
    assert finals.rounds == 0
    assert [entry.config for entry in finals.entries] == [best, slower]
    winner = finals.winner
    assert (winner.ratio, winner.interval) == (100.0 / 90.0, None)
    assert finals.baseline.samples_us == (99.0, 100.0, 101.0)


def test_equal_recorded_times_are_a_tie(family: Family, folder: Path) -> None:
    target = RecordedTarget(folder)
    target.prepare(PROBLEM, MeasureOptions())
    configs = [config_of(family, **BEST, ECHO=0), config_of(family, **BEST, ECHO=1)]
    slower = config_of(family, BM=16, BN=16, U=1, ECHO=0)
    candidates = [candidate(family, config) for config in (slower, *configs)]
    entries = target.finals(candidates, 30, 0).entries
    assert [entry.tied for entry in entries] == [False, True, False]


def test_restricts_the_space_to_what_was_recorded(family: Family, folder: Path) -> None:
    recording = read_recording(folder / "a-1024.json.gz")
    kept = [row for row, bm in enumerate(recording.parameters["BM"]) if bm != 64]
    columns = {name: [getattr(recording, name)[row] for row in kept] for name in COLUMNS}
    parameters = {
        name: [column[row] for row in kept] for name, column in recording.parameters.items()
    }
    narrow = tiny_recording(family, parameters=parameters, **columns)
    write_recording(narrow, folder / "a-1024.json.gz")
    target = RecordedTarget(folder / "a-1024.json.gz")
    assert target.restriction(family)["BM"] == (16, 32)
    assert target.restriction(family)["U"] == (1, 4)


def test_values_and_parameters_that_the_family_lacks(tmp_path: Path, family: Family) -> None:
    path = tmp_path / "x.json.gz"
    recording = tiny_recording(family)
    columns = dict(recording.parameters)
    columns["U"] = [3 if value == 1 else value for value in columns["U"]]
    write_recording(tiny_recording(family, parameters=columns), path)
    with pytest.raises(RecordingError, match=r"holds U=3, which the family 'tiny' does not have"):
        RecordedTarget(path).restriction(family)
    columns["V"] = columns.pop("U")
    write_recording(tiny_recording(family, parameters=columns), path)
    with pytest.raises(RecordingError, match="parameter 'U' is in one of them only"):
        RecordedTarget(path).restriction(family)


def test_a_parameter_that_came_later_has_its_default(tmp_path: Path, family: Family) -> None:
    path = tmp_path / "x.json.gz"
    columns = {name: c for name, c in tiny_recording(family).parameters.items() if name != "ECHO"}
    kept = [row for row, echo in enumerate(tiny_recording(family).parameters["ECHO"]) if echo == 1]
    changes: dict[str, object] = {
        name: [getattr(tiny_recording(family), name)[row] for row in kept] for name in COLUMNS
    }
    changes["parameters"] = {
        name: [column[row] for row in kept] for name, column in columns.items()
    }
    write_recording(tiny_recording(family, **changes), path)
    later = replace(
        family,
        parameters=tuple(
            replace(p, default=1) if p.name == "ECHO" else p for p in family.parameters
        ),
    )
    target = RecordedTarget(path)
    with pytest.raises(RecordingError, match="parameter 'ECHO' is in one of them only"):
        target.restriction(family)
    assert target.restriction(later)["ECHO"] == (1,)
    target.prepare(PROBLEM, MeasureOptions())
    config = config_of(family, **BEST, ECHO=1)
    assert target.measure(candidate(family, config), None).time_us == time_us(config)
    assert target.finals([candidate(family, config)], 30, 0).winner.config == config


def test_another_family_is_refused(tmp_path: Path, family: Family) -> None:
    path = tmp_path / "x.json.gz"
    write_recording(tiny_recording(family, family="other"), path)
    with pytest.raises(UsageError, match="is of family 'other', not 'tiny'"):
        RecordedTarget(path).restriction(family)
    with pytest.raises(NotFoundError, match="no recording of the family 'tiny'"):
        RecordedTarget(path, families=["tiny"])


def test_says_so_when_the_template_has_changed_or_configs_are_missing(
    tmp_path: Path, family: Family
) -> None:
    path = tmp_path / "x.json.gz"
    write_recording(tiny_recording(family), path)
    assert RecordedTarget(path).caveats(family) == ()
    changed = tiny_recording(family, template_sha256="1" * 64, complete=False)
    write_recording(changed, path)
    older, incomplete = RecordedTarget(path).caveats(family)
    assert "another version of the template" in older
    assert "incomplete" in incomplete


def with_hashes(family: Family) -> list[str]:
    """The beginning of the hash of each text of `tiny_recording`, in its order."""
    space = tiny_space(family)
    texts = [render(family, space.config(index), PROBLEM) for index in range(len(space))]
    return [source.sha256[:SHORT_SHA256] for source in texts]


def test_of_a_changed_template_the_configs_with_other_texts_count(
    tmp_path: Path, family: Family
) -> None:
    path, hashes = tmp_path / "x.json.gz", with_hashes(family)
    for others, said in (
        (0, None),
        (3, "other kernels for 3 of its 32 configs: their times belong to"),
        (len(hashes), "version of the template tiny: its times belong to"),
    ):
        timed = ["0" * SHORT_SHA256] * others + hashes[others:]
        changed = tiny_recording(family, template_sha256="1" * 64, kernel_sha256=timed)
        write_recording(changed, path)
        caveats = RecordedTarget(path).caveats(family)
        assert len(caveats) == (said is not None)
        assert said is None or said in caveats[0]


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ("hashes", TimedText.THIS),
        ("other hashes", TimedText.EARLIER),
        ("other template", TimedText.EARLIER),
        ("nothing", TimedText.UNKNOWN),
        ("other problem", TimedText.UNKNOWN),
    ],
)
def test_whether_a_recorded_time_is_of_this_text(
    tmp_path: Path, family: Family, changes: str, answer: TimedText
) -> None:
    how: dict[str, object] = {
        "hashes": {"kernel_sha256": with_hashes(family), "template_sha256": "0" * 64},
        "other hashes": {"kernel_sha256": ["0" * SHORT_SHA256] * len(with_hashes(family))},
        "other template": {"template_sha256": "0" * 64},
        "nothing": {},
        "other problem": {"problem": Problem(256, 512, 128), "template_sha256": "0" * 64},
    }
    recording = tiny_recording(family, **how[changes])  # type: ignore[arg-type]
    write_recording(recording, tmp_path / "r.json.gz")
    config = config_of(family, **BEST, ECHO=0)
    kernel = replace(
        stored_kernel(family, PROBLEM, config),
        provenance=Provenance.RECORDED,
        device=recording.source.device,
    )
    assert timed_text(kernel, family, tmp_path) is answer


def test_an_empty_folder_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no recording in"):
        RecordedTarget(tmp_path)
    with pytest.raises(NotFoundError, match="no such recording"):
        RecordedTarget(tmp_path / "none.json.gz")


def test_listing(folder: Path) -> None:
    infos = list_recordings(folder)
    assert [(info.problem_label, info.num_configs, info.device_name) for info in infos] == [
        ("1024 nn f32", 32, "Recorded GPU"),
        ("256x512x128 nn f32", 32, "Recorded GPU"),
    ]
    (folder / "c.json.gz").write_bytes(b"junk")
    with pytest.raises(RecordingError, match=r"c\.json\.gz"):
        list_recordings(folder)


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["--size", "4096"], "sgemm_simt_h200_4096_nn"),
        (["--size", "1024"], "sgemm_simt_h200_1024_nn"),
        (["--size", "4096x256x1024"], "sgemm_simt_h200_4096x256x1024_nn"),
        (["--size", "4096", "--allow-emulation"], "sgemm_emulated_wgmma_h200_4096_nn"),
        (["--size", "4096", "--dtype", "bf16"], "gemm_wgmma_h200_4096_nn_bf16"),
        (["--size", "1024", "--layout", "tt"], "sgemm_simt_h200_1024_tt"),
        (
            ["--size", "8x4096x4096", "--layout", "nt", "--dtype", "bf16"],
            "gemm_skinny_h200_8x4096x4096_nt_bf16",
        ),
    ],
)
def test_each_kind_of_problem_has_a_recording_that_ships(
    words: list[str], file: str, tmp_path: Path
) -> None:
    command = ["tune", "--gpu", "recorded", "--trials", "8", "--no-certify", *words]
    command += ["--db", str(tmp_path / "a.db")]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    notice = result.stderr.splitlines()[0]
    assert notice.startswith("using the recording of NVIDIA H200")
    finals = json.loads(gzip.decompress((recording_folder() / f"{file}.json.gz").read_bytes()))[
        "finals"
    ]
    said = f"in {finals['rounds']} interleaved rounds its best config was {finals['ratio']:.3f} x"
    assert said in notice
    assert "changes nothing" not in result.stderr
    assert "recorded on NVIDIA H200" in result.stdout


def test_nothing_is_said_of_the_recording_of_another_problem() -> None:
    families = ["gemm_skinny", "gemm_wgmma"]
    assert not RecordedTarget(families=families, problem=Problem(8, 8, 8)).remark
    assert RecordedTarget(families=["gemm_skinny"]).remark, "there is one only"


def test_cublas_is_timed_as_configs_are(folder: Path) -> None:
    recording = read_recording(folder / "a-1024.json.gz")
    samples_us, after = [100.0, 101.0, 102.0, 150.0, 160.0], [0, 8, 16, 32, 32]
    samples = {"samples_us": samples_us, "after_configs": after}
    baseline = recording.baseline.model_copy(update=samples)
    assert (baseline.time_us, len(baseline.during_us)) == (101.0, 3)
    few = baseline.model_copy(update={"after_configs": [0, 8, 32, 32, 32]})
    assert few.time_us == 102.0


def test_finals_of_a_config_that_is_not_there_are_refused(folder: Path) -> None:
    recording = read_recording(folder / "a-1024.json.gz")
    times = {"time_us": 10.0, "ratio": 1.5, "ratio_low": 1.4, "ratio_high": 1.6}
    last = RecordedFinals(row=len(recording) - 1, rounds=3, **times)
    fields = recording.model_dump(mode="json") | {"finals": last.model_dump()}
    assert Recording.model_validate_json(json.dumps(fields)).finals == last
    fields["finals"]["row"] += 1
    with pytest.raises(ValueError, match="finals: row 32 of 32"):
        Recording.model_validate_json(json.dumps(fields))


def test_shipped_recordings_are_complete_and_small() -> None:
    for info in list_recordings():
        recording = read_recording(info.path)
        assert recording.complete, info.path
        assert recording.finals is not None and recording.kernel_sha256 is not None, info.path
        assert recording.source.command.startswith("python benchmarks/record.py "), info.path
        assert info.path.stat().st_size < 2 * 2**20, info.path


def test_the_source_keeps_every_fact(folder: Path) -> None:
    source = read_recording(folder / "a-1024.json.gz").source
    assert isinstance(source, RecordingSource)
    assert source.environment.compiler == "nvrtc 13.0"
    assert source.device.num_sms == 132
