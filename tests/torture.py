#!/usr/bin/env python3
"""Random faults against whole runs: whatever happens, the same bytes come out, and damage is found.

    tests/torture.py [--minutes 1] [--seed N] [--round N] [--binary PROGRAM ...] [--keep FOLDER]

A round is one run on a fresh work folder, disturbed some times and then continued to its end: killed, stopped and
continued, asked to end, started twice, with other numbers of threads, on a disk that fills up, loses what was not synced or
fails a write, with a clock that jumps, with bits flipped in what it published. Its published files must then be those of the
undisturbed run, or `verify --deep` must name the damage, and `verify --repair` and one more run must mend it.

Every decision of round N follows from the seed and N, so `--seed S --round N` does the same again; only the moments at
which signals meet the program are the machine's. Programs named draftmill_example also take faults by number of the change
(tests/example_engine.cc). Prints a line a round that failed, and at the end what was survived. Exit: 0 all equal, 1 not.
"""

import argparse
import collections
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from small_run import COMPLETE, ROOT, SmallRun, conversation, difference

STOPPED = 75
FAILED = 1
NOT_STARTED = 2
BAD_ROWS = ["{broken", '{"messages": []}', '{"messages": [{"role": "user", "content": "no answer"}]}', "7"]
SIGNALS = {"term": signal.SIGTERM, "int": signal.SIGINT, "usr1": signal.SIGUSR1, "hup": signal.SIGHUP}
BY_CHANGE = ("kill", "power", "power-names", "full", "error")


class TortureFailed(Exception):
    """What was to be shown does not hold."""


