"""Ids and loss masks of real conversations against jinja2, tokenizers and the mask rule by rendering prefixes.

The run is whole, on a tiny model with the demo model's tokenizer and template. Needs the test data.
"""

import os
import subprocess
from pathlib import Path

import pytest

from check_corpus import check
from tiny_model import make_tiny_model
from work_folder import WorkFolder

ROOT = Path(__file__).resolve().parent.parent
DEMO_MODEL = ROOT / "models" / "smollm2-135m-instruct"
CONVERSATIONS = Path(os.environ.get("DRAFTMILL_TEST_DATA", ROOT.parent / "shared" / "data")) / "conversations"
BINARY = Path(os.environ.get("DRAFTMILL_BINARY", ROOT / "build" / "draftmill"))
SOURCES = (
    "fastchat/dummy_conversation.json",
    "llamafactory/glaive_toolcall_en_demo.json",
    "llamafactory/identity.json",
    "llamafactory/reason_tool_use_demo_50.jsonl",
)
COMPLETE, COMPLETE_WITH_QUARANTINE = 0, 3

pytestmark = [
    pytest.mark.skipif(not DEMO_MODEL.is_dir(), reason=f"{DEMO_MODEL} is absent; tools/make_demo_model.py makes it"),
    pytest.mark.skipif(not CONVERSATIONS.is_dir(), reason=f"no test data in {CONVERSATIONS}; set DRAFTMILL_TEST_DATA"),
    pytest.mark.skipif(not BINARY.is_file(), reason=f"{BINARY} is not built"),
]


def test_ids_and_masks_of_real_conversations(tmp_path):
    model = make_tiny_model(tmp_path / "model", DEMO_MODEL)
    sources = "\n".join(f"    - {{path: {CONVERSATIONS.resolve() / name}}}" for name in SOURCES)
    (tmp_path / "pipeline.yaml").write_text(
        f"work: work\nmodel: {{path: model}}\n"
        f"ingest:\n  sources:\n{sources}\n    - {{path: {ROOT / 'configs' / 'demo'}}}\n  chunk_rows: 256\n"
        f"limits: {{max_bad_fraction: 0.5, min_free_disk: 0}}\n",
        encoding="utf-8",
    )
    run = subprocess.run([BINARY, "run", tmp_path / "pipeline.yaml"], check=False, capture_output=True, text=True)
    assert run.returncode in (COMPLETE, COMPLETE_WITH_QUARANTINE), run.stderr
    assert check(WorkFolder(tmp_path / "work"), model, least=500)
