"""One episode beside its reference, graded turn by turn as the package's checker does."""

from __future__ import annotations

import hashlib
import json

from bfcl_eval.constants.default_prompts import MAXIMUM_STEP_LIMIT

from envs.bfcl.worker.calls import ERROR, Backends
from envs.bfcl.worker.data import Call, Json, hidden
from envs.bfcl.worker.state import differs, flat, public

SHOWN = 40_000
"""Characters of one result that are shown; it is graded whole."""
KEPT = 200
"""Characters of a result that are kept for grading; of longer ones, the hash."""


def kept(text: str) -> str:
    return text if len(text) <= KEPT else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Session:
    """One episode, turn by turn, beside its reference."""

    def __init__(self, world: str, reference: list[list[Call]] | None, grading: str, tools: list[str]) -> None:
        self.grading = grading
        self.reference = reference
        self.mine = Backends(world)
        self.theirs = Backends(world) if reference is not None else None
        self.hidden = {} if grading == "task" else hidden(world)
        self.tools = set(tools)
        self.turn = 0
        self.steps = 0
        self.responses: list[str] = []
        self.peeked = False
        """A hidden function was called, and ran."""
        self.forced = False
        """A turn took more steps than are allowed."""
        self.verdicts: list[Json] = []
        self.digests: list[str] = []

    def act(self, calls: list[Call], same_step: bool = False) -> Json:
        """The observations of one step, or of a part of it: [[text, whether it is an error]].

        `done`: the episode was ended by force."""
        shown = [self._call(call) for call in calls]
        if shown:
            self.steps += not same_step
            self.responses += [kept(text) for text, _ in shown]
        if self.reference is not None and self.steps > MAXIMUM_STEP_LIMIT:
            self.next_turn()
            self.forced = True
        return {"observations": [[_cut(text), failed] for text, failed in shown], "done": self.forced}

    def _call(self, call: Call) -> tuple[str, bool]:
        if "refused" in call:
            return ERROR + call["refused"], True
        name = call.get("name")
        out_of_sight = isinstance(name, str) and self.hidden.get(name, 0) > self.turn
        refused = out_of_sight and self.grading != "official"
        self.peeked = self.peeked or (out_of_sight and not refused)
        if refused or (self.tools and name not in self.tools):
            name = str(name)
            return f"{ERROR}name {name[:64]!r} is not defined", True
        return self.mine.call(name, call.get("args"), coerce=self.grading == "task")

    def next_turn(self) -> Json:
        """`evaluated`: what `evaluate` gives, after the last turn."""
        if self.reference is not None and self.turn < len(self.reference):
            self._grade()
        self.turn, self.steps = self.turn + 1, 0
        over = self.reference is not None and self.turn == len(self.reference)
        return {"turn": self.turn, "evaluated": self.evaluate() if over else None}

    def _grade(self) -> None:
        wanted = self._run_reference()
        self.verdicts.append({"turn": self.turn, "abstained": self.steps == 0 or bool(wanted), **self._verdict(wanted)})

    def _verdict(self, wanted: list[str]) -> Json:
        if not wanted:
            return {"valid": True, "why": "not graded"}
        if not self.steps:
            return {"valid": False, "why": "no call was made"}
        assert self.theirs is not None
        for owner, theirs in self.theirs.instances.items():
            mine = vars(self.mine.instances[owner])
            for name, value in public(theirs).items():
                if differs(mine.get(name), value):
                    return {"valid": False, "why": f"state: {owner}.{name}"}
        return {"valid": False, "why": "responses"} if _missing(wanted, self.responses) else {"valid": True, "why": ""}

    def reach(self) -> list[str]:
        """A digest of what each turn of the reference gives; that of the last covers the state too."""
        while len(self.digests) < len(self.reference or ()):
            self._run_reference()
        return self.digests

    def _run_reference(self) -> list[str]:
        """The reference's responses of the next of its turns."""
        assert self.theirs is not None
        assert self.reference is not None
        calls = self.reference[len(self.digests)]
        coerce = self.grading == "task"
        responses = [kept(self.theirs.call(call["name"], call["args"], coerce=coerce)[0]) for call in calls]
        reached: list[Json] = [responses]
        if len(self.digests) + 1 == len(self.reference):
            reached.append(flat([public(instance) for instance in self.theirs.instances.values()]))
        self.digests.append(hashlib.sha256(json.dumps(reached).encode()).hexdigest()[:16])
        return responses

    def changes(self) -> bool:
        """Whether the reference's public state now differs from that of the actor."""
        assert self.theirs is not None
        pairs = [(self.mine.instances[owner], theirs) for owner, theirs in self.theirs.instances.items()]
        return any(differs(public(mine), public(theirs)) for mine, theirs in pairs)

    def evaluate(self) -> Json:
        turns = len(self.reference or ())
        official = len(self.verdicts) == turns and all(verdict["valid"] for verdict in self.verdicts)
        strict = official and not self.peeked and all(verdict["abstained"] for verdict in self.verdicts)
        return {"official": official, "strict": strict, "turns": self.verdicts, "digests": self.reach()}


def _missing(wanted: list[str], have: list[str]) -> bool:
    """Whether a response of the reference is not among those of the whole episode, each of which counts once."""
    left = list(have)
    for text in wanted:
        if text not in left:
            return True
        left.remove(text)
    return False


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... [{len(text) - SHOWN} characters cut]"
