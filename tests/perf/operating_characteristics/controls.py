"""Negative controls: rules that are known to be bad must look bad here, or the harness measures nothing."""

import numpy as np

from fixtures.analysis.measurements import BASELINE, Night
from tests.perf.operating_characteristics.faults import LEVELS, Fault, Floats, X
from tests.perf.operating_characteristics.nights import Noise, World, first_block


def log_throughputs(night: Night, variant: str) -> Floats:
    """Return launches × levels × windows of one arm, straight from the cells."""
    cells = [cell for cell in night.cells if cell.variant == variant]
    launches = sorted({cell.launch for cell in cells})
    by_key = {(cell.launch, cell.concurrency): cell for cell in cells}
    return np.array(
        [
            [[np.log(w.output_tokens / w.seconds) for w in by_key[launch, level].rounds] for level in LEVELS]
            for launch in launches
        ]
    )


def mean_ratio(night: Night) -> Floats:
    """Return the ratio of plain means of block 1, as the rule of thumb has it."""
    slow, fast = (np.exp(log_throughputs(first_block(night), v)).mean(axis=(0, 2)) for v in (BASELINE, "eagle3"))
    ratio: Floats = fast / slow
    return ratio


class LiteralSignRule:
    """Faster at each level that was recorded faster, not faster at the others: nothing else."""

    def __init__(self, recording: Night) -> None:
        self.faster = mean_ratio(recording) > 1

    def fails(self, night: Night) -> bool:
        """Whether the rule would be red."""
        return bool(((mean_ratio(night) > 1) != self.faster).any())


def false_alarms_of_the_sign(seed: int, curve: Floats, noise: Noise, nights: int) -> float:
    """Return the false alarms of the literal sign rule in a year."""
    world = World(seed, curve, noise)
    rule = LiteralSignRule(world.night(windows=5))
    return 365 * float(np.mean([rule.fails(world.night(blocks=1)) for _ in range(nights)]))


def detections_of_the_sign(seed: int, curve: Floats, noise: Noise, fault: Fault, nights: int) -> float:
    """Return the share of nights with *fault* that the literal sign rule sees."""
    world = World(seed, curve, noise)
    rule = LiteralSignRule(world.night(windows=5))
    return float(np.mean([rule.fails(world.night(fault, blocks=1)) for _ in range(nights)]))


def bootstrap_covers(night: Night, truth: float, rng: np.random.Generator, draws: int = 200) -> bool:
    """Whether a 95 % interval from resampled windows, launches ignored, holds the true crossover."""
    arms = [log_throughputs(night, v).transpose(1, 0, 2).reshape(len(LEVELS), -1) for v in (BASELINE, "eagle3")]
    picked = [rng.integers(0, arm.shape[1], (draws, *arm.shape)) for arm in arms]
    means = [np.take_along_axis(arm[None], index, -1).mean(-1) for arm, index in zip(arms, picked, strict=True)]
    crossings = [_first_fall(row) for row in means[1] - means[0]]
    low, high = np.quantile(crossings, [0.025, 0.975], method="nearest")
    return bool(low <= np.log(truth) <= high)


def _first_fall(ratio: Floats) -> float:
    if ratio[0] <= 0:
        return -np.inf
    below = np.flatnonzero(ratio <= 0)
    if not len(below):
        return np.inf
    i = int(below[0]) - 1
    return float(X[i] + (X[i + 1] - X[i]) * ratio[i] / (ratio[i] - ratio[i + 1]))
