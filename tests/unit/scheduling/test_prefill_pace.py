"""What prompts do to others' token gaps, and others to them, on a simulated machine with a manual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from scheduler_driver import SchedulerDriver, solo_output, spec
from simulated_machine import WORK, SimulatedMachine

from ferrum.core.config import SchedulerConfig
from ferrum.core.step import SampledToken, SamplingInstruction, SequencePart, StepPlan
from ferrum.scheduling.prefill_shares import PrefillShares
from ferrum.scheduling.scheduler import ContinuousBatchScheduler
from ferrum.scheduling.sequence import Sequence
from ferrum.scheduling.step_pace import StepPace

BLOCK_TOKENS = 32


MakeDriver = Callable[[SchedulerConfig, SimulatedMachine], "PacedDriver"]


class PacedDriver(SchedulerDriver):
    """A SchedulerDriver whose steps take simulated time and teach the scheduler's pace."""

    def __init__(self, config: SchedulerConfig, machine: SimulatedMachine) -> None:
        super().__init__(config, num_blocks=8192, block_tokens=BLOCK_TOKENS)
        self._machine = machine
        self.scheduler = ContinuousBatchScheduler(config, self.cache, None, self.clock, None, StepPace(WORK))
        self.step_times: list[float] = []
        self.stretches: list[float] = []  # of the steps with decodes: times as long as those alone

    def step(self) -> StepPlan | None:
        """Chooses without looking: reading back histories of thousands of tokens takes long."""
        plan = self.scheduler.schedule()
        if plan is None:
            return None
        seconds = self._machine.seconds(plan.parts)
        self.clock.advance(seconds)
        self.step_times.append(seconds)
        decodes = [part for part in plan.parts if part.is_decode]
        if decodes:
            self.stretches.append(seconds / self._machine.seconds(decodes))
        self.scheduler.learn(plan.parts, seconds)
        tokens = [SampledToken(part.request_id, 1) for part in plan.parts if part.choices]
        self.take(plan.parts, tokens)
        return plan

    def decode_together(self, count: int, steps: int = 40) -> float:
        """Starts ``count`` requests and lets them decode; the time of a step by then."""
        for number in range(count):
            self.submit(spec(f"decode{number}", 20, max_tokens=4000))
        for _ in range(steps):
            self.step()
        return self.step_times[-1]

    def run_prompt(self, request_id: str, num_tokens: int) -> list[float]:
        """Computes a prompt to its first token; the times of the steps that took."""
        self.submit(spec(request_id, num_tokens, max_tokens=2))
        begun = len(self.step_times)
        while not self.outputs[request_id]:
            self.step()
        return self.step_times[begun:]


@pytest.fixture
def make_driver() -> Iterator[MakeDriver]:
    """Makes drivers and cancels, at the end, what a test left running."""
    drivers: list[PacedDriver] = []

    def make(config: SchedulerConfig, machine: SimulatedMachine) -> PacedDriver:
        drivers.append(PacedDriver(config, machine))
        return drivers[-1]

    yield make
    for driver in drivers:
        for request_id in driver.active:
            driver.cancel(request_id)
        driver.assert_nothing_is_held()


