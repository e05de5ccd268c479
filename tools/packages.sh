#!/usr/bin/env bash
# Makes the source distribution and the wheel in dist/, and tries both as a user would:
# the wheel, built of the source distribution in a fresh folder, in a fresh environment;
# the source distribution where there is no cargo.
#
#     tools/packages.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(command -v "${1:-python3}")
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1
unset CQREPL_KERNEL CQREPL_BUILD_KERNEL PYTHONPATH PYTHONWARNINGS # each step says what it wants

environment() { # NAME: a fresh one; prints its python
  "$python" -m venv "$fresh/$1"
  # older ones warn of their own parts
  "$fresh/$1/bin/python" -m pip install --quiet --upgrade "pip>=25.1"
  echo "$fresh/$1/bin/python"
}

says() { # NAME KERNEL: what is installed there names this kernel, works, and warns of nothing
  local told
  told=$(cd "$fresh" && PYTHONWARNINGS=error "$1/bin/cqrepl" --version 2>&1)
  [[ $told == *"(kernel: $2)" ]] || { echo "$1: expected kernel $2, found: $told" >&2; exit 1; }
  PYTHONWARNINGS=error "$fresh/$1/bin/python" -P tools/tryout.py
  echo "$1: $told"
}

holds() { # ARCHIVE yes|no PATTERN: whether it has such a file
  local found=no
  # all of it is read, so that the archiver never writes to a closed pipe
  [[ $("$python" -m "${1##*:}" -l "${1%%:*}" | grep -c -E "$3") != 0 ]] && found=yes
  [[ $found == "$2" ]] || { echo "${1%%:*}: $3: expected $2, found $found" >&2; exit 1; }
}

builder=$(environment builder)
"$builder" -m pip install --quiet "setuptools>=77" "setuptools-rust>=1.10" "click>=8.1"
rm -rf dist && mkdir dist
CQREPL_BUILD_KERNEL=skip "$builder" -c \
  'from setuptools import build_meta; build_meta.build_sdist("dist")' >"$fresh/sdist.log" 2>&1 ||
  { cat "$fresh/sdist.log" >&2; exit 1; }
sdist=$(echo dist/cqrepl-*.tar.gz)
for wanted in native/Cargo.toml native/Cargo.lock native/kernel/Cargo.toml \
  native/kernel/src/lib.rs native/document/src/lib.rs cqrepl/_native.pyi wire/_codec.pyi cqrepl/py.typed \
  "cqrepl/dump/.*\.lua" "cqrepl/samples/.*\.tar\.gz" README.md LICENSE; do
  holds "$sdist:tarfile" yes "/$wanted"
done
holds "$sdist:tarfile" no '^[^/]+/(tests|native/target|native/fuzz)/|cqrepl-spark\.jar|_native\..*so|_codec\..*so|\.pyc'

if command -v cargo >/dev/null; then
  jars=""
  ! command -v javac >/dev/null || jars=$(.venv/bin/python -c \
    'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "jars")' 2>/dev/null) || true
  CQREPL_SPARK_JARS=$jars CQREPL_BUILD_KERNEL=require "$builder" -m pip wheel --quiet --no-deps --wheel-dir dist "$sdist"
  wheel=$(echo dist/cqrepl-*.whl)
  for wanted in "cqrepl/_native\.abi3\.so" "wire/_codec\.abi3\.so" wire/py.typed cqrepl/py.typed "cqrepl/dump/.*\.lua" \
    "cqrepl/samples/.*\.tar\.gz" \
    "share/man/man1/cqrepl-run\.1" "dist-info/licenses/LICENSE"; do
    holds "$wheel:zipfile" yes "$wanted"
  done
  holds "$wheel:zipfile" no "^(tests|tools|native)/"
  [[ -z $jars ]] && echo "the wheel has no scan for Spark: that takes a JDK and pyspark in .venv" ||
    holds "$wheel:zipfile" yes "cqrepl/spark/cqrepl-spark\.jar"
  "$(environment wheel)" -m pip install --quiet "$wheel"
  says wheel native
else
  echo "no wheel is made: that takes cargo"
fi

mkdir "$fresh/unpacked"
tar -xzf "$sdist" -C "$fresh/unpacked" --strip-components=1
without=$(environment without-cargo)
(cd "$fresh/unpacked" && PATH=$(dirname "$without") CQREPL_BUILD_KERNEL=auto PYTHONWARNINGS=error \
  "$without" -m pip install --quiet .)
says without-cargo python
ls -l dist
