#!/usr/bin/env python3
"""Whole runs on the GPUs there are: the same bytes for every place of the weights, any number of GPUs, after a kill, after a fault.

    tests/gpu_run.py [--binary build/draftmill] [--work FOLDER] [CHECK...]

A random model of 12 layers and a tokenizer of bytes take conversations of the demo through the whole pipeline. Checks:
policies (resident, streamed from memory and from disk, sharded), gpus (one and all), kill (SIGKILL at several moments, the same
command continues), fault (each kind of device fault ends with its status, the same command continues), occupied (another
process on the GPU is named, `wait` waits for it), memory (a forecast that does not fit is refused before anything is started), full
(another process takes all that is left of the GPU during the run: it ends with 1 and the same command continues).
Published files are compared by SHA-256 with those of an undisturbed run.

Prints one line a check. Exit: 0 all hold, 1 one does not, 77 without a GPU or the engine for it.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import byte_model

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "configs" / "demo" / "chat.jsonl"
CONVERSATIONS = 120
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 12, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5,
    "vocab_size": 260, "max_position_embeddings": 4096, "tie_word_embeddings": False, "rope_theta": 10000.0,
    "hidden_act": "silu", "torch_dtype": "bfloat16", "eos_token_id": 257,
}
PIPELINE = """\
work: {work}
model: {{path: model}}
ingest: {{sources: [{{path: conversations.jsonl}}], shuffle: {{seed: 7}}, chunk_rows: 40}}
tokenize: {{max_length: 900, too_long: truncate}}
vocab_map: {{size: 128}}
extract: {{device: cuda, batch_tokens: 2048, block_tokens: 5000, weights: {weights}, occupied: {occupied}}}
write: {{shard_bytes: 24MiB}}
limits: {{threads: 4, min_free_disk: 0, memory: {memory}}}
"""
RUN_AGAIN = 75


class CheckFailed(Exception):
    """What was to be shown does not hold."""


class Workplace:
    """The model, the data, and one pipeline file and work folder for each run."""

    def __init__(self, folder, binary):
        self.folder = folder
        self.binary = binary
        config = folder / "config.json"
        config.write_text(json.dumps(CONFIG))
        subprocess.run([binary, "bench", "checkpoint", config, folder / "model"], check=True, stdout=subprocess.DEVNULL)
        byte_model.write_text_files(folder / "model", CONFIG)
        rows = DEMO.read_text(encoding="utf-8").splitlines()[:CONVERSATIONS]
        (folder / "conversations.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
        self.expected = None

    def begin(self, name, weights="auto", memory="4GiB", occupied="fail", pipeline=PIPELINE, **environment):
        text = pipeline.format(work=name, weights=weights, memory=memory, occupied=occupied)
        pipeline = self.folder / f"{name}.yaml"
        pipeline.write_text(text)
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen([self.binary, "run", pipeline], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                    env={**os.environ, **environment})

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def run(self, name, status=0, **arguments):
        got = self.begin(name, **arguments).wait(timeout=300)
        if got != status:
            raise CheckFailed(f"{name}: exit status {got}, not {status}:\n{self.log(name)[-1500:]}")
        return self.log(name)

    def digests(self, name):
        digests = {}
        for folder in ("ingested", "corpus", "vocab", "shards"):
            for path in sorted((self.folder / name / folder).rglob("*")):
                if path.is_file():
                    digests[str(path.relative_to(self.folder / name))] = hashlib.sha256(path.read_bytes()).hexdigest()
        return digests

    def compare(self, name):
        digests = self.digests(name)
        if self.expected is None:
            self.expected = digests
        differing = [file for file in sorted(self.expected | digests) if self.expected.get(file) != digests.get(file)]
        if differing:
            raise CheckFailed(f"{name}: {len(differing)} of {len(self.expected)} files differ, the first is {differing[0]}")
        shutil.rmtree(self.folder / name)

    def said(self, name, text):
        if text not in self.log(name):
            raise CheckFailed(f"{name}: does not say {text!r}:\n{self.log(name)[-1500:]}")


def await_shard(place, name, process, shards):
    begin = time.monotonic()
    while len(list(place.folder.glob(f"{name}/shards/*/*.safetensors"))) < shards and process.poll() is None:
        if time.monotonic() - begin > 120:
            raise CheckFailed(f"{name}: no {shards} shards after two minutes")
        time.sleep(0.001)


def check_policies(place, gpus):
    cases = {"resident": ("resident", "4GiB", "weights resident"), "memory": ("streamed", "4GiB", "from pinned host memory"),
             "disk": ("streamed", "480MiB", "from disk"), "sharded": ("sharded", "4GiB", f"weights sharded over {gpus} GPUs")}
    for name, (weights, memory, said) in cases.items():
        place.run(name, weights=weights, memory=memory)
        place.said(name, said)
        place.compare(name)


def check_gpus(place, gpus):
    for index in range(gpus):
        place.run(f"gpu{index}", CUDA_VISIBLE_DEVICES=str(index))
        place.compare(f"gpu{index}")


def check_kill(place, gpus):
    for shards in (1, 4, 9):
        name = f"kill{shards}"
        process = place.begin(name, weights="streamed" if shards == 4 else "auto")
        await_shard(place, name, process, shards)
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            raise CheckFailed(f"{name}: it had ended before it could be killed")
        place.run(name)
        place.compare(name)


def check_fault(place, gpus):
    for kind in ("illegal_access", "memory_error", "lost"):
        name = f"fault_{kind}"
        place.run(name, status=RUN_AGAIN, DRAFTMILL_DEVICE_FAULT=f"{kind}:{gpus - 1}:2")
        place.said(name, f"GPU {gpus - 1} (")
        place.said(name, "everything published is safe")
        others = ",".join(str(i) for i in range(max(1, gpus - 1)))
        place.run(name, CUDA_VISIBLE_DEVICES=others)
        place.compare(name)
    place.run("fault_memory", status=1, DRAFTMILL_DEVICE_FAULT="out_of_memory:0:2")
    place.said("fault_memory", "extract.batch_tokens")
    place.run("fault_memory")
    place.compare("fault_memory")


def check_occupied(place, gpus):
    holder = "import torch, time; x = torch.zeros(1 << 20, device='cuda'); print('ready', flush=True); time.sleep(SECONDS)"
    for name, seconds in (("occupied", 300), ("waiting", 6)):
        other = subprocess.Popen([sys.executable, "-c", holder.replace("SECONDS", str(seconds))], stdout=subprocess.PIPE)
        try:
            other.stdout.readline()
            if name == "occupied":
                place.run(name, status=2)
                place.said(name, "Nothing was started")
            else:
                place.run(name, occupied="wait")
                place.said(name, "waiting for GPUs")
                place.compare(name)
            place.said(name, f"process {other.pid}")
        finally:
            other.kill()
            other.wait()
    place.run("occupied")
    place.compare("occupied")


def check_memory(place, gpus):
    place.run("memory_limit", status=2, weights="resident", memory="64MiB")
    place.said("memory_limit", "limits.memory")


def check_full(place, gpus):
    """The second chunk has a row longer than a batch, so its buffers are made when the GPU has nothing left."""
    def row(question, answer):
        return json.dumps({"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]})

    rows = [row(f"{i}?", f"{i}.") for i in range(4000)] + [row("Long?", "word " * 2000)]
    (place.folder / "growing.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    pipeline = PIPELINE
    for old, new in (("conversations.jsonl}}], shuffle: {{seed: 7}}, chunk_rows: 40", "growing.jsonl}}], chunk_rows: 4000"),
                     ("max_length: 900", "max_length: 4096"), ("shard_bytes: 24MiB", "shard_bytes: 2MiB")):
        assert old in pipeline
        pipeline = pipeline.replace(old, new)
    place.run("roomy", pipeline=pipeline)
    hold = ("import sys, torch\nkept = []\nsize = 1 << 34\nwhile size >= 1 << 20:\n    try:\n"
            "        kept.append(torch.empty(size, dtype=torch.uint8, device='cuda'))\n"
            "    except RuntimeError:\n        size //= 2\nprint('full', flush=True)\nsys.stdin.read()")
    process = place.begin("full", pipeline=pipeline, CUDA_VISIBLE_DEVICES="0")
    await_shard(place, "full", process, 1)
    process.send_signal(signal.SIGSTOP)
    holder = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "CUDA_VISIBLE_DEVICES": "0"})
    try:
        holder.stdout.readline()
        process.send_signal(signal.SIGCONT)
        status = process.wait(timeout=120)
    finally:
        process.send_signal(signal.SIGCONT)
        holder.kill()
        holder.wait()
    if status != 1:
        raise CheckFailed(f"full: exit status {status}, not 1:\n{place.log('full')[-1500:]}")
    place.said("full", "extract.batch_tokens")
    place.run("full", pipeline=pipeline)
    if place.digests("full") != place.digests("roomy"):
        raise CheckFailed("full: other bytes than in a run with room")


CHECKS = {"policies": check_policies, "gpus": check_gpus, "kill": check_kill, "fault": check_fault, "occupied": check_occupied,
          "memory": check_memory, "full": check_full}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build" / "draftmill"))
    parser.add_argument("--work", default=tempfile.gettempdir())
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS) + "; all without any")
    arguments = parser.parse_args()
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True) if shutil.which("nvidia-smi") else None
    gpus = listed.stdout.count("GPU ") if listed and listed.returncode == 0 else 0
    if gpus == 0:
        print("no GPU on this machine")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory(prefix="draftmill-gpu-", dir=arguments.work) as folder:
        place = Workplace(Path(folder), arguments.binary)
        place.run("undisturbed")
        place.compare("undisturbed")
        print(f"undisturbed on {gpus} GPUs: {len(place.expected)} files", flush=True)
        for name in arguments.checks or CHECKS:
            begin = time.monotonic()
            try:
                CHECKS[name](place, gpus)
                print(f"{name}: holds, {time.monotonic() - begin:.1f} s", flush=True)
            except (CheckFailed, subprocess.SubprocessError) as error:
                failed += 1
                print(f"{name}: FAILED: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
