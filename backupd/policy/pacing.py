"""How fast a snapshot is read, as a pure law: looks in, a decision with its reason out.

Knows two prices. What the snapshot costs while it exists, and what reading costs, are seen together in how many of the
server's writes wait that would not wait without us: those in flight on average, less what their rate would have kept in
flight at the latency from before the snapshot (Little's law). Where four writers wait for each other that can be no
more than four, so it grows linearly at most, and the fastest copy is the cheapest; where writes come whatever happens
it explodes near saturation, and the cheapest copy is slower. The law climbs to where this price for each byte read is
lowest. It never looks at utilisation or throughput alone: a server that starves looks idle.

Refuses to know clocks, files and threads: `archive.governor` looks, waits, and does what is decided.

A read is held back before it is submitted, never in the disk's queue: there kcopyd, and every first write of the server
with it, would wait for it (`__check_for_conflicting_io` in the kernel's drivers/md/dm-snap.c).
"""

from dataclasses import dataclass, field, replace
from typing import Self

from backupd.policy.pace_trial import TRIAL_SECONDS, PaceLook, Trial

LEAST_SHARE = 1 / 16  # of full speed: a copy that crawls keeps the snapshot for ever
LOOK_SECONDS = 0.1  # between two looks
OFF_SECONDS = 0.1  # without a read, so that it is seen what the snapshot alone costs
OFF_EVERY_SECONDS = 2.0
_FIRST_SHARE = 1 / 4  # doubled at each trial that shows it to be cheaper
_RESTING_TRIAL_SECONDS = 1.0
_NOISE = 0.03  # of the price: less is no difference, and then the faster speed is the better one
_STEPS = (2.0, 1.4)  # by which the speed is changed: coarse on the way, fine near the best
_OTHER = 1.4  # times as long, or as short
_CROWDED = 1.6  # times what a write takes while nothing reads: take small steps
_REST_SECONDS = (5.0, 40.0)  # at the best one before its neighbours are tried again: at first, and at most
_DIFFERENT = 1.6  # times as dear, or as cheap, as when the rest began: something else has changed
_FREE_SHARE = 0.1  # a snapshot that costs nothing is reckoned to cost this much of what writes take, all the same
_NEAR_BUDGET = 0.8  # of what the budget allows on top of the baseline: here the speed is held
_BUDGET_SECONDS = 0.3  # between two changes for a budget
_IDLE_SECONDS = 0.3  # without a write of the server's: reading is free
_ON_TIME = 0.9  # of the time left, in which the copy is to be done
_HOPELESS = 1.25  # times the speed that the budgets allow, that would be needed
_HOPELESS_SECONDS = 10.0  # in which budget and deadline cannot both hold, less those in which they could
_SMOOTH = 0.5  # weight of what is new


@dataclass(frozen=True, slots=True)
class Budgets:
    """What the server may suffer from the copy; None: no limit."""

    max_latency: float | None = None  # of a write, as a multiple of what it takes with the snapshot while nothing reads
    max_lag_seconds: float | None = None  # of a replica
    max_penalty_seconds: float | None = None  # of the server's writing time that the snapshot and the copy take away


@dataclass(frozen=True, slots=True)
class PaceDecision:
    """How the next read is submitted: after the pause, and then as soon as nothing is in flight or the hold is over."""

    share: float  # of full speed, at least
    pause_seconds: float
    hold_seconds: float
    off: bool  # read nothing until the next look
    reason: str


