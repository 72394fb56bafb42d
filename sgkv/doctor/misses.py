"""Why pages were missed, read from a server's metrics and explained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from sgkv.doctor.finding import Finding, note, ok, problem
from sgkv.reasons import MissReason

TOPIC = "misses"
_MISSES = {"sgkv_lookup_pages_total": "result", "sgkv_miss_pages_total": "reason"}
"""Pages that a lookup did not find, and those that a read did not bring, with the label that says why."""
_WORTH_SAYING = 0.01
"""Share of the missed pages."""

ADVICE: Mapping[MissReason, tuple[str, str]] = {
    MissReason.ABSENT: (
        "no tier had them: never written, evicted, or written under another namespace",
        "compare the namespaces that servers log at start; enlarge the tiers if evictions are many",
    ),
    MissReason.EXPIRED: ("they were older than ttl", "raise ttl if they were still right"),
    MissReason.CORRUPT: (
        "their bytes were damaged, and taken out of use",
        "check the disk or the bucket",
    ),
    MissReason.FOREIGN: (
        "what lay under their names belonged to something else",
        "find out who else writes into the same folder or prefix",
    ),
    MissReason.LAYOUT: ("their byte order cannot be converted to this pool's", "see the log for both orders"),
    MissReason.LOCKED: (
        "they are sealed with a key that is not here, or are not sealed where they must be",
        "compare the keys of the servers that share the tier: sgkv keys list",
    ),
    MissReason.NOT_WORTH_LOADING: (
        "the gate judged that computing them takes less time than loading them",
        "see docs/when-to-load.md; gate.mode: shadow only counts",
    ),
    MissReason.HELD_BACK: (
        "the rollout does not load them for these prompts, or for a while for none",
        "see docs/rollout.md; the log says where loading pauses, and why",
    ),
    MissReason.TIMEOUT: (
        "a deadline passed first",
        "see sgkv_tier_seconds for the slow tier; raise engine.get_deadline, or leave that tier out",
    ),
    MissReason.BREAKER_OPEN: ("their tier had failed several times", "see the log for the failures"),
    MissReason.TIER_ERROR: ("their tier could not read them", "see the log"),
    MissReason.NODE_AWAY: ("the node's daemon did not answer", "sgkv node status; see the daemon's log"),
    MissReason.SIDE_POOL: (
        "the KV was there without the state of another pool of the model",
        "SGLang stores such state at few lengths; a larger store keeps more of it",
    ),
    MissReason.SUSPENDED: (
        "the weights were updated without a flush of SGLang's cache",
        "POST /flush_cache, or update with flush_cache: true",
    ),
    MissReason.CLOSED: ("the store was shutting down", ""),
    MissReason.UNSUPPORTED: ("this version cannot serve that pool or call", "see the log, once at start"),
    MissReason.INTERNAL: ("an error of sgkv's own", "please report the traceback in the log"),
}
"""What each reason means for whoever runs the server, and what to do."""

_EXPECTED = frozenset(
    {
        MissReason.ABSENT,
        MissReason.CLOSED,
        MissReason.EXPIRED,
        MissReason.HELD_BACK,
        MissReason.NOT_WORTH_LOADING,
        MissReason.SIDE_POOL,
    }
)


def examine(exposition: str) -> Iterator[Finding]:
    """`exposition` is the text of a server's ``/metrics``."""
    served, misses = _count(exposition)
    missed = sum(misses.values())
    if not served and not missed:
        yield note(
            TOPIC,
            "no page was asked for yet",
            "send a prompt of several pages, flush SGLang's cache (POST /flush_cache), send it again",
        )
        return
    yield ok(TOPIC, f"{served} pages were served, {missed} were not there or not to be had")
    for label, pages in misses.most_common():
        if pages >= _WORTH_SAYING * missed:
            yield _explained(label, pages)


def _explained(label: str, pages: int) -> Finding:
    try:
        reason = MissReason(label)
    except ValueError:
        return note(TOPIC, f"{pages} pages: {label}")
    meaning, advice = ADVICE.get(reason, ("", ""))
    what = f"{pages} pages {label}" + (f": {meaning}" if meaning else "")
    return note(TOPIC, what, advice) if reason in _EXPECTED else problem(TOPIC, what, advice)


def _count(exposition: str) -> tuple[int, Counter[str]]:
    """Pages served, and pages that were not by reason."""
    from prometheus_client.parser import text_string_to_metric_families

    served, misses = 0, Counter[str]()
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name == "sgkv_hit_pages_total":
                served += int(sample.value)
            elif sample.name in _MISSES and sample.value:
                misses[sample.labels.get(_MISSES[sample.name], "unknown")] += int(sample.value)
    del misses["hit"]
    return served, misses
