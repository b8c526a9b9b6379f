from fixtures.analysis.calibration import LevelNoise


def test_noise_is_known(calibration: list[LevelNoise]) -> None:
    """Each level was launched often enough to say what change of the speed-up the gate would see there."""
    assert calibration, "no level was measured"
    assert all(level.resolvable > 0 for level in calibration)
