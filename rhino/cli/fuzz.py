"""`rhino check --fuzz N`: random programs, layouts and meshes through all passes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rhino.check.fuzz import Failure, fuzz
from rhino.cli.by_pass import write_wrong
from rhino.cli.run import write_json
from rhino.dialects.text import print_module
from rhino.ir.errors import UsageError

#: Seconds between two lines that say how far it is.
EVERY_S = 10.0


@dataclass(frozen=True)
class FuzzOptions:
    """What `rhino check --fuzz` was asked for; see its help."""

    count: int
    seed: int = 0
    out_dir: str = "rhino-check"
    json: str | None = None

    def check(self) -> None:
        """Raise UsageError for a count that is none."""
        if self.count < 1:
            raise UsageError(f"--fuzz is {self.count}", remedy="give the number of programs, 1 or more")


def fuzz_programs(options: FuzzOptions) -> bool:
    """Draw and check programs until one goes wrong, say how it went. Returns whether all were right."""
    options.check()
    began = said = time.perf_counter()
    passes = 0

    def tell(done: int, passed: int) -> None:
        nonlocal said, passes
        passes = passed
        if time.perf_counter() - said >= EVERY_S:
            said = time.perf_counter()
            print(f"{done} of {options.count} programs, {passed} passes, 0 wrong", flush=True)

    right, failure = fuzz(options.count, options.seed, tell)
    seconds = time.perf_counter() - began
    found = None
    if failure is None:
        print(f"equal: {right} programs, {passes} passes; seed {options.seed}, {seconds:.1f} s")
    else:
        print(f"DIFFERENT: program {failure.seed} (seed/number), after {right} that were right")
        found = _write(failure, options.out_dir)
    if options.json is not None:
        value = {"equal": failure is None, "programs": right, "passes": passes, "seed": options.seed,
                 "seconds": seconds, "wrong": found}  # fmt: skip
        write_json(options.json, value)
    return failure is None


def _write(failure: Failure, folder: str) -> dict[str, Any]:
    """Say what went wrong and write the module."""
    if failure.wrong is not None:
        report = write_wrong(failure.wrong, 0.0, folder)
        small = "the whole program" if report["whole"] else f"{report['ops']} op{'s' * (report['ops'] != 1)}"
        print(f"  {report['pass']}: {report['text']}")
        print(f"  written, minimised to {small}: {', '.join(report['files'])}")
        return {"program": failure.seed, **report}
    assert failure.crashed is not None
    name, message, module = failure.crashed
    path = Path(folder) / f"{name}.before.mlir"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(print_module(module))
    except OSError as error:
        raise UsageError(
            f"cannot write to '{folder}': {error.strerror}", remedy="give another --out-dir"
        ) from error
    print(f"  {name} failed: {message}\n  written: {path}")
    return {"program": failure.seed, "pass": name, "text": message, "files": [str(path)]}