class Scenario:
    """One set of rows with one program: a folder, and what an undisturbed run publishes."""

    def __init__(self, folder, binary, rows, seconds_hint=None):
        generator = random.Random(rows)
        lines = [conversation(number) for number in range(rows)]
        for bad in BAD_ROWS:
            lines.insert(generator.randrange(len(lines)), bad)
        self.run = SmallRun(folder, binary, lines)
        self.takes_faults = binary.name == "draftmill_example"
        started = time.monotonic()
        status = self.run.run()
        self.seconds = seconds_hint or time.monotonic() - started
        if status not in COMPLETE:
            raise TortureFailed(f"the undisturbed run ended with {status}:\n{self.run.last_words()}")
        self.status = status
        self.expected = self.run.published()
        self.changes = self._count_changes() if self.takes_faults else 0

    def _count_changes(self):
        """About how many changes of the disk a run makes: the most after which a fault still meets it."""
        low, high = 1, 2
        while self._is_reached(high):
            low, high = high, high * 2
        while high - low > max(1, low // 20):
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_reached(middle) else (low, middle)
        return low

    def _is_reached(self, change):
        shutil.rmtree(self.run.work, ignore_errors=True)
        return self.run.run(environment={"DRAFTMILL_EXAMPLE_FAULT": f"kill:{change}"}) < 0


class Round:
    """One run, disturbed and continued."""

    def __init__(self, scenario, generator, survived):
        self.scenario = scenario
        self.run = scenario.run
        self.random = generator
        self.survived = survived
        self.story = []

    def play(self):
        shutil.rmtree(self.run.work, ignore_errors=True)
        disturbances = [self.kill, self.pause, self.ask, self.stop, self.start_twice, self.flip]
        if self.scenario.takes_faults:
            disturbances += [self.fault, self.fault, self.fault, self.clock]
        for _ in range(self.random.randint(1, 7)):
            self.run.configure(threads=self.random.choice([1, 2, 3, 4]))
            self.random.choice(disturbances)()
        self.finish()

    def note(self, kind):
        self.story.append(kind)
        self.survived[kind.split(" ")[0]] += 1

    def delay(self):
        return self.random.uniform(0, self.scenario.seconds)

    def expect(self, status, allowed):
        """Exit statuses that are always good: the end, and to be run again."""
        if status in (*COMPLETE, STOPPED, *allowed):
            return
        # Damage that a run meets on its way is named with what mends it.
        if status in (FAILED, NOT_STARTED) and "verify" in self.run.words() and "flip" in " ".join(self.story):
            self.run.run("--repair", command="verify")
            return
        raise TortureFailed(f"exit status {status}:\n{self.run.last_words()}")

    def kill(self):
        delay = self.delay()
        self.note(f"sigkill after {delay:.3f} s")
        process = self.run.start()
        try:
            process.wait(timeout=delay)
        except subprocess.TimeoutExpired:
            process.kill()
        self.expect(process.wait(), [-signal.SIGKILL])

    def pause(self):
        delay, pause = self.delay(), self.random.uniform(0, 0.3)
        self.note(f"sigstop after {delay:.3f} s")
        process = self.run.start()
        time.sleep(delay)
        if process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            time.sleep(pause)
            process.send_signal(signal.SIGCONT)
        self.expect(process.wait(timeout=120), [])

    def ask(self):
        name, delay, twice = self.random.choice(sorted(SIGNALS)), self.delay(), self.random.random() < 0.2
        self.note(f"sig{name} after {delay:.3f} s")
        process = self.run.start()
        time.sleep(delay)
        early = [-SIGNALS[name]]  # before the program has installed anything
        for _ in range(2 if twice else 1):
            if process.poll() is None:
                process.send_signal(SIGNALS[name])
        try:
            self.expect(process.wait(timeout=10), early)
        except subprocess.TimeoutExpired:
            process.kill()
            raise TortureFailed(f"it did not end within 10 s of sig{name}") from None

    def stop(self):
        delay = self.delay()
        self.note(f"stop after {delay:.3f} s")
        process = self.run.start()
        time.sleep(delay)
        stopped = subprocess.run([self.run.binary, "stop", self.run.pipeline], check=False, capture_output=True)
        if process.poll() is None and stopped.returncode == 0 and self.run.work.exists():
            process.send_signal(signal.SIGTERM)  # it had not taken its lock yet
        self.expect(process.wait(timeout=30), [-signal.SIGTERM])

    def start_twice(self):
        self.note("start twice")
        first, second = self.run.start(), self.run.start()
        statuses = sorted([first.wait(timeout=120), second.wait(timeout=120)])
        for status in statuses:
            self.expect(status, [NOT_STARTED])
        if statuses == [NOT_STARTED, NOT_STARTED]:
            raise TortureFailed(f"of two runs none ran:\n{self.run.last_words()}")

    def fault(self):
        kind = self.random.choice(BY_CHANGE)
        change = self.random.randint(1, self.scenario.changes)
        self.note(f"{kind} at change {change}")
        status = self.run.run(environment={"DRAFTMILL_EXAMPLE_FAULT": f"{kind}:{change}"})
        self.expect(status, {"full": [NOT_STARTED], "error": [FAILED, NOT_STARTED]}.get(kind, [-signal.SIGKILL]))

    def clock(self):
        change = self.random.randint(1, 2 * self.scenario.changes)
        self.note(f"clock jumps, kill at change {change}")
        environment = {"DRAFTMILL_EXAMPLE_CLOCK": "1", "DRAFTMILL_EXAMPLE_FAULT": f"kill:{change}"}
        self.expect(self.run.run(environment=environment), [-signal.SIGKILL])

    def flip(self):
        files = sorted(self.run.published())
        if not files:
            return
        name = self.random.choice(files)
        path = self.run.work / name
        content = bytearray(path.read_bytes())
        if not content:
            return
        place, bit = self.random.randrange(len(content)), self.random.randrange(8)
        content[place] ^= 1 << bit
        path.write_bytes(content)
        self.note(f"flip bit {bit} of byte {place} of {name}")
        if self.random.random() < 0.5:
            self.run.run("--repair", command="verify")

    def finish(self):
        self.run.configure(threads=2)
        for _ in range(6):
            status = self.run.run()
            self.expect(status, [])
            if status not in COMPLETE:
                continue
            different = difference(self.scenario.expected, self.run.published())
            found = self.run.run("--deep", command="verify")
            if not different and found == 0 and status == self.scenario.status:
                return
            if not different and found == 0:
                raise TortureFailed(f"it ended with {status}, undisturbed with {self.scenario.status}")
            if different and found == 0:
                raise TortureFailed(f"verify --deep finds nothing, but these differ: {different[:8]}")
            if "flip" not in " ".join(self.story):
                raise TortureFailed(f"damage that nobody did: {different[:8]}\n{self.run.last_words()}")
            self.run.run("--repair", command="verify")
        raise TortureFailed(f"it never came to its end:\n{self.run.last_words()}")


def play_all(folder, binaries, seed, minutes, only_round=None):
    """The number of failed rounds, and how often each kind of disturbance was survived."""
    scenarios = [Scenario(folder / f"{binary.name}-{rows}", binary, rows) for binary in binaries for rows in (60, 160)]
    survived, failed, rounds = collections.Counter(), 0, 0
    deadline = time.monotonic() + 60 * minutes
    number = only_round if only_round is not None else 0
    while rounds == 0 or (only_round is None and time.monotonic() < deadline):
        generator = random.Random(f"{seed}/{number}")
        one = Round(generator.choice(scenarios), generator, survived)
        try:
            one.play()
        except TortureFailed as failure:
            failed += 1
            print(f"round {number} FAILED ({one.run.folder.name}): {'; '.join(one.story)}\n{failure}", flush=True)
            print(f"again: tests/torture.py --seed {seed} --round {number}", flush=True)
            if failed == 3:
                break
        rounds, number = rounds + 1, number + 1
    return rounds, failed, survived


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--round", type=int)
    parser.add_argument("--binary", type=Path, action="append")
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it there")
    arguments = parser.parse_args()
    # Under nohup it would be ignored, here and by every run: a run that is to outlive its terminal does.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    binaries = arguments.binary or [ROOT / "build" / "draftmill_example", ROOT / "build" / "draftmill"]
    print(f"torture: seed {arguments.seed}, {arguments.minutes} minutes, {', '.join(map(str, binaries))}", flush=True)
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="draftmill-torture-"))
    try:
        rounds, failed, survived = play_all(folder, binaries, arguments.seed, arguments.minutes, arguments.round)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(survived.items()))
    print(f"torture: seed {arguments.seed}, {rounds} rounds, {sum(survived.values())} faults ({kinds}), {failed} rounds failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
