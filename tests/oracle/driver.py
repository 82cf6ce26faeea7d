"""Talks to build/stages/tokenize/tokenize_lines: one JSON object in, one out."""
import json
import subprocess


class Driver:
    def __init__(self, path):
        self.process = subprocess.Popen([str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line):
        self.process.stdin.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the driver ended with {self.process.wait()}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        return self.process.wait()
