"""Kernel Tuner's caches as recordings: what is searched, said, stored, and what cannot be done."""

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fake_target import tiny_family, tiny_recording
from kernel_tuner_caches import BEST, VALUES, content, write_cache

from autogemm.cli import main
from autogemm.formats import listed_of, write_kernel_tuner_cache, write_recording
from autogemm.model.kernel import Candidate, KernelSource, LaunchPlan
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState, Outcome, Provenance, Status
from autogemm.store import open_store
from autogemm.support.errors import EmptySpaceError, FamilyError, RecordingError, UsageError
from autogemm.support.resources import data_folder
from autogemm.targets import MeasureOptions
from autogemm.targets.recorded import ListedTarget, description, open_recorded_space
from autogemm.targets.recorded.description import Description, read_description

PROBLEM = Problem(4096, 4096, 4096)


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "tune.db"))
    monkeypatch.setenv("AUTOGEMM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return write_cache(tmp_path / "gpu.json")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def tune(cache: Path, *arguments: object) -> Result:
    size = () if "--size" in arguments else ("--size", 4096)
    return invoke("tune", "--gpu", f"recorded:{cache}", *size, "--sampler", "random", *arguments)


def outcome(target: ListedTarget, index: int) -> Outcome:
    config = target.own_space(PROBLEM, {}).config(index)
    source = KernelSource(config.family, "", config, Layout.NN, str(config))
    return target.measure(Candidate(source, LaunchPlan(()), None), None)


def test_a_run_from_start_to_end(cache: Path) -> None:
    result = tune(cache, "--trials", 1000)
    assert result.exit_code == 0, result.output
    assert "gpu.json, Foreign GPU: every time below is recorded, not measured" in result.stderr
    assert "its result cannot be exported" in result.stderr
    assert "does not say K, layout and element type: taken to be as asked" in result.stderr
    (best,) = [line for line in result.stdout.splitlines() if line.startswith("best (recorded):")]
    for name, value in BEST.items():
        assert f" {name}={value} " in f"{best} "
    assert "cuBLAS" not in result.stdout + result.stderr.replace("x cuBLAS", "")
    assert "next:" not in result.stdout
    num_configs = len(content()["cache"])
    assert f"search: {num_configs} trials" in result.stdout
    assert "launch_failed" in result.stdout
    with open_store(None) as store:
        (row,) = store.best()
        failed = [o for o in store.trials(row.run_id) if o.status is not Status.OK]
    assert (row.provenance, row.kernel_id) == (Provenance.RECORDED, None)
    assert (row.device.name, row.device.num_sms, row.family) == ("Foreign GPU", 0, "clblast_xgemm")
    assert row.time_us == 1000.0
    assert {o.reason for o in failed} == {"recorded as RuntimeFailedConfig"}


def test_the_same_command_resumes(cache: Path) -> None:
    first = tune(cache, "--trials", 5, "--json", "-q")
    with open_store(None) as store:
        store.resume_run(json.loads(first.stdout)["run_id"])
    again = tune(cache, "--trials", 9, "--json", "-q")
    found = json.loads(again.stdout)
    assert (found["num_resumed"], found["num_trials"], found["finals"]) == (5, 9, None)


def test_export_is_refused_in_one_line(cache: Path, tmp_path: Path) -> None:
    tune(cache, "--trials", 5, "-q")
    result = invoke("export", tmp_path / "best.cu")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "has times but no source of its best kernel" in line
    assert not (tmp_path / "best.cu").exists()


def test_a_foreign_result_does_not_hide_a_kernel(cache: Path, tmp_path: Path) -> None:
    size = ("--gpu", "recorded", "--size", "1024", "--sampler", "random", "--trials", "3", "-q")
    assert invoke("tune", *size).exit_code == 0
    assert tune(cache, "--trials", 5, "-q").exit_code == 0
    result = invoke("export", tmp_path / "best.cu", "--no-verify")
    assert result.exit_code == 0, result.output
    assert "for 1024 nn f32 on NVIDIA H200" in result.stdout


def test_fix_speaks_of_the_files_parameters(cache: Path) -> None:
    result = tune(cache, "--fix", "MWG=16,32", "--fix", "SA=0", "--trials", 1000, "--json", "-q")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["best"]["config"]["SA"] == 0
    rows = [row for row in content()["cache"].values() if row["MWG"] < 64 and row["SA"] == 0]
    assert found["num_legal"] == found["num_trials"] == len(rows)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--size", "1024"), 2, "was recorded for M=4096 N=4096, not 1024: give --size 4096"),
        (("--l2", "cold"), 2, "so --l2 is warm, not cold"),
        (("--fix", "BM=128"), 2, "clblast_xgemm has no parameter 'BM'"),
        (("--fix", "MWG=128"), 2, "MWG has no value 128; its values: 16 32 64"),
        (("--family", "sgemm_simt"), 2, "configs of clblast_xgemm, not of sgemm_simt"),
        (("--require-gpu",), 2, "exclude each other"),
        (("--sampler", "magic"), 2, "unknown sampler 'magic'"),
    ],
)
def test_wrong_requests(cache: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = tune(cache, *arguments)
    assert result.exit_code == code, result.output
    line = result.stderr.splitlines()[-1]
    assert line.startswith("Error: ")
    assert message in line


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    path = write_cache(tmp_path / "broken.json", device_name=7)
    result = tune(path)
    assert result.exit_code == 1
    assert "Error: broken Kernel Tuner cache" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_unknown_kernel_is_searched_by_its_raw_parameters(tmp_path: Path) -> None:
    rows = {str(x): {"X": x, "MODE": mode, "time": x} for x, mode in ((1, "a"), (4, "b"), (9, "b"))}
    path = write_cache(
        tmp_path / "other.json",
        kernel_name="vector_add",
        problem_size="size * 2",
        tune_params_keys=["X", "MODE"],
        cache=rows,
    )
    target = ListedTarget(path)
    target.prepare(Problem(10, 20, 30), MeasureOptions())
    space = target.own_space(Problem(10, 20, 30), {})
    assert target.family.name == "vector_add"
    assert space.features()[0] == ["X", "MODE=a", "MODE=b"]
    said = " ".join(target.caveats(target.family))
    assert "does not say M, N, K, layout and element type" in said
    assert "no description has these parameters" in said


def test_a_described_kernel_has_engineered_features(cache: Path) -> None:
    target = ListedTarget(cache)
    space = target.own_space(PROBLEM, {})
    names, columns = space.features()
    config = space.config(len(space) - 1)
    by_name = dict(zip(names, columns[-1], strict=True))
    threads = config["MDIMC"] * config["NDIMC"]  # type: ignore[operator]
    assert by_name["threads"] == math.log2(threads)
    tile = config["MWG"] * config["NWG"]  # type: ignore[operator]
    assert by_name["work_per_thread"] == math.log2(tile // threads)
    assert by_name["smem_bytes"] == math.log2(4 * config["SA"] * config["MWG"] * config["KWG"])  # type: ignore[operator]
    assert target.family.parameters[0].doc == "rows of C per thread block"


def test_what_is_expected_of_a_described_kernel_rewards_reuse_until_registers_end(
    cache: Path,
) -> None:
    derive = ListedTarget(cache).family.derive

    def expected(rows: int, columns: int) -> int:
        """With so many results per thread, in tiles of 16 x 8 threads."""
        tile = {"MWG": 16 * rows, "NWG": 8 * columns, "MDIMC": 16, "NDIMC": 8}
        values: dict[str, object] = {"M": 4096, "N": 4096, "K": 4096, **tile}
        for name in ("rows_per_thread", "columns_per_thread", "work_per_thread"):
            values[name] = derive[name].evaluate(values)  # type: ignore[arg-type]
        for name in ("operands_per_thread", "tile_area", "tile_edges", "registers"):
            values[name] = derive[name].evaluate(values)  # type: ignore[arg-type]
        return derive["expected_time"].evaluate(values)  # type: ignore[arg-type, return-value]

    assert expected(1, 1) > 2 * expected(4, 4) > 2 * expected(8, 8) > 2 * expected(8, 16)
    assert expected(16, 16) > 2 * expected(8, 8)


def test_what_a_file_cannot_give_is_left_out(tmp_path: Path) -> None:
    rows = content()["cache"]
    for row in rows.values():
        del row["SB"]
        row["MDIMA"] = 0
    keys = [name for name in VALUES if name != "SB"]
    target = ListedTarget(
        write_cache(tmp_path / "x.json", tune_params_keys=keys, cache=_once(rows))
    )
    assert "threads" in target.family.derive
    # No SB; a division by zero; and what reads one that is left out.
    assert not {"smem_elements", "smem_bytes", "depth_lanes_a", "loads_a"} & set(
        target.family.derive
    )


def _once(rows: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """MDIMA told two rows apart: keep one of them."""
    seen = {}
    for key, row in rows.items():
        seen.setdefault(str({n: v for n, v in row.items() if n in VALUES}), (key, row))
    return dict(seen.values())


def test_an_own_recording_written_as_a_cache_keeps_its_features(tmp_path: Path) -> None:
    shipped = data_folder("db/recordings") / "sgemm_simt_h200_4096x256x1024_nn.json.gz"
    own = open_recorded_space(shipped)
    path = tmp_path / "own.json"
    write_kernel_tuner_cache(own.listed, path)
    target = ListedTarget(path)
    assert target.family.name == "sgemm_simt"
    assert {"threads", "smem_bytes", "least_registers"} <= set(target.family.derive)
    target.prepare(Problem(4096, 256, 1024), MeasureOptions())
    with pytest.raises(UsageError, match="give --size 4096x256x1024"):
        target.prepare(Problem(4096, 256, 512), MeasureOptions())


def test_a_file_that_says_the_whole_size_decides_it(tmp_path: Path, cache: Path) -> None:
    shipped = data_folder("db/recordings") / "sgemm_simt_h200_4096x256x1024_nn.json.gz"
    path = tmp_path / "own.json"
    write_kernel_tuner_cache(open_recorded_space(shipped).listed, path)
    few = ("--gpu", f"recorded:{path}", "--sampler", "random", "--trials", 2, "--json", "-q")
    found = json.loads(invoke("tune", *few).stdout)
    assert (found["m"], found["n"], found["k"]) == (4096, 256, 1024)
    refused = invoke("tune", *few, "--size", 4096)
    assert refused.exit_code == 2
    assert "was recorded for 4096x256x1024 nn f32, not 4096 nn f32" in refused.stderr


def test_each_config_answers_as_the_file_says(cache: Path) -> None:
    target = ListedTarget(cache)
    target.prepare(PROBLEM, MeasureOptions(l2=CacheState.WARM))
    rows = {tuple(row[n] for n in VALUES): row for row in content()["cache"].values()}
    for index in range(0, len(rows), 7):
        said = outcome(target, index)
        row = rows[tuple(value for _, value in said.config)]
        if isinstance(row["time"], str):
            assert (said.status, said.time_us) == (Status.LAUNCH_FAILED, None)
        else:
            assert said.time_us == row["time"] * 1e3
            assert said.measurement is not None
            assert said.measurement.provenance is Provenance.RECORDED
        assert said.kernel_sha256 == ""


def test_there_are_no_finals(cache: Path) -> None:
    with pytest.raises(UsageError, match="holds no baseline"):
        ListedTarget(cache).finals([], 30, 0)


def test_a_folder_of_caches_holds_no_recording_of_ours(cache: Path) -> None:
    result = invoke("tune", "--gpu", f"recorded:{cache.parent}")
    assert result.exit_code == 2
    assert "no recording of the family " in result.stderr


def test_both_kinds_open_as_spaces_with_every_time(cache: Path, tmp_path: Path) -> None:
    foreign = open_recorded_space(cache)
    assert (foreign.name, foreign.best_us) == ("gpu", 1000.0)
    assert len(foreign.space) == len(foreign.times_us) == len(content()["cache"])
    # A failed trial does not say its cost: then nothing is known of the whole.
    assert foreign.spent_s is None
    recording = tiny_recording(tiny_family(tmp_path / "tiny"))
    path = tmp_path / "own.json.gz"
    write_recording(recording, path)
    own = open_recorded_space(path)
    assert (own.name, own.includes_compiling) == ("own", False)
    by_config = {tuple(recording.values(row).values()): row for row in range(len(recording))}
    assert own.spent_s is not None
    for index in range(len(own.space)):
        row = by_config[tuple(value for _, value in own.space.config(index))]
        time_us = recording.time_us[row]
        assert own.times_us[index] == (math.inf if time_us is None else time_us)
        num_samples = recording.num_samples[row] or 0
        assert own.spent_s[index] == pytest.approx((time_us or 0.0) * num_samples * 1e-6)
    assert listed_of(recording).kernel_name == "tiny"


def test_a_recording_in_which_nothing_worked_is_refused(tmp_path: Path) -> None:
    rows = {key: row | {"time": "InvalidConfig"} for key, row in content()["cache"].items()}
    with pytest.raises(RecordingError, match="no config worked"):
        open_recorded_space(write_cache(tmp_path / "x.json", cache=rows))


def test_nothing_left_by_fix(cache: Path) -> None:
    with pytest.raises(EmptySpaceError):
        ListedTarget(cache).own_space(PROBLEM, {"MWG": (16,), "MDIMC": (16,), "VWM": (2,)})


def test_of_several_descriptions_the_one_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def known() -> list[Description]:
        both = {"X": "", "Y": ""}
        return [
            Description("loose", (), frozenset({"X"}), {"X": ""}, {}),
            Description("first", (), frozenset(both), both, {}),
            Description("second", (), frozenset(both), both, {}),
        ]

    monkeypatch.setattr(description, "_known", known)
    for name, expected in (("second", "second"), ("loose", "loose"), ("other", "first")):
        found = description.description_for(["X", "Y", "Z"], name)
        assert found is not None
        assert found.name == expected
    assert description.description_for(["Y"], "first") is None


DESCRIPTION = """
kernel: {kernel}
summary: a kernel of others
problem_size: {size}
required: [X]
parameters: {{X: what it is}}
derive: {{Y: {derive}}}
"""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"derive": "X + Z"}, "'Z' is neither a parameter nor derived before"),
        ({"derive": "X +"}, "Y"),
        ({"size": "[M, X]"}, "'X' is not among the names that can stand there"),
        ({"kernel": "a b"}, "kernel"),
    ],
)
def test_broken_descriptions(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    path = tmp_path / "x.yaml"
    fields = {"kernel": "x", "size": "[M]", "derive": "X * M"}
    path.write_text(DESCRIPTION.format(**fields))
    assert list(read_description(path).derive) == ["Y"]
    path.write_text(DESCRIPTION.format(**(fields | changes)))
    with pytest.raises(FamilyError, match=message):
        read_description(path)


def test_every_description_that_ships_is_right() -> None:
    paths = sorted((data_folder("search_spaces") / "foreign").glob("*.yaml"))
    assert paths
    for path in paths:
        assert read_description(path).name == path.stem