@pytest.mark.parametrize("num_decodes", [1, 8, 15])
@pytest.mark.parametrize("stretch", [2.0, 4.0, 8.0])
def test_a_long_prompt_stretches_no_gap_beyond_the_bound(
    make_driver: MakeDriver, num_decodes: int, stretch: float
) -> None:
    config = SchedulerConfig(max_decode_stretch=stretch, min_prefill_tokens=1)
    driver = make_driver(config, SimulatedMachine())
    driver.decode_together(num_decodes)
    begun = len(driver.stretches)
    driver.run_prompt("long", 8000)
    # The first steps show what prompts cost here.
    stretches = sorted(driver.stretches[begun + 3 :])
    assert stretches[-1] <= 1.25 * stretch
    # It takes what the bound leaves it, rather than creeping on.
    assert stretches[len(stretches) // 2] >= 0.6 * stretch


def test_streams_that_deepen_meanwhile_do_not_widen_the_bound(make_driver: MakeDriver) -> None:
    """Hundreds of steps of a long prompt make the streams' own steps half as long again."""
    driver = make_driver(SchedulerConfig(max_decode_stretch=4.0), SimulatedMachine())
    usual = driver.decode_together(8, steps=100)
    steps = driver.run_prompt("long", 8000)
    alone_at_the_end = driver.step_times[-1] / driver.stretches[-1]
    assert alone_at_the_end > 1.3 * usual
    assert max(steps[3:]) <= 4.5 * usual


def test_slow_steps_just_before_a_prompt_do_not_widen_the_bound(make_driver: MakeDriver) -> None:
    """Taking the prompt in disturbs the last steps before it: they say nothing of what is usual."""
    slowness = [1.0]
    machine = SimulatedMachine(noise=lambda: slowness[0])
    driver = make_driver(SchedulerConfig(max_decode_stretch=4.0), machine)
    usual = driver.decode_together(8, steps=100)
    slowness[0] = 1.4
    driver.decode_together(0, steps=6)
    slowness[0] = 1.0
    assert max(driver.run_prompt("long", 2000)[3:]) <= 4.5 * usual


def test_a_prompt_alone_does_not_pay_twice_for_what_its_chunk_reads_once() -> None:
    """Half a step's time is kept for the oldest prompt, which then grows its chunk by the other half."""
    config, pace = SchedulerConfig(min_prefill_tokens=1), StepPace(WORK)
    decodes = [_decode(f"decode{number}", depth=500) for number in range(8)]
    prompt = SequencePart("prompt", (1,) * 100, 6900, (), ())
    machine = SimulatedMachine()
    for parts in (decodes, [prompt]) * 50:
        pace.learn(parts, machine.seconds(parts))
    deep = Sequence(spec("long", 8000, max_tokens=2), 0, 0.0)
    deep.num_computed_tokens = 7000
    chunk = PrefillShares(config, pace).divide([deep], 500, decodes)[deep]
    allowed = (config.max_decode_stretch - 1) * pace.predict_decodes(decodes)
    assert pace.predict_chunk(7000, chunk) <= allowed < pace.predict_chunk(7000, chunk + 2)


def _decode(request_id: str, depth: int) -> SequencePart:
    instruction = SamplingInstruction(0.0, 0, 1.0, 0.0, seed=0, position=depth + 1)
    return SequencePart(request_id, (1,), depth, (), (instruction,))


@pytest.mark.parametrize("slowness", [0.1, 1.0, 8.0])
def test_alone_a_prompt_is_cut_by_time_on_any_machine(make_driver: MakeDriver, slowness: float) -> None:
    driver = make_driver(SchedulerConfig(max_step_s=0.1, min_prefill_tokens=1), SimulatedMachine(slowness))
    steps = driver.run_prompt("long", 8000)
    longest = max(steps[3:])
    assert longest <= 0.125


def test_chunks_shrink_as_a_prompt_goes_on(make_driver: MakeDriver) -> None:
    driver = make_driver(SchedulerConfig(max_step_s=0.05), SimulatedMachine())
    driver.submit(spec("long", 8000, max_tokens=2))
    sizes = []
    while not driver.outputs["long"]:
        plan = driver.step()
        assert plan is not None
        sizes.append(plan.num_tokens)
    assert sizes[5] > 2 * sizes[-2]


def test_a_prompt_goes_on_beside_decodes_however_dear_it_is(make_driver: MakeDriver) -> None:
    config = SchedulerConfig(max_decode_stretch=1.0, min_prefill_tokens=3)
    driver = make_driver(config, SimulatedMachine())
    driver.decode_together(2)
    assert len(driver.run_prompt("long", 300)) == 100


def test_decodes_that_take_as_long_as_a_step_may_leave_prompts_as_much(make_driver: MakeDriver) -> None:
    driver = make_driver(SchedulerConfig(max_step_s=0.001), SimulatedMachine())
    alone = driver.decode_together(4)
    steps = driver.run_prompt("long", 2000)
    assert sorted(steps)[len(steps) // 2] == pytest.approx(2 * alone, rel=0.3)


def test_short_prompts_pass_a_long_one_which_still_goes_on(make_driver: MakeDriver) -> None:
    driver = make_driver(SchedulerConfig(), SimulatedMachine())
    driver.decode_together(4)
    driver.submit(spec("long", 6000, max_tokens=2))
    for _ in range(5):
        driver.step()
    alone = sum(driver.run_prompt("short", 40))
    computed = driver.scheduler._sequences["long"].num_computed_tokens
    assert alone < 0.15
    assert computed < 6000
    before = computed
    for number in range(30):
        driver.run_prompt(f"short{number}", 40)
    # Half of every step's time is the long prompt's, whoever else comes.
    assert driver.scheduler._sequences["long"].num_computed_tokens - before > 30 * 20


def test_pace_changes_no_token() -> None:
    requests = [spec(f"r{number}", 60 + 50 * number, max_tokens=6) for number in range(3)]
    alone = {request.request_id: solo_output(request) for request in requests}
    num_steps = set()
    for stretch, slowness in ((1.0, 1.0), (4.0, 1.0), (4.0, 50.0), (1000.0, 0.01)):
        driver = SchedulerDriver(SchedulerConfig(max_decode_stretch=stretch), num_blocks=256)
        machine = SimulatedMachine(slowness)
        driver.scheduler = ContinuousBatchScheduler(
            SchedulerConfig(max_decode_stretch=stretch, min_prefill_tokens=1),
            driver.cache,
            pace=StepPace(WORK),
        )
        for request in requests:
            driver.submit(request)
        steps = 0
        while (plan := driver.step()) is not None:
            driver.scheduler.learn(plan.parts, machine.seconds(plan.parts))
            steps += 1
        num_steps.add(steps)
        assert driver.outputs == alone
    assert len(num_steps) > 1
