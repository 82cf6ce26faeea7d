"""The Python package as its users get it: a wheel, installed where nothing of the source tree is seen."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from finished_run import BINARY, make_finished_run

pytest.importorskip("setuptools", minversion="70.1", reason="older ones build no wheels by themselves")
ROOT = Path(__file__).resolve().parent.parent
USE = """
import sys, draftmill
from draftmill import Dataset
dataset = Dataset(sys.argv[1], final_norm="post", shift="speculators", verify=True)
print(draftmill.__file__, len(dataset), sum(len(sample.input_ids) for sample in dataset))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, since a build leaves files beside the sources. No registry is asked for anything."""
    source = tmp_path_factory.mktemp("source") / "python"
    shutil.copytree(ROOT / "python", source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    output = tmp_path_factory.mktemp("wheel")
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", output)
    built = subprocess.run([sys.executable, "-m", "pip", "wheel", *options, source], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = output.glob("draftmill-*-py3-none-any.whl")
    return path


def test_the_wheel_holds_the_package_and_says_that_it_is_typed(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    modules = {f"draftmill/{path.name}" for path in (ROOT / "python" / "src" / "draftmill").glob("*.py")}
    assert modules | {"draftmill/py.typed"} == {name for name in names if name.startswith("draftmill/")}
    assert "Requires-Python: >=3.10" in text
    assert "Requires-Dist: numpy" in text and "Requires-Dist: safetensors" in text


@pytest.mark.skipif(not BINARY.is_file(), reason=f"{BINARY} is not built")
def test_an_installed_wheel_reads_a_run(wheel, tmp_path):
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    (tmp_path / "finished").mkdir()
    work = make_finished_run(tmp_path / "finished")
    # numpy, safetensors and xxhash come from the environment of the tests.
    libraries = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    used = subprocess.run([python, "-c", USE, work], cwd=tmp_path, env=libraries, capture_output=True, text=True, check=False)
    assert used.returncode == 0, used.stderr
    file, samples, tokens = used.stdout.split()
    assert file.startswith(str(environment)) and int(samples) == 50 and int(tokens) > 50
