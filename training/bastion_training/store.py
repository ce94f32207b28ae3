"""Answers and features on disk."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .errors import UserError


TEACHER = 16  # likeliest next tokens kept of the target's distribution


@dataclass(frozen=True)
class Answer:
    """One answer of the target: token ids of the rendered prompt and of what came after it."""

    id: str
    source: str
    temperature: float
    prompt: list[int]
    tokens: list[int]


def read_answers(path: Path) -> Iterator[Answer]:
    """Reads a file written by `answers` (JSON lines, plain or .gz). A last line cut short is left out."""
    if not path.is_file():
        raise UserError(f"{path}: no such file (write it with the command 'answers')")
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith("\n"):
                return
            try:
                row = json.loads(line)
                yield Answer(str(row["id"]), str(row.get("source", "")), float(row.get("temperature", 0)),
                             list(map(int, row["prompt_tokens"])), list(map(int, row["tokens"])))
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(f"{path}: line {number} is not an answer: {error!r}") from None


@dataclass(frozen=True)
class Sequence:
    """Where one answer lies in a FeatureStore: rows [start, start + length), the first `prompt` of them its prompt."""

    id: str
    source: str
    start: int
    prompt: int
    length: int


class FeatureStore:
    """Features of many sequences, appended one at a time, as bfloat16 bits.

    Files: `tokens.i32` [rows], `taps.bf16` [rows, taps * hidden], `teacher_ids.i32` and `teacher_logprobs.f16`
    [rows, TEACHER] (the target's likeliest next tokens after every row), `index.jsonl` one line a sequence (written
    last: what it does not name is cut off when the store is opened for writing), `meta.json`.
    """

    def __init__(self, folder: Path, taps: list[int] | None = None, hidden: int = 0, target: str = "") -> None:
        self._folder = folder
        meta = folder / "meta.json"
        wanted = {"taps": taps, "hidden": hidden, "target": target}
        if taps is not None and not meta.exists():
            folder.mkdir(parents=True, exist_ok=True)
            meta.write_text(json.dumps(wanted))
        if not meta.is_file():
            raise UserError(f"{folder}: holds no features (write them with the command 'features')")
        have = json.loads(meta.read_text())
        if taps is not None and have != wanted:
            raise UserError(f"{folder}: holds features of {have}, not of {wanted}; choose another folder")
        self.taps, self.hidden, self.target = have["taps"], have["hidden"], have["target"]
        index = folder / "index.jsonl"
        self.sequences = []
        if index.exists():
            self.sequences = [Sequence(**json.loads(line)) for line in index.read_text().splitlines(True)
                              if line.endswith("\n")]
        self.rows = sum(s.length for s in self.sequences)
        self._files: dict[str, object] = {}

    def _widths(self) -> dict[str, tuple[np.dtype, int]]:
        return {"tokens.i32": (np.dtype(np.int32), 1),
                "taps.bf16": (np.dtype(np.uint16), len(self.taps) * self.hidden),
                "teacher_ids.i32": (np.dtype(np.int32), TEACHER),
                "teacher_logprobs.f16": (np.dtype(np.float16), TEACHER)}

    def append(self, answer: Answer, taps: np.ndarray, teacher_ids: np.ndarray, teacher_logprobs: np.ndarray) -> None:
        """`taps` [rows, taps * hidden]: bfloat16 bits; the teacher's [rows, TEACHER]."""
        if not self._files:
            for name, (dtype, width) in self._widths().items():
                handle = open(self._folder / name, "ab")
                handle.truncate(self.rows * dtype.itemsize * width)
                self._files[name] = handle
            index = self._folder / "index.jsonl"
            text = "".join(json.dumps(vars(s)) + "\n" for s in self.sequences)
            index.write_text(text)
            self._files["index.jsonl"] = open(index, "a", encoding="utf-8")
        tokens = np.asarray(answer.prompt + answer.tokens, np.int32)
        for name, rows in (("tokens.i32", tokens), ("taps.bf16", taps), ("teacher_ids.i32", teacher_ids),
                           ("teacher_logprobs.f16", teacher_logprobs)):
            dtype, width = self._widths()[name]
            assert rows.size == len(tokens) * width
            self._files[name].write(np.ascontiguousarray(rows, dtype).tobytes())
            self._files[name].flush()
        sequence = Sequence(answer.id, answer.source, self.rows, len(answer.prompt), len(tokens))
        self._files["index.jsonl"].write(json.dumps(vars(sequence)) + "\n")
        self._files["index.jsonl"].flush()
        self.sequences.append(sequence)
        self.rows += sequence.length

    def close(self) -> None:
        for handle in self._files.values():
            os.fsync(handle.fileno())
            handle.close()
        self._files = {}

    def open(self) -> dict[str, np.ndarray]:
        """The arrays, mapped, by name without the ending: `tokens` [rows], `taps` (bfloat16 bits as uint16), ..."""
        out = {}
        for name, (dtype, width) in self._widths().items():
            shape = (self.rows, width) if width > 1 else (self.rows,)
            out[name.split(".")[0]] = np.memmap(self._folder / name, dtype, "r", shape=shape)
        return out


def held_out(sequences: list[Sequence], one_in: int = 40) -> tuple[list[Sequence], list[Sequence]]:
    """(training, held out): a sequence's id alone decides, so the split survives added answers."""
    held = [s for s in sequences if zlib.crc32(s.id.encode()) % one_in == 0]
    return [s for s in sequences if zlib.crc32(s.id.encode()) % one_in != 0], held