@dataclass(frozen=True, slots=True)
class Pace:
    """What is known of how reading and the server get on; `after` a look it is another one. A new copy begins gently.

    Without `usual_seconds` (what a write took before the snapshot) it follows from `slowdown` (how many times as long
    it takes with it) and the first look without a read. Without both the price is not known: full speed, and budgets.
    """

    usual_seconds: float | None
    budgets: Budgets = Budgets()
    slowdown: float | None = None
    share: float = 1.0  # that is cheapest, as far as is known
    cap: float = 1.0  # that the budgets allow
    floor: float = 0.0  # that the time left asks for
    off: bool = True
    end: str = ""  # what comes first: the deadline, or the COW area's
    penalty_seconds: float = 0.0  # of the server's writing time that was lost since the snapshot
    abort: str | None = None  # why the copy cannot go on within its budgets
    base_seconds: float | None = None  # what a write takes with the snapshot while nothing reads
    off_latency: float | None = None  # what it took just before that was seen
    alone: float = 0.0  # writes that wait for the snapshot's sake alone
    latency_seconds: float | None = None  # what a write takes now
    read_seconds: float = 0.0  # what one read takes
    full_rate: float = 0.0  # bytes a second, while no read is held back
    trial: Trial = field(default_factory=Trial)
    best: tuple[float, float] | None = None  # share and price of the cheapest speed so far; None: not tried yet
    faster: bool = True  # the way to the next one
    turned: bool = False  # the other way was tried
    step: int = 0
    rest_seconds: float = 0.0  # still to go
    rest_next: float = _REST_SECONDS[0]
    resting: bool = False
    since_off: float = 0.0
    since_budget: float = 0.0
    idle_seconds: float = 0.0
    hopeless_seconds: float = 0.0

    @classmethod
    def at_first(
        cls,
        usual_seconds: float | None,
        budgets: Budgets,
        *,
        slowdown: float | None = None,
        penalty_seconds: float = 0.0,
    ) -> Self:
        """Before anything was read; the snapshot has cost so much by then."""
        is_known = usual_seconds is not None or slowdown is not None
        share = _FIRST_SHARE if is_known else 1.0
        return cls(usual_seconds, budgets, slowdown, share=share, penalty_seconds=penalty_seconds)

    @property
    def allowed(self) -> float:
        """The share of full speed that reading goes at."""
        return max(min(self.share, self.cap), min(1.0, self.floor), LEAST_SHARE)

    @property
    def decision(self) -> PaceDecision:
        """How the next read is to be submitted."""
        share = self.allowed
        wait = self.read_seconds * (1 / share - 1)
        return PaceDecision(share, wait / 2, wait / 2, self.off, self.reason)

    @property
    def reason(self) -> str:
        """Why reading goes at this speed."""
        if self.floor > min(self.share, self.cap):
            return f"any slower, the copy would not finish before {self.end}"
        if self.cap < self.share:
            return "any faster, the copy would exceed its budget"
        if self.usual_seconds is None:
            return "the baseline of write latency is not known"
        if self.idle_seconds >= _IDLE_SECONDS:
            return "the server is not writing"
        if not self.resting:
            return "finding the speed that costs the server least"
        if self.share >= 1:
            return "the sooner the snapshot is removed, the less it costs"
        return "balanced: slower prolongs the snapshot, faster delays the server"

    def after(self, look: PaceLook) -> Self:
        """What is known after one look more."""
        known = self._counted(look)
        if self.off:
            return known._with_base(look)
        known = known._with_latency(look)._timed(look)
        known = known._within_budgets(look)
        known = known._idle() if known.idle_seconds >= _IDLE_SECONDS else known._climbed(look)
        return replace(known._judged(look), off=known._off_is_due())

    # --- what is seen ------------------------------------------------------------------------------------------------

    def _waiting(self, look: PaceLook) -> float:
        """How many writes wait that would not wait without us."""
        if self.usual_seconds is None or look.seconds <= 0:
            return 0.0
        waiting = look.write_seconds / look.seconds if look.writes else float(look.in_flight)
        usual = min(self.usual_seconds, self.base_seconds or self.usual_seconds) * (1 - _FREE_SHARE)
        return max(0.0, waiting - look.writes / look.seconds * usual)

    def _counted(self, look: PaceLook) -> Self:
        writing = look.write_seconds / look.seconds if look.writes else float(look.in_flight)
        lost = min(1.0, self._waiting(look) / writing) if writing > 0 else 0.0
        quiet = not look.writes and not look.in_flight
        return replace(
            self,
            penalty_seconds=self.penalty_seconds + lost * look.seconds,
            idle_seconds=self.idle_seconds + look.seconds if quiet else 0.0,
            since_off=self.since_off + look.seconds,
            since_budget=self.since_budget + look.seconds,
            rest_seconds=self.rest_seconds - look.seconds,
        )

    def _with_base(self, look: PaceLook) -> Self:
        if not look.writes or look.write_seconds <= 0:  # a counter of milliseconds may show none for fast writes
            return replace(self, off=False, since_off=0.0)
        took = look.write_seconds / look.writes
        base = took if self.base_seconds is None else _smooth(self.base_seconds, took)
        usual = self.usual_seconds
        if usual is None and self.slowdown is not None:
            usual = base / max(1.0, self.slowdown)
        known = replace(self, usual_seconds=usual)
        alone = _smooth(self.alone, known._waiting(look))
        return replace(
            known, base_seconds=base, alone=alone, off=False, since_off=0.0, off_latency=self.latency_seconds
        )

    def _with_latency(self, look: PaceLook) -> Self:
        took = look.write_seconds / look.writes if look.writes else look.seconds if look.in_flight else None
        if took is None or self.latency_seconds is None:
            return replace(self, latency_seconds=took)
        return replace(self, latency_seconds=_smooth(self.latency_seconds, took))

    def _timed(self, look: PaceLook) -> Self:
        if not look.reads or look.reading_seconds <= 0:
            return self
        each, rate = look.reading_seconds / look.reads, look.read_bytes / look.reading_seconds
        return replace(
            self,
            read_seconds=_smooth(self.read_seconds, each) if self.read_seconds else each,
            full_rate=_smooth(self.full_rate, rate) if self.full_rate else rate,
        )

    def _off_is_due(self) -> bool:
        """Every two seconds; sooner where a budget hangs on it and writes take another time than they did then."""
        if self.budgets.max_latency is None or not self.off_latency or not self.latency_seconds:
            return self.since_off >= OFF_EVERY_SECONDS
        is_other = not 1 / _OTHER <= self.latency_seconds / self.off_latency <= _OTHER
        return self.since_off >= (OFF_EVERY_SECONDS / 4 if is_other else OFF_EVERY_SECONDS)

    # --- what follows ------------------------------------------------------------------------------------------------

    def _within_budgets(self, look: PaceLook) -> Self:
        """The cap follows what the budgets leave: down at once, up again as far as a straight line says."""
        strain = self._strain(look)
        if strain is None:
            return replace(self, cap=1.0)
        if self.since_budget < _BUDGET_SECONDS or _NEAR_BUDGET * 0.75 <= strain <= 1.0:
            return self
        factor = _NEAR_BUDGET / strain if strain > 0 else 2.0
        if strain > 1.0:
            return replace(self, cap=max(LEAST_SHARE, self.allowed * max(0.25, factor)), since_budget=0.0)
        return replace(self, cap=min(1.0, self.allowed * min(2.0, factor)), since_budget=0.0)

    def _strain(self, look: PaceLook) -> float | None:
        """How much of its budget the copy takes; 1 is all of it. None: there is no budget."""
        strains = []
        if self.budgets.max_latency is not None and self.base_seconds is not None:
            more = (self.latency_seconds or 0.0) - self.base_seconds
            strains.append(max(0.0, more) / (self.base_seconds * (self.budgets.max_latency - 1)))
        if self.budgets.max_lag_seconds is not None and look.lag_seconds is not None:
            strains.append(look.lag_seconds / self.budgets.max_lag_seconds)
        return max(strains, default=None)

    def _idle(self) -> Self:
        """Nobody writes: reading costs nobody anything."""
        return replace(self, share=1.0, trial=Trial(), best=None, faster=False, turned=True, resting=False)

    def _climbed(self, look: PaceLook) -> Self:
        """One look more at this speed; and the next speed, where it has been tried for long enough."""
        if self.usual_seconds is None:
            return self
        trial = self.trial.with_look(look, self._waiting(look))
        price = trial.price
        if price is None or not (self._is_far_too_dear(trial) or self._is_over(trial)):
            return replace(self, trial=trial)
        judged = replace(self, trial=Trial())
        if self.resting:
            return judged._rested(trial, price)
        if self.best is None:
            return replace(judged, best=(self.allowed, price))._onward(trial)
        if price <= self.best[1] * (1 + _NOISE + trial.doubt if self.faster else 1 - _NOISE - trial.doubt):
            return replace(judged, best=(self.allowed, price))._onward(trial)
        return replace(judged, share=self.best[0])._other_way(trial)

    def _is_over(self, trial: Trial) -> bool:
        return trial.is_over and (not self.resting or trial.seconds >= _RESTING_TRIAL_SECONDS)

    def _is_far_too_dear(self, trial: Trial) -> bool:
        """It has cost twice as much already as a whole trial at the best speed does."""
        return (
            self.best is not None
            and self.faster
            and not self.resting
            and trial.waiting > 2 * self.best[1] * max(TRIAL_SECONDS, trial.reading_seconds)
        )

    def _onward(self, trial: Trial) -> Self:
        """The next speed the same way, or the other way where there is none."""
        assert self.best is not None
        share = self.best[0]
        if self.faster and share < 1:
            step = _STEPS[-1] if self._is_crowded else _STEPS[self.step]
            return replace(self, share=min(1.0, share * step))
        if not self.faster and share > LEAST_SHARE and self._may_pay(trial):
            return replace(self, share=max(LEAST_SHARE, share / _STEPS[self.step]))
        return self._other_way(trial)

    @property
    def _is_crowded(self) -> bool:
        """Writes take so much longer while something reads that a little more could be too much."""
        return (self.latency_seconds or 0.0) > _CROWDED * (self.base_seconds or 0.0)

    def _may_pay(self, trial: Trial) -> bool:
        """Slower could be cheaper only where reading, and not the snapshot alone, is what writes wait for."""
        return self.alone * _STEPS[self.step] < (1 - _NOISE) * trial.waiting / trial.seconds

    def _other_way(self, trial: Trial) -> Self:
        if not self.turned:
            return replace(self, faster=not self.faster, turned=True)._onward(trial)
        if self.step + 1 < len(_STEPS):
            return replace(self, step=self.step + 1, turned=False, faster=not self.faster)._onward(trial)
        assert self.best is not None
        return replace(
            self,
            share=self.best[0],
            resting=True,
            rest_seconds=self.rest_next,
            rest_next=min(_REST_SECONDS[1], 2 * self.rest_next),
        )

    def _rested(self, trial: Trial, price: float) -> Self:
        assert self.best is not None
        if self.best[1] / _DIFFERENT <= price <= self.best[1] * _DIFFERENT:
            if self.rest_seconds > 0:
                return self
            step = len(_STEPS) - 1
            return replace(self, best=(self.allowed, price), resting=False, step=step, turned=False)._onward(trial)
        return replace(
            self,
            best=(self.allowed, price),
            resting=False,
            step=0,
            turned=False,
            faster=price < self.best[1],
            rest_next=_REST_SECONDS[0],
        )._onward(trial)

    def _judged(self, look: PaceLook) -> Self:
        """What the time left asks for, and whether that can be had within the budgets."""
        needed, end = max(look.needed_rates(_ON_TIME), default=(0.0, ""))
        floor = min(1.0, needed / self.full_rate) if self.full_rate else 0.0
        hopeless = floor > _HOPELESS * self.cap
        known = replace(
            self,
            floor=floor,
            end=end,
            hopeless_seconds=max(0.0, self.hopeless_seconds + (look.seconds if hopeless else -look.seconds)),
        )
        return replace(known, abort=known.abort or known._why_abort())

    def _why_abort(self) -> str | None:
        limit = self.budgets.max_penalty_seconds
        if limit is not None and self.penalty_seconds > limit:
            return f"the server has lost {self.penalty_seconds:.0f} s of writing, the limit is {limit:g} s"
        if self.hopeless_seconds >= _HOPELESS_SECONDS:
            return f"the copy cannot finish before {self.end} within the job's limits"
        return None


def _smooth(before: float, now: float) -> float:
    return before + _SMOOTH * (now - before)
