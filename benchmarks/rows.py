"""The record of a benchmark: opponents timed in turns with ours, in one form for all."""

import time


def seconds(run) -> tuple[float, object]:
    """Processor seconds of one call, and what it returned."""
    start = time.process_time()
    found = run()
    return time.process_time() - start, found


class Row:
    """One row of the results: what was done, in how long, against whom, and which bars it had to pass.

    Every row has the fields ``title, work, ours, opponents, floors, measures, bars``. Times are processor
    seconds for the work named in `work`.
    """

    def __init__(self, benchmark):
        self.benchmark = benchmark
        self.record = benchmark.extra_info
        self.record.update(title="", work="", ours=0.0, opponents={}, floors={}, measures={}, bars=[])

    def in_turns(self, title, work, ours, opponents, floors=None, rounds=5) -> dict:
        """Time ours and all others in turns; keep the least processor time of each over the rounds.

        `opponents` and `floors` are ``{name: (run, share)}``: each does the fraction `share` of the work of
        `ours`, and its time is scaled up to all of it. In turns, a busy machine slows all sides alike.
        Returns what each side returned last.
        """
        self.record.update(title=title, work=work)
        floors = floors or {}
        sides = {None: (ours, 1.0), **opponents, **floors}
        times, found = {name: [] for name in sides}, {}
        self.benchmark.pedantic(ours, rounds=1)
        for _ in range(rounds):
            for name, (run, share) in sides.items():
                spent, found[name] = seconds(run)
                times[name].append(spent / share)
        self.record["ours"] = min(times[None])
        for group, names in (("opponents", opponents), ("floors", floors)):
            self.record[group] = {name: {"seconds": min(times[name])} for name in names}
        return found

    def alone(self, title, work, run) -> list[float]:
        """A row without opponents: `run` does the work once, and returns its processor seconds first."""
        self.record.update(title=title, work=work)
        found = self.benchmark.pedantic(run, rounds=1)
        self.record["ours"] = found[0]
        return found

    def measure(self, **values) -> None:
        """Keep further numbers: gaps, memory."""
        self.record["measures"].update(values)

    def times(self, names=None) -> float:
        """How many times faster we are than the fastest opponent (of `names`)."""
        rivals = [side["seconds"] for name, side in self.record["opponents"].items() if names is None or name in names]
        return min(rivals) / self.record["ours"] if rivals else float("nan")

    def over_floor(self) -> float:
        """How many times the fastest floor we take."""
        return self.record["ours"] / min(side["seconds"] for side in self.record["floors"].values())

    def bar(self, what: str, measured: float, at_least=None, at_most=None, aim=False) -> None:
        """Hold a measured number against what is asked for; an aim is what one hopes for beyond the bar."""
        asked = at_most if at_least is None else at_least
        met = bool(measured >= asked if at_most is None else measured <= asked)
        sign = "at least" if at_most is None else "at most"
        self.record["bars"].append(
            {"what": what, "sign": sign, "asked": asked, "measured": measured, "met": met, "aim": aim}
        )
