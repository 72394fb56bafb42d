"""Parses command lines as SGLang's launchers do and prints what became of them, as JSON.

A program of its own because SGLang's plugins are loaded once a process, and its parser takes over the
logging of the process it runs in.
"""

import json
import logging
import os
import sys
from typing import Any

from sglang.srt.plugins import load_plugins
from sglang.srt.server_args import ServerArgs, prepare_server_args

from sgkv.sglang.launch import LAUNCH_ID


class Said(logging.Handler):
    """What was logged for people to read."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def outcome(arguments: list[str] | dict[str, Any], said: Said) -> dict[str, Any]:
    """Of a command line, or of the keywords of `Engine`."""
    said.lines.clear()
    try:
        args = prepare_server_args(arguments) if isinstance(arguments, list) else ServerArgs(**arguments)
        args.resolve_once()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user would see
        return {"error": str(error), "kind": type(error).__name__, "said": list(said.lines)}
    resolved = json.loads(json.dumps(args.resolved_dict(), default=str))
    return {"resolved": resolved, "said": list(said.lines), "launch": os.environ.get(LAUNCH_ID)}


def main() -> None:
    cases = json.load(sys.stdin)
    said = Said()
    logging.getLogger("sgkv").addHandler(said)
    without = {name: outcome(case, said) for name, case in cases["others"].items()}
    load_plugins()
    answer = {
        "without_plugin": without,
        "others": {name: outcome(case, said) for name, case in cases["others"].items()},
        "flag": {name: outcome(case, said) for name, case in cases["flag"].items()},
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
