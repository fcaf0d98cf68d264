#!/usr/bin/env bash
# Prepares a GPU machine without network and runs things on it.
#
#   gpu_box.sh wheels      where pip works: download what the box lacks into .wheels/
#   gpu_box.sh setup       on the box: install those, once; prints nothing when all is well
#   gpu_box.sh test [ARG]  on the box: the GPU tests, or those of the files named; arguments go to pytest;
#                          first those that may share the GPU, then those marked alone, one by one
#   gpu_box.sh run CMD...  on the box: any command, with `autogemm` on the PATH
#
# The box has Python 3.12 on x86-64 Linux with CuPy, cuda-bindings, NVRTC, nvidia-ml-py, NumPy,
# scikit-learn, click, rich, jinja2, PyYAML, tqdm, packaging, pytest, pytest-timeout, pytest-xdist,
# pytest-benchmark, hypothesis.
# AUTOGEMM_SITE: folder to install into, default /tmp/autogemm-site. PYTHON: default python3.

set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
wheels=$repo/.wheels
site=${AUTOGEMM_SITE:-/tmp/autogemm-site}
python=${PYTHON:-python3}

# With what they need in turn, so that pins between them hold (pydantic and pydantic-core).
with_dependencies=(alembic colorlog jsonschema platformdirs pydantic sqlalchemy)
# Their dependencies are on the box, or above, or not needed for what is done here: Kernel Tuner, to
# compare with, uses pandas and pymoo in strategies that are not compared.
without_dependencies=(kernel-tuner nvidia-cutlass optuna pygments python-constraint2 xmltodict)
# Dask, for `autogemm tune --gpu all`, and what it needs that is not on the box.
without_dependencies+=(cloudpickle dask distributed fsspec locket msgpack partd psutil sortedcontainers)
without_dependencies+=(tblib toolz tornado urllib3 zict)
modules=(alembic colorlog mako optuna platformdirs pydantic sqlalchemy)

die() {
    echo "gpu_box.sh: $*" >&2
    exit 1
}

download() {
    local platforms=() glibc
    # pip takes a platform tag literally: name each that wheels for the box may carry.
    for glibc in 5 12 17 24 27 28 34; do
        platforms+=(--platform "manylinux_2_${glibc}_x86_64")
    done
    platforms+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
    "$python" -m pip download --quiet --disable-pip-version-check --dest "$wheels" \
        --only-binary=:all: --implementation cp --python-version 3.12 "${platforms[@]}" "$@"
}

get_wheels() {
    mkdir -p "$wheels"
    # Two versions of one package would stop the installation.
    rm -f "$wheels"/*.whl
    download "${with_dependencies[@]}"
    download --no-deps "${without_dependencies[@]}"
    ls -sh "$wheels"
}

setup() {
    local stamp=$site/.installed names
    export PYTHONPATH=$repo:$site${PYTHONPATH:+:$PYTHONPATH}
    export PATH=$site/bin:$PATH
    names=$(cd "$wheels" 2>/dev/null && ls ./*.whl 2>/dev/null || true)
    if [[ ! -f $stamp || $names != "$(<"$stamp")" ]]; then
        install_wheels "$names"
        mkdir -p "$site/bin"
        # For what is run from here; the package itself stays in the checkout.
        printf '#!/bin/sh\nexec "%s" -m autogemm "$@"\n' "$python" >"$site/bin/autogemm"
        chmod +x "$site/bin/autogemm"
        printf '%s' "$names" >"$stamp"
    fi
}

install_wheels() {
    if [[ -n $1 ]]; then
        "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
            --no-cache-dir --upgrade --root-user-action ignore --target "$site" "$wheels"/*.whl
    fi
    local missing
    missing=$("$python" -c 'import sys; from importlib.util import find_spec
print(*(name for name in sys.argv[1:] if find_spec(name) is None))' "${modules[@]}")
    [[ -z $missing ]] ||
        die "missing: $missing; run 'benchmarks/gpu_box.sh wheels' where pip works first"
}

# Whether an argument names tests to run, and is not the value of an option that leaves some out.
names_tests() {
    local word before=
    for word in "$@"; do
        case $before/$word in
        --deselect/* | --ignore/* | --ignore-glob/*) ;;
        */tests/*) return 0 ;;
        esac
        before=$word
    done
    return 1
}

# Runs pytest and adds to the summary; leaves its exit code in `code`.
run_tests() {
    local log found
    log=$(mktemp)
    code=0
    "$python" -m pytest "${@:2}" | tee "$log" || code=${PIPESTATUS[0]}
    found=$(grep -E '^(FAILED|ERROR) ' "$log" || true)
    summary+=${found:+$found$'\n'}$1": "$(tail -n 1 "$log")$'\n'
    rm -f "$log"
    # What is wrong with the command (or Ctrl-C) is so with the next run, too.
    case $code in
    0 | 1 | "$no_tests") ;;
    *) exit "$code" ;;
    esac
}

# As many tests at a time as the GPU has room for, then those that need it for themselves.
gpu_tests() {
    local code summary='' status no_tests=5 together=() one_by_one=()
    names_tests "$@" || set -- tests/gpu "$@"
    if "$python" -c 'import xdist' 2>/dev/null; then
        # Beside xdist pytest-benchmark warns, and a warning is an error here.
        together=(-n 6 -p no:benchmark) one_by_one=(-n 0)
    fi
    run_tests together "${together[@]}" "$@" -m 'gpu and not alone'
    status=$code
    run_tests alone "$@" "${one_by_one[@]}" -m 'gpu and alone'
    printf '\n%s' "$summary"
    # That there are no such tests is a failure only if there are none of either kind.
    ((status != no_tests)) || status=$code
    ((code == 0 || code == no_tests)) || status=$code
    return "$status"
}

command=${1:-}
shift || true
case $command in
wheels) get_wheels ;;
setup) setup ;;
test)
    setup
    cd "$repo"
    gpu_tests "$@"
    ;;
run)
    setup
    (($#)) || die "run needs a command"
    exec "$@"
    ;;
*) die "expected wheels, setup, test or run; got '$command' (see the head of the script)" ;;
esac
