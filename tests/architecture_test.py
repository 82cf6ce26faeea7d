"""What docs/architecture.md says of folders holds for every include: dependencies point one way, libraries stay where they are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^#include ["<]([^">]+)[">]', flags=re.MULTILINE)
# Headers of a library and the folders that may include them.
HOMES = {
    r"sqlite3\.h": ("state/",),
    r"(oneapi/)?tbb/": ("pipeline/", "stages/extract/cpu/", "tests/planted_race.cc"),
    r"(ATen|c10|torch)/": ("stages/extract/",),
    r"(cuda|cudnn|cublas|nvml)\w*\b": ("kernels/", "stages/extract/"),
}


def folders_in_order():
    """The chain of docs/architecture.md: a folder may include itself and those before it."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (chain,) = re.findall(r"^base  <-  .*$", text, flags=re.MULTILINE)
    return chain.split("  <-  ")


def sources(folder):
    return [path for suffix in ("h", "cc", "cu") for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))]


@pytest.mark.parametrize("folder", folders_in_order())
def test_dependencies_point_one_way(folder):
    order = folders_in_order()
    later = order[order.index(folder) + 1 :]
    files = sources(folder)
    assert files, f"{folder}/ has no sources"
    for path in files:
        for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            assert name.split("/")[0] not in later, f"{path.relative_to(ROOT)} includes {name}"


def test_libraries_are_included_where_they_belong():
    for folder in [*folders_in_order(), "tests"]:
        for path in sources(folder):
            name = path.relative_to(ROOT).as_posix()
            for included in INCLUDE.findall(path.read_text(encoding="utf-8")):
                for header, homes in HOMES.items():
                    assert not re.match(header, included) or name.startswith(homes), f"{name} includes {included}"
